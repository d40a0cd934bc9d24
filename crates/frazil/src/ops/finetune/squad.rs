//! Fine-tuning to answer questions about texts: SQuAD 1.1 and 2.0.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use frazil_bert::metrics::squad::Reference;
use frazil_bert::rows::OnBadRow;
use frazil_bert::samples::Kind;
use frazil_bert::squad::{
    FeatureOptions, PredictOptions, ReadOptions, build_features, read_examples,
    shuffle_for_training, write_records,
};
use frazil_bert::tokenizer::Casing;
use frazil_bert::{BertConfig, Head};
use frazil_tensor::file;
use frazil_train::comm::gather;
use frazil_train::run::Go;

use super::{
    Event, Export, Judge, Model, Prepared, Ran, Report, Schedule, check_early_stop, finetune,
    open_model, train_only,
};
use crate::Result;
use crate::ops::predict::answer::{self, Answerer, Questions};
use crate::ops::text_model;
use crate::source::GraphOptions;

/// What is learnt, from what.
#[derive(Clone, Debug)]
pub struct Options {
    /// The model.
    pub model: Model,
    /// Questions with their answers.
    pub train_file: PathBuf,
    /// Records to train on instead, of windows or of packs of them; a batch is then so many of these.
    pub records: Vec<PathBuf>,
    /// Questions that checkpoints are evaluated on, if there are any.
    pub dev_file: Option<PathBuf>,
    /// How windows are cut.
    pub features: FeatureOptions,
    /// How answers are picked, and whether there may be none.
    pub predict: PredictOptions,
    /// How long and how fast.
    pub schedule: Schedule,
    /// What is done about a question that cannot be used.
    pub on_bad_row: OnBadRow,
    /// Evaluations without a better score after which training ends.
    pub early_stop: Option<usize>,
}

/// The score that counts.
const METRIC: &str = "f1";

/// Trains and evaluates.
pub fn squad(options: &Options, watch: &mut dyn FnMut(Event<'_>)) -> Result<Report> {
    check_early_stop(options.early_stop, options.dev_file.is_some())?;
    let reference = options.dev_file.as_ref();
    let reference = reference.map(|path| Reference::open(path, options.on_bad_row)).transpose()?;
    let is_first = options.schedule.comm.is_first();
    let prepared = prepare(options, &mut |note| {
        if is_first {
            watch(Event::Note(note));
        }
    })?;
    let scores = |checkpoint: &Path| match (&reference, &options.dev_file) {
        (Some(reference), Some(path)) => scores(options, checkpoint, path, reference),
        _ => Ok(BTreeMap::new()),
    };
    let judge = Judge {
        scores: if reference.is_some() { Some(&scores) } else { None },
        metric: METRIC,
        early_stop: options.early_stop,
        of: options.dev_file.as_ref().map(|path| judged_on(options, path)).transpose()?,
    };
    finetune(&prepared, &options.model, &options.schedule, &judge, watch)
}

/// Trains only: nothing is evaluated, and the report is written when it is asked for.
pub fn train(options: &Options, watch: &mut dyn FnMut(Event<'_>) -> Result<Go>) -> Result<Ran> {
    train_only(|note| prepare(options, note), &options.model, &options.schedule, METRIC, watch)
}

/// Writes a checkpoint, the newest if none is given, as a SavedModel below `dir`, for calls of so many
/// windows or any number.
pub fn export(
    options: &Options,
    checkpoint: Option<&Path>,
    dir: &Path,
    batch: Option<usize>,
) -> Result<(PathBuf, PathBuf)> {
    let export = Export {
        head: Head::Squad,
        labels: 2,
        config: &BertConfig::read(&options.model.bert_config_file)?,
        max_seq_length: options.features.max_seq_length,
        batch,
    };
    super::export_of(&options.model, checkpoint, &export, dir)
}

/// Reads and checks the data, and writes `train.tf_record`.
fn prepare(options: &Options, note: &mut dyn FnMut(String)) -> Result<Prepared> {
    options.schedule.check()?;
    let (config, tokenizer) = open_model(&options.model, options.features.max_seq_length)?;
    super::check_begin(&options.model, &options.schedule, &config, (Head::Squad, 2))?;
    let prepared = |(records, lock), examples: usize, samples: usize| Prepared {
        task: if options.predict.version_2 { "SQuAD 2.0" } else { "SQuAD 1.1" }.to_owned(),
        head: Head::Squad,
        labels: 2,
        config,
        records,
        examples,
        samples,
        lock,
    };
    if !options.records.is_empty() {
        let samples = super::count_records(&options.records, Kind::Squad)?;
        return Ok(prepared((options.records.clone(), None), samples, samples));
    }
    let read = ReadOptions {
        training: true,
        version_2: options.predict.version_2,
        on_bad_row: options.on_bad_row,
    };
    let mut rows = read_examples(&options.train_file, read)?;
    for row in &rows.skipped {
        note(row.to_string());
    }
    shuffle_for_training(&mut rows.items);
    let cut = FeatureOptions { training: true, ..options.features };
    let features = build_features(&rows.items, &tokenizer, cut)?;
    let written = super::write_train_records(&options.model, &options.schedule, |records| {
        Ok(write_records(records, &features).map(drop)?)
    })?;
    Ok(prepared(written, rows.items.len(), features.len()))
}

/// A number for what checkpoints are judged on.
fn judged_on(options: &Options, dev_file: &Path) -> Result<u32> {
    let of = (options.features, options.predict, options.model.do_lower_case);
    let of = crc32c::crc32c(format!("{of:?}").as_bytes());
    Ok(crc32c::crc32c_append(of, &file::map(dev_file)?))
}

/// The official scores of one checkpoint; each rank answers its share of the questions.
fn scores(
    options: &Options,
    checkpoint: &Path,
    dev_file: &Path,
    reference: &Reference,
) -> Result<BTreeMap<String, f64>> {
    let casing = if options.model.do_lower_case { Casing::Lower } else { Casing::Keep };
    let how = answer::Options {
        model: text_model::Options {
            graph: GraphOptions {
                config: Some(options.model.bert_config_file.clone()),
                ..GraphOptions::default()
            },
            vocabulary: Some(options.model.vocab_file.clone()),
            casing: Some(casing),
            max_seq_length: Some(options.features.max_seq_length),
            threads: options.schedule.threads,
            ..text_model::Options::default()
        },
        doc_stride: Some(options.features.doc_stride),
        max_query_length: Some(options.features.max_query_length),
        predict: options.predict,
        on_bad_row: options.on_bad_row,
    };
    let answerer = Answerer::open(checkpoint, how)?;
    let comm = &*options.schedule.comm;
    let mut own: Vec<(String, String)> = Vec::new();
    let mut questions = Questions::open(dev_file, None, options.on_bad_row)?;
    let mut share = Vec::new();
    let mut number = 0;
    while let Some(question) = questions.pull()? {
        if number % comm.size() == comm.rank() {
            share.push(question);
        }
        number += 1;
    }
    if !share.is_empty() {
        let mut share = Questions::list(dev_file.to_path_buf(), share);
        answerer.run(&mut share, |question, _| -> Result<()> {
            options.schedule.stop.check(comm)?;
            own.push((question.qas_id, question.prediction));
            Ok(())
        })?;
    }
    let predictions: HashMap<String, String> = gather(comm, own)?.into_iter().collect();
    let (exact, f1) = match options.predict.version_2 {
        true => {
            let score = reference.score_v2(&predictions, None, 1.0)?;
            (score.all.exact, score.all.f1)
        }
        false => {
            let score = reference.score(&predictions);
            (score.exact_match, score.f1)
        }
    };
    Ok(BTreeMap::from([("exact_match".to_owned(), exact), ("f1".to_owned(), f1)]))
}
