//! Products of 32-bit numbers: `[m, k]` activations by `[k, n]` packed weights.
//!
//! A sum runs over a piece of k from front to back with one rounding per step, and over the pieces
//! from front to back, on every path: a row's result depends neither on the rows beside it nor on
//! the threads, and before the activation not on the instruction set.

mod matrix;

pub(crate) use matrix::turn;
pub use matrix::{Matrix, pack_matrix, transpose_f32};

use std::ops::Range;

use super::block::{Blocks, Share, Size, Touch};
use super::epilogue::{Columns, Epilogue, Finish, Orientation, Output, Place, TileSums, covers};
use super::tile::{self, MOST_VECTORS, Product, STEPS, Shape, Sums, Table, Tile, table};
use crate::cpu::Isa;
use crate::par::Pool;
use crate::simd::{Routine, Simd, routine};

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

/// The most products that are added up one after the other. A longer sum is one of such sums: with
/// pieces of 256, BERT's outputs have two thirds of the rounding errors that they have without.
const PIECE: usize = 256;

/// The pieces of k that are taken at a time, so that a block of rows stays in the cache. Sums then
/// wait in the output.
const PIECES: usize = 4;

/// The largest tile for so many lanes.
pub(crate) const fn shape(lanes: usize) -> Shape {
    match lanes {
        // 9 · 3 sums + 3 + 1 of 32 registers.
        16 => Shape { rows: 9, vectors: 3 },
        // 6 · 2 + 2 + 1 of 16 registers.
        8 => Shape { rows: 6, vectors: 2 },
        _ => Shape { rows: 4, vectors: 2 },
    }
}

/// Columns of a panel.
fn width(isa: Isa) -> usize {
    shape(isa.lanes()).vectors * isa.lanes()
}

/// How many numbers packed weights of `[k, n]` take.
///
/// # Panics
/// If that is more than can be counted.
pub fn packed_len(isa: Isa, k: usize, n: usize) -> usize {
    let columns = n.checked_next_multiple_of(isa.lanes());
    columns.and_then(|columns| columns.checked_mul(k)).expect("the weights fit into memory")
}

/// Packs matrices side by side: panels of some vectors of columns, in each k rows one after the
/// other; the last panel has as many vectors as it takes, the last of which is filled up with zeros.
///
/// # Panics
/// If a matrix does not have `k · n` numbers, or `packed` not [`packed_len`] of all columns.
pub fn pack(isa: Isa, parts: &[Columns<'_, f32>], k: usize, packed: &mut [f32]) {
    let n = Columns::count(parts, k);
    assert_eq!(packed.len(), packed_len(isa, k, n), "packed weights of {k} x {n}");
    if k == 0 || n == 0 {
        return;
    }
    for (panel, packed) in packed.chunks_mut(k * width(isa)).enumerate() {
        let width_here = packed.len() / k;
        packed.fill(0.0);
        let (mut begin, first) = (0, panel * width(isa));
        for part in parts {
            // Of the panel, and of the matrix.
            let from = first.max(begin);
            let count = (first + width_here).min(begin + part.n).saturating_sub(from);
            if count > 0 {
                fill_panel(part, k, from - begin..from - begin + count, packed, from - first);
            }
            begin += part.n;
        }
    }
}

/// Puts some columns of a matrix into a panel, from its column `at` on.
fn fill_panel(
    part: &Columns<'_, f32>,
    k: usize,
    columns: Range<usize>,
    panel: &mut [f32],
    at: usize,
) {
    let width = panel.len() / k;
    match part.order {
        Orientation::Kn => {
            for (row, panel) in part.w.chunks_exact(part.n).zip(panel.chunks_exact_mut(width)) {
                panel[at..at + columns.len()].copy_from_slice(&row[columns.clone()]);
            }
        }
        Orientation::Nk => {
            // A strip of rows at a time, so that both sides stay in the first-level cache.
            for (strip, panel) in panel.chunks_mut(16 * width).enumerate() {
                let rows = panel.len() / width;
                for (i, column) in columns.clone().enumerate() {
                    let from = &part.w[column * k + strip * 16..][..rows];
                    for (row, &x) in from.iter().enumerate() {
                        panel[row * width + at + i] = x;
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
    let shape = shape(isa.lanes());
    let piece = k.div_ceil(k.div_ceil(PIECE).max(1)).next_multiple_of(STEPS).max(STEPS);
    // Sums wait for the rest of k in the output, if that has room for them.
    let part = if finish.numbers().is_some() { PIECES * piece } else { k.next_multiple_of(piece) };
    let size = Size {
        rows: m,
        tile_rows: shape.rows,
        panels: n.div_ceil(width(isa)),
        row_bytes: part.min(k) * size_of::<f32>(),
    };
    // Below some microseconds of work there is nothing to share.
    let small = m.saturating_mul(n).saturating_mul(k) < 1 << 16;
    let threads = if small { 1 } else { pool.threads() };
    let blocks = Blocks::new(isa, threads, size);
    let job = Job {
        n,
        k,
        piece,
        part: part.max(piece),
        a: a.as_ptr(),
        lda,
        w: w.as_ptr(),
        finish,
        blocks,
        lanes: isa.lanes(),
        width: width(isa),
        tiles: tiles(isa),
        end: routine::<End>(isa),
    };
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
    /// Steps of k that are added up one after the other.
    piece: usize,
    /// Steps of k that are taken at a time.
    part: usize,
    a: *const f32,
    lda: usize,
    w: *const f32,
    finish: Finish,
    blocks: Blocks,
    lanes: usize,
    /// Columns of a panel.
    width: usize,
    tiles: Table,
    end: unsafe fn(*const Finished),
}

// SAFETY: the pointers are to slices that `run` borrows until all threads are done; tasks write to
// tiles of their own.
unsafe impl Sync for Job {}

const F32: usize = size_of::<f32>();

impl Job {
    fn task(&self, task: usize) {
        let (panels, tiles) = self.blocks.task(task);
        let mut sums = Sums([0.0; _]);
        for k in (0..self.k.max(1)).step_by(self.part) {
            let steps = self.part.min(self.k - k);
            let (first, last) = (k == 0, k + steps == self.k);
            for panel in panels.clone() {
                let columns = self.width.min(self.n - panel * self.width);
                let vectors = columns.div_ceil(self.lanes);
                let w = self.w.wrapping_add(panel * self.k * self.width + k * vectors * self.lanes);
                // While a panel is multiplied, the one after it comes: in this part of k, then the
                // first one of the next part, then that of the next task.
                let next = match panel + 1 == panels.end {
                    false => (panel + 1) * self.k + k,
                    true if last => self.blocks.after(task) * self.k,
                    true => panels.start * self.k + k + self.part,
                };
                let next = self.w.wrapping_add(next * self.width).cast();
                let pieces = steps.div_ceil(self.piece).max(1);
                let shares = tiles.len() * pieces;
                let share = Share::new(steps * self.width * F32, self.piece / STEPS, shares);
                for (i, tile) in tiles.clone().enumerate() {
                    let rows = self.blocks.tile(tile);
                    let a = self.a.wrapping_add(rows.start * self.lda + k);
                    let place = Place {
                        row: rows.start,
                        rows: rows.len(),
                        column: panel * self.width,
                        columns,
                    };
                    // Whole vectors of the output take unfinished sums; else they go through `sums`.
                    let waiting = match self.finish.numbers() {
                        Some((out, ldc))
                            if !(first && last) && columns.is_multiple_of(self.lanes) =>
                        {
                            Some((out.wrapping_add(place.row * ldc + place.column), ldc))
                        }
                        _ => None,
                    };
                    let own = (sums.0.as_mut_ptr(), vectors * self.lanes);
                    let (at, lds) = match waiting {
                        Some(place) => place,
                        None => own,
                    };
                    // SAFETY: `run` has checked that the rows and the panel are inside of `a` and
                    // `w`, and that the tile is inside of the output; `sums` has room for the
                    // largest tile.
                    unsafe {
                        if !first && waiting.is_none() {
                            self.fetch(place, at, lds);
                        }
                        let mut touch = self.finish.touch(place);
                        for piece in 0..pieces {
                            let from = piece * self.piece;
                            let steps = self.piece.min(steps - from);
                            let a = (a.add(from).cast(), self.lda * F32);
                            let w = w.add(from * vectors * self.lanes).cast();
                            (self.tiles[vectors - 1][rows.len() - 1])(&Tile {
                                add: !first || piece > 0,
                                ahead: share.of(next, i * pieces + piece),
                                touch,
                                ..Tile::new(steps, a, w, (at.cast(), lds * F32))
                            });
                            touch = [Touch::NONE; 2];
                        }
                        if last {
                            let finish = &raw const self.finish;
                            (self.end)(&Finished { finish, place, sums: at, lds });
                        } else if waiting.is_none() {
                            self.leave(place, at, lds);
                        }
                    }
                }
            }
        }
    }

    /// Puts unfinished sums into the output.
    ///
    /// # Safety
    /// The place is inside of the output, and of nobody else; the sums can be read.
    unsafe fn leave(&self, place: Place, sums: *const f32, lds: usize) {
        let Some((out, ldc)) = self.finish.numbers() else { return };
        for row in 0..place.rows {
            // SAFETY: the caller's promise.
            unsafe {
                let to = out.add((place.row + row) * ldc + place.column);
                std::ptr::copy_nonoverlapping(sums.add(row * lds), to, place.columns);
            }
        }
    }

    /// Gets them back.
    ///
    /// # Safety
    /// As [`Job::leave`]; the sums can be written.
    unsafe fn fetch(&self, place: Place, sums: *mut f32, lds: usize) {
        let Some((out, ldc)) = self.finish.numbers() else { return };
        for row in 0..place.rows {
            // SAFETY: the caller's promise.
            unsafe {
                let from = out.add((place.row + row) * ldc + place.column);
                std::ptr::copy_nonoverlapping(from, sums.add(row * lds), place.columns);
            }
        }
    }
}

/// The functions for one instruction set.
///
/// # Panics
/// If this machine lacks the instructions.
pub(crate) fn tiles(isa: Isa) -> Table {
    macro_rules! of {
        ($rows:literal, $vectors:literal) => {
            routine::<Rows<$rows, $vectors>>(isa)
        };
    }
    table!(of)
}

/// The sums of a tile of so many rows and vectors.
struct Rows<const R: usize, const C: usize>;

impl<const R: usize, const C: usize> Routine for Rows<R, C> {
    type Input = *const Tile;

    /// # Safety
    /// As [`tile::sums`].
    #[inline(always)]
    unsafe fn run<S: Simd>(s: S, tile: *const Tile) {
        // SAFETY: the caller's promise.
        unsafe { tile::sums::<Numbers<S>, R, C>(Numbers(s), tile) }
    }
}

/// Products of numbers.
#[derive(Clone, Copy)]
struct Numbers<S>(S);

impl<S: Simd> Product for Numbers<S> {
    const SHAPE: Shape = shape(S::LANES);
    const LANES: usize = S::LANES;
    type V = S::F32;

    #[inline(always)]
    fn zero(self) -> S::F32 {
        self.0.splat(0.0)
    }
    #[inline(always)]
    fn add(self, a: S::F32, b: S::F32) -> S::F32 {
        self.0.add(a, b)
    }
    #[inline(always)]
    unsafe fn load(self, from: *const u8) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe { self.0.load(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8, x: S::F32) {
        // SAFETY: the caller's promise.
        unsafe { self.0.store(to.cast(), x) }
    }
    #[inline(always)]
    unsafe fn row<const C: usize, const STRIDES: usize, const OFFSET: usize>(
        self,
        from: *const u8,
        stride: usize,
        w: [S::F32; MOST_VECTORS],
        sums: &mut [S::F32; MOST_VECTORS],
    ) {
        // SAFETY: the caller's promise.
        unsafe { self.0.fma_row::<C, STRIDES, OFFSET>(from, stride, w, sums) }
    }
}

/// What the end of a tile needs.
struct Finished {
    finish: *const Finish,
    place: Place,
    /// `[rows, lds]`
    sums: *const f32,
    lds: usize,
}

/// The end of a tile.
struct End;

impl Routine for End {
    type Input = *const Finished;

    /// # Safety
    /// As [`Finish::tile`]; the sums have the rows of the place, in whole vectors. They may lie
    /// where the output does.
    #[inline(always)]
    unsafe fn run<S: Simd>(s: S, tile: *const Finished) {
        // SAFETY: the caller's promise.
        unsafe {
            let tile = &*tile;
            (*tile.finish).tile(s, tile.place, tile);
        }
    }
}

impl<S: Simd> TileSums<S> for Finished {
    type Columns = *const f32;

    #[inline(always)]
    unsafe fn columns(&self, _: S, at: usize) -> *const f32 {
        self.sums.wrapping_add(at)
    }

    #[inline(always)]
    unsafe fn sum(&self, s: S, row: usize, sums: *const f32, bias: S::F32) -> S::F32 {
        // SAFETY: the caller's promise.
        s.add(unsafe { s.load(sums.add(row * self.lds)) }, bias)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_orders_pack_alike() {
        for isa in Isa::ALL {
            for (k, n) in [(0, 3), (3, 0), (1, 1), (17, 31), (40, 33), (5, 113)] {
                let kn: Vec<f32> = (0..k * n).map(|i| i as f32 + 1.0).collect();
                let nk: Vec<f32> = (0..n * k).map(|i| kn[i % k * n + i / k]).collect();
                let mut packed = [(); 2].map(|()| vec![9.0; packed_len(isa, k, n)]);
                let order = Orientation::Kn;
                pack(isa, &[Columns { w: &kn, order, n }], k, &mut packed[0]);
                // The other order, cut into two.
                let (left, right) = nk.split_at(n / 3 * k);
                let side = |w| Columns { w, order: Orientation::Nk, n: w.len() / k.max(1) };
                if k > 0 {
                    pack(isa, &[side(left), side(right)], k, &mut packed[1]);
                    assert_eq!(packed[0], packed[1], "{isa} {k} {n}");
                }
                for (i, &x) in packed[0].iter().enumerate() {
                    let (panel, i) = (i / (k * width(isa)), i % (k * width(isa)));
                    let first = panel * width(isa);
                    let width = width(isa).min(n.next_multiple_of(isa.lanes()) - first);
                    let (row, column) = (i / width, first + i % width);
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
