//! Feeds the readers of vocabularies, and cuts the file by its own.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| frazil_fuzz::parsers::vocabulary(data));
