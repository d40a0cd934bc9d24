//! Where rows of text come from and where predictions go: the flags for both, the same for every
//! kind of prediction that reads tables.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use frazil::bert::glue::own::{Column, Format};
use frazil::bert::rows::OnBadRow;
use frazil::ops::predict::rows::{Columns, Skipped, Source};
use frazil::tensor::file::AtomicFile;

use super::super::progress::Progress;

#[derive(clap::Args)]
pub struct RowFlags {
    /// A table of texts: TSV, CSV or JSON Lines by its name; `-`: lines of stdin
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// A text, instead of FILE; may be given several times
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    pub text: Vec<String>,
    /// The second text of a pair, one for each `--text`
    #[arg(long, value_name = "TEXT", requires = "text")]
    pub pair: Vec<String>,
    /// How FILE is written, if its name does not tell: tsv, csv or jsonl
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    pub format: Option<Format>,
    /// The column of texts: its name in the first line, or its number from 1 on
    #[arg(long, value_name = "COLUMN", value_parser = column)]
    pub text_column: Option<Column>,
    /// The column of second texts
    #[arg(long, value_name = "COLUMN", value_parser = column)]
    pub pair_column: Option<Column>,
}

#[derive(clap::Args)]
pub struct OutFlags {
    /// Where predictions go [default: stdout]
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write predictions as JSON Lines, not as a table
    #[arg(long)]
    pub jsonl: bool,
    /// Print a report as JSON when done
    #[arg(long, requires = "out")]
    pub json: bool,
}

fn format(text: &str) -> Result<Format, String> {
    match text {
        "tsv" | "txt" => Ok(Format::Tsv),
        "csv" => Ok(Format::Csv),
        "jsonl" | "json" => Ok(Format::JsonLines),
        _ => Err("formats are tsv, csv and jsonl".into()),
    }
}

/// Numbers are counted from 1.
pub fn column(text: &str) -> Result<Column, String> {
    match text.parse::<usize>() {
        Ok(0) => Err("columns are counted from 1".into()),
        Ok(number) => Ok(Column::Index(number - 1)),
        Err(_) => Ok(Column::Name(text.to_owned())),
    }
}

impl RowFlags {
    /// The rows; stdin if nothing is given.
    pub fn source(&self, label: Option<Column>, on_bad_row: OnBadRow) -> Result<Source> {
        if !self.text.is_empty() {
            if !self.pair.is_empty() && self.pair.len() != self.text.len() {
                return Err(frazil::Error::Usage {
                    what: format!("{} texts and {} pairs", self.text.len(), self.pair.len()),
                    hint: "give one `--pair` for each `--text`".into(),
                }
                .into());
            }
            let pairs = self.pair.iter().cloned().map(Some).chain(std::iter::repeat(None));
            return Ok(Source::texts(self.text.iter().cloned().zip(pairs)));
        }
        let columns = Columns {
            format: self.format,
            text: self.text_column.clone(),
            pair: self.pair_column.clone(),
            label,
        };
        let path = self.file.as_deref().unwrap_or(Path::new("-"));
        Ok(Source::table(path, &columns, on_bad_row)?)
    }
}

/// A file that appears when all is written, or stdout.
pub enum Sink<'a> {
    File(AtomicFile),
    Out(&'a mut dyn Write),
}

impl<'a> Sink<'a> {
    /// Of the path, if there is one.
    pub fn open(path: Option<&Path>, out: &'a mut dyn Write) -> Result<Self> {
        Ok(match path {
            Some(path) => Self::File(AtomicFile::create(path)?),
            None => Self::Out(out),
        })
    }

    /// Where to write.
    pub fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::File(file) => file,
            Self::Out(out) => *out,
        }
    }

    /// All is written; a stream is flushed.
    pub fn finish(self) -> Result<()> {
        match self {
            Self::File(file) => file.commit()?,
            Self::Out(out) => out.flush()?,
        }
        Ok(())
    }
}

/// Progress over rows, or over the kilobytes of a file.
pub struct RowProgress {
    progress: Progress,
    scale: u64,
}

impl RowProgress {
    pub fn new(what: &'static str, source: &Source, quiet: bool) -> Self {
        // The rows of a file are not known before it is read.
        let rows = source.is_counted();
        let (unit, scale) = if rows { ("rows", 1) } else { ("KB", 1000) };
        Self { progress: Progress::new(what, unit, quiet), scale }
    }

    pub fn at(&self, (done, total): (u64, Option<u64>)) {
        if let Some(total) = total {
            self.progress.at(done / self.scale, total.div_ceil(self.scale));
        }
    }

    pub fn finish(&self) {
        self.progress.finish();
    }
}

/// What is said at the end, apart from the data.
pub fn say(quiet: bool, notes: &[String], skipped: &Skipped, summary: &str) {
    // Rows that are left out are never left out silently.
    if skipped.count > 0 {
        say!("{} bad rows were skipped:", skipped.count);
        skipped.first.iter().for_each(|row| say!("  {row}"));
        if skipped.count > skipped.first.len() {
            say!("  and {} more", skipped.count - skipped.first.len());
        }
    }
    if quiet {
        return;
    }
    notes.iter().for_each(|note| say!("note: {note}"));
    say!("{summary}");
}
