//! Bytes: weights that the graph has as some, and rows that become some for the products that read
//! them.
//!
//! A weight is in bytes where it is a constant under [`Op::Scaled`], also behind identities,
//! transpositions and reshapes; a product is if its rows pass an [`Op::FakeQuantize`] as well. The
//! bytes of rows are written by the step that computes them where that is possible. Whoever wants
//! the numbers of rows on steps gets them out of the bytes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use frazil_graph::op::{Steps, Unary};
use frazil_graph::pass::quantize::watched;
use frazil_graph::{Dim, Facts, Graph, Node, NodeId, Op, Value};
use frazil_kernels::attention::OperandSteps;
use frazil_tensor::Tensor;

use super::{Lowering, Reason};
use crate::engine::program::{
    Kind, Place, Quantized, Scales, Step, Storage, Stride, Target, View, Work,
};

/// More products of bytes do not add up in 32 bits.
const MOST_PRODUCTS: usize = 0xFFFF;

/// A weight of two axes in bytes.
#[derive(Clone)]
pub(super) struct ByteWeight {
    /// As it lies in memory; none where it was packed before.
    pub bytes: Option<Tensor>,
    /// What a step of one stands for: by place on an axis, or one for all.
    pub scales: Tensor,
    /// The axis, in memory.
    axis: usize,
    /// The extents, in memory.
    extents: [usize; 2],
    /// Whether it is read with its axes swapped.
    swapped: bool,
}

impl ByteWeight {
    /// Whether one scale goes with each place on an axis as it is read.
    fn scaled_along(&self, axis: usize) -> bool {
        self.scales.elements() == 1 || self.axis == if self.swapped { 1 - axis } else { axis }
    }

    /// As a table whose rows are looked up.
    fn as_table(&self) -> Option<&Self> {
        (!self.swapped && self.scaled_along(0)).then_some(self)
    }

    /// The same elements in another shape, if each scale still belongs to a place on an axis.
    fn reshaped(&self, extents: [usize; 2]) -> Option<Self> {
        let before = |extents: [usize; 2], axis: usize| (axis == 0) || extents[0] == 1;
        if extents == self.extents {
            return Some(self.clone());
        }
        let count: Option<usize> = extents[0].checked_mul(extents[1]);
        let same_count = count == self.extents[0].checked_mul(self.extents[1]);
        let axis = (0..2).find(|&axis| {
            extents[axis] == self.extents[self.axis]
                && before(extents, axis) == before(self.extents, self.axis)
        });
        let axis = if self.scales.elements() == 1 { Some(0) } else { axis };
        let bytes = match &self.bytes {
            Some(bytes) => Some(bytes.reshape(extents).ok()?),
            None => None,
        };
        let fits = same_count && !self.swapped;
        fits.then_some(Self { bytes, axis: axis?, extents, ..self.clone() })
    }
}

/// The weights of a graph that are bytes, by the values that are read.
#[derive(Default)]
pub(super) struct ByteWeights {
    weights: HashMap<Value, ByteWeight>,
    /// Nodes whose numbers nobody needs: all that reads them reads the bytes.
    unneeded: HashSet<NodeId>,
}

impl ByteWeights {
    /// What is in bytes among the constants of a graph, given in an order to compute in. `uses`:
    /// who reads a value, once for each time.
    pub fn find(
        graph: &Graph,
        facts: &Facts,
        uses: &HashMap<Value, Vec<NodeId>>,
        constants: &[NodeId],
    ) -> Self {
        let mut found = Self::default();
        for &id in constants {
            if let Some(weight) = found.weight(graph, facts, id) {
                found.weights.insert(id.into(), weight);
            }
        }
        for &id in constants.iter().rev() {
            let value = Value::from(id);
            let reads_bytes = |reader: &NodeId| {
                let node = graph.node(*reader);
                found.unneeded.contains(reader)
                    || found.product(graph, node).is_some()
                    || found.is_table(node, value)
            };
            let readers = uses.get(&value).map_or(&[][..], Vec::as_slice);
            if found.weights.contains_key(&value) && readers.iter().all(reads_bytes) {
                found.unneeded.insert(id);
            }
        }
        found
    }

    fn weight(&self, graph: &Graph, facts: &Facts, id: NodeId) -> Option<ByteWeight> {
        let node = graph.node(id);
        let known = |value: Value| {
            let dims = facts[value].known_dims()?;
            let &[rows, columns] = &*dims else { return None };
            Some([usize::try_from(rows).ok()?, usize::try_from(columns).ok()?])
        };
        let of = |i: usize| self.weights.get(node.inputs.get(i)?);
        match &node.op {
            Op::Scaled(op) => {
                let bytes = frazil_graph::pattern::source(graph, node.inputs[0]);
                let stored = graph.op(bytes).as_const().cloned();
                if stored.is_none() && !matches!(graph.op(bytes), Op::Variable(_)) {
                    return None;
                }
                let scales = graph.op(node.inputs[1]).as_const().cloned()?;
                let axis = if op.axis < 0 { op.axis + 2 } else { op.axis };
                let axis = usize::try_from(axis).ok().filter(|&axis| axis < 2)?;
                let extents = known(id.into())?;
                Some(ByteWeight { bytes: stored, scales, axis, extents, swapped: false })
            }
            Op::Unary(Unary::Identity | Unary::StopGradient) => of(0).cloned(),
            Op::Transpose if facts[node.inputs[1]].known_elements()? == [1, 0] => {
                of(0).map(|weight| ByteWeight { swapped: !weight.swapped, ..weight.clone() })
            }
            Op::Reshape => of(0)?.reshaped(known(id.into())?),
            _ => None,
        }
    }

    /// The weight of a product in bytes, and whether it is `[n, k]` in memory.
    pub fn product(&self, graph: &Graph, node: &Node) -> Option<(&ByteWeight, bool)> {
        let transposed = match &node.op {
            Op::Linear(op) => op.transpose_w,
            Op::MatMul(op) if !op.transpose_a => op.transpose_b,
            _ => return None,
        };
        let weight = self.weights.get(&node.inputs[1])?;
        let columns = if transposed { 0 } else { 1 };
        let in_memory = transposed != weight.swapped;
        let k = weight.extents[usize::from(in_memory)];
        let fits = matches!(
            graph.op(node.inputs[0]),
            Op::FakeQuantize(Steps::Tensor { .. } | Steps::Rows)
        ) && weight.scaled_along(columns)
            && k <= MOST_PRODUCTS;
        fits.then_some((weight, in_memory))
    }

    fn is_table(&self, node: &Node, value: Value) -> bool {
        let table = || self.weights.get(&value).and_then(ByteWeight::as_table);
        matches!(node.op, Op::Embed) && !node.inputs[..2].contains(&value) && table().is_some()
    }

    /// The bytes of a table.
    pub fn table(&self, value: Value) -> Option<&ByteWeight> {
        self.weights.get(&value).and_then(ByteWeight::as_table)
    }

    /// Whether only the bytes of a value are there.
    pub fn only(&self, value: Value) -> bool {
        value.port == 0 && self.unneeded.contains(&value.node)
    }

    /// Lets a weight go.
    pub fn remove(&mut self, value: Value) {
        self.weights.remove(&value);
    }
}

/// Rows on steps: what they are made of.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct OnSteps {
    /// The rows before.
    pub x: Value,
    /// The node that multiplies them, column by column, if there is one.
    pub factors: Option<NodeId>,
    pub steps: Steps,
}

impl Lowering<'_> {
    /// What a value on steps is made of; `None` if it is none.
    pub(super) fn on_steps(&self, value: Value) -> Option<OnSteps> {
        let node = self.graph.node(value.node);
        let Op::FakeQuantize(steps) = node.op else { return None };
        if let Steps::Watched { .. } = steps {
            return None;
        }
        let x = node.inputs[0];
        Some(match self.factors.get(&x.node) {
            Some(&(rows, _)) => OnSteps { x: rows, factors: Some(x.node), steps },
            None => OnSteps { x, factors: None, steps },
        })
    }

    /// Rows on steps have no step of their own: the bytes are made when a product wants them. A mark
    /// shows what is before it.
    pub(super) fn fake_quantize(&mut self, id: NodeId, node: &Node) -> Result<(), Reason> {
        self.dims(id.into())?;
        match watched(node) {
            Some((site, place)) => {
                let x = self.place(node.inputs[0]);
                self.places.insert(id.into(), x.clone());
                self.step(id, Work::Watch { x, site: site.to_owned(), place });
            }
            None => {
                self.deferred.insert(id);
            }
        }
        Ok(())
    }

    /// Queries, keys and values of an attention, before they are put on steps where it can do that by
    /// itself.
    pub(super) fn before_attention(
        &self,
        inputs: &[Value],
        steps: &mut OperandSteps,
    ) -> [Value; 3] {
        let mut operands = [inputs[0], inputs[1], inputs[2]];
        for (i, operand) in operands.iter_mut().enumerate() {
            let Some(OnSteps { x, factors: None, steps: on }) = self.on_steps(*operand) else {
                continue;
            };
            match (i, on) {
                (0, Steps::Tensor { scale, zero }) => steps.queries = Some((scale, zero)),
                (1, Steps::Symmetric { scale }) => steps.keys = Some(scale),
                (2, Steps::Symmetric { scale }) => steps.values = Some(scale),
                _ => continue,
            }
            *operand = x;
        }
        operands
    }

    /// A product with a list, column by column, that only goes on steps: that is done on the way.
    pub(super) fn multiply(&mut self, id: NodeId, node: &Node) -> Result<bool, Reason> {
        let Some(readers) = self.uses.get(&id.into()) else { return Ok(false) };
        let on_steps = |reader: &NodeId| {
            let op = &self.graph.node(*reader).op;
            *reader != id && matches!(op, Op::FakeQuantize(steps) if !is_mark(steps))
        };
        if !readers.iter().all(on_steps) {
            return Ok(false);
        }
        let Ok(dims) = self.dims(id.into()) else { return Ok(false) };
        for (x, list) in [(0, 1), (1, 0)].map(|(x, list)| (node.inputs[x], node.inputs[list])) {
            let Ok(factors) = self.vector(list) else { continue };
            let width = dims.last().is_some_and(|last| last.is(factors.len() as i64));
            if width && self.dims(x).is_ok_and(|x| x == dims) {
                self.factors.insert(id, (x, factors.into()));
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The numbers of rows on steps, out of their bytes.
    pub(super) fn realize(&mut self, id: NodeId) -> Result<Place, Reason> {
        let x = self.quantized(id.into())?;
        let dims = self.dims(id.into())?;
        let out = self.view(&dims);
        let place = Place::View(out.clone());
        self.places.insert(id.into(), place.clone());
        self.step(id, Work::Dequantize { x, out });
        Ok(place)
    }

    /// Memory for rows of bytes.
    fn byte_view(&mut self, dims: &[Dim]) -> View {
        let stride = match dims.last().and_then(Dim::as_known) {
            // As for numbers: an odd number of cache lines.
            Some(width) => Stride::Known(((width as usize).div_ceil(64) | 1) * 64),
            None => Stride::Extent(self.extent(&dims[dims.len() - 1])),
        };
        self.storage(dims, stride, Kind::U8)
    }

    /// Memory of a kind of its own.
    fn storage(&mut self, dims: &[Dim], stride: Stride, kind: Kind) -> View {
        self.program.storages.push(Storage { block: 0, stride, kind });
        let storage = self.program.storages.len() - 1;
        let dims = dims.iter().map(|dim| self.extent(dim)).collect();
        View { storage, column: 0, dims }
    }

    /// The bytes of a value on steps: written by the step that computes the rows where that is
    /// possible, else by a step of their own.
    pub(super) fn quantized(&mut self, value: Value) -> Result<Quantized, Reason> {
        let made = self.on_steps(value);
        let made =
            made.ok_or_else(|| format!("`{}` is on no steps", self.graph.value_name(value)))?;
        let same = OnSteps { x: self.behind(made.x), ..made };
        if let Some((_, known)) = self.bytes.iter().find(|(known, _)| *known == same) {
            return Ok(known.clone());
        }
        let dims = self.dims(made.x)?;
        let x = self.place(made.x);
        let scales = match made.steps {
            Steps::Tensor { scale, zero } => Scales::Tensor { scale, zero },
            Steps::Symmetric { scale } => Scales::Symmetric { scale },
            Steps::Rows => {
                let mut rows = dims.clone();
                rows.pop();
                rows.push(Dim::known(1));
                let scale = self.storage(&rows, Stride::Known(1), Kind::F32);
                Scales::Rows { scale, zero: self.storage(&rows, Stride::Known(1), Kind::U8) }
            }
            Steps::Watched { .. } => return Err("a mark is on no steps".into()),
        };
        let factors = made.factors.and_then(|node| self.factors.get(&node));
        let factors = factors.map(|(_, factors)| Arc::clone(factors));
        let out = Quantized { view: self.byte_view(&dims), scales, factors };
        let alone = self.only_for_bytes(same.x, value.node);
        if !self.written_by_maker(&x, &out, alone) {
            self.step(value.node, Work::Quantize { x, out: out.clone() });
        }
        self.bytes.push((same, out.clone()));
        Ok(out)
    }

    /// Lets the step that computes rows write their bytes, if it can. `alone`: nobody reads the
    /// numbers.
    fn written_by_maker(&mut self, x: &Place, out: &Quantized, alone: bool) -> bool {
        let Place::View(x) = x else { return false };
        let fixed = matches!(out.scales, Scales::Tensor { .. });
        let makes_it = |step: &&mut Step| step.work.out().is_some_and(|v| v.storage == x.storage);
        let maker = self.program.steps.iter_mut().rev().find(makes_it).map(|step| &mut step.work);
        let whole = |view: &View| x.column == 0 && view.dims.last() == x.dims.last();
        match maker {
            Some(Work::LayerNorm { bytes: bytes @ None, .. }) => *bytes = Some(out.clone()),
            Some(Work::Embed(embed)) if embed.norm.is_some() && embed.bytes.is_none() => {
                embed.bytes = Some(out.clone());
            }
            Some(Work::Attention(attention)) if alone && fixed && whole(attention.out.view()) => {
                attention.out = Target::U8(out.clone());
            }
            Some(Work::Linear { out: target, .. } | Work::LinearI8 { out: target, .. })
                if alone && fixed && whole(target.view()) =>
            {
                *target = Target::U8(out.clone());
            }
            Some(Work::LinearI8 { out: target, bytes: bytes @ None, .. })
                if alone && whole(target.view()) =>
            {
                *bytes = Some(out.clone());
            }
            _ => return false,
        }
        true
    }

    /// Whether a value goes nowhere but on these steps, and from there into products of bytes.
    fn only_for_bytes(&self, value: Value, steps: NodeId) -> bool {
        match self.only_reader(value) {
            Some(reader) if reader == steps => {
                let readers = self.uses.get(&steps.into()).map_or(&[][..], Vec::as_slice);
                let of_bytes = |reader: &NodeId| {
                    *reader != steps
                        && self.weights.product(self.graph, self.graph.node(*reader)).is_some()
                };
                readers.iter().all(of_bytes)
            }
            Some(reader) => {
                let node = self.graph.node(reader);
                let same_rows = self.factors.contains_key(&reader)
                    || matches!(
                        node.op,
                        Op::Reshape | Op::Unary(Unary::Identity | Unary::StopGradient)
                    );
                same_rows && self.only_for_bytes(reader.into(), steps)
            }
            None => false,
        }
    }
}

pub(super) fn is_mark(steps: &Steps) -> bool {
    matches!(steps, Steps::Watched { .. })
}
