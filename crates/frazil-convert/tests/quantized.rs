//! Graphs with bytes in them: written to every format and read back, they are the same operations
//! and give the same numbers.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeMap;
use std::path::Path;

use frazil_convert::{onnx, openvino, tf};
use frazil_graph::op::{Binary, Gather, Input, MatMul, OneHot, Op, Scaled, Steps};
use frazil_graph::pass::quantize::{AttentionGrid, Grids, LinearGrid, channel_scales, quantize};
use frazil_graph::{Dim, Graph, Node, Port, Value};
use frazil_runtime::{Options, Session};
use frazil_tensor::npy::Npz;
use frazil_tensor::{DType, Tensor, TensorStore};

/// A small encoder in the making.
struct Model {
    graph: Graph,
}

impl Model {
    fn node(&mut self, name: &str, op: Op, inputs: &[Value]) -> Value {
        self.graph.push(Node::new(name, op, inputs.to_vec())).unwrap().into()
    }

    fn constant(&mut self, name: &str, tensor: frazil_tensor::Result<Tensor>) -> Value {
        self.node(name, Op::constant(tensor.unwrap()), &[])
    }

    /// Weights on both sides of zero that differ from column to column.
    fn weight(&mut self, name: &str, shape: &[usize]) -> Value {
        let count = shape.iter().product::<usize>();
        let last = shape.last().copied().unwrap_or(1);
        let value = |i: usize| {
            let size = 1.0 + (i % last) as f32 / last as f32;
            ((i * 37 + name.len() * 11) % 101) as f32 / 101.0 * size - 0.5 * size
        };
        let values = (0..count).map(value).collect();
        self.constant(name, Tensor::from_vec(shape, values))
    }

    fn ints(&mut self, name: &str, values: &[i32]) -> Value {
        self.constant(name, Tensor::from_vec([values.len()], values.to_vec()))
    }

    fn int(&mut self, name: &str, value: i32) -> Value {
        self.constant(name, Tensor::from_vec([], vec![value]))
    }

    fn linear(&mut self, name: &str, x: Value, [k, n]: [usize; 2], transpose_b: bool) -> Value {
        let shape = if transpose_b { [n, k] } else { [k, n] };
        let w = self.weight(&format!("{name}/kernel"), &shape);
        let bias = self.weight(&format!("{name}/bias"), &[n]);
        let product = Op::MatMul(MatMul { transpose_a: false, transpose_b });
        let product = self.node(&format!("{name}/MatMul"), product, &[x, w]);
        self.node(&format!("{name}/BiasAdd"), Op::BiasAdd, &[product, bias])
    }

    fn input(&mut self, name: &str) -> Value {
        let dims = Some(vec![Dim::batch(), Dim::seq()]);
        let value = self.node(name, Op::Input(Input { dtype: DType::I32, dims }), &[]);
        self.graph.inputs.push(Port { name: name.into(), value });
        value
    }
}

const WIDTH: usize = 8;
const HEADS: i32 = 2;

/// Two kinds of lookup, an attention, a layer of either orientation, and a head.
fn plain() -> Graph {
    let mut m = Model { graph: Graph::new() };
    let (ids, types) = (m.input("input_ids"), m.input("segment_ids"));
    let (words, axis) = (m.weight("words", &[11, WIDTH]), m.int("axis", 0));
    let words = m.node("word_rows", Op::Gather(Gather::default()), &[words, ids, axis]);
    let (table, depth) = (m.weight("types", &[2, WIDTH]), m.int("depth", 2));
    let on = m.constant("on", Tensor::from_vec([], vec![1f32]));
    let off = m.constant("off", Tensor::from_vec([], vec![0f32]));
    let hot = m.node("one_hot", Op::OneHot(OneHot { axis: -1 }), &[types, depth, on, off]);
    let types = m.node("type_rows", Op::MatMul(MatMul::default()), &[hot, table]);
    let sum = m.node("embeddings", Op::Binary(Binary::Add), &[words, types]);
    let flat = m.ints("flat", &[-1, WIDTH as i32]);
    let rows = m.node("rows", Op::Reshape, &[sum, flat]);
    let shape = m.ints("split", &[3, -1, HEADS, WIDTH as i32 / HEADS]);
    let perm = m.ints("perm", &[0, 2, 1, 3]);
    let mut heads = Vec::new();
    for (name, transposed) in [("query", false), ("key", true), ("value", false)] {
        let x = m.linear(name, rows, [WIDTH, WIDTH], transposed);
        let x = m.node(&format!("{name}/split"), Op::Reshape, &[x, shape]);
        heads.push(m.node(&format!("{name}/heads"), Op::Transpose, &[x, perm]));
    }
    let by_keys = Op::MatMul(MatMul { transpose_a: false, transpose_b: true });
    let scores = m.node("scores", by_keys, &heads[..2]);
    let weights = m.node("weights", Op::Softmax, &[scores]);
    let context = m.node("context", Op::MatMul(MatMul::default()), &[weights, heads[2]]);
    let joined = m.node("joined", Op::Transpose, &[context, perm]);
    let joined = m.node("joined_rows", Op::Reshape, &[joined, flat]);
    let output = m.linear("output", joined, [WIDTH, 2 * WIDTH], true);
    let logits = m.linear("logits", output, [2 * WIDTH, 3], false);
    m.graph.outputs.push(Port { name: "logits".into(), value: logits });
    m.graph
}

/// The same in bytes. Scales are no round numbers, but for their last bits.
fn in_bytes(input: Steps, per_channel: bool) -> Graph {
    let mut graph = plain();
    let mut grids = Grids::default();
    for (name, transposed) in
        [("query", false), ("key", true), ("value", false), ("output", true), ("logits", false)]
    {
        let kernel = graph.find_value(&format!("{name}/kernel")).unwrap();
        let kernel = graph.op(kernel).as_const().unwrap();
        let mut scales = channel_scales(kernel, transposed, 127).unwrap();
        if !per_channel {
            scales = vec![scales.into_iter().fold(0.0, f32::max)];
        }
        let correction = (name == "output").then(|| vec![0.01; 2 * WIDTH]);
        let columns = (name == "logits").then(|| vec![1.25; 2 * WIDTH]);
        let grid = LinearGrid { input, columns, scales, correction };
        grids.linears.insert(format!("{name}/MatMul"), grid);
    }
    let attention = AttentionGrid { q: (0.0234375, 117), k: 0.01953125, v: 0.0107421875 };
    grids.attentions.insert("scores".into(), attention);
    grids.tables = ["word_rows".into(), "type_rows".into()].into();
    assert_eq!(quantize(&mut graph, &grids).unwrap().count("quantize"), 8);
    graph
}

fn all() -> Vec<(&'static str, Graph)> {
    let fixed = Steps::Tensor { scale: 0.0123, zero: 131 };
    vec![
        ("fixed", in_bytes(fixed, true)),
        ("one scale", in_bytes(fixed, false)),
        ("rows", in_bytes(Steps::Rows, true)),
    ]
}

fn run(graph: &Graph) -> Vec<f32> {
    let ids = (0..15).map(|i| i * 7 % 11).collect();
    let types = (0..15).map(|i| i % 2).collect();
    let feeds = BTreeMap::from([
        ("input_ids".to_owned(), Tensor::from_vec([3, 5], ids).unwrap()),
        ("segment_ids".to_owned(), Tensor::from_vec::<i32>([3, 5], types).unwrap()),
    ]);
    let session = Session::new(graph, Options::default()).unwrap();
    session.run(&feeds).unwrap().outputs[0].1.values::<f32>().unwrap().into_owned()
}

/// How often each kind of operation with bytes is there, with its attributes.
fn bytes_of(graph: &Graph) -> Vec<String> {
    let kinds = graph.nodes().filter_map(|(_, node)| match &node.op {
        Op::FakeQuantize(steps) => Some(format!("{steps:?}")),
        Op::Scaled(op) => {
            let bytes = graph.op(node.inputs[0]).as_const().unwrap();
            let scales = graph.op(node.inputs[1]).as_const().unwrap();
            // One scale goes along no axis.
            let axis = if scales.elements() == 1 { 0 } else { op.axis };
            let scales = scales.values::<f32>().unwrap();
            Some(format!("Scaled {axis} {} {scales:?}", bytes.shape()))
        }
        _ => None,
    });
    let mut kinds: Vec<String> = kinds.collect();
    kinds.sort();
    kinds
}

/// Writes, reads, and runs: the same numbers to the last bit.
fn travels(what: &str, graph: &Graph, journey: impl Fn(&Graph, &Path) -> Graph) -> Graph {
    let folder = tempfile::tempdir().unwrap();
    let back = journey(graph, folder.path());
    assert_eq!(run(&back), run(graph), "{what}");
    back
}

fn by_onnx(opset: u32) -> impl Fn(&Graph, &Path) -> Graph {
    move |graph, folder| {
        let path = folder.join("m.onnx");
        let options = onnx::ExportOptions { opset, ..Default::default() };
        onnx::export(graph, &options, &path).unwrap();
        onnx::import(&path).unwrap()
    }
}

fn by_openvino(graph: &Graph, folder: &Path) -> Graph {
    let path = folder.join("m.xml");
    openvino::export(graph, &openvino::ExportOptions::default(), &path).unwrap();
    openvino::import(&path).unwrap()
}

fn by_tensorflow(graph: &Graph, _: &Path) -> Graph {
    let def = tf::export(graph, None).unwrap();
    let mut back = tf::import(&def, &tf::ImportOptions::default()).unwrap().graph;
    let value = back.find_value("logits/BiasAdd").unwrap();
    back.outputs.push(Port { name: "logits".into(), value });
    back.prune();
    back
}

#[test]
fn bytes_stay_what_they_are_in_tensorflow() {
    for (what, graph) in all() {
        let back = travels(what, &graph, by_tensorflow);
        assert_eq!(bytes_of(&back), bytes_of(&graph), "{what}");
    }
}

#[test]
fn bytes_stay_what_they_are_in_openvino() {
    for (what, graph) in all() {
        let back = travels(what, &graph, by_openvino);
        assert_eq!(bytes_of(&back), bytes_of(&graph), "{what}");
    }
}

#[test]
fn bytes_stay_what_they_are_in_onnx() {
    for (what, graph) in all() {
        for opset in [13, 17, 21] {
            let back = travels(what, &graph, by_onnx(opset));
            // Weights are turned, so that no transposition stands before a product.
            let scaled = |graph: &Graph| {
                let nodes = graph.nodes().filter(|(_, node)| matches!(node.op, Op::Scaled(_)));
                nodes.count()
            };
            assert_eq!(scaled(&back), scaled(&graph), "{what}");
            let steps = |graph: &Graph| {
                let mut all = bytes_of(graph);
                all.retain(|kind| !kind.starts_with("Scaled"));
                all
            };
            assert_eq!(steps(&back), steps(&graph), "{what} {opset}");
            let again = travels(what, &back, by_onnx(opset));
            assert_eq!(bytes_of(&again), bytes_of(&back), "{what} {opset}");
        }
    }
}

/// A round trip through all of them.
#[test]
fn round_the_formats() {
    for (what, graph) in all() {
        let mut back = travels(what, &graph, by_openvino);
        back = travels(what, &back, by_onnx(17));
        back = travels(what, &back, by_openvino);
        assert_eq!(run(&back), run(&graph), "{what}");
    }
}

/// Files hold bytes, not numbers: a quarter, and a little for scales and names.
#[test]
fn files_are_small() {
    let (rows, width) = (2000usize, 64usize);
    let mut m = Model { graph: Graph::new() };
    let ids = m.input("input_ids");
    let bytes = m.constant("bytes", Tensor::from_vec([rows, width], vec![3i8; rows * width]));
    let scales = m.constant("scales", Tensor::from_vec([rows], vec![0.5f32; rows]));
    let axis = m.int("axis", 0);
    let table = m.node("table", Op::Scaled(Scaled { axis: 0 }), &[bytes, scales]);
    let found = m.node("found", Op::Gather(Gather::default()), &[table, ids, axis]);
    m.graph.outputs.push(Port { name: "found".into(), value: found });
    let folder = tempfile::tempdir().unwrap();
    let most = (rows * width + rows * 4 + 8192) as u64;
    let onnx = folder.path().join("m.onnx");
    onnx::export(&m.graph, &onnx::ExportOptions::default(), &onnx).unwrap();
    let xml = folder.path().join("m.xml");
    openvino::export(&m.graph, &openvino::ExportOptions::default(), &xml).unwrap();
    for path in [onnx, xml.with_extension("bin")] {
        assert!(path.metadata().unwrap().len() < most, "{}", path.display());
    }
    let def = tf::export(&m.graph, None).unwrap();
    assert!((prost::Message::encoded_len(&def) as u64) < most);
}

/// What an engine computes with a model of its own tools, to float32's rounding: in a model of this
/// size no number lies so near the middle of two steps that it would go to the other one.
#[test]
fn models_that_others_quantized() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/quantized");
    for (name, steps, weights) in
        [("onnxruntime_s8.onnx", 19, 6), ("onnxruntime_u8.onnx", 19, 0), ("nncf.xml", 6, 9)]
    {
        let path = folder.join(name);
        let graph = match name.ends_with("xml") {
            true => openvino::import(&path).unwrap(),
            false => onnx::import(&path).unwrap(),
        };
        let count =
            |test: fn(&Op) -> bool| graph.nodes().filter(|(_, node)| test(&node.op)).count();
        let on_steps = count(|op| matches!(op, Op::FakeQuantize(_)));
        let scaled = count(|op| matches!(op, Op::Scaled(_)));
        assert_eq!((on_steps, scaled), (steps, weights), "{name}");
        let npz = Npz::open(path.with_extension("npz")).unwrap();
        let feeds = graph.inputs.iter().map(|port| {
            let tensor = npz.tensor(&port.name).unwrap();
            (port.name.clone(), tensor)
        });
        let session = Session::new(&graph, Options::default()).unwrap();
        let found = session.run(&feeds.collect()).unwrap().outputs[0].1.to_f64().unwrap();
        let wanted = npz.tensor("output").unwrap().to_f64().unwrap();
        let apart = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs());
        let worst = apart.fold(0.0, f64::max);
        assert!(worst < 2e-6, "{name}: {worst:e}");
    }
}

#[test]
fn steps_of_rows_are_said_to_be_slow() {
    let folder = tempfile::tempdir().unwrap();
    let graph = in_bytes(Steps::Rows, true);
    let options = onnx::ExportOptions::default();
    let written = onnx::export(&graph, &options, &folder.path().join("m.onnx")).unwrap();
    let options = openvino::ExportOptions::default();
    let also = openvino::export(&graph, &options, &folder.path().join("m.xml")).unwrap();
    for (notes, target) in [(written.notes, "ONNX"), (also.notes, "OpenVINO")] {
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(
            notes[0].starts_with("3 input(s) of products have steps for each row"),
            "{notes:?}"
        );
        assert!(notes[0].contains(target), "{notes:?}");
    }
}
