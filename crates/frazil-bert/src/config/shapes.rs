//! The configuration as the variables' shapes tell it.

use frazil_tensor::TensorInfo;
use serde::Serialize;

use super::{BertConfig, KEYS};
use crate::names;
use crate::{Error, Result};

/// A configuration read off shapes. What shapes do not tell has the original code's default.
#[derive(Clone, Debug, Serialize)]
pub struct FromShapes {
    /// The whole configuration.
    pub config: BertConfig,
    /// Keys that the shapes prove.
    pub read: Vec<&'static str>,
    /// Keys that are a guess: the number of heads leaves no trace in any shape.
    pub guessed: Vec<&'static str>,
}

/// A key on which two configurations disagree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The key.
    pub key: &'static str,
    /// The value of the one that was asked.
    pub ours: String,
    /// The value of the one it was compared with.
    pub theirs: String,
}

impl Difference {
    /// A sentence, with names for the two: `hidden_size: bert_config.json says 768, the
    /// variables say 1024`. Each name brings its verb: `bert_config.json says`.
    pub fn sentence(&self, ours: &str, theirs: &str) -> String {
        format!("{}: {ours} {}, {theirs} {}", self.key, self.ours, self.theirs)
    }
}

const READ: [&str; 6] = [
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
];

impl BertConfig {
    /// Reads the configuration off a file of weights, whatever names it uses.
    pub fn from_shapes(infos: &[TensorInfo]) -> Result<FromShapes> {
        names::read(infos, None)?.from_shapes()
    }

    /// Every known key on which the two disagree.
    pub fn diff(&self, other: &Self) -> Vec<Difference> {
        let text = |value: serde_json::Value| match value {
            serde_json::Value::String(s) => s,
            other => other.to_string(),
        };
        KEYS.iter()
            .map(|key| (key.name, (key.get)(self), (key.get)(other)))
            .filter(|(_, ours, theirs)| ours != theirs)
            .map(|(key, ours, theirs)| Difference { key, ours: text(ours), theirs: text(theirs) })
            .collect()
    }
}

impl FromShapes {
    /// From canonical variables.
    pub fn of(infos: &[TensorInfo]) -> Result<Self> {
        let missing = |what: &str| Error::NotBert(format!("`{what}` is missing"));
        let matrix = |name: &str| -> Result<(usize, usize)> {
            let info = infos.iter().find(|info| info.name == name).ok_or_else(|| missing(name))?;
            match &*info.shape {
                &[rows, columns] if rows > 0 && columns > 0 => Ok((rows, columns)),
                _ => Err(Error::NotBert(format!("`{name}` is {}, not a matrix", info.shape))),
            }
        };
        let (vocab_size, hidden_size) = matrix(names::variables::WORD_EMBEDDINGS)?;
        let (max_position_embeddings, _) = matrix("bert/embeddings/position_embeddings")?;
        let (type_vocab_size, _) = matrix("bert/embeddings/token_type_embeddings")?;
        let num_hidden_layers = names::layers(infos.iter().map(|info| info.name.as_str()));
        // Any layer will do; a layer that differs from the others shows as a wrong shape later.
        let intermediate_size = (0..num_hidden_layers)
            .find_map(|i| matrix(&format!("bert/encoder/layer_{i}/intermediate/dense/kernel")).ok())
            .map(|(_, columns)| columns)
            .ok_or_else(|| missing("bert/encoder/layer_0/intermediate/dense/kernel"))?;
        let config = BertConfig {
            vocab_size,
            hidden_size,
            num_hidden_layers,
            num_attention_heads: guess_heads(hidden_size),
            intermediate_size,
            max_position_embeddings,
            type_vocab_size,
            ..BertConfig::new(vocab_size)
        };
        Ok(Self { config, read: READ.to_vec(), guessed: vec!["num_attention_heads"] })
    }

    /// What a configuration says otherwise than the shapes; guesses and defaults are no proof.
    pub fn contradictions(&self, config: &BertConfig) -> Vec<Difference> {
        let mut all = config.diff(&self.config);
        all.retain(|difference| self.read.contains(&difference.key));
        all
    }
}

/// Heads of 64, as in all of Google's models; one head where that does not divide.
fn guess_heads(hidden_size: usize) -> usize {
    if hidden_size.is_multiple_of(64) { hidden_size / 64 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Head;
    use crate::names::expected;
    use frazil_tensor::DType;

    fn infos(config: &BertConfig) -> Vec<TensorInfo> {
        let all = expected(config, Head::Pretraining, 0).into_iter();
        all.map(|v| TensorInfo { name: v.name, dtype: DType::F32, shape: v.shape }).collect()
    }

    #[test]
    fn large_is_read_off() {
        let config = BertConfig {
            hidden_size: 1024,
            num_hidden_layers: 24,
            num_attention_heads: 16,
            intermediate_size: 4096,
            type_vocab_size: 2,
            ..BertConfig::new(30522)
        };
        let read = BertConfig::from_shapes(&infos(&config)).unwrap();
        assert_eq!(read.config, config);
        assert_eq!(read.guessed, ["num_attention_heads"]);
    }

    #[test]
    fn contradictions_are_sentences() {
        let base = BertConfig { type_vocab_size: 2, ..BertConfig::new(30522) };
        let large = BertConfig {
            hidden_size: 1024,
            num_hidden_layers: 24,
            num_attention_heads: 16,
            intermediate_size: 4096,
            hidden_dropout_prob: 0.5,
            ..base.clone()
        };
        let read = BertConfig::from_shapes(&infos(&large)).unwrap();
        let found: Vec<String> = read
            .contradictions(&base)
            .iter()
            .map(|d| d.sentence("bert_config.json says", "the variables say"))
            .collect();
        assert_eq!(
            found,
            [
                "hidden_size: bert_config.json says 768, the variables say 1024",
                "intermediate_size: bert_config.json says 3072, the variables say 4096",
                "num_hidden_layers: bert_config.json says 12, the variables say 24",
            ]
        );
        assert_eq!(base.diff(&large).len(), 5);
        assert!(base.diff(&base).is_empty());
    }

    #[test]
    fn what_is_no_bert_says_why() {
        let config = BertConfig { num_hidden_layers: 1, ..BertConfig::new(9) };
        let mut few = infos(&config);
        few.retain(|info| !info.name.contains("position"));
        let error = BertConfig::from_shapes(&few).unwrap_err().to_string();
        assert!(error.contains("bert/embeddings/position_embeddings"), "{error}");
        assert!(BertConfig::from_shapes(&[]).is_err());
    }
}
