//! A graph with its weights in it, from whatever the user has: a graph and the values for its
//! variables, or the weights alone, for which the graph is built.
//!
//! `load` reads the source, `cut` takes out of it the part that is wanted. What comes out has
//! inputs and outputs and no variables; what cannot run is still in it, by name, if an output
//! needs it.

mod cut;
mod load;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use frazil_bert::{BertConfig, Head};
use frazil_graph::pass::{self, Report};
use frazil_graph::{Graph, Port, Symbol, Value};
use frazil_tensor::TensorStore;

use super::locate::{Located, Need, locate};
use super::weights::Options;
use crate::Result;
use crate::ops::cut_spec::CutSpec;

/// How a graph is opened.
#[derive(Clone, Debug, Default)]
pub struct GraphOptions {
    /// How files are read.
    pub source: Options,
    /// The configuration, if not the one beside the weights.
    pub config: Option<PathBuf>,
    /// What the model is for, where the weights leave a choice.
    pub head: Option<Head>,
    /// Which of several models in the weights.
    pub scope: Option<String>,
    /// The values of a graph's variables, if not those beside it.
    pub checkpoint: Option<PathBuf>,
    /// Which MetaGraph of a SavedModel; `serve` if empty.
    pub tags: Vec<String>,
    /// Which signature of a SavedModel; `serving_default`, or the only one.
    pub signature: Option<String>,
    /// Where to cut.
    pub cut: CutSpec,
    /// What the outputs are where nothing says.
    pub outputs: Outputs,
}

/// What the outputs of a graph are if neither the user nor a signature names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outputs {
    /// BERT's, by the names that google-research/bert gives them; else as `Leaves`.
    #[default]
    Bert,
    /// Everything that nobody reads, as Model Optimizer has it.
    Leaves,
}

/// A graph, and how it was found.
pub struct OpenedGraph {
    /// Where it came from.
    pub located: Located,
    /// The graph: inputs and outputs named, variables replaced by their values.
    pub graph: Graph,
    /// The configuration of the BERT that it is, where that is known.
    pub config: Option<BertConfig>,
    /// Bounds that the user gave to open extents: the least, and the most if there is one.
    pub bounds: BTreeMap<Symbol, (u64, Option<u64>)>,
    /// What the passes on the way did.
    pub passes: Report,
    /// Choices that were made, in words.
    pub notes: Vec<String>,
}

/// Opens `path` as a graph that can be run or written.
pub fn open_graph(path: impl AsRef<Path>, options: &GraphOptions) -> Result<OpenedGraph> {
    open_graph_choosing(path, options, |_, outputs| outputs)
}

/// The same, with other outputs than the graph would have: `choose` sees the whole graph, before
/// anything is cut off, and the outputs that it would have (none if nothing tells them), and says
/// which ones it shall have. Outputs that the options name are not asked about.
pub fn open_graph_choosing(
    path: impl AsRef<Path>,
    options: &GraphOptions,
    choose: impl FnOnce(&Graph, Result<Vec<Port>>) -> Result<Vec<Port>>,
) -> Result<OpenedGraph> {
    let located = locate(path, Need::Values)?;
    let mut loaded = load::load(&located, options)?;
    let mut notes = located.notes.clone();
    notes.append(&mut loaded.notes);
    if options.cut.outputs.is_none() {
        let signed = std::mem::take(&mut loaded.signed);
        let outputs = cut::default_outputs(&loaded.graph, options, signed, &mut notes);
        let chosen = choose(&loaded.graph, outputs)?;
        loaded.signed = chosen.into_iter().map(|port| (port.name, port.value)).collect();
    }
    let mut graph = loaded.graph;
    let mut passes = cut::cut(&mut graph, options, loaded.signed, &mut notes)?;
    if let Some(weights) = &loaded.weights {
        passes.extend(pass::freeze(&mut graph, weights.as_ref())?);
    } else if let Some((_, node)) =
        graph.nodes().find(|(_, node)| matches!(node.op, frazil_graph::Op::Variable(_)))
    {
        return Err(crate::Error::WrongKind {
            path: located.shown(),
            found: located.kind.describe(),
            expected: "values for its variables",
            hint: format!(
                "`{}` and others have no value here: give the checkpoint with `--checkpoint`",
                node.name
            ),
        });
    }
    // Ranges of fake quantization that were variables are known now.
    frazil_convert::tf::settle_fake_quant(&mut graph)?;
    let bounds = cut::bounds(&options.cut);
    Ok(OpenedGraph { located, graph, config: loaded.config, bounds, passes, notes })
}

/// The graph at `path` as it was read or built, not cut, with its variables.
pub fn load_graph(path: impl AsRef<Path>, options: &GraphOptions) -> Result<Graph> {
    let located = locate(path, Need::Names)?;
    Ok(load::load(&located, options)?.graph)
}

/// What was read, before it is cut.
struct Loaded {
    graph: Graph,
    weights: Option<Box<dyn TensorStore>>,
    config: Option<BertConfig>,
    notes: Vec<String>,
    /// Outputs that the source itself names.
    signed: Vec<(String, Value)>,
}
