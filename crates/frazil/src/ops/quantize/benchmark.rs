//! How good and how fast a SQuAD model of any kind is: the original's `--benchmark`.
//!
//! Batches have a fixed number of windows, without padding; the first ones are not counted. Instances
//! run at the same time, by what [`crate::ops::bench`] measures with.

use std::collections::HashMap;
use std::path::Path;

use frazil_bert::features::Features;
use frazil_bert::metrics::squad::{Reference, Version};
use frazil_bert::squad::{PredictOptions, ReadOptions, build_features, read_examples};
use frazil_runtime::Inputs;
use serde::Serialize;

use super::data::DataOptions;
use crate::ops::bench::{crowd, instances, together, wall};
use crate::ops::predict::answer::{self, Answerer, Questions};
use crate::ops::text_model;
use crate::{Error, Result};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The score, on all questions, and times.
    Accuracy,
    /// Times only.
    Performance,
}

/// How it is measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// How the model is opened; its threads are those of an instance.
    pub model: text_model::Options,
    /// The questions: `evaluation`, or the `labels` of records.
    pub data: DataOptions,
    /// What is measured.
    pub mode: Mode,
    /// Windows of a batch.
    pub batch_size: usize,
    /// Batches that are not counted.
    pub warmup: usize,
    /// Batches that are; all of the data if none.
    pub iterations: Option<usize>,
    /// How many run at the same time; 0 is 1.
    pub instances: usize,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// What was asked for.
    pub mode: Mode,
    /// F1 in percent, if that was asked for.
    pub accuracy: Option<f64>,
    /// Windows of a batch.
    pub batch_size: usize,
    /// Milliseconds of a window: the mean of the batches that count, over their size.
    pub latency_ms: f64,
    /// Windows a second of all instances together.
    pub throughput: f64,
    /// How many ran at the same time.
    pub instances: usize,
    /// Threads of each.
    pub threads: usize,
    /// Batches that count, of each instance.
    pub batches: usize,
    /// Choices that were made.
    pub notes: Vec<String>,
}

/// Batches that nobody waits for: whoever asks for more has mistyped.
const MOST_BATCHES: usize = 10_000_000;

/// Measures the model at `path`.
pub fn benchmark(path: &Path, options: &Options) -> Result<Report> {
    let data = &options.data;
    let asked = options.warmup.max(options.iterations.unwrap_or(0));
    if asked > MOST_BATCHES {
        return Err(Error::Usage {
            what: format!("{asked} batches are asked for, more than {MOST_BATCHES}"),
            hint: "give smaller numbers for `warmup` and `iteration`".into(),
        });
    }
    let questions = data.labels.as_deref().or(data.evaluation.as_deref());
    let questions = questions.ok_or_else(|| super::data::no_evaluation("SQuAD"))?;
    let read = ReadOptions { on_bad_row: data.on_bad_row, ..ReadOptions::default() };
    let examples = read_examples(questions, read)?.items;
    let reference = Reference::open(questions, data.on_bad_row)?;
    let version = reference.version();
    let answer = answer::Options {
        model: options.model.clone(),
        doc_stride: data.doc_stride,
        max_query_length: data.max_query_length,
        on_bad_row: data.on_bad_row,
        predict: PredictOptions { version_2: version == Version::V2, ..Default::default() },
    };
    let answerer = Answerer::open(path, answer)?;
    let model = answerer.model();
    let windows = build_features(&examples, model.tokenizer(), answerer.features())?;
    let windows: Vec<Features> = windows.into_iter().map(|window| window.features).collect();
    let size = options.batch_size.max(1);
    // Data that are too few are gone through again.
    let all = windows.chunks(size).filter(|batch| batch.len() == size || windows.len() < size);
    let all: Vec<&[Features]> = all.collect();
    let Some(first) = all.first() else {
        return Err(Error::Usage {
            what: format!("`{}` has no windows to run", questions.display()),
            hint: "give a SQuAD file with questions".into(),
        });
    };
    let runs: Vec<Vec<Inputs>> =
        all.iter().map(|batch| model.inputs(batch)).collect::<Result<_>>()?;
    let counted = options.iterations.unwrap_or(all.len().saturating_sub(options.warmup)).max(1);
    let from = |skip: usize, count: usize| -> Vec<&Inputs> {
        runs.iter().cycle().skip(skip % runs.len()).take(count).flatten().collect()
    };
    let engine = model.engine();
    let engines = instances(engine.clone(), options.instances)?;
    together(&engines, &from(0, options.warmup), 1)?;
    let timed = together(&engines, &from(options.warmup, counted), 1)?;
    let windows = (engines.len() * counted * first.len()) as f64;
    let latency = timed.iter().flat_map(|run| &run.batches).sum::<f64>() / windows;
    let accuracy = match options.mode {
        Mode::Performance => None,
        Mode::Accuracy => {
            let mut predictions = HashMap::new();
            let mut list = Questions::list(questions.to_path_buf(), examples);
            answerer.run(&mut list, |question, _| -> Result<()> {
                predictions.insert(question.qas_id, question.prediction);
                Ok(())
            })?;
            Some(match version {
                Version::V1 => reference.score(&predictions).f1,
                Version::V2 => reference.score_v2(&predictions, None, 1.0)?.all.f1,
            })
        }
    };
    Ok(Report {
        mode: options.mode,
        accuracy,
        batch_size: size,
        latency_ms: latency * 1e3,
        throughput: windows / wall(&timed),
        instances: engines.len(),
        threads: engine.threads(),
        batches: counted,
        notes: model
            .notes()
            .iter()
            .cloned()
            .chain(crowd(engines.len(), engine.threads()))
            .collect(),
    })
}
