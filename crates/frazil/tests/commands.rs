//! The commands around frazil itself: help, doctor, shims, completions, manual pages.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn frazil(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_frazil"));
    command.args(args).env_remove("CARGO_MANIFEST_DIR").output().unwrap()
}

fn said(args: &[&str]) -> String {
    let output = frazil(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn alone_it_says_what_there_is() {
    let help = said(&[]);
    assert_eq!(help, said(&["help"]));
    assert_eq!(help, said(&["--help"]));
    for text in ["See what you have:", "Run it:", "Make it fast:", "frazil itself:"] {
        assert!(help.contains(text), "{help}");
    }
}

#[test]
fn an_old_tools_help_has_examples() {
    for tool in ["freeze_graph", "run_squad", "mo", "saved_model_cli", "create_tf_record"] {
        let help = said(&[tool, "--help"]);
        assert!(help.matches(&format!("frazil {tool} ")).count() >= 2, "{tool}: {help}");
    }
}

#[test]
fn pre_training_says_what_it_does() {
    for tool in ["pretrain", "bert", "create_submission"] {
        for flag in ["--help", "-h"] {
            let help = said(&[tool, flag]);
            assert_eq!(help.matches("\nExamples:\n").count(), 1, "{help}");
            let help = help.replace('\n', " ");
            for text in [&format!("Usage: frazil {tool} "), "--num-layers <N>", "counts more than"]
            {
                assert!(help.contains(text), "{text}: {help}");
            }
        }
    }
    let help = said(&["help", "run_squad"]);
    assert!(help.contains("--doc_stride <N>") && !help.contains("[ARGUMENTS]"), "{help}");
}

#[test]
fn the_doctor_finds_nothing_wrong() {
    let text = said(&["doctor", "--seconds", "0"]);
    assert!(text.contains("every kernel computes what plain code does"), "{text}");
    let report: Value =
        serde_json::from_str(&said(&["doctor", "--seconds", "0", "--json"])).unwrap();
    assert_eq!(report["good"], true);
    assert!(report["threads"].as_u64() >= Some(1));
    let checks = report["checks"].as_array().unwrap();
    let fast = report["available"].as_array().unwrap().len() - 1;
    assert_eq!(checks.len(), 8 * fast);
    let bad = Command::new(env!("CARGO_BIN_EXE_frazil"))
        .args(["doctor", "--seconds", "0"])
        .env("FRAZIL_ISA", "sse9")
        .output()
        .unwrap();
    assert_eq!(bad.status.code(), Some(2));
    let error = String::from_utf8_lossy(&bad.stderr);
    assert!(error.contains("`sse9`") && error.contains("`scalar`, `avx2`"), "{error}");
    assert!(report["commit"].is_null() || report["commit"].is_string());
}

#[cfg(unix)]
#[test]
fn shims_are_the_old_tools() {
    let folder = tempfile::tempdir().unwrap();
    let tools = folder.path().join("tools");
    let tools = tools.to_str().unwrap();
    let text = said(&["shims", tools]);
    assert!(text.contains("not on the PATH yet"), "{text}");
    for (tool, word) in [("freeze_graph", "--input_meta_graph"), ("mo", "--input_model")] {
        let output = Command::new(Path::new(tools).join(tool)).arg("--help").output().unwrap();
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).contains(word));
    }
    // Again: nothing changes. Something else of that name: only by force.
    assert!(said(&["shims", tools]).contains("(as before)"));
    let squad = Path::new(tools).join("run_squad");
    std::fs::remove_file(&squad).unwrap();
    std::fs::write(&squad, "my own").unwrap();
    let refused = frazil(&["shims", tools]);
    assert_eq!(refused.status.code(), Some(2));
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(
        error.contains("is not frazil") && error.contains("hint: give another folder"),
        "{error}"
    );
    assert_eq!(std::fs::read_to_string(&squad).unwrap(), "my own");
    said(&["shims", tools, "--force"]);
    assert!(squad.is_symlink());
    let left = std::fs::read_dir(tools).unwrap().count();
    let report: Value = serde_json::from_str(&said(&["shims", tools, "--json"])).unwrap();
    assert_eq!(report["kept"].as_array().unwrap().len(), left, "nothing half-made is left");
}

#[test]
fn shells_and_man_know_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = said(&["completions", shell]);
        let words = ["inspect", "verify-weights", "run_squad", "compare"];
        // Flags of the old tools, too, and of pre-training.
        for word in words.into_iter().chain(["doc_stride", "lr-bert-schedule", "output_node_names"])
        {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("man1");
    let text = said(&["man", path.to_str().unwrap()]);
    let pages = std::fs::read_dir(&path).unwrap().count();
    assert!(text.contains(&format!("wrote {pages} pages")), "{text}");
    for page in ["frazil.1", "frazil-inspect.1", "frazil-predict-answer.1", "frazil-freeze_graph.1"]
    {
        let page = std::fs::read_to_string(path.join(page)).unwrap();
        assert!(page.contains(".SH") && page.contains("frazil"), "{page}");
    }
    let page = std::fs::read_to_string(path.join("frazil-run_squad.1")).unwrap();
    assert!(page.contains("doc_stride"), "{page}");
    let page = std::fs::read_to_string(path.join("frazil-bench.1")).unwrap();
    assert!(page.contains("Examples:"), "{page}");
}

/// Whoever reads the talk may leave: the work is done all the same.
#[test]
fn talk_that_nobody_reads_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("text"), "One two.\nThree four.\n\nFive six.\n").unwrap();
    let vocabulary = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/demo/vocab.txt");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = Command::new(env!("CARGO_BIN_EXE_frazil"))
        .args(["create_pretraining_data", "--input_file=text", "--output_file=records"])
        .arg(format!("--vocab_file={}", vocabulary.display()))
        .current_dir(folder.path())
        .stderr(writer)
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    assert!(folder.path().join("records").exists());
}
