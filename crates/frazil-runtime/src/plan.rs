//! What has to be computed, in which order, and when each value is needed for the last time.
//!
//! Only data counts: TensorFlow's control inputs hang assertions and summaries on a node, which
//! have no part in its value.

use std::collections::{BTreeSet, HashMap};

use frazil_graph::{Graph, NodeId, Op, Port, Value};

use crate::{Error, Result};

/// The steps that lead from inputs and constants to the wanted values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// In an order in which each step finds its inputs.
    pub steps: Vec<Step>,
    /// What is wanted.
    pub wanted: Vec<Value>,
}

/// What variables are in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variables {
    /// Without a value: whoever needs one cannot run.
    Refused,
    /// Weights that are kept elsewhere; they count as constant.
    Elsewhere,
    /// Weights that the caller gives at every run.
    Given,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The node.
    pub node: NodeId,
    /// Whether it depends on constants only.
    pub constant: bool,
    /// Values that nobody reads after it.
    pub drops: Vec<Value>,
}

impl Plan {
    /// The plan for `wanted`; refuses, by name, what cannot run.
    pub fn new(graph: &Graph, wanted: &[Port]) -> Result<Self> {
        Self::with(graph, wanted, Variables::Refused)
    }

    /// The same, with what variables are.
    pub(crate) fn with(graph: &Graph, wanted: &[Port], variables: Variables) -> Result<Self> {
        if wanted.is_empty() {
            return Err(Error::NoOutputs);
        }
        let needed = needed(graph, wanted.iter().map(|port| port.value.node));
        refuse(graph, wanted, &needed, variables)?;
        let mut steps: Vec<Step> = Vec::new();
        let mut constant = vec![false; graph.len()];
        for node in graph.topological()? {
            if needed[node.index()] {
                let op = &graph.node(node).op;
                constant[node.index()] = match op {
                    Op::Const(_) => true,
                    Op::Variable(_) => variables != Variables::Given,
                    _ if op.is_input() => false,
                    _ => graph.node(node).inputs.iter().all(|input| constant[input.node.index()]),
                };
                steps.push(Step { node, constant: constant[node.index()], drops: Vec::new() });
            }
        }
        let wanted: Vec<Value> = wanted.iter().map(|port| port.value).collect();
        drop_after_last_use(graph, &mut steps, &wanted);
        Ok(Self { steps, wanted })
    }
}

/// What the nodes are computed from by data alone: themselves and all the way up to what is fed.
fn needed(graph: &Graph, from: impl Iterator<Item = NodeId>) -> Vec<bool> {
    let mut needed = vec![false; graph.len()];
    let mut stack: Vec<NodeId> = from.collect();
    while let Some(id) = stack.pop() {
        if !std::mem::replace(&mut needed[id.index()], true) {
            stack.extend(graph.node(id).inputs.iter().map(|input| input.node));
        }
    }
    needed
}

fn refuse(graph: &Graph, wanted: &[Port], needed: &[bool], variables: Variables) -> Result<()> {
    let cannot = |op: &Op| match op {
        Op::Variable(_) => variables == Variables::Refused,
        op => matches!(op, Op::Foreign(_) | Op::ReadVariable(_)),
    };
    let mut culprits = graph.nodes().filter(|(id, node)| needed[id.index()] && cannot(&node.op));
    let Some((culprit, node)) = culprits.next() else { return Ok(()) };
    let more = culprits.count();
    let needs_it =
        |port: &&Port| self::needed(graph, std::iter::once(port.value.node))[culprit.index()];
    let outputs = wanted.iter().filter(needs_it).map(|port| port.name.clone()).collect();
    let name = node.name.clone();
    Err(match &node.op {
        Op::Foreign(foreign) => Error::CannotRun { outputs, name, op: foreign.op.clone(), more },
        _ => Error::NoValue { outputs, name },
    })
}

/// Lets every value go after the step that reads it last; one that nobody reads goes at once.
fn drop_after_last_use(graph: &Graph, steps: &mut [Step], wanted: &[Value]) {
    let mut last: HashMap<Value, usize> = HashMap::new();
    for (at, step) in steps.iter().enumerate() {
        for port in 0..graph.node(step.node).op.outputs() as u32 {
            last.insert(Value { node: step.node, port }, at);
        }
        for &input in &graph.node(step.node).inputs {
            last.insert(input, at);
        }
    }
    let wanted: BTreeSet<Value> = wanted.iter().copied().collect();
    let mut last: Vec<(Value, usize)> = last.into_iter().collect();
    last.sort_unstable();
    for (value, at) in last.into_iter().filter(|(value, _)| !wanted.contains(value)) {
        steps[at].drops.push(value);
    }
}

#[cfg(test)]
mod tests {
    use frazil_graph::Node;
    use frazil_graph::op::{Binary, Foreign, Input, Unary};
    use frazil_tensor::{DType, Tensor};

    use super::*;

    /// x -> neg -> sum(neg, c) ; random -> useless(random)
    fn graph() -> Graph {
        let mut graph = Graph::new();
        let mut push = |name: &str, op, inputs: Vec<Value>| -> Value {
            graph.push(Node::new(name, op, inputs)).unwrap().into()
        };
        let input = Op::Input(Input { dtype: DType::F32, dims: None });
        let x = push("x", input, vec![]);
        let c = push("c", Op::constant(Tensor::from_vec([], vec![1f32]).unwrap()), vec![]);
        let d = push("d", Op::Unary(Unary::Exp), vec![c]);
        let neg = push("neg", Op::Unary(Unary::Neg), vec![x]);
        let sum = push("sum", Op::Binary(Binary::Add), vec![neg, d]);
        let foreign = Foreign {
            op: "Random".into(),
            attrs: Default::default(),
            outputs: vec![Default::default()],
        };
        let random = push("random", Op::Foreign(foreign), vec![]);
        let useless = push("useless", Op::Binary(Binary::Add), vec![random, neg]);
        graph.inputs = vec![Port { name: "x".into(), value: x }];
        graph.outputs = vec![
            Port { name: "sum".into(), value: sum },
            Port { name: "useless".into(), value: useless },
        ];
        graph
    }

    #[test]
    fn plans_what_is_wanted_and_drops_early() {
        let graph = graph();
        let plan = Plan::new(&graph, &graph.outputs[..1]).unwrap();
        let names: Vec<&str> =
            plan.steps.iter().map(|step| graph.node(step.node).name.as_str()).collect();
        assert_eq!(names, ["x", "c", "d", "neg", "sum"]);
        let constant: Vec<bool> = plan.steps.iter().map(|step| step.constant).collect();
        assert_eq!(constant, [false, true, true, false, false]);
        let drops: Vec<usize> = plan.steps.iter().map(|step| step.drops.len()).collect();
        assert_eq!(drops, [0, 0, 1, 1, 2]);
    }

    #[test]
    fn refuses_by_name() {
        let graph = graph();
        let error = Plan::new(&graph, &graph.outputs).unwrap_err();
        let expected = "output `useless` needs `random` (Random), which frazil cannot run";
        assert_eq!(error.to_string(), expected);
        assert!(matches!(Plan::new(&graph, &[]), Err(Error::NoOutputs)));
    }
}
