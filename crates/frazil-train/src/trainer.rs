//! Training: a graph with a loss, an optimizer and a schedule, batch after batch.
//!
//! A step computes loss and gradients of one or several batches, adds these up, and lets the optimizer
//! change the weights. All that a training consists of ([`Trainer::state`]) can be taken out, stored
//! and put back: it then goes on as if nothing had been, bit for bit, at the same number of threads
//! or another.
//!
//! Into how many batches the examples of a step are cut, and how many ranks ([`Options::comm`]) share
//! them, makes no difference but for rounding: losses and gradients are weighted by what each batch's
//! are means over, and dropout knows where in the whole step an example stands.

use std::sync::Arc;

use frazil_graph::{Graph, Node, NodeId, Op, Port};
use frazil_kernels::optim::{add_f32, copy_f32};
use frazil_kernels::pointwise;
use frazil_runtime::{Engine, EngineOptions, Inputs, Outputs, Parameters, StepTime, Worker};
use frazil_tensor::{DType, Shape, Tensor, TensorInfo, TensorStore};

use crate::comm::{Comm, Solo, all_numbers};
use crate::dropout::{FIRST, KEY, Rates};
use crate::loss::{Mean, means};
use crate::optim::{self, Optimizer, Taken};
use crate::schedule::{LossScale, Schedule, Transition};
use crate::shard::Shard;
use crate::step_graph::{Layout, SCALE, SHARE, StepGraph};
use crate::{Error, Result};

/// What is fixed for a training.
#[derive(Clone, Debug)]
pub struct Options {
    /// How weights are changed.
    pub optimizer: optim::Options,
    /// By how much, at which step.
    pub schedule: Schedule,
    /// β₁ of Adam by the step, where it is not always the same.
    pub beta1: Option<Transition>,
    /// The factor on the loss.
    pub loss_scale: LossScale,
    /// Dropout; none if not given.
    pub dropout: Option<Rates>,
    /// Of all chance.
    pub seed: u64,
    /// Whether padding is left out, where the loss allows it.
    pub packed: bool,
    /// Whether what gradients need of the layers is computed again instead of being kept.
    pub recompute: bool,
    /// Whether gradients are clipped by the norm that TensorFlow computes: of a table of which rows
    /// are looked up, that of the rows, not of their sums.
    pub norm_of_rows: bool,
    /// Instructions and threads.
    pub engine: EngineOptions,
    /// Who trains together. Every rank makes a trainer of the same graph and options, and calls
    /// [`Trainer::step`] and [`Trainer::state`] as often as the others.
    pub comm: Arc<dyn Comm>,
}

impl Options {
    /// google-research/bert's: its optimizer, its clipping, its schedule; no dropout yet.
    pub fn bert(schedule: Schedule) -> Self {
        Self {
            optimizer: optim::Options::bert(),
            schedule,
            beta1: None,
            loss_scale: LossScale::Static(1.0),
            dropout: None,
            seed: 0,
            packed: true,
            recompute: false,
            norm_of_rows: true,
            engine: EngineOptions::default(),
            comm: Arc::new(Solo),
        }
    }
}

/// A batch as a part of its step: of all batches of all ranks.
#[derive(Clone, Debug)]
struct Part {
    /// How much each of its losses counts.
    shares: Vec<f64>,
    /// Examples before its own.
    first: usize,
}

/// What a step did.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Steps that were taken before this one.
    pub step: u64,
    /// The loss over all batches.
    pub loss: f64,
    /// What the loss is the sum of, by name, if it is one.
    pub parts: Vec<(String, f64)>,
    /// The learning rate.
    pub rate: f32,
    /// The norm of all gradients together, before clipping.
    pub norm: f64,
    /// Whether the weights were changed: with a dynamic factor on the loss, a step whose gradients
    /// overflowed is passed over.
    pub changed: bool,
}

/// A training under way.
pub struct Trainer {
    options: Options,
    engine: Engine,
    worker: Worker,
    parameters: Parameters,
    /// Weights that the loss does not need.
    idle: Parameters,
    optimizer: Optimizer,
    loss_scale: LossScale,
    step: u64,
    /// Steps that what the optimizer remembers is of, beside those.
    steps_before: u64,
    /// The loss and its parts.
    losses: Vec<String>,
    layout: Layout,
    /// Sums of the gradients of several batches; empty for one.
    sums: Vec<Vec<f32>>,
    /// What is ours, if there are other ranks.
    shard: Option<Shard>,
}

impl Trainer {
    /// For a graph as [`StepGraph::new`] takes it. All weights are 0; see [`Trainer::load`].
    pub fn new(graph: Graph, options: Options) -> Result<Self> {
        Self::of(StepGraph::new(graph, &options)?, options)
    }

    /// The same for what a step computes, which these options, or such that mean the same, have made.
    pub fn of(step: StepGraph, options: Options) -> Result<Self> {
        let StepGraph { graph, losses, layout } = step;
        let engine = Engine::for_training(graph, &options.engine)?;
        let parameters = Parameters::zeros(engine.graph())?;
        let worker = engine.worker();
        let shard = (options.comm.size() > 1).then(|| {
            let lens = (0..parameters.len()).map(|at| parameters.values(at).len()).collect();
            let weight = |output: usize| layout.weight(output);
            let ready: Vec<usize> = worker.showing_order().filter_map(weight).collect();
            Shard::new(Arc::clone(&options.comm), lens, &ready)
        });
        let ours = |at: &usize| shard.as_ref().is_none_or(|shard| shard.is_ours(*at));
        let size = |at: usize| (parameters.name(at), parameters.values(at).len());
        let ours = (0..parameters.len()).filter(ours).map(size);
        let optimizer = Optimizer::new(options.optimizer.clone(), ours);
        Ok(Self {
            worker,
            engine,
            optimizer,
            parameters,
            idle: Parameters::default(),
            loss_scale: options.loss_scale,
            step: 0,
            steps_before: 0,
            losses,
            layout,
            sums: Vec::new(),
            shard,
            options,
        })
    }

    /// Gives the weights their values; one that the store lacks, or has of another shape, is an error.
    pub fn load(&mut self, weights: &dyn TensorStore) -> Result<()> {
        self.parameters = Parameters::read(self.engine.graph(), weights)?;
        Ok(())
    }

    /// The weights.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The weights, to be changed: initialised, say. Behind them those that are carried along.
    pub fn parameters_mut(&mut self) -> [&mut Parameters; 2] {
        [&mut self.parameters, &mut self.idle]
    }

    /// Carries along what variables this graph has beyond those that are trained, a pooler under answers to
    /// questions, say: they are part of the state, as they are.
    pub fn carry(&mut self, mut graph: Graph) -> Result<()> {
        let is_idle = |node: &Node| {
            matches!(node.op, Op::Variable(_)) && self.parameters.position(&node.name).is_none()
        };
        let idle = graph.nodes().filter(|(_, node)| is_idle(node));
        let port = |(id, node): (NodeId, &Node)| Port { name: node.name.clone(), value: id.into() };
        graph.outputs = idle.map(port).collect();
        graph.prune();
        self.idle = Parameters::zeros(&graph)?;
        Ok(())
    }

    /// Of all chance: what was stored counts for a training that goes on.
    pub fn seed(&self) -> u64 {
        self.options.seed
    }

    /// Steps that were taken.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// The learning rate by the step.
    pub fn schedule(&self) -> &Schedule {
        &self.options.schedule
    }

    /// A number for how weights are changed, but for the rate.
    pub fn optimizer_identity(&self) -> u64 {
        crc32c::crc32c(format!("{:?}", self.options.optimizer).as_bytes()).into()
    }

    /// What runs a step.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Takes a step over these batches: the gradients are those of one batch that has the examples of all.
    ///
    /// A loss or gradients that are no number are an error, and the weights stay as they were; with a
    /// dynamic factor on the loss, gradients that overflow are passed over instead.
    pub fn step(&mut self, batches: &[&Inputs]) -> Result<Report> {
        let (last, others) = batches.split_last().ok_or(Error::NoBatch)?;
        let parts = self.parts(batches)?;
        let mut sums = Sums { losses: vec![0.0; self.losses.len()], squares: 0.0 };
        for (number, (batch, part)) in others.iter().zip(&parts).enumerate() {
            let inputs = self.fed(batch, part);
            let outputs = self.worker.run_with(&inputs, &self.parameters)?;
            sums.add(&outputs, &self.layout, part)?;
            add_grads(&mut self.sums, &self.engine, number == 0, &self.layout, &outputs)?;
            if self.shard.is_none() {
                check_loss(sums.losses[0], self.loss_scale, self.step)?;
            }
        }
        let part = &parts[others.len()];
        let inputs = self.fed(last, part);
        let is_alone = others.is_empty();
        let taken = match self.shard.take() {
            None => self.last_batch(&inputs, is_alone, part, &mut sums)?,
            Some(mut shard) => {
                let taken = self.last_batch_of_many(&mut shard, &inputs, is_alone, part, &mut sums);
                self.shard = Some(shard);
                taken?
            }
        };
        let counts = self.loss_scale.after(taken.changed);
        if !taken.changed && counts {
            let what = "norm of the gradients".to_owned();
            return Err(Error::NotFinite { what, step: self.step + 1, value: taken.norm });
        }
        let parts = self.losses.iter().cloned().zip(sums.losses.iter().copied()).skip(1);
        let report = Report {
            step: self.step,
            loss: sums.losses[0],
            parts: parts.collect(),
            rate: self.options.schedule.rate(self.step),
            norm: taken.norm,
            changed: taken.changed,
        };
        self.step += u64::from(taken.changed);
        Ok(report)
    }

    /// Runs the last batch of a step, which may be its only one, and changes the weights.
    fn last_batch(
        &mut self,
        inputs: &Inputs,
        is_alone: bool,
        part: &Part,
        sums: &mut Sums,
    ) -> Result<Taken> {
        let step = self.step_of();
        let outputs = self.worker.run_with(inputs, &self.parameters)?;
        sums.add(&outputs, &self.layout, part)?;
        check_loss(sums.losses[0], self.loss_scale, self.step)?;
        let (pool, isa) = (self.engine.pool(), self.engine.isa());
        let mut own = Vec::new();
        let grads: Vec<&[f32]> = if is_alone {
            for at in self.layout.grads() {
                own.push(outputs.numbers(at)?);
            }
            own.iter().map(|grad| &**grad).collect()
        } else {
            add_grads(&mut self.sums, &self.engine, false, &self.layout, &outputs)?;
            self.sums.iter().map(Vec::as_slice).collect()
        };
        let dense = (0..grads.len()).filter(|at| !self.layout.rows.contains(at));
        let dense = self.optimizer.square_sum(pool, isa, dense.map(|at| grads[at]));
        let step = optim::Step { square_sum: Some(dense + sums.squares), ..step };
        let pairs = self.parameters.all_mut().zip(grads).collect();
        Ok(self.optimizer.step(pool, isa, &step, pairs))
    }

    /// The same as one of several ranks.
    fn last_batch_of_many(
        &mut self,
        shard: &mut Shard,
        inputs: &Inputs,
        is_alone: bool,
        part: &Part,
        sums: &mut Sums,
    ) -> Result<Taken> {
        let step = self.step_of();
        let Self { engine, worker, parameters, layout, sums: before, optimizer, .. } = self;
        let (pool, isa) = (engine.pool(), engine.isa());
        let outputs = shard.collect(|send| {
            let outputs = worker.run_showing(inputs, parameters, &mut |output, grad| {
                let Some(weight) = layout.weight(output) else { return };
                send(weight, &mut |to| match before.get(weight).filter(|_| !is_alone) {
                    Some(sum) => pointwise::add_f32(pool, isa, grad, sum, to),
                    None => copy_f32(pool, to, grad),
                });
            })?;
            Ok(outputs)
        })?;
        sums.add(&outputs, layout, part)?;
        // Of what is ours the squares of sums, and of looked-up rows those of our own rows.
        let ours: Vec<usize> = (0..parameters.len()).filter(|at| shard.is_ours(*at)).collect();
        let dense = ours.iter().filter(|at| !layout.rows.contains(at)).map(|at| shard.grad(*at));
        let squares = optimizer.square_sum(pool, isa, dense) + sums.squares;
        sums.losses = shard.add_up(&[sums.losses.as_slice(), &[squares]].concat())?;
        sums.squares = sums.losses.pop().unwrap_or(f64::NAN);
        check_loss(sums.losses[0], self.loss_scale, self.step)?;
        if !sums.squares.is_finite() {
            return Ok(Taken { norm: sums.squares, changed: false });
        }
        let step = optim::Step { square_sum: Some(sums.squares), ..step };
        shard.exchange(parameters.all_mut(), |weights, done| {
            let grads = ours.iter().map(|at| shard.grad(*at));
            let pairs = weights.into_iter().zip(grads).collect();
            optimizer.step_showing(pool, isa, &step, pairs, done)
        })
    }

    /// What the optimizer takes a step with, but for the gradients' norm.
    fn step_of(&self) -> optim::Step {
        optim::Step {
            number: self.step,
            before: self.steps_before,
            rate: self.options.schedule.rate(self.step),
            beta1: self.options.beta1.map(|beta| beta.at(self.step)),
            divisor: self.loss_scale.scale(),
            square_sum: None,
        }
    }

    /// What our batches are of the whole step.
    fn parts(&self, batches: &[&Inputs]) -> Result<Vec<Part>> {
        let mut own = Vec::new();
        let mut of_batches = Vec::new();
        for batch in batches {
            let means = means(&self.losses, batch)?;
            own.push(batch.get("input_ids").map_or(0, |ids| ids.shape()[0]) as f64);
            own.extend(means.iter().map(|mean| mean.over));
            of_batches.push(means);
        }
        let (comm, width) = (self.comm(), 1 + self.losses.len());
        let all = all_numbers(comm, &own)?;
        let of =
            |number: usize, what: usize| all.iter().map(move |rank| rank[number * width + what]);
        let numbers = 0..batches.len();
        let total = |what: usize| numbers.clone().flat_map(|number| of(number, what)).sum();
        let totals: Vec<f64> = (1..width).map(total).collect();
        // Examples follow each other batch by batch, and in each of them rank by rank.
        let mut before = 0.0;
        let part = |(number, means): (usize, Vec<Mean>)| {
            let first = before + of(number, 0).take(comm.rank()).sum::<f64>();
            before += of(number, 0).sum::<f64>();
            let shares = means.iter().zip(&totals).map(|(mean, total)| mean.share_of(*total));
            Part { shares: shares.collect(), first: first as usize }
        };
        Ok(of_batches.into_iter().enumerate().map(part).collect())
    }

    /// Bytes that steps have taken so far beside weights and what the optimizer remembers: values
    /// between the layers, gradients, what goes to other ranks, and scratch.
    pub fn memory(&self) -> usize {
        let sums: usize = self.sums.iter().map(|sum| size_of_val(sum.as_slice())).sum();
        self.worker.memory() + sums + self.shard.as_ref().map_or(0, Shard::memory)
    }

    /// Bytes of what the optimizer remembers: of several ranks each has its own part.
    pub fn optimizer_memory(&self) -> usize {
        self.optimizer.slots().map(|(_, _, values)| size_of_val(values)).sum()
    }

    /// Who trains together.
    pub fn comm(&self) -> &dyn Comm {
        &*self.options.comm
    }

    /// What each part of a step over this batch takes, but for the optimizer.
    pub fn profile(&mut self, batch: &Inputs) -> Result<Vec<StepTime>> {
        let whole = Part { shares: vec![1.0; self.losses.len()], first: 0 };
        let inputs = self.fed(batch, &whole);
        Ok(self.worker.profile_with(&inputs, Some(&self.parameters))?)
    }

    /// A batch with what else the graph is fed.
    fn fed(&self, batch: &Inputs, part: &Part) -> Inputs {
        let mut inputs = batch.clone();
        let scalar = |value: f32| Tensor::from_vec([], vec![value]).expect("one number");
        let scale = self.loss_scale.scale();
        let scale = if self.layout.shares { scale } else { scale * part.shares[0] as f32 };
        inputs.insert(SCALE.to_owned(), scalar(scale));
        if self.layout.shares {
            for (name, share) in self.losses.iter().zip(&part.shares).skip(1) {
                inputs.insert(format!("{SHARE}{name}"), scalar(*share as f32));
            }
        }
        if self.layout.dropout {
            let key = Tensor::from_vec([2], vec![self.options.seed as i64, self.step as i64]);
            inputs.insert(KEY.to_owned(), key.expect("two numbers"));
            let first = Tensor::from_vec([], vec![part.first as i32]).expect("one number");
            inputs.insert(FIRST.to_owned(), first);
        }
        inputs
    }

    /// All that the training consists of, by the names that TensorFlow's checkpoints have: weights,
    /// what the optimizer remembers of them (`WEIGHT/SLOT`), and `global_step`; then what only frazil
    /// knows. Each tensor is made when it is asked for, and comes from the rank that has it: every rank
    /// has to ask for all.
    pub fn state(&self) -> impl Iterator<Item = Result<(String, Tensor)>> + '_ {
        let weights = [&self.parameters, &self.idle].into_iter().flat_map(|all| {
            (0..all.len()).map(|at| Ok((all.name(at).to_owned(), all.to_tensor(at))))
        });
        let mut ours = self.optimizer.slots();
        let slots = self.slot_names().map(move |(at, slot)| {
            let own = self.shard.as_ref().is_none_or(|shard| shard.is_ours(at));
            let mut values = match own.then(|| ours.next()).flatten() {
                Some((_, _, values)) => values.to_vec(),
                None => vec![0.0; self.parameters.values(at).len()],
            };
            if let Some(shard) = &self.shard {
                shard.comm().broadcast(shard.owner(at), &mut values)?;
            }
            let tensor = Tensor::from_vec(self.parameters.shape(at).clone(), values)?;
            Ok((format!("{}/{slot}", self.parameters.name(at)), tensor))
        });
        let integer = |name: &str, value: u64| {
            let tensor = Tensor::from_vec([], vec![value as i64]).expect("one number");
            (name.to_owned(), tensor)
        };
        let mut rest = vec![integer(STEP, self.step), integer(SEED, self.options.seed)];
        if self.steps_before > 0 {
            rest.push(integer(BEFORE, self.steps_before));
        }
        if let LossScale::Dynamic { scale, since, .. } = self.loss_scale {
            rest.push(integer(SINCE, since));
            let scale = Tensor::from_vec([], vec![scale]).expect("one number");
            rest.push((FACTOR.to_owned(), scale));
        }
        weights.chain(slots).chain(rest.into_iter().map(Ok))
    }

    /// What is remembered of all weights, whoever remembers it: the weight, and the slot's name.
    fn slot_names(&self) -> impl Iterator<Item = (usize, &'static str)> + use<> {
        let names = self.options.optimizer.method.slots();
        (0..self.parameters.len()).flat_map(move |at| names.iter().map(move |name| (at, *name)))
    }

    /// The variables of a TensorFlow checkpoint beside the weights: what the optimizer remembers of them,
    /// and `global_step`.
    pub fn slots(&self) -> Vec<TensorInfo> {
        let slot = |(at, slot): (usize, &str)| TensorInfo {
            name: format!("{}/{slot}", self.parameters.name(at)),
            dtype: DType::F32,
            shape: self.parameters.shape(at).clone(),
        };
        let step = TensorInfo { name: STEP.to_owned(), dtype: DType::I64, shape: Shape::from([]) };
        self.slot_names().map(slot).chain([step]).collect()
    }

    /// Lets the optimizer remember what a store says that one remembered; what it lacks stays 0. Gives
    /// how many slots it had. Means that were taken over so many steps already have no need of a correction
    /// for having begun at 0.
    pub fn load_slots(&mut self, store: &dyn TensorStore) -> Result<usize> {
        let mut loaded = 0;
        for (of, slot, values) in self.optimizer.slots_mut() {
            let name = format!("{of}/{slot}");
            if store.info(&name).is_none() {
                continue;
            }
            let tensor = store.tensor(&name);
            let tensor = tensor.map_err(|source| Error::NoState { name: name.clone(), source })?;
            if fill_slot(&name, values, &tensor).is_err() {
                let found = format!("{} {}", tensor.dtype(), tensor.shape());
                return Err(Error::OtherSlot { of: of.to_owned(), found, expected: values.len() });
            }
            tensor.release();
            loaded += 1;
        }
        if loaded > 0 {
            let steps = store.info(STEP).map(|_| integer(store, STEP)).transpose()?;
            self.steps_before = steps.map_or(MANY, |steps| steps.min(MANY));
        }
        Ok(loaded)
    }

    /// Refuses weights that are no numbers: with those nothing goes on.
    pub fn check(&self) -> Result<()> {
        for at in 0..self.parameters.len() {
            let values = self.parameters.values(at);
            if let Some(&value) = values.iter().find(|value| !value.is_finite()) {
                let what = format!("weight `{}`", self.parameters.name(at));
                return Err(Error::NotFinite { what, step: self.step, value: value.into() });
            }
        }
        Ok(())
    }

    /// Goes on from a stored [`Trainer::state`].
    pub fn restore(&mut self, state: &dyn TensorStore) -> Result<()> {
        let get = |name: &str| {
            state.tensor(name).map_err(|source| Error::NoState { name: name.to_owned(), source })
        };
        let integer = |name: &str| integer(state, name);
        let parameters = Parameters::read(self.engine.graph(), state)?;
        for at in 0..self.idle.len() {
            let tensor = get(self.idle.name(at))?;
            self.idle.set(at, &tensor)?;
        }
        let step = integer(STEP)?;
        if i64::try_from(step).is_err() {
            let found = (step as i64).to_string();
            return Err(Error::WrongState {
                name: STEP.to_owned(),
                found,
                expected: "a number from 0 on".to_owned(),
            });
        }
        let seed = stored_seed(state)?.unwrap_or(self.options.seed);
        let before = state.info(BEFORE).map(|_| integer(BEFORE)).transpose()?;
        let mut loss_scale = self.options.loss_scale;
        // A run with a factor that stays the same does not store it.
        let moves = state.info(SINCE).is_some();
        if let (LossScale::Dynamic { scale, since, .. }, true) = (&mut loss_scale, moves) {
            *since = integer(SINCE)?;
            let factor = get(FACTOR)?;
            match factor.values::<f32>() {
                Ok(values) if values.len() == 1 && values[0].is_finite() && values[0] > 0.0 => {
                    *scale = values[0];
                }
                _ => return Err(wrong(FACTOR, &factor, "one float32 above 0".to_owned())),
            }
        }
        for (of, slot, values) in self.optimizer.slots_mut() {
            let name = format!("{of}/{slot}");
            fill_slot(&name, values, &get(&name)?)?;
        }
        (self.parameters, self.step, self.loss_scale) = (parameters, step, loss_scale);
        self.options.seed = seed;
        self.steps_before = before.unwrap_or(0);
        Ok(())
    }
}

/// The seed of the run that a state is of; TensorFlow's checkpoints do not say.
pub fn stored_seed(state: &dyn TensorStore) -> Result<Option<u64>> {
    state.info(SEED).map(|_| integer(state, SEED)).transpose()
}

fn integer(state: &dyn TensorStore, name: &str) -> Result<u64> {
    let tensor = state.tensor(name);
    let tensor = tensor.map_err(|source| Error::NoState { name: name.to_owned(), source })?;
    let wide = tensor.values::<i64>().map(|values| values.to_vec());
    let narrow =
        || tensor.values::<i32>().map(|values| values.iter().map(|v| (*v).into()).collect());
    match wide.or_else(|_| narrow()) {
        Ok(values) if values.len() == 1 => Ok(values[0] as u64),
        _ => Err(wrong(name, &tensor, "one whole number".to_owned())),
    }
}

fn wrong(name: &str, found: &Tensor, expected: String) -> Error {
    let found = format!("{} {}", found.dtype(), found.shape());
    Error::WrongState { name: name.to_owned(), found, expected }
}

fn fill_slot(name: &str, values: &mut [f32], stored: &Tensor) -> Result<()> {
    match stored.values::<f32>() {
        Ok(stored) if stored.len() == values.len() => values.copy_from_slice(&stored),
        _ => return Err(wrong(name, stored, format!("{} float32", values.len()))),
    }
    Ok(())
}

/// Names of what a state has beside weights and slots.
const STEP: &str = "global_step";
const SEED: &str = "frazil/seed";
const BEFORE: &str = "frazil/steps_before";
/// Steps after which means need no correction, for those of which nobody knows how many they had.
const MANY: u64 = 1 << 40;
const FACTOR: &str = "frazil/loss_scale";
const SINCE: &str = "frazil/loss_scale_steps";

/// The one number of an output.
fn number(outputs: &Outputs<'_>, at: usize) -> Result<f64> {
    Ok(outputs.numbers(at)?.first().copied().unwrap_or(f32::NAN).into())
}

/// What is added up over the batches of a step.
struct Sums {
    losses: Vec<f64>,
    /// Of the squares of looked-up rows.
    squares: f64,
}

impl Sums {
    /// Adds what the losses of a batch are of those of the whole step, and its rows.
    fn add(&mut self, outputs: &Outputs<'_>, layout: &Layout, part: &Part) -> Result<()> {
        let mut parts = 0.0;
        for (at, sum) in self.losses.iter_mut().enumerate().skip(1) {
            let own = number(outputs, at)? * part.shares[at];
            *sum += own;
            parts += own;
        }
        // Of several batches a sum is known by its parts only.
        let whole = part.shares.iter().all(|share| *share == 1.0);
        self.losses[0] += match self.losses.len() > 1 && !whole {
            true => parts,
            false => number(outputs, 0)? * part.shares[0],
        };
        for at in layout.squares() {
            self.squares += number(outputs, at)?;
        }
        Ok(())
    }
}

/// A loss to go on with; a factor that adapts itself sees the gradients first.
fn check_loss(loss: f64, scale: LossScale, step: u64) -> Result<()> {
    match loss.is_finite() || !matches!(scale, LossScale::Static(_)) {
        true => Ok(()),
        false => Err(Error::NotFinite { what: "loss".to_owned(), step: step + 1, value: loss }),
    }
}

/// Adds the gradients of a batch to those of the batches before.
fn add_grads(
    sums: &mut Vec<Vec<f32>>,
    engine: &Engine,
    first: bool,
    layout: &Layout,
    outputs: &Outputs<'_>,
) -> Result<()> {
    for (i, at) in layout.grads().enumerate() {
        let grad = outputs.numbers(at)?;
        match sums.get_mut(i) {
            None => sums.push(grad.into_owned()),
            Some(sum) if first => copy_f32(engine.pool(), sum, &grad),
            Some(sum) => add_f32(engine.pool(), engine.isa(), sum, &grad),
        }
    }
    Ok(())
}
