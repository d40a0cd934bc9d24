//! `frazil import-weights SRC -o OUT`

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use frazil::bert::names::Head;
use frazil::ops::import_weights::{Options, Report, import_weights};
use frazil::tensor::DType;

use super::export_weights::{dtype, print_rest, print_source};
use super::flags::Flags;
use super::table::{size, thousands};
use crate::cli::Outcome;

/// Write a TensorFlow 1 checkpoint from Hugging Face's or PopART's weights
///
/// SRC is a folder with `model.safetensors` and `config.json`, a `.safetensors`, an `.npz`, or
/// any other weights that frazil reads. OUT is a folder or a prefix; `bert_config.json`, the
/// file `checkpoint` and, if there is one, `vocab.txt` go beside the checkpoint.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil import-weights bert-base-uncased/ -o tf/
  frazil import-weights model.safetensors -o tf/bert_model.ckpt \\
      --config config.json --dtype float32")]
pub struct Args {
    /// The weights to read
    src: PathBuf,
    /// A folder (with a slash, or existing), or a prefix such as `tf/bert_model.ckpt`
    #[arg(long, short, value_name = "OUT")]
    output: PathBuf,
    /// The head to write, without the others: PRETRAINING, SQUAD, CLASSIFIER, MLM, NSP or encoder
    #[arg(long, value_name = "TASK")]
    task: Option<Head>,
    /// The config.json or bert_config.json, if it is not beside SRC
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The number of attention heads, where no configuration tells it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    heads: Option<u32>,
    /// Which of several models in SRC
    #[arg(long)]
    scope: Option<String>,
    /// Write the optimizer's state too
    #[arg(long)]
    slots: bool,
    /// Cast the weights: float32, float16, bfloat16 or float64
    #[arg(long, value_name = "TYPE", value_parser = dtype)]
    dtype: Option<DType>,
    #[command(flatten)]
    flags: Flags,
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    let options = Options {
        task: args.task,
        scope: args.scope,
        config: args.config,
        heads: args.heads.map(|n| n as usize),
        slots: args.slots,
        dtype: args.dtype,
        source: args.flags.source(),
    };
    let progress = args.flags.progress("writing");
    let report = import_weights(&args.src, &args.output, &options, &mut |done, total| {
        progress.at(done as u64, total as u64);
    })?;
    progress.finish();
    args.flags.print(&report, out, print)?;
    Ok(Outcome::Done)
}

fn print(report: &Report, out: &mut dyn Write) -> Result<()> {
    print_source(&report.source, out)?;
    let heads: Vec<&str> = report.heads.iter().map(|head| head.name()).collect();
    writeln!(
        out,
        "wrote `{}`: {} variables, {} parameters, {}, {}",
        report.prefix.display(),
        report.written.len(),
        thousands(report.parameters),
        size(report.bytes),
        if heads.is_empty() { "encoder".to_string() } else { heads.join(", ") },
    )?;
    for name in &report.missing {
        writeln!(out, "missing: `{name}`")?;
    }
    print_rest(&report.beside, &report.left_out, &report.notes, out)
}
