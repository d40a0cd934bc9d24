//! Feeds `onnx` of the parsers that `cargo test` damages files for.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| frazil_fuzz::parsers::onnx(data));
