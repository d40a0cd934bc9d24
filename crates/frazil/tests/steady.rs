//! Weights are in memory once; a worker that has seen a batch runs the next ones without an
//! allocation.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

#[path = "hostile/memory.rs"]
mod memory;

use std::io::Write;

use frazil::bert::Head;
use frazil::ops::bench::random_model;
use frazil::ops::minmax;
use frazil::runtime::{Engine, EngineOptions, Inputs};
use frazil::tensor::Tensor;

#[global_allocator]
static COUNTING: memory::Counting = memory::Counting;

fn batch(lengths: &[usize]) -> Inputs {
    let longest = lengths.iter().copied().max().unwrap();
    let shape = [lengths.len(), longest];
    let tensor = |value: &dyn Fn(usize) -> i32| {
        let row = |&length: &usize| -> Vec<i32> {
            (0..longest).map(|i| if i < length { value(i) } else { 0 }).collect()
        };
        Tensor::from_vec(shape, lengths.iter().flat_map(row).collect::<Vec<i32>>()).unwrap()
    };
    Inputs::from([
        ("input_ids".into(), tensor(&|i| i as i32 % 90)),
        ("input_mask".into(), tensor(&|_| 1)),
        ("segment_ids".into(), tensor(&|i| (i % 2) as i32)),
    ])
}

/// The counters are of the whole program, in which the end of one test allocates while another one
/// runs: so there is one test.
#[test]
fn memory_is_taken_once() {
    a_model_is_never_in_memory_twice();
    nothing_is_allocated_in_the_steady_state();
}

fn a_model_is_never_in_memory_twice() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let config = r#"{"vocab_size": 97, "hidden_size": 192, "num_hidden_layers": 4,
        "num_attention_heads": 4, "intermediate_size": 768, "hidden_act": "gelu",
        "max_position_embeddings": 64, "type_vocab_size": 2}"#;
    file.write_all(config.as_bytes()).unwrap();
    for int8 in [false, true] {
        let mut graph = random_model(file.path().to_str().unwrap(), Head::Squad).unwrap();
        let weights: usize =
            graph.nodes().filter_map(|(_, node)| node.op.as_const()).map(|t| t.byte_len()).sum();
        assert!(weights > 7_000_000);
        if int8 {
            minmax::by_batches(&mut graph, &[batch(&[64])]).unwrap();
        }
        let options = EngineOptions { threads: Some(1), ..EngineOptions::default() };
        let mut engine = None;
        // Beyond the graph itself, which goes away meanwhile: one product, and the plan. A copy of the
        // bytes would already be more.
        let peak = memory::peak_of(|| {
            engine = Some(Engine::from_graph(graph, &options).unwrap());
        });
        assert!(peak < weights / 4, "{peak} bytes beside {weights} of weights, int8: {int8}");
        assert_eq!(engine.unwrap().is_int8(), int8);
    }
}

fn nothing_is_allocated_in_the_steady_state() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let config = r#"{"vocab_size": 97, "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 256, "hidden_act": "gelu",
        "max_position_embeddings": 64, "type_vocab_size": 2}"#;
    file.write_all(config.as_bytes()).unwrap();
    for head in [Head::Squad, Head::Classifier] {
        let graph = random_model(file.path().to_str().unwrap(), head).unwrap();
        let batches = [batch(&[40, 7, 33]), batch(&[64, 64, 64, 64]), batch(&[5])];
        let f32 = Engine::new(&graph, &EngineOptions::default()).unwrap();
        let mut bytes = graph.clone();
        minmax::by_batches(&mut bytes, &batches[..1]).unwrap();
        let int8 = Engine::new(&bytes, &EngineOptions::default()).unwrap();
        for (engine, what) in [(f32, "float32"), (int8, "int8")] {
            assert_eq!(engine.slow(), []);
            let mut worker = engine.worker();
            // The largest one makes room for all.
            for batch in &batches {
                worker.run(batch).unwrap();
            }
            let mut sum = 0.0;
            let taken = memory::peak_of(|| {
                for batch in batches.iter().cycle().take(6) {
                    let outputs = worker.run(batch).unwrap();
                    sum += outputs.rows(0).unwrap().data[0];
                }
            });
            assert!(sum.is_finite());
            assert_eq!(taken, 0, "{head:?}, {what}");
        }
    }
}
