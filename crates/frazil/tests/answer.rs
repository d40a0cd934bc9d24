//! Questions to answers, against google-research/bert's `run_squad.py` on TensorFlow 1.15: what it
//! answered with the small model of the fixtures, and with a real one on SQuAD's dev set.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use frazil::ops::evaluate::squad::{Options as EvaluateOptions, Scores, squad};
use frazil::ops::predict::answer::{Answerer, Options, Questions};
use frazil::ops::text_model;
use frazil::tf::example::Example;
use frazil::tf::tfrecord::RecordReader;
use frazil_bert::rows::OnBadRow;
use frazil_bert::squad::{Predictions, Question, SquadFeatures, build_features, read_examples};
use frazil_bert::tokenizer::{Casing, Tokenizer, Vocabulary};
use frazil_tensor::testing::shared;
use serde_json::Value;

fn frazil() -> Command {
    Command::new(env!("CARGO_BIN_EXE_frazil"))
}

fn json_file(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The small model that is embedded in the program: that of the fixtures.
struct Small {
    config: PathBuf,
    vocabulary: PathBuf,
    checkpoint: PathBuf,
    data: PathBuf,
}

fn small() -> Small {
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tf1");
    Small {
        config: assets.join("bert_config.json"),
        vocabulary: assets.join("vocab.txt"),
        checkpoint: assets.join("squad/model.ckpt"),
        data: assets.join("squad/dev-v1.1.json"),
    }
}

impl Small {
    /// As the fixtures were made.
    fn run_squad(&self, out: &Path, data: &Path, more: &[&str]) -> Output {
        let flag = |name: &str, value: &Path| format!("--{name}={}", value.display());
        frazil()
            .arg("run_squad")
            .arg(flag("bert_config_file", &self.config))
            .arg(flag("vocab_file", &self.vocabulary))
            .arg(flag("init_checkpoint", &self.checkpoint))
            .arg(flag("predict_file", data))
            .arg(flag("output_dir", out))
            .args(["--do_predict=True", "--max_seq_length=128", "--doc_stride", "32"])
            .args(more)
            .output()
            .unwrap()
    }

    fn predict(&self, more: &[&str]) -> Command {
        let mut command = frazil();
        command.args(["predict", "answer"]).arg(&self.checkpoint);
        command.arg("--config").arg(&self.config).arg("--vocab").arg(&self.vocabulary);
        command.args(["--doc-stride", "32"]).args(more);
        command
    }
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn records(path: &Path) -> Vec<Example> {
    let records = RecordReader::open(path).unwrap();
    records.map(|record| Example::decode(record.unwrap()).unwrap()).collect()
}

/// Largest difference of a logit between TensorFlow's float32 and frazil's, on logits of about 10.
const LOGIT: f64 = 2e-4;

/// Whether a list of answers is the original's: the same texts in the same order, with its logits
/// and probabilities but for rounding.
fn same_list(found: &Value, golden: &Value) -> bool {
    let (found, golden) = (found.as_array().unwrap(), golden.as_array().unwrap());
    let near = |a: &Value, b: &Value| (a.as_f64().unwrap() - b.as_f64().unwrap()).abs() < LOGIT;
    found.len() == golden.len()
        && found.iter().zip(golden).all(|(found, golden)| {
            found["text"] == golden["text"]
                && ["start_logit", "end_logit", "probability"]
                    .iter()
                    .all(|key| near(&found[*key], &golden[*key]))
        })
}

#[test]
fn run_squad_writes_the_original_s_files() {
    let small = small();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("deep/out");
    let output = small.run_squad(&out, &small.data, &["--verbose_logging"]);
    let log = said(&output.stderr);
    assert!(output.status.success(), "{log}");
    for line in [
        "INFO:tensorflow:***** Running predictions *****",
        "INFO:tensorflow:  Num orig examples = 13",
        "INFO:tensorflow:  Num split examples = 37",
        "INFO:tensorflow:  Batch size = 8",
        "INFO:tensorflow:Processing example: 0",
        "INFO:tensorflow:unique_id: 1000000000",
    ] {
        assert!(log.lines().any(|found| found == line), "{line} is not in\n{log}");
    }
    assert!(log.contains("INFO:tensorflow:Writing nbest to: "), "{log}");
    let names = |folder: &Path| {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&out), ["eval.tf_record", "nbest_predictions.json", "predictions.json"]);
    let Some(original) = shared("fixtures/squad/v1.1") else { return };
    let read = |folder: &Path, name: &str| fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!(read(&out, "predictions.json"), read(&original, "predictions.json"));
    let golden = records(&original.join("eval.tf_record"));
    assert_eq!(records(&out.join("eval.tf_record")), golden);
    let found = json_file(&out.join("nbest_predictions.json"));
    let golden = json_file(&original.join("nbest_predictions.json"));
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&found), keys(&golden));
    for id in keys(&golden) {
        assert!(same_list(&found[&id], &golden[&id]), "{id}");
    }
}

#[test]
fn create_tf_record_writes_the_windows_of_run_squad() {
    let small = small();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("eval.tf_record");
    let flag = |name: &str, value: &Path| format!("--{name}={}", value.display());
    let create = |data: &Path| {
        frazil()
            .arg("create_tf_record")
            .arg(flag("vocab_file", &small.vocabulary))
            .arg(flag("predict_file", data))
            .arg(flag("output_file", &out))
            .output()
            .unwrap()
    };
    let output = create(&small.data);
    assert!(output.status.success(), "{}", said(&output.stderr));
    let vocabulary = Vocabulary::open(&small.vocabulary).unwrap();
    let tokenizer = Tokenizer::new(vocabulary.into(), Casing::Lower).unwrap();
    let examples = read_examples(&small.data, Default::default()).unwrap().items;
    let windows = build_features(&examples, &tokenizer, Default::default()).unwrap();
    let expected: Vec<Example> = windows.iter().map(SquadFeatures::to_example).collect();
    assert_eq!(records(&out), expected);
    assert_eq!(windows[0].features.padded_len(), 384);
    assert_eq!(create(Path::new("nowhere.json")).status.code(), Some(2));
}

#[test]
fn without_answers_there_are_null_odds() {
    let Some(data) = shared("fixtures/data/squad/dev-v2.0.json") else { return };
    let small = small();
    let folder = tempfile::tempdir().unwrap();
    let threshold = |odds: &str| format!("--null_score_diff_threshold={odds}");
    let flags = ["--version_2_with_negative=true", &threshold("1000")];
    let output = small.run_squad(folder.path(), &data, &flags);
    assert!(output.status.success(), "{}", said(&output.stderr));
    let odds = json_file(&folder.path().join("null_odds.json"));
    let predictions = json_file(&folder.path().join("predictions.json"));
    assert_eq!(odds.as_object().unwrap().len(), 16);
    assert!(odds.as_object().unwrap().values().all(Value::is_f64));
    let empty = |all: &Value| all.as_object().unwrap().values().filter(|v| **v == "").count();
    assert_eq!(empty(&predictions), 0);
    let flags = ["--version_2_with_negative", &threshold("-1000")];
    assert!(small.run_squad(folder.path(), &data, &flags).status.success());
    assert_eq!(empty(&json_file(&folder.path().join("predictions.json"))), 16);
}

#[test]
fn run_squad_checks_what_the_original_checks() {
    let small = small();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    for (flags, code, says) in [
        (
            &["--do_train=true"][..],
            1,
            "If `do_train` is True, then `train_file` must be specified.",
        ),
        (&["--nodo_predict"], 1, "At least one of `do_train` or `do_predict` must be True."),
        (&["--predict_file="], 1, "then `predict_file` must be specified."),
        (
            &["--max_seq_length=129"],
            1,
            "Cannot use sequence length 129 because the BERT model was only trained up to \
             sequence length 128",
        ),
        (
            &["--max_seq_length=67"],
            1,
            "The max_seq_length (67) must be greater than max_query_length (64) + 3",
        ),
        (&["--max_seq_length=x"], 1, "FATAL Flags parsing error: flag --max_seq_length=x:"),
        (&["--predict_file=nowhere.json"], 1, "nowhere.json"),
        (&["--doc_stride=0"], 1, "`--doc_stride` is 0"),
        (
            &["--init_checkpoint=/m/cased_L-12_H-768_A-12/bert_model.ckpt"],
            1,
            "does not fit `cased_L-12_H-768_A-12`, which is a cased model",
        ),
    ] {
        let output = small.run_squad(&out, &small.data, flags);
        let log = said(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{flags:?}: {log}");
        assert!(log.contains(says), "{flags:?}: {log}");
        assert!(!out.exists(), "{flags:?}");
    }
    let output = frazil().args(["run_squad", "--vocab_file=v"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output.stderr).contains("Flag --bert_config_file must have a value"));
}

/// Runs a command with these bytes on its stdin.
fn feed(mut command: Command, bytes: &[u8]) -> Output {
    let (input, output) = (Stdio::piped(), Stdio::piped());
    let mut child = command.stdin(input).stdout(output).stderr(Stdio::piped()).spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(bytes); // it may end before it has read all
    child.wait_with_output().unwrap()
}

#[test]
fn answers_to_lines_are_those_to_the_file() {
    let small = small();
    let Some(golden) = shared("fixtures/squad/v1.1/predictions.json") else { return };
    let golden = json_file(&golden);
    let data = json_file(&small.data);
    let mut lines = String::new();
    for article in data["data"].as_array().unwrap() {
        for paragraph in article["paragraphs"].as_array().unwrap() {
            for question in paragraph["qas"].as_array().unwrap() {
                let line = serde_json::json!({
                    "id": question["id"],
                    "question": question["question"],
                    "context": paragraph["context"],
                });
                lines.push_str(&format!("{line}\n"));
            }
        }
    }
    let output = feed(small.predict(&["-", "--jsonl", "--quiet"]), lines.as_bytes());
    assert!(output.status.success(), "{}", said(&output.stderr));
    let found = said(&output.stdout);
    assert_eq!(found.lines().count(), golden.as_object().unwrap().len());
    for (line, (id, text)) in found.lines().zip(golden.as_object().unwrap()) {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&line["id"], &line["answer"]), (&Value::from(id.as_str()), text));
        assert_eq!(line["n_best"][0]["probability"], line["probability"]);
    }
    // The same from the file, into files.
    let folder = tempfile::tempdir().unwrap();
    let mut command = small.predict(&["--output-dir"]);
    command.arg(folder.path()).arg(&small.data);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output.stderr));
    assert!(said(&output.stderr).contains("13 questions answered in 37 windows"));
    assert_eq!(json_file(&folder.path().join("predictions.json")), golden);
    assert!(folder.path().join("nbest_predictions.json").exists());
    assert!(!folder.path().join("null_odds.json").exists());
}

#[test]
fn a_question_on_the_command_line() {
    let small = small();
    let ask = |more: &[&str]| {
        let mut command = small.predict(&["--question", "How high is it?", "--context"]);
        let output = command.arg("The tower is 28 m high.").args(more).output().unwrap();
        assert!(output.status.success(), "{}", said(&output.stderr));
        said(&output.stdout)
    };
    let (one, three) = (ask(&[]), ask(&["--top", "3"]));
    assert_eq!((one.lines().count(), three.lines().count()), (1, 3));
    assert!(three.starts_with(&one), "{three}");
    let (probability, answer) = one.trim_end().split_once('\t').unwrap();
    assert!((0.0..=1.0).contains(&probability.parse::<f64>().unwrap()));
    assert!("The tower is 28 m high.".contains(answer), "{answer}");
    // A context without words has no window, and still an answer: that of the original.
    let mut command = small.predict(&["--question", "How?", "--context", " "]);
    assert_eq!(said(&command.output().unwrap().stdout), "1.0000\tempty\n");
}

#[test]
fn bad_questions_are_named_or_counted() {
    let small = small();
    let good = r#"{"question": "How high?", "context": "It is 28 m high."}"#;
    let lines = |bad: &[u8]| [good.as_bytes(), b"\n", bad, b"\n", good.as_bytes()].concat();
    let file = |bad: &str| {
        format!(
            "{{\"data\": [{{\"paragraphs\": [{{\"context\": \"It is 28 m high.\", \"qas\": [\n\
             {{\"id\": \"a\", \"question\": \"?\"}},\n{bad},\n\
             {{\"id\": \"c\", \"question\": \"?\"}}]}}]}}]}}"
        )
        .into_bytes()
    };
    for (bytes, says) in [
        (lines(b"{\"question\": 3}"), "line 2: expected `question` to be a string"),
        (lines(b"{\"question\": \"\xff\"}"), "line 2: byte 15 of the line is not UTF-8"),
        (lines(b"what?"), "line 2: expected a JSON object"),
        (file("{\"id\": \"b\", \"question\": []}"), "line 3: question `b`: expected `question`"),
        (file("{\"id\": \"b\"}"), "line 3: question `b`: expected `question`"),
    ] {
        let output = feed(small.predict(&["-"]), &bytes);
        let log = said(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{log}");
        assert!(log.contains(says) && log.contains("stdin") && log.contains("--skip-bad-rows"));
        let output = feed(small.predict(&["-", "--skip-bad-rows"]), &bytes);
        let log = said(&output.stderr);
        assert!(output.status.success(), "{log}");
        assert_eq!(said(&output.stdout).lines().count(), 2);
        assert!(log.contains("1 bad rows were skipped") && log.contains(says), "{log}");
    }
    for (bytes, says) in [
        (&b""[..], "the file is empty"),
        (b"\n\n", "the file is empty"),
        (b"{\"data\": []}", "no usable row"),
        (b"{\"data\": 3}", "line 1"),
    ] {
        let output = feed(small.predict(&["-", "--skip-bad-rows"]), bytes);
        assert_eq!(output.status.code(), Some(2));
        assert!(said(&output.stderr).contains(says), "{}", said(&output.stderr));
    }
}

/// The real model's folder and the dev set.
fn real() -> Option<(PathBuf, PathBuf)> {
    Some((shared("models/squad")?, shared("data/squad/dev-v1.1.json")?))
}

/// Answers to the first questions of the dev set.
fn answers(model: &Path, data: &Path, count: usize) -> Vec<Question> {
    let text = fs::read(data).unwrap();
    let mut data: Value = serde_json::from_slice(&text).unwrap();
    let mut left = count;
    for article in data["data"].as_array_mut().unwrap() {
        for paragraph in article["paragraphs"].as_array_mut().unwrap() {
            let questions = paragraph["qas"].as_array_mut().unwrap();
            questions.truncate(left);
            left -= questions.len();
        }
    }
    let model_options =
        text_model::Options { max_seq_length: Some(384), padded: true, ..Default::default() };
    let answerer =
        Answerer::open(model, Options { model: model_options, ..Options::default() }).unwrap();
    let file = Box::new(std::io::Cursor::new(data.to_string().into_bytes()));
    let mut questions = Questions::read("dev".into(), file, None, OnBadRow::Stop).unwrap();
    let mut found = Vec::new();
    let report = answerer.run(&mut questions, |question, _| {
        found.push(question);
        Ok::<(), frazil::Error>(())
    });
    assert_eq!(report.unwrap().questions, count);
    found
}

/// How many of the answers are the original's.
fn equal(found: &[Question], golden: &Value) -> usize {
    found.iter().filter(|question| golden[&question.qas_id] == question.prediction).count()
}

/// How many lists of answers are the original's, and of how many.
fn equal_lists(found: &[Question], golden: &Path) -> (usize, usize) {
    let mut text = String::new();
    flate2::read::GzDecoder::new(fs::File::open(golden).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    let golden: Value = serde_json::from_str(&text).unwrap();
    let lists: Predictions = found.iter().cloned().collect();
    let lists: Value = serde_json::from_str(&lists.n_best_json()).unwrap();
    let known: Vec<_> =
        lists.as_object().unwrap().iter().filter(|(id, _)| golden.get(id).is_some()).collect();
    let same = known.iter().filter(|(id, list)| same_list(list, &golden[id.as_str()])).count();
    (same, known.len())
}

const SUBSET: usize = 150;

#[test]
fn a_real_model_answers_as_the_original_did() {
    let Some((model, data)) = real() else { return };
    let found = answers(&model, &data, SUBSET);
    let golden = json_file(&model.join("golden/predictions.json"));
    assert_eq!(equal(&found, &golden), SUBSET);
    let (same, all) =
        equal_lists(&found, &model.join("golden/nbest_predictions_first1000.json.gz"));
    assert_eq!((same, all), (SUBSET, SUBSET));
}

/// `cargo test --release -p frazil --test answer -- --ignored --nocapture`
#[test]
#[ignore = "the whole dev set takes minutes: run it in a release build"]
#[allow(clippy::print_stderr, reason = "figures")]
fn a_real_model_answers_the_whole_dev_set_as_the_original_did() {
    let Some((model, data)) = real() else { return };
    let start = std::time::Instant::now();
    let found = answers(&model, &data, 10_570);
    let seconds = start.elapsed().as_secs_f64();
    let golden = json_file(&model.join("golden/predictions.json"));
    let same = equal(&found, &golden);
    let lists = equal_lists(&found, &model.join("golden/nbest_predictions_first1000.json.gz"));
    let folder = tempfile::tempdir().unwrap();
    found.into_iter().collect::<Predictions>().write(folder.path()).unwrap();
    let predictions = folder.path().join("predictions.json");
    let report = squad(&data, &predictions, &EvaluateOptions::default()).unwrap();
    let Scores::V1 { exact_match, f1 } = report.scores else { unreachable!("the data are 1.1") };
    eprintln!("{same} of 10570 the same; lists {lists:?}; {exact_match} {f1}; {seconds:.1} s");
    assert!(same as f64 >= 0.999 * 10_570.0, "{same}");
    assert_eq!(lists.1, 1000);
    assert!(lists.0 >= 999, "{lists:?}");
    let golden = json_file(&model.join("golden/evaluate.json"));
    assert!((exact_match - golden["exact_match"].as_f64().unwrap()).abs() < 0.05, "{exact_match}");
    assert!((f1 - golden["f1"].as_f64().unwrap()).abs() < 0.05, "{f1}");
}
