//! Numbers as small integers: what TensorFlow calls `MIN_FIRST`, as far as int8 graphs of BERT use it.
//!
//! A range of real numbers is divided into as many even steps as the integer type has values, and
//! zero is always one of the steps. Rounding and the order of operations are TensorFlow's: where two
//! results differ, the difference is a whole step, so a sum in another order would show.

/// The ends of a range of real numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The lower end.
    pub least: f32,
    /// The upper end.
    pub most: f32,
}

impl Range {
    /// The range with zero in it, and wide enough that steps differ: what numbers are quantized to
    /// when this one is asked for.
    pub fn widened(self) -> Self {
        /// The part of the largest number that a range covers at least.
        const LEAST: f32 = 100.0;
        let least = self.least.min(0.0);
        let apart = self.least.abs().max(self.most.abs()).max(1.0) / LEAST;
        Self { least, most: self.most.max(least + apart).max(0.0) }
    }

    /// The range of `i32` sums of products, `a` in `u8` and `b` in `i8` from -127 to 127.
    pub fn of_product(a: Self, b: Self) -> Self {
        let step = (a.most - a.least) / 255.0 * ((b.most - b.least) / 254.0);
        Self { least: step * i32::MIN as f32, most: step * i32::MAX as f32 }
    }

    /// The larger of the absolute values.
    fn reach(self) -> f32 {
        self.least.abs().max(self.most.abs())
    }
}

/// An integer type that numbers are quantized to.
pub trait Step: Copy {
    /// The integer that stands for the lower end.
    const LOWEST: f32;
    /// The integer that stands for the upper end.
    const HIGHEST: f32;
    /// Number of values, less one.
    const STEPS: f64;
    /// As a real number.
    fn to_f32(self) -> f32;
    /// From a whole number; beyond the type, the nearest.
    fn from_f32(value: f32) -> Self;
}

macro_rules! steps {
    ($($t:ty),*) => {$(
        impl Step for $t {
            const LOWEST: f32 = <$t>::MIN as f32;
            const HIGHEST: f32 = <$t>::MAX as f32;
            const STEPS: f64 = <$t>::MAX as f64 - <$t>::MIN as f64;

            fn to_f32(self) -> f32 {
                self as f32
            }

            fn from_f32(value: f32) -> Self {
                value as $t
            }
        }
    )*};
}

steps!(u8, i8, i32);

/// From real numbers to steps of a range.
struct Quantizer {
    per_unit: f32,
    offset: f32,
}

impl Quantizer {
    fn new<T: Step>(range: Range) -> Self {
        let width = range.most - range.least;
        let per_unit = if width == 0.0 { 0.0 } else { (T::STEPS / f64::from(width)) as f32 };
        Self { per_unit, offset: (range.least * per_unit).round() - T::LOWEST }
    }

    fn apply<T: Step>(&self, x: f32) -> T {
        T::from_f32(((x * self.per_unit).round() - self.offset).clamp(T::LOWEST, T::HIGHEST))
    }
}

/// From steps of a range to real numbers.
struct Dequantizer {
    step: f32,
    offset: f32,
}

impl Dequantizer {
    fn new<T: Step>(range: Range) -> Self {
        let step = (f64::from(range.most - range.least) / T::STEPS) as f32;
        let width = range.most - range.least;
        let least = if width == 0.0 { range.least } else { (range.least / step).round() * step };
        Self { step, offset: least - T::LOWEST * step }
    }

    fn apply<T: Step>(&self, q: T) -> f32 {
        self.offset + q.to_f32() * self.step
    }
}

/// `out[i]` is the step of `range` that is nearest to `x[i]`.
pub fn quantize_f32<T: Step>(x: &[f32], range: Range, out: &mut [T]) {
    assert_eq!(x.len(), out.len(), "a step for every number");
    let quantizer = Quantizer::new::<T>(range);
    for (out, &x) in out.iter_mut().zip(x) {
        *out = quantizer.apply(x);
    }
}

/// The number that each step of `range` stands for.
pub fn dequantize_f32<T: Step>(q: &[T], range: Range, out: &mut [f32]) {
    assert_eq!(q.len(), out.len(), "a number for every step");
    let dequantizer = Dequantizer::new::<T>(range);
    for (out, &q) in out.iter_mut().zip(q) {
        *out = dequantizer.apply(q);
    }
}

/// Steps of the range `from` as steps of the range `to`.
pub fn requantize<S: Step, T: Step>(q: &[S], from: Range, to: Range, out: &mut [T]) {
    assert_eq!(q.len(), out.len(), "a step for every step");
    let dequantizer = Dequantizer::new::<S>(from);
    let quantizer = Quantizer::new::<T>(to);
    for (out, &q) in out.iter_mut().zip(q) {
        *out = quantizer.apply(dequantizer.apply(q));
    }
}

/// A product of quantized matrices: `a: [m, k]  w: [k, n]  bias: [n]`.
#[derive(Clone, Copy, Debug)]
pub struct QuantizedLinear<'a> {
    /// Steps of `range_a`, of which the first stands for its lower end.
    pub a: &'a [u8],
    /// Steps of `range_w`, of which zero stands for zero.
    pub w: &'a [i8],
    /// Real numbers.
    pub bias: &'a [f32],
    /// What `a` stands for.
    pub range_a: Range,
    /// What `w` stands for.
    pub range_w: Range,
    /// Columns.
    pub n: usize,
    /// Length of the sums.
    pub k: usize,
}

/// `out = a w + bias` in steps of [`Range::of_product`]. `out: [m, n]`
///
/// The sums are exact; bias and the share of `a`'s lower end are added to each as real numbers.
pub fn quantized_linear(operands: &QuantizedLinear<'_>, out: &mut [i32]) {
    let &QuantizedLinear { a, w, bias, range_a, range_w, n, k } = operands;
    assert_eq!((w.len(), bias.len()), (k * n, n), "w is [k, n], bias [n]");
    assert_eq!(a.len().checked_mul(n), out.len().checked_mul(k), "a is [m, k], out [m, n]");
    let width = range_a.most - range_a.least;
    let least = 255.0 * range_a.least / width;
    let per_unit = (255.0 * 127.0 / f64::from(width * range_w.reach())) as f32;
    for column in 0..n {
        let sum: i64 = w.iter().skip(column).step_by(n).map(|&w| i64::from(w)).sum();
        let added = bias[column] * per_unit + sum as f32 * least;
        for row in 0..out.len() / n {
            let a = &a[row * k..][..k];
            let w = w.iter().skip(column).step_by(n);
            let sum: i64 = a.iter().zip(w).map(|(&a, &w)| i64::from(a) * i64::from(w)).sum();
            out[row * n + column] = (sum as f32 + added).round_ties_even() as i32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: Range = Range { least: -1.0, most: 3.0 };

    #[test]
    fn ranges_hold_zero_and_are_not_empty() {
        let widened = |least, most| Range { least, most }.widened();
        assert_eq!(widened(-1.0, 3.0), RANGE);
        assert_eq!(widened(1.0, 2.0), Range { least: 0.0, most: 2.0 });
        assert_eq!(widened(0.0, 0.0), Range { least: 0.0, most: 0.01 });
        assert_eq!(widened(-200.0, -199.0), Range { least: -200.0, most: 0.0 });
    }

    #[test]
    fn zero_survives_and_the_rest_is_near() {
        let x = [-1.0, -0.5, 0.0, 0.001, 1.7, 3.0, 9.0, -9.0];
        let (mut u, mut i) = ([0u8; 8], [0i8; 8]);
        quantize_f32(&x, RANGE, &mut u);
        quantize_f32(&x, RANGE, &mut i);
        assert_eq!(u, [0, 32, 64, 64, 172, 255, 255, 0]);
        assert!(u.iter().zip(&i).all(|(&u, &i)| i32::from(u) - 128 == i32::from(i)));
        let mut back = [0f32; 8];
        dequantize_f32(&u, RANGE, &mut back);
        assert_eq!(back[2], 0.0);
        let step = 4.0 / 255.0;
        assert!(x[..6].iter().zip(&back).all(|(x, back)| (x - back).abs() <= step));
        let signed = back;
        dequantize_f32(&i, RANGE, &mut back);
        assert!(signed.iter().zip(&back).all(|(a, b)| (a - b).abs() < 1e-6));
    }

    #[test]
    fn a_product_is_that_of_the_numbers() {
        // a: [2, 3]  w: [3, 2]
        let a = [0.5, -1.0, 3.0, 0.0, 2.25, 1.0];
        let w = [0.5, -0.25, 1.0, 0.75, -1.0, 0.125];
        let bias = [0.5, -2.0];
        let range_w = Range { least: -1.0, most: 1.0 };
        let mut qa = [0u8; 6];
        quantize_f32(&a, RANGE, &mut qa);
        let qw = w.map(|w: f32| (w * 127.0).round() as i8);
        let operands =
            QuantizedLinear { a: &qa, w: &qw, bias: &bias, range_a: RANGE, range_w, n: 2, k: 3 };
        let mut product = [0i32; 4];
        quantized_linear(&operands, &mut product);
        let range = Range::of_product(RANGE, range_w);
        let mut found = [0f32; 4];
        dequantize_f32(&product, range, &mut found);
        let wanted = [-3.25, -2.5, 1.75, -0.1875];
        for (found, wanted) in found.iter().zip(wanted) {
            assert!((found - wanted).abs() < 0.05, "{found} {wanted}");
        }
        // In eight bits again.
        let to = Range { least: -4.0, most: 4.0 };
        let mut narrow = [0i8; 4];
        requantize(&product, range, to, &mut narrow);
        dequantize_f32(&narrow, to, &mut found);
        for (found, wanted) in found.iter().zip(wanted) {
            assert!((found - wanted).abs() < 0.08, "{found} {wanted}");
        }
    }

    #[test]
    fn senseless_ranges_do_no_harm() {
        for (least, most) in [(0.0, 0.0), (f32::NAN, 1.0), (f32::NEG_INFINITY, f32::INFINITY)] {
            let range = Range { least, most };
            let mut q = [0u8; 2];
            quantize_f32(&[1.0, f32::NAN], range, &mut q);
            let mut wide = [0i32; 2];
            let operands = QuantizedLinear {
                a: &q,
                w: &[1, 2],
                bias: &[0.0],
                range_a: range,
                range_w: range,
                n: 1,
                k: 2,
            };
            quantized_linear(&operands, &mut wide[..1]);
            requantize(&wide, range, range, &mut q);
        }
        let none = QuantizedLinear {
            a: &[],
            w: &[],
            bias: &[],
            range_a: RANGE,
            range_w: RANGE,
            n: 0,
            k: 0,
        };
        quantized_linear(&none, &mut []);
    }
}
