//! Graphs that were tampered with may be refused; nothing panics, hangs or grows.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::Path;

use frazil_convert::tf::{self, ImportOptions, export, import};
use frazil_graph::dump;
use frazil_tf::meta_graph;
use frazil_tf::proto::GraphDef;
use prost::Message;

/// Numbers that look random and are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % bound.max(1)
    }
}

/// Operations to put where others were.
const OPS: [&str; 40] = [
    "Add",
    "MatMul",
    "BatchMatMulV2",
    "Reshape",
    "Switch",
    "Merge",
    "Enter",
    "Exit",
    "NextIteration",
    "LoopCond",
    "Const",
    "Placeholder",
    "PlaceholderWithDefault",
    "Identity",
    "StridedSlice",
    "Slice",
    "Pack",
    "Unpack",
    "Split",
    "SplitV",
    "ConcatV2",
    "Concat",
    "Gather",
    "GatherV2",
    "ResourceGather",
    "ReadVariableOp",
    "VarHandleOp",
    "VariableV2",
    "Select",
    "SelectV2",
    "Mean",
    "Transpose",
    "ExpandDims",
    "Squeeze",
    "OneHot",
    "Range",
    "Fill",
    "Tile",
    "Pad",
    "Mystery",
];

fn graphs() -> Vec<GraphDef> {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../frazil/tests/fixtures/freeze_graph");
    ["loop", "switch", "resource", "partitioned", "renamed", "v1"]
        .iter()
        .map(|name| {
            let path = folder.join(name).join("model.ckpt.meta");
            meta_graph::read(path).unwrap().graph_def.unwrap()
        })
        .collect()
}

fn use_it(def: &GraphDef) {
    if let Ok(imported) = import(def, &ImportOptions::untyped()) {
        drop(export(&imported.graph, imported.library.as_ref()));
    }
    if let Ok(imported) = import(def, &ImportOptions::default()) {
        imported.graph.check().unwrap();
        drop(dump(&imported.graph));
        drop(export(&imported.graph, imported.library.as_ref()));
        drop(tf::migraphx::check(&imported.graph));
        drop(tf::default_outputs(&imported.graph));
    }
}

#[test]
fn nodes_that_were_exchanged() {
    let graphs = graphs();
    let mut random = Random(7);
    for round in 0..1500 {
        let mut def = graphs[round % graphs.len()].clone();
        for _ in 0..=random.below(4) {
            let count = def.node.len();
            let (at, other) = (random.below(count), random.below(count));
            let name = def.node[other].name.clone();
            let attrs = def.node[other].attr.clone();
            let node = &mut def.node[at];
            let input = random.below(node.input.len());
            match random.below(7) {
                0 => node.op = OPS[random.below(OPS.len())].to_owned(),
                1 if !node.input.is_empty() => node.input[input] = name,
                2 if !node.input.is_empty() => node.input[input] = format!("{name}:1"),
                3 => node.input.push(name),
                4 => node.input.insert(0, name),
                5 => node.attr = attrs,
                _ => {
                    let key = node.attr.keys().nth(random.below(node.attr.len())).cloned();
                    node.attr.remove(&key.unwrap_or_default());
                }
            }
        }
        use_it(&def);
    }
}

#[test]
fn bytes_that_were_flipped() {
    let graphs: Vec<Vec<u8>> = graphs().iter().map(Message::encode_to_vec).collect();
    let mut random = Random(11);
    for round in 0..1500 {
        let mut bytes = graphs[round % graphs.len()].clone();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len());
            bytes[at] = random.below(256) as u8;
        }
        if let Ok(def) = GraphDef::decode(bytes.as_slice()) {
            use_it(&def);
        }
    }
}

#[test]
fn long_chains_and_many_branches() {
    let node = |name: String, op: &str, input: Vec<String>| frazil_tf::proto::NodeDef {
        name,
        op: op.to_owned(),
        input,
        ..Default::default()
    };
    // Identities one after the other, and predicates that read each other twice.
    let mut def = GraphDef::default();
    def.node.push(node("i0".into(), "VarHandleOp", vec![]));
    def.node.push(node("a0".into(), "Mystery", vec![]));
    for i in 1..20_000 {
        let before = i - 1;
        def.node.push(node(format!("i{i}"), "Identity", vec![format!("i{before}")]));
        let twice = vec![format!("a{before}"), format!("a{before}")];
        def.node.push(node(format!("a{i}"), "LogicalAnd", twice));
        def.node.push(node(format!("s{i}"), "Switch", vec![format!("i{i}"), format!("a{i}")]));
    }
    let started = std::time::Instant::now();
    use_it(&def);
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
}
