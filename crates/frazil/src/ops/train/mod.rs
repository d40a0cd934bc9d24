//! `train`: what every training has in common, whatever is learnt: a graph with its loss, weights to
//! begin with, batches from records, checkpoints, curves.
//!
//! Like TensorFlow's Estimator, a run goes on from the newest checkpoint of its folder, if there is
//! one; unlike it, it then takes the very steps that it would have taken. Of several processes
//! ([`Options::comm`]) each calls this; the first one writes. What is learnt and how well
//! that went is the business of [`finetune`](super::finetune) and of the old programs.

mod history;
mod lock;
mod page;
mod start;
mod stop;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use frazil_bert::build::{self, build};
use frazil_bert::config::Formulas;
use frazil_bert::names::variables::{Expected, Part, expected};
use frazil_bert::packing::Depth;
use frazil_bert::samples::{Kind, Limits, Reader, ReaderOptions};
use frazil_bert::{BertConfig, Head};
use frazil_convert::tf;
use frazil_runtime::{EngineOptions, Parameters};
use frazil_tensor::{DType, TensorStore};
use frazil_tf::checkpoint::{Checkpoint, Options as CheckpointOptions};
use frazil_train::batch::Form;
use frazil_train::checkpoint::{Keeper, newest};
use frazil_train::comm::{Comm, Solo, from_first};
use frazil_train::dropout::Rates;
use frazil_train::run::{self, Go, Plan, Run};
use frazil_train::schedule::{Bert, LossScale, Schedule, Transition};
use frazil_train::{StepGraph, Trainer, initial, loss, optim, trainer};

use super::plan_cache::{Kept, PlanCache};
use crate::source::{Weights, open_weights};
use crate::{Error, Result};

pub(crate) use lock::{Lock, clear, was_here};

pub use frazil_train::run::{Changes, Step};
pub use history::{Evaluation, History, Point, judged_on};
pub use page::page;
pub use stop::Stop;

/// Dropout in front of a classifier; the original has the number in its code.
const POOLED_DROPOUT: f32 = 0.1;

/// Sequences or packs of a step at most: all of them are read before it is taken.
pub(crate) const MOST: u64 = 1 << 24;

/// What is trained, on what, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is learnt.
    pub head: Head,
    /// Classes of a classifier.
    pub labels: usize,
    /// The model.
    pub config: BertConfig,
    /// What the configuration cannot say.
    pub formulas: Formulas,
    /// The weights to begin with; new ones if not given, and for what it lacks.
    pub init_checkpoint: Option<PathBuf>,
    /// Whether what an optimizer remembers begins as the checkpoint has it, too.
    pub init_slots: bool,
    /// Where checkpoints, events and the report go.
    pub output_dir: PathBuf,
    /// Files of samples: TFRecords or binaries, packed or not.
    pub records: Vec<PathBuf>,
    /// How they are read; its `packs` are the packs of a batch, or the samples, where these are not
    /// packed.
    pub reading: ReaderOptions,
    /// What becomes of batches before they are used.
    pub form: Form,
    /// Batches of a step.
    pub accumulate: usize,
    /// How weights are changed.
    pub optimizer: optim::Options,
    /// By how much.
    pub schedule: Schedule,
    /// Another β₁ by the step.
    pub beta1: Option<Transition>,
    /// The factor on the loss.
    pub loss_scale: LossScale,
    /// All steps.
    pub steps: u64,
    /// Steps between two checkpoints.
    pub save_every: u64,
    /// Checkpoints that are kept, 0 for all.
    pub keep: usize,
    /// Of the order of samples, of dropout, and of new weights.
    pub seed: u64,
    /// Less memory for more time.
    pub recompute: bool,
    /// Threads; `FRAZIL_THREADS`, or one for each core, if none.
    pub threads: Option<usize>,
    /// Where what a step computes is stored for later runs; nowhere if not given.
    pub plans: Option<PathBuf>,
    /// Who trains together: each has its part of every batch.
    pub comm: Arc<dyn Comm>,
    /// What can end the run before its time.
    pub stop: Stop,
}

impl Options {
    /// As google-research/bert trains: its optimizer and schedule, batches of 32 samples in an order by
    /// chance, each alone. What is trained on is still to be named.
    pub fn bert(head: Head, config: BertConfig, schedule: Bert, output_dir: PathBuf) -> Self {
        Self {
            head,
            labels: 2,
            config,
            formulas: Formulas::default(),
            init_checkpoint: None,
            init_slots: false,
            output_dir,
            records: Vec::new(),
            reading: ReaderOptions {
                packs: 32,
                shuffle: Some(12345),
                depth: Depth::AtMost(1),
                repeat: true,
                ..ReaderOptions::default()
            },
            form: Form::default(),
            accumulate: 1,
            optimizer: optim::Options::bert(),
            steps: schedule.steps,
            schedule: Schedule::Bert(schedule),
            beta1: None,
            loss_scale: LossScale::Static(1.0),
            save_every: 1000,
            keep: 5,
            seed: 12345,
            recompute: false,
            threads: None,
            plans: None,
            comm: Arc::new(Solo),
            stop: Stop::default(),
        }
    }
}

/// What happens on the way.
#[derive(Debug)]
pub enum Event<'a> {
    /// What a step computes is to be in this file for later runs; what became of that.
    Planned(&'a Path, &'a Kept),
    /// Weights are there: which ones came from the checkpoint.
    Initialized(&'a initial::Report),
    /// The run goes on from this checkpoint, after so many steps, with so much changed.
    Resuming(&'a Path, u64, &'a Changes),
    /// The first step is about to be taken; so many sequences were trained on before. To stop here is to
    /// leave everything as it is.
    Begin(u64),
    /// A step was taken, of so many, and these are the weights now.
    Step(&'a Step, u64, &'a Parameters),
    /// A checkpoint was written, after so many steps; whether because the run is to stop.
    Saved(&'a Path, u64, bool),
    /// The run has come to no number: what it came to before that. What is wanted now makes no difference.
    NoNumber(&'a Trained),
}

/// What a run comes to.
#[derive(Clone, Debug, Default)]
pub struct Trained {
    /// The last checkpoint.
    pub checkpoint: PathBuf,
    /// Steps altogether.
    pub steps: u64,
    /// Steps of this run.
    pub taken: u64,
    /// Whether it was told to stop before its time.
    pub stopped: bool,
    /// Pieces that this run has seen.
    pub tokens: u64,
    /// The seconds of its steps.
    pub seconds: f64,
}

impl Trained {
    /// Counts a step.
    fn add(&mut self, step: &Step) {
        let changed = u64::from(step.report.changed);
        self.steps = step.report.step + changed;
        self.taken += changed;
        self.tokens += step.tokens as u64;
        self.seconds += step.seconds;
    }

    /// Pieces a second.
    pub fn tokens_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.tokens as f64 / self.seconds } else { 0.0 }
    }
}

/// Trains until all steps are taken, or `watch` has enough.
pub fn train(options: &Options, watch: &mut dyn FnMut(Event<'_>) -> Result<Go>) -> Result<Trained> {
    train_in(None, options, watch)
}

/// Takes the folder of a run for the first of all ranks.
pub(crate) fn hold(folder: &Path, comm: &dyn Comm) -> Result<Option<Lock>> {
    comm.is_first().then(|| Lock::take(folder)).transpose()
}

/// The same in a folder that may be held already.
pub(crate) fn train_in(
    lock: Option<&Lock>,
    options: &Options,
    watch: &mut dyn FnMut(Event<'_>) -> Result<Go>,
) -> Result<Trained> {
    check(options)?;
    // What is missing or does not fit is said before anything is planned or written.
    let weights = if goes_on(options)? { None } else { initial_weights(options)? };
    let mut reader = open_reader(options)?;
    let how = trainer_options(options);
    let mut trainer = Trainer::of(step_graph(options, &how, watch)?, how)?;
    let whole = graph(options, true)?;
    trainer.carry(whole.clone())?;
    let comm = &*options.comm;
    let _lock = if lock.is_none() { hold(&options.output_dir, comm)? } else { None };
    let before = newest(&options.output_dir)?;
    same_everywhere(comm, before.as_deref(), &reader)?;
    if before.is_none() {
        let sizes = sizes(options);
        let weights = weights.as_ref().map(|weights| start::Start::new(weights, sizes));
        let weights = weights.as_ref().map(|weights| weights as &dyn TensorStore);
        let (deviation, seed) = (options.config.initializer_range, options.seed);
        let mut report = initial::load(trainer.parameters_mut(), weights, deviation, seed)?;
        if let Some(weights) = weights.filter(|_| options.init_slots) {
            report.slots = Some(trainer.load_slots(weights)?);
        }
        watch(Event::Initialized(&report))?;
    }
    let meta = tf::meta_graph(&whole, &trainer.slots())?;
    let mut keeper = Keeper::open(&options.output_dir, options.keep, meta)?;
    let plan = Plan {
        steps: options.steps,
        save_every: options.save_every,
        accumulate: cut(options)?.batches,
    };
    let mut run = Run {
        trainer: &mut trainer,
        reader: &mut reader,
        head: options.head,
        keeper: &mut keeper,
        plan,
        form: options.form,
        seen: 0,
    };
    if let Some(path) = before {
        let state = goes_on_from(&path, Checkpoint::open(&path, CheckpointOptions::default()))?;
        let changes = goes_on_from(&path, run.resume(&state))?;
        let steps = run.trainer.steps();
        match watch(Event::Resuming(&path, steps, &changes))?.agreed(comm)? {
            Go::On | Go::Save => {}
            Go::Keep(best) => run.keeper.keep_best(best),
            Go::Stop => {
                let stopped = is_stopped(options)?;
                let (taken, tokens, seconds) = (0, 0, 0.0);
                return Ok(Trained { checkpoint: path, steps, taken, stopped, tokens, seconds });
            }
        }
    }
    let from = run.trainer.steps();
    let mut trained = Trained { steps: from, ..Trained::default() };
    let mut writer = None;
    if comm.is_first() {
        run.keeper.remove_parts();
        run.keeper.write_graph()?;
        writer = Some(history::Writer::create(&options.output_dir, from, options.steps)?);
    }
    let _listens = options.stop.listen();
    let went = run.go(&mut |event| match event {
        run::Event::Begin(seen) => watch(Event::Begin(seen)),
        run::Event::Step(step, weights) => {
            trained.add(step);
            writer.as_mut().map_or(Ok(()), |writer| writer.step(step))?;
            let go = watch(Event::Step(step, options.steps, weights))?;
            Ok(if options.stop.is_asked() { Go::Stop } else { go })
        }
        run::Event::Saved(path, step, stopping) => {
            writer.as_mut().map_or(Ok(()), history::Writer::flush)?;
            watch(Event::Saved(path, step, stopping))
        }
    });
    // The curves of a run that cannot go on show why.
    let finished = writer.as_mut().map_or(Ok(()), history::Writer::finish);
    if let Err(Error::Train(error)) = &went
        && let frazil_train::Error::NoNumber { path, .. } = &**error
    {
        trained.checkpoint.clone_from(path);
        watch(Event::NoNumber(&trained))?;
    }
    trained.checkpoint = went?;
    finished?;
    trained.stopped = is_stopped(options)?;
    Ok(trained)
}

/// The weights that a run begins with, if not with new ones.
pub(crate) fn initial_weights(options: &Options) -> Result<Option<Weights>> {
    let Some(path) = &options.init_checkpoint else { return Ok(None) };
    let weights = open_weights(path, &Default::default())?;
    let sizes = sizes(options);
    if let Some(sizes) = sizes {
        start::check(&weights, path, sizes)?;
    }
    let start = start::Start::new(&weights, sizes);
    fits(&start, path, &options.config, (options.head, options.labels))?;
    Ok(Some(weights))
}

/// Refuses weights of other shapes than the model's. What is missing begins anew.
pub(crate) fn fits(
    weights: &dyn TensorStore,
    path: &Path,
    config: &BertConfig,
    (head, labels): (Head, usize),
) -> Result<()> {
    for Expected { name, shape, part, .. } in expected(config, head, labels) {
        let Some(found) = weights.info(&name).filter(|found| found.shape != shape) else {
            continue;
        };
        let hint = match part {
            Part::Classifier => {
                "it has learnt another task: give the checkpoint that was pre-trained"
            }
            _ => "give the bert_config.json that it was made with",
        };
        return Err(Error::Usage {
            what: format!(
                "`{}` is of another model: `{name}` is {} {}, not {} {shape}",
                path.display(),
                found.dtype,
                found.shape,
                DType::F32
            ),
            hint: hint.into(),
        });
    }
    Ok(())
}

/// Rows of tables, where a checkpoint may have others.
fn sizes(options: &Options) -> Option<start::Sizes> {
    let positions = options.config.max_position_embeddings;
    options.form.vocabulary.map(|pieces| start::Sizes { pieces, positions })
}

/// Opens the samples; a rank reads its part of them.
fn open_reader(options: &Options) -> Result<Reader> {
    let comm = &*options.comm;
    let reading = ReaderOptions {
        repeat: true,
        packs: cut(options)?.packs / comm.size(),
        part: (comm.rank(), comm.size()),
        limits: limits(options),
        ..options.reading.clone()
    };
    let reader = Reader::open(&options.records, reading)?;
    reader.expect(kind(options.head))?;
    Ok(reader)
}

/// Whether there is a run to go on with, of this model.
fn goes_on(options: &Options) -> Result<bool> {
    let Options { output_dir, config, head, labels, seed, .. } = options;
    is_of_run(output_dir, config, (*head, *labels), *seed)
}

/// Whether there is all that a run needs, which goes on in its folder or begins anew; nothing is planned or
/// written for that.
pub(crate) fn is_ready(options: &Options, anew: bool) -> Result<()> {
    check(options)?;
    if anew || !goes_on(options)? {
        initial_weights(options)?;
    }
    open_reader(options).map(drop)
}

/// Whether the first rank was told to stop.
fn is_stopped(options: &Options) -> Result<bool> {
    let own = [u8::from(options.stop.is_asked())];
    Ok(from_first(&*options.comm, &own)? == [1])
}

/// What samples must be for, so that a head can be learnt from them.
fn kind(head: Head) -> Kind {
    match head {
        Head::Classifier => Kind::Classifier,
        Head::Squad => Kind::Squad,
        Head::Pretraining | Head::Mlm | Head::Nsp | Head::Encoder => Kind::Pretraining,
    }
}

/// What samples may have. Where a form says how many pieces the model knows, others become one of them.
fn limits(options: &Options) -> Limits {
    let limits = Limits::of(&options.config, options.labels);
    Limits { vocabulary: limits.vocabulary.filter(|_| options.form.vocabulary.is_none()), ..limits }
}

/// How a step is cut into what is computed at once.
struct Cut {
    /// Packs of all ranks together.
    packs: usize,
    /// How often.
    batches: usize,
}

/// Where ranks cannot share a batch, they share several at once: each computes about as many packs at once as
/// one process would.
fn cut(options: &Options) -> Result<Cut> {
    let (packs, batches, ranks) = (options.reading.packs, options.accumulate, options.comm.size());
    let together = (1..=ranks).find(|times| (packs * times).is_multiple_of(ranks));
    match together.filter(|times| batches.is_multiple_of(*times)) {
        Some(times) => Ok(Cut { packs: packs * times, batches: batches / times }),
        None => Err(Error::Usage {
            what: format!("a step of {packs} × {batches} has no {ranks} equal parts"),
            hint: "give a batch size that the number of processes divides".into(),
        }),
    }
}

/// Refuses a step of more than can be meant.
pub(crate) fn check_size(packs: usize, accumulate: usize) -> Result<()> {
    let together = (packs as u64).checked_mul(accumulate as u64);
    if together.is_some_and(|together| together <= MOST) {
        return Ok(());
    }
    Err(Error::Usage {
        what: format!("a step of {packs} × {accumulate} is too large"),
        hint: format!("give a batch, times what is accumulated, of {MOST} or less"),
    })
}

/// Refuses a run of no steps.
pub(crate) fn check_steps(steps: u64) -> Result<()> {
    match steps {
        0 => Err(Error::Usage {
            what: "there is not even one step to take".into(),
            hint: "give more data, more epochs or a smaller batch".into(),
        }),
        _ => Ok(()),
    }
}

/// What can be told before anything is opened.
fn check(options: &Options) -> Result<()> {
    let wrong = |what: String, hint: &str| Err(Error::Usage { what, hint: hint.into() });
    if options.reading.packs == 0 {
        return wrong("a batch size of 0 leaves nothing".into(), "give 1 or more");
    }
    check_size(options.reading.packs, options.accumulate)?;
    if options.accumulate == 0 {
        return wrong("gradients of 0 batches make no step".into(), "accumulate 1 batch or more");
    }
    cut(options)?;
    check_steps(options.steps)?;
    let rate = options.schedule.largest();
    if !((rate as f32).is_finite() && rate >= 0.0) {
        let what = "a learning rate is below 0, too large, or no number".into();
        return wrong(what, "give a number such as 2e-5");
    }
    Ok(options.optimizer.check()?)
}

fn trainer_options(options: &Options) -> trainer::Options {
    let pooled = if options.head == Head::Classifier { POOLED_DROPOUT } else { 0.0 };
    trainer::Options {
        dropout: Some(Rates {
            hidden: options.config.hidden_dropout_prob as f32,
            attention: options.config.attention_probs_dropout_prob as f32,
            pooled,
        }),
        optimizer: options.optimizer.clone(),
        schedule: options.schedule.clone(),
        beta1: options.beta1,
        loss_scale: options.loss_scale,
        seed: options.seed,
        packed: options.form.padding.is_none(),
        recompute: options.recompute,
        norm_of_rows: true,
        engine: EngineOptions { threads: options.threads, ..EngineOptions::default() },
        comm: Arc::clone(&options.comm),
    }
}

/// What a step computes: made, or stored by an earlier run.
fn step_graph(
    options: &Options,
    how: &trainer::Options,
    watch: &mut dyn FnMut(Event<'_>) -> Result<Go>,
) -> Result<StepGraph> {
    let make = || Ok(StepGraph::new(graph(options, false)?, how)?);
    let Some(folder) = &options.plans else { return make() };
    let cache = PlanCache::new(folder, options.comm.is_first());
    let Options { head, labels, config, formulas, .. } = options;
    let trainer::Options { dropout, packed, recompute, norm_of_rows, .. } = how;
    let model = (head, labels, config, formulas);
    let parts = (model, dropout, packed, recompute, norm_of_rows);
    let cached = cache.plan("step", &parts, make)?;
    watch(Event::Planned(&cached.path, &cached.kept))?;
    Ok(cached.plan)
}

/// Whether a folder has a checkpoint to go on from; one of another model or of another seed's run is refused.
pub(crate) fn is_of_run(
    folder: &Path,
    config: &BertConfig,
    (head, labels): (Head, usize),
    seed: u64,
) -> Result<bool> {
    let Some(path) = newest(folder)? else { return Ok(false) };
    let there = goes_on_from(&path, Checkpoint::open(&path, CheckpointOptions::default()))?;
    for weight in expected(config, head, labels).into_iter().filter(|weight| weight.needed) {
        let found = there.info(&weight.name).map(|info| &info.shape);
        if found == Some(&weight.shape) {
            continue;
        }
        let found = found.map_or("none".to_owned(), |shape| format!("one of {shape}"));
        return Err(Error::Usage {
            what: format!(
                "`{}` is of another model: `{}` is to be {}, and it has {found}",
                path.display(),
                weight.name,
                weight.shape
            ),
            hint: "choose another folder to begin anew".into(),
        });
    }
    same_seed(&there, seed, &path)?;
    Ok(true)
}

/// What is read of the checkpoint that a run goes on from.
fn goes_on_from<T, E: Into<frazil_train::Error>>(
    path: &Path,
    read: std::result::Result<T, E>,
) -> Result<T> {
    let failed = |source: E| {
        let (path, source) = (path.to_path_buf(), Box::new(source.into()));
        frazil_train::Error::NotResumed { path, source }
    };
    Ok(read.map_err(failed)?)
}

/// Makes sure that a run goes on by the chances that it began with: its place among the samples is one of
/// their order.
fn same_seed(there: &Checkpoint, asked: u64, checkpoint: &Path) -> Result<()> {
    let began = goes_on_from(checkpoint, trainer::stored_seed(there))?;
    if began.is_none_or(|began| began == asked) {
        return Ok(());
    }
    let (path, began) = (checkpoint.display(), began.unwrap_or_default());
    Err(Error::Usage {
        what: format!("`{path}` is of a run with the seed {began}, and this one has {asked}"),
        hint: "give that seed to go on, or another folder to begin anew".into(),
    })
}

/// Makes sure that all ranks begin with the same and learn from the same, before one of them writes.
fn same_everywhere(comm: &dyn Comm, newest: Option<&Path>, reader: &Reader) -> Result<()> {
    let other = |own: &str| -> Result<Option<(String, usize, String)>> {
        let all = comm.all_gather(own.as_bytes())?;
        let text = |said: &Vec<u8>| String::from_utf8_lossy(said).into_owned();
        let other = all.iter().position(|said| *said != all[0]);
        Ok(other.map(|rank| (text(&all[0]), rank, text(&all[rank]))))
    };
    let own = newest.map_or("no checkpoint".to_owned(), |path| format!("`{}`", path.display()));
    if let Some((first, rank, found)) = other(&own)? {
        return Err(Error::Usage {
            what: format!("rank 0 finds {first} in the folder, and rank {rank} {found}"),
            hint: "the folder has to be one that all processes see".into(),
        });
    }
    match other(&reader.identity().to_string())? {
        None => Ok(()),
        Some((_, rank, _)) => Err(Error::Usage {
            what: format!("rank {rank} would learn from other samples than rank 0"),
            hint: "all processes have to see the same files, and be started with the same flags"
                .into(),
        }),
    }
}

/// The original's graph with its loss; `whole`: with all that it gives, as it stands in files.
fn graph(options: &Options, whole: bool) -> Result<frazil_graph::Graph> {
    let of_head = build::Options {
        labels: options.labels,
        formulas: options.formulas,
        whole,
        ..build::Options::default()
    };
    let mut graph = build(&options.config, options.head, &of_head)?;
    loss::attach(&mut graph, options.head, loss::Options { padding: whole, outputs: whole })?;
    Ok(graph)
}
