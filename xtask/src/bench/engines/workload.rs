//! What is measured: the workloads, how each kind of engine batches them, and the goals.
//!
//! Lengths are those of `benchmarks/lengths.json`: `w5` like the questions and passages of SQuAD,
//! `w6` like short sentences.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::model::Size;

/// How an engine takes sequences of different lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// As they come: padding is not computed.
    Packed,
    /// Padded.
    Padded,
}

/// Sequences of a workload.
#[derive(Clone, Copy)]
enum Sequences {
    /// That many of one length, in one batch.
    Same(usize, usize),
    /// A list of `lengths.json`.
    Listed(&'static str),
}

/// How the peers batch a list of sequences.
#[derive(Clone, Copy)]
enum Padding {
    /// As they come, eight at a time, padded to this.
    To(usize),
    /// Sorted by length, so many at a time, padded to the longest; the best of these.
    Sorted(&'static [usize]),
}

/// One workload.
pub struct Workload {
    /// `W1` and so on.
    pub name: &'static str,
    /// In words.
    pub about: &'static str,
    /// The model.
    pub size: Size,
    sequences: Sequences,
    padding: Padding,
    /// Runs before time is taken, in every round.
    pub warm: usize,
    /// Timed runs of a round; their median is the sample.
    pub repeat: usize,
    /// Times faster than the best peer that frazil is to be: f32, int8.
    pub goals: [f64; 2],
}

/// Batches of frazil's that are tried on a list of sequences.
const PACKED: [usize; 2] = [8, 32];
/// At most every so-many-th batch of a list is run to estimate what the whole takes.
const STEP: usize = 8;

/// All, in the order of running. W5a is what recipes do, W5b and W5c what a careful user does.
pub static WORKLOADS: [Workload; 8] = [
    latency("W1", "base, 1 x 128", Size::BASE, (1, 128), 5),
    latency("W2", "base, 8 x 128", Size::BASE, (8, 128), 2),
    latency("W3", "base, 1 x 384", Size::BASE, (1, 384), 3),
    latency("W4", "large, 1 x 384", Size::LARGE, (1, 384), 2),
    list("W5a", "base, 64 SQuAD-like, padded to 384", "w5", Padding::To(384), [2.3, 2.0]),
    list("W5b", "base, 64 SQuAD-like, sorted", "w5", Padding::Sorted(&[8]), [1.2, 1.2]),
    list("W5c", "base, 64 SQuAD-like, one by one", "w5", Padding::Sorted(&[1]), [1.2, 1.2]),
    list("W6", "base, 256 short, best batching", "w6", Padding::Sorted(&[1, 8, 32]), [1.2, 1.2]),
];

const fn latency(
    name: &'static str,
    about: &'static str,
    size: Size,
    (b, s): (usize, usize),
    repeat: usize,
) -> Workload {
    let padding = Padding::Sorted(&[]);
    let sequences = Sequences::Same(b, s);
    Workload { name, about, size, sequences, padding, warm: 1, repeat, goals: [1.10, 1.15] }
}

const fn list(
    name: &'static str,
    about: &'static str,
    key: &'static str,
    padding: Padding,
    goals: [f64; 2],
) -> Workload {
    let (size, sequences) = (Size::BASE, Sequences::Listed(key));
    Workload { name, about, size, sequences, padding, warm: 0, repeat: 1, goals }
}

/// One way to batch a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Batching {
    /// In words: `sorted, 8`.
    pub name: String,
    /// The lengths of each batch.
    pub batches: Vec<Vec<usize>>,
    /// The padded length, if not the longest of a batch.
    pub pad: Option<usize>,
    /// Whether padding is not computed.
    pub packed: bool,
}

impl Batching {
    /// Rows that are computed.
    pub fn rows(&self) -> usize {
        let rows = |lengths: &Vec<usize>| match self.packed {
            true => lengths.iter().sum(),
            false => lengths.len() * lengths.iter().copied().chain(self.pad).max().unwrap_or(0),
        };
        self.batches.iter().map(rows).sum()
    }

    /// Some of the batches, from which the time of all can be told by [`Self::rows`].
    pub fn probe(&self) -> Self {
        let step = (self.batches.len() / 2).clamp(1, STEP);
        let batches = self.batches.iter().skip(step / 2).step_by(step).cloned().collect();
        Self { batches, ..self.clone() }
    }

    /// What a round runs. Batches that are padded to one length are all alike: two of them, other
    /// ones in each round, stand for all.
    pub fn part(&self, round: usize) -> Self {
        if self.pad.is_none() || self.batches.len() <= 2 {
            return self.clone();
        }
        let pairs: Vec<&[Vec<usize>]> = self.batches.chunks_exact(2).collect();
        Self { batches: pairs[round % pairs.len()].to_vec(), ..self.clone() }
    }

    /// The line that asks an arm to run it.
    pub fn request(&self, warm: usize, repeat: usize, outputs: bool) -> Value {
        json!({
            "batches": self.batches,
            "pad": self.pad,
            "warm": warm,
            "repeat": repeat,
            "outputs": outputs,
        })
    }

    /// Sequences of one length in one batch.
    pub fn same(b: usize, s: usize) -> Self {
        Self { name: format!("{b} x {s}"), batches: vec![vec![s; b]], pad: None, packed: false }
    }
}

impl Workload {
    /// The lengths of its sequences; a few of them if `quick`.
    pub fn lengths(&self, quick: bool) -> Result<Vec<usize>> {
        let key = match self.sequences {
            Sequences::Same(b, s) => return Ok(vec![s; b]),
            Sequences::Listed(key) => key,
        };
        let all: Value = serde_json::from_str(include_str!("../../../../benchmarks/lengths.json"))?;
        let list = all[key].as_array().with_context(|| format!("no lengths `{key}`"))?;
        let lengths = list.iter().map(|n| n.as_u64().map(|n| n as usize).context("a length"));
        lengths.take(if quick { 10 } else { usize::MAX }).collect()
    }

    /// Whether it is a list of sequences of different lengths.
    pub fn is_list(&self) -> bool {
        matches!(self.sequences, Sequences::Listed(_))
    }

    /// The ways to batch it that an engine with such a door is given; its fastest one counts.
    pub fn batchings(&self, door: Door, quick: bool) -> Result<Vec<Batching>> {
        let lengths = self.lengths(quick)?;
        if let Sequences::Same(b, s) = self.sequences {
            return Ok(vec![Batching::same(b, s)]);
        }
        let split = |lengths: &[usize], size: usize| -> Vec<Vec<usize>> {
            lengths.chunks(size).map(<[usize]>::to_vec).collect()
        };
        let mut sorted = lengths.clone();
        sorted.sort_unstable();
        let batchings = match (door, self.padding) {
            (Door::Packed, _) => PACKED
                .map(|size| Batching {
                    name: format!("as they come, {size}"),
                    batches: split(&lengths, size),
                    pad: None,
                    packed: true,
                })
                .to_vec(),
            (Door::Padded, Padding::To(pad)) => vec![Batching {
                name: format!("as they come, 8, padded to {pad}"),
                batches: split(&lengths, 8),
                pad: Some(pad),
                packed: false,
            }],
            (Door::Padded, Padding::Sorted(sizes)) => sizes
                .iter()
                .map(|&size| Batching {
                    name: format!("sorted, {size}"),
                    batches: split(&sorted, size),
                    pad: None,
                    packed: false,
                })
                .collect(),
        };
        Ok(batchings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_batching_has_every_sequence() {
        for workload in &WORKLOADS {
            let mut lengths = workload.lengths(false).unwrap();
            lengths.sort_unstable();
            for door in [Door::Packed, Door::Padded] {
                let batchings = workload.batchings(door, false).unwrap();
                assert!(!batchings.is_empty());
                for batching in batchings {
                    let mut found = batching.batches.concat();
                    found.sort_unstable();
                    assert_eq!(found, lengths, "{} {}", workload.name, batching.name);
                    assert!(batching.pad.is_none_or(|pad| lengths.iter().all(|&n| n <= pad)));
                }
            }
        }
    }

    #[test]
    fn parts_stand_for_the_whole() {
        let row = WORKLOADS.iter().find(|row| row.name == "W5a").unwrap();
        let [whole] = &row.batchings(Door::Padded, false).unwrap()[..] else { panic!("one way") };
        assert_eq!(whole.rows(), 64 * 384);
        assert_eq!(whole.part(0).rows() * 4, whole.rows());
        assert_eq!(whole.part(3), whole.part(7));
        assert_ne!(whole.part(0), whole.part(1));
        let row = WORKLOADS.iter().find(|row| row.name == "W6").unwrap();
        for whole in row.batchings(Door::Padded, false).unwrap() {
            assert_eq!(whole.part(1), whole);
            let share = whole.rows() as f64 / whole.probe().rows() as f64;
            assert!(share > 1.5 && share < 12.0, "{}: {share}", whole.name);
        }
        let packed = &row.batchings(Door::Packed, false).unwrap()[0];
        assert_eq!(packed.rows(), row.lengths(false).unwrap().iter().sum::<usize>());
        assert_eq!(Batching::same(8, 128).probe(), Batching::same(8, 128));
    }

    #[test]
    fn lengths_are_the_published_ones() {
        let lengths = |name: &str| {
            let row = WORKLOADS.iter().find(|row| row.name == name).unwrap();
            row.lengths(false).unwrap()
        };
        let (w5, w6) = (lengths("W5a"), lengths("W6"));
        assert_eq!((w5.len(), w6.len()), (64, 256));
        assert_eq!((w5.iter().min(), w5.iter().max()), (Some(&59), Some(&355)));
        assert_eq!((w6.iter().min(), w6.iter().max()), (Some(&8), Some(&64)));
        let shared = crate::root().join("../shared/peers/lengths.json");
        let Ok(shared) = std::fs::read(shared) else { return };
        let shared: Value = serde_json::from_slice(&shared).unwrap();
        let own: Value =
            serde_json::from_str(include_str!("../../../../benchmarks/lengths.json")).unwrap();
        assert_eq!(own, shared);
    }
}
