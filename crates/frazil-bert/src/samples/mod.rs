//! Samples to train and evaluate on, alone and in packs: their files, and batches of them.
//!
//! A [`Sample`] is one sequence and what is to be learnt from it. [`packed`] puts several into one
//! record and takes them out again, strictly; [`SampleFile`] reads whatever holds samples
//! (TFRecords of the original's or packed, MLPerf's binaries of both kinds), [`SampleWriter`] writes
//! it, [`Checker`] proves that what was packed is what there was. [`Reader`] gives batches: flat
//! rows, no padding, shuffled across files and resumable. Left out: packing itself, see
//! [`packing`](crate::packing), and everything about engines.

mod batch;
pub mod binary;
mod check;
mod file;
mod limits;
pub mod packed;
mod permutation;
mod reader;
pub mod store;
pub mod writer;

use std::fmt;

use frazil_tf::example::Example;
use serde::Serialize;

pub use batch::{MaskedRows, PackedBatch};
pub use binary::Shape;
pub use check::{Check, Checker};
pub use file::{FileKind, STRATEGY, SampleFile, UNFINISHED, open_all};
pub use limits::Limits;
pub use reader::{Position, Reader, ReaderOptions};
pub use store::SampleStore;
pub use writer::SampleWriter;

use crate::features::{ClassifierFeatures, Features, Masked, PretrainingFeatures, Target};
use crate::squad::SquadRecord;
use crate::{Error, Result};

/// What is to be learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Masked pieces, and whether the second text follows the first.
    Pretraining,
    /// A class or a score.
    Classifier,
    /// Where an answer begins and ends.
    Squad,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pretraining => "pre-training",
            Self::Classifier => "a classifier",
            Self::Squad => "SQuAD",
        })
    }
}

/// What a sample has to learn from; all of a pack have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labels {
    /// Masked pieces, and whether the second text follows the first.
    Masked,
    /// A class.
    Class,
    /// A score.
    Score,
    /// Where an answer begins and ends.
    Answer,
    /// Nothing: questions that are to be answered.
    Question,
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Masked => "pre-training",
            Self::Class => "a classifier",
            Self::Score => "a classifier with scores as labels",
            Self::Answer => "SQuAD with answers",
            Self::Question => "SQuAD without answers",
        })
    }
}

/// One sequence, and what is to be learnt from it.
#[derive(Clone, Debug, PartialEq)]
pub enum Sample {
    /// Masked pieces, and whether the second text follows the first.
    Pretraining(PretrainingFeatures),
    /// A class or a score.
    Classifier(ClassifierFeatures),
    /// Where an answer begins and ends.
    Squad(SquadRecord),
}

impl Sample {
    /// The sequence.
    pub fn features(&self) -> &Features {
        match self {
            Self::Pretraining(sample) => &sample.features,
            Self::Classifier(sample) => &sample.features,
            Self::Squad(sample) => &sample.features,
        }
    }

    /// The number of its tokens.
    pub fn len(&self) -> usize {
        self.features().len()
    }

    /// Whether it is nothing but padding.
    pub fn is_empty(&self) -> bool {
        self.features().is_empty()
    }

    /// What is to be learnt.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Pretraining(_) => Kind::Pretraining,
            Self::Classifier(_) => Kind::Classifier,
            Self::Squad(_) => Kind::Squad,
        }
    }

    /// What it has to learn from.
    pub fn labels(&self) -> Labels {
        match self {
            Self::Pretraining(_) => Labels::Masked,
            Self::Classifier(sample) => match sample.target {
                Target::Class(_) => Labels::Class,
                Target::Score(_) => Labels::Score,
            },
            Self::Squad(sample) if sample.answer.is_some() => Labels::Answer,
            Self::Squad(_) => Labels::Question,
        }
    }

    /// Pieces that are to be predicted.
    pub fn masked(&self) -> &[Masked] {
        match self {
            Self::Pretraining(sample) => &sample.masked,
            _ => &[],
        }
    }

    /// As the original stores it in a record.
    pub fn to_example(&self) -> Example {
        match self {
            Self::Pretraining(sample) => sample.to_example(),
            Self::Classifier(sample) => sample.to_example(),
            Self::Squad(sample) => sample.to_example(),
        }
    }

    /// From a record of the original's, whichever of its programs wrote it.
    pub fn from_example(example: &Example) -> Result<Self> {
        let has = |name| example.features().kind(name).is_some();
        Ok(if PretrainingFeatures::is_in(example) {
            Self::Pretraining(PretrainingFeatures::from_example(example)?)
        } else if has("label_ids") {
            Self::Classifier(ClassifierFeatures::from_example(example)?)
        } else if has("unique_ids") {
            Self::Squad(SquadRecord::from_example(example)?)
        } else {
            let features = example.features().names().map(str::to_owned).collect();
            return Err(Error::UnknownRecord { features });
        })
    }

    /// All that it says, without padding: two samples that say the same have the same words.
    fn words(&self, words: &mut Vec<u32>) {
        let features = self.features();
        let count = |count: usize| count as u32; // no sequence has as many
        words.extend([self.kind() as u32, count(features.len()), count(features.first_segment())]);
        words.extend(features.ids().iter().map(|id| *id as u32));
        match self {
            Self::Pretraining(sample) => {
                words.extend([u32::from(sample.is_random_next), count(sample.masked.len())]);
                for masked in &sample.masked {
                    words.extend([masked.position, masked.id as u32, masked.weight.to_bits()]);
                }
            }
            Self::Classifier(sample) => {
                let (tag, target) = match sample.target {
                    Target::Class(class) => (0, class as u32),
                    Target::Score(score) => (1, score.to_bits()),
                };
                words.extend([u32::from(sample.is_real_example), tag, target]);
            }
            Self::Squad(sample) => {
                words.extend(halves(sample.unique_id));
                words.push(u32::from(sample.is_impossible));
                if let Some((start, end)) = sample.answer {
                    words.extend(halves(start));
                    words.extend(halves(end));
                }
            }
        }
    }

    /// What [`words`](Self::words) made of one; the lengths with padding are not among them.
    fn of_words(words: &[u32], padded: usize, max_predictions: usize) -> Self {
        let (ids, rest) = words[3..].split_at(words[1] as usize);
        let ids = ids.iter().map(|id| *id as i32).collect();
        let features = Features::of_ids(ids, words[2] as usize, padded);
        if words[0] == Kind::Pretraining as u32 {
            let masked = rest[2..].chunks_exact(3).map(|masked| Masked {
                position: masked[0],
                id: masked[1] as i32,
                weight: f32::from_bits(masked[2]),
            });
            return Self::Pretraining(PretrainingFeatures {
                features,
                masked: masked.collect(),
                max_predictions,
                is_random_next: rest[0] == 1,
            });
        }
        if words[0] == Kind::Classifier as u32 {
            let target = match rest[1] {
                0 => Target::Class(rest[2] as i32),
                _ => Target::Score(f32::from_bits(rest[2])),
            };
            let is_real_example = rest[0] == 1;
            return Self::Classifier(ClassifierFeatures { features, target, is_real_example });
        }
        Self::Squad(SquadRecord {
            unique_id: joined(&rest[..2]),
            features,
            answer: rest.get(3..7).map(|answer| (joined(&answer[..2]), joined(&answer[2..]))),
            is_impossible: rest[2] == 1,
        })
    }
}

fn halves(number: i64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}

fn joined(halves: &[u32]) -> i64 {
    i64::from(halves[0]) | (i64::from(halves[1]) << 32)
}

/// One sample of each kind and a few of the first, for tests.
#[cfg(test)]
mod testing {
    use super::*;
    use crate::features::Frame;

    pub(super) const FRAME: Frame = Frame { cls: 2, sep: 3 };

    /// A sequence of this length that differs from others by `salt`.
    pub(super) fn pretraining(length: usize, salt: i32) -> Sample {
        assert!(length >= 4);
        let first: Vec<i32> = (0..length as i32 - 4).map(|i| 10 + i + salt).collect();
        let masked = |position: usize| Masked {
            position: position as u32,
            id: 100 + salt + position as i32,
            weight: 1.0,
        };
        Sample::Pretraining(PretrainingFeatures {
            features: Features::new(FRAME, &first, Some(&[7 + salt]), 32),
            masked: (1..length).step_by(6).map(masked).collect(),
            max_predictions: 5,
            is_random_next: salt % 2 == 1,
        })
    }

    pub(super) fn classifier(target: Target) -> Sample {
        let features = Features::new(FRAME, &[7, 8], None, 8);
        Sample::Classifier(ClassifierFeatures { features, target, is_real_example: true })
    }

    pub(super) fn squad(answer: Option<(i64, i64)>) -> Sample {
        Sample::Squad(SquadRecord {
            unique_id: -(1 << 40),
            features: Features::new(FRAME, &[7], Some(&[8, 9]), 12),
            answer,
            is_impossible: answer == Some((0, 0)),
        })
    }

    pub(super) fn of_each_kind() -> Vec<Sample> {
        vec![
            pretraining(9, 1),
            classifier(Target::Class(1)),
            classifier(Target::Score(0.5)),
            squad(None),
            squad(Some((3, 4))),
            squad(Some((0, 0))),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::testing::of_each_kind;
    use super::*;

    #[test]
    fn records_and_words_and_back() {
        for sample in of_each_kind() {
            assert_eq!(Sample::from_example(&sample.to_example()).unwrap(), sample);
            let mut words = Vec::new();
            sample.words(&mut words);
            let (padded, predictions) = (sample.features().padded_len(), 5);
            assert_eq!(Sample::of_words(&words, padded, predictions), sample);
        }
        let other = Example::default().with_int64s("input_ids", [1]);
        let error = Sample::from_example(&other).unwrap_err().to_string();
        assert!(error.contains("`input_ids`"), "{error}");
    }
}
