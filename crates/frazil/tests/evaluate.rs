//! `frazil evaluate` against the official scripts: evaluate-v1.1.py and evaluate-v2.0.py under
//! Python 3.7 gave the numbers here.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use frazil_tensor::testing::shared;
use serde_json::Value;

/// The project's own demand.
const TOLERANCE: f64 = 1e-9;

fn evaluate(data: &Path, predictions: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_frazil"))
        .args(["evaluate", "squad"])
        .args([data, predictions])
        .args(more)
        .output()
        .unwrap()
}

fn json(data: &Path, predictions: &Path, more: &[&str]) -> Value {
    let output = evaluate(data, predictions, &[more, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn close(report: &Value, expected: &[(&str, f64)]) {
    for (key, expected) in expected {
        let found = report[key].as_f64().unwrap();
        assert!((found - expected).abs() < TOLERANCE, "{key}: {found} is not {expected}");
    }
}

#[test]
fn version_1_is_the_official_script_s_on_three_files() {
    let Some(data) = shared("data/squad/dev-v1.1.json") else { return };
    for (name, exact_match, f1, missing) in [
        ("models/squad/golden/predictions.json", 54.12488174077578, 66.07384465718413, 0),
        (
            "data/squad/predictions/bert_ensemble_google.json",
            86.20624408703878,
            92.19557978351145,
            0,
        ),
        ("data/squad/predictions/lr_baseline.json", 40.14191106906339, 50.98153647324461, 13),
    ] {
        let Some(predictions) = shared(name) else { return };
        let report = json(&data, &predictions, &[]);
        close(&report, &[("exact_match", exact_match), ("f1", f1)]);
        assert_eq!((&report["version"], &report["questions"]), (&"1.1".into(), &10_570.into()));
        assert_eq!(report["missing"].as_array().unwrap().len(), missing);
        assert_eq!(report["unknown"].as_array().unwrap().is_empty(), missing == 0);
    }
    if let Some(golden) = shared("models/squad/golden/evaluate.json") {
        let golden: Value = serde_json::from_slice(&fs::read(golden).unwrap()).unwrap();
        assert_eq!(golden["exact_match"], 54.12488174077578);
    }
}

#[test]
fn version_2_has_the_script_s_keys_in_its_order() {
    let (Some(data), Some(folder)) =
        (shared("fixtures/data/squad/dev-v2.0.json"), shared("fixtures/squad/v2.0"))
    else {
        return;
    };
    let predictions = folder.join("predictions.json");
    let odds = folder.join("null_odds.json");
    let report = json(&data, &predictions, &["--null-odds", odds.to_str().unwrap()]);
    let keys: Vec<&String> = report.as_object().unwrap().keys().collect();
    assert_eq!(
        keys[..13],
        [
            "exact",
            "f1",
            "total",
            "HasAns_exact",
            "HasAns_f1",
            "HasAns_total",
            "NoAns_exact",
            "NoAns_f1",
            "NoAns_total",
            "best_exact",
            "best_exact_thresh",
            "best_f1",
            "best_f1_thresh"
        ]
    );
    close(
        &report,
        &[
            ("exact", 62.5),
            ("f1", 63.888888888888886),
            ("total", 16.0),
            ("HasAns_exact", 61.53846153846154),
            ("HasAns_f1", 63.24786324786324),
            ("HasAns_total", 13.0),
            ("NoAns_exact", 66.66666666666667),
            ("NoAns_f1", 66.66666666666667),
            ("NoAns_total", 3.0),
            ("best_exact", 62.5),
            ("best_exact_thresh", -0.1491222381591797),
            ("best_f1", 63.888888888888886),
            ("best_f1_thresh", -0.1491222381591797),
        ],
    );
    let threshold = ["--null-odds", odds.to_str().unwrap(), "--threshold", "-1"];
    close(&json(&data, &predictions, &threshold), &[("exact", 43.75), ("HasAns_f1", 500.0 / 13.0)]);
    let plain = evaluate(&data, &predictions, &[]);
    let said = String::from_utf8_lossy(&plain.stdout).into_owned();
    assert!(said.starts_with("SQuAD 2.0, 16 questions\n"), "{said}");
    assert!(said.contains("with an answer") && !said.contains("best"), "{said}");
    // By the rules of version 1.1 a question without an answer is wrong.
    let first = json(&data, &predictions, &["--version", "1.1"]);
    assert!(first["f1"].as_f64().unwrap() < 60.0 && first.get("HasAns_f1").is_none());
}

/// A data set of three questions and a file of predictions.
struct Case {
    folder: tempfile::TempDir,
}

impl Case {
    fn new(data: &[u8], predictions: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("data.json"), data).unwrap();
        fs::write(folder.path().join("predictions.json"), predictions).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, more: &[&str]) -> (Option<i32>, String, String) {
        let output = evaluate(&self.path("data.json"), &self.path("predictions.json"), more);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }
}

const DATA: &str = r#"{"data": [{"paragraphs": [{"context": "Ice floats.", "qas": [
{"id": "a", "question": "What floats?", "answers": [{"text": "Ice", "answer_start": 0}]},
{"id": "b", "question": "What sinks?", "answers": [{"text": "iron"}]},
{"id": "c", "question": "Why?", "answers": [{"text": "density"}]}]}]}]}"#;

#[test]
fn what_is_missing_or_unknown_is_told() {
    let case = Case::new(DATA.as_bytes(), r#"{"a": "the ice", "z": "x"}"#);
    let (code, out, _) = case.run(&[]);
    assert_eq!(code, Some(0));
    assert_eq!(
        out,
        "SQuAD 1.1, 3 questions\n  \
           exact match       F1\n      \
               33.3333  33.3333\n\
         2 questions without a prediction (they count as wrong): b; c\n\
         1 predictions for questions that the data do not have (not looked at): z\n"
    );
    let (_, out, _) = case.run(&["--version", "2.0", "--json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&report["exact"], &report["total"]), (&100.0.into(), &1.into()));
}

#[test]
fn bad_data_are_named_or_counted() {
    let wrong = |damaged: &[u8]| Case::new(damaged, r#"{"a": "ice"}"#);
    let damage = |from: &str, to: &str| wrong(DATA.replace(from, to).as_bytes());
    for (case, says) in [
        (
            damage("\"text\": \"iron\"", "\"text\": 3"),
            "line 3: question `b`: expected `answers[0].text` to be a string, but it is a number",
        ),
        (damage("[{\"text\": \"iron\"}]", "null"), "line 3: question `b`: expected `answers`"),
        (
            wrong(
                &DATA
                    .as_bytes()
                    .iter()
                    .map(|b| if *b == b'k' { 0xff } else { *b })
                    .collect::<Vec<_>>(),
            ),
            "line 3: byte",
        ),
    ] {
        let (code, _, error) = case.run(&[]);
        assert_eq!(code, Some(2));
        assert!(error.contains(says) && error.contains("data.json"), "{error}");
        assert!(error.contains("--skip-bad-rows"), "{error}");
        let (code, out, error) = case.run(&["--skip-bad-rows"]);
        assert_eq!(code, Some(0), "{error}");
        assert!(out.starts_with("SQuAD 1.1, 2 questions"), "{out}");
        assert!(out.contains("1 questions of the data that cannot be used (left out)"), "{out}");
    }
    for (data, says) in
        [("", "the file is empty"), ("{\"data\": []}", "no usable row"), ("[", "line 1")]
    {
        let (code, _, error) = wrong(data.as_bytes()).run(&[]);
        assert_eq!(code, Some(2));
        assert!(error.contains(says) && error.contains("data.json"), "{error}");
    }
    let (code, _, error) = Case::new(DATA.as_bytes(), "[]").run(&[]);
    assert_eq!(code, Some(2));
    assert!(
        error.contains("predictions.json") && error.contains("a string for each id"),
        "{error}"
    );
}

#[test]
fn options_without_effect_are_refused() {
    let case = Case::new(DATA.as_bytes(), r#"{"a": "ice"}"#);
    let odds = case.path("predictions.json");
    let (code, _, error) = case.run(&["--null-odds", odds.to_str().unwrap()]);
    assert_eq!(code, Some(2));
    assert!(error.contains("1.1 knows no null odds") && error.contains("--version 2.0"), "{error}");
    assert_eq!(case.run(&["--threshold", "0.5"]).0, Some(2));
    assert_eq!(case.run(&["--version", "3"]).0, Some(2));
}
