//! The model under test, as the search sees it.

use serde::{Deserialize, Serialize};

use crate::choice::{Configuration, Op};
use crate::error::Result;

/// How much of the evaluation set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// A part, quickly.
    Subset,
    /// All of it.
    Full,
}

/// What a configuration is worth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// By the metric. Of a subset: the best guess at what the full set would give. Since a subset
    /// may be easier or harder than the whole, that is the baseline of the full set plus the
    /// difference to the baseline on the same examples.
    pub accuracy: f64,
    /// Where the accuracy of the full set lies, very likely (95%).
    pub interval: Option<(f64, f64)>,
    /// Was it all of the evaluation set? It may be although a subset would have been enough.
    pub full: bool,
    /// Time of a run in milliseconds.
    pub latency_ms: f64,
    /// The same of the f32 model, measured in turn with this one.
    pub baseline_ms: f64,
    /// Size of the weights.
    pub bytes: u64,
}

impl Measured {
    /// Time, as a share of the f32 model's.
    pub fn relative_latency(&self) -> f64 {
        if self.baseline_ms > 0.0 { self.latency_ms / self.baseline_ms } else { 1.0 }
    }

    /// How many times faster than the f32 model.
    pub fn speedup(&self) -> f64 {
        if self.latency_ms > 0.0 { self.baseline_ms / self.latency_ms } else { 1.0 }
    }
}

/// A model that can be measured as any configuration says. Errors are made with
/// [`Error::subject`](crate::Error::subject); they end the search, and what was measured before
/// is in the history.
pub trait Subject {
    /// What can be in bytes, in the order of the graph.
    fn ops(&self) -> &[Op];

    /// The f32 model, on the full set.
    fn baseline(&mut self) -> Result<Measured>;

    /// What [`baseline`](Self::baseline) gave in an earlier run that is gone on with.
    fn remember_baseline(&mut self, _baseline: &Measured) {}

    /// The model as `configuration` says.
    fn measure(&mut self, configuration: &Configuration, extent: Extent) -> Result<Measured>;

    /// What each operation of `configuration` that is in bytes does alone to the final logits
    /// (mean squared difference, or anything that adds up), from one run over the calibration set.
    fn damage(&mut self, configuration: &Configuration) -> Result<Vec<(String, f64)>>;
}
