//! `frazil predict next-sentence MODEL [FILE]`

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use frazil::ops::predict::next_sentence::{Prediction, next_sentence};

use super::flags::TextFlags;
use super::sink::{OutFlags, RowFlags, RowProgress, Sink, say};
use crate::cli::Outcome;

/// How likely it is that the second text of a pair follows the first
///
/// MODEL is a model with the head that BERT was pre-trained with. FILE is a table of pairs: columns
/// `text` and `pair` by name, or `--text-column 1 --pair-column 2`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil predict next-sentence bert_model.ckpt --text 'It froze.' \\
      --pair 'Ice drifted by.'
  frazil predict next-sentence uncased_L-12_H-768_A-12 pairs.jsonl --jsonl")]
pub struct Args {
    /// The model
    model: PathBuf,
    #[command(flatten)]
    rows: RowFlags,
    #[command(flatten)]
    output: OutFlags,
    #[command(flatten)]
    flags: TextFlags,
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    let mut source = args.rows.source(None, args.flags.on_bad_row())?;
    let options = args.flags.options()?;
    let progress = RowProgress::new("reading pairs", &source, args.flags.quiet());
    let mut sink = Sink::open(args.output.out.as_deref(), out)?;
    let jsonl = args.output.jsonl;
    let mut first = true;
    let each = |prediction: Prediction, done: (u64, Option<u64>)| -> Result<()> {
        progress.at(done);
        let out = sink.writer();
        if jsonl {
            serde_json::to_writer(&mut *out, &prediction)?;
            return Ok(writeln!(out)?);
        }
        if std::mem::take(&mut first) {
            writeln!(out, "id\tis_next\tprobability")?;
        }
        let Prediction { id, is_next, probability } = prediction;
        Ok(writeln!(out, "{id}\t{is_next}\t{probability}")?)
    };
    let report = next_sentence(&args.model, &options, &mut source, each)?;
    progress.finish();
    sink.finish()?;
    if args.output.json {
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)?;
    }
    let summary = format!(
        "{} pairs read in {:.2} s: {} follow each other",
        report.rows, report.seconds, report.next
    );
    say(args.flags.quiet(), &report.notes, &report.skipped, &summary);
    Ok(Outcome::Done)
}
