//! `evaluate glue`: GLUE's official scores of anyone's predictions, or of a model's.
//!
//! Predictions are a table or JSON Lines, in the order of the data set's rows: GLUE's own form
//! (`index`, `prediction`), what `frazil predict classify` writes, `test_results.tsv` (a probability
//! for each label), or one label a line.

use std::path::{Path, PathBuf};

use frazil_bert::features::classifier::{Labels, Target};
use frazil_bert::glue::{ReadOptions, Split, Task};
use frazil_bert::metrics::glue as metrics;
use frazil_bert::rows::{OnBadRow, RowProblem};
use frazil_tensor::file;
use serde::Serialize;
use serde_json::Value;

use crate::Result;
use crate::ops::predict::classify::{self, Classifier, Score, argmax};
use crate::ops::predict::rows::{Skipped, Source};

/// The scores.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The task.
    pub task: String,
    /// Its rows.
    pub data: PathBuf,
    /// The predictions, or the model that made them.
    pub predictions: PathBuf,
    /// Rows that were scored.
    pub rows: usize,
    /// GLUE's scores.
    pub scores: Vec<Score>,
    /// Rows of the data that could not be used.
    pub skipped: Skipped,
    /// Choices that were made.
    pub notes: Vec<String>,
}

/// Columns and keys that hold predictions.
const NAMES: [&str; 5] = ["prediction", "label", "score", "pred", "predictions"];

/// Scores a file of predictions by the task's labels in `data`, a folder or a file.
pub fn score_file(
    task: Task,
    data: &Path,
    split: Split,
    predictions: &Path,
    on_bad_row: OnBadRow,
) -> Result<Report> {
    let labels = task.labels();
    let options = ReadOptions { on_bad_row, ..ReadOptions::default() };
    let path = file_of(task, data, split, &options);
    let bytes = file::map(&path)?;
    let rows = task.parse(&bytes, split, &options).map_err(|error| error.in_file(&path))?;
    let mut skipped = Skipped::default();
    rows.skipped.iter().for_each(|row| skipped.add(row));
    let text = file::map(predictions)?;
    let mut notes = Vec::new();
    let mut found = read(&text, &labels, &mut notes).map_err(|error| error.in_file(predictions))?;
    // Those for rows that are left out are left out, too.
    if !rows.skipped.is_empty() && found.len() == rows.items.len() + rows.skipped.len() {
        let mut lines: Vec<usize> = rows.skipped.iter().map(|row| row.line).collect();
        lines.extend(&rows.lines);
        lines.sort_unstable();
        let mut lines = lines.into_iter();
        found.retain(|_| lines.next().is_some_and(|line| rows.lines.binary_search(&line).is_ok()));
    }
    let target = |label: &str| labels.target(label).unwrap_or(Target::Class(-1));
    let expected: Vec<Target> = rows.items.iter().map(|row| target(&row.label)).collect();
    let scores = score(task, &found, &expected).map_err(|error| error.in_file(predictions))?;
    Ok(Report {
        task: task.name().into(),
        data: path,
        predictions: predictions.to_path_buf(),
        rows: expected.len(),
        scores,
        skipped,
        notes,
    })
}

/// Scores a model.
pub fn score_model(
    task: Task,
    data: &Path,
    split: Split,
    model: &Path,
    options: &classify::Options,
    on_bad_row: OnBadRow,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report> {
    let mut source = Source::task(task, data, split, on_bad_row)?;
    let options = classify::Options { task: Some(task), ..options.clone() };
    let classifier = Classifier::open(model, &options)?;
    let report = classifier.run(&mut source, |_, (done, total)| -> Result<()> {
        progress(done, total.unwrap_or(done));
        Ok(())
    })?;
    Ok(Report {
        task: task.name().into(),
        data: source.name().to_path_buf(),
        predictions: model.to_path_buf(),
        rows: report.rows,
        scores: report.scores,
        skipped: report.skipped,
        notes: report.notes,
    })
}

fn file_of(task: Task, data: &Path, split: Split, options: &ReadOptions) -> PathBuf {
    match data.is_file() {
        true => data.to_path_buf(),
        false => task.file(data, split, &options.language),
    }
}

fn score(task: Task, found: &[Target], expected: &[Target]) -> frazil_bert::Result<Vec<Score>> {
    let class = |target: &Target| match target {
        Target::Class(class) => *class,
        Target::Score(score) => *score as i32,
    };
    let number = |target: &Target| match target {
        Target::Class(class) => f64::from(*class),
        Target::Score(score) => f64::from(*score),
    };
    let metrics = match task.labels() {
        Labels::Classes(_) => {
            let all = |targets: &[Target]| targets.iter().map(class).collect::<Vec<i32>>();
            metrics::score_classes(task, &all(found), &all(expected))?
        }
        Labels::Scores => {
            let all = |targets: &[Target]| targets.iter().map(number).collect::<Vec<f64>>();
            metrics::score_numbers(&all(found), &all(expected))?
        }
    };
    Ok(metrics.iter().map(|metric| Score { name: metric.name, value: metric.value }).collect())
}

/// The predictions of a file.
fn read(
    bytes: &[u8],
    labels: &Labels,
    notes: &mut Vec<String>,
) -> frazil_bert::Result<Vec<Target>> {
    if bytes.is_empty() {
        let expected = "a prediction on each line";
        return Err(frazil_bert::Error::EmptyFile { expected });
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut column = Place::Unknown;
    let mut all = Vec::new();
    let lines = bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|byte| *byte == b'\n');
    for (i, line) in lines.enumerate() {
        let bad = |problem: RowProblem| frazil_bert::Error::from(problem.on_line(i + 1));
        let line = std::str::from_utf8(line)
            .map_err(|error| bad(RowProblem::Utf8 { at: error.valid_up_to() + 1 }))?;
        let line = line.trim_end_matches('\r');
        if column == Place::Unknown {
            column = Place::of(line, labels, notes);
            if matches!(column, Place::Named(_)) {
                continue;
            }
        }
        all.push(column.read(line, labels).map_err(bad)?);
    }
    if all.is_empty() {
        return Err(frazil_bert::Error::NoUsableRow { skipped: 0 });
    }
    Ok(all)
}

/// Where the prediction of a line is.
#[derive(Clone, Debug, PartialEq)]
enum Place {
    Unknown,
    /// An object under one of the names.
    Json,
    /// The column of a table whose first line names it.
    Named(usize),
    /// A number for each label.
    Probabilities(usize),
    /// The last column of a table without names.
    Last,
}

impl Place {
    /// By the first line.
    fn of(line: &str, labels: &Labels, notes: &mut Vec<String>) -> Self {
        if line.trim_start().starts_with('{') {
            return Self::Json;
        }
        let columns: Vec<&str> = line.split('\t').map(str::trim).collect();
        let named = NAMES
            .iter()
            .find_map(|name| columns.iter().position(|column| column.eq_ignore_ascii_case(name)));
        if let Some(place) = named {
            return Self::Named(place);
        }
        let numbers = columns.iter().all(|column| column.parse::<f64>().is_ok());
        let count = match labels {
            Labels::Classes(labels) => labels.len(),
            Labels::Scores => 1,
        };
        if numbers && count > 1 && columns.len() == count {
            notes.push("predictions are a number for each label, in the labels' order".into());
            return Self::Probabilities(count);
        }
        Self::Last
    }

    fn read(&self, line: &str, labels: &Labels) -> Result<Target, RowProblem> {
        let text = match self {
            Self::Json => return json(line, labels),
            Self::Probabilities(count) => {
                let columns: Vec<&str> = line.split('\t').collect();
                let number = |text: &&str| text.trim().parse::<f32>().ok();
                let numbers: Option<Vec<f32>> = columns.iter().map(number).collect();
                return match numbers {
                    Some(numbers) if numbers.len() == *count => {
                        Ok(Target::Class(argmax(&numbers) as i32))
                    }
                    _ => Err(RowProblem::MissingColumn {
                        what: "a number for each label",
                        column: *count,
                        found: columns.len(),
                    }),
                };
            }
            Self::Named(place) => {
                let columns: Vec<&str> = line.split('\t').collect();
                *columns.get(*place).ok_or(RowProblem::MissingColumn {
                    what: "the prediction",
                    column: place + 1,
                    found: columns.len(),
                })?
            }
            Self::Last | Self::Unknown => line.rsplit('\t').next().unwrap_or_default(),
        };
        of_text(text.trim(), labels)
    }
}

fn json(line: &str, labels: &Labels) -> Result<Target, RowProblem> {
    let value: Value =
        serde_json::from_str(line).map_err(|error| RowProblem::Json(error.to_string()))?;
    let found = NAMES.iter().find_map(|name| value.get(name));
    let Some(found) = found else {
        let (key, expected, found) = ("prediction".into(), "a label or a number", "missing");
        return Err(RowProblem::Key { key, expected, found });
    };
    match found {
        Value::String(text) => of_text(text, labels),
        other => of_text(&other.to_string(), labels),
    }
}

/// A label by its name, or by its place where labels are no numbers themselves.
fn of_text(text: &str, labels: &Labels) -> Result<Target, RowProblem> {
    if let Some(target) = labels.target(text) {
        return Ok(target);
    }
    match labels {
        Labels::Scores => Err(RowProblem::Score(text.to_owned())),
        Labels::Classes(names) => match text.parse::<i32>() {
            Ok(place) if usize::try_from(place).is_ok_and(|place| place < names.len()) => {
                Ok(Target::Class(place))
            }
            _ => Err(RowProblem::Label { label: text.to_owned(), labels: names.clone() }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(text: &str, task: Task) -> Vec<i32> {
        let found = read(text.as_bytes(), &task.labels(), &mut Vec::new()).unwrap();
        let class = |target: &Target| match target {
            Target::Class(class) => *class,
            Target::Score(score) => panic!("{score} is a score"),
        };
        found.iter().map(class).collect()
    }

    #[test]
    fn every_form_of_predictions() {
        let expected = [1, 0, 1];
        for text in [
            "index\tprediction\n0\t1\n1\t0\n2\t1\n",
            "id\tlabel\t0\t1\nt-1\t1\t0.2\t0.8\nt-2\t0\t0.9\t0.1\nt-3\t1\t0.4\t0.6",
            "0.25\t0.75\n0.5\t0.5\n1e-05\t0.99999\n",
            "{\"label\": \"1\"}\n{\"label\": 0}\n{\"prediction\": 1}\n",
            "1\r\n0\r\n1\r\n",
        ] {
            assert_eq!(classes(text, Task::Mrpc), expected, "{text}");
        }
        let named = "index\tprediction\n0\tneutral\n1\tcontradiction\n";
        assert_eq!(classes(named, Task::Mnli), [2, 0]);
        let scores = read(b"index\tprediction\n0\t2.5\n", &Labels::Scores, &mut Vec::new());
        assert_eq!(scores.unwrap(), [Target::Score(2.5)]);
    }

    #[test]
    fn bad_predictions_are_named() {
        let bad = |text: &[u8]| {
            read(text, &Task::Mrpc.labels(), &mut Vec::new()).unwrap_err().to_string()
        };
        assert!(bad(b"").contains("the file is empty"));
        assert!(bad(b"prediction\n").contains("no usable row"));
        assert_eq!(bad(b"1\n7\n"), "line 2: expected one of the labels `0`, `1`, not `7`");
        assert!(bad(b"0.5\t0.5\n1\n").contains("line 2: expected a number for each label"));
        assert!(bad(b"{\"x\": 1}\n").contains("line 1: expected `prediction`"));
        assert!(bad(b"index\tprediction\n0\n").contains("line 2: expected the prediction"));
        assert!(bad(b"1\n\xff\n").contains("line 2: byte 1"));
        let found = [Target::Class(1)];
        let error = score(Task::Mrpc, &found, &[Target::Class(1), Target::Class(0)]).unwrap_err();
        assert_eq!(error.to_string(), "there are 1 predictions for 2 labels");
    }
}
