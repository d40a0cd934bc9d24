//! What is to be reached, and which of two trials is better.

use serde::{Deserialize, Serialize};

use super::Trial;
use super::subject::Measured;
use crate::config::{Criterion, Objective};

/// How much accuracy may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// How much.
    pub criterion: Criterion,
    /// Is more of the metric better?
    pub higher_is_better: bool,
}

impl Goal {
    /// How much may be lost, in points of the metric.
    pub fn allowance(&self, baseline: f64) -> f64 {
        match self.criterion {
            Criterion::Relative(share) => share * baseline.abs(),
            Criterion::Absolute(points) => points,
        }
    }

    /// The last accuracy that is good enough.
    pub fn threshold(&self, baseline: f64) -> f64 {
        let allowance = self.allowance(baseline);
        if self.higher_is_better { baseline - allowance } else { baseline + allowance }
    }

    /// How much was lost, in points of the metric; less than 0 if something was won.
    pub fn loss(&self, baseline: f64, accuracy: f64) -> f64 {
        if self.higher_is_better { baseline - accuracy } else { accuracy - baseline }
    }

    /// Is it good enough? What is just at the threshold is.
    pub fn met(&self, baseline: f64, accuracy: f64) -> bool {
        match self.higher_is_better {
            true => accuracy >= self.threshold(baseline),
            false => accuracy <= self.threshold(baseline),
        }
    }

    /// Is even the better end of the interval not good enough?
    pub fn surely_missed(&self, baseline: f64, measured: &Measured) -> bool {
        measured.interval.is_some_and(|(low, high)| {
            !self.met(baseline, if self.higher_is_better { high } else { low })
        })
    }
}

/// A clock tells no smaller differences, as a share of the f32 model's time.
const CLOCK: f64 = 0.02;

/// What is to be small.
pub(super) fn cost(objective: Objective, measured: &Measured) -> f64 {
    match objective {
        Objective::Performance => measured.relative_latency(),
        Objective::Footprint | Objective::Modelsize => measured.bytes as f64,
    }
}

/// The same, in steps that a clock can tell apart: of two that are as fast, noise does not decide.
fn rounded_cost(objective: Objective, measured: &Measured) -> f64 {
    let cost = cost(objective, measured);
    match objective {
        Objective::Performance => (cost / CLOCK).round() * CLOCK,
        Objective::Footprint | Objective::Modelsize => cost,
    }
}

/// The best trial: of those that meet the goal on the full set the one with the least cost (of equals
/// the smallest), else the most accurate of the full set, else the most accurate guess.
pub(super) fn best(
    trials: &[Trial],
    goal: &Goal,
    objective: Objective,
    baseline: f64,
) -> Option<usize> {
    let rank = |trial: &Trial| {
        let loss = goal.loss(baseline, trial.measured.accuracy);
        let cost = rounded_cost(objective, &trial.measured);
        let bytes = trial.measured.bytes as f64;
        match (trial.measured.full, trial.met) {
            (true, true) => (0, [cost, bytes, loss]),
            (true, false) => (1, [loss, cost, bytes]),
            (false, _) => (2, [loss, cost, bytes]),
        }
    };
    trials
        .iter()
        .enumerate()
        .min_by(|(_, a), (_, b)| {
            let (a, b) = (rank(a), rank(b));
            let numbers = a.1.iter().zip(&b.1).map(|(a, b)| a.total_cmp(b));
            numbers.fold(a.0.cmp(&b.0), std::cmp::Ordering::then)
        })
        .map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(criterion: Criterion, higher_is_better: bool) -> Goal {
        Goal { criterion, higher_is_better }
    }

    #[test]
    fn relative_and_absolute_both_ways() {
        let relative = goal(Criterion::Relative(0.01), true);
        assert!(relative.met(90.0, 89.1) && !relative.met(90.0, 89.09));
        let absolute = goal(Criterion::Absolute(0.5), true);
        assert!(absolute.met(90.0, 89.5) && !absolute.met(90.0, 89.49));
        let loss = goal(Criterion::Relative(0.1), false);
        assert!(loss.met(2.0, 2.2) && !loss.met(2.0, 2.21) && loss.met(2.0, 1.0));
        // A metric below 0 (a correlation) still loses by going down.
        assert!(relative.met(-0.5, -0.505) && !relative.met(-0.5, -0.51));
        let nothing = goal(Criterion::Relative(0.0), true);
        assert!(nothing.met(90.0, 90.0) && !nothing.met(90.0, 89.999));
    }

    #[test]
    fn an_interval_rejects_only_as_a_whole() {
        let mut measured = Measured {
            accuracy: 88.0,
            interval: Some((86.0, 89.5)),
            full: false,
            latency_ms: 1.0,
            baseline_ms: 2.0,
            bytes: 1,
        };
        let goal = goal(Criterion::Relative(0.01), true);
        assert!(!goal.surely_missed(90.0, &measured));
        measured.interval = Some((86.0, 89.0));
        assert!(goal.surely_missed(90.0, &measured));
        measured.interval = None;
        assert!(!goal.surely_missed(90.0, &measured));
        let lower = Goal { higher_is_better: false, ..goal };
        measured.interval = Some((92.0, 93.0));
        assert!(lower.surely_missed(90.0, &measured));
    }
}
