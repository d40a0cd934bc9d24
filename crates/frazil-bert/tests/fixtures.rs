//! Names, heads and configurations of real checkpoints: TensorFlow 1.11 to 1.15, Google's own.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use frazil_bert::names::{self, Head};
use frazil_bert::{BertConfig, Inventory};
use frazil_tensor::testing::shared;
use frazil_tensor::{TensorInfo, TensorStore};
use frazil_tf::checkpoint::{Checkpoint, Options};
use frazil_tf::graph_def::{self, GraphConsts};

fn checkpoint(name: &str) -> Option<Checkpoint> {
    // The prefix itself is no file: its index is.
    let index = shared(&format!("{name}.index"))?;
    Some(Checkpoint::open(index.with_extension(""), Options::default()).unwrap())
}

fn config(name: &str) -> Option<BertConfig> {
    Some(BertConfig::read(shared(name)?).unwrap())
}

struct Case {
    checkpoint: &'static str,
    config: &'static str,
    heads: &'static [Head],
    labels: Option<usize>,
    variables: usize,
    slots: &'static [(&'static str, usize)],
    state: &'static [&'static str],
}

const SMALL: &str = "fixtures/data/bert_config_small.json";
const GOOGLE: &str = "data/checkpoints/google_chinese_L-12_H-768_A-12";
const KERAS: &str = "data/checkpoints/keras_bert_test_checkpoint";

#[test]
fn every_checkpoint_is_understood() {
    let none = Case {
        checkpoint: "",
        config: SMALL,
        heads: &[Head::Pretraining],
        labels: None,
        variables: 46,
        slots: &[],
        state: &[],
    };
    let google = format!("{GOOGLE}/bert_model.ckpt").leak();
    let google_config = format!("{GOOGLE}/bert_config.json").leak();
    let keras = format!("{KERAS}/bert_model.ckpt").leak();
    let keras_config = format!("{KERAS}/bert_config.json").leak();
    let adam = &[("adam_m", 46), ("adam_v", 46)];
    let step = &["global_step"];
    let cases = [
        Case { checkpoint: "fixtures/pretrain/model.ckpt-40", slots: adam, state: step, ..none },
        Case {
            checkpoint: "fixtures/classifier/model.ckpt-27",
            heads: &[Head::Classifier],
            labels: Some(2),
            variables: 41,
            slots: &[("adam_m", 41), ("adam_v", 41)],
            state: step,
            ..none
        },
        Case {
            checkpoint: "fixtures/classifier/saved_models/1794770949/variables/variables",
            heads: &[Head::Classifier],
            labels: Some(2),
            variables: 41,
            state: step,
            ..none
        },
        // SQuAD has no gradient for the pooler, so no slots either.
        Case {
            checkpoint: "fixtures/squad/v1.1/model.ckpt-65",
            heads: &[Head::Squad],
            variables: 41,
            slots: &[("adam_m", 39), ("adam_v", 39)],
            state: step,
            ..none
        },
        Case {
            checkpoint: "fixtures/numerics/model.ckpt",
            heads: &[Head::Pretraining, Head::Classifier, Head::Squad],
            labels: Some(3),
            variables: 50,
            ..none
        },
        Case { checkpoint: "fixtures/meta/bert_model.ckpt", ..none },
        Case { checkpoint: "fixtures/meta_tf111/bert_model.ckpt", ..none },
        Case { checkpoint: google, config: google_config, variables: 206, ..none },
        Case { checkpoint: keras, config: keras_config, slots: adam, state: step, ..none },
        Case {
            checkpoint: "models/squad/model.ckpt-2232",
            config: "models/squad/bert_config.json",
            heads: &[Head::Squad],
            variables: 105,
            state: step,
            ..none
        },
    ];
    for case in cases {
        let name = case.checkpoint;
        let (Some(checkpoint), Some(config)) = (checkpoint(name), config(case.config)) else {
            return;
        };
        let found = Inventory::with_config(checkpoint.infos(), &config).unwrap();
        assert_eq!(found.complete_heads(), case.heads, "{name}");
        assert_eq!(found.variables, case.variables, "{name}");
        assert_eq!(found.head(Head::Classifier).and_then(|head| head.labels), case.labels);
        let slots: Vec<(&str, usize)> =
            found.slots.iter().map(|slot| (slot.kind.as_str(), slot.count)).collect();
        assert_eq!(slots, case.slots, "{name}");
        let state: Vec<&str> = found.training_state.iter().map(|v| v.name.as_str()).collect();
        assert_eq!(state, case.state, "{name}");
        assert!(found.unexpected.is_empty(), "{name}: {:?}", found.unexpected);
        assert!(found.rules.is_empty(), "{name}");
        // The shapes give the configuration back, but for the number of heads.
        assert!(found.contradictions.is_empty(), "{name}: {:?}", found.contradictions);
        let read = found.from_shapes.unwrap();
        let heads = config.num_attention_heads;
        let read = BertConfig { num_attention_heads: heads, ..read.config };
        assert!(read.diff(&config).is_empty(), "{name}: {:?}", read.diff(&config));
    }
}

#[test]
fn slots_of_any_optimizer() {
    let Some(checkpoint) = checkpoint("fixtures/pretrain/model.ckpt-40") else { return };
    for (first, second) in [("LAMB", "LAMB_1"), ("BERTAdam", "BERTAdam_1"), ("x", "y/z")] {
        let rename = |info: &TensorInfo| TensorInfo {
            name: info.name.replace("adam_m", first).replace("adam_v", second),
            ..info.clone()
        };
        let infos: Vec<TensorInfo> = checkpoint.infos().iter().map(rename).collect();
        let found = Inventory::of(&infos).unwrap();
        let kinds: Vec<&str> = found.slots.iter().map(|slot| slot.kind.as_str()).collect();
        assert_eq!(kinds, [first, second]);
        assert!(found.slots.iter().all(|slot| slot.count == 46 && slot.orphans == 0));
        assert_eq!((found.variables, found.unexpected.len()), (46, 0));
        // The same with the model's variables stripped.
        let stripped: Vec<TensorInfo> = infos
            .into_iter()
            .filter(|info| names::variables::part_of(&info.name).is_none())
            .collect();
        let found = Inventory::of(&stripped).unwrap();
        assert!(found.slots.iter().all(|slot| slot.count == 46 && slot.orphans == 46));
        assert_eq!((found.variables, found.unexpected.len()), (0, 0));
    }
}

#[test]
fn a_configuration_of_another_size() {
    let Some(checkpoint) = checkpoint("models/squad/model.ckpt-2232") else { return };
    let Some(config) = config(&format!("{GOOGLE}/bert_config.json")) else { return };
    let found = Inventory::with_config(checkpoint.infos(), &config).unwrap();
    let sentences: Vec<String> = found
        .contradictions
        .iter()
        .map(|d| d.sentence("bert_config.json says", "the variables say"))
        .collect();
    assert_eq!(
        sentences,
        [
            "hidden_size: bert_config.json says 768, the variables say 384",
            "intermediate_size: bert_config.json says 3072, the variables say 1536",
            "num_hidden_layers: bert_config.json says 12, the variables say 6",
            "vocab_size: bert_config.json says 21128, the variables say 30522",
        ]
    );
    assert!(found.complete_heads().is_empty());
    let squad = found.head(Head::Squad).unwrap();
    assert_eq!(squad.missing.len(), 6 * 16);
}

/// Intel's modeling.py has Keras' LayerNorm: numbered through the model.
#[test]
fn frozen_graphs() {
    for (name, head, rules) in [
        ("fixtures/classifier/frozen_from_saved_model.pb", Head::Classifier, 0),
        ("fixtures/squad/lpot/bert_fp32_google_modeling.pb", Head::Squad, 0),
        ("fixtures/squad/lpot/bert_fp32_intel_modeling.pb", Head::Squad, 4),
    ] {
        let Some(path) = shared(name) else { return };
        let graph = GraphConsts::new(graph_def::read(path).unwrap()).unwrap();
        let found = Inventory::of(graph.infos()).unwrap();
        assert_eq!(found.complete_heads(), [head], "{name}");
        assert_eq!(found.rules.len(), rules, "{name}: {:?}", found.rules);
    }
}
