//! A batch as an engine without padding takes it: rows, and where sequences begin.

use super::Sample;
use crate::features::Target;

/// Rows of several packs, one sequence after the other and nothing between two.
///
/// `t` rows, `n` sequences, `p` packs, `m` masked pieces. All that points somewhere points to rows
/// of the batch. What the kind of samples does not have is empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PackedBatch {
    /// `[t]`: pieces.
    pub input_ids: Vec<i32>,
    /// `[t]`: 0 for the first text of a sequence, 1 for the second.
    pub segment_ids: Vec<i32>,
    /// `[t]`: from 0 in every sequence.
    pub positions: Vec<i32>,
    /// [n + 1] sequence `i` has the rows `bounds[i]..bounds[i + 1]`; its first is `[CLS]`.
    pub bounds: Vec<u32>,
    /// [p + 1] pack `i` has the sequences `packs[i]..packs[i + 1]`. No sequence sees another, so
    /// this matters to nobody but who counts packs.
    pub packs: Vec<u32>,
    /// Pre-training: the masked pieces.
    pub masked: MaskedRows,
    /// `[n]`: pre-training: 1 if the second text is from elsewhere.
    pub next_sentence_labels: Vec<i32>,
    /// `[n]`: classifier: what each sequence should be classified as.
    pub targets: Vec<Target>,
    /// `[n]`: SQuAD: the window's number.
    pub unique_ids: Vec<i64>,
    /// `[n]`: SQuAD, in training: first and last row of the answer.
    pub answers: Vec<(u32, u32)>,
}

/// The masked pieces of a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MaskedRows {
    /// `[m]`: the row of each.
    pub rows: Vec<u32>,
    /// `[m]`: what it was.
    pub ids: Vec<i32>,
    /// `[m]`: how much it counts.
    pub weights: Vec<f32>,
    /// `[m]`: the sequence that it is in, counted from 0.
    pub sequences: Vec<u32>,
}

impl PackedBatch {
    /// Without packs.
    pub fn new() -> Self {
        Self { bounds: vec![0], packs: vec![0], ..Self::default() }
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.input_ids.len()
    }

    /// The number of sequences.
    pub fn sequences(&self) -> usize {
        self.bounds.len().saturating_sub(1)
    }

    /// The number of packs.
    pub fn pack_count(&self) -> usize {
        self.packs.len().saturating_sub(1)
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.input_ids.is_empty()
    }

    /// Adds a pack.
    pub fn push_pack(&mut self, samples: &[Sample]) {
        samples.iter().for_each(|sample| self.push(sample));
        self.packs.push(self.sequences() as u32);
    }

    fn push(&mut self, sample: &Sample) {
        let (begin, sequence) = (self.rows() as u32, self.sequences() as u32);
        let features = sample.features();
        self.input_ids.extend_from_slice(features.ids());
        let segment = |place| i32::from(place >= features.first_segment());
        self.segment_ids.extend((0..features.len()).map(segment));
        self.positions.extend(0..features.len() as i32);
        self.bounds.push(self.input_ids.len() as u32);
        match sample {
            Sample::Pretraining(sample) => {
                for masked in &sample.masked {
                    self.masked.rows.push(begin + masked.position);
                    self.masked.ids.push(masked.id);
                    self.masked.weights.push(masked.weight);
                    self.masked.sequences.push(sequence);
                }
                self.next_sentence_labels.push(i32::from(sample.is_random_next));
            }
            Sample::Classifier(sample) => self.targets.push(sample.target),
            Sample::Squad(sample) => {
                self.unique_ids.push(sample.unique_id);
                if let Some((start, end)) = sample.answer {
                    self.answers.push((begin + start as u32, begin + end as u32));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{classifier, pretraining, squad};
    use super::*;

    #[test]
    fn rows_and_bounds() {
        let mut batch = PackedBatch::new();
        assert!(batch.is_empty() && batch.pack_count() == 0);
        batch.push_pack(&[pretraining(5, 0), pretraining(8, 1)]);
        batch.push_pack(&[pretraining(4, 2)]);
        assert_eq!((batch.rows(), batch.sequences(), batch.pack_count()), (17, 3, 2));
        assert_eq!((&batch.bounds[..], &batch.packs[..]), (&[0, 5, 13, 17][..], &[0, 2, 3][..]));
        assert_eq!(batch.positions[3..7], [3, 4, 0, 1]);
        assert_eq!(batch.segment_ids[..6], [0, 0, 0, 1, 1, 0]);
        assert_eq!(batch.masked.rows, [1, 6, 12, 14]);
        assert_eq!(batch.masked.sequences, [0, 1, 1, 2]);
        assert_eq!(batch.masked.ids, [101, 102, 108, 103]);
        assert_eq!(batch.next_sentence_labels, [0, 1, 0]);
        assert!(batch.bounds[..3].iter().all(|row| batch.input_ids[*row as usize] == 2));
    }

    #[test]
    fn of_other_kinds() {
        let mut batch = PackedBatch::new();
        batch.push_pack(&[classifier(Target::Class(1)), classifier(Target::Score(0.5))]);
        assert_eq!(batch.targets, [Target::Class(1), Target::Score(0.5)]);
        let mut batch = PackedBatch::new();
        batch.push_pack(&[squad(Some((3, 4))), squad(Some((0, 5)))]);
        assert_eq!((&batch.answers[..], batch.unique_ids.len()), (&[(3, 4), (6, 11)][..], 2));
    }
}
