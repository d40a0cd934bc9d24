//! `evaluate`: the official scores of predictions, whoever made them.
//!
//! One module for each kind of data set. Left out: making predictions.

pub mod glue;
pub mod squad;
