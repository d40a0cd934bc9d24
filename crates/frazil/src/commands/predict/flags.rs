//! The flags of every command that feeds text to a model.

use std::path::PathBuf;

use anyhow::Result;
use frazil::bert::rows::OnBadRow;
use frazil::bert::tokenizer::Casing;
use frazil::ops::cut_spec::{CutSpec, CutTexts};
use frazil::ops::text_model::Options;
use frazil::source::{self, GraphOptions};

#[derive(clap::Args)]
pub struct TextFlags {
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
    /// The bert_config.json or config.json, if it is not beside MODEL
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The values of a graph's variables, if they are not beside MODEL
    #[arg(long, value_name = "PREFIX")]
    checkpoint: Option<PathBuf>,
    /// Which of several models in the weights
    #[arg(long)]
    scope: Option<String>,
    /// Which MetaGraph of a SavedModel [default: serve]
    #[arg(long, value_name = "TAG,…", value_delimiter = ',')]
    tags: Vec<String>,
    /// Which signature of a SavedModel [default: serving_default]
    #[arg(long, value_name = "KEY")]
    signature: Option<String>,
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
        let casing = match (self.cased, self.uncased) {
            (true, _) => Some(Casing::Keep),
            (_, true) => Some(Casing::Lower),
            _ => None,
        };
        let cut =
            CutSpec::parse(&CutTexts { output: self.output.as_deref(), ..CutTexts::default() })?;
        let graph = GraphOptions {
            source: source::Options { verify_checksums: !self.no_checksum },
            config: self.config.clone(),
            scope: self.scope.clone(),
            checkpoint: self.checkpoint.clone(),
            tags: self.tags.clone(),
            signature: self.signature.clone(),
            cut,
            ..GraphOptions::default()
        };
        Ok(Options {
            graph,
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
