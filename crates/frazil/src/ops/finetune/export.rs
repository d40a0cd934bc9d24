//! A fine-tuned checkpoint as a SavedModel, as Estimator's `export_savedmodel` writes it: in a folder that is
//! named by the second, with the inputs that a serving function has placeholders for.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use frazil_bert::build::{self, build};
use frazil_bert::{BertConfig, Head};
use frazil_convert::tf::{restorable_model, saver};
use frazil_graph::op::{Input, Variable};
use frazil_graph::{Dim, Graph, Node, NodeId, Op, Port};
use frazil_tensor::file::Scratch;
use frazil_tensor::{DType, Shape, TensorInfo, TensorStore};
use frazil_tf::checkpoint::{Checkpoint, Options as CheckpointOptions};
use frazil_tf::saved_model;

use crate::ops::make_folder;
use crate::{Error, Result};

/// What is exported, and how large a call is.
#[derive(Clone, Debug)]
pub struct Export<'a> {
    /// What was learnt: a classifier or SQuAD.
    pub head: Head,
    /// Classes of a classifier.
    pub labels: usize,
    /// The model's configuration.
    pub config: &'a BertConfig,
    /// Pieces of a sequence.
    pub max_seq_length: usize,
    /// Sequences of a call; any number if none.
    pub batch: Option<usize>,
}

/// Writes `DIR/SECONDS` and gives its path.
///
/// The inputs are those of the original's records, each the placeholder `NAME_1` as Estimator calls
/// it; the outputs what the original predicts: `probabilities` (`loss/output`), or `unique_ids`,
/// `start_logits` and `end_logits`.
pub fn export_saved_model(checkpoint: &Path, export: &Export<'_>, dir: &Path) -> Result<PathBuf> {
    let graph = graph(export)?;
    let step = TensorInfo { name: "global_step".into(), dtype: DType::I64, shape: Shape::from([]) };
    let model = restorable_model(&graph, &[step])?;
    let meta = &model.meta_graphs[0];
    let values = Checkpoint::open(checkpoint, CheckpointOptions::default())?;
    let (Some(def), Some(of)) = (&meta.graph_def, &meta.saver_def) else {
        unreachable!("a restorable model has both")
    };
    complete(checkpoint, &graph, &values)?;
    let variables = saver::Variables::new(values, saver::restored(def, of));
    let options = saved_model::WriteOptions { variables: Some(&variables), ..Default::default() };
    let to = free(dir);
    saved_model::write(&to, &model, options)?;
    Ok(to)
}

/// Refuses a checkpoint that lacks a variable of the graph, or has it in another shape: TensorFlow would
/// not load what is written.
fn complete(checkpoint: &Path, graph: &Graph, values: &Checkpoint) -> Result<()> {
    /// As many are named.
    const SHOWN: usize = 3;
    let wrong = |(_, node): (NodeId, &Node)| {
        let Op::Variable(Variable { shape: Some(shape), .. }) = &node.op else { return None };
        match values.info(&node.name) {
            None => Some(format!("no `{}`", node.name)),
            Some(info) if info.shape != *shape => {
                Some(format!("`{}` as {}, not {shape}", node.name, info.shape))
            }
            Some(_) => None,
        }
    };
    let wrong: Vec<String> = graph.nodes().filter_map(wrong).collect();
    let shown = wrong.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match wrong.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    match wrong.len() {
        0 => Ok(()),
        _ => Err(Error::Usage {
            what: format!(
                "`{}` is not what is to be exported: it has {shown}{more}",
                checkpoint.display()
            ),
            hint: "give a checkpoint that was fine-tuned for the task, and the configuration that \
                   it was trained with"
                .into(),
        }),
    }
}

/// Refuses a place where nothing can be written, before hours are spent.
pub fn check_place(dir: &Path) -> Result<()> {
    if dir.exists() && !dir.is_dir() {
        return Err(Error::Usage {
            what: format!("`{}` is no folder", dir.display()),
            hint: "a SavedModel is a new folder below the one that is named".into(),
        });
    }
    make_folder(dir)?;
    Ok(Scratch::create_in(dir).map(drop)?)
}

fn graph(export: &Export<'_>) -> Result<Graph> {
    let of = build::Options {
        batch: export.batch,
        seq: Some(export.max_seq_length),
        labels: export.labels,
        ..build::Options::default()
    };
    let mut graph = build(export.config, export.head, &of)?;
    let more = match export.head {
        Head::Classifier => "label_ids",
        Head::Squad => "unique_ids",
        head => {
            return Err(Error::Usage {
                what: format!("{head} is not exported for serving"),
                hint: "export a classifier or a model for SQuAD".into(),
            });
        }
    };
    let batch = export.batch.map_or_else(Dim::batch, Dim::from);
    let op = Op::Input(Input { dtype: DType::I32, dims: Some(vec![batch]) });
    let value = graph.push(Node::new(more, op, vec![]))?.into();
    graph.inputs.push(Port { name: more.to_owned(), value });
    if export.head == Head::Squad {
        graph.outputs.insert(0, Port { name: more.to_owned(), value });
    } else {
        graph.outputs.retain(|port| port.name == "probabilities");
        if let Some(port) = graph.outputs.first() {
            graph.rename(port.value.node, "loss/output")?;
        }
    }
    for port in graph.inputs.clone() {
        graph.rename(port.value.node, format!("{}_1", port.name))?;
    }
    graph.check()?;
    Ok(graph)
}

/// Now, or the first second after it whose name is free.
fn free(dir: &Path) -> PathBuf {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let named = |second: u64| dir.join(second.to_string());
    (now..).map(named).find(|path| !path.exists()).unwrap_or_else(|| named(now))
}
