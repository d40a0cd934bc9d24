//! The fast path: a graph becomes a program over packed rows, and workers run it.
//!
//! [`Engine::new`] raises the graph, drops padding, packs the weights for the CPU at hand and plans
//! the memory; [`Engine::run`] takes a worker, or makes one. An engine is cheap to clone, and its
//! clones share the weights: as many batches run at a time as there are callers.
//!
//! [`crate::Session`] is the specification of every number that comes out.

mod block;
mod lower;
mod memory;
mod program;
mod steps;
mod survey;
mod train;
mod weights;
mod worker;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use frazil_graph::Graph;
use frazil_graph::pass::{self, Fusions, Report};
use frazil_kernels::Isa;
use frazil_kernels::par::Pool;

use crate::plan::Variables;
use crate::{Error, Inputs, Result, Run};
use program::Program;
pub use train::Parameters;
use weights::{Linear, LinearI8};
pub use worker::{OutputRows, Outputs, StepTime, Watched, Worker};

/// How an engine is made.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The instructions to use; `FRAZIL_ISA` and the machine decide otherwise.
    pub isa: Option<Isa>,
    /// Threads; `FRAZIL_THREADS`, or one for each core, otherwise.
    pub threads: Option<usize>,
    /// Whether padding is dropped. Outputs at padding positions are then 0.
    pub packed: bool,
    /// Weights that were packed before ([`Engine::packed_weights`]), for the same instructions. The
    /// graph may have variables in place of the constants that they took in.
    pub weights: Option<PackedWeights>,
}

/// Packed weights by the product that reads them: its node, or, of several that are computed as one,
/// the nodes joined by ` + `.
pub type PackedWeights = HashMap<String, Packed>;

/// The packed weights of a product: a part of a file that is mapped.
#[derive(Clone, Debug)]
pub struct Packed {
    /// The file.
    pub file: Bytes,
    /// Where they lie in it.
    pub range: Range<usize>,
}

/// The packed weights of one product, to be stored.
#[derive(Clone, Copy, Debug)]
pub struct PackedPart<'a> {
    /// The node of the product, or those of several that are computed as one.
    pub node: &'a str,
    /// The weights.
    pub bytes: &'a [u8],
    /// Whether they are bytes, not float32.
    pub int8: bool,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self { isa: None, threads: None, packed: true, weights: None }
    }
}

/// A graph that is ready to run fast.
#[derive(Clone)]
pub struct Engine {
    program: Arc<Program>,
    pool: Arc<Pool>,
    idle: Arc<Mutex<Vec<Worker>>>,
}

impl Engine {
    /// Prepares a graph whose weights are constants.
    pub fn new(graph: &Graph, options: &EngineOptions) -> Result<Self> {
        Self::from_graph(graph.clone(), options)
    }

    /// The same, out of a graph that nobody needs any more: each weight is let go when it is packed,
    /// so that the model never sits in memory twice.
    pub fn from_graph(graph: Graph, options: &EngineOptions) -> Result<Self> {
        if let Some(isa) = options.isa.filter(|isa| !isa.is_available()) {
            return Err(Error::NoIsa { isa: isa.name() });
        }
        Self::prepare(graph, options)
    }

    /// The same, also for instructions that this machine lacks: not to run, but to have its weights
    /// packed.
    pub fn prepare(mut graph: Graph, options: &EngineOptions) -> Result<Self> {
        graph.check()?;
        raise(&mut graph, options.packed)?;
        let variables = match options.weights {
            Some(_) => Variables::Elsewhere,
            None => Variables::Refused,
        };
        Self::make(graph, options, variables)
    }

    /// An engine for a graph whose variables are weights that change: they are given at every run
    /// ([`Worker::run_with`]), in the order of [`Parameters`]. The graph is run as it is: raise it
    /// before gradients are added.
    pub fn for_training(graph: Graph, options: &EngineOptions) -> Result<Self> {
        graph.check()?;
        if let Some(isa) = options.isa.filter(|isa| !isa.is_available()) {
            return Err(Error::NoIsa { isa: isa.name() });
        }
        Self::make(graph, options, Variables::Given)
    }

    fn make(graph: Graph, options: &EngineOptions, variables: Variables) -> Result<Self> {
        let isa = match options.isa {
            Some(isa) => isa,
            None => Isa::chosen().map_err(|error| Error::UnknownIsa { name: error.name })?,
        };
        let threads = match options.threads {
            Some(threads) => threads.max(1),
            None => default_threads()?,
        };
        let weights = options.weights.as_ref();
        let program = Arc::new(lower::lower(graph, isa, weights, variables)?);
        let pool = Arc::new(Pool::new(threads));
        Ok(Self { program, pool, idle: Arc::default() })
    }

    /// Another one of the same program and weights, with threads of its own: it runs at the same time
    /// without waiting for the first.
    pub fn instance(&self) -> Self {
        let pool = Arc::new(Pool::new(self.pool.threads()));
        Self { program: Arc::clone(&self.program), pool, idle: Arc::default() }
    }

    /// Computes the outputs.
    pub fn run(&self, inputs: &Inputs) -> Result<Run> {
        self.with_worker(|worker| {
            let outputs = worker.run(inputs)?;
            Ok(Run { outputs: outputs.tensors()?, notes: outputs.notes().to_vec() })
        })
    }

    /// Runs a batch and shows what the sites of the graph read, in the order of the run: for graphs
    /// that [`pass::quantize::watch`] has marked. Padding is not among the rows where the engine drops
    /// it.
    pub fn watch(&self, inputs: &Inputs, see: &mut dyn FnMut(Watched<'_>)) -> Result<()> {
        self.with_worker(|worker| worker.watch(inputs, see))
    }

    /// Lends a worker that is idle, or a new one.
    fn with_worker<T>(&self, work: impl FnOnce(&mut Worker) -> Result<T>) -> Result<T> {
        if !self.program.isa.is_available() {
            return Err(Error::NoIsa { isa: self.program.isa.name() });
        }
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let worker = idle().pop();
        let mut worker = worker.unwrap_or_else(|| self.worker());
        let done = work(&mut worker);
        idle().push(worker);
        done
    }

    /// Memory for runs of one's own.
    pub fn worker(&self) -> Worker {
        Worker::new(Arc::clone(&self.program), Arc::clone(&self.pool))
    }

    /// Computes the outputs and tells what each step took.
    pub fn profile(&self, inputs: &Inputs) -> Result<Vec<StepTime>> {
        self.with_worker(|worker| worker.profile(inputs))
    }

    /// The graph as it is run: raised and packed.
    pub fn graph(&self) -> &Graph {
        &self.program.graph
    }

    /// The packed weights of every product.
    pub fn packed_weights(&self) -> impl Iterator<Item = PackedPart<'_>> {
        let numbers = self.program.linears.iter().map(Linear::stored);
        numbers.chain(self.program.linears_i8.iter().map(LinearI8::stored))
    }

    /// Whether any product is computed in bytes.
    pub fn is_int8(&self) -> bool {
        !self.program.linears_i8.is_empty()
    }

    /// Constants of the graph that live in packed weights only.
    pub fn absorbed(&self) -> &[String] {
        &self.program.absorbed
    }

    /// How long a sequence may be, where the graph's embeddings tell.
    pub fn max_positions(&self) -> Option<usize> {
        let rows = |step: &program::Step| match &step.work {
            program::Work::Embed(embed) => Some(embed.positions.rows),
            _ => None,
        };
        self.program.steps.iter().filter_map(rows).min()
    }

    /// The instructions in use.
    pub fn isa(&self) -> Isa {
        self.program.isa
    }

    /// The threads, for what is computed beside.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Nodes that run by plain kernels though their kind has a fast one, and why.
    pub fn slow(&self) -> &[(String, String)] {
        &self.program.slow
    }
}

/// Everything that is done to a graph before it runs fast.
pub fn raise(graph: &mut Graph, packed: bool) -> Result<Report> {
    let mut report = pass::fuse(graph, &Fusions::all())?;
    report.extend(pass::fold(graph)?);
    if packed {
        report.extend(pass::pack_rows(graph)?);
        report.extend(pass::demand_rows(graph)?);
    }
    graph.prune();
    Ok(report)
}

/// Threads where nobody says how many: `FRAZIL_THREADS`, or one for each core.
pub fn default_threads() -> Result<usize> {
    match std::env::var("FRAZIL_THREADS") {
        Ok(given) if !given.is_empty() => match given.parse() {
            Ok(threads) if threads > 0 => Ok(threads),
            _ => Err(Error::Threads { given }),
        },
        _ => Ok(std::thread::available_parallelism().map_or(1, usize::from)),
    }
}
