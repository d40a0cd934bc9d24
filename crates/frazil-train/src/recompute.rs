//! Recomputation: what gradients read of a layer is computed again from the layer's input, instead of
//! being kept until then. It costs a third more arithmetic and saves most of the memory that is not
//! weights.
//!
//! A pass over a graph that has its gradients: new nodes `recompute/NAME` do again what `NAME` did.
//! They come last in the graph, those of the last layer first, so that whoever runs the graph in its
//! order gets to them when the gradients before them are done.

use std::collections::HashMap;

use frazil_graph::op::Training;
use frazil_graph::pass::Report;
use frazil_graph::{Graph, Node, NodeId, Op, Value, infer};
use frazil_tensor::DType;

use crate::Result;

/// Lets the nodes from `first` on (the gradients) read values that are computed again, but for what
/// the last layer and the heads compute, and for inputs of layers, which stay.
pub fn recompute(graph: &mut Graph, first: NodeId) -> Result<Report> {
    let mut report = Report::default();
    let kept = layer_inputs(graph, first);
    let Some(&last) = kept.last() else { return Ok(report) };
    let facts = infer(graph)?;
    // Whatever the input of the last layer is computed from is far enough away to be let go.
    let early = graph.ancestors([last]);
    let again = |value: Value| {
        let large = matches!(facts[value].dtype, Some(DType::F32 | DType::F64))
            && facts[value].rank().is_some_and(|rank| rank > 0);
        let computed = !matches!(
            graph.op(value),
            Op::Input(_) | Op::InputWithDefault(_) | Op::Const(_) | Op::Variable(_)
        );
        early[value.node.index()] && large && computed && !kept.contains(&value.node)
    };
    let wanted: Vec<Value> = graph
        .nodes()
        .skip(first.index())
        .flat_map(|(_, node)| node.inputs.clone())
        .filter(|value| value.node < first && again(*value))
        .collect();
    // In an order in which each finds its inputs, those that are wanted first before others.
    let mut order: Vec<NodeId> = Vec::new();
    let mut seen = vec![false; graph.len()];
    for value in wanted {
        let mut stack = vec![(value.node, false)];
        while let Some((id, ready)) = stack.pop() {
            if ready {
                order.push(id);
                continue;
            }
            if std::mem::replace(&mut seen[id.index()], true) {
                continue;
            }
            stack.push((id, true));
            let inputs = graph.node(id).inputs.iter().filter(|input| again(**input));
            stack.extend(inputs.map(|input| (input.node, false)));
        }
    }
    let gradients = graph.ids().skip(first.index());
    let mut copies: HashMap<NodeId, NodeId> = HashMap::new();
    for id in order {
        let node = graph.node(id);
        let moved = |value: &Value| Value {
            node: copies.get(&value.node).copied().unwrap_or(value.node),
            port: value.port,
        };
        let inputs = node.inputs.iter().map(moved).collect();
        let (name, op) = (node.name.clone(), node.op.clone());
        let copy = graph.push_fresh(Node::new(format!("recompute/{name}"), op, inputs))?;
        copies.insert(id, copy);
        report.did("recompute", name, "is computed again for gradients");
    }
    for id in gradients {
        for input in &mut graph.node_mut(id).inputs {
            if let Some(copy) = copies.get(&input.node) {
                input.node = *copy;
            }
        }
    }
    graph.check()?;
    Ok(report)
}

/// The norms that attentions get their queries, keys and values from, in the order of the graph.
fn layer_inputs(graph: &Graph, first: NodeId) -> Vec<NodeId> {
    let attends = |op: &Op| match op {
        Op::Attention(_) => true,
        Op::Training(op) => matches!(op, Training::Attention(_)),
        _ => false,
    };
    let mut found: Vec<NodeId> = Vec::new();
    for (_, node) in graph.nodes().take(first.index()).filter(|(_, node)| attends(&node.op)) {
        // v: its rows are those of the whole layer, also where only some queries are asked for.
        let mut value = node.inputs[2];
        for _ in 0..8 {
            let node = graph.node(value.node);
            match node.op {
                Op::LayerNorm(_) | Op::Training(Training::Dropout(_)) => {
                    if !found.contains(&value.node) {
                        found.push(value.node);
                    }
                    break;
                }
                _ => match node.inputs.first() {
                    Some(&input) => value = input,
                    None => break,
                },
            }
        }
    }
    found
}
