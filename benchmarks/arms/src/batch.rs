//! What is asked for, and the inputs made of it: padded ids, mask and segments.
//!
//! The ids are a formula of the sequence's number and the position, the same one as in
//! `xtask/peers/arms/arm.py`, so that no inputs have to be sent and all engines get the same.

use serde::Deserialize;

/// One line of stdin.
#[derive(Debug, Deserialize)]
pub struct Request {
    /// The lengths of the sequences of each batch.
    #[serde(default)]
    pub batches: Vec<Vec<usize>>,
    /// Pad every batch to this length; to its longest if not given.
    #[serde(default)]
    pub pad: Option<usize>,
    /// Runs of all batches before time is taken.
    #[serde(default)]
    pub warm: usize,
    /// Timed runs of all batches.
    #[serde(default)]
    pub repeat: usize,
    /// Whether the logits of one more run are wanted.
    #[serde(default)]
    pub outputs: bool,
    /// Whether the machine's peaks are wanted instead.
    #[serde(default)]
    pub peaks: bool,
}

/// Sequences side by side, `[b, s]` row by row.
pub struct Batch {
    /// Real tokens of each sequence.
    pub lengths: Vec<usize>,
    /// The padded length, s.
    pub seq: usize,
    /// Word pieces; 0 where there is padding.
    pub input_ids: Vec<i64>,
    /// 1 for tokens, 0 for padding.
    pub input_mask: Vec<i64>,
    /// 0 for the first eighth, 1 for the rest; 0 for padding.
    pub segment_ids: Vec<i64>,
}

impl Batch {
    /// The inputs of all batches of a request, for a vocabulary of that size.
    pub fn all(request: &Request, vocabulary: usize) -> Vec<Self> {
        let mut first = 0;
        let mut batches = Vec::new();
        for lengths in &request.batches {
            let longest = lengths.iter().copied().max().unwrap_or(0);
            let seq = request.pad.unwrap_or(longest).max(longest);
            batches.push(Self::new(lengths, seq, first, vocabulary));
            first += lengths.len();
        }
        batches
    }

    /// Sequences to find ranges with, one at a time: generated ids, other ones than are measured.
    #[cfg(feature = "frazil")]
    pub fn calibration(vocabulary: usize) -> impl Iterator<Item = Self> {
        (0..16).map(move |i| Self::new(&[128], 128, 1000 + i, vocabulary))
    }

    fn new(lengths: &[usize], seq: usize, first: usize, vocabulary: usize) -> Self {
        let mut batch = Self {
            lengths: lengths.to_vec(),
            seq,
            input_ids: vec![0; lengths.len() * seq],
            input_mask: vec![0; lengths.len() * seq],
            segment_ids: vec![0; lengths.len() * seq],
        };
        for (row, &length) in lengths.iter().enumerate() {
            for position in 0..length {
                let at = row * seq + position;
                batch.input_ids[at] = id(first + row, position, vocabulary);
                batch.input_mask[at] = 1;
                batch.segment_ids[at] = i64::from(position >= length / 8);
            }
        }
        batch
    }

    /// `[b, s]`.
    pub fn shape(&self) -> [usize; 2] {
        [self.lengths.len(), self.seq]
    }

    /// Of values `[b, s]` those that are not padding, sequence by sequence.
    pub fn real<'a>(&'a self, values: &'a [f32]) -> impl Iterator<Item = f32> + 'a {
        let rows = self.lengths.iter().zip(values.chunks(self.seq.max(1)));
        rows.flat_map(|(&length, row)| row.iter().copied().take(length))
    }
}

/// A word piece for a place. Those below a quarter of the vocabulary, at most 1,000, are left to
/// special tokens.
fn id(sequence: usize, position: usize, vocabulary: usize) -> i64 {
    let low = 1000.min(vocabulary as u64 / 4);
    let mixed = (sequence as u64 + 1).wrapping_mul(2_654_435_761)
        ^ (position as u64 + 1).wrapping_mul(2_246_822_519);
    let spread = (mixed & 0xffff_ffff).wrapping_mul(0x9E37_79B1) >> 16;
    (low + spread % (vocabulary as u64 - low)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_padded_and_numbered_on() {
        let request: Request =
            serde_json::from_str(r#"{"batches": [[3, 1], [8]], "repeat": 1}"#).unwrap();
        let batches = Batch::all(&request, 100);
        assert_eq!(batches[0].shape(), [2, 3]);
        assert_eq!(batches[0].input_mask, [1, 1, 1, 1, 0, 0]);
        assert_eq!(batches[1].segment_ids, [0, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(batches[1].input_ids[0], id(2, 0, 100));
        assert!(batches[1].input_ids.iter().all(|&id| (25..100).contains(&id)));
        let values: Vec<f32> = batches[0].real(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).collect();
        assert_eq!(values, [1.0, 2.0, 3.0, 4.0]);
    }

    /// `arm.py` has the same numbers in its own test.
    #[test]
    fn ids_are_pythons() {
        let some = [(0, 0), (0, 1), (7, 127), (63, 383)];
        assert_eq!(some.map(|(k, p)| id(k, p, 30_522)), IDS);
    }

    const IDS: [i64; 4] = [10960, 21229, 2325, 16057];
}
