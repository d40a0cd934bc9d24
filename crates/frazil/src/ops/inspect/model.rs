//! ONNX and OpenVINO models: what they ask for, what they offer, what they are made of.

use std::path::Path;

use frazil_convert::summary::{self, Summary};
use frazil_convert::{onnx, openvino};
use frazil_tensor::DType;
use serde::Serialize;

use super::Variable;
use super::graph::OpCount;
use crate::Result;

/// A model's summary.
#[derive(Clone, Debug, Serialize)]
pub struct ModelReport {
    /// The name that it has in the file.
    pub name: String,
    /// The version of the format: ONNX's `ir_version`, the IR's `version`.
    pub version: i64,
    /// Who wrote it.
    pub producer: Option<String>,
    /// Operation sets: ONNX's by domain; of OpenVINO's the newest that is used.
    pub opsets: Vec<Opset>,
    /// Nodes, constants and ends left out.
    pub nodes: usize,
    /// Elements of all constants of real type.
    pub parameters: u64,
    /// What must be fed.
    pub inputs: Vec<End>,
    /// What it computes.
    pub outputs: Vec<End>,
    /// Files beside it that hold weights.
    pub beside: Vec<String>,
    /// Operations with their counts, most frequent first.
    pub ops: Vec<OpCount>,
}

/// An operation set.
#[derive(Clone, Debug, Serialize)]
pub struct Opset {
    /// Whose it is; empty for the format's own.
    pub domain: String,
    /// Its version; 0 where it has none.
    pub version: i64,
}

/// An input or output.
#[derive(Clone, Debug, Serialize)]
pub struct End {
    /// What callers know it by.
    pub name: String,
    /// `int32` and so on.
    pub dtype: String,
    /// `[batch, sequence]`; `unknown` if not even the rank is known.
    pub shape: String,
}

/// Summarises an ONNX model and lists its constants.
pub fn of_onnx(path: &Path) -> Result<(ModelReport, Vec<Variable>)> {
    Ok(report(onnx::summarise(path)?))
}

/// Summarises an OpenVINO model and lists its constants.
pub fn of_openvino(xml: &Path) -> Result<(ModelReport, Vec<Variable>)> {
    Ok(report(openvino::summarise(xml)?))
}

fn report(summary: Summary) -> (ModelReport, Vec<Variable>) {
    let weights: Vec<Variable> = summary.weights.iter().map(variable).collect();
    let real = weights.iter().filter(|weight| of_type(weight).is_some_and(DType::is_float));
    let elements = |weight: &Variable| -> u64 {
        weight.shape.iter().fold(1, |all, &extent| all.saturating_mul(extent as u64))
    };
    let parameters = real.map(elements).fold(0, u64::saturating_add);
    let mut ops: Vec<OpCount> =
        summary.ops.into_iter().map(|(op, count)| OpCount { op, count }).collect();
    ops.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.op.cmp(&b.op)));
    let opset = |(domain, version)| Opset { domain, version };
    let report = ModelReport {
        name: summary.name,
        version: summary.version,
        producer: summary.producer,
        opsets: summary.opsets.into_iter().map(opset).collect(),
        nodes: ops.iter().map(|op| op.count).sum(),
        parameters,
        inputs: summary.inputs.into_iter().map(end).collect(),
        outputs: summary.outputs.into_iter().map(end).collect(),
        beside: summary.beside,
        ops,
    };
    (report, weights)
}

fn end(end: summary::End) -> End {
    let shape = end.shape.map_or("unknown".to_owned(), |dims| format!("[{}]", dims.join(", ")));
    End { name: end.name, dtype: end.dtype, shape }
}

fn of_type(weight: &Variable) -> Option<DType> {
    DType::from_name(&weight.dtype)
}

fn variable(weight: &summary::Weight) -> Variable {
    let shape: Vec<usize> =
        weight.shape.iter().map(|&extent| usize::try_from(extent).unwrap_or(0)).collect();
    let elements = shape.iter().try_fold(1usize, |all, &extent| all.checked_mul(extent));
    let size = DType::from_name(&weight.dtype).and_then(DType::size);
    Variable {
        name: weight.name.clone(),
        key: None,
        dtype: weight.dtype.clone(),
        bytes: elements.zip(size).and_then(|(elements, size)| elements.checked_mul(size)),
        shape,
        slot: false,
    }
}
