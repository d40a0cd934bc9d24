//! Graphs that say what is in bytes, by the engine: what is watched to choose scales, and what
//! comes out.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeMap;

use frazil::bert::Head;
use frazil::graph::pass::quantize::{SiteKind, sites, watch};
use frazil::graph::{Graph, Port};
use frazil::ops::bench::random_model;
use frazil::runtime::{Engine, EngineOptions, Inputs, Options, Session};
use frazil::tensor::Tensor;

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
