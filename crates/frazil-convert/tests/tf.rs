//! Every graph of the fixtures in and out again: as it stands, and typed.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

use frazil_convert::tf::{ImportOptions, Imported, export, import};
use frazil_graph::pass::{self, NewInput};
use frazil_graph::{Graph, Op, Port, infer};
use frazil_tensor::testing::shared;
use frazil_tf::proto::GraphDef;
use frazil_tf::saved_model::SavedModelDir;
use frazil_tf::{graph_def, meta_graph};
use prost::Message;

const GOOGLE: &str = "data/checkpoints/google_chinese_L-12_H-768_A-12/bert_model.ckpt.meta";
const KERAS: &str = "data/checkpoints/keras_bert_test_checkpoint/bert_model.ckpt.meta";
const SAVED: &str = "fixtures/classifier/saved_models/1794770949";

/// Where a graph lies, what it is for, and which foreign operations it may still have there.
const GRAPHS: [(&str, &str, &[&str]); 18] = [
    ("fixtures/classifier/graph.pbtxt", "loss/output", DROPOUT),
    ("fixtures/classifier/model.ckpt-27.meta", "loss/output", DROPOUT),
    (SAVED, "loss/output", &[]),
    ("fixtures/classifier/frozen_from_graph_pbtxt.pb", "loss/output", DROPOUT),
    ("fixtures/classifier/frozen_from_saved_model.pb", "loss/output", &[]),
    ("fixtures/meta/bert_model.ckpt.meta", "bert/pooler/dense/Tanh", &[]),
    ("fixtures/meta/bert_model_dyn.ckpt.meta", "bert/pooler/dense/Tanh", &[]),
    ("fixtures/meta_tf111/bert_model.ckpt.meta", "bert/pooler/dense/Tanh", &[]),
    ("fixtures/meta_tf111/bert_model_dyn.ckpt.meta", "bert/pooler/dense/Tanh", &[]),
    ("fixtures/pretrain/graph.pbtxt.gz", "add_1", DROPOUT),
    ("fixtures/pretrain/model.ckpt-40.meta", "add_1", DROPOUT),
    ("fixtures/reshapable/inference_graph.pb", "bert/pooler/dense/Tanh", &[]),
    ("fixtures/squad/v1.1/model.ckpt-65.meta.gz", "unstack", DROPOUT),
    ("fixtures/squad/lpot/bert_fp32_google_modeling.pb", "unstack", &[]),
    ("fixtures/squad/lpot/bert_fp32_intel_modeling.pb", "unstack", &[]),
    ("fixtures/squad/lpot/bert_int8_lpot1.3.pb", "unstack", &[]),
    (GOOGLE, "bert/pooler/dense/Tanh", &[]),
    (KERAS, "bert/pooler/dense/Tanh", DROPOUT),
];
const DROPOUT: &[&str] = &["RandomUniform"];

fn read(path: PathBuf) -> GraphDef {
    if path.is_dir() {
        let model = SavedModelDir::open(path).unwrap();
        return model.meta_graph(&["serve"]).unwrap().graph_def.clone().unwrap();
    }
    let name = path.to_str().unwrap().to_owned();
    let bytes = if name.ends_with(".gz") {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(&path).unwrap();
        flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
        bytes.into()
    } else {
        frazil_tensor::file::map(&path).unwrap()
    };
    if name.contains(".meta") {
        return meta_graph::decode(bytes).unwrap().graph_def.unwrap();
    }
    graph_def::decode(bytes).unwrap()
}

#[test]
fn untyped_nothing_is_lost() {
    for (file, ..) in GRAPHS {
        let Some(path) = shared(file) else { return };
        let def = read(path);
        let Imported { graph, library, notes } =
            import(&def, &ImportOptions::untyped()).unwrap_or_else(|e| panic!("{file}: {e}"));
        graph.check().unwrap();
        assert!(notes.is_empty(), "{file}");
        let back = export(&graph, library.as_ref()).unwrap();
        assert_eq!(back.node.len(), def.node.len(), "{file}");
        for (written, read) in back.node.iter().zip(&def.node) {
            // Bytes, because a NaN is not equal to itself.
            assert_eq!(written.encode_to_vec(), read.encode_to_vec(), "{file}: {}", read.name);
        }
        assert_eq!(back.library, def.library, "{file}");
    }
}

/// The part of a graph that computes its output from what is fed.
fn forward(def: &GraphDef, output: &str) -> Graph {
    let mut graph = import(def, &ImportOptions::default()).unwrap().graph;
    let inputs: Vec<NewInput> = match graph.find("IteratorGetNext") {
        None => vec![],
        Some(node) => {
            let needed = graph.find_value(output).unwrap();
            let above = graph.ancestors([needed.node]);
            let mut ports: Vec<u32> = graph
                .nodes()
                .filter(|(id, _)| above[id.index()])
                .flat_map(|(_, node)| &node.inputs)
                .filter(|value| value.node == node)
                .map(|value| value.port)
                .collect();
            ports.sort_unstable();
            ports.dedup();
            let new = |port: u32| NewInput {
                value: frazil_graph::Value { node, port },
                name: format!("IteratorGetNext:{port}"),
                dtype: None,
                dims: None,
            };
            ports.into_iter().map(new).collect()
        }
    };
    let value = graph.find_value(output).unwrap();
    let outputs = [Port { name: output.to_owned(), value }];
    pass::cut(&mut graph, &inputs, &outputs).unwrap();
    graph
}

#[test]
fn typed_the_forward_graph_is_known() {
    for (file, output, allowed) in GRAPHS {
        let Some(path) = shared(file) else { return };
        let def = read(path);
        let imported =
            import(&def, &ImportOptions::default()).unwrap_or_else(|e| panic!("{file}: {e}"));
        imported.graph.check().unwrap();
        let graph = forward(&def, output);
        graph.check().unwrap();
        let mut foreign: BTreeMap<&str, &str> = BTreeMap::new();
        for (_, node) in graph.nodes() {
            if let Op::Foreign(op) = &node.op {
                foreign.insert(&op.op, &node.name);
            }
        }
        foreign.retain(|op, _| !allowed.contains(op));
        assert!(foreign.is_empty(), "{file}: {foreign:?}");
        // Every value's type is known, so the graph can be written again.
        let facts = infer(&graph).unwrap_or_else(|e| panic!("{file}: {e}"));
        let value = graph.outputs[0].value;
        assert!(facts[value].dtype.is_some() && facts[value].dims.is_some(), "{file}");
        let written =
            export(&graph, imported.library.as_ref()).unwrap_or_else(|e| panic!("{file}: {e}"));
        assert_eq!(written.library, None, "{file}");
        // And read again, it is the same.
        let again = import(&written, &ImportOptions::default()).unwrap().graph;
        assert_eq!(again.len(), graph.len(), "{file}");
        for id in again.ids() {
            let node = again.node(id);
            let before = graph.node(graph.find(&node.name).unwrap());
            // A version that is left out leaves scalar placeholders unknown; there are none here.
            assert_eq!(node.op.to_string(), before.op.to_string(), "{file}: {}", node.name);
        }
        assert_eq!(export(&again, None).unwrap(), written, "{file}");
    }
}

#[test]
fn attributes_are_those_that_tensorflow_wrote() {
    // Types, masks and counts are computed anew; they must come out as the source has them.
    for (file, ..) in GRAPHS {
        let Some(path) = shared(file) else { return };
        let def = read(path);
        let options = ImportOptions { resolve_control_flow: false, ..ImportOptions::default() };
        let imported = import(&def, &options).unwrap();
        let written = match export(&imported.graph, None) {
            Ok(written) => written,
            Err(error) => panic!("{file}: {error}"),
        };
        let source: BTreeMap<&str, _> =
            def.node.iter().map(|node| (node.name.as_str(), node)).collect();
        let mut compared = 0;
        for node in &written.node {
            let Some(wanted) = source.get(node.name.as_str()) else { continue };
            let renamed = |op: &str| match op {
                "Add" => "AddV2".to_owned(),
                "Select" => "SelectV2".to_owned(),
                "CheckNumerics" => "Identity".to_owned(),
                "BatchMatMul" => "BatchMatMulV2".to_owned(),
                other => other.to_owned(),
            };
            assert_eq!(node.op, renamed(&wanted.op), "{file}: {}", node.name);
            if node.op == "Const" {
                continue; // values in short form are written in full
            }
            for (name, attr) in &node.attr {
                if (node.op.as_str(), name.as_str()) == ("Placeholder", "shape") {
                    continue; // a scalar of a graph without a version is of unknown rank
                }
                if let Some(wanted) = wanted.attr.get(name) {
                    let where_ = format!("{file}: {} ({}) {name}", node.name, node.op);
                    assert_eq!(attr, wanted, "{where_}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 100, "{file}: {compared}");
    }
}
