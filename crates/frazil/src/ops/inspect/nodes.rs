//! The nodes of a graph, and what fusing and packing make of it, with reasons.

use std::path::Path;

use frazil_graph::{dump, infer};
use serde::Serialize;

use crate::Result;
use crate::ops::convert::Note;
use crate::ops::graph::raise;
use crate::source::{GraphOptions, load_graph, open_graph};

/// Every node of the graph at `path`, uncut, one line each: name, operation, what it reads, and
/// what is known of its values.
pub fn nodes(path: &Path, options: &GraphOptions) -> Result<String> {
    Ok(dump(&load_graph(path, options)?))
}

/// What fusing and packing find in a graph.
#[derive(Clone, Debug, Serialize)]
pub struct Why {
    /// Nodes before.
    pub before: usize,
    /// Nodes as it runs: folded, fused and packed.
    pub after: usize,
    /// What was raised or packed: rule, node, what it replaces or computes.
    pub raised: Vec<Note>,
    /// What looked like a case for a rule and was not, with the reason.
    pub missed: Vec<Note>,
    /// Nodes that frazil has no operation for: name and what the source calls it.
    pub foreign: Vec<(String, String)>,
    /// Choices made on the way.
    pub notes: Vec<String>,
}

/// Opens the graph, folds and fuses it, packs its rows as a session does, and says what happened
/// and what did not.
pub fn why(path: &Path, options: &GraphOptions) -> Result<Why> {
    let opened = open_graph(path, options)?;
    let mut graph = opened.graph;
    let before = graph.len();
    infer(&graph)?;
    let report = raise(&mut graph, true)?;
    let after = graph.len();
    let foreign = graph.nodes().filter_map(|(_, node)| match &node.op {
        frazil_graph::Op::Foreign(op) => Some((node.name.clone(), op.op.clone())),
        _ => None,
    });
    let foreign = foreign.collect();
    Ok(Why {
        before,
        after,
        foreign,
        raised: report.done.into_iter().map(Note::from).collect(),
        missed: report.missed.into_iter().map(Note::from).collect(),
        notes: opened.notes,
    })
}
