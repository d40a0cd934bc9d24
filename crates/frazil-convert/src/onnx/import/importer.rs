//! The graph under construction: names, constants, element types, and what has to wait until
//! the extents are known.

use std::collections::HashMap;
use std::path::Path;

use frazil_graph::op::{Declared, Foreign, Op, ShapeOp, StridedSlice, Unary};
use frazil_graph::{Graph, Node, NodeId, Value};
use frazil_tensor::{DType, Tensor};

use super::quantized::Quantized;
use super::tensor::Reader;
use crate::onnx::proto::{AttributeProto, NodeProto, TensorProto};
use crate::{Error, Result};

/// Why a node cannot be read.
pub(super) type Refusal = String;

/// Lists of more elements are data, not axes or extents.
const LONGEST_LIST: usize = 1024;

/// Something that only the extents can tell.
pub(super) enum Pending {
    /// A softmax over an axis that counts from the start. Before opset 13 it was over all axes
    /// from there on.
    Softmax { node: NodeId, axis: i64, flattens: bool },
    /// A normalisation over an axis that counts from the start.
    Norm { node: NodeId, axis: i64 },
    /// A reshape whose target is computed, where a 0 would mean "as it was".
    Reshape { node: NodeId },
    /// A product with ones that may be a plain broadcast.
    Expand { node: NodeId, x: Value, target: Value },
}

pub(super) struct Importer {
    pub graph: Graph,
    pub reader: Reader,
    pub opset: i64,
    pub values: HashMap<String, Value>,
    pub pending: Vec<Pending>,
    pub quantized: Quantized,
    dtypes: Vec<Option<DType>>,
    /// How many nodes wanted a name so far.
    wanted: HashMap<String, usize>,
}

impl Importer {
    pub fn new(opset: i64, folder: &Path) -> Self {
        Self {
            graph: Graph::new(),
            reader: Reader::new(folder),
            opset,
            values: HashMap::new(),
            pending: Vec::new(),
            quantized: Quantized::new(),
            dtypes: Vec::new(),
            wanted: HashMap::new(),
        }
    }

    /// Adds a node under a name that TensorFlow would take too, made unique.
    pub fn push(&mut self, name: &str, op: Op, inputs: Vec<Value>) -> Result<Value> {
        let dtype = self.result_type(&op, &inputs);
        let clean = sanitise(name);
        let count = self.wanted.entry(clean.clone()).or_insert(0);
        let mut name = if *count == 0 { clean.clone() } else { format!("{clean}_{count}") };
        *count += 1;
        while self.graph.find(&name).is_some() {
            let count = self.wanted.entry(clean.clone()).or_insert(0);
            name = format!("{clean}_{count}");
            *count += 1;
        }
        let id = self.graph.push(Node::new(name, op, inputs))?;
        self.dtypes.push(dtype);
        Ok(id.into())
    }

    /// Remembers what a tensor of the file is called here.
    pub fn define(&mut self, name: &str, value: Value) -> Result<()> {
        if self.values.insert(name.to_owned(), value).is_some() {
            return Err(Error::BadOnnx { reason: format!("`{name}` is computed twice") });
        }
        Ok(())
    }

    /// The element type, as far as it follows from the nodes so far.
    pub fn dtype(&self, value: Value) -> Option<DType> {
        self.dtypes.get(value.node.index()).copied().flatten()
    }

    fn result_type(&self, op: &Op, inputs: &[Value]) -> Option<DType> {
        let of = |i: usize| inputs.get(i).and_then(|&value| self.dtype(value));
        match op {
            Op::Input(op) | Op::InputWithDefault(op) => Some(op.dtype),
            Op::Const(op) => Some(op.value.dtype()),
            Op::Compare(_) => Some(DType::Bool),
            Op::Cast(op) => Some(op.to),
            Op::ArgMax(op) => Some(op.to),
            Op::Shape(op) | Op::Size(op) => Some(op.to),
            Op::Rank => Some(DType::I32),
            Op::Select | Op::Split(_) | Op::Fill => of(1),
            Op::OneHot(_) => of(2),
            Op::Scaled(_) => Some(DType::F32),
            Op::Foreign(_) => None,
            _ => of(0),
        }
    }

    /// Whether the value is a constant.
    pub fn constant(&self, value: Value) -> Option<&Tensor> {
        self.graph.op(value).as_const()
    }

    /// The integers of a constant list.
    pub fn ints(&self, value: Value) -> Option<Vec<i64>> {
        let tensor = self.constant(value).filter(|tensor| tensor.elements() <= LONGEST_LIST)?;
        match tensor.dtype() {
            DType::I64 => Some(tensor.values::<i64>().ok()?.into_owned()),
            DType::I32 => {
                Some(tensor.values::<i32>().ok()?.iter().map(|&v| i64::from(v)).collect())
            }
            _ => None,
        }
    }

    /// A constant of the node `call`.
    pub fn tensor(&mut self, call: &Call<'_>, part: &str, tensor: Tensor) -> Result<Value> {
        self.push(&format!("{}/{part}", call.name), Op::constant(tensor), vec![])
    }

    /// A list of `int32`, TensorFlow's type for axes and the like, or of `int64` where one does
    /// not fit.
    pub fn list(&mut self, call: &Call<'_>, part: &str, values: &[i64]) -> Result<Value> {
        let short: Option<Vec<i32>> = values.iter().map(|&v| i32::try_from(v).ok()).collect();
        let tensor = match short {
            Some(short) => Tensor::from_vec([values.len()], short)?,
            None => Tensor::from_vec([values.len()], values.to_vec())?,
        };
        self.tensor(call, part, tensor)
    }

    /// A list of `int64`, to be joined with what ONNX computes.
    pub fn long_list(&mut self, call: &Call<'_>, part: &str, values: &[i64]) -> Result<Value> {
        let tensor = Tensor::from_vec([values.len()], values.to_vec())?;
        self.tensor(call, part, tensor)
    }

    /// An `int32`.
    pub fn int(&mut self, call: &Call<'_>, part: &str, value: i64) -> Result<Value> {
        let tensor = match i32::try_from(value) {
            Ok(short) => Tensor::from_vec([], vec![short])?,
            Err(_) => Tensor::from_vec([], vec![value])?,
        };
        self.tensor(call, part, tensor)
    }

    /// A node in between.
    pub fn aux(
        &mut self,
        call: &Call<'_>,
        part: &str,
        op: Op,
        inputs: Vec<Value>,
    ) -> Result<Value> {
        self.push(&format!("{}/{part}", call.name), op, inputs)
    }

    /// The extents of a value as a list of `int64`.
    pub fn shape_of(&mut self, call: &Call<'_>, x: Value) -> Result<Value> {
        self.aux(call, "shape", Op::Shape(ShapeOp { to: DType::I64 }), vec![x])
    }

    /// Elements `from..to` of a list; to the end without `to`.
    pub fn run_of(
        &mut self,
        call: &Call<'_>,
        part: &str,
        list: Value,
        from: i64,
        to: Option<i64>,
    ) -> Result<Value> {
        let begin = self.list(call, "begin", &[from])?;
        let end = self.list(call, "end", &[to.unwrap_or(0)])?;
        let strides = self.list(call, "strides", &[1])?;
        let op = StridedSlice { end_mask: u32::from(to.is_none()), ..StridedSlice::default() };
        self.aux(call, part, Op::StridedSlice(op), vec![list, begin, end, strides])
    }

    /// Lists joined to one.
    pub fn joined(&mut self, call: &Call<'_>, part: &str, parts: Vec<Value>) -> Result<Value> {
        if let [one] = parts.as_slice() {
            return Ok(*one);
        }
        let mut inputs = parts;
        inputs.push(self.int(call, "axis", 0)?);
        self.aux(call, part, Op::Concat, inputs)
    }

    /// The result of a call that is nothing but its input.
    pub fn identity(&mut self, call: &Call<'_>, x: Value) -> Result<Value> {
        self.push(&call.name, Op::Unary(Unary::Identity), vec![x])
    }

    /// Stands in for a node that cannot be read, so that all of them are found.
    pub fn stand_in(&mut self, call: &Call<'_>) -> Result<NodeId> {
        let outputs = vec![Declared::default(); call.proto.output.len()];
        let op = Foreign { op: call.op().to_owned(), attrs: [].into(), outputs };
        Ok(self.push(&call.name, Op::Foreign(op), vec![])?.node)
    }
}

/// A node of the file with its inputs looked up.
pub(super) struct Call<'a> {
    pub proto: &'a NodeProto,
    /// Of the result: that of the first output.
    pub name: String,
    pub inputs: Vec<Option<Value>>,
}

impl Call<'_> {
    pub fn op(&self) -> &str {
        self.proto.op_type()
    }

    /// An input that must be there.
    pub fn input(&self, i: usize) -> Result<Value, Refusal> {
        self.optional(i).ok_or_else(|| format!("input {i} is missing"))
    }

    /// An input that may be absent, or be there with an empty name.
    pub fn optional(&self, i: usize) -> Option<Value> {
        self.inputs.get(i).copied().flatten()
    }

    /// All inputs, of which none may be absent.
    pub fn all(&self) -> Result<Vec<Value>, Refusal> {
        (0..self.inputs.len()).map(|i| self.input(i)).collect()
    }

    fn attribute(&self, name: &str) -> Option<&AttributeProto> {
        self.proto.attribute.iter().find(|attribute| attribute.name() == name)
    }

    pub fn int(&self, name: &str) -> Option<i64> {
        self.attribute(name)?.i
    }

    pub fn float(&self, name: &str) -> Option<f32> {
        self.attribute(name)?.f
    }

    pub fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.attribute(name).map(|attribute| attribute.ints.clone())
    }

    pub fn floats(&self, name: &str) -> Option<Vec<f32>> {
        self.attribute(name).map(|attribute| attribute.floats.clone())
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        str::from_utf8(self.attribute(name)?.s.as_deref()?).ok()
    }

    pub fn tensor(&self, name: &str) -> Option<&TensorProto> {
        self.attribute(name)?.t.as_deref()
    }
}

/// Letters, digits and what TensorFlow's names may have besides; never empty, and not beginning
/// with what they may not begin with.
fn sanitise(name: &str) -> String {
    let clean = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-' | '>') { c } else { '_' }
    };
    let name: String = name.trim_start_matches('/').chars().map(clean).collect();
    match name.chars().next() {
        Some(first) if first.is_ascii_alphanumeric() || first == '.' => name,
        _ => format!("node{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_tensorflow_s_and_unique() {
        assert_eq!(sanitise("/bert/layer.0/MatMul_output_0"), "bert/layer.0/MatMul_output_0");
        assert_eq!(sanitise("onnx::Gather_7"), "onnx__Gather_7");
        assert_eq!(sanitise("_x"), "node_x");
        assert_eq!(sanitise(""), "node");
        let mut importer = Importer::new(17, Path::new(""));
        let one = || Op::constant(Tensor::from_vec([], vec![1i32]).unwrap());
        let names: Vec<String> = ["a:0", "a_0", "a_0_1", "a:0"]
            .iter()
            .map(|name| {
                let value = importer.push(name, one(), vec![]).unwrap();
                importer.graph.value_name(value)
            })
            .collect();
        assert_eq!(names, ["a_0", "a_0_1", "a_0_1_1", "a_0_2"]);
    }
}
