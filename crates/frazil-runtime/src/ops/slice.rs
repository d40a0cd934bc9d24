//! Windows: slices with and without strides, and tensors taken apart.

use frazil_graph::op::{Split, StridedSlice, Unpack};
use frazil_kernels::layout::View;
use frazil_tensor::{Shape, Tensor};

use super::call::Call;
use super::movement::show;
use crate::Result;

/// Inputs: x, begin, size (-1: to the end).
pub fn slice(call: &Call<'_>) -> Result<Tensor> {
    let x = call.x().shape();
    let (begin, size) = (call.integers(1)?, call.integers(2)?);
    if begin.len() != x.len() || size.len() != x.len() {
        return Err(call.fail(format!("begin {begin:?} and size {size:?} do not go with {x}")));
    }
    let mut view = View::new(x);
    for axis in 0..x.len() {
        let window = window(x[axis], begin[axis], size[axis]);
        let (begin, len) = window.ok_or_else(|| {
            call.fail(format!("begin {begin:?} and size {size:?} leave {x} on axis {axis}"))
        })?;
        view = view.slice(axis, begin, 1, len);
    }
    let dims = view.dims().to_vec();
    show(call, &view, dims)
}

/// Begin and length on an axis of extent `dim`.
fn window(dim: usize, begin: i64, size: i64) -> Option<(usize, usize)> {
    let begin = usize::try_from(begin).ok()?;
    let left = dim.checked_sub(begin)?;
    let len = if size == -1 { left } else { usize::try_from(size).ok()? };
    (len <= left).then_some((begin, len))
}

/// Inputs: x, begin, end, strides.
pub fn strided_slice(call: &Call<'_>, op: StridedSlice) -> Result<Tensor> {
    let (view, dims) = strided_view(call, op, call.x().shape())?;
    show(call, &view, dims)
}

/// What the window of inputs 1 to 3 shows of extents `x`, and under which extents.
pub fn strided_view(call: &Call<'_>, op: StridedSlice, x: &Shape) -> Result<(View, Vec<usize>)> {
    let [begin, end, strides] = [call.integers(1)?, call.integers(2)?, call.integers(3)?];
    if begin.len() != end.len() || begin.len() != strides.len() || begin.len() > 32 {
        return Err(call.fail("begin, end and strides are of different lengths"));
    }
    let is = |mask: u32, entry: usize| mask & (1 << entry) != 0;
    let entries = begin.len();
    let named =
        (0..entries).filter(|&i| !is(op.ellipsis_mask, i) && !is(op.new_axis_mask, i)).count();
    let unnamed = x
        .len()
        .checked_sub(named)
        .ok_or_else(|| call.fail(format!("{named} axes are sliced, but {x} has fewer")))?;
    let mut view = View::new(x);
    let mut dims = Vec::new();
    let (mut axis, mut ellipsis) = (0, false);
    for i in 0..entries {
        if is(op.ellipsis_mask, i) {
            if std::mem::replace(&mut ellipsis, true) {
                return Err(call.fail("there is more than one ellipsis"));
            }
            dims.extend_from_slice(&x[axis..axis + unnamed]);
            axis += unnamed;
        } else if is(op.new_axis_mask, i) {
            dims.push(1);
        } else if is(op.shrink_axis_mask, i) {
            let at = call.axis(begin[i], x[axis]).map_err(|_| {
                call.fail(format!("there is no element {} on axis {axis} of {x}", begin[i]))
            })?;
            view = view.slice(axis, at, 1, 1);
            axis += 1;
        } else {
            let from = (!is(op.begin_mask, i)).then_some(begin[i]);
            let to = (!is(op.end_mask, i)).then_some(end[i]);
            if strides[i] == 0 {
                return Err(call.fail(format!("stride {i} is 0")));
            }
            let (first, len) = stretch(x[axis], from, to, strides[i]);
            view = view.slice(axis, first, isize::try_from(strides[i]).unwrap_or(1), len);
            dims.push(len);
            axis += 1;
        }
    }
    // What nobody named, at the end.
    dims.extend_from_slice(&x[axis..]);
    Ok((view, dims))
}

/// First element and number of elements of `from..to` by `step`, as Python counts them.
fn stretch(dim: usize, from: Option<i64>, to: Option<i64>, step: i64) -> (usize, usize) {
    // In i128 nothing overflows.
    let (dim, step) = (dim as i128, i128::from(step));
    let (lowest, highest) = if step > 0 { (0, dim) } else { (-1, dim - 1) };
    let place = |given: i64| {
        let counted = if given < 0 { i128::from(given) + dim } else { i128::from(given) };
        counted.clamp(lowest, highest)
    };
    let from = from.map_or(if step > 0 { lowest } else { highest }, place);
    let to = to.map_or(if step > 0 { highest } else { lowest }, place);
    let distance = if step > 0 { to - from } else { from - to };
    if distance <= 0 {
        return (0, 0);
    }
    let len = (distance + step.abs() - 1) / step.abs();
    (from as usize, len as usize)
}

/// The parts of `sizes` on `axis` of input `i`, which is the whole.
fn parts(call: &Call<'_>, i: usize, axis: usize, sizes: &[usize]) -> Result<Vec<Tensor>> {
    let whole = Call { graph: call.graph, node: call.node, inputs: vec![call.inputs[i].clone()] };
    let mut begin = 0;
    let mut parts = Vec::with_capacity(sizes.len());
    for &size in sizes {
        let view = View::new(whole.x().shape()).slice(axis, begin, 1, size);
        let dims = view.dims().to_vec();
        parts.push(show(&whole, &view, dims)?);
        begin += size;
    }
    Ok(parts)
}

pub fn unpack(call: &Call<'_>, op: Unpack) -> Result<Vec<Tensor>> {
    let x = call.x().shape();
    let axis = call.axis(op.axis, x.len())?;
    if x[axis] != op.count {
        return Err(call.fail(format!("axis {axis} of {x} is not {}", op.count)));
    }
    let mut dims = x.to_vec();
    dims.remove(axis);
    parts(call, 0, axis, &vec![1; op.count])?
        .into_iter()
        .map(|part| part.reshape(dims.clone()).map_err(|source| call.tensor(source)))
        .collect()
}

/// Inputs: axis, x.
pub fn split(call: &Call<'_>, op: Split) -> Result<Vec<Tensor>> {
    let x = call.inputs[1].shape();
    let axis = call.axis(call.integer(0, "the axis")?, x.len())?;
    if op.count == 0 || !x[axis].is_multiple_of(op.count) {
        return Err(call.fail(format!("axis {axis} of {x} has no {} equal parts", op.count)));
    }
    parts(call, 1, axis, &vec![x[axis] / op.count; op.count])
}

/// Inputs: x, sizes (one may be -1), axis.
pub fn split_v(call: &Call<'_>, op: Split) -> Result<Vec<Tensor>> {
    let x = call.x().shape();
    let axis = call.axis(call.integer(2, "the axis")?, x.len())?;
    let wanted = call.integers(1)?;
    let clash = || call.fail(format!("axis {axis} of {x} has no parts of {wanted:?}"));
    let open = wanted.iter().filter(|&&size| size == -1).count();
    let known = wanted.iter().filter(|&&size| size != -1);
    let known: Option<usize> = known
        .map(|&size| usize::try_from(size).ok())
        .try_fold(0, |sum: usize, size| sum.checked_add(size?));
    let rest = known.and_then(|known| x[axis].checked_sub(known)).ok_or_else(clash)?;
    if wanted.len() != op.count || open > 1 || (open == 0 && rest > 0) {
        return Err(clash());
    }
    let size = |&size: &i64| usize::try_from(size).unwrap_or(rest);
    let sizes: Vec<usize> = wanted.iter().map(size).collect();
    parts(call, 0, axis, &sizes)
}

#[cfg(test)]
mod tests {
    use super::stretch;

    #[test]
    fn counts_as_python_does() {
        let table = [
            ((5, None, None, 1), (0, 5)),
            ((5, Some(1), Some(3), 1), (1, 2)),
            ((5, Some(-2), None, 1), (3, 2)),
            ((5, None, Some(-1), 2), (0, 2)),
            ((5, None, None, -1), (4, 5)),
            ((5, Some(3), Some(0), -2), (3, 2)),
            ((5, Some(9), Some(-9), -1), (4, 5)),
            ((5, Some(7), Some(9), 1), (0, 0)),
            ((5, Some(3), Some(1), 1), (0, 0)),
            ((0, None, None, -1), (0, 0)),
            ((5, Some(i64::MIN), Some(i64::MAX), i64::MAX), (0, 1)),
        ];
        for ((dim, from, to, step), expected) in table {
            assert_eq!(stretch(dim, from, to, step), expected, "{dim} {from:?}:{to:?}:{step}");
        }
    }
}
