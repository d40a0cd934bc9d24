//! ONNX's messages as Rust types, generated from `proto/onnx.proto` by `cargo xtask codegen`;
//! byte fields are windows on the buffer they were decoded from.

#[allow(
    missing_docs,
    clippy::doc_markdown,
    clippy::large_enum_variant,
    clippy::enum_variant_names,
    unused_qualifications,
    reason = "generated"
)]
#[rustfmt::skip]
mod onnx;

#[allow(dead_code, reason = "generated")]
#[rustfmt::skip]
mod schema;

pub use onnx::*;
