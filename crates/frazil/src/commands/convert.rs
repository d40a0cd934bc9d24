//! `frazil convert SRC --to TARGET -o OUT`, and its two short forms, `freeze` and `reshape`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use frazil::ops::convert::{Note, Options, Reader, Report, Target, convert};

use super::flags::Flags;
use super::graph_flags::{CutFlags, GraphFlags, SizeFlags};
use super::table::{Table, size, thousands};
use super::verify;
use crate::cli::Outcome;

/// Write a model in another format: TensorFlow, ONNX, OpenVINO, Hugging Face
///
/// SRC is a checkpoint with its bert_config.json, a .meta, a SavedModel, a frozen graph or a zip.
/// Batch and length stay as they are in a graph, and are open for a checkpoint; `--batch` and
/// `--seq` set or open them, also where a graph has them baked in.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil convert uncased_L-12_H-768_A-12/bert_model.ckpt --to onnx \\
      -o bert.onnx
  frazil convert bert_model.ckpt.meta --to openvino -o bert.xml \\
      --batch dynamic --seq dynamic
  frazil convert saved_models/1564086017 --to tf -o frozen.pb \\
      --target migraphx --batch 1 --seq 128")]
pub struct Args {
    /// The model to read
    src: PathBuf,
    /// The format to write
    #[arg(long, value_enum)]
    to: TargetArg,
    /// The file to write; a folder for saved-model, huggingface and checkpoint
    #[arg(short, long = "out", value_name = "OUT")]
    out: PathBuf,
    #[command(flatten)]
    graph: GraphFlags,
    #[command(flatten)]
    cut: CutFlags,
    #[command(flatten)]
    sizes: SizeFlags,
    /// Store weights as float16
    #[arg(long)]
    fp16: bool,
    /// Make shape arithmetic constant [default: for onnx and openvino]
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    fold: Option<bool>,
    /// Make LayerNorm and GELU single operations [default: for onnx and openvino]
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    fuse: Option<bool>,
    /// ONNX: the operator set
    #[arg(long, value_name = "N")]
    opset: Option<u32>,
    /// TensorFlow: who reads the frozen graph; `migraphx` checks it against that parser
    #[arg(long, value_enum)]
    target: Option<ReaderArg>,
    /// TensorFlow: write text (.pbtxt)
    #[arg(long)]
    text: bool,
    /// Open the result again and run it beside SRC; exit code 1 if an output differs
    #[arg(long)]
    verify: bool,
    /// Print what each pass did and did not do, and why
    #[arg(long)]
    why: bool,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum TargetArg {
    #[value(alias = "tensorflow")]
    Tf,
    SavedModel,
    Onnx,
    Openvino,
    #[value(alias = "hf")]
    Huggingface,
    Checkpoint,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ReaderArg {
    Migraphx,
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    let to = match args.to {
        TargetArg::Tf => Target::Tf,
        TargetArg::SavedModel => Target::SavedModel,
        TargetArg::Onnx => Target::Onnx,
        TargetArg::Openvino => Target::Openvino,
        TargetArg::Huggingface => Target::Huggingface,
        TargetArg::Checkpoint => Target::Checkpoint,
    };
    let options = Options {
        graph: args.graph.options(args.flags.source(), args.cut.spec()?),
        sizes: args.sizes.sizes(),
        fp16: args.fp16,
        fold: args.fold,
        fuse: args.fuse,
        opset: args.opset,
        reader: args.target.map_or(Reader::Any, |ReaderArg::Migraphx| Reader::Migraphx),
        text: args.text,
        verify: args.verify,
        ..Options::new(to)
    };
    let report = convert(&args.src, &args.out, &options)?;
    args.flags.print(&report, out, |report, out| print(report, args.why, out))?;
    let equal = report.verification.as_ref().is_none_or(|verification| verification.equal);
    Ok(if equal { Outcome::Done } else { Outcome::CheckFailed })
}

/// Write a model as one frozen TensorFlow graph
///
/// SRC is a checkpoint with its bert_config.json, a .meta, a SavedModel or a graph. For the old
/// tool with its own flags see `frazil freeze_graph`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil freeze uncased_L-12_H-768_A-12/bert_model.ckpt -o bert.pb \\
      --head encoder
  frazil freeze model.ckpt-1603 -o frozen.pb --output loss/Softmax --batch 1 \\
      --seq 128")]
pub struct FreezeArgs {
    /// The model to read
    src: PathBuf,
    /// The graph to write
    #[arg(short, long = "out", value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    graph: GraphFlags,
    #[command(flatten)]
    cut: CutFlags,
    #[command(flatten)]
    sizes: SizeFlags,
    /// Write text (.pbtxt)
    #[arg(long)]
    text: bool,
    /// Print what each pass did and did not do, and why
    #[arg(long)]
    why: bool,
    #[command(flatten)]
    flags: Flags,
}

pub fn freeze(args: FreezeArgs, out: &mut dyn Write) -> Result<Outcome> {
    let options = Options {
        graph: args.graph.options(args.flags.source(), args.cut.spec()?),
        sizes: args.sizes.sizes(),
        text: args.text,
        ..Options::new(Target::Tf)
    };
    let report = convert(&args.src, &args.out, &options)?;
    args.flags.print(&report, out, |report, out| print(report, args.why, out))?;
    Ok(Outcome::Done)
}

/// Give a graph another batch size or length, or leave them open
///
/// A graph with both baked in, such as Google's own .meta, becomes one that takes any: every
/// constant that stands for the batch or the length is found and proven. Written as a frozen graph.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil reshape bert_model.ckpt.meta --batch dynamic --seq dynamic -o any.pb
  frazil reshape frozen.pb --batch 8 --seq 384 -o fixed.pb")]
pub struct ReshapeArgs {
    /// The model to read
    src: PathBuf,
    /// The graph to write
    #[arg(short, long = "out", value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    graph: GraphFlags,
    #[command(flatten)]
    cut: CutFlags,
    #[command(flatten)]
    sizes: SizeFlags,
    /// Print every constant that became a size, and what was done about it
    #[arg(long)]
    why: bool,
    #[command(flatten)]
    flags: Flags,
}

pub fn reshape(args: ReshapeArgs, out: &mut dyn Write) -> Result<Outcome> {
    let sizes = args.sizes.sizes();
    if sizes == Default::default() {
        anyhow::bail!(frazil::Error::Usage {
            what: "no size is given".into(),
            hint: "say `--batch dynamic`, `--seq 384` or both".into(),
        });
    }
    let options = Options {
        graph: args.graph.options(args.flags.source(), args.cut.spec()?),
        sizes,
        ..Options::new(Target::Tf)
    };
    let report = convert(&args.src, &args.out, &options)?;
    args.flags.print(&report, out, |report, out| print(report, args.why, out))?;
    Ok(Outcome::Done)
}

/// The report in plain text.
pub fn print(report: &Report, why: bool, out: &mut dyn Write) -> Result<()> {
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    if why {
        for note in &report.done {
            writeln!(out, "{}", sentence(note))?;
        }
        for note in &report.missed {
            writeln!(out, "not: {}", sentence(note))?;
        }
    } else {
        summary(report, out)?;
    }
    if !report.inputs.is_empty() {
        let mut table = Table::new(&["", "name", "type", "shape"]);
        for (what, ends) in [("input", &report.inputs), ("output", &report.outputs)] {
            for end in ends {
                let dtype = end.dtype.unwrap_or("?").to_owned();
                table.row([what.to_owned(), end.name.clone(), dtype, end.shape.clone()]);
            }
        }
        table.print(out)?;
        let parameters = thousands(report.parameters);
        writeln!(out, "{} nodes, {parameters} parameters", report.nodes)?;
    }
    for file in &report.files {
        writeln!(out, "wrote {} ({})", file.path.display(), size(file.bytes))?;
    }
    if let Some(verification) = &report.verification {
        writeln!(out)?;
        verify::print(verification, out)?;
    }
    Ok(())
}

fn sentence(note: &Note) -> String {
    match note.node.as_str() {
        "" => format!("{}: {}", note.rule, note.text),
        node => format!("{}: `{node}`: {}", note.rule, note.text),
    }
}

/// How often each rule was applied, in one line.
fn summary(report: &Report, out: &mut dyn Write) -> Result<()> {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for note in &report.done {
        match counts.iter_mut().find(|(rule, _)| *rule == note.rule) {
            Some((_, count)) => *count += 1,
            None => counts.push((note.rule, 1)),
        }
    }
    let counts: Vec<String> = counts.iter().map(|(rule, n)| format!("{rule} {n}")).collect();
    if !counts.is_empty() {
        writeln!(out, "passes: {}", counts.join(", "))?;
    }
    if !report.missed.is_empty() {
        writeln!(out, "{} more did not apply; `--why` says why", report.missed.len())?;
    }
    Ok(())
}
