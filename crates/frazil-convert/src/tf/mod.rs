//! TensorFlow's graphs as [`Graph`](frazil_graph::Graph)s, and back.
//!
//! [`import`](import()) has one table from TensorFlow's operations to ours; whatever is not in it
//! stays [`Op::Foreign`](frazil_graph::Op::Foreign) with all its attributes.
//! [`export`](export()) is the inverse. A typed import also puts functions in the place of their
//! calls, decides conditionals whose predicate is known, and drops control inputs that only check
//! something. [`freeze`](freeze()) is TensorFlow 1.15's own way to freeze, node for node, and
//! [`meta_graph`] adds what saves and restores; [`saver`] knows which tensor of a checkpoint goes into which variable; [`migraphx`] checks a
//! graph against what AMD's parser takes.

mod attr;
mod branch;
mod declared;
pub mod export;
mod fake_quant;
pub mod freeze;
mod function;
pub mod import;
mod initial;
pub mod migraphx;
mod op;
mod outputs;
mod restorable;
mod saved_model;
pub mod saver;
mod select;

pub use export::export;
pub use fake_quant::settle as settle_fake_quant;
pub use freeze::{FreezeOptions, Frozen, freeze};
pub use import::{ImportOptions, Imported, import};
pub use initial::initialize;
pub use outputs::default_outputs;
pub use restorable::meta_graph;
pub use saved_model::{restorable_model, saved_model};
