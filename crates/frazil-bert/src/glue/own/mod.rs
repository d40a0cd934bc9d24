//! Tables of one's own: TSV, CSV, or JSON Lines.
//!
//! TSV and CSV name their columns in the first line, or columns are given by number and there is
//! no such line. JSON Lines has an object on each line. [`read`] takes a whole file, [`Reader`] a
//! row at a time. Left out: guessing which column is what.

mod reader;

use std::path::Path;

pub use reader::{Reader, Stop};

use serde_json::Value;

use super::check_label;
use super::table::{Csv, Lines};
use crate::features::InputExample;
use crate::features::classifier::Labels;
use crate::rows::{Collector, OnBadRow, RowProblem, Rows};
use crate::{Error, Result};

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Columns end at tabs; there are no quotes.
    Tsv,
    /// Columns end at commas; those with quotes may hold anything.
    Csv,
    /// A JSON object on each line.
    JsonLines,
}

impl Format {
    /// By the end of the file's name: `.csv`, `.json` and `.jsonl`, or else TSV.
    pub fn of(path: &Path) -> Self {
        let extension = path.extension().map(|e| e.to_ascii_lowercase());
        match extension.as_deref().and_then(|e| e.to_str()) {
            Some("csv") => Self::Csv,
            Some("jsonl" | "json" | "ndjson") => Self::JsonLines,
            _ => Self::Tsv,
        }
    }
}

/// Which column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column {
    /// By its name in the first line, or the key in JSON.
    Name(String),
    /// By its place, counted from 0. JSON has none.
    Index(usize),
}

/// What is where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// How rows are written.
    pub format: Format,
    /// The text.
    pub text_a: Column,
    /// The second text of a pair.
    pub text_b: Option<Column>,
    /// The label; without it, all are `""`, or the first of [`labels`](Self::labels).
    pub label: Option<Column>,
    /// What labels can be; without it, anything.
    pub labels: Option<Labels>,
    /// What is done about a row that cannot be used.
    pub on_bad_row: OnBadRow,
}

impl Layout {
    fn columns(&self) -> impl Iterator<Item = (&Column, &'static str)> {
        let more = [(&self.text_b, "the second text"), (&self.label, "the label")];
        let more = more.into_iter().filter_map(|(column, what)| Some((column.as_ref()?, what)));
        std::iter::once((&self.text_a, "the text")).chain(more)
    }

    /// Whether the first line holds names.
    fn has_header(&self) -> bool {
        self.columns().any(|(column, _)| matches!(column, Column::Name(_)))
    }
}

/// The labels of examples, each once, sorted: what a model of one's own is trained with.
pub fn labels_of(examples: &[InputExample]) -> Vec<String> {
    let labels: std::collections::BTreeSet<&str> =
        examples.iter().map(|example| example.label.as_str()).collect();
    labels.into_iter().map(str::to_owned).collect()
}

/// Reads a file.
pub fn read(path: impl AsRef<Path>, layout: &Layout) -> Result<Rows<InputExample>> {
    let path = path.as_ref();
    parse(&frazil_tensor::file::map(path)?, layout).map_err(|error| error.in_file(path))
}

/// Reads a file that is in memory.
pub fn parse(bytes: &[u8], layout: &Layout) -> Result<Rows<InputExample>> {
    let expected = match layout.format {
        Format::Tsv => "a table of tab-separated columns",
        Format::Csv => "a table of comma-separated columns",
        Format::JsonLines => "a JSON object on each line",
    };
    if bytes.is_empty() {
        return Err(Error::EmptyFile { expected });
    }
    let mut rows = Collector::new(layout.on_bad_row);
    let lines = || (1..).zip(Lines::new(bytes));
    match layout.format {
        Format::Tsv => {
            let split = |line: &str| line.split('\t').map(str::to_owned).collect::<Vec<_>>();
            table(lines().map(|(n, line)| (n, line.map(split))), layout, &mut rows)?;
        }
        Format::Csv => table(Csv::new(bytes), layout, &mut rows)?,
        Format::JsonLines => {
            // A blank line, the last one say, is no row.
            let blank = |line: &Result<&str, _>| line.as_ref().is_ok_and(|l| l.trim().is_empty());
            for (number, line) in lines().filter(|(_, line)| !blank(line)) {
                rows.add(number, line.and_then(|line| json_row(number, line, layout)))?;
            }
        }
    }
    rows.finish()
}

type Row = (usize, Result<Vec<String>, RowProblem>);

fn table(
    mut lines: impl Iterator<Item = Row>,
    layout: &Layout,
    rows: &mut Collector<InputExample>,
) -> Result<()> {
    let mut header = Vec::new();
    if layout.has_header() {
        // Without it no row can be read, so skipping does not apply.
        if let Some((number, line)) = lines.next() {
            header = line.map_err(|problem| problem.on_line(number))?;
        }
    }
    let places = Places::of(&header, layout)?;
    for (number, line) in lines {
        rows.add(number, line.and_then(|columns| places.row(number, &columns, layout)))?;
    }
    Ok(())
}

/// Which column is what, counted from 0.
#[derive(Clone, Copy, Debug)]
struct Places {
    text_a: usize,
    text_b: Option<usize>,
    label: Option<usize>,
}

impl Places {
    /// By the names in the first line, where columns are named.
    fn of(header: &[String], layout: &Layout) -> Result<Self> {
        let place = |column: &Column| match column {
            Column::Index(index) => Ok(*index),
            Column::Name(name) => header
                .iter()
                .position(|known| known.trim() == name)
                .ok_or_else(|| Error::NoColumn { name: name.clone(), found: header.to_vec() }),
        };
        Ok(Self {
            text_a: place(&layout.text_a)?,
            text_b: layout.text_b.as_ref().map(&place).transpose()?,
            label: layout.label.as_ref().map(&place).transpose()?,
        })
    }

    fn row(
        &self,
        number: usize,
        columns: &[String],
        layout: &Layout,
    ) -> Result<InputExample, RowProblem> {
        let take = |column: usize, what| {
            let missing =
                RowProblem::MissingColumn { what, column: column + 1, found: columns.len() };
            columns.get(column).cloned().ok_or(missing)
        };
        let a = take(self.text_a, "the text")?;
        let b = self.text_b.map(|column| take(column, "the second text")).transpose()?;
        let label = self.label.map(|column| take(column, "the label")).transpose()?;
        finish(number, layout, a, b, label)
    }
}

fn json_row(number: usize, line: &str, layout: &Layout) -> Result<InputExample, RowProblem> {
    let value: Value = serde_json::from_str(line)
        .map_err(|error| RowProblem::Json(format!("{error}, which is of this line")))?;
    let Value::Object(object) = value else { return Err(RowProblem::Json("it is none".into())) };
    let get = |column: &Column| {
        let (key, value) = match column {
            Column::Name(name) => (name.clone(), object.get(name)),
            Column::Index(index) => {
                let entry = object.iter().nth(*index);
                (entry.map_or(index.to_string(), |(key, _)| key.clone()), entry.map(|(_, v)| v))
            }
        };
        let found = match value {
            // A label or score may be a number.
            Some(Value::String(text)) => return Ok(text.clone()),
            Some(Value::Number(number)) => return Ok(number.to_string()),
            Some(Value::Bool(_)) => "true or false",
            Some(Value::Null) => "null",
            Some(Value::Array(_)) => "a list",
            Some(Value::Object(_)) => "an object",
            None => "missing",
        };
        Err(RowProblem::Key { key, expected: "a string or a number", found })
    };
    let text_a = get(&layout.text_a)?;
    let text_b = layout.text_b.as_ref().map(get).transpose()?;
    let label = layout.label.as_ref().map(get).transpose()?;
    finish(number, layout, text_a, text_b, label)
}

fn finish(
    number: usize,
    layout: &Layout,
    text_a: String,
    text_b: Option<String>,
    label: Option<String>,
) -> Result<InputExample, RowProblem> {
    let label = match (label, &layout.labels) {
        (Some(label), Some(labels)) => {
            check_label(&label, labels)?;
            label
        }
        (Some(label), None) => label,
        (None, Some(Labels::Classes(labels))) => labels.first().cloned().unwrap_or_default(),
        (None, Some(Labels::Scores)) => "0".to_owned(),
        (None, None) => String::new(),
    };
    Ok(InputExample { guid: format!("line-{number}"), text_a, text_b, label })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Column {
        Column::Name(name.to_owned())
    }

    fn layout(format: Format) -> Layout {
        Layout {
            format,
            text_a: name("text"),
            text_b: None,
            label: Some(name("label")),
            labels: Some(Labels::classes(["bad", "good"])),
            on_bad_row: OnBadRow::Stop,
        }
    }

    #[test]
    fn the_same_rows_in_three_formats() {
        let tsv = parse(b"label\ttext\r\ngood\tA \"b\"\r\n", &layout(Format::Tsv)).unwrap();
        let csv = parse(b"label,text\ngood,\"A \"\"b\"\"\"\n", &layout(Format::Csv)).unwrap();
        let json = b"\n{\"text\": \"A \\\"b\\\"\", \"label\": \"good\"}\n\n";
        let json = parse(json, &layout(Format::JsonLines)).unwrap();
        assert_eq!(tsv.items[0].text_a, "A \"b\"");
        assert_eq!((&tsv.items, &tsv.items), (&csv.items, &json.items));
        assert_eq!(tsv.items[0].guid, "line-2");
        assert_eq!(labels_of(&tsv.items), ["good"]);
    }

    #[test]
    fn columns_by_number_need_no_names() {
        let layout = Layout {
            text_a: Column::Index(1),
            text_b: Some(Column::Index(0)),
            label: None,
            labels: None,
            ..layout(Format::Tsv)
        };
        let rows = parse(b"a\tb\n", &layout).unwrap();
        assert_eq!(rows.items[0].text_a, "b");
        assert_eq!(rows.items[0].text_b.as_deref(), Some("a"));
    }

    #[test]
    fn bad_rows_are_named() {
        let bad = |format, bytes: &[u8]| parse(bytes, &layout(format)).unwrap_err().to_string();
        use Format::{Csv, JsonLines, Tsv};
        assert!(bad(Tsv, b"text\tx\na\tgood\n").contains("`label`"));
        assert!(bad(Tsv, b"text\tlabel\na\n").starts_with("line 2: expected the label"));
        assert!(bad(Csv, b"text,label\na,so\n").contains("`bad`, `good`, not `so`"));
        assert!(bad(JsonLines, b"[1]").starts_with("line 1: expected a JSON object"));
        assert!(bad(JsonLines, b"{\"text\": null}").contains("but it is null"));
        assert!(bad(JsonLines, b"{\"text\": \"a\"}").contains("`label`"));
        assert!(bad(JsonLines, b"{\"text\"").contains("line 1"));
        for format in [Tsv, Csv, JsonLines] {
            assert!(bad(format, b"").contains("the file is empty"));
        }
        let skip = Layout { on_bad_row: OnBadRow::Skip, ..layout(Csv) };
        let rows = parse(b"text,label\n\"a\"b,good\na,good\n", &skip).unwrap();
        assert_eq!((rows.items.len(), rows.skipped[0].line), (1, 2));
        assert_eq!(Format::of(Path::new("x/y.CSV")), Csv);
    }
}
