//! Indices: gather and one-hot.

use frazil_graph::op::{Gather, OneHot};
use frazil_kernels::movement as kernel;
use frazil_tensor::Tensor;

use super::call::{Block, Call, by_size};
use crate::Result;

/// Inputs: table, indices, axis.
pub fn gather(call: &Call<'_>, op: Gather) -> Result<Tensor> {
    fn pick<T: Block>(
        call: &Call<'_>,
        indices: &[i64],
        dims: Vec<usize>,
        extents: &kernel::Gather,
    ) -> Result<Tensor> {
        let table = call.blocks::<T>(0)?;
        call.move_to(call.x().dtype(), dims, |out| {
            kernel::gather(&table, indices, out, extents)
                .map_err(|error| call.out_of_range("id", 1, error))
        })
    }
    let (table, indices) = (call.x().shape(), call.inputs[1].shape());
    let axis = call.axis(call.integer(2, "the axis")?, table.len())?;
    let shared = op.batch_dims;
    let fits = shared <= axis && shared <= indices.len() && table[..shared] == indices[..shared];
    if !fits {
        let clash = format!("table {table} and indices {indices} do not share {shared} axes");
        return Err(call.fail(clash));
    }
    let extents = kernel::Gather {
        batch: table[..shared].iter().product(),
        outer: table[shared..axis].iter().product(),
        axis: table[axis],
        inner: table[axis + 1..].iter().product(),
        indices: indices[shared..].iter().product(),
    };
    let dims = [&table[..axis], &indices[shared..], &table[axis + 1..]].concat();
    let indices = call.integers(1)?;
    by_size!(call.x().dtype(), T => pick::<T>(call, &indices, dims, &extents))
}

/// Inputs: indices, depth, on value, off value.
pub fn one_hot(call: &Call<'_>, op: OneHot) -> Result<Tensor> {
    fn mark<T: Block>(
        call: &Call<'_>,
        indices: &[i64],
        dims: Vec<usize>,
        depth: usize,
        inner: usize,
    ) -> Result<Tensor> {
        let (on, off) = (call.blocks::<T>(2)?, call.blocks::<T>(3)?);
        let ([on], [off]) = (&*on, &*off) else {
            return Err(call.fail("the on and off values are no single ones"));
        };
        call.move_to(call.inputs[2].dtype(), dims, |out| {
            kernel::one_hot(indices, out, depth, inner, (on, off));
            Ok(())
        })
    }
    let shape = call.x().shape();
    let axis = call.axis(op.axis, shape.len() + 1)?;
    let depth = call.integer(1, "the depth")?;
    let depth = usize::try_from(depth).map_err(|_| call.fail(format!("a depth of {depth}")))?;
    if call.inputs[2].dtype() != call.inputs[3].dtype() {
        return Err(call.fail("the on and off values are of different types"));
    }
    let inner = shape[axis..].iter().product();
    let mut dims = shape.to_vec();
    dims.insert(axis, depth);
    let indices = call.integers(0)?;
    by_size!(call.inputs[2].dtype(), T => mark::<T>(call, &indices, dims, depth, inner))
}
