//! What a training was like, step by step: written as TensorBoard's events while it runs, and read
//! from them for its report, so that a run that was interrupted is one curve.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;

use frazil_tf::events::{self, EventWriter};
use frazil_tf::proto::{event, summary};
use serde::Serialize;

use super::Step;
use crate::Result;

/// As many points make a curve, about.
const POINTS: u64 = 500;

/// Where evaluations are, as Estimator has it.
const EVAL: &str = "eval";
/// Stands beside scores: the number for what they are the scores of.
const JUDGED_ON: &str = "frazil/judged_on";

/// A few steps, on average.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Point {
    /// Steps that were taken by then.
    pub step: u64,
    /// Numbers by name: `loss`, `learning_rate`, `global_norm`, `tokens/sec`, …
    pub values: BTreeMap<String, f64>,
}

/// The scores of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Evaluation {
    /// Its step.
    pub step: u64,
    /// Numbers by name.
    pub scores: BTreeMap<String, f64>,
    /// A number for what it was judged on, by [`judged_on`]; none if nobody said.
    #[serde(skip)]
    pub judged_on: Option<u32>,
}

/// A number for what checkpoints are judged on: these data, in this way. Scores by another one are not of the
/// same kind. An `f32` holds it, as events have it.
pub fn judged_on(how: impl Debug, data: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(format!("{how:?}").as_bytes()), data) >> 8
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct History {
    /// In the order of steps.
    pub points: Vec<Point>,
    /// In the order of steps; those of the same one in the order in which they came.
    pub evaluations: Vec<Evaluation>,
}

impl History {
    /// What the event files of a folder say. Of what was written twice the later counts.
    pub fn read(folder: &Path) -> Result<Self> {
        let points = scalars(folder)?.into_iter();
        let mut judged: Vec<_> = scalars(&folder.join(EVAL))?.into_iter().collect();
        judged.sort_by_key(|((step, _), (came, _))| (*step, *came));
        let evaluation = |((step, judged_on), (_, scores))| Evaluation { step, scores, judged_on };
        Ok(Self {
            points: points.map(|((step, _), (_, values))| Point { step, values }).collect(),
            evaluations: judged.into_iter().map(evaluation).collect(),
        })
    }

    /// A curve.
    pub fn curve<'h>(&'h self, name: &'h str) -> impl Iterator<Item = (f64, f64)> + 'h {
        let point = |point: &'h Point| Some((point.step as f64, *point.values.get(name)?));
        self.points.iter().filter_map(point)
    }

    /// Leaves the evaluations that were judged on the same.
    pub fn only(&mut self, judged_on: Option<u32>) {
        self.evaluations.retain(|of| of.judged_on == judged_on);
    }

    /// Adds the scores of a checkpoint to the files of a folder.
    pub fn evaluated(folder: &Path, evaluation: &Evaluation) -> Result<()> {
        let mut writer = EventWriter::create(folder.join(EVAL), "")?;
        let judged_on = evaluation.judged_on.map(|number| (JUDGED_ON, number as f32));
        let scores = evaluation.scores.iter().map(|(name, value)| (&name[..], *value as f32));
        writer.scalars(evaluation.step as i64, judged_on.into_iter().chain(scores))?;
        Ok(writer.flush()?)
    }
}

/// Numbers by name, of a step and of what it was judged on; with when the last of them came, counted.
type Scalars = BTreeMap<(u64, Option<u32>), (usize, BTreeMap<String, f64>)>;

fn scalars(folder: &Path) -> Result<Scalars> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(Scalars::new()) };
    let is_events = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.is_file() && name.starts_with("events.out.tfevents.")
    };
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(is_events).collect();
    files.sort();
    let (mut found, mut came) = (Scalars::new(), 0);
    for path in files {
        // The last event of a run that was killed may be cut: what comes before it counts.
        for event in events::read(&path)?.map_while(std::result::Result::ok) {
            let step = event.step.max(0) as u64;
            let of = match event.what {
                Some(event::What::Summary(of)) => of,
                // A run that began here, after one that came further.
                Some(event::What::SessionLog(_)) => {
                    found.split_off(&(step, None));
                    continue;
                }
                _ => continue,
            };
            let numbers = of.value.into_iter().filter_map(|value| match value.value {
                Some(summary::value::Value::SimpleValue(number)) => {
                    Some((value.tag, f64::from(number)))
                }
                _ => None,
            });
            let mut numbers: BTreeMap<String, f64> = numbers.collect();
            let judged_on = numbers.remove(JUDGED_ON).map(|number| number as u32);
            if !numbers.is_empty() {
                came += 1;
                let (at, all) = found.entry((step, judged_on)).or_default();
                *at = came;
                all.append(&mut numbers);
            }
        }
    }
    Ok(found)
}

/// Writes the events of a run.
pub(super) struct Writer {
    events: EventWriter,
    every: u64,
    /// What was seen since the last point.
    sums: BTreeMap<String, f64>,
    steps: u64,
    tokens: u64,
    seconds: f64,
    /// Steps that were taken by the last one, and its rate.
    last: (u64, f64),
}

impl Writer {
    /// For a run of so many steps that begins after some.
    pub(super) fn create(folder: &Path, from: u64, steps: u64) -> Result<Self> {
        let mut events = EventWriter::create(folder, "")?;
        // What a run before this one came to beyond that is void.
        let next = from as i64 + 1;
        events.restart(next)?;
        if folder.join(EVAL).is_dir() {
            EventWriter::create(folder.join(EVAL), "")?.restart(next)?;
        }
        let every = (steps / POINTS).clamp(1, 100);
        let (sums, steps, tokens, seconds) = (BTreeMap::new(), 0, 0, 0.0);
        Ok(Self { events, every, sums, steps, tokens, seconds, last: (0, 0.0) })
    }

    pub(super) fn step(&mut self, step: &Step) -> Result<()> {
        let report = &step.report;
        let mut add = |name: &str, value: f64| {
            *self.sums.entry(name.to_owned()).or_default() += value;
        };
        add("loss", report.loss);
        add("global_norm", report.norm);
        report.parts.iter().for_each(|(name, value)| add(name, *value));
        self.steps += 1;
        self.tokens += step.tokens as u64;
        self.seconds += step.seconds;
        self.last = (report.step + 1, f64::from(report.rate));
        if self.last.0.is_multiple_of(self.every) { self.point() } else { Ok(()) }
    }

    /// A last point, of the steps since the one before.
    pub(super) fn finish(&mut self) -> Result<()> {
        if self.steps > 0 { self.point() } else { Ok(()) }
    }

    fn point(&mut self) -> Result<()> {
        let ((taken, rate), steps) = (self.last, self.steps as f64);
        let mut values = std::mem::take(&mut self.sums);
        values.values_mut().for_each(|value| *value /= steps);
        values.insert("learning_rate".to_owned(), rate);
        values.insert("global_step/sec".to_owned(), steps / self.seconds);
        values.insert("tokens/sec".to_owned(), self.tokens as f64 / self.seconds);
        for (name, value) in values {
            self.events.scalar(taken as i64, &name, value as f32)?;
        }
        (self.steps, self.tokens, self.seconds) = (0, 0, 0.0);
        Ok(self.events.flush()?)
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        Ok(self.events.flush()?)
    }
}
