//! Features as records: the original's `train.tf_record` and `eval.tf_record`.

use std::path::Path;

use frazil_tf::example::Example;

use super::SquadFeatures;
use crate::features::{Features, int64, read_examples, write_examples};
use crate::{Error, Result};

const UNIQUE_IDS: &str = "unique_ids";
const START_POSITIONS: &str = "start_positions";
const END_POSITIONS: &str = "end_positions";
const IS_IMPOSSIBLE: &str = "is_impossible";

impl SquadFeatures {
    /// As the original stores it; with the answer if the features were made for training.
    pub fn to_example(&self) -> Example {
        let answer = self.start_position.zip(self.end_position);
        let answer = answer.map(|(start, end)| (i64::from(start), i64::from(end)));
        to_example(&self.features, self.unique_id, answer, self.is_impossible)
    }
}

fn to_example(
    features: &Features,
    unique_id: i64,
    answer: Option<(i64, i64)>,
    is_impossible: bool,
) -> Example {
    let example = features.to_example().with_int64s(UNIQUE_IDS, [unique_id]);
    match answer {
        Some((start, end)) => example
            .with_int64s(START_POSITIONS, [start])
            .with_int64s(END_POSITIONS, [end])
            .with_int64s(IS_IMPOSSIBLE, [i64::from(is_impossible)]),
        None => example,
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

impl SquadRecord {
    /// As the original stores it.
    pub fn to_example(&self) -> Example {
        to_example(&self.features, self.unique_id, self.answer, self.is_impossible)
    }

    /// From a record.
    pub fn from_example(example: &Example) -> Result<Self> {
        let named = example.features();
        let has = |name| named.kind(name).is_some();
        let answer = if has(START_POSITIONS) || has(END_POSITIONS) {
            Some((int64(named, START_POSITIONS)?, int64(named, END_POSITIONS)?))
        } else {
            None
        };
        let features = Features::from_example(example)?;
        let inside = |at: i64| (0..features.len() as i64).contains(&at);
        if answer.is_some_and(|(start, end)| !inside(start) || !inside(end)) {
            let expected = "inside the sequence, both it and `end_positions`";
            return Err(Error::RecordLayout { name: START_POSITIONS, expected });
        }
        Ok(Self {
            unique_id: int64(named, UNIQUE_IDS)?,
            features,
            answer,
            is_impossible: has(IS_IMPOSSIBLE) && int64(named, IS_IMPOSSIBLE)? != 0,
        })
    }
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
    read_examples(path, SquadRecord::from_example)
}
