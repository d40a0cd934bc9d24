//! Over axes: sums and their kin, the place of the largest, softmax.

use frazil_graph::op::{Reduce, ReduceKind};
use frazil_kernels::reduce::{self as kernel, Reduction};
use frazil_kernels::{Number, Real, softmax as rows};
use frazil_tensor::{DType, Element, Tensor};

use super::call::{Call, by_number, by_real};
use crate::Result;

/// Inputs: x, axes.
pub fn reduce(call: &Call<'_>, op: Reduce) -> Result<Tensor> {
    let x = call.x();
    let mut reduced = vec![false; x.shape().len()];
    for axis in call.integers(1)? {
        reduced[call.axis(axis, x.shape().len())?] = true;
    }
    let plan = Reduction::new(x.shape(), &reduced);
    let mut dims = Vec::new();
    for (&dim, &gone) in x.shape().iter().zip(&reduced) {
        match (gone, op.keep_dims) {
            (false, _) => dims.push(dim),
            (true, true) => dims.push(1),
            (true, false) => {}
        }
    }
    match (op.kind, x.dtype()) {
        (ReduceKind::All | ReduceKind::Any, DType::Bool) => {
            let x = call.values::<u8>(0)?;
            call.make_bool(dims, |out| match op.kind {
                ReduceKind::All => kernel::all(&x, out, &plan),
                _ => kernel::any(&x, out, &plan),
            })
        }
        (_, dtype) => by_number!(call, dtype, T => numbers::<T>(call, op.kind, dims, &plan)),
    }
}

fn numbers<T: Number + Element>(
    call: &Call<'_>,
    kind: ReduceKind,
    dims: Vec<usize>,
    plan: &Reduction,
) -> Result<Tensor> {
    let kernel: fn(&[T], &mut [T], &Reduction) = match kind {
        ReduceKind::Mean => kernel::mean,
        ReduceKind::Sum => kernel::sum,
        ReduceKind::Max => kernel::max,
        ReduceKind::Min => kernel::min,
        ReduceKind::Prod => kernel::prod,
        ReduceKind::All | ReduceKind::Any => return Err(call.wrong_type(T::DTYPE)),
    };
    let x = call.values::<T>(0)?;
    call.make(dims, |out| kernel(&x, out, plan))
}

/// Inputs: x, axis.
pub fn argmax(call: &Call<'_>, to: DType) -> Result<Tensor> {
    fn places<T: Number + Element>(call: &Call<'_>, axis: usize) -> Result<Vec<i64>> {
        let dims = call.x().shape();
        let inner: usize = dims[axis + 1..].iter().product();
        let outer: usize = dims[..axis].iter().product();
        let mut out = vec![0; outer * inner];
        kernel::argmax(&call.values::<T>(0)?, &mut out, dims[axis], inner);
        Ok(out)
    }
    let x = call.x();
    let axis = call.axis(call.integer(1, "the axis")?, x.shape().len())?;
    if x.shape()[axis] == 0 {
        return Err(call.fail(format!("axis {axis} of {} has no largest element", x.shape())));
    }
    let places: Vec<i64> = by_number!(call, x.dtype(), T => places::<T>(call, axis))?;
    let mut dims = x.shape().to_vec();
    dims.remove(axis);
    match to {
        DType::I64 => call.make(dims, |out| out.copy_from_slice(&places)),
        DType::I32 => call.make(dims, |out: &mut [i32]| {
            frazil_kernels::cast::cast(&places, out);
        }),
        other => Err(call.wrong_type(other)),
    }
}

pub fn softmax(call: &Call<'_>) -> Result<Tensor> {
    by_real!(call, call.x().dtype(), T => over_rows::<T>(call, rows::softmax))
}

pub fn log_softmax(call: &Call<'_>) -> Result<Tensor> {
    by_real!(call, call.x().dtype(), T => over_rows::<T>(call, rows::log_softmax))
}

fn over_rows<T: Real + Element>(
    call: &Call<'_>,
    kernel: fn(&[T], &mut [T], usize),
) -> Result<Tensor> {
    let columns = call.x().shape().last().copied().unwrap_or(1);
    let x = call.values::<T>(0)?;
    call.make(call.x().shape().clone(), |out| kernel(&x, out, columns))
}
