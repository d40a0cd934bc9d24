//! The graph: every model, whatever it was read from, as typed operations on named values.
//!
//! - [`Graph`], [`Node`], [`Op`]: the model itself; [`Graph::check`] says whether it is one.
//! - [`Dim`], [`Fact`], [`infer`]: what is known of every value, with symbolic extents.
//! - [`mod@pass`]: what changes a graph: cutting, freezing, folding, reshaping, fusing.
//! - [`pattern`]: formulas to look for; a fusion reads like the formula that it finds.
//! - [`dump`]: the graph as text that does not change from run to run.
//!
//! What this crate leaves out: files (`frazil-convert`) and arithmetic on tensors
//! (`frazil-kernels`, `frazil-runtime`).

pub mod dim;
mod dump;
mod error;
mod fact;
mod graph;
mod infer;
pub mod op;
pub mod pass;
pub mod pattern;
#[cfg(test)]
mod testing;

pub use dim::{Dim, Sizes, Symbol};
pub use dump::{attributes, dump};
pub use error::{Error, Result};
pub use fact::{Fact, Facts};
pub use graph::{Graph, Node, NodeId, Port, Value};
pub use infer::infer;
pub use op::Op;
