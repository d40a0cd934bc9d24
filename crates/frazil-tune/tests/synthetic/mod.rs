//! A model that is a formula: every operation in bytes costs some accuracy and saves some time,
//! and they add up, with a little noise that is always the same.

use frazil_tune::config::{Criterion, Objective, Strategy};
use frazil_tune::{
    Activation, Algorithm, Choice, Configuration, Error, Extent, Goal, Granularity, Measured, Op,
    OpKind, Result, Settings, Space, Subject,
};
use std::time::Duration;

pub const BASELINE: f64 = 90.0;

pub struct Synthetic {
    ops: Vec<Op>,
    /// Points of accuracy that each costs.
    costs: Vec<f64>,
    pub noise: f64,
    /// Is more better?
    pub higher: bool,
    /// Calls, as (baseline, subset, full, damage).
    pub calls: (usize, usize, usize, usize),
    /// The measurement at which it breaks down.
    pub fails_at: Option<usize>,
    pub accuracy_is: Option<f64>,
    pub pause: Duration,
}

impl Synthetic {
    /// `count` operations; a few cost much, most cost nearly nothing.
    pub fn new(count: usize, total: f64) -> Self {
        let tensor = Choice { granularity: Granularity::Tensor, ..Choice::INT8 };
        let kl = Choice { activation: Activation::Static(Algorithm::Kl), ..Choice::INT8 };
        let op = |index: usize| {
            let (kind, choices) = match index % 8 {
                0 => (OpKind::Table, vec![Choice::INT8, Choice::F32]),
                7 => (OpKind::Attention, vec![Choice::INT8, Choice::F32]),
                _ => (OpKind::Linear, vec![Choice::INT8, tensor, kl, Choice::F32]),
            };
            Op {
                name: format!("layer_{}/op_{index}", index / 8),
                kind,
                saves_us: 20.0 + (index * 7 % 13) as f64,
                saves_bytes: 1000 + index as u64,
                choices,
            }
        };
        let raw: Vec<f64> =
            (0..count).map(|index| 1.0 / (1.0 + (index * 29 % count) as f64).powf(1.5)).collect();
        let sum: f64 = raw.iter().sum();
        Self {
            ops: (0..count).map(op).collect(),
            costs: raw.iter().map(|cost| cost / sum * total).collect(),
            noise: 0.01,
            higher: true,
            calls: (0, 0, 0, 0),
            fails_at: None,
            accuracy_is: None,
            pause: Duration::ZERO,
        }
    }

    pub fn space(&self) -> Space {
        Space::new(&self.ops, &Default::default()).expect("there are operations")
    }

    fn cost(&self, index: usize, choice: &Choice) -> f64 {
        let factor = match choice {
            choice if !choice.is_int8() => 0.0,
            choice if choice.granularity == Granularity::Tensor => 3.0,
            choice if choice.activation == Activation::Static(Algorithm::Kl) => 0.9,
            _ => 1.0,
        };
        self.costs[index] * factor
    }

    fn points(&self, points: f64) -> f64 {
        if self.higher { BASELINE - points } else { BASELINE + points }
    }
}

impl Subject for Synthetic {
    fn ops(&self) -> &[Op] {
        &self.ops
    }

    fn baseline(&mut self) -> Result<Measured> {
        self.calls.0 += 1;
        Ok(Measured {
            accuracy: self.accuracy_is.unwrap_or(BASELINE),
            interval: None,
            full: true,
            latency_ms: 10.0,
            baseline_ms: 10.0,
            bytes: 1_000_000,
        })
    }

    fn measure(&mut self, configuration: &Configuration, extent: Extent) -> Result<Measured> {
        std::thread::sleep(self.pause);
        let full = extent == Extent::Full;
        *(if full { &mut self.calls.2 } else { &mut self.calls.1 }) += 1;
        if self.fails_at == Some(self.calls.1 + self.calls.2) {
            return Err(Error::subject("the evaluation", "the metric printed no number"));
        }
        let (mut lost, mut saved, mut bytes) = (0.0, 0.0, 1_000_000);
        for (index, op) in self.ops.iter().enumerate() {
            let choice = configuration.ops.get(&op.name).expect("all operations are there");
            lost += self.cost(index, choice);
            if choice.is_int8() {
                saved += op.saves_us;
                bytes -= op.saves_bytes;
            }
        }
        let digits =
            u64::from_str_radix(&configuration.key(), 16).expect("a key is sixteen digits");
        let noise = (digits % 1000) as f64 / 1000.0 - 0.5;
        let width = if full { 0.0 } else { 0.3 };
        let accuracy = self.points(lost + noise * (self.noise + width / 4.0));
        Ok(Measured {
            accuracy: self.accuracy_is.unwrap_or(accuracy),
            interval: (!full).then_some((accuracy - width, accuracy + width)),
            full,
            latency_ms: 10.0 - saved / 1000.0,
            baseline_ms: 10.0,
            bytes,
        })
    }

    fn damage(&mut self, configuration: &Configuration) -> Result<Vec<(String, f64)>> {
        self.calls.3 += 1;
        let of = |(index, op): (usize, &Op)| {
            (op.name.clone(), self.cost(index, &configuration.ops[&op.name]))
        };
        Ok(self.ops.iter().enumerate().map(of).collect())
    }
}

pub fn settings(strategy: Strategy, relative: f64) -> Settings {
    Settings {
        strategy,
        goal: Goal { criterion: Criterion::Relative(relative), higher_is_better: true },
        objective: Objective::Performance,
        timeout: Duration::ZERO,
        max_trials: 400,
        performance_only: false,
        seed: 9527,
        accuracy_weight: 1.0,
        latency_weight: 1.0,
        full_evaluations: 8,
    }
}
