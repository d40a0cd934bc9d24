//! `frazil verify-weights A B`

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use frazil::bert::names::Head;
use frazil::ops::verify_weights::{self, MARGIN, Options, Report, Side, verify_weights};

use super::flags::Flags;
use super::table::Table;
use crate::cli::Outcome;

/// Compare two sources of weights tensor by tensor, under BERT's names
///
/// A and B are any two of: checkpoint, frozen graph, MetaGraph with its checkpoint, SavedModel,
/// `.safetensors`, `.npz`. Exit code 0: equal; 1: different or incomplete; 2: error.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil verify-weights model.ckpt-1000 frozen.pb --task SQUAD
  frazil verify-weights uncased_L-12_H-768_A-12.zip \\
      --config bert_config.json --task PRETRAINING")]
pub struct Args {
    /// The first source
    a: Option<PathBuf>,
    /// The second source; without it, A is checked against `--config`
    b: Option<PathBuf>,
    /// Compare what this task needs: PRETRAINING, SQUAD, CLASSIFIER, MLM, NSP or encoder
    #[arg(long, alias = "chkpt-task", value_name = "TASK")]
    task: Option<Head>,
    /// Check both sides for completeness against this `bert_config.json`
    #[arg(long, alias = "config-path", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The loader test's name for A: a checkpoint's prefix (the task is then PRETRAINING unless given)
    #[arg(long, value_name = "PREFIX", conflicts_with = "a")]
    chkpt_path: Option<PathBuf>,
    /// The loader test's name for B: a frozen graph
    #[arg(long, value_name = "FILE", conflicts_with = "b", requires = "chkpt_path")]
    frozen_path: Option<PathBuf>,
    /// Largest |a-b|² / (|a||b| + 1e-8) that counts as equal
    #[arg(long, default_value_t = MARGIN)]
    margin: f64,
    #[command(flatten)]
    flags: Flags,
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    // The loader test's default task is pre-training.
    let default_task = args.chkpt_path.as_ref().map(|_| Head::Pretraining);
    let options = Options {
        task: args.task.or(default_task),
        config: args.config,
        margin: args.margin,
        source: args.flags.source(),
    };
    let Some(a) = args.chkpt_path.or(args.a) else {
        return Err(frazil::Error::Usage {
            what: "no source is given".into(),
            hint: "`frazil verify-weights A B`, or `--chkpt-path PREFIX --frozen-path FILE`".into(),
        }
        .into());
    };
    let b = args.frozen_path.or(args.b);
    let progress = args.flags.progress("comparing");
    let report = verify_weights(&a, b.as_deref(), &options, &mut |done, total| {
        progress.at(done as u64, total as u64);
    })?;
    progress.finish();
    args.flags.print(&report, out, print)?;
    Ok(if report.equal { Outcome::Done } else { Outcome::CheckFailed })
}

fn print(report: &Report, out: &mut dyn Write) -> Result<()> {
    for (side, letter) in report.sides.iter().zip(["A", "B"]) {
        print_side(side, letter, out)?;
    }
    let beyond = report.differences.iter().filter(|d| !d.within).count();
    if report.sides.len() == 2 {
        let within = report.differences.len() - beyond;
        writeln!(out, "{} variables are identical bit for bit", report.identical)?;
        if within > 0 {
            writeln!(out, "{within} differ within the margin of {:e}", report.margin)?;
        }
        if beyond > 0 {
            writeln!(out, "{beyond} differ beyond the margin of {:e}", report.margin)?;
        }
    }
    let mut table = Table::new(&["variable", "A", "B", ">max |a-b|", ">|a-b|²/(|a||b|)"]);
    const SHOWN: usize = 30;
    for difference in report.differences.iter().take(SHOWN) {
        let number = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.3e}"));
        table.row([
            difference.name.clone(),
            difference.a.clone(),
            difference.b.clone(),
            number(difference.max_abs),
            number(difference.squared_relative),
        ]);
    }
    if !table.is_empty() {
        writeln!(out)?;
        table.print(out)?;
        if report.differences.len() > SHOWN {
            writeln!(out, "  … and {} more (`--json` has all)", report.differences.len() - SHOWN)?;
        }
        writeln!(out)?;
    }
    let task = report.task.map_or(String::new(), |task| format!(" for {task}"));
    let verdict = match (report.equal, report.sides.len()) {
        (true, 2) => "equal",
        (true, _) => "complete",
        (false, 2) => "DIFFERENT",
        (false, _) => "INCOMPLETE",
    };
    writeln!(out, "{verdict}{task}")?;
    for (side, letter) in report.sides.iter().zip(["A", "B"]) {
        let other: Vec<String> = side
            .heads
            .iter()
            .filter(|head| Some(**head) != report.task)
            .map(Head::to_string)
            .collect();
        if !side.missing.is_empty() && report.task.is_some() && !other.is_empty() {
            writeln!(
                out,
                "hint: {letter} was trained for {}: compare that with `--task`",
                other.join(" and ")
            )?;
        }
    }
    Ok(())
}

fn print_side(side: &Side, letter: &str, out: &mut dyn Write) -> Result<()> {
    let naming = side.naming;
    writeln!(
        out,
        "{letter}: {} `{}`, {} variables of BERT under {naming} names",
        side.kind.describe(),
        side.path.display(),
        side.variables
    )?;
    for note in &side.notes {
        writeln!(out, "   {note}")?;
    }
    for rule in &side.rules {
        writeln!(out, "   {} ({}, for example `{}`)", rule.rule, rule.count, rule.example)?;
    }
    for name in &side.missing {
        writeln!(out, "   missing: `{name}`")?;
    }
    for wrong in &side.wrong_shapes {
        let verify_weights::WrongShape { name, expected, found } = wrong;
        writeln!(
            out,
            "   wrong shape: `{name}` is {found:?}, the configuration says {expected:?}"
        )?;
    }
    if let [first, rest @ ..] = side.others.as_slice() {
        let more =
            if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        writeln!(out, "   not compared: `{first}`{more}")?;
    }
    Ok(())
}
