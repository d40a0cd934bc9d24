//! Layer normalisation with what stands around it in a BERT: the residual that is added before, and
//! the bytes for the next product after.

use crate::cpu::Isa;
use crate::par::Pool;
use crate::quantize::{Bytes, Target};
use crate::rows::{Shared, covers, share_out};
use crate::simd::{Kernel, Simd, dispatch};

/// What is normalised: `x + residual`, row by row.
#[derive(Clone, Copy, Debug)]
pub struct LayerNorm<'a> {
    /// `t`
    pub rows: usize,
    /// `[t, x_ld]`, of which the first `h` columns count.
    pub x: &'a [f32],
    /// From row to row of `x`.
    pub x_ld: usize,
    /// `[t, ld]` and its `ld`, added to `x`.
    pub residual: Option<(&'a [f32], usize)>,
    /// What each column is multiplied by, and what is added to it.
    pub affine: Affine<'a>,
}

/// The parameters of a normalisation.
#[derive(Clone, Copy, Debug)]
pub struct Affine<'a> {
    /// `[h]`
    pub gamma: &'a [f32],
    /// `[h]`
    pub beta: &'a [f32],
    /// Added to the variance.
    pub epsilon: f32,
}

/// [`layer_norm`](super::layer_norm) of `x + residual`: `out: [t, out_ld]`, and the same as
/// bytes if that is wanted.
///
/// # Panics
/// If the extents contradict each other.
pub fn fused_layer_norm_f32(
    pool: &Pool,
    isa: Isa,
    norm: &LayerNorm<'_>,
    out: &mut [f32],
    out_ld: usize,
    bytes: Option<Bytes<'_>>,
) {
    let &LayerNorm { rows, x, x_ld, residual, affine } = norm;
    let h = affine.hidden();
    assert!(covers(x.len(), rows, x_ld, h), "x is [{rows}, {h}]");
    assert!(covers(out.len(), rows, out_ld, h), "out is [{rows}, {h}]");
    assert!(residual.is_none_or(|(r, ld)| covers(r.len(), rows, ld, h)), "the residual is [t, h]");
    let bytes = bytes.map(|bytes| Target::new(bytes, rows, h));
    let out = Shared::new(out);
    share_out(pool, rows, h, &|rows| dispatch(isa, Rows { norm, rows, out, out_ld, bytes }));
}

impl Affine<'_> {
    /// `h`
    pub(crate) fn hidden(&self) -> usize {
        assert_eq!(self.gamma.len(), self.beta.len(), "gamma and beta have the same length");
        self.gamma.len()
    }

    /// Normalises a row where it is, of which the sum is known.
    /// # Safety
    /// `h` numbers can be read and written at `row`.
    #[inline(always)]
    pub(crate) unsafe fn normalise<S: Simd>(&self, s: S, row: *mut f32, sum: S::F32) {
        let h = self.gamma.len();
        let (gamma, beta) = (self.gamma.as_ptr(), self.beta.as_ptr());
        let whole = h / S::LANES * S::LANES;
        let rest = h - whole;
        // SAFETY: the caller's promise; gamma and beta have the same length.
        unsafe {
            let mean = s.splat(s.sum(sum) / h as f32);
            let mut squares = [s.splat(0.0); 4];
            let mut c = 0;
            while c + 4 * S::LANES <= h {
                for (i, squares) in squares.iter_mut().enumerate() {
                    let x = s.sub(s.load(row.add(c + i * S::LANES)), mean);
                    *squares = s.fma(x, x, *squares);
                }
                c += 4 * S::LANES;
            }
            while c < whole {
                let x = s.sub(s.load(row.add(c)), mean);
                squares[0] = s.fma(x, x, squares[0]);
                c += S::LANES;
            }
            if rest > 0 {
                let there = [1.0; 16];
                let x = s.sub(s.load_first(row.add(c), rest), mean);
                let x = s.mul(x, s.load_first(there.as_ptr(), rest));
                squares[1] = s.fma(x, x, squares[1]);
            }
            let squares = s.add(s.add(squares[0], squares[1]), s.add(squares[2], squares[3]));
            let variance = s.sum(squares) / h as f32;
            // The root in f64 costs nothing here, and the scale is then as good as can be.
            let scale = s.splat((1.0 / f64::from(variance + self.epsilon).sqrt()) as f32);
            for c in (0..whole).step_by(S::LANES) {
                let x = s.mul(s.sub(s.load(row.add(c)), mean), scale);
                s.store(row.add(c), s.fma(x, s.load(gamma.add(c)), s.load(beta.add(c))));
            }
            if rest > 0 {
                let c = whole;
                let x = s.mul(s.sub(s.load_first(row.add(c), rest), mean), scale);
                let (gamma, beta) =
                    (s.load_first(gamma.add(c), rest), s.load_first(beta.add(c), rest));
                s.store_first(row.add(c), s.fma(x, gamma, beta), rest);
            }
        }
    }
}

/// A row that is added.
#[derive(Clone, Copy)]
pub(crate) enum Term {
    F32(*const f32),
    /// Bytes, and what a step of one stands for.
    I8(*const i8, f32),
}

impl Term {
    /// The `n` numbers from column `c` on; a vector if there are more.
    /// # Safety
    /// They can be read.
    #[inline(always)]
    unsafe fn load<S: Simd>(self, s: S, c: usize, n: usize) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Term::F32(from) if n >= S::LANES => s.load(from.add(c)),
                Term::F32(from) => s.load_first(from.add(c), n),
                Term::I8(from, scale) => {
                    s.mul(s.to_f32(s.load_first_i8(from.add(c), n)), s.splat(scale))
                }
            }
        }
    }
}

/// Writes the sum of some rows, and gives the sum of all its lanes' numbers.
/// # Safety
/// `h` numbers can be written at `row`, and read at each of the terms.
#[inline(always)]
pub(crate) unsafe fn gather<S: Simd, const N: usize>(
    s: S,
    row: *mut f32,
    h: usize,
    terms: [Term; N],
) -> S::F32 {
    let mut sums = [s.splat(0.0); 4];
    let mut c = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while c + 4 * S::LANES <= h {
            for (i, sum) in sums.iter_mut().enumerate() {
                let at = c + i * S::LANES;
                let mut x = terms[0].load(s, at, S::LANES);
                for term in &terms[1..] {
                    x = s.add(x, term.load(s, at, S::LANES));
                }
                s.store(row.add(at), x);
                *sum = s.add(*sum, x);
            }
            c += 4 * S::LANES;
        }
        while c < h {
            let mut x = terms[0].load(s, c, h - c);
            for term in &terms[1..] {
                x = s.add(x, term.load(s, c, h - c));
            }
            s.store_first(row.add(c), x, h - c);
            sums[0] = s.add(sums[0], x);
            c += S::LANES;
        }
    }
    s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3]))
}

struct Rows<'a> {
    norm: &'a LayerNorm<'a>,
    rows: std::ops::Range<usize>,
    out: Shared<f32>,
    out_ld: usize,
    bytes: Option<Target<'a>>,
}

impl Kernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let LayerNorm { x, x_ld, residual, affine, .. } = self.norm;
        let h = affine.gamma.len();
        for row in self.rows {
            // SAFETY: the extents were compared with the slices; the row is this task's alone.
            unsafe {
                let x = x.as_ptr().add(row * x_ld);
                let out = self.out.at(row * self.out_ld);
                let sum = match residual {
                    Some((r, ld)) => {
                        gather(s, out, h, [Term::F32(x), Term::F32(r.as_ptr().add(row * ld))])
                    }
                    None => gather(s, out, h, [Term::F32(x)]),
                };
                affine.normalise(s, out, sum);
                if let Some(bytes) = &self.bytes {
                    bytes.row(s, row, out, h);
                }
            }
        }
    }
}
