//! Python's `random.Random`: the Mersenne Twister, seeded and asked as Python does it.
//!
//! The original shuffles with fixed seeds, so the order of its files is reproducible, and these
//! are the numbers it takes. Left out: every method that nothing here needs.

const WORDS: usize = 624;
const SHIFT: usize = 397;

/// A generator that gives what `random.Random(seed)` gives.
#[derive(Clone)]
pub struct Random {
    state: [u32; WORDS],
    /// The next word of the state to give out.
    next: usize,
}

impl std::fmt::Debug for Random {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Random").field("next", &self.next).finish_non_exhaustive()
    }
}

impl Random {
    /// `random.Random(seed)` for a seed that is not negative; Python takes the sign away.
    pub fn new(seed: u64) -> Self {
        let mut state = [0_u32; WORDS];
        state[0] = 19_650_218;
        for i in 1..WORDS {
            state[i] = fold(state[i - 1]).wrapping_mul(1_812_433_253).wrapping_add(i as u32);
        }
        // The seed in words, lowest first.
        let (low, high) = (seed as u32, (seed >> 32) as u32);
        let key: &[u32] = if high == 0 { &[low] } else { &[low, high] };
        let mut i = 1;
        for (word, j) in key.iter().zip(0..).cycle().take(WORDS.max(key.len())) {
            let mixed = fold(state[i - 1]).wrapping_mul(1_664_525);
            state[i] = (state[i] ^ mixed).wrapping_add(*word).wrapping_add(j);
            i = Self::step(&mut state, i);
        }
        for _ in 1..WORDS {
            let mixed = fold(state[i - 1]).wrapping_mul(1_566_083_941);
            state[i] = (state[i] ^ mixed).wrapping_sub(i as u32);
            i = Self::step(&mut state, i);
        }
        state[0] = 1 << 31;
        Self { state, next: WORDS }
    }

    fn step(state: &mut [u32; WORDS], i: usize) -> usize {
        if i + 1 < WORDS {
            return i + 1;
        }
        state[0] = state[WORDS - 1];
        1
    }

    /// 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        if self.next == WORDS {
            for i in 0..WORDS {
                let (high, low) = (self.state[i] & (1 << 31), self.state[(i + 1) % WORDS]);
                let joined = high | (low & !(1 << 31));
                let twisted = (joined >> 1) ^ if joined & 1 == 1 { 0x9908_b0df } else { 0 };
                self.state[i] = self.state[(i + SHIFT) % WORDS] ^ twisted;
            }
            self.next = 0;
        }
        let mut y = self.state[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    /// `random()`: a number from 0 to below 1.
    pub fn random(&mut self) -> f64 {
        let (high, low) = (self.next_u32() >> 5, self.next_u32() >> 6);
        (f64::from(high) * 67_108_864.0 + f64::from(low)) / 9_007_199_254_740_992.0
    }

    /// `getrandbits(bits)`, for at most 64.
    pub fn bits(&mut self, bits: u32) -> u64 {
        match bits {
            0 => 0,
            1..=32 => u64::from(self.next_u32() >> (32 - bits)),
            _ => {
                let low = u64::from(self.next_u32());
                low | (u64::from(self.next_u32() >> (64 - bits.min(64))) << 32)
            }
        }
    }

    /// `randrange(limit)`: a number below the limit, which is at least 1.
    pub fn below(&mut self, limit: u64) -> u64 {
        let bits = u64::BITS - limit.max(1).leading_zeros();
        loop {
            let number = self.bits(bits);
            if number < limit.max(1) {
                return number;
            }
        }
    }

    /// `randint(low, high)`: a number from `low` to `high`, both included.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below((high - low) as u64 + 1) as usize
    }

    /// `shuffle(items)`.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            // Below i + 1, so it fits.
            let j = self.below(i as u64 + 1) as usize;
            items.swap(i, j);
        }
    }
}

fn fold(word: u32) -> u32 {
    word ^ (word >> 30)
}

/// Mixes the bits of a number well: seeds of many generators from one (splitmix64). Python knows
/// no such thing.
pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_python() {
        let mut random = Random::new(12345);
        let first: Vec<f64> = (0..3).map(|_| random.random()).collect();
        assert_eq!(first, FIRST);
        let mut items: Vec<u32> = (0..20).collect();
        Random::new(12345).shuffle(&mut items);
        assert_eq!(items, SHUFFLED);
        let mut wide = Random::new(1 << 40);
        assert_eq!([wide.bits(64), wide.bits(33), wide.bits(1), wide.below(1000)], WIDE);
        assert_eq!((wide.below(1), wide.bits(0)), (0, 0));
    }

    const FIRST: [f64; 3] = [0.41661987254534116, 0.010169169457068361, 0.8252065092537432];
    const SHUFFLED: [u32; 20] =
        [16, 18, 3, 8, 19, 10, 7, 14, 12, 1, 5, 2, 15, 17, 4, 6, 11, 9, 0, 13];
    const WIDE: [u64; 4] = [6515814827016330625, 2880015531, 0, 49];
}
