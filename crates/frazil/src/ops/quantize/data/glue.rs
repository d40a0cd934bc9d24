//! GLUE: rows to calibrate on, rows with labels to be evaluated by.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use frazil_bert::features::classifier::{ClassifierInput, Labels};
use frazil_bert::features::{Features, InputExample};
use frazil_bert::glue::{ReadOptions, Split, Task};

use super::{
    Data, DataOptions, Metric, draw, held_out, is_records, metric, no_calibration, no_evaluation,
    nothing_left, origin, records,
};
use crate::Result;
use crate::ops::predict::classify::{self, Classifier, Compared};
use crate::ops::predict::rows::Source;
use crate::ops::quantize::evaluate::{Candidate, Examples, Outcome};
use crate::ops::text_model::TextGraph;

/// Rows with their lines.
type Rows = Vec<(usize, InputExample)>;

/// Rows with their labels.
struct Set {
    model: PathBuf,
    text: Rc<TextGraph>,
    task: Task,
    path: PathBuf,
    rows: Rows,
    metric: Metric,
}

pub(super) fn read(
    model: &Path,
    text: &Rc<TextGraph>,
    task: Task,
    options: &DataOptions,
    evaluate: bool,
) -> Result<Data> {
    let known: &[&str] = match task {
        Task::Cola => &["mcc"],
        Task::Mrpc | Task::Qqp => &["acc", "f1", "acc_and_f1"],
        Task::StsB => &["pearson", "spearmanr", "corr"],
        _ => &["acc"],
    };
    // Fractions: a percentage point is a hundredth.
    let metric = metric(options.metric.as_deref(), known, 0.01)?;
    let mut notes = Vec::new();
    let mut set = match (&options.evaluation, evaluate) {
        (Some(data), true) => Some(rows(task, data, Split::Dev, options)?),
        (None, true) => return Err(no_evaluation(task)),
        (_, false) => None,
    };
    let sequence = sequences(text)?;
    let (calibration, calibrated_on) = match &options.calibration {
        Some(path) if is_records(path)? => {
            let drawn = draw(&records(path)?, options.calibration_size, options.seed);
            let origin = origin(path, 0, &drawn);
            (drawn, origin)
        }
        asked => {
            let (path, rows) = match asked {
                Some(path) => rows(task, path, Split::Train, options)?,
                None => other_rows(task, set.as_mut(), options, &mut notes)?,
            };
            let drawn: Vec<Features> = draw(&rows, options.calibration_size, options.seed)
                .iter()
                .map(|(_, row)| sequence(row))
                .collect();
            let origin = origin(&path, drawn.len(), &drawn);
            (drawn, origin)
        }
    };
    let evaluated_on = match &set {
        Some((path, rows)) if rows.is_empty() => return Err(nothing_left(path)),
        Some((path, rows)) => {
            let all: Vec<Features> = rows.iter().map(|(_, row)| sequence(row)).collect();
            Some(origin(path, rows.len(), &all))
        }
        None => None,
    };
    let examples = set.map(|(path, rows)| {
        let (model, text) = (model.to_path_buf(), Rc::clone(text));
        let metric = metric.clone();
        Box::new(Set { model, text, task, path, rows, metric }) as Box<dyn Examples>
    });
    Ok(Data { calibration, examples, metric, calibrated_on, evaluated_on, notes })
}

/// Rows as the model reads them.
fn sequences(text: &TextGraph) -> Result<impl Fn(&InputExample) -> Features + use<>> {
    // Whatever the labels are: they are not read here.
    let input =
        ClassifierInput::new(text.tokenizer().clone(), Labels::Scores, text.max_seq_length())?;
    Ok(move |row: &InputExample| input.sequence(&row.text_a, row.text_b.as_deref()))
}

/// Rows to calibrate on where nobody named any: those for training that lie beside the ones for
/// evaluation, or else some of the latter, which are then left out.
fn other_rows(
    task: Task,
    set: Option<&mut (PathBuf, Rows)>,
    options: &DataOptions,
    notes: &mut Vec<String>,
) -> Result<(PathBuf, Rows)> {
    let Some((path, all)) = set else { return Err(no_calibration()) };
    if options.calibrate_on_evaluation {
        notes.push("calibrated on the evaluation set, as you insist".into());
        return Ok((path.clone(), all.clone()));
    }
    let language = ReadOptions::default().language;
    let beside = |folder: &&Path| task.file(folder, Split::Train, &language).is_file();
    if let Some(folder) = options.evaluation.as_deref().filter(beside) {
        let (path, rows) = rows(task, folder, Split::Train, options)?;
        notes.push(format!("no calibration data were named: rows of `{}`", path.display()));
        return Ok((path, rows));
    }
    let held = held_out(all.len(), options.calibration_size, options.seed);
    let (out, rest): (Vec<_>, Vec<_>) =
        std::mem::take(all).into_iter().zip(held).partition(|(_, held)| *held);
    *all = rest.into_iter().map(|(row, _)| row).collect();
    notes.push(format!(
        "no calibration data: {} rows were taken out of `{}` to calibrate on, and the other {} \
         evaluate",
        out.len(),
        path.display(),
        all.len()
    ));
    Ok((path.clone(), out.into_iter().map(|(row, _)| row).collect()))
}

/// The rows of a part of the data set in a folder, or of a file.
fn rows(task: Task, data: &Path, split: Split, options: &DataOptions) -> Result<(PathBuf, Rows)> {
    let how = ReadOptions { on_bad_row: options.on_bad_row, ..ReadOptions::default() };
    let path = match data.is_dir() {
        false => data.to_path_buf(),
        true => {
            let wanted = task.file(data, split, &how.language);
            match wanted.is_file() {
                true => wanted,
                false => task.file(data, Split::Dev, &how.language),
            }
        }
    };
    let bytes = frazil_tensor::file::map(&path)?;
    let rows = task.parse(&bytes, split, &how).map_err(|error| error.in_file(&path))?;
    Ok((path, rows.lines.into_iter().zip(rows.items).collect()))
}

impl Examples for Set {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn run(
        &mut self,
        candidate: &Candidate<'_>,
        which: &[usize],
        progress: &mut dyn FnMut(usize),
    ) -> Result<Vec<Outcome>> {
        let model = self.text.with_engine(candidate.engine.clone());
        let options = classify::Options { task: Some(self.task), ..Default::default() };
        let classifier = Classifier::new(&self.model, model, &options)?;
        let rows = which.iter().map(|&place| self.rows[place].clone());
        let mut source = Source::labelled(self.path.clone(), rows);
        let mut outcomes = Vec::with_capacity(which.len());
        classifier.run(&mut source, |prediction, _| -> Result<()> {
            outcomes.extend(classifier.compare(&prediction).map(Outcome::Compared));
            progress(outcomes.len());
            Ok(())
        })?;
        Ok(outcomes)
    }

    fn score(&self, outcomes: &[Outcome]) -> Result<f64> {
        let compared: Vec<Compared> = outcomes
            .iter()
            .filter_map(|outcome| match outcome {
                Outcome::Compared(compared) => Some(*compared),
                Outcome::Score(_) => None,
            })
            .collect();
        let scores = classify::scores(Some(self.task), &compared)?;
        let named = scores.iter().find(|score| score.name == self.metric.name);
        Ok(named.map_or(f64::NAN, |score| score.value))
    }
}
