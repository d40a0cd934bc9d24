//! A real model in bytes answers questions in other engines: its score there is the one it has here.
//!
//! Written are the model for each engine and `runs.npz`, the inputs of each run as `NAME:RUN`. A
//! script runs them and leaves `ENGINE.npz` with `start_logits:RUN` and `end_logits:RUN`; answers and
//! scores are made of these here, in the same way as of frazil's own.
//!
//! Roundings to steps go apart in two engines (see `bytes_of.py`), and of this model's answers every
//! thirtieth is another one then, for better or worse. A score of 500 questions means less than one of
//! all (`--full`), so it is asked for by name.

use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use frazil::bert::metrics::squad::{Reference, Version};
use frazil::bert::rows::OnBadRow;
use frazil::bert::squad::{
    FeatureOptions, PredictOptions, RawResult, ReadOptions, SquadExample, SquadFeatures,
    build_features, predict, read_examples,
};
use frazil::graph::Graph;
use frazil::ops::convert::{self, Target};
use frazil::ops::quantize::{Evaluation, Given, Search, Task as For, tune};
use frazil::ops::text_model::{Options, TextGraph};
use frazil::runtime::{Engine, Inputs};
use frazil::source::{GraphOptions, open_graph};
use frazil::tune::config::Quantization;
use frazil_tensor::npy::{Npz, NpzWriter};
use frazil_tensor::{Tensor, TensorStore};

use super::Task;

const MODEL: &str = "models/squad/model.ckpt-2232";
const CALIBRATION: &str = "data/squad/train-v1.1-head.json";
const QUESTIONS: &str = "data/squad/dev-v1.1.json";
/// Questions that are answered: the first of the file; with `--full`, all.
const COUNT: usize = 500;
/// Windows that ranges are taken from.
const CALIBRATED: usize = 100;
const SEED: u64 = 1978;
/// Points of F1 that an engine may be away.
const APART: f64 = 0.3;
const ENGINES: [&str; 2] = ["onnxruntime", "openvino"];
const LOGITS: [&str; 2] = ["start_logits", "end_logits"];

/// Questions, cut into windows, in the order in which they are run: by length.
struct Exam {
    text: TextGraph,
    examples: Vec<SquadExample>,
    windows: Vec<SquadFeatures>,
    reference: Reference,
}

impl Exam {
    fn open(shared: &Path, full: bool) -> Result<Self> {
        let text = TextGraph::open(shared.join(MODEL), &For::Squad.want(), &Options::default())?;
        let path = shared.join(QUESTIONS);
        let mut examples = read_examples(&path, ReadOptions::default())?.items;
        if !full {
            examples.truncate(COUNT);
        }
        let mut windows = build_features(&examples, text.tokenizer(), FeatureOptions::default())?;
        windows.sort_by_key(|window| window.features.len());
        let reference = Reference::open(&path, OnBadRow::Stop)?;
        Ok(Self { text, examples, windows, reference })
    }

    fn runs(&self) -> Result<Vec<Inputs>> {
        let sequences: Vec<_> = self.windows.iter().map(|w| w.features.clone()).collect();
        Ok(self.text.inputs(&sequences)?)
    }

    /// The model with all its linear layers in bytes.
    fn quantized(&self, shared: &Path) -> Result<Graph> {
        let examples = read_examples(shared.join(CALIBRATION), ReadOptions::default())?.items;
        let windows = build_features(&examples, self.text.tokenizer(), FeatureOptions::default())?;
        let step = windows.len().div_ceil(CALIBRATED);
        let some: Vec<_> = windows.into_iter().step_by(step).map(|w| w.features).collect();
        let given = Given {
            graph: self.text.graph().clone(),
            engine: self.text.engine_options(),
            calibration: self.text.inputs(&some)?,
            // The first configuration is taken, whatever it is worth.
            evaluation: Evaluation::function(|_| 1.0),
            subset: 0,
            seed: SEED,
        };
        let mut search = Search::default();
        search.config.quantization = Quantization::beforehand();
        search.config.tuning.performance_only = true;
        Ok(tune(given, &search, &|_| {})?.graph)
    }

    /// F1 of what an engine says, and its answers.
    fn score(&self, logits: &[[Tensor; 2]]) -> Result<(f64, HashMap<String, String>)> {
        let mut results = Vec::new();
        let mut windows = self.windows.iter();
        for [start, end] in logits {
            let &[rows, length] = &**start.shape() else {
                anyhow::bail!("logits are {}, not [rows, length]", start.shape());
            };
            ensure!(start.shape() == end.shape(), "starts and ends have two shapes");
            let (start, end) = (start.values::<f32>()?, end.values::<f32>()?);
            for row in 0..rows {
                let window = windows.next().context("more rows than windows")?;
                let part = row * length..(row + 1) * length;
                results.push(RawResult {
                    unique_id: window.unique_id,
                    start_logits: start[part.clone()].to_vec(),
                    end_logits: end[part].to_vec(),
                });
            }
        }
        ensure!(windows.next().is_none(), "fewer rows than windows");
        let mut windows: Vec<&SquadFeatures> = self.windows.iter().collect();
        windows.sort_by_key(|window| window.unique_id);
        let windows: Vec<SquadFeatures> = windows.into_iter().cloned().collect();
        let tokenizer = self.text.tokenizer();
        let found =
            predict(&self.examples, &windows, &results, tokenizer, PredictOptions::default())?;
        let answers: HashMap<String, String> =
            found.questions.into_iter().map(|q| (q.qas_id, q.prediction)).collect();
        let scores: Vec<f64> = self
            .reference
            .each(&answers, Version::V1)
            .filter_map(|(_, score)| score.map(|(_, f1)| f1))
            .collect();
        ensure!(scores.len() == self.examples.len(), "not every question has a score");
        Ok((100.0 * scores.iter().sum::<f64>() / scores.len() as f64, answers))
    }
}

/// The model for each engine, the inputs of all runs, and what frazil's engine says.
pub(super) fn write(task: &Task) -> Result<()> {
    let Some(shared) = &task.shared else { return Ok(()) };
    let exam = Exam::open(shared, task.full)?;
    let graph = exam.quantized(shared)?;
    for (target, name) in [(Target::Onnx, "model.onnx"), (Target::Openvino, "model.xml")] {
        let head = Some(frazil::bert::Head::Squad);
        let opened = open_graph(shared.join(MODEL), &GraphOptions { head, ..Default::default() });
        let mut opened = opened?;
        opened.graph = graph.clone();
        let options = convert::Options::new(target);
        convert::prepare(&mut opened, &options)?;
        convert::write(opened, &task.out.join(name), &options, Instant::now())?;
    }
    let runs = exam.runs()?;
    let mut npz = NpzWriter::create(task.out.join("runs.npz"))?;
    for (place, inputs) in runs.iter().enumerate() {
        for (name, tensor) in inputs {
            npz.add(&format!("{name}:{place}"), tensor)?;
        }
    }
    npz.finish()?;
    for (form, graph) in [("f32", exam.text.graph().clone()), ("int8", graph)] {
        let engine = Engine::from_graph(graph, &exam.text.engine_options())?;
        let mut npz = NpzWriter::create(task.out.join(format!("{form}.npz")))?;
        for (place, inputs) in runs.iter().enumerate() {
            for (name, tensor) in engine.run(inputs)?.outputs {
                npz.add(&format!("{name}:{place}"), &tensor)?;
            }
        }
        npz.finish()?;
    }
    Ok(())
}

/// Whether each engine's F1 is frazil's.
pub(super) fn judge(task: &Task) -> Result<bool> {
    let Some(shared) = &task.shared else { return Ok(true) };
    let exam = Exam::open(shared, task.full)?;
    let score = |name: &str| -> Result<(f64, HashMap<String, String>)> {
        let npz = Npz::open(task.out.join(format!("{name}.npz")))?;
        let logits = |place: usize| -> Result<[Tensor; 2]> {
            let logits = |kind: &str| {
                let name = format!("{kind}:{place}");
                npz.tensor(&name).map_err(|error| anyhow::anyhow!("`{name}`: {error}"))
            };
            Ok([logits(LOGITS[0])?, logits(LOGITS[1])?])
        };
        let runs = npz.infos().len() / LOGITS.len();
        let logits = (0..runs).map(logits).collect::<Result<Vec<_>>>()?;
        exam.score(&logits).with_context(|| format!("`{name}`"))
    };
    let (float, _) = score("f32")?;
    let (ours, answers) = score("int8")?;
    let count = exam.examples.len();
    println!("{count} questions: F1 {float:.3} in f32, {ours:.3} in bytes");
    let mut good = true;
    for engine in ENGINES {
        let (theirs, found) = score(engine)?;
        let other = found.iter().filter(|(id, text)| answers.get(*id) != Some(text)).count();
        let is_near = (theirs - ours).abs() <= APART;
        good &= is_near;
        let word = if is_near { "ok  " } else { "FAIL" };
        println!("{word} {engine}: F1 {theirs:.3}, {other} of {count} answers are others");
    }
    Ok(good)
}
