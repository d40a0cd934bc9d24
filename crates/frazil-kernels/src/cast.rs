//! From one real type to another.
//!
//! Floating-point numbers become integers by cutting the fraction off, as in TensorFlow; what does
//! not fit becomes the nearest that does (in C it is undefined), and not-a-number becomes 0.
//! Integers lose their upper bits, as in C.

use half::{bf16, f16};

/// A real number that every other one can be made from.
pub trait Scalar: Copy {
    /// Whether [`to_f64`](Self::to_f64) tells all, rather than [`to_i128`](Self::to_i128).
    const FLOAT: bool;
    /// As a floating-point number.
    fn to_f64(self) -> f64;
    /// As an integer; cut towards zero.
    fn to_i128(self) -> i128;
    /// From a floating-point number.
    fn from_f64(x: f64) -> Self;
    /// From an integer.
    fn from_i128(x: i128) -> Self;
}

macro_rules! scalars {
    ($($t:ident $float:literal),*) => {$(
        impl Scalar for $t {
            const FLOAT: bool = $float;
            #[inline]
            fn to_f64(self) -> f64 { self as f64 }
            #[inline]
            fn to_i128(self) -> i128 { self as i128 }
            #[inline]
            fn from_f64(x: f64) -> Self { x as $t }
            #[inline]
            fn from_i128(x: i128) -> Self { x as $t }
        }
    )*};
}

scalars! {
    f32 true, f64 true, i8 false, i16 false, i32 false, i64 false,
    u8 false, u16 false, u32 false, u64 false
}

macro_rules! halves {
    ($($t:ident),*) => {$(
        impl Scalar for $t {
            const FLOAT: bool = true;
            #[inline]
            fn to_f64(self) -> f64 { $t::to_f64(self) }
            #[inline]
            fn to_i128(self) -> i128 { $t::to_f64(self) as i128 }
            #[inline]
            fn from_f64(x: f64) -> Self { $t::from_f64(x) }
            #[inline]
            fn from_i128(x: i128) -> Self { $t::from_f64(x as f64) }
        }
    )*};
}

halves!(f16, bf16);

/// `out[i] = x[i]` in the other type.
pub fn cast<A: Scalar, B: Scalar>(x: &[A], out: &mut [B]) {
    assert_eq!(x.len(), out.len(), "one output for each input");
    for (o, &x) in out.iter_mut().zip(x) {
        *o = if A::FLOAT { B::from_f64(x.to_f64()) } else { B::from_i128(x.to_i128()) };
    }
}

/// `out[i]` is 0 where `x[i]` is 0, and 1 elsewhere.
pub fn cast_to_bool<A: Scalar>(x: &[A], out: &mut [u8]) {
    assert_eq!(x.len(), out.len(), "one output for each input");
    for (o, &x) in out.iter_mut().zip(x) {
        *o = u8::from(if A::FLOAT { x.to_f64() != 0.0 } else { x.to_i128() != 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one<A: Scalar, B: Scalar + Default>(x: A) -> B {
        let mut out = [B::default()];
        cast(&[x], &mut out);
        out[0]
    }

    #[test]
    fn floats_are_cut() {
        assert_eq!(one::<f32, i32>(2.9), 2);
        assert_eq!(one::<f32, i32>(-2.9), -2);
        assert_eq!(one::<f64, i64>(1e300), i64::MAX);
        assert_eq!(one::<f32, i8>(f32::NAN), 0);
        assert_eq!(one::<f32, u8>(-5.0), 0);
    }

    #[test]
    fn integers_are_exact_or_wrap() {
        assert_eq!(one::<i64, f64>((1 << 53) + 2), 9_007_199_254_740_994.0);
        assert_eq!(one::<i64, u64>(-1), u64::MAX);
        assert_eq!(one::<u64, i64>(u64::MAX), -1);
        assert_eq!(one::<i64, i64>(i64::MAX - 1), i64::MAX - 1);
        assert_eq!(one::<i32, i8>(300), 44);
        // Rounded once, not first to f64: the nearest f32 of 2^60 + 2^36 + 1 lies above.
        assert_eq!(one::<i64, f32>((1 << 60) + (1 << 36) + 1), 2f32.powi(60) + 2f32.powi(37));
    }

    #[test]
    fn halves_and_truth() {
        assert_eq!(one::<f32, f16>(1.0 / 3.0), f16::from_f32(1.0 / 3.0));
        assert_eq!(one::<bf16, f32>(bf16::from_f32(1.5)), 1.5);
        assert_eq!(one::<i32, f16>(2049), f16::from_f32(2048.0));
        let mut out = [9; 4];
        cast_to_bool(&[0.0f32, -0.0, 0.5, f32::NAN], &mut out);
        assert_eq!(out, [0, 0, 1, 1]);
    }
}
