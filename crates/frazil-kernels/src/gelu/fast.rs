//! The derivative of GELU over rows with the vectors of the CPU at hand.

use std::ops::Range;

use crate::cpu::Isa;
use crate::math;
use crate::par::Pool;
use crate::rows::{Shared, covers, share_out};
use crate::simd::{Kernel, Simd, dispatch};

/// Which of the two formulas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// With tanh, as Google's BERT computes it.
    Tanh,
    /// As defined, with the error function.
    Erf,
}

/// What a gradient is computed from, row by row.
#[derive(Clone, Copy, Debug)]
pub struct Slopes<'a> {
    /// Rows and columns.
    pub extents: [usize; 2],
    /// `[rows, ld]` and its `ld`: what GELU was computed of.
    pub x: (&'a [f32], usize),
    /// `[rows, ld]` and its `ld`: the gradient of GELU's output.
    pub dy: (&'a [f32], usize),
}

/// `dx = dy · gelu'(x)`: `dx: [rows, dx_ld]`.
///
/// # Panics
/// If a slice is too short.
pub fn gelu_grad_f32(
    pool: &Pool,
    isa: Isa,
    form: Form,
    slopes: &Slopes<'_>,
    dx: &mut [f32],
    dx_ld: usize,
) {
    let [rows, columns] = slopes.extents;
    for (x, ld) in [slopes.x, slopes.dy, (&*dx, dx_ld)] {
        assert!(covers(x.len(), rows, ld, columns), "x, dy and dx are [{rows}, {columns}]");
    }
    let dx = Shared::new(dx);
    share_out(pool, rows, columns, &|rows| {
        dispatch(isa, Rows { form, slopes, rows, dx, dx_ld });
    });
}

struct Rows<'a> {
    form: Form,
    slopes: &'a Slopes<'a>,
    rows: Range<usize>,
    dx: Shared<f32>,
    dx_ld: usize,
}

impl Kernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { form, slopes, rows, dx, dx_ld } = self;
        let columns = slopes.extents[1];
        let (x, dy) = (slopes.x, slopes.dy);
        macro_rules! each {
            ($slope:path) => {
                for row in rows {
                    // SAFETY: the extents were compared with the slices; the row is this task's
                    // alone.
                    unsafe {
                        let (x, dy) = (x.0.as_ptr().add(row * x.1), dy.0.as_ptr().add(row * dy.1));
                        let dx = dx.at(row * dx_ld);
                        let whole = columns / S::LANES * S::LANES;
                        for c in (0..whole).step_by(S::LANES) {
                            let slope = $slope(s, s.load(x.add(c)));
                            s.store(dx.add(c), s.mul(s.load(dy.add(c)), slope));
                        }
                        if whole < columns {
                            let rest = columns - whole;
                            let slope = $slope(s, s.load_first(x.add(whole), rest));
                            let dy = s.load_first(dy.add(whole), rest);
                            s.store_first(dx.add(whole), s.mul(dy, slope), rest);
                        }
                    }
                }
            };
        }
        match form {
            Form::Tanh => each!(math::gelu_tanh_slope),
            Form::Erf => each!(math::gelu_erf_slope),
        }
    }
}
