//! `frazil verify A B`

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use frazil::ops::cut_spec::{CutSpec, CutTexts};
use frazil::ops::verify::{Options, Report, TOLERANCE, verify};
use frazil::tensor::words::plural;

use super::flags::{Flags, PageFlag, at_least_one};
use super::graph_flags::GraphFlags;
use super::table::Table;
use crate::cli::Outcome;

/// Run two models on the same inputs and say where they differ
///
/// Inputs and outputs of the two are matched by name, else by what they are used for, else by their
/// order; nodes by name. Exit code 0: every output is within the tolerance; 1: one is not; 2: error.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil verify model.ckpt-1000 frozen.pb
  frazil verify saved_model_dir model.onnx --samples 16 --seq 128 \\
      --report verify.html
  frazil verify frozen.pb frozen_fp16.pb --inputs in.npz --tolerance 2e-2")]
pub struct Args {
    /// The first model
    a: PathBuf,
    /// The second model
    b: PathBuf,
    /// The arrays to feed; without it, inputs are generated
    #[arg(long, value_name = "FILE.npz", conflicts_with_all = ["samples", "batch", "seq", "seed"])]
    inputs: Option<PathBuf>,
    /// How many examples to generate
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = at_least_one)]
    samples: usize,
    /// How many of them at a time, where the models leave it open
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    batch: Option<usize>,
    /// How long they are, where the models leave it open
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    seq: Option<usize>,
    /// Other numbers give other examples
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Largest |a-b| of an output that counts as equal
    #[arg(long, value_name = "T", default_value_t = TOLERANCE, value_parser = tolerance)]
    tolerance: f64,
    /// Which outputs to compare; of B too, unless `--output-b` says
    #[arg(long, value_name = "PLACE,…")]
    output: Option<String>,
    /// B's names for them
    #[arg(long, value_name = "PLACE,…")]
    output_b: Option<String>,
    #[command(flatten)]
    page: PageFlag,
    #[command(flatten)]
    graph: GraphFlags,
    #[command(flatten)]
    flags: Flags,
}

fn tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(tolerance) if tolerance >= 0.0 => Ok(tolerance),
        _ => Err("a number from 0 on is wanted".into()),
    }
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    let cut = |output: Option<&str>| CutSpec::parse(&CutTexts { output, ..CutTexts::default() });
    let a = args.graph.options(args.flags.source(), cut(args.output.as_deref())?);
    let mut b = a.clone();
    if args.output_b.is_some() {
        b.cut = cut(args.output_b.as_deref())?;
    }
    let options = Options {
        a,
        b,
        inputs: args.inputs,
        samples: args.samples,
        batch: args.batch,
        seq: args.seq,
        seed: args.seed,
        tolerance: args.tolerance,
    };
    let progress = args.flags.progress("comparing");
    let report = verify(&args.a, &args.b, &options, &mut |done, total| progress.at(done, total))?;
    progress.finish();
    args.page.write(|| report.page())?;
    args.flags.print(&report, out, print)?;
    Ok(if report.equal { Outcome::Done } else { Outcome::CheckFailed })
}

pub fn print(report: &Report, out: &mut dyn Write) -> Result<()> {
    for (side, letter) in report.sides.iter().zip(["A", "B"]) {
        writeln!(out, "{letter}: {} `{}`, {} nodes", side.kind, side.path.display(), side.nodes)?;
        for note in &side.notes {
            writeln!(out, "   {note}")?;
        }
    }
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    writeln!(out)?;
    let mut table =
        Table::new(&["output", ">max |a-b|", ">mean |a-b|", ">cosine", ">max |a|", "shape"]);
    for output in &report.outputs {
        let number = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2e}"));
        let name = match &output.names {
            pair if pair.a == pair.b => pair.a.clone(),
            pair => format!("{} / {}", pair.a, pair.b),
        };
        let shape = match &output.other_shape {
            other if *other == output.shape => format!("{other:?}"),
            other => format!("{:?} / {other:?}", output.shape),
        };
        table.row([
            name,
            number(output.max_abs),
            number(output.mean_abs),
            output.cosine.map_or("-".into(), |cosine| format!("{cosine:.9}")),
            number(Some(output.largest)),
            shape,
        ]);
    }
    table.print(out)?;
    writeln!(out)?;
    let (examples, nodes) = (plural(report.samples, "example"), plural(report.nodes, "node"));
    let (samples, compared) = (report.samples, report.nodes);
    writeln!(out, "{samples} {examples}, {compared} {nodes} of the same name compared")?;
    let bound = report.tolerance;
    if report.equal {
        return Ok(writeln!(out, "equal: every output is within {bound:e}")?);
    }
    match &report.parted {
        Some(first) => {
            let op = match (&first.op, &first.other_op) {
                (a, b) if a == b => a.clone(),
                (a, b) => format!("{a} / {b}"),
            };
            writeln!(
                out,
                "they part at `{}` ({op}) {:?}: off by {:.2e} where the largest is {:.2e}",
                first.node, first.shape, first.max_abs, first.largest
            )?;
        }
        None => writeln!(out, "no node that both have by name differs")?,
    }
    Ok(writeln!(out, "DIFFERENT: an output is beyond {bound:e}")?)
}
