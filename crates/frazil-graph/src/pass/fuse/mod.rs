//! Raising: formulas of many small nodes become the one operation that they are.
//!
//! Every rule is a row of [`rules`]: the formulas that it looks for and what it puts in their
//! place once the facts of the bound values allow it. The last node of a formula keeps its name
//! and becomes the operation; the nodes before it go unless somebody else reads them. What
//! looks like a formula but is none is reported with the node at which it differs.

mod attention;
mod bytes;
mod embed;
mod gelu;
mod layer_norm;
mod linear;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::Report;
use super::sweep::sweep;
use crate::dim::show;
use crate::op::{Op, Steps};
use crate::pattern::{Explanation, Match, Pattern, source};
use crate::{Dim, Fact, Facts, Graph, Node, NodeId, Result, Value, infer};
pub use bytes::raise_bytes;

/// Which operations to raise to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fusions {
    /// [`Op::LayerNorm`].
    pub layer_norm: bool,
    /// [`Op::Gelu`], both forms.
    pub gelu: bool,
    /// [`Op::Linear`].
    pub linear: bool,
    /// [`Op::Embed`].
    pub embed: bool,
    /// [`Op::Gather`] in the place of a product with a one-hot matrix.
    pub one_hot: bool,
    /// [`Op::Attention`].
    pub attention: bool,
}

impl Fusions {
    /// Every rule.
    pub fn all() -> Self {
        Self {
            layer_norm: true,
            gelu: true,
            linear: true,
            embed: true,
            one_hot: true,
            attention: true,
        }
    }

    /// No rule; to switch on a few.
    pub fn none() -> Self {
        Self {
            layer_norm: false,
            gelu: false,
            linear: false,
            embed: false,
            one_hot: false,
            attention: false,
        }
    }
}

impl Default for Fusions {
    fn default() -> Self {
        Self::all()
    }
}

/// Raises formulas to operations. The graph computes what it did, to rounding; for ids outside
/// a table, which a one-hot product takes for zeros, a lookup is an error.
pub fn fuse(graph: &mut Graph, fusions: &Fusions) -> Result<Report> {
    let mut report = Report::default();
    for (wanted, rule) in rules(fusions) {
        if wanted {
            let facts = infer(graph)?;
            apply(graph, &facts, &rule, &mut report)?;
        }
    }
    if cfg!(debug_assertions) {
        graph.check()?;
    }
    Ok(report)
}

/// The rules in the order in which they are tried: lookups before `one_hot` takes them apart,
/// everything before `attention`, which is what is left between linear layers.
fn rules(fusions: &Fusions) -> [(bool, Rule); 6] {
    [
        (fusions.embed, embed::rule()),
        (fusions.one_hot, embed::one_hot_rule()),
        (fusions.layer_norm, layer_norm::rule()),
        (fusions.gelu, gelu::rule()),
        (fusions.linear, linear::rule()),
        (fusions.attention, attention::rule()),
    ]
}

/// Formulas and what replaces them.
pub(super) struct Rule {
    /// For the report.
    pub name: &'static str,
    /// Whether a formula can end in such a node.
    pub anchors: fn(&Op) -> bool,
    /// The spellings of the formula.
    pub forms: Vec<Pattern>,
    /// The replacement, or why there is none.
    pub rewrite: fn(&Site<'_>) -> std::result::Result<Rewrite, String>,
}

/// What becomes of the last node of a formula.
pub(super) struct Rewrite {
    /// The operation that replaces the formula.
    pub op: Op,
    /// Its inputs.
    pub inputs: Vec<Operand>,
    /// Whether the last node stays, as the reshape that it is, behind the new operation.
    pub reshape_stays: bool,
}

/// An input of a new operation.
pub(super) enum Operand {
    /// A value of the graph.
    As(Value),
    /// A new node under the formula's name.
    New(&'static str, Op, Vec<Operand>),
}

/// A place where a formula was found.
pub(super) struct Site<'a> {
    pub graph: &'a Graph,
    facts: &'a Facts,
    /// The last node.
    pub anchor: NodeId,
    /// What the formula's names stand for.
    pub found: &'a Match,
}

impl Site<'_> {
    /// What is known of a value; nothing of nodes that came after the inference.
    pub fn fact(&self, value: Value) -> Option<&Fact> {
        self.facts.nodes.get(value.node.index())?.get(value.port as usize)
    }

    /// The extents of a value, or a sentence that they are unknown.
    pub fn dims(&self, value: Value) -> std::result::Result<&[Dim], String> {
        let dims = self.fact(value).and_then(|fact| fact.dims.as_deref());
        dims.ok_or_else(|| format!("the shape of {} is unknown", self.name(value)))
    }

    /// The integers of a value, if they are known.
    pub fn integers(&self, value: Value) -> std::result::Result<Vec<i64>, String> {
        let elements = self.fact(value).and_then(Fact::known_elements);
        elements.ok_or_else(|| format!("{} is not constant", self.name(value)))
    }

    /// The value of a name of the formula.
    pub fn value(&self, name: &str) -> Value {
        self.found.value(name)
    }

    /// The steps of a name of the formula, if the form that matched has it.
    pub fn steps(&self, name: &str) -> Option<Steps> {
        match self.graph.op(source(self.graph, self.found.get(name)?)) {
            Op::FakeQuantize(steps) => Some(*steps),
            _ => None,
        }
    }

    /// An error unless the formula's result has the shape of `x`, as far as both are known:
    /// constants of several axes would have widened it.
    pub fn same_shape(&self, x: Value) -> std::result::Result<(), String> {
        match (self.dims(x), self.dims(self.anchor.into())) {
            (Ok(x), Ok(result)) if x != result => {
                Err(format!("x is {}, the result {}", show(x), show(result)))
            }
            _ => Ok(()),
        }
    }

    /// A value, what it is a reshape of, and so on up.
    pub fn behind_reshapes(&self, value: Value) -> Vec<Value> {
        let mut values = vec![source(self.graph, value)];
        while values.len() < 16 {
            let last = values[values.len() - 1];
            let node = self.graph.node(last.node);
            let reshapes = match &node.op {
                Op::Reshape | Op::ExpandDims | Op::Squeeze(_) => true,
                Op::StridedSlice(_) => self.only_new_axes(last.node),
                _ => false,
            };
            if !reshapes {
                break;
            }
            values.push(source(self.graph, node.inputs[0]));
        }
        values
    }

    /// Whether a window takes all there is and only puts axes in, like `x[:, None, :]`.
    pub fn only_new_axes(&self, id: NodeId) -> bool {
        let node = self.graph.node(id);
        let Op::StridedSlice(op) = &node.op else { return false };
        let Ok(strides) = self.integers(node.inputs[3]) else { return false };
        op.shrink_axis_mask == 0
            && strides.iter().enumerate().all(|(i, stride)| {
                let set = |mask: u32| i < 32 && mask >> i & 1 == 1;
                let whole = set(op.begin_mask) && set(op.end_mask) && *stride == 1;
                set(op.new_axis_mask) || set(op.ellipsis_mask) || whole
            })
    }

    /// The name of a value, for sentences.
    pub fn name(&self, value: Value) -> String {
        format!("`{}`", self.graph.value_name(value))
    }
}

/// Applies one rule wherever it fits.
pub(super) fn apply(
    graph: &mut Graph,
    facts: &Facts,
    rule: &Rule,
    report: &mut Report,
) -> Result<()> {
    let mut fused: BTreeSet<NodeId> = BTreeSet::new();
    let mut unread: Vec<NodeId> = Vec::new();
    let mut near: Vec<(NodeId, Explanation)> = Vec::new();
    let mut refused: Vec<(NodeId, Match, String)> = Vec::new();
    for anchor in graph.ids() {
        if !(rule.anchors)(&graph.node(anchor).op) {
            continue;
        }
        let mut why_not = None;
        let mut rewrite = None;
        for found in rule.forms.iter().filter_map(|form| form.find(graph, anchor)) {
            match (rule.rewrite)(&Site { graph, facts, anchor, found: &found }) {
                Ok(new) => {
                    rewrite = Some((found, new));
                    break;
                }
                Err(why) => {
                    why_not.get_or_insert((anchor, found, why));
                }
            }
        }
        if let Some((found, new)) = rewrite {
            let name = graph.node(anchor).name.clone();
            report.did(rule.name, name, format!("{} nodes became {}", found.nodes.len(), new.op));
            unread.extend(graph.node(anchor).inputs.iter().map(|value| value.node));
            replace(graph, anchor, new)?;
            fused.extend(found.nodes);
        } else if why_not.is_some() {
            refused.extend(why_not);
        } else {
            near.extend(closest(graph, rule, anchor).map(|explanation| (anchor, explanation)));
        }
    }
    // A part of a formula that was found, or that another attempt got further with, is no miss.
    let mut told = fused.clone();
    for (anchor, found, why) in refused {
        if !fused.contains(&anchor) {
            report.miss(rule.name, graph.node(anchor).name.clone(), why);
        }
        told.extend(found.nodes);
    }
    near.sort_by_key(|(anchor, explanation)| Reverse((explanation.nodes.len(), *anchor)));
    near.retain(|(_, explanation)| {
        let new = told.is_disjoint(&explanation.nodes);
        told.extend(&explanation.nodes);
        new
    });
    near.sort_by_key(|(anchor, _)| *anchor);
    for (anchor, explanation) in near {
        report.miss(rule.name, graph.node(anchor).name.clone(), explanation.text);
    }
    sweep(graph, fused.into_iter().chain(unread));
    Ok(())
}

/// The explanation of the form that got furthest, if it met the formula's key node.
fn closest(graph: &Graph, rule: &Rule, anchor: NodeId) -> Option<Explanation> {
    let explanations = rule.forms.iter().filter_map(|form| form.explain(graph, anchor));
    explanations
        .filter(|explanation| explanation.key.is_some())
        .reduce(|best, other| if other.nodes.len() > best.nodes.len() { other } else { best })
}

fn replace(graph: &mut Graph, anchor: NodeId, new: Rewrite) -> Result<()> {
    let inputs = operands(graph, anchor, new.inputs)?;
    if new.reshape_stays {
        let name = format!("{}/{}", graph.node(anchor).name, new.op.to_string().to_lowercase());
        let id = graph.push_fresh(Node::new(name, new.op, inputs))?;
        graph.node_mut(anchor).inputs[0] = id.into();
    } else {
        let node = graph.node_mut(anchor);
        node.op = new.op;
        node.inputs = inputs;
    }
    Ok(())
}

fn operands(graph: &mut Graph, anchor: NodeId, inputs: Vec<Operand>) -> Result<Vec<Value>> {
    let mut values = Vec::with_capacity(inputs.len());
    for input in inputs {
        values.push(match input {
            Operand::As(value) => value,
            Operand::New(suffix, op, inputs) => {
                let inputs = operands(graph, anchor, inputs)?;
                let name = format!("{}/{suffix}", graph.node(anchor).name);
                graph.push_fresh(Node::new(name, op, inputs))?.into()
            }
        });
    }
    Ok(values)
}
