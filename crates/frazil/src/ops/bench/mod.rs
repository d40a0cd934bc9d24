//! `bench`: how fast a model runs here, and how far that is from what the machine can do.
//!
//! Times are of whole runs, inputs to outputs. Operations are counted for real tokens only: what
//! padding would cost is not counted as work. Variants are measured in turn, round by round, since
//! a machine that is shared is slower now and faster then.

mod lengths;
mod random;

use std::path::PathBuf;
use std::time::Instant;

use frazil_bert::Head;
use frazil_graph::Graph;
use frazil_kernels::par::Pool;
use frazil_kernels::{Isa, peak};
use frazil_runtime::{Engine, EngineOptions, Inputs, StepTime};
use frazil_tensor::{DType, Tensor};
use serde::Serialize;

pub use lengths::Lengths;
pub use random::random_model;

use super::compile::{self, Compiled};
use super::minmax;
use super::role::{self, InputRole, Role};
use crate::source::{GraphOptions, open_graph};
use crate::{Error, Result};

/// What is measured.
#[derive(Clone, Debug)]
pub enum Model {
    /// A model in a file.
    File(PathBuf, Box<GraphOptions>),
    /// Made-up weights for `bert-base`, `bert-large` or a configuration, under a head.
    Random(String, Head),
}

/// How it is measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// Sequences in a batch.
    pub batch: usize,
    /// Length of all sequences, where `lengths` does not say.
    pub seq: usize,
    /// Sequences of different lengths, `batch` at a time.
    pub lengths: Option<Lengths>,
    /// How many sequences `lengths` draws.
    pub sequences: usize,
    /// Rounds; as many as fit in a few seconds, if not given.
    pub iterations: Option<usize>,
    /// What to compare, at least one.
    pub variants: Vec<Variant>,
    /// Whether each step is timed.
    pub profile: bool,
}

/// One way to run the model.
#[derive(Clone, Debug, Default)]
pub struct Variant {
    /// What it is called.
    pub name: String,
    /// Its instructions, if not the best ones.
    pub isa: Option<Isa>,
    /// Its threads, if not one for each core.
    pub threads: Option<usize>,
    /// Whether padding is computed.
    pub padded: bool,
    /// Whether linear layers are computed in bytes, by the ranges of a few made-up sequences.
    pub int8: bool,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The model.
    pub model: String,
    /// Sequences of a round.
    pub sequences: usize,
    /// Tokens of a round that are no padding.
    pub tokens: usize,
    /// Rounds.
    pub iterations: usize,
    /// What the machine can do.
    pub peaks: Vec<Peaks>,
    /// The first variant once more, so that a program that measures one finds it here.
    #[serde(flatten)]
    pub first: Speed,
    /// Each variant, in the order in which they were given.
    pub variants: Vec<Measured>,
    /// Resident memory of the process between two rounds, in MB: the packed weights and the memory
    /// of the runs.
    pub resident_mb: f64,
    /// Largest resident memory of the process, in MB, with all that it took to prepare.
    pub peak_rss_mb: f64,
}

/// What the machine can do with some instructions.
#[derive(Clone, Debug, Serialize)]
pub struct Peaks {
    /// The instructions.
    pub isa: String,
    /// Threads.
    pub threads: usize,
    /// Multiplications and additions of float32, in 10⁹ a second.
    pub f32_gflops: f64,
    /// Products of bytes, in 10⁹ a second.
    pub int8_gops: f64,
    /// Reading memory, in GB/s.
    pub memory_gbs: f64,
}

/// The speed of a variant.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// What it is called.
    pub name: String,
    /// Whether linear layers are computed in bytes.
    pub int8: bool,
    /// How fast it is.
    #[serde(flatten)]
    pub speed: Speed,
    /// How many times as fast as the first variant, by the median of the rounds' ratios.
    pub speedup: f64,
    /// Seconds to prepare the model.
    pub prepare_seconds: f64,
    /// Nodes that run by plain kernels, and why.
    pub slow: Vec<String>,
    /// Time by kind of step, if asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profile: Vec<StepSum>,
}

/// How fast something ran.
#[derive(Clone, Debug, Serialize)]
pub struct Speed {
    /// The instructions.
    pub isa: String,
    /// Threads.
    pub threads: usize,
    /// Milliseconds of a round: half of the rounds took less.
    pub median_ms: f64,
    /// Nine of ten rounds took less.
    pub p90_ms: f64,
    /// The fastest round.
    pub min_ms: f64,
    /// Sequences a second, by the median.
    pub sequences_per_s: f64,
    /// Tokens a second, by the median.
    pub tokens_per_s: f64,
    /// Operations on real tokens, in 10⁹ a second, by the median.
    pub gflops: f64,
    /// The same as a part of what the machine can do.
    pub percent_of_peak: f64,
}

/// What the steps of one kind took together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StepSum {
    /// What they do.
    pub kind: String,
    /// How many.
    pub steps: usize,
    /// Seconds.
    pub seconds: f64,
    /// Operations that they must make.
    pub operations: f64,
    /// Bytes that they must read and write.
    pub bytes: f64,
}

/// Measures.
pub fn bench(model: &Model, options: &Options) -> Result<Report> {
    let (name, source) = open(model)?;
    let roles = role::roles(source.graph())?;
    let lengths = match &options.lengths {
        Some(lengths) => lengths.draw(options.sequences)?,
        None => vec![options.seq; options.batch],
    };
    if options.batch == 0 || lengths.contains(&0) || lengths.is_empty() {
        return Err(Error::Usage {
            what: "there is nothing to run".into(),
            hint: "give a batch and a length above 0".into(),
        });
    }
    let batches: Vec<Inputs> = lengths
        .chunks(options.batch)
        .map(|lengths| batch(&roles, lengths))
        .collect::<Result<_>>()?;
    let mut sources = [Some(source), None];
    if options.variants.iter().any(|variant| variant.int8) {
        sources[1] =
            sources[0].as_ref().map(|source| source.in_bytes(&roles, &lengths)).transpose()?;
    }
    let mut engines = Vec::new();
    for (i, variant) in options.variants.iter().enumerate() {
        let start = Instant::now();
        let (isa, threads, packed) = (variant.isa, variant.threads, !variant.padded);
        let how = EngineOptions { isa, threads, packed, weights: None };
        let source = &mut sources[usize::from(variant.int8)];
        let again = options.variants[i + 1..].iter().any(|later| later.int8 == variant.int8);
        let last = if again { None } else { source.take() };
        let engine = match (last, source) {
            // Nobody needs it any more: each weight is let go when it is packed.
            (Some(Source::Graph(graph)), _) => Engine::from_graph(graph, &how)?,
            (Some(source), _) => source.engine(&how)?,
            (None, Some(source)) => source.engine(&how)?,
            (None, None) => break,
        };
        engines.push((engine, start.elapsed().as_secs_f64()));
    }
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); engines.len()];
    let mut profiles: Vec<Vec<StepSum>> = vec![Vec::new(); engines.len()];
    let mut operations = vec![0.0; engines.len()];
    let started = Instant::now();
    let mut round = 0;
    let more = |round: usize| match options.iterations {
        Some(wanted) => round <= wanted,
        None => round <= 5 || (started.elapsed().as_secs_f64() < 5.0 && round <= 200),
    };
    while more(round) {
        for (i, (engine, _)) in engines.iter().enumerate() {
            let start = Instant::now();
            for inputs in &batches {
                engine.run(inputs)?;
            }
            // The first round warms up: memory grows, threads start.
            if round > 0 {
                times[i].push(start.elapsed().as_secs_f64());
            }
        }
        round += 1;
    }
    for (i, (engine, _)) in engines.iter().enumerate() {
        for inputs in &batches {
            let steps = engine.profile(inputs)?;
            operations[i] += steps.iter().map(|step| step.operations).sum::<f64>();
            add(&mut profiles[i], steps);
        }
    }
    // Before the peaks are measured, which takes memory of its own.
    let (resident_mb, peak_rss_mb) = (status_mb("VmRSS:"), status_mb("VmHWM:"));
    let tokens: usize = lengths.iter().sum();
    let mut peaks: Vec<Peaks> = Vec::new();
    let mut measured = Vec::new();
    for (i, (engine, prepare_seconds)) in engines.iter().enumerate() {
        let (isa, threads) = (engine.isa(), engine.threads());
        let known = peaks.iter().find(|peak| peak.isa == isa.name() && peak.threads == threads);
        let peak = known.cloned().unwrap_or_else(|| measure_peaks(isa, threads));
        if known.is_none() {
            peaks.push(peak.clone());
        }
        let ratios = times[0].iter().zip(&times[i]).map(|(first, this)| first / this);
        let speedup = quantile(ratios.collect(), 0.5);
        let median = quantile(times[i].clone(), 0.5);
        let gflops = operations[i] / median / 1e9;
        let limit = if engine.is_int8() { peak.int8_gops } else { peak.f32_gflops };
        let speed = Speed {
            isa: isa.name().into(),
            threads,
            median_ms: median * 1e3,
            p90_ms: quantile(times[i].clone(), 0.9) * 1e3,
            min_ms: quantile(times[i].clone(), 0.0) * 1e3,
            sequences_per_s: lengths.len() as f64 / median,
            tokens_per_s: tokens as f64 / median,
            gflops,
            percent_of_peak: 100.0 * gflops / limit,
        };
        measured.push(Measured {
            name: options.variants[i].name.clone(),
            int8: engine.is_int8(),
            speed,
            speedup,
            prepare_seconds: *prepare_seconds,
            slow: engine.slow().iter().map(|(node, why)| format!("`{node}`: {why}")).collect(),
            profile: if options.profile { std::mem::take(&mut profiles[i]) } else { Vec::new() },
        });
    }
    let Some(first) = measured.first().map(|first| first.speed.clone()) else {
        return Err(Error::Usage {
            what: "there is no variant to measure".into(),
            hint: "name one, such as `packed`".into(),
        });
    };
    Ok(Report {
        model: name,
        sequences: lengths.len(),
        tokens,
        iterations: times[0].len(),
        peaks,
        first,
        variants: measured,
        resident_mb,
        peak_rss_mb,
    })
}

/// A model that is open.
enum Source {
    Graph(Graph),
    Compiled(Compiled),
}

impl Source {
    fn graph(&self) -> &Graph {
        match self {
            Source::Graph(graph) => graph,
            Source::Compiled(compiled) => &compiled.graph,
        }
    }

    fn engine(&self, options: &EngineOptions) -> Result<Engine> {
        match self {
            Source::Graph(graph) => Ok(Engine::new(graph, options)?),
            Source::Compiled(compiled) => compiled.engine(options),
        }
    }

    /// The model with its linear layers in bytes, by the ranges of made-up sequences if it is not
    /// compiled.
    fn in_bytes(&self, roles: &[InputRole], lengths: &[usize]) -> Result<Self> {
        match self {
            Source::Graph(graph) => {
                let mut graph = graph.clone();
                minmax::by_lengths(&mut graph, roles, lengths)?;
                Ok(Source::Graph(graph))
            }
            Source::Compiled(compiled) if compiled.is_int8() => {
                Ok(Source::Compiled(compiled.clone()))
            }
            Source::Compiled(_) => Err(Error::Usage {
                what: "the compiled model has its weights as float32 only".into(),
                hint: "compile it with `--int8`".into(),
            }),
        }
    }
}

fn open(model: &Model) -> Result<(String, Source)> {
    Ok(match model {
        Model::File(path, _) if compile::is_compiled(path) => {
            (path.display().to_string(), Source::Compiled(Compiled::open(path)?))
        }
        Model::File(path, options) => {
            (path.display().to_string(), Source::Graph(open_graph(path, options)?.graph))
        }
        Model::Random(size, head) => {
            (format!("{size}, made-up weights"), Source::Graph(random_model(size, *head)?))
        }
    })
}

/// Ids, mask and segments for sequences of these lengths, padded to the longest.
pub fn batch(roles: &[InputRole], lengths: &[usize]) -> Result<Inputs> {
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let shape = [lengths.len(), longest];
    let mut inputs = Inputs::new();
    for input in roles {
        let limit = input.limit.unwrap_or(2).max(1) as i64;
        let real = |row: usize, column: usize| column < lengths[row];
        let value = |row: usize, column: usize| match input.role {
            // Anything in the vocabulary: how it is chosen does not matter.
            Role::Ids => (row * 7919 + column * 104_729 + 1) as i64 % limit,
            Role::Mask => i64::from(real(row, column)),
            Role::Segments => i64::from(2 * column >= lengths[row]) % limit,
            Role::Positions => column as i64,
            Role::Other => 0,
        };
        let padding = |row, column| real(row, column) || input.role == Role::Positions;
        let values: Vec<i64> = (0..shape[0])
            .flat_map(|row| (0..shape[1]).map(move |column| (row, column)))
            .map(|(row, column)| if padding(row, column) { value(row, column) } else { 0 })
            .collect();
        let known = |dim: &frazil_graph::Dim| dim.as_known().is_some();
        let fits = input.dims.as_ref().is_none_or(|dims| {
            dims.len() == 2
                && dims.iter().zip(shape).all(|(dim, extent)| !known(dim) || dim.is(extent as i64))
        });
        if input.role == Role::Other || !fits {
            return Err(Error::Usage {
                what: format!("input `{}` does not take {} x {longest}", input.name, lengths.len()),
                hint: "make the batch and the length dynamic with `frazil reshape`, or give the \
                       model's own with `--batch` and `--seq`; a model that predicts words needs \
                       `--head encoder`"
                    .into(),
            });
        }
        let tensor = Tensor::from_vec(shape, values)?;
        let tensor = match input.dtype {
            DType::I64 => tensor,
            DType::I32 => {
                let narrow = tensor.values::<i64>()?.iter().map(|&x| x as i32).collect();
                Tensor::from_vec(shape, narrow)?
            }
            other => tensor.cast(other)?,
        };
        inputs.insert(input.name.clone(), tensor);
    }
    Ok(inputs)
}

/// Adds up the steps of one kind.
fn add(sums: &mut Vec<StepSum>, steps: Vec<StepTime>) {
    for step in steps {
        let at = sums.iter().position(|sum| sum.kind == step.kind).unwrap_or_else(|| {
            sums.push(StepSum { kind: step.kind.clone(), ..StepSum::default() });
            sums.len() - 1
        });
        let sum = &mut sums[at];
        sum.steps += 1;
        sum.seconds += step.seconds;
        sum.operations += step.operations;
        sum.bytes += step.bytes;
    }
    sums.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
}

fn measure_peaks(isa: Isa, threads: usize) -> Peaks {
    let pool = Pool::new(threads);
    // Several times the caches of today's machines.
    let memory = vec![1.0; 128 << 20 >> 2];
    Peaks {
        isa: isa.name().into(),
        threads,
        f32_gflops: peak::multiply_f32(&pool, isa),
        int8_gops: peak::multiply_i8(&pool, isa),
        memory_gbs: peak::read(&pool, isa, &memory),
    }
}

/// The value below which that part of all values lies.
fn quantile(mut values: Vec<f64>, part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = part * (values.len().saturating_sub(1)) as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    match (values.get(low), values.get(high)) {
        (Some(low), Some(high)) => low + (high - low) * at.fract(),
        _ => f64::NAN,
    }
}

/// What the system says of this process's memory; 0 where it does not.
fn status_mb(key: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let kb = line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse::<f64>().ok());
    kb.unwrap_or(0.0) / 1e3
}
