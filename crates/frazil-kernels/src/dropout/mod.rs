//! Dropout: elements by chance set to 0, the others divided by the probability that they stay.
//!
//! Chance is [`random`]: which elements go does not depend on threads, on the order
//! of rows, or on the rows beside them.

mod fast;

pub use fast::dropout_f32;

use crate::number::Real;
use crate::random::{self, Key, Row};
use crate::simd::Simd;

/// How elements are dropped at one site.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// The probability that an element goes, in `0..1`.
    pub rate: f32,
    /// Tells the places of one graph apart.
    pub site: u32,
    /// Seed and step.
    pub key: Key,
}

impl Dropout {
    /// What elements that stay are multiplied by.
    pub fn factor(&self) -> f64 {
        1.0 / (1.0 - f64::from(self.rate))
    }

    /// The elements of a row, of one head of it.
    pub(crate) fn row(&self, place: u32, head: u32) -> Chance {
        let bound = (f64::from(self.rate) * 16_777_216.0) as u32;
        Chance { row: self.key.row(self.site, place, head), bound }
    }
}

/// Which elements of a row go: those of which the first 24 random bits are below a bound. So many,
/// because they fit into a number of type `f32`.
#[derive(Clone, Copy)]
pub(crate) struct Chance {
    row: Row,
    bound: u32,
}

impl Chance {
    /// Whether element `i` stays.
    #[inline]
    pub(crate) fn stays(self, i: u32) -> bool {
        self.row.word(i) >> 8 >= self.bound
    }

    /// `factor` for the elements that stay, 0 for the others.
    #[inline(always)]
    pub(crate) fn factors<S: Simd>(self, s: S, i: S::I32, factor: f32) -> S::F32 {
        let bits = s.to_f32(s.shr_i32::<8>(random::words(s, self.row, i)));
        let goes = s.lt(bits, s.splat(self.bound as f32));
        s.select(goes, s.splat(0.0), s.splat(factor))
    }
}

/// `x, out: [rows, columns]  places: [rows]`. It is its own gradient.
pub fn dropout<T: Real>(x: &[T], places: &[u32], out: &mut [T], dropout: &Dropout) {
    assert_eq!(x.len(), out.len(), "one output for each input");
    if places.is_empty() {
        return;
    }
    let columns = x.len() / places.len();
    assert_eq!(x.len(), places.len() * columns, "whole rows");
    let factor = T::narrow(dropout.factor());
    for (row, &place) in places.iter().enumerate() {
        let chance = dropout.row(place, 0);
        let range = row * columns..(row + 1) * columns;
        for (i, (o, x)) in out[range.clone()].iter_mut().zip(&x[range]).enumerate() {
            *o = if chance.stays(i as u32) { x.mul(factor) } else { T::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_keep_their_elements_wherever_they_lie() {
        let how = Dropout { rate: 0.25, site: 4, key: Key { seed: 9, step: 1 } };
        let x = [1.0f32; 300];
        let (mut a, mut b) = ([9.0; 300], [9.0; 300]);
        dropout(&x, &[10, 11, 12], &mut a, &how);
        dropout(&x, &[12, 10, 11], &mut b, &how);
        assert_eq!(a[..100], b[100..200]);
        assert_eq!(a[200..], b[..100]);
        let stays = (1.0f64 / 0.75) as f32;
        assert!(a.iter().all(|&x| x == 0.0 || x == stays));
        let gone = a.iter().filter(|&&x| x == 0.0).count();
        assert!((50..100).contains(&gone), "{gone} of 300");
        let none = Dropout { rate: 0.0, ..how };
        dropout(&x, &[1, 2, 3], &mut a, &none);
        assert_eq!(a, x);
    }
}
