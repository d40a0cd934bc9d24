//! TensorFlow's graphs as [`Graph`](frazil_graph::Graph)s, and back.
//!
//! [`import`](import()) has one table from TensorFlow's operations to ours; whatever is not in it
//! stays [`Op::Foreign`](frazil_graph::Op::Foreign) with all its attributes.
//! [`export`](export()) is the inverse. A typed import also puts functions in the place of their
//! calls, decides conditionals whose predicate is known, and drops control inputs that only check
//! something.

mod attr;
mod branch;
mod declared;
pub mod export;
mod function;
pub mod import;
mod op;
mod outputs;
mod saved_model;
mod select;

pub use export::export;
pub use import::{ImportOptions, Imported, import};
pub use outputs::default_outputs;
pub use saved_model::saved_model;
