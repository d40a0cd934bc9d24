//! Tests of the reader on models as others write them, and on models that are wrong.

use std::path::Path;

use bytes::Bytes;
use frazil_convert::onnx::proto::attribute_proto::AttributeType;
use frazil_convert::onnx::proto::tensor_proto::DataType;
use frazil_convert::onnx::proto::tensor_shape_proto::{Dimension, dimension};
use frazil_convert::onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TypeProto, ValueInfoProto, type_proto,
};
use frazil_convert::onnx::{decode, import, looks_like};
use frazil_convert::{Error, Result};
use frazil_graph::{Graph, dump, pass};
use frazil_runtime::{Options, Session};
use frazil_tensor::npy::Npz;
use frazil_tensor::{Tensor, TensorStore};
use prost::Message;

/// A model with one input `x: float [batch, seq, 8]` and one output.
struct Model(ModelProto);

impl Model {
    fn new(opset: i64, output: &str) -> Self {
        let info = |name: &str, shape: Option<TensorShapeProto>| {
            let tensor = type_proto::Tensor { elem_type: Some(DataType::Float as i32), shape };
            let value = Some(type_proto::Value::TensorType(tensor));
            let kind = TypeProto { value, ..Default::default() };
            ValueInfoProto { name: Some(name.into()), r#type: Some(kind), ..Default::default() }
        };
        let named = |name: &str| dimension::Value::DimParam(name.into());
        let dims = [named("batch_size"), named("sequence_length"), dimension::Value::DimValue(8)];
        let dim = dims.map(|value| Dimension { value: Some(value), ..Default::default() }).to_vec();
        let graph = GraphProto {
            input: vec![info("x", Some(TensorShapeProto { dim }))],
            output: vec![info(output, None)],
            ..Default::default()
        };
        let set = OperatorSetIdProto { domain: None, version: Some(opset) };
        Self(ModelProto {
            ir_version: Some(8),
            graph: Some(graph),
            opset_import: vec![set],
            ..Default::default()
        })
    }

    fn node(
        mut self,
        op: &str,
        inputs: &[&str],
        outputs: &[&str],
        attribute: Vec<AttributeProto>,
    ) -> Self {
        let node = NodeProto {
            input: inputs.iter().map(|&name| name.into()).collect(),
            output: outputs.iter().map(|&name| name.into()).collect(),
            op_type: Some(op.into()),
            attribute,
            ..Default::default()
        };
        self.0.graph.as_mut().unwrap().node.push(node);
        self
    }

    fn ints(mut self, name: &str, values: &[i64]) -> Self {
        let tensor = TensorProto {
            name: Some(name.into()),
            dims: vec![values.len() as i64],
            data_type: Some(DataType::Int64 as i32),
            int64_data: values.to_vec(),
            ..Default::default()
        };
        self.0.graph.as_mut().unwrap().initializer.push(tensor);
        self
    }

    fn number(mut self, name: &str, value: i64) -> Self {
        let tensor = TensorProto {
            name: Some(name.into()),
            data_type: Some(DataType::Int64 as i32),
            int64_data: vec![value],
            ..Default::default()
        };
        self.0.graph.as_mut().unwrap().initializer.push(tensor);
        self
    }

    fn read(&self) -> Result<Graph> {
        decode(Bytes::from(self.0.encode_to_vec()), Path::new(""))
    }

    /// The output's extents for `x: [2, 3, 8]` of `0, 1, 2, …`, and its elements.
    fn run(&self) -> (Vec<usize>, Vec<f64>) {
        let graph = self.read().unwrap();
        let session = Session::new(&graph, Options::default()).unwrap();
        let values: Vec<f32> = (0..48).map(|i| i as f32).collect();
        let x = Tensor::from_vec([2, 3, 8], values).unwrap();
        let run = session.run(&[("x".to_owned(), x)].into()).unwrap();
        let y = &run.outputs[0].1;
        (y.shape().to_vec(), y.to_f64().unwrap())
    }
}

fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        i: Some(value),
        r#type: Some(AttributeType::Int as i32),
        ..Default::default()
    }
}

fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        ints: values.to_vec(),
        r#type: Some(AttributeType::Ints as i32),
        ..Default::default()
    }
}

const END: i64 = i64::MAX;

#[test]
fn windows_of_old_and_new() {
    let attributes =
        vec![ints("axes", &[0, 2]), ints("starts", &[1, -3]), ints("ends", &[END, -1])];
    let old = Model::new(9, "y").node("Slice", &["x"], &["y"], attributes);
    let new = Model::new(13, "y")
        .ints("starts", &[1, -3])
        .ints("ends", &[END, -1])
        .ints("axes", &[0, 2])
        .node("Slice", &["x", "starts", "ends", "axes"], &["y"], vec![]);
    assert_eq!(old.run().0, [1, 3, 2]);
    assert_eq!(old.run(), new.run());
    assert_eq!(old.run().1, [29.0, 30.0, 37.0, 38.0, 45.0, 46.0]);
    // Axes from the end, backwards, all the way.
    let back = Model::new(13, "y")
        .ints("starts", &[-1])
        .ints("ends", &[-END])
        .ints("axes", &[-1])
        .ints("steps", &[-4])
        .node("Slice", &["x", "starts", "ends", "axes", "steps"], &["y"], vec![]);
    let (shape, values) = back.run();
    assert_eq!((shape.as_slice(), &values[..3]), (&[2, 3, 2][..], &[7.0, 3.0, 15.0][..]));
}

#[test]
fn axes_of_old_and_new() {
    let old = Model::new(11, "y")
        .node("Unsqueeze", &["x"], &["u"], vec![ints("axes", &[0, 3])])
        .node("Squeeze", &["u"], &["y"], vec![ints("axes", &[0])]);
    assert_eq!(old.run().0, [2, 3, 1, 8]);
    let new = Model::new(13, "y").ints("ends", &[-1, -3]).node(
        "Unsqueeze",
        &["x", "ends"],
        &["y"],
        vec![],
    );
    assert_eq!(new.run().0, [2, 3, 1, 8, 1]);
    let attribute = Model::new(13, "y").node(
        "ReduceMean",
        &["x"],
        &["y"],
        vec![ints("axes", &[1]), int("keepdims", 0)],
    );
    let input = Model::new(18, "y").ints("axes", &[1]).node(
        "ReduceMean",
        &["x", "axes"],
        &["y"],
        vec![int("keepdims", 0)],
    );
    assert_eq!(attribute.run(), input.run());
    assert_eq!(attribute.run().0, [2, 8]);
    let all = Model::new(13, "y").node("ReduceSum", &["x"], &["y"], vec![int("keepdims", 0)]);
    assert_eq!(all.run(), (vec![], vec![1128.0]));
}

#[test]
fn zeros_in_a_target_copy() {
    let model = Model::new(13, "y").ints("target", &[0, 0, 2, -1]).node(
        "Reshape",
        &["x", "target"],
        &["y"],
        vec![],
    );
    assert_eq!(model.run().0, [2, 3, 2, 4]);
    let flat = Model::new(13, "y").node("Flatten", &["x"], &["y"], vec![int("axis", 2)]);
    assert_eq!(flat.run().0, [6, 8]);
}

#[test]
fn softmax_by_opset_and_axis() {
    let last = |opset, axis| {
        Model::new(opset, "y").node("Softmax", &["x"], &["y"], vec![int("axis", axis)])
    };
    assert_eq!(last(11, 2).run(), last(13, -1).run());
    // Over the middle axis, every column sums to 1.
    let (shape, values) = last(13, 1).run();
    assert_eq!(shape, [2, 3, 8]);
    assert!((values[0] + values[8] + values[16] - 1.0).abs() < 1e-6);
    let error = last(11, 1).read().unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
}

/// `x.expand(-1, 4)` as PyTorch writes it has a 1 where the extent is to stay.
#[test]
fn expand_goes_both_ways() {
    let model = Model::new(13, "y")
        .ints("axes", &[0])
        .ints("target", &[4, 1, 1, 1])
        .node("Unsqueeze", &["x", "axes"], &["u"], vec![])
        .node("Expand", &["u", "target"], &["y"], vec![]);
    assert_eq!(model.run().0, [4, 2, 3, 8]);
}

#[test]
fn indices_from_the_end() {
    let model = Model::new(13, "y").number("last", -1).node(
        "Gather",
        &["x", "last"],
        &["y"],
        vec![int("axis", 1)],
    );
    let (shape, values) = model.run();
    assert_eq!((shape.as_slice(), values[0]), (&[2, 8][..], 16.0));
}

#[test]
fn factors_of_a_product() {
    let float = |name: &str, value: f32| AttributeProto {
        name: Some(name.into()),
        f: Some(value),
        r#type: Some(AttributeType::Float as i32),
        ..Default::default()
    };
    let model = Model::new(13, "y").node("Flatten", &["x"], &["m"], vec![int("axis", 2)]).node(
        "Gemm",
        &["m", "m", "m"],
        &["y"],
        vec![float("alpha", 0.5), float("beta", 0.0), int("transA", 1)],
    );
    // Half of the sum of squares of the first column, 0, 8, … 40.
    assert_eq!(model.run().1[0], 1760.0);
}

#[test]
fn computed_bounds() {
    let model = Model::new(15, "y")
        .ints("zero", &[0])
        .ints("one", &[1])
        .node("Shape", &["x"], &["length"], vec![int("start", 1), int("end", 2)])
        .node("Sub", &["length", "one"], &["end"], vec![])
        .node("Slice", &["x", "zero", "end", "one"], &["y"], vec![]);
    assert_eq!(model.run().0, [2, 2, 8]);
}

#[test]
fn names_and_extents() {
    let graph = Model::new(17, "y:0").node("Tanh", &["x"], &["y:0"], vec![]).read().unwrap();
    let text = dump(&graph);
    assert!(text.contains("y_0 = Tanh(x) : float32 [batch, seq, 8]"), "{text}");
    assert!(text.contains("output y:0 <- y_0"), "{text}");
}

#[test]
fn what_cannot_be_read_is_listed() {
    let model = Model::new(17, "y")
        .node("Trilu", &["x"], &["a"], vec![])
        .node("Tanh", &["a"], &["b"], vec![])
        .node("CumSum", &["b"], &["y"], vec![]);
    let error = model.read().unwrap_err();
    let Error::Refused { nodes, .. } = &error else { panic!("{error}") };
    let ops: Vec<&str> = nodes.iter().map(|node| node.op.as_str()).collect();
    assert_eq!(ops, ["Trilu", "CumSum"]);
}

#[test]
fn wrong_models_are_refused() {
    let opset = Model::new(99, "y").node("Tanh", &["x"], &["y"], vec![]).read();
    assert!(matches!(opset, Err(Error::Opset { opset: 99, .. })));
    for model in [
        Model::new(17, "z").node("Tanh", &["x"], &["y"], vec![]),
        Model::new(17, "y").node("Tanh", &["nowhere"], &["y"], vec![]),
        Model::new(17, "y").node("Tanh", &["x"], &["y"], vec![]).node(
            "Tanh",
            &["x"],
            &["y"],
            vec![],
        ),
        Model(ModelProto { graph: None, ..Model::new(17, "y").0 }),
    ] {
        let error = model.read().unwrap_err();
        assert!(matches!(error, Error::BadOnnx { .. }), "{error}");
    }
    let missing = Model::new(17, "y").node("Add", &["x"], &["y"], vec![]).read().unwrap_err();
    assert!(missing.to_string().contains("input 1 is missing"), "{missing}");
    assert!(decode(Bytes::from_static(b"\x08\x08\x3a\xff"), Path::new("")).is_err());
}

#[test]
fn models_are_told_from_other_files() {
    let model = Model::new(17, "y").node("Tanh", &["x"], &["y"], vec![]);
    assert!(looks_like(&model.0.encode_to_vec()));
    assert!(!looks_like(b"\x0a\x05node:"));
    assert!(!looks_like(b"PK\x03\x04"));
}

/// Models that PyTorch wrote compute what PyTorch computed; see `tests/fixtures/onnx`.
#[test]
fn models_of_pytorch() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/onnx");
    for name in ["pytorch_opset11", "pytorch_opset14", "pytorch_opset17"] {
        let graph = import(&folder.join(format!("{name}.onnx"))).unwrap();
        let golden = Npz::open(folder.join(format!("{name}.npz"))).unwrap();
        let inputs = graph.inputs.iter().map(|port| port.name.clone());
        let inputs = inputs.map(|name| (name.clone(), golden.tensor(&name).unwrap())).collect();
        for fused in [false, true] {
            let mut graph = graph.clone();
            if fused {
                pass::fold(&mut graph).unwrap();
                pass::fuse(&mut graph, &pass::Fusions::all()).unwrap();
            }
            let session = Session::new(&graph, Options::default()).unwrap();
            for (output, found) in session.run(&inputs).unwrap().outputs {
                let expected = golden.tensor(&output).unwrap();
                assert_eq!(expected.shape(), found.shape(), "{name}: {output}");
                let (a, b) = (expected.to_f64().unwrap(), found.to_f64().unwrap());
                let worst = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(worst <= 2e-5, "{name}: {output} differs by {worst:e}");
            }
        }
    }
}
