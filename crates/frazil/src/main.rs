//! The `frazil` binary.
fn main() {}
