//! Attention over packed sequences.

use frazil_kernels::Isa;
use frazil_kernels::attention::{
    OperandSteps, PackedAttention, Sequence, packed_attention_f32, scratch_len,
};
use frazil_kernels::gemm::Output;
use frazil_kernels::par::Pool;
use frazil_kernels::quantize::{quantize, quantize_symmetric};

use crate::guard::{Guarded, filled, guard};
use crate::{Row, Timed, Worst, plain_numbers, pool};

pub fn rows() -> Vec<Row> {
    // Values are up to 2, and scores, from which powers are taken, up to 8.
    let row = |kernel, check| Row { kernel, tolerance: 2e-6, check, speed: None };
    let timed = |kernel, speed| Row {
        kernel,
        tolerance: 0.0,
        check: |_| Worst::default(),
        speed: Some(speed),
    };
    vec![
        row("attention, every length", every_length),
        row("attention, many sequences", many_sequences),
        row("attention, keys in any order", any_order),
        row("attention, large scores", large_scores),
        row("attention, operands on steps", on_steps),
        row("attention, all on steps", all_on_steps),
        Row { kernel: "attention to bytes", tolerance: 0.0, check: to_bytes, speed: None },
        timed("attention", |isa| speed(isa, 1, 384, 2)),
        timed("attention in bytes", |isa| byte_speed(isa, 1, 384, 2)),
        timed("attention in bytes", |isa| byte_speed(isa, 1, 128, 6)),
        timed("attention in bytes", |isa| byte_speed(isa, 4, 29, 12)),
        timed("attention in bytes", |isa| byte_speed(isa, 4, 12, 12)),
        timed("attention", |isa| speed(isa, 1, 128, 6)),
        timed("attention", |isa| speed(isa, 4, 29, 12)),
        timed("attention", |isa| speed(isa, 4, 12, 12)),
    ]
}

/// A number on the steps of unsigned bytes, if there are some.
fn unsigned(x: f64, steps: Option<(f32, u8)>) -> f64 {
    let Some((scale, zero)) = steps else { return x };
    let (scale, zero) = (f64::from(scale), f64::from(zero));
    ((x / scale + zero).round_ties_even().clamp(0.0, 255.0) - zero) * scale
}

/// The same of signed bytes.
fn signed(x: f32, scale: Option<f32>) -> f64 {
    let Some(scale) = scale else { return x.into() };
    f64::from(quantize_symmetric(x, scale)) * f64::from(scale)
}

/// Heads, their size, and the rows that they are taken from.
struct Case {
    heads: usize,
    d: usize,
    scale: f32,
    steps: OperandSteps,
    qkv: Guarded<f32>,
    ld: usize,
    sequences: Vec<Sequence>,
    key_rows: Option<Guarded<u32>>,
}

impl Case {
    fn new(heads: usize, d: usize, sequences: Vec<Sequence>) -> Self {
        let ld = 3 * heads * d + 5;
        let rows = sequences.iter().map(|s| s.queries.end.max(s.keys.end)).max().unwrap_or(0);
        // The last row has no gap behind it.
        let len = (rows * ld).saturating_sub(5);
        let qkv = plain_numbers(rows as u64 + 1, len).into_iter().map(|x| 2.0 * x);
        let qkv = guard(qkv.collect::<Vec<_>>());
        let (scale, steps, key_rows) = (1.0 / (d as f32).sqrt(), OperandSteps::default(), None);
        Self { heads, d, scale, steps, qkv, ld, sequences, key_rows }
    }

    fn attention(&self) -> PackedAttention<'_> {
        let part = |i: usize| self.qkv.get(i * self.heads * self.d..).unwrap_or(&[]);
        PackedAttention {
            heads: self.heads,
            size: self.d,
            scale: self.scale,
            steps: self.steps,
            q: part(0),
            q_ld: self.ld,
            k: part(1),
            k_ld: self.ld,
            v: part(2),
            v_ld: self.ld,
            sequences: &self.sequences,
            key_rows: self.key_rows.as_deref(),
        }
    }

    fn scratch(&self, isa: Isa, pool: &Pool) -> Guarded<f32> {
        let longest = self.sequences.iter().map(|s| s.keys.len()).max().unwrap_or(0);
        filled(f32::NAN, pool.threads() * scratch_len(isa, self.d, longest))
    }

    fn rows(&self) -> usize {
        self.sequences.last().map_or(0, |last| last.queries.end)
    }

    fn run(&self, isa: Isa, threads: usize) -> Vec<f32> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let pool = Pool::new(threads.min(cores));
        let columns = self.heads * self.d;
        let mut out = filled(f32::NAN, self.rows() * (columns + 3));
        let mut scratch = self.scratch(isa, &pool);
        let target = Output::F32(&mut out);
        packed_attention_f32(&pool, isa, &self.attention(), target, columns + 3, &mut scratch);
        let rows = out.chunks(columns + 3);
        rows.flat_map(|row| {
            assert!(row[columns..].iter().all(|x| x.is_nan()), "nothing is written between rows");
            row[..columns].to_vec()
        })
        .collect()
    }

    /// `softmax(q · kᵀ · scale) · v` in `f64`; rows of no sequence are not a number.
    fn exact(&self) -> Vec<f64> {
        let columns = self.heads * self.d;
        let mut out = vec![f64::NAN; self.rows() * columns];
        let part = |row: usize, part: usize, head: usize| {
            &self.qkv[row * self.ld + part * columns + head * self.d..][..self.d]
        };
        for Sequence { queries, keys } in &self.sequences {
            let row_of = |slot: usize| self.key_rows.as_ref().map_or(slot, |at| at[slot] as usize);
            let keys: Vec<usize> = keys.clone().map(row_of).collect();
            for (row, head) in
                queries.clone().flat_map(|row| (0..self.heads).map(move |h| (row, h)))
            {
                let q = part(row, 0, head);
                let score = |&key: &usize| {
                    let products = q.iter().zip(part(key, 1, head));
                    let q = |q: f32| unsigned(f64::from(q), self.steps.queries);
                    let k = |k: f32| signed(k, self.steps.keys);
                    let sum: f64 = products.map(|(&x, &y)| q(x) * k(y)).sum();
                    sum * f64::from(self.scale)
                };
                let mut powers: Vec<f64> = keys.iter().map(score).collect();
                let top = powers.iter().copied().fold(f64::MIN, f64::max);
                powers.iter_mut().for_each(|x| *x = (*x - top).exp());
                let sum: f64 = powers.iter().sum();
                let weight = |power: f64| unsigned(power / sum, self.steps.softmax);
                let out = &mut out[row * columns + head * self.d..][..self.d];
                out.fill(0.0);
                for (&key, &power) in keys.iter().zip(&powers) {
                    let values = out.iter_mut().zip(part(key, 2, head));
                    values.for_each(|(out, &v)| {
                        *out += weight(power) * signed(v, self.steps.values);
                    });
                }
            }
        }
        out
    }

    fn check(&self, isa: Isa, threads: usize, worst: &mut Worst) {
        let (got, wanted) = (self.run(isa, threads), self.exact());
        assert_eq!(got.len(), wanted.len());
        for (i, (&got, &wanted)) in got.iter().zip(&wanted).enumerate() {
            if wanted.is_nan() {
                assert!(got.is_nan(), "a row of no sequence is not written");
                continue;
            }
            worst.note((f64::from(got) - wanted).abs(), || {
                let Self { heads, d, sequences, .. } = self;
                format!("{heads} heads of {d}, {sequences:?}: {i} is {got} for {wanted}")
            });
        }
    }
}

fn every_length(isa: Isa) -> Worst {
    let mut worst = Worst::default();
    for length in 1..=70 {
        let d = [8, 16, 24, 40, 64, 72, 80, 32][length % 8];
        let sequence = Sequence { queries: 0..length, keys: 0..length };
        Case::new(2, d, vec![sequence]).check(isa, 1, &mut worst);
    }
    for length in [128, 211, 384] {
        let sequence = Sequence { queries: 0..length, keys: 0..length };
        Case::new(1, 64, vec![sequence]).check(isa, 2, &mut worst);
    }
    worst
}

fn many_sequences(isa: Isa) -> Worst {
    let mut worst = Worst::default();
    // Of other lengths each, with rows of nobody between, without queries, and without keys.
    let mut sequences = Vec::new();
    let mut row = 1;
    for length in [3, 17, 0, 33, 1, 16, 48, 5] {
        sequences.push(Sequence { queries: row..row + length, keys: row..row + length });
        row += length + length % 2;
    }
    sequences.push(Sequence { queries: row..row + 2, keys: 4..4 });
    sequences.push(Sequence { queries: row + 2..row + 3, keys: 0..row });
    for threads in [1, 2, 3] {
        for heads in [1, 3] {
            Case::new(heads, 16, sequences.clone()).check(isa, threads, &mut worst);
        }
    }
    Case::new(2, 8, Vec::new()).check(isa, 2, &mut worst);
    worst
}

fn any_order(isa: Isa) -> Worst {
    let mut worst = Worst::default();
    let sequences =
        vec![Sequence { queries: 0..1, keys: 0..20 }, Sequence { queries: 1..30, keys: 20..61 }];
    let mut case = Case::new(2, 24, sequences);
    case.key_rows = Some(guard((0..61).map(|slot| slot * 17 % 61).collect::<Vec<_>>()));
    case.check(isa, 2, &mut worst);
    worst
}

fn large_scores(isa: Isa) -> Worst {
    let mut worst = Worst::default();
    for length in [1, 7, 40] {
        let mut case = Case::new(1, 8, vec![Sequence { queries: 0..length, keys: 0..length }]);
        // All scores far below 0, then some: the lanes beyond the last key must not count.
        for row in 0..length {
            let row = &mut case.qkv[row * case.ld..];
            row[..8].fill(20.0);
            row[8..16].fill(-20.0 - (length % 7) as f32);
        }
        case.check(isa, 1, &mut worst);
        case.qkv[8] = 500.0;
        case.check(isa, 1, &mut worst);
    }
    worst
}

/// Steps so large that rounding is seen, and few numbers, so that none falls between two.
fn on_steps(isa: Isa) -> Worst {
    let mut worst = Worst::default();
    for length in [1, 2, 7, 16, 33] {
        for (softmax, d) in [((1.0 / 16.0, 0), 8), ((1.0 / 40.0, 3), 24)] {
            let mut case = Case::new(2, d, vec![Sequence { queries: 0..length, keys: 0..length }]);
            case.steps.softmax = Some(softmax);
            case.check(isa, 1, &mut worst);
            case.steps.queries = Some((0.07, 120));
            case.check(isa, 1, &mut worst);
            case.steps = OperandSteps { softmax: None, ..case.steps };
            case.steps.keys = Some(0.05);
            case.steps.values = Some(0.015);
            case.check(isa, 1, &mut worst);
        }
    }
    worst
}

/// All four: in bytes where that is faster.
fn all_on_steps(isa: Isa) -> Worst {
    let mut worst = Worst::default();
    for length in [0, 1, 2, 3, 4, 5, 7, 13, 16, 17, 31, 33, 48, 50, 65] {
        for d in [8, 24, 64] {
            let mut sequences = vec![Sequence { queries: 0..length, keys: 0..length }];
            sequences.push(Sequence { queries: length..length + 3, keys: 0..length });
            let mut case = Case::new(2, d, sequences);
            case.steps = OperandSteps {
                queries: Some((0.07, 120)),
                keys: Some(0.05),
                // Some are cut off.
                values: Some(0.015),
                softmax: Some((1.0 / 16.0, 0)),
            };
            case.check(isa, 2, &mut worst);
            case.key_rows = Some(guard((0..length as u32).rev().collect::<Vec<_>>()));
            case.check(isa, 1, &mut worst);
        }
    }
    worst
}

fn to_bytes(isa: Isa) -> Worst {
    let mut worst = Worst::default();
    for (length, d) in [(1, 8), (19, 24), (37, 64)] {
        let case = Case::new(2, d, vec![Sequence { queries: 0..length, keys: 0..length }]);
        let numbers = case.run(isa, 1);
        let pool = pool();
        let mut bytes = filled(0, numbers.len());
        let mut scratch = case.scratch(isa, &pool);
        let out = Output::U8 { out: &mut bytes, scale: 0.01, zero: 113, factors: None };
        packed_attention_f32(&pool, isa, &case.attention(), out, 2 * d, &mut scratch);
        for (&got, &x) in bytes.iter().zip(&numbers) {
            let wanted = quantize(x, 0.01, 113);
            worst.note(f64::from(got.abs_diff(wanted)), || format!("{x}: {got} for {wanted}"));
        }
    }
    worst
}

/// Few heads for long sequences, so that a run is over before the system takes the core away.
fn speed(isa: Isa, sequences: usize, length: usize, heads: usize) -> Timed {
    timed(isa, OperandSteps::default(), [sequences, length, heads])
}

fn byte_speed(isa: Isa, sequences: usize, length: usize, heads: usize) -> Timed {
    let steps = OperandSteps {
        queries: Some((0.02, 120)),
        keys: Some(0.02),
        values: Some(0.02),
        softmax: Some((1.0 / 255.0, 0)),
    };
    timed(isa, steps, [sequences, length, heads])
}

fn timed(isa: Isa, steps: OperandSteps, [sequences, length, heads]: [usize; 3]) -> Timed {
    let ranges = (0..sequences).map(|i| i * length..(i + 1) * length);
    let all = ranges.map(|rows| Sequence { queries: rows.clone(), keys: rows }).collect();
    let mut case = Case::new(heads, 64, all);
    case.steps = steps;
    let pool = Pool::new(1);
    let mut scratch = case.scratch(isa, &pool);
    let mut out = vec![0.0; case.rows() * heads * 64];
    Timed {
        size: format!("{sequences} x {length}, {heads} heads of 64"),
        operations: (4 * sequences * heads * length * length * 64) as f64,
        bytes: 0.0,
        run: Box::new(move || {
            let attention = case.attention();
            let target = Output::F32(&mut out);
            packed_attention_f32(&pool, isa, &attention, target, heads * 64, &mut scratch);
        }),
    }
}
