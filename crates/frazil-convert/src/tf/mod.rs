//! TensorFlow's graphs as graphs, and back.

#[allow(dead_code, reason = "the importer that uses it is on its way")]
mod attr;
