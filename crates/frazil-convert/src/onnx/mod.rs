//! ONNX: models written for ONNX Runtime and whatever else reads them, and read back.
//!
//! - [`export`]: a frozen graph as `.onnx`, weights in it or, where they are too large for one
//!   message, beside it.
//! - [`import`]: what we write, and what PyTorch, Optimum and tf2onnx write for BERTs.
//!
//! Operations are mapped exactly: where ONNX's operation of the same name means something else
//! (truncation, wrapping of negative indices, axes), it is put together from others. Left out:
//! control flow, functions, sequences, sparse tensors, training.

mod dtype;
mod export;
mod import;
pub mod proto;
mod summary;

pub use export::{ExportOptions, OPSETS, export};
pub use import::{decode, import, looks_like};
pub use summary::summarise;

/// The format's name in messages.
pub(crate) const TARGET: &str = "ONNX";
