//! The JSON of a SQuAD file as it is stored.
//!
//! A file is taken apart into the texts of its questions first, and each of them is read by
//! itself, so that what is wrong in one is a bad row and not the end of the file. Keys may be
//! missing: what needs them says so by the question's id. Left out: what questions mean, see
//! `example`.

use std::borrow::Cow;
use std::ops::Range;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::rows::{BadRow, OnBadRow, RowProblem};
use crate::{Error, Result};

#[derive(Debug, Deserialize)]
struct Layout<'a> {
    version: Option<Value>,
    #[serde(borrow)]
    data: Option<Vec<Article<'a>>>,
}

#[derive(Debug, Deserialize)]
struct Article<'a> {
    #[serde(borrow)]
    paragraphs: Vec<ParagraphTexts<'a>>,
}

#[derive(Debug, Deserialize)]
struct ParagraphTexts<'a> {
    #[serde(borrow)]
    context: Option<&'a RawValue>,
    #[serde(borrow)]
    qas: Vec<&'a RawValue>,
}

/// A question.
#[derive(Debug, Deserialize)]
pub(crate) struct Entry<'a> {
    #[serde(borrow)]
    pub(crate) id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) question: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) answers: Option<Vec<GivenAnswer<'a>>>,
    pub(crate) is_impossible: Option<bool>,
}

/// An answer as people gave it.
#[derive(Debug, Deserialize)]
pub(crate) struct GivenAnswer<'a> {
    #[serde(borrow)]
    pub(crate) text: Option<Cow<'a, str>>,
    pub(crate) answer_start: Option<i64>,
}

/// A context and the questions about it.
#[derive(Debug)]
pub(crate) struct Paragraph<'a> {
    /// None if there is none.
    pub(crate) context: Option<Cow<'a, str>>,
    pub(crate) questions: Vec<Question<'a>>,
}

/// A question, or why it is none.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    pub(crate) entry: Result<Entry<'a>, BadRow>,
    /// Article, paragraph, question.
    place: [usize; 3],
    /// Where its text begins.
    offset: usize,
}

impl Question<'_> {
    /// What it is called in messages.
    pub(crate) fn place(&self) -> String {
        place(self.entry.as_ref().ok().and_then(|entry| entry.id.as_deref()), self.place)
    }
}

fn place(id: Option<&str>, [article, paragraph, question]: [usize; 3]) -> String {
    match id {
        Some(id) => format!("question `{id}`"),
        None => format!("`data[{article}].paragraphs[{paragraph}].qas[{question}]`"),
    }
}

/// A file that was found to be text.
#[derive(Debug)]
pub(crate) struct File<'a> {
    /// With `?` for each byte that is not UTF-8.
    text: Cow<'a, str>,
    /// Where those are, in order.
    broken: Vec<usize>,
}

impl<'a> File<'a> {
    /// Looks at the bytes. If bad rows stop the reader, the first that is not UTF-8 does.
    pub(crate) fn new(bytes: &'a [u8], on_bad_row: OnBadRow) -> Result<Self> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        if bytes.trim_ascii().is_empty() {
            return Err(Error::EmptyFile { expected: "the JSON of a SQuAD data set" });
        }
        let broken = match std::str::from_utf8(bytes) {
            Ok(text) => return Ok(Self { text: Cow::Borrowed(text), broken: Vec::new() }),
            Err(_) if on_bad_row == OnBadRow::Skip => broken(bytes),
            Err(error) => return Err(not_utf8(bytes, error.valid_up_to()).into()),
        };
        let mut mended = bytes.to_vec();
        for &at in &broken {
            mended[at] = b'?';
        }
        // Nothing that is not UTF-8 is left.
        let text = String::from_utf8_lossy(&mended).into_owned();
        Ok(Self { text: Cow::Owned(text), broken })
    }

    /// What the file says of its version, and its paragraphs.
    pub(crate) fn parse(&self) -> Result<(Option<String>, Vec<Paragraph<'_>>)> {
        let layout: Layout<'_> = serde_json::from_str(&self.text)?;
        let mut lines = Lines { text: self.text.as_bytes(), line: 1, at: 0 };
        let mut all = Vec::new();
        for (a, article) in layout.data.ok_or(Error::MissingKey("data"))?.into_iter().enumerate() {
            for (p, texts) in article.paragraphs.into_iter().enumerate() {
                all.push(self.paragraph([a, p], &texts, &mut lines));
            }
        }
        let version = layout.version.map(|version| match version {
            Value::String(text) => text,
            other => other.to_string(),
        });
        Ok((version, all))
    }

    fn paragraph<'s>(
        &'s self,
        [a, p]: [usize; 2],
        texts: &ParagraphTexts<'s>,
        lines: &mut Lines<'_>,
    ) -> Paragraph<'s> {
        let mut context = None;
        // What is wrong with the context is wrong with all of its questions.
        let mut wrong = None;
        if let Some(raw) = texts.context {
            match serde_json::from_str::<Text<'_>>(raw.get()) {
                Ok(Text(text)) => context = Some(text),
                Err(_) => wrong = Some(kind(raw.get())),
            }
        }
        let broken_context = texts.context.and_then(|raw| self.broken_in(&self.range(raw)));
        let question = |(q, raw): (usize, &&'s RawValue)| {
            let range = self.range(raw);
            let (offset, place_in_file) = (range.start, [a, p, q]);
            let broken = broken_context.or_else(|| self.broken_in(&range));
            let entry = match (broken, wrong) {
                (Some(at), _) => Err(not_utf8(self.text.as_bytes(), at)),
                (None, Some(found)) => {
                    let (key, expected) = ("context".to_owned(), "a string");
                    let place = format!("`data[{a}].paragraphs[{p}]`");
                    let problem = RowProblem::KeyOf { place, key, expected, found };
                    Err(problem.on_line(lines.of(offset)))
                }
                (None, None) => serde_json::from_str(raw.get()).map_err(|error| {
                    let problem = wrong_entry(raw.get(), place_in_file, &error);
                    problem.on_line(lines.of(offset))
                }),
            };
            Question { entry, place: place_in_file, offset }
        };
        Paragraph { questions: texts.qas.iter().enumerate().map(question).collect(), context }
    }

    /// Where in the file a part of it is.
    fn range(&self, raw: &RawValue) -> Range<usize> {
        let start = raw.get().as_ptr().addr().saturating_sub(self.text.as_ptr().addr());
        start..start + raw.get().len()
    }

    fn broken_in(&self, range: &Range<usize>) -> Option<usize> {
        let next = self.broken.partition_point(|&at| at < range.start);
        self.broken.get(next).copied().filter(|at| range.contains(at))
    }

    /// Says on which lines questions begin.
    pub(crate) fn lines(&self) -> Lines<'_> {
        Lines { text: self.text.as_bytes(), line: 1, at: 0 }
    }
}

/// A string that is borrowed where it can be.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Finds lines. Questions are asked for in the order of the file, so that all of them together
/// cost one pass over it.
pub(crate) struct Lines<'a> {
    text: &'a [u8],
    line: usize,
    at: usize,
}

impl Lines<'_> {
    /// The line on which a question begins.
    pub(crate) fn of_question(&mut self, question: &Question<'_>) -> usize {
        self.of(question.offset)
    }

    fn of(&mut self, offset: usize) -> usize {
        if let Some(between) = self.text.get(self.at..offset) {
            self.line += between.iter().filter(|&&b| b == b'\n').count();
            self.at = offset;
        }
        self.line
    }
}

/// The places of all bytes that are not part of a character.
fn broken(bytes: &[u8]) -> Vec<usize> {
    let mut at = 0;
    let mut broken = Vec::new();
    for chunk in bytes.utf8_chunks() {
        at += chunk.valid().len();
        broken.extend(at..at + chunk.invalid().len());
        at += chunk.invalid().len();
    }
    broken
}

fn not_utf8(bytes: &[u8], at: usize) -> BadRow {
    let before = &bytes[..at];
    let line = 1 + before.iter().filter(|&&b| b == b'\n').count();
    let start = before.iter().rposition(|&b| b == b'\n').map_or(0, |newline| newline + 1);
    RowProblem::Utf8 { at: at - start + 1 }.on_line(line)
}

/// What `answer_start` is.
const WHOLE: &str = "a whole number";

/// Why a question could not be read: the key whose value is of another type, if that is it.
fn wrong_entry(text: &str, at: [usize; 3], error: &serde_json::Error) -> RowProblem {
    let Ok(Value::Object(entry)) = serde_json::from_str(text) else {
        let what = "a question is an object";
        return RowProblem::Json(format!("{}: {what}, not {}", place(None, at), kind(text)));
    };
    let place = place(entry.get("id").and_then(Value::as_str), at);
    let mut wrong = Vec::new();
    let mut check =
        |key: String, expected: &'static str, value: Option<&Value>, is: fn(&Value) -> bool| {
            if let Some(value) = value.filter(|value| !value.is_null() && !is(value)) {
                let found = match value {
                    Value::Number(_) if expected == WHOLE => "another one",
                    other => kind_of(other),
                };
                wrong.push((key, expected, found));
            }
        };
    for key in ["id", "question"] {
        check(key.into(), "a string", entry.get(key), Value::is_string);
    }
    check("is_impossible".into(), "true or false", entry.get("is_impossible"), Value::is_boolean);
    check("answers".into(), "a list", entry.get("answers"), Value::is_array);
    let answers = entry.get("answers").and_then(Value::as_array);
    for (i, answer) in answers.into_iter().flatten().enumerate() {
        check(format!("answers[{i}]"), "an object", Some(answer), Value::is_object);
        let name = |key: &str| format!("answers[{i}].{key}");
        check(name("text"), "a string", answer.get("text"), Value::is_string);
        let start = answer.get("answer_start");
        check(name("answer_start"), WHOLE, start, Value::is_i64);
    }
    match wrong.into_iter().next() {
        Some((key, expected, found)) => RowProblem::KeyOf { place, key, expected, found },
        None => RowProblem::Json(format!("{place}: {error}")),
    }
}

/// What a JSON text is.
fn kind(text: &str) -> &'static str {
    serde_json::from_str::<Value>(text).map_or("no JSON", |value| kind_of(&value))
}

/// What a JSON value is.
pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(bytes: &[u8]) -> String {
        let file = File::new(bytes, OnBadRow::Stop);
        file.and_then(|file| file.parse().map(|_| ())).unwrap_err().to_string()
    }

    #[test]
    fn other_files_are_refused_with_their_place() {
        assert!(refused(b"\xef\xbb\xbf \n").contains("the file is empty"));
        assert!(refused(b"{\"version\": \"1.1\"}").contains("`data`"));
        assert_eq!(refused(b"{\n \"data\xff\": 3}"), "line 2: byte 7 of the line is not UTF-8");
        let shape = refused(b"{\"data\": [\n{\"paragraphs\": 3}]}");
        assert!(shape.starts_with("line 2, column 16:"), "{shape}");
    }

    /// A file of one paragraph; what each of its questions is wrong by.
    fn problems(context: &[u8], questions: &[&[u8]]) -> Vec<Option<String>> {
        let mut bytes = b"{\"data\": [{\"paragraphs\": [{\"context\": ".to_vec();
        bytes.extend_from_slice(context);
        bytes.extend_from_slice(b", \"qas\": [\n");
        bytes.extend_from_slice(&questions.join(&b",\n"[..]));
        bytes.extend_from_slice(b"]}]}]}");
        let file = File::new(&bytes, OnBadRow::Skip).unwrap();
        let (_, paragraphs) = file.parse().unwrap();
        let problem = |question: &Question<'_>| Some(question.entry.as_ref().err()?.to_string());
        paragraphs[0].questions.iter().map(problem).collect()
    }

    #[test]
    fn one_bad_question_is_one_bad_row() {
        let found = problems(
            b"\"x\"",
            &[
                b"{\"id\": \"a\", \"question\": 3}",
                b"{\"id\": \"b\", \"question\": \"?\"}",
                b"{\"id\": 7, \"question\": \"?\"}",
                b"{\"id\": \"d\", \"answers\": [{\"text\": \"t\"}, {\"answer_start\": 1.5}]}",
                b"[1]",
                b"{\"id\": \"f\", \"question\": \"\xff\"}",
                b"{\"id\": \"g\", \"is_impossible\": \"no\"}",
                b"{\"id\": \"h\", \"answers\": {}}",
            ],
        );
        let expected = [
            Some("line 2: question `a`: expected `question` to be a string, but it is a number"),
            None,
            Some(
                "line 4: `data[0].paragraphs[0].qas[2]`: expected `id` to be a string, but it is \
                 a number",
            ),
            Some(
                "line 5: question `d`: expected `answers[1].answer_start` to be a whole number, \
                 but it is another one",
            ),
            Some(
                "line 6: expected a JSON object: `data[0].paragraphs[0].qas[4]`: a question is an \
                 object, not a list",
            ),
            Some("line 7: byte 26 of the line is not UTF-8"),
            Some(
                "line 8: question `g`: expected `is_impossible` to be true or false, but it is a \
                 string",
            ),
            Some("line 9: question `h`: expected `answers` to be a list, but it is an object"),
        ];
        assert_eq!(found, expected.map(|problem| problem.map(str::to_owned)));
    }

    #[test]
    fn a_bad_context_is_that_of_all_its_questions() {
        let questions: [&[u8]; 2] = [b"{\"id\": \"a\"}", b"{\"id\": \"b\"}"];
        let found = problems(b"[\"x\"]", &questions);
        let wrong = "`data[0].paragraphs[0]`: expected `context` to be a string, but it is a list";
        assert_eq!(found, [2, 3].map(|line| Some(format!("line {line}: {wrong}"))));
        let found = problems(b"\"\xe2\x28\"", &questions);
        assert_eq!(
            found,
            [Some("line 1: byte 40 of the line is not UTF-8".to_owned()), found[0].clone()]
        );
    }
}
