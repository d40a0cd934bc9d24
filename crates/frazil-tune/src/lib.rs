//! int8 under an accuracy goal: what operations can be, what numbers they get, and the search.
//!
//! - [`config`]: the YAML of recipe 5, checked.
//! - [`choice`]: what one operation can be, and what a whole model is.
//! - [`calibrate`]: from the numbers that flow through a model to ranges for bytes.
//! - [`weights`]: scales of weights, migration, bias correction.
//! - [`space`], [`tuner`], [`history`]: the search.
//! - [`recipe`]: a model once more, without a search.
//!
//! The numbers go into [`frazil_graph::pass::quantize::Grids`].
//!
//! This crate knows no file of a model and no task of BERT's.

pub mod calibrate;
pub mod choice;
pub mod config;
pub mod dice;
mod error;
pub mod history;
pub mod recipe;
mod search;
pub mod space;
pub mod tuner;
pub mod weights;

pub use choice::{
    Activation, Algorithm, Choice, Configuration, Granularity, Op, OpKind, Precision,
};
pub use config::Config;
pub use error::{Error, Result};
pub use history::{History, Identity, Resume};
pub use recipe::Recipe;
pub use space::Space;
pub use tuner::{
    Event, Extent, Goal, Measured, Outcome, Settings, Stop, Subject, Trial, Verdict, tune,
};
