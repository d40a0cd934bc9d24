//! `frazil evaluate glue TASK DATA --predictions FILE | --model MODEL`

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use frazil::bert::glue::{Split, Task};
use frazil::ops::evaluate::glue::{Report, score_file, score_model};
use frazil::ops::predict::classify::Options;
use frazil::tensor::words::plural;

use super::predict::{TextFlags, say, split};
use super::progress::Progress;
use super::table::Table;
use crate::cli::Outcome;

/// GLUE's official scores of predictions, frazil's or anyone's, or of a model
///
/// Predictions are in the order of the data's rows: GLUE's `index`, `prediction`, what `frazil
/// predict classify` writes, a `test_results.tsv`, JSON Lines, or one label a line.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil evaluate glue MRPC glue_data/MRPC --predictions MRPC.tsv
  frazil evaluate glue STS-B glue_data/STS-B/dev.tsv \\
      --predictions scores.tsv --json
  frazil evaluate glue MNLI glue_data/MNLI --split dev-mismatched \\
      --model model/")]
pub struct Args {
    /// MRPC, CoLA, MNLI, XNLI, SST-2, QNLI, RTE, STS-B, WNLI or QQP
    task: Task,
    /// The task's folder, or the file with its labels
    data: PathBuf,
    /// The predictions
    #[arg(long, value_name = "FILE", required_unless_present = "model", conflicts_with = "model")]
    predictions: Option<PathBuf>,
    /// The model to predict with
    #[arg(long)]
    model: Option<PathBuf>,
    /// Which part of the task: train, dev or dev-mismatched
    #[arg(long, value_name = "PART", default_value = "dev", value_parser = split)]
    split: Split,
    /// What the model's classes are called, in the order of its outputs
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', requires = "model")]
    labels: Option<Vec<String>>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: TextFlags,
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    if matches!(args.split, Split::Test | Split::TestMismatched) {
        return Err(frazil::Error::Usage {
            what: "a test set has no labels to score by".into(),
            hint: "give `--split dev`".into(),
        }
        .into());
    }
    let on_bad_row = args.flags.on_bad_row();
    let report = match (&args.model, &args.predictions) {
        (Some(model), _) => {
            let options = Options {
                model: args.flags.options()?,
                labels: args.labels,
                task: Some(args.task),
            };
            let progress = Progress::new("classifying", "rows", args.flags.quiet());
            let mut at = |done, total| progress.at(done, total);
            let report = score_model(
                args.task, &args.data, args.split, model, &options, on_bad_row, &mut at,
            )?;
            progress.finish();
            report
        }
        (None, predictions) => {
            let predictions = predictions.clone().unwrap_or_default();
            score_file(args.task, &args.data, args.split, &predictions, on_bad_row)?
        }
    };
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)?;
    } else {
        print(&report, out)?;
    }
    let summary =
        format!("{} {} of `{}`", report.rows, plural(report.rows, "row"), report.data.display());
    say(args.flags.quiet() || args.json, &report.notes, &report.skipped, &summary);
    Ok(Outcome::Done)
}

fn print(report: &Report, out: &mut dyn Write) -> Result<()> {
    let mut table = Table::new(&["task", "score", ">value"]);
    for score in &report.scores {
        table.row([report.task.clone(), score.name.into(), format!("{:.6}", score.value)]);
    }
    Ok(table.print(out)?)
}
