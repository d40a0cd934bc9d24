//! A training from its first step to its last: batches in, checkpoints out, and the same again when
//! it was interrupted.
//!
//! What a run needs to go on lies in its newest checkpoint: the trainer's state and where the reader
//! was. A run that is killed and started again takes the steps that it would have taken; where it is to
//! learn from other samples, or more of them at once, [`Changes`] say so.
//!
//! With several ranks, each has a run of its own, with a reader of its part of every batch; the first
//! one writes, and its wishes count.

use std::path::{Path, PathBuf};
use std::time::Instant;

use frazil_bert::Head;
use frazil_bert::samples::{Position, Reader};
use frazil_runtime::Parameters;
use frazil_tensor::{Tensor, TensorStore};

use crate::checkpoint::{self, Keeper};
use crate::comm::{Comm, all_numbers, from_first};
use crate::trainer::{self, Trainer};
use crate::{Error, Result, batch};

/// How long, and how often something is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The step to end at, counted from the very first.
    pub steps: u64,
    /// Steps between two checkpoints; there is one at the beginning and one at the end, too.
    pub save_every: u64,
    /// Batches whose gradients are added up for one step: 1 or more.
    pub accumulate: usize,
}

/// A step that was taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Loss, rate and norm.
    pub report: trainer::Report,
    /// Sequences of its batches.
    pub sequences: usize,
    /// Sequences of all steps so far.
    pub seen: u64,
    /// Pieces of its batches.
    pub tokens: usize,
    /// What it took, reading included.
    pub seconds: f64,
}

/// What happens on the way.
#[derive(Debug)]
pub enum Event<'a> {
    /// The first step is about to be taken; so many sequences were trained on before. To stop here is to
    /// leave everything as it is.
    Begin(u64),
    /// A step was taken, and these are the weights now.
    Step(&'a Step, &'a Parameters),
    /// A checkpoint was written, after so many steps; whether because the run is to stop.
    Saved(&'a Path, u64, bool),
}

/// What whoever watches wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Go {
    /// More.
    #[default]
    On,
    /// More; this checkpoint is the best so far, and stays.
    Keep(PathBuf),
    /// More, after a checkpoint.
    Save,
    /// No more: a checkpoint is written, if there is none of this step, and the run ends.
    Stop,
}

impl Go {
    /// What the first rank wants: all of them go on, or none.
    pub fn agreed(self, comm: &dyn Comm) -> Result<Self> {
        if comm.size() == 1 {
            return Ok(self);
        }
        let own: &[u8] = match self {
            Go::Stop => b"stop",
            Go::Save => b"save",
            Go::On | Go::Keep(_) => b"on",
        };
        Ok(match (&from_first(comm, own)?[..], self) {
            (b"stop", _) => Go::Stop,
            (b"save", _) => Go::Save,
            (_, Go::Stop | Go::Save) => Go::On,
            (_, own) => own,
        })
    }
}

/// All that a run consists of.
pub struct Run<'r> {
    /// What is trained.
    pub trainer: &'r mut Trainer,
    /// On what.
    pub reader: &'r mut Reader,
    /// What for.
    pub head: Head,
    /// Where checkpoints go.
    pub keeper: &'r mut Keeper,
    /// How long.
    pub plan: Plan,
    /// What becomes of batches before they are used.
    pub form: batch::Form,
    /// Sequences that were trained on so far.
    pub seen: u64,
}

/// The name that the reader's place is stored under: epoch, sample and pack; and the sequences that
/// were trained on.
const POSITION: &str = "frazil/position";
/// The name of what that place belongs to: the reader's identity, the packs of a step, and [`Rates`].
const SAMPLES: &str = "frazil/samples";
/// The name of a number for how weights are changed.
const OPTIMIZER: &str = "frazil/optimizer";

/// What is not as it was for the run that a checkpoint is of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Changes {
    /// What is trained on, or its order: it is read from its beginning.
    pub samples: bool,
    /// Packs of a step: how many there were, and how many there are.
    pub packs: Option<(u64, u64)>,
    /// The full learning rate: what it was, and what it is.
    pub rate: Option<(f32, f32)>,
    /// Else that of the next step, by the warm-up or the length: what it was to be, and what it is.
    pub next_rate: Option<(f32, f32)>,
    /// How weights are changed: another optimizer that remembers the same, or other numbers of it.
    pub optimizer: bool,
}

/// Learning rates of a run.
#[derive(Clone, Copy)]
struct Rates {
    /// The largest.
    full: f32,
    /// That of the next step; no number if there is none.
    next: f32,
}

impl Rates {
    /// As one number of a checkpoint.
    fn to_bits(self) -> u64 {
        u64::from(self.full.to_bits()) << 32 | u64::from(self.next.to_bits())
    }

    fn from_bits(bits: u64) -> Self {
        let [full, next] = [bits >> 32, bits].map(|half| f32::from_bits(half as u32));
        Self { full, next }
    }
}

impl Run<'_> {
    /// Takes the steps that are missing, and gives the last checkpoint.
    pub fn go<E: From<Error>>(
        &mut self,
        watch: &mut dyn FnMut(Event<'_>) -> std::result::Result<Go, E>,
    ) -> std::result::Result<PathBuf, E> {
        let before = self.keeper.newest().filter(|_| self.trainer.steps() > 0);
        let before = before.map(Path::to_path_buf);
        let mut saved = match &before {
            Some(before) => before.clone(),
            None => self.save(watch, false)?.0,
        };
        let mut saved_at = self.trainer.steps();
        if watch(Event::Begin(self.seen))?.agreed(self.trainer.comm())? == Go::Stop {
            return Ok(saved);
        }
        while self.trainer.steps() < self.plan.steps {
            let step = match self.step() {
                Err(why @ Error::NotFinite { .. }) => {
                    let is_first_from_it = saved_at == self.trainer.steps();
                    // What was there before this run may be all right, and the settings not.
                    if is_first_from_it && before.as_ref() == Some(&saved) {
                        return Err(Error::NoStepFrom { path: saved, source: why.into() }.into());
                    }
                    if is_first_from_it && self.trainer.comm().is_first() {
                        self.keeper.take_back(&saved)?;
                    }
                    return Err(self.no_number(why, saved).into());
                }
                step => step?,
            };
            if self.trainer.comm().is_first() {
                self.keeper.prune()?;
            }
            let go = watch(Event::Step(&step, self.trainer.parameters()))?;
            let go = go.agreed(self.trainer.comm())?;
            let at = self.trainer.steps();
            let is_last = at >= self.plan.steps || go == Go::Stop;
            // A step that was passed over is no reason to store the one before it again.
            let is_due = self.plan.save_every > 0 && at.is_multiple_of(self.plan.save_every);
            if at != saved_at && (is_last || is_due || go == Go::Save) {
                if let Err(why) = self.trainer.check() {
                    return Err(self.no_number(why, saved).into());
                }
                let (path, go) = self.save(watch, go == Go::Stop)?;
                (saved, saved_at) = (path, at);
                if go == Go::Stop {
                    break;
                }
            }
            if go == Go::Stop {
                break;
            }
        }
        if self.trainer.comm().is_first() {
            self.keeper.prune()?;
        }
        Ok(saved)
    }

    /// The end of a run that has come to no number, with the checkpoint that is left: the newest, or this one.
    fn no_number(&self, why: Error, saved: PathBuf) -> Error {
        // Whoever leaves first may take the others along.
        match self.trainer.comm().barrier() {
            Ok(()) => {
                let path = self.keeper.newest().map_or(saved, Path::to_path_buf);
                Error::NoNumber { path, why: why.into() }
            }
            Err(lost) => lost,
        }
    }

    fn step(&mut self) -> Result<Step> {
        let start = Instant::now();
        let (mut batches, mut sequences, mut tokens) = (Vec::new(), 0, 0);
        for _ in 0..self.plan.accumulate {
            let mut batch = self.reader.next_batch()?.ok_or(Error::NoBatch)?;
            self.form.apply(&mut batch);
            sequences += batch.sequences();
            tokens += batch.rows();
            batches.push(batch::inputs(&batch, self.head, self.form.padding)?);
        }
        let batches: Vec<_> = batches.iter().collect();
        let report = self.trainer.step(&batches)?;
        let counts = all_numbers(self.trainer.comm(), &[sequences as f64, tokens as f64])?;
        let total = |at: usize| counts.iter().map(|each| each[at]).sum::<f64>() as usize;
        let (sequences, tokens) = (total(0), total(1));
        self.seen += sequences as u64;
        let (seen, seconds) = (self.seen, start.elapsed().as_secs_f64());
        Ok(Step { report, sequences, seen, tokens, seconds })
    }

    fn save<E: From<Error>>(
        &mut self,
        watch: &mut dyn FnMut(Event<'_>) -> std::result::Result<Go, E>,
        stopping: bool,
    ) -> std::result::Result<(PathBuf, Go), E> {
        let Position { epoch, sample, pack } = Reader::position(self.reader);
        let place = [epoch, sample, pack, self.seen];
        let samples = [self.reader.identity(), self.packs(), self.rates().to_bits()];
        let step = self.trainer.steps();
        let mut state = self
            .trainer
            .state()
            .chain([Ok(numbers(POSITION, &place)), Ok(numbers(SAMPLES, &samples))])
            .chain([Ok(numbers(OPTIMIZER, &[self.trainer.optimizer_identity()]))]);
        let comm = self.trainer.comm();
        let path = match comm.is_first() {
            true => self.keeper.save(step, state)?,
            false => {
                state.try_for_each(|part| part.map(drop))?;
                checkpoint::path(self.keeper.folder(), step)
            }
        };
        comm.barrier()?;
        let go = watch(Event::Saved(&path, step, stopping))?.agreed(comm)?;
        if let Go::Keep(best) = &go {
            self.keeper.keep_best(best);
        }
        Ok((path, go))
    }

    /// The packs of a step.
    fn packs(&self) -> u64 {
        self.reader.packs() as u64 * self.plan.accumulate as u64
    }

    fn rates(&self) -> Rates {
        let (schedule, step) = (self.trainer.schedule(), self.trainer.steps());
        let next = if step < self.plan.steps { schedule.rate(step) } else { f32::NAN };
        Rates { full: schedule.largest() as f32, next }
    }

    /// Goes on from a checkpoint. One that TensorFlow wrote does not say where the reader was: then
    /// as many packs as its steps had, if they had as many, are passed over.
    pub fn resume(&mut self, checkpoint: &dyn TensorStore) -> Result<Changes> {
        self.trainer.restore(checkpoint)?;
        if checkpoint.info(POSITION).is_none() {
            self.seen = self.reader.pass_over(self.trainer.steps().saturating_mul(self.packs()))?;
            return Ok(Changes::default());
        }
        let [epoch, sample, pack, seen] = stored(checkpoint, POSITION)?;
        self.seen = seen;
        let mut changes = Changes::default();
        if checkpoint.info(SAMPLES).is_some() {
            let [identity, packs, rates] = stored(checkpoint, SAMPLES)?;
            changes.samples = identity != self.reader.identity();
            changes.packs = Some((packs, self.packs())).filter(|(before, now)| before != now);
            let (before, now) = (Rates::from_bits(rates), self.rates());
            let other = |before: f32, now: f32| Some((before, now)).filter(|_| before != now);
            // Where no step is left, none has a rate.
            if !now.next.is_nan() {
                changes.rate = other(before.full, now.full);
                let is_known = changes.rate.is_none() && !before.next.is_nan();
                changes.next_rate = other(before.next, now.next).filter(|_| is_known);
            }
        }
        if checkpoint.info(OPTIMIZER).is_some() {
            let [before] = stored(checkpoint, OPTIMIZER)?;
            changes.optimizer = before != self.trainer.optimizer_identity();
        }
        if !changes.samples {
            self.reader.seek(Position { epoch, sample, pack })?;
        }
        Ok(changes)
    }
}

/// A few numbers of a checkpoint.
fn numbers(name: &str, values: &[u64]) -> (String, Tensor) {
    let values: Vec<i64> = values.iter().map(|value| *value as i64).collect();
    (name.to_owned(), Tensor::from_vec([values.len()], values).expect("as many as there are"))
}

/// The same as they are read back.
fn stored<const N: usize>(checkpoint: &dyn TensorStore, name: &str) -> Result<[u64; N]> {
    let failed = |source| Error::NoState { name: name.to_owned(), source };
    let tensor = checkpoint.tensor(name).map_err(failed)?;
    let values = tensor.values::<i64>().map(|values| values.into_owned());
    match values.map(<[i64; N]>::try_from) {
        Ok(Ok(values)) => Ok(values.map(|value| value as u64)),
        _ => Err(Error::WrongState {
            name: name.to_owned(),
            found: format!("{} {}", tensor.dtype(), tensor.shape()),
            expected: format!("{N} int64"),
        }),
    }
}
