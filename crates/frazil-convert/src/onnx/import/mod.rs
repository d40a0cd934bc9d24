//! Reading: an ONNX model as a graph.
//!
//! Opsets 9 to 23, the default domain, and of ONNX Runtime's own operations those that are one of
//! ours. The forms that changed between opsets (axes as attribute or as input) are all read. A
//! node that cannot be read is an error that lists every such node. What needs the extents, a
//! softmax over axis 3 for example, is settled when all nodes are there (`settle`).

mod compute;
mod extent;
mod importer;
mod movement;
mod quantized;
mod settle;
mod tensor;
mod window;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use bytes::Bytes;
use frazil_graph::op::{Input, Op};
use frazil_graph::{Graph, Port, Value, pass};
use frazil_tensor::{Tensor, file};
use frazil_tf::schema::Described;

use self::extent::{Symbols, declared};
use self::importer::{Call, Importer, Refusal};
use super::TARGET;
use super::proto::{ModelProto, NodeProto};
use crate::{Error, Result};

/// The versions of ONNX's operations that can be read.
const OPSETS: std::ops::RangeInclusive<i64> = 9..=23;

/// Whether the bytes are, as far as one can tell from their beginning, an ONNX model.
pub fn looks_like(bytes: &[u8]) -> bool {
    frazil_tf::decode::plausible(bytes, ModelProto::SCHEMA)
}

/// Reads a model; weights are windows on the file, or on the files beside it.
pub fn import(path: &Path) -> Result<Graph> {
    let folder = path.parent().unwrap_or(Path::new(""));
    decode(file::map(path)?, folder)
}

/// Reads a model from its bytes; data files are looked for in `folder`.
pub fn decode(bytes: Bytes, folder: &Path) -> Result<Graph> {
    let model: ModelProto = frazil_tf::decode::decode(bytes)?;
    let opset = opset(&model)?;
    let Some(body) = &model.graph else {
        return Err(bad("it has no graph"));
    };
    let mut importer = Importer::new(opset, folder);

    let weights: HashSet<&str> = body.initializer.iter().map(|t| t.name()).collect();
    let mut symbols = Symbols::new(&body.input);
    // Before IR version 4 every weight had to be listed as an input, and some exporters still do
    // so. Only our own files mean by it that the input may be left out.
    let optional = model.ir_version() >= 4 && model.producer_name() == "frazil";
    let mut inputs: HashMap<&str, Input> = HashMap::new();
    for info in &body.input {
        let known = weights.contains(info.name());
        if known && !optional {
            continue;
        }
        let input = declared(info, &mut symbols)?;
        if known {
            inputs.insert(info.name(), input);
            continue;
        }
        let value = importer.push(info.name(), Op::Input(input), vec![])?;
        importer.define(info.name(), value)?;
    }
    for proto in &body.initializer {
        let tensor = importer.reader.read(proto)?;
        let value = match inputs.remove(proto.name()) {
            Some(input) => {
                let name = format!("{}/default", proto.name());
                let default = importer.push(&name, Op::constant(tensor), vec![])?;
                importer.push(proto.name(), Op::InputWithDefault(input), vec![default])?
            }
            None => importer.push(proto.name(), Op::constant(tensor), vec![])?,
        };
        importer.define(proto.name(), value)?;
    }
    for info in &body.input {
        let value = importer.values.get(info.name()).copied();
        if let Some(value) = value.filter(|value| importer.graph.op(*value).is_input()) {
            importer.graph.inputs.push(Port { name: info.name().to_owned(), value });
        }
    }

    let mut refused = Vec::new();
    for proto in &body.node {
        read_node(&mut importer, proto, &mut refused)?;
    }
    if !refused.is_empty() {
        return Err(Error::Refused { target: "frazil", nodes: refused });
    }
    for info in &body.output {
        let Some(&value) = importer.values.get(info.name()) else {
            return Err(bad(format!("nothing computes the output `{}`", info.name())));
        };
        importer.graph.outputs.push(Port { name: info.name().to_owned(), value });
    }
    if importer.graph.outputs.is_empty() {
        return Err(bad("it has no outputs"));
    }
    settle::settle(&mut importer)?;
    let mut graph = importer.graph;
    let ends = graph.outputs.iter().chain(&graph.inputs).map(|port| port.value.node);
    let keep = graph.ancestors(ends.collect::<Vec<_>>());
    graph.retain(&keep);
    pass::raise_bytes(&mut graph)?;
    graph.check()?;
    Ok(graph)
}

fn bad(reason: impl Into<String>) -> Error {
    Error::BadOnnx { reason: reason.into() }
}

/// The version of the default domain's operations.
fn opset(model: &ModelProto) -> Result<i64> {
    let default = model.opset_import.iter().find(|set| matches!(set.domain(), "" | "ai.onnx"));
    let Some(set) = default else { return Err(bad("it names no version of ONNX's operations")) };
    let opset = set.version();
    if !OPSETS.contains(&opset) {
        let (least, most) = (*OPSETS.start() as u32, *OPSETS.end() as u32);
        return Err(Error::Opset { opset, least, most });
    }
    Ok(opset)
}

fn read_node(
    importer: &mut Importer,
    proto: &NodeProto,
    refused: &mut Vec<crate::Refusal>,
) -> Result<()> {
    let first = proto.output.iter().find(|output| !output.is_empty());
    let mut inputs = Vec::with_capacity(proto.input.len());
    for name in &proto.input {
        inputs.push(match importer.values.get(name) {
            Some(value) => Some(*value),
            None if name.is_empty() => None,
            None => {
                let node = proto.name();
                return Err(bad(format!("`{node}` reads `{name}`, which nothing computes before")));
            }
        });
    }
    let name = first.cloned().unwrap_or_else(|| proto.name().to_owned());
    let call = Call { proto, name, inputs };
    let value = match dispatch(importer, &call) {
        Ok(value) => value,
        Err(Problem::Error(error)) => return Err(*error),
        Err(Problem::Refusal(reason)) => {
            let op = match proto.domain() {
                "" => call.op().to_owned(),
                domain => format!("{domain}.{}", call.op()),
            };
            refused.push(crate::Refusal { node: call.name.clone(), op, reason });
            importer.stand_in(&call)?.into()
        }
    };
    let outputs = importer.graph.op(value).outputs();
    for (port, output) in proto.output.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
        // A mask of a dropout, the mean of a normalisation: nobody computes with them here.
        if port < outputs {
            importer.define(output, Value { port: port as u32, ..value })?;
        }
    }
    Ok(())
}

/// Why a node was not read: it cannot be, or the file is wrong.
enum Problem {
    Refusal(Refusal),
    Error(Box<Error>),
}

impl From<Refusal> for Problem {
    fn from(reason: Refusal) -> Self {
        Self::Refusal(reason)
    }
}

impl From<&str> for Problem {
    fn from(reason: &str) -> Self {
        Self::Refusal(reason.to_owned())
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::Error(Box::new(error))
    }
}

impl From<frazil_tensor::Error> for Problem {
    fn from(error: frazil_tensor::Error) -> Self {
        Self::Error(Box::new(error.into()))
    }
}

type Outcome = std::result::Result<Value, Problem>;

/// A `Constant`, in whichever of its attributes the value is.
fn constant(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let tensor = if let Some(proto) = call.tensor("value") {
        i.reader.read(proto)?
    } else if let Some(value) = call.float("value_float") {
        Tensor::from_vec([], vec![value])?
    } else if let Some(value) = call.int("value_int") {
        Tensor::from_vec([], vec![value])?
    } else if let Some(values) = call.floats("value_floats") {
        Tensor::from_vec([values.len()], values)?
    } else if let Some(values) = call.ints("value_ints") {
        Tensor::from_vec([values.len()], values)?
    } else {
        return Err("its value is neither a tensor nor numbers".into());
    };
    Ok(i.push(&call.name, Op::constant(tensor), vec![])?)
}

/// One operation of ONNX as operations of the graph.
fn dispatch(i: &mut Importer, call: &Call<'_>) -> Outcome {
    match (call.proto.domain(), call.op()) {
        ("com.microsoft", op) => match op {
            "Gelu" => compute::gelu(i, call, false),
            "QuantizeLinear" => quantized::quantize(i, call),
            "DequantizeLinear" => quantized::dequantize(i, call),
            "FastGelu" if call.optional(1).is_none() => compute::gelu(i, call, true),
            _ => Err("ONNX Runtime's own operation".into()),
        },
        ("" | "ai.onnx", op) => default_domain(i, call, op),
        (domain, _) => Err(format!("the operations of `{domain}` are not known").into()),
    }
}

fn default_domain(i: &mut Importer, call: &Call<'_>, op: &str) -> Outcome {
    if let Some(kind) = compute::unary_kind(op) {
        return compute::unary(i, call, kind);
    }
    if let Some(kind) = compute::binary_kind(op) {
        return compute::binary(i, call, kind);
    }
    if let Some(kind) = compute::compare_kind(op) {
        return compute::compare(i, call, kind);
    }
    if let Some(kind) = compute::reduce_kind(op) {
        return compute::reduce(i, call, kind);
    }
    match op {
        "Constant" => constant(i, call),
        "Dropout" => compute::dropout(i, call),
        "Mod" => compute::modulo(i, call),
        "Pow" => compute::pow(i, call),
        "Sum" | "Max" | "Min" => compute::variadic(i, call),
        "Clip" => compute::clip(i, call),
        "IsNaN" => compute::is_nan(i, call),
        "Cast" | "CastLike" => compute::cast(i, call),
        "Where" => compute::select(i, call),
        "MatMul" => compute::matmul(i, call),
        "Gemm" => compute::gemm(i, call),
        "ReduceL2" => compute::reduce_l2(i, call),
        "ArgMax" => compute::arg_max(i, call),
        "Softmax" => compute::softmax(i, call, Op::Softmax),
        "LogSoftmax" => compute::softmax(i, call, Op::LogSoftmax),
        "LayerNormalization" => compute::layer_norm(i, call),
        "Gelu" => compute::gelu(i, call, call.text("approximate") == Some("tanh")),
        "QuantizeLinear" => quantized::quantize(i, call),
        "DequantizeLinear" => quantized::dequantize(i, call),
        "Shape" => movement::shape(i, call),
        "Size" => movement::size(i, call),
        "Reshape" => movement::reshape(i, call),
        "Flatten" => movement::flatten(i, call),
        "Squeeze" => movement::squeeze(i, call),
        "Unsqueeze" => movement::unsqueeze(i, call),
        "Transpose" => movement::transpose(i, call),
        "Concat" => movement::concat(i, call),
        "Split" => movement::split(i, call),
        "Gather" => movement::gather(i, call),
        "GatherND" => movement::gather_nd(i, call),
        "OneHot" => movement::one_hot(i, call),
        "Range" => movement::range(i, call),
        "ConstantOfShape" => movement::constant_of_shape(i, call),
        "Expand" => movement::expand(i, call),
        "Tile" => movement::tile(i, call),
        "Pad" => movement::pad(i, call),
        "Slice" => window::slice(i, call),
        _ => Err(format!("{TARGET}'s {op} has no counterpart here").into()),
    }
}
