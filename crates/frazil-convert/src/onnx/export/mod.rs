//! Writing: every operation of the graph as ONNX's, then the model as a file.
//!
//! Everything that can be refused is refused before a file is begun. Names stay: inputs and
//! outputs have those of the graph's ends, values and nodes their own, and what had to be put in
//! between stands under the name of the node that it serves. The same graph gives the same bytes.
//! `wide` decides where `int32` becomes `int64`, `write` puts the bytes down.

mod attr;
mod builder;
mod compute;
mod fused;
mod movement;
mod quantized;
mod wide;
mod window;
mod write;

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::path::Path;

use frazil_graph::op::{Op, Steps};
use frazil_graph::{Dim, Fact, Graph, NodeId, Symbol, Value, infer, pass};
use frazil_tensor::DType;

use self::builder::{Builder, Refusal, no_type};
use super::TARGET;
use super::dtype::to_onnx;
use super::proto::{
    GraphProto, ModelProto, OperatorSetIdProto, TensorShapeProto, TypeProto, ValueInfoProto,
    tensor_shape_proto::Dimension, tensor_shape_proto::dimension, type_proto,
};
use crate::{Error, Refusal as RefusedNode, Result, Written};

/// The versions of ONNX's operations that can be written.
pub const OPSETS: RangeInclusive<u32> = 13..=21;

/// How to write a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportOptions {
    /// Version of ONNX's operations, one of [`OPSETS`]. From 17 on layer normalisation is one
    /// operation, from 20 on GELU.
    pub opset: u32,
    /// Whether `float32` weights are stored as `float16`, with a cast behind each. Engines
    /// compute in `float32`; the file is half as large.
    pub fp16: bool,
    /// The model's name; that of the file if it is empty.
    pub name: String,
    /// A model of more bytes than this puts its weights into a second file, `NAME.onnx.data`.
    /// Beyond 2 GiB there is no other way: protobuf ends there.
    pub external_above: u64,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self { opset: 17, fp16: false, name: String::new(), external_above: i32::MAX as u64 }
    }
}

/// Writes a frozen graph. Nodes that no output needs are left out.
pub fn export(graph: &Graph, options: &ExportOptions, path: &Path) -> Result<Written> {
    if !OPSETS.contains(&options.opset) {
        let (least, most) = (*OPSETS.start(), *OPSETS.end());
        return Err(Error::Opset { opset: i64::from(options.opset), least, most });
    }
    let name = match options.name.as_str() {
        "" => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        name => name.to_owned(),
    };
    graph.check()?;
    let mut notes = Vec::new();
    let lowered = lowered(graph, &mut notes)?;
    let (model, builder_notes, initializers) = model(&lowered, options, name)?;
    notes.extend(builder_notes);
    let files = write::write(model, initializers, options.external_above, path)?;
    Ok(Written { files, notes })
}

/// With lookups in bytes and steps of rows, for which ONNX has no word, as formulas.
fn lowered<'g>(graph: &'g Graph, notes: &mut Vec<String>) -> Result<Cow<'g, Graph>> {
    let of_rows = |op: &Op| matches!(op, Op::FakeQuantize(Steps::Rows));
    let rows = graph.nodes().filter(|(_, node)| of_rows(&node.op)).count();
    let bytes = graph.nodes().any(|(_, node)| matches!(node.op, Op::Scaled(_)));
    if rows == 0 && !bytes {
        return Ok(Cow::Borrowed(graph));
    }
    let mut graph = graph.clone();
    pass::lower_lookups(&mut graph)?;
    pass::lower(&mut graph, &|op| !of_rows(op))?;
    notes.extend(crate::rows_note(rows, TARGET));
    Ok(Cow::Owned(graph))
}

type Model = (ModelProto, Vec<String>, Vec<builder::Initializer>);

/// The model without its initializers, what the user should know, and the initializers.
fn model(graph: &Graph, options: &ExportOptions, name: String) -> Result<Model> {
    if graph.outputs.is_empty() {
        return Err(Error::NoOutputs { target: TARGET });
    }
    let facts = infer(graph)?;
    let needed = needed(graph);
    let wide = wide::find(graph, &facts, &needed);
    let mut b = Builder::new(graph, facts, options.opset, options.fp16, wide);
    b.multiplied = quantized::multiplied(&b);
    let mut notes = Vec::new();
    let mut refused = Vec::new();
    let mut refuse = |id: NodeId, reason: Refusal| {
        let node = graph.node(id);
        refused.push(RefusedNode { node: node.name.clone(), op: node.op.to_string(), reason });
    };

    let Ends { inputs, outputs } = name_ends(&mut b, graph, &mut notes);
    let order: Vec<NodeId> =
        graph.topological()?.into_iter().filter(|id| needed[id.index()]).collect();
    for &id in &order {
        // Names in the graph's order, so that a clash is always settled the same way.
        for port in 0..graph.node(id).op.outputs() as u32 {
            b.name(Value { node: id, port });
        }
    }
    for port in &graph.inputs {
        if let Err(reason) = default_value(&mut b, port.value) {
            refuse(port.value.node, reason);
        }
    }
    for &id in &order {
        if let Err(reason) = types(&b, id).and_then(|()| emit(&mut b, id)) {
            refuse(id, reason);
        }
    }
    if let Err((id, reason)) = copy_outputs(&mut b, &outputs) {
        refuse(id, reason);
    }
    if !refused.is_empty() {
        return Err(Error::Refused { target: TARGET, nodes: refused });
    }
    let outputs: Vec<(String, Value)> =
        outputs.into_iter().map(|output| (output.name, output.value)).collect();

    let mut values = Vec::new();
    let ends: HashSet<&str> = inputs.iter().chain(&outputs).map(|(n, _)| n.as_str()).collect();
    for &id in &order {
        if matches!(graph.op(id.into()), Op::Const(_)) {
            continue;
        }
        for port in 0..graph.node(id).op.outputs() as u32 {
            let value = Value { node: id, port };
            let name = b.name(value);
            if !ends.contains(name.as_str()) {
                values.extend(value_info(&b, &name, value, false));
            }
        }
    }
    let info = |b: &Builder<'_>, ends: &[(String, Value)]| -> Vec<ValueInfoProto> {
        ends.iter().filter_map(|(name, value)| value_info(b, name, *value, true)).collect()
    };
    let (input, output) = (info(&b, &inputs), info(&b, &outputs));
    let used = drop_unused(&mut b, &output);
    b.initializers.retain(|initializer| used.contains(initializer.header.name()));
    values.retain(|info| used.contains(info.name()));
    if !b.out_of_range.is_empty() {
        notes.push(format!(
            "{} constant(s) stayed float32, beyond the range of float16: {}",
            b.out_of_range.len(),
            b.out_of_range.join(", ")
        ));
    }
    let body = GraphProto {
        node: b.nodes,
        name: Some(name),
        input,
        output,
        value_info: values,
        ..GraphProto::default()
    };
    let opset =
        OperatorSetIdProto { domain: Some(String::new()), version: Some(i64::from(options.opset)) };
    let model = ModelProto {
        ir_version: Some(ir_version(options.opset)),
        producer_name: Some("frazil".to_owned()),
        producer_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        graph: Some(body),
        opset_import: vec![opset],
        ..ModelProto::default()
    };
    Ok((model, notes, b.initializers))
}

/// The oldest file format that has the operations.
fn ir_version(opset: u32) -> i64 {
    match opset {
        ..=14 => 7,
        15..=18 => 8,
        19..=20 => 9,
        _ => 10,
    }
}

/// What the outputs are computed from. Control inputs order side effects, of which there are none.
fn needed(graph: &Graph) -> Vec<bool> {
    let mut needed = vec![false; graph.len()];
    let mut stack: Vec<NodeId> = graph.outputs.iter().map(|port| port.value.node).collect();
    while let Some(id) = stack.pop() {
        if !std::mem::replace(&mut needed[id.index()], true) {
            stack.extend(graph.node(id).inputs.iter().map(|value| value.node));
        }
    }
    needed
}

/// The names of the graph's ends.
struct Ends {
    inputs: Vec<(String, Value)>,
    outputs: Vec<Output>,
}

/// An output. One that is also an input, a constant or a second name of another output is written
/// as a copy.
struct Output {
    name: String,
    value: Value,
    copy: bool,
}

/// Gives the graph's ends their names, before anything else can take them.
fn name_ends(b: &mut Builder<'_>, graph: &Graph, notes: &mut Vec<String>) -> Ends {
    let mut ends = Ends { inputs: Vec::new(), outputs: Vec::new() };
    let mut named: HashSet<Value> = HashSet::new();
    for port in &graph.inputs {
        let name = b.reserve(&port.name);
        b.set_name(port.value, name.clone());
        named.insert(port.value);
        ends.inputs.push((name, port.value));
    }
    for port in &graph.outputs {
        let value = port.value;
        if graph.op(value).is_input() && b.name_of(value) == port.name {
            ends.outputs.push(Output { name: port.name.clone(), value, copy: false });
            continue;
        }
        let copy = graph.op(value).as_const().is_some() || !named.insert(value);
        let name = b.reserve(&port.name);
        if name != port.name {
            notes.push(format!("output `{}` is `{name}`: an input has its name", port.name));
        }
        if !copy {
            b.set_name(value, name.clone());
        }
        ends.outputs.push(Output { name, value, copy });
    }
    ends
}

/// Writes the copies.
fn copy_outputs(b: &mut Builder<'_>, outputs: &[Output]) -> Result<(), (NodeId, Refusal)> {
    for output in outputs.iter().filter(|output| output.copy) {
        let from = b.input(output.value).map_err(|reason| (output.value.node, reason))?;
        b.identity_like("Identity", &output.name, &[&from], vec![]);
    }
    Ok(())
}

/// An input that need not be fed is an initializer of the same name.
fn default_value(b: &mut Builder<'_>, input: Value) -> Result<(), Refusal> {
    let node = b.graph.node(input.node);
    let Op::InputWithDefault(_) = &node.op else { return types(b, input.node) };
    types(b, input.node)?;
    let default = b.constant(node.inputs[0]).ok_or("its default must be constant")?;
    let name = b.name(input);
    let initializer = builder::initializer(&name, default)?;
    b.initializers.push(initializer);
    Ok(())
}

/// Whether ONNX has the types of a node's results.
fn types(b: &Builder<'_>, id: NodeId) -> Result<(), Refusal> {
    for port in 0..b.graph.node(id).op.outputs() as u32 {
        match b.facts[Value { node: id, port }].dtype {
            Some(dtype) if to_onnx(dtype).is_none() => return Err(no_type(dtype)),
            _ => {}
        }
    }
    Ok(())
}

/// One node of the graph as nodes of ONNX.
fn emit(b: &mut Builder<'_>, id: NodeId) -> Result<(), Refusal> {
    let node = b.begin(id);
    match &node.op {
        // Ends of the graph, and constants, are written where they are read.
        Op::Input(_) | Op::InputWithDefault(_) | Op::Const(_) => Ok(()),
        op @ (Op::Variable(_) | Op::ReadVariable(_) | Op::Foreign(_)) => compute::refused(op),
        op @ (Op::PackRows(_) | Op::UnpackRows) => compute::refused(op),
        op @ Op::Attention(attention) if attention.packed => compute::refused(op),
        op @ Op::Embed if node.inputs.len() > 5 => compute::refused(op),
        Op::Unary(kind) => compute::unary(b, node, *kind),
        Op::Binary(kind) => compute::binary(b, node, *kind),
        Op::Compare(kind) => compute::compare(b, node, *kind),
        Op::AddN => compute::add_n(b, node),
        Op::BiasAdd => compute::bias_add(b, node),
        Op::Cast(op) => compute::cast(b, node, op.to),
        Op::Select => compute::select(b, node),
        Op::MatMul(op) => compute::matmul(b, node, *op),
        Op::Reduce(op) => compute::reduce(b, node, *op),
        Op::ArgMax(op) => compute::arg_max(b, node, op),
        Op::Softmax => compute::last_axis(b, node, "Softmax"),
        Op::LogSoftmax => compute::last_axis(b, node, "LogSoftmax"),
        Op::Shape(op) => movement::extents(b, node, "Shape", op.to),
        Op::Size(op) => movement::extents(b, node, "Size", op.to),
        Op::Rank => movement::rank(b, node),
        Op::Reshape => movement::reshape(b, node),
        Op::ExpandDims => movement::expand_dims(b, node),
        Op::Squeeze(op) => movement::squeeze(b, node, op),
        Op::Transpose => movement::transpose(b, node),
        Op::Concat => movement::concat(b, node),
        Op::Pack(op) => movement::pack(b, node, *op),
        Op::Unpack(op) => movement::unpack(b, node, *op),
        Op::Split(op) => movement::split(b, node, *op),
        Op::SplitV(_) => movement::split_v(b, node),
        Op::Slice => window::slice(b, node),
        Op::StridedSlice(op) => window::strided_slice(b, node, *op),
        Op::Gather(op) => movement::gather(b, node, *op),
        Op::OneHot(op) => movement::one_hot(b, node, *op),
        Op::Range => movement::range(b, node),
        Op::Fill => movement::fill(b, node),
        Op::Tile => movement::spread(b, node, "Tile"),
        Op::BroadcastTo => movement::spread(b, node, "Expand"),
        Op::Pad => movement::pad(b, node),
        Op::LayerNorm(op) => fused::layer_norm(b, node, *op),
        Op::Gelu(op) => fused::gelu(b, node, *op),
        Op::Linear(op) => fused::linear(b, node, *op),
        Op::Embed => fused::embed(b, node),
        Op::Attention(op) => fused::attention(b, node, *op),
        // ONNX's own divide a range by a scale, not into steps from its lower end.
        op @ (Op::Quantize(_) | Op::Dequantize | Op::Requantize(_) | Op::QuantizedLinear) => {
            compute::refused(op)
        }
        Op::FakeQuantize(steps) => quantized::fake_quantize(b, node, *steps),
        Op::Scaled(op) => quantized::scaled(b, node, *op),
        op @ Op::Training(_) => compute::refused(op),
    }
}

/// Drops nodes that nothing reads: what ONNX took as an attribute need not be computed. Returns
/// the names that are left.
fn drop_unused(b: &mut Builder<'_>, outputs: &[ValueInfoProto]) -> HashSet<String> {
    let mut used: HashSet<String> = outputs.iter().map(|info| info.name().to_owned()).collect();
    used.extend(b.graph.inputs.iter().map(|port| b.name_of(port.value).to_owned()));
    let mut kept = Vec::with_capacity(b.nodes.len());
    for node in std::mem::take(&mut b.nodes).into_iter().rev() {
        if node.output.iter().any(|output| used.contains(output)) {
            used.extend(node.input.iter().cloned());
            used.extend(node.output.iter().cloned());
            kept.push(node);
        }
    }
    kept.reverse();
    b.nodes = kept;
    used
}

/// Type and extents; `None` where nothing is known that is worth writing.
fn value_info(b: &Builder<'_>, name: &str, value: Value, end: bool) -> Option<ValueInfoProto> {
    let fact: &Fact = &b.facts[value];
    let wide = b.wide[value.node.index()];
    let dtype = if wide { DType::I64 } else { fact.dtype? };
    if fact.dims.is_none() && !end {
        return None;
    }
    let shape = fact.dims.as_ref().map(|dims| TensorShapeProto {
        dim: dims
            .iter()
            .map(|dim| Dimension { value: extent(dim), ..Dimension::default() })
            .collect(),
    });
    let tensor = type_proto::Tensor { elem_type: Some(to_onnx(dtype)? as i32), shape };
    let kind =
        TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..TypeProto::default() };
    Some(ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: Some(kind),
        ..ValueInfoProto::default()
    })
}

/// A number, a name (`batch`, `sequence`, `batch*sequence`), or nothing for what has neither.
fn extent(dim: &Dim) -> Option<dimension::Value> {
    if let Some(known) = dim.as_known() {
        return (known >= 0).then_some(dimension::Value::DimValue(known));
    }
    let long = Dim::symbol(Symbol::new("sequence"));
    let mut text = dim.with(&Symbol::seq(), &long)?.to_string();
    if let Some(symbol) = dim.as_symbol().filter(|symbol| symbol.name().starts_with('?')) {
        // `?1` is an extent that inference knows nothing of; `?ids.2` is an axis of an input.
        let name = symbol.name().trim_start_matches('?');
        if name.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let clean = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        text = name.chars().map(clean).collect();
    }
    if text.contains('?') {
        return None;
    }
    Some(dimension::Value::DimParam(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_clean() {
        let text = |dim: &Dim| match extent(dim) {
            Some(dimension::Value::DimParam(text)) => text,
            other => format!("{other:?}"),
        };
        let rows = Dim::batch().times(&Dim::seq()).unwrap();
        assert_eq!(text(&rows), "batch*sequence");
        assert_eq!(text(&Dim::symbol(Symbol::new("?ids.2"))), "ids_2");
        let unknown = Dim::symbol(Symbol::new("?7"));
        assert_eq!(extent(&unknown), None);
        assert_eq!(extent(&unknown.plus(&Dim::seq()).unwrap()), None);
    }
}
