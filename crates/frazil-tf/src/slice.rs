//! Slices: the parts in which a partitioned variable is stored, in both checkpoint formats.
//!
//! A slice has one extent per axis; an axis without one is whole. The table key of a slice is
//! made of the variable's name and the extents in an order-preserving code; only writing that
//! code is needed, because every slice is also listed as a message.

use std::fmt;

use bytes::Bytes;
use frazil_tensor::{DType, Shape, Tensor};

use crate::proto::TensorSliceProto;
use crate::proto::tensor_slice_proto::{Extent as ExtentProto, extent::HasLength};
use crate::{Error, Result};

/// Part of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// First index.
    pub start: usize,
    /// How many.
    pub length: usize,
}

/// A box in a tensor: per axis an extent, or `None` for the whole axis.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TensorSlice(Vec<Option<Extent>>);

impl TensorSlice {
    /// A slice with these extents, outermost axis first.
    pub fn new(extents: Vec<Option<Extent>>) -> Self {
        Self(extents)
    }

    /// Rows `start..start + length` of a tensor of rank `rank`, as TensorFlow's partitioners cut.
    pub fn rows(rank: usize, start: usize, length: usize) -> Self {
        let mut extents = vec![None; rank];
        if let Some(first) = extents.first_mut() {
            *first = Some(Extent { start, length });
        }
        Self(extents)
    }

    /// What a saver's graph says of a variable that is part of another: the shape of the whole and
    /// the part, as in `4 10 0,2:-` for the first two rows. `None` if it is something else.
    pub fn parse(text: &str) -> Option<(Shape, Self)> {
        let (shape, slice) = text.rsplit_once(' ')?;
        let shape: Vec<usize> =
            shape.split(' ').map(|dim| dim.parse().ok()).collect::<Option<_>>()?;
        let extent = |text: &str| match text.split_once(',') {
            None => (text == "-").then_some(None),
            Some((start, length)) => {
                Some(Some(Extent { start: start.parse().ok()?, length: length.parse().ok()? }))
            }
        };
        let slice = Self(slice.split(':').map(extent).collect::<Option<_>>()?);
        let shape = Shape::from(shape);
        slice.resolve(&shape).map(|_| (shape, slice))
    }

    /// The shape of the part that this is of a tensor of shape `full`.
    pub fn shape(&self, full: &Shape) -> Option<Shape> {
        let extents = self.resolve(full)?;
        Some(Shape::from(extents.iter().map(|extent| extent.length).collect::<Vec<_>>()))
    }

    /// The part that this is of `full`.
    pub fn cut(&self, name: &str, full: &Tensor) -> Result<Tensor> {
        let extents = resolve_named(self, name, full.shape())?;
        if self.is_whole(full.shape()) {
            return Ok(full.clone());
        }
        let bytes = full.bytes()?;
        let size = full.dtype().size().expect("what is not strings has a size");
        let shape = Shape::from(extents.iter().map(|e| e.length).collect::<Vec<_>>());
        // Runs along the last axis, one for each place on the others.
        let (last, outer) = extents.split_last().expect("a scalar has no part but the whole");
        let width = full.shape()[outer.len()];
        let mut rows = vec![0usize];
        for (extent, &dim) in outer.iter().zip(full.shape().iter()) {
            let along = |row: usize| {
                (extent.start..extent.start + extent.length).map(move |i| row * dim + i)
            };
            rows = rows.into_iter().flat_map(along).collect();
        }
        let run = last.length * size;
        let mut part = Vec::with_capacity(rows.len() * run);
        for row in rows {
            let start = (row * width + last.start) * size;
            part.extend_from_slice(&bytes[start..start + run]);
        }
        Ok(Tensor::new(full.dtype(), shape, part)?)
    }

    /// The slice of a message; `None` if an extent is negative.
    pub(crate) fn from_proto(proto: &TensorSliceProto) -> Option<Self> {
        let extent = |extent: &ExtentProto| match extent.has_length {
            None if extent.start == 0 => Some(None),
            None => None,
            Some(HasLength::Length(length)) => Some(Some(Extent {
                start: usize::try_from(extent.start).ok()?,
                length: usize::try_from(length).ok()?,
            })),
        };
        proto.extent.iter().map(extent).collect::<Option<_>>().map(Self)
    }

    pub(crate) fn to_proto(&self) -> TensorSliceProto {
        let extent = |extent: &Option<Extent>| match extent {
            None => ExtentProto::default(),
            Some(Extent { start, length }) => ExtentProto {
                start: *start as i64,
                has_length: Some(HasLength::Length(*length as i64)),
            },
        };
        TensorSliceProto { extent: self.0.iter().map(extent).collect() }
    }

    /// The table key under which this slice of `name` is stored.
    pub(crate) fn key(&self, name: &str) -> Vec<u8> {
        let mut key = Vec::with_capacity(name.len() + 8 + 4 * self.0.len());
        put_number(&mut key, 0);
        put_string(&mut key, name.as_bytes());
        put_number(&mut key, self.0.len() as u64);
        for extent in &self.0 {
            let (start, length) = match extent {
                None => (0, -1),
                Some(extent) => (extent.start as i64, extent.length as i64),
            };
            put_signed(&mut key, start);
            put_signed(&mut key, length);
        }
        key
    }

    /// The extent on every axis of a tensor of shape `full`; `None` if the slice is not in it.
    pub(crate) fn resolve(&self, full: &Shape) -> Option<Vec<Extent>> {
        if self.0.len() != full.len() {
            return None;
        }
        let axis = |(extent, &dim): (&Option<Extent>, &usize)| match *extent {
            None => Some(Extent { start: 0, length: dim }),
            Some(extent) => (extent.start.checked_add(extent.length)? <= dim).then_some(extent),
        };
        self.0.iter().zip(full.iter()).map(axis).collect()
    }

    /// Whether this is all of a tensor of shape `full`.
    pub(crate) fn is_whole(&self, full: &Shape) -> bool {
        self.resolve(full)
            .is_some_and(|extents| extents.iter().zip(full.iter()).all(|(e, &d)| e.length == d))
    }
}

/// `[0..3, :]`
impl fmt::Display for TensorSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axis = |extent: &Option<Extent>| match extent {
            None => ":".to_owned(),
            Some(Extent { start, length }) => format!("{start}..{}", start.saturating_add(*length)),
        };
        let axes: Vec<String> = self.0.iter().map(axis).collect();
        f.pad(&format!("[{}]", axes.join(", ")))
    }
}

/// Puts a partitioned variable together. The parts must lie in `full`, be as large as their
/// slices, overlap nowhere and leave nothing out; nothing is allocated before that is sure.
pub(crate) fn assemble(
    name: &str,
    dtype: DType,
    full: &Shape,
    parts: &[(TensorSlice, Tensor)],
) -> Result<Tensor> {
    let too_large = || frazil_tensor::Error::TooLarge(full.clone());
    let elements = full.elements().ok_or_else(too_large)?;
    let mut boxes = Vec::with_capacity(parts.len());
    let mut stored = 0usize;
    for (slice, part) in parts {
        let extents = resolve_named(slice, name, full)?;
        let shape = Shape::from(extents.iter().map(|e| e.length).collect::<Vec<_>>());
        if part.dtype() != dtype || *part.shape() != shape {
            return Err(Error::SliceMismatch {
                tensor: name.into(),
                slice: slice.to_string(),
                expected: format!("{dtype} {shape}"),
                found: format!("{} {}", part.dtype(), part.shape()),
            });
        }
        // Every part is in memory or mapped, so this cannot overflow by much; still, be sure.
        stored = stored.saturating_add(part.elements());
        boxes.push(extents);
    }
    if stored < elements {
        let (tensor, shape) = (name.into(), full.clone());
        return Err(Error::SlicesIncomplete { tensor, shape, stored, elements });
    }
    let mut covered = Covered::new(elements);
    let overlap = |slice: &TensorSlice| Error::SlicesOverlap {
        tensor: name.into(),
        slice: slice.to_string(),
    };
    if stored > elements {
        // Find the one to blame before any copy.
        for ((slice, _), extents) in parts.iter().zip(&boxes) {
            runs(full, extents, |to, run| covered.mark(to, run)).ok_or_else(|| overlap(slice))?;
        }
    }
    if dtype == DType::String {
        let mut joined = vec![Bytes::new(); elements];
        for ((slice, part), extents) in parts.iter().zip(&boxes) {
            let mut from = part.strings()?.iter();
            let done = runs(full, extents, |to, run| {
                covered.mark(to, run)?;
                joined[to..to + run].iter_mut().zip(&mut from).for_each(|(j, s)| *j = s.clone());
                Some(())
            });
            done.ok_or_else(|| overlap(slice))?;
        }
        return Ok(Tensor::from_strings(full.clone(), joined)?);
    }
    let size = dtype.size().unwrap_or(1);
    let mut joined = vec![0u8; elements.checked_mul(size).ok_or_else(too_large)?];
    for ((slice, part), extents) in parts.iter().zip(&boxes) {
        let mut from = &part.bytes()?[..];
        let done = runs(full, extents, |to, run| {
            covered.mark(to, run)?;
            let (head, tail) = from.split_at(run * size);
            joined[to * size..(to + run) * size].copy_from_slice(head);
            from = tail;
            Some(())
        });
        done.ok_or_else(|| overlap(slice))?;
    }
    Ok(Tensor::new(dtype, full.clone(), joined)?)
}

/// More slices than this are not compared in pairs.
const MOST_PAIRED: usize = 2048;

/// Whether these slices can make the whole, judged without their values: all lie in it, have its
/// number of elements, and no two overlap. (Of thousands of slices, the overlap shows only when
/// they are put together.)
pub(crate) fn check_partition(name: &str, full: &Shape, slices: &[TensorSlice]) -> Result<()> {
    let mut boxes = Vec::with_capacity(slices.len());
    let mut stored = 0usize;
    for slice in slices {
        let extents = resolve_named(slice, name, full)?;
        let elements = extents.iter().try_fold(1usize, |n, e| n.checked_mul(e.length));
        stored = stored.saturating_add(elements.unwrap_or(usize::MAX));
        boxes.push(extents);
    }
    let elements = full.elements().ok_or_else(|| frazil_tensor::Error::TooLarge(full.clone()))?;
    if stored < elements {
        let (tensor, shape) = (name.into(), full.clone());
        return Err(Error::SlicesIncomplete { tensor, shape, stored, elements });
    }
    let overlap = |a: &[Extent], b: &[Extent]| {
        a.iter().zip(b).all(|(a, b)| a.start < b.start + b.length && b.start < a.start + a.length)
    };
    let compared = &boxes[..boxes.len().min(MOST_PAIRED)];
    for (number, one) in compared.iter().enumerate() {
        if compared[..number].iter().any(|other| overlap(one, other)) {
            let slice = slices[number].to_string();
            return Err(Error::SlicesOverlap { tensor: name.into(), slice });
        }
    }
    Ok(())
}

/// Resolves a slice or says which one of what does not fit.
pub(crate) fn resolve_named(slice: &TensorSlice, name: &str, full: &Shape) -> Result<Vec<Extent>> {
    slice.resolve(full).ok_or_else(|| Error::SliceOutside {
        tensor: name.into(),
        slice: slice.to_string(),
        shape: full.clone(),
    })
}

/// The slices of a listing, or an error if one makes no sense.
pub(crate) fn from_protos(name: &str, slices: &[TensorSliceProto]) -> Result<Vec<TensorSlice>> {
    let slice = |proto: &TensorSliceProto| {
        TensorSlice::from_proto(proto).ok_or_else(|| Error::BadSlice { tensor: name.into() })
    };
    slices.iter().map(slice).collect()
}

/// Calls `visit(first element, how many)` for each contiguous run of a box in a tensor of shape
/// `full`, in order; stops at the first `None`.
fn runs(
    full: &Shape,
    extents: &[Extent],
    mut visit: impl FnMut(usize, usize) -> Option<()>,
) -> Option<()> {
    if extents.iter().any(|e| e.length == 0) {
        return Some(());
    }
    // Axes from `split` on make one run: all whole but the outermost of them.
    let whole = |axis: usize| extents[axis].length == full[axis];
    let mut split = extents.len();
    while split > 0 && (split == extents.len() || whole(split)) {
        split -= 1;
    }
    let run: usize = extents[split..].iter().map(|e| e.length).product();
    let mut strides = vec![1usize; full.len()];
    for axis in (1..full.len()).rev() {
        strides[axis - 1] = strides[axis] * full[axis];
    }
    let mut to: usize = extents.iter().zip(&strides).map(|(e, stride)| e.start * stride).sum();
    let mut index = vec![0usize; split];
    loop {
        visit(to, run)?;
        // The next outer index, like an odometer.
        let mut axis = split;
        loop {
            if axis == 0 {
                return Some(());
            }
            axis -= 1;
            index[axis] += 1;
            to += strides[axis];
            if index[axis] < extents[axis].length {
                break;
            }
            to -= index[axis] * strides[axis];
            index[axis] = 0;
        }
    }
}

/// One bit per element: which have been written.
struct Covered(Vec<u64>);

impl Covered {
    fn new(elements: usize) -> Self {
        Self(vec![0; elements.div_ceil(64)])
    }

    /// Marks a run; `None` if part of it was marked before.
    fn mark(&mut self, start: usize, length: usize) -> Option<()> {
        let end = start + length;
        let mut at = start;
        while at < end {
            let (word, bit) = (at / 64, at % 64);
            let take = (64 - bit).min(end - at);
            let bits = (u64::MAX >> (64 - take)) << bit;
            if self.0[word] & bits != 0 {
                return None;
            }
            self.0[word] |= bits;
            at += take;
        }
        Some(())
    }
}

/// Unsigned: the number of significant bytes, then those, big-endian.
fn put_number(out: &mut Vec<u8>, value: u64) {
    let zeros = (value.leading_zeros() / 8) as usize;
    out.push(8 - zeros as u8);
    out.extend_from_slice(&value.to_be_bytes()[zeros..]);
}

/// Bytes, with 0 and 255 escaped, and a mark at the end that sorts before any continuation.
fn put_string(out: &mut Vec<u8>, value: &[u8]) {
    for &byte in value {
        out.push(byte);
        match byte {
            0 => out.push(0xff),
            0xff => out.push(0),
            _ => {}
        }
    }
    out.extend_from_slice(&[0, 1]);
}

/// Signed: as many leading one bits (for a negative number, zero bits) as the code has bytes,
/// then the number big-endian in two's complement.
fn put_signed(out: &mut Vec<u8>, value: i64) {
    let magnitude = if value < 0 { !value } else { value };
    let bits = 64 - magnitude.leading_zeros() as usize;
    let len = bits / 7 + 1;
    let header = !(0xffff_u32 >> len) as u16;
    let mut code = i128::from(value).to_be_bytes();
    let code = &mut code[16 - len..];
    for (byte, header) in code.iter_mut().zip(header.to_be_bytes()) {
        *byte ^= header;
    }
    out.extend_from_slice(code);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(value: i64) -> Vec<u8> {
        let mut out = Vec::new();
        put_signed(&mut out, value);
        out
    }

    #[test]
    fn signed_codes_sort_as_the_numbers_do() {
        assert_eq!(signed(0), [0x80]);
        assert_eq!(signed(-1), [0x7f]);
        assert_eq!(signed(63), [0xbf]);
        assert_eq!(signed(64), [0xc0, 0x40]);
        assert_eq!(signed(-64), [0x40]);
        assert_eq!(signed(-65), [0x3f, 0xbf]);
        assert_eq!(signed(i64::MAX).len(), 10);
        let mut numbers: Vec<i64> =
            (0..63).flat_map(|b| [1 << b, -(1 << b), (1 << b) - 1]).collect();
        numbers.extend([i64::MIN, i64::MAX]);
        numbers.sort();
        numbers.dedup();
        assert!(numbers.windows(2).all(|w| signed(w[0]) < signed(w[1])));
    }

    #[test]
    fn keys_escape_their_names() {
        assert_eq!(TensorSlice::new(vec![]).key("a\0"), b"\0a\0\xff\0\x01\0");
        assert_eq!(TensorSlice::rows(2, 3, 2).key("w"), b"\0w\0\x01\x01\x02\x83\x82\x80\x7f");
    }

    fn numbers(shape: &[usize], first: i32) -> Tensor {
        let elements: usize = shape.iter().product();
        Tensor::from_vec(shape, (first..).take(elements).collect()).unwrap()
    }

    #[test]
    fn parts_go_where_they_belong() {
        let slice = |extents: [(usize, usize); 3]| {
            TensorSlice(extents.map(|(start, length)| Some(Extent { start, length })).to_vec())
        };
        let parts = [
            (slice([(0, 1), (0, 2), (0, 1)]), numbers(&[1, 2, 1], 0)),
            (slice([(0, 1), (0, 2), (1, 2)]), numbers(&[1, 2, 2], 10)),
            (slice([(1, 1), (0, 2), (0, 3)]), numbers(&[1, 2, 3], 20)),
        ];
        let full = Shape::from([2, 2, 3]);
        let whole = assemble("x", DType::I32, &full, &parts).unwrap();
        assert_eq!(
            &*whole.values::<i32>().unwrap(),
            &[0, 10, 11, 1, 12, 13, 20, 21, 22, 23, 24, 25]
        );
        let slices = |parts: &[(TensorSlice, Tensor)]| -> Vec<TensorSlice> {
            parts.iter().map(|(slice, _)| slice.clone()).collect()
        };
        check_partition("x", &full, &slices(&parts)).unwrap();
        assert!(matches!(
            check_partition("x", &full, &slices(&parts[..2])),
            Err(Error::SlicesIncomplete { stored: 6, .. })
        ));
        assert!(matches!(
            assemble("x", DType::I32, &full, &parts[..2]),
            Err(Error::SlicesIncomplete { stored: 6, elements: 12, .. })
        ));
        let twice = [parts[0].clone(), parts[0].clone(), parts[1].clone(), parts[2].clone()];
        assert!(matches!(
            assemble("x", DType::I32, &full, &twice),
            Err(Error::SlicesOverlap { .. })
        ));
        // As many elements as there should be, but not the right ones.
        let other = [parts[2].clone(), parts[2].clone()];
        assert!(matches!(
            check_partition("x", &full, &slices(&other)),
            Err(Error::SlicesOverlap { .. })
        ));
        assert!(matches!(
            assemble("x", DType::I32, &full, &other),
            Err(Error::SlicesOverlap { .. })
        ));
        assert!(matches!(
            assemble("x", DType::I32, &Shape::from([2, 2, 2]), &parts),
            Err(Error::SliceOutside { .. })
        ));
        assert!(matches!(
            assemble("x", DType::F32, &full, &parts),
            Err(Error::SliceMismatch { .. })
        ));
    }

    #[test]
    fn long_runs_cross_words() {
        let mut covered = Covered::new(300);
        covered.mark(3, 200).unwrap();
        covered.mark(203, 97).unwrap();
        covered.mark(0, 3).unwrap();
        assert!((0..300).all(|i| covered.mark(i, 1).is_none()));
    }

    #[test]
    fn what_savers_write_of_parts() {
        let (full, slice) = TensorSlice::parse("4 10 0,2:-").unwrap();
        assert_eq!((full, slice.to_string().as_str()), ([4, 10].into(), "[0..2, :]"));
        for wrong in ["", "4 10", "4 10 0,2", "4 10 3,2:-", "4 x 0,2:-", "4 10 0,2:0", " -"] {
            assert!(TensorSlice::parse(wrong).is_none(), "{wrong}");
        }
        let whole = Tensor::from_vec([2, 2, 3], (0..12).collect::<Vec<i32>>()).unwrap();
        let (_, slice) = TensorSlice::parse("2 2 3 -:1,1:0,2").unwrap();
        assert_eq!(slice.shape(whole.shape()), Some([2, 1, 2].into()));
        let part = slice.cut("w", &whole).unwrap();
        assert_eq!(&*part.values::<i32>().unwrap(), &[3, 4, 9, 10]);
        let (_, all) = TensorSlice::parse("2 2 3 -:0,2:-").unwrap();
        assert_eq!(all.cut("w", &whole).unwrap(), whole);
        let flat = whole.reshape([12]).unwrap();
        assert!(matches!(slice.cut("w", &flat), Err(Error::SliceOutside { .. })));
    }
}
