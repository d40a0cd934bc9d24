//! How far a product in bytes may be from the exact one, whatever the numbers are.
//!
//! With `s` the scale of a row's bytes, `t` that of a column's, and rounding to the nearest, a number
//! `x` of the row is off by at most `s / 2`, and a weight `w` by `t / 2`. Then
//!
//! ```text
//! |Σ x w - Σ x' w'| = |Σ x (w - w') + (x - x') w'| ≤ Σ |x| t/2 + s/2 (|w| + t/2)
//! ```
//!
//! What float32 adds: a byte is rounded from `x / s + zero`, of which the last place is 2⁻¹⁶ at most, so
//! that `s / 2` is a little more; the exact sum of bytes is converted and scaled, which is off
//! by a few units in the last place.

use frazil_kernels::Isa;
use frazil_kernels::gemm::{Columns, Epilogue, Orientation, Output, i8};
use frazil_kernels::quantize::{Bytes, Scales, quantize_rows_f32, quantize_symmetric, range};
use proptest::prelude::*;

use crate::pool;

/// Half a step, and what rounding in float32 adds to it.
const HALF: f64 = 0.5 + 1.0 / 1024.0;
/// Of the conversion of a sum, its scale, and their product.
const LAST_PLACES: f64 = 4.0 / (1u32 << 24) as f64;

#[derive(Debug)]
struct Case {
    m: usize,
    n: usize,
    k: usize,
    /// `[m, k]`
    x: Vec<f32>,
    /// `[k, n]`
    w: Vec<f32>,
    /// A scale for each column, or one for all.
    by_column: bool,
}

/// Numbers of very different sizes, in rows and columns of very different sizes.
fn numbers(rows: usize, columns: usize) -> impl Strategy<Value = Vec<f32>> {
    let sizes = |n: usize| prop::collection::vec(-4i32..4, n);
    let all = prop::collection::vec(-1.0f32..1.0, rows * columns);
    (all, sizes(rows), sizes(columns)).prop_map(move |(mut all, by_row, by_column)| {
        for (i, x) in all.iter_mut().enumerate() {
            *x *= 2f32.powi(by_row[i / columns] + by_column[i % columns]);
        }
        all
    })
}

fn cases() -> impl Strategy<Value = Case> {
    (1usize..8, 1usize..50, 1usize..150, any::<bool>()).prop_flat_map(|(m, n, k, by_column)| {
        (numbers(m, k), numbers(k, n)).prop_map(move |(x, w)| Case { m, n, k, x, w, by_column })
    })
}

impl Case {
    /// What a step of one stands for in each column.
    fn scales(&self) -> Vec<f32> {
        let largest = |column: Option<usize>| {
            let of = |i: &usize| column.is_none_or(|column| i % self.n == column);
            let all = (0..self.w.len()).filter(of).map(|i| self.w[i].abs());
            all.fold(f32::MIN_POSITIVE * 127.0, f32::max) / 127.0
        };
        let one = |column: usize| largest(self.by_column.then_some(column));
        (0..self.n).map(one).collect()
    }

    fn check(&self, isa: Isa, by_row: bool) -> Result<(), TestCaseError> {
        let Self { m, n, k, ref x, ref w, .. } = *self;
        let pool = pool();
        let columns = self.scales();
        let rounded: Vec<_> =
            w.iter().enumerate().map(|(i, &w)| quantize_symmetric(w, columns[i % n])).collect();
        let mut packed = vec![0; i8::packed_len(isa, k, n)];
        i8::pack(isa, &[Columns { w: &rounded, order: Orientation::Kn, n }], k, &mut packed);
        let low = x.iter().copied().fold(0.0, f32::min);
        let high = x.iter().copied().fold(0.0, f32::max);
        let (scale, zero) = range(low, high, u8::MAX);
        let (mut scales, mut zeros) = (vec![scale; m], vec![zero; m]);
        let of_bytes = match by_row {
            true => Scales::Rows { scale: &mut scales, zero: &mut zeros, top: u8::MAX },
            false => Scales::Tensor { scale, zero },
        };
        let mut a = vec![0; m * k];
        let bytes = Bytes { out: &mut a, ld: k, scales: of_bytes, factors: None };
        quantize_rows_f32(&pool, isa, [m, k], x, k, bytes);
        let (zeros, of_rows) = match by_row {
            true => (i8::Zeros::Rows(&zeros), i8::Scales::Rows(&scales)),
            false => (i8::Zeros::Tensor(zero), i8::Scales::Tensor(scale)),
        };
        let mut out = vec![f32::NAN; m * n];
        let gemm = i8::Gemm {
            factors: i8::Factors { m, n, k, a: &a, lda: k, zeros, w: &packed },
            scales: of_rows,
            column_scales: &columns,
            out: Output::F32(&mut out),
            ldc: n,
            epilogue: Epilogue::default(),
        };
        i8::run(&pool, isa, gemm);
        for (i, &found) in out.iter().enumerate() {
            let (row, column) = (i / n, i % n);
            let (s, t) = (f64::from(scales[row]), f64::from(columns[column]));
            let (mut exact, mut bound) = (0.0, LAST_PLACES * f64::from(found.abs()));
            for j in 0..k {
                let (x, w) = (f64::from(x[row * k + j]), f64::from(w[j * n + column]));
                exact += x * w;
                bound += x.abs() * t * HALF + s * HALF * (w.abs() + t * HALF);
            }
            let off = (f64::from(found) - exact).abs();
            // Written so that not-a-number counts.
            prop_assert!(off <= bound, "{isa}, row {row}, column {column}: {off} above {bound}");
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 1 } else { 64 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn products_in_bytes_are_within_what_scales_imply(case in cases()) {
        for isa in Isa::available() {
            for by_row in [false, true] {
                case.check(isa, by_row)?;
            }
        }
    }
}
