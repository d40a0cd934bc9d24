//! Small BERTs with everything baked, of sizes that collide in every way.

use frazil_tensor::{DType, Shape, Tensor};

use super::*;
use crate::op::*;
use crate::{Node, Port};

/// The sizes of a small BERT.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    b: usize,
    s: usize,
    /// Heads and their size; the hidden size is the product.
    n: usize,
    d: usize,
    f: usize,
    positions: usize,
    labels: usize,
    masked: usize,
}

const SMALL: Sizes =
    Sizes { b: 1, s: 128, n: 2, d: 8, f: 32, positions: 512, labels: 3, masked: 5 };

#[derive(Default)]
struct Build {
    graph: Graph,
}

impl Build {
    fn push(&mut self, name: &str, op: Op, inputs: &[NodeId]) -> NodeId {
        let inputs = inputs.iter().map(|&id| id.into()).collect();
        self.graph.push_fresh(Node::new(name, op, inputs)).unwrap()
    }

    fn input(&mut self, name: &str, dtype: DType, dims: &[usize]) -> NodeId {
        let dims = Some(dims.iter().map(|&d| d.into()).collect());
        let id = self.push(name, Op::Input(Input { dtype, dims }), &[]);
        self.graph.inputs.push(Port { name: name.into(), value: id.into() });
        id
    }

    fn output(&mut self, name: &str, id: NodeId) {
        self.graph.outputs.push(Port { name: name.into(), value: id.into() });
    }

    fn weight(&mut self, name: &str, dims: &[usize]) -> NodeId {
        let shape = Some(Shape::from(dims.to_vec()));
        let op = Variable { dtype: DType::F32, shape, resource: false };
        self.push(name, Op::Variable(op), &[])
    }

    fn ints(&mut self, name: &str, dims: &[usize], values: &[i64]) -> NodeId {
        let values: Vec<i32> = values.iter().map(|&v| v as i32).collect();
        let value = Tensor::from_vec(dims.to_vec(), values).unwrap();
        self.push(name, Op::constant(value), &[])
    }

    fn list(&mut self, name: &str, values: &[i64]) -> NodeId {
        self.ints(name, &[values.len()], values)
    }

    fn number(&mut self, name: &str, value: i64) -> NodeId {
        self.ints(name, &[], &[value])
    }

    fn float(&mut self, name: &str, value: f32) -> NodeId {
        self.push(name, Op::constant(Tensor::from_vec([], vec![value]).unwrap()), &[])
    }

    fn filled(&mut self, name: &str, dims: &[usize], value: f32) -> NodeId {
        let value = Tensor::from_vec(dims.to_vec(), vec![value; dims.iter().product()]).unwrap();
        self.push(name, Op::constant(value), &[])
    }

    fn shaped(&mut self, name: &str, x: NodeId, dims: &[i64]) -> NodeId {
        let target = self.list(&format!("{name}/shape"), dims);
        self.push(name, Op::Reshape, &[x, target])
    }

    fn matmul(&mut self, name: &str, x: NodeId, w: NodeId) -> NodeId {
        self.push(name, Op::MatMul(MatMul::default()), &[x, w])
    }

    fn add(&mut self, name: &str, x: NodeId, y: NodeId) -> NodeId {
        self.push(name, Op::Binary(Binary::Add), &[x, y])
    }

    fn transpose(&mut self, name: &str, x: NodeId) -> NodeId {
        let order = self.list(&format!("{name}/perm"), &[0, 2, 1, 3]);
        self.push(name, Op::Transpose, &[x, order])
    }

    fn attention(&mut self, x: NodeId, mask: NodeId, sizes: Sizes) -> NodeId {
        let Sizes { b, s, n, d, .. } = sizes;
        let (h, [bi, si, ni, di]) = (n * d, [b, s, n, d].map(|v| v as i64));
        let mut heads = Vec::new();
        for name in ["query", "key", "value"] {
            let w = self.weight(&format!("{name}/kernel"), &[h, h]);
            let rows = self.matmul(name, x, w);
            let bias = self.filled(&format!("{name}/bias"), &[h], 0.0);
            let rows = self.push(&format!("{name}/BiasAdd"), Op::BiasAdd, &[rows, bias]);
            let split = self.shaped(&format!("{name}/Reshape"), rows, &[bi, si, ni, di]);
            heads.push(self.transpose(&format!("{name}/transpose"), split));
        }
        let product = MatMul { transpose_a: false, transpose_b: true };
        let scores = self.push("scores", Op::MatMul(product), &[heads[0], heads[1]]);
        let axis = self.list("mask/dim", &[1]);
        let mask = self.push("mask/ExpandDims", Op::ExpandDims, &[mask, axis]);
        let scores = self.add("scores/add", scores, mask);
        let weights = self.push("Softmax", Op::Softmax, &[scores]);
        let context = self.matmul("context", weights, heads[2]);
        let context = self.transpose("context/transpose", context);
        self.shaped("context/Reshape", context, &[bi * si, h as i64])
    }

    /// The encoder as TF1's BERT writes it: sequence output `[b, s, h]` under `encoder`.
    fn encoder(&mut self, sizes: Sizes) -> NodeId {
        let Sizes { b, s, n, d, f, positions, .. } = sizes;
        let (h, bi, si) = (n * d, b as i64, s as i64);
        let hi = h as i64;
        let ids = self.input("input_ids", DType::I32, &[b, s]);
        let mask = self.input("input_mask", DType::I32, &[b, s]);
        let segments = self.input("segment_ids", DType::I32, &[b, s]);
        let words = self.weight("words", &[1000, h]);
        let flat = self.shaped("ids/Reshape", ids, &[-1]);
        let zero = self.number("zero", 0);
        let rows = self.push("words/Gather", Op::Gather(Gather::default()), &[words, flat, zero]);
        let word = self.shaped("words/Reshape", rows, &[bi, si, hi]);
        let types = self.weight("types", &[2, h]);
        let flat = self.shaped("segments/Reshape", segments, &[-1]);
        let depth = self.number("depth", 2);
        let (on, off) = (self.float("on", 1.0), self.float("off", 0.0));
        let hot = self.push("one_hot", Op::OneHot(OneHot { axis: -1 }), &[flat, depth, on, off]);
        let rows = self.matmul("types/MatMul", hot, types);
        let kind = self.shaped("types/Reshape", rows, &[bi, si, hi]);
        let sum = self.add("add", word, kind);
        let table = self.weight("positions", &[positions, h]);
        let (begin, size) = (self.list("begin", &[0, 0]), self.list("size", &[si, -1]));
        let rows = self.push("positions/Slice", Op::Slice, &[table, begin, size]);
        let place = self.shaped("positions/Reshape", rows, &[1, si, hi]);
        let sum = self.add("add_1", sum, place);
        let mask = self.shaped("mask/Reshape", mask, &[bi, 1, si]);
        let mask = self.push("mask/Cast", Op::Cast(Cast { to: DType::F32 }), &[mask]);
        let ones = self.filled("ones", &[b, s, 1], 1.0);
        let mask = self.push("mask/mul", Op::Binary(Binary::Mul), &[ones, mask]);
        let x = self.shaped("rows", sum, &[-1, hi]);
        let context = self.attention(x, mask, sizes);
        let x = self.add("residual", context, x);
        let (up, down) = (self.weight("up", &[h, f]), self.weight("down", &[f, h]));
        let wide = self.matmul("wide", x, up);
        let x = self.matmul("narrow", wide, down);
        let axes = self.list("axes", &[-1]);
        let mean = Reduce { kind: ReduceKind::Mean, keep_dims: true };
        let mean = self.push("mean", Op::Reduce(mean), &[x, axes]);
        let x = self.push("centred", Op::Binary(Binary::Sub), &[x, mean]);
        self.shaped("encoder", x, &[bi, si, hi])
    }

    /// The first position of each example through a classifier.
    fn classifier(&mut self, x: NodeId, sizes: Sizes) -> NodeId {
        let h = sizes.n * sizes.d;
        let zeros = self.list("first/begin", &[0, 0, 0]);
        let (end, ones) = (self.list("first/end", &[0, 1, 0]), self.list("first/step", &[1, 1, 1]));
        let first = StridedSlice { begin_mask: 5, end_mask: 5, ..StridedSlice::default() };
        let first = self.push("first", Op::StridedSlice(first), &[x, zeros, end, ones]);
        let first = self.push("squeezed", Op::Squeeze(Squeeze { axes: vec![1] }), &[first]);
        let w = self.weight("classes", &[sizes.labels, h]);
        let product = MatMul { transpose_a: false, transpose_b: true };
        let logits = self.push("logits", Op::MatMul(product), &[first, w]);
        let bias = self.filled("logits/bias", &[sizes.labels], 0.0);
        self.push("logits/BiasAdd", Op::BiasAdd, &[logits, bias])
    }

    /// The masked positions, gathered from flattened rows.
    fn masked(&mut self, x: NodeId, sizes: Sizes) -> NodeId {
        let (bi, si, hi) = (sizes.b as i64, sizes.s as i64, (sizes.n * sizes.d) as i64);
        let places = self.input("masked_lm_positions", DType::I32, &[sizes.b, sizes.masked]);
        let (zero, one) = (self.number("range/start", 0), self.number("range/delta", 1));
        let limit = self.number("range/limit", bi);
        let range = self.push("range", Op::Range, &[zero, limit, one]);
        let rows = self.number("range/rows", si);
        let offsets = self.push("offsets", Op::Binary(Binary::Mul), &[range, rows]);
        let offsets = self.shaped("offsets/Reshape", offsets, &[-1, 1]);
        let flat = self.add("flat", places, offsets);
        let flat = self.shaped("flat/Reshape", flat, &[-1]);
        let rows = self.shaped("flat_rows", x, &[bi * si, hi]);
        let axis = self.number("gather/axis", 0);
        self.push("gathered", Op::Gather(Gather::default()), &[rows, flat, axis])
    }
}

fn bert(sizes: Sizes) -> Graph {
    let mut build = Build::default();
    let x = build.encoder(sizes);
    build.output("sequence", x);
    let logits = build.classifier(x, sizes);
    build.output("logits", logits);
    let gathered = build.masked(x, sizes);
    build.output("gathered", gathered);
    build.graph.check().unwrap();
    infer(&build.graph).unwrap();
    build.graph
}

fn shapes(graph: &Graph) -> Vec<String> {
    let facts = infer(graph).unwrap();
    graph.outputs.iter().map(|port| show(facts[port.value].dims.as_ref().unwrap())).collect()
}

/// Elements of the list that a node reads.
fn operand(graph: &Graph, node: &str, input: usize) -> String {
    let facts = infer(graph).unwrap();
    let value = graph.node(graph.find(node).unwrap()).inputs[input];
    show(facts[value].elements.as_ref().unwrap())
}

#[test]
fn both_sizes_become_open() {
    let mut graph = bert(SMALL);
    let report = reshape(&mut graph, &Reshape::dynamic()).unwrap();
    graph.check().unwrap();
    assert_eq!(shapes(&graph), ["[batch, seq, 16]", "[batch, 3]", "[5*batch, 16]"]);
    assert_eq!(operand(&graph, "query/Reshape", 1), "[batch, seq, 2, 8]");
    assert_eq!(operand(&graph, "context/Reshape", 1), "[-1, 16]");
    assert_eq!(operand(&graph, "positions/Slice", 2), "[seq, -1]");
    assert_eq!(operand(&graph, "mask/Reshape", 1), "[batch, 1, seq]");
    assert_eq!(operand(&graph, "offsets", 1), "[seq]");
    assert_eq!(operand(&graph, "range", 1), "[batch]");
    assert_eq!(operand(&graph, "positions/Reshape", 1), "[1, -1, 16]");
    let note = report.done.iter().find(|note| note.node == "query/Reshape").unwrap();
    assert_eq!(
        note.to_string(),
        "batch and seq: `query/Reshape`: target [1, 128, 2, 8] -> [batch, seq, 2, 8]"
    );
    // The sizes are read once, and constants keep their names.
    assert_eq!(graph.nodes().filter(|(_, node)| matches!(node.op, Op::Shape(_))).count(), 1);
    assert!(matches!(graph.node(graph.find("query/Reshape/shape").unwrap()).op, Op::Pack(_)));
}

#[test]
fn collisions_are_told_apart() {
    let s = SMALL;
    let cases = [
        Sizes { b: 4, n: 4, d: 4, ..s },    // batch = heads = head size
        Sizes { b: 2, labels: 2, ..s },     // batch = labels = types
        Sizes { s: 128, n: 8, d: 16, ..s }, // length = hidden
        Sizes { s: 64, n: 2, d: 64, ..s },  // length = head size
        Sizes { b: 8, s: 8, n: 8, d: 8, f: 8, labels: 8, masked: 8, ..s }, // everything
        Sizes { b: 1, s: 16, n: 1, d: 16, f: 16, masked: 16, ..s },
        Sizes { b: 2, s: 2, n: 2, d: 2, f: 2, labels: 2, masked: 2, positions: 2 },
        Sizes { b: 3, s: 12, n: 12, d: 3, f: 36, labels: 36, ..s }, // products collide
        Sizes { b: 1, s: 128, n: 1, d: 1, f: 1, labels: 1, masked: 1, ..s },
        Sizes { b: 16, s: 128, positions: 128, ..s },
    ];
    for sizes in cases {
        let before = bert(sizes);
        let mut graph = before.clone();
        reshape(&mut graph, &Reshape::dynamic()).unwrap_or_else(|e| panic!("{sizes:?}: {e}"));
        let h = sizes.n * sizes.d;
        let times = |n: usize, what: &str| match n {
            1 => what.to_owned(),
            n => format!("{n}*{what}"),
        };
        let wanted = [
            format!("[batch, seq, {h}]"),
            format!("[batch, {}]", sizes.labels),
            format!("[{}, {h}]", times(sizes.masked, "batch")),
        ];
        assert_eq!(shapes(&graph), wanted, "{sizes:?}");
        assert_eq!(
            operand(&graph, "query/Reshape", 1),
            format!("[batch, seq, {}, {}]", sizes.n, sizes.d)
        );
        assert_eq!(operand(&graph, "positions/Slice", 2), "[seq, -1]");
        assert!(graph.find("positions/first_rows").is_none());
        // Back to other numbers, by way of the general graph.
        let mut fixed = before;
        let wanted = Reshape { batch: Size::Known(5), seq: Size::Known(1) };
        reshape(&mut fixed, &wanted).unwrap();
        assert_eq!(shapes(&fixed)[0], format!("[5, 1, {h}]"));
    }
}

#[test]
fn one_size_alone() {
    let mut graph = bert(SMALL);
    reshape(&mut graph, &Reshape { seq: Size::Dynamic, ..Reshape::default() }).unwrap();
    assert_eq!(shapes(&graph), ["[1, seq, 16]", "[1, 3]", "[5, 16]"]);
    // The other one later gives the same graph as both at once.
    reshape(&mut graph, &Reshape { batch: Size::Dynamic, ..Reshape::default() }).unwrap();
    assert_eq!(shapes(&graph), ["[batch, seq, 16]", "[batch, 3]", "[5*batch, 16]"]);
    let mut graph = bert(Sizes { b: 4, ..SMALL });
    reshape(&mut graph, &Reshape { batch: Size::Dynamic, ..Reshape::default() }).unwrap();
    assert_eq!(shapes(&graph), ["[batch, 128, 16]", "[batch, 3]", "[5*batch, 16]"]);
}

#[test]
fn an_open_graph_stays() {
    let mut graph = bert(SMALL);
    reshape(&mut graph, &Reshape::dynamic()).unwrap();
    let before = graph.clone();
    let report = reshape(&mut graph, &Reshape::dynamic()).unwrap();
    assert!(report.done.is_empty());
    assert!(graph == before);
}

#[test]
fn numbers_are_put_in() {
    let mut graph = bert(SMALL);
    reshape(&mut graph, &Reshape { batch: Size::Known(3), seq: Size::Known(40) }).unwrap();
    assert_eq!(shapes(&graph), ["[3, 40, 16]", "[3, 3]", "[15, 16]"]);
    assert_eq!(operand(&graph, "query/Reshape", 1), "[3, 40, 2, 8]");
    // No shape arithmetic is left.
    assert!(!graph.nodes().any(|(_, node)| matches!(node.op, Op::Shape(_) | Op::Pack(_))));
    let before = graph.clone();
    let error = reshape(&mut graph, &Reshape { seq: Size::Known(600), ..Reshape::default() });
    let error = error.unwrap_err();
    let hint = error.hint();
    assert_eq!(hint.as_deref(), Some("the model has 512 positions: give `--seq` at most 512"));
    assert_eq!(
        error.to_string(),
        "`positions`: `positions/Slice` wants more of it than there is: \
         600 from 0 on is outside of 512 (axis 0)"
    );
    assert!(graph == before, "a graph that cannot be reshaped stays as it was");
}

#[test]
fn shapes_of_inputs() {
    let mut graph = bert(SMALL);
    let names = ["input_ids", "input_mask", "segment_ids"];
    let with = |dims: [Dim; 2]| names.map(|name| (name.to_owned(), dims.to_vec()));
    set_shapes(&mut graph, &with([Dim::known(2), Dim::seq()])).unwrap();
    assert_eq!(shapes(&graph), ["[2, seq, 16]", "[2, 3]", "[10, 16]"]);
    let error = set_shapes(&mut graph, &[("input_id".to_owned(), vec![])]).unwrap_err();
    assert_eq!(error.hint().unwrap(), "did you mean `input_ids`?");
}

/// Constants that were folded: position numbers, offsets, a mask of ones.
#[test]
fn folded_constants_grow() {
    for (b, s) in [(1usize, 12usize), (3, 12), (4, 4)] {
        let mut build = Build::default();
        let ids = build.input("ids", DType::I32, &[b, s]);
        let words = build.weight("words", &[100, 8]);
        let zero = build.number("zero", 0);
        let x = build.push("x", Op::Gather(Gather::default()), &[words, ids, zero]);
        let all: Vec<i64> = (0..b).flat_map(|_| 0..s as i64).collect();
        let places = build.ints("places", &[b, s], &all);
        let table = build.weight("table", &[40, 8]);
        let place = build.push("place", Op::Gather(Gather::default()), &[table, places, zero]);
        let sum = build.add("sum", x, place);
        let weights = build.filled("weights", &[b, s, 1], 0.5);
        let scaled = build.push("scaled", Op::Binary(Binary::Mul), &[sum, weights]);
        build.output("scaled", scaled);
        if b > 1 {
            let rows = build.shaped("rows", scaled, &[(b * s) as i64, 8]);
            let offsets: Vec<i64> = (0..b as i64).map(|i| i * s as i64).collect();
            let offsets = build.ints("offsets", &[b, 1], &offsets);
            let masked = build.input("masked", DType::I32, &[b, 2]);
            let flat = build.add("flat", masked, offsets);
            let picked = build.push("picked", Op::Gather(Gather::default()), &[rows, flat, zero]);
            build.output("picked", picked);
        }
        let mut graph = build.graph;
        reshape(&mut graph, &Reshape::dynamic()).unwrap_or_else(|e| panic!("{b} {s}: {e}"));
        assert_eq!(shapes(&graph)[0], "[batch, seq, 8]");
        if b > 1 {
            assert_eq!(shapes(&graph)[1], "[batch, 2, 8]");
        }
        // Lengths beyond the table are refused where they are known.
        let error = reshape(&mut graph, &Reshape { seq: Size::Known(41), ..Reshape::default() });
        assert!(error.unwrap_err().to_string().starts_with("`table`: "));
    }
}

/// Old graphs read the whole table where the length is all of it.
#[test]
fn a_whole_table_is_cut() {
    let (b, s, h) = (2, 16, 16);
    let mut build = Build::default();
    let ids = build.input("ids", DType::I32, &[b, s]);
    let words = build.weight("words", &[100, h]);
    let zero = build.number("zero", 0);
    let x = build.push("x", Op::Gather(Gather::default()), &[words, ids, zero]);
    let table = build.weight("table", &[s, h]);
    let place = build.shaped("place", table, &[1, s as i64, h as i64]);
    let sum = build.add("sum", x, place);
    let w = build.weight("w", &[h, h]);
    let y = build.matmul("y", sum, w);
    build.output("y", y);
    let mut graph = build.graph;
    let report = reshape(&mut graph, &Reshape::dynamic()).unwrap();
    assert_eq!(shapes(&graph), ["[batch, seq, 16]"]);
    let note = report.done.iter().find(|note| note.node == "table").unwrap();
    assert_eq!(
        note.text,
        "first rows [16, 16] -> [seq, -1], because of `sum`: operands must broadcast"
    );
    // The weight that happens to be as large is whole.
    assert!(report.done.iter().all(|note| note.node != "w"));
    let error = reshape(&mut graph, &Reshape { seq: Size::Known(17), ..Reshape::default() });
    assert!(error.unwrap_err().to_string().starts_with("`table`: "));
}

#[test]
fn what_mixes_examples_is_refused() {
    for b in [1, 4] {
        let mut build = Build::default();
        let x = build.encoder(Sizes { b, ..SMALL });
        let axes = build.list("loss/axes", &[0, 1, 2]);
        let mean = Reduce { kind: ReduceKind::Mean, keep_dims: false };
        let loss = build.push("loss", Op::Reduce(mean), &[x, axes]);
        build.output("loss", loss);
        let before = build.graph.clone();
        let error = reshape(&mut build.graph, &Reshape::dynamic()).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "batch cannot be other than {b}: `loss` (ReduceMean): \
                 examples of one batch would be mixed"
            )
        );
        assert!(error.hint().is_some());
        assert!(build.graph == before);
    }
}

#[test]
fn what_cannot_be_told_is_asked() {
    // Whether the sum of so many halves is to grow with the length cannot be known.
    let mut build = Build::default();
    let ids = build.input("ids", DType::F32, &[2, 128]);
    let extents = build.list("extents", &[128]);
    let half = build.float("half", 0.5);
    let fill = build.push("fill", Op::Fill, &[extents, half]);
    let axes = build.list("axes", &[0]);
    let sum = Reduce { kind: ReduceKind::Sum, keep_dims: false };
    let sum = build.push("sum", Op::Reduce(sum), &[fill, axes]);
    let y = build.push("y", Op::Binary(Binary::Mul), &[ids, sum]);
    build.output("y", y);
    let error = reshape(&mut build.graph, &Reshape::dynamic()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`fill` (Fill): entry 0 of `extents` may be 128 or seq: every shape fits both ways, \
         and the results differ once seq does"
    );
    // An operation that nobody knows.
    let mut build = Build::default();
    let ids = build.input("ids", DType::F32, &[2, 128]);
    let op =
        Foreign { op: "Mystery".into(), attrs: Attrs::new(), outputs: vec![Declared::default()] };
    let y = build.push("y", Op::Foreign(op), &[ids]);
    build.output("y", y);
    let error = reshape(&mut build.graph, &Reshape::dynamic()).unwrap_err().to_string();
    assert_eq!(
        error,
        "seq cannot be other than 128: `y` (Mystery): what `Mystery` makes of seq is not known"
    );
}

/// Values that differ from example to example although all inputs are the same.
#[test]
fn counting_examples_is_refused() {
    for b in [1i64, 4] {
        for way in ["range", "scaled", "one_hot", "count", "ones"] {
            let mut build = Build::default();
            let x = build.input("x", DType::I32, &[b as usize, 6]);
            let (zero, one) = (build.number("zero", 0), build.number("one", 1));
            let limit = build.number("limit", b);
            let range = build.push("range", Op::Range, &[zero, limit, one]);
            let axis = build.number("axis", 1);
            let column = build.push("column", Op::ExpandDims, &[range, axis]);
            let other = match way {
                "range" => column,
                "scaled" => {
                    let twice = build.push("twice", Op::Binary(Binary::Mul), &[column, x]);
                    build.push("negative", Op::Unary(Unary::Neg), &[twice])
                }
                "one_hot" => {
                    let two = build.number("two", 2);
                    let hot = OneHot { axis: -1 };
                    let hot = build.push("hot", Op::OneHot(hot), &[zero, limit, two, zero]);
                    build.push("hot/column", Op::ExpandDims, &[hot, axis])
                }
                "count" => {
                    let to = DType::I32;
                    let shape = build.push("shape", Op::Shape(ShapeOp { to }), &[x]);
                    let at = build.list("at", &[0]);
                    let end = build.list("end", &[1]);
                    let first = StridedSlice { shrink_axis_mask: 1, ..Default::default() };
                    build.push("count", Op::StridedSlice(first), &[shape, at, end, end])
                }
                _ => {
                    let extents = build.list("extents", &[b, 1]);
                    let ones = build.push("ones", Op::Fill, &[extents, one]);
                    let axes = build.list("axes", &[0]);
                    let kind = Reduce { kind: ReduceKind::Sum, keep_dims: true };
                    // The sum of one for each example: the number of examples, if they are.
                    let sum = build.push("total", Op::Reduce(kind), &[ones, axes]);
                    build.push("total/mul", Op::Binary(Binary::Mul), &[sum, x])
                }
            };
            let y = build.add("y", x, other);
            build.output("y", y);
            let mut graph = build.graph;
            let wanted = Reshape { batch: Size::Dynamic, ..Reshape::default() };
            match reshape(&mut graph, &wanted) {
                Err(Error::Baked { size, .. }) => assert_eq!(size, "batch"),
                Ok(_) => {
                    // Then nothing of it may depend on the batch: it is the number that it was.
                    let kept = match way {
                        "range" | "scaled" => operand(&graph, "range", 1),
                        "one_hot" => operand(&graph, "hot", 1),
                        "ones" => operand(&graph, "ones", 0),
                        _ => panic!("{way} at {b} was accepted"),
                    };
                    let number = if way == "ones" { format!("[{b}, 1]") } else { format!("[{b}]") };
                    assert_eq!(kept, number, "{way}");
                }
                Err(other) => panic!("{way}: {other}"),
            }
        }
    }
}

/// With one example there are several ways to read a target; the one that keeps examples apart is
/// found, wherever the others fail.
#[test]
fn one_example_is_searched() {
    let mut build = Build::default();
    let x = build.input("x", DType::F32, &[1, 6]);
    // [1, 1, 6] as [1, batch, 6]: the transpose brings the second axis to the front.
    let y = build.shaped("y", x, &[1, 1, 6]);
    let order = build.list("order", &[1, 0, 2]);
    let y = build.push("moved", Op::Transpose, &[y, order]);
    build.output("y", y);
    let mut graph = build.graph;
    reshape(&mut graph, &Reshape { batch: Size::Dynamic, ..Reshape::default() }).unwrap();
    assert_eq!(shapes(&graph), ["[batch, 1, 6]"]);
    assert_eq!(operand(&graph, "y", 1), "[1, -1, 6]");
}
