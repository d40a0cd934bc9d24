//! The gradient of layer normalisation, as it is defined.

use crate::number::Real;

/// Where the gradients go.
#[derive(Debug)]
pub struct NormGrads<'a, T> {
    /// `[rows, h]`
    pub dx: &'a mut [T],
    /// `[h]`
    pub dgamma: &'a mut [T],
    /// `[h]`
    pub dbeta: &'a mut [T],
}

/// The gradients of [`layer_norm`](super::layer_norm). `x, dy: [rows, h]  gamma: [h]`; `stats` takes
/// two numbers for each row.
pub fn layer_norm_grad<T: Real>(
    x: &[T],
    gamma: &[T],
    dy: &[T],
    epsilon: f32,
    grads: NormGrads<'_, T>,
    stats: &mut [[f64; 2]],
) {
    let h = gamma.len();
    let NormGrads { dx, dgamma, dbeta } = grads;
    assert!(x.len() == dy.len() && x.len() == dx.len(), "x, dy and dx have the same length");
    assert!(dgamma.len() == h && dbeta.len() == h, "a gradient for each of gamma and beta");
    if h == 0 {
        return;
    }
    assert_eq!(x.len(), stats.len() * h, "whole rows");
    let rows = x.chunks_exact(h).zip(dy.chunks_exact(h)).zip(dx.chunks_exact_mut(h));
    for (((x, dy), dx), stats) in rows.zip(&mut *stats) {
        let count = h as f64;
        let mean = x.iter().map(|x| x.widen()).sum::<f64>() / count;
        let variance = x.iter().map(|x| (x.widen() - mean).powi(2)).sum::<f64>() / count;
        let scale = 1.0 / (variance + f64::from(epsilon)).sqrt();
        *stats = [mean, scale];
        // y = gamma · z + beta with z = (x - mean) · scale.
        let dz = |i: usize| dy[i].widen() * gamma[i].widen();
        let z = |i: usize| (x[i].widen() - mean) * scale;
        let mean_dz = (0..h).map(dz).sum::<f64>() / count;
        let mean_dz_z = (0..h).map(|i| dz(i) * z(i)).sum::<f64>() / count;
        for (i, dx) in dx.iter_mut().enumerate() {
            *dx = T::narrow(scale * (dz(i) - mean_dz - z(i) * mean_dz_z));
        }
    }
    for i in 0..h {
        let column = || stats.iter().enumerate().map(|(row, stats)| (row * h + i, stats));
        let of_gamma =
            column().map(|(at, [mean, scale])| dy[at].widen() * (x[at].widen() - mean) * scale);
        dgamma[i] = T::narrow(of_gamma.sum());
        dbeta[i] = T::narrow(column().map(|(at, _)| dy[at].widen()).sum());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::norm::layer_norm;

    #[test]
    fn by_differences() {
        let h = 5;
        let numbers = |n: usize, step: f64| -> Vec<f64> {
            (0..n).map(|i| (i as f64 * step).sin() * 2.0).collect()
        };
        let (x, gamma, beta, dy) =
            (numbers(3 * h, 0.7), numbers(h, 1.3), numbers(h, 0.2), numbers(3 * h, 2.1));
        let loss = |x: &[f64], gamma: &[f64], beta: &[f64]| -> f64 {
            let mut y = vec![0.0; x.len()];
            layer_norm(x, gamma, beta, &mut y, 1e-3);
            y.iter().zip(&dy).map(|(y, dy)| y * dy).sum()
        };
        let (mut dx, mut dgamma, mut dbeta) = (vec![0.0; 3 * h], vec![0.0; h], vec![0.0; h]);
        let grads = NormGrads { dx: &mut dx, dgamma: &mut dgamma, dbeta: &mut dbeta };
        layer_norm_grad(&x, &gamma, &dy, 1e-3, grads, &mut [[0.0; 2]; 3]);
        let slope = |of: &dyn Fn(f64) -> f64| (of(1e-5) - of(-1e-5)) / 2e-5;
        let moved = |x: &[f64], i: usize, by: f64| -> Vec<f64> {
            let mut x = x.to_vec();
            x[i] += by;
            x
        };
        for (i, dx) in dx.iter().enumerate() {
            let expected = slope(&|by| loss(&moved(&x, i, by), &gamma, &beta));
            assert!((dx - expected).abs() < 1e-7, "dx {dx} for {expected}");
        }
        for i in 0..h {
            let of_gamma = slope(&|by| loss(&x, &moved(&gamma, i, by), &beta));
            let of_beta = slope(&|by| loss(&x, &gamma, &moved(&beta, i, by)));
            assert!((dgamma[i] - of_gamma).abs() < 1e-7 && (dbeta[i] - of_beta).abs() < 1e-7);
        }
    }
}
