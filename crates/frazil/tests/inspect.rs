//! `inspect` on everything that real TensorFlow wrote: what it must say of each.

use std::path::Path;

use frazil::ops::convert::{self, Target};
use frazil::ops::inspect::{Options, Report, inspect};
use frazil::source::Kind;
use frazil::tensor::testing::shared;

fn look(path: &Path) -> Report {
    inspect(path, &Options::default()).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn checkpoints_and_their_heads() {
    let expected = [
        ("fixtures/classifier", 166_338, "encoder classifier", "adam_m adam_v"),
        ("fixtures/pretrain", 171_464, "encoder pretraining", "adam_m adam_v"),
        ("fixtures/squad/v1.1", 166_338, "encoder squad", "adam_m adam_v"),
        ("fixtures/meta", 171_464, "encoder pretraining", ""),
        ("fixtures/meta_tf111", 171_464, "encoder pretraining", ""),
        ("fixtures/classifier/saved_models", 166_338, "encoder classifier", ""),
        ("models/squad", 22_713_986, "encoder squad", ""),
        ("data/checkpoints/google_chinese_L-12_H-768_A-12", 102_882_442, "encoder pretraining", ""),
    ];
    for (name, parameters, heads, slots) in expected {
        let Some(path) = shared(name) else { return };
        let report = look(&path);
        let bert = report.bert.expect("every one of these is a BERT");
        assert_eq!(bert.parameters, parameters, "{name}");
        let found: Vec<String> = bert.heads.iter().map(|head| head.head.to_string()).collect();
        assert_eq!(found.join(" "), heads, "{name}");
        assert!(bert.heads.iter().all(|head| head.is_complete()), "{name}");
        let kinds: Vec<&str> = bert.slots.iter().map(|slot| slot.kind.as_str()).collect();
        assert_eq!(kinds.join(" "), slots, "{name}");
        assert!(report.config.is_none_or(|config| config.differences.is_empty()), "{name}");
    }
}

struct Graph {
    path: &'static str,
    kind: Kind,
    nodes: usize,
    inputs: &'static str,
    output: &'static str,
    baked: (Option<i64>, Option<i64>),
}

#[test]
fn graphs_with_inputs_outputs_and_sizes() {
    let placeholders = "Placeholder:0 Placeholder_1:0 Placeholder_2:0";
    let expected = [
        Graph {
            path: "fixtures/classifier/saved_models/1794770949",
            kind: Kind::SavedModel,
            nodes: 776,
            inputs: "label_ids_1:0 input_ids_1:0 input_mask_1:0 segment_ids_1:0",
            output: "loss/output:0",
            baked: (Some(1), Some(128)),
        },
        Graph {
            path: "fixtures/classifier/frozen_from_saved_model.pb",
            kind: Kind::Graph,
            nodes: 318,
            inputs: "input_ids_1:0 input_mask_1:0 segment_ids_1:0",
            output: "loss/output:0",
            baked: (Some(1), Some(128)),
        },
        Graph {
            path: "fixtures/classifier/graph.pbtxt",
            kind: Kind::Graph,
            nodes: 3512,
            inputs: "IteratorGetNext:0 IteratorGetNext:1 IteratorGetNext:2 IteratorGetNext:3 IteratorGetNext:4",
            output: "loss/output:0",
            baked: (Some(8), Some(128)),
        },
        Graph {
            path: "fixtures/reshapable/inference_graph.pb",
            kind: Kind::Graph,
            nodes: 366,
            inputs: "IteratorGetNext:0 IteratorGetNext:1 IteratorGetNext:4",
            output: "bert/pooler/dense/Tanh:0",
            baked: (None, Some(128)),
        },
        Graph {
            path: "fixtures/squad/lpot/bert_fp32_google_modeling.pb",
            kind: Kind::Graph,
            nodes: 389,
            inputs: "input_file:0 batch_size:0 IteratorGetNext:0 IteratorGetNext:1 IteratorGetNext:2",
            output: "unstack:0,unstack:1",
            baked: (None, Some(128)),
        },
        Graph {
            path: "data/checkpoints/google_chinese_L-12_H-768_A-12/bert_model.ckpt.meta",
            kind: Kind::MetaGraph,
            nodes: 3545,
            inputs: placeholders,
            output: "bert/pooler/dense/Tanh:0",
            baked: (Some(1), Some(128)),
        },
        Graph {
            path: "models/squad/model.ckpt-2232.meta",
            kind: Kind::MetaGraph,
            nodes: 1345,
            inputs: placeholders,
            output: "unstack:0,unstack:1",
            baked: (Some(1), Some(384)),
        },
    ];
    for graph in expected {
        let Some(path) = shared(graph.path) else { return };
        let report = look(&path);
        let name = graph.path;
        assert_eq!(report.kind, graph.kind, "{name}");
        let found = &report.graphs[0].graph;
        assert_eq!(found.nodes, graph.nodes, "{name}");
        let inputs: Vec<&str> = found
            .inputs
            .iter()
            .filter(|input| input.used)
            .map(|input| input.tensor.as_str())
            .collect();
        assert_eq!(inputs.join(" "), graph.inputs, "{name}");
        assert_eq!(found.outputs[0].tensor, graph.output, "{name}: {:?}", found.outputs);
        assert_eq!((found.baked.batch, found.baked.sequence), graph.baked, "{name}");
    }
}

/// Recipe 1 freezes a pre-training graph at `add_1`: the loss must be offered by name.
#[test]
fn the_loss_of_a_training_graph_is_found() {
    let Some(path) = shared("fixtures/pretrain/model.ckpt-40.meta") else { return };
    let report = look(&path);
    let loss = report.graphs[0].graph.outputs.iter().find(|output| output.tensor == "add_1:0");
    assert!(
        loss.is_some_and(|loss| loss.reason.contains("loss")),
        "{:?}",
        report.graphs[0].graph.outputs
    );
}

/// Ends, sizes and operations of the formats that frazil writes, read off the files.
#[test]
fn models_of_other_formats() {
    let Some(path) = shared("fixtures/classifier") else { return };
    let path = path.join("model.ckpt-27");
    let folder = tempfile::tempdir().unwrap();
    for (to, name, kind) in
        [(Target::Onnx, "model.onnx", Kind::Onnx), (Target::Openvino, "model.xml", Kind::Openvino)]
    {
        let written = folder.path().join(name);
        let mut options = convert::Options::new(to);
        options.graph.head = Some(frazil::bert::Head::Classifier);
        options.graph.config = shared("fixtures/data/bert_config_small.json");
        options.name = Some("mrpc".into());
        let converted = convert::convert(&path, &written, &options).unwrap();
        let report = look(&written);
        assert_eq!(report.kind, kind);
        let model = report.model.expect("it is a model");
        assert_eq!(model.name, "mrpc");
        assert!(model.producer.is_some_and(|producer| producer.starts_with("frazil ")));
        let (version, opset) = if to == Target::Onnx { (8, 17) } else { (11, 8) };
        assert!(model.version >= version, "{}", model.version);
        assert!(model.opsets[0].domain.is_empty() && model.opsets[0].version >= opset);
        let inputs: Vec<&str> = model.inputs.iter().map(|input| input.name.as_str()).collect();
        assert_eq!(inputs, ["input_ids", "input_mask", "segment_ids"]);
        let free = if to == Target::Onnx { "[batch, sequence]" } else { "[?, ?]" };
        assert!(model.inputs.iter().all(|i| i.shape == free && i.dtype == "int32"), "{name}");
        assert_eq!(model.outputs.len(), converted.outputs.len());
        assert!(model.parameters >= 166_338 && model.parameters < 170_000, "{}", model.parameters);
        assert_eq!(model.nodes, model.ops.iter().map(|op| op.count).sum::<usize>());
        let count = |kind: &str| model.ops.iter().find(|op| op.op == kind).map(|op| op.count);
        assert!(count("MatMul").is_some_and(|count| count >= 16), "{:?}", model.ops);
        assert!(report.variables.iter().any(|v| v.shape == [838, 64] && v.dtype == "float32"));
    }
}

#[test]
fn records_and_their_features() {
    for (name, records) in [
        ("fixtures/squad/v1.1/eval.tf_record", 37),
        ("fixtures/classifier/predict.tf_record", 17),
        ("fixtures/pretrain/tf_examples.tfrecord", 58),
    ] {
        let Some(path) = shared(name) else { return };
        let report = look(&path).records.expect("these are records");
        assert_eq!(report.records, records, "{name}");
        assert!(
            report.features.iter().any(|f| f.name == "input_ids" && f.longest == 128),
            "{name}"
        );
    }
}
