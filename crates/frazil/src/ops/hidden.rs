//! Which values of a graph are the outputs of BERT's layers, whoever wrote it and whatever its
//! nodes are called.
//!
//! Every layer ends in two LayerNorms: one behind its attention, and one behind its feed-forward
//! block, which is the layer's output. So the norms are looked for first (by formula, see
//! [`pass::fuse`]), and between two that follow each other, whether there is a softmax. A norm behind
//! one is an attention's; the next one without is a layer's output. The norm of the embeddings has
//! none before it, and that of a masked-word head follows a layer's output. Left out: models that
//! normalise before their blocks; they are no BERTs.

use std::collections::{BTreeSet, HashSet};

use frazil_graph::pass::{self, Fusions};
use frazil_graph::{Graph, NodeId, Op};

use crate::{Error, Result};

/// The nodes whose values are the outputs of all layers, by name, the first layer first. Dropout must
/// be out of the graph; the graph is raised on the way.
pub fn layers(graph: &mut Graph) -> Result<Vec<String>> {
    pass::fuse(graph, &Fusions { layer_norm: true, ..Fusions::none() })?;
    let order = graph.topological()?.into_iter();
    let norms: Vec<(NodeId, Behind)> = order
        .filter(|&id| matches!(graph.node(id).op, Op::LayerNorm(_)))
        .map(|id| (id, Behind::of(graph, id)))
        .collect();
    let attended: HashSet<NodeId> =
        norms.iter().filter(|(_, behind)| behind.softmax).map(|(id, _)| *id).collect();
    let is_output = |behind: &Behind| {
        !behind.softmax && behind.norms.iter().any(|norm| attended.contains(norm))
    };
    // A raised node keeps the name of the last node of its formula.
    let found: Vec<String> = norms
        .iter()
        .filter(|(_, behind)| is_output(behind))
        .map(|(id, _)| graph.node(*id).name.clone())
        .collect();
    if found.is_empty() || found.len() != attended.len() {
        return Err(Error::NoLayers { norms: norms.len(), attentions: attended.len() });
    }
    Ok(found)
}

/// What lies between a norm and those before it.
struct Behind {
    norms: BTreeSet<NodeId>,
    softmax: bool,
}

impl Behind {
    fn of(graph: &Graph, norm: NodeId) -> Self {
        let mut found = Self { norms: BTreeSet::new(), softmax: false };
        let mut seen = HashSet::new();
        let mut waiting: Vec<NodeId> = graph.node(norm).inputs.iter().map(|v| v.node).collect();
        while let Some(id) = waiting.pop() {
            if !seen.insert(id) {
                continue;
            }
            match graph.node(id).op {
                Op::LayerNorm(_) => {
                    found.norms.insert(id);
                    continue;
                }
                Op::Softmax | Op::Attention(_) => found.softmax = true,
                _ => {}
            }
            waiting.extend(graph.node(id).inputs.iter().map(|value| value.node));
        }
        found
    }
}

/// A layer by its number: from 0 on, or from the end, -1 for the last.
pub fn layer_of(index: i32, count: usize) -> Result<usize> {
    let count_i64 = i64::try_from(count).unwrap_or(i64::MAX);
    let place = if index < 0 { count_i64 + i64::from(index) } else { i64::from(index) };
    match usize::try_from(place) {
        Ok(place) if place < count => Ok(place),
        _ => Err(Error::NoLayer { index, layers: count }),
    }
}

#[cfg(test)]
mod tests {
    use frazil_bert::{BertConfig, Head, build};
    use frazil_tensor::testing::shared;

    use super::*;
    use crate::source::{GraphOptions, open_graph};

    #[test]
    fn the_layers_of_every_head() {
        let config = BertConfig {
            hidden_size: 8,
            num_hidden_layers: 3,
            num_attention_heads: 2,
            intermediate_size: 16,
            max_position_embeddings: 6,
            type_vocab_size: 2,
            ..BertConfig::new(20)
        };
        for head in Head::ALL {
            let mut graph = build::build(&config, head, &build::Options::default()).unwrap();
            let expected: Vec<String> = (0..3)
                .map(|i| format!("bert/encoder/layer_{i}/output/LayerNorm/batchnorm/add_1"))
                .collect();
            assert_eq!(layers(&mut graph).unwrap(), expected, "{head}");
        }
    }

    #[test]
    fn the_layers_of_graphs_that_tensorflow_wrote() {
        for path in [
            "classifier/frozen_from_saved_model.pb",
            "classifier/saved_models",
            "meta/bert_model_dyn.ckpt.meta",
            "meta_tf111/bert_model.ckpt.meta",
            "reshapable/inference_graph.pb",
            "squad/lpot/bert_fp32_google_modeling.pb",
            "squad/lpot/bert_int8_lpot1.3.pb",
        ] {
            let Some(file) = shared(&format!("fixtures/{path}")) else { return };
            let mut graph = open_graph(&file, &GraphOptions::default()).unwrap().graph;
            let found = layers(&mut graph).unwrap();
            assert_eq!(found.len(), 2, "{path}");
            let inside = |(i, name): (usize, &String)| {
                name.contains(&format!("bert/encoder/layer_{i}/output/LayerNorm"))
            };
            assert!(found.iter().enumerate().all(inside), "{path}: {found:?}");
        }
    }

    #[test]
    fn a_graph_without_layers_says_so() {
        let error = layers(&mut Graph::new()).unwrap_err();
        assert!(error.to_string().contains("0 LayerNorms"), "{error}");
    }

    #[test]
    fn layers_are_counted_from_both_ends() {
        assert_eq!((layer_of(0, 3).unwrap(), layer_of(-1, 3).unwrap()), (0, 2));
        for index in [3, -4, i32::MIN, i32::MAX] {
            let error = layer_of(index, 3).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("there is no layer {index}: the model has 3 layers")
            );
            assert_eq!(error.hint().unwrap(), "layers are 0 to 2, or -1 (the last) to -3");
        }
    }
}
