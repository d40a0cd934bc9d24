//! The gradient of lookups: rows added up in the places that they were looked up in.

use crate::cpu::Isa;
use crate::par::Pool;
use crate::rows::{Shared, covers, share_out};
use crate::simd::{Kernel, Simd, dispatch};

/// Columns that a task takes: it goes through all rows in order, so sums do not depend on threads.
const STRIP: usize = 64;

/// [`scatter_add`](crate::movement::scatter_add) of rows: `out: [entries, h]` is zeros, or with `onto`
/// what is there, to which row `i` of `dy: [t, dy_ld]` is added at `indices[i]`.
///
/// # Panics
/// If a slice is too short, or an index outside of the table: the caller has checked them.
pub fn scatter_rows_f32(
    pool: &Pool,
    isa: Isa,
    (dy, dy_ld): (&[f32], usize),
    h: usize,
    indices: &[u32],
    out: &mut [f32],
    onto: bool,
) {
    let rows = indices.len();
    assert!(covers(dy.len(), rows, dy_ld, h), "dy is [{rows}, {h}]");
    let entries = out.len().checked_div(h).unwrap_or(0);
    assert_eq!(out.len(), entries * h, "the table is [entries, h]");
    let most = indices.iter().max().map_or(0, |&most| most as usize + 1);
    assert!(most <= entries, "index {} of {entries} entries", most.wrapping_sub(1));
    let to = Shared::new(out);
    share_out(pool, if onto { 0 } else { entries }, h, &|rows| {
        // SAFETY: these rows are inside, and this task's alone.
        unsafe { std::ptr::write_bytes(to.at(rows.start * h), 0, rows.len() * h) };
    });
    share_out(pool, h.div_ceil(STRIP), STRIP * rows, &|strips| {
        let columns = strips.start * STRIP..h.min(strips.end * STRIP);
        let (from, to) = (dy.as_ptr().wrapping_add(columns.start), to.at(columns.start));
        dispatch(isa, Strip { from, dy_ld, h, columns: columns.len(), indices, to });
    });
}

/// Some columns of all rows.
struct Strip<'a> {
    from: *const f32,
    dy_ld: usize,
    h: usize,
    columns: usize,
    indices: &'a [u32],
    to: *mut f32,
}

impl Kernel for Strip<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { from, dy_ld, h, columns, indices, to } = self;
        for (row, &index) in indices.iter().enumerate() {
            // SAFETY: rows and indices were compared with the slices; the columns are this task's.
            unsafe {
                let (from, to) = (from.add(row * dy_ld), to.add(index as usize * h));
                for c in (0..columns).step_by(S::LANES) {
                    let left = columns - c;
                    let sum = s.add(s.load_first(to.add(c), left), s.load_first(from.add(c), left));
                    s.store_first(to.add(c), sum, left);
                }
            }
        }
    }
}
