//! How operands lie in memory: strides for broadcasting, and views that reorder without copying.
//!
//! These structs are made by the caller, once for each shape, and may allocate; the kernels only
//! walk them. Neighbouring dimensions that lie together are joined, so that a walk is few long runs.

use std::fmt;

/// An index that depends on data points outside of what it indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    /// Which element of the indices it is, counted in row-major order.
    pub at: usize,
    /// The index.
    pub index: i64,
    /// How many there are to choose from.
    pub limit: usize,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "index {} at position {} is not in 0..{}", self.index, self.at, self.limit)
    }
}

impl std::error::Error for OutOfRange {}

/// Row-major strides, in elements.
pub fn strides(dims: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; dims.len()];
    for i in (1..dims.len()).rev() {
        strides[i - 1] = strides[i] * dims[i];
    }
    strides
}

/// NumPy's rule: shapes are aligned at the right, a missing or single extent is repeated.
/// `None` if two extents differ and neither is 1.
pub fn broadcast_dims(shapes: &[&[usize]]) -> Option<Vec<usize>> {
    let rank = shapes.iter().map(|dims| dims.len()).max().unwrap_or(0);
    let mut out = vec![1; rank];
    for dims in shapes {
        for (o, &dim) in out[rank - dims.len()..].iter_mut().zip(*dims) {
            match (*o, dim) {
                (_, 1) => {}
                (1, _) => *o = dim,
                (a, b) if a == b => {}
                _ => return None,
            }
        }
    }
    Some(out)
}

/// `N` row-major operands read side by side under their common broadcast shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broadcast<const N: usize> {
    dims: Vec<usize>,
    strides: [Vec<usize>; N],
}

/// A stretch of the output, and where each operand stands for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run<const N: usize> {
    /// First element of the output.
    pub out: usize,
    /// How many elements.
    pub len: usize,
    /// First element of each operand.
    pub starts: [usize; N],
    /// By how much each operand steps: 0 or 1.
    pub steps: [usize; N],
}

impl<const N: usize> Broadcast<N> {
    /// The common walk over operands of these shapes; `None` if they do not broadcast.
    pub fn new(shapes: [&[usize]; N]) -> Option<Self> {
        Some(Self::to(&broadcast_dims(&shapes)?, shapes))
    }

    /// Operands of `shapes` repeated to `dims`, to which they must broadcast.
    fn to(dims: &[usize], shapes: [&[usize]; N]) -> Self {
        let rank = dims.len();
        let full: [Vec<usize>; N] = shapes.map(|shape| {
            let mut out = vec![0; rank];
            let own = strides(shape);
            for (i, (&dim, &stride)) in shape.iter().zip(&own).enumerate() {
                out[rank - shape.len() + i] = if dim == 1 { 0 } else { stride };
            }
            out
        });
        // From the inside out, join an extent to the one inside it where every operand goes on.
        let mut joined = Self { dims: Vec::new(), strides: [const { Vec::new() }; N] };
        for axis in (0..rank).rev().filter(|&axis| dims[axis] != 1) {
            let goes_on = joined.dims.last().is_some_and(|&inner| {
                (0..N).all(|n| {
                    joined.strides[n].last().is_some_and(|&step| full[n][axis] == step * inner)
                })
            });
            if let (true, Some(inner)) = (goes_on, joined.dims.last_mut()) {
                *inner *= dims[axis];
            } else {
                joined.dims.push(dims[axis]);
                for (strides, full) in joined.strides.iter_mut().zip(&full) {
                    strides.push(full[axis]);
                }
            }
        }
        joined.dims.reverse();
        joined.strides.iter_mut().for_each(|strides| strides.reverse());
        joined
    }

    /// Number of elements of the output.
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// The stretches of the output, in order.
    pub fn runs(&self) -> impl Iterator<Item = Run<N>> + '_ {
        let (&len, outer) = self.dims.split_last().unwrap_or((&1, &[]));
        let steps = std::array::from_fn(|n| self.strides[n].last().copied().unwrap_or(0));
        let count: usize = outer.iter().product();
        (0..if len == 0 { 0 } else { count }).map(move |run| {
            let mut starts = [0; N];
            let mut rest = run;
            for axis in (0..outer.len()).rev() {
                let at = rest % outer[axis];
                rest /= outer[axis];
                for (start, strides) in starts.iter_mut().zip(&self.strides) {
                    *start += at * strides[axis];
                }
            }
            Run { out: run * len, len, starts, steps }
        })
    }
}

/// A reordered window on a row-major block: each output axis steps through the input by a stride
/// that may be zero (repeat) or negative (backwards).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    dims: Vec<usize>,
    strides: Vec<isize>,
    start: isize,
}

impl View {
    /// All of a row-major block.
    pub fn new(dims: &[usize]) -> Self {
        let strides = strides(dims).into_iter().map(|stride| stride as isize).collect();
        Self { dims: dims.to_vec(), strides, start: 0 }
    }

    /// Extents of what the view shows.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Output axis `i` is axis `order[i]` of this view. `order` must be a permutation.
    pub fn permute(&self, order: &[usize]) -> Self {
        assert_eq!(order.len(), self.dims.len(), "a permutation names every axis");
        Self {
            dims: order.iter().map(|&axis| self.dims[axis]).collect(),
            strides: order.iter().map(|&axis| self.strides[axis]).collect(),
            start: self.start,
        }
    }

    /// `len` elements of `axis`: `begin`, `begin + step`, …; all of them must exist.
    pub fn slice(&self, axis: usize, begin: usize, step: isize, len: usize) -> Self {
        let mut view = self.clone();
        if len > 0 {
            let last = begin as isize + step * (len as isize - 1);
            assert!(begin < self.dims[axis], "the slice begins inside");
            assert!((0..self.dims[axis] as isize).contains(&last), "the slice ends inside");
            view.start += begin as isize * self.strides[axis];
        }
        view.dims[axis] = len;
        view.strides[axis] *= step;
        view
    }

    /// Repeated to `dims` by NumPy's rule; `None` if an extent is neither equal nor 1.
    pub fn broadcast(&self, dims: &[usize]) -> Option<Self> {
        let added = dims.len().checked_sub(self.dims.len())?;
        let mut strides = vec![0; dims.len()];
        for (i, (&dim, &stride)) in self.dims.iter().zip(&self.strides).enumerate() {
            match dim {
                _ if dim == dims[added + i] => strides[added + i] = stride,
                1 => {}
                _ => return None,
            }
        }
        Some(Self { dims: dims.to_vec(), strides, start: self.start })
    }

    /// Axis `i` repeated `multiples[i]` times, block after block. The view's own axes are doubled:
    /// the result lies in memory as the tiled block does, not under its extents.
    pub fn tile(&self, multiples: &[usize]) -> Self {
        assert_eq!(multiples.len(), self.dims.len(), "there is a multiple for every axis");
        let (mut dims, mut strides) = (Vec::new(), Vec::new());
        for ((&dim, &stride), &multiple) in self.dims.iter().zip(&self.strides).zip(multiples) {
            dims.extend([multiple, dim]);
            strides.extend([0, stride]);
        }
        Self { dims, strides, start: self.start }
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// The innermost rows in order: start in the input, step, length.
    pub fn rows(&self) -> impl Iterator<Item = (isize, isize, usize)> + '_ {
        let (&len, outer) = self.dims.split_last().unwrap_or((&1, &[]));
        let step = self.strides.last().copied().unwrap_or(1);
        let count: usize = outer.iter().product();
        (0..if len == 0 { 0 } else { count }).map(move |row| {
            let (mut start, mut rest) = (self.start, row);
            for axis in (0..outer.len()).rev() {
                start += (rest % outer[axis]) as isize * self.strides[axis];
                rest /= outer[axis];
            }
            (start, step, len)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_broadcast_as_numpy_does() {
        assert_eq!(broadcast_dims(&[&[2, 3], &[3]]), Some(vec![2, 3]));
        assert_eq!(broadcast_dims(&[&[4, 1, 3], &[2, 1]]), Some(vec![4, 2, 3]));
        assert_eq!(broadcast_dims(&[&[1], &[0]]), Some(vec![0]));
        assert_eq!(broadcast_dims(&[&[], &[]]), Some(vec![]));
        assert_eq!(broadcast_dims(&[&[2], &[3]]), None);
    }

    #[test]
    fn equal_shapes_are_one_run() {
        let runs: Vec<_> = Broadcast::new([&[2, 3, 4], &[2, 3, 4]]).unwrap().runs().collect();
        assert_eq!(runs, [Run { out: 0, len: 24, starts: [0, 0], steps: [1, 1] }]);
        let bias: Vec<_> = Broadcast::new([&[2, 2, 4], &[4]]).unwrap().runs().collect();
        assert_eq!(bias.len(), 4);
        assert_eq!(bias[3], Run { out: 12, len: 4, starts: [12, 0], steps: [1, 1] });
        let scalar: Vec<_> = Broadcast::new([&[2, 2, 4], &[1]]).unwrap().runs().collect();
        assert_eq!(scalar, [Run { out: 0, len: 16, starts: [0, 0], steps: [1, 0] }]);
        let single: Vec<_> = Broadcast::new([&[], &[]]).unwrap().runs().collect();
        assert_eq!(single, [Run { out: 0, len: 1, starts: [0, 0], steps: [0, 0] }]);
        assert_eq!(Broadcast::new([&[2, 0], &[1, 1]]).unwrap().runs().count(), 0);
        assert_eq!(Broadcast::new([&[0, 2], &[2]]).unwrap().runs().count(), 0);
    }

    #[test]
    fn columns_and_rows_meet() {
        let walk = Broadcast::new([&[2, 1], &[1, 3]]).unwrap();
        let runs: Vec<_> = walk.runs().collect();
        assert_eq!(runs[0], Run { out: 0, len: 3, starts: [0, 0], steps: [0, 1] });
        assert_eq!(runs[1], Run { out: 3, len: 3, starts: [1, 0], steps: [0, 1] });
        assert_eq!(walk.elements(), 6);
    }

    #[test]
    fn a_view_reads_backwards() {
        let rows: Vec<_> = View::new(&[2, 5]).slice(1, 4, -2, 3).rows().collect();
        assert_eq!(rows, [(4, -2, 3), (9, -2, 3)]);
        assert!(View::new(&[2]).broadcast(&[3]).is_none());
        assert_eq!(View::new(&[2, 0]).rows().count(), 0);
    }
}
