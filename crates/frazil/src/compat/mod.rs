//! The old tools under their old names: the same flags and the same output, translated to the
//! same `frazil::ops`.

pub mod absl;
pub mod casing;
pub mod create_pretraining_data;
pub mod create_tf_record;
pub mod extract_features;
pub mod freeze_graph;
pub mod mo;
pub mod pack_pretraining_data;
pub mod run_classifier;
pub mod run_pretraining;
pub mod run_squad;
pub mod saved_model_cli;
mod training_log;
pub mod tune_squad;
