//! What training adds: gradients, losses, dropout, matrices that are packed on the way, optimizers.

mod attention;
mod matrix;
mod optim;

use frazil_kernels::Isa;
use frazil_kernels::columns::add_up;
use frazil_kernels::dropout::{Dropout, dropout, dropout_f32};
use frazil_kernels::embed::{EmbedRows, Table, embed_rows_f32, scatter_rows_f32};
use frazil_kernels::gelu::{Form, Slopes, gelu_erf_grad, gelu_grad_f32, gelu_tanh_grad};
use frazil_kernels::loss::{
    Scores, cross_entropy, cross_entropy_f32, cross_entropy_grad, cross_entropy_grad_f32,
};
use frazil_kernels::movement::scatter_add;
use frazil_kernels::norm::{
    LayerNormGrad, NormGrads, layer_norm_grad, layer_norm_grad_f32, norm_scratch_len,
};
use frazil_kernels::par::Pool;
use frazil_kernels::random::Key;

use crate::guard::{Guarded, filled, guard};
use crate::{Row, Timed, Worst, numbers, plain_numbers, pool};

pub fn rows() -> Vec<Row> {
    let exact = |kernel, check| Row { kernel, tolerance: 0.0, check, speed: None };
    let own = vec![
        Row {
            kernel: "gelu_tanh gradient",
            tolerance: 2e-6,
            check: |isa| gelu(isa, Form::Tanh, gelu_tanh_grad),
            speed: Some(|isa| gelu_speed(isa, Form::Tanh)),
        },
        Row {
            kernel: "gelu_erf gradient",
            tolerance: 2e-6,
            check: |isa| gelu(isa, Form::Erf, gelu_erf_grad),
            speed: Some(|isa| gelu_speed(isa, Form::Erf)),
        },
        Row {
            kernel: "layer_norm gradient",
            tolerance: 4e-6,
            check: norm,
            speed: Some(norm_speed),
        },
        Row { kernel: "cross_entropy", tolerance: 1e-6, check: entropy, speed: None },
        Row { kernel: "cross_entropy gradient", tolerance: 1e-6, check: entropy_grad, speed: None },
        Row { kernel: "sums over rows", tolerance: 1e-6, check: sums, speed: Some(sums_speed) },
        exact("scatter", scatter),
        exact("embed", embed),
        Row { kernel: "dropout", tolerance: 0.0, check: drop, speed: Some(drop_speed) },
    ];
    [own, matrix::rows(), attention::rows(), optim::rows()].into_iter().flatten().collect()
}

/// Lengths around the vectors of every CPU, and others.
fn lengths() -> impl Iterator<Item = usize> {
    [1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 71, 97, 131, 768].into_iter()
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| x.into()).collect()
}

/// `rows` rows of `columns`, `ld` apart, one after the other.
fn dense(x: &[f32], ld: usize, rows: usize, columns: usize) -> Vec<f32> {
    (0..rows).flat_map(|row| x[row * ld..][..columns].to_vec()).collect()
}

/// Between rows nothing was written.
fn untouched(x: &[f32], ld: usize, columns: usize) {
    let gaps = x.chunks(ld).filter_map(|row| row.get(columns..));
    assert!(gaps.flatten().all(|x| x.is_nan()), "nothing is written between rows");
}

/// Notes differences relative to the largest wanted number, or to 1 if that is more.
fn compare(worst: &mut Worst, got: &[f32], wanted: &[f64], place: impl Fn(usize) -> String) {
    assert_eq!(got.len(), wanted.len());
    let largest = wanted.iter().fold(1f64, |largest, x| largest.max(x.abs()));
    for (i, (&got, &wanted)) in got.iter().zip(wanted).enumerate() {
        let off = (f64::from(got) - wanted).abs() / largest;
        worst.note(off, || format!("{}: {got} for {wanted}", place(i)));
    }
}

fn scaled(seed: u64, n: usize, factor: f32) -> Guarded<f32> {
    guard(plain_numbers(seed, n).into_iter().map(|x| x * factor).collect::<Vec<_>>())
}

fn gelu(isa: Isa, form: Form, exact: fn(&[f64], &[f64], &mut [f64])) -> Worst {
    let (mut worst, pool) = (Worst::default(), pool());
    for n in lengths() {
        let (rows, x_ld, dy_ld, ld) = (11, n + 3, n + 1, n + 2);
        let (x, dy) = (scaled(1, rows * x_ld, 12.0), numbers(2, rows * dy_ld));
        let mut dx = filled(f32::NAN, rows * ld);
        let slopes = Slopes { extents: [rows, n], x: (&x, x_ld), dy: (&dy, dy_ld) };
        gelu_grad_f32(&pool, isa, form, &slopes, &mut dx, ld);
        untouched(&dx, ld, n);
        let (x, dy) = (wide(&dense(&x, x_ld, rows, n)), wide(&dense(&dy, dy_ld, rows, n)));
        let mut wanted = vec![0.0; x.len()];
        exact(&x, &dy, &mut wanted);
        compare(&mut worst, &dense(&dx, ld, rows, n), &wanted, |i| format!("{n}: {}", x[i]));
    }
    worst
}

fn gelu_speed(isa: Isa, form: Form) -> Timed {
    let (rows, n) = (32, 3072);
    let (x, dy, pool) = (scaled(1, rows * n, 4.0), numbers(2, rows * n), Pool::new(1));
    let mut dx = vec![0.0; rows * n];
    Timed {
        size: "32 x 3072".into(),
        operations: (rows * n) as f64,
        bytes: 12.0 * (rows * n) as f64,
        run: Box::new(move || {
            let slopes = Slopes { extents: [rows, n], x: (&x, n), dy: (&dy, n) };
            gelu_grad_f32(&pool, isa, form, &slopes, &mut dx, n);
        }),
    }
}

fn norm(isa: Isa) -> Worst {
    let (mut worst, pool) = (Worst::default(), pool());
    for h in lengths() {
        for rows in [1, 32, 71] {
            let (x_ld, dy_ld, ld) = (h + 3, h + 1, h + 2);
            let (x, dy) = (scaled(1, rows * x_ld, 3.0), numbers(2, rows * dy_ld));
            let gamma = numbers(3, h);
            let mut dx = filled(f32::NAN, rows * ld);
            let (mut dgamma, mut dbeta) = (filled(f32::NAN, h), filled(f32::NAN, h));
            let mut scratch = filled(f32::NAN, norm_scratch_len(rows, h));
            let grad = LayerNormGrad {
                rows,
                x: (&x, x_ld),
                dy: (&dy, dy_ld),
                gamma: &gamma,
                epsilon: 1e-2,
            };
            let both = [&mut dgamma[..], &mut dbeta[..]];
            layer_norm_grad_f32(&pool, isa, &grad, (&mut dx, ld), both, &mut scratch);
            untouched(&dx, ld, h);
            let (x, dy) = (wide(&dense(&x, x_ld, rows, h)), wide(&dense(&dy, dy_ld, rows, h)));
            let mut wanted = (vec![0.0; rows * h], vec![0.0; h], vec![0.0; h]);
            let grads =
                NormGrads { dx: &mut wanted.0, dgamma: &mut wanted.1, dbeta: &mut wanted.2 };
            let mut stats = vec![[0.0; 2]; rows];
            layer_norm_grad(&x, &wide(&gamma), &dy, 1e-2, grads, &mut stats);
            let place = |what: &'static str| move |i: usize| format!("{rows} x {h}: {what} {i}");
            compare(&mut worst, &dense(&dx, ld, rows, h), &wanted.0, place("dx"));
            compare(&mut worst, &dgamma, &wanted.1, place("gamma"));
            compare(&mut worst, &dbeta, &wanted.2, place("beta"));
        }
    }
    worst
}

fn norm_speed(isa: Isa) -> Timed {
    let (rows, h) = (128, 768);
    let (x, dy, gamma, pool) =
        (numbers(1, rows * h), numbers(2, rows * h), numbers(3, h), Pool::new(1));
    let (mut dx, mut both) = (vec![0.0; rows * h], vec![0.0; 2 * h]);
    let mut scratch = vec![0.0; norm_scratch_len(rows, h)];
    Timed {
        size: "128 x 768".into(),
        operations: (rows * h) as f64,
        bytes: 12.0 * (rows * h) as f64,
        run: Box::new(move || {
            let (x, dy) = ((&x[..], h), (&dy[..], h));
            let grad = LayerNormGrad { rows, x, dy, gamma: &gamma, epsilon: 1e-12 };
            let (dgamma, dbeta) = both.split_at_mut(h);
            let both = [dgamma, dbeta];
            layer_norm_grad_f32(&pool, isa, &grad, (&mut dx, h), both, &mut scratch);
        }),
    }
}

/// Scores with a row far below 0 and labels, one of which counts for nothing.
fn scores(n: usize) -> (usize, Guarded<f32>, Guarded<i32>) {
    let (rows, ld) = (9, n + 3);
    let mut x = scaled(1, rows * ld, 20.0);
    x.iter_mut().take(n).for_each(|x| *x -= 1000.0);
    let label = |row: usize| if row == 4 { -1 } else { (row * 7 % n) as i32 };
    (ld, x, guard((0..rows).map(label).collect::<Vec<_>>()))
}

fn entropy(isa: Isa) -> Worst {
    let (mut worst, pool) = (Worst::default(), pool());
    for n in lengths() {
        let (ld, x, labels) = scores(n);
        let rows = labels.len();
        let (mut out, mut wanted) = (filled(f32::NAN, rows), vec![0.0; rows]);
        let all = Scores { x: &x, ld, columns: n, labels: &labels };
        cross_entropy_f32(&pool, isa, &all, &mut out);
        let labels: Vec<i64> = labels.iter().map(|&label| label.into()).collect();
        cross_entropy(&wide(&dense(&x, ld, rows, n)), &labels, &mut wanted)
            .expect("labels and indices are in range");
        compare(&mut worst, &out, &wanted, |i| format!("{n} classes, row {i}"));
    }
    worst
}

fn entropy_grad(isa: Isa) -> Worst {
    let (mut worst, pool) = (Worst::default(), pool());
    for n in lengths() {
        let (ld, x, labels) = scores(n);
        let (rows, dx_ld) = (labels.len(), n + 1);
        let dy = numbers(2, rows);
        let (mut dx, mut wanted) = (filled(f32::NAN, rows * dx_ld), vec![0.0; rows * n]);
        let all = Scores { x: &x, ld, columns: n, labels: &labels };
        cross_entropy_grad_f32(&pool, isa, &all, &dy, &mut dx, dx_ld);
        untouched(&dx, dx_ld, n);
        let labels: Vec<i64> = labels.iter().map(|&label| label.into()).collect();
        let exact = wide(&dense(&x, ld, rows, n));
        cross_entropy_grad(&exact, &labels, &wide(&dy), &mut wanted)
            .expect("labels and indices are in range");
        compare(&mut worst, &dense(&dx, dx_ld, rows, n), &wanted, |i| format!("{n}: {i}"));
    }
    worst
}

fn sums(isa: Isa) -> Worst {
    let (mut worst, pool) = (Worst::default(), pool());
    for n in lengths() {
        for rows in [0, 1, 64, 65, 211] {
            let ld = n + 3;
            let x = numbers(1, (rows * ld).saturating_sub(3));
            let mut out = filled(f32::NAN, n);
            add_up(&pool, isa, &x, ld, [rows, n], &mut out);
            let column = |c: usize| (0..rows).map(|row| f64::from(x[row * ld + c])).sum();
            let wanted: Vec<f64> = (0..n).map(column).collect();
            compare(&mut worst, &out, &wanted, |i| format!("{rows} x {n}: {i}"));
        }
    }
    worst
}

fn sums_speed(isa: Isa) -> Timed {
    let (rows, n) = (128, 3072);
    let (x, mut out, pool) = (numbers(1, rows * n), vec![0.0; n], Pool::new(1));
    Timed {
        size: "128 x 3072".into(),
        operations: (rows * n) as f64,
        bytes: 4.0 * (rows * n) as f64,
        run: Box::new(move || add_up(&pool, isa, &x, n, [rows, n], &mut out)),
    }
}

fn scatter(isa: Isa) -> Worst {
    let (mut worst, pool) = (Worst::default(), pool());
    for h in lengths() {
        let (rows, entries, ld) = (37, 11, h + 3);
        let dy = numbers(1, rows * ld);
        let indices: Vec<u32> = (0..rows).map(|i| i as u32 * 7 % 11).collect();
        let plain: Vec<i64> = indices.iter().map(|&i| i.into()).collect();
        let mut wanted = vec![0.0; entries * h];
        scatter_add(&dense(&dy, ld, rows, h), &plain, h, &mut wanted)
            .expect("labels and indices are in range");
        let mut out = filled(f32::NAN, entries * h);
        scatter_rows_f32(&pool, isa, (&dy, ld), h, &indices, &mut out, false);
        compare(&mut worst, &out, &wide(&wanted), |i| format!("{h}: {i}"));
        // Onto numbers that are there: whole ones, so that no sum is rounded otherwise.
        let mut onto = filled(0.0, entries * h);
        let (whole, ones) = (filled(1.0, rows * ld), vec![1.0; rows * h]);
        onto.iter_mut().enumerate().for_each(|(i, x)| *x = i as f32);
        scatter_rows_f32(&pool, isa, (&whole, ld), h, &indices, &mut onto, true);
        scatter_add(&ones, &plain, h, &mut wanted).expect("labels and indices are in range");
        let sums: Vec<f64> =
            wanted.iter().enumerate().map(|(i, &x)| f64::from(x) + i as f64).collect();
        compare(&mut worst, &onto, &sums, |i| format!("{h}, onto: {i}"));
    }
    worst
}

fn embed(isa: Isa) -> Worst {
    let (mut worst, pool) = (Worst::default(), pool());
    for h in lengths() {
        let (rows, ld) = (19, h + 3);
        let tables = [numbers(1, 11 * h), numbers(2, 2 * h), numbers(3, 8 * h)];
        let indices = [11, 2, 8].map(|n| (0..rows).map(|i| i as u32 * 5 % n).collect::<Vec<u32>>());
        let all = EmbedRows {
            tables: [0, 1, 2].map(|i| Table::F32(&tables[i])),
            indices: [&indices[0], &indices[1], &indices[2]],
            width: h,
        };
        let mut out = filled(f32::NAN, rows * ld);
        embed_rows_f32(&pool, isa, &all, &mut out, ld);
        untouched(&out, ld, h);
        let sum = |i: usize| {
            let at = |t: usize| tables[t][indices[t][i / h] as usize * h + i % h];
            f64::from(at(0) + at(1) + at(2))
        };
        let wanted: Vec<f64> = (0..rows * h).map(sum).collect();
        compare(&mut worst, &dense(&out, ld, rows, h), &wanted, |i| format!("{h}: {i}"));
    }
    worst
}

fn drop(isa: Isa) -> Worst {
    let (mut worst, pool) = (Worst::default(), pool());
    let how = Dropout { rate: 0.1, site: 3, key: Key { seed: 77, step: 5 } };
    for n in lengths() {
        let (rows, x_ld, ld) = (23, n + 3, n + 1);
        let x = numbers(1, rows * x_ld);
        let places: Vec<u32> = (0..rows).map(|i| i as u32 * 65536 + 9).collect();
        let mut out = filled(f32::NAN, rows * ld);
        dropout_f32(&pool, isa, (&x, x_ld), n, &places, (&mut out, ld), &how);
        untouched(&out, ld, n);
        let mut wanted = vec![0.0; rows * n];
        dropout(&dense(&x, x_ld, rows, n), &places, &mut wanted, &how);
        compare(&mut worst, &dense(&out, ld, rows, n), &wide(&wanted), |i| format!("{n}: {i}"));
    }
    worst
}

fn drop_speed(isa: Isa) -> Timed {
    let (rows, n) = (128, 768);
    let (x, mut out, pool) = (numbers(1, rows * n), vec![0.0; rows * n], Pool::new(1));
    let places: Vec<u32> = (0..rows as u32).collect();
    let how = Dropout { rate: 0.1, site: 3, key: Key { seed: 77, step: 5 } };
    Timed {
        size: "128 x 768".into(),
        operations: (rows * n) as f64,
        bytes: 8.0 * (rows * n) as f64,
        run: Box::new(move || {
            dropout_f32(&pool, isa, (&x, n), n, &places, (&mut out, n), &how);
        }),
    }
}
