//! Matrix products with weights that were packed once: `out = f(a · w + bias) + residual`.
//!
//! `gemm::f32` multiplies numbers of 32 bits, `gemm::i8` bytes. Both cut the product into tiles whose
//! sums stay in registers (9 rows by 3 vectors with AVX-512), and finish a tile while it is in the
//! first-level cache ([`Epilogue`]). Weights are packed into panels of as many vectors of columns,
//! one after the other, so that a tile reads them front to back; activations are read where they
//! are. Products without fixed weights (attention) are not made here.
//!
//! For full speed packed weights begin at a multiple of [`ALIGN`] bytes, rows of activations are an
//! odd number of cache lines apart (equal steps of a power of two share a few sets of the cache),
//! and weights lie in huge pages where the system has them.

pub mod f32;
pub mod i8;

pub(crate) mod block;
pub(crate) mod epilogue;
pub(crate) mod tile;

pub use epilogue::{Activation, Columns, Epilogue, Orientation, Output, Residual};

/// Where packed weights should begin, in bytes: at a cache line.
pub const ALIGN: usize = 64;
