//! BERT's input layer: the sum of a word's, a position's and a segment's row.

mod fused;
mod grad;

pub use fused::{EmbedNorm, EmbedRows, Table, embed_norm_f32, embed_rows_f32};
pub use grad::scatter_rows_f32;

use crate::layout::OutOfRange;
use crate::movement::check;
use crate::number::Number;

/// The tables, each `[entries, h]`.
#[derive(Clone, Copy, Debug)]
pub struct Embeddings<'a, T> {
    /// `[v, h]`
    pub words: &'a [T],
    /// `[positions, h]`, at least as many as the sequence is long.
    pub positions: &'a [T],
    /// `[types, h]`
    pub types: &'a [T],
    /// Length of a row.
    pub hidden: usize,
    /// Length of a sequence; the position is counted anew in each.
    pub sequence: usize,
}

/// Which table an index does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbedError {
    /// A word id outside of the vocabulary.
    Word(OutOfRange),
    /// A segment id outside of the table of segments.
    Type(OutOfRange),
}

/// `out[i] = words[ids[i]] + positions[i mod s] + types[segments[i]]`.
/// `ids, segments: [b, s]  out: [b, s, h]`
pub fn embed<T: Number, I: Copy + Into<i64>>(
    ids: &[I],
    segments: &[I],
    tables: &Embeddings<'_, T>,
    out: &mut [T],
) -> Result<(), EmbedError> {
    let &Embeddings { words, positions, types, hidden: h, sequence: s } = tables;
    assert_eq!(ids.len(), segments.len(), "a segment for every word");
    assert_eq!(out.len(), ids.len() * h, "out is [b, s, h]");
    assert!(positions.len() >= s * h, "there is a position for every word");
    if h == 0 {
        return Ok(());
    }
    check(ids, words.len() / h).map_err(EmbedError::Word)?;
    check(segments, types.len() / h).map_err(EmbedError::Type)?;
    for (i, out) in out.chunks_exact_mut(h).enumerate() {
        let word = row(words, ids[i].into() as usize, h);
        let kind = row(types, segments[i].into() as usize, h);
        let position = row(positions, i % s, h);
        // The original's order: word, plus segment, plus position.
        for (((o, w), t), p) in out.iter_mut().zip(word).zip(kind).zip(position) {
            *o = w.add(*t).add(*p);
        }
    }
    Ok(())
}

fn row<T>(table: &[T], i: usize, h: usize) -> &[T] {
    &table[i * h..][..h]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_three_rows() {
        let tables = Embeddings {
            words: &[0.0f32, 1.0, 10.0, 11.0, 20.0, 21.0],
            positions: &[0.0, 0.0, 0.5, 0.25],
            types: &[100.0, 200.0, 300.0, 400.0],
            hidden: 2,
            sequence: 2,
        };
        let mut out = [0.0; 8]; // [2, 2, 2]
        embed(&[2i32, 0, 1, 1], &[0, 1, 1, 0], &tables, &mut out).unwrap();
        assert_eq!(out, [120.0, 221.0, 300.5, 401.25, 310.0, 411.0, 110.5, 211.25]);
        let word = embed(&[3i64, 0], &[0, 0], &tables, &mut out[..4]).unwrap_err();
        assert_eq!(word, EmbedError::Word(OutOfRange { at: 0, index: 3, limit: 3 }));
        let kind = embed(&[0i64, 0], &[0, -1], &tables, &mut out[..4]).unwrap_err();
        assert_eq!(kind, EmbedError::Type(OutOfRange { at: 1, index: -1, limit: 2 }));
    }
}
