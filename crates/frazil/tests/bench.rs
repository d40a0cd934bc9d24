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
    let small = folder.path().join("small.json");
    let text = r#"{"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 128, "hidden_act": "gelu",
        "max_position_embeddings": 64, "type_vocab_size": 2}"#;
    std::fs::write(&small, text).unwrap();
    let small = small.to_str().unwrap();
    let report = bench(&["--random-weights", small, "--batch", "3"]);
    let numbers = [
        "median_ms",
        "p90_ms",
        "min_ms",
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
