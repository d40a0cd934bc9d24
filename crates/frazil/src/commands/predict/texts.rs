//! The flags of the commands that read plain texts, and what these say beside their results.

use std::path::PathBuf;

use anyhow::Result;
use frazil::ops::predict::texts::{self, Format, Source, Texts};

use super::flags::TextFlags;

#[derive(clap::Args)]
pub struct Flags {
    /// What to read; without it, lines are read
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,
    /// Read the lines of this file (`-`: stdin)
    #[arg(long, value_name = "FILE", conflicts_with = "texts")]
    file: Option<PathBuf>,
    /// Lines are JSON objects, and the text is under this key [default for `.jsonl`: text]
    #[arg(long, value_name = "KEY", conflicts_with = "texts")]
    text_column: Option<String>,
    #[command(flatten)]
    pub model: TextFlags,
}

impl Flags {
    /// The texts.
    pub fn open(&self) -> Result<Texts> {
        let source = match (self.texts.as_slice(), &self.file) {
            ([], Some(path)) => Source::File(path.clone()),
            ([], None) => Source::File("-".into()),
            (texts, _) => Source::Given(texts.to_vec()),
        };
        let format = self.text_column.clone().map_or(Format::ByName, Format::Json);
        let on_bad_row = self.model.on_bad_row();
        Ok(Texts::open(source, &texts::Options { format, on_bad_row })?)
    }

    /// Says what was decided, on stderr: stdout is for results.
    pub fn notes(&self, notes: &[String]) {
        if !self.model.quiet() {
            notes.iter().for_each(|note| say!("note: {note}"));
        }
    }

    /// Says how many rows were left out, which is never done silently.
    pub fn skipped(&self, count: usize) {
        if count > 0 {
            say!("warning: {count} bad rows were skipped");
        }
    }
}
