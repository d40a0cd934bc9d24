//! From a path to a model that runs: the graph opened and cut for what is wanted, its sizes made
//! open where they are baked in, its vocabulary and labels found beside it.

use std::path::{Path, PathBuf};

use frazil_bert::config::{FromHuggingFace, Labels};
use frazil_bert::tokenizer::Tokenizer;
use frazil_bert::{BertConfig, Head};
use frazil_graph::pass::{self, Fusions, Reshape};
use frazil_graph::{Graph, Op, infer};

use super::ends::{self, Ends};
use super::{About, Options, TextGraph, TextModel, Want};
use crate::ops::compile::{self, Compiled};
use crate::ops::role::{self, InputRole, Role};
use crate::ops::run::dropout_note;
use crate::source::{GraphOptions, Kind, Located, Need, locate, open_graph_choosing};
use crate::{Error, Result};

const VOCABULARIES: [&str; 2] = ["vocab.txt", "tokenizer.json"];

/// What a graph is made for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// The number of sequences that it takes, if it takes no other.
    pub batch: Option<usize>,
    /// The length that it takes, if it takes no other.
    pub seq: Option<usize>,
    /// The most positions, where that is known.
    pub positions: Option<usize>,
    /// The rows of the word table, where that is known.
    pub words: Option<usize>,
    /// The width of each output's rows, where it is known.
    pub widths: Vec<Option<usize>>,
}

impl Want {
    /// The head that gives it.
    fn head(&self) -> Head {
        match self {
            Self::Classes => Head::Classifier,
            Self::Span => Head::Squad,
            Self::Hidden(_) | Self::Pooled => Head::Encoder,
            Self::Words => Head::Mlm,
            Self::NextSentence => Head::Nsp,
        }
    }
}

/// A graph that gives what is wanted.
struct Found {
    graph: Graph,
    ends: Ends,
    sizes: Sizes,
    located: Option<Located>,
    config: Option<BertConfig>,
    notes: Vec<String>,
}

pub(super) fn open(path: &Path, want: &Want, options: &Options) -> Result<TextModel> {
    if !compile::is_compiled(path) {
        return open_graph(path, want, options)?.into_model();
    }
    let words = words(path, None, options)?;
    let (mut compiled, found) = find_compiled(path, want)?;
    let beside = |name: &str| Some(folder_of(path).join(name)).filter(|path| path.is_file());
    let (about, graph) = about(words, found, &beside, options)?;
    compiled.graph = graph;
    let engine = compiled.engine(&about.engine_options())?;
    Ok(TextModel { about: about.into(), engine })
}

pub(super) fn open_graph(path: &Path, want: &Want, options: &Options) -> Result<TextGraph> {
    if compile::is_compiled(path) {
        return Err(Error::Usage {
            what: format!("`{}` is compiled: its weights are packed", path.display()),
            hint: "give the model that it was compiled from".into(),
        });
    }
    let located = locate(path, Need::Names)?;
    let words = words(path, Some(&located), options)?;
    let found = find_source(path, &located, want, options)?;
    let (about, graph) = about(words, found, &|name| located.beside(&[name]), options)?;
    Ok(TextGraph { about: about.into(), graph })
}

/// The vocabulary and its tokenizer. They come first: they are small, and the more likely ones to
/// be missing.
fn words(
    path: &Path,
    located: Option<&Located>,
    options: &Options,
) -> Result<(PathBuf, Tokenizer)> {
    let vocabulary = vocabulary(path, located, options)?;
    let tokenizer = super::tokenizer(&vocabulary, options)?;
    Ok((vocabulary, tokenizer))
}

/// What is known of a model, and its graph. `beside` finds a file that lies beside it.
fn about(
    (vocabulary, tokenizer): (PathBuf, Tokenizer),
    found: Found,
    beside: &dyn Fn(&str) -> Option<PathBuf>,
    options: &Options,
) -> Result<(About, Graph)> {
    let Found { graph, ends, mut sizes, located, config, mut notes } = found;
    let given = || options.graph.config.clone();
    let labels = given().or_else(|| beside("config.json"));
    let labels = match labels.and_then(|path| FromHuggingFace::read(path).ok()?.labels) {
        Some(Labels::Names(names)) => Some(names),
        _ => None,
    };
    let read = || BertConfig::read(given().or_else(|| beside("bert_config.json"))?).ok();
    let config = config.or_else(read);
    if sizes.positions.is_none() {
        sizes.positions = config.as_ref().map(|config| config.max_position_embeddings);
    }
    let pieces = tokenizer.vocabulary().len();
    if let Some(words) = sizes.words.filter(|words| pieces > *words) {
        notes.push(format!(
            "`{}` has {pieces} pieces, but the model has word embeddings for {words}: is it \
             another model's?",
            vocabulary.display()
        ));
    }
    let max_seq_length = super::length(options.max_seq_length, sizes.positions)?;
    let about = About {
        tokenizer,
        vocabulary,
        ends,
        sizes,
        located,
        config,
        labels,
        max_seq_length,
        rows: options.rows.max(1),
        padded: options.padded,
        threads: options.threads,
        notes,
    };
    Ok((about, graph))
}

fn folder_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// The vocabulary that is named, or that lies beside the model.
fn vocabulary(path: &Path, located: Option<&Located>, options: &Options) -> Result<PathBuf> {
    if let Some(given) = &options.vocabulary {
        return Ok(given.clone());
    }
    let beside = match located {
        Some(located) => located.beside(&VOCABULARIES),
        None => {
            let mut files = VOCABULARIES.iter().map(|name| folder_of(path).join(name));
            files.find(|file| file.is_file())
        }
    };
    beside.ok_or_else(|| Error::Usage {
        what: format!("neither `vocab.txt` nor `tokenizer.json` lies beside `{}`", path.display()),
        hint: "name the vocabulary with `--vocab`".into(),
    })
}

/// A compiled model has the outputs that it has.
fn find_compiled(path: &Path, want: &Want) -> Result<(Compiled, Found)> {
    let compiled = Compiled::open(path)?;
    let mut graph = compiled.graph.clone();
    let chosen = ends::choose(&graph, Ok(graph.outputs.clone()), want, true)?;
    graph.outputs = chosen.ports.clone();
    graph.prune();
    let mut notes = chosen.notes.clone();
    let sizes = with_positions(sizes(&graph, &mut notes)?, positions(&graph));
    let roles = role::roles(&graph)?;
    let ends = Ends::new(&graph, chosen, roles)?;
    Ok((compiled, Found { graph, ends, sizes, located: None, config: None, notes }))
}

fn find_source(path: &Path, located: &Located, want: &Want, options: &Options) -> Result<Found> {
    let weights = matches!(located.kind, Kind::Checkpoint | Kind::SafeTensors | Kind::Npz);
    let head = weights.then(|| options.graph.head.unwrap_or(want.head()));
    let how = GraphOptions { head, ..options.graph.clone() };
    let mut chosen = None;
    let opened = open_graph_choosing(path, &how, |graph, outputs| {
        let found = ends::choose(graph, outputs, want, false)?;
        let ports = found.ports.clone();
        chosen = Some(found);
        Ok(ports)
    })
    .map_err(|error| without_head(error, located, head))?;
    let mut notes = opened.notes;
    notes.extend(dropout_note(&opened.passes));
    let mut graph = opened.graph;
    let mut chosen = match chosen {
        Some(chosen) => chosen,
        // The user named them.
        None => {
            let outputs = graph.outputs.clone();
            let found = ends::choose(&graph, Ok(outputs), want, true)?;
            graph.outputs = found.ports.clone();
            graph.prune();
            found
        }
    };
    notes.append(&mut chosen.notes);
    if ids_dims(&role::roles(&graph)?).iter().flatten().any(Option::is_some) {
        match pass::reshape(&mut graph, &Reshape::dynamic()) {
            Ok(report) => notes.push(format!(
                "the graph is made for one batch size or length; {} of its constants are computed \
                 from the inputs instead",
                report.done.len()
            )),
            Err(error) => notes.push(format!(
                "the graph is made for one batch size or length, and sequences are padded to it: \
                 {error}"
            )),
        }
    }
    let sizes = sizes(&graph, &mut notes)?;
    let roles = role::roles(&graph)?;
    let ends = Ends::new(&graph, chosen, roles)?;
    let known = opened.config.as_ref().map(|config| config.max_position_embeddings);
    let sizes = with_positions(sizes, known.or_else(|| positions(&graph)));
    let (located, config) = (Some(opened.located), opened.config);
    Ok(Found { graph, ends, sizes, located, config, notes })
}

/// Weights that lack the head which gives what is wanted.
fn without_head(error: Error, located: &Located, head: Option<Head>) -> Error {
    let missing = match &error {
        Error::Bert(frazil_bert::Error::NoLabels) => "`output_weights` is missing".to_owned(),
        Error::Graph(missing) => missing.to_string(),
        _ => return error,
    };
    let Some(head) = head.filter(|head| *head != Head::Encoder) else { return error };
    Error::Usage {
        what: format!("`{}` has no {head} head: {missing}", located.shown().display()),
        hint: "it may be pre-trained only: give a model that was fine-tuned for this; `frazil \
               inspect` lists the heads that it has"
            .into(),
    }
}

/// A graph with one length has no more positions than that, whatever its table has.
fn with_positions(sizes: Sizes, table: Option<usize>) -> Sizes {
    let positions = match (table, sizes.seq) {
        (Some(table), Some(seq)) => Some(table.min(seq)),
        (table, seq) => table.or(seq),
    };
    Sizes { positions, ..sizes }
}

/// Batch and length of the ids, where they are numbers.
fn ids_dims(roles: &[InputRole]) -> Option<[Option<usize>; 2]> {
    let ids = roles.iter().find(|input| input.role == Role::Ids)?;
    let known = |dim: &frazil_graph::Dim| usize::try_from(dim.as_known()?).ok();
    match ids.dims.as_deref() {
        Some([batch, seq]) => Some([known(batch), known(seq)]),
        _ => Some([None, None]),
    }
}

fn sizes(graph: &Graph, notes: &mut Vec<String>) -> Result<Sizes> {
    let roles = role::roles(graph)?;
    let Some([batch, seq]) = ids_dims(&roles) else {
        return Err(Error::Usage {
            what: "the graph has no input that is used as `input_ids`".into(),
            hint: "`frazil inspect` lists its inputs".into(),
        });
    };
    if let Some(batch) = batch.filter(|batch| *batch > 1) {
        notes.push(format!("the graph takes {batch} sequences at a time"));
    }
    let ids = roles.iter().find(|input| input.role == Role::Ids);
    let facts = infer(graph)?;
    let width = |port: &frazil_graph::Port| {
        let dims = facts[port.value].dims.as_ref()?;
        usize::try_from(dims.last()?.as_known()?).ok()
    };
    let widths = graph.outputs.iter().map(width).collect();
    Ok(Sizes { batch, seq, positions: seq, words: ids.and_then(|ids| ids.limit), widths })
}

/// The rows of the position table. It is looked for in a copy: the engine's own graph has let go of
/// its weights.
fn positions(graph: &Graph) -> Option<usize> {
    let mut graph = graph.clone();
    pass::fuse(&mut graph, &Fusions::all()).ok()?;
    let facts = infer(&graph).ok()?;
    graph.nodes().find_map(|(_, node)| {
        let table = node.inputs.get(4).filter(|_| matches!(node.op, Op::Embed))?;
        usize::try_from(facts[*table].dims.as_ref()?.first()?.as_known()?).ok()
    })
}
