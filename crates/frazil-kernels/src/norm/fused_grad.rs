//! The gradient of layer normalisation with the vectors of the CPU at hand.

use std::ops::Range;

use crate::columns::add_up;
use crate::cpu::Isa;
use crate::par::Pool;
use crate::rows::{Shared, covers};
use crate::simd::{Kernel, Simd, dispatch};

/// What the gradients are computed from.
#[derive(Clone, Copy, Debug)]
pub struct LayerNormGrad<'a> {
    /// `t`
    pub rows: usize,
    /// `[t, x_ld]`, of which the first `h` columns count: what was normalised.
    pub x: (&'a [f32], usize),
    /// `[t, dy_ld]` and its `ld`.
    pub dy: (&'a [f32], usize),
    /// `[h]`
    pub gamma: &'a [f32],
    /// Added to the variance.
    pub epsilon: f32,
}

/// Rows whose share of gamma's and beta's gradients is added up by itself: the same for any number
/// of threads.
const CHUNK: usize = 32;

/// Numbers of scratch for so many rows of `h`.
pub fn norm_scratch_len(rows: usize, h: usize) -> usize {
    rows.div_ceil(CHUNK) * 2 * h
}

/// [`layer_norm_grad`](super::layer_norm_grad): `dx: [t, dx_ld]`, `both: [2, h]`, the gradients of
/// gamma and of beta. `scratch` holds [`norm_scratch_len`] numbers.
///
/// # Panics
/// If a slice is too short.
pub fn layer_norm_grad_f32(
    pool: &Pool,
    isa: Isa,
    grad: &LayerNormGrad<'_>,
    (dx, dx_ld): (&mut [f32], usize),
    [dgamma, dbeta]: [&mut [f32]; 2],
    scratch: &mut [f32],
) {
    let (rows, h) = (grad.rows, grad.gamma.len());
    for (x, ld) in [grad.x, grad.dy, (&*dx, dx_ld)] {
        assert!(covers(x.len(), rows, ld, h), "x, dy and dx are [{rows}, {h}]");
    }
    assert!(dgamma.len() == h && dbeta.len() == h, "gradients of gamma and beta are [{h}]");
    let scratch = &mut scratch[..norm_scratch_len(rows, h)];
    let chunks = rows.div_ceil(CHUNK);
    {
        let (dx, sums) = (Shared::new(dx), Shared::new(&mut *scratch));
        pool.run(chunks, &|chunk, _| {
            let rows = chunk * CHUNK..rows.min((chunk + 1) * CHUNK);
            let sums = sums.at(chunk * 2 * h);
            dispatch(isa, Rows { grad, rows, dx, dx_ld, sums });
        });
    }
    let (gammas, betas) = (&*scratch, scratch.get(h..).unwrap_or_default());
    add_up(pool, isa, gammas, 2 * h, [chunks, h], dgamma);
    add_up(pool, isa, betas, 2 * h, [chunks, h], dbeta);
}

struct Rows<'a> {
    grad: &'a LayerNormGrad<'a>,
    rows: Range<usize>,
    dx: Shared<f32>,
    dx_ld: usize,
    /// `[2, h]`, this task's.
    sums: *mut f32,
}

impl Kernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let LayerNormGrad { x, dy, gamma, epsilon, .. } = *self.grad;
        let h = gamma.len();
        let gamma = gamma.as_ptr();
        let (of_gamma, of_beta) = (self.sums, self.sums.wrapping_add(h));
        let whole = h / S::LANES * S::LANES;
        let rest = h - whole;
        let ones = [1.0; 16];
        // SAFETY: the extents were compared with the slices; rows and sums are this task's alone.
        unsafe {
            for c in (0..2 * h).step_by(S::LANES) {
                s.store_first(self.sums.add(c), s.splat(0.0), 2 * h - c);
            }
            for row in self.rows.clone() {
                let (x, dy) = (x.0.as_ptr().add(row * x.1), dy.0.as_ptr().add(row * dy.1));
                let dx = self.dx.at(row * self.dx_ld);
                let mut sum = s.splat(0.0);
                for c in (0..h).step_by(S::LANES) {
                    sum = s.add(sum, s.load_first(x.add(c), h - c));
                }
                let mean = s.splat(s.sum(sum) / h as f32);
                let mut squares = s.splat(0.0);
                for c in (0..whole).step_by(S::LANES) {
                    let x = s.sub(s.load(x.add(c)), mean);
                    squares = s.fma(x, x, squares);
                }
                if rest > 0 {
                    let x = s.sub(s.load_first(x.add(whole), rest), mean);
                    let x = s.mul(x, s.load_first(ones.as_ptr(), rest));
                    squares = s.fma(x, x, squares);
                }
                let variance = s.sum(squares) / h as f32;
                let scale = (1.0 / f64::from(variance + epsilon).sqrt()) as f32;
                let vector = s.splat(scale);
                // y = gamma · z + beta with z = (x - mean) · scale. Beyond the end dy is 0.
                let (mut sum_dz, mut sum_dz_z) = (s.splat(0.0), s.splat(0.0));
                for c in (0..h).step_by(S::LANES) {
                    let left = h - c;
                    let z = s.mul(s.sub(s.load_first(x.add(c), left), mean), vector);
                    let dy = s.load_first(dy.add(c), left);
                    let dz = s.mul(dy, s.load_first(gamma.add(c), left));
                    sum_dz = s.add(sum_dz, dz);
                    sum_dz_z = s.fma(dz, z, sum_dz_z);
                    let before = s.load_first(of_gamma.add(c), left);
                    s.store_first(of_gamma.add(c), s.fma(dy, z, before), left);
                    let before = s.load_first(of_beta.add(c), left);
                    s.store_first(of_beta.add(c), s.add(dy, before), left);
                }
                let mean_dz = s.splat(s.sum(sum_dz) / h as f32);
                let mean_dz_z = s.splat(s.sum(sum_dz_z) / h as f32);
                for c in (0..h).step_by(S::LANES) {
                    let left = h - c;
                    let z = s.mul(s.sub(s.load_first(x.add(c), left), mean), vector);
                    let dz = s.mul(s.load_first(dy.add(c), left), s.load_first(gamma.add(c), left));
                    let rest = s.fnma(z, mean_dz_z, s.sub(dz, mean_dz));
                    s.store_first(dx.add(c), s.mul(vector, rest), left);
                }
            }
        }
    }
}
