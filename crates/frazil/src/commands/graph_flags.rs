//! The flags of every command that opens a graph: where it comes from, where to cut it, its sizes.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Result;
use frazil::bert::Head;
use frazil::graph::pass::{Reshape, Size};
use frazil::ops::cut_spec::{CutSpec, CutTexts};
use frazil::source::{self, GraphOptions, Outputs};

/// Where a model and what belongs to it are found.
#[derive(clap::Args, Clone)]
pub struct SourceFlags {
    /// The bert_config.json or config.json, if it is not beside the model
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    parts: PartFlags,
}

/// The same without its configuration.
#[derive(clap::Args, Clone)]
pub struct PartFlags {
    /// The values of a graph's variables, if they are not beside the model
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
}

#[derive(clap::Args)]
pub struct GraphFlags {
    /// What the model is for: encoder, pretraining, mlm, nsp, classifier or squad
    #[arg(long, value_name = "HEAD")]
    head: Option<Head>,
    #[command(flatten)]
    source: SourceFlags,
}

#[derive(clap::Args)]
pub struct CutFlags {
    /// Where the model begins: `name`, `name:1`, with `[1,128]`, `{i32}`, `->value` as wanted
    #[arg(long, value_name = "PLACE,…")]
    input: Option<String>,
    /// Shapes for the places of `--input`, in their order: `[1,128],[1,128]`; `?` is open
    #[arg(long = "input_shape", alias = "input-shape", value_name = "[…],…")]
    input_shape: Option<String>,
    /// Where the model ends: `name`, `name:1`
    #[arg(long, value_name = "PLACE,…")]
    output: Option<String>,
}

#[derive(clap::Args)]
pub struct SizeFlags {
    /// Number of examples: a number, or `dynamic`
    #[arg(long, value_name = "N", value_parser = SizeFlag::from_str)]
    batch: Option<SizeFlag>,
    /// Number of positions: a number, or `dynamic`
    #[arg(long, value_name = "N", value_parser = SizeFlag::from_str)]
    seq: Option<SizeFlag>,
}

/// A size as it is written.
#[derive(Clone, Copy)]
pub struct SizeFlag(Size);

impl FromStr for SizeFlag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "dynamic" | "?" | "-1" => Ok(Self(Size::Dynamic)),
            number => match number.parse::<usize>() {
                Ok(size) if size > 0 && i32::try_from(size).is_ok() => Ok(Self(Size::Known(size))),
                _ => Err("a size is a number from 1 on, or `dynamic`".into()),
            },
        }
    }
}

impl SizeFlags {
    /// The sizes that are asked for.
    pub fn sizes(&self) -> Reshape {
        let size = |flag: Option<SizeFlag>| flag.map_or(Size::Keep, |SizeFlag(size)| size);
        Reshape { batch: size(self.batch), seq: size(self.seq) }
    }
}

impl CutFlags {
    /// The same, read and checked.
    pub fn spec(&self) -> Result<CutSpec> {
        let texts = CutTexts {
            input: self.input.as_deref(),
            input_shape: self.input_shape.as_deref(),
            output: self.output.as_deref(),
            ..CutTexts::default()
        };
        Ok(CutSpec::parse(&texts)?)
    }
}

impl SourceFlags {
    /// How the model is opened, for whatever it is.
    pub fn options(self, source: source::Options, cut: CutSpec) -> GraphOptions {
        self.parts.options(self.config, source, cut)
    }
}

impl PartFlags {
    /// How the model is opened, with its configuration.
    pub fn options(
        self,
        config: Option<PathBuf>,
        source: source::Options,
        cut: CutSpec,
    ) -> GraphOptions {
        GraphOptions {
            source,
            config,
            scope: self.scope,
            checkpoint: self.checkpoint,
            tags: self.tags,
            signature: self.signature,
            cut,
            ..GraphOptions::default()
        }
    }
}

impl GraphFlags {
    /// How the graph is opened.
    pub fn options(self, source: source::Options, cut: CutSpec) -> GraphOptions {
        let outputs = Outputs::Bert;
        GraphOptions { head: self.head, outputs, ..self.source.options(source, cut) }
    }
}
