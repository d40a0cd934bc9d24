//! How well a pre-trained model predicts masked pieces and next sentences.
//!
//! Numbers are summed up as `tf.metrics` does it: `loss` is a mean over batches, all others are means
//! over what they count, pieces or sequences. Left out: anything about training.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use frazil_bert::build::{self, build};
use frazil_bert::config::Formulas;
use frazil_bert::samples::{PackedBatch, Reader, ReaderOptions};
use frazil_bert::{BertConfig, Head};
use frazil_runtime::{Engine, EngineOptions, Outputs, Parameters, Worker, raise};
use frazil_tensor::{TensorStore, file};
use frazil_train::batch::{self, Form, NO_PIECE};
use frazil_train::comm::Comm;

use crate::ops::make_folder;
use crate::ops::plan_cache::PlanCache;
use crate::ops::run_classifier::float32;
use crate::source::open_weights;
use crate::{Error, Result};

/// What is evaluated, on what.
#[derive(Clone, Debug)]
pub struct Options {
    /// The model.
    pub config: BertConfig,
    /// What the configuration cannot say.
    pub formulas: Formulas,
    /// Masked pieces and next sentences, or masked pieces alone.
    pub head: Head,
    /// Files of samples.
    pub records: Vec<PathBuf>,
    /// How they are read.
    pub reading: ReaderOptions,
    /// What becomes of batches, and whether accuracy is a mean over pieces or over sequences.
    pub form: Form,
    /// Batches at most; needed where reading does not end.
    pub batches: Option<u64>,
    /// Threads; `FRAZIL_THREADS`, or one for each core, if none.
    pub threads: Option<usize>,
    /// Where the raised graph is stored for later runs; nowhere if not given.
    pub plans: Option<PathBuf>,
}

/// A model that is ready to be evaluated, with whatever weights.
pub struct Evaluator {
    options: Options,
    engine: Engine,
    worker: Worker,
    /// Who evaluates together.
    comm: Arc<dyn Comm>,
}

/// What came out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    /// `loss`, `masked_lm_accuracy`, `masked_lm_loss`, `next_sentence_accuracy`, `next_sentence_loss`.
    pub values: BTreeMap<String, f64>,
    /// Sequences that were looked at.
    pub sequences: u64,
}

/// A mean, summed up in `float32`, as TensorFlow does it.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f32,
    count: f32,
}

impl Mean {
    fn add(&mut self, sum: f32, count: f32) {
        (self.sum, self.count) = (self.sum + sum, self.count + count);
    }

    fn value(self) -> f32 {
        if self.count == 0.0 { 0.0 } else { self.sum / self.count }
    }
}

/// What is counted, by name.
#[derive(Clone, Copy, Debug, Default)]
struct Means {
    loss: Mean,
    word_accuracy: Mean,
    word_loss: Mean,
    next_accuracy: Mean,
    next_loss: Mean,
    sequences: u64,
}

impl Means {
    fn all(&self) -> [Mean; 5] {
        [self.loss, self.word_accuracy, self.word_loss, self.next_accuracy, self.next_loss]
    }

    /// As numbers that can be sent.
    fn numbers(&self) -> [f64; 11] {
        let [a, b, c, d, e] = self.all().map(|mean| [mean.sum, mean.count].map(f64::from));
        let sequences = self.sequences as f64;
        [a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1], e[0], e[1], sequences]
    }

    fn add(&mut self, numbers: &[f64; 11]) {
        let means = [
            &mut self.loss,
            &mut self.word_accuracy,
            &mut self.word_loss,
            &mut self.next_accuracy,
            &mut self.next_loss,
        ];
        for (mean, [sum, count]) in means.into_iter().zip(numbers.as_chunks().0) {
            mean.add(*sum as f32, *count as f32);
        }
        self.sequences += numbers[10] as u64;
    }

    /// The sums of all batches of all ranks, in the order in which one rank would have come to them.
    fn of_all(comm: &dyn Comm, own: &[Self]) -> Result<Self> {
        let bytes: Vec<u8> =
            own.iter().flat_map(Self::numbers).flat_map(f64::to_le_bytes).collect();
        let all: Vec<Vec<f64>> = comm
            .all_gather(&bytes)?
            .into_iter()
            .map(|said| said.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect())
            .collect();
        let ranks: Vec<&[[f64; 11]]> = all.iter().map(|numbers| numbers.as_chunks().0).collect();
        let most = ranks.iter().map(|rank| rank.len()).max().unwrap_or(0);
        let mut sums = Self::default();
        for turn in 0..most {
            ranks.iter().filter_map(|rank| rank.get(turn)).for_each(|batch| sums.add(batch));
        }
        Ok(sums)
    }
}

impl Evaluator {
    /// Builds the model. Several ranks do it together: each takes its turn at the batches.
    pub fn new(options: Options, comm: Arc<dyn Comm>) -> Result<Self> {
        let Options { config, head, formulas, .. } = &options;
        let make = || {
            let of_head = build::Options { formulas: *formulas, ..build::Options::default() };
            let mut graph = build(config, *head, &of_head)?;
            raise(&mut graph, true)?;
            Ok(graph)
        };
        let is_first = comm.is_first();
        let graph = match &options.plans {
            Some(folder) => {
                let cache = PlanCache::new(folder, is_first);
                cache.plan("evaluation", &(head, config, formulas), make)?.plan
            }
            None => make()?,
        };
        let how = EngineOptions { threads: options.threads, ..EngineOptions::default() };
        let engine = Engine::for_training(graph, &how)?;
        let worker = engine.worker();
        Ok(Self { options, engine, worker, comm })
    }

    /// Evaluates these weights on all batches. Each call reads the same ones.
    pub fn evaluate(&mut self, weights: &dyn TensorStore) -> Result<Scores> {
        let parameters = Parameters::read(self.engine.graph(), weights)?;
        let (rank, size) = (self.comm.rank(), self.comm.size());
        let reading = ReaderOptions { part: (rank, size), ..self.options.reading.clone() };
        let mut reader = Reader::open(&self.options.records, reading)?;
        let mut own = Vec::new();
        let mut number = rank as u64;
        while self.options.batches.is_none_or(|most| number < most)
            && let Some(mut batch) = reader.next_batch()?
        {
            // The last batch may have nothing for this rank.
            if batch.sequences() == 0 {
                continue;
            }
            let mut means = Means::default();
            self.options.form.apply(&mut batch);
            means.sequences = batch.sequences() as u64;
            number += size as u64;
            let mut inputs = batch::inputs(&batch, self.options.head, self.options.form.padding)?;
            let labels = inputs.remove("masked_lm_ids");
            let weights = inputs.remove("masked_lm_weights");
            inputs.remove("next_sentence_labels");
            let outputs = self.worker.run_with(&inputs, &parameters)?;
            let mut total = 0.0;
            if let (Some(labels), Some(weights)) = (labels, weights) {
                let (labels, weights) = (labels.values::<i32>()?, weights.values::<f32>()?);
                total += words(&outputs, &labels, &weights, &mut means)?;
            }
            if self.options.head != Head::Mlm {
                total += next_sentences(&outputs, &batch, &mut means)?;
            }
            means.loss.add(total, 1.0);
            own.push(means);
        }
        let means = Means::of_all(&*self.comm, &own)?;
        let mut values = vec![
            ("loss", means.loss),
            ("masked_lm_accuracy", means.word_accuracy),
            ("masked_lm_loss", means.word_loss),
        ];
        if self.options.head != Head::Mlm {
            let next = [
                ("next_sentence_accuracy", means.next_accuracy),
                ("next_sentence_loss", means.next_loss),
            ];
            values.extend(next);
        }
        let value = |(name, mean): (&str, Mean)| (name.to_owned(), f64::from(mean.value()));
        let values = values.into_iter().map(value).collect();
        Ok(Scores { values, sequences: means.sequences })
    }
}

/// The scores of a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct OfCheckpoint {
    /// The step that it was saved at; 0 if it does not say.
    pub global_step: i64,
    /// The scores.
    pub scores: Scores,
}

/// Evaluates a checkpoint, with all ranks.
pub fn checkpoint(path: &Path, options: Options, comm: Arc<dyn Comm>) -> Result<OfCheckpoint> {
    let weights = open_weights(path, &Default::default())?;
    let global_step = match weights.info("global_step") {
        Some(_) => weights.read("global_step")?.to_f64()?.first().map_or(0, |step| *step as i64),
        None => 0,
    };
    let scores = Evaluator::new(options, comm)?.evaluate(&weights)?;
    Ok(OfCheckpoint { global_step, scores })
}

impl OfCheckpoint {
    /// Writes `eval_results.txt` as the original does, and gives its lines.
    pub fn write(&self, folder: &Path) -> Result<Vec<String>> {
        let scores = self.scores.values.iter();
        let scores = scores.map(|(name, value)| format!("{name} = {}", float32(*value as f32)));
        let step = format!("global_step = {}", self.global_step);
        let lines: Vec<String> = std::iter::once(step).chain(scores).collect();
        make_folder(folder)?;
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        file::write(folder.join("eval_results.txt"), text.as_bytes())?;
        Ok(lines)
    }
}

/// Where an output is.
fn output(outputs: &Outputs<'_>, name: &str) -> Result<usize> {
    let at = outputs.names().position(|known| known == name);
    let missing = || frazil_train::Error::NoOutput { name: name.to_owned(), loss: "evaluation's" };
    at.ok_or_else(|| Error::from(missing()))
}

/// Adds a batch's masked pieces, and gives its loss.
fn words(outputs: &Outputs<'_>, labels: &[i32], weights: &[f32], means: &mut Means) -> Result<f32> {
    let log_probs = outputs.numbers(output(outputs, "masked_lm_log_probs")?)?;
    let Found { loss, right, count } = found(&log_probs, labels, weights)?;
    means.word_loss.add(loss, count);
    means.word_accuracy.add(right, count);
    Ok(loss / (count + 1e-5))
}

/// What masked pieces add up to.
#[derive(Debug, PartialEq)]
struct Found {
    loss: f32,
    right: f32,
    count: f32,
}

/// `log_probs: [p, v]  labels, weights: [p]`
fn found(log_probs: &[f32], labels: &[i32], weights: &[f32]) -> Result<Found> {
    let width = log_probs.len() / labels.len().max(1);
    let mut sum = Found { loss: 0.0, right: 0.0, count: 0.0 };
    for ((row, &label), &weight) in log_probs.chunks(width.max(1)).zip(labels).zip(weights) {
        sum.count += weight;
        if weight != 0.0 && label != NO_PIECE {
            sum.loss += weight * -at(row, label)?;
            sum.right += weight * f32::from(u8::from(argmax(row) as i32 == label));
        }
    }
    Ok(sum)
}

/// Adds a batch's sequences, and gives its loss.
fn next_sentences(outputs: &Outputs<'_>, batch: &PackedBatch, means: &mut Means) -> Result<f32> {
    let log_probs = outputs.numbers(output(outputs, "next_sentence_log_probs")?)?;
    let (mut loss, mut right) = (0f32, 0f32);
    for (row, &label) in log_probs.chunks(2).zip(&batch.next_sentence_labels) {
        loss -= at(row, label)?;
        right += f32::from(u8::from(argmax(row) as i32 == label));
    }
    let count = batch.sequences() as f32;
    means.next_loss.add(loss, count);
    means.next_accuracy.add(right, count);
    Ok(loss / count)
}

/// What a label's log-probability is.
fn at(row: &[f32], label: i32) -> Result<f32> {
    let value = usize::try_from(label).ok().and_then(|label| row.get(label));
    value.copied().ok_or_else(|| Error::Usage {
        what: format!("a masked piece is {label}, and the model has {} pieces", row.len()),
        hint: "give the records that were made with the model's vocabulary".into(),
    })
}

/// The first of the largest.
fn argmax(row: &[f32]) -> usize {
    let (mut best, mut most) = (0, f32::NEG_INFINITY);
    for (at, &value) in row.iter().enumerate() {
        if value > most {
            (best, most) = (at, value);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_that_the_model_does_not_know_is_never_found() {
        let rows = [-0.5, -2.0, -3.0, -0.25];
        let sums = |labels: [i32; 2], weights: [f32; 2]| found(&rows, &labels, &weights);
        let of = |loss, right, count| Found { loss, right, count };
        assert_eq!(sums([0, 1], [1.0, 1.0]).unwrap(), of(0.75, 2.0, 2.0));
        assert_eq!(sums([0, NO_PIECE], [1.0, 1.0]).unwrap(), of(0.5, 1.0, 2.0));
        assert_eq!(sums([0, 7], [1.0, 0.0]).unwrap(), of(0.5, 1.0, 1.0));
        assert!(sums([0, 7], [1.0, 1.0]).is_err());
    }
}
