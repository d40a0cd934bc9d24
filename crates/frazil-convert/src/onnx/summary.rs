//! What an ONNX model says of itself.

use std::collections::HashSet;
use std::path::Path;

use frazil_tensor::file;

use super::dtype::from_onnx;
use super::proto::tensor_shape_proto::dimension;
use super::proto::{ModelProto, ValueInfoProto, tensor_proto, type_proto};
use crate::Result;
use crate::summary::{End, Summary, Weight};

/// Reads the message; no tensor and no file beside it is looked at.
pub fn summarise(path: &Path) -> Result<Summary> {
    let model: ModelProto = frazil_tf::decode::decode(file::map(path)?)?;
    let graph = model.graph.as_ref();
    let producer = [model.producer_name(), model.producer_version()].join(" ");
    let mut summary = Summary {
        name: graph.map(|graph| graph.name().to_owned()).unwrap_or_default(),
        version: model.ir_version(),
        producer: Some(producer.trim().to_owned()).filter(|producer| !producer.is_empty()),
        ..Summary::default()
    };
    for set in &model.opset_import {
        let domain = if set.domain() == "ai.onnx" { "" } else { set.domain() };
        summary.opsets.push((domain.to_owned(), set.version()));
    }
    summary.opsets.sort();
    let Some(graph) = graph else { return Ok(summary) };
    let mut known: HashSet<&str> = HashSet::new();
    for tensor in &graph.initializer {
        known.insert(tensor.name());
        summary.weights.push(Weight {
            name: tensor.name().to_owned(),
            dtype: type_name(tensor.data_type()),
            shape: tensor.dims.clone(),
        });
        let external = tensor.data_location() == tensor_proto::DataLocation::External;
        let file = tensor.external_data.iter().find(|entry| entry.key() == "location");
        if let Some(file) = file.filter(|_| external)
            && !summary.beside.iter().any(|known| known == file.value())
        {
            summary.beside.push(file.value().to_owned());
        }
    }
    // Old models list their weights as inputs, too.
    let fed = graph.input.iter().filter(|info| !known.contains(info.name()));
    summary.inputs = fed.map(end).collect();
    summary.outputs = graph.output.iter().map(end).collect();
    for node in graph.node.iter().filter(|node| node.op_type() != "Constant") {
        let op = match node.domain() {
            "" | "ai.onnx" => node.op_type().to_owned(),
            domain => format!("{domain}.{}", node.op_type()),
        };
        summary.count(op);
    }
    Ok(summary)
}

fn end(info: &ValueInfoProto) -> End {
    let name = info.name().to_owned();
    let tensor = match info.r#type.as_ref().and_then(|of| of.value.as_ref()) {
        Some(type_proto::Value::TensorType(tensor)) => tensor,
        Some(_) => return End { name, dtype: "no tensor".into(), shape: None },
        None => return End { name, dtype: "unknown".into(), shape: None },
    };
    let shape = tensor.shape.as_ref().map(|shape| {
        let extents = shape.dim.iter().map(|dim| match &dim.value {
            Some(dimension::Value::DimValue(size)) => size.to_string(),
            Some(dimension::Value::DimParam(name)) if !name.is_empty() => name.clone(),
            _ => "?".to_owned(),
        });
        extents.collect()
    });
    End { name, dtype: type_name(tensor.elem_type()), shape }
}

fn type_name(number: i32) -> String {
    match from_onnx(number) {
        Some(dtype) => dtype.to_string(),
        None => match tensor_proto::DataType::try_from(number) {
            Ok(known) => known.as_str_name().to_lowercase(),
            Err(_) => format!("type {number}"),
        },
    }
}
