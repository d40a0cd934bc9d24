//! Arithmetic on slices: the plain, readable loops that say what every operation computes.
//!
//! A kernel takes slices and plain structs. It neither allocates nor starts threads: outputs and
//! scratch come from the caller, who has checked the sizes. Sizes that contradict each other are a
//! mistake in the calling program and panic; what depends on data (an id outside of a table) is
//! returned. Tensors, graphs and files are unknown here, and so is anything that is fast on one CPU only.
//!
//! Dimension letters: `b` batch, `s` sequence length, `h` hidden, `n` heads, `d` head size,
//! `v` vocabulary; matrices are `m n k`. Everything is row-major.

pub mod attention;
pub mod cast;
pub mod elementwise;
pub mod embed;
pub mod gelu;
pub mod layout;
pub mod matmul;
pub mod movement;
pub mod norm;
pub mod number;
pub mod reduce;
pub mod softmax;

pub use layout::{Broadcast, OutOfRange, View};
pub use number::{Number, Real};
