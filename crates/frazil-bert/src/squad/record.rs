//! Features as records: the original's `train.tf_record` and `eval.tf_record`.

use std::path::Path;

use frazil_tf::example::Example;

use super::SquadFeatures;
use crate::Result;
use crate::features::{Features, int64, read_examples, write_examples};

const UNIQUE_IDS: &str = "unique_ids";
const START_POSITIONS: &str = "start_positions";
const END_POSITIONS: &str = "end_positions";
const IS_IMPOSSIBLE: &str = "is_impossible";

impl SquadFeatures {
    /// As the original stores it; with the answer if the features were made for training.
    pub fn to_example(&self) -> Example {
        let example = self.features.to_example().with_int64s(UNIQUE_IDS, [self.unique_id]);
        match (self.start_position, self.end_position) {
            (Some(start), Some(end)) => example
                .with_int64s(START_POSITIONS, [i64::from(start)])
                .with_int64s(END_POSITIONS, [i64::from(end)])
                .with_int64s(IS_IMPOSSIBLE, [i64::from(self.is_impossible)]),
            _ => example,
        }
    }
}

/// What a record holds: enough to run or train a model, not to find answers in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SquadRecord {
    /// The window's number.
    pub unique_id: i64,
    /// The sequence.
    pub features: Features,
    /// First and last token of the answer, in training.
    pub answer: Option<(i64, i64)>,
    /// Whether the document has no answer.
    pub is_impossible: bool,
}

/// Writes features, record by record as the original does.
pub fn write_records<'a>(
    path: impl AsRef<Path>,
    features: impl IntoIterator<Item = &'a SquadFeatures>,
) -> Result<u64> {
    write_examples(path, features.into_iter().map(SquadFeatures::to_example))
}

/// Reads what [`write_records`] or the original has written.
pub fn read_records(path: impl AsRef<Path>) -> Result<Vec<SquadRecord>> {
    read_examples(path, |example| {
        let named = example.features();
        let has = |name| named.kind(name).is_some();
        let answer = if has(START_POSITIONS) || has(END_POSITIONS) {
            Some((int64(named, START_POSITIONS)?, int64(named, END_POSITIONS)?))
        } else {
            None
        };
        Ok(SquadRecord {
            unique_id: int64(named, UNIQUE_IDS)?,
            features: Features::from_example(example)?,
            answer,
            is_impossible: has(IS_IMPOSSIBLE) && int64(named, IS_IMPOSSIBLE)? != 0,
        })
    })
}
