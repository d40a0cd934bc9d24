//! SQuAD: windows to calibrate on, questions to be evaluated by.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use frazil_bert::features::Features;
use frazil_bert::metrics::squad::{Reference, Version};
use frazil_bert::squad::{
    FeatureOptions, PredictOptions, ReadOptions, SquadExample, build_features, read_examples,
};

use super::{
    Data, DataOptions, Origin, draw, held_out, is_records, metric, no_calibration, no_evaluation,
    nothing_left, origin, records,
};
use crate::ops::predict::answer::{self, Answerer, Questions};
use crate::ops::quantize::evaluate::{Candidate, Examples, Outcome, mean};
use crate::ops::text_model::{self, TextGraph};
use crate::{Error, Result};

/// Questions with their answers.
struct Set {
    model: PathBuf,
    text: Rc<TextGraph>,
    options: answer::Options,
    path: PathBuf,
    examples: Vec<SquadExample>,
    reference: Reference,
    version: Version,
    exact: bool,
}

pub(super) fn read(
    model: &Path,
    text: &Rc<TextGraph>,
    options: &DataOptions,
    evaluate: bool,
) -> Result<Data> {
    let metric = metric(options.metric.as_deref(), &["f1", "exact_match"], 1.0)?;
    let mut notes = Vec::new();
    let mut answer = answer::Options {
        model: text_model::Options::default(),
        doc_stride: options.doc_stride,
        max_query_length: options.max_query_length,
        on_bad_row: options.on_bad_row,
        ..answer::Options::default()
    };
    let source = match (&options.evaluation, evaluate) {
        (Some(path), true) => Some(path.as_path()),
        (None, true) => return Err(no_evaluation("SQuAD")),
        (_, false) => None,
    };
    // Records are the windows of a file of questions.
    let mut of_records = None;
    let questions = match source {
        Some(path) if is_records(path)? => {
            let labels = options.labels.as_deref().ok_or_else(|| Error::Usage {
                what: format!("`{}` has windows, but no answers", path.display()),
                hint: "name the SQuAD file that they were made of with `--labels`".into(),
            })?;
            let windows = records(path)?;
            answer.model.max_seq_length = windows.first().map(Features::padded_len);
            of_records = Some((path, windows));
            Some(labels)
        }
        other => other,
    };
    let cut = answer.features(text.max_seq_length());
    let mut set = match questions {
        None => None,
        Some(path) => {
            let read = ReadOptions { on_bad_row: options.on_bad_row, ..ReadOptions::default() };
            let rows = read_examples(path, read).map_err(|error| no_squad(path, error))?;
            let reference = Reference::open(path, options.on_bad_row)?;
            if !rows.skipped.is_empty() {
                notes.push(format!("{} questions cannot be used", rows.skipped.len()));
            }
            let version = reference.version();
            answer.predict =
                PredictOptions { version_2: version == Version::V2, ..PredictOptions::default() };
            let exact = metric.name == "exact_match";
            let (model, text) = (model.to_path_buf(), Rc::clone(text));
            let (examples, path) = (rows.items, path.to_path_buf());
            let options = answer.clone();
            Some(Set { model, text, options, path, examples, reference, version, exact })
        }
    };
    if let (Some((path, windows)), Some(set)) = (&of_records, &set) {
        same_windows(path, windows, set, cut)?;
    }
    let (calibration, calibrated_on) = match (&options.calibration, &mut set) {
        (Some(path), _) => calibration(path, text, cut, options)?,
        (None, Some(set)) if options.calibrate_on_evaluation => {
            notes.push("calibrated on the evaluation set, as you insist".into());
            let examples = draw(&set.examples, options.calibration_size, options.seed);
            windows(&set.path, &examples, text, cut, options)?
        }
        (None, Some(set)) => {
            let held = held_out(set.examples.len(), options.calibration_size, options.seed);
            let all = std::mem::take(&mut set.examples);
            let (out, rest): (Vec<_>, Vec<_>) =
                all.into_iter().zip(held).partition(|(_, held)| *held);
            let out: Vec<SquadExample> = out.into_iter().map(|(example, _)| example).collect();
            set.examples = rest.into_iter().map(|(example, _)| example).collect();
            notes.push(format!(
                "no calibration data: {} questions were taken out of `{}` to calibrate on, and the \
                 other {} evaluate",
                out.len(),
                set.path.display(),
                set.examples.len()
            ));
            windows(&set.path, &out, text, cut, options)?
        }
        (None, None) => return Err(no_calibration()),
    };
    let evaluated_on = match &set {
        Some(set) if set.examples.is_empty() => return Err(nothing_left(&set.path)),
        Some(set) => {
            let features = build_features(&set.examples, text.tokenizer(), cut)?;
            Some(Origin {
                path: source.unwrap_or(&set.path).to_path_buf(),
                examples: set.examples.len(),
                sequences: features.len(),
                tokens: features.iter().map(|window| window.features.len()).sum(),
            })
        }
        None => None,
    };
    let examples = set.map(|set| Box::new(set) as Box<dyn Examples>);
    Ok(Data { calibration, examples, metric, calibrated_on, evaluated_on, notes })
}

/// What is taken, where a file is of another kind.
fn no_squad(path: &Path, error: frazil_bert::Error) -> Error {
    use frazil_bert::Error::{InFile, Json};
    match error {
        InFile { source, .. } if matches!(*source, Json { .. }) => Error::Usage {
            what: format!("`{}` is no SQuAD file: {source}", path.display()),
            hint: "questions are taken as a SQuAD file such as dev-v1.1.json, or as TFRecords of \
                   their windows"
                .into(),
        },
        other => other.into(),
    }
}

/// Windows of a file of questions, or of records.
fn calibration(
    path: &Path,
    text: &TextGraph,
    cut: FeatureOptions,
    options: &DataOptions,
) -> Result<(Vec<Features>, Origin)> {
    if is_records(path)? {
        let drawn = draw(&records(path)?, options.calibration_size, options.seed);
        let origin = origin(path, 0, &drawn);
        return Ok((drawn, origin));
    }
    let questions = Questions::open(path, None, options.on_bad_row);
    let mut questions = questions.map_err(|error| match error {
        Error::Bert(error) => no_squad(path, error),
        other => other,
    })?;
    let mut all = Vec::new();
    while let Some(example) = questions.pull()? {
        all.push(example);
    }
    let examples = draw(&all, options.calibration_size, options.seed);
    windows(path, &examples, text, cut, options)
}

fn windows(
    path: &Path,
    examples: &[SquadExample],
    text: &TextGraph,
    cut: FeatureOptions,
    options: &DataOptions,
) -> Result<(Vec<Features>, Origin)> {
    let features = build_features(examples, text.tokenizer(), cut)?;
    let all: Vec<Features> = features.into_iter().map(|window| window.features).collect();
    let drawn = draw(&all, options.calibration_size, options.seed);
    let origin = origin(path, examples.len(), &drawn);
    Ok((drawn, origin))
}

/// Refuses records that are not the windows of the questions: their scores would mean nothing.
fn same_windows(path: &Path, windows: &[Features], set: &Set, cut: FeatureOptions) -> Result<()> {
    let made = build_features(&set.examples, set.text.tokenizer(), cut)?;
    let differs = |i: &usize| match (made.get(*i), windows.get(*i)) {
        (Some(made), Some(window)) => made.features != *window,
        _ => true,
    };
    match (0..made.len().max(windows.len())).find(differs) {
        None => Ok(()),
        Some(place) => Err(Error::Usage {
            what: format!(
                "record {} of `{}` is not the window that `{}` gives with length {}, stride {} and \
                 questions of up to {} pieces",
                place + 1,
                path.display(),
                set.path.display(),
                cut.max_seq_length,
                cut.doc_stride,
                cut.max_query_length
            ),
            hint: "give the stride that the records were made with as `--doc-stride`, and their \
                   vocabulary as `--vocab`; or evaluate on the SQuAD file itself"
                .into(),
        }),
    }
}

impl Examples for Set {
    fn len(&self) -> usize {
        self.examples.len()
    }

    fn run(
        &mut self,
        candidate: &Candidate<'_>,
        which: &[usize],
        progress: &mut dyn FnMut(usize),
    ) -> Result<Vec<Outcome>> {
        let model = self.text.with_engine(candidate.engine.clone());
        let answerer = Answerer::new(&self.model, model, self.options.clone())?;
        let examples: Vec<SquadExample> =
            which.iter().map(|&place| self.examples[place].clone()).collect();
        let mut questions = Questions::list(self.path.clone(), examples);
        let mut predictions = HashMap::new();
        answerer.run(&mut questions, |question, _| -> Result<()> {
            predictions.insert(question.qas_id, question.prediction);
            progress(predictions.len());
            Ok(())
        })?;
        let scores: HashMap<&str, f64> = self
            .reference
            .each(&predictions, self.version)
            .filter_map(|(id, score)| {
                let (exact, f1) = score?;
                let score = if self.exact { f64::from(u8::from(exact)) } else { f1 };
                Some((id, 100.0 * score))
            })
            .collect();
        let score = |&place: &usize| {
            let id = self.examples[place].qas_id.as_str();
            Outcome::Score(scores.get(id).copied().unwrap_or(0.0))
        };
        Ok(which.iter().map(score).collect())
    }

    fn score(&self, outcomes: &[Outcome]) -> Result<f64> {
        Ok(mean(outcomes))
    }
}
