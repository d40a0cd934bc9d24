//! Steps of optimizers: their formulas in the order of `f32` operations, bit by bit, and norms.

use frazil_kernels::Isa;
use frazil_kernels::optim::{
    Adam, Moments, Momentum, adam_f32, add_f32, copy_f32, lamb_f32, momentum_f32, pieces,
    square_sum_f32,
};
use frazil_kernels::par::Pool;

use crate::guard::guard;
use crate::{Row, Timed, Worst, numbers, plain_numbers, pool};

pub fn rows() -> Vec<Row> {
    let exact = |kernel, check| Row { kernel, tolerance: 0.0, check, speed: None };
    vec![
        Row { kernel: "adam", tolerance: 0.0, check: adam, speed: Some(adam_speed) },
        exact("lamb", lamb),
        exact("momentum", momentum),
        exact("add onto", added),
        Row { kernel: "sum of squares", tolerance: 1e-6, check: squares, speed: None },
    ]
}

const ADAM: Adam = Adam {
    rate: 0.01,
    beta1: 0.9,
    rest1: 0.1,
    beta2: 0.999,
    rest2: 0.001,
    epsilon: 1e-6,
    decay: 0.01,
    corrections: [1.5, 2.5],
    factor: 0.7,
};

fn sizes() -> impl Iterator<Item = usize> {
    [1, 7, 8, 15, 16, 17, 63, 64, 65, 1000, 40_000].into_iter()
}

fn same(worst: &mut Worst, got: &[f32], wanted: &[f32], what: &str) {
    let n = wanted.len();
    for (i, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        let off = if got.to_bits() == wanted.to_bits() { 0.0 } else { 1.0 };
        worst.note(off, || format!("{n} numbers, {what} {i}: {got} for {wanted}"));
    }
}

/// Moments and the update of one number.
fn step(adam: &Adam, p: f32, g: f32, m: f32, v: f32) -> [f32; 3] {
    let g = g * adam.factor;
    let m = adam.beta1 * m + adam.rest1 * g;
    let v = adam.beta2 * v + adam.rest2 * (g * g);
    let root = (v * adam.corrections[1]).sqrt() + adam.epsilon;
    [m * adam.corrections[0] / root + adam.decay * p, m, v]
}

fn adam(isa: Isa) -> Worst {
    let (mut worst, pool) = (Worst::default(), pool());
    for n in sizes() {
        let (mut p, g, mut m) = (numbers(1, n), numbers(2, n), numbers(3, n));
        let mut v = guard(plain_numbers(4, n).iter().map(|x| x.abs()).collect::<Vec<_>>());
        let all: Vec<[f32; 3]> = (0..n).map(|i| step(&ADAM, p[i], g[i], m[i], v[i])).collect();
        let of = |k: usize| all.iter().map(|all| all[k]).collect::<Vec<f32>>();
        let wanted: Vec<f32> = p.iter().zip(&all).map(|(p, all)| p - ADAM.rate * all[0]).collect();
        adam_f32(&pool, isa, &ADAM, &mut p, &g, Moments { m: &mut m, v: &mut v });
        same(&mut worst, &p, &wanted, "p");
        same(&mut worst, &m, &of(1), "m");
        same(&mut worst, &v, &of(2), "v");
    }
    worst
}

fn lamb(isa: Isa) -> Worst {
    let (mut worst, pool) = (Worst::default(), pool());
    for n in sizes() {
        let (mut p, g, mut m) = (numbers(1, n), numbers(2, n), numbers(3, n));
        let mut v = guard(plain_numbers(4, n).iter().map(|x| x.abs()).collect::<Vec<_>>());
        let all: Vec<[f32; 3]> = (0..n).map(|i| step(&ADAM, p[i], g[i], m[i], v[i])).collect();
        let norm = |x: &mut dyn Iterator<Item = f32>| {
            x.map(|x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt()
        };
        let norms = (norm(&mut p.iter().copied()), norm(&mut all.iter().map(|all| all[0])));
        let rate = 3.0 * ADAM.rate;
        let wanted: Vec<f32> = p.iter().zip(&all).map(|(p, all)| p - rate * all[0]).collect();
        let mut sums = vec![[0.0; 2]; pieces(n)];
        let moments = Moments { m: &mut m, v: &mut v };
        lamb_f32(&pool, isa, &ADAM, &mut p, &g, moments, &mut sums, |found| {
            let off = |a: f64, b: f64| (a / b - 1.0).abs();
            assert!(off(found.weights, norms.0) < 1e-6, "{found:?} for {norms:?}");
            assert!(off(found.update, norms.1) < 1e-6, "{found:?} for {norms:?}");
            3.0
        });
        same(&mut worst, &p, &wanted, "p");
    }
    worst
}

fn momentum(isa: Isa) -> Worst {
    let (mut worst, pool) = (Worst::default(), pool());
    let step = Momentum { rate: 0.1, momentum: 0.9, decay: 0.01, factor: 0.7 };
    for n in sizes() {
        let (mut p, g, mut v) = (numbers(1, n), numbers(2, n), numbers(3, n));
        let ways: Vec<f32> = (0..n)
            .map(|i| step.momentum * v[i] + (g[i] * step.factor + step.decay * p[i]))
            .collect();
        let wanted: Vec<f32> = p.iter().zip(&ways).map(|(p, v)| p - step.rate * v).collect();
        momentum_f32(&pool, isa, &step, &mut p, &g, &mut v);
        same(&mut worst, &p, &wanted, "p");
        same(&mut worst, &v, &ways, "v");
    }
    worst
}

fn added(isa: Isa) -> Worst {
    let (mut worst, pool) = (Worst::default(), pool());
    for n in sizes() {
        let (mut sum, x) = (numbers(1, n), numbers(2, n));
        let wanted: Vec<f32> = sum.iter().zip(x.iter()).map(|(a, b)| a + b).collect();
        add_f32(&pool, isa, &mut sum, &x);
        same(&mut worst, &sum, &wanted, "sum");
        copy_f32(&pool, &mut sum, &x);
        same(&mut worst, &sum, &x, "copy");
    }
    worst
}

fn squares(isa: Isa) -> Worst {
    let (mut worst, pool) = (Worst::default(), pool());
    for n in sizes() {
        let x = numbers(1, n);
        let mut sums = vec![0.0; pieces(n)];
        let got = square_sum_f32(&pool, isa, &x, &mut sums);
        let wanted: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        worst.note((got / wanted - 1.0).abs(), || format!("{n} numbers: {got} for {wanted}"));
    }
    worst
}

fn adam_speed(isa: Isa) -> Timed {
    let n = 1 << 18;
    let (mut p, g, mut m) = (plain_numbers(1, n), plain_numbers(2, n), plain_numbers(3, n));
    let (mut v, pool) = (vec![0.5; n], Pool::new(1));
    Timed {
        size: "262144".into(),
        operations: n as f64,
        bytes: 28.0 * n as f64,
        run: Box::new(move || {
            adam_f32(&pool, isa, &ADAM, &mut p, &g, Moments { m: &mut m, v: &mut v });
        }),
    }
}
