//! Steps of optimizers over flat slices of weights, gradients and what is remembered of them.
//!
//! Every element is computed by itself, with one rounding for each operation of its formula and no
//! fused ones: the same bits on every instruction set, and those of a framework that computes the
//! formula operation by operation. Sums (norms) run over pieces of fixed length, in `f64` from piece
//! to piece: they depend neither on threads nor, in the pieces' sums of `f32`, on more than the
//! length of vectors.

mod adam;
mod sgd;
mod sum;

pub use adam::{Adam, Moments, Norms, adam_f32, lamb_f32};
pub use sgd::{Momentum, momentum_f32};
pub use sum::{PIECE, add_f32, copy_f32, pieces, square_sum_f32};

use std::ops::Range;

use crate::par::Pool;
use crate::rows::share_out;

/// Calls `work` with ranges that make up `len` elements, on all workers; each begins at a multiple of
/// 64.
fn share(pool: &Pool, len: usize, work: &(dyn Fn(Range<usize>) + Sync)) {
    const LINE: usize = 64;
    share_out(pool, len.div_ceil(LINE), LINE, &|lines| {
        work(lines.start * LINE..len.min(lines.end * LINE));
    });
}
