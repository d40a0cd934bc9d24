//! The numbers that bytes stand for, by operation: what a pass over the graph needs.

use std::collections::{BTreeMap, BTreeSet};

/// Numbers on the steps of bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Steps {
    /// Unsigned bytes, with one scale and zero for all.
    Tensor {
        /// What a step of one stands for.
        scale: f32,
        /// The byte that stands for 0.
        zero: u8,
    },
    /// Unsigned bytes; each row has a scale and a zero of its own.
    Rows,
    /// Signed bytes, with one scale for all.
    Symmetric {
        /// What a step of one stands for.
        scale: f32,
    },
}

/// All numbers, by the names of operations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grids {
    /// Products.
    pub linears: BTreeMap<String, LinearGrid>,
    /// Attentions.
    pub attentions: BTreeMap<String, AttentionGrid>,
    /// Tables.
    pub tables: BTreeSet<String>,
}

/// The bytes of a product.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearGrid {
    /// Those of its rows.
    pub input: Steps,
    /// `[k]`: x is multiplied by these, and the rows of the weight are divided by them.
    pub columns: Option<Vec<f32>>,
    /// `[n]`, or `[1]`: what a step of one in the weight stands for, after that division.
    pub scales: Vec<f32>,
    /// `[n]`, added to the bias.
    pub correction: Option<Vec<f32>>,
}

/// The bytes of an attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionGrid {
    /// Scale and zero of the queries.
    pub q: (f32, u8),
    /// Scale of the keys.
    pub k: f32,
    /// Scale of the values.
    pub v: f32,
}
