//! Softmax and its logarithm over rows. Other axes are the caller's business: transpose first.

mod fast;

pub use fast::{log_softmax_f32, softmax_f32};

use crate::number::{Number, Real};

/// `out[i] = e^x[i] / Σ e^x[j]` over each row of `columns` elements.
pub fn softmax<T: Real>(x: &[T], out: &mut [T], columns: usize) {
    for_rows(x, out, columns, |x, out| {
        out.copy_from_slice(x);
        softmax_row(out);
    });
}

/// The same for one row, in place.
pub(crate) fn softmax_row<T: Real>(row: &mut [T]) {
    // Less the largest, so that nothing overflows: the factor e^-largest cancels.
    let largest = row.iter().fold(T::LOWEST, |largest, &x| largest.maximum(x));
    let mut sum = T::Sum::default();
    for x in &mut *row {
        *x = x.sub(largest).exp();
        sum = sum.add(x.widen());
    }
    let scale = T::narrow(T::Sum::ONE.div(sum));
    for x in row {
        *x = x.mul(scale);
    }
}

/// `out[i] = x[i] - log Σ e^x[j]` over each row of `columns` elements.
pub fn log_softmax<T: Real>(x: &[T], out: &mut [T], columns: usize) {
    for_rows(x, out, columns, |x, out| {
        let largest = x.iter().fold(T::LOWEST, |largest, &x| largest.maximum(x));
        let terms = x.iter().map(|x| x.sub(largest).exp().widen());
        let sum = terms.fold(T::Sum::default(), T::Sum::add);
        let log = T::narrow(sum).log();
        for (o, x) in out.iter_mut().zip(x) {
            *o = x.sub(largest).sub(log);
        }
    });
}

fn for_rows<T>(x: &[T], out: &mut [T], columns: usize, row: impl Fn(&[T], &mut [T])) {
    assert_eq!(x.len(), out.len(), "one output for each input");
    if columns == 0 {
        return;
    }
    assert_eq!(x.len() % columns, 0, "whole rows");
    for (x, out) in x.chunks_exact(columns).zip(out.chunks_exact_mut(columns)) {
        row(x, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: [f32; 6] = [1.0, 2.0, -3.0, 100.0, 101.5, 99.0];

    #[test]
    fn against_the_formula_in_f64() {
        let (mut out, mut logs) = ([0.0; 6], [0.0; 6]);
        softmax(&X, &mut out, 3);
        log_softmax(&X, &mut logs, 3);
        for (i, row) in X.chunks(3).enumerate() {
            let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
            for (j, &x) in row.iter().enumerate() {
                let p = f64::from(x).exp() / sum;
                assert!((f64::from(out[3 * i + j]) - p).abs() < 1e-7);
                assert!((f64::from(logs[3 * i + j]) - p.ln()).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn extremes() {
        let mut out = [0.0f32; 2];
        softmax(&[1e30, -1e30], &mut out, 2);
        assert_eq!(out, [1.0, 0.0]);
        log_softmax(&[0.0, -1e4], &mut out, 2);
        assert_eq!(out, [0.0, -1e4]);
        softmax::<f32>(&[], &mut [], 0);
    }
}
