//! `pack`: several sequences in the length of one, from a histogram of lengths, from files of samples
//! or from text.
//!
//! Samples are read once and kept in memory, or in a temporary file if they are many; packs are
//! written in a shuffled order, or in MLPerf's files, one for each combination of lengths. With
//! [`Options::check`] what was written is read again, and every sequence must be there once.

mod input;
mod report;
mod write;

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use frazil_bert::packing::{Algorithm, Options as Way, Packing, Rounding};
use frazil_bert::samples::store::Samples;
use frazil_bert::samples::{Check, Checker, SampleFile, Shape};
use frazil_tensor::file::AtomicFile;

pub use input::{Source, TextOptions};
pub use report::{InputFile, OutputFile, Report};
pub use write::Format;

use crate::{Error, Result};
use input::Input;

/// What is packed, how, and where it goes.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is packed.
    pub source: Source,
    /// How.
    pub way: Way,
    /// Tokens of a pack; else those of a padded sequence, or the longest of a histogram.
    pub max_length: Option<usize>,
    /// Masked pieces of a sequence; else as many as the records have places for, or more if the packs
    /// need them.
    pub max_predictions: Option<usize>,
    /// How large the sequences or packs of binaries are that are read.
    pub shape: Shape,
    /// Where packs go; without it, only statistics are made.
    pub output: Option<PathBuf>,
    /// What they are written as.
    pub format: Format,
    /// Where a picture of the lengths before and after goes.
    pub svg: Option<PathBuf>,
    /// The seed of every shuffle.
    pub seed: u64,
    /// Only the first of so many equal parts of each file is read: the others hold the same text,
    /// masked differently.
    pub duplication_factor: usize,
    /// Whether what was written is read again and compared.
    pub check: bool,
}

/// What happens on the way.
#[derive(Clone, Debug)]
pub enum Event {
    /// A choice that was made.
    Note(String),
    /// So much is read.
    Reading(u64, u64),
    /// So many packs are written.
    Writing(u64, u64),
    /// So many packs are checked.
    Checking(u64, u64),
}

/// Packs.
pub fn run(options: &Options, mut on: impl FnMut(Event)) -> Result<Report> {
    if options.check && options.output.is_none() {
        return Err(Error::Usage {
            what: "`--check` reads what was written, but nothing is to be written".into(),
            hint: "`-o FILE` says where packs go".into(),
        });
    }
    write::check(options)?;
    // Before the work: a folder that is not there is found now.
    let picture = options.svg.as_ref().map(AtomicFile::create).transpose()?;
    if options.way.rounding != Rounding::Nearest && options.way.algorithm != Algorithm::Nnlshp {
        on(Event::Note(format!(
            "rounding has no effect: {} makes whole packs; only nnlshp has fractions to round",
            options.way.algorithm
        )));
    }
    let input = Input::read(options, &mut on)?;
    let begun = Instant::now();
    let packing = Packing::find(&input.histogram, &options.way)?;
    let seconds = begun.elapsed().as_secs_f64();
    let asked = options.way.algorithm;
    if let Some(found_by) = packing.found_by.filter(|found_by| *found_by != asked) {
        on(Event::Note(format!(
            "{found_by} needs fewer packs than {asked} here, so its are taken"
        )));
    }
    let plan = match (&options.output, &input.samples) {
        (None, _) => None,
        (Some(output), Some(_)) => {
            Some(write::Plan::new(options, &input, &packing, output, &mut on)?)
        }
        (Some(_), None) => {
            return Err(Error::Usage {
                what: "a histogram has no sequences that could be written".into(),
                hint: "leave `-o` out for statistics, or give files of samples".into(),
            });
        }
    };
    let divided = plan.as_ref().and_then(|plan| plan.divided(input.samples.as_ref()?, &packing));
    let mut report = Report::new(options, &input, divided.as_ref().unwrap_or(&packing), seconds);
    if let (Some(plan), Some(samples)) = (&plan, &input.samples) {
        report.split = plan.split;
        report.packs_written = plan.packs() as u64;
        report.outputs = plan.write(samples, &mut on)?;
        if options.check {
            report.check = Some(check(plan, samples, &mut on)?);
        }
    }
    if let Some(mut picture) = picture {
        let written = picture.write_all(report.svg().as_bytes());
        written.map_err(|source| {
            let (action, path) = ("write", picture.path().to_path_buf());
            frazil_tensor::Error::Io { action, path, source }
        })?;
        picture.commit()?;
    }
    Ok(report)
}

/// Compares what was written with what there was.
fn check(plan: &write::Plan, samples: &Samples, on: &mut dyn FnMut(Event)) -> Result<Check> {
    let mut checker = Checker::default();
    samples.iter().for_each(|sample| checker.expect(&sample));
    let mut done = 0;
    for path in plan.to_read()? {
        for pack in SampleFile::open(path, plan.shape)?.iter() {
            checker.found(&pack?);
            done += 1;
            on(Event::Checking(done, plan.packs() as u64));
        }
    }
    Ok(checker.finish())
}
