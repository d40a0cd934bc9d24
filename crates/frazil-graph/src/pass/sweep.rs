//! Removing what nobody reads any more, whether or not the model's outputs are named yet.

use crate::{Graph, Node, NodeId};

/// Removes those of `candidates` that nobody reads, then what only they read, and so on. Inputs
/// and outputs of the model stay. Returns how many nodes went.
pub(super) fn sweep(graph: &mut Graph, candidates: impl IntoIterator<Item = NodeId>) -> usize {
    let mut readers = vec![0usize; graph.len()];
    for (_, node) in graph.nodes() {
        for source in sources(node) {
            readers[source.index()] += 1;
        }
    }
    for port in &graph.outputs {
        readers[port.value.node.index()] += 1;
    }
    let mut keep = vec![true; graph.len()];
    let mut stack: Vec<NodeId> = candidates.into_iter().collect();
    while let Some(id) = stack.pop() {
        let node = graph.node(id);
        if !keep[id.index()] || readers[id.index()] > 0 || node.op.is_input() {
            continue;
        }
        keep[id.index()] = false;
        for source in sources(node) {
            readers[source.index()] -= 1;
            stack.push(source);
        }
    }
    let gone = keep.iter().filter(|kept| !**kept).count();
    if gone > 0 {
        graph.retain(&keep);
    }
    gone
}

fn sources(node: &Node) -> impl Iterator<Item = NodeId> + '_ {
    node.inputs.iter().map(|value| value.node).chain(node.control.iter().copied())
}
