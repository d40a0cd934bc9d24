//! SQuAD, versions 1.1 and 2.0: questions to features, logits to answers, as the original's
//! `run_squad.py` does it.
//!
//! - [`read_examples`]: the questions of a file, with their contexts as words; [`LineReader`]:
//!   questions that come one by one.
//! - [`build_features`]: windows of a context behind the question, as the model takes them.
//! - [`write_records`]: the original's `train.tf_record` and `eval.tf_record`.
//! - [`Finder`] and [`predict`]: answers from logits, and the files that hold them.
//!
//! Left out: running the model, and scoring, see [`metrics`](crate::metrics).

mod document;
mod example;
mod features;
mod file;
mod final_text;
mod lines;
mod predict;
mod record;
mod span;

pub use document::Document;
pub use example::{ReadOptions, SquadExample, parse_examples, read_examples, shuffle_for_training};
pub use features::{FIRST_UNIQUE_ID, FeatureOptions, SquadFeatures, build_features};
pub use final_text::{NotFound, final_text, find_text};
pub use lines::LineReader;
pub use predict::{
    Answer, Finder, PredictOptions, Predictions, Question, RawResult, Window, predict,
};
pub use record::{SquadRecord, read_records, write_records};

pub(crate) use file::File;
