//! Models of well-known sizes with made-up weights: speed does not depend on what they are.

use std::path::Path;

use frazil_bert::build::{self, build};
use frazil_bert::{BertConfig, Head};
use frazil_graph::{Graph, Op};
use frazil_tensor::Tensor;

use crate::{Error, Result};

/// A model of that size: `bert-base`, `bert-large`, or a `bert_config.json`.
pub fn random_model(size: &str, head: Head) -> Result<Graph> {
    let mut graph = build(&config(size)?, head, &build::Options::default())?;
    let mut seed = 0;
    for id in graph.ids() {
        let node = graph.node_mut(id);
        let Op::Variable(variable) = &node.op else { continue };
        let shape = variable.shape.clone().unwrap_or_default();
        let elements = shape.elements().unwrap_or(0);
        seed += 1;
        let values = if node.name.ends_with("gamma") {
            vec![1.0; elements]
        } else {
            numbers(seed, elements)
        };
        node.op = Op::constant(Tensor::from_vec(shape, values)?);
    }
    Ok(graph)
}

fn config(size: &str) -> Result<BertConfig> {
    let base = || BertConfig::new(30522);
    Ok(match size {
        "bert-base" => base(),
        "bert-large" => BertConfig {
            hidden_size: 1024,
            num_hidden_layers: 24,
            num_attention_heads: 16,
            intermediate_size: 4096,
            ..base()
        },
        path if Path::new(path).is_file() => BertConfig::read(path)?,
        _ => {
            return Err(Error::Usage {
                what: format!("`{size}` is neither a size nor a configuration"),
                hint: "give `bert-base`, `bert-large`, or the path of a bert_config.json".into(),
            });
        }
    })
}

/// Numbers with the spread of fresh weights, 0.02, the same every time.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let unit = (state >> 40) as f32 / (1u64 << 24) as f32;
        (unit - 0.5) * (0.02 * 12f32.sqrt())
    };
    (0..count).map(|_| next()).collect()
}
