//! What an operation can be, and what a whole model is: the configurations that are searched.
//!
//! Names and settings only. The numbers that follow from them (scales, zeros) are found by
//! [`calibrate`](crate::calibrate) and [`weights`](crate::weights).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// In what numbers an operation is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Floats of 32 bits.
    F32,
    /// Bytes.
    Int8,
}

/// How many scales a weight has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Granularity {
    /// One for each output channel.
    Channel,
    /// One for all.
    Tensor,
}

/// How the range of numbers is chosen that bytes stand for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// All that was seen.
    MinMax,
    /// The ranges of the batches, averaged; the newest count most.
    MovingAverage,
    /// So many percent of the numbers lie inside: `99.99`.
    Percentile(f32),
    /// The least information lost: Kullback and Leibler's divergence.
    Kl,
    /// The least squared error.
    Mse,
}

impl Algorithm {
    /// All of them, as they are written; `percentile_99.9` is another percentile.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("minmax", Self::MinMax),
        ("kl", Self::Kl),
        ("mse", Self::Mse),
        ("moving_average", Self::MovingAverage),
        ("percentile", Self::Percentile(99.99)),
    ];
}

impl FromStr for Algorithm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((_, known)) = Self::NAMES.iter().find(|(name, _)| *name == text) {
            return Ok(*known);
        }
        let percent = text.strip_prefix("percentile_");
        let plain = |percent: &&str| percent.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let percent = percent.filter(plain).and_then(|percent| percent.parse::<f32>().ok());
        match percent {
            Some(percent) if percent > 50.0 && percent <= 100.0 => Ok(Self::Percentile(percent)),
            _ => {
                let names: Vec<&str> = Self::NAMES.iter().map(|(name, _)| *name).collect();
                Err(format!("algorithms are `{}`, `percentile_99.9`", names.join("`, `")))
            }
        }
    }
}

/// How the inputs of a product become bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// By a range that was found before.
    Static(Algorithm),
    /// Each row by its own range.
    Dynamic,
}

/// What one operation is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// In what numbers.
    pub precision: Precision,
    /// Scales of the weight.
    pub granularity: Granularity,
    /// How the weight's range is chosen.
    pub weight: Algorithm,
    /// How the inputs' range is chosen.
    pub activation: Activation,
}

impl Choice {
    /// Left as it is. The other settings have no meaning then, and are always the same.
    pub const F32: Self = Self {
        precision: Precision::F32,
        granularity: Granularity::Channel,
        weight: Algorithm::MinMax,
        activation: Activation::Static(Algorithm::MinMax),
    };

    /// Bytes by the extremes that were seen: the plainest.
    pub const INT8: Self = Self { precision: Precision::Int8, ..Self::F32 };

    /// Is it computed in bytes?
    pub fn is_int8(&self) -> bool {
        self.precision == Precision::Int8
    }
}

/// A model: what each operation is, and what is done to all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// By the names of the operations.
    pub ops: BTreeMap<String, Choice>,
    /// Is the mean error of the weights taken out of the biases?
    pub bias_correction: bool,
    /// The share of the inputs' outliers that the weights take over (SmoothQuant's alpha).
    pub migration: Option<f32>,
    /// The largest byte of a weight where that is not 127.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest: Option<u8>,
}

impl Configuration {
    /// How many operations are computed in bytes.
    pub fn int8_ops(&self) -> usize {
        self.ops.values().filter(|choice| choice.is_int8()).count()
    }

    /// The same numbers for the same configuration, in every run and on every machine.
    pub fn key(&self) -> String {
        let text = serde_json::to_string(self)
            .expect("a configuration has only text keys and finite numbers");
        fingerprint(text.as_bytes())
    }
}

/// Sixteen digits that tell contents apart: FNV-1a of 64 bits. Not against forgery.
pub fn fingerprint(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// What kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpKind {
    /// A product with a weight.
    Linear,
    /// The two products of attention.
    Attention,
    /// A table that rows are looked up in.
    Table,
}

/// An operation that can be computed in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Op {
    /// Its node.
    pub name: String,
    /// Its kind.
    pub kind: OpKind,
    /// How much faster a run is in microseconds if this one is in bytes.
    pub saves_us: f64,
    /// How much smaller the model is if this one is in bytes.
    pub saves_bytes: u64,
    /// What it can be, the most wanted first; [`Choice::F32`] among them if it may fall back.
    pub choices: Vec<Choice>,
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MinMax => f.write_str("minmax"),
            Self::MovingAverage => f.write_str("moving average"),
            Self::Percentile(p) => write!(f, "percentile {p}"),
            Self::Kl => f.write_str("kl"),
            Self::Mse => f.write_str("mse"),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_int8() {
            return f.write_str("f32");
        }
        let each = match self.granularity {
            Granularity::Channel => "channel",
            Granularity::Tensor => "tensor",
        };
        write!(f, "int8, weights {} per {each}, inputs ", self.weight)?;
        match self.activation {
            Activation::Static(algorithm) => write!(f, "{algorithm}"),
            Activation::Dynamic => f.write_str("by row"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_stable_and_tell_configurations_apart() {
        let mut configuration = Configuration::default();
        configuration.ops.insert("a".into(), Choice::INT8);
        let key = configuration.key();
        assert_eq!(key, "8fbc9930dba72bce", "histories on disk are found by this");
        configuration.migration = Some(0.5);
        assert_ne!(configuration.key(), key);
        configuration.migration = None;
        configuration.ops.insert("a".into(), Choice::F32);
        assert_ne!(configuration.key(), key);
    }

    #[test]
    fn a_configuration_survives_json() {
        let mut configuration = Configuration { migration: Some(0.55), ..Default::default() };
        for (name, algorithm) in [("p", Algorithm::Percentile(99.99)), ("k", Algorithm::Kl)] {
            let activation = Activation::Static(algorithm);
            configuration.ops.insert(name.into(), Choice { activation, ..Choice::INT8 });
        }
        let text = serde_json::to_string(&configuration).unwrap();
        assert_eq!(serde_json::from_str::<Configuration>(&text).unwrap(), configuration);
        assert_eq!(configuration.int8_ops(), 2);
    }
}
