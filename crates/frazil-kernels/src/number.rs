//! What a single element can do: the scalar functions that the elementwise kernels spread over slices.
//!
//! Integers wrap on overflow, as TensorFlow's do; a division by zero gives zero here, and whoever
//! must refuse it looks at the divisors first.

/// A number that can be added, multiplied and compared.
pub trait Number: Copy + PartialEq + PartialOrd + Default + Send + Sync + 'static {
    /// What sums are kept in: wide enough that the order of terms hardly matters.
    type Sum: Number;
    /// 1.
    const ONE: Self;
    /// Below every other number.
    const LOWEST: Self;
    /// Above every other number.
    const HIGHEST: Self;

    /// `self + other`
    fn add(self, other: Self) -> Self;
    /// `self - other`
    fn sub(self, other: Self) -> Self;
    /// `self * other`
    fn mul(self, other: Self) -> Self;
    /// `self / other`; integers are cut towards zero.
    fn div(self, other: Self) -> Self;
    /// The quotient rounded down.
    fn floor_div(self, other: Self) -> Self;
    /// The remainder of [`floor_div`](Self::floor_div): it has the sign of `other`.
    fn floor_mod(self, other: Self) -> Self;
    /// `self` to the power of `other`.
    fn pow(self, other: Self) -> Self;
    /// `-self`
    fn neg(self) -> Self;
    /// `|self|`
    fn abs(self) -> Self;
    /// -1, 0 or 1; not-a-number stays.
    fn sign(self) -> Self;
    /// For [`Self::Sum`].
    fn widen(self) -> Self::Sum;
    /// Back from [`Self::Sum`].
    fn narrow(sum: Self::Sum) -> Self;
    /// A count as a number, for means.
    fn from_usize(count: usize) -> Self;

    /// `(self - other)²`
    #[inline]
    fn squared_difference(self, other: Self) -> Self {
        self.sub(other).square()
    }

    /// `self²`
    #[inline]
    fn square(self) -> Self {
        self.mul(self)
    }

    /// The larger one; not-a-number wins.
    #[inline]
    fn maximum(self, other: Self) -> Self {
        // `x != x` holds for not-a-number only.
        #[allow(clippy::eq_op, reason = "that is how not-a-number is told in a generic")]
        if self > other || self != self { self } else { other }
    }

    /// The smaller one; not-a-number wins.
    #[inline]
    fn minimum(self, other: Self) -> Self {
        #[allow(clippy::eq_op, reason = "that is how not-a-number is told in a generic")]
        if self < other || self != self { self } else { other }
    }

    /// `self`, or zero if that is more.
    #[inline]
    fn relu(self) -> Self {
        if self < Self::default() { Self::default() } else { self }
    }
}

/// A floating-point number.
pub trait Real: Number<Sum = f64> {
    /// e to the power of `self`.
    fn exp(self) -> Self;
    /// The natural logarithm.
    fn log(self) -> Self;
    /// The square root.
    fn sqrt(self) -> Self;
    /// `1 / √self`
    fn rsqrt(self) -> Self;
    /// `1 / self`
    fn reciprocal(self) -> Self;
    /// The hyperbolic tangent.
    fn tanh(self) -> Self;
    /// The error function.
    fn erf(self) -> Self;
    /// `1 / (1 + e^-self)`
    fn sigmoid(self) -> Self;
    /// The next integer below.
    fn floor(self) -> Self;
    /// The nearest integer, halves to the even one.
    fn round(self) -> Self;
    /// The sine.
    fn sin(self) -> Self;
    /// The cosine.
    fn cos(self) -> Self;
}

macro_rules! reals {
    ($($t:ident),*) => {$(
        impl Number for $t {
            type Sum = f64;
            const ONE: Self = 1.0;
            const LOWEST: Self = $t::NEG_INFINITY;
            const HIGHEST: Self = $t::INFINITY;

            #[inline]
            fn add(self, other: Self) -> Self { self + other }
            #[inline]
            fn sub(self, other: Self) -> Self { self - other }
            #[inline]
            fn mul(self, other: Self) -> Self { self * other }
            #[inline]
            fn div(self, other: Self) -> Self { self / other }
            #[inline]
            fn floor_div(self, other: Self) -> Self { (self / other).floor() }
            #[inline]
            fn floor_mod(self, other: Self) -> Self {
                let rest = self % other;
                if rest != 0.0 && (rest < 0.0) != (other < 0.0) { rest + other } else { rest }
            }
            #[inline]
            fn pow(self, other: Self) -> Self { self.powf(other) }
            #[inline]
            fn neg(self) -> Self { -self }
            #[inline]
            fn abs(self) -> Self { $t::abs(self) }
            #[inline]
            fn sign(self) -> Self { if self == 0.0 || self.is_nan() { self } else { self.signum() } }
            #[inline]
            fn widen(self) -> f64 { self.into() }
            #[inline]
            fn narrow(sum: f64) -> Self { sum as $t }
            #[inline]
            fn from_usize(count: usize) -> Self { count as $t }
        }

        impl Real for $t {
            #[inline]
            fn exp(self) -> Self { $t::exp(self) }
            #[inline]
            fn log(self) -> Self { $t::ln(self) }
            #[inline]
            fn sqrt(self) -> Self { $t::sqrt(self) }
            #[inline]
            fn rsqrt(self) -> Self { 1.0 / $t::sqrt(self) }
            #[inline]
            fn reciprocal(self) -> Self { 1.0 / self }
            #[inline]
            fn tanh(self) -> Self { $t::tanh(self) }
            #[inline]
            fn erf(self) -> Self { erf(self.into()) as $t }
            #[inline]
            fn sigmoid(self) -> Self { 1.0 / (1.0 + $t::exp(-self)) }
            #[inline]
            fn floor(self) -> Self { $t::floor(self) }
            #[inline]
            fn round(self) -> Self { $t::round_ties_even(self) }
            #[inline]
            fn sin(self) -> Self { $t::sin(self) }
            #[inline]
            fn cos(self) -> Self { $t::cos(self) }
        }
    )*};
}

macro_rules! integers {
    ($($t:ident),*) => {$(
        impl Number for $t {
            type Sum = $t;
            const ONE: Self = 1;
            const LOWEST: Self = $t::MIN;
            const HIGHEST: Self = $t::MAX;

            #[inline]
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline]
            fn sub(self, other: Self) -> Self { self.wrapping_sub(other) }
            #[inline]
            fn mul(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline]
            fn div(self, other: Self) -> Self {
                if other == 0 { 0 } else { self.wrapping_div(other) }
            }
            #[inline]
            fn floor_div(self, other: Self) -> Self {
                let quotient = Number::div(self, other);
                let rest = Number::sub(self, Number::mul(quotient, other));
                let below = other != 0 && rest != 0 && (rest < 0) != (other < 0);
                if below { quotient - 1 } else { quotient }
            }
            #[inline]
            fn floor_mod(self, other: Self) -> Self {
                if other == 0 { return 0; }
                let rest = self.wrapping_rem(other);
                if rest != 0 && (rest < 0) != (other < 0) { rest + other } else { rest }
            }
            #[inline]
            fn pow(self, other: Self) -> Self {
                if other < 0 {
                    return match self {
                        1 => 1,
                        -1 => if other % 2 == 0 { 1 } else { -1 },
                        _ => 0, // a fraction
                    };
                }
                let (mut power, mut square, mut rest): (Self, Self, Self) = (1, self, other);
                while rest != 0 {
                    if rest % 2 == 1 { power = power.wrapping_mul(square); }
                    square = square.wrapping_mul(square);
                    rest /= 2;
                }
                power
            }
            #[inline]
            fn neg(self) -> Self { self.wrapping_neg() }
            #[inline]
            fn abs(self) -> Self { self.wrapping_abs() }
            #[inline]
            fn sign(self) -> Self { self.signum() }
            #[inline]
            fn widen(self) -> Self { self }
            #[inline]
            fn narrow(sum: Self) -> Self { sum }
            #[inline]
            fn from_usize(count: usize) -> Self { count as $t }
        }
    )*};
}

reals!(f32, f64);
integers!(i32, i64);

/// The error function, to 1e-12: 2/√π times the integral of `e^-t²` from 0 to `x`.
pub fn erf(x: f64) -> f64 {
    /// Where the power series hands over, so that tiny arguments keep their relative accuracy.
    const SERIES_END: f64 = 0.5;
    /// Past this, erfc is below 1e-16.
    const FLAT: f64 = 6.0;
    let size = x.abs();
    if size.is_nan() {
        x
    } else if size < SERIES_END {
        erf_series(x)
    } else if size > FLAT {
        1f64.copysign(x)
    } else {
        (1.0 - erfc_middle(size)).copysign(x)
    }
}

/// `2/√π · Σ (-1)^i x^(2i+1) / (i! (2i+1))`
fn erf_series(x: f64) -> f64 {
    let mut power = x; // (-1)^i x^(2i+1) / i!
    let mut sum = x;
    for i in 1..12 {
        power *= -x * x / f64::from(i);
        sum += power / f64::from(2 * i + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

/// `1 - erf(x)` for x in 0.5..=6, as `t · e^(P(u) - x²)`, where `t = 2/(2+x)` and `u` is `t` moved
/// and scaled to -1..1. `P` is our least-squares fit on Chebyshev points: 5e-13 at worst.
fn erfc_middle(x: f64) -> f64 {
    const CENTRE: f64 = 0.525;
    const HALF_WIDTH: f64 = 0.275;
    const P: [f64; 13] = [
        -0.6380494854634632,
        0.37236164901285845,
        0.012152046879277777,
        -0.008093418141753473,
        -0.0006964363217118192,
        0.0004644747021577666,
        2.587588636136011e-05,
        -3.569230288542979e-05,
        1.1803371812056978e-06,
        2.760973166983627e-06,
        -4.2233769319291e-07,
        -1.5745484060026576e-07,
        4.570745044941128e-08,
    ];
    let t = 1.0 / (1.0 + 0.5 * x);
    let u = (t - CENTRE) / HALF_WIDTH;
    let p = P.iter().rev().fold(0.0, |sum, c| sum * u + c);
    t * (p - x * x).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_against_published_digits() {
        let table = [
            (0.0, 0.0),
            (0.1, 0.1124629160182),
            (0.5, 0.5204998778130),
            (0.75, 0.7111556336535),
            (1.0, 0.8427007929497),
            (1.5, 0.9661051464753),
            (2.0, 0.9953222650189),
            (2.5, 0.9995930479825),
            (3.5, 0.9999992569016),
            (5.0, 0.9999999999984),
            (7.0, 1.0),
            (f64::INFINITY, 1.0),
        ];
        for (x, expected) in table {
            assert!((erf(x) - expected).abs() < 1e-12, "erf({x}) = {}", erf(x));
            assert!((erf(-x) + expected).abs() < 1e-12, "erf(-{x}) = {}", erf(-x));
        }
        assert!(erf(f64::NAN).is_nan());
        assert_eq!(erf(1e-30), 1e-30 * std::f64::consts::FRAC_2_SQRT_PI);
    }

    #[test]
    fn erf_against_its_integral() {
        // Simpson's rule from 0 in steps of 1/1000: far below the tolerance.
        let f = |t: f64| (-t * t).exp();
        let (step, mut integral) = (1e-3, 0.0);
        for i in 0..6000 {
            let t = f64::from(i) * step;
            integral += (f(t) + 4.0 * f(t + step / 2.0) + f(t + step)) * step / 6.0;
            let expected = integral * std::f64::consts::FRAC_2_SQRT_PI;
            assert!((erf(t + step) - expected).abs() < 2e-12, "at {}", t + step);
        }
    }

    #[test]
    fn integers_round_down_and_wrap() {
        assert_eq!(Number::floor_div(-7, 2), -4);
        assert_eq!(Number::floor_div(7, -2), -4);
        assert_eq!(Number::floor_mod(-7, 2), 1);
        assert_eq!(Number::floor_mod(7, -2), -1);
        assert_eq!(Number::floor_mod(6, -2), 0);
        assert_eq!(Number::div(-7, 2), -3);
        assert_eq!(Number::div(i32::MIN, -1), i32::MIN);
        assert_eq!(Number::floor_div(i32::MIN, -1), i32::MIN);
        assert_eq!(Number::floor_div(5, 0), 0);
        assert_eq!(Number::floor_mod(5, 0), 0);
        assert_eq!(Number::add(i32::MAX, 1), i32::MIN);
        assert_eq!(Number::pow(3, 4), 81);
        assert_eq!(Number::pow(2, -1), 0);
        assert_eq!(Number::pow(-1, -3), -1);
        assert_eq!(Number::pow(0i64, 1 << 40), 0);
    }

    #[test]
    fn reals_follow_python() {
        assert_eq!(Number::floor_mod(-7.5f32, 2.0), 0.5);
        assert_eq!(Number::floor_mod(7.5f32, -2.0), -0.5);
        assert_eq!(Number::floor_div(-7.5f32, 2.0), -4.0);
        assert_eq!(Number::sign(-0.3f32), -1.0);
        assert_eq!(Number::sign(0.0f32), 0.0);
        assert!(Number::sign(f32::NAN).is_nan());
        assert!(Number::maximum(f32::NAN, 1.0).is_nan());
        assert!(Number::maximum(1.0, f32::NAN).is_nan());
        assert!(Number::minimum(1.0, f32::NAN).is_nan());
        assert!(Number::relu(f32::NAN).is_nan());
        assert_eq!(Number::maximum(1.0f32, 2.0), 2.0);
        assert_eq!(Number::minimum(1.0f32, 2.0), 1.0);
        assert_eq!(Number::relu(-2), 0);
    }
}
