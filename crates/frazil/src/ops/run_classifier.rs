//! `run_classifier`: google-research/bert's program of that name, but for training. It evaluates a
//! classifier on a task's dev set and predicts its test set, and writes what the original writes:
//! `eval.tf_record`, `eval_results.txt`, `predict.tf_record`, `test_results.tsv`.
//!
//! The model is the latest checkpoint of the output folder, as Estimator has it, or else the initial
//! checkpoint, which may be a model of any kind. Everything is read and checked before the first
//! file is written. Training is [`finetune`](super::finetune)'s; left out are TPUs, for which only the padding of the records is kept.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use frazil_bert::features::classifier::{
    ClassifierFeatures, ClassifierInput, Labels, Target, write_records,
};
use frazil_bert::features::{Features, InputExample};
use frazil_bert::glue::{ReadOptions, Split, Task};
use frazil_bert::metrics::glue as metrics;
use frazil_bert::rows::{BadRow, OnBadRow};
use frazil_bert::{BertConfig, python};
use frazil_tensor::{TensorStore, file};
use frazil_train::comm::{Comm, gather, part};
use serde::Serialize;

use super::finetune::check_length;
use super::predict::classify::{argmax, softmax};
use super::text_model::{self, Item, TextModel, Want};
use super::train::{self, Evaluation, History, Stop};
use crate::source::{Kind, open_weights};
use crate::{Error, Result};

/// What the original's flags say.
#[derive(Clone, Debug)]
pub struct Options {
    /// `--data_dir`
    pub data_dir: PathBuf,
    /// `--bert_config_file`
    pub bert_config_file: PathBuf,
    /// `--task_name`
    pub task: Task,
    /// `--vocab_file`
    pub vocab_file: PathBuf,
    /// `--output_dir`
    pub output_dir: PathBuf,
    /// `--init_checkpoint`
    pub init_checkpoint: Option<PathBuf>,
    /// `--do_lower_case`
    pub do_lower_case: bool,
    /// `--max_seq_length`
    pub max_seq_length: usize,
    /// `--do_eval`
    pub do_eval: bool,
    /// `--do_predict`
    pub do_predict: bool,
    /// `--eval_batch_size`
    pub eval_batch_size: usize,
    /// `--predict_batch_size`
    pub predict_batch_size: usize,
    /// `--use_tpu`: records are padded to whole batches.
    pub use_tpu: bool,
    /// What is done about a row that cannot be used.
    pub on_bad_row: OnBadRow,
    /// Threads; `FRAZIL_THREADS`, or one for each core, if none.
    pub threads: Option<usize>,
    /// Who does it together: each has its part of the examples, and the first one speaks and writes.
    pub comm: Arc<dyn Comm>,
}

/// What happens on the way, in the original's order.
#[derive(Debug)]
pub enum Event<'a> {
    /// The checkpoint of the output folder is used.
    Restoring(&'a Path),
    /// There is none; the initial checkpoint is used for this.
    NoTrainedModel(&'static str),
    /// So many records are written.
    Writing {
        /// This one, counted from 0.
        index: usize,
        /// Of so many.
        total: usize,
    },
    /// One of the first examples.
    Example {
        /// Its id.
        guid: &'a str,
        /// Its pieces.
        tokens: String,
        /// What the model reads.
        features: &'a ClassifierFeatures,
        /// Its label.
        label: &'a str,
    },
    /// Evaluation or prediction begins.
    Running {
        /// Which.
        what: Part,
        /// Examples with padding.
        total: usize,
        /// Examples.
        actual: usize,
        /// `--eval_batch_size` or `--predict_batch_size`.
        batch: usize,
    },
    /// A line of `eval_results.txt`.
    Result(&'a str, &'a str),
    /// `test_results.tsv` is written.
    PredictResults,
    /// Rows that were left out.
    Skipped(&'a Path, &'a [BadRow]),
    /// A choice, in words.
    Note(&'a str),
}

/// What is being run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// On the dev set.
    Eval,
    /// On the test set.
    Predict,
}

/// What was written.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The model.
    pub model: PathBuf,
    /// What `eval_results.txt` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eval: Option<EvalResults>,
    /// The probabilities of the test set, row by row.
    #[serde(skip)]
    pub probabilities: Vec<Vec<f32>>,
    /// Rows that could not be used.
    pub skipped: usize,
    /// The files.
    pub files: Vec<PathBuf>,
}

/// The original's figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct EvalResults {
    /// The share of right labels.
    pub eval_accuracy: f32,
    /// The mean over examples.
    pub eval_loss: f32,
    /// The checkpoint's.
    pub global_step: i64,
    /// The mean over batches, of which the last may be small.
    pub loss: f32,
}

impl EvalResults {
    /// What says how well the model does.
    pub(crate) fn scores(&self) -> BTreeMap<String, f64> {
        let scores = [("eval_accuracy", self.eval_accuracy), ("eval_loss", self.eval_loss)];
        scores.into_iter().map(|(name, score)| (name.to_owned(), score.into())).collect()
    }
}

/// Examples with their features.
struct Set {
    path: PathBuf,
    examples: Vec<InputExample>,
    features: Vec<ClassifierFeatures>,
    skipped: Vec<BadRow>,
}

/// Whether there is what evaluation and prediction need, but for the model: it may have to be trained first.
pub fn check(options: &Options) -> Result<()> {
    checked(options)?;
    let how = ReadOptions { on_bad_row: options.on_bad_row, ..ReadOptions::default() };
    for (split, wanted) in [(Split::Dev, options.do_eval), (Split::Test, options.do_predict)] {
        if wanted {
            options.task.read(&options.data_dir, split, &how)?;
        }
    }
    Ok(())
}

/// Does all that the flags ask for.
pub fn run_classifier(options: &Options, progress: &mut dyn FnMut(Event<'_>)) -> Result<Report> {
    let labels = checked(options)?;
    let is_first = options.comm.is_first();
    let mut progress = |event: Event<'_>| {
        if is_first {
            progress(event);
        }
    };
    let trained = options.output_dir.join("checkpoint");
    let model_path = match (trained.is_file(), &options.init_checkpoint) {
        (true, _) => trained.clone(),
        (false, Some(init)) => init.clone(),
        (false, None) => {
            return Err(Error::Usage {
                what: format!(
                    "there is no trained model: `{}` has no checkpoint, and `--init_checkpoint` is \
                     not given",
                    options.output_dir.display()
                ),
                hint: "give the checkpoint of a fine-tuned classifier with `--init_checkpoint`"
                    .into(),
            });
        }
    };
    let model = open(&model_path, &labels, options)?;
    for note in model.notes() {
        progress(Event::Note(note));
    }
    let input = ClassifierInput::new(model.tokenizer().clone(), labels, options.max_seq_length)?;
    let mut report = Report { model: model_path.clone(), ..Report::default() };
    let read = |split: Split, wanted: bool| match wanted {
        true => Set::read(options, split, &input, &model).map(Some),
        false => Ok(None),
    };
    let dev = read(Split::Dev, options.do_eval)?;
    let test = read(Split::Test, options.do_predict)?;
    std::fs::create_dir_all(&options.output_dir).map_err(|source| frazil_tensor::Error::Io {
        action: "make",
        path: options.output_dir.clone(),
        source,
    })?;
    for (set, part) in [(dev, Part::Eval), (test, Part::Predict)] {
        let Some(set) = set else { continue };
        if !set.skipped.is_empty() {
            progress(Event::Skipped(&set.path, &set.skipped));
            report.skipped += set.skipped.len();
        }
        let (batch, name) = match part {
            Part::Eval => (options.eval_batch_size, "eval.tf_record"),
            Part::Predict => (options.predict_batch_size, "predict.tf_record"),
        };
        let records = options.output_dir.join(name);
        let total = set.write(&records, batch, options, &model, &mut progress)?;
        report.files.push(records);
        progress(Event::Running { what: part, total, actual: set.examples.len(), batch });
        match trained.is_file() {
            true => progress(Event::Restoring(&checkpoint_of(&model))),
            false => progress(Event::NoTrainedModel(match part {
                Part::Eval => "evaluate",
                Part::Predict => "predict",
            })),
        }
        let logits = logits(&model, &set.features, &*options.comm, &Stop::default())?;
        match part {
            Part::Eval => {
                let step = if trained.is_file() { global_step(&model)? } else { 0 };
                let results = evaluate(&set, &logits, batch, step);
                let path = options.output_dir.join("eval_results.txt");
                let text = eval_text(&results, &mut progress);
                write_once(is_first, &path, &text)?;
                if is_first && trained.is_file() {
                    // Where Estimator has it, too.
                    let (scores, judged_on) = (results.scores(), Some(judged_on(options)?));
                    let evaluation = Evaluation { step: step.max(0) as u64, scores, judged_on };
                    History::evaluated(&options.output_dir, &evaluation)?;
                }
                report.files.push(path);
                report.eval = Some(results);
            }
            Part::Predict => {
                report.probabilities = logits.iter().map(|row| softmax(row)).collect();
                let path = options.output_dir.join("test_results.tsv");
                let line = |row: &Vec<f32>| {
                    let numbers: Vec<String> = row.iter().map(|&p| float32(p)).collect();
                    numbers.join("\t") + "\n"
                };
                let text: String = report.probabilities.iter().map(line).collect();
                progress(Event::PredictResults);
                write_once(is_first, &path, &text)?;
                report.files.push(path);
            }
        }
    }
    Ok(report)
}

/// A number for the dev set and how it is read.
pub(super) fn judged_on(options: &Options) -> Result<u32> {
    let how = ReadOptions { on_bad_row: options.on_bad_row, ..ReadOptions::default() };
    let rows = options.task.read(&options.data_dir, Split::Dev, &how)?.items;
    let how = (options.task, options.max_seq_length, options.do_lower_case);
    Ok(train::judged_on((how, rows), &[]))
}

/// The figures of one checkpoint on the dev set, and beside them GLUE's own as far as they are others; each
/// rank computes a part. Nothing is written.
pub(super) fn scores_of_checkpoint(
    path: &Path,
    options: &Options,
    stop: &Stop,
) -> Result<BTreeMap<String, f64>> {
    let labels = checked(options)?;
    let model = open(path, &labels, options)?;
    let input = ClassifierInput::new(model.tokenizer().clone(), labels, options.max_seq_length)?;
    let set = Set::read(options, Split::Dev, &input, &model)?;
    let logits = logits(&model, &set.features, &*options.comm, stop)?;
    let mut scores = evaluate(&set, &logits, options.eval_batch_size, 0).scores();
    let (found, expected): (Vec<i32>, Vec<i32>) = answers(&set, &logits).unzip();
    let glue = metrics::score_classes(options.task, &found, &expected)?;
    let others = glue.into_iter().filter(|metric| metric.name != metrics::ACCURACY);
    scores.extend(others.map(|metric| (metric.name.to_owned(), metric.value)));
    Ok(scores)
}

/// The class that the model gives each example, and its own.
fn answers<'s>(set: &'s Set, logits: &'s [Vec<f32>]) -> impl Iterator<Item = (i32, i32)> + 's {
    set.features.iter().zip(logits).filter_map(|(features, logits)| match features.target {
        Target::Class(label) => Some((argmax(logits) as i32, label)),
        Target::Score(_) => None,
    })
}

/// What can be told from the flags and the configuration alone; the task's labels.
fn checked(options: &Options) -> Result<Labels> {
    if !options.do_eval && !options.do_predict {
        return Err(Error::Usage {
            what: "At least one of `do_train`, `do_eval` or `do_predict' must be True.".into(),
            hint: "give `--do_eval=true` or `--do_predict=true`".into(),
        });
    }
    if options.eval_batch_size == 0 || options.predict_batch_size == 0 {
        return Err(Error::Usage {
            what: "a batch size of 0 leaves nothing".into(),
            hint: "give 1 or more".into(),
        });
    }
    let config = BertConfig::read(&options.bert_config_file)?;
    check_length(&config, options.max_seq_length)?;
    match options.task.labels() {
        Labels::Scores => Err(Error::Usage {
            what: format!("{} has scores, and run_classifier classes only", options.task),
            hint: "`frazil predict classify --task` reads it".into(),
        }),
        labels => Ok(labels),
    }
}

/// The model, if it has the task's classes.
fn open(path: &Path, labels: &Labels, options: &Options) -> Result<TextModel> {
    let mut how = text_model::Options {
        vocabulary: Some(options.vocab_file.clone()),
        casing: Some(match options.do_lower_case {
            true => frazil_bert::tokenizer::Casing::Lower,
            false => frazil_bert::tokenizer::Casing::Keep,
        }),
        max_seq_length: Some(options.max_seq_length),
        threads: options.threads,
        ..text_model::Options::default()
    };
    how.graph.config = Some(options.bert_config_file.clone());
    let model = TextModel::open(path, &Want::Classes, &how)?;
    let Labels::Classes(names) = labels else { return Ok(model) };
    match model.widths().first().copied().flatten() {
        Some(width) if width != names.len() => Err(Error::Usage {
            what: format!(
                "the model has {width} classes, but {} has {}: {}",
                options.task,
                names.len(),
                names.join(", ")
            ),
            hint: "give a model that was fine-tuned for the task".into(),
        }),
        _ => Ok(model),
    }
}

impl Set {
    fn read(
        options: &Options,
        split: Split,
        input: &ClassifierInput,
        model: &TextModel,
    ) -> Result<Self> {
        let how = ReadOptions { on_bad_row: options.on_bad_row, ..ReadOptions::default() };
        let path = options.task.file(&options.data_dir, split, &how.language);
        let rows = options.task.read(&options.data_dir, split, &how)?;
        let features = input.features_of_all(&rows.items)?;
        let mut set =
            Self { path, examples: Vec::new(), features: Vec::new(), skipped: rows.skipped };
        let items = rows.items.into_iter().zip(rows.lines);
        for ((example, line), features) in items.zip(features) {
            match model.check(&features.features) {
                Ok(()) => {
                    set.examples.push(example);
                    set.features.push(features);
                }
                Err(problem) => set.refuse(problem.on_line(line), options.on_bad_row)?,
            }
        }
        if set.examples.is_empty() {
            let skipped = set.skipped.len();
            let error = frazil_bert::Error::NoUsableRow { skipped };
            return Err(error.in_file(&set.path).into());
        }
        Ok(set)
    }

    fn refuse(&mut self, row: BadRow, on_bad_row: OnBadRow) -> Result<()> {
        if on_bad_row == OnBadRow::Stop {
            return Err(frazil_bert::Error::from(row).in_file(&self.path).into());
        }
        self.skipped.push(row);
        Ok(())
    }

    /// Writes the records; how many there are.
    fn write(
        &self,
        path: &Path,
        batch: usize,
        options: &Options,
        model: &TextModel,
        progress: &mut dyn FnMut(Event<'_>),
    ) -> Result<usize> {
        /// As many examples are shown.
        const SHOWN: usize = 5;
        /// After as many records something is said.
        const PACE: usize = 10_000;
        let actual = self.features.len();
        let total = if options.use_tpu { actual.next_multiple_of(batch) } else { actual };
        for (index, (example, features)) in self.examples.iter().zip(&self.features).enumerate() {
            if index % PACE == 0 {
                progress(Event::Writing { index, total });
            }
            if index < SHOWN {
                let tokens = tokens(model, &features.features);
                let (guid, label) = (&example.guid[..], &example.label[..]);
                progress(Event::Example { guid, tokens, features, label });
            }
        }
        let padding = ClassifierFeatures::padding(options.max_seq_length);
        let padding = std::iter::repeat_n(&padding, total - actual);
        if options.comm.is_first() {
            write_records(path, self.features.iter().chain(padding))?;
        }
        Ok(total)
    }
}

fn tokens(model: &TextModel, features: &Features) -> String {
    let vocabulary = model.tokenizer().vocabulary();
    let piece = |id: &i32| u32::try_from(*id).ok().and_then(|id| vocabulary.token(id));
    let pieces: Vec<&str> = features.ids().iter().map(|id| piece(id).unwrap_or("")).collect();
    pieces.join(" ")
}

fn checkpoint_of(model: &TextModel) -> PathBuf {
    model.located().map(|located| located.path.clone()).unwrap_or_default()
}

/// The step that the checkpoint was saved at; 0 if it does not say.
fn global_step(model: &TextModel) -> Result<i64> {
    let Some(located) = model.located().filter(|located| located.kind == Kind::Checkpoint) else {
        return Ok(0);
    };
    let weights = open_weights(&located.path, &Default::default())?;
    if !weights.infos().iter().any(|info| info.name == "global_step") {
        return Ok(0);
    }
    let step = weights.read("global_step")?.to_f64()?;
    Ok(step.first().map_or(0, |step| *step as i64))
}

/// The logits of all examples, of which each rank computes a part.
fn logits(
    model: &TextModel,
    features: &[ClassifierFeatures],
    comm: &dyn Comm,
    stop: &Stop,
) -> Result<Vec<Vec<f32>>> {
    let own = &features[part(comm, features.len())];
    let mut bits = Vec::with_capacity(own.len());
    let items = own.iter().map(|features| Ok(Item::new((), features.features.clone())));
    model.run(items, |(), said| -> Result<()> {
        stop.check(comm)?;
        let row = said.outputs.into_iter().next().map(|output| output.values);
        // As bits: what is no number gets through, too.
        bits.extend(row.map(|row| row.into_iter().map(f32::to_bits).collect::<Vec<u32>>()));
        Ok(())
    })?;
    let all = gather(comm, bits)?;
    Ok(all.into_iter().map(|row| row.into_iter().map(f32::from_bits).collect()).collect())
}

/// Writes a file, if we are the one who does.
fn write_once(is_first: bool, path: &Path, text: &str) -> Result<()> {
    if is_first {
        file::write(path, text.as_bytes())?;
    }
    Ok(())
}

/// The figures as `tf.metrics` sums them up: in `float32`, batch by batch.
fn evaluate(set: &Set, logits: &[Vec<f32>], batch: usize, global_step: i64) -> EvalResults {
    let (mut right, mut total_loss, mut count) = (0f32, 0f32, 0f32);
    let (mut batch_losses, mut batches) = (0f32, 0f32);
    for (features, logits) in set.features.chunks(batch).zip(logits.chunks(batch)) {
        let mut sum = 0f32;
        for (features, logits) in features.iter().zip(logits) {
            let Target::Class(label) = features.target else { continue };
            let label = label as usize;
            sum += loss(logits, label);
            right += f32::from(u8::from(argmax(logits) == label));
        }
        total_loss += sum;
        count += logits.len() as f32;
        batch_losses += sum / logits.len() as f32;
        batches += 1.0;
    }
    EvalResults {
        eval_accuracy: right / count,
        eval_loss: total_loss / count,
        global_step,
        loss: batch_losses / batches,
    }
}

/// `-log(softmax(logits)[label])`
fn loss(logits: &[f32], label: usize) -> f32 {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|x| f64::from(x - most).exp()).sum();
    let own = logits.get(label).map_or(f32::NEG_INFINITY, |x| x - most);
    (sum.ln() - f64::from(own)) as f32
}

/// `eval_results.txt`.
fn eval_text(results: &EvalResults, progress: &mut dyn FnMut(Event<'_>)) -> String {
    let lines = [
        ("eval_accuracy", float32(results.eval_accuracy)),
        ("eval_loss", float32(results.eval_loss)),
        ("global_step", results.global_step.to_string()),
        ("loss", float32(results.loss)),
    ];
    let mut text = String::new();
    for (key, value) in &lines {
        progress(Event::Result(key, value));
        text.push_str(&format!("{key} = {value}\n"));
    }
    text
}

/// As numpy prints a `float32`: the fewest digits that read back as the same.
pub(crate) fn float32(value: f32) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    let shortest = value.to_string();
    // Digits of a `float32` are few enough to be those of the `float64` nearest to them, too.
    shortest.parse().map_or(shortest, python::float)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_numpy_prints_them() {
        for (value, text) in [
            (0.8235294, "0.8235294"),
            (1.0, "1.0"),
            (1e-5, "1e-05"),
            (0.000_123_4, "0.0001234"),
            (0.1, "0.1"),
            (f32::NAN, "nan"),
        ] {
            assert_eq!(float32(value), text);
        }
    }

    #[test]
    fn losses_are_of_the_label() {
        assert!((loss(&[0.0, 0.0], 1) - 2f32.ln()).abs() < 1e-7);
        assert!(loss(&[100.0, 0.0], 0) < 1e-6);
        assert!((loss(&[1000.0, 0.0], 1) - 1000.0).abs() < 1e-3);
    }
}
