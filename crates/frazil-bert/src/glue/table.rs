//! Tables as lines: plain ones, and CSV with quotes.
//!
//! The tab-separated files of GLUE know no quotes: a line is a row and every tab ends a column,
//! as the original reads them with Python's `csv` and no quote character. Left out: what the
//! columns mean.

use crate::rows::RowProblem;

/// The lines of a file as text.
pub(super) struct Lines<'a> {
    rest: &'a [u8],
}

impl<'a> Lines<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes) }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Result<&'a str, RowProblem>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let end = self.rest.iter().position(|&b| b == b'\n');
        let (line, rest) = match end {
            Some(end) => (&self.rest[..end], &self.rest[end + 1..]),
            None => (self.rest, &[][..]),
        };
        self.rest = rest;
        Some(text(line))
    }
}

/// A line as text, without its end.
pub(super) fn text(line: &[u8]) -> Result<&str, RowProblem> {
    let line = std::str::from_utf8(line)
        .map_err(|error| RowProblem::Utf8 { at: error.valid_up_to() + 1 })?;
    let line = line.trim_end_matches('\r');
    match line.find('\r') {
        None => Ok(line),
        Some(at) => Err(RowProblem::CarriageReturn { at: line[..at].chars().count() + 1 }),
    }
}

/// The rows of a CSV file. A column in quotes may hold commas, line ends and doubled quotes.
pub(super) struct Csv<'a> {
    bytes: &'a [u8],
    at: usize,
    line: usize,
}

impl<'a> Csv<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes: bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes), at: 0, line: 1 }
    }

    /// One column, and whether the row goes on behind it.
    fn column(&mut self, index: usize) -> Result<(Vec<u8>, bool), RowProblem> {
        let mut column = Vec::new();
        if self.bytes.get(self.at) == Some(&b'"') {
            self.at += 1;
            loop {
                match self.bytes.get(self.at) {
                    None => return Err(RowProblem::OpenQuote { column: index + 1 }),
                    Some(b'"') if self.bytes.get(self.at + 1) == Some(&b'"') => {
                        column.push(b'"');
                        self.at += 2;
                    }
                    Some(b'"') => {
                        self.at += 1;
                        break;
                    }
                    Some(&byte) => {
                        self.line += usize::from(byte == b'\n');
                        column.push(byte);
                        self.at += 1;
                    }
                }
            }
        } else {
            let rest = &self.bytes[self.at..];
            let end = rest.iter().position(|b| matches!(b, b',' | b'\n')).unwrap_or(rest.len());
            let mut text = &rest[..end];
            if rest.get(end) != Some(&b',') {
                text = text.strip_suffix(b"\r").unwrap_or(text);
            }
            column.extend_from_slice(text);
            self.at += end;
        }
        let rest = &self.bytes[self.at..];
        let (length, more) = match rest {
            [b',', ..] => (1, true),
            [b'\n', ..] => (1, false),
            [b'\r', b'\n', ..] => (2, false),
            [] | [b'\r'] => (rest.len(), false),
            _ => return Err(RowProblem::AfterQuote { column: index + 1 }),
        };
        self.at += length;
        self.line += usize::from(!more);
        Ok((column, more))
    }

    fn row(&mut self) -> Result<Vec<String>, RowProblem> {
        let start = self.at;
        let mut columns = Vec::new();
        loop {
            let (column, more) = match self.column(columns.len()) {
                Ok(column) => column,
                Err(problem) => {
                    self.skip_line();
                    return Err(problem);
                }
            };
            columns.push(column);
            if !more {
                break;
            }
        }
        let text = |column: Vec<u8>| {
            String::from_utf8(column).map_err(|error| {
                let valid = error.utf8_error().valid_up_to();
                let bad = error.as_bytes()[valid];
                let row = &self.bytes[start..self.at];
                let at = std::str::from_utf8(row).map_or_else(|e| e.valid_up_to(), |_| valid);
                debug_assert_eq!(row.get(at), Some(&bad));
                RowProblem::Utf8 { at: at + 1 }
            })
        };
        columns.into_iter().map(text).collect()
    }

    fn skip_line(&mut self) {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|&b| b == b'\n').map_or(rest.len(), |end| end + 1);
        self.at += length;
        self.line += 1;
    }
}

impl Iterator for Csv<'_> {
    /// The line that the row begins on, and the row.
    type Item = (usize, Result<Vec<String>, RowProblem>);

    fn next(&mut self) -> Option<Self::Item> {
        (self.at < self.bytes.len()).then(|| (self.line, self.row()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_end_as_anyone_ends_them() {
        let lines: Vec<_> = Lines::new(b"\xef\xbb\xbfa\tb\r\n\nc").map(Result::unwrap).collect();
        assert_eq!(lines, ["a\tb", "", "c"]);
        let mut lines = Lines::new("é\rb\nc".as_bytes());
        assert_eq!(lines.next().unwrap(), Err(RowProblem::CarriageReturn { at: 2 }));
        assert_eq!(lines.next().unwrap(), Ok("c"));
    }

    #[test]
    fn quotes_hold_anything() {
        let rows: Vec<_> = Csv::new(b"a,\"b, \"\"c\"\"\nd\",\r\n\"\",x y\n")
            .map(|(l, r)| (l, r.unwrap()))
            .collect();
        let row = |columns: &[&str]| columns.iter().map(|c| c.to_string()).collect::<Vec<_>>();
        assert_eq!(rows, [(1, row(&["a", "b, \"c\"\nd", ""])), (3, row(&["", "x y"]))]);
    }

    #[test]
    fn bad_quotes_cost_one_row() {
        let rows: Vec<_> = Csv::new(b"\"a\"b,c\nd\n\"e").collect();
        assert_eq!(rows[0], (1, Err(RowProblem::AfterQuote { column: 1 })));
        assert_eq!(rows[1], (2, Ok(vec!["d".to_owned()])));
        assert_eq!(rows[2], (3, Err(RowProblem::OpenQuote { column: 1 })));
        assert_eq!(rows.len(), 3);
        let bad: Vec<_> = Csv::new(b"a,\"\"\"\xff\"\n").collect();
        assert_eq!(bad, [(1, Err(RowProblem::Utf8 { at: 6 }))]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Csv::new(&bytes).count() <= bytes.len());
            prop_assert!(Lines::new(&bytes).count() <= bytes.len());
        }

        #[test]
        fn csv_round_trip(rows in prop::collection::vec(prop::collection::vec("[a,\"\r\n é]{0,5}", 1..4), 1..5)) {
            let quote = |text: &String| format!("\"{}\"", text.replace('"', "\"\""));
            let text: String = rows
                .iter()
                .map(|row| row.iter().map(quote).collect::<Vec<_>>().join(",") + "\n")
                .collect();
            let back: Vec<Vec<String>> = Csv::new(text.as_bytes()).map(|(_, r)| r.unwrap()).collect();
            prop_assert_eq!(back, rows);
        }
    }
}
