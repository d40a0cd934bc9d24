//! One small graph per group of operations: adding an operation is adding a line.

use frazil_graph::op::{
    ArgMax, Attention, Binary, Cast, Compare, Gather, Gelu, GeluForm, Input, LayerNorm, Linear,
    MatMul, OneHot, Op, Pack, Reduce, ReduceKind, ShapeOp, Split, Squeeze, StridedSlice, Unary,
    Unpack,
};
use frazil_graph::{Dim, Port, Value};
use frazil_tensor::{DType, Tensor};

use crate::sketch::{Sketch, cube};

pub fn all() -> Vec<(&'static str, Sketch)> {
    vec![
        ("unary", unary()),
        ("binary", binary()),
        ("integers", integers()),
        ("truth", truth()),
        ("sums", sums()),
        ("products", products()),
        ("reductions", reductions()),
        ("shapes", shapes()),
        ("axes", axes()),
        ("parts", parts()),
        ("windows", windows()),
        ("computed_windows", computed_windows()),
        ("lookups", lookups()),
        ("fills", fills()),
        ("fused", fused()),
        ("attention", attention()),
        ("ends", ends()),
    ]
}

fn port(value: Value, port: u32) -> Value {
    Value { port, ..value }
}

fn unary() -> Sketch {
    let mut s = Sketch::default();
    let x = s.floats("x", &cube(8));
    let positive = s.fed("positive", &cube(8), |i| (i % 19) as f32 / 8.0 + 0.25);
    for kind in [
        Unary::Identity,
        Unary::StopGradient,
        Unary::Neg,
        Unary::Abs,
        Unary::Sign,
        Unary::Exp,
        Unary::Square,
        Unary::Floor,
        Unary::Round,
        Unary::Sin,
        Unary::Cos,
        Unary::Tanh,
        Unary::Erf,
        Unary::Sigmoid,
        Unary::Relu,
    ] {
        s.out(&format!("{kind:?}"), Op::Unary(kind), &[x]);
    }
    for kind in [Unary::Log, Unary::Sqrt, Unary::Rsqrt, Unary::Reciprocal] {
        s.out(&format!("{kind:?}"), Op::Unary(kind), &[positive]);
    }
    s.out("softmax", Op::Softmax, &[x]);
    s.out("log_softmax", Op::LogSoftmax, &[x]);
    s
}

fn binary() -> Sketch {
    let mut s = Sketch::default();
    let x = s.floats("x", &cube(8));
    let row = s.fed("row", &[Dim::known(8)], |i| i as f32 / 2.0 - 1.75);
    let positive = s.fed("positive", &cube(8), |i| (i % 19) as f32 / 8.0 + 0.25);
    for kind in [
        Binary::Add,
        Binary::Sub,
        Binary::Mul,
        Binary::Div,
        Binary::FloorDiv,
        Binary::FloorMod,
        Binary::Maximum,
        Binary::Minimum,
        Binary::SquaredDifference,
    ] {
        s.out(&format!("{kind:?}"), Op::Binary(kind), &[x, row]);
    }
    s.out("pow", Op::Binary(Binary::Pow), &[positive, row]);
    let bias = s.weights("bias", &[8]);
    s.out("bias_add", Op::BiasAdd, &[x, bias]);
    s
}

fn integers() -> Sketch {
    let mut s = Sketch::default();
    let x = s.fed("x", &[Dim::batch(), Dim::known(8)], |i| (i as i32 * 7) % 23 - 11);
    let y = s.fed("y", &[Dim::known(8)], |i| [3, -3, 5, -5, 1, -1, 7, 2][i]);
    for kind in [
        Binary::Add,
        Binary::Sub,
        Binary::Mul,
        Binary::Div,
        Binary::FloorDiv,
        Binary::FloorMod,
        Binary::Maximum,
        Binary::Minimum,
        Binary::SquaredDifference,
    ] {
        s.out(&format!("{kind:?}"), Op::Binary(kind), &[x, y]);
    }
    for kind in [Unary::Neg, Unary::Abs, Unary::Sign] {
        s.out(&format!("{kind:?}"), Op::Unary(kind), &[x]);
    }
    s.out("add_n", Op::AddN, &[x, x, x]);
    s.out("to_float", Op::Cast(Cast { to: DType::F32 }), &[x]);
    s.out("to_int64", Op::Cast(Cast { to: DType::I64 }), &[x]);
    let axis = s.int("axis", 1);
    for kind in [ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min, ReduceKind::Prod] {
        let op = Reduce { kind, keep_dims: false };
        s.out(&format!("Reduce{kind:?}"), Op::Reduce(op), &[x, axis]);
    }
    s.out("arg_max", Op::ArgMax(ArgMax { to: DType::I32 }), &[x, axis]);
    s
}

fn truth() -> Sketch {
    let mut s = Sketch::default();
    let x = s.floats("x", &cube(4));
    let y = s.fed("y", &[Dim::known(4)], |i| i as f32 - 1.5);
    let mut found = Vec::new();
    for kind in [
        Compare::Equal,
        Compare::NotEqual,
        Compare::Less,
        Compare::LessEqual,
        Compare::Greater,
        Compare::GreaterEqual,
    ] {
        found.push(s.out(&format!("{kind:?}"), Op::Compare(kind), &[x, y]));
    }
    s.out("and", Op::Binary(Binary::And), &[found[1], found[2]]);
    s.out("or", Op::Binary(Binary::Or), &[found[0], found[2]]);
    s.out("not", Op::Unary(Unary::Not), &[found[2]]);
    s.out("select", Op::Select, &[found[4], x, y]);
    s.out("to_float", Op::Cast(Cast { to: DType::F32 }), &[found[2]]);
    s.out("to_bool", Op::Cast(Cast { to: DType::Bool }), &[x]);
    let axes = s.ints("axes", &[0, -1]);
    for kind in [ReduceKind::All, ReduceKind::Any] {
        let op = Reduce { kind, keep_dims: true };
        s.out(&format!("Reduce{kind:?}"), Op::Reduce(op), &[found[2], axes]);
    }
    s
}

fn sums() -> Sketch {
    let mut s = Sketch::default();
    let x = s.floats("x", &cube(4));
    let y = s.node("y", Op::Unary(Unary::Tanh), &[x]);
    s.out("one", Op::AddN, &[x]);
    s.out("three", Op::AddN, &[x, y, x]);
    s
}

fn products() -> Sketch {
    let mut s = Sketch::default();
    let x = s.floats("x", &[Dim::batch(), Dim::known(8)]);
    let (w, v) = (s.weights("w", &[8, 6]), s.weights("v", &[6, 8]));
    let bias = s.weights("bias", &[6]);
    let flags = |transpose_a, transpose_b| Op::MatMul(MatMul { transpose_a, transpose_b });
    s.out("plain", flags(false, false), &[x, w]);
    s.out("b", flags(false, true), &[x, v]);
    s.out("a", flags(true, false), &[x, x]);
    s.out("both", flags(true, true), &[w, x]);
    s.out("linear", Op::Linear(Linear { transpose_w: false }), &[x, w, bias]);
    s.out("linear_turned", Op::Linear(Linear { transpose_w: true }), &[x, v, bias]);
    let rows = s.floats("rows", &cube(8));
    s.out("batched", flags(false, true), &[rows, rows]);
    s.out("batched_a", flags(true, false), &[rows, rows]);
    s.out("linear_rows", Op::Linear(Linear { transpose_w: true }), &[rows, v, bias]);
    s
}

fn reductions() -> Sketch {
    let mut s = Sketch::default();
    let x = s.floats("x", &cube(8));
    let (last, pair, none) = (s.int("last", -1), s.ints("pair", &[0, 2]), s.ints("none", &[]));
    for kind in
        [ReduceKind::Mean, ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min, ReduceKind::Prod]
    {
        for keep_dims in [false, true] {
            let op = || Op::Reduce(Reduce { kind, keep_dims });
            s.out(&format!("{kind:?}_{keep_dims}"), op(), &[x, last]);
            s.out(&format!("{kind:?}_{keep_dims}_pair"), op(), &[x, pair]);
        }
    }
    let mean = Reduce { kind: ReduceKind::Mean, keep_dims: false };
    s.out("unreduced", Op::Reduce(mean), &[x, none]);
    s.out("arg_max", Op::ArgMax(ArgMax { to: DType::I64 }), &[x, last]);
    s
}

fn shapes() -> Sketch {
    let mut s = Sketch::default();
    let x = s.floats("x", &cube(8));
    let shape = s.out("shape", Op::Shape(ShapeOp { to: DType::I32 }), &[x]);
    s.out("shape_long", Op::Shape(ShapeOp { to: DType::I64 }), &[x]);
    s.out("size", Op::Size(ShapeOp { to: DType::I32 }), &[x]);
    s.out("rank", Op::Rank, &[x]);
    let inner = s.node("inner", Op::Shape(ShapeOp { to: DType::I32 }), &[x]);
    let (zero, one, two) = (s.ints("0", &[0]), s.ints("1", &[1]), s.ints("2", &[2]));
    let pick = || Op::StridedSlice(StridedSlice { shrink_axis_mask: 1, ..Default::default() });
    let batch = s.node("batch", pick(), &[inner, zero, one, one]);
    let length = s.node("length", pick(), &[inner, one, two, one]);
    let rows = s.node("rows", Op::Binary(Binary::Mul), &[batch, length]);
    let (four, minus) = (s.int("four", 4), s.int("minus", -1));
    let target = s.node("target", Op::Pack(Pack { axis: 0 }), &[batch, length, four, minus]);
    s.out("split_heads", Op::Reshape, &[x, target]);
    let flat = s.node("flat", Op::Pack(Pack { axis: 0 }), &[rows, minus]);
    s.out("flattened", Op::Reshape, &[x, flat]);
    // The same number as a shape and as data.
    let as_float = s.node("as_float", Op::Cast(Cast { to: DType::F32 }), &[rows]);
    s.out("scaled", Op::Binary(Binary::Mul), &[x, as_float]);
    let wanted = s.ints("wanted", &[-1, 2, 4]);
    s.out("constant_target", Op::Reshape, &[x, wanted]);
    let last = s.int("last", 0);
    let product = Reduce { kind: ReduceKind::Prod, keep_dims: true };
    let all = s.node("all", Op::Reduce(product), &[shape, last]);
    s.out("all_in_a_row", Op::Reshape, &[x, all]);
    s
}

fn axes() -> Sketch {
    let mut s = Sketch::default();
    let x = s.floats("x", &cube(8));
    for axis in [0, 1, -1, -2, 3] {
        let at = s.int(&format!("at_{axis}"), axis);
        s.out(&format!("expanded_{axis}"), Op::ExpandDims, &[x, at]);
    }
    let (one, minus) = (s.int("one", 1), s.ints("minus", &[-1]));
    let thin = s.node("thin", Op::ExpandDims, &[x, one]);
    s.out("squeezed", Op::Squeeze(Squeeze { axes: vec![1] }), &[thin]);
    s.out("squeezed_end", Op::Squeeze(Squeeze { axes: vec![-3] }), &[thin]);
    s.out("expanded_list", Op::ExpandDims, &[x, minus]);
    let order = s.ints("order", &[2, 0, 1]);
    s.out("transposed", Op::Transpose, &[x, order]);
    let narrow = s.fed("narrow", &[Dim::known(1), Dim::known(4), Dim::known(1)], |i| i as f32);
    s.out("squeezed_all", Op::Squeeze(Squeeze { axes: vec![] }), &[narrow]);
    s
}

fn parts() -> Sketch {
    let mut s = Sketch::default();
    let x = s.floats("x", &cube(8));
    let y = s.node("y", Op::Unary(Unary::Neg), &[x]);
    let (last, first) = (s.int("last", -1), s.int("first", 0));
    s.out("concat", Op::Concat, &[x, y, x, last]);
    s.out("pack_first", Op::Pack(Pack { axis: 0 }), &[x, y]);
    s.out("pack_last", Op::Pack(Pack { axis: -1 }), &[x, y, x]);
    let split = s.node("split", Op::Split(Split { count: 4 }), &[last, x]);
    let even = s.node("even", Op::Concat, &[x, y, first]);
    let halves = s.node("halves", Op::Split(Split { count: 2 }), &[first, even]);
    let sizes = s.ints("sizes", &[5, -1, 1]);
    let uneven = s.node("uneven", Op::SplitV(Split { count: 3 }), &[x, sizes, last]);
    let each = s.node("each", Op::Unpack(Unpack { axis: 2, count: 8 }), &[x]);
    for (name, value, count) in
        [("split", split, 4), ("halves", halves, 2), ("uneven", uneven, 3), ("each", each, 8)]
    {
        for i in 0..count {
            s.output(&format!("{name}_{i}"), port(value, i));
        }
    }
    s
}

fn windows() -> Sketch {
    let mut s = Sketch::default();
    let x = s.floats("x", &cube(8));
    let (begin, size) = (s.ints("begin", &[0, 1, 2]), s.ints("size", &[-1, 2, -1]));
    s.out("slice", Op::Slice, &[x, begin, size]);
    let zeros = s.ints("zeros", &[0, 0, 0]);
    let all = s.ints("all", &[-1, -1, -1]);
    s.out("slice_all", Op::Slice, &[x, zeros, all]);
    let mut strided = |name: &str, bounds: [&[i32]; 3], op: StridedSlice| {
        let [begin, end, strides] = bounds;
        let begin = s.ints(&format!("{name}/begin"), begin);
        let end = s.ints(&format!("{name}/end"), end);
        let strides = s.ints(&format!("{name}/strides"), strides);
        s.out(name, Op::StridedSlice(op), &[x, begin, end, strides]);
    };
    let none = StridedSlice::default();
    strided("plain", [&[0, 1], &[2, 4], &[1, 1]], none);
    strided("from_end", [&[-2, -3], &[-1, -1], &[1, 1]], none);
    strided("steps", [&[0, 0, 6], &[3, 5, 1], &[2, 1, -2]], none);
    let open = StridedSlice { begin_mask: 5, end_mask: 7, ..none };
    strided("open", [&[9, 1, 9], &[9, 9, 9], &[1, 2, -1]], open);
    strided("first", [&[0], &[1], &[1]], StridedSlice { shrink_axis_mask: 1, ..none });
    strided("last", [&[-1], &[0], &[1]], StridedSlice { shrink_axis_mask: 1, ..none });
    let both = StridedSlice { begin_mask: 1, end_mask: 1, shrink_axis_mask: 6, ..none };
    strided("two_gone", [&[0, 1, -2], &[0, 2, -1], &[1, 1, 1]], both);
    let dots = StridedSlice { ellipsis_mask: 1, shrink_axis_mask: 4, ..none };
    strided("dots", [&[0, 1, 3], &[0, 4, 4], &[1, 1, 1]], dots);
    let fresh = StridedSlice { new_axis_mask: 9, begin_mask: 4, end_mask: 4, ..none };
    strided("fresh", [&[0, 1, 0, 0], &[0, 3, 0, 0], &[1, 1, 1, 1]], fresh);
    let mixed = StridedSlice { ellipsis_mask: 2, new_axis_mask: 4, shrink_axis_mask: 9, ..none };
    strided("mixed", [&[1, 0, 0, 2], &[2, 0, 0, 3], &[1, 1, 1, 1]], mixed);
    s
}

/// Bounds that only the run knows: `x[1:, :shape(y)[1]]`, and the positions of BERT.
fn computed_windows() -> Sketch {
    let mut s = Sketch::default();
    let x = s.floats("x", &[Dim::batch(), Dim::known(16), Dim::known(4)]);
    let y = s.fed("y", &[Dim::batch(), Dim::seq()], |i| i as i32);
    let table = s.weights("table", &[12, 4]);
    let shape = s.node("shape", Op::Shape(ShapeOp { to: DType::I32 }), &[y]);
    let (one, two) = (s.ints("1", &[1]), s.ints("2", &[2]));
    let pick = StridedSlice { shrink_axis_mask: 1, ..Default::default() };
    let length = s.node("length", Op::StridedSlice(pick), &[shape, one, two, one]);
    let (minus, zero) = (s.int("minus", -1), s.int("zero", 0));
    let size = s.node("size", Op::Pack(Pack { axis: 0 }), &[length, minus]);
    let begin = s.ints("begin", &[0, 0]);
    s.out("positions", Op::Slice, &[table, begin, size]);
    let begin = s.ints("later", &[2, 1]);
    s.out("later_positions", Op::Slice, &[table, begin, size]);
    let end = s.node("end", Op::Pack(Pack { axis: 0 }), &[zero, length]);
    let (start, strides) = (s.ints("start", &[1, 0]), s.ints("strides", &[1, 1]));
    let op = StridedSlice { end_mask: 1, ..Default::default() };
    s.out("window", Op::StridedSlice(op), &[x, start, end, strides]);
    let op = StridedSlice { begin_mask: 1, end_mask: 1, shrink_axis_mask: 2, ..Default::default() };
    s.out("picked", Op::StridedSlice(op), &[x, end, end, strides]);
    let given = s.fed("given", &[Dim::known(3)], |i| [0, 2, 1][i]);
    let taken = s.fed("taken", &[Dim::known(3)], |i| [2, -1, 3][i]);
    s.out("given_window", Op::Slice, &[x, given, taken]);
    s
}

fn lookups() -> Sketch {
    let mut s = Sketch::default();
    let ids = s.fed("ids", &[Dim::batch(), Dim::seq()], |i| (i as i32 * 3) % 7);
    let wild = s.fed("wild", &[Dim::batch(), Dim::seq()], |i| i as i32 % 6 - 2);
    let table = s.weights("table", &[7, 4]);
    let (zero, one) = (s.int("zero", 0), s.int("one", 1));
    s.out("rows", Op::Gather(Gather::default()), &[table, ids, zero]);
    let column = s.ints("columns", &[3, 0, 1]);
    s.out("columns_of", Op::Gather(Gather::default()), &[table, column, one]);
    let x = s.floats("x", &cube(6));
    let place = s.fed("place", &[Dim::batch(), Dim::known(2)], |i| (i as i32 * 2) % 5);
    s.out("by_batch", Op::Gather(Gather { batch_dims: 1 }), &[x, place, one]);
    let depth = s.int("depth", 3);
    let (on, off) = (s.float("on", 1.0), s.float("off", 0.0));
    // Negative indices are no class, nor are those beyond the last.
    for axis in [-1, 0, 1] {
        let op = Op::OneHot(OneHot { axis });
        s.out(&format!("hot_{axis}"), op, &[wild, depth, on, off]);
    }
    let warm = s.float("warm", 0.9);
    s.out("smooth", Op::OneHot(OneHot { axis: -1 }), &[wild, depth, warm, on]);
    let shape = s.node("shape", Op::Shape(ShapeOp { to: DType::I32 }), &[ids]);
    let length = s.node("length", Op::Gather(Gather::default()), &[shape, one, zero]);
    let places = s.out("places", Op::Range, &[zero, length, one]);
    s.out("hot_computed", Op::OneHot(OneHot { axis: -1 }), &[places, length, on, off]);
    s.out("position_rows", Op::Gather(Gather::default()), &[table, places, zero]);
    s
}

fn fills() -> Sketch {
    let mut s = Sketch::default();
    let ids = s.fed("ids", &[Dim::batch(), Dim::seq()], |i| i as i32);
    let shape = s.node("shape", Op::Shape(ShapeOp { to: DType::I32 }), &[ids]);
    let (one, seven) = (s.float("one", 1.0), s.int("seven", 7));
    s.out("ones", Op::Fill, &[shape, one]);
    s.out("sevens", Op::Fill, &[shape, seven]);
    let given = s.fed("given", &[], |_| 2.5f32);
    s.out("given_everywhere", Op::Fill, &[shape, given]);
    let row = s.fed("row", &[Dim::known(1), Dim::seq()], |i| i as f32);
    s.out("broadcast", Op::BroadcastTo, &[row, shape]);
    let times = s.ints("times", &[2, 3]);
    s.out("tiled", Op::Tile, &[ids, times]);
    let edges = Tensor::from_vec([2, 2], vec![1, 0, 2, 3]).unwrap();
    let edges = s.constant("edges", edges);
    s.out("padded", Op::Pad, &[ids, edges]);
    s.out("padded_with", Op::Pad, &[ids, edges, seven]);
    let start = s.fed("start", &[], |_| 0.5f32);
    let (limit, delta) = (s.float("limit", 4.0), s.float("delta", 0.75));
    s.out("range", Op::Range, &[start, limit, delta]);
    s
}

fn fused() -> Sketch {
    let mut s = Sketch::default();
    let x = s.floats("x", &cube(8));
    let (gamma, beta) = (s.weights("gamma", &[8]), s.weights("beta", &[8]));
    let norm = LayerNorm { epsilon: 1e-12 };
    s.out("norm", Op::LayerNorm(norm), &[x, gamma, beta]);
    s.out("gelu_tanh", Op::Gelu(Gelu { form: GeluForm::Tanh }), &[x]);
    s.out("gelu_erf", Op::Gelu(Gelu { form: GeluForm::Erf }), &[x]);
    let ids = s.fed("ids", &[Dim::batch(), Dim::seq()], |i| (i as i32 * 5) % 9);
    let segments = s.fed("segments", &[Dim::batch(), Dim::seq()], |i| i as i32 % 2);
    let words = s.weights("words", &[9, 4]);
    let (types, places) = (s.weights("types", &[2, 4]), s.weights("places", &[11, 4]));
    s.out("embedded", Op::Embed, &[ids, segments, words, types, places]);
    s
}

fn attention() -> Sketch {
    let mut s = Sketch::default();
    let rows = Dim::batch().times(&Dim::seq()).unwrap();
    let dims = [rows, Dim::known(8)];
    let q = s.floats("q", &dims);
    let k = s.fed("k", &dims, |i| (i % 13) as f32 / 8.0 - 0.75);
    let v = s.fed("v", &dims, |i| (i % 11) as f32 / 4.0 - 1.0);
    let mask = s.fed("mask", &[Dim::batch(), Dim::seq()], |i| i32::from(i % 4 != 3));
    let op = Attention { heads: 2, scale: 0.5, mask_value: -10000.0, packed: false, steps: None };
    s.out("context", Op::Attention(op), &[q, k, v, mask]);
    s
}

/// Inputs that are outputs, constants that are, values with two names, an input that may be
/// left out, and an input that nobody reads.
fn ends() -> Sketch {
    let mut s = Sketch::default();
    let x = s.floats("x", &cube(4));
    s.floats("unread", &cube(2));
    let default = s.weights("default", &[4]);
    let declared = Input { dtype: DType::F32, dims: Some(vec![Dim::known(4)]) };
    let scale = s.node("scale", Op::InputWithDefault(declared), &[default]);
    s.graph.inputs.push(Port { name: "scale:0".into(), value: scale });
    let y = s.node("y", Op::Binary(Binary::Mul), &[x, scale]);
    s.output("scaled", y);
    s.output("scaled_again", y);
    s.output("echo", x);
    let known = s.ints("known", &[1, 2, 3]);
    s.output("known", known);
    s
}
