//! Every case, written at several opsets and read back, computes what it computed.
//!
//! With `FRAZIL_KEEP_ONNX=FOLDER` the models stay there, each beside a `.npz` with its inputs
//! (`in:NAME`) and outputs (`out:NAME`), for another engine to run.

use std::path::PathBuf;

use frazil_convert::onnx::{ExportOptions, export, import};
use frazil_graph::{Graph, infer};
use frazil_runtime::{Options, Session};
use frazil_tensor::Tensor;
use frazil_tensor::npy::NpzWriter;

use crate::cases;
use crate::sketch::Sketch;

/// On values of size 10; what ONNX has no operation for is put together from others.
const TOLERANCE: f64 = 1e-5;

fn run(graph: &Graph, s: &Sketch) -> Vec<(String, Tensor)> {
    let session = Session::new(graph, Options::default()).unwrap();
    session.run(&s.feeds).unwrap().outputs
}

fn compare(case: &str, expected: &[(String, Tensor)], found: &[(String, Tensor)]) {
    assert_eq!(expected.len(), found.len(), "{case}");
    for ((name, a), (other, b)) in expected.iter().zip(found) {
        assert_eq!(name, other, "{case}");
        assert_eq!((a.dtype(), a.shape()), (b.dtype(), b.shape()), "{case}: {name}");
        let (x, y) = (a.to_f64().unwrap(), b.to_f64().unwrap());
        let worst = x.iter().zip(&y).map(|(x, y)| (x - y).abs() / x.abs().max(1.0));
        let worst = worst.fold(0.0, f64::max);
        assert!(worst <= TOLERANCE, "{case}: {name} differs by {worst:e}\n{x:?}\n{y:?}");
    }
}

#[test]
fn graphs_compute_the_same_after_the_journey() {
    let kept = std::env::var_os("FRAZIL_KEEP_ONNX").map(PathBuf::from);
    let scratch = tempfile::tempdir().unwrap();
    let folder = kept.as_deref().unwrap_or(scratch.path());
    for (case, s) in cases::all() {
        s.graph.check().unwrap();
        let expected = run(&s.graph, &s);
        if kept.is_some() {
            let mut npz = NpzWriter::create(folder.join(format!("{case}.npz"))).unwrap();
            for (name, tensor) in &s.feeds {
                npz.add(&format!("in:{name}"), tensor).unwrap();
            }
            for (name, tensor) in &expected {
                npz.add(&format!("out:{name}"), tensor).unwrap();
            }
            npz.finish().unwrap();
        }
        for opset in [13, 17, 18, 20, 21] {
            let path = folder.join(format!("{case}-{opset}.onnx"));
            let options = ExportOptions { opset, ..Default::default() };
            export(&s.graph, &options, &path).unwrap_or_else(|e| panic!("{case} {opset}: {e}"));
            let back = import(&path).unwrap_or_else(|e| panic!("{case} {opset}: {e}"));
            let ends = |graph: &Graph| -> Vec<String> {
                let facts = infer(graph).unwrap();
                let ports = graph.inputs.iter().chain(&graph.outputs);
                ports
                    .map(|port| format!("{}: {}", port.name, facts[port.value].dtype.unwrap()))
                    .collect()
            };
            assert_eq!(ends(&s.graph), ends(&back), "{case} {opset}");
            compare(&format!("{case} at {opset}"), &expected, &run(&back, &s));
        }
    }
}

/// What has a counterpart comes back as itself, under its name.
#[test]
fn operations_come_back_as_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let mut same = 0;
    for (case, s) in cases::all() {
        let options = ExportOptions { opset: 20, ..Default::default() };
        export(&s.graph, &options, &path).unwrap();
        let back = import(&path).unwrap();
        let kept = ["unary", "binary", "products", "reductions", "axes", "fused"].contains(&case);
        for (_, node) in s.graph.nodes().filter(|_| kept) {
            let Some(id) = back.find(&node.name) else { continue };
            same += usize::from(back.node(id).op == node.op);
        }
    }
    assert!(same >= 60, "{same}");
}

/// After the second time, a model that is written and read does not change any more.
#[test]
fn the_third_journey_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let travelled = |graph: &Graph| {
        let path = folder.path().join("m.onnx");
        let options = ExportOptions { opset: 20, ..Default::default() };
        export(graph, &options, &path).unwrap();
        import(&path).unwrap()
    };
    // The rest of a division, and bounds that are computed, are put together anew each time, from
    // what they were put together of.
    let changing = ["binary", "computed_windows"];
    for (case, s) in cases::all().into_iter().filter(|(case, _)| !changing.contains(case)) {
        let twice = travelled(&travelled(&s.graph));
        let thrice = travelled(&twice);
        let plain = |graph: &Graph| -> Vec<String> {
            graph.nodes().map(|(_, node)| node.op.to_string()).filter(|op| op != "Const").collect()
        };
        assert_eq!(plain(&twice), plain(&thrice), "{case}");
    }
}
