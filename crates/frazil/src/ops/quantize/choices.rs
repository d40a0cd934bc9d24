//! What the sites of a graph offer: the settings that each can have, and what bytes save there.
//!
//! Savings of time are counted, not measured: operations over rates that are usual for the
//! instructions at hand. So a search orders operations the same way in every run; what a model really
//! takes is measured trial by trial.

use frazil_graph::pass::quantize::{Site, SiteKind};
use frazil_graph::{Graph, infer};
use frazil_kernels::Isa;
use frazil_tune::config::{Approach, Part, Quantization};
use frazil_tune::{Activation, Algorithm, Choice, Granularity, Op, OpKind, Precision};

use crate::Result;

/// Which kinds of operations may be in bytes besides linear layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    /// The two products of attentions.
    pub attention: bool,
    /// Tables that rows are looked up in.
    pub tables: bool,
}

/// The sequences that savings are counted for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    pub rows: f64,
    /// The mean length of a sequence, seen by a row.
    pub length: f64,
    pub isa: Isa,
}

/// Multiplications and additions of float32 in a microsecond: one core of the last years.
const FLOPS_PER_US: f64 = 50e3;

/// How many times faster products of bytes are.
fn faster(isa: Isa) -> f64 {
    match isa {
        Isa::Avx512Vnni => 3.0,
        Isa::Avx512 | Isa::Avx2 => 1.7,
        Isa::Scalar => 1.1,
    }
}

/// What each site can be, narrowed to what was asked for by kind: what was asked for by setting is
/// [`Space`](frazil_tune::Space)'s to narrow.
pub(super) fn ops(
    graph: &Graph,
    sites: &[Site],
    asked: &Quantization,
    kinds: Kinds,
    workload: Workload,
) -> Result<Vec<Op>> {
    let facts = infer(graph)?;
    let saved = |operations: f64| operations / FLOPS_PER_US * (1.0 - 1.0 / faster(workload.isa));
    let mut ops = Vec::with_capacity(sites.len());
    for site in sites {
        let settings = Settings::new(asked, &site.name);
        let (kind, saves_us, saves_bytes, choices) = match site.kind {
            SiteKind::Linear { k, n, head, .. } => {
                let choices = match head && !wants_bytes(asked, &site.name) {
                    true => vec![Choice::F32],
                    false => settings.linear(),
                };
                let operations = 2.0 * k as f64 * n as f64 * workload.rows;
                let bytes = (k * n * 3).saturating_sub(4 * n);
                (OpKind::Linear, saved(operations), bytes, choices)
            }
            SiteKind::Attention { .. } => {
                let dims = site.observe.first().and_then(|&value| facts[value].dims.as_ref());
                let width = dims.and_then(|dims| dims.last()?.as_known()).unwrap_or(0) as f64;
                let choices = match kinds.attention || wants_bytes(asked, &site.name) {
                    true => settings.attention(),
                    false => vec![Choice::F32],
                };
                let operations = 4.0 * workload.rows * workload.length * width;
                // A smaller part of it is products than in a linear layer.
                (OpKind::Attention, saved(operations) / 2.0, 0, choices)
            }
            SiteKind::Table { rows, width, .. } => {
                let choices = match kinds.tables || wants_bytes(asked, &site.name) {
                    true => vec![Choice::INT8, Choice::F32],
                    false => vec![Choice::F32],
                };
                let bytes = (rows * width * 3).saturating_sub(4 * rows);
                // Rows of a quarter of the size are fetched, in no time either way.
                (OpKind::Table, 0.0, bytes, choices)
            }
        };
        let (name, saves_bytes) = (site.name.clone(), saves_bytes as u64);
        ops.push(Op { name, kind, saves_us, saves_bytes, choices });
    }
    Ok(ops)
}

/// Is it asked for by name to be in bytes?
fn wants_bytes(asked: &Quantization, name: &str) -> bool {
    let int8 = |part: &Part| {
        part.precision.as_ref().is_some_and(|precisions| precisions.contains(&Precision::Int8))
    };
    asked.op_wise.iter().any(|wish| {
        wish.names.matches(name) && (int8(&wish.wish.weight) || int8(&wish.wish.activation))
    })
}

/// An operation's settings in the order in which they are wanted: ours, and those that somebody named.
struct Settings {
    activations: Vec<Activation>,
    granularities: Vec<Granularity>,
    weights: Vec<Algorithm>,
}

impl Settings {
    fn new(asked: &Quantization, op: &str) -> Self {
        let meant = || asked.op_wise.iter().filter(|wish| wish.names.matches(op));
        let wishes = || meant().map(|wish| &wish.wish);
        let model = &asked.model_wise;
        let algorithms = named(
            &model.activation.algorithm,
            wishes().map(|wish| &wish.activation.algorithm),
            // Rare large numbers matter in BERTs: the more is cut off, the later it is tried.
            &[
                Algorithm::Mse,
                Algorithm::MinMax,
                Algorithm::MovingAverage,
                Algorithm::Percentile(99.99),
                Algorithm::Kl,
            ],
        );
        let mut activations: Vec<Activation> =
            algorithms.into_iter().map(Activation::Static).collect();
        let place = if asked.approach == Approach::Dynamic { 0 } else { 1 };
        activations.insert(place.min(activations.len()), Activation::Dynamic);
        Self {
            activations,
            granularities: named(
                &model.weight.granularity,
                wishes().map(|wish| &wish.weight.granularity),
                &[Granularity::Channel],
            ),
            weights: named(
                &model.weight.algorithm,
                wishes().map(|wish| &wish.weight.algorithm),
                &[Algorithm::MinMax],
            ),
        }
    }

    fn linear(&self) -> Vec<Choice> {
        let mut choices = Vec::new();
        for &granularity in &self.granularities {
            for &weight in &self.weights {
                for &activation in &self.activations {
                    let precision = Precision::Int8;
                    choices.push(Choice { precision, granularity, weight, activation });
                }
            }
        }
        choices.push(Choice::F32);
        choices
    }

    /// Only ranges that were found before.
    fn attention(&self) -> Vec<Choice> {
        let still =
            self.activations.iter().filter(|&&activation| activation != Activation::Dynamic);
        let int8 = still.map(|&activation| Choice { activation, ..Choice::INT8 });
        int8.chain([Choice::F32]).collect()
    }
}

/// What was named for the whole model, or else the usual; and what was named for the operation.
fn named<'a, T: Copy + PartialEq + 'a>(
    model: &Option<Vec<T>>,
    ops: impl Iterator<Item = &'a Option<Vec<T>>>,
    usual: &[T],
) -> Vec<T> {
    let mut all = model.clone().unwrap_or_else(|| usual.to_vec());
    for one in ops.flatten().flatten() {
        if !all.contains(one) {
            all.push(*one);
        }
    }
    all
}
