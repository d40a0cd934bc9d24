//! NumPy's files: `.npy` holds one array, `.npz` a zip of them by name.
//!
//! Every type that NumPy and frazil share is read and written; Fortran order and big-endian
//! numbers are turned into row-major little-endian on the way in, fixed-width strings into
//! byte strings (`U` as UTF-8). A plain array is a window on the given bytes. What is left
//! out: object arrays, which are Python pickles, records, dates, and bfloat16, which NumPy
//! has no name for; a caller who wants to store bfloat16 casts it to `float32` first.

mod header;
mod npz;
mod rows;

use std::io::{self, Write};
use std::path::Path;

use bytes::Bytes;

use self::header::{Header, Kind, Refusal};
use crate::{DType, Error, Result, Shape, Tensor, file};

pub use self::npz::{Npz, NpzWriter};
pub use self::rows::NpyRows;

/// What the strings of any array may take in memory beside their bytes, and on top of that for
/// each byte.
const STRINGS_FREE: usize = 32 << 20;
const STRINGS_PER_BYTE: usize = 2;

/// The array in the `.npy` file `path`, on mapped memory.
pub fn open(path: impl AsRef<Path>) -> Result<Tensor> {
    let path = path.as_ref();
    read_named(file::map(path)?, path)
}

/// The array in `bytes`, which are a whole `.npy` file.
pub fn read(bytes: Bytes) -> Result<Tensor> {
    read_named(bytes, Path::new("(memory)"))
}

fn read_named(bytes: Bytes, path: &Path) -> Result<Tensor> {
    let malformed = |reason| Error::Malformed { path: path.to_path_buf(), format: "npy", reason };
    let header = Header::parse(&bytes).map_err(|refusal| match refusal {
        Refusal::Malformed(reason) => malformed(reason),
        Refusal::Descr(descr) => Error::Elements { name: path.display().to_string(), descr },
    })?;
    let data = bytes.slice(header.data_start..);
    decode(&header, data).map_err(malformed)
}

/// Writes `tensor` as an `.npy` file.
///
/// A type that NumPy lacks and a string that ends in NUL, which NumPy would drop, are
/// [`io::ErrorKind::InvalidInput`].
pub fn write(w: &mut impl Write, tensor: &Tensor) -> io::Result<()> {
    if tensor.dtype() == DType::String {
        return write_strings(w, tensor);
    }
    let unstorable = || {
        let (format, dtype) = ("npy", tensor.dtype());
        io::Error::new(
            io::ErrorKind::InvalidInput,
            Error::Unstorable { format, name: String::new(), dtype },
        )
    };
    let descr = header::descr(tensor.dtype()).ok_or_else(unstorable)?;
    w.write_all(&Header::encode(&descr, tensor.shape()))?;
    w.write_all(tensor.bytes().map_err(|_| unstorable())?)
}

fn write_strings(w: &mut impl Write, tensor: &Tensor) -> io::Result<()> {
    let invalid = |reason: Box<dyn std::error::Error + Send + Sync>| {
        io::Error::new(io::ErrorKind::InvalidInput, reason)
    };
    let values = tensor.strings().map_err(|e| invalid(e.into()))?;
    if values.iter().any(|value| value.last() == Some(&0)) {
        return Err(invalid("NumPy would drop the NUL at the end of a string".into()));
    }
    let width = values.iter().map(Bytes::len).max().unwrap_or(0).max(1);
    w.write_all(&Header::encode(&format!("|S{width}"), tensor.shape()))?;
    for value in values {
        w.write_all(value)?;
        io::copy(&mut io::Read::take(io::repeat(0), (width - value.len()) as u64), w)?;
    }
    Ok(())
}

/// The tensor of `header` whose elements are `data`; the error is the reason alone.
fn decode(header: &Header, data: Bytes) -> Result<Tensor, String> {
    let Header { kind, shape, .. } = header;
    let expected =
        header.data_len().ok_or_else(|| format!("shape {shape} is beyond all bounds"))?;
    if data.len() != expected {
        let dtype = kind.dtype();
        return Err(format!(
            "{dtype} {shape} takes {expected} bytes, but {} are there",
            data.len()
        ));
    }
    let size = kind.size().unwrap_or(0);
    let mut data = if header.fortran { row_major(shape, size, data) } else { data };
    if header.big_endian {
        data = swap_bytes(*kind, data);
    }
    let width = match *kind {
        Kind::Plain(dtype) => {
            return Tensor::new(dtype, shape.clone(), data).map_err(|e| e.to_string());
        }
        Kind::Bytes(width) | Kind::Unicode(width) => width,
    };
    // Each string takes a window on top of its bytes: a file of very many very short ones would
    // be many times its size in memory.
    let elements = shape.elements().unwrap_or(usize::MAX);
    let windows = elements.saturating_mul(size_of::<Bytes>());
    if windows > STRINGS_FREE.saturating_add(data.len().saturating_mul(STRINGS_PER_BYTE)) {
        return Err(format!("its strings {shape} would take far more memory than their bytes"));
    }
    let strings = match *kind {
        _ if width == 0 => vec![Bytes::new(); elements],
        Kind::Unicode(_) => split_unicode(width, &data)?,
        _ => split_bytes(width, &data),
    };
    Tensor::from_strings(shape.clone(), strings).map_err(|e| e.to_string())
}

/// The windows of the strings (of at least one byte) in `data`, without the NULs that fill them up.
fn split_bytes(width: usize, data: &Bytes) -> Vec<Bytes> {
    let trimmed = |chunk: &[u8]| chunk.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
    data.chunks(width)
        .enumerate()
        .map(|(i, chunk)| data.slice(i * width..i * width + trimmed(chunk)))
        .collect()
}

/// UTF-32 to UTF-8; all strings share one buffer. `width` is at least one character.
fn split_unicode(width: usize, data: &Bytes) -> Result<Vec<Bytes>, String> {
    let mut text = String::new();
    let mut ends = Vec::new();
    for item in data.chunks(width * 4) {
        let kept = item.iter().rposition(|&b| b != 0).map_or(0, |last| last / 4 + 1);
        for unit in item.chunks_exact(4).take(kept) {
            let code = u32::from_le_bytes([unit[0], unit[1], unit[2], unit[3]]);
            let char = char::from_u32(code)
                .ok_or_else(|| format!("{code:#x} in a string is no Unicode character"))?;
            text.push(char);
        }
        ends.push(text.len());
    }
    let text = Bytes::from(text);
    let starts = std::iter::once(0).chain(ends.iter().copied());
    Ok(starts.zip(&ends).map(|(start, &end)| text.slice(start..end)).collect())
}

fn swap_bytes(kind: Kind, data: Bytes) -> Bytes {
    let unit = match kind {
        Kind::Plain(DType::C64) | Kind::Unicode(_) => 4,
        Kind::Plain(DType::C128) => 8,
        Kind::Plain(dtype) => dtype.size().unwrap_or(1),
        Kind::Bytes(_) => 1,
    };
    if unit == 1 {
        return data;
    }
    let mut swapped = data.to_vec();
    for item in swapped.chunks_exact_mut(unit) {
        item.reverse();
    }
    swapped.into()
}

/// Column-major elements of `size` bytes put into row-major order.
fn row_major(shape: &Shape, size: usize, data: Bytes) -> Bytes {
    // Extents of 1 do not move anything; without them the rank is at most 63, so that each
    // step of the counter below is cheap whatever the header says.
    let dims: Vec<usize> = shape.iter().copied().filter(|&dim| dim != 1).collect();
    if dims.len() < 2 || data.is_empty() {
        return data;
    }
    // In column-major order the first axis is the densest.
    let strides: Vec<usize> = dims
        .iter()
        .scan(1, |stride, dim| {
            let this = *stride;
            *stride *= dim;
            Some(this)
        })
        .collect();
    let mut index = vec![0usize; dims.len()];
    let mut at = 0;
    let mut ordered = Vec::with_capacity(data.len());
    loop {
        ordered.extend_from_slice(&data[at * size..][..size]);
        let mut axis = dims.len();
        loop {
            if axis == 0 {
                return ordered.into();
            }
            axis -= 1;
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < dims[axis] {
                break;
            }
            at -= strides[axis] * dims[axis];
            index[axis] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn array(descr: &str, fortran: &str, shape: &str, data: &[u8]) -> Bytes {
        let text =
            format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        bytes.extend_from_slice(data);
        bytes.into()
    }

    #[test]
    fn fortran_order_and_big_endian() {
        // [[0 1 2] [3 4 5]] by columns.
        let data: Vec<u8> = [0u16, 3, 1, 4, 2, 5].iter().flat_map(|x| x.to_be_bytes()).collect();
        let t = read(array(">u2", "True", "(2, 1, 3)", &data)).unwrap();
        assert_eq!(t.shape(), &Shape::from([2, 1, 3]));
        assert_eq!(&*t.values::<u16>().unwrap(), &[0, 1, 2, 3, 4, 5]);
        let complex = read(array(">c8", "False", "()", &[1, 2, 3, 4, 5, 6, 7, 8])).unwrap();
        assert_eq!(&complex.bytes().unwrap()[..], &[4, 3, 2, 1, 8, 7, 6, 5]);
    }

    #[test]
    fn strings() {
        let t = read(array("|S3", "False", "(2,)", b"ab\0c\0d")).unwrap();
        assert_eq!(t.strings().unwrap(), &[Bytes::from("ab"), Bytes::from("c\0d")]);
        let utf32: Vec<u8> =
            ['é', '\0', '語', 'x'].iter().flat_map(|&c| (c as u32).to_be_bytes()).collect();
        let t = read(array(">U2", "False", "(2,)", &utf32)).unwrap();
        assert_eq!(t.strings().unwrap(), &[Bytes::from("é"), Bytes::from("語x")]);
        assert!(read(array("<U1", "False", "(1,)", &[0, 0, 0, 1])).is_err());
        assert!(read(array("|S0", "False", "(9999999999,)", b"")).is_err());
        let empty = read(array("|S0", "False", "(3,)", b"")).unwrap();
        assert_eq!(empty.strings().unwrap(), ["", "", ""]);
        assert!(read(array("<U4611686018427387904", "False", "(4,)", b"")).is_err());
        let nul = Tensor::from_strings([1], vec![Bytes::from("a\0")]).unwrap();
        assert!(write(&mut Vec::new(), &nul).is_err());
    }

    #[test]
    fn sizes_are_checked() {
        assert!(read(array("<f4", "False", "(2,)", &[0; 7])).is_err());
        assert!(read(array("<f4", "False", "(2,)", &[0; 9])).is_err());
        assert!(read(array("<f4", "True", "(4611686018427387904, 4)", &[])).is_err());
        assert!(read(array("<f4", "True", "(4611686018427387904, 0)", &[])).is_ok());
    }

    #[test]
    fn types_that_are_not_shared() {
        let error = read(array("|O", "False", "(1,)", b"pickle")).unwrap_err();
        assert!(matches!(&error, Error::Elements { descr, .. } if descr == "|O"), "{error}");
        assert!(error.hint().unwrap().contains("pickle"));
        for dtype in [DType::BF16, DType::QI8] {
            let t = Tensor::new(dtype, [0], Bytes::new()).unwrap();
            assert!(write(&mut Vec::new(), &t).is_err());
        }
    }

    #[test]
    fn a_plain_array_is_a_window() {
        let bytes = array("<f4", "False", "(2,)", &[0; 8]);
        let t = read(bytes.clone()).unwrap();
        let (inner, outer) = (t.bytes().unwrap().as_ptr_range(), bytes.as_ptr_range());
        assert!(outer.start < inner.start && inner.end == outer.end);
    }

    fn any_tensor() -> impl Strategy<Value = Tensor> {
        let dtypes: Vec<DType> =
            DType::ALL.into_iter().filter(|&d| header::descr(d).is_some()).collect();
        let plain = (prop::sample::select(dtypes), prop::collection::vec(0usize..4, 0..4))
            .prop_flat_map(|(dtype, dims)| {
                let len = dims.iter().product::<usize>() * dtype.size().unwrap();
                prop::collection::vec(any::<u8>(), len)
                    .prop_map(move |data| Tensor::new(dtype, dims.clone(), data).unwrap())
            });
        let strings =
            prop::collection::vec(prop::collection::vec(1u8.., 0..5), 0..5).prop_map(|v| {
                Tensor::from_strings([v.len()], v.into_iter().map(Bytes::from).collect()).unwrap()
            });
        prop_oneof![3 => plain, 1 => strings]
    }

    proptest! {
        #[test]
        fn round_trip(tensor in any_tensor()) {
            let mut bytes = Vec::new();
            write(&mut bytes, &tensor).unwrap();
            for end in 0..bytes.len().saturating_sub(1) {
                prop_assert!(read(Bytes::copy_from_slice(&bytes[..end])).is_err());
            }
            prop_assert_eq!(read(bytes.into()).unwrap(), tensor);
        }
    }
}
