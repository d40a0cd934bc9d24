//! `extract_features.py` of google-research/bert: the same flags, the same lines of JSON. Flags for
//! TPUs and the batch size are read and have no effect; texts that are cut, which the original does
//! without a word, are counted on stderr.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use frazil::bert::tokenizer::Casing;
use frazil::ops::extract_features::{Options, extract_features};
use frazil::ops::text_model;
use frazil::source::GraphOptions;

use super::absl::{Flag, ON_CPU, Program, Values};
use crate::cli::Outcome;
use crate::commands::progress::Progress;

/// Write the hidden states of every word piece as lines of JSON
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  frazil extract_features --input_file=texts.txt --output_file=out.jsonl \\
      --vocab_file=vocab.txt --bert_config_file=bert_config.json \\
      --init_checkpoint=bert_model.ckpt --layers=-1,-2,-3,-4
  frazil extract_features --input_file=pairs.txt --output_file=out.jsonl \\
      --vocab_file=vocab.txt --bert_config_file=bert_config.json \\
      --init_checkpoint=model.ckpt-1000 --layers=-1 --max_seq_length=64"
)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// The program and its flags.
pub const PROGRAM: Program = Program {
    name: "extract_features",
    about: "Writes the hidden states of every word piece of texts as lines of JSON.",
    flags: &[
        Flag::text("input_file", None, "texts, one per line; ` ||| ` stands between two")
            .required(),
        Flag::text("output_file", None, "where the lines of JSON go").required(),
        Flag::text("layers", Some("-1,-2,-3,-4"), "which layers; -1 is the last one"),
        Flag::text("bert_config_file", None, "the configuration of the model").required(),
        Flag::integer("max_seq_length", "128", "the most word pieces of a text or pair"),
        Flag::text("init_checkpoint", None, "the weights").required(),
        Flag::text("vocab_file", None, "the vocabulary of the model").required(),
        Flag::truth("do_lower_case", true, "whether text is lowered: for uncased models"),
        Flag::integer("batch_size", "32", "sequences are packed").without_effect(),
        Flag::truth("use_tpu", false, ON_CPU).without_effect(),
        Flag::text("master", None, ON_CPU).without_effect(),
        Flag::integer("num_tpu_cores", "8", ON_CPU).without_effect(),
        Flag::truth("use_one_hot_embeddings", false, "the numbers are the same").without_effect(),
    ],
};

/// Runs the program. What it has to say goes to stderr, as the original's log does.
pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    let values = match PROGRAM.start(&args.arguments, out)? {
        Ok(values) => values,
        Err(outcome) => return Ok(outcome),
    };
    let options = options(&values)?;
    let path = |name: &str| values.needed(name).map(PathBuf::from);
    let (model, input, output) =
        (path("init_checkpoint")?, path("input_file")?, path("output_file")?);
    let progress = Progress::new("extracting", "lines", false);
    let report =
        extract_features(&model, &input, &output, &options, |done| progress.so_far(done as u64))?;
    progress.finish();
    for note in &report.notes {
        say!("note: {note}");
    }
    if report.cut > 0 {
        say!(
            "note: {} of {} lines were cut to {} word pieces",
            report.cut,
            report.lines,
            report.max_seq_length
        );
    }
    Ok(Outcome::Done)
}

fn options(values: &Values) -> Result<Options> {
    let layers = values.text("layers").unwrap_or_default();
    let layer = |text: &str| {
        let number = text.trim().parse::<i32>();
        number.with_context(|| format!("flag --layers={layers}: `{text}` is no layer's number"))
    };
    let casing = if values.truth("do_lower_case") { Casing::Lower } else { Casing::Keep };
    let model = text_model::Options {
        graph: GraphOptions { config: values.path("bert_config_file"), ..GraphOptions::default() },
        vocabulary: values.path("vocab_file"),
        casing: Some(casing),
        max_seq_length: Some(values.count("max_seq_length", 3)?),
        ..text_model::Options::default()
    };
    Ok(Options { model, layers: layers.split(',').map(layer).collect::<Result<_>>()? })
}
