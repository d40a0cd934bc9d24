//! Element types: those of TensorFlow's `DataType` that have values in files.

use std::fmt;

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it all")]
pub enum DType {
    F32,
    F64,
    F16,
    BF16,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
    C64,
    C128,
    /// TensorFlow's quantized integers: stored as the plain integer of the same width.
    QI8,
    QU8,
    QI16,
    QU16,
    QI32,
    /// Byte strings of any length.
    String,
}

impl DType {
    /// All of them, in declaration order.
    pub const ALL: [DType; 21] = [
        DType::F32,
        DType::F64,
        DType::F16,
        DType::BF16,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::Bool,
        DType::C64,
        DType::C128,
        DType::QI8,
        DType::QU8,
        DType::QI16,
        DType::QU16,
        DType::QI32,
        DType::String,
    ];

    /// Bytes of one element; `None` for strings, which have no fixed size.
    pub fn size(self) -> Option<usize> {
        Some(match self {
            DType::I8 | DType::U8 | DType::Bool | DType::QI8 | DType::QU8 => 1,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 | DType::QI16 | DType::QU16 => 2,
            DType::F32 | DType::I32 | DType::U32 | DType::QI32 => 4,
            DType::F64 | DType::I64 | DType::U64 | DType::C64 => 8,
            DType::C128 => 16,
            DType::String => return None,
        })
    }

    /// TensorFlow's and NumPy's lower-case name, `float32` for example.
    pub fn name(self) -> &'static str {
        match self {
            DType::F32 => "float32",
            DType::F64 => "float64",
            DType::F16 => "float16",
            DType::BF16 => "bfloat16",
            DType::I8 => "int8",
            DType::I16 => "int16",
            DType::I32 => "int32",
            DType::I64 => "int64",
            DType::U8 => "uint8",
            DType::U16 => "uint16",
            DType::U32 => "uint32",
            DType::U64 => "uint64",
            DType::Bool => "bool",
            DType::C64 => "complex64",
            DType::C128 => "complex128",
            DType::QI8 => "qint8",
            DType::QU8 => "quint8",
            DType::QI16 => "qint16",
            DType::QU16 => "quint16",
            DType::QI32 => "qint32",
            DType::String => "string",
        }
    }

    /// The type with this [`name`](Self::name).
    pub fn from_name(name: &str) -> Option<DType> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// The type whose plain representation this one is stored in: itself but for the quantized
    /// integers and `Bool`.
    pub fn storage(self) -> DType {
        match self {
            DType::QI8 => DType::I8,
            DType::QU8 | DType::Bool => DType::U8,
            DType::QI16 => DType::I16,
            DType::QU16 => DType::U16,
            DType::QI32 => DType::I32,
            other => other,
        }
    }

    /// Whether the elements are real floating-point numbers.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64 | DType::F16 | DType::BF16)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A Rust type that a tensor's bytes can be viewed as.
pub trait Element: bytemuck::Pod + PartialEq + Send + Sync {
    /// The element type that is stored this way.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {
        $(impl Element for $rust { const DTYPE: DType = DType::$dtype; })*
    };
}

elements! {
    f32 => F32, f64 => F64, f16 => F16, bf16 => BF16,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    u8 => U8, u16 => U16, u32 => U32, u64 => U64,
}
