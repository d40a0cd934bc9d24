//! Models in bytes through `convert`: from every format that holds them to every other, verified.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::{Path, PathBuf};
use std::time::Instant;

use frazil::bert::Head;
use frazil::graph::Op;
use frazil::graph::op::Steps;
use frazil::graph::pass::quantize::{
    AttentionGrid, Grids, LinearGrid, SiteKind, channel_scales, quantize, sites,
};
use frazil::ops::convert::{self, Options, Target, convert};
use frazil::runtime::{Engine, EngineOptions, raise};
use frazil::source::{GraphOptions, OpenedGraph, open_graph};

const TARGETS: [(Target, &str); 4] = [
    (Target::Onnx, "model.onnx"),
    (Target::Openvino, "model.xml"),
    (Target::Tf, "model.pb"),
    (Target::SavedModel, "saved_model"),
];

/// The demo's encoder in bytes; steps reach to ±6, which is where its numbers are.
fn quantized(input: Steps, tables: bool) -> OpenedGraph {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tf1/bert_model.ckpt");
    let options = GraphOptions { head: Some(Head::Encoder), ..Default::default() };
    let mut opened = open_graph(source, &options).unwrap();
    let mut grids = Grids::default();
    for site in sites(&opened.graph).unwrap() {
        match site.kind {
            SiteKind::Linear { weight, transposed, .. } => {
                let weight = opened.graph.op(weight).as_const().unwrap();
                let scales = channel_scales(weight, transposed, 127).unwrap();
                let grid = LinearGrid { input, columns: None, scales, correction: None };
                grids.linears.insert(site.name, grid);
            }
            SiteKind::Attention { .. } => {
                let grid = AttentionGrid { q: (6.0 / 127.0, 128), k: 6.0 / 127.0, v: 6.0 / 127.0 };
                grids.attentions.insert(site.name, grid);
            }
            SiteKind::Table { .. } if !tables => {}
            SiteKind::Table { .. } => {
                grids.tables.insert(site.name);
            }
        }
    }
    assert!(!grids.linears.is_empty() && !grids.attentions.is_empty());
    assert_eq!(grids.tables.is_empty(), !tables);
    quantize(&mut opened.graph, &grids).unwrap();
    opened
}

fn write(input: Steps, tables: bool, to: Target, output: &Path) {
    let mut opened = quantized(input, tables);
    let options = Options::new(to);
    convert::prepare(&mut opened, &options).unwrap();
    convert::write(opened, output, &options, Instant::now()).unwrap();
}

/// How many values are on steps, and how many weights are bytes.
fn bytes_in(path: &Path, to: Target) -> (usize, usize) {
    let mut options = GraphOptions::default();
    if to == Target::Tf {
        // A frozen graph does not say what its outputs are.
        options.outputs = frazil::source::Outputs::Leaves;
    }
    let graph = open_graph(path, &options).unwrap().graph;
    let count = |test: fn(&Op) -> bool| graph.nodes().filter(|(_, node)| test(&node.op)).count();
    (count(|op| matches!(op, Op::FakeQuantize(_))), count(|op| matches!(op, Op::Scaled(_))))
}

#[test]
fn every_format_to_every_other() {
    let folder = tempfile::tempdir().unwrap();
    for (name, input) in
        [("fixed", Steps::Tensor { scale: 12.0 / 255.0, zero: 128 }), ("rows", Steps::Rows)]
    {
        let mut counts = Vec::new();
        for (from, file) in TARGETS {
            let source: PathBuf = folder.path().join(format!("{name}-{file}"));
            write(input, true, from, &source);
            counts.push(bytes_in(&source, from));
            for (to, file) in TARGETS.into_iter().filter(|(to, _)| *to != from) {
                let output = folder.path().join(format!("{name}-{from:?}-{file}"));
                let options = Options { verify: true, ..Options::new(to) };
                let report = convert(&source, &output, &options).unwrap();
                let verification = report.verification.unwrap();
                assert!(verification.equal, "{name} {from:?} {to:?}: {:?}", verification.outputs);
                let note = "numbers are compared without rounding to them";
                let said = verification.notes.iter().any(|text| text.ends_with(note));
                assert!(said, "{name} {from:?} {to:?}: {:?}", verification.notes);
                counts.push(bytes_in(&output, to));
            }
        }
        // Nothing fell back to numbers anywhere on the way.
        assert!(counts[0].0 > 8 && counts[0].1 > 8, "{counts:?}");
        assert!(counts.iter().all(|count| *count == counts[0]), "{name}: {counts:?}");
    }
}

/// An ONNX file whose rows find their own ranges is run in bytes: its embeddings are found again, and with
/// them the extents of all that follows.
#[test]
fn rows_by_themselves_run_again_from_onnx() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    write(Steps::Rows, false, Target::Onnx, &path);
    let mut graph = open_graph(&path, &GraphOptions::default()).unwrap().graph;
    Engine::new(&graph, &EngineOptions::default()).unwrap();
    raise(&mut graph, true).unwrap();
    assert!(graph.nodes().any(|(_, node)| node.op == Op::Embed));
}
