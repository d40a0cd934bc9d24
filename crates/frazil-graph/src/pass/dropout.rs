//! Dropout out of training graphs: at inference it is the identity.

use std::collections::{BTreeMap, BTreeSet};

use super::Report;
use super::fuse::{Operand, Rewrite, Rule, Site, apply};
use crate::op::{Binary, Compare, Op, Unary};
use crate::pattern::{Pattern, any, compare, constant, leaf, node, number, one_of, product, unary};
use crate::{Facts, Graph, NodeId, Result};

/// Turns every dropout into an identity of its input; the node that gave the result keeps its
/// name. Random operations that are left, and that the outputs need (or, where no outputs are
/// named, that do not merely initialise variables), are reported as missed.
pub fn remove_dropout(graph: &mut Graph) -> Result<Report> {
    let mut report = Report::default();
    let rule = Rule {
        name: "dropout",
        anchors: |op| matches!(op, Op::Binary(Binary::Mul) | Op::Select),
        forms: vec![by_keep_prob(), by_rate(), by_known_rate(), by_select()],
        rewrite,
    };
    apply(graph, &Facts::default(), &rule, &mut report)?;
    for id in random_left(graph) {
        let node = graph.node(id);
        report.miss("random", node.name.clone(), format!("{} is left: results vary", node.op));
    }
    if cfg!(debug_assertions) {
        graph.check()?;
    }
    Ok(report)
}

/// Up to TF 1.13: `x / keep floor(keep + random)`
fn by_keep_prob() -> Pattern {
    let (x, keep) = (any("x"), any("keep_prob"));
    (x / keep.clone()) * unary(Unary::Floor, keep + random())
}

/// From TF 1.14 on: `x (1 / (1 - rate)) (random >= rate)`
fn by_rate() -> Pattern {
    let (x, rate) = (any("x"), any("rate"));
    product(&[x, 1.0 / (1.0 - rate.clone()), kept(rate)])
}

/// The same after the factor was folded.
fn by_known_rate() -> Pattern {
    product(&[any("x"), number("factor"), kept(number("rate"))])
}

/// TensorFlow 2: `select(random >= rate, x factor, 0)`
fn by_select() -> Pattern {
    let kept = compare(Compare::GreaterEqual, random(), number("rate"));
    let value = any("x") * number("factor");
    node("Select", |op| *op == Op::Select, vec![kept, value, constant(0.0)])
}

/// `random >= rate` as 0 or 1.
fn kept(rate: Pattern) -> Pattern {
    let kept = compare(Compare::GreaterEqual, random(), rate);
    node("Cast", |op| matches!(op, Op::Cast(_)), vec![kept])
}

/// Uniform between 0 and 1, in TensorFlow's general spelling or plain.
fn random() -> Pattern {
    let random = leaf("RandomUniform", is_uniform).key();
    one_of([random.clone() * any("range") + any("low"), random])
}

fn is_uniform(op: &Op) -> bool {
    matches!(op, Op::Foreign(op) if matches!(
        op.op.as_str(),
        "RandomUniform" | "StatelessRandomUniform" | "StatelessRandomUniformV2"
    ))
}

fn rewrite(site: &Site<'_>) -> std::result::Result<Rewrite, String> {
    if let (Some(factor), Some(rate)) = (site.found.number("factor"), site.found.number("rate")) {
        // Rates are given to a digit or two; the factor is computed in float32.
        if (factor * (1.0 - rate) - 1.0).abs() > 1e-4 {
            return Err(format!("the factor {factor} is not 1 / (1 - {rate})"));
        }
    }
    Ok(Rewrite {
        op: Op::Unary(Unary::Identity),
        inputs: vec![Operand::As(site.value("x"))],
        reshape_stays: false,
    })
}

/// Random operations that matter.
fn random_left(graph: &Graph) -> Vec<NodeId> {
    let random = |op: &Op| {
        let Op::Foreign(op) = op else { return false };
        ["Random", "StatelessRandom", "TruncatedNormal", "ParameterizedTruncatedNormal"]
            .iter()
            .any(|start| op.op.starts_with(start))
            || op.op == "Multinomial"
    };
    let is_data = |op: &str| op.ends_with("Dataset") || op.contains("Shuffle");
    let candidates = graph.nodes().filter(|(_, node)| {
        random(&node.op) && !matches!(&node.op, Op::Foreign(op) if is_data(&op.op))
    });
    if graph.outputs.is_empty() {
        let mut readers: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
        for (id, node) in graph.nodes() {
            for value in &node.inputs {
                readers.entry(value.node).or_default().push(id);
            }
        }
        candidates.map(|(id, _)| id).filter(|&id| !only_initialises(graph, &readers, id)).collect()
    } else {
        let needed = graph.ancestors(graph.outputs.iter().map(|port| port.value.node));
        candidates.map(|(id, _)| id).filter(|id| needed[id.index()]).collect()
    }
}

/// Whether all that is computed from a node goes into assignments.
fn only_initialises(graph: &Graph, readers: &BTreeMap<NodeId, Vec<NodeId>>, from: NodeId) -> bool {
    let mut seen = BTreeSet::from([from]);
    let mut stack = vec![from];
    while let Some(id) = stack.pop() {
        if matches!(&graph.node(id).op, Op::Foreign(op) if op.op.starts_with("Assign")) {
            continue;
        }
        match readers.get(&id) {
            Some(readers) => stack.extend(readers.iter().filter(|id| seen.insert(**id))),
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use frazil_tensor::DType;

    use super::*;
    use crate::op::Cast;
    use crate::testing::{Build, batch_by_seq};

    fn start() -> Build {
        let mut g = Build::default();
        g.input("x", DType::F32, &batch_by_seq());
        for (name, value) in [("0", 0.0), ("1", 1.0), ("rate", 0.1), ("keep_prob", 0.9)] {
            g.number(name, value);
        }
        g.list("Shape", &[2, 3]);
        g.foreign("RandomUniform", "RandomUniform", &["Shape"]);
        g.binary("range", Binary::Sub, "1", "0");
        g.binary("r/mul", Binary::Mul, "RandomUniform", "range");
        g.binary("random", Binary::Add, "r/mul", "0");
        g
    }

    fn new_form(g: &mut Build, factor: &str) {
        g.node("GreaterEqual", Op::Compare(Compare::GreaterEqual), &["random", "rate"]);
        g.binary("mul", Binary::Mul, "x", factor);
        g.node("Cast", Op::Cast(Cast { to: DType::F32 }), &["GreaterEqual"]);
        g.binary("mul_1", Binary::Mul, "mul", "Cast");
        g.unary("out", Unary::Neg, "mul_1");
        g.output("out");
    }

    fn check(mut g: Build) {
        g.graph.prune();
        let report = remove_dropout(&mut g.graph).unwrap();
        assert_eq!(report.count("dropout"), 1, "{report:?}");
        assert!(report.missed.is_empty(), "{report:?}");
        let names: Vec<String> = g.graph.nodes().map(|(_, node)| node.name.clone()).collect();
        assert_eq!(names, ["x", "mul_1", "out"]);
        assert_eq!(g.of_kind("Identity"), ["mul_1"]);
    }

    #[test]
    fn by_division_and_floor() {
        let mut g = start();
        g.binary("add", Binary::Add, "keep_prob", "random");
        g.unary("Floor", Unary::Floor, "add");
        g.binary("div", Binary::Div, "x", "keep_prob");
        g.binary("mul_1", Binary::Mul, "div", "Floor");
        g.unary("out", Unary::Neg, "mul_1");
        g.output("out");
        check(g);
    }

    #[test]
    fn by_comparison() {
        let mut g = start();
        g.binary("sub", Binary::Sub, "1", "rate");
        g.binary("truediv", Binary::Div, "1", "sub");
        new_form(&mut g, "truediv");
        check(g);
    }

    #[test]
    fn by_comparison_with_folded_factor() {
        let mut g = start();
        g.number("folded", 1.111_111);
        new_form(&mut g, "folded");
        check(g);
    }

    #[test]
    fn another_factor_is_no_dropout() {
        let mut g = start();
        g.number("folded", 2.0);
        new_form(&mut g, "folded");
        let report = remove_dropout(&mut g.graph).unwrap();
        let notes: Vec<String> = report.missed.iter().map(ToString::to_string).collect();
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].starts_with("dropout: `mul_1`: the factor 2 is not"), "{notes:?}");
        assert_eq!(notes[1], "random: `RandomUniform`: RandomUniform is left: results vary");
    }

    #[test]
    fn initialisers_are_not_reported() {
        let mut g = Build::default();
        g.list("shape", &[2]);
        g.foreign("init", "TruncatedNormal", &["shape"]);
        g.foreign("assign", "Assign", &["init"]);
        g.foreign("noise", "RandomStandardNormal", &["shape"]);
        let report = remove_dropout(&mut g.graph).unwrap();
        let notes: Vec<&str> = report.missed.iter().map(|note| note.node.as_str()).collect();
        assert_eq!(notes, ["noise"]);
    }
}
