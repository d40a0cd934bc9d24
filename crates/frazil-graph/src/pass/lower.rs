//! Lowering: the operations that a target lacks become formulas of small nodes again.
//!
//! The nodes of a formula are named under the operation's own name, which the last one keeps.
//! Extents that are known become constants; others are read off the operands when the graph runs.

use std::collections::HashMap;

use frazil_tensor::{DType, Tensor};

use super::Report;
use crate::op::{
    Attention, Binary, Cast, Compare, Gather, GeluForm, MatMul, OneHot, Op, Pack, Reduce,
    ReduceKind, Scaled, ShapeOp, Steps, StridedSlice, Training, Unary,
};
use crate::pattern::source;
use crate::{Error, Facts, Graph, Node, NodeId, Result, Value, infer};

/// Expands every fused operation ([`Op::LayerNorm`], [`Op::Gelu`], [`Op::Linear`], [`Op::Embed`],
/// [`Op::Attention`], [`Op::FakeQuantize`] by rows, [`Op::Scaled`], [`Training::CrossEntropy`]) that `keep` does not want to
/// keep. Packed rows have no formula: they are refused.
pub fn lower(graph: &mut Graph, keep: &dyn Fn(&Op) -> bool) -> Result<Report> {
    let mut report = Report::default();
    if !keep(&Op::Scaled(Scaled { axis: 0 })) {
        report.extend(lower_lookups(graph)?);
    }
    let facts = infer(graph)?;
    let mut masks = Masks::new();
    for id in graph.ids() {
        let op = graph.node(id).op.clone();
        if keep(&op) {
            continue;
        }
        let before = graph.len();
        let mut formula = Formula { graph, facts: &facts, id };
        match &op {
            Op::LayerNorm(op) => formula.layer_norm(f64::from(op.epsilon))?,
            Op::Gelu(op) => formula.gelu(op.form)?,
            Op::Linear(op) => formula.linear(op.transpose_w)?,
            Op::Embed if formula.graph.node(id).inputs.len() > 5 => return Err(formula.packed()),
            Op::Attention(op) if op.packed => return Err(formula.packed()),
            Op::PackRows(_) | Op::UnpackRows => return Err(formula.packed()),
            Op::Embed => formula.embed()?,
            Op::Attention(op) => formula.attention(op, &mut masks)?,
            Op::FakeQuantize(Steps::Rows) => formula.steps_of_rows()?,
            Op::Scaled(op) => formula.scaled(op.axis)?,
            Op::Training(Training::CrossEntropy) => formula.cross_entropy()?,
            _ => continue,
        }
        let nodes = graph.len() - before + 1;
        report.did("lower", graph.node(id).name.clone(), format!("{op} became {nodes} nodes"));
    }
    if cfg!(debug_assertions) {
        graph.check()?;
    }
    Ok(report)
}

/// Lets lookups in tables of bytes read the bytes and the scales of their rows, where they would
/// read a table of numbers: who computes node by node would make all of it each time.
pub fn lower_lookups(graph: &mut Graph) -> Result<Report> {
    let mut report = Report::default();
    let tables = |graph: &Graph, id: NodeId| {
        let node = graph.node(id);
        let Op::Gather(Gather { batch_dims: 0 }) = node.op else { return None };
        let table = graph.node(source(graph, *node.inputs.first()?).node);
        matches!(table.op, Op::Scaled(_)).then(|| (table.op.clone(), table.inputs.clone()))
    };
    if graph.ids().all(|id| tables(graph, id).is_none()) {
        return Ok(report);
    }
    let facts = infer(graph)?;
    for id in graph.ids() {
        let Some((Op::Scaled(op), inputs)) = tables(graph, id) else { continue };
        let &[bytes, scales] = inputs.as_slice() else { continue };
        let (ids, axis) = (graph.node(id).inputs[1], graph.node(id).inputs[2]);
        // bytes: [rows, width]
        let is_row = [0, -2].contains(&op.axis) && facts[bytes].rank() == Some(2);
        if !is_row || facts[axis].known_elements().as_deref() != Some(&[0]) {
            continue;
        }
        let one = facts[scales].known_dims().as_deref() == Some(&[1]);
        let mut formula = Formula { graph, facts: &facts, id };
        let lookup = Op::Gather(Gather { batch_dims: 0 });
        let rows = formula.node("bytes", lookup.clone(), &[bytes, ids, axis])?;
        let rows = formula.node("numbers", Op::Cast(Cast { to: DType::F32 }), &[rows])?;
        let scales = match one {
            true => scales,
            false => {
                let of_rows = formula.node("scales", lookup, &[scales, ids, axis])?;
                let last = formula.integer("last", -1)?;
                formula.node("scales_of_rows", Op::ExpandDims, &[of_rows, last])?
            }
        };
        formula.last(Op::Binary(Binary::Mul), &[rows, scales]);
        report.did("lower", graph.node(id).name.clone(), "bytes are looked up, then scaled");
    }
    // Tables of numbers that nobody reads any more.
    if !graph.outputs.is_empty() {
        graph.prune();
    }
    Ok(report)
}

/// What is added to the scores for a mask, its type and its value: every layer has the same.
type Masks = HashMap<(Value, DType, u32), Value>;

/// The nodes that replace one operation.
struct Formula<'a> {
    graph: &'a mut Graph,
    facts: &'a Facts,
    id: NodeId,
}

impl Formula<'_> {
    fn input(&self, i: usize) -> Result<Value> {
        let node = self.graph.node(self.id);
        node.inputs.get(i).copied().ok_or_else(|| {
            let (least, most) = node.op.arity();
            let (name, op) = (node.name.clone(), node.op.to_string());
            Error::Arity { name, op, least, most, found: node.inputs.len() }
        })
    }

    fn wrong(&self, reason: impl Into<String>) -> Error {
        let node = self.graph.node(self.id);
        Error::Shape { name: node.name.clone(), op: node.op.to_string(), reason: reason.into() }
    }

    /// Targets know nothing of packed rows.
    fn packed(&self) -> Error {
        self.wrong("packed rows are for running: export the graph before packing")
    }

    /// A node under the operation's name.
    fn node(&mut self, suffix: &str, op: Op, inputs: &[Value]) -> Result<Value> {
        let name = format!("{}/{suffix}", self.graph.node(self.id).name);
        Ok(self.graph.push_fresh(Node::new(name, op, inputs.to_vec()))?.into())
    }

    fn binary(&mut self, suffix: &str, kind: Binary, x: Value, y: Value) -> Result<Value> {
        self.node(suffix, Op::Binary(kind), &[x, y])
    }

    fn unary(&mut self, suffix: &str, kind: Unary, x: Value) -> Result<Value> {
        self.node(suffix, Op::Unary(kind), &[x])
    }

    /// The last node, under the operation's own name.
    fn last(&mut self, op: Op, inputs: &[Value]) {
        let node = self.graph.node_mut(self.id);
        node.op = op;
        node.inputs = inputs.to_vec();
    }

    fn constant(&mut self, suffix: &str, value: frazil_tensor::Result<Tensor>) -> Result<Value> {
        let name = || format!("{}/{suffix}", self.graph.node(self.id).name);
        let value = value.map_err(|source| Error::Tensor { name: name(), source })?;
        self.node(suffix, Op::constant(value), &[])
    }

    /// A number of the type that the operation computes in.
    fn number(&mut self, suffix: &str, value: f64, dtype: DType) -> Result<Value> {
        let tensor = Tensor::from_vec([], vec![value]).and_then(|wide| wide.cast(dtype));
        self.constant(suffix, tensor)
    }

    fn integer(&mut self, suffix: &str, value: i32) -> Result<Value> {
        self.constant(suffix, Tensor::from_vec([], vec![value]))
    }

    fn list(&mut self, suffix: &str, values: &[i32]) -> Result<Value> {
        self.constant(suffix, Tensor::from_vec([values.len()], values.to_vec()))
    }

    /// The type of a value; a type that is not known is taken for `float32`.
    fn dtype(&self, value: Value) -> Result<DType> {
        let dtype = self.facts[value].dtype.unwrap_or(DType::F32);
        if dtype.is_float() { Ok(dtype) } else { Err(self.wrong(format!("its type is {dtype}"))) }
    }

    /// An extent of a value, if it is a number.
    fn extent(&self, value: Value, axis: usize) -> Option<i32> {
        let dim = self.facts[value].dims.as_ref()?.get(axis)?;
        dim.as_known().and_then(|dim| i32::try_from(dim).ok())
    }

    /// An extent of a value, read when the graph runs.
    fn read_extent(&mut self, suffix: &str, value: Value, axis: i32) -> Result<Value> {
        let shape = Op::Shape(ShapeOp { to: DType::I32 });
        let shape = self.node(&format!("{suffix}/shape"), shape, &[value])?;
        let begin = self.list(&format!("{suffix}/begin"), &[axis])?;
        let end = self.list(&format!("{suffix}/end"), &[axis + 1])?;
        let step = self.list(&format!("{suffix}/step"), &[1])?;
        let one = Op::StridedSlice(StridedSlice { shrink_axis_mask: 1, ..Default::default() });
        self.node(suffix, one, &[shape, begin, end, step])
    }

    /// `(x - mean) / sqrt(variance + epsilon) * gamma + beta`
    fn layer_norm(&mut self, epsilon: f64) -> Result<()> {
        let (x, gamma, beta) = (self.input(0)?, self.input(1)?, self.input(2)?);
        let dtype = self.dtype(x)?;
        let rank = self.facts[x].rank().and_then(|rank| i32::try_from(rank).ok());
        let axis = self.list("axis", &[rank.map_or(-1, |rank| rank - 1)])?;
        let over_axis = Op::Reduce(Reduce { kind: ReduceKind::Mean, keep_dims: true });
        let mean = self.node("mean", over_axis.clone(), &[x, axis])?;
        let squares = self.binary("squared_difference", Binary::SquaredDifference, x, mean)?;
        let variance = self.node("variance", over_axis, &[squares, axis])?;
        let epsilon = self.number("epsilon", epsilon, dtype)?;
        let shifted = self.binary("shifted", Binary::Add, variance, epsilon)?;
        let scale = self.unary("rsqrt", Unary::Rsqrt, shifted)?;
        let centered = self.binary("centered", Binary::Sub, x, mean)?;
        let normed = self.binary("normed", Binary::Mul, centered, scale)?;
        let scaled = self.binary("scaled", Binary::Mul, normed, gamma)?;
        self.last(Op::Binary(Binary::Add), &[scaled, beta]);
        Ok(())
    }

    /// `x * (0.5 * (1 + tanh(sqrt(2/π) * (x + 0.044715 x³))))`, or with `erf(x / sqrt(2))`.
    fn gelu(&mut self, form: GeluForm) -> Result<()> {
        let x = self.input(0)?;
        let dtype = self.dtype(x)?;
        let curve = match form {
            GeluForm::Tanh => {
                let three = self.number("three", 3.0, dtype)?;
                let cube = self.binary("cube", Binary::Pow, x, three)?;
                let small = self.number("cubic_factor", 0.044715, dtype)?;
                let bent = self.binary("bent", Binary::Mul, small, cube)?;
                let sum = self.binary("sum", Binary::Add, x, bent)?;
                let root = self.number("factor", (2.0 / std::f64::consts::PI).sqrt(), dtype)?;
                let inner = self.binary("inner", Binary::Mul, root, sum)?;
                self.unary("tanh", Unary::Tanh, inner)?
            }
            GeluForm::Erf => {
                let root = self.number("sqrt_2", std::f64::consts::SQRT_2, dtype)?;
                let inner = self.binary("inner", Binary::Div, x, root)?;
                self.unary("erf", Unary::Erf, inner)?
            }
        };
        let one = self.number("one", 1.0, dtype)?;
        let raised = self.binary("raised", Binary::Add, one, curve)?;
        let half = self.number("half", 0.5, dtype)?;
        let share = self.binary("share", Binary::Mul, half, raised)?;
        self.last(Op::Binary(Binary::Mul), &[x, share]);
        Ok(())
    }

    /// `x w + bias`
    fn linear(&mut self, transpose_b: bool) -> Result<()> {
        let (x, w, bias) = (self.input(0)?, self.input(1)?, self.input(2)?);
        let product = Op::MatMul(MatMul { transpose_a: false, transpose_b });
        let product = self.node("product", product, &[x, w])?;
        self.last(Op::BiasAdd, &[product, bias]);
        Ok(())
    }

    /// As google-research/bert writes it: `-Σ one_hot(labels) · log_softmax(x)`.
    fn cross_entropy(&mut self) -> Result<()> {
        let (x, labels) = (self.input(0)?, self.input(1)?);
        let dtype = self.dtype(x)?;
        let depth = match self.extent(x, 1) {
            Some(known) => self.integer("one_hot/depth", known)?,
            None => self.read_extent("one_hot/depth", x, 1)?,
        };
        let on = self.number("one_hot/on_value", 1.0, dtype)?;
        let off = self.number("one_hot/off_value", 0.0, dtype)?;
        let one_hot = Op::OneHot(OneHot { axis: -1 });
        let one_hot = self.node("one_hot", one_hot, &[labels, depth, on, off])?;
        let log_probs = self.node("LogSoftmax", Op::LogSoftmax, &[x])?;
        let product = self.binary("mul", Binary::Mul, log_probs, one_hot)?;
        let axes = self.list("Sum/reduction_indices", &[-1])?;
        let sum = Op::Reduce(Reduce { kind: ReduceKind::Sum, keep_dims: false });
        let sum = self.node("Sum", sum, &[product, axes])?;
        self.last(Op::Unary(Unary::Neg), &[sum]);
        Ok(())
    }

    /// Three lookups, the third the first `s` rows of the position table.
    fn embed(&mut self) -> Result<()> {
        let (ids, types) = (self.input(0)?, self.input(1)?);
        let tables = (self.input(2)?, self.input(3)?, self.input(4)?);
        let axis = self.integer("axis", 0)?;
        let lookup = Op::Gather(Gather { batch_dims: 0 });
        let words = self.node("words", lookup.clone(), &[tables.0, ids, axis])?;
        let types = self.node("token_types", lookup, &[tables.1, types, axis])?;
        let sum = self.binary("sum", Binary::Add, words, types)?;
        let length = self.extent(ids, 1);
        // positions: [s, h]
        let positions = if length.is_some() && length == self.extent(tables.2, 0) {
            tables.2
        } else {
            let begin = self.list("begin", &[0, 0])?;
            let size = match length {
                Some(length) => self.list("size", &[length, -1])?,
                None => {
                    let length = self.read_extent("length", ids, 1)?;
                    let all = self.integer("all", -1)?;
                    self.node("size", Op::Pack(Pack { axis: 0 }), &[length, all])?
                }
            };
            self.node("positions", Op::Slice, &[tables.2, begin, size])?
        };
        self.last(Op::Binary(Binary::Add), &[sum, positions]);
        Ok(())
    }

    /// `softmax(q kᵀ * scale + (1 - mask) * mask_value) v` per head.
    fn attention(&mut self, op: &Attention, masks: &mut Masks) -> Result<()> {
        let (q, k, v) = (self.input(0)?, self.input(1)?, self.input(2)?);
        let mask = self.input(3)?;
        let dtype = self.dtype(q)?;
        let hidden = [q, k, v].iter().find_map(|&x| self.extent(x, 1));
        let hidden = hidden.ok_or_else(|| self.wrong("the number of columns is unknown"))?;
        let heads = i32::try_from(op.heads).ok().filter(|n| *n > 0 && hidden % n == 0);
        let heads = heads.ok_or_else(|| self.wrong(format!("{} heads of {hidden}", op.heads)))?;
        let size = hidden / heads;
        let split = self.split_shape(mask, heads, size)?;
        let forth = self.list("perm", &[0, 2, 1, 3])?;
        let mut per_head = Vec::with_capacity(3);
        for (x, name) in [(q, "query"), (k, "key"), (v, "value")] {
            // [b*s, n*d] -> [b, s, n, d] -> [b, n, s, d]
            let rows = self.node(&format!("{name}_heads"), Op::Reshape, &[x, split])?;
            per_head.push(self.node(name, Op::Transpose, &[rows, forth])?);
        }
        let by_keys = Op::MatMul(MatMul { transpose_a: false, transpose_b: true });
        let scores = self.node("scores", by_keys, &per_head[..2])?;
        let scale = self.number("scale", f64::from(op.scale), dtype)?;
        let scaled = self.binary("scaled", Binary::Mul, scores, scale)?;
        let key = (mask, dtype, op.mask_value.to_bits());
        let adder = match masks.get(&key) {
            Some(&adder) => adder,
            None => {
                let adder = self.mask(mask, dtype, f64::from(op.mask_value))?;
                masks.insert(key, adder);
                adder
            }
        };
        let masked = self.binary("masked", Binary::Add, scaled, adder)?;
        let mut weights = self.node("weights", Op::Softmax, &[masked])?;
        if let Some(steps) = op.steps {
            weights = self.node("weight_steps", Op::FakeQuantize(steps), &[weights])?;
        }
        let context =
            self.node("context", Op::MatMul(MatMul::default()), &[weights, per_head[2]])?;
        let joined = self.node("joined", Op::Transpose, &[context, forth])?;
        let rows = match (self.extent(mask, 0), self.extent(mask, 1)) {
            (Some(b), Some(s)) => b.checked_mul(s).unwrap_or(-1),
            _ => -1,
        };
        let rows = self.list("rows", &[rows, hidden])?;
        self.last(Op::Reshape, &[joined, rows]);
        Ok(())
    }

    /// `(clamp(round(x / scale + zero), 0, 255) - zero) * scale`, with `scale` and `zero` from the
    /// least and the largest number of each row, and 0.
    fn steps_of_rows(&mut self) -> Result<()> {
        let x = self.input(0)?;
        if self.dtype(x)? != DType::F32 {
            return Err(self.wrong("only float32 has steps"));
        }
        let rank = self.facts[x].rank().and_then(|rank| i32::try_from(rank).ok());
        let last = self.list("last", &[rank.map_or(-1, |rank| rank - 1)])?;
        let over_row = |kind| Op::Reduce(Reduce { kind, keep_dims: true });
        let least = self.node("row_least", over_row(ReduceKind::Min), &[x, last])?;
        let most = self.node("row_most", over_row(ReduceKind::Max), &[x, last])?;
        let number = |value: f32| Tensor::from_vec([], vec![value]);
        let nought = self.constant("nought", number(0.0))?;
        let top = self.constant("top", number(255.0))?;
        let least = self.binary("least", Binary::Minimum, least, nought)?;
        let most = self.binary("most", Binary::Maximum, most, nought)?;
        let range = self.binary("range", Binary::Sub, most, least)?;
        let step = self.binary("step", Binary::Div, range, top)?;
        // A row of zeros has steps of 1.
        let smallest = self.constant("smallest", number(f32::MIN_POSITIVE))?;
        let one = self.constant("one", number(1.0))?;
        let flat = self.node("is_flat", Op::Compare(Compare::Less), &[step, smallest])?;
        let scale = self.node("scale", Op::Select, &[flat, one, step])?;
        let below = self.unary("below", Unary::Neg, least)?;
        let zero = self.binary("steps_below", Binary::Div, below, scale)?;
        let zero = self.unary("zero", Unary::Round, zero)?;
        let per_unit = self.unary("per_unit", Unary::Reciprocal, scale)?;
        let steps = self.binary("steps", Binary::Mul, x, per_unit)?;
        let steps = self.binary("from_least", Binary::Add, steps, zero)?;
        let steps = self.unary("whole", Unary::Round, steps)?;
        let steps = self.binary("at_least", Binary::Maximum, steps, nought)?;
        let bytes = self.binary("bytes", Binary::Minimum, steps, top)?;
        let from_zero = self.binary("from_zero", Binary::Sub, bytes, zero)?;
        self.last(Op::Binary(Binary::Mul), &[from_zero, scale]);
        Ok(())
    }

    /// `numbers(bytes) * scales`, the scales along their axis.
    fn scaled(&mut self, axis: i64) -> Result<()> {
        let (bytes, scales) = (self.input(0)?, self.input(1)?);
        let rank = self.facts[bytes].rank().and_then(|rank| i64::try_from(rank).ok());
        let rank = rank.ok_or_else(|| self.wrong("the number of axes is unknown"))?;
        // Axes behind the one that the scales belong to.
        let behind = if axis < 0 { -1 - axis } else { rank - 1 - axis };
        let one = self.facts[scales].known_dims().as_deref() == Some(&[1]);
        let mut factors = scales;
        if !one && behind > 0 {
            let mut shape = vec![-1];
            shape.resize(1 + usize::try_from(behind).unwrap_or_default(), 1);
            let shape = self.list("scales_shape", &shape)?;
            factors = self.node("scales_shaped", Op::Reshape, &[scales, shape])?;
        }
        let numbers = self.node("numbers", Op::Cast(Cast { to: DType::F32 }), &[bytes])?;
        self.last(Op::Binary(Binary::Mul), &[numbers, factors]);
        Ok(())
    }

    /// `[b, s, n, d]`, with -1 for one extent that is not known and, where both are not, the
    /// length read off the mask.
    fn split_shape(&mut self, mask: Value, heads: i32, size: i32) -> Result<Value> {
        match (self.extent(mask, 0), self.extent(mask, 1)) {
            (batch, Some(length)) => {
                self.list("split", &[batch.unwrap_or(-1), length, heads, size])
            }
            (Some(batch), None) => self.list("split", &[batch, -1, heads, size]),
            (None, None) => {
                let batch = self.integer("batch", -1)?;
                let length = self.read_extent("length", mask, 1)?;
                let heads = self.integer("heads", heads)?;
                let size = self.integer("head_size", size)?;
                self.node("split", Op::Pack(Pack { axis: 0 }), &[batch, length, heads, size])
            }
        }
    }

    /// `(1 - mask) * value` as `[b, 1, 1, s]`.
    fn mask(&mut self, mask: Value, dtype: DType, value: f64) -> Result<Value> {
        let axis = self.integer("mask_axis", 1)?;
        let mut keys = mask;
        if self.facts[mask].dtype != Some(dtype) {
            keys = self.node("mask_float", Op::Cast(Cast { to: dtype }), &[keys])?;
        }
        keys = self.node("mask_per_head", Op::ExpandDims, &[keys, axis])?;
        keys = self.node("mask_per_query", Op::ExpandDims, &[keys, axis])?;
        let one = self.number("mask_one", 1.0, dtype)?;
        let padding = self.binary("padding", Binary::Sub, one, keys)?;
        let value = self.number("mask_value", value, dtype)?;
        self.binary("mask", Binary::Mul, padding, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Gelu, LayerNorm, Linear, Steps};
    use crate::pass::{Fusions, fuse};
    use crate::testing::Build;
    use crate::{Dim, Fact};

    /// One of each fused operation, over ids and a mask of the given extents.
    fn model(batch: &Dim, length: &Dim) -> Build {
        let mut g = Build::default();
        let dims = [batch.clone(), length.clone()];
        for name in ["ids", "mask", "segments"] {
            g.input(name, DType::I32, &dims);
        }
        for (name, shape) in [
            ("word", &[30, 8][..]),
            ("type", &[2, 8]),
            ("position", &[9, 8]),
            ("gamma", &[8]),
            ("beta", &[8]),
            ("w", &[8, 8]),
            ("bias", &[8]),
        ] {
            g.weight(name, shape);
        }
        g.list("to_rows", &[-1, 8]);
        g.node("embed", Op::Embed, &["ids", "segments", "word", "type", "position"]);
        let norm = Op::LayerNorm(LayerNorm { epsilon: 1e-12 });
        g.node("norm", norm, &["embed", "gamma", "beta"]);
        g.node("rows", Op::Reshape, &["norm", "to_rows"]);
        for (name, transpose_w) in [("q", false), ("k", true), ("v", false)] {
            g.node(name, Op::Linear(Linear { transpose_w }), &["rows", "w", "bias"]);
        }
        let attention = Op::Attention(Attention {
            heads: 2,
            scale: 0.5,
            mask_value: -10000.0,
            packed: false,
            steps: Some(Steps::Tensor { scale: 1.0 / 255.0, zero: 0 }),
        });
        g.node("attention", attention.clone(), &["q", "k", "v", "mask"]);
        g.node("attention_1", attention, &["q", "k", "attention", "mask"]);
        g.node("gelu", Op::Gelu(Gelu { form: GeluForm::Tanh }), &["attention_1"]);
        g.node("gelu_1", Op::Gelu(Gelu { form: GeluForm::Erf }), &["gelu"]);
        g.output("gelu_1");
        g
    }

    fn facts_of(g: &Build) -> Vec<(String, Fact)> {
        let facts = infer(&g.graph).unwrap();
        let names = ["embed", "norm", "q", "attention", "gelu", "gelu_1"];
        names.map(|name| (name.to_owned(), facts[g.value(name)].clone())).to_vec()
    }

    #[test]
    fn what_is_lowered_is_raised_to_the_same() {
        let sizes = [Dim::batch(), Dim::known(3)];
        let lengths = [Dim::seq(), Dim::known(6), Dim::known(9)];
        for (batch, length) in
            sizes.iter().flat_map(|batch| lengths.iter().map(move |length| (batch, length)))
        {
            let mut g = model(batch, length);
            let before = g.graph.clone();
            let facts = facts_of(&g);
            let report = lower(&mut g.graph, &|_| false).unwrap();
            assert_eq!(report.count("lower"), 9);
            let fused = ["Embed", "LayerNorm", "Linear", "Attention", "Gelu"];
            assert!(fused.iter().all(|kind| g.of_kind(kind).is_empty()));
            assert_eq!(facts_of(&g), facts);
            let report = fuse(&mut g.graph, &Fusions::all()).unwrap();
            assert!(report.missed.is_empty(), "{report:?}");
            g.graph.prune();
            assert_eq!(crate::dump(&g.graph), crate::dump(&before));
        }
    }

    #[test]
    fn what_the_target_has_is_kept() {
        let mut g = model(&Dim::batch(), &Dim::known(6));
        let report = lower(&mut g.graph, &|op| !matches!(op, Op::Gelu(_))).unwrap();
        assert_eq!(report.count("lower"), 2);
        assert_eq!(report.done[0].to_string(), "lower: `gelu`: Gelu became 13 nodes");
        assert_eq!(g.of_kind("Tanh"), ["gelu/tanh"]);
        assert_eq!(g.of_kind("Attention"), ["attention", "attention_1"]);
    }

    #[test]
    fn the_mask_is_made_once() {
        let mut g = model(&Dim::batch(), &Dim::seq());
        lower(&mut g.graph, &|_| false).unwrap();
        assert_eq!(g.of_kind("Cast"), ["attention/mask_float"]);
    }
}
