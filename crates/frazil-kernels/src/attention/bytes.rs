//! The same attention with all four operands in bytes: scores and sums of values are products of
//! unsigned bytes (queries, softmax) with signed ones (keys, values), exact in 32 bits.
//!
//! For CPUs that multiply bytes faster than numbers; elsewhere numbers are put on the steps of the
//! bytes, and multiplied as before. Numbers become bytes while they are packed, so nothing is
//! read or written more often than in the other form.

use std::ops::Range;

use super::packed::{PackedAttention, Product, Share, Shared, odd_lines, panels, store_context};
use crate::cpu::Isa;
use crate::gemm::block::Parts;
use crate::gemm::f32::shape;
use crate::math;
use crate::quantize::signed;
use crate::simd::{Kernel, Simd};

/// Steps that operands are put on before they are multiplied.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OperandSteps {
    /// Scale and zero of unsigned bytes.
    pub queries: Option<(f32, u8)>,
    /// Scale of signed bytes.
    pub keys: Option<f32>,
    /// Scale of signed bytes.
    pub values: Option<f32>,
    /// Scale and zero of unsigned bytes.
    pub softmax: Option<(f32, u8)>,
}

/// What all operands are put on.
#[derive(Clone, Copy, Debug)]
pub(super) struct AllSteps {
    queries: (f32, u8),
    keys: f32,
    values: f32,
    /// Its zero is 0.
    softmax: f32,
}

impl OperandSteps {
    /// The steps of all operands, if they can be multiplied as bytes, and that is the faster way;
    /// `scale` is that of the scores.
    pub(super) fn all(&self, isa: Isa, scale: f32) -> Option<AllSteps> {
        if !matches!(isa, Isa::Scalar | Isa::Avx512Vnni) || scale <= 0.0 {
            return None;
        }
        let (softmax, 0) = self.softmax? else { return None };
        let (queries, keys, values) = (self.queries?, self.keys?, self.values?);
        Some(AllSteps { queries, keys, values, softmax })
    }
}

/// Where everything lies in the scratch of a task, in units of 32 bits, each on a cache line of its
/// own.
pub(super) struct Layout {
    corrections: usize,
    values: usize,
    scores: usize,
    scores_ld: usize,
    queries: usize,
    queries_ld: usize,
    weights: usize,
    weights_ld: usize,
    context: usize,
    context_ld: usize,
    pub(super) end: usize,
}

impl Layout {
    pub(super) fn new(lanes: usize, d: usize, keys: usize) -> Self {
        let wide = |n: usize| n.next_multiple_of(lanes);
        let lines = |n: usize| n.next_multiple_of(16);
        let rows = shape(lanes).rows;
        let corrections = lines(wide(keys) * d.div_ceil(4));
        let values = corrections + lines(wide(keys));
        let scores = values + lines(keys.div_ceil(4) * wide(d));
        let (scores_ld, context_ld) = (odd_lines(wide(keys)), lines(wide(d)));
        let queries = scores + rows * scores_ld;
        let queries_ld = lines(d.div_ceil(4));
        let weights = queries + rows * queries_ld;
        // Bytes are written by vectors of numbers.
        let weights_ld = odd_lines(wide(keys).div_ceil(4));
        let context = weights + rows * weights_ld;
        let end = context + rows * context_ld;
        Self {
            corrections,
            values,
            scores,
            scores_ld,
            queries,
            queries_ld,
            weights,
            weights_ld,
            context,
            context_ld,
            end,
        }
    }
}

/// What one call works on.
pub(super) struct Task<'a> {
    pub(super) shared: &'a Shared<'a>,
    pub(super) steps: AllSteps,
    pub(super) this: Share,
    pub(super) scratch: &'a mut [f32],
}

impl Kernel for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let &Shared { attention, ref tiles, .. } = self.shared;
        let &PackedAttention { size: d, q_ld, .. } = attention;
        let Share { head, ref queries, keys: ref slots } = self.this;
        let column = head * d;
        let AllSteps { queries: (q_scale, q_zero), keys: k_scale, values: v_scale, softmax } =
            self.steps;
        let keys = slots.len();
        let layout = Layout::new(S::LANES, d, keys);
        let start = self.scratch.as_ptr().align_offset(64).min(15);
        let scratch = &mut self.scratch[start..][..layout.end];
        let base = scratch.as_mut_ptr();
        let (score_vectors, value_vectors) = (keys.div_ceil(S::LANES), d.div_ceil(S::LANES));
        // SAFETY: `check` has compared all extents with the slices; the layout lies in the scratch.
        unsafe {
            let corrections = base.add(layout.corrections).cast::<i32>();
            let (packed_keys, packed_values) = (base, base.add(layout.values));
            let (scores, context) = (base.add(layout.scores), base.add(layout.context));
            let (bytes, weights) = (base.add(layout.queries), base.add(layout.weights));
            s.call(PackKeys {
                attention,
                slots: slots.clone(),
                column,
                steps: 1.0 / k_scale,
                zero: q_zero,
                to: packed_keys.cast(),
                corrections,
            });
            s.call(PackValues {
                attention,
                slots: slots.clone(),
                column,
                steps: 1.0 / v_scale,
                to: packed_values.cast(),
            });
            let blocks = Parts::new(queries.len(), queries.len().div_ceil(shape(S::LANES).rows));
            for block in blocks.all() {
                let rows = block.len();
                let row = queries.start + block.start;
                s.call(PackQueries {
                    from: attention.q.as_ptr().add(row * q_ld + column),
                    from_ld: q_ld,
                    rows,
                    d,
                    steps: (1.0 / q_scale, q_zero),
                    to: bytes.cast(),
                    to_ld: 4 * layout.queries_ld,
                });
                Product {
                    a: bytes,
                    lda: layout.queries_ld,
                    b: packed_keys,
                    k: d / 4,
                    c: scores,
                    ldc: layout.scores_ld,
                    vectors: score_vectors,
                    add: false,
                }
                .run(tiles, S::LANES, rows);
                // Powers of two from here on: 2^(x log₂ e) is e^x.
                let scale = q_scale * k_scale * attention.scale * std::f32::consts::LOG2_E;
                s.call(Softmax {
                    scores,
                    ld: layout.scores_ld,
                    rows,
                    keys,
                    corrections,
                    scale,
                    steps: 1.0 / softmax,
                    to: weights.cast(),
                    to_ld: 4 * layout.weights_ld,
                });
                Product {
                    a: weights,
                    lda: layout.weights_ld,
                    b: packed_values,
                    k: keys.div_ceil(4),
                    c: context,
                    ldc: layout.context_ld,
                    vectors: value_vectors,
                    add: false,
                }
                .run(tiles, S::LANES, rows);
                let scale = s.splat(softmax * v_scale);
                for i in 0..rows {
                    let from = context.add(i * layout.context_ld);
                    for c in (0..d).step_by(S::LANES) {
                        let x = s.mul(s.to_f32(s.load_i32(from.add(c).cast())), scale);
                        store_context(s, self.shared, row + i, column + c, x, d - c);
                    }
                }
            }
        }
    }
}

/// Rows of queries as bytes.
struct PackQueries {
    from: *const f32,
    from_ld: usize,
    rows: usize,
    d: usize,
    /// For 1, and the byte for 0.
    steps: (f32, u8),
    to: *mut u8,
    to_ld: usize,
}

impl Kernel for PackQueries {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { from, from_ld, rows, d, steps: (steps, zero), to, to_ld } = self;
        let (steps, zero) = (s.splat(steps), s.splat(f32::from(zero)));
        for row in 0..rows {
            for c in (0..d).step_by(S::LANES) {
                // SAFETY: there are so many rows of d numbers, and room for as many bytes.
                unsafe {
                    let x = s.load_first(from.add(row * from_ld + c), d - c);
                    let q = s.min(s.splat(255.0), s.fma(x, steps, zero));
                    s.store_first_u8(to.add(row * to_ld + c), s.to_i32(q), d - c);
                }
            }
        }
    }
}

/// Keys as columns: [`panels`] of vectors of keys, `[d / 4, keys of the panel]` of four bytes each, and
/// what takes the zero of the queries out of each key's sums. Lanes beyond the last key repeat it,
/// so that the largest score stays the largest.
struct PackKeys<'a> {
    attention: &'a PackedAttention<'a>,
    slots: Range<usize>,
    column: usize,
    steps: f32,
    zero: u8,
    to: *mut i32,
    corrections: *mut i32,
}

impl Kernel for PackKeys<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { attention, slots, column, steps, zero, to, corrections } = self;
        let (steps, zero) = (s.splat(steps), s.splat_i32(-i32::from(zero)));
        let d = attention.size;
        let keys = slots.len();
        for panel in panels(S::LANES, keys.div_ceil(S::LANES)).all() {
            let width = panel.len() * S::LANES;
            for vector in panel.clone() {
                let mut rows = attention.key_rows_at::<S>(
                    (attention.k, attention.k_ld),
                    &slots,
                    vector,
                    column,
                );
                let mut sums = s.splat_i32(0);
                // SAFETY: a row has d numbers; the panels lie one after the other, d / 4 · LANES for a
                // vector.
                unsafe {
                    let mut to = to
                        .add(panel.start * S::LANES * (d / 4) + (vector - panel.start) * S::LANES);
                    for _ in 0..d / 4 {
                        let x = s.load_columns(&rows);
                        let mut bytes = [s.splat_i32(0); 4];
                        for i in 0..4 {
                            bytes[i] = signed(s, x[i], steps);
                            sums = s.add_i32(sums, bytes[i]);
                        }
                        s.store_i32(to, s.pack_bytes(bytes));
                        to = to.add(width);
                        rows = rows.map(|row| row.wrapping_add(4));
                    }
                    s.store_i32(corrections.add(vector * S::LANES), s.mul_i32(sums, zero));
                }
            }
        }
    }
}

/// Values next to each other: [`panels`] of vectors of columns, `[keys / 4, columns of the panel]`, each
/// with the bytes of four keys; zeros beyond the last key and the last column.
struct PackValues<'a> {
    attention: &'a PackedAttention<'a>,
    slots: Range<usize>,
    column: usize,
    steps: f32,
    to: *mut i32,
}

impl Kernel for PackValues<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { attention, slots, column, steps, to } = self;
        let steps = s.splat(steps);
        let d = attention.size;
        let fours = slots.len().div_ceil(4);
        for panel in panels(S::LANES, d.div_ceil(S::LANES)).all() {
            let width = panel.len() * S::LANES;
            for four in 0..fours {
                for vector in panel.clone() {
                    let c = vector * S::LANES;
                    let at =
                        panel.start * S::LANES * fours + four * width + c - panel.start * S::LANES;
                    let mut bytes = [s.splat_i32(0); 4];
                    for (i, slot) in slots.clone().skip(4 * four).take(4).enumerate() {
                        let row = attention.key_row(slot) * attention.v_ld + column;
                        // SAFETY: `check` has compared the rows with the slice; a row has d numbers.
                        let x = unsafe { s.load_first(attention.v.as_ptr().add(row + c), d - c) };
                        bytes[i] = signed(s, x, steps);
                    }
                    // SAFETY: the panels lie one after the other.
                    unsafe { s.store_i32(to.add(at), s.pack_bytes(bytes)) };
                }
            }
        }
    }
}

/// The softmax of sums of bytes, as bytes: `to[i] = 2^(x - largest) / Σ · steps` for each row, with
/// `x = (scores + corrections) · scale`, where the scale is positive; zeros up to four keys beyond the
/// last.
struct Softmax {
    scores: *mut f32,
    ld: usize,
    rows: usize,
    keys: usize,
    corrections: *const i32,
    scale: f32,
    steps: f32,
    to: *mut u8,
    to_ld: usize,
}

impl Kernel for Softmax {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { scores, ld, rows, keys, corrections, scale, steps, to, to_ld } = self;
        let scale = s.splat(scale);
        let Some(last) = keys.checked_sub(1).map(|last| last / S::LANES) else { return };
        let mut largest = [0.0; 16];
        // SAFETY: each row has the scores of all keys, filled up to whole vectors, and room for as many
        // bytes; there are as many corrections.
        unsafe {
            // First all rows, then again all rows: what follows in a row has to wait for its largest
            // score, and while it does, the next rows can go on.
            for (i, largest) in largest.iter_mut().enumerate().take(rows) {
                let row = scores.add(i * ld).cast::<i32>();
                let mut most = s.splat_i32(i32::MIN);
                for c in (0..=last).map(|vector| vector * S::LANES) {
                    let sum = s.add_i32(s.load_i32(row.add(c)), s.load_i32(corrections.add(c)));
                    most = s.max_i32(most, sum);
                }
                *largest = s.largest(s.mul(s.to_f32(most), scale));
            }
            let ones = [1.0; 16];
            let tail = s.load_first(ones.as_ptr(), keys - last * S::LANES);
            for (i, &largest) in largest.iter().enumerate().take(rows) {
                let row = scores.add(i * ld);
                let least = s.splat(-largest);
                let mut sum = s.splat(0.0);
                for c in (0..=last).map(|vector| vector * S::LANES) {
                    let x = s.load_i32(row.add(c).cast());
                    let x = s.to_f32(s.add_i32(x, s.load_i32(corrections.add(c))));
                    let mut power = math::exp2_nearly(s, s.fma(x, scale, least));
                    if c == last * S::LANES {
                        power = s.mul(power, tail);
                    }
                    s.store(row.add(c), power);
                    sum = s.add(sum, power);
                }
                let steps = s.splat(steps / s.sum(sum));
                let to = to.add(i * to_ld);
                (keys..keys.next_multiple_of(4)).for_each(|key| to.add(key).write(0));
                for c in (0..=last).map(|vector| vector * S::LANES) {
                    let q = s.mul(s.load(row.add(c)), steps);
                    s.store_first_u8(to.add(c), s.to_i32(q), S::LANES);
                }
            }
        }
    }
}
