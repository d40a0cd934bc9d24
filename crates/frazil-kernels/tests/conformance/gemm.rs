//! The matrix products.

use frazil_kernels::Isa;
use frazil_kernels::gemm::{Activation, Epilogue, Orientation, Output, Residual, f32};
use frazil_kernels::par::Pool;

use crate::{Row, Timed, Worst, numbers};

pub fn rows() -> Vec<Row> {
    vec![
        Row {
            kernel: "gemm f32, sums",
            // Of the sum of absolute products: the roundings of up to 300 additions.
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
    ]
}

/// Around tiles (6 and 14 rows), vectors (8 and 16 columns), panels, and steps of k; and primes.
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

/// A product on two threads, with gaps between the rows, and what may not be touched untouched.
struct Case {
    m: usize,
    n: usize,
    k: usize,
    a: Vec<f32>,
    lda: usize,
    w: Vec<f32>,
}

impl Case {
    fn new((m, n, k): (usize, usize, usize)) -> Self {
        let lda = k + 3;
        let seed = (m * 10_007 + n * 101 + k) as u64;
        Self { m, n, k, a: numbers(seed, m * lda), lda, w: numbers(seed + 1, k * n) }
    }

    fn run(&self, isa: Isa, epilogue: Epilogue<'_>) -> Vec<f32> {
        let ldc = self.n + 5;
        let mut c = vec![77.0; self.m * ldc];
        self.run_into(isa, Output::F32(&mut c), epilogue);
        packed_rows(&c, self.n, ldc, &77.0)
    }

    fn run_into(&self, isa: Isa, out: Output<'_>, epilogue: Epilogue<'_>) {
        let Self { m, n, k, lda, .. } = *self;
        let mut w = vec![f32::NAN; f32::packed_len(isa, k, n)];
        f32::pack(isa, &self.w, Orientation::Kn, k, n, &mut w);
        let gemm = f32::Gemm { m, n, k, a: &self.a, lda, w: &w, out, ldc: n + 5, epilogue };
        f32::run(&Pool::new(2), isa, gemm);
    }

    /// The sum in f64, and the sum of the absolute products.
    fn exact(&self, row: usize, column: usize) -> (f64, f64) {
        let product = |i: usize| {
            f64::from(self.a[row * self.lda + i]) * f64::from(self.w[i * self.n + column])
        };
        let sums = |(sum, absolute), x: f64| (sum + x, absolute + x.abs());
        (0..self.k).map(product).fold((0.0, 0.0), sums)
    }
}

/// The rows without the gaps, which must be as they were.
fn packed_rows<T: PartialEq + Copy>(c: &[T], n: usize, ldc: usize, gap: &T) -> Vec<T> {
    let rows = || c.chunks_exact(ldc);
    assert!(rows().all(|row| row[n..].iter().all(|x| x == gap)), "written between the rows");
    rows().flat_map(|row| &row[..n]).copied().collect()
}

fn exact(case: &Case, _: &[f32], row: usize, column: usize, got: f32) -> f64 {
    let (sum, absolute) = case.exact(row, column);
    (f64::from(got) - sum).abs() / absolute.max(1e-30)
}

fn scalar(case: &Case, scalar: &[f32], row: usize, column: usize, got: f32) -> f64 {
    f64::from(u8::from(scalar[row * case.n + column].to_bits() != got.to_bits()))
}

fn sums(isa: Isa, difference: fn(&Case, &[f32], usize, usize, f32) -> f64) -> Worst {
    let mut worst = Worst::default();
    for size in SIZES {
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
    for size in SIZES {
        let case = Case::new(size);
        let (m, n, _) = size;
        let bias = numbers(3, n);
        let residual = numbers(4, m * (n + 1));
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
                    apply(activation, case.exact(row, column).0 + bias) + residual
                })
                .collect();
            for (i, got) in case.run(isa, epilogue).into_iter().enumerate() {
                let difference = (f64::from(got) - wanted[i]).abs() / (1.0 + wanted[i].abs());
                worst.note(difference, || format!("{size:?} {activation:?} at {i}"));
            }
            let mut bytes = vec![77; m * (n + 5)];
            let (scale, zero) = (0.02, 100);
            let out = Output::U8 { out: &mut bytes, scale, zero };
            case.run_into(isa, out, epilogue);
            for (i, got) in packed_rows(&bytes, n, n + 5, &77).into_iter().enumerate() {
                let wanted = (wanted[i] / f64::from(scale) + f64::from(zero)).clamp(0.0, 255.0);
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
            frazil_kernels::gelu::gelu_erf_f32(&[x as f32], &mut y);
            f64::from(y[0])
        }
    }
}

fn speed(isa: Isa, (m, n, k): (usize, usize, usize), activation: Activation) -> Timed {
    let pool = Pool::new(std::thread::available_parallelism().map_or(1, usize::from));
    let (lda, ldc) = (k + 16, n + 16);
    let (a, plain, bias) = (numbers(1, m * lda), numbers(2, k * n), numbers(3, n));
    let mut w = vec![0.0; f32::packed_len(isa, k, n)];
    f32::pack(isa, &plain, Orientation::Kn, k, n, &mut w);
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
