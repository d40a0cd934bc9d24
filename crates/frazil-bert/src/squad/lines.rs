//! Questions one by one: a line of JSON for each, with its own context.
//!
//! `{"question": …, "context": …}`, and an `id` if there is one; other keys are not looked at. A
//! line that cannot be used is a bad row with its number. Left out: where lines come from.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::file::kind_of;
use super::{Document, SquadExample};
use crate::rows::RowProblem;

/// Reads lines. A context that is the same as on the line before is kept and shared.
#[derive(Clone, Debug, Default)]
pub struct LineReader {
    last: Option<Arc<Document>>,
}

impl LineReader {
    /// Reads a line, of this number; nothing if it is blank. Questions without an `id` are called
    /// by the number.
    pub fn read(&mut self, number: usize, line: &[u8]) -> Result<Option<SquadExample>, RowProblem> {
        let line = match number {
            1 => line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line),
            _ => line,
        };
        let line = std::str::from_utf8(line)
            .map_err(|error| RowProblem::Utf8 { at: error.valid_up_to() + 1 })?;
        if line.trim().is_empty() {
            return Ok(None);
        }
        let value: Value = serde_json::from_str(line)
            .map_err(|error| RowProblem::Json(format!("{error}, which is of this line")))?;
        let Value::Object(object) = &value else {
            return Err(RowProblem::Json(format!("it is {}", kind_of(&value))));
        };
        let wrong = |key: &str, expected, value: Option<&Value>| {
            let found = value.map_or("missing", kind_of);
            RowProblem::Key { key: key.to_owned(), expected, found }
        };
        let text = |key: &str| match object.get(key) {
            Some(Value::String(text)) => Ok(text.as_str()),
            other => Err(wrong(key, "a string", other)),
        };
        let qas_id = match object.get("id") {
            None | Some(Value::Null) => format!("line-{number}"),
            Some(Value::String(id)) => id.clone(),
            Some(Value::Number(id)) => id.to_string(),
            other => return Err(wrong("id", "a string or a number", other)),
        };
        let (question, context) = (text("question")?, text("context")?);
        Ok(Some(self.example(qas_id, question, context)))
    }

    /// A question about a context.
    pub fn example<'a>(
        &mut self,
        qas_id: String,
        question: impl Into<String>,
        context: impl Into<Cow<'a, str>>,
    ) -> SquadExample {
        let context = context.into();
        let same = self.last.take().filter(|last| last.text() == context);
        let document = same.unwrap_or_else(|| Arc::new(Document::new(context)));
        self.last = Some(Arc::clone(&document));
        SquadExample {
            qas_id,
            question_text: question.into(),
            document,
            orig_answer_text: None,
            start_position: None,
            end_position: None,
            is_impossible: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_questions() {
        let mut reader = LineReader::default();
        let mut read = |number, line: &str| reader.read(number, line.as_bytes()).unwrap();
        let first = read(1, "\u{feff}{\"id\": 7, \"question\": \"a?\", \"context\": \"x y\"}\r\n");
        let second = read(2, "{\"context\": \"x y\", \"more\": [], \"question\": \"b?\"}");
        let third = read(4, "{\"id\": \"q\", \"context\": \"z\", \"question\": \"c?\"}");
        assert_eq!(read(5, "  \r\n"), None);
        let [first, second, third] = [first, second, third].map(Option::unwrap);
        let ids = [&first, &second, &third].map(|example| example.qas_id.as_str());
        assert_eq!(ids, ["7", "line-2", "q"]);
        assert!(Arc::ptr_eq(&first.document, &second.document));
        assert_eq!((third.document.text(), third.question_text.as_str()), ("z", "c?"));
    }

    #[test]
    fn bad_lines_say_what_was_expected() {
        let problem = |line: &[u8]| LineReader::default().read(3, line).unwrap_err().to_string();
        assert_eq!(problem(b"{\"a\xff\"}"), "byte 4 of the line is not UTF-8");
        assert!(problem(b"{\"question\": \"a\"").starts_with("expected a JSON object: EOF"));
        assert_eq!(problem(b"[]"), "expected a JSON object: it is a list");
        assert_eq!(
            problem(b"{\"question\": \"a\"}"),
            "expected `context` to be a string, but it is missing"
        );
        assert_eq!(
            problem(b"{\"question\": 3, \"context\": \"\"}"),
            "expected `question` to be a string, but it is a number"
        );
        assert_eq!(
            problem(b"{\"id\": [], \"question\": \"\", \"context\": \"\"}"),
            "expected `id` to be a string or a number, but it is a list"
        );
    }
}
