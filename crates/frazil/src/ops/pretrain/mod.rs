//! `pretrain`: a BERT learns from plain text, masked pieces and next sentences, packed or not.
//!
//! [`train`] does the training; here is what pre-training adds: evaluations by the
//! number of sequences that were seen, a target to stop at, and the report. `run_pretraining` and
//! [`mlperf`](super::mlperf) are two ways to say the options.

pub mod evaluate;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use frazil_train::batch::Basis;
use frazil_train::comm::Comm;
use frazil_train::run::Go;
use frazil_train::schedule::Schedule;
use serde::Serialize;

use super::train::{self, Evaluation, History, Trained};
use crate::{Error, Result};
pub use evaluate::{Evaluator, Scores};

/// What is trained, on what, how, and how well it goes.
#[derive(Clone, Debug)]
pub struct Options {
    /// The training itself: model, optimizer, schedules, accumulation, data, seed.
    pub train: train::Options,
    /// What it is evaluated on; nothing if not given.
    pub evaluation: Option<Judgement>,
    /// The training ends when so many sequences were seen; evaluations may end it before.
    pub most_sequences: Option<u64>,
}

/// When and on what a training is evaluated.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// The data; model, threads and formulas are those of the training.
    pub on: evaluate::Options,
    /// After so many sequences each, in ascending order: the first step that goes beyond one of them
    /// is followed by an evaluation. After the last one the training ends.
    pub triggers: Vec<u64>,
    /// The accuracy of masked pieces at which the training ends.
    pub target: Option<f64>,
}

/// What happens on the way.
#[derive(Debug)]
pub enum Event<'a> {
    /// Something of the training itself.
    Train(train::Event<'a>),
    /// The steps between two evaluations begin: how many such blocks there were before.
    BlockStart(u64),
    /// They are done.
    BlockStop(u64),
    /// The weights were evaluated.
    Evaluated(&'a Evaluated),
}

/// How well it goes, at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluated {
    /// Steps that were taken.
    pub step: u64,
    /// Sequences that were trained on.
    pub sequences: u64,
    /// The trigger that it was for.
    pub trigger: u64,
    /// Of masked pieces.
    pub accuracy: f64,
    /// Sequences that it was evaluated on.
    pub samples: u64,
    /// Whether that is enough.
    pub reached: bool,
}

/// What came out, for `--json`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What the training itself came to.
    #[serde(skip)]
    pub trained: Trained,
    /// The last checkpoint.
    pub checkpoint: PathBuf,
    /// Steps altogether.
    pub steps: u64,
    /// Steps of this run; none where a run before this one had come to the end.
    pub taken: u64,
    /// Whether it was told to stop before its time.
    pub stopped: bool,
    /// Sequences altogether.
    pub sequences: u64,
    /// Pieces a second, without padding.
    pub tokens_per_second: f64,
    /// The last loss: a mean of the last few steps.
    pub loss: Option<f64>,
    /// Evaluations of this run.
    pub evaluations: Vec<Evaluated>,
    /// Whether the target was reached, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reached: Option<bool>,
    /// Curves and settings as a page.
    pub report: PathBuf,
    /// Seconds, evaluations included.
    pub seconds: f64,
}

/// Trains until all steps are taken, the target is reached, or `watch` has enough. Where a run before this
/// one has come to its end, nothing is left to do.
pub fn pretrain(
    options: &Options,
    watch: &mut dyn FnMut(Event<'_>) -> Result<Go>,
) -> Result<Report> {
    let start = Instant::now();
    let comm = &options.train.comm;
    // What stands in the way of training is said before an evaluation is planned.
    if options.evaluation.is_some() {
        train::is_ready(&options.train, false)?;
    }
    let judge = |of| Judge::new(of, Arc::clone(comm));
    let mut judge = options.evaluation.as_ref().map(judge).transpose()?;
    let folder = &options.train.output_dir;
    // The first of several ranks speaks for all.
    let mut watch = |event: Event<'_>| match comm.is_first() {
        true => watch(event),
        false => Ok(Go::On),
    };
    let is_enough = |seen: u64| options.most_sequences.is_some_and(|most| seen >= most);
    let (mut sequences, mut begins_at) = (0, 0);
    // The block that is under way.
    let mut block = None;
    let mut trained = train::train(&options.train, &mut |event| {
        let (step, of, weights) = match event {
            train::Event::Step(step, of, weights) => (step, of, weights),
            train::Event::Resuming(_, step, _) => {
                begins_at = step;
                return watch(Event::Train(event));
            }
            train::Event::Begin(seen) => {
                sequences = seen;
                if let Some(judge) = &mut judge {
                    // A run that goes on begins between two triggers.
                    judge.pass(seen);
                    judge.remember(&History::read(folder)?, begins_at);
                    if judge.is_over() {
                        return Ok(Go::Stop);
                    }
                }
                if begins_at > 0 && is_enough(seen) {
                    return Ok(Go::Stop);
                }
                let go = watch(Event::Train(event))?;
                let first = judge.as_ref().map_or(0, |judge| judge.next as u64);
                watch(Event::BlockStart(first))?;
                block = Some(first);
                return Ok(go);
            }
            train::Event::NoNumber(trained) => {
                if comm.is_first() {
                    // Where the curves cannot be written, what they would show is still to be told.
                    let _ = write_report(options, trained, &[]);
                }
                return watch(Event::Train(event));
            }
            event => return watch(Event::Train(event)),
        };
        sequences = step.seen;
        let go = match watch(Event::Train(train::Event::Step(step, of, weights)))? {
            _ if is_enough(step.seen) => Go::Stop,
            go => go,
        };
        let Some(judge) = judge.as_mut().filter(|judge| judge.is_due(step.seen)) else {
            return Ok(go);
        };
        if let Some(block) = block.take() {
            watch(Event::BlockStop(block))?;
        }
        let (evaluated, scores) = judge.evaluate(step, weights)?;
        let evaluation =
            Evaluation { step: evaluated.step, scores: scores.values, judged_on: None };
        if comm.is_first() {
            History::evaluated(folder, &evaluation)?;
        }
        judge.reached |= evaluated.reached;
        let asked = watch(Event::Evaluated(&evaluated))?;
        judge.all.push(evaluated);
        if judge.is_over() {
            return Ok(Go::Stop);
        }
        watch(Event::BlockStart(judge.next as u64))?;
        block = Some(judge.next as u64);
        Ok(match (go, asked) {
            (Go::Stop, _) | (_, Go::Stop) => Go::Stop,
            // What a run has come to is worth keeping.
            _ => Go::Save,
        })
    })?;
    // Whoever was told to stop when all was done has done all.
    trained.stopped &= trained.steps < options.train.steps
        && !is_enough(sequences)
        && judge.as_ref().is_none_or(|judge| !judge.is_over());
    if let Some(block) = block.filter(|_| !trained.stopped) {
        watch(Event::BlockStop(block))?;
    }
    let history = History::read(folder)?;
    if comm.is_first() {
        write_report(options, &trained, &history.evaluations)?;
    }
    let (reached, evaluations) = match judge {
        Some(judge) => (judge.of.target.map(|_| judge.reached), judge.all),
        None => (None, Vec::new()),
    };
    Ok(Report {
        steps: trained.steps,
        taken: trained.taken,
        stopped: trained.stopped,
        sequences,
        tokens_per_second: trained.tokens_per_second(),
        loss: history.curve("loss").last().map(|(_, loss)| loss),
        reached,
        checkpoint: trained.checkpoint.clone(),
        trained,
        evaluations,
        report: report_of(options),
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// Writes `report.html` with what the folder's events say, scores included. Where nothing was trained, and
/// nothing evaluated but what was before, that of the run before stays.
pub fn write_report(options: &Options, trained: &Trained, before: &[Evaluation]) -> Result<()> {
    let history = History::read(&options.train.output_dir)?;
    let report = report_of(options);
    if trained.taken > 0 || history.evaluations != before || !report.is_file() {
        train::page("Pre-training", &settings(options), trained, &history).write(&report)?;
    }
    Ok(())
}

fn report_of(options: &Options) -> PathBuf {
    options.train.output_dir.join("report.html")
}

/// The score that counts.
const ACCURACY: &str = "masked_lm_accuracy";

/// Who evaluates.
struct Judge<'o> {
    of: &'o Judgement,
    evaluator: Evaluator,
    /// The next trigger.
    next: usize,
    /// Whether the accuracy was once as wanted.
    reached: bool,
    all: Vec<Evaluated>,
}

impl<'o> Judge<'o> {
    fn new(of: &'o Judgement, comm: Arc<dyn Comm>) -> Result<Self> {
        if !of.triggers.is_sorted() || of.triggers.is_empty() {
            return Err(Error::Usage {
                what: format!("evaluations after {:?} sequences are not in order", of.triggers),
                hint: "give numbers of sequences that grow".into(),
            });
        }
        // What is wrong with the files is said before hours are spent.
        frazil_bert::samples::Reader::open(&of.on.records, of.on.reading.clone())?;
        let evaluator = Evaluator::new(of.on.clone(), comm)?;
        Ok(Self { of, evaluator, next: 0, reached: false, all: Vec::new() })
    }

    /// Passes over the triggers that a run before this one has dealt with.
    fn pass(&mut self, seen: u64) {
        self.next = self.of.triggers.iter().take_while(|trigger| seen > **trigger).count();
    }

    /// Takes over what evaluations of a run before this one have found, up to the step that it goes on
    /// from. They were stored as `f32`.
    fn remember(&mut self, history: &History, step: u64) {
        let before = history.evaluations.iter().filter(|of| of.step <= step);
        let mut found = before.flat_map(|of| of.scores.get(ACCURACY));
        let target = self.of.target.map(|target| target as f32);
        self.reached = found.any(|found| target.is_some_and(|target| *found as f32 >= target));
    }

    /// Whether nothing is left to wait for.
    fn is_over(&self) -> bool {
        self.reached || self.next >= self.of.triggers.len()
    }

    fn is_due(&self, seen: u64) -> bool {
        self.of.triggers.get(self.next).is_some_and(|trigger| seen > *trigger)
    }

    fn evaluate(
        &mut self,
        step: &train::Step,
        weights: &frazil_runtime::Parameters,
    ) -> Result<(Evaluated, Scores)> {
        let trigger = self.of.triggers[self.next];
        // A large batch may go beyond several at once.
        self.pass(step.seen);
        let scores = self.evaluator.evaluate(weights)?;
        let accuracy = scores.values.get(ACCURACY).copied().unwrap_or(f64::NAN);
        let evaluated = Evaluated {
            step: step.report.step + 1,
            sequences: step.seen,
            trigger,
            accuracy,
            samples: scores.sequences,
            reached: self.of.target.is_some_and(|target| accuracy >= target),
        };
        Ok((evaluated, scores))
    }
}

/// What stands on the page.
fn settings(options: &Options) -> Vec<(&'static str, String)> {
    let train = &options.train;
    let config = &train.config;
    let rate = match &train.schedule {
        Schedule::Bert(bert) => {
            format!(
                "{} after {} steps of warm-up, 0 at step {}",
                bert.rate, bert.warmup, bert.steps
            )
        }
        Schedule::Linear(linear) => {
            let (rate, last) = (linear.rate, linear.warmup.saturating_add(linear.steps));
            format!("{rate} after {} steps of warm-up, falling until step {last}", linear.warmup)
        }
        Schedule::Constant(rate) => rate.to_string(),
        other => format!("by a table, {} at most", other.largest()),
    };
    let mut list = vec![
        (
            "model",
            format!(
                "{} layers, hidden size {}, {} heads, {} pieces",
                config.num_hidden_layers,
                config.hidden_size,
                config.num_attention_heads,
                config.vocab_size
            ),
        ),
        ("files", train.records.len().to_string()),
        ("packs of a batch", train.reading.packs.to_string()),
        ("batches of a step", train.accumulate.to_string()),
        ("optimizer", train.optimizer.method.name().to_owned()),
        ("learning rate", rate),
        ("seed", train.seed.to_string()),
        ("begins with", shown(train.init_checkpoint.as_deref())),
    ];
    if train.form.basis == Basis::Sequence {
        list.push(("each sequence counts", "the same".to_owned()));
    }
    if let Some(target) = options.evaluation.as_ref().and_then(|judgement| judgement.target) {
        list.push(("target", format!("accuracy of masked pieces {target}")));
    }
    list
}

fn shown(path: Option<&Path>) -> String {
    path.map_or("new weights".into(), |path| path.display().to_string())
}
