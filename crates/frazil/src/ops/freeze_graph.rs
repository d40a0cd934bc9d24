//! TensorFlow 1.15's `freeze_graph`: the graph from one of three kinds of source, the weights from
//! one of four, by the original's rules of precedence, and the result node for node as the
//! original's. [`frazil_convert::tf::freeze`](frazil_convert::tf::freeze()) does the freezing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use frazil_convert::tf::saver::{self, Overlay, Variables};
use frazil_convert::tf::{FreezeOptions, freeze, initialize};
use frazil_tensor::TensorStore;
use frazil_tf::checkpoint::{self, Checkpoint};
use frazil_tf::proto::{GraphDef, MetaGraphDef, NodeDef, SaverDef};
use frazil_tf::saved_model::SavedModelDir;
use frazil_tf::{graph_def, meta_graph};
use serde::Serialize;

use crate::{Error, Result};

/// The original's flags; what is empty there is `None` here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// A GraphDef.
    pub input_graph: Option<PathBuf>,
    /// A SaverDef.
    pub input_saver: Option<PathBuf>,
    /// The prefix of a checkpoint.
    pub input_checkpoint: Option<PathBuf>,
    /// Where the frozen graph goes; without it nothing is written.
    pub output_graph: Option<PathBuf>,
    /// Whether the messages are binary. Their content decides; what it contradicts is reported.
    pub input_binary: bool,
    /// The nodes whose values are wanted.
    pub output_node_names: Vec<String>,
    /// Whether nodes lose their devices.
    pub clear_devices: bool,
    /// Nodes to run after the checkpoint is restored.
    pub initializer_nodes: Vec<String>,
    /// If given, only these variables are frozen.
    pub variable_names_whitelist: Option<BTreeSet<String>>,
    /// These variables are not frozen.
    pub variable_names_blacklist: BTreeSet<String>,
    /// A MetaGraphDef.
    pub input_meta_graph: Option<PathBuf>,
    /// The folder of a SavedModel.
    pub input_saved_model_dir: Option<PathBuf>,
    /// Which of the SavedModel's MetaGraphs.
    pub saved_model_tags: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            input_graph: None,
            input_saver: None,
            input_checkpoint: None,
            output_graph: None,
            input_binary: false,
            output_node_names: Vec::new(),
            clear_devices: true,
            initializer_nodes: Vec::new(),
            variable_names_whitelist: None,
            variable_names_blacklist: BTreeSet::new(),
            input_meta_graph: None,
            input_saved_model_dir: None,
            saved_model_tags: vec!["serve".to_owned()],
        }
    }
}

/// What happens on the way, as it happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A MetaGraph was read.
    LoadedMetaGraph(PathBuf),
    /// The weights come from this checkpoint.
    Restoring(PathBuf),
    /// The SavedModel has no weights.
    NoVariables,
    /// So many variables have their values.
    Froze(usize),
    /// So many variables became constants.
    Converted(usize),
    /// Something that the original would pass over in silence, or fail at.
    Note(String),
}

/// What was frozen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The file that was written.
    pub output_graph: Option<PathBuf>,
    /// Number of nodes in it.
    pub nodes: usize,
    /// The variables that became constants.
    pub variables: Vec<String>,
}

/// Freezes. `on_event` is told what happens.
pub fn freeze_graph(options: &Options, on_event: &mut dyn FnMut(Event)) -> Result<Report> {
    let (frozen, report) = freeze_in_memory(options, on_event)?;
    if let Some(path) = &options.output_graph {
        graph_def::write(path, &frozen)?;
    }
    Ok(report)
}

/// [`freeze_graph`] without writing the result.
pub fn freeze_in_memory(
    options: &Options,
    on_event: &mut dyn FnMut(Event),
) -> Result<(GraphDef, Report)> {
    let sources = Sources::read(options, on_event)?;
    let checkpoint = options.input_checkpoint.as_deref().unwrap_or(Path::new(""));
    if sources.saved_model.is_none() && checkpoint::find(checkpoint).is_err() {
        return Err(missing("checkpoint", checkpoint));
    }
    if options.output_node_names.is_empty() {
        return Err(Error::Usage {
            what: "You need to supply the name of a node to --output_node_names.".into(),
            hint: "`frazil inspect` shows the outputs of a model".into(),
        });
    }
    let mut def = sources.graph()?.clone();
    // A MetaGraph loses them in any case: the original imports it that way.
    if options.clear_devices || sources.meta.is_some() {
        for node in &mut def.node {
            node.device.clear();
        }
    }
    let weights = sources.weights(options, &def, checkpoint, on_event)?;
    let freezing = FreezeOptions {
        outputs: options.output_node_names.clone(),
        only: options.variable_names_whitelist.clone(),
        except: options.variable_names_blacklist.clone(),
    };
    let frozen = weights.with(&def, |store| Ok(freeze(&def, store, &freezing)?))?;
    on_event(Event::Froze(frozen.variables.len()));
    on_event(Event::Converted(frozen.variables.len()));
    let report = Report {
        output_graph: options.output_graph.clone(),
        nodes: frozen.def.node.len(),
        variables: frozen.variables,
    };
    Ok((frozen.def, report))
}

/// The messages that were named.
struct Sources {
    saved_model: Option<(SavedModelDir, MetaGraphDef)>,
    graph: Option<GraphDef>,
    meta: Option<MetaGraphDef>,
    saver: Option<SaverDef>,
}

impl Sources {
    fn read(options: &Options, on_event: &mut dyn FnMut(Event)) -> Result<Self> {
        let mut sources = Self { saved_model: None, graph: None, meta: None, saver: None };
        if let Some(dir) = &options.input_saved_model_dir {
            let model = SavedModelDir::open(dir)?;
            let tags: Vec<&str> = options.saved_model_tags.iter().map(String::as_str).collect();
            let meta = model.meta_graph(&tags)?.clone();
            sources.saved_model = Some((model, meta));
            if options.input_graph.is_some() {
                let note = "`--input_graph` has no effect beside `--input_saved_model_dir`";
                on_event(Event::Note(note.into()));
            }
        } else if let Some(path) = &options.input_graph {
            present("graph", path)?;
            sources.graph = Some(graph_def::read(path)?);
            note_form(options, path, on_event)?;
        }
        if let Some(path) = &options.input_meta_graph {
            present("meta graph", path)?;
            sources.meta = Some(meta_graph::read(path)?);
            note_form(options, path, on_event)?;
            on_event(Event::LoadedMetaGraph(path.clone()));
            if !options.clear_devices {
                let note = "`--clear_devices=false` has no effect with `--input_meta_graph`";
                on_event(Event::Note(note.into()));
            }
            if sources.graph.is_some() || sources.saved_model.is_some() {
                let note = "the graph of `--input_meta_graph` is taken, not the other one";
                on_event(Event::Note(note.into()));
            }
        }
        if let Some(path) = &options.input_saver {
            present("saver", path)?;
            sources.saver = Some(meta_graph::read_saver(path)?);
        }
        Ok(sources)
    }

    fn graph(&self) -> Result<&GraphDef> {
        if let Some(meta) = &self.meta {
            return Ok(meta_graph::graph(meta)?);
        }
        if let Some((_, meta)) = &self.saved_model {
            return Ok(meta_graph::graph(meta)?);
        }
        self.graph.as_ref().ok_or_else(|| Error::Usage {
            what: "there is no graph to freeze".into(),
            hint: "give `--input_graph`, `--input_meta_graph` or `--input_saved_model_dir`".into(),
        })
    }

    /// Where the weights come from: saver before MetaGraph before SavedModel before names.
    fn weights(
        &self,
        options: &Options,
        def: &GraphDef,
        checkpoint: &Path,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Weights> {
        let from = |path: &Path, on_event: &mut dyn FnMut(Event)| -> Result<Checkpoint> {
            let opened = Checkpoint::open(path, checkpoint::Options::default())?;
            on_event(Event::Restoring(path.into()));
            Ok(opened)
        };
        let mut weights = Weights { checkpoint: None, saver: None, initializers: Vec::new() };
        let mut initializes = false;
        if let Some(saver) = &self.saver {
            let name = saver.restore_op_name.as_str();
            if !def.node.iter().any(|node| node.name == name) {
                return Err(Error::Usage {
                    what: format!("the saver's operation `{name}` is not in the graph"),
                    hint: "give the saver that was made for this graph, or none".into(),
                });
            }
            weights.saver = Some(saver.clone());
            weights.checkpoint = Some(from(checkpoint, on_event)?);
        } else if let Some(meta) = &self.meta {
            weights.saver = meta.saver_def.clone();
            weights.checkpoint = Some(from(checkpoint, on_event)?);
            initializes = true;
        } else if let Some((model, meta)) = &self.saved_model {
            weights.saver = meta.saver_def.clone();
            let prefix = model.variables_prefix();
            if checkpoint::find(&prefix).is_ok() {
                weights.checkpoint = Some(from(&prefix, on_event)?);
            } else {
                on_event(Event::NoVariables);
            }
        } else {
            let opened = Checkpoint::open(checkpoint, checkpoint::Options::default())?;
            check_names(def, &opened)?;
            on_event(Event::Restoring(checkpoint.into()));
            weights.checkpoint = Some(opened);
            initializes = true;
        }
        if initializes {
            weights.initializers.clone_from(&options.initializer_nodes);
        } else if !options.initializer_nodes.is_empty() {
            let note = "`--initializer_nodes` has no effect with a saver or a SavedModel";
            on_event(Event::Note(note.into()));
        }
        Ok(weights)
    }
}

/// A checkpoint, who restores it, and what is run afterwards.
struct Weights {
    checkpoint: Option<Checkpoint>,
    saver: Option<SaverDef>,
    initializers: Vec<String>,
}

impl Weights {
    /// Calls `use_store` with the tensors by variable.
    fn with<T>(
        &self,
        def: &GraphDef,
        use_store: impl FnOnce(&dyn TensorStore) -> Result<T>,
    ) -> Result<T> {
        let none = Nothing;
        let checkpoint: &dyn TensorStore = match &self.checkpoint {
            Some(checkpoint) => checkpoint,
            None => &none,
        };
        let sources = self.saver.as_ref().map(|saver| saver::restored(def, saver));
        let restored;
        let weights: &dyn TensorStore = match sources {
            // A saver that is not in the graph leaves the names.
            Some(sources) if !sources.is_empty() => {
                restored = Variables::new(checkpoint, sources);
                &restored
            }
            _ => checkpoint,
        };
        if self.initializers.is_empty() {
            return use_store(weights);
        }
        let values = initialize(def, &self.initializers, weights)?;
        use_store(&Overlay::new(weights, values))
    }
}

/// The weights of a model without weights.
struct Nothing;

impl TensorStore for Nothing {
    fn infos(&self) -> &[frazil_tensor::TensorInfo] {
        &[]
    }

    fn tensor(&self, name: &str) -> Result<frazil_tensor::Tensor, frazil_tensor::StoreError> {
        Err(frazil_tensor::Error::NoSuchTensor(name.to_owned()).into())
    }
}

/// Restoring by name: every name of the checkpoint that the graph has must be a variable there.
fn check_names(def: &GraphDef, checkpoint: &Checkpoint) -> Result<()> {
    let refused =
        |what: &str, hint: &str| Err(Error::Usage { what: what.into(), hint: hint.into() });
    let is_variable =
        |node: &NodeDef| matches!(node.op.as_str(), "Variable" | "VariableV2" | "VarHandleOp");
    let mut found = false;
    let mut stranger = None;
    let keys: BTreeSet<&str> = checkpoint.infos().iter().map(|info| info.name.as_str()).collect();
    for node in &def.node {
        if keys.contains(node.name.as_str()) {
            found = true;
            if !is_variable(node) {
                stranger = stranger.or(Some(node));
            }
        }
    }
    if !found {
        return refused(
            "No variables to save",
            "no variable of the checkpoint is in the graph; is it this graph's checkpoint?",
        );
    }
    let Some(node) = stranger else { return Ok(()) };
    let is_part = |other: &NodeDef| {
        let in_part = other.name.split("/part_").nth(1).is_some_and(|rest| {
            rest.split_once('/').is_some_and(|(number, _)| {
                !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
            })
        });
        in_part && other.name.contains(node.name.as_str())
    };
    if def.node.iter().any(is_part) {
        return refused(
            "Models containing partition variables cannot be converted from checkpoint files. \
             Please pass in a SavedModel using the flag --input_saved_model_dir.",
            "the MetaGraph beside the checkpoint will do as well: `--input_meta_graph`",
        );
    }
    if !def.node.iter().any(|n| n.op.starts_with("Variable") || n.op.ends_with("VariableOp")) {
        return refused(
            "No variables were found in this model. It is likely the model was frozen \
             previously. You cannot freeze a graph twice.",
            "it is ready to be used as it is",
        );
    }
    refused(
        &format!("`{}` is {} in the graph, not a variable", node.name, node.op),
        "give the MetaGraph or the saver that belong to the checkpoint",
    )
}

fn present(what: &str, path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    Err(Error::Usage {
        what: format!("Input {what} file '{}' does not exist!", path.display()),
        hint: "check the path".into(),
    })
}

fn missing(what: &str, path: &Path) -> Error {
    let hint = match checkpoint::find(path) {
        Err(error) => error.hint().unwrap_or_else(|| "give the checkpoint's prefix".into()),
        Ok(_) => String::new(),
    };
    Error::Usage { what: format!("Input {what} '{}' doesn't exist!", path.display()), hint }
}

/// Says so where a file is of another form than `--input_binary` claims.
fn note_form(options: &Options, path: &Path, on_event: &mut dyn FnMut(Event)) -> Result<()> {
    let bytes = frazil_tensor::file::map(path)?;
    let head = &bytes[..bytes.len().min(4096)];
    // Binary messages have bytes in them that no text has.
    let is_text = !head.iter().any(|&byte| byte < 0x20 && !b"\t\n\r".contains(&byte));
    if is_text == options.input_binary {
        let (is, says) = if is_text { ("text", "true") } else { ("binary", "false") };
        let path = path.display();
        on_event(Event::Note(format!("`{path}` is {is}, though `--input_binary` is {says}")));
    }
    Ok(())
}
