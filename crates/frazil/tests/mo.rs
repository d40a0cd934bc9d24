//! Recipe 4 of OpenVINO's documentation, word for word but for paths, on graphs that the original
//! code made.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::Path;
use std::process::{Command, Output};

use frazil::convert::openvino;
use frazil::graph::{Op, infer};
use frazil::tensor::DType;
use frazil::tensor::testing::shared;

/// Runs `mo` with these words in `folder`.
fn mo(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_frazil"));
    command.arg("mo").args(words).current_dir(folder).output().unwrap()
}

fn stdout(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The closing lines, with the files that they name.
fn check_lines(text: &str, folder: &Path, name: &str) {
    let folder = folder.canonicalize().unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "[ SUCCESS ] Generated IR version 11 model.");
    for (line, kind, extension) in [(lines[1], "XML", "xml"), (lines[2], "BIN", "bin")] {
        let path = folder.join(format!("{name}.{extension}"));
        assert_eq!(line, format!("[ SUCCESS ] {kind} file: {}", path.display()));
        assert!(path.is_file());
    }
    assert!(lines[3].starts_with("[ SUCCESS ] Total execution time: "), "{text}");
    let here = std::fs::read_dir(&folder).unwrap().count();
    assert_eq!(here, 2, "nothing but the two files");
}

/// Names, types and shapes of the inputs and outputs of what was written.
fn ends(folder: &Path, name: &str) -> Vec<String> {
    let graph = openvino::import(&folder.join(format!("{name}.xml"))).unwrap();
    assert!(!graph.nodes().any(|(_, node)| matches!(node.op, Op::Foreign(_))));
    let facts = infer(&graph).unwrap();
    let ports = graph.inputs.iter().chain(&graph.outputs);
    ports.map(|port| format!("{} {}", port.name, facts[port.value])).collect()
}

#[test]
fn the_pre_trained_model() {
    let Some(meta) = shared("fixtures/meta/bert_model.ckpt.meta") else { return };
    let folder = tempfile::tempdir().unwrap();
    let output = mo(
        folder.path(),
        &[
            "--input_meta_graph",
            meta.to_str().unwrap(),
            "--output",
            "bert/pooler/dense/Tanh",
            "--input",
            "Placeholder{i32},Placeholder_1{i32},Placeholder_2{i32}",
        ],
    );
    check_lines(&stdout(&output), folder.path(), "bert_model.ckpt");
    assert_eq!(
        ends(folder.path(), "bert_model.ckpt"),
        [
            "Placeholder int32 [4, 128]",
            "Placeholder_1 int32 [4, 128]",
            "Placeholder_2 int32 [4, 128]",
            "bert/pooler/dense/Tanh float32 [4, 64]",
        ]
    );
}

#[test]
fn the_reshapable_model() {
    let Some(graph) = shared("fixtures/reshapable/inference_graph.pb") else { return };
    let folder = tempfile::tempdir().unwrap();
    let words = [
        "--input_model",
        graph.to_str().unwrap(),
        "--input",
        "IteratorGetNext:0{i32}[1 128],IteratorGetNext:1{i32}[1 128],IteratorGetNext:4{i32}[1 128]",
    ];
    check_lines(&stdout(&mo(folder.path(), &words)), folder.path(), "inference_graph");
    assert_eq!(
        ends(folder.path(), "inference_graph"),
        [
            "IteratorGetNext:0 int32 [1, 128]",
            "IteratorGetNext:1 int32 [1, 128]",
            "IteratorGetNext:4 int32 [1, 128]",
            "bert/pooler/dense/Tanh float32 [1, 64]",
        ]
    );
    // The shapes are computed when the model runs, so that it can be reshaped; unless told so.
    let xml = |folder: &Path| std::fs::read_to_string(folder.join("inference_graph.xml")).unwrap();
    assert!(xml(folder.path()).contains("type=\"ShapeOf\""));
    let folder = tempfile::tempdir().unwrap();
    let fixed = [&words[..], &["--static_shape", "--compress_to_fp16"]].concat();
    check_lines(&stdout(&mo(folder.path(), &fixed)), folder.path(), "inference_graph");
    let xml = xml(folder.path());
    assert!(!xml.contains("type=\"ShapeOf\""));
    assert!(xml.contains("name=\"decompression\""));
    assert!(xml.contains("type=\"MVN\"") && xml.contains("approximation_mode=\"TANH\""));
}

#[test]
fn the_input_pipeline_is_cut_by_itself() {
    let Some(graph) = shared("fixtures/reshapable/inference_graph.pb") else { return };
    let folder = tempfile::tempdir().unwrap();
    let graph = graph.to_str().unwrap();
    let out = folder.path().join("made/on/the/way");
    let output = mo(folder.path(), &["-m", graph, "-o", out.to_str().unwrap(), "-n", "bert"]);
    check_lines(&stdout(&output), &out, "bert");
    let ends = ends(&out, "bert");
    assert_eq!(ends.len(), 4, "{ends:?}");
    assert!(ends[0].starts_with("IteratorGetNext:0 int32 ["), "{ends:?}");
    // One of three is not enough, and the message has the whole line.
    let folder = tempfile::tempdir().unwrap();
    let output = mo(folder.path(), &["-m", graph, "--input", "IteratorGetNext:0", "-o", "x/y"]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors.contains("hint: "), "{errors}");
    assert!(errors.contains("--input \"IteratorGetNext:0["), "{errors}");
    assert!(errors.contains(",IteratorGetNext:4["), "{errors}");
    assert!(!folder.path().join("x/y").exists());
}

#[test]
fn shapes_types_and_values() {
    let Some(graph) = shared("fixtures/reshapable/inference_graph.pb") else { return };
    let run = |words: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let words = [&["-m", graph.to_str().unwrap(), "-n", "m", "--silent"], words].concat();
        let output = mo(folder.path(), &words);
        stdout(&output);
        let xml = std::fs::read_to_string(folder.path().join("m.xml")).unwrap();
        (ends(folder.path(), "m"), xml)
    };
    let names = "IteratorGetNext:0,IteratorGetNext:1,IteratorGetNext:4";
    let (_, xml) = run(&["--input", names, "--input_shape", "[?,128],(1..8,128),[-1,128]"]);
    // There is one batch, so bounds of one input are bounds of all.
    assert_eq!(xml.matches("shape=\"1..8,128\" element_type=\"i32\"").count(), 3);
    let (_, xml) = run(&["--input", names, "--input_shape", "[?,128],(?,128),[-1,128]"]);
    assert_eq!(xml.matches("shape=\"?,128\" element_type=\"i32\"").count(), 3);
    let (known, _) = run(&["--input", names, "--batch", "3"]);
    assert_eq!(known[0], "IteratorGetNext:0 int32 [3, 128]");
    assert_eq!(known[3], "bert/pooler/dense/Tanh float32 [3, 64]");
    let zeros = vec!["0"; 128].join(" ");
    let frozen = format!(
        "IteratorGetNext:0[1 128],IteratorGetNext:1[1 128],IteratorGetNext:4[1 128]->[{zeros}]"
    );
    let (two, _) = run(&["--input", &frozen]);
    assert_eq!(two.len(), 3, "{two:?}");
    // The order is the user's; a cut in the middle is an input like any other.
    let (turned, _) = run(&[
        "--input",
        "IteratorGetNext:1[1 128],bert/embeddings/LayerNorm/batchnorm/add_1[1 128 64],\
         IteratorGetNext:0[1 128]",
        "--output",
        "bert/encoder/layer_0/output/LayerNorm/batchnorm/add_1,bert/pooler/dense/Tanh",
    ]);
    assert_eq!(turned[0], "IteratorGetNext:1 int32 [1, 128]");
    assert!(
        turned[1].starts_with("bert/embeddings/LayerNorm/batchnorm/add_1 float32 [1, 128, 64]")
    );
    // Of the ids only the shape was wanted, which the others have.
    assert_eq!(turned.len(), 4);
}

#[test]
fn mistakes_are_explained_and_leave_nothing() {
    let Some(graph) = shared("fixtures/reshapable/inference_graph.pb") else { return };
    let graph = graph.to_str().unwrap();
    let meta = shared("fixtures/meta/bert_model.ckpt.meta").unwrap();
    let meta = meta.to_str().unwrap();
    let index = meta.replace(".meta", ".index");
    let cases: [(&[&str], &str, &str); 9] = [
        (&[], "no model is given", "--input_meta_graph"),
        (&["-m", meta], "is a MetaGraph", "write `--input_meta_graph"),
        (&["-m", &index], "is a checkpoint", "--input_checkpoint"),
        (&["-m", graph, "--output", "bert/pooler/dense/Tanhh"], "no node is named", "did you mean"),
        (&["-m", graph, "--output", "bert/pooler/dense/Tanh:1"], "there is no", ""),
        (&["-m", graph, "--input", "IteratorGetNext:99"], "there is no `IteratorGetNext:99`", ""),
        (&["-m", graph, "--input_shape", "[1,x]"], "`x` is no extent", "positive numbers"),
        (&["-m", graph, "--mean_values", "[1]"], "prepares images", "leave"),
        (
            &["-m", graph, "--input", "IteratorGetNext:3", "--output", "bert/pooler/dense/Tanh"],
            "",
            "",
        ),
    ];
    for (words, wanted, hint) in cases {
        let folder = tempfile::tempdir().unwrap();
        let output = mo(folder.path(), words);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {errors}");
        assert!(errors.contains(wanted) && errors.contains(hint), "{words:?}: {errors}");
        assert!(errors.contains("error: "), "{errors}");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "{words:?}");
    }
}

#[test]
fn a_checkpoint_beside_its_graph() {
    let Some(meta) = shared("fixtures/meta/bert_model.ckpt.meta") else { return };
    let folder = tempfile::tempdir().unwrap();
    // The .index leads to the .meta, and types are as in the graph.
    let index = meta.to_str().unwrap().replace(".meta", ".index");
    let output =
        mo(folder.path(), &["--input_meta_graph", &index, "--output", "bert/pooler/dense/Tanh"]);
    check_lines(&stdout(&output), folder.path(), "bert_model.ckpt");
    let graph = openvino::import(&folder.path().join("bert_model.ckpt.xml")).unwrap();
    let facts = infer(&graph).unwrap();
    assert!(graph.inputs.iter().all(|port| facts[port.value].dtype == Some(DType::I32)));
}
