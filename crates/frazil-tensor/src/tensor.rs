//! The tensor itself.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use half::{bf16, f16};
use serde::{Deserialize, Serialize};

use crate::{DType, Element, Error, Result, Shape, file};

/// Elements of one type in row-major order, little-endian, in bytes that are shared, not copied.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct Tensor {
    dtype: DType,
    shape: Shape,
    data: Data,
}

#[derive(Clone, Serialize, Deserialize)]
enum Data {
    Plain(Bytes),
    Strings(Vec<Bytes>),
}

/// A tensor as it is read back, not checked yet.
#[derive(Deserialize)]
struct Stored {
    dtype: DType,
    shape: Shape,
    data: Data,
}

impl TryFrom<Stored> for Tensor {
    type Error = Error;

    fn try_from(stored: Stored) -> Result<Self> {
        match stored.data {
            Data::Plain(bytes) => Self::new(stored.dtype, stored.shape, bytes),
            Data::Strings(values) => Self::from_strings(stored.shape, values),
        }
    }
}

impl Tensor {
    /// A tensor on `data`; the size must be what type and shape need.
    pub fn new(dtype: DType, shape: impl Into<Shape>, data: impl Into<Bytes>) -> Result<Self> {
        let (shape, data) = (shape.into(), data.into());
        let size = dtype.size().ok_or(Error::WrongType { expected: DType::U8, found: dtype })?;
        let elements = shape.elements().ok_or_else(|| Error::TooLarge(shape.clone()))?;
        let expected = elements.checked_mul(size).ok_or_else(|| Error::TooLarge(shape.clone()))?;
        if data.len() != expected {
            return Err(Error::Size { dtype, shape, expected, found: data.len() });
        }
        Ok(Self { dtype, shape, data: Data::Plain(data) })
    }

    /// A tensor that takes over `values`.
    pub fn from_vec<T: Element>(shape: impl Into<Shape>, values: Vec<T>) -> Result<Self> {
        Self::new(T::DTYPE, shape, Bytes::from_owner(Elements(values)))
    }

    /// A tensor of byte strings.
    pub fn from_strings(shape: impl Into<Shape>, values: Vec<Bytes>) -> Result<Self> {
        let shape = shape.into();
        let expected = shape.elements().ok_or_else(|| Error::TooLarge(shape.clone()))?;
        if values.len() != expected {
            let dtype = DType::String;
            return Err(Error::Size { dtype, shape, expected, found: values.len() });
        }
        Ok(Self { dtype: DType::String, shape, data: Data::Strings(values) })
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.elements().expect("the constructors checked that it fits")
    }

    /// Bytes of all elements; for strings, of their contents.
    pub fn byte_len(&self) -> usize {
        match &self.data {
            Data::Plain(bytes) => bytes.len(),
            Data::Strings(values) => values.iter().map(Bytes::len).sum(),
        }
    }

    /// The raw little-endian bytes; an error for strings.
    pub fn bytes(&self) -> Result<&Bytes> {
        match &self.data {
            Data::Plain(bytes) => Ok(bytes),
            Data::Strings(_) => Err(Error::WrongType { expected: DType::U8, found: DType::String }),
        }
    }

    /// Gives back the memory of a tensor that is a window on a mapped file, until somebody looks at
    /// it again; see [`file::release`].
    pub fn release(&self) {
        if let Data::Plain(bytes) = &self.data {
            file::release(bytes);
        }
    }

    /// Says that a tensor that is a window on a mapped file is read here and there only; see
    /// [`file::sparse`].
    pub fn sparse(&self) {
        if let Data::Plain(bytes) = &self.data {
            file::sparse(bytes);
        }
    }

    /// The byte strings; an error for any other type.
    pub fn strings(&self) -> Result<&[Bytes]> {
        match &self.data {
            Data::Strings(values) => Ok(values),
            Data::Plain(_) => Err(Error::WrongType { expected: DType::String, found: self.dtype }),
        }
    }

    /// The elements as `T`: borrowed where the bytes are aligned for it, copied where a file
    /// laid them out otherwise. `Bool` reads as `u8`, quantized integers as plain ones.
    pub fn values<T: Element>(&self) -> Result<Cow<'_, [T]>> {
        if self.dtype.storage() != T::DTYPE {
            return Err(Error::WrongType { expected: T::DTYPE, found: self.dtype });
        }
        let bytes = self.bytes()?;
        Ok(match bytemuck::try_cast_slice(bytes) {
            Ok(aligned) => Cow::Borrowed(aligned),
            Err(_) => Cow::Owned(bytemuck::pod_collect_to_vec(bytes)),
        })
    }

    /// Every element as `f64`, whatever the real type; an error for strings and complex numbers.
    pub fn to_f64(&self) -> Result<Vec<f64>> {
        macro_rules! widen {
            ($t:ty) => {
                self.values::<$t>()?.iter().map(|&x| x as f64).collect()
            };
        }
        Ok(match self.dtype.storage() {
            DType::F32 => widen!(f32),
            DType::F64 => self.values::<f64>()?.into_owned(),
            DType::F16 => self.values::<f16>()?.iter().map(|x| x.to_f64()).collect(),
            DType::BF16 => self.values::<bf16>()?.iter().map(|x| x.to_f64()).collect(),
            DType::I8 => widen!(i8),
            DType::I16 => widen!(i16),
            DType::I32 => widen!(i32),
            DType::I64 => widen!(i64),
            DType::U8 => widen!(u8),
            DType::U16 => widen!(u16),
            DType::U32 => widen!(u32),
            DType::U64 => widen!(u64),
            _ => return Err(Error::WrongType { expected: DType::F64, found: self.dtype }),
        })
    }

    /// The same numbers in another floating-point type, rounded to nearest even.
    pub fn cast(&self, to: DType) -> Result<Self> {
        if self.dtype == to {
            return Ok(self.clone());
        }
        if !self.dtype.is_float() || !to.is_float() {
            return Err(Error::NoCast { from: self.dtype, to });
        }
        let wide = self.to_f64()?;
        let shape = self.shape.clone();
        match to {
            DType::F32 => Self::from_vec::<f32>(shape, wide.iter().map(|&x| x as f32).collect()),
            DType::F64 => Self::from_vec::<f64>(shape, wide),
            DType::F16 => {
                Self::from_vec::<f16>(shape, wide.iter().map(|&x| f16::from_f64(x)).collect())
            }
            _ => Self::from_vec::<bf16>(shape, wide.iter().map(|&x| bf16::from_f64(x)).collect()),
        }
    }

    /// The same elements under another shape of as many elements.
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Self> {
        match &self.data {
            Data::Plain(bytes) => Self::new(self.dtype, shape, bytes.clone()),
            Data::Strings(values) => Self::from_strings(shape, values.clone()),
        }
    }

    /// Rows and columns exchanged. `x: [r, c]` gives `[c, r]`.
    pub fn transpose(&self) -> Result<Self> {
        let &[rows, columns] = &*self.shape else {
            let found = self.shape.clone();
            return Err(Error::WrongRank { what: "transpose", expected: 2, found });
        };
        let size = self.element_size()?;
        let from = self.bytes()?;
        let mut to = vec![0u8; from.len()];
        for row in 0..rows {
            for column in 0..columns {
                let (i, o) = (row * columns + column, column * rows + row);
                to[o * size..][..size].copy_from_slice(&from[i * size..][..size]);
            }
        }
        Self::new(self.dtype, [columns, rows], to)
    }

    /// The first `rows` entries of the outermost axis, without a copy.
    pub fn head(&self, rows: usize) -> Result<Self> {
        let found = self.shape.clone();
        let Some((&all, rest)) = self.shape.split_first() else {
            return Err(Error::WrongRank { what: "head", expected: 1, found });
        };
        let mut shape = vec![rows.min(all)];
        shape.extend_from_slice(rest);
        let shape = Shape::from(shape);
        let elements = shape.elements().ok_or_else(|| Error::TooLarge(shape.clone()))?;
        let bytes = self.bytes()?.slice(..elements * self.element_size()?);
        Self::new(self.dtype, shape, bytes)
    }

    /// Tensors joined along `axis`; all other extents and the type must agree.
    pub fn concat(parts: &[Tensor], axis: usize) -> Result<Self> {
        let Some(first) = parts.first() else {
            return Self::new(DType::F32, [0], Bytes::new());
        };
        let describe = |t: &Tensor| format!("{} {}", t.dtype, t.shape);
        for part in parts {
            let fits = part.dtype == first.dtype
                && axis < part.shape.len()
                && part.shape.len() == first.shape.len()
                && (0..part.shape.len()).all(|i| i == axis || part.shape[i] == first.shape[i]);
            if !fits {
                let (first, second) = (describe(first), describe(part));
                return Err(Error::Join { first, second, axis });
            }
        }
        let size = first.element_size()?;
        let outer: usize = first.shape[..axis].iter().product();
        let inner: usize = first.shape[axis + 1..].iter().product::<usize>() * size;
        let mut joined = Vec::with_capacity(parts.iter().map(Tensor::byte_len).sum());
        for o in 0..outer {
            for part in parts {
                let run = part.shape[axis] * inner;
                joined.extend_from_slice(&part.bytes()?[o * run..][..run]);
            }
        }
        let mut shape = first.shape.to_vec();
        shape[axis] = parts.iter().map(|part| part.shape[axis]).sum();
        Self::new(first.dtype, shape, joined)
    }

    fn element_size(&self) -> Result<usize> {
        self.dtype.size().ok_or(Error::WrongType { expected: DType::U8, found: self.dtype })
    }
}

/// Type and shape only: a tensor can have a billion elements.
impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({} {})", self.dtype, self.shape)
    }
}

/// Bit for bit: a NaN equals itself, 0.0 and -0.0 differ.
impl PartialEq for Tensor {
    fn eq(&self, other: &Self) -> bool {
        self.dtype == other.dtype
            && self.shape == other.shape
            && match (&self.data, &other.data) {
                (Data::Plain(a), Data::Plain(b)) => a == b,
                (Data::Strings(a), Data::Strings(b)) => a == b,
                _ => false,
            }
    }
}

impl Eq for Tensor {}

/// Lets `Bytes` own a vector of elements.
struct Elements<T>(Vec<T>);

impl<T: Element> AsRef<[u8]> for Elements<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix() -> Tensor {
        Tensor::from_vec([2, 3], vec![1f32, 2., 3., 4., 5., 6.]).unwrap()
    }

    #[test]
    fn size_is_checked() {
        assert!(matches!(
            Tensor::new(DType::F32, [2], vec![0u8; 7]),
            Err(Error::Size { expected: 8, found: 7, .. })
        ));
        assert!(matches!(
            Tensor::new(DType::F64, [usize::MAX / 4], vec![]),
            Err(Error::TooLarge(_))
        ));
    }

    #[test]
    fn unaligned_bytes_read_the_same() {
        let aligned = matrix();
        let mut shifted = vec![0u8];
        shifted.extend_from_slice(aligned.bytes().unwrap());
        let view = Tensor::new(DType::F32, [2, 3], Bytes::from(shifted).slice(1..)).unwrap();
        assert_eq!(view.values::<f32>().unwrap(), aligned.values::<f32>().unwrap());
    }

    #[test]
    fn transpose_and_concat() {
        let t = matrix().transpose().unwrap();
        assert_eq!(t.shape(), &Shape::from([3, 2]));
        assert_eq!(&*t.values::<f32>().unwrap(), &[1., 4., 2., 5., 3., 6.]);
        let joined = Tensor::concat(&[matrix(), matrix()], 1).unwrap();
        assert_eq!(joined.shape(), &Shape::from([2, 6]));
        assert_eq!(
            &*joined.values::<f32>().unwrap(),
            &[1., 2., 3., 1., 2., 3., 4., 5., 6., 4., 5., 6.]
        );
        assert!(matches!(Tensor::concat(&[matrix(), t], 1), Err(Error::Join { .. })));
    }

    #[test]
    fn cast_rounds_to_nearest_even() {
        let t = Tensor::from_vec([2], vec![1.0f32 + 1.0 / 2048.0, -0.1]).unwrap();
        let h = t.cast(DType::F16).unwrap();
        assert_eq!(h.values::<f16>().unwrap()[0], f16::from_f32(1.0));
        assert!(matches!(h.cast(DType::I32), Err(Error::NoCast { .. })));
    }
}
