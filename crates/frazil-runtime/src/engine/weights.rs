//! Weights as the kernels want them.

use std::borrow::Cow;

use bytes::Bytes;
use frazil_kernels::Isa;
use frazil_kernels::embed;
use frazil_kernels::gemm::{ALIGN, Columns, Orientation, f32 as gemm, i8 as gemm_i8};
use frazil_tensor::{DType, Element, Tensor};

use super::block::Block;
use super::{Packed, PackedPart, PackedWeights};
use crate::ops;

/// The weights of one product, or of several that read the same rows: their matrices stand side by
/// side.
pub(crate) struct Linear {
    pub k: usize,
    pub n: usize,
    packed: Memory,
    /// `[n]`, zeros where a product has none.
    pub bias: Vec<f32>,
    /// See [`name`].
    name: String,
}

/// The same of bytes, with a scale for each column.
pub(crate) struct LinearI8 {
    pub k: usize,
    pub n: usize,
    packed: Memory,
    /// What a step of one stands for: `[n]`.
    pub scales: Vec<f32>,
    /// `[n]`, zeros where a product has none.
    pub bias: Vec<f32>,
    /// See [`name`].
    name: String,
}

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

    /// Weights that were packed before: a window if they lie well, else a copy.
    fn before(found: &Packed, bytes: usize) -> Result<Self, String> {
        if found.range.len() != bytes {
            let found = found.range.len();
            return Err(format!("{found} bytes of packed weights, {bytes} are expected"));
        }
        let window = found.file.slice(found.range.clone());
        match (window.as_ptr() as usize).is_multiple_of(ALIGN) {
            true => Ok(Self::Mapped(window)),
            false => Self::made(bytes, |block| block.u8_mut()[..bytes].copy_from_slice(&window)),
        }
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
    /// The weight, float32 or bytes; none where it was packed before.
    pub weight: Option<Tensor>,
    /// Of bytes, what a step of one stands for: `[n]`, or `[1]`.
    pub scales: Option<Tensor>,
    pub k: usize,
    pub n: usize,
    /// Whether it is `[n, k]`.
    pub transposed: bool,
    /// `[n]`
    pub bias: Option<Tensor>,
}

impl Matrix {
    fn weight<T: Element>(&self) -> Result<Cow<'_, [T]>, String> {
        let weight = self.weight.as_ref().ok_or("the weight is not there")?;
        weight.values::<T>().map_err(|error| error.to_string())
    }

    /// The scale of each column.
    fn scales(&self) -> Result<Vec<f32>, String> {
        let scales = self.scales.as_ref().ok_or("the weight is no bytes")?;
        let scales = scales.values::<f32>().map_err(|error| error.to_string())?;
        match scales.len() {
            1 => Ok(vec![scales[0]; self.n]),
            n if n == self.n => Ok(scales.into_owned()),
            found => Err(format!("{found} scales for {} columns", self.n)),
        }
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

/// What packed weights are stored under: the nodes of their products.
fn name(parts: &[Matrix]) -> String {
    parts.iter().map(|part| part.node.as_str()).collect::<Vec<_>>().join(BESIDE)
}

/// Between the nodes of a [`name`]; no node's name has a space.
const BESIDE: &str = " + ";

/// The nodes of a name of packed weights.
pub(crate) fn nodes(name: &str) -> impl Iterator<Item = &str> {
    name.split(BESIDE)
}

/// `k` and all columns of matrices that stand side by side.
fn extents(parts: &[Matrix]) -> Result<(usize, usize), String> {
    let k = parts.first().map_or(0, |part| part.k);
    if parts.iter().any(|part| part.k != k) {
        return Err("the matrices cannot stand side by side".into());
    }
    let n = parts.iter().try_fold(0usize, |n, part| n.checked_add(part.n));
    // With room for columns that fill up a panel, and for their sums.
    let fits = |&n: &usize| n.checked_add(64)?.checked_mul(k.checked_add(8)?)?.checked_mul(8);
    let n = n.filter(|n| fits(n).is_some()).ok_or("there is no room for the packed weights")?;
    Ok((k, n))
}

/// The matrices, with these weights.
fn columns<'a, T>(
    parts: &[Matrix],
    weights: impl IntoIterator<Item = &'a [T]>,
) -> Vec<Columns<'a, T>> {
    let with = |(part, w): (&Matrix, _)| Columns { w, order: part.orientation(), n: part.n };
    parts.iter().zip(weights).map(with).collect()
}

impl Linear {
    /// Packs matrices side by side, or takes what was packed before; the reason if that cannot be.
    pub fn new(isa: Isa, parts: &[Matrix], before: Option<&PackedWeights>) -> Result<Self, String> {
        let (k, n) = extents(parts)?;
        let name = name(parts);
        let len = gemm::packed_len(isa, k, n);
        let packed = match before.and_then(|before| before.get(&name)) {
            Some(found) => Memory::before(found, 4 * len)?,
            None => {
                let weights = parts.iter().map(Matrix::weight::<f32>);
                let weights = weights.collect::<Result<Vec<_>, _>>()?;
                let columns = columns(parts, weights.iter().map(|weight| &**weight));
                Memory::made(4 * len, |block| {
                    gemm::pack(isa, &columns, k, &mut block.f32_mut()[..len]);
                })?
            }
        };
        Ok(Self { k, n, packed, bias: biases(parts)?, name })
    }

    /// What a file of packed weights has of it.
    pub fn stored(&self) -> PackedPart<'_> {
        PackedPart { node: &self.name, bytes: self.packed.bytes(), int8: false }
    }

    /// The weights as the product wants them.
    pub fn packed(&self) -> &[f32] {
        bytemuck::cast_slice(self.packed.bytes())
    }
}

impl LinearI8 {
    /// Packs matrices of bytes side by side, or takes what was packed before; the reason if that
    /// cannot be.
    pub fn new(isa: Isa, parts: &[Matrix], before: Option<&PackedWeights>) -> Result<Self, String> {
        let (k, n) = extents(parts)?;
        let name = name(parts);
        let len = gemm_i8::packed_len(isa, k, n);
        let packed = match before.and_then(|before| before.get(&name)) {
            Some(found) => Memory::before(found, len)?,
            None => {
                let weights = parts.iter().map(Matrix::weight::<i8>);
                let weights = weights.collect::<Result<Vec<_>, _>>()?;
                let columns = columns(parts, weights.iter().map(|weight| &**weight));
                Memory::made(len, |block| {
                    gemm_i8::pack(isa, &columns, k, &mut block.u8_mut()[..len]);
                })?
            }
        };
        let mut scales = Vec::with_capacity(n);
        for part in parts {
            scales.extend(part.scales()?);
        }
        Ok(Self { k, n, packed, scales, bias: biases(parts)?, name })
    }

    /// What a file of packed weights has of it.
    pub fn stored(&self) -> PackedPart<'_> {
        PackedPart { node: &self.name, bytes: self.packed.bytes(), int8: true }
    }

    /// The weights as the product wants them.
    pub fn packed(&self) -> &[u8] {
        self.packed.bytes()
    }
}

/// A table of rows that are looked up where they lie.
pub(crate) struct Table {
    /// Numbers, or bytes if there are scales.
    tensor: Tensor,
    scales: Option<Vec<f32>>,
    pub rows: usize,
    pub width: usize,
}

impl Table {
    /// The table, or why it is none.
    pub fn new(tensor: &Tensor) -> Result<Self, String> {
        Self::of(tensor, DType::F32, None)
    }

    /// The same of bytes.
    pub fn of_bytes(bytes: Option<&Tensor>, scales: &Tensor) -> Result<Self, String> {
        let bytes = bytes.ok_or("the table is not there")?;
        let scales = scales.values::<f32>().map_err(|error| error.to_string())?;
        Self::of(bytes, DType::I8, Some(scales.into_owned()))
    }

    fn of(tensor: &Tensor, wanted: DType, scales: Option<Vec<f32>>) -> Result<Self, String> {
        let &[rows, width] = &**tensor.shape() else {
            return Err(format!("a table is {} {}", tensor.dtype(), tensor.shape()));
        };
        let fits = scales.as_ref().is_none_or(|scales| [1, rows].contains(&scales.len()));
        if tensor.dtype() != wanted || !fits {
            return Err(format!("a table is {} {}", tensor.dtype(), tensor.shape()));
        }
        let tensor = ops::aligned(tensor.clone());
        tensor.sparse();
        Ok(Self { tensor, scales, rows, width })
    }

    /// The values, where they lie.
    pub fn values(&self) -> TableValues<'_> {
        const CHECKED: &str = "the element type was checked when the table was made";
        match &self.scales {
            None => TableValues::F32(self.tensor.values().expect(CHECKED)),
            Some(scales) => TableValues::I8(self.tensor.values().expect(CHECKED), scales),
        }
    }
}

/// The values of a table, where they lie.
pub(crate) enum TableValues<'a> {
    F32(Cow<'a, [f32]>),
    /// Bytes, and their scales.
    I8(Cow<'a, [i8]>, &'a [f32]),
}

impl TableValues<'_> {
    /// As kernels want them.
    pub fn table(&self) -> embed::Table<'_> {
        match self {
            Self::F32(values) => embed::Table::F32(values),
            Self::I8(bytes, scales) => embed::Table::I8 { bytes, scales },
        }
    }
}
