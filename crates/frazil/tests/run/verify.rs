//! `frazil verify`: models that are the same thing, and models that are not.

use std::path::PathBuf;

use frazil::bert::Head;
use frazil::graph::Op;
use frazil::ops::run::{self, run};
use frazil::ops::verify::{self, Options, compare};
use frazil::source::GraphOptions;
use frazil::tensor::npy::{Npz, NpzWriter};
use frazil::tensor::testing::shared;
use frazil::tensor::{Tensor, TensorStore};
use frazil::tf::graph_def;

use super::opened;

fn of_checkpoint() -> Option<GraphOptions> {
    Some(GraphOptions {
        config: Some(shared("fixtures/data/bert_config_small.json")?),
        head: Some(Head::Classifier),
        ..GraphOptions::default()
    })
}

fn silent() -> impl FnMut(u64, u64) {
    |_, _| {}
}

#[test]
fn a_frozen_graph_and_its_checkpoint_are_equal() {
    let (Some(folder), Some(b)) = (shared("fixtures/classifier"), of_checkpoint()) else { return };
    let options = Options { b, samples: 3, tolerance: 2e-5, ..Options::default() };
    let frozen = folder.join("frozen_from_saved_model.pb");
    let checkpoint = folder.join("model.ckpt-27");
    let report = verify::verify(&frozen, &checkpoint, &options, &mut silent()).unwrap();
    assert!(report.equal, "{report:#?}");
    assert!(report.parted.is_none(), "{report:#?}");
    // The export's inputs have numbers; frazil sees what they are for.
    let pairs: Vec<(&str, &str)> =
        report.inputs.iter().map(|pair| (pair.a.as_str(), pair.b.as_str())).collect();
    let expected = [
        ("input_ids_1", "input_ids"),
        ("input_mask_1", "input_mask"),
        ("segment_ids_1", "segment_ids"),
    ];
    assert_eq!(pairs, expected);
    assert_eq!(report.samples, 3);
    assert!(report.nodes > 150, "{} nodes", report.nodes);
    assert!(report.outputs[0].cosine.unwrap() > 1.0 - 1e-9);
    // The same on the test set, which has other arrays, too.
    let inputs = Some(folder.join("test_set_io.npz"));
    let options = Options { inputs, ..options };
    let report = verify::verify(&frozen, &checkpoint, &options, &mut silent()).unwrap();
    assert!(report.equal, "{report:#?}");
    assert_eq!(report.samples, 17);
}

#[test]
fn the_first_node_that_differs_is_named() {
    let (Some(folder), Some(how)) = (shared("fixtures/classifier"), of_checkpoint()) else {
        return;
    };
    let a = opened(&folder.join("model.ckpt-27"), None, None, how);
    let mut b = a.clone();
    let name = "bert/encoder/layer_1/intermediate/dense/bias";
    let id = b.find(name).unwrap();
    let Op::Const(weight) = &b.node(id).op else { panic!("{name} is no constant") };
    let mut values = weight.value.values::<f32>().unwrap().into_owned();
    values[3] += 0.5;
    b.node_mut(id).op = Op::constant(Tensor::from_vec([values.len()], values).unwrap());
    let report = compare([&a, &b], &Options::default(), &mut silent()).unwrap();
    assert!(!report.equal);
    let parted = report.parted.unwrap();
    assert_eq!(parted.node, name);
    assert!((parted.max_abs - 0.5).abs() < 1e-6);
    let loose = Options { tolerance: 10.0, ..Options::default() };
    let report = compare([&a, &b], &loose, &mut silent()).unwrap();
    assert!(report.equal && report.parted.is_none());
}

#[test]
fn run_writes_what_it_computed() {
    let Some(folder) = shared("fixtures/classifier") else { return };
    let inputs = folder.join("test_set_io.npz");
    let scratch = tempfile::tempdir().unwrap();
    let outputs: PathBuf = scratch.path().join("out.npz");
    let model = folder.join("frozen_from_saved_model.pb");
    let (report, _) = run(&model, &inputs, Some(&outputs), &run::Options::default()).unwrap();
    assert_eq!(report.runs, 17); // the graph is made for one at a time
    let written = Npz::open(&outputs).unwrap().tensor("loss/output").unwrap();
    let golden = Npz::open(&inputs).unwrap().tensor("probabilities_frozen").unwrap();
    assert_eq!(written.shape(), golden.shape());
    let (written, golden) = (written.to_f64().unwrap(), golden.to_f64().unwrap());
    assert!(written.iter().zip(&golden).all(|(w, g)| (w - g).abs() <= super::TOLERANCE));
}

/// What users get wrong, and what they are told.
#[test]
fn mistakes_are_named() {
    let Some(folder) = shared("fixtures/classifier") else { return };
    let scratch = tempfile::tempdir().unwrap();
    let io = Npz::open(folder.join("test_set_io.npz")).unwrap();
    let failure = |model: PathBuf, arrays: &[(&str, Tensor)]| {
        let inputs = scratch.path().join("in.npz");
        let mut file = NpzWriter::create(&inputs).unwrap();
        for (name, tensor) in arrays {
            file.add(name, tensor).unwrap();
        }
        file.finish().unwrap();
        let outputs = scratch.path().join("out.npz");
        let error = run(&model, &inputs, Some(&outputs), &run::Options::default()).unwrap_err();
        assert!(!outputs.exists());
        (error.to_string(), error.hint().unwrap_or_default())
    };
    let frozen = || folder.join("frozen_from_saved_model.pb");
    let array = |name: &str| super::window(&io.tensor(name).unwrap(), 0, 1);
    let (ids, mask, segments) = (array("input_ids"), array("input_mask"), array("segment_ids"));
    let mut wrong = ids.values::<i32>().unwrap().into_owned();
    wrong[5] = 838;
    let wrong = Tensor::from_vec([1, 128], wrong).unwrap();
    let given =
        [("input_ids", wrong), ("input_mask", mask.clone()), ("segment_ids", segments.clone())];
    let (error, hint) = failure(frozen(), &given);
    assert!(error.contains("id 838 (element 5 of `input_ids_1`) is not in 0..838"), "{error}");
    assert!(hint.contains("vocabulary"), "{hint}");
    let given = [("input_ids", ids), ("segment_ids", segments), ("input_maks", mask)];
    let (error, hint) = failure(frozen(), &given);
    assert_eq!(error, "input `input_mask_1` (int32 [1, 128]) is not given");
    assert!(hint.contains("`input_maks`"), "{hint}");
    let Some(int8) = shared("fixtures/squad/lpot/bert_int8_lpot1.3.pb") else { return };
    // Quantized in a way that frazil does not know.
    let mut graph = graph_def::read(int8).unwrap();
    for node in graph.node.iter_mut().filter(|node| node.op == "QuantizeV2") {
        node.attr.remove("mode");
    }
    let odd = scratch.path().join("odd.pb");
    graph_def::write(&odd, &graph).unwrap();
    let (error, hint) = failure(odd, &given);
    assert!(error.contains("`unstack:0`") && error.contains("(QuantizeV2)"), "{error}");
    assert!(hint.contains("--output"), "{hint}");
}
