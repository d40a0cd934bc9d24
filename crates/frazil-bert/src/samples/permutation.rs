//! A shuffle that is never written down: where each number goes is computed when it is asked for.
//!
//! A Feistel network over the smallest even number of bits that holds all numbers is a permutation
//! of those; what falls outside is sent on until it falls inside. So a shuffle of any size takes no
//! memory, and going on in the middle of one takes no time.

use crate::python::random::mix;

/// A permutation of the numbers below a limit, by a seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Permutation {
    limit: u64,
    half_bits: u32,
    seed: u64,
}

impl Permutation {
    pub(super) fn new(limit: u64, seed: u64) -> Self {
        let bits = u64::BITS - limit.saturating_sub(1).leading_zeros();
        Self { limit, half_bits: bits.div_ceil(2).max(1), seed }
    }

    /// Where a number below the limit goes.
    pub(super) fn of(&self, number: u64) -> u64 {
        debug_assert!(number < self.limit);
        let mut number = number;
        loop {
            number = self.round_trip(number);
            if number < self.limit {
                return number;
            }
        }
    }

    fn round_trip(&self, number: u64) -> u64 {
        const ROUNDS: u64 = 6;
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for round in 0..ROUNDS {
            let mixed = mix(self.seed ^ mix(right.wrapping_add(round << 56)));
            (left, right) = (right, left ^ (mixed & mask));
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_goes_to_one_place() {
        for limit in [1, 2, 3, 4, 5, 16, 17, 1000, 4097] {
            for seed in [0, 1, u64::MAX] {
                let permutation = Permutation::new(limit, seed);
                let mut seen = vec![false; limit as usize];
                for number in 0..limit {
                    let place = permutation.of(number) as usize;
                    assert!(!std::mem::replace(&mut seen[place], true));
                }
            }
        }
        assert!(Permutation::new(u64::MAX, 3).of(5) != 5);
    }

    #[test]
    fn it_is_a_shuffle() {
        let limit = 10_000;
        let of = |seed| (0..limit).map(|i| Permutation::new(limit, seed).of(i)).collect::<Vec<_>>();
        let (one, two) = (of(1), of(2));
        assert_ne!(one, two);
        // Neighbours are as far from each other as strangers: a third of the limit on average.
        let apart: u64 = one.windows(2).map(|pair| pair[0].abs_diff(pair[1])).sum();
        let mean = apart as f64 / (limit - 1) as f64 / limit as f64;
        assert!((mean - 1.0 / 3.0).abs() < 0.02, "{mean}");
        // No number stays more often than chance has it, which is once.
        assert!(one.iter().zip(0..).filter(|(to, from)| *to == from).count() < 8);
    }
}
