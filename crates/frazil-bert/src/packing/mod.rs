//! Sequence packing: several sequences in one of full length, so that little of it is padding.
//!
//! Packing works on a [`Histogram`] of lengths, since sequences of one length are as good as each
//! other, and gives a [`Packing`]: which lengths go together, and how often. There are three ways
//! ([`Algorithm`]); two are greedy and take milliseconds, one solves least squares and needs fewer
//! sequences in a pack. [`Packing::assign`] then says which sequence goes where.
//!
//! After Krell, Kosec, Perez and Fitzgibbon, “Efficient sequence packing without
//! cross-contamination” (arXiv 2107.02027). Left out: the sequences themselves, see
//! [`samples`](crate::samples).

mod assign;
mod greedy;
mod histogram;
mod nnls;
mod nnlshp;
mod strategy;

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

pub use assign::Assignment;
pub use histogram::Histogram;
pub use nnlshp::Rounding;

use crate::{Error, Result};

/// Tokens of a sequence or a pack at most, and so masked pieces of one, and sequences of a pack: positions of a
/// BERT are few.
pub(crate) const LONGEST: usize = u16::MAX as usize;
/// Least squares are solved for packs of that many tokens: the square of it is in memory.
const LONGEST_SOLVED: usize = 2048;

/// Refuses a size beyond [`LONGEST`], before anything is computed of it.
pub(crate) fn at_most(what: &'static str, found: usize) -> Result<()> {
    match found <= LONGEST {
        true => Ok(()),
        false => Err(Error::Size { what, found, most: LONGEST }),
    }
}

/// A way to pack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// Shortest-pack-first: from the longest sequence to the shortest, each into the pack with the
    /// most room.
    Spfhp,
    /// Longest-pack-first: each into the pack that it fills best.
    #[default]
    Lpfhp,
    /// Non-negative least squares over all ways to fill a pack.
    Nnlshp,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Spfhp, Self::Lpfhp, Self::Nnlshp];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spfhp => "spfhp",
            Self::Lpfhp => "lpfhp",
            Self::Nnlshp => "nnlshp",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|known| known.name().eq_ignore_ascii_case(text));
        known.ok_or_else(|| Error::UnknownAlgorithm(text.to_owned()))
    }
}

/// How many sequences a pack may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// At most so many.
    AtMost(usize),
    /// As many as fit.
    Max,
}

impl Depth {
    /// As a number, for packs of this length.
    pub fn limit(self, max_length: usize) -> usize {
        match self {
            Self::AtMost(depth) => depth.min(max_length),
            Self::Max => max_length,
        }
    }
}

/// As many as in MLPerf.
impl Default for Depth {
    fn default() -> Self {
        Self::AtMost(3)
    }
}

impl fmt::Display for Depth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(depth) => depth.fmt(f),
            Self::Max => f.pad("max"),
        }
    }
}

impl FromStr for Depth {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.parse() {
            _ if text.eq_ignore_ascii_case("max") => Ok(Self::Max),
            Ok(depth) if depth > 0 => Ok(Self::AtMost(depth)),
            _ => Err(Error::Depth(text.to_owned())),
        }
    }
}

/// How to pack.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The way.
    pub algorithm: Algorithm,
    /// Sequences of a pack.
    pub depth: Depth,
    /// How the fractions of [`Algorithm::Nnlshp`] become whole packs.
    pub rounding: Rounding,
}

/// Packs of the same lengths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// The lengths of the sequences, the longest first.
    pub lengths: Vec<u32>,
    /// How many such packs there are.
    pub count: u64,
}

impl Group {
    fn length(&self) -> usize {
        self.lengths.iter().map(|length| *length as usize).sum()
    }
}

/// Which lengths go together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Packing {
    /// The length of a pack.
    pub max_length: usize,
    /// The packs; the fullest first, then the deepest, then by their lengths. No two have the same
    /// lengths.
    pub groups: Vec<Group>,
    /// Whose packs they are: not what was asked for where another way needs fewer. None where packs were
    /// given one by one.
    pub found_by: Option<Algorithm>,
}

impl Packing {
    /// Finds one that takes every sequence of the histogram.
    pub fn find(histogram: &Histogram, options: &Options) -> Result<Self> {
        let found = histogram.max_length();
        if options.algorithm == Algorithm::Nnlshp && found > LONGEST_SOLVED {
            return Err(Error::PackLength { found, most: LONGEST_SOLVED });
        }
        let depth = options.depth.limit(found);
        let mut found_by = options.algorithm;
        let mut groups = match found_by {
            Algorithm::Spfhp => greedy::spfhp(histogram, depth),
            Algorithm::Lpfhp => greedy::lpfhp(histogram, depth),
            Algorithm::Nnlshp => nnlshp::nnlshp(histogram, depth, options.rounding),
        };
        if found_by == Algorithm::Nnlshp {
            // Where few strategies fill packs, what is left over may be more than a greedy way leaves.
            let greedy = greedy::lpfhp(histogram, depth);
            let packs = |groups: &[Group]| groups.iter().map(|group| group.count).sum::<u64>();
            if packs(&greedy) < packs(&groups) {
                (found_by, groups) = (Algorithm::Lpfhp, greedy);
            }
        }
        Ok(Self { found_by: Some(found_by), ..Self::of_groups(found, groups) })
    }

    /// Of packs of these lengths, one by one.
    pub fn of_packs(max_length: usize, packs: impl IntoIterator<Item = Vec<u32>>) -> Self {
        Self::of_groups(
            max_length,
            packs.into_iter().map(|lengths| Group { lengths, count: 1 }).collect(),
        )
    }

    /// In order, each once.
    fn of_groups(max_length: usize, mut groups: Vec<Group>) -> Self {
        for group in &mut groups {
            group.lengths.sort_unstable_by(|a, b| b.cmp(a));
        }
        groups.retain(|group| group.count > 0 && !group.lengths.is_empty());
        let key = |group: &Group| (group.length(), group.lengths.len());
        groups.sort_by(|a, b| key(b).cmp(&key(a)).then_with(|| b.lengths.cmp(&a.lengths)));
        groups.dedup_by(|next, group| {
            let same = next.lengths == group.lengths;
            if same {
                group.count += next.count;
            }
            same
        });
        Self { max_length, groups, found_by: None }
    }

    /// The number of packs.
    pub fn packs(&self) -> u64 {
        self.groups.iter().map(|group| group.count).sum()
    }

    /// What comes of it.
    pub fn stats(&self) -> Stats {
        let sum = |of: &dyn Fn(&Group) -> u64| self.groups.iter().map(|g| of(g) * g.count).sum();
        let packs = self.packs();
        let sequences: u64 = sum(&|group| group.lengths.len() as u64);
        let tokens: u64 = sum(&|group| group.length() as u64);
        let rows = |sequences: u64| sequences as f64 * self.max_length as f64;
        let part = |of: f64, whole: f64| if whole > 0.0 { of / whole } else { 1.0 };
        let deepest = self.groups.iter().map(|group| group.lengths.len()).max().unwrap_or(0);
        let mut by_depth = vec![0; deepest];
        for group in &self.groups {
            by_depth[group.lengths.len() - 1] += group.count;
        }
        Stats {
            max_length: self.max_length,
            sequences,
            tokens,
            packs,
            groups: self.groups.len(),
            deepest,
            by_depth,
            mean_length: tokens as f64 / sequences.max(1) as f64,
            unpacked_efficiency: part(tokens as f64, rows(sequences)),
            efficiency: part(tokens as f64, rows(packs)),
            sequences_per_pack: part(sequences as f64, packs as f64),
            limit: part(rows(sequences), tokens as f64),
        }
    }
}

/// What comes of a packing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stats {
    /// The length of a pack.
    pub max_length: usize,
    /// Sequences.
    pub sequences: u64,
    /// Their tokens.
    pub tokens: u64,
    /// Packs.
    pub packs: u64,
    /// Packs of different lengths.
    pub groups: usize,
    /// Sequences of the deepest pack.
    pub deepest: usize,
    /// Packs of one sequence, of two, and so on.
    pub by_depth: Vec<u64>,
    /// Tokens of a sequence.
    pub mean_length: f64,
    /// The part of all rows that is no padding if each sequence has a row of its own.
    pub unpacked_efficiency: f64,
    /// The part of all rows that is no padding.
    pub efficiency: f64,
    /// Sequences of a pack: how much faster training is if a pack takes as long as a sequence.
    pub sequences_per_pack: f64,
    /// What that could be at most.
    pub limit: f64,
}
