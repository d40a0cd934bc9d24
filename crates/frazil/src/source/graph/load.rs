//! From a file to a graph: read, or built from the configuration of the weights.

use std::path::Path;

use frazil_bert::build;
use frazil_bert::names::{Mapped, Row};
use frazil_convert::tf::saver::Variables;
use frazil_convert::tf::{self, ImportOptions};
use frazil_convert::{onnx, openvino};
use frazil_graph::{Graph, Value};
use frazil_tensor::{DType, StoreError, Tensor, TensorInfo, TensorStore};
use frazil_tf::checkpoint::Checkpoint;
use frazil_tf::proto::{GraphDef, MetaGraphDef, SignatureDef};
use frazil_tf::saved_model::SavedModelDir;
use frazil_tf::{bundle, graph_def, meta_graph};

use super::{GraphOptions, Loaded};
use crate::ops::model::{Model, Request};
use crate::source::folder::checkpoint_of_meta;
use crate::source::locate::{Kind, Located, Need, locate};
use crate::source::weights::{compiled, store_of};
use crate::{Error, Result};

pub(super) fn load(located: &Located, options: &GraphOptions) -> Result<Loaded> {
    match located.kind {
        Kind::Checkpoint | Kind::SafeTensors | Kind::Npz => built(located, options),
        Kind::Graph => read(graph_def::read(&located.path)?, options),
        Kind::MetaGraph => from_meta(located, options),
        Kind::SavedModel => from_saved_model(located, options),
        Kind::Onnx => Ok(whole(onnx::import(&located.path)?)),
        Kind::Openvino => Ok(whole(openvino::import(&located.path)?)),
        Kind::Compiled => Err(compiled(located)),
        Kind::TfRecord => Err(Error::WrongKind {
            path: located.shown(),
            found: located.kind.describe(),
            expected: "a model",
            hint: "give a checkpoint, a graph, a SavedModel or a folder of one".into(),
        }),
    }
}

/// A graph that comes with its ends and its weights.
fn whole(graph: Graph) -> Loaded {
    let signed = graph.outputs.iter().map(|port| (port.name.clone(), port.value)).collect();
    Loaded { graph, weights: None, config: None, notes: Vec::new(), signed }
}

/// Weights alone: their configuration says what the graph is.
fn built(located: &Located, options: &GraphOptions) -> Result<Loaded> {
    let model = Model::open(&Request {
        path: &located.path,
        source: &options.source,
        scope: options.scope.as_deref(),
        config: options.config.as_deref(),
        heads: None,
        any: false,
    })?;
    let found = model.bert()?;
    let head = model.head(options.head)?;
    model.check_tied(&[head])?;
    let labels = model.labels();
    let graph = build::build(
        &found.config,
        head,
        &build::Options {
            labels,
            formulas: found.formulas,
            pooler: model.infos.iter().any(|info| info.name == "bert/pooler/dense/kernel"),
            ..build::Options::default()
        },
    )?;
    let mut notes = model.notes.clone();
    notes.push(format!(
        "the graph is google-research/bert's for the head `{head}`, built from {}",
        match &found.path {
            Some(path) => format!("`{}`", path.display()),
            None => "the shapes of the variables".to_owned(),
        }
    ));
    let config = Some(found.config.clone());
    let signed = graph.outputs.iter().map(|port| (port.name.clone(), port.value)).collect();
    let weights: Box<dyn TensorStore> = Box::new(Canonical::new(model));
    Ok(Loaded { graph, weights: Some(weights), config, notes, signed })
}

/// A model's weights under the canonical names and in float32, as the graph has its variables,
/// kept together with what they are read from.
struct Canonical {
    model: Model,
    rows: Vec<Row>,
    infos: Vec<TensorInfo>,
}

impl Canonical {
    fn new(model: Model) -> Self {
        let rows = model.translation.rows.iter().cloned();
        let rows: Vec<Row> = rows.map(|row| row.cast(DType::F32)).collect();
        let infos = Mapped::new(&model.weights, rows.clone()).infos().to_vec();
        Self { model, rows, infos }
    }
}

impl TensorStore for Canonical {
    fn infos(&self) -> &[TensorInfo] {
        &self.infos
    }

    fn tensor(&self, name: &str) -> std::result::Result<Tensor, StoreError> {
        let row = self.rows.iter().find(|row| row.target.name == name);
        let row = row.ok_or_else(|| format!("there is no variable `{name}`"))?;
        Ok(row.run(&self.model.weights)?)
    }
}

/// A graph with, perhaps, a checkpoint that the user names.
fn read(def: GraphDef, options: &GraphOptions) -> Result<Loaded> {
    let imported = tf::import(&def, &ImportOptions::default())?;
    let weights = match &options.checkpoint {
        Some(path) => Some(store_of(&locate(path, Need::Values)?, &options.source)?),
        None => None,
    };
    Ok(Loaded {
        graph: imported.graph,
        weights,
        config: None,
        notes: imported.notes,
        signed: Vec::new(),
    })
}

fn from_meta(located: &Located, options: &GraphOptions) -> Result<Loaded> {
    let meta = meta_graph::read(&located.path)?;
    let mut loaded = read(meta.graph_def.clone().unwrap_or_default(), options)?;
    if loaded.weights.is_none()
        && let Some(prefix) = checkpoint_of_meta(&located.path)
    {
        loaded.notes.push(format!("values from the checkpoint `{}`", prefix.display()));
        loaded.weights = Some(restored(&meta, open_checkpoint(&prefix, options)?));
    }
    Ok(loaded)
}

/// A checkpoint's tensors by the variables that the MetaGraph's saver restores them into.
fn restored(meta: &MetaGraphDef, checkpoint: Checkpoint) -> Box<dyn TensorStore> {
    match (&meta.graph_def, &meta.saver_def) {
        (Some(def), Some(saver)) => Box::new(Variables::of(def, saver, checkpoint)),
        _ => Box::new(checkpoint),
    }
}

fn open_checkpoint(prefix: &Path, options: &GraphOptions) -> Result<Checkpoint> {
    Ok(Checkpoint::open(prefix, options.source.checkpoint())?)
}

fn from_saved_model(located: &Located, options: &GraphOptions) -> Result<Loaded> {
    let model = SavedModelDir::open(&located.path)?;
    let tags: Vec<&str> = match options.tags.as_slice() {
        [] => vec!["serve"],
        tags => tags.iter().map(String::as_str).collect(),
    };
    let meta = model.meta_graph(&tags)?;
    let mut loaded = read(meta.graph_def.clone().unwrap_or_default(), options)?;
    let prefix = model.variables_prefix();
    if loaded.weights.is_none() && bundle::index_path(&prefix).is_file() {
        loaded.weights = Some(restored(meta, open_checkpoint(&prefix, options)?));
    }
    if let Some((key, signature)) = signature(meta, options)? {
        loaded.notes.push(format!("the ends are those of the signature `{key}`"));
        name_inputs(&mut loaded.graph, signature);
        for (name, info) in &signature.outputs {
            if let Some(value) = value_of(&loaded.graph, info)? {
                loaded.signed.push((name.clone(), value));
            }
        }
    }
    Ok(loaded)
}

/// The signature that is asked for, the default one, or the only one.
fn signature<'a>(
    meta: &'a MetaGraphDef,
    options: &GraphOptions,
) -> Result<Option<(&'a str, &'a SignatureDef)>> {
    let all = &meta.signature_def;
    let names = || all.keys().map(String::as_str).filter(|key| !key.starts_with("__"));
    let found = match &options.signature {
        Some(key) => {
            let found = all.get_key_value(key);
            if found.is_none() {
                let list: Vec<String> = names().map(|name| format!("`{name}`")).collect();
                return Err(Error::Usage {
                    what: format!("the SavedModel has no signature `{key}`"),
                    hint: format!("it has {}", list.join(", ")),
                });
            }
            found
        }
        None => {
            let only = || names().next().filter(|_| names().count() == 1);
            all.get_key_value("serving_default").or_else(|| all.get_key_value(only()?))
        }
    };
    Ok(found.map(|(key, signature)| (key.as_str(), signature)))
}

/// The value that a signature's entry names; none for the forms that are no single tensor.
fn value_of(graph: &Graph, info: &frazil_tf::proto::TensorInfo) -> Result<Option<Value>> {
    use frazil_tf::proto::tensor_info::Encoding;
    match &info.encoding {
        Some(Encoding::Name(name)) => Ok(Some(graph.find_value(name)?)),
        _ => Ok(None),
    }
}

/// Calls the model's inputs by the signature's keys. A placeholder of that name that the
/// signature does not mean (Estimator's exports have both `input_ids` and `input_ids_1`) gets
/// its place instead.
fn name_inputs(graph: &mut Graph, signature: &SignatureDef) {
    for (key, info) in &signature.inputs {
        let Ok(Some(value)) = value_of(graph, info) else { continue };
        for port in &mut graph.inputs {
            if port.value == value {
                port.name = key.clone();
            } else if port.name == *key {
                port.name = format!("{key}:0");
            }
        }
    }
}
