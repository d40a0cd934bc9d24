//! Arithmetic on slices: plain loops that say what every operation computes, and beside them the
//! fast forms of what a BERT spends its time in, for the CPU at hand.
//!
//! A kernel takes slices and plain structs. It neither allocates nor starts threads: outputs and
//! scratch come from the caller, who has checked the sizes. Sizes that contradict each other are a
//! mistake in the calling program and panic; what depends on data (an id outside of a table) is
//! returned. Tensors, graphs and files are unknown here. This is the only crate with `unsafe` for
//! speed: vectors ([`simd`]) and the inner loops of the matrix products.
//!
//! Dimension letters: `b` batch, `s` sequence length, `h` hidden, `n` heads, `d` head size,
//! `v` vocabulary; matrices are `m n k`. Everything is row-major.

#![allow(unsafe_code, reason = "vectors are read and written through pointers")]

pub mod attention;
pub mod cast;
pub mod columns;
pub mod cpu;
pub mod dropout;
pub mod elementwise;
pub mod embed;
pub mod gelu;
pub mod gemm;
pub mod layout;
pub mod loss;
pub mod math;
pub mod matmul;
pub mod movement;
pub mod norm;
pub mod number;
pub mod optim;
pub mod par;
pub mod peak;
pub mod pointwise;
pub mod quantize;
pub mod quantized;
pub mod random;
pub mod reduce;
mod rows;
pub mod simd;
pub mod softmax;

pub use cpu::Isa;
pub use layout::{Broadcast, OutOfRange, View};
pub use number::{Number, Real};
