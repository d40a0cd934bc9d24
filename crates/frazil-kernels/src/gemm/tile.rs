//! A tile: its sums over k, all in registers; one text for numbers and for bytes.
//!
//! A step multiplies the 32 bits of each row (a number, or four bytes) with up to three vectors of
//! weights. Three, where there are registers for it: two multiplications a cycle want few loads
//! beside them (9 rows by 3 vectors reached 98% of the peak where 14 by 2 reached 92%).

use super::block::{Ahead, Touch, opaque};

/// Steps between two looks at the pointers.
pub(super) const STEPS: usize = 8;

/// The most rows of a tile, and the most vectors of columns.
pub(crate) const MOST_ROWS: usize = 12;
pub(crate) const MOST_VECTORS: usize = 3;

/// Room for the sums of any tile, at a cache line.
#[repr(align(64))]
pub(super) struct Sums<T>(pub(super) [T; 9 * 3 * 16]);

/// The largest tile of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) rows: usize,
    /// Of columns: those of a panel.
    pub(crate) vectors: usize,
}

/// The functions for tiles of 1 to 3 vectors and of 1 to 12 rows.
pub(crate) type Table = [[unsafe fn(*const Tile); MOST_ROWS]; MOST_VECTORS];

/// A [`Table`] of `$function!(rows, vectors)`.
macro_rules! table {
    ($function:ident) => {
        table!(@ $function; 1, 2, 3)
    };
    (@ $function:ident; $($vectors:literal),*) => {
        [$([
            $function!(1, $vectors),
            $function!(2, $vectors),
            $function!(3, $vectors),
            $function!(4, $vectors),
            $function!(5, $vectors),
            $function!(6, $vectors),
            $function!(7, $vectors),
            $function!(8, $vectors),
            $function!(9, $vectors),
            $function!(10, $vectors),
            $function!(11, $vectors),
            $function!(12, $vectors),
        ]),*]
    };
}
pub(super) use table;

/// What the sums of a tile are made of: `sums[r][..] = Σ a[r][i] · w[i][..]`. Everything counts in
/// bytes, four to a step or a lane.
pub(crate) struct Tile {
    pub(super) steps: usize,
    /// `[rows, lda]`
    pub(super) a: *const u8,
    pub(super) lda: usize,
    /// `[steps, vectors]`
    pub(super) w: *const u8,
    /// `[rows, lds]`, of which the vectors count.
    pub(super) sums: *mut u8,
    pub(super) lds: usize,
    /// Whether to add to the sums that are there.
    pub(super) add: bool,
    /// To fetch meanwhile: weights, and where the sums go.
    pub(super) ahead: Ahead,
    pub(super) touch: [Touch; 2],
}

impl Tile {
    /// A tile that adds to nothing and fetches nothing.
    pub(crate) fn new(
        steps: usize,
        (a, lda): (*const u8, usize),
        w: *const u8,
        (sums, lds): (*mut u8, usize),
    ) -> Self {
        let (ahead, touch) = (Ahead::NONE, [Touch::NONE; 2]);
        Self { steps, a, lda, w, sums, lds, add: false, ahead, touch }
    }

    /// The same; whether to add to the sums that are there.
    pub(crate) fn adding(self, add: bool) -> Self {
        Self { add, ..self }
    }
}

/// How 32 bits of a row are multiplied with vectors of weights and added to their sums.
pub(super) trait Product: Copy {
    /// The largest tile.
    const SHAPE: Shape;
    /// Of 32 bits in a vector.
    const LANES: usize;
    /// Steps that are multiplied together: 1, or 2 by [`Product::two`].
    const PACE: usize = 1;
    /// Sums, and weights as they are in a panel.
    type V: Copy;

    /// Zeros.
    fn zero(self) -> Self::V;
    /// `a + b`
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// # Safety
    /// A vector can be read at `from`.
    unsafe fn load(self, from: *const u8) -> Self::V;
    /// # Safety
    /// A vector can be written at `to`.
    unsafe fn store(self, to: *mut u8, x: Self::V);
    /// `sums[i] += a · w[i]` for the first `C` vectors, where `a` are the 32 bits that lie
    /// `STRIDES · stride + OFFSET` bytes after `from`; `STRIDES` is 0, 1 or 2. In one piece, so that
    /// a compiler that has many of them does not read every `a` first.
    /// # Safety
    /// The 32 bits can be read.
    unsafe fn row<const C: usize, const STRIDES: usize, const OFFSET: usize>(
        self,
        from: *const u8,
        stride: usize,
        w: [Self::V; MOST_VECTORS],
        sums: &mut [Self::V; MOST_VECTORS],
    );
    /// The same for the 32 bits there and those after them, where that is less work than one after
    /// the other.
    /// # Safety
    /// The 64 bits can be read.
    unsafe fn two<const C: usize, const STRIDES: usize, const OFFSET: usize>(
        self,
        _from: *const u8,
        _stride: usize,
        _w: [[Self::V; MOST_VECTORS]; 2],
        _sums: &mut [Self::V; MOST_VECTORS],
    ) {
        unreachable!("only where the pace is 2");
    }
}

/// Sums of the largest tile: with fewer rows or vectors the rest is never touched.
type Registers<P> = [[<P as Product>::V; MOST_VECTORS]; MOST_ROWS];

/// Every third row of `a`; the two after it are one and two times `lda` away, which is an address
/// that an instruction computes by itself.
type Bases = [*const u8; MOST_ROWS / 3];

/// The sums of R rows by C vectors.
///
/// # Safety
/// The pointers of the tile can be read, and written, as far as said there.
#[inline(always)]
pub(super) unsafe fn sums<P: Product, const R: usize, const C: usize>(p: P, tile: *const Tile) {
    if R > P::SHAPE.rows || C > P::SHAPE.vectors {
        unreachable!("no tile is larger than there are registers for");
    }
    // SAFETY: the caller's promise.
    let tile = unsafe { &*tile };
    let mut sums: Registers<P> = [[p.zero(); MOST_VECTORS]; MOST_ROWS];
    // Written out vector by vector here and below: as loops, the compiler sometimes leaves them
    // such, and the sums in memory.
    macro_rules! each {
        ($do:ident; $($row:literal)*) => { $(
            if $row < R {
                if 0 < C { $do!($row, 0); }
                if 1 < C { $do!($row, 1); }
                if 2 < C { $do!($row, 2); }
            }
        )* };
    }
    let mut w = tile.w;
    let (mut ahead, mut touch) = (tile.ahead, tile.touch);
    let lda = opaque(std::ptr::without_provenance::<u8>(tile.lda)).addr();
    let mut bases: Bases = [tile.a; MOST_ROWS / 3];
    macro_rules! bases {
        ($($base:literal)*) => { $(
            if 3 * $base < R {
                bases[$base] = opaque(bases[0].wrapping_add(3 * $base * lda));
            }
        )* };
    }
    bases!(1 2 3);
    macro_rules! advance {
        ($steps:expr; $($base:literal)*) => { $(
            if 3 * $base < R {
                bases[$base] = opaque(bases[$base].wrapping_add(4 * $steps));
            }
        )* };
    }
    for _ in 0..tile.steps / STEPS {
        // SAFETY: at least 8 steps of the panel, and of `a`, are left.
        unsafe {
            step::<P, R, C, 0, 0>(p, &mut sums, &bases, lda, w);
            step::<P, R, C, 1, 4>(p, &mut sums, &bases, lda, w);
            step::<P, R, C, 2, 8>(p, &mut sums, &bases, lda, w);
            step::<P, R, C, 3, 12>(p, &mut sums, &bases, lda, w);
            step::<P, R, C, 4, 16>(p, &mut sums, &bases, lda, w);
            step::<P, R, C, 5, 20>(p, &mut sums, &bases, lda, w);
            step::<P, R, C, 6, 24>(p, &mut sums, &bases, lda, w);
            step::<P, R, C, 7, 28>(p, &mut sums, &bases, lda, w);
            w = w.add(STEPS * C * P::LANES * 4);
        }
        advance!(STEPS; 0 1 2 3);
        ahead.step();
        touch[0].step();
        touch[1].step();
    }
    for _ in 0..tile.steps % STEPS / P::PACE {
        // SAFETY: as many steps of the panel, and of `a`, are left.
        unsafe {
            step::<P, R, C, 0, 0>(p, &mut sums, &bases, lda, w);
            w = w.add(P::PACE * C * P::LANES * 4);
        }
        advance!(P::PACE; 0 1 2 3);
    }
    macro_rules! add {
        ($row:literal, $column:literal) => {
            // SAFETY: the caller's promise: there are R rows of C vectors.
            unsafe {
                let before = p.load(tile.sums.add($row * tile.lds + $column * P::LANES * 4));
                sums[$row][$column] = p.add(before, sums[$row][$column]);
            }
        };
    }
    if tile.add {
        each!(add; 0 1 2 3 4 5 6 7 8 9 10 11);
    }
    macro_rules! store {
        ($row:literal, $column:literal) => {
            // SAFETY: as for reading them.
            unsafe {
                let to = tile.sums.add($row * tile.lds + $column * P::LANES * 4);
                p.store(to, sums[$row][$column]);
            }
        };
    }
    each!(store; 0 1 2 3 4 5 6 7 8 9 10 11);
}

/// One step, the one `U` after the pointers (`BYTES` in `a`); or two at once, then the odd ones are
/// nothing to do.
///
/// # Safety
/// Step `U` of the panel, and of the rows of `a`, can be read; the one after it, too, if two are taken.
#[inline(always)]
unsafe fn step<P: Product, const R: usize, const C: usize, const U: usize, const BYTES: usize>(
    p: P,
    sums: &mut Registers<P>,
    bases: &Bases,
    lda: usize,
    w: *const u8,
) {
    if !U.is_multiple_of(P::PACE) {
        return;
    }
    let load = |step: usize, column: usize| match column < C {
        // SAFETY: the caller's promise.
        true => unsafe { p.load(w.add(((U + step) * C + column) * P::LANES * 4)) },
        false => p.zero(),
    };
    macro_rules! rows {
        ($w:expr, $multiply:ident; $($row:literal)*) => { $(
            if $row < R {
                // SAFETY: the caller's promise.
                unsafe {
                    p.$multiply::<C, { $row % 3 }, BYTES>(
                        bases[$row / 3], lda, $w, &mut sums[$row],
                    );
                }
            }
        )* };
    }
    let now = [load(0, 0), load(0, 1), load(0, 2)];
    if P::PACE == 1 {
        rows!(now, row; 0 1 2 3 4 5 6 7 8 9 10 11);
    } else {
        let next = [load(1, 0), load(1, 1), load(1, 2)];
        rows!([now, next], two; 0 1 2 3 4 5 6 7 8 9 10 11);
    }
}
