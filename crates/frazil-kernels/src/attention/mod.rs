//! Scaled dot-product attention of many heads: with a mask over the keys, as it is defined, its
//! gradient, and the fast form over packed sequences.

mod bytes;
mod grad;
mod packed;
mod packed_grad;

pub use bytes::OperandSteps;
pub use grad::{AttentionGrads, attention_grad};
pub use packed::{
    PackedAttention, PackedDropout, Sequence, dropped_attention_f32, packed_attention_f32,
    scratch_len,
};
pub use packed_grad::{PackedGrads, grad_scratch_len, packed_attention_grad_f32};

use std::ops::Range;

use crate::dropout::{Chance, Dropout};
use crate::matmul::dot;
use crate::number::Real;
use crate::quantize::on_steps;
use crate::softmax::softmax_row;

/// Extents and constants of an attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Sequences.
    pub batch: usize,
    /// Heads.
    pub heads: usize,
    /// Numbers of one head.
    pub size: usize,
    /// Rows of queries of each sequence.
    pub queries: usize,
    /// Rows of keys and values of each sequence.
    pub keys: usize,
    /// Scores are multiplied by this: `1 / √d`.
    pub scale: f32,
    /// `(1 - mask) · mask_value` is added to the scores: BERT's is -10000.
    pub mask_value: f32,
    /// Scale and zero of the bytes that the softmax is put on, if any.
    pub steps: Option<(f32, u8)>,
}

/// What attention reads.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a, T> {
    /// `[b, queries, n·d]`
    pub q: &'a [T],
    /// `[b, keys, n·d]`
    pub k: &'a [T],
    /// `[b, keys, n·d]`
    pub v: &'a [T],
    /// `[b, keys]`; without it every key counts.
    pub mask: Option<&'a [T]>,
    /// Of the probabilities.
    pub dropout: Option<Dropped<'a>>,
}

/// Dropout of probabilities: an element is a query, a head and a key.
#[derive(Clone, Copy, Debug)]
pub struct Dropped<'a> {
    /// How.
    pub dropout: Dropout,
    /// `[b, queries]`: the rows by which chance is looked up.
    pub queries: &'a [u32],
    /// `[b, keys]`: the low 16 bits are the column.
    pub keys: &'a [u32],
}

impl Dropped<'_> {
    /// What becomes of the probabilities of a query's head; the keys are those of a sequence.
    pub(crate) fn chance(&self, query: usize, head: usize) -> Chance {
        self.dropout.row(self.queries[query], head as u32)
    }

    /// The column of a key.
    pub(crate) fn column(&self, key: usize) -> u32 {
        self.keys[key] & 0xffff
    }
}

impl Attention {
    /// The numbers of head `n` in row `i` of `rows`, of sequence `b`.
    fn head(&self, (b, n): (usize, usize), rows: usize, i: usize) -> Range<usize> {
        let at = (b * rows + i) * self.heads * self.size + n * self.size;
        at..at + self.size
    }

    fn check<T>(&self, operands: &Operands<'_, T>) {
        let &Self { batch, heads, size, queries, keys, .. } = self;
        let row = heads * size;
        assert_eq!(operands.q.len(), batch * queries * row, "q is [b, queries, n·d]");
        assert_eq!(operands.k.len(), batch * keys * row, "k is [b, keys, n·d]");
        assert_eq!(operands.v.len(), batch * keys * row, "v is [b, keys, n·d]");
        assert!(operands.mask.is_none_or(|mask| mask.len() == batch * keys), "mask is [b, keys]");
        assert!(
            operands.dropout.is_none_or(|dropped| {
                dropped.queries.len() == batch * queries && dropped.keys.len() == batch * keys
            }),
            "a place for each row"
        );
    }

    /// The probabilities of query `i`, before dropout.
    fn probabilities<T: Real>(
        &self,
        operands: &Operands<'_, T>,
        (b, n): (usize, usize),
        i: usize,
        row: &mut [T],
    ) {
        let &Self { queries, keys, .. } = self;
        let scale = T::narrow(self.scale.into());
        let query = &operands.q[self.head((b, n), queries, i)];
        for (j, score) in row.iter_mut().enumerate() {
            *score = dot(query, &operands.k[self.head((b, n), keys, j)]).mul(scale);
        }
        if let Some(mask) = operands.mask {
            let value = T::narrow(self.mask_value.into());
            for (score, mask) in row.iter_mut().zip(&mask[b * keys..]) {
                *score = score.add(T::ONE.sub(*mask).mul(value));
            }
        }
        softmax_row(row);
        if let Some((scale, zero)) = self.steps {
            for x in row {
                *x = T::narrow(on_steps(x.widen() as f32, scale, zero).into());
            }
        }
    }

    /// Drops probabilities of query `i`, or their gradients.
    fn drop<T: Real>(
        &self,
        dropped: Option<Dropped<'_>>,
        (b, n): (usize, usize),
        i: usize,
        row: &mut [T],
    ) {
        let Some(dropped) = dropped else { return };
        let chance = dropped.chance(b * self.queries + i, n);
        let factor = T::narrow(dropped.dropout.factor());
        for (j, x) in row.iter_mut().enumerate() {
            let stays = chance.stays(dropped.column(b * self.keys + j));
            *x = if stays { x.mul(factor) } else { T::default() };
        }
    }
}

/// For every head: `out = drop(softmax(q · kᵀ · scale + (1 - mask) · mask_value)) · v`.
///
/// `out: [b, queries, n·d]`; `scratch` takes one row of scores: `keys` numbers.
pub fn attention<T: Real>(
    operands: &Operands<'_, T>,
    out: &mut [T],
    scratch: &mut [T],
    extents: &Attention,
) {
    let &Attention { batch, heads, queries, keys, .. } = extents;
    extents.check(operands);
    assert_eq!(out.len(), operands.q.len(), "out is [b, queries, n·d]");
    let row = &mut scratch[..keys];
    for at in (0..batch).flat_map(|b| (0..heads).map(move |n| (b, n))) {
        for i in 0..queries {
            extents.probabilities(operands, at, i, row);
            extents.drop(operands.dropout, at, i, row);
            let out = &mut out[extents.head(at, queries, i)];
            out.fill(T::default());
            for (j, weight) in row.iter().enumerate() {
                for (o, v) in out.iter_mut().zip(&operands.v[extents.head(at, keys, j)]) {
                    *o = o.add(weight.mul(*v));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The formula, as it is written, in `f64`.
    fn formula(q: &[f32], k: &[f32], v: &[f32], mask: &[f32], e: &Attention) -> Vec<f64> {
        let row = e.heads * e.size;
        let mut out = vec![0.0; q.len()];
        for b in 0..e.batch {
            for n in 0..e.heads {
                for i in 0..e.queries {
                    let at = |len: usize, i: usize, c: usize| (b * len + i) * row + n * e.size + c;
                    let scores: Vec<f64> = (0..e.keys)
                        .map(|j| {
                            let product: f64 = (0..e.size)
                                .map(|c| {
                                    f64::from(q[at(e.queries, i, c)])
                                        * f64::from(k[at(e.keys, j, c)])
                                })
                                .sum();
                            product * f64::from(e.scale)
                                + f64::from((1.0 - mask[b * e.keys + j]) * e.mask_value)
                        })
                        .collect();
                    let top = scores.iter().copied().fold(f64::MIN, f64::max);
                    let sum: f64 = scores.iter().map(|s| (s - top).exp()).sum();
                    for c in 0..e.size {
                        out[at(e.queries, i, c)] = (0..e.keys)
                            .map(|j| (scores[j] - top).exp() / sum * f64::from(v[at(e.keys, j, c)]))
                            .sum();
                    }
                }
            }
        }
        out
    }

    #[test]
    fn against_the_formula() {
        let extents = Attention {
            batch: 2,
            heads: 3,
            size: 5,
            queries: 4,
            keys: 7,
            scale: 0.447,
            mask_value: -10000.0,
            steps: None,
        };
        let numbers = |count: usize, step: f32| -> Vec<f32> {
            (0..count).map(|i| (i as f32 * step).sin() * 2.0).collect()
        };
        let q = numbers(2 * 4 * 15, 0.37);
        let k = numbers(2 * 7 * 15, 0.73);
        let v = numbers(2 * 7 * 15, 1.91);
        let mask = [1., 1., 1., 0., 1., 0., 0., 1., 1., 1., 1., 1., 1., 0.];
        let mut out = vec![f32::NAN; q.len()];
        let mut scratch = [0.0; 7];
        let operands = Operands { q: &q, k: &k, v: &v, mask: Some(&mask[..]), dropout: None };
        attention(&operands, &mut out, &mut scratch, &extents);
        for (o, e) in out.iter().zip(formula(&q, &k, &v, &mask, &extents)) {
            assert!((f64::from(*o) - e).abs() < 1e-6, "{o} instead of {e}");
        }
        let operands = Operands { mask: None, ..operands };
        attention(&operands, &mut out, &mut scratch, &extents);
        for (o, e) in out.iter().zip(formula(&q, &k, &v, &[1.0; 14], &extents)) {
            assert!((f64::from(*o) - e).abs() < 1e-6, "{o} instead of {e}");
        }
    }

    #[test]
    fn nothing_to_do() {
        let extents = Attention {
            batch: 0,
            heads: 2,
            size: 4,
            queries: 3,
            keys: 3,
            scale: 0.5,
            mask_value: -10000.0,
            steps: None,
        };
        let operands = Operands::<f32> { q: &[], k: &[], v: &[], mask: Some(&[]), dropout: None };
        attention(&operands, &mut [], &mut [0.0; 3], &extents);
    }
}
