//! One element at a time: the drivers that spread a scalar function over slices.
//!
//! The functions themselves are [`Number`]'s and [`Real`](crate::Real)'s methods, so
//! `binary(a, b, out, &walk, Number::add)` is addition. Truth values are bytes, 0 or 1.

use crate::layout::{Broadcast, Run};
use crate::number::Number;

/// `out[i] = f(x[i])`
pub fn unary<T: Copy, O>(x: &[T], out: &mut [O], f: impl Fn(T) -> O) {
    assert_eq!(x.len(), out.len(), "one output for each input");
    for (o, &x) in out.iter_mut().zip(x) {
        *o = f(x);
    }
}

/// `out = f(a, b)` under their common shape.
pub fn binary<T: Copy, O>(
    a: &[T],
    b: &[T],
    out: &mut [O],
    walk: &Broadcast<2>,
    f: impl Fn(T, T) -> O,
) {
    assert_eq!(out.len(), walk.elements(), "the output has the broadcast shape");
    for Run { out: at, len, starts: [i, j], steps } in walk.runs() {
        let out = &mut out[at..][..len];
        match steps {
            [0, 0] => {
                for o in out {
                    *o = f(a[i], b[j]);
                }
            }
            [0, _] => {
                let x = a[i];
                for (o, &y) in out.iter_mut().zip(&b[j..][..len]) {
                    *o = f(x, y);
                }
            }
            [_, 0] => {
                let y = b[j];
                for (o, &x) in out.iter_mut().zip(&a[i..][..len]) {
                    *o = f(x, y);
                }
            }
            _ => {
                for ((o, &x), &y) in out.iter_mut().zip(&a[i..][..len]).zip(&b[j..][..len]) {
                    *o = f(x, y);
                }
            }
        }
    }
}

/// `out = if test { yes } else { no }` under their common shape.
pub fn select<T: Clone>(test: &[u8], yes: &[T], no: &[T], out: &mut [T], walk: &Broadcast<3>) {
    assert_eq!(out.len(), walk.elements(), "the output has the broadcast shape");
    for Run { out: at, len, starts, steps } in walk.runs() {
        for (i, o) in out[at..][..len].iter_mut().enumerate() {
            let [t, y, n] = std::array::from_fn(|k| starts[k] + i * steps[k]);
            *o = if test[t] != 0 { yes[y].clone() } else { no[n].clone() };
        }
    }
}

/// How two numbers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it all")]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// `out = a <comparison> b` under their common shape, as 0 or 1.
pub fn compare<T: Copy + PartialOrd>(
    a: &[T],
    b: &[T],
    out: &mut [u8],
    walk: &Broadcast<2>,
    comparison: Comparison,
) {
    match comparison {
        Comparison::Equal => binary(a, b, out, walk, |a, b| u8::from(a == b)),
        Comparison::NotEqual => binary(a, b, out, walk, |a, b| u8::from(a != b)),
        Comparison::Less => binary(a, b, out, walk, |a, b| u8::from(a < b)),
        Comparison::LessEqual => binary(a, b, out, walk, |a, b| u8::from(a <= b)),
        Comparison::Greater => binary(a, b, out, walk, |a, b| u8::from(a > b)),
        Comparison::GreaterEqual => binary(a, b, out, walk, |a, b| u8::from(a >= b)),
    }
}

/// Both are true.
pub fn logical_and(a: &[u8], b: &[u8], out: &mut [u8], walk: &Broadcast<2>) {
    binary(a, b, out, walk, |a, b| u8::from(a != 0 && b != 0));
}

/// At least one is true.
pub fn logical_or(a: &[u8], b: &[u8], out: &mut [u8], walk: &Broadcast<2>) {
    binary(a, b, out, walk, |a, b| u8::from(a != 0 || b != 0));
}

/// False becomes true.
pub fn logical_not(x: &[u8], out: &mut [u8]) {
    unary(x, out, |x| u8::from(x == 0));
}

/// `x: [rows, h]  bias: [h]`: the bias is added to every row, in place.
pub fn add_bias<T: Number>(x: &mut [T], bias: &[T]) {
    if bias.is_empty() {
        return;
    }
    assert_eq!(x.len() % bias.len(), 0, "whole rows");
    for row in x.chunks_exact_mut(bias.len()) {
        for (x, &b) in row.iter_mut().zip(bias) {
            *x = x.add(b);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::Real;

    #[test]
    fn broadcasts_in_every_direction() {
        let a = [1, 2, 3, 4, 5, 6]; // [2, 3]
        let cases: [(&[usize], &[i32], [i32; 6]); 5] = [
            (&[2, 3], &[10, 20, 30, 40, 50, 60], [11, 22, 33, 44, 55, 66]),
            (&[3], &[10, 20, 30], [11, 22, 33, 14, 25, 36]),
            (&[2, 1], &[10, 20], [11, 12, 13, 24, 25, 26]),
            (&[], &[10], [11, 12, 13, 14, 15, 16]),
            (&[1, 1], &[10], [11, 12, 13, 14, 15, 16]),
        ];
        for (dims, b, expected) in cases {
            let mut out = [0; 6];
            binary(&a, b, &mut out, &Broadcast::new([&[2, 3], dims]).unwrap(), Number::add);
            assert_eq!(out, expected, "{dims:?}");
            binary(b, &a, &mut out, &Broadcast::new([dims, &[2, 3]]).unwrap(), Number::add);
            assert_eq!(out, expected, "{dims:?} first");
        }
        let mut scalar = [0.0f64];
        binary(&[2.0], &[3.0], &mut scalar, &Broadcast::new([&[], &[]]).unwrap(), Number::pow);
        assert_eq!(scalar, [8.0]);
    }

    #[test]
    fn unary_functions_against_f64() {
        let x: Vec<f32> = (1..400).map(|i| i as f32 / 57.0).collect();
        type Pair = (fn(f32) -> f32, fn(f64) -> f64);
        let functions: [Pair; 12] = [
            (Real::exp, f64::exp),
            (Real::log, f64::ln),
            (Real::sqrt, f64::sqrt),
            (Real::rsqrt, |x| 1.0 / x.sqrt()),
            (Real::reciprocal, |x| 1.0 / x),
            (Number::square, |x| x * x),
            (Real::tanh, f64::tanh),
            (Real::erf, crate::number::erf),
            (Real::sigmoid, |x| 1.0 / (1.0 + (-x).exp())),
            (Real::floor, f64::floor),
            (Real::sin, f64::sin),
            (Real::cos, f64::cos),
        ];
        for (i, (narrow, wide)) in functions.into_iter().enumerate() {
            let mut out = vec![0.0; x.len()];
            unary(&x, &mut out, narrow);
            for (&x, &o) in x.iter().zip(&out) {
                let expected = wide(f64::from(x));
                let error = (f64::from(o) - expected).abs();
                assert!(error <= 2e-7 * expected.abs().max(1.0), "function {i} of {x}: {o}");
            }
        }
    }

    #[test]
    fn comparisons_and_logic() {
        let walk = Broadcast::new([&[3], &[]]).unwrap();
        let table = [
            (Comparison::Equal, [0, 1, 0]),
            (Comparison::NotEqual, [1, 0, 1]),
            (Comparison::Less, [1, 0, 0]),
            (Comparison::LessEqual, [1, 1, 0]),
            (Comparison::Greater, [0, 0, 1]),
            (Comparison::GreaterEqual, [0, 1, 1]),
        ];
        for (comparison, expected) in table {
            let mut out = [9; 3];
            compare(&[1, 2, 3], &[2], &mut out, &walk, comparison);
            assert_eq!(out, expected, "{comparison:?}");
        }
        let both = Broadcast::new([&[4], &[4]]).unwrap();
        let mut out = [9; 4];
        logical_and(&[0, 0, 1, 2], &[0, 1, 0, 1], &mut out, &both);
        assert_eq!(out, [0, 0, 0, 1]);
        logical_or(&[0, 0, 1, 2], &[0, 1, 0, 1], &mut out, &both);
        assert_eq!(out, [0, 1, 1, 1]);
        logical_not(&[0, 0, 1, 2], &mut out);
        assert_eq!(out, [1, 1, 0, 0]);
    }

    #[test]
    fn select_repeats_all_three() {
        let mut out = [0; 6];
        let walk = Broadcast::new([&[2, 1], &[3], &[]]).unwrap();
        select(&[1, 0], &[1, 2, 3], &[9], &mut out, &walk);
        assert_eq!(out, [1, 2, 3, 9, 9, 9]);
    }

    #[test]
    fn bias_goes_to_every_row() {
        let mut x = [0.0, 1.0, 2.0, 3.0];
        add_bias(&mut x, &[10.0, 20.0]);
        assert_eq!(x, [10.0, 21.0, 12.0, 23.0]);
        add_bias(&mut [0f32; 0], &[]);
    }
}
