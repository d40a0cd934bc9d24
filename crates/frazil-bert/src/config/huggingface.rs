//! Hugging Face's `config.json` and `bert_config.json`, each from the other.
//!
//! One name is a trap. Both files say `gelu`, and mean different functions: in
//! google-research/bert it is the form with tanh, in transformers the exact one with erf, and
//! the tanh form is called `gelu_new`. Transformers' own converter writes `gelu` for TensorFlow
//! checkpoints, so that its models differ from the originals by up to 5e-4 in every activation.
//! frazil writes the name of the function that the weights were trained with: `gelu_new`.

use frazil_graph::op::GeluForm;
use frazil_tensor::file;
use serde_json::{Map, Value, json};
use std::path::Path;

use super::{Activation, BertConfig, object, pretty};
use crate::names::huggingface::architecture;
use crate::{Error, Head, Result};

/// The constant in google-research/bert's LayerNorm, for float32.
const LAYER_NORM_EPSILON: f64 = 1e-12;

/// The classes of a classifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Labels {
    /// Only their number is known; they are called `LABEL_0`, `LABEL_1`, ….
    Count(usize),
    /// Their names, in order.
    Names(Vec<String>),
}

impl Labels {
    /// Their number.
    pub fn count(&self) -> usize {
        match self {
            Self::Count(n) => *n,
            Self::Names(names) => names.len(),
        }
    }

    fn names(&self) -> Vec<String> {
        match self {
            Self::Count(n) => (0..*n).map(|i| format!("LABEL_{i}")).collect(),
            Self::Names(names) => names.clone(),
        }
    }
}

/// What `bert_config.json` cannot say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Formulas {
    /// Which formula `gelu` means.
    pub gelu: GeluForm,
    /// Inside the root of every LayerNorm.
    pub epsilon: f64,
}

/// google-research/bert's own.
impl Default for Formulas {
    fn default() -> Self {
        Self { gelu: GeluForm::Tanh, epsilon: LAYER_NORM_EPSILON }
    }
}

/// The text of a `config.json` for transformers, with the class for `head` and, for a
/// classifier, its labels.
pub fn to_huggingface(
    config: &BertConfig,
    head: Head,
    labels: Option<&Labels>,
    formulas: Formulas,
) -> String {
    let hidden_act = match config.hidden_act {
        Activation::Gelu if formulas.gelu == GeluForm::Erf => "gelu",
        Activation::Gelu => "gelu_new",
        Activation::Relu => "relu",
        Activation::Tanh => "tanh",
        Activation::Linear => "linear",
    };
    let mut map = Map::new();
    map.insert("architectures".into(), json!([architecture(head)]));
    map.extend(config.to_map());
    map.insert("hidden_act".into(), json!(hidden_act));
    map.insert("layer_norm_eps".into(), json!(formulas.epsilon));
    map.insert("model_type".into(), json!("bert"));
    map.insert("pad_token_id".into(), json!(0));
    map.insert("position_embedding_type".into(), json!("absolute"));
    if let (Head::Classifier, Some(labels)) = (head, labels) {
        let names = labels.names();
        let by_id: Map<String, Value> =
            names.iter().enumerate().map(|(i, name)| (i.to_string(), json!(name))).collect();
        let by_name: Map<String, Value> =
            names.iter().enumerate().map(|(i, name)| (name.clone(), json!(i))).collect();
        map.insert("id2label".into(), Value::Object(by_id));
        map.insert("label2id".into(), Value::Object(by_name));
    }
    pretty(&map)
}

/// A `config.json` turned into a `bert_config.json`.
#[derive(Clone, Debug)]
pub struct FromHuggingFace {
    /// The configuration, without keys that only transformers reads.
    pub config: BertConfig,
    /// Labels of a classifier, if the file names some.
    pub labels: Option<Labels>,
    /// What the model computes where TensorFlow 1's BERT has one fixed formula.
    pub formulas: Formulas,
    /// What TensorFlow 1's BERT will compute otherwise than the model did, in sentences.
    pub notes: Vec<String>,
}

impl FromHuggingFace {
    /// Reads and checks a `config.json`.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = file::map(path)?;
        Self::from_slice(&bytes).map_err(|e| e.in_file(path))
    }

    /// The same from the file's bytes.
    pub fn from_slice(bytes: &[u8]) -> Result<Self> {
        let mut map = object(bytes)?;
        let mut notes = Vec::new();
        let mut gelu = GeluForm::Tanh;
        match map.get("model_type") {
            None => {}
            Some(Value::String(family)) if family == "bert" => {}
            Some(other) => {
                let found = other.as_str().map_or_else(|| other.to_string(), str::to_string);
                return Err(Error::OtherModel { found });
            }
        }
        if let Some(position) = map.get("position_embedding_type")
            && position != "absolute"
        {
            let found = position.to_string();
            return Err(Error::NotComputable { key: "position_embedding_type", found });
        }
        for key in ["is_decoder", "add_cross_attention"] {
            if map.get(key) == Some(&Value::Bool(true)) {
                return Err(Error::NotComputable { key, found: "true".into() });
            }
        }
        if let Some(Value::String(act)) = map.get("hidden_act") {
            let (plain, note) = match act.as_str() {
                "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => ("gelu", None),
                "gelu" | "gelu_python" => (
                    "gelu",
                    Some(
                        "hidden_act: the model was made with the erf form of GELU; \
                         google-research/bert computes the tanh form (up to 5e-4 apart)",
                    ),
                ),
                other => (other, None),
            };
            if note.is_some() {
                gelu = GeluForm::Erf;
            }
            notes.extend(note.map(str::to_string));
            let plain = json!(plain);
            map.insert("hidden_act".into(), plain);
        }
        let epsilon = map.get("layer_norm_eps").and_then(Value::as_f64);
        if let Some(epsilon) = epsilon
            && epsilon != LAYER_NORM_EPSILON
        {
            notes.push(format!(
                "layer_norm_eps: the model was made with {epsilon:e}; google-research/bert \
                 computes with 1e-12"
            ));
        }
        let labels = labels(&map);
        let mut config = BertConfig::from_map(map)?;
        // transformers has 2 where the original code has 16.
        if config.defaulted.contains(&"type_vocab_size") {
            config.type_vocab_size = 2;
        }
        config.other.clear();
        let epsilon = epsilon.unwrap_or(LAYER_NORM_EPSILON);
        Ok(Self { config, labels, formulas: Formulas { gelu, epsilon }, notes })
    }
}

/// `id2label` if its keys are 0, 1, …; else `num_labels`.
fn labels(map: &Map<String, Value>) -> Option<Labels> {
    if let Some(Value::Object(by_id)) = map.get("id2label") {
        let names: Option<Vec<String>> = (0..by_id.len())
            .map(|i| by_id.get(&i.to_string())?.as_str().map(str::to_string))
            .collect();
        return Some(names.map_or(Labels::Count(by_id.len()), Labels::Names));
    }
    let count = map.get("num_labels").or_else(|| map.get("_num_labels"))?.as_u64()?;
    usize::try_from(count).ok().filter(|&n| n < 1 << 20).map(Labels::Count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let config = BertConfig { type_vocab_size: 2, ..BertConfig::new(30522) };
        let labels = Labels::Names(vec!["no".into(), "yes".into(), "maybe".into()]);
        let text = to_huggingface(&config, Head::Classifier, Some(&labels), Formulas::default());
        let map = object(text.as_bytes()).unwrap();
        assert_eq!(map["architectures"], json!(["BertForSequenceClassification"]));
        assert_eq!(map["hidden_act"], "gelu_new");
        assert_eq!(map["layer_norm_eps"], json!(1e-12));
        assert_eq!(map["model_type"], "bert");
        assert_eq!(map["label2id"]["maybe"], 2);
        let back = FromHuggingFace::from_slice(text.as_bytes()).unwrap();
        assert_eq!(back.config, config);
        assert_eq!(back.labels, Some(labels));
        assert!(back.notes.is_empty());
        let erf = Formulas { gelu: GeluForm::Erf, epsilon: 1e-5 };
        let text = to_huggingface(&config, Head::Encoder, None, erf);
        assert_eq!(FromHuggingFace::from_slice(text.as_bytes()).unwrap().formulas, erf);
    }

    #[test]
    fn what_cannot_be_kept_is_said() {
        let read = |text: &str| FromHuggingFace::from_slice(text.as_bytes());
        let erf =
            read(r#"{"vocab_size": 9, "hidden_act": "gelu", "layer_norm_eps": 1e-5}"#).unwrap();
        assert_eq!(erf.config.hidden_act, Activation::Gelu);
        assert_eq!(erf.config.type_vocab_size, 2);
        assert_eq!(erf.notes.len(), 2);
        assert!(erf.notes[1].contains("1e-5"), "{}", erf.notes[1]);
        for (text, message) in [
            (r#"{"vocab_size": 9, "model_type": "roberta"}"#, "`roberta` model"),
            (
                r#"{"vocab_size": 9, "position_embedding_type": "relative_key"}"#,
                "`position_embedding_type`",
            ),
            (r#"{"vocab_size": 9, "is_decoder": true}"#, "`is_decoder`"),
            (r#"{"vocab_size": 9, "hidden_act": "swish"}"#, "`swish`"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
