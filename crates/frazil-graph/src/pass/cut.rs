//! Cutting: the part of a graph between chosen values.

use frazil_tensor::DType;

use super::Report;
use crate::op::{Input, Op};
use crate::{Dim, Error, Graph, Node, Port, Result, Value, infer};

/// A value that is to be fed from now on.
#[derive(Clone, Debug, PartialEq)]
pub struct NewInput {
    /// What is replaced.
    pub value: Value,
    /// The name under which the model's callers know the input.
    pub name: String,
    /// Element type; `None`: as it is.
    pub dtype: Option<DType>,
    /// Extents; `None`: as they are.
    pub dims: Option<Vec<Dim>>,
}

/// Makes `outputs` the outputs and, where `inputs` are given, feeds those values instead of
/// computing them; then drops all that no output needs. Inputs keep the order given, followed by
/// the inputs that are still needed beside them.
///
/// An output that none of the given inputs leads to is an error, and so is a given input that no
/// output needs.
pub fn cut(graph: &mut Graph, inputs: &[NewInput], outputs: &[Port]) -> Result<Report> {
    let mut report = Report::default();
    let facts = if inputs.is_empty() { None } else { infer(graph).ok() };
    graph.outputs = outputs.to_vec();
    let mut fed = Vec::with_capacity(inputs.len());
    for new in inputs {
        let fact = facts.as_ref().map(|facts| facts[new.value].clone()).unwrap_or_default();
        let input = Input {
            dtype: new.dtype.or(fact.dtype).unwrap_or(DType::F32),
            dims: new.dims.clone().or(fact.dims),
        };
        let value = feed(graph, new.value, input)?;
        report.did("input", graph.value_name(value), format!("is fed as `{}`", new.name));
        fed.push(Port { name: new.name.clone(), value });
    }
    if !fed.is_empty() {
        let needed = graph.ancestors(graph.outputs.iter().map(|port| port.value.node));
        for (port, new) in fed.iter().zip(inputs) {
            if !needed[port.value.node.index()] {
                return Err(Error::NoPath { output: names(outputs), inputs: quoted(&new.name) });
            }
        }
        for output in outputs {
            let above = graph.ancestors([output.value.node]);
            if !fed.iter().any(|port| above[port.value.node.index()]) {
                let inputs: Vec<String> = inputs.iter().map(|new| quoted(&new.name)).collect();
                return Err(Error::NoPath {
                    output: output.name.clone(),
                    inputs: inputs.join(", "),
                });
            }
        }
        let others = graph
            .inputs
            .iter()
            .filter(|old| !fed.iter().any(|new| new.value == old.value))
            .cloned()
            .collect::<Vec<_>>();
        graph.inputs = fed;
        graph.inputs.extend(others);
    }
    let gone = graph.prune();
    if gone > 0 {
        report.did("prune", "", format!("{gone} nodes that no output needs are left out"));
    }
    debug_assert!(graph.check().is_ok(), "{:?}", graph.check());
    Ok(report)
}

/// Turns a value into an input; gives the value to read from now on.
fn feed(graph: &mut Graph, value: Value, input: Input) -> Result<Value> {
    let node = graph.node_mut(value.node);
    if node.op.outputs() == 1 {
        // The node itself becomes the input, under its own name.
        node.op = Op::Input(input);
        node.inputs.clear();
        node.control.clear();
        return Ok(value);
    }
    let name = format!("{}/placeholder_out_port_{}", node.name, value.port);
    let fed = graph.push_fresh(Node::new(name, Op::Input(input), vec![]))?;
    graph.replace_uses(value, fed.into());
    Ok(fed.into())
}

fn quoted(name: &str) -> String {
    format!("`{name}`")
}

fn names(ports: &[Port]) -> String {
    let names: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
    names.join("`, `")
}
