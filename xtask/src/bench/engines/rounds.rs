//! Rounds: every arm runs a workload, then every arm the next one, in an order that rotates.

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result};
use serde::Serialize;

use super::arms::{Arm, OURS};
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
    /// Whether it was run on some of the batches only, before the rounds, and found far behind.
    pub estimated: bool,
    /// Seconds of the whole workload.
    pub seconds: Summary,
    /// By the median.
    pub sequences_per_s: f64,
}

/// How an arm does a task.
#[derive(Clone, Debug)]
pub struct Way {
    /// Its batches.
    pub batching: Batching,
    /// Seconds of the whole, from some of the batches.
    pub estimate: f64,
    /// Whether it is measured in the rounds, or so far behind the best peer that the estimate does.
    pub measured: bool,
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
    pub ways: Vec<Option<Way>>,
}

/// A peer whose estimate for a list is so many times the best peer's is not measured further: lists
/// take most of the time, and only the best peer is compared with.
const BEHIND: f64 = 1.15;

/// The ways that were chosen before, by arm and by what there was to choose from.
pub type Chosen = Vec<(usize, Vec<Batching>, Option<Way>)>;

impl Task {
    /// Tries, on every arm, all the batchings that it may choose from, and keeps its fastest. This
    /// is the warm-up, too. Only arms that `agree` can be the best peer. `complain` hears of arms that
    /// cannot.
    pub fn choose(
        workload: &Workload,
        arms: &mut [Arm],
        agree: &[bool],
        quick: bool,
        chosen: &mut Chosen,
        complain: &mut dyn FnMut(String),
    ) -> Result<Self> {
        let list = workload.is_list() && !quick;
        let mut ways = Vec::new();
        for (i, arm) in arms.iter_mut().enumerate() {
            if workload.is_list() && !arm.engine.lists {
                complain(format!("{}: {} has a plan for each shape", workload.name, arm.name()));
                ways.push(None);
                continue;
            }
            let choice = workload.batchings(arm.engine.door, quick)?;
            let known = chosen.iter().find(|(arm, from, _)| *arm == i && *from == choice);
            if let Some((_, _, way)) = known {
                ways.push(way.clone());
                continue;
            }
            let mut best: Option<Way> = None;
            for batching in choice.clone() {
                let probe = if list { batching.part(0).probe() } else { batching.clone() };
                let share = batching.rows() as f64 / probe.rows().max(1) as f64;
                match arm.seconds(&probe.request(0, if list { 2 } else { 1 }, false)) {
                    Ok(seconds) => {
                        let least = seconds.into_iter().fold(f64::INFINITY, f64::min);
                        let estimate = least * share;
                        if best.as_ref().is_none_or(|best| estimate < best.estimate) {
                            best = Some(Way { batching, estimate, measured: true });
                        }
                    }
                    Err(error) => {
                        complain(format!("{}, {}: {error:#}", workload.name, batching.name));
                    }
                }
            }
            chosen.push((i, choice, best.clone()));
            ways.push(best);
        }
        if list {
            drop_behind(arms, agree, &mut ways);
            warm_up(arms, &ways, workload.name, complain);
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
        let way = Way { batching: batching.clone(), estimate: f64::NAN, measured: true };
        Self { name, sequences, warm: 1, repeat, ways: vec![Some(way); arms] }
    }
}

/// Leaves the peers that cannot be the best one at their estimates.
fn drop_behind(arms: &[Arm], agree: &[bool], ways: &mut [Option<Way>]) {
    let peers = arms.iter().zip(agree).zip(&*ways);
    let peers = peers.filter(|((arm, agrees), _)| arm.engine.name != OURS && **agrees);
    let estimates = peers.filter_map(|(_, way)| way.as_ref().map(|way| way.estimate));
    let best = estimates.fold(f64::INFINITY, f64::min);
    for (arm, way) in arms.iter().zip(ways) {
        if let Some(way) = way {
            way.measured = arm.engine.name == OURS || way.estimate <= BEHIND * best;
        }
    }
}

/// Runs everything once: engines that prepare kernels for each shape have done so then.
fn warm_up(arms: &mut [Arm], ways: &[Option<Way>], name: &str, complain: &mut dyn FnMut(String)) {
    for (arm, way) in arms.iter_mut().zip(ways) {
        let Some(Way { batching, measured: true, .. }) = way else { continue };
        let alike = batching.packed || batching.pad.is_some();
        if !alike && let Err(error) = arm.seconds(&batching.request(1, 0, false)) {
            complain(format!("{name}: {error:#}"));
        }
    }
}

/// Runs all tasks on all arms, `rounds` times. An arm that fails in any round has no measure. What
/// an arm does in the same way for several tasks it does once a round.
pub fn run(
    arms: &mut [Arm],
    tasks: &[Task],
    rounds: usize,
    complain: &mut dyn FnMut(String),
) -> Vec<Measure> {
    let mut samples = vec![vec![Some(Vec::new()); arms.len()]; tasks.len()];
    let start = Instant::now();
    for round in 0..rounds {
        let mut done: Vec<(usize, &Batching, f64)> = Vec::new();
        for (task, samples) in tasks.iter().zip(&mut samples) {
            let begun = Instant::now();
            for place in 0..arms.len() {
                let i = (place + round) % arms.len();
                let Some(Way { batching, measured: true, .. }) = &task.ways[i] else { continue };
                let Some(samples_here) = &mut samples[i] else { continue };
                let before = done.iter().find(|(arm, same, _)| *arm == i && *same == batching);
                let sample = match before {
                    Some((_, _, sample)) => Ok(*sample),
                    None => sample(&mut arms[i], task, batching, round),
                };
                match sample {
                    Ok(sample) => {
                        done.push((i, batching, sample));
                        samples_here.push(sample);
                    }
                    Err(error) => {
                        complain(format!("{}: {error:#}", task.name));
                        samples[i] = None;
                    }
                }
            }
            let (took, all) = (begun.elapsed().as_secs_f64(), start.elapsed().as_secs_f64());
            eprintln!("round {} of {rounds}: {}, {took:.1} s of {all:.0} s", round + 1, task.name);
        }
    }
    let mut measures = Vec::new();
    for (task, samples) in tasks.iter().zip(samples) {
        for ((arm, way), samples) in arms.iter().zip(&task.ways).zip(samples) {
            let (Some(way), Some(samples)) = (way, samples) else { continue };
            let seconds = Summary::new(if way.measured { samples } else { vec![way.estimate] });
            measures.push(Measure {
                workload: task.name,
                engine: arm.engine.name,
                precision: arm.precision.name(),
                batching: way.batching.name.clone(),
                sequences: task.sequences,
                estimated: !way.measured,
                sequences_per_s: task.sequences as f64 / seconds.median,
                seconds,
            });
        }
    }
    measures
}

/// Seconds of the whole task in this round.
fn sample(arm: &mut Arm, task: &Task, batching: &Batching, round: usize) -> Result<f64> {
    let part = batching.part(round);
    let share = batching.rows() as f64 / part.rows().max(1) as f64;
    let seconds = arm.seconds(&part.request(task.warm, task.repeat, false))?;
    let median = quantile(&seconds, 0.5);
    median.is_finite().then_some(median * share).context("no times")
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
