//! What fine-tuning says of its data, its scores and what it exports.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use frazil::bert::features::Target;
use frazil::bert::samples::writer::Format;
use frazil::bert::samples::{Sample, SampleFile, SampleWriter, Shape};
use frazil::tensor::testing::shared;
use serde_json::Value;

/// Something to begin with, and a folder for all else.
pub struct Start {
    pub folder: tempfile::TempDir,
    pub init: PathBuf,
    pub config: PathBuf,
    pub vocab: PathBuf,
    pub data: PathBuf,
}

impl Start {
    pub fn new() -> Option<Self> {
        let data = shared("fixtures/data")?;
        Some(Self {
            folder: tempfile::tempdir().unwrap(),
            init: shared("fixtures/pretrain")?.join("model.ckpt-40"),
            config: data.join("bert_config_small.json"),
            vocab: data.join("vocab_small.txt"),
            data,
        })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_frazil"));
        command.args(words).current_dir(self.folder.path()).env("FRAZIL_THREADS", "1");
        command.output().unwrap()
    }

    /// `finetune WHAT` with all that it needs.
    pub fn finetune(&self, what: &str, more: &[&str]) -> Output {
        let (config, vocab) = (text(&self.config), text(&self.vocab));
        let words = ["finetune", what, text(&self.init), "--config", config, "--vocab", vocab];
        let sizes = ["--max-seq-length", "96", "--batch-size", "8"];
        self.run(&[&words[..], &sizes, more].concat())
    }

    /// One of the old programs with the same.
    pub fn old(&self, program: &str, more: &[&str]) -> Output {
        let paths = [
            format!("--bert_config_file={}", self.config.display()),
            format!("--vocab_file={}", self.vocab.display()),
            format!("--init_checkpoint={}", self.init.display()),
        ];
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        self.run(&[&[program], &paths[..], more].concat())
    }

    /// The fixture's task in a folder of its own, each file as `change` makes it of the fixture's lines.
    fn task(&self, change: impl Fn(&str, &[&str]) -> String) -> String {
        let folder = self.path("task");
        fs::create_dir(&folder).unwrap();
        for name in ["train.tsv", "dev.tsv"] {
            let lines = fs::read_to_string(self.data.join("MRPC").join(name)).unwrap();
            let lines: Vec<&str> = lines.lines().collect();
            fs::write(folder.join(name), change(name, &lines)).unwrap();
        }
        folder.display().to_string()
    }
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn report(output: &Output) -> Value {
    assert!(output.status.success(), "{}", said(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

pub fn hint(said: &str) -> &str {
    said.lines().find_map(|line| line.strip_prefix("hint: ")).unwrap_or_default()
}

/// A model that lacks what is to be exported is refused, and nothing is written.
#[test]
fn an_export_without_its_head_is_refused() {
    let Some(start) = Start::new() else { return };
    let mrpc = format!("--data_dir={}", start.data.join("MRPC").display());
    let words = ["--task_name=mrpc", &mrpc, "--output_dir=out", "--export_saved_model=sm"];
    let output = start.old("run_classifier", &words);
    assert_eq!(output.status.code(), Some(2));
    let found = said(&output);
    let expected = "it has no `output_weights`, no `output_bias`\n";
    assert!(found.contains("model.ckpt-40` is not what is to be exported"), "{found}");
    assert!(found.contains(expected) && hint(&found).contains("fine-tuned"), "{found}");
    assert!(!start.path("sm").exists());
    // Of another size.
    let config = fs::read_to_string(&start.config).unwrap();
    let config = config.replace("\"intermediate_size\": ", "\"intermediate_size\": 1");
    fs::write(start.path("other.json"), config).unwrap();
    let other = Start { config: start.path("other.json"), ..start };
    let words = [&words[..3], &["--export_saved_model=other"]].concat();
    let found = said(&other.old("run_classifier", &words));
    assert!(found.contains("`bert/encoder/layer_0/intermediate/dense/kernel` as ["), "{found}");
    assert!(found.contains(" more\n"), "{found}");
}

/// Where nothing can be written is found before the training.
#[test]
fn a_place_that_cannot_be_exported_to_is_found_first() {
    let Some(start) = Start::new() else { return };
    fs::write(start.path("file"), "").unwrap();
    let mrpc = start.data.join("MRPC").display().to_string();
    let train = start.data.join("squad/train-v1.1.json");
    let old = |flag: &str, value: &str| format!("--{flag}={value}");
    for place in ["file", "file/below"] {
        let words = ["--task", "mrpc", "--data", &mrpc, "-o", "out", "--export-saved-model", place];
        let new = start.finetune("classifier", &words);
        let export = old("export_saved_model", place);
        let data = old("data_dir", &mrpc);
        let words = ["--task_name=mrpc", &data, "--do_train", "--output_dir=out", &export];
        let classifier = start.old("run_classifier", &words);
        let data = old("train_file", text(&train));
        let squad = start.old("run_squad", &[&data, "--do_train", "--output_dir=out", &export]);
        for output in [new, classifier, squad] {
            assert!(!output.status.success());
            assert!(said(&output).contains("`file"), "{}", said(&output));
            assert!(!start.path("out").exists(), "{}", said(&output));
        }
    }
}

/// Where it becomes impossible on the way, what was trained is told all the same.
#[test]
fn a_training_is_told_before_its_export_fails() {
    let Some(start) = Start::new() else { return };
    let (mrpc, out) = (start.data.join("MRPC"), start.path("out"));
    let child = Command::new(env!("CARGO_BIN_EXE_frazil"))
        .args(["finetune", "classifier", text(&start.init), "--config", text(&start.config)])
        .args(["--vocab", text(&start.vocab), "--task", "mrpc", "--data", text(&mrpc)])
        .args(["-o", text(&out), "--epochs", "30", "--json", "--export-saved-model", "sm"])
        .current_dir(start.folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !out.join("checkpoint").exists() && begun.elapsed().as_secs() < 60 {
        std::thread::sleep(Duration::from_millis(5));
    }
    fs::remove_dir(start.path("sm")).unwrap();
    fs::write(start.path("sm"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("`sm"), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["checkpoint"].is_string() && report.get("saved_model").is_none(), "{report}");
}

/// GLUE's own scores stand beside the original's, and the official one says what is best.
#[test]
fn glue_says_what_is_best() {
    let Some(start) = Start::new() else { return };
    let mrpc = start.data.join("MRPC").display().to_string();
    let cola = start.task(|_, lines| {
        let row = |line: &&str| {
            let columns: Vec<&str> = line.split('\t').collect();
            format!("x\t{}\t\t{}\n", columns[0], columns[3])
        };
        lines[1..].iter().map(row).collect()
    });
    let both = ["acc_and_f1", "eval_accuracy", "eval_loss", "f1"];
    for (task, data, official, names) in [
        ("mrpc", mrpc, "acc_and_f1", &both[..]),
        ("cola", cola, "mcc", &["eval_accuracy", "eval_loss", "mcc"]),
    ] {
        let words = ["--task", task, "--data", &data, "-o", task, "--json", "--save-every", "2"];
        let more = ["--epochs", "2", "--learning-rate", "1e-3"];
        let report = report(&start.finetune("classifier", &[&words[..], &more].concat()));
        let mut best = (f64::NEG_INFINITY, 0);
        for evaluation in report["evaluations"].as_array().unwrap() {
            let scores = evaluation["scores"].as_object().unwrap();
            assert_eq!(scores.keys().collect::<Vec<_>>(), names);
            let score = |name: &str| scores[name].as_f64().unwrap();
            if task == "mrpc" {
                let mean = (score("eval_accuracy") + score("f1")) / 2.0;
                assert!((score("acc_and_f1") - mean).abs() < 1e-6);
            }
            if score(official) > best.0 {
                best = (score(official), evaluation["step"].as_u64().unwrap());
            }
        }
        assert_eq!(report["best"], format!("{task}/model.ckpt-{}", best.1));
    }
}

/// Questions without an answer are SQuAD 2.0's: who forgets the flag is told which it is.
#[test]
fn version_2_is_asked_for() {
    let Some(start) = Start::new() else { return };
    let file = |name: &str| start.data.join("squad").join(name).display().to_string();
    let (train, dev) = (file("train-v2.0.json"), file("dev-v2.0.json"));
    let output = start.finetune("squad", &["--train", &train, "-o", "out"]);
    assert_eq!(output.status.code(), Some(2));
    let found = said(&output);
    assert!(found.contains("`is_impossible` says that there is none"), "{found}");
    assert!(hint(&found).contains("`--v2` learns"), "{found}");
    let train_file = format!("--train_file={train}");
    let words = [&train_file, "--do_train", "--output_dir=out", "--max_seq_length=96"];
    let found = said(&start.old("run_squad", &words));
    assert!(hint(&found).contains("`--version_2_with_negative` learns"), "{found}");
    // Left out, they are counted, and ten of them are named.
    let first = file("train-v1.1.json");
    let words = ["--train", &train, "--dev", &dev, "-o", "out", "--skip-bad-rows", "--json"];
    let output = start.finetune("squad", &[&words[..], &["--epochs", "1"]].concat());
    let found = said(&output);
    assert!(found.contains("dev-v2.0.json` is of SQuAD 2.0"), "{found}");
    assert!(found.contains("`--v2` lets questions have none"), "{found}");
    let skipped = report(&output)["skipped"].as_u64().unwrap();
    let expected = format!("{skipped} bad rows of `{train}` were skipped:\n  line ");
    assert!(skipped > 0 && found.contains(&expected), "{found}");
    let named = found.lines().filter(|line| line.starts_with("  line ")).count();
    assert_eq!(named as u64, skipped.min(10), "{found}");
    // A file of version 1.1 needs no note; with the flag there are the thresholds that would be best.
    let words = ["--train", &first, "--dev", &file("dev-v1.1.json"), "-o", "v1", "--epochs", "1"];
    assert!(!said(&start.finetune("squad", &words)).contains("is of SQuAD 2.0"));
    let words = ["--train", &train, "--dev", &dev, "-o", "v2", "--v2", "--json"];
    let output = start.finetune("squad", &[&words[..], &["--epochs", "1"]].concat());
    let scores = &report(&output)["evaluations"][0]["scores"];
    let score = |name: &str| scores[name].as_f64().unwrap_or_else(|| panic!("{name}: {scores}"));
    assert!(score("best_f1") >= score("f1") && score("best_exact") >= score("exact_match"));
    assert!(score("best_f1_thresh").is_finite() && score("best_exact_thresh").is_finite());
    assert!(score("HasAns_f1") >= 0.0 && score("NoAns_f1") >= 0.0);
    let predict_file = format!("--predict_file={dev}");
    let words = [&predict_file, "--do_predict", "--output_dir=v2", "--max_seq_length=96"];
    let found = said(&start.old("run_squad", &words));
    assert!(found.contains("`--version_2_with_negative` lets questions have none"), "{found}");
    let with =
        said(&start.old("run_squad", &[&words[..], &["--version_2_with_negative"]].concat()));
    assert!(!with.contains("is of SQuAD 2.0"), "{with}");
}

/// Rows that are left out are told with their file and why, and counted where nothing is told.
#[test]
fn rows_that_are_left_out_are_counted() {
    let Some(start) = Start::new() else { return };
    let bad = "7\t1\t2\ta\tb\n";
    let data = start.task(|name, lines| {
        let times = if name == "train.tsv" { 12 } else { 1 };
        format!("{}\n{}{}\n", lines[0], bad.repeat(times), lines[1..].join("\n"))
    });
    let words = ["--task", "mrpc", "--data", &data, "-o", "out", "--skip-bad-rows", "--json"];
    let words = [&words[..], &["--epochs", "0.25"]].concat();
    let output = start.finetune("classifier", &words);
    let found = said(&output);
    assert!(found.contains("12 bad rows of") && found.contains("train.tsv` were"), "{found}");
    assert!(found.contains("1 bad row of") && found.contains("dev.tsv` was"), "{found}");
    let expected = "  line 2: expected one of the labels `0`, `1`, not `7`\n  line 3: ";
    assert!(found.contains(expected) && !found.contains("line 12: "), "{found}");
    assert_eq!(report(&output)["skipped"], 13);
    let quiet = start.finetune("classifier", &[&words[..], &["-q"]].concat());
    assert_eq!(report(&quiet)["skipped"], 13);
    assert_eq!(said(&quiet), "");
}

/// What a model has no room for is told with file and record.
#[test]
fn records_of_another_model_are_named() {
    let Some(start) = Start::new() else { return };
    let mrpc = start.data.join("MRPC").display().to_string();
    let common = ["--task", "mrpc", "--data", &mrpc, "--no-eval", "--epochs", "1"];
    let output = start.finetune("classifier", &[&common[..], &["-o", "out"]].concat());
    assert!(output.status.success(), "{}", said(&output));
    let file = SampleFile::open(start.path("out/train.tf_record"), Shape::default()).unwrap();
    let samples: Vec<Sample> = file.iter().flat_map(Result::unwrap).collect();
    let damage = |name: &str, change: &dyn Fn(&mut Sample)| {
        let mut samples = samples.clone();
        change(&mut samples[7]);
        let mut writer = SampleWriter::create(start.path(name), Format::Records).unwrap();
        samples.iter().for_each(|sample| writer.add(std::slice::from_ref(sample)).unwrap());
        writer.finish().unwrap();
    };
    damage("label", &|sample| {
        let Sample::Classifier(sample) = sample else { panic!("a classifier's") };
        sample.target = Target::Class(2);
    });
    let expected = "`label_ids` has 2, and the model knows 0 to 1";
    let words = [&common[..], &["--records", "label", "-o", "label-out"]].concat();
    let found = said(&start.finetune("classifier", &words));
    assert!(found.contains("`label`") && found.contains("record 7"), "{found}");
    assert!(found.contains(expected) && hint(&found).contains("task"), "{found}");
}
