//! `freeze_graph` as TensorFlow 1.15 has it: its results, its words, its exit codes.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use frazil::tensor::testing::shared;
use frazil::tf::graph_def;
use frazil::tf::proto::GraphDef;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/freeze_graph")
}

fn frazil(folder: &Path, words: &[String]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_frazil"))
        .arg("freeze_graph")
        .args(words)
        .current_dir(folder)
        .output()
        .unwrap()
}

/// Node for node, attribute for attribute, in order.
fn assert_same(found: &GraphDef, wanted: &GraphDef, case: &str) {
    let names = |def: &GraphDef| -> Vec<String> {
        def.node.iter().map(|node| format!("{} ({})", node.name, node.op)).collect()
    };
    assert_eq!(names(found), names(wanted), "{case}");
    for (found, wanted) in found.node.iter().zip(&wanted.node) {
        assert_eq!(found, wanted, "{case}");
    }
    assert_eq!(found, wanted, "{case}");
}

fn info(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().filter(|line| line.starts_with("INFO:")).map(str::to_owned).collect()
}

/// The last line of the original's traceback, without the kind of the exception.
fn message(error: &str) -> &str {
    error.split_once(": ").map_or(error, |(_, message)| message)
}

/// Where we differ on purpose: `docs/reference/freeze_graph.md` says why.
const DIFFERENT: [&str; 4] =
    ["resource_graph", "resource_blacklist", "meta_and_graph", "unknown_flags"];
/// Where the original says it in TensorFlow's inner words.
const OTHER_WORDS: [&str; 4] =
    ["renamed_meta", "renamed_graph", "renamed_graph_init", "saved_tags"];

#[test]
fn what_the_original_does() {
    let out = tempfile::tempdir().unwrap();
    let mut cases = 0;
    for entry in fs::read_dir(fixtures().join("results")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let case = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let original: serde_json::Value =
            serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        if DIFFERENT.contains(&case.as_str()) {
            continue;
        }
        let strings = |name: &str| -> Vec<String> {
            let list = original[name].as_array().unwrap();
            list.iter().map(|text| text.as_str().unwrap().to_owned()).collect()
        };
        let mut words = strings("arguments");
        let written = out.path().join(format!("{case}.pb"));
        if case != "no_output_file" {
            words.push(format!("--output_graph={}", written.display()));
        }
        let output = frazil(&fixtures(), &words);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let code = original["exit"].as_i64().unwrap();
        assert_eq!(i64::from(output.status.code().unwrap()), code, "{case}: {stderr}");
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert_eq!(stdout, original["stdout"].as_str().unwrap(), "{case}");
        assert_eq!(info(&output), strings("info"), "{case}: {stderr}");
        let error = original["error"].as_str().unwrap();
        if code != 0 && !OTHER_WORDS.contains(&case.as_str()) {
            let wanted = message(error).trim_start_matches("error: ");
            assert!(stderr.contains(wanted), "{case}: {stderr}\nnot: {wanted}");
        }
        let golden = path.with_extension("pb");
        assert_eq!(written.exists(), golden.exists(), "{case}: {stderr}");
        if golden.exists() {
            let found = graph_def::read(&written).unwrap();
            assert_same(&found, &graph_def::read(&golden).unwrap(), &case);
        }
        cases += 1;
    }
    assert!(cases >= 30, "{cases}");
}

fn freeze(folder: &Path, words: &[&str]) -> (GraphDef, Output) {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("frozen.pb");
    let mut words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    words.push(format!("--output_graph={}", path.display()));
    let output = frazil(folder, &words);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {stderr}");
    (graph_def::read(&path).unwrap(), output)
}

#[test]
fn where_the_original_fails_or_errs() {
    let golden =
        |case: &str| graph_def::read(fixtures().join(format!("results/{case}.pb"))).unwrap();
    // Resource variables by name: an IndexError there.
    let names = ["--input_graph=resource/graph.pbtxt", "--input_checkpoint=resource/model.ckpt"];
    let (found, _) = freeze(&fixtures(), &[&names[..], &["--output_node_names=z"]].concat());
    let mut wanted = golden("resource_meta");
    for node in &mut wanted.node {
        node.attr.remove("_output_shapes"); // the MetaGraph has them, the graph has not
    }
    assert_same(&found, &wanted, "by name");
    // A resource variable that stays one is still read as one.
    let meta = "--input_meta_graph=resource/model.ckpt.meta";
    let words = [meta, names[1], "--input_binary", "--output_node_names=z"];
    let (found, _) =
        freeze(&fixtures(), &[&words[..], &["--variable_names_blacklist=m/bias"]].concat());
    let wanted = golden("resource_blacklist");
    let mut differ = found.node.iter().zip(&wanted.node).filter(|(a, b)| a != b);
    let (ours, theirs) = differ.next().unwrap();
    assert_eq!((ours.op.as_str(), theirs.op.as_str()), ("ReadVariableOp", "Identity"));
    assert!(differ.next().is_none());
    // A text graph beside a binary MetaGraph: a DecodeError there.
    let words = ["--input_meta_graph=v1/model.ckpt.meta", "--input_graph=v1/graph.pbtxt"];
    let more = ["--input_checkpoint=v1/model.ckpt", "--output_node_names=z", "--input_binary"];
    let (found, output) = freeze(&fixtures(), &[&words[..], &more].concat());
    assert_same(&found, &golden("v1_meta"), "both");
    assert!(String::from_utf8_lossy(&output.stderr).contains("note: "));
    // Flags that do nothing are told.
    let words = ["--input_graph=v1/graph.pbtxt", more[0], more[1], "--nonsense=3", "stray"];
    let (found, output) = freeze(&fixtures(), &words);
    assert_same(&found, &golden("unknown_flags"), "unknown");
    assert_eq!(String::from_utf8_lossy(&output.stderr).matches("warning: ").count(), 2);
    let (found, _) = freeze(&fixtures(), &[&words[..3], &["--noclear_devices"]].concat());
    assert_eq!(found.node.iter().filter(|node| !node.device.is_empty()).count(), 1);
}

#[test]
fn the_classifier_of_recipe_2() {
    let Some(folder) = shared("fixtures/classifier") else { return };
    let golden = graph_def::read(folder.join("frozen_from_saved_model.pb")).unwrap();
    // Its command, paths aside: three sources, and the SavedModel wins.
    let (found, output) = freeze(
        &folder,
        &[
            "--input_graph=graph.pbtxt",
            "--input_binary=false",
            "--input_checkpoint=model.ckpt-27",
            "--input_saved_model_dir=saved_models/1794770949",
            "--output_node_names=loss/output",
        ],
    );
    assert_same(&found, &golden, "three sources");
    let messages = fs::read_to_string(folder.join("freeze_graph_b_messages.txt")).unwrap();
    let messages = messages.replace("/home/user/ml/tmp/classifier/", "");
    assert_eq!(info(&output), messages.lines().collect::<Vec<_>>());
    let alone = ["--input_saved_model_dir=saved_models/1794770949"];
    let (found, _) = freeze(&folder, &[&alone[..], &["--output_node_names=loss/output"]].concat());
    assert_same(&found, &golden, "the SavedModel");
}

#[test]
fn the_training_graph_in_every_way() {
    let Some(folder) = shared("fixtures/classifier") else { return };
    let golden = graph_def::read(folder.join("frozen_from_graph_pbtxt.pb")).unwrap();
    let graph = "--input_graph=graph.pbtxt";
    let ways: [&[&str]; 3] = [
        &[graph],
        &[graph, "--input_saver=saver.pbtxt"],
        &["--input_meta_graph=model.ckpt-27.meta", "--input_binary=true"],
    ];
    for way in ways {
        let rest = ["--input_checkpoint=model.ckpt-27", "--output_node_names=loss/output"];
        let (found, output) = freeze(&folder, &[way, &rest].concat());
        assert_same(&found, &golden, way[0]);
        let messages = fs::read_to_string(folder.join("freeze_graph_a2_messages.txt")).unwrap();
        let said = info(&output);
        assert!(said.ends_with(&messages.lines().map(str::to_owned).collect::<Vec<_>>()));
    }
}

/// The command of recipe 1, paths aside, by the old name of the tool.
#[cfg(unix)]
#[test]
fn the_pretrained_model_of_recipe_1() {
    let Some(folder) = shared("fixtures/pretrain") else { return };
    let out = tempfile::tempdir().unwrap();
    let tool = out.path().join("freeze_graph");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_frazil"), &tool).unwrap();
    let frozen = out.path().join("frozen.pb");
    let output = Command::new(&tool)
        .arg("--input_meta_graph=model.ckpt-40.meta")
        .arg("--input_checkpoint=model.ckpt-40")
        .arg("--output_node_names=add_1")
        .arg("--clear_devices")
        .arg(format!("--output_graph={}", frozen.display()))
        .arg("--input_binary=True")
        .current_dir(&folder)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(stdout, "Loaded meta graph file 'model.ckpt-40.meta\n");
    let wanted = [
        "INFO:tensorflow:Restoring parameters from model.ckpt-40",
        "INFO:tensorflow:Froze 46 variables.",
        "INFO:tensorflow:Converted 46 variables to const ops.",
    ];
    assert_eq!(info(&output), wanted);
    let def = graph_def::read(&frozen).unwrap();
    assert!(!def.node.iter().any(|node| node.op.starts_with("Variable")));
    assert_eq!(def.node.last().unwrap().name, "add_1");
}

#[test]
fn help_and_wrong_lines() {
    let run = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        frazil(&fixtures(), &words)
    };
    let output = run(&["--help"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("usage: freeze_graph"));
    for (words, code) in [
        (&["--input_graph"][..], 2),
        (&["--checkpoint_version=x"], 2),
        (&["--checkpoint_version=3"], 1),
        (&[], 1),
    ] {
        assert_eq!(run(words).status.code(), Some(code), "{words:?}");
    }
}
