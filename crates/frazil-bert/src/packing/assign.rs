//! Which sequence goes into which pack.

use super::Packing;
use crate::python::random::Random;
use crate::{Error, Result};

/// Which sequences are in which pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The sequences of all packs, one after the other.
    sequences: Vec<u32>,
    /// Where each pack ends.
    ends: Vec<u32>,
}

impl Assignment {
    /// The number of packs.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The sequences of a pack, the longest first.
    pub fn pack(&self, index: usize) -> &[u32] {
        let begin = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.sequences[begin as usize..self.ends[index] as usize]
    }

    /// All packs, in the order of the packing's groups.
    pub fn packs(&self) -> impl ExactSizeIterator<Item = &[u32]> {
        (0..self.len()).map(|index| self.pack(index))
    }
}

impl Packing {
    /// Says which of the sequences of these lengths goes where. Sequences of one length are shuffled
    /// by the seed, since files often have like beside like.
    pub fn assign(&self, lengths: &[u32], seed: u64) -> Result<Assignment> {
        if u32::try_from(lengths.len()).is_err() {
            return Err(Error::TooManySequences);
        }
        let mut by_length: Vec<Vec<u32>> = vec![Vec::new(); self.max_length + 1];
        for (sequence, &length) in (0..).zip(lengths) {
            let most = self.max_length;
            let places = by_length.get_mut(length as usize).filter(|_| length > 0);
            places.ok_or(Error::SequenceLength { length: length as usize, most })?.push(sequence);
        }
        let mut expected = vec![0; self.max_length + 1];
        for group in &self.groups {
            group.lengths.iter().for_each(|length| expected[*length as usize] += group.count);
        }
        let mut random = Random::new(seed);
        for (length, (sequences, expected)) in by_length.iter_mut().zip(expected).enumerate() {
            let found = sequences.len() as u64;
            if found != expected {
                return Err(Error::OtherSequences { length, expected, found });
            }
            random.shuffle(sequences);
        }
        let mut assignment =
            Assignment { sequences: Vec::with_capacity(lengths.len()), ends: Vec::new() };
        for group in &self.groups {
            for _ in 0..group.count {
                let next = |length: &u32| by_length[*length as usize].pop();
                assignment.sequences.extend(group.lengths.iter().filter_map(next));
                assignment.ends.push(assignment.sequences.len() as u32);
            }
        }
        Ok(assignment)
    }
}
