//! `verify`: two models on the same inputs, node by node.
//!
//! `pair` says which input and output of one side is which of the other, `sample` makes inputs,
//! `lockstep` runs both sides side by side and compares all that they have in common but `extents`.

mod extents;
mod lockstep;
mod page;
mod pair;
mod sample;

use std::path::{Path, PathBuf};

use frazil_graph::Graph;
use frazil_graph::op::{Op, Unary};
use frazil_runtime::{Inputs, Options as SessionOptions, Session};
use frazil_tensor::TensorStore;
use serde::Serialize;

use super::role::{self, InputRole};
use super::run::{batches, dropout_note};
use crate::source::{GraphOptions, open_graph};
use crate::{Error, Result};

pub use lockstep::{Difference, NodeDifference};
pub use pair::Pair;

/// Largest difference that counts as equal, unless told otherwise.
pub const TOLERANCE: f64 = 1e-4;

/// How two models are compared.
#[derive(Clone, Debug)]
pub struct Options {
    /// How the first one is opened and cut.
    pub a: GraphOptions,
    /// How the second one is opened and cut.
    pub b: GraphOptions,
    /// Arrays to feed, in an `.npz` file; generated if not given.
    pub inputs: Option<PathBuf>,
    /// How many examples are generated.
    pub samples: usize,
    /// Examples at a time, where the models leave it open.
    pub batch: Option<usize>,
    /// Length of the examples, where the models leave it open.
    pub seq: Option<usize>,
    /// What the examples are made from.
    pub seed: u64,
    /// Largest difference of an output that counts as equal.
    pub tolerance: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            a: GraphOptions::default(),
            b: GraphOptions::default(),
            inputs: None,
            samples: 4,
            batch: None,
            seq: None,
            seed: 0,
            tolerance: TOLERANCE,
        }
    }
}

/// What two models have in common, and where they part.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The two models.
    pub sides: Vec<Side>,
    /// Which input is which.
    pub inputs: Vec<Pair>,
    /// How many examples were run.
    pub samples: usize,
    /// What counts as equal.
    pub tolerance: f64,
    /// Every output.
    pub outputs: Vec<Difference>,
    /// How many nodes of the same name were compared.
    pub nodes: usize,
    /// The first of them, in the order of computing, that differ: more than the tolerance, or more
    /// than the tolerance times the largest element.
    pub parted: Option<NodeDifference>,
    /// Every node that was compared, in the order of computing: for [`Report::page`], too much for
    /// JSON.
    #[serde(skip)]
    pub along: Vec<NodeDifference>,
    /// Choices that were made.
    pub notes: Vec<String>,
    /// Whether every output is within the tolerance.
    pub equal: bool,
}

/// One of the models.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// Where it lies.
    pub path: PathBuf,
    /// What it is.
    pub kind: String,
    /// Number of nodes.
    pub nodes: usize,
    /// Choices that were made when it was opened.
    pub notes: Vec<String>,
}

/// Compares the models at `a` and `b`. `on_progress` gets steps done and steps in all.
pub fn verify(
    a: &Path,
    b: &Path,
    options: &Options,
    on_progress: &mut dyn FnMut(u64, u64),
) -> Result<Report> {
    let mut sides = Vec::new();
    let mut graphs = Vec::new();
    for (path, how) in [(a, &options.a), (b, &options.b)] {
        let mut opened = open_graph(path, how)?;
        opened.notes.extend(dropout_note(&opened.passes));
        sides.push(Side {
            path: path.to_path_buf(),
            kind: opened.located.kind.describe().to_owned(),
            nodes: opened.graph.len(),
            notes: opened.notes,
        });
        graphs.push(opened.graph);
    }
    let note = unround(&mut graphs);
    let mut report = compare([&graphs[0], &graphs[1]], options, on_progress)?;
    report.sides = sides;
    report.notes.extend(note);
    Ok(report)
}

/// Takes the rounding to steps of bytes out of graphs that have the same steps, and says so. With
/// it, the last bit of a number between two steps decides to which it goes, and every number
/// behind it differs; two runs of one model on two machines do.
fn unround(graphs: &mut [Graph]) -> Option<String> {
    let steps = |graph: &Graph| {
        let steps = graph.nodes().filter_map(|(_, node)| match &node.op {
            Op::FakeQuantize(steps) => Some(format!("{steps:?}")),
            _ => None,
        });
        let mut steps: Vec<String> = steps.collect();
        steps.sort();
        steps
    };
    let all: Vec<Vec<String>> = graphs.iter().map(steps).collect();
    let count = all.first().map(Vec::len).filter(|&count| count > 0)?;
    if all.iter().any(|steps| *steps != all[0]) {
        return None;
    }
    for graph in graphs {
        for id in graph.ids() {
            let node = graph.node_mut(id);
            if let Op::FakeQuantize(_) = node.op {
                node.op = Op::Unary(Unary::Identity);
            }
        }
    }
    Some(format!(
        "both have the same {count} steps of bytes; numbers are compared without rounding to them"
    ))
}

/// Compares two graphs; the report's `sides` are left empty.
pub fn compare(
    graphs: [&Graph; 2],
    options: &Options,
    on_progress: &mut dyn FnMut(u64, u64),
) -> Result<Report> {
    let sessions = [
        Session::new(graphs[0], SessionOptions::default())?,
        Session::new(graphs[1], SessionOptions::default())?,
    ];
    let roles = [role::roles(graphs[0])?, role::roles(graphs[1])?];
    let mut notes = Vec::new();
    let inputs = pair::inputs(&roles, &mut notes)?;
    let outputs = pair::outputs(graphs, &mut notes)?;
    let feeds = match &options.inputs {
        Some(path) => given(path, graphs, &roles, &inputs, &mut notes)?,
        None => sample::generate(&roles, &inputs, options, &mut notes)?,
    };
    let samples = feeds.iter().map(|[a, _]| examples(a)).sum();
    let mut comparison = lockstep::Comparison::new(&sessions, &outputs, options.tolerance)?;
    let steps: u64 = sessions.iter().map(|session| session.plan().steps.len() as u64).sum();
    let total = steps * feeds.len() as u64;
    for (i, feed) in feeds.iter().enumerate() {
        let before = steps * i as u64;
        comparison.run(feed, &mut |done| on_progress(before + done, total))?;
    }
    let lockstep::Found { outputs, nodes, parted, along } = comparison.finish();
    let equal = outputs.iter().all(|output| output.within);
    Ok(Report {
        sides: Vec::new(),
        inputs,
        samples,
        tolerance: options.tolerance,
        outputs,
        nodes,
        parted,
        along,
        notes,
        equal,
    })
}

fn examples(inputs: &Inputs) -> usize {
    inputs.values().filter_map(|tensor| tensor.shape().first().copied()).max().unwrap_or(1)
}

/// The arrays of a file, fed to both sides.
fn given(
    path: &Path,
    graphs: [&Graph; 2],
    roles: &[Vec<InputRole>; 2],
    pairs: &[Pair],
    notes: &mut Vec<String>,
) -> Result<Vec<[Inputs; 2]>> {
    let store = role::arrays(path)?;
    let names = |side: fn(&Pair) -> (&String, &String)| {
        pairs.iter().map(side).map(|(own, other)| (own.clone(), other.clone())).collect()
    };
    let (a, a_notes) = role::assign(&roles[0], &store, &names(|pair| (&pair.a, &pair.b)))?;
    let (b, _) = role::assign(&roles[1], &store, &names(|pair| (&pair.b, &pair.a)))?;
    notes.extend(a_notes);
    let (a, b) = (batches(graphs[0], &a)?, batches(graphs[1], &b)?);
    // One side may be made for fewer at a time: then both get that many.
    let count = a.len().max(b.len());
    let cut = |side: &[Inputs]| -> Result<Vec<Inputs>> {
        if side.len() == count {
            return Ok(side.to_vec());
        }
        let (found, other) = (side.len(), count);
        if found > 1 {
            return Err(Error::Usage {
                what: format!(
                    "one model runs the examples in {found} batches, the other in {other}"
                ),
                hint: "make the batch size of one dynamic with `frazil reshape`".into(),
            });
        }
        sample::split(&side[0], count)
    };
    let (a, b) = (cut(&a)?, cut(&b)?);
    if store.infos().is_empty() {
        notes.push(format!("`{}` holds no arrays", path.display()));
    }
    Ok(a.into_iter().zip(b).map(|(a, b)| [a, b]).collect())
}
