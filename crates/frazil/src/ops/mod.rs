//! What frazil does, one module for each verb: options in, report out. Nothing here prints.

pub mod bench;
pub mod compile;
pub mod convert;
pub mod create_pretraining_data;
pub mod cut_spec;
pub mod evaluate;
pub mod export_weights;
pub mod extract_features;
pub mod freeze_graph;
pub mod graph;
pub mod hidden;
pub mod import_weights;
pub mod inspect;
pub mod minmax;
pub(crate) mod model;
pub mod pack;
pub mod predict;
pub mod quantize;
pub mod role;
pub mod run;
pub mod run_classifier;
pub mod text_model;
pub mod tokenize;
pub mod verify;
pub mod verify_weights;
