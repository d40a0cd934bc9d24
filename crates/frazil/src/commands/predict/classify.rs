//! `frazil predict classify MODEL [FILE]`

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use frazil::bert::glue::own::Column;
use frazil::bert::glue::{Split, Task};
use frazil::ops::predict::classify::{Classifier, Options, Prediction, Report};
use frazil::ops::predict::rows::Source;
use frazil::tensor::words::plural;
use serde_json::{Map, Value, json};

use super::flags::TextFlags;
use super::sink::{OutFlags, RowFlags, RowProgress, Sink, column, say};
use crate::cli::Outcome;

/// Classify texts or pairs of texts
///
/// MODEL is any classifier: a checkpoint with its bert_config.json, a frozen graph, a SavedModel, an
/// ONNX model, a Hugging Face folder, a compiled model. FILE is a table of texts, a GLUE data set
/// with `--task`, or stdin. Each row gives a line: its id, its label, and how likely each label is.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil predict classify model/ reviews.tsv --labels bad,good > labels.tsv
  frazil predict classify model/ --text 'Frazil binds.' \\
      --pair 'Ice binds together.'
  frazil predict classify model/ glue_data/MRPC --task MRPC --split dev \\
      --out dev.tsv --json
  cat questions.txt | frazil predict classify frozen.pb - --vocab vocab.txt \\
      --jsonl")]
pub struct Args {
    /// The model
    model: PathBuf,
    #[command(flatten)]
    rows: RowFlags,
    /// FILE is a folder (or a file) of this GLUE task: MRPC, CoLA, MNLI, XNLI, SST-2, QNLI, RTE, STS-B, WNLI, QQP
    #[arg(long, value_name = "NAME", requires = "file")]
    task: Option<Task>,
    /// Which part of the task: train, dev, dev-mismatched, test or test-mismatched
    #[arg(long, value_name = "PART", requires = "task", default_value = "test", value_parser = split)]
    split: Split,
    /// The column of labels that rows should get: predictions are scored by it
    #[arg(long, value_name = "COLUMN", value_parser = column, conflicts_with = "task")]
    label_column: Option<Column>,
    /// What the classes are called, in the order of the model's outputs
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    labels: Option<Vec<String>>,
    #[command(flatten)]
    output: OutFlags,
    #[command(flatten)]
    flags: TextFlags,
}

/// A part of a data set by its name.
pub fn split(text: &str) -> Result<Split, String> {
    match text {
        "train" => Ok(Split::Train),
        "dev" => Ok(Split::Dev),
        "dev-mismatched" => Ok(Split::DevMismatched),
        "test" => Ok(Split::Test),
        "test-mismatched" => Ok(Split::TestMismatched),
        _ => Err("parts are train, dev, dev-mismatched, test and test-mismatched".into()),
    }
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    let on_bad_row = args.flags.on_bad_row();
    let mut source = match (args.task, &args.rows.file) {
        (Some(task), Some(folder)) => Source::task(task, folder, args.split, on_bad_row)?,
        _ => args.rows.source(args.label_column.clone(), on_bad_row)?,
    };
    let options = Options { model: args.flags.options()?, labels: args.labels, task: args.task };
    let classifier = Classifier::open(&args.model, &options)?;
    let labels = classifier.labels();
    let progress = RowProgress::new("classifying", &source, args.flags.quiet());
    let mut sink = Sink::open(args.output.out.as_deref(), out)?;
    let (jsonl, labelled) = (args.output.jsonl, source.labelled);
    let mut first = !jsonl;
    let report = classifier.run(&mut source, |prediction, done| -> Result<()> {
        progress.at(done);
        if std::mem::take(&mut first) {
            header(labels, labelled, sink.writer())?;
        }
        match jsonl {
            true => line(&prediction, labels, sink.writer()),
            false => row(&prediction, sink.writer()),
        }
    })?;
    progress.finish();
    sink.finish()?;
    finish(&report, &args.output, args.flags.quiet(), out)?;
    Ok(Outcome::Done)
}

/// The names of the columns.
fn header(labels: Option<&[String]>, labelled: bool, out: &mut dyn Write) -> Result<()> {
    write!(out, "id\t{}", if labels.is_some() { "label" } else { "score" })?;
    if labelled {
        write!(out, "\texpected")?;
    }
    for label in labels.unwrap_or_default() {
        write!(out, "\t{label}")?;
    }
    Ok(writeln!(out)?)
}

fn row(prediction: &Prediction, out: &mut dyn Write) -> Result<()> {
    write!(out, "{}\t", prediction.id)?;
    match (&prediction.label, prediction.score) {
        (Some(label), _) => write!(out, "{label}")?,
        (None, score) => write!(out, "{}", score.unwrap_or(f32::NAN))?,
    }
    if let Some(expected) = &prediction.expected {
        write!(out, "\t{expected}")?;
    }
    for probability in &prediction.probabilities {
        write!(out, "\t{probability}")?;
    }
    Ok(writeln!(out)?)
}

fn line(prediction: &Prediction, labels: Option<&[String]>, out: &mut dyn Write) -> Result<()> {
    let mut value = serde_json::to_value(prediction)?;
    if let (Value::Object(object), Some(labels)) = (&mut value, labels) {
        let probabilities: Map<String, Value> = labels
            .iter()
            .zip(&prediction.probabilities)
            // By its own digits: as a wider number it would have twice as many.
            .map(|(label, probability)| {
                let digits = probability.to_string().parse::<f64>();
                (label.clone(), json!(digits.unwrap_or(f64::NAN)))
            })
            .collect();
        object.insert("probabilities".into(), Value::Object(probabilities));
    }
    serde_json::to_writer(&mut *out, &value)?;
    Ok(writeln!(out)?)
}

fn finish(report: &Report, output: &OutFlags, quiet: bool, out: &mut dyn Write) -> Result<()> {
    if output.json {
        serde_json::to_writer_pretty(&mut *out, report)?;
        writeln!(out)?;
    }
    let mut summary = format!(
        "{} {} classified in {:.2} s",
        report.rows,
        plural(report.rows, "row"),
        report.seconds
    );
    if let Some(labels) = &report.labels {
        let counts: Vec<String> =
            labels.iter().zip(&report.predicted).map(|(l, n)| format!("{n} {l}")).collect();
        summary.push_str(&format!(": {}", counts.join(", ")));
    }
    for score in &report.scores {
        summary.push_str(&format!("\n{}: {:.4}", score.name, score.value));
    }
    say(quiet, &report.notes, &report.skipped, &summary);
    Ok(())
}
