//! The kernels that go over rows: functions, norms, softmax, bytes, lookups.

use std::cell::RefCell;

use frazil_kernels::Isa;
use frazil_kernels::embed::{EmbedNorm, Table, embed_norm_f32};
use frazil_kernels::norm::{Affine, LayerNorm, fused_layer_norm_f32};
use frazil_kernels::number::erf;
use frazil_kernels::par::Pool;
use frazil_kernels::pointwise::{Function, add_f32, bias_f32, map_f32};
use frazil_kernels::quantize::{
    Bytes, MIDDLE, Scales, Steps, dequantize_rows_f32, quantize, quantize_rows_f32,
    quantize_symmetric, range,
};
use frazil_kernels::softmax::{log_softmax_f32, softmax_f32};

use crate::guard::{Guarded, filled, guard};
use crate::{Row, Timed, Worst, numbers, plain_numbers, pool};

/// Lengths around the vectors of every CPU, and others.
const LENGTHS: [usize; 16] = [0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 71, 97, 131, 768];

fn lengths(more: &[usize]) -> impl Iterator<Item = usize> {
    LENGTHS.iter().chain(more).copied()
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::new(pool());
}

fn with_pool<R>(use_it: impl FnOnce(&Pool) -> R) -> R {
    POOL.with_borrow(use_it)
}

pub fn rows() -> Vec<Row> {
    let function =
        |kernel, check, speed| Row { kernel, tolerance: 4e-7, check, speed: Some(speed) };
    let exact = |kernel, check| Row { kernel, tolerance: 0.0, check, speed: None };
    vec![
        function(
            "exp",
            |isa| map(isa, Function::Exp, f64::exp),
            |isa| map_speed(isa, Function::Exp),
        ),
        function(
            "tanh",
            |isa| map(isa, Function::Tanh, f64::tanh),
            |isa| map_speed(isa, Function::Tanh),
        ),
        function("erf", |isa| map(isa, Function::Erf, erf), |isa| map_speed(isa, Function::Erf)),
        function(
            "gelu_tanh",
            |isa| map(isa, Function::GeluTanh, gelu_tanh),
            |isa| map_speed(isa, Function::GeluTanh),
        ),
        function(
            "gelu_erf",
            |isa| map(isa, Function::GeluErf, gelu_erf),
            |isa| map_speed(isa, Function::GeluErf),
        ),
        exact("relu", |isa| map(isa, Function::Relu, |x| x.max(0.0))),
        exact("add", add),
        exact("bias", bias),
        Row { kernel: "softmax", tolerance: 4e-7, check: softmax, speed: Some(softmax_speed) },
        Row { kernel: "log_softmax", tolerance: 1e-6, check: log_softmax, speed: None },
        Row {
            kernel: "layer_norm",
            tolerance: 2e-6,
            check: |isa| norm(isa, false),
            speed: Some(norm_speed),
        },
        Row {
            kernel: "layer_norm + residual",
            tolerance: 2e-6,
            check: |isa| norm(isa, true),
            speed: None,
        },
        exact("layer_norm to bytes", norm_bytes),
        Row { kernel: "quantize", tolerance: 0.0, check: quantized, speed: Some(quantize_speed) },
        Row {
            kernel: "quantize rows",
            tolerance: 0.0,
            check: quantized_rows,
            speed: Some(quantize_rows_speed),
        },
        exact("quantize columns", quantized_columns),
        exact("dequantize", dequantized),
        Row {
            kernel: "embed + layer_norm",
            tolerance: 2e-6,
            check: embed,
            speed: Some(embed_speed),
        },
    ]
}

fn gelu_tanh(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
}

fn gelu_erf(x: f64) -> f64 {
    0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2))
}

fn scaled(seed: u64, n: usize, factor: f32) -> Guarded<f32> {
    shifted(seed, n, factor, 0.0)
}

fn shifted(seed: u64, n: usize, factor: f32, offset: f32) -> Guarded<f32> {
    guard(plain_numbers(seed, n).into_iter().map(|x| x * factor + offset).collect::<Vec<_>>())
}

/// Relative to the result where it is large, else absolute.
fn distance(got: f32, wanted: f64) -> f64 {
    (f64::from(got) - wanted).abs() / wanted.abs().max(1.0)
}

fn compare(worst: &mut Worst, got: &[f32], wanted: &[f64], place: impl Fn(usize) -> String) {
    assert_eq!(got.len(), wanted.len());
    for (i, (&got, &wanted)) in got.iter().zip(wanted).enumerate() {
        worst.note(distance(got, wanted), || format!("{}: {got} for {wanted}", place(i)));
    }
}

fn map(isa: Isa, function: Function, exact: fn(f64) -> f64) -> Worst {
    let mut worst = Worst::default();
    for n in lengths(&[20_000]) {
        let x = scaled(n as u64, n, 12.0);
        let mut out = filled(f32::NAN, n);
        with_pool(|pool| map_f32(pool, isa, function, &x, &mut out));
        let wanted: Vec<f64> = x.iter().map(|&x| exact(f64::from(x))).collect();
        compare(&mut worst, &out, &wanted, |i| format!("{n} numbers, f({})", x[i]));
    }
    worst
}

fn map_speed(isa: Isa, function: Function) -> Timed {
    let n = 32 * 3072;
    let (x, mut out, pool) = (scaled(1, n, 4.0), vec![0.0; n], Pool::new(1));
    Timed {
        size: "32 x 3072".into(),
        operations: n as f64,
        bytes: 8.0 * n as f64,
        run: Box::new(move || map_f32(&pool, isa, function, &x, &mut out)),
    }
}

fn add(isa: Isa) -> Worst {
    let mut worst = Worst::default();
    for n in lengths(&[20_000]) {
        let (a, b) = (numbers(1, n), numbers(2, n));
        let mut out = filled(f32::NAN, n);
        with_pool(|pool| add_f32(pool, isa, &a, &b, &mut out));
        let wanted: Vec<f64> = a.iter().zip(b.iter()).map(|(a, b)| f64::from(a + b)).collect();
        compare(&mut worst, &out, &wanted, |i| format!("{n} numbers, {i}"));
    }
    worst
}

fn bias(isa: Isa) -> Worst {
    let mut worst = Worst::default();
    for n in lengths(&[]) {
        let (x, b) = (numbers(1, 37 * n), numbers(2, n));
        let mut out = filled(f32::NAN, 37 * n);
        with_pool(|pool| bias_f32(pool, isa, &x, &b, &mut out));
        let wanted: Vec<f64> = x.iter().enumerate().map(|(i, x)| f64::from(x + b[i % n])).collect();
        compare(&mut worst, &out, &wanted, |i| format!("{n} columns, {i}"));
    }
    worst
}

fn softmax(isa: Isa) -> Worst {
    let mut worst = Worst::default();
    for n in lengths(&[]) {
        for factor in [1.0, 80.0] {
            let mut x = scaled(n as u64, 23 * n, factor);
            // A row that is far below 0, where what is beyond the end must not count.
            x.iter_mut().take(n).for_each(|x| *x -= 1000.0);
            let (mut out, mut wanted) = (filled(f32::NAN, x.len()), vec![0.0; x.len()]);
            with_pool(|pool| softmax_f32(pool, isa, &x, &mut out, n));
            for (x, wanted) in x.chunks(n.max(1)).zip(wanted.chunks_mut(n.max(1))) {
                let top = x.iter().copied().fold(f32::MIN, f32::max);
                let sum: f64 = x.iter().map(|&x| f64::from(x - top).exp()).sum();
                for (x, wanted) in x.iter().zip(wanted) {
                    *wanted = f64::from(x - top).exp() / sum;
                }
            }
            compare(&mut worst, &out, &wanted, |i| format!("{n} columns, {i}"));
        }
    }
    worst
}

fn log_softmax(isa: Isa) -> Worst {
    let mut worst = Worst::default();
    for n in lengths(&[]) {
        let x = scaled(n as u64, 23 * n, 20.0);
        let (mut out, mut wanted) = (filled(f32::NAN, x.len()), vec![0.0; x.len()]);
        with_pool(|pool| log_softmax_f32(pool, isa, &x, &mut out, n));
        for (x, wanted) in x.chunks(n.max(1)).zip(wanted.chunks_mut(n.max(1))) {
            let sum: f64 = x.iter().map(|&x| f64::from(x).exp()).sum();
            for (&x, wanted) in x.iter().zip(wanted) {
                *wanted = f64::from(x) - sum.ln();
            }
        }
        compare(&mut worst, &out, &wanted, |i| format!("{n} columns, {i}"));
    }
    worst
}

fn softmax_speed(isa: Isa) -> Timed {
    let n = 128 * 384;
    let (x, mut out, pool) = (scaled(1, n, 4.0), vec![0.0; n], Pool::new(1));
    Timed {
        size: "128 x 384".into(),
        operations: n as f64,
        bytes: 8.0 * n as f64,
        run: Box::new(move || softmax_f32(&pool, isa, &x, &mut out, 384)),
    }
}

/// `(x - mean) / √(variance + epsilon) · gamma + beta` in `f64`.
fn normal(x: &[f64], affine: &Affine<'_>) -> Vec<f64> {
    let h = x.len() as f64;
    let mean = x.iter().sum::<f64>() / h;
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / h;
    let scale = 1.0 / (variance + f64::from(affine.epsilon)).sqrt();
    let columns = x.iter().zip(affine.gamma).zip(affine.beta);
    columns.map(|((x, &g), &b)| (x - mean) * scale * f64::from(g) + f64::from(b)).collect()
}

fn norm(isa: Isa, with_residual: bool) -> Worst {
    let mut worst = Worst::default();
    for h in lengths(&[]) {
        for offset in [0.0, 30.0] {
            let (rows, x_ld, r_ld, out_ld) = (29, h + 3, h + 1, h + 5);
            let x = shifted(1, rows * x_ld, 3.0, offset);
            let r = numbers(2, rows * r_ld);
            let (gamma, beta) = (numbers(3, h), numbers(4, h));
            let affine = Affine { gamma: &gamma, beta: &beta, epsilon: 1e-3 };
            let residual = with_residual.then_some((&r[..], r_ld));
            let mut out = filled(f32::NAN, rows * out_ld);
            let norm = LayerNorm { rows, x: &x, x_ld, residual, affine };
            with_pool(|pool| fused_layer_norm_f32(pool, isa, &norm, &mut out, out_ld, None));
            for row in 0..rows {
                let sum = |c: usize| {
                    let r = if with_residual { r[row * r_ld + c] } else { 0.0 };
                    f64::from(x[row * x_ld + c]) + f64::from(r)
                };
                let wanted = normal(&(0..h).map(sum).collect::<Vec<_>>(), &affine);
                let (got, beyond) = out[row * out_ld..][..out_ld].split_at(h);
                assert!(beyond.iter().all(|x| x.is_nan()), "nothing is written between rows");
                // Beside an offset the inputs themselves are that much coarser.
                let coarse = if offset > 0.0 { 10.0 } else { 1.0 };
                for (i, (&got, &wanted)) in got.iter().zip(&wanted).enumerate() {
                    worst.note(distance(got, wanted) / coarse, || {
                        format!("h {h}, row {row}, {i}: {got} for {wanted}")
                    });
                }
            }
        }
    }
    worst
}

fn norm_bytes(isa: Isa) -> Worst {
    let mut worst = Worst::default();
    for h in lengths(&[]) {
        let (rows, ld) = (13, h + 3);
        let x = scaled(1, rows * h, 3.0);
        let (gamma, beta) = (filled(1.0, h), filled(0.1, h));
        let affine = Affine { gamma: &gamma, beta: &beta, epsilon: 1e-12 };
        let norm = LayerNorm { rows, x: &x, x_ld: h, residual: None, affine };
        for dynamic in [false, true] {
            let mut out = filled(f32::NAN, rows * h);
            let mut bytes = filled(77u8, rows * ld);
            let (mut scale, mut zero) = (filled(0.02, rows), filled(100, rows));
            let scales = if dynamic {
                Scales::Rows { scale: &mut scale, zero: &mut zero, top: 127 }
            } else {
                Scales::Tensor { scale: 0.02, zero: 100 }
            };
            let wanted_bytes = Bytes { out: &mut bytes, ld, scales, factors: None };
            with_pool(|pool| {
                fused_layer_norm_f32(pool, isa, &norm, &mut out, h, Some(wanted_bytes));
            });
            for row in 0..rows {
                let x = &out[row * h..][..h];
                if dynamic {
                    let low = x.iter().copied().fold(0.0, f32::min);
                    let high = x.iter().copied().fold(0.0, f32::max);
                    assert_eq!((scale[row], zero[row]), range(low, high, 127), "h {h}");
                }
                let top = if dynamic { 127 } else { 255 };
                let of = (scale[row], zero[row], top);
                same_bytes(&mut worst, &bytes[row * ld..][..ld], x, of);
            }
        }
    }
    worst
}

/// Notes how far the bytes are from the numbers', and that none stands beyond.
fn same_bytes(worst: &mut Worst, bytes: &[u8], x: &[f32], of: (f32, u8, u8)) {
    let (scale, zero, top) = of;
    let (bytes, beyond) = bytes.split_at(x.len());
    assert!(beyond.iter().all(|&byte| byte == 77), "nothing is written between rows");
    for (&got, &x) in bytes.iter().zip(x) {
        let wanted = quantize(x, scale, zero).min(top);
        worst.note(f64::from(got.abs_diff(wanted)), || format!("{x}: {got} for {wanted}"));
    }
}

fn norm_speed(isa: Isa) -> Timed {
    let (rows, h) = (128, 768);
    let (x, r, pool) = (numbers(1, rows * h), numbers(2, rows * h), Pool::new(1));
    let (gamma, beta) = (numbers(3, h), numbers(4, h));
    let mut out = vec![0.0; rows * h];
    Timed {
        size: "128 x 768 + residual".into(),
        operations: (rows * h) as f64,
        bytes: 12.0 * (rows * h) as f64,
        run: Box::new(move || {
            let affine = Affine { gamma: &gamma, beta: &beta, epsilon: 1e-12 };
            let norm = LayerNorm { rows, x: &x, x_ld: h, residual: Some((&r, h)), affine };
            fused_layer_norm_f32(&pool, isa, &norm, &mut out, h, None);
        }),
    }
}

fn quantized(isa: Isa) -> Worst {
    let mut worst = Worst::default();
    for h in lengths(&[]) {
        let (rows, x_ld, ld) = (21, h + 2, h + 3);
        let mut x = scaled(1, rows * x_ld, 4.0);
        for (x, special) in x.iter_mut().zip([1e30, -1e30, f32::NAN, f32::INFINITY, 0.0]) {
            *x = special;
        }
        let mut bytes = filled(77u8, rows * ld);
        let scales = Scales::Tensor { scale: 0.03, zero: 120 };
        let out = Bytes { out: &mut bytes, ld, scales, factors: None };
        with_pool(|pool| quantize_rows_f32(pool, isa, [rows, h], &x, x_ld, out));
        for row in 0..rows {
            let x = &x[row * x_ld..][..h];
            same_bytes(&mut worst, &bytes[row * ld..][..ld], x, (0.03, 120, 255));
        }
    }
    worst
}

fn quantized_rows(isa: Isa) -> Worst {
    let mut worst = Worst::default();
    for h in lengths(&[]) {
        for offset in [-5.0, 0.0, 5.0] {
            let rows = 21;
            let x = shifted(1, rows * h, 4.0, offset);
            let mut bytes = filled(77u8, rows * h);
            let (mut scale, mut zero) = (filled(0.0, rows), filled(0, rows));
            let scales = Scales::Rows { scale: &mut scale, zero: &mut zero, top: 255 };
            let out = Bytes { out: &mut bytes, ld: h, scales, factors: None };
            with_pool(|pool| quantize_rows_f32(pool, isa, [rows, h], &x, h, out));
            for row in 0..rows {
                let x = &x[row * h..][..h];
                let low = x.iter().copied().fold(0.0, f32::min);
                let high = x.iter().copied().fold(0.0, f32::max);
                assert_eq!((scale[row], zero[row]), range(low, high, 255), "h {h}");
                same_bytes(&mut worst, &bytes[row * h..][..h], x, (scale[row], zero[row], 255));
            }
        }
    }
    worst
}

fn quantize_speed(isa: Isa) -> Timed {
    let (rows, h) = (128, 768);
    let (x, mut bytes, pool) = (numbers(1, rows * h), vec![0; rows * h], Pool::new(1));
    Timed {
        size: "128 x 768".into(),
        operations: (rows * h) as f64,
        bytes: 5.0 * (rows * h) as f64,
        run: Box::new(move || {
            let scales = Scales::Tensor { scale: 0.01, zero: 128 };
            let out = Bytes { out: &mut bytes, ld: h, scales, factors: None };
            quantize_rows_f32(&pool, isa, [rows, h], &x, h, out);
        }),
    }
}

fn quantize_rows_speed(isa: Isa) -> Timed {
    let (rows, h) = (128, 768);
    let (x, mut bytes, pool) = (numbers(1, rows * h), vec![0; rows * h], Pool::new(1));
    let (mut scale, mut zero) = (vec![0.0; rows], vec![0; rows]);
    Timed {
        size: "128 x 768".into(),
        operations: (rows * h) as f64,
        bytes: 5.0 * (rows * h) as f64,
        run: Box::new(move || {
            let scales = Scales::Rows { scale: &mut scale, zero: &mut zero, top: 255 };
            let out = Bytes { out: &mut bytes, ld: h, scales, factors: None };
            quantize_rows_f32(&pool, isa, [rows, h], &x, h, out);
        }),
    }
}

/// Columns times factors, in all kinds of bytes.
fn quantized_columns(isa: Isa) -> Worst {
    let mut worst = Worst::default();
    for h in lengths(&[]) {
        let rows = 9;
        let x = scaled(1, rows * h, 4.0);
        let factors = guard((0..h).map(|i| 0.25 + (i % 7) as f32 * 0.5).collect::<Vec<f32>>());
        let y: Vec<f32> = x.iter().enumerate().map(|(i, x)| x * factors[i % h.max(1)]).collect();
        let mut bytes = filled(77u8, rows * h);
        let mut run = |scales: Scales<'_>| {
            let out = Bytes { out: &mut bytes, ld: h, scales, factors: Some(&factors) };
            with_pool(|pool| quantize_rows_f32(pool, isa, [rows, h], &x, h, out));
            bytes.to_vec()
        };
        let same = run(Scales::Tensor { scale: 0.1, zero: 120 });
        same_bytes(&mut worst, &same, &y, (0.1, 120, 255));
        let signed = run(Scales::Symmetric { scale: 0.05 });
        for (&got, &y) in signed.iter().zip(&y) {
            let wanted = (i16::from(quantize_symmetric(y, 0.05)) + i16::from(MIDDLE)) as u8;
            worst.note(f64::from(got.abs_diff(wanted)), || format!("{y}: {got} for {wanted}"));
        }
        let (mut scale, mut zero) = (filled(0.0, rows), filled(0, rows));
        let own = run(Scales::Rows { scale: &mut scale, zero: &mut zero, top: 255 });
        for row in 0..rows {
            let y = &y[row * h..][..h];
            let low = y.iter().copied().fold(0.0, f32::min);
            let high = y.iter().copied().fold(0.0, f32::max);
            assert_eq!((scale[row], zero[row]), range(low, high, 255), "h {h}");
            same_bytes(&mut worst, &own[row * h..][..h], y, (scale[row], zero[row], 255));
        }
    }
    worst
}

fn dequantized(isa: Isa) -> Worst {
    let mut worst = Worst::default();
    for n in lengths(&[2_000]) {
        let (rows, x_ld, out_ld) = (7, n + 1, n + 3);
        let x = guard((0..rows * x_ld).map(|i| (i * 31 % 256) as u8).collect::<Vec<_>>());
        let scale = guard((0..rows).map(|row| 0.37 + row as f32).collect::<Vec<f32>>());
        let zero = guard((0..rows).map(|row| 99 + row as u8).collect::<Vec<u8>>());
        let own = Steps::Rows { scale: &scale, zero: &zero };
        for steps in [Steps::Tensor { scale: 0.37, zero: 99 }, own] {
            let mut out = filled(f32::NAN, rows * out_ld);
            with_pool(|pool| {
                let to = (&mut out[..], out_ld);
                dequantize_rows_f32(pool, isa, [rows, n], (&x, x_ld), steps, to);
            });
            for row in 0..rows {
                let (scale, zero) = match steps {
                    Steps::Tensor { scale, zero } => (scale, zero),
                    Steps::Rows { scale, zero } => (scale[row], zero[row]),
                };
                let number = |&x: &u8| f64::from((f32::from(x) - f32::from(zero)) * scale);
                let wanted: Vec<f64> = x[row * x_ld..][..n].iter().map(number).collect();
                let (got, beyond) = out[row * out_ld..][..out_ld].split_at(n);
                assert!(beyond.iter().all(|x| x.is_nan()), "nothing is written between rows");
                compare(&mut worst, got, &wanted, |i| format!("{n} bytes, row {row}, {i}"));
            }
        }
    }
    worst
}

/// Three tables of `h` columns.
struct Tables {
    words: Guarded<f32>,
    types: Guarded<f32>,
    positions: Guarded<f32>,
    /// The words in bytes, with a scale for each, and one for all.
    bytes: Guarded<i8>,
    scales: [Guarded<f32>; 2],
    gamma: Guarded<f32>,
    beta: Guarded<f32>,
    indices: [Guarded<u32>; 3],
}

impl Tables {
    fn new(t: usize, h: usize) -> Self {
        let indices = [101, 2, 50].map(|entries: usize| {
            guard((0..t).map(|i| (i * 7919 % 1009 % entries) as u32).collect::<Vec<_>>())
        });
        let table = |seed: u64, entries: usize| numbers(seed, entries * h);
        let (words, types, positions) = (table(1, 101), table(2, 2), table(3, 50));
        let bytes = guard(words.iter().map(|&x| quantize_symmetric(x, 0.01)).collect::<Vec<_>>());
        let by_row = (0..101).map(|row| 0.01 + row as f32 * 1e-4).collect::<Vec<f32>>();
        let scales = [guard(by_row), guard(vec![0.01])];
        let (gamma, beta) = (table(4, 1), table(5, 1));
        Self { words, types, positions, bytes, scales, gamma, beta, indices }
    }

    /// `bytes`: which scales words have, if they are bytes.
    fn embed(&self, bytes: Option<usize>) -> EmbedNorm<'_> {
        let [ids, segments, places] = &self.indices;
        let words = match bytes {
            None => Table::F32(&self.words),
            Some(scales) => Table::I8 { bytes: &self.bytes, scales: &self.scales[scales] },
        };
        EmbedNorm {
            words,
            types: Table::F32(&self.types),
            positions: Table::F32(&self.positions),
            ids,
            segments,
            places,
            affine: Affine { gamma: &self.gamma, beta: &self.beta, epsilon: 1e-3 },
        }
    }
}

fn embed(isa: Isa) -> Worst {
    let mut worst = Worst::default();
    let sizes = lengths(&[]).flat_map(|h| [None, Some(0), Some(1)].map(|b| (h, b)));
    for (h, bytes) in sizes {
        let (t, out_ld) = (57, h + 3);
        let tables = Tables::new(t, h);
        let mut out = filled(f32::NAN, t * out_ld);
        let embed = tables.embed(bytes);
        with_pool(|pool| embed_norm_f32(pool, isa, &embed, &mut out, out_ld, None));
        for row in 0..t {
            let entry = |table: Table<'_>, i: u32, c: usize| f64::from(table.number(h, i, c));
            let sum = |c: usize| {
                entry(embed.words, embed.ids[row], c)
                    + entry(embed.types, embed.segments[row], c)
                    + entry(embed.positions, embed.places[row], c)
            };
            let wanted = normal(&(0..h).map(sum).collect::<Vec<_>>(), &embed.affine);
            compare(&mut worst, &out[row * out_ld..][..h], &wanted, |i| {
                format!("h {h}, row {row}, {i}")
            });
        }
    }
    worst
}

fn embed_speed(isa: Isa) -> Timed {
    let (t, h) = (128, 768);
    let (tables, mut out, pool) = (Tables::new(t, h), vec![0.0; t * h], Pool::new(1));
    Timed {
        size: "128 x 768".into(),
        operations: (t * h) as f64,
        bytes: 16.0 * (t * h) as f64,
        run: Box::new(move || embed_norm_f32(&pool, isa, &tables.embed(None), &mut out, h, None)),
    }
}
