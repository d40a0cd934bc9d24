//! Rows of text from a file, a pipe, the command line or a data set, and the count of those that
//! could not be used.

use std::io::{BufRead, Cursor, Read};
use std::path::{Path, PathBuf};

use frazil_bert::features::InputExample;
use frazil_bert::glue::own::{Column, Format, Layout, Reader, Stop};
use frazil_bert::glue::{ReadOptions, Split, Task};
use frazil_bert::rows::{OnBadRow, RowProblem};
use serde::Serialize;

use crate::{Error, Result};

/// Bad rows that a report lists; the others are counted.
const SHOWN: usize = 10;

/// What columns of texts are called, and those of the texts that go with them.
const NAMES: [(&str, &[&str]); 8] = [
    ("text", &["pair", "text_b"]),
    ("text_a", &["text_b"]),
    ("sentence", &[]),
    ("sentence1", &["sentence2"]),
    ("premise", &["hypothesis"]),
    ("question1", &["question2"]),
    ("question", &["sentence", "answer"]),
    ("first", &["second"]),
];

/// Which columns hold what, as far as the user said.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// How rows are written; by the file's name if none.
    pub format: Option<Format>,
    /// The text.
    pub text: Option<Column>,
    /// The second text.
    pub pair: Option<Column>,
    /// The label that a row should get.
    pub label: Option<Column>,
}

/// Rows that could not be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// How many.
    pub count: usize,
    /// The first of them: line, and what is wrong with it.
    pub first: Vec<String>,
}

impl Skipped {
    /// Counts one.
    pub fn add(&mut self, row: &impl ToString) {
        if self.first.len() < SHOWN {
            self.first.push(row.to_string());
        }
        self.count += 1;
    }
}

/// Where rows come from.
pub struct Source {
    name: PathBuf,
    rows: Kind,
    total: Option<u64>,
    done: u64,
    given: usize,
    on_bad_row: OnBadRow,
    skipped: Skipped,
    /// Whether rows have labels.
    pub labelled: bool,
    /// Choices that were made, in words.
    pub notes: Vec<String>,
}

enum Kind {
    Table(Reader<Box<dyn BufRead>>),
    /// Read already, with their lines.
    Examples(std::iter::Zip<std::vec::IntoIter<usize>, std::vec::IntoIter<InputExample>>),
}

impl Source {
    /// Texts as they are, each with the second one of a pair, if it has one.
    pub fn texts(texts: impl IntoIterator<Item = (String, Option<String>)>) -> Self {
        let example = |(i, (text_a, text_b)): (usize, (String, Option<String>))| {
            let guid = format!("text-{}", i + 1);
            InputExample { guid, text_a, text_b, label: String::new() }
        };
        let examples: Vec<InputExample> = texts.into_iter().enumerate().map(example).collect();
        let places = (1..=examples.len()).collect();
        Self::of("the command line".into(), places, examples, OnBadRow::Stop)
    }

    /// Rows with labels that were read already, with their lines.
    pub fn labelled(name: PathBuf, rows: impl IntoIterator<Item = (usize, InputExample)>) -> Self {
        let (lines, examples) = rows.into_iter().unzip();
        let source = Self::of(name, lines, examples, OnBadRow::Stop);
        Self { labelled: true, ..source }
    }

    fn of(
        name: PathBuf,
        lines: Vec<usize>,
        examples: Vec<InputExample>,
        on_bad_row: OnBadRow,
    ) -> Self {
        Self {
            name,
            total: Some(examples.len() as u64),
            rows: Kind::Examples(lines.into_iter().zip(examples)),
            done: 0,
            given: 0,
            on_bad_row,
            skipped: Skipped::default(),
            labelled: false,
            notes: Vec::new(),
        }
    }

    /// A part of a GLUE data set in a folder.
    pub fn task(task: Task, folder: &Path, split: Split, on_bad_row: OnBadRow) -> Result<Self> {
        let options = ReadOptions { on_bad_row, ..ReadOptions::default() };
        let path = match folder.is_file() {
            true => folder.to_path_buf(),
            false => task.file(folder, split, &options.language),
        };
        let bytes = frazil_tensor::file::map(&path)?;
        let rows = task.parse(&bytes, split, &options).map_err(|error| error.in_file(&path))?;
        let mut source = Self::of(path, rows.lines, rows.items, on_bad_row);
        rows.skipped.iter().for_each(|row| source.skipped.add(row));
        source.labelled = !matches!(split, Split::Test | Split::TestMismatched);
        Ok(source)
    }

    /// A table in a file, or in a pipe (`-`).
    pub fn table(path: &Path, columns: &Columns, on_bad_row: OnBadRow) -> Result<Self> {
        let pipe = path == Path::new("-");
        let name = if pipe { PathBuf::from("stdin") } else { path.to_path_buf() };
        let (input, total): (Box<dyn Read>, _) = if pipe {
            (Box::new(std::io::stdin()), None)
        } else {
            let failed = |source| Error::Read { path: name.clone(), source };
            let file = std::fs::File::open(path).map_err(failed)?;
            let length = file.metadata().map_err(failed)?.len();
            (Box::new(file), Some(length))
        };
        let format = columns.format.unwrap_or_else(|| Format::of(path));
        Self::lines(Box::new(std::io::BufReader::new(input)), name, format, columns, on_bad_row)
            .map(|source| Self { total, ..source })
    }

    /// A table that is read from `input`, which is called `name` in errors.
    pub fn lines(
        mut input: Box<dyn BufRead>,
        name: PathBuf,
        format: Format,
        columns: &Columns,
        on_bad_row: OnBadRow,
    ) -> Result<Self> {
        let mut first = Vec::new();
        let failed = |source| Error::Read { path: name.clone(), source };
        input.read_until(b'\n', &mut first).map_err(failed)?;
        if first.is_empty() {
            let expected = match format {
                Format::Tsv => "a text on each line",
                Format::Csv => "a table of comma-separated columns",
                Format::JsonLines => "a JSON object on each line",
            };
            return Err(frazil_bert::Error::EmptyFile { expected }.in_file(&name).into());
        }
        let (text_a, text_b, note) = match &columns.text {
            Some(text) => (text.clone(), columns.pair.clone(), None),
            None => guess(&first, format, columns),
        };
        let layout = Layout {
            format,
            text_a,
            text_b,
            label: columns.label.clone(),
            labels: None,
            on_bad_row,
        };
        let whole: Box<dyn BufRead> = Box::new(Cursor::new(first).chain(input));
        let reader = Reader::new(whole, layout).map_err(|stop| match stop {
            Stop::Io(source) => Error::Read { path: name.clone(), source },
            Stop::Table(error) => error.in_file(&name).into(),
        })?;
        let mut source = Self::of(name, Vec::new(), Vec::new(), on_bad_row);
        source.labelled = columns.label.is_some();
        source.total = None;
        source.rows = Kind::Table(reader);
        source.notes.extend(note);
        Ok(source)
    }

    /// What it is called.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// Whether its rows are counted, not its bytes.
    pub fn is_counted(&self) -> bool {
        matches!(self.rows, Kind::Examples(_))
    }

    /// How much is read, and of how much, where that is known: rows, or bytes of a file.
    pub fn progress(&self) -> (u64, Option<u64>) {
        (self.done, self.total)
    }

    /// Rows that could not be used.
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// The next row that can be used, as `make` understands it. What `make` finds wrong with a row
    /// is treated as what is wrong with it in the file.
    pub fn next<T>(
        &mut self,
        mut make: impl FnMut(InputExample) -> Result<T, RowProblem>,
    ) -> Result<Option<T>> {
        loop {
            let (line, row) = match &mut self.rows {
                Kind::Examples(examples) => {
                    let Some((line, example)) = examples.next() else { break };
                    self.done += 1;
                    (line, Ok(example))
                }
                Kind::Table(reader) => {
                    let read = reader.row();
                    let failed = |source| Error::Read { path: self.name.clone(), source };
                    let row = read.map_err(failed)?;
                    self.done = reader.bytes();
                    let Some(row) = row else { break };
                    row
                }
            };
            match row.and_then(&mut make) {
                Ok(made) => {
                    self.given += 1;
                    return Ok(Some(made));
                }
                Err(problem) => {
                    let row = problem.on_line(line);
                    if self.on_bad_row == OnBadRow::Stop {
                        return Err(frazil_bert::Error::from(row).in_file(&self.name).into());
                    }
                    self.skipped.add(&row);
                }
            }
        }
        if self.given == 0 {
            let skipped = self.skipped.count;
            let error = frazil_bert::Error::NoUsableRow { skipped };
            return Err(error.in_file(&self.name).into());
        }
        Ok(None)
    }
}

/// The columns of a table that nobody described: by the names in its first line, or else the first
/// column is the text and there are no names.
fn guess(
    first: &[u8],
    format: Format,
    columns: &Columns,
) -> (Column, Option<Column>, Option<String>) {
    let first = String::from_utf8_lossy(first);
    let first = first.trim_start_matches('\u{feff}').trim_end();
    let names: Vec<String> = match format {
        Format::JsonLines => match serde_json::from_str::<serde_json::Value>(first) {
            Ok(serde_json::Value::Object(object)) => object.keys().cloned().collect(),
            _ => Vec::new(),
        },
        Format::Tsv => first.split('\t').map(|name| name.trim().to_owned()).collect(),
        Format::Csv => {
            first.split(',').map(|name| name.trim().trim_matches('"').to_owned()).collect()
        }
    };
    let has = |name: &str| names.iter().any(|known| known == name);
    let Some((text, pairs)) = NAMES.iter().find(|(text, _)| has(text)) else {
        return match format {
            Format::JsonLines => (Column::Name("text".into()), columns.pair.clone(), None),
            _ => (Column::Index(0), columns.pair.clone(), None),
        };
    };
    let pair = pairs.iter().find(|pair| has(pair)).map(|&pair| Column::Name(pair.to_owned()));
    let pair = columns.pair.clone().or(pair);
    let note = match &pair {
        Some(Column::Name(pair)) => format!("texts are `{text}` and `{pair}`"),
        _ => format!("texts are `{text}`"),
    };
    (Column::Name((*text).to_owned()), pair, Some(note))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &'static [u8], format: Format, columns: &Columns) -> Result<Vec<String>> {
        let input: Box<dyn BufRead> = Box::new(text);
        let mut source = Source::lines(input, "t".into(), format, columns, OnBadRow::Stop)?;
        let mut all = Vec::new();
        let show = |row: InputExample| {
            let pair = row.text_b.map(|pair| format!("|{pair}")).unwrap_or_default();
            Ok(format!("{} {}{pair}", row.guid, row.text_a))
        };
        while let Some(row) = source.next(show)? {
            all.push(row);
        }
        Ok(all)
    }

    #[test]
    fn columns_are_found_by_their_names() {
        let none = Columns::default();
        assert_eq!(rows(b"a\tx\nb\n", Format::Tsv, &none).unwrap(), ["line-1 a", "line-2 b"]);
        let named = b"id\ttext\tpair\n1\ta\tb\n";
        assert_eq!(rows(named, Format::Tsv, &none).unwrap(), ["line-2 a|b"]);
        let csv = b"\"premise\",\"hypothesis\"\n\"a, b\",c\n";
        assert_eq!(rows(csv, Format::Csv, &none).unwrap(), ["line-2 a, b|c"]);
        let json = b"{\"sentence1\": \"a\", \"sentence2\": \"b\"}\n";
        assert_eq!(rows(json, Format::JsonLines, &none).unwrap(), ["line-1 a|b"]);
        let second = Columns { text: Some(Column::Index(1)), ..Columns::default() };
        assert_eq!(rows(named, Format::Tsv, &second).unwrap(), ["line-1 text", "line-2 a"]);
    }

    #[test]
    fn what_is_wrong_names_file_and_line() {
        let error = rows(b"", Format::Tsv, &Columns::default()).unwrap_err();
        assert_eq!(error.to_string(), "cannot use `t`");
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("the file is empty"), "{cause}");
        let second = Columns { text: Some(Column::Index(1)), ..Columns::default() };
        let error = rows(b"a\tb\nc\n", Format::Tsv, &second).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(cause, "line 2: expected the text in column 2, but there is 1 column");
    }

    #[test]
    fn skipped_rows_are_counted() {
        let input: Box<dyn BufRead> = Box::new(&b"a\n\xff\nb\n"[..]);
        let columns = Columns::default();
        let mut source =
            Source::lines(input, "t".into(), Format::Tsv, &columns, OnBadRow::Skip).unwrap();
        let refuse = |row: InputExample| match row.text_a.as_str() {
            "b" => Err(RowProblem::TooLong { found: 9, most: 8 }),
            _ => Ok(row.guid),
        };
        assert_eq!(source.next(refuse).unwrap().unwrap(), "line-1");
        assert_eq!(source.next(refuse).unwrap(), None);
        let expected = [
            "line 2: byte 1 of the line is not UTF-8",
            "line 3: expected at most 8 pieces, but there are 9",
        ];
        assert_eq!(
            (source.skipped().count, &source.skipped().first[..]),
            (2, &expected.map(String::from)[..])
        );
    }
}
