//! Tests of the writer: what is written, node by node, and what is refused.

use std::path::PathBuf;

use frazil_convert::onnx::proto::tensor_shape_proto::dimension;
use frazil_convert::onnx::proto::{ModelProto, ValueInfoProto, type_proto};
use frazil_convert::onnx::{ExportOptions, export};
use frazil_convert::{Error, Result};
use frazil_graph::op::{
    Binary, Cast, Foreign, Gather, Gelu, GeluForm, LayerNorm, Linear, MatMul, OneHot, Op, Pack,
    Reduce, ReduceKind, ShapeOp, StridedSlice, Unary, Unpack,
};
use frazil_graph::{Dim, Value};
use frazil_tensor::{DType, Tensor, file};
use prost::Message;

use crate::sketch::Sketch;

fn written(s: &Sketch, options: &ExportOptions) -> Result<ModelProto> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    export(&s.graph, options, &path)?;
    Ok(ModelProto::decode(file::map(&path)?).unwrap())
}

/// The operations in order, at an opset.
fn ops(s: &Sketch, opset: u32) -> Vec<String> {
    let model = written(s, &ExportOptions { opset, ..Default::default() }).unwrap();
    model.graph.unwrap().node.iter().map(|node| node.op_type().to_owned()).collect()
}

fn rows() -> Vec<Dim> {
    vec![Dim::batch(), Dim::seq(), Dim::known(8)]
}

#[test]
fn ends_have_their_names_and_axes() {
    let mut s = Sketch::default();
    let x = s.input("in/x:0", DType::F32, &rows());
    let y = s.node("tanh", Op::Unary(Unary::Tanh), &[x]);
    s.output("probabilities", y);
    s.output("again", y);
    s.output("echo", x);
    let model = written(&s, &ExportOptions::default()).unwrap();
    assert_eq!((model.ir_version(), model.producer_name()), (8, "frazil"));
    assert_eq!(model.opset_import[0].version(), 17);
    let graph = model.graph.unwrap();
    assert_eq!(graph.name(), "m");
    let outputs: Vec<&str> = graph.output.iter().map(ValueInfoProto::name).collect();
    assert_eq!(outputs, ["probabilities", "again", "echo"]);
    assert_eq!(graph.input[0].name(), "in/x:0");
    let Some(type_proto::Value::TensorType(tensor)) = &graph.input[0].r#type.clone().unwrap().value
    else {
        panic!("not a tensor")
    };
    let dims = &tensor.shape.as_ref().unwrap().dim;
    let name = |text: &str| Some(dimension::Value::DimParam(text.into()));
    assert_eq!(dims[0].value, name("batch"));
    assert_eq!(dims[1].value, name("sequence"));
    assert_eq!(dims[2].value, Some(dimension::Value::DimValue(8)));
    assert_eq!(graph.node[0].name(), "tanh");
}

/// `reshape(x, [shape(x)[0], -1])`, as TF1 graphs write it: no casts between.
#[test]
fn shape_arithmetic_stays_int64() {
    let mut s = Sketch::default();
    let x = s.input("x", DType::F32, &rows());
    let shape = s.node("shape", Op::Shape(ShapeOp { to: DType::I32 }), &[x]);
    let (zero, one) = (s.ints("0", &[0]), s.ints("1", &[1]));
    let first = Op::StridedSlice(StridedSlice { shrink_axis_mask: 1, ..Default::default() });
    let batch = s.node("batch", first, &[shape, zero, one, one]);
    let open = s.int("open", -1);
    let target = s.node("target", Op::Pack(Pack { axis: 0 }), &[batch, open]);
    let y = s.node("y", Op::Reshape, &[x, target]);
    s.output("y", y);
    assert_eq!(ops(&s, 17), ["Shape", "Gather", "Unsqueeze", "Concat", "Reshape"]);
    // Seen from outside, the shape is what the graph says.
    s.output("extents", shape);
    let ops = ops(&s, 17);
    assert_eq!(ops.iter().filter(|op| *op == "Cast").count(), 2, "{ops:?}");
}

#[test]
fn fused_operations_by_opset() {
    let mut s = Sketch::default();
    let x = s.input("x", DType::F32, &rows());
    let (gamma, beta) = (s.weights("gamma", &[8]), s.weights("beta", &[8]));
    let y = s.node("norm", Op::LayerNorm(LayerNorm { epsilon: 1e-12 }), &[x, gamma, beta]);
    let z = s.node("gelu", Op::Gelu(Gelu { form: GeluForm::Tanh }), &[y]);
    s.output("z", z);
    assert_eq!(ops(&s, 20), ["LayerNormalization", "Gelu"]);
    let at_17 = ops(&s, 17);
    assert_eq!((at_17[0].as_str(), at_17.len()), ("LayerNormalization", 10), "{at_17:?}");
    let at_13 = ops(&s, 13);
    assert!(!at_13.contains(&"LayerNormalization".to_owned()), "{at_13:?}");
    for opset in [12, 22] {
        let options = ExportOptions { opset, ..Default::default() };
        let error = written(&s, &options).unwrap_err();
        assert!(matches!(error, Error::Opset { .. }), "{error}");
        assert!(error.to_string().contains(&opset.to_string()), "{error}");
    }
}

#[test]
fn axes_are_attributes_or_inputs() {
    let mut s = Sketch::default();
    let x = s.input("x", DType::F32, &rows());
    let axes = s.ints("axes", &[-1]);
    let mean = Reduce { kind: ReduceKind::Mean, keep_dims: true };
    let y = s.node("mean", Op::Reduce(mean), &[x, axes]);
    s.output("y", y);
    for (opset, inputs, attributes) in [(17, 1, 2), (18, 2, 1)] {
        let model = written(&s, &ExportOptions { opset, ..Default::default() }).unwrap();
        let node = &model.graph.unwrap().node[0];
        assert_eq!((node.input.len(), node.attribute.len()), (inputs, attributes));
    }
}

#[test]
fn products_and_parts() {
    let mut s = Sketch::default();
    let x = s.input("x", DType::F32, &[Dim::batch(), Dim::known(8)]);
    let (w, bias) = (s.weights("w", &[3, 8]), s.weights("bias", &[3]));
    let y = s.node("linear", Op::Linear(Linear { transpose_w: true }), &[x, w, bias]);
    let z =
        s.node("square", Op::MatMul(MatMul { transpose_b: true, ..Default::default() }), &[y, y]);
    let part = s.node("part", Op::Unpack(Unpack { axis: 1, count: 3 }), &[y]);
    s.output("z", z);
    s.output("second", Value { port: 1, ..part });
    assert_eq!(ops(&s, 17), ["Gemm", "Gemm", "Split", "Squeeze"]);
}

#[test]
fn one_hot_is_exact() {
    let mut s = Sketch::default();
    let x = s.input("x", DType::I32, &[Dim::batch()]);
    let depth = s.int("depth", 5);
    let on = s.weights("on_off", &[2]);
    let (zero, one) = (s.int("0", 0), s.int("1", 1));
    let axis = s.int("axis", 0);
    let off = s.node("off", Op::Gather(Gather::default()), &[on, zero, axis]);
    let on = s.node("on", Op::Gather(Gather::default()), &[on, one, axis]);
    let y = s.node("hot", Op::OneHot(OneHot { axis: -1 }), &[x, depth, on, off]);
    s.output("y", y);
    let ops = ops(&s, 17);
    assert_eq!(ops[ops.len() - 3..], ["Unsqueeze", "Equal", "Where"]);
}

#[test]
fn what_cannot_be_written_is_listed_and_nothing_is_left() {
    let mut s = Sketch::default();
    let x = s.input("x", DType::F32, &rows());
    let foreign =
        Foreign { op: "Bessel".into(), attrs: [].into(), outputs: vec![Default::default()] };
    let a = s.node("a", Op::Foreign(foreign.clone()), &[x]);
    let b = s.node("b", Op::Foreign(foreign), &[a]);
    let q = s.node("q", Op::Cast(Cast { to: DType::QI8 }), &[x]);
    s.output("b", b);
    s.output("q", q);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let error = export(&s.graph, &ExportOptions::default(), &path).unwrap_err();
    let Error::Refused { nodes, .. } = &error else { panic!("{error}") };
    let names: Vec<&str> = nodes.iter().map(|node| node.node.as_str()).collect();
    assert_eq!(names, ["a", "b", "q"]);
    assert!(error.to_string().contains("`a` (Bessel)"), "{error}");
    assert!(error.hint().is_some());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

fn weighty() -> Sketch {
    let mut s = Sketch::default();
    let x = s.input("x", DType::F32, &[Dim::batch(), Dim::known(64)]);
    let w = s.weights("w", &[64, 64]);
    let again = s.weights("again", &[64, 64]);
    let epsilon = Tensor::from_vec([], vec![1e-12f32]).unwrap();
    let epsilon = s.node("epsilon", Op::constant(epsilon), &[]);
    let y = s.node("y", Op::MatMul(MatMul::default()), &[x, w]);
    let z = s.node("z", Op::MatMul(MatMul::default()), &[y, again]);
    let z = s.node("sum", Op::Binary(Binary::Add), &[z, epsilon]);
    s.output("z", z);
    s
}

#[test]
fn large_models_have_their_weights_beside_them_once() {
    let s = weighty();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let options = ExportOptions { external_above: 1000, ..Default::default() };
    let written = export(&s.graph, &options, &path).unwrap();
    let data: PathBuf = folder.path().join("m.onnx.data");
    assert_eq!(written.files, [path.clone(), data.clone()]);
    assert_eq!(std::fs::metadata(&data).unwrap().len(), 64 * 64 * 4);
    let model = ModelProto::decode(file::map(&path).unwrap()).unwrap();
    for tensor in model.graph.unwrap().initializer {
        let fields: Vec<(&str, &str)> =
            tensor.external_data.iter().map(|entry| (entry.key(), entry.value())).collect();
        match tensor.name() {
            "epsilon" => assert!(fields.is_empty()),
            _ => assert_eq!(
                fields,
                [("location", "m.onnx.data"), ("offset", "0"), ("length", "16384")]
            ),
        }
    }
}

#[test]
fn half_precision_is_a_matter_of_storage() {
    let s = weighty();
    let options = ExportOptions { fp16: true, ..Default::default() };
    let graph = written(&s, &options).unwrap().graph.unwrap();
    let w = graph.initializer.iter().find(|tensor| tensor.name() == "w/fp16").unwrap();
    assert_eq!(w.raw_data().len(), 64 * 64 * 2);
    let first = half::f16::from_le_bytes([w.raw_data()[0], w.raw_data()[1]]);
    assert_eq!(first, half::f16::from_f32(-2.0));
    // An epsilon would be 0.
    let epsilon = graph.initializer.iter().find(|tensor| tensor.name() == "epsilon").unwrap();
    assert_eq!(epsilon.raw_data().len(), 4);
    let casts = graph.node.iter().filter(|node| node.op_type() == "Cast").count();
    assert_eq!(casts, 2);
}

#[test]
fn the_same_graph_gives_the_same_bytes() {
    let s = weighty();
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a.onnx"), folder.path().join("b.onnx"));
    let options = ExportOptions { name: "m".into(), ..Default::default() };
    export(&s.graph, &options, &a).unwrap();
    export(&s.graph, &options, &b).unwrap();
    assert_eq!(std::fs::read(a).unwrap(), std::fs::read(b).unwrap());
}
