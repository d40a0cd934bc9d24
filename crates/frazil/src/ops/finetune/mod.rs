//! `finetune`: a pre-trained BERT learns a task: classes ([`classifier`]) or answers ([`squad`]).
//!
//! Data is made into the original's records (`train.tf_record`), unless there are records already, of
//! sequences or of packs of them, and [`train`] does the rest. Every checkpoint is evaluated as it was
//! written, by the same code that evaluates any other model. `run_classifier` and `run_squad` train here,
//! too, and evaluate afterwards.

pub mod classifier;
mod export;
pub mod squad;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use frazil_bert::rows::BadRow;
use frazil_bert::samples::{Kind, Reader, ReaderOptions};
use frazil_bert::tokenizer::{Casing, Tokenizer, Vocabulary};
use frazil_bert::{BertConfig, Head};
use frazil_tensor::file;
use frazil_train::checkpoint::{is_there, newest, path as checkpoint_path};
use frazil_train::comm::{Comm, Solo};
use frazil_train::optim;
use frazil_train::run::Go;
use frazil_train::schedule::Bert;
use serde::Serialize;

use super::make_folder;
use super::predict::rows::Skipped;
use super::train::{self, Evaluation, History, Lock, Stop, Trained};
use crate::source::open_weights;
use crate::{Error, Result};

pub use export::{Export, check_place, export_saved_model};

/// What lies beside a model's checkpoints.
const CONFIG: &str = "bert_config.json";
const VOCABULARY: &str = "vocab.txt";

/// The model, and where it goes.
#[derive(Clone, Debug)]
pub struct Model {
    /// Its configuration.
    pub bert_config_file: PathBuf,
    /// Its vocabulary.
    pub vocab_file: PathBuf,
    /// Whether text is lowered.
    pub do_lower_case: bool,
    /// The weights to begin with.
    pub init_checkpoint: Option<PathBuf>,
    /// Where checkpoints and everything else go.
    pub output_dir: PathBuf,
}

impl Model {
    /// The checkpoint that training has led to; the one to begin with if there is none yet.
    pub(crate) fn trained(&self) -> Result<PathBuf> {
        let checkpoint = newest(&self.output_dir)?.or_else(|| self.init_checkpoint.clone());
        checkpoint.ok_or_else(|| Error::Usage {
            what: format!("`{}` has no checkpoint", self.output_dir.display()),
            hint: "train first, or name one with `--init_checkpoint`".into(),
        })
    }

    /// Refuses to go on in the folder of a model with another configuration or vocabulary.
    fn check_folder(&self, config: &BertConfig) -> Result<()> {
        let refused = |there: &Path, given: &Path| {
            let (there, given) = (there.display(), given.display());
            Err(Error::Usage {
                what: format!("`{there}` is of another model than `{given}`"),
                hint: "give that one to go on, or another folder to begin anew".into(),
            })
        };
        let there = self.output_dir.join(CONFIG);
        if there.is_file() && BertConfig::read(&there)? != *config {
            return refused(&there, &self.bert_config_file);
        }
        let there = self.output_dir.join(VOCABULARY);
        if there.is_file() && file::map(&there)? != file::map(&self.vocab_file)? {
            return refused(&there, &self.vocab_file);
        }
        Ok(())
    }

    /// Puts configuration and vocabulary beside what is trained: the folder is a model by itself then.
    fn complete(&self) -> Result<()> {
        make_folder(&self.output_dir)?;
        for (from, name) in [(&self.bert_config_file, CONFIG), (&self.vocab_file, VOCABULARY)] {
            file::write(self.output_dir.join(name), &file::map(from)?)?;
        }
        Ok(())
    }
}

/// How long, how fast, how often: the original's flags and a few of ours.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Examples of a batch.
    pub batch_size: usize,
    /// Batches whose gradients are added up for one step.
    pub accumulate: usize,
    /// How weights are changed.
    pub optimizer: optim::Options,
    /// The full learning rate.
    pub learning_rate: f64,
    /// How often each example is seen.
    pub epochs: f64,
    /// The part of all steps in which the rate grows.
    pub warmup_proportion: f64,
    /// Steps between two checkpoints.
    pub save_every: u64,
    /// Checkpoints that are kept, 0 for all.
    pub keep: usize,
    /// Of all chance.
    pub seed: u64,
    /// Less memory for more time.
    pub recompute: bool,
    /// Threads; `FRAZIL_THREADS`, or one for each core, if none.
    pub threads: Option<usize>,
    /// Who trains together. The first one writes, and is the only one that watches.
    pub comm: Arc<dyn Comm>,
    /// What can end the run before its time.
    pub stop: Stop,
}

impl Default for Schedule {
    /// The original's.
    fn default() -> Self {
        Self {
            batch_size: 32,
            accumulate: 1,
            optimizer: optim::Options::bert(),
            learning_rate: 5e-5,
            epochs: 3.0,
            warmup_proportion: 0.1,
            save_every: 1000,
            keep: 5,
            seed: 12345,
            recompute: false,
            threads: None,
            comm: Arc::new(Solo),
            stop: Stop::default(),
        }
    }
}

impl Schedule {
    /// Refuses what cannot be meant, before anything is read or written.
    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |what: String, hint: &str| Err(Error::Usage { what, hint: hint.into() });
        if self.batch_size == 0 || self.accumulate == 0 {
            return wrong("a step of 0 examples learns nothing".into(), "give 1 or more");
        }
        train::check_size(self.batch_size, self.accumulate)?;
        if !((self.learning_rate as f32).is_finite() && self.learning_rate >= 0.0) {
            let what = format!("a learning rate of {} is none", self.learning_rate);
            return wrong(what, "give a number such as 2e-5");
        }
        if !(self.epochs.is_finite() && self.epochs >= 0.0) {
            return wrong(format!("{} epochs cannot be trained", self.epochs), "give 1 or more");
        }
        if !(0.0..=1.0).contains(&self.warmup_proportion) {
            let what = format!("a warm-up of {} is no part of all steps", self.warmup_proportion);
            return wrong(what, "give a number from 0 to 1, such as 0.1");
        }
        Ok(self.optimizer.check()?)
    }

    /// Refuses to train on so many examples if that is not one step.
    fn check_steps(&self, examples: usize) -> Result<()> {
        train::check_steps(self.steps(examples).0)
    }

    /// All steps for so many examples, and those in which the rate grows: Python's arithmetic.
    pub fn steps(&self, examples: usize) -> (u64, u64) {
        let batch = self.batch_size as f64 * self.accumulate as f64;
        let steps = (examples as f64 / batch * self.epochs) as u64;
        (steps, (steps as f64 * self.warmup_proportion) as u64)
    }
}

/// What happens on the way.
#[derive(Debug)]
pub enum Event<'a> {
    /// Training begins.
    Running {
        /// Examples as the data has them, or packs.
        data: Data,
        /// What they became: windows of documents, or the examples themselves.
        samples: usize,
        /// Examples of a step.
        batch: usize,
        /// Steps.
        steps: u64,
    },
    /// A choice, in words, or rows that were left out.
    Note(String),
    /// Something of the training itself.
    Train(train::Event<'a>),
    /// A checkpoint is about to be evaluated, that of this step.
    Evaluating(u64),
    /// A checkpoint was evaluated; whether it is the best so far.
    Evaluated(&'a Evaluation, bool),
}

/// How much is trained on, and in what it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Data {
    /// Examples as the data has them.
    Examples(usize),
    /// Packs of sequences, as the records have them.
    Packs(usize),
}

impl Data {
    /// How many.
    pub fn count(self) -> usize {
        match self {
            Self::Examples(count) | Self::Packs(count) => count,
        }
    }

    /// Of what.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Examples(_) => "examples",
            Self::Packs(_) => "packs",
        }
    }
}

/// What came out, for `--json`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was learnt.
    pub task: String,
    /// The last checkpoint.
    pub checkpoint: PathBuf,
    /// The one with the best score, if there were evaluations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best: Option<PathBuf>,
    /// What was trained on.
    #[serde(flatten)]
    pub data: Data,
    /// Rows of the data that could not be used.
    pub skipped: usize,
    /// Steps altogether.
    pub steps: u64,
    /// Steps of this run.
    pub taken: u64,
    /// Whether it was told to stop before its time.
    pub stopped: bool,
    /// Whether it ended early, since scores got no better.
    pub early_stopped: bool,
    /// Pieces a second, without padding.
    pub tokens_per_second: f64,
    /// The scores, in the order of steps.
    pub evaluations: Vec<Evaluation>,
    /// The checkpoint as a SavedModel, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved_model: Option<PathBuf>,
    /// Curves and settings as a page.
    pub report: PathBuf,
    /// Seconds, evaluations included.
    pub seconds: f64,
}

/// Data that is ready to be trained on.
pub(crate) struct Prepared {
    /// What is learnt, in a word or two.
    pub task: String,
    pub head: Head,
    pub labels: usize,
    pub config: BertConfig,
    pub records: Vec<PathBuf>,
    pub data: Data,
    /// Records.
    pub samples: usize,
    /// Rows that could not be used.
    pub skipped: usize,
    /// The folder, as long as the run is in it; held by the first rank.
    pub lock: Option<Lock>,
}

/// Refuses sequences that are longer than the model has positions for, in the original's words.
pub(crate) fn check_length(config: &BertConfig, max_seq_length: usize) -> Result<()> {
    let positions = config.max_position_embeddings;
    if max_seq_length <= positions {
        return Ok(());
    }
    Err(Error::Usage {
        what: format!(
            "Cannot use sequence length {max_seq_length} because the BERT model was only trained \
             up to sequence length {positions}"
        ),
        hint: format!("give {positions} or less"),
    })
}

/// The configuration and the tokenizer; sequences that are too long for the model are refused, and so is
/// a vocabulary that is larger than its own.
pub(crate) fn open_model(model: &Model, max_seq_length: usize) -> Result<(BertConfig, Tokenizer)> {
    let config = BertConfig::read(&model.bert_config_file)?;
    check_length(&config, max_seq_length)?;
    let vocabulary = Vocabulary::open(&model.vocab_file)?;
    if vocabulary.len() > config.vocab_size {
        return Err(Error::Usage {
            what: format!(
                "`{}` has {} pieces, but the model {}",
                model.vocab_file.display(),
                vocabulary.len(),
                config.vocab_size
            ),
            hint: "give the vocabulary that the model was trained with".into(),
        });
    }
    let casing = if model.do_lower_case { Casing::Lower } else { Casing::Keep };
    Ok((config, Tokenizer::new(vocabulary.into(), casing)?))
}

/// Refuses what cannot begin, or go on, in its folder, before data are made ready.
fn check_begin(
    model: &Model,
    schedule: &Schedule,
    config: &BertConfig,
    what: (Head, usize),
) -> Result<()> {
    if train::is_of_run(&model.output_dir, config, what, schedule.seed)? {
        return model.check_folder(config);
    }
    match &model.init_checkpoint {
        Some(path) => train::fits(&open_weights(path, &Default::default())?, path, config, what),
        None => Ok(()),
    }
}

/// Counts records that are there already: sequences, or packs of them. They must hold what is learnt.
fn count_records(records: &[PathBuf], kind: Kind) -> Result<Data> {
    let reader = Reader::open(records, ReaderOptions::default())?;
    let count = reader.samples_in(0) as usize;
    match reader.kind() == kind {
        true if reader.is_packed() => Ok(Data::Packs(count)),
        true => Ok(Data::Examples(count)),
        false => Err(Error::Usage {
            what: format!("the records are for {:?}, not for {kind:?}", reader.kind()),
            hint: "give records of the task that is learnt".into(),
        }),
    }
}

/// What was trained, and on what.
#[derive(Clone, Debug)]
pub struct Ran {
    /// What came of it.
    pub trained: Trained,
    task: String,
    data: Data,
    /// What was evaluated by then.
    judged: Vec<Evaluation>,
}

impl Ran {
    fn new(prepared: &Prepared, trained: Trained, judged: Vec<Evaluation>) -> Self {
        Self { trained, task: prepared.task.clone(), data: prepared.data, judged }
    }

    /// Writes `report.html` with what the folder's events say: of scores, those that were judged as the last
    /// ones were. Where nothing was trained, and nothing evaluated since, that of the run before stays.
    pub fn write_report(&self, model: &Model, schedule: &Schedule) -> Result<PathBuf> {
        let mut history = History::read(&model.output_dir)?;
        let is_new = self.trained.taken > 0 || history.evaluations != self.judged;
        history.only(history.evaluations.last().and_then(|last| last.judged_on));
        self.report(model, schedule, &history, None, is_new)
    }

    /// The same with this history and the best checkpoint, if there is one; whether something of it is new.
    fn report(
        &self,
        model: &Model,
        schedule: &Schedule,
        history: &History,
        best: Option<PathBuf>,
        is_new: bool,
    ) -> Result<PathBuf> {
        let report = report_of(model);
        if !is_new && report.is_file() {
            return Ok(report);
        }
        let begins_with = match &model.init_checkpoint {
            Some(path) => path.display().to_string(),
            None => "new weights".into(),
        };
        let mut settings = vec![
            ("task", self.task.clone()),
            (self.data.unit(), self.data.count().to_string()),
            ("batch size", (schedule.batch_size * schedule.accumulate).to_string()),
            ("optimizer", schedule.optimizer.method.name().to_owned()),
            ("learning rate", schedule.learning_rate.to_string()),
            ("epochs", schedule.epochs.to_string()),
            ("warm-up", schedule.warmup_proportion.to_string()),
            ("seed", schedule.seed.to_string()),
            ("begins with", begins_with),
        ];
        settings.extend(best.map(|best| ("best checkpoint", best.display().to_string())));
        let title = format!("Fine-tuning for {}", self.task);
        train::page(&title, &settings, &self.trained, history).write(&report)?;
        Ok(report)
    }
}

fn report_of(model: &Model) -> PathBuf {
    model.output_dir.join("report.html")
}

/// Makes the data ready and trains on them. What was the best before, by this metric, stays.
fn train_only(
    prepare: impl FnOnce(&mut dyn FnMut(String)) -> Result<Prepared>,
    model: &Model,
    schedule: &Schedule,
    metric: &str,
    watch: &mut dyn FnMut(Event<'_>) -> Result<Go>,
) -> Result<Ran> {
    let mut notes = Vec::new();
    let prepared = prepare(&mut |note| notes.push(note))?;
    let mut watch = |event: Event<'_>| match schedule.comm.is_first() {
        true => watch(event),
        false => Ok(Go::On),
    };
    for note in notes {
        watch(Event::Note(note))?;
    }
    let trained = train_on(&prepared, model, schedule, &mut |event| {
        let Event::Train(train::Event::Resuming(_, step, _)) = event else { return watch(event) };
        let before = Before::read(&model.output_dir, step, metric, None)?;
        let best = before.standing.best_of(&model.output_dir);
        let go = watch(event)?;
        Ok(best.filter(|_| go == Go::On).map_or(go, Go::Keep))
    })?;
    let judged = History::read(&model.output_dir)?.evaluations;
    Ok(Ran::new(&prepared, trained, judged))
}

/// Says which rows were left out of a file, the first ones with why; how many.
fn tell_skipped(path: &Path, rows: &[BadRow], note: &mut dyn FnMut(String)) -> usize {
    if !rows.is_empty() {
        let mut skipped = Skipped::default();
        rows.iter().for_each(|row| skipped.add(row));
        let lines: String = skipped.first.iter().map(|row| format!("\n  {row}")).collect();
        let (rows, were) = if rows.len() == 1 { ("row", "was") } else { ("rows", "were") };
        let (count, path) = (skipped.count, path.display());
        note(format!("{count} bad {rows} of `{path}` {were} skipped:{lines}"));
    }
    rows.len()
}

/// Takes the folder, and lets the first rank write what is trained on there.
fn write_train_records(
    model: &Model,
    schedule: &Schedule,
    write: impl FnOnce(&Path) -> Result<()>,
) -> Result<(Vec<PathBuf>, Option<Lock>)> {
    let comm = &*schedule.comm;
    let lock = train::hold(&model.output_dir, comm)?;
    let records = model.output_dir.join("train.tf_record");
    if comm.is_first() {
        write(&records)?;
    }
    comm.barrier()?;
    Ok((vec![records], lock))
}

/// Trains on what is ready.
fn train_on(
    prepared: &Prepared,
    model: &Model,
    schedule: &Schedule,
    watch: &mut dyn FnMut(Event<'_>) -> Result<Go>,
) -> Result<Trained> {
    let (steps, warmup_steps) = schedule.steps(prepared.data.count());
    watch(Event::Running {
        data: prepared.data,
        samples: prepared.samples,
        batch: schedule.batch_size * schedule.accumulate,
        steps,
    })?;
    let rate = Bert { rate: schedule.learning_rate, steps, warmup: warmup_steps };
    let (config, folder) = (prepared.config.clone(), model.output_dir.clone());
    let mut options = train::Options::bert(prepared.head, config, rate, folder);
    options.labels = prepared.labels;
    options.init_checkpoint = model.init_checkpoint.clone();
    options.records = prepared.records.clone();
    options.reading.packs = schedule.batch_size;
    options.reading.shuffle = Some(schedule.seed);
    options.accumulate = schedule.accumulate;
    options.optimizer = schedule.optimizer.clone();
    options.save_every = schedule.save_every;
    options.keep = schedule.keep;
    options.seed = schedule.seed;
    options.recompute = schedule.recompute;
    options.threads = schedule.threads;
    options.comm = Arc::clone(&schedule.comm);
    options.stop = schedule.stop.clone();
    train::train_in(prepared.lock.as_ref(), &options, &mut |event| {
        if let train::Event::NoNumber(trained) = &event
            && schedule.comm.is_first()
        {
            // The curves show how it came to that; where they cannot be written, that is still what is to be told.
            let _ =
                Ran::new(prepared, (*trained).clone(), Vec::new()).write_report(model, schedule);
        }
        watch(Event::Train(event))
    })
}

/// Exports a checkpoint, the newest if none is given: its path, and that of the SavedModel.
fn export_of(
    model: &Model,
    checkpoint: Option<&Path>,
    export: &Export<'_>,
    dir: &Path,
) -> Result<(PathBuf, PathBuf)> {
    let checkpoint = match checkpoint {
        Some(given) => given.to_path_buf(),
        None => model.trained()?,
    };
    let written = export_saved_model(&checkpoint, export, dir)?;
    Ok((checkpoint, written))
}

/// The scores of a checkpoint; [`Error::Stopped`] where nobody waits for them.
pub(crate) type Scores<'j> = &'j dyn Fn(&Path) -> Result<BTreeMap<String, f64>>;

/// Refuses to wait for better scores where there are none.
pub(crate) fn check_early_stop(early_stop: Option<usize>, evaluates: bool) -> Result<()> {
    match early_stop.filter(|_| !evaluates) {
        None => Ok(()),
        Some(_) => Err(Error::Usage {
            what: "there are no scores that could say when to stop early".into(),
            hint: "evaluate on a dev set, or train to the end".into(),
        }),
    }
}

/// What is said where runs before this one were judged by other scores.
const OTHER_SCORES: &str =
    "checkpoints are judged on something else than before: its scores do not count";

/// How scores are judged on the way.
pub(crate) struct Judge<'j> {
    /// The scores of a checkpoint, to which all ranks contribute; none if there is nothing to evaluate
    /// on.
    pub scores: Option<Scores<'j>>,
    /// The one that counts.
    pub metric: &'static str,
    /// Evaluations without a better score after which training ends.
    pub early_stop: Option<usize>,
    /// A number for what they are judged on, if there are any.
    pub of: Option<u32>,
}

/// How the evaluations of a run stand.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Standing {
    /// The best score and its step.
    best: Option<(f32, u64)>,
    /// Evaluations since then.
    since: usize,
}

impl Standing {
    /// Counts one more; whether it is the best. As `f32`: an earlier one comes from TensorBoard's files.
    fn add(&mut self, evaluation: &Evaluation, metric: &str) -> bool {
        let score = evaluation.scores.get(metric).map_or(f32::NAN, |score| *score as f32);
        let is_best = !score.is_nan() && self.best.is_none_or(|(before, _)| score > before);
        match is_best {
            true => *self = Self { best: Some((score, evaluation.step)), since: 0 },
            false => self.since += 1,
        }
        is_best
    }

    /// The best checkpoint.
    fn best_of(&self, folder: &Path) -> Option<PathBuf> {
        self.best.map(|(_, step)| checkpoint_path(folder, step))
    }
}

/// What the evaluations of runs before this one have come to.
struct Before {
    /// What those were judged on that count.
    judged_on: Option<u32>,
    /// How they stand.
    standing: Standing,
    /// Whether the checkpoint to go on from is one of them.
    is_judged: bool,
    /// Whether the last of all was judged on something else.
    is_other: bool,
}

impl Before {
    /// Up to a step. Those count that have the metric and were judged on the same; where nothing is judged now,
    /// on what the last of them was. A checkpoint that is gone is not the best any more.
    fn read(folder: &Path, step: u64, metric: &str, judged_on: Option<u32>) -> Result<Self> {
        let mut all = History::read(folder)?.evaluations;
        all.retain(|of| of.step <= step);
        let is_other = all.last().is_some_and(|last| last.judged_on != judged_on);
        all.retain(|of| of.scores.contains_key(metric));
        let judged_on = judged_on.or_else(|| all.last()?.judged_on);
        all.retain(|of| of.judged_on == judged_on);
        let mut standing = Standing::default();
        for of in &all {
            match is_there(&checkpoint_path(folder, of.step)) {
                true => drop(standing.add(of, metric)),
                false => standing.since += 1,
            }
        }
        let is_judged = all.last().is_some_and(|last| last.step == step);
        Ok(Self { judged_on, standing, is_judged, is_other })
    }
}

/// Trains, evaluates every checkpoint, keeps the best, and writes the report.
pub(crate) fn finetune(
    prepared: &Prepared,
    model: &Model,
    schedule: &Schedule,
    judge: &Judge<'_>,
    watch: &mut dyn FnMut(Event<'_>),
) -> Result<Report> {
    let start = Instant::now();
    let folder = &model.output_dir;
    let is_first = schedule.comm.is_first();
    let mut watch = |event: Event<'_>| {
        if is_first {
            watch(event);
        }
    };
    let mut judged_on = judge.of;
    let (mut standing, mut early_stopped) = (Standing::default(), false);
    // Whether other scores count than those that the report has.
    let mut is_judged_anew = false;
    let steps = schedule.steps(prepared.data.count()).0;
    let trained = train_on(prepared, model, schedule, &mut |event| {
        let (path, step, resumed) = match &event {
            // What is left unevaluated here is made up for when the run goes on.
            Event::Train(train::Event::Saved(path, step, false)) => {
                (path.to_path_buf(), *step, false)
            }
            Event::Train(train::Event::Resuming(path, step, _)) => {
                (path.to_path_buf(), *step, true)
            }
            _ => {
                watch(event);
                return Ok(Go::On);
            }
        };
        watch(event);
        if is_first && (resumed || step == 0) {
            model.complete()?;
        }
        // One that was written only since the run was to stop is none of those that count.
        let mut is_due =
            step == steps || schedule.save_every > 0 && step.is_multiple_of(schedule.save_every);
        if resumed {
            let before = Before::read(folder, step, judge.metric, judge.of)?;
            (judged_on, standing) = (before.judged_on, before.standing);
            if before.is_other && judge.of.is_some() {
                watch(Event::Note(OTHER_SCORES.into()));
                (is_due, is_judged_anew) = (true, true);
            }
            is_due &= !before.is_judged;
        }
        let go = |standing: &Standing| standing.best_of(folder).map_or(Go::On, Go::Keep);
        let Some(scores) = judge.scores.filter(|_| step > 0 && is_due) else {
            early_stopped = judge.is_enough(&standing);
            return Ok(if early_stopped { Go::Stop } else { go(&standing) });
        };
        watch(Event::Evaluating(step));
        let evaluation = match scores(&path) {
            Ok(scores) => Evaluation { step, scores, judged_on },
            Err(Error::Stopped) => return Ok(Go::Stop),
            Err(error) => return Err(error),
        };
        if is_first {
            History::evaluated(folder, &evaluation)?;
        }
        is_judged_anew = true;
        let is_best = standing.add(&evaluation, judge.metric);
        watch(Event::Evaluated(&evaluation, is_best));
        early_stopped = judge.is_enough(&standing);
        Ok(if early_stopped { Go::Stop } else { go(&standing) })
    })?;
    let mut history = History::read(folder)?;
    history.only(judged_on);
    let ran = Ran::new(prepared, trained, Vec::new());
    let best = standing.best_of(folder);
    let report = match is_first {
        true => {
            let is_new = ran.trained.taken > 0 || is_judged_anew;
            ran.report(model, schedule, &history, best.clone(), is_new)?
        }
        false => report_of(model),
    };
    let trained = ran.trained;
    Ok(Report {
        task: prepared.task.clone(),
        best,
        data: prepared.data,
        skipped: prepared.skipped,
        steps: trained.steps,
        taken: trained.taken,
        stopped: trained.stopped,
        early_stopped,
        tokens_per_second: trained.tokens_per_second(),
        checkpoint: trained.checkpoint,
        evaluations: history.evaluations,
        saved_model: None,
        report,
        seconds: start.elapsed().as_secs_f64(),
    })
}

impl Judge<'_> {
    /// Whether there were enough evaluations without a better score.
    fn is_enough(&self, standing: &Standing) -> bool {
        self.early_stop.is_some_and(|patience| standing.since >= patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the original's log says for MRPC: 3668 examples, 3 epochs of 32.
    #[test]
    fn steps_are_the_originals() {
        assert_eq!(Schedule::default().steps(3668), (343, 34));
        let small = Schedule { batch_size: 8, accumulate: 2, epochs: 2.5, ..Schedule::default() };
        assert_eq!(small.steps(100), (15, 1));
    }

    #[test]
    fn the_best_is_remembered_and_what_followed_is_counted() {
        let mut standing = Standing::default();
        let scores = [(1, 0.5), (2, 0.7), (3, 0.7), (4, f64::NAN)];
        let of = |(step, score)| Evaluation {
            step,
            scores: BTreeMap::from([("f1".to_owned(), score)]),
            judged_on: None,
        };
        let bests: Vec<bool> =
            scores.into_iter().map(|score| standing.add(&of(score), "f1")).collect();
        assert_eq!(bests, [true, true, false, false]);
        assert_eq!(standing, Standing { best: Some((0.7, 2)), since: 2 });
    }
}
