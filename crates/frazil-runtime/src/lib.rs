//! Runs a graph: what the outputs need is planned once, then computed step by step.
//!
//! - [`Session`]: a graph that is ready to run, and how inputs are checked;
//! - [`Execution`]: one run, which can be watched node by node;
//! - [`Plan`]: which nodes, in which order, and when a value is no longer needed.
//!
//! These are the reference: plain kernels, one thread, a fresh block of memory for every value.
//!
//! - [`Engine`]: the fast path, with packed batches, planned memory and threads.

mod engine;
mod error;
mod execution;
mod feed;
mod ops;
mod plan;
mod session;

pub use engine::{
    Engine, EngineOptions, OutputRows, Outputs, Packed, PackedPart, PackedWeights, Parameters,
    StepTime, Watched, Worker, default_threads, raise,
};
pub use error::{Error, Result};
pub use execution::Execution;
pub use feed::{Feed, Inputs};
pub use plan::{Plan, Step};
pub use session::{Options, Run, Session};
