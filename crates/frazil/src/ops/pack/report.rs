//! What packing came to.

use std::path::PathBuf;

use frazil_bert::packing::{Group, Packing, Stats};
use frazil_bert::samples::{Check, Kind};
use serde::Serialize;

use super::Options;
use super::input::Input;
use crate::page::chart::{Axis, Chart, Strip, Strips};

/// Groups of packs that are listed.
const LISTED: usize = 8;

/// What packing came to.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was packed.
    pub inputs: Vec<InputFile>,
    /// What is to be learnt from it; none of a histogram.
    pub kind: Option<Kind>,
    /// How it was to be packed.
    pub algorithm: &'static str,
    /// How it was packed: another way where that needs fewer packs.
    pub found_by: &'static str,
    /// Sequences that a pack may have, or `max`.
    pub depth: String,
    /// What came of it.
    #[serde(flatten)]
    pub stats: Stats,
    /// How long it took to find out what goes together.
    pub seconds: f64,
    /// Sequences of length 1, 2, and so on.
    pub lengths: Vec<u64>,
    /// Packs with 1 token, 2, and so on.
    pub filled: Vec<u64>,
    /// The most frequent packs.
    pub most_frequent: Vec<Group>,
    /// Sequences and packs of padding only, which were left out.
    pub empty: u64,
    /// Packs that were written.
    pub packs_written: u64,
    /// Packs that were divided since their masked pieces have no place in one.
    pub split: u64,
    /// Where they are.
    pub outputs: Vec<OutputFile>,
    /// What a check of the files found.
    pub check: Option<Check>,
}

/// A file that was read.
#[derive(Clone, Debug, Serialize)]
pub struct InputFile {
    /// Where it is.
    pub path: PathBuf,
    /// What it holds.
    pub holds: String,
    /// Sequences or packs that were read from it.
    pub samples: u64,
}

/// A file that was written.
#[derive(Clone, Debug, Serialize)]
pub struct OutputFile {
    /// Where it is.
    pub path: PathBuf,
    /// Packs in it.
    pub packs: u64,
}

impl Report {
    /// `packing` is what was written, if anything was.
    pub(super) fn new(options: &Options, input: &Input, packing: &Packing, seconds: f64) -> Self {
        let mut filled = vec![0; packing.max_length];
        for group in &packing.groups {
            let length: u32 = group.lengths.iter().sum();
            filled[length as usize - 1] += group.count;
        }
        let mut most_frequent = packing.groups.clone();
        most_frequent.sort_by_key(|group| std::cmp::Reverse(group.count));
        most_frequent.truncate(LISTED);
        Self {
            inputs: input.files.clone(),
            kind: input.kind,
            algorithm: options.way.algorithm.name(),
            found_by: packing.found_by.unwrap_or(options.way.algorithm).name(),
            depth: options.way.depth.to_string(),
            stats: packing.stats(),
            seconds,
            lengths: input.histogram.counts().to_vec(),
            filled,
            most_frequent,
            empty: input.empty,
            packs_written: 0,
            split: 0,
            outputs: Vec::new(),
            check: None,
        }
    }
}

impl Report {
    /// Lengths before and after, as a picture (SVG).
    pub fn svg(&self) -> String {
        let strip = |name: String, counts: &[u64], mean: f64| Strip {
            name,
            edges: (0..=counts.len()).map(|edge| edge as f64 + 0.5).collect(),
            counts: counts.iter().map(|count| *count as f64).collect(),
            marks: vec![(mean, format!("mean {mean:.1}"))],
        };
        let (stats, most) = (&self.stats, self.stats.max_length as f64);
        let percent = |efficiency: f64| (1.0 - efficiency) * 100.0;
        let before = format!("{} sequences", stats.sequences);
        let after = format!("{} packs ({}, depth {})", stats.packs, self.found_by, self.depth);
        let about = format!(
            "Padding is {:.2}% with a sequence in each row, and {:.2}% with packs.",
            percent(stats.unpacked_efficiency),
            percent(stats.efficiency)
        );
        Chart::file([Strips {
            title: "Lengths before and after packing".into(),
            about,
            x: Axis::new("tokens", "").from_zero(),
            strips: vec![
                strip(before, &self.lengths, stats.mean_length),
                strip(after, &self.filled, stats.efficiency * most),
            ],
        }])
    }
}
