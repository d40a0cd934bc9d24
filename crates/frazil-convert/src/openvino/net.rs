//! The layers of an intermediate representation as they are written: in order, with wires, ports
//! and attributes. Nothing of files yet.

use bytes::Bytes;
use frazil_graph::Dim;
use frazil_tensor::DType;

/// OpenVINO's two names for an element type: in `precision` of ports and in `element_type` of
/// layers. `None` for what it does not have.
pub(super) fn type_names(dtype: DType) -> Option<(&'static str, &'static str)> {
    Some(match dtype {
        DType::F32 => ("FP32", "f32"),
        DType::F64 => ("FP64", "f64"),
        DType::F16 => ("FP16", "f16"),
        DType::BF16 => ("BF16", "bf16"),
        DType::I8 => ("I8", "i8"),
        DType::I16 => ("I16", "i16"),
        DType::I32 => ("I32", "i32"),
        DType::I64 => ("I64", "i64"),
        DType::U8 => ("U8", "u8"),
        DType::U16 => ("U16", "u16"),
        DType::U32 => ("U32", "u32"),
        DType::U64 => ("U64", "u64"),
        DType::Bool => ("BOOL", "boolean"),
        DType::C64
        | DType::C128
        | DType::QI8
        | DType::QU8
        | DType::QI16
        | DType::QU16
        | DType::QI32
        | DType::String => return None,
    })
}

/// The type of either of these names.
pub(super) fn dtype_named(name: &str) -> Option<DType> {
    DType::ALL
        .into_iter()
        .find(|dtype| type_names(*dtype).is_some_and(|(port, layer)| port == name || layer == name))
}

/// One output of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Wire {
    /// The layer's place.
    pub layer: usize,
    /// Which of its outputs.
    pub output: usize,
}

/// What is known of an output.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Out {
    /// Element type.
    pub dtype: DType,
    /// Extents; `None` if not even the rank is known.
    pub dims: Option<Vec<Dim>>,
    /// Names that the source knows it by.
    pub names: Vec<String>,
}

/// Bytes of a constant, and how they go to the file.
#[derive(Clone, Debug)]
pub(super) struct Blob {
    /// As they are in the graph.
    pub bytes: Bytes,
    /// Whether they are f32 to be stored as f16.
    pub halve: bool,
}

/// One operation of the representation.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    /// Unique.
    pub name: String,
    /// `MatMul`, for example.
    pub kind: &'static str,
    /// The operation set that introduced this version of it.
    pub opset: u8,
    /// Attributes.
    pub data: Vec<(&'static str, String)>,
    /// Whether it undoes the compression of a constant.
    pub decompression: bool,
    /// The value of a constant.
    pub blob: Option<Blob>,
    /// What it reads.
    pub inputs: Vec<Wire>,
    /// What it gives.
    pub outputs: Vec<Out>,
}

/// All layers in the order of the file: parameters, operations, results.
#[derive(Clone, Debug, Default)]
pub(super) struct Net {
    /// The layers; a layer's place is its `id`.
    pub layers: Vec<Layer>,
}

impl Net {
    /// What is known of a wire.
    pub fn out(&self, wire: Wire) -> &Out {
        &self.layers[wire.layer].outputs[wire.output]
    }
}
