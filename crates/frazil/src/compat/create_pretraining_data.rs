//! `create_pretraining_data.py` of google-research/bert: text to masked pairs of sentences.

use std::ffi::OsString;
use std::io::Write;

use frazil::Error;
use frazil::bert::features::PretrainingFeatures;
use frazil::bert::pretrain_data::{self, Format, Order};
use frazil::bert::python;
use frazil::ops::create_pretraining_data::{self, Event, Options};

use super::absl::{Flag, Program, Values};
use crate::cli::Outcome;
use crate::commands::progress::Progress;

/// Masked pairs of sentences from text, with the flags of google-research/bert
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  frazil create_pretraining_data --input_file=text.txt \\
      --output_file=examples.tfrecord --vocab_file=vocab.txt
  frazil create_pretraining_data --input_file='wiki/*' \\
      --output_file=a.tfrecord,b.tfrecord --vocab_file=vocab.txt \\
      --max_seq_length=512 --max_predictions_per_seq=76 --workers=8"
)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// The program and its flags.
pub const PROGRAM: Program = Program {
    name: "create_pretraining_data",
    about: "Makes TFRecords of masked pairs of sentences, to pre-train BERT on.",
    flags: &[
        Flag::text("input_file", None, "text files, with commas between them; patterns are known")
            .required(),
        Flag::text("output_file", None, "TFRecords, with commas between them; filled in turn")
            .required(),
        Flag::text("vocab_file", None, "the vocabulary that the model is trained with").required(),
        Flag::truth("do_lower_case", true, "lower the text, as uncased models want it"),
        Flag::truth("do_whole_word_mask", false, "mask all pieces of a word together"),
        Flag::integer("max_seq_length", "128", "pieces of a sequence"),
        Flag::integer("max_predictions_per_seq", "20", "masked pieces of a sequence"),
        Flag::integer("random_seed", "12345", "the seed of all random numbers"),
        Flag::integer("dupe_factor", "10", "how often a document is used, masked anew each time"),
        Flag::float("masked_lm_prob", "0.15", "the part of the pieces that is masked"),
        Flag::float("short_seq_prob", "0.1", "how often sequences are shorter than they could be"),
        Flag::text(
            "input_format",
            Some("auto"),
            "plain, wiki, json or auto: WikiExtractor's <doc> blocks or lines of JSON are documents \
             (frazil only)",
        ),
        Flag::integer(
            "workers",
            "0",
            "threads that make instances, in an order of their own that does not depend on their \
             number; 0: the original's order (frazil only)",
        ),
        Flag::truth("quiet", false, "no log and no progress (frazil only)"),
        Flag::truth("json", false, "print a report as JSON (frazil only)"),
    ],
};

/// Runs the command.
pub fn run(args: Args, out: &mut dyn Write) -> anyhow::Result<Outcome> {
    let values = match PROGRAM.start(&args.arguments, out)? {
        Ok(values) => values,
        Err(outcome) => return Ok(outcome),
    };
    let quiet = values.truth("quiet");
    let progress =
        [("reading", "bytes"), ("making instances", "documents"), ("writing", "records")]
            .map(|(what, unit)| Progress::new(what, unit, quiet));
    let report = create_pretraining_data::run(options(&values)?, |event| match event {
        Event::Reading(done, of) => progress[0].at(done, of),
        Event::Making(done, of) => progress[1].at(done, of),
        Event::Writing(done, of) => progress[2].at(done, of),
        Event::Note(note) => say!("note: {note}"),
        event if !quiet => log(event),
        _ => {}
    })?;
    progress.iter().for_each(Progress::finish);
    if values.truth("json") {
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)?;
    }
    Ok(Outcome::Done)
}

fn options(values: &Values) -> Result<Options, Error> {
    let format = match values.needed("input_format")? {
        "auto" => Format::Auto,
        "plain" => Format::Plain,
        "wiki" => Format::Wiki,
        "json" => Format::Json,
        other => {
            return Err(Error::Usage {
                what: format!("`--input_format` is `{other}`"),
                hint: "give plain, wiki, json or auto".into(),
            });
        }
    };
    Ok(Options {
        input_file: values.needed("input_file")?.to_owned(),
        output_files: values
            .needed("output_file")?
            .split(',')
            .filter(|name| !name.is_empty())
            .map(Into::into)
            .collect(),
        vocab_file: values.needed("vocab_file")?.into(),
        do_lower_case: values.truth("do_lower_case"),
        format,
        create: pretrain_data::Options {
            max_seq_length: values.count("max_seq_length", 0)?,
            max_predictions_per_seq: values.count("max_predictions_per_seq", 0)?,
            random_seed: values.integer("random_seed"),
            dupe_factor: values.count("dupe_factor", 0)?,
            masked_lm_prob: values.float("masked_lm_prob"),
            short_seq_prob: values.float("short_seq_prob"),
            do_whole_word_mask: values.truth("do_whole_word_mask"),
            order: match values.count("workers", 0)? {
                0 => Order::Original,
                threads => Order::Parallel { threads },
            },
            ..pretrain_data::Options::default()
        },
    })
}

/// The original's log.
fn log(event: Event<'_>) {
    let info = |text: String| say!("INFO:tensorflow:{text}");
    match event {
        Event::ReadingFrom(files) => {
            info("*** Reading from input files ***".into());
            files.iter().for_each(|file| info(format!("  {}", file.display())));
        }
        Event::WritingTo(files) => {
            info("*** Writing to output files ***".into());
            files.iter().for_each(|file| info(format!("  {}", file.display())));
        }
        Event::Example(instance, pieces) => {
            info("*** Example ***".into());
            info(format!("tokens: {pieces}"));
            features(instance).into_iter().for_each(info);
        }
        Event::Wrote(count) => info(format!("Wrote {count} total instances")),
        Event::Note(_) | Event::Reading(..) | Event::Making(..) | Event::Writing(..) => {}
    }
}

/// The features of a record, as the original prints them.
fn features(instance: &PretrainingFeatures) -> [String; 7] {
    let line = |name: &str, values: Vec<String>| format!("{name}: {}", values.join(" "));
    let narrow = |row: Vec<i32>| row.iter().map(i32::to_string).collect();
    let wide = |row: Vec<i64>| row.iter().map(i64::to_string).collect();
    let weights = instance.masked_lm_weights();
    [
        line("input_ids", narrow(instance.features.input_ids())),
        line("input_mask", narrow(instance.features.input_mask())),
        line("segment_ids", narrow(instance.features.segment_ids())),
        line("masked_lm_positions", wide(instance.masked_lm_positions())),
        line("masked_lm_ids", wide(instance.masked_lm_ids())),
        line("masked_lm_weights", weights.iter().map(|w| python::float((*w).into())).collect()),
        line("next_sentence_labels", vec![i64::from(instance.is_random_next).to_string()]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Options, Error> {
        let needed = ["--input_file=a,b*", "--output_file=x,y", "--vocab_file=v"];
        let words = needed.iter().chain(words).map(|&word| word.into()).collect::<Vec<OsString>>();
        options(&PROGRAM.start(&words, &mut Vec::new()).unwrap().unwrap())
    }

    #[test]
    fn flags_have_the_originals_defaults() {
        let options = read(&[]).unwrap();
        assert_eq!((&*options.input_file, options.output_files.len()), ("a,b*", 2));
        let (create, original) = (options.create, pretrain_data::Options::default());
        assert_eq!(create.max_seq_length, original.max_seq_length);
        assert_eq!(create.max_predictions_per_seq, original.max_predictions_per_seq);
        assert_eq!(create.random_seed, original.random_seed);
        assert_eq!(create.dupe_factor, original.dupe_factor);
        assert_eq!(create.masked_lm_prob, original.masked_lm_prob);
        assert_eq!(create.short_seq_prob, original.short_seq_prob);
        assert!(!create.do_whole_word_mask && options.do_lower_case);
        assert_eq!((create.order, options.format), (Order::Original, Format::Auto));
        let order = read(&["--workers=3"]).unwrap().create.order;
        assert_eq!(order, Order::Parallel { threads: 3 });
    }

    #[test]
    fn what_cannot_be_is_said() {
        let error = |words: &[&str]| read(words).unwrap_err().to_string();
        assert_eq!(error(&["--dupe_factor=-1"]), "`--dupe_factor` is -1");
        assert!(error(&["--input_format=xml"]).contains("`xml`"));
        assert!(error(&["--vocab_file="]).contains("must not be empty"));
    }
}
