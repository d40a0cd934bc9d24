//! Weights as the kernels want them.

use std::borrow::Cow;

use bytes::Bytes;
use frazil_kernels::Isa;
use frazil_kernels::gemm::{ALIGN, Orientation, f32 as gemm, i8 as gemm_i8};
use frazil_tensor::{DType, Tensor};

use super::block::Block;
use crate::ops;

/// The weights of one product, or of several that read the same rows.
pub(crate) struct Linear {
    pub k: usize,
    pub n: usize,
    packed: Memory,
    /// `[n]`, zeros where a product has none.
    pub bias: Vec<f32>,
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
}

/// Packed weights: made here, or a window on a mapped file.
enum Memory {
    Made(Block, usize),
    Mapped(Bytes),
}

impl Memory {
    /// The first `len` bytes of a block.
    fn made(bytes: usize, fill: impl FnOnce(&mut Block)) -> Result<Self, String> {
        let room = || "there is no room for the packed weights".to_owned();
        let mut block = Block::zeroed(bytes.div_ceil(4)).ok_or_else(room)?;
        fill(&mut block);
        Ok(Self::Made(block, bytes))
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

/// `k` and all columns of matrices that stand side by side.
fn extents(parts: &[Matrix]) -> Result<(usize, usize), String> {
    let k = parts.first().map_or(0, |part| part.k);
    if parts.iter().any(|part| part.k != k) {
        return Err("the matrices read rows of different widths".into());
    }
    Ok((k, parts.iter().map(|part| part.n).sum()))
}

/// Matrices of one `k` side by side as `[k, n]`.
fn side_by_side(parts: &[Matrix]) -> Result<Vec<f32>, String> {
    let (k, n) = extents(parts)?;
    let mut all = vec![0.0; k * n];
    let mut begin = 0;
    for part in parts {
        let (weight, width) = (part.weight()?, part.n);
        for row in 0..k {
            let to = &mut all[row * n + begin..][..width];
            if part.transposed {
                to.iter_mut().enumerate().for_each(|(i, to)| *to = weight[i * k + row]);
            } else {
                to.copy_from_slice(&weight[row * width..][..width]);
            }
        }
        begin += width;
    }
    Ok(all)
}

impl Linear {
    /// Packs matrices of one `k` side by side, or takes what was packed before; the reason if that
    /// cannot be.
    pub fn new(isa: Isa, parts: &[Matrix], before: Option<Bytes>) -> Result<Self, String> {
        let (k, n) = extents(parts)?;
        let (len, bias) = (gemm::packed_len(isa, k, n), biases(parts)?);
        let packed = match (before, parts) {
            (Some(bytes), _) => mapped(bytes, 4 * len)?,
            // One matrix is packed from where it lies.
            (None, [part]) => {
                let weight = part.weight()?;
                Memory::made(4 * len, |block| {
                    let to = &mut block.f32_mut()[..len];
                    gemm::pack(isa, &weight, part.orientation(), k, n, to);
                })?
            }
            (None, parts) => {
                let all = side_by_side(parts)?;
                Memory::made(4 * len, |block| {
                    gemm::pack(isa, &all, Orientation::Kn, k, n, &mut block.f32_mut()[..len]);
                })?
            }
        };
        Ok(Self { k, n, packed, bias })
    }

    /// The weights as the product wants them.
    pub fn packed(&self) -> &[f32] {
        bytemuck::cast_slice(self.packed.bytes())
    }
}

impl LinearI8 {
    /// Rounds matrices of one `k` side by side to bytes, or takes what was packed before; the
    /// reason if that cannot be.
    pub fn new(
        isa: Isa,
        parts: &[Matrix],
        before: Option<(Bytes, Vec<f32>)>,
    ) -> Result<Self, String> {
        let (k, n) = extents(parts)?;
        let (len, bias) = (gemm_i8::packed_len(isa, k, n), biases(parts)?);
        if let Some((bytes, scales)) = before {
            if scales.len() != n {
                return Err(format!("{} scales for {n} columns", scales.len()));
            }
            return Ok(Self { k, n, packed: mapped(bytes, len)?, scales, bias });
        }
        let all = side_by_side(parts)?; // [k, n]
        let mut largest = vec![0f32; n];
        for row in all.chunks_exact(n.max(1)) {
            largest.iter_mut().zip(row).for_each(|(most, x)| *most = most.max(x.abs()));
        }
        let scales: Vec<f32> =
            largest.iter().map(|&most| if most > 0.0 { most / 127.0 } else { 1.0 }).collect();
        let mut rounded = Vec::with_capacity(all.len());
        for row in all.chunks_exact(n.max(1)) {
            rounded.extend(row.iter().zip(&scales).map(|(x, scale)| (x / scale).round() as i8));
        }
        let packed = Memory::made(len, |block| {
            gemm_i8::pack(isa, &rounded, Orientation::Kn, k, n, &mut block.u8_mut()[..len]);
        })?;
        Ok(Self { k, n, packed, scales, bias })
    }

    /// The weights as the product wants them.
    pub fn packed(&self) -> &[u8] {
        self.packed.bytes()
    }
}

/// A window on a file, if it is what is expected.
fn mapped(bytes: Bytes, len: usize) -> Result<Memory, String> {
    if bytes.len() != len {
        return Err(format!("{} bytes of packed weights, {len} are expected", bytes.len()));
    }
    if !(bytes.as_ptr() as usize).is_multiple_of(ALIGN) {
        return Err("packed weights do not begin at a cache line".into());
    }
    Ok(Memory::Mapped(bytes))
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
        Ok(Self { tensor: ops::aligned(tensor.clone()), rows, width })
    }

    pub fn values(&self) -> Cow<'_, [f32]> {
        self.tensor.values().expect("the element type was checked when the table was made")
    }
}
