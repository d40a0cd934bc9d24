//! What `run_classifier`, `run_squad` and `run_pretraining` have in common when they train: flags, and what is logged.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use frazil::ops::finetune::{Event, Schedule};
use frazil::ops::train;
use frazil::train::comm::Comm;
use frazil::train::run::Go;
use frazil::{Error, Result};

use super::absl::Values;
use crate::cli;
use crate::commands::live::{Live, stopped};

/// Steps between two lines of the log, as Estimator has it.
const EVERY: u64 = 100;
/// The longest that it is silent, where nothing is drawn.
const PAUSE: Duration = Duration::from_secs(10);

/// The original's flags.
pub fn schedule(
    values: &Values,
    threads: Option<usize>,
    comm: &Arc<dyn Comm>,
) -> Result<Schedule, Error> {
    Ok(Schedule {
        batch_size: values.count("train_batch_size", 1)?,
        learning_rate: values.float("learning_rate"),
        epochs: values.float("num_train_epochs"),
        warmup_proportion: values.float("warmup_proportion"),
        save_every: values.count("save_checkpoints_steps", 1)?,
        seed: values.integer("seed") as u64,
        recompute: values.truth("recompute"),
        threads,
        comm: Arc::clone(comm),
        stop: cli::stop(),
        ..Schedule::default()
    })
}

/// Threads: those of the flag, or as many as there are cores for 0.
pub fn threads(values: &Values) -> Result<Option<usize>, Error> {
    Ok(Some(values.count("threads", 0)?).filter(|threads| *threads > 0))
}

/// Sequences of a call of an exported model: those of the flag, or any number for 0.
pub fn export_batch(values: &Values) -> Result<Option<usize>, Error> {
    Ok(Some(values.count("export_batch_size", 0)?).filter(|batch| *batch > 0))
}

/// Says what was exported, as Estimator does: under the name that the folder has while it is written.
pub fn exported((checkpoint, written): &(PathBuf, PathBuf)) {
    say!("INFO:tensorflow:Restoring parameters from {}", checkpoint.display());
    let second = written.file_name().unwrap_or_default().to_string_lossy();
    let folder = written.with_file_name(format!("temp-{second}"));
    say!("INFO:tensorflow:SavedModel written to: {}/saved_model.pb", folder.display());
}

/// Says what happens, in Estimator's words; on a terminal a line below tells how it goes.
pub struct TrainingLog {
    live: Live,
    /// Whether examples are trained on in windows, which the original counts, too.
    windows: bool,
    last: Instant,
    /// Of the last step.
    loss: Option<f64>,
}

impl TrainingLog {
    pub fn new() -> Self {
        Self { live: Live::new(false), windows: false, last: Instant::now(), loss: None }
    }

    /// The same for run_squad.
    pub fn of_windows() -> Self {
        Self { windows: true, ..Self::new() }
    }

    fn info(&self, text: impl Display) {
        self.live.say(&format!("INFO:tensorflow:{text}"));
    }

    pub fn show(&mut self, event: Event<'_>) -> Result<Go> {
        match event {
            Event::Running { data, samples, batch, steps } => {
                self.info("***** Running training *****");
                if self.windows {
                    self.info(format_args!("  Num orig {} = {}", data.unit(), data.count()));
                    self.info(format_args!("  Num split examples = {samples}"));
                } else {
                    self.info(format_args!("  Num {} = {}", data.unit(), data.count()));
                }
                self.info(format_args!("  Batch size = {batch}"));
                self.info(format_args!("  Num steps = {steps}"));
            }
            Event::Note(note) => self.live.note(&note),
            Event::Evaluating(_) | Event::Evaluated(..) => {}
            Event::Train(event) => self.training(&event),
        }
        Ok(Go::On)
    }

    /// The same of what happens in any training.
    pub fn training(&mut self, event: &train::Event<'_>) {
        match event {
            train::Event::Initialized(report) => {
                for name in &report.fresh {
                    self.info(format_args!("  name = {name}, *NEW*"));
                }
                self.live.unused(report);
            }
            train::Event::Resuming(path, _, changes) => {
                self.info(format_args!("Restoring parameters from {}", path.display()));
                self.live.changed(changes);
            }
            train::Event::Saved(path, step, _) => {
                self.info(format_args!("Saving checkpoints for {step} into {}.", path.display()));
            }
            train::Event::Planned(..) | train::Event::Begin(_) | train::Event::NoNumber(_) => {}
            train::Event::Step(step, of, _) => {
                let line = self.live.draw(step, *of);
                self.loss = Some(step.report.loss);
                let taken = step.report.step + 1;
                let is_due = step.report.step == 0 || taken.is_multiple_of(EVERY) || taken == *of;
                if is_due || self.last.elapsed() >= PAUSE && !self.live.is_drawn() {
                    self.last = Instant::now();
                    let loss = step.report.loss;
                    self.info(format_args!("loss = {loss}, step = {taken} ({line})"));
                }
            }
        }
    }

    /// Says how it ended, after so many steps, some of them in this run.
    pub fn ended(&self, steps: u64, taken: u64, was_stopped: bool) {
        match self.loss {
            _ if was_stopped => self.live.say(&stopped(steps)),
            Some(loss) => self.info(format_args!("Loss for final step: {loss}.")),
            None if taken == 0 => self.info("Skipping training since max_steps has already saved."),
            None => {}
        }
    }
}
