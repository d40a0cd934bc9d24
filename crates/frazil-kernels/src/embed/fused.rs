//! The input layer in one pass over packed rows: three lookups, their sum, and its normalisation.

use crate::cpu::Isa;
use crate::norm::{Affine, gather};
use crate::par::Pool;
use crate::quantize::{Bytes, Target};
use crate::rows::{Shared, covers, share_out};
use crate::simd::{Kernel, Simd, dispatch};

/// The tables, each `[entries, h]`, what is looked up in them, and the normalisation of the sum.
#[derive(Clone, Copy, Debug)]
pub struct EmbedNorm<'a> {
    /// `[v, h]`
    pub words: &'a [f32],
    /// `[types, h]`
    pub types: &'a [f32],
    /// `[positions, h]`
    pub positions: &'a [f32],
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
    bytes: Option<Target>,
}

impl Kernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let EmbedNorm { words, types, positions, ids, segments, places, affine } = self.embed;
        let h = affine.gamma.len();
        let entry = |table: &[f32], i: u32| table[i as usize * h..][..h].as_ptr();
        for row in self.rows {
            let word = entry(words, ids[row]);
            let kind = entry(types, segments[row]);
            let position = entry(positions, places[row]);
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
