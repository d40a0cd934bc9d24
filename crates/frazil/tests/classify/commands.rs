//! The commands, as users call them.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use frazil::bert::features::classifier::read_records;

use super::{Fixture, TOLERANCE, assert_close, frazil, said, table, text};

fn flags(fixture: &Fixture, output: &std::path::Path) -> Vec<String> {
    vec![
        "run_classifier".into(),
        "--task_name=MRPC".into(),
        format!("--data_dir={}", fixture.data.display()),
        format!("--vocab_file={}", fixture.vocab.display()),
        format!("--bert_config_file={}", fixture.config.display()),
        format!("--output_dir={}", output.display()),
        "--max_seq_length=128".into(),
    ]
}

fn run(words: &[String]) -> std::process::Output {
    frazil(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The original's files from the original's flags: `eval_results.txt`, `test_results.tsv` and the
/// records, from the checkpoint in the output folder.
#[test]
fn run_classifier_writes_what_the_original_wrote() {
    let Some(fixture) = Fixture::open() else { return };
    let folder = tempfile::tempdir().unwrap();
    fixture.model_folder(folder.path());
    let mut words = flags(&fixture, folder.path());
    words.extend(["--do_eval".into(), "--do_predict=true".into()]);
    let output = run(&words);
    assert!(output.status.success(), "{}", said(&output));
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let golden = |name: &str| fs::read_to_string(fixture.folder.join(name)).unwrap();
    let (found, expected) = (read("eval_results.txt"), golden("eval_results.txt"));
    for (found, expected) in found.lines().zip(expected.lines()) {
        let ((key, a), (name, b)) =
            (found.split_once(" = ").unwrap(), expected.split_once(" = ").unwrap());
        assert_eq!(key, name);
        let (a, b): (f32, f32) = (a.parse().unwrap(), b.parse().unwrap());
        assert!((a - b).abs() <= TOLERANCE, "{key}: {a} is not {b}");
    }
    assert_eq!(found.lines().count(), 4);
    assert!(found.contains("eval_accuracy = 0.8235294\n"), "{found}");
    assert!(found.contains("global_step = 27\n"), "{found}");
    assert_close(&table(&read("test_results.tsv")), &fixture.golden(), "test_results.tsv");
    for name in ["eval.tf_record", "predict.tf_record"] {
        let found = read_records(folder.path().join(name)).unwrap();
        assert_eq!(found, read_records(fixture.folder.join(name)).unwrap(), "{name}");
    }
    let log = said(&output);
    for line in [
        "INFO:tensorflow:Writing example 0 of 17",
        "INFO:tensorflow:*** Example ***",
        "INFO:tensorflow:guid: dev-1",
        "INFO:tensorflow:label: 1 (id = 1)",
        "INFO:tensorflow:***** Running evaluation *****",
        "INFO:tensorflow:  Num examples = 17 (17 actual, 0 padding)",
        "INFO:tensorflow:  Batch size = 8",
        "INFO:tensorflow:***** Eval results *****",
        "INFO:tensorflow:  global_step = 27",
        "INFO:tensorflow:***** Running prediction*****",
        "INFO:tensorflow:***** Predict results *****",
    ] {
        assert!(log.lines().any(|found| found == line), "{line}\n{log}");
    }
}

/// Without a trained model in the output folder the initial one counts, of any kind; records are
/// padded for TPUs only.
#[test]
fn run_classifier_takes_an_initial_model() {
    let Some(fixture) = Fixture::open() else { return };
    for name in ["model.ckpt-27", "frozen_from_saved_model.pb", "saved_models/1794770949"] {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("made");
        let mut words = flags(&fixture, &out);
        words.push(format!("--init_checkpoint={}", fixture.folder.join(name).display()));
        words.extend(["--do_eval=true".into(), "--use_tpu=true".into()]);
        let output = run(&words);
        assert!(output.status.success(), "{name}: {}", said(&output));
        let results = fs::read_to_string(out.join("eval_results.txt")).unwrap();
        assert!(results.contains("eval_accuracy = 0.8235294\n"), "{name}: {results}");
        assert!(results.contains("global_step = 0\n"), "{name}: {results}");
        let records = read_records(out.join("eval.tf_record")).unwrap();
        assert_eq!(records.iter().filter(|record| record.is_real_example).count(), 17);
        assert_eq!(records.len(), 24);
        assert!(!out.join("test_results.tsv").exists());
    }
}

#[test]
fn run_classifier_says_what_is_wrong_before_it_reads() {
    let nowhere = ["--data_dir=/nowhere", "--vocab_file=v", "--bert_config_file=c"];
    let train: Vec<&str> = ["run_classifier", "--task_name=mrpc", "--output_dir=o"]
        .into_iter()
        .chain(nowhere)
        .chain(["--do_train=true"])
        .collect();
    let output = frazil(&train);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("cannot open"), "{}", said(&output));
    let mut idle = train.clone();
    idle.extend(["--data_dir=", "--tpu_name=x", "--use_tpu=false", "--iterations_per_loop=5"]);
    let output = frazil(&idle);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("`--data_dir` must not be empty"), "{}", said(&output));
    let warnings = said(&output);
    let warnings: Vec<&str> =
        warnings.lines().filter_map(|line| line.strip_prefix("warning: ")).collect();
    let expected = ["iterations_per_loop", "tpu_name"]
        .map(|name| format!("`--{name}` has no effect: frazil runs on the CPU"));
    assert_eq!(warnings, expected);
    let output = frazil(&["run_classifier", "--task_name=mrpc"]);
    assert_eq!(output.status.code(), Some(1));
    let fatal = "FATAL Flags parsing error: flag --data_dir=None: Flag --data_dir must have";
    assert!(said(&output).starts_with(fatal), "{}", said(&output));
    let output = frazil(&["run_classifier", "--help"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("--[no]do_lower_case"));
}

/// Lines through a pipe, a table with names, JSON Lines: the same texts, the same probabilities.
#[test]
fn predict_classify_reads_any_table() {
    let Some(fixture) = Fixture::open() else { return };
    let folder = tempfile::tempdir().unwrap();
    fixture.model_folder(folder.path());
    let model = text(folder.path()).to_owned();
    let test = fs::read_to_string(fixture.data.join("test.tsv")).unwrap();
    let pairs: Vec<(&str, &str)> = test
        .lines()
        .skip(1)
        .map(|line| {
            let columns: Vec<&str> = line.split('\t').collect();
            (columns[3], columns[4])
        })
        .collect();
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let csv: String =
        pairs.iter().map(|(a, b)| format!("{},x,{}\n", quoted(a), quoted(b))).collect();
    let jsonl: String = pairs
        .iter()
        .map(|(a, b)| serde_json::json!({"text": a, "pair": b}).to_string() + "\n")
        .collect();
    let tsv: String = pairs.iter().map(|(a, b)| format!("{a}\t{b}\n")).collect();
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let golden = fixture.golden();
    let probabilities = |output: &std::process::Output, what: &str| {
        assert!(output.status.success(), "{what}: {}", said(output));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("id\tlabel\tno\tyes"), "{what}");
        let rows: Vec<Vec<f32>> = lines
            .map(|line| line.split('\t').skip(2).map(|x| x.parse().unwrap()).collect())
            .collect();
        assert_close(&rows, &golden, what);
    };
    let csv = write("pairs.csv", format!("text,other,text_b\n{csv}"));
    let words = ["predict", "classify", &model, text(&csv), "--labels", "no,yes"];
    probabilities(&frazil(&words), "csv");
    let json = write("pairs.jsonl", jsonl);
    let words = ["predict", "classify", &model, text(&json), "--labels", "no,yes", "-q"];
    let output = frazil(&words);
    probabilities(&output, "jsonl");
    assert_eq!(said(&output), "");
    let columns = ["--text-column", "1", "--pair-column", "2", "--labels", "no,yes"];
    let mut pipe = Command::new(env!("CARGO_BIN_EXE_frazil"))
        .args(["predict", "classify", &model, "-"])
        .args(columns)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    pipe.stdin.take().unwrap().write_all(tsv.as_bytes()).unwrap();
    probabilities(&pipe.wait_with_output().unwrap(), "stdin");
    let (a, b) = pairs[4];
    let output = frazil(&["predict", "classify", &model, "--text", a, "--pair", b, "--jsonl"]);
    let row: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&row["id"], &row["label"]), (&"text-1".into(), &"1".into()));
    let found = row["probabilities"]["1"].as_f64().unwrap();
    assert!((found - f64::from(golden[4][1])).abs() < f64::from(TOLERANCE), "{row}");
}

/// A GLUE task's dev set is scored as it is predicted.
#[test]
fn predict_classify_scores_what_has_labels() {
    let Some(fixture) = Fixture::open() else { return };
    let folder = tempfile::tempdir().unwrap();
    fixture.model_folder(folder.path());
    let out = folder.path().join("dev.tsv");
    let output = frazil(&[
        "predict",
        "classify",
        text(folder.path()),
        text(&fixture.data),
        "--task",
        "mrpc",
        "--split",
        "dev",
        "--out",
        text(&out),
        "--json",
    ]);
    assert!(output.status.success(), "{}", said(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let score = |name: &str| {
        let scores = report["scores"].as_array().unwrap();
        scores.iter().find(|score| score["name"] == name).unwrap()["value"].as_f64().unwrap()
    };
    assert!((score("acc") - 14.0 / 17.0).abs() < 1e-12);
    assert!(score("f1") > 0.5);
    assert_eq!(report["rows"], 17);
    let lines = fs::read_to_string(&out).unwrap();
    assert!(lines.starts_with("id\tlabel\texpected\t0\t1\ndev-1\t"), "{lines}");
    assert!(said(&output).contains("acc: 0.8235"), "{}", said(&output));
    // The file, scored by itself, and the model, give the same.
    for more in [["--predictions", text(&out)], ["--model", text(folder.path())]] {
        let mut words = vec!["evaluate", "glue", "MRPC", text(&fixture.data)];
        words.extend(more);
        let output = frazil(&words);
        assert!(output.status.success(), "{words:?}: {}", said(&output));
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(printed.contains("0.823529"), "{words:?}: {printed}");
    }
}

/// A data set with a bad row, and predictions for all of its rows.
#[test]
fn evaluate_glue_leaves_out_what_was_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("dev.tsv");
    let predictions = folder.path().join("p.tsv");
    fs::write(&data, "h\n1\t1\t1\ta\tb\n9\t1\t1\ta\tb\n0\t1\t1\ta\tb\n").unwrap();
    fs::write(&predictions, "index\tprediction\n0\t1\n1\t1\n2\t0\n").unwrap();
    let words =
        ["evaluate", "glue", "mrpc", text(folder.path()), "--predictions", text(&predictions)];
    let output = frazil(&words);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("line 3: expected one of the labels"), "{}", said(&output));
    let output = frazil(&[&words[..], &["--skip-bad-rows", "--json"]].concat());
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("1 bad rows were skipped"), "{}", said(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["rows"], &report["scores"][0]["value"]), (&2.into(), &1.0.into()));
    let output = frazil(&[&words[..], &["--split", "test"]].concat());
    assert!(said(&output).contains("a test set has no labels"), "{}", said(&output));
}

/// The head that BERT was pre-trained with.
#[test]
fn predict_next_sentence() {
    let Some(fixture) = Fixture::open() else { return };
    let Some(model) = frazil::tensor::testing::shared("fixtures/pretrain") else { return };
    let words = |more: &[&'static str]| {
        let model = model.join("model.ckpt-40");
        let mut words: Vec<String> =
            ["predict", "next-sentence", text(&model)].into_iter().map(str::to_owned).collect();
        words.extend([format!("--config={}", fixture.config.display())]);
        words.extend([format!("--vocab={}", fixture.vocab.display())]);
        words.extend(more.iter().map(|&word| word.to_owned()));
        words
    };
    let output = run(&words(&["--text", "It froze.", "--pair", "Ice drifted by."]));
    assert!(output.status.success(), "{}", said(&output));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.starts_with("id\tis_next\tprobability\ntext-1\t"), "{printed}");
    let output = run(&words(&["--text", "It froze."]));
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("expected the second text in column 2"), "{}", said(&output));
}
