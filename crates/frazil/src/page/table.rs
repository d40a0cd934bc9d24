//! Tables: real ones, sorted by a click where scripts run, readable where they do not.

use std::fmt::Write;

use super::text::{breaking, marked};
use super::{Tone, escape, number};

/// More rows than this scroll in a frame of their own.
const TALL: usize = 30;

/// Rows under a header.
#[derive(Clone, Debug, Default)]
pub struct Table {
    caption: String,
    columns: Vec<(String, bool)>,
    rows: Vec<Vec<Cell>>,
}

/// What stands in a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    text: String,
    value: Option<f64>,
    code: bool,
    tone: Tone,
}

impl Table {
    /// A table with these columns; a name that starts with `>` is set to the right, as numbers are.
    pub fn new<S: AsRef<str>>(columns: impl IntoIterator<Item = S>) -> Self {
        let column = |name: S| match name.as_ref().strip_prefix('>') {
            Some(name) => (name.to_owned(), true),
            None => (name.as_ref().to_owned(), false),
        };
        Self { columns: columns.into_iter().map(column).collect(), ..Self::default() }
    }

    /// What the table shows.
    #[must_use]
    pub fn caption(mut self, text: impl Into<String>) -> Self {
        self.caption = text.into();
        self
    }

    /// Adds a row. Cells that are missing stay empty; cells without a column are left out.
    #[must_use]
    pub fn row(mut self, cells: impl IntoIterator<Item = Cell>) -> Self {
        self.push(cells);
        self
    }

    /// Adds a row.
    pub fn push(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let mut row: Vec<Cell> = cells.into_iter().take(self.columns.len()).collect();
        row.resize(self.columns.len(), Cell::default());
        self.rows.push(row);
    }

    /// Whether there is nothing under the header.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn render(&self, out: &mut String) {
        let tall = if self.rows.len() > TALL { " tall" } else { "" };
        // A frame that scrolls must be reachable by keyboard.
        let name = match self.caption.as_str() {
            "" => "Table",
            caption => caption,
        };
        let _ = writeln!(
            out,
            "<div class=\"scroll{tall}\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table>",
            escape(name)
        );
        if !self.caption.is_empty() {
            let _ = writeln!(out, "<caption>{}</caption>", marked(&self.caption));
        }
        out.push_str("<thead><tr>");
        for (name, right) in &self.columns {
            let class = if *right { " class=\"n\"" } else { "" };
            let _ = write!(out, "<th scope=\"col\"{class}>{}</th>", marked(name));
        }
        out.push_str("</tr></thead>\n<tbody>\n");
        for row in &self.rows {
            out.push_str("<tr>");
            for (cell, (_, right)) in row.iter().zip(&self.columns) {
                cell.render(out, *right);
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody></table></div>\n");
    }
}

impl Cell {
    /// A number that is written in a certain way, and sorted by its value.
    pub fn number(value: f64, text: impl Into<String>) -> Self {
        Self { text: text.into(), value: Some(value), ..Self::default() }
    }

    /// Bytes, as `12 MB`.
    pub fn size(bytes: u64) -> Self {
        Self::number(bytes as f64, number::size(bytes))
    }

    /// A name of a program, a file, a node.
    pub fn code(text: impl Into<String>) -> Self {
        Self { text: text.into(), code: true, ..Self::default() }
    }

    /// Shown as good or bad.
    #[must_use]
    pub fn tone(mut self, tone: Tone) -> Self {
        self.tone = tone;
        self
    }

    fn render(&self, out: &mut String, right: bool) {
        let classes = [if right { "n" } else { "" }, self.tone.class()].join(" ");
        let class = match classes.trim() {
            "" => String::new(),
            classes => format!(" class=\"{classes}\""),
        };
        let value = match self.value {
            Some(value) if value.is_finite() => format!(" data-v=\"{value}\""),
            Some(_) => " data-v=\"\"".into(),
            None => String::new(),
        };
        let _ = match self.code {
            true => write!(out, "<td{class}{value}><code>{}</code></td>", breaking(&self.text)),
            false => write!(out, "<td{class}{value}>{}</td>", marked(&self.text)),
        };
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        Self::number(value, number::short(value))
    }
}

impl From<u64> for Cell {
    fn from(value: u64) -> Self {
        Self::number(value as f64, number::thousands(value))
    }
}

impl From<usize> for Cell {
    fn from(value: usize) -> Self {
        (value as u64).into()
    }
}

/// `–` where there is nothing.
impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or_else(|| "–".into(), Into::into)
    }
}
