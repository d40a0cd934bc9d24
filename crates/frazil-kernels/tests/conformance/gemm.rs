//! The matrix products.

use frazil_kernels::Isa;
use frazil_kernels::gemm::{Activation, Columns, Epilogue, Orientation, Output, Residual, f32, i8};
use frazil_kernels::par::Pool;

use crate::guard::{Guarded, filled, guard};
use crate::{Row, Timed, Worst, numbers, plain_numbers, pool};

pub fn rows() -> Vec<Row> {
    vec![
        Row {
            kernel: "gemm f32, sums",
            // Of the sum of absolute products: the roundings of the additions.
            tolerance: 2e-6,
            check: |isa| sums(isa, exact),
            speed: Some(|isa| speed(isa, (128, 768, 768), Activation::None)),
        },
        Row {
            kernel: "gemm f32, the same bits",
            tolerance: 0.0,
            check: |isa| sums(isa, scalar),
            speed: Some(|isa| speed(isa, (128, 768, 3072), Activation::None)),
        },
        Row {
            kernel: "gemm f32, epilogues",
            // Roundings of sums of up to 300 products, which the activation passes on.
            tolerance: 1e-5,
            check: epilogues,
            speed: Some(|isa| speed(isa, (128, 3072, 768), Activation::GeluTanh)),
        },
        Row {
            kernel: "gemm i8, exact sums",
            tolerance: 0.0,
            check: byte_sums,
            speed: Some(|isa| byte_speed(isa, (128, 768, 3072), Activation::None)),
        },
        Row {
            kernel: "gemm i8, epilogues",
            tolerance: 4e-6,
            check: byte_epilogues,
            speed: Some(|isa| byte_speed(isa, (128, 3072, 768), Activation::GeluTanh)),
        },
    ]
}

/// Around tiles (4, 6, 9 and 12 rows), vectors (8 and 16 columns), panels, and steps of k; and primes.
const SIZES: [(usize, usize, usize); 24] = [
    (0, 5, 7),
    (5, 0, 7),
    (5, 7, 0),
    (1, 1, 1),
    (1, 33, 64),
    (2, 7, 8),
    (3, 8, 9),
    (4, 9, 7),
    (5, 15, 16),
    (6, 16, 15),
    (7, 17, 17),
    (8, 31, 31),
    (9, 32, 32),
    (10, 33, 24),
    (11, 2, 40),
    (12, 47, 41),
    (13, 48, 61),
    (14, 49, 8),
    (15, 64, 103),
    (29, 65, 113),
    (43, 97, 131),
    (101, 131, 64),
    (131, 61, 300),
    (257, 40, 19),
];

/// So long that k is taken in parts, with panels that are whole, and with a last one that is not.
const LONG: [(usize, usize, usize); 3] = [(10, 96, 1025), (19, 101, 2079), (11, 112, 3072)];

fn sizes(more: &[(usize, usize, usize)]) -> impl Iterator<Item = (usize, usize, usize)> {
    SIZES.iter().chain(more).copied()
}

/// A product on two threads, with gaps between the rows, and what may not be touched untouched.
struct Case {
    m: usize,
    n: usize,
    k: usize,
    a: Guarded<f32>,
    lda: usize,
    w: Guarded<f32>,
    /// The sums in f64, and the sums of the absolute products.
    exact: Vec<(f64, f64)>,
}

impl Case {
    fn new((m, n, k): (usize, usize, usize)) -> Self {
        let lda = k + 3;
        let seed = (m * 10_007 + n * 101 + k) as u64;
        let (a, w) = (numbers(seed, m * lda), numbers(seed + 1, k * n));
        let mut exact = vec![(0.0, 0.0); m * n];
        // Row by row, which a compiler can make fast: an emulated CPU runs this, too.
        for (a, sums) in a.chunks(lda).zip(exact.chunks_mut(n.max(1))) {
            for (&a, w) in a[..k].iter().zip(w.chunks(n.max(1))) {
                for ((sum, absolute), &w) in sums.iter_mut().zip(w) {
                    let product = f64::from(a) * f64::from(w);
                    *sum += product;
                    *absolute += product.abs();
                }
            }
        }
        Self { m, n, k, a, lda, w, exact }
    }

    fn run(&self, isa: Isa, epilogue: Epilogue<'_>) -> Vec<f32> {
        let ldc = self.n + 5;
        let mut c = filled(77.0, self.m * ldc);
        self.run_into(isa, Output::F32(&mut c), epilogue);
        packed_rows(&c, self.n, ldc, &77.0)
    }

    fn run_into(&self, isa: Isa, out: Output<'_>, epilogue: Epilogue<'_>) {
        let Self { m, n, k, lda, .. } = *self;
        let mut w = filled(f32::NAN, f32::packed_len(isa, k, n));
        f32::pack(isa, &[Columns { w: &self.w, order: Orientation::Kn, n }], k, &mut w);
        let gemm = f32::Gemm { m, n, k, a: &self.a, lda, w: &w, out, ldc: n + 5, epilogue };
        f32::run(&pool(), isa, gemm);
    }
}

/// The rows without the gaps, which must be as they were.
fn packed_rows<T: PartialEq + Copy>(c: &[T], n: usize, ldc: usize, gap: &T) -> Vec<T> {
    let rows = || c.chunks_exact(ldc);
    assert!(rows().all(|row| row[n..].iter().all(|x| x == gap)), "written between the rows");
    rows().flat_map(|row| &row[..n]).copied().collect()
}

fn exact(case: &Case, _: &[f32], row: usize, column: usize, got: f32) -> f64 {
    let (sum, absolute) = case.exact[row * case.n + column];
    (f64::from(got) - sum).abs() / absolute.max(1e-30)
}

fn scalar(case: &Case, scalar: &[f32], row: usize, column: usize, got: f32) -> f64 {
    f64::from(u8::from(scalar[row * case.n + column].to_bits() != got.to_bits()))
}

fn sums(isa: Isa, difference: fn(&Case, &[f32], usize, usize, f32) -> f64) -> Worst {
    let mut worst = Worst::default();
    for size in sizes(&LONG) {
        let case = Case::new(size);
        let plain = case.run(Isa::Scalar, Epilogue::default());
        for (i, &got) in case.run(isa, Epilogue::default()).iter().enumerate() {
            let (row, column) = (i / case.n, i % case.n);
            let difference = difference(&case, &plain, row, column, got);
            worst.note(difference, || format!("{size:?} at {row}, {column}"));
        }
    }
    worst
}

fn epilogues(isa: Isa) -> Worst {
    let mut worst = Worst::default();
    let activations = [
        Activation::None,
        Activation::Relu,
        Activation::Tanh,
        Activation::GeluTanh,
        Activation::GeluErf,
    ];
    for size in sizes(&[]) {
        let case = Case::new(size);
        let (m, n, _) = size;
        let bias = numbers(3, n);
        let residual = numbers(4, m * (n + 1));
        let factors = guard((0..n).map(|i| 0.5 + (i % 3) as f32 * 0.25).collect::<Vec<f32>>());
        for (i, activation) in activations.into_iter().enumerate() {
            let with_bias = i != 1;
            let with_residual = i != 2;
            let epilogue = Epilogue {
                bias: with_bias.then_some(&bias),
                activation,
                residual: with_residual.then_some(Residual { x: &residual, ld: n + 1 }),
            };
            let wanted: Vec<f64> = (0..m * n)
                .map(|i| {
                    let (row, column) = (i / n, i % n);
                    let bias = if with_bias { f64::from(bias[column]) } else { 0.0 };
                    let residual = residual[row * (n + 1) + column];
                    let residual = if with_residual { f64::from(residual) } else { 0.0 };
                    apply(activation, case.exact[row * case.n + column].0 + bias) + residual
                })
                .collect();
            for (i, got) in case.run(isa, epilogue).into_iter().enumerate() {
                let difference = (f64::from(got) - wanted[i]).abs() / (1.0 + wanted[i].abs());
                worst.note(difference, || format!("{size:?} {activation:?} at {i}"));
            }
            let mut bytes = filled(77, m * (n + 5));
            let (scale, zero) = (0.02, 100);
            let factors = (i % 2 == 1).then_some(&factors[..]);
            let out = Output::U8 { out: &mut bytes, scale, zero, factors };
            case.run_into(isa, out, epilogue);
            for (i, got) in packed_rows(&bytes, n, n + 5, &77).into_iter().enumerate() {
                let wanted = wanted[i] * factors.map_or(1.0, |factors| f64::from(factors[i % n]));
                let wanted = (wanted / f64::from(scale) + f64::from(zero)).clamp(0.0, 255.0);
                // Half a step is rounding.
                let difference = (f64::from(got) - wanted).abs() - 0.5;
                worst.note(difference / 255.0, || format!("{size:?} {activation:?} u8 at {i}"));
            }
        }
    }
    worst
}

fn apply(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::None => x,
        Activation::Relu => x.max(0.0),
        Activation::Tanh => x.tanh(),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }
        Activation::GeluErf => {
            let mut y = [0.0f32];
            frazil_kernels::gelu::gelu_erf(&[x as f32], &mut y);
            f64::from(y[0])
        }
    }
}

fn speed(isa: Isa, (m, n, k): (usize, usize, usize), activation: Activation) -> Timed {
    let pool = Pool::new(std::thread::available_parallelism().map_or(1, usize::from));
    let (lda, ldc) = (k + 16, n + 16);
    let (a, plain, bias) = (numbers(1, m * lda), numbers(2, k * n), numbers(3, n));
    let mut w = vec![0.0; f32::packed_len(isa, k, n)];
    f32::pack(isa, &[Columns { w: &plain, order: Orientation::Kn, n }], k, &mut w);
    let mut c = vec![0.0; m * ldc];
    Timed {
        size: format!("{m} x {n} x {k}, {} threads", pool.threads()),
        operations: 2.0 * (m * n * k) as f64,
        bytes: (4 * n * k) as f64,
        run: Box::new(move || {
            let epilogue = Epilogue { bias: Some(&bias), activation, residual: None };
            let out = Output::F32(&mut c);
            f32::run(&pool, isa, f32::Gemm { m, n, k, a: &a, lda, w: &w, out, ldc, epilogue });
        }),
    }
}

/// A product of bytes.
struct Bytes {
    m: usize,
    n: usize,
    k: usize,
    a: Guarded<u8>,
    lda: usize,
    w: Guarded<i8>,
    zeros: Guarded<u8>,
    /// The sums of products without zeros, and the sums of the columns of weights.
    exact: (Vec<i32>, Vec<i32>),
}

/// How large weights are.
#[derive(Clone, Copy, Debug)]
enum Weights {
    /// Up to 64, as whoever wants speed without VNNI chooses them.
    Small,
    /// Mostly small, with some up to the limits.
    Outliers,
    /// Anything.
    Any,
    /// As far from 0 as they can be, activations too.
    Largest,
}

const WEIGHTS: [Weights; 4] = [Weights::Small, Weights::Outliers, Weights::Any, Weights::Largest];

impl Bytes {
    fn new((m, n, k): (usize, usize, usize), weights: Weights) -> Self {
        let lda = k + 3;
        let seed = (m * 10_007 + n * 101 + k) as u64;
        let weight = |x: f32| match weights {
            Weights::Small => (x * 64.0) as i8,
            Weights::Outliers if x.abs() < 0.97 => (x * 40.0) as i8,
            Weights::Outliers | Weights::Any => (x * 128.0).floor() as i8,
            Weights::Largest if x < -0.8 => -128,
            Weights::Largest => 127,
        };
        let byte = |x: f32| match weights {
            Weights::Largest if x > -0.9 => 255,
            _ => ((x + 1.0) * 128.0) as u8,
        };
        let bytes = |seed, n| plain_numbers(seed, n).into_iter().map(byte).collect::<Vec<_>>();
        let (a, zeros) = (guard(bytes(seed, m * lda)), guard(bytes(seed + 2, m)));
        let w: Vec<i8> = plain_numbers(seed + 1, k * n).into_iter().map(weight).collect();
        // At most 300 products of 255 · 128: no overflow.
        let (mut sums, mut columns) = (vec![0i32; m * n], vec![0i32; n]);
        for (a, sums) in a.chunks(lda).zip(sums.chunks_mut(n.max(1))) {
            for (&a, w) in a[..k].iter().zip(w.chunks(n.max(1))) {
                sums.iter_mut().zip(w).for_each(|(sum, &w)| *sum += i32::from(a) * i32::from(w));
            }
        }
        for w in w.chunks(n.max(1)) {
            columns.iter_mut().zip(w).for_each(|(sum, &w)| *sum += i32::from(w));
        }
        Self { m, n, k, a, lda, w: guard(w), zeros, exact: (sums, columns) }
    }

    fn packed(&self, isa: Isa) -> Guarded<u8> {
        let mut packed = filled(99, i8::packed_len(isa, self.k, self.n));
        let parts = [Columns { w: &self.w, order: Orientation::Kn, n: self.n }];
        i8::pack(isa, &parts, self.k, &mut packed);
        packed
    }

    fn factors<'a>(&'a self, w: &'a [u8], zeros: i8::Zeros<'a>) -> i8::Factors<'a> {
        let Self { m, n, k, ref a, lda, .. } = *self;
        i8::Factors { m, n, k, a, lda, zeros, w }
    }

    fn exact(&self, zero: impl Fn(usize) -> u8) -> Vec<i64> {
        let (sums, columns) = &self.exact;
        let of_zero = |i: usize| i64::from(zero(i / self.n)) * i64::from(columns[i % self.n]);
        sums.iter().enumerate().map(|(i, &sum)| i64::from(sum) - of_zero(i)).collect()
    }
}

fn byte_sums(isa: Isa) -> Worst {
    let mut worst = Worst::default();
    let pool = pool();
    for size in sizes(&[]) {
        for weights in WEIGHTS {
            let case = Bytes::new(size, weights);
            let packed = case.packed(isa);
            for zeros in
                [i8::Zeros::Tensor(0), i8::Zeros::Tensor(131), i8::Zeros::Rows(&case.zeros)]
            {
                let wanted = case.exact(|row| match zeros {
                    i8::Zeros::Tensor(zero) => zero,
                    i8::Zeros::Rows(zeros) => zeros[row],
                });
                let ldc = case.n + 5;
                let mut out = filled(77, case.m * ldc);
                i8::sums(&pool, isa, &case.factors(&packed, zeros), &mut out, ldc);
                let got = packed_rows(&out, case.n, ldc, &77);
                for (i, (&got, wanted)) in got.iter().zip(wanted).enumerate() {
                    let difference = (i64::from(got) - wanted).abs() as f64;
                    worst.note(difference, || format!("{size:?} {weights:?} {zeros:?} at {i}"));
                }
            }
        }
    }
    worst
}

fn byte_epilogues(isa: Isa) -> Worst {
    let mut worst = Worst::default();
    let pool = pool();
    for size in sizes(&[]) {
        let case = Bytes::new(size, Weights::Outliers);
        let packed = case.packed(isa);
        let (m, n, _) = size;
        let (bias, residual) = (numbers(3, n), numbers(4, m * n));
        let positive = |seed, n| {
            guard(plain_numbers(seed, n).into_iter().map(|x| 1e-3 * (1.5 + x)).collect::<Vec<_>>())
        };
        let (columns, rows) = (positive(5, n), positive(6, m));
        for by_row in [false, true] {
            let (zeros, scales) = match by_row {
                true => (i8::Zeros::Rows(&case.zeros), i8::Scales::Rows(&rows)),
                false => (i8::Zeros::Tensor(120), i8::Scales::Tensor(0.002)),
            };
            let epilogue = Epilogue {
                bias: Some(&bias),
                activation: Activation::GeluTanh,
                residual: Some(Residual { x: &residual, ld: n }),
            };
            let mut wanted = vec![0.0; m * n];
            for (i, sum) in
                case.exact(|row| if by_row { case.zeros[row] } else { 120 }).into_iter().enumerate()
            {
                let scale = if by_row { rows[i / n] } else { 0.002 };
                let x = sum as f64 * f64::from(scale) * f64::from(columns[i % n])
                    + f64::from(bias[i % n]);
                wanted[i] = apply(Activation::GeluTanh, x) + f64::from(residual[i]);
            }
            let run = |out: Output<'_>| {
                let factors = case.factors(&packed, zeros);
                let gemm = i8::Gemm {
                    factors,
                    scales,
                    column_scales: &columns,
                    out,
                    ldc: n + 5,
                    epilogue,
                };
                i8::run(&pool, isa, gemm);
            };
            let mut numbers = filled(77.0, m * (n + 5));
            run(Output::F32(&mut numbers));
            for (i, got) in packed_rows(&numbers, n, n + 5, &77.0).into_iter().enumerate() {
                let difference = (f64::from(got) - wanted[i]).abs() / (1.0 + wanted[i].abs());
                worst.note(difference, || format!("{size:?} by row: {by_row}, at {i}"));
            }
            let mut bytes = filled(77, m * (n + 5));
            run(Output::U8 { out: &mut bytes, scale: 0.01, zero: 90, factors: None });
            for (i, got) in packed_rows(&bytes, n, n + 5, &77).into_iter().enumerate() {
                let wanted = (wanted[i] / f64::from(0.01f32) + 90.0).clamp(0.0, 255.0);
                let difference = (f64::from(got) - wanted).abs() - 0.5;
                worst.note(difference / 255.0, || format!("{size:?} u8, by row: {by_row}, at {i}"));
            }
        }
    }
    worst
}

fn byte_speed(isa: Isa, (m, n, k): (usize, usize, usize), activation: Activation) -> Timed {
    let pool = Pool::new(std::thread::available_parallelism().map_or(1, usize::from));
    let case = Bytes::new((m, n, k), Weights::Outliers);
    let (packed, scales, bias) = (case.packed(isa), vec![1e-4; n], numbers(3, n));
    let mut c = vec![0; m * n];
    Timed {
        size: format!("{m} x {n} x {k}, {} threads", pool.threads()),
        operations: 2.0 * (m * n * k) as f64,
        bytes: (n * k) as f64,
        run: Box::new(move || {
            let epilogue = Epilogue { bias: Some(&bias), activation, residual: None };
            let out = Output::U8 { out: &mut c, scale: 0.01, zero: 128, factors: None };
            let factors = case.factors(&packed, i8::Zeros::Tensor(128));
            let scales = i8::Gemm {
                factors,
                scales: i8::Scales::Tensor(0.01),
                column_scales: &scales,
                out,
                ldc: n,
                epilogue,
            };
            i8::run(&pool, isa, scales);
        }),
    }
}
