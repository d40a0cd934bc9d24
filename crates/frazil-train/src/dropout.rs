//! Dropout, put into a raised graph where google-research/bert has it.
//!
//! The places are found by structure: behind the norm of the embeddings; in every attention, on its
//! probabilities; between a linear layer and the sum that a norm follows; and on the pooled output of
//! a classifier. Which elements go follows from the place of a row in its batch (example and
//! position), so rows keep theirs when padding is dropped or others are not computed. A site is known
//! by the name of its node.

use frazil_graph::op::{
    Binary, Dropout, DroppedAttention, Gather, Input, ShapeOp, StridedSlice, Training, Unary,
};
use frazil_graph::{Dim, Facts, Graph, Node, NodeId, Op, Port, Value, infer};
use frazil_tensor::{DType, Element, Shape, Tensor};

use crate::{Error, Result};

/// Probabilities that an element goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// `hidden_dropout_prob`
    pub hidden: f32,
    /// `attention_probs_dropout_prob`
    pub attention: f32,
    /// Of the pooled output: 0.1 for the original's classifiers, 0 for others.
    pub pooled: f32,
}

/// What the key of all dropouts is fed as: `int64 [2]`, the seed and the step.
pub const KEY: &str = "dropout_key";

/// What the number of the first example is fed as: `int32`, not 0 where the batch is a part of a larger
/// one.
pub const FIRST: &str = "dropout_first";

/// Puts dropout in, and gives the nodes that do it. A rate of 0 is none. Call it before gradients are
/// added.
pub fn insert(graph: &mut Graph, rates: &Rates) -> Result<Vec<NodeId>> {
    let facts = infer(graph)?;
    let sites = sites(graph, rates);
    if sites.is_empty() {
        return Ok(Vec::new());
    }
    let mut places = Places::new(graph, &facts)?;
    let mut added = Vec::new();
    for (value, rate, attends) in sites {
        let dropout = Dropout { rate, site: site(&places.graph.value_name(value)) };
        let node = match attends {
            true => places.attention(value.node, dropout)?,
            false => places.behind(value, dropout)?,
        };
        added.push(node);
    }
    graph.check()?;
    Ok(added)
}

/// Values that dropout comes behind, or attentions, with their rates.
fn sites(graph: &Graph, rates: &Rates) -> Vec<(Value, f32, bool)> {
    let uses = graph.uses();
    let op = |value: Value| graph.op(value);
    let normed = |id: NodeId| {
        let readers = uses.get(&id.into()).map_or(&[][..], Vec::as_slice);
        readers.iter().any(|(reader, _)| matches!(graph.node(*reader).op, Op::LayerNorm(_)))
    };
    let mut sites = Vec::new();
    for (id, node) in graph.nodes() {
        match &node.op {
            Op::LayerNorm(_) if matches!(op(node.inputs[0]), Op::Embed) => {
                sites.push((id.into(), rates.hidden, false));
            }
            Op::Attention(_) => sites.push((id.into(), rates.attention, true)),
            Op::Binary(Binary::Add) if normed(id) => {
                let linear = node.inputs.iter().find(|&&x| matches!(op(x), Op::Linear(_)));
                sites.extend(linear.map(|&linear| (linear, rates.hidden, false)));
            }
            Op::Unary(Unary::Tanh) if matches!(op(node.inputs[0]), Op::Linear(_)) => {
                sites.push((id.into(), rates.pooled, false));
            }
            _ => {}
        }
    }
    sites.retain(|(_, rate, _)| *rate > 0.0);
    sites
}

/// A number for a name, the same in every graph (FNV-1a).
fn site(name: &str) -> u32 {
    name.bytes().fold(0x811C_9DC5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The places of rows, made when they are wanted.
struct Places<'g> {
    graph: &'g mut Graph,
    facts: &'g Facts,
    key: Value,
    first_example: Value,
    /// Batch and sequence length, and the value that they are read off: `[b, s]`.
    extents: [Dim; 2],
    source: Value,
    /// `[b*s]`: example and position of every row of the padded batch.
    grid: Option<Value>,
    /// `[t]`: of packed rows.
    packed: Option<Value>,
    /// `[b]`: of first positions.
    first: Option<Value>,
}

impl<'g> Places<'g> {
    fn new(graph: &'g mut Graph, facts: &'g Facts) -> Result<Self> {
        let ids = graph.nodes().find(|(_, node)| matches!(node.op, Op::Embed));
        let source = ids.map(|(_, node)| node.inputs[0]).ok_or(Error::NoRows)?;
        let Some([b, s]) = facts[source].dims.as_deref() else { return Err(Error::NoRows) };
        let extents = [b.clone(), s.clone()];
        let input = Input { dtype: DType::I64, dims: Some(vec![Dim::known(2)]) };
        let key = graph.push(Node::new(KEY, Op::Input(input), vec![]))?.into();
        graph.inputs.push(Port { name: KEY.to_owned(), value: key });
        let input = Input { dtype: DType::I32, dims: Some(vec![]) };
        let first_example = graph.push(Node::new(FIRST, Op::Input(input), vec![]))?.into();
        graph.inputs.push(Port { name: FIRST.to_owned(), value: first_example });
        let (grid, packed, first) = (None, None, None);
        Ok(Self { graph, facts, key, first_example, extents, source, grid, packed, first })
    }

    fn push(&mut self, name: &str, op: Op, inputs: &[Value]) -> Result<Value> {
        let name = format!("dropout/{name}");
        Ok(self.graph.push_fresh(Node::new(name, op, inputs.to_vec()))?.into())
    }

    fn constant<T: Element>(&mut self, shape: impl Into<Shape>, values: Vec<T>) -> Result<Value> {
        let tensor = Tensor::from_vec(shape, values).map_err(|source| {
            frazil_graph::Error::Tensor { name: "dropout/constant".to_owned(), source }
        })?;
        self.push("constant", Op::constant(tensor), &[])
    }

    /// Lets the readers of a value read what is left of it.
    fn behind(&mut self, value: Value, dropout: Dropout) -> Result<NodeId> {
        let places = self.of(value)?;
        let name = format!("{}/dropout", self.graph.value_name(value));
        let op = Op::Training(Training::Dropout(dropout));
        let node = self.graph.push_fresh(Node::new(name, op, vec![]))?;
        self.graph.replace_uses(value, node.into());
        self.graph.node_mut(node).inputs = vec![value, self.key, places];
        Ok(node)
    }

    fn attention(&mut self, id: NodeId, dropout: Dropout) -> Result<NodeId> {
        let inputs = self.graph.node(id).inputs.clone();
        let (queries, keys) = (self.of(inputs[0])?, self.of(inputs[1])?);
        let node = self.graph.node_mut(id);
        if let Op::Attention(attention) = node.op {
            let op = DroppedAttention { attention, dropout };
            node.op = Op::Training(Training::Attention(op));
            node.inputs.extend([self.key, queries, keys]);
        }
        Ok(id)
    }

    /// The places of a value's rows, by how many there are.
    fn of(&mut self, value: Value) -> Result<Value> {
        // What was put in has the extents of what it reads.
        let mut known = value;
        while known.node.index() >= self.facts_len() {
            known = self.graph.node(known.node).inputs[0];
        }
        let dims = self.facts[known].dims.clone().unwrap_or_default();
        let rows = dims.split_last().and_then(|(_, outer)| Dim::product(outer));
        let [b, s] = self.extents.clone();
        match rows {
            Some(rows) if rows == Dim::rows() => self.packed(),
            Some(rows) if Some(&rows) == b.times(&s).as_ref() => self.grid(),
            Some(rows) if rows == b => self.first(),
            _ => Err(Error::NoPlaces { name: self.graph.value_name(value) }),
        }
    }

    /// How many nodes the facts are of.
    fn facts_len(&self) -> usize {
        self.key.node.index()
    }

    /// One extent of the batch, as a scalar.
    fn extent(&mut self, axis: usize) -> Result<Value> {
        if let Some(known) = self.extents[axis].as_known() {
            return self.constant([], vec![i32::try_from(known).unwrap_or(i32::MAX)]);
        }
        let op = Op::Shape(ShapeOp { to: DType::I32 });
        let shape = self.push("shape", op, &[self.source])?;
        let axis = axis as i32;
        let begin = self.constant([1], vec![axis])?;
        let end = self.constant([1], vec![axis + 1])?;
        let step = self.constant([1], vec![1i32])?;
        let op = StridedSlice { shrink_axis_mask: 1, ..StridedSlice::default() };
        self.push("extent", Op::StridedSlice(op), &[shape, begin, end, step])
    }

    /// `0, 1, …` below an extent.
    fn count(&mut self, axis: usize) -> Result<Value> {
        let limit = self.extent(axis)?;
        let (start, step) = (self.constant([], vec![0i32])?, self.constant([], vec![1i32])?);
        self.push("range", Op::Range, &[start, limit, step])
    }

    fn first(&mut self) -> Result<Value> {
        if let Some(known) = self.first {
            return Ok(known);
        }
        let count = self.count(0)?;
        let examples =
            self.push("number", Op::Binary(Binary::Add), &[count, self.first_example])?;
        let times = self.constant([], vec![1i32 << 16])?;
        let first = self.push("count", Op::Binary(Binary::Mul), &[examples, times])?;
        self.first = Some(first);
        Ok(first)
    }

    /// Example times 2¹⁶ plus position.
    fn grid(&mut self) -> Result<Value> {
        if let Some(known) = self.grid {
            return Ok(known);
        }
        let (examples, positions) = (self.first()?, self.count(1)?);
        let column = self.constant([2], vec![-1i32, 1])?;
        let examples = self.push("examples", Op::Reshape, &[examples, column])?;
        let sum = self.push("places", Op::Binary(Binary::Add), &[examples, positions])?;
        let flat = self.constant([1], vec![-1i32])?;
        let grid = self.push("grid", Op::Reshape, &[sum, flat])?;
        self.grid = Some(grid);
        Ok(grid)
    }

    fn packed(&mut self) -> Result<Value> {
        if let Some(known) = self.packed {
            return Ok(known);
        }
        let pack = self.graph.nodes().find(|(_, node)| matches!(node.op, Op::PackRows(_)));
        let index = pack.map(|(id, _)| Value::from(id)).ok_or(Error::NoRows)?;
        let (grid, axis) = (self.grid()?, self.constant([], vec![0i32])?);
        let packed = self.push("packed", Op::Gather(Gather::default()), &[grid, index, axis])?;
        self.packed = Some(packed);
        Ok(packed)
    }
}
