//! `frazil compile MODEL -o model.frazil`

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, bail};
use frazil::bert::Head;
use frazil::ops::bench::Model;
use frazil::ops::compile::{Calibration, Options, Report, compile};
use frazil::tensor::words::plural;

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
  frazil compile frozen.pb --isa avx2,avx512vnni -o model.frazil
  frazil compile model.ckpt-1000 --int8 --calibration in.npz -o model.frazil")]
pub struct Args {
    /// The model
    #[arg(required_unless_present = "random_weights")]
    model: Option<PathBuf>,
    /// A model of this size with made-up weights: bert-base, bert-large or a bert_config.json
    #[arg(long, value_name = "SIZE", conflicts_with = "model")]
    random_weights: Option<String>,
    /// The file to write
    #[arg(short, long)]
    out: PathBuf,
    /// For which instructions: scalar, avx2, avx512, avx512vnni [default: the best of this machine]
    #[arg(long, value_name = "ISA,…", value_delimiter = ',')]
    isa: Vec<String>,
    /// Linear layers in bytes, by the ranges of what they read
    #[arg(long)]
    int8: bool,
    /// Inputs to see these ranges on [default: made-up sequences of words of the vocabulary]
    #[arg(long, value_name = "FILE.npz", requires = "int8")]
    calibration: Option<PathBuf>,
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
    let model = match (args.model, args.random_weights) {
        (Some(path), _) => Model::File(path, Box::new(graph)),
        (None, Some(size)) => Model::Random(size, graph.head.unwrap_or(Head::Squad)),
        (None, None) => bail!("there is no model"),
    };
    let int8 = args.int8.then_some(match args.calibration {
        Some(path) => Calibration::Inputs(path),
        None => Calibration::MadeUp,
    });
    let report = compile(&model, &args.out, &Options { isas, int8 })?;
    args.flags.print(&report, out, print)?;
    Ok(Outcome::Done)
}

fn print(report: &Report, out: &mut dyn Write) -> Result<()> {
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    let Report { products, int8_products, isas, bytes, seconds, .. } = report;
    let as_bytes = match int8_products {
        0 => String::new(),
        some => format!(" ({some} as bytes)"),
    };
    let noun = plural(*products, "product");
    writeln!(out, "{products} {noun}{as_bytes} packed for {}", isas.join(", "))?;
    let path = report.out.display();
    writeln!(out, "wrote {path} ({:.1} MB) in {seconds:.2} s", *bytes as f64 / 1e6)?;
    Ok(())
}
