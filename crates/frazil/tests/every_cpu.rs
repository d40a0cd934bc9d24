//! The goldens of TensorFlow 1.15 by the engine, one test for each instruction set: small enough
//! for an emulated CPU, which `cargo xtask emulate` runs them on where this machine lacks one.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use frazil::bert::Head;
use frazil::graph::Graph;
use frazil::kernels::Isa;
use frazil::ops::cut_spec::{CutSpec, CutTexts};
use frazil::ops::minmax;
use frazil::runtime::{Engine, EngineOptions, Inputs};
use frazil::source::{GraphOptions, open_graph};
use frazil::tensor::TensorStore;
use frazil::tensor::npy::Npz;
use frazil::tensor::testing::shared;

#[test]
fn goldens_on_scalar() {
    goldens(Isa::Scalar);
}

#[test]
fn goldens_on_avx2() {
    goldens(Isa::Avx2);
}

#[test]
fn goldens_on_avx512() {
    goldens(Isa::Avx512);
}

#[test]
fn goldens_on_avx512vnni() {
    goldens(Isa::Avx512Vnni);
}

#[allow(clippy::print_stderr, reason = "a skipped test must be heard")]
fn goldens(isa: Isa) {
    if !isa.is_available() {
        eprintln!("SKIPPED: no {isa} here; `cargo xtask emulate` runs it");
        return;
    }
    let cases = [
        (Head::Classifier, "classifier_out.npz", "loss/BiasAdd", ["logits", ""]),
        (Head::Squad, "squad_out.npz", "unstack:0,unstack:1", ["start_logits", "end_logits"]),
    ];
    for (head, file, outputs, names) in cases {
        let Some(mut graph) = model(head, outputs) else { return };
        let Some(folder) = shared("fixtures/numerics") else { return };
        let golden = Npz::open(folder.join(file)).unwrap();
        let names = names.into_iter().filter(|name| !name.is_empty());
        let golden: Vec<Vec<f64>> =
            names.map(|name| golden.tensor(name).unwrap().to_f64().unwrap()).collect();
        let inputs = Npz::open(folder.join("inputs.npz")).unwrap();
        let inputs: Inputs = ["input_ids", "input_mask", "segment_ids"]
            .map(|name| (name.to_owned(), inputs.tensor(name).unwrap()))
            .into();
        let mask = inputs["input_mask"].to_f64().unwrap();
        let options =
            |packed| EngineOptions { isa: Some(isa), threads: Some(1), packed, weights: None };
        for packed in [false, true] {
            let engine = Engine::new(&graph, &options(packed)).unwrap();
            assert_eq!(engine.slow(), []);
            compare(&engine, &inputs, &mask, &golden, 2e-5);
        }
        // Calibrated on the very inputs, bytes stay near.
        minmax::by_batches(&mut graph, std::slice::from_ref(&inputs)).unwrap();
        let engine = Engine::new(&graph, &options(true)).unwrap();
        assert_eq!((engine.slow(), engine.is_int8()), (&[][..], true));
        compare(&engine, &inputs, &mask, &golden, 0.25);
    }
}

fn model(head: Head, outputs: &str) -> Option<Graph> {
    let path = shared("fixtures/numerics/model.ckpt.index")?;
    let config = shared("fixtures/data/bert_config_small.json")?;
    let cut = CutSpec::parse(&CutTexts { output: Some(outputs), ..CutTexts::default() }).unwrap();
    let options =
        GraphOptions { cut, config: Some(config), head: Some(head), ..GraphOptions::default() };
    Some(open_graph(path.with_extension(""), &options).unwrap().graph)
}

/// Every output where there is no padding.
fn compare(engine: &Engine, inputs: &Inputs, mask: &[f64], golden: &[Vec<f64>], tolerance: f64) {
    let outputs = engine.run(inputs).unwrap().outputs;
    assert_eq!(outputs.len(), golden.len());
    for ((name, found), wanted) in outputs.iter().zip(golden) {
        let found = found.to_f64().unwrap();
        assert_eq!(found.len(), wanted.len());
        let by_position = wanted.len() == mask.len();
        for (at, (found, wanted)) in found.iter().zip(wanted).enumerate() {
            let counts = !by_position || mask[at] != 0.0;
            // Written so that not-a-number counts.
            let near = (found - wanted).abs() <= tolerance;
            assert!(near || !counts, "{}: `{name}` {at}: {found} for {wanted}", engine.isa());
        }
    }
}
