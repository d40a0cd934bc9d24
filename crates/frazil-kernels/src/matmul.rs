//! Products of matrices.
//!
//! Plain loops in blocks: a tile of the output stays in local variables while a stretch of `k` goes
//! by, which is all that a compiler needs to vectorise it. Every stretch is summed by itself and the
//! stretches are added, so the rounding error grows with `k / 256 + 256` instead of `k`. Packing,
//! SIMD by hand and threads belong to the fast kernels.

use crate::layout::Broadcast;
use crate::number::Number;

/// Length of a stretch of `k`. With a tile's 16 columns of `f32` it is 16 KiB of `b`: half of a
/// usual first-level cache.
const STRETCH: usize = 256;
/// Rows and columns of a tile: 64 numbers of 4 bytes are the 16 vector registers of plain x86-64.
/// 4 × 8 and 6 × 8 were no faster.
const ROWS: usize = 4;
const COLUMNS: usize = 16;

/// Extents of one product: `a: [m, k]  b: [k, n]  out: [m, n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatMul {
    /// Rows of the output.
    pub m: usize,
    /// Columns of the output.
    pub n: usize,
    /// What is summed over.
    pub k: usize,
    /// `a` is stored as `[k, m]`.
    pub transpose_a: bool,
    /// `b` is stored as `[n, k]`.
    pub transpose_b: bool,
}

macro_rules! for_types {
    ($($t:ident $one:ident $many:ident),*) => {$(
        /// `out = a · b` for one pair of matrices.
        pub fn $one(a: &[$t], b: &[$t], out: &mut [$t], product: &MatMul) {
            matmul(a, b, out, product);
        }

        /// `out[i] = a[i] · b[i]` for all matrices of a batch; `batch` walks the outer extents of
        /// `a` and `b`, counted in matrices.
        pub fn $many(a: &[$t], b: &[$t], out: &mut [$t], product: &MatMul, batch: &Broadcast<2>) {
            batch_matmul(a, b, out, product, batch);
        }
    )*};
}

// Not generic for callers: so they are compiled, and optimised, here.
for_types! {
    f32 matmul_f32 batch_matmul_f32,
    f64 matmul_f64 batch_matmul_f64,
    i32 matmul_i32 batch_matmul_i32,
    i64 matmul_i64 batch_matmul_i64
}

fn batch_matmul<T: Number>(
    a: &[T],
    b: &[T],
    out: &mut [T],
    product: &MatMul,
    batch: &Broadcast<2>,
) {
    let &MatMul { m, n, k, .. } = product;
    for run in batch.runs() {
        for i in 0..run.len {
            let [x, y] = std::array::from_fn(|side| run.starts[side] + i * run.steps[side]);
            let (a, b) = (&a[x * m * k..][..m * k], &b[y * k * n..][..k * n]);
            matmul(a, b, &mut out[(run.out + i) * m * n..][..m * n], product);
        }
    }
}

fn matmul<T: Number>(a: &[T], b: &[T], out: &mut [T], product: &MatMul) {
    let &MatMul { m, n, k, transpose_a, transpose_b } = product;
    assert_eq!(a.len(), m * k, "a is [m, k]");
    assert_eq!(b.len(), k * n, "b is [k, n]");
    assert_eq!(out.len(), m * n, "out is [m, n]");
    out.fill(T::default());
    match (transpose_a, transpose_b) {
        (false, false) => tiled(a, Steps { row: k, column: 1 }, b, out, product),
        (true, false) => tiled(a, Steps { row: 1, column: m }, b, out, product),
        (false, true) => dots(a, b, out, product),
        (true, true) => both_transposed(a, b, out, product),
    }
}

/// How far apart neighbours of `a` lie.
#[derive(Clone, Copy)]
struct Steps {
    row: usize,
    column: usize,
}

/// `b: [k, n]`: tiles of the output, one stretch of `k` after another.
fn tiled<T: Number>(a: &[T], steps: Steps, b: &[T], out: &mut [T], product: &MatMul) {
    let &MatMul { m, n, k, .. } = product;
    for p in (0..k).step_by(STRETCH) {
        let length = STRETCH.min(k - p);
        for j in (0..n).step_by(COLUMNS) {
            let columns = COLUMNS.min(n - j);
            for i in (0..m).step_by(ROWS) {
                let rows = ROWS.min(m - i);
                let a = &a[i * steps.row + p * steps.column..];
                let b = &b[p * n + j..];
                let tile = if rows == ROWS && columns == COLUMNS {
                    full_tile(a, steps, b, n, length)
                } else {
                    edge_tile(a, steps, b, n, length, rows, columns)
                };
                for (r, sums) in tile.iter().take(rows).enumerate() {
                    for (o, &sum) in out[(i + r) * n + j..][..columns].iter_mut().zip(sums) {
                        *o = o.add(sum);
                    }
                }
            }
        }
    }
}

type Tile<T> = [[T; COLUMNS]; ROWS];

#[inline]
fn full_tile<T: Number>(a: &[T], steps: Steps, b: &[T], n: usize, length: usize) -> Tile<T> {
    let mut tile = [[T::default(); COLUMNS]; ROWS];
    for p in 0..length {
        let b = &b[p * n..][..COLUMNS];
        for (r, sums) in tile.iter_mut().enumerate() {
            let x = a[r * steps.row + p * steps.column];
            for (sum, &y) in sums.iter_mut().zip(b) {
                *sum = sum.add(x.mul(y));
            }
        }
    }
    tile
}

/// The same for what is left over at the right and lower edges.
fn edge_tile<T: Number>(
    a: &[T],
    steps: Steps,
    b: &[T],
    n: usize,
    length: usize,
    rows: usize,
    columns: usize,
) -> Tile<T> {
    let mut tile = [[T::default(); COLUMNS]; ROWS];
    for p in 0..length {
        let b = &b[p * n..][..columns];
        for (r, sums) in tile.iter_mut().take(rows).enumerate() {
            let x = a[r * steps.row + p * steps.column];
            for (sum, &y) in sums.iter_mut().zip(b) {
                *sum = sum.add(x.mul(y));
            }
        }
    }
    tile
}

/// `a: [m, k]  b: [n, k]`: rows against rows.
fn dots<T: Number>(a: &[T], b: &[T], out: &mut [T], product: &MatMul) {
    let &MatMul { n, k, .. } = product;
    if k == 0 || n == 0 {
        return;
    }
    for (a, out) in a.chunks_exact(k).zip(out.chunks_exact_mut(n)) {
        for (b, o) in b.chunks_exact(k).zip(out) {
            *o = dot(a, b);
        }
    }
}

/// The sum of products, kept in 16 partial sums.
#[inline]
pub(crate) fn dot<T: Number>(a: &[T], b: &[T]) -> T {
    const LANES: usize = 16;
    let mut sums = [T::default(); LANES];
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] = sums[lane].add(a[lane].mul(b[lane]));
        }
    }
    for (lane, (&x, &y)) in a_rest.iter().zip(b_rest).enumerate() {
        sums[lane] = sums[lane].add(x.mul(y));
    }
    sums.into_iter().fold(T::default(), T::add)
}

/// `a: [k, m]  b: [n, k]`: rare, and kept simple.
fn both_transposed<T: Number>(a: &[T], b: &[T], out: &mut [T], product: &MatMul) {
    let &MatMul { m, n, k, .. } = product;
    for i in 0..m {
        for j in 0..n {
            let products = (0..k).map(|p| a[p * m + i].mul(b[j * k + p]).widen());
            out[i * n + j] = T::narrow(products.fold(Default::default(), Number::add));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers between -1 and 1 that look random.
    fn numbers(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    fn transposed(x: &[f32], rows: usize, columns: usize) -> Vec<f32> {
        (0..columns).flat_map(|c| (0..rows).map(move |r| x[r * columns + c])).collect()
    }

    #[test]
    fn every_orientation_and_edge_against_f64() {
        for (m, n, k) in
            [(1, 1, 1), (4, 16, 256), (5, 17, 300), (3, 2, 0), (9, 33, 1000), (0, 3, 2)]
        {
            let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
            for (transpose_a, transpose_b) in
                [(false, false), (true, false), (false, true), (true, true)]
            {
                let product = MatMul { m, n, k, transpose_a, transpose_b };
                let left = if transpose_a { transposed(&a, m, k) } else { a.clone() };
                let right = if transpose_b { transposed(&b, k, n) } else { b.clone() };
                let mut out = vec![f32::NAN; m * n];
                matmul_f32(&left, &right, &mut out, &product);
                for i in 0..m {
                    for j in 0..n {
                        let exact: f64 =
                            (0..k).map(|p| f64::from(a[i * k + p]) * f64::from(b[p * n + j])).sum();
                        let error = (f64::from(out[i * n + j]) - exact).abs();
                        assert!(error < 1e-5, "{product:?} at {i},{j}: off by {error}");
                    }
                }
            }
        }
    }

    #[test]
    fn integers_by_hand() {
        let mut out = [0; 4];
        let product = MatMul { m: 2, n: 2, k: 2, transpose_a: false, transpose_b: false };
        matmul_i32(&[1, 2, 3, 4], &[5, 6, 7, 8], &mut out, &product);
        assert_eq!(out, [19, 22, 43, 50]);
    }

    #[test]
    fn batches_broadcast() {
        // a: [2, 1, 1, 2]  b: [2, 2, 1] (shared by a's outer batch)
        let a = [1.0, 2.0, 3.0, 4.0];
        let b = [1.0, 1.0, 10.0, 100.0];
        let mut out = [0.0; 4];
        let product = MatMul { m: 1, n: 1, k: 2, transpose_a: false, transpose_b: false };
        let batch = Broadcast::new([&[2, 1], &[2]]).unwrap();
        batch_matmul_f64(&a, &b, &mut out, &product, &batch);
        assert_eq!(out, [3.0, 210.0, 7.0, 430.0]);
    }
}
