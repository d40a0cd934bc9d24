//! The gradient of attention, as it is defined: probabilities are computed again, row by row.

use super::{Attention, Operands};
use crate::matmul::dot;
use crate::number::Real;

/// Where the gradients go.
#[derive(Debug)]
pub struct AttentionGrads<'a, T> {
    /// `[b, queries, n·d]`
    pub dq: &'a mut [T],
    /// `[b, keys, n·d]`
    pub dk: &'a mut [T],
    /// `[b, keys, n·d]`
    pub dv: &'a mut [T],
}

/// The gradients of [`attention`](super::attention) for `dy: [b, queries, n·d]`. `scratch` takes three
/// rows of scores: `3 · keys` numbers.
pub fn attention_grad<T: Real>(
    operands: &Operands<'_, T>,
    dy: &[T],
    grads: AttentionGrads<'_, T>,
    scratch: &mut [T],
    extents: &Attention,
) {
    let &Attention { batch, heads, queries, keys, .. } = extents;
    let AttentionGrads { dq, dk, dv } = grads;
    extents.check(operands);
    let Operands { q, k, v, dropout, .. } = *operands;
    assert!(dy.len() == q.len() && dq.len() == q.len(), "dy and dq are [b, queries, n·d]");
    assert!(dk.len() == k.len() && dv.len() == k.len(), "dk and dv are [b, keys, n·d]");
    [&mut *dq, &mut *dk, &mut *dv].into_iter().for_each(|grad| grad.fill(T::default()));
    let scale = T::narrow(extents.scale.into());
    let (p, rest) = scratch.split_at_mut(keys);
    let (dropped, dp) = rest.split_at_mut(keys);
    let dp = &mut dp[..keys];
    for at in (0..batch).flat_map(|b| (0..heads).map(move |n| (b, n))) {
        for i in 0..queries {
            let query = extents.head(at, queries, i);
            extents.probabilities(operands, at, i, p);
            dropped.copy_from_slice(p);
            extents.drop(dropout, at, i, dropped);
            // y = Σ dropped[j] · v[j]
            for (j, dp) in dp.iter_mut().enumerate() {
                let key = extents.head(at, keys, j);
                *dp = dot(&dy[query.clone()], &v[key.clone()]);
                add(&mut dv[key], &dy[query.clone()], dropped[j]);
            }
            extents.drop(dropout, at, i, dp);
            // p = softmax(s): ds = p · (dp - Σ p · dp)
            let sum = p.iter().zip(&*dp).map(|(p, dp)| p.widen() * dp.widen()).sum();
            let sum = T::narrow(sum);
            for (j, (p, dp)) in p.iter().zip(&*dp).enumerate() {
                let ds = p.mul(dp.sub(sum)).mul(scale);
                let key = extents.head(at, keys, j);
                add(&mut dq[query.clone()], &k[key.clone()], ds);
                add(&mut dk[key], &q[query.clone()], ds);
            }
        }
    }
}

/// `to += from · factor`
fn add<T: Real>(to: &mut [T], from: &[T], factor: T) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = to.add(from.mul(factor)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::{Dropped, attention};
    use crate::dropout::Dropout;
    use crate::random::Key;

    #[test]
    fn by_differences() {
        let extents = Attention {
            batch: 2,
            heads: 2,
            size: 3,
            queries: 3,
            keys: 4,
            scale: 0.6,
            mask_value: -10000.0,
            steps: None,
        };
        let numbers = |n: usize, step: f64| -> Vec<f64> {
            (0..n).map(|i| (i as f64 * step).sin() * 2.0).collect()
        };
        let [q, k, v] = [(36, 0.37), (48, 0.73), (48, 1.91)].map(|(n, step)| numbers(n, step));
        let dy = numbers(36, 2.3);
        let mask = [1., 1., 1., 0., 1., 1., 0., 1.];
        let dropout = Dropout { rate: 0.3, site: 1, key: Key { seed: 3, step: 4 } };
        let (queries, keys) = ([0, 1, 2, 65536, 65537, 65538], [0, 1, 2, 3, 0, 1, 2, 3]);
        let dropped = Dropped { dropout, queries: &queries, keys: &keys };
        for (mask, dropout) in [(Some(&mask[..]), None), (None, Some(dropped))] {
            let loss = |[q, k, v]: [&[f64]; 3]| -> f64 {
                let (mut y, mut scratch) = (vec![0.0; 36], [0.0; 4]);
                attention(&Operands { q, k, v, mask, dropout }, &mut y, &mut scratch, &extents);
                y.iter().zip(&dy).map(|(y, dy)| y * dy).sum()
            };
            let (mut dq, mut dk, mut dv) = (vec![9.0; 36], vec![9.0; 48], vec![9.0; 48]);
            let grads = AttentionGrads { dq: &mut dq, dk: &mut dk, dv: &mut dv };
            let operands = Operands { q: &q, k: &k, v: &v, mask, dropout };
            attention_grad(&operands, &dy, grads, &mut [0.0; 12], &extents);
            for (which, grad) in [dq, dk, dv].iter().enumerate() {
                for (i, grad) in grad.iter().enumerate() {
                    let at = |by: f64| {
                        let mut all = [q.clone(), k.clone(), v.clone()];
                        all[which][i] += by;
                        loss(all.each_ref().map(Vec::as_slice))
                    };
                    let slope = (at(1e-5) - at(-1e-5)) / 2e-5;
                    assert!((grad - slope).abs() < 1e-7, "{which} {i}: {grad} for {slope}");
                }
            }
        }
    }
}
