//! The old tools under their old names: the same flags and the same output, translated to the
//! same `frazil::ops`.

#[allow(dead_code, reason = "the programs that use all of it follow")]
pub mod absl;
pub mod freeze_graph;
pub mod mo;
pub mod saved_model_cli;
