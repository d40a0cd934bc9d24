//! Layer normalisation over rows: what it is, its gradient, and the fast form with what stands around it.

mod fused;
mod fused_grad;
mod grad;

pub use fused::{Affine, LayerNorm, fused_layer_norm_f32};
pub(crate) use fused::{Term, gather};
pub use fused_grad::{LayerNormGrad, layer_norm_grad_f32, norm_scratch_len};
pub use grad::{NormGrads, layer_norm_grad};

use crate::number::Real;

/// `out = (x - mean) / √(variance + epsilon) · gamma + beta` over each row.
/// `x, out: [rows, h]  gamma, beta: [h]`. Mean and variance are kept in `f64`.
pub fn layer_norm<T: Real>(x: &[T], gamma: &[T], beta: &[T], out: &mut [T], epsilon: f32) {
    let h = gamma.len();
    assert_eq!(h, beta.len(), "gamma and beta have the same length");
    assert_eq!(x.len(), out.len(), "one output for each input");
    if h == 0 {
        return;
    }
    assert_eq!(x.len() % h, 0, "whole rows");
    for (x, out) in x.chunks_exact(h).zip(out.chunks_exact_mut(h)) {
        let mean = x.iter().map(|x| x.widen()).sum::<f64>() / h as f64;
        let variance = x.iter().map(|x| (x.widen() - mean).powi(2)).sum::<f64>() / h as f64;
        let scale = 1.0 / (variance + f64::from(epsilon)).sqrt();
        for (((o, x), gamma), beta) in out.iter_mut().zip(x).zip(gamma).zip(beta) {
            let normal = (x.widen() - mean) * scale;
            *o = T::narrow(normal * gamma.widen() + beta.widen());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        // Mean 2, variance 2/3.
        let mut out = [0.0; 3];
        layer_norm::<f32>(&[1.0, 2.0, 3.0], &[1.0, 1.0, 2.0], &[0.0, 5.0, 0.0], &mut out, 0.0);
        let z = 1.5f32.sqrt();
        for (o, expected) in out.into_iter().zip([-z, 5.0, 2.0 * z]) {
            assert!((o - expected).abs() < 1e-6, "{o} instead of {expected}");
        }
    }

    #[test]
    fn epsilon_saves_a_constant_row() {
        let mut out = [9.0; 4];
        layer_norm::<f32>(&[3.0; 4], &[7.0; 2], &[1.0, -1.0], &mut out, 1e-12);
        assert_eq!(out, [1.0, -1.0, 1.0, -1.0]);
    }

    #[test]
    fn a_large_offset_does_not_drown_the_row() {
        let x: Vec<f32> = (0..64).map(|i| 4096.0 + i as f32).collect();
        let mut out = vec![0.0; 64];
        layer_norm::<f32>(&x, &[1.0; 64], &[0.0; 64], &mut out, 1e-12);
        let sd = ((64.0f64 * 64.0 - 1.0) / 12.0).sqrt();
        for (i, &o) in out.iter().enumerate() {
            assert!((f64::from(o) - (i as f64 - 31.5) / sd).abs() < 1e-6);
        }
    }
}
