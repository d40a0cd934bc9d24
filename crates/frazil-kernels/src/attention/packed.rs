//! Attention over packed sequences, fused: one task takes one head of one sequence from its
//! queries, keys and values to its share of the output, and the scores never leave the cache.
//!
//! Rows of different sequences lie one after the other; a sequence's queries see its own keys, and
//! there is no mask. Keys are put into columns and values next to each other first, in scratch;
//! then blocks of queries go through scores, softmax and the sum of values, by the tiles of
//! [`gemm::f32`](crate::gemm::f32). The division by the sum comes last.
//!
//! Rows should begin at cache lines: else every vector of values is two reads.

use std::ops::Range;

use super::bytes::{self, OperandSteps};
use crate::cpu::Isa;
use crate::dropout::{Chance, Dropout};
use crate::gemm::Output;
use crate::gemm::block::Parts;
use crate::gemm::epilogue::Steps;
use crate::gemm::f32::{shape, tiles};
use crate::gemm::i8::tiles as byte_tiles;
use crate::gemm::tile::{Table, Tile};
use crate::math;
use crate::par::{PerWorker, Pool};
use crate::quantize::signed;
use crate::rows::covers;
use crate::simd::{Kernel, Simd, dispatch};

/// The rows of one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Rows of `q`, and of the output.
    pub queries: Range<usize>,
    /// Slots of the keys and values that the queries see.
    pub keys: Range<usize>,
}

/// Attention of many heads over packed rows: see [`packed_attention_f32`].
#[derive(Clone, Copy, Debug)]
pub struct PackedAttention<'a> {
    /// Heads: `n`.
    pub heads: usize,
    /// Numbers of one head, a multiple of 8: `d`.
    pub size: usize,
    /// Scores are multiplied by this: `1 / √d`.
    pub scale: f32,
    /// What operands are put on before they are multiplied.
    pub steps: OperandSteps,
    /// `[rows, q_ld]`, of which the first `n·d` columns count.
    pub q: &'a [f32],
    /// From row to row of `q`.
    pub q_ld: usize,
    /// `[rows, k_ld]`, of which the first `n·d` columns count.
    pub k: &'a [f32],
    /// From row to row of `k`.
    pub k_ld: usize,
    /// `[rows, v_ld]`, of which the first `n·d` columns count.
    pub v: &'a [f32],
    /// From row to row of `v`.
    pub v_ld: usize,
    /// Their queries ascend and do not overlap.
    pub sequences: &'a [Sequence],
    /// The row of `k` and `v` for each slot; without it, slots are rows.
    pub key_rows: Option<&'a [u32]>,
}

/// Vectors of columns, cut into panels that a tile can take.
pub(super) fn panels(lanes: usize, vectors: usize) -> Parts {
    Parts::new(vectors, vectors.div_ceil(shape(lanes).vectors))
}

/// An odd number of cache lines for `n` numbers, so that rows do not fight for places in the cache.
pub(super) const fn odd_lines(n: usize) -> usize {
    (n.div_ceil(16) | 1) * 16
}

/// Where everything lies in the scratch of a task, in numbers, each on a cache line of its own.
struct Layout {
    values: usize,
    scores: usize,
    scores_ld: usize,
    context: usize,
    context_ld: usize,
    /// Rows of queries that were put on steps, as far apart as those of the context.
    queries: usize,
    factors: usize,
    end: usize,
}

impl Layout {
    fn new(lanes: usize, d: usize, keys: usize) -> Self {
        let wide = |n: usize| n.next_multiple_of(lanes);
        let lines = |n: usize| n.next_multiple_of(16);
        let values = lines(wide(keys) * d);
        let scores = values + lines(keys * wide(d));
        let (scores_ld, context_ld) = (odd_lines(wide(keys)), lines(wide(d)));
        let rows = shape(lanes).rows;
        let context = scores + rows * scores_ld;
        let queries = context + rows * context_ld;
        let factors = queries + rows * context_ld;
        let end = factors + 16;
        Self { values, scores, scores_ld, context, context_ld, queries, factors, end }
    }
}

/// Numbers of scratch that each worker needs for sequences of at most `keys` keys.
pub fn scratch_len(isa: Isa, d: usize, keys: usize) -> usize {
    let lanes = isa.lanes();
    // One more cache line, to begin at one.
    Layout::new(lanes, d, keys).end.max(bytes::Layout::new(lanes, d, keys).end) + 16
}

/// For every sequence and head: `out = softmax(q · kᵀ · scale) · v`, as
/// [`attention`](super::attention) does with a mask that ends where the sequence does.
///
/// `out: [rows, out_ld]`, of which the first `n·d` columns of the sequences' queries are written; a
/// sequence without keys gives zeros. `scratch` holds [`scratch_len`] numbers for each worker.
///
/// # Panics
/// If the extents contradict each other, or a head's size is not a multiple of 8.
pub fn packed_attention_f32(
    pool: &Pool,
    isa: Isa,
    attention: &PackedAttention<'_>,
    out: Output<'_>,
    out_ld: usize,
    scratch: &mut [f32],
) {
    dropped_attention_f32(pool, isa, attention, None, out, out_ld, scratch);
}

/// The same; probabilities go through dropout first, if that is wanted.
///
/// # Panics
/// As [`packed_attention_f32`], and if `dropout` has fewer places than there are rows.
pub fn dropped_attention_f32(
    pool: &Pool,
    isa: Isa,
    attention: &PackedAttention<'_>,
    dropout: Option<&PackedDropout<'_>>,
    out: Output<'_>,
    out_ld: usize,
    scratch: &mut [f32],
) {
    attention.check();
    if let Some(dropout) = dropout {
        dropout.check(attention);
    }
    let &PackedAttention { heads, size: d, sequences, .. } = attention;
    let rows = sequences.last().map_or(0, |last| last.queries.end);
    let (target, len) = match out {
        Output::F32(out) => (Target::F32(out.as_mut_ptr()), out.len()),
        Output::U8 { out, scale, zero, factors } => {
            (Target::U8(Steps::new(out, (scale, zero), factors, heads * d)), out.len())
        }
    };
    assert!(covers(len, rows, out_ld, heads * d), "out is [{rows}, {out_ld}]");
    let longest = sequences.iter().map(|sequence| sequence.keys.len()).max().unwrap_or(0);
    let needed = scratch_len(isa, d, longest);
    assert!(scratch.len() >= pool.threads() * needed, "{needed} numbers of scratch per worker");
    // A few long sequences are shared out by queries as well, though keys are then packed again.
    let queries = sequences.iter().map(|sequence| sequence.queries.len()).max().unwrap_or(0);
    let tasks = sequences.len() * heads;
    let most = (queries / (2 * shape(isa.lanes()).rows)).max(1);
    let even = |parts: &usize| (tasks * parts).is_multiple_of(pool.threads());
    let enough = (4 * pool.threads()).div_ceil(tasks.max(1)).min(most);
    let parts =
        if tasks >= 4 * pool.threads() { 1 } else { (1..=enough).find(even).unwrap_or(enough) };
    // Bytes have no dropout.
    let all_steps = attention.steps.all(isa, attention.scale).filter(|_| dropout.is_none());
    let tiles = if all_steps.is_some() { byte_tiles(isa) } else { tiles(isa) };
    let shared = Shared { attention, dropout, target, out_ld, tiles };
    let scratch = PerWorker::new(pool, scratch);
    let share = |task: usize| {
        let Sequence { queries, keys } = &sequences[task / (heads * parts)];
        let part = |part: usize| queries.start + queries.len() * part / parts;
        let queries = part(task % parts)..part(task % parts + 1);
        Share { head: task / parts % heads, queries, keys: keys.clone() }
    };
    pool.run(tasks * parts, &|task, worker| {
        let this = share(task);
        if this.queries.is_empty() {
            return;
        }
        // Fetching the next head's rows meanwhile was tried: 2 to 10% slower.
        let shared = &shared;
        scratch.with(worker, |scratch| match all_steps {
            Some(steps) => dispatch(isa, bytes::Task { shared, steps, this, scratch }),
            None => dispatch(isa, Task { shared, this, scratch }),
        });
    });
}

/// One head of some queries of one sequence.
pub(super) struct Share {
    pub(super) head: usize,
    pub(super) queries: Range<usize>,
    pub(super) keys: Range<usize>,
}

/// Dropout of the probabilities of a [`PackedAttention`].
#[derive(Clone, Copy, Debug)]
pub struct PackedDropout<'a> {
    /// How.
    pub dropout: Dropout,
    /// The place of each row of `q`.
    pub queries: &'a [u32],
    /// The column of each slot: where its key stands in its sequence.
    pub keys: &'a [i32],
}

impl PackedDropout<'_> {
    pub(super) fn check(&self, attention: &PackedAttention<'_>) {
        let rows = attention.sequences.last().map_or(0, |last| last.queries.end);
        let slots = attention.sequences.iter().map(|sequence| sequence.keys.end).max().unwrap_or(0);
        assert!(self.queries.len() >= rows, "a place for each of {rows} queries");
        assert!(self.keys.len() >= slots, "a column for each of {slots} slots");
    }
}

/// What goes of the probabilities of some queries' head.
pub(super) struct Drop<'a> {
    pub(super) dropout: &'a PackedDropout<'a>,
    pub(super) queries: Range<usize>,
    pub(super) slots: Range<usize>,
    pub(super) head: usize,
}

impl Drop<'_> {
    /// Of query `i`.
    #[inline(always)]
    pub(super) fn row(&self, i: usize) -> Chance {
        let place = self.dropout.queries[self.queries.start + i];
        self.dropout.dropout.row(place, self.head as u32)
    }

    /// What a vector of probabilities is multiplied by, from key `at` of the sequence on.
    /// # Safety
    /// There is such a key.
    #[inline(always)]
    pub(super) unsafe fn factors<S: Simd>(&self, s: S, chance: Chance, at: usize) -> S::F32 {
        let (columns, left) = (&self.dropout.keys[self.slots.clone()], self.slots.len() - at);
        // SAFETY: the caller's promise. Bits are loaded as numbers, of which no lane is looked at.
        let columns = unsafe { s.load_first(columns.as_ptr().add(at).cast(), left) };
        chance.factors(s, s.bits(columns), self.dropout.dropout.factor() as f32)
    }
}

impl PackedAttention<'_> {
    /// Rows of keys and values that slots point to.
    pub(super) fn key_row_count(&self) -> usize {
        let slots = self.sequences.iter().map(|sequence| sequence.keys.end).max().unwrap_or(0);
        self.key_rows.map_or(slots, |rows| {
            assert!(slots <= rows.len(), "a row for each of {slots} slots");
            rows[..slots].iter().max().map_or(0, |&row| row as usize + 1)
        })
    }

    pub(super) fn check(&self) {
        let &Self { heads, size, sequences, .. } = self;
        assert!(size.is_multiple_of(8), "a head has a multiple of 8 numbers, not {size}");
        let mut row = 0;
        for Sequence { queries, keys } in sequences {
            assert!(row <= queries.start, "queries ascend and do not overlap");
            assert!(queries.start <= queries.end && keys.start <= keys.end, "ranges ascend");
            row = queries.end;
        }
        let keys = self.key_row_count();
        assert!(covers(self.q.len(), row, self.q_ld, heads * size), "q is [{row}, n·d]");
        assert!(covers(self.k.len(), keys, self.k_ld, heads * size), "k is [{keys}, n·d]");
        assert!(covers(self.v.len(), keys, self.v_ld, heads * size), "v is [{keys}, n·d]");
    }
}

/// The output for several threads, each of which writes other rows or columns.
#[derive(Clone, Copy)]
enum Target {
    F32(*mut f32),
    U8(Steps),
}

/// What all tasks see.
pub(super) struct Shared<'a> {
    pub(super) attention: &'a PackedAttention<'a>,
    dropout: Option<&'a PackedDropout<'a>>,
    target: Target,
    out_ld: usize,
    pub(super) tiles: Table,
}

// SAFETY: the tasks write disjoint parts of the target: queries do not overlap, nor do heads.
unsafe impl Sync for Shared<'_> {}

/// What one call works on.
struct Task<'a> {
    shared: &'a Shared<'a>,
    this: Share,
    scratch: &'a mut [f32],
}

impl Kernel for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let &Shared { attention, dropout, ref tiles, .. } = self.shared;
        let &PackedAttention { size: d, q_ld, k, k_ld, v, v_ld, .. } = attention;
        let Share { head, ref queries, keys: ref slots } = self.this;
        let column = head * d;
        let keys = slots.len();
        let layout = Layout::new(S::LANES, d, keys);
        let start = self.scratch.as_ptr().align_offset(64).min(15);
        let scratch = &mut self.scratch[start..][..layout.end];
        let base = scratch.as_mut_ptr();
        let (score_vectors, value_vectors) = (keys.div_ceil(S::LANES), d.div_ceil(S::LANES));
        // SAFETY: `check` has compared all extents with the slices; the layout lies in the scratch.
        unsafe {
            let (packed_keys, packed_values) = (base, base.add(layout.values));
            let (scores, context) = (base.add(layout.scores), base.add(layout.context));
            let inverse = base.add(layout.factors);
            let (of_keys, of_values) = (slots.clone(), slots.clone());
            let to = packed_keys;
            s.call(PackKeys { x: k, ld: k_ld, attention, slots: of_keys, column, to });
            let to = packed_values;
            s.call(PackValues { x: v, ld: v_ld, attention, slots: of_values, column, to });
            let blocks = Parts::new(queries.len(), queries.len().div_ceil(shape(S::LANES).rows));
            for block in blocks.all() {
                let rows = block.len();
                let row = queries.start + block.start;
                let (mut q, mut q_ld) = (attention.q.as_ptr().add(row * q_ld + column), q_ld);
                if let Some(steps) = attention.steps.queries {
                    let (to, to_ld) = (base.add(layout.queries), layout.context_ld);
                    s.call(PutQueries { from: q, from_ld: q_ld, rows, d, steps, to, to_ld });
                    (q, q_ld) = (to, to_ld);
                }
                Product {
                    a: q,
                    lda: q_ld,
                    b: packed_keys,
                    k: d,
                    c: scores,
                    ldc: layout.scores_ld,
                    vectors: score_vectors,
                    add: false,
                }
                .run(tiles, S::LANES, rows);
                // Powers of two from here on: 2^(x log₂ e) is e^x.
                let scale = attention.scale * std::f32::consts::LOG2_E;
                s.call(Softmax { scores, ld: layout.scores_ld, rows, keys, scale, inverse });
                if let Some(steps) = attention.steps.softmax {
                    s.call(OnSteps { scores, ld: layout.scores_ld, rows, keys, steps, inverse });
                }
                if let Some(dropout) = dropout {
                    let (queries, slots) = (row..row + rows, slots.clone());
                    let drop = Drop { dropout, queries, slots, head };
                    s.call(Thin { scores, ld: layout.scores_ld, rows, drop });
                }
                Product {
                    a: scores,
                    lda: layout.scores_ld,
                    b: packed_values,
                    k: keys,
                    c: context,
                    ldc: layout.context_ld,
                    vectors: value_vectors,
                    add: false,
                }
                .run(tiles, S::LANES, rows);
                for i in 0..rows {
                    let from = context.add(i * layout.context_ld);
                    let inverse = s.splat(*inverse.add(i));
                    for c in (0..d).step_by(S::LANES) {
                        let x = s.mul(s.load(from.add(c)), inverse);
                        store_context(s, self.shared, row + i, column + c, x, d - c);
                    }
                }
            }
        }
    }
}

/// Writes the first `n` numbers, or a vector if that is less, from `column` of a row of the output on.
/// # Safety
/// They lie within the output, and are this task's alone.
#[inline(always)]
pub(super) unsafe fn store_context<S: Simd>(
    s: S,
    shared: &Shared<'_>,
    row: usize,
    column: usize,
    x: S::F32,
    n: usize,
) {
    let at = row * shared.out_ld + column;
    // SAFETY: the caller's promise.
    unsafe {
        match shared.target {
            Target::F32(out) if n >= S::LANES => s.store(out.add(at), x),
            Target::F32(out) => s.store_first(out.add(at), x, n),
            Target::U8(steps) => steps.store(s, at, column, x, n.min(S::LANES)),
        }
    }
}

impl PackedAttention<'_> {
    /// The row of `k` and `v` for a slot.
    #[inline(always)]
    pub(super) fn key_row(&self, slot: usize) -> usize {
        self.key_rows.map_or(slot, |rows| rows[slot] as usize)
    }

    /// Where the head of each of a vector of rows of `x` begins; the last one again beyond it.
    #[inline(always)]
    pub(super) fn key_rows_at<S: Simd>(
        &self,
        (x, ld): (&[f32], usize),
        slots: &Range<usize>,
        vector: usize,
        column: usize,
    ) -> [*const f32; 16] {
        let mut rows = [x.as_ptr(); 16];
        for (lane, row) in rows.iter_mut().enumerate().take(S::LANES) {
            let slot = slots.start + (vector * S::LANES + lane).min(slots.len() - 1);
            // SAFETY: `check` has compared the rows with the slice.
            *row = unsafe { row.add(self.key_row(slot) * ld + column) };
        }
        rows
    }
}

/// Rows of queries on steps.
struct PutQueries {
    from: *const f32,
    from_ld: usize,
    rows: usize,
    d: usize,
    /// Scale and zero.
    steps: (f32, u8),
    to: *mut f32,
    to_ld: usize,
}

impl Kernel for PutQueries {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { from, from_ld, rows, d, steps: (scale, zero), to, to_ld } = self;
        let (steps, scale) = (s.splat(1.0 / scale), s.splat(scale));
        let zero = s.splat(f32::from(zero));
        for row in 0..rows {
            for c in (0..d).step_by(S::LANES) {
                // SAFETY: there are so many rows of d numbers, and room for as many.
                unsafe {
                    let x = s.load_first(from.add(row * from_ld + c), d - c);
                    let q = s.round(s.fma(x, steps, zero));
                    let q = s.max(s.splat(0.0), s.min(s.splat(255.0), q));
                    let x = s.mul(s.sub(q, zero), scale);
                    s.store_first(to.add(row * to_ld + c), x, d - c);
                }
            }
        }
    }
}

/// Of signed bytes, if there are some: how many steps for 1, and what one stands for.
#[inline(always)]
#[allow(clippy::manual_map, reason = "a closure on vectors may become a function of its own")]
fn signed_steps<S: Simd>(s: S, scale: Option<f32>) -> Option<(S::F32, S::F32)> {
    match scale {
        None => None,
        Some(scale) => Some((s.splat(1.0 / scale), s.splat(scale))),
    }
}

/// Numbers on the steps of signed bytes, if there are some.
#[inline(always)]
fn on_signed_steps<S: Simd>(s: S, x: S::F32, steps: Option<(S::F32, S::F32)>) -> S::F32 {
    match steps {
        None => x,
        Some((steps, scale)) => s.mul(s.to_f32(signed(s, x, steps)), scale),
    }
}

/// Keys as columns: [`panels`] of vectors of keys, `[d, keys of the panel]`.
/// Lanes beyond the last key repeat it, so that the largest score stays the largest.
pub(super) struct PackKeys<'a> {
    pub(super) x: &'a [f32],
    pub(super) ld: usize,
    /// For the rows of slots.
    pub(super) attention: &'a PackedAttention<'a>,
    pub(super) slots: Range<usize>,
    pub(super) column: usize,
    pub(super) to: *mut f32,
}

impl Kernel for PackKeys<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { x, ld, attention, slots, column, to } = self;
        let d = attention.size;
        let keys = slots.len();
        let steps = signed_steps(s, attention.steps.keys);
        for panel in panels(S::LANES, keys.div_ceil(S::LANES)).all() {
            let width = panel.len() * S::LANES;
            for vector in panel.clone() {
                let mut rows = attention.key_rows_at::<S>((x, ld), &slots, vector, column);
                // SAFETY: a row has d numbers; the panels lie one after the other, d·LANES for a
                // vector.
                unsafe {
                    let mut to =
                        to.add(panel.start * S::LANES * d + (vector - panel.start) * S::LANES);
                    for _ in 0..d / 4 {
                        for x in s.load_columns(&rows) {
                            s.store(to, on_signed_steps(s, x, steps));
                            to = to.add(width);
                        }
                        rows = rows.map(|row| row.wrapping_add(4));
                    }
                }
            }
        }
    }
}

/// Values next to each other: [`panels`] of vectors of columns, `[keys, columns of the panel]`, with
/// zeros beyond the last column.
pub(super) struct PackValues<'a> {
    pub(super) x: &'a [f32],
    pub(super) ld: usize,
    /// For the rows of slots.
    pub(super) attention: &'a PackedAttention<'a>,
    pub(super) slots: Range<usize>,
    pub(super) column: usize,
    pub(super) to: *mut f32,
}

impl Kernel for PackValues<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { x, ld, attention, slots, column, to } = self;
        let d = attention.size;
        let keys = slots.len();
        let steps = signed_steps(s, attention.steps.values);
        for panel in panels(S::LANES, d.div_ceil(S::LANES)).all() {
            let width = panel.len() * S::LANES;
            for (i, slot) in slots.clone().enumerate() {
                let row = attention.key_row(slot) * ld + column;
                for vector in panel.clone() {
                    let c = vector * S::LANES;
                    let at = panel.start * S::LANES * keys + i * width + c - panel.start * S::LANES;
                    // SAFETY: `check` has compared the rows with the slice; a row has d numbers.
                    unsafe {
                        let from = x.as_ptr().add(row + c);
                        let whole = d - c >= S::LANES;
                        let x = if whole { s.load(from) } else { s.load_first(from, d - c) };
                        s.store(to.add(at), on_signed_steps(s, x, steps));
                    }
                }
            }
        }
    }
}

/// `scores[i] = 2^(scores[i] · scale - largest)` for each row, and the inverse of each sum.
pub(super) struct Softmax {
    pub(super) scores: *mut f32,
    pub(super) ld: usize,
    pub(super) rows: usize,
    pub(super) keys: usize,
    pub(super) scale: f32,
    pub(super) inverse: *mut f32,
}

impl Kernel for Softmax {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { scores, ld, rows, keys, scale, inverse } = self;
        let scale = s.splat(scale);
        let Some(last) = keys.checked_sub(1).map(|last| last / S::LANES) else {
            // SAFETY: it takes a number for each row.
            return (0..rows).for_each(|i| unsafe { *inverse.add(i) = 0.0 });
        };
        // SAFETY: each row has the scores of all keys, filled up to whole vectors; `inverse` takes
        // a number for each row.
        unsafe {
            // First all rows, then again all rows: what follows in a row has to wait for its largest
            // score, and while it does, the next rows can go on.
            for i in 0..rows {
                let row = scores.add(i * ld);
                let mut largest = s.mul(s.load(row.add(last * S::LANES)), scale);
                for vector in 0..last {
                    largest = s.max(largest, s.mul(s.load(row.add(vector * S::LANES)), scale));
                }
                *inverse.add(i) = s.largest(largest);
            }
            let ones = [1.0; 16];
            let tail = s.load_first(ones.as_ptr(), keys - last * S::LANES);
            for i in 0..rows {
                let row = scores.add(i * ld);
                let down = s.splat(-*inverse.add(i));
                let x = s.fma(s.load(row.add(last * S::LANES)), scale, down);
                let mut sum = s.mul(math::exp2_nearly(s, x), tail);
                s.store(row.add(last * S::LANES), sum);
                for vector in 0..last {
                    let x = s.fma(s.load(row.add(vector * S::LANES)), scale, down);
                    let power = math::exp2_nearly(s, x);
                    s.store(row.add(vector * S::LANES), power);
                    sum = s.add(sum, power);
                }
                *inverse.add(i) = 1.0 / s.sum(sum);
            }
        }
    }
}

/// Puts the weights that [`Softmax`] has left on steps, and makes the inverses 1: nothing is left to
/// be divided.
struct OnSteps {
    scores: *mut f32,
    ld: usize,
    rows: usize,
    keys: usize,
    steps: (f32, u8),
    inverse: *mut f32,
}

impl Kernel for OnSteps {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { scores, ld, rows, keys, steps: (scale, zero), inverse } = self;
        let (steps, zero) = (s.splat(1.0 / scale), s.splat(f32::from(zero)));
        let (scale, top) = (s.splat(scale), s.splat(255.0));
        for i in 0..rows {
            // SAFETY: as for `Softmax`.
            unsafe {
                let row = scores.add(i * ld);
                let whole = s.splat(std::mem::replace(&mut *inverse.add(i), 1.0));
                for c in (0..keys).step_by(S::LANES) {
                    let weight = s.mul(s.load(row.add(c)), whole);
                    // A softmax is never below 0, and its bytes are not either.
                    let q = s.min(top, s.round(s.fma(weight, steps, zero)));
                    s.store(row.add(c), s.mul(s.sub(q, zero), scale));
                }
            }
        }
    }
}

/// Dropout of rows of scores.
struct Thin<'a> {
    scores: *mut f32,
    ld: usize,
    rows: usize,
    drop: Drop<'a>,
}

impl Kernel for Thin<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { scores, ld, rows, drop } = self;
        for i in 0..rows {
            let chance = drop.row(i);
            for at in (0..drop.slots.len()).step_by(S::LANES) {
                // SAFETY: a row has the scores of all keys, in whole vectors.
                unsafe {
                    let to = scores.add(i * ld + at);
                    s.store(to, s.mul(s.load(to), drop.factors(s, chance, at)));
                }
            }
        }
    }
}

/// `c = a · b` for a few rows: `a: [rows, lda]`, of which k columns count, `b`: [`panels`] of vectors
/// of columns, `[k, columns]`; `c: [rows, ldc]`. With the tiles of bytes, a number of `a` or `b` is four
/// of them, and one of `c` a sum of 32 bits.
#[derive(Clone, Copy)]
pub(super) struct Product {
    pub(super) a: *const f32,
    pub(super) lda: usize,
    pub(super) b: *const f32,
    pub(super) k: usize,
    pub(super) c: *mut f32,
    pub(super) ldc: usize,
    pub(super) vectors: usize,
    /// Whether it is added to what is there.
    pub(super) add: bool,
}

impl Product {
    /// # Safety
    /// The addresses have what is said, for so many rows; the tiles are for so many lanes.
    pub(super) unsafe fn run(&self, tiles: &Table, lanes: usize, rows: usize) {
        let bytes = |n: usize| n * size_of::<f32>();
        let a = (self.a.cast(), bytes(self.lda));
        for panel in panels(lanes, self.vectors).all() {
            // SAFETY: the caller's promise.
            unsafe {
                let b = self.b.add(panel.start * lanes * self.k).cast();
                let c = (self.c.add(panel.start * lanes).cast(), bytes(self.ldc));
                let tile = Tile::new(self.k, a, b, c).adding(self.add);
                (tiles[panel.len() - 1][rows - 1])(&tile);
            }
        }
    }
}
