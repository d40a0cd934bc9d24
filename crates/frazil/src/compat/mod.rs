//! The old tools under their old names: the same flags and the same output, translated to the
//! same `frazil::ops`.

pub mod freeze_graph;
pub mod mo;
pub mod saved_model_cli;
