//! Every operation through OpenVINO's representation and back: which layers are written, and that
//! what is read again has the same type and shape. That the real OpenVINO computes the right
//! numbers from these layers is for `cargo xtask peers`.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::Path;

use frazil_convert::openvino::{Bounds, ExportOptions, export, import};
use frazil_convert::{Error, Written};
use frazil_graph::op::*;
use frazil_graph::{Dim, Graph, Node, Port, Symbol, Value, infer};
use frazil_tensor::{DType, Element, Tensor};

/// A graph in the making.
#[derive(Default)]
struct Maker(Graph);

impl Maker {
    fn input(&mut self, name: &str, dtype: DType, dims: &[i64]) -> Value {
        let dims = dims.iter().enumerate().map(|(axis, &dim)| match (dim, axis) {
            (-1, 0) => Dim::batch(),
            (-1, _) => Dim::seq(),
            (dim, _) => Dim::known(dim),
        });
        let op = Op::Input(Input { dtype, dims: Some(dims.collect()) });
        let value = self.node(name, op, &[]);
        self.0.inputs.push(Port { name: name.into(), value });
        value
    }

    fn f(&mut self, name: &str, dims: &[i64]) -> Value {
        self.input(name, DType::F32, dims)
    }

    fn i(&mut self, name: &str, dims: &[i64]) -> Value {
        self.input(name, DType::I32, dims)
    }

    fn constant<T: Element>(&mut self, name: &str, shape: &[usize], values: &[T]) -> Value {
        let tensor = Tensor::from_vec(shape.to_vec(), values.to_vec()).unwrap();
        self.node(name, Op::constant(tensor), &[])
    }

    fn node(&mut self, name: &str, op: Op, inputs: &[Value]) -> Value {
        self.0.push(Node::new(name, op, inputs.to_vec())).unwrap().into()
    }

    /// The node under test; all of its outputs are the model's.
    fn last(&mut self, op: Op, inputs: &[Value]) {
        let outputs = op.outputs() as u32;
        let node = self.node("y", op, inputs).node;
        for port in 0..outputs {
            let value = Value { node, port };
            let name = self.0.value_name(value);
            self.0.outputs.push(Port { name, value });
        }
    }
}

/// The types of a file's layers, in order, without parameters, constants and results.
fn kinds(xml: &str) -> Vec<String> {
    let layers = xml.split("<layer ").skip(1);
    let kinds = layers.map(|layer| {
        let from = layer.split("type=\"").nth(1).unwrap();
        from.split('"').next().unwrap().to_owned()
    });
    kinds.filter(|kind| !["Parameter", "Const", "Result"].contains(&kind.as_str())).collect()
}

fn write(graph: &Graph, options: &ExportOptions, folder: &Path) -> (Written, String) {
    let path = folder.join("m.xml");
    let written = export(graph, options, &path).unwrap();
    let xml = std::fs::read_to_string(&path).unwrap();
    (written, xml)
}

/// Exports, compares the layers, imports, compares what is known of the outputs.
fn check(what: &str, wanted: &[&str], make: impl FnOnce(&mut Maker)) -> String {
    let mut maker = Maker::default();
    make(&mut maker);
    let graph = maker.0;
    let folder = tempfile::tempdir().unwrap();
    let (_, xml) = write(&graph, &ExportOptions::default(), folder.path());
    assert_eq!(kinds(&xml), wanted, "{what}");
    let back = import(&folder.path().join("m.xml")).unwrap();
    let foreign = back.nodes().find(|(_, node)| matches!(node.op, Op::Foreign(_)));
    assert!(foreign.is_none(), "{what}: {foreign:?}");
    let names = |ports: &[Port]| ports.iter().map(|port| port.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&back.inputs), names(&graph.inputs), "{what}");
    assert_eq!(names(&back.outputs), names(&graph.outputs), "{what}");
    let (before, after) = (infer(&graph).unwrap(), infer(&back).unwrap());
    for (a, b) in graph.outputs.iter().zip(&back.outputs) {
        let (a, b) = (&before[a.value], &after[b.value]);
        assert_eq!((a.dtype, &a.dims), (b.dtype, &b.dims), "{what}");
    }
    xml
}

#[test]
fn element_by_element() {
    use Unary::*;
    let rows: [(Unary, &[&str]); 19] = [
        (Identity, &[]),
        (StopGradient, &[]),
        (Neg, &["Negative"]),
        (Abs, &["Abs"]),
        (Sign, &["Sign"]),
        (Exp, &["Exp"]),
        (Log, &["Log"]),
        (Sqrt, &["Sqrt"]),
        (Rsqrt, &["Power"]),
        (Reciprocal, &["Divide"]),
        (Square, &["Multiply"]),
        (Floor, &["Floor"]),
        (Round, &["Round"]),
        (Sin, &["Sin"]),
        (Cos, &["Cos"]),
        (Tanh, &["Tanh"]),
        (Erf, &["Erf"]),
        (Sigmoid, &["Sigmoid"]),
        (Relu, &["ReLU"]),
    ];
    for (kind, wanted) in rows {
        check(&format!("{kind:?}"), wanted, |m| {
            let x = m.f("x", &[-1, 4]);
            m.last(Op::Unary(kind), &[x]);
        });
    }
    use Binary::*;
    let rows: [(Binary, &[&str], &[&str]); 10] = [
        (Add, &["Add"], &["Add"]),
        (Sub, &["Subtract"], &["Subtract"]),
        (Mul, &["Multiply"], &["Multiply"]),
        (Div, &["Divide"], &["Divide"]),
        (FloorDiv, &["Divide", "Floor"], &["FloorMod", "Subtract", "Divide"]),
        (FloorMod, &["FloorMod"], &["FloorMod"]),
        (Pow, &["Power"], &["Power"]),
        (Maximum, &["Maximum"], &["Maximum"]),
        (Minimum, &["Minimum"], &["Minimum"]),
        (SquaredDifference, &["SquaredDifference"], &["SquaredDifference"]),
    ];
    for (kind, floats, integers) in rows {
        for (dtype, wanted) in [(DType::F32, floats), (DType::I32, integers)] {
            check(&format!("{kind:?} {dtype}"), wanted, |m| {
                let (x, z) = (m.input("x", dtype, &[-1, 4]), m.input("z", dtype, &[1, 4]));
                m.last(Op::Binary(kind), &[x, z]);
            });
        }
    }
    use Compare::*;
    let rows = [
        (Equal, "Equal"),
        (NotEqual, "NotEqual"),
        (Less, "Less"),
        (LessEqual, "LessEqual"),
        (Greater, "Greater"),
        (GreaterEqual, "GreaterEqual"),
    ];
    for (kind, wanted) in rows {
        check(wanted, &[wanted, "LogicalNot", "Select"], |m| {
            let (x, z) = (m.i("x", &[-1, 4]), m.i("z", &[-1, 4]));
            let c = m.node("c", Op::Compare(kind), &[x, z]);
            let n = m.node("n", Op::Unary(Not), &[c]);
            m.last(Op::Select, &[n, x, z]);
        });
    }
    for (kind, wanted) in [(And, "LogicalAnd"), (Or, "LogicalOr")] {
        check(wanted, &["Greater", wanted], |m| {
            let (x, z) = (m.i("x", &[-1, 4]), m.i("z", &[-1, 4]));
            let c = m.node("c", Op::Compare(Greater), &[x, z]);
            m.last(Op::Binary(kind), &[c, c]);
        });
    }
    check("AddN", &["Add", "Add"], |m| {
        let (x, z) = (m.f("x", &[-1, 4]), m.f("z", &[-1, 4]));
        m.last(Op::AddN, &[x, z, x]);
    });
    check("AddN of one", &[], |m| {
        let x = m.f("x", &[-1, 4]);
        m.last(Op::AddN, &[x]);
    });
    check("BiasAdd", &["Add"], |m| {
        let (x, z) = (m.f("x", &[-1, 4]), m.f("z", &[4]));
        m.last(Op::BiasAdd, &[x, z]);
    });
    for (to, wanted) in
        [(DType::I64, "Convert"), (DType::F16, "Convert"), (DType::Bool, "NotEqual")]
    {
        check(wanted, &[wanted], |m| {
            let x = m.f("x", &[-1, 4]);
            m.last(Op::Cast(Cast { to }), &[x]);
        });
    }
    check("Cast to the same", &[], |m| {
        let x = m.f("x", &[-1, 4]);
        m.last(Op::Cast(Cast { to: DType::F32 }), &[x]);
    });
}

#[test]
fn products_and_sums() {
    for (transpose_a, transpose_b) in [(false, false), (false, true), (true, false)] {
        let xml = check("MatMul", &["MatMul"], |m| {
            let a = m.f("a", if transpose_a { &[-1, 4, 3] } else { &[-1, 3, 4] });
            let b = m.f("b", if transpose_b { &[-1, 5, 4] } else { &[-1, 4, 5] });
            m.last(Op::MatMul(MatMul { transpose_a, transpose_b }), &[a, b]);
        });
        let data = format!("transpose_a=\"{transpose_a}\" transpose_b=\"{transpose_b}\"");
        assert!(xml.contains(&data));
    }
    use ReduceKind::*;
    for (kind, wanted) in [
        (Mean, "ReduceMean"),
        (Sum, "ReduceSum"),
        (Max, "ReduceMax"),
        (Min, "ReduceMin"),
        (Prod, "ReduceProd"),
    ] {
        for keep_dims in [false, true] {
            check(wanted, &[wanted], |m| {
                let (x, axes) = (m.f("x", &[-1, 4]), m.constant("axes", &[], &[-1i32]));
                m.last(Op::Reduce(Reduce { kind, keep_dims }), &[x, axes]);
            });
        }
    }
    for (kind, wanted) in [(All, "ReduceLogicalAnd"), (Any, "ReduceLogicalOr")] {
        check(wanted, &["Greater", wanted], |m| {
            let (x, axes) = (m.f("x", &[-1, 4]), m.constant("axes", &[1], &[1i32]));
            let c = m.node("c", Op::Compare(Compare::Greater), &[x, x]);
            m.last(Op::Reduce(Reduce { kind, keep_dims: false }), &[c, axes]);
        });
    }
    check("ArgMax", &["TopK", "Squeeze"], |m| {
        let (x, axis) = (m.f("x", &[-1, 4]), m.constant("axis", &[], &[-1i32]));
        m.last(Op::ArgMax(ArgMax { to: DType::I32 }), &[x, axis]);
    });
    check("Softmax", &["SoftMax"], |m| {
        let x = m.f("x", &[-1, 4]);
        m.last(Op::Softmax, &[x]);
    });
    check("LogSoftmax", &["LogSoftmax"], |m| {
        let x = m.f("x", &[-1, 4]);
        m.last(Op::LogSoftmax, &[x]);
    });
}

#[test]
fn shapes_and_windows() {
    let to = DType::I32;
    check("Shape", &["ShapeOf"], |m| {
        let x = m.f("x", &[-1, 4]);
        m.last(Op::Shape(ShapeOp { to }), &[x]);
    });
    check("Size", &["ShapeOf", "ReduceProd"], |m| {
        let x = m.f("x", &[-1, 4]);
        m.last(Op::Size(ShapeOp { to }), &[x]);
    });
    check("Rank", &["ShapeOf", "ShapeOf", "Squeeze"], |m| {
        let x = m.f("x", &[-1, 4]);
        m.last(Op::Rank, &[x]);
    });
    let xml = check("Reshape", &["Reshape"], |m| {
        let (x, shape) = (m.f("x", &[3, 4]), m.constant("s", &[3], &[2i32, -1, 3]));
        m.last(Op::Reshape, &[x, shape]);
    });
    assert!(xml.contains("special_zero=\"false\""));
    check("ExpandDims", &["Unsqueeze"], |m| {
        let (x, axis) = (m.f("x", &[-1, 4]), m.constant("a", &[], &[-1i32]));
        m.last(Op::ExpandDims, &[x, axis]);
    });
    check("Squeeze", &["Squeeze"], |m| {
        let x = m.f("x", &[-1, 1, 4]);
        m.last(Op::Squeeze(Squeeze { axes: vec![1] }), &[x]);
    });
    check("Squeeze all", &["Squeeze"], |m| {
        let x = m.f("x", &[3, 1, 4]);
        m.last(Op::Squeeze(Squeeze { axes: vec![] }), &[x]);
    });
    check("Transpose", &["Transpose"], |m| {
        let (x, order) = (m.f("x", &[-1, 3, 4]), m.constant("o", &[3], &[2i32, 0, 1]));
        m.last(Op::Transpose, &[x, order]);
    });
    check("Concat", &["Concat"], |m| {
        let (x, z) = (m.f("x", &[-1, 4]), m.f("z", &[-1, 2]));
        let axis = m.constant("a", &[], &[-1i32]);
        m.last(Op::Concat, &[x, z, axis]);
    });
    check("Pack", &["Unsqueeze", "Unsqueeze", "Concat"], |m| {
        let (x, z) = (m.f("x", &[-1, 4]), m.f("z", &[-1, 4]));
        m.last(Op::Pack(Pack { axis: 1 }), &[x, z]);
    });
    check("Pack with constants", &["Unsqueeze", "Concat"], |m| {
        let (x, seven) = (m.i("x", &[]), m.constant("seven", &[], &[7i32]));
        m.last(Op::Pack(Pack { axis: 0 }), &[seven, x, seven]);
    });
    check("Unpack", &["Split", "Squeeze", "Squeeze", "Squeeze"], |m| {
        let x = m.f("x", &[3, -1]);
        m.last(Op::Unpack(Unpack { axis: -2, count: 3 }), &[x]);
    });
    check("Split", &["Split"], |m| {
        let (axis, x) = (m.constant("a", &[], &[1i32]), m.f("x", &[-1, 4]));
        m.last(Op::Split(Split { count: 2 }), &[axis, x]);
    });
    check("SplitV", &["VariadicSplit"], |m| {
        let (x, sizes) = (m.f("x", &[-1, 4]), m.constant("s", &[2], &[1i32, 3]));
        let axis = m.constant("a", &[], &[1i32]);
        m.last(Op::SplitV(Split { count: 2 }), &[x, sizes, axis]);
    });
    let xml = check("Slice", &["StridedSlice"], |m| {
        let (x, begin) = (m.f("x", &[3, 4]), m.constant("b", &[2], &[1i32, 1]));
        let size = m.constant("s", &[2], &[-1i32, 2]);
        m.last(Op::Slice, &[x, begin, size]);
    });
    assert!(xml.contains("begin_mask=\"0, 0\" end_mask=\"1, 0\""));
    check("StridedSlice", &["StridedSlice"], |m| {
        let x = m.f("x", &[-1, 4]);
        let list = |m: &mut Maker, n: &str, v: [i32; 3]| m.constant(n, &[3], &v);
        let (begin, end, step) =
            (list(m, "b", [0, 0, -1]), list(m, "e", [0, 0, 0]), list(m, "s", [1, 1, 1]));
        let op = StridedSlice {
            begin_mask: 1,
            end_mask: 1,
            ellipsis_mask: 0,
            new_axis_mask: 2,
            shrink_axis_mask: 4,
        };
        m.last(Op::StridedSlice(op), &[x, begin, end, step]);
    });
    check("Tile", &["Tile"], |m| {
        let (x, by) = (m.f("x", &[-1, 4]), m.constant("by", &[2], &[1i32, 2]));
        m.last(Op::Tile, &[x, by]);
    });
    check("BroadcastTo", &["Broadcast"], |m| {
        let (x, shape) = (m.f("x", &[1, 4]), m.constant("s", &[2], &[3i32, 4]));
        m.last(Op::BroadcastTo, &[x, shape]);
    });
    check("Fill", &["Broadcast"], |m| {
        let (dims, x) = (m.constant("s", &[2], &[3i32, 4]), m.f("x", &[]));
        m.last(Op::Fill, &[dims, x]);
    });
    check("Pad", &["Pad"], |m| {
        let (x, pairs) = (m.f("x", &[3, 4]), m.constant("p", &[2, 2], &[1i32, 0, 0, 2]));
        m.last(Op::Pad, &[x, pairs]);
    });
}

#[test]
fn sizes_that_are_known_at_run_time_only() {
    let layers = |make: &dyn Fn(&mut Maker)| {
        let mut maker = Maker::default();
        make(&mut maker);
        let folder = tempfile::tempdir().unwrap();
        kinds(&write(&maker.0, &ExportOptions::default(), folder.path()).1)
    };
    let slice = layers(&|m| {
        let (x, begin, size) = (m.f("x", &[3, 4]), m.i("b", &[2]), m.i("s", &[2]));
        m.last(Op::Slice, &[x, begin, size]);
    });
    assert_eq!(slice, ["Add", "ShapeOf", "Equal", "Select", "StridedSlice"]);
    let pad = layers(&|m| {
        let (x, pairs, border) = (m.f("x", &[3, 4]), m.i("p", &[2, 2]), m.f("v", &[]));
        m.last(Op::Pad, &[x, pairs, border]);
    });
    assert_eq!(pad, ["Split", "Squeeze", "Squeeze", "Pad"]);
}

#[test]
fn lookups_and_fused_operations() {
    check("Gather", &["Gather"], |m| {
        let (table, ids) = (m.constant("t", &[3, 2], &[0f32; 6]), m.i("ids", &[-1, -1]));
        let axis = m.constant("a", &[], &[0i32]);
        m.last(Op::Gather(Gather { batch_dims: 0 }), &[table, ids, axis]);
    });
    check("OneHot", &["OneHot"], |m| {
        let (ids, depth) = (m.i("ids", &[-1]), m.constant("d", &[], &[3i32]));
        let (on, off) = (m.constant("on", &[], &[1f32]), m.constant("off", &[], &[0f32]));
        m.last(Op::OneHot(OneHot { axis: -1 }), &[ids, depth, on, off]);
    });
    check("Range", &["Range"], |m| {
        let list = ["a", "b", "c"];
        let values: Vec<Value> =
            list.iter().zip([0i32, 9, 2]).map(|(n, v)| m.constant(n, &[], &[v])).collect();
        m.last(Op::Range, &values);
    });
    let xml = check("LayerNorm", &["MVN", "Multiply", "Add"], |m| {
        let x = m.f("x", &[-1, 2]);
        let (gamma, beta) =
            (m.constant("gamma", &[2], &[1f32, 2.0]), m.constant("beta", &[2], &[0f32, 1.0]));
        m.last(Op::LayerNorm(LayerNorm { epsilon: 1e-12 }), &[x, gamma, beta]);
    });
    assert!(xml.contains("eps=\"0.0000000000009999999960041972\""), "{xml}");
    assert!(xml.contains("eps_mode=\"INSIDE_SQRT\""));
    for (form, mode) in [(GeluForm::Tanh, "TANH"), (GeluForm::Erf, "ERF")] {
        let xml = check(mode, &["Gelu"], |m| {
            let x = m.f("x", &[-1, 2]);
            m.last(Op::Gelu(Gelu { form }), &[x]);
        });
        assert!(xml.contains(&format!("approximation_mode=\"{mode}\"")));
        assert!(xml.contains("version=\"opset7\""));
    }
    for transpose_w in [false, true] {
        check("Linear", &["MatMul", "Add"], |m| {
            let x = m.f("x", &[-1, 2]);
            let shape = if transpose_w { [3, 2] } else { [2, 3] };
            let (w, bias) =
                (m.constant("w", &shape, &[1f32; 6]), m.constant("b", &[3], &[0f32; 3]));
            m.last(Op::Linear(Linear { transpose_w }), &[x, w, bias]);
        });
    }
}

#[test]
fn attention_and_embeddings_are_taken_apart() {
    let mut m = Maker::default();
    // input_ids, segment_ids, mask: [b, s]
    let (ids, segments, mask) =
        (m.i("ids", &[-1, -1]), m.i("seg", &[-1, -1]), m.i("mask", &[-1, -1]));
    let words = m.constant("words", &[5, 4], &[0.5f32; 20]);
    let types = m.constant("types", &[2, 4], &[0.25f32; 8]);
    let places = m.constant("places", &[8, 4], &[0.125f32; 32]);
    let x = m.node("embed", Op::Embed, &[ids, segments, words, types, places]);
    let shape = m.constant("rows/shape", &[2], &[-1i32, 4]);
    let rows = m.node("rows", Op::Reshape, &[x, shape]);
    let op = Attention { heads: 2, scale: 0.7, mask_value: -10000.0, packed: false, steps: None };
    m.last(Op::Attention(op), &[rows, rows, rows, mask]);
    let folder = tempfile::tempdir().unwrap();
    let (_, xml) = write(&m.0, &ExportOptions::default(), folder.path());
    let kinds = kinds(&xml);
    assert!(kinds.contains(&"SoftMax".to_owned()) && kinds.contains(&"Gather".to_owned()));
    let back = import(&folder.path().join("m.xml")).unwrap();
    let facts = infer(&back).unwrap();
    assert_eq!(facts[back.outputs[0].value].rank(), Some(2));
}

#[test]
fn names_and_order() {
    let mut m = Maker::default();
    let x = m.i("x", &[-1, -1]);
    let z = m.i("z", &[1, 4]);
    m.0.inputs.swap(0, 1);
    let id = m.node("again", Op::Unary(Unary::Identity), &[x]);
    let sum = m.node("sum", Op::Binary(Binary::Add), &[id, z]);
    m.0.outputs = vec![
        Port { name: "total, of \"all\"".into(), value: sum },
        Port { name: "x:0".into(), value: x },
    ];
    let folder = tempfile::tempdir().unwrap();
    let bounds = [(Symbol::batch(), Bounds { least: 1, most: Some(8) })].into();
    let options = ExportOptions { name: "a&b".into(), bounds, ..ExportOptions::default() };
    let (written, xml) = write(&m.0, &options, folder.path());
    assert_eq!(written.files.len(), 2);
    let layer = |i: usize| xml.split("<layer ").nth(i + 1).unwrap().to_owned();
    assert!(xml.contains("<net name=\"a&amp;b\" version=\"11\">"));
    assert!(layer(0).starts_with("id=\"0\" name=\"z\" type=\"Parameter\""));
    assert!(layer(1).contains("shape=\"1..8,?\""), "{}", layer(1));
    assert!(layer(1).contains("<dim>-1</dim>"));
    assert!(layer(1).contains("names=\"again,again:0,x,x:0\""), "{}", layer(1));
    assert!(layer(2).contains("names=\"sum,sum:0,total\\, of &quot;all&quot;\""), "{}", layer(2));
    assert!(layer(3).contains("name=\"total, of &quot;all&quot;/sink_port_0\" type=\"Result\""));
    let back = import(&folder.path().join("m.xml")).unwrap();
    assert_eq!(back.inputs[0].name, "z");
    assert_eq!(back.outputs[0].name, "total, of \"all\"");
    assert_eq!(back.outputs[1].name, "x:0");
    assert_eq!(back.op(back.inputs[1].value), m.0.op(x));
    // The same graph gives the same bytes.
    let bytes = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    let first = (bytes("m.xml"), bytes("m.bin"));
    write(&m.0, &options, folder.path());
    assert_eq!(first, (bytes("m.xml"), bytes("m.bin")));
}

#[test]
fn constants_compressed_and_shared() {
    let mut m = Maker::default();
    let x = m.f("x", &[-1, 2]);
    let w = m.constant("w", &[2, 2], &[1f32, 2.0, 3.0, 70000.0]);
    let same = m.constant("same", &[2, 2], &[1f32, 2.0, 3.0, 70000.0]);
    let epsilon = m.constant("epsilon", &[], &[1e-12f32]);
    let a = m.node("a", Op::MatMul(MatMul::default()), &[x, w]);
    let b = m.node("b", Op::MatMul(MatMul::default()), &[a, same]);
    let c = m.node("c", Op::MatMul(MatMul::default()), &[b, w]);
    m.last(Op::Binary(Binary::Add), &[c, epsilon]);
    let folder = tempfile::tempdir().unwrap();
    let (_, xml) = write(&m.0, &ExportOptions::default(), folder.path());
    assert_eq!(std::fs::metadata(folder.path().join("m.bin")).unwrap().len(), 20);
    assert_eq!(xml.matches("type=\"Const\"").count(), 3);
    let options = ExportOptions { fp16: true, ..ExportOptions::default() };
    let (_, xml) = write(&m.0, &options, folder.path());
    assert_eq!(std::fs::metadata(folder.path().join("m.bin")).unwrap().len(), 12);
    assert_eq!(xml.matches("<attribute name=\"decompression\" version=\"0\" />").count(), 2);
    assert!(xml.contains("name=\"w_compressed\" type=\"Const\""));
    assert!(xml.contains("name=\"w\" type=\"Convert\""));
    let back = import(&folder.path().join("m.xml")).unwrap();
    let value = back.node(back.find("w").unwrap()).op.as_const().unwrap();
    assert_eq!(&*value.values::<f32>().unwrap(), &[1.0, 2.0, 3.0, 65504.0]);
}

#[test]
fn what_cannot_be_written_is_refused_before_a_file_is_begun() {
    let refused = |make: &dyn Fn(&mut Maker)| {
        let mut m = Maker::default();
        make(&mut m);
        let folder = tempfile::tempdir().unwrap();
        let result = export(&m.0, &ExportOptions::default(), &folder.path().join("m.xml"));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        match result.unwrap_err() {
            error @ Error::Refused { .. } => {
                assert!(error.hint().is_some());
                error.to_string()
            }
            other => panic!("{other}"),
        }
    };
    let foreign = |name: &str| {
        let outputs = vec![Declared { dtype: Some(DType::F32), dims: None }];
        Op::Foreign(Foreign { op: name.into(), attrs: Attrs::default(), outputs })
    };
    let message = refused(&|m| {
        let x = m.f("x", &[1]);
        let a = m.node("a", foreign("Odd"), &[x]);
        let v = m.node(
            "v",
            Op::Variable(Variable { dtype: DType::F32, shape: None, resource: false }),
            &[],
        );
        let b = m.node("b", Op::Binary(Binary::Add), &[a, v]);
        m.last(foreign("Strange"), &[b]);
    });
    assert_eq!(
        message,
        "OpenVINO cannot hold `a` (Odd): OpenVINO has no such operation; `v` (Variable): its value \
         is in a checkpoint; freeze the graph first; `y` (Strange): OpenVINO has no such operation"
    );
    let message = refused(&|m| {
        let x = m.input("x", DType::C64, &[1]);
        m.last(Op::Unary(Unary::Neg), &[x]);
    });
    assert!(message.contains("`x` (Input): OpenVINO has no complex64"), "{message}");
    let message = refused(&|m| {
        let x = m.f("x", &[2, 2]);
        let axis = m.i("axis", &[]);
        m.last(Op::Concat, &[x, x, axis]);
    });
    assert!(message.contains("its axis is not constant"), "{message}");
    let message = refused(&|m| {
        let op = Op::Input(Input { dtype: DType::F32, dims: None });
        let x = m.node("x", op, &[]);
        m.0.inputs.push(Port { name: "x".into(), value: x });
        m.last(Op::Unary(Unary::Neg), &[x]);
    });
    assert!(message.contains("its rank is not known"), "{message}");
}
