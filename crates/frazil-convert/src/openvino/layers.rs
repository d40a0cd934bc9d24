//! One row for each type of layer: which operations compute it.

use frazil_graph::Value;
use frazil_graph::op::{
    ArgMax, Binary, Compare, Gather, Gelu, GeluForm, MatMul, OneHot, Op, Pack, Reduce, ReduceKind,
    ShapeOp, Split, Squeeze, StridedSlice, Unary,
};
use frazil_tensor::{DType, Tensor};

use super::import::Importer;
use super::read::RawLayer;
use crate::Result;

impl Importer<'_> {
    /// The values of a layer's outputs. A layer that frazil has no operation for, or not in this
    /// form, is carried by name.
    pub(super) fn layer(&mut self, layer: &RawLayer, read: &[Value]) -> Result<Vec<Value>> {
        if layer.kind == "Const" {
            return self.constant(layer);
        }
        if let Some((op, arity)) = plain(&layer.kind) {
            if read.len() == arity && broadcasts(layer) {
                return Ok(vec![self.node(layer, op, read)?]);
            }
            return self.foreign(layer, read);
        }
        match self.special(layer, read)? {
            Some(values) if values.len() >= layer.outputs.len() => Ok(values),
            _ => self.foreign(layer, read),
        }
    }

    fn special(&mut self, layer: &RawLayer, read: &[Value]) -> Result<Option<Vec<Value>>> {
        let one = |value: Value| Ok(Some(vec![value]));
        match (layer.kind.as_str(), read) {
            ("Convert", &[x]) => self.convert(layer, x).map(Some),
            ("ConvertLike", &[x, _]) => {
                let Some(to) = layer.inputs[1].dtype else { return Ok(None) };
                one(self.node(layer, Op::Cast(frazil_graph::op::Cast { to }), &[x])?)
            }
            ("MatMul", &[a, b]) => {
                let op = MatMul {
                    transpose_a: self.truth(layer, "transpose_a", false)?,
                    transpose_b: self.truth(layer, "transpose_b", false)?,
                };
                one(self.node(layer, Op::MatMul(op), &[a, b])?)
            }
            (kind, &[x, axes]) if reduction(kind).is_some() => {
                let Some(kind) = reduction(kind) else { return Ok(None) };
                let keep_dims = self.truth(layer, "keep_dims", false)?;
                one(self.node(layer, Op::Reduce(Reduce { kind, keep_dims }), &[x, axes])?)
            }
            ("SoftMax" | "LogSoftmax", &[x]) => {
                let axis = match layer.get("axis") {
                    Some(_) => self.number::<i64>(layer, "axis")?,
                    None => 1,
                };
                let rank = layer.inputs[0].dims.len() as i64;
                if axis != -1 && axis != rank - 1 {
                    return Ok(None);
                }
                let op = if layer.kind == "SoftMax" { Op::Softmax } else { Op::LogSoftmax };
                one(self.node(layer, op, &[x])?)
            }
            ("Gelu", &[x]) => {
                let form = match layer.get("approximation_mode").map(str::to_ascii_lowercase) {
                    None => GeluForm::Erf,
                    Some(mode) if mode == "erf" => GeluForm::Erf,
                    Some(mode) if mode == "tanh" => GeluForm::Tanh,
                    Some(_) => return Ok(None),
                };
                one(self.node(layer, Op::Gelu(Gelu { form }), &[x])?)
            }
            ("Round", &[x]) => {
                let mode = layer.get("mode").unwrap_or("half_to_even");
                if !mode.eq_ignore_ascii_case("half_to_even") {
                    return Ok(None);
                }
                one(self.node(layer, Op::Unary(Unary::Round), &[x])?)
            }
            ("FakeQuantize", &[_, _, _, _, _]) => self.fake_quantize(layer, read),
            ("MVN", &[x, axes]) => self.mvn(layer, x, axes),
            ("ShapeOf", &[x]) => {
                let to = match layer.get("output_type") {
                    Some(_) => self.dtype_attribute(layer, "output_type")?,
                    None => DType::I64,
                };
                one(self.node(layer, Op::Shape(ShapeOp { to }), &[x])?)
            }
            ("Reshape", &[x, shape]) => {
                let zeros = self.truth(layer, "special_zero", false)?;
                let shape = if zeros { self.fill_zeros(layer, x, shape)? } else { shape };
                one(self.node(layer, Op::Reshape, &[x, shape])?)
            }
            ("Squeeze", &[x]) => {
                one(self.node(layer, Op::Squeeze(Squeeze { axes: vec![] }), &[x])?)
            }
            ("Squeeze", &[x, axes]) => {
                let Some(axes) = self.integers(axes) else { return Ok(None) };
                one(self.node(layer, Op::Squeeze(Squeeze { axes }), &[x])?)
            }
            ("Unsqueeze", &[x, axes]) => self.unsqueeze(layer, x, axes),
            ("Concat", parts) if !parts.is_empty() => {
                let axis = self.number::<i64>(layer, "axis")?;
                let axis = self.scalar(layer, "axis", axis)?;
                one(self.node(layer, Op::Concat, &[parts, &[axis]].concat())?)
            }
            ("Split", &[x, axis]) => {
                let count = self.number::<usize>(layer, "num_splits")?;
                if count != layer.outputs.len() {
                    return Err(layer.wrong("`num_splits` is not its number of outputs"));
                }
                let node = self.node(layer, Op::Split(Split { count }), &[axis, x])?.node;
                Ok(Some((0..count as u32).map(|port| Value { node, port }).collect()))
            }
            ("VariadicSplit", &[x, axis, sizes]) => {
                let count = layer.outputs.len();
                let node = self.node(layer, Op::SplitV(Split { count }), &[x, sizes, axis])?.node;
                Ok(Some((0..count as u32).map(|port| Value { node, port }).collect()))
            }
            ("StridedSlice", &[x, begin, end]) => {
                let Some(entries) = self.integers(begin) else { return Ok(None) };
                let strides = self.list(layer, "strides", vec![1; entries.len()])?;
                one(self.strided(layer, &[x, begin, end, strides])?)
            }
            ("StridedSlice", &[_, _, _, _]) => one(self.strided(layer, read)?),
            ("Slice", &[x, start, stop, step]) => self.slice(layer, x, [start, stop, step], None),
            ("Slice", &[x, start, stop, step, axes]) => {
                self.slice(layer, x, [start, stop, step], Some(axes))
            }
            ("Gather", &[table, indices, axis]) => {
                let batch_dims = match layer.get("batch_dims") {
                    Some(_) => self.number::<usize>(layer, "batch_dims")?,
                    None => 0,
                };
                let op = Op::Gather(Gather { batch_dims });
                one(self.node(layer, op, &[table, indices, axis])?)
            }
            ("OneHot", &[_, _, _, _]) => {
                let axis = self.number::<i64>(layer, "axis")?;
                one(self.node(layer, Op::OneHot(OneHot { axis }), read)?)
            }
            ("Range", &[_, _, _]) => one(self.node(layer, Op::Range, read)?),
            ("Tile", &[_, _]) => one(self.node(layer, Op::Tile, read)?),
            ("Transpose", &[_, order]) if self.integers(order).is_none_or(|o| !o.is_empty()) => {
                one(self.node(layer, Op::Transpose, read)?)
            }
            ("Broadcast", &[x, shape]) => {
                if !layer.get("mode").is_none_or(|mode| mode.eq_ignore_ascii_case("numpy")) {
                    return Ok(None);
                }
                one(self.node(layer, Op::BroadcastTo, &[x, shape])?)
            }
            ("Pad", &[x, begin, end]) => self.pad(layer, x, begin, end, None),
            ("Pad", &[x, begin, end, border]) => self.pad(layer, x, begin, end, Some(border)),
            ("TopK", &[x, k]) => self.top_k(layer, x, k),
            ("ScaledDotProductAttention", &[q, k, v, ref rest @ ..]) if rest.len() <= 2 => {
                self.attention(layer, [q, k, v], rest)
            }
            _ => Ok(None),
        }
    }

    /// `(x - mean) / sqrt(variance + eps)` over given axes, in one node each.
    fn mvn(&mut self, layer: &RawLayer, x: Value, axes: Value) -> Result<Option<Vec<Value>>> {
        let inside = match layer.get("eps_mode").map(str::to_ascii_lowercase).as_deref() {
            Some("inside_sqrt") => true,
            Some("outside_sqrt") => false,
            _ => return Ok(None),
        };
        if layer.inputs[0].dtype != Some(DType::F32) {
            return Ok(None);
        }
        let epsilon = self.number::<f32>(layer, "eps")?;
        let full = self.truth(layer, "normalize_variance", true)?;
        let (add, sub) = (Op::Binary(Binary::Add), Op::Binary(Binary::Sub));
        let mean = Reduce { kind: ReduceKind::Mean, keep_dims: true };
        let average = self.step(layer, "mean", Op::Reduce(mean), &[x, axes])?;
        if !full {
            return Ok(Some(vec![self.node(layer, sub, &[x, average])?]));
        }
        let epsilon = self.scalar(layer, "epsilon", epsilon)?;
        let difference = self.step(layer, "centred", sub, &[x, average])?;
        let squares = Op::Binary(Binary::SquaredDifference);
        let squares = self.step(layer, "squares", squares, &[x, average])?;
        let variance = self.step(layer, "variance", Op::Reduce(mean), &[squares, axes])?;
        let factor = if inside {
            let sum = self.step(layer, "sum", add, &[variance, epsilon])?;
            self.step(layer, "rsqrt", Op::Unary(Unary::Rsqrt), &[sum])?
        } else {
            let root = self.step(layer, "root", Op::Unary(Unary::Sqrt), &[variance])?;
            let sum = self.step(layer, "sum", add, &[root, epsilon])?;
            self.step(layer, "factor", Op::Unary(Unary::Reciprocal), &[sum])?
        };
        let product = Op::Binary(Binary::Mul);
        Ok(Some(vec![self.node(layer, product, &[difference, factor])?]))
    }

    /// A target shape with the extents of `x` where it has a 0.
    fn fill_zeros(&mut self, layer: &RawLayer, x: Value, shape: Value) -> Result<Value> {
        let entries = match self.integers(shape) {
            Some(entries) if !entries.contains(&0) => return Ok(shape),
            Some(entries) => entries.len(),
            None => match layer.inputs[1].dims.as_slice() {
                [n] if *n >= 0 => *n as usize,
                _ => return Err(layer.wrong("the size of its target shape is not known")),
            },
        };
        let to = layer.inputs[1].dtype.unwrap_or(DType::I64);
        if !matches!(to, DType::I32 | DType::I64) {
            return Err(layer.wrong("its target shape is neither i32 nor i64"));
        }
        let dims = self.step(layer, "dims", Op::Shape(ShapeOp { to }), &[x])?;
        let (begin, step) =
            (self.list(layer, "begin", vec![0])?, self.list(layer, "step", vec![1])?);
        let end = self.list(layer, "end", vec![entries as i64])?;
        let first = Op::StridedSlice(StridedSlice::default());
        let dims = self.step(layer, "first", first, &[dims, begin, end, step])?;
        let zero = match to {
            DType::I32 => self.scalar(layer, "zero", 0i32)?,
            _ => self.scalar(layer, "zero", 0i64)?,
        };
        let test = self.step(layer, "zeros", Op::Compare(Compare::Equal), &[shape, zero])?;
        self.step(layer, "shape", Op::Select, &[test, dims, shape])
    }

    /// One axis after the other, from the front.
    fn unsqueeze(&mut self, layer: &RawLayer, x: Value, axes: Value) -> Result<Option<Vec<Value>>> {
        let Some(list) = self.integers(axes) else { return Ok(None) };
        let rank = (layer.inputs[0].dims.len() + list.len()) as i64;
        let mut places: Vec<i64> = list
            .iter()
            .map(|&axis| if axis < 0 { axis.saturating_add(rank) } else { axis })
            .collect();
        places.sort_unstable();
        let Some((&last, rest)) = places.split_last() else { return Ok(None) };
        let mut value = x;
        for &place in rest {
            let axis = self.scalar(layer, "axis", place)?;
            value = self.step(layer, "expanded", Op::ExpandDims, &[value, axis])?;
        }
        // A single axis stays as it is written: it may count from the end.
        let last = if rest.is_empty() { list[0] } else { last };
        let axis = self.scalar(layer, "axis", last)?;
        Ok(Some(vec![self.node(layer, Op::ExpandDims, &[value, axis])?]))
    }

    fn strided(&mut self, layer: &RawLayer, read: &[Value]) -> Result<Value> {
        let mask = |key: &str| -> Result<u32> {
            let mut bits = 0;
            for (i, bit) in layer.get(key).unwrap_or_default().split(',').enumerate() {
                match bit.trim() {
                    "1" if i < 32 => bits |= 1 << i,
                    "0" | "" => {}
                    _ => return Err(layer.wrong(format!("`{key}` is no list of 32 bits at most"))),
                }
            }
            Ok(bits)
        };
        let op = StridedSlice {
            begin_mask: mask("begin_mask")?,
            end_mask: mask("end_mask")?,
            ellipsis_mask: mask("ellipsis_mask")?,
            new_axis_mask: mask("new_axis_mask")?,
            shrink_axis_mask: mask("shrink_axis_mask")?,
        };
        self.node(layer, Op::StridedSlice(op), read)
    }

    /// A window over some axes becomes one over all of them.
    fn slice(
        &mut self,
        layer: &RawLayer,
        x: Value,
        ends: [Value; 3],
        axes: Option<Value>,
    ) -> Result<Option<Vec<Value>>> {
        let [Some(start), Some(stop), Some(step)] = ends.map(|value| self.integers(value)) else {
            return Ok(None);
        };
        let rank = layer.inputs[0].dims.len();
        let axes = match axes {
            None => (0..start.len() as i64).collect(),
            Some(axes) => match self.integers(axes) {
                Some(axes) => axes,
                None => return Ok(None),
            },
        };
        let n = axes.len();
        if rank > 31 || [&start, &stop, &step].iter().any(|list| list.len() != n) {
            return Ok(None);
        }
        let all = (1u32 << rank) - 1;
        let mut masks = StridedSlice { begin_mask: all, end_mask: all, ..StridedSlice::default() };
        let (mut begin, mut end, mut strides) = (vec![0; rank], vec![0; rank], vec![1; rank]);
        for (i, axis) in axes.into_iter().enumerate() {
            let place = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
            let Some(place) = usize::try_from(place).ok().filter(|place| *place < rank) else {
                return Err(layer.wrong(format!("axis {axis} is not among its {rank}")));
            };
            (begin[place], end[place], strides[place]) = (start[i], stop[i], step[i]);
            masks.begin_mask &= !(1 << place);
            masks.end_mask &= !(1 << place);
        }
        let begin = self.list(layer, "begin", begin)?;
        let end = self.list(layer, "end", end)?;
        let strides = self.list(layer, "strides", strides)?;
        let op = Op::StridedSlice(masks);
        Ok(Some(vec![self.node(layer, op, &[x, begin, end, strides])?]))
    }

    fn pad(
        &mut self,
        layer: &RawLayer,
        x: Value,
        begin: Value,
        end: Value,
        border: Option<Value>,
    ) -> Result<Option<Vec<Value>>> {
        let constant = layer.get("pad_mode").is_none_or(|m| m.eq_ignore_ascii_case("constant"));
        if !constant {
            return Ok(None);
        }
        // begin, end: [rank]  pairs: [rank, 2]
        let pairs = match (self.integers(begin), self.integers(end)) {
            (Some(begin), Some(end)) if begin.len() == end.len() => {
                let pairs: Vec<i64> =
                    begin.into_iter().zip(end).flat_map(|(a, b)| [a, b]).collect();
                let tensor = Tensor::from_vec([pairs.len() / 2, 2], pairs)?;
                self.step(layer, "paddings", Op::constant(tensor), &[])?
            }
            _ => {
                let pack = Op::Pack(Pack { axis: 1 });
                self.step(layer, "paddings", pack, &[begin, end])?
            }
        };
        let mut inputs = vec![x, pairs];
        inputs.extend(border);
        Ok(Some(vec![self.node(layer, Op::Pad, &inputs)?]))
    }

    /// The largest element's place, which is all that frazil has of it.
    fn top_k(&mut self, layer: &RawLayer, x: Value, k: Value) -> Result<Option<Vec<Value>>> {
        let largest = layer.get("mode") == Some("max") && self.integers(k).as_deref() == Some(&[1]);
        if !largest {
            return Ok(None);
        }
        let to = match layer.get("index_element_type") {
            Some(_) => self.dtype_attribute(layer, "index_element_type")?,
            None => DType::I32,
        };
        let axis = self.number::<i64>(layer, "axis")?;
        let axis = self.scalar(layer, "axis", axis)?;
        let max = Reduce { kind: ReduceKind::Max, keep_dims: true };
        let best = self.step(layer, "best", Op::Reduce(max), &[x, axis])?;
        let place = self.step(layer, "place", Op::ArgMax(ArgMax { to }), &[x, axis])?;
        let place = self.node(layer, Op::ExpandDims, &[place, axis])?;
        Ok(Some(vec![best, place]))
    }

    /// softmax(q kᵀ · scale + mask) v
    fn attention(
        &mut self,
        layer: &RawLayer,
        [q, k, v]: [Value; 3],
        rest: &[Value],
    ) -> Result<Option<Vec<Value>>> {
        if self.truth(layer, "causal", false)? || layer.inputs[0].dtype != Some(DType::F32) {
            return Ok(None);
        }
        let scale = match (rest.get(1), layer.inputs[0].dims.last()) {
            (Some(scale), _) => *scale,
            (None, Some(&d)) if d > 0 => self.scalar(layer, "scale", 1.0 / (d as f32).sqrt())?,
            _ => return Ok(None),
        };
        if !rest.is_empty() && layer.inputs[3].dtype != Some(DType::F32) {
            return Ok(None);
        }
        let product = MatMul { transpose_a: false, transpose_b: true };
        let scores = self.step(layer, "scores", Op::MatMul(product), &[q, k])?;
        let mut scores = self.step(layer, "scaled", Op::Binary(Binary::Mul), &[scores, scale])?;
        if let Some(mask) = rest.first() {
            scores = self.step(layer, "masked", Op::Binary(Binary::Add), &[scores, *mask])?;
        }
        let shares = self.step(layer, "shares", Op::Softmax, &[scores])?;
        let op = Op::MatMul(MatMul::default());
        Ok(Some(vec![self.node(layer, op, &[shares, v])?]))
    }
}

/// Layers that are one operation without attributes, and their number of inputs.
fn plain(kind: &str) -> Option<(Op, usize)> {
    let unary = |kind| Some((Op::Unary(kind), 1));
    let binary = |kind| Some((Op::Binary(kind), 2));
    let compare = |kind| Some((Op::Compare(kind), 2));
    match kind {
        "Negative" => unary(Unary::Neg),
        "Abs" => unary(Unary::Abs),
        "Sign" => unary(Unary::Sign),
        "Exp" => unary(Unary::Exp),
        "Log" => unary(Unary::Log),
        "Sqrt" => unary(Unary::Sqrt),
        "Floor" => unary(Unary::Floor),
        "Sin" => unary(Unary::Sin),
        "Cos" => unary(Unary::Cos),
        "Tanh" => unary(Unary::Tanh),
        "Erf" => unary(Unary::Erf),
        "Sigmoid" => unary(Unary::Sigmoid),
        "ReLU" => unary(Unary::Relu),
        "LogicalNot" => unary(Unary::Not),
        "Add" => binary(Binary::Add),
        "Subtract" => binary(Binary::Sub),
        "Multiply" => binary(Binary::Mul),
        "Divide" => binary(Binary::Div),
        "FloorMod" => binary(Binary::FloorMod),
        "Power" => binary(Binary::Pow),
        "Maximum" => binary(Binary::Maximum),
        "Minimum" => binary(Binary::Minimum),
        "SquaredDifference" => binary(Binary::SquaredDifference),
        "LogicalAnd" => binary(Binary::And),
        "LogicalOr" => binary(Binary::Or),
        "Equal" => compare(Compare::Equal),
        "NotEqual" => compare(Compare::NotEqual),
        "Less" => compare(Compare::Less),
        "LessEqual" => compare(Compare::LessEqual),
        "Greater" => compare(Compare::Greater),
        "GreaterEqual" => compare(Compare::GreaterEqual),
        "Select" => Some((Op::Select, 3)),
        _ => None,
    }
}

/// Whether the layer broadcasts as numpy does, or not at all.
fn broadcasts(layer: &RawLayer) -> bool {
    layer.get("auto_broadcast").is_none_or(|mode| mode == "numpy" || mode == "none")
}

fn reduction(kind: &str) -> Option<ReduceKind> {
    Some(match kind {
        "ReduceMean" => ReduceKind::Mean,
        "ReduceSum" => ReduceKind::Sum,
        "ReduceMax" => ReduceKind::Max,
        "ReduceMin" => ReduceKind::Min,
        "ReduceProd" => ReduceKind::Prod,
        "ReduceLogicalAnd" => ReduceKind::All,
        "ReduceLogicalOr" => ReduceKind::Any,
        _ => return None,
    })
}
