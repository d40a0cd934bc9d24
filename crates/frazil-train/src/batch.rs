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

/// The inputs of a head's loss ([`crate::loss::attach`]): `[b, s]`, where `b` are the sequences of
/// the batch and `s` is the length of the longest.
pub fn inputs(batch: &PackedBatch, head: Head) -> Result<Inputs> {
    let b = batch.sequences();
    let begins: Vec<usize> = batch.bounds.iter().map(|&row| row as usize).collect();
    let s = begins.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
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
                masked(&mut inputs, batch, &begins)?;
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

/// `[b, p]`, where `p` is the largest number of masked pieces of a sequence; what is missing to it
/// counts for nothing.
fn masked(inputs: &mut Inputs, batch: &PackedBatch, begins: &[usize]) -> Result<()> {
    let b = batch.sequences();
    let mut count = vec![0usize; b];
    let places: Vec<(usize, usize)> = batch
        .masked
        .sequences
        .iter()
        .map(|&sequence| {
            let place = count[sequence as usize];
            count[sequence as usize] += 1;
            (sequence as usize, place)
        })
        .collect();
    let p = count.into_iter().max().unwrap_or(0).max(1);
    let (mut positions, mut ids) = (vec![0i32; b * p], vec![0i32; b * p]);
    let mut weights = vec![0f32; b * p];
    for (i, &(sequence, place)) in places.iter().enumerate() {
        let at = sequence * p + place;
        positions[at] = (batch.masked.rows[i] as usize - begins[sequence]) as i32;
        ids[at] = batch.masked.ids[i];
        weights[at] = batch.masked.weights[i];
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
