//! Proves that packs hold what was packed: every sequence once, and nothing else.
//!
//! That positions restart and sequences are apart is what [`unpack`](super::packed::unpack) checks of
//! each pack; here the sequences that come out are compared with those that went in. Of each only a
//! digest of 128 bits is kept, so that a corpus can be checked that is larger than memory.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};

use serde::Serialize;

use super::Sample;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Packs that were looked at.
    pub packs: u64,
    /// Sequences in them.
    pub sequences: u64,
    /// Sequences that should be there and are not.
    pub missing: u64,
    /// Sequences that are there and should not be, or once too often.
    pub unexpected: u64,
    /// The first one that is missing, by its place among all that should be there.
    pub first_missing: Option<u64>,
    /// The first pack with something that should not be there.
    pub first_unexpected: Option<u64>,
}

impl Check {
    /// Whether all is there, and nothing else.
    pub fn is_equal(&self) -> bool {
        self.missing == 0 && self.unexpected == 0
    }
}

/// Compares what is expected with what is found. All that is expected is told first.
#[derive(Debug, Default)]
pub struct Checker {
    /// Of each sequence: how often it is still missing, and where it was first met.
    expected: HashMap<u128, (u64, u64)>,
    told: u64,
    words: Vec<u32>,
    check: Check,
}

impl Checker {
    /// A sequence that should be there.
    pub fn expect(&mut self, sample: &Sample) {
        let digest = self.digest(sample);
        self.expected.entry(digest).or_insert((0, self.told)).0 += 1;
        self.told += 1;
    }

    /// A pack that was found.
    pub fn found(&mut self, pack: &[Sample]) {
        for sample in pack {
            let digest = self.digest(sample);
            match self.expected.get_mut(&digest) {
                Some((missing, _)) if *missing > 0 => *missing -= 1,
                _ => {
                    self.check.unexpected += 1;
                    self.check.first_unexpected.get_or_insert(self.check.packs);
                }
            }
        }
        self.check.packs += 1;
        self.check.sequences += pack.len() as u64;
    }

    /// What came of it.
    pub fn finish(mut self) -> Check {
        let missing = self.expected.values().filter(|(missing, _)| *missing > 0);
        for (count, place) in missing {
            self.check.missing += count;
            let first = self.check.first_missing.get_or_insert(*place);
            *first = (*first).min(*place);
        }
        self.check
    }

    fn digest(&mut self, sample: &Sample) -> u128 {
        self.words.clear();
        sample.words(&mut self.words);
        let half = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u8(salt);
            hasher.write(bytemuck::cast_slice(&self.words));
            u128::from(hasher.finish())
        };
        half(0) << 64 | half(1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::pretraining;
    use super::*;

    #[test]
    fn every_sequence_once_and_nothing_else() {
        let samples = [pretraining(9, 1), pretraining(9, 2), pretraining(9, 1), pretraining(5, 3)];
        let check = |packs: &[&[usize]]| {
            let mut checker = Checker::default();
            samples.iter().for_each(|sample| checker.expect(sample));
            for pack in packs {
                let pack: Vec<Sample> = pack.iter().map(|i| samples[*i].clone()).collect();
                checker.found(&pack);
            }
            checker.finish()
        };
        let good = check(&[&[3, 0], &[2, 1]]);
        assert!(good.is_equal() && good.packs == 2 && good.sequences == 4);
        assert!(check(&[&[0, 0], &[1, 3]]).is_equal(), "equal sequences are as good");
        let lost = check(&[&[3, 0], &[1]]);
        assert_eq!((lost.missing, lost.first_missing, lost.unexpected), (1, Some(0), 0));
        let twice = check(&[&[3, 0], &[2, 1], &[3]]);
        assert_eq!((twice.missing, twice.unexpected, twice.first_unexpected), (0, 1, Some(2)));
        let other = check(&[&[0, 2, 1, 1]]);
        assert_eq!((other.missing, other.first_missing, other.unexpected), (1, Some(3), 1));
    }

    #[test]
    fn one_label_makes_a_difference() {
        let Sample::Pretraining(sample) = pretraining(9, 1) else { panic!() };
        let mut other = sample.clone();
        other.masked[0].id += 1;
        let mut checker = Checker::default();
        checker.expect(&Sample::Pretraining(sample));
        checker.found(&[Sample::Pretraining(other)]);
        assert!(!checker.finish().is_equal());
    }
}
