//! What was found, in a form that serializes: all trials, what each operation is and does, what was
//! seen of each tensor.

use std::path::{Path, PathBuf};

use frazil_graph::pass::quantize::{Site, SiteKind};
use frazil_tune::config::Strategy;
use frazil_tune::{
    Activation, Choice, Configuration, Goal, Measured, Op, OpKind, Stop, Subject, Verdict,
};
use serde::Serialize;

use super::Search;
use super::data::{Metric, Origin, Task};
use super::subject::Model;
use super::write::Written;
use crate::Result;

/// Bars of a histogram.
const BARS: usize = 64;

/// See the module.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The model.
    pub model: PathBuf,
    /// What it is for.
    pub task: Option<String>,
    /// The score that counts.
    pub metric: Metric,
    /// How much of it may be lost.
    pub goal: Goal,
    /// The last score that is good enough.
    pub threshold: f64,
    /// Whether the goal was met.
    pub verdict: Verdict,
    /// Points of the score that are missing to the goal, if it was missed.
    pub missed_by: Option<f64>,
    /// How configurations were searched.
    pub strategy: Strategy,
    /// Why the search ended.
    pub stop: Stop,
    /// The f32 model.
    pub baseline: Measured,
    /// The model that was written.
    pub best: Option<Trial>,
    /// All that were tried, in their order.
    pub trials: Vec<Trial>,
    /// How often the full set was evaluated, the baseline aside.
    pub full_evaluations: usize,
    /// What each operation of the best model is.
    pub ops: Vec<Operation>,
    /// What was seen of the tensors that are bytes there.
    pub tensors: Vec<Tensor>,
    /// The calibration data.
    pub calibrated_on: Origin,
    /// The evaluation data; none if a program evaluated.
    pub evaluated_on: Option<Origin>,
    /// What was written.
    pub outputs: Vec<Written>,
    /// What makes the model once more.
    pub recipe: Option<PathBuf>,
    /// Choices that were made, and wishes without meaning.
    pub notes: Vec<String>,
    /// Seconds.
    pub seconds: f64,
}

/// A configuration that was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// From 1.
    pub number: usize,
    /// What the configuration is known by.
    pub key: String,
    /// What it is worth.
    pub measured: Measured,
    /// Points of the score that it loses.
    pub loss: f64,
    /// How many times faster it is than the f32 model.
    pub speedup: f64,
    /// Whether it meets the goal, on the full set.
    pub met: bool,
    /// Linear layers in bytes, of all.
    pub int8_linears: (usize, usize),
    /// Attentions in bytes, of all.
    pub int8_attentions: (usize, usize),
    /// Tables in bytes, of all.
    pub int8_tables: (usize, usize),
    /// The settings that its operations have, with how many have each.
    pub settings: Vec<(String, usize)>,
    /// What it took.
    pub seconds: f64,
    /// Whether it was in the history.
    pub cached: bool,
}

/// An operation that can be in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Operation {
    /// Its node.
    pub name: String,
    /// Its kind.
    pub kind: OpKind,
    /// The encoder layer that it is in, if its name tells.
    pub layer: Option<usize>,
    /// What it is there: the rest of its name.
    pub product: String,
    /// What it is in the best model.
    pub choice: Choice,
    /// The same in words.
    pub says: String,
    /// What it does alone, in bytes, to the model's outputs: mean squared difference.
    pub damage: Option<f64>,
    /// Microseconds that bytes save there, counted.
    pub saves_us: f64,
    /// Bytes of weights that they save.
    pub saves_bytes: u64,
}

/// A tensor that is bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// The operations that read it as bytes.
    pub readers: Vec<String>,
    /// The least number that was seen.
    pub lowest: f32,
    /// The largest.
    pub highest: f32,
    /// The numbers that bytes stand for; none if each row has its own.
    pub range: Option<(f32, f32)>,
    /// The share of numbers outside of it.
    pub clipped: f64,
    /// How many numbers were seen.
    pub count: u64,
    /// Counts of numbers in equal parts from the least to the largest.
    pub histogram: Vec<u64>,
}

impl Report {
    pub(super) fn new(
        model: &Path,
        task: Option<Task>,
        metric: Metric,
        search: &Search,
        ops: Vec<Operation>,
        outcome: frazil_tune::Outcome,
    ) -> Self {
        let tuning = &search.config.tuning;
        let goal = Goal { criterion: tuning.criterion, higher_is_better: tuning.higher_is_better };
        let base = outcome.baseline.accuracy;
        let trials: Vec<Trial> =
            outcome.trials.iter().map(|trial| Trial::new(trial, &ops, &goal, base)).collect();
        let best = outcome.best.and_then(|best| trials.get(best).cloned());
        let missing = best.as_ref().map(|best| best.loss - goal.allowance(base));
        Self {
            model: model.to_path_buf(),
            task: task.map(|task| task.to_string()),
            metric,
            goal,
            threshold: goal.threshold(base),
            verdict: outcome.verdict,
            missed_by: missing.filter(|_| outcome.verdict == Verdict::Missed),
            strategy: tuning.strategy,
            stop: outcome.stop,
            baseline: outcome.baseline,
            best,
            trials,
            full_evaluations: outcome.full_evaluations,
            ops,
            tensors: Vec::new(),
            calibrated_on: Origin::default(),
            evaluated_on: None,
            outputs: Vec::new(),
            recipe: None,
            notes: Vec::new(),
            seconds: 0.0,
        }
    }
}

impl Report {
    /// Milliseconds of a run of the f32 model, as it was measured in turn with the best trial: only
    /// times that were taken in turn can be compared.
    pub fn baseline_ms(&self) -> f64 {
        self.best.as_ref().map_or(self.baseline.baseline_ms, |best| best.measured.baseline_ms)
    }
}

impl Trial {
    /// What a trial is to people.
    fn new(trial: &frazil_tune::Trial, ops: &[Operation], goal: &Goal, baseline: f64) -> Self {
        let counts = |kind: OpKind| {
            let of_kind = || ops.iter().filter(|op| op.kind == kind);
            let int8 = |op: &&Operation| {
                trial.configuration.ops.get(&op.name).is_some_and(Choice::is_int8)
            };
            (of_kind().filter(int8).count(), of_kind().count())
        };
        let mut settings: Vec<(String, usize)> = Vec::new();
        for choice in trial.configuration.ops.values().map(ToString::to_string) {
            match settings.iter_mut().find(|(known, _)| *known == choice) {
                Some((_, count)) => *count += 1,
                None => settings.push((choice, 1)),
            }
        }
        settings.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        Self {
            number: trial.number,
            key: trial.key.clone(),
            measured: trial.measured,
            loss: goal.loss(baseline, trial.measured.accuracy),
            speedup: trial.measured.speedup(),
            met: trial.met,
            int8_linears: counts(OpKind::Linear),
            int8_attentions: counts(OpKind::Attention),
            int8_tables: counts(OpKind::Table),
            settings,
            seconds: trial.seconds,
            cached: trial.cached,
        }
    }
}

/// What each operation is, and what it does alone.
pub(super) fn operations(
    model: &Model<'_>,
    configuration: &Configuration,
    outcome: &frazil_tune::Outcome,
) -> Vec<Operation> {
    let damage = |name: &str| outcome.damage.iter().find(|(known, _)| known == name);
    let operation = |op: &Op| {
        let choice = configuration.ops.get(&op.name).copied().unwrap_or(Choice::F32);
        let (layer, product) = place(&op.name);
        Operation {
            name: op.name.clone(),
            kind: op.kind,
            layer,
            product,
            choice,
            says: choice.to_string(),
            damage: damage(&op.name).map(|(_, damage)| *damage),
            saves_us: op.saves_us,
            saves_bytes: op.saves_bytes,
        }
    };
    model.ops().iter().map(operation).collect()
}

/// The encoder layer in the name of a node, and what is behind it.
fn place(name: &str) -> (Option<usize>, String) {
    let plain = |rest: &str| rest.trim_end_matches("/MatMul").trim_matches(['/', '.']).to_owned();
    for mark in ["layer_", "layer.", "layer/", "layers."] {
        let Some(at) = name.find(mark) else { continue };
        let rest = &name[at + mark.len()..];
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if let Ok(layer) = rest[..end].parse() {
            return (Some(layer), plain(&rest[end..]));
        }
    }
    (None, plain(name))
}

/// What was seen of the tensors that a configuration has as bytes.
pub(super) fn tensors(model: &Model<'_>, configuration: &Configuration) -> Result<Vec<Tensor>> {
    let calibrated = &model.calibrated;
    let mut all: Vec<(usize, Choice, Tensor)> = Vec::new();
    for site in &calibrated.sites {
        let choice = configuration.ops.get(&site.name).filter(|choice| choice.is_int8());
        let Some(choice) = choice else { continue };
        for place in 0..site.observe.len() {
            let index = calibrated.seen.index(&site.name, place);
            let same = |(known, how, _): &&mut (usize, Choice, Tensor)| {
                *known == index && how.activation == choice.activation
            };
            if let Some((_, _, tensor)) = all.iter_mut().find(same) {
                tensor.readers.push(site.name.clone());
                continue;
            }
            let numbers = &calibrated.seen.tensor(index).numbers;
            let (lowest, highest) = numbers.extremes()?;
            let range = range(model, site, place, choice)?;
            all.push((
                index,
                *choice,
                Tensor {
                    name: numbers.name().to_owned(),
                    readers: vec![site.name.clone()],
                    lowest,
                    highest,
                    range: range.map(|range| (range.lowest, range.highest)),
                    clipped: range.map_or(0.0, |range| numbers.clipped(range)),
                    count: numbers.count(),
                    histogram: numbers.picture(BARS),
                },
            ));
        }
    }
    Ok(all.into_iter().map(|(_, _, tensor)| tensor).collect())
}

/// The range of a tensor before migration, as its histogram is.
fn range(
    model: &Model<'_>,
    site: &Site,
    place: usize,
    choice: &Choice,
) -> Result<Option<frazil_tune::calibrate::Range>> {
    let Activation::Static(algorithm) = choice.activation else { return Ok(None) };
    let numbers = &model.calibrated.seen.tensor(model.calibrated.seen.index(&site.name, place));
    Ok(Some(match (&site.kind, place) {
        // Keys and values are symmetric.
        (SiteKind::Attention { .. }, 1 | 2) => {
            let limit = numbers.numbers.symmetric(algorithm)? * 127.0;
            frazil_tune::calibrate::Range::new(-limit, limit)
        }
        _ => numbers.numbers.range(algorithm)?,
    }))
}

/// Writes `report.json` and `report.html`.
pub(super) fn write(report: &Report, workspace: Option<&Path>) -> Result<()> {
    let Some(folder) = workspace else { return Ok(()) };
    let json = serde_json::to_vec_pretty(report);
    let mut json = json.expect("a report has nothing that JSON lacks");
    json.push(b'\n');
    frazil_tensor::file::write(folder.join("report.json"), &json)?;
    super::html::page(report).write(folder.join("report.html"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_told_by_names() {
        let name = "bert/encoder/layer_11/attention/self/query/MatMul";
        assert_eq!(place(name), (Some(11), "attention/self/query".into()));
        let name = "/bert/encoder/layer.3/output/dense/MatMul";
        assert_eq!(place(name), (Some(3), "output/dense".into()));
        assert_eq!(place("MatMul"), (None, "MatMul".into()));
        assert_eq!(place("layer_x/MatMul"), (None, "layer_x".into()));
    }
}
