//! A tile: its sums over k, all in registers.

use super::super::block::{Ahead, most_rows, opaque};
use super::super::epilogue::{Finish, Place};
use crate::cpu::Isa;
use crate::simd::{Routine, Simd, routine};

/// Steps of k between two looks at the pointers.
pub(super) const STEPS: usize = 8;

/// The functions for one instruction set: the sums of a tile of 1 to 14 rows, and its end.
pub(super) struct Tiles {
    pub(super) sums: [unsafe fn(*const Tile); 14],
    pub(super) finish: unsafe fn(*const Finished),
}

impl Tiles {
    /// # Panics
    /// If this machine lacks the instructions.
    pub(super) fn new(isa: Isa) -> Self {
        macro_rules! rows {
            ($($rows:literal)*) => { [$(routine::<Rows<$rows>>(isa)),*] };
        }
        Self { sums: rows!(1 2 3 4 5 6 7 8 9 10 11 12 13 14), finish: routine::<End>(isa) }
    }
}

/// What the sums of a tile are made of: `sums[r][..] = Σ a[r][i] · w[i][..]`.
pub(super) struct Tile {
    pub(super) k: usize,
    /// `[rows, lda]`
    pub(super) a: *const f32,
    pub(super) lda: usize,
    /// A panel: `[k, 2 vectors]`.
    pub(super) w: *const f32,
    /// `[rows, 2 vectors]`
    pub(super) sums: *mut f32,
    /// To fetch meanwhile: rows and panels.
    pub(super) ahead: [Ahead; 2],
}

/// The sums of a tile of so many rows.
struct Rows<const R: usize>;

/// Sums of the largest tile: with fewer rows the rest is never touched.
type Sums<S> = [[<S as Simd>::F32; 2]; 14];

/// Every third row of `a`; the two after it are one and two times `lda` away, which is an address
/// that an instruction computes by itself.
type Bases = [*const u8; 5];

impl<const R: usize> Routine for Rows<R> {
    type Input = *const Tile;

    /// # Safety
    /// The pointers of the tile can be read, and written, as far as said there.
    #[inline(always)]
    unsafe fn run<S: Simd>(s: S, tile: *const Tile) {
        // SAFETY: the caller's promise.
        let tile = unsafe { &*tile };
        if R > most_rows(S::LANES) {
            unreachable!("no tile has more rows than there are registers for");
        }
        let mut sums: Sums<S> = [[s.splat(0.0); 2]; 14];
        let mut w = tile.w;
        let [mut rows, mut panels] = tile.ahead;
        let lda = opaque(std::ptr::without_provenance::<u8>(tile.lda * 4)).addr();
        let mut bases: Bases = [tile.a.cast(); 5];
        macro_rules! bases {
            ($($base:literal)*) => { $(
                if 3 * $base < R {
                    bases[$base] = opaque(bases[0].wrapping_add(3 * $base * lda));
                }
            )* };
        }
        bases!(1 2 3 4);
        macro_rules! advance {
            ($steps:expr; $($base:literal)*) => { $(
                if 3 * $base < R {
                    bases[$base] = opaque(bases[$base].wrapping_add(4 * $steps));
                }
            )* };
        }
        for _ in 0..tile.k / STEPS {
            // SAFETY: at least 8 rows of the panel, and as many columns of `a`, are left.
            unsafe {
                step::<S, R, 0, 0>(s, &mut sums, &bases, lda, w);
                step::<S, R, 1, 4>(s, &mut sums, &bases, lda, w);
                step::<S, R, 2, 8>(s, &mut sums, &bases, lda, w);
                step::<S, R, 3, 12>(s, &mut sums, &bases, lda, w);
                step::<S, R, 4, 16>(s, &mut sums, &bases, lda, w);
                step::<S, R, 5, 20>(s, &mut sums, &bases, lda, w);
                step::<S, R, 6, 24>(s, &mut sums, &bases, lda, w);
                step::<S, R, 7, 28>(s, &mut sums, &bases, lda, w);
                w = w.add(STEPS * 2 * S::LANES);
            }
            advance!(STEPS; 0 1 2 3 4);
            rows.step();
            panels.step();
        }
        for _ in 0..tile.k % STEPS {
            // SAFETY: one row of the panel, and one column of `a`, is left.
            unsafe {
                step::<S, R, 0, 0>(s, &mut sums, &bases, lda, w);
                w = w.add(2 * S::LANES);
            }
            advance!(1; 0 1 2 3 4);
        }
        for (row, [low, high]) in sums.into_iter().enumerate().take(R) {
            // SAFETY: there is room for R rows of two vectors.
            unsafe {
                let to = tile.sums.add(row * 2 * S::LANES);
                s.store(to, low);
                s.store(to.add(S::LANES), high);
            }
        }
    }
}

/// One step of k, the one `U` after the pointers (`BYTES` in `a`). Written out row by row: as a
/// loop, the compiler sometimes leaves it one, and the sums in memory.
///
/// # Safety
/// Row `U` of the panel, and column `U` of the rows of `a`, can be read.
#[inline(always)]
unsafe fn step<S: Simd, const R: usize, const U: usize, const BYTES: usize>(
    s: S,
    sums: &mut Sums<S>,
    bases: &Bases,
    lda: usize,
    w: *const f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let w = w.add(U * 2 * S::LANES);
        let w = [s.load(w), s.load(w.add(S::LANES))];
        macro_rules! rows {
            ($($row:literal)*) => { $(
                if $row < R {
                    s.fma_pair::<{ $row % 3 }, BYTES>(bases[$row / 3], lda, w, &mut sums[$row]);
                }
            )* };
        }
        rows!(0 1 2 3 4 5 6 7 8 9 10 11 12 13);
    }
}

/// What the end of a tile needs.
pub(super) struct Finished {
    pub(super) finish: *const Finish,
    pub(super) place: Place,
    /// `[rows, 2 vectors]`
    pub(super) sums: *const f32,
}

/// The end of a tile.
struct End;

impl Routine for End {
    type Input = *const Finished;

    /// # Safety
    /// As [`Finish::tile`]; the sums have the rows of the place.
    #[inline(always)]
    unsafe fn run<S: Simd>(s: S, tile: *const Finished) {
        // SAFETY: the caller's promise.
        unsafe {
            let tile = &*tile;
            let at = |at: usize| tile.sums.wrapping_add(at);
            let sum = |row: usize, sums: *const f32, bias: S::F32| {
                s.add(s.load(sums.add(row * 2 * S::LANES)), bias)
            };
            (*tile.finish).tile(s, tile.place, at, sum);
        }
    }
}
