//! The loop: baseline, trials as a strategy wants them, and the best of them, always.
//!
//! Stop rules, as the original has them: with `performance_only` one trial; with a timeout until
//! it is over, and the best so far is kept; else until the goal is met; and never more than
//! `max_trials`. Two things are different. `sensitivity` does not end at the first trial that meets
//! the goal but when it knows the fewest fall-backs. And whatever happens, the best trial is
//! returned, with a plain word on whether the goal was met.
//!
//! A run that is killed and started again replays its [`History`]: trials that are in it cost
//! nothing, and their time counts, so that a resumed run goes the way the first would have gone.

mod goal;
mod subject;
mod trials;

use std::ops::ControlFlow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use goal::Goal;
pub use subject::{Extent, Measured, Subject};
pub(crate) use trials::{Halt, Trials};

use crate::choice::Configuration;
use crate::config::{Objective, Strategy, Tuning};
use crate::error::{Error, Result};
use crate::history::History;
use crate::search;
use crate::space::Space;

/// How a search goes and ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The strategy.
    pub strategy: Strategy,
    /// What is to be reached.
    pub goal: Goal,
    /// What is to be small.
    pub objective: Objective,
    /// Zero: until the goal is met.
    pub timeout: Duration,
    /// Configurations that are measured at most.
    pub max_trials: usize,
    /// One trial, whatever its accuracy.
    pub performance_only: bool,
    /// Of everything random.
    pub seed: u64,
    /// What a missed goal costs (`bayesian`, `tpe`).
    pub accuracy_weight: f64,
    /// What speed is worth (`bayesian`, `tpe`).
    pub latency_weight: f64,
    /// Evaluations of the full set that `sensitivity` makes at most.
    pub full_evaluations: usize,
}

impl From<&Tuning> for Settings {
    fn from(tuning: &Tuning) -> Self {
        Self {
            strategy: tuning.strategy,
            goal: Goal { criterion: tuning.criterion, higher_is_better: tuning.higher_is_better },
            objective: tuning.objective,
            timeout: Duration::from_secs(tuning.timeout),
            max_trials: tuning.max_trials,
            performance_only: tuning.performance_only,
            seed: tuning.random_seed,
            accuracy_weight: tuning.accuracy_weight,
            latency_weight: tuning.latency_weight,
            full_evaluations: 8,
        }
    }
}

/// One configuration that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// From 1.
    pub number: usize,
    /// What it was.
    pub configuration: Configuration,
    /// The same in sixteen digits.
    pub key: String,
    /// What it is worth: of the full set if that was evaluated, else of the subset.
    pub measured: Measured,
    /// Is the goal met, on the full set?
    pub met: bool,
    /// What it took, all evaluations together.
    pub seconds: f64,
    /// Was it in the history?
    pub cached: bool,
}

/// Why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The goal is met.
    GoalMet,
    /// The strategy has nothing more to try.
    Exhausted,
    /// `max_trials`
    MaxTrials,
    /// `timeout`
    Timeout,
    /// `performance_only`
    PerformanceOnly,
    /// The caller did not want to go on.
    Interrupted,
}

/// Whether the goal was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// On the full set.
    Met,
    /// By no trial.
    Missed,
    /// `performance_only`: nobody asked.
    NotAsked,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The f32 model.
    pub baseline: Measured,
    /// All trials, in their order.
    pub trials: Vec<Trial>,
    /// Which of them is best; `None` only if the caller stopped before the first.
    pub best: Option<usize>,
    /// Is it good enough?
    pub verdict: Verdict,
    /// Why there are no more.
    pub stop: Stop,
    /// What each operation alone does to the logits, if it was measured.
    pub damage: Vec<(String, f64)>,
    /// How often the full set was evaluated, without the baseline.
    pub full_evaluations: usize,
}

impl Outcome {
    /// The best trial.
    pub fn best(&self) -> Option<&Trial> {
        self.best.map(|index| &self.trials[index])
    }
}

/// What happens, as it happens: for a live table. A callback that breaks ends the search.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The f32 model is measured.
    Baseline(&'a Measured),
    /// The effect of every operation is being measured, alone.
    MeasuringDamage(&'a Configuration),
    /// It was: operations and their effects.
    Damage(&'a [(String, f64)]),
    /// A configuration is being measured.
    Started {
        /// Its number.
        number: usize,
        /// What it is.
        configuration: &'a Configuration,
        /// On how much.
        extent: Extent,
    },
    /// It was.
    Finished {
        /// The trial, as far as it is known now.
        trial: &'a Trial,
        /// On how much.
        extent: Extent,
        /// Is it the best so far?
        best: bool,
    },
}

/// Called with everything that happens.
pub type Progress<'a> = dyn FnMut(&Event<'_>) -> ControlFlow<()> + 'a;

/// Searches.
///
/// # Errors
/// What the subject, the history or a measurement that is no number give. All that was measured
/// until then is in the history.
pub fn tune(
    subject: &mut dyn Subject,
    space: &Space,
    settings: &Settings,
    history: &mut History,
    progress: &mut Progress<'_>,
) -> Result<Outcome> {
    let mut trials = Trials::new(subject, space, settings, history, progress);
    let ended = match trials.baseline() {
        Ok(()) if settings.performance_only => {
            let only = space.most_wanted();
            trials.full(&only).map(|_| Stop::PerformanceOnly)
        }
        Ok(()) => search::run(&mut trials),
        Err(halt) => Err(halt),
    };
    let stop = match ended {
        Ok(stop) => stop,
        Err(Halt::Stop(stop)) => stop,
        Err(Halt::Failed(error)) => return Err(error),
    };
    trials.outcome(stop)
}

fn finite(measured: &Measured, of: impl Fn() -> String) -> Result<()> {
    for (what, value) in [("accuracy", measured.accuracy), ("latency", measured.latency_ms)] {
        if !value.is_finite() {
            return Err(Error::Measurement { what, of: of(), found: value });
        }
    }
    Ok(())
}
