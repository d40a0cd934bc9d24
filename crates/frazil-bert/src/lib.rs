//! What makes a model a BERT: its configuration, its variables' names and shapes, its heads.
//!
//! - [`config`]: `bert_config.json`, Hugging Face's `config.json`, and what the shapes of the
//!   variables say of either.
//! - [`names`]: which variables each head needs, what optimizers leave beside them, and the
//!   plans that carry weights from one naming to another.
//! - [`mod@build`]: the graph of a BERT from its configuration alone.
//! - [`tokenizer`]: text to word pieces.
//! - [`tokenizer_files`]: the vocabulary as Hugging Face's tokenizers read it.
//! - [`features`]: word pieces to what the model is fed with.
//! - [`pretrain_data`]: text to masked pairs of sentences, as BERT was pre-trained on them.
//! - [`packing`]: several sequences in the length of one.
//! - [`samples`]: what is trained and evaluated on, alone and in packs: files and batches.
//! - [`glue`], [`squad`]: the data sets, their features, and what becomes of the model's answers.
//! - [`metrics`]: the official scores.
//! - [`sentence`]: models of sentence-transformers: from rows to one vector.
//! - [`inventory`]: what a file of weights holds, what it lacks and what nobody asked for.
//!
//! Everything here works on names, types and shapes; a weight's value is looked at only when a
//! plan is carried out, one tensor at a time. What this crate leaves out: file formats
//! (`frazil-tf`, `frazil-tensor`) and the commands (`frazil`).

pub mod build;
pub mod config;
mod error;
pub mod features;
pub mod glue;
pub mod inventory;
pub mod metrics;
pub mod names;
pub mod packing;
pub mod pretrain_data;
pub mod python;
pub mod rows;
pub mod samples;
pub mod sentence;
mod spool;
pub mod squad;
pub mod tokenizer;
pub mod tokenizer_files;

pub use config::BertConfig;
pub use error::{Error, Result};
pub use inventory::Inventory;
pub use names::Head;
