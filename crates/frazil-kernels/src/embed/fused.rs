//! The input layer in one pass over packed rows: three lookups, their sum, and its normalisation
//! where that is wanted.

use crate::cpu::Isa;
use crate::norm::{Affine, Term, gather};
use crate::par::Pool;
use crate::quantize::{Bytes, Target};
use crate::rows::{Shared, covers, share_out};
use crate::simd::{Kernel, Simd, dispatch};

/// Rows to look up: `[entries, h]`.
#[derive(Clone, Copy, Debug)]
pub enum Table<'a> {
    /// Numbers.
    F32(&'a [f32]),
    /// Bytes.
    I8 {
        /// The bytes.
        bytes: &'a [i8],
        /// What a step of one stands for: by row, or one for all.
        scales: &'a [f32],
    },
}

impl Table<'_> {
    /// A number of a row.
    ///
    /// # Panics
    /// If there is none of that number.
    pub fn number(&self, h: usize, row: u32, column: usize) -> f32 {
        let at = row as usize * h + column;
        match self {
            Self::F32(table) => table[at],
            Self::I8 { bytes, .. } => f32::from(bytes[at]) * self.scale(row),
        }
    }

    /// The scale of a row.
    fn scale(&self, row: u32) -> f32 {
        match self {
            Self::F32(_) => 1.0,
            Self::I8 { scales, .. } => scales[if scales.len() == 1 { 0 } else { row as usize }],
        }
    }

    /// A row.
    ///
    /// # Panics
    /// If there is none of that number.
    fn row(&self, h: usize, row: u32) -> Term {
        let begin = row as usize * h;
        match self {
            Self::F32(table) => Term::F32(table[begin..][..h].as_ptr()),
            Self::I8 { bytes, .. } => Term::I8(bytes[begin..][..h].as_ptr(), self.scale(row)),
        }
    }
}

/// The tables, each `[entries, h]`, what is looked up in them, and the normalisation of the sum.
#[derive(Clone, Copy, Debug)]
pub struct EmbedNorm<'a> {
    /// `[v, h]`
    pub words: Table<'a>,
    /// `[types, h]`
    pub types: Table<'a>,
    /// `[positions, h]`
    pub positions: Table<'a>,
    /// `[t]`: rows of `words`.
    pub ids: &'a [u32],
    /// `[t]`: rows of `types`.
    pub segments: &'a [u32],
    /// `[t]`: rows of `positions`.
    pub places: &'a [u32],
    /// Of the sum.
    pub affine: Affine<'a>,
}

/// `out[i] = norm(words[ids[i]] + types[segments[i]] + positions[places[i]])`; `out: [t, out_ld]`,
/// and the same as bytes if that is wanted.
///
/// # Panics
/// If the extents contradict each other, or an index is outside of its table: the caller has checked
/// them.
pub fn embed_norm_f32(
    pool: &Pool,
    isa: Isa,
    embed: &EmbedNorm<'_>,
    out: &mut [f32],
    out_ld: usize,
    bytes: Option<Bytes<'_>>,
) {
    let rows = embed.ids.len();
    let h = embed.affine.hidden();
    assert!(embed.segments.len() == rows && embed.places.len() == rows, "three indices per row");
    assert!(covers(out.len(), rows, out_ld, h), "out is [{rows}, {h}]");
    let bytes = bytes.map(|bytes| Target::new(bytes, rows, h));
    let out = Shared::new(out);
    share_out(pool, rows, h, &|rows| dispatch(isa, Rows { embed, rows, out, out_ld, bytes }));
}

struct Rows<'a> {
    embed: &'a EmbedNorm<'a>,
    rows: std::ops::Range<usize>,
    out: Shared<f32>,
    out_ld: usize,
    bytes: Option<Target<'a>>,
}

impl Kernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let EmbedNorm { words, types, positions, ids, segments, places, affine } = self.embed;
        let h = affine.gamma.len();
        for row in self.rows {
            let word = words.row(h, ids[row]);
            let kind = types.row(h, segments[row]);
            let position = positions.row(h, places[row]);
            // SAFETY: the output has this row, and it is this task's alone.
            unsafe {
                let out = self.out.at(row * self.out_ld);
                // The original's order: word, plus segment, plus position.
                let sum = gather(s, out, h, [word, kind, position]);
                affine.normalise(s, out, sum);
                if let Some(bytes) = &self.bytes {
                    bytes.row(s, row, out, h);
                }
            }
        }
    }
}

/// Three tables `[entries, width]` and what is looked up in each: `[t]`.
#[derive(Clone, Copy, Debug)]
pub struct EmbedRows<'a> {
    /// Of words, segments and positions.
    pub tables: [Table<'a>; 3],
    /// Their rows.
    pub indices: [&'a [u32]; 3],
    /// `h`
    pub width: usize,
}

/// `out[i] = words[..] + types[..] + positions[..]` without a norm: `out: [t, out_ld]`.
///
/// # Panics
/// If the extents contradict each other, or an index is outside of its table: the caller has checked
/// them.
pub fn embed_rows_f32(
    pool: &Pool,
    isa: Isa,
    embed: &EmbedRows<'_>,
    out: &mut [f32],
    out_ld: usize,
) {
    let (rows, h) = (embed.indices[0].len(), embed.width);
    assert!(embed.indices.iter().all(|list| list.len() == rows), "three indices per row");
    assert!(covers(out.len(), rows, out_ld, h), "out is [{rows}, {h}]");
    let out = Shared::new(out);
    share_out(pool, rows, h, &|rows| dispatch(isa, Sums { embed, rows, out, out_ld }));
}

struct Sums<'a> {
    embed: &'a EmbedRows<'a>,
    rows: std::ops::Range<usize>,
    out: Shared<f32>,
    out_ld: usize,
}

impl Kernel for Sums<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let EmbedRows { tables, indices, width: h } = *self.embed;
        for row in self.rows {
            let entry = |i: usize| tables[i].row(h, indices[i][row]);
            let terms = [entry(0), entry(1), entry(2)];
            // SAFETY: the output has this row, and it is this task's alone.
            unsafe {
                gather(s, self.out.at(row * self.out_ld), h, terms);
            }
        }
    }
}
