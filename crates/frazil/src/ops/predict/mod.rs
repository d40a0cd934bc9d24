//! `predict`: text in, a model's answers out, a row at a time. One module for each kind of answer;
//! [`rows`] is where the texts come from.

pub mod classify;
pub mod next_sentence;
pub mod rows;
