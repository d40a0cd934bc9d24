//! Sites and bytes of small graphs.

use super::*;
use crate::op::{Binary, OneHot, Op, Unary};
use crate::pass::{Fusions, fuse};
use crate::testing::Build;
use crate::{Dim, dump};

/// Two products of one input that follow each other, with biases, behind a lookup.
fn model() -> Build {
    let mut g = Build::default();
    g.input("ids", DType::I32, &[Dim::batch()]);
    g.weight("table", &[5, 40]);
    g.int("axis", 0);
    g.node("rows", Op::Gather(Default::default()), &["table", "ids", "axis"]);
    for (name, shape) in [("w", [40, 48]), ("u", [48, 40]), ("head", [48, 2])] {
        g.weight(name, &shape);
        g.unary(&format!("{name}/read"), Unary::Identity, name);
    }
    g.weight("bias", &[48]);
    g.matmul("a", "rows", "w/read");
    g.node("a/add", Op::BiasAdd, &["a", "bias"]);
    g.matmul_transposed("b", "rows", "u/read");
    g.binary("b/add", Binary::Add, "bias", "b");
    g.binary("sum", Binary::Add, "a/add", "b/add");
    g.matmul("logits", "sum", "head/read");
    g.output("logits");
    g
}

fn grid(n: usize) -> LinearGrid {
    let input = Steps::Tensor { scale: 0.25, zero: 100 };
    LinearGrid { input, columns: None, scales: vec![0.25; n], correction: None }
}

fn with(linears: &[(&str, LinearGrid)]) -> Grids {
    let linears = linears.iter().map(|(name, grid)| ((*name).to_owned(), grid.clone())).collect();
    Grids { linears, ..Grids::default() }
}

#[test]
fn all_sites_are_found_in_order() {
    let g = model();
    let sites = sites(&g.graph).unwrap();
    let names: Vec<&str> = sites.iter().map(|site| site.name.as_str()).collect();
    assert_eq!(names, ["rows", "a", "b", "logits"]);
    let (table, bias) = (g.value("table"), Some(g.value("bias")));
    assert_eq!(sites[0].kind, SiteKind::Table { table, rows: 5, width: 40 });
    let linear = |weight: &str, k, n, transposed, bias, head| {
        let weight = g.value(weight);
        SiteKind::Linear { weight, k, n, transposed, bias, head }
    };
    assert_eq!(sites[1].kind, linear("w", 40, 48, false, bias, false));
    assert_eq!(sites[2].kind, linear("u", 40, 48, true, bias, false));
    assert_eq!(sites[3].kind, linear("head", 48, 2, false, None, true));
    assert_eq!(sites[1].observe, [g.value("rows")]);
}

#[test]
fn a_product_of_one_hot_is_a_table() {
    let mut g = Build::default();
    g.input("ids", DType::I32, &[Dim::batch()]);
    g.weight("types", &[2, 40]);
    g.int("depth", 2);
    g.number("on", 1.0);
    g.number("off", 0.0);
    g.node("one_hot", Op::OneHot(OneHot { axis: -1 }), &["ids", "depth", "on", "off"]);
    g.matmul("types_of", "one_hot", "types");
    g.output("types_of");
    let found = sites(&g.graph).unwrap();
    let kind = SiteKind::Table { table: g.value("types"), rows: 2, width: 40 };
    assert_eq!((found.len(), &found[0].kind), (1, &kind));
    let grids = Grids { tables: ["types_of".to_owned()].into(), ..Grids::default() };
    quantize(&mut g.graph, &grids).unwrap();
    assert_eq!(g.of_kind("Scaled"), ["types"]);
}

#[test]
fn bytes_under_the_names_of_weights() {
    let mut g = model();
    let grids = with(&[("a", grid(48)), ("b", LinearGrid { scales: vec![0.5], ..grid(48) })]);
    let report = quantize(&mut g.graph, &grids).unwrap();
    assert_eq!(report.count("quantize"), 2);
    let text = dump(&g.graph);
    // One input on steps for both.
    assert_eq!(g.of_kind("FakeQuantize"), ["a/input_steps"]);
    for line in [
        "a/input_steps = FakeQuantize{scale=0.25, zero=100}(rows) : float32 [batch, 40]",
        "w = Scaled{axis=1}(w/bytes, w/scales) : float32 [40, 48]",
        "u = Scaled{axis=0}(u/bytes, u/scales) : float32 [48, 40]",
        "a = MatMul(a/input_steps, w/read) : float32 [batch, 48]",
        "logits = MatMul(sum, head/read) : float32 [batch, 2]",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    // 0.5 in steps of 0.25, and of 0.5.
    let first =
        |name: &str| g.graph.op(g.value(name)).as_const().unwrap().values::<i8>().unwrap()[0];
    assert_eq!((first("w/bytes"), first("u/bytes")), (2, 1));
    // Raised, weights are weights and products are products.
    let report = fuse(&mut g.graph, &Fusions::all()).unwrap();
    assert_eq!(report.count("linear"), 2, "{report:?}");
    let again = {
        let mut g = model();
        quantize(&mut g.graph, &grids).unwrap();
        dump(&g.graph)
    };
    assert_eq!(again, text);
}

#[test]
fn weights_that_others_read_stay() {
    let mut g = model();
    g.output("w");
    quantize(&mut g.graph, &with(&[("a", grid(48))])).unwrap();
    let text = dump(&g.graph);
    assert!(text.contains("a/weight = Scaled{axis=1}(a/weight/bytes, a/weight/scales)"), "{text}");
    assert!(text.contains("a = MatMul(a/input_steps, a/weight)"), "{text}");
    assert!(g.graph.op(g.value("w")).as_const().is_some());
}

#[test]
fn factors_and_corrections() {
    let mut g = model();
    let moved = LinearGrid { columns: Some(vec![2.0; 40]), scales: vec![0.125], ..grid(48) };
    let corrected = LinearGrid { correction: Some(vec![1.0; 48]), ..moved.clone() };
    let head = LinearGrid { input: Steps::Rows, correction: Some(vec![1.0; 2]), ..grid(2) };
    let grids = with(&[("a", corrected), ("b", moved), ("logits", head)]);
    quantize(&mut g.graph, &grids).unwrap();
    let text = dump(&g.graph);
    for line in [
        "a/input_scale = Mul(rows, a/input_factors) : float32 [batch, 40]",
        "a/input_steps = FakeQuantize{scale=0.25, zero=100}(a/input_scale)",
        "b = MatMul{transpose_b=true}(a/input_steps, u/read)",
        // `b` reads the same bias.
        "a/add = BiasAdd(a, a/bias)",
        "logits/input_steps = FakeQuantize{rows}(sum)",
        "logits/corrected = BiasAdd(logits, logits/correction)",
        "output logits <- logits/corrected",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let bias = g.graph.op(g.value("a/bias")).as_const().unwrap().values::<f32>().unwrap()[0];
    let byte = g.graph.op(g.value("w/bytes")).as_const().unwrap().values::<i8>().unwrap()[0];
    assert_eq!((bias, byte), (1.5, 2));
}

#[test]
fn what_does_not_fit_is_refused_before_anything_changes() {
    let symmetric = LinearGrid { input: Steps::Symmetric { scale: 1.0 }, ..grid(48) };
    let table: [(&str, LinearGrid, &str); 8] = [
        ("c", grid(48), "there is no product of a constant weight `c` in the graph"),
        ("sum", grid(48), "`sum` is no product of a constant weight"),
        ("a", grid(47), "`a` cannot be quantized: 47 scales for 48 columns"),
        ("a", symmetric, "`a` cannot be quantized: its input cannot be Symmetric { scale: 1.0 }"),
        (
            "a",
            LinearGrid { scales: vec![f32::NAN], ..grid(48) },
            "`a` cannot be quantized: a scale of NaN",
        ),
        (
            "a",
            LinearGrid { columns: Some(vec![1.0; 39]), ..grid(48) },
            "`a` cannot be quantized: 39 factors for 40 columns of x",
        ),
        (
            "a",
            LinearGrid { columns: Some(vec![0.0; 40]), ..grid(48) },
            "`a` cannot be quantized: a scale of 0",
        ),
        (
            "a",
            LinearGrid { correction: Some(vec![1.0]), ..grid(48) },
            "`a` cannot be quantized: 1 corrections for 48 columns",
        ),
    ];
    let before = dump(&model().graph);
    for (name, wrong, message) in table {
        let mut g = model();
        let error = quantize(&mut g.graph, &with(&[("b", grid(48)), (name, wrong)])).unwrap_err();
        assert_eq!(error.to_string(), message);
        assert_eq!(dump(&g.graph), before);
    }
}

#[test]
fn scales_of_steps_are_short() {
    for i in 0..1000u32 {
        let scale = f32::from_bits(0x3a00_0000 + i * 0x0000_7137);
        let short = short(scale);
        assert_eq!(short.to_bits() & 0xff, 0);
        assert!((short / scale - 1.0).abs() <= 1.0 / 65536.0);
        assert!((1..=255).all(|n| f64::from(short * n as f32) == f64::from(short) * f64::from(n)));
    }
    assert_eq!(short(f32::MAX), f32::MAX);
    let mut g = model();
    let long = Steps::Tensor { scale: 0.012_345_678, zero: 100 };
    quantize(&mut g.graph, &with(&[("a", LinearGrid { input: long, ..grid(48) })])).unwrap();
    assert!(dump(&g.graph).contains("FakeQuantize{scale=0.012345791, zero=100}"));
}

#[test]
fn scales_hold_the_largest_number_of_a_column() {
    let w = Tensor::from_vec([2, 3], vec![1.27f32, 0.0, -2.0, -0.5, 0.0, 12.7]).unwrap();
    let near = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-7);
    assert!(near(&channel_scales(&w, false, 127).unwrap(), &[0.01, 1.0, 0.1]));
    assert!(near(&channel_scales(&w, true, 127).unwrap(), &[2.0 / 127.0, 0.1]));
}

#[test]
fn marks_stand_before_what_sites_read() {
    let mut g = model();
    let report = watch(&mut g.graph).unwrap();
    assert_eq!(report.count("watch"), 3);
    assert_eq!(g.of_kind("FakeQuantize"), ["a/watched_0", "b/watched_0", "logits/watched_0"]);
    let text = dump(&g.graph);
    for line in [
        "b/watched_0 = FakeQuantize{watched=0}(rows) : float32 [batch, 40]",
        "b = MatMul{transpose_b=true}(b/watched_0, u/read)",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let mark = g.value("logits/watched_0").node;
    assert_eq!(watched(g.graph.node(mark)), Some(("logits", 0)));
    // Raised as without marks.
    assert_eq!(fuse(&mut g.graph, &Fusions::all()).unwrap().count("linear"), 2);
    let mut again = model();
    watch(&mut again.graph).unwrap();
    assert!(matches!(watch(&mut again.graph), Err(Error::DuplicateName { .. })));
}
