//! Fine-tuning to a task of GLUE that has classes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use frazil_bert::features::InputExample;
use frazil_bert::features::classifier::{ClassifierInput, Labels, write_records};
use frazil_bert::glue::{ReadOptions, Split, Task};
use frazil_bert::metrics::glue as metrics;
use frazil_bert::rows::{OnBadRow, Rows};
use frazil_bert::samples::Kind;
use frazil_bert::{BertConfig, Head};
use frazil_train::run::Go;

use super::{
    Data, Event, Export, Judge, Model, Prepared, Ran, Report, Schedule, check_early_stop, finetune,
    open_model, train_only,
};
use crate::ops::run_classifier;
use crate::{Error, Result};

/// What is learnt, from what.
#[derive(Clone, Debug)]
pub struct Options {
    /// The model.
    pub model: Model,
    /// The task.
    pub task: Task,
    /// The folder with its files.
    pub data_dir: PathBuf,
    /// Records to train on instead of the folder's train set, of sequences or of packs of them; a batch is
    /// then so many of these.
    pub records: Vec<PathBuf>,
    /// Pieces of a sequence at most.
    pub max_seq_length: usize,
    /// How long and how fast.
    pub schedule: Schedule,
    /// What is done about a row that cannot be used.
    pub on_bad_row: OnBadRow,
    /// Whether checkpoints are evaluated on the dev set.
    pub evaluate: bool,
    /// Evaluations without a better score after which training ends.
    pub early_stop: Option<usize>,
}

/// The score that counts: the task's official one, under the name that it has here.
fn metric(task: Task) -> &'static str {
    match metrics::official(task) {
        metrics::ACCURACY => "eval_accuracy",
        other => other,
    }
}

/// Trains and evaluates.
pub fn classifier(options: &Options, watch: &mut dyn FnMut(Event<'_>)) -> Result<Report> {
    check_early_stop(options.early_stop, options.evaluate)?;
    let is_first = options.schedule.comm.is_first();
    let prepared = prepare(options, &mut |note| {
        if is_first {
            watch(Event::Note(note));
        }
    })?;
    let scores = |checkpoint: &Path| scores(options, checkpoint);
    let judge = Judge {
        scores: if options.evaluate { Some(&scores) } else { None },
        metric: metric(options.task),
        early_stop: options.early_stop,
        of: options
            .evaluate
            .then(|| run_classifier::judged_on(&evaluation(options)))
            .transpose()?,
    };
    finetune(&prepared, &options.model, &options.schedule, &judge, watch)
}

/// The task of that name; where there is none, those that can be learnt are named.
pub fn task(name: &str) -> Result<Task> {
    name.parse().map_err(|_| {
        let known = Task::ALL.into_iter().filter(|task| task.labels() != Labels::Scores).collect();
        frazil_bert::Error::UnknownDataSet { name: name.to_owned(), known }.into()
    })
}

/// Trains only: nothing is evaluated, and the report is written when it is asked for.
pub fn train(options: &Options, watch: &mut dyn FnMut(Event<'_>) -> Result<Go>) -> Result<Ran> {
    let metric = metric(options.task);
    train_only(|note| prepare(options, note), &options.model, &options.schedule, metric, watch)
}

/// Writes a checkpoint, the newest if none is given, as a SavedModel below `dir`, for calls of so many
/// sequences or any number.
pub fn export(
    options: &Options,
    checkpoint: Option<&Path>,
    dir: &Path,
    batch: Option<usize>,
) -> Result<(PathBuf, PathBuf)> {
    let labels = options.task.labels();
    let Labels::Classes(names) = &labels else { return Err(no_classes(options.task)) };
    let export = Export {
        head: Head::Classifier,
        labels: names.len(),
        config: &BertConfig::read(&options.model.bert_config_file)?,
        max_seq_length: options.max_seq_length,
        batch,
    };
    super::export_of(&options.model, checkpoint, &export, dir)
}

fn no_classes(task: Task) -> Error {
    Error::Usage {
        what: format!("{task} has scores, and only classes are learnt"),
        hint: "choose a task with classes, such as MRPC".into(),
    }
}

/// Reads and checks the data, and writes `train.tf_record`.
fn prepare(options: &Options, note: &mut dyn FnMut(String)) -> Result<Prepared> {
    options.schedule.check()?;
    let (config, tokenizer) = open_model(&options.model, options.max_seq_length)?;
    let labels = options.task.labels();
    let Labels::Classes(names) = &labels else { return Err(no_classes(options.task)) };
    let (count, mut skipped) = (names.len(), 0);
    let how = ReadOptions { on_bad_row: options.on_bad_row, ..ReadOptions::default() };
    let mut read = |split| -> Result<Rows<InputExample>> {
        let rows = options.task.read(&options.data_dir, split, &how)?;
        let path = options.task.file(&options.data_dir, split, &how.language);
        skipped += super::tell_skipped(&path, &rows.skipped, note);
        Ok(rows)
    };
    if options.evaluate {
        // What is wrong with the dev set is said before hours are spent.
        read(Split::Dev)?;
    }
    super::check_begin(&options.model, &options.schedule, &config, (Head::Classifier, count))?;
    let prepared = |(records, lock), data: Data, samples: usize, skipped: usize| Prepared {
        task: options.task.to_string(),
        head: Head::Classifier,
        labels: count,
        config,
        records,
        data,
        samples,
        skipped,
        lock,
    };
    if !options.records.is_empty() {
        let data = super::count_records(&options.records, Kind::Classifier)?;
        return Ok(prepared((options.records.clone(), None), data, data.count(), skipped));
    }
    let input = ClassifierInput::new(tokenizer, labels, options.max_seq_length)?;
    let rows = read(Split::Train)?;
    options.schedule.check_steps(rows.items.len())?;
    let features = input.features_of_all(&rows.items)?;
    let written = super::write_train_records(&options.model, &options.schedule, |records| {
        Ok(write_records(records, &features).map(drop)?)
    })?;
    Ok(prepared(written, Data::Examples(rows.items.len()), features.len(), skipped))
}

/// The figures of `run_classifier` for one checkpoint, and GLUE's own.
fn scores(options: &Options, checkpoint: &Path) -> Result<BTreeMap<String, f64>> {
    let of = evaluation(options);
    run_classifier::scores_of_checkpoint(checkpoint, &of, &options.schedule.stop)
}

/// How checkpoints are evaluated.
fn evaluation(options: &Options) -> run_classifier::Options {
    run_classifier::Options {
        data_dir: options.data_dir.clone(),
        bert_config_file: options.model.bert_config_file.clone(),
        task: options.task,
        vocab_file: options.model.vocab_file.clone(),
        output_dir: options.model.output_dir.clone(),
        init_checkpoint: None,
        do_lower_case: options.model.do_lower_case,
        max_seq_length: options.max_seq_length,
        do_eval: true,
        do_predict: false,
        eval_batch_size: 8,
        predict_batch_size: 8,
        use_tpu: false,
        on_bad_row: options.on_bad_row,
        threads: options.schedule.threads,
        comm: Arc::clone(&options.schedule.comm),
    }
}
