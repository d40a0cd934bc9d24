//! What is left behind: the model in one or several forms, a recipe, and what is needed to deploy it.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::str::FromStr;
use std::time::Instant;

use frazil_graph::pass::quantize::{Grids, quantize};
use frazil_graph::{Graph, Op};
use frazil_kernels::Isa;
use frazil_tune::Recipe;
use serde::Serialize;

use super::{Doing, OnEvent, Report, Search};
use crate::ops::text_model::TextGraph;
use crate::ops::{compile, convert};
use crate::source::{GraphOptions, Kind, Need, OpenedGraph, load_graph, locate};
use crate::{Error, Result};

/// As what a model is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// frazil's compiled file.
    Compiled,
    /// ONNX, with QuantizeLinear and DequantizeLinear.
    Onnx,
    /// OpenVINO's representation, with FakeQuantize.
    Openvino,
    /// A frozen TensorFlow graph, with fake quantization.
    Tf,
}

impl Target {
    /// All of them, with their names and the endings of their files.
    const ALL: [(Self, &'static str, &'static str); 4] = [
        (Self::Compiled, "compiled", "frazil"),
        (Self::Onnx, "onnx", "onnx"),
        (Self::Openvino, "openvino", "xml"),
        (Self::Tf, "tf", "pb"),
    ];

    /// A name for a file of it.
    pub(super) fn file_name(self) -> String {
        let ending = Self::ALL.iter().find(|(target, ..)| *target == self);
        format!("model.{}", ending.map_or("", |(_, _, ending)| ending))
    }
}

impl FromStr for Target {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.iter().find(|(_, known, _)| *known == name);
        found.map(|(target, ..)| *target).ok_or("targets are `compiled`, `onnx`, `openvino`, `tf`")
    }
}

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The file.
    pub path: PathBuf,
    /// What is in it.
    pub target: Target,
}

impl Output {
    /// What a file's ending says.
    ///
    /// # Errors
    /// If it says nothing.
    pub fn by_name(path: PathBuf) -> Result<Self> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        match Target::ALL.iter().find(|(_, _, known)| *known == ending) {
            Some((target, ..)) => Ok(Self { target: *target, path }),
            None => Err(Error::Usage {
                what: format!("what `{}` is to be is not told by its name", path.display()),
                hint: "end it in `.frazil`, `.onnx`, `.xml` or `.pb`, or say `--to`".into(),
            }),
        }
    }
}

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Written {
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// What the model is written as; none of a file that belongs to another.
    pub target: Option<Target>,
}

/// What is to be written.
#[derive(Clone, Copy)]
pub(super) struct Outputs<'a> {
    pub files: &'a [Output],
    pub search: &'a Search,
}

/// Writes the best model, its recipe, and what deploys it.
pub(super) fn all(
    source: &Source,
    best: &Graph,
    recipe: &Recipe,
    wanted: Outputs<'_>,
    report: &mut Report,
    on_event: OnEvent<'_>,
) -> Result<()> {
    let workspace = wanted.search.workspace.as_deref();
    let mut outputs = wanted.files.to_vec();
    if let (true, Some(folder)) = (outputs.is_empty(), workspace) {
        let target = Target::Compiled;
        outputs.push(Output { path: folder.join(target.file_name()), target });
    }
    for output in &outputs {
        on_event(Doing::Writing(&output.path));
        report.outputs.extend(source.write(best, Some(&recipe.grids), output)?);
    }
    if let Some(folder) = workspace {
        let path = folder.join("recipe.yaml");
        recipe.write(&path)?;
        report.recipe = Some(path);
        let deploy = wanted.search.config.deploy()?;
        frazil_tensor::file::write(folder.join("deploy.yaml"), deploy.as_bytes())?;
    }
    Ok(())
}

/// Where a model came from.
#[derive(Clone)]
pub(super) struct Source {
    path: PathBuf,
    text: Rc<TextGraph>,
    options: GraphOptions,
}

impl Source {
    pub fn new(path: &Path, text: &Rc<TextGraph>, options: &GraphOptions) -> Self {
        Self { path: path.to_path_buf(), text: Rc::clone(text), options: options.clone() }
    }

    /// Writes a graph that came from here; with the numbers that made it, TensorFlow's graphs keep
    /// what feeds them.
    pub fn write(
        &self,
        graph: &Graph,
        grids: Option<&Grids>,
        output: &Output,
    ) -> Result<Vec<Written>> {
        let to = match output.target {
            Target::Compiled => {
                let bytes = compile::store(graph, &output.path, &[Isa::detect()])?.bytes;
                let (path, target) = (output.path.clone(), Some(output.target));
                return Ok(vec![Written { path, bytes, target }]);
            }
            Target::Onnx => convert::Target::Onnx,
            Target::Openvino => convert::Target::Openvino,
            Target::Tf => convert::Target::Tf,
        };
        let located = match self.text.located() {
            Some(located) => located.clone(),
            None => locate(&self.path, Need::Names)?,
        };
        let whole = match (output.target, grids) {
            (Target::Tf, Some(grids)) if located.kind == Kind::Graph => self.whole(grids)?,
            _ => None,
        };
        let mut opened = OpenedGraph {
            located,
            graph: whole.unwrap_or_else(|| graph.clone()),
            config: None,
            bounds: Default::default(),
            passes: Default::default(),
            notes: Vec::new(),
        };
        let options = convert::Options::new(to);
        convert::prepare(&mut opened, &options)?;
        let report = convert::write(opened, &output.path, &options, Instant::now())?;
        let written = |(at, file): (usize, convert::Written)| Written {
            path: file.path,
            bytes: file.bytes,
            target: (at == 0).then_some(output.target),
        };
        Ok(report.files.into_iter().enumerate().map(written).collect())
    }

    /// The graph as it was, with bytes in it, if it is fed by an iterator: whoever feeds it goes on
    /// to do so.
    fn whole(&self, grids: &Grids) -> Result<Option<Graph>> {
        let mut graph = load_graph(&self.path, &self.options)?;
        let iterates = |op: &Op| matches!(op, Op::Foreign(op) if op.op == "IteratorGetNext");
        if !graph.nodes().any(|(_, node)| iterates(&node.op)) {
            return Ok(None);
        }
        quantize(&mut graph, grids)?;
        Ok(Some(graph))
    }
}
