//! `frazil evaluate squad DATA.json PREDICTIONS.json`

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;
use frazil::bert::rows::OnBadRow;
use frazil::ops::evaluate::squad::{self, Options, Report, Scores, Version, squad as score_squad};
use frazil::tensor::words::plural;

use super::table::{Table, thousands};
use crate::cli::Outcome;

/// Score predictions by the official rules of a data set
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil evaluate squad dev-v1.1.json out/predictions.json
  frazil evaluate glue MRPC glue_data/MRPC --model model/")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Squad(SquadArgs),
    Glue(Box<super::evaluate_glue::Args>),
}

/// Exact match and F1 of a `predictions.json`, frazil's or anyone's
///
/// DATA.json is a SQuAD data set with answers, of version 1.1 or 2.0.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil evaluate squad dev-v1.1.json out/predictions.json
  frazil evaluate squad dev-v2.0.json out/predictions.json \\
      --null-odds out/null_odds.json --json")]
struct SquadArgs {
    /// The data set
    data: PathBuf,
    /// A JSON object with an answer for each id
    predictions: PathBuf,
    /// By whose rules: 1.1 or 2.0 [default: what the data are]
    #[arg(long, value_parser = version)]
    version: Option<Version>,
    /// How much speaks against an answer, for each id: also finds the best thresholds
    #[arg(long, value_name = "FILE")]
    null_odds: Option<PathBuf>,
    /// Answers with odds above it count as none
    #[arg(long, value_name = "ODDS", requires = "null_odds", allow_negative_numbers = true,
          default_value_t = squad::THRESHOLD)]
    threshold: f64,
    /// Leave out questions of the data that cannot be used, and count them
    #[arg(long)]
    skip_bad_rows: bool,
    /// Print the report as JSON, under the official scripts' names
    #[arg(long)]
    json: bool,
}

fn version(text: &str) -> Result<Version, &'static str> {
    match text.trim_start_matches('v') {
        "1.1" | "1" => Ok(Version::V1),
        "2.0" | "2" => Ok(Version::V2),
        _ => Err("versions are 1.1 and 2.0"),
    }
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    match args.what {
        What::Squad(args) => squad(args, out),
        What::Glue(args) => super::evaluate_glue::run(*args, out),
    }
}

fn squad(args: SquadArgs, out: &mut dyn Write) -> Result<Outcome> {
    let options = Options {
        version: args.version,
        null_odds: args.null_odds,
        threshold: args.threshold,
        on_bad_row: if args.skip_bad_rows { OnBadRow::Skip } else { OnBadRow::Stop },
    };
    let report = score_squad(&args.data, &args.predictions, &options)?;
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)?;
        return Ok(Outcome::Done);
    }
    print_squad(&report, out)?;
    Ok(Outcome::Done)
}

fn print_squad(report: &Report, out: &mut dyn Write) -> Result<()> {
    let percent = |value: f64| format!("{value:.4}");
    let questions = plural(report.questions, "question");
    let count = thousands(report.questions as u64);
    writeln!(out, "SQuAD {}, {count} {questions}", report.version)?;
    match &report.scores {
        Scores::V1 { exact_match, f1 } => {
            let mut table = Table::new(&[">exact match", ">F1"]);
            table.row([percent(*exact_match), percent(*f1)]);
            table.print(out)?;
        }
        Scores::V2(scores) => {
            let mut table = Table::new(&["questions", ">number", ">exact match", ">F1"]);
            let mut row = |name: &str, total: usize, exact: f64, f1: f64| {
                table.row([name.into(), thousands(total as u64), percent(exact), percent(f1)]);
            };
            row("all", scores.total, scores.exact, scores.f1);
            if let Some(part) = scores.has_answer {
                row("with an answer", part.total, part.exact, part.f1);
            }
            if let Some(part) = scores.no_answer {
                row("without one", part.total, part.exact, part.f1);
            }
            table.print(out)?;
            if let Some(best) = scores.best {
                let (exact, f1) = (best.best_exact, best.best_f1);
                writeln!(out, "best exact match {exact:.4} at odds {}", best.best_exact_thresh)?;
                writeln!(out, "best F1 {f1:.4} at odds {}", best.best_f1_thresh)?;
            }
        }
    }
    let counts = match report.version {
        "1.1" => "they count as wrong",
        _ => "they do not count",
    };
    let about = [
        (&report.missing, "questions without a prediction", counts),
        (&report.unknown, "predictions for questions that the data do not have", "not looked at"),
        (&report.skipped, "questions of the data that cannot be used", "left out"),
    ];
    for (names, what, so) in about {
        let mut shown: Vec<&str> = names.iter().take(3).map(String::as_str).collect();
        if shown.len() < names.len() {
            shown.push("…");
        }
        if !shown.is_empty() {
            writeln!(out, "{} {what} ({so}): {}", names.len(), shown.join("; "))?;
        }
    }
    Ok(())
}
