//! `frazil predict answer MODEL [FILE]`

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use frazil::bert::squad::{PredictOptions, Predictions, Question};
use frazil::ops::predict::answer::{Answerer, Format, Options, Questions, Report};
use frazil::ops::text_model;
use frazil::tensor::words::plural;
use serde::Serialize;

use super::flags::TextFlags;
use super::sink::{Sink, say};
use crate::cli::Outcome;
use crate::commands::progress::Progress;

/// Answer questions about texts with a model that was trained on SQuAD
///
/// MODEL is a checkpoint, frozen graph, SavedModel, MetaGraph, ONNX model, Hugging Face folder or
/// compiled model. FILE is a SQuAD data set, or has a JSON object on each line: `question`,
/// `context`, and `id` if there is one. Each question gives one line: id, probability, answer.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil predict answer squad_model --question 'What floats?' \\
      --context 'Ice floats on water.'
  frazil predict answer squad_model dev-v1.1.json --output-dir out
  cat questions.jsonl | frazil predict answer squad_model - --jsonl \\
      > answers.jsonl")]
pub struct Args {
    /// The model
    model: PathBuf,
    /// The questions; `-` is stdin
    #[arg(required_unless_present = "question")]
    file: Option<PathBuf>,
    /// A question
    #[arg(long, requires = "context", conflicts_with = "file")]
    question: Option<String>,
    /// The text that the question is about
    #[arg(long, requires = "question")]
    context: Option<String>,
    /// How FILE is laid out [default: told by its first line]
    #[arg(long, value_name = "squad|jsonl", value_parser = format, conflicts_with = "question")]
    format: Option<Format>,
    /// Write predictions.json, nbest_predictions.json and null_odds.json here, as run_squad.py does:
    /// with padding, which takes longer and can be seen at the ends of n-best lists
    #[arg(long, value_name = "FOLDER", alias = "output_dir")]
    output_dir: Option<PathBuf>,
    /// Where answers go [default: stdout]
    #[arg(long, short, value_name = "FILE", conflicts_with = "output_dir")]
    out: Option<PathBuf>,
    /// Print so many answers to each question, the best first
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "output_dir")]
    top: usize,
    /// Answers that are weighed against each other
    #[arg(long, value_name = "N", default_value_t = 20, alias = "n_best_size")]
    n_best_size: usize,
    /// The longest answer, in pieces
    #[arg(long, value_name = "N", default_value_t = 30, alias = "max_answer_length")]
    max_answer_length: usize,
    /// From the start of a window of a long text to the start of the next, in pieces
    #[arg(long, value_name = "N", default_value_t = 128, alias = "doc_stride")]
    doc_stride: usize,
    /// Longer questions are cut, in pieces
    #[arg(long, value_name = "N", default_value_t = 64, alias = "max_query_length")]
    max_query_length: usize,
    /// There may be no answer: for models that were trained on SQuAD 2.0
    #[arg(long)]
    unanswerable: bool,
    /// No answer if that scores so much higher than the best one
    #[arg(
        long,
        value_name = "ODDS",
        requires = "unanswerable",
        allow_negative_numbers = true,
        default_value_t = 0.0
    )]
    null_threshold: f64,
    /// Write a JSON object for each question, not a row of a table
    #[arg(long, conflicts_with = "output_dir")]
    jsonl: bool,
    /// Print a report as JSON when done; with `--out` or `--output-dir`
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    text: TextFlags,
}

fn format(text: &str) -> Result<Format, &'static str> {
    match text {
        "squad" => Ok(Format::Squad),
        "jsonl" => Ok(Format::Lines),
        _ => Err("formats are `squad` and `jsonl`"),
    }
}

/// A question as `--jsonl` writes it.
#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    answer: &'a str,
    probability: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    null_odds: Option<f64>,
    n_best: Vec<Possible<'a>>,
}

#[derive(Serialize)]
struct Possible<'a> {
    text: &'a str,
    probability: f64,
    start_logit: f64,
    end_logit: f64,
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    if args.json && args.out.is_none() && args.output_dir.is_none() {
        return Err(frazil::Error::Usage {
            what: "`--json` would print its report among the answers".into(),
            hint: "give `--out` or `--output-dir`; `--jsonl` prints answers as JSON".into(),
        }
        .into());
    }
    let predict = PredictOptions {
        n_best_size: args.n_best_size,
        max_answer_length: args.max_answer_length,
        version_2: args.unanswerable,
        null_score_diff_threshold: args.null_threshold,
    };
    let options = Options {
        model: text_model::Options { padded: args.output_dir.is_some(), ..args.text.options()? },
        doc_stride: Some(args.doc_stride),
        max_query_length: Some(args.max_query_length),
        predict,
        on_bad_row: args.text.on_bad_row(),
    };
    let mut questions = match (&args.question, &args.context, &args.file) {
        (Some(question), Some(context), _) => Questions::one(question, context),
        (_, _, Some(file)) => Questions::open(file, args.format, args.text.on_bad_row())?,
        _ => anyhow::bail!("there is neither a file nor a question"),
    };
    let answerer = Answerer::open(&args.model, options)?;
    let quiet = args.text.quiet();
    let (unit, scale) = if questions.is_counted() { ("questions", 1) } else { ("KB", 1000) };
    let progress = Progress::new("answering", unit, quiet);
    let mut kept = Vec::new();
    let mut sink = Sink::open(args.out.as_deref(), out)?;
    let report = answerer.run(&mut questions, |question, (done, total)| -> Result<()> {
        if let Some(total) = total {
            progress.at(done / scale, total.div_ceil(scale));
        }
        match &args.output_dir {
            Some(_) => kept.push(question),
            None => print(&question, &args, sink.writer())?,
        }
        Ok(())
    })?;
    progress.finish();
    sink.finish()?;
    if let Some(folder) = &args.output_dir {
        std::fs::create_dir_all(folder).with_context(|| format!("`{}`", folder.display()))?;
        kept.into_iter().collect::<Predictions>().write(folder)?;
    }
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)?;
    }
    let Report { questions, windows, seconds, .. } = report;
    let summary = format!(
        "{questions} {} answered in {windows} {}, {seconds:.1} s",
        plural(questions, "question"),
        plural(windows, "window")
    );
    say(quiet, &report.notes, &report.skipped, &summary);
    Ok(Outcome::Done)
}

fn print(question: &Question, args: &Args, out: &mut dyn Write) -> Result<()> {
    let text = |text: &str| text == question.prediction;
    let chosen = question.n_best.iter().find(|answer| text(&answer.text));
    let probability = chosen.map_or(0.0, |answer| answer.probability);
    if args.jsonl {
        let possible = question.n_best.iter().take(args.top.max(1)).map(|answer| Possible {
            text: &answer.text,
            probability: answer.probability,
            start_logit: answer.start_logit,
            end_logit: answer.end_logit,
        });
        let line = Line {
            id: &question.qas_id,
            answer: &question.prediction,
            probability,
            null_odds: question.null_odds,
            n_best: possible.collect(),
        };
        serde_json::to_writer(&mut *out, &line)?;
        return Ok(writeln!(out)?);
    }
    // The answer first, which under version 2 need not be the most likely one.
    let others = question.n_best.iter().filter(|answer| !text(&answer.text));
    let others = others.map(|answer| (answer.text.as_str(), answer.probability));
    let all = std::iter::once((question.prediction.as_str(), probability)).chain(others);
    for (answer, probability) in all.take(args.top.max(1)) {
        if args.file.is_some() {
            write!(out, "{}\t", question.qas_id)?;
        }
        writeln!(out, "{probability:.4}\t{answer}")?;
    }
    Ok(())
}
