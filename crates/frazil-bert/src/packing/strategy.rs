//! All ways to fill a pack to the last place, as columns of a matrix that is never written down.
//!
//! A strategy is a set of lengths whose sum is the length of a pack; there are 22,102 of up to
//! three lengths for 512, and tens of millions of five. The solver asks for the one that is worth
//! the most at given prices of the lengths, which is a knapsack: prices of sums of up to k lengths
//! follow from those of up to k - 1.

use super::nnls::Columns;

/// The lengths of a pack, the longest first.
pub(super) type Strategy = Vec<u16>;

/// Finds the best strategy at given prices.
pub(super) struct Pricing {
    max_length: usize,
    depth: usize,
    /// By level and sum: what up to as many lengths are worth at most, …
    worth: Vec<Vec<f64>>,
    /// … and the length that is taken for it; 0 where one fewer is as good.
    taken: Vec<Vec<u16>>,
}

impl Pricing {
    pub(super) fn new(max_length: usize, depth: usize) -> Self {
        // Where every number of lengths will do, one level that looks at itself does.
        let levels = if depth >= max_length { 1 } else { depth };
        let worth = vec![vec![0.0; max_length + 1]; levels];
        let taken = vec![vec![0; max_length + 1]; levels];
        Self { max_length, depth, worth, taken }
    }

    /// The strategy that is worth the most, if a length of l is worth `prices[l - 1]`.
    pub(super) fn best(&mut self, prices: &[f64]) -> (Strategy, f64) {
        match self.depth >= self.max_length {
            true => self.price_any_number(prices),
            false => self.price_by_level(prices),
        }
        let top = self.worth.len() - 1;
        (self.trace(top), self.worth[top][self.max_length])
    }

    fn price_by_level(&mut self, prices: &[f64]) {
        let most = self.max_length;
        self.worth[0][1..].copy_from_slice(prices);
        self.taken[0].iter_mut().zip(0..).for_each(|(taken, sum)| *taken = sum);
        for level in 1..self.depth {
            let (below, worth) = self.worth.split_at_mut(level);
            let (below, worth) = (&below[level - 1], &mut worth[0]);
            let first = if level + 1 == self.depth { most } else { 1 };
            for sum in first..=most {
                // Of two lengths, the first need not be the larger.
                let last = if level == 1 { sum / 2 } else { sum - 1 };
                let rest = below[sum - last..sum].iter().rev();
                let pairs = prices.iter().zip(rest).zip(1_u16..);
                let mut best = (below[sum], 0);
                for ((price, rest), length) in pairs {
                    if price + rest > best.0 {
                        best = (price + rest, length);
                    }
                }
                (worth[sum], self.taken[level][sum]) = best;
            }
        }
    }

    fn price_any_number(&mut self, prices: &[f64]) {
        let (worth, taken) = (&mut self.worth[0], &mut self.taken[0]);
        for sum in 1..=self.max_length {
            let mut best = (prices[sum - 1], sum as u16);
            for length in 1..sum {
                let with = prices[length - 1] + worth[sum - length];
                if with > best.0 {
                    best = (with, length as u16);
                }
            }
            (worth[sum], taken[sum]) = best;
        }
    }

    fn trace(&self, top: usize) -> Strategy {
        let (mut level, mut sum) = (top, self.max_length);
        let mut lengths = Vec::new();
        while sum > 0 {
            let taken = self.taken[level][sum];
            if taken > 0 {
                lengths.push(taken);
                sum -= usize::from(taken);
            }
            level = level.saturating_sub(1);
        }
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths
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
