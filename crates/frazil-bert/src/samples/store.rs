//! Many samples at hand: in memory, or in a temporary file that is mapped if they are too many.

use std::path::PathBuf;

use super::Sample;
use crate::Result;
use crate::spool::{Spool, Words};

/// Takes samples, and gives them back in any order.
pub struct SampleStore {
    spool: Spool,
    /// Where each begins.
    starts: Vec<u64>,
    lengths: Vec<u32>,
    words: Vec<u32>,
}

impl SampleStore {
    /// Many samples will go to a temporary file in this folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        let spool = Spool::new(folder);
        Self { spool, starts: Vec::new(), lengths: Vec::new(), words: Vec::new() }
    }

    /// Adds a sample.
    pub fn push(&mut self, sample: &Sample) -> Result<()> {
        let predictions = match sample {
            Sample::Pretraining(sample) => sample.max_predictions,
            _ => 0,
        };
        self.words.clear();
        self.words.extend([sample.features().padded_len() as u32, predictions as u32]);
        sample.words(&mut self.words);
        self.starts.push(self.spool.len());
        self.lengths.push(sample.len() as u32);
        self.spool.push(&self.words)
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Ends writing.
    pub fn finish(mut self) -> Result<Samples> {
        self.starts.push(self.spool.len());
        Ok(Samples { words: self.spool.finish()?, starts: self.starts, lengths: self.lengths })
    }
}

/// Samples at hand.
#[derive(Debug)]
pub struct Samples {
    words: Words,
    starts: Vec<u64>,
    lengths: Vec<u32>,
}

impl Samples {
    /// The number of samples.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// The number of tokens of each.
    pub fn lengths(&self) -> &[u32] {
        &self.lengths
    }

    /// One of them.
    pub fn get(&self, index: usize) -> Sample {
        let [begin, end] = [index, index + 1].map(|i| self.starts[i] as usize);
        let words = &self.words[begin..end];
        Sample::of_words(&words[2..], words[0] as usize, words[1] as usize)
    }

    /// All of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Sample> {
        (0..self.len()).map(|index| self.get(index))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::of_each_kind;
    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        let mut store = SampleStore::new(std::env::temp_dir());
        let samples = of_each_kind();
        samples.iter().for_each(|sample| store.push(sample).unwrap());
        assert!(store.len() == samples.len() && !store.is_empty());
        let stored = store.finish().unwrap();
        assert_eq!(stored.iter().collect::<Vec<_>>(), samples);
        assert_eq!(stored.get(3), samples[3]);
        assert_eq!(stored.lengths()[0], 9);
    }
}
