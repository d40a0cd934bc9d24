//! `run`: a model's outputs for inputs in a file.

use std::path::{Path, PathBuf};
use std::time::Instant;

use frazil_graph::pass;
use frazil_graph::{Graph, Op};
use frazil_runtime::{
    Engine, EngineOptions, Error as RunError, Inputs, Options as SessionOptions, Run, Session,
};
use frazil_tensor::Tensor;
use frazil_tensor::npy::NpzWriter;
use serde::Serialize;

use super::compile::{self, Compiled};
use super::role;
use crate::source::{GraphOptions, open_graph};
use crate::{Error, Result};

/// How a model is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How the model is opened and cut.
    pub graph: GraphOptions,
    /// Whether the engine runs it, with LayerNorm, GELU, attention and the like as one operation each;
    /// else each node is computed by itself, by the reference.
    pub fuse: bool,
    /// Whether the engine drops padding. Outputs at padding positions are then 0.
    pub packed: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { graph: GraphOptions::default(), fuse: true, packed: false }
    }
}

/// What was run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The model.
    pub model: PathBuf,
    /// What was fed.
    pub inputs: Vec<End>,
    /// What came out.
    pub outputs: Vec<End>,
    /// How many runs it took: more than one where the graph is made for smaller batches.
    pub runs: usize,
    /// Seconds to open the model, and to run it.
    pub open_seconds: f64,
    /// Seconds of all runs together.
    pub run_seconds: f64,
    /// Choices that were made.
    pub notes: Vec<String>,
}

/// An input or output as it was.
#[derive(Clone, Debug, Serialize)]
pub struct End {
    /// Its name.
    pub name: String,
    /// Its element type.
    pub dtype: String,
    /// Its extents.
    pub shape: Vec<usize>,
}

impl End {
    fn new(name: &str, tensor: &Tensor) -> Self {
        let (dtype, shape) = (tensor.dtype().to_string(), tensor.shape().to_vec());
        Self { name: name.to_owned(), dtype, shape }
    }
}

/// Runs `model` on the arrays of the `.npz` file `inputs` and writes its outputs to the `.npz` file
/// `outputs`, if there is to be one. Nothing is written unless everything worked.
pub fn run(
    model: &Path,
    inputs: &Path,
    outputs: Option<&Path>,
    options: &Options,
) -> Result<(Report, Vec<(String, Tensor)>)> {
    let given = role::arrays(inputs)?;
    let start = Instant::now();
    let (graph, way, mut notes) = open(model, options)?;
    let roles = role::roles(&graph)?;
    let (fed, assigned) = role::assign(&roles, &given, &Default::default())?;
    notes.extend(assigned);
    let open_seconds = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let batches = batches(&graph, &fed)?;
    if batches.len() > 1 {
        let (all, one) = (batches.len(), rows(&batches[0]));
        notes.push(format!("the graph is made for {one} at a time: run {all} times"));
    }
    let mut parts = Vec::with_capacity(batches.len());
    for batch in &batches {
        let run = way.run(batch, |e| role::with_unused(e, &given, &fed).into())?;
        if parts.is_empty() {
            notes.extend(run.notes);
        }
        parts.push(run.outputs);
    }
    let found = joined(&parts)?;
    let run_seconds = start.elapsed().as_secs_f64();
    if let Some(path) = outputs {
        let mut file = NpzWriter::create(path)?;
        for (name, tensor) in &found {
            file.add(name, tensor)?;
        }
        file.finish()?;
    }
    let report = Report {
        model: model.to_path_buf(),
        inputs: fed.iter().map(|(name, tensor)| End::new(name, tensor)).collect(),
        outputs: found.iter().map(|(name, tensor)| End::new(name, tensor)).collect(),
        runs: batches.len(),
        open_seconds,
        run_seconds,
        notes,
    };
    Ok((report, found))
}

/// The model, what computes it, and what was decided on the way.
fn open(model: &Path, options: &Options) -> Result<(Graph, Way, Vec<String>)> {
    if compile::is_compiled(model) {
        let compiled = Compiled::open(model)?;
        let packed = options.packed;
        let engine = compiled.engine(&EngineOptions { packed, ..EngineOptions::default() })?;
        return Ok((compiled.graph, Way::Engine(engine), Vec::new()));
    }
    let opened = open_graph(model, &options.graph)?;
    let (graph, mut notes) = (opened.graph, opened.notes);
    notes.extend(dropout_note(&opened.passes));
    let way = Way::new(&graph, options)?;
    Ok((graph, way, notes))
}

/// What computes.
enum Way {
    Engine(Engine),
    Reference(Session),
}

impl Way {
    fn new(graph: &Graph, options: &Options) -> Result<Self> {
        let packed = options.packed;
        Ok(if options.fuse {
            let options = EngineOptions { packed, ..EngineOptions::default() };
            Self::Engine(Engine::new(graph, &options)?)
        } else {
            Self::Reference(Session::new(graph, SessionOptions::default())?)
        })
    }

    /// The outputs; `explain` makes an error of what went wrong.
    fn run(&self, inputs: &Inputs, explain: impl FnOnce(RunError) -> Error) -> Result<Run> {
        match self {
            Self::Engine(engine) => engine.run(inputs),
            Self::Reference(session) => session.run(inputs),
        }
        .map_err(explain)
    }
}

/// What to say of a training graph that was opened: its dropout is gone.
pub(crate) fn dropout_note(passes: &pass::Report) -> Option<String> {
    let count = passes.count("dropout");
    (count > 0).then(|| format!("{count} dropouts of the training graph were taken out"))
}

/// The inputs as they are, or cut into batches of the size that the graph is made for.
pub(crate) fn batches(graph: &Graph, fed: &Inputs) -> Result<Vec<Inputs>> {
    let Some(size) = baked_batch(graph, fed) else { return Ok(vec![fed.clone()]) };
    let total = rows(fed);
    let same = fed.values().all(|tensor| tensor.shape().first() == Some(&total));
    if size == 0 || !same || total == size || !total.is_multiple_of(size) {
        return Ok(vec![fed.clone()]); // the session says what is wrong
    }
    (0..total / size)
        .map(|i| {
            let part = |(name, tensor): (&String, &Tensor)| {
                Ok((name.clone(), window(tensor, i * size, size)?))
            };
            fed.iter().map(part).collect()
        })
        .collect()
}

/// The first extent of all inputs that are fed, if it is one number.
fn baked_batch(graph: &Graph, fed: &Inputs) -> Option<usize> {
    let mut batch = None;
    for port in graph.inputs.iter().filter(|port| fed.contains_key(&port.name)) {
        let (Op::Input(input) | Op::InputWithDefault(input)) = graph.op(port.value) else {
            return None;
        };
        let size = input.dims.as_ref()?.first()?.as_known()?;
        if *batch.get_or_insert(size) != size {
            return None;
        }
    }
    batch.and_then(|batch| usize::try_from(batch).ok())
}

fn rows(inputs: &Inputs) -> usize {
    inputs.values().next().and_then(|tensor| tensor.shape().first().copied()).unwrap_or(0)
}

/// `count` entries of the outermost axis from `begin` on, without a copy.
fn window(tensor: &Tensor, begin: usize, count: usize) -> Result<Tensor> {
    let mut dims = tensor.shape().to_vec();
    let row = tensor.byte_len() / dims[0];
    dims[0] = count;
    let bytes = tensor.bytes()?.slice(begin * row..(begin + count) * row);
    Ok(Tensor::new(tensor.dtype(), dims, bytes)?)
}

/// The outputs of all batches, one after the other.
fn joined(parts: &[Vec<(String, Tensor)>]) -> Result<Vec<(String, Tensor)>> {
    let [first, rest @ ..] = parts else { return Ok(Vec::new()) };
    if rest.is_empty() {
        return Ok(first.clone());
    }
    let join = |(i, (name, tensor)): (usize, &(String, Tensor))| {
        if tensor.shape().is_empty() {
            return Err(Error::Usage {
                what: format!("output `{name}` is one number for each batch"),
                hint: "run the batches one by one, or make the batch size dynamic with \
                       `frazil reshape`"
                    .into(),
            });
        }
        let all: Vec<Tensor> = parts.iter().map(|part| part[i].1.clone()).collect();
        Ok((name.clone(), Tensor::concat(&all, 0)?))
    };
    first.iter().enumerate().map(join).collect()
}
