//! Tensors of an ONNX file: in the message, in its typed fields, or in a file beside it. Bytes
//! stay where they are; sizes are checked before anything is taken.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use frazil_tensor::{DType, Shape, Tensor, file};

use crate::onnx::dtype::from_onnx;
use crate::onnx::proto::{TensorProto, tensor_proto::DataLocation};
use crate::{Error, Result};

/// Reads tensors, and maps each data file once.
pub(super) struct Reader {
    folder: PathBuf,
    files: HashMap<String, Bytes>,
}

impl Reader {
    /// For a model in this folder.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), files: HashMap::new() }
    }

    pub fn read(&mut self, proto: &TensorProto) -> Result<Tensor> {
        let wrong = |reason: String| Error::BadTensor { tensor: proto.name().to_owned(), reason };
        let number = proto.data_type();
        let dtype = from_onnx(number)
            .ok_or_else(|| wrong(format!("its elements are of type {number}, which is unknown")))?;
        let dims: Option<Vec<usize>> =
            proto.dims.iter().map(|&dim| usize::try_from(dim).ok()).collect();
        let shape = Shape::from(dims.ok_or_else(|| wrong("an extent is negative".to_owned()))?);
        if proto.segment.is_some() {
            return Err(wrong("it is only a part of a tensor".to_owned()));
        }
        let tensor = if proto.data_location() == DataLocation::External {
            let bytes = self.external(proto, dtype, &shape).map_err(wrong)?;
            Tensor::new(dtype, shape, bytes)
        } else if dtype == DType::String {
            Tensor::from_strings(shape, proto.string_data.clone())
        } else if let Some(raw) = &proto.raw_data {
            Tensor::new(dtype, shape, raw.clone())
        } else {
            typed(proto, dtype, shape)
        };
        tensor.map_err(|error| wrong(error.to_string()))
    }

    fn external(
        &mut self,
        proto: &TensorProto,
        dtype: DType,
        shape: &Shape,
    ) -> std::result::Result<Bytes, String> {
        let field = |key: &str| {
            let mut found = proto.external_data.iter().filter(|entry| entry.key() == key);
            found.next().map(|entry| entry.value().to_owned())
        };
        let number = |key: &str| match field(key) {
            Some(text) => match text.parse::<usize>() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(format!("its {key} is `{text}`")),
            },
            None => Ok(None),
        };
        let location = field("location").ok_or("it is in no file")?;
        let all = self.file(&location)?;
        let size = dtype.size().ok_or("strings cannot be in a file of their own")?;
        let needed = shape.elements().and_then(|n| n.checked_mul(size)).ok_or("it is too large")?;
        let start = number("offset")?.unwrap_or(0);
        let length = number("length")?.unwrap_or(needed);
        let end = start.checked_add(length).filter(|&end| end <= all.len());
        let Some(end) = end else {
            return Err(format!(
                "its {length} bytes at {start} are beyond the end of `{location}`, {} bytes long",
                all.len()
            ));
        };
        Ok(all.slice(start..end))
    }

    /// A file in the model's folder or below; a model must not reach for others.
    fn file(&mut self, location: &str) -> std::result::Result<Bytes, String> {
        if let Some(bytes) = self.files.get(location) {
            return Ok(bytes.clone());
        }
        let inside = !location.is_empty()
            && Path::new(location).components().all(|part| matches!(part, Component::Normal(_)));
        if !inside {
            return Err(format!("its data is in `{location}`, outside of the model's folder"));
        }
        let bytes = file::map(self.folder.join(location)).map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            format!("{error}: {}", cause.unwrap_or_default())
        })?;
        self.files.insert(location.to_owned(), bytes.clone());
        Ok(bytes)
    }
}

/// Elements in the field that ONNX has for their type.
fn typed(proto: &TensorProto, dtype: DType, shape: Shape) -> frazil_tensor::Result<Tensor> {
    let ints = &proto.int32_data;
    macro_rules! narrow {
        ($t:ty) => {{
            let mut bytes = Vec::with_capacity(ints.len() * size_of::<$t>());
            ints.iter().for_each(|&v| bytes.extend_from_slice(&(v as $t).to_le_bytes()));
            Tensor::new(dtype, shape, bytes)
        }};
    }
    match dtype {
        DType::F32 => Tensor::from_vec(shape, proto.float_data.clone()),
        DType::F64 => Tensor::from_vec(shape, proto.double_data.clone()),
        DType::I32 => Tensor::from_vec(shape, ints.clone()),
        DType::I64 => Tensor::from_vec(shape, proto.int64_data.clone()),
        DType::U64 => Tensor::from_vec(shape, proto.uint64_data.clone()),
        DType::U32 => {
            let values = proto.uint64_data.iter().map(|&v| v as u32).collect();
            Tensor::from_vec::<u32>(shape, values)
        }
        DType::I8 => narrow!(i8),
        DType::U8 | DType::Bool => narrow!(u8),
        DType::I16 => narrow!(i16),
        // Halves of both kinds are there by their bits.
        DType::U16 | DType::F16 | DType::BF16 => narrow!(u16),
        DType::C64 => {
            let mut bytes = Vec::with_capacity(proto.float_data.len() * 4);
            proto.float_data.iter().for_each(|v| bytes.extend_from_slice(&v.to_le_bytes()));
            Tensor::new(dtype, shape, bytes)
        }
        _ => {
            let mut bytes = Vec::with_capacity(proto.double_data.len() * 8);
            proto.double_data.iter().for_each(|v| bytes.extend_from_slice(&v.to_le_bytes()));
            Tensor::new(dtype, shape, bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::{StringStringEntryProto, tensor_proto::DataType};

    fn proto(kind: DataType, dims: &[i64]) -> TensorProto {
        TensorProto {
            name: Some("t".into()),
            dims: dims.to_vec(),
            data_type: Some(kind as i32),
            ..Default::default()
        }
    }

    fn read(proto: &TensorProto) -> Result<Tensor> {
        Reader::new(Path::new(".")).read(proto)
    }

    #[test]
    fn every_field_is_read() {
        let mut t = proto(DataType::Float16, &[2]);
        t.int32_data = vec![0x3c00, 0xc000];
        assert_eq!(read(&t).unwrap().to_f64().unwrap(), [1.0, -2.0]);
        let mut t = proto(DataType::Bool, &[2]);
        t.int32_data = vec![0, 1];
        assert_eq!(read(&t).unwrap().dtype(), DType::Bool);
        let mut t = proto(DataType::Uint32, &[]);
        t.uint64_data = vec![7];
        assert_eq!(read(&t).unwrap().to_f64().unwrap(), [7.0]);
        let mut t = proto(DataType::Int64, &[3]);
        t.int64_data = vec![1, -1, i64::MAX];
        assert_eq!(&*read(&t).unwrap().values::<i64>().unwrap(), [1, -1, i64::MAX]);
    }

    #[test]
    fn sizes_and_places_are_checked() {
        let mut t = proto(DataType::Float, &[2]);
        t.raw_data = Some(vec![0u8; 7].into());
        assert!(read(&t).is_err());
        assert!(read(&proto(DataType::Float, &[-1])).is_err());
        assert!(read(&proto(DataType::Float, &[i64::MAX, i64::MAX])).is_err());
        assert!(read(&proto(DataType::Undefined, &[])).is_err());
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("w"), [0u8; 16]).unwrap();
        let mut reader = Reader::new(folder.path());
        let mut external = |location: &str, offset: &str| {
            let mut t = proto(DataType::Float, &[2]);
            t.data_location = Some(DataLocation::External as i32);
            t.external_data = [("location", location), ("offset", offset)]
                .map(|(key, value)| StringStringEntryProto {
                    key: Some(key.into()),
                    value: Some(value.into()),
                })
                .to_vec();
            reader.read(&t)
        };
        assert!(external("w", "8").is_ok());
        for (location, offset) in
            [("w", "12"), ("w", "-1"), ("w", "99999999999999999999"), ("../w", "0"), ("/w", "0")]
        {
            let error = external(location, offset).unwrap_err().to_string();
            assert!(error.contains("`t`"), "{error}");
        }
    }
}
