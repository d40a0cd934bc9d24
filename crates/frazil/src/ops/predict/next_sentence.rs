//! `predict next-sentence`: how likely it is that the second of two texts follows the first, by a
//! model that was pre-trained to tell.

use std::path::{Path, PathBuf};
use std::time::Instant;

use frazil_bert::features::InputExample;
use frazil_bert::features::classifier::{ClassifierInput, Labels};
use frazil_bert::rows::RowProblem;
use serde::Serialize;

use super::rows::{Skipped, Source};
use crate::ops::text_model::{Item, Options, TextModel, Want};
use crate::{Error, Result};

/// What the model says of a pair.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// The row: `line-3`.
    pub id: String,
    /// Whether the second text is more likely to follow than not.
    pub is_next: bool,
    /// How likely it is to follow.
    pub probability: f32,
}

/// What was done.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The model.
    pub model: PathBuf,
    /// The vocabulary.
    pub vocabulary: PathBuf,
    /// Pairs that were read.
    pub rows: usize,
    /// How many of them are likely to follow each other.
    pub next: usize,
    /// Rows that could not be used.
    pub skipped: Skipped,
    /// Seconds, without opening the model.
    pub seconds: f64,
    /// Choices that were made.
    pub notes: Vec<String>,
}

/// Reads pairs, and gives the predictions away as they are made, with how much of the source is
/// read by then.
pub fn next_sentence<E: From<Error>>(
    path: impl AsRef<Path>,
    options: &Options,
    source: &mut Source,
    mut each: impl FnMut(Prediction, (u64, Option<u64>)) -> Result<(), E>,
) -> Result<Report, E> {
    let path = path.as_ref();
    let model = TextModel::open(path, &Want::NextSentence, options)?;
    let labels = Labels::classes(["0", "1"]);
    let input = ClassifierInput::new(model.tokenizer().clone(), labels, model.max_seq_length());
    let input = input.map_err(Error::from)?;
    let start = Instant::now();
    let (mut rows, mut next) = (0, 0);
    let sequences = std::iter::from_fn(|| {
        let row = source.next(|InputExample { guid, text_a, text_b, .. }| {
            let Some(text_b) = text_b else {
                let (what, column) = ("the second text", 2);
                return Err(RowProblem::MissingColumn { what, column, found: 1 });
            };
            let features = input.sequence(&text_a, Some(&text_b));
            model.check(&features)?;
            Ok((guid, features))
        });
        let progress = source.progress();
        let row = row.map_err(E::from).transpose();
        row.map(|row| row.map(|(id, features)| Item::new((id, progress), features)))
    });
    model.run(sequences, |(id, progress), said| {
        let logs = said.outputs.first().map_or(&[][..], |output| &output.values);
        let probability = logs.first().map_or(f32::NAN, |log| log.exp());
        let is_next = logs.len() == 2 && logs[0] > logs[1];
        rows += 1;
        next += usize::from(is_next);
        each(Prediction { id, is_next, probability }, progress)
    })?;
    let mut notes = model.notes().to_vec();
    notes.extend(source.notes.iter().cloned());
    Ok(Report {
        model: path.to_path_buf(),
        vocabulary: model.vocabulary().to_path_buf(),
        rows,
        next,
        skipped: source.skipped().clone(),
        seconds: start.elapsed().as_secs_f64(),
        notes,
    })
}
