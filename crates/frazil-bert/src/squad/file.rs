//! The JSON of a SQuAD file as it is stored.
//!
//! Keys may be missing: what needs them says so by the question's id. Left out: what questions
//! mean, see `example`.

use std::borrow::Cow;

use serde::Deserialize;

use crate::{Error, Result};

#[derive(Debug, Deserialize)]
struct File<'a> {
    #[serde(borrow)]
    data: Option<Vec<Article<'a>>>,
}

/// An article.
#[derive(Debug, Deserialize)]
pub(crate) struct Article<'a> {
    #[serde(borrow)]
    pub(crate) paragraphs: Vec<Paragraph<'a>>,
}

/// A context and the questions about it.
#[derive(Debug, Deserialize)]
pub(crate) struct Paragraph<'a> {
    #[serde(borrow)]
    pub(crate) context: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) qas: Vec<Entry<'a>>,
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

/// The articles of a file.
pub(crate) fn parse(bytes: &[u8]) -> Result<Vec<Article<'_>>> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if bytes.trim_ascii().is_empty() {
        return Err(Error::EmptyFile { expected: "the JSON of a SQuAD data set" });
    }
    // Found here, since serde_json would only say that some string is wrong.
    if let Err(error) = std::str::from_utf8(bytes) {
        let before = &bytes[..error.valid_up_to()];
        let line = 1 + before.iter().filter(|&&b| b == b'\n').count();
        let start = before.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        let at = before.len() - start + 1;
        return Err(crate::rows::RowProblem::Utf8 { at }.on_line(line).into());
    }
    let file: File<'_> = serde_json::from_slice(bytes).map_err(|error| Error::Json {
        line: error.line(),
        column: error.column(),
        reason: error.to_string(),
    })?;
    file.data.ok_or(Error::MissingKey("data"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_refused_with_their_place() {
        let refused = |bytes: &[u8]| parse(bytes).unwrap_err().to_string();
        assert!(refused(b"\xef\xbb\xbf \n").contains("the file is empty"));
        assert!(refused(b"{\"version\": \"1.1\"}").contains("`data`"));
        assert_eq!(refused(b"{\n \"data\xff\": 3}"), "line 2: byte 7 of the line is not UTF-8");
        let shape = refused(b"{\"data\": [\n{\"paragraphs\": 3}]}");
        assert!(shape.starts_with("line 2, column 16:"), "{shape}");
    }
}
