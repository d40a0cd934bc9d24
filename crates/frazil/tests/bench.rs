//! `frazil bench` and `frazil compile` as a user calls them: what the report has, and what the process
//! takes of the machine's memory.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A configuration whose weights, `weights(config)` bytes of float32, outweigh the program itself.
fn config(folder: &Path) -> PathBuf {
    let path = folder.join("bert_config.json");
    let text = r#"{"vocab_size": 1000, "hidden_size": 768, "num_hidden_layers": 4,
        "num_attention_heads": 12, "intermediate_size": 3072, "hidden_act": "gelu",
        "max_position_embeddings": 128, "type_vocab_size": 2}"#;
    std::fs::write(&path, text).unwrap();
    path
}

/// A configuration that costs nothing.
fn small(folder: &Path) -> String {
    let path = folder.join("small.json");
    let text = r#"{"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 128, "hidden_act": "gelu",
        "max_position_embeddings": 64, "type_vocab_size": 2}"#;
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Megabytes of the weights of that configuration: products alone, all else is small beside them.
const WEIGHTS_MB: f64 = 4.0 * 12.0 * 768.0 * 768.0 * 4.0 / 1e6;

/// Of the program, its libraries, its threads' stacks and the memory of a run, in a debug build.
const PROGRAM_MB: f64 = 40.0;

fn frazil(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_frazil"))
        .args(args)
        .env("FRAZIL_THREADS", "2")
        .output()
        .unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn bench(args: &[&str]) -> Value {
    let mut all = vec!["bench", "--seq", "32", "--iterations", "2", "--json"];
    all.extend_from_slice(args);
    serde_json::from_str(&frazil(&all)).unwrap()
}

#[test]
fn the_report_has_what_it_promises() {
    let folder = tempfile::tempdir().unwrap();
    let small = &small(folder.path());
    let report = bench(&["--random-weights", small, "--batch", "3"]);
    let numbers = [
        "median_ms",
        "p90_ms",
        "min_ms",
        "batch_median_ms",
        "batch_p99_ms",
        "instances",
        "sequences_per_s",
        "tokens_per_s",
        "gflops",
        "percent_of_peak",
        "threads",
    ];
    for of in [&report, &report["variants"][0]] {
        assert!(of["isa"].is_string());
        for key in numbers {
            assert!(of[key].as_f64().is_some_and(|x| x > 0.0), "{key}: {}", of[key]);
        }
        assert!(of["min_ms"].as_f64() <= of["median_ms"].as_f64());
        assert!(of["median_ms"].as_f64() <= of["p90_ms"].as_f64());
    }
    assert!(report["peak_rss_mb"].as_f64() >= report["resident_mb"].as_f64());
    assert!(report["resident_mb"].as_f64() > Some(1.0));
    assert_eq!((report["tokens"].as_u64(), report["iterations"].as_u64()), (Some(96), Some(2)));

    let compared = bench(&["--random-weights", small, "--compare", "scalar,int8", "--profile"]);
    let variants = compared["variants"].as_array().unwrap();
    assert_eq!(variants.len(), 2);
    assert_eq!((&variants[0]["isa"], &variants[0]["int8"]), (&"scalar".into(), &false.into()));
    assert_eq!((&variants[1]["name"], &variants[1]["int8"]), (&"int8".into(), &true.into()));
    assert_eq!(compared["median_ms"], variants[0]["median_ms"]);
    for variant in variants {
        assert!(variant["speedup"].as_f64().is_some_and(|x| x > 0.0));
        let steps = variant["profile"].as_array().unwrap();
        let linear = steps.iter().find(|step| step["kind"].as_str().unwrap().contains("linear"));
        for key in ["seconds", "operations", "bytes", "steps"] {
            assert!(linear.unwrap()[key].as_f64().is_some_and(|x| x > 0.0), "{key}");
        }
    }
}

/// Every key of a report, wherever it stands.
fn keys(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            found.extend(map.keys().cloned());
            map.values().for_each(|value| keys(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| keys(value, found)),
        _ => {}
    }
}

/// What a command that must fail says.
fn refused(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_frazil")).args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn files_are_compared_and_told_on_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (small, plain, int8, page) =
        (small(folder.path()), path("f32.frazil"), path("int8.frazil"), path("report.html"));
    frazil(&["compile", "--random-weights", &small, "-o", &plain]);
    frazil(&["compile", "--random-weights", &small, "--int8", "-o", &int8]);
    let both = format!("{plain},{int8}+threads=1");
    let report = bench(&["--compare", &both, "--report", &page, "--profile"]);
    let variants = report["variants"].as_array().unwrap();
    assert_eq!((&variants[0]["int8"], &variants[1]["int8"]), (&false.into(), &true.into()));
    assert_eq!(variants[1]["threads"], 1);
    assert_eq!(
        (&variants[0]["model"], &variants[1]["model"]),
        (&plain.into(), &int8.clone().into())
    );
    assert_eq!(report["model"], variants[0]["model"]);
    let html = std::fs::read_to_string(&page).unwrap();
    let title =
        format!("<h1>How fast {} runs here</h1>", folder.path().join("f32.frazil").display());
    assert!(html.contains(&title), "{html}");
    for words in ["Throughput, all instances together", "Time of a batch", "Time by kind of step"] {
        assert!(html.contains(&format!("<figcaption>{words}</figcaption>")), "{words}");
    }

    let error = refused(&["bench", &int8, "--compare", "f32,int8"]);
    assert!(error.contains("there is no f32") && error.contains("hint: compare it"), "{error}");
    let error = refused(&["bench", &int8, "--compare", &both]);
    assert!(error.contains("every variant of `--compare` names its own"), "{error}");
    let error = refused(&["bench"]);
    assert!(error.contains("there is no model to measure"), "{error}");
    let error = refused(&["bench", &int8, "--compare", "packed,fast"]);
    assert!(error.contains("`fast` is neither a variant, nor instructions, nor a file"), "{error}");
    let error = refused(&["bench", &int8, "--compare", "threads=0"]);
    assert!(error.contains("`threads=0`: a number from 1 on is wanted"), "{error}");
}

#[test]
fn instances_run_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let small = small(folder.path());
    let args = ["--random-weights", &small, "--batch", "2", "--cores-per-instance", "1"];
    let report = bench(&[&args[..], &["--instances", "3", "--profile"]].concat());
    assert_eq!((report["instances"].as_u64(), report["threads"].as_u64()), (Some(3), Some(1)));
    let each = report["instance_median_ms"].as_array().unwrap();
    assert_eq!(each.len(), 3);
    // No instance is faster than its fastest pass: together they cannot do more than that.
    let fastest = report["min_ms"].as_f64().unwrap() / 1e3;
    let most = 3.0 * 2.0 / fastest;
    assert!(report["sequences_per_s"].as_f64().is_some_and(|x| x > 0.0 && x <= most * 1.001));
    assert_eq!(report["peaks"][0]["threads"], 3);

    let compared = bench(
        &[&args[..4], &["--compare", "instances=1+threads=2,instances=2+threads=1,instances=2"]]
            .concat(),
    );
    let how = |i: usize| {
        let variant = &compared["variants"][i];
        (variant["instances"].as_u64().unwrap(), variant["threads"].as_u64().unwrap())
    };
    // Without a number of threads, the instances share the cores (here: `FRAZIL_THREADS`).
    assert_eq!([how(0), how(1), how(2)], [(1, 2), (2, 1), (2, 1)]);

    let error = refused(&["bench", "--random-weights", &small, "--instances", "9999999"]);
    assert!(error.contains("more than 2048 threads"), "{error}");

    let mut found = Vec::new();
    keys(&report, &mut found);
    let reference = include_str!("../../../docs/reference/bench.md");
    for key in found {
        assert!(
            reference.contains(&format!("`{key}`")),
            "`{key}` is not in docs/reference/bench.md"
        );
    }
}

/// A line of a benchmark: what stands behind its beginning, up to the next blank.
fn figure<'a>(text: &'a str, start: &str) -> &'a str {
    let rest = text.lines().find_map(|line| line.strip_prefix(start));
    rest.and_then(|rest| rest.split(' ').next()).unwrap_or_else(|| panic!("no `{start}`: {text}"))
}

#[test]
fn the_performance_section_of_a_tuning_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let asset = |name: &str| format!("{}/tests/fixtures/tf1/{name}", env!("CARGO_MANIFEST_DIR"));
    let (model, config, checkpoint) =
        (path("f32.pb"), asset("bert_config.json"), asset("squad/model.ckpt"));
    frazil(&["freeze", &checkpoint, "--config", &config, "--head", "squad", "-o", &model]);
    let yaml = path("bert.yaml");
    let text = "model: {name: bert, framework: tensorflow}
evaluation:
  performance:
    warmup: 2
    iteration: 6
    configs: {cores_per_instance: 1, num_of_instance: 3}
    dataloader: {batch_size: 2}
";
    let given = [
        "tune_squad",
        &format!("--config={yaml}"),
        &format!("--input_model={model}"),
        &format!("--vocab_file={}", asset("vocab.txt")),
        &format!("--predict_file={}", asset("squad/dev-v1.1.json")),
        "--max_seq_length=128",
        "--doc_stride=32",
        "--benchmark",
    ];
    let run = |text: &str| {
        std::fs::write(&yaml, text).unwrap();
        frazil(&given)
    };
    let several = run(text);
    assert_eq!(figure(&several, "Batch size = "), "2");
    assert!(several.contains("Instances = 3, cores per instance = 1\n"), "{several}");
    let number = |text: &str, start: &str| figure(text, start).parse::<f64>().unwrap();
    // Three at once: together they do at most three times what the latency of one allows.
    let most = 3.0 * 1e3 / number(&several, "Latency: ");
    let throughput = number(&several, "Throughput: ");
    assert!(throughput > 0.0 && throughput <= most * 1.001, "{several}");
    assert!(several.contains("performance mode benchmark result:"), "{several}");

    let one = run(&text.replace(", num_of_instance: 3", ""));
    assert!(!one.contains("Instances"), "{one}");
    let product = number(&one, "Latency: ") / 1e3 * number(&one, "Throughput: ");
    // Windows that run one after the other: all the time is theirs. Both figures have three places.
    assert!((product - 1.0).abs() < 0.02, "{one}");

    std::fs::write(&yaml, text.replace("iteration: 6", "iteration: 99999999999")).unwrap();
    let error = refused(&given);
    assert!(error.contains("batches are asked for"), "{error}");
}

#[cfg(target_os = "linux")]
#[test]
fn memory_is_the_weights_and_little_more() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let config = config.to_str().unwrap();
    let most = |report: &Value, part: f64| {
        let peak = report["peak_rss_mb"].as_f64().unwrap();
        assert!(peak < part * WEIGHTS_MB + PROGRAM_MB, "{peak} MB for {WEIGHTS_MB} MB, {part}");
    };
    most(&bench(&["--random-weights", config]), 1.15);
    for (int8, part) in [(None, 1.15), (Some("--int8"), 0.35)] {
        let file = folder.path().join("model.frazil");
        let file = file.to_str().unwrap();
        let mut args = vec!["compile", "--random-weights", config, "-o", file];
        args.extend(int8);
        frazil(&args);
        most(&bench(&[file]), part);
    }
}
