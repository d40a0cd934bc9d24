//! `frazil pack FILE... [-o OUT]`

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use frazil::bert::packing::{Algorithm, Depth, Options as Way, Rounding};
use frazil::bert::pretrain_data::{self, Order};
use frazil::bert::samples::Shape;
use frazil::ops::pack::{self, Event, Format, Options, Report, Source, TextOptions};
use frazil::source::files;

use super::progress::Progress;
use super::table::{Table, thousands};
use crate::cli::Outcome;

/// Put several sequences into the length of one, so that little is padding
///
/// FILE is a histogram of lengths (`.csv`), TFRecords of pre-training, of a classifier or of SQuAD,
/// MLPerf's binaries, or with `--vocab` text. Without `-o`, statistics are all that is made.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil pack wikipedia_histogram.csv --algorithm nnlshp --depth 3
  frazil pack 'tf_records/part-*' -o packed.tfrecord --check
  frazil pack 'tf_records/part-*' --format mlperf --algorithm nnlshp \\
      --depth 3 -o packed/
  frazil pack corpus.txt --vocab vocab.txt --max-seq-length 512 \\
      --max-predictions 76 -o packed.tfrecord")]
pub struct Args {
    /// What to pack; patterns are known
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
    /// Where packs go: a file, or with `--format mlperf` and `popart` a folder
    #[arg(long, short, value_name = "OUT")]
    output: Option<PathBuf>,
    /// How to find out what goes together: spfhp, lpfhp or nnlshp
    #[arg(long, default_value = "lpfhp", value_parser = parse::<Algorithm>)]
    algorithm: Algorithm,
    /// Sequences of a pack at most, or `max`
    #[arg(long, value_name = "N", default_value = "3", value_parser = parse::<Depth>)]
    depth: Depth,
    /// How nnlshp makes whole packs of fractions
    #[arg(long, value_enum, default_value = "nearest")]
    rounding: RoundingFlag,
    /// Tokens of a pack [default: those of a padded sequence]
    #[arg(long, value_name = "L")]
    max_seq_length: Option<usize>,
    /// Masked pieces of a sequence [default: as many as records and packs need]
    #[arg(long, value_name = "M")]
    max_predictions: Option<usize>,
    /// What packs are written as
    #[arg(long, value_enum, default_value = "tfrecord")]
    format: FormatFlag,
    /// The seed of every shuffle
    #[arg(long, default_value = "12345")]
    seed: u64,
    /// Read what was written again, and compare it with what was packed
    #[arg(long, requires = "output")]
    check: bool,
    /// Draw the lengths before and after into this file, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Only statistics, whatever else is given
    #[arg(long, conflicts_with_all = ["output", "check"])]
    stats: bool,
    /// The files are text, and this is the vocabulary
    #[arg(long, value_name = "FILE", help_heading = "Text")]
    vocab: Option<PathBuf>,
    /// Keep upper case and accents
    #[arg(long, requires = "vocab", help_heading = "Text")]
    cased: bool,
    /// How often each document is used, masked anew each time
    #[arg(long, value_name = "N", default_value = "1", requires = "vocab", help_heading = "Text")]
    dupe_factor: usize,
    /// Mask all pieces of a word together
    #[arg(long, requires = "vocab", help_heading = "Text")]
    whole_word_mask: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// No progress
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum FormatFlag {
    /// Packed TFRecords
    Tfrecord,
    /// MLPerf's binaries, a file for each combination of lengths
    Mlperf,
    /// The same in PopART's later form
    Popart,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum RoundingFlag {
    /// To the nearest number
    Nearest,
    /// As Graphcore's code for MLPerf does it
    Mlperf,
}

fn parse<T: std::str::FromStr<Err = frazil::bert::Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: frazil::bert::Error| error.to_string())
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    let (json, quiet) = (args.json, args.quiet);
    let progress = [("reading", "samples"), ("writing", "packs"), ("checking", "packs")]
        .map(|(what, unit)| Progress::new(what, unit, quiet));
    let report = pack::run(&options(args)?, |event| match event {
        Event::Note(note) if !quiet => say!("note: {note}"),
        Event::Note(_) => {}
        Event::Reading(done, of) => progress[0].at(done, of),
        Event::Writing(done, of) => progress[1].at(done, of),
        Event::Checking(done, of) => progress[2].at(done, of),
    })?;
    progress.iter().for_each(Progress::finish);
    if json {
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)?;
    } else {
        print(&report, out)?;
    }
    Ok(match report.check.is_none_or(|check| check.is_equal()) {
        true => Outcome::Done,
        false => Outcome::CheckFailed,
    })
}

fn options(args: Args) -> Result<Options> {
    let shape = Shape::default();
    let max_length = args.max_seq_length.unwrap_or(shape.max_length);
    let shape = Shape {
        max_length,
        max_predictions: args.max_predictions.unwrap_or(shape.max_predictions),
        sequences: match args.depth {
            Depth::Max => shape.sequences,
            depth => depth.limit(max_length),
        },
    };
    let source = match args.vocab {
        None => Source::Files(files(&args.files)?),
        Some(vocab_file) => Source::Text(Box::new(TextOptions {
            input_file: args.files.join(","),
            vocab_file,
            do_lower_case: !args.cased,
            create: pretrain_data::Options {
                dupe_factor: args.dupe_factor,
                do_whole_word_mask: args.whole_word_mask,
                random_seed: i64::try_from(args.seed).unwrap_or(i64::MAX),
                order: Order::Original,
                ..pretrain_data::Options::default()
            },
        })),
    };
    Ok(Options {
        source,
        way: Way {
            algorithm: args.algorithm,
            depth: args.depth,
            rounding: match args.rounding {
                RoundingFlag::Nearest => Rounding::Nearest,
                RoundingFlag::Mlperf => Rounding::Mlperf,
            },
        },
        max_length: args.max_seq_length,
        max_predictions: args.max_predictions,
        shape,
        output: args.output,
        format: match args.format {
            FormatFlag::Tfrecord => Format::Tfrecord,
            FormatFlag::Mlperf => Format::Mlperf,
            FormatFlag::Popart => Format::Popart,
        },
        svg: args.svg,
        seed: args.seed,
        duplication_factor: 1,
        check: args.check,
    })
}

/// The report for people.
pub fn print(report: &Report, out: &mut dyn Write) -> Result<()> {
    let stats = &report.stats;
    writeln!(
        out,
        "{} sequences of {} tokens on average, packs of {}: {}, depth {}",
        thousands(stats.sequences),
        format_args!("{:.2}", stats.mean_length),
        stats.max_length,
        report.found_by,
        report.depth
    )?;
    let mut table = Table::new(&["", ">rows", ">tokens of a row", ">padding", ">speed-up"]);
    let mut row = |name: &str, rows: u64, efficiency: f64, speed_up: f64| {
        // Of no rows, there is nothing to say.
        let of_rows = |said: String| if rows > 0 { said } else { "-".into() };
        table.row([
            name.into(),
            thousands(rows),
            of_rows(format!("{:.2}", efficiency * stats.max_length as f64)),
            of_rows(format!("{:.4}%", (1.0 - efficiency) * 100.0)),
            of_rows(format!("{speed_up:.5}")),
        ]);
    };
    row("a sequence in each", stats.sequences, stats.unpacked_efficiency, 1.0);
    row("packed", stats.packs, stats.efficiency, stats.sequences_per_pack);
    row("at best", stats.tokens.div_ceil(stats.max_length as u64), 1.0, stats.limit);
    table.print(out)?;
    writeln!(out)?;
    let by_depth: Vec<String> = (stats.by_depth.iter().zip(1..))
        .filter(|(packs, _)| **packs > 0)
        .map(|(packs, depth)| format!("{} of {depth}", thousands(*packs)))
        .collect();
    let found = format!(
        "{} combinations of lengths, found in {:.2} s",
        thousands(stats.groups as u64),
        report.seconds
    );
    writeln!(out, "  {found}")?;
    if stats.packs > 0 {
        writeln!(out, "  packs by their sequences: {}", by_depth.join(", "))?;
    }
    if report.empty > 0 {
        writeln!(out, "  {} sequences of padding only were left out", thousands(report.empty))?;
    }
    if report.split > 0 {
        let split = thousands(report.split);
        writeln!(out, "  {split} packs were divided: their masked pieces had no place in one")?;
    }
    match &report.outputs[..] {
        [] => {}
        [file] => {
            let path = file.path.display();
            writeln!(out, "wrote {} packs to `{path}`", thousands(file.packs))?;
        }
        files => {
            let folder = files[0].path.parent().unwrap_or(&files[0].path).display();
            let (packs, count) = (thousands(report.packs_written), files.len());
            writeln!(out, "wrote {packs} packs to {count} files in `{folder}`")?;
        }
    }
    match &report.check {
        None => {}
        Some(check) if check.is_equal() => writeln!(
            out,
            "checked: every one of {} sequences is there once, apart from all others",
            thousands(check.sequences)
        )?,
        Some(check) => writeln!(
            out,
            "checked: {} sequences are missing and {} are not those that were packed",
            thousands(check.missing),
            thousands(check.unexpected)
        )?,
    }
    Ok(())
}
