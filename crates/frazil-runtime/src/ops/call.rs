//! What an operation is given, and how it complains.

use std::borrow::Cow;

use bytes::Bytes;
use frazil_graph::{Graph, Node};
use frazil_kernels::OutOfRange;
use frazil_kernels::cast::{Scalar, cast};
use frazil_tensor::{DType, Element, Shape, Tensor};

use crate::{Error, Result};

/// A node that runs.
pub(crate) struct Call<'a> {
    pub graph: &'a Graph,
    pub node: &'a Node,
    pub inputs: Vec<Tensor>,
}

impl Call<'_> {
    /// The first input.
    pub fn x(&self) -> &Tensor {
        &self.inputs[0]
    }

    /// Half-precision numbers among the inputs.
    pub fn half(&self) -> Option<DType> {
        let is_half = |dtype: &DType| matches!(dtype, DType::F16 | DType::BF16);
        self.inputs.iter().map(Tensor::dtype).find(is_half)
    }

    pub fn fail(&self, reason: impl Into<String>) -> Error {
        let (name, op) = self.name_and_op();
        Error::Operands { name, op, reason: reason.into() }
    }

    pub fn tensor(&self, source: frazil_tensor::Error) -> Error {
        let (name, op) = self.name_and_op();
        Error::Tensor { name, op, source }
    }

    pub fn wrong_type(&self, dtype: DType) -> Error {
        let (name, op) = self.name_and_op();
        Error::Type { name, op, dtype }
    }

    /// An index of input `i` that is out of range.
    pub fn out_of_range(&self, what: &'static str, i: usize, error: OutOfRange) -> Error {
        let (name, op) = self.name_and_op();
        let OutOfRange { at, index, limit } = error;
        let indices = self.graph.value_name(self.node.inputs[i]);
        Error::Index { name, op, what, index, at, indices, limit }
    }

    fn name_and_op(&self) -> (String, String) {
        (self.node.name.clone(), self.node.op.to_string())
    }

    /// The elements of input `i`.
    pub fn values<T: Element>(&self, i: usize) -> Result<Cow<'_, [T]>> {
        self.inputs[i].values().map_err(|_| self.wrong_type(self.inputs[i].dtype()))
    }

    /// The elements of input `i` as `i64`, whatever integers they are.
    pub fn integers(&self, i: usize) -> Result<Vec<i64>> {
        let tensor = &self.inputs[i];
        Ok(match tensor.dtype() {
            DType::I64 => self.values::<i64>(i)?.into_owned(),
            DType::I32 => widened(&self.values::<i32>(i)?),
            DType::I16 => widened(&self.values::<i16>(i)?),
            DType::I8 => widened(&self.values::<i8>(i)?),
            DType::U8 => widened(&self.values::<u8>(i)?),
            other => return Err(self.wrong_type(other)),
        })
    }

    /// The one integer of input `i`.
    pub fn integer(&self, i: usize, what: &str) -> Result<i64> {
        match self.integers(i)?.as_slice() {
            &[one] => Ok(one),
            _ => Err(self.fail(format!("{what} is {}, not one number", self.inputs[i].shape()))),
        }
    }

    /// The extents in input `i`.
    pub fn extents(&self, i: usize) -> Result<Vec<usize>> {
        let extents = self.integers(i)?;
        let extent = |&value: &i64| {
            usize::try_from(value).map_err(|_| self.fail(format!("an extent of {value}")))
        };
        extents.iter().map(extent).collect()
    }

    /// An axis of `rank`, where negative ones count from the end.
    pub fn axis(&self, axis: i64, rank: usize) -> Result<usize> {
        let signed = i64::try_from(rank).unwrap_or(i64::MAX);
        let counted = if axis < 0 { axis.checked_add(signed) } else { Some(axis) };
        counted
            .filter(|&axis| axis < signed)
            .and_then(|axis| usize::try_from(axis).ok())
            .ok_or_else(|| self.fail(format!("there is no axis {axis} among {rank}")))
    }

    /// Room for an output, or an error if there is none.
    pub fn room<T: Clone + Default>(&self, dtype: DType, shape: &Shape) -> Result<Vec<T>> {
        let too_large = || {
            let (name, op) = self.name_and_op();
            Error::TooLarge { name, op, dtype, shape: shape.clone() }
        };
        // Kernels multiply extents: also those beside a zero must stay within bounds.
        let beside_zeros: Vec<usize> = shape.iter().copied().filter(|&dim| dim != 0).collect();
        Shape::from(beside_zeros).elements().ok_or_else(too_large)?;
        let elements = shape.elements().ok_or_else(too_large)?;
        let mut room = Vec::new();
        room.try_reserve_exact(elements).map_err(|_| too_large())?;
        room.resize(elements, T::default());
        Ok(room)
    }

    /// An output of numbers, filled by `fill`.
    pub fn make<T: Element + Default>(
        &self,
        shape: impl Into<Shape>,
        fill: impl FnOnce(&mut [T]),
    ) -> Result<Tensor> {
        let shape = shape.into();
        let mut out = self.room(T::DTYPE, &shape)?;
        fill(&mut out);
        Tensor::from_vec(shape, out).map_err(|source| self.tensor(source))
    }

    /// An output of truth values, filled by `fill`.
    pub fn make_bool(
        &self,
        shape: impl Into<Shape>,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Tensor> {
        let shape = shape.into();
        let mut out = self.room(DType::Bool, &shape)?;
        fill(&mut out);
        Tensor::new(DType::Bool, shape, out).map_err(|source| self.tensor(source))
    }
}

fn widened<T: Scalar>(narrow: &[T]) -> Vec<i64> {
    let mut wide = vec![0; narrow.len()];
    cast(narrow, &mut wide);
    wide
}

/// What moves when elements move: their bytes, or whole strings.
pub(crate) trait Block: Clone + Default {
    /// The elements of a tensor.
    fn read(tensor: &Tensor) -> frazil_tensor::Result<Cow<'_, [Self]>>;
    /// A tensor of the elements.
    fn write(dtype: DType, shape: Shape, elements: Vec<Self>) -> frazil_tensor::Result<Tensor>;
}

macro_rules! blocks {
    ($($t:ty),*) => {$(
        impl Block for $t {
            fn read(tensor: &Tensor) -> frazil_tensor::Result<Cow<'_, [Self]>> {
                let bytes = tensor.bytes()?;
                Ok(match bytemuck::try_cast_slice(bytes) {
                    Ok(aligned) => Cow::Borrowed(aligned),
                    Err(_) => Cow::Owned(bytemuck::pod_collect_to_vec(bytes)),
                })
            }

            fn write(
                dtype: DType,
                shape: Shape,
                elements: Vec<Self>,
            ) -> frazil_tensor::Result<Tensor> {
                struct Owner(Vec<$t>);
                impl AsRef<[u8]> for Owner {
                    fn as_ref(&self) -> &[u8] { bytemuck::cast_slice(&self.0) }
                }
                Tensor::new(dtype, shape, Bytes::from_owner(Owner(elements)))
            }
        }
    )*};
}

blocks!(u8, u16, u32, u64, [u64; 2]);

impl Block for Bytes {
    fn read(tensor: &Tensor) -> frazil_tensor::Result<Cow<'_, [Self]>> {
        tensor.strings().map(Cow::Borrowed)
    }

    fn write(_: DType, shape: Shape, elements: Vec<Self>) -> frazil_tensor::Result<Tensor> {
        Tensor::from_strings(shape, elements)
    }
}

impl Call<'_> {
    /// The elements of input `i` as blocks.
    pub fn blocks<T: Block>(&self, i: usize) -> Result<Cow<'_, [T]>> {
        T::read(&self.inputs[i]).map_err(|source| self.tensor(source))
    }

    /// An output whose elements `fill` moves there.
    pub fn move_to<T: Block>(
        &self,
        dtype: DType,
        shape: impl Into<Shape>,
        fill: impl FnOnce(&mut [T]) -> Result<()>,
    ) -> Result<Tensor> {
        let shape = shape.into();
        let mut out = self.room(dtype, &shape)?;
        fill(&mut out)?;
        T::write(dtype, shape, out).map_err(|source| self.tensor(source))
    }
}

/// `body` with `$t` standing for the block that elements of `$dtype` move as.
macro_rules! by_size {
    ($dtype:expr, $t:ident => $body:expr) => {
        match $dtype.size() {
            Some(1) => {
                type $t = u8;
                $body
            }
            Some(2) => {
                type $t = u16;
                $body
            }
            Some(4) => {
                type $t = u32;
                $body
            }
            Some(8) => {
                type $t = u64;
                $body
            }
            Some(_) => {
                type $t = [u64; 2];
                $body
            }
            None => {
                type $t = bytes::Bytes;
                $body
            }
        }
    };
}

/// `body` with `$t` standing for the number type `$dtype`; other types are refused.
macro_rules! by_number {
    ($call:expr, $dtype:expr, $t:ident => $body:expr) => {
        match $dtype {
            DType::F32 => {
                type $t = f32;
                $body
            }
            DType::F64 => {
                type $t = f64;
                $body
            }
            DType::I32 => {
                type $t = i32;
                $body
            }
            DType::I64 => {
                type $t = i64;
                $body
            }
            other => Err($call.wrong_type(other)),
        }
    };
}

/// The same for floating-point numbers only.
macro_rules! by_real {
    ($call:expr, $dtype:expr, $t:ident => $body:expr) => {
        match $dtype {
            DType::F32 => {
                type $t = f32;
                $body
            }
            DType::F64 => {
                type $t = f64;
                $body
            }
            other => Err($call.wrong_type(other)),
        }
    };
}

pub(crate) use {by_number, by_real, by_size};
