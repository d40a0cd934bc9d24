//! Tables on a terminal: columns as wide as their content, no lines, no colour.

use std::io::{self, Write};

pub use frazil::page::number::{size, thousands};

/// Rows under a header.
pub struct Table {
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns; a name that starts with `>` is set to the right.
    pub fn new(columns: &[&str]) -> Self {
        let right = columns.iter().map(|name| name.starts_with('>')).collect();
        let header = columns.iter().map(|name| name.trim_start_matches('>').to_owned()).collect();
        Self { right, rows: vec![header] }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    /// Whether there is nothing under the header.
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// Prints it, indented by two.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|c| c.chars().count()).max()
        };
        let widths: Vec<usize> =
            (0..self.right.len()).map(|column| width(column).unwrap_or(0)).collect();
        for row in &self.rows {
            let mut line = String::from(" ");
            for ((cell, &width), &right) in row.iter().zip(&widths).zip(&self.right) {
                let pad = " ".repeat(width - cell.chars().count());
                line.push(' ');
                let parts = if right { [&pad, cell] } else { [cell, &pad] };
                parts.iter().for_each(|part| line.push_str(part));
                line.push(' ');
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligns_columns() {
        let mut table = Table::new(&["name", ">bytes"]);
        table.row(["a".into(), "1".into()]);
        table.row(["longer".into(), "1,000".into()]);
        let mut out = Vec::new();
        table.print(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "  name    bytes\n  a           1\n  longer  1,000\n");
    }
}
