//! Tells what is in a file: variables, heads and configuration of a checkpoint; inputs, likely
//! outputs and baked-in sizes of a graph; tags and signatures of a SavedModel; ends, operations
//! and constants of an ONNX or OpenVINO model; the header of a compiled one; features of records. Reads
//! names and messages, not tensors, unless one is asked for.

pub mod graph;
pub mod model;
pub mod nodes;
mod page;
mod records;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use frazil_bert::BertConfig;
use frazil_bert::config::Difference;
use frazil_bert::inventory::Inventory;
use frazil_bert::names;
use frazil_tensor::npy::NpzWriter;
use frazil_tensor::{DType, TensorInfo, TensorStore};
use frazil_tf::checkpoint::{Checkpoint, Version};
use frazil_tf::proto::{MetaGraphDef, SignatureDef};
use frazil_tf::saved_model::SavedModelDir;
use frazil_tf::{bundle, dtype, graph_def, meta_graph};
use serde::Serialize;

pub use graph::GraphReport;
pub use model::ModelReport;
pub use nodes::{Why, nodes, why};
pub use records::RecordsReport;
pub use values::{Statistics, TensorReport};

use crate::Result;
use crate::ops::compile;
use crate::source::{self, Kind, Located, Need, locate, open_weights, store_of};

/// What to look at.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Tensors to read and describe.
    pub tensors: Vec<String>,
    /// Where to extract the tensors to: those named, or all.
    pub npz: Option<PathBuf>,
    /// How the source is opened.
    pub source: source::Options,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What the user gave.
    pub asked: PathBuf,
    /// What it is.
    pub kind: Kind,
    /// Where it is: a checkpoint's prefix, a SavedModel's folder, else the file.
    pub path: PathBuf,
    /// Choices made on the way, and remarks.
    pub notes: Vec<String>,
    /// Of a checkpoint, or of what a MetaGraph or SavedModel restores from.
    pub checkpoint: Option<CheckpointReport>,
    /// Every variable, by name.
    pub variables: Vec<Variable>,
    /// What of a BERT the variables are.
    pub bert: Option<Inventory>,
    /// Attention heads by the `bert_config.json` beside it: shapes do not tell.
    pub heads: Option<usize>,
    /// The `bert_config.json` beside it, against what the variables say.
    pub config: Option<ConfigReport>,
    /// The graphs: one, but for SavedModels with several tag sets.
    pub graphs: Vec<TaggedGraph>,
    /// An ONNX or OpenVINO model.
    pub model: Option<ModelReport>,
    /// A compiled model.
    pub compiled: Option<compile::Description>,
    /// A record file's content.
    pub records: Option<RecordsReport>,
    /// The tensors that were asked for.
    pub tensors: Vec<TensorReport>,
    /// Where tensors were extracted to.
    pub npz: Option<PathBuf>,
}

/// How a checkpoint is stored.
#[derive(Clone, Debug, Serialize)]
pub struct CheckpointReport {
    /// 1 or 2.
    pub version: u8,
    /// Data files.
    pub shards: u32,
    /// Data files that are not there: names and shapes are known, values are not.
    pub missing_data: Vec<PathBuf>,
    /// Variables stored in slices.
    pub partitioned: usize,
    /// Whether it is a TensorFlow 2 object checkpoint.
    pub objects: bool,
}

/// One variable.
#[derive(Clone, Debug, Serialize)]
pub struct Variable {
    /// Its name; in a TensorFlow 2 checkpoint the one it had in the program.
    pub name: String,
    /// The checkpoint's key, where it is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `float32` and so on.
    pub dtype: String,
    /// Extents.
    pub shape: Vec<usize>,
    /// Bytes of all elements; absent for strings.
    pub bytes: Option<usize>,
    /// Whether it is an optimizer's.
    pub slot: bool,
}

/// The configuration beside a checkpoint.
#[derive(Clone, Debug, Serialize)]
pub struct ConfigReport {
    /// The file.
    pub path: PathBuf,
    /// Why it could not be read, if so.
    pub error: Option<String>,
    /// Where it contradicts the variables.
    pub differences: Vec<String>,
}

/// A graph, with its tags and signatures where it has some.
#[derive(Clone, Debug, Serialize)]
pub struct TaggedGraph {
    /// `serve` and so on; empty outside of SavedModels.
    pub tags: Vec<String>,
    /// The TensorFlow that wrote it, where it says so.
    pub tensorflow: Option<String>,
    /// The signatures.
    pub signatures: Vec<Signature>,
    /// The graph itself.
    pub graph: GraphReport,
}

/// A signature of a SavedModel.
#[derive(Clone, Debug, Serialize)]
pub struct Signature {
    /// Its key.
    pub key: String,
    /// `tensorflow/serving/predict` and so on.
    pub method: String,
    /// Name in the signature, tensor, type.
    pub inputs: Vec<[String; 3]>,
    /// The same for the outputs.
    pub outputs: Vec<[String; 3]>,
}

/// Looks at `path`.
pub fn inspect(path: &Path, options: &Options) -> Result<Report> {
    let needs_values = !options.tensors.is_empty() || options.npz.is_some();
    let need = if needs_values { Need::Values } else { Need::Names };
    let located = locate(path, need)?;
    let mut report = Report {
        asked: path.to_path_buf(),
        kind: located.kind,
        path: located.shown(),
        notes: located.notes.clone(),
        checkpoint: None,
        variables: Vec::new(),
        bert: None,
        heads: None,
        config: None,
        graphs: Vec::new(),
        model: None,
        compiled: None,
        records: None,
        tensors: Vec::new(),
        npz: None,
    };
    match located.kind {
        Kind::Checkpoint => report.add_checkpoint(&located.path, &located, options)?,
        Kind::Graph => {
            let graph = graph_def::read(&located.path)?;
            report.graphs.push(TaggedGraph {
                tags: Vec::new(),
                tensorflow: None,
                signatures: Vec::new(),
                graph: graph::summarise(&graph, &BTreeMap::new()),
            });
            if report.graphs[0].graph.variables == 0 {
                report.add_store(&located, options)?;
            }
        }
        Kind::MetaGraph => {
            report.add_meta_graph(&meta_graph::read(&located.path)?);
            if let Some(prefix) = source::checkpoint_of_meta(&located.path) {
                report.notes.push(format!("its checkpoint is `{}`", prefix.display()));
                report.add_checkpoint(&prefix, &located, options)?;
            }
        }
        Kind::SavedModel => {
            let model = SavedModelDir::open(&located.path)?;
            for meta_graph in &model.proto().meta_graphs {
                report.add_meta_graph(meta_graph);
            }
            if bundle::index_path(&model.variables_prefix()).is_file() {
                report.add_checkpoint(&model.variables_prefix(), &located, options)?;
            }
        }
        Kind::SafeTensors | Kind::Npz => report.add_store(&located, options)?,
        Kind::TfRecord => report.records = Some(records::summarise(&located.path)?),
        Kind::Compiled => report.compiled = Some(compile::describe(&located.path)?),
        Kind::Onnx | Kind::Openvino => {
            let (model, constants) = match located.kind {
                Kind::Onnx => model::of_onnx(&located.path)?,
                _ => model::of_openvino(&located.path)?,
            };
            report.model = Some(model);
            report.variables = constants;
        }
    }
    if needs_values {
        report.read_values(path, options)?;
    }
    Ok(report)
}

impl Report {
    fn add_checkpoint(
        &mut self,
        prefix: &Path,
        located: &Located,
        options: &Options,
    ) -> Result<()> {
        let checkpoint = Checkpoint::open(prefix, options.source.checkpoint())?;
        let objects = checkpoint.objects()?;
        self.checkpoint = Some(CheckpointReport {
            version: match checkpoint.version() {
                Version::V1 => 1,
                Version::V2 => 2,
            },
            shards: checkpoint.shards(),
            // A zip's data are there, only not unpacked.
            missing_data: if located.in_zip() { Vec::new() } else { missing_data(&checkpoint) },
            partitioned: checkpoint.entries().iter().filter(|entry| entry.slices > 1).count(),
            objects: objects.is_some(),
        });
        let infos: Vec<TensorInfo> = checkpoint
            .infos()
            .iter()
            .map(|info| match objects.as_ref().and_then(|objects| objects.full_name(&info.name)) {
                Some(name) => TensorInfo { name: name.to_owned(), ..info.clone() },
                None => info.clone(),
            })
            .collect();
        let keys = checkpoint.infos().iter().map(|info| info.name.as_str());
        self.add_variables(&infos, keys, located);
        Ok(())
    }

    fn add_store(&mut self, located: &Located, options: &Options) -> Result<()> {
        let store = store_of(located, &options.source)?;
        let keys = store.infos().iter().map(|info| info.name.as_str());
        self.add_variables(store.infos(), keys, located);
        Ok(())
    }

    fn add_variables<'k>(
        &mut self,
        infos: &[TensorInfo],
        keys: impl Iterator<Item = &'k str>,
        located: &Located,
    ) {
        let translation = names::read(infos, None).ok();
        let slots: BTreeSet<&str> = translation
            .iter()
            .flat_map(|translation| &translation.slots)
            .map(|slot| slot.info.name.as_str())
            .collect();
        self.variables = infos
            .iter()
            .zip(keys)
            .map(|(info, key)| Variable {
                slot: slots.contains(info.name.as_str()),
                name: info.name.clone(),
                key: (key != info.name).then(|| key.to_owned()),
                dtype: info.dtype.to_string(),
                shape: info.shape.to_vec(),
                bytes: info.byte_len(),
            })
            .collect();
        self.bert = translation.as_ref().map(|translation| Inventory::new(translation, None));
        self.check_config(located);
    }

    fn check_config(&mut self, located: &Located) {
        let read_off = self.bert.as_ref().and_then(|bert| bert.from_shapes.as_ref());
        let (Some(path), Some(read_off)) = (located.beside(&["bert_config.json"]), read_off) else {
            return;
        };
        let mut report = ConfigReport { path, error: None, differences: Vec::new() };
        match BertConfig::read(&report.path) {
            Err(error) => report.error = Some(error.to_string()),
            Ok(config) => {
                self.heads = Some(config.num_attention_heads);
                let differences = read_off.contradictions(&config);
                let sentence = |d: &Difference| d.sentence("the file says", "the variables say");
                report.differences = differences.iter().map(sentence).collect();
            }
        }
        self.config = Some(report);
    }

    fn add_meta_graph(&mut self, meta_graph: &MetaGraphDef) {
        let info = meta_graph.meta_info_def.as_ref();
        let version = info.map(|info| info.tensorflow_version.clone());
        let graph = meta_graph.graph_def.clone().unwrap_or_default();
        self.graphs.push(TaggedGraph {
            tags: info.map(|info| info.tags.clone()).unwrap_or_default(),
            tensorflow: version.filter(|version| !version.is_empty()),
            signatures: meta_graph.signature_def.iter().map(signature).collect(),
            graph: graph::summarise(&graph, &meta_graph.signature_def),
        });
    }

    fn read_values(&mut self, path: &Path, options: &Options) -> Result<()> {
        let weights = open_weights(path, &options.source)?;
        let keys: BTreeMap<&str, &str> = self
            .variables
            .iter()
            .filter_map(|variable| Some((variable.name.as_str(), variable.key.as_deref()?)))
            .collect();
        let names: Vec<String> = if options.tensors.is_empty() {
            weights.infos().iter().map(|info| info.name.clone()).collect()
        } else {
            options.tensors.clone()
        };
        let mut npz = options.npz.as_ref().map(NpzWriter::create).transpose()?;
        for name in &names {
            let tensor = weights.read(keys.get(name.as_str()).unwrap_or(&name.as_str()))?;
            if options.tensors.contains(name) {
                self.tensors.push(values::look(name, &tensor)?);
            }
            if let Some(npz) = &mut npz {
                // NumPy has no bfloat16; every one of its values is a float32.
                let widened = match tensor.dtype() {
                    DType::BF16 => tensor.cast(DType::F32)?,
                    _ => tensor,
                };
                npz.add(name, &widened)?;
            }
        }
        if let Some(npz) = npz {
            npz.finish()?;
            self.npz.clone_from(&options.npz);
        }
        Ok(())
    }
}

/// Data files that the index speaks of and that are not there.
fn missing_data(checkpoint: &Checkpoint) -> Vec<PathBuf> {
    if checkpoint.version() == Version::V1 {
        return Vec::new();
    }
    let shards = checkpoint.shards();
    let file = |shard| bundle::data_path(checkpoint.prefix(), shard, shards);
    (0..shards).map(file).filter(|path| !path.exists()).collect()
}

fn signature((key, signature): (&String, &SignatureDef)) -> Signature {
    use frazil_tf::proto::{TensorInfo, tensor_info::Encoding};
    let rows = |infos: &BTreeMap<String, TensorInfo>| {
        infos
            .iter()
            .map(|(name, info)| {
                let tensor = match &info.encoding {
                    Some(Encoding::Name(tensor)) => tensor.clone(),
                    Some(Encoding::CooSparse(sparse)) => sparse.values_tensor_name.clone(),
                    _ => String::new(),
                };
                let shape = info.tensor_shape.as_ref().map_or("unknown".into(), graph::show_shape);
                [name.clone(), tensor, format!("{} {shape}", dtype::name(info.dtype))]
            })
            .collect()
    };
    Signature {
        key: key.clone(),
        method: signature.method_name.clone(),
        inputs: rows(&signature.inputs),
        outputs: rows(&signature.outputs),
    }
}
