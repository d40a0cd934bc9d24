//! Pre-training: the original's figures, MLPerf's rules, and what happens when something goes wrong.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use frazil::bert::Head;
use frazil::bert::packing::Depth;
use frazil::bert::samples::{ReaderOptions, Shape};
use frazil::ops::pretrain::evaluate;
use frazil::ops::train::History;
use frazil::source::open_weights;
use frazil::tensor::TensorStore;
use frazil::tensor::testing::shared;
use frazil::tf::checkpoint_state::CheckpointState;
use frazil::train::comm::Solo;
use frazil::train::mllog::{self, Division};

mod stopped;
mod submission;

const LENGTH: usize = 48;
const MASKED: usize = 8;
/// A rate that trainings survive.
const SANE: &str = "{\"init_lr\": 1e-3, \"num_training_steps\": 40, \"num_warmup_steps\": 0}";

fn frazil(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_frazil"));
    command.args(words).current_dir(folder).env("FRAZIL_THREADS", "1").output().unwrap()
}

fn done(folder: &Path, words: &[&str]) -> String {
    let output = frazil(folder, words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {said}");
    said
}

fn failed(folder: &Path, words: &[&str]) -> String {
    let output = frazil(folder, words);
    assert!(!output.status.success(), "{words:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn demo(name: &str) -> String {
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tf1");
    assets.join(name).display().to_string()
}

/// A few documents, so that sequences differ in length.
fn text() -> String {
    let (who, what) = (["the men", "the company", "the city", "a boat"], ["water", "ice", "river"]);
    let mut text = String::new();
    for document in 0..12 {
        for sentence in 0..3 + document % 4 {
            let (who, what) = (who[(document + sentence) % 4], what[sentence % 3]);
            let long = if sentence % 2 == 0 { " and went down again in the night" } else { "" };
            text.push_str(&format!("{who} found the {what} in 18{document}{sentence}{long} .\n"));
        }
        text.push('\n');
    }
    text
}

/// `examples.tfrecord`, `binary/` and `packed/` of the text.
fn data(folder: &Path) {
    fs::write(folder.join("text.txt"), text()).unwrap();
    let vocab = format!("--vocab_file={}", demo("vocab.txt"));
    let (length, masked) = (LENGTH.to_string(), MASKED.to_string());
    done(
        folder,
        &[
            "create_pretraining_data",
            "--input_file=text.txt",
            "--output_file=examples.tfrecord",
            &vocab,
            "--quiet",
            "--dupe_factor=3",
            "--short_seq_prob=0.5",
            &format!("--max_seq_length={length}"),
            &format!("--max_predictions_per_seq={masked}"),
        ],
    );
    let sizes =
        ["--max-sequence-length", &length, "--max-predictions-per-sequence", &masked, "--quiet"];
    let words = ["record_to_binary", "--tf-record-glob=examples.tfrecord", "--output-path=binary"];
    done(folder, &[&words[..], &sizes].concat());
    let words = ["pack_pretraining_data", "--input-glob=binary/*", "--output-dir=packed"];
    done(folder, &[&words[..], &sizes].concat());
}

/// A tiny model, trained by MLPerf's rules.
fn config(folder: &Path) -> PathBuf {
    let config = serde_json::json!({
        "submission_division": "open",
        "submission_platform": "a machine",
        "task": "PRETRAINING",
        "use_prepacked_pretraining_dataset": true,
        "max_sequences_per_pack": 3,
        "avg_seq_per_pack": 2,
        "num_layers": 1,
        "hidden_size": 32,
        "attention_heads": 2,
        "sequence_length": LENGTH,
        "max_positional_length": 64,
        "mask_tokens": MASKED,
        "vocab_length": 500,
        "popart_dtype": "FLOAT16",
        "engine_cache": "engine_cache/pod16",
        "batch_size": 2,
        "gradient_accumulation_factor": 2,
        "replication_factor": 1,
        "optimizer": "LAMB_NO_BIAS",
        "beta1": 0.71,
        "beta2": 0.998,
        "weight_decay": 1e-2,
        "loss_scaling": 64.0,
        "lr_bert_schedule": {"init_lr": 5e-3, "num_training_steps": 40, "num_warmup_steps": 0},
        "input_files": ["packed/strategy*"],
        "on_the_spot_validation_files": ["packed/strategy*"],
        "on_the_spot_validation_triggers": [20, 40, 60],
        "shuffle": true,
        "checkpoint_dir": "ckpts",
        "target_accuracy": 0.99,
    });
    let path = folder.join("configs/mk2/pod16-open.json");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, config.to_string()).unwrap();
    path
}

/// All tensors of a checkpoint, bit for bit.
fn tensors(prefix: &Path) -> Vec<(String, Vec<u8>)> {
    let store = open_weights(prefix, &Default::default()).unwrap();
    let infos = store.infos().to_vec();
    let bytes = |name: &str| store.read(name).unwrap().bytes().unwrap().to_vec();
    infos.into_iter().map(|info| (info.name.clone(), bytes(&info.name))).collect()
}

fn newest(folder: &Path) -> PathBuf {
    CheckpointState::read(folder).unwrap().unwrap().model_checkpoint_path
}

/// The figures of TensorFlow 1.15, to the last digit that it prints.
#[test]
fn an_evaluation_is_the_originals() {
    let (Some(pretrain), Some(data)) = (shared("fixtures/pretrain"), shared("fixtures/data"))
    else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let said = done(
        folder.path(),
        &[
            "run_pretraining",
            &format!("--input_file={}", pretrain.join("tf_examples.tfrecord").display()),
            "--output_dir=out",
            "--do_eval=True",
            &format!("--bert_config_file={}", data.join("bert_config_small.json").display()),
            &format!("--init_checkpoint={}", pretrain.join("model.ckpt-40").display()),
            "--max_eval_steps=10",
            "--use_tpu=False",
        ],
    );
    assert!(said.contains("INFO:tensorflow:***** Eval results *****"), "{said}");
    assert!(said.contains("warning: `--use_tpu` has no effect"), "{said}");
    let read = |path: PathBuf| -> Vec<(String, f64)> {
        let pair = |line: &str| {
            let (name, value) = line.split_once(" = ").unwrap();
            (name.to_owned(), value.parse().unwrap())
        };
        fs::read_to_string(path).unwrap().lines().map(pair).collect()
    };
    let found = read(folder.path().join("out/eval_results.txt"));
    let expected = read(pretrain.join("eval_results.txt"));
    assert_eq!(found.len(), expected.len());
    for ((name, found), (wanted, expected)) in found.iter().zip(&expected) {
        assert_eq!(name, wanted);
        assert!((found - expected).abs() <= 2e-6 * expected.abs(), "{name}: {found} {expected}");
    }
}

#[test]
fn the_originals_program_trains_and_evaluates() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    let config = format!("--bert_config_file={}", demo("bert_config.json"));
    let (length, masked) =
        (format!("--max_seq_length={LENGTH}"), format!("--max_predictions_per_seq={MASKED}"));
    let common = ["run_pretraining", &config, &length, &masked, "--output_dir=out"];
    let said = done(
        folder,
        &[
            &common[..],
            &["--input_file=examples.tf*", "--do_train", "--do_eval", "--train_batch_size=4"],
            &["--num_train_steps=6", "--num_warmup_steps=2", "--save_checkpoints_steps=4"],
            &["--max_eval_steps=3", "--learning_rate=1e-3"],
        ]
        .concat(),
    );
    for line in ["*** Input Files ***", "***** Running training *****", "  Batch size = 4"] {
        assert!(said.contains(&format!("INFO:tensorflow:{line}\n")), "{line}: {said}");
    }
    let results = fs::read_to_string(folder.join("out/eval_results.txt")).unwrap();
    let names: Vec<&str> = results.lines().map(|line| line.split(" = ").next().unwrap()).collect();
    assert_eq!(
        names,
        [
            "global_step",
            "loss",
            "masked_lm_accuracy",
            "masked_lm_loss",
            "next_sentence_accuracy",
            "next_sentence_loss"
        ]
    );
    assert!(results.starts_with("global_step = 6\n"), "{results}");
    for name in ["graph.pbtxt", "checkpoint", "report.html", "model.ckpt-6.meta"] {
        assert!(folder.join("out").join(name).is_file(), "{name}");
    }
    let page = fs::read_to_string(folder.join("out/report.html")).unwrap();
    assert!(page.contains("<h1>Pre-training</h1>") && page.contains("masked_lm_loss"));
    // What was evaluated stands on the page, and where TensorBoard looks for it.
    assert!(page.contains("last evaluation"));
    let history = History::read(&folder.join("out")).unwrap();
    let [evaluation] = &history.evaluations[..] else { panic!("{history:?}") };
    assert_eq!((evaluation.step, evaluation.scores.len()), (6, 5));
    // Nothing is left to train, nor is anything evaluated anew: the page stays.
    let again = [&common[..], &["--input_file=examples.tf*", "--do_train"]].concat();
    done(folder, &[&again[..], &["--train_batch_size=4", "--num_train_steps=6"]].concat());
    assert!(fs::read_to_string(folder.join("out/report.html")).unwrap() == page);
    // Its folder is no place for another model.
    let small = fs::read_to_string(demo("bert_config.json")).unwrap();
    fs::write(folder.join("small.json"), small.replace("\"vocab_size\": ", "\"vocab_size\": 1"))
        .unwrap();
    let other = ["--bert_config_file=small.json", "--input_file=examples.tf*", "--do_train"];
    let said = failed(folder, &[&common[..1], &common[2..], &other].concat());
    assert!(said.contains("model.ckpt-6` is of another model: `bert/embeddings/word"), "{said}");
    assert!(said.contains("hint: choose another folder"), "{said}");
    // Packed records, too; and what the flags say must be what the records are.
    let packed = ["--input_file=packed/strategy*", "--do_eval", "--max_eval_steps=2"];
    done(folder, &[&common[..], &packed].concat());
    let wrong = ["run_pretraining", &config, "--output_dir=out", "--do_eval", &masked];
    let said = failed(folder, &[&wrong[..], &["--input_file=examples.tfrecord"]].concat());
    assert!(said.contains("`--max_seq_length` is 128"), "{said}");
    assert!(said.contains("give `--max_seq_length=48`"), "{said}");
}

/// What is in packs is what is in the records: the same accuracy and the same losses.
#[test]
fn packs_are_evaluated_as_their_sequences() {
    let folder = tempfile::tempdir().unwrap();
    data(folder.path());
    let config = frazil::bert::BertConfig::read(demo("bert_config.json")).unwrap();
    let scores = |pattern: &str| {
        let shape = Shape { max_length: LENGTH, max_predictions: MASKED, sequences: 3 };
        let pattern = folder.path().join(pattern).display().to_string();
        let options = evaluate::Options {
            config: config.clone(),
            formulas: Default::default(),
            head: Head::Pretraining,
            records: frazil::source::files(&[pattern]).unwrap(),
            reading: ReaderOptions {
                shape,
                packs: 5,
                depth: Depth::AtMost(1),
                ..ReaderOptions::default()
            },
            form: Default::default(),
            batches: None,
            threads: Some(1),
            plans: None,
        };
        let path = demo("bert_model.ckpt");
        evaluate::checkpoint(Path::new(&path), options, Arc::new(Solo)).unwrap().scores
    };
    let (packed, alone) = (scores("packed/strategy*"), scores("examples.tfrecord"));
    assert_eq!(packed.sequences, alone.sequences);
    for (name, value) in alone.values.iter().filter(|(name, _)| *name != "loss") {
        let found = packed.values[name];
        assert!((found - value).abs() <= 1e-5 * value.abs().max(1.0), "{name}: {found} {value}");
    }
}

/// Runs of a submission: their logs follow the rules, and what is done is not done again.
#[test]
fn submissions_follow_the_rules() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    config(folder);
    let words = ["create_submission", "--pod=16", "--submission-division=open", "--end-index=2"];
    // The target is missed, and the exit code says so.
    assert_eq!(frazil(folder, &words).status.code(), Some(1));
    let read = |index: usize| {
        fs::read_to_string(folder.join(format!("result/bert/result_{index}.txt"))).unwrap()
    };
    let logs = [read(0), read(1)];
    for (index, log) in logs.iter().enumerate() {
        assert_eq!(mllog::check(log, Division::Open), [""; 0], "{log}");
        let lines = mllog::parse(log).unwrap();
        let keys: Vec<&str> = lines.iter().map(|line| line.key.as_str()).collect();
        let first = [
            "submission_org",
            "submission_benchmark",
            "submission_division",
            "submission_status",
            "submission_platform",
            "init_start",
            "seed",
            "max_sequence_length",
            "global_batch_size",
            "gradient_accumulation_steps",
            "opt_base_learning_rate",
            "opt_lamb_weight_decay_rate",
            "opt_lamb_beta_1",
            "opt_lamb_beta_2",
            "opt_learning_rate_warmup_steps",
            "num_warmup_steps",
            "start_warmup_step",
            "opt_learning_rate_training_steps",
            "opt_epsilon",
            "opt_lamb_learning_rate_decay_poly_power",
            "cache_clear",
            "init_stop",
            "run_start",
            "block_start",
            "block_stop",
            "eval_accuracy",
        ];
        assert_eq!(keys[..first.len()], first);
        assert_eq!(keys[keys.len() - 3..], ["eval_samples", "train_samples", "run_stop"]);
        let of = |key: &str| lines.iter().find(|line| line.key == key).unwrap();
        assert_eq!(of("seed").value, index + 42);
        assert_eq!(of("global_batch_size").value, 8);
        assert_eq!(of("init_stop").event_type, "INTERVAL_END");
        let stop = of("run_stop");
        assert_eq!(
            (stop.event_type.as_str(), &stop.metadata["status"]),
            ("INTERVAL_END", &"aborted".into())
        );
        let seconds = stop.metadata["TTT"].as_f64().unwrap();
        let between = (stop.time_ms - of("run_start").time_ms) / 1e3;
        assert!((seconds - between).abs() < 0.05, "{seconds} {between}");
        // Sequences are counted, not packs: a step of four packs has more than four.
        let evaluated: Vec<_> = lines.iter().filter(|line| line.key == "eval_accuracy").collect();
        assert_eq!(evaluated.len(), 3);
        for (line, trigger) in evaluated.iter().zip([20, 40, 60]) {
            let seen = line.metadata["epoch_num"].as_u64().unwrap();
            assert!(seen > trigger && seen <= trigger + 12, "{seen} {trigger}");
        }
        assert!(log.contains("\n\n:::MLLOG"), "a line is clear before each accuracy");
        let said = fs::read_to_string(folder.join(format!("internal_log_{index}"))).unwrap();
        let planned = if index == 0 { "the plan is stored: " } else { "planned before: " };
        let planned = format!("{planned}engine_cache/pod16/step-");
        assert!(said.contains(&planned) && said.contains("step 1: loss"), "{said}");
    }
    assert_ne!(logs[0], logs[1]);
    // Done already: nothing is begun, no log is touched, and what was missed is still missed.
    let said = fs::read_to_string(folder.join("internal_log_0")).unwrap();
    assert_eq!(frazil(folder, &words).status.code(), Some(1));
    assert_eq!(fs::read_to_string(folder.join("internal_log_0")).unwrap(), said);
    assert_eq!([read(0), read(1)], logs);
    // A file of another run is no run of these.
    fs::write(folder.join("result/bert/result_0.txt"), &logs[1]).unwrap();
    assert_eq!(frazil(folder, &words).status.code(), Some(1));
    let seed = |log: &str| mllog::parse(log).unwrap().into_iter().find(|line| line.key == "seed");
    assert_eq!(seed(&read(0)).unwrap().value, 42);
    assert_eq!(read(1), logs[1]);
    // The rules of the other division miss what they should.
    let closed = mllog::check(&logs[0].replace("\"open\"", "\"closed\""), Division::Closed);
    assert_eq!(closed, ["no `eval_accuracy` from 0.72 on and below 1"]);
    // A target that is low enough ends the run at its first evaluation.
    let bert = ["bert", "--config=./configs/mk2/pod16-open.json", "--target-accuracy", "0"];
    done(folder, &[&bert[..], &["--checkpoint-dir", "one", "--seed", "7"]].concat());
    let lines = mllog::parse(&read(1)).unwrap();
    assert_eq!(lines.iter().filter(|line| line.key == "eval_accuracy").count(), 1);
    assert_eq!(lines.last().unwrap().metadata["status"], "success");
}

/// A run that came to its end is not trained on when it is started again, and its log stays.
#[test]
fn what_is_done_stays_done() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    config(folder);
    let files = |to: &str| {
        let names = fs::read_dir(folder.join(to)).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".index")).collect::<BTreeSet<_>>()
    };
    // The first evaluation reaches its target; the other run is over after the last of three.
    for (to, target, code) in [("reached", "0", 0), ("missed", "0.99", 1)] {
        let run = || {
            let run = ["pretrain", "--config", "configs/mk2/pod16-open.json", "--quiet"];
            let flags = ["--target-accuracy", target, "--checkpoint-dir", to, "--results", to];
            let output = frazil(folder, &[&run[..], &flags].concat());
            assert_eq!(output.status.code(), Some(code), "{output:?}");
            let log = fs::read_to_string(folder.join(to).join("bert/result_1.txt")).unwrap();
            (String::from_utf8(output.stdout).unwrap(), log, files(to))
        };
        let (said, log, checkpoints) = run();
        assert!(said.contains("log ") && !said.contains("nothing was left"), "{said}");
        let (again, log_then, checkpoints_then) = run();
        assert!(again.contains("nothing was left to do") && !again.contains("log "), "{again}");
        assert_eq!(again.lines().next(), said.lines().next());
        assert!(log == log_then && checkpoints == checkpoints_then);
    }
}

/// Without anything to evaluate on, sequences are counted all the same: not packs.
#[test]
fn training_ends_with_its_sequences() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    let path = config(folder);
    let mut config: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    config.as_object_mut().unwrap().remove("on_the_spot_validation_files");
    config["max_training_sequences"] = 30.into();
    fs::write(&path, config.to_string()).unwrap();
    let run = ["pretrain", "--config", "configs/mk2/pod16-open.json", "--quiet", "--json"];
    let report = |output: Output| -> serde_json::Value {
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let first = report(frazil(folder, &run));
    let sequences = first["sequences"].as_u64().unwrap();
    assert!((30..30 + 12).contains(&sequences), "{first}");
    let again = report(frazil(folder, &run));
    assert_eq!((&again["taken"], &again["sequences"]), (&0.into(), &first["sequences"]));
}

/// Runs that are to be done again stay until it is certain that they can be.
#[test]
fn a_mistake_removes_no_run() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    config(folder);
    let words = ["create_submission", "--submission-division=open", "--end-index=1", "--quiet"];
    let short = [&words[..], &["--max-steps=1", "--target-accuracy=0"]].concat();
    frazil(folder, &short);
    let checkpoint = folder.join("ckpts/run_0/checkpoint");
    assert!(checkpoint.is_file());
    // Nor does a folder go that no run has left.
    fs::create_dir_all(folder.join("ckpts/run_1")).unwrap();
    fs::write(folder.join("ckpts/run_1/thesis.txt"), "mine").unwrap();
    let second = ["create_submission", "--submission-division=open", "--start-index=1"];
    let output = frazil(folder, &[&second[..], &["--end-index=2", "--quiet"]].concat());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(folder.join("ckpts/run_1/thesis.txt").is_file());
    // What fails is in the log of its run.
    let rate = "{\"init_lr\": 1e30, \"num_training_steps\": 40, \"num_warmup_steps\": 0}";
    let nan = ["--optimizer", "SGD", "--lr-bert-schedule", rate, "--again"];
    let said = failed(folder, &[&words[..], &nan].concat());
    assert!(said.contains("1 of 1 runs failed"), "{said}");
    let log = fs::read_to_string(folder.join("internal_log_0")).unwrap();
    assert!(log.contains("no number to go on with"), "{log}");
    frazil(folder, &[&short[..], &["--again"]].concat());
    assert!(checkpoint.is_file());
    let output = frazil(folder, &[&words[..], &["--again", "--optimizer=ADAMS"]].concat());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(checkpoint.is_file());
}

/// Numbers of an optimizer with which nothing is learnt are refused before anything is trained.
#[test]
fn settings_of_the_optimizer_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    config(folder);
    for (flags, says) in [
        (["--gradient-clipping-norm", "0"], "norm to clip to is 0, and has to be above 0"),
        (["--beta2", "1"], "beta2 is 1, and has to be from 0 to less than 1"),
        (["--weight-decay", "-1"], "weight_decay is -1"),
    ] {
        let run = ["pretrain", "--config", "configs/mk2/pod16-open.json"];
        let output = frazil(folder, &[&run[..], &flags].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(says), "{said}");
        assert!(!folder.join("ckpts").exists());
    }
}

/// A run by a stored plan ends with the same bits as one that made it; a plan that is damaged is made anew.
#[test]
fn stored_plans_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    config(folder);
    let run = |to: &str| {
        let run = ["pretrain", "--config", "configs/mk2/pod16-open.json", "--max-steps", "3"];
        let output = frazil(folder, &[&run[..], &["--checkpoint-dir", to]].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        let bytes = fs::read(folder.join(to).join("model.ckpt-3.data-00000-of-00001")).unwrap();
        (said, bytes)
    };
    let (said, made) = run("made");
    assert!(said.contains("the plan is stored: engine_cache/pod16/step-"), "{said}");
    let plans = || fs::read_dir(folder.join("engine_cache/pod16")).unwrap().map(Result::unwrap);
    // One of the steps, one of evaluations.
    assert_eq!(plans().count(), 2);
    let (said, stored) = run("stored");
    assert!(said.contains("planned before: engine_cache/pod16/step-"), "{said}");
    assert!(made == stored);
    for plan in plans() {
        let bytes = fs::read(plan.path()).unwrap();
        fs::write(plan.path(), &bytes[..bytes.len() / 2]).unwrap();
    }
    let (said, anew) = run("anew");
    assert!(said.contains("the plan is stored: engine_cache/pod16/step-"), "{said}");
    assert!(made == anew && plans().count() == 2);
}

/// What an optimizer remembers comes with the weights, under whichever name; steps begin at 0.
#[test]
fn slots_come_with_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    config(folder);
    let run = ["pretrain", "--config", "configs/mk2/pod16-open.json", "--max-steps"];
    frazil(folder, &[&run[..], &["3"]].concat());
    let more = ["1", "--tf-checkpoint", "ckpts/model.ckpt-3", "--checkpoint-dir", "two"];
    frazil(folder, &[&run[..], &more, &["--vocab-length", "480"]].concat());
    let (old, new) =
        (tensors(&folder.join("ckpts/model.ckpt-3")), tensors(&folder.join("two/model.ckpt-0")));
    let of = |all: &[(String, Vec<u8>)], name: &str| {
        all.iter().find(|(known, _)| known == name).unwrap().1.clone()
    };
    let slots =
        ["bert/pooler/dense/kernel/adam_m", "bert/encoder/layer_0/output/dense/bias/adam_v"];
    for name in slots {
        let slot = of(&old, name);
        assert_eq!(slot, of(&new, name));
        assert!(slot.iter().any(|byte| *byte != 0), "{name}");
    }
    assert_eq!(of(&new, "global_step"), 0i64.to_le_bytes());
    let table = "bert/embeddings/word_embeddings/adam_v";
    assert_eq!(of(&new, table), of(&old, table)[..480 * 32 * 4]);
    // A model of another shape is not taken for this one.
    let said = failed(
        folder,
        &[&run[..], &more[..3], &["--hidden-size", "64", "--checkpoint-dir", "three"]].concat(),
    );
    assert!(said.contains("float32 [500, 32], not float32 [500, 64]"), "{said}");
    assert!(!folder.join("three/checkpoint").exists());
}

/// Killed in the middle and started again, a run ends with the same bits as one that was left alone.
#[test]
fn a_killed_run_goes_on_as_if_nothing_had_been() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    config(folder);
    let run = ["pretrain", "--config", "configs/mk2/pod16-open.json", "--max-steps", "30"];
    let often = ["--save-every", "3", "--on-the-spot-validation-triggers", "100000", "--quiet"];
    let run = [&run[..], &often, &["--checkpoint-dir"]].concat();
    frazil(folder, &[&run[..], &["whole"]].concat());
    let killed = [&run[..], &["killed"]].concat();
    let mut child = Command::new(env!("CARGO_BIN_EXE_frazil"))
        .args(&killed)
        .current_dir(folder)
        .env("FRAZIL_THREADS", "1")
        .spawn()
        .unwrap();
    let start = Instant::now();
    while !folder.join("killed/model.ckpt-6.index").exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "no checkpoint came");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let at = newest(&folder.join("killed"));
    assert!(!at.ends_with("model.ckpt-30"), "it was too late to kill it");
    tensors(&at);
    frazil(folder, &killed);
    let [whole, killed] = ["whole", "killed"].map(|name| newest(&folder.join(name)));
    assert!(whole.ends_with("model.ckpt-30") && killed.ends_with("model.ckpt-30"));
    assert!(tensors(&whole) == tensors(&killed));
}

/// The checkpoint before a misfortune stays whole, and is the newest.
#[test]
fn what_goes_wrong_leaves_the_last_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    config(folder);
    let run = ["pretrain", "--config", "configs/mk2/pod16-open.json", "--save-every", "1"];
    let long = ["--on-the-spot-validation-triggers", "100000", "--max-steps", "20"];
    let run = [&run[..], &long, &["--shuffle=false", "--quiet", "--checkpoint-dir"]].concat();
    // A rate that no training survives.
    let rate = "{\"init_lr\": 1e30, \"num_training_steps\": 40, \"num_warmup_steps\": 0}";
    let rate = ["nan", "--optimizer", "SGD", "--lr-bert-schedule", rate];
    let said = failed(folder, &[&run[..], &rate].concat());
    assert!(said.contains("of step 2 is") && said.contains("no number to go on with"), "{said}");
    let last = newest(&folder.join("nan"));
    // No step can be taken from the checkpoint of step 1, so it is not the one to go on from.
    assert!(last.ends_with("model.ckpt-0"), "{}", last.display());
    assert!(!folder.join("nan/model.ckpt-1.index").exists());
    assert!(folder.join("nan/report.html").is_file());
    tensors(&last);
    let saner = [&run[..], &["nan", "--learning-rate", "1e-3", "--optimizer", "SGD"]].concat();
    let saner: Vec<&str> = saner.into_iter().chain(["--lr-bert-schedule", SANE]).collect();
    frazil(folder, &[&saner[..], &["--results", "sane"]].concat());
    assert!(newest(&folder.join("nan")).ends_with("model.ckpt-20"));
    assert!(!folder.join("result/bert/result_1.txt").exists(), "a log that is not complete");

    // A sample in the middle of the data that cannot be: a position beyond its sequence.
    let packed: Vec<PathBuf> =
        frazil::source::files(&[folder.join("packed/*").display().to_string()]).unwrap();
    let shape = Shape { max_length: LENGTH, max_predictions: MASKED, sequences: 3 };
    // Steps take four packs each, here in the order of the files. The first pack of a file says what the
    // file is, so it is another one, and not one of the first two steps.
    let packs = |path: &PathBuf| fs::read(path).unwrap().len() / shape.bytes_of_pack();
    let mut all = (0..packed.len()).flat_map(|at| (0..packs(&packed[at])).map(move |i| (at, i)));
    let mut numbered = (0..).zip(&mut all);
    let (number, (at, place)) = numbered.find(|(n, (_, i))| *n >= 8 && *i > 0).unwrap();
    let whole = fs::read(&packed[at]).unwrap();
    let mut broken = whole.clone();
    broken[place * shape.bytes_of_pack() + 4 * 3 * LENGTH] = 0xff;
    fs::write(&packed[at], &broken).unwrap();
    let said = failed(folder, &[&run[..], &["corrupt"]].concat());
    let name = packed[at].file_name().unwrap().to_string_lossy().into_owned();
    assert!(said.contains(&name), "{said}");
    let last = newest(&folder.join("corrupt"));
    assert!(last.ends_with(format!("model.ckpt-{}", number / 4)), "{}: {said}", last.display());
    tensors(&last);
    // Put right, it goes on.
    fs::write(&packed[at], whole).unwrap();
    frazil(folder, &[&run[..], &["corrupt"]].concat());
    assert!(newest(&folder.join("corrupt")).ends_with("model.ckpt-20"));
}

/// No room for a checkpoint: an error, or the end of the process in the middle of a write. Either way
/// what is there is whole.
#[cfg(unix)]
#[test]
fn a_full_disk_leaves_the_last_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    config(folder);
    let run =
        "pretrain --config configs/mk2/pod16-open.json --save-every 1 --quiet --checkpoint-dir";
    let words: Vec<&str> = run.split(' ').chain(["ckpts", "--max-steps", "2"]).collect();
    frazil(folder, &words);
    let before = newest(&folder.join("ckpts"));
    let size = fs::metadata(format!("{}.data-00000-of-00001", before.display())).unwrap().len();
    let program = env!("CARGO_BIN_EXE_frazil");
    // Blocks of 512 bytes: less than a checkpoint, more than everything else.
    let blocks = size / 512 / 2;
    for (ignored, name) in [("trap '' XFSZ;", "error"), ("", "killed")] {
        let line =
            format!("{ignored} ulimit -f {blocks}; exec {program} {run} ckpts --max-steps 4");
        let output = Command::new("sh").args(["-c", &line]).current_dir(folder).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{name}");
        assert_eq!(said.contains("error: "), name == "error", "{name}: {said}");
        let after = newest(&folder.join("ckpts"));
        assert_eq!(after, before, "{name}");
        tensors(&after);
    }
    frazil(folder, &[&words[..words.len() - 1], &["4"]].concat());
    assert!(newest(&folder.join("ckpts")).ends_with("model.ckpt-4"));
}

/// MLPerf's files may hold zeros where samples would be: a run and its evaluations are those without.
#[test]
fn padding_in_files_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    config(folder);
    let shape = Shape { max_length: LENGTH, max_predictions: MASKED, sequences: 3 };
    let size = shape.bytes_of_pack();
    fs::create_dir(folder.join("zeros")).unwrap();
    for entry in fs::read_dir(folder.join("packed")).unwrap() {
        let entry = entry.unwrap();
        let packs = fs::read(entry.path()).unwrap();
        let zeros = vec![0; 16 * size];
        let padded: Vec<u8> = packs.chunks(size).flat_map(|pack| [pack, &zeros].concat()).collect();
        fs::write(folder.join("zeros").join(entry.file_name()), padded).unwrap();
    }
    let train = |files: &str, to: &str| {
        let checkpoints = format!("--checkpoint-dir={to}");
        let words =
            ["pretrain", "--config=configs/mk2/pod16-open.json", "--shuffle=false", "--json"];
        let words = [&words[..], &["--input-files", files, &checkpoints]].concat();
        let words = [&words[..], &["--on-the-spot-validation-files", files]].concat();
        let output = frazil(folder, &words);
        let said = String::from_utf8_lossy(&output.stderr);
        // The target is missed.
        assert_eq!(output.status.code(), Some(1), "{said}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        report["evaluations"].clone()
    };
    let (with, without) = (train("zeros/strategy*", "with"), train("packed/strategy*", "without"));
    assert_eq!(with, without);
    assert!(
        with.as_array().unwrap().iter().all(|found| found["samples"].as_u64() > Some(0)),
        "{with}"
    );
    let weights = |run: &str| {
        let all = tensors(&newest(&folder.join(run))).into_iter();
        // Of which files it read how much differs, and nothing else.
        let reader = ["frazil/position", "frazil/samples"];
        all.filter(|(name, _)| !reader.contains(&name.as_str())).collect::<Vec<_>>()
    };
    assert!(weights("with") == weights("without"));
}

/// Records of another task are known before anything is written.
#[test]
fn samples_of_another_task_are_refused() {
    let Some(fixtures) = shared("fixtures") else { return };
    let folder = tempfile::tempdir().unwrap();
    let records = fixtures.join("classifier/train.tf_record");
    let config = format!("--bert_config_file={}", demo("bert_config.json"));
    let input = format!("--input_file={}", records.display());
    let words = ["run_pretraining", "--do_train=true", "--output_dir=out", "--max_seq_length=64"];
    let said = failed(folder.path(), &[&words[..], &[&config, &input]].concat());
    assert!(said.contains("train.tf_record` holds samples of a classifier"), "{said}");
    assert!(said.contains("hint: `frazil create_pretraining_data`"), "{said}");
    assert!(!folder.path().join("out").exists());
    let small = folder.path();
    data(small);
    self::config(small);
    let words = ["pretrain", "--config=configs/mk2/pod16-open.json"];
    let input = ["--input-files", records.to_str().unwrap()];
    let said = failed(small, &[&words[..], &input].concat());
    assert!(said.contains("train.tf_record` holds samples of a classifier"), "{said}");
}
