//! Softmax and its logarithm over rows with the vectors of the CPU at hand.

use crate::cpu::Isa;
use crate::math;
use crate::par::Pool;
use crate::rows::{Shared, share_out};
use crate::simd::{Kernel, Simd, dispatch};

/// [`softmax`](super::softmax) of numbers of 32 bits.
pub fn softmax_f32(pool: &Pool, isa: Isa, x: &[f32], out: &mut [f32], columns: usize) {
    for_rows(pool, isa, x, out, columns, false);
}

/// [`log_softmax`](super::log_softmax) of numbers of 32 bits.
pub fn log_softmax_f32(pool: &Pool, isa: Isa, x: &[f32], out: &mut [f32], columns: usize) {
    for_rows(pool, isa, x, out, columns, true);
}

fn for_rows(pool: &Pool, isa: Isa, x: &[f32], out: &mut [f32], columns: usize, log: bool) {
    assert_eq!(x.len(), out.len(), "one output for each input");
    if columns == 0 {
        return;
    }
    assert_eq!(x.len() % columns, 0, "whole rows");
    let out = Shared::new(out);
    share_out(pool, x.len() / columns, columns, &|rows| {
        let x = &x[rows.start * columns..rows.end * columns];
        let out = out.at(rows.start * columns);
        dispatch(isa, Rows { x, out, columns, log });
    });
}

struct Rows<'a> {
    x: &'a [f32],
    out: *mut f32,
    columns: usize,
    log: bool,
}

impl Kernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { x, out, columns, log } = self;
        let whole = columns / S::LANES * S::LANES;
        for (i, x) in x.chunks_exact(columns).enumerate() {
            let (rest, tail) = (columns - whole, &x[whole..]);
            // SAFETY: the output is as long as the input, and these rows are this task's alone.
            unsafe {
                let out = out.add(i * columns);
                let mut largest = s.splat(f32::NEG_INFINITY);
                for c in (0..whole).step_by(S::LANES) {
                    largest = s.max(s.load(x.as_ptr().add(c)), largest);
                }
                let largest = tail.iter().fold(s.largest(largest), |a, &b| a.max(b));
                let top = s.splat(largest);
                let mut sum = s.splat(0.0);
                for c in (0..whole).step_by(S::LANES) {
                    let power = math::exp(s, s.sub(s.load(x.as_ptr().add(c)), top));
                    s.store(out.add(c), power);
                    sum = s.add(sum, power);
                }
                if rest > 0 {
                    let there = [1.0; 16];
                    let x = s.sub(s.load_first(tail.as_ptr(), rest), top);
                    let power = math::exp(s, x);
                    s.store_first(out.add(whole), power, rest);
                    // Beyond the end stands e^-largest, which may be infinite.
                    let end = s.lt(s.splat(0.0), s.load_first(there.as_ptr(), rest));
                    sum = s.add(sum, s.select(end, power, s.splat(0.0)));
                }
                let sum = s.sum(sum);
                if log {
                    // The logarithm once per row, so that it may be the library's.
                    let logarithm = s.splat(sum.ln());
                    for c in (0..whole).step_by(S::LANES) {
                        let x = s.sub(s.load(x.as_ptr().add(c)), top);
                        s.store(out.add(c), s.sub(x, logarithm));
                    }
                    let x = s.sub(s.load_first(tail.as_ptr(), rest), top);
                    s.store_first(out.add(whole), s.sub(x, logarithm), rest);
                } else {
                    let factor = s.splat(1.0 / sum);
                    for c in (0..whole).step_by(S::LANES) {
                        s.store(out.add(c), s.mul(s.load(out.add(c)), factor));
                    }
                    let x = s.load_first(out.add(whole), rest);
                    s.store_first(out.add(whole), s.mul(x, factor), rest);
                }
            }
        }
    }
}
