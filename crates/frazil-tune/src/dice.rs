//! Random numbers that are the same for the same seed, everywhere and in every version.

/// SplitMix64: a counter whose steps are mixed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// All of it follows from the seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any 64 bits.
    #[allow(clippy::should_implement_trait, reason = "it has no end, and is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to just below 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From 0 to `count - 1`; 0 if there is nothing to choose from.
    pub fn below(&mut self, count: usize) -> usize {
        // The product's upper half: without a division, and fair enough for any count here.
        ((u128::from(self.next()) * count as u128) >> 64) as usize
    }
}

/// The numbers from 0 to `count - 1` in any order.
pub fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut random = Random::new(seed);
    let mut order: Vec<usize> = (0..count).collect();
    for end in (1..count).rev() {
        order.swap(end, random.below(end + 1));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn numbers_are_spread_and_within_their_limits() {
        let mut random = Random::new(7);
        let mut counts = [0; 5];
        for _ in 0..5000 {
            counts[random.below(5)] += 1;
            assert!((0.0..1.0).contains(&random.unit()));
        }
        assert!(counts.iter().all(|&count| (900..1100).contains(&count)), "{counts:?}");
        assert_eq!((random.below(1), random.below(0)), (0, 0));
    }

    #[test]
    fn everything_is_there_after_a_shuffle() {
        let order = shuffled(100, 3);
        assert_ne!(order, shuffled(100, 4));
        assert_eq!(order, shuffled(100, 3));
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..100) && sorted != order);
        assert!(shuffled(0, 1).is_empty());
    }
}
