//! Named tensors from any source that has some.

use std::path::Path;

use frazil_tensor::npy::Npz;
use frazil_tensor::safetensors::SafeTensors;
use frazil_tensor::{StoreError, Tensor, TensorInfo, TensorStore};
use frazil_tf::bundle;
use frazil_tf::checkpoint::{self, Checkpoint};
use frazil_tf::graph_def::{self, GraphConsts};
use frazil_tf::proto::GraphDef;
use frazil_tf::saved_model::SavedModelDir;

use super::folder::checkpoint_of_meta;
use super::locate::{Kind, Located, Need, locate};
use crate::{Error, Result};

/// How to open.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether checksums are computed and compared. On unless the user insists.
    pub verify_checksums: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { verify_checksums: true }
    }
}

impl Options {
    /// The same for the checkpoint reader.
    pub(crate) fn checkpoint(&self) -> checkpoint::Options {
        checkpoint::Options { verify_checksums: self.verify_checksums }
    }
}

/// Tensors by name, with where they came from.
pub struct Weights {
    /// Where they came from.
    pub located: Located,
    store: Box<dyn TensorStore>,
}

impl TensorStore for Weights {
    fn infos(&self) -> &[TensorInfo] {
        self.store.infos()
    }

    fn tensor(&self, name: &str) -> Result<Tensor, StoreError> {
        self.store.tensor(name)
    }
}

impl Weights {
    /// The tensor of that name, with this crate's error.
    pub fn read(&self, name: &str) -> Result<Tensor> {
        self.tensor(name).map_err(|source| Error::Store { name: name.to_owned(), source })
    }
}

/// Opens the weights at `path`, whatever they are stored in.
pub fn open_weights(path: impl AsRef<Path>, options: &Options) -> Result<Weights> {
    let located = locate(path, Need::Values)?;
    let store = store_of(&located, options)?;
    Ok(Weights { located, store })
}

pub(crate) fn store_of(located: &Located, options: &Options) -> Result<Box<dyn TensorStore>> {
    let path = &located.path;
    let checkpoint = |prefix: &Path| Checkpoint::open(prefix, options.checkpoint());
    Ok(match located.kind {
        Kind::Checkpoint => Box::new(checkpoint(path)?),
        Kind::Graph => Box::new(constants(located, graph_def::read(path)?)?),
        Kind::MetaGraph => match checkpoint_of_meta(path) {
            Some(prefix) => Box::new(checkpoint(&prefix)?),
            None => {
                return Err(no_values(
                    located,
                    "a MetaGraph has no values: put its checkpoint's `.index` and `.data-…` beside it",
                ));
            }
        },
        Kind::SavedModel => {
            let model = SavedModelDir::open(path)?;
            let prefix = model.variables_prefix();
            if bundle::index_path(&prefix).is_file() {
                Box::new(checkpoint(&prefix)?)
            } else {
                let graphs = &model.proto().meta_graphs;
                let graph = graphs.iter().find_map(|graph| graph.graph_def.clone());
                Box::new(constants(located, graph.unwrap_or_default())?)
            }
        }
        Kind::SafeTensors => Box::new(SafeTensors::open(path)?),
        Kind::Npz => Box::new(Npz::open(path)?),
        Kind::TfRecord => return Err(no_values(located, "give a checkpoint or a model file")),
        Kind::Compiled => return Err(compiled(located)),
        Kind::Onnx | Kind::Openvino => {
            let hint = "its weights have lost their names: give the checkpoint that it came from";
            return Err(no_values(located, hint));
        }
    })
}

/// A frozen graph's constants; a graph that still has variables holds no weights.
fn constants(located: &Located, graph: GraphDef) -> Result<GraphConsts> {
    let variables =
        graph.node.iter().filter(|node| crate::ops::inspect::graph::is_variable(&node.op));
    match variables.count() {
        0 => Ok(GraphConsts::new(graph)?),
        n => Err(no_values(
            located,
            &format!(
                "its {n} variables have no values here: give the checkpoint that belongs to it"
            ),
        )),
    }
}

/// What can be done with a compiled model, where it cannot be used.
pub(crate) fn compiled(located: &Located) -> Error {
    Error::WrongKind {
        path: located.shown(),
        found: located.kind.describe(),
        expected: "the model that it was compiled from",
        hint: "`frazil run`, `bench` and `predict` take a compiled model; for all else give what \
               `frazil compile` or `frazil quantize` was given"
            .into(),
    }
}

fn no_values(located: &Located, hint: &str) -> Error {
    Error::WrongKind {
        path: located.path.clone(),
        found: located.kind.describe(),
        expected: "something with weights",
        hint: hint.to_owned(),
    }
}
