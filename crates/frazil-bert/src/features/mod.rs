//! Word pieces to what the model is fed with: `input_ids`, `input_mask`, `segment_ids`.
//!
//! [`Features`] holds the pieces of one sequence without padding, since nothing in frazil wants
//! padding but the formats of others; it is added where a record or a padded batch is written.
//! [`classifier`] makes them of single texts and pairs, [`squad`](crate::squad) of questions and
//! documents; [`pretraining`] holds those with masked pieces. Left out: batches.

pub mod classifier;
pub mod pretraining;

use std::path::Path;

use frazil_tf::example::{self, Example};
use frazil_tf::tfrecord::{Compression, RecordReader, RecordWriter};

use crate::tokenizer::Vocabulary;
use crate::{Error, Result};

pub use crate::squad::SquadFeatures;
pub use classifier::{ClassifierFeatures, InputExample, Target};
pub use pretraining::{Masked, PretrainingFeatures};

/// Names in a record.
pub(crate) const INPUT_IDS: &str = "input_ids";
pub(crate) const INPUT_MASK: &str = "input_mask";
pub(crate) const SEGMENT_IDS: &str = "segment_ids";

/// Writes a file of examples; tells how many there were.
pub(crate) fn write_examples(
    path: impl AsRef<Path>,
    examples: impl Iterator<Item = Example>,
) -> Result<u64> {
    let mut writer = RecordWriter::create(path, Compression::None)?;
    for example in examples {
        writer.add(&example.encode())?;
    }
    let count = writer.count();
    writer.finish()?;
    Ok(count)
}

/// Reads a file of examples, each as `of` understands it.
pub(crate) fn read_examples<T>(
    path: impl AsRef<Path>,
    of: impl Fn(&Example) -> Result<T>,
) -> Result<Vec<T>> {
    let path = path.as_ref();
    let read = |record: frazil_tf::Result<_>| of(&Example::decode(record?)?);
    let records = RecordReader::open(path)?.map(read);
    records.collect::<Result<_>>().map_err(|error| error.in_file(path))
}

/// The ids that frame every sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// `[CLS]`
    pub cls: i32,
    /// `[SEP]`
    pub sep: i32,
}

impl Frame {
    /// Of a vocabulary, which needs to have them.
    pub fn of(vocabulary: &Vocabulary) -> Result<Self> {
        let id = |token| vocabulary.id(token).map(narrow).ok_or(Error::NoSpecialToken(token));
        Ok(Self { cls: id("[CLS]")?, sep: id("[SEP]")? })
    }
}

/// An id as the model takes it. No vocabulary has more pieces than fit.
pub(crate) fn narrow(id: u32) -> i32 {
    i32::try_from(id).unwrap_or(i32::MAX)
}

/// One sequence: `[CLS] first [SEP]` or `[CLS] first [SEP] second [SEP]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    ids: Vec<i32>,
    /// How many of them are of segment 0.
    first: usize,
    /// `max_seq_length`
    padded: usize,
}

impl Features {
    /// A sequence that is padded to `padded` where padding is wanted. The caller has cut the
    /// texts; what would still be too long loses its end.
    pub fn new(frame: Frame, first: &[i32], second: Option<&[i32]>, padded: usize) -> Self {
        let length = first.len() + 2 + second.map_or(0, |second| second.len() + 1);
        let mut ids = Vec::with_capacity(length);
        ids.push(frame.cls);
        ids.extend_from_slice(first);
        ids.push(frame.sep);
        let first = ids.len().min(padded);
        if let Some(second) = second {
            ids.extend_from_slice(second);
            ids.push(frame.sep);
        }
        ids.truncate(padded);
        Self { ids, first, padded }
    }

    /// A sequence that has its frame already, of which so many ids are of segment 0.
    pub(crate) fn of_ids(ids: Vec<i32>, first: usize, padded: usize) -> Self {
        debug_assert!(first <= ids.len() && ids.len() <= padded);
        Self { ids, first, padded }
    }

    /// Nothing but padding: what fills up a batch.
    pub fn padding(padded: usize) -> Self {
        Self { ids: Vec::new(), first: 0, padded }
    }

    /// The ids without padding.
    pub fn ids(&self) -> &[i32] {
        &self.ids
    }

    /// How many of the ids belong to the first text, `[CLS]` and `[SEP]` included.
    pub fn first_segment(&self) -> usize {
        self.first
    }

    /// The number of ids without padding.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether this is nothing but padding.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The length with padding: `max_seq_length`.
    pub fn padded_len(&self) -> usize {
        self.padded
    }

    /// The ids with padding.
    pub fn input_ids(&self) -> Vec<i32> {
        self.row(|i| self.ids[i])
    }

    /// 1 for every id, 0 for padding.
    pub fn input_mask(&self) -> Vec<i32> {
        self.row(|_| 1)
    }

    /// The segment of every id, 0 for padding.
    pub fn segment_ids(&self) -> Vec<i32> {
        self.row(|i| i32::from(i >= self.first))
    }

    fn row(&self, value: impl Fn(usize) -> i32) -> Vec<i32> {
        let mut row = vec![0; self.padded];
        for (i, place) in row.iter_mut().enumerate().take(self.ids.len()) {
            *place = value(i);
        }
        row
    }

    /// As the original stores it in a record.
    pub fn to_example(&self) -> Example {
        let wide = |row: Vec<i32>| row.into_iter().map(i64::from).collect::<Vec<i64>>();
        Example::default()
            .with_int64s(INPUT_IDS, wide(self.input_ids()))
            .with_int64s(INPUT_MASK, wide(self.input_mask()))
            .with_int64s(SEGMENT_IDS, wide(self.segment_ids()))
    }

    /// From a record of the original's. Its mask must be ones and then zeros, its segments zeros
    /// and then ones, as every writer of such files makes them.
    pub fn from_example(example: &Example) -> Result<Self> {
        let ids = int32s(example, INPUT_IDS)?;
        let padded = ids.len();
        let row = |name: &'static str| -> Result<Vec<i32>> {
            let values = int32s(example, name)?;
            if values.len() != padded {
                return Err(Error::RecordLength { name, expected: padded, found: values.len() });
            }
            Ok(values)
        };
        let (mask, segments) = (row(INPUT_MASK)?, row(SEGMENT_IDS)?);
        let length = mask.iter().take_while(|&&m| m == 1).count();
        let first = segments[..length].iter().take_while(|&&s| s == 0).count();
        let features = Self { ids: ids[..length].to_vec(), first, padded };
        if features.input_mask() != mask {
            return Err(Error::RecordLayout { name: INPUT_MASK, expected: "ones, then zeros" });
        }
        if features.segment_ids() != segments {
            let expected = "zeros, then ones, then zeros for padding";
            return Err(Error::RecordLayout { name: SEGMENT_IDS, expected });
        }
        Ok(features)
    }
}

/// A feature of integers that fit the model.
pub(crate) fn int32s(example: &Example, name: &'static str) -> Result<Vec<i32>> {
    let narrow = |&wide: &i64| {
        i32::try_from(wide).map_err(|_| Error::RecordValue { name, found: wide.to_string() })
    };
    example.int64s(name)?.iter().map(narrow).collect()
}

/// The only value of a feature of integers.
pub(crate) fn int64(features: &example::Features, name: &'static str) -> Result<i64> {
    match features.int64s(name)? {
        [value] => Ok(*value),
        values => Err(Error::RecordLength { name, expected: 1, found: values.len() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Frame = Frame { cls: 2, sep: 3 };

    #[test]
    fn pairs_and_single_texts() {
        let pair = Features::new(FRAME, &[7, 8], Some(&[9]), 8);
        assert_eq!(pair.input_ids(), [2, 7, 8, 3, 9, 3, 0, 0]);
        assert_eq!(pair.input_mask(), [1, 1, 1, 1, 1, 1, 0, 0]);
        assert_eq!(pair.segment_ids(), [0, 0, 0, 0, 1, 1, 0, 0]);
        assert_eq!((pair.len(), pair.first_segment(), pair.padded_len()), (6, 4, 8));
        let single = Features::new(FRAME, &[7], None, 4);
        assert_eq!((single.input_ids(), single.segment_ids()), (vec![2, 7, 3, 0], vec![0; 4]));
        assert_eq!(Features::padding(3).input_mask(), [0; 3]);
        assert_eq!(Features::new(FRAME, &[7, 8], Some(&[9]), 3).input_ids(), [2, 7, 8]);
    }

    #[test]
    fn records_and_back() {
        for features in [
            Features::new(FRAME, &[7, 8], Some(&[9]), 8),
            Features::new(FRAME, &[7, 8], None, 4),
            Features::padding(5),
        ] {
            assert_eq!(Features::from_example(&features.to_example()).unwrap(), features);
        }
    }

    #[test]
    fn other_records_are_refused() {
        let good = || Features::new(FRAME, &[7], Some(&[9]), 6).to_example();
        let refused = |example: Example| Features::from_example(&example).unwrap_err().to_string();
        let short = refused(good().with_int64s(INPUT_MASK, [1]));
        assert_eq!(short, "`input_mask` of a record has 1 values, not 6");
        let hole = refused(good().with_int64s(INPUT_MASK, [1, 0, 1, 1, 1, 0]));
        assert!(hole.contains("ones, then zeros"), "{hole}");
        let mixed = refused(good().with_int64s(SEGMENT_IDS, [0, 1, 0, 1, 1, 0]));
        assert!(mixed.contains("zeros, then ones"), "{mixed}");
        let wide = refused(good().with_int64s(INPUT_IDS, [1 << 40; 6]));
        assert!(wide.contains("1099511627776"), "{wide}");
    }
}
