//! Many elements become one: sums, means, extremes, products, over any set of axes.
//!
//! Elements are always taken in row-major order, so the same input gives the same bits. Sums of
//! floating-point numbers are kept in `f64`.

use crate::layout::strides;
use crate::number::Number;

/// Which elements of the input make up one element of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reduction {
    kept: Vec<Axis>,
    reduced: Vec<Axis>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Axis {
    dim: usize,
    stride: usize,
}

impl Reduction {
    /// Over the axes of `dims` for which `reduced` is true.
    pub fn new(dims: &[usize], reduced: &[bool]) -> Self {
        assert_eq!(dims.len(), reduced.len(), "every axis is kept or reduced");
        let mut plan = Self { kept: Vec::new(), reduced: Vec::new() };
        for ((&dim, stride), &reduce) in dims.iter().zip(strides(dims)).zip(reduced) {
            let axes = if reduce { &mut plan.reduced } else { &mut plan.kept };
            match axes.last_mut() {
                // Lies inside the one before: walk them as one.
                Some(outer) if outer.stride == dim * stride => {
                    *outer = Axis { dim: outer.dim * dim, stride };
                }
                _ => axes.push(Axis { dim, stride }),
            }
        }
        plan
    }

    /// Number of elements of the output.
    pub fn outputs(&self) -> usize {
        self.kept.iter().map(|axis| axis.dim).product()
    }

    /// Number of elements that make up one.
    pub fn count(&self) -> usize {
        self.reduced.iter().map(|axis| axis.dim).product()
    }

    fn inputs(&self) -> usize {
        self.outputs() * self.count()
    }

    /// `out = finish(fold(start, f))` for every output.
    fn fold<T: Copy, S: Copy, O>(
        &self,
        x: &[T],
        out: &mut [O],
        start: S,
        f: impl Fn(S, T) -> S,
        finish: impl Fn(S) -> O,
    ) {
        assert_eq!(x.len(), self.inputs(), "the input has the extents of the plan");
        assert_eq!(out.len(), self.outputs(), "the output has the extents that are kept");
        let (inner, outer) = match self.reduced.split_last() {
            Some((inner, outer)) => (*inner, outer),
            None => (Axis { dim: 1, stride: 1 }, &[][..]),
        };
        let rows: usize = outer.iter().map(|axis| axis.dim).product();
        for (o, out) in out.iter_mut().enumerate() {
            let base = offset(&self.kept, o);
            let mut folded = start;
            for row in 0..if inner.dim == 0 { 0 } else { rows } {
                let elements = x[base + offset(outer, row)..].iter().step_by(inner.stride.max(1));
                folded = elements.take(inner.dim).fold(folded, |folded, &x| f(folded, x));
            }
            *out = finish(folded);
        }
    }
}

/// Where the `i`-th combination of positions on `axes` lies.
fn offset(axes: &[Axis], mut i: usize) -> usize {
    let mut offset = 0;
    for axis in axes.iter().rev() {
        offset += i % axis.dim * axis.stride;
        i /= axis.dim;
    }
    offset
}

/// The sum; 0 for none.
pub fn sum<T: Number>(x: &[T], out: &mut [T], plan: &Reduction) {
    plan.fold(x, out, T::Sum::default(), |sum, x| sum.add(x.widen()), T::narrow);
}

/// The mean; integers are cut towards zero. The mean of nothing is not-a-number (integers: 0).
pub fn mean<T: Number>(x: &[T], out: &mut [T], plan: &Reduction) {
    let count = T::Sum::from_usize(plan.count());
    let add = |sum: T::Sum, x: T| sum.add(x.widen());
    plan.fold(x, out, T::Sum::default(), add, |sum| T::narrow(sum.div(count)));
}

/// The product; 1 for none.
pub fn prod<T: Number>(x: &[T], out: &mut [T], plan: &Reduction) {
    plan.fold(x, out, T::Sum::ONE, |product, x| product.mul(x.widen()), T::narrow);
}

/// The largest; the lowest number there is for none.
pub fn max<T: Number>(x: &[T], out: &mut [T], plan: &Reduction) {
    plan.fold(x, out, T::LOWEST, T::maximum, |x| x);
}

/// The smallest; the highest number there is for none.
pub fn min<T: Number>(x: &[T], out: &mut [T], plan: &Reduction) {
    plan.fold(x, out, T::HIGHEST, T::minimum, |x| x);
}

/// Whether all are true.
pub fn all(x: &[u8], out: &mut [u8], plan: &Reduction) {
    plan.fold(x, out, true, |all, x| all && x != 0, u8::from);
}

/// Whether one is true.
pub fn any(x: &[u8], out: &mut [u8], plan: &Reduction) {
    plan.fold(x, out, false, |any, x| any || x != 0, u8::from);
}

/// Where the largest element of an axis is; the first one of several.
/// `x: [outer, axis, inner]  out: [outer, inner]`, and the axis is not empty.
pub fn argmax<T: Number>(x: &[T], out: &mut [i64], axis: usize, inner: usize) {
    arg(x, out, axis, inner, |new, best| new > best);
}

/// Where the smallest element of an axis is; the first one of several. As [`argmax`].
pub fn argmin<T: Number>(x: &[T], out: &mut [i64], axis: usize, inner: usize) {
    arg(x, out, axis, inner, |new, best| new < best);
}

fn arg<T: Number>(
    x: &[T],
    out: &mut [i64],
    axis: usize,
    inner: usize,
    better: impl Fn(T, T) -> bool,
) {
    assert_eq!(x.len(), out.len() * axis, "out is x without the axis");
    for (o, out) in out.iter_mut().enumerate() {
        let base = o / inner * axis * inner + o % inner;
        let mut best = 0;
        for i in 1..axis {
            if better(x[base + i * inner], x[base + best * inner]) {
                best = i;
            }
        }
        *out = best as i64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: [f32; 12] = [1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12.]; // [2, 3, 2]

    fn reduced<const N: usize>(
        kernel: fn(&[f32], &mut [f32], &Reduction),
        axes: [bool; 3],
    ) -> [f32; N] {
        let mut out = [f32::NAN; N];
        kernel(&X, &mut out, &Reduction::new(&[2, 3, 2], &axes));
        out
    }

    #[test]
    fn sums_over_every_set_of_axes() {
        assert_eq!(reduced(sum, [false, false, false]), X);
        assert_eq!(reduced(sum, [false, false, true]), [3., 7., 11., 15., 19., 23.]);
        assert_eq!(reduced(sum, [false, true, false]), [9., 12., 27., 30.]);
        assert_eq!(reduced(sum, [true, false, false]), [8., 10., 12., 14., 16., 18.]);
        assert_eq!(reduced(sum, [false, true, true]), [21., 57.]);
        assert_eq!(reduced(sum, [true, false, true]), [18., 26., 34.]);
        assert_eq!(reduced(sum, [true, true, false]), [36., 42.]);
        assert_eq!(reduced(sum, [true, true, true]), [78.]);
    }

    #[test]
    fn the_other_kinds() {
        assert_eq!(reduced(mean, [false, true, true]), [3.5, 9.5]);
        assert_eq!(reduced(max, [true, false, true]), [8., 10., 12.]);
        assert_eq!(reduced(min, [true, false, true]), [1., 3., 5.]);
        assert_eq!(reduced(prod, [true, false, false]), [7., 16., 27., 40., 55., 72.]);
        let mut out = [9u8; 2];
        let rows = Reduction::new(&[2, 2], &[false, true]);
        all(&[1, 1, 0, 1], &mut out, &rows);
        assert_eq!(out, [1, 0]);
        any(&[0, 0, 0, 2], &mut out, &rows);
        assert_eq!(out, [0, 1]);
        let mut whole = [0];
        mean(&[1, 2, 4], &mut whole, &Reduction::new(&[3], &[true]));
        assert_eq!(whole, [2]);
    }

    #[test]
    fn nothing_and_scalars() {
        let none = Reduction::new(&[2, 0], &[false, true]);
        let mut out = [9.0f32; 2];
        sum(&[], &mut out, &none);
        assert_eq!(out, [0.0, 0.0]);
        max(&[], &mut out, &none);
        assert_eq!(out, [f32::NEG_INFINITY; 2]);
        mean(&[], &mut out, &none);
        assert!(out[0].is_nan());
        let mut no_outputs: [f32; 0] = [];
        sum(&[], &mut no_outputs, &Reduction::new(&[0, 3], &[false, true]));
        let mut one = [0.0f32];
        sum(&[5.0], &mut one, &Reduction::new(&[], &[]));
        assert_eq!(one, [5.0]);
    }

    #[test]
    fn small_terms_are_not_lost() {
        let mut x = vec![1e-4f32; 100_001];
        x[0] = 1e4;
        let mut out = [0.0];
        sum(&x, &mut out, &Reduction::new(&[100_001], &[true]));
        assert_eq!(out, [1e4 + 10.0]);
    }

    #[test]
    fn arg_takes_the_first() {
        let x = [1, 5, 5, 7, 0, 7]; // [2, 3]
        let mut rows = [9; 2];
        argmax(&x, &mut rows, 3, 1);
        assert_eq!(rows, [1, 0]);
        argmin(&x, &mut rows, 3, 1);
        assert_eq!(rows, [0, 1]);
        let mut columns = [9; 3];
        argmax(&x, &mut columns, 2, 3);
        assert_eq!(columns, [1, 0, 1]);
    }
}
