//! The search: a list of goals (this value must match that pattern), with every choice taken back
//! when a later goal fails.

use std::collections::BTreeSet;

use super::number::{agrees, scalar};
use super::{Kind, Pattern};
use crate::op::{Op, Unary};
use crate::{Graph, NodeId, Value};

/// A search that takes more steps than this is hostile: real ones take dozens.
const MOST_STEPS: usize = 20_000;

/// Identities that follow on each other in real graphs.
const MOST_IDENTITIES: usize = 64;

/// Reshapes that follow on each other in real graphs.
const MOST_RESHAPES: usize = 8;

/// Where a pattern was found.
#[derive(Clone, Debug)]
pub struct Match {
    bound: Vec<(&'static str, Binding)>,
    /// The nodes that the pattern consists of, the last one (where it anchors) included;
    /// constants and identities are not.
    pub nodes: BTreeSet<NodeId>,
}

#[derive(Clone, Copy, Debug)]
enum Binding {
    Value(Value),
    Number(f64),
}

impl Match {
    /// The value of that name, if the form that matched has it.
    pub fn get(&self, name: &str) -> Option<Value> {
        self.bound.iter().find_map(|(n, binding)| match binding {
            Binding::Value(value) if *n == name => Some(*value),
            _ => None,
        })
    }

    /// The value of that name. The pattern must have it in every form.
    pub fn value(&self, name: &str) -> Value {
        self.get(name).expect("the pattern binds a value to this name in every form")
    }

    /// The number of that name, if the form that matched has it.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.bound.iter().find_map(|(n, binding)| match binding {
            Binding::Number(number) if *n == name => Some(*number),
            _ => None,
        })
    }
}

/// How far a pattern got that did not match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The nodes that agreed before it failed.
    pub nodes: BTreeSet<NodeId>,
    /// The key node ([`Pattern::key`]), if it was among them.
    pub key: Option<NodeId>,
    /// Where it failed.
    pub node: NodeId,
    /// Expected what, found what.
    pub text: String,
}

impl Pattern {
    /// Matches the pattern with `anchor` as its last node.
    pub fn find(&self, graph: &Graph, anchor: NodeId) -> Option<Match> {
        let mut search = Search::new(graph, false);
        search
            .run(self, anchor)
            .then(|| Match { bound: search.bound, nodes: search.nodes.into_iter().collect() })
    }

    /// Why the pattern does not match there: the point at which the attempt that got furthest
    /// ended, or the numbers that are off if all else agrees. `None` if it does match.
    pub fn explain(&self, graph: &Graph, anchor: NodeId) -> Option<Explanation> {
        let mut strict = Search::new(graph, false);
        if strict.run(self, anchor) {
            return None;
        }
        // Once more with any number in the place of any other: if that matches, the numbers are
        // what is wrong.
        let mut lenient = Search::new(graph, true);
        if lenient.run(self, anchor) {
            let (node, text) = lenient.off.first().cloned()?;
            let nodes = lenient.nodes.into_iter().collect();
            return Some(Explanation { nodes, key: lenient.key, node, text });
        }
        lenient.furthest
    }
}

/// The value behind identities: `Identity`, `StopGradient`, reads of variables.
pub fn source(graph: &Graph, mut value: Value) -> Value {
    // A graph from outside may have a cycle; real chains are short.
    for _ in 0..MOST_IDENTITIES {
        let node = graph.node(value.node);
        let through = matches!(
            node.op,
            Op::Unary(Unary::Identity | Unary::StopGradient) | Op::ReadVariable(_)
        );
        match node.inputs.first() {
            Some(&input) if through => value = input,
            _ => break,
        }
    }
    value
}

/// A constant, a variable, or the numbers that bytes of such stand for.
fn is_weight(graph: &Graph, value: Value) -> bool {
    let stored = |value: Value| matches!(graph.op(value), Op::Const(_) | Op::Variable(_));
    match graph.op(value) {
        Op::Scaled(_) => graph.node(value.node).inputs.iter().all(|&input| stored(input)),
        _ => stored(value),
    }
}

/// A list of goals on the call stack.
#[derive(Clone, Copy)]
struct Goals<'a> {
    pattern: &'a Pattern,
    value: Value,
    rest: Option<&'a Goals<'a>>,
}

struct Search<'g> {
    graph: &'g Graph,
    lenient: bool,
    steps: usize,
    bound: Vec<(&'static str, Binding)>,
    nodes: Vec<NodeId>,
    key: Option<NodeId>,
    off: Vec<(NodeId, String)>,
    furthest: Option<Explanation>,
}

impl<'g> Search<'g> {
    fn new(graph: &'g Graph, lenient: bool) -> Self {
        Self {
            graph,
            lenient,
            steps: 0,
            bound: Vec::new(),
            nodes: Vec::new(),
            key: None,
            off: Vec::new(),
            furthest: None,
        }
    }

    /// The anchor itself is no identity to look through: those in front of a formula are not its
    /// last node.
    fn run(&mut self, pattern: &Pattern, anchor: NodeId) -> bool {
        let value = Value::from(anchor);
        if source(self.graph, value) != value {
            return false;
        }
        self.solve(Some(&Goals { pattern, value, rest: None }))
    }

    /// All goals, or as before.
    fn solve(&mut self, goals: Option<&Goals<'_>>) -> bool {
        let Some(&Goals { pattern, value, rest }) = goals else { return true };
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return self.fail(value, || "a formula of a reasonable size".to_owned());
        }
        let marks = (self.bound.len(), self.nodes.len(), self.off.len(), self.key);
        let solved = self.step(pattern, value, rest);
        if !solved {
            self.bound.truncate(marks.0);
            self.nodes.truncate(marks.1);
            self.off.truncate(marks.2);
            self.key = marks.3;
        }
        solved
    }

    fn step(&mut self, pattern: &Pattern, value: Value, rest: Option<&Goals<'_>>) -> bool {
        let inner = source(self.graph, value);
        match &*pattern.0 {
            Kind::Any(name) => self.bind(name, value) && self.solve(rest),
            Kind::Weight(name) => {
                if !is_weight(self.graph, inner) {
                    return self.fail(inner, || format!("a weight (`{name}`)"));
                }
                self.bind(name, value) && self.solve(rest)
            }
            Kind::Constant(expected) => self.constant(*expected, inner) && self.solve(rest),
            Kind::Number(name) => match scalar(self.graph, inner) {
                Some((number, _)) => self.bind_number(name, number, inner) && self.solve(rest),
                None => self.fail(inner, || format!("a constant number (`{name}`)")),
            },
            Kind::List(expected) => {
                let found = self.graph.op(inner).as_const().filter(|t| t.elements() <= 64);
                let found = found.and_then(|t| t.to_f64().ok());
                if !found.is_some_and(|found| found.iter().copied().eq(as_floats(expected))) {
                    return self.fail(inner, || format!("the constant {expected:?}"));
                }
                self.solve(rest)
            }
            Kind::Leaf(want) => {
                if !want.accepts(self.graph.op(inner)) || inner.port != 0 {
                    return self.fail(inner, || want.name());
                }
                self.nodes.push(inner.node);
                self.solve(rest)
            }
            Kind::OneOf(patterns) => {
                patterns.iter().any(|pattern| self.solve(Some(&Goals { pattern, value, rest })))
            }
            Kind::Reshaped(pattern) => {
                let mut value = value;
                for _ in 0..=MOST_RESHAPES {
                    if self.solve(Some(&Goals { pattern, value, rest })) {
                        return true;
                    }
                    let node = self.graph.node(source(self.graph, value).node);
                    match (&node.op, node.inputs.first()) {
                        (Op::Reshape | Op::ExpandDims | Op::Squeeze(_), Some(&input)) => {
                            value = input;
                        }
                        _ => return false,
                    }
                }
                false
            }
            Kind::Bound(name, pattern) => {
                self.bind(name, value) && self.solve(Some(&Goals { pattern, value, rest }))
            }
            Kind::Key(pattern) => {
                if self.agrees_on_top(pattern, inner) {
                    self.key = Some(inner.node);
                }
                self.solve(Some(&Goals { pattern, value, rest }))
            }
            Kind::Node { want, inputs, either_order } => {
                let node = self.graph.node(inner.node);
                if !want.accepts(&node.op) || node.inputs.len() != inputs.len() || inner.port != 0 {
                    return self.fail(inner, || want.name());
                }
                self.nodes.push(inner.node);
                let operands = node.inputs.clone();
                if self.operands(inputs, &operands, rest) {
                    return true;
                }
                match (*either_order, operands.as_slice()) {
                    (true, &[a, b]) => self.operands(inputs, &[b, a], rest),
                    _ => false,
                }
            }
        }
    }

    /// Whether a node is of the kind that the pattern's own top (or one of its forms) wants.
    fn agrees_on_top(&self, pattern: &Pattern, value: Value) -> bool {
        match &*pattern.0 {
            Kind::Node { want, .. } | Kind::Leaf(want) => want.accepts(self.graph.op(value)),
            Kind::Weight(_) => is_weight(self.graph, value),
            Kind::OneOf(patterns) => patterns.iter().any(|p| self.agrees_on_top(p, value)),
            Kind::Bound(_, pattern) | Kind::Key(pattern) => self.agrees_on_top(pattern, value),
            _ => false,
        }
    }

    /// Puts one goal per operand in front of the others.
    fn operands(
        &mut self,
        patterns: &[Pattern],
        values: &[Value],
        rest: Option<&Goals<'_>>,
    ) -> bool {
        match (patterns.split_last(), values.split_last()) {
            (Some((pattern, patterns)), Some((&value, values))) => {
                self.operands(patterns, values, Some(&Goals { pattern, value, rest }))
            }
            _ => self.solve(rest),
        }
    }

    fn bind(&mut self, name: &'static str, value: Value) -> bool {
        let earlier = self.bound.iter().find_map(|(n, binding)| match binding {
            Binding::Value(value) if *n == name => Some(*value),
            _ => None,
        });
        match earlier {
            Some(earlier) if !self.same(earlier, value) => {
                let earlier = self.graph.value_name(earlier);
                self.fail(value, || format!("`{earlier}` again (`{name}`)"))
            }
            Some(_) => true,
            None => {
                self.bound.push((name, Binding::Value(value)));
                true
            }
        }
    }

    /// Whether two values are one: behind identities the same, or equal small constants.
    fn same(&self, a: Value, b: Value) -> bool {
        let (a, b) = (source(self.graph, a), source(self.graph, b));
        if a == b {
            return true;
        }
        match (self.graph.op(a).as_const(), self.graph.op(b).as_const()) {
            (Some(a), Some(b)) => a.elements() <= 64 && a == b,
            _ => false,
        }
    }

    fn bind_number(&mut self, name: &'static str, number: f64, at: Value) -> bool {
        let earlier = self.bound.iter().find_map(|(n, binding)| match binding {
            Binding::Number(number) if *n == name => Some(*number),
            _ => None,
        });
        match earlier {
            Some(earlier) if (earlier - number).abs() > 1e-5 * earlier.abs() => {
                self.fail(at, || format!("{earlier} again (`{name}`)"))
            }
            Some(_) => true,
            None => {
                self.bound.push((name, Binding::Number(number)));
                true
            }
        }
    }

    fn constant(&mut self, expected: f64, at: Value) -> bool {
        match scalar(self.graph, at) {
            Some((found, dtype)) if agrees(found, expected, dtype) => true,
            Some((found, _)) if self.lenient => {
                let name = &self.graph.node(at.node).name;
                self.off.push((at.node, format!("`{name}` is {found}, not {expected}")));
                true
            }
            _ => self.fail(at, || format!("the constant {expected}")),
        }
    }

    /// Notes the point if no attempt got further, and fails.
    fn fail(&mut self, at: Value, expected: impl FnOnce() -> String) -> bool {
        let nodes: BTreeSet<NodeId> = self.nodes.iter().copied().collect();
        let further = self.furthest.as_ref().is_none_or(|best| {
            (self.key.is_some(), nodes.len()) > (best.key.is_some(), best.nodes.len())
        });
        if further {
            let node = self.graph.node(at.node);
            let found = match scalar(self.graph, at) {
                Some((number, _)) => format!("the constant {number}"),
                None => node.op.to_string(),
            };
            let text = format!("`{}` is {found}, not {}", node.name, expected());
            self.furthest = Some(Explanation { nodes, key: self.key, node: at.node, text });
        }
        false
    }
}

fn as_floats(values: &[i64]) -> impl Iterator<Item = f64> {
    values.iter().map(|&value| value as f64)
}

#[cfg(test)]
mod tests {
    use frazil_tensor::{DType, Tensor};

    use super::super::{any, constant, product, sum, tanh, weight};
    use super::*;
    use crate::op::Binary;
    use crate::testing::{Build, batch_by_seq};

    fn start() -> Build {
        let mut g = Build::default();
        g.input("x", DType::F32, &batch_by_seq());
        g.input("y", DType::F32, &batch_by_seq());
        g
    }

    #[test]
    fn sums_and_products_match_in_either_order_and_identities_are_looked_through() {
        let mut g = start();
        g.node("half", Op::constant(Tensor::from_vec([1], vec![0.5f32]).unwrap()), &[]);
        g.unary("same", Unary::Identity, "x");
        g.unary("t", Unary::Tanh, "same");
        g.binary("m", Binary::Mul, "t", "half");
        g.binary("a", Binary::Add, "m", "x");
        let x = any("x");
        let pattern = x.clone() + 0.5 * tanh(x);
        let found = pattern.find(&g.graph, g.value("a").node).unwrap();
        assert_eq!(found.value("x"), g.value("x"));
        let nodes: Vec<NodeId> = found.nodes.into_iter().collect();
        assert_eq!(nodes, ["t", "m", "a"].map(|name| g.value(name).node));
    }

    #[test]
    fn a_choice_is_taken_back_when_a_later_goal_fails() {
        let mut g = start();
        g.binary("m", Binary::Mul, "x", "y");
        g.unary("t", Unary::Tanh, "y");
        g.binary("a", Binary::Add, "m", "t");
        // b is first taken for x; only the other order agrees with the second term.
        let pattern = any("b") * any("a") + tanh(any("b"));
        let found = pattern.find(&g.graph, g.value("a").node).unwrap();
        assert_eq!(found.value("b"), g.value("y"));
        let pattern = any("a") * any("a") + tanh(any("b"));
        assert!(pattern.find(&g.graph, g.value("a").node).is_none());
    }

    #[test]
    fn groups_match_in_every_way() {
        for (inner, outer) in [(["x", "y"], "c"), (["x", "c"], "y"), (["c", "y"], "x")] {
            let mut g = start();
            g.number("c", 3.0);
            g.binary("in", Binary::Mul, inner[0], inner[1]);
            g.binary("out", Binary::Mul, "in", outer);
            let pattern = product(&[any("x"), constant(3.0), any("y")]);
            assert!(pattern.find(&g.graph, g.value("out").node).is_some());
            assert!(sum(&[any("x"), any("y")]).find(&g.graph, g.value("out").node).is_none());
        }
    }

    #[test]
    fn numbers_may_be_computed_from_numbers() {
        let mut g = start();
        g.number("two", 2.0);
        g.unary("root", Unary::Sqrt, "two");
        g.binary("d", Binary::Div, "x", "root");
        let anchor = g.value("d").node;
        assert!((any("x") / f64::sqrt(2.0)).find(&g.graph, anchor).is_some());
        assert!((any("x") / 1.4143).find(&g.graph, anchor).is_none());
        let why = (any("x") / 1.5).explain(&g.graph, anchor).unwrap();
        assert_eq!(why.text, "`root` is 1.4142135623730951, not 1.5");
    }

    #[test]
    fn the_furthest_point_is_explained() {
        let mut g = start();
        g.binary("s", Binary::Sub, "x", "y");
        g.unary("t", Unary::Tanh, "s");
        g.binary("m", Binary::Mul, "t", "y");
        let pattern = tanh(any("a") + any("b")).key() * any("c");
        let why = pattern.explain(&g.graph, g.value("m").node).unwrap();
        assert_eq!(why.key, Some(g.value("t").node));
        assert_eq!((why.nodes.len(), why.text.as_str()), (2, "`s` is Sub, not Add"));
        let why = (weight("w") * any("c")).explain(&g.graph, g.value("m").node).unwrap();
        assert_eq!((why.key, why.text.as_str()), (None, "`t` is Tanh, not a weight (`w`)"));
    }

    #[test]
    fn cycles_do_not_hang_the_search() {
        let mut g = start();
        let a = g.node("a", Op::Unary(Unary::Identity), &["x"]);
        let b = g.node("b", Op::Unary(Unary::Identity), &["a"]);
        g.graph.node_mut(a).inputs = vec![b.into()];
        g.binary("m", Binary::Mul, "b", "y");
        let anchor = g.value("m").node;
        assert!((tanh(any("c")) * any("d")).find(&g.graph, anchor).is_none());
        assert!((any("c") * any("d")).find(&g.graph, anchor).is_some());
    }
}
