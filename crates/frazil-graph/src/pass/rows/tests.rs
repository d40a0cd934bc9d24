//! Both passes on small graphs, by what the dump says before and after.

use frazil_tensor::DType;

use super::{demand_rows, pack_rows};
use crate::op::{
    Attention, Binary, Gather, Gelu, GeluForm, LayerNorm, Linear, Op, Reduce, ReduceKind, ShapeOp,
    Squeeze, Steps, StridedSlice, Unary,
};
use crate::pass::Report;
use crate::testing::{Build, batch_by_seq};
use crate::{Dim, dump};

/// Embeddings, their norm, and `layers` of a transformer, with rows of 4; the last norm is `out`.
fn encoder(dims: &[Dim], layers: usize) -> Build {
    let mut g = Build::default();
    for name in ["ids", "mask", "segments"] {
        g.input(name, DType::I32, dims);
    }
    g.weight("words", &[9, 4]);
    g.weight("types", &[2, 4]);
    g.weight("positions", &[8, 4]);
    for name in ["gamma", "beta", "bias"] {
        g.weight(name, &[4]);
    }
    g.weight("w", &[4, 4]);
    g.node("embed", Op::Embed, &["ids", "segments", "words", "types", "positions"]);
    norm(&mut g, "norm", "embed");
    g.list("to_rows", &[-1, 4]);
    g.node("rows", Op::Reshape, &["norm", "to_rows"]);
    let mut x = "rows".to_owned();
    for layer in 0..layers {
        x = self::layer(&mut g, layer, &x);
    }
    norm(&mut g, "out", &x);
    g
}

fn norm(g: &mut Build, name: &str, x: &str) {
    g.node(name, Op::LayerNorm(LayerNorm { epsilon: 1e-12 }), &[x, "gamma", "beta"]);
}

fn linear(g: &mut Build, name: &str, x: &str) {
    g.node(name, Op::Linear(Linear::default()), &[x, "w", "bias"]);
}

fn attention(mask_value: f32) -> Op {
    Op::Attention(Attention { heads: 2, scale: 0.5, mask_value, packed: false, steps: None })
}

fn layer(g: &mut Build, layer: usize, x: &str) -> String {
    let name = |part: &str| format!("{layer}/{part}");
    for part in ["q", "k", "v"] {
        linear(g, &name(part), x);
    }
    g.node(&name("context"), attention(-1e4), &[&name("q"), &name("k"), &name("v"), "mask"]);
    g.binary(&name("sum"), Binary::Add, &name("context"), x);
    norm(g, &name("norm"), &name("sum"));
    linear(g, &name("up"), &name("norm"));
    g.node(&name("gelu"), Op::Gelu(Gelu { form: GeluForm::Tanh }), &[&name("up")]);
    linear(g, &name("down"), &name("gelu"));
    g.binary(&name("add"), Binary::Add, &name("down"), &name("norm"));
    name("add")
}

/// `[b, s, w]` again, as TF1 graphs say it.
fn back(g: &mut Build, name: &str, x: &str) {
    let shape = format!("{name}_shape");
    g.node(&shape, Op::Shape(ShapeOp { to: DType::I32 }), &["norm"]);
    g.node(name, Op::Reshape, &[x, &shape]);
}

/// `x[:, 0:1, :]` without the axis of positions.
fn first(g: &mut Build, name: &str, x: &str) {
    let slice = format!("{name}_slice");
    let names = ["begin", "end", "strides"].map(|part| format!("{name}_{part}"));
    for (name, values) in names.iter().zip([[0, 0, 0], [0, 1, 0], [1, 1, 1]]) {
        g.list(name, &values);
    }
    let op = StridedSlice { begin_mask: 5, end_mask: 5, ..StridedSlice::default() };
    g.node(&slice, Op::StridedSlice(op), &[x, &names[0], &names[1], &names[2]]);
    g.node(name, Op::Squeeze(Squeeze { axes: vec![1] }), &[&slice]);
}

/// The nodes that are neither constants nor inputs, with what is known of them.
fn lines(g: &Build) -> Vec<String> {
    let text = dump(&g.graph);
    assert!(!text.starts_with('#'), "{text}");
    let plain = |line: &&str| !line.contains(" = Const") && !line.contains(" = Input");
    text.lines().filter(plain).map(str::to_owned).collect()
}

fn line(g: &Build, name: &str) -> String {
    let all = lines(g);
    let begin = format!("{name} = ");
    all.iter().find(|line| line.starts_with(&begin)).cloned().unwrap_or_else(|| all.join("\n"))
}

fn packed(g: &mut Build) -> Report {
    let report = pack_rows(&mut g.graph).unwrap();
    g.graph.check().unwrap();
    report
}

fn missed(report: &Report) -> Vec<String> {
    report.missed.iter().map(ToString::to_string).collect()
}

#[test]
fn one_layer_packed() {
    let mut g = encoder(&batch_by_seq(), 1);
    back(&mut g, "sequence", "out");
    g.output("sequence");
    let report = packed(&mut g);
    let notes: Vec<String> = report.done.iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        [
            "pack_rows: `mask`: 15 operations compute no padding by this mask",
            "pack_rows: `sequence`: is put back in its places for output `sequence`",
        ]
    );
    assert_eq!(missed(&report), [""; 0]);
    let expected = "\
input ids <- ids
input mask <- mask
input segments <- segments
mask/rows = PackRows(mask) : int32 [rows]; int32 [batch + 1]
embed = Embed(ids, segments, words, types, positions, mask/rows) : float32 [rows, 4]
norm = LayerNorm{epsilon=1e-12}(embed, gamma, beta) : float32 [rows, 4]
0/q = Linear(norm, w, bias) : float32 [rows, 4]
0/k = Linear(norm, w, bias) : float32 [rows, 4]
0/v = Linear(norm, w, bias) : float32 [rows, 4]
0/context = Attention{heads=2, scale=0.5, packed=true}(0/q, 0/k, 0/v, mask/rows:1, mask/rows:1) : float32 [rows, 4]
0/sum = Add(0/context, norm) : float32 [rows, 4]
0/norm = LayerNorm{epsilon=1e-12}(0/sum, gamma, beta) : float32 [rows, 4]
0/up = Linear(0/norm, w, bias) : float32 [rows, 4]
0/gelu = Gelu{form=tanh}(0/up) : float32 [rows, 4]
0/down = Linear(0/gelu, w, bias) : float32 [rows, 4]
0/add = Add(0/down, 0/norm) : float32 [rows, 4]
out = LayerNorm{epsilon=1e-12}(0/add, gamma, beta) : float32 [rows, 4]
sequence/unpacked = UnpackRows(out, mask/rows, mask) : float32 [batch, seq, 4]
output sequence <- sequence/unpacked";
    assert_eq!(lines(&g).join("\n"), expected);
    // Once is enough.
    let before = dump(&g.graph);
    assert_eq!(packed(&mut g).done, []);
    assert_eq!(demand_rows(&mut g.graph).unwrap().done, []);
    assert_eq!(dump(&g.graph), before);
}

/// The numbers of a baked graph are symbols here only where they must be.
#[test]
fn baked_sizes_stay() {
    let mut g = encoder(&[Dim::known(2), Dim::known(4)], 1);
    back(&mut g, "sequence", "out");
    g.output("sequence");
    g.output("out");
    packed(&mut g);
    assert_eq!(line(&g, "mask/rows"), "mask/rows = PackRows(mask) : int32 [rows]; int32 [3]");
    let unpacked = "UnpackRows(out, mask/rows, mask) : float32 [2, 4, 4]";
    assert_eq!(line(&g, "out/unpacked"), format!("out/unpacked = {unpacked}"));
    // Rows are wanted as they were, and both ends share what is put back.
    let rows = "out/unpacked_rows = Reshape(out/unpacked, out/unpacked_rows/shape)";
    assert_eq!(line(&g, "out/unpacked_rows"), format!("{rows} : float32 [8, 4]"));
    assert_eq!(g.of_kind("UnpackRows"), ["out/unpacked"]);
    let outputs: Vec<String> =
        g.graph.outputs.iter().map(|port| g.graph.value_name(port.value)).collect();
    assert_eq!(outputs, ["out/unpacked", "out/unpacked_rows"]);
}

#[test]
fn extents_are_asked_of_the_mask() {
    let mut g = encoder(&batch_by_seq(), 1);
    g.node("of_batch", Op::Shape(ShapeOp { to: DType::I64 }), &["norm"]);
    g.node("of_rows", Op::Shape(ShapeOp { to: DType::I32 }), &["out"]);
    for name in ["of_batch", "of_rows", "out"] {
        g.output(name);
    }
    packed(&mut g);
    let of_batch = "of_batch = Concat(of_batch/positions, of_batch/width, of_batch/axis)";
    assert_eq!(line(&g, "of_batch"), format!("{of_batch} : int64 [3] = [batch, seq, 4]"));
    let of_rows = "of_rows = Concat(of_rows/rows, of_rows/width, of_rows/axis)";
    assert_eq!(line(&g, "of_rows"), format!("{of_rows} : int32 [2] = [batch*seq, 4]"));
    assert_eq!(g.of_kind("UnpackRows"), ["out/unpacked"]);
}

#[test]
fn what_stands_in_the_way_is_said() {
    let mut g = encoder(&batch_by_seq(), 1);
    g.input("other", DType::F32, &batch_by_seq());
    g.node("late", attention(-1e4), &["out", "out", "out", "other"]);
    g.node("soft", attention(-1.0), &["out", "out", "out", "mask"]);
    g.input("fed", DType::F32, &[Dim::batch().times(&Dim::seq()).unwrap(), Dim::known(4)]);
    g.node("from_afar", attention(-1e4), &["out", "fed", "out", "mask"]);
    for name in ["late", "soft", "from_afar"] {
        g.output(name);
    }
    let report = packed(&mut g);
    assert_eq!(
        missed(&report),
        [
            "pack_rows: `late`: its mask is `other` (Input), rows are packed by `mask` (Input)",
            "pack_rows: `soft`: a mask value of -1 does not hide padding",
            "pack_rows: `from_afar`: its keys are `fed` (Input), which does not come from the \
             embeddings row by row",
        ]
    );
    assert_eq!(g.of_kind("UnpackRows"), ["out/unpacked"]);
    assert!(
        line(&g, "late").starts_with("late = Attention{heads=2, scale=0.5, mask_value=-10000}")
    );
}

#[test]
fn ids_that_are_not_the_masks() {
    let mut g = encoder(&batch_by_seq(), 0);
    g.input("short", DType::I32, &[Dim::batch(), Dim::known(3)]);
    g.node("context", attention(-1e4), &["out", "out", "out", "short"]);
    g.output("context");
    let before = dump(&g.graph);
    let report = packed(&mut g);
    let reasons = missed(&report);
    let expected = "pack_rows: `embed`: its ids are [batch, seq], the mask is [batch, 3]";
    assert_eq!(reasons[0], expected);
    assert_eq!(report.done, []);
    assert_eq!(dump(&g.graph), before);
}

#[test]
fn a_mean_over_padding_is_left_alone() {
    for (masked, packs) in [(false, false), (true, true)] {
        let mut g = encoder(&batch_by_seq(), 1);
        back(&mut g, "sequence", "out");
        let mut pooled = "sequence";
        if masked {
            g.node("real", Op::Cast(crate::op::Cast { to: DType::F32 }), &["mask"]);
            g.int("last", -1);
            g.node("per_row", Op::ExpandDims, &["real", "last"]);
            g.binary("kept", Binary::Mul, "sequence", "per_row");
            pooled = "kept";
        }
        g.int("axis", 1);
        let sum = Op::Reduce(Reduce { kind: ReduceKind::Sum, keep_dims: false });
        g.node("pooled", sum, &[pooled, "axis"]);
        g.output("pooled");
        let report = packed(&mut g);
        assert_eq!(g.of_kind("PackRows").len(), usize::from(packs), "{report:?}");
        if !packs {
            let expected = "pack_rows: `pooled`: ReduceSum mixes padding into its result";
            assert_eq!(missed(&report), [expected]);
        }
    }
}

#[test]
fn a_mask_of_the_rows_themselves() {
    let mut g = encoder(&batch_by_seq(), 0);
    g.int("axis", -1);
    let any = Op::Reduce(Reduce { kind: ReduceKind::Max, keep_dims: false });
    g.node("own", any, &["norm", "axis"]);
    g.node("context", attention(-1e4), &["out", "out", "out", "own"]);
    g.output("context");
    let report = packed(&mut g);
    let expected = "pack_rows: `own`: it is computed from `embed` (Embed), which it masks";
    assert_eq!(missed(&report), [expected]);
    assert_eq!(g.of_kind("PackRows").len(), 0);
}

/// A classifier's last layer has one row per sequence, but for its keys and values.
#[test]
fn only_first_rows_are_demanded() {
    let mut g = encoder(&batch_by_seq(), 2);
    back(&mut g, "sequence", "out");
    first(&mut g, "cls", "sequence");
    linear(&mut g, "pooler", "cls");
    g.unary("pooled", Unary::Tanh, "pooler");
    g.output("pooled");
    packed(&mut g);
    let report = demand_rows(&mut g.graph).unwrap();
    g.graph.check().unwrap();
    assert_eq!(report.missed, []);
    assert_eq!(report.done[0].to_string(), {
        "demand_rows: `out`: only its first row of each sequence is read"
    });
    let all = lines(&g);
    let at = all.iter().position(|line| line.starts_with("0/add = ")).unwrap();
    let expected = "\
0/add = Add(0/down, 0/norm) : float32 [rows, 4]
1/k = Linear(0/add, w, bias) : float32 [rows, 4]
1/v = Linear(0/add, w, bias) : float32 [rows, 4]
mask/rows/first = StridedSlice(mask/rows:1, mask/rows/first/begin, mask/rows/first/end, mask/rows/first/step) : int32 [batch]
0/add/first = Gather(0/add, mask/rows/first, mask/rows/first/axis) : float32 [batch, 4]
1/q = Linear(0/add/first, w, bias) : float32 [batch, 4]
mask/rows/single/count = Size(mask/rows:1) : int32 [] = [batch + 1]
mask/rows/single = Range(mask/rows/single/start, mask/rows/single/count, mask/rows/single/step) : int32 [batch + 1]
1/context = Attention{heads=2, scale=0.5, packed=true}(1/q, 1/k, 1/v, mask/rows/single, mask/rows:1) : float32 [batch, 4]
1/sum = Add(1/context, 0/add/first) : float32 [batch, 4]
1/norm = LayerNorm{epsilon=1e-12}(1/sum, gamma, beta) : float32 [batch, 4]
1/up = Linear(1/norm, w, bias) : float32 [batch, 4]
1/gelu = Gelu{form=tanh}(1/up) : float32 [batch, 4]
1/down = Linear(1/gelu, w, bias) : float32 [batch, 4]
1/add = Add(1/down, 1/norm) : float32 [batch, 4]
out = LayerNorm{epsilon=1e-12}(1/add, gamma, beta) : float32 [batch, 4]
pooler = Linear(out, w, bias) : float32 [batch, 4]
pooled = Tanh(pooler) : float32 [batch, 4]
output pooled <- pooled";
    assert_eq!(all[at..].join("\n"), expected);
    let pack = "mask/rows = PackRows{first=true}(mask) : int32 [rows]; int32 [batch + 1]";
    assert_eq!(line(&g, "mask/rows"), pack);
}

/// What all rows are put on steps for is done once more for the first ones, also after a factor.
#[test]
fn steps_that_others_read_are_made_again() {
    let mut g = encoder(&batch_by_seq(), 2);
    g.weight("factors", &[4]);
    g.binary("scaled", Binary::Mul, "0/add", "factors");
    g.node("steps", Op::FakeQuantize(Steps::Rows), &["scaled"]);
    for part in ["1/q", "1/k", "1/v"] {
        let (id, steps) = (g.value(part).node, g.value("steps"));
        g.graph.node_mut(id).inputs[0] = steps;
    }
    back(&mut g, "sequence", "out");
    first(&mut g, "cls", "sequence");
    g.output("cls");
    packed(&mut g);
    demand_rows(&mut g.graph).unwrap();
    g.graph.check().unwrap();
    for expected in [
        "1/q = Linear(steps/first, w, bias) : float32 [batch, 4]",
        "steps/first = FakeQuantize{rows}(scaled/first) : float32 [batch, 4]",
        "scaled/first = Mul(0/add/first, factors) : float32 [batch, 4]",
        "1/k = Linear(steps, w, bias) : float32 [rows, 4]",
    ] {
        assert_eq!(line(&g, expected.split(' ').next().unwrap()), expected);
    }
}

#[test]
fn every_way_to_ask_for_position_0() {
    type Ask = fn(&mut Build);
    let ways: [(&str, Ask, bool); 7] = [
        ("a window and a squeeze", |g| first(g, "cls", "sequence"), true),
        (
            "one index",
            |g| {
                g.list("begin", &[0, 0]);
                g.list("end", &[0, 1]);
                g.list("strides", &[1, 1]);
                let op = StridedSlice {
                    begin_mask: 1,
                    end_mask: 1,
                    shrink_axis_mask: 2,
                    ..StridedSlice::default()
                };
                let inputs = ["sequence", "begin", "end", "strides"];
                g.node("cls", Op::StridedSlice(op), &inputs);
            },
            true,
        ),
        (
            "a slice",
            |g| {
                g.list("begin", &[0, 0, 0]);
                g.list("size", &[-1, 1, 4]);
                g.node("cls", Op::Slice, &["sequence", "begin", "size"]);
            },
            true,
        ),
        (
            "a lookup",
            |g| {
                g.int("zero", 0);
                g.int("axis", 1);
                let op = Op::Gather(Gather::default());
                g.node("cls", op, &["sequence", "zero", "axis"]);
            },
            true,
        ),
        (
            "a lookup of a list",
            |g| {
                g.list("zero", &[0]);
                g.int("axis", -2);
                let op = Op::Gather(Gather::default());
                g.node("cls", op, &["sequence", "zero", "axis"]);
            },
            true,
        ),
        (
            "another position",
            |g| {
                g.int("one", 1);
                g.int("axis", 1);
                g.node("cls", Op::Gather(Gather::default()), &["sequence", "one", "axis"]);
            },
            false,
        ),
        (
            "two positions",
            |g| {
                g.list("begin", &[0, 0, 0]);
                g.list("size", &[-1, 2, 4]);
                g.node("cls", Op::Slice, &["sequence", "begin", "size"]);
            },
            false,
        ),
    ];
    for (way, ask, demands) in ways {
        let mut g = encoder(&batch_by_seq(), 1);
        back(&mut g, "sequence", "out");
        ask(&mut g);
        g.output("cls");
        let cls = g.value("cls");
        let before = crate::infer(&g.graph).unwrap()[cls].to_string();
        packed(&mut g);
        let report = demand_rows(&mut g.graph).unwrap();
        g.graph.check().unwrap();
        let end = g.graph.outputs[0].value;
        assert_eq!(crate::infer(&g.graph).unwrap()[end].to_string(), before, "{way}");
        assert_eq!(g.of_kind("UnpackRows").is_empty(), demands, "{way}");
        assert_eq!(report.done.is_empty(), !demands, "{way}");
    }
}

#[test]
fn a_value_that_is_read_in_full_is_computed_in_full() {
    let mut g = encoder(&batch_by_seq(), 1);
    back(&mut g, "sequence", "out");
    first(&mut g, "cls", "sequence");
    g.output("cls");
    g.output("sequence");
    packed(&mut g);
    let before = dump(&g.graph);
    let report = demand_rows(&mut g.graph).unwrap();
    let expected = "demand_rows: `out`: more than its first rows is read, by output `sequence`";
    assert_eq!(missed(&report), [expected]);
    assert_eq!(dump(&g.graph), before);
}

#[test]
fn deterministic() {
    let make = || {
        let mut g = encoder(&batch_by_seq(), 3);
        back(&mut g, "sequence", "out");
        first(&mut g, "cls", "sequence");
        g.output("cls");
        g.output("1/gelu");
        packed(&mut g);
        demand_rows(&mut g.graph).unwrap();
        g.graph
    };
    let once = make();
    for _ in 0..4 {
        assert!(make() == once);
    }
}
