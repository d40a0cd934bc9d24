//! A tuning configuration: the YAML of Intel's LPOT 1.3, checked.
//!
//! Every key of the original is known. One that has no meaning here is not an error, but it is
//! never ignored either: [`Config::notes`] says so, and why. Everything else that is not as it
//! should be is refused with its line.
//!
//! Where frazil differs from the original, on purpose: without `tuning.strategy` the search is
//! [`Strategy::Sensitivity`]; `algorithm` also takes `moving_average`, `percentile` (99.99),
//! `percentile_99.9` and `mse`; `approach` also takes `post_training_auto_quant` (static or by
//! row, whatever suits an operation); `recipes` also takes `smooth_quant` and
//! `smooth_quant_args.alpha` of later versions.
//!
//! What a configuration means for a given model is in [`space`](crate::space).

mod deploy;
mod read;
mod wish;
mod yaml;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub use wish::{NamePattern, OpWish, Part, Wish};

use crate::error::{Error, Result};

/// A checked configuration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Config {
    /// `model`
    pub model: Model,
    /// `quantization`
    pub quantization: Quantization,
    /// `tuning`
    pub tuning: Tuning,
    /// `evaluation.accuracy`
    pub accuracy: Option<Accuracy>,
    /// `evaluation.performance`
    pub performance: Option<Performance>,
    /// Keys that are known and do nothing here.
    pub notes: Vec<Note>,
}

/// Something that the user asked for and does not get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Where it was asked for; 0 if nowhere in particular.
    pub line: u64,
    /// The key, with all keys above it.
    pub path: String,
    /// Why it does nothing.
    pub text: String,
}

/// `model`
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Model {
    /// `name`: for the name of the workspace only.
    pub name: String,
    /// `framework`: what the file is, is seen from its contents.
    pub framework: String,
    /// `inputs`: names to feed; none means those of the graph.
    pub inputs: Vec<String>,
    /// `outputs`: names to fetch; none means those of the graph.
    pub outputs: Vec<String>,
}

/// How the inputs of products become bytes, for the whole model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Approach {
    /// By ranges that were found before.
    Static,
    /// Each row by its own range.
    Dynamic,
    /// Whatever suits an operation.
    Auto,
}

/// `quantization`
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Quantization {
    /// `approach`
    pub approach: Approach,
    /// `calibration.sampling_size`: numbers of examples to calibrate with, one trial after the other.
    pub sampling_sizes: Vec<u64>,
    /// `calibration.dataloader`
    pub dataloader: Option<Dataloader>,
    /// `advance.bias_correction`
    pub bias_correction: bool,
    /// `recipes.smooth_quant_args.alpha`, if `recipes.smooth_quant`.
    pub migration: Option<f32>,
    /// `recipes.first_conv_or_matmul_quantization`: may the first product be in bytes?
    pub first_matmul: bool,
    /// `model_wise`
    pub model_wise: Wish,
    /// `op_wise`, in the order of the file: later ones narrow further.
    pub op_wise: Vec<OpWish>,
}

/// How the search goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Ours: fall-backs by damage per microsecond, few evaluations.
    Sensitivity,
    /// The original's default: kinds of operations first, then fall-backs one by one.
    Basic,
    /// Everything.
    Exhaustive,
    /// Anything.
    Random,
    /// Like `Basic`, with fall-backs ordered by the damage that each operation does.
    Mse,
    /// A Gaussian process.
    Bayesian,
    /// Parzen estimators.
    Tpe,
}

impl Strategy {
    /// All of them, as they are written.
    pub const NAMES: [(&'static str, Self); 7] = [
        ("basic", Self::Basic),
        ("bayesian", Self::Bayesian),
        ("exhaustive", Self::Exhaustive),
        ("mse", Self::Mse),
        ("random", Self::Random),
        ("tpe", Self::Tpe),
        ("sensitivity", Self::Sensitivity),
    ];
}

/// How much may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Criterion {
    /// Of the baseline: 0.01 is one percent.
    Relative(f64),
    /// In points of the metric.
    Absolute(f64),
}

/// What is to be small, once the accuracy is good enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// Latency.
    Performance,
    /// Memory: what the weights take, which is nearly all of it.
    Footprint,
    /// The file.
    Modelsize,
}

impl Objective {
    /// All of them, as they are written.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("performance", Self::Performance),
        ("footprint", Self::Footprint),
        ("modelsize", Self::Modelsize),
    ];
}

/// `tuning`
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tuning {
    /// `strategy.name`
    pub strategy: Strategy,
    /// `strategy.accuracy_weight`: what a missed goal costs (`bayesian`, `tpe`).
    pub accuracy_weight: f64,
    /// `strategy.latency_weight`: what speed is worth (`bayesian`, `tpe`).
    pub latency_weight: f64,
    /// `accuracy_criterion.relative` or `.absolute`
    pub criterion: Criterion,
    /// `accuracy_criterion.higher_is_better`
    pub higher_is_better: bool,
    /// `objective`
    pub objective: Objective,
    /// `exit_policy.timeout` in seconds; 0: until the goal is met.
    pub timeout: u64,
    /// `exit_policy.max_trials`
    pub max_trials: usize,
    /// `exit_policy.performance_only`
    pub performance_only: bool,
    /// `random_seed`
    pub random_seed: u64,
    /// `workspace.path`
    pub workspace: String,
    /// `workspace.resume`: the history to go on with.
    pub resume: Option<String>,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            strategy: Strategy::Sensitivity,
            accuracy_weight: 1.0,
            latency_weight: 1.0,
            criterion: Criterion::Relative(0.01),
            higher_is_better: true,
            objective: Objective::Performance,
            timeout: 0,
            max_trials: 100,
            performance_only: false,
            random_seed: 1978,
            workspace: "./lpot_workspace/".into(),
            resume: None,
        }
    }
}

/// Something with a name and settings: a metric, a data set, a transform.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// Its settings, as they stand.
    pub settings: serde_json::Value,
    /// Where it stands.
    #[serde(skip)]
    pub line: u64,
}

/// `dataloader`
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Dataloader {
    /// `batch_size`
    pub batch_size: u64,
    /// Is a last batch left out that is not full? (`last_batch: discard`)
    pub discard_last: bool,
    /// `dataset`
    pub dataset: Option<Named>,
}

/// `configs`: how many run at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Instances {
    /// `cores_per_instance`
    pub cores: Option<u64>,
    /// `num_of_instance`
    pub instances: Option<u64>,
    /// `intra_num_of_threads`
    pub threads: Option<u64>,
}

/// `evaluation.accuracy`
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Accuracy {
    /// `metric`
    pub metric: Option<Named>,
    /// `configs`
    pub instances: Instances,
    /// `dataloader`
    pub dataloader: Option<Dataloader>,
    /// `postprocess.transform`
    pub postprocess: Vec<Named>,
}

/// `evaluation.performance`
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Performance {
    /// `warmup`: runs that are not counted.
    pub warmup: u64,
    /// `iteration`: runs that are; none: the whole data set.
    pub iterations: Option<u64>,
    /// `configs`
    pub instances: Instances,
    /// `dataloader`
    pub dataloader: Option<Dataloader>,
    /// `postprocess.transform`
    pub postprocess: Vec<Named>,
}

impl Config {
    /// Reads a file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|e| Error::io("read", path, e))?;
        let text = String::from_utf8(bytes).map_err(|e| {
            let line = e.as_bytes()[..e.utf8_error().valid_up_to()]
                .iter()
                .filter(|&&byte| byte == b'\n')
                .count();
            Error::Yaml { line: line as u64 + 1, column: 0, reason: "this is not UTF-8".into() }
                .in_file(path)
        })?;
        Self::parse(&text).map_err(|e| e.in_file(path))
    }

    /// Reads text.
    pub fn parse(text: &str) -> Result<Self> {
        read::config(text)
    }
}

/// What holds if no file says otherwise.
impl Default for Config {
    fn default() -> Self {
        Self {
            model: Model {
                name: "bert".into(),
                framework: "tensorflow".into(),
                inputs: Vec::new(),
                outputs: Vec::new(),
            },
            quantization: Quantization::default(),
            tuning: Tuning::default(),
            accuracy: None,
            performance: None,
            notes: Vec::new(),
        }
    }
}

impl Quantization {
    /// For engines that want the ranges of inputs beforehand. One range for all rows has to hold their
    /// outliers; weights have a range for each column, and bear them better. How much of them is
    /// carried over was chosen on a model for SQuAD, by how many of its answers change: 58 of 500
    /// without, 80, 51, 45 and 42 with 0.5, 0.7, 0.8 and 0.9.
    pub fn beforehand() -> Self {
        Self { approach: Approach::Static, migration: Some(0.85), ..Self::default() }
    }
}

impl Default for Quantization {
    fn default() -> Self {
        Self {
            approach: Approach::Auto,
            sampling_sizes: vec![100],
            dataloader: None,
            bias_correction: true,
            migration: None,
            first_matmul: true,
            model_wise: Wish::default(),
            op_wise: Vec::new(),
        }
    }
}
