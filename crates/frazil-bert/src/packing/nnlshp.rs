//! Packing by non-negative least squares: how often each strategy is used, so that the lengths in
//! all packs come as near as they can to those that there are.
//!
//! The solution has fractions, and uses some lengths more often than they occur. What is used too
//! often is taken out of packs again, and what is left over goes where it fits best; so every
//! sequence is in one pack, and the padding is what the residual was.

use std::collections::BTreeMap;

use serde::Serialize;

use super::greedy::Packs;
use super::nnls;
use super::strategy::{self, Strategies, Strategy};
use super::{Group, Histogram};

/// Lengths up to this one are cheap to use too often: they pad little.
const SHORT: usize = 8;
/// What a residual of those weighs in the paper's code.
const SHORT_WEIGHT: f64 = 0.09;
/// How often MLPerf's code solves again for what is left, …
const ROUNDS: usize = 20;
/// … unless fewer sequences than that are.
const FEW: u64 = 100;

/// How fractions of packs become whole ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rounding {
    /// To the nearest number.
    #[default]
    Nearest,
    /// As in Graphcore's code for MLPerf: down, unless there is less than 2 of it; then solve again
    /// for what is left, up to 20 times. Packs of up to three sequences were all it knew; for more,
    /// it is used where strategies can be listed.
    Mlperf,
}

/// Non-negative least squares.
pub(super) fn nnlshp(histogram: &Histogram, depth: usize, rounding: Rounding) -> Vec<Group> {
    match rounding {
        Rounding::Nearest => {
            let weights = weights(histogram.max_length(), SHORT_WEIGHT);
            let used = solve(&counts(histogram), weights, depth);
            settle(histogram, depth, used.into_iter().map(|(s, x)| (s, x.round() as u64)))
        }
        Rounding::Mlperf => mlperf(histogram, depth),
    }
}

fn counts(histogram: &Histogram) -> Vec<f64> {
    histogram.counts().iter().map(|count| *count as f64).collect()
}

fn weights(max_length: usize, short: f64) -> Vec<f64> {
    (1..=max_length).map(|length| if length <= SHORT { short } else { 1.0 }).collect()
}

/// How often each strategy is used, to come near to these counts.
fn solve(counts: &[f64], weights: Vec<f64>, depth: usize) -> Vec<(Strategy, f64)> {
    let target: Vec<f64> = counts.iter().zip(&weights).map(|(count, w)| count * w).collect();
    nnls::solve(&mut Strategies::new(weights, depth), &target)
}

/// Packs of these strategies that hold every sequence once.
fn settle(
    histogram: &Histogram,
    depth: usize,
    used: impl Iterator<Item = (Strategy, u64)>,
) -> Vec<Group> {
    let to_group = |(lengths, count): (Strategy, u64)| Group {
        lengths: lengths.into_iter().map(u32::from).collect(),
        count,
    };
    let mut groups: Vec<Group> = used.map(to_group).filter(|group| group.count > 0).collect();
    let mut left: BTreeMap<usize, u64> = BTreeMap::new();
    for (length, wanted) in histogram.counts().iter().enumerate().map(|(i, count)| (i + 1, *count))
    {
        let uses = |group: &Group| {
            group.lengths.iter().filter(|l| **l as usize == length).count() as u64 * group.count
        };
        let used: u64 = groups.iter().map(uses).sum();
        match wanted.checked_sub(used) {
            Some(more) => drop(left.insert(length, more)),
            None => take_out(&mut groups, length as u32, used - wanted),
        }
    }
    // Strategies fill packs: what is not full has lost a sequence, and what is left of it may go better with
    // others of its kind.
    groups.retain(|group| {
        let is_full = group.length() == histogram.max_length();
        if !is_full {
            for length in &group.lengths {
                *left.entry(*length as usize).or_default() += group.count;
            }
        }
        is_full
    });
    let mut packs = Packs::new(histogram.max_length(), depth);
    groups.into_iter().for_each(|group| packs.add(group));
    left.into_iter().rev().for_each(|(length, count)| packs.best_fit(length, count));
    packs.finish()
}

/// Takes so many of a length out of packs.
fn take_out(groups: &mut Vec<Group>, length: u32, mut excess: u64) {
    let mut at = 0;
    while excess > 0 && at < groups.len() {
        let Some(place) = groups[at].lengths.iter().position(|l| *l == length) else {
            at += 1;
            continue;
        };
        let count = groups[at].count.min(excess);
        let mut smaller = Group { lengths: groups[at].lengths.clone(), count };
        smaller.lengths.remove(place);
        groups[at].count -= count;
        excess -= count;
        match groups[at].count {
            0 => groups[at] = smaller, // it may have another one
            _ => groups.push(smaller),
        }
    }
}

/// Solves, keeps whole packs, and solves again for what is left.
fn mlperf(histogram: &Histogram, depth: usize) -> Vec<Group> {
    let max_length = histogram.max_length();
    let weights = weights(max_length, (SHORT as f64 / (2 * max_length) as f64).sqrt());
    let mut left: Vec<i64> = histogram.counts().iter().map(|count| *count as i64).collect();
    let mut used: Vec<(Strategy, u64)> = Vec::new();
    for _ in 0..ROUNDS {
        let counts: Vec<f64> = left.iter().map(|count| *count as f64).collect();
        let whole = |x: f64| if x < 2.0 { x.round_ties_even() } else { x.floor() };
        let solved = solve(&counts, weights.clone(), depth).into_iter();
        let mut round: Vec<(Strategy, u64)> = solved
            .map(|(strategy, x)| (strategy, whole(x) as u64))
            .filter(|(_, n)| *n > 0)
            .collect();
        if round.is_empty() {
            round = steepest(&left, max_length, depth);
        }
        for (strategy, count) in &round {
            for length in strategy {
                left[usize::from(*length) - 1] -= *count as i64;
            }
        }
        // What was used too often is padding from now on.
        left.iter_mut().for_each(|count| *count = (*count).max(0));
        used.extend(round);
        if left.iter().sum::<i64>() < FEW as i64 {
            break;
        }
    }
    settle(histogram, depth, used.into_iter())
}

/// The strategies that hold the most of the tokens that are left, each once.
fn steepest(left: &[i64], max_length: usize, depth: usize) -> Vec<(Strategy, u64)> {
    /// As deep as lists of strategies stay short.
    const LISTED: usize = 3;
    let tokens: Vec<i64> = left.iter().zip(1..).map(|(count, length)| count * length).collect();
    let gain = |strategy: &Strategy| -> i64 {
        strategy.iter().map(|length| tokens[usize::from(*length) - 1]).sum()
    };
    let mut all: Vec<(i64, Strategy)> =
        strategy::all(max_length, depth.min(LISTED)).into_iter().map(|s| (gain(&s), s)).collect();
    all.sort_by_key(|(gain, _)| std::cmp::Reverse(*gain));
    let count = left.iter().sum::<i64>() / 2 + 1;
    let best = all.into_iter().filter(|(gain, _)| *gain > 0).take(count as usize);
    best.map(|(_, strategy)| (strategy, 1)).collect()
}
