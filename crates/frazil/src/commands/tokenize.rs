//! `frazil tokenize MODEL [TEXT]...`

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use frazil::bert::tokenizer::Casing;
use frazil::ops::tokenize::{self, Options, Report, Text};

use crate::cli::Outcome;

/// Cut texts into the word pieces of a model, exactly as google-research/bert does
///
/// MODEL is a `vocab.txt`, a `tokenizer.json`, a folder that has one, or a model beside one. Texts
/// are arguments, or else the lines of a file or of stdin; each gives one line of pieces.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil tokenize uncased_L-12_H-768_A-12 'Frazil ice binds and packs.'
  frazil tokenize vocab.txt --file corpus.txt --ids > ids.txt
  frazil tokenize vocab.txt --pair 'Does it float?' 'Ice floats on water.' \\
      --json")]
pub struct Args {
    /// The model or its vocabulary
    model: PathBuf,
    /// What to cut; without it, lines are read
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,
    /// Cut the lines of this file (`-`: stdin)
    #[arg(long, value_name = "FILE", conflicts_with = "texts")]
    file: Option<PathBuf>,
    /// Print ids instead of pieces
    #[arg(long)]
    ids: bool,
    /// Print each piece on its own line: first byte, byte after the last, id, piece
    #[arg(long, conflicts_with = "ids")]
    offsets: bool,
    /// Keep upper case and accents, whatever the model's files say
    #[arg(long)]
    cased: bool,
    /// Lower, and remove accents, whatever the model's files say
    #[arg(long, conflicts_with = "cased")]
    uncased: bool,
    /// Join two texts as `[CLS]` A `[SEP]` B `[SEP]`: two arguments, or lines with a tab
    #[arg(long)]
    pair: bool,
    /// Take `[MASK]`, `[SEP]` and so on in a text for the pieces of that name
    #[arg(long)]
    keep_special: bool,
    /// Print a report as JSON
    #[arg(long, conflicts_with_all = ["ids", "offsets"])]
    json: bool,
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    let casing = match (args.cased, args.uncased) {
        (true, _) => Some(Casing::Keep),
        (_, true) => Some(Casing::Lower),
        _ => None,
    };
    let (pair, keep_special) = (args.pair, args.keep_special);
    let options = Options { casing, pair, keep_special, ..Options::default() };
    let opened = tokenize::open(&args.model, &options)?;
    let mut all = Vec::new();
    let mut each = |texts: Vec<Text>| -> Result<()> {
        if args.json {
            all.extend(texts);
            return Ok(());
        }
        texts.iter().try_for_each(|text| print(text, &args, out)).map_err(Into::into)
    };
    match (&args.texts[..], &args.file) {
        ([], Some(path)) if path != Path::new("-") => {
            let file = File::open(path).with_context(|| format!("`{}`", path.display()))?;
            opened.cut_lines(BufReader::new(file), path, each)?;
        }
        ([], _) => opened.cut_lines(io::stdin().lock(), Path::new("stdin"), each)?,
        (texts, _) if pair => {
            let pairs: Vec<String> = texts.chunks(2).map(|pair| pair.join("\t")).collect();
            each(opened.cut(&pairs)?)?;
        }
        (texts, _) => each(opened.cut(texts)?)?,
    }
    if args.json {
        let report = Report { about: opened.about().clone(), texts: all };
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)?;
    }
    Ok(Outcome::Done)
}

fn print(text: &Text, args: &Args, out: &mut dyn Write) -> io::Result<()> {
    if args.offsets {
        for ((token, id), offsets) in text.tokens.iter().zip(&text.ids).zip(&text.offsets) {
            match offsets {
                Some((start, end)) => writeln!(out, "{start}\t{end}\t{id}\t{token}")?,
                None => writeln!(out, "-\t-\t{id}\t{token}")?,
            }
        }
        return writeln!(out);
    }
    let mut space = "";
    for (token, id) in text.tokens.iter().zip(&text.ids) {
        match args.ids {
            true => write!(out, "{space}{id}")?,
            false => write!(out, "{space}{token}")?,
        }
        space = " ";
    }
    writeln!(out)
}
