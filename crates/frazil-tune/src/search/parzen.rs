//! `tpe`: what good trials chose against what the others chose.
//!
//! Trials are parted into the best 30% and the rest. For each operation the shares of its choices
//! among either are counted; points are drawn from the good shares, and the one is tried that is
//! likeliest to be of the good and not of the rest.

use super::{Point, configuration, draw, most_wanted, new_point};
use crate::dice::Random;
use crate::space::Space;
use crate::tuner::{Halt, Stop, Trials};

/// Random trials to begin with.
const START: usize = 10;
/// The share of trials that count as good.
const GAMMA: f64 = 0.3;
/// Points that are compared for the next trial.
const CANDIDATES: usize = 48;

pub(super) fn run(trials: &mut Trials<'_>) -> Result<Stop, Halt> {
    let mut random = Random::new(trials.settings.seed);
    let space = trials.space;
    let mut tried: Vec<(Point, f64)> = Vec::new();
    let mut next = Some(most_wanted(space));
    if configuration(space, next.as_deref().unwrap_or_default()).int8_ops() == 0 {
        return Ok(Stop::Exhausted);
    }
    while let Some(point) = next {
        let measured = trials.full(&configuration(space, &point))?;
        tried.push((point, trials.utility(&measured)));
        let estimators = (tried.len() >= START).then(|| Estimators::fit(space, &tried));
        next = new_point(trials, || match &estimators {
            Some(estimators) => estimators.propose(&mut random),
            None => draw(space, &mut random),
        });
    }
    Ok(Stop::Exhausted)
}

/// Shares of choices, by operation.
struct Estimators {
    good: Vec<Vec<f64>>,
    rest: Vec<Vec<f64>>,
}

impl Estimators {
    fn fit(space: &Space, tried: &[(Point, f64)]) -> Self {
        let mut order: Vec<&(Point, f64)> = tried.iter().collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1)); // stable: of equals the earlier
        let count = ((tried.len() as f64 * GAMMA).ceil() as usize).clamp(1, tried.len());
        let (good, rest) = order.split_at(count);
        Self { good: shares(space, good), rest: shares(space, rest) }
    }

    /// The best of a few points that are drawn as the good ones are.
    fn propose(&self, random: &mut Random) -> Point {
        let mut best: Option<(f64, Point)> = None;
        for _ in 0..CANDIDATES {
            let point: Point = self.good.iter().map(|shares| pick(shares, random.unit())).collect();
            let score: f64 = point
                .iter()
                .enumerate()
                .map(|(op, &place)| (self.good[op][place] / self.rest[op][place]).ln())
                .sum();
            if best.as_ref().is_none_or(|(known, _)| score > *known) {
                best = Some((score, point));
            }
        }
        best.map(|(_, point)| point).unwrap_or_default()
    }
}

/// Each choice counts once beforehand, so that none is impossible.
fn shares(space: &Space, tried: &[&(Point, f64)]) -> Vec<Vec<f64>> {
    let mut counts: Vec<Vec<f64>> =
        space.ops.iter().map(|op| vec![1.0 / op.choices.len() as f64; op.choices.len()]).collect();
    for (point, _) in tried {
        for (op, &place) in point.iter().enumerate() {
            counts[op][place] += 1.0;
        }
    }
    for shares in &mut counts {
        let all: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share /= all);
    }
    counts
}

fn pick(shares: &[f64], mut at: f64) -> usize {
    for (place, share) in shares.iter().enumerate() {
        if at < *share {
            return place;
        }
        at -= share;
    }
    shares.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_picked_as_often_as_they_say() {
        assert_eq!(pick(&[0.2, 0.5, 0.3], 0.19), 0);
        assert_eq!(pick(&[0.2, 0.5, 0.3], 0.2), 1);
        assert_eq!(pick(&[0.2, 0.5, 0.3], 0.69), 1);
        assert_eq!(pick(&[0.2, 0.5, 0.3], 0.999), 2);
        assert_eq!(pick(&[0.2, 0.5, 0.3], 1.0), 2, "sums of shares are not exact");
    }
}
