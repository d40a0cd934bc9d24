//! `predict answer`: questions about texts to answers, by a model with a SQuAD head.
//!
//! Questions are pulled some at a time, made into windows, and answered as soon as the model has
//! seen all of a question's windows; answers come in the order of the questions. [`Questions`] is
//! where they come from, [`run_squad`] does it in the manner of google-research/bert's program.
//! The model sees windows as long as they are, unless [`text_model::Options::padded`] is set.

mod questions;
pub mod run_squad;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Instant;

use frazil_bert::rows::{OnBadRow, RowProblem};
use frazil_bert::squad::{
    FIRST_UNIQUE_ID, FeatureOptions, Finder, PredictOptions, Question, SquadExample, SquadFeatures,
    Window, build_features,
};
use serde::Serialize;

use super::rows::Skipped;
use crate::ops::text_model::{self, Item, Said, TextModel, Want};
use crate::{Error, Result};

pub use questions::{Format, Questions};

/// Questions that are made into windows at a time.
const CHUNK: usize = 256;
/// The original's `max_seq_length`, where the model has as many positions.
const MAX_SEQ_LENGTH: usize = 384;

/// How questions are answered.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How the model is opened. Its `max_seq_length` is that of the windows: 384, or what the model
    /// has, if none.
    pub model: text_model::Options,
    /// From the start of a window to the start of the next; 128 if none.
    pub doc_stride: Option<usize>,
    /// Longer questions are cut; 64 pieces if none.
    pub max_query_length: Option<usize>,
    /// How answers are picked.
    pub predict: PredictOptions,
    /// What is done about a question that cannot be used.
    pub on_bad_row: OnBadRow,
}

impl Options {
    /// How windows are cut for a model that takes sequences of at most so many pieces.
    pub fn features(&self, max_seq_length: usize) -> FeatureOptions {
        let defaults = FeatureOptions::default();
        let longest = self.model.max_seq_length.unwrap_or(MAX_SEQ_LENGTH);
        FeatureOptions {
            max_seq_length: longest.min(max_seq_length),
            doc_stride: self.doc_stride.unwrap_or(defaults.doc_stride),
            max_query_length: self.max_query_length.unwrap_or(defaults.max_query_length),
            training: false,
        }
    }
}

/// What was done.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The model.
    pub model: PathBuf,
    /// The vocabulary.
    pub vocabulary: PathBuf,
    /// Questions that were answered.
    pub questions: usize,
    /// Windows of their contexts that the model saw.
    pub windows: usize,
    /// Pieces in all of them.
    pub tokens: usize,
    /// Questions that could not be used.
    pub skipped: Skipped,
    /// Seconds, without opening the model.
    pub seconds: f64,
    /// Choices that were made.
    pub notes: Vec<String>,
}

/// A model that answers questions.
pub struct Answerer {
    path: PathBuf,
    model: TextModel,
    features: FeatureOptions,
    options: Options,
}

/// A question and its windows.
struct Group {
    example: SquadExample,
    windows: Vec<SquadFeatures>,
}

/// A question that waits for the model.
struct Waiting {
    group: Group,
    said: Vec<Said>,
}

impl Answerer {
    /// Opens the model at `path`.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let model = TextModel::open(&path, &Want::Span, &options.model)?;
        Self::new(path, model, options)
    }

    /// The same with a model that is open already, for [`Want::Span`]; `path` is what it is called.
    pub fn new(path: impl AsRef<Path>, model: TextModel, options: Options) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        let features = options.features(model.max_seq_length());
        // What is wrong with the lengths is said before anything is read.
        build_features(&[], model.tokenizer(), features)?;
        Ok(Self { path, model, features, options })
    }

    /// The model.
    pub fn model(&self) -> &TextModel {
        &self.model
    }

    /// How windows are cut.
    pub fn features(&self) -> FeatureOptions {
        self.features
    }

    /// Answers all questions, in their order, and gives the answers away as they are found, with
    /// how much of the source is read by then.
    pub fn run<E: From<Error>>(
        &self,
        questions: &mut Questions,
        mut each: impl FnMut(Question, (u64, Option<u64>)) -> Result<(), E>,
    ) -> Result<Report, E> {
        let start = Instant::now();
        let mut report = self.report();
        let mut next_id = FIRST_UNIQUE_ID;
        let mut ready: VecDeque<Group> = VecDeque::new();
        let progress = Cell::new((0, None));
        let groups = std::iter::from_fn(|| {
            while ready.is_empty() {
                match self.chunk(questions, &mut next_id) {
                    Ok(Some(groups)) => ready.extend(groups),
                    Ok(None) => return None,
                    Err(error) => return Some(Err(error)),
                }
                progress.set(questions.progress());
            }
            ready.pop_front().map(Ok)
        });
        self.run_groups(groups, |question, windows, tokens| {
            report.questions += 1;
            report.windows += windows;
            report.tokens += tokens;
            each(question, progress.get())
        })?;
        questions.finish(report.questions)?;
        report.skipped = questions.skipped().clone();
        report.seconds = start.elapsed().as_secs_f64();
        Ok(report)
    }

    /// Before anything is done.
    fn report(&self) -> Report {
        Report {
            model: self.path.clone(),
            vocabulary: self.model.vocabulary().to_path_buf(),
            questions: 0,
            windows: 0,
            tokens: 0,
            skipped: Skipped::default(),
            seconds: 0.0,
            notes: self.model.notes().to_vec(),
        }
    }

    /// The next questions, made into windows. None at the end.
    fn chunk(&self, questions: &mut Questions, next_id: &mut i64) -> Result<Option<Vec<Group>>> {
        let mut examples = Vec::new();
        while examples.len() < CHUNK {
            match questions.pull()? {
                Some(example) => examples.push(example),
                None => break,
            }
        }
        if examples.is_empty() {
            return Ok(None);
        }
        let features = build_features(&examples, self.model.tokenizer(), self.features)?;
        let mut groups = Vec::with_capacity(examples.len());
        for mut group in group(examples, features) {
            if let Err(problem) = self.check(&group) {
                questions.refuse(&group.example, &problem, self.options.on_bad_row)?;
                continue;
            }
            for window in &mut group.windows {
                window.unique_id = *next_id;
                *next_id += 1;
            }
            groups.push(group);
        }
        Ok(Some(groups))
    }

    /// Whether the model can read the windows of a question.
    fn check(&self, group: &Group) -> Result<(), RowProblem> {
        group.windows.iter().try_for_each(|window| self.model.check(&window.features))
    }

    /// Runs the model, and finds the answer to each question when its windows are through. `each`
    /// also gets the numbers of windows and of their pieces.
    fn run_groups<E: From<Error>>(
        &self,
        groups: impl Iterator<Item = Result<Group>>,
        mut each: impl FnMut(Question, usize, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let finder = Finder::new(self.model.tokenizer(), self.options.predict);
        // In order; the model has said something of the first ones.
        let waiting: RefCell<VecDeque<Waiting>> = RefCell::new(VecDeque::new());
        let mut give = |at_end: bool| -> Result<(), E> {
            loop {
                let mut all = waiting.borrow_mut();
                let through = |first: &Waiting| first.said.len() == first.group.windows.len();
                if !all.front().is_some_and(through) {
                    debug_assert!(!at_end || all.is_empty(), "every window was said something of");
                    return Ok(());
                }
                let Some(Waiting { group, said }) = all.pop_front() else { return Ok(()) };
                drop(all);
                let windows = group.windows.iter().zip(&said).map(|(features, said)| Window {
                    features,
                    start_logits: said.outputs.first().map_or(&[], |output| &output.values),
                    end_logits: said.outputs.get(1).map_or(&[], |output| &output.values),
                });
                let windows: Vec<Window<'_>> = windows.collect();
                let found = finder.find(&group.example, &windows).map_err(Error::from)?;
                let pieces = group.windows.iter().map(|window| window.features.len()).sum();
                each(found, windows.len(), pieces)?;
            }
        };
        let items = groups.flat_map(|group| -> Vec<Result<Item<()>, E>> {
            match group {
                Err(error) => vec![Err(error.into())],
                Ok(group) => {
                    let item = |window: &SquadFeatures| Ok(Item::new((), window.features.clone()));
                    let items = group.windows.iter().map(item).collect();
                    waiting.borrow_mut().push_back(Waiting { group, said: Vec::new() });
                    items
                }
            }
        });
        self.model.run(items, |(), said| {
            let open = |one: &&mut Waiting| one.said.len() < one.group.windows.len();
            if let Some(one) = waiting.borrow_mut().iter_mut().find(open) {
                one.said.push(said);
            }
            give(false)
        })?;
        give(true)
    }
}

/// Windows to their questions. A document without words has none.
fn group(examples: Vec<SquadExample>, features: Vec<SquadFeatures>) -> Vec<Group> {
    let with_none = |example| Group { example, windows: Vec::new() };
    let mut groups: Vec<Group> = examples.into_iter().map(with_none).collect();
    for features in features {
        if let Some(group) = groups.get_mut(features.example_index) {
            group.windows.push(features);
        }
    }
    groups
}
