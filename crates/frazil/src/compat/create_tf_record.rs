//! `create_tf_record.py` of the int8 examples for BERT on SQuAD: a data set to the records that
//! their graph reads. Windows are the original's own: 384 pieces, 128 apart, questions of up to
//! 64, in lower case.

use std::ffi::OsString;
use std::io::Write;

use frazil::bert::squad::{
    FeatureOptions, ReadOptions, build_features, read_examples, write_records,
};
use frazil::bert::tokenizer::{Casing, Tokenizer, Vocabulary};
use frazil::source::keep_apart;

use super::absl::{Flag, Program};
use crate::cli::Outcome;

/// SQuAD's windows as TFRecords, with the flags of create_tf_record.py
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  frazil create_tf_record --vocab_file=vocab.txt \\
      --predict_file=dev-v1.1.json --output_file=eval.tf_record
  frazil create_tf_record --vocab_file=vocab.txt \\
      --predict_file=train-v1.1.json --output_file=calibration.tf_record"
)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// The program and its flags.
pub const PROGRAM: Program = Program {
    name: "create_tf_record",
    about: "The windows of a SQuAD data set as TFRecords.",
    flags: &[
        Flag::text("vocab_file", None, "the vocabulary that the model was trained with").required(),
        Flag::text("predict_file", None, "the questions: dev-v1.1.json").required(),
        Flag::text("output_file", None, "the records: eval.tf_record").required(),
    ],
};

/// Runs the command.
pub fn run(args: Args, out: &mut dyn Write) -> anyhow::Result<Outcome> {
    let values = match PROGRAM.start(&args.arguments, out)? {
        Ok(values) => values,
        Err(outcome) => return Ok(outcome),
    };
    let (vocabulary, output) = (values.needed("vocab_file")?, values.needed("output_file")?);
    let questions = values.needed("predict_file")?;
    keep_apart(&[vocabulary.into(), questions.into()], &[output.into()])?;
    let vocabulary = Vocabulary::open(vocabulary)?;
    let tokenizer = Tokenizer::new(vocabulary.into(), Casing::Lower)?;
    let examples = read_examples(questions, ReadOptions::default())?.items;
    let features = build_features(&examples, &tokenizer, FeatureOptions::default())?;
    write_records(output, &features)?;
    say!("{} questions in {} windows are in `{}`", examples.len(), features.len(), output);
    Ok(Outcome::Done)
}
