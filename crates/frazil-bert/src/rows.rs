//! Data sets row by row: what can be wrong with a row, and what is done about it.
//!
//! A row is a line of a table or a question of a SQuAD file. A reader hands each of them to a
//! `Collector`, so that stopping at the first bad row and skipping all of them are the same code
//! and no row is dropped without being counted. Left out: where rows come from, see
//! [`glue`](crate::glue) and [`squad`](crate::squad).

use frazil_tensor::words::plural;

use crate::error::quoted;
use crate::{Error, Result};

/// What is done about a row that cannot be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnBadRow {
    /// The first one is an error.
    #[default]
    Stop,
    /// They are left out and listed.
    Skip,
}

/// What was read, and what was not.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows<T> {
    /// The rows that can be used, in the order of the file.
    pub items: Vec<T>,
    /// The line that each of them begins on, counted from 1.
    pub lines: Vec<usize>,
    /// The others, in the same order.
    pub skipped: Vec<BadRow>,
}

/// A row that cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct BadRow {
    /// Where it begins, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: RowProblem,
}

/// One variant for each way a row can be wrong.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RowProblem {
    /// Not text.
    #[error("byte {at} of the line is not UTF-8")]
    Utf8 {
        /// Counted from 1.
        at: usize,
    },
    /// A line without an end in sight.
    #[error("expected a line of less than {most} bytes")]
    LongLine {
        /// How long it may not be.
        most: usize,
    },
    /// A line of a histogram that is none.
    #[error("expected a length, a comma and a count, not `{0}`")]
    Histogram(String),
    /// A length that no sequence has.
    #[error("expected a length of 1 to {most}, not {length}")]
    Length {
        /// What is there.
        length: usize,
        /// The length of a pack.
        most: usize,
    },
    /// A line of a histogram with which there are more tokens than can be counted.
    #[error("expected lines of at most {most} tokens together")]
    Tokens {
        /// How many there can be.
        most: u64,
    },
    /// Too few columns.
    #[error("expected {what} in column {column}, but {}", columns(*.found))]
    MissingColumn {
        /// What the column holds.
        what: &'static str,
        /// Counted from 1.
        column: usize,
        /// How many there are.
        found: usize,
    },
    /// A label that the task does not have.
    #[error("expected one of the labels {}, not `{label}`", quoted(labels))]
    Label {
        /// What is there.
        label: String,
        /// What could be.
        labels: Vec<String>,
    },
    /// A score that is no number.
    #[error("expected a finite number as the score, not `{0}`")]
    Score(String),
    /// A carriage return that does not end the line.
    #[error("expected no carriage return inside a line, but character {at} is one")]
    CarriageReturn {
        /// Counted from 1.
        at: usize,
    },
    /// Quotes that do not enclose a whole field.
    #[error("expected `,` or the end of the line after the quoted column {column}")]
    AfterQuote {
        /// Counted from 1.
        column: usize,
    },
    /// A quote that is never closed.
    #[error("expected a closing quote for column {column}, but the file ends")]
    OpenQuote {
        /// Counted from 1.
        column: usize,
    },
    /// A line of JSON that is not an object.
    #[error("expected a JSON object: {0}")]
    Json(String),
    /// A piece that the model has no embedding for: its vocabulary is another model's.
    #[error(
        "expected ids below {words}, the rows of the model's word embeddings, but `{piece}` is {id}"
    )]
    OutsideVocabulary {
        /// The piece.
        piece: String,
        /// Its id.
        id: i32,
        /// Rows of the model's word embeddings.
        words: usize,
    },
    /// A sequence longer than the model reads.
    #[error("expected at most {most} pieces, but there are {found}")]
    TooLong {
        /// How many there are.
        found: usize,
        /// How many there can be.
        most: usize,
    },
    /// A JSON object without a key, or with a value of another type.
    #[error("expected `{key}` to be {expected}, but it is {found}")]
    Key {
        /// The key.
        key: String,
        /// What it can be.
        expected: &'static str,
        /// What it is.
        found: &'static str,
    },
    /// A text to fill in that has nothing to fill in.
    #[error("expected `[MASK]` in the text")]
    NoMask,
    /// A text that is so long that what is to be filled in was cut off.
    #[error("expected `[MASK]` among the first {most} pieces, where the text is cut off")]
    MaskCutOff {
        /// How many pieces are left.
        most: usize,
    },
    /// A part of a SQuAD file with a value of another type.
    #[error("{place}: expected `{key}` to be {expected}, but it is {found}")]
    KeyOf {
        /// Where.
        place: String,
        /// The key, under that place.
        key: String,
        /// What it can be.
        expected: &'static str,
        /// What it is.
        found: &'static str,
    },
    /// A part of a SQuAD file without something that it needs.
    #[error("{place}: expected `{key}`")]
    MissingKey {
        /// Where.
        place: String,
        /// What is missing.
        key: &'static str,
    },
    /// A question for training that has not one answer.
    #[error("{place}: expected exactly 1 answer for training, but there are {found}")]
    Answers {
        /// Where.
        place: String,
        /// How many there are.
        found: usize,
    },
    /// A question without an answer, where each is to have one.
    #[error("{place}: expected an answer, but `is_impossible` says that there is none")]
    Impossible {
        /// Where.
        place: String,
    },
    /// An answer that lies outside the context.
    #[error(
        "{place}: expected the answer inside the context of {context} characters, but it is at \
         {start} and has {length}"
    )]
    AnswerOffset {
        /// Where.
        place: String,
        /// Characters of the context.
        context: usize,
        /// `answer_start`
        start: i64,
        /// Characters of the answer.
        length: usize,
    },
    /// An answer of whitespace or nothing.
    #[error("{place}: expected an answer with words in it")]
    BlankAnswer {
        /// Where.
        place: String,
    },
    /// The context has other words at that place. The original leaves such questions out too.
    #[error("{place}: expected the answer `{answer}` in `{words}`")]
    AnswerText {
        /// Where.
        place: String,
        /// The answer.
        answer: String,
        /// The words of the context that it points to.
        words: String,
    },
}

impl RowProblem {
    /// Says on which line this was met.
    pub fn on_line(self, line: usize) -> BadRow {
        BadRow { line, problem: self }
    }
}

impl From<BadRow> for Error {
    fn from(row: BadRow) -> Self {
        Self::Row(Box::new(row))
    }
}

/// Takes rows as they are read.
#[derive(Debug)]
pub(crate) struct Collector<T> {
    on_bad_row: OnBadRow,
    rows: Rows<T>,
}

impl<T> Collector<T> {
    pub(crate) fn new(on_bad_row: OnBadRow) -> Self {
        Self {
            on_bad_row,
            rows: Rows { items: Vec::new(), lines: Vec::new(), skipped: Vec::new() },
        }
    }

    /// A row, or why it is none.
    pub(crate) fn add(&mut self, line: usize, row: Result<T, RowProblem>) -> Result<()> {
        match row {
            Ok(item) => {
                self.rows.items.push(item);
                self.rows.lines.push(line);
            }
            Err(problem) => self.refuse(problem.on_line(line))?,
        }
        Ok(())
    }

    /// A row that cannot be used.
    pub(crate) fn refuse(&mut self, row: BadRow) -> Result<()> {
        match self.on_bad_row {
            OnBadRow::Stop => Err(row.into()),
            OnBadRow::Skip => {
                self.leave_out(row);
                Ok(())
            }
        }
    }

    /// A row that is left out whatever was asked for.
    pub(crate) fn leave_out(&mut self, row: BadRow) {
        self.rows.skipped.push(row);
    }

    /// All of them; nothing at all is an error.
    pub(crate) fn finish(self) -> Result<Rows<T>> {
        if self.rows.items.is_empty() {
            return Err(Error::NoUsableRow { skipped: self.rows.skipped.len() });
        }
        Ok(self.rows)
    }
}

fn columns(found: usize) -> String {
    let are = if found == 1 { "is" } else { "are" };
    format!("there {are} {found} {}", plural(found, "column"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_rows_stop_or_are_counted() {
        let problem = || RowProblem::Score("x".into());
        let mut stop = Collector::<u8>::new(OnBadRow::Stop);
        stop.add(1, Ok(7)).unwrap();
        let error = stop.add(2, Err(problem())).unwrap_err();
        assert_eq!(error.to_string(), "line 2: expected a finite number as the score, not `x`");
        assert!(error.hint().unwrap().contains("--skip-bad-rows"));
        let mut skip = Collector::new(OnBadRow::Skip);
        skip.add(1, Err(problem())).unwrap();
        skip.add(2, Ok(7)).unwrap();
        let rows = skip.finish().unwrap();
        assert_eq!((rows.items, rows.lines, rows.skipped.len()), (vec![7], vec![2], 1));
    }

    #[test]
    fn nothing_left_is_an_error() {
        let mut rows = Collector::<u8>::new(OnBadRow::Skip);
        rows.add(3, Err(RowProblem::Utf8 { at: 1 })).unwrap();
        assert!(matches!(rows.finish(), Err(Error::NoUsableRow { skipped: 1 })));
    }
}
