//! `predict`: text in, a model's answers out, a row at a time. One module for each kind of answer;
//! [`rows`] is where texts come from that lie in tables, [`texts`] where plain ones do.

pub mod answer;
pub mod classify;
pub mod embed;
pub mod fill_mask;
pub mod next_sentence;
pub mod rows;
pub mod texts;
