//! `record_to_binary.py` and `pack_pretraining_data.py` of Graphcore's MLPerf submissions: TFRecords
//! to binaries, and binaries to packs.

use std::collections::BTreeSet;
use std::io::Write;
use std::num::ParseIntError;
use std::path::{Path, PathBuf};

use frazil::Error;
use frazil::bert::packing::{Algorithm, Depth, Options as Way, Rounding};
use frazil::bert::python::random::Random;
use frazil::bert::samples::writer::{Format as FileFormat, SampleWriter};
use frazil::bert::samples::{FileKind, SampleFile, Shape, open_all};
use frazil::ops::pack::{self, Event, Format, Options, Source};
use frazil::source::{files, keep_apart};
use frazil::tensor::words::plural;

use crate::cli::Outcome;
use crate::commands;
use crate::commands::progress::Progress;
use crate::commands::table::thousands;

/// MLPerf's binaries from TFRecords of pre-training, with the flags of record_to_binary.py
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  frazil record_to_binary --tf-record-glob 'tf_records/part-*' \\
      --output-path binary
  frazil record_to_binary --tf-record-glob 'tf_records/part-*' \\
      --output-path binary --max-sequence-length 128 \\
      --max-predictions-per-sequence 20")]
pub struct ToBinaryArgs {
    /// The TFRecords, as a pattern
    #[arg(long, value_name = "PATTERN")]
    tf_record_glob: String,
    /// The folder that binaries go to, under the names of the TFRecords
    #[arg(long, value_name = "FOLDER")]
    output_path: PathBuf,
    /// Tokens of a sequence
    #[arg(long, value_name = "S", default_value = "512")]
    max_sequence_length: usize,
    /// Masked pieces of a sequence
    #[arg(long, value_name = "M", default_value = "76")]
    max_predictions_per_sequence: usize,
    /// No progress (frazil only)
    #[arg(long, short)]
    quiet: bool,
}

fn create(folder: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(folder).map_err(|source| {
        let path = folder.to_path_buf();
        frazil::tensor::Error::Io { action: "create", path, source }.into()
    })
}

/// Runs `record_to_binary`.
pub fn to_binary(args: ToBinaryArgs, _: &mut dyn Write) -> anyhow::Result<Outcome> {
    let shape = Shape {
        max_length: args.max_sequence_length,
        max_predictions: args.max_predictions_per_sequence,
        ..Shape::default()
    };
    let inputs = files(&[args.tf_record_glob])?;
    let mut names = BTreeSet::new();
    for input in &inputs {
        let name = input.file_name().unwrap_or_default();
        if !names.insert(name) {
            return Err(Error::Usage {
                what: format!("two files are called `{}`", name.display()),
                hint: "convert one folder after the other".into(),
            }
            .into());
        }
    }
    let output = |input: &PathBuf| args.output_path.join(input.file_name().unwrap_or_default());
    keep_apart(&inputs, &inputs.iter().map(output).collect::<Vec<_>>())?;
    // An empty file becomes an empty one; but one of them has to have something.
    let is_binary =
        |file: &&SampleFile| matches!(file.kind(), FileKind::Binary | FileKind::PackedBinary);
    if let Some(file) = open_all(&inputs, shape)?.iter().find(is_binary) {
        return Err(Error::Usage {
            what: format!("`{}` holds {}, and no TFRecords", file.path().display(), file.kind()),
            hint: "`frazil pack` and `frazil pack_pretraining_data` take binaries as they are"
                .into(),
        }
        .into());
    }
    create(&args.output_path)?;
    let progress = Progress::new("converting", "files", args.quiet);
    let mut count = 0;
    for (input, done) in inputs.iter().zip(1..) {
        let mut writer = SampleWriter::create(output(input), FileFormat::Binary(shape))?;
        match SampleFile::open(input, shape) {
            Err(error) if error.is_of_empty_file() => {}
            file => {
                for samples in file?.iter() {
                    writer.add(&samples?).map_err(|error| error.in_file(input))?;
                }
            }
        }
        count += writer.finish()?;
        progress.at(done, inputs.len() as u64);
    }
    progress.finish();
    say!(
        "{} {} in {} {} in `{}`, {} bytes each",
        thousands(count),
        plural(count, "sequence"),
        inputs.len(),
        plural(inputs.len(), "file"),
        args.output_path.display(),
        shape.bytes_of_one()
    );
    Ok(Outcome::Done)
}

/// Packs of MLPerf's binaries, with the flags of pack_pretraining_data.py
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  frazil pack_pretraining_data --input-glob 'binary/part-*' \\
      --output-dir packed --check
  frazil pack_pretraining_data --input-glob 'binary/part-*' \\
      --output-dir packed --max-sequences-per-pack 2 --max-files 500")]
pub struct PackArgs {
    /// The binaries, as a pattern
    #[arg(long, value_name = "PATTERN")]
    input_glob: String,
    /// The folder that packs go to
    #[arg(long, value_name = "FOLDER")]
    output_dir: PathBuf,
    /// The seed of every shuffle
    #[arg(long, value_name = "SEED", default_value = "12345", value_parser = seed)]
    #[arg(allow_negative_numbers = true)]
    random_seed: u64,
    /// At most so many of the files, chosen by the seed
    #[arg(long, value_name = "N", default_value = "100")]
    max_files: usize,
    /// How often each file holds the same text; the first is packed
    #[arg(long, value_name = "N", default_value = "1")]
    duplication_factor: usize,
    /// Tokens of a sequence, and of a pack
    #[arg(long, value_name = "S", default_value = "512")]
    max_sequence_length: usize,
    /// Masked pieces of a sequence
    #[arg(long, value_name = "M", default_value = "76")]
    max_predictions_per_sequence: usize,
    /// Sequences of a pack
    #[arg(long, value_name = "N", default_value = "3")]
    max_sequences_per_pack: usize,
    /// Read what was written again, and compare it with what was packed (frazil only)
    #[arg(long)]
    check: bool,
    /// No progress (frazil only)
    #[arg(long, short)]
    quiet: bool,
}

/// As Python's generators take it: without its sign.
fn seed(text: &str) -> Result<u64, ParseIntError> {
    text.strip_prefix('-').unwrap_or(text).parse()
}

/// Runs `pack_pretraining_data`.
pub fn pack(args: PackArgs, out: &mut dyn Write) -> anyhow::Result<Outcome> {
    for (flag, given) in [
        ("max-sequences-per-pack", args.max_sequences_per_pack),
        ("duplication-factor", args.duplication_factor),
    ] {
        if given == 0 {
            let (what, hint) = (format!("`--{flag}` is 0"), "give 1 or more".into());
            return Err(Error::Usage { what, hint }.into());
        }
    }
    let mut inputs = files(&[args.input_glob])?;
    if inputs.len() > args.max_files {
        let (all, some) = (inputs.len(), args.max_files);
        Random::new(args.random_seed).shuffle(&mut inputs);
        inputs.truncate(args.max_files);
        inputs.sort();
        say!("note: {some} of {all} files are packed; `--max-files` takes more");
    }
    let depth = Depth::AtMost(args.max_sequences_per_pack);
    let options = Options {
        source: Source::Files(inputs),
        way: Way { algorithm: Algorithm::Nnlshp, depth, rounding: Rounding::Mlperf },
        max_length: Some(args.max_sequence_length),
        max_predictions: Some(args.max_predictions_per_sequence),
        shape: Shape {
            max_length: args.max_sequence_length,
            max_predictions: args.max_predictions_per_sequence,
            sequences: depth.limit(args.max_sequence_length),
        },
        output: Some(args.output_dir),
        format: Format::Mlperf,
        svg: None,
        seed: args.random_seed,
        duplication_factor: args.duplication_factor,
        check: args.check,
    };
    let progress = [("reading", "samples"), ("writing", "packs"), ("checking", "packs")]
        .map(|(what, unit)| Progress::new(what, unit, args.quiet));
    let report = pack::run(&options, |event| match event {
        Event::Note(note) => say!("note: {note}"),
        Event::Reading(done, of) => progress[0].at(done, of),
        Event::Writing(done, of) => progress[1].at(done, of),
        Event::Checking(done, of) => progress[2].at(done, of),
    })?;
    progress.iter().for_each(Progress::finish);
    commands::pack::print(&report, out)?;
    Ok(match report.check.is_none_or(|check| check.is_equal()) {
        true => Outcome::Done,
        false => Outcome::CheckFailed,
    })
}
