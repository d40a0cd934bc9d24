//! All ways to fill a pack to the last place, as columns of a matrix that is never written down.
//!
//! A strategy is a set of lengths whose sum is the length of a pack; there are 22,102 of up to
//! three lengths for 512, and tens of millions of five. The solver asks for the one that is worth
//! the most at given prices of the lengths, which is a knapsack: prices of sums of up to 2k lengths
//! follow from those of up to k.

use super::nnls::Columns;

/// The lengths of a pack, the longest first.
pub(super) type Strategy = Vec<u16>;

/// Finds the best strategy at given prices.
pub(super) struct Pricing {
    max_length: usize,
    levels: Vec<Level>,
}

/// Prices of sums of up to some number of lengths.
struct Level {
    rule: Rule,
    /// By sum: what the lengths are worth at most, …
    worth: Vec<f64>,
    /// … and the part of the sum that the lower level of two has; 0 where the other alone is as good.
    split: Vec<u16>,
}

/// What a level follows from.
#[derive(Clone, Copy)]
enum Rule {
    /// One length alone.
    Prices,
    /// Any number of lengths: one of them, and the same level for the rest.
    Itself,
    /// As many lengths as two levels have together, the second at least as many as the first.
    Levels(usize, usize),
}

impl Pricing {
    /// Of up to `depth` lengths. Levels of 1, 2, 4, … lengths make any number in few steps; one by one,
    /// depth 400 took minutes.
    pub(super) fn new(max_length: usize, depth: usize) -> Self {
        let mut rules = vec![Rule::Prices];
        if depth >= max_length {
            rules = vec![Rule::Itself];
        } else {
            let doublings = depth.max(1).ilog2() as usize;
            rules.extend((0..doublings).map(|level| Rule::Levels(level, level)));
            for level in (0..doublings).rev().filter(|level| depth >> level & 1 == 1) {
                rules.push(Rule::Levels(level, rules.len() - 1));
            }
        }
        let empty = |rule| {
            let (worth, split) = (vec![0.0; max_length + 1], vec![0; max_length + 1]);
            Level { rule, worth, split }
        };
        Self { max_length, levels: rules.into_iter().map(empty).collect() }
    }

    /// The strategy that is worth the most, if a length of l is worth `prices[l - 1]`.
    pub(super) fn best(&mut self, prices: &[f64]) -> (Strategy, f64) {
        let top = self.levels.len() - 1;
        for at in 0..=top {
            let (below, level) = self.levels.split_at_mut(at);
            // Of the last one, only whole packs are asked for.
            let first = if at == top { self.max_length } else { 1 };
            let level = &mut level[0];
            match level.rule {
                Rule::Prices => level.worth[1..].copy_from_slice(prices),
                Rule::Itself => level.price_any_number(prices),
                Rule::Levels(few, many) => {
                    level.price(&below[few], &below[many], few == many, first)
                }
            }
        }
        let mut strategy = Strategy::new();
        self.trace(top, self.max_length, &mut strategy);
        strategy.sort_unstable_by(|a, b| b.cmp(a));
        (strategy, self.levels[top].worth[self.max_length])
    }

    /// The lengths that this sum is made of.
    fn trace(&self, at: usize, sum: usize, lengths: &mut Strategy) {
        if sum == 0 {
            return;
        }
        let level = &self.levels[at];
        let split = level.split[sum];
        match level.rule {
            Rule::Prices => lengths.push(sum as u16),
            Rule::Itself => {
                lengths.push(split);
                self.trace(at, sum - usize::from(split), lengths);
            }
            Rule::Levels(few, many) => {
                self.trace(few, usize::from(split), lengths);
                self.trace(many, sum - usize::from(split), lengths);
            }
        }
    }
}

impl Level {
    fn price(&mut self, few: &Self, many: &Self, are_same: bool, first: usize) {
        for sum in first..self.worth.len() {
            // Of two that are the same, the first need not have the larger part.
            let last = if are_same { sum / 2 } else { sum - 1 };
            let rest = many.worth[sum - last..sum].iter().rev();
            let pairs = few.worth[1..].iter().zip(rest).zip(1_u16..);
            let mut best = (many.worth[sum], 0);
            for ((worth, rest), part) in pairs {
                if worth + rest > best.0 {
                    best = (worth + rest, part);
                }
            }
            (self.worth[sum], self.split[sum]) = best;
        }
    }

    fn price_any_number(&mut self, prices: &[f64]) {
        for sum in 1..self.worth.len() {
            let mut best = (prices[sum - 1], sum as u16);
            for length in 1..sum {
                let with = prices[length - 1] + self.worth[sum - length];
                if with > best.0 {
                    best = (with, length as u16);
                }
            }
            (self.worth[sum], self.split[sum]) = best;
        }
    }
}

/// All strategies: their lengths in rows of these weights.
pub(super) struct Strategies {
    pricing: Pricing,
    weights: Vec<f64>,
    prices: Vec<f64>,
}

impl Strategies {
    /// Of up to `depth` lengths; as many weights as the longest length.
    pub(super) fn new(weights: Vec<f64>, depth: usize) -> Self {
        let pricing = Pricing::new(weights.len(), depth);
        Self { pricing, prices: vec![0.0; weights.len()], weights }
    }
}

impl Columns for Strategies {
    type Id = Strategy;

    fn best(&mut self, residual: &[f64]) -> Option<(Strategy, f64)> {
        let prices = residual.iter().zip(&self.weights).map(|(r, w)| r * w);
        self.prices.iter_mut().zip(prices).for_each(|(place, price)| *place = price);
        Some(self.pricing.best(&self.prices))
    }

    fn entries(&self, lengths: &Strategy) -> Vec<(usize, f64)> {
        let mut entries: Vec<(usize, f64)> = Vec::with_capacity(lengths.len());
        for &length in lengths {
            let (row, weight) = (usize::from(length) - 1, self.weights[usize::from(length) - 1]);
            match entries.last_mut() {
                Some((last, value)) if *last == row => *value += weight,
                _ => entries.push((row, weight)),
            }
        }
        entries
    }
}

/// Every strategy, the longest lengths first.
pub(super) fn all(max_length: usize, depth: usize) -> Vec<Strategy> {
    fn extend(
        taken: &mut Strategy,
        rest: usize,
        most: usize,
        depth: usize,
        all: &mut Vec<Strategy>,
    ) {
        if rest == 0 {
            all.push(taken.clone());
            return;
        }
        // What is left must be filled by at most `depth` lengths that are no longer than the last.
        for length in (rest.div_ceil(depth.max(1))..=most.min(rest)).rev() {
            if depth == 0 {
                return;
            }
            taken.push(length as u16);
            extend(taken, rest - length, length, depth - 1, all);
            taken.pop();
        }
    }
    let mut strategies = Vec::new();
    extend(&mut Vec::new(), max_length, max_length, depth, &mut strategies);
    strategies
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn there_are_as_many_as_the_paper_says() {
        assert_eq!(all(512, 3).len(), 22_102);
        assert_eq!(all(4, 4), [vec![4], vec![3, 1], vec![2, 2], vec![2, 1, 1], vec![1; 4]]);
        assert_eq!(all(3, 1), [[3]]);
    }

    proptest! {
        /// The best of all, whether they are written down or not.
        #[test]
        fn the_best_is_found_without_a_list(
            prices in prop::collection::vec(-5..20_i32, 1..24),
            depth in 1..26_usize,
        ) {
            let max_length = prices.len();
            let prices: Vec<f64> = prices.into_iter().map(f64::from).collect();
            let worth = |strategy: &super::Strategy| -> f64 {
                strategy.iter().map(|length| prices[usize::from(*length) - 1]).sum()
            };
            let (best, value) = Pricing::new(max_length, depth).best(&prices);
            prop_assert_eq!(worth(&best), value);
            prop_assert!(best.len() <= depth);
            prop_assert_eq!(best.iter().map(|l| usize::from(*l)).sum::<usize>(), max_length);
            let most = all(max_length, depth.min(max_length)).iter().map(worth).fold(f64::MIN, f64::max);
            prop_assert_eq!(value, most);
        }
    }
}
