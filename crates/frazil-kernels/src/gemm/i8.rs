//! Products of bytes: `[m, k]` unsigned activations by `[k, n]` signed packed weights.
//!
//! A byte of the activations stands for `scale · (byte − zero)`, with one scale and zero for all or
//! for each row; a weight for `scale · weight`, with a scale for each column. The sums
//! `Σ (a − zero) · w` are whole numbers of 32 bits, exact, and the same on every instruction set;
//! then they are scaled, and go through the same [`Epilogue`] as those of `gemm::f32`.
//!
//! The forms of the product: `vpdpbusd` with VNNI; without, `vpmaddubsw` on weights that packing has
//! made safe for it (see `pack`), with two or four products added before they are widened, and products
//! in 16 bits for the rest.

use super::block::{Ahead, Blocks, Share, Size, Touch};
use super::epilogue::{Columns, Epilogue, Finish, Output, Place, TileSums, covers};
use super::tile::{MOST_ROWS, STEPS, Sums, Table, Tile};
use crate::cpu::Isa;
use crate::par::Pool;
use crate::simd::{Routine, Simd, routine};

mod pack;
mod tile;

use pack::{Form, Layout, pack_panel};
use tile::{Tiles, shape};

/// A product to compute.
#[derive(Debug)]
pub struct Gemm<'a> {
    /// Activations and weights.
    pub factors: Factors<'a>,
    /// What a step of one in the bytes of `a` stands for.
    pub scales: Scales<'a>,
    /// What a step of one in the weights of a column stands for: `[n]`.
    pub column_scales: &'a [f32],
    /// Where the product goes.
    pub out: Output<'a>,
    /// From row to row of the output.
    pub ldc: usize,
    /// What is done on the way.
    pub epilogue: Epilogue<'a>,
}

/// What is multiplied.
#[derive(Clone, Copy, Debug)]
pub struct Factors<'a> {
    /// Rows of `a` and of the output.
    pub m: usize,
    /// Columns of `w` and of the output.
    pub n: usize,
    /// Columns of `a`, rows of `w`.
    pub k: usize,
    /// The activations, row-major: `[m, lda]`, of which k columns count.
    pub a: &'a [u8],
    /// From row to row of `a`.
    pub lda: usize,
    /// The bytes that stand for 0.
    pub zeros: Zeros<'a>,
    /// The weights, by [`pack`](fn@pack) for the same instruction set.
    pub w: &'a [u8],
}

/// The bytes of the activations that stand for 0.
#[derive(Clone, Copy, Debug)]
pub enum Zeros<'a> {
    /// The same one everywhere.
    Tensor(u8),
    /// One per row: `[m]`.
    Rows(&'a [u8]),
}

/// The scales of the activations.
#[derive(Clone, Copy, Debug)]
pub enum Scales<'a> {
    /// The same one everywhere.
    Tensor(f32),
    /// One per row: `[m]`.
    Rows(&'a [f32]),
}

/// The largest weights, of either sign, with which products are as fast as they can be: four of them
/// are added in 16 bits where there is no VNNI.
pub fn largest_weight(isa: Isa) -> u8 {
    match isa {
        Isa::Avx2 | Isa::Avx512 => 63,
        Isa::Scalar | Isa::Avx512Vnni => 127,
    }
}

/// How many bytes packed weights of `[k, n]` take.
///
/// # Panics
/// If k is more than 65,535, or that is more than can be counted.
pub fn packed_len(isa: Isa, k: usize, n: usize) -> usize {
    let Some(last) = n.checked_sub(1) else { return 0 };
    let layout = Layout::new(isa, k, n);
    let (before, rest) = (last / layout.width, last % layout.width + 1);
    let before = before.checked_mul(layout.panel());
    let all = before.and_then(|before| before.checked_add(Layout::new(isa, k, rest).panel()));
    all.expect("the weights fit into memory")
}

/// Packs matrices side by side.
///
/// # Panics
/// If a matrix does not have `k · n` numbers, or `packed` not [`packed_len`] of all columns.
pub fn pack(isa: Isa, parts: &[Columns<'_, i8>], k: usize, packed: &mut [u8]) {
    let n = Columns::count(parts, k);
    assert_eq!(packed.len(), packed_len(isa, k, n), "packed weights of {k} x {n}");
    if n == 0 {
        return;
    }
    let layout = Layout::new(isa, k, n);
    for (panel, packed) in packed.chunks_mut(layout.panel()).enumerate() {
        let first = panel * layout.width;
        let layout = Layout::new(isa, k, n - first);
        pack_panel(&layout, parts, k, first..n.min(first + layout.width), packed);
    }
}

/// The functions for tiles of bytes, with any weights: the largest is that of
/// [`gemm::f32`](super::f32) where there is VNNI, and in plain code.
///
/// # Panics
/// If this machine lacks the instructions.
pub(crate) fn tiles(isa: Isa) -> Table {
    Tiles::new(isa).wide
}

/// Computes the product on the threads of the pool.
///
/// # Panics
/// If a slice is too short for the sizes, or this machine lacks the instructions.
pub fn run(pool: &Pool, isa: Isa, gemm: Gemm<'_>) {
    let Gemm { factors, scales, column_scales, mut out, ldc, epilogue } = gemm;
    let (m, n) = (factors.m, factors.n);
    assert!(column_scales.len() >= n, "{} scales for {n} columns", column_scales.len());
    if let Scales::Rows(scales) = scales {
        assert!(scales.len() >= m, "{} scales for {m} rows", scales.len());
    }
    let finish = Finish::new((m, n), &epilogue, &mut out, ldc);
    let (row_scales, scale) = match scales {
        Scales::Tensor(scale) => (std::ptr::null(), scale),
        Scales::Rows(scales) => (scales.as_ptr(), 1.0),
    };
    let scaled = Scaled { finish, row_scales, scale, column_scales: column_scales.as_ptr() };
    multiply(pool, isa, &factors, Target::Scaled(scaled));
}

/// Computes the sums alone: `out = Σ (a − zero) · w`, row-major `[m, ldc]`.
///
/// # Panics
/// If a slice is too short for the sizes, or this machine lacks the instructions.
pub fn sums(pool: &Pool, isa: Isa, factors: &Factors<'_>, out: &mut [i32], ldc: usize) {
    let (m, n) = (factors.m, factors.n);
    assert!(covers(out.len(), m, ldc, n), "the output is too short for {m} x {n}");
    multiply(pool, isa, factors, Target::Sums(out.as_mut_ptr(), ldc));
}

/// Where sums go; checked.
#[derive(Clone, Copy)]
enum Target {
    Sums(*mut i32, usize),
    Scaled(Scaled),
}

impl Target {
    /// The tile at `place`, to bring close.
    fn touch(&self, place: Place) -> [Touch; 2] {
        match self {
            Self::Sums(..) => [Touch::NONE; 2],
            Self::Scaled(scaled) => scaled.finish.touch(place),
        }
    }
}

/// How sums become numbers; checked.
#[derive(Clone, Copy)]
struct Scaled {
    finish: Finish,
    /// None if there is one for all.
    row_scales: *const f32,
    scale: f32,
    column_scales: *const f32,
}

fn multiply(pool: &Pool, isa: Isa, factors: &Factors<'_>, target: Target) {
    let &Factors { m, n, k, a, lda, zeros, w } = factors;
    assert!(covers(a.len(), m, lda, k), "the activations are too short for {m} x {k}");
    assert_eq!(w.len(), packed_len(isa, k, n), "packed weights of {k} x {n}");
    if let Zeros::Rows(zeros) = zeros {
        assert!(zeros.len() >= m, "{} zero points for {m} rows", zeros.len());
    }
    if m == 0 || n == 0 {
        return;
    }
    let layout = Layout::new(isa, k, n);
    let size = Size {
        rows: m,
        tile_rows: shape(isa).rows,
        panels: n.div_ceil(layout.width),
        row_bytes: k,
    };
    // Below some microseconds of work there is nothing to share.
    let small = m.saturating_mul(n).saturating_mul(k) < 1 << 18;
    let threads = if small { 1 } else { pool.threads() };
    let blocks = Blocks::new(isa, threads, size);
    let (zeros, zero) = match zeros {
        Zeros::Tensor(zero) => (std::ptr::null(), zero),
        Zeros::Rows(zeros) => (zeros.as_ptr(), 0),
    };
    let (tiles, end) = (Tiles::new(isa), routine::<End>(isa));
    let job = Job { isa, n, k, a, lda, zeros, zero, w, target, layout, blocks, tiles, end };
    if threads == 1 {
        (0..blocks.tasks()).for_each(|task| job.task(task));
    } else {
        pool.run(blocks.tasks(), &|task, _| job.task(task));
    }
}

/// The checked product as the threads see it.
struct Job<'a> {
    isa: Isa,
    n: usize,
    k: usize,
    a: &'a [u8],
    lda: usize,
    /// None if there is one for all.
    zeros: *const u8,
    zero: u8,
    w: &'a [u8],
    target: Target,
    layout: Layout,
    blocks: Blocks,
    tiles: Tiles,
    end: unsafe fn(*const Finished),
}

// SAFETY: the pointers are to slices that the caller borrows until all threads are done; tasks write
// to tiles of their own.
unsafe impl Sync for Job<'_> {}

impl Job<'_> {
    fn task(&self, task: usize) {
        let (panels, tiles) = self.blocks.task(task);
        let (width, panel_len) = (self.layout.width, self.layout.panel());
        let mut sums = Sums([0; _]);
        for panel in panels.clone() {
            let column = panel * width;
            let layout = match panel + 1 == self.n.div_ceil(width) {
                true => Layout::new(self.isa, self.k, self.n - column),
                false => self.layout,
            };
            let packed = &self.w[panel * panel_len..][..layout.panel()];
            // While a panel is multiplied, the one after it comes.
            let next = match panel + 1 == panels.end {
                true => self.blocks.after(task),
                false => panel + 1,
            };
            let next = self.w.as_ptr().wrapping_add(next * panel_len);
            let share = Share::new(panel_len, self.k / 4 / STEPS, tiles.len());
            for (i, tile) in tiles.clone().enumerate() {
                let rows = self.blocks.tile(tile);
                let columns = width.min(self.n - column);
                let place = Place { row: rows.start, rows: rows.len(), column, columns };
                let fetch = (share.of(next, i), self.target.touch(place));
                self.sum(place, &layout, packed, &mut sums, fetch);
                let finished = Finished {
                    place,
                    sums: sums.0.as_ptr(),
                    width: layout.width,
                    column_sums: packed[layout.sums()..].as_ptr().cast(),
                    zeros: match self.zeros.is_null() {
                        true => self.zeros,
                        false => self.zeros.wrapping_add(rows.start),
                    },
                    zero: self.zero,
                    target: &raw const self.target,
                };
                // SAFETY: `multiply` and its callers have checked that the tile is inside of the
                // output and of all that goes into it; there are sums for all columns of a panel.
                unsafe { (self.end)(&finished) };
            }
        }
    }

    /// The sums of a tile, without the zero points.
    fn sum(
        &self,
        place: Place,
        layout: &Layout,
        packed: &[u8],
        sums: &mut Sums<i32>,
        (ahead, touch): (Ahead, [Touch; 2]),
    ) {
        let (lda, width) = (self.lda, layout.width);
        let a = &self.a[place.row * lda..];
        let form = layout.form(packed);
        let function = |form: Form| {
            let tiles = match form {
                Form::Wide => &self.tiles.wide,
                Form::Pairs => &self.tiles.pairs,
                Form::Quads => &self.tiles.quads,
            };
            tiles[width / self.isa.lanes() - 1][place.rows - 1]
        };
        let whole = self.k / 4;
        let sums_at = sums.0.as_mut_ptr().cast();
        // SAFETY: the rows have `whole` steps, the panel too; `sums` has room for the largest tile.
        unsafe {
            let tile = Tile::new(whole, (a.as_ptr(), lda), packed.as_ptr(), (sums_at, width * 4));
            function(form)(&Tile { ahead, touch, ..tile });
        }
        let rest = self.k % 4;
        if rest > 0 {
            // A step that does not read beyond the rows: their last bytes, filled up.
            let mut last = [[0u8; 4]; MOST_ROWS];
            for (row, last) in last.iter_mut().enumerate().take(place.rows) {
                last[..rest].copy_from_slice(&a[row * lda + whole * 4..][..rest]);
            }
            // SAFETY: four bytes for each row, and one more step of the panel.
            unsafe {
                let w = packed[whole * width * 4..].as_ptr();
                let tile = Tile::new(1, (last.as_ptr().cast(), 4), w, (sums_at, width * 4));
                function(form.of_one())(&Tile { add: true, ..tile });
            }
        }
        for note in layout.notes(packed) {
            for row in 0..place.rows {
                let a = i32::from(a[row * lda + note.k]);
                sums.0[row * width + note.column] += a * note.excess;
            }
        }
    }
}

/// What the end of a tile needs.
struct Finished {
    place: Place,
    /// `[rows, width]`
    sums: *const i32,
    width: usize,
    /// `[width]`
    column_sums: *const i32,
    /// `[rows]`; none if there is one for all.
    zeros: *const u8,
    zero: u8,
    target: *const Target,
}

/// The end of a tile.
struct End;

impl Routine for End {
    type Input = *const Finished;

    /// # Safety
    /// As [`Finish::tile`]; the other pointers can be read as far as said.
    #[inline(always)]
    unsafe fn run<S: Simd>(s: S, tile: *const Finished) {
        // SAFETY: the caller's promise.
        let tile = unsafe { &*tile };
        let place = tile.place;
        // SAFETY: the caller's promise, here and below.
        match unsafe { &*tile.target } {
            &Target::Sums(out, ldc) => {
                for at in (0..place.columns).step_by(S::LANES) {
                    for row in 0..place.rows {
                        let mut lanes = [0i32; 16];
                        let n = (place.columns - at).min(S::LANES);
                        // SAFETY: a vector has at most 16 lanes; the tile is inside of the output.
                        unsafe {
                            let of_zero = tile.of_zero(s, row, tile.column_sums(s, at));
                            s.store_i32(
                                lanes.as_mut_ptr(),
                                s.add_i32(tile.sums(s, row, at), of_zero),
                            );
                            let to = out.add((place.row + row) * ldc + place.column + at);
                            std::ptr::copy_nonoverlapping(lanes.as_ptr(), to, n);
                        }
                    }
                }
            }
            // SAFETY: the caller's promise.
            Target::Scaled(scaled) => unsafe {
                if tile.zeros.is_null() && scaled.row_scales.is_null() {
                    scaled.finish.tile(s, place, &OneScale { tile, scaled });
                } else {
                    scaled.finish.tile(s, place, &RowScales { tile, scaled });
                }
            },
        }
    }
}

impl Finished {
    /// # Safety
    /// Row and column are of the tile; the column is a multiple of the lanes. The same below.
    #[inline(always)]
    unsafe fn sums<S: Simd>(&self, s: S, row: usize, at: usize) -> S::I32 {
        // SAFETY: the caller's promise.
        unsafe { s.load_i32(self.sums.add(row * self.width + at)) }
    }

    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn column_sums<S: Simd>(&self, s: S, at: usize) -> S::I32 {
        // SAFETY: the caller's promise.
        unsafe { s.load_i32(self.column_sums.add(at)) }
    }

    /// What the zero point of a row adds to the sums.
    ///
    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn of_zero<S: Simd>(&self, s: S, row: usize, column_sums: S::I32) -> S::I32 {
        let zero = match self.zeros.is_null() {
            true => self.zero,
            // SAFETY: the caller's promise.
            false => unsafe { *self.zeros.add(row) },
        };
        s.mul_i32(column_sums, s.splat_i32(-i32::from(zero)))
    }

    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn scales<S: Simd>(&self, s: S, scaled: &Scaled, at: usize) -> S::F32 {
        let n = (self.place.columns - at).min(S::LANES);
        // SAFETY: the caller's promise: n columns from this one are inside.
        unsafe { s.load_first(scaled.column_scales.add(self.place.column + at), n) }
    }
}

/// The sums of a tile whose rows have the same scale and zero.
struct OneScale<'a> {
    tile: &'a Finished,
    scaled: &'a Scaled,
}

impl<S: Simd> TileSums<S> for OneScale<'_> {
    /// Where they begin, what the zero adds, and their scales.
    type Columns = (usize, S::I32, S::F32);

    #[inline(always)]
    unsafe fn columns(&self, s: S, at: usize) -> Self::Columns {
        let Self { tile, scaled } = self;
        // SAFETY: the caller's promise.
        unsafe {
            let of_zero = tile.of_zero(s, 0, tile.column_sums(s, at));
            (at, of_zero, s.mul(tile.scales(s, scaled, at), s.splat(scaled.scale)))
        }
    }

    #[inline(always)]
    unsafe fn sum(
        &self,
        s: S,
        row: usize,
        (at, of_zero, scales): Self::Columns,
        bias: S::F32,
    ) -> S::F32 {
        // SAFETY: the caller's promise.
        let sum = s.add_i32(unsafe { self.tile.sums(s, row, at) }, of_zero);
        s.fma(s.to_f32(sum), scales, bias)
    }
}

/// The sums of a tile whose rows have scales or zeros of their own.
struct RowScales<'a> {
    tile: &'a Finished,
    scaled: &'a Scaled,
}

impl<S: Simd> TileSums<S> for RowScales<'_> {
    /// Where they begin, the sums of their weights, and their scales.
    type Columns = (usize, S::I32, S::F32);

    #[inline(always)]
    unsafe fn columns(&self, s: S, at: usize) -> Self::Columns {
        // SAFETY: the caller's promise.
        unsafe { (at, self.tile.column_sums(s, at), self.tile.scales(s, self.scaled, at)) }
    }

    #[inline(always)]
    unsafe fn sum(
        &self,
        s: S,
        row: usize,
        (at, column_sums, scales): Self::Columns,
        bias: S::F32,
    ) -> S::F32 {
        let Self { tile, scaled } = self;
        // SAFETY: the caller's promise.
        let (sum, scale) = unsafe {
            let of_zero = tile.of_zero(s, row, column_sums);
            let scale = match scaled.row_scales.is_null() {
                true => scaled.scale,
                false => *scaled.row_scales.add(tile.place.row + row),
            };
            (s.add_i32(tile.sums(s, row, at), of_zero), scale)
        };
        s.fma(s.to_f32(sum), s.mul(scales, s.splat(scale)), bias)
    }
}
