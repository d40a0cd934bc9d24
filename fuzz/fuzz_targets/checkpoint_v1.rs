//! Feeds the reader of V1 checkpoints.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| frazil_fuzz::checkpoint_v1(data));
