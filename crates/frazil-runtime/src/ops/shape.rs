//! Shapes as values, and the same elements under other shapes. No element moves here.

use frazil_kernels::Number;
use frazil_kernels::cast::{Scalar, cast};
use frazil_tensor::{DType, Element, Shape, Tensor};

use super::call::{Call, by_number};
use crate::Result;

pub fn shape(call: &Call<'_>, to: DType) -> Result<Tensor> {
    let extents: Vec<i64> = call.x().shape().iter().map(|&dim| dim as i64).collect();
    integers(call, to, [extents.len()], &extents)
}

pub fn size(call: &Call<'_>, to: DType) -> Result<Tensor> {
    integers(call, to, [], &[call.x().elements() as i64])
}

pub fn rank(call: &Call<'_>) -> Result<Tensor> {
    integers(call, DType::I32, [], &[call.x().shape().len() as i64])
}

fn integers(call: &Call<'_>, to: DType, shape: impl Into<Shape>, values: &[i64]) -> Result<Tensor> {
    match to {
        DType::I64 => call.make(shape, |out| out.copy_from_slice(values)),
        DType::I32 if values.iter().all(|&value| i32::try_from(value).is_ok()) => {
            call.make(shape, |out: &mut [i32]| cast(values, out))
        }
        DType::I32 => Err(call.fail("the extents do not fit in int32")),
        other => Err(call.wrong_type(other)),
    }
}

/// Inputs: x, shape; one entry of it may be -1.
pub fn reshape(call: &Call<'_>) -> Result<Tensor> {
    let x = call.x();
    let wanted = call.integers(1)?;
    let clash = || call.fail(format!("{} cannot be reshaped to {wanted:?}", x.shape()));
    let open = wanted.iter().filter(|&&extent| extent == -1).count();
    let known = wanted.iter().filter(|&&extent| extent != -1);
    let known: Option<usize> = known
        .map(|&extent| usize::try_from(extent).ok())
        .try_fold(1, |product: usize, extent| product.checked_mul(extent?));
    let known = known.ok_or_else(clash)?;
    let rest = match open {
        0 => 1,
        1 if known > 0 && x.elements().is_multiple_of(known) => x.elements() / known,
        // [0, 5] to [0, -1]: any extent would do; TensorFlow takes 0 as well.
        1 if known == 0 && x.elements() == 0 => 0,
        _ => return Err(clash()),
    };
    let extent = |&extent: &i64| usize::try_from(extent).unwrap_or(rest);
    let dims: Vec<usize> = wanted.iter().map(extent).collect();
    if Shape::from(dims.as_slice()).elements() != Some(x.elements()) {
        return Err(clash());
    }
    x.reshape(dims).map_err(|source| call.tensor(source))
}

/// Inputs: x, axis.
pub fn expand_dims(call: &Call<'_>) -> Result<Tensor> {
    let x = call.x();
    let axis = call.axis(call.integer(1, "the axis")?, x.shape().len() + 1)?;
    let mut dims = x.shape().to_vec();
    dims.insert(axis, 1);
    x.reshape(dims).map_err(|source| call.tensor(source))
}

pub fn squeeze(call: &Call<'_>, axes: &[i64]) -> Result<Tensor> {
    let x = call.x();
    let mut gone: Vec<bool> = x.shape().iter().map(|&dim| axes.is_empty() && dim == 1).collect();
    for &axis in axes {
        let axis = call.axis(axis, gone.len())?;
        if x.shape()[axis] != 1 {
            return Err(call.fail(format!("axis {axis} of {} is not 1", x.shape())));
        }
        gone[axis] = true;
    }
    let kept = x.shape().iter().zip(&gone).filter(|(_, gone)| !**gone);
    let dims: Vec<usize> = kept.map(|(&dim, _)| dim).collect();
    x.reshape(dims).map_err(|source| call.tensor(source))
}

/// Inputs: start, limit, delta.
pub fn range(call: &Call<'_>) -> Result<Tensor> {
    fn count_up<T: Number + Element + Scalar>(call: &Call<'_>) -> Result<Tensor> {
        let mut ends = [T::default(); 3];
        for (i, end) in ends.iter_mut().enumerate() {
            match *call.values::<T>(i)? {
                [one] => *end = one,
                _ => return Err(call.fail("start, limit and delta are single numbers")),
            }
        }
        let [start, limit, delta] = ends.map(|end| end.to_f64());
        if delta == 0.0 {
            return Err(call.fail("delta is 0"));
        }
        // `as` makes a count of what cannot be one the largest or smallest that can.
        let count = ((limit - start) / delta).ceil().max(0.0) as usize;
        call.make([count], |out| {
            for (i, o) in out.iter_mut().enumerate() {
                *o = ends[0].add(ends[2].mul(T::from_usize(i)));
            }
        })
    }
    let dtype = call.x().dtype();
    if call.inputs.iter().any(|input| input.dtype() != dtype) {
        return Err(call.fail("start, limit and delta are of different types"));
    }
    by_number!(call, dtype, T => count_up::<T>(call))
}
