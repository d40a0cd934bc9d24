//! Rounds: every arm runs a workload, then every arm the next one, in an order that rotates.

use std::fs;

use anyhow::{Context, Result};
use serde::Serialize;

use super::arms::Arm;
use super::stats::{Summary, quantile};
use super::workload::{Batching, Workload};

/// An arm's times on a workload.
#[derive(Clone, Debug, Serialize)]
pub struct Measure {
    /// The workload's name.
    pub workload: &'static str,
    /// The engine's.
    pub engine: &'static str,
    /// `f32` or `int8`.
    pub precision: &'static str,
    /// How the sequences were batched: the fastest way of those that were tried.
    pub batching: String,
    /// Sequences of the workload.
    pub sequences: usize,
    /// Seconds of the whole workload.
    pub seconds: Summary,
    /// By the median.
    pub sequences_per_s: f64,
}

/// Something that arms are asked to do, each in its own way.
pub struct Task {
    /// The workload's name.
    pub name: &'static str,
    /// Sequences.
    pub sequences: usize,
    /// Runs before time is taken.
    pub warm: usize,
    /// Timed runs of a round.
    pub repeat: usize,
    /// One for each arm; `None` for an arm that failed.
    pub ways: Vec<Option<Batching>>,
}

impl Task {
    /// Tries, on every arm, all the batchings that it may choose from, and keeps its fastest. This
    /// is the warm-up, too. `complain` hears of arms that cannot.
    pub fn choose(
        workload: &Workload,
        arms: &mut [Arm],
        quick: bool,
        complain: &mut dyn FnMut(String),
    ) -> Result<Self> {
        let mut ways = Vec::new();
        for arm in arms {
            let mut best: Option<(f64, Batching)> = None;
            for batching in workload.batchings(arm.engine.door, quick)? {
                match arm.seconds(&batching.request(0, 1, false)) {
                    Ok(seconds) => {
                        let took = seconds.first().copied().unwrap_or(f64::INFINITY);
                        if best.as_ref().is_none_or(|(least, _)| took < *least) {
                            best = Some((took, batching));
                        }
                    }
                    Err(error) => {
                        complain(format!("{}, {}: {error:#}", workload.name, batching.name));
                    }
                }
            }
            ways.push(best.map(|(_, batching)| batching));
        }
        Ok(Self {
            name: workload.name,
            sequences: workload.lengths(quick)?.len(),
            warm: workload.warm,
            repeat: workload.repeat,
            ways,
        })
    }

    /// The same way for all arms.
    pub fn same(name: &'static str, batching: &Batching, arms: usize, repeat: usize) -> Self {
        let sequences = batching.batches.iter().map(Vec::len).sum();
        Self { name, sequences, warm: 1, repeat, ways: vec![Some(batching.clone()); arms] }
    }
}

/// Runs all tasks on all arms, `rounds` times. An arm that fails in any round has no measure.
pub fn run(
    arms: &mut [Arm],
    tasks: &[Task],
    rounds: usize,
    complain: &mut dyn FnMut(String),
) -> Vec<Measure> {
    let mut samples = vec![vec![Some(Vec::new()); arms.len()]; tasks.len()];
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        for (task, samples) in tasks.iter().zip(&mut samples) {
            for place in 0..arms.len() {
                let i = (place + round) % arms.len();
                let Some(batching) = &task.ways[i] else { continue };
                if samples[i].is_none() {
                    continue;
                }
                let request = batching.request(task.warm, task.repeat, false);
                let sample = arms[i].seconds(&request).and_then(|seconds| {
                    let median = quantile(&seconds, 0.5);
                    median.is_finite().then_some(median).context("no times")
                });
                match (sample, &mut samples[i]) {
                    (Ok(sample), Some(samples)) => samples.push(sample),
                    (Ok(_), None) => {}
                    (Err(error), failed) => {
                        complain(format!("{}: {error:#}", task.name));
                        *failed = None;
                    }
                }
            }
        }
    }
    let mut measures = Vec::new();
    for (task, samples) in tasks.iter().zip(samples) {
        for ((arm, way), samples) in arms.iter().zip(&task.ways).zip(samples) {
            let (Some(way), Some(samples)) = (way, samples) else { continue };
            let seconds = Summary::new(samples);
            measures.push(Measure {
                workload: task.name,
                engine: arm.engine.name,
                precision: arm.precision.name(),
                batching: way.name.clone(),
                sequences: task.sequences,
                sequences_per_s: task.sequences as f64 / seconds.median,
                seconds,
            });
        }
    }
    measures
}

/// How busy the machine was with anything else.
pub struct Others {
    busy: f64,
    total: f64,
    own: f64,
}

impl Others {
    /// From now on.
    pub fn start(arms: &[Arm]) -> Self {
        let (busy, total) = machine_seconds();
        Self { busy, total, own: own_seconds(arms) }
    }

    /// The part of the machine's time that neither we nor the arms used.
    pub fn share(&self, arms: &[Arm]) -> f64 {
        let (busy, total) = machine_seconds();
        let others = (busy - self.busy) - (own_seconds(arms) - self.own);
        (others / (total - self.total).max(0.01)).clamp(0.0, 1.0)
    }
}

fn own_seconds(arms: &[Arm]) -> f64 {
    arms.iter().map(Arm::cpu_seconds).sum()
}

/// Busy and all seconds of all CPUs since the machine started.
fn machine_seconds() -> (f64, f64) {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().next().unwrap_or_default();
    let ticks: Vec<f64> =
        line.split_whitespace().skip(1).take(8).filter_map(|t| t.parse().ok()).collect();
    let total: f64 = ticks.iter().sum();
    let idle: f64 = ticks.iter().skip(3).take(2).sum();
    ((total - idle) / 100.0, total / 100.0)
}
