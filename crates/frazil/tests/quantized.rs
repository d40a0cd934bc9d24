//! Graphs that say what is in bytes, by the engine: what is watched to choose scales, and what
//! comes out.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeMap;

use frazil::bert::Head;
use frazil::graph::op::Steps;
use frazil::graph::pass::quantize::{
    AttentionGrid, Grids, LinearGrid, SiteKind, channel_scales, quantize, sites, watch,
};
use frazil::graph::pass::{NewInput, cut};
use frazil::graph::{Dim, Graph, Op, Port};
use frazil::kernels::Isa;
use frazil::kernels::quantize::range;
use frazil::ops::bench::random_model;
use frazil::ops::cut_spec::{CutSpec, CutTexts};
use frazil::runtime::{Engine, EngineOptions, Inputs, Options, Session};
use frazil::source::{GraphOptions, open_graph};
use frazil::tensor::npy::Npz;
use frazil::tensor::testing::shared;
use frazil::tensor::{Tensor, TensorStore};

/// Two layers with heads of 24 columns: no multiple of a vector.
fn model(head: Head) -> Graph {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("bert_config.json");
    let text = r#"{"vocab_size": 97, "hidden_size": 72, "num_hidden_layers": 2,
        "num_attention_heads": 3, "intermediate_size": 200, "hidden_act": "gelu",
        "max_position_embeddings": 40, "type_vocab_size": 2}"#;
    std::fs::write(&config, text).unwrap();
    random_model(config.to_str().unwrap(), head).unwrap()
}

/// Sequences of these lengths, padded to the longest.
fn batch(lengths: &[usize]) -> Inputs {
    let longest = lengths.iter().copied().max().unwrap();
    let tensor = |value: &dyn Fn(usize, usize) -> usize| {
        let row = |(row, &length): (usize, &usize)| -> Vec<i32> {
            let real = |i: usize| if i < length { value(row, i) as i32 } else { 0 };
            (0..longest).map(real).collect()
        };
        let values: Vec<i32> = lengths.iter().enumerate().flat_map(row).collect();
        Tensor::from_vec([lengths.len(), longest], values).unwrap()
    };
    Inputs::from([
        ("input_ids".into(), tensor(&|row, i| (row * 31 + i * 17 + i * i) % 97)),
        ("input_mask".into(), tensor(&|_, _| 1)),
        ("segment_ids".into(), tensor(&|row, i| usize::from(i > lengths[row] / 2))),
    ])
}

/// What the engine of a marked graph shows, by site and place.
fn seen(engine: &Engine, inputs: &Inputs) -> BTreeMap<(String, usize), (usize, Vec<f32>)> {
    let mut seen = BTreeMap::new();
    engine
        .watch(inputs, &mut |at| {
            let before = seen.insert((at.site.to_owned(), at.place), (at.width, at.rows.to_vec()));
            assert!(before.is_none(), "{} {} is seen once", at.site, at.place);
        })
        .unwrap();
    seen
}

#[test]
fn what_sites_read_is_seen() {
    for head in [Head::Squad, Head::Classifier] {
        let graph = model(head);
        // The same values by the reference: as outputs of the graph.
        let mut wanted = graph.clone();
        wanted.outputs.clear();
        let mut places = Vec::new();
        for site in sites(&graph).unwrap() {
            for (place, &value) in site.observe.iter().enumerate() {
                let name = format!("{}:{place}", site.name);
                wanted.outputs.push(Port { name, value });
                places.push((site.name.clone(), place));
            }
        }
        let mut marked = graph.clone();
        watch(&mut marked).unwrap();
        let (plain, steps) = (engine(&graph, true), |engine: &Engine| {
            let steps = engine.profile(&batch(&[3])).unwrap();
            steps.into_iter().map(|step| step.kind).filter(|kind| kind != "watch").collect()
        });
        let engine = engine(&marked, true);
        assert_eq!(engine.slow(), []);
        let (found, without): (Vec<String>, Vec<String>) = (steps(&engine), steps(&plain));
        assert_eq!(found, without, "marks change nothing");
        let inputs = batch(&[17, 17]);
        assert_eq!(
            engine.run(&inputs).unwrap().outputs,
            plain.run(&inputs).unwrap().outputs,
            "marks change nothing"
        );
        let wanted = Session::new(&wanted, Options::default()).unwrap().run(&inputs).unwrap();
        let found = seen(&engine, &inputs);
        assert_eq!(found.len(), places.len());
        for (place, (name, wanted)) in places.iter().zip(&wanted.outputs) {
            let (width, rows) = &found[place];
            assert_eq!(Some(width), wanted.shape().last(), "{name}");
            let wanted = wanted.values::<f32>().unwrap();
            // Of the last layer of a classifier only the first row of each sequence is computed.
            let first = rows.len() != wanted.len();
            assert!(!first || rows.len() == 2 * width && head == Head::Classifier, "{name}");
            let step = if first { 17 } else { 1 };
            let rows_of = wanted.chunks(*width).step_by(step);
            for (row, (wanted, found)) in rows_of.zip(rows.chunks(*width)).enumerate() {
                let apart = wanted.iter().zip(found).map(|(a, b)| (a - b).abs());
                assert!(apart.fold(0.0, f32::max) <= 5e-6, "{name}, row {row}");
            }
        }
        // No padding.
        let is_linear = |kind: &SiteKind| matches!(kind, SiteKind::Linear { head: false, .. });
        let sites = sites(&graph).unwrap();
        let first = sites.iter().find(|site| is_linear(&site.kind)).unwrap();
        let (width, rows) = &seen(&engine, &batch(&[20, 3, 9]))[&(first.name.clone(), 0)];
        assert_eq!(rows.len(), 32 * width);
    }
}

fn engine(graph: &Graph, packed: bool) -> Engine {
    let options = EngineOptions { threads: Some(2), packed, ..EngineOptions::default() };
    Engine::new(graph, &options).unwrap()
}

/// What is in bytes, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// Rows by their range, weights by column.
    Static,
    /// Rows each by its own range, weights with one scale.
    Dynamic,
    /// Static, columns multiplied and biases corrected.
    Moved,
    /// Every third product only.
    Some,
    /// Static, with attentions and tables.
    All,
}

const HOW: [How; 5] = [How::Static, How::Dynamic, How::Moved, How::Some, How::All];

/// The same graph in bytes, by what its sites read of these inputs; and how many products are.
fn in_bytes(graph: &Graph, inputs: &Inputs, how: How) -> (Graph, usize) {
    let mut marked = graph.clone();
    watch(&mut marked).unwrap();
    let seen = seen(&engine(&marked, true), inputs);
    let ends = |site: &str, place: usize| {
        let (_, rows) = &seen[&(site.to_owned(), place)];
        let low = rows.iter().copied().fold(0.0, f32::min);
        (low, rows.iter().copied().fold(0.0, f32::max))
    };
    let largest = |site: &str, place: usize| {
        let (low, high) = ends(site, place);
        high.max(-low) / 127.0
    };
    let mut grids = Grids::default();
    for (i, site) in sites(graph).unwrap().into_iter().enumerate() {
        let name = &site.name;
        match &site.kind {
            SiteKind::Linear { weight, k, n, transposed, head: false, .. } => {
                if how == How::Some && i % 3 > 0 {
                    continue;
                }
                let weight = graph.op(*weight).as_const().unwrap();
                let mut scales = channel_scales(weight, *transposed, 127).unwrap();
                let (low, high) = ends(name, 0);
                let (mut scale, zero) = range(low, high, u8::MAX);
                let mut columns = None;
                if how == How::Moved {
                    // Half and once in turn: bytes are then up to twice as coarse, which is no
                    // matter here.
                    columns = Some((0..*k).map(|i| if i % 2 == 0 { 0.5 } else { 1.0 }).collect());
                    scales.iter_mut().for_each(|scale| *scale *= 2.0);
                }
                if how == How::Dynamic {
                    scales = vec![scales.iter().copied().fold(0.0, f32::max)];
                    scale = 0.0;
                }
                let input = match how {
                    How::Dynamic => Steps::Rows,
                    _ => Steps::Tensor { scale, zero },
                };
                let correction = (how == How::Moved).then(|| vec![0.01; *n]);
                let grid = LinearGrid { input, columns, scales, correction };
                grids.linears.insert(name.clone(), grid);
            }
            SiteKind::Attention { .. } if how == How::All => {
                let (low, high) = ends(name, 0);
                let (k, v) = (largest(name, 1), largest(name, 2));
                let q = range(low, high, u8::MAX);
                grids.attentions.insert(name.clone(), AttentionGrid { q, k, v });
            }
            SiteKind::Table { .. } if how == How::All => {
                grids.tables.insert(name.clone());
            }
            _ => {}
        }
    }
    let mut bytes = graph.clone();
    quantize(&mut bytes, &grids).unwrap();
    (bytes, grids.linears.len())
}

/// The largest difference at positions that are no padding.
fn difference(engine: &Engine, inputs: &Inputs, wanted: &[(String, Tensor)]) -> f32 {
    let found = engine.run(inputs).unwrap().outputs;
    let mask = inputs["input_mask"].values::<i32>().unwrap();
    let mut worst = 0f32;
    for ((_, found), (name, wanted)) in found.iter().zip(wanted) {
        let (found, wanted) = (found.values::<f32>().unwrap(), wanted.values::<f32>().unwrap());
        assert_eq!(found.len(), wanted.len());
        let counts = |at: usize| wanted.len() != mask.len() || mask[at] == 1;
        for (at, (found, wanted)) in found.iter().zip(wanted.iter()).enumerate() {
            assert!(found.is_finite(), "{name} {at}");
            worst = if counts(at) { worst.max((found - wanted).abs()) } else { worst };
        }
    }
    worst
}

/// Products of bytes are exact, so only what float32 rounds differs from the reference.
const ROUNDING: f32 = 5e-6;

/// Where a number lies so close between two steps that rounding takes it to the other one, the rest of
/// the model is moved along: by this much if a few are, of logits up to 10. That products are the
/// same but for rounding is tested one by one.
const OTHER_STEPS: f32 = 0.05;

#[test]
fn bytes_as_the_reference_computes_them() {
    let inputs = batch(&[20, 3, 9]);
    for head in [Head::Squad, Head::Classifier] {
        let graph = model(head);
        for how in HOW {
            let (bytes, products) = in_bytes(&graph, &inputs, how);
            let session = Session::new(&bytes, Options::default()).unwrap();
            let wanted = session.run(&inputs).unwrap().outputs;
            for (isa, packed) in Isa::available().flat_map(|isa| [(isa, true), (isa, false)]) {
                let options = EngineOptions { isa: Some(isa), packed, ..Default::default() };
                let engine = Engine::new(&bytes, &options).unwrap();
                assert_eq!(engine.slow(), []);
                let steps = engine.profile(&inputs).unwrap();
                let plain = steps.iter().find(|step| step.kind.starts_with("plain"));
                assert!(plain.is_none() || !packed, "{how:?}: {plain:?}");
                let linear =
                    |start: &str| steps.iter().filter(|step| step.kind.starts_with(start)).count();
                let in_bytes = linear("int8 linear");
                if how == How::Static && packed && head == Head::Squad {
                    // Query, key and value as one.
                    assert_eq!((in_bytes, linear("linear")), (products - 2 * 2, 1));
                    assert_eq!(linear("quantize"), 0, "whoever computes rows writes the bytes");
                }
                if how == How::All {
                    assert_eq!((linear("int8 attention"), linear("attention")), (2, 0));
                    // A classifier's last queries have ranges of their own, those of first rows; and
                    // where padding is computed, a plain step cuts out what the pooler reads.
                    let alone = match (head, packed) {
                        (Head::Classifier, true) => 1,
                        (Head::Classifier, false) => 2,
                        _ => 0,
                    };
                    assert_eq!(linear("quantize"), alone, "attentions do that by themselves");
                }
                if how == How::Dynamic && packed && head == Head::Squad {
                    // Those of attentions: norms and products of bytes do that by themselves.
                    assert_eq!(linear("quantize"), 2);
                }
                assert!(in_bytes > 0);
                let worst = difference(&engine, &inputs, &wanted);
                assert!(worst <= ROUNDING, "{head:?} {how:?} {isa}, packed: {packed}: {worst}");
            }
        }
    }
}

/// Rows that find their own range wait for it block by block, as many as there are threads for: the
/// numbers are the same.
#[test]
fn many_rows_with_ranges_of_their_own() {
    let graph = model(Head::Squad);
    let (bytes, _) = in_bytes(&graph, &batch(&[20, 3]), How::Dynamic);
    let inputs = batch(&[20; 83]);
    let [three, one] = [1, 8].map(|threads| {
        let options = EngineOptions { threads: Some(threads), ..Default::default() };
        Engine::new(&bytes, &options).unwrap()
    });
    let wanted = one.run(&inputs).unwrap().outputs;
    assert_eq!(difference(&three, &inputs, &wanted), 0.0);
}

/// Where padding is computed, a mask may have other numbers: then the formula is computed as it stands.
#[test]
fn a_mask_of_other_numbers_in_bytes() {
    let graph = model(Head::Squad);
    let mut inputs = batch(&[20, 3]);
    let (bytes, _) = in_bytes(&graph, &inputs, How::All);
    let mut mask = inputs["input_mask"].values::<i32>().unwrap().into_owned();
    mask[7] = 2;
    inputs.insert("input_mask".into(), Tensor::from_vec([2, 20], mask).unwrap());
    let wanted = Session::new(&bytes, Options::default()).unwrap().run(&inputs).unwrap();
    let worst = difference(&engine(&bytes, false), &inputs, &wanted.outputs);
    assert!(worst <= ROUNDING, "{worst}");
}

/// A model that TensorFlow trained, and inputs of its fixtures.
fn trained(head: Head) -> Option<(Graph, Inputs)> {
    let path = shared("fixtures/numerics/model.ckpt.index")?.with_extension("");
    let config = Some(shared("fixtures/data/bert_config_small.json")?);
    let output = match head {
        Head::Squad => "unstack:0,unstack:1",
        _ => "loss/BiasAdd",
    };
    let cut = CutSpec::parse(&CutTexts { output: Some(output), ..CutTexts::default() }).unwrap();
    let options = GraphOptions { cut, config, head: Some(head), ..GraphOptions::default() };
    let inputs = Npz::open(shared("fixtures/numerics")?.join("inputs.npz")).unwrap();
    let inputs = ["input_ids", "input_mask", "segment_ids"]
        .map(|name| (name.to_owned(), inputs.tensor(name).unwrap()));
    Some((open_graph(path, &options).unwrap().graph, inputs.into()))
}

/// Each product by itself, on what it reads in the reference's run: then both have the same bytes.
#[test]
fn every_product_of_a_trained_model() {
    let Some((graph, inputs)) = trained(Head::Squad) else { return };
    for how in [How::Static, How::Dynamic, How::Moved] {
        let (bytes, products) = in_bytes(&graph, &inputs, how);
        // What products read, before it is multiplied and put on steps.
        let mut reading = bytes.clone();
        reading.outputs.clear();
        let mut checked = 0;
        let mut names = Vec::new();
        for site in sites(&graph).unwrap() {
            let node = bytes.node(bytes.find(&site.name).unwrap());
            let steps = bytes.node(node.inputs[0].node);
            if !matches!(steps.op, Op::FakeQuantize(_)) {
                continue;
            }
            let behind = bytes.node(steps.inputs[0].node);
            let times = matches!(behind.op, Op::Binary(_)) && how == How::Moved;
            let value = if times { behind.inputs[0] } else { steps.inputs[0] };
            reading.outputs.push(Port { name: site.name.clone(), value });
            names.push((site.name, bytes.value_name(value)));
        }
        let session = Session::new(&reading, Options::default()).unwrap();
        let read = session.run(&inputs).unwrap().outputs;
        for ((product, from), (_, rows)) in names.into_iter().zip(read) {
            let mut alone = bytes.clone();
            let output = alone.find_value(&product).unwrap();
            let dtype = Some(rows.dtype());
            let k = rows.shape()[1] as i64;
            let dims = Some(vec![Dim::batch(), Dim::known(k)]);
            let value = alone.find_value(&from).unwrap();
            let input = NewInput { value, name: "x".into(), dtype, dims };
            let port = Port { name: "y".into(), value: output };
            cut(&mut alone, &[input], &[port]).unwrap();
            let fed = Inputs::from([("x".to_owned(), rows)]);
            let of =
                |outputs: Vec<(String, Tensor)>| outputs[0].1.values::<f32>().unwrap().into_owned();
            let session = Session::new(&alone, Options::default()).unwrap();
            let wanted = of(session.run(&fed).unwrap().outputs);
            let largest = wanted.iter().fold(0f32, |most, x| most.max(x.abs()));
            for isa in Isa::available() {
                let options = EngineOptions { isa: Some(isa), ..EngineOptions::default() };
                let engine = Engine::new(&alone, &options).unwrap();
                assert!(engine.is_int8() && engine.slow().is_empty());
                let found = of(engine.run(&fed).unwrap().outputs);
                let worst = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs());
                let worst = worst.fold(0.0, f32::max);
                assert!(worst <= 1e-5 * largest, "{product} {how:?} {isa}: {worst} of {largest}");
            }
            checked += 1;
        }
        assert_eq!(checked, products);
    }
}

#[test]
fn trained_models_in_bytes() {
    for head in [Head::Squad, Head::Classifier] {
        let Some((graph, inputs)) = trained(head) else { return };
        let plain = Session::new(&graph, Options::default()).unwrap().run(&inputs).unwrap();
        for how in HOW {
            let (bytes, _) = in_bytes(&graph, &inputs, how);
            let session = Session::new(&bytes, Options::default()).unwrap();
            let wanted = session.run(&inputs).unwrap().outputs;
            for (isa, packed) in Isa::available().flat_map(|isa| [(isa, true), (isa, false)]) {
                let options = EngineOptions { isa: Some(isa), packed, ..Default::default() };
                let engine = Engine::new(&bytes, &options).unwrap();
                let worst = difference(&engine, &inputs, &wanted);
                assert!(worst <= OTHER_STEPS, "{head:?} {how:?} {isa}, packed: {packed}: {worst}");
                // And not far from what the model says without bytes.
                let from_plain = difference(&engine, &inputs, &plain.outputs);
                assert!(from_plain <= 0.3, "{head:?} {how:?}: {from_plain}");
            }
        }
    }
}
