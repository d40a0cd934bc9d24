//! Feeds the reader of V2 checkpoints with an index.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| frazil_fuzz::bundle(data));
