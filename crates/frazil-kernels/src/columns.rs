//! Sums over rows: the gradient of a bias, and of what is repeated for every row.

use crate::cpu::Isa;
use crate::par::Pool;
use crate::rows::{Shared, covers, share_out};
use crate::simd::{Kernel, Simd, dispatch};

/// Rows that are added up one after the other; a longer sum is one of such sums, which keeps its
/// error small.
const PIECE: usize = 64;

/// Columns that a task takes: some cache lines of each row.
const STRIP: usize = 64;

/// `out[c] = Σ x[r][c]`: `x: [rows, ld]  out: [columns]`. The same for any number of threads.
///
/// # Panics
/// If a slice is too short.
pub fn add_up(
    pool: &Pool,
    isa: Isa,
    x: &[f32],
    ld: usize,
    [rows, columns]: [usize; 2],
    out: &mut [f32],
) {
    assert!(covers(x.len(), rows, ld, columns), "x is [{rows}, {columns}]");
    assert_eq!(out.len(), columns, "a sum for each column");
    let to = Shared::new(out);
    share_out(pool, columns.div_ceil(STRIP), STRIP * rows.max(1), &|strips| {
        let columns = strips.start * STRIP..columns.min(strips.end * STRIP);
        let x = x.as_ptr().wrapping_add(columns.start);
        let (to, columns) = (to.at(columns.start), columns.len());
        dispatch(isa, Strip { x, ld, rows, columns, to });
    });
}

/// Some columns of all rows.
struct Strip {
    x: *const f32,
    ld: usize,
    rows: usize,
    columns: usize,
    to: *mut f32,
}

impl Kernel for Strip {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { x, ld, rows, columns, to } = self;
        // SAFETY: `add_up` has compared the extents with the slices; the columns are this task's.
        unsafe {
            let mut c = 0;
            // Four vectors at a time, so that no sum waits for the one before.
            while c + 4 * S::LANES <= columns {
                let mut total = [s.splat(0.0); 4];
                for first in (0..rows).step_by(PIECE) {
                    let mut sums = [s.splat(0.0); 4];
                    for row in first..rows.min(first + PIECE) {
                        let from = x.add(row * ld + c);
                        sums[0] = s.add(sums[0], s.load(from));
                        sums[1] = s.add(sums[1], s.load(from.add(S::LANES)));
                        sums[2] = s.add(sums[2], s.load(from.add(2 * S::LANES)));
                        sums[3] = s.add(sums[3], s.load(from.add(3 * S::LANES)));
                    }
                    for (total, sum) in total.iter_mut().zip(sums) {
                        *total = s.add(*total, sum);
                    }
                }
                for (i, total) in total.into_iter().enumerate() {
                    s.store(to.add(c + i * S::LANES), total);
                }
                c += 4 * S::LANES;
            }
            while c < columns {
                let left = columns - c;
                let mut total = s.splat(0.0);
                for first in (0..rows).step_by(PIECE) {
                    let mut sum = s.splat(0.0);
                    for row in first..rows.min(first + PIECE) {
                        sum = s.add(sum, s.load_first(x.add(row * ld + c), left));
                    }
                    total = s.add(total, sum);
                }
                s.store_first(to.add(c), total, left);
                c += S::LANES;
            }
        }
    }
}
