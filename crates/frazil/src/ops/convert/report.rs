//! What a conversion did, in a form that serializes.

use std::path::PathBuf;

use frazil_graph::dim::show;
use frazil_graph::{Facts, Graph, Port, pass};
use serde::Serialize;

use super::Target;
use crate::ops::verify;
use crate::source::Kind;

/// What was written, and how it came about.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What the user gave.
    pub source: PathBuf,
    /// What it is.
    pub kind: Kind,
    /// What was written.
    pub to: Target,
    /// The model's inputs.
    pub inputs: Vec<End>,
    /// The model's outputs.
    pub outputs: Vec<End>,
    /// Nodes of the graph as it was written.
    pub nodes: usize,
    /// Elements of its constants.
    pub parameters: u64,
    /// The files, the main one first.
    pub files: Vec<Written>,
    /// What the passes did.
    pub done: Vec<Note>,
    /// What the passes looked for in vain, and why.
    pub missed: Vec<Note>,
    /// Choices made on the way, and remarks.
    pub notes: Vec<String>,
    /// The result beside the source, if that was asked for.
    pub verification: Option<verify::Report>,
    /// How long the conversion took.
    pub seconds: f64,
}

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct End {
    /// Its name outside.
    pub name: String,
    /// The value in the graph.
    pub value: String,
    /// Element type.
    pub dtype: Option<&'static str>,
    /// Extents, open ones by name; `?` if not even the rank is known.
    pub shape: String,
}

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Its path.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
}

/// A sentence about a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// Which rule speaks.
    pub rule: &'static str,
    /// The node.
    pub node: String,
    /// What was done, or why not.
    pub text: String,
}

impl From<pass::Note> for Note {
    fn from(note: pass::Note) -> Self {
        Self { rule: note.rule, node: note.node, text: note.text }
    }
}

/// The ends of a graph with what is known of them.
pub fn ends(graph: &Graph, facts: &Facts, ports: &[Port]) -> Vec<End> {
    let end = |port: &Port| {
        let fact = &facts[port.value];
        End {
            name: port.name.clone(),
            value: graph.value_name(port.value),
            dtype: fact.dtype.map(|dtype| dtype.name()),
            shape: fact.dims.as_ref().map_or("?".to_owned(), |dims| show(dims)),
        }
    };
    ports.iter().map(end).collect()
}
