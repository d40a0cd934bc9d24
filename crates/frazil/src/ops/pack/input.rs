//! What is packed: lengths, and the samples if there are any.

use std::path::{Path, PathBuf};

use frazil_bert::packing::Histogram;
use frazil_bert::pretrain_data;
use frazil_bert::samples::store::Samples;
use frazil_bert::samples::{Kind, Labels, Sample, SampleFile, SampleStore, open_all};
use frazil_tensor::file;

use super::report::InputFile;
use super::{Event, Format, Options};
use crate::ops::create_pretraining_data as create;
use crate::source::files_of_list;
use crate::{Error, Result};

/// Samples between two tellings of progress.
const EVERY: u64 = 1024;

/// What is packed.
#[derive(Clone, Debug)]
pub enum Source {
    /// Files of samples, or one histogram of lengths as CSV.
    Files(Vec<PathBuf>),
    /// Text, from which samples are made first.
    Text(Box<TextOptions>),
}

impl Source {
    /// All files that are read.
    pub(super) fn files(&self) -> Result<Vec<PathBuf>> {
        match self {
            Self::Files(files) => Ok(files.clone()),
            Self::Text(text) => {
                let mut files = files_of_list(&text.input_file)?;
                files.push(text.vocab_file.clone());
                Ok(files)
            }
        }
    }
}

/// Text, and how samples are made of it.
#[derive(Clone, Debug)]
pub struct TextOptions {
    /// Files: patterns with commas between them.
    pub input_file: String,
    /// The vocabulary.
    pub vocab_file: PathBuf,
    /// Whether text is lowered.
    pub do_lower_case: bool,
    /// How samples are made. The length is that of a pack.
    pub create: pretrain_data::Options,
}

/// What was read.
pub(super) struct Input {
    pub files: Vec<InputFile>,
    pub histogram: Histogram,
    /// The samples; none if only lengths are known.
    pub samples: Option<Samples>,
    pub kind: Option<Kind>,
    /// Places for masked pieces of a sequence.
    pub max_predictions: usize,
    /// Sequences and packs of padding only, which are left out.
    pub empty: u64,
}

impl Input {
    pub(super) fn read(options: &Options, on: &mut dyn FnMut(Event)) -> Result<Self> {
        match &options.source {
            Source::Files(files) => {
                match (&files[..], files.iter().find(|file| is_histogram(file))) {
                    ([], _) => Err(Error::Usage {
                        what: "nothing to pack was given".into(),
                        hint: "give files of samples, or a histogram".into(),
                    }),
                    ([file], Some(_)) => Self::of_histogram(file, options),
                    (files, Some(file)) => Err(Error::Usage {
                        what: format!(
                            "`{}` is a histogram, and is one of {} files to pack",
                            file.display(),
                            files.len()
                        ),
                        hint: "one histogram at a time is read, with nothing beside it".into(),
                    }),
                    (files, None) => Self::of_files(files, options, on),
                }
            }
            Source::Text(text) => Self::of_text(text, options, on),
        }
    }

    fn of_histogram(file: &Path, options: &Options) -> Result<Self> {
        let histogram = Histogram::read_csv(file, options.max_length)?;
        let samples = histogram.sequences();
        Ok(Self {
            files: vec![InputFile { path: file.into(), holds: "a histogram".into(), samples }],
            histogram,
            samples: None,
            kind: None,
            max_predictions: 0,
            empty: 0,
        })
    }

    fn of_files(files: &[PathBuf], options: &Options, on: &mut dyn FnMut(Event)) -> Result<Self> {
        let opened = open_all(files, options.shape)?;
        let (mut gathered, mut reports) = (Gathered::new(options), Vec::new());
        let count_of = |file: &SampleFile| file.len() / options.duplication_factor.max(1);
        let total: usize = opened.iter().map(count_of).sum();
        let factor = options.duplication_factor;
        if total == 0 && factor > 1 {
            let samples = opened.iter().map(|file| file.len() as u64).sum();
            return Err(frazil_bert::Error::FewDuplicates { samples, factor }.into());
        }
        let mut done = 0;
        // Of all that have too many masked pieces, the one with the most says what is needed.
        let most = options.max_predictions.filter(|_| options.format != Format::Tfrecord);
        let mut excess: Option<(usize, &SampleFile, usize)> = None;
        for file in &opened {
            let count = count_of(file);
            for index in 0..count {
                file::go_on()?;
                let samples = file.samples(index)?;
                gathered.empty += u64::from(samples.is_empty());
                for sample in samples {
                    gathered.check(&sample).map_err(|error| file.in_record(index, error))?;
                    let masked = sample.masked().len();
                    let known = excess.map(|(masked, ..)| masked).or(most).unwrap_or(usize::MAX);
                    if masked > known {
                        excess = Some((masked, file, index));
                    }
                    gathered.add(&sample)?;
                }
                done += 1;
                if done % EVERY == 0 {
                    on(Event::Reading(done, total as u64));
                }
            }
            let (path, samples) = (file.path().to_path_buf(), count as u64);
            reports.push(InputFile { path, holds: file.kind().to_string(), samples });
        }
        if let (Some((found, file, index)), Some(most)) = (excess, most) {
            let error = frazil_bert::Error::MaskedPieces { found, most };
            return Err(file.in_record(index, error).into());
        }
        if options.duplication_factor > 1 {
            on(Event::Note(format!(
                "of each file the first 1/{} is packed: the rest holds the same text",
                options.duplication_factor
            )));
        }
        let padded = opened.iter().map(SampleFile::padded_len).max().unwrap_or(0);
        gathered.finish(options, padded, reports)
    }

    fn of_text(text: &TextOptions, options: &Options, on: &mut dyn FnMut(Event)) -> Result<Self> {
        let mut create = text.create.clone();
        create.max_seq_length = options.max_length.unwrap_or(create.max_seq_length);
        create.max_predictions_per_seq =
            options.max_predictions.unwrap_or(create.max_predictions_per_seq);
        create.scratch = scratch(options);
        let padded = create.max_seq_length;
        let tokenizer = create::tokenizer(&text.vocab_file, text.do_lower_case)?;
        let of_text = create::Options {
            input_file: text.input_file.clone(),
            output_files: Vec::new(),
            vocab_file: text.vocab_file.clone(),
            do_lower_case: text.do_lower_case,
            format: pretrain_data::Format::Auto,
            create,
        };
        let (corpus, instances) =
            create::instances(&of_text, &tokenizer, &mut |event| match event {
                create::Event::Note(note) => on(Event::Note(note)),
                create::Event::Reading(done, of) => on(Event::Reading(done, of)),
                _ => {}
            })?;
        let mut gathered = Gathered::new(options);
        let total = instances.len() as u64;
        for (instance, done) in instances.iter().zip(1..) {
            gathered.add(&Sample::Pretraining(instance))?;
            if done % EVERY == 0 {
                on(Event::Reading(done, total));
            }
        }
        let report = |file: pretrain_data::FileReport| InputFile {
            path: file.path,
            holds: "text".into(),
            samples: 0,
        };
        let mut reports: Vec<InputFile> = corpus.report.files.into_iter().map(report).collect();
        if let Some(first) = reports.first_mut() {
            first.samples = total; // a pair may be of two files
        }
        gathered.finish(options, padded, reports)
    }
}

/// Where many samples go meanwhile: where there must be room anyway.
fn scratch(options: &Options) -> PathBuf {
    let folder = options.output.as_deref().and_then(Path::parent);
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty() && folder.is_dir());
    folder.map_or_else(std::env::temp_dir, Path::to_path_buf)
}

/// By its name: what is in it is checked when it is read.
fn is_histogram(file: &Path) -> bool {
    file.extension().is_some_and(|end| end.eq_ignore_ascii_case("csv"))
}

/// Samples as they are read.
struct Gathered {
    /// Only where they are to be written: for statistics, lengths will do.
    store: Option<SampleStore>,
    lengths: Vec<u32>,
    /// What the first has to learn from, and all others have to.
    labels: Option<(Kind, Labels)>,
    max_predictions: usize,
    empty: u64,
}

impl Gathered {
    fn new(options: &Options) -> Self {
        let store = options.output.is_some().then(|| SampleStore::new(scratch(options)));
        Self { store, lengths: Vec::new(), labels: None, max_predictions: 0, empty: 0 }
    }

    /// Refuses a sample that has other things to learn from than those before it.
    fn check(&mut self, sample: &Sample) -> frazil_bert::Result<()> {
        let found = sample.labels();
        match self.labels.filter(|_| !sample.is_empty()) {
            Some((_, expected)) if expected != found => {
                Err(frazil_bert::Error::OtherLabels { expected, found })
            }
            _ => Ok(()),
        }
    }

    fn add(&mut self, sample: &Sample) -> Result<()> {
        if sample.is_empty() {
            self.empty += 1;
            return Ok(());
        }
        self.labels.get_or_insert((sample.kind(), sample.labels()));
        if let Sample::Pretraining(sample) = sample {
            self.max_predictions = self.max_predictions.max(sample.max_predictions);
        }
        self.lengths.push(sample.len() as u32);
        match &mut self.store {
            Some(store) => Ok(store.push(sample)?),
            None => Ok(()),
        }
    }

    fn finish(self, options: &Options, padded: usize, files: Vec<InputFile>) -> Result<Input> {
        let max_length = options.max_length.unwrap_or(padded);
        // Of all that are too long, the longest says what is needed.
        if let Some(longest) = self.lengths.iter().max().map(|longest| *longest as usize)
            && longest > max_length
        {
            let (length, most) = (longest, max_length);
            return Err(frazil_bert::Error::SequenceLength { length, most }.into());
        }
        let lengths = self.lengths.iter().map(|length| *length as usize);
        Ok(Input {
            files,
            histogram: Histogram::of(max_length, lengths)?,
            samples: self.store.map(SampleStore::finish).transpose()?,
            kind: self.labels.map(|(kind, _)| kind),
            max_predictions: options.max_predictions.unwrap_or(self.max_predictions),
            empty: self.empty,
        })
    }
}
