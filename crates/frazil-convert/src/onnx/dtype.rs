//! Element types by ONNX's numbers.

use frazil_tensor::DType;

use super::proto::tensor_proto::DataType;

/// ONNX's number of a type; `None` for what its operations cannot take.
pub(super) fn to_onnx(dtype: DType) -> Option<DataType> {
    Some(match dtype {
        DType::F32 => DataType::Float,
        DType::F64 => DataType::Double,
        DType::F16 => DataType::Float16,
        DType::BF16 => DataType::Bfloat16,
        DType::I8 => DataType::Int8,
        DType::I16 => DataType::Int16,
        DType::I32 => DataType::Int32,
        DType::I64 => DataType::Int64,
        DType::U8 => DataType::Uint8,
        DType::U16 => DataType::Uint16,
        DType::U32 => DataType::Uint32,
        DType::U64 => DataType::Uint64,
        DType::Bool => DataType::Bool,
        DType::String => DataType::String,
        DType::C64
        | DType::C128
        | DType::QI8
        | DType::QU8
        | DType::QI16
        | DType::QU16
        | DType::QI32 => return None,
    })
}

/// The type behind ONNX's number; `None` for those that frazil does not have.
pub(super) fn from_onnx(number: i32) -> Option<DType> {
    Some(match DataType::try_from(number).ok()? {
        DataType::Float => DType::F32,
        DataType::Double => DType::F64,
        DataType::Float16 => DType::F16,
        DataType::Bfloat16 => DType::BF16,
        DataType::Int8 => DType::I8,
        DataType::Int16 => DType::I16,
        DataType::Int32 => DType::I32,
        DataType::Int64 => DType::I64,
        DataType::Uint8 => DType::U8,
        DataType::Uint16 => DType::U16,
        DataType::Uint32 => DType::U32,
        DataType::Uint64 => DType::U64,
        DataType::Bool => DType::Bool,
        DataType::String => DType::String,
        DataType::Complex64 => DType::C64,
        DataType::Complex128 => DType::C128,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back() {
        let known = DType::ALL.into_iter().filter_map(|dtype| Some((dtype, to_onnx(dtype)?)));
        for (dtype, number) in known {
            assert_eq!(from_onnx(number as i32), Some(dtype));
        }
        assert_eq!(to_onnx(DType::QI8), None);
        assert_eq!(from_onnx(0), None);
        assert_eq!(from_onnx(99), None);
    }
}
