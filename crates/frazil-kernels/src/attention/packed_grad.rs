//! The gradient of attention over packed sequences: one task takes one head of one sequence. Scores
//! are computed again, some queries at a time, and never leave the cache.
//!
//! With P the probabilities and dP their gradient: dV = Pᵀ dY, dP = dY Vᵀ,
//! dS = P (dP - Σ P dP) scale, dQ = dS K, dK = dSᵀ Q, by the tiles of [`gemm::f32`](crate::gemm::f32).

use std::ops::Range;

use super::packed::{Drop, PackKeys, PackValues, Product, Softmax, odd_lines, panels};
use super::{PackedAttention, PackedDropout, Sequence};
use crate::cpu::Isa;
use crate::gemm::block::Parts;
use crate::gemm::f32::{shape, tiles, turn};
use crate::gemm::tile::Table;
use crate::par::{PerWorker, Pool};
use crate::rows::{Shared, covers};
use crate::simd::{Kernel, Simd, dispatch};

/// Where the gradients go: `[rows, ld]` each, with its `ld`, of which the first `n·d` columns are
/// written. Rows of keys and values that no sequence sees become zeros.
#[derive(Debug)]
pub struct PackedGrads<'a> {
    /// As many rows as `q`.
    pub dq: (&'a mut [f32], usize),
    /// As many rows as `k`.
    pub dk: (&'a mut [f32], usize),
    /// As many rows as `v`.
    pub dv: (&'a mut [f32], usize),
    /// How many rows keys and values have.
    pub keys: usize,
}

/// Queries that are taken at a time: their scores stay in the second-level cache.
const QUERIES: usize = 128;

/// Where everything lies in the scratch of a task, in numbers, each on a cache line of its own.
struct Layout {
    /// `[d, keys]` in panels: keys as columns, values as columns.
    value_columns: usize,
    /// `[keys, d]` in panels.
    key_rows: usize,
    /// `[queries, d]` in panels: of q, of dy.
    query_rows: usize,
    dy_rows: usize,
    /// `[queries, scores_ld]`: probabilities, then what dV is made of; dP, then dS.
    p: usize,
    ds: usize,
    scores_ld: usize,
    /// `[keys, turned_ld]`: either of them as columns.
    turned: usize,
    turned_ld: usize,
    /// `[keys, wide]`: sums of dK and dV.
    dk: usize,
    dv: usize,
    /// `[rows, wide]`: dQ of a tile.
    dq: usize,
    wide: usize,
    factors: usize,
    end: usize,
}

impl Layout {
    fn new(lanes: usize, d: usize, queries: usize, keys: usize) -> Self {
        let wide = |n: usize| n.next_multiple_of(lanes);
        let lines = |n: usize| n.next_multiple_of(16);
        let queries = queries.min(QUERIES);
        let (scores_ld, turned_ld) = (odd_lines(wide(keys)), odd_lines(wide(queries)));
        let mut end = 0;
        let mut take = |numbers: usize| {
            let at = end;
            end += lines(numbers);
            at
        };
        take(wide(keys) * d);
        let value_columns = take(wide(keys) * d);
        let key_rows = take(keys * wide(d));
        let query_rows = take(queries * wide(d));
        let dy_rows = take(queries * wide(d));
        let p = take(queries * scores_ld);
        let ds = take(queries * scores_ld);
        let turned = take(keys * turned_ld);
        let dk = take(keys * wide(d));
        let dv = take(keys * wide(d));
        let dq = take(shape(lanes).rows * wide(d));
        let factors = take(16);
        Self {
            value_columns,
            key_rows,
            query_rows,
            dy_rows,
            p,
            ds,
            scores_ld,
            turned,
            turned_ld,
            dk,
            dv,
            dq,
            wide: wide(d),
            factors,
            end,
        }
    }
}

/// Numbers of scratch that each worker needs for sequences of at most so many queries and keys.
pub fn grad_scratch_len(isa: Isa, d: usize, queries: usize, keys: usize) -> usize {
    // One more cache line, to begin at one.
    Layout::new(isa.lanes(), d, queries, keys).end + 16
}

/// The gradients of [`packed_attention_f32`](super::packed_attention_f32) for `dy: [rows, dy_ld]`, with
/// or without dropout. `scratch` holds [`grad_scratch_len`] numbers for each worker.
///
/// # Panics
/// If the extents contradict each other, or a head's size is not a multiple of 8.
pub fn packed_attention_grad_f32(
    pool: &Pool,
    isa: Isa,
    attention: &PackedAttention<'_>,
    dropout: Option<&PackedDropout<'_>>,
    dy: (&[f32], usize),
    grads: PackedGrads<'_>,
    scratch: &mut [f32],
) {
    attention.check();
    let &PackedAttention { heads, size: d, sequences, .. } = attention;
    let rows = sequences.last().map_or(0, |last| last.queries.end);
    let columns = heads * d;
    assert!(covers(dy.0.len(), rows, dy.1, columns), "dy is [{rows}, n·d]");
    let PackedGrads { dq, dk, dv, keys } = grads;
    assert!(covers(dq.0.len(), rows, dq.1, columns), "dq is [{rows}, n·d]");
    let slots = attention.key_row_count();
    assert!(slots <= keys, "{slots} rows of keys, not {keys}");
    for (grad, ld) in [&dk, &dv] {
        assert!(covers(grad.len(), keys, *ld, columns), "dk and dv are [{keys}, n·d]");
    }
    if let Some(dropout) = dropout {
        dropout.check(attention);
    }
    if attention.key_rows.is_some() {
        for (grad, ld) in [(&mut *dk.0, dk.1), (&mut *dv.0, dv.1)] {
            for row in grad.chunks_mut(ld).take(keys) {
                row[..columns].fill(0.0);
            }
        }
    }
    let most = |of: fn(&Sequence) -> usize| sequences.iter().map(of).max().unwrap_or(0);
    let needed = grad_scratch_len(isa, d, most(|s| s.queries.len()), most(|s| s.keys.len()));
    assert!(scratch.len() >= pool.threads() * needed, "{needed} numbers of scratch per worker");
    let shared = All {
        attention,
        dropout,
        dy,
        dq: (Shared::new(dq.0), dq.1),
        dk: (Shared::new(dk.0), dk.1),
        dv: (Shared::new(dv.0), dv.1),
        tiles: tiles(isa),
    };
    let scratch = PerWorker::new(pool, scratch);
    pool.run(sequences.len() * heads, &|task, worker| {
        let (sequence, head) = (&sequences[task / heads], task % heads);
        if sequence.queries.is_empty() && sequence.keys.is_empty() {
            return;
        }
        scratch.with(worker, |scratch| {
            dispatch(isa, Task { all: &shared, sequence, head, scratch });
        });
    });
}

/// What all tasks see.
struct All<'a> {
    attention: &'a PackedAttention<'a>,
    dropout: Option<&'a PackedDropout<'a>>,
    dy: (&'a [f32], usize),
    dq: (Shared<f32>, usize),
    dk: (Shared<f32>, usize),
    dv: (Shared<f32>, usize),
    tiles: Table,
}

/// One head of one sequence.
struct Task<'a> {
    all: &'a All<'a>,
    sequence: &'a Sequence,
    head: usize,
    scratch: &'a mut [f32],
}

impl Kernel for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let All { attention, dropout, dy, ref dq, ref dk, ref dv, ref tiles } = *self.all;
        let &PackedAttention { size: d, q, q_ld, k, k_ld, v, v_ld, scale, .. } = attention;
        let Sequence { queries, keys: slots } = self.sequence;
        let column = self.head * d;
        let keys = slots.len();
        let layout = Layout::new(S::LANES, d, queries.len(), keys);
        let start = self.scratch.as_ptr().align_offset(64).min(15);
        let scratch = &mut self.scratch[start..][..layout.end];
        let base = scratch.as_mut_ptr();
        let (score_vectors, value_vectors) = (keys.div_ceil(S::LANES), d.div_ceil(S::LANES));
        // SAFETY: all extents were compared with the slices; the layout lies in the scratch; the head
        // of these queries and of these keys is this task's alone.
        unsafe {
            let at = |offset: usize| base.add(offset);
            let (dk_sums, dv_sums) = (at(layout.dk), at(layout.dv));
            let (p, ds) = (at(layout.p), at(layout.ds));
            let inverse = at(layout.factors);
            if keys > 0 {
                let slots = || slots.clone();
                s.call(PackKeys { x: k, ld: k_ld, attention, slots: slots(), column, to: base });
                let to = at(layout.value_columns);
                s.call(PackKeys { x: v, ld: v_ld, attention, slots: slots(), column, to });
                let to = at(layout.key_rows);
                s.call(PackValues { x: k, ld: k_ld, attention, slots: slots(), column, to });
            }
            for (number, first) in queries.clone().step_by(QUERIES).enumerate() {
                let block = first..queries.end.min(first + QUERIES);
                for rows in tile_rows(&block, S::LANES) {
                    let count = rows.len();
                    let offset = (rows.start - block.start) * layout.scores_ld;
                    let (p, ds) = (p.add(offset), ds.add(offset));
                    let scores = Product {
                        a: q.as_ptr().add(rows.start * q_ld + column),
                        lda: q_ld,
                        b: base,
                        k: d,
                        c: p,
                        ldc: layout.scores_ld,
                        vectors: score_vectors,
                        add: false,
                    };
                    scores.run(tiles, S::LANES, count);
                    Product {
                        a: dy.0.as_ptr().add(rows.start * dy.1 + column),
                        lda: dy.1,
                        b: at(layout.value_columns),
                        c: ds,
                        ..scores
                    }
                    .run(tiles, S::LANES, count);
                    let (ld, rows_of) = (layout.scores_ld, rows.clone());
                    let powers = scale * std::f32::consts::LOG2_E;
                    s.call(Softmax { scores: p, ld, rows: count, keys, scale: powers, inverse });
                    let drop = dropout.map(|dropout| Drop {
                        dropout,
                        queries: rows_of,
                        slots: slots.clone(),
                        head: self.head,
                    });
                    s.call(Backward { p, ds, ld, rows: count, keys, scale, inverse, drop });
                    // dQ = dS K
                    let sums = at(layout.dq);
                    Product {
                        a: ds,
                        lda: layout.scores_ld,
                        b: at(layout.key_rows),
                        k: keys,
                        c: sums,
                        ldc: layout.wide,
                        vectors: value_vectors,
                        add: false,
                    }
                    .run(tiles, S::LANES, count);
                    let to = dq.0.at(rows.start * dq.1 + column);
                    s.call(Put { from: sums, from_ld: layout.wide, rows: count, d, to, ld: dq.1 });
                }
                // dV += Pᵀ dY and dK += dSᵀ Q, of these queries.
                for (scores, from, from_ld, rows, sums) in [
                    (p, dy.0, dy.1, layout.dy_rows, dv_sums),
                    (ds, q, q_ld, layout.query_rows, dk_sums),
                ] {
                    let to = at(rows);
                    s.call(PackRows { x: from, ld: from_ld, rows: block.clone(), column, d, to });
                    let turned = at(layout.turned);
                    turn(
                        s,
                        (scores, layout.scores_ld),
                        [block.len(), keys],
                        (turned, layout.turned_ld),
                    );
                    for rows in tile_rows(&(0..keys), S::LANES) {
                        Product {
                            a: turned.add(rows.start * layout.turned_ld),
                            lda: layout.turned_ld,
                            b: to,
                            k: block.len(),
                            c: sums.add(rows.start * layout.wide),
                            ldc: layout.wide,
                            vectors: value_vectors,
                            add: number > 0,
                        }
                        .run(tiles, S::LANES, rows.len());
                    }
                }
            }
            for (sums, (to, ld)) in [(dk_sums, dk), (dv_sums, dv)] {
                for (i, slot) in slots.clone().enumerate() {
                    let to = to.at(attention.key_row(slot) * ld + column);
                    let from = sums.add(i * layout.wide).cast_const();
                    match queries.is_empty() {
                        true => (0..d).for_each(|c| *to.add(c) = 0.0),
                        false => s.call(Put { from, from_ld: 0, rows: 1, d, to, ld: 0 }),
                    }
                }
            }
        }
    }
}

/// Rows in parts that a tile can take.
fn tile_rows(rows: &Range<usize>, lanes: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let start = rows.start;
    let parts = Parts::new(rows.len(), rows.len().div_ceil(shape(lanes).rows));
    parts.all().map(move |part| start + part.start..start + part.end)
}

/// From powers and dP: `p` becomes what dV is made of, `ds` becomes dS.
struct Backward<'a> {
    p: *mut f32,
    ds: *mut f32,
    ld: usize,
    rows: usize,
    keys: usize,
    scale: f32,
    /// Of the sum of powers, for each row.
    inverse: *const f32,
    drop: Option<Drop<'a>>,
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { p, ds, ld, rows, keys, scale, inverse, ref drop } = self;
        let vectors = keys.div_ceil(S::LANES);
        let scale = s.splat(scale);
        // SAFETY: rows are whole vectors, in which the powers beyond the last key are 0.
        unsafe {
            for i in 0..rows {
                let (p, ds) = (p.add(i * ld), ds.add(i * ld));
                let inverse = s.splat(*inverse.add(i));
                let chance = drop.as_ref().map(|drop| drop.row(i));
                let mut sum = s.splat(0.0);
                for vector in 0..vectors {
                    let at = vector * S::LANES;
                    let probability = s.mul(s.load(p.add(at)), inverse);
                    let mut grad = s.load(ds.add(at));
                    if let (Some(drop), Some(chance)) = (drop, chance) {
                        grad = s.mul(grad, drop.factors(s, chance, at));
                        s.store(ds.add(at), grad);
                    }
                    s.store(p.add(at), probability);
                    sum = s.fma(probability, grad, sum);
                }
                let sum = s.splat(s.sum(sum));
                for vector in 0..vectors {
                    let at = vector * S::LANES;
                    let probability = s.load(p.add(at));
                    let rest = s.sub(s.load(ds.add(at)), sum);
                    s.store(ds.add(at), s.mul(s.mul(probability, rest), scale));
                    if let (Some(drop), Some(chance)) = (drop, chance) {
                        s.store(p.add(at), s.mul(probability, drop.factors(s, chance, at)));
                    }
                }
            }
        }
    }
}

/// Rows next to each other: [`panels`] of vectors of columns, `[rows, columns of the panel]`, with
/// zeros beyond the last column.
struct PackRows<'a> {
    x: &'a [f32],
    ld: usize,
    rows: Range<usize>,
    column: usize,
    d: usize,
    to: *mut f32,
}

impl Kernel for PackRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { x, ld, rows, column, d, to } = self;
        let count = rows.len();
        for panel in panels(S::LANES, d.div_ceil(S::LANES)).all() {
            let width = panel.len() * S::LANES;
            for (i, row) in rows.clone().enumerate() {
                for vector in panel.clone() {
                    let c = vector * S::LANES;
                    let at =
                        panel.start * S::LANES * count + i * width + c - panel.start * S::LANES;
                    // SAFETY: the rows were compared with the slice; a row has d numbers.
                    unsafe {
                        let from = x.as_ptr().add(row * ld + column + c);
                        s.store(to.add(at), s.load_first(from, d - c));
                    }
                }
            }
        }
    }
}

/// Sums to where they belong.
struct Put {
    from: *const f32,
    from_ld: usize,
    rows: usize,
    d: usize,
    to: *mut f32,
    ld: usize,
}

impl Kernel for Put {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { from, from_ld, rows, d, to, ld } = self;
        for row in 0..rows {
            // SAFETY: the sums are whole vectors; the caller's rows have d numbers.
            unsafe {
                for c in (0..d).step_by(S::LANES) {
                    let x = s.load(from.add(row * from_ld + c));
                    s.store_first(to.add(row * ld + c), x, d - c);
                }
            }
        }
    }
}
