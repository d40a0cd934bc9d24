//! `frazil run MODEL --inputs in.npz --outputs out.npz`

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use frazil::ops::run::{End, Options, Report, run as run_model};

use super::flags::Flags;
use super::graph_flags::{CutFlags, GraphFlags};
use super::table::Table;
use crate::cli::Outcome;

/// Run a model on the arrays of an `.npz` file
///
/// MODEL is a checkpoint, frozen graph, MetaGraph, SavedModel, ONNX or OpenVINO model. Arrays are
/// fed to the inputs of the same name, else `input_ids`, `input_mask` and `segment_ids` to the
/// inputs that are used as such.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil run model.ckpt-1000 --inputs in.npz --outputs out.npz
  frazil run frozen.pb --inputs in.npz --outputs out.npz \\
      --output loss/BiasAdd,bert/pooler/dense/Tanh")]
pub struct Args {
    /// The model
    model: PathBuf,
    /// The arrays to feed
    #[arg(long, value_name = "FILE.npz")]
    inputs: PathBuf,
    /// Where the outputs go; without it, they are only summed up
    #[arg(long, value_name = "FILE.npz")]
    outputs: Option<PathBuf>,
    /// Compute every node by itself with plain loops, not LayerNorm, GELU or attention as one
    #[arg(long)]
    no_fuse: bool,
    /// Do not compute padding; outputs are 0 there
    #[arg(long, conflicts_with = "no_fuse")]
    packed: bool,
    #[command(flatten)]
    graph: GraphFlags,
    #[command(flatten)]
    cut: CutFlags,
    #[command(flatten)]
    flags: Flags,
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    let cut = args.cut.spec()?;
    let graph = args.graph.options(args.flags.source(), cut);
    let options = Options { graph, fuse: !args.no_fuse, packed: args.packed };
    let (report, _) = run_model(&args.model, &args.inputs, args.outputs.as_deref(), &options)?;
    args.flags.print(&report, out, |report, out| print(report, args.outputs, out))?;
    Ok(Outcome::Done)
}

fn print(report: &Report, written: Option<PathBuf>, out: &mut dyn Write) -> Result<()> {
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    let mut table = Table::new(&["", "name", "type", "shape"]);
    let ends = |ends: &[End], what: &'static str, table: &mut Table| {
        for end in ends {
            let shape = format!("{:?}", end.shape);
            table.row([what.into(), end.name.clone(), end.dtype.clone(), shape]);
        }
    };
    ends(&report.inputs, "input", &mut table);
    ends(&report.outputs, "output", &mut table);
    table.print(out)?;
    writeln!(out, "opened in {:.2} s, run in {:.2} s", report.open_seconds, report.run_seconds)?;
    if let Some(path) = written {
        writeln!(out, "outputs are in `{}`", path.display())?;
    }
    Ok(())
}
