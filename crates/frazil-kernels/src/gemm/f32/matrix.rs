//! Matrices that are packed, or turned, where they lie: in training the right side of a product
//! changes from call to call, and the left side of a weight's gradient is a transposed one.

use std::ops::Range;

use super::{packed_len, width};
use crate::cpu::Isa;
use crate::gemm::Orientation;
use crate::par::Pool;
use crate::rows::{Shared, covers};
use crate::simd::{Kernel, Simd, dispatch};

/// A matrix `[k, n]` where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// `[k, ld]` or `[n, ld]`.
    pub x: &'a [f32],
    /// From row to row.
    pub ld: usize,
    /// Which of them.
    pub order: Orientation,
}

/// [`pack`](super::pack) of one matrix, on all threads.
///
/// # Panics
/// If a slice is too short.
pub fn pack_matrix(
    pool: &Pool,
    isa: Isa,
    matrix: &Matrix<'_>,
    [k, n]: [usize; 2],
    packed: &mut [f32],
) {
    let (rows, columns) = match matrix.order {
        Orientation::Kn => (k, n),
        Orientation::Nk => (n, k),
    };
    assert!(covers(matrix.x.len(), rows, matrix.ld, columns), "the matrix is [{k}, {n}]");
    assert_eq!(packed.len(), packed_len(isa, k, n), "packed weights of {k} x {n}");
    if k == 0 || n == 0 {
        return;
    }
    let (width, to) = (width(isa), Shared::new(packed));
    pool.run(n.div_ceil(width), &|panel, _| {
        let columns = panel * width..n.min((panel + 1) * width);
        dispatch(isa, Panel { matrix, k, columns, to: to.at(panel * width * k) });
    });
}

/// Some columns, one panel.
struct Panel<'a> {
    matrix: &'a Matrix<'a>,
    k: usize,
    columns: Range<usize>,
    /// Whole vectors for each row of the matrix.
    to: *mut f32,
}

impl Kernel for Panel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { matrix: &Matrix { x, ld, order }, k, columns, to } = self;
        let x = x.as_ptr();
        let vectors = columns.len().div_ceil(S::LANES);
        let width = vectors * S::LANES;
        // SAFETY: `pack_matrix` has compared the extents with the slices; the panel is this task's.
        unsafe {
            match order {
                Orientation::Kn if vectors == 3 && columns.len() == width => {
                    for row in 0..k {
                        let (from, to) = (x.add(row * ld + columns.start), to.add(row * width));
                        s.store(to, s.load(from));
                        s.store(to.add(S::LANES), s.load(from.add(S::LANES)));
                        s.store(to.add(2 * S::LANES), s.load(from.add(2 * S::LANES)));
                    }
                }
                Orientation::Kn => {
                    for row in 0..k {
                        let (from, to) = (x.add(row * ld + columns.start), to.add(row * width));
                        for c in (0..columns.len()).step_by(S::LANES) {
                            s.store(to.add(c), s.load_first(from.add(c), columns.len() - c));
                        }
                    }
                }
                Orientation::Nk => {
                    for vector in 0..vectors {
                        let first = columns.start + vector * S::LANES;
                        let count = (columns.end - first).min(S::LANES);
                        let rows =
                            std::array::from_fn(|lane| x.add((first + lane.min(count - 1)) * ld));
                        let to = to.add(vector * S::LANES);
                        s.call(Turn { rows, count, columns: k, to, ld: width, zeros: true });
                    }
                }
            }
        }
    }
}

/// `out[c][r] = x[r][c]`: `x: [rows, ld]  out: [columns, out_ld]`, on all threads.
///
/// # Panics
/// If a slice is too short.
pub fn transpose_f32(
    pool: &Pool,
    isa: Isa,
    (x, ld): (&[f32], usize),
    [rows, columns]: [usize; 2],
    (out, out_ld): (&mut [f32], usize),
) {
    assert!(covers(x.len(), rows, ld, columns), "x is [{rows}, {columns}]");
    assert!(covers(out.len(), columns, out_ld, rows), "out is [{columns}, {rows}]");
    let to = Shared::new(out);
    let lanes = isa.lanes();
    // A task takes some vectors of rows: it writes whole lines of a strip of every output row.
    const VECTORS: usize = 4;
    let strip = VECTORS * lanes;
    pool.run(rows.div_ceil(strip), &|task, _| {
        for first in (task * strip..rows.min((task + 1) * strip)).step_by(lanes) {
            let count = (rows - first).min(lanes);
            let rows = std::array::from_fn(|lane| {
                x.as_ptr().wrapping_add((first + lane.min(count - 1)) * ld)
            });
            let turn = Turn { rows, count, columns, to: to.at(first), ld: out_ld, zeros: false };
            dispatch(isa, turn);
        }
    });
}

/// The same on this thread, between addresses.
///
/// # Safety
/// `x: [rows, ld]` can be read, and `out: [columns, ld]` written.
#[inline(always)]
pub(crate) unsafe fn turn<S: Simd>(
    s: S,
    (x, ld): (*const f32, usize),
    [rows, columns]: [usize; 2],
    (out, out_ld): (*mut f32, usize),
) {
    for first in (0..rows).step_by(S::LANES) {
        let count = (rows - first).min(S::LANES);
        let mut addresses = [x; 16];
        for (lane, address) in addresses.iter_mut().enumerate() {
            *address = x.wrapping_add((first + lane.min(count - 1)) * ld);
        }
        let to = out.wrapping_add(first);
        s.call(Turn { rows: addresses, count, columns, to, ld: out_ld, zeros: false });
    }
}

/// Rows as columns: a vector of rows becomes a vector in each of `columns` rows.
struct Turn {
    /// As many as a vector has lanes; those beyond the last repeat it.
    rows: [*const f32; 16],
    /// How many there are.
    count: usize,
    columns: usize,
    to: *mut f32,
    ld: usize,
    /// Whether lanes beyond the last row are written, as zeros.
    zeros: bool,
}

impl Kernel for Turn {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { mut rows, count, columns, to, ld, zeros } = self;
        let ones = [1.0; 16];
        // SAFETY: the caller's promise: `columns` numbers of each row can be read, and as many
        // vectors written, `ld` apart; without zeros, `count` numbers of each.
        unsafe {
            let there = s.load_first(ones.as_ptr(), count);
            macro_rules! put {
                ($c:expr, $x:expr) => {
                    if count == S::LANES {
                        s.store(to.add($c * ld), $x);
                    } else if zeros {
                        s.store(to.add($c * ld), s.mul($x, there));
                    } else {
                        s.store_first(to.add($c * ld), $x, count);
                    }
                };
            }
            for c in (0..columns / 4 * 4).step_by(4) {
                let [x0, x1, x2, x3] = s.load_columns(&rows);
                put!(c, x0);
                put!(c + 1, x1);
                put!(c + 2, x2);
                put!(c + 3, x3);
                for row in &mut rows {
                    *row = row.wrapping_add(4);
                }
            }
            for c in columns / 4 * 4..columns {
                let mut column = [0.0; 16];
                for (x, row) in column.iter_mut().zip(rows) {
                    *x = *row.add(c % 4);
                }
                put!(c, s.load(column.as_ptr()));
            }
        }
    }
}
