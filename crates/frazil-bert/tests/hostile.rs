//! Names and shapes that nobody would write on purpose: sorted without a panic, none lost.

use std::collections::BTreeSet;

use frazil_bert::config::FromHuggingFace;
use frazil_bert::names::{self, Head, huggingface, popart};
use frazil_bert::{BertConfig, Inventory};
use frazil_tensor::{DType, TensorInfo};
use proptest::prelude::*;

/// Pieces of every naming, and numbers that overflow.
const PIECES: &[&str] = &[
    "bert",
    "embeddings",
    "word_embeddings",
    "position_embeddings",
    "token_type_embeddings",
    "embeddings/word_embeddings",
    "LayerNorm",
    "layer_normalization_3",
    "gamma",
    "beta",
    "encoder",
    "layer_0",
    "layer_1",
    "layer_18446744073709551615",
    "layer_4000000000",
    "attention/self/query",
    "intermediate/dense",
    "kernel",
    "bias",
    "kernel:0",
    "adam_m",
    "LAMB_1",
    "global_step",
    "cls/predictions",
    "output_bias",
    "output_weights",
    "bert/encoder/layer_0/output/dense/kernel",
    "bert/embeddings/word_embeddings",
    "model",
    "layer_with_weights-4",
    "layer_with_weights-18446744073709551615",
    "_attention_layer/_query_dense",
    "_attention_layer/_query_dense/kernel/.ATTRIBUTES/VARIABLE_VALUE",
    ".ATTRIBUTES/VARIABLE_VALUE",
    ".OPTIMIZER_SLOT",
    "bert.embeddings.word_embeddings.weight",
    "encoder.layer.0.attention.self.query.weight",
    "encoder.layer.99999999999.output.dense.bias",
    "cls.predictions.decoder.weight",
    "cls.predictions.decoder.bias",
    "cls.predictions.bias",
    "module.",
    "Embedding/Embedding_Dict",
    "Embedding/Embedding_Dict/split1",
    "Layer0/Attention/QKV",
    "Layer18446744073709551615/Attention/QKV_Bias",
    "Accl1___Layer0/Attention/QKV",
    "Accl2___",
    "",
    "é",
];

fn name() -> impl Strategy<Value = String> {
    let piece =
        prop_oneof![4 => prop::sample::select(PIECES).prop_map(String::from), 1 => ".{0,6}"];
    let joint = prop::sample::select(&["/", ".", ""][..]);
    prop::collection::vec((piece, joint), 1..5)
        .prop_map(|parts| parts.into_iter().map(|(a, b)| a + b).collect::<String>())
        .prop_map(|name| name.trim_end_matches(['/', '.']).to_string())
}

fn shape() -> impl Strategy<Value = Vec<usize>> {
    let extents = [0, 1, 2, 3, 64, 192, 838, usize::MAX / 3, usize::MAX];
    prop::collection::vec(prop::sample::select(extents.to_vec()), 0..4)
}

fn infos() -> impl Strategy<Value = Vec<TensorInfo>> {
    let dtype = prop::sample::select(DType::ALL.to_vec());
    let one = (name(), prop_oneof![Just(DType::F32), dtype], shape());
    prop::collection::vec(one, 0..40).prop_map(|list| {
        let mut seen = BTreeSet::new();
        let mut infos: Vec<TensorInfo> = list
            .into_iter()
            .filter(|(name, ..)| seen.insert(name.clone()))
            .map(|(name, dtype, shape)| TensorInfo { name, dtype, shape: shape.into() })
            .collect();
        infos.sort_by(|a, b| a.name.cmp(&b.name));
        infos
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_tensor_is_somewhere(infos in infos()) {
        let Ok(all) = names::read(&infos, None) else { return Ok(()) };
        let mut placed: BTreeSet<&str> = BTreeSet::new();
        placed.extend(all.rows.iter().flat_map(|row| row.from.iter().map(String::as_str)));
        placed.extend(all.slots.iter().map(|slot| slot.info.name.as_str()));
        placed.extend(all.state.iter().map(|info| info.name.as_str()));
        placed.extend(all.ignored.iter().map(|ignored| ignored.info.name.as_str()));
        placed.extend(all.unexpected.iter().map(|info| info.name.as_str()));
        let given: BTreeSet<&str> = infos.iter().map(|info| info.name.as_str()).collect();
        prop_assert_eq!(placed, given);
    }

    #[test]
    fn reports_and_plans_do_not_panic(infos in infos()) {
        let Ok(all) = names::read(&infos, None) else { return Ok(()) };
        let config = BertConfig { num_hidden_layers: 2, ..BertConfig::new(838) };
        for config in [None, Some(&config)] {
            let inventory = Inventory::new(&all, config);
            serde_json::to_string(&inventory).unwrap();
        }
        for head in Head::ALL {
            let _ = huggingface::plan(&all.infos(), &config, head, 2, &Default::default());
            let _ = popart::plan(&all.infos(), &config, head, &Default::default());
        }
    }

    #[test]
    fn any_text_is_a_configuration_or_an_error(text in ".{0,40}", key in "[a-z_]{1,20}", value in "[-0-9eE.\\\"a-z]{0,8}") {
        let _ = BertConfig::from_slice(text.as_bytes());
        let object = format!("{{\"vocab_size\": 9, \"{key}\": {value}}}");
        let _ = BertConfig::from_slice(object.as_bytes());
        let _ = FromHuggingFace::from_slice(object.as_bytes());
    }
}
