//! The official scores: SQuAD's exact match and F1, GLUE's accuracy, F1 and correlations.
//!
//! - [`squad`]: by `predictions.json`, anyone's.
//! - [`glue`]: by the predicted and the true label of each row.
//!
//! Left out: making predictions.

pub mod glue;
mod normalize;
pub mod squad;
mod word_character;

pub use normalize::normalize_answer;
