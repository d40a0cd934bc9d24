//! google-research/bert's `create_pretraining_data.py`: text to TFRecords of masked pairs.
//!
//! The work is [`frazil_bert::pretrain_data`]'s; here files are found, read and written. Output files
//! get records in turn, as with the original, and appear when they are complete.

use std::path::{Path, PathBuf};

use frazil_bert::features::PretrainingFeatures;
use frazil_bert::pretrain_data::{
    self, Corpus, CorpusReport, Format, Instances, Order, ReadOptions,
};
use frazil_bert::tokenizer::{Casing, Tokenizer, Vocabulary};
use frazil_tf::tfrecord::{Compression, RecordWriter};
use serde::Serialize;

use crate::source::{files_of_list, keep_apart};
use crate::{Error, Result};

/// Instances that the original logs.
const LOGGED: usize = 20;

/// The original's flags, and ours.
#[derive(Clone, Debug)]
pub struct Options {
    /// Text files: patterns with commas between them.
    pub input_file: String,
    /// Where records go, in turn.
    pub output_files: Vec<PathBuf>,
    /// The vocabulary.
    pub vocab_file: PathBuf,
    /// Whether text is lowered.
    pub do_lower_case: bool,
    /// What the text files are.
    pub format: Format,
    /// How instances are made.
    pub create: pretrain_data::Options,
}

/// What happens on the way, as it happens: what the original logs, and progress.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// A choice that was made, or an option without effect.
    Note(String),
    /// Text is read from these.
    ReadingFrom(&'a [PathBuf]),
    /// So many bytes of so many are read.
    Reading(u64, u64),
    /// So many documents of so many are through, each counted once for a duplicate.
    Making(u64, u64),
    /// Records go to these.
    WritingTo(&'a [PathBuf]),
    /// One of the first instances, and its pieces.
    Example(&'a PretrainingFeatures, String),
    /// So many records of so many are written.
    Writing(u64, u64),
    /// All are.
    Wrote(u64),
}

/// What was made.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was read.
    pub corpus: CorpusReport,
    /// How random numbers were asked for.
    pub order: Order,
    /// Instances that were written.
    pub instances: u64,
    /// Their pieces, without padding.
    pub pieces: u64,
    /// Places for pieces, padding included.
    pub places: u64,
    /// Pieces that are to be predicted.
    pub masked: u64,
    /// Pairs whose second text is from elsewhere.
    pub random_next: u64,
    /// Where records are.
    pub output_files: Vec<PathBuf>,
}

/// Makes the instances of text; what was read is in the corpus.
pub(crate) fn instances(
    options: &Options,
    tokenizer: &Tokenizer,
    on: &mut dyn FnMut(Event<'_>),
) -> Result<(Corpus, Instances)> {
    options.create.check()?;
    for warning in options.create.warnings() {
        on(Event::Note(warning));
    }
    let files = files_of_list(&options.input_file)?;
    on(Event::ReadingFrom(&files));
    let threads = match options.create.order {
        Order::Original => frazil_runtime::default_threads()?,
        Order::Parallel { threads } => threads,
    };
    let scratch = options.create.scratch.clone();
    let read = ReadOptions { format: options.format, threads, scratch };
    let corpus = Corpus::read(&files, tokenizer, &read, |done, of| on(Event::Reading(done, of)))?;
    for (format, what, each) in
        [(Format::Wiki, "`<doc …>` blocks", "block"), (Format::Json, "lines of JSON", "line")]
    {
        let count = corpus.report.files.iter().filter(|file| file.format == format).count();
        if count > 0 && options.format == Format::Auto {
            let files =
                if count == 1 { "1 file has".into() } else { format!("{count} files have") };
            on(Event::Note(format!(
                "{files} {what}, as WikiExtractor writes them: each {each} is a document, without its \
                 title, and its paragraphs are cut into sentences (`--input_format=plain` reads them \
                 line by line, as the original does)"
            )));
        }
    }
    let made = pretrain_data::create(&corpus, tokenizer, &options.create, |done, of| {
        on(Event::Making(done, of));
    })?;
    Ok((corpus, made))
}

/// Opens the vocabulary.
pub(crate) fn tokenizer(vocab_file: &Path, do_lower_case: bool) -> Result<Tokenizer> {
    let casing = if do_lower_case { Casing::Lower } else { Casing::Keep };
    let tokenizer = Tokenizer::new(Vocabulary::open(vocab_file)?.into(), casing);
    Ok(tokenizer.map_err(|error| error.in_file(vocab_file))?)
}

/// Runs the program.
pub fn run(mut options: Options, mut on: impl FnMut(Event<'_>)) -> Result<Report> {
    let Some(first) = options.output_files.first() else {
        return Err(Error::Usage {
            what: "no output file was given".into(),
            hint: "`--output_file=FILE`, or several with commas between them".into(),
        });
    };
    let mut read = files_of_list(&options.input_file)?;
    read.push(options.vocab_file.clone());
    keep_apart(&read, &options.output_files)?;
    // What does not fit into memory goes where there must be room anyway.
    options.create.scratch = match first.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
        _ => ".".into(),
    };
    let tokenizer = tokenizer(&options.vocab_file, options.do_lower_case)?;
    // Before hours of work: a folder that is not there is found now.
    let outputs = options.output_files.iter();
    let mut writers: Vec<RecordWriter> = outputs
        .map(|path| Ok(RecordWriter::create(path, Compression::None)?))
        .collect::<Result<_>>()?;
    let (corpus, instances) = instances(&options, &tokenizer, &mut on)?;
    on(Event::WritingTo(&options.output_files));
    let mut report = Report {
        corpus: corpus.report,
        order: options.create.order,
        instances: instances.len() as u64,
        pieces: 0,
        places: 0,
        masked: 0,
        random_next: 0,
        output_files: options.output_files,
    };
    let count = writers.len();
    for (index, instance) in instances.iter().enumerate() {
        writers[index % count].add(&instance.to_example().encode())?;
        report.pieces += instance.features.len() as u64;
        report.places += instance.features.padded_len() as u64;
        report.masked += instance.masked.len() as u64;
        report.random_next += u64::from(instance.is_random_next);
        if index < LOGGED {
            let ids = instance.features.ids().iter();
            let piece = |id: &i32| tokenizer.vocabulary().token(u32::try_from(*id).ok()?);
            let pieces: Vec<&str> = ids.filter_map(piece).collect();
            on(Event::Example(&instance, pieces.join(" ")));
        }
        on(Event::Writing(index as u64 + 1, report.instances));
    }
    let without = writers.iter().filter(|writer| writer.count() == 0).count();
    writers.into_iter().try_for_each(RecordWriter::finish)?;
    if without > 0 {
        on(Event::Note(format!(
            "{without} of {count} output files are empty, as there are {} records",
            report.instances
        )));
    }
    on(Event::Wrote(report.instances));
    Ok(report)
}
