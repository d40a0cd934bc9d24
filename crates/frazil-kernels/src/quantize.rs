//! Numbers to bytes and back.
//!
//! A byte `q` stands for `(q - zero) · scale`. A whole tensor has one scale and zero that were
//! chosen before, or every row gets its own from what it holds. Which tensors become bytes is
//! decided elsewhere.

use crate::cpu::Isa;
use crate::par::Pool;
use crate::rows::{Shared, covers, share_out};
use crate::simd::{Kernel, Simd, dispatch};

/// Rows as bytes: `[rows, ld]`.
#[derive(Debug)]
pub struct Bytes<'a> {
    /// The bytes.
    pub out: &'a mut [u8],
    /// From row to row.
    pub ld: usize,
    /// What they stand for.
    pub scales: Scales<'a>,
    /// One for each column: numbers are multiplied by these first.
    pub factors: Option<&'a [f32]>,
}

/// What the bytes stand for.
#[derive(Debug)]
pub enum Scales<'a> {
    /// The same everywhere, and known.
    Tensor {
        /// What a step of one stands for.
        scale: f32,
        /// The byte that stands for 0.
        zero: u8,
    },
    /// The same everywhere, with as much room below 0 as above: 128 stands for 0, and byte 0 for
    /// nothing.
    Symmetric {
        /// What a step of one stands for.
        scale: f32,
    },
    /// Of each row its own, found by [`range`], and written here.
    Rows {
        /// What a step of one stands for.
        scale: &'a mut [f32],
        /// The byte that stands for 0.
        zero: &'a mut [u8],
        /// No byte is larger: 255, or 127 where products of bytes must not overflow 16 bits.
        top: u8,
    },
}

/// What bytes stand for that are there.
#[derive(Clone, Copy, Debug)]
pub enum Steps<'a> {
    /// The same everywhere.
    Tensor {
        /// What a step of one stands for.
        scale: f32,
        /// The byte that stands for 0.
        zero: u8,
    },
    /// Of each row its own: `[rows]`.
    Rows {
        /// What a step of one stands for.
        scale: &'a [f32],
        /// The byte that stands for 0.
        zero: &'a [u8],
    },
}

/// The byte that stands for 0 in [`Scales::Symmetric`].
pub const MIDDLE: u8 = 128;

/// Scale and zero for numbers from `lowest` to `highest` in bytes up to `top`; 0 is met exactly.
pub fn range(lowest: f32, highest: f32, top: u8) -> (f32, u8) {
    let (lowest, highest) = (lowest.min(0.0), highest.max(0.0));
    let scale = (highest - lowest) / f32::from(top);
    if scale < f32::MIN_POSITIVE {
        return (1.0, 0);
    }
    (scale, (-lowest / scale).round_ties_even() as u8)
}

/// `x · (1 / scale) + zero`, rounded to the nearest (halves to even) and held within 0..=255.
pub fn quantize(x: f32, scale: f32, zero: u8) -> u8 {
    // Rust's conversion keeps to the limits, and makes 0 of what is not a number.
    x.mul_add(1.0 / scale, f32::from(zero)).round_ties_even() as u8
}

/// The number that the byte of `x` stands for.
pub fn on_steps(x: f32, scale: f32, zero: u8) -> f32 {
    (f32::from(quantize(x, scale, zero)) - f32::from(zero)) * scale
}

/// `x · (1 / scale)`, rounded to the nearest (halves to even) and held within -127..=127.
pub fn quantize_symmetric(x: f32, scale: f32) -> i8 {
    (x * (1.0 / scale)).round_ties_even().clamp(-127.0, 127.0) as i8
}

/// Rows of numbers to bytes. `x: [rows, x_ld]`, of which the first `columns` count.
///
/// # Panics
/// If the extents contradict each other.
pub fn quantize_rows_f32(
    pool: &Pool,
    isa: Isa,
    [rows, columns]: [usize; 2],
    x: &[f32],
    x_ld: usize,
    bytes: Bytes<'_>,
) {
    assert!(covers(x.len(), rows, x_ld, columns), "x is [{rows}, {columns}]");
    let target = Target::new(bytes, rows, columns);
    share_out(pool, rows, columns, &|rows| {
        dispatch(isa, QuantizeRows { rows, columns, x, x_ld, target });
    });
}

/// `out = (x - zero) · scale`, row by row. `x: [rows, x_ld]`, `out: [rows, out_ld]`, of which the first
/// `columns` count.
///
/// # Panics
/// If the extents contradict each other.
pub fn dequantize_rows_f32(
    pool: &Pool,
    isa: Isa,
    [rows, columns]: [usize; 2],
    (x, x_ld): (&[u8], usize),
    steps: Steps<'_>,
    (out, out_ld): (&mut [f32], usize),
) {
    assert!(covers(x.len(), rows, x_ld, columns), "x is [{rows}, {columns}]");
    assert!(covers(out.len(), rows, out_ld, columns), "out is [{rows}, {columns}]");
    let out = Shared::new(out);
    share_out(pool, rows, columns, &|rows| {
        for row in rows {
            let (scale, zero) = match steps {
                Steps::Tensor { scale, zero } => (scale, zero),
                Steps::Rows { scale, zero } => (scale[row], zero[row]),
            };
            let x = &x[row * x_ld..][..columns];
            dispatch(isa, Dequantize { x, scale, zero, to: out.at(row * out_ld) });
        }
    });
}

/// The checked form of [`Bytes`], for several threads.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    out: Shared<u8>,
    ld: usize,
    scales: TargetScales,
    factors: Option<&'a [f32]>,
}

#[derive(Clone, Copy)]
enum TargetScales {
    Tensor { steps: f32, zero: f32 },
    Symmetric { steps: f32 },
    Rows { scale: Shared<f32>, zero: Shared<u8>, top: u8 },
}

impl<'a> Target<'a> {
    pub(crate) fn new(bytes: Bytes<'a>, rows: usize, columns: usize) -> Self {
        let Bytes { out, ld, scales, factors } = bytes;
        assert!(covers(out.len(), rows, ld, columns), "the bytes are [{rows}, {columns}]");
        assert!(factors.is_none_or(|factors| factors.len() >= columns), "a factor for each column");
        let scales = match scales {
            Scales::Tensor { scale, zero } => {
                TargetScales::Tensor { steps: 1.0 / scale, zero: f32::from(zero) }
            }
            Scales::Symmetric { scale } => TargetScales::Symmetric { steps: 1.0 / scale },
            Scales::Rows { scale, zero, top } => {
                assert!(
                    scale.len() >= rows && zero.len() >= rows,
                    "a scale for each of {rows} rows"
                );
                TargetScales::Rows { scale: Shared::new(scale), zero: Shared::new(zero), top }
            }
        };
        Self { out: Shared::new(out), ld, scales, factors }
    }

    /// Writes a row.
    /// # Safety
    /// `columns` numbers can be read at `x`, the row is one that `new` was told of, and no other
    /// thread writes it.
    #[inline(always)]
    pub(crate) unsafe fn row<S: Simd>(&self, s: S, row: usize, x: *const f32, columns: usize) {
        let out = self.out.at(row * self.ld);
        let x = Row { x, factors: self.factors.map_or(std::ptr::null(), <[f32]>::as_ptr) };
        let whole = columns / S::LANES * S::LANES;
        // SAFETY: the caller's promise.
        unsafe {
            let (steps, zero, top) = match self.scales {
                TargetScales::Symmetric { steps } => {
                    let steps = s.splat(steps);
                    for c in (0..columns).step_by(S::LANES) {
                        let n = (columns - c).min(S::LANES);
                        let q = signed(s, x.load(s, c, n), steps);
                        let q = s.add_i32(q, s.splat_i32(i32::from(MIDDLE)));
                        s.store_first_u8(out.add(c), q, n);
                    }
                    return;
                }
                TargetScales::Tensor { steps, zero } => (steps, zero, u8::MAX),
                TargetScales::Rows { scale, zero, top } => {
                    let (lowest, highest) = x.extremes(s, columns);
                    let (row_scale, row_zero) = range(lowest, highest, top);
                    scale.at(row).write(row_scale);
                    zero.at(row).write(row_zero);
                    (1.0 / row_scale, f32::from(row_zero), top)
                }
            };
            let (steps, zero) = (s.splat(steps), s.splat(zero));
            let top = s.splat(f32::from(top));
            // Held before it becomes an integer, lest it be too large for one.
            for c in (0..whole).step_by(S::LANES) {
                let q = s.min(top, s.fma(x.load(s, c, S::LANES), steps, zero));
                s.store_first_u8(out.add(c), s.to_i32(q), S::LANES);
            }
            if whole < columns {
                let rest = columns - whole;
                let q = s.min(top, s.fma(x.load(s, whole, rest), steps, zero));
                s.store_first_u8(out.add(whole), s.to_i32(q), rest);
            }
        }
    }
}

/// The steps of signed bytes, -127..=127, that numbers are nearest to; `steps` for 1.
#[inline(always)]
pub(crate) fn signed<S: Simd>(s: S, x: S::F32, steps: S::F32) -> S::I32 {
    let q = s.mul(x, steps);
    // Held before it becomes an integer, lest it be too large for one.
    s.to_i32(s.max(s.splat(-127.0), s.min(s.splat(127.0), q)))
}

/// A row of numbers, and what they are multiplied by first, if that is not null.
#[derive(Clone, Copy)]
struct Row {
    x: *const f32,
    factors: *const f32,
}

impl Row {
    /// `n` numbers from column `c` on, at most a vector.
    /// # Safety
    /// They can be read.
    #[inline(always)]
    unsafe fn load<S: Simd>(self, s: S, c: usize, n: usize) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe {
            let x = load(s, self.x.add(c), n);
            if self.factors.is_null() { x } else { s.mul(x, load(s, self.factors.add(c), n)) }
        }
    }

    /// The smallest and the largest of so many numbers and 0.
    /// # Safety
    /// They can be read.
    #[inline(always)]
    unsafe fn extremes<S: Simd>(self, s: S, columns: usize) -> (f32, f32) {
        // SAFETY: the caller's promise.
        unsafe {
            let zero = s.splat(0.0);
            let (mut low, mut high) = ([zero; 4], [zero; 4]);
            let mut c = 0;
            while c + 4 * S::LANES <= columns {
                for i in 0..4 {
                    let x = self.load(s, c + i * S::LANES, S::LANES);
                    low[i] = s.min(x, low[i]);
                    high[i] = s.max(x, high[i]);
                }
                c += 4 * S::LANES;
            }
            while c < columns {
                let x = self.load(s, c, (columns - c).min(S::LANES));
                low[0] = s.min(x, low[0]);
                high[0] = s.max(x, high[0]);
                c += S::LANES;
            }
            let low = s.min(s.min(low[0], low[1]), s.min(low[2], low[3]));
            let high = s.max(s.max(high[0], high[1]), s.max(high[2], high[3]));
            (s.smallest(low), s.largest(high))
        }
    }
}

/// # Safety
/// `n` numbers, at most a vector, can be read at `from`.
#[inline(always)]
unsafe fn load<S: Simd>(s: S, from: *const f32, n: usize) -> S::F32 {
    // SAFETY: the caller's promise.
    unsafe { if n == S::LANES { s.load(from) } else { s.load_first(from, n) } }
}

struct QuantizeRows<'a> {
    rows: std::ops::Range<usize>,
    columns: usize,
    x: &'a [f32],
    x_ld: usize,
    target: Target<'a>,
}

impl Kernel for QuantizeRows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for row in self.rows {
            let x = &self.x[row * self.x_ld..][..self.columns];
            // SAFETY: the row has so many columns, and is this task's alone.
            unsafe { self.target.row(s, row, x.as_ptr(), self.columns) };
        }
    }
}

struct Dequantize<'a> {
    x: &'a [u8],
    scale: f32,
    zero: u8,
    to: *mut f32,
}

impl Kernel for Dequantize<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { x, scale, zero, to } = self;
        let (scale, zero) = (s.splat(scale), s.splat_i32(-i32::from(zero)));
        let whole = x.len() / S::LANES * S::LANES;
        // SAFETY: as many numbers can be written at `to` as there are bytes.
        unsafe {
            for i in (0..whole).step_by(S::LANES) {
                let q = s.load_first_u8(x.as_ptr().add(i), S::LANES);
                s.store(to.add(i), s.mul(s.to_f32(s.add_i32(q, zero)), scale));
            }
            if whole < x.len() {
                let rest = x.len() - whole;
                let q = s.load_first_u8(x.as_ptr().add(whole), rest);
                s.store_first(to.add(whole), s.mul(s.to_f32(s.add_i32(q, zero)), scale), rest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_met_and_the_ends_are_kept() {
        for (lowest, highest) in [(-1.0, 1.0), (0.0, 3.0), (-2.5, -1.0), (0.5, 7.0), (-1e-30, 1e30)]
        {
            for top in [255, 127] {
                let (scale, zero) = range(lowest, highest, top);
                let byte = |x: f32| quantize(x, scale, zero).min(top);
                let back = |x: f32| (f32::from(byte(x)) - f32::from(zero)) * scale;
                assert_eq!(back(0.0), 0.0);
                for x in [lowest, highest] {
                    assert!((back(x) - x).abs() <= scale * 0.501, "{x}: {}", back(x));
                }
            }
        }
        assert_eq!(range(0.0, 0.0, 255), (1.0, 0));
        assert_eq!(quantize(f32::NAN, 1.0, 7), 0);
        assert_eq!((quantize(1e30, 1.0, 7), quantize(-1e30, 1.0, 7)), (255, 0));
        assert_eq!((quantize(0.5, 1.0, 0), quantize(1.5, 1.0, 0)), (0, 2));
        let signed = [0.5, 1.5, -2.5, 1e30, -1e30, f32::NAN].map(|x| quantize_symmetric(x, 1.0));
        assert_eq!(signed, [0, 2, -2, 127, -127, 0]);
    }
}
