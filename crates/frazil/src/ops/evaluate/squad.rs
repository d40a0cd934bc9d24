//! SQuAD: exact match and F1 of a `predictions.json`, by the rules of version 1.1 or 2.0.
//!
//! The report has the official scripts' keys; what they only print in passing, or not at all
//! (questions without a prediction, predictions without a question), is in it too.

use std::path::{Path, PathBuf};

use frazil_bert::metrics::squad::{Best, NullOdds, Part, Reference, read_predictions, unknown_ids};
use frazil_bert::rows::OnBadRow;
use serde::Serialize;

use crate::{Error, Result};

pub use frazil_bert::metrics::squad::Version;

/// The official script's own: a probability is never above it.
pub const THRESHOLD: f64 = 1.0;

/// How predictions are scored.
#[derive(Clone, Debug)]
pub struct Options {
    /// By whose rules; what the data are if none.
    pub version: Option<Version>,
    /// `null_odds.json`, for version 2.0.
    pub null_odds: Option<PathBuf>,
    /// With null odds: answers with odds above it count as none.
    pub threshold: f64,
    /// What is done about a question of the data that cannot be used.
    pub on_bad_row: OnBadRow,
}

impl Default for Options {
    fn default() -> Self {
        let on_bad_row = OnBadRow::Stop;
        Self { version: None, null_odds: None, threshold: THRESHOLD, on_bad_row }
    }
}

/// The scores, in percent.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Scores {
    /// Of version 1.1.
    V1 {
        /// Answers that are the same as one that people gave.
        exact_match: f64,
        /// Words in common with the most similar of those.
        f1: f64,
    },
    /// Of version 2.0.
    V2(Box<ScoresV2>),
}

/// The scores of version 2.0, under the official script's names.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the script's; see `frazil_bert::metrics::squad`")]
pub struct ScoresV2 {
    pub exact: f64,
    pub f1: f64,
    pub total: usize,
    #[serde(flatten)]
    pub has_answer: Option<HasAnswer>,
    #[serde(flatten)]
    pub no_answer: Option<NoAnswer>,
    #[serde(flatten)]
    pub best: Option<BestThresholds>,
}

/// Over the questions that have an answer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "as above")]
pub struct HasAnswer {
    #[serde(rename = "HasAns_exact")]
    pub exact: f64,
    #[serde(rename = "HasAns_f1")]
    pub f1: f64,
    #[serde(rename = "HasAns_total")]
    pub total: usize,
}

/// Over the questions that have none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "as above")]
pub struct NoAnswer {
    #[serde(rename = "NoAns_exact")]
    pub exact: f64,
    #[serde(rename = "NoAns_f1")]
    pub f1: f64,
    #[serde(rename = "NoAns_total")]
    pub total: usize,
}

/// The best that a threshold for the null odds could do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "as above")]
pub struct BestThresholds {
    pub best_exact: f64,
    pub best_exact_thresh: f64,
    pub best_f1: f64,
    pub best_f1_thresh: f64,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The official numbers.
    #[serde(flatten)]
    pub scores: Scores,
    /// By whose rules: `1.1` or `2.0`.
    pub version: &'static str,
    /// Questions in the data.
    pub questions: usize,
    /// Those without a prediction: wrong in version 1.1, left out of the count in 2.0.
    pub missing: Vec<String>,
    /// Predictions for questions that the data do not have; they count for nothing.
    pub unknown: Vec<String>,
    /// Questions of the data that could not be used, if those are left out.
    pub skipped: Vec<String>,
}

/// A file of predictions, where the questions are wanted, is easily given.
fn no_data(path: &Path, error: frazil_bert::Error) -> Error {
    use frazil_bert::Error::{InFile, MissingKey};
    match error {
        InFile { source, .. } if matches!(*source, MissingKey("data")) => Error::Usage {
            what: format!("`{}` is no SQuAD file: it has no `data`", path.display()),
            hint: "are the two the other way round? The questions come first, then the predictions"
                .into(),
        },
        other => other.into(),
    }
}

/// Scores the predictions of a file.
pub fn squad(
    data: impl AsRef<Path>,
    predictions: impl AsRef<Path>,
    options: &Options,
) -> Result<Report> {
    let data = data.as_ref();
    let reference =
        Reference::open(data, options.on_bad_row).map_err(|error| no_data(data, error))?;
    let predictions = read_predictions(predictions)?;
    let odds = options.null_odds.as_deref();
    let (version, scores, missing) = match options.version.unwrap_or_else(|| reference.version()) {
        Version::V1 if odds.is_some() => {
            return Err(Error::Usage {
                what: "version 1.1 knows no null odds: its questions all have an answer".into(),
                hint: "leave `--null-odds` out, or score by `--version 2.0`".into(),
            });
        }
        Version::V1 => {
            let score = reference.score(&predictions);
            let scores = Scores::V1 { exact_match: score.exact_match, f1: score.f1 };
            ("1.1", scores, score.missing)
        }
        Version::V2 => {
            let odds = odds.map(NullOdds::open).transpose()?;
            let score = reference.score_v2(&predictions, odds.as_ref(), options.threshold)?;
            let Part { exact, f1, total } = score.all;
            let has = |Part { exact, f1, total }| HasAnswer { exact, f1, total };
            let none = |Part { exact, f1, total }| NoAnswer { exact, f1, total };
            let best = |(exact, f1): (Best, Best)| BestThresholds {
                best_exact: exact.score,
                best_exact_thresh: exact.threshold,
                best_f1: f1.score,
                best_f1_thresh: f1.threshold,
            };
            let scores = ScoresV2 {
                exact,
                f1,
                total,
                has_answer: score.has_answer.map(has),
                no_answer: score.no_answer.map(none),
                best: score.best_exact.zip(score.best_f1).map(best),
            };
            ("2.0", Scores::V2(Box::new(scores)), score.missing)
        }
    };
    let unknown = unknown_ids(&reference, &predictions);
    Ok(Report {
        scores,
        version,
        questions: reference.len(),
        missing,
        unknown: unknown.into_iter().map(str::to_owned).collect(),
        skipped: reference.skipped().iter().map(ToString::to_string).collect(),
    })
}
