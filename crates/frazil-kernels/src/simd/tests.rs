//! Every operation of every vector that this machine has, against one number at a time.

use super::*;

/// Runs one operation on each vector of three arrays and gives back the lanes.
struct Lanes<'a, O> {
    inputs: [&'a [f32]; 3],
    op: O,
}

trait Operation {
    fn apply<S: Simd>(&self, s: S, x: [S::F32; 3]) -> S::F32;
}

impl<O: Operation> Kernel for Lanes<'_, O> {
    type Output = Vec<f32>;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Vec<f32> {
        let n = self.inputs[0].len();
        let mut out = vec![0.0; n];
        let mut at = 0;
        while at < n {
            let rest = n - at;
            // SAFETY: `rest` numbers follow in each array, and in `out`.
            unsafe {
                let x = self.inputs.map(|input| s.load_first(input.as_ptr().add(at), rest));
                s.store_first(out.as_mut_ptr().add(at), self.op.apply(s, x), rest);
            }
            at += S::LANES;
        }
        out
    }
}

macro_rules! operations {
    ($($name:ident: |$s:ident, $a:ident, $b:ident, $c:ident| $body:expr;)*) => {
        $(
            #[allow(non_camel_case_types)]
            struct $name;
            impl Operation for $name {
                #[inline(always)]
                #[allow(unused_variables)]
                fn apply<S: Simd>(&self, $s: S, [$a, $b, $c]: [S::F32; 3]) -> S::F32 {
                    $body
                }
            }
        )*
        fn check_all(inputs: [&[f32]; 3]) {
            for isa in Isa::available() {
                $(
                    let wanted = dispatch(Isa::Scalar, Lanes { inputs, op: $name });
                    let got = dispatch(isa, Lanes { inputs, op: $name });
                    for (at, (wanted, got)) in wanted.iter().zip(&got).enumerate() {
                        let same = wanted.to_bits() == got.to_bits() || (wanted.is_nan() && got.is_nan());
                        let x = inputs.map(|input| input[at]);
                        assert!(same, "{} {isa} {x:?}: {got}, not {wanted}", stringify!($name));
                    }
                )*
            }
        }
    };
}

operations! {
    add: |s, a, b, c| s.add(a, b);
    sub: |s, a, b, c| s.sub(a, b);
    mul: |s, a, b, c| s.mul(a, b);
    div: |s, a, b, c| s.div(a, b);
    fma: |s, a, b, c| s.fma(a, b, c);
    fnma: |s, a, b, c| s.fnma(a, b, c);
    min: |s, a, b, c| s.min(a, b);
    max: |s, a, b, c| s.max(a, b);
    sqrt: |s, a, b, c| s.sqrt(a);
    abs: |s, a, b, c| s.abs(a);
    copysign: |s, a, b, c| s.copysign(a, b);
    round: |s, a, b, c| s.round(a);
    to_i32: |s, a, b, c| s.of_bits(s.to_i32(a));
    to_f32: |s, a, b, c| s.to_f32(s.bits(a));
    add_i32: |s, a, b, c| s.of_bits(s.add_i32(s.bits(a), s.bits(b)));
    mul_i32: |s, a, b, c| s.of_bits(s.mul_i32(s.bits(a), s.bits(b)));
    shl_i32: |s, a, b, c| s.of_bits(s.shl_i32::<23>(s.bits(a)));
    shr_i32: |s, a, b, c| s.of_bits(s.shr_i32::<13>(s.bits(a)));
    xor_i32: |s, a, b, c| s.of_bits(s.xor_i32(s.bits(a), s.bits(b)));
    min_i32: |s, a, b, c| s.of_bits(s.min_i32(s.bits(a), s.bits(b)));
    max_i32: |s, a, b, c| s.of_bits(s.max_i32(s.bits(a), s.bits(b)));
    select: |s, a, b, c| s.select(s.lt(a, b), c, a);
    lookup: |s, a, b, c| s.lookup(&TABLE, s.bits(a));
    splat: |s, a, b, c| s.add(a, s.splat(1.5));
    splat_i32: |s, a, b, c| s.of_bits(s.add_i32(s.bits(a), s.splat_i32(-7)));
}

const TABLE: [f32; 16] = [0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.];

const SPECIAL: [f32; 14] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    -2.5,
    1e-40,
    3e9,
    -3e9,
    f32::MAX,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

#[test]
fn every_lane_is_as_scalar() {
    // Each pair of special numbers, then others; an odd count, so that the end is a part of a vector.
    let pairs = SPECIAL.iter().flat_map(|&a| SPECIAL.iter().map(move |&b| (a, b)));
    let others =
        (0..101).map(|i| ((i * 37 % 101) as f32 - 50.3, (i * 53 % 101) as f32 * 1e-3 - 0.04));
    let (a, b): (Vec<f32>, Vec<f32>) = pairs.chain(others).unzip();
    let c: Vec<f32> = a.iter().rev().copied().collect();
    check_all([&a, &b, &c]);
}

struct Whole<'a>(&'a [f32]);

impl Kernel for Whole<'_> {
    type Output = (f32, f32, f32);
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> (f32, f32, f32) {
        let (mut sum, mut largest, mut smallest) = (0.0, f32::MIN, f32::MAX);
        for chunk in self.0.chunks_exact(S::LANES) {
            // SAFETY: a chunk has as many numbers as a vector.
            let x = unsafe { s.load(chunk.as_ptr()) };
            sum += s.sum(x);
            largest = s.largest(x).max(largest);
            smallest = s.smallest(x).min(smallest);
        }
        (sum, largest, smallest)
    }
}

#[test]
fn lanes_are_put_together() {
    for place in 0..32 {
        let mut x: Vec<f32> = (0..32).map(|i| i as f32 / 8.0).collect();
        let rest: f32 = x.iter().sum::<f32>() - x[place];
        x[place] = 100.0;
        for isa in Isa::available() {
            let (sum, largest, _) = dispatch(isa, Whole(&x));
            assert_eq!((sum, largest), (rest + 100.0, 100.0), "{isa}");
        }
        x[place] = -100.0;
        for isa in Isa::available() {
            assert_eq!(dispatch(isa, Whole(&x)).2, -100.0, "{isa}");
        }
    }
}

struct Bytes<'a>(&'a [i32], usize);

impl Kernel for Bytes<'_> {
    type Output = (Vec<u8>, Vec<i32>);
    /// The first `1` numbers of each vector to bytes and back.
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> (Vec<u8>, Vec<i32>) {
        let mut bytes = vec![7; self.0.len()];
        let mut back = vec![0; self.0.len()];
        for at in (0..self.0.len()).step_by(S::LANES) {
            // SAFETY: the lengths are multiples of every number of lanes.
            unsafe {
                let x = s.load_i32(self.0.as_ptr().add(at));
                s.store_first_u8(bytes.as_mut_ptr().add(at), x, self.1);
                let again = s.load_first_u8(bytes.as_ptr().add(at), S::LANES);
                s.store_i32(back.as_mut_ptr().add(at), again);
            }
        }
        (bytes, back)
    }
}

#[test]
fn bytes_are_clamped() {
    let x: Vec<i32> =
        (0..64).map(|i| [0, 1, 255, 256, -1, 70_000, i32::MIN, i32::MAX][i % 8]).collect();
    for isa in Isa::available() {
        for first in 0..=isa.lanes() {
            let (bytes, back) = dispatch(isa, Bytes(&x, first));
            for (at, (&byte, &back)) in bytes.iter().zip(&back).enumerate() {
                let wanted = if at % isa.lanes() < first { x[at].clamp(0, 255) } else { 7 };
                assert_eq!((i32::from(byte), back), (wanted, wanted), "{isa} {first} {at}");
            }
        }
    }
}

struct Four<'a>(&'a [i32], usize);

impl Kernel for Four<'_> {
    type Output = (Vec<i32>, Vec<i32>);
    /// Each number and those 1, 2 and 3 vectors after it packed; and the first `1` numbers of each
    /// vector of what is packed, as signed bytes.
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> (Vec<i32>, Vec<i32>) {
        let (mut packed, mut back) = (vec![0; S::LANES], vec![0; 4 * S::LANES]);
        // SAFETY: there are four vectors of numbers, and room for the results.
        unsafe {
            let mut x = [s.splat_i32(0); 4];
            for (i, x) in x.iter_mut().enumerate() {
                *x = s.load_i32(self.0.as_ptr().add(i * S::LANES));
            }
            s.store_i32(packed.as_mut_ptr(), s.pack_bytes(x));
            for i in 0..4 {
                let at = i * S::LANES;
                let bytes = s.load_first_i8(packed.as_ptr().cast::<i8>().add(at), self.1);
                s.store_i32(back.as_mut_ptr().add(at), bytes);
            }
        }
        (packed, back)
    }
}

#[test]
fn bytes_are_packed_and_have_signs() {
    let x: Vec<i32> = (0..64).map(|i| [0, 1, -1, 127, -128, -127, 300, -300][i * 5 % 8]).collect();
    for isa in Isa::available() {
        let lanes = isa.lanes();
        for first in 0..=lanes {
            let (packed, back) = dispatch(isa, Four(&x, first));
            let bytes: Vec<u8> = packed.iter().flat_map(|x| x.to_ne_bytes()).collect();
            for (at, &byte) in bytes.iter().enumerate() {
                assert_eq!(byte, x[at % 4 * lanes + at / 4] as u8, "{isa} {at}");
                let wanted = if at % lanes < first { i32::from(byte as i8) } else { 0 };
                assert_eq!(back[at], wanted, "{isa} {first} {at}");
            }
        }
    }
}

struct Reciprocals<'a>(&'a [f32]);

impl Kernel for Reciprocals<'_> {
    type Output = Vec<f32>;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Vec<f32> {
        let mut out = vec![0.0; self.0.len()];
        for (x, out) in self.0.chunks(S::LANES).zip(out.chunks_mut(S::LANES)) {
            // SAFETY: both chunks have this length.
            unsafe {
                let x = s.load_first(x.as_ptr(), x.len());
                s.store_first(out.as_mut_ptr(), s.reciprocal(x), out.len());
            }
        }
        out
    }
}

#[test]
fn reciprocals_within_two_units() {
    let x: Vec<f32> = (1..4000).map(|i| (i as f32 * 0.0431).exp2()).collect();
    let x: Vec<f32> = x.into_iter().filter(|&x| x < 2f32.powi(126)).collect();
    for isa in Isa::available() {
        for (x, got) in x.iter().zip(dispatch(isa, Reciprocals(&x))) {
            let error = (f64::from(got) * f64::from(*x) - 1.0).abs();
            assert!(error <= 2.0 / f64::from(1 << 23), "{isa} 1/{x}: {got}");
        }
    }
}

struct Columns<'a>(&'a [f32], usize);

impl Kernel for Columns<'_> {
    type Output = Vec<f32>;
    /// Four columns of as many rows as lanes, one column after the other.
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Vec<f32> {
        let rows: [*const f32; 16] = std::array::from_fn(|row| self.0[row * self.1..].as_ptr());
        let mut out = vec![0.0; 4 * S::LANES];
        // SAFETY: each row has four numbers, and the output all of them.
        unsafe {
            let columns = s.load_columns(&rows);
            for (i, column) in columns.into_iter().enumerate() {
                s.store(out.as_mut_ptr().add(i * S::LANES), column);
            }
        }
        out
    }
}

#[test]
fn rows_become_columns() {
    let x: Vec<f32> = (0..16 * 7).map(|i| i as f32).collect();
    for isa in Isa::available() {
        let got = dispatch(isa, Columns(&x, 7));
        let lanes = isa.lanes();
        for (i, got) in got.into_iter().enumerate() {
            assert_eq!(got, x[i % lanes * 7 + i / lanes], "{isa} {i}");
        }
    }
}
