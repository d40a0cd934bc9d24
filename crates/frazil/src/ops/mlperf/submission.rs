//! `create_submission`: the runs of a submission, one for each seed, and their logs.
//!
//! A file of results is complete or absent, so a run whose file is there is done, if the file says before the
//! training what that run would say; else it is of another run. A run that did not end is begun anew, not gone
//! on with: its time would not be that of a run. One that fails leaves the others alone.

use std::path::{Path, PathBuf};

use frazil_train::mllog::parse;
use frazil_train::run::Go;
use serde::Serialize;
use serde_json::Value;

use super::{DIGEST, Event, Plan, Report, Settings, plan, put_back, run, wrong};
use crate::Result;
use crate::ops::pretrain;
use crate::ops::train::{Stop, clear, initial_weights, is_ready, was_here};

/// The seed of the first run.
const FIRST_SEED: u64 = 42;

/// Which runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// What each of them does; seeds, numbers and folders are added.
    pub settings: Settings,
    /// The first one.
    pub start: u64,
    /// The one that is not run any more.
    pub end: u64,
    /// Runs that are done are done again.
    pub again: bool,
    /// What can end it before its time.
    pub stop: Stop,
}

/// What became of a run that could not go on, and of one that was told to stop.
pub const FAILED: &str = "failed";
/// See [`FAILED`].
pub const STOPPED: &str = "stopped";

/// A run of a submission.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Its number.
    pub index: u64,
    /// Its log.
    pub result: PathBuf,
    /// `success`, `aborted`, `failed` or `stopped`.
    pub status: String,
    /// What came out; nothing if it was done before, or has failed.
    pub report: Option<Report>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What lies where the log of a run goes.
enum There {
    /// Nothing.
    Nothing,
    /// The log of this run: what came of it.
    Done(String),
    /// Something else, which differs in this.
    Other(String),
}

fn there(plan: &Plan) -> There {
    let Ok(text) = std::fs::read_to_string(&plan.result) else { return There::Nothing };
    let Ok(lines) = parse(&text) else { return There::Other("it is no log".to_owned()) };
    let line = |key: &str| lines.iter().find(|line| line.key == key);
    for (key, expected) in plan.submission.iter().chain(&plan.logged) {
        match line(key).map(|line| &line.value) {
            Some(found) if is_same(found, expected) => {}
            Some(found) => return There::Other(format!("`{key}` is {found} there")),
            None => return There::Other(format!("it has no `{key}`")),
        }
    }
    let of = |key: &str, name: &str| line(key)?.metadata.get(name)?.as_str().map(str::to_owned);
    match of("run_stop", "status") {
        Some(status) if of("run_start", DIGEST).as_ref() == Some(&plan.digest) => {
            There::Done(status)
        }
        _ => There::Other("its settings or data are others".to_owned()),
    }
}

/// Whether a value of a log is that of a setting. A number that was written and read again may be its neighbour.
fn is_same(found: &Value, expected: &Value) -> bool {
    match (found.as_f64(), expected.as_f64()) {
        (Some(found), Some(expected)) => (found - expected).abs() <= 1e-12 * expected.abs(),
        _ => found == expected,
    }
}

/// Refuses to remove what no run has left, and what this one reads.
fn begins_anew(options: &pretrain::Options) -> Result<()> {
    let pretrain::Options { train, evaluation, .. } = options;
    let folder = &train.output_dir;
    let refused = |why: String| {
        Err(wrong(
            format!("`{}` would begin anew, but {why}", folder.display()),
            "name another `checkpoint_dir`, or take the folder away",
        ))
    };
    let is_empty = std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
    if !was_here(folder) && !is_empty {
        return refused("no run has left it".to_owned());
    }
    let judged_on = evaluation.iter().flat_map(|judgement| &judgement.on.records);
    let mut read = train.init_checkpoint.iter().chain(&train.records).chain(judged_on);
    // A checkpoint is named by a prefix, which is no file.
    let lies_in = |path: &Path| {
        [Some(path), path.parent()].into_iter().flatten().any(|path| {
            let real = path.canonicalize().and_then(|path| Ok((path, folder.canonicalize()?)));
            real.is_ok_and(|(path, folder)| path.starts_with(folder))
        })
    };
    match read.find(|path| lies_in(path)) {
        Some(path) => refused(format!("`{}`, which the run reads, is in it", path.display())),
        None => Ok(()),
    }
}

/// Takes the runs one after the other; `watch` hears of each, by its number.
pub fn create(
    options: &Options,
    watch: &mut dyn FnMut(u64, Event<'_>) -> Result<Go>,
) -> Result<Vec<Run>> {
    if options.start >= options.end {
        let what = format!("from run {} to run {} there is none", options.start, options.end);
        return Err(wrong(what, "`--end-index` is the one that is not run any more"));
    }
    let mut runs = Vec::new();
    for index in options.start..options.end {
        // What is wrong with the settings is wrong with all runs.
        let plan = planned(options, index)?;
        let (result, status) = (plan.result.clone(), FAILED.to_owned());
        let run = Run { index, result, status, report: None, error: None };
        // Nothing is said: whoever hears of a run begins its internal log anew, and the run is one that is there.
        put_back(&plan)?;
        let note = match there(&plan) {
            There::Done(status) if !options.again => {
                runs.push(Run { status, ..run });
                continue;
            }
            There::Other(why) => {
                let path = plan.result.display();
                Some(format!(
                    "`{path}` is of another run ({why}), and stays until this one is over; \
                     `--results` is another place"
                ))
            }
            There::Done(_) | There::Nothing => None,
        };
        initial_weights(&plan.options.train)?;
        match take(&plan, note, &mut |event| watch(index, event)) {
            Ok(report) => {
                let stopped = report.training.stopped;
                let status = if stopped { STOPPED } else { report.status }.to_owned();
                runs.push(Run { status, report: Some(report), ..run });
                if stopped {
                    break;
                }
            }
            Err(error) => {
                watch(index, Event::Failed(&error))?;
                runs.push(Run { error: Some(error.to_string()), ..run });
            }
        }
    }
    Ok(runs)
}

/// The settings with what a run has of its own.
fn planned(options: &Options, index: u64) -> Result<Plan> {
    let mut settings = options.settings.clone();
    let folder = PathBuf::from(settings.text("checkpoint_dir").unwrap_or_default());
    let folder = folder.join(format!("run_{index}"));
    settings.set("checkpoint_dir", folder.display().to_string())?;
    settings.set("seed", index + FIRST_SEED)?;
    settings.set("submission_run_index", index)?;
    let mut plan = plan(&settings)?;
    for key in ["seed", "submission_run_index"] {
        if options.settings.is_given(key) {
            plan.notes.push(format!("`{key}` (no effect): each run has its own"));
        }
    }
    plan.options.train.stop = options.stop.clone();
    Ok(plan)
}

/// Takes a run from its begin.
fn take(
    plan: &Plan,
    note: Option<String>,
    watch: &mut dyn FnMut(Event<'_>) -> Result<Go>,
) -> Result<Report> {
    let train = &plan.options.train;
    let folder = &train.output_dir;
    if let Some(note) = note {
        watch(Event::Note(&note))?;
    }
    if folder.is_dir() {
        begins_anew(&plan.options)?;
        // What cannot be read is said before anything goes.
        is_ready(train, true)?;
        let note =
            format!("what an earlier run left in `{}` goes: the run begins anew", folder.display());
        watch(Event::Note(&note))?;
        clear(folder)?;
    }
    run(plan, watch)
}
