//! int8 under an accuracy goal, with the small model that is embedded in the program: every strategy,
//! goals that cannot be met, evaluations that fail, runs that are killed, recipes.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use frazil::graph::{Graph, Op};
use frazil::ops::quantize::{Evaluation, Given, Search, tune};
use frazil::page::number::short;
use frazil::runtime::{Engine, EngineOptions, Inputs};
use frazil::tensor::Tensor;
use frazil::tensor::testing::shared;
use frazil::tune::Verdict;
use frazil::tune::config::{Criterion, Strategy};
use serde_json::Value;

const FOLDER: &str = "tests/fixtures/tf1";

fn asset(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER).join(name)
}

/// `frazil quantize` of the small model, with what every call needs.
fn quantize(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_frazil"));
    command.current_dir(folder).arg("quantize").arg(asset("squad/model.ckpt"));
    command.arg("--bert-config").arg(asset("bert_config.json"));
    command.arg("--vocab").arg(asset("vocab.txt"));
    command.args(["--task", "squad", "--doc-stride", "32"]);
    command
}

/// The same, evaluated on the questions that the model was trained on.
fn on_squad(folder: &Path) -> Command {
    let mut command = quantize(folder);
    command.arg("--evaluation").arg(asset("squad/dev-v1.1.json"));
    command
}

fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

fn report(folder: &Path, workspace: &str) -> Value {
    let path = folder.join(workspace).join("report.json");
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// What the same search gives again: no times.
fn lasting(report: &Value) -> Vec<(String, f64, bool, u64)> {
    let trial = |trial: &Value| {
        let measured = &trial["measured"];
        (
            trial["key"].as_str().unwrap().to_owned(),
            measured["accuracy"].as_f64().unwrap(),
            measured["full"].as_bool().unwrap(),
            measured["bytes"].as_u64().unwrap(),
        )
    };
    report["trials"].as_array().unwrap().iter().map(trial).collect()
}

#[test]
fn from_a_checkpoint_to_a_compiled_int8_model() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (code, out, err) = run(on_squad(folder).args(["--max-drop", "5%", "-o", "int8.frazil"]));
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("goal met"), "{out}");
    assert!(err.contains("no calibration data: 2 questions were taken out"), "{err}");
    let report = report(folder, "int8.quantize");
    assert_eq!(report["verdict"], "met");
    assert_eq!(report["metric"]["name"], "f1");
    assert_eq!(report["evaluated_on"]["examples"], 11);
    // Two layers of six products, and the head, which stays.
    assert_eq!(report["best"]["int8_linears"], serde_json::json!([12, 13]));
    assert_eq!(report["full_evaluations"], 1);
    for tensor in report["tensors"].as_array().unwrap() {
        let (low, high) =
            (tensor["range"][0].as_f64().unwrap(), tensor["range"][1].as_f64().unwrap());
        assert!(low <= 0.0 && 0.0 <= high && low < high, "{tensor}");
        let counted: u64 =
            tensor["histogram"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(counted, tensor["count"].as_u64().unwrap());
    }
    let page = fs::read_to_string(folder.join("int8.quantize/report.html")).unwrap();
    for part in [
        "The goal is met: f1 of 69.0909 or better.",
        "Before and after",
        "f1 against time of a run",
        "by layer and product",
        "layer 1",
        "attention/self/query",
        "What bytes stand for, of all that was seen",
        "Histograms of layer 0",
        "int8.quantize/recipe.yaml -o int8.frazil",
        "no calibration data: 2 questions",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(
        !page.contains("src=") && !page.contains("http-equiv=\"refresh"),
        "it needs no network"
    );
    // One time of the f32 model everywhere: that which was taken in turn with the best trial.
    let measured = &report["best"]["measured"];
    let time = |key: &str| measured[key].as_f64().unwrap();
    let (f32, int8) = (time("baseline_ms"), time("latency_ms"));
    let row = |name: &str| {
        let row = out.lines().find(|line| line.trim().starts_with(name)).unwrap();
        row.split_whitespace().map(str::to_owned).collect::<Vec<String>>()
    };
    assert!(row("f32").contains(&format!("{f32:.1}")), "{out}");
    let speedup = format!("{:.2}x", f32 / int8);
    assert!(row("int8").contains(&format!("{int8:.1}")) && row("int8").contains(&speedup), "{out}");
    for cell in [f32, int8].map(|ms| format!(">{ms:.1}</td>")) {
        assert!(page.contains(&cell), "{cell}");
    }
    for point in [f32, int8].map(|ms| format!("{} ms, ", short(ms))) {
        assert!(page.contains(&point), "{point}");
    }
    assert!(!page.contains("part of the set: a guess"), "no trial was evaluated on a part");
    for zero in ["-0.00%", "-0.0000<", "-0.0<", "-0 bytes"] {
        assert!(!page.contains(zero), "{zero}");
    }
    // What was written answers like the f32 model does.
    let answers = |model: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_frazil"));
        command.current_dir(folder).args(["predict", "answer"]).arg(model);
        command.arg(asset("squad/dev-v1.1.json")).arg("--vocab").arg(asset("vocab.txt"));
        command.args(["--doc-stride", "32", "--quiet", "--config"]).arg(asset("bert_config.json"));
        let (code, out, err) = run(&mut command);
        assert_eq!(code, Some(0), "{err}");
        let answer = |line: &str| {
            let mut columns = line.split('\t');
            (columns.next().unwrap().to_owned(), columns.nth(1).unwrap().to_owned())
        };
        out.lines().map(answer).collect::<Vec<_>>()
    };
    let (int8, f32) = (answers(Path::new("int8.frazil")), answers(&asset("squad/model.ckpt")));
    let same = int8.iter().zip(&f32).filter(|(a, b)| a == b).count();
    assert_eq!(int8.len(), 13);
    assert!(same >= 12, "{int8:?}\n{f32:?}");
}

#[test]
fn a_goal_that_cannot_be_met_gives_the_best() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // The fewer bytes, the better: no model that has any is as good.
    let mut command = quantize(folder);
    command.arg("--calibration").arg(asset("squad/dev-v1.1.json"));
    let count = "grep -ac FrazilScaled {model} || true";
    command.args(["--eval-command", count, "--lower-is-better", "--max-drop", "0"]);
    command.args(["--max-trials", "3"]);
    command.args(["-o", "best.frazil", "--workspace", "w"]);
    let (code, out, err) = run(&mut command);
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(out.contains("goal missed by "), "{out}");
    assert!(folder.join("best.frazil").is_file() && folder.join("w/recipe.yaml").is_file());
    let report = report(folder, "w");
    assert_eq!((&report["verdict"], &report["stop"]), (&"missed".into(), &"max_trials".into()));
    let trials = report["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 3);
    let all = trials.iter().map(|trial| trial["measured"]["accuracy"].as_f64().unwrap());
    let least = all.fold(f64::INFINITY, f64::min);
    assert_eq!(report["best"]["measured"]["accuracy"].as_f64().unwrap(), least);
    assert!(report["missed_by"].as_f64().unwrap() > 0.0);
}

#[test]
fn an_evaluation_that_fails_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("echo 'no GPU' >&2; exit 7; true", "failed: exit status: 7", "no GPU"),
        ("echo 'score: high'; true", "is no number: `score: high`", "last line on stdout"),
        ("true; true", "it printed nothing", "last line on stdout"),
        ("echo nan; true", "the accuracy of the baseline is NaN", ""),
    ];
    for (line, message, hint) in cases {
        let mut command = quantize(folder.path());
        command.arg("--calibration").arg(asset("squad/dev-v1.1.json"));
        let (code, _, err) = run(command.args(["--eval-command", line, "-o", "x.frazil"]));
        assert_eq!(code, Some(2), "{line}: {err}");
        assert!(err.contains(message) && err.contains(hint), "{line}: {err}");
        assert!(!folder.path().join("x.frazil").exists());
    }
}

#[test]
fn data_that_are_not_there_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("empty.json"), r#"{"version": "1.1", "data": []}"#).unwrap();
    let empty = run(on_squad(folder).args(["--calibration", "empty.json", "-o", "x.frazil"]));
    assert_eq!(empty.0, Some(2));
    assert!(empty.2.contains("empty.json") && empty.2.contains("usable"), "{}", empty.2);
    let none = run(quantize(folder).args(["-o", "x.frazil"]));
    assert!(none.2.contains("there is nothing to evaluate SQuAD on"), "{}", none.2);
    assert!(none.2.contains("hint: name the data with `--evaluation`"), "{}", none.2);
    let mut command = on_squad(folder);
    let insisted =
        run(command.args(["--calibrate-on-evaluation", "--max-drop", "5%", "-o", "x.frazil"]));
    assert_eq!(insisted.0, Some(0), "{}", insisted.2);
    assert!(
        insisted.2.contains("calibrated on the evaluation set, as you insist"),
        "{}",
        insisted.2
    );
    assert_eq!(report(folder, "x.quantize")["evaluated_on"]["examples"], 13);
}

#[test]
fn every_strategy_runs_and_repeats_itself() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (name, _) in Strategy::NAMES {
        let search = |workspace: &str| {
            let mut command = on_squad(folder);
            command.args(["--strategy", name, "--workspace", workspace, "--quiet", "--seed", "7"]);
            // Sizes are the same in every run, times are not.
            command.args(["--objective", "modelsize", "--max-trials", "4", "--max-drop", "0.01pt"]);
            command.args(["-o", "m.frazil"]);
            let (code, out, err) = run(&mut command);
            assert!(matches!(code, Some(0 | 1)), "{name}: {out}{err}");
            assert_eq!(err, "", "{name}: quiet");
            (report(folder, workspace), fs::read(folder.join("m.frazil")).unwrap())
        };
        let (first, again) = (search(&format!("{name}-1")), search(&format!("{name}-2")));
        assert_eq!(first.0["strategy"], name);
        assert!(!lasting(&first.0).is_empty());
        assert_eq!(lasting(&first.0), lasting(&again.0), "{name}");
        assert_eq!(first.0["best"]["key"], again.0["best"]["key"], "{name}");
        assert!(first.1 == again.1, "{name}: the same file");
    }
}

#[test]
fn a_run_that_was_killed_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let search = |workspace: &str, out: &str| {
        let mut command = on_squad(folder);
        command.args(["--strategy", "basic", "--objective", "modelsize", "--max-trials", "5"]);
        command.args(["--max-drop", "0.01pt", "--timeout", "3600", "--quiet"]);
        command.args(["--workspace", workspace, "-o", out]);
        command
    };
    let (code, _, err) = run(&mut search("whole", "whole.frazil"));
    assert!(matches!(code, Some(0 | 1)), "{err}");
    let history = folder.join("killed/history.jsonl");
    let mut child = search("killed", "killed.frazil").stdout(Stdio::null()).spawn().unwrap();
    let started = Instant::now();
    // Whose history it is, the baseline, and two trials.
    while fs::read_to_string(&history).map_or(0, |text| text.lines().count()) < 4 {
        assert!(started.elapsed() < Duration::from_secs(300), "nothing is measured");
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was killed");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!folder.join("killed.frazil").exists());
    let known = fs::read_to_string(&history).unwrap().lines().count();
    let (code, _, err) = run(&mut search("killed", "killed.frazil"));
    assert!(matches!(code, Some(0 | 1)), "{err}");
    let (whole, resumed) = (report(folder, "whole"), report(folder, "killed"));
    assert_eq!(lasting(&resumed), lasting(&whole));
    let cached =
        resumed["trials"].as_array().unwrap().iter().filter(|t| t["cached"] == true).count();
    assert!(cached >= 2 && cached + 2 <= known, "{cached} of {known} lines were known");
    assert!(
        fs::read(folder.join("whole.frazil")).unwrap()
            == fs::read(folder.join("killed.frazil")).unwrap()
    );
}

#[test]
fn a_file_for_another_engine_has_ranges_found_beforehand() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (smooth, migration) in [(&[][..], "0.85"), (&["--smooth", "off"], "null")] {
        let mut command = on_squad(folder);
        command.args(["--max-drop", "20%", "-o", "int8.onnx", "--workspace", "w"]).args(smooth);
        let (code, out, err) = run(&mut command);
        assert_eq!(code, Some(0), "{out}{err}");
        let recipe = fs::read_to_string(folder.join("w/recipe.yaml")).unwrap();
        assert!(recipe.contains(&format!("\nmigration: {migration}\n")), "{recipe}");
        assert!(!recipe.contains("dynamic"), "{recipe}");
    }
    let (code, _, err) = run(on_squad(folder).args(["--smooth", "1.5"]));
    assert_eq!(code, Some(2));
    assert!(err.contains("a number from 0 to 1"), "{err}");
}

#[test]
fn a_recipe_makes_the_same_model_once_more() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut command = on_squad(folder);
    command.args([
        "--max-drop",
        "20%",
        "--attention",
        "--tables",
        "--smooth",
        "0.5",
        "--algorithm",
        "mse",
    ]);
    command.args(["--keep", ".*layer_1/output/.*", "-o", "int8.frazil", "--workspace", "w"]);
    let (code, out, err) = run(&mut command);
    assert_eq!(code, Some(0), "{out}{err}");
    let best = &report(folder, "w")["best"];
    assert_eq!(best["int8_linears"], serde_json::json!([11, 13]));
    assert_eq!(best["int8_attentions"], serde_json::json!([2, 2]));
    assert!(best["int8_tables"][0].as_u64().unwrap() >= 1, "{best}");
    let mut command = quantize(folder);
    let (code, out, err) = run(command.args(["--config", "w/recipe.yaml", "-o", "again.frazil"]));
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(
        fs::read(folder.join("int8.frazil")).unwrap()
            == fs::read(folder.join("again.frazil")).unwrap()
    );
    // Of another model it is refused.
    let text = fs::read_to_string(folder.join("w/recipe.yaml")).unwrap();
    let line = text.lines().find(|line| line.starts_with("model:")).unwrap();
    fs::write(folder.join("other.yaml"), text.replace(line, "model: 0000000000000000")).unwrap();
    let (code, _, err) = run(quantize(folder).args(["--config", "other.yaml", "-o", "x.frazil"]));
    assert_eq!(code, Some(2));
    assert!(err.contains("other weights") && err.contains("search again"), "{err}");
    // What deploys it is a configuration.
    let deploy = fs::read_to_string(folder.join("w/deploy.yaml")).unwrap();
    let config = frazil::tune::Config::parse(&deploy).unwrap();
    assert_eq!(config.accuracy.unwrap().metric.unwrap().name, "SquadF1");
}

/// Recipe 5's configuration, letter by letter.
const RECIPE_5: &str = include_str!("../../frazil-tune/tests/fixtures/bert.yaml");

#[test]
fn recipe_5_as_it_stands() {
    let Some(model) = shared("fixtures/squad/lpot/bert_fp32_google_modeling.pb") else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("bert.yaml"), RECIPE_5).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_frazil"));
    command.current_dir(folder).arg("quantize").arg(model).args(["--config", "bert.yaml"]);
    command.arg("--vocab").arg(asset("vocab.txt")).args(["--task", "squad", "--doc-stride", "32"]);
    command.args(["--max-seq-length", "128"]);
    command.arg("--evaluation").arg(asset("squad/dev-v1.1.json"));
    let (code, out, err) = run(&mut command);
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(err.contains("`tuning.strategy`: not given: `sensitivity` is used"), "{err}");
    let report = report(folder, "lpot_workspace/tensorflow/bert");
    assert_eq!(report["best"]["int8_linears"], serde_json::json!([12, 13]), "the head stays");
    assert!(folder.join("lpot_workspace/tensorflow/bert/model.frazil").is_file());
}

#[test]
fn a_configuration_that_is_wrong_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let cases = [
        ("max_trials: 100 ", "max_trials: many", "line 24: `tuning.exit_policy.max_trials`"),
        ("sampling_size", "samplingsize", "line 9: there is no key"),
        ("'MatMul'", "'Mat(Mul'", "is no regular expression"),
        ("timeout: 0 ", "timeout: [1]", "line 23: `tuning.exit_policy.timeout`"),
    ];
    for (from, to, message) in cases {
        fs::write(folder.join("bad.yaml"), RECIPE_5.replace(from, to)).unwrap();
        let (code, _, err) = run(on_squad(folder).args(["--config", "bad.yaml", "-o", "x.frazil"]));
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains(message) && err.contains("bad.yaml"), "{message}: {err}");
    }
    let (code, _, err) = run(on_squad(folder).args(["--max-drop", "1", "-o", "x.frazil"]));
    assert_eq!(code, Some(2));
    assert!(err.contains("0.5pt"), "{err}");
    let (code, _, err) = run(on_squad(folder).args(["-o", "model.bin"]));
    assert_eq!(code, Some(2));
    assert!(err.contains("end it in `.frazil`"), "{err}");
}

#[test]
fn a_classifier_by_the_scores_of_its_task() {
    let (Some(model), Some(data)) =
        (shared("fixtures/classifier/model.ckpt-27.index"), shared("fixtures/data/MRPC"))
    else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_frazil"));
    command.current_dir(folder.path()).arg("quantize").arg(model.with_extension(""));
    command.arg("--bert-config").arg(asset("bert_config.json"));
    command.arg("--vocab").arg(asset("vocab.txt")).args(["--task", "mrpc", "--metric", "f1"]);
    command.arg("--evaluation").arg(data);
    let (code, out, err) = run(command.args(["--max-drop", "15pt", "-o", "int8.frazil"]));
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(err.contains("train.tsv"), "calibrated on the rows for training: {err}");
    let report = report(folder.path(), "int8.quantize");
    assert_eq!((&report["task"], &report["metric"]["name"]), (&"MRPC".into(), &"f1".into()));
    assert_eq!(report["goal"]["criterion"]["absolute"], 0.15);
    assert_eq!(report["evaluated_on"]["examples"], 17);
}

/// A model of one's own, and its inputs.
fn own() -> (Graph, Vec<Inputs>) {
    let options = frazil::source::GraphOptions {
        config: Some(asset("bert_config.json")),
        head: Some(frazil::bert::Head::Squad),
        ..Default::default()
    };
    let graph = frazil::source::open_graph(asset("squad/model.ckpt"), &options).unwrap().graph;
    let batch = |seed: i32| {
        let row = |value: &dyn Fn(i32) -> i32| {
            Tensor::from_vec([2, 24], (0..48).map(value).collect::<Vec<i32>>()).unwrap()
        };
        Inputs::from([
            ("input_ids".into(), row(&|i| (i * 37 + seed * 11) % 800 + 5)),
            ("input_mask".into(), row(&|_| 1)),
            ("segment_ids".into(), row(&|i| i32::from(i % 24 > 9))),
        ])
    };
    (graph, (0..4).map(batch).collect())
}

fn logits(engine: &Engine, inputs: &[Inputs]) -> Vec<f32> {
    let run = |inputs| engine.run(inputs).unwrap().outputs;
    inputs.iter().flat_map(run).flat_map(|(_, t)| t.values::<f32>().unwrap().into_owned()).collect()
}

#[test]
fn model_data_and_evaluation_are_the_user_s_to_give() {
    let (graph, inputs) = own();
    let wanted = logits(&Engine::new(&graph, &EngineOptions::default()).unwrap(), &inputs);
    let mut calls = 0;
    // The share of places where the sign is the same.
    let evaluate = |engine: &Engine| {
        calls += 1;
        let found = logits(engine, &inputs);
        let same = found.iter().zip(&wanted).filter(|(a, b)| a.signum() == b.signum()).count();
        same as f64 / wanted.len() as f64
    };
    let mut search = Search::default();
    search.config.tuning.criterion = Criterion::Absolute(0.1);
    let given = Given {
        graph,
        engine: EngineOptions::default(),
        calibration: inputs.clone(),
        evaluation: Evaluation::function(evaluate),
        subset: 0,
        seed: 1,
    };
    let tuned = tune(given, &search, &|_| {}).unwrap();
    assert_eq!(tuned.outcome.verdict, Verdict::Met);
    assert_eq!(tuned.outcome.baseline.accuracy, 1.0);
    assert!(calls >= 2);
    let bytes = tuned.graph.nodes().filter(|(_, node)| matches!(node.op, Op::Scaled(_))).count();
    assert_eq!(bytes, 12);
    let found =
        logits(&Engine::from_graph(tuned.graph, &EngineOptions::default()).unwrap(), &inputs);
    let off = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(off > 0.0 && off < 0.5, "{off}");
}

#[test]
fn what_is_no_number_is_named() {
    let (mut graph, inputs) = own();
    let given = |graph: &Graph, calibration: Vec<Inputs>| Given {
        graph: graph.clone(),
        engine: EngineOptions::default(),
        calibration,
        evaluation: Evaluation::function(|_| 1.0),
        subset: 0,
        seed: 1,
    };
    let failed = |given| match tune(given, &Search::default(), &|_| {}) {
        Ok(_) => panic!("it is refused"),
        Err(error) => error,
    };
    let error = failed(given(&graph, Vec::new()));
    assert_eq!(error.to_string(), "the calibration set is empty");
    // Numbers all of them, until they are multiplied.
    let id = graph.find("bert/embeddings/LayerNorm/gamma").unwrap();
    let length = graph.node(id).op.as_const().unwrap().shape()[0];
    graph.node_mut(id).op =
        Op::constant(Tensor::from_vec([length], vec![3e38f32; length]).unwrap());
    let error = failed(given(&graph, inputs));
    let text = error.to_string();
    assert!(text.contains("inf at element") && text.contains("of batch 1"), "{text}");
    assert!(error.hint().unwrap().contains("healthy"), "{:?}", error.hint());
}

#[test]
fn records_are_the_windows_of_their_questions() {
    let Some(records) = shared("fixtures/squad/v1.1/eval.tf_record") else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let with = |more: &[&str]| {
        let mut command = quantize(folder);
        command.arg("--evaluation").arg(&records).arg("--calibration").arg(&records);
        command.args(["--max-drop", "5%", "-o", "int8.frazil"]).args(more);
        run(&mut command)
    };
    let labels = asset("squad/dev-v1.1.json");
    let labels = labels.to_str().unwrap();
    let (code, out, err) = with(&["--labels", labels]);
    assert_eq!(code, Some(0), "{out}{err}");
    let report = report(folder, "int8.quantize");
    let (on, of) = (&report["evaluated_on"], &report["calibrated_on"]);
    assert_eq!((&on["examples"], &on["sequences"]), (&13.into(), &37.into()));
    assert_eq!((&of["examples"], &of["sequences"]), (&0.into(), &37.into()));
    let (code, _, err) = with(&[]);
    assert_eq!(code, Some(2));
    assert!(err.contains("has windows, but no answers") && err.contains("--labels"), "{err}");
    let (code, _, err) = with(&["--labels", labels, "--max-query-length", "9"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("is not the window that"), "{err}");
}

#[test]
fn tune_squad_in_the_original_s_words() {
    let (Some(model), Some(records)) = (
        shared("fixtures/squad/lpot/bert_fp32_google_modeling.pb"),
        shared("fixtures/squad/v1.1/eval.tf_record"),
    ) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (labels, vocabulary) = (asset("squad/dev-v1.1.json"), asset("vocab.txt"));
    let (records, labels) = (records.display(), labels.display());
    let data = format!("bert: {{root: '{records}', label_file: '{labels}'}}");
    let yaml = format!(
        "{RECIPE_5}
evaluation:
  accuracy:
    metric:
      SquadF1:
    dataloader:
      batch_size: 4
      dataset: {{{data}}}
    postprocess:
      transform:
        SquadV1: {{label_file: '{labels}', vocab_file: '{}'}}
  performance:
    iteration: 3
    configs:
      kmp_blocktime: 1
    dataloader:
      batch_size: 2
      dataset: {{{data}}}
",
        vocabulary.display()
    );
    fs::write(folder.join("bert.yaml"), yaml).unwrap();
    let tune_squad = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_frazil"));
        command.current_dir(folder).arg("tune_squad").args(["--doc_stride=32"]).args(words);
        run(&mut command)
    };
    let input = format!("--input_model={}", model.display());
    let (code, out, err) = tune_squad(&[&input, "--output_model=int8.frazil", "--tune"]);
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(err.contains("kmp_blocktime`: there is no OpenMP here"), "{err}");
    assert!(err.contains("were taken out"), "not calibrated on what is evaluated: {err}");
    assert!(out.contains("goal met"), "{out}");
    for (mode, batch) in [("accuracy", 4), ("performance", 2)] {
        let mode_flag = format!("--mode={mode}");
        let words = ["--input_model=int8.frazil", "--benchmark", &mode_flag];
        let (code, out, err) = tune_squad(&words);
        assert_eq!(code, Some(0), "{out}{err}");
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[..2], ["", &format!("{mode} mode benchmark result:")]);
        match mode {
            "accuracy" => assert_eq!(lines[2], "Accuracy is 69.231"),
            _ => assert_eq!(lines[2], "Accuracy is not measured in this mode"),
        }
        assert_eq!(lines[3], format!("Batch size = {batch}"));
        let number = |line: &str, before: &str, after: &str| {
            let digits = line.strip_prefix(before).and_then(|line| line.strip_suffix(after));
            digits.unwrap_or_else(|| panic!("{line}")).parse::<f64>().unwrap()
        };
        let latency = number(lines[4], "Latency: ", " ms");
        let throughput = number(lines[5], "Throughput: ", " sequences/sec");
        assert!((latency * throughput / 1000.0 - 1.0).abs() < 0.05, "{out}");
    }
    let (code, _, err) = tune_squad(&[&input]);
    assert_eq!(code, Some(2));
    assert!(err.contains("either `--tune` or `--benchmark`"), "{err}");
}
