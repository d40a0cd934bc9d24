//! The commands: each parses its arguments, calls one of `frazil::ops`, and prints the report.

pub mod bench;
pub mod compile;
pub mod completions;
pub mod convert;
pub mod demo;
pub mod doctor;
pub mod evaluate;
mod evaluate_glue;
pub mod export_weights;
pub mod finetune;
mod flags;
pub mod graph;
mod graph_flags;
pub mod import_weights;
pub mod inspect;
pub mod man;
pub mod pack;
pub mod predict;
pub mod pretrain;
pub(crate) mod progress;
pub mod quantize;
pub mod run;
pub mod shims;
pub(crate) mod table;
pub mod tokenize;
pub mod verify;
pub mod verify_weights;
