//! `frazil export-weights SRC -o OUT`

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use frazil::bert::names::{Head, popart};
use frazil::ops::export_weights::{LeftOut, Names, Options, Report, Source, export_weights};
use frazil::tensor::DType;

use super::flags::Flags;
use super::table::{size, thousands};
use crate::cli::Outcome;

/// More rows than any table has; beyond that a length is a typing error.
const LONGEST: i64 = 1 << 22;

/// Write weights as .safetensors or .npz, under TensorFlow's, Hugging Face's or PopART's names
///
/// SRC is a checkpoint, a frozen graph, a SavedModel, a zip, an `.npz` or a `.safetensors`. What
/// is missing is an error; what is not written is listed with the reason.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil export-weights uncased_L-12_H-768_A-12.zip -o model.safetensors \\
      --names huggingface
  frazil export-weights model.ckpt-1000 -o squad.npz --task SQUAD
  frazil export-weights model.ckpt-28252 -o init.npz --names popart \\
      --popart-spelling mlperf --slots")]
pub struct Args {
    /// The weights to read
    src: PathBuf,
    /// The file to write; its extension, `.safetensors` or `.npz`, chooses the format
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Whose names to write
    #[arg(long, value_enum, default_value = "tf")]
    names: NamesArg,
    /// The head to write: PRETRAINING, SQUAD, CLASSIFIER, MLM, NSP or encoder
    #[arg(long, value_name = "TASK")]
    task: Option<Head>,
    /// The bert_config.json, if it is not beside SRC
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Which of several models in SRC
    #[arg(long)]
    scope: Option<String>,
    /// Write the optimizer's state too
    #[arg(long)]
    slots: bool,
    /// Cast the weights: float32, float16, bfloat16 or float64
    #[arg(long, value_name = "TYPE", value_parser = dtype)]
    dtype: Option<DType>,
    /// The same as `--dtype float16`
    #[arg(long, conflicts_with = "dtype")]
    fp16: bool,
    /// Hugging Face: write the pooler even where the class has none
    #[arg(long)]
    keep_pooler: bool,
    /// PopART: the examples' names, or those of the MLPerf submissions with the MLM bias
    #[arg(long, value_enum, default_value = "examples")]
    popart_spelling: SpellingArg,
    /// PopART: three matrices for query, key and value instead of one
    #[arg(long)]
    split_qkv: bool,
    /// PopART: crop the vocabulary to N, or pad it with zeros
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=LONGEST))]
    vocab: Option<u32>,
    /// PopART: crop the position table to N, or repeat it from the start
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=LONGEST))]
    positions: Option<u32>,
    /// PopART: type of the optimizer's first moments; second moments are float32
    #[arg(long, value_name = "TYPE", value_parser = dtype, default_value = "float32")]
    lamb_m_dtype: DType,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum NamesArg {
    Tf,
    #[value(alias = "hf")]
    Huggingface,
    Popart,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum SpellingArg {
    Examples,
    Mlperf,
}

/// A floating-point type by TensorFlow's name, or by its short one.
pub(super) fn dtype(name: &str) -> Result<DType, String> {
    let dtype = match name.to_lowercase().as_str() {
        "fp16" | "f16" | "half" => Some(DType::F16),
        "bf16" => Some(DType::BF16),
        "fp32" | "f32" | "float" => Some(DType::F32),
        "fp64" | "f64" | "double" => Some(DType::F64),
        other => DType::from_name(other),
    };
    dtype
        .filter(|dtype| dtype.is_float())
        .ok_or_else(|| "types of weights are float32, float16, bfloat16 and float64".into())
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    let options = Options {
        names: match args.names {
            NamesArg::Tf => Names::Tf,
            NamesArg::Huggingface => Names::HuggingFace,
            NamesArg::Popart => Names::Popart,
        },
        task: args.task,
        scope: args.scope,
        config: args.config,
        slots: args.slots,
        dtype: if args.fp16 { Some(DType::F16) } else { args.dtype },
        keep_pooler: args.keep_pooler,
        popart: popart::Options {
            spelling: match args.popart_spelling {
                SpellingArg::Examples => popart::Spelling::Examples,
                SpellingArg::Mlperf => popart::Spelling::Mlperf,
            },
            split_qkv: args.split_qkv,
            vocab: args.vocab.map(|n| n as usize),
            positions: args.positions.map(|n| n as usize),
            first_moment_dtype: args.lamb_m_dtype,
            ..popart::Options::default()
        },
        source: args.flags.source(),
    };
    let progress = args.flags.progress("writing");
    let report = export_weights(&args.src, &args.output, &options, &mut |done, total| {
        progress.at(done as u64, total as u64);
    })?;
    progress.finish();
    args.flags.print(&report, out, print)?;
    Ok(Outcome::Done)
}

fn print(report: &Report, out: &mut dyn Write) -> Result<()> {
    print_source(&report.source, out)?;
    let what = match (report.architecture, report.task) {
        (Some(class), _) => format!(", for {class}"),
        (None, Some(task)) => format!(", task {task}"),
        (None, None) => String::new(),
    };
    writeln!(
        out,
        "wrote `{}`: {} tensors, {} parameters, {}{what}",
        report.output.display(),
        report.written.len(),
        thousands(report.parameters),
        size(report.bytes),
    )?;
    print_rest(&report.beside, &report.left_out, &report.notes, out)
}

pub(super) fn print_source(source: &Source, out: &mut dyn Write) -> Result<()> {
    writeln!(
        out,
        "read `{}`: {}, {} names",
        source.path.display(),
        source.kind.describe(),
        source.naming
    )?;
    for rule in &source.rules {
        match rule.count {
            1 => writeln!(out, "  {} (`{}`)", rule.rule, rule.example)?,
            n => writeln!(out, "  {} ({n} names, such as `{}`)", rule.rule, rule.example)?,
        }
    }
    if let Some(config) = &source.config {
        writeln!(out, "read `{}`", config.display())?;
    }
    Ok(())
}

/// What ends both reports: files beside the weights, what is not in them, remarks.
pub(super) fn print_rest(
    beside: &[PathBuf],
    left_out: &[LeftOut],
    notes: &[String],
    out: &mut dyn Write,
) -> Result<()> {
    for path in beside {
        writeln!(out, "wrote `{}`", path.display())?;
    }
    for left in left_out {
        let shown = match left.names.as_slice() {
            [only] => format!("`{only}`"),
            [first, ..] => format!("{} tensors, such as `{first}`", left.names.len()),
            [] => continue,
        };
        writeln!(out, "left out: {shown}: {}", left.reason)?;
    }
    for note in notes {
        writeln!(out, "note: {note}")?;
    }
    Ok(())
}
