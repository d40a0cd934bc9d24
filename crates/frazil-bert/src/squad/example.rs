//! The questions of a SQuAD file, as the original's `read_squad_examples` reads them.
//!
//! Where the original would stop with an exception, or take a negative place for one from the
//! end, this says which question is wrong. Left out: word pieces, see `features`.

use std::path::Path;
use std::sync::Arc;

use super::Document;
use super::file::{Entry, File, GivenAnswer};
use crate::Result;
use crate::python::random::Random;
use crate::rows::{Collector, OnBadRow, RowProblem, Rows};
use crate::tokenizer::split_whitespace;

/// How a file is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// Whether answers are read too: each question must have one.
    pub training: bool,
    /// The original's `version_2_with_negative`: in training, questions may be without an answer.
    pub version_2: bool,
    /// What is done about a question that cannot be used.
    pub on_bad_row: OnBadRow,
}

/// A question about a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SquadExample {
    /// Its id in the data set.
    pub qas_id: String,
    /// The question.
    pub question_text: String,
    /// Its context, shared by all questions about it.
    pub document: Arc<Document>,
    /// The answer, in training; empty if there is none.
    pub orig_answer_text: Option<String>,
    /// The answer's first word, in training; -1 if there is no answer, or if the answer begins
    /// with the whitespace before the first word.
    pub start_position: Option<i32>,
    /// The answer's last word, in training; -1 if there is no answer.
    pub end_position: Option<i32>,
    /// Whether the context has no answer.
    pub is_impossible: bool,
}

/// Reads the questions of a file.
pub fn read_examples(path: impl AsRef<Path>, options: ReadOptions) -> Result<Rows<SquadExample>> {
    let path = path.as_ref();
    parse_examples(&frazil_tensor::file::map(path)?, options).map_err(|error| error.in_file(path))
}

/// The order in which the original trains: it shuffles all examples with this seed before it
/// numbers their features.
pub fn shuffle_for_training(examples: &mut [SquadExample]) {
    Random::new(12345).shuffle(examples);
}

/// Reads the questions of a file that is in memory.
///
/// Questions whose answer is not in the context at the place given are left out even if bad rows
/// stop the reader: the original leaves them out with a warning, and so trains without them.
pub fn parse_examples(bytes: &[u8], options: ReadOptions) -> Result<Rows<SquadExample>> {
    let mut rows = Collector::new(options.on_bad_row);
    let file = File::new(bytes, options.on_bad_row)?;
    let mut lines = file.lines();
    for paragraph in file.parse()?.1 {
        let context = paragraph.context.map(|context| {
            let document = Arc::new(Document::new(context));
            let words = if options.training { document.words_of_characters() } else { Vec::new() };
            Context { document, words, options }
        });
        for question in paragraph.questions {
            let place = || question.place();
            let missing = || RowProblem::MissingKey { place: place(), key: "context" };
            let example = match &question.entry {
                Err(row) => {
                    rows.refuse(row.clone())?;
                    continue;
                }
                Ok(entry) => context
                    .as_ref()
                    .ok_or_else(missing)
                    .and_then(|context| context.example(entry, place)),
            };
            match example {
                Ok(example) => rows.add(0, Ok(example))?,
                Err(problem) => {
                    let row = problem.on_line(lines.of_question(&question));
                    match row.problem {
                        RowProblem::AnswerText { .. } => rows.leave_out(row),
                        _ => rows.refuse(row)?,
                    }
                }
            }
        }
    }
    rows.finish()
}

/// A paragraph, while its questions are read.
struct Context {
    document: Arc<Document>,
    /// For each character its word; for training only.
    words: Vec<i32>,
    options: ReadOptions,
}

impl Context {
    fn example(
        &self,
        entry: &Entry<'_>,
        place: impl Fn() -> String,
    ) -> Result<SquadExample, RowProblem> {
        let missing = |key| RowProblem::MissingKey { place: place(), key };
        let qas_id = entry.id.as_deref().ok_or_else(|| missing("id"))?.to_owned();
        let question = entry.question.as_deref().ok_or_else(|| missing("question"))?;
        let mut example = SquadExample {
            qas_id,
            question_text: question.to_owned(),
            document: Arc::clone(&self.document),
            orig_answer_text: None,
            start_position: None,
            end_position: None,
            is_impossible: false,
        };
        if !self.options.training {
            return Ok(example);
        }
        if self.options.version_2 {
            example.is_impossible = entry.is_impossible.ok_or_else(|| missing("is_impossible"))?;
        }
        let (text, start, end) = if example.is_impossible {
            (String::new(), -1, -1)
        } else {
            let answers = entry.answers.as_deref().ok_or_else(|| missing("answers"))?;
            let [answer] = answers else {
                if entry.is_impossible == Some(true) {
                    return Err(RowProblem::Impossible { place: place() });
                }
                return Err(RowProblem::Answers { place: place(), found: answers.len() });
            };
            self.answer(answer, place)?
        };
        example.orig_answer_text = Some(text);
        (example.start_position, example.end_position) = (Some(start), Some(end));
        Ok(example)
    }

    /// An answer's text, first and last word.
    fn answer(
        &self,
        answer: &GivenAnswer<'_>,
        place: impl Fn() -> String,
    ) -> Result<(String, i32, i32), RowProblem> {
        let missing = |key| RowProblem::MissingKey { place: place(), key };
        let text = answer.text.as_deref().ok_or_else(|| missing("text"))?;
        let from = answer.answer_start.ok_or_else(|| missing("answer_start"))?;
        let cleaned = split_whitespace(text).collect::<Vec<_>>().join(" ");
        if cleaned.is_empty() {
            return Err(RowProblem::BlankAnswer { place: place() });
        }
        let length = text.chars().count();
        let word = |at: Option<usize>| at.and_then(|at| self.words.get(at)).copied();
        let first = usize::try_from(from).ok();
        let last = first.and_then(|first| first.checked_add(length - 1));
        let (Some(start), Some(end)) = (word(first), word(last)) else {
            let context = self.words.len();
            return Err(RowProblem::AnswerOffset { place: place(), context, start: from, length });
        };
        // As Python slices: before the first word is the last.
        let slice_start = usize::try_from(start).unwrap_or(self.document.len().saturating_sub(1));
        let slice_end = usize::try_from(end + 1).unwrap_or(0);
        let words = self.document.join(slice_start, slice_end.max(slice_start));
        if !words.contains(&cleaned) {
            return Err(RowProblem::AnswerText { place: place(), answer: cleaned, words });
        }
        Ok((text.to_owned(), start, end))
    }
}

/// A place that may be counted from the end, as Python has it.
pub(super) fn from_end(place: i32, length: usize) -> Option<usize> {
    match usize::try_from(place) {
        Ok(place) => Some(place),
        Err(_) => length.checked_sub(place.unsigned_abs() as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    fn file(questions: &str) -> String {
        let context = "  The tower is 28 m high,\\nbuilt 1908.";
        format!(
            "{{\"data\": [{{\"title\": \"t\", \"paragraphs\": [{{\"context\": \"{context}\",\n\
             \"qas\": [{questions}]}}]}}], \"version\": \"1.1\"}}"
        )
    }

    fn question(id: &str, answers: &str) -> String {
        format!("{{\"id\": \"{id}\", \"question\": \"What?\", \"answers\": [{answers}]}}")
    }

    fn answer(text: &str, start: i64) -> String {
        format!("{{\"text\": \"{text}\", \"answer_start\": {start}}}")
    }

    const TRAINING: ReadOptions =
        ReadOptions { training: true, version_2: false, on_bad_row: OnBadRow::Stop };

    fn problem(questions: &str) -> String {
        parse_examples(file(questions).as_bytes(), TRAINING).unwrap_err().to_string()
    }

    #[test]
    fn answers_become_words() {
        let questions =
            [question("q1", &answer("28 m", 15)), question("q2", &answer("high,  built", 20))];
        let rows = parse_examples(file(&questions.join(",\n")).as_bytes(), TRAINING).unwrap();
        let place = |example: &SquadExample| (example.start_position, example.end_position);
        assert_eq!(place(&rows.items[0]), (Some(3), Some(4)));
        assert_eq!(rows.items[0].orig_answer_text.as_deref(), Some("28 m"));
        // Two spaces where the text has a line end: whitespace does not count.
        assert_eq!(place(&rows.items[1]), (Some(5), Some(6)));
        assert!(Arc::ptr_eq(&rows.items[0].document, &rows.items[1].document));
    }

    #[test]
    fn answers_that_are_elsewhere_are_left_out_and_counted() {
        let questions =
            [question("q1", &answer("28 m", 2)), question("q2", &answer("1908", 32))].join(",\n");
        let rows = parse_examples(file(&questions).as_bytes(), TRAINING).unwrap();
        assert_eq!((rows.items.len(), rows.skipped.len()), (1, 1));
        assert_eq!(
            rows.skipped[0].to_string(),
            "line 2: question `q1`: expected the answer `28 m` in `The`"
        );
    }

    #[test]
    fn bad_questions_are_named() {
        let good = question("q1", &answer("28 m", 15));
        let with = |bad: String| problem(&format!("{good},\n{bad}"));
        assert_eq!(
            with(question("q2", &answer("1908", 99))),
            "line 3: question `q2`: expected the answer inside the context of 37 characters, but \
             it is at 99 and has 4"
        );
        assert!(with(question("q2", &answer("1908", -4))).contains("it is at -4"));
        assert!(with(question("q2", &answer("1908", i64::MAX))).contains("inside the context"));
        assert!(
            with(question("q2", "")).contains("exactly 1 answer for training, but there are 0")
        );
        assert!(with(question("q2", &answer(" ", 3))).contains("with words in it"));
        assert!(with("{\"id\": \"q2\"}".into()).contains("question `q2`: expected `question`"));
        assert!(with("{}".into()).contains("`data[0].paragraphs[0].qas[1]`: expected `id`"));
        let options = ReadOptions { on_bad_row: OnBadRow::Skip, ..TRAINING };
        let bytes = file(&format!("{good},\n{}", question("q2", "")));
        let rows = parse_examples(bytes.as_bytes(), options).unwrap();
        assert_eq!((rows.items.len(), rows.skipped[0].line), (1, 3));
    }

    #[test]
    fn an_answer_may_begin_before_the_first_word() {
        let rows = parse_examples(file(&question("q", &answer(" The", 1))).as_bytes(), TRAINING);
        // Words -1..1 of six are none: the original warns and goes on.
        assert!(matches!(rows, Err(Error::NoUsableRow { skipped: 1 })));
        assert_eq!((from_end(-1, 6), from_end(2, 6), from_end(-1, 0)), (Some(5), Some(2), None));
    }

    #[test]
    fn version_2_needs_to_know_what_is_impossible() {
        let options = ReadOptions { version_2: true, ..TRAINING };
        let read = |questions: &str| parse_examples(file(questions).as_bytes(), options);
        let error = read(&question("q", &answer("28 m", 15))).unwrap_err().to_string();
        assert!(error.contains("expected `is_impossible`"), "{error}");
        let impossible =
            "{\"id\": \"q\", \"question\": \"?\", \"is_impossible\": true, \"answers\": []}";
        let example = &read(impossible).unwrap().items[0];
        assert!(example.is_impossible);
        assert_eq!((example.start_position, example.end_position), (Some(-1), Some(-1)));
        let error = parse_examples(file(impossible).as_bytes(), TRAINING).unwrap_err();
        assert!(error.to_string().contains("question `q`: expected an answer"), "{error}");
        assert!(error.hint().unwrap().contains("`--v2` learns"), "{error}");
        let evaluation = parse_examples(file(impossible).as_bytes(), ReadOptions::default());
        assert_eq!(evaluation.unwrap().items[0].start_position, None);
    }
}
