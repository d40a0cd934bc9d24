//! Tells what is in a file.

pub mod graph;
