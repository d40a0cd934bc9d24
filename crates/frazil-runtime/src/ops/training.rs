//! Losses, dropout, and the gradients of what is fused.

use frazil_graph::op::{Dropout, EmbedGrad, GeluForm, LayerNorm, StridedSlice, Training};
use frazil_kernels::gelu::{gelu_erf_grad, gelu_tanh_grad};
use frazil_kernels::loss::{cross_entropy, cross_entropy_grad};
use frazil_kernels::norm::{NormGrads, layer_norm_grad};
use frazil_kernels::random::Key;
use frazil_kernels::{OutOfRange, dropout as kernel, movement};
use frazil_tensor::{DType, Shape, Tensor};

use super::call::{Block, Call, by_real, by_size};
use super::{attention, slice};
use crate::Result;

pub fn run(call: &Call<'_>, op: &Training) -> Result<Vec<Tensor>> {
    let one = match op {
        Training::LayerNormGrad(op) => return norm_grad(call, *op),
        Training::GeluGrad(op) => gelu_grad(call, op.form)?,
        Training::Attention(op) => {
            return attention::attention(call, op.attention, Some(op.dropout));
        }
        Training::AttentionGrad(op) => return attention::grad(call, op.attention, op.dropout),
        Training::EmbedGrad(op) => return embed_grad(call, *op),
        Training::ScatterAdd => scatter_add(call)?,
        Training::StridedSliceGrad(op) => window_grad(call, *op)?,
        Training::CrossEntropy => entropy(call)?,
        Training::CrossEntropyGrad => entropy_grad(call)?,
        Training::Dropout(op) => dropout(call, *op)?,
    };
    Ok(vec![one])
}

/// Inputs: x, gamma, dy.
fn norm_grad(call: &Call<'_>, op: LayerNorm) -> Result<Vec<Tensor>> {
    let [x, gamma, dy] = [0, 1, 2].map(|i| call.inputs[i].shape());
    let (&[h], true) = (&**gamma, x == dy && x.last() == gamma.last()) else {
        return Err(call.fail(format!("x {x}, gamma {gamma} and dy {dy} do not go together")));
    };
    let rows = call.x().elements().checked_div(h).unwrap_or(0);
    let mut stats = call.room::<[f64; 2]>(DType::F64, &[rows, 2].into())?;
    stats.truncate(rows);
    by_real!(call, call.x().dtype(), T => {
        let (x, gamma, dy) = (call.values::<T>(0)?, call.values::<T>(1)?, call.values::<T>(2)?);
        let (mut dgamma, mut dbeta) = (vec![T::default(); h], vec![T::default(); h]);
        let dx = call.make(call.x().shape().clone(), |dx| {
            let grads = NormGrads { dx, dgamma: &mut dgamma, dbeta: &mut dbeta };
            layer_norm_grad(&x, &gamma, &dy, op.epsilon, grads, &mut stats);
        })?;
        let list = |values| Tensor::from_vec([h], values).map_err(|source| call.tensor(source));
        Ok(vec![dx, list(dgamma)?, list(dbeta)?])
    })
}

/// Inputs: x, dy.
fn gelu_grad(call: &Call<'_>, form: GeluForm) -> Result<Tensor> {
    same_shape(call, 0, 1)?;
    by_real!(call, call.x().dtype(), T => {
        let (x, dy) = (call.values::<T>(0)?, call.values::<T>(1)?);
        call.make(call.x().shape().clone(), |dx: &mut [T]| match form {
            GeluForm::Tanh => gelu_tanh_grad(&x, &dy, dx),
            GeluForm::Erf => gelu_erf_grad(&x, &dy, dx),
        })
    })
}

/// Inputs: dy, ids and segments `[b, s]`, and the index `[t]` of packed rows.
fn embed_grad(call: &Call<'_>, op: EmbedGrad) -> Result<Vec<Tensor>> {
    let [dy, ids, segments] = [0, 1, 2].map(|i| call.inputs[i].shape());
    let clash = || call.fail(format!("dy {dy}, ids {ids} and segments {segments} do not fit"));
    let (&[b, s], Some(&h)) = (&**ids, dy.last()) else { return Err(clash()) };
    let rows: Vec<usize> = match call.inputs.len() {
        4 => super::rows::places(call, 3, b * s)?,
        _ => (0..b * s).collect(),
    };
    if ids != segments || call.x().elements() != rows.len() * h {
        return Err(clash());
    }
    let (all_ids, all_segments) = (call.integers(1)?, call.integers(2)?);
    let of = |all: &[i64]| rows.iter().map(|&row| all[row]).collect::<Vec<i64>>();
    let positions: Vec<i64> = rows.iter().map(|&row| (row % s.max(1)) as i64).collect();
    let tables = [
        (of(&all_ids), op.words, "id", 1),
        (of(&all_segments), op.types, "segment", 2),
        (positions, op.positions, "position", 1),
    ];
    let table = |(indices, count, what, input): (Vec<i64>, usize, &'static str, usize)| {
        by_real!(call, call.x().dtype(), T => {
            let dy = call.values::<T>(0)?;
            let mut checked = Ok(());
            let out = call.make([count, h], |out: &mut [T]| {
                checked = movement::scatter_add(&dy, &indices, h, out);
            })?;
            let named = |error: OutOfRange| OutOfRange { at: rows[error.at], ..error };
            checked.map_err(|error| call.out_of_range(what, input, named(error)))?;
            Ok(out)
        })
    };
    tables.into_iter().map(table).collect()
}

/// Inputs: extents, indices, a block for each index.
fn scatter_add(call: &Call<'_>) -> Result<Tensor> {
    let dims = call.extents(0)?;
    let (indices, updates) = (call.inputs[1].shape(), call.inputs[2].shape());
    let blocks = dims.get(1..).unwrap_or_default();
    if dims.is_empty() || **updates != [&**indices, blocks].concat() {
        let dims = Shape::from(dims);
        return Err(call.fail(format!("indices {indices} and {updates} do not go with {dims}")));
    }
    let inner = blocks.iter().product();
    let indices = call.integers(1)?;
    by_real!(call, call.inputs[2].dtype(), T => {
        let updates = call.values::<T>(2)?;
        let mut checked = Ok(());
        let out = call.make(dims, |out: &mut [T]| {
            checked = movement::scatter_add(&updates, &indices, inner, out);
        })?;
        checked.map_err(|error| call.out_of_range("id", 1, error))?;
        Ok(out)
    })
}

/// Inputs: extents of x, begin, end, strides, dy.
fn window_grad(call: &Call<'_>, op: StridedSlice) -> Result<Tensor> {
    let dims = Shape::from(call.extents(0)?);
    let (view, shown) = slice::strided_view(call, op, &dims)?;
    if *call.inputs[4].shape() != Shape::from(shown.clone()) {
        let (dy, shown) = (call.inputs[4].shape(), Shape::from(shown));
        return Err(call.fail(format!("dy is {dy}, {shown} expected")));
    }
    by_size!(call.inputs[4].dtype(), T => {
        let dy = <T as Block>::read(&call.inputs[4]).map_err(|source| call.tensor(source))?;
        call.move_to(call.inputs[4].dtype(), dims, |out: &mut [T]| {
            movement::spread(&dy, &view, out);
            Ok(())
        })
    })
}

/// Rows of x, and the labels.
fn labels(call: &Call<'_>) -> Result<(usize, Vec<i64>)> {
    let [x, labels] = [0, 1].map(|i| call.inputs[i].shape());
    match (&**x, &**labels) {
        (&[rows, _], &[count]) if rows == count => Ok((rows, call.integers(1)?)),
        _ => Err(call.fail(format!("x {x} and labels {labels} do not go together"))),
    }
}

/// Inputs: x, labels.
fn entropy(call: &Call<'_>) -> Result<Tensor> {
    let (rows, labels) = labels(call)?;
    by_real!(call, call.x().dtype(), T => {
        let x = call.values::<T>(0)?;
        let mut checked = Ok(());
        let out = call.make([rows], |out: &mut [T]| {
            checked = cross_entropy(&x, &labels, out);
        })?;
        checked.map_err(|error| call.out_of_range("label", 1, error))?;
        Ok(out)
    })
}

/// Inputs: x, labels, dy.
fn entropy_grad(call: &Call<'_>) -> Result<Tensor> {
    let (_, labels) = labels(call)?;
    same_shape(call, 1, 2)?;
    by_real!(call, call.x().dtype(), T => {
        let (x, dy) = (call.values::<T>(0)?, call.values::<T>(2)?);
        let mut checked = Ok(());
        let out = call.make(call.x().shape().clone(), |dx: &mut [T]| {
            checked = cross_entropy_grad(&x, &labels, &dy, dx);
        })?;
        checked.map_err(|error| call.out_of_range("label", 1, error))?;
        Ok(out)
    })
}

/// Inputs: x, key, places.
fn dropout(call: &Call<'_>, op: Dropout) -> Result<Tensor> {
    let width = call.x().shape().last().copied().unwrap_or(1);
    let rows = call.x().elements().checked_div(width).unwrap_or(0);
    let places = places(call, 2, rows)?;
    let how = dropout_of(call, 1, op)?;
    by_real!(call, call.x().dtype(), T => {
        let x = call.values::<T>(0)?;
        call.make(call.x().shape().clone(), |out: &mut [T]| kernel::dropout(&x, &places, out, &how))
    })
}

/// Dropout with the seed and the step of input `i`.
pub fn dropout_of(call: &Call<'_>, i: usize, op: Dropout) -> Result<kernel::Dropout> {
    let &[seed, step] = call.integers(i)?.as_slice() else {
        let shape = call.inputs[i].shape();
        return Err(call.fail(format!("the key is {shape}, a seed and a step expected")));
    };
    let key = Key { seed: seed as u64, step: step as u64 };
    Ok(kernel::Dropout { rate: op.rate, site: op.site, key })
}

/// The places of `rows` rows in input `i`.
pub fn places(call: &Call<'_>, i: usize, rows: usize) -> Result<Vec<u32>> {
    let places = call.integers(i)?;
    if places.len() != rows {
        let (count, name) = (places.len(), call.graph.value_name(call.node.inputs[i]));
        return Err(call.fail(format!("`{name}` has {count} places for {rows} rows")));
    }
    let place = |(at, index): (usize, i64)| {
        let wrong = |_| call.out_of_range("place", i, OutOfRange { at, index, limit: 1 << 31 });
        u32::try_from(index).map_err(wrong)
    };
    places.into_iter().enumerate().map(place).collect()
}

fn same_shape(call: &Call<'_>, i: usize, j: usize) -> Result<()> {
    let (a, b) = (call.inputs[i].shape(), call.inputs[j].shape());
    if a == b { Ok(()) } else { Err(call.fail(format!("{a} and {b} are not of one shape"))) }
}
