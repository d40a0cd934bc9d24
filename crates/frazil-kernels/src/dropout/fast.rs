//! Dropout over rows with the vectors of the CPU at hand.

use std::ops::Range;

use super::Dropout;
use crate::cpu::Isa;
use crate::par::Pool;
use crate::rows::{Shared, covers, share_out};
use crate::simd::{Kernel, Simd, dispatch};

/// [`dropout`](super::dropout) of rows that are `ld` apart: `x: [rows, ld.0]  out: [rows, ld.1]`.
///
/// # Panics
/// If a slice is too short.
pub fn dropout_f32(
    pool: &Pool,
    isa: Isa,
    (x, x_ld): (&[f32], usize),
    columns: usize,
    places: &[u32],
    (out, out_ld): (&mut [f32], usize),
    dropout: &Dropout,
) {
    let rows = places.len();
    assert!(covers(x.len(), rows, x_ld, columns), "x is [{rows}, {columns}]");
    assert!(covers(out.len(), rows, out_ld, columns), "out is [{rows}, {columns}]");
    let out = Shared::new(out);
    share_out(pool, rows, columns, &|rows| {
        dispatch(isa, Rows { x, x_ld, columns, places, rows, out, out_ld, dropout });
    });
}

struct Rows<'a> {
    x: &'a [f32],
    x_ld: usize,
    columns: usize,
    places: &'a [u32],
    rows: Range<usize>,
    out: Shared<f32>,
    out_ld: usize,
    dropout: &'a Dropout,
}

impl Kernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        const COUNT: [i32; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        let factor = self.dropout.factor() as f32;
        for row in self.rows {
            let chance = self.dropout.row(self.places[row], 0);
            // SAFETY: the extents were compared with the slices; the row is this task's alone.
            unsafe {
                let count = s.load_i32(COUNT.as_ptr());
                let (from, to) =
                    (self.x.as_ptr().add(row * self.x_ld), self.out.at(row * self.out_ld));
                for c in (0..self.columns).step_by(S::LANES) {
                    let i = s.add_i32(count, s.splat_i32(c as i32));
                    let factors = chance.factors(s, i, factor);
                    let left = self.columns - c;
                    if left >= S::LANES {
                        s.store(to.add(c), s.mul(s.load(from.add(c)), factors));
                    } else {
                        let x = s.load_first(from.add(c), left);
                        s.store_first(to.add(c), s.mul(x, factors), left);
                    }
                }
            }
        }
    }
}
