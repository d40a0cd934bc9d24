//! What of a graph can be computed in bytes. Formulas and raised operations count alike, so that a
//! graph may be quantized before or after [`crate::pass::fuse`].

use std::collections::HashMap;

use super::{HEAD, Site, SiteKind, f32_constant};
use crate::op::{Binary, Op};
use crate::pattern::source;
use crate::{Facts, Graph, NodeId, Result, Value, infer};

/// Nodes between two products of an attention, or between a lookup and its table.
const MOST_BETWEEN: usize = 16;

type Uses = HashMap<Value, Vec<(NodeId, usize)>>;

/// Everything that can be computed in bytes, in the order of the graph: products of constant
/// matrices, attentions, and tables.
pub fn sites(graph: &Graph) -> Result<Vec<Site>> {
    let facts = infer(graph)?;
    let uses = graph.uses();
    let order = graph.topological()?;
    let needed = match graph.outputs.as_slice() {
        [] => vec![true; graph.len()],
        outputs => graph.ancestors(outputs.iter().map(|port| port.value.node)),
    };
    let mut sites = Vec::new();
    for id in order.into_iter().filter(|id| needed[id.index()]) {
        let survey = Survey { graph, facts: &facts, uses: &uses, id };
        sites.extend(survey.table().or_else(|| survey.linear()).or_else(|| survey.attention()));
    }
    let last = sites.iter_mut().rev().find_map(|site| match &mut site.kind {
        SiteKind::Linear { head, .. } => Some(head),
        _ => None,
    });
    last.into_iter().for_each(|head| *head = true);
    Ok(sites)
}

/// A node that may be a site.
struct Survey<'a> {
    graph: &'a Graph,
    facts: &'a Facts,
    uses: &'a Uses,
    id: NodeId,
}

impl Survey<'_> {
    fn site(&self, kind: SiteKind, observe: Vec<Value>) -> Site {
        Site { name: self.graph.node(self.id).name.clone(), kind, observe }
    }

    /// A matrix of numbers behind identities and transpositions, and whether it is transposed.
    fn matrix(&self, value: Value) -> Option<(Value, bool)> {
        let (mut value, mut transposed) = (source(self.graph, value), false);
        for _ in 0..MOST_BETWEEN {
            let node = self.graph.node(value.node);
            if !matches!(node.op, Op::Transpose) {
                break;
            }
            if self.facts[node.inputs[1]].known_elements()? != [1, 0] {
                return None;
            }
            transposed = !transposed;
            value = source(self.graph, node.inputs[0]);
        }
        let tensor = f32_constant(self.graph, value)?;
        (tensor.shape().len() == 2).then_some((value, transposed))
    }

    fn linear(&self) -> Option<Site> {
        let node = self.graph.node(self.id);
        let (by_op, raised) = match &node.op {
            Op::MatMul(op) if !op.transpose_a => (op.transpose_b, None),
            Op::Linear(op) => (op.transpose_w, Some(node.inputs[2])),
            _ => return None,
        };
        let x = node.inputs[0];
        let (weight, swapped) = self.matrix(node.inputs[1])?;
        // What depends on no input is computed once.
        if f32_constant(self.graph, source(self.graph, x)).is_some() {
            return None;
        }
        let transposed = by_op != swapped;
        let &[rows, columns] = &**f32_constant(self.graph, weight)?.shape() else { return None };
        let (k, n) = if transposed { (columns, rows) } else { (rows, columns) };
        if k == 0 || n == 0 {
            return None;
        }
        let raised = raised.map(|bias| source(self.graph, bias));
        let bias = raised.filter(|&bias| self.is_bias(bias, n)).or_else(|| self.bias(n));
        let kind = SiteKind::Linear { weight, k, n, transposed, bias, head: n < HEAD };
        Some(self.site(kind, vec![x]))
    }

    fn is_bias(&self, value: Value, n: usize) -> bool {
        f32_constant(self.graph, value).is_some_and(|bias| **bias.shape() == [n])
    }

    /// The list that the only reader of the product adds to it.
    fn bias(&self, n: usize) -> Option<Value> {
        let [(reader, _)] = self.uses.get(&self.id.into())?.as_slice() else { return None };
        let node = self.graph.node(*reader);
        if !matches!(node.op, Op::BiasAdd | Op::Binary(Binary::Add)) {
            return None;
        }
        let behind = node.inputs.iter().map(|&value| source(self.graph, value));
        behind.into_iter().find(|&value| self.is_bias(value, n))
    }

    /// A lookup by number, or by a product with a one-hot matrix.
    fn table(&self) -> Option<Site> {
        let node = self.graph.node(self.id);
        let table = match &node.op {
            Op::Gather(op) if op.batch_dims == 0 => {
                let axis = self.facts[node.inputs[2]].known_elements()?;
                node.inputs.first().filter(|_| axis == [0])?
            }
            Op::MatMul(op) if !op.transpose_a && !op.transpose_b => {
                let mut x = source(self.graph, node.inputs[0]);
                for _ in 0..MOST_BETWEEN {
                    let behind = self.graph.node(x.node);
                    if !matches!(behind.op, Op::Reshape | Op::Cast(_)) {
                        break;
                    }
                    x = source(self.graph, behind.inputs[0]);
                }
                node.inputs.get(1).filter(|_| matches!(self.graph.op(x), Op::OneHot(_)))?
            }
            _ => return None,
        };
        let table = source(self.graph, *table);
        let &[rows, width] = &**f32_constant(self.graph, table)?.shape() else { return None };
        Some(self.site(SiteKind::Table { table, rows, width }, vec![]))
    }

    /// `softmax(.. q kᵀ ..) v`, found at the product of the scores.
    fn attention(&self) -> Option<Site> {
        if !self.is_product_of_heads(self.id) {
            return None;
        }
        let mut value = Value::from(self.id);
        let mut soft = false;
        for _ in 0..MOST_BETWEEN {
            let readers = self.uses.get(&value)?;
            let [(reader, place)] = readers.as_slice() else { return None };
            let node = self.graph.node(*reader);
            match &node.op {
                Op::MatMul(_) if soft && *place == 0 && self.is_product_of_heads(*reader) => {
                    let scores = self.graph.node(self.id);
                    let operands = [scores.inputs[0], scores.inputs[1], node.inputs[1]];
                    let on_steps = |&x: &Value| matches!(self.graph.op(x), Op::FakeQuantize(_));
                    if operands.iter().any(on_steps) {
                        return None;
                    }
                    let observe = operands.map(|operand| self.rows(operand)).to_vec();
                    let kind = SiteKind::Attention { context: node.name.clone() };
                    return Some(self.site(kind, observe));
                }
                Op::Softmax if !soft => soft = true,
                Op::Unary(_) => {}
                Op::Binary(_) | Op::Select if !soft => {}
                _ => return None,
            }
            value = (*reader).into();
        }
        None
    }

    /// Two operands of four axes, neither of them a weight.
    fn is_product_of_heads(&self, id: NodeId) -> bool {
        let node = self.graph.node(id);
        let varies = |&value: &Value| {
            self.facts[value].rank() == Some(4)
                && f32_constant(self.graph, source(self.graph, value)).is_none()
        };
        matches!(&node.op, Op::MatMul(op) if !op.transpose_a) && node.inputs.iter().all(varies)
    }

    /// A value before it was taken apart by heads.
    fn rows(&self, value: Value) -> Value {
        let mut value = source(self.graph, value);
        for _ in 0..MOST_BETWEEN {
            let node = self.graph.node(value.node);
            if !matches!(node.op, Op::Reshape | Op::Transpose) {
                break;
            }
            value = source(self.graph, node.inputs[0]);
        }
        value
    }
}
