//! What happens to a tile of sums on its way to memory.

use super::block::Touch;
use crate::math::{gelu_erf, gelu_tanh, tanh};
use crate::simd::Simd;

/// What is done with a sum before it is stored: `f(sum + bias) + residual`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Epilogue<'a> {
    /// One number per column: `[n]`.
    pub bias: Option<&'a [f32]>,
    /// Applied to the biased sum.
    pub activation: Activation,
    /// Added last.
    pub residual: Option<Residual<'a>>,
}

/// A matrix that is added to the result.
#[derive(Clone, Copy, Debug)]
pub struct Residual<'a> {
    /// Row-major: `[m, ld]`, of which n columns count.
    pub x: &'a [f32],
    /// From row to row.
    pub ld: usize,
}

/// The function between a product and the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// As it is.
    #[default]
    None,
    /// `max(x, 0)`
    Relu,
    /// The hyperbolic tangent.
    Tanh,
    /// GELU by its approximation with tanh, as Google's BERT computes it.
    GeluTanh,
    /// GELU as defined, with the error function.
    GeluErf,
}

/// Where a product goes: `[m, ldc]`, of which n columns are written.
#[derive(Debug)]
pub enum Output<'a> {
    /// Numbers.
    F32(&'a mut [f32]),
    /// Bytes: `x · (1 / scale) + zero`, rounded to the nearest (halves to even), clamped to 0..=255.
    U8 {
        /// The bytes.
        out: &'a mut [u8],
        /// What a step of one stands for.
        scale: f32,
        /// The byte that stands for 0.
        zero: u8,
        /// One for each column: x is multiplied by these first.
        factors: Option<&'a [f32]>,
    },
}

/// How a matrix of weights lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orientation {
    /// `[k, n]`: a row per input, as TensorFlow's `kernel`.
    Kn,
    /// `[n, k]`: a row per output, as PyTorch's `weight`.
    Nk,
}

/// A matrix of weights, to be packed; others may stand beside it.
#[derive(Clone, Copy, Debug)]
pub struct Columns<'a, T> {
    /// `[k, n]` or `[n, k]`
    pub w: &'a [T],
    /// Which of them.
    pub order: Orientation,
    /// Columns.
    pub n: usize,
}

impl<'a, T: Copy> Columns<'a, T> {
    /// All columns of matrices side by side.
    ///
    /// # Panics
    /// If a matrix does not have `k · n` numbers.
    pub(super) fn count(parts: &[Self], k: usize) -> usize {
        let columns = |part: &Self| {
            assert_eq!(Some(part.w.len()), k.checked_mul(part.n), "weights of {k} x {}", part.n);
            part.n
        };
        parts.iter().map(columns).sum()
    }

    /// Column `column` of all of them: its k weights.
    pub(super) fn column(
        parts: &[Self],
        k: usize,
        mut column: usize,
    ) -> impl Iterator<Item = T> + use<'a, T> {
        let mut found = (&[][..], 0, 1);
        for part in parts {
            if column < part.n {
                found = match part.order {
                    Orientation::Kn => (part.w, column, part.n),
                    Orientation::Nk => (part.w, column * k, 1),
                };
                break;
            }
            column -= part.n;
        }
        let (w, first, step): (&'a [T], usize, usize) = found;
        w.iter().skip(first).step_by(step).take(k).copied()
    }
}

/// Whether `rows` rows of `columns` numbers, `ld` apart, lie within `len` numbers.
pub(super) fn covers(len: usize, rows: usize, ld: usize, columns: usize) -> bool {
    let needed = |rows: usize| (rows - 1).checked_mul(ld)?.checked_add(columns);
    rows == 0 || columns <= ld && needed(rows).is_some_and(|needed| needed <= len)
}

/// [`Output`] for several threads, each of which writes other rows or columns.
#[derive(Clone, Copy)]
enum Target {
    /// Numbers.
    F32(*mut f32),
    /// Bytes.
    U8(Steps),
}

/// Where bytes go, and how numbers become them.
#[derive(Clone, Copy)]
pub(crate) struct Steps {
    out: *mut u8,
    /// For 1.
    steps: f32,
    /// The byte for 0.
    zero: f32,
    /// By column, or null.
    factors: *const f32,
}

impl Steps {
    /// # Panics
    /// If there are factors, but not for so many columns.
    pub(crate) fn new(
        out: &mut [u8],
        (scale, zero): (f32, u8),
        factors: Option<&[f32]>,
        columns: usize,
    ) -> Self {
        let factors = factors.map_or(std::ptr::null(), |factors| {
            assert!(factors.len() >= columns, "{} factors for {columns} columns", factors.len());
            factors.as_ptr()
        });
        Self { out: out.as_mut_ptr(), steps: 1.0 / scale, zero: f32::from(zero), factors }
    }

    /// Writes the first `n` numbers as the bytes of `column` and those after it, `to` elements after
    /// the first byte of all.
    /// # Safety
    /// The bytes can be written, and the factors read.
    #[inline(always)]
    pub(crate) unsafe fn store<S: Simd>(
        &self,
        s: S,
        to: usize,
        column: usize,
        x: S::F32,
        n: usize,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let x = match self.factors.is_null() {
                true => x,
                false => s.mul(x, load(s, self.factors.add(column), n)),
            };
            let q = s.fma(x, s.splat(self.steps), s.splat(self.zero));
            // What is below 0 is held there by the store, what is far below, too.
            let q = s.min(q, s.splat(255.0));
            s.store_first_u8(self.out.add(to), s.to_i32(q), n);
        }
    }
}

/// The checked form of an output with its epilogue.
#[derive(Clone, Copy)]
pub(super) struct Finish {
    bias: *const f32,
    activation: Activation,
    residual: *const f32,
    ldr: usize,
    target: Target,
    ldc: usize,
}

/// Where a tile lies in the product.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) row: usize,
    pub(super) rows: usize,
    pub(super) column: usize,
    pub(super) columns: usize,
}

/// The sums of a tile. A trait rather than closures, whose bodies are not always made part of the
/// loop, which is then several times slower.
pub(super) trait TileSums<S: Simd> {
    /// What is made ready for a vector of columns.
    type Columns: Copy;

    /// Makes the columns from `at` on ready.
    ///
    /// # Safety
    /// They are of the tile.
    unsafe fn columns(&self, s: S, at: usize) -> Self::Columns;

    /// Their sums in a row of the tile, with a bias added.
    ///
    /// # Safety
    /// The row is of the tile.
    unsafe fn sum(&self, s: S, row: usize, columns: Self::Columns, bias: S::F32) -> S::F32;
}

impl Finish {
    /// # Panics
    /// If a slice is too short for `m` by `n`.
    pub(super) fn new(
        (m, n): (usize, usize),
        epilogue: &Epilogue<'_>,
        output: &mut Output<'_>,
        ldc: usize,
    ) -> Self {
        let (target, len) = match output {
            Output::F32(out) => (Target::F32(out.as_mut_ptr()), out.len()),
            Output::U8 { out, scale, zero, factors } => {
                (Target::U8(Steps::new(out, (*scale, *zero), *factors, n)), out.len())
            }
        };
        assert!(covers(len, m, ldc, n), "the output is too short for {m} x {n}");
        let bias = epilogue.bias.map_or(std::ptr::null(), |bias| {
            assert!(bias.len() >= n, "{} numbers are no bias of {n} columns", bias.len());
            bias.as_ptr()
        });
        let (residual, ldr) = epilogue.residual.map_or((std::ptr::null(), 0), |residual| {
            assert!(covers(residual.x.len(), m, residual.ld, n), "the residual is too short");
            (residual.x.as_ptr(), residual.ld)
        });
        Self { bias, activation: epilogue.activation, residual, ldr, target, ldc }
    }

    /// Where numbers go, if they do, and from row to row: they can wait there for the rest of their
    /// sum.
    pub(super) fn numbers(&self) -> Option<(*mut f32, usize)> {
        match self.target {
            Target::F32(out) => Some((out, self.ldc)),
            Target::U8(_) => None,
        }
    }

    /// The tile at `place`, to bring close: of the output, and of what is added to it.
    pub(super) fn touch(&self, place: Place) -> [Touch; 2] {
        let Place { row, rows, column, columns } = place;
        let at = |from: *const u8, ld: usize, bytes: usize| {
            Touch::new(
                from.wrapping_add((row * ld + column) * bytes),
                ld * bytes,
                rows,
                columns * bytes,
            )
        };
        let output = match self.target {
            Target::F32(out) => at(out.cast(), self.ldc, size_of::<f32>()),
            Target::U8(steps) => at(steps.out, self.ldc, 1),
        };
        match self.residual.is_null() {
            true => [output, Touch::NONE],
            false => [output, at(self.residual.cast(), self.ldr, size_of::<f32>())],
        }
    }

    /// Finishes the tile at `place`.
    ///
    /// # Safety
    /// The tile lies within the `m` by `n` of [`Finish::new`], nobody else touches it, the slices
    /// given there are still borrowed, and the sums can be asked for all of the tile.
    #[inline(always)]
    pub(super) unsafe fn tile<S: Simd>(&self, s: S, place: Place, sums: &impl TileSums<S>) {
        // One copy of the loop per function: none asks in its middle.
        // SAFETY: the caller's promise, handed on.
        unsafe {
            match self.activation {
                Activation::None => self.rows(s, place, sums, |x| x),
                Activation::Relu => self.rows(s, place, sums, |x| s.max(x, s.splat(0.0))),
                Activation::Tanh => self.rows(s, place, sums, |x| tanh(s, x)),
                Activation::GeluTanh => self.rows(s, place, sums, |x| gelu_tanh(s, x)),
                Activation::GeluErf => self.rows(s, place, sums, |x| gelu_erf(s, x)),
            }
        }
    }

    /// # Safety
    /// As [`Finish::tile`].
    #[inline(always)]
    unsafe fn rows<S: Simd>(
        &self,
        s: S,
        place: Place,
        sums: &impl TileSums<S>,
        activation: impl Fn(S::F32) -> S::F32,
    ) {
        for at in (0..place.columns).step_by(S::LANES) {
            let n = (place.columns - at).min(S::LANES);
            let column = place.column + at;
            // SAFETY: the caller's promise: these columns are of the tile.
            let columns = unsafe { sums.columns(s, at) };
            let bias = match self.bias.is_null() {
                true => s.splat(0.0),
                // SAFETY: the caller's promise: n columns from this one are inside.
                false => unsafe { load(s, self.bias.add(column), n) },
            };
            for row in 0..place.rows {
                // SAFETY: the caller's promise: this row is of the tile.
                let mut x = activation(unsafe { sums.sum(s, row, columns, bias) });
                let row = place.row + row;
                // SAFETY: the caller's promise: n columns from this one of this row are inside.
                unsafe {
                    if !self.residual.is_null() {
                        x = s.add(x, load(s, self.residual.add(row * self.ldr + column), n));
                    }
                    let to = row * self.ldc + column;
                    match self.target {
                        Target::F32(out) if n == S::LANES => s.store(out.add(to), x),
                        Target::F32(out) => s.store_first(out.add(to), x, n),
                        Target::U8(steps) if n == S::LANES => {
                            steps.store(s, to, column, x, S::LANES);
                        }
                        Target::U8(steps) => steps.store(s, to, column, x, n),
                    }
                }
            }
        }
    }
}

/// # Safety
/// `n` numbers can be read at `from`.
#[inline(always)]
unsafe fn load<S: Simd>(s: S, from: *const f32, n: usize) -> S::F32 {
    // SAFETY: the caller's promise.
    unsafe { if n == S::LANES { s.load(from) } else { s.load_first(from, n) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_covered() {
        assert!(covers(0, 0, 5, 5) && covers(0, 0, 0, 5));
        assert!(covers(14, 3, 5, 4) && !covers(13, 3, 5, 4));
        assert!(!covers(100, 3, 4, 5));
        assert!(!covers(usize::MAX, usize::MAX, 3, 3));
    }

    #[test]
    #[should_panic(expected = "no bias of 5 columns")]
    fn a_short_bias_is_refused() {
        let epilogue = Epilogue { bias: Some(&[0.0; 4]), ..Epilogue::default() };
        Finish::new((1, 5), &epilogue, &mut Output::F32(&mut [0.0; 5]), 5);
    }

    #[test]
    #[should_panic(expected = "output is too short for 2 x 5")]
    fn a_short_output_is_refused() {
        Finish::new((2, 5), &Epilogue::default(), &mut Output::F32(&mut [0.0; 9]), 5);
    }

    #[test]
    #[should_panic(expected = "residual is too short")]
    fn a_short_residual_is_refused() {
        let residual = Some(Residual { x: &[0.0; 9], ld: 5 });
        let epilogue = Epilogue { residual, ..Epilogue::default() };
        Finish::new((2, 5), &epilogue, &mut Output::F32(&mut [0.0; 10]), 5);
    }
}
