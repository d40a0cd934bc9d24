//! Killed and resumed: nothing but the running trial is lost, and the search goes the same way.

mod synthetic;

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use frazil_tune::config::Strategy;
use frazil_tune::{Error, History, Identity, Outcome, Resume, Settings, tune};
use proptest::prelude::*;
use synthetic::{Synthetic, settings};

fn identity() -> Identity {
    Identity { model: "m".into(), data: "d".into(), config: "c".into() }
}

fn search(folder: &Path, subject: &mut Synthetic, settings: &Settings) -> Outcome {
    let mut history =
        History::open(folder, &identity(), Resume::IfSame).expect("the folder is ours");
    let space = subject.space();
    tune(subject, &space, settings, &mut history, &mut |_| ControlFlow::Continue(()))
        .expect("the subject does not fail")
}

/// All that a search says, without how long it took.
fn essence(outcome: &Outcome) -> Vec<(String, f64, bool)> {
    outcome.trials.iter().map(|t| (t.key.clone(), t.measured.accuracy, t.met)).collect()
}

#[test]
fn a_second_run_measures_nothing() {
    for strategy in [Strategy::Sensitivity, Strategy::Tpe, Strategy::Basic, Strategy::Bayesian] {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = settings(strategy, 0.004);
        settings.max_trials = 25;
        let first = search(folder.path(), &mut Synthetic::new(24, 3.0), &settings);
        let mut again = Synthetic::new(24, 3.0);
        let second = search(folder.path(), &mut again, &settings);
        assert_eq!(again.calls, (0, 0, 0, 0), "{strategy:?}");
        assert_eq!(essence(&first), essence(&second), "{strategy:?}");
        assert_eq!((first.best, first.verdict), (second.best, second.verdict));
        assert!(second.trials.iter().all(|trial| trial.cached));
    }
}

#[test]
fn a_kill_at_any_byte_of_the_last_line_loses_that_line_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    let mut settings = settings(Strategy::Random, 0.0);
    settings.max_trials = 4;
    let whole = search(folder.path(), &mut Synthetic::new(3, 3.0), &settings);
    let bytes = fs::read(&path).unwrap();
    let last = bytes[..bytes.len() - 1].iter().rposition(|&b| b == b'\n').unwrap() + 1;
    for cut in last..bytes.len() {
        fs::write(&path, &bytes[..cut]).unwrap();
        let mut subject = Synthetic::new(3, 3.0);
        let resumed = search(folder.path(), &mut subject, &settings);
        assert_eq!(subject.calls, (0, 0, 1, 0), "cut at {cut} of {}", bytes.len());
        assert_eq!(essence(&resumed), essence(&whole));
        let lines = fs::read_to_string(&path).unwrap();
        assert_eq!(lines.lines().count(), 6, "header, baseline, four trials");
    }
    // And anywhere else it loses what comes after it.
    for cut in (0..last).step_by(37) {
        fs::write(&path, &bytes[..cut]).unwrap();
        let resumed = search(folder.path(), &mut Synthetic::new(3, 3.0), &settings);
        assert_eq!(essence(&resumed), essence(&whole), "cut at {cut}");
    }
}

#[test]
fn a_failure_is_resumed_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(Strategy::Sensitivity, 0.005);
    let whole = search(&folder.path().join("whole"), &mut Synthetic::new(60, 3.0), &settings);
    let path = folder.path().join("broken");
    let mut subject = Synthetic::new(60, 3.0);
    subject.fails_at = Some(4);
    let space = subject.space();
    let mut history = History::open(&path, &identity(), Resume::IfSame).unwrap();
    let mut quiet = |_: &frazil_tune::Event<'_>| ControlFlow::Continue(());
    tune(&mut subject, &space, &settings, &mut history, &mut quiet).unwrap_err();
    drop(history);
    let mut rest = Synthetic::new(60, 3.0);
    let resumed = search(&path, &mut rest, &settings);
    assert_eq!(essence(&resumed), essence(&whole));
    assert_eq!((rest.calls.0, rest.calls.3), (0, 0), "baseline and damage were there");
}

#[test]
fn another_run_is_refused_or_kept_beside() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(Strategy::Sensitivity, 0.01);
    let nothing = History::open(folder.path().join("x"), &identity(), Resume::Must);
    assert!(matches!(nothing, Err(Error::NoHistory(_))));
    search(folder.path(), &mut Synthetic::new(8, 0.1), &settings);
    let bytes = fs::read(folder.path().join("history.jsonl")).unwrap();
    for (what, other) in [
        ("model", Identity { model: "x".into(), ..identity() }),
        ("data set", Identity { data: "x".into(), ..identity() }),
        ("configuration", Identity { config: "x".into(), ..identity() }),
    ] {
        let Err(Error::InFile { source, .. }) = History::open(folder.path(), &other, Resume::Must)
        else {
            panic!("another {what} is refused")
        };
        assert!(source.to_string().ends_with(&format!("is of another {what}")), "{source}");
        assert!(source.hint().is_some());
    }
    let fresh = Identity { model: "x".into(), ..identity() };
    let history = History::open(folder.path(), &fresh, Resume::IfSame).unwrap();
    assert!(history.is_empty() && history.notes().len() == 2, "{:?}", history.notes());
    assert_eq!(fs::read(folder.path().join("history-1.jsonl")).unwrap(), bytes);
    drop(history);
    let history = History::open(folder.path(), &fresh, Resume::Never).unwrap();
    assert!(folder.path().join("history-2.jsonl").exists());
    drop(history);
    assert!(History::open(folder.path(), &fresh, Resume::Must).is_ok());
}

#[test]
fn two_runs_in_one_folder_are_one_too_many() {
    let folder = tempfile::tempdir().unwrap();
    let first = History::open(folder.path(), &identity(), Resume::IfSame).unwrap();
    let second = History::open(folder.path(), &identity(), Resume::IfSame);
    assert!(matches!(second, Err(Error::Locked(_))));
    drop(first);
    assert!(History::open(folder.path(), &identity(), Resume::IfSame).is_ok());
}

#[test]
fn damage_in_the_middle_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(Strategy::Sensitivity, 0.01);
    search(folder.path(), &mut Synthetic::new(8, 0.1), &settings);
    let path = folder.path().join("history.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines[1] = "{\"line\":\"bas";
    fs::write(&path, lines.join("\n") + "\n").unwrap();
    let Err(Error::InFile { source, .. }) =
        History::open(folder.path(), &identity(), Resume::IfSame)
    else {
        panic!("refused")
    };
    assert!(matches!(*source, Error::History { line: 2, .. }));
    // A file that was never a history is kept beside, not lost.
    fs::write(&path, "something else\nand more\n").unwrap();
    assert!(History::open(folder.path(), &identity(), Resume::IfSame).is_err());
    assert!(History::open(folder.path(), &identity(), Resume::Never).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_is_at_the_end_is_dropped_or_refused(tail in proptest::collection::vec(any::<u8>(), 0..60)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        drop(History::open(folder.path(), &identity(), Resume::IfSame).unwrap());
        let mut bytes = fs::read(&path).unwrap();
        let good = bytes.len();
        bytes.extend_from_slice(&tail);
        fs::write(&path, &bytes).unwrap();
        if let Ok(history) = History::open(folder.path(), &identity(), Resume::IfSame) {
            drop(history);
            prop_assert_eq!(fs::read(&path).unwrap(), &bytes[..good]);
        } else {
            let lines = tail.iter().filter(|&&byte| byte == b'\n').count();
            prop_assert!(lines > 0, "only a whole line can be damage");
        }
    }
}
