//! frazil takes a BERT that was trained with TensorFlow 1 from checkpoint to production,
//! without TensorFlow.
//!
//! This crate is the front door. [`source`] opens whatever the user has: a checkpoint, a graph,
//! a SavedModel, a folder, a zip. Each function in [`ops`] takes that and an options struct and
//! returns a report that serializes, so a library user gets all that the command line shows. The
//! layers below are re-exported: [`tensor`], [`tf`], [`mod@graph`], [`convert`], [`runtime`], [`bert`],
//! [`tune`].

mod error;
pub mod ops;
pub mod page;
pub mod source;

pub use error::{Error, Result};
pub use frazil_bert as bert;
pub use frazil_convert as convert;
pub use frazil_graph as graph;
pub use frazil_kernels as kernels;
pub use frazil_runtime as runtime;
pub use frazil_tensor as tensor;
pub use frazil_tf as tf;
pub use frazil_train as train;
pub use frazil_tune as tune;

/// The commit that a release build was made of.
pub fn commit() -> Option<&'static str> {
    option_env!("FRAZIL_COMMIT").filter(|commit| !commit.is_empty())
}

/// The Rust in the documents compiles.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/concepts/engine.md")]
    mod engine {}
    #[doc = include_str!("../../../docs/guides/embed.md")]
    mod embed {}
    #[doc = include_str!("../../../docs/guides/pack.md")]
    mod pack {}
    #[doc = include_str!("../../../docs/guides/tokenize.md")]
    mod tokenize {}
    #[doc = include_str!("../../../docs/guides/answer.md")]
    mod answer {}
}
