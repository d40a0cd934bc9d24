//! Weights as the kernels want them.

use frazil_kernels::Isa;
use frazil_kernels::gemm::{Orientation, f32 as gemm, i8 as gemm_i8};
use frazil_tensor::{DType, Tensor};

use super::block::Block;
use crate::ops;

/// The weights of one product, or of several that read the same rows.
pub(crate) struct Linear {
    pub k: usize,
    pub n: usize,
    packed: Block,
    packed_len: usize,
    /// `[n]`, zeros where a product has none.
    pub bias: Vec<f32>,
}

/// A matrix with its orientation and bias.
pub(crate) struct Matrix {
    pub weight: Tensor,
    /// Whether it is `[n, k]`.
    pub transposed: bool,
    pub bias: Option<Tensor>,
}

impl Matrix {
    /// `(k, n)`, if weight and bias are what a fast product needs; else the reason.
    pub fn extents(&self) -> Result<(usize, usize), String> {
        let shape = self.weight.shape();
        let &[rows, columns] = &**shape else { return Err(format!("the weight is {shape}")) };
        let (k, n) = if self.transposed { (columns, rows) } else { (rows, columns) };
        if self.weight.dtype() != DType::F32 {
            return Err(format!("the weight is {}", self.weight.dtype()));
        }
        match &self.bias {
            Some(bias) if bias.dtype() != DType::F32 || **bias.shape() != [n] => {
                Err(format!("the bias is {} {}", bias.dtype(), bias.shape()))
            }
            _ => Ok((k, n)),
        }
    }
}

impl Linear {
    /// Packs matrices of one `k` side by side; the reason if there is no room for them.
    pub fn pack(isa: Isa, parts: &[Matrix]) -> Result<Self, String> {
        let packed = |k: usize, n: usize, weight: &[f32], orientation: Orientation| {
            let packed_len = gemm::packed_len(isa, k, n);
            let room = || "there is no room for the packed weights".to_owned();
            let mut packed = Block::zeroed(packed_len).ok_or_else(room)?;
            gemm::pack(isa, weight, orientation, k, n, &mut packed.f32_mut()[..packed_len]);
            Ok::<_, String>((packed, packed_len))
        };
        // One matrix is packed from where it lies.
        if let [part] = parts {
            let (k, n) = part.extents()?;
            let orientation = if part.transposed { Orientation::Nk } else { Orientation::Kn };
            let weight = part.weight.values::<f32>().map_err(|e| e.to_string())?;
            let (packed, packed_len) = packed(k, n, &weight, orientation)?;
            let bias = part.bias.as_ref().map(|bias| bias.values::<f32>()).transpose();
            let bias = bias.map_err(|e| e.to_string())?;
            let bias = bias.map_or_else(|| vec![0.0; n], |bias| bias.into_owned());
            return Ok(Self { k, n, packed, packed_len, bias });
        }
        let (k, n, all, bias) = side_by_side(parts)?;
        let (packed, packed_len) = packed(k, n, &all, Orientation::Kn)?;
        Ok(Self { k, n, packed, packed_len, bias })
    }

    /// The weights as the product wants them.
    pub fn packed(&self) -> &[f32] {
        &self.packed.f32()[..self.packed_len]
    }
}

/// The same in bytes: symmetric, with a scale for each column.
pub(crate) struct LinearI8 {
    pub k: usize,
    pub n: usize,
    packed: Block,
    packed_len: usize,
    /// What a step of one stands for: `[n]`.
    pub scales: Vec<f32>,
    /// `[n]`, zeros where a product has none.
    pub bias: Vec<f32>,
}

impl LinearI8 {
    /// Rounds matrices of one `k` side by side to bytes; the reason if there is no room for them.
    pub fn pack(isa: Isa, parts: &[Matrix]) -> Result<Self, String> {
        let (k, n, all, bias) = side_by_side(parts)?; // [k, n]
        let mut largest = vec![0f32; n];
        for row in all.chunks_exact(n.max(1)) {
            largest.iter_mut().zip(row).for_each(|(most, x)| *most = most.max(x.abs()));
        }
        let scales: Vec<f32> =
            largest.iter().map(|&most| if most > 0.0 { most / 127.0 } else { 1.0 }).collect();
        let mut bytes = Vec::with_capacity(all.len());
        for row in all.chunks_exact(n.max(1)) {
            bytes.extend(row.iter().zip(&scales).map(|(x, scale)| (x / scale).round() as i8));
        }
        let packed_len = gemm_i8::packed_len(isa, k, n);
        let room = || "there is no room for the packed weights".to_owned();
        let mut packed = Block::zeroed(packed_len.div_ceil(4)).ok_or_else(room)?;
        gemm_i8::pack(isa, &bytes, Orientation::Kn, k, n, &mut packed.u8_mut()[..packed_len]);
        Ok(Self { k, n, packed, packed_len, scales, bias })
    }

    /// The weights as the product wants them.
    pub fn packed(&self) -> &[u8] {
        &self.packed.u8()[..self.packed_len]
    }
}

/// Matrices of one `k` side by side as `[k, n]`, and their biases.
fn side_by_side(parts: &[Matrix]) -> Result<(usize, usize, Vec<f32>, Vec<f32>), String> {
    let extents = parts.iter().map(Matrix::extents).collect::<Result<Vec<_>, _>>()?;
    let k = extents.first().map_or(0, |&(k, _)| k);
    if extents.iter().any(|&(other, _)| other != k) {
        return Err("the matrices read rows of different widths".into());
    }
    let n = extents.iter().map(|&(_, n)| n).sum();
    let mut all = vec![0.0; k * n];
    let mut bias = vec![0.0; n];
    let mut begin = 0;
    for (part, (_, width)) in parts.iter().zip(extents) {
        let weight = part.weight.values::<f32>().map_err(|e| e.to_string())?;
        for row in 0..k {
            let to = &mut all[row * n + begin..][..width];
            if part.transposed {
                to.iter_mut().enumerate().for_each(|(i, to)| *to = weight[i * k + row]);
            } else {
                to.copy_from_slice(&weight[row * width..][..width]);
            }
        }
        if let Some(tensor) = &part.bias {
            let values = tensor.values::<f32>().map_err(|e| e.to_string())?;
            bias[begin..begin + width].copy_from_slice(&values);
        }
        begin += width;
    }
    Ok((k, n, all, bias))
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

    pub fn values(&self) -> std::borrow::Cow<'_, [f32]> {
        self.tensor.values().expect("the element type was checked when the table was made")
    }
}
