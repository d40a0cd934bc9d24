//! `predict classify`: which class a text or a pair of texts belongs to, by any classifier.
//!
//! The classes are called as the user says, or as the model's `config.json` does, or as the data
//! set's labels, or by their numbers. A model with a single output gives scores. Where rows have
//! labels, the predictions are scored, with GLUE's official metrics for a GLUE task.

use std::path::{Path, PathBuf};
use std::time::Instant;

use frazil_bert::features::InputExample;
use frazil_bert::features::classifier::{ClassifierInput, Labels, Target};
use frazil_bert::glue::Task;
use frazil_bert::metrics::glue as metrics;
use frazil_bert::rows::RowProblem;
use serde::Serialize;

use super::rows::{Skipped, Source};
use crate::ops::text_model::{self, Item, TextModel, Want};
use crate::{Error, Result};

/// How texts are classified.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How the model is opened.
    pub model: text_model::Options,
    /// What the classes are called, in the order of the model's outputs.
    pub labels: Option<Vec<String>>,
    /// Whose labels and scores they are.
    pub task: Option<Task>,
}

/// What the model says of a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// The row: `line-3`, `dev-17`.
    pub id: String,
    /// The most likely class; of a model that gives scores, none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Its place among the classes.
    #[serde(skip)]
    pub class: usize,
    /// The score of a model that gives scores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f32>,
    /// How likely each class is, in the order of the classes.
    #[serde(skip)]
    pub probabilities: Vec<f32>,
    /// What the row's label is, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
}

/// What was done.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The model.
    pub model: PathBuf,
    /// The vocabulary.
    pub vocabulary: PathBuf,
    /// What the classes are called; none for scores.
    pub labels: Option<Vec<String>>,
    /// Rows that were classified.
    pub rows: usize,
    /// How many of them as which class, in the order of the classes.
    pub predicted: Vec<usize>,
    /// Rows that could not be used.
    pub skipped: Skipped,
    /// How good the predictions are, where rows have labels.
    pub scores: Vec<Score>,
    /// Pieces that were read.
    pub tokens: usize,
    /// Seconds, without opening the model.
    pub seconds: f64,
    /// Choices that were made.
    pub notes: Vec<String>,
}

/// A score by its name.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Score {
    /// As GLUE calls it.
    pub name: &'static str,
    /// A fraction.
    pub value: f64,
}

/// The classes of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Classes {
    Names(Vec<String>),
    Scores,
}

/// A classifier, opened.
pub struct Classifier {
    path: PathBuf,
    model: TextModel,
    input: ClassifierInput,
    classes: Classes,
    task: Option<Task>,
    notes: Vec<String>,
}

/// What comes back with a row's numbers.
struct Tag {
    id: String,
    expected: Option<String>,
    tokens: usize,
    /// How far the source was read.
    progress: (u64, Option<u64>),
}

/// A prediction beside its label.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Compared {
    /// Classes, by their places among the task's labels, or among the model's if there is no task.
    Class {
        /// What the model says.
        found: i32,
        /// What the label says.
        expected: i32,
    },
    /// Scores.
    Number {
        /// What the model says.
        found: f64,
        /// What the label says.
        expected: f64,
    },
}

impl Classifier {
    /// Opens the model.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let model = TextModel::open(&path, &Want::Classes, &options.model)?;
        Self::new(path, model, options)
    }

    /// The same with a model that is open already, for [`Want::Classes`]; `path` is what it is
    /// called.
    pub fn new(path: impl AsRef<Path>, model: TextModel, options: &Options) -> Result<Self> {
        let path = path.as_ref();
        let mut notes = model.notes().to_vec();
        let width = model.widths().first().copied().flatten();
        let classes = classes(width, options, model.labels(), &mut notes)?;
        let labels = match &classes {
            Classes::Names(names) => Labels::classes(names),
            Classes::Scores => Labels::Scores,
        };
        let input =
            ClassifierInput::new(model.tokenizer().clone(), labels, model.max_seq_length())?;
        Ok(Self { path: path.to_path_buf(), model, input, classes, task: options.task, notes })
    }

    /// What the classes are called; none for scores.
    pub fn labels(&self) -> Option<&[String]> {
        match &self.classes {
            Classes::Names(names) => Some(names),
            Classes::Scores => None,
        }
    }

    /// The model.
    pub fn model(&self) -> &TextModel {
        &self.model
    }

    /// Classifies all rows, and gives the predictions away as they are made, with how much of the
    /// source is read by then.
    pub fn run<E: From<Error>>(
        &self,
        source: &mut Source,
        mut each: impl FnMut(Prediction, (u64, Option<u64>)) -> Result<(), E>,
    ) -> Result<Report, E> {
        let start = Instant::now();
        let mut compared: Vec<Compared> = Vec::new();
        let mut predicted = vec![0; self.labels().map_or(0, <[String]>::len)];
        let (mut rows, mut tokens) = (0, 0);
        let labelled = source.labelled;
        let sequences = std::iter::from_fn(|| {
            let row = source.next(|example| self.item(example, labelled));
            let progress = source.progress();
            let made = |mut item: Item<Tag>| {
                item.tag.progress = progress;
                item
            };
            row.map_err(E::from).transpose().map(|row| row.map(made))
        });
        self.model.run(sequences, |tag, said| {
            let logits = said.outputs.first().map_or(&[][..], |output| &output.values);
            let prediction = self.prediction(&tag, logits)?;
            rows += 1;
            tokens += tag.tokens;
            if let Some(count) = predicted.get_mut(prediction.class) {
                *count += 1;
            }
            compared.extend(self.compare(&prediction));
            each(prediction, tag.progress)
        })?;
        let mut notes = self.notes.clone();
        notes.extend(source.notes.iter().cloned());
        Ok(Report {
            model: self.path.clone(),
            vocabulary: self.model.vocabulary().to_path_buf(),
            labels: self.labels().map(<[String]>::to_vec),
            rows,
            predicted,
            skipped: source.skipped().clone(),
            scores: scores(self.task, &compared)?,
            tokens,
            seconds: start.elapsed().as_secs_f64(),
            notes,
        })
    }

    /// A row as the model takes it.
    fn item(&self, example: InputExample, labelled: bool) -> Result<Item<Tag>, RowProblem> {
        if labelled && self.target(&example.label).is_none() {
            return Err(match &self.classes {
                Classes::Names(labels) => {
                    RowProblem::Label { label: example.label, labels: labels.clone() }
                }
                Classes::Scores => RowProblem::Score(example.label),
            });
        }
        let features = self.input.sequence(&example.text_a, example.text_b.as_deref());
        self.model.check(&features)?;
        let tag = Tag {
            id: example.guid,
            expected: labelled.then_some(example.label),
            tokens: features.len(),
            progress: (0, None),
        };
        Ok(Item::new(tag, features))
    }

    fn target(&self, label: &str) -> Option<Target> {
        match &self.classes {
            Classes::Names(names) => Labels::classes(names).target(label),
            Classes::Scores => Labels::Scores.target(label),
        }
    }

    fn prediction(&self, tag: &Tag, logits: &[f32]) -> Result<Prediction> {
        let (id, expected) = (tag.id.clone(), tag.expected.clone());
        let Classes::Names(names) = &self.classes else {
            let score = logits.first().copied();
            let (class, probabilities) = (0, Vec::new());
            return Ok(Prediction { id, label: None, class, score, probabilities, expected });
        };
        if logits.len() != names.len() {
            return Err(count_differs(names, logits.len()));
        }
        let class = argmax(logits);
        let label = names.get(class).cloned();
        let probabilities = softmax(logits);
        Ok(Prediction { id, label, class, score: None, probabilities, expected })
    }

    /// A prediction beside its label, if it has one.
    pub fn compare(&self, prediction: &Prediction) -> Option<Compared> {
        match (self.target(prediction.expected.as_deref()?)?, prediction.score) {
            (Target::Class(label), _) => Some(Compared::Class {
                found: self.place(prediction.class as i32),
                expected: self.place(label),
            }),
            (Target::Score(label), Some(score)) => {
                Some(Compared::Number { found: f64::from(score), expected: f64::from(label) })
            }
            _ => None,
        }
    }

    /// F1 is of the task's class 1, whichever place the model has it at.
    fn place(&self, class: i32) -> i32 {
        let (Some(task), Classes::Names(names)) = (self.task, &self.classes) else { return class };
        let name = usize::try_from(class).ok().and_then(|class| names.get(class));
        match name.and_then(|name| task.labels().target(name)) {
            Some(Target::Class(place)) => place,
            _ => class,
        }
    }
}

/// How good predictions are, by the task's official scores; without a task, by accuracy.
pub fn scores(task: Option<Task>, compared: &[Compared]) -> Result<Vec<Score>> {
    let classes = compared.iter().filter_map(|one| match *one {
        Compared::Class { found, expected } => Some((found, expected)),
        Compared::Number { .. } => None,
    });
    let numbers = compared.iter().filter_map(|one| match *one {
        Compared::Number { found, expected } => Some((found, expected)),
        Compared::Class { .. } => None,
    });
    let metrics = match compared.first() {
        // Any task without a metric of its own is scored by accuracy.
        Some(Compared::Class { .. }) => {
            let (predictions, labels): (Vec<i32>, Vec<i32>) = classes.unzip();
            metrics::score_classes(task.unwrap_or(Task::Rte), &predictions, &labels)?
        }
        Some(Compared::Number { .. }) => {
            let (predictions, labels): (Vec<f64>, Vec<f64>) = numbers.unzip();
            metrics::score_numbers(&predictions, &labels)?
        }
        None => return Ok(Vec::new()),
    };
    Ok(metrics.iter().map(|metric| Score { name: metric.name, value: metric.value }).collect())
}

fn count_differs(names: &[String], count: usize) -> Error {
    Error::Usage {
        what: format!(
            "the model has {count} classes, but there are {} labels: {}",
            names.len(),
            names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        ),
        hint: "name the labels in the order of the model's outputs with `--labels`".into(),
    }
}

/// What the classes are called.
fn classes(
    width: Option<usize>,
    options: &Options,
    told: Option<&[String]>,
    notes: &mut Vec<String>,
) -> Result<Classes> {
    let of_task = options.task.map(Task::labels);
    if let Some(names) = &options.labels {
        return match width {
            Some(width) if width != names.len() => Err(count_differs(names, width)),
            _ => Ok(Classes::Names(names.clone())),
        };
    }
    if width == Some(1) || of_task == Some(Labels::Scores) {
        return match width {
            Some(width) if width != 1 => Err(Error::Usage {
                what: format!("the task has scores, but the model has {width} classes"),
                hint: "give a model with one output".into(),
            }),
            _ => Ok(Classes::Scores),
        };
    }
    let told = told.filter(|names| width.is_none_or(|width| names.len() == width));
    if let Some(Labels::Classes(names)) = of_task {
        if width.is_some_and(|width| width != names.len()) {
            return Err(count_differs(&names, width.unwrap_or_default()));
        }
        // The same labels in another order: the model's own counts.
        let same = told.filter(|told| {
            told.len() == names.len() && names.iter().all(|name| told.contains(name))
        });
        return Ok(Classes::Names(match same {
            Some(told) => told.to_vec(),
            None => {
                if told.is_some() {
                    notes.push(format!(
                        "the model's own labels are others: its outputs are taken for {}",
                        names.join(", ")
                    ));
                }
                names
            }
        }));
    }
    match (told, width) {
        (Some(names), _) => Ok(Classes::Names(names.to_vec())),
        (None, Some(width)) => Ok(Classes::Names((0..width).map(|i| i.to_string()).collect())),
        (None, None) => Err(Error::Usage {
            what: "the number of classes is not known".into(),
            hint: "name them with `--labels`".into(),
        }),
    }
}

/// The place of the largest; of equals, the first.
pub(crate) fn argmax(values: &[f32]) -> usize {
    let larger = |best: usize, i: usize| if values[i] > values[best] { i } else { best };
    (1..values.len()).fold(0, larger)
}

/// `exp(x) / sum(exp(x))`
pub(crate) fn softmax(logits: &[f32]) -> Vec<f32> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exps: Vec<f64> = logits.iter().map(|x| f64::from(x - most).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.into_iter().map(|exp| (exp / sum) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn classes_are_called_by_the_one_who_knows() {
        let task = |task| Options { task: Some(task), ..Options::default() };
        let called = |width, options: &Options, told: Option<&[String]>| {
            classes(width, options, told, &mut Vec::new())
        };
        let none = Options::default();
        let found = called(Some(3), &none, None).unwrap();
        assert_eq!(found, Classes::Names(names(&["0", "1", "2"])));
        let told = names(&["entailment", "neutral", "contradiction"]);
        let found = called(Some(3), &task(Task::Mnli), Some(&told)).unwrap();
        assert_eq!(found, Classes::Names(told.clone()));
        let plain = names(&["LABEL_0", "LABEL_1", "LABEL_2"]);
        let found = called(Some(3), &task(Task::Mnli), Some(&plain)).unwrap();
        let original = names(&["contradiction", "entailment", "neutral"]);
        assert_eq!(found, Classes::Names(original));
        assert_eq!(called(Some(3), &none, Some(&told)).unwrap(), Classes::Names(told));
        assert_eq!(called(Some(1), &none, None).unwrap(), Classes::Scores);
        assert!(called(Some(2), &task(Task::Mnli), None).is_err());
        assert!(called(Some(2), &task(Task::StsB), None).is_err());
        assert!(called(None, &none, None).is_err());
        let given = Options { labels: Some(names(&["a", "b", "c"])), ..Options::default() };
        assert!(called(Some(2), &given, None).is_err());
    }

    #[test]
    fn softmax_and_argmax() {
        let p = softmax(&[1000.0, 1000.0]);
        assert_eq!(p, [0.5, 0.5]);
        assert_eq!(argmax(&[0.5, 0.5]), 0);
        assert_eq!(argmax(&[-3.0, 2.0, 1.0]), 1);
    }
}
