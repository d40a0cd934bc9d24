//! The table.

use frazil_graph::op::{
    Attention, Binary, Cast, Compare, Dropout, DroppedAttention, Gather, Gelu, GeluForm, LayerNorm,
    Linear, MatMul, Op, Pack, PackRows, Reduce, ReduceKind, Split, Squeeze, StridedSlice, Training,
    Unary, Unpack,
};
use frazil_graph::{Dim, Value};
use frazil_tensor::DType;

use crate::sketch::Sketch;

pub struct Case {
    pub name: &'static str,
    pub build: fn(&mut Sketch) -> Vec<Value>,
}

macro_rules! cases {
    ($($name:literal: $build:expr;)*) => {
        pub const CASES: &[Case] = &[$(Case { name: $name, build: $build }),*];
    };
}

/// A function of one number.
fn unary(s: &mut Sketch, kind: Unary) -> Vec<Value> {
    let x = s.x("x", &[2, 3]);
    vec![s.push("y", Op::Unary(kind), &[x])]
}

/// The same of numbers above 0.
fn of_positive(s: &mut Sketch, kind: Unary) -> Vec<Value> {
    let x = s.positive("x", &[2, 3]);
    vec![s.push("y", Op::Unary(kind), &[x])]
}

/// Of one shape, of shapes that are repeated either way, and with an open extent.
fn binary(s: &mut Sketch, kind: Binary) -> Vec<Value> {
    let (a, b) = (s.positive("a", &[2, 3]), s.positive("b", &[2, 3]));
    let (row, column) = (s.positive("row", &[3]), s.positive("column", &[2, 1]));
    let number = s.positive("number", &[]);
    [(a, b), (a, row), (column, b), (number, a), (column, row)]
        .map(|(x, y)| s.push("y", Op::Binary(kind), &[x, y]))
        .to_vec()
}

fn matmul(s: &mut Sketch, transpose_a: bool, transpose_b: bool) -> Vec<Value> {
    let shape = |transposed: bool, a: usize, b: usize| if transposed { [b, a] } else { [a, b] };
    let a = s.x("a", &shape(transpose_a, 2, 3));
    let b = s.x("b", &shape(transpose_b, 3, 4));
    let wide = |[a, b]: [usize; 2], outer: usize| [outer, 1, a, b];
    let many = s.x("many", &wide(shape(transpose_a, 2, 3), 2));
    let op = || Op::MatMul(MatMul { transpose_a, transpose_b });
    let one = s.push("one", op(), &[a, b]);
    let repeated = s.push("repeated", op(), &[many, b]);
    let more = s.x("more", &[&[2][..], &shape(transpose_b, 3, 4)].concat());
    let both = s.push("both", op(), &[many, more]);
    vec![one, repeated, both]
}

fn linear(s: &mut Sketch, transpose_w: bool) -> Vec<Value> {
    let (x, wide) = (s.x("x", &[2, 3]), s.open("wide", &[2, 2, 3]));
    let w = s.x("w", if transpose_w { &[4, 3] } else { &[3, 4] });
    let bias = s.x("bias", &[4]);
    let op = || Op::Linear(Linear { transpose_w });
    vec![s.push("y", op(), &[x, w, bias]), s.push("z", op(), &[wide, w, bias])]
}

fn reduce(s: &mut Sketch, kind: ReduceKind) -> Vec<Value> {
    let (x, open) = (s.x("x", &[2, 3, 2]), s.open("open", &[3, 2]));
    let mut outputs = Vec::new();
    for (x, axes, keep_dims) in [
        (x, &[1][..], false),
        (x, &[-1, 0], true),
        (x, &[0, 2], false),
        (open, &[0], false),
        (open, &[1], true),
    ] {
        let axes = s.ints(axes);
        outputs.push(s.push("y", Op::Reduce(Reduce { kind, keep_dims }), &[x, axes]));
    }
    outputs
}

/// q, k, v of two sequences of three rows, two heads of two.
fn operands(s: &mut Sketch, queries: usize) -> [Value; 3] {
    [s.x("q", &[queries, 4]), s.x("k", &[6, 4]), s.x("v", &[6, 4])]
}

fn padded() -> Attention {
    Attention { heads: 2, scale: 0.6, mask_value: -10000.0, packed: false, steps: None }
}

fn dropout(site: u32) -> Dropout {
    Dropout { rate: 0.3, site }
}

fn places(s: &mut Sketch) -> Value {
    s.ints(&[0, 1, 2, 65536, 65537, 65538])
}

/// A batch of two by three, of which four rows are no padding: mask, index and bounds.
fn packed(s: &mut Sketch) -> [Value; 3] {
    let dims = vec![Dim::batch(), Dim::known(3)];
    let mask = s.ids("mask", dims, &[2, 3], &[1, 1, 0, 1, 1, 0]);
    let pack = s.push("pack", Op::PackRows(PackRows::default()), &[mask]);
    [mask, pack, Value { port: 1, ..pack }]
}

fn tables(s: &mut Sketch) -> [Value; 5] {
    let dims = || vec![Dim::batch(), Dim::known(3)];
    let ids = s.ids("ids", dims(), &[2, 3], &[4, 0, 4, 1, 4, 2]);
    let segments = s.ids("segments", dims(), &[2, 3], &[0, 1, 1, 0, 0, 1]);
    [ids, segments, s.x("words", &[5, 2]), s.x("types", &[2, 2]), s.x("positions", &[4, 2])]
}

cases! {
    "identity": |s| unary(s, Unary::Identity);
    "neg": |s| unary(s, Unary::Neg);
    "abs": |s| unary(s, Unary::Abs);
    "exp": |s| unary(s, Unary::Exp);
    "log": |s| of_positive(s, Unary::Log);
    "sqrt": |s| of_positive(s, Unary::Sqrt);
    "rsqrt": |s| of_positive(s, Unary::Rsqrt);
    "reciprocal": |s| of_positive(s, Unary::Reciprocal);
    "square": |s| unary(s, Unary::Square);
    "sin": |s| unary(s, Unary::Sin);
    "cos": |s| unary(s, Unary::Cos);
    "tanh": |s| unary(s, Unary::Tanh);
    "erf": |s| unary(s, Unary::Erf);
    "sigmoid": |s| unary(s, Unary::Sigmoid);
    "relu": |s| unary(s, Unary::Relu);
    "add": |s| binary(s, Binary::Add);
    "sub": |s| binary(s, Binary::Sub);
    "mul": |s| binary(s, Binary::Mul);
    "div": |s| binary(s, Binary::Div);
    "pow": |s| binary(s, Binary::Pow);
    "maximum": |s| binary(s, Binary::Maximum);
    "minimum": |s| binary(s, Binary::Minimum);
    "squared_difference": |s| binary(s, Binary::SquaredDifference);
    "one value twice": |s| {
        let x = s.x("x", &[3]);
        let square = s.push("square", Op::Binary(Binary::Mul), &[x, x]);
        let sum = s.push("sum", Op::Binary(Binary::Add), &[square, x]);
        vec![s.push("more", Op::Binary(Binary::Mul), &[sum, square])]
    };
    "a gradient that stops": |s| {
        // Σ x · stop(x): as if one of both were constant; the other way is left to `y`.
        let (x, y) = (s.x("x", &[3]), s.x("y", &[3]));
        let mut sum = y;
        for kind in [Unary::Floor, Unary::Round, Unary::Sign] {
            let still = s.push("still", Op::Unary(kind), &[y]);
            let product = s.push("product", Op::Binary(Binary::Mul), &[x, still]);
            sum = s.push("sum", Op::Binary(Binary::Add), &[sum, product]);
        }
        vec![sum]
    };
    "add_n": |s| {
        let all = [s.x("a", &[2, 2]), s.x("b", &[2, 2]), s.x("c", &[2, 2])];
        vec![s.push("y", Op::AddN, &all)]
    };
    "bias_add": |s| {
        let (x, wide, bias) = (s.x("x", &[2, 3]), s.open("wide", &[2, 2, 3]), s.x("bias", &[3]));
        vec![s.push("y", Op::BiasAdd, &[x, bias]), s.push("z", Op::BiasAdd, &[wide, bias])]
    };
    "cast": |s| {
        let x = s.x("x", &[3]);
        vec![s.push("y", Op::Cast(Cast { to: DType::F64 }), &[x])]
    };
    "select": |s| {
        let (x, y) = (s.x("x", &[2, 3]), s.x("y", &[3]));
        let zero = s.constant(&[], &[0.0]);
        let above = s.push("above", Op::Compare(Compare::Greater), &[x, zero]);
        vec![s.push("z", Op::Select, &[above, x, y])]
    };
    "matmul": |s| matmul(s, false, false);
    "matmul aᵀ": |s| matmul(s, true, false);
    "matmul bᵀ": |s| matmul(s, false, true);
    "matmul aᵀ bᵀ": |s| matmul(s, true, true);
    "linear": |s| linear(s, false);
    "linear wᵀ": |s| linear(s, true);
    "reduce sum": |s| reduce(s, ReduceKind::Sum);
    "reduce mean": |s| reduce(s, ReduceKind::Mean);
    "reduce max": |s| reduce(s, ReduceKind::Max);
    "reduce min": |s| reduce(s, ReduceKind::Min);
    "softmax": |s| {
        let x = s.x("x", &[2, 4]);
        vec![s.push("y", Op::Softmax, &[x])]
    };
    "log_softmax": |s| {
        let x = s.x("x", &[2, 4]);
        vec![s.push("y", Op::LogSoftmax, &[x])]
    };
    "reshape": |s| {
        let (x, open) = (s.x("x", &[2, 3]), s.open("open", &[2, 3]));
        let (flat, one) = (s.ints(&[-1]), s.int(1));
        let wide = s.push("wide", Op::ExpandDims, &[open, one]);
        let narrow = s.push("narrow", Op::Squeeze(Squeeze { axes: vec![1] }), &[wide]);
        vec![s.push("y", Op::Reshape, &[x, flat]), narrow]
    };
    "transpose": |s| {
        let x = s.x("x", &[2, 3, 4]);
        let order = s.ints(&[2, 0, 1]);
        vec![s.push("y", Op::Transpose, &[x, order])]
    };
    "concat": |s| {
        let (a, b) = (s.x("a", &[2, 1, 2]), s.x("b", &[2, 3, 2]));
        let (open, other) = (s.open("open", &[2, 2]), s.x("other", &[1, 2]));
        let (second, first) = (s.int(-2), s.int(0));
        vec![
            s.push("y", Op::Concat, &[a, b, second]),
            s.push("z", Op::Concat, &[open, other, first]),
        ]
    };
    "pack": |s| {
        let (a, b) = (s.x("a", &[2, 2]), s.x("b", &[2, 2]));
        vec![s.push("y", Op::Pack(Pack { axis: 1 }), &[a, b])]
    };
    "unpack": |s| {
        let x = s.x("x", &[2, 3, 2]);
        let y = s.push("y", Op::Unpack(Unpack { axis: 1, count: 3 }), &[x]);
        vec![y, Value { port: 2, ..y }]
    };
    "split": |s| {
        let x = s.x("x", &[2, 4]);
        let axis = s.int(1);
        let y = s.push("y", Op::Split(Split { count: 2 }), &[axis, x]);
        let sizes = s.ints(&[1, 3]);
        let z = s.push("z", Op::SplitV(Split { count: 2 }), &[x, sizes, axis]);
        vec![y, Value { port: 1, ..z }]
    };
    "slice": |s| {
        let x = s.x("x", &[4, 3]);
        let (begin, size) = (s.ints(&[1, 0]), s.ints(&[2, -1]));
        vec![s.push("y", Op::Slice, &[x, begin, size])]
    };
    "strided_slice": |s| {
        let x = s.x("x", &[4, 5, 2]);
        let (begin, end, strides) = (s.ints(&[0, 4, 1]), s.ints(&[0, 0, 2]), s.ints(&[2, -2, 1]));
        let op = StridedSlice { begin_mask: 1, end_mask: 1, shrink_axis_mask: 4, ..Default::default() };
        vec![s.push("y", Op::StridedSlice(op), &[x, begin, end, strides])]
    };
    "gather": |s| {
        let x = s.x("x", &[4, 2]);
        let (rows, axis) = (s.constant(&[2, 2], &[3, 0, 3, 1]), s.int(0));
        vec![s.push("y", Op::Gather(Gather::default()), &[x, rows, axis])]
    };
    "fill": |s| {
        let x = s.x("x", &[]);
        let dims = s.ints(&[2, 3]);
        vec![s.push("y", Op::Fill, &[dims, x])]
    };
    "tile": |s| {
        let x = s.open("x", &[2, 3]);
        let multiples = s.ints(&[2, 2]);
        let y = s.push("y", Op::Tile, &[x, multiples]);
        vec![s.push("square", Op::Unary(Unary::Square), &[y])]
    };
    "broadcast_to": |s| {
        let x = s.x("x", &[2, 1]);
        let shape = s.ints(&[3, 2, 4]);
        vec![s.push("y", Op::BroadcastTo, &[x, shape])]
    };
    "pad": |s| {
        let x = s.x("x", &[2, 3]);
        let paddings = s.constant(&[2, 2], &[1, 0, 2, 1]);
        vec![s.push("y", Op::Pad, &[x, paddings])]
    };
    "layer_norm": |s| {
        let x = s.x("x", &[2, 2, 5]);
        let (gamma, beta) = (s.x("gamma", &[5]), s.x("beta", &[5]));
        vec![s.push("y", Op::LayerNorm(LayerNorm { epsilon: 1e-3 }), &[x, gamma, beta])]
    };
    "gelu tanh": |s| {
        let x = s.x("x", &[2, 3]);
        vec![s.push("y", Op::Gelu(Gelu { form: GeluForm::Tanh }), &[x])]
    };
    "gelu erf": |s| {
        let x = s.x("x", &[2, 3]);
        vec![s.push("y", Op::Gelu(Gelu { form: GeluForm::Erf }), &[x])]
    };
    "embed": |s| {
        let all = tables(s);
        vec![s.push("y", Op::Embed, &all)]
    };
    "embed, packed": |s| {
        let all = tables(s);
        let [_, index, _] = packed(s);
        vec![s.push("y", Op::Embed, &[&all[..], &[index]].concat())]
    };
    "attention": |s| {
        let [q, k, v] = operands(s, 6);
        let mask = s.constant(&[2, 3], &[1, 1, 1, 1, 0, 1]);
        vec![s.push("y", Op::Attention(padded()), &[q, k, v, mask])]
    };
    "attention, packed": |s| {
        // One query of the first sequence, two of the second.
        let [q, k, v] = operands(s, 3);
        let (queries, keys) = (s.ints(&[0, 1, 3]), s.ints(&[0, 2, 6]));
        let op = Attention { packed: true, ..padded() };
        vec![s.push("y", Op::Attention(op), &[q, k, v, queries, keys])]
    };
    "attention with dropout": |s| {
        let [q, k, v] = operands(s, 6);
        let mask = s.constant(&[2, 3], &[1, 1, 1, 1, 1, 1]);
        let (key, places) = (s.constant(&[2], &[5i64, 3]), places(s));
        let op = DroppedAttention { attention: padded(), dropout: dropout(2) };
        let inputs = [q, k, v, mask, key, places, places];
        vec![s.push("y", Op::Training(Training::Attention(op)), &inputs)]
    };
    "attention with dropout, packed": |s| {
        let [q, k, v] = operands(s, 6);
        let bounds = s.ints(&[0, 2, 6]);
        let (key, places) = (s.constant(&[2], &[5i64, 3]), places(s));
        let attention = Attention { packed: true, ..padded() };
        let op = DroppedAttention { attention, dropout: dropout(2) };
        let inputs = [q, k, v, bounds, bounds, key, places, places];
        vec![s.push("y", Op::Training(Training::Attention(op)), &inputs)]
    };
    "unpack_rows": |s| {
        let [mask, index, _] = packed(s);
        let (x, wide) = (s.x("x", &[4]), s.x("wide", &[4, 2]));
        vec![
            s.push("y", Op::UnpackRows, &[x, index, mask]),
            s.push("z", Op::UnpackRows, &[wide, index, mask]),
        ]
    };
    "cross_entropy": |s| {
        let x = s.x("x", &[3, 4]);
        let labels = s.ints(&[2, -1, 0]);
        vec![s.push("y", Op::Training(Training::CrossEntropy), &[x, labels])]
    };
    "dropout": |s| {
        let x = s.x("x", &[2, 3, 4]);
        let (key, places) = (s.constant(&[2], &[5i64, 3]), places(s));
        vec![s.push("y", Op::Training(Training::Dropout(dropout(1))), &[x, key, places])]
    };
}
