//! From a graph to layers: the plumbing. Which operation becomes which layer is in [`super::ops`].

use std::collections::{BTreeMap, HashMap, HashSet};

use frazil_graph::{Dim, Facts, Graph, NodeId, Op, Symbol, Value, infer};
use frazil_tensor::{DType, Shape, Tensor};

use super::blob::fits_f16;
use super::net::{Blob, Layer, Net, Out, Wire, type_names};
use super::{Bounds, ExportOptions, RESULT_SUFFIX, TARGET};
use crate::{Error, Refusal, Result};

pub(super) struct Builder<'g> {
    pub graph: &'g Graph,
    pub facts: &'g Facts,
    options: &'g ExportOptions,
    net: Net,
    /// Where the values of the graph are; constants come when they are first read.
    wires: HashMap<Value, Wire>,
    layer_names: HashSet<String>,
    tensor_names: TensorNames,
    /// Small constants that this exporter makes: by type, shape and bytes.
    made: HashMap<(DType, Shape, Vec<u8>), Wire>,
    pub refused: Vec<Refusal>,
    pub notes: Vec<String>,
}

/// The layers of a graph, and what the user should know of them.
pub(super) fn build(graph: &Graph, options: &ExportOptions) -> Result<(Net, Vec<String>)> {
    let facts = infer(graph)?;
    let order = graph.topological()?;
    let mut builder = Builder {
        graph,
        facts: &facts,
        options,
        net: Net::default(),
        wires: HashMap::new(),
        layer_names: HashSet::new(),
        tensor_names: TensorNames::new(graph),
        made: HashMap::new(),
        refused: Vec::new(),
        notes: Vec::new(),
    };
    for port in &graph.inputs {
        builder.parameter(port.value.node);
    }
    for id in order {
        // One refusal for each node; what reads a refused value is not refused for that.
        if let Err(Stop::Refused(reason)) = builder.node(id) {
            let node = graph.node(id);
            let (node, op) = (node.name.clone(), node.op.to_string());
            builder.refused.push(Refusal { node, op, reason });
        }
    }
    if !builder.refused.is_empty() {
        return Err(Error::Refused { target: TARGET, nodes: builder.refused });
    }
    for port in &graph.outputs {
        let Ok(wire) = builder.wire(port.value) else {
            let (node, op) = (port.name.clone(), graph.op(port.value).to_string());
            let reason = "it has no value".to_owned();
            builder.refused.push(Refusal { node, op, reason });
            continue;
        };
        let name = builder.fresh(&format!("{}{RESULT_SUFFIX}", port.name));
        builder.net.layers.push(Layer {
            name,
            kind: "Result",
            opset: 1,
            data: vec![],
            decompression: false,
            blob: None,
            inputs: vec![wire],
            outputs: vec![],
        });
    }
    if !builder.refused.is_empty() {
        return Err(Error::Refused { target: TARGET, nodes: builder.refused });
    }
    Ok((builder.net, builder.notes))
}

/// Why a node has no layer.
pub(super) enum Stop {
    /// The target lacks it, with the reason.
    Refused(String),
    /// It reads what was refused.
    Above,
}

pub(super) type Built<T> = std::result::Result<T, Stop>;

pub(super) fn refuse<T>(reason: impl Into<String>) -> Built<T> {
    Err(Stop::Refused(reason.into()))
}

/// A layer in the making.
pub(super) struct Draft {
    kind: &'static str,
    opset: u8,
    data: Vec<(&'static str, String)>,
    inputs: Vec<Wire>,
}

/// A layer of that type, from the operation set that introduced this version of it.
pub(super) fn layer(kind: &'static str, opset: u8, inputs: impl Into<Vec<Wire>>) -> Draft {
    Draft { kind, opset, data: vec![], inputs: inputs.into() }
}

impl Draft {
    pub fn with(mut self, key: &'static str, value: impl ToString) -> Self {
        self.data.push((key, value.to_string()));
        self
    }

    /// With numpy's broadcasting, which every element-wise layer names.
    pub fn broadcasting(self) -> Self {
        self.with("auto_broadcast", "numpy")
    }
}

impl Builder<'_> {
    /// The wire of a value, with a layer for it if it is a constant that was not read before.
    pub fn wire(&mut self, value: Value) -> Built<Wire> {
        if let Some(wire) = self.wires.get(&value) {
            return Ok(*wire);
        }
        let node = self.graph.node(value.node);
        let Op::Const(constant) = &node.op else { return Err(Stop::Above) };
        if type_names(constant.value.dtype()).is_none() {
            return Err(Stop::Above); // refused when its own turn came
        }
        let names = self.tensor_names.take(value);
        let wire = self.constant_named(&node.name, &constant.value, names);
        self.wires.insert(value, wire);
        Ok(wire)
    }

    /// The wires of all inputs of a node.
    pub fn inputs(&mut self, id: NodeId) -> Built<Vec<Wire>> {
        self.graph.node(id).inputs.iter().map(|value| self.wire(*value)).collect()
    }

    /// Lets a value be another one under a second name.
    pub fn alias(&mut self, value: Value, to: Value) -> Built<()> {
        let wire = self.wire(to)?;
        self.alias_wire(value, wire);
        Ok(())
    }

    /// Lets a value be what a wire gives, under its own names too.
    pub fn alias_wire(&mut self, value: Value, wire: Wire) {
        let names = self.tensor_names.take(value);
        let known = &mut self.net.layers[wire.layer].outputs[wire.output].names;
        known.extend(names);
        known.sort();
        known.dedup();
        self.wires.insert(value, wire);
    }

    /// The layer that gives a node its values, under the node's name.
    pub fn finish(&mut self, id: NodeId, draft: Draft) -> Built<()> {
        let node = self.graph.node(id);
        let outputs = node.op.outputs();
        let mut outs = Vec::with_capacity(outputs);
        for port in 0..outputs {
            let value = Value { node: id, port: port as u32 };
            let mut out = self.out(value)?;
            out.names = self.tensor_names.take(value);
            outs.push(out);
        }
        let name = self.fresh(&node.name);
        let layer = self.push(name, draft, outs);
        for port in 0..outputs {
            let value = Value { node: id, port: port as u32 };
            self.wires.insert(value, Wire { layer, output: port });
        }
        Ok(())
    }

    /// A layer in between, named under the node, with one output.
    pub fn step(&mut self, id: NodeId, what: &str, draft: Draft, out: Out) -> Wire {
        self.steps(id, what, draft, vec![out])[0]
    }

    /// A layer in between, named under the node.
    pub fn steps(&mut self, id: NodeId, what: &str, draft: Draft, outs: Vec<Out>) -> Vec<Wire> {
        let name = self.fresh(&format!("{}/{what}", self.graph.node(id).name));
        let count = outs.len();
        let layer = self.push(name, draft, outs);
        (0..count).map(|output| Wire { layer, output }).collect()
    }

    /// A layer for one output of a node that takes several.
    pub fn finish_port(&mut self, id: NodeId, port: u32, draft: Draft) -> Built<()> {
        let value = Value { node: id, port };
        let mut out = self.out(value)?;
        out.names = self.tensor_names.take(value);
        let name = self.fresh(&match port {
            0 => self.graph.node(id).name.clone(),
            _ => format!("{}.{port}", self.graph.node(id).name),
        });
        let layer = self.push(name, draft, vec![out]);
        self.wires.insert(value, Wire { layer, output: 0 });
        Ok(())
    }

    fn push(&mut self, name: String, draft: Draft, outputs: Vec<Out>) -> usize {
        let Draft { kind, opset, data, inputs } = draft;
        let (decompression, blob) = (false, None);
        self.net.layers.push(Layer {
            name,
            kind,
            opset,
            data,
            decompression,
            blob,
            inputs,
            outputs,
        });
        self.net.layers.len() - 1
    }

    /// `name`, or with a number where it is taken.
    fn fresh(&mut self, name: &str) -> String {
        let mut fresh = name.to_owned();
        let mut number = 0usize;
        while !self.layer_names.insert(fresh.clone()) {
            number += 1;
            fresh = format!("{name}_{number}");
        }
        fresh
    }

    /// What is known of a value; an error if its type is unknown or not OpenVINO's.
    pub fn out(&self, value: Value) -> Built<Out> {
        let fact = &self.facts[value];
        let Some(dtype) = fact.dtype else {
            return refuse(format!("the type of output {} is not known", value.port));
        };
        if type_names(dtype).is_none() {
            return refuse(format!("{TARGET} has no {dtype}"));
        }
        Ok(Out { dtype, dims: fact.dims.clone(), names: vec![] })
    }

    /// The type of a value.
    pub fn dtype(&self, value: Value) -> Built<DType> {
        Ok(self.out(value)?.dtype)
    }

    /// The elements of an integer operand that the target wants as an attribute.
    pub fn integers(&self, value: Value, what: &str) -> Built<Vec<i64>> {
        match self.facts[value].known_elements() {
            Some(elements) => Ok(elements),
            None => refuse(format!("its {what} is not constant, and {TARGET} needs it to be")),
        }
    }

    /// A single integer operand that the target wants as an attribute.
    pub fn integer(&self, value: Value, what: &str) -> Built<i64> {
        match self.integers(value, what)?.as_slice() {
            [one] => Ok(*one),
            other => refuse(format!("its {what} has {} elements instead of one", other.len())),
        }
    }

    /// Number of axes.
    pub fn rank(&self, value: Value) -> Built<usize> {
        match self.facts[value].rank() {
            Some(rank) => Ok(rank),
            None => refuse(format!("the rank of `{}` is not known", self.graph.value_name(value))),
        }
    }

    /// A list of integers that the exporter needs.
    pub fn list(&mut self, id: NodeId, what: &str, elements: &[i64]) -> Wire {
        let tensor = Tensor::from_vec([elements.len()], elements.to_vec());
        self.constant(id, what, tensor.expect("as many elements as the shape says"))
    }

    /// A single number of a given type that the exporter needs.
    pub fn scalar(&mut self, id: NodeId, what: &str, dtype: DType, value: f64) -> Built<Wire> {
        let shape = Shape::scalar();
        let tensor = match dtype {
            DType::F32 => Tensor::from_vec(shape, vec![value as f32]),
            DType::F64 => Tensor::from_vec(shape, vec![value]),
            DType::F16 => Tensor::from_vec(shape, vec![half::f16::from_f64(value)]),
            DType::BF16 => Tensor::from_vec(shape, vec![half::bf16::from_f64(value)]),
            DType::I64 => Tensor::from_vec(shape, vec![value as i64]),
            DType::I32 => Tensor::from_vec(shape, vec![value as i32]),
            DType::I16 => Tensor::from_vec(shape, vec![value as i16]),
            DType::I8 => Tensor::from_vec(shape, vec![value as i8]),
            DType::U64 => Tensor::from_vec(shape, vec![value as u64]),
            DType::U32 => Tensor::from_vec(shape, vec![value as u32]),
            DType::U16 => Tensor::from_vec(shape, vec![value as u16]),
            DType::U8 => Tensor::from_vec(shape, vec![value as u8]),
            DType::Bool => Tensor::new(dtype, shape, vec![u8::from(value != 0.0)]),
            other => return refuse(format!("{TARGET} has no {other}")),
        };
        Ok(self.constant(id, what, tensor.expect("one element")))
    }

    /// A small constant that the exporter needs, one layer for equal ones.
    pub fn constant(&mut self, id: NodeId, what: &str, tensor: Tensor) -> Wire {
        let bytes = tensor.bytes().expect("numbers, not strings").to_vec();
        let key = (tensor.dtype(), tensor.shape().clone(), bytes);
        if let Some(wire) = self.made.get(&key) {
            return *wire;
        }
        let name = format!("{}/{what}", self.graph.node(id).name);
        let wire = self.constant_named(&name, &tensor, vec![]);
        self.made.insert(key, wire);
        wire
    }

    /// A constant, compressed if that was asked for and does it no harm.
    pub fn constant_named(&mut self, name: &str, value: &Tensor, names: Vec<String>) -> Wire {
        let bytes = value.bytes().expect("strings were refused before").clone();
        let dims = value.shape().iter().map(|&dim| Dim::from(dim)).collect();
        let wide = Out { dtype: value.dtype(), dims: Some(dims), names };
        let halve = self.options.fp16 && wide.dtype == DType::F32 && fits_f16(&bytes);
        if !halve {
            return self.push_constant(name, Blob { bytes, halve }, value.shape(), wide);
        }
        let compressed = format!("{name}_compressed");
        let narrow = Out { dtype: DType::F16, names: vec![], ..wide.clone() };
        let from = self.push_constant(&compressed, Blob { bytes, halve }, value.shape(), narrow);
        let name = self.fresh(name);
        let draft = layer("Convert", 1, [from]).with("destination_type", "f32");
        let layer = self.push(name, draft, vec![wide]);
        self.net.layers[layer].decompression = true;
        Wire { layer, output: 0 }
    }

    /// A constant that is never compressed.
    pub fn exact_constant(&mut self, name: &str, value: &Tensor) -> Wire {
        let bytes = value.bytes().expect("numbers, not strings").clone();
        let dims = value.shape().iter().map(|&dim| Dim::from(dim)).collect();
        let out = Out { dtype: value.dtype(), dims: Some(dims), names: vec![] };
        self.push_constant(name, Blob { bytes, halve: false }, value.shape(), out)
    }

    fn push_constant(&mut self, name: &str, blob: Blob, shape: &Shape, out: Out) -> Wire {
        let (_, element_type) = type_names(out.dtype).expect("other types were refused before");
        let dims: Vec<String> = shape.iter().map(usize::to_string).collect();
        let draft =
            layer("Const", 1, []).with("element_type", element_type).with("shape", dims.join(", "));
        let name = self.fresh(name);
        let layer = self.push(name, draft, vec![out]);
        self.net.layers[layer].blob = Some(blob);
        Wire { layer, output: 0 }
    }

    /// What a wire gives.
    pub fn wire_out(&self, wire: Wire) -> Out {
        Out { names: vec![], ..self.net.out(wire).clone() }
    }

    fn parameter(&mut self, id: NodeId) {
        let node = self.graph.node(id);
        let refusal =
            |reason: String| Refusal { node: node.name.clone(), op: node.op.to_string(), reason };
        let value = Value::from(id);
        let out = match self.out(value) {
            Ok(out) => out,
            Err(Stop::Refused(reason)) => return self.refused.push(refusal(reason)),
            Err(Stop::Above) => return,
        };
        let Some(dims) = &out.dims else {
            let reason = "its rank is not known; give a shape with `--input_shape`";
            return self.refused.push(refusal(reason.into()));
        };
        let (_, element_type) = type_names(out.dtype).expect("`out` checked the type");
        let shape: Vec<String> =
            dims.iter().map(|dim| parameter_extent(dim, &self.options.bounds)).collect();
        let draft = layer("Parameter", 1, [])
            .with("shape", shape.join(","))
            .with("element_type", element_type);
        if let Err(Stop::Refused(reason)) = self.finish(id, draft) {
            self.refused.push(refusal(reason));
        }
        if matches!(node.op, Op::InputWithDefault(_)) {
            self.notes.push(format!("`{}` has to be fed: {TARGET} has no defaults", node.name));
        }
    }
}

/// `128`, `?`, or `1..8` where the extent has bounds.
fn parameter_extent(dim: &Dim, bounds: &BTreeMap<Symbol, Bounds>) -> String {
    if let Some(extent) = dim.as_known() {
        return extent.to_string();
    }
    match dim.as_symbol().and_then(|symbol| bounds.get(symbol)) {
        None => "?".to_owned(),
        Some(Bounds { least, most: Some(most) }) if least == most => least.to_string(),
        Some(Bounds { least, most: Some(most) }) => format!("{least}..{most}"),
        Some(Bounds { least, most: None }) => format!("{least}.."),
    }
}

/// The names that each value has outside: those of the model's ends first, because a name can
/// stand for one tensor only.
struct TensorNames {
    ends: HashMap<Value, Vec<String>>,
    nodes: HashMap<Value, Vec<String>>,
}

impl TensorNames {
    fn new(graph: &Graph) -> Self {
        let mut taken: HashSet<String> = HashSet::new();
        let mut ends: HashMap<Value, Vec<String>> = HashMap::new();
        for port in graph.inputs.iter().chain(&graph.outputs) {
            if taken.insert(port.name.clone()) {
                ends.entry(port.value).or_default().push(port.name.clone());
            }
        }
        let mut nodes: HashMap<Value, Vec<String>> = HashMap::new();
        for (id, node) in graph.nodes() {
            for port in 0..node.op.outputs() as u32 {
                let mut own = vec![format!("{}:{port}", node.name)];
                if port == 0 {
                    own.push(node.name.clone());
                }
                own.retain(|name| taken.insert(name.clone()));
                nodes.insert(Value { node: id, port }, own);
            }
        }
        Self { ends, nodes }
    }

    /// All names of a value, sorted.
    fn take(&mut self, value: Value) -> Vec<String> {
        let mut names = self.ends.get(&value).cloned().unwrap_or_default();
        names.extend(self.nodes.get(&value).cloned().unwrap_or_default());
        names.sort();
        names
    }
}
