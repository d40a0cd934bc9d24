//! The data of a task: sequences to calibrate on, and examples to be evaluated by.
//!
//! The two are never the same unless the user insists: without calibration data of their own, some
//! examples are taken out of the evaluation set, and a note says so.

mod glue;
mod squad;

use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::str::FromStr;

use frazil_bert::features::Features;
use frazil_bert::rows::OnBadRow;
use frazil_runtime::Inputs;
use frazil_tensor::file;
use frazil_tf::example::Example;
use frazil_tf::sniff::{self, Content};
use frazil_tf::tfrecord::RecordReader;
use frazil_tune::choice::fingerprint;
use frazil_tune::dice::shuffled;
use serde::Serialize;

use super::evaluate::Examples;
use crate::ops::text_model::{TextGraph, Want};
use crate::{Error, Result};

/// What a model is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Answers to questions, in texts.
    Squad,
    /// Classes or scores of texts, by the rules of a data set.
    Glue(frazil_bert::glue::Task),
}

impl Task {
    /// What is asked of the model.
    pub fn want(self) -> Want {
        match self {
            Self::Squad => Want::Span,
            Self::Glue(_) => Want::Classes,
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Squad => f.pad("SQuAD"),
            Self::Glue(task) => task.fmt(f),
        }
    }
}

impl FromStr for Task {
    type Err = frazil_bert::Error;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name.to_lowercase().as_str() {
            "squad" => Ok(Self::Squad),
            _ => name.parse().map(Self::Glue),
        }
    }
}

/// Where the data of a task are, and how they are used.
#[derive(Clone, Debug)]
pub struct DataOptions {
    /// Sequences like those that the model will read: a SQuAD file, a GLUE folder or table, or
    /// TFRecords.
    pub calibration: Option<PathBuf>,
    /// How many of them are read.
    pub calibration_size: usize,
    /// Examples with their answers: a SQuAD file, a GLUE folder or table, or TFRecords of SQuAD.
    pub evaluation: Option<PathBuf>,
    /// The SQuAD file whose windows TFRecords are.
    pub labels: Option<PathBuf>,
    /// Calibrate on the evaluation set itself.
    pub calibrate_on_evaluation: bool,
    /// Which of the task's scores counts; its first one if none.
    pub metric: Option<String>,
    /// From the start of a window to the start of the next (SQuAD).
    pub doc_stride: Option<usize>,
    /// Longer questions are cut (SQuAD).
    pub max_query_length: Option<usize>,
    /// What is done about a row that cannot be used.
    pub on_bad_row: OnBadRow,
    /// What every draw follows from.
    pub seed: u64,
}

impl Default for DataOptions {
    fn default() -> Self {
        Self {
            calibration: None,
            calibration_size: 100,
            evaluation: None,
            labels: None,
            calibrate_on_evaluation: false,
            metric: None,
            doc_stride: None,
            max_query_length: None,
            on_bad_row: OnBadRow::Stop,
            seed: 1978,
        }
    }
}

/// Where data came from, and how much of it there is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Origin {
    /// The file.
    pub path: PathBuf,
    /// Questions or rows; 0 if only sequences were read.
    pub examples: usize,
    /// Sequences.
    pub sequences: usize,
    /// Pieces in all of them.
    pub tokens: usize,
}

/// The score that counts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metric {
    /// As the task calls it.
    pub name: String,
    /// What one percentage point is in its numbers.
    pub point: f64,
}

/// What [`read`] gives.
pub(super) struct Data {
    pub calibration: Vec<Features>,
    pub examples: Option<Box<dyn Examples>>,
    pub metric: Metric,
    pub calibrated_on: Origin,
    pub evaluated_on: Option<Origin>,
    pub notes: Vec<String>,
}

/// Reads all that a task needs. `evaluate` is false if somebody else evaluates.
pub(super) fn read(
    model: &Path,
    text: &Rc<TextGraph>,
    task: Task,
    options: &DataOptions,
    evaluate: bool,
) -> Result<Data> {
    let data = match task {
        Task::Squad => squad::read(model, text, options, evaluate)?,
        Task::Glue(task) => glue::read(model, text, task, options, evaluate)?,
    };
    for features in &data.calibration {
        text.check(features).map_err(|problem| Error::Usage {
            what: format!("`{}`: {problem}", data.calibrated_on.path.display()),
            hint: "are these data, or the vocabulary, another model's?".into(),
        })?;
    }
    if data.calibration.is_empty() {
        return Err(Error::Usage {
            what: format!("`{}` has nothing to calibrate on", data.calibrated_on.path.display()),
            hint: "give texts like those that the model will read with `--calibration`".into(),
        });
    }
    Ok(data)
}

/// What identifies calibration inputs.
pub(super) fn identity(inputs: &[Inputs]) -> Result<String> {
    let mut text = String::new();
    for run in inputs {
        let mut names: Vec<&String> = run.keys().collect();
        names.sort();
        for name in names {
            let tensor = &run[name];
            let crc = crc32c::crc32c(tensor.bytes()?);
            text += &format!("{name} {} {crc:08x}\n", tensor.shape());
        }
    }
    Ok(fingerprint(text.as_bytes()))
}

/// Is it a file of TFRecords?
fn is_records(path: &Path) -> Result<bool> {
    Ok(path.is_file() && sniff::of(&file::map(path)?) == Content::TfRecord)
}

/// Sequences of TFRecords.
fn records(path: &Path) -> Result<Vec<Features>> {
    let read = |record: frazil_tf::Result<_>| -> frazil_bert::Result<Features> {
        Features::from_example(&Example::decode(record?)?)
    };
    let all = RecordReader::open(path)?.map(read).collect::<frazil_bert::Result<Vec<_>>>();
    let all = all.map_err(|error| error.in_file(path))?;
    // The last batch of a file may be filled up.
    Ok(all.into_iter().filter(|features| !features.is_empty()).collect())
}

/// So many of them, drawn.
fn draw<T: Clone>(all: &[T], count: usize, seed: u64) -> Vec<T> {
    let mut places = shuffled(all.len(), seed);
    places.truncate(count);
    places.sort_unstable();
    places.into_iter().map(|place| all[place].clone()).collect()
}

/// Which examples are taken out for calibration: at most a fifth, and at least one.
fn held_out(count: usize, wanted: usize, seed: u64) -> Vec<bool> {
    let mut held = vec![false; count];
    for place in shuffled(count, seed).into_iter().take(wanted.min(count / 5).max(1)) {
        held[place] = true;
    }
    held
}

fn origin(path: &Path, examples: usize, sequences: &[Features]) -> Origin {
    Origin {
        path: path.to_path_buf(),
        examples,
        sequences: sequences.len(),
        tokens: sequences.iter().map(Features::len).sum(),
    }
}

/// The score that was named, or the first.
fn metric(asked: Option<&str>, known: &[&str], point: f64) -> Result<Metric> {
    let name = match asked {
        None => known.first().copied().unwrap_or_default(),
        Some(asked) => {
            let found = known.iter().find(|name| name.eq_ignore_ascii_case(asked));
            found.copied().ok_or_else(|| Error::Usage {
                what: format!("the task has no score `{asked}`"),
                hint: format!("its scores are `{}`", known.join("`, `")),
            })?
        }
    };
    Ok(Metric { name: name.into(), point })
}

/// Nothing was left after some were taken out.
fn nothing_left(path: &Path) -> Error {
    Error::Usage {
        what: format!("`{}` has nothing left to evaluate on", path.display()),
        hint: "give calibration data of their own with `--calibration`".into(),
    }
}

fn no_calibration() -> Error {
    Error::Usage {
        what: "there is nothing to calibrate on".into(),
        hint: "name texts like those that the model will read with `--calibration`".into(),
    }
}

pub(super) fn no_evaluation(task: impl fmt::Display) -> Error {
    Error::Usage {
        what: format!("there is nothing to evaluate {task} on"),
        hint: "name the data with `--evaluation`, or a program with `--eval-command`".into(),
    }
}
