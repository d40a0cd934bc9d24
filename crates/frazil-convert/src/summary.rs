//! What a model of another format says of itself, read off its file before any import: it must
//! work for operations that nothing else in frazil knows.

use std::collections::BTreeMap;

/// A model's own words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The model's name.
    pub name: String,
    /// The version of the format.
    pub version: i64,
    /// Who wrote it, with a version.
    pub producer: Option<String>,
    /// Operation sets and their versions; the first has no name where it is the format's own.
    pub opsets: Vec<(String, i64)>,
    /// What must be fed.
    pub inputs: Vec<End>,
    /// What it computes.
    pub outputs: Vec<End>,
    /// Its constants.
    pub weights: Vec<Weight>,
    /// Operations with their counts, constants and ends left out.
    pub ops: BTreeMap<String, usize>,
    /// Files beside it that hold weights.
    pub beside: Vec<String>,
}

/// An input or output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// What callers know it by.
    pub name: String,
    /// `float32` and so on.
    pub dtype: String,
    /// Extents, numbers or names, `?` where nothing is known; `None` if the rank is not known.
    pub shape: Option<Vec<String>>,
}

/// A constant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Its name.
    pub name: String,
    /// `float32` and so on.
    pub dtype: String,
    /// Extents.
    pub shape: Vec<i64>,
}

impl Summary {
    pub(crate) fn count(&mut self, op: impl Into<String>) {
        *self.ops.entry(op.into()).or_default() += 1;
    }
}
