//! One row for each operation: which layers compute it. No layer is newer than operation set 8,
//! so that OpenVINO 2022.1 reads what is written.

use frazil_graph::op::{Binary, Compare, GeluForm, ReduceKind, StridedSlice, Unary};
use frazil_graph::{Dim, NodeId, Op, Value};
use frazil_tensor::{DType, Tensor};

use super::TARGET;
use super::build::{Builder, Built, Draft, layer, refuse};
use super::net::{Out, Wire, type_names};

impl Builder<'_> {
    /// Adds the layers of one node. Constants wait until they are read.
    pub(super) fn node(&mut self, id: NodeId) -> Built<()> {
        let graph = self.graph;
        let node = graph.node(id);
        let value = Value::from(id);
        let input = |i: usize| node.inputs[i];
        match &node.op {
            Op::Input(_) | Op::InputWithDefault(_) => Ok(()), // came first
            Op::Const(constant) => match type_names(constant.value.dtype()) {
                Some(_) => Ok(()),
                None => refuse(format!("{TARGET} has no {}", constant.value.dtype())),
            },
            Op::Variable(_) | Op::ReadVariable(_) => {
                refuse("its value is in a checkpoint; freeze the graph first")
            }
            Op::Unary(kind) => self.unary(id, *kind),
            Op::Binary(kind) => self.binary(id, *kind),
            Op::Compare(kind) => {
                let kind = match kind {
                    Compare::Equal => "Equal",
                    Compare::NotEqual => "NotEqual",
                    Compare::Less => "Less",
                    Compare::LessEqual => "LessEqual",
                    Compare::Greater => "Greater",
                    Compare::GreaterEqual => "GreaterEqual",
                };
                let inputs = self.inputs(id)?;
                self.finish(id, layer(kind, 1, inputs).broadcasting())
            }
            Op::AddN => {
                let inputs = self.inputs(id)?;
                let Some((&last, rest)) = inputs.split_last() else {
                    return refuse("adds nothing");
                };
                let Some((&first, rest)) = rest.split_first() else {
                    return self.alias(value, input(0));
                };
                let mut sum = first;
                for &next in rest {
                    let out = self.out(value)?;
                    sum = self.step(id, "sum", layer("Add", 1, [sum, next]).broadcasting(), out);
                }
                self.finish(id, layer("Add", 1, [sum, last]).broadcasting())
            }
            Op::BiasAdd => {
                let inputs = self.inputs(id)?;
                self.finish(id, layer("Add", 1, inputs).broadcasting())
            }
            Op::Cast(op) => self.cast(id, op.to),
            Op::Select => {
                let inputs = self.inputs(id)?;
                self.finish(id, layer("Select", 1, inputs).broadcasting())
            }
            Op::MatMul(op) => {
                let inputs = self.inputs(id)?;
                self.finish(id, matmul(inputs, op.transpose_a, op.transpose_b))
            }
            Op::Reduce(op) => {
                let kind = match op.kind {
                    ReduceKind::Mean => "ReduceMean",
                    ReduceKind::Sum => "ReduceSum",
                    ReduceKind::Max => "ReduceMax",
                    ReduceKind::Min => "ReduceMin",
                    ReduceKind::Prod => "ReduceProd",
                    ReduceKind::All => "ReduceLogicalAnd",
                    ReduceKind::Any => "ReduceLogicalOr",
                };
                let inputs = self.inputs(id)?;
                self.finish(id, layer(kind, 1, inputs).with("keep_dims", op.keep_dims))
            }
            Op::ArgMax(op) => self.arg_max(id, op.to),
            Op::Softmax => {
                let x = self.wire(input(0))?;
                self.finish(id, layer("SoftMax", 8, [x]).with("axis", -1))
            }
            Op::LogSoftmax => {
                let x = self.wire(input(0))?;
                self.finish(id, layer("LogSoftmax", 5, [x]).with("axis", -1))
            }
            Op::Shape(op) => {
                let x = self.wire(input(0))?;
                let to = index_type(op.to)?;
                self.finish(id, layer("ShapeOf", 3, [x]).with("output_type", to))
            }
            Op::Size(op) => {
                let x = self.wire(input(0))?;
                let dims = self.shape_of(id, x, op.to)?;
                let axes = self.list(id, "axes", &[0]);
                self.finish(id, layer("ReduceProd", 1, [dims, axes]).with("keep_dims", false))
            }
            Op::Rank => {
                let x = self.wire(input(0))?;
                let dims = self.shape_of(id, x, DType::I32)?;
                let out = Out { dtype: DType::I32, dims: Some(vec![Dim::known(1)]), names: vec![] };
                let draft = layer("ShapeOf", 3, [dims]).with("output_type", "i32");
                let rank = self.step(id, "rank", draft, out);
                let axes = self.list(id, "axes", &[0]);
                self.finish(id, layer("Squeeze", 1, [rank, axes]))
            }
            Op::Reshape => {
                let inputs = self.inputs(id)?;
                self.finish(id, layer("Reshape", 1, inputs).with("special_zero", false))
            }
            Op::ExpandDims => {
                let inputs = self.inputs(id)?;
                self.finish(id, layer("Unsqueeze", 1, inputs))
            }
            Op::Squeeze(op) => {
                let mut inputs = self.inputs(id)?;
                if !op.axes.is_empty() {
                    inputs.push(self.list(id, "axes", &op.axes));
                }
                self.finish(id, layer("Squeeze", 1, inputs))
            }
            Op::Transpose => {
                let inputs = self.inputs(id)?;
                self.finish(id, layer("Transpose", 1, inputs))
            }
            Op::Concat => {
                let (axis, parts) = node.inputs.split_last().expect("a checked number of inputs");
                let axis = self.integer(*axis, "axis")?;
                let parts = parts.iter().map(|part| self.wire(*part)).collect::<Built<Vec<_>>>()?;
                self.finish(id, layer("Concat", 1, parts).with("axis", axis))
            }
            Op::Pack(op) => self.pack(id, op.axis),
            Op::Unpack(op) => self.unpack(id, op.axis, op.count),
            Op::Split(op) => {
                let (axis, x) = (self.wire(input(0))?, self.wire(input(1))?);
                self.finish(id, layer("Split", 1, [x, axis]).with("num_splits", op.count))
            }
            Op::SplitV(_) => {
                let (x, sizes, axis) =
                    (self.wire(input(0))?, self.wire(input(1))?, self.wire(input(2))?);
                self.finish(id, layer("VariadicSplit", 1, [x, axis, sizes]))
            }
            Op::Slice => self.slice(id),
            Op::StridedSlice(op) => {
                let entries = self.entries(input(1))?;
                let inputs = self.inputs(id)?;
                self.finish(id, strided_slice(inputs, op, entries))
            }
            Op::Gather(op) => {
                let inputs = self.inputs(id)?;
                self.finish(id, layer("Gather", 8, inputs).with("batch_dims", op.batch_dims))
            }
            Op::OneHot(op) => {
                let inputs = self.inputs(id)?;
                self.finish(id, layer("OneHot", 1, inputs).with("axis", op.axis))
            }
            Op::Range => {
                let (_, to) = type_names(self.dtype(value)?).expect("`dtype` checked the type");
                let inputs = self.inputs(id)?;
                self.finish(id, layer("Range", 4, inputs).with("output_type", to))
            }
            Op::Fill => {
                let (dims, x) = (self.wire(input(0))?, self.wire(input(1))?);
                self.finish(id, layer("Broadcast", 3, [x, dims]).with("mode", "numpy"))
            }
            Op::Tile => {
                let inputs = self.inputs(id)?;
                self.finish(id, layer("Tile", 1, inputs))
            }
            Op::BroadcastTo => {
                let inputs = self.inputs(id)?;
                self.finish(id, layer("Broadcast", 3, inputs).with("mode", "numpy"))
            }
            Op::Pad => self.pad(id),
            Op::LayerNorm(op) => {
                let inputs = self.inputs(id)?;
                let axes = self.list(id, "axes", &[-1]);
                let out = self.out(value)?;
                let draft = layer("MVN", 6, [inputs[0], axes])
                    .with("eps", f64::from(op.epsilon))
                    .with("normalize_variance", true)
                    .with("eps_mode", "INSIDE_SQRT");
                let normal = self.step(id, "mvn", draft, out.clone());
                let draft = layer("Multiply", 1, [normal, inputs[1]]).broadcasting();
                let scaled = self.step(id, "gamma", draft, out);
                self.finish(id, layer("Add", 1, [scaled, inputs[2]]).broadcasting())
            }
            Op::Gelu(op) => {
                let x = self.wire(input(0))?;
                let form = match op.form {
                    GeluForm::Tanh => "TANH",
                    GeluForm::Erf => "ERF",
                };
                self.finish(id, layer("Gelu", 7, [x]).with("approximation_mode", form))
            }
            Op::Linear(op) => {
                let inputs = self.inputs(id)?;
                let draft = matmul(vec![inputs[0], inputs[1]], false, op.transpose_w);
                let out = self.out(value)?;
                let product = self.step(id, "MatMul", draft, out);
                self.finish(id, layer("Add", 1, [product, inputs[2]]).broadcasting())
            }
            Op::Embed | Op::Attention(_) => refuse("it has to be lowered first"),
            Op::PackRows(_) | Op::UnpackRows => {
                refuse("packed rows are for running: export the graph before packing")
            }
            Op::FakeQuantize(steps) => self.fake_quantize(id, *steps),
            Op::Scaled(op) => self.scaled(id, op.axis),
            Op::Training(_) => refuse("training is for running: export the graph without it"),
            Op::Quantize(_)
            | Op::Dequantize
            | Op::Requantize(_)
            | Op::QuantizedLinear
            | Op::Foreign(_) => refuse(format!("{TARGET} has no such operation")),
        }
    }

    fn unary(&mut self, id: NodeId, kind: Unary) -> Built<()> {
        let from = self.graph.node(id).inputs[0];
        let x = self.wire(from)?;
        let plain = |kind| layer(kind, 1, [x]);
        let draft = match kind {
            Unary::Identity | Unary::StopGradient => return self.alias(id.into(), from),
            Unary::Neg => plain("Negative"),
            Unary::Abs => plain("Abs"),
            Unary::Sign => plain("Sign"),
            Unary::Exp => plain("Exp"),
            Unary::Log => plain("Log"),
            Unary::Sqrt => plain("Sqrt"),
            Unary::Rsqrt => {
                let power = self.scalar(id, "power", self.dtype(from)?, -0.5)?;
                layer("Power", 1, [x, power]).broadcasting()
            }
            Unary::Reciprocal => {
                let one = self.scalar(id, "one", self.dtype(from)?, 1.0)?;
                divide([one, x])
            }
            Unary::Square => layer("Multiply", 1, [x, x]).broadcasting(),
            Unary::Floor => plain("Floor"),
            Unary::Round => layer("Round", 5, [x]).with("mode", "half_to_even"),
            Unary::Sin => plain("Sin"),
            Unary::Cos => plain("Cos"),
            Unary::Tanh => plain("Tanh"),
            Unary::Erf => plain("Erf"),
            Unary::Sigmoid => plain("Sigmoid"),
            Unary::Relu => plain("ReLU"),
            Unary::Not => plain("LogicalNot"),
        };
        self.finish(id, draft)
    }

    fn binary(&mut self, id: NodeId, kind: Binary) -> Built<()> {
        let value = Value::from(id);
        let whole = !self.dtype(value)?.is_float();
        let inputs = self.inputs(id)?;
        let plain = |kind| layer(kind, 1, inputs.clone()).broadcasting();
        let draft = match kind {
            Binary::Add => plain("Add"),
            Binary::Sub => plain("Subtract"),
            Binary::Mul => plain("Multiply"),
            Binary::Div => divide([inputs[0], inputs[1]]),
            Binary::FloorDiv if whole => {
                // Their CPU plug-in rounds integers towards 0 whatever `m_pythondiv` says; without
                // the rest there is nothing to round.
                let out = self.out(value)?;
                let rest = self.step(id, "rest", plain("FloorMod"), out.clone());
                let whole = layer("Subtract", 1, [inputs[0], rest]).broadcasting();
                let whole = self.step(id, "whole", whole, out);
                divide([whole, inputs[1]])
            }
            Binary::FloorDiv => {
                let out = self.out(value)?;
                let quotient = divide([inputs[0], inputs[1]]);
                layer("Floor", 1, [self.step(id, "quotient", quotient, out)])
            }
            Binary::FloorMod => plain("FloorMod"),
            Binary::Pow => plain("Power"),
            Binary::Maximum => plain("Maximum"),
            Binary::Minimum => plain("Minimum"),
            Binary::SquaredDifference => plain("SquaredDifference"),
            Binary::And => plain("LogicalAnd"),
            Binary::Or => plain("LogicalOr"),
        };
        self.finish(id, draft)
    }

    fn cast(&mut self, id: NodeId, to: DType) -> Built<()> {
        let from = self.graph.node(id).inputs[0];
        let Some((_, name)) = type_names(to) else {
            return refuse(format!("{TARGET} has no {to}"));
        };
        let dtype = self.dtype(from)?;
        if dtype == to {
            return self.alias(id.into(), from);
        }
        let x = self.wire(from)?;
        if to == DType::Bool {
            // Their conversion of numbers to truth values has changed; the comparison has not.
            let zero = self.scalar(id, "zero", dtype, 0.0)?;
            return self.finish(id, layer("NotEqual", 1, [x, zero]).broadcasting());
        }
        self.finish(id, layer("Convert", 1, [x]).with("destination_type", name))
    }

    fn shape_of(&mut self, id: NodeId, x: Wire, to: DType) -> Built<Wire> {
        let rank = self.wire_out(x).dims.map(|dims| vec![Dim::from(dims.len())]);
        let out = Out { dtype: to, dims: rank, names: vec![] };
        let draft = layer("ShapeOf", 3, [x]).with("output_type", index_type(to)?);
        Ok(self.step(id, "dims", draft, out))
    }

    fn arg_max(&mut self, id: NodeId, to: DType) -> Built<()> {
        let node = self.graph.node(id);
        let (x, rank) = (self.wire(node.inputs[0])?, self.rank(node.inputs[0])?);
        let axis = self.integer(node.inputs[1], "axis")?;
        let Some(place) = place(axis, rank) else { return refuse("its axis is out of range") };
        let k = self.scalar(id, "k", DType::I64, 1.0)?;
        let mut best = self.wire_out(x);
        if let Some(dims) = &mut best.dims {
            dims[place] = Dim::known(1);
        }
        let index = Out { dtype: to, ..best.clone() };
        let draft = layer("TopK", 3, [x, k])
            .with("axis", axis)
            .with("mode", "max")
            .with("sort", "value")
            .with("index_element_type", index_type(to)?);
        let outputs = self.steps(id, "top", draft, vec![best, index]);
        let axes = self.list(id, "axes", &[axis]);
        self.finish(id, layer("Squeeze", 1, [outputs[1], axes]))
    }

    fn pack(&mut self, id: NodeId, axis: i64) -> Built<()> {
        let graph = self.graph;
        let node = graph.node(id);
        // x: [..], each part: [.., 1, ..]
        let rank = self.rank(node.inputs[0])? + 1;
        let Some(place) = place(axis, rank) else { return refuse("its axis is out of range") };
        let mut parts = Vec::with_capacity(node.inputs.len());
        for (i, input) in node.inputs.iter().enumerate() {
            if let Op::Const(constant) = self.graph.op(*input) {
                let value = &constant.value;
                if type_names(value.dtype()).is_none() {
                    return Err(super::build::Stop::Above);
                }
                let mut shape = value.shape().to_vec();
                shape.insert(place.min(shape.len()), 1);
                let bytes = value.bytes().expect("strings have no type here").clone();
                let value = Tensor::new(value.dtype(), shape, bytes).expect("the same size");
                let name = format!("{}/{i}", node.name);
                parts.push(self.constant_named(&name, &value, vec![]));
                continue;
            }
            let x = self.wire(*input)?;
            let mut out = self.wire_out(x);
            if let Some(dims) = &mut out.dims {
                dims.insert(place.min(dims.len()), Dim::known(1));
            }
            let axes = self.list(id, "axis", &[place as i64]);
            parts.push(self.step(id, &i.to_string(), layer("Unsqueeze", 1, [x, axes]), out));
        }
        self.finish(id, layer("Concat", 1, parts).with("axis", place))
    }

    fn unpack(&mut self, id: NodeId, axis: i64, count: usize) -> Built<()> {
        let from = self.graph.node(id).inputs[0];
        let (x, rank) = (self.wire(from)?, self.rank(from)?);
        let Some(place) = place(axis, rank) else { return refuse("its axis is out of range") };
        let mut part = self.wire_out(x);
        if let Some(dims) = &mut part.dims {
            dims[place] = Dim::known(1);
        }
        let axis = self.scalar(id, "axis", DType::I64, place as f64)?;
        let draft = layer("Split", 1, [x, axis]).with("num_splits", count);
        let parts = self.steps(id, "Split", draft, vec![part; count]);
        let axes = self.list(id, "axes", &[place as i64]);
        for (port, part) in parts.into_iter().enumerate() {
            self.finish_port(id, port as u32, layer("Squeeze", 1, [part, axes]))?;
        }
        Ok(())
    }

    /// Number of entries of a list operand.
    fn entries(&self, value: Value) -> Built<usize> {
        match self.facts[value].known_dims().as_deref() {
            Some([n]) => Ok(usize::try_from(*n).unwrap_or_default()),
            _ => refuse(format!("the size of `{}` is not known", self.graph.value_name(value))),
        }
    }

    /// begin and size become begin and end; a size of -1 reaches to the end.
    fn slice(&mut self, id: NodeId) -> Built<()> {
        let graph = self.graph;
        let node = graph.node(id);
        let (from, begin, size) = (node.inputs[0], node.inputs[1], node.inputs[2]);
        let entries = self.entries(begin)?;
        let ones = self.dtype_list(id, "strides", self.dtype(begin)?, &vec![1; entries])?;
        let (x, start) = (self.wire(from)?, self.wire(begin)?);
        let sizes = self.facts[size].known_elements();
        let starts = self.facts[begin].known_elements();
        let (end, end_mask) = match (starts, sizes) {
            (Some(starts), Some(sizes)) => {
                let mut mask = 0u32;
                let mut ends = Vec::with_capacity(entries);
                for (i, (start, size)) in starts.iter().zip(&sizes).enumerate() {
                    let open = *size == -1;
                    mask |= u32::from(open) << i.min(31);
                    ends.push(if open { 0 } else { start.saturating_add(*size) });
                }
                (self.dtype_list(id, "end", self.dtype(begin)?, &ends)?, mask)
            }
            _ => {
                let dtype = self.dtype(begin)?;
                let vector = self.out(begin)?;
                let size = self.wire(size)?;
                let sum = layer("Add", 1, [start, size]).broadcasting();
                let sum = self.step(id, "sum", sum, vector.clone());
                let dims = self.shape_of(id, x, dtype)?;
                let open = self.scalar(id, "open", dtype, -1.0)?;
                let test = layer("Equal", 1, [size, open]).broadcasting();
                let truth = Out { dtype: DType::Bool, ..vector.clone() };
                let test = self.step(id, "reaches", test, truth);
                let draft = layer("Select", 1, [test, dims, sum]).broadcasting();
                (self.step(id, "end", draft, vector), 0)
            }
        };
        let masks = StridedSlice { end_mask, ..StridedSlice::default() };
        self.finish(id, strided_slice(vec![x, start, end, ones], &masks, entries))
    }

    /// A list of integers of the type that its neighbours have.
    fn dtype_list(&mut self, id: NodeId, what: &str, dtype: DType, list: &[i64]) -> Built<Wire> {
        match dtype {
            DType::I64 => Ok(self.list(id, what, list)),
            DType::I32 => {
                let narrow: Result<Vec<i32>, _> = list.iter().map(|&v| i32::try_from(v)).collect();
                let Ok(narrow) = narrow else { return refuse("an index is beyond int32") };
                let tensor = Tensor::from_vec([narrow.len()], narrow);
                Ok(self.constant(id, what, tensor.expect("as many as the shape says")))
            }
            other => refuse(format!("indices are {other}, not int32 or int64")),
        }
    }

    fn pad(&mut self, id: NodeId) -> Built<()> {
        let graph = self.graph;
        let node = graph.node(id);
        let x = self.wire(node.inputs[0])?;
        let paddings = node.inputs[1];
        let rank = self.rank(node.inputs[0])?;
        let (begin, end) = match self.facts[paddings].known_elements() {
            Some(pairs) => {
                let side =
                    |i: usize| -> Vec<i64> { pairs.iter().skip(i).step_by(2).copied().collect() };
                (self.list(id, "begin", &side(0)), self.list(id, "end", &side(1)))
            }
            None => {
                // paddings: [rank, 2]
                let all = self.wire(paddings)?;
                let dtype = self.dtype(paddings)?;
                let column =
                    Out { dtype, dims: Some(vec![rank.into(), Dim::known(1)]), names: vec![] };
                let axis = self.scalar(id, "axis", DType::I64, 1.0)?;
                let split = layer("Split", 1, [all, axis]).with("num_splits", 2);
                let sides = self.steps(id, "sides", split, vec![column; 2]);
                let axes = self.list(id, "axes", &[1]);
                let side = Out { dtype, dims: Some(vec![rank.into()]), names: vec![] };
                let squeeze = |wire| layer("Squeeze", 1, [wire, axes]);
                let begin = self.step(id, "begin", squeeze(sides[0]), side.clone());
                (begin, self.step(id, "end", squeeze(sides[1]), side))
            }
        };
        let border = match node.inputs.get(2) {
            Some(border) => self.wire(*border)?,
            None => self.scalar(id, "border", self.dtype(node.inputs[0])?, 0.0)?,
        };
        self.finish(id, layer("Pad", 1, [x, begin, end, border]).with("pad_mode", "constant"))
    }
}

fn matmul(inputs: Vec<Wire>, transpose_a: bool, transpose_b: bool) -> Draft {
    layer("MatMul", 1, inputs).with("transpose_a", transpose_a).with("transpose_b", transpose_b)
}

/// Integers are rounded towards 0, as TensorFlow's `Div` does it.
fn divide(inputs: [Wire; 2]) -> Draft {
    layer("Divide", 1, inputs).broadcasting().with("m_pythondiv", false)
}

fn strided_slice(inputs: Vec<Wire>, masks: &StridedSlice, entries: usize) -> Draft {
    let bits = |mask: u32| {
        let bits: Vec<&str> =
            (0..entries).map(|i| if i < 32 && mask & (1 << i) != 0 { "1" } else { "0" }).collect();
        bits.join(", ")
    };
    layer("StridedSlice", 1, inputs)
        .with("begin_mask", bits(masks.begin_mask))
        .with("end_mask", bits(masks.end_mask))
        .with("new_axis_mask", bits(masks.new_axis_mask))
        .with("shrink_axis_mask", bits(masks.shrink_axis_mask))
        .with("ellipsis_mask", bits(masks.ellipsis_mask))
}

fn index_type(dtype: DType) -> Built<&'static str> {
    match dtype {
        DType::I32 => Ok("i32"),
        DType::I64 => Ok("i64"),
        other => refuse(format!("its indices are {other}, not int32 or int64")),
    }
}

/// The axis counted from the front.
fn place(axis: i64, rank: usize) -> Option<usize> {
    let rank = i64::try_from(rank).ok()?;
    let place = if axis < 0 { axis.checked_add(rank)? } else { axis };
    (0..rank).contains(&place).then_some(place as usize)
}
