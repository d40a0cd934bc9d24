//! `frazil predict fill-mask MODEL [TEXT]...`

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use frazil::ops::predict::fill_mask::{Filled, Filler, Options};

use super::sink::Sink;
use super::texts::Flags;
use crate::cli::Outcome;
use crate::commands::progress::Progress;

/// Tell the likeliest word pieces for each `[MASK]` in a text
///
/// MODEL has a head for masked words: a checkpoint of pre-training (as Google published them), a
/// graph that gives their probabilities, or a Hugging Face folder of a BertForMaskedLM or
/// BertForPreTraining.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil predict fill-mask uncased_L-12_H-768_A-12 \\
      'The river [MASK] in winter.'
  frazil predict fill-mask bert-base-uncased --file texts.txt --top 10 \\
      --json > filled.jsonl")]
pub struct Args {
    /// The model
    model: PathBuf,
    #[command(flatten)]
    texts: Flags,
    /// How many word pieces for each mask
    #[arg(long, short = 'k', value_name = "N", default_value_t = 5)]
    top: usize,
    /// Write lines of JSON to this file
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    let mut texts = args.texts.open()?;
    let options = Options { model: args.texts.model.options()?, top: args.top };
    let filler = Filler::open(&args.model, &options)?;
    args.texts.notes(&filler.about().notes);
    let progress = Progress::new("filling", "texts", args.texts.model.quiet());
    let mut done = 0;
    let json = args.json || args.out.is_some();
    let mut sink = Sink::open(args.out.as_deref(), out)?;
    let counts = filler.fill(&mut texts, |filled| -> Result<()> {
        let out = sink.writer();
        if json {
            serde_json::to_writer(&mut *out, &filled)?;
            writeln!(out)?;
        } else {
            print(&filled, out)?;
        }
        done += 1;
        progress.so_far(done);
        Ok(())
    })?;
    sink.finish()?;
    progress.finish();
    let mut ends = Vec::new();
    if counts.cut > 0 {
        let (cut, all, most) = (counts.cut, counts.texts, filler.about().max_seq_length);
        let masks = match counts.masks_cut {
            0 => String::new(),
            lost => format!(", and {lost} `[MASK]` with them"),
        };
        ends.push(format!("{cut} of {all} texts were cut to {most} word pieces{masks}"));
    }
    args.texts.notes(&ends);
    args.texts.skipped(counts.skipped);
    Ok(Outcome::Done)
}

/// The text, and under it for each mask a line for each piece.
fn print(filled: &Filled, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "{}", filled.text)?;
    for (i, mask) in filled.masks.iter().enumerate() {
        if filled.masks.len() > 1 {
            writeln!(out, "  [MASK] {}", i + 1)?;
        }
        for piece in &mask.pieces {
            writeln!(out, "  {:.4}  {}", piece.probability, piece.token)?;
        }
    }
    Ok(())
}
