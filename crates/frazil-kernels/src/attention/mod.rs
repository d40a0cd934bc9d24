//! Scaled dot-product attention of many heads: with a mask over the keys, as it is defined, and the
//! fast form over packed sequences.

mod packed;

pub use packed::{PackedAttention, Sequence, packed_attention_f32, scratch_len};

use crate::matmul::dot;
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

/// For every head: `out = softmax(q · kᵀ · scale + (1 - mask) · mask_value) · v`.
///
/// `q: [b, queries, n·d]  k, v: [b, keys, n·d]  mask: [b, keys]  out: [b, queries, n·d]`; no mask
/// means that every key counts. `scratch` takes one row of scores: `keys` numbers.
pub fn attention_f32(
    [q, k, v]: [&[f32]; 3],
    mask: Option<&[f32]>,
    out: &mut [f32],
    scratch: &mut [f32],
    extents: &Attention,
) {
    let &Attention { batch, heads, size: d, queries, keys, scale, mask_value, steps } = extents;
    let row = heads * d;
    assert_eq!(q.len(), batch * queries * row, "q is [b, queries, n·d]");
    assert_eq!(k.len(), batch * keys * row, "k is [b, keys, n·d]");
    assert_eq!(v.len(), k.len(), "v is [b, keys, n·d]");
    assert_eq!(out.len(), q.len(), "out is [b, queries, n·d]");
    assert!(mask.is_none_or(|mask| mask.len() == batch * keys), "mask is [b, keys]");
    let scores = &mut scratch[..keys];
    for b in 0..batch {
        let mask = mask.map(|mask| &mask[b * keys..][..keys]);
        for n in 0..heads {
            let head = |x: &[f32], i: usize| -> std::ops::Range<usize> {
                let at = (b * (x.len() / row / batch) + i) * row + n * d;
                at..at + d
            };
            for i in 0..queries {
                let query = &q[head(q, i)];
                for (j, score) in scores.iter_mut().enumerate() {
                    *score = dot(query, &k[head(k, j)]) * scale;
                }
                if let Some(mask) = mask {
                    for (score, mask) in scores.iter_mut().zip(mask) {
                        *score += (1.0 - mask) * mask_value;
                    }
                }
                softmax_row(scores);
                if let Some((scale, zero)) = steps {
                    for score in scores.iter_mut() {
                        *score = on_steps(*score, scale, zero);
                    }
                }
                let at = head(out, i);
                let out = &mut out[at];
                out.fill(0.0);
                for (j, &weight) in scores.iter().enumerate() {
                    for (o, &v) in out.iter_mut().zip(&v[head(v, j)]) {
                        *o += weight * v;
                    }
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
        attention_f32([&q, &k, &v], Some(&mask), &mut out, &mut scratch, &extents);
        for (o, e) in out.iter().zip(formula(&q, &k, &v, &mask, &extents)) {
            assert!((f64::from(*o) - e).abs() < 1e-6, "{o} instead of {e}");
        }
        attention_f32([&q, &k, &v], None, &mut out, &mut scratch, &extents);
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
        attention_f32([&[], &[], &[]], Some(&[]), &mut [], &mut [0.0; 3], &extents);
    }
}
