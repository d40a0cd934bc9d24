//! A model that reads text: whatever the user has, with its tokenizer and an engine, asked for one
//! thing (classes, a span, hidden layers, …) over sequences of any lengths.
//!
//! `ends` finds in a graph what gives the thing that is wanted, by names and else by what nodes
//! compute; `batch` packs sequences into runs and cuts the results apart again. What sequences are
//! made of and what becomes of the numbers is the business of the operations beside this one.

mod batch;
mod ends;
mod opened;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use frazil_bert::BertConfig;
use frazil_bert::features::Features;
use frazil_bert::rows::RowProblem;
use frazil_bert::tokenizer::{Casing, Tokenizer};
use frazil_graph::Graph;
use frazil_runtime::{Engine, EngineOptions, Inputs};

pub use batch::{Item, Output, Said};
pub use opened::Sizes;

use crate::source::{GraphOptions, Located};
use crate::{Error, Result};
use ends::Ends;

/// Rows of one run where nobody says: enough to keep every core at work, small enough for caches.
const ROWS: usize = 2048;
/// `max_seq_length` of a model that does not say how many positions it has.
const POSITIONS: usize = 512;

/// How a model that reads text is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// How the model is opened. Head, cut and outputs are chosen by what is wanted.
    pub graph: GraphOptions,
    /// `vocab.txt`, `tokenizer.json` or a folder of one, if not the one beside the model.
    pub vocabulary: Option<PathBuf>,
    /// Whether text is lowered; what the files say if none, and what the pieces look like if they
    /// say nothing.
    pub casing: Option<Casing>,
    /// `[MASK]` and the like are pieces where they stand in a text, not brackets and a word.
    pub keep_special: bool,
    /// The most pieces of a sequence; as many as the model has positions if none.
    pub max_seq_length: Option<usize>,
    /// Threads; `FRAZIL_THREADS`, or one for each core, if none.
    pub threads: Option<usize>,
    /// Rows of one run, about.
    pub rows: usize,
    /// Sequences are filled up to their [`Features::padded_len`], and what the model says of
    /// padding is given with the rest: for whoever must see what the original saw.
    pub padded: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            graph: GraphOptions::default(),
            vocabulary: None,
            casing: None,
            keep_special: false,
            max_seq_length: None,
            threads: None,
            rows: ROWS,
            padded: false,
        }
    }
}

/// What is asked of a model, and what [`Said`] has for each sequence then; `len` is the length of
/// the sequence, with padding if that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// The logits of a classifier: `[c]`.
    Classes,
    /// The logits of where an answer begins and where it ends: `[len]` and `[len]`.
    Span,
    /// The rows of encoder layers, counted from 0, or from the last one as -1: `[len, h]` each.
    Hidden(Vec<i32>),
    /// What the pooler makes of the first row: `[h]`.
    Pooled,
    /// The log probabilities of all words at an item's positions: `[positions, v]`.
    Words,
    /// The log probabilities that the second text follows the first, and that it does not: `[2]`.
    NextSentence,
}

/// A model, its tokenizer and an engine.
pub struct TextModel {
    about: Arc<About>,
    engine: Engine,
}

/// A model whose graph may be changed before it is run: see [`TextGraph::model`].
pub struct TextGraph {
    about: Arc<About>,
    graph: Graph,
}

/// What is known of a model that reads text.
struct About {
    tokenizer: Tokenizer,
    vocabulary: PathBuf,
    ends: Ends,
    sizes: Sizes,
    located: Option<Located>,
    config: Option<BertConfig>,
    labels: Option<Vec<String>>,
    max_seq_length: usize,
    rows: usize,
    padded: bool,
    threads: Option<usize>,
    notes: Vec<String>,
}

impl About {
    fn engine_options(&self) -> EngineOptions {
        EngineOptions { threads: self.threads, packed: !self.padded, ..EngineOptions::default() }
    }

    fn check(&self, features: &Features) -> Result<(), RowProblem> {
        let (found, most) = (features.len(), self.sizes.positions.unwrap_or(usize::MAX));
        if found > most {
            return Err(RowProblem::TooLong { found, most });
        }
        let Some(words) = self.sizes.words else { return Ok(()) };
        let outside = |id: &&i32| usize::try_from(**id).map_or(true, |id| id >= words);
        let Some(&id) = features.ids().iter().find(outside) else { return Ok(()) };
        let piece = u32::try_from(id).ok().and_then(|id| self.tokenizer.vocabulary().token(id));
        let piece = piece.unwrap_or_default().to_owned();
        Err(RowProblem::OutsideVocabulary { piece, id, words })
    }
}

impl TextGraph {
    /// Opens the model at `path` for what is wanted of it; a compiled one cannot be changed any more.
    pub fn open(path: impl AsRef<Path>, want: &Want, options: &Options) -> Result<Self> {
        opened::open_graph(path.as_ref(), want, options)
    }

    /// The graph, cut for what is wanted.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Choices that were made, in words.
    pub fn notes(&self) -> &[String] {
        &self.about.notes
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.about.tokenizer
    }

    /// The file or folder that the tokenizer came from.
    pub fn vocabulary(&self) -> &Path {
        &self.about.vocabulary
    }

    /// The most pieces of a sequence: what was asked for, or what the model has.
    pub fn max_seq_length(&self) -> usize {
        self.about.max_seq_length
    }

    /// Whether the model can read a sequence; if not, why.
    pub fn check(&self, features: &Features) -> Result<(), RowProblem> {
        self.about.check(features)
    }

    /// The inputs of runs over these sequences, in their order, as [`TextModel::run`] makes them.
    pub fn inputs(&self, sequences: &[Features]) -> Result<Vec<Inputs>> {
        self.about.inputs(sequences)
    }

    /// How its engines are made.
    pub fn engine_options(&self) -> EngineOptions {
        self.about.engine_options()
    }

    /// Where the model came from.
    pub fn located(&self) -> Option<&Located> {
        self.about.located.as_ref()
    }

    /// A model that runs another form of the graph, with the same inputs and outputs.
    pub fn model(&self, graph: Graph) -> Result<TextModel> {
        Ok(self.with_engine(Engine::from_graph(graph, &self.about.engine_options())?))
    }

    /// The same with an engine that is there already.
    pub fn with_engine(&self, engine: Engine) -> TextModel {
        TextModel { about: Arc::clone(&self.about), engine }
    }

    /// The model as it is.
    pub fn into_model(self) -> Result<TextModel> {
        let engine = Engine::from_graph(self.graph, &self.about.engine_options())?;
        Ok(TextModel { about: self.about, engine })
    }
}

impl TextModel {
    /// Opens the model at `path` for what is wanted of it.
    pub fn open(path: impl AsRef<Path>, want: &Want, options: &Options) -> Result<Self> {
        opened::open(path.as_ref(), want, options)
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.about.tokenizer
    }

    /// The file or folder that the tokenizer came from.
    pub fn vocabulary(&self) -> &Path {
        &self.about.vocabulary
    }

    /// The most positions that the model has, where that is known.
    pub fn max_positions(&self) -> Option<usize> {
        self.about.sizes.positions
    }

    /// The most pieces of a sequence: what was asked for, or what the model has.
    pub fn max_seq_length(&self) -> usize {
        self.about.max_seq_length
    }

    /// The names of the classes, where a `config.json` tells them.
    pub fn labels(&self) -> Option<&[String]> {
        self.about.labels.as_deref()
    }

    /// The configuration, where there is one.
    pub fn config(&self) -> Option<&BertConfig> {
        self.about.config.as_ref()
    }

    /// Where the model came from; none for a compiled one.
    pub fn located(&self) -> Option<&Located> {
        self.about.located.as_ref()
    }

    /// The width of each output's rows, where it is known: the number of classes, `h`, `v`.
    pub fn widths(&self) -> &[Option<usize>] {
        &self.about.sizes.widths
    }

    /// What the graph is made for.
    pub fn sizes(&self) -> &Sizes {
        &self.about.sizes
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Choices that were made, in words.
    pub fn notes(&self) -> &[String] {
        &self.about.notes
    }

    /// The inputs of runs over these sequences, in their order, as [`TextModel::run`] makes them.
    pub fn inputs(&self, sequences: &[Features]) -> Result<Vec<Inputs>> {
        self.about.inputs(sequences)
    }

    /// Whether the model can read a sequence; if not, why. [`TextModel::run`] checks this, too, but
    /// does not know where the sequence came from.
    pub fn check(&self, features: &Features) -> Result<(), RowProblem> {
        self.about.check(features)
    }
}

/// The tokenizer of a vocabulary.
fn tokenizer(vocabulary: &Path, options: &Options) -> Result<Tokenizer> {
    use frazil_bert::tokenizer::Vocabulary;
    let read = Vocabulary::open(vocabulary)?;
    let casing = options.casing.or(read.casing()).unwrap_or_else(|| read.guess_casing());
    let tokenizer = Tokenizer::new(Arc::new(read), casing);
    let tokenizer = tokenizer.map_err(|error| error.in_file(vocabulary))?;
    Ok(match options.keep_special {
        true => tokenizer.keep_whole(&super::tokenize::SPECIAL),
        false => tokenizer,
    })
}

/// `max_seq_length`: what was asked for, if the model has as many positions, or what it has.
fn length(asked: Option<usize>, positions: Option<usize>) -> Result<usize> {
    match (asked, positions) {
        (Some(asked), Some(most)) if asked > most => Err(Error::Usage {
            what: format!(
                "`max_seq_length` is {asked}, but the model has positions for at most {most}"
            ),
            hint: format!("give at most {most}"),
        }),
        (Some(asked), _) => Ok(asked),
        (None, positions) => Ok(positions.unwrap_or(POSITIONS)),
    }
}
