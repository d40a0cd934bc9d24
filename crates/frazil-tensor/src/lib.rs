//! A typed, shaped block of bytes, owned or memory-mapped, and the two plain files that hold
//! such blocks by name: NumPy's `.npy`/`.npz` and `.safetensors`.
//!
//! A [`Tensor`] never copies what it was given: a tensor read from a checkpoint is a window on
//! the mapped file. What this crate leaves out: arithmetic (a later crate's kernels work on
//! slices), symbolic shapes (the graph's) and everything TensorFlow (`frazil-tf`).

mod dtype;
mod error;
pub mod file;
mod nearest;
pub mod npy;
pub mod safetensors;
mod shape;
mod store;
mod tensor;
#[cfg(feature = "testing")]
pub mod testing;
pub mod words;

pub use dtype::{DType, Element};
pub use error::{Error, Result};
pub use nearest::nearest;
pub use shape::Shape;
pub use store::{StoreError, TensorInfo, TensorStore};
pub use tensor::Tensor;
