//! Cross entropy: what a row of scores costs when one class is right, and its gradient.

mod fast;

pub use fast::{Scores, cross_entropy_f32, cross_entropy_grad_f32};

use crate::layout::OutOfRange;
use crate::number::Real;

/// `out[i] = log Σ e^x[i] - x[i][label[i]]`, and 0 for a row whose label is negative.
/// `x: [rows, columns]  labels, out: [rows]`
pub fn cross_entropy<T: Real>(x: &[T], labels: &[i64], out: &mut [T]) -> Result<(), OutOfRange> {
    assert_eq!(out.len(), labels.len(), "a number for each row");
    for_rows(x, labels, |row, x, label| {
        out[row] = label.map_or(T::default(), |label| {
            let (largest, sum) = powers(x);
            T::narrow(sum.ln() + largest - x[label].widen())
        });
    })
}

/// `dx[i] = (softmax(x[i]) - one_hot(label[i])) · dy[i]`, and zeros for a row whose label is negative.
/// `x, dx: [rows, columns]  labels, dy: [rows]`
pub fn cross_entropy_grad<T: Real>(
    x: &[T],
    labels: &[i64],
    dy: &[T],
    dx: &mut [T],
) -> Result<(), OutOfRange> {
    assert_eq!(dy.len(), labels.len(), "a number for each row");
    assert_eq!(x.len(), dx.len(), "one output for each input");
    for_rows(x, labels, |row, x, label| {
        let dx = &mut dx[row * x.len()..][..x.len()];
        let Some(label) = label else { return dx.fill(T::default()) };
        let (largest, sum) = powers(x);
        let dy = dy[row].widen();
        for (i, (dx, x)) in dx.iter_mut().zip(x).enumerate() {
            let probability = (x.widen() - largest).exp() / sum;
            let right = if i == label { 1.0 } else { 0.0 };
            *dx = T::narrow((probability - right) * dy);
        }
    })
}

/// The largest number, and the sum of `e^(x - largest)`.
fn powers<T: Real>(x: &[T]) -> (f64, f64) {
    let largest = x.iter().fold(T::LOWEST, |largest, &x| largest.maximum(x)).widen();
    (largest, x.iter().map(|x| (x.widen() - largest).exp()).sum())
}

/// Whether every label that is not negative is below `columns`.
pub fn check_labels(labels: &[i64], columns: usize) -> Result<(), OutOfRange> {
    let outside = |&label: &i64| usize::try_from(label).is_ok_and(|label| label >= columns);
    match labels.iter().position(outside) {
        Some(at) => Err(OutOfRange { at, index: labels[at], limit: columns }),
        None => Ok(()),
    }
}

fn for_rows<T>(
    x: &[T],
    labels: &[i64],
    mut each: impl FnMut(usize, &[T], Option<usize>),
) -> Result<(), OutOfRange> {
    if labels.is_empty() {
        return Ok(());
    }
    let columns = x.len() / labels.len();
    assert_eq!(x.len(), labels.len() * columns, "whole rows");
    check_labels(labels, columns)?;
    for (row, &label) in labels.iter().enumerate() {
        each(row, &x[row * columns..][..columns], usize::try_from(label).ok());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand_and_by_differences() {
        let x = [1.0, 2.0, -3.0, 500.0, 501.5, 499.0, 7.0, 8.0, 9.0];
        let labels = [1, 0, -1];
        let mut out = [9.0; 3];
        cross_entropy(&x, &labels, &mut out).unwrap();
        let sum: f64 = x[..3].iter().map(|x| f64::exp(*x)).sum();
        assert!((out[0] - (sum.ln() - 2.0)).abs() < 1e-12);
        assert_eq!(out[2], 0.0);
        let dy = [2.0, -1.0, 5.0];
        let mut dx = [9.0; 9];
        cross_entropy_grad(&x, &labels, &dy, &mut dx).unwrap();
        for i in 0..9 {
            let at = |by: f64| {
                let (mut x, mut out) = (x, [0.0; 3]);
                x[i] += by;
                cross_entropy(&x, &labels, &mut out).unwrap();
                out.iter().zip(dy).map(|(y, dy)| y * dy).sum::<f64>()
            };
            let slope = (at(1e-5) - at(-1e-5)) / 2e-5;
            assert!((dx[i] - slope).abs() < 1e-6, "{} for {slope}", dx[i]);
        }
    }

    #[test]
    fn labels_are_checked() {
        let error = cross_entropy(&[0f32; 4], &[0, 2], &mut [0.0; 2]).unwrap_err();
        assert_eq!(error, OutOfRange { at: 1, index: 2, limit: 2 });
        cross_entropy::<f32>(&[], &[], &mut []).unwrap();
    }
}
