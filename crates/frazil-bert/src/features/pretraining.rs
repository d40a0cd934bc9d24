//! Features of pre-training: a pair of texts with masked pieces, as `create_pretraining_data.py`
//! of google-research/bert stores them.
//!
//! Left out: how text becomes such a pair, see [`pretrain_data`](crate::pretrain_data).

use std::path::Path;

use frazil_tf::example::Example;

use super::{Features, int32s, int64, read_examples, write_examples};
use crate::{Error, Result};

const POSITIONS: &str = "masked_lm_positions";
const IDS: &str = "masked_lm_ids";
const WEIGHTS: &str = "masked_lm_weights";
const NEXT_SENTENCE: &str = "next_sentence_labels";

/// A piece that is to be predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Masked {
    /// Where it stands in the sequence.
    pub position: u32,
    /// What it is.
    pub id: i32,
    /// How much it counts; 1, unless somebody wrote something else.
    pub weight: f32,
}

/// A sequence, what is masked in it, and whether its second text follows the first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PretrainingFeatures {
    /// The sequence.
    pub features: Features,
    /// What is to be predicted, in the order of the text.
    pub masked: Vec<Masked>,
    /// `max_predictions_per_seq`: as many places has a record.
    pub max_predictions: usize,
    /// Whether the second text is from elsewhere: `next_sentence_labels` is then 1.
    pub is_random_next: bool,
}

impl PretrainingFeatures {
    /// `masked_lm_positions`, with padding.
    pub fn masked_lm_positions(&self) -> Vec<i64> {
        self.column(0, |masked| i64::from(masked.position))
    }

    /// `masked_lm_ids`, with padding.
    pub fn masked_lm_ids(&self) -> Vec<i64> {
        self.column(0, |masked| i64::from(masked.id))
    }

    /// `masked_lm_weights`, with padding.
    pub fn masked_lm_weights(&self) -> Vec<f32> {
        self.column(0.0, |masked| masked.weight)
    }

    fn column<T: Clone>(&self, padding: T, of: impl Fn(&Masked) -> T) -> Vec<T> {
        let mut column: Vec<T> = self.masked.iter().map(of).collect();
        column.resize(self.max_predictions.max(column.len()), padding);
        column
    }

    /// As the original stores it in a record.
    pub fn to_example(&self) -> Example {
        self.features
            .to_example()
            .with_int64s(POSITIONS, self.masked_lm_positions())
            .with_int64s(IDS, self.masked_lm_ids())
            .with_floats(WEIGHTS, self.masked_lm_weights())
            .with_int64s(NEXT_SENTENCE, [i64::from(self.is_random_next)])
    }

    /// Whether a record looks like one of these.
    pub fn is_in(example: &Example) -> bool {
        example.features().kind(POSITIONS).is_some()
    }

    /// From a record.
    pub fn from_example(example: &Example) -> Result<Self> {
        let features = Features::from_example(example)?;
        let (positions, ids) = (int32s(example, POSITIONS)?, int32s(example, IDS)?);
        let weights = example.floats(WEIGHTS)?;
        let max_predictions = positions.len();
        for (name, found) in [(IDS, ids.len()), (WEIGHTS, weights.len())] {
            if found != max_predictions {
                return Err(Error::RecordLength { name, expected: max_predictions, found });
            }
        }
        let mut masked = Vec::new();
        for ((position, id), &weight) in positions.into_iter().zip(ids).zip(weights) {
            if weight == 0.0 {
                continue;
            }
            let place = u32::try_from(position).ok();
            match place.filter(|place| (*place as usize) < features.len()) {
                Some(position) => masked.push(Masked { position, id, weight }),
                None => {
                    let expected = "inside the sequence wherever its weight is not 0";
                    return Err(Error::RecordLayout { name: POSITIONS, expected });
                }
            }
        }
        let is_random_next = match int64(example.features(), NEXT_SENTENCE)? {
            0 => false,
            1 => true,
            _ => {
                return Err(Error::RecordLayout { name: NEXT_SENTENCE, expected: "0 or 1" });
            }
        };
        Ok(Self { features, masked, max_predictions, is_random_next })
    }
}

/// Writes features, record by record as the original does.
pub fn write_records<'a>(
    path: impl AsRef<Path>,
    features: impl IntoIterator<Item = &'a PretrainingFeatures>,
) -> Result<u64> {
    write_examples(path, features.into_iter().map(PretrainingFeatures::to_example))
}

/// Reads what [`write_records`] or the original has written.
pub fn read_records(path: impl AsRef<Path>) -> Result<Vec<PretrainingFeatures>> {
    read_examples(path, PretrainingFeatures::from_example)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::Frame;

    fn features() -> PretrainingFeatures {
        let frame = Frame { cls: 2, sep: 3 };
        let masked = [(1, 7), (4, 9)].map(|(position, id)| Masked { position, id, weight: 1.0 });
        PretrainingFeatures {
            features: Features::new(frame, &[4, 8], Some(&[4]), 8),
            masked: masked.into(),
            max_predictions: 3,
            is_random_next: true,
        }
    }

    #[test]
    fn records_and_back() {
        let example = features().to_example();
        assert_eq!(example.int64s(POSITIONS).unwrap(), [1, 4, 0]);
        assert_eq!(example.floats(WEIGHTS).unwrap(), [1.0, 1.0, 0.0]);
        assert!(PretrainingFeatures::is_in(&example));
        assert_eq!(PretrainingFeatures::from_example(&example).unwrap(), features());
    }

    #[test]
    fn other_records_are_refused() {
        let refused =
            |example: Example| PretrainingFeatures::from_example(&example).unwrap_err().to_string();
        let good = || features().to_example();
        let outside = refused(good().with_int64s(POSITIONS, [1, 6, 0]));
        assert!(outside.contains("inside the sequence"), "{outside}");
        assert!(refused(good().with_int64s(POSITIONS, [-1, 4, 0])).contains("inside"));
        assert!(refused(good().with_int64s(IDS, [1])).contains("has 1 values, not 3"));
        assert!(refused(good().with_int64s(NEXT_SENTENCE, [2])).contains("0 or 1"));
        assert!(!PretrainingFeatures::is_in(&features().features.to_example()));
    }
}
