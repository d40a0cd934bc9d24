//! Where questions come from: a SQuAD file, lines of JSON, or the command line.
//!
//! Lines are read as they are needed, so a pipe can feed questions without an end. A SQuAD file is
//! read as a whole, since its JSON is one object.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

use frazil_bert::rows::{OnBadRow, RowProblem};
use frazil_bert::squad::{LineReader, ReadOptions, SquadExample, parse_examples};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::super::rows::Skipped;
use crate::{Error, Result};

/// How a file is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object with articles, paragraphs and questions.
    Squad,
    /// A JSON object on each line: `question`, `context`, and `id` if there is one.
    Lines,
}

/// Questions, one after the other.
pub struct Questions {
    name: PathBuf,
    kind: Kind,
    /// Questions of a list, bytes of lines.
    total: Option<u64>,
    done: u64,
    skipped: Skipped,
}

enum Kind {
    List(std::vec::IntoIter<SquadExample>),
    Lines(Lines),
}

struct Lines {
    file: Box<dyn BufRead>,
    number: usize,
    reader: LineReader,
    on_bad_row: OnBadRow,
    /// Whether there was anything but blank lines.
    any: bool,
}

impl Questions {
    /// Of a file, or of stdin if that is `-`. Without a format it is told by the first line: a
    /// whole JSON object that is no data set is one of many.
    pub fn open(path: &Path, format: Option<Format>, on_bad_row: OnBadRow) -> Result<Self> {
        let mut bytes = None;
        let (name, file): (PathBuf, Box<dyn BufRead>) = match path == Path::new("-") {
            true => ("stdin".into(), Box::new(BufReader::new(io::stdin()))),
            false => {
                let file = File::open(path);
                let failed = |source| Error::Read { path: path.into(), source };
                let file = file.map_err(failed)?;
                bytes = Some(file.metadata().map_err(failed)?.len());
                (path.into(), Box::new(BufReader::new(file)))
            }
        };
        let questions = Self::read(name, file, format, on_bad_row)?;
        Ok(Self { total: questions.total.or(bytes), ..questions })
    }

    /// Of what `file` gives; `name` is what it is called in messages.
    pub fn read(
        name: PathBuf,
        mut file: Box<dyn BufRead>,
        format: Option<Format>,
        on_bad_row: OnBadRow,
    ) -> Result<Self> {
        let unread = |source| Error::Read { path: name.clone(), source };
        let mut start = Vec::new();
        let by_name = name.extension().is_some_and(|e| e == "jsonl" || e == "ndjson");
        let format = match format {
            Some(format) => format,
            None if by_name => Format::Lines,
            None => {
                while start.trim_ascii().is_empty()
                    && file.read_until(b'\n', &mut start).map_err(unread)? > 0
                {}
                format_of(&start)
            }
        };
        if format == Format::Lines {
            let file = Box::new(Cursor::new(start).chain(file));
            let reader = LineReader::default();
            let lines = Lines { file, number: 0, reader, on_bad_row, any: false };
            return Ok(Self::new(name, Kind::Lines(lines), None));
        }
        file.read_to_end(&mut start).map_err(unread)?;
        let options = ReadOptions { on_bad_row, ..ReadOptions::default() };
        let rows = parse_examples(&start, options).map_err(|error| error.in_file(&name))?;
        let mut questions = Self::list(name, rows.items);
        rows.skipped.iter().for_each(|row| questions.skipped.add(row));
        Ok(questions)
    }

    fn new(name: PathBuf, kind: Kind, total: Option<u64>) -> Self {
        Self { name, kind, total, done: 0, skipped: Skipped::default() }
    }

    /// Of a list; `name` is what it is called in messages.
    pub fn list(name: PathBuf, examples: Vec<SquadExample>) -> Self {
        let total = Some(examples.len() as u64);
        Self::new(name, Kind::List(examples.into_iter()), total)
    }

    /// A single one.
    pub fn one(question: &str, context: &str) -> Self {
        let example = LineReader::default().example("question".into(), question, context);
        Self::list("the command line".into(), vec![example])
    }

    /// What they are called in messages.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// How much is read, and of how much, where that is known: questions, or bytes of lines.
    pub fn progress(&self) -> (u64, Option<u64>) {
        (self.done, self.total)
    }

    /// Whether [`Questions::progress`] counts questions.
    pub fn is_counted(&self) -> bool {
        matches!(self.kind, Kind::List(_))
    }

    /// Questions so far that could not be used.
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// A question turned out to be one that the model cannot read.
    pub(super) fn refuse(
        &mut self,
        example: &SquadExample,
        problem: &RowProblem,
        on_bad_row: OnBadRow,
    ) -> Result<()> {
        let what = format!("question `{}`: {problem}", example.qas_id);
        if on_bad_row == OnBadRow::Stop {
            return Err(Error::Usage {
                what: format!("`{}`: {what}", self.name.display()),
                hint: "`--skip-bad-rows` leaves such questions out and counts them".into(),
            });
        }
        self.skipped.add(&what);
        Ok(())
    }

    /// The next one; none at the end.
    pub fn pull(&mut self) -> Result<Option<SquadExample>> {
        let lines = match &mut self.kind {
            Kind::List(list) => {
                let next = list.next();
                self.done += u64::from(next.is_some());
                return Ok(next);
            }
            Kind::Lines(lines) => lines,
        };
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = lines.file.read_until(b'\n', &mut line);
            let read = read.map_err(|source| Error::Read { path: self.name.clone(), source })?;
            if read == 0 {
                return Ok(None);
            }
            lines.number += 1;
            self.done += read as u64;
            match lines.reader.read(lines.number, &line) {
                Ok(None) => continue,
                Ok(example) => {
                    lines.any = true;
                    return Ok(example);
                }
                Err(problem) => {
                    lines.any = true;
                    let row = problem.on_line(lines.number);
                    if lines.on_bad_row == OnBadRow::Stop {
                        return Err(frazil_bert::Error::from(row).in_file(&self.name).into());
                    }
                    self.skipped.add(&row);
                }
            }
        }
    }

    /// At the end, when so many were answered: none is an error.
    pub(super) fn finish(&self, answered: usize) -> Result<()> {
        let error = match &self.kind {
            Kind::Lines(Lines { any: false, .. }) => frazil_bert::Error::EmptyFile {
                expected: "a JSON object on each line, or a SQuAD data set",
            },
            _ if answered == 0 => frazil_bert::Error::NoUsableRow { skipped: self.skipped.count },
            _ => return Ok(()),
        };
        Err(error.in_file(&self.name).into())
    }
}

/// An object that may be a data set.
#[derive(Deserialize)]
struct First {
    data: Option<IgnoredAny>,
}

/// By the first line that is not blank. If there is none, the message for lines is the better one.
fn format_of(start: &[u8]) -> Format {
    let line = start.trim_ascii();
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    if line.is_empty() {
        return Format::Lines;
    }
    match serde_json::from_slice(line) {
        Ok(First { data: None }) => Format::Lines,
        _ => Format::Squad,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(text: &[u8], format: Option<Format>, on_bad_row: OnBadRow) -> Result<Questions> {
        let file = Box::new(Cursor::new(text.to_vec()));
        Questions::read("questions".into(), file, format, on_bad_row)
    }

    fn ids(mut questions: Questions) -> Result<Vec<String>> {
        let mut ids = Vec::new();
        while let Some(example) = questions.pull()? {
            ids.push(example.qas_id);
        }
        questions.finish(ids.len())?;
        Ok(ids)
    }

    const LINES: &str = "\n{\"id\": \"a\", \"question\": \"?\", \"context\": \"x\"}\n\
                         {\"question\": \"?\", \"context\": \"x\"}\n";
    const SQUAD: &str = "{\n\"data\": [{\"paragraphs\": [{\"context\": \"x\", \"qas\": [\
                         {\"id\": \"a\", \"question\": \"?\"}]}]}]}";

    #[test]
    fn both_formats_are_told_apart() {
        let told = |text: &str| ids(open(text.as_bytes(), None, OnBadRow::Stop).unwrap()).unwrap();
        assert_eq!(told(LINES), ["a", "line-3"]);
        assert_eq!(told(SQUAD), ["a"]);
        assert_eq!(told(&SQUAD.replace('\n', "")), ["a"]);
        assert_eq!(ids(Questions::one("?", "x")).unwrap(), ["question"]);
        assert_eq!(open(SQUAD.as_bytes(), None, OnBadRow::Stop).unwrap().progress(), (0, Some(1)));
        let lines = open(LINES.as_bytes(), Some(Format::Squad), OnBadRow::Stop);
        assert!(lines.is_err());
    }

    #[test]
    fn bad_lines_stop_or_are_counted() {
        let text = b"{\"question\": \"?\", \"context\": \"x\"}\n{\"question\": 3}\n\xff\n[]\n";
        let error = ids(open(text, None, OnBadRow::Stop).unwrap()).unwrap_err();
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        let said = format!("{error} {cause:?}");
        let reason = "line 2: expected `question` to be a string, but it is a number";
        assert!(said.contains("`questions`") && said.contains(reason), "{said}");
        let mut questions = open(text, None, OnBadRow::Skip).unwrap();
        assert_eq!(questions.pull().unwrap().unwrap().qas_id, "line-1");
        assert!(questions.pull().unwrap().is_none());
        let skipped = questions.skipped();
        assert_eq!(skipped.count, 3);
        assert_eq!(skipped.first[1], "line 3: byte 1 of the line is not UTF-8");
        for empty in [&b""[..], b"\n \n"] {
            let error = ids(open(empty, None, OnBadRow::Stop).unwrap()).unwrap_err();
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            assert!(format!("{cause:?}").contains("the file is empty"), "{error}");
        }
    }
}
