//! What had to wait for the extents: axes that count from the start, targets with zeros in them,
//! broadcasts that go one way.

use frazil_graph::op::Op;
use frazil_graph::{Facts, Graph, Node, NodeId, Value, infer};
use frazil_tensor::Tensor;

use super::importer::{Importer, Pending};
use crate::{Error, Refusal, Result};

/// Settles everything that is pending, with one inference for all of it.
pub(super) fn settle(importer: &mut Importer) -> Result<()> {
    if importer.pending.is_empty() {
        return Ok(());
    }
    let facts = infer(&importer.graph)?;
    let mut refused = Vec::new();
    for pending in std::mem::take(&mut importer.pending) {
        let graph = &mut importer.graph;
        let (node, outcome) = match pending {
            Pending::Softmax { node, axis, flattens } => {
                (node, softmax(graph, &facts, node, axis, flattens)?)
            }
            Pending::Norm { node, axis } => (node, norm(graph, &facts, node, axis)),
            Pending::Reshape { node } => (node, reshape(graph, &facts, node)),
            Pending::Expand { node, x, target } => {
                expand(graph, &facts, node, x, target);
                (node, Ok(()))
            }
        };
        if let Err(reason) = outcome {
            let node = importer.graph.node(node);
            refused.push(Refusal { node: node.name.clone(), op: node.op.to_string(), reason });
        }
    }
    if !refused.is_empty() {
        return Err(Error::Refused { target: "frazil", nodes: refused });
    }
    Ok(())
}

type Settled = std::result::Result<(), String>;

/// How many axes there are, and which one is meant.
fn axis_of(facts: &Facts, x: Value, axis: i64) -> std::result::Result<(usize, usize), String> {
    let rank = facts[x].rank().ok_or("the rank of its input is not known")?;
    let index = if axis < 0 { axis + rank as i64 } else { axis };
    match usize::try_from(index).ok().filter(|index| *index < rank) {
        Some(index) => Ok((rank, index)),
        None => Err(format!("axis {axis} is outside of {rank} axes")),
    }
}

/// Over another axis than the last: that one is made the last, and back again.
fn softmax(
    graph: &mut Graph,
    facts: &Facts,
    node: NodeId,
    axis: i64,
    flattens: bool,
) -> Result<Settled> {
    let x = graph.node(node).inputs[0];
    let (rank, index) = match axis_of(facts, x, axis) {
        Ok(found) => found,
        Err(reason) => return Ok(Err(reason)),
    };
    if index + 1 == rank {
        return Ok(Ok(()));
    }
    if flattens {
        // Over all axes from that one on; the same if all others of them have extent 1.
        return Ok(Err(format!("over axes {index} to {} at once", rank - 1)));
    }
    let mut order: Vec<i32> = (0..rank as i32).collect();
    order.swap(index, rank - 1);
    let name = graph.node(node).name.clone();
    let order = Op::constant(Tensor::from_vec([rank], order)?);
    let order = graph.push_fresh(Node::new(format!("{name}/perm"), order, vec![]))?;
    let turned = Node::new(format!("{name}/turned"), Op::Transpose, vec![x, order.into()]);
    let turned = graph.push_fresh(turned)?;
    // The node itself becomes the way back, so that its name and readers stay.
    let op = std::mem::replace(&mut graph.node_mut(node).op, Op::Transpose);
    let inner = graph.push_fresh(Node::new(format!("{name}/last"), op, vec![turned.into()]))?;
    graph.node_mut(node).inputs = vec![inner.into(), order.into()];
    Ok(Ok(()))
}

fn norm(graph: &Graph, facts: &Facts, node: NodeId, axis: i64) -> Settled {
    let (rank, index) = axis_of(facts, graph.node(node).inputs[0], axis)?;
    if index + 1 == rank {
        return Ok(());
    }
    Err(format!("over {} axes at once", rank - index))
}

fn reshape(graph: &Graph, facts: &Facts, node: NodeId) -> Settled {
    let target = graph.node(node).inputs[1];
    let elements = facts[target].elements.as_deref().unwrap_or_default();
    if elements.iter().any(|element| element.is(0)) {
        return Err("a computed target in which a 0 stands for an extent of the input".to_owned());
    }
    Ok(())
}

fn expand(graph: &mut Graph, facts: &Facts, node: NodeId, x: Value, target: Value) {
    let (Some(dims), Some(wanted)) = (&facts[node.into()].dims, &facts[target].elements) else {
        return;
    };
    if dims == wanted && facts[x].rank().is_some_and(|rank| rank <= wanted.len()) {
        let node = graph.node_mut(node);
        node.op = Op::BroadcastTo;
        node.inputs = vec![x, target];
    }
}
