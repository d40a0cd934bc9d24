//! `frazil compile MODEL -o model.frazil`

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use frazil::ops::compile::{Options, Report, compile};

use super::flags::Flags;
use super::graph_flags::{CutFlags, GraphFlags};
use crate::cli::Outcome;

/// Write a model with its weights packed, for a quick start
///
/// The file is mapped, not read: `frazil run` and `frazil bench` begin to compute at once. It is for
/// this version of frazil and for the instructions it was compiled for.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil compile model.ckpt-1000 -o model.frazil
  frazil compile frozen.pb --isa avx2,avx512vnni -o model.frazil")]
pub struct Args {
    /// The model
    model: PathBuf,
    /// The file to write
    #[arg(short, long)]
    out: PathBuf,
    /// For which instructions: scalar, avx2, avx512, avx512vnni [default: the best of this machine]
    #[arg(long, value_name = "ISA,…", value_delimiter = ',')]
    isa: Vec<String>,
    #[command(flatten)]
    graph: GraphFlags,
    #[command(flatten)]
    cut: CutFlags,
    #[command(flatten)]
    flags: Flags,
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    let isas = args.isa.iter().map(|isa| isa.parse()).collect::<Result<_, _>>()?;
    let graph = args.graph.options(args.flags.source(), args.cut.spec()?);
    let report = compile(&args.model, &args.out, &Options { graph, isas })?;
    args.flags.print(&report, out, print)?;
    Ok(Outcome::Done)
}

fn print(report: &Report, out: &mut dyn Write) -> Result<()> {
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    let Report { products, isas, bytes, seconds, .. } = report;
    writeln!(out, "{products} products packed for {}", isas.join(", "))?;
    let path = report.out.display();
    writeln!(out, "wrote {path} ({:.1} MB) in {seconds:.2} s", *bytes as f64 / 1e6)?;
    Ok(())
}
