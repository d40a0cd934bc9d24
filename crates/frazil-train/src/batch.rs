//! What a graph with its loss is fed, from batches of samples.
//!
//! Every sequence becomes an example of its own, however many were packed together: rows of padding
//! are dropped when the graph runs, so a pack costs what its sequences cost, none of which sees
//! another.

use frazil_bert::Head;
use frazil_bert::features::Target;
use frazil_bert::samples::PackedBatch;
use frazil_runtime::Inputs;
use frazil_tensor::{Element, Tensor};

use crate::{Error, Result};

/// What each masked piece counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Basis {
    /// As much as any other, as in the original.
    #[default]
    Token,
    /// So much that each sequence counts as much as any other: the loss is a mean of sequences' means.
    Sequence,
}

/// What becomes of a batch before it is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// What each masked piece counts.
    pub basis: Basis,
    /// Pieces that the model knows, where there may be others: those become [`UNKNOWN`]. What is masked and
    /// cannot be predicted for that, as [`NO_PIECE`], has no loss and is never found, but counts in what
    /// these are means over. So does a masked piece 0: files of MLPerf fill up with it.
    pub vocabulary: Option<usize>,
    /// Up to what every sequence is filled, and computed, as the original does it; nothing is if not given.
    pub padding: Option<Padding>,
}

/// What every sequence has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padding {
    /// Pieces.
    pub pieces: usize,
    /// Masked pieces.
    pub predictions: usize,
}

/// `[UNK]` of Google's vocabularies.
pub const UNKNOWN: i32 = 100;

/// What stands for a masked piece that the model does not know.
pub const NO_PIECE: i32 = -1;

impl Form {
    /// Changes the batch.
    pub fn apply(&self, batch: &mut PackedBatch) {
        let masked = &mut batch.masked;
        if let Some(vocabulary) = self.vocabulary {
            let other = |id: i32| usize::try_from(id).is_ok_and(|id| id >= vocabulary);
            batch.input_ids.iter_mut().filter(|id| other(**id)).for_each(|id| *id = UNKNOWN);
            let unknown = masked.ids.iter_mut().filter(|id| **id == 0 || other(**id));
            unknown.for_each(|id| *id = NO_PIECE);
        }
        if self.basis == Basis::Sequence {
            let mut sums = vec![0f32; batch.bounds.len()];
            for (weight, &sequence) in masked.weights.iter().zip(&masked.sequences) {
                sums[sequence as usize] += weight;
            }
            for (weight, &sequence) in masked.weights.iter_mut().zip(&masked.sequences) {
                let sum = sums[sequence as usize];
                *weight = if sum > 0.0 { *weight / sum } else { 0.0 };
            }
        }
    }
}

/// The inputs of a head's loss ([`crate::loss::attach`]): `[b, s]`, where `b` are the sequences of
/// the batch and `s` is the length of the longest, or that of padding.
pub fn inputs(batch: &PackedBatch, head: Head, padding: Option<Padding>) -> Result<Inputs> {
    let b = batch.sequences();
    let begins: Vec<usize> = batch.bounds.iter().map(|&row| row as usize).collect();
    let longest = begins.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
    let s = padding.map_or(0, |padding| padding.pieces).max(longest);
    let rows = |values: &dyn Fn(usize) -> i32| {
        let mut padded = vec![0i32; b * s];
        for (example, pair) in begins.windows(2).enumerate() {
            for (place, row) in (pair[0]..pair[1]).enumerate() {
                padded[example * s + place] = values(row);
            }
        }
        padded
    };
    let mut inputs = Inputs::new();
    put(&mut inputs, "input_ids", &[b, s], rows(&|row| batch.input_ids[row]))?;
    put(&mut inputs, "input_mask", &[b, s], rows(&|_| 1))?;
    put(&mut inputs, "segment_ids", &[b, s], rows(&|row| batch.segment_ids[row]))?;
    match head {
        Head::Classifier => {
            let class = |target: &Target| match target {
                Target::Class(class) => Ok(*class),
                Target::Score(_) => Err(Error::NoTarget { expected: "a class" }),
            };
            let labels = batch.targets.iter().map(class).collect::<Result<Vec<_>>>()?;
            complete(&labels, b, "a class")?;
            put(&mut inputs, "label_ids", &[b], labels)?;
        }
        Head::Squad => {
            complete(&batch.answers, b, "the place of an answer")?;
            let place = |(example, row): (usize, u32)| (row as usize - begins[example]) as i32;
            let (starts, ends): (Vec<u32>, Vec<u32>) = batch.answers.iter().copied().unzip();
            for (name, rows) in [("start_positions", starts), ("end_positions", ends)] {
                put(&mut inputs, name, &[b], rows.into_iter().enumerate().map(place).collect())?;
            }
        }
        Head::Pretraining | Head::Mlm | Head::Nsp => {
            if head != Head::Nsp {
                masked(&mut inputs, batch, &begins, s, padding)?;
            }
            if head != Head::Mlm {
                complete(&batch.next_sentence_labels, b, "whether the next text follows")?;
                let labels = batch.next_sentence_labels.clone();
                put(&mut inputs, "next_sentence_labels", &[b, 1], labels)?;
            }
        }
        Head::Encoder => return Err(Error::NoLossFor { head: head.to_string() }),
    }
    Ok(inputs)
}

/// `[b, p]`, as few as hold all masked pieces, or those of padding. The graph adds up where an example
/// begins and a position in it, so a position may lie beyond its example's end: without padding,
/// pieces are spread evenly over the examples, and next to none is computed for nothing. What is
/// missing to `b * p` counts for nothing.
fn masked(
    inputs: &mut Inputs,
    batch: &PackedBatch,
    begins: &[usize],
    s: usize,
    padding: Option<Padding>,
) -> Result<()> {
    let (b, count) = (batch.sequences(), batch.masked.rows.len());
    let mut own = vec![0; b];
    let places = batch.masked.sequences.iter().map(|&sequence| {
        let own = &mut own[sequence as usize];
        *own += 1;
        (sequence as usize, *own - 1)
    });
    let places: Vec<(usize, usize)> = places.collect();
    let p = match padding {
        Some(padding) => own.iter().fold(padding.predictions, |most, own| most.max(*own)),
        None => count.div_ceil(b.max(1)),
    };
    let p = p.max(1);
    // What counts for nothing points to the first row of its own example.
    let mut positions = vec![0i32; b * p];
    let (mut ids, mut weights) = (vec![0i32; b * p], vec![0f32; b * p]);
    for (at, (sequence, place)) in places.into_iter().enumerate() {
        let to = if padding.is_some() { sequence * p + place } else { at };
        let row = sequence * s + batch.masked.rows[at] as usize - begins[sequence];
        positions[to] = row as i32 - (to / p * s) as i32;
        ids[to] = batch.masked.ids[at];
        weights[to] = batch.masked.weights[at];
    }
    put(inputs, "masked_lm_positions", &[b, p], positions)?;
    put(inputs, "masked_lm_ids", &[b, p], ids)?;
    put(inputs, "masked_lm_weights", &[b, p], weights)
}

fn complete<T>(found: &[T], sequences: usize, expected: &'static str) -> Result<()> {
    match found.len() == sequences {
        true => Ok(()),
        false => Err(Error::NoTarget { expected }),
    }
}

fn put<T: Element>(inputs: &mut Inputs, name: &str, shape: &[usize], values: Vec<T>) -> Result<()> {
    inputs.insert(name.to_owned(), Tensor::from_vec(shape.to_vec(), values)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use frazil_bert::samples::MaskedRows;

    /// Sequences of 3 and 5 rows; the second has three of the four masked pieces.
    fn batch() -> PackedBatch {
        PackedBatch {
            input_ids: vec![2, 900, 3, 2, 7, 8, 9, 3],
            segment_ids: vec![0; 8],
            positions: vec![0, 1, 2, 0, 1, 2, 3, 4],
            bounds: vec![0, 3, 8],
            packs: vec![0, 2],
            masked: MaskedRows {
                rows: vec![1, 4, 5, 6],
                ids: vec![10, 900, 12, 0],
                weights: vec![1.0; 4],
                sequences: vec![0, 1, 1, 1],
            },
            next_sentence_labels: vec![0, 1],
            ..PackedBatch::new()
        }
    }

    #[test]
    fn what_the_model_does_not_know_counts_and_is_not_predicted() {
        let mut known = batch();
        Form::default().apply(&mut known);
        assert_eq!(known, batch());
        let mut cut = batch();
        Form { vocabulary: Some(500), ..Form::default() }.apply(&mut cut);
        assert_eq!(cut.input_ids, [2, UNKNOWN, 3, 2, 7, 8, 9, 3]);
        assert_eq!((cut.masked.ids, cut.masked.weights), (vec![10, -1, 12, -1], vec![1.0; 4]));
    }

    #[test]
    fn sequences_count_the_same() {
        let mut by_sequence = batch();
        Form { basis: Basis::Sequence, ..Form::default() }.apply(&mut by_sequence);
        let third = 1.0 / 3.0;
        assert_eq!(by_sequence.masked.weights, [1.0, third, third, third]);
        let mut cut = batch();
        Form { basis: Basis::Sequence, vocabulary: Some(500), padding: None }.apply(&mut cut);
        assert_eq!(cut.masked.ids, [10, -1, 12, -1]);
        assert_eq!(cut.masked.weights, [1.0, third, third, third]);
    }

    /// However masked pieces are spread over the examples, each leads to its own row.
    #[test]
    fn masked_pieces_are_spread_evenly_or_padded() {
        let padding = Padding { pieces: 7, predictions: 4 };
        for (padding, s, p) in [(None, 5, 2), (Some(padding), 7, 4)] {
            let inputs = inputs(&batch(), Head::Pretraining, padding).unwrap();
            let values = |name: &str| inputs[name].values::<i32>().unwrap().into_owned();
            assert_eq!(inputs["input_ids"].shape().to_vec(), [2, s]);
            assert_eq!(inputs["masked_lm_positions"].shape().to_vec(), [2, p]);
            let (ids, labels) = (values("input_ids"), values("masked_lm_ids"));
            let weights = inputs["masked_lm_weights"].values::<f32>().unwrap();
            let found: Vec<(i32, i32)> = values("masked_lm_positions")
                .iter()
                .enumerate()
                .filter(|(at, _)| weights[*at] > 0.0)
                .map(|(at, row)| (ids[at / p * s + *row as usize], labels[at]))
                .collect();
            assert_eq!(found, [(900, 10), (7, 900), (8, 12), (9, 0)]);
        }
    }
}
