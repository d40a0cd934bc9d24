//! How many sequences have which length.

use std::path::Path;

use serde::Serialize;

use super::LONGEST;
use crate::rows::RowProblem;
use crate::{Error, Result};

/// Least squares count in `f64`, which is exact up to here; and no sum on the way comes near 64 bits.
const MOST_TOKENS: u64 = 1 << f64::MANTISSA_DIGITS;

/// How many sequences have which length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Histogram {
    /// Of length 1, 2, and so on.
    counts: Vec<u64>,
    /// Of all sequences; at most [`MOST_TOKENS`].
    #[serde(skip)]
    tokens: u64,
}

impl Histogram {
    /// Without sequences, for packs of this length.
    pub fn new(max_length: usize) -> Result<Self> {
        let name = "max_seq_length";
        match max_length {
            0 => Err(Error::FeatureLength { name, found: 0, least: 1, why: "" }),
            1..=LONGEST => Ok(Self { counts: vec![0; max_length], tokens: 0 }),
            found => Err(Error::Size { what: "tokens of a pack", found, most: LONGEST }),
        }
    }

    /// Of sequences of these lengths.
    pub fn of(max_length: usize, lengths: impl IntoIterator<Item = usize>) -> Result<Self> {
        let mut histogram = Self::new(max_length)?;
        lengths.into_iter().try_for_each(|length| histogram.add(length, 1))?;
        Ok(histogram)
    }

    /// From a file with a length and a count on each line, with or without a header. Packs are as
    /// long as `max_length`, or else as the longest length in the file.
    pub fn read_csv(path: impl AsRef<Path>, max_length: Option<usize>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = frazil_tensor::file::map(path)?;
        Self::from_csv(&bytes, max_length).map_err(|error| error.in_file(path))
    }

    /// The same from the file's contents.
    pub fn from_csv(bytes: &[u8], max_length: Option<usize>) -> Result<Self> {
        let mut rows = Vec::new();
        let mut is_first = true;
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        for (line, number) in bytes.split(|byte| *byte == b'\n').zip(1..) {
            let line = std::str::from_utf8(line).map_err(|error| {
                RowProblem::Utf8 { at: error.valid_up_to() + 1 }.on_line(number)
            })?;
            let mut cells = line.split([',', '\t', ';']).map(str::trim);
            let (length, count) = match (cells.next(), cells.next(), cells.next()) {
                (Some(""), None, None) => continue,
                (Some(length), Some(count), None) => (length, count),
                _ => return Err(RowProblem::Histogram(line.to_owned()).on_line(number).into()),
            };
            match (length.parse(), count.parse()) {
                (Ok(length), Ok(count)) => rows.push((length, count, number)),
                // Names of columns have no digits; a number that is wrong does.
                _ if is_first && ![length, count].concat().contains(char::is_numeric) => {}
                _ => return Err(RowProblem::Histogram(line.to_owned()).on_line(number).into()),
            }
            is_first = false;
        }
        let longest = rows.iter().map(|(length, ..)| *length).max();
        let Some(longest) = longest else {
            return Err(Error::EmptyFile { expected: "lines of a length and a count" });
        };
        let mut histogram = Self::new(max_length.unwrap_or(longest))?;
        for (length, count, number) in rows {
            // A length that no sequence has may be anything.
            if count > 0 {
                histogram.add(length, count).map_err(|error| match error {
                    Error::SequenceLength { length, most } => {
                        RowProblem::Length { length, most }.on_line(number).into()
                    }
                    Error::TooManyTokens { most } => {
                        RowProblem::Tokens { most }.on_line(number).into()
                    }
                    other => other,
                })?;
            }
        }
        Ok(histogram)
    }

    /// Adds so many sequences of a length.
    pub fn add(&mut self, length: usize, count: u64) -> Result<()> {
        let most = self.counts.len();
        let place = length.checked_sub(1).and_then(|place| self.counts.get_mut(place));
        let place = place.ok_or(Error::SequenceLength { length, most })?;
        let more = count.checked_mul(length as u64);
        let tokens = more.and_then(|more| self.tokens.checked_add(more));
        let tokens = tokens.filter(|tokens| *tokens <= MOST_TOKENS);
        self.tokens = tokens.ok_or(Error::TooManyTokens { most: MOST_TOKENS })?;
        *place += count; // no more than there are tokens
        Ok(())
    }

    /// The length of a pack.
    pub fn max_length(&self) -> usize {
        self.counts.len()
    }

    /// How many sequences have this length.
    pub fn count(&self, length: usize) -> u64 {
        length.checked_sub(1).and_then(|place| self.counts.get(place)).copied().unwrap_or(0)
    }

    /// Of length 1, 2, and so on.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Lengths that there are, the longest first, and how many sequences have each.
    pub(super) fn longest_first(&self) -> impl Iterator<Item = (usize, u64)> {
        let all = self.counts.iter().enumerate().rev().map(|(place, count)| (place + 1, *count));
        all.filter(|(_, count)| *count > 0)
    }

    /// How many sequences there are.
    pub fn sequences(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How many tokens they have.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_lengths_and_counts() {
        let expected = Histogram { counts: vec![0, 2, 7], tokens: 25 };
        for text in [
            "length,count\n1,0\n2,2\n3,7\n",
            "\u{feff}2,2\n3,7\n",
            "\u{feff}l;n\n3;7\n2;2",
            "2\t2\r\n\r\n3\t5\r\n3\t2",
            "3;7\n2;2\n",
        ] {
            assert_eq!(Histogram::from_csv(text.as_bytes(), None).unwrap(), expected);
        }
        let wide = Histogram::from_csv(b"3,7\n2,2\n0,0\n9,0\n", Some(4)).unwrap();
        assert_eq!((wide.counts(), wide.sequences(), wide.tokens()), (&[0, 2, 7, 0][..], 9, 25));
    }

    #[test]
    fn mistakes_are_named_by_their_line() {
        let refused = |text: &[u8]| Histogram::from_csv(text, Some(4)).unwrap_err().to_string();
        assert!(refused(b"length,count\n1,2\nx,3\n").starts_with("line 3: expected a length"));
        for first in [&b"40,1000O\n1,2\n"[..], b"40,-1000\n1,2\n", b"l,1000\n1,2\n", b"4O,\n1,2\n"]
        {
            assert!(refused(first).starts_with("line 1: expected a length, a comma and a count"));
        }
        assert!(refused(b"1,2\n1\n").starts_with("line 2: expected a length"));
        assert!(refused(b"1,2\n5,1\n").starts_with("line 2: expected a length of 1 to 4, not 5"));
        assert!(refused(b"0,1\n").contains("not 0"));
        assert!(refused(b"1,\xff\n").contains("not UTF-8"));
        assert!(refused(b"length,count\n").contains("the file is empty"));
        assert!(Histogram::from_csv(b"9999999999,1\n", None).is_err());
        assert!(Histogram::new(0).is_err() && Histogram::of(3, [4]).is_err());
    }

    #[test]
    fn more_tokens_than_can_be_counted_are_refused() {
        let mut histogram = Histogram::new(2).unwrap();
        let adds = [
            (1, MOST_TOKENS, true),
            (1, 1, false),
            (2, 1, false),
            (1, u64::MAX, false),
            (2, u64::MAX, false),
        ];
        for (length, count, fits) in adds {
            assert_eq!(histogram.add(length, count).is_ok(), fits, "{count} of {length}");
        }
        assert_eq!((histogram.sequences(), histogram.tokens()), (MOST_TOKENS, MOST_TOKENS));
        let refused = |text: &[u8]| Histogram::from_csv(text, None).unwrap_err().to_string();
        let said = "expected lines of at most 9007199254740992 tokens together";
        let each_fits = b"1,18446744073709551615\n2,18446744073709551615\n";
        assert_eq!(refused(each_fits), format!("line 1: {said}"));
        assert_eq!(refused(b"1,9007199254740990\n3,1\n"), format!("line 2: {said}"));
    }
}
