//! Baked sizes of real graphs are generalised: Google's code of several ages, frozen or not,
//! training or not. The graph that comes out gives the same numbers at the baked sizes, bit for
//! bit, and at other sizes what the original gives for each example by itself, padded.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::io::Read;
use std::path::Path;

use bytes::Bytes;
use frazil_convert::tf::{ImportOptions, import};
use frazil_graph::op::{Input, Op, Unary};
use frazil_graph::pass::{self, Fusions, NewInput, Reshape, Size, fuse, reshape};
use frazil_graph::{Graph, Port, dim, infer};
use frazil_runtime::{Inputs, Options, Session};
use frazil_tensor::testing::shared;
use frazil_tensor::{DType, Tensor};
use frazil_tf::checkpoint::{self, Checkpoint};
use frazil_tf::proto::GraphDef;
use frazil_tf::{graph_def, meta_graph};

/// A graph between two ends.
struct Case {
    path: &'static str,
    /// Next to the graph's file; random weights if none is there.
    checkpoint: Option<&'static str>,
    /// What is fed: token ids, mask, segments, and positions of masked words.
    inputs: &'static [&'static str],
    /// Outputs and their shapes in the general graph.
    outputs: &'static [(&'static str, &'static str)],
    /// Whether it is small enough to be run here.
    runs: bool,
}

const CASE: Case = Case { path: "", checkpoint: None, inputs: &[], outputs: &[], runs: true };

const PLACEHOLDERS: &[&str] = &["Placeholder", "Placeholder_1", "Placeholder_2"];

const CASES: &[Case] = &[
    Case {
        path: "fixtures/classifier/frozen_from_saved_model.pb",
        inputs: &["input_ids_1", "input_mask_1", "segment_ids_1"],
        outputs: &[("loss/output", "[batch, 2]"), ("bert/encoder/Reshape_3", "[batch, seq, 64]")],
        ..CASE
    },
    Case {
        path: "fixtures/classifier/frozen_from_graph_pbtxt.pb",
        inputs: &["IteratorGetNext:0", "IteratorGetNext:1", "IteratorGetNext:4"],
        outputs: &[("loss/output", "[batch, 2]")],
        ..CASE
    },
    Case {
        path: "fixtures/meta/bert_model.ckpt.meta",
        checkpoint: Some("bert_model.ckpt"),
        inputs: &["Placeholder", "Placeholder_1", "Placeholder_2", "Placeholder_3"],
        outputs: &[
            ("bert/pooler/dense/Tanh", "[batch, 64]"),
            ("bert/encoder/Reshape_3", "[batch, seq, 64]"),
            ("cls/predictions/LogSoftmax", "[20*batch, 838]"),
            ("cls/seq_relationship/LogSoftmax", "[batch, 2]"),
        ],
        ..CASE
    },
    Case {
        path: "fixtures/meta/bert_model_dyn.ckpt.meta",
        checkpoint: Some("bert_model.ckpt"),
        inputs: &["Placeholder", "Placeholder_1", "Placeholder_2", "Placeholder_3"],
        outputs: &[
            ("bert/encoder/Reshape_3", "[batch, seq, 64]"),
            ("cls/predictions/LogSoftmax", "[20*batch, 838]"),
        ],
        ..CASE
    },
    Case {
        path: "fixtures/meta_tf111/bert_model.ckpt.meta",
        checkpoint: Some("bert_model.ckpt"),
        inputs: PLACEHOLDERS,
        outputs: &[("bert/pooler/dense/Tanh", "[batch, 64]")],
        ..CASE
    },
    Case {
        path: "fixtures/squad/v1.1/model.ckpt-65.meta.gz",
        checkpoint: Some("model.ckpt-65"),
        inputs: &["IteratorGetNext:1", "IteratorGetNext:2", "IteratorGetNext:3"],
        outputs: &[("unstack:0", "[batch, seq]"), ("unstack:1", "[batch, seq]")],
        ..CASE
    },
    Case {
        path: "fixtures/pretrain/model.ckpt-40.meta",
        checkpoint: Some("model.ckpt-40"),
        inputs: &[
            "IteratorGetNext:0",
            "IteratorGetNext:1",
            "IteratorGetNext:6",
            "IteratorGetNext:3",
        ],
        outputs: &[
            ("cls/predictions/LogSoftmax", "[20*batch, 838]"),
            ("cls/seq_relationship/LogSoftmax", "[batch, 2]"),
        ],
        ..CASE
    },
    Case {
        // Batch 32, length 16 and all of the table, 4 heads of 1, 20 masked words.
        path: "data/checkpoints/keras_bert_test_checkpoint/bert_model.ckpt.meta",
        checkpoint: Some("bert_model.ckpt"),
        inputs: &[
            "IteratorGetNext:0",
            "IteratorGetNext:1",
            "IteratorGetNext:6",
            "IteratorGetNext:3",
        ],
        outputs: &[
            ("bert/pooler/dense/Tanh", "[batch, 4]"),
            ("cls/predictions/LogSoftmax", "[20*batch, 15]"),
        ],
        ..CASE
    },
    Case {
        path: "fixtures/reshapable/inference_graph.pb",
        inputs: &["IteratorGetNext:0", "IteratorGetNext:1", "IteratorGetNext:4"],
        outputs: &[("bert/pooler/dense/Tanh", "[batch, 64]")],
        ..CASE
    },
    Case {
        path: "fixtures/squad/lpot/bert_fp32_google_modeling.pb",
        inputs: &["IteratorGetNext:0", "IteratorGetNext:1", "IteratorGetNext:2"],
        outputs: &[("unstack:0", "[batch, seq]"), ("unstack:1", "[batch, seq]")],
        ..CASE
    },
    Case {
        path: "fixtures/squad/lpot/bert_fp32_intel_modeling.pb",
        inputs: &["IteratorGetNext:0", "IteratorGetNext:1", "IteratorGetNext:2"],
        outputs: &[("unstack:0", "[batch, seq]"), ("unstack:1", "[batch, seq]")],
        ..CASE
    },
    Case {
        path: "fixtures/squad/lpot/bert_int8_lpot1.3.pb",
        inputs: &["IteratorGetNext:0", "IteratorGetNext:1", "IteratorGetNext:2"],
        outputs: &[("unstack:0", "[batch, seq]"), ("unstack:1", "[batch, seq]")],
        runs: false,
        ..CASE
    },
    Case {
        // Google's own, 12 layers, [1, 128].
        path: "data/checkpoints/google_chinese_L-12_H-768_A-12/bert_model.ckpt.meta",
        inputs: PLACEHOLDERS,
        outputs: &[
            ("bert/pooler/dense/Tanh", "[batch, 768]"),
            ("bert/encoder/Reshape_13", "[batch, seq, 768]"),
        ],
        runs: false,
        ..CASE
    },
    Case {
        // Length and hidden size are both 384.
        path: "models/squad/model.ckpt-2232.meta",
        inputs: PLACEHOLDERS,
        outputs: &[("unstack:0", "[batch, seq]"), ("unstack:1", "[batch, seq]")],
        runs: false,
        ..CASE
    },
];

/// The graph between the ends of a case, with weights.
fn open(case: &Case) -> Option<Graph> {
    let path = shared(case.path)?;
    let mut graph = import(&definition(&path), &ImportOptions::default()).unwrap().graph;
    let outputs: Vec<Port> = case
        .outputs
        .iter()
        .map(|(name, _)| Port { name: (*name).into(), value: graph.find_value(name).unwrap() })
        .collect();
    let inputs: Vec<NewInput> = case
        .inputs
        .iter()
        .map(|name| NewInput {
            value: graph.find_value(name).unwrap(),
            name: (*name).into(),
            dtype: None,
            dims: None,
        })
        .collect();
    pass::cut(&mut graph, &inputs, &outputs).unwrap();
    pass::remove_dropout(&mut graph).unwrap();
    graph.prune();
    match case.checkpoint {
        Some(name) => {
            let prefix = path.with_file_name(name);
            let weights = Checkpoint::open(prefix, checkpoint::Options::default()).unwrap();
            pass::freeze(&mut graph, &weights).unwrap();
        }
        None => invent(&mut graph),
    }
    graph.check().unwrap();
    Some(graph)
}

fn definition(path: &Path) -> GraphDef {
    let name = path.to_string_lossy().into_owned();
    let mut bytes = std::fs::read(path).unwrap();
    if name.ends_with(".gz") {
        let packed = std::mem::take(&mut bytes);
        flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut bytes).unwrap();
    }
    if name.contains(".meta") {
        let meta = meta_graph::decode(Bytes::from(bytes)).unwrap();
        meta_graph::graph(&meta).unwrap().clone()
    } else {
        graph_def::decode(Bytes::from(bytes)).unwrap()
    }
}

/// Numbers that look like chance and are the same each time.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        self.0 >> 33
    }

    fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }
}

/// Variables become constants of made-up numbers.
fn invent(graph: &mut Graph) {
    let mut chance = Chance(1);
    for id in graph.ids() {
        let op = match &graph.node(id).op {
            Op::Variable(op) => {
                let shape = op.shape.clone().unwrap();
                let count = shape.iter().product::<usize>();
                let values: Vec<f32> =
                    (0..count).map(|_| (chance.below(2000) as f32 - 1000.0) * 1e-4).collect();
                Op::constant(Tensor::from_vec(shape, values).unwrap())
            }
            Op::ReadVariable(_) => Op::Unary(Unary::Identity),
            _ => continue,
        };
        graph.node_mut(id).op = op;
    }
}

fn shapes(graph: &Graph) -> Vec<String> {
    let facts = infer(graph).unwrap();
    let show = |port: &Port| dim::show(facts[port.value].dims.as_ref().unwrap());
    graph.outputs.iter().map(show).collect()
}

fn general(graph: &Graph, what: &str) -> Graph {
    let mut made = graph.clone();
    reshape(&mut made, &Reshape::dynamic()).unwrap_or_else(|error| panic!("{what}: {error}"));
    made.check().unwrap();
    made
}

#[test]
fn every_graph_becomes_general() {
    for case in CASES {
        let Some(graph) = open(case) else { return };
        let made = general(&graph, case.path);
        let wanted: Vec<&str> = case.outputs.iter().map(|(_, shape)| *shape).collect();
        assert_eq!(shapes(&made), wanted, "{}", case.path);
        for (name, place) in case.inputs.iter().zip(0..) {
            let port = made.inputs.iter().find(|port| port.name == *name).unwrap();
            let Op::Input(Input { dims, .. }) = made.op(port.value) else { panic!("{name}") };
            let wanted = if place < 3 { "[batch, seq]" } else { "[batch, 20]" };
            assert_eq!(dim::show(dims.as_ref().unwrap()), wanted, "{name}");
        }
        // Nothing that is left knows the old sizes: any others fit.
        let mut fixed = graph.clone();
        let sizes = Reshape { batch: Size::Known(3), seq: Size::Known(11) };
        reshape(&mut fixed, &sizes).unwrap();
        let put = |shape: &&str| {
            let shape = shape.replace("20*batch", "60").replace("batch", "3");
            shape.replace("seq", "11")
        };
        assert_eq!(shapes(&fixed), wanted.iter().map(put).collect::<Vec<_>>(), "{}", case.path);
        let arithmetic = |op: &Op| matches!(op, Op::Shape(_) | Op::Pack(_));
        assert!(!fixed.nodes().any(|(_, node)| arithmetic(&node.op)), "{}", case.path);
    }
}

/// One example: ids, mask and segments of some length, and the places of masked words.
struct Example {
    rows: [Vec<i32>; 3],
    masked: Vec<i32>,
}

fn examples(count: usize, length: usize, vocabulary: usize) -> Vec<Example> {
    let mut chance = Chance(7);
    let one = |_| {
        let used = 1 + chance.below(length);
        let ids = (0..used).map(|_| chance.below(vocabulary) as i32).collect();
        let mask = vec![1; used];
        let segments = (0..used).map(|i| i32::from(i > used / 2)).collect();
        let masked = (0..20).map(|_| chance.below(used) as i32).collect();
        Example { rows: [ids, mask, segments], masked }
    };
    (0..count).map(one).collect()
}

/// A batch of examples, each filled up with zeros.
fn batch(case: &Case, examples: &[&Example], length: usize) -> Inputs {
    let mut inputs = Inputs::new();
    for (name, place) in case.inputs.iter().zip(0..) {
        let mut values: Vec<i32> = Vec::new();
        for example in examples {
            match example.rows.get(place) {
                Some(row) => {
                    values.extend(row);
                    values.resize(values.len() + length - row.len(), 0);
                }
                None => values.extend(&example.masked),
            }
        }
        let width = values.len() / examples.len();
        let tensor = Tensor::from_vec([examples.len(), width], values).unwrap();
        inputs.insert((*name).to_owned(), tensor);
    }
    inputs
}

fn run(session: &Session, inputs: &Inputs) -> Vec<Tensor> {
    let outputs = session.run(inputs).unwrap().outputs;
    outputs.into_iter().map(|(_, tensor)| tensor).collect()
}

/// What the original, at its own sizes, gives for each example: per output, the example's numbers.
fn alone(
    case: &Case,
    session: &Session,
    (b, s): (usize, usize),
    examples: &[Example],
) -> Vec<Vec<Vec<f32>>> {
    let mut results = Vec::new();
    for chunk in examples.chunks(b) {
        // The last batch is filled up with its first example.
        let full: Vec<&Example> = (0..b).map(|i| chunk.get(i).unwrap_or(&chunk[0])).collect();
        let outputs = run(session, &batch(case, &full, s));
        for i in 0..chunk.len() {
            let part = |tensor: &Tensor| {
                let values = tensor.values::<f32>().unwrap();
                let size = values.len() / b;
                values[i * size..(i + 1) * size].to_vec()
            };
            results.push(outputs.iter().map(part).collect());
        }
    }
    results
}

/// The largest difference between the general graph's outputs and those of each example alone, of
/// which only the first `length` of `s` positions are there.
fn apart(case: &Case, outputs: &[Tensor], alone: &[Vec<Vec<f32>>], length: usize, s: usize) -> f32 {
    let mut most = 0f32;
    for (at, (tensor, (_, shape))) in outputs.iter().zip(case.outputs).enumerate() {
        let values = tensor.values::<f32>().unwrap();
        let size = values.len() / alone.len();
        for (example, parts) in alone.iter().enumerate() {
            let wanted = &parts[at];
            let kept = if shape.contains("seq") { wanted.len() / s * length } else { wanted.len() };
            assert_eq!(size, kept, "{} {}", case.path, case.outputs[at].0);
            for (a, b) in values[example * size..][..size].iter().zip(wanted) {
                most = most.max((a - b).abs());
            }
        }
    }
    most
}

#[test]
fn numbers_are_the_same() {
    // Sums over fewer zeros may be added up in another order.
    const TOLERANCE: f32 = 2e-6;
    for case in CASES.iter().filter(|case| case.runs) {
        let Some(graph) = open(case) else { return };
        let made = general(&graph, case.path);
        let Op::Input(Input { dims, .. }) = graph.op(graph.inputs[0].value) else { panic!() };
        let dims = dims.as_ref().unwrap();
        let s = dims[1].as_known().unwrap() as usize;
        let b = dims[0].as_known().unwrap_or(2) as usize;
        let vocabulary = if s == 16 { 15 } else { 838 };
        let (old, new) = (session(&graph), session(&made));
        let all = examples(b, s, vocabulary);
        let inputs = batch(case, &all.iter().collect::<Vec<_>>(), s);
        let (was, is) = (run(&old, &inputs), run(&new, &inputs));
        for (a, b) in was.iter().zip(&is) {
            assert_eq!(a.shape(), b.shape(), "{}", case.path);
            assert!(a.bytes().unwrap() == b.bytes().unwrap(), "{}: other bits", case.path);
        }
        for (count, length) in [(1, s), (3, 7), (b + 1, s / 2), (2, 1)] {
            let some = examples(count, length, vocabulary);
            let wanted = alone(case, &old, (b, s), &some);
            assert!(count == 1 || wanted[0] != wanted[1], "examples that tell nothing");
            let inputs = batch(case, &some.iter().collect::<Vec<_>>(), length);
            let most = apart(case, &run(&new, &inputs), &wanted, length, s);
            assert!(most <= TOLERANCE, "{} at [{count}, {length}]: {most:e}", case.path);
        }
    }
}

fn session(graph: &Graph) -> Session {
    Session::new(graph, Options::default()).unwrap()
}

/// Generalising what was fused, and fusing what was generalised, is the same.
#[test]
fn fused_graphs_become_general_too() {
    for case in CASES.iter().filter(|case| case.runs) {
        let Some(graph) = open(case) else { return };
        let mut fused = graph.clone();
        fuse(&mut fused, &Fusions::all()).unwrap();
        fused.prune();
        let made = general(&fused, case.path);
        let wanted: Vec<&str> = case.outputs.iter().map(|(_, shape)| *shape).collect();
        assert_eq!(shapes(&made), wanted, "{}", case.path);
        let kinds = |graph: &Graph| {
            let count = |wanted: &str| {
                graph.nodes().filter(|(_, node)| node.op.to_string() == wanted).count()
            };
            ["Embed", "Attention", "LayerNorm", "Gelu", "Linear"].map(count)
        };
        let mut other = general(&graph, case.path);
        fuse(&mut other, &Fusions::all()).unwrap();
        assert_eq!(kinds(&made), kinds(&other), "{}", case.path);
        let inputs = examples(3, 7, 15);
        let inputs = batch(case, &inputs.iter().collect::<Vec<_>>(), 7);
        for (a, b) in run(&session(&made), &inputs).iter().zip(run(&session(&other), &inputs)) {
            assert!(a.bytes().unwrap() == b.bytes().unwrap(), "{}: other bits", case.path);
        }
    }
}

#[test]
fn lengths_beyond_the_table_are_refused() {
    for case in CASES.iter().filter(|case| !case.path.contains("lpot")) {
        let Some(mut graph) = open(case) else { return };
        let before = graph.clone();
        let sizes = Reshape { seq: Size::Known(513), ..Reshape::default() };
        let error = reshape(&mut graph, &sizes).unwrap_err().to_string();
        assert!(error.starts_with("`bert/embeddings/position_embeddings`: "), "{error}");
        assert!(graph == before);
    }
}

#[test]
fn tensor_types_of_sizes_are_those_of_the_graph() {
    // Everything that frazil makes for sizes is int32, as TF1 does it.
    let Some(graph) = open(&CASES[2]) else { return };
    let made = general(&graph, CASES[2].path);
    let facts = infer(&made).unwrap();
    for (id, node) in made.nodes().filter(|(_, node)| node.name.starts_with("reshape/")) {
        assert_eq!(facts[id.into()].dtype, Some(DType::I32), "{}", node.name);
    }
}
