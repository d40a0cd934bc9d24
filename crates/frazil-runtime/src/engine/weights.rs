//! Weights as the kernels want them.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use frazil_kernels::Isa;
use frazil_kernels::gemm::{ALIGN, Orientation, f32 as gemm, i8 as gemm_i8};
use frazil_tensor::{DType, Tensor};

use super::block::Block;
use super::{Packed, PackedPart, PackedWeights};
use crate::ops;

/// The weights of one product, or of several that read the same rows: panels are self-contained, so
/// those of one matrix follow those of another.
pub(crate) struct Linear {
    pub k: usize,
    pub n: usize,
    packed: Memory,
    /// `[n]`, zeros where a product has none.
    pub bias: Vec<f32>,
    /// The nodes, and the bytes of each one's weights.
    parts: Vec<(String, Range<usize>)>,
}

/// The same in bytes: symmetric, with a scale for each column.
pub(crate) struct LinearI8 {
    pub k: usize,
    pub n: usize,
    packed: Memory,
    /// What a step of one stands for: `[n]`.
    pub scales: Vec<f32>,
    /// `[n]`, zeros where a product has none.
    pub bias: Vec<f32>,
    /// The nodes, the bytes of each one's weights, and its columns.
    parts: Vec<(String, Range<usize>, Range<usize>)>,
}

/// Matrices stand side by side if their columns are a multiple of this: no panel of any
/// instruction set is then shared by two.
pub(crate) const WHOLE_PANELS: usize = 192;

/// Packed weights: made here, or a window on a mapped file.
enum Memory {
    Made(Block, usize),
    Mapped(Bytes),
}

impl Memory {
    /// So many bytes, which `fill` writes.
    fn made(bytes: usize, fill: impl FnOnce(&mut Block)) -> Result<Self, String> {
        let room = || "there is no room for the packed weights".to_owned();
        let mut block = Block::zeroed(bytes.div_ceil(4)).ok_or_else(room)?;
        fill(&mut block);
        Ok(Self::Made(block, bytes))
    }

    /// Weights that were packed before: a window if they lie next to each other, else a copy.
    fn before(parts: &[&Packed], bytes: usize) -> Result<Self, String> {
        let found: usize = parts.iter().map(|part| part.range.len()).sum();
        if found != bytes {
            return Err(format!("{found} bytes of packed weights, {bytes} are expected"));
        }
        let follows = |pair: &[&Packed]| {
            let same = pair[0].file.as_ptr() == pair[1].file.as_ptr();
            same && pair[0].range.end == pair[1].range.start
        };
        if let (Some(first), Some(last)) = (parts.first(), parts.last())
            && parts.windows(2).all(follows)
        {
            let window = first.file.slice(first.range.start..last.range.end);
            if (window.as_ptr() as usize).is_multiple_of(ALIGN) {
                return Ok(Self::Mapped(window));
            }
        }
        Self::made(bytes, |block| {
            let mut to = block.u8_mut();
            for part in parts {
                let (here, rest) = to.split_at_mut(part.range.len());
                here.copy_from_slice(&part.file[part.range.clone()]);
                to = rest;
            }
        })
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Made(block, bytes) => &block.u8()[..*bytes],
            Self::Mapped(bytes) => bytes,
        }
    }
}

/// A matrix with its orientation and bias.
pub(crate) struct Matrix {
    /// The node of the product.
    pub node: String,
    /// The weight; none where it was packed before.
    pub weight: Option<Tensor>,
    pub k: usize,
    pub n: usize,
    /// Whether it is `[n, k]`.
    pub transposed: bool,
    /// `[n]`
    pub bias: Option<Tensor>,
}

impl Matrix {
    fn weight(&self) -> Result<Cow<'_, [f32]>, String> {
        let weight = self.weight.as_ref().ok_or("the weight is not there")?;
        weight.values::<f32>().map_err(|error| error.to_string())
    }

    fn orientation(&self) -> Orientation {
        if self.transposed { Orientation::Nk } else { Orientation::Kn }
    }
}

/// The biases of matrices that stand side by side.
fn biases(parts: &[Matrix]) -> Result<Vec<f32>, String> {
    let mut all = Vec::new();
    for part in parts {
        match &part.bias {
            Some(bias) => all.extend_from_slice(&bias.values::<f32>().map_err(|e| e.to_string())?),
            None => all.resize(all.len() + part.n, 0.0),
        }
    }
    Ok(all)
}

/// Where each matrix lies in what is packed, by the bytes that one of so many columns takes.
fn ranges(parts: &[Matrix], bytes: impl Fn(usize) -> usize) -> Vec<Range<usize>> {
    let mut end = 0;
    let mut range = |part: &Matrix| {
        let begin = end;
        end += bytes(part.n);
        begin..end
    };
    parts.iter().map(&mut range).collect()
}

/// What was packed before of all these matrices; none unless there is something of each.
fn packed_before<'a>(
    parts: &[Matrix],
    before: Option<&'a PackedWeights>,
) -> Option<Vec<&'a Packed>> {
    parts.iter().map(|part| before?.get(&part.node)).collect()
}

/// `k` and all columns of matrices that stand side by side.
fn extents(parts: &[Matrix]) -> Result<(usize, usize), String> {
    let k = parts.first().map_or(0, |part| part.k);
    let whole = |part: &Matrix| part.k == k && part.n.is_multiple_of(WHOLE_PANELS);
    if parts.len() > 1 && !parts.iter().all(whole) {
        return Err("the matrices cannot stand side by side".into());
    }
    Ok((k, parts.iter().map(|part| part.n).sum()))
}

impl Linear {
    /// Packs matrices side by side, or takes what was packed before; the reason if that cannot be.
    pub fn new(isa: Isa, parts: &[Matrix], before: Option<&PackedWeights>) -> Result<Self, String> {
        let (k, n) = extents(parts)?;
        let ranges = ranges(parts, |n| 4 * gemm::packed_len(isa, k, n));
        let end = ranges.last().map_or(0, |last| last.end);
        let packed = match packed_before(parts, before) {
            Some(found) if found.iter().any(|part| part.scales.is_some()) => {
                return Err("the weights were packed as bytes".into());
            }
            Some(found) => Memory::before(&found, end)?,
            None => {
                let weights = parts.iter().map(Matrix::weight).collect::<Result<Vec<_>, _>>()?;
                Memory::made(end, |block| {
                    for ((part, weight), range) in parts.iter().zip(&weights).zip(&ranges) {
                        let to = &mut block.f32_mut()[range.start / 4..range.end / 4];
                        gemm::pack(isa, weight, part.orientation(), k, part.n, to);
                    }
                })?
            }
        };
        let parts_of = |(part, range): (&Matrix, Range<usize>)| (part.node.clone(), range);
        let named = parts.iter().zip(ranges).map(parts_of).collect();
        Ok(Self { k, n, packed, bias: biases(parts)?, parts: named })
    }

    /// What a file of packed weights has of it.
    pub fn stored(&self) -> impl Iterator<Item = PackedPart<'_>> {
        self.parts.iter().map(|(node, range)| PackedPart {
            node,
            bytes: &self.packed.bytes()[range.clone()],
            scales: None,
        })
    }

    /// The weights as the product wants them.
    pub fn packed(&self) -> &[f32] {
        bytemuck::cast_slice(self.packed.bytes())
    }
}

impl LinearI8 {
    /// Rounds matrices side by side to bytes, or takes what was packed before; the reason if that
    /// cannot be.
    pub fn new(isa: Isa, parts: &[Matrix], before: Option<&PackedWeights>) -> Result<Self, String> {
        let (k, n) = extents(parts)?;
        let bytes = ranges(parts, |n| gemm_i8::packed_len(isa, k, n));
        let end = bytes.last().map_or(0, |last| last.end);
        let named = parts.iter().zip(bytes.clone()).zip(ranges(parts, |n| n));
        let named = named.map(|((part, bytes), columns)| (part.node.clone(), bytes, columns));
        let named = named.collect();
        if let Some(found) = packed_before(parts, before) {
            let mut scales = Vec::with_capacity(n);
            for (found, part) in found.iter().zip(parts) {
                let of_part = found.scales.as_ref().filter(|scales| scales.len() == part.n);
                scales.extend_from_slice(of_part.ok_or("the weights were not packed as bytes")?);
            }
            let packed = Memory::before(&found, end)?;
            return Ok(Self { k, n, packed, scales, bias: biases(parts)?, parts: named });
        }
        let mut scales = Vec::with_capacity(n);
        let mut rounded = Vec::with_capacity(parts.len());
        for part in parts {
            let (weight, all) = (part.weight()?, scales.len());
            let column = |at: usize| if part.transposed { at / k.max(1) } else { at % part.n };
            let mut largest = vec![0f32; part.n];
            for (at, x) in weight.iter().enumerate() {
                largest[column(at)] = largest[column(at)].max(x.abs());
            }
            scales.extend(largest.iter().map(|&m| if m > 0.0 { m / 127.0 } else { 1.0 }));
            let scale = |at: usize| scales[all + column(at)];
            let round = |(at, x): (usize, &f32)| (x / scale(at)).round() as i8;
            rounded.push(weight.iter().enumerate().map(round).collect::<Vec<i8>>());
        }
        let packed = Memory::made(end, |block| {
            for ((part, rounded), range) in parts.iter().zip(&rounded).zip(bytes) {
                let to = &mut block.u8_mut()[range];
                gemm_i8::pack(isa, rounded, part.orientation(), k, part.n, to);
            }
        })?;
        Ok(Self { k, n, packed, scales, bias: biases(parts)?, parts: named })
    }

    /// What a file of packed weights has of it.
    pub fn stored(&self) -> impl Iterator<Item = PackedPart<'_>> {
        self.parts.iter().map(|(node, bytes, columns)| PackedPart {
            node,
            bytes: &self.packed.bytes()[bytes.clone()],
            scales: Some(&self.scales[columns.clone()]),
        })
    }

    /// The weights as the product wants them.
    pub fn packed(&self) -> &[u8] {
        self.packed.bytes()
    }
}

/// A table of rows that are looked up where they lie.
pub(crate) struct Table {
    tensor: Tensor,
    pub rows: usize,
    pub width: usize,
}

impl Table {
    /// The table, or why it is none.
    pub fn new(tensor: &Tensor) -> Result<Self, String> {
        let (&[rows, width], DType::F32) = (&**tensor.shape(), tensor.dtype()) else {
            return Err(format!("a table is {} {}", tensor.dtype(), tensor.shape()));
        };
        let tensor = ops::aligned(tensor.clone());
        tensor.sparse();
        Ok(Self { tensor, rows, width })
    }

    pub fn values(&self) -> Cow<'_, [f32]> {
        self.tensor.values().expect("the element type was checked when the table was made")
    }
}
