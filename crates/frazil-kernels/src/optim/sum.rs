//! Sums over gradients: their squares, for norms, and gradients of several batches.

use super::adam::vectors;
use super::share;
use crate::cpu::Isa;
use crate::par::Pool;
use crate::rows::Shared;
use crate::simd::{Kernel, Simd, dispatch};

/// How many numbers are added up before the sum goes on in `f64`.
pub const PIECE: usize = 16 * 1024;

/// How many pieces so many numbers have.
pub fn pieces(len: usize) -> usize {
    len.div_ceil(PIECE)
}

/// `Σ x²`; `sums` takes a number for each of [`pieces`].
///
/// # Panics
/// If `sums` is too short.
pub fn square_sum_f32(pool: &Pool, isa: Isa, x: &[f32], sums: &mut [f64]) -> f64 {
    let sums = &mut sums[..pieces(x.len())];
    let shared = Shared::new(sums);
    pool.run(sums.len(), &|piece, _| {
        let part = &x[piece * PIECE..x.len().min((piece + 1) * PIECE)];
        let sum = dispatch(isa, Squares { x: part });
        // SAFETY: a number for each piece, and each piece is one task's.
        unsafe { *shared.at(piece) = sum };
    });
    sums.iter().sum()
}

/// `sum[i] += x[i]`
///
/// # Panics
/// If they are not of one length.
pub fn add_f32(pool: &Pool, isa: Isa, sum: &mut [f32], x: &[f32]) {
    assert_eq!(sum.len(), x.len(), "one summand for each sum");
    let to = Shared::new(sum);
    share(pool, x.len(), &|range| {
        dispatch(isa, Add { to: to.at(range.start), x: &x[range] });
    });
}

/// `to[i] = x[i]`: one thread alone is slower than the memory is.
///
/// # Panics
/// If they are not of one length.
pub fn copy_f32(pool: &Pool, to: &mut [f32], x: &[f32]) {
    assert_eq!(to.len(), x.len(), "one place for each number");
    let to = Shared::new(to);
    share(pool, x.len(), &|range| {
        let x = &x[range.clone()];
        // SAFETY: both have this range, and no other task writes it.
        unsafe { std::ptr::copy_nonoverlapping(x.as_ptr(), to.at(range.start), x.len()) };
    });
}

struct Squares<'a> {
    x: &'a [f32],
}

impl Kernel for Squares<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f64 {
        let x = self.x.as_ptr();
        let len = self.x.len();
        // Four at a time, so that none waits for the one before.
        let mut sums = [s.splat(0.0); 4];
        let mut at = 0;
        // SAFETY: all of these are inside of the slice.
        unsafe {
            while at + 4 * S::LANES <= len {
                for (i, sum) in sums.iter_mut().enumerate() {
                    let x = s.load(x.add(at + i * S::LANES));
                    *sum = s.fma(x, x, *sum);
                }
                at += 4 * S::LANES;
            }
            while at < len {
                let x = s.load_first(x.add(at), len - at);
                sums[0] = s.fma(x, x, sums[0]);
                at += S::LANES;
            }
        }
        f64::from(s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3]))))
    }
}

struct Add<'a> {
    /// As many numbers as `x`.
    to: *mut f32,
    x: &'a [f32],
}

impl Kernel for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (to, from) = (self.to, self.x.as_ptr());
        // SAFETY: as many numbers can be written as there are to read.
        unsafe {
            vectors!(s, S, self.x.len(), (a = to, b = from) { [s.add(a, b)] } (to = a));
        }
    }
}
