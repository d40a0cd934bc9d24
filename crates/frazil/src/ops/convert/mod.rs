//! From any source to any target: open, reshape, fold, fuse, write.
//!
//! Everything is checked before a file is begun: the graph, the shapes that were asked for, and
//! whether the target has every operation and type.

mod report;

use std::path::{Path, PathBuf};
use std::time::Instant;

use frazil_convert::openvino::{self, Bounds};
use frazil_convert::{onnx, tf};
use frazil_graph::pass::{self, Fusions, Reshape, Size};
use frazil_graph::{Graph, Op, infer};
use frazil_tf::{graph_def, saved_model};
use serde::Serialize;

use super::cut_spec::parse_outputs;
use super::export_weights::{self, Names};
use super::{import_weights, verify};
use crate::source::{GraphOptions, OpenedGraph, open_graph};
use crate::{Error, Result};

pub use report::{End, Note, Report, Written, ends};

/// Largest difference of an output that weights rounded to float16 may make.
const FP16_TOLERANCE: f64 = 2e-2;

/// What to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// A frozen GraphDef.
    Tf,
    /// A SavedModel with a serving signature.
    SavedModel,
    /// ONNX.
    Onnx,
    /// OpenVINO's intermediate representation.
    Openvino,
    /// A folder that transformers loads.
    Huggingface,
    /// A TensorFlow 1 checkpoint.
    Checkpoint,
}

/// Who is to read a frozen graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reader {
    /// TensorFlow.
    #[default]
    Any,
    /// AMD's MIGraphX, whose parser knows few operations and fixed shapes only.
    Migraphx,
}

/// How to convert.
#[derive(Clone, Debug)]
pub struct Options {
    /// How the source is opened and cut.
    pub graph: GraphOptions,
    /// What to write.
    pub to: Target,
    /// The sizes of the result.
    pub sizes: Reshape,
    /// Weights as float16.
    pub fp16: bool,
    /// Whether shape arithmetic becomes constant; by default where the target gains by it.
    pub fold: Option<bool>,
    /// Whether LayerNorm and GELU become single operations; by default where the target has them.
    pub fuse: Option<bool>,
    /// ONNX's operator set; the exporter's default if not given.
    pub opset: Option<u32>,
    /// Who is to read a frozen graph.
    pub reader: Reader,
    /// The text form of a graph or SavedModel.
    pub text: bool,
    /// The network's name in the result; the file's if not given.
    pub name: Option<String>,
    /// Whether the result is opened again and run beside the source.
    pub verify: bool,
}

impl Options {
    /// Everything as it comes.
    pub fn new(to: Target) -> Self {
        Self {
            graph: GraphOptions::default(),
            to,
            sizes: Reshape::default(),
            fp16: false,
            fold: None,
            fuse: None,
            opset: None,
            reader: Reader::Any,
            text: false,
            name: None,
            verify: false,
        }
    }

    /// Options that mean nothing for the target.
    fn check(&self) -> Result<()> {
        let only = |flag: &str, what: &str| {
            Err(Error::Usage {
                what: format!("`{flag}` has no meaning here: {what}"),
                hint: format!("leave `{flag}` out"),
            })
        };
        let tf = matches!(self.to, Target::Tf | Target::SavedModel);
        let weights = matches!(self.to, Target::Huggingface | Target::Checkpoint);
        if self.opset.is_some() && self.to != Target::Onnx {
            return only("--opset", "operator sets are ONNX's");
        }
        if self.reader != Reader::Any && self.to != Target::Tf {
            return only("--target", "it chooses who reads a frozen graph");
        }
        if self.text && !tf {
            return only("--text", "only graphs and SavedModels have a text form");
        }
        if self.fuse == Some(true) && tf {
            return only("--fuse", "TensorFlow's graphs have no operation for LayerNorm or GELU");
        }
        if self.fp16 && tf {
            return only("--fp16", "TensorFlow's graphs keep the weights' own type");
        }
        if weights {
            let cut = &self.graph.cut;
            for (flag, given) in [
                ("--input", cut.inputs.is_some() || cut.only_shape.is_some()),
                ("--output", cut.outputs.is_some()),
                ("--batch", self.sizes.batch != Size::Keep || cut.batch.is_some()),
                ("--seq", self.sizes.seq != Size::Keep),
                ("--fold", self.fold.is_some()),
                ("--fuse", self.fuse.is_some()),
            ] {
                if given {
                    return only(flag, "weights alone are written, not a graph");
                }
            }
        }
        Ok(())
    }
}

/// Writes the model at `source` as `output`.
pub fn convert(
    source: impl AsRef<Path>,
    output: impl AsRef<Path>,
    options: &Options,
) -> Result<Report> {
    let (source, output) = (source.as_ref(), output.as_ref());
    let started = Instant::now();
    options.check()?;
    let mut report = if let Target::Huggingface | Target::Checkpoint = options.to {
        weights(source, output, options, started)?
    } else {
        let mut opened = open_graph(source, &options.graph)?;
        prepare(&mut opened, options)?;
        write(opened, output, options, started)?
    };
    report.notes.extend(other_ending(output, options.to));
    if options.verify {
        report.verification = Some(check_result(source, output, options, &report)?);
    }
    Ok(report)
}

/// A name that ends as those of another format do.
fn other_ending(output: &Path, to: Target) -> Option<String> {
    let (is, of) = match to {
        Target::Tf => ("a frozen graph", "pb"),
        Target::Onnx => ("an ONNX model", "onnx"),
        Target::Openvino => ("an OpenVINO model", "xml"),
        // These are folders.
        Target::SavedModel | Target::Huggingface | Target::Checkpoint => return None,
    };
    let end = output.extension()?.to_str()?;
    let others = ["pb", "onnx", "xml", "bin", "frazil", "safetensors", "npz", "html"];
    (end != of && others.contains(&end))
        .then(|| format!("`{}` is {is}, though its name ends in `.{end}`", output.display()))
}

/// Opens what was written and runs it beside the source, on generated inputs.
fn check_result(
    source: &Path,
    output: &Path,
    options: &Options,
    report: &Report,
) -> Result<verify::Report> {
    let mut b = GraphOptions { source: options.graph.source, ..GraphOptions::default() };
    match options.to {
        // A frozen graph does not say what its outputs are.
        Target::Tf => {
            let places = report.outputs.iter().map(|end| parse_outputs(&end.value));
            b.cut.outputs = Some(places.collect::<Result<Vec<_>, _>>()?.concat());
        }
        Target::Huggingface | Target::Checkpoint => b.head = options.graph.head,
        Target::SavedModel | Target::Onnx | Target::Openvino => {}
    }
    let a = options.graph.clone();
    let tolerance = if options.fp16 { FP16_TOLERANCE } else { verify::TOLERANCE };
    let how = verify::Options { a, b, tolerance, ..verify::Options::default() };
    verify::verify(source, output, &how, &mut |_, _| {})
}

/// Gives the opened graph the sizes and the operations that the target is to have.
pub fn prepare(opened: &mut OpenedGraph, options: &Options) -> Result<()> {
    let graph = &mut opened.graph;
    let ours = matches!(options.to, Target::Onnx | Target::Openvino);
    opened.passes.extend(pass::reshape(graph, &options.sizes)?);
    if options.fold.unwrap_or(ours || options.reader == Reader::Migraphx) {
        opened.passes.extend(pass::fold(graph)?);
    }
    if options.reader == Reader::Migraphx {
        opened.passes.extend(tf::migraphx::adapt(graph)?);
    }
    if options.fuse.unwrap_or(ours) {
        let fusions = Fusions { layer_norm: true, gelu: true, ..Fusions::none() };
        opened.passes.extend(pass::fuse(graph, &fusions)?);
    }
    Ok(())
}

/// Writes a graph that is ready.
pub fn write(
    opened: OpenedGraph,
    output: &Path,
    options: &Options,
    started: Instant,
) -> Result<Report> {
    let OpenedGraph { located, graph, bounds, passes, mut notes, .. } = opened;
    let facts = infer(&graph)?;
    refuse_random(&graph)?;
    let written = match options.to {
        Target::Tf => {
            if options.reader == Reader::Migraphx {
                tf::migraphx::require(&graph)?;
            }
            let def = tf::export(&graph, None)?;
            match options.text {
                true => graph_def::write_text(output, &def)?,
                false => graph_def::write(output, &def)?,
            }
            vec![output.to_path_buf()]
        }
        Target::SavedModel => {
            let model = tf::saved_model(&graph, None)?;
            let write = saved_model::WriteOptions { text: options.text, ..Default::default() };
            saved_model::write(output, &model, write)?;
            let name = if options.text { "saved_model.pbtxt" } else { "saved_model.pb" };
            vec![output.join(name)]
        }
        Target::Onnx => {
            let mut export = onnx::ExportOptions { fp16: options.fp16, ..Default::default() };
            export.opset = options.opset.unwrap_or(export.opset);
            if let Some(name) = &options.name {
                export.name = name.clone();
            }
            let written = onnx::export(&graph, &export, output)?;
            notes.extend(written.notes);
            written.files
        }
        Target::Openvino => {
            let bounds = bounds.into_iter();
            let export = openvino::ExportOptions {
                fp16: options.fp16,
                name: options.name.clone().unwrap_or_default(),
                bounds: bounds.map(|(s, (least, most))| (s, Bounds { least, most })).collect(),
            };
            let written = openvino::export(&graph, &export, output)?;
            notes.extend(written.notes);
            written.files
        }
        Target::Huggingface | Target::Checkpoint => {
            unreachable!("weights are written without a graph")
        }
    };
    Ok(Report {
        source: located.asked.clone(),
        kind: located.kind,
        to: options.to,
        inputs: ends(&graph, &facts, &graph.inputs),
        outputs: ends(&graph, &facts, &graph.outputs),
        nodes: graph.len(),
        parameters: parameters(&graph),
        files: files(&written),
        done: passes.done.into_iter().map(Note::from).collect(),
        missed: passes.missed.into_iter().map(Note::from).collect(),
        notes,
        verification: None,
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// A frozen graph that draws random numbers would answer otherwise each time.
fn refuse_random(graph: &Graph) -> Result<()> {
    let random = |op: &Op| matches!(op, Op::Foreign(op) if op.op.starts_with("Random"));
    match graph.nodes().find(|(_, node)| random(&node.op)) {
        None => Ok(()),
        Some((_, node)) => Err(frazil_graph::Error::CannotRun {
            output: graph.outputs.first().map(|port| port.name.clone()).unwrap_or_default(),
            name: node.name.clone(),
            op: node.op.to_string(),
            reason: "draws random numbers: this is a training graph, and its dropout is not one \
                     that frazil knows how to remove"
                .to_owned(),
        }
        .into()),
    }
}

/// Elements of all constants of real type: the weights.
fn parameters(graph: &Graph) -> u64 {
    let constants = graph.nodes().filter_map(|(_, node)| node.op.as_const());
    constants.filter(|value| value.dtype().is_float()).map(|value| value.elements() as u64).sum()
}

fn files(paths: &[PathBuf]) -> Vec<Written> {
    let size = |path: &Path| path.metadata().map_or(0, |data| data.len());
    paths.iter().map(|path| Written { path: path.clone(), bytes: size(path) }).collect()
}

/// Targets that hold weights and no graph.
fn weights(source: &Path, output: &Path, options: &Options, started: Instant) -> Result<Report> {
    let dtype = options.fp16.then_some(frazil_tensor::DType::F16);
    let (kind, paths, parameters, notes) = match options.to {
        Target::Checkpoint => {
            let report = import_weights::import_weights(
                source,
                output,
                &import_weights::Options {
                    task: options.graph.head,
                    scope: options.graph.scope.clone(),
                    config: options.graph.config.clone(),
                    dtype,
                    source: options.graph.source,
                    ..Default::default()
                },
                &mut |_, _| {},
            )?;
            let mut paths = vec![frazil_tf::bundle::index_path(&report.prefix)];
            paths.push(frazil_tf::bundle::data_path(&report.prefix, 0, 1));
            paths.extend(report.beside);
            (report.source.kind, paths, report.parameters, report.notes)
        }
        _ => {
            let report = export_weights::export_weights(
                source,
                output.join("model.safetensors"),
                &export_weights::Options {
                    names: Names::HuggingFace,
                    task: options.graph.head,
                    scope: options.graph.scope.clone(),
                    config: options.graph.config.clone(),
                    dtype,
                    source: options.graph.source,
                    ..Default::default()
                },
                &mut |_, _| {},
            )?;
            let mut paths = vec![report.output];
            paths.extend(report.beside);
            (report.source.kind, paths, report.parameters, report.notes)
        }
    };
    Ok(Report {
        source: source.to_path_buf(),
        kind,
        to: options.to,
        inputs: Vec::new(),
        outputs: Vec::new(),
        nodes: 0,
        parameters,
        files: files(&paths),
        done: Vec::new(),
        missed: Vec::new(),
        notes,
        verification: None,
        seconds: started.elapsed().as_secs_f64(),
    })
}
