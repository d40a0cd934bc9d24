//! What the functions for the operations write into: nodes, initializers and names that are
//! unique. The graph's own values keep their names; what is put in between is named under the
//! node that it serves.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use frazil_graph::{Dim, Facts, Graph, Node, NodeId, Value, op::Op};
use frazil_tensor::{DType, Tensor};

use super::attr;
use crate::onnx::dtype::to_onnx;
use crate::onnx::proto::{AttributeProto, NodeProto, TensorProto};

/// Why a node cannot be written.
pub(super) type Refusal = String;

/// A constant on its way to the file.
#[derive(Clone, Debug)]
pub(super) struct Initializer {
    /// Name, type and extents; the strings of a string tensor.
    pub header: TensorProto,
    /// The elements.
    pub payload: Payload,
}

/// The elements of an initializer.
#[derive(Clone, Debug)]
pub(super) enum Payload {
    /// As they are: a window, not a copy.
    Plain(Bytes),
    /// `float32` that is written as `float16`.
    Half(Bytes),
    /// Strings, which are in the header.
    None,
}

/// Constants below this many elements are not worth a cast.
const LEAST_COMPRESSED: usize = 32;

/// A model under construction.
pub(super) struct Builder<'g> {
    pub graph: &'g Graph,
    pub facts: Facts,
    pub opset: u32,
    pub fp16: bool,
    /// Nodes whose `int32` results are written as `int64`.
    pub wide: Vec<bool>,
    /// Weights of bytes in products of bytes.
    pub multiplied: HashSet<NodeId>,
    pub nodes: Vec<NodeProto>,
    pub initializers: Vec<Initializer>,
    /// Constants that stayed `float32` although `fp16` was asked for.
    pub out_of_range: Vec<String>,
    names: HashMap<Value, String>,
    taken: HashSet<String>,
    node_names: HashSet<String>,
    /// Other forms of values that were made so far: constants, casts.
    native: HashMap<Value, String>,
    int64: HashMap<Value, String>,
    /// Small constants by content.
    pool: HashMap<(DType, Vec<usize>, Bytes), String>,
    current: NodeId,
}

impl<'g> Builder<'g> {
    pub fn new(graph: &'g Graph, facts: Facts, opset: u32, fp16: bool, wide: Vec<bool>) -> Self {
        Self {
            graph,
            facts,
            opset,
            fp16,
            wide,
            multiplied: HashSet::new(),
            nodes: Vec::new(),
            initializers: Vec::new(),
            out_of_range: Vec::new(),
            names: HashMap::new(),
            taken: HashSet::new(),
            node_names: HashSet::new(),
            native: HashMap::new(),
            int64: HashMap::new(),
            pool: HashMap::new(),
            current: NodeId(0),
        }
    }

    /// Whose nodes are written from now on.
    pub fn begin(&mut self, id: NodeId) -> &'g Node {
        self.current = id;
        self.graph.node(id)
    }

    /// Whose nodes are being written.
    pub fn current(&self) -> NodeId {
        self.current
    }

    /// Takes `name`, or the first free one with a number behind it.
    pub fn reserve(&mut self, name: &str) -> String {
        fresh(&mut self.taken, name)
    }

    /// Gives a value its name in the file.
    pub fn set_name(&mut self, value: Value, name: String) {
        self.names.insert(value, name);
    }

    /// The name of a value in the file.
    pub fn name(&mut self, value: Value) -> String {
        if let Some(name) = self.names.get(&value) {
            return name.clone();
        }
        let name = self.reserve(&self.graph.value_name(value));
        self.names.insert(value, name.clone());
        name
    }

    /// The name of a value that has one.
    pub fn name_of(&self, value: Value) -> &str {
        self.names.get(&value).map_or("", String::as_str)
    }

    /// Whether the current node's result is `int64` instead of `int32`.
    pub fn is_wide(&self) -> bool {
        self.wide[self.current.index()]
    }

    pub fn dtype(&self, value: Value) -> Result<DType, Refusal> {
        self.facts[value]
            .dtype
            .ok_or_else(|| format!("the type of `{}` is not known", self.graph.value_name(value)))
    }

    pub fn dims(&self, value: Value) -> Option<&[Dim]> {
        self.facts[value].dims.as_deref()
    }

    pub fn rank(&self, value: Value) -> Option<usize> {
        self.facts[value].rank()
    }

    /// The rank, where it cannot be done without.
    pub fn known_rank(&self, value: Value) -> Result<usize, Refusal> {
        let unknown = || format!("the rank of `{}` is not known", self.graph.value_name(value));
        self.rank(value).ok_or_else(unknown)
    }

    /// The constant behind a value, through identities.
    pub fn constant(&self, value: Value) -> Option<&'g Tensor> {
        self.graph.op(self.origin(value)).as_const()
    }

    /// The integers of a value that is known before anything runs.
    pub fn ints(&self, value: Value) -> Option<Vec<i64>> {
        if let Some(elements) = self.facts[value].known_elements() {
            return Some(elements);
        }
        let tensor = self.constant(value)?;
        match tensor.dtype() {
            DType::I64 => Some(tensor.values::<i64>().ok()?.into_owned()),
            DType::I32 => {
                Some(tensor.values::<i32>().ok()?.iter().map(|&v| i64::from(v)).collect())
            }
            _ => None,
        }
    }

    /// The same, where ONNX wants them at the time of writing.
    pub fn known_ints(&self, value: Value, what: &str) -> Result<Vec<i64>, Refusal> {
        self.ints(value).ok_or_else(|| format!("its {what} must be constant"))
    }

    /// One integer, where ONNX wants it at the time of writing.
    pub fn known_int(&self, value: Value, what: &str) -> Result<i64, Refusal> {
        match self.known_ints(value, what)?.as_slice() {
            [value] => Ok(*value),
            list => Err(format!("its {what} is a list of {}", list.len())),
        }
    }

    /// The constant that a value is a copy of, or the value itself: TF1 reads every weight through
    /// an identity, which says nothing here.
    fn origin(&self, value: Value) -> Value {
        let mut origin = value;
        for _ in 0..self.graph.len() {
            let node = self.graph.node(origin.node);
            match (&node.op, node.inputs.first()) {
                (Op::Const(_), _) => return origin,
                (Op::Unary(kind), Some(&input)) if is_identity(*kind) => origin = input,
                _ => return value,
            }
        }
        value
    }

    /// An operand in the type that the graph says.
    pub fn input(&mut self, value: Value) -> Result<String, Refusal> {
        let value = self.origin(value);
        if self.graph.op(value).as_const().is_some() {
            return self.constant_input(value);
        }
        let name = self.name(value);
        if !self.wide[value.node.index()] {
            return Ok(name);
        }
        if let Some(cast) = self.native.get(&value) {
            return Ok(cast.clone());
        }
        let cast = self.reserve(&format!("{name}/int32"));
        self.cast_node(&name, &cast, DType::I32)?;
        self.native.insert(value, cast.clone());
        Ok(cast)
    }

    /// An operand as `int64`.
    pub fn index(&mut self, value: Value) -> Result<String, Refusal> {
        let value = self.origin(value);
        if self.wide[value.node.index()] {
            return Ok(self.name(value));
        }
        if let Some(made) = self.int64.get(&value) {
            return Ok(made.clone());
        }
        let dims = self.facts[value].known_dims();
        let constant = self.graph.op(value).as_const().is_some();
        let name = match (self.ints(value), dims) {
            (Some(ints), Some(dims)) if constant => {
                let dims = dims.iter().map(|&d| d as usize).collect::<Vec<_>>();
                let name = self.graph.value_name(value);
                let tensor = Tensor::from_vec(dims, ints).map_err(|e| e.to_string())?;
                self.pooled(&name, &tensor)?
            }
            _ if self.dtype(value)? == DType::I64 => self.input(value)?,
            _ => {
                let from = self.input(value)?;
                let to = self.reserve(&format!("{from}/int64"));
                self.cast_node(&from, &to, DType::I64)?;
                to
            }
        };
        self.int64.insert(value, name.clone());
        Ok(name)
    }

    /// An operand of the current node's own type.
    pub fn data(&mut self, value: Value) -> Result<String, Refusal> {
        if self.is_wide() { self.index(value) } else { self.input(value) }
    }

    /// An operand whose type does not matter.
    pub fn any(&mut self, value: Value) -> Result<String, Refusal> {
        let value = self.origin(value);
        if self.wide[value.node.index()] { Ok(self.name(value)) } else { self.input(value) }
    }

    /// Casts stand where they are first wanted: after the value, before its reader.
    fn cast_node(&mut self, from: &str, to: &str, dtype: DType) -> Result<(), Refusal> {
        let number = to_onnx(dtype).ok_or_else(|| no_type(dtype))?;
        let name = fresh(&mut self.node_names, to);
        self.nodes.push(node(
            "Cast",
            name,
            vec![from.to_owned()],
            vec![to.to_owned()],
            vec![attr::int("to", i64::from(number as i32))],
        ));
        Ok(())
    }

    fn constant_input(&mut self, value: Value) -> Result<String, Refusal> {
        if let Some(name) = self.native.get(&value) {
            return Ok(name.clone());
        }
        let tensor = self.graph.op(value).as_const().ok_or("it is no constant")?;
        let name = self.name(value);
        let compress = self.fp16
            && tensor.dtype() == DType::F32
            && tensor.elements() >= LEAST_COMPRESSED
            && self.in_range(&name, tensor)?;
        if compress {
            let half = self.reserve(&format!("{name}/fp16"));
            let mut header = header(&half, tensor)?;
            header.data_type = to_onnx(DType::F16).map(|number| number as i32);
            let payload = Payload::Half(tensor.bytes().map_err(|e| e.to_string())?.clone());
            self.initializers.push(Initializer { header, payload });
            self.cast_node(&half, &name, DType::F32)?;
        } else {
            self.initializers.push(initializer(&name, tensor)?);
        }
        self.native.insert(value, name.clone());
        Ok(name)
    }

    /// A constant as it is, whatever becomes of others: bytes and their scales are not rounded.
    pub fn exact(&mut self, value: Value) -> Result<String, Refusal> {
        let value = self.origin(value);
        if let Some(name) = self.native.get(&value) {
            return Ok(name.clone());
        }
        let tensor = self.graph.op(value).as_const().ok_or("bytes and scales must be constant")?;
        let name = self.name(value);
        self.initializers.push(initializer(&name, tensor)?);
        self.native.insert(value, name.clone());
        Ok(name)
    }

    /// Whether all elements stay finite as `float16`.
    fn in_range(&mut self, name: &str, tensor: &Tensor) -> Result<bool, Refusal> {
        // From here on it rounds to infinity.
        const BEYOND: f32 = 65520.0;
        let bytes = tensor.bytes().map_err(|e| e.to_string())?;
        let mut pieces = bytes.chunks(1 << 16).map(bytemuck::pod_collect_to_vec::<u8, f32>);
        let fits = pieces.all(|piece| piece.iter().all(|x| x.abs() < BEYOND || !x.is_finite()));
        if !fits {
            self.out_of_range.push(name.to_owned());
        }
        Ok(fits)
    }

    /// The name that something under the current node gets.
    fn under(&self, part: &str) -> String {
        format!("{}/{part}", self.graph.node(self.current).name)
    }

    /// A node in between; returns the name of its output.
    pub fn emit(
        &mut self,
        part: &str,
        op: &str,
        inputs: &[&str],
        attributes: Vec<AttributeProto>,
    ) -> String {
        let output = self.reserve(&self.under(part));
        let name = fresh(&mut self.node_names, &output);
        let inputs = inputs.iter().map(|&input| input.to_owned()).collect();
        self.nodes.push(node(op, name, inputs, vec![output.clone()], attributes));
        output
    }

    /// Several results of one node in between.
    pub fn emit_many(
        &mut self,
        part: &str,
        op: &str,
        inputs: &[&str],
        attributes: Vec<AttributeProto>,
        count: usize,
    ) -> Vec<String> {
        let base = self.under(part);
        let outputs: Vec<String> =
            (0..count).map(|i| self.reserve(&format!("{base}_{i}"))).collect();
        let name = fresh(&mut self.node_names, &base);
        let inputs = inputs.iter().map(|&input| input.to_owned()).collect();
        self.nodes.push(node(op, name, inputs, outputs.clone(), attributes));
        outputs
    }

    /// The node that gives the current node's results, under its name.
    pub fn finish(
        &mut self,
        op: &str,
        inputs: &[&str],
        attributes: Vec<AttributeProto>,
    ) -> Result<(), Refusal> {
        let id = self.current;
        let outputs = (0..self.graph.node(id).op.outputs() as u32)
            .map(|port| self.name(Value { node: id, port }))
            .collect();
        let name = fresh(&mut self.node_names, &self.graph.node(id).name);
        let inputs = inputs.iter().map(|&input| input.to_owned()).collect();
        self.nodes.push(node(op, name, inputs, outputs, attributes));
        Ok(())
    }

    /// A node that gives one of several results of the current one.
    pub fn finish_port(
        &mut self,
        port: u32,
        op: &str,
        inputs: &[&str],
        attributes: Vec<AttributeProto>,
    ) {
        let output = self.name(Value { node: self.current, port });
        self.identity_like(op, &output, inputs, attributes);
    }

    /// A node that gives `output`, and is named for it.
    pub fn identity_like(
        &mut self,
        op: &str,
        output: &str,
        inputs: &[&str],
        attributes: Vec<AttributeProto>,
    ) {
        let name = fresh(&mut self.node_names, output);
        let inputs = inputs.iter().map(|&input| input.to_owned()).collect();
        self.nodes.push(node(op, name, inputs, vec![output.to_owned()], attributes));
    }

    /// A cast of something in between.
    pub fn cast(&mut self, part: &str, from: &str, to: DType) -> Result<String, Refusal> {
        let number = to_onnx(to).ok_or_else(|| no_type(to))?;
        Ok(self.emit(part, "Cast", &[from], vec![attr::int("to", i64::from(number as i32))]))
    }

    /// A small constant; equal ones are written once.
    pub fn small(&mut self, part: &str, tensor: &Tensor) -> Result<String, Refusal> {
        let name = self.under(part);
        self.pooled(&name, tensor)
    }

    fn pooled(&mut self, name: &str, tensor: &Tensor) -> Result<String, Refusal> {
        let bytes = tensor.bytes().map_err(|e| e.to_string())?.clone();
        let key = (tensor.dtype(), tensor.shape().to_vec(), bytes);
        if let Some(name) = self.pool.get(&key) {
            return Ok(name.clone());
        }
        let name = self.reserve(name);
        self.initializers.push(initializer(&name, tensor)?);
        self.pool.insert(key, name.clone());
        Ok(name)
    }

    /// A list of `int64`.
    pub fn list(&mut self, part: &str, values: &[i64]) -> Result<String, Refusal> {
        let tensor =
            Tensor::from_vec([values.len()], values.to_vec()).map_err(|e| e.to_string())?;
        self.small(part, &tensor)
    }

    /// A number of a given type.
    pub fn number(&mut self, part: &str, dtype: DType, value: f64) -> Result<String, Refusal> {
        let tensor = number(dtype, value)?;
        self.small(part, &tensor)
    }

    /// Puts axes of extent 1 in.
    pub fn unsqueeze(&mut self, part: &str, x: &str, axes: &[i64]) -> Result<String, Refusal> {
        let axes = self.list("axes", axes)?;
        Ok(self.emit(part, "Unsqueeze", &[x, &axes], vec![]))
    }
}

/// A scalar of any real type.
pub(super) fn number(dtype: DType, value: f64) -> Result<Tensor, Refusal> {
    let tensor = match dtype {
        DType::I64 => Tensor::from_vec([], vec![value as i64]),
        DType::I32 => Tensor::from_vec([], vec![value as i32]),
        DType::I16 => Tensor::from_vec([], vec![value as i16]),
        DType::I8 => Tensor::from_vec([], vec![value as i8]),
        DType::U8 => Tensor::from_vec([], vec![value as u8]),
        DType::F64 => Tensor::from_vec([], vec![value]),
        dtype if dtype.is_float() => {
            Tensor::from_vec([], vec![value as f32]).and_then(|wide| wide.cast(dtype))
        }
        other => return Err(format!("a number of type {other} is needed for it")),
    };
    tensor.map_err(|error| error.to_string())
}

pub(super) fn no_type(dtype: DType) -> Refusal {
    format!("ONNX has no {dtype}")
}

pub(super) fn is_identity(kind: frazil_graph::op::Unary) -> bool {
    use frazil_graph::op::Unary;
    matches!(kind, Unary::Identity | Unary::StopGradient)
}

fn fresh(taken: &mut HashSet<String>, name: &str) -> String {
    if taken.insert(name.to_owned()) {
        return name.to_owned();
    }
    let mut number = 1usize;
    loop {
        let candidate = format!("{name}_{number}");
        if taken.insert(candidate.clone()) {
            return candidate;
        }
        number += 1;
    }
}

fn node(
    op: &str,
    name: String,
    input: Vec<String>,
    output: Vec<String>,
    attribute: Vec<AttributeProto>,
) -> NodeProto {
    NodeProto {
        input,
        output,
        name: Some(name),
        op_type: Some(op.to_owned()),
        attribute,
        ..NodeProto::default()
    }
}

/// Name, type and extents.
fn header(name: &str, tensor: &Tensor) -> Result<TensorProto, Refusal> {
    let number = to_onnx(tensor.dtype()).ok_or_else(|| no_type(tensor.dtype()))?;
    Ok(TensorProto {
        dims: tensor.shape().iter().map(|&d| d as i64).collect(),
        data_type: Some(number as i32),
        name: Some(name.to_owned()),
        ..TensorProto::default()
    })
}

pub(super) fn initializer(name: &str, tensor: &Tensor) -> Result<Initializer, Refusal> {
    let mut header = header(name, tensor)?;
    let payload = match tensor.strings() {
        Ok(strings) => {
            header.string_data = strings.to_vec();
            Payload::None
        }
        Err(_) => Payload::Plain(tensor.bytes().map_err(|e| e.to_string())?.clone()),
    };
    Ok(Initializer { header, payload })
}

/// A tensor as the attribute of a node.
pub(super) fn tensor_attribute(tensor: &Tensor) -> Result<TensorProto, Refusal> {
    let mut proto = header("", tensor)?;
    proto.name = None;
    proto.raw_data = Some(tensor.bytes().map_err(|e| e.to_string())?.clone());
    Ok(proto)
}
