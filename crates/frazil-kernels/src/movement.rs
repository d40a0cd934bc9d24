//! Elements change places, not values: transpose, slice, broadcast, tile, concat, pad, gather, one-hot;
//! and the ways back, where places that are read more than once add up.
//!
//! Generic over anything that can be cloned, so that elements of any type, also byte strings, move.
//! Transposes, slices, broadcasts and tiles are all [`copy`] of the right [`View`].

use crate::layout::{OutOfRange, View};
use crate::number::Number;

/// `out` becomes what `view` shows of `x`, in row-major order.
pub fn copy<T: Clone>(x: &[T], view: &View, out: &mut [T]) {
    assert_eq!(out.len(), view.elements(), "the output has as many elements as the view");
    let mut at = 0;
    for (start, step, len) in view.rows() {
        let row = &mut out[at..][..len];
        if step == 1 {
            row.clone_from_slice(&x[start as usize..][..len]);
        } else {
            for (i, o) in row.iter_mut().enumerate() {
                *o = x[(start + i as isize * step) as usize].clone();
            }
        }
        at += len;
    }
}

/// The opposite of [`copy`]: `x` goes where `view` shows it in `out`, zeros elsewhere.
pub fn spread<T: Clone + Default>(x: &[T], view: &View, out: &mut [T]) {
    assert_eq!(x.len(), view.elements(), "the input has as many elements as the view");
    out.fill(T::default());
    let mut at = 0;
    for (start, step, len) in view.rows() {
        for (i, x) in x[at..][..len].iter().enumerate() {
            out[(start + i as isize * step) as usize] = x.clone();
        }
        at += len;
    }
}

/// One part of a concatenation. `part: [outer, run]` is put at `offset` of every row of
/// `out: [outer, row]`.
pub fn concat_part<T: Clone>(part: &[T], out: &mut [T], outer: usize, row: usize, offset: usize) {
    assert_eq!(out.len(), outer * row, "out is [outer, row]");
    if part.is_empty() {
        return;
    }
    let run = part.len() / outer;
    for (part, out) in part.chunks_exact(run).zip(out.chunks_exact_mut(row)) {
        out[offset..][..run].clone_from_slice(part);
    }
}

/// `x`, whose extents are `dims`, inside a frame of `value`: `before[i]` and `after[i]` elements
/// are added to axis `i`.
pub fn pad<T: Clone>(
    x: &[T],
    dims: &[usize],
    before: &[usize],
    after: &[usize],
    value: &T,
    out: &mut [T],
) {
    out.fill(value.clone());
    let (mut stride, mut start) = (1, 0);
    for axis in (0..dims.len()).rev() {
        start += before[axis] * stride;
        stride *= before[axis] + dims[axis] + after[axis];
    }
    assert_eq!(out.len(), stride, "the output has the padded extents");
    let row = dims.last().copied().unwrap_or(1);
    if row == 0 {
        return;
    }
    for (i, row_of_x) in x.chunks_exact(row).enumerate() {
        // Where row `i` begins: its position on every outer axis, in the padded block's strides.
        let (mut at, mut rest, mut stride) = (start, i, 1);
        for axis in (0..dims.len()).rev() {
            let padded = before[axis] + dims[axis] + after[axis];
            if axis + 1 < dims.len() {
                at += rest % dims[axis] * stride;
                rest /= dims[axis];
            }
            stride *= padded;
        }
        out[at..][..row].clone_from_slice(row_of_x);
    }
}

/// Extents of a [`gather`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather {
    /// Extents that table and indices share (`batch_dims`), multiplied; 1 without.
    pub batch: usize,
    /// Extents of the table between those and the axis, multiplied.
    pub outer: usize,
    /// Entries on the axis.
    pub axis: usize,
    /// Extents behind the axis, multiplied.
    pub inner: usize,
    /// Indices of each batch.
    pub indices: usize,
}

/// `table: [batch, outer, axis, inner]  indices: [batch, indices]
///  out: [batch, outer, indices, inner]`
pub fn gather<T: Clone, I: Copy + Into<i64>>(
    table: &[T],
    indices: &[I],
    out: &mut [T],
    extents: &Gather,
) -> Result<(), OutOfRange> {
    let &Gather { batch, outer, axis, inner, indices: count } = extents;
    assert_eq!(table.len(), batch * outer * axis * inner, "table is [batch, outer, axis, inner]");
    assert_eq!(indices.len(), batch * count, "indices are [batch, indices]");
    assert_eq!(out.len(), batch * outer * count * inner, "out is [batch, outer, indices, inner]");
    check(indices, axis)?;
    let mut to = 0;
    for b in 0..batch {
        for o in 0..outer {
            let block = &table[(b * outer + o) * axis * inner..][..axis * inner];
            for &index in &indices[b * count..][..count] {
                let from = &block[index.into() as usize * inner..][..inner];
                out[to..][..inner].clone_from_slice(from);
                to += inner;
            }
        }
    }
    Ok(())
}

/// The opposite of a [`gather`] of whole blocks: zeros, to which block `i` of `updates` is added at
/// `indices[i]`, in order. `updates: [indices, inner]  out: [axis, inner]`
pub fn scatter_add<T: Number, I: Copy + Into<i64>>(
    updates: &[T],
    indices: &[I],
    inner: usize,
    out: &mut [T],
) -> Result<(), OutOfRange> {
    assert_eq!(updates.len(), indices.len() * inner, "updates are [indices, inner]");
    out.fill(T::default());
    if inner == 0 {
        return Ok(());
    }
    check(indices, out.len() / inner)?;
    for (update, &index) in updates.chunks_exact(inner).zip(indices) {
        let to = &mut out[index.into() as usize * inner..][..inner];
        to.iter_mut().zip(update).for_each(|(to, update)| *to = to.add(*update));
    }
    Ok(())
}

/// Whether every index is in `0..limit`.
pub fn check<I: Copy + Into<i64>>(indices: &[I], limit: usize) -> Result<(), OutOfRange> {
    let inside = |index: i64| usize::try_from(index).is_ok_and(|index| index < limit);
    match indices.iter().position(|&index| !inside(index.into())) {
        Some(at) => Err(OutOfRange { at, index: indices[at].into(), limit }),
        None => Ok(()),
    }
}

/// `indices: [outer, inner]  out: [outer, depth, inner]`: `on` at each index, `off` elsewhere.
/// An index outside of `0..depth` gives no `on`.
pub fn one_hot<T: Clone, I: Copy + Into<i64>>(
    indices: &[I],
    out: &mut [T],
    depth: usize,
    inner: usize,
    (on, off): (&T, &T),
) {
    assert_eq!(out.len(), indices.len() * depth, "out is [outer, depth, inner]");
    out.fill(off.clone());
    for (i, &index) in indices.iter().enumerate() {
        if let Some(index) = usize::try_from(index.into()).ok().filter(|&index| index < depth) {
            out[(i / inner * depth + index) * inner + i % inner] = on.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(dims: &[usize], view: impl Fn(View) -> View) -> Vec<i32> {
        let x: Vec<i32> = (0..dims.iter().product::<usize>() as i32).collect();
        let view = view(View::new(dims));
        let mut out = vec![-1; view.elements()];
        copy(&x, &view, &mut out);
        out
    }

    #[test]
    fn transposes() {
        assert_eq!(shown(&[2, 3], |v| v.permute(&[1, 0])), [0, 3, 1, 4, 2, 5]);
        assert_eq!(shown(&[2, 1, 2], |v| v.permute(&[2, 0, 1])), [0, 2, 1, 3]);
        assert_eq!(shown(&[], |v| v.permute(&[])), [0]);
        // [b, s, n, d] -> [b, n, s, d]
        let expected = [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11];
        assert_eq!(shown(&[1, 3, 2, 2], |v| v.permute(&[0, 2, 1, 3])), expected);
    }

    #[test]
    fn slices() {
        assert_eq!(shown(&[2, 3], |v| v.slice(1, 1, 1, 2)), [1, 2, 4, 5]);
        assert_eq!(shown(&[2, 3], |v| v.slice(1, 2, -1, 3)), [2, 1, 0, 5, 4, 3]);
        assert_eq!(shown(&[2, 3], |v| v.slice(0, 1, -1, 2).slice(1, 0, 2, 2)), [3, 5, 0, 2]);
        assert_eq!(shown(&[2, 3], |v| v.slice(1, 3, 1, 0)), [0i32; 0]);
    }

    #[test]
    fn repeats() {
        assert_eq!(shown(&[2, 1], |v| v.broadcast(&[2, 2, 2]).unwrap()), [0, 0, 1, 1, 0, 0, 1, 1]);
        let tiled = [0, 1, 0, 1, 2, 3, 2, 3, 0, 1, 0, 1, 2, 3, 2, 3];
        assert_eq!(shown(&[2, 2], |v| v.tile(&[2, 2])), tiled);
        assert_eq!(shown(&[2, 2], |v| v.tile(&[0, 2])), [0i32; 0]);
    }

    #[test]
    fn concatenates_by_parts() {
        let mut out = [0; 6]; // [2, 3]
        concat_part(&[1, 2], &mut out, 2, 3, 0);
        concat_part(&[3, 4, 5, 6], &mut out, 2, 3, 1);
        concat_part(&[], &mut out, 2, 3, 3);
        assert_eq!(out, [1, 3, 4, 2, 5, 6]);
    }

    #[test]
    fn pads_every_axis() {
        let mut out = [0; 12]; // [3, 4]
        pad(&[1, 2, 3, 4], &[2, 2], &[0, 1], &[1, 1], &9, &mut out);
        assert_eq!(out, [9, 1, 2, 9, 9, 3, 4, 9, 9, 9, 9, 9]);
        let mut deep = [0; 8]; // [2, 2, 2]
        pad(&[1, 2], &[1, 2, 1], &[1, 0, 1], &[0, 0, 0], &0, &mut deep);
        assert_eq!(deep, [0, 0, 0, 0, 0, 1, 0, 2]);
        let mut scalar = [0];
        pad(&[7], &[], &[], &[], &0, &mut scalar);
        assert_eq!(scalar, [7]);
    }

    #[test]
    fn gathers_rows_columns_and_batches() {
        let table = ["a", "b", "c", "d", "e", "f"]; // [3, 2]
        let mut rows = [""; 4];
        let extents = Gather { batch: 1, outer: 1, axis: 3, inner: 2, indices: 2 };
        gather(&table, &[2i32, 0], &mut rows, &extents).unwrap();
        assert_eq!(rows, ["e", "f", "a", "b"]);
        let mut columns = [""; 3];
        let extents = Gather { batch: 1, outer: 3, axis: 2, inner: 1, indices: 1 };
        gather(&table, &[1i64], &mut columns, &extents).unwrap();
        assert_eq!(columns, ["b", "d", "f"]);
        let mut batched = [""; 3];
        let extents = Gather { batch: 3, outer: 1, axis: 2, inner: 1, indices: 1 };
        gather(&table, &[1i32, 0, 1], &mut batched, &extents).unwrap();
        assert_eq!(batched, ["b", "c", "f"]);
        let error = gather(&table, &[1i32, 2, -1], &mut batched, &extents).unwrap_err();
        assert_eq!(error, OutOfRange { at: 1, index: 2, limit: 2 });
    }

    #[test]
    fn one_hot_on_any_axis() {
        let mut out = [0.5; 6]; // [2, 3]
        one_hot(&[1i32, 7], &mut out, 3, 1, (&1.0, &0.0));
        assert_eq!(out, [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
        let mut first = [9; 4]; // depth first: [2, 2]
        one_hot(&[1i64, 0], &mut first, 2, 2, (&1, &0));
        assert_eq!(first, [0, 1, 1, 0]);
    }
}
