//! Which input and output of one model is which of the other.

use frazil_graph::op::{Op, Unary};
use frazil_graph::{Graph, Port, Value};
use serde::Serialize;

use crate::ops::role::{InputRole, Role};
use crate::{Error, Result};

/// The same thing under two names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// In the first model.
    pub a: String,
    /// In the second one.
    pub b: String,
}

fn bare(name: &str) -> &str {
    name.strip_suffix(":0").unwrap_or(name)
}

/// The inputs of both sides: by name, then by role, then what is left in its order. An input that
/// only one side has is fed to that side alone.
pub fn inputs(roles: &[Vec<InputRole>; 2], notes: &mut Vec<String>) -> Result<Vec<Pair>> {
    let [a, b] = roles;
    let mut pairs: Vec<Pair> = Vec::new();
    let mut taken = vec![false; b.len()];
    let mut left = Vec::new();
    for input in a {
        let same = b.iter().position(|other| bare(&other.name) == bare(&input.name));
        match same {
            Some(at) => {
                taken[at] = true;
                pairs.push(Pair { a: input.name.clone(), b: b[at].name.clone() });
            }
            None => left.push(input),
        }
    }
    for input in left {
        let like = |other: &InputRole| match input.role {
            Role::Other | Role::Positions => other.role == input.role && other.dtype == input.dtype,
            role => other.role == role,
        };
        let Some(at) = (0..b.len()).find(|&at| !taken[at] && like(&b[at])) else {
            notes.push(format!("only A has an input `{}`", input.name));
            continue;
        };
        taken[at] = true;
        let pair = Pair { a: input.name.clone(), b: b[at].name.clone() };
        let role = match input.role {
            Role::Ids => "the ids",
            Role::Mask => "the mask",
            Role::Segments => "the segments",
            Role::Positions => "positions",
            Role::Other => "an input that is left",
        };
        notes.push(format!("`{}` of A is `{}` of B: {role}", pair.a, pair.b));
        pairs.push(pair);
    }
    for (input, _) in b.iter().zip(&taken).filter(|(_, taken)| !**taken) {
        notes.push(format!("only B has an input `{}`", input.name));
    }
    Ok(pairs)
}

/// The outputs of both sides: by name, then by the name of the node, then by the operation where
/// each side has one output of that kind left, then the rest in its order if there are as many.
pub fn outputs(graphs: [&Graph; 2], notes: &mut Vec<String>) -> Result<Vec<(Pair, [Value; 2])>> {
    let mut left: [Vec<&Port>; 2] = graphs.map(|graph| graph.outputs.iter().collect());
    let mut pairs: Vec<(Pair, [Value; 2])> = Vec::new();
    type Key = fn(&Graph, &Port) -> String;
    let keys: [(&str, Key); 3] = [
        ("", |_, port| bare(&port.name).to_owned()),
        ("which is the same node", |graph, port| graph.value_name(port.value)),
        ("which is the same operation", |graph, port| operation(graph, port.value)),
    ];
    for (why, key) in keys {
        let named = |side: usize, port: &&Port| key(graphs[side], port);
        for own in left[0].clone() {
            let wanted = named(0, &own);
            let count =
                |side: usize| left[side].iter().filter(|p| named(side, p) == wanted).count();
            if count(0) != 1 || count(1) != 1 {
                continue;
            }
            let Some(at) = left[1].iter().position(|p| named(1, p) == wanted) else { continue };
            let other = left[1].remove(at);
            left[0].retain(|port| port.name != own.name);
            pairs.push(pair(own, other));
            if !why.is_empty() {
                let (a, b) = (&own.name, &other.name);
                notes.push(format!("output `{a}` of A is compared with `{b}` of B, {why}"));
            }
        }
    }
    if left[0].len() == left[1].len() {
        let [own, other] = std::mem::take(&mut left);
        for (own, other) in own.into_iter().zip(other) {
            let (a, b) = (&own.name, &other.name);
            notes.push(format!("output `{a}` of A is compared with `{b}` of B, by their order"));
            pairs.push(pair(own, other));
        }
    }
    if pairs.is_empty() {
        return Err(Error::Usage {
            what: format!("A's outputs are {}, B's are {}", list(&left[0]), list(&left[1])),
            hint: "name the outputs to compare with `--output` and `--output-b`".into(),
        });
    }
    for (letter, left) in ["A", "B"].iter().zip(&left) {
        if !left.is_empty() {
            notes.push(format!("only {letter} has an output {}", list(left)));
        }
    }
    Ok(pairs)
}

fn pair(a: &Port, b: &Port) -> (Pair, [Value; 2]) {
    (Pair { a: a.name.clone(), b: b.name.clone() }, [a.value, b.value])
}

/// What computes a value, identities aside.
fn operation(graph: &Graph, mut value: Value) -> String {
    // A chain of identities is no longer than the graph.
    for _ in 0..graph.len() {
        match graph.op(value) {
            Op::Unary(Unary::Identity) => value = graph.node(value.node).inputs[0],
            _ => break,
        }
    }
    format!("{}:{}", graph.op(value), value.port)
}

fn list(ports: &[&Port]) -> String {
    let names: Vec<String> = ports.iter().map(|port| format!("`{}`", port.name)).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use frazil_graph::op::Input;
    use frazil_graph::{Dim, Node};
    use frazil_tensor::DType;

    use super::*;

    fn input(name: &str, role: Role) -> InputRole {
        let dims = Some(vec![Dim::batch(), Dim::seq()]);
        InputRole { name: name.into(), dtype: DType::I32, dims, role, limit: None }
    }

    #[test]
    fn by_name_then_by_role() {
        let a = vec![
            input("input_mask", Role::Mask),
            input("Placeholder", Role::Ids),
            input("extra", Role::Other),
        ];
        let b = vec![input("input_ids", Role::Ids), input("input_mask:0", Role::Mask)];
        let mut notes = Vec::new();
        let pairs = inputs(&[a, b], &mut notes).unwrap();
        let expected = [("input_mask", "input_mask:0"), ("Placeholder", "input_ids")];
        assert_eq!(pairs, expected.map(|(a, b)| Pair { a: a.into(), b: b.into() }));
        assert_eq!(
            notes,
            ["`Placeholder` of A is `input_ids` of B: the ids", "only A has an input `extra`"]
        );
    }

    /// x, and outputs of these names, nodes and operations.
    fn graph(outputs: &[(&str, &str, Op)]) -> Graph {
        let mut graph = Graph::new();
        let op = Op::Input(Input { dtype: DType::F32, dims: None });
        let x = graph.push(Node::new("x", op, vec![])).unwrap().into();
        graph.inputs.push(Port { name: "x".into(), value: x });
        for (name, node, op) in outputs {
            let value = graph.push(Node::new(*node, op.clone(), vec![x])).unwrap().into();
            graph.outputs.push(Port { name: (*name).into(), value });
        }
        graph
    }

    #[test]
    fn outputs_by_name_node_operation_and_order() {
        let a = graph(&[
            ("same", "n0", Op::Rank),
            ("pooled", "tanh", Op::Unary(Unary::Tanh)),
            ("out", "n2", Op::Softmax),
            ("rest", "n3", Op::Unary(Unary::Exp)),
        ]);
        let b = graph(&[
            ("tanh", "tanh", Op::Unary(Unary::Tanh)),
            ("probabilities", "n1", Op::Softmax),
            ("other", "n5", Op::Unary(Unary::Log)),
            ("same:0", "n6", Op::Rank),
        ]);
        let mut notes = Vec::new();
        let pairs = outputs([&a, &b], &mut notes).unwrap();
        let names: Vec<(&str, &str)> =
            pairs.iter().map(|(pair, _)| (pair.a.as_str(), pair.b.as_str())).collect();
        let expected =
            [("same", "same:0"), ("pooled", "tanh"), ("out", "probabilities"), ("rest", "other")];
        assert_eq!(names, expected);
        assert_eq!(notes.len(), 3);
        let one = graph(&[("p", "n", Op::Softmax), ("q", "m", Op::Rank)]);
        let two = graph(&[("r", "o", Op::LogSoftmax)]);
        assert!(outputs([&one, &two], &mut notes).is_err());
    }
}
