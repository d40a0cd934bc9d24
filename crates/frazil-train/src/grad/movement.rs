//! Elements that changed places: they go back, and add up where one was taken more than once.

use frazil_graph::op::{Binary, Gather, Pack, ShapeOp, Split, StridedSlice, Training, Unpack};
use frazil_graph::{Op, Value};
use frazil_tensor::DType;

use super::{Backward, Grads};
use crate::Result;

pub(super) fn reshape(b: &mut Backward<'_>, dy: Value) -> Result<Grads> {
    Ok(vec![Some(b.reshape_like(dy, b.input(0))?)])
}

/// Inputs: x, permutation.
pub(super) fn transpose(b: &mut Backward<'_>, dy: Value) -> Result<Grads> {
    let order = b.facts[b.input(1)].known_elements();
    let order = order.ok_or_else(|| b.refuse("its permutation is not constant"))?;
    let mut back = vec![0; order.len()];
    for (to, &from) in order.iter().enumerate() {
        let from = if from < 0 { from + order.len() as i64 } else { from };
        back[from as usize] = to as i64;
    }
    let back = b.list(&back)?;
    Ok(vec![Some(b.push("transpose", Op::Transpose, vec![dy, back])?)])
}

/// Inputs: each part, then the axis.
pub(super) fn concat(b: &mut Backward<'_>, dy: Value) -> Result<Grads> {
    let mut parts = b.inputs();
    let axis_value = parts.pop().ok_or_else(|| b.refuse("it has no inputs"))?;
    let axis = b.facts[axis_value].known_elements();
    let Some(&[axis]) = axis.as_deref() else { return Err(b.refuse("its axis is not constant")) };
    let rank = b.rank(parts[0])? as i64;
    let axis = if axis < 0 { axis + rank } else { axis };
    let sizes: Vec<Value> =
        parts.iter().map(|&part| b.extent(part, axis as usize)).collect::<Result<_>>()?;
    let sizes = b.push("sizes", Op::Pack(Pack { axis: 0 }), sizes)?;
    let axis = b.int(axis as i32)?;
    let count = parts.len();
    let split = b.push("split", Op::SplitV(Split { count }), vec![dy, sizes, axis])?;
    Ok((0..count as u32).map(|port| Some(Value { port, ..split })).collect())
}

pub(super) fn pack(b: &mut Backward<'_>, axis: i64, dy: Value) -> Result<Grads> {
    let count = b.inputs().len();
    let parts = b.push("unpack", Op::Unpack(Unpack { axis, count }), vec![dy])?;
    Ok((0..count as u32).map(|port| Some(Value { port, ..parts })).collect())
}

pub(super) fn unpack(b: &mut Backward<'_>, axis: i64, dy: &[Option<Value>]) -> Result<Grads> {
    let parts = b.parts(dy)?;
    Ok(vec![Some(b.push("pack", Op::Pack(Pack { axis }), parts)?)])
}

/// `x` and the axis are inputs of these numbers.
pub(super) fn split(
    b: &mut Backward<'_>,
    x: usize,
    axis: usize,
    dy: &[Option<Value>],
) -> Result<Grads> {
    let mut parts = b.parts(dy)?;
    parts.push(b.input(axis));
    let mut grads = vec![None; x + 1];
    grads[x] = Some(b.push("concat", Op::Concat, parts)?);
    Ok(grads)
}

/// Inputs: x, begin, size.
pub(super) fn slice(b: &mut Backward<'_>, dy: Value) -> Result<Grads> {
    let (x, begin) = (b.input(0), b.input(1));
    let to = b.facts[begin].dtype.unwrap_or(DType::I32);
    let shape =
        |b: &mut Backward<'_>, x: Value| b.push("shape", Op::Shape(ShapeOp { to }), vec![x]);
    let (all, shown) = (shape(b, x)?, shape(b, b.output())?);
    let rest = b.binary("rest", Binary::Sub, all, begin)?;
    let after = b.binary("after", Binary::Sub, rest, shown)?;
    let paddings = b.push("paddings", Op::Pack(Pack { axis: 1 }), vec![begin, after])?;
    Ok(vec![Some(b.push("pad", Op::Pad, vec![dy, paddings])?)])
}

/// Inputs: x, begin, end, strides.
pub(super) fn strided_slice(b: &mut Backward<'_>, op: StridedSlice, dy: Value) -> Result<Grads> {
    let shape = b.shape_of(b.input(0))?;
    let inputs = vec![shape, b.input(1), b.input(2), b.input(3), dy];
    Ok(vec![Some(b.push("window", Op::Training(Training::StridedSliceGrad(op)), inputs)?)])
}

/// Inputs: table, indices, axis.
pub(super) fn gather(b: &mut Backward<'_>, op: Gather, dy: Value) -> Result<Grads> {
    let axis = b.facts[b.input(2)].known_elements();
    if op.batch_dims != 0 || axis.as_deref() != Some(&[0]) {
        return Err(b.refuse("only rows of the first axis have one"));
    }
    let shape = b.shape_of(b.input(0))?;
    let inputs = vec![shape, b.input(1), dy];
    Ok(vec![Some(b.push("scatter", Op::Training(Training::ScatterAdd), inputs)?)])
}

/// Inputs: dims, value.
pub(super) fn fill(b: &mut Backward<'_>, dy: Value) -> Result<Grads> {
    let axes: Vec<i64> = (0..b.rank(b.output())? as i64).collect();
    Ok(vec![None, Some(b.sum(dy, &axes, false)?)])
}

/// Inputs: x, multiples.
pub(super) fn tile(b: &mut Backward<'_>, dy: Value) -> Result<Grads> {
    let x = b.input(0);
    let rank = b.rank(x)?;
    let multiples = b.facts[b.input(1)].known_elements();
    let multiples = multiples.ok_or_else(|| b.refuse("its multiples are not constant"))?;
    let mut extents = Vec::with_capacity(2 * rank);
    for (axis, &multiple) in multiples.iter().enumerate() {
        extents.push(b.int(i32::try_from(multiple).unwrap_or(i32::MAX))?);
        extents.push(b.extent(x, axis)?);
    }
    let shape = b.push("extents", Op::Pack(Pack { axis: 0 }), extents)?;
    let apart = b.push("apart", Op::Reshape, vec![dy, shape])?;
    let axes: Vec<i64> = (0..rank as i64).map(|axis| 2 * axis).collect();
    Ok(vec![Some(b.sum(apart, &axes, false)?)])
}

/// Inputs: x, shape.
pub(super) fn broadcast_to(b: &mut Backward<'_>, dy: Value) -> Result<Grads> {
    let x = b.input(0);
    Ok(vec![Some(b.unbroadcast(dy, x)?)])
}

/// Inputs: x, paddings, and the value if it is not 0.
pub(super) fn pad(b: &mut Backward<'_>, dy: Value) -> Result<Grads> {
    let paddings = b.facts[b.input(1)].known_elements();
    let paddings = paddings.ok_or_else(|| b.refuse("its paddings are not constant"))?;
    let before: Vec<i64> = paddings.iter().step_by(2).copied().collect();
    let (begin, size) = (b.list(&before)?, b.shape_of(b.input(0))?);
    Ok(vec![Some(b.push("slice", Op::Slice, vec![dy, begin, size])?)])
}

/// Inputs: x `[t, ..]`, index `[t]`, mask `[b, s]`.
pub(super) fn unpack_rows(b: &mut Backward<'_>, dy: Value) -> Result<Grads> {
    let (x, index) = (b.input(0), b.input(1));
    let mut extents = vec![b.int(-1)?];
    for axis in 1..b.rank(x)? {
        extents.push(b.extent(x, axis)?);
    }
    let shape = b.push("places", Op::Pack(Pack { axis: 0 }), extents)?;
    let places = b.push("rows", Op::Reshape, vec![dy, shape])?;
    let axis = b.int(0)?;
    let gather = Op::Gather(Gather::default());
    Ok(vec![Some(b.push("gather", gather, vec![places, index, axis])?)])
}

impl Backward<'_> {
    /// The gradients of all outputs, zeros for those that nobody reads.
    fn parts(&mut self, dy: &[Option<Value>]) -> Result<Vec<Value>> {
        let node = self.node;
        let part = |(port, dy): (usize, &Option<Value>)| match dy {
            Some(dy) => Ok(*dy),
            None => self.zeros_like(Value { node, port: port as u32 }),
        };
        dy.iter().enumerate().map(part).collect()
    }
}
