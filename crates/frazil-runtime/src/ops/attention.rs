//! Attention, padded or packed, with or without dropout, and its gradient: one loop over sequences.

use std::borrow::Cow;
use std::ops::Range;

use frazil_graph::op::{Attention, Dropout, Steps};
use frazil_kernels::Real;
use frazil_kernels::attention::{self, AttentionGrads, Dropped, Operands};
use frazil_kernels::cast::{Scalar, cast};
use frazil_tensor::{DType, Element, Tensor};

use super::call::{Call, by_real};
use super::training;
use crate::Result;

/// Inputs: q, k, v, and the mask `[b, s]` or the bounds `[b+1]` of queries and keys; with dropout
/// also the key and the places of queries and keys.
pub fn attention(call: &Call<'_>, op: Attention, dropout: Option<Dropout>) -> Result<Vec<Tensor>> {
    by_real!(call, call.x().dtype(), T => forward::<T>(call, op, dropout))
}

/// The same inputs, and then dy.
pub fn grad(call: &Call<'_>, op: Attention, dropout: Option<Dropout>) -> Result<Vec<Tensor>> {
    by_real!(call, call.x().dtype(), T => backward::<T>(call, op, dropout))
}

/// A sequence: rows of queries, rows of keys.
struct Sequence {
    queries: Range<usize>,
    keys: Range<usize>,
}

/// What every sequence reads its part of.
struct Problem<'a, T: Element> {
    op: Attention,
    steps: Option<(f32, u8)>,
    width: usize,
    sequences: Vec<Sequence>,
    q: Cow<'a, [T]>,
    k: Cow<'a, [T]>,
    v: Cow<'a, [T]>,
    mask: Option<Cow<'a, [T]>>,
    dropout: Option<(frazil_kernels::dropout::Dropout, Vec<u32>, Vec<u32>)>,
}

impl<'a, T: Element + Real + Scalar> Problem<'a, T> {
    fn new(call: &'a Call<'_>, op: Attention, dropout: Option<Dropout>) -> Result<Self> {
        let [q, k, v] = [0, 1, 2].map(|i| call.inputs[i].shape());
        let heads = op.heads;
        let clash = || {
            let mask = if op.packed {
                String::new()
            } else {
                format!(", mask {}", call.inputs[3].shape())
            };
            call.fail(format!("q {q}, k {k}, v {v}{mask} and {heads} heads do not go together"))
        };
        let (&[queries, width], &[keys, k_width]) = (&**q, &**k) else { return Err(clash()) };
        if k != v || k_width != width || heads == 0 || !width.is_multiple_of(heads) {
            return Err(clash());
        }
        let (sequences, mask, after) = if op.packed {
            (packed(call, queries, keys)?, None, 5)
        } else {
            let &[batch, length] = &**call.inputs[3].shape() else { return Err(clash()) };
            if queries != keys || batch.checked_mul(length) != Some(queries) {
                return Err(clash());
            }
            let rows = |i: usize| i * length..(i + 1) * length;
            let sequences = (0..batch).map(|i| Sequence { queries: rows(i), keys: rows(i) });
            (sequences.collect(), Some(numbers(call, 3)?), 4)
        };
        let dropout = match dropout {
            Some(dropout) => {
                let places = |i: usize, rows: usize| training::places(call, after + i, rows);
                let (queries, keys) = (places(1, queries)?, places(2, keys)?);
                Some((training::dropout_of(call, after, dropout)?, queries, keys))
            }
            None => None,
        };
        let (q, k, v) = (call.values(0)?, call.values(1)?, call.values(2)?);
        let steps = match op.steps {
            None => None,
            Some(Steps::Tensor { scale, zero }) => Some((scale, zero)),
            Some(other) => return Err(call.fail(format!("its softmax cannot be on {other:?}"))),
        };
        Ok(Self { op, steps, width, sequences, q, k, v, mask, dropout })
    }

    fn extents(&self, sequence: &Sequence) -> attention::Attention {
        attention::Attention {
            batch: 1,
            heads: self.op.heads,
            size: self.width / self.op.heads,
            queries: sequence.queries.len(),
            keys: sequence.keys.len(),
            scale: self.op.scale,
            mask_value: self.op.mask_value,
            steps: self.steps,
        }
    }

    fn operands(&self, sequence: &Sequence) -> Operands<'_, T> {
        let [queries, keys] = [&sequence.queries, &sequence.keys].map(|rows| self.rows(rows));
        Operands {
            q: &self.q[queries],
            k: &self.k[keys.clone()],
            v: &self.v[keys],
            mask: self.mask.as_ref().map(|mask| &mask[sequence.keys.clone()]),
            dropout: self.dropout.as_ref().map(|(dropout, queries, keys)| Dropped {
                dropout: *dropout,
                queries: &queries[sequence.queries.clone()],
                keys: &keys[sequence.keys.clone()],
            }),
        }
    }

    /// The elements of some rows.
    fn rows(&self, rows: &Range<usize>) -> Range<usize> {
        rows.start * self.width..rows.end * self.width
    }

    /// Room for so many rows of scores.
    fn scratch(&self, call: &Call<'_>, rows: usize) -> Result<Vec<T>> {
        let longest = self.sequences.iter().map(|sequence| sequence.keys.len()).max().unwrap_or(0);
        call.room(T::DTYPE, &[rows, longest].into())
    }
}

fn forward<T: Element + Real + Scalar + Default>(
    call: &Call<'_>,
    op: Attention,
    dropout: Option<Dropout>,
) -> Result<Vec<Tensor>> {
    let problem = Problem::<T>::new(call, op, dropout)?;
    let mut scratch = problem.scratch(call, 1)?;
    let out = call.make(call.x().shape().clone(), |out: &mut [T]| {
        for sequence in &problem.sequences {
            let (operands, extents) = (problem.operands(sequence), problem.extents(sequence));
            let out = &mut out[problem.rows(&sequence.queries)];
            attention::attention(&operands, out, &mut scratch, &extents);
        }
    })?;
    Ok(vec![out])
}

fn backward<T: Element + Real + Scalar + Default>(
    call: &Call<'_>,
    op: Attention,
    dropout: Option<Dropout>,
) -> Result<Vec<Tensor>> {
    let problem = Problem::<T>::new(call, op, dropout)?;
    let last = call.inputs.len() - 1;
    if call.inputs[last].shape() != call.x().shape() {
        let (dy, q) = (call.inputs[last].shape(), call.x().shape());
        return Err(call.fail(format!("dy {dy} does not go with q {q}")));
    }
    let dy = call.values::<T>(last)?;
    let mut scratch = problem.scratch(call, 3)?;
    let [q, k, v] = [0, 1, 2].map(|i| call.inputs[i].shape());
    let mut dk = call.room::<T>(T::DTYPE, k)?;
    let mut dv = call.room::<T>(T::DTYPE, v)?;
    let dq = call.make(q.clone(), |dq: &mut [T]| {
        for sequence in &problem.sequences {
            let [queries, keys] =
                [&sequence.queries, &sequence.keys].map(|rows| problem.rows(rows));
            let (operands, extents) = (problem.operands(sequence), problem.extents(sequence));
            let grads = AttentionGrads {
                dq: &mut dq[queries.clone()],
                dk: &mut dk[keys.clone()],
                dv: &mut dv[keys],
            };
            attention::attention_grad(&operands, &dy[queries], grads, &mut scratch, &extents);
        }
    })?;
    let tensor = |shape: &frazil_tensor::Shape, values| {
        Tensor::from_vec(shape.clone(), values).map_err(|source| call.tensor(source))
    };
    Ok(vec![dq, tensor(k, dk)?, tensor(v, dv)?])
}

/// The sequences of bounds `[b+1]` for queries and keys.
fn packed(call: &Call<'_>, queries: usize, keys: usize) -> Result<Vec<Sequence>> {
    let (of_queries, of_keys) = (bounds(call, 3, queries)?, bounds(call, 4, keys)?);
    if of_queries.len() != of_keys.len() {
        let (a, b) = (call.inputs[3].shape(), call.inputs[4].shape());
        return Err(call.fail(format!("bounds of {a} for the queries and {b} for the keys")));
    }
    let pairs = of_queries.windows(2).zip(of_keys.windows(2));
    Ok(pairs.map(|(q, k)| Sequence { queries: q[0]..q[1], keys: k[0]..k[1] }).collect())
}

/// Input `i` as where the sequences of `rows` begin and end: from 0, never back, to the last row.
fn bounds(call: &Call<'_>, i: usize, rows: usize) -> Result<Vec<usize>> {
    let bounds = call.extents(i)?;
    let ordered = bounds.windows(2).all(|pair| pair[0] <= pair[1]);
    let whole = bounds.first() == Some(&0) && bounds.last() == Some(&rows);
    if ordered && whole {
        return Ok(bounds);
    }
    let name = call.graph.value_name(call.node.inputs[i]);
    Err(call.fail(format!("`{name}` does not part {rows} rows into sequences")))
}

/// Input `i` as the numbers of the operation, whatever numbers it has.
fn numbers<'a, T: Element + Scalar + Default>(
    call: &'a Call<'_>,
    i: usize,
) -> Result<Cow<'a, [T]>> {
    fn converted<F: Scalar, T: Scalar + Default>(x: &[F]) -> Cow<'static, [T]> {
        let mut out = vec![T::default(); x.len()];
        cast(x, &mut out);
        out.into()
    }
    Ok(match call.inputs[i].dtype() {
        dtype if dtype == T::DTYPE => call.values::<T>(i)?,
        DType::F32 => converted(&call.values::<f32>(i)?),
        DType::F64 => converted(&call.values::<f64>(i)?),
        DType::Bool => converted(&call.values::<u8>(i)?),
        _ => converted(&call.integers(i)?),
    })
}
