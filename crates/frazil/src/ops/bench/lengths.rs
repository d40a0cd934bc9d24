//! How long the sequences of a measurement are: as in a file, or as in data sets that people have.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde_json::Value;

use crate::{Error, Result};

/// Where lengths come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Lengths {
    /// Questions with passages, 384 at most.
    Squad,
    /// Pairs of sentences, 128 at most.
    Mrpc,
    /// Logarithms around that of `median`, normally distributed.
    LogNormal {
        /// Half of the sequences are shorter.
        median: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
        /// The longest.
        most: usize,
    },
    /// Numbers in a text file, or a list in a JSON file (under a key, if one is named).
    File(PathBuf, Option<String>),
}

const HELP: &str =
    "give `squad`, `mrpc`, `lognormal:MEDIAN,SIGMA[,MOST]`, a file of numbers, or `FILE.json:KEY`";

impl FromStr for Lengths {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::Usage { what: format!("`{text}` are no lengths"), hint: HELP.into() };
        if let Some(numbers) = text.strip_prefix("lognormal:") {
            let parts: Vec<&str> = numbers.split(',').collect();
            let number = |i: usize| -> Option<f64> { parts.get(i)?.trim().parse().ok() };
            let (Some(median), Some(sigma)) = (number(0), number(1)) else { return Err(wrong()) };
            let most = match parts.get(2) {
                Some(most) => most.trim().parse().map_err(|_| wrong())?,
                None => 512,
            };
            if !(median >= 1.0 && (0.0..=4.0).contains(&sigma) && most > 0 && parts.len() <= 3) {
                return Err(wrong());
            }
            return Ok(Self::LogNormal { median, sigma, most });
        }
        Ok(match text {
            "squad" => Self::Squad,
            "mrpc" => Self::Mrpc,
            _ => match text.rsplit_once(':') {
                Some((file, key)) if file.ends_with(".json") => {
                    Self::File(file.into(), Some(key.to_owned()))
                }
                _ => Self::File(text.into(), None),
            },
        })
    }
}

impl Lengths {
    /// The lengths: `count` of them, or all that a file has. Always the same ones.
    pub fn draw(&self, count: usize) -> Result<Vec<usize>> {
        Ok(match self {
            Self::Squad => log_normal(160.0, 0.38, 384, count),
            Self::Mrpc => log_normal(52.0, 0.28, 128, count),
            Self::LogNormal { median, sigma, most } => log_normal(*median, *sigma, *most, count),
            Self::File(path, key) => read(path, key.as_deref())?,
        })
    }
}

/// Quantiles rather than draws, so that few sequences have the shape of many, in a mixed order.
fn log_normal(median: f64, sigma: f64, most: usize, count: usize) -> Vec<usize> {
    let quantile = |i: usize| {
        // A step that has no divisor in common with the count visits every quantile once.
        let step = (1..).map(|k| count * 5 / 8 + k).find(|&step| gcd(step, count) == 1);
        let i = i * step.unwrap_or(1) % count;
        let z = normal_quantile((i as f64 + 0.5) / count as f64);
        let length = (median * (sigma * z).exp()).round() as usize;
        length.clamp(2.min(most), most)
    };
    (0..count).map(quantile).collect()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Below which a standard normal number lies with probability `p`, by bisection.
fn normal_quantile(p: f64) -> f64 {
    let (mut low, mut high) = (-8.0, 8.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if below(middle) < p { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// The probability that a standard normal number is below `z`: Simpson's rule from 0 to `z`.
fn below(z: f64) -> f64 {
    let density = |x: f64| (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let (steps, width) = (200, z / 200.0);
    let weight = |i: usize| if i == 0 || i == steps { 1.0 } else { 2.0 + 2.0 * (i % 2) as f64 };
    let sum: f64 = (0..=steps).map(|i| weight(i) * density(i as f64 * width)).sum();
    0.5 + sum * width / 3.0
}

fn read(path: &Path, key: Option<&str>) -> Result<Vec<usize>> {
    let wrong = |what: String| Error::Usage {
        what: format!("`{}`: {what}", path.display()),
        hint: HELP.into(),
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let lengths: Option<Vec<usize>> = if path.extension().is_some_and(|end| end == "json") {
        let value: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let list = match key {
            Some(key) => value.get(key).ok_or_else(|| wrong(format!("there is no `{key}`")))?,
            None => &value,
        };
        let number = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok());
        list.as_array().and_then(|list| list.iter().map(number).collect())
    } else {
        let words = text.split(|c: char| c.is_whitespace() || c == ',');
        words.filter(|word| !word.is_empty()).map(|word| word.parse().ok()).collect()
    };
    match lengths {
        Some(lengths) if !lengths.is_empty() && !lengths.contains(&0) => Ok(lengths),
        _ => Err(wrong("no list of lengths above 0".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_quantiles_are_like_the_whole() {
        let lengths = Lengths::Squad.draw(64).unwrap();
        let mean = lengths.iter().sum::<usize>() as f64 / 64.0;
        assert!((165.0..180.0).contains(&mean), "{mean}"); // SQuAD's features: 172
        assert!(lengths.iter().all(|length| (40..=384).contains(length)));
        let mut sorted = lengths.clone();
        sorted.sort_unstable();
        assert_ne!(sorted, lengths);
        assert!(sorted[31].abs_diff(160) <= 4);
    }

    #[test]
    fn files_and_mistakes() {
        let dir = tempfile::tempdir().unwrap();
        let text = dir.path().join("lengths.txt");
        std::fs::write(&text, "3 5\n8, 2").unwrap();
        let json = dir.path().join("lengths.json");
        std::fs::write(&json, r#"{"w5": [4, 9]}"#).unwrap();
        let read = |name: &str| name.parse::<Lengths>().and_then(|lengths| lengths.draw(1));
        assert_eq!(read(text.to_str().unwrap()).unwrap(), [3, 5, 8, 2]);
        assert_eq!(read(&format!("{}:w5", json.display())).unwrap(), [4, 9]);
        assert!(read(&format!("{}:w6", json.display())).unwrap_err().to_string().contains("`w6`"));
        for wrong in ["lognormal:", "lognormal:10", "lognormal:10,9", "lognormal:10,1,0", "no/file"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert_eq!(read("lognormal:30,0,16").unwrap(), [16]);
    }
}
