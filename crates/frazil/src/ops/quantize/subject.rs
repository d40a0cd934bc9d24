//! The model under test: calibrated once, then measured as any configuration says.

use std::collections::HashMap;
use std::time::Instant;

use frazil_graph::pass::quantize::{Grids, quantize, sites};
use frazil_graph::{Graph, Op};
use frazil_kernels::Isa;
use frazil_runtime::{Engine, EngineOptions, Inputs};
use frazil_tensor::{DType, Tensor};
use frazil_tune::config::Quantization;
use frazil_tune::{Configuration, Error as TuneError, Extent, Measured, Subject};

use super::choices::{self, Kinds, Workload};
use super::evaluate::{Candidate, Evaluation, Outcome, paired_difference};
use super::grids::{Calibrated, Means};
use super::{Doing, OnEvent};
use crate::{Error, Result};

/// Runs that time is taken of: at least so many, and more while they are quick.
const ROUNDS: (usize, usize) = (3, 15);
/// Seconds after which no more are begun.
const TIMING: f64 = 1.0;
/// Sequences of the calibration data on which operations are tried alone.
const ALONE: usize = 8;

/// A model whose parts the user gives.
pub struct Given<'a> {
    /// The model, as it would be run in f32.
    pub graph: Graph,
    /// How it is run.
    pub engine: EngineOptions,
    /// Inputs that are like those that it will be run on, batch by batch.
    pub calibration: Vec<Inputs>,
    /// How good it is.
    pub evaluation: Evaluation<'a>,
    /// Examples that are evaluated before all of them are, where there are many more.
    pub subset: usize,
    /// What the choice of a subset follows from.
    pub seed: u64,
}

/// See the module.
pub(super) struct Model<'a> {
    graph: Graph,
    options: EngineOptions,
    batches: Vec<Inputs>,
    pub calibrated: Calibrated,
    ops: Vec<frazil_tune::Op>,
    baseline: Engine,
    evaluation: Evaluation<'a>,
    /// Examples of the subset; none if a subset makes no sense.
    subset: Vec<usize>,
    seed: u64,
    /// Whether the graph takes one batch size only.
    is_fixed: bool,
    base: Option<f64>,
    /// What became of examples in f32, as far as that was asked.
    base_outcomes: HashMap<usize, Outcome>,
    /// The last configuration that was built, and what became of examples.
    last: Option<Built>,
    reference: Option<Vec<Vec<f32>>>,
    on_event: OnEvent<'a>,
}

struct Built {
    key: String,
    graph: Graph,
    engine: Engine,
    outcomes: HashMap<usize, Outcome>,
}

impl<'a> Model<'a> {
    /// Calibrates.
    pub fn new(
        given: Given<'a>,
        asked: &Quantization,
        kinds: Kinds,
        on_event: OnEvent<'a>,
    ) -> Result<Self> {
        let Given { graph, engine: options, calibration, evaluation, subset, seed } = given;
        if calibration.is_empty() {
            return Err(Error::Usage {
                what: "the calibration set is empty".into(),
                hint: "ranges follow from what the model reads: give it something to read".into(),
            });
        }
        let found = sites(&graph)?;
        let means = Means { graph: &graph, engine: &options, batches: &calibration };
        let mut looking = |done, total| on_event(Doing::Calibrating { done, total });
        let calibrated = Calibrated::new(found, means, &mut looking)?;
        let baseline = Engine::new(&graph, &options)?;
        let workload = workload(&calibration[0], &baseline);
        let ops = choices::ops(&graph, &calibrated.sites, asked, kinds, workload)?;
        let subset = match &evaluation {
            Evaluation::Examples(examples) if examples.len() >= 2 * subset.max(1) => {
                let mut some = frazil_tune::dice::shuffled(examples.len(), seed);
                some.truncate(subset.max(1));
                some.sort_unstable();
                some
            }
            _ => Vec::new(),
        };
        let is_fixed = graph.inputs.iter().any(|port| match graph.op(port.value) {
            Op::Input(input) | Op::InputWithDefault(input) => {
                let first = input.dims.as_ref().and_then(|dims| dims.first());
                first.is_some_and(|batch| batch.as_known().is_some())
            }
            _ => false,
        });
        Ok(Self {
            graph,
            options,
            batches: calibration,
            calibrated,
            ops,
            baseline,
            evaluation,
            subset,
            seed,
            is_fixed,
            base: None,
            base_outcomes: HashMap::new(),
            last: None,
            reference: None,
            on_event,
        })
    }

    /// The instructions that it is measured with.
    pub fn isa(&self) -> Isa {
        self.baseline.isa()
    }

    /// The numbers of a configuration.
    pub fn grids(&mut self, configuration: &Configuration) -> Result<Grids> {
        let means = Means { graph: &self.graph, engine: &self.options, batches: &self.batches };
        self.calibrated.grids(configuration, means)
    }

    /// The graph of a configuration.
    pub fn quantized(&mut self, configuration: &Configuration) -> Result<Graph> {
        let grids = self.grids(configuration)?;
        let mut graph = self.graph.clone();
        quantize(&mut graph, &grids)?;
        Ok(graph)
    }

    fn build(&mut self, configuration: &Configuration) -> Result<Built> {
        let key = configuration.key();
        match self.last.take() {
            Some(last) if last.key == key => Ok(last),
            _ => {
                let graph = self.quantized(configuration)?;
                let engine = Engine::new(&graph, &self.options)?;
                Ok(Built { key, graph, engine, outcomes: HashMap::new() })
            }
        }
    }

    fn measured(&mut self, configuration: &Configuration, extent: Extent) -> Result<Measured> {
        let mut built = self.build(configuration)?;
        let candidate = Candidate { graph: &built.graph, engine: &built.engine };
        let full = extent == Extent::Full || self.subset.is_empty();
        let (accuracy, interval) = match &mut self.evaluation {
            Evaluation::Whole(score) => (score(&candidate)?, None),
            Evaluation::Examples(examples) => {
                let all: Vec<usize> = (0..examples.len()).collect();
                let which = if full { &all } else { &self.subset };
                let mut run = |candidate, known: &mut HashMap<usize, Outcome>| {
                    let (on_event, total) = (self.on_event, which.len());
                    outcomes(examples.as_mut(), candidate, which, known, on_event, total)
                };
                let found = run(&candidate, &mut built.outcomes)?;
                if full {
                    (examples.score(&found)?, None)
                } else {
                    let baseline = Candidate { graph: &self.graph, engine: &self.baseline };
                    let base = run(&baseline, &mut self.base_outcomes)?;
                    let score = |outcomes: &[Outcome]| examples.score(outcomes);
                    let (difference, (low, high)) =
                        paired_difference(&score, &base, &found, examples.len(), self.seed)?;
                    let base = self.base.unwrap_or(f64::NAN);
                    (base + difference, Some((base + low, base + high)))
                }
            }
        };
        let (latency_ms, baseline_ms) = self.times(&built.engine)?;
        let bytes = weight_bytes(&built.graph);
        self.last = Some(built);
        Ok(Measured { accuracy, interval, full, latency_ms, baseline_ms, bytes })
    }

    /// Milliseconds of a run, and of the f32 model's, in turn: medians.
    fn times(&self, engine: &Engine) -> Result<(f64, f64)> {
        let inputs = &self.batches[0];
        let time = |engine: &Engine| -> Result<f64> {
            let start = Instant::now();
            engine.run(inputs)?;
            Ok(start.elapsed().as_secs_f64() * 1e3)
        };
        // Memory grows, threads start.
        time(engine)?;
        time(&self.baseline)?;
        let (mut these, mut those) = (Vec::new(), Vec::new());
        let start = Instant::now();
        while these.len() < ROUNDS.0
            || these.len() < ROUNDS.1 && start.elapsed().as_secs_f64() < TIMING
        {
            those.push(time(&self.baseline)?);
            these.push(time(engine)?);
        }
        Ok((median(these), median(those)))
    }

    /// What the model says to the first sequences.
    fn said(&self, engine: &Engine) -> Result<Vec<Vec<f32>>> {
        let mut inputs = Inputs::new();
        for (name, tensor) in &self.batches[0] {
            // A graph may have a batch size of its own.
            let all = tensor.shape().first().is_none_or(|&rows| rows <= ALONE) || self.is_fixed;
            let some = if all { tensor.clone() } else { tensor.head(ALONE)? };
            inputs.insert(name.clone(), some);
        }
        let outputs = engine.run(&inputs)?.outputs;
        outputs.iter().map(|(_, tensor)| numbers(tensor)).collect()
    }

    fn alone(&mut self, configuration: &Configuration) -> Result<Vec<(String, f64)>> {
        let reference = match self.reference.take() {
            Some(reference) => reference,
            None => self.said(&self.baseline)?,
        };
        let names: Vec<String> = configuration
            .ops
            .iter()
            .filter(|(_, choice)| choice.is_int8())
            .map(|(name, _)| name.clone())
            .collect();
        let mut damage = Vec::with_capacity(names.len());
        for (done, name) in names.iter().enumerate() {
            let only = configuration.ops.get_key_value(name);
            let ops = only.map(|(name, choice)| (name.clone(), *choice)).into_iter().collect();
            let graph = self.quantized(&Configuration { ops, ..configuration.clone() })?;
            let engine = Engine::from_graph(graph, &self.options)?;
            damage.push((name.clone(), difference(&reference, &self.said(&engine)?)));
            (self.on_event)(Doing::Alone { done: done + 1, total: names.len() });
        }
        self.reference = Some(reference);
        Ok(damage)
    }
}

/// What becomes of examples, as far as it is not known yet.
fn outcomes(
    examples: &mut dyn super::Examples,
    candidate: &Candidate<'_>,
    which: &[usize],
    known: &mut HashMap<usize, Outcome>,
    on_event: OnEvent<'_>,
    total: usize,
) -> Result<Vec<Outcome>> {
    let new: Vec<usize> = which.iter().copied().filter(|one| !known.contains_key(one)).collect();
    let before = total - new.len();
    if !new.is_empty() {
        let mut progress = |done| on_event(Doing::Evaluating { done: before + done, total });
        let found = examples.run(candidate, &new, &mut progress)?;
        if found.len() != new.len() {
            return Err(Error::Usage {
                what: format!("{} of {} examples were evaluated", found.len(), new.len()),
                hint: "an evaluation says something of every example".into(),
            });
        }
        known.extend(new.into_iter().zip(found));
    }
    Ok(which.iter().map(|one| known[one]).collect())
}

fn workload(inputs: &Inputs, engine: &Engine) -> Workload {
    // The largest input is `[b, s]`, whatever it is called.
    let shapes = inputs.values().map(|tensor| tensor.shape());
    let shape = shapes.max_by_key(|shape| shape.elements());
    let rows = shape.and_then(|shape| shape.elements()).unwrap_or(1) as f64;
    let length = shape.and_then(|shape| shape.last()).copied().unwrap_or(1) as f64;
    Workload { rows, length, isa: engine.isa() }
}

/// Bytes of all constants.
fn weight_bytes(graph: &Graph) -> u64 {
    let constants = graph.nodes().filter_map(|(_, node)| node.op.as_const());
    constants.map(|tensor| tensor.byte_len() as u64).sum()
}

fn numbers(tensor: &Tensor) -> Result<Vec<f32>> {
    Ok(tensor.cast(DType::F32)?.values::<f32>()?.into_owned())
}

/// The mean squared difference.
fn difference(a: &[Vec<f32>], b: &[Vec<f32>]) -> f64 {
    let (mut sum, mut count) = (0.0, 0usize);
    for (a, b) in a.iter().zip(b) {
        for (a, b) in a.iter().zip(b) {
            sum += f64::from(a - b).powi(2);
        }
        count += a.len();
    }
    sum / count.max(1) as f64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

impl Subject for Model<'_> {
    fn ops(&self) -> &[frazil_tune::Op] {
        &self.ops
    }

    fn baseline(&mut self) -> Result<Measured, TuneError> {
        self.evaluate_baseline().map_err(|error| TuneError::subject("the baseline", error))
    }

    fn remember_baseline(&mut self, baseline: &Measured) {
        self.base = Some(baseline.accuracy);
    }

    fn measure(
        &mut self,
        configuration: &Configuration,
        extent: Extent,
    ) -> Result<Measured, TuneError> {
        self.measured(configuration, extent).map_err(|error| TuneError::subject("a trial", error))
    }

    fn damage(&mut self, configuration: &Configuration) -> Result<Vec<(String, f64)>, TuneError> {
        let during = "measuring operations alone";
        self.alone(configuration).map_err(|error| TuneError::subject(during, error))
    }
}

impl Model<'_> {
    fn evaluate_baseline(&mut self) -> Result<Measured> {
        let candidate = Candidate { graph: &self.graph, engine: &self.baseline };
        let accuracy = match &mut self.evaluation {
            Evaluation::Whole(score) => score(&candidate)?,
            Evaluation::Examples(examples) => {
                let which: Vec<usize> = (0..examples.len()).collect();
                let (known, total) = (&mut self.base_outcomes, which.len());
                let on_event = self.on_event;
                let found =
                    outcomes(examples.as_mut(), &candidate, &which, known, on_event, total)?;
                examples.score(&found)?
            }
        };
        self.base = Some(accuracy);
        let (_, baseline_ms) = self.times(&self.baseline)?;
        Ok(Measured {
            accuracy,
            interval: None,
            full: true,
            latency_ms: baseline_ms,
            baseline_ms,
            bytes: weight_bytes(&self.graph),
        })
    }
}
