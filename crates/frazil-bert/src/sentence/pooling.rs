//! From the rows of a sequence to one vector: the poolings of sentence-transformers, as its files
//! name them, and what may follow.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use frazil_tensor::file;
use serde_json::{Map, Value};

use super::Dense;
use crate::{Error, Result};

/// How the rows of a sequence become one vector. All rows count, `[CLS]` and `[SEP]` too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The first row, that of `[CLS]`.
    Cls,
    /// The largest value of each column.
    Max,
    /// The mean of each column.
    Mean,
    /// The sum of each column by the root of the number of rows.
    MeanSqrtLen,
    /// The mean of each column, where row `i` counts `i + 1` times.
    WeightedMean,
    /// The last row.
    LastToken,
}

impl Pooling {
    /// In the order in which several are joined, with the keys and names of the files.
    const ALL: [(Self, &'static str, &'static str); 6] = [
        (Self::Cls, "pooling_mode_cls_token", "cls"),
        (Self::Max, "pooling_mode_max_tokens", "max"),
        (Self::Mean, "pooling_mode_mean_tokens", "mean"),
        (Self::MeanSqrtLen, "pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"),
        (Self::WeightedMean, "pooling_mode_weightedmean_tokens", "weightedmean"),
        (Self::LastToken, "pooling_mode_lasttoken", "lasttoken"),
    ];

    /// The name that sentence-transformers has for it.
    pub fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(pooling, ..)| *pooling == self);
        found.map_or("", |(.., name)| name)
    }

    /// Adds the vector of `rows: [t, h]` to `out`. Without a row it is zeros.
    fn add(self, rows: &[f32], h: usize, out: &mut Vec<f32>) {
        let begin = out.len();
        out.resize(begin + h, 0.0);
        let vector = &mut out[begin..];
        let count = rows.len() / h.max(1);
        if count == 0 {
            return;
        }
        let divided_by = match self {
            Self::Cls => return vector.copy_from_slice(&rows[..h]),
            Self::LastToken => return vector.copy_from_slice(&rows[(count - 1) * h..count * h]),
            Self::Max => {
                vector.fill(f32::NEG_INFINITY);
                for row in rows.chunks_exact(h) {
                    vector.iter_mut().zip(row).for_each(|(most, x)| *most = most.max(*x));
                }
                return;
            }
            Self::Mean => count as f32,
            Self::MeanSqrtLen => (count as f32).sqrt(),
            Self::WeightedMean => (count * (count + 1) / 2) as f32,
        };
        for (i, row) in rows.chunks_exact(h).enumerate() {
            let weight = if self == Self::WeightedMean { (i + 1) as f32 } else { 1.0 };
            vector.iter_mut().zip(row).for_each(|(sum, x)| *sum += weight * x);
        }
        vector.iter_mut().for_each(|sum| *sum /= divided_by);
    }
}

impl fmt::Display for Pooling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Pooling {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let lower = name.to_ascii_lowercase();
        let found = Self::ALL.iter().find(|(.., known)| *known == lower);
        found.map(|(pooling, ..)| *pooling).ok_or_else(|| Error::UnknownPooling(name.to_owned()))
    }
}

/// What is done with the vector.
#[derive(Clone, Debug)]
pub enum After {
    /// Its length becomes 1.
    Normalize,
    /// It goes through a dense layer.
    Dense(Dense),
}

/// Below this length a vector is not made longer: the constant of PyTorch's `normalize`.
const LEAST_LENGTH: f32 = 1e-12;

/// From rows to a vector.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The vectors of all of them are joined.
    pub pooling: Vec<Pooling>,
    /// In this order.
    pub after: Vec<After>,
}

impl Recipe {
    /// The vector of `rows: [t, h]`.
    pub fn embed(&self, rows: &[f32], h: usize) -> Result<Vec<f32>> {
        let mut vector = Vec::with_capacity(h * self.pooling.len());
        self.pool(rows, h, &mut vector);
        self.finish(vector)
    }

    /// Adds what the poolings make of `rows: [t, h]` to a vector.
    pub fn pool(&self, rows: &[f32], h: usize, vector: &mut Vec<f32>) {
        self.pooling.iter().for_each(|pooling| pooling.add(rows, h, vector));
    }

    /// What becomes of a vector that is there already.
    pub fn finish(&self, mut vector: Vec<f32>) -> Result<Vec<f32>> {
        for step in &self.after {
            match step {
                After::Normalize => {
                    let sum: f32 = vector.iter().map(|x| x * x).sum();
                    let length = sum.sqrt().max(LEAST_LENGTH);
                    vector.iter_mut().for_each(|x| *x /= length);
                }
                After::Dense(dense) => vector = dense.apply(&vector)?,
            }
        }
        Ok(vector)
    }

    /// In words: `mean, normalised`.
    pub fn describe(&self) -> String {
        let names: Vec<&str> = self.pooling.iter().map(|pooling| pooling.name()).collect();
        let mut text = names.join(" and ");
        for step in &self.after {
            text.push_str(match step {
                After::Normalize => ", normalised",
                After::Dense(_) => ", a dense layer",
            });
        }
        text
    }
}

/// The `config.json` of a module `Pooling`.
pub(super) fn read(path: &Path) -> Result<Vec<Pooling>> {
    let bytes = file::map(path)?;
    let config: Map<String, Value> =
        serde_json::from_slice(&bytes).map_err(|e| Error::from(e).in_file(path))?;
    of_config(&config).map_err(|error| error.in_file(path))
}

/// `pooling_mode` goes before the flags; without either it is the mean.
fn of_config(config: &Map<String, Value>) -> Result<Vec<Pooling>> {
    let key = "pooling_mode";
    let expected = "a pooling's name, or a list of them";
    let wrong = |value: &Value| Error::Value { key, expected, found: value.to_string() };
    let named = match config.get(key) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(name)) => vec![name.parse()?],
        Some(list @ Value::Array(names)) => {
            let parse = |name: &Value| name.as_str().ok_or_else(|| wrong(list))?.parse();
            names.iter().map(parse).collect::<Result<_>>()?
        }
        Some(other) => return Err(wrong(other)),
    };
    if !named.is_empty() {
        return Ok(named);
    }
    let mut found = Vec::new();
    for (pooling, key, _) in Pooling::ALL {
        let on = match config.get(key) {
            None => pooling == Pooling::Mean,
            Some(Value::Bool(on)) => *on,
            Some(other) => {
                return Err(Error::Value {
                    key,
                    expected: "true or false",
                    found: other.to_string(),
                });
            }
        };
        found.extend(on.then_some(pooling));
    }
    if found.is_empty() {
        let expected = "true for at least one mode";
        return Err(Error::Value { key: "pooling_mode_…", expected, found: "false".into() });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pooled(pooling: Pooling) -> Vec<f32> {
        let recipe = Recipe { pooling: vec![pooling], after: Vec::new() };
        recipe.embed(&[1.0, -8.0, 3.0, -2.0, 8.0, -2.0], 2).unwrap()
    }

    #[test]
    fn each_pooling_by_hand() {
        assert_eq!(pooled(Pooling::Cls), [1.0, -8.0]);
        assert_eq!(pooled(Pooling::Max), [8.0, -2.0]);
        assert_eq!(pooled(Pooling::Mean), [4.0, -4.0]);
        let root = 3f32.sqrt();
        assert_eq!(pooled(Pooling::MeanSqrtLen), [12.0 / root, -12.0 / root]);
        assert_eq!(pooled(Pooling::WeightedMean), [31.0 / 6.0, -3.0]);
        assert_eq!(pooled(Pooling::LastToken), [8.0, -2.0]);
    }

    #[test]
    fn several_are_joined_and_normalised() {
        let recipe =
            Recipe { pooling: vec![Pooling::Cls, Pooling::Mean], after: vec![After::Normalize] };
        let vector = recipe.embed(&[0.0, 6.0, 0.0, 10.0], 2).unwrap();
        assert_eq!(vector, [0.0, 0.6, 0.0, 0.8]);
        assert_eq!(recipe.describe(), "cls and mean, normalised");
        // Nothing to divide by.
        assert_eq!(recipe.embed(&[0.0; 4], 2).unwrap(), [0.0; 4]);
        assert_eq!(recipe.embed(&[], 2).unwrap(), [0.0; 4]);
    }

    #[test]
    fn what_the_files_say() {
        let read = |config: Value| of_config(config.as_object().unwrap());
        assert_eq!(read(json!({})).unwrap(), [Pooling::Mean]);
        let bge = json!({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false});
        assert_eq!(read(bge).unwrap(), [Pooling::Cls]);
        let both = json!({"pooling_mode_max_tokens": true, "pooling_mode_mean_tokens": true});
        assert_eq!(read(both).unwrap(), [Pooling::Max, Pooling::Mean]);
        let new = json!({"embedding_dimension": 4, "pooling_mode": ["max", "cls"]});
        assert_eq!(read(new).unwrap(), [Pooling::Max, Pooling::Cls]);
        for (config, message) in [
            (json!({"pooling_mode": "median"}), "`median`"),
            (json!({"pooling_mode": 1}), "`pooling_mode`"),
            (json!({"pooling_mode_mean_tokens": false}), "at least one"),
            (json!({"pooling_mode_cls_token": "yes"}), "`pooling_mode_cls_token`"),
        ] {
            let error = read(config).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
