//! What changes a graph. Every pass is deterministic, keeps the names of the nodes that it keeps,
//! and reports what it did and, where it looked for something in vain, why.

use std::fmt;

mod cut;
mod dropout;
mod fold;
mod freeze;
mod fuse;
mod lower;
pub mod quantize;
mod reshape;
mod rows;
mod sweep;

pub use cut::{NewInput, cut};
pub use dropout::remove_dropout;
pub use fold::fold;
pub use freeze::freeze;
pub use fuse::{Fusions, fuse, raise_bytes};
pub use lower::{lower, lower_lookups};
pub use quantize::quantize;
pub use reshape::{Reshape, Size, reshape, set_shapes};
pub use rows::{demand_rows, pack_rows};

/// What a pass did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What was changed: the node and how.
    pub done: Vec<Note>,
    /// What looked like a case for the pass but was left alone: the node and why.
    pub missed: Vec<Note>,
}

/// A sentence about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Which rule of the pass speaks, `layer_norm` for example.
    pub rule: &'static str,
    /// The node.
    pub node: String,
    /// What was done, or why not.
    pub text: String,
}

impl Report {
    /// Notes something done.
    pub fn did(&mut self, rule: &'static str, node: impl Into<String>, text: impl Into<String>) {
        self.done.push(Note { rule, node: node.into(), text: text.into() });
    }

    /// Notes something that was not done.
    pub fn miss(&mut self, rule: &'static str, node: impl Into<String>, text: impl Into<String>) {
        self.missed.push(Note { rule, node: node.into(), text: text.into() });
    }

    /// How often a rule was applied.
    pub fn count(&self, rule: &str) -> usize {
        self.done.iter().filter(|note| note.rule == rule).count()
    }

    /// Adds another report's notes.
    pub fn extend(&mut self, other: Report) {
        self.done.extend(other.done);
        self.missed.extend(other.missed);
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: `{}`: {}", self.rule, self.node, self.text)
    }
}
