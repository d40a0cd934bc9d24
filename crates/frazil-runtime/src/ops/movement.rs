//! Elements that change places: transpose, concat, pack, fill, tile, broadcast, pad, select.

use frazil_kernels::layout::{Broadcast, View, broadcast_dims};
use frazil_kernels::{elementwise, movement as kernel};
use frazil_tensor::{DType, Shape, Tensor};

use super::call::{Block, Call, by_size};
use crate::Result;

/// What `view` shows of the first input, under `dims`.
pub fn show(call: &Call<'_>, view: &View, dims: impl Into<Shape>) -> Result<Tensor> {
    fn copy<T: Block>(call: &Call<'_>, view: &View, dims: Shape) -> Result<Tensor> {
        let x = call.blocks::<T>(0)?;
        call.move_to(call.x().dtype(), dims, |out| {
            kernel::copy(&x, view, out);
            Ok(())
        })
    }
    by_size!(call.x().dtype(), T => copy::<T>(call, view, dims.into()))
}

/// Inputs: x, permutation.
pub fn transpose(call: &Call<'_>) -> Result<Tensor> {
    let x = call.x();
    let rank = x.shape().len();
    let order = call.integers(1)?;
    let axes: Vec<usize> =
        order.iter().map(|&axis| call.axis(axis, rank)).collect::<Result<_>>()?;
    let mut sorted = axes.clone();
    sorted.sort_unstable();
    if sorted != (0..rank).collect::<Vec<_>>() {
        return Err(call.fail(format!("{order:?} is no order of the axes of {}", x.shape())));
    }
    let view = View::new(x.shape()).permute(&axes);
    let dims = view.dims().to_vec();
    show(call, &view, dims)
}

/// Inputs: each tensor, then the axis.
pub fn concat(call: &Call<'_>) -> Result<Tensor> {
    let last = call.inputs.len() - 1;
    let rank = call.x().shape().len();
    let axis = call.axis(call.integer(last, "the axis")?, rank)?;
    let first = call.x();
    for other in &call.inputs[..last] {
        let fits = other.dtype() == first.dtype()
            && other.shape().len() == rank
            && (0..rank).all(|i| i == axis || other.shape()[i] == first.shape()[i]);
        if !fits {
            let [a, b] = [first, other].map(|t| format!("{} {}", t.dtype(), t.shape()));
            return Err(call.fail(format!("{a} and {b} cannot be joined on axis {axis}")));
        }
    }
    let mut dims = first.shape().to_vec();
    dims[axis] = call.inputs[..last].iter().map(|part| part.shape()[axis]).sum();
    join(call, last, &dims, axis)
}

/// Inputs: tensors of one shape.
pub fn pack(call: &Call<'_>, axis: i64) -> Result<Tensor> {
    let first = call.x();
    let axis = call.axis(axis, first.shape().len() + 1)?;
    for other in &call.inputs {
        if other.shape() != first.shape() || other.dtype() != first.dtype() {
            let [a, b] = [first, other].map(|t| format!("{} {}", t.dtype(), t.shape()));
            return Err(call.fail(format!("{a} and {b} cannot be stacked")));
        }
    }
    let mut dims = first.shape().to_vec();
    dims.insert(axis, call.inputs.len());
    join(call, call.inputs.len(), &dims, axis)
}

/// The first `count` inputs, laid side by side on `axis` of `dims`.
fn join(call: &Call<'_>, count: usize, dims: &[usize], axis: usize) -> Result<Tensor> {
    fn lay<T: Block>(
        call: &Call<'_>,
        count: usize,
        dims: &[usize],
        outer: usize,
    ) -> Result<Tensor> {
        call.move_to(call.x().dtype(), dims, |out| {
            let row = out.len().checked_div(outer).unwrap_or(0);
            let mut offset = 0;
            for i in 0..count {
                let part = call.blocks::<T>(i)?;
                kernel::concat_part(&part, out, outer, row, offset);
                offset += part.len().checked_div(outer).unwrap_or(0);
            }
            Ok(())
        })
    }
    let outer = dims[..axis].iter().product();
    by_size!(call.x().dtype(), T => lay::<T>(call, count, dims, outer))
}

/// Inputs: dims, value.
pub fn fill(call: &Call<'_>) -> Result<Tensor> {
    fn spread<T: Block>(call: &Call<'_>, dims: Vec<usize>) -> Result<Tensor> {
        let value = call.blocks::<T>(1)?;
        let [value] = &*value else { return Err(call.fail("the value is no single one")) };
        call.move_to(call.inputs[1].dtype(), dims, |out| {
            out.fill(value.clone());
            Ok(())
        })
    }
    let dims = call.extents(0)?;
    by_size!(call.inputs[1].dtype(), T => spread::<T>(call, dims))
}

/// Inputs: x, multiples.
pub fn tile(call: &Call<'_>) -> Result<Tensor> {
    let x = call.x().shape();
    let multiples = call.extents(1)?;
    if multiples.len() != x.len() {
        return Err(call.fail(format!("{multiples:?} does not say how often to repeat {x}")));
    }
    let dims: Option<Vec<usize>> =
        x.iter().zip(&multiples).map(|(&dim, &times)| dim.checked_mul(times)).collect();
    let dims = dims.ok_or_else(|| call.fail(format!("{x} repeated {multiples:?} times")))?;
    show(call, &View::new(x).tile(&multiples), dims)
}

/// Inputs: x, shape.
pub fn broadcast_to(call: &Call<'_>) -> Result<Tensor> {
    let dims = call.extents(1)?;
    let view = View::new(call.x().shape()).broadcast(&dims);
    let clash = || call.fail(format!("{} does not broadcast to {dims:?}", call.x().shape()));
    let view = view.ok_or_else(clash)?;
    show(call, &view, dims)
}

/// Inputs: x, paddings `[rank, 2]`, and the value if it is not 0.
pub fn pad(call: &Call<'_>) -> Result<Tensor> {
    fn frame<T: Block>(
        call: &Call<'_>,
        dims: Vec<usize>,
        before: &[usize],
        after: &[usize],
    ) -> Result<Tensor> {
        let x = call.blocks::<T>(0)?;
        let value = match call.inputs.get(2) {
            None => T::default(),
            Some(value) if value.dtype() == call.x().dtype() && value.elements() == 1 => {
                call.blocks::<T>(2)?[0].clone()
            }
            Some(_) => return Err(call.fail("the value to pad with is none of the elements")),
        };
        call.move_to(call.x().dtype(), dims, |out| {
            kernel::pad(&x, call.x().shape(), before, after, &value, out);
            Ok(())
        })
    }
    let x = call.x().shape();
    let paddings = call.extents(1)?;
    if paddings.len() != 2 * x.len() {
        let found = call.inputs[1].shape();
        return Err(call.fail(format!("paddings of {found} do not go with {x}")));
    }
    let before: Vec<usize> = paddings.iter().copied().step_by(2).collect();
    let after: Vec<usize> = paddings.iter().copied().skip(1).step_by(2).collect();
    let dims: Option<Vec<usize>> = x
        .iter()
        .zip(before.iter().zip(&after))
        .map(|(&dim, (&before, &after))| dim.checked_add(before)?.checked_add(after))
        .collect();
    let dims = dims.ok_or_else(|| call.fail("the paddings are beyond all bounds"))?;
    by_size!(call.x().dtype(), T => frame::<T>(call, dims, &before, &after))
}

/// Inputs: condition, x, y.
pub fn select(call: &Call<'_>) -> Result<Tensor> {
    fn choose<T: Block>(call: &Call<'_>, dims: Vec<usize>, walk: &Broadcast<3>) -> Result<Tensor> {
        let test = call.values::<u8>(0)?;
        let (yes, no) = (call.blocks::<T>(1)?, call.blocks::<T>(2)?);
        call.move_to(call.inputs[1].dtype(), dims, |out| {
            elementwise::select(&test, &yes, &no, out, walk);
            Ok(())
        })
    }
    let [test, yes, no] = [0, 1, 2].map(|i| &call.inputs[i]);
    if test.dtype() != DType::Bool {
        return Err(call.wrong_type(test.dtype()));
    }
    let shapes: [&[usize]; 3] = [test.shape(), yes.shape(), no.shape()];
    let clash = || {
        let [a, b] = [yes, no].map(|t| format!("{} {}", t.dtype(), t.shape()));
        call.fail(format!("condition {}, {a} and {b} do not go together", test.shape()))
    };
    if yes.dtype() != no.dtype() {
        return Err(clash());
    }
    let dims = broadcast_dims(&shapes).ok_or_else(clash)?;
    let walk = Broadcast::new(shapes).ok_or_else(clash)?;
    by_size!(yes.dtype(), T => choose::<T>(call, dims, &walk))
}
