//! The flags of every command that feeds text to a model.

use std::path::PathBuf;

use anyhow::Result;
use frazil::bert::rows::OnBadRow;
use frazil::bert::tokenizer::Casing;
use frazil::ops::cut_spec::{CutSpec, CutTexts};
use frazil::ops::text_model::Options;
use frazil::source::{self, GraphOptions};

use crate::commands::graph_flags::SourceFlags;

#[derive(clap::Args)]
pub struct TextFlags {
    #[command(flatten)]
    reading: ReadingFlags,
    #[command(flatten)]
    source: SourceFlags,
}

/// The same without where the model is found.
#[derive(clap::Args)]
pub struct ReadingFlags {
    /// The vocabulary, if it is not beside MODEL: vocab.txt, tokenizer.json or a folder of one
    #[arg(long, value_name = "FILE", alias = "vocab_file")]
    vocab: Option<PathBuf>,
    /// Keep upper case and accents, whatever the model's files say
    #[arg(long)]
    cased: bool,
    /// Lower, and remove accents, whatever the model's files say
    #[arg(long, conflicts_with = "cased")]
    uncased: bool,
    /// The most pieces of a sequence [default: as many as the model has positions]
    #[arg(long, value_name = "N", alias = "max_seq_length")]
    max_seq_length: Option<usize>,
    /// Threads [default: FRAZIL_THREADS, or one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Where the model gives what is wanted, if that is not found: `name`, `name:1`
    #[arg(long, value_name = "PLACE,…")]
    output: Option<String>,
    /// Leave out rows that cannot be used, and count them
    #[arg(long)]
    skip_bad_rows: bool,
    /// Read files whose checksums are wrong
    #[arg(long)]
    no_checksum: bool,
    /// No progress, no notes
    #[arg(long, short)]
    quiet: bool,
}

impl TextFlags {
    /// How the model is opened.
    pub fn options(&self) -> Result<Options> {
        self.reading.options(|source, cut| self.source.clone().options(source, cut))
    }

    /// What is done about a row that cannot be used.
    pub fn on_bad_row(&self) -> OnBadRow {
        self.reading.on_bad_row()
    }

    /// Whether there is to be no talk.
    pub fn quiet(&self) -> bool {
        self.reading.quiet
    }
}

impl ReadingFlags {
    /// How the model is opened; `graph` says where it is found.
    pub fn options(
        &self,
        graph: impl FnOnce(source::Options, CutSpec) -> GraphOptions,
    ) -> Result<Options> {
        let casing = match (self.cased, self.uncased) {
            (true, _) => Some(Casing::Keep),
            (_, true) => Some(Casing::Lower),
            _ => None,
        };
        let cut =
            CutSpec::parse(&CutTexts { output: self.output.as_deref(), ..CutTexts::default() })?;
        let source = source::Options { verify_checksums: !self.no_checksum };
        Ok(Options {
            graph: graph(source, cut),
            vocabulary: self.vocab.clone(),
            casing,
            max_seq_length: self.max_seq_length,
            threads: self.threads,
            ..Options::default()
        })
    }

    /// What is done about a row that cannot be used.
    pub fn on_bad_row(&self) -> OnBadRow {
        if self.skip_bad_rows { OnBadRow::Skip } else { OnBadRow::Stop }
    }

    /// Whether there is to be no talk.
    pub fn quiet(&self) -> bool {
        self.quiet
    }
}
