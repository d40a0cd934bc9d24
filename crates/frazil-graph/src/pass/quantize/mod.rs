//! Quantizing: which products, attentions and tables of a graph can be computed in bytes
//! ([`sites`]), and the graph that says so, for given scales ([`quantize`]).
//!
//! Where the scales come from is no concern of this pass: whoever calibrates runs a graph in which
//! the values that a [`Site`] observes are marked ([`watch`]), and puts numbers into [`Grids`].

mod rewrite;
mod sites;
mod watch;

use std::collections::{BTreeMap, BTreeSet};

use frazil_tensor::{DType, Tensor};

use crate::op::Steps;
use crate::{Error, Graph, NodeId, Result, Value};

pub use rewrite::quantize;
pub use sites::sites;
pub use watch::{watch, watched};

/// A product of fewer columns is a head: it costs little, and its result is the model's.
pub const HEAD: usize = 32;

/// A place of the graph that can be computed in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// The node of the product; of an attention that of its scores, of a table that of the lookup.
    pub name: String,
    /// What it is.
    pub kind: SiteKind,
    /// The values whose ranges matter: the rows that a product reads; queries, keys and values of
    /// an attention, before heads are split; nothing of a table.
    pub observe: Vec<Value>,
}

/// See [`Site`].
#[derive(Clone, Debug, PartialEq)]
pub enum SiteKind {
    /// A product with a constant weight.
    Linear {
        /// The weight.
        weight: Value,
        /// Columns of x.
        k: usize,
        /// Columns of the product.
        n: usize,
        /// Whether the weight is `[n, k]`.
        transposed: bool,
        /// The bias that is added to the product.
        bias: Option<Value>,
        /// Whether it makes outputs: few columns, or the last product.
        head: bool,
    },
    /// The two products of an attention.
    Attention {
        /// The node of the second product.
        context: String,
    },
    /// A table whose rows are looked up.
    Table {
        /// The table.
        table: Value,
        /// Rows.
        rows: usize,
        /// Numbers of a row.
        width: usize,
    },
}

/// The scales of everything that is to be computed in bytes, by the names of sites.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grids {
    /// Products.
    pub linears: BTreeMap<String, LinearGrid>,
    /// Attentions.
    pub attentions: BTreeMap<String, AttentionGrid>,
    /// Tables: each row has the scale of its largest number.
    pub tables: BTreeSet<String>,
}

/// The bytes of a product.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearGrid {
    /// Those of its rows: [`Steps::Tensor`], whose scale is rounded to 16 significant bits (see
    /// [`quantize`]), or [`Steps::Rows`].
    pub input: Steps,
    /// `[k]`: x is multiplied by these, and the rows of the weight are divided by them.
    pub columns: Option<Vec<f32>>,
    /// What a step of one in the weight stands for, after that division: `[n]`, or `[1]`.
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

/// The scale for each of the `n` columns of a product's weight that holds the column's largest
/// number at the byte `most`: `max |w| / most`; any where all are 0.
pub fn channel_scales(weight: &Tensor, transposed: bool, most: u8) -> Result<Vec<f32>> {
    let wrong = |source| Error::Tensor { name: "weight".to_owned(), source };
    let values = weight.values::<f32>().map_err(wrong)?;
    let &[rows, columns] = &**weight.shape() else { return Ok(Vec::new()) };
    let n = if transposed { rows } else { columns };
    let mut largest = vec![0f32; n];
    for (row, values) in values.chunks(columns.max(1)).enumerate() {
        for (column, x) in values.iter().enumerate() {
            let at = if transposed { row } else { column };
            largest[at] = largest[at].max(x.abs());
        }
    }
    let coarser = 127.0 / f32::from(most.clamp(1, 127));
    Ok(largest.into_iter().map(|largest| scale_of(largest) * coarser).collect())
}

/// The scale at which `largest` is the last step of signed bytes.
pub(super) fn scale_of(largest: f32) -> f32 {
    let scale = largest / 127.0;
    if scale.is_normal() { scale } else { 1.0 }
}

/// The nearest scale of 16 significant bits: times any whole number up to 255 it is exact, so
/// that formats which have a range in its place come back to the same scale.
fn short(scale: f32) -> f32 {
    const DROPPED: u32 = 8;
    let half = (1 << (DROPPED - 1)) - 1 + (scale.to_bits() >> DROPPED & 1);
    let short = f32::from_bits((scale.to_bits() + half) >> DROPPED << DROPPED);
    if short.is_finite() { short } else { scale }
}

/// The tensor of a constant of float32, if that is what the value is.
fn f32_constant(graph: &Graph, value: Value) -> Option<&Tensor> {
    graph.op(value).as_const().filter(|tensor| tensor.dtype() == DType::F32)
}

/// The nodes from what is read down to `to`, by their first inputs, without the one that makes it.
fn chain(graph: &Graph, mut value: Value, to: Value) -> Vec<NodeId> {
    let mut chain = Vec::new();
    while value != to && chain.len() < graph.len() {
        chain.push(value.node);
        let Some(&behind) = graph.node(value.node).inputs.first() else { break };
        value = behind;
    }
    chain
}

#[cfg(test)]
mod tests;
