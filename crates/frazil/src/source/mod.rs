//! Opens whatever the user has: a folder, a checkpoint prefix, an `.index`, a `.data-…`, a
//! `.meta`, a `.pb` or `.pbtxt`, a SavedModel, a zip as Google ships them, an `.npz`, a
//! `.safetensors`.
//!
//! [`locate`] finds out what a path means, by content and not by extension, and says what it
//! chose where there was a choice. [`open_weights`] goes on to named tensors, [`open_graph`] to a
//! graph with its weights in it, [`files`] finds data by patterns. What is done with them is the business of [`crate::ops`].

mod files;
mod folder;
mod graph;
mod locate;
mod unpack;
mod weights;

pub(crate) use files::place;
pub use files::{files, files_of_list, keep_apart};
pub use graph::{GraphOptions, OpenedGraph, Outputs, load_graph, open_graph, open_graph_choosing};
pub use locate::{Kind, Located, Need, locate};
pub use weights::{Options, Weights, open_weights};

pub(crate) use folder::checkpoint_of_meta;
pub(crate) use weights::store_of;
