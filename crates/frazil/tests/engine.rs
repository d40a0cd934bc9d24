//! The engine beyond the goldens: mixed lengths, concurrent callers, half a model, bad batches.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::io::Write;

use frazil::bert::Head;
use frazil::graph::Graph;
use frazil::kernels::Isa;
use frazil::ops::bench::random_model;
use frazil::runtime::{Engine, EngineOptions, Inputs, Options, Session};
use frazil::tensor::Tensor;

const VOCABULARY: i32 = 97;
const POSITIONS: usize = 40;

/// Three layers with heads of 24 columns: no multiple of a vector.
fn model(head: Head) -> Graph {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(
        file,
        r#"{{"vocab_size": {VOCABULARY}, "hidden_size": 72, "num_hidden_layers": 3,
            "num_attention_heads": 3, "intermediate_size": 200, "hidden_act": "gelu",
            "max_position_embeddings": {POSITIONS}, "type_vocab_size": 2}}"#
    )
    .unwrap();
    random_model(file.path().to_str().unwrap(), head).unwrap()
}

fn engine(graph: &Graph, isa: Isa, packed: bool) -> Engine {
    Engine::new(
        graph,
        &EngineOptions { isa: Some(isa), threads: Some(2), packed, ..Default::default() },
    )
    .unwrap()
}

/// A sequence of that length, always the same one for a seed.
fn sequence(seed: usize, length: usize) -> Vec<i32> {
    (0..length).map(|i| ((seed * 31 + i * 17 + i * i) % VOCABULARY as usize) as i32).collect()
}

/// Sequences as a padded batch.
fn batch(sequences: &[Vec<i32>]) -> Inputs {
    let longest = sequences.iter().map(Vec::len).max().unwrap_or(0);
    let shape = [sequences.len(), longest];
    let padded = |value: &dyn Fn(&[i32], usize) -> i32| {
        let row = |sequence: &Vec<i32>| -> Vec<i32> {
            (0..longest).map(|i| if i < sequence.len() { value(sequence, i) } else { 0 }).collect()
        };
        Tensor::from_vec(shape, sequences.iter().flat_map(row).collect::<Vec<i32>>()).unwrap()
    };
    Inputs::from([
        ("input_ids".into(), padded(&|sequence, i| sequence[i])),
        ("input_mask".into(), padded(&|_, _| 1)),
        ("segment_ids".into(), padded(&|sequence, i| i32::from(i > sequence.len() / 2))),
    ])
}

fn outputs(engine: &Engine, inputs: &Inputs) -> Vec<Vec<f32>> {
    let run = engine.run(inputs).unwrap();
    run.outputs.iter().map(|(_, tensor)| tensor.values::<f32>().unwrap().into_owned()).collect()
}

#[test]
fn company_changes_nothing() {
    let lengths = [1, 7, 40, 16, 2, 33, 17, 15, 31];
    let sequences: Vec<Vec<i32>> =
        lengths.iter().enumerate().map(|(i, &length)| sequence(i, length)).collect();
    for head in [Head::Squad, Head::Classifier] {
        let graph = model(head);
        for isa in Isa::available() {
            let engine = engine(&graph, isa, true);
            let together = outputs(&engine, &batch(&sequences));
            for (i, sequence) in sequences.iter().enumerate() {
                let alone = outputs(&engine, &batch(std::slice::from_ref(sequence)));
                for (together, alone) in together.iter().zip(&alone) {
                    let stride = together.len() / sequences.len();
                    let mine = &together[i * stride..][..alone.len()];
                    // The same kernels on the same numbers: equal to the last bit.
                    assert_eq!(mine, alone, "{isa}, {head:?}, length {}", lengths[i]);
                }
            }
        }
    }
}

#[test]
fn as_the_reference_whatever_the_sizes() {
    let graph = model(Head::Squad);
    let session = Session::new(&graph, Options::default()).unwrap();
    for (b, s) in [(1, 1), (1, 40), (3, 17), (5, 8), (2, 39)] {
        let sequences: Vec<Vec<i32>> = (0..b).map(|i| sequence(i, s - (i * 5) % s)).collect();
        let inputs = batch(&sequences);
        let wanted = session.run(&inputs).unwrap();
        let mask = inputs["input_mask"].values::<i32>().unwrap().into_owned();
        for isa in Isa::available() {
            for packed in [false, true] {
                let found = outputs(&engine(&graph, isa, packed), &inputs);
                for ((name, wanted), found) in wanted.outputs.iter().zip(&found) {
                    let wanted = wanted.values::<f32>().unwrap();
                    assert_eq!(wanted.len(), found.len());
                    for (i, (wanted, found)) in wanted.iter().zip(found).enumerate() {
                        let counts = mask[i] == 1 || !packed;
                        let difference = if counts { (wanted - found).abs() } else { found.abs() };
                        assert!(difference <= 5e-6, "{isa} {b}x{s} {name} {i}: {difference}");
                    }
                }
            }
        }
    }
}

#[test]
fn callers_do_not_disturb_each_other() {
    let engine = engine(&model(Head::Classifier), Isa::detect(), true);
    let batches: Vec<Inputs> =
        (1..9).map(|i| batch(&[sequence(i, 4 * i), sequence(i, 5)])).collect();
    let wanted: Vec<Vec<Vec<f32>>> = batches.iter().map(|batch| outputs(&engine, batch)).collect();
    std::thread::scope(|scope| {
        for caller in 0..4 {
            let (engine, batches, wanted) = (engine.clone(), &batches, &wanted);
            scope.spawn(move || {
                for i in 0..24 {
                    let at = (i * 5 + caller) % batches.len();
                    assert_eq!(outputs(&engine, &batches[at]), wanted[at]);
                }
            });
        }
    });
}

#[test]
fn half_a_model_runs() {
    // Without its attention raised, the rest is still fast, and all of it right.
    let mut graph = model(Head::Encoder);
    let probabilities = graph.find_value("bert/encoder/layer_1/attention/self/Softmax").unwrap();
    let port = frazil::graph::Port { name: "probabilities".into(), value: probabilities };
    graph.outputs.push(port);
    let inputs = batch(&[sequence(1, 20), sequence(2, 20)]);
    let wanted = Session::new(&graph, Options::default()).unwrap().run(&inputs).unwrap();
    let found = outputs(&engine(&graph, Isa::detect(), true), &inputs);
    for ((name, wanted), found) in wanted.outputs.iter().zip(&found) {
        let wanted = wanted.values::<f32>().unwrap();
        let worst = wanted.iter().zip(found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst <= 5e-6, "{name}: {worst}");
    }
}

#[test]
fn bad_batches_are_refused_by_name() {
    for head in [Head::Squad, Head::Classifier] {
        for packed in [true, false] {
            bad_batches(&engine(&model(head), Isa::detect(), packed), packed);
        }
    }
}

fn bad_batches(engine: &Engine, packed: bool) {
    let good = batch(&[sequence(1, 8), sequence(2, 6)]);
    let with = |name: &str, tensor: Tensor| {
        let mut inputs = good.clone();
        inputs.insert(name.into(), tensor);
        engine.run(&inputs).unwrap_err().to_string()
    };
    let ints = |shape: [usize; 2], values: Vec<i32>| Tensor::from_vec(shape, values).unwrap();
    let mut ids = good["input_ids"].values::<i32>().unwrap().into_owned();
    ids[11] = VOCABULARY;
    let error = with("input_ids", ints([2, 8], ids.clone()));
    assert!(error.contains("id 97 (element 11 of `input_ids`) is not in 0..97"), "{error}");
    ids[11] = -1;
    assert!(with("input_ids", ints([2, 8], ids)).contains("id -1"));
    let mut mask = vec![1; 16];
    mask[8..].fill(0);
    // With padding computed, such a mask means what it means in the model: all are attended to.
    if packed {
        let error = with("input_mask", ints([2, 8], mask));
        assert!(error.contains("sequence 1 is empty"), "{error}");
    }
    let error = with("segment_ids", ints([2, 8], vec![2; 16]));
    assert!(error.contains("segment 2 (element 0 of `segment_ids`) is not in 0..2"), "{error}");
    let error = with("segment_ids", ints([2, 7], vec![0; 14]));
    assert!(error.contains("`seq` is 8 in input `input_ids`, but 7"), "{error}");
    let error = with("segment_ids", ints([3, 8], vec![0; 24]));
    assert!(error.contains("`batch` is 2 in input `input_ids`, but 3"), "{error}");
    let error = with("input_mask", Tensor::from_vec([16], vec![1i32; 16]).unwrap());
    assert!(error.contains("input `input_mask`"), "{error}");
    let error = engine.run(&batch(&[sequence(1, 41)])).unwrap_err().to_string();
    assert!(error.contains("a sequence of 41, but the model has 40 positions"), "{error}");
    for (shape, extent) in [([0, 8], "batch"), ([2, 0], "seq")] {
        let names = ["input_ids", "input_mask", "segment_ids"];
        let empty: Inputs = names.map(|name| (name.into(), ints(shape, vec![]))).into();
        let error = engine.run(&empty).unwrap_err().to_string();
        assert!(error.contains("input `input_ids`"), "{error}");
        assert!(error.contains(&format!("`{extent}` is 0, so there is nothing to compute")));
    }
    // And after all that it still works.
    assert!(engine.run(&good).is_ok());
}

#[test]
fn weights_that_are_no_numbers_are_refused() {
    for (name, shape) in [
        ("bert/encoder/layer_2/output/dense/kernel", vec![200, 72]),
        ("bert/encoder/layer_0/attention/self/query/bias", vec![72]),
        ("bert/embeddings/LayerNorm/gamma", vec![72]),
        ("bert/embeddings/word_embeddings", vec![97, 72]),
    ] {
        let mut graph = model(Head::Squad);
        let id = graph.find(name).unwrap();
        let mut values = vec![0.5f32; shape.iter().product()];
        values[7] = f32::NAN;
        let weight = Tensor::from_vec(shape, values).unwrap();
        graph.node_mut(id).op = frazil::graph::Op::constant(weight);
        let options = EngineOptions { threads: Some(1), ..EngineOptions::default() };
        let error = Engine::new(&graph, &options).err().unwrap().to_string();
        assert!(error.contains(name) && error.contains("element 7"), "{error}");
    }
}
