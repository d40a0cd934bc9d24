//! How fast texts become pieces on this machine, and which pieces they become:
//!
//!     cargo run --release -p frazil-bert --example tokenize_speed -- vocab.txt texts.txt 1 5
//!
//! cuts each line of `texts.txt` five times on one thread. With `ids` as the last word it prints
//! the ids and places of each line instead. Timed from inside, so that the start of the process
//! and reading do not count. `cargo xtask bench tokenize` runs it in turns with Hugging Face's
//! tokenizers, `cargo xtask peers tokenizers` compares what the two find.
#![allow(clippy::print_stdout, reason = "an example that reports")]

use std::error::Error;
use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use frazil_bert::tokenizer::Tokenizer;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [vocabulary, texts, threads, rounds] = args.as_slice() else {
        return Err("usage: tokenize_speed VOCABULARY TEXTS THREADS ROUNDS|ids".into());
    };
    let tokenizer = Tokenizer::open(vocabulary)?;
    let text = std::fs::read_to_string(texts)?;
    // Lines end at line feeds only: other controls are part of the texts.
    let texts: Vec<&str> = text.split('\n').collect();
    let threads: usize = threads.parse()?;
    if rounds == "ids" {
        return print_ids(&tokenizer, &texts, threads);
    }
    let mut seconds = Vec::new();
    let mut pieces = 0;
    for _ in 0..rounds.parse::<usize>()? {
        let start = Instant::now();
        let encodings = black_box(tokenizer.encode_batch(black_box(&texts), threads));
        seconds.push(start.elapsed().as_secs_f64());
        pieces = encodings.iter().map(|encoding| encoding.len()).sum();
    }
    println!(r#"{{"seconds": {seconds:?}, "pieces": {pieces}, "bytes": {}}}"#, text.len());
    Ok(())
}

/// A line for each text: `id:start:end`, with a space between two.
fn print_ids(tokenizer: &Tokenizer, texts: &[&str], threads: usize) -> Result<(), Box<dyn Error>> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for encoding in tokenizer.encode_batch(texts, threads) {
        for (i, (id, (start, end))) in encoding.ids.iter().zip(&encoding.offsets).enumerate() {
            let space = if i > 0 { " " } else { "" };
            write!(out, "{space}{id}:{start}:{end}")?;
        }
        writeln!(out)?;
    }
    Ok(out.flush()?)
}
