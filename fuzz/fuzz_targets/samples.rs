//! Feeds the readers of samples: records, packs and MLPerf's binaries.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| frazil_fuzz::parsers::samples(data));
