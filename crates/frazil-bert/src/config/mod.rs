//! `bert_config.json`: read, checked, written; unknown keys survive.
//!
//! The original code takes any key, known or not, and falls back to defaults without a word.
//! Here both are kept on record: [`BertConfig::other`] has the keys that mean nothing to BERT,
//! [`BertConfig::defaulted`] those that the file left out.

mod huggingface;
mod shapes;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{Error, Result};

pub use huggingface::{Formulas, FromHuggingFace, Labels, to_huggingface};
pub use shapes::{Difference, FromShapes};

/// The activation between the two feed-forward matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// GELU in the form with tanh, as the original code computes it.
    Gelu,
    /// max(x, 0)
    Relu,
    /// tanh
    Tanh,
    /// None at all; the file may also say `""` or `null`.
    Linear,
}

impl Activation {
    /// The name in `bert_config.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gelu => "gelu",
            Self::Relu => "relu",
            Self::Tanh => "tanh",
            Self::Linear => "linear",
        }
    }
}

/// Upper and lower case are one, as in the original code.
impl FromStr for Activation {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Ok(match name.to_lowercase().as_str() {
            "gelu" => Self::Gelu,
            "relu" => Self::Relu,
            "tanh" => Self::Tanh,
            "linear" | "" => Self::Linear,
            _ => return Err(Error::Activation(name.to_string())),
        })
    }
}

impl fmt::Display for Activation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The configuration of a BERT.
#[derive(Clone, Debug)]
pub struct BertConfig {
    /// Word pieces.
    pub vocab_size: usize,
    /// Width of every row between the layers.
    pub hidden_size: usize,
    /// Encoder layers.
    pub num_hidden_layers: usize,
    /// Attention heads of a layer.
    pub num_attention_heads: usize,
    /// Width inside the feed-forward block.
    pub intermediate_size: usize,
    /// Activation inside the feed-forward block.
    pub hidden_act: Activation,
    /// Dropout after dense layers and embeddings, in training.
    pub hidden_dropout_prob: f64,
    /// Dropout on attention probabilities, in training.
    pub attention_probs_dropout_prob: f64,
    /// Rows of the position table: the longest sequence.
    pub max_position_embeddings: usize,
    /// Segment ids.
    pub type_vocab_size: usize,
    /// Standard deviation of fresh weights.
    pub initializer_range: f64,
    /// Keys that mean nothing to BERT, in the file's order.
    pub other: Map<String, Value>,
    /// Keys that the file left to the defaults.
    pub defaulted: Vec<&'static str>,
}

/// How the values of a key are read, compared and written: one row per key.
struct Key {
    name: &'static str,
    read: fn(&mut BertConfig, &'static str, &Value) -> Result<()>,
    get: fn(&BertConfig) -> Value,
}

macro_rules! keys {
    ($($name:ident: $read:ident),* $(,)?) => {
        const KEYS: &[Key] = &[$(Key {
            name: stringify!($name),
            read: |config, key, value| { config.$name = $read(key, value)?; Ok(()) },
            get: |config| json!(config.$name),
        }),*];
    };
}

keys! {
    attention_probs_dropout_prob: probability,
    hidden_act: activation,
    hidden_dropout_prob: probability,
    hidden_size: size,
    initializer_range: deviation,
    intermediate_size: size,
    max_position_embeddings: size,
    num_attention_heads: size,
    num_hidden_layers: size,
    type_vocab_size: size,
    vocab_size: size,
}

impl Serialize for Activation {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl BertConfig {
    /// The original code's defaults around a vocabulary. Mind `type_vocab_size`: 16 here, as in
    /// that code, though every released model has 2.
    pub fn new(vocab_size: usize) -> Self {
        Self {
            vocab_size,
            hidden_size: 768,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            intermediate_size: 3072,
            hidden_act: Activation::Gelu,
            hidden_dropout_prob: 0.1,
            attention_probs_dropout_prob: 0.1,
            max_position_embeddings: 512,
            type_vocab_size: 16,
            initializer_range: 0.02,
            other: Map::new(),
            defaulted: Vec::new(),
        }
    }

    /// Reads and checks a `bert_config.json`.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = frazil_tensor::file::map(path)?;
        Self::from_slice(&bytes).map_err(|e| e.in_file(path))
    }

    /// The same from the file's bytes.
    pub fn from_slice(bytes: &[u8]) -> Result<Self> {
        Self::from_map(object(bytes)?)
    }

    /// The same from a parsed object.
    pub fn from_map(mut map: Map<String, Value>) -> Result<Self> {
        let mut config = Self::new(0);
        for key in KEYS {
            match map.shift_remove(key.name) {
                Some(value) => (key.read)(&mut config, key.name, &value)?,
                None if key.name == "vocab_size" => return Err(Error::MissingKey("vocab_size")),
                None => config.defaulted.push(key.name),
            }
        }
        config.other = map;
        config.check()?;
        Ok(config)
    }

    /// Whether the values fit each other.
    pub fn check(&self) -> Result<()> {
        let (hidden, heads) = (self.hidden_size, self.num_attention_heads);
        if heads == 0 || !hidden.is_multiple_of(heads) {
            return Err(Error::HeadSize { hidden, heads });
        }
        Ok(())
    }

    /// As an object: the known keys in alphabetical order, as Google's files have them, then the
    /// others.
    pub fn to_map(&self) -> Map<String, Value> {
        let mut map: Map<String, Value> =
            KEYS.iter().map(|key| (key.name.to_string(), (key.get)(self))).collect();
        map.extend(self.other.clone());
        map
    }

    /// The text of a `bert_config.json`.
    pub fn to_json(&self) -> String {
        pretty(&self.to_map())
    }

    /// Writes a `bert_config.json`, atomically.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        Ok(frazil_tensor::file::write(path, self.to_json().as_bytes())?)
    }
}

/// By value of all keys; where a value came from does not matter.
impl PartialEq for BertConfig {
    fn eq(&self, other: &Self) -> bool {
        KEYS.iter().all(|key| (key.get)(self) == (key.get)(other)) && self.other == other.other
    }
}

impl Serialize for BertConfig {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.to_map().serialize(to)
    }
}

impl<'de> Deserialize<'de> for BertConfig {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::from_map(Map::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

/// A JSON object, or where the text stops being one.
fn object(bytes: &[u8]) -> Result<Map<String, Value>> {
    // Windows editors put a byte order mark there; JSON does not allow it, users do not see it.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    match serde_json::from_slice(bytes)? {
        Value::Object(map) => Ok(map),
        Value::Array(_) => Err(Error::NotAnObject { found: "a list" }),
        Value::Null => Err(Error::NotAnObject { found: "null" }),
        _ => Err(Error::NotAnObject { found: "a single value" }),
    }
}

fn pretty(map: &Map<String, Value>) -> String {
    let mut text = serde_json::to_string_pretty(map).expect("a map of strings to JSON is JSON");
    text.push('\n');
    text
}

fn size(key: &'static str, value: &Value) -> Result<usize> {
    // Nothing in a model is near 2^31; a bound here keeps every later product in range.
    let whole = value.as_u64().filter(|&n| (1..1 << 31).contains(&n));
    whole.map(|n| n as usize).ok_or_else(|| wrong(key, "a positive whole number", value))
}

fn probability(key: &'static str, value: &Value) -> Result<f64> {
    let p = value.as_f64().filter(|p| (0.0..=1.0).contains(p));
    p.ok_or_else(|| wrong(key, "a number from 0 to 1", value))
}

fn deviation(key: &'static str, value: &Value) -> Result<f64> {
    value.as_f64().filter(|d| *d >= 0.0).ok_or_else(|| wrong(key, "a number of 0 or more", value))
}

fn activation(key: &'static str, value: &Value) -> Result<Activation> {
    match value {
        Value::String(name) => name.parse(),
        Value::Null => Ok(Activation::Linear),
        _ => Err(wrong(key, "the name of an activation", value)),
    }
}

fn wrong(key: &'static str, expected: &'static str, found: &Value) -> Error {
    Error::Value { key, expected, found: found.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<BertConfig> {
        BertConfig::from_slice(text.as_bytes())
    }

    #[test]
    fn defaults_are_those_of_the_original_and_on_record() {
        let config = parse(r#"{"vocab_size": 30522}"#).unwrap();
        assert_eq!(config, BertConfig::new(30522));
        assert_eq!(config.type_vocab_size, 16);
        assert_eq!(config.defaulted.len(), KEYS.len() - 1);
        assert!(config.defaulted.contains(&"type_vocab_size"));
    }

    #[test]
    fn unknown_keys_survive() {
        let config = parse(r#"{"vocab_size": 5, "pooler_type": "x", "directionality": "bidi"}"#);
        let config = config.unwrap();
        assert_eq!(config.other.len(), 2);
        assert_eq!(parse(&config.to_json()).unwrap(), config);
    }

    #[test]
    fn activations() {
        for (text, act) in [
            (r#""gelu""#, Activation::Gelu),
            (r#""RELU""#, Activation::Relu),
            (r#""tanh""#, Activation::Tanh),
            (r#""linear""#, Activation::Linear),
            (r#""""#, Activation::Linear),
            ("null", Activation::Linear),
        ] {
            let config = parse(&format!(r#"{{"vocab_size": 5, "hidden_act": {text}}}"#)).unwrap();
            assert_eq!(config.hidden_act, act, "{text}");
        }
        let error = parse(r#"{"vocab_size": 5, "hidden_act": "gelu_new"}"#).unwrap_err();
        assert!(matches!(&error, Error::Activation(name) if name == "gelu_new"));
        assert!(error.hint().is_some());
    }

    #[test]
    fn errors_say_where_and_what() {
        let cases = [
            (r#"{"hidden_size": 4}"#, "the required key `vocab_size` is missing"),
            (r#"{"vocab_size": "5"}"#, r#"`vocab_size` must be a positive whole number, not "5""#),
            (r#"{"vocab_size": 0}"#, "`vocab_size` must be a positive whole number, not 0"),
            (r#"{"vocab_size": 5.5}"#, "`vocab_size` must be a positive whole number, not 5.5"),
            (
                r#"{"vocab_size": 99999999999}"#,
                "`vocab_size` must be a positive whole number, not 99999999999",
            ),
            (
                r#"{"vocab_size": 5, "num_attention_heads": 5}"#,
                "`hidden_size` 768 is not a multiple of `num_attention_heads` 5",
            ),
            (
                r#"{"vocab_size": 5, "hidden_dropout_prob": 2}"#,
                "`hidden_dropout_prob` must be a number from 0 to 1, not 2",
            ),
            ("[1]", "a configuration is a JSON object, not a list"),
            ("{\n \"vocab_size\": 5,\n}", "line 3, column 1: trailing comma"),
        ];
        for (text, message) in cases {
            assert_eq!(parse(text).unwrap_err().to_string(), message, "{text}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_no_matter() {
        assert!(parse("\u{feff}{\"vocab_size\": 5}").is_ok());
    }

    #[test]
    fn the_released_files_read() {
        let Some(path) = frazil_tensor::testing::shared(
            "data/checkpoints/google_chinese_L-12_H-768_A-12/bert_config.json",
        ) else {
            return;
        };
        let config = BertConfig::read(path).unwrap();
        assert_eq!((config.vocab_size, config.type_vocab_size), (21128, 2));
        assert_eq!(config.other.len(), 6);
        assert!(config.defaulted.is_empty());
    }
}
