//! Samples as MLPerf's packed BERT stores them: words of 32 bits, the lowest byte first, one array
//! after the other, every sample of one size and nothing between two.
//!
//! A sequence alone ([`write_one`]) has the arrays of a record; a pack ([`write_pack`]) those of a
//! packed record, where `masked_lm_weights` is the number of the sequence. [`write_popart`] is a
//! later form, in which masked pieces come first and `[CLS]` last. Left out: reading that one, since
//! it does not say where a text began.

use std::ops::Range;

use frazil_tf::example::Example;

use super::Sample;
use super::packed::{
    self, MASKED_IDS, MASKED_POSITIONS, MASKED_SEQUENCES, MASKED_WEIGHTS, NSP_LABELS,
    NSP_POSITIONS, NSP_WEIGHTS, PackProblem, Places,
};
use crate::features::{Features, INPUT_IDS, INPUT_MASK, PretrainingFeatures, SEGMENT_IDS};
use crate::packing::at_most;
use crate::{Error, Result};

const NEXT_SENTENCE: &str = "next_sentence_labels";
const BYTES: usize = size_of::<u32>();

/// What the sizes of the arrays follow from. A file does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Tokens of a sequence, or of a pack.
    pub max_length: usize,
    /// Masked pieces of a sequence.
    pub max_predictions: usize,
    /// Sequences of a pack.
    pub sequences: usize,
}

/// MLPerf's.
impl Default for Shape {
    fn default() -> Self {
        Self { max_length: 512, max_predictions: 76, sequences: 3 }
    }
}

impl Shape {
    /// Refuses sizes that no sample has. Without them, the number of bytes may be none.
    pub fn check(&self) -> Result<()> {
        at_most("tokens of a sequence", self.max_length)?;
        at_most("masked pieces of a sequence", self.max_predictions)?;
        at_most("sequences of a pack", self.sequences)
    }

    /// Arrays of a sequence alone, and their sizes.
    fn of_one(&self) -> [(&'static str, usize); 7] {
        let (tokens, masked) = (self.max_length, self.max_predictions);
        [
            (INPUT_IDS, tokens),
            (INPUT_MASK, tokens),
            (SEGMENT_IDS, tokens),
            (MASKED_POSITIONS, masked),
            (MASKED_IDS, masked),
            (MASKED_WEIGHTS, masked),
            (NEXT_SENTENCE, 1),
        ]
    }

    /// Arrays of a pack, and their sizes.
    fn of_pack(&self) -> [(&'static str, usize); 10] {
        let Places { tokens, masked, sequences } = self.places();
        [
            (INPUT_IDS, tokens),
            (INPUT_MASK, tokens),
            (SEGMENT_IDS, tokens),
            (packed::POSITIONS, tokens),
            (MASKED_POSITIONS, masked),
            (MASKED_IDS, masked),
            (MASKED_SEQUENCES, masked),
            (NSP_POSITIONS, sequences),
            (NSP_LABELS, sequences),
            (NSP_WEIGHTS, sequences),
        ]
    }

    /// Bytes of a sequence alone.
    pub fn bytes_of_one(&self) -> usize {
        bytes_of(&self.of_one())
    }

    /// Where in the bytes of a sequence alone its mask is.
    pub(super) fn mask_of_one(&self) -> Range<usize> {
        let bytes = self.max_length * BYTES;
        bytes..2 * bytes
    }

    /// Bytes of a pack.
    pub fn bytes_of_pack(&self) -> usize {
        bytes_of(&self.of_pack())
    }

    /// What fits into a pack. Each sequence may have rounded its masked pieces up, so there is a
    /// place more for each.
    pub fn places(&self) -> Places {
        Places {
            tokens: self.max_length,
            masked: self.max_predictions.saturating_add(self.sequences),
            sequences: self.sequences,
        }
    }
}

/// As many as can be counted, if there were more: no file has them.
fn bytes_of(arrays: &[(&'static str, usize)]) -> usize {
    let words = arrays.iter().fold(0_usize, |words, (_, size)| words.saturating_add(*size));
    words.saturating_mul(BYTES)
}

/// Adds a sequence alone.
pub fn write_one(sample: &Sample, shape: Shape, bytes: &mut Vec<u8>) -> Result<()> {
    let sample = pretraining(sample)?;
    let found = [("tokens", sample.features.len()), ("masked pieces", sample.masked.len())];
    for ((what, found), places) in found.into_iter().zip([shape.max_length, shape.max_predictions])
    {
        if found > places {
            return Err(PackProblem::Full { what, found, places }.into());
        }
    }
    let features = &sample.features;
    let features =
        Features::of_ids(features.ids().to_vec(), features.first_segment(), shape.max_length);
    let max_predictions = shape.max_predictions;
    let example = PretrainingFeatures { features, max_predictions, ..sample.clone() }.to_example();
    for (name, _) in shape.of_one() {
        match name {
            MASKED_WEIGHTS => {
                example.floats(name)?.iter().for_each(|weight| push(*weight as i64, bytes));
            }
            name => example.int64s(name)?.iter().for_each(|word| push(*word, bytes)),
        }
    }
    Ok(())
}

/// Adds a pack.
pub fn write_pack(samples: &[Sample], shape: Shape, bytes: &mut Vec<u8>) -> Result<()> {
    samples.iter().try_for_each(|sample| pretraining(sample).map(drop))?;
    let example = packed::pack(samples, shape.places())?;
    for (name, _) in shape.of_pack() {
        example.int64s(name)?.iter().for_each(|word| push(*word, bytes));
    }
    Ok(())
}

/// Adds a pack in the later form: `input_ids`, `input_mask`, `segment_ids`, `positions`, ids of
/// masked pieces and the number of their sequence (one place fewer than before for both), labels and
/// weights of sequences. Masked pieces come first, then all others, and the `[CLS]` of sequence k
/// is the k-th from the end, as is its label.
pub fn write_popart(samples: &[Sample], shape: Shape, bytes: &mut Vec<u8>) -> Result<()> {
    let samples: Vec<&PretrainingFeatures> =
        samples.iter().map(pretraining).collect::<Result<_>>()?;
    let (tokens, sequences) = (shape.max_length, shape.sequences);
    let masked = shape.places().masked.saturating_sub(1);
    let of_masked: usize = samples.iter().map(|sample| sample.masked.len()).sum();
    for (what, found, places) in [
        ("tokens", samples.iter().map(|sample| sample.features.len()).sum(), tokens),
        ("masked pieces", of_masked, masked),
        ("sequences", samples.len(), sequences),
    ] {
        if found > places {
            return Err(PackProblem::Full { what, found, places }.into());
        }
    }
    let mut rows: [Vec<i64>; 4] = std::array::from_fn(|_| vec![0; tokens]);
    let (mut ids, mut numbers) = (vec![0; masked], vec![0; masked]);
    let (mut labels, mut weights) = (vec![0; sequences], vec![0; sequences]);
    let (mut next_masked, mut next) = (0, of_masked);
    for (index, sample) in samples.iter().enumerate() {
        let (features, number) = (&sample.features, index as i64 + 1);
        let mut put = |at: usize, place: usize| {
            let segment = i64::from(place >= features.first_segment());
            let values = [i64::from(features.ids()[place]), number, segment, place as i64];
            rows.iter_mut().zip(values).for_each(|(row, value)| row[at] = value);
        };
        let mut is_masked = vec![false; features.len()];
        for masked in &sample.masked {
            is_masked[masked.position as usize] = true;
            put(next_masked, masked.position as usize);
            (ids[next_masked], numbers[next_masked]) = (i64::from(masked.id), number);
            next_masked += 1;
        }
        put(tokens - 1 - index, 0);
        for place in (1..features.len()).filter(|place| !is_masked[*place]) {
            put(next, place);
            next += 1;
        }
        labels[sequences - 1 - index] = i64::from(sample.is_random_next);
        weights[sequences - 1 - index] = 1;
    }
    for row in rows.iter().chain([&ids, &numbers, &labels, &weights]) {
        row.iter().for_each(|word| push(*word, bytes));
    }
    Ok(())
}

/// These files hold nothing else, and weights of masked pieces only as 1.
fn pretraining(sample: &Sample) -> Result<&PretrainingFeatures> {
    match sample {
        Sample::Pretraining(sample) if sample.masked.iter().all(|masked| masked.weight == 1.0) => {
            Ok(sample)
        }
        Sample::Pretraining(_) => {
            Err(Error::RecordLayout { name: MASKED_WEIGHTS, expected: "1 or 0, as binaries need" })
        }
        sample => Err(Error::NotPretraining { found: sample.kind() }),
    }
}

fn push(word: i64, bytes: &mut Vec<u8>) {
    bytes.extend((word as u32).to_le_bytes()); // ids and places: none is as large or negative
}

/// Reads a sequence alone from as many bytes as it has.
pub fn read_one(bytes: &[u8], shape: Shape) -> Result<Sample> {
    let mut example = Example::default();
    for (name, row) in arrays(bytes, &shape.of_one(), shape.bytes_of_one())? {
        example = match name {
            MASKED_WEIGHTS => {
                let weights: Vec<f32> = row.iter().map(|word| *word as f32).collect();
                example.with_floats(name, weights)
            }
            name => example.with_int64s(name, row),
        };
    }
    PretrainingFeatures::from_example(&example).map(Sample::Pretraining)
}

/// Reads a pack from as many bytes as it has.
pub fn read_pack(bytes: &[u8], shape: Shape) -> Result<Vec<Sample>> {
    let mut example = Example::default();
    for (name, row) in arrays(bytes, &shape.of_pack(), shape.bytes_of_pack())? {
        if name == MASKED_SEQUENCES {
            let weights: Vec<f32> = row.iter().map(|number| f32::from(*number != 0)).collect();
            example = example.with_floats(MASKED_WEIGHTS, weights);
        }
        example = example.with_int64s(name, row);
    }
    packed::unpack(&example)
}

fn arrays<'a>(
    bytes: &'a [u8],
    sizes: &'a [(&'static str, usize)],
    expected: usize,
) -> Result<impl Iterator<Item = (&'static str, Vec<i64>)> + 'a> {
    if bytes.len() != expected {
        let (found, expected) = (bytes.len() as u64, expected as u64);
        return Err(Error::BinarySize { found, of_one: expected, of_pack: expected });
    }
    let mut words = bytes.chunks_exact(BYTES);
    Ok(sizes.iter().map(move |(name, size)| {
        let word =
            |bytes: &[u8]| i64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        (*name, words.by_ref().take(*size).map(word).collect())
    }))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{pretraining, squad};
    use super::*;

    const SHAPE: Shape = Shape { max_length: 32, max_predictions: 5, sequences: 3 };

    #[test]
    fn sizes_are_mlperfs() {
        let mlperf = Shape::default();
        assert_eq!((mlperf.bytes_of_one(), mlperf.bytes_of_pack()), (7060, 9176));
    }

    #[test]
    fn sizes_end_where_no_sample_goes() {
        const MOST: usize = u16::MAX as usize;
        Shape { max_length: MOST, max_predictions: MOST, sequences: MOST }.check().unwrap();
        for size in [MOST + 1, 1 << 60, 1 << 62, usize::MAX] {
            for (shape, what) in [
                (Shape { max_length: size, ..SHAPE }, "tokens of a sequence"),
                (Shape { max_predictions: size, ..SHAPE }, "masked pieces of a sequence"),
                (Shape { sequences: size, ..SHAPE }, "sequences of a pack"),
            ] {
                let error = shape.check().unwrap_err().to_string();
                assert_eq!(error, format!("{size} {what} are too many: there can be 65535"));
                assert!(shape.bytes_of_pack() > MOST && shape.places().masked >= 8);
            }
        }
    }

    #[test]
    fn sequences_and_packs_and_back() {
        let mut bytes = Vec::new();
        write_one(&pretraining(9, 1), SHAPE, &mut bytes).unwrap();
        assert_eq!(bytes.len(), SHAPE.bytes_of_one());
        assert_eq!(bytes[..8], [2, 0, 0, 0, 11, 0, 0, 0]);
        assert_eq!(read_one(&bytes, SHAPE).unwrap(), pretraining(9, 1));
        let samples = [pretraining(9, 1), pretraining(12, 2), pretraining(11, 3)];
        let mut bytes = Vec::new();
        write_pack(&samples, SHAPE, &mut bytes).unwrap();
        assert_eq!(bytes.len(), SHAPE.bytes_of_pack());
        assert_eq!(read_pack(&bytes, SHAPE).unwrap(), samples);
        // The number of the sequence is where the weight was.
        let at = (4 * 32 + 2 * 8) * BYTES;
        assert_eq!(bytes[at..at + 8], [1, 0, 0, 0, 1, 0, 0, 0]);
    }

    #[test]
    fn as_many_masked_pieces_as_there_are_places_fit() {
        // Three times 2 and 8 places: MLPerf's own check wanted one to be free.
        let places = SHAPE.places();
        assert_eq!(places.masked, 8);
        let narrow = Shape { max_predictions: 3, ..SHAPE };
        let samples = [pretraining(10, 1), pretraining(10, 2), pretraining(10, 3)];
        let mut bytes = Vec::new();
        write_pack(&samples, narrow, &mut bytes).unwrap();
        assert_eq!(read_pack(&bytes, narrow).unwrap().len(), 3);
        let tight = Shape { max_predictions: 2, ..SHAPE };
        assert!(write_pack(&samples, tight, &mut bytes).is_err());
    }

    #[test]
    fn masked_pieces_first_and_frames_last() {
        let mut bytes = Vec::new();
        write_popart(&[pretraining(5, 0), pretraining(8, 1)], SHAPE, &mut bytes).unwrap();
        let words: Vec<u32> =
            bytes.chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect();
        assert_eq!(words.len(), 4 * 32 + 2 * 7 + 2 * 3);
        let (mask, positions) = (&words[32..64], &words[96..128]);
        assert_eq!(mask[..14], [1, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 0, 0, 0]);
        assert_eq!(mask[29..], [0, 2, 1]);
        assert_eq!(positions[..11], [1, 1, 7, 2, 3, 4, 2, 3, 4, 5, 6]);
        assert_eq!(words[128..135], [101, 102, 108, 0, 0, 0, 0]);
        assert_eq!(words[135..142], [1, 2, 2, 0, 0, 0, 0]);
        assert_eq!(words[142..], [0, 1, 0, 0, 1, 1]);
        let full = vec![pretraining(12, 0); 3];
        assert!(write_popart(&full, SHAPE, &mut bytes).is_err());
    }

    #[test]
    fn what_does_not_belong_is_refused() {
        let mut bytes = Vec::new();
        let error = write_one(&squad(None), SHAPE, &mut bytes).unwrap_err().to_string();
        assert!(error.contains("pre-training"), "{error}");
        let Sample::Pretraining(mut heavy) = pretraining(9, 1) else { panic!() };
        heavy.masked[0].weight = 0.5;
        assert!(write_one(&Sample::Pretraining(heavy), SHAPE, &mut bytes).is_err());
        assert!(write_one(&pretraining(40, 1), SHAPE, &mut bytes).is_err());
        assert!(read_one(&[0; 12], SHAPE).is_err());
        assert!(read_pack(&vec![0; SHAPE.bytes_of_pack()], SHAPE).is_err());
        assert!(read_pack(&vec![0xff; SHAPE.bytes_of_pack()], SHAPE).is_err());
    }
}
