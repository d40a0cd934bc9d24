//! Cross entropy over rows with the vectors of the CPU at hand.

use std::ops::Range;

use crate::cpu::Isa;
use crate::math;
use crate::par::Pool;
use crate::rows::{Shared, covers, share_out};
use crate::simd::{Kernel, Simd, dispatch};

/// Rows of scores with their labels.
#[derive(Clone, Copy, Debug)]
pub struct Scores<'a> {
    /// `[rows, ld]`, of which the first columns count.
    pub x: &'a [f32],
    /// From row to row.
    pub ld: usize,
    /// Classes.
    pub columns: usize,
    /// `[rows]`; a row whose label is negative counts for nothing. The caller has seen to it that
    /// no label is beyond the last column.
    pub labels: &'a [i32],
}

/// [`cross_entropy`](super::cross_entropy): `out: [rows]`.
///
/// # Panics
/// If a slice is too short, or a label too large.
pub fn cross_entropy_f32(pool: &Pool, isa: Isa, scores: &Scores<'_>, out: &mut [f32]) {
    let rows = scores.check();
    assert_eq!(out.len(), rows, "a number for each row");
    let out = Shared::new(out);
    share_out(pool, rows, scores.columns, &|rows| dispatch(isa, Rows { scores, rows, out }));
}

/// [`cross_entropy_grad`](super::cross_entropy_grad): `dy: [rows]  dx: [rows, ld]`.
///
/// # Panics
/// If a slice is too short, or a label too large.
pub fn cross_entropy_grad_f32(
    pool: &Pool,
    isa: Isa,
    scores: &Scores<'_>,
    dy: &[f32],
    dx: &mut [f32],
    dx_ld: usize,
) {
    let rows = scores.check();
    assert_eq!(dy.len(), rows, "a number for each row");
    assert!(covers(dx.len(), rows, dx_ld, scores.columns), "dx is [{rows}, c]");
    let dx = Shared::new(dx);
    share_out(pool, rows, scores.columns, &|rows| {
        dispatch(isa, Grads { scores, rows, dy, dx, dx_ld });
    });
}

impl Scores<'_> {
    fn check(&self) -> usize {
        let rows = self.labels.len();
        assert!(covers(self.x.len(), rows, self.ld, self.columns), "x is [{rows}, c]");
        let most = self.labels.iter().max().map_or(-1, |&most| most);
        assert!(most < self.columns as i32, "label {most} of {} classes", self.columns);
        rows
    }

    /// The largest number of a row, and the sum of `e^(x - largest)`.
    /// # Safety
    /// There is such a row.
    #[inline(always)]
    unsafe fn powers<S: Simd>(&self, s: S, row: usize) -> (f32, f32) {
        let columns = self.columns;
        let whole = columns / S::LANES * S::LANES;
        let rest = columns - whole;
        // SAFETY: the caller's promise.
        unsafe {
            let x = self.x.as_ptr().add(row * self.ld);
            let mut largest = s.splat(f32::NEG_INFINITY);
            for c in (0..whole).step_by(S::LANES) {
                largest = s.max(s.load(x.add(c)), largest);
            }
            let mut largest = s.largest(largest);
            for c in whole..columns {
                largest = largest.max(*x.add(c));
            }
            let top = s.splat(largest);
            let mut sum = s.splat(0.0);
            for c in (0..whole).step_by(S::LANES) {
                sum = s.add(sum, math::exp(s, s.sub(s.load(x.add(c)), top)));
            }
            if rest > 0 {
                // Beyond the end stands e^-largest, which may be infinite.
                let ones = [1.0; 16];
                let there = s.lt(s.splat(0.0), s.load_first(ones.as_ptr(), rest));
                let power = math::exp(s, s.sub(s.load_first(x.add(whole), rest), top));
                sum = s.add(sum, s.select(there, power, s.splat(0.0)));
            }
            (largest, s.sum(sum))
        }
    }
}

struct Rows<'a> {
    scores: &'a Scores<'a>,
    rows: Range<usize>,
    out: Shared<f32>,
}

impl Kernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let scores = self.scores;
        for row in self.rows {
            let loss = match usize::try_from(scores.labels[row]) {
                Ok(label) => {
                    // SAFETY: the extents were compared with the slice.
                    let (largest, sum) = unsafe { scores.powers(s, row) };
                    sum.ln() + (largest - scores.x[row * scores.ld + label])
                }
                Err(_) => 0.0,
            };
            // SAFETY: a number for each row, and this one is this task's alone.
            unsafe { *self.out.at(row) = loss };
        }
    }
}

struct Grads<'a> {
    scores: &'a Scores<'a>,
    rows: Range<usize>,
    dy: &'a [f32],
    dx: Shared<f32>,
    dx_ld: usize,
}

impl Kernel for Grads<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { scores, rows, dy, dx, dx_ld } = self;
        let columns = scores.columns;
        for row in rows {
            // SAFETY: the extents were compared with the slices; the row is this task's alone.
            unsafe {
                let (x, dx) = (scores.x.as_ptr().add(row * scores.ld), dx.at(row * dx_ld));
                let Ok(label) = usize::try_from(scores.labels[row]) else {
                    for c in (0..columns).step_by(S::LANES) {
                        s.store_first(dx.add(c), s.splat(0.0), columns - c);
                    }
                    continue;
                };
                let (largest, sum) = scores.powers(s, row);
                let (top, factor) = (s.splat(largest), s.splat(dy[row] / sum));
                for c in (0..columns).step_by(S::LANES) {
                    let left = columns - c;
                    if left >= S::LANES {
                        let power = math::exp(s, s.sub(s.load(x.add(c)), top));
                        s.store(dx.add(c), s.mul(power, factor));
                    } else {
                        let power = math::exp(s, s.sub(s.load_first(x.add(c), left), top));
                        s.store_first(dx.add(c), s.mul(power, factor), left);
                    }
                }
                *dx.add(label) -= dy[row];
            }
        }
    }
}
