//! Training on the one graph: what the loss is, how it changes with the weights, and how these
//! change in turn.
//!
//! - [`loss`]: the losses of google-research/bert, attached to its graphs.
//! - [`grad`]: the gradient of a loss, as nodes of the same graph.
//! - [`optim`], [`schedule`]: what gradients do to weights, and how much of it at which step.
//! - [`dropout`], [`recompute`]: passes over the graph before and after gradients are added.
//! - [`StepGraph`]: what a step computes, which is made once.
//! - [`trainer`]: all of it together, step after step, and what has to be stored to go on.
//! - [`mllog`]: the log that MLPerf wants of a run, and its rules.
//! - [`comm`]: the same with several processes, each with a part of every batch.
//! - [`initial`], [`batch`], [`checkpoint`], [`run`]: a whole run, from the weights that it begins with
//!   over batches of samples to the files that it leaves.
//!
//! What this crate leaves out: data sets (`frazil-bert`), evaluation, and commands (`frazil`).

pub mod batch;
pub mod checkpoint;
pub mod comm;
pub mod dropout;
mod error;
pub mod grad;
pub mod initial;
pub mod loss;
pub mod mllog;
pub mod optim;
mod recompute;
pub mod run;
pub mod schedule;
mod shard;
mod step_graph;
pub mod trainer;

pub use error::{Error, Result};
pub use grad::gradients;
pub use recompute::recompute;
pub use step_graph::StepGraph;
pub use trainer::Trainer;
