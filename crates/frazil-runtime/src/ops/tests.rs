//! Every operation on small tensors, against values worked out by hand or taken from NumPy.

use bytes::Bytes;
use frazil_graph::op::{
    ArgMax, Attention, Binary, Cast, Compare, Gather, Gelu, GeluForm, LayerNorm, Linear, MatMul,
    OneHot, Pack, Reduce, ReduceKind, Scaled, ShapeOp, Split, Squeeze, Steps, StridedSlice, Unary,
    Unpack,
};
use frazil_graph::{Graph, Node, Op, Value};
use frazil_tensor::{DType, Element, Shape, Tensor};
use half::f16;

use super::run;
use crate::Result;

pub(super) fn tensor<T: Element>(shape: impl Into<Shape>, values: impl Into<Vec<T>>) -> Tensor {
    Tensor::from_vec(shape, values.into()).unwrap()
}

fn ints<const N: usize>(values: [i32; N]) -> Tensor {
    tensor([N], values)
}

fn int(value: i32) -> Tensor {
    tensor([], [value])
}

pub(super) fn floats(shape: impl Into<Shape>, values: impl Into<Vec<f32>>) -> Tensor {
    tensor(shape, values)
}

fn bools<const N: usize>(shape: impl Into<Shape>, values: [u8; N]) -> Tensor {
    Tensor::new(DType::Bool, shape, values.to_vec()).unwrap()
}

/// 0, 1, 2, … under `shape`.
fn counted(shape: impl Into<Shape>) -> Tensor {
    let shape = shape.into();
    let count = shape.elements().unwrap() as i32;
    tensor(shape, (0..count).collect::<Vec<i32>>())
}

pub(super) fn all(op: Op, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut graph = Graph::new();
    let mut values: Vec<Value> = Vec::new();
    for (i, input) in inputs.iter().enumerate() {
        let node = Node::new(format!("in{i}"), Op::constant(input.clone()), vec![]);
        values.push(graph.push(node).unwrap().into());
    }
    let id = graph.push(Node::new("node", op, values)).unwrap();
    graph.check().unwrap();
    run(&graph, id, inputs.to_vec())
}

pub(super) fn one(op: Op, inputs: &[Tensor]) -> Tensor {
    let mut outputs = all(op, inputs).unwrap();
    assert_eq!(outputs.len(), 1);
    outputs.remove(0)
}

pub(super) fn message(op: Op, inputs: &[Tensor]) -> String {
    all(op, inputs).unwrap_err().to_string()
}

#[track_caller]
pub(super) fn close(found: &Tensor, shape: impl Into<Shape>, expected: &[f32]) {
    assert_eq!(*found.shape(), shape.into());
    for (f, e) in found.values::<f32>().unwrap().iter().zip(expected) {
        assert!((f - e).abs() < 1e-6, "{f} instead of {e}");
    }
}

#[test]
fn unary_and_binary() {
    let x = floats([2], [4.0, 9.0]);
    close(&one(Op::Unary(Unary::Sqrt), std::slice::from_ref(&x)), [2], &[2.0, 3.0]);
    close(&one(Op::Unary(Unary::Identity), std::slice::from_ref(&x)), [2], &[4.0, 9.0]);
    assert_eq!(one(Op::Unary(Unary::Neg), &[ints([1, -2])]), ints([-1, 2]));
    assert_eq!(one(Op::Unary(Unary::Not), &[bools([2], [0, 1])]), bools([2], [1, 0]));
    let sum = one(Op::Binary(Binary::Add), &[counted([2, 3]), ints([10, 20, 30])]);
    assert_eq!(sum, tensor([2, 3], [10, 21, 32, 13, 24, 35]));
    let both = [bools([2], [0, 1]), bools([1], [1])];
    assert_eq!(one(Op::Binary(Binary::And), &both), bools([2], [0, 1]));
    assert_eq!(one(Op::Binary(Binary::Or), &both), bools([2], [1, 1]));
    let less = one(Op::Compare(Compare::Less), &[counted([3]), int(1)]);
    assert_eq!(less, bools([3], [1, 0, 0]));
    assert_eq!(one(Op::AddN, &[ints([1, 2]), ints([3, 4]), ints([5, 6])]), ints([9, 12]));
    let biased = one(Op::BiasAdd, &[counted([2, 2]), ints([10, 20])]);
    assert_eq!(biased, tensor([2, 2], [10, 21, 12, 23]));
}

#[test]
fn half_precision_is_rounded_once() {
    let half = |values: &[f32]| {
        let values: Vec<f16> = values.iter().map(|&x| f16::from_f32(x)).collect();
        tensor([values.len()], values)
    };
    let sum = one(Op::Binary(Binary::Add), &[half(&[1.0, 2048.0]), half(&[0.5, 1.0])]);
    assert_eq!(sum, half(&[1.5, 2049.0]));
    let truth = one(Op::Compare(Compare::Less), &[half(&[1.0]), half(&[2.0])]);
    assert_eq!(truth, bools([1], [1]));
    let back = one(Op::Cast(Cast { to: DType::F32 }), &[half(&[0.25])]);
    assert_eq!(back, floats([1], [0.25]));
}

#[test]
fn casts() {
    let cast = |to, x: Tensor| one(Op::Cast(Cast { to }), &[x]);
    assert_eq!(cast(DType::I32, floats([2], [1.9, -1.9])), ints([1, -1]));
    assert_eq!(cast(DType::F32, ints([3])), floats([1], [3.0]));
    assert_eq!(cast(DType::Bool, ints([3, 0])), bools([2], [1, 0]));
    assert_eq!(cast(DType::I64, bools([2], [1, 0])), tensor([2], [1i64, 0]));
}

#[test]
fn matrices() {
    let a = floats([2, 2], [1.0, 2.0, 3.0, 4.0]);
    let b = floats([2, 2], [5.0, 6.0, 7.0, 8.0]);
    let product = |transpose_a, transpose_b| {
        let op = Op::MatMul(MatMul { transpose_a, transpose_b });
        one(op, &[a.clone(), b.clone()])
    };
    close(&product(false, false), [2, 2], &[19.0, 22.0, 43.0, 50.0]);
    close(&product(true, false), [2, 2], &[26.0, 30.0, 38.0, 44.0]);
    close(&product(false, true), [2, 2], &[17.0, 23.0, 39.0, 53.0]);
    let many = floats([3, 1, 1, 2], [1.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    let batched = one(Op::MatMul(MatMul::default()), &[many, b.clone()]);
    close(&batched, [3, 1, 1, 2], &[5.0, 6.0, 7.0, 8.0, 12.0, 14.0]);
    let bias = floats([2], [100.0, 200.0]);
    for (transpose_w, expected) in
        [(false, [119., 222., 143., 250.]), (true, [117., 223., 139., 253.])]
    {
        let op = Op::Linear(Linear { transpose_w });
        let x = a.reshape([2, 1, 2]).unwrap();
        close(&one(op, &[x, b.clone(), bias.clone()]), [2, 1, 2], &expected);
    }
    let wrong = message(Op::MatMul(MatMul::default()), &[a, floats([3, 1], [0.0; 3])]);
    assert!(wrong.contains("float32 [2, 2] and float32 [3, 1] cannot be multiplied"), "{wrong}");
}

#[test]
fn reductions() {
    let x = floats([2, 3], [1.0, 5.0, 3.0, 4.0, 2.0, 6.0]);
    let reduce =
        |kind, keep_dims, axes| one(Op::Reduce(Reduce { kind, keep_dims }), &[x.clone(), axes]);
    close(&reduce(ReduceKind::Mean, true, ints([-1])), [2, 1], &[3.0, 4.0]);
    close(&reduce(ReduceKind::Sum, false, int(0)), [3], &[5.0, 7.0, 9.0]);
    close(&reduce(ReduceKind::Max, false, ints([0, 1])), [], &[6.0]);
    close(&reduce(ReduceKind::Min, true, ints([0, 1])), [1, 1], &[1.0]);
    close(&reduce(ReduceKind::Prod, false, ints([1])), [2], &[15.0, 48.0]);
    close(
        &reduce(ReduceKind::Sum, false, tensor([0], [0i32; 0])),
        [2, 3],
        &[1., 5., 3., 4., 2., 6.],
    );
    let op = Op::Reduce(Reduce { kind: ReduceKind::All, keep_dims: false });
    assert_eq!(one(op, &[bools([2], [1, 0]), int(0)]), bools([], [0]));
    let places = one(Op::ArgMax(ArgMax { to: DType::I32 }), &[x.clone(), int(1)]);
    assert_eq!(places, ints([1, 2]));
    let places = one(Op::ArgMax(ArgMax { to: DType::I64 }), &[x.clone(), int(0)]);
    assert_eq!(places, tensor([3], [1i64, 0, 1]));
    let halves = floats([1, 2], [3.0, 3.0]);
    close(&one(Op::Softmax, std::slice::from_ref(&halves)), [1, 2], &[0.5, 0.5]);
    close(&one(Op::LogSoftmax, &[halves]), [1, 2], &[0.5f32.ln(), 0.5f32.ln()]);
    let op = Op::Reduce(Reduce { kind: ReduceKind::Sum, keep_dims: false });
    assert_eq!(message(op, &[x, int(2)]), "`node` (ReduceSum): there is no axis 2 among 2");
}

#[test]
fn shapes() {
    let x = counted([2, 3]);
    let of = |op| one(op, std::slice::from_ref(&x));
    assert_eq!(of(Op::Shape(ShapeOp { to: DType::I32 })), ints([2, 3]));
    assert_eq!(of(Op::Size(ShapeOp { to: DType::I64 })), tensor([], [6i64]));
    assert_eq!(of(Op::Rank), int(2));
    assert_eq!(one(Op::Reshape, &[x.clone(), ints([3, -1])]), counted([3, 2]));
    assert_eq!(one(Op::Reshape, &[int(7), tensor([0], [0i32; 0])]), int(7));
    assert_eq!(one(Op::ExpandDims, &[x.clone(), int(-1)]), counted([2, 3, 1]));
    let thin = counted([1, 2, 1]);
    let squeeze = |axes: Vec<i64>| one(Op::Squeeze(Squeeze { axes }), std::slice::from_ref(&thin));
    assert_eq!(squeeze(vec![]), counted([2]));
    assert_eq!(squeeze(vec![-1]), counted([1, 2]));
    assert_eq!(one(Op::Range, &[int(2), int(9), int(3)]), ints([2, 5, 8]));
    assert_eq!(one(Op::Range, &[int(3), int(0), int(-1)]), ints([3, 2, 1]));
    assert_eq!(one(Op::Range, &[int(3), int(0), int(1)]).elements(), 0);
    let wrong = message(Op::Reshape, &[x.clone(), ints([4, -1])]);
    assert_eq!(wrong, "`node` (Reshape): [2, 3] cannot be reshaped to [4, -1]");
    assert!(all(Op::Reshape, &[x, ints([-1, -1])]).is_err());
    let endless = [0i64, i64::MAX, 1].map(|end| tensor([], [end]));
    assert!(message(Op::Range, &endless).contains("there is no memory for"));
    assert!(message(Op::Range, &[int(0), int(1), int(0)]).contains("delta is 0"));
}

#[test]
fn movement() {
    let x = counted([2, 3]);
    let turned = one(Op::Transpose, &[x.clone(), ints([1, 0])]);
    assert_eq!(turned, tensor([3, 2], [0, 3, 1, 4, 2, 5]));
    let joined = one(Op::Concat, &[x.clone(), tensor([2, 1], [7, 8]), int(-1)]);
    assert_eq!(joined, tensor([2, 4], [0, 1, 2, 7, 3, 4, 5, 8]));
    let packed = one(Op::Pack(Pack { axis: 1 }), &[ints([1, 2]), ints([3, 4])]);
    assert_eq!(packed, tensor([2, 2], [1, 3, 2, 4]));
    assert_eq!(one(Op::Fill, &[ints([2, 1]), int(9)]), tensor([2, 1], [9, 9]));
    let tiled = one(Op::Tile, &[ints([1, 2]), ints([2])]);
    assert_eq!(tiled, ints([1, 2, 1, 2]));
    let wide = one(Op::BroadcastTo, &[ints([1, 2]), ints([2, 2])]);
    assert_eq!(wide, tensor([2, 2], [1, 2, 1, 2]));
    let framed = one(Op::Pad, &[ints([1]), tensor([1, 2], [1, 2])]);
    assert_eq!(framed, ints([0, 1, 0, 0]));
    let framed = one(Op::Pad, &[ints([1]), tensor([1, 2], [1, 0]), int(7)]);
    assert_eq!(framed, ints([7, 1]));
    let chosen = one(Op::Select, &[bools([2, 1], [1, 0]), counted([2, 2]), int(9)]);
    assert_eq!(chosen, tensor([2, 2], [0, 1, 9, 9]));
    let words = |words: &[&'static str]| {
        let strings = words.iter().map(|word| Bytes::from_static(word.as_bytes())).collect();
        Tensor::from_strings([words.len()], strings).unwrap()
    };
    assert_eq!(
        one(Op::Concat, &[words(&["a"]), words(&["b", "c"]), int(0)]),
        words(&["a", "b", "c"])
    );
    assert!(message(Op::Transpose, &[x.clone(), ints([0, 0])]).contains("no order of the axes"));
    assert!(message(Op::Fill, &[tensor([2], [i64::MAX, 4]), int(9)]).contains("no memory"));
    assert!(message(Op::Tile, &[x, tensor([2], [1i64 << 40, 1 << 40])]).contains("no memory"));
}

#[test]
fn windows() {
    let x = counted([3, 4]);
    let window = one(Op::Slice, &[x.clone(), ints([1, 0]), ints([-1, 2])]);
    assert_eq!(window, tensor([2, 2], [4, 5, 8, 9]));
    assert!(message(Op::Slice, &[x.clone(), ints([1, 0]), ints([3, 2])]).contains("on axis 0"));
    let strided = |op: StridedSlice, ends: [&[i32]; 3]| {
        let ends = ends.map(|end| tensor([end.len()], end));
        let [begin, end, strides] = ends;
        one(Op::StridedSlice(op), &[x.clone(), begin, end, strides])
    };
    let plain = StridedSlice::default();
    assert_eq!(strided(plain, [&[0], &[1], &[1]]), counted([1, 4]));
    let shrunk = StridedSlice { shrink_axis_mask: 1, ..plain };
    assert_eq!(strided(shrunk, [&[-1], &[0], &[1]]), ints([8, 9, 10, 11]));
    let backwards = StridedSlice { begin_mask: 3, end_mask: 3, ..plain };
    let expected = tensor([3, 2], [11, 9, 7, 5, 3, 1]);
    assert_eq!(strided(backwards, [&[0, 0], &[0, 0], &[-1, -2]]), expected);
    let dotted = StridedSlice { ellipsis_mask: 1, new_axis_mask: 4, ..plain };
    let expected = tensor([3, 1, 1], [1, 5, 9]);
    assert_eq!(strided(dotted, [&[0, 1, 0], &[0, 2, 0], &[1, 1, 1]]), expected);
    let columns = all(Op::Unpack(Unpack { axis: 1, count: 4 }), std::slice::from_ref(&x)).unwrap();
    assert_eq!(columns[3], ints([3, 7, 11]));
    let parts = all(Op::Split(Split { count: 2 }), &[int(1), x.clone()]).unwrap();
    assert_eq!(parts[1], tensor([3, 2], [2, 3, 6, 7, 10, 11]));
    let parts = all(Op::SplitV(Split { count: 2 }), &[x.clone(), ints([-1, 1]), int(0)]).unwrap();
    assert_eq!(
        (parts[0].shape().to_vec(), parts[1].clone()),
        (vec![2, 4], { tensor([1, 4], [8, 9, 10, 11]) })
    );
    assert!(message(Op::Split(Split { count: 5 }), &[int(1), x]).contains("no 5 equal parts"));
}

#[test]
fn indices() {
    let table = counted([3, 2]);
    let rows = one(Op::Gather(Gather::default()), &[table.clone(), ints([2, 0]), int(0)]);
    assert_eq!(rows, tensor([2, 2], [4, 5, 0, 1]));
    let scalar = one(Op::Gather(Gather::default()), &[table.clone(), int(1), int(1)]);
    assert_eq!(scalar, ints([1, 3, 5]));
    let shared = Op::Gather(Gather { batch_dims: 1 });
    let picked = one(shared, &[table.clone(), tensor([3, 1], [1, 0, 1]), int(1)]);
    assert_eq!(picked, tensor([3, 1], [1, 2, 5]));
    let wrong = message(Op::Gather(Gather::default()), &[table, ints([0, 7]), int(0)]);
    assert_eq!(wrong, "`node` (Gather): id 7 (element 1 of `in1`) is not in 0..3");
    let hot = |axis| one(Op::OneHot(OneHot { axis }), &[ints([1, 5]), int(3), int(1), int(0)]);
    assert_eq!(hot(-1), tensor([2, 3], [0, 1, 0, 0, 0, 0]));
    assert_eq!(hot(0), tensor([3, 2], [0, 0, 1, 0, 0, 0]));
}

#[test]
fn fused() {
    let x = floats([1, 3], [1.0, 2.0, 3.0]);
    let ones = floats([3], [1.0; 3]);
    let norm = Op::LayerNorm(LayerNorm { epsilon: 0.0 });
    let z = 1.5f32.sqrt();
    close(&one(norm, &[x.clone(), ones.clone(), ones]), [1, 3], &[1.0 - z, 1.0, 1.0 + z]);
    let gelu = |form| one(Op::Gelu(Gelu { form }), &[floats([1], [1.0])]);
    close(&gelu(GeluForm::Erf), [1], &[0.841_344_8]);
    close(&gelu(GeluForm::Tanh), [1], &[0.841_192]);
    let tables =
        [floats([2, 1], [1.0, 2.0]), floats([1, 1], [10.0]), floats([2, 1], [100.0, 200.0])];
    let [words, types, positions] = tables;
    let embed = |ids: Tensor| {
        let segments = tensor([1, 2], [0i64, 0]);
        all(Op::Embed, &[ids, segments, words.clone(), types.clone(), positions.clone()])
    };
    close(&embed(tensor([1, 2], [1, 0])).unwrap()[0], [1, 2, 1], &[112.0, 211.0]);
    let wrong = embed(tensor([1, 2], [1, 2])).unwrap_err();
    assert_eq!(wrong.to_string(), "`node` (Embed): id 2 (element 1 of `in0`) is not in 0..2");
    let rows = floats([2, 2], [1.0, 2.0, 3.0, 4.0]); // [b*s, n*d] = [1*2, 2*1]
    let attention = Op::Attention(Attention {
        heads: 2,
        scale: 0.0,
        mask_value: -10000.0,
        packed: false,
        steps: None,
    });
    let mixed =
        one(attention.clone(), &[rows.clone(), rows.clone(), rows.clone(), tensor([1, 2], [1, 1])]);
    close(&mixed, [2, 2], &[2.0, 3.0, 2.0, 3.0]);
    let mixed = one(attention, &[rows.clone(), rows.clone(), rows, tensor([1, 2], [0, 1])]);
    close(&mixed, [2, 2], &[3.0, 4.0, 3.0, 4.0]);
}

#[test]
fn numbers_on_the_steps_of_bytes() {
    let x = floats([2, 3], [0.26, -1.0, 9e9, 0.25, f32::NAN, 0.75]);
    let steps = |steps| one(Op::FakeQuantize(steps), std::slice::from_ref(&x));
    // Halves of a step go to the even one, also below zero.
    let fixed = steps(Steps::Tensor { scale: 0.5, zero: 1 });
    close(&fixed, [2, 3], &[0.5, -0.5, 127.0, 0.5, -0.5, 0.5]);
    let signed = steps(Steps::Symmetric { scale: 0.5 });
    close(&signed, [2, 3], &[0.5, -1.0, 63.5, 0.0, 0.0, 1.0]);
    // Each row has its own: the second reaches from 0 to 0.75, the first is all but swallowed.
    let rows = steps(Steps::Rows).values::<f32>().unwrap().into_owned();
    assert_eq!(rows[..2], [0.0, 0.0]);
    assert!((rows[2] - 9e9).abs() < 1e4 && (rows[3] - 0.25).abs() < 1e-6 && rows[5] == 0.75);
    let wrong = message(Op::FakeQuantize(Steps::Symmetric { scale: 0.0 }), &[x]);
    assert_eq!(wrong, "`node` (FakeQuantize): a step stands for 0, which is no positive number");
}

#[test]
fn signed_bytes_times_scales() {
    let x = tensor([2, 3], [-127i8, 0, 1, 2, 3, 127]);
    let scaled = |axis, scales: &[f32]| {
        one(Op::Scaled(Scaled { axis }), &[x.clone(), floats([scales.len()], scales)])
    };
    close(&scaled(0, &[1.0, 0.5]), [2, 3], &[-127.0, 0.0, 1.0, 1.0, 1.5, 63.5]);
    close(&scaled(-1, &[1.0, 0.5, 2.0]), [2, 3], &[-127.0, 0.0, 2.0, 2.0, 1.5, 254.0]);
    close(&scaled(1, &[2.0]), [2, 3], &[-254.0, 0.0, 2.0, 4.0, 6.0, 254.0]);
    let wrong = message(Op::Scaled(Scaled { axis: 0 }), &[x, floats([3], [1.0; 3])]);
    assert_eq!(wrong, "`node` (Scaled): scales [3] do not fit axis 0 of [2, 3]");
}

#[test]
fn complaints_name_the_node() {
    let table: [(Op, Vec<Tensor>, &str); 5] = [
        (
            Op::Binary(Binary::Add),
            vec![ints([1, 2]), ints([1, 2, 3])],
            "`node` (Add): int32 [2] and int32 [3] do not go together",
        ),
        (
            Op::Binary(Binary::FloorDiv),
            vec![ints([1]), ints([0])],
            "`node` (FloorDiv): an integer is divided by zero",
        ),
        (Op::Unary(Unary::Exp), vec![ints([1])], "`node` (Exp) does not work on int32"),
        (Op::Softmax, vec![ints([1])], "`node` (Softmax) does not work on int32"),
        (
            Op::Gelu(Gelu { form: GeluForm::Erf }),
            vec![ints([1])],
            "`node` (Gelu) does not work on int32",
        ),
    ];
    for (op, inputs, expected) in table {
        assert_eq!(message(op, &inputs), expected);
    }
}

#[test]
fn empty_and_endless_is_refused() {
    let hollow = floats([1 << 40, 1 << 40, 0], []);
    let wrong = message(Op::Unary(Unary::Exp), std::slice::from_ref(&hollow));
    assert!(wrong.contains("beyond all bounds"), "{wrong}");
    let fill = message(Op::Fill, &[tensor([3], [1i64 << 40, 1 << 40, 0]), int(9)]);
    assert!(fill.contains("no memory"), "{fill}");
}

#[test]
fn askew_weights_are_moved() {
    let bytes = Bytes::from(vec![0u8; 65]);
    for start in 0..2 {
        let tensor = Tensor::new(DType::F64, [8], bytes.slice(start..start + 64)).unwrap();
        let moved = super::aligned(tensor.clone());
        assert_eq!(moved, tensor);
        assert!(matches!(moved.values::<f64>().unwrap(), std::borrow::Cow::Borrowed(_)));
    }
}
