//! Texts to predict from: given one by one, or a line of a file each, or a column of JSON Lines.
//!
//! They are read as they are asked for, so that a file may be of any length, or stdin. A line that
//! is none is an error with its number, or is left out and counted. Left out: tables with labels,
//! see [`frazil_bert::glue`].

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use frazil_bert::rows::{OnBadRow, RowProblem};
use serde_json::Value;

use crate::{Error, Result};

/// Where texts come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// These.
    Given(Vec<String>),
    /// The lines of a file; of stdin if it is `-`.
    File(PathBuf),
}

/// What a line of a file is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// In files called `.jsonl` or `.ndjson` a JSON object whose `text` is the text, in others the
    /// text.
    #[default]
    ByName,
    /// The text.
    Lines,
    /// A JSON object, and the text is the string under this key.
    Json(String),
}

/// How lines are read.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What a line is.
    pub format: Format,
    /// What is done about a line that cannot be used.
    pub on_bad_row: OnBadRow,
}

/// A text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// Its place among all texts or lines, counted from 1.
    pub line: usize,
    /// The text, without the end of its line.
    pub text: String,
}

/// Reads texts.
pub struct Texts {
    from: From,
    name: PathBuf,
    column: Option<String>,
    on_bad_row: OnBadRow,
    line: usize,
    given: usize,
    skipped: usize,
    ended: bool,
}

enum From {
    Given(std::vec::IntoIter<String>),
    Lines(Box<dyn BufRead>),
}

impl Texts {
    /// Opens a source.
    pub fn open(source: Source, options: &Options) -> Result<Self> {
        let (from, name) = match source {
            Source::Given(texts) => (From::Given(texts.into_iter()), PathBuf::new()),
            Source::File(path) if path == Path::new("-") => {
                (From::Lines(Box::new(BufReader::new(io::stdin()))), "stdin".into())
            }
            Source::File(path) => {
                let file = File::open(&path);
                let file = file.map_err(|source| Error::Read { path: path.clone(), source })?;
                (From::Lines(Box::new(BufReader::new(file))), path)
            }
        };
        Ok(Self::new(from, name, options))
    }

    fn new(from: From, name: PathBuf, options: &Options) -> Self {
        let ends = |end: &str| name.extension().is_some_and(|e| e.eq_ignore_ascii_case(end));
        let column = match &options.format {
            Format::ByName if ends("jsonl") || ends("ndjson") => Some("text".to_owned()),
            Format::ByName | Format::Lines => None,
            Format::Json(key) => Some(key.clone()),
        };
        Self {
            from,
            name,
            column,
            on_bad_row: options.on_bad_row,
            line: 0,
            given: 0,
            skipped: 0,
            ended: false,
        }
    }

    /// Lines that were left out so far.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Leaves out a text that turned out to be of no use, or says what is wrong with it.
    pub fn refuse(&mut self, line: usize, problem: RowProblem) -> Result<()> {
        match self.on_bad_row {
            OnBadRow::Skip => {
                self.skipped += 1;
                self.given = self.given.saturating_sub(1);
                Ok(())
            }
            OnBadRow::Stop => Err(self.bad(line, problem)),
        }
    }

    fn bad(&self, line: usize, problem: RowProblem) -> Error {
        match self.from {
            From::Given(_) => Error::BadText { number: line, problem },
            From::Lines(_) => {
                let error = frazil_bert::Error::from(problem.on_line(line));
                error.in_file(&self.name).into()
            }
        }
    }

    /// The next line as it is; none at the end.
    fn read(&mut self) -> Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        match &mut self.from {
            From::Given(texts) => match texts.next() {
                Some(text) => line = text.into_bytes(),
                None => return Ok(None),
            },
            From::Lines(lines) => {
                let read = lines.read_until(b'\n', &mut line);
                let path = || self.name.clone();
                if read.map_err(|source| Error::Read { path: path(), source })? == 0 {
                    return Ok(None);
                }
                if line.last() == Some(&b'\n') {
                    line.pop();
                    if line.last() == Some(&b'\r') {
                        line.pop();
                    }
                }
            }
        }
        self.line += 1;
        Ok(Some(line))
    }

    /// The text of a line; none for a blank line of JSON.
    fn text(&self, line: Vec<u8>) -> Result<Option<String>, RowProblem> {
        let line = String::from_utf8(line)
            .map_err(|e| RowProblem::Utf8 { at: e.utf8_error().valid_up_to() + 1 })?;
        let Some(key) = self.column.as_ref().filter(|_| matches!(self.from, From::Lines(_))) else {
            return Ok(Some(line));
        };
        if line.trim().is_empty() {
            return Ok(None);
        }
        let value: Value = serde_json::from_str(&line)
            .map_err(|error| RowProblem::Json(format!("{error}, which is of this line")))?;
        let Value::Object(mut object) = value else {
            return Err(RowProblem::Json("it is none".into()));
        };
        let found = match object.remove(key) {
            Some(Value::String(text)) => return Ok(Some(text)),
            Some(Value::Number(_)) => "a number",
            Some(Value::Bool(_)) => "true or false",
            Some(Value::Null) => "null",
            Some(Value::Array(_)) => "a list",
            Some(Value::Object(_)) => "an object",
            None => "missing",
        };
        Err(RowProblem::Key { key: key.clone(), expected: "a string", found })
    }

    fn advance(&mut self) -> Result<Option<Text>> {
        while let Some(line) = self.read()? {
            let number = self.line;
            self.given += 1;
            match self.text(line) {
                Ok(Some(text)) => return Ok(Some(Text { line: number, text })),
                Ok(None) => self.given -= 1,
                Err(problem) => self.refuse(number, problem)?,
            }
        }
        if self.line == 0 {
            let expected = "a text on each line";
            let error = frazil_bert::Error::EmptyFile { expected };
            return Err(error.in_file(&self.name).into());
        }
        if self.given == 0 {
            let error = frazil_bert::Error::NoUsableRow { skipped: self.skipped };
            return Err(error.in_file(&self.name).into());
        }
        Ok(None)
    }
}

impl Iterator for Texts {
    type Item = Result<Text>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.advance();
        self.ended = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, bytes: &'static [u8], options: &Options) -> Result<(Vec<Text>, usize)> {
        let mut texts = Texts::new(From::Lines(Box::new(bytes)), name.into(), options);
        let found = texts.by_ref().collect::<Result<_>>()?;
        Ok((found, texts.skipped()))
    }

    fn cause(error: Error) -> String {
        let source = std::error::Error::source(&error).map(ToString::to_string);
        source.unwrap_or_else(|| error.to_string())
    }

    #[test]
    fn lines_and_json() {
        let plain = Options::default();
        let (texts, _) = read("a.txt", b"one\r\n\ntwo", &plain).unwrap();
        let texts: Vec<(usize, &str)> = texts.iter().map(|t| (t.line, t.text.as_str())).collect();
        assert_eq!(texts, [(1, "one"), (2, ""), (3, "two")]);
        let (texts, _) = read("a.jsonl", b"\n{\"text\": \"a\\tb\"}\n", &plain).unwrap();
        assert_eq!(texts, [Text { line: 2, text: "a\tb".into() }]);
        let column = Options { format: Format::Json("q".into()), ..Options::default() };
        assert_eq!(read("-", b"{\"q\": \"x\"}", &column).unwrap().0[0].text, "x");
        let given = Texts::open(Source::Given(vec!["{".into()]), &column).unwrap();
        assert_eq!(given.map(|text| text.unwrap().text).collect::<Vec<_>>(), ["{"]);
    }

    #[test]
    fn bad_lines_are_named_or_counted() {
        let stop = Options::default();
        let skip = Options { on_bad_row: OnBadRow::Skip, ..Options::default() };
        let error = read("a.txt", b"a\nb\xff\n", &stop).unwrap_err();
        assert_eq!(cause(error), "line 2: byte 2 of the line is not UTF-8");
        let (texts, skipped) = read("a.txt", b"a\nb\xff\n", &skip).unwrap();
        assert_eq!((texts.len(), skipped), (1, 1));
        let error = read("a.jsonl", b"{\"t\": 1}", &stop).unwrap_err();
        assert_eq!(cause(error), "line 1: expected `text` to be a string, but it is missing");
        assert!(cause(read("a.jsonl", b"[]", &stop).unwrap_err()).contains("JSON object"));
        assert!(cause(read("a.txt", b"", &skip).unwrap_err()).contains("the file is empty"));
        let error = cause(read("a.txt", b"\xff\n", &skip).unwrap_err());
        assert!(error.contains("1 bad rows were skipped"), "{error}");
        let error = cause(read("a.jsonl", b"\n\n", &stop).unwrap_err());
        assert!(error.contains("no usable row"), "{error}");
    }
}
