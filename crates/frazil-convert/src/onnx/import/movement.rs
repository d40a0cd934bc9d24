//! Operations that move elements or speak of extents.

use frazil_graph::Value;
use frazil_graph::op::{
    Binary, Cast, Gather, OneHot, Op, Reduce, ReduceKind, ShapeOp, Split, Squeeze, StridedSlice,
};
use frazil_tensor::{DType, Tensor};

use super::importer::{Call, Importer, Pending};
use super::{Outcome, Problem};

/// No tensor has more axes than this.
pub(super) const MOST_AXES: i64 = 32;

pub(super) fn shape(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let x = call.input(0)?;
    let op = Op::Shape(ShapeOp { to: DType::I64 });
    let (start, end) = (call.int("start").unwrap_or(0), call.int("end"));
    if start == 0 && end.is_none() {
        return Ok(i.push(&call.name, op, vec![x])?);
    }
    let all = i.aux(call, "all", op, vec![x])?;
    let begin = i.list(call, "begin", &[start])?;
    let stop = i.list(call, "end", &[end.unwrap_or(0)])?;
    let strides = i.list(call, "strides", &[1])?;
    let run = StridedSlice { end_mask: u32::from(end.is_none()), ..StridedSlice::default() };
    Ok(i.push(&call.name, Op::StridedSlice(run), vec![all, begin, stop, strides])?)
}

pub(super) fn size(i: &mut Importer, call: &Call<'_>) -> Outcome {
    Ok(i.push(&call.name, Op::Size(ShapeOp { to: DType::I64 }), vec![call.input(0)?])?)
}

/// A 0 in the target means "as it was", unless the node says that it means an empty axis.
pub(super) fn reshape(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let (x, target) = (call.input(0)?, call.input(1)?);
    let zero_is_zero = call.int("allowzero").unwrap_or(0) != 0;
    let Some(dims) = i.ints(target) else {
        let value = i.push(&call.name, Op::Reshape, vec![x, target])?;
        if !zero_is_zero {
            i.pending.push(Pending::Reshape { node: value.node });
        }
        return Ok(value);
    };
    if zero_is_zero || !dims.contains(&0) {
        return Ok(i.push(&call.name, Op::Reshape, vec![x, target])?);
    }
    // Runs of numbers, and between them extents of x.
    let shape = i.shape_of(call, x)?;
    let mut parts = Vec::new();
    let mut known = Vec::new();
    for (axis, &dim) in dims.iter().enumerate() {
        if dim != 0 {
            known.push(dim);
            continue;
        }
        if !known.is_empty() {
            parts.push(i.long_list(call, "extents", &std::mem::take(&mut known))?);
        }
        let axis = axis as i64;
        parts.push(i.run_of(call, "extent", shape, axis, Some(axis + 1))?);
    }
    if !known.is_empty() {
        parts.push(i.long_list(call, "extents", &known)?);
    }
    let target = i.joined(call, "target", parts)?;
    Ok(i.push(&call.name, Op::Reshape, vec![x, target])?)
}

/// Two axes: all before `axis`, and all from it on.
pub(super) fn flatten(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let x = call.input(0)?;
    let axis = call.int("axis").unwrap_or(1);
    let open = i.long_list(call, "open", &[-1])?;
    let rows = if axis == 0 {
        i.long_list(call, "one", &[1])?
    } else {
        let shape = i.shape_of(call, x)?;
        let before = i.run_of(call, "before", shape, 0, Some(axis))?;
        let zero = i.list(call, "zero", &[0])?;
        let product = Op::Reduce(Reduce { kind: ReduceKind::Prod, keep_dims: true });
        i.aux(call, "rows", product, vec![before, zero])?
    };
    let target = i.joined(call, "target", vec![rows, open])?;
    Ok(i.push(&call.name, Op::Reshape, vec![x, target])?)
}

/// Axes as an attribute (before opset 13) or as an input.
fn axes(i: &Importer, call: &Call<'_>) -> Result<Option<Vec<i64>>, Problem> {
    match (call.ints("axes"), call.optional(1)) {
        (Some(axes), _) => Ok(Some(axes)),
        (None, Some(input)) => match i.ints(input) {
            Some(axes) => Ok(Some(axes)),
            None => Err("its axes must be constant".into()),
        },
        (None, None) => Ok(None),
    }
}

pub(super) fn squeeze(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let axes = axes(i, call)?.unwrap_or_default();
    Ok(i.push(&call.name, Op::Squeeze(Squeeze { axes }), vec![call.input(0)?])?)
}

/// One axis after the other. Those that count from the end do so in the result.
pub(super) fn unsqueeze(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let mut axes = axes(i, call)?.ok_or_else(|| "it has no axes".to_owned())?;
    axes.sort_unstable();
    let count = axes.len() as i64;
    if axes.iter().any(|axis| *axis < 0) {
        if axes.iter().any(|axis| *axis >= 0) {
            return Err("axes of which some count from the start and some from the end".into());
        }
        // Those that are still to come push it on.
        for (axis, place) in axes.iter_mut().zip(1..) {
            *axis = axis.saturating_add(count - place);
        }
    }
    let mut x = call.input(0)?;
    let Some((&last, before)) = axes.split_last() else { return Ok(i.identity(call, x)?) };
    for &axis in before {
        let axis = i.int(call, "axis", axis)?;
        x = i.aux(call, "part", Op::ExpandDims, vec![x, axis])?;
    }
    let axis = i.int(call, "axis", last)?;
    Ok(i.push(&call.name, Op::ExpandDims, vec![x, axis])?)
}

pub(super) fn transpose(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let x = call.input(0)?;
    let order = match call.ints("perm") {
        Some(order) => i.list(call, "perm", &order)?,
        // All axes the other way round.
        None => {
            let rank = i.aux(call, "rank", Op::Rank, vec![x])?;
            let one = i.int(call, "one", 1)?;
            let last = i.aux(call, "last", Op::Binary(Binary::Sub), vec![rank, one])?;
            let minus = i.int(call, "minus_one", -1)?;
            i.aux(call, "perm", Op::Range, vec![last, minus, minus])?
        }
    };
    Ok(i.push(&call.name, Op::Transpose, vec![x, order])?)
}

pub(super) fn concat(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let mut inputs = call.all()?;
    if inputs.is_empty() {
        return Err("it joins nothing".into());
    }
    let axis = call.int("axis").ok_or_else(|| "it has no axis".to_owned())?;
    inputs.push(i.int(call, "axis", axis)?);
    Ok(i.push(&call.name, Op::Concat, inputs)?)
}

pub(super) fn split(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let x = call.input(0)?;
    let axis = i.int(call, "axis", call.int("axis").unwrap_or(0))?;
    let op = Split { count: call.proto.output.len() };
    if op.count == 0 {
        return Err("it has no outputs".into());
    }
    let sizes = match (call.ints("split"), call.optional(1)) {
        (Some(sizes), _) => Some(i.list(call, "sizes", &sizes)?),
        (None, Some(input)) => Some(match i.ints(input) {
            Some(sizes) => i.list(call, "sizes", &sizes)?,
            None => input,
        }),
        (None, None) => None,
    };
    let equal = sizes.is_none_or(|sizes| {
        i.ints(sizes).is_some_and(|sizes| sizes.windows(2).all(|pair| pair[0] == pair[1]))
    });
    match sizes.filter(|_| !equal) {
        Some(sizes) => Ok(i.push(&call.name, Op::SplitV(op), vec![x, sizes, axis])?),
        None => Ok(i.push(&call.name, Op::Split(op), vec![axis, x])?),
    }
}

/// ONNX's indices may count from the end. A single one that does is taken out as a window;
/// indices that are computed are taken for counting from the start.
pub(super) fn gather(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let (table, indices) = (call.input(0)?, call.input(1)?);
    let axis = call.int("axis").unwrap_or(0);
    let scalar = i.constant(indices).is_some_and(|tensor| tensor.shape().is_empty());
    match i.ints(indices).as_deref() {
        Some(&[index]) if index < 0 && scalar => {
            if !(0..MOST_AXES).contains(&axis) {
                return Err("an index and an axis that both count from the end".into());
            }
            let places = axis as usize + 1;
            let mut begin = vec![0; places];
            begin[places - 1] = index;
            let begin = i.list(call, "begin", &begin)?;
            let end = i.list(call, "end", &vec![0; places])?;
            let strides = i.list(call, "strides", &vec![1; places])?;
            let all = (1u32 << axis) - 1;
            let op = StridedSlice {
                begin_mask: all,
                end_mask: all,
                shrink_axis_mask: 1 << axis,
                ..StridedSlice::default()
            };
            Ok(i.push(&call.name, Op::StridedSlice(op), vec![table, begin, end, strides])?)
        }
        Some(list) if list.iter().any(|index| *index < 0) => {
            Err("several indices that count from the end".into())
        }
        _ => {
            let axis = i.int(call, "axis", axis)?;
            Ok(i.push(&call.name, Op::Gather(Gather::default()), vec![table, indices, axis])?)
        }
    }
}

/// As we write it: one index for each place of the batch axes.
pub(super) fn gather_nd(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let (table, indices) = (call.input(0)?, call.input(1)?);
    let batch = call.int("batch_dims").unwrap_or(0);
    let (Ok(batch_dims), true) = (usize::try_from(batch), batch < MOST_AXES) else {
        return Err(format!("{batch} batch axes").into());
    };
    // The last axis of the indices must be the one that was put in for it.
    let producer = i.graph.node(indices.node);
    let added = matches!(producer.op, Op::ExpandDims)
        && producer.inputs.get(1).is_some_and(|&axis| i.ints(axis) == Some(vec![-1]));
    let Some(&indices) = producer.inputs.first().filter(|_| added) else {
        return Err("indices of several axes at a time".into());
    };
    let axis = i.int(call, "axis", batch)?;
    Ok(i.push(&call.name, Op::Gather(Gather { batch_dims }), vec![table, indices, axis])?)
}

pub(super) fn one_hot(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let (mut indices, depth, values) = (call.input(0)?, call.input(1)?, call.input(2)?);
    if i.dtype(indices).is_some_and(DType::is_float) {
        indices = i.aux(call, "indices", Op::Cast(Cast { to: DType::I64 }), vec![indices])?;
    }
    let depth = match i.ints(depth).as_deref() {
        Some(&[depth]) => i.int(call, "depth", depth)?,
        Some(_) => return Err("its depth is no number".into()),
        None => {
            let scalar = i.tensor(call, "no_axes", Tensor::from_vec([0], Vec::<i32>::new())?)?;
            let depth = i.aux(call, "depth_number", Op::Reshape, vec![depth, scalar])?;
            i.aux(call, "depth", Op::Cast(Cast { to: DType::I32 }), vec![depth])?
        }
    };
    let axis = i.int(call, "axis", 0)?;
    let mut pick = |place: i64, part: &str| -> Outcome {
        let index = i.int(call, "place", place)?;
        Ok(i.aux(call, part, Op::Gather(Gather::default()), vec![values, index, axis])?)
    };
    let (off, on) = (pick(0, "off")?, pick(1, "on")?);
    let op = OneHot { axis: call.int("axis").unwrap_or(-1) };
    Ok(i.push(&call.name, Op::OneHot(op), vec![indices, depth, on, off])?)
}

pub(super) fn range(i: &mut Importer, call: &Call<'_>) -> Outcome {
    Ok(i.push(&call.name, Op::Range, vec![call.input(0)?, call.input(1)?, call.input(2)?])?)
}

pub(super) fn constant_of_shape(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let dims = call.input(0)?;
    let value = match call.tensor("value") {
        Some(proto) => i.reader.read(proto)?,
        None => Tensor::from_vec([1], vec![0f32])?,
    };
    if value.elements() != 1 {
        return Err("its value is not one element".into());
    }
    let value = i.tensor(call, "value", value.reshape([])?)?;
    Ok(i.push(&call.name, Op::Fill, vec![dims, value])?)
}

/// ONNX's broadcast goes both ways: where the target is smaller, x keeps its extent. That is
/// what a product with ones does; where it turns out to be a plain broadcast it becomes one.
pub(super) fn expand(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let (x, target) = (call.input(0)?, call.input(1)?);
    let (one, op) = match i.dtype(x) {
        Some(DType::Bool) => (Tensor::new(DType::Bool, [], vec![1u8])?, Binary::And),
        Some(DType::I64) => (Tensor::from_vec([], vec![1i64])?, Binary::Mul),
        Some(DType::I32) => (Tensor::from_vec([], vec![1i32])?, Binary::Mul),
        Some(dtype) if dtype.is_float() => {
            (Tensor::from_vec([], vec![1f32])?.cast(dtype)?, Binary::Mul)
        }
        _ => return Ok(i.push(&call.name, Op::BroadcastTo, vec![x, target])?),
    };
    let one = i.tensor(call, "one", one)?;
    let ones = i.aux(call, "ones", Op::Fill, vec![target, one])?;
    let value = i.push(&call.name, Op::Binary(op), vec![x, ones])?;
    i.pending.push(Pending::Expand { node: value.node, x, target });
    Ok(value)
}

pub(super) fn tile(i: &mut Importer, call: &Call<'_>) -> Outcome {
    Ok(i.push(&call.name, Op::Tile, vec![call.input(0)?, call.input(1)?])?)
}

pub(super) fn pad(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let x = call.input(0)?;
    if !matches!(call.text("mode"), None | Some("constant")) {
        return Err("a border that is not constant".into());
    }
    if call.optional(3).is_some() {
        return Err("a border around some axes only".into());
    }
    let pads = match (call.ints("pads"), call.optional(1)) {
        (Some(pads), _) => pads,
        (None, Some(input)) => {
            i.ints(input).ok_or_else(|| "its border must be constant".to_owned())?
        }
        (None, None) => return Err("it has no border".into()),
    };
    let rank = pads.len() / 2;
    // All before, then all after, there; pairs per axis here.
    let pairs: Option<Vec<i32>> = (0..rank)
        .flat_map(|axis| [pads[axis], pads[axis + rank]])
        .map(|pad| i32::try_from(pad).ok())
        .collect();
    let pairs = pairs.ok_or_else(|| "its border is too wide".to_owned())?;
    let pairs = i.tensor(call, "paddings", Tensor::from_vec([rank, 2], pairs)?)?;
    let mut inputs: Vec<Value> = vec![x, pairs];
    match (call.optional(2), call.float("value")) {
        (Some(value), _) => inputs.push(value),
        (None, Some(value)) if value != 0.0 => {
            inputs.push(i.tensor(call, "value", Tensor::from_vec([], vec![value])?)?);
        }
        _ => {}
    }
    Ok(i.push(&call.name, Op::Pad, inputs)?)
}
