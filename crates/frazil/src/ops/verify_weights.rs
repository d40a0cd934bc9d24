//! Compares two sources of weights tensor by tensor, under BERT's own names.
//!
//! This is what the loader test of Graphcore's PopART BERT checks, with its metric, but for any
//! two sources and with nothing left silent: a variable that only one side has is reported, and
//! a configuration, if given, says which ones there must be.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use frazil_bert::BertConfig;
use frazil_bert::inventory::Inventory;
use frazil_bert::names::{self, Head, Mapped, Naming, Rule, Translation, variables};
use frazil_tensor::{Tensor, TensorInfo, TensorStore};
use serde::Serialize;

use crate::source::{self, Kind, Weights, open_weights};
use crate::{Error, Result};

/// The loader test's limit for `|a-b|² / (|a||b| + 1e-8)`.
pub const MARGIN: f64 = 1.5e-8;

/// What to compare, and how strictly.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only the variables that this task's outputs depend on must be there.
    pub task: Option<Head>,
    /// A `bert_config.json` that both sides must be complete for.
    pub config: Option<PathBuf>,
    /// Largest squared relative difference that still counts as equal.
    pub margin: f64,
    /// How the sources are opened.
    pub source: source::Options,
}

impl Default for Options {
    fn default() -> Self {
        Self { task: None, config: None, margin: MARGIN, source: source::Options::default() }
    }
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Whether everything that was checked holds.
    pub equal: bool,
    /// The task whose variables were compared; all of BERT's if absent.
    pub task: Option<Head>,
    /// The limit that was applied.
    pub margin: f64,
    /// The sides, one or two.
    pub sides: Vec<Side>,
    /// Variables whose bytes are the same on both sides.
    pub identical: usize,
    /// Variables that differ, within the margin or beyond it, worst first.
    pub differences: Vec<Difference>,
}

/// One of the two sources.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// What the user gave.
    pub path: PathBuf,
    /// What it is.
    pub kind: Kind,
    /// Whose names it uses.
    pub naming: Naming,
    /// How its names became BERT's.
    pub rules: Vec<Rule>,
    /// Choices made when it was opened.
    pub notes: Vec<String>,
    /// Variables of BERT in it.
    pub variables: usize,
    /// Heads that are complete in it.
    pub heads: Vec<Head>,
    /// Variables that must be there and are not.
    pub missing: Vec<String>,
    /// Variables whose shape the configuration contradicts.
    pub wrong_shapes: Vec<WrongShape>,
    /// Variables that are neither BERT's nor an optimizer's, and were not compared.
    pub others: Vec<String>,
}

/// A shape that the configuration contradicts.
#[derive(Clone, Debug, Serialize)]
pub struct WrongShape {
    /// The variable.
    pub name: String,
    /// What the configuration says.
    pub expected: Vec<usize>,
    /// What is there.
    pub found: Vec<usize>,
}

/// How one variable differs.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// The variable.
    pub name: String,
    /// `float32 [64]` on the first side.
    pub a: String,
    /// The same on the second.
    pub b: String,
    /// Largest absolute difference; absent where shapes differ or a value is not a number.
    pub max_abs: Option<f64>,
    /// `|a-b|² / (|a||b| + 1e-8)`; absent likewise.
    pub squared_relative: Option<f64>,
    /// Whether it is within the margin.
    pub within: bool,
}

struct Opened {
    weights: Weights,
    translation: Translation,
}

impl Opened {
    fn open(path: &Path, options: &Options) -> Result<Self> {
        let weights = open_weights(path, &options.source)?;
        let translation = names::read(weights.infos(), None)?;
        Ok(Self { weights, translation })
    }

    /// Canonical names, or the file's own if it holds no BERT.
    fn names(&self) -> Vec<String> {
        let canonical = self.translation.infos();
        let infos =
            if canonical.is_empty() { self.translation.unexpected.clone() } else { canonical };
        infos.into_iter().map(|info| info.name).collect()
    }

    fn mapped(&self) -> Mapped<'_> {
        let mut rows = self.translation.rows.clone();
        // Names that are not BERT's are compared as they are, where both sides have them.
        rows.extend(
            self.translation.unexpected.iter().map(|info| names::Row::copy(&info.name, info)),
        );
        Mapped::new(&self.weights, rows)
    }

    fn side(&self, path: &Path) -> Side {
        let located = &self.weights.located;
        // A graph's constants are not variables: nothing is missing if they are not compared.
        let graph = matches!(located.kind, Kind::Graph);
        let others = if graph { &[][..] } else { &self.translation.unexpected };
        Side {
            path: path.to_path_buf(),
            kind: located.kind,
            naming: self.translation.naming,
            rules: self.translation.rules.clone(),
            notes: located.notes.clone(),
            variables: self.translation.rows.len(),
            heads: Inventory::new(&self.translation, None).complete_heads(),
            missing: Vec::new(),
            wrong_shapes: Vec::new(),
            others: others.iter().map(|info| info.name.clone()).collect(),
        }
    }
}

/// Compares `a` with `b`, or only checks `a` against the configuration. `on_tensor` hears of
/// each comparison: how many are done, of how many.
pub fn verify_weights(
    a: &Path,
    b: Option<&Path>,
    options: &Options,
    on_tensor: &mut dyn FnMut(usize, usize),
) -> Result<Report> {
    let paths: Vec<&Path> = [Some(a), b].into_iter().flatten().collect();
    let config = options.config.as_ref().map(BertConfig::read).transpose()?;
    if b.is_none() && config.is_none() {
        return Err(Error::Usage {
            what: "there is nothing to compare with".into(),
            hint: "give a second source, or `--config bert_config.json` to check completeness"
                .into(),
        });
    }
    let opened: Vec<Opened> =
        paths.iter().map(|path| Opened::open(path, options)).collect::<Result<_>>()?;
    let mut sides: Vec<Side> =
        opened.iter().zip(&paths).map(|(opened, path)| opened.side(path)).collect();
    if let Some(config) = &config {
        for (side, opened) in sides.iter_mut().zip(&opened) {
            check_complete(side, &opened.translation.infos(), config, options.task);
        }
    }
    let mut report = Report {
        equal: true,
        task: options.task,
        margin: options.margin,
        sides,
        identical: 0,
        differences: Vec::new(),
    };
    if let [a, b] = opened.as_slice() {
        compare(a, b, options, &mut report, on_tensor)?;
    }
    let complete =
        |side: &Side| side.missing.is_empty() && side.wrong_shapes.is_empty() && side.variables > 0;
    let alike = report.differences.iter().all(|difference| difference.within);
    // Two files without any BERT in them are compared as they are.
    let foreign =
        opened.len() == 2 && opened.iter().all(|opened| opened.translation.rows.is_empty());
    let compared = report.identical + report.differences.len() > 0 || opened.len() == 1;
    report.equal = alike
        && compared
        && report.sides.iter().all(|side| complete(side) || (foreign && side.missing.is_empty()));
    Ok(report)
}

/// Everything the configuration demands of this task's checkpoint.
fn check_complete(side: &mut Side, infos: &[TensorInfo], config: &BertConfig, task: Option<Head>) {
    let labels = infos
        .iter()
        .find(|info| info.name == "output_bias")
        .and_then(|info| info.shape.first().copied());
    let head = task.unwrap_or(Head::Encoder);
    for expected in variables::expected(config, head, labels.unwrap_or(2)) {
        match infos.iter().find(|info| info.name == expected.name) {
            None if expected.needed => side.missing.push(expected.name),
            Some(info) if info.shape != expected.shape => side.wrong_shapes.push(WrongShape {
                name: expected.name,
                expected: expected.shape.to_vec(),
                found: info.shape.to_vec(),
            }),
            _ => {}
        }
    }
}

fn compare(
    a: &Opened,
    b: &Opened,
    options: &Options,
    report: &mut Report,
    on_tensor: &mut dyn FnMut(usize, usize),
) -> Result<()> {
    let (mapped_a, mapped_b) = (a.mapped(), b.mapped());
    let takes_part = |name: &str| match (options.task, variables::part_of(name)) {
        (Some(task), Some(part)) => task.has(part),
        (Some(_), None) => false,
        (None, _) => true,
    };
    let needed = |name: &str| match (options.task, variables::part_of(name)) {
        (Some(task), Some(part)) => task.needs(part),
        _ => true,
    };
    let mut union: BTreeSet<String> = BTreeSet::new();
    union.extend(a.names().into_iter().chain(b.names()).filter(|name| takes_part(name)));
    if options.task.is_none() {
        let others: BTreeSet<&String> = report.sides[0].others.iter().collect();
        union.extend(report.sides[1].others.iter().filter(|name| others.contains(name)).cloned());
    }
    let total = union.len();
    for (done, name) in union.into_iter().enumerate() {
        on_tensor(done, total);
        let (in_a, in_b) = (mapped_a.info(&name), mapped_b.info(&name));
        for (side, info) in report.sides.iter_mut().zip([in_a, in_b]) {
            if info.is_none() && needed(&name) && !side.missing.contains(&name) {
                side.missing.push(name.clone());
            }
        }
        if in_a.is_none() || in_b.is_none() {
            continue;
        }
        let read = |store: &Mapped<'_>| {
            store.tensor(&name).map_err(|source| Error::Store { name: name.clone(), source })
        };
        let (tensor_a, tensor_b) = (read(&mapped_a)?, read(&mapped_b)?);
        match difference(&name, &tensor_a, &tensor_b, options.margin) {
            None => report.identical += 1,
            Some(difference) => report.differences.push(difference),
        }
    }
    on_tensor(total, total);
    for side in &mut report.sides {
        side.others.retain(|name| mapped_a.info(name).is_none() || mapped_b.info(name).is_none());
    }
    let badness = |d: &Difference| (d.within, -d.squared_relative.unwrap_or(f64::INFINITY));
    report
        .differences
        .sort_by(|x, y| badness(x).partial_cmp(&badness(y)).unwrap_or(std::cmp::Ordering::Equal));
    Ok(())
}

/// `None` if the bytes are the same.
fn difference(name: &str, a: &Tensor, b: &Tensor, margin: f64) -> Option<Difference> {
    if a == b {
        return None;
    }
    let describe = |t: &Tensor| format!("{} {}", t.dtype(), t.shape());
    let mut difference = Difference {
        name: name.to_owned(),
        a: describe(a),
        b: describe(b),
        max_abs: None,
        squared_relative: None,
        within: false,
    };
    if a.shape() != b.shape() {
        return Some(difference);
    }
    if let (Ok(x), Ok(y)) = (a.to_f64(), b.to_f64()) {
        let squared = |values: &[f64]| values.iter().map(|v| v * v).sum::<f64>();
        let pairs = || x.iter().zip(&y);
        let error: f64 = pairs().map(|(x, y)| (x - y).powi(2)).sum();
        let relative = error / ((squared(&x) * squared(&y)).sqrt() + 1e-8);
        if relative.is_finite() {
            difference.max_abs = Some(pairs().map(|(x, y)| (x - y).abs()).fold(0.0, f64::max));
            difference.squared_relative = Some(relative);
            difference.within = relative <= margin;
        }
    }
    Some(difference)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(values: &[f32]) -> Tensor {
        Tensor::from_vec([values.len()], values.to_vec()).unwrap()
    }

    #[test]
    fn the_metric_is_the_loader_test_s() {
        let d = difference("x", &vector(&[3.0, 4.0]), &vector(&[3.0, 4.5]), MARGIN).unwrap();
        // |a-b|² = 0.25, |a| = 5, |b| = sqrt(29.25)
        let expected = 0.25 / (5.0 * 29.25f64.sqrt() + 1e-8);
        assert!((d.squared_relative.unwrap() - expected).abs() < 1e-12);
        assert_eq!(d.max_abs, Some(0.5));
        assert!(!d.within);
        let d = difference("x", &vector(&[1.0]), &vector(&[1.00001]), MARGIN).unwrap();
        assert!(d.within);
    }

    #[test]
    fn not_a_number_is_a_difference() {
        let d = difference("x", &vector(&[f32::NAN]), &vector(&[1.0]), MARGIN).unwrap();
        assert!(!d.within && d.squared_relative.is_none());
        // The same bytes on both sides are the same, NaN or not.
        assert!(difference("x", &vector(&[f32::NAN]), &vector(&[f32::NAN]), MARGIN).is_none());
    }
}
