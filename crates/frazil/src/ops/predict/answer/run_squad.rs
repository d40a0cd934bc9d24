//! google-research/bert's `run_squad.py` without training: the same checks in the same order, the
//! same choice of a checkpoint, the same files.
//!
//! Writes `eval.tf_record`, `predictions.json`, `nbest_predictions.json` and, with
//! `version_2_with_negative`, `null_odds.json`. Padding is computed as the original does: its logits
//! take places among the best starts and ends, and so shape the lists.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use frazil_bert::BertConfig;
use frazil_bert::metrics::squad::{Reference, Version};
use frazil_bert::rows::OnBadRow;
use frazil_bert::squad::{
    FeatureOptions, NotFound, PredictOptions, Predictions, ReadOptions, SquadFeatures,
    build_features, read_examples, write_records,
};
use frazil_bert::tokenizer::Casing;
use frazil_tf::checkpoint_state::CheckpointState;
use frazil_train::comm::{Comm, gather, part};

use super::{Answerer, Options as AnswerOptions, Report, group};
use crate::ops::finetune::check_length;
use crate::ops::finetune::squad::without_answers;
use crate::ops::text_model;
use crate::source::GraphOptions;
use crate::{Error, Result};

/// Windows between two [`Event::Processing`].
const EVERY: usize = 1000;

/// The original's flags that prediction looks at.
#[derive(Clone, Debug)]
pub struct Options {
    /// The configuration.
    pub bert_config_file: PathBuf,
    /// The vocabulary.
    pub vocab_file: PathBuf,
    /// Where files go, and where checkpoints are looked for first.
    pub output_dir: PathBuf,
    /// The questions.
    pub predict_file: PathBuf,
    /// The model, if there is none in `output_dir`.
    pub init_checkpoint: Option<PathBuf>,
    /// Whether text is lowered.
    pub do_lower_case: bool,
    /// How windows are cut.
    pub features: FeatureOptions,
    /// How answers are picked.
    pub predict: PredictOptions,
    /// Windows of one run, about.
    pub predict_batch_size: usize,
    /// What is done about a question that cannot be used.
    pub on_bad_row: OnBadRow,
    /// Threads; `FRAZIL_THREADS`, or one for each core, if none.
    pub threads: Option<usize>,
    /// Who answers together: each has its part of the questions, and the first one speaks and writes.
    pub comm: Arc<dyn Comm>,
}

/// What happens on the way, as it happens: what the original logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The weights come from here.
    Restoring(PathBuf),
    /// A choice that was made.
    Note(String),
    /// One of the first windows.
    Window(Box<SquadFeatures>, Vec<String>),
    /// Questions and windows are ready.
    Running {
        /// Questions.
        examples: usize,
        /// Windows.
        features: usize,
    },
    /// So many windows are through.
    Processing(usize),
    /// A question that could not be used.
    Skipped(String),
    /// Why an answer is whole words.
    NotFound(NotFound),
    /// Answers and lists go here.
    Writing(PathBuf, PathBuf),
}

/// Questions whose windows the original logs.
const LOGGED: usize = 20;

fn io_error(action: &'static str, path: &Path, source: std::io::Error) -> Error {
    frazil_tensor::Error::Io { action, path: path.to_path_buf(), source }.into()
}

/// Whether what the flags say goes together, in the original's order and words.
pub fn validate(options: &Options) -> Result<BertConfig> {
    let config = BertConfig::read(&options.bert_config_file)?;
    let wrong = |what: String, hint: &str| Err(Error::Usage { what, hint: hint.into() });
    let FeatureOptions { max_seq_length, max_query_length, .. } = options.features;
    check_length(&config, max_seq_length)?;
    if max_seq_length <= max_query_length.saturating_add(3) {
        return wrong(
            format!(
                "The max_seq_length ({max_seq_length}) must be greater than max_query_length \
                 ({max_query_length}) + 3"
            ),
            "give a smaller `--max_query_length`",
        );
    }
    Ok(config)
}

/// Whether there is what answering needs, but for the model: it may have to be trained first.
pub fn check(options: &Options) -> Result<()> {
    validate(options)?;
    let read = ReadOptions { on_bad_row: options.on_bad_row, ..ReadOptions::default() };
    Ok(read_examples(&options.predict_file, read).map(drop)?)
}

/// The checkpoint: the newest in `output_dir`, as the original's Estimator takes it, or else
/// `init_checkpoint`.
pub fn checkpoint(output_dir: &Path, init_checkpoint: Option<&Path>) -> Result<PathBuf> {
    if let Some(state) = CheckpointState::read(output_dir)? {
        return Ok(state.model_checkpoint_path);
    }
    init_checkpoint.map(Path::to_path_buf).ok_or_else(|| Error::Usage {
        what: format!("`{}` has no checkpoint, and there is no other", output_dir.display()),
        hint: "name one with `--init_checkpoint`; the original would answer with random weights"
            .into(),
    })
}

/// Answers all questions of the file and writes the original's files.
pub fn run_squad(options: &Options, on_event: &mut dyn FnMut(Event)) -> Result<Report> {
    let start = std::time::Instant::now();
    validate(options)?;
    let comm = &*options.comm;
    let mut on_event = |event: Event| {
        if comm.is_first() {
            on_event(event);
        }
    };
    let model = checkpoint(&options.output_dir, options.init_checkpoint.as_deref())?;
    let casing = if options.do_lower_case { Casing::Lower } else { Casing::Keep };
    let rows = options.predict_batch_size.saturating_mul(options.features.max_seq_length);
    let answerer = Answerer::open(
        &model,
        AnswerOptions {
            model: text_model::Options {
                graph: GraphOptions {
                    config: Some(options.bert_config_file.clone()),
                    ..GraphOptions::default()
                },
                vocabulary: Some(options.vocab_file.clone()),
                casing: Some(casing),
                max_seq_length: Some(options.features.max_seq_length),
                threads: options.threads,
                rows,
                padded: true,
                ..text_model::Options::default()
            },
            doc_stride: Some(options.features.doc_stride),
            max_query_length: Some(options.features.max_query_length),
            predict: options.predict,
            on_bad_row: options.on_bad_row,
        },
    )?;
    on_event(Event::Restoring(model));
    let mut report = answerer.report();
    report.notes.iter().for_each(|note| on_event(Event::Note(note.clone())));
    let questions = &options.predict_file;
    let is_v2 = |of: Reference| of.version() == Version::V2;
    if !options.predict.version_2 && Reference::open(questions, OnBadRow::Skip).is_ok_and(is_v2) {
        on_event(Event::Note(without_answers(questions)));
    }
    let read = ReadOptions { on_bad_row: options.on_bad_row, ..ReadOptions::default() };
    let examples = read_examples(&options.predict_file, read)?;
    for row in &examples.skipped {
        report.skipped.add(row);
        on_event(Event::Skipped(row.to_string()));
    }
    let tokenizer = answerer.model().tokenizer();
    let features = build_features(&examples.items, tokenizer, answerer.features())?;
    for window in &features {
        let problem = |problem| Error::Usage {
            what: format!("question `{}`: {problem}", examples.items[window.example_index].qas_id),
            hint: "is `--vocab_file` the model's?".into(),
        };
        answerer.model().check(&window.features).map_err(problem)?;
    }
    for window in features.iter().take_while(|window| window.example_index < LOGGED) {
        let tokens = window.tokens(tokenizer.vocabulary());
        let tokens = tokens.into_iter().map(str::to_owned).collect();
        on_event(Event::Window(Box::new(window.clone()), tokens));
    }
    let out = |name: &str| options.output_dir.join(name);
    if comm.is_first() {
        std::fs::create_dir_all(&options.output_dir)
            .map_err(|source| io_error("create", &options.output_dir, source))?;
        write_records(out("eval.tf_record"), &features)?;
    }
    on_event(Event::Running { examples: examples.items.len(), features: features.len() });
    on_event(Event::Processing(0));
    let mut found = Vec::with_capacity(examples.items.len());
    let groups = group(examples.items, features);
    let part = part(comm, groups.len());
    let groups = groups.into_iter().skip(part.start).take(part.len()).map(Ok);
    answerer.run_groups(groups, |question, windows, tokens| -> Result<()> {
        let before = report.windows / EVERY;
        report.questions += 1;
        report.windows += windows;
        report.tokens += tokens;
        (before + 1..=report.windows / EVERY)
            .for_each(|thousands| on_event(Event::Processing(thousands * EVERY)));
        found.push(question);
        Ok(())
    })?;
    let mut found = gather(comm, found)?;
    on_event(Event::Writing(out("predictions.json"), out("nbest_predictions.json")));
    found.iter_mut().flat_map(|question| question.not_found.drain(..)).for_each(|why| {
        on_event(Event::NotFound(why));
    });
    if comm.is_first() {
        found.into_iter().collect::<Predictions>().write(&options.output_dir)?;
    }
    report.seconds = start.elapsed().as_secs_f64();
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_checkpoint_of_the_folder_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let init = Path::new("bert_model.ckpt");
        assert_eq!(checkpoint(path, Some(init)).unwrap(), init);
        assert!(checkpoint(path, None).unwrap_err().to_string().contains("has no checkpoint"));
        CheckpointState::new(path.join("model.ckpt-7")).write(path).unwrap();
        assert_eq!(checkpoint(path, Some(init)).unwrap(), path.join("model.ckpt-7"));
    }
}
