//! What `run_classifier`, `run_squad` and `run_pretraining` have in common when they train: flags, and what is logged.

use std::path::PathBuf;
use std::sync::Arc;

use frazil::ops::finetune::{Event, Schedule};
use frazil::ops::train;
use frazil::train::comm::Comm;
use frazil::train::run::Go;
use frazil::{Error, Result};

use super::absl::Values;

/// Steps between two lines of the log, as Estimator has it.
const EVERY: u64 = 100;

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
        ..Schedule::default()
    })
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

/// Says what happens, in Estimator's words.
pub fn show(event: Event<'_>) -> Result<Go> {
    let info = |text: String| say!("INFO:tensorflow:{text}");
    match event {
        Event::Running { examples, samples, batch, steps } => {
            info("***** Running training *****".into());
            info(format!("  Num examples = {examples}"));
            if samples != examples {
                info(format!("  Num split examples = {samples}"));
            }
            info(format!("  Batch size = {batch}"));
            info(format!("  Num steps = {steps}"));
        }
        Event::Note(note) => say!("note: {note}"),
        Event::Evaluated(..) => {}
        Event::Train(event) => show_training(&event),
    }
    Ok(Go::On)
}

/// The same of what happens in any training.
pub fn show_training(event: &train::Event<'_>) {
    let info = |text: String| say!("INFO:tensorflow:{text}");
    match event {
        train::Event::Initialized(report) => {
            report.fresh.iter().for_each(|name| info(format!("  name = {name}, *NEW*")));
        }
        train::Event::Resuming(path, _) => {
            info(format!("Restoring parameters from {}", path.display()));
        }
        train::Event::Saved(path, step) => {
            info(format!("Saving checkpoints for {step} into {}.", path.display()));
        }
        train::Event::Planned(..) | train::Event::Begin(_) => {}
        train::Event::Step(step, of, _) => {
            let taken = step.report.step + 1;
            if step.report.step == 0 || taken.is_multiple_of(EVERY) || taken == *of {
                let (loss, speed) = (step.report.loss, step.tokens as f64 / step.seconds);
                info(format!("loss = {loss}, step = {taken} ({speed:.0} pieces/sec)"));
            }
        }
    }
}
