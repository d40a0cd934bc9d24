//! `TensorProto` to [`Tensor`] and back, by TensorFlow's own rules.
//!
//! A `TensorProto` carries its elements either as raw bytes (`tensor_content`, kept as a window
//! on the file) or in a typed list, which may be shorter than the shape needs: the last value
//! then repeats, and no value at all means zeros (empty strings). A list that is longer than
//! the shape needs counts up to the shape's size. Resource handles and variants are left out:
//! they have no values in files.

use bytes::Bytes;
use frazil_tensor::{DType, Element, Shape, Tensor};
use half::{bf16, f16};

use crate::proto::{TensorProto, TensorShapeProto, tensor_shape_proto::Dim};
use crate::{Error, Result, dtype};

/// The largest tensor, in bytes, that a shorter list of values may be stretched to. A mask of ones
/// for the largest batch takes a few megabytes; a few bytes that stand for more would make a small
/// file cost more memory than it may.
pub const EXPANSION_LIMIT: usize = 32 << 20;

/// TensorFlow's own limit on the number of axes.
const MAX_RANK: usize = 254;

/// The tensor of a message. `tensor_content` is shared, not copied.
pub fn to_tensor(proto: &TensorProto) -> Result<Tensor> {
    let dtype = dtype::from_proto(proto.dtype)?;
    let shape = match &proto.tensor_shape {
        Some(proto) => shape(proto)?,
        None => Shape::scalar(),
    };
    let Some(elements) = shape.elements() else {
        return Err(frazil_tensor::Error::TooLarge(shape).into());
    };
    let content = &proto.tensor_content;
    if dtype == DType::String {
        let strings = if content.is_empty() {
            stretch(&proto.string_val, dtype, &shape, elements, Bytes::clone, Bytes::new())?
        } else {
            packed_strings(content, elements)?
        };
        return Ok(Tensor::from_strings(shape, strings)?);
    }
    if !content.is_empty() {
        return Ok(Tensor::new(dtype, shape, content.clone())?);
    }

    /// From a typed list to elements of the storage type.
    macro_rules! list {
        ($field:ident, $t:ty, $convert:expr) => {
            plain::<_, $t>(&proto.$field, dtype, shape, elements, $convert)
        };
    }
    match dtype {
        DType::F32 => list!(float_val, f32, |&x| x),
        DType::F64 => list!(double_val, f64, |&x| x),
        DType::F16 => list!(half_val, f16, |&x| f16::from_bits(x as u16)),
        DType::BF16 => list!(half_val, bf16, |&x| bf16::from_bits(x as u16)),
        DType::I8 | DType::QI8 => list!(int_val, i8, |&x| x as i8),
        DType::U8 | DType::QU8 => list!(int_val, u8, |&x| x as u8),
        DType::I16 | DType::QI16 => list!(int_val, i16, |&x| x as i16),
        DType::U16 | DType::QU16 => list!(int_val, u16, |&x| x as u16),
        DType::I32 | DType::QI32 => list!(int_val, i32, |&x| x),
        DType::I64 => list!(int64_val, i64, |&x| x),
        DType::U32 => list!(uint32_val, u32, |&x| x),
        DType::U64 => list!(uint64_val, u64, |&x| x),
        DType::Bool => list!(bool_val, u8, |&x| u8::from(x)),
        DType::C64 => complex(&proto.scomplex_val, dtype, shape, elements),
        DType::C128 => complex(&proto.dcomplex_val, dtype, shape, elements),
        DType::String => unreachable!("strings are handled above"),
    }
}

/// The message of a tensor, in the form in which TensorFlow writes constants: one element as a
/// typed value, several as raw bytes (shared, not copied), strings as a list.
pub fn from_tensor(tensor: &Tensor) -> TensorProto {
    let mut proto = TensorProto {
        dtype: dtype::to_proto(tensor.dtype()) as i32,
        tensor_shape: Some(shape_proto(tensor.shape())),
        ..TensorProto::default()
    };
    if let Ok(strings) = tensor.strings() {
        proto.string_val = strings.to_vec();
        return proto;
    }
    let bytes = tensor.bytes().expect("what is not strings has bytes");
    if tensor.elements() != 1 {
        proto.tensor_content = bytes.clone();
        return proto;
    }
    /// The one element, as the type that its bytes are stored in.
    macro_rules! one {
        ($t:ty) => {
            <$t>::from_le_bytes(bytes[..].try_into().expect("the constructor checked the size"))
        };
    }
    match tensor.dtype() {
        DType::F32 => proto.float_val.push(one!(f32)),
        DType::F64 => proto.double_val.push(one!(f64)),
        DType::F16 | DType::BF16 => proto.half_val.push(one!(u16).into()),
        DType::I8 | DType::QI8 => proto.int_val.push(one!(i8).into()),
        DType::U8 | DType::QU8 => proto.int_val.push(one!(u8).into()),
        DType::I16 | DType::QI16 => proto.int_val.push(one!(i16).into()),
        DType::U16 | DType::QU16 => proto.int_val.push(one!(u16).into()),
        DType::I32 | DType::QI32 => proto.int_val.push(one!(i32)),
        DType::I64 => proto.int64_val.push(one!(i64)),
        DType::U32 => proto.uint32_val.push(one!(u32)),
        DType::U64 => proto.uint64_val.push(one!(u64)),
        DType::Bool => proto.bool_val.push(one!(u8) != 0),
        DType::C64 | DType::C128 => proto.tensor_content = bytes.clone(),
        DType::String => unreachable!("strings are handled above"),
    }
    proto
}

/// The extents of a message, all of which must be known.
pub fn shape(proto: &TensorShapeProto) -> Result<Shape> {
    if proto.unknown_rank {
        return Err(Error::UnknownShape { shape: "<unknown>".into() });
    }
    if proto.dim.len() > MAX_RANK {
        return Err(Error::UnknownShape { shape: format!("<{} axes>", proto.dim.len()) });
    }
    let dims: Option<Vec<usize>> =
        proto.dim.iter().map(|dim| usize::try_from(dim.size).ok()).collect();
    dims.map(Shape::from).ok_or_else(|| {
        let dims: Vec<String> = proto.dim.iter().map(|dim| dim.size.to_string()).collect();
        Error::UnknownShape { shape: format!("[{}]", dims.join(", ")) }
    })
}

/// The message of a shape.
pub fn shape_proto(shape: &Shape) -> TensorShapeProto {
    let dim = |&size: &usize| Dim { size: size as i64, name: String::new() };
    TensorShapeProto { dim: shape.iter().map(dim).collect(), unknown_rank: false }
}

/// `elements` values out of a list that may be shorter or longer.
fn stretch<S, T: Clone>(
    list: &[S],
    dtype: DType,
    shape: &Shape,
    elements: usize,
    convert: impl Fn(&S) -> T,
    zero: T,
) -> Result<Vec<T>> {
    let bytes = elements.checked_mul(size_of::<T>());
    if elements > list.len() && bytes.is_none_or(|bytes| bytes > EXPANSION_LIMIT) {
        return Err(Error::Expansion { dtype, shape: shape.clone(), values: list.len() });
    }
    let last = list.last().map_or(zero, &convert);
    let mut values = Vec::with_capacity(elements);
    values.extend(list.iter().take(elements).map(convert));
    values.resize(elements, last);
    Ok(values)
}

fn plain<S, T: Element>(
    list: &[S],
    dtype: DType,
    shape: Shape,
    elements: usize,
    convert: impl Fn(&S) -> T,
) -> Result<Tensor> {
    let values = stretch(list, dtype, &shape, elements, convert, T::zeroed())?;
    retyped(Tensor::from_vec(shape, values)?, dtype)
}

/// Complex numbers lie in the list as real and imaginary part by turns; an odd one out at the
/// end does not count.
fn complex<T: Element>(list: &[T], dtype: DType, shape: Shape, elements: usize) -> Result<Tensor> {
    let (pairs, _) = list.as_chunks::<2>();
    let zero = [T::zeroed(); 2];
    let values = stretch(pairs, dtype, &shape, elements, |&pair| pair, zero)?;
    let flat = Tensor::from_vec([elements * 2], values.into_flattened())?;
    Ok(Tensor::new(dtype, shape, flat.bytes()?.clone())?)
}

fn retyped(tensor: Tensor, dtype: DType) -> Result<Tensor> {
    if tensor.dtype() == dtype {
        return Ok(tensor);
    }
    Ok(Tensor::new(dtype, tensor.shape().clone(), tensor.bytes()?.clone())?)
}

/// Strings in `tensor_content`: all the lengths as varints, then all the contents.
fn packed_strings(content: &Bytes, elements: usize) -> Result<Vec<Bytes>> {
    const WHAT: &str = "a string tensor's content";
    // Each length takes a byte at least.
    if elements > content.len() {
        let (needed, available) = (elements as u64, content.len() as u64);
        return Err(Error::Truncated { what: WHAT, needed, available });
    }
    let mut rest = content.clone();
    let mut lengths = Vec::with_capacity(elements);
    for _ in 0..elements {
        let length = prost::encoding::decode_varint(&mut rest)
            .map_err(|source| Error::Proto { message: "TensorProto", source })?;
        lengths.push(length);
    }
    let available = rest.len() as u64;
    let needed = lengths.iter().try_fold(0u64, |sum, &length| sum.checked_add(length));
    match needed {
        Some(needed) if needed == available => {}
        Some(needed) if needed < available => {
            let at = (content.len() - rest.len()) as u64 + needed;
            let reason = format!("{} bytes lie after the last string", available - needed);
            return Err(Error::Corrupt { what: WHAT, at, reason });
        }
        _ => {
            let needed = needed.unwrap_or(u64::MAX);
            return Err(Error::Truncated { what: WHAT, needed, available });
        }
    }
    Ok(lengths.into_iter().map(|length| rest.split_to(length as usize)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::DataType;

    fn proto(dtype: DataType, dims: &[usize]) -> TensorProto {
        TensorProto {
            dtype: dtype as i32,
            tensor_shape: Some(shape_proto(&Shape::from(dims))),
            ..TensorProto::default()
        }
    }

    #[test]
    fn the_last_value_repeats_and_no_value_is_zero() {
        let mut p = proto(DataType::DtInt32, &[2, 2]);
        assert_eq!(&*to_tensor(&p).unwrap().values::<i32>().unwrap(), &[0; 4]);
        p.int_val = vec![5, -7];
        assert_eq!(&*to_tensor(&p).unwrap().values::<i32>().unwrap(), &[5, -7, -7, -7]);
        p.int_val = vec![1, 2, 3, 4, 5];
        assert_eq!(&*to_tensor(&p).unwrap().values::<i32>().unwrap(), &[1, 2, 3, 4]);

        let mut p = proto(DataType::DtComplex64, &[3]);
        p.scomplex_val = vec![1., 2., 3., 4., 99.];
        let bytes = to_tensor(&p).unwrap().bytes().unwrap().clone();
        let floats = Tensor::new(DType::F32, [6], bytes).unwrap();
        assert_eq!(&*floats.values::<f32>().unwrap(), &[1., 2., 3., 4., 3., 4.]);

        let mut p = proto(DataType::DtString, &[2]);
        p.string_val = vec![Bytes::from_static(b"ab")];
        assert_eq!(to_tensor(&p).unwrap().strings().unwrap(), &["ab", "ab"]);
    }

    #[test]
    fn halves_are_bits() {
        let mut p = proto(DataType::DtHalf, &[]);
        p.half_val = vec![0x3c00];
        assert_eq!(to_tensor(&p).unwrap().to_f64().unwrap(), [1.0]);
        p.dtype = DataType::DtBfloat16 as i32;
        p.half_val = vec![0xbf80];
        assert_eq!(to_tensor(&p).unwrap().to_f64().unwrap(), [-1.0]);
    }

    #[test]
    fn every_type_goes_there_and_back() {
        for dtype in DType::ALL {
            for shape in [Shape::scalar(), [1].into(), [2, 3].into(), [0, 4].into()] {
                let elements = shape.elements().unwrap();
                let tensor = match dtype.size() {
                    None => {
                        let strings = (0..elements).map(|i| Bytes::from(vec![i as u8; i]));
                        Tensor::from_strings(shape, strings.collect()).unwrap()
                    }
                    Some(size) => {
                        let bytes: Vec<u8> = (0..elements * size)
                            .map(|i| if dtype == DType::Bool { i as u8 & 1 } else { 1 + i as u8 })
                            .collect();
                        Tensor::new(dtype, shape, bytes).unwrap()
                    }
                };
                assert_eq!(to_tensor(&from_tensor(&tensor)).unwrap(), tensor);
            }
        }
    }

    #[test]
    fn content_is_shared_and_its_size_checked() {
        let content = Bytes::from(vec![1u8; 16]);
        let mut p = proto(DataType::DtFloat, &[4]);
        p.tensor_content = content.clone();
        assert_eq!(to_tensor(&p).unwrap().bytes().unwrap().as_ptr(), content.as_ptr());
        p.tensor_content = content.slice(1..);
        assert!(matches!(to_tensor(&p), Err(Error::Tensor(frazil_tensor::Error::Size { .. }))));
    }

    #[test]
    fn strings_in_the_content() {
        let mut p = proto(DataType::DtString, &[3]);
        p.tensor_content = Bytes::from_static(b"\x01\x00\x02abc");
        assert_eq!(to_tensor(&p).unwrap().strings().unwrap(), &["a", "", "bc"]);
        for wrong in [&b"\x01\x00\x02ab"[..], b"\x01\x00\x02abcd", b"\x01\x00", b"\xff\xff\xff"] {
            p.tensor_content = Bytes::from_static(wrong);
            assert!(to_tensor(&p).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_few_bytes_do_not_become_a_terabyte() {
        let mut p = proto(DataType::DtFloat, &[1 << 38]);
        p.float_val = vec![1.0];
        assert!(matches!(to_tensor(&p), Err(Error::Expansion { values: 1, .. })));
        p.tensor_shape = Some(shape_proto(&[usize::MAX >> 1, 4].into()));
        assert!(matches!(to_tensor(&p), Err(Error::Tensor(frazil_tensor::Error::TooLarge(_)))));
    }

    #[test]
    fn open_shapes_have_no_tensor() {
        let mut p = proto(DataType::DtFloat, &[2]);
        let open = p.tensor_shape.as_mut().unwrap();
        open.dim[0].size = -1;
        let error = to_tensor(&p).unwrap_err().to_string();
        assert!(error.contains("[-1]"), "{error}");
        p.tensor_shape = Some(TensorShapeProto { unknown_rank: true, dim: vec![] });
        assert!(to_tensor(&p).is_err());
    }
}
