//! Weights as the kernels want them.

use frazil_kernels::Isa;
use frazil_kernels::gemm::{Orientation, f32 as gemm};
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
        let mut extents = parts.iter().map(Matrix::extents).collect::<Result<Vec<_>, _>>()?;
        let k = extents.first().map_or(0, |&(k, _)| k);
        let n = extents.iter().map(|&(_, n)| n).sum();
        let read = |tensor: &Tensor| {
            tensor.values::<f32>().map(|values| values.into_owned()).map_err(|e| e.to_string())
        };
        let mut bias = vec![0.0; n];
        let mut begin = 0;
        for (part, &(_, n)) in parts.iter().zip(&extents) {
            if let Some(tensor) = &part.bias {
                bias[begin..begin + n].copy_from_slice(&read(tensor)?);
            }
            begin += n;
        }
        let room = || "there is no room for the packed weights".to_owned();
        let packed_len = gemm::packed_len(isa, k, n);
        let mut packed = Block::zeroed(packed_len).ok_or_else(room)?;
        let room = &mut packed.f32_mut()[..packed_len];
        if let (Some(part), 1) = (parts.first(), extents.len()) {
            let orientation = if part.transposed { Orientation::Nk } else { Orientation::Kn };
            let weight = part.weight.values::<f32>().map_err(|e| e.to_string())?;
            gemm::pack(isa, &weight, orientation, k, n, room);
        } else {
            // Side by side as [k, n]; small beside the packed weights.
            let mut all = vec![0.0; k * n];
            let mut begin = 0;
            for (part, (_, width)) in parts.iter().zip(extents.drain(..)) {
                let weight = part.weight.values::<f32>().map_err(|e| e.to_string())?;
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
            gemm::pack(isa, &all, Orientation::Kn, k, n, room);
        }
        Ok(Self { k, n, packed, packed_len, bias })
    }

    /// The weights as the product wants them.
    pub fn packed(&self) -> &[f32] {
        &self.packed.f32()[..self.packed_len]
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
        Ok(Self { tensor: ops::aligned(tensor.clone()), rows, width })
    }

    pub fn values(&self) -> std::borrow::Cow<'_, [f32]> {
        self.tensor.values().expect("the element type was checked when the table was made")
    }
}
