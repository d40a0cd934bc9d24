//! Products of 32-bit numbers: `[m, k]` activations by `[k, n]` packed weights.
//!
//! A sum runs over k from front to back with one rounding per step, on every path: a row's result
//! depends neither on the rows beside it nor on the threads, and before the activation not on the
//! instruction set.

use super::block::{Blocks, Share, Size, most_rows};
use super::epilogue::{Epilogue, Finish, Orientation, Output, Place, covers};
use crate::cpu::Isa;
use crate::par::Pool;

mod tile;

use tile::{Finished, STEPS, Tile, Tiles};

/// A product to compute.
#[derive(Debug)]
pub struct Gemm<'a> {
    /// Rows of `a` and of the output.
    pub m: usize,
    /// Columns of `w` and of the output.
    pub n: usize,
    /// Columns of `a`, rows of `w`.
    pub k: usize,
    /// The activations, row-major: `[m, lda]`, of which k columns count.
    pub a: &'a [f32],
    /// From row to row of `a`.
    pub lda: usize,
    /// The weights, by [`pack`] for the same instruction set.
    pub w: &'a [f32],
    /// Where the product goes.
    pub out: Output<'a>,
    /// From row to row of the output.
    pub ldc: usize,
    /// What is done on the way.
    pub epilogue: Epilogue<'a>,
}

/// Columns of a panel: two vectors.
fn width(isa: Isa) -> usize {
    2 * isa.lanes()
}

/// How many numbers packed weights of `[k, n]` take.
///
/// # Panics
/// If that is more than can be counted.
pub fn packed_len(isa: Isa, k: usize, n: usize) -> usize {
    let columns = n.checked_next_multiple_of(width(isa));
    columns.and_then(|columns| columns.checked_mul(k)).expect("the weights fit into memory")
}

/// Packs weights: panels of two vectors of columns, in each k rows one after the other; the last
/// panel is filled up with zeros.
///
/// # Panics
/// If `w` does not have `k · n` numbers, or `packed` not [`packed_len`].
pub fn pack(isa: Isa, w: &[f32], order: Orientation, k: usize, n: usize, packed: &mut [f32]) {
    assert_eq!(Some(w.len()), k.checked_mul(n), "weights of {k} x {n}");
    assert_eq!(packed.len(), packed_len(isa, k, n), "packed weights of {k} x {n}");
    let width = width(isa);
    if k == 0 || n == 0 {
        return;
    }
    for (panel, packed) in packed.chunks_exact_mut(k * width).enumerate() {
        let first = panel * width;
        let columns = width.min(n - first);
        match order {
            Orientation::Kn => {
                for (row, packed) in w.chunks_exact(n).zip(packed.chunks_exact_mut(width)) {
                    packed[..columns].copy_from_slice(&row[first..first + columns]);
                    packed[columns..].fill(0.0);
                }
            }
            Orientation::Nk => {
                // A strip of rows at a time, so that both sides stay in the first-level cache.
                for (strip, packed) in packed.chunks_mut(16 * width).enumerate() {
                    packed.fill(0.0);
                    let rows = packed.len() / width;
                    for column in 0..columns {
                        let from = &w[(first + column) * k + strip * 16..][..rows];
                        for (row, &x) in from.iter().enumerate() {
                            packed[row * width + column] = x;
                        }
                    }
                }
            }
        }
    }
}

/// Computes the product on the threads of the pool.
///
/// # Panics
/// If a slice is too short for the sizes, or this machine lacks the instructions.
pub fn run(pool: &Pool, isa: Isa, gemm: Gemm<'_>) {
    let Gemm { m, n, k, a, lda, w, mut out, ldc, epilogue } = gemm;
    assert!(covers(a.len(), m, lda, k), "the activations are too short for {m} x {k}");
    assert_eq!(w.len(), packed_len(isa, k, n), "packed weights of {k} x {n}");
    let finish = Finish::new((m, n), &epilogue, &mut out, ldc);
    if m == 0 || n == 0 {
        return;
    }
    let width = width(isa);
    let size = Size {
        rows: m,
        panels: n.div_ceil(width),
        panel_bytes: k * width * size_of::<f32>(),
        row_bytes: k * size_of::<f32>(),
    };
    // Below some microseconds of work there is nothing to share.
    let small = m.saturating_mul(n).saturating_mul(k) < 1 << 16;
    let threads = if small { 1 } else { pool.threads() };
    let blocks = Blocks::new(isa, most_rows(isa.lanes()), threads, size);
    let tiles = Tiles::new(isa);
    let job = Job { n, k, a: a.as_ptr(), lda, w: w.as_ptr(), finish, blocks, width, tiles };
    if threads == 1 {
        (0..blocks.tasks()).for_each(|task| job.task(task));
    } else {
        pool.run(blocks.tasks(), &|task, _| job.task(task));
    }
}

/// The checked product as the threads see it.
struct Job {
    n: usize,
    k: usize,
    a: *const f32,
    lda: usize,
    w: *const f32,
    finish: Finish,
    blocks: Blocks,
    width: usize,
    tiles: Tiles,
}

// SAFETY: the pointers are to slices that `run` borrows until all threads are done; tasks write to
// tiles of their own.
unsafe impl Sync for Job {}

/// Room for the sums of a tile, at a cache line.
#[repr(align(64))]
struct Sums([f32; 14 * 32]);

impl Job {
    fn task(&self, task: usize) {
        let (panels, tiles) = self.blocks.task(task);
        let next = self.blocks.after(task);
        let panel_len = self.k * self.width;
        let steps = self.k / STEPS;
        let mut sums = Sums([0.0; 14 * 32]);
        let row_share =
            Share::new(self.blocks.rows_below() * self.lda * size_of::<f32>(), steps, panels.len());
        let panel_share = Share::new(
            next.len() * panel_len * size_of::<f32>(),
            steps,
            tiles.len() * panels.len(),
        );
        let next = self.w.wrapping_add(next.start * panel_len).cast();
        let mut done = 0;
        for tile in tiles {
            let rows = self.blocks.tile(tile);
            let below = self.a.wrapping_add(rows.end * self.lda).cast();
            for (i, panel) in panels.clone().enumerate() {
                let ahead = [row_share.of(below, i), panel_share.of(next, done)];
                done += 1;
                let column = panel * self.width;
                let columns = self.width.min(self.n - column);
                let place = Place { row: rows.start, rows: rows.len(), column, columns };
                // SAFETY: `run` has checked that the rows and the panel are inside of `a` and `w`,
                // and that the tile is inside of the output; `sums` has room for the largest tile.
                unsafe {
                    (self.tiles.sums[rows.len() - 1])(&Tile {
                        k: self.k,
                        a: self.a.add(rows.start * self.lda),
                        lda: self.lda,
                        w: self.w.add(panel * panel_len),
                        sums: sums.0.as_mut_ptr(),
                        ahead,
                    });
                    let finish = &raw const self.finish;
                    (self.tiles.finish)(&Finished { finish, place, sums: sums.0.as_ptr() });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_orders_pack_alike() {
        for isa in Isa::ALL {
            for (k, n) in [(0, 3), (3, 0), (1, 1), (17, 31), (40, 33)] {
                let kn: Vec<f32> = (0..k * n).map(|i| i as f32 + 1.0).collect();
                let nk: Vec<f32> = (0..n * k).map(|i| kn[i % k * n + i / k]).collect();
                let mut packed = [(); 2].map(|()| vec![9.0; packed_len(isa, k, n)]);
                pack(isa, &kn, Orientation::Kn, k, n, &mut packed[0]);
                pack(isa, &nk, Orientation::Nk, k, n, &mut packed[1]);
                assert_eq!(packed[0], packed[1], "{isa} {k} {n}");
                let width = width(isa);
                for (i, &x) in packed[0].iter().enumerate() {
                    let (row, column) = (i / width % k, i / width / k * width + i % width);
                    let wanted = if column < n { kn[row * n + column] } else { 0.0 };
                    assert_eq!(x, wanted, "{isa} {k} {n} at {i}");
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "activations are too short")]
    fn short_activations_are_refused() {
        let out = Output::F32(&mut [0.0; 6]);
        let w = [0.0; 12];
        let epilogue = Epilogue::default();
        let gemm = Gemm { m: 2, n: 3, k: 3, a: &[0.0; 5], lda: 3, w: &w, out, ldc: 3, epilogue };
        run(&Pool::new(1), Isa::Scalar, gemm);
    }
}
