//! `bench`: how fast a model runs here, and how far that is from what the machine can do.
//!
//! Times are of whole runs, inputs to outputs. Operations are counted for real tokens only: what
//! padding would cost is not counted as work. Variants are measured in turn, round by round, since
//! a machine that is shared is slower now and faster then. A variant may be another model, and may
//! run several times at once (instances with threads of their own, on the same weights). Threads
//! are not bound to cores: that is left to the system.

mod inputs;
mod instances;
mod lengths;
mod page;
mod random;
mod rounds;
mod subject;

use std::path::PathBuf;
use std::time::Instant;

use frazil_bert::Head;
use frazil_kernels::par::Pool;
use frazil_kernels::{Isa, peak};
use frazil_runtime::{Engine, Error as RunError, StepTime};
use serde::Serialize;

pub use inputs::batch;
pub use instances::share;
pub(crate) use instances::{crowd, instances};
pub use lengths::Lengths;
pub use random::random_model;
pub(crate) use rounds::{together, wall};

use crate::source::GraphOptions;
use crate::{Error, Result};
use rounds::Times;
use subject::Subject;

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
    /// Rounds that are not counted.
    pub warmup: usize,
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
    /// Its model, if it has one of its own.
    pub model: Option<Model>,
    /// Its instructions, if not the best ones.
    pub isa: Option<Isa>,
    /// Threads of an instance, if not one for each core.
    pub threads: Option<usize>,
    /// How many run at the same time; 0 is 1.
    pub instances: usize,
    /// Whether padding is computed.
    pub padded: bool,
    /// Whether linear layers are computed in bytes, by the ranges of a few made-up sequences.
    pub int8: bool,
    /// Whether they must not be.
    pub f32: bool,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The model; where variants have their own, that of the first.
    pub model: String,
    /// Sequences in a batch.
    pub batch: usize,
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
    /// What should be known of the figures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
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
    /// Its model.
    pub model: String,
    /// Whether linear layers are computed in bytes.
    pub int8: bool,
    /// How fast it is.
    #[serde(flatten)]
    pub speed: Speed,
    /// How many times as much a second as the first variant, by the median of the rounds' ratios.
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
    /// Threads of an instance.
    pub threads: usize,
    /// How many ran at the same time.
    pub instances: usize,
    /// Milliseconds that an instance took for all sequences once: half of the times it took less.
    pub median_ms: f64,
    /// Nine of ten times it took less.
    pub p90_ms: f64,
    /// The fastest.
    pub min_ms: f64,
    /// Milliseconds of one batch, the time to an answer: half of them took less.
    pub batch_median_ms: f64,
    /// 99 of 100 batches took less.
    pub batch_p99_ms: f64,
    /// `median_ms` of each instance, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instance_median_ms: Vec<f64>,
    /// Sequences a second of all instances together, by the median of the rounds.
    pub sequences_per_s: f64,
    /// Tokens a second of all instances together.
    pub tokens_per_s: f64,
    /// Operations on real tokens, in 10⁹ a second, of all instances together.
    pub gflops: f64,
    /// The same as a part of what the machine can do with so many threads.
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

/// Says what to measure instead where a model has too few positions for the longest sequence.
fn too_long(error: Error, longest: usize) -> Error {
    let Error::Run(cause) = &error else { return error };
    let RunError::Operands { reason, .. } = &**cause else { return error };
    let most = reason.strip_suffix(" positions").and_then(|text| text.rsplit(' ').next());
    match most.and_then(|most| most.parse::<usize>().ok()) {
        Some(most) if most < longest => Error::Usage {
            what: error.to_string(),
            hint: format!(
                "give `--seq` at most {most}, or `--lengths lognormal:{},0.3,{most}`",
                most / 2
            ),
        },
        _ => error,
    }
}

/// Measures. Variants without a model of their own are of `model`.
pub fn bench(model: &Model, options: &Options) -> Result<Report> {
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
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let mut prepared =
        prepare(model, options, &lengths).map_err(|error| too_long(error, longest))?;
    let mut turn = |counts: bool| -> Result<()> {
        for variant in &mut prepared.variants {
            let batches = &prepared.subjects[variant.subject].batches;
            let round = variant.times.round(&variant.engines, batches, counts);
            round.map_err(|error| too_long(error, longest))?;
        }
        Ok(())
    };
    for _ in 0..options.warmup {
        turn(false)?;
    }
    let started = Instant::now();
    let more = |round: usize| match options.iterations {
        Some(wanted) => round < wanted.max(1),
        None => round < 5 || (started.elapsed().as_secs_f64() < 5.0 && round < 200),
    };
    let mut round = 0;
    while more(round) {
        turn(true)?;
        round += 1;
    }
    for variant in &mut prepared.variants {
        for inputs in &prepared.subjects[variant.subject].batches {
            let steps = variant.engines[0].profile(inputs)?;
            variant.operations += steps.iter().map(|step| step.operations).sum::<f64>();
            add(&mut variant.profile, steps);
        }
    }
    // Before the peaks are measured, which takes memory of its own.
    let (resident_mb, peak_rss_mb) = (status_mb("VmRSS:"), status_mb("VmHWM:"));
    let mut peaks: Vec<Peaks> = Vec::new();
    let mut measured: Vec<Measured> = Vec::new();
    for (variant, how) in prepared.variants.iter().zip(&options.variants) {
        let (isa, threads) = (variant.engines[0].isa(), variant.engines[0].threads());
        let threads = (threads * variant.engines.len()).min(Pool::MOST);
        let known = peaks.iter().find(|peak| peak.isa == isa.name() && peak.threads == threads);
        let peak = known.cloned().unwrap_or_else(|| measure_peaks(isa, threads));
        if known.is_none() {
            peaks.push(peak.clone());
        }
        let first = &prepared.variants[0].times.costs;
        let ratios = first.iter().zip(&variant.times.costs).map(|(first, this)| first / this);
        let engine = &variant.engines[0];
        let slow = engine.slow().iter().map(|(node, why)| format!("`{node}`: {why}"));
        measured.push(Measured {
            name: how.name.clone(),
            model: prepared.subjects[variant.subject].name.clone(),
            int8: engine.is_int8(),
            speed: variant.speed(&peak, &lengths),
            speedup: quantile(ratios.collect(), 0.5),
            prepare_seconds: variant.prepare_seconds,
            slow: slow.collect(),
            profile: if options.profile { variant.profile.clone() } else { Vec::new() },
        });
    }
    let Some(first) = measured.first() else {
        return Err(Error::Usage {
            what: "there is no variant to measure".into(),
            hint: "name one, such as `packed`".into(),
        });
    };
    let mut notes: Vec<String> =
        measured.iter().filter_map(|m| crowd(m.speed.instances, m.speed.threads)).collect();
    notes.dedup();
    Ok(Report {
        model: first.model.clone(),
        batch: options.batch.min(lengths.len()),
        sequences: lengths.len(),
        tokens: lengths.iter().sum(),
        iterations: prepared.variants[0].times.costs.len(),
        peaks,
        first: first.speed.clone(),
        notes,
        variants: measured,
        resident_mb,
        peak_rss_mb,
    })
}

/// Everything that is run.
struct Prepared {
    subjects: Vec<Subject>,
    variants: Vec<Running>,
}

/// A variant that is run.
struct Running {
    subject: usize,
    /// One for each instance.
    engines: Vec<Engine>,
    prepare_seconds: f64,
    times: Times,
    /// Of a pass.
    operations: f64,
    profile: Vec<StepSum>,
}

fn prepare(model: &Model, options: &Options, lengths: &[usize]) -> Result<Prepared> {
    // Every model once, in the forms that variants want of it.
    let mut models: Vec<(&Model, [bool; 2])> = Vec::new();
    let mut subject_of = Vec::new();
    for variant in &options.variants {
        let wanted = variant.model.as_ref().unwrap_or(model);
        let at = models.iter().position(|(known, _)| known.is(wanted)).unwrap_or(models.len());
        if at == models.len() {
            models.push((wanted, [false; 2]));
        }
        models[at].1[usize::from(variant.int8)] = true;
        subject_of.push((at, variant.int8));
    }
    let open =
        |(model, forms): &(&Model, [bool; 2])| Subject::open(model, lengths, options.batch, *forms);
    let mut subjects: Vec<Subject> = models.iter().map(open).collect::<Result<_>>()?;
    let mut variants = Vec::new();
    for (i, variant) in options.variants.iter().enumerate() {
        let subject = subject_of[i].0;
        let last = !subject_of[i + 1..].contains(&subject_of[i]);
        let (engines, prepare_seconds) = subjects[subject].engines(variant, last)?;
        let (times, profile) = (Times::default(), Vec::new());
        variants.push(Running {
            subject,
            engines,
            prepare_seconds,
            times,
            operations: 0.0,
            profile,
        });
    }
    Ok(Prepared { subjects, variants })
}

impl Model {
    /// Whether it is the same one: of a file, the path tells.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File(a, _), Self::File(b, _)) => a == b,
            (Self::Random(a, head), Self::Random(b, other)) => a == b && head == other,
            _ => false,
        }
    }
}

impl Running {
    fn speed(&self, peak: &Peaks, lengths: &[usize]) -> Speed {
        let Times { passes, batches, costs, .. } = &self.times;
        let engine = &self.engines[0];
        let all = || passes.concat();
        let cost = quantile(costs.clone(), 0.5);
        let gflops = self.operations / cost / 1e9;
        let limit = if engine.is_int8() { peak.int8_gops } else { peak.f32_gflops };
        let median = |times: &Vec<f64>| quantile(times.clone(), 0.5) * 1e3;
        let tokens: usize = lengths.iter().sum();
        Speed {
            isa: engine.isa().name().into(),
            threads: engine.threads(),
            instances: self.engines.len(),
            median_ms: median(&all()),
            p90_ms: quantile(all(), 0.9) * 1e3,
            min_ms: quantile(all(), 0.0) * 1e3,
            batch_median_ms: median(batches),
            batch_p99_ms: quantile(batches.clone(), 0.99) * 1e3,
            instance_median_ms: match passes.as_slice() {
                [_] => Vec::new(),
                several => several.iter().map(median).collect(),
            },
            sequences_per_s: lengths.len() as f64 / cost,
            tokens_per_s: tokens as f64 / cost,
            gflops,
            percent_of_peak: 100.0 * gflops / limit,
        }
    }
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
