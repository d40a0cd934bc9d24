//! A table of one's own, a row at a time: what comes through a pipe has no end to wait for.

use std::io::{self, BufRead};

use super::{Format, Layout, Places, json_row};
use crate::features::InputExample;
use crate::glue::table::{Csv, text};
use crate::rows::RowProblem;
use crate::{Error, Result};

/// A longer row is no row: some quote was never closed, or the file is no table.
const LONGEST_ROW: usize = 64 << 20;

/// What can happen between two rows: the file cannot be read on, or is no table at all.
#[derive(Debug)]
pub enum Stop {
    /// The system's reason.
    Io(io::Error),
    /// What is wrong with the whole.
    Table(Error),
}

/// Reads rows one by one.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    layout: Layout,
    /// Columns of a table, once its first line is read.
    places: Option<Places>,
    /// Lines that were read.
    lines: usize,
    /// Bytes that were read.
    bytes: u64,
    record: Vec<u8>,
}

impl<R: BufRead> Reader<R> {
    /// Reads the first line where it names columns. [`Layout::on_bad_row`] is the caller's business.
    pub fn new(input: R, layout: Layout) -> Result<Self, Stop> {
        let mut reader =
            Self { input, layout, places: None, lines: 0, bytes: 0, record: Vec::new() };
        let mut header = Vec::new();
        if reader.layout.format != Format::JsonLines {
            if reader.layout.has_header() {
                if !reader.read_record().map_err(Stop::Io)? {
                    let expected = "a first line that names the columns";
                    return Err(Stop::Table(Error::EmptyFile { expected }));
                }
                let columns = reader.columns().map_err(|problem| problem.on_line(1));
                header = columns.map_err(|row| Stop::Table(row.into()))?;
            }
            reader.places = Some(Places::of(&header, &reader.layout).map_err(Stop::Table)?);
        }
        Ok(reader)
    }

    /// How many bytes were read.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many lines were read.
    pub fn lines(&self) -> usize {
        self.lines
    }

    /// The next row with the line that it begins on; none at the end.
    #[allow(clippy::type_complexity, reason = "a row, or why it is none")]
    pub fn row(&mut self) -> io::Result<Option<(usize, Result<InputExample, RowProblem>)>> {
        loop {
            let line = self.lines + 1;
            if !self.read_record()? {
                return Ok(None);
            }
            let row = match self.places {
                None => match text(&self.record) {
                    // A blank line, the last one say, is no row.
                    Ok(text) if text.trim().is_empty() => continue,
                    Ok(text) => json_row(line, text, &self.layout),
                    Err(problem) => Err(problem),
                },
                Some(places) => {
                    self.columns().and_then(|columns| places.row(line, &columns, &self.layout))
                }
            };
            return Ok(Some((line, row)));
        }
    }

    /// Reads a line, or in CSV as many as are in quotes; false at the end.
    fn read_record(&mut self) -> io::Result<bool> {
        self.record.clear();
        loop {
            let before = self.record.len();
            let room = (LONGEST_ROW - before) as u64;
            let read = io::Read::take(&mut self.input, room).read_until(b'\n', &mut self.record)?;
            self.bytes += read as u64;
            if read > 0 {
                self.lines += 1;
            }
            if self.lines == 1 && self.record.starts_with(b"\xef\xbb\xbf") {
                self.record.drain(..3);
            }
            let quotes = self.record.iter().filter(|byte| **byte == b'"').count();
            let open = self.layout.format == Format::Csv && !quotes.is_multiple_of(2);
            if !open || read == 0 || self.record.len() >= LONGEST_ROW {
                break;
            }
        }
        let empty = self.record.is_empty();
        if self.layout.format != Format::Csv && self.record.last() == Some(&b'\n') {
            self.record.pop();
        }
        Ok(!empty)
    }

    /// The columns of the record.
    fn columns(&self) -> Result<Vec<String>, RowProblem> {
        match self.layout.format {
            Format::Csv => {
                Csv::new(&self.record).next().map_or_else(|| Ok(Vec::new()), |row| row.1)
            }
            _ => Ok(text(&self.record)?.split('\t').map(str::to_owned).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Column, parse};
    use super::*;
    use crate::rows::OnBadRow;

    fn layout(format: Format) -> Layout {
        Layout {
            format,
            text_a: Column::Name("text".into()),
            text_b: None,
            label: Some(Column::Name("label".into())),
            labels: None,
            on_bad_row: OnBadRow::Skip,
        }
    }

    fn all(bytes: &[u8], format: Format) -> (Vec<InputExample>, Vec<usize>) {
        let mut reader = Reader::new(bytes, layout(format)).unwrap();
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        while let Some((line, row)) = reader.row().unwrap() {
            match row {
                Ok(example) => good.push(example),
                Err(_) => bad.push(line),
            }
        }
        assert_eq!(reader.bytes(), bytes.len() as u64);
        (good, bad)
    }

    /// A row at a time, or all at once: the same rows, on the same lines.
    #[test]
    fn rows_are_those_of_the_whole_file() {
        let cases: [(Format, &[u8]); 3] = [
            (Format::Tsv, b"\xef\xbb\xbflabel\ttext\r\ngood\ta \"b\"\r\nbad\nx\t\xff\ngood\tc"),
            (
                Format::Csv,
                b"label,text\ngood,\"a \"\"b\"\"\nand more\"\nshort\ngood,\"x\"y\ngood,c\n",
            ),
            (Format::JsonLines, b"\n{\"text\":\"a\",\"label\":\"x\"}\n[]\n{\"label\":1}\n\n"),
        ];
        for (format, bytes) in cases {
            let whole = parse(bytes, &layout(format)).unwrap();
            let bad: Vec<usize> = whole.skipped.iter().map(|row| row.line).collect();
            assert_eq!(all(bytes, format), (whole.items, bad), "{format:?}");
        }
    }

    #[test]
    fn a_table_without_its_columns_is_refused() {
        let refused = |bytes: &[u8]| match Reader::new(bytes, layout(Format::Tsv)) {
            Err(Stop::Table(error)) => error.to_string(),
            other => panic!("{other:?}"),
        };
        assert!(refused(b"").contains("the file is empty"));
        assert!(refused(b"text\tx\n").contains("no column is called `label`"));
        assert!(refused(b"\xff\n").starts_with("line 1"));
    }
}
