//! Fusing on every real graph at hand: Google's code of several ages, frozen or not, training or
//! not, with fixed and free sizes, as the file has it and after cutting, folding and freezing.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::io::Read;
use std::path::Path;

use frazil_convert::tf::{ImportOptions, import};
use frazil_convert::{onnx, openvino, tf};
use frazil_graph::pass::{
    Fusions, Reshape, fold, freeze, fuse, lower, pack_rows, remove_dropout, reshape,
};
use frazil_graph::{Graph, Port, dump, infer};
use frazil_tensor::testing::shared;
use frazil_tf::checkpoint::Checkpoint;
use frazil_tf::proto::{GraphDef, MetaGraphDef};
use frazil_tf::{graph_def, meta_graph};
use prost::Message;

/// A graph and how often each rule applies to it.
struct Case {
    path: &'static str,
    outputs: &'static [&'static str],
    /// Next to the graph's file; where the variables' values are.
    checkpoint: Option<&'static str>,
    dropout: usize,
    layer_norm: usize,
    gelu: usize,
    linear: usize,
    attention: usize,
}

/// An encoder of two layers with its pooler, not training.
const ENCODER: Case = Case {
    path: "",
    outputs: &["bert/encoder/Reshape_3", "bert/pooler/dense/Tanh"],
    checkpoint: None,
    dropout: 0,
    layer_norm: 5,
    gelu: 2,
    linear: 13,
    attention: 2,
};

/// The same with the two heads of pre-training.
const PRETRAINING: Case = Case {
    outputs: &["cls/predictions/LogSoftmax", "cls/seq_relationship/LogSoftmax"],
    layer_norm: 6,
    gelu: 3,
    linear: 16,
    ..ENCODER
};

const SQUAD: Case = Case { outputs: &["unstack", "unstack:1"], ..ENCODER };

const CLASSIFIER: Case = Case { linear: 14, ..ENCODER };

const CASES: [Case; 18] = [
    Case {
        path: "fixtures/classifier/frozen_from_saved_model.pb",
        outputs: &["loss/output"],
        ..CLASSIFIER
    },
    Case {
        path: "fixtures/classifier/frozen_from_graph_pbtxt.pb",
        outputs: &["loss/BiasAdd"],
        dropout: 8,
        ..CLASSIFIER
    },
    Case {
        path: "fixtures/classifier/graph.pbtxt",
        outputs: &["loss/BiasAdd"],
        dropout: 8,
        ..CLASSIFIER
    },
    Case {
        path: "fixtures/classifier/model.ckpt-27.meta",
        outputs: &["loss/LogSoftmax"],
        checkpoint: Some("model.ckpt-27"),
        dropout: 8,
        ..CLASSIFIER
    },
    Case {
        path: "fixtures/meta/bert_model.ckpt.meta",
        checkpoint: Some("bert_model.ckpt"),
        ..ENCODER
    },
    Case {
        path: "fixtures/meta/bert_model.ckpt.meta",
        checkpoint: Some("bert_model.ckpt"),
        ..PRETRAINING
    },
    Case {
        path: "fixtures/meta/bert_model_dyn.ckpt.meta",
        checkpoint: Some("bert_model.ckpt"),
        ..PRETRAINING
    },
    Case {
        path: "fixtures/meta_tf111/bert_model.ckpt.meta",
        checkpoint: Some("bert_model.ckpt"),
        ..PRETRAINING
    },
    Case {
        path: "fixtures/meta_tf111/bert_model_dyn.ckpt.meta",
        checkpoint: Some("bert_model.ckpt"),
        ..PRETRAINING
    },
    Case {
        path: "fixtures/pretrain/model.ckpt-40.meta",
        checkpoint: Some("model.ckpt-40"),
        dropout: 7,
        ..PRETRAINING
    },
    Case { path: "fixtures/pretrain/graph.pbtxt.gz", dropout: 7, ..PRETRAINING },
    Case { path: "fixtures/reshapable/inference_graph.pb", ..ENCODER },
    Case { path: "fixtures/squad/lpot/bert_fp32_google_modeling.pb", ..SQUAD },
    Case { path: "fixtures/squad/lpot/bert_fp32_intel_modeling.pb", ..SQUAD },
    Case { path: "fixtures/squad/v1.1/model.ckpt-65.meta.gz", dropout: 7, ..SQUAD },
    Case {
        path: "data/checkpoints/google_chinese_L-12_H-768_A-12/bert_model.ckpt.meta",
        outputs: &["bert/pooler/dense/Tanh"],
        layer_norm: 25,
        gelu: 12,
        linear: 73,
        attention: 12,
        ..ENCODER
    },
    Case {
        path: "data/checkpoints/keras_bert_test_checkpoint/bert_model.ckpt.meta",
        checkpoint: Some("bert_model.ckpt"),
        dropout: 7,
        ..PRETRAINING
    },
    Case {
        path: "models/squad/model.ckpt-2232.meta",
        layer_norm: 13,
        gelu: 6,
        linear: 37,
        attention: 6,
        ..SQUAD
    },
];

fn read(path: &Path) -> GraphDef {
    let name = path.to_string_lossy();
    if let Some(inner) = name.strip_suffix(".gz") {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).unwrap();
        flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
        return if inner.ends_with(".meta") {
            MetaGraphDef::decode(bytes.as_slice()).unwrap().graph_def.unwrap()
        } else {
            frazil_tf::pbtxt::parse_bytes(&bytes).unwrap()
        };
    }
    if name.ends_with(".meta") {
        meta_graph::read(path).unwrap().graph_def.unwrap()
    } else {
        graph_def::read(path).unwrap()
    }
}

/// With the case's outputs and what they need.
fn cut(graph: &Graph, case: &Case) -> Graph {
    let mut graph = graph.clone();
    for name in case.outputs {
        let value = graph.find_value(name).unwrap();
        graph.outputs.push(Port { name: (*name).to_owned(), value });
    }
    graph.prune();
    graph
}

/// Every rule applies as often as the case says (or more, if the graph also has what the case's
/// outputs do not need), and nothing looks like a near miss.
fn check_fused(case: &Case, graph: &mut Graph, stage: &str) {
    let at = format!("{}, {stage}", case.path);
    let whole = graph.outputs.is_empty();
    let report = fuse(graph, &Fusions::all()).unwrap();
    for (rule, expected) in [
        ("embed", 1),
        ("layer_norm", case.layer_norm),
        ("gelu", case.gelu),
        ("linear", case.linear),
        ("attention", case.attention),
    ] {
        let found = report.count(rule);
        let fits = if whole { found >= expected } else { found == expected };
        assert!(fits, "{at}: {rule} {found}, not {expected}: {:?}", report.missed);
    }
    assert_eq!(report.missed, [], "{at}");
    graph.check().unwrap();
}

/// Lowered and raised again, the graph is what it was.
fn check_round_trip(case: &Case, graph: &mut Graph, stage: &str) {
    let at = format!("{}, {stage}", case.path);
    let before = dump(graph);
    let facts = infer(graph).unwrap();
    let outputs = |graph: &Graph| -> Vec<_> { graph.outputs.iter().map(|p| p.value).collect() };
    let shapes: Vec<_> = outputs(graph).into_iter().map(|v| facts[v].clone()).collect();
    lower(graph, &|_| false).unwrap();
    let facts = infer(graph).unwrap();
    let lowered: Vec<_> = outputs(graph).into_iter().map(|v| facts[v].clone()).collect();
    assert_eq!(lowered, shapes, "{at}");
    check_fused(case, graph, stage);
    assert!(dump(graph) == before, "{at}: raising what was lowered gives another graph");
}

#[test]
fn every_rule_fires_on_every_real_graph() {
    for case in &CASES {
        let Some(path) = shared(case.path) else { continue };
        let graph = import(&read(&path), &ImportOptions::default()).unwrap().graph;

        // As it is in the file, with all that only training needs.
        let mut whole = graph.clone();
        let report = remove_dropout(&mut whole).unwrap();
        // Gradients pass through a dropout as through a dropout.
        assert!(report.count("dropout") >= case.dropout, "{}", case.path);
        check_fused(case, &mut whole, "uncut");

        let mut plain = cut(&graph, case);
        let report = remove_dropout(&mut plain).unwrap();
        assert_eq!(report.count("dropout"), case.dropout, "{}", case.path);
        assert_eq!(report.missed, [], "{}", case.path);
        let mut fused = plain.clone();
        check_fused(case, &mut fused, "cut");
        check_round_trip(case, &mut fused, "cut");

        let mut folded = plain.clone();
        fold(&mut folded).unwrap();
        check_fused(case, &mut folded, "folded");

        if let Some(checkpoint) = case.checkpoint {
            let weights = Checkpoint::open(path.with_file_name(checkpoint), Default::default());
            freeze(&mut plain, &weights.unwrap()).unwrap();
            check_fused(case, &mut plain, "frozen");
            check_round_trip(case, &mut plain, "frozen");
        }
    }
}

/// Sizes that a file had fixed and that were made free again do not get in the way.
#[test]
fn every_rule_fires_on_generalised_graphs() {
    for (path, layers) in [
        ("fixtures/classifier/frozen_from_saved_model.pb", 2),
        ("fixtures/meta/bert_model.ckpt.meta", 2),
        ("fixtures/meta_tf111/bert_model.ckpt.meta", 2),
        ("data/checkpoints/google_chinese_L-12_H-768_A-12/bert_model.ckpt.meta", 12),
    ] {
        let Some(file) = shared(path) else { continue };
        let case = Case {
            path,
            outputs: &["bert/pooler/dense/Tanh"],
            layer_norm: 2 * layers + 1,
            gelu: layers,
            linear: 6 * layers + 1,
            attention: layers,
            ..ENCODER
        };
        let graph = import(&read(&file), &ImportOptions::default()).unwrap().graph;
        let mut graph = cut(&graph, &case);
        reshape(&mut graph, &Reshape::dynamic()).unwrap();
        check_fused(&case, &mut graph, "generalised");
        let rows = infer(&graph).unwrap()[graph.outputs[0].value].to_string();
        assert!(rows.starts_with("float32 [batch, "), "{path}: {rows}");
        check_round_trip(&case, &mut graph, "generalised");
    }
}

/// What is said of a graph whose layers are quantized in a way that frazil does not know: shapes
/// behind foreign nodes are unknown.
#[test]
fn misses_of_a_quantized_graph_are_explained() {
    let Some(path) = shared("fixtures/squad/lpot/bert_int8_lpot1.3.pb") else { return };
    let mut def = read(&path);
    for node in def.node.iter_mut().filter(|node| node.op == "QuantizeV2") {
        node.attr.remove("mode");
    }
    let mut graph = import(&def, &ImportOptions::default()).unwrap().graph;
    let report = fuse(&mut graph, &Fusions::all()).unwrap();
    assert_eq!((report.count("embed"), report.count("gelu")), (1, 2));
    for note in &report.missed {
        assert!(note.text.contains("is unknown"), "{note}");
    }
}

/// Packed rows are how frazil runs a graph: no format is given them.
#[test]
fn packed_rows_are_not_exported() {
    let Some(path) = shared("fixtures/classifier/frozen_from_saved_model.pb") else { return };
    let def = GraphDef::decode(std::fs::read(path).unwrap().as_slice()).unwrap();
    let mut graph = import(&def, &ImportOptions::default()).unwrap().graph;
    let value = graph.find_value("loss/output").unwrap();
    graph.outputs = vec![Port { name: "loss/output".into(), value }];
    fold(&mut graph).unwrap();
    fuse(&mut graph, &Fusions::all()).unwrap();
    assert!(pack_rows(&mut graph).unwrap().count("pack_rows") > 0);
    let folder = tempfile::tempdir().unwrap();
    let (onnx, openvino) = (folder.path().join("m.onnx"), folder.path().join("m.xml"));
    let errors = [
        tf::export(&graph, None).unwrap_err(),
        onnx::export(&graph, &onnx::ExportOptions::default(), &onnx).unwrap_err(),
        openvino::export(&graph, &openvino::ExportOptions::default(), &openvino).unwrap_err(),
    ];
    for error in errors {
        let text = error.to_string();
        let expected = "packed rows are for running: export the graph before packing";
        assert!(text.contains(expected), "{text}");
    }
    assert!(!onnx.exists() && !openvino.exists());
}
