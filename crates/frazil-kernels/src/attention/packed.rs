//! Attention over packed sequences, fused: one task takes one head of one sequence from its
//! queries, keys and values to its share of the output, and the scores never leave the cache.
//!
//! Rows of different sequences lie one after the other; a sequence's queries see its own keys, and
//! there is no mask. Keys are put into columns and values next to each other first, in scratch;
//! then blocks of queries go through scores, softmax and the sum of values, with the tiles of a
//! matrix product in registers. The division by the sum comes last.
//!
//! Measured on one core of a busy Ice Lake Xeon, 12 heads of 64, as a part of its multiply-add peak in
//! the same process: about two thirds with 128 keys, 45% with 29, 25% with 12 (AVX-512); three quarters
//! with 128 keys, 58% with 29 (AVX2). Rows should begin at cache lines: else every vector of values is
//! two reads.

use std::ops::Range;

use crate::cpu::Isa;
use crate::gemm::Output;
use crate::math;
use crate::par::{PerWorker, Pool};
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

/// The most queries that are worked on at once: as many rows as registers hold sums of.
const fn block(lanes: usize) -> usize {
    match lanes {
        16 => 14,
        8 => 6,
        _ => 4,
    }
}

/// An odd number of cache lines for `n` numbers, so that rows do not fight for places in the cache.
const fn odd_lines(n: usize) -> usize {
    (n.div_ceil(16) | 1) * 16
}

/// Where everything lies in the scratch of a task, in numbers, each on a cache line of its own.
struct Layout {
    values: usize,
    scores: usize,
    scores_ld: usize,
    context: usize,
    context_ld: usize,
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
        let context = scores + block(lanes) * scores_ld;
        let factors = context + block(lanes) * context_ld;
        Self { values, scores, scores_ld, context, context_ld, factors, end: factors + 16 }
    }
}

/// Numbers of scratch that each worker needs for sequences of at most `keys` keys.
pub fn scratch_len(isa: Isa, d: usize, keys: usize) -> usize {
    // One more cache line, to begin at one.
    Layout::new(isa.lanes(), d, keys).end + 16
}

/// For every sequence and head: `out = softmax(q · kᵀ · scale) · v`, as
/// [`attention_f32`](super::attention_f32) does with a mask that ends where the sequence does.
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
    attention.check();
    let &PackedAttention { heads, size: d, sequences, .. } = attention;
    let rows = sequences.last().map_or(0, |last| last.queries.end);
    let (target, len) = match out {
        Output::F32(out) => (Target::F32(out.as_mut_ptr()), out.len()),
        Output::U8 { out, scale, zero } => {
            (Target::U8(out.as_mut_ptr(), 1.0 / scale, f32::from(zero)), out.len())
        }
    };
    assert!(covers(len, rows, out_ld, heads * d), "out is [{rows}, {out_ld}]");
    let longest = sequences.iter().map(|sequence| sequence.keys.len()).max().unwrap_or(0);
    let needed = scratch_len(isa, d, longest);
    assert!(scratch.len() >= pool.threads() * needed, "{needed} numbers of scratch per worker");
    // A few long sequences are shared out by queries as well, though keys are then packed again.
    let queries = sequences.iter().map(|sequence| sequence.queries.len()).max().unwrap_or(0);
    let tasks = sequences.len() * heads;
    let most = (queries / (2 * block(isa.lanes()))).max(1);
    let even = |parts: &usize| (tasks * parts).is_multiple_of(pool.threads());
    let enough = (4 * pool.threads()).div_ceil(tasks.max(1)).min(most);
    let parts =
        if tasks >= 4 * pool.threads() { 1 } else { (1..=enough).find(even).unwrap_or(enough) };
    let shared = Shared { attention, target, out_ld };
    let scratch = PerWorker::new(pool, scratch);
    let share = |task: usize| {
        let Sequence { queries, keys } = &sequences[task / (heads * parts)];
        let part = |part: usize| queries.start + queries.len() * part / parts;
        let queries = part(task % parts)..part(task % parts + 1);
        Share { column: task / parts % heads * d, queries, keys: keys.clone() }
    };
    pool.run(tasks * parts, &|task, worker| {
        let this = share(task);
        if this.queries.is_empty() {
            return;
        }
        // Fetching the next head's rows meanwhile was tried: 2 to 10% slower.
        scratch.with(worker, |scratch| dispatch(isa, Task { shared: &shared, this, scratch }));
    });
}

/// One head of some queries of one sequence.
struct Share {
    /// The first one of the head.
    column: usize,
    queries: Range<usize>,
    keys: Range<usize>,
}

impl PackedAttention<'_> {
    fn check(&self) {
        let &Self { heads, size, sequences, .. } = self;
        assert!(size.is_multiple_of(8), "a head has a multiple of 8 numbers, not {size}");
        let (mut row, mut slots) = (0, 0);
        for Sequence { queries, keys } in sequences {
            assert!(row <= queries.start, "queries ascend and do not overlap");
            assert!(queries.start <= queries.end && keys.start <= keys.end, "ranges ascend");
            row = queries.end;
            slots = slots.max(keys.end);
        }
        let keys = self.key_rows.map_or(slots, |rows| {
            assert!(slots <= rows.len(), "a row for each of {slots} slots");
            rows[..slots].iter().max().map_or(0, |&row| row as usize + 1)
        });
        assert!(covers(self.q.len(), row, self.q_ld, heads * size), "q is [{row}, n·d]");
        assert!(covers(self.k.len(), keys, self.k_ld, heads * size), "k is [{keys}, n·d]");
        assert!(covers(self.v.len(), keys, self.v_ld, heads * size), "v is [{keys}, n·d]");
    }
}

/// The output for several threads, each of which writes other rows or columns.
#[derive(Clone, Copy)]
enum Target {
    F32(*mut f32),
    /// Bytes, steps for 1, and the byte for 0.
    U8(*mut u8, f32, f32),
}

/// What all tasks see.
struct Shared<'a> {
    attention: &'a PackedAttention<'a>,
    target: Target,
    out_ld: usize,
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
        let Shared { attention, target, out_ld } = *self.shared;
        let &PackedAttention { size: d, q_ld, .. } = attention;
        let Share { column, ref queries, keys: ref slots } = self.this;
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
            let factors = base.add(layout.factors);
            s.call(PackKeys { attention, slots: slots.clone(), column, to: packed_keys });
            s.call(PackValues { attention, slots: slots.clone(), column, to: packed_values });
            let blocks = queries.len().div_ceil(block(S::LANES));
            for b in 0..blocks {
                let first = queries.len() * b / blocks;
                let rows = queries.len() * (b + 1) / blocks - first;
                let row = queries.start + first;
                // Powers of two from here on: 2^(x log₂ e) is e^x.
                let scale = attention.scale * std::f32::consts::LOG2_E;
                std::slice::from_raw_parts_mut(factors, rows).fill(scale);
                product(
                    s,
                    rows,
                    Product {
                        a: attention.q.as_ptr().add(row * q_ld + column),
                        lda: q_ld,
                        b: packed_keys,
                        k: d,
                        c: scores,
                        ldc: layout.scores_ld,
                        vectors: score_vectors,
                        factors,
                    },
                );
                s.call(Softmax { scores, ld: layout.scores_ld, rows, keys, inverse: factors });
                // Straight to where it belongs, if it comes in whole vectors of f32.
                let direct = match target {
                    Target::F32(out) if d.is_multiple_of(S::LANES) => {
                        Some(out.add(row * out_ld + column))
                    }
                    _ => None,
                };
                product(
                    s,
                    rows,
                    Product {
                        a: scores,
                        lda: layout.scores_ld,
                        b: packed_values,
                        k: keys,
                        c: direct.unwrap_or(context),
                        ldc: if direct.is_some() { out_ld } else { layout.context_ld },
                        vectors: value_vectors,
                        factors,
                    },
                );
                if direct.is_none() {
                    for i in 0..rows {
                        let from = context.add(i * layout.context_ld);
                        let at = (row + i) * out_ld + column;
                        for c in (0..d).step_by(S::LANES) {
                            let x = s.load(from.add(c));
                            match target {
                                Target::F32(out) => s.store_first(out.add(at + c), x, d - c),
                                Target::U8(out, steps, zero) => {
                                    let x = s.fma(x, s.splat(steps), s.splat(zero));
                                    s.store_first_u8(out.add(at + c), s.to_i32(x), d - c);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

impl PackedAttention<'_> {
    /// The row of `k` and `v` for a slot.
    #[inline(always)]
    fn key_row(&self, slot: usize) -> usize {
        self.key_rows.map_or(slot, |rows| rows[slot] as usize)
    }
}

/// Keys as columns: panels of two vectors of keys, or one at the end, `[d, keys of the panel]`.
/// Lanes beyond the last key repeat it, so that the largest score stays the largest.
struct PackKeys<'a> {
    attention: &'a PackedAttention<'a>,
    slots: Range<usize>,
    column: usize,
    to: *mut f32,
}

impl Kernel for PackKeys<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { attention, slots, column, to } = self;
        let d = attention.size;
        let keys = slots.len();
        let vectors = keys.div_ceil(S::LANES);
        for vector in 0..vectors {
            let mut rows = [attention.k.as_ptr(); 16];
            for (lane, row) in rows.iter_mut().enumerate().take(S::LANES) {
                let slot = slots.start + (vector * S::LANES + lane).min(keys - 1);
                // SAFETY: `check` has compared the rows with the slice.
                *row = unsafe { row.add(attention.key_row(slot) * attention.k_ld + column) };
            }
            let panel = vector / 2 * 2;
            let width = (vectors - panel).min(2) * S::LANES;
            // SAFETY: a row has d numbers; the panels lie one after the other, d·LANES for a vector.
            unsafe {
                let mut to = to.add(panel * S::LANES * d + vector % 2 * S::LANES);
                for _ in 0..d / 4 {
                    for x in s.load_columns(&rows) {
                        s.store(to, x);
                        to = to.add(width);
                    }
                    rows = rows.map(|row| row.wrapping_add(4));
                }
            }
        }
    }
}

/// Values next to each other: panels of two vectors of columns, or one at the end, `[keys, columns
/// of the panel]`, with zeros beyond the last column.
struct PackValues<'a> {
    attention: &'a PackedAttention<'a>,
    slots: Range<usize>,
    column: usize,
    to: *mut f32,
}

impl Kernel for PackValues<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { attention, slots, column, to } = self;
        let d = attention.size;
        let keys = slots.len();
        let vectors = d.div_ceil(S::LANES);
        for (i, slot) in slots.enumerate() {
            let row = attention.key_row(slot) * attention.v_ld + column;
            for vector in 0..vectors {
                let panel = vector / 2 * 2;
                let width = (vectors - panel).min(2) * S::LANES;
                let at = panel * S::LANES * keys + i * width + vector % 2 * S::LANES;
                let c = vector * S::LANES;
                // SAFETY: `check` has compared the rows with the slice; a row has d numbers.
                unsafe {
                    let from = attention.v.as_ptr().add(row + c);
                    let whole = d - c >= S::LANES;
                    s.store(
                        to.add(at),
                        if whole { s.load(from) } else { s.load_first(from, d - c) },
                    );
                }
            }
        }
    }
}

/// `scores[i] = 2^(scores[i] - largest)` for each row, and the inverse of each sum.
struct Softmax {
    scores: *mut f32,
    ld: usize,
    rows: usize,
    keys: usize,
    inverse: *mut f32,
}

impl Kernel for Softmax {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if self.keys == 0 {
            return;
        }
        let Self { scores, ld, rows, keys, inverse } = self;
        let last = (keys - 1) / S::LANES;
        // SAFETY: each row has the scores of all keys, filled up to whole vectors; `inverse` takes
        // a number for each row.
        unsafe {
            // First all rows, then again all rows: what follows in a row has to wait for its largest
            // score, and while it does, the next rows can go on.
            for i in 0..rows {
                let row = scores.add(i * ld);
                let mut largest = s.load(row.add(last * S::LANES));
                for vector in 0..last {
                    largest = s.max(largest, s.load(row.add(vector * S::LANES)));
                }
                *inverse.add(i) = s.largest(largest);
            }
            let ones = [1.0; 16];
            let tail = s.load_first(ones.as_ptr(), keys - last * S::LANES);
            for i in 0..rows {
                let row = scores.add(i * ld);
                let largest = s.splat(*inverse.add(i));
                let x = s.sub(s.load(row.add(last * S::LANES)), largest);
                let mut sum = s.mul(math::exp2_nearly(s, x), tail);
                s.store(row.add(last * S::LANES), sum);
                for vector in 0..last {
                    let x = s.sub(s.load(row.add(vector * S::LANES)), largest);
                    let power = math::exp2_nearly(s, x);
                    s.store(row.add(vector * S::LANES), power);
                    sum = s.add(sum, power);
                }
                *inverse.add(i) = 1.0 / s.sum(sum);
            }
        }
    }
}

/// `c[i] = (a · b)[i] · factors[i]` for a few rows: `a: [rows, lda]`, of which k columns count,
/// `b`: panels of two vectors of columns, or one at the end, `[k, columns]`; `c: [rows, ldc]`.
#[derive(Clone, Copy)]
struct Product {
    a: *const f32,
    lda: usize,
    b: *const f32,
    k: usize,
    c: *mut f32,
    ldc: usize,
    vectors: usize,
    factors: *const f32,
}

/// # Safety
/// The addresses have what [`Product`] says, for so many rows.
#[inline(always)]
unsafe fn product<S: Simd>(s: S, rows: usize, product: Product) {
    macro_rules! rows {
        ($($r:literal)*) => {
            match rows {
                $($r => s.call(Rows::<$r>(product)),)*
                _ => unreachable!("a block has at most 14 rows"),
            }
        };
    }
    rows!(1 2 3 4 5 6 7 8 9 10 11 12 13 14)
}

/// So many rows of a [`Product`].
struct Rows<const R: usize>(Product);

impl<const R: usize> Kernel for Rows<R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: the promise of `product`'s caller.
        unsafe {
            let mut p = self.0;
            for _ in 0..p.vectors / 2 {
                tile::<S, R, 2>(s, &p);
                p.b = p.b.add(p.k * 2 * S::LANES);
                p.c = p.c.add(2 * S::LANES);
            }
            if p.vectors % 2 == 1 {
                tile::<S, R, 1>(s, &p);
            }
        }
    }
}

/// One panel of a [`Product`], with all sums in registers.
#[inline(always)]
unsafe fn tile<S: Simd, const R: usize, const V: usize>(s: S, p: &Product) {
    // SAFETY: the promise of `product`'s caller.
    unsafe {
        let mut sums = [[s.splat(0.0); V]; R];
        // An address for every third row: the two after it are one and two strides away, which the
        // instructions can add by themselves. One address per row would need more registers than
        // there are, and adding them up takes the ports that the products need.
        let third = |i: usize| apart(p.a.wrapping_add(3 * i.min(R / 3) * p.lda));
        let mut thirds = [third(0), third(1), third(2), third(3), third(4)];
        let mut b = p.b;
        for _ in 0..p.k / 2 {
            accumulate(s, &mut sums, &thirds, p.lda, 0, b);
            accumulate(s, &mut sums, &thirds, p.lda, 1, b.add(V * S::LANES));
            thirds = thirds.map(|third| apart(third.wrapping_add(2)));
            b = b.add(2 * V * S::LANES);
        }
        if p.k % 2 == 1 {
            accumulate(s, &mut sums, &thirds, p.lda, 0, b);
        }
        for (i, sums) in sums.iter().enumerate() {
            let factor = s.splat(*p.factors.add(i));
            for (v, &sum) in sums.iter().enumerate() {
                s.store(p.c.add(i * p.ldc + v * S::LANES), s.mul(sum, factor));
            }
        }
    }
}

/// One step of the sums: the numbers `step` after the addresses of the rows times a row of `b`.
#[inline(always)]
unsafe fn accumulate<S: Simd, const R: usize, const V: usize>(
    s: S,
    sums: &mut [[S::F32; V]; R],
    thirds: &[*const f32; 5],
    lda: usize,
    step: usize,
    b: *const f32,
) {
    // SAFETY: the promise of `product`'s caller.
    let (first, second) = unsafe { (s.load(b), s.load(b.add((V - 1) * S::LANES))) };
    // Written out: a loop over the rows is not always unrolled, and then the sums live in memory.
    macro_rules! rows {
        ($($i:literal)*) => {$(
            if $i < R {
                // SAFETY: the promise of `product`'s caller.
                let a = s.splat(unsafe { *thirds[$i / 3].add($i % 3 * lda + step) });
                sums[$i][0] = s.fma(a, first, sums[$i][0]);
                if V == 2 {
                    sums[$i][V - 1] = s.fma(a, second, sums[$i][V - 1]);
                }
            }
        )*};
    }
    rows!(0 1 2 3 4 5 6 7 8 9 10 11 12 13);
}

/// The same address, of which the compiler no longer knows how it came about.
#[inline(always)]
#[allow(clippy::pointers_in_nomem_asm_block, reason = "there is no instruction in it")]
fn apart(address: *const f32) -> *const f32 {
    #[cfg(target_arch = "x86_64")]
    {
        let mut address = address;
        // SAFETY: no instruction at all.
        unsafe {
            std::arch::asm!("/* {0} */", inout(reg) address, options(pure, nomem, nostack, preserves_flags));
        }
        address
    }
    #[cfg(not(target_arch = "x86_64"))]
    address
}
