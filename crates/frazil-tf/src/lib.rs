//! Everything TensorFlow writes to disk, read and written without TensorFlow: checkpoints of
//! both versions, graphs, MetaGraphs, SavedModels, TFRecords, Examples and event files, as
//! binary and, where TensorFlow has it, as text.
//!
//! Reading is lazy and on mapped memory: listing a checkpoint reads its index only, and a
//! tensor or a large constant is a window on the file. Checksums are checked. Bytes that do
//! not make sense are an [`Error`] that says where, never a panic and never an allocation that
//! the file's own size does not justify. What this crate leaves out: what the variables mean
//! (`frazil-bert`) and what a graph computes (later crates).

pub mod archive;
pub mod bundle;
pub mod checkpoint;
pub mod checkpoint_state;
mod checkpoint_v1;
mod crc;
pub mod decode;
pub mod dtype;
mod error;
pub mod events;
pub mod example;
pub mod graph_def;
mod message_file;
pub mod meta_graph;

pub mod pbtxt;
pub mod proto;
pub mod saved_model;
pub mod schema;
pub mod slice;
pub mod sniff;
pub mod sstable;
pub mod tensor_proto;
pub mod tfrecord;
mod varint;
mod wire;

pub use error::{Error, Result};
pub use frazil_tensor::nearest;
