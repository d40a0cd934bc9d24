//! The gradient of attention over packed sequences, and dropout in it.

use frazil_kernels::Isa;
use frazil_kernels::attention::{
    Attention, AttentionGrads, Dropped, Operands, PackedAttention, PackedDropout, PackedGrads,
    Sequence, attention, attention_grad, dropped_attention_f32, grad_scratch_len,
    packed_attention_grad_f32, scratch_len,
};
use frazil_kernels::dropout::Dropout;
use frazil_kernels::gemm::Output;
use frazil_kernels::par::Pool;
use frazil_kernels::random::Key;

use super::{compare, dense, untouched};
use crate::guard::{Guarded, filled, guard};
use crate::{Row, Timed, Worst, plain_numbers};

pub fn rows() -> Vec<Row> {
    let row = |kernel, check| Row { kernel, tolerance: 2e-6, check, speed: None };
    let timed = |kernel, speed| Row {
        kernel,
        tolerance: 0.0,
        check: |_| Worst::default(),
        speed: Some(speed),
    };
    vec![
        row("attention with dropout", forward),
        row("attention gradient, every length", |isa| every_length(isa, false)),
        row("attention gradient with dropout", |isa| every_length(isa, true)),
        row("attention gradient, many sequences", many_sequences),
        timed("attention gradient", |isa| speed(isa, 128, 6)),
        timed("attention gradient", |isa| speed(isa, 384, 2)),
    ]
}

/// Heads, their size, and the rows that they are taken from: q, k, v and dy beside each other.
struct Case {
    heads: usize,
    d: usize,
    all: Guarded<f32>,
    ld: usize,
    sequences: Vec<Sequence>,
    key_rows: Option<Guarded<u32>>,
    rows: usize,
    /// The places of all rows.
    places: Guarded<u32>,
    dropout: Option<Dropout>,
}

impl Case {
    fn new(heads: usize, d: usize, sequences: Vec<Sequence>) -> Self {
        let ld = 4 * heads * d + 5;
        let rows = sequences.iter().map(|s| s.queries.end.max(s.keys.end)).max().unwrap_or(0);
        let all = plain_numbers(rows as u64 + 1, (rows * ld).saturating_sub(5));
        let all = guard(all.into_iter().map(|x| 1.5 * x).collect::<Vec<_>>());
        let places = guard((0..rows as u32).map(|i| i * 3 + 65536).collect::<Vec<_>>());
        Self { heads, d, all, ld, sequences, key_rows: None, rows, places, dropout: None }
    }

    fn with_dropout(mut self) -> Self {
        self.dropout = Some(Dropout { rate: 0.2, site: 5, key: Key { seed: 1, step: 2 } });
        self
    }

    fn part(&self, i: usize) -> &[f32] {
        self.all.get(i * self.heads * self.d..).unwrap_or(&[])
    }

    fn attention(&self) -> PackedAttention<'_> {
        PackedAttention {
            heads: self.heads,
            size: self.d,
            scale: 0.3,
            steps: frazil_kernels::attention::OperandSteps::default(),
            q: self.part(0),
            q_ld: self.ld,
            k: self.part(1),
            k_ld: self.ld,
            v: self.part(2),
            v_ld: self.ld,
            sequences: &self.sequences,
            key_rows: self.key_rows.as_deref(),
        }
    }

    /// The column of each slot.
    fn columns(&self) -> Guarded<i32> {
        let slots = self.sequences.iter().map(|s| s.keys.end).max().unwrap_or(0);
        guard(
            (0..slots).map(|i| (self.places[self.key_row(i)] & 0xffff) as i32).collect::<Vec<_>>(),
        )
    }

    fn key_row(&self, slot: usize) -> usize {
        self.key_rows.as_ref().map_or(slot, |rows| rows[slot] as usize)
    }

    /// What each sequence is by itself, in `f64`: extents and operands, and its rows.
    fn alone(&self, sequence: &Sequence) -> Alone {
        let columns = self.heads * self.d;
        let rows = |part: usize, rows: &[usize]| -> Vec<f64> {
            let row = |&row: &usize| self.part(part)[row * self.ld..][..columns].to_vec();
            rows.iter().flat_map(row).map(f64::from).collect()
        };
        let queries: Vec<usize> = sequence.queries.clone().collect();
        let keys: Vec<usize> = sequence.keys.clone().map(|slot| self.key_row(slot)).collect();
        let places = |rows: &[usize]| rows.iter().map(|&row| self.places[row]).collect();
        Alone {
            extents: Attention {
                batch: 1,
                heads: self.heads,
                size: self.d,
                queries: queries.len(),
                keys: keys.len(),
                scale: 0.3,
                mask_value: 0.0,
                steps: None,
            },
            q: rows(0, &queries),
            k: rows(1, &keys),
            v: rows(2, &keys),
            dy: rows(3, &queries),
            places: [places(&queries), places(&keys)],
            rows: [queries, keys],
        }
    }

    fn check(&self, isa: Isa, threads: usize, worst: &mut Worst) {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let pool = Pool::new(threads.min(cores));
        let (columns, ld) = (self.heads * self.d, self.heads * self.d + 3);
        let mut grads: Vec<Guarded<f32>> =
            (0..3).map(|_| filled(f32::NAN, self.rows * ld)).collect();
        let most = |of: fn(&Sequence) -> usize| self.sequences.iter().map(of).max().unwrap_or(0);
        let each = grad_scratch_len(isa, self.d, most(|s| s.queries.len()), most(|s| s.keys.len()));
        let mut scratch = filled(f32::NAN, pool.threads() * each);
        let keys = self.columns();
        let dropped = self.dropout.map(|dropout| PackedDropout {
            dropout,
            queries: &self.places,
            keys: &keys,
        });
        {
            let [dq, dk, dv] = &mut grads[..] else { unreachable!() };
            let to = PackedGrads { dq: (dq, ld), dk: (dk, ld), dv: (dv, ld), keys: self.rows };
            let dy = (self.part(3), self.ld);
            let attention = self.attention();
            packed_attention_grad_f32(
                &pool,
                isa,
                &attention,
                dropped.as_ref(),
                dy,
                to,
                &mut scratch,
            );
        }
        grads.iter().for_each(|grad| untouched(grad, ld, columns));
        for sequence in &self.sequences {
            let alone = self.alone(sequence);
            let wanted = alone.grads(self.dropout);
            for (which, (grad, wanted)) in grads.iter().zip(&wanted).enumerate() {
                let rows = &alone.rows[usize::from(which > 0)];
                let got: Vec<f32> =
                    rows.iter().flat_map(|&row| grad[row * ld..][..columns].to_vec()).collect();
                compare(worst, &got, wanted, |i| {
                    format!("{} heads of {}, {sequence:?}: {which}, {i}", self.heads, self.d)
                });
            }
        }
        if let Some(rows) = &self.key_rows {
            // Rows that no sequence sees have no gradient.
            let seen: Vec<usize> = rows.iter().map(|&row| row as usize).collect();
            for row in (0..self.rows).filter(|row| !seen.contains(row)) {
                for grad in &grads[1..] {
                    assert!(grad[row * ld..][..columns].iter().all(|&x| x == 0.0), "row {row}");
                }
            }
        }
    }
}

struct Alone {
    extents: Attention,
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    dy: Vec<f64>,
    places: [Vec<u32>; 2],
    rows: [Vec<usize>; 2],
}

impl Alone {
    fn operands(&self, dropout: Option<Dropout>) -> Operands<'_, f64> {
        let [queries, keys] = &self.places;
        let dropout = dropout.map(|dropout| Dropped { dropout, queries, keys });
        Operands { q: &self.q, k: &self.k, v: &self.v, mask: None, dropout }
    }

    fn grads(&self, dropout: Option<Dropout>) -> [Vec<f64>; 3] {
        let mut grads = [&self.q, &self.k, &self.v].map(|x| vec![0.0; x.len()]);
        let [dq, dk, dv] = &mut grads;
        let mut scratch = vec![0.0; 3 * self.extents.keys];
        let to = AttentionGrads { dq, dk, dv };
        attention_grad(&self.operands(dropout), &self.dy, to, &mut scratch, &self.extents);
        grads
    }
}

fn every_length(isa: Isa, dropout: bool) -> Worst {
    let mut worst = Worst::default();
    let of = |heads, d, length| {
        let case = Case::new(heads, d, vec![Sequence { queries: 0..length, keys: 0..length }]);
        if dropout { case.with_dropout() } else { case }
    };
    for length in 1..=50 {
        let d = [8, 16, 24, 40, 64, 72, 80, 32][length % 8];
        of(2, d, length).check(isa, 1, &mut worst);
    }
    // More queries than are taken at a time.
    for length in [127, 128, 129, 300] {
        of(1, 64, length).check(isa, 2, &mut worst);
    }
    worst
}

fn many_sequences(isa: Isa) -> Worst {
    let mut worst = Worst::default();
    let mut sequences = Vec::new();
    let mut row = 0;
    for length in [3, 17, 33, 1, 16, 48, 5] {
        sequences.push(Sequence { queries: row..row + length, keys: row..row + length });
        row += length;
    }
    for threads in [1, 2] {
        Case::new(3, 16, sequences.clone()).check(isa, threads, &mut worst);
        Case::new(3, 16, sequences.clone()).with_dropout().check(isa, threads, &mut worst);
    }
    // One query of each, and keys in any order, some of them of nobody.
    let sequences =
        vec![Sequence { queries: 0..1, keys: 0..20 }, Sequence { queries: 1..30, keys: 20..50 }];
    let mut case = Case::new(2, 24, sequences).with_dropout();
    case.rows = 61;
    case.all = guard(plain_numbers(4, 61 * case.ld));
    case.places = guard((0..61).map(|i| 61 - i).collect::<Vec<u32>>());
    case.key_rows = Some(guard((0..50).map(|slot| slot * 17 % 61).collect::<Vec<u32>>()));
    case.check(isa, 2, &mut worst);
    worst
}

/// Dropout in the forward direction.
fn forward(isa: Isa) -> Worst {
    let mut worst = Worst::default();
    let pool = Pool::new(1);
    for length in [1, 7, 16, 33, 70] {
        let sequence = Sequence { queries: 0..length, keys: 0..length };
        let case = Case::new(2, 16, vec![sequence.clone()]).with_dropout();
        let (columns, ld) = (32, 35);
        let mut out = filled(f32::NAN, length * ld);
        let mut scratch = filled(f32::NAN, scratch_len(isa, 16, length));
        let keys = case.columns();
        let dropout = case.dropout.expect("the case has dropout");
        let dropped = PackedDropout { dropout, queries: &case.places, keys: &keys };
        let (attends, target) = (case.attention(), Output::F32(&mut out));
        dropped_attention_f32(&pool, isa, &attends, Some(&dropped), target, ld, &mut scratch);
        let alone = case.alone(&sequence);
        let (mut wanted, mut scratch) = (vec![0.0; length * columns], vec![0.0; length]);
        let operands = alone.operands(case.dropout);
        attention(&operands, &mut wanted, &mut scratch, &alone.extents);
        let got = dense(&out, ld, length, columns);
        compare(&mut worst, &got, &wanted, |i| format!("{length}: {i}"));
    }
    worst
}

fn speed(isa: Isa, length: usize, heads: usize) -> Timed {
    let case = Case::new(heads, 64, vec![Sequence { queries: 0..length, keys: 0..length }]);
    let pool = Pool::new(1);
    let columns = heads * 64;
    let mut grads = vec![vec![0.0; length * columns]; 3];
    let mut scratch = vec![0.0; grad_scratch_len(isa, 64, length, length)];
    Timed {
        size: format!("1 x {length}, {heads} heads of 64"),
        operations: (10 * heads * length * length * 64) as f64,
        bytes: 0.0,
        run: Box::new(move || {
            let [dq, dk, dv] = &mut grads[..] else { unreachable!() };
            let (dq, dk, dv) =
                ((&mut dq[..], columns), (&mut dk[..], columns), (&mut dv[..], columns));
            let to = PackedGrads { dq, dk, dv, keys: length };
            let dy = (case.part(3), case.ld);
            packed_attention_grad_f32(&pool, isa, &case.attention(), None, dy, to, &mut scratch);
        }),
    }
}
