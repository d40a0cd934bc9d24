//! `frazil graph MODEL`

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use frazil::ops::graph::{Report, draw};
use frazil::tensor::words::plural;

use super::flags::Flags;
use super::graph_flags::{CutFlags, GraphFlags};
use super::table::thousands;
use crate::cli::Outcome;

/// Draw a model's graph as a page to open, search and unfold
///
/// One file of HTML that needs nothing else: fold and unfold by name scope, zoom, find a node by
/// name or operation, read its type and shape, what was fused and what was not, and why.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil graph bert_model.ckpt.meta -o graph.html
  frazil graph model.onnx -o graph.html --output logits")]
pub struct Args {
    /// The model
    model: PathBuf,
    /// The page to write
    #[arg(short, long = "out", value_name = "FILE.html")]
    out: PathBuf,
    #[command(flatten)]
    graph: GraphFlags,
    #[command(flatten)]
    cut: CutFlags,
    #[command(flatten)]
    flags: Flags,
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    let options = args.graph.options(args.flags.source(), args.cut.spec()?);
    let drawing = draw(&args.model, &options)?;
    drawing.write(&args.out)?;
    if !args.out.extension().is_some_and(|end| end == "html" || end == "htm") {
        say!("note: `{}` is a page of HTML, whatever its name says", args.out.display());
    }
    args.flags.print(&drawing.report, out, |report, out| {
        print(report, out)?;
        Ok(writeln!(out, "wrote {}", args.out.display())?)
    })?;
    Ok(Outcome::Done)
}

fn print(report: &Report, out: &mut dyn Write) -> Result<()> {
    let nodes = |count: usize| thousands(count as u64);
    write!(out, "{} `{}`: {} nodes", report.kind, report.path.display(), nodes(report.nodes))?;
    match report.running_nodes {
        Some(running) => writeln!(out, ", {} as it runs", nodes(running))?,
        None => writeln!(out)?,
    }
    for note in &report.notes {
        writeln!(out, "  {note}")?;
    }
    let applied: Vec<String> =
        report.applied.iter().map(|(rule, count)| format!("{rule} {count}")).collect();
    if !applied.is_empty() {
        writeln!(out, "  applied: {}", applied.join(", "))?;
    }
    if !report.missed.is_empty() {
        writeln!(
            out,
            "  {} {} where a rule did not apply: the page tells them",
            report.missed.len(),
            plural(report.missed.len(), "place")
        )?;
    }
    Ok(())
}
