//! `quantize`: int8 under an accuracy goal.
//!
//! [`quantize`] does all of it for a model that reads text and a task that frazil knows: it opens the
//! model, calibrates, searches, writes the best model that was found, a recipe that makes it once
//! more, and a report. [`tune`] is its middle: model, calibration data and evaluation are whatever the
//! caller gives.
//!
//! - [`data`]: sequences and examples of a task; [`command`]: somebody else's evaluation; [`yaml`]: what
//!   a configuration says of them;
//! - `calibrate`, `grids`: what was seen, and the numbers of bytes that follow;
//! - `choices`: what each operation can be; `subject`: how good and how fast the model is then;
//! - [`report`], [`html`], [`mod@write`]: what is left behind; [`benchmark`]: any model, measured.
//!
//! How configurations are searched is the business of [`frazil_tune`], how a graph with bytes is run
//! that of the engine.

pub mod benchmark;
mod calibrate;
mod choices;
pub mod command;
pub mod data;
mod evaluate;
mod grids;
pub mod html;
pub mod report;
mod subject;
pub mod write;
pub mod yaml;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::str::FromStr;
use std::time::Instant;

use frazil_graph::Graph;
use frazil_kernels::gemm::i8::largest_weight;
use frazil_tune::choice::fingerprint;
use frazil_tune::config::Note;
use frazil_tune::{Config, History, Identity, Recipe, Resume, Settings, Space, Verdict, weights};

use crate::ops::make_folder;
use crate::ops::text_model::{self, TextGraph};
use crate::{Error, Result};

pub use choices::Kinds;
pub use data::{DataOptions, Task};
pub use evaluate::{Candidate, Evaluation, Examples, Outcome};
pub use report::Report;
pub use subject::Given;
pub use write::{Output, Target};

use data::Metric;
use subject::Model;

/// Examples of the first look at a configuration.
pub const SUBSET: usize = 1000;

/// What is being done, as it is done: for a live table.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Doing<'a> {
    /// A choice that was made, or something that was asked for and has no meaning.
    Note(&'a str),
    /// So many batches of the calibration data were seen.
    Calibrating {
        /// By now.
        done: usize,
        /// Of all.
        total: usize,
    },
    /// So many examples were evaluated.
    Evaluating {
        /// By now.
        done: usize,
        /// Of all.
        total: usize,
    },
    /// So many operations were tried alone.
    Alone {
        /// By now.
        done: usize,
        /// Of all.
        total: usize,
    },
    /// The search goes on.
    Search(&'a frazil_tune::Event<'a>),
    /// A file is being written.
    Writing(&'a Path),
}

/// Called with all that is done.
pub type OnEvent<'a> = &'a dyn Fn(Doing<'_>);

/// How to search.
#[derive(Clone, Debug)]
pub struct Search {
    /// Strategy, goal, stop rules, and what is asked of operations.
    pub config: Config,
    /// What may be in bytes besides linear layers.
    pub kinds: Kinds,
    /// The folder where the history is kept, if it is.
    pub workspace: Option<PathBuf>,
    /// What is done about a history that is there already.
    pub resume: Resume,
    /// What the evaluation is known by: a history of another one is not gone on with.
    pub evaluation: String,
}

impl Default for Search {
    fn default() -> Self {
        Self {
            config: Config::default(),
            kinds: Kinds::default(),
            workspace: None,
            resume: Resume::IfSame,
            evaluation: String::new(),
        }
    }
}

/// What [`tune`] found.
pub struct Tuned {
    /// The best graph, with bytes in it; as it was given if nothing was tried.
    pub graph: Graph,
    /// The trials, and why the search ended.
    pub outcome: frazil_tune::Outcome,
    /// The best graph once more.
    pub recipe: Recipe,
    /// What each operation is, and what it does alone.
    pub ops: Vec<report::Operation>,
    /// What was seen of the tensors that are bytes.
    pub tensors: Vec<report::Tensor>,
    /// What could not be done as it was asked for.
    pub notes: Vec<String>,
}

/// Calibrates a model and searches for the fastest one that is good enough.
///
/// The three parts are the caller's: model, calibration data, and evaluation.
///
/// ```no_run
/// use frazil::ops::quantize::{Evaluation, Given, Search, tune};
/// use frazil::runtime::{Engine, EngineOptions, Inputs};
///
/// # fn batches() -> Vec<Inputs> { Vec::new() }
/// # fn accuracy(engine: &Engine) -> f64 { 0.0 }
/// fn main() -> Result<(), frazil::Error> {
///     let opened = frazil::source::open_graph("frozen.pb", &Default::default())?;
///     let given = Given {
///         graph: opened.graph,
///         engine: EngineOptions::default(),
///         calibration: batches(),
///         evaluation: Evaluation::function(accuracy),
///         subset: 0,
///         seed: 1978,
///     };
///     let tuned = tune(given, &Search::default(), &|_| {})?;
///     println!("{:?} after {} trials", tuned.outcome.verdict, tuned.outcome.trials.len());
///     let engine = Engine::from_graph(tuned.graph, &EngineOptions::default())?;
///     println!("{}", accuracy(&engine));
///     Ok(())
/// }
/// ```
pub fn tune(given: Given<'_>, search: &Search, on_event: OnEvent<'_>) -> Result<Tuned> {
    let config = &search.config;
    let identity = Identity {
        model: identity(&given.graph)?,
        data: format!("{} {}", data::identity(&given.calibration)?, search.evaluation),
        config: format!("subset {} seed {}", given.subset, given.seed),
    };
    let mut history = match &search.workspace {
        Some(folder) => History::open(folder, &identity, search.resume)?,
        None => History::in_memory(),
    };
    let mut notes = history.notes().to_vec();
    notes.iter().for_each(|note| on_event(Doing::Note(note)));
    let mut model = Model::new(given, &config.quantization, search.kinds, on_event)?;
    let mut asked = config.quantization.clone();
    let largest = &mut asked.model_wise.weight.largest;
    if largest.is_none() && largest_weight(model.isa()) < weights::FULL {
        *largest = Some(largest_weight(model.isa()));
        let note = format!(
            "weights have 7 bits: products of such are quicker on a CPU with {} only",
            model.isa()
        );
        on_event(Doing::Note(&note));
        notes.push(note);
    }
    let space = Space::new(frazil_tune::Subject::ops(&model), &asked)?;
    for note in space.notes.iter().map(say) {
        on_event(Doing::Note(&note));
        notes.push(note);
    }
    if space.most_wanted().int8_ops() == 0 {
        return Err(Error::Usage {
            what: "no operation may be in bytes".into(),
            hint: "the configuration, or `--keep`, leaves all of them in f32".into(),
        });
    }
    let settings = Settings::from(&config.tuning);
    let mut progress = |event: &frazil_tune::Event<'_>| {
        on_event(Doing::Search(event));
        ControlFlow::Continue(())
    };
    let outcome = frazil_tune::tune(&mut model, &space, &settings, &mut history, &mut progress)?;
    let configuration = outcome.best().map(|best| best.configuration.clone()).unwrap_or_default();
    let grids = model.grids(&configuration)?;
    let ops = report::operations(&model, &configuration, &outcome);
    let tensors = report::tensors(&model, &configuration)?;
    let graph = model.quantized(&configuration)?;
    let recipe = Recipe { model: identity.model, configuration, grids, ..Recipe::default() };
    Ok(Tuned { graph, outcome, recipe, ops, tensors, notes })
}

/// What a graph is known by: its weights.
pub fn identity(graph: &Graph) -> Result<String> {
    let mut lines = Vec::new();
    for (_, node) in graph.nodes() {
        let Some(tensor) = node.op.as_const().filter(|tensor| tensor.dtype().is_float()) else {
            continue;
        };
        let crc = crc32c::crc32c(tensor.bytes()?);
        lines.push(format!("{} {} {crc:08x}\n", node.name, tensor.shape()));
    }
    lines.sort();
    Ok(fingerprint(lines.concat().as_bytes()))
}

/// A note of the configuration in one line.
fn say(note: &Note) -> String {
    let Note { line, path, text } = note;
    match (line, path.is_empty()) {
        (_, true) => text.clone(),
        (0, false) => format!("`{path}`: {text}"),
        (line, false) => format!("line {line}: `{path}`: {text}"),
    }
}

/// How much of the score may be lost, as people say it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MaxDrop {
    /// Of the f32 model's: 0.01 is `1%`.
    Share(f64),
    /// Percentage points: `0.5pt`.
    Points(f64),
}

impl FromStr for MaxDrop {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "`1%` of the f32 model's score, or `0.5pt`, percentage points";
        let text = text.trim();
        let number = |digits: &str| -> Result<f64, Self::Err> {
            let digits = digits.trim_end();
            let plain = digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
            digits.parse().ok().filter(|_| plain).ok_or(expected)
        };
        match (text.strip_suffix('%'), text.strip_suffix("pt")) {
            (Some(percent), _) => Ok(Self::Share(number(percent)? / 100.0)),
            (_, Some(points)) => Ok(Self::Points(number(points)?)),
            // Nothing is nothing of anything.
            _ if number(text) == Ok(0.0) => Ok(Self::Share(0.0)),
            _ => Err(expected),
        }
    }
}

/// How [`quantize`] works.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How the model is opened.
    pub model: text_model::Options,
    /// What it is for.
    pub task: Option<Task>,
    /// The task's data.
    pub data: DataOptions,
    /// A program that evaluates, in place of the task's own score.
    pub eval_command: Option<command::EvalCommand>,
    /// How to search.
    pub search: Search,
    /// How much may be lost, if not what the configuration says.
    pub max_drop: Option<MaxDrop>,
    /// Examples of the first look at a configuration; [`SUBSET`] if none.
    pub subset: Option<usize>,
    /// What is written; a compiled model in the workspace if nothing.
    pub outputs: Vec<Output>,
}

/// Quantizes the model at `path` and writes the best that was found.
pub fn quantize(path: &Path, options: &Options, on_event: OnEvent<'_>) -> Result<Report> {
    let started = Instant::now();
    let task = options.task.ok_or_else(no_task)?;
    // A search takes its time: that it can be written is found out before.
    for folder in options.outputs.iter().filter_map(|output| output.path.parent()) {
        make_folder(folder)?;
    }
    let config = &options.search.config;
    let mut notes: Vec<String> = config.notes.iter().map(say).collect();
    notes.extend(sizes_note(config));
    let text = Rc::new(TextGraph::open(path, &task.want(), &options.model)?);
    notes.extend(text.notes().iter().cloned());
    let own = options.eval_command.is_none();
    let data = data::read(path, &text, task, &options.data, own)?;
    notes.extend(data.notes.iter().cloned());
    notes.iter().for_each(|note| on_event(Doing::Note(note)));
    let (evaluation, metric, evaluated_by) = match (&options.eval_command, data.examples) {
        (Some(command), _) => {
            let metric = Metric { name: "score".into(), point: 1.0 };
            let source = write::Source::new(path, &text, &options.model.graph);
            (command.evaluation(source), metric, command.line.clone())
        }
        (None, Some(examples)) => {
            let of = data.evaluated_on.as_ref().map(|origin| origin.path.clone());
            let of = of.unwrap_or_default();
            let crc = crc32c::crc32c(&frazil_tensor::file::map(&of)?);
            let (metric, count) = (data.metric.clone(), examples.len());
            (Evaluation::Examples(examples), metric, format!("{crc:08x} {count}"))
        }
        (None, None) => {
            return Err(Error::Usage {
                what: "there is nothing to evaluate on".into(),
                hint: "name the data with `--evaluation`".into(),
            });
        }
    };
    let given = Given {
        graph: text.graph().clone(),
        engine: text.engine_options(),
        calibration: text.inputs(&data.calibration)?,
        evaluation,
        subset: options.subset.unwrap_or(SUBSET),
        seed: options.data.seed,
    };
    let mut search = Search {
        evaluation: format!("{task} {} {evaluated_by}", metric.name),
        ..options.search.clone()
    };
    yaml::with_drop(&mut search.config, options.max_drop, metric.point);
    let mut tuned = tune(given, &search, on_event)?;
    notes.append(&mut tuned.notes);
    tuned.recipe.task = Some(task.to_string());
    tuned.recipe.made_from = vec![
        format!("model `{}`", path.display()),
        format!(
            "{} sequences of `{}`",
            data.calibrated_on.sequences,
            data.calibrated_on.path.display()
        ),
    ];
    let mut report = Report::new(path, Some(task), metric, &search, tuned.ops, tuned.outcome);
    report.tensors = tuned.tensors;
    report.calibrated_on = data.calibrated_on;
    report.evaluated_on = data.evaluated_on;
    report.notes = notes;
    yaml::with_data(&mut search.config, task, &options.data);
    let source = write::Source::new(path, &text, &options.model.graph);
    let outputs = write::Outputs { files: &options.outputs, search: &search };
    write::all(&source, &tuned.graph, &tuned.recipe, outputs, &mut report, on_event)?;
    report.seconds = started.elapsed().as_secs_f64();
    report::write(&report, options.search.workspace.as_deref())?;
    Ok(report)
}

/// Makes the model of a recipe once more: no data, no search.
pub fn follow(
    path: &Path,
    recipe: &Recipe,
    options: &Options,
    on_event: OnEvent<'_>,
) -> Result<Vec<write::Written>> {
    let told = recipe.task.as_deref().and_then(|task| task.parse().ok());
    let task = options.task.or(told).ok_or_else(no_task)?;
    let text = Rc::new(TextGraph::open(path, &task.want(), &options.model)?);
    text.notes().iter().for_each(|note| on_event(Doing::Note(note)));
    let found = identity(text.graph())?;
    if found != recipe.model {
        return Err(Error::Usage {
            what: format!(
                "the recipe was made for a model with other weights ({}) than `{}` ({found})",
                recipe.model,
                path.display()
            ),
            hint: "search again: scales of other weights would be wrong".into(),
        });
    }
    let mut graph = text.graph().clone();
    frazil_graph::pass::quantize(&mut graph, &recipe.grids)?;
    let source = write::Source::new(path, &text, &options.model.graph);
    let mut written = Vec::new();
    for output in &options.outputs {
        on_event(Doing::Writing(&output.path));
        written.extend(source.write(&graph, Some(&recipe.grids), output)?);
    }
    Ok(written)
}

fn no_task() -> Error {
    Error::Usage {
        what: "what the model is for is not known".into(),
        hint: "name it with `--task squad`, or a GLUE task such as `--task mrpc`".into(),
    }
}

/// Several numbers of examples to calibrate with.
fn sizes_note(config: &Config) -> Option<String> {
    let sizes = &config.quantization.sampling_sizes;
    let most = sizes.iter().max()?;
    (sizes.len() > 1).then(|| {
        format!(
            "`quantization.calibration.sampling_size`: {most} is used, the largest: ranges of fewer \
             examples are no better"
        )
    })
}

/// Whether the goal was met, as an exit code says it.
pub fn is_good(verdict: Verdict) -> bool {
    verdict != Verdict::Missed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_as_people_say_them() {
        assert_eq!("1%".parse(), Ok(MaxDrop::Share(0.01)));
        assert_eq!(" 0.5 %".parse(), Ok(MaxDrop::Share(0.005)));
        assert_eq!("0.5pt".parse(), Ok(MaxDrop::Points(0.5)));
        assert_eq!("0".parse(), Ok(MaxDrop::Share(0.0)));
        for wrong in ["", "1", "-1%", "1e3pt", "%", "NaN%", "0.5 points"] {
            assert!(wrong.parse::<MaxDrop>().is_err(), "{wrong}");
        }
    }
}
