//! Graphs from files and to files: one module per format, each with what it reads and what it
//! writes.
//!
//! - [`onnx`]: ONNX, in both directions.
//! - [`openvino`]: OpenVINO's intermediate representation, in both directions.
//! - [`tf`]: TensorFlow's GraphDef, in both directions.
//! - [`summary`]: what a model of the other formats says of itself.
//!
//! What this crate leaves out: the bytes of TensorFlow's files (`frazil-tf`), what the passes do
//! in between (`frazil-graph`), and running a graph.

mod error;
pub mod onnx;
pub mod openvino;
mod range;
pub mod summary;
pub mod tf;

use std::path::PathBuf;

pub use error::{Error, Refusal, Result};

/// What to say of products whose inputs have steps of their own in every row.
fn rows_note(count: usize, target: &str) -> Option<String> {
    (count > 0).then(|| {
        format!(
            "{count} input(s) of products have steps for each row, found as the model runs: \
             {target} gets their exact numbers, and computes the products in float32; with steps \
             from calibration it computes in bytes"
        )
    })
}

/// What an exporter wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The files, the main one first.
    pub files: Vec<PathBuf>,
    /// What the user should know of them.
    pub notes: Vec<String>,
}
