//! How long a SQuAD file takes to become features on this machine:
//!
//!     cargo run --release -p frazil-bert --example squad_feature_speed -- dev.json vocab.txt 1 5
//!
//! reads `dev.json` and builds its features five times on one thread. Timed from inside, reading
//! and building apart: the start of the process and the vocabulary do not count. `cargo xtask
//! bench squad` runs it in turns with the original's code, and compares the sums.
#![allow(clippy::print_stdout, reason = "an example that reports")]

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use frazil_bert::squad::{FeatureOptions, ReadOptions, build_features, read_examples};
use frazil_bert::tokenizer::{Casing, Tokenizer, Vocabulary};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [data, vocabulary, threads, rounds] = args.as_slice() else {
        return Err("usage: squad_feature_speed DATA VOCABULARY THREADS ROUNDS".into());
    };
    let tokenizer = Tokenizer::new(Arc::new(Vocabulary::open(vocabulary)?), Casing::Lower)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.parse()?).build()?;
    let (mut read, mut build) = (Vec::new(), Vec::new());
    let (mut questions, mut features, mut sum) = (0, 0, 0_u64);
    for _ in 0..rounds.parse::<usize>()? {
        let start = Instant::now();
        let examples = black_box(read_examples(data, ReadOptions::default())?.items);
        read.push(start.elapsed().as_secs_f64());
        let start = Instant::now();
        let built =
            pool.install(|| build_features(&examples, &tokenizer, FeatureOptions::default()))?;
        let built = black_box(built);
        build.push(start.elapsed().as_secs_f64());
        (questions, features) = (examples.len(), built.len());
        // Of every id and its place.
        sum = built.iter().fold(0, |sum, features| {
            let ids = (1..).zip(features.features.ids());
            ids.fold(sum, |sum: u64, (place, &id)| sum + place * u64::from(id.unsigned_abs()))
        });
    }
    println!(
        r#"{{"read": {read:?}, "build": {build:?}, "questions": {questions}, "features": {features}, "sum": {sum}}}"#
    );
    Ok(())
}
