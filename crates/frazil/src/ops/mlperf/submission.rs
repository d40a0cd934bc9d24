//! `create_submission`: the runs of a submission, one for each seed, and their logs.
//!
//! A file of results is complete or absent, so a run whose file is there is done; a file of another seed
//! is of another run. A run that did not end is begun anew, not gone on with: its time would not be
//! that of a run.

use std::path::{Path, PathBuf};

use frazil_train::checkpoint::newest;
use frazil_train::mllog::parse;
use frazil_train::run::Go;
use serde::Serialize;

use super::{Event, Report, Settings, plan, result, run, wrong};
use crate::Result;
use crate::ops::train::{Stop, was_here};

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

/// A run of a submission.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Its number.
    pub index: u64,
    /// Its log.
    pub result: PathBuf,
    /// `success` or `aborted`.
    pub status: String,
    /// What came out; nothing if it was done before.
    pub report: Option<Report>,
}

/// What a log says came of the run with that seed, if it is the log of that run.
fn status(result: &Path, seed: u64) -> Option<String> {
    let lines = parse(&std::fs::read_to_string(result).ok()?).ok()?;
    lines.iter().find(|line| line.key == "seed" && line.value == seed)?;
    let stop = lines.iter().find(|line| line.key == "run_stop")?;
    Some(stop.metadata.get("status")?.as_str()?.to_owned())
}

/// Refuses to remove what no run has left.
fn begins_anew(folder: &Path) -> Result<()> {
    let is_runs = was_here(folder) || newest(folder)?.is_some();
    let is_empty = std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
    match is_runs || is_empty {
        true => Ok(()),
        false => Err(wrong(
            format!("`{}` would begin anew, but no run has left it", folder.display()),
            "name another `checkpoint_dir`, or take the folder away",
        )),
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
        let result = result(&options.settings, index);
        let seed = index + FIRST_SEED;
        if let Some(status) = status(&result, seed).filter(|_| !options.again) {
            runs.push(Run { index, result, status, report: None });
            continue;
        }
        // What is wrong with the settings is said before anything goes.
        let mut settings = options.settings.clone();
        let folder = PathBuf::from(settings.text("checkpoint_dir").unwrap_or_default());
        let folder = folder.join(format!("run_{index}"));
        settings.set("checkpoint_dir", folder.display().to_string())?;
        settings.set("seed", seed)?;
        settings.set("submission_run_index", index)?;
        let mut plan = plan(&settings)?;
        plan.options.train.stop = options.stop.clone();
        if folder.is_dir() {
            begins_anew(&folder)?;
            let note = format!(
                "`{}` is of an earlier run, and goes: the run begins anew",
                folder.display()
            );
            watch(index, Event::Note(&note))?;
            std::fs::remove_dir_all(&folder).map_err(|source| frazil_tensor::Error::Io {
                action: "remove",
                path: folder.clone(),
                source,
            })?;
        }
        let report = run(&plan, &mut |event| watch(index, event))?;
        let (status, stopped) = (report.status.to_owned(), report.training.stopped);
        runs.push(Run { index, result, status, report: Some(report) });
        if stopped {
            break;
        }
    }
    Ok(runs)
}
