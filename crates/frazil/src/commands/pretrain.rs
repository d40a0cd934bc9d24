//! `frazil pretrain`, `frazil bert` and `frazil create_submission`: pre-training by the keys of
//! MLPerf's configurations.

use std::error::Error as _;
use std::ffi::OsString;
use std::fs::File;
use std::io::{LineWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Arg;
use frazil::Error;
use frazil::ops::mlperf::{
    self, ALIASES, Event, KEYS, Kind, Meaning, Report, Settings, submission,
};
use frazil::ops::pretrain;
use frazil::ops::train;
use frazil::train::comm::Comm;
use frazil::train::run::Go;

use super::live::{Live, planned, stopped};
use super::table::thousands;
use crate::cli::{self, Outcome};
use crate::help::{self, tools};
use crate::hints;

/// Pre-train by a configuration of MLPerf, on packed data
///
/// Every key of a configuration is a flag, too, with hyphens: `--num-layers 2`. A flag counts more than
/// the file, and without a file what no flag says is the key's default. A run that was stopped goes on
/// from the last checkpoint in its `--checkpoint-dir`. Exit code 1: the wanted accuracy was missed.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  frazil pretrain --config pod16-closed.json
  frazil pretrain --config pod16-closed.json --num-layers 2 \\
      --hidden-size 128 --attention-heads 2 --input-files 'packed/strategy*' \\
      --on-the-spot-validation-files 'eval/strategy*' --target-accuracy 0.3"
)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// A run of Graphcore's bert.py: `frazil pretrain` under its name
///
/// The same keys, as flags or in the file that `--config` names; a flag counts more than the file.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  frazil bert --config=./configs/mk2/pod16-closed.json
  frazil bert --config=./configs/mk2/pod16-closed.json --seed 43 \\
      --submission-run-index 1"
)]
pub struct BertArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// The ten runs of an MLPerf submission, with the flags of create_submission.py
///
/// Each is a run of `frazil bert` with a seed of its own. Keys of a configuration are flags, too; a flag
/// counts more than the file.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  frazil create_submission --pod=16 --submission-division=closed
  frazil create_submission --pod=16 --submission-division=open \\
      --start-index=3 --end-index=5 --results=results"
)]
pub struct SubmissionArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Flags that are not keys.
#[derive(Debug)]
struct Own {
    config: Option<PathBuf>,
    json: bool,
    quiet: bool,
    help: bool,
    pod: u64,
    start: u64,
    end: u64,
    configs: PathBuf,
    logs: PathBuf,
    again: bool,
}

/// Flags that are not keys: name, value, and what they are for.
const OF_ALL: [(&str, &str, &str); 3] = [
    (
        "config",
        "FILE",
        "A configuration such as pod16-closed.json; a flag counts more than the file",
    ),
    ("json", "", "Print a report as JSON"),
    ("quiet", "", "No progress"),
];

const OF_SUBMISSION: [(&str, &str, &str); 6] = [
    ("pod", "N", "The configuration is CONFIGS/podN-DIVISION.json [default: 16]"),
    ("start-index", "N", "The first run [default: 0]"),
    ("end-index", "N", "The one that is not run any more [default: 10]"),
    ("configs", "DIR", "Where configurations are [default: configs/mk2]"),
    ("logs", "DIR", "Where internal_log_N goes [default: .]"),
    ("again", "", "Runs that are done are done again"),
];

/// The flags as clap's, to be shown and completed: first those that are not keys.
pub fn flags(submission: bool) -> Vec<Arg> {
    let of_all = OF_ALL.iter().filter(|(name, ..)| !submission || *name != "config");
    let own = if submission { &OF_SUBMISSION[..] } else { &[] };
    let own = own.iter().chain(of_all).map(|&(name, value, help)| match value {
        "" => tools::switch(name, help),
        _ => tools::flag(name, help).value_name(value),
    });
    let keys = KEYS.iter().map(|key| {
        let idle = if matches!(key.meaning, Meaning::Declined(_)) { "has no effect: " } else { "" };
        let default = match key.default {
            "" => String::new(),
            default => format!(" [default: {}]", default.trim_matches('"')),
        };
        let help = format!("{idle}{}{default}", key.help);
        let arg = match key.kind {
            Kind::Truth => tools::truth(key.name, help).require_equals(false),
            kind => tools::flag(key.name, help).value_name(kind.placeholder()),
        };
        let aliases = ALIASES.iter().filter(|(_, name)| *name == key.name);
        arg.long(key.name.replace('_', "-")).visible_aliases(aliases.map(|(alias, _)| *alias))
    });
    own.chain(keys.map(|key| key.help_heading("Keys of a configuration, which are flags, too")))
        .collect()
}

fn read(arguments: &[OsString], submission: bool) -> Result<(Own, Settings), Error> {
    let mut own = Own {
        config: None,
        json: false,
        quiet: false,
        help: false,
        pod: 16,
        start: 0,
        end: 10,
        configs: "configs/mk2".into(),
        logs: ".".into(),
        again: false,
    };
    let words: Vec<String> =
        arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    hints::running(KEYS.iter().map(|key| key.name.replace('_', "-")));
    let mut settings = Settings::default();
    if words.iter().any(|word| word == "-h") {
        own.help = true;
        return Ok((own, settings));
    }
    settings.flags(&words, &mut |name, value| {
        let needed = || Error::Usage {
            what: format!("`--{name}` needs a value"),
            hint: "`--help` tells which".into(),
        };
        let number = || -> Result<u64, Error> {
            let value = value.ok_or_else(needed)?;
            value.parse().map_err(|_| Error::Usage {
                what: format!("`--{name}` is `{value}`"),
                hint: "give a whole number".into(),
            })
        };
        let path = || value.map(PathBuf::from).ok_or_else(needed);
        match name {
            "json" => own.json = true,
            "quiet" => own.quiet = true,
            "help" => own.help = true,
            "again" if submission => own.again = true,
            _ => {
                match name {
                    "config" if submission => {
                        return Err(Error::Usage {
                            what: "`--config`: the configuration is found by its name".into(),
                            hint: "`--pod`, `--submission-division` and `--configs` say which it is, such \
                                   as `configs/mk2/pod16-closed.json`"
                                .into(),
                        });
                    }
                    "config" => own.config = Some(path()?),
                    "pod" if submission => own.pod = number()?,
                    "start-index" if submission => own.start = number()?,
                    "end-index" if submission => own.end = number()?,
                    "configs" if submission => own.configs = path()?,
                    "logs" if submission => own.logs = path()?,
                    _ => return Ok(None),
                }
                return Ok(Some(true));
            }
        }
        Ok(Some(false))
    })?;
    if own.help {
        return Ok((own, settings));
    }
    if submission {
        let mut of_runs = ["seed", "submission_run_index"].into_iter();
        if let Some(key) = of_runs.find(|key| settings.is_given(key)) {
            return Err(Error::Usage {
                what: format!("`--{}`: each run has its own", key.replace('_', "-")),
                hint: "`--start-index` and `--end-index` choose runs, and the seed of run N is 42 + N; \
                       `frazil bert` is one run with any seed"
                    .into(),
            });
        }
        // Else a mistake there is a file that is missing.
        mlperf::division(&settings)?;
        let division = settings.text("submission_division").unwrap_or_default();
        own.config = Some(own.configs.join(format!("pod{}-{division}.json", own.pod)));
    }
    let mut all = match &own.config {
        Some(path) => Settings::read(path)?,
        None => Settings::default(),
    };
    all.merge(&settings);
    Ok((own, all))
}

/// Runs `pretrain`.
pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    single("pretrain", &args.arguments, out)
}

/// Runs `bert`.
pub fn bert(args: BertArgs, out: &mut dyn Write) -> Result<Outcome> {
    single("bert", &args.arguments, out)
}

fn single(name: &str, arguments: &[OsString], out: &mut dyn Write) -> Result<Outcome> {
    let (own, settings) = read(arguments, false)?;
    if own.help {
        write!(out, "{}", help::of(name))?;
        return Ok(Outcome::Done);
    }
    cli::together(|comm| train_by(&own, &settings, out, comm))
}

fn train_by(
    own: &Own,
    settings: &Settings,
    out: &mut dyn Write,
    comm: &Arc<dyn Comm>,
) -> Result<Outcome> {
    let mut plan = mlperf::plan(settings)?;
    plan.options.train.comm = Arc::clone(comm);
    plan.options.train.stop = cli::stop();
    let mut live = Live::new(own.quiet);
    let every = every(settings);
    let report = mlperf::run(&plan, &mut |event| {
        show(&mut live, &event, every);
        Ok(Go::On)
    })?;
    if !comm.is_first() {
        return Ok(Outcome::Done);
    }
    if own.json {
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)?;
    } else {
        print(&report, out)?;
    }
    Ok(outcome(&report))
}

/// A target that was missed is a check that failed.
fn outcome(report: &Report) -> Outcome {
    match report.training.reached == Some(false) && !report.training.stopped {
        true => Outcome::CheckFailed,
        false => Outcome::Done,
    }
}

fn print(report: &Report, out: &mut dyn Write) -> Result<()> {
    let training = &report.training;
    let (steps, sequences) = (thousands(training.steps), thousands(training.sequences));
    // Without a target nothing can be missed.
    let status = training.reached.map_or("done", |_| report.status);
    writeln!(out, "{status}: {steps} steps over {sequences} sequences")?;
    for of in &training.evaluations {
        let sequences = thousands(of.sequences);
        writeln!(out, "  after {sequences} sequences: accuracy {:.4}", of.accuracy)?;
    }
    match &report.result {
        Some(result) => writeln!(out, "log {}", result.display())?,
        None if training.stopped => writeln!(out, "{}", stopped(training.steps))?,
        None => writeln!(out, "nothing was left to do")?,
    }
    writeln!(out, "last checkpoint {}", training.checkpoint.display())?;
    writeln!(out, "curves in {}", training.report.display())?;
    Ok(())
}

/// Steps between two lines, if somebody has said how many: else there is one every few seconds.
fn every(settings: &Settings) -> Option<u64> {
    settings.count("steps_per_log").filter(|_| settings.is_given("steps_per_log"))
}

fn show(live: &mut Live, event: &Event<'_>, every: Option<u64>) {
    if let (Some(every), Event::Pretrain(pretrain::Event::Train(train::Event::Step(step, of, _)))) =
        (every, event)
    {
        let (taken, line) = (step.report.step + 1, live.draw(step, *of));
        if !live.is_drawn() && taken.is_multiple_of(every) {
            live.say(&format!("step {taken} of {of}: {line}"));
        }
        return;
    }
    match event {
        Event::Note(note) => live.say(&format!("note: {note}")),
        Event::Failed(error) => live.say(&failed(error)),
        Event::Pretrain(pretrain::Event::Train(event)) => live.train(event),
        Event::Pretrain(pretrain::Event::Evaluated(found)) => live.say(&evaluated(found)),
        Event::Pretrain(_) => {}
    }
}

/// Why a run cannot go on, with all causes and what to do.
fn failed(error: &Error) -> String {
    let mut lines = vec![format!("error: {error}")];
    let mut cause = error.source();
    while let Some(error) = cause {
        lines.push(format!("caused by: {error}"));
        cause = error.source();
    }
    let hint = error.hint().and_then(|hint| hints::spoken(&hint));
    lines.extend(hint.map(|hint| format!("hint: {hint}")));
    lines.join("\n")
}

fn evaluated(found: &pretrain::Evaluated) -> String {
    let sequences = thousands(found.sequences);
    let reached = if found.reached { ", which is enough" } else { "" };
    format!("step {}, {sequences} sequences: accuracy {:.4}{reached}", found.step, found.accuracy)
}

/// Runs `create_submission`.
pub fn submission(args: SubmissionArgs, out: &mut dyn Write) -> Result<Outcome> {
    let (own, settings) = read(&args.arguments, true)?;
    if own.help {
        write!(out, "{}", help::of("create_submission"))?;
        return Ok(Outcome::Done);
    }
    cli::together(|comm| {
        match comm.size() {
        1 => Ok(()),
        size => Err(Error::Usage {
            what: format!("the runs of a submission were started by {size} processes"),
            hint: "`frazil bert --seed N --submission-run-index N` is one of them, for several processes"
                .into(),
        }
        .into()),
    }
    })?;
    let every = every(&settings);
    let stop = cli::stop();
    let options =
        submission::Options { settings, start: own.start, end: own.end, again: own.again, stop };
    std::fs::create_dir_all(&own.logs)
        .with_context(|| format!("cannot create `{}`", own.logs.display()))?;
    let mut live = Live::new(own.quiet);
    let mut log: Option<(u64, LineWriter<File>)> = None;
    let runs = submission::create(&options, &mut |index, event| {
        if log.as_ref().is_none_or(|(of, _)| *of != index) {
            let path = own.logs.join(format!("internal_log_{index}"));
            let failed =
                |source| frazil::tensor::Error::Io { action: "create", path: path.clone(), source };
            log = Some((index, LineWriter::new(File::create(&path).map_err(failed)?)));
            live = Live::new(own.quiet);
            live.say(&format!("run {index}"));
        }
        show(&mut live, &event, every);
        if let (Some((_, file)), Some(line)) = (&mut log, line(&event, every.unwrap_or(1))) {
            let path = own.logs.join(format!("internal_log_{index}"));
            let failed = |source| frazil::tensor::Error::Io { action: "write", path, source };
            writeln!(file, "{line}").map_err(failed)?;
        }
        Ok(Go::On)
    })?;
    if own.json {
        serde_json::to_writer_pretty(&mut *out, &runs)?;
        writeln!(out)?;
    } else {
        for run in &runs {
            let took = match &run.report {
                Some(report) => format!(" in {:.1} s", report.time_to_train),
                None => ", was there".to_owned(),
            };
            let submission::Run { index, status, result, .. } = run;
            match status.as_str() {
                submission::FAILED | submission::STOPPED => writeln!(out, "run {index}: {status}")?,
                _ => writeln!(out, "run {index}: {status}{took}: {}", result.display())?,
            }
        }
    }
    let failed: Vec<_> = runs.iter().filter(|run| run.status == submission::FAILED).collect();
    if let Some(first) = failed.first() {
        let log = own.logs.join(format!("internal_log_{}", first.index));
        return Err(Error::Usage {
            what: format!("{} of {} runs failed", failed.len(), runs.len()),
            hint: format!("`{}` says why; the same line does what is left", log.display()),
        }
        .into());
    }
    Ok(if runs.iter().any(|run| run.status != mlperf::SUCCESS) {
        Outcome::CheckFailed
    } else {
        Outcome::Done
    })
}

/// What an internal log says.
fn line(event: &Event<'_>, every: u64) -> Option<String> {
    match event {
        Event::Note(note) => Some(format!("note: {note}")),
        Event::Failed(error) => Some(failed(error)),
        Event::Pretrain(pretrain::Event::Evaluated(found)) => Some(evaluated(found)),
        Event::Pretrain(pretrain::Event::Train(train::Event::Step(step, _, _))) => {
            let (taken, report) = (step.report.step + 1, &step.report);
            taken.is_multiple_of(every).then(|| {
                format!(
                    "step {taken}: loss {:.4}, rate {:e}, {} sequences, {:.2} s",
                    report.loss, report.rate, step.seen, step.seconds
                )
            })
        }
        Event::Pretrain(pretrain::Event::Train(train::Event::Planned(path, kept))) => {
            Some(planned(path, kept))
        }
        Event::Pretrain(pretrain::Event::Train(train::Event::Saved(path, step, _))) => {
            Some(format!("step {step}: wrote {}", path.display()))
        }
        Event::Pretrain(_) => None,
    }
}
