//! How good a model is: by example, so that a part can be looked at first, or as a whole.

use frazil_graph::Graph;
use frazil_runtime::Engine;
use frazil_tune::dice::Random;

use crate::Result;
use crate::ops::predict::classify::Compared;

/// A model that is being tried.
#[derive(Clone, Copy)]
pub struct Candidate<'a> {
    /// Its graph, with bytes in it.
    pub graph: &'a Graph,
    /// What runs it.
    pub engine: &'a Engine,
}

/// What became of one example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// Its score; that of all is the mean.
    Score(f64),
    /// What was found and what should have been; the score of all is a task's own.
    Compared(Compared),
}

/// An evaluation set, example by example.
pub trait Examples {
    /// How many there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Runs a model on some of them, and says what became of each, in that order. `progress` hears
    /// how many are done.
    fn run(
        &mut self,
        candidate: &Candidate<'_>,
        which: &[usize],
        progress: &mut dyn FnMut(usize),
    ) -> Result<Vec<Outcome>>;

    /// The score of examples together.
    fn score(&self, outcomes: &[Outcome]) -> Result<f64>;
}

/// Any function of a model.
type Score<'a> = dyn FnMut(&Candidate<'_>) -> Result<f64> + 'a;

/// How good a model is.
pub enum Evaluation<'a> {
    /// By example.
    Examples(Box<dyn Examples + 'a>),
    /// As a whole.
    Whole(Box<Score<'a>>),
}

impl<'a> Evaluation<'a> {
    /// By a function of the user's.
    pub fn function(mut score: impl FnMut(&Engine) -> f64 + 'a) -> Self {
        Self::Whole(Box::new(move |candidate| Ok(score(candidate.engine))))
    }
}

/// Resamples of a subset.
const RESAMPLES: usize = 500;
/// What lies outside of an interval, on either side.
const OUTSIDE: f64 = 0.025;

/// How much the full set's score very likely (95%) differs from the baseline's, by examples of
/// which both are known: the best guess, and its interval.
///
/// Bootstrapped over pairs, since the metric may be no mean. The examples are a part of a set that
/// is known to be finite: the larger the part, the narrower the interval.
pub(super) fn paired_difference(
    score: &dyn Fn(&[Outcome]) -> Result<f64>,
    baseline: &[Outcome],
    found: &[Outcome],
    population: usize,
    seed: u64,
) -> Result<(f64, (f64, f64))> {
    let difference = score(found)? - score(baseline)?;
    let n = found.len();
    let mut random = Random::new(seed);
    let mut differences = Vec::with_capacity(RESAMPLES);
    let (mut a, mut b) = (Vec::with_capacity(n), Vec::with_capacity(n));
    for _ in 0..RESAMPLES {
        a.clear();
        b.clear();
        for _ in 0..n {
            let example = random.below(n);
            a.push(baseline[example]);
            b.push(found[example]);
        }
        let resampled = score(&b)? - score(&a)?;
        // A correlation with a constant has no value: such a draw tells nothing.
        if resampled.is_finite() {
            differences.push(resampled);
        }
    }
    differences.sort_by(f64::total_cmp);
    let narrower = (1.0 - n as f64 / population.max(n) as f64).sqrt();
    let end = |share: f64| match differences.len() {
        0 => difference,
        count => {
            let at = (share * (count - 1) as f64).round() as usize;
            difference + (differences[at] - difference) * narrower
        }
    };
    Ok((difference, (end(OUTSIDE).min(difference), end(1.0 - OUTSIDE).max(difference))))
}

/// The mean of scores.
pub(super) fn mean(outcomes: &[Outcome]) -> f64 {
    let score = |outcome: &Outcome| match outcome {
        Outcome::Score(score) => *score,
        Outcome::Compared(_) => f64::NAN,
    };
    outcomes.iter().map(score).sum::<f64>() / outcomes.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(scores: impl Iterator<Item = f64>) -> Vec<Outcome> {
        scores.map(Outcome::Score).collect()
    }

    /// Scores of which the second half's differ.
    fn pairs(count: usize, seed: u64) -> (Vec<Outcome>, Vec<Outcome>) {
        let mut random = Random::new(seed);
        let a: Vec<f64> = (0..count).map(|_| random.unit()).collect();
        let b: Vec<f64> = a
            .iter()
            .map(|a| if random.unit() < 0.2 { a - random.unit() + 0.4 } else { *a })
            .collect();
        (outcomes(a.into_iter()), outcomes(b.into_iter()))
    }

    #[test]
    fn intervals_hold_the_truth() {
        let score = |outcomes: &[Outcome]| Ok(mean(outcomes));
        let (mut held, sets) = (0, 200);
        for seed in 0..sets {
            let (a, b) = pairs(1000, seed);
            let truth = mean(&b) - mean(&a);
            let part = 200;
            let (guess, (low, high)) =
                paired_difference(&score, &a[..part], &b[..part], 1000, seed).unwrap();
            assert!(low <= guess && guess <= high);
            held += u64::from((low..=high).contains(&truth));
        }
        // 95%, give or take what 200 sets allow.
        assert!((0.90..=0.99).contains(&(held as f64 / sets as f64)), "{held} of {sets}");
    }

    #[test]
    fn all_of_the_set_leaves_no_doubt() {
        let score = |outcomes: &[Outcome]| Ok(mean(outcomes));
        let (a, b) = pairs(100, 1);
        let (guess, (low, high)) = paired_difference(&score, &a, &b, 100, 1).unwrap();
        assert_eq!((low, high), (guess, guess));
        let (guess, interval) = paired_difference(&score, &a, &a, 1000, 1).unwrap();
        assert_eq!((guess, interval), (0.0, (0.0, 0.0)));
    }
}
