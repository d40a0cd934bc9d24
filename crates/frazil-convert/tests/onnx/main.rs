//! ONNX both ways: what is written, what is read, and that a graph computes the same after the
//! journey. `conformance` can leave its files for a real engine to run.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod cases;
mod conformance;
mod read;
mod sketch;
mod written;
