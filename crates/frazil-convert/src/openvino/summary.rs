//! What an intermediate representation says of itself.

use std::path::Path;

use frazil_tensor::{DType, file};

use super::import::{input_name, output_name, sources};
use super::net::dtype_named;
use super::read::{Port, RawLayer, read};
use crate::Result;
use crate::summary::{End, Summary, Weight};

/// Reads the `.xml` alone.
pub fn summarise(xml: &Path) -> Result<Summary> {
    let net = read(&file::map(xml)?)?;
    let sources = sources(&net)?;
    let mut summary = Summary {
        name: net.name.clone(),
        version: net.version,
        producer: net.producer.clone(),
        ..Summary::default()
    };
    let mut opsets: Vec<&str> = net.layers.iter().map(|layer| layer.opset.as_str()).collect();
    opsets.sort_unstable();
    opsets.dedup();
    // Layers are of the set that brought their present form: the newest is what is needed.
    let number = |set: &&str| set.strip_prefix("opset")?.parse().ok();
    if let Some(newest) = opsets.iter().filter_map(number).max() {
        summary.opsets.push((String::new(), newest));
    }
    let others = opsets.iter().filter(|set| !set.is_empty() && number(set).is_none());
    summary.opsets.extend(others.map(|set| ((*set).to_owned(), 0)));
    for (place, layer) in net.layers.iter().enumerate() {
        match layer.kind.as_str() {
            "Parameter" => {
                let port = layer.outputs.first();
                summary.inputs.push(end(input_name(layer), port, layer.get("shape").is_some()));
            }
            "Result" => {
                let port = layer.inputs.first();
                let from = port.and_then(|port| sources.get(&(place, port.id)));
                let name = match from {
                    Some(&(from, port)) => output_name(layer, &net.layers[from], port),
                    None => layer.name.clone(),
                };
                summary.outputs.push(end(name, port, true));
            }
            "Const" => summary.weights.push(weight(layer)),
            kind => summary.count(kind),
        }
    }
    if !summary.weights.is_empty() {
        let bin = xml.with_extension("bin");
        summary.beside.extend(bin.file_name().map(|name| name.to_string_lossy().into_owned()));
    }
    Ok(summary)
}

fn end(name: String, port: Option<&Port>, ranked: bool) -> End {
    let dtype = port.and_then(|port| port.dtype).map_or("unknown".to_owned(), type_name);
    let extent = |&size: &i64| if size < 0 { "?".to_owned() } else { size.to_string() };
    let shape = port.filter(|_| ranked).map(|port| port.dims.iter().map(extent).collect());
    End { name, dtype, shape }
}

fn weight(layer: &RawLayer) -> Weight {
    let stated = layer.get("element_type").unwrap_or("unknown");
    Weight {
        name: layer.name.clone(),
        dtype: dtype_named(stated).map_or_else(|| stated.to_owned(), type_name),
        shape: layer.outputs.first().map(|port| port.dims.clone()).unwrap_or_default(),
    }
}

fn type_name(dtype: DType) -> String {
    dtype.to_string()
}
