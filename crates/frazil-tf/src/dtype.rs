//! TensorFlow's `DataType` numbers and frazil's element types.

use frazil_tensor::DType;

use crate::proto::DataType;
use crate::{Error, Result};

/// Offset that makes a type the type of a reference to it (`DT_FLOAT_REF` is `DT_FLOAT` + 100).
pub const REF_OFFSET: i32 = 100;

/// The pairs; everything below is read off this table.
const TYPES: [(DataType, DType); 21] = [
    (DataType::DtFloat, DType::F32),
    (DataType::DtDouble, DType::F64),
    (DataType::DtHalf, DType::F16),
    (DataType::DtBfloat16, DType::BF16),
    (DataType::DtInt8, DType::I8),
    (DataType::DtInt16, DType::I16),
    (DataType::DtInt32, DType::I32),
    (DataType::DtInt64, DType::I64),
    (DataType::DtUint8, DType::U8),
    (DataType::DtUint16, DType::U16),
    (DataType::DtUint32, DType::U32),
    (DataType::DtUint64, DType::U64),
    (DataType::DtBool, DType::Bool),
    (DataType::DtComplex64, DType::C64),
    (DataType::DtComplex128, DType::C128),
    (DataType::DtQint8, DType::QI8),
    (DataType::DtQuint8, DType::QU8),
    (DataType::DtQint16, DType::QI16),
    (DataType::DtQuint16, DType::QU16),
    (DataType::DtQint32, DType::QI32),
    (DataType::DtString, DType::String),
];

/// The element type of a `DataType` number as it stands in a file; a reference type gives the
/// type that it refers to.
pub fn from_proto(number: i32) -> Result<DType> {
    let plain = if number > REF_OFFSET { number - REF_OFFSET } else { number };
    TYPES
        .iter()
        .find(|(proto, _)| *proto as i32 == plain)
        .map(|&(_, dtype)| dtype)
        .ok_or_else(|| Error::NoValues { dtype: name(number) })
}

/// The `DataType` of an element type.
pub fn to_proto(dtype: DType) -> DataType {
    let pair = TYPES.iter().find(|(_, ours)| *ours == dtype);
    pair.expect("the table has every element type").0
}

/// `DT_FLOAT`, or the bare number for one that no TensorFlow has.
pub fn name(number: i32) -> String {
    match DataType::try_from(number) {
        Ok(known) => known.as_str_name().to_owned(),
        Err(_) => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_type_goes_there_and_back() {
        for dtype in DType::ALL {
            let number = to_proto(dtype) as i32;
            assert_eq!(from_proto(number).unwrap(), dtype);
            assert_eq!(from_proto(number + REF_OFFSET).unwrap(), dtype);
        }
    }

    #[test]
    fn types_without_values_are_refused_by_name() {
        let error = from_proto(DataType::DtResource as i32).unwrap_err();
        assert!(error.to_string().contains("DT_RESOURCE"), "{error}");
        assert!(from_proto(0).is_err() && from_proto(999).is_err() && from_proto(-1).is_err());
    }
}
