//! The canonical variables: one table of names and shapes for every part of a BERT.

use std::fmt;

use frazil_tensor::Shape;
use serde::Serialize;

use super::Head;
use crate::BertConfig;

/// A part of the model, in the order of the computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// The three tables and their LayerNorm.
    Embeddings,
    /// One encoder layer.
    Layer(usize),
    /// The dense layer on the first token.
    Pooler,
    /// Masked-word head.
    Mlm,
    /// Next-sentence head.
    Nsp,
    /// Classifier head.
    Classifier,
    /// SQuAD head.
    Squad,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embeddings => f.pad("embeddings"),
            Self::Layer(i) => f.pad(&format!("layer {i}")),
            Self::Pooler => f.pad("pooler"),
            Self::Mlm => f.pad("MLM head"),
            Self::Nsp => f.pad("NSP head"),
            Self::Classifier => f.pad("classifier head"),
            Self::Squad => f.pad("SQuAD head"),
        }
    }
}

/// Where an extent comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dim {
    /// `vocab_size`
    V,
    /// `hidden_size`
    H,
    /// `intermediate_size`
    I,
    /// `max_position_embeddings`
    P,
    /// `type_vocab_size`
    T,
    /// Labels of the classifier.
    C,
    /// Two: is next or not, start and end.
    Two,
}

use Dim::{C, H, I, P, T, Two, V};

/// Prefix of a layer's variables; the number and `/` follow.
pub(crate) const LAYER: &str = "bert/encoder/layer_";

/// Word embeddings, which the MLM head uses again.
pub const WORD_EMBEDDINGS: &str = "bert/embeddings/word_embeddings";

type Table = &'static [(&'static str, &'static [Dim])];

// Kernels are [in, out]; only the three `output_weights` are [out, in].
const EMBEDDINGS: Table = &[
    (WORD_EMBEDDINGS, &[V, H]),
    ("bert/embeddings/token_type_embeddings", &[T, H]),
    ("bert/embeddings/position_embeddings", &[P, H]),
    ("bert/embeddings/LayerNorm/beta", &[H]),
    ("bert/embeddings/LayerNorm/gamma", &[H]),
];
/// Below `bert/encoder/layer_N/`.
pub(crate) const IN_LAYER: Table = &[
    ("attention/self/query/kernel", &[H, H]),
    ("attention/self/query/bias", &[H]),
    ("attention/self/key/kernel", &[H, H]),
    ("attention/self/key/bias", &[H]),
    ("attention/self/value/kernel", &[H, H]),
    ("attention/self/value/bias", &[H]),
    ("attention/output/dense/kernel", &[H, H]),
    ("attention/output/dense/bias", &[H]),
    ("attention/output/LayerNorm/beta", &[H]),
    ("attention/output/LayerNorm/gamma", &[H]),
    ("intermediate/dense/kernel", &[H, I]),
    ("intermediate/dense/bias", &[I]),
    ("output/dense/kernel", &[I, H]),
    ("output/dense/bias", &[H]),
    ("output/LayerNorm/beta", &[H]),
    ("output/LayerNorm/gamma", &[H]),
];
const POOLER: Table = &[("bert/pooler/dense/kernel", &[H, H]), ("bert/pooler/dense/bias", &[H])];
const MLM: Table = &[
    ("cls/predictions/transform/dense/kernel", &[H, H]),
    ("cls/predictions/transform/dense/bias", &[H]),
    ("cls/predictions/transform/LayerNorm/beta", &[H]),
    ("cls/predictions/transform/LayerNorm/gamma", &[H]),
    ("cls/predictions/output_bias", &[V]),
];
const NSP: Table = &[
    ("cls/seq_relationship/output_weights", &[Two, H]),
    ("cls/seq_relationship/output_bias", &[Two]),
];
const CLASSIFIER: Table = &[("output_weights", &[C, H]), ("output_bias", &[C])];
const SQUAD: Table = &[("cls/squad/output_weights", &[Two, H]), ("cls/squad/output_bias", &[Two])];

/// The tables outside the layers.
const PARTS: &[(Part, Table)] = &[
    (Part::Embeddings, EMBEDDINGS),
    (Part::Pooler, POOLER),
    (Part::Mlm, MLM),
    (Part::Nsp, NSP),
    (Part::Classifier, CLASSIFIER),
    (Part::Squad, SQUAD),
];

/// A variable that a head's checkpoint has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Its canonical name.
    pub name: String,
    /// Its shape by the configuration.
    pub shape: Shape,
    /// What it belongs to.
    pub part: Part,
    /// Whether the head's outputs depend on it.
    pub needed: bool,
}

/// Every variable of a checkpoint for `head`, in the order of the computation. `labels` is the
/// classifier's number of classes, without effect on other heads.
pub fn expected(config: &BertConfig, head: Head, labels: usize) -> Vec<Expected> {
    let extent = |dim: &Dim| match dim {
        V => config.vocab_size,
        H => config.hidden_size,
        I => config.intermediate_size,
        P => config.max_position_embeddings,
        T => config.type_vocab_size,
        C => labels,
        Two => 2,
    };
    let one = |part, name: String, dims: &[Dim]| {
        let shape: Vec<usize> = dims.iter().map(extent).collect();
        Expected { name, shape: shape.into(), part, needed: head.needs(part) }
    };
    let mut all = Vec::new();
    for &(part, table) in PARTS.iter().filter(|(part, _)| head.has(*part)) {
        all.extend(table.iter().map(|(name, dims)| one(part, name.to_string(), dims)));
        if part == Part::Embeddings {
            for i in 0..config.num_hidden_layers {
                all.extend(
                    IN_LAYER.iter().map(|(name, dims)| {
                        one(Part::Layer(i), format!("{LAYER}{i}/{name}"), dims)
                    }),
                );
            }
        }
    }
    all
}

/// The part that a canonical name belongs to; `None` if it is none of BERT's.
pub fn part_of(name: &str) -> Option<Part> {
    if let Some((layer, rest)) = in_layer(name) {
        return IN_LAYER.iter().any(|(known, _)| *known == rest).then_some(Part::Layer(layer));
    }
    let mut parts = PARTS.iter();
    parts.find(|(_, table)| table.iter().any(|(known, _)| *known == name)).map(|(part, _)| *part)
}

/// Number of the layer and what follows it, if the name is one of a layer.
pub(crate) fn in_layer(name: &str) -> Option<(usize, &str)> {
    let (number, rest) = name.strip_prefix(LAYER)?.split_once('/')?;
    Some((decimal(number)?, rest))
}

/// A number as frazil would print it: no sign, no leading zero.
pub(crate) fn decimal(text: &str) -> Option<usize> {
    let plain = text == "0" || (!text.starts_with('0') && !text.starts_with('+'));
    text.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(vocab: usize, hidden: usize, layers: usize) -> BertConfig {
        BertConfig {
            hidden_size: hidden,
            num_hidden_layers: layers,
            num_attention_heads: hidden / 64,
            intermediate_size: 4 * hidden,
            type_vocab_size: 2,
            ..BertConfig::new(vocab)
        }
    }

    fn parameters(variables: &[Expected]) -> usize {
        variables.iter().map(|v| v.shape.elements().unwrap()).sum()
    }

    /// Numbers of the published models.
    #[test]
    fn counts_of_the_released_models() {
        for (hidden, layers, variables, encoder, pretraining) in [
            (768, 12, 206, 109_482_240, 110_106_428),
            (1024, 24, 398, 335_141_888, 336_226_108),
            (128, 2, 46, 4_385_920, 4_433_468),
        ] {
            let config = config(30522, hidden, layers);
            let all = expected(&config, Head::Pretraining, 0);
            assert_eq!(all.len(), variables);
            assert_eq!(parameters(&all), pretraining);
            assert_eq!(parameters(&expected(&config, Head::Encoder, 0)), encoder);
        }
    }

    #[test]
    fn every_expected_name_is_recognised() {
        let config = config(100, 64, 3);
        for head in Head::ALL {
            for variable in expected(&config, head, 3) {
                assert_eq!(part_of(&variable.name), Some(variable.part), "{}", variable.name);
            }
        }
        for stranger in [
            "bert/encoder/layer_0/attention/self/query",
            "bert/encoder/layer_01/output/dense/bias",
            "bert/encoder/layer_-1/output/dense/bias",
            "bert/encoder/layer_99999999999999999999/output/dense/bias",
            "global_step",
            "",
        ] {
            assert_eq!(part_of(stranger), None, "{stranger}");
        }
    }

    #[test]
    fn the_pooler_is_there_but_not_always_needed() {
        let needed = |head| {
            let all = expected(&config(100, 64, 1), head, 2);
            all.iter().filter(|v| v.part == Part::Pooler).map(|v| v.needed).collect::<Vec<_>>()
        };
        assert_eq!(needed(Head::Squad), [false, false]);
        assert_eq!(needed(Head::Classifier), [true, true]);
    }
}
