//! `exp`, `tanh`, `erf` and GELU of whole vectors, with stated accuracy.
//!
//! Functions of one vector that a kernel inlines where it has the numbers in registers; over slices
//! they are in `activation`. The constants are minimax fits of ours, rounded
//! to `f32` one by one. What each promises is tested on every instruction set below.

mod tables;

use std::f32::consts::{FRAC_1_SQRT_2, LN_2};

use crate::simd::Simd;

/// Adding it to a number of less than 2²² leaves the nearest integer in the low bits.
const TO_INTEGER: f32 = 12_582_912.0;

/// `2^r` for |r| ≤ ½ without the leading 1, lowest power first: 3e-9 relative.
const EXP2: [f32; 6] =
    [LN_2, 0.240_226_48, 0.055_503_592, 0.009_618_498, 0.001_339_118_7, 1.532_998e-4];

/// `e^r` for |r| ≤ ½ ln 2 without the leading 1: 3e-9 relative.
const EXP: [f32; 6] =
    [1.0, 0.499_999_94, 0.166_665_21, 0.041_668_29, 0.008_368_701, 0.001_381_890_7];

/// `tanh x = x · TANH.0(x²) / TANH.1(x²)` for |x| ≤ 9.02: 2e-8 relative before rounding.
const TANH: ([f32; 5], [f32; 5]) = (
    [1.0, 0.133_797_18, 0.003_494_034_3, 2.058_347_7e-5, 1.331_906_8e-8],
    [1.0, 0.467_130_33, 0.025_871_072, 3.283_092_5e-4, 7.762_018e-7],
);

/// `erf x = x · ERF.0(x²) / ERF.1(x²)` for |x| ≤ 3.95: 2e-8 relative before rounding.
#[allow(clippy::approx_constant, reason = "2/√π rounded the other way, which suits the fit")]
const ERF: ([f32; 6], [f32; 6]) = (
    [1.128_379_1, 0.191_550_55, 0.052_875_48, 0.003_808_173, 2.846_882_6e-4, 2.025_909_7e-6],
    [1.0, 0.503_089_9, 0.114_559_725, 0.015_055_113, 0.001_170_729_2, 3.783_184_7e-5],
);

/// `-log₂(Φ(x) / Φ(-x)) / x` as a polynomial in x² for |x| ≤ 5.6, where Φ is the normal
/// distribution: weighted so that `x · Φ(x)` is off by at most 5e-8.
const NORMAL: [f32; 8] = [
    -2.302_212_5,
    -0.104_824_72,
    8.384_987e-5,
    1.638_255_6e-4,
    -1.229_252e-5,
    4.670_246_5e-7,
    -9.103_779e-9,
    7.049_879e-11,
];

/// `c[0] + c[1] x + c[2] x² + …`
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(s: S, x: S::F32, c: &[f32; N]) -> S::F32 {
    let mut sum = s.splat(c[N - 1]);
    for i in (0..N - 1).rev() {
        sum = s.fma(sum, x, s.splat(c[i]));
    }
    sum
}

/// `1 + x · (c[0] + c[1] x + …)`, in pairs, so that fewer steps wait for each other.
#[inline(always)]
fn one_plus<S: Simd>(s: S, x: S::F32, c: &[f32; 6]) -> S::F32 {
    let square = s.mul(x, x);
    let low = s.fma(x, s.splat(c[1]), s.splat(c[0]));
    let middle = s.fma(x, s.splat(c[3]), s.splat(c[2]));
    let high = s.fma(x, s.splat(c[5]), s.splat(c[4]));
    let rest = s.fma(s.fma(high, square, middle), square, low);
    s.fma(rest, x, s.splat(1.0))
}

/// `e^x` within 2 units in the last place; infinite above 88.722, 0 where the result is below the
/// smallest normal number.
#[inline(always)]
pub fn exp<S: Simd>(s: S, x: S::F32) -> S::F32 {
    // x = n·ln 2 + r; ln 2 in two parts, the first one with so few bits that n times it is exact.
    let n = s.round(s.mul(x, s.splat(std::f32::consts::LOG2_E)));
    let r = s.fnma(n, s.splat(0.693_145_75), x);
    let r = s.fnma(n, s.splat(1.428_606_8e-6), r);
    // e^r is in [0.7, 1.42]: adding n to its exponent reaches exactly the normal numbers.
    let power = s.add_i32(s.bits(one_plus(s, r, &EXP)), s.shl_i32::<23>(s.to_i32(n)));
    let power = s.select(s.lt(s.splat(88.722_84), x), s.splat(f32::INFINITY), s.of_bits(power));
    s.select(s.lt(x, s.splat(-87.336_54)), s.splat(0.0), power)
}

/// `2^x` for x < 127 within 2 units in the last place; 0 below -126.
#[inline(always)]
pub fn exp2<S: Simd>(s: S, x: S::F32) -> S::F32 {
    s.select(s.lt(x, s.splat(-126.0)), s.splat(0.0), exp2_between(s, x))
}

/// `2^x` for x < 127 within 2 units in the last place; `2^-126` below, which is as good as 0 for a
/// weight among weights, and cheaper.
#[inline(always)]
pub fn exp2_nearly<S: Simd>(s: S, x: S::F32) -> S::F32 {
    exp2_between(s, s.max(s.splat(-126.0), x))
}

/// `2^x` for -126 ≤ x < 127.
#[inline(always)]
fn exp2_between<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let shifted = s.add(x, s.splat(TO_INTEGER));
    let r = s.sub(x, s.sub(shifted, s.splat(TO_INTEGER)));
    // The integer stands in the low bits of `shifted`; what is above them is shifted out.
    let exponent = s.shl_i32::<23>(s.bits(shifted));
    s.of_bits(s.add_i32(s.bits(one_plus(s, r, &EXP2)), exponent))
}

/// `tanh x` within 4e-7, also relative to a small x.
#[inline(always)]
pub fn tanh<S: Simd>(s: S, x: S::F32) -> S::F32 {
    odd_ratio(s, x, 9.02, &TANH.0, &TANH.1)
}

/// `erf x` within 4e-7, also relative to a small x.
#[inline(always)]
pub fn erf<S: Simd>(s: S, x: S::F32) -> S::F32 {
    odd_ratio(s, x, 3.95, &ERF.0, &ERF.1)
}

/// `x · p(x²) / q(x²)` with x held within the limit and the result within ±1.
#[inline(always)]
fn odd_ratio<S: Simd, const P: usize, const Q: usize>(
    s: S,
    x: S::F32,
    limit: f32,
    p: &[f32; P],
    q: &[f32; Q],
) -> S::F32 {
    // The constant comes first: what is not a number passes through.
    let x = s.max(s.splat(-limit), s.min(s.splat(limit), x));
    let square = s.mul(x, x);
    let ratio = s.div(s.mul(x, polynomial(s, square, p)), polynomial(s, square, q));
    s.max(s.splat(-1.0), s.min(s.splat(1.0), ratio))
}

/// `x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))` within 3e-7 · max(1, |x|).
#[inline(always)]
pub fn gelu_tanh<S: Simd>(s: S, x: S::F32) -> S::F32 {
    if S::LOOKUP {
        return tables::gelu(s, x, &tables::BY_TANH);
    }
    // (1 + tanh u) / 2 = 1 / (1 + e^-2u): no cancellation anywhere. Factors of x and x³ for base 2.
    const LINEAR: f32 = -2.302_208_2;
    const CUBIC: f32 = -0.102_943_24;
    let x = s.max(s.splat(LOWEST), x);
    let slope = s.fma(s.mul(x, x), s.splat(CUBIC), s.splat(LINEAR));
    s.mul(x, logistic2(s, s.mul(x, slope)))
}

/// `x/2 · (1 + erf(x / √2))` within 3e-7 · max(1, |x|).
#[inline(always)]
pub fn gelu_erf<S: Simd>(s: S, x: S::F32) -> S::F32 {
    if S::LOOKUP {
        return tables::gelu(s, x, &tables::BY_ERF);
    }
    // Φ(x) = 1 / (1 + Φ(-x)/Φ(x)), and the logarithm of that ratio is close to a line.
    let x = s.max(s.splat(LOWEST), x);
    let square = s.min(s.splat(32.0), s.mul(x, x));
    // In pairs, so that fewer steps wait for each other.
    let c = &NORMAL;
    let fourth = s.mul(square, square);
    let a = s.fma(square, s.splat(c[1]), s.splat(c[0]));
    let b = s.fma(square, s.splat(c[3]), s.splat(c[2]));
    let d = s.fma(square, s.splat(c[5]), s.splat(c[4]));
    let e = s.fma(square, s.splat(c[7]), s.splat(c[6]));
    let (low, high) = (s.fma(b, fourth, a), s.fma(e, fourth, d));
    let slope = s.fma(high, s.mul(fourth, fourth), low);
    s.mul(x, logistic2(s, s.mul(x, slope)))
}

/// The derivative of [`gelu_tanh`], within 1e-6.
#[inline(always)]
pub fn gelu_tanh_slope<S: Simd>(s: S, x: S::F32) -> S::F32 {
    // With q = (1 + tanh u) / 2 = 1 / (1 + e^-2u): q + x · 2 q (1 - q) · u'.
    const LINEAR: f32 = -2.302_208_2;
    const CUBIC: f32 = -0.102_943_24;
    // 2 √(2/π), and three times 0.044715 of it.
    const SLOPE: f32 = 1.595_769;
    const BEND: f32 = 0.214_064_45;
    let x = s.max(s.splat(LOWEST), s.min(s.splat(-LOWEST), x));
    let square = s.mul(x, x);
    // Of q and 1 - q the smaller one, which is exact: at the ends it is multiplied by x³.
    let (zero, one) = (s.splat(0.0), s.splat(1.0));
    let below = s.sub(zero, s.abs(x));
    let small = logistic2(s, s.mul(below, s.fma(square, s.splat(CUBIC), s.splat(LINEAR))));
    let rest = s.sub(one, small);
    let (bell, q) = (s.mul(small, rest), s.select(s.lt(x, zero), small, rest));
    let inner = s.mul(x, s.fma(square, s.splat(BEND), s.splat(SLOPE)));
    s.fma(bell, inner, q)
}

/// The derivative of [`gelu_erf`], within 1e-6: `Φ(x) + x φ(x)`.
#[inline(always)]
pub fn gelu_erf_slope<S: Simd>(s: S, x: S::F32) -> S::F32 {
    // 1 / √(2π), and log₂ e / 2.
    const TOP: f32 = 0.398_942_3;
    const HALF: f32 = -0.721_347_5;
    let x = s.max(s.splat(LOWEST), s.min(s.splat(-LOWEST), x));
    let below = s.mul(s.splat(0.5), s.add(s.splat(1.0), erf(s, s.mul(x, s.splat(FRAC_1_SQRT_2)))));
    let density = s.mul(exp2_nearly(s, s.mul(s.mul(x, x), s.splat(HALF))), s.splat(TOP));
    s.fma(x, density, below)
}

/// Under it both GELUs are nearer to 0 than 1e-11; at it the powers of two in them are still finite.
const LOWEST: f32 = -9.5;

/// `1 / (1 + 2^x)` for x < 126.
#[inline(always)]
fn logistic2<S: Simd>(s: S, x: S::F32) -> S::F32 {
    s.reciprocal(s.add(s.splat(1.0), exp2_nearly(s, x)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Isa;
    use crate::number::erf as erf64;
    use crate::simd::{Kernel, dispatch};

    trait Function {
        fn fast<S: Simd>(s: S, x: S::F32) -> S::F32;
    }

    struct Map<'a, F>(&'a [f32], F);

    impl<F: Function> Kernel for Map<'_, F> {
        type Output = Vec<f32>;
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> Vec<f32> {
            let mut out = vec![0.0; self.0.len()];
            for (x, out) in self.0.chunks(S::LANES).zip(out.chunks_mut(S::LANES)) {
                // SAFETY: `x` and `out` have the same length.
                unsafe {
                    let x = F::fast(s, s.load_first(x.as_ptr(), x.len()));
                    s.store_first(out.as_mut_ptr(), x, out.len());
                }
            }
            out
        }
    }

    macro_rules! functions {
        ($($name:ident: $function:path;)*) => {$(
            #[derive(Clone, Copy)]
            struct $name;
            impl Function for $name {
                #[inline(always)]
                fn fast<S: Simd>(s: S, x: S::F32) -> S::F32 {
                    $function(s, x)
                }
            }
        )*};
    }

    functions! {
        Exp: exp;
        Exp2: exp2;
        Tanh: tanh;
        Erf: erf;
        GeluTanh: gelu_tanh;
        GeluErf: gelu_erf;
    }

    /// Numbers of every magnitude and both signs, then evenly spaced ones.
    fn samples() -> Vec<f32> {
        let bits = (0..=u32::MAX).step_by(20_011).map(f32::from_bits);
        let even = (-100_000..100_000).map(|i| i as f32 * 1.1e-3);
        bits.filter(|x| !x.is_nan()).chain(even).collect()
    }

    /// The largest error in the measure, on every instruction set.
    fn worst<F: Function + Copy>(
        function: F,
        exact: fn(f64) -> f64,
        error: impl Fn(f32, f32, f64) -> f64,
        samples: &[f32],
    ) -> f64 {
        let exact: Vec<f64> = samples.iter().map(|&x| exact(f64::from(x))).collect();
        let mut worst = 0.0;
        for isa in Isa::available() {
            let got = dispatch(isa, Map(samples, function));
            for ((&x, got), &exact) in samples.iter().zip(got).zip(&exact) {
                let error = error(x, got, exact);
                assert!(!error.is_nan(), "{isa} at {x:e}: {got:e} for {exact:e}");
                if error > worst {
                    worst = error;
                }
            }
        }
        worst
    }

    /// Distance in units of the last place of the exact result; normal results only.
    fn ulps(_: f32, got: f32, exact: f64) -> f64 {
        if exact >= 2f64.powi(128) {
            return if got == f32::INFINITY || got > 3.4028e38 { 0.0 } else { f64::INFINITY };
        }
        if exact < f64::from(f32::MIN_POSITIVE) {
            return if got <= f32::MIN_POSITIVE { 0.0 } else { f64::INFINITY };
        }
        let unit = 2f64.powi(exact.log2().floor() as i32 - 23);
        (f64::from(got) - exact).abs() / unit
    }

    #[test]
    fn exponentials_within_two_units() {
        let worst_exp = worst(Exp, f64::exp, ulps, &samples());
        assert!(worst_exp <= 1.5, "exp: {worst_exp}");
        let below: Vec<f32> = samples().into_iter().filter(|&x| x < 127.0).collect();
        let worst_exp2 = worst(Exp2, f64::exp2, ulps, &below);
        assert!(worst_exp2 <= 1.5, "exp2: {worst_exp2}");
    }

    #[test]
    fn tanh_and_erf_within_4e_7() {
        let relative = |_: f32, got: f32, exact: f64| {
            let normal = exact.abs() >= f64::from(f32::MIN_POSITIVE);
            if normal { (f64::from(got) / exact - 1.0).abs() } else { f64::from(got) - exact }
        };
        let worst_tanh = worst(Tanh, f64::tanh, relative, &samples());
        assert!(worst_tanh <= 4e-7, "tanh: {worst_tanh:e}");
        let worst_erf = worst(Erf, erf64, relative, &samples());
        assert!(worst_erf <= 4e-7, "erf: {worst_erf:e}");
    }

    #[test]
    fn gelu_within_3e_7() {
        let scaled = |x: f32, got: f32, exact: f64| {
            (f64::from(got) - exact).abs() / f64::from(x.abs().max(1.0))
        };
        let finite: Vec<f32> = samples().into_iter().filter(|x| x.is_finite()).collect();
        let slope = (2.0 / std::f64::consts::PI).sqrt();
        assert!((slope - 0.797_884_560_802_865_4).abs() < 1e-15);
        let by_tanh = |x: f64| {
            0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044715 * x.powi(3))).tanh())
        };
        let worst_tanh = worst(GeluTanh, by_tanh, scaled, &finite);
        assert!(worst_tanh <= 3e-7, "tanh form: {worst_tanh:e}");
        let by_erf = |x: f64| 0.5 * x * (1.0 + erf64(x * std::f64::consts::FRAC_1_SQRT_2));
        let worst_erf = worst(GeluErf, by_erf, scaled, &finite);
        assert!(worst_erf <= 3e-7, "erf form: {worst_erf:e}");
    }

    #[test]
    fn ends_of_the_range() {
        let x = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0, -0.0, 1e30, -1e30];
        for isa in Isa::available() {
            let of = |results: Vec<f32>| -> [f32; 7] { results.try_into().unwrap() };
            let [above, below, none, one, ..] = of(dispatch(isa, Map(&x, Exp)));
            assert_eq!((above, below, one), (f32::INFINITY, 0.0, 1.0), "{isa}");
            assert!(none.is_nan(), "{isa}");
            for results in [dispatch(isa, Map(&x, Tanh)), dispatch(isa, Map(&x, Erf))] {
                let [above, below, none, zero, minus_zero, ..] = of(results);
                assert!((above - 1.0).abs() < 4e-7 && (below + 1.0).abs() < 4e-7, "{isa}");
                assert!(none.is_nan() && zero == 0.0 && minus_zero == 0.0, "{isa}");
            }
            for results in [dispatch(isa, Map(&x, GeluTanh)), dispatch(isa, Map(&x, GeluErf))] {
                let [_, below, none, zero, _, above, far_below] = of(results);
                assert!(none.is_nan() && zero == 0.0 && (above / 1e30 - 1.0).abs() < 3e-7, "{isa}");
                assert!(below.abs() < 1e-8 && far_below.abs() < 1e-8, "{isa}");
            }
        }
    }
}
