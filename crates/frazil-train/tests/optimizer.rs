//! Optimizers and schedules against what the original's code computed with TensorFlow 1.15.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use frazil_kernels::Isa;
use frazil_kernels::par::Pool;
use frazil_tensor::testing::shared;
use frazil_train::optim::{Adam, Lamb, Method, Optimizer, Options, Sgd, Step};
use frazil_train::schedule::{Bert, Schedule};
use serde_json::Value;

/// Weights or slots by name.
type Numbers = BTreeMap<String, Vec<f32>>;

fn golden() -> Option<Value> {
    let text = std::fs::read(shared("fixtures/optimizer/tiny.json")?).unwrap();
    Some(serde_json::from_slice(&text).unwrap())
}

fn flat(value: &Value, into: &mut Vec<f32>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| flat(value, into)),
        other => into.push(other.as_f64().unwrap() as f32),
    }
}

fn numbers(value: &Value) -> Numbers {
    let list = |value: &Value| {
        let mut list = Vec::new();
        flat(value, &mut list);
        list
    };
    value.as_object().unwrap().iter().map(|(name, value)| (name.clone(), list(value))).collect()
}

/// Weights with their optimizer.
struct Training {
    pool: Pool,
    isa: Isa,
    weights: Numbers,
    optimizer: Optimizer,
}

impl Training {
    fn new(options: Options, weights: Numbers, isa: Isa) -> Self {
        let sizes = weights.iter().map(|(name, values)| (name.as_str(), values.len()));
        let optimizer = Optimizer::new(options, sizes);
        Self { pool: Pool::new(2), isa, weights, optimizer }
    }

    fn step(&mut self, number: u64, rate: f32, grads: &Numbers) -> f64 {
        let step = Step { number, before: 0, rate, beta1: None, divisor: 1.0, square_sum: None };
        let pairs = self
            .weights
            .iter_mut()
            .map(|(name, weight)| (weight.as_mut_slice(), grads[name].as_slice()));
        let taken = self.optimizer.step(&self.pool, self.isa, &step, pairs.collect());
        assert!(taken.changed);
        taken.norm
    }

    /// The largest distance of weights and slots to the golden values, relative to numbers above 1.
    fn distance(&self, golden: &Numbers) -> f64 {
        let mut worst = 0f64;
        let mut compare = |name: &str, found: &[f32]| {
            assert_eq!(found.len(), golden[name].len(), "{name}");
            for (f, g) in found.iter().zip(&golden[name]) {
                worst = worst.max(f64::from((f - g).abs()) / f64::from(g.abs()).max(1.0));
            }
        };
        self.weights.iter().for_each(|(name, found)| compare(name, found));
        self.optimizer
            .slots()
            .for_each(|(of, slot, found)| compare(&format!("{of}/{slot}"), found));
        worst
    }
}

/// One rounding more or less for each of a few operations.
const TOLERANCE: f64 = 3e-7;

#[test]
fn adam_weight_decay() {
    let Some(golden) = golden() else { return };
    let golden = &golden["adam_weight_decay"];
    let options = Options { clip_norm: None, ..Options::bert() };
    for isa in Isa::available() {
        let mut training = Training::new(options.clone(), numbers(&golden["initial"]), isa);
        let rate = golden["learning_rate"].as_f64().unwrap() as f32;
        let steps = golden["gradients"].as_array().unwrap().iter();
        for (i, (grads, after)) in steps.zip(golden["after_step"].as_array().unwrap()).enumerate() {
            training.step(i as u64, rate, &numbers(grads));
            let distance = training.distance(&numbers(after));
            assert!(distance <= TOLERANCE, "{isa}, step {i}: {distance:.1e}");
        }
        for (i, name) in training.weights.keys().enumerate() {
            let decays = golden["do_use_weight_decay"][name].as_bool().unwrap();
            assert_eq!(training.optimizer.decays(i), decays, "{name}");
        }
    }
}

/// Schedule, clipping and Adam together.
#[test]
fn create_optimizer() {
    let Some(golden) = golden() else { return };
    let (adam, golden) = (&golden["adam_weight_decay"], &golden["create_optimizer"]);
    let schedule = bert(golden);
    let initial = numbers(&adam["initial"]);
    let mut training = Training::new(Options::bert(), initial, Isa::Scalar);
    let grads = adam["gradients"].as_array().unwrap();
    for (i, (step, grads)) in golden["steps"].as_array().unwrap().iter().zip(grads).enumerate() {
        let rate = schedule.rate(i as u64);
        assert_eq!(f64::from(rate), step["learning_rate_used"].as_f64().unwrap(), "step {i}");
        // Nothing in the original's graph says which comes first, the update or the increment of
        // `global_step` that the rate is computed from. In this recording it was the increment.
        let rate = schedule.rate(i as u64 + 1);
        let norm = training.step(i as u64, rate, &numbers(grads));
        let expected = step["global_norm"].as_f64().unwrap();
        assert!((norm / expected - 1.0).abs() < 2e-7, "step {i}: {norm} for {expected}");
        let distance = training.distance(&numbers(&step["values"]));
        assert!(distance <= TOLERANCE, "step {i}: {distance:.1e}");
    }
}

fn bert(golden: &Value) -> Schedule {
    let count = |name: &str| golden[name].as_u64().unwrap_or(0);
    Schedule::Bert(Bert {
        rate: golden["init_lr"].as_f64().unwrap(),
        steps: count("num_train_steps"),
        warmup: count("num_warmup_steps"),
    })
}

#[test]
fn schedules_to_the_last_bit() {
    let Some(golden) = golden() else { return };
    let all = golden["schedules"].as_array().unwrap();
    assert_eq!(all.len(), 5);
    for golden in all {
        let schedule = bert(golden);
        for (step, rate) in golden["lr_at_global_step"].as_array().unwrap().iter().enumerate() {
            let found = f64::from(schedule.rate(step as u64));
            assert_eq!(found, rate.as_f64().unwrap(), "{schedule:?} at step {step}");
        }
    }
}

/// The published formulas in `f64`, number by number, for what TensorFlow's golden values lack.
fn formula(method: &Method, plain: bool, rate: f64, grads: &[Vec<f64>], p: &mut [f64]) {
    let n = p.len();
    let (mut m, mut v) = (vec![0.0; n], vec![0.0; n]);
    let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
    for (t, g) in grads.iter().enumerate() {
        let adam = match method {
            Method::Adam(adam) => *adam,
            Method::Lamb(lamb) => lamb.adam,
            Method::Sgd(sgd) => {
                for i in 0..n {
                    let decay = if plain { sgd.weight_decay * p[i] } else { 0.0 };
                    v[i] = sgd.momentum * v[i] + (1.0 - sgd.dampening) * (g[i] + decay);
                    p[i] -= rate * v[i];
                }
                continue;
            }
        };
        let correct = |beta: f64| match adam.bias_correction {
            true => 1.0 - beta.powi(t as i32 + 1),
            false => 1.0,
        };
        let mut update = vec![0.0; n];
        for i in 0..n {
            m[i] = adam.beta1 * m[i] + (1.0 - adam.beta1) * g[i];
            v[i] = adam.beta2 * v[i] + (1.0 - adam.beta2) * g[i] * g[i];
            let root = (v[i] / correct(adam.beta2)).sqrt() + adam.epsilon;
            update[i] = m[i] / correct(adam.beta1) / root;
            if plain {
                update[i] += adam.weight_decay * p[i];
            }
        }
        let ratio = match method {
            Method::Lamb(lamb) if plain => {
                let most = lamb.max_weight_norm.unwrap_or(f64::INFINITY);
                norm(p).min(most) / norm(&update)
            }
            _ => 1.0,
        };
        for i in 0..n {
            p[i] -= rate * ratio * update[i];
        }
    }
}

#[test]
fn every_method_by_its_formula() {
    let sgd = Sgd { momentum: 0.9, dampening: 0.0, weight_decay: 0.01 };
    let capped = Lamb { max_weight_norm: Some(0.5), ..Lamb::MLPERF };
    let methods = [
        Method::Adam(Adam::BERT),
        Method::Adam(Adam::PLAIN),
        Method::Adam(Adam::DECOUPLED),
        Method::Lamb(Lamb::PLAIN),
        Method::Lamb(Lamb::MLPERF),
        Method::Lamb(capped),
        Method::Sgd(sgd),
        Method::Sgd(Sgd { dampening: 0.9, ..sgd }),
    ];
    // Odd lengths, and more than a piece of the sums.
    let sizes = [("dense/kernel", 40_001), ("dense/bias", 37), ("w", 1)];
    let number = |seed: usize, i: usize| ((seed * 7919 + i) as f32 * 0.37).sin();
    let weights: Numbers = sizes
        .iter()
        .enumerate()
        .map(|(s, (name, len))| ((*name).to_owned(), (0..*len).map(|i| number(s, i)).collect()))
        .collect();
    for method in methods {
        let grads: Vec<Numbers> = (1..=3)
            .map(|step| {
                let list = |(s, (name, values)): (usize, (&String, &Vec<f32>))| {
                    let grads = (0..values.len()).map(|i| number(step * 10 + s, i) * 0.1);
                    (name.clone(), grads.collect())
                };
                weights.iter().enumerate().map(list).collect()
            })
            .collect();
        for isa in Isa::available() {
            let options = Options::new(method, None);
            let mut training = Training::new(options, weights.clone(), isa);
            for (i, grads) in grads.iter().enumerate() {
                training.step(i as u64, 1e-2, grads);
            }
            for (at, (name, before)) in weights.iter().enumerate() {
                let mut p: Vec<f64> = before.iter().map(|&x| x.into()).collect();
                let wide = |grads: &Numbers| grads[name].iter().map(|&x| x.into()).collect();
                let grads: Vec<Vec<f64>> = grads.iter().map(wide).collect();
                let plain = training.optimizer.decays(at);
                assert_eq!(plain, name != "dense/bias");
                formula(&method, plain, f64::from(1e-2f32), &grads, &mut p);
                for (i, (found, p)) in training.weights[name].iter().zip(&p).enumerate() {
                    let off = (f64::from(*found) - p).abs();
                    assert!(off < 1e-6, "{method:?} {isa} {name}[{i}]: {found} for {p}");
                }
            }
        }
    }
}

/// The same bits on every instruction set and for any number of threads, but for norms.
#[test]
fn adam_is_the_same_everywhere() {
    let weights: Numbers =
        Numbers::from([("w".into(), (0..100_003).map(|i| (i as f32 * 0.7).cos()).collect())]);
    let grads: Numbers =
        Numbers::from([("w".into(), (0..100_003).map(|i| (i as f32 * 0.3).sin()).collect())]);
    let of = |isa: Isa, threads: usize| {
        let options = Options { clip_norm: None, ..Options::bert() };
        let mut training = Training::new(options, weights.clone(), isa);
        training.pool = Pool::new(threads);
        (0..3).for_each(|i| {
            training.step(i, 1e-3, &grads);
        });
        training.weights
    };
    let expected = of(Isa::Scalar, 1);
    for isa in Isa::available() {
        for threads in [1, 2, 3] {
            assert!(of(isa, threads) == expected, "{isa} {threads}");
        }
    }
}

#[test]
fn numbers_that_no_weight_survives_are_refused() {
    let with = |adam: Adam, clip: f32| Options::new(Method::Adam(adam), Some(clip)).check();
    assert!(Options::bert().check().is_ok());
    assert!(with(Adam::PLAIN, 0.0).is_err() && with(Adam::PLAIN, f32::NAN).is_err());
    for adam in [
        Adam { beta1: 1.0, ..Adam::BERT },
        Adam { beta2: -0.1, ..Adam::BERT },
        Adam { epsilon: f64::NAN, ..Adam::BERT },
        Adam { weight_decay: f64::INFINITY, ..Adam::BERT },
    ] {
        assert!(with(adam, 1.0).is_err(), "{adam:?}");
        assert!(Options::new(Method::Lamb(Lamb { adam, ..Lamb::PLAIN }), None).check().is_err());
    }
    let sgd = Sgd { momentum: 1.0, dampening: 0.0, weight_decay: 0.0 };
    assert!(Options::new(Method::Sgd(sgd), None).check().is_err());
}

#[test]
fn what_is_no_number_changes_nothing() {
    let weights = Numbers::from([("w".into(), vec![1.0; 5])]);
    let mut training = Training::new(Options::bert(), weights.clone(), Isa::Scalar);
    let grads = [1.0, f32::NAN, 1.0, 1.0, 1.0];
    let step =
        Step { number: 0, before: 0, rate: 1.0, beta1: None, divisor: 1.0, square_sum: None };
    let weight = training.weights.get_mut("w").unwrap();
    let pairs = vec![(weight.as_mut_slice(), &grads[..])];
    let taken = training.optimizer.step(&training.pool, Isa::Scalar, &step, pairs);
    assert!(!taken.changed && taken.norm.is_nan());
    assert_eq!(training.weights, weights);
    assert!(training.optimizer.slots().all(|(_, _, slot)| slot.iter().all(|&x| x == 0.0)));
}
