//! Functions of single numbers, sums, and biases over slices of `f32`, with the vectors of the CPU at
//! hand. Where a matrix product comes before, its epilogue does this on the way; the general forms
//! for all types and shapes are in [`elementwise`](crate::elementwise).

use crate::cpu::Isa;
use crate::math;
use crate::par::Pool;
use crate::rows::{Shared, covers, share_out};
use crate::simd::{Kernel, Simd, dispatch};

/// A function of one number, as accurate as [`math`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// `e^x`
    Exp,
    /// The hyperbolic tangent.
    Tanh,
    /// The error function.
    Erf,
    /// GELU as Google's `modeling.py` has it.
    GeluTanh,
    /// GELU as defined.
    GeluErf,
    /// `max(x, 0)`
    Relu,
}

/// `out[i] = f(x[i])`
pub fn map_f32(pool: &Pool, isa: Isa, function: Function, x: &[f32], out: &mut [f32]) {
    assert_eq!(x.len(), out.len(), "one output for each input");
    let to = Shared::new(out);
    share_out(pool, x.len().div_ceil(LINE), LINE, &|lines| {
        let range = lines.start * LINE..x.len().min(lines.end * LINE);
        let to = to.at(range.start);
        dispatch(isa, Map { function, x: &x[range], to });
    });
}

/// The same of rows that are apart: `x: [rows, x_ld]  out: [rows, out_ld]`.
///
/// # Panics
/// If a slice is too short.
pub fn map_rows_f32(
    pool: &Pool,
    isa: Isa,
    function: Function,
    [rows, columns]: [usize; 2],
    (x, x_ld): (&[f32], usize),
    (out, out_ld): (&mut [f32], usize),
) {
    assert!(covers(x.len(), rows, x_ld, columns), "x is [{rows}, {columns}]");
    assert!(covers(out.len(), rows, out_ld, columns), "out is [{rows}, {columns}]");
    let to = Shared::new(out);
    share_out(pool, rows, columns, &|rows| {
        for row in rows {
            let (x, to) = (&x[row * x_ld..][..columns], to.at(row * out_ld));
            dispatch(isa, Map { function, x, to });
        }
    });
}

/// `out = a + b`, row by row: each is `[rows, ld]`, with its `ld`.
///
/// # Panics
/// If a slice is too short.
pub fn add_rows_f32(
    pool: &Pool,
    isa: Isa,
    [rows, columns]: [usize; 2],
    (a, a_ld): (&[f32], usize),
    (b, b_ld): (&[f32], usize),
    (out, out_ld): (&mut [f32], usize),
) {
    for (x, ld) in [(a, a_ld), (b, b_ld), (&*out, out_ld)] {
        assert!(covers(x.len(), rows, ld, columns), "all are [{rows}, {columns}]");
    }
    let to = Shared::new(out);
    share_out(pool, rows, columns, &|rows| {
        for row in rows {
            let (a, b) = (&a[row * a_ld..][..columns], &b[row * b_ld..][..columns]);
            dispatch(isa, Add { a, b, to: to.at(row * out_ld) });
        }
    });
}

/// `out[i] = a[i] + b[i]`
pub fn add_f32(pool: &Pool, isa: Isa, a: &[f32], b: &[f32], out: &mut [f32]) {
    assert_eq!(a.len(), out.len(), "one output for each input");
    assert_eq!(b.len(), out.len(), "one output for each input");
    let to = Shared::new(out);
    share_out(pool, a.len().div_ceil(LINE), LINE, &|lines| {
        let range = lines.start * LINE..a.len().min(lines.end * LINE);
        let to = to.at(range.start);
        dispatch(isa, Add { a: &a[range.clone()], b: &b[range], to });
    });
}

/// `out = x + bias` for each row: `x, out: [rows, n]  bias: [n]`.
pub fn bias_f32(pool: &Pool, isa: Isa, x: &[f32], bias: &[f32], out: &mut [f32]) {
    assert_eq!(x.len(), out.len(), "one output for each input");
    let n = bias.len();
    if n == 0 {
        return;
    }
    assert_eq!(x.len() % n, 0, "whole rows");
    let to = Shared::new(out);
    share_out(pool, x.len() / n, n, &|rows| {
        for row in rows {
            dispatch(isa, Add { a: &x[row * n..][..n], b: bias, to: to.at(row * n) });
        }
    });
}

/// Slices are shared out in parts of this length: a multiple of every vector and of a cache line.
const LINE: usize = 64;

struct Map<'a> {
    function: Function,
    x: &'a [f32],
    /// As many numbers as `x`.
    to: *mut f32,
}

impl Kernel for Map<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { function, x, to } = self;
        macro_rules! each {
            ($function:path) => {{
                let whole = x.len() / S::LANES * S::LANES;
                // SAFETY: as many numbers can be written as there are to read.
                unsafe {
                    for i in (0..whole).step_by(S::LANES) {
                        s.store(to.add(i), $function(s, s.load(x.as_ptr().add(i))));
                    }
                    if whole < x.len() {
                        let rest = x.len() - whole;
                        let y = $function(s, s.load_first(x.as_ptr().add(whole), rest));
                        s.store_first(to.add(whole), y, rest);
                    }
                }
            }};
        }
        match function {
            Function::Exp => each!(math::exp),
            Function::Tanh => each!(math::tanh),
            Function::Erf => each!(math::erf),
            Function::GeluTanh => each!(math::gelu_tanh),
            Function::GeluErf => each!(math::gelu_erf),
            Function::Relu => each!(relu),
        }
    }
}

/// `max(x, 0)`; the constant comes first, so that what is not a number passes through.
#[inline(always)]
fn relu<S: Simd>(s: S, x: S::F32) -> S::F32 {
    s.max(s.splat(0.0), x)
}

struct Add<'a> {
    a: &'a [f32],
    b: &'a [f32],
    /// As many numbers as `a`.
    to: *mut f32,
}

impl Kernel for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { a, b, to } = self;
        let n = a.len();
        assert_eq!(n, b.len(), "two numbers for each sum");
        let whole = n / S::LANES * S::LANES;
        let (a, b) = (a.as_ptr(), b.as_ptr());
        // SAFETY: as many numbers can be written as there are to read.
        unsafe {
            for i in (0..whole).step_by(S::LANES) {
                s.store(to.add(i), s.add(s.load(a.add(i)), s.load(b.add(i))));
            }
            if whole < n {
                let rest = n - whole;
                let sum = s.add(s.load_first(a.add(whole), rest), s.load_first(b.add(whole), rest));
                s.store_first(to.add(whole), sum, rest);
            }
        }
    }
}
