//! A graph as a SavedModel, with the signature that TensorFlow Serving calls: frozen, or with variables
//! that are restored when it is loaded.

use std::collections::BTreeMap;

use frazil_graph::{Facts, Graph, Port, Value, infer};
use frazil_tensor::DType;
use frazil_tf::dtype;
use frazil_tf::proto::meta_graph_def::MetaInfoDef;
use frazil_tf::proto::tensor_info::Encoding;
use frazil_tf::proto::tensor_shape_proto::Dim as DimProto;
use frazil_tf::proto::{
    FunctionDefLibrary, MetaGraphDef, SavedModel, SignatureDef, TensorInfo, TensorShapeProto,
};

use super::{export, meta_graph};
use crate::{Error, Result};

/// The key that servers look for.
const SIGNATURE: &str = "serving_default";
/// What the signature is for.
const METHOD: &str = "tensorflow/serving/predict";
/// The format's only version.
const SCHEMA_VERSION: i64 = 1;

/// The message: one MetaGraph under the tag `serve`, whose signature has the graph's inputs and
/// outputs under their names.
pub fn saved_model(graph: &Graph, library: Option<&FunctionDefLibrary>) -> Result<SavedModel> {
    let meta = MetaGraphDef {
        meta_info_def: Some(MetaInfoDef {
            // Loaders decide by it how old the graph is; ours are as of 1.15.
            tensorflow_version: "1.15.5".to_owned(),
            ..MetaInfoDef::default()
        }),
        graph_def: Some(export(graph, library)?),
        ..MetaGraphDef::default()
    };
    served(graph, meta)
}

/// The same for a graph whose variables are not frozen: their values go into the model's folder.
/// `others` are variables beside those of the graph.
pub fn restorable_model(graph: &Graph, others: &[frazil_tensor::TensorInfo]) -> Result<SavedModel> {
    served(graph, meta_graph(graph, others)?)
}

/// With tag and signature.
fn served(graph: &Graph, mut meta: MetaGraphDef) -> Result<SavedModel> {
    let facts = infer(graph)?;
    let signature = SignatureDef {
        inputs: entries(graph, &facts, &graph.inputs)?,
        outputs: entries(graph, &facts, &graph.outputs)?,
        method_name: METHOD.to_owned(),
        ..SignatureDef::default()
    };
    meta.meta_info_def.get_or_insert_default().tags = vec!["serve".to_owned()];
    meta.signature_def = BTreeMap::from([(SIGNATURE.to_owned(), signature)]);
    Ok(SavedModel { saved_model_schema_version: SCHEMA_VERSION, meta_graphs: vec![meta] })
}

fn entries(graph: &Graph, facts: &Facts, ports: &[Port]) -> Result<BTreeMap<String, TensorInfo>> {
    ports.iter().map(|port| Ok((port.name.clone(), entry(graph, facts, port)?))).collect()
}

fn entry(graph: &Graph, facts: &Facts, port: &Port) -> Result<TensorInfo> {
    let Value { node, port: number } = port.value;
    let fact = &facts[port.value];
    let Some(element) = fact.dtype else {
        return Err(Error::UntypedEnd { name: port.name.clone() });
    };
    let shape = match &fact.dims {
        None => TensorShapeProto { unknown_rank: true, ..TensorShapeProto::default() },
        Some(dims) => {
            let size = |dim: &frazil_graph::Dim| dim.as_known().unwrap_or(-1);
            let dim = dims.iter().map(|dim| DimProto { size: size(dim), ..DimProto::default() });
            TensorShapeProto { dim: dim.collect(), ..TensorShapeProto::default() }
        }
    };
    Ok(TensorInfo {
        dtype: number_of(element),
        tensor_shape: Some(shape),
        encoding: Some(Encoding::Name(format!("{}:{number}", graph.node(node).name))),
    })
}

fn number_of(element: DType) -> i32 {
    dtype::to_proto(element) as i32
}
