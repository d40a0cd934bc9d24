//! `mlperf`: a run of MLPerf's BERT by the configurations of Graphcore's submissions, and its log.
//!
//! [`Settings`] are the keys of such a file; [`plan`] makes options of [`pretrain`] of
//! them, and says what became of each key that only an IPU understands. [`run`] trains and evaluates
//! by MLPerf's rules and writes `result_N.txt`; [`submission`] does so for ten seeds.

mod keys;
mod optimizer;
mod settings;
pub mod submission;

use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use frazil_bert::config::{Activation, Formulas};
use frazil_bert::names::variables::expected;
use frazil_bert::packing::Depth;
use frazil_bert::python::random::mix;
use frazil_bert::samples::{Reader, ReaderOptions, Shape};
use frazil_bert::{BertConfig, Head};
use frazil_tensor::file::{self, Scratch};
use frazil_train::batch::{Basis, Form, Padding};
use frazil_train::mllog::{self, Division, Kind as LineKind, Log};
use frazil_train::run::Go;
use serde::Serialize;
use serde_json::Value;

use super::pretrain::{self, Judgement, evaluate};
use super::{make_folder, train};
use crate::source::files;
use crate::{Error, Result};

pub use keys::{ALIASES, KEYS, Key, Kind, Meaning, find};
pub use settings::Settings;

/// What a configuration comes to.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is trained, and how.
    pub options: pretrain::Options,
    /// Sequences of a step, by the configuration's own count.
    pub global_batch: u64,
    /// Steps that it will take at most, about: packs differ in their number of sequences.
    pub about_steps: u64,
    /// What became of keys that mean something else here, or nothing.
    pub notes: Vec<String>,
    /// Where the log goes.
    pub result: PathBuf,
    /// What it says before anything happens.
    logged: Vec<(&'static str, Value)>,
    submission: Vec<(&'static str, Value)>,
    /// Whose rules it is to follow.
    division: Division,
    /// Tells settings that the log does not have from others.
    digest: String,
    /// The names of all weights.
    weights: Vec<String>,
    /// Version 1.1 logs a little more, and triggers instead of sequences.
    is_v1_1: bool,
}

/// What happens on the way.
#[derive(Debug)]
pub enum Event<'a> {
    /// A choice, in words.
    Note(&'a str),
    /// The run cannot go on, but others can.
    Failed(&'a Error),
    /// Something of the training; steps are counted against [`Plan::about_steps`].
    Pretrain(pretrain::Event<'a>),
}

/// Where [`Plan::digest`] stands in `run_start`.
const DIGEST: &str = "settings";

/// Keys that bert.py has since version 1.1. Published files of 1.1 have some of them, those of 1.0 none.
const ONLY_V1_1: [&str; 5] = [
    "loss_averaging_basis",
    "accuracy_averaging_basis",
    "encoder_start_pipeline_stage",
    "att_ffn_placement",
    "gradient_clipping_norm",
];

/// Settings that make no other run of a run, and those that a run of a submission has of its own.
const BESIDES: [&str; 8] = [
    "seed",
    "submission_run_index",
    "results",
    "checkpoint_dir",
    "engine_cache",
    "steps_per_log",
    "save_every",
    "keep",
];

/// What became of a run that reached its target.
pub const SUCCESS: &str = "success";

/// What came out, for `--json`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The log; none of a run that was told to stop, or of one that found nothing left to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<PathBuf>,
    /// `success` or `aborted`.
    pub status: &'static str,
    /// Seconds from `run_start` to `run_stop`.
    pub time_to_train: f64,
    /// The training.
    #[serde(flatten)]
    pub training: pretrain::Report,
}

fn wrong(what: impl Into<String>, hint: impl Into<String>) -> Error {
    Error::Usage { what: what.into(), hint: hint.into() }
}

/// Sequences between two evaluations.
pub fn interval(global_batch: u64) -> u64 {
    let every = 0.05 * (230.23 * global_batch as f64 + 3_000_000.0);
    (every / 25_000.0).floor() as u64 * 25_000
}

/// After how many sequences a run of that length is evaluated: the last evaluation is the first that is not
/// before its end.
pub fn triggers(global_batch: u64, max_sequences: u64) -> Vec<u64> {
    let every = interval(global_batch);
    let end = max_sequences.saturating_add(every);
    (1..).map(|times| times * every).take_while(|at| *at < end).collect()
}

/// After how many sequences this run is evaluated, and what is to be said about that.
fn triggers_of(settings: &Settings, global_batch: u64) -> (Vec<u64>, Option<String>) {
    let most = settings.count("max_training_sequences").unwrap_or(0);
    let given = settings.get("on_the_spot_validation_triggers");
    let given = given.as_ref().and_then(Value::as_array).into_iter().flatten();
    let mut all: Vec<u64> = given.filter_map(Value::as_u64).collect();
    all.sort_unstable();
    all.dedup();
    let last = all.last().copied();
    if all.is_empty() {
        all = triggers(global_batch, most);
    }
    // By the rules the last evaluation may be beyond the end, if it is not the only one.
    let is_beyond = last.or(all.first().copied()).is_none_or(|at| at > most);
    if !is_beyond {
        return (all, None);
    }
    all.retain(|at| *at < most);
    all.push(most);
    let note = format!(
        "evaluations beyond `max_training_sequences` are left out: the last one comes after {most}"
    );
    (all, Some(note))
}

/// Makes options of settings. Files are looked for, but not opened.
pub fn plan(settings: &Settings) -> Result<Plan> {
    refuse(settings)?;
    let batch = settings.size("batch_size");
    let average = settings.count("avg_seq_per_pack").unwrap_or(1);
    let replicas = settings.count("replication_factor").unwrap_or(1);
    let together = (batch as u64).saturating_mul(replicas);
    if together == 0 || average == 0 {
        return Err(wrong("a batch of no sequences leaves nothing", "give 1 or more"));
    }
    let accumulation = accumulation(settings, together)?;
    let global_batch = together.saturating_mul(accumulation).saturating_mul(average);
    if global_batch > train::MOST {
        let what = format!("a step has more than {} sequences", train::MOST);
        return Err(wrong(what, "give a smaller batch, replication or accumulation"));
    }
    let (config, formulas) = model(settings)?;
    let shape = Shape {
        max_length: settings.size("sequence_length"),
        max_predictions: settings.size("mask_tokens"),
        sequences: settings.size("max_sequences_per_pack"),
    };
    let seed = settings.get("seed").and_then(|seed| seed.as_i64()).unwrap_or(0) as u64;
    let reading = ReaderOptions {
        shape,
        packs: batch,
        shuffle: settings.truth("shuffle").then_some(seed),
        depth: Depth::AtMost(shape.sequences),
        duplication_factor: settings.size("duplication_factor"),
        repeat: true,
        ..ReaderOptions::default()
    };
    let form = |key: &str| -> Result<Form> {
        let basis = match settings.text(key).as_deref() {
            Some("persequence") => Basis::Sequence,
            Some("pertoken") => Basis::Token,
            other => {
                let what = format!("`{key}` is `{}`", other.unwrap_or_default());
                return Err(wrong(what, "give `persequence` or `pertoken`"));
            }
        };
        Ok(Form { basis, vocabulary: Some(config.vocab_size), padding: None })
    };
    let head = if settings.truth("reduce_nsp_overhead") { Head::Mlm } else { Head::Pretraining };
    let inputs = settings.texts("input_files");
    if inputs.is_empty() {
        return Err(wrong(
            "there is nothing to train on",
            "give `--input-files 'packed/strategy*'`",
        ));
    }
    let records = files(&inputs)?;
    let threads = settings.count("threads").map(|threads| threads as usize);
    let plans = settings.text("engine_cache").filter(|path| !path.is_empty()).map(PathBuf::from);
    let most = settings.count("max_training_sequences").unwrap_or(0);
    let (triggers, cut) = triggers_of(settings, global_batch);
    let validation = files(&settings.texts("on_the_spot_validation_files"))?;
    let target = settings.number("target_accuracy");
    let evaluation = match validation.is_empty() {
        true => None,
        false => Some(Judgement {
            on: evaluate::Options {
                config: config.clone(),
                formulas,
                head,
                records: validation.clone(),
                reading: ReaderOptions {
                    packs: batch.max(8),
                    shuffle: None,
                    duplication_factor: 1,
                    repeat: false,
                    ..reading.clone()
                },
                form: form("accuracy_averaging_basis")?,
                batches: None,
                threads,
                plans: plans.clone(),
            },
            triggers: triggers.clone(),
            target,
        }),
    };
    let weights = expected(&config, head, 0).into_iter().map(|weight| weight.name).collect();
    let packs = batch as u64 * replicas * accumulation;
    let method = optimizer::read(settings, || {
        let reader = Reader::open(&records, reading.clone())?;
        let sequences = if reader.packs_on_the_way() { average } else { 1 };
        let factor = reading.duplication_factor as u64;
        let samples: u64 = (0..factor).map(|pass| reader.samples_in(pass)).sum();
        Ok((samples / factor / sequences / packs).max(1))
    })?;
    // A pack has one sequence at least; the number of sequences ends the run before that.
    let last = triggers.last().copied().filter(|_| evaluation.is_some()).unwrap_or(most);
    let most_sequences = evaluation.is_none().then_some(most);
    let limit = settings.count("max_steps").unwrap_or(u64::MAX);
    let logged = method.logged(settings, global_batch, accumulation, seed, shape.max_length);
    let padding = Padding { pieces: shape.max_length, predictions: shape.max_predictions };
    let padding = (!settings.truth("packed")).then_some(padding);
    let digest = digest(settings, records.iter().chain(&validation));
    let mut notes = notes(settings);
    notes.extend(optimizer::unused_rate(settings));
    notes.extend(differences(settings, accumulation * replicas, global_batch));
    notes.extend(cut.filter(|_| evaluation.is_some()));
    let train = train::Options {
        formulas,
        init_checkpoint: settings.text("tf_checkpoint").map(PathBuf::from),
        init_slots: true,
        records,
        reading,
        form: Form { padding, ..form("loss_averaging_basis")? },
        accumulate: (accumulation * replicas) as usize,
        optimizer: method.optimizer.clone(),
        beta1: method.beta1,
        loss_scale: method.loss_scale,
        steps: (last / packs + 1).min(limit),
        schedule: method.schedule.clone(),
        save_every: save_every(settings),
        keep: settings.size("keep"),
        seed,
        recompute: settings.truth("recompute"),
        threads,
        plans,
        ..train::Options::bert(
            head,
            config,
            optimizer::NO_RATE,
            settings.text("checkpoint_dir").unwrap_or_default().into(),
        )
    };
    let index = settings.count("submission_run_index").unwrap_or(1);
    let text = |key: &'static str| Value::from(settings.text(key).unwrap_or_default());
    Ok(Plan {
        options: pretrain::Options { train, evaluation, most_sequences },
        global_batch,
        about_steps: (last / global_batch + 1).min(limit),
        notes,
        result: result(settings, index),
        logged,
        submission: vec![
            ("submission_org", text("submission_org")),
            ("submission_benchmark", "bert".into()),
            ("submission_division", text("submission_division")),
            ("submission_status", "onprem".into()),
            ("submission_platform", text("submission_platform")),
        ],
        division: division(settings)?,
        digest,
        weights,
        is_v1_1: is_v1_1(settings),
    })
}

fn is_v1_1(settings: &Settings) -> bool {
    ONLY_V1_1.iter().any(|key| settings.is_given(key))
}

/// The division that a run is for.
pub fn division(settings: &Settings) -> Result<Division> {
    match settings.text("submission_division").unwrap_or_default().as_str() {
        "closed" => Ok(Division::Closed),
        "open" => Ok(Division::Open),
        other => {
            Err(wrong(format!("`submission_division` is `{other}`"), "give `closed` or `open`"))
        }
    }
}

/// What is not as whoever knows bert.py may expect it, by keys that mean the same there, or are missing.
fn differences(settings: &Settings, batches: u64, global_batch: u64) -> Vec<String> {
    let mut notes = Vec::new();
    if settings.is_given("gradient_clipping_norm") {
        notes.push(
            "`gradient_clipping_norm`: what is clipped is the gradient of the mean over a step, as in MLPerf's \
             reference; in bert.py, it is that of a sum over a batch, averaged over the batches of a step"
                .to_owned(),
        );
    }
    if batches > 1 && !settings.is_given("gradient_reduction_type") {
        notes.push(
            "`gradient_reduction_type` is not given, and `Mean`, the only one here; bert.py takes `Sum` then"
                .to_owned(),
        );
    }
    if settings.is_given("global_batch_size") && settings.count("avg_seq_per_pack") > Some(1) {
        notes.push(format!(
            "`global_batch_size` counts packs: a step has about {global_batch} sequences"
        ));
    }
    if settings.truth("reduce_nsp_overhead") {
        let key = "reduce_nsp_overhead";
        notes.push(format!(
            "`{key}`: next sentences are not learnt, and checkpoints have no layer for them"
        ));
        let is_closed = settings.text("submission_division").as_deref() == Some("closed");
        if is_closed && is_v1_1(settings) {
            notes.push(format!(
                "`{key}`: MLPerf's checker of 1.1 will refuse the log, since that layer is missing among \
                 the weights that were initialized"
            ));
        }
    }
    notes
}

/// Steps between checkpoints.
fn save_every(settings: &Settings) -> u64 {
    let theirs = || settings.count("steps_per_save").filter(|steps| *steps > 0);
    let given = settings.count("save_every");
    let theirs = theirs().filter(|_| !settings.is_given("save_every"));
    theirs.or(given).unwrap_or_default()
}

/// A number for all that a run is made of and that its log does not say: settings that are not about where
/// things go, and the sizes of its files.
fn digest<'f>(settings: &Settings, files: impl Iterator<Item = &'f PathBuf>) -> String {
    let counts = |key: &&Key| key.meaning == Meaning::Same && !BESIDES.contains(&key.name);
    let settings = KEYS.iter().filter(counts).map(|key| {
        let value = settings.get(key.name);
        // 4 is 4.0, where any number may stand.
        let number = value.as_ref().and_then(Value::as_f64).filter(|_| key.kind == Kind::Number);
        format!("{} {:?}\n", key.name, number.map(Value::from).or(value))
    });
    let files = files.map(|path| {
        let size = std::fs::metadata(path).map_or(0, |of| of.len());
        format!("{} {size}\n", path.display())
    });
    let text: String = settings.chain(files).collect();
    let sum = text.bytes().fold(0, |sum, byte| mix(sum ^ u64::from(byte)));
    format!("{sum:016x}")
}

/// Keys with the only value that they can have, as JSON, and what there is instead of others.
const ONLY: [(&str, &str, &str); 11] = [
    ("task", "\"PRETRAINING\"", "`frazil finetune` learns tasks"),
    ("generated_data", "false", "only data can be learnt: give `input_files`"),
    ("synthetic_data", "false", "only data can be learnt: give `input_files`"),
    ("gradient_reduction_type", "\"Mean\"", "gradients are those of the mean of all losses"),
    ("projection_bias", "true", "BERT has a bias there: leave it out"),
    ("inference", "false", "`frazil run_pretraining --do_eval=true` evaluates a model"),
    ("no_training", "false", "`frazil run_pretraining --do_eval=true` evaluates a model"),
    ("no_mask", "false", "no sequence sees another, or padding: leave it out"),
    ("update_embedding_dict", "true", "all weights are learnt: leave it out"),
    ("learning_rate_function", "\"Scheduled\"", "give `lr_bert_schedule`"),
    ("scale_loaded_optimizer_state", "1", "what is loaded is used as it is: leave it out"),
];

/// What cannot be done at all.
fn refuse(settings: &Settings) -> Result<()> {
    for (key, only, hint) in ONLY {
        let only: Value = serde_json::from_str(only).expect("the table has JSON");
        let is_only =
            |given: &Value| *given == only || given.is_number() && given.as_f64() == only.as_f64();
        if let Some(given) = settings.get(key).filter(|given| !is_only(given)) {
            return Err(wrong(format!("`{key}` is {given}, and can only be {only}"), hint));
        }
    }
    if settings.is_given("onnx_checkpoint") {
        return Err(wrong(
            "`onnx_checkpoint`: weights come from a TensorFlow checkpoint",
            "give `tf_checkpoint`; `frazil import-weights` makes one",
        ));
    }
    for key in ["duplication_factor", "max_sequences_per_pack"] {
        if settings.size(key) == 0 {
            return Err(wrong(format!("`{key}` is 0"), "give 1 or more"));
        }
    }
    division(settings).map(drop)
}

/// Batches whose gradients are added up, on each replica.
fn accumulation(settings: &Settings, together: u64) -> Result<u64> {
    let given = settings.count("gradient_accumulation_factor");
    let Some(global) = settings.count("global_batch_size") else {
        return match given {
            Some(0) => Err(wrong("`gradient_accumulation_factor` is 0", "give 1 or more")),
            given => Ok(given.unwrap_or(1)),
        };
    };
    let derived = global / together;
    if derived == 0 || !global.is_multiple_of(together) {
        let what =
            format!("`global_batch_size` is {global}, and {together} packs are computed at once");
        return Err(wrong(what, format!("give a multiple of {together}")));
    }
    match given.filter(|given| *given != derived) {
        None => Ok(derived),
        Some(given) => Err(wrong(
            format!(
                "`global_batch_size` {global} means accumulating {derived} times, and \
                 `gradient_accumulation_factor` is {given}"
            ),
            "give one of the two",
        )),
    }
}

fn model(settings: &Settings) -> Result<(BertConfig, Formulas)> {
    let hidden = settings.size("hidden_size");
    let rate = if settings.truth("no_dropout") { None } else { settings.number("dropout_prob") };
    let on_attention = rate.filter(|_| !settings.truth("no_attn_dropout"));
    let on_attention =
        on_attention.map(|rate| settings.number("attn_dropout_prob").unwrap_or(rate));
    let activation = settings.text("activation_type").unwrap_or_default();
    let config = serde_json::json!({
        "vocab_size": settings.size("vocab_length"),
        "hidden_size": hidden,
        "num_hidden_layers": settings.size("num_layers"),
        "num_attention_heads": settings.size("attention_heads"),
        "intermediate_size": settings.count("ff_size").map_or(4 * hidden, |size| size as usize),
        "hidden_act": activation.parse::<Activation>()?.name(),
        "hidden_dropout_prob": rate.unwrap_or(0.0),
        "attention_probs_dropout_prob": on_attention.unwrap_or(0.0),
        "max_position_embeddings": settings.size("max_positional_length"),
        "type_vocab_size": 2,
        "initializer_range": 0.02,
    });
    let config = BertConfig::from_slice(config.to_string().as_bytes())?;
    config.check()?;
    let length = settings.size("sequence_length");
    if length > config.max_position_embeddings {
        let positions = config.max_position_embeddings;
        let what = format!("`sequence_length` is {length}, and there are {positions} positions");
        return Err(wrong(what, "give a larger `max_positional_length`"));
    }
    let epsilon = settings.number("layer_norm_eps").unwrap_or_default();
    if epsilon < 0.0 {
        return Err(wrong(format!("`layer_norm_eps` is {epsilon}"), "give 0 or more"));
    }
    Ok((config, Formulas { epsilon, ..Formulas::default() }))
}

/// What became of keys that mean something else here, or nothing: once for each reason.
fn notes(settings: &Settings) -> Vec<String> {
    let mut reasons: Vec<(&str, bool, Vec<String>)> = Vec::new();
    for (name, _, why, means) in settings.elsewhere() {
        let name = format!("`{name}`");
        match reasons.iter_mut().find(|(known, ..)| *known == why) {
            Some((_, _, names)) => names.push(name),
            None => reasons.push((why, means, vec![name])),
        }
    }
    let line = |(why, means, names): (&str, bool, Vec<String>)| {
        let effect = if means { "" } else { " (no effect)" };
        format!("{}{effect}: {why}", names.join(", "))
    };
    reasons.into_iter().map(line).collect()
}

/// Runs a plan, and writes its log when it is over. A run that goes on from a checkpoint says so in
/// its log, which begins where it goes on. One that is told to stop has none, and where nothing is left to
/// do, the log of before stays.
pub fn run(plan: &Plan, watch: &mut dyn FnMut(Event<'_>) -> Result<Go>) -> Result<Report> {
    let mut log = Log::new();
    plan.submission.iter().for_each(|(key, value)| log.point(key, value.clone()));
    log.add(LineKind::Start, "init_start", Value::Null, &[]);
    let is_first = plan.options.train.comm.is_first();
    for note in plan.notes.iter().filter(|_| is_first) {
        watch(Event::Note(note))?;
    }
    if plan.is_v1_1 {
        // The first as the submissions have it, the others as the rules want it, of what the model has.
        let mut weights = |key: &str, of: &str| {
            log.add(LineKind::Point, key, Value::Null, &[("tensor", of.into())]);
        };
        weights("WEIGHTS_INITIALIZATION", "all");
        plan.weights.iter().for_each(|name| weights("weights_initialization", name));
    }
    plan.logged.iter().for_each(|(key, value)| log.point(key, value.clone()));
    let mut start = Instant::now();
    // When the last step was taken, or judged: there the run ends, and its last checkpoint is no part of it.
    let mut last = (SystemTime::now(), start);
    let mut resumed = None;
    let training = pretrain::pretrain(&plan.options, &mut |event| {
        match &event {
            pretrain::Event::Train(train::Event::Resuming(_, step, _)) => resumed = Some(*step),
            pretrain::Event::Train(train::Event::Begin(_)) => {
                if is_first {
                    check_result(&plan.result)?;
                }
                // Nothing is cleared: that needs a right over the whole machine.
                log.point("cache_clear", false);
                log.add(LineKind::End, "init_stop", Value::Null, &[]);
                let step = resumed.map(|step| ("resumed_from_step", Value::from(step)));
                let digest = (DIGEST, Value::from(plan.digest.clone()));
                let of: Vec<_> = step.into_iter().chain([digest]).collect();
                log.add(LineKind::Start, "run_start", Value::Null, &of);
                start = Instant::now();
                last = (SystemTime::now(), start);
            }
            pretrain::Event::Train(train::Event::Step(..)) => {
                last = (SystemTime::now(), Instant::now());
            }
            pretrain::Event::BlockStart(block) => {
                let of = [("epoch_count", 1.into()), ("first_epoch_num", (*block).into())];
                log.add(LineKind::Start, "block_start", Value::Null, &of);
            }
            pretrain::Event::BlockStop(block) => {
                let of = [("first_epoch_num", (*block).into())];
                log.add_at(last.0, LineKind::End, "block_stop", Value::Null, &of);
            }
            pretrain::Event::Evaluated(found) => {
                let at = if plan.is_v1_1 { found.trigger } else { found.sequences };
                last = (SystemTime::now(), Instant::now());
                log.clear_line();
                let of = [("epoch_num", at.into())];
                log.add_at(last.0, LineKind::Point, "eval_accuracy", found.accuracy, &of);
            }
            pretrain::Event::Train(_) => {}
        }
        let event = match event {
            pretrain::Event::Train(train::Event::Step(step, _, weights)) => {
                pretrain::Event::Train(train::Event::Step(step, plan.about_steps, weights))
            }
            other => other,
        };
        watch(Event::Pretrain(event))
    })?;
    let status = if training.reached == Some(true) { SUCCESS } else { "aborted" };
    let samples = training.evaluations.last().map_or(0, |last| last.samples);
    let (end, ended) = last;
    log.add_at(end, LineKind::Point, "eval_samples", samples, &[]);
    log.add_at(end, LineKind::Point, "train_samples", training.sequences, &[]);
    let time_to_train = ended.duration_since(start).as_secs_f64();
    let of = [("status", status.into()), ("TTT", time_to_train.into())];
    log.add_at(end, LineKind::End, "run_stop", Value::Null, &of);
    let is_whole = training.taken > 0 && !training.stopped;
    let result = is_whole.then(|| plan.result.clone());
    if result.is_some() && is_first {
        store(&log, plan)?;
        let resumed = resumed.map(|step| {
            format!(
                "the run went on after step {step}: the time in its log is that of the steps since"
            )
        });
        let wrong = against_rules(&log, plan.division, !training.evaluations.is_empty());
        for note in resumed.into_iter().chain(wrong) {
            watch(Event::Note(&note))?;
        }
    }
    let is_over = !is_whole && !training.stopped && is_first;
    if let Some(note) = is_over.then(|| put_back(plan)).transpose()?.flatten() {
        watch(Event::Note(&note))?;
    }
    if is_over && !plan.result.is_file() {
        let (folder, result) = (&plan.options.train.output_dir, plan.result.display());
        return Err(wrong(
            format!(
                "the run in `{}` is over, and its log `{result}` is not there",
                folder.display()
            ),
            "its time is not known any more: another `checkpoint_dir` begins anew",
        ));
    }
    Ok(Report { result, status, time_to_train, training })
}

/// Where the log of a run lies that could not be written where it belongs.
fn elsewhere(plan: &Plan) -> PathBuf {
    plan.options.train.output_dir.join(plan.result.file_name().unwrap_or_default())
}

/// Writes a log. Where that fails, it goes beside the checkpoints: a run of hours cannot be had again.
fn store(log: &Log, plan: &Plan) -> Result<()> {
    let kept = elsewhere(plan);
    match log.write(&plan.result) {
        // One of an earlier run would be taken for that of this one.
        Ok(()) if kept.is_file() => remove(&kept),
        Ok(()) => Ok(()),
        Err(error) if log.write(&kept).is_err() => Err(error.into()),
        Err(error) => Err(Error::LogElsewhere { kept, source: error.into() }),
    }
}

/// Puts a log to its place that could not be written there at the time; what is to be said about it.
fn put_back(plan: &Plan) -> Result<Option<String>> {
    let kept = elsewhere(plan);
    if plan.result.exists() || !kept.is_file() {
        return Ok(None);
    }
    let text = std::fs::read(&kept).map_err(|source| Error::Read { path: kept.clone(), source })?;
    check_result(&plan.result)?;
    let written = file::write(&plan.result, &text).map_err(frazil_train::Error::from);
    if let Err(error) = written {
        return Err(Error::LogElsewhere { kept, source: error.into() });
    }
    remove(&kept)?;
    Ok(Some(format!("`{}` was `{}` until now", plan.result.display(), kept.display())))
}

fn remove(path: &Path) -> Result<()> {
    let failed = |source| {
        let path = path.to_path_buf();
        frazil_tensor::Error::Io { action: "remove", path, source }
    };
    Ok(std::fs::remove_file(path).map_err(failed)?)
}

/// What a log has against MLPerf's rules: the first few things.
fn against_rules(log: &Log, division: Division, was_evaluated: bool) -> Option<String> {
    const SHOWN: usize = 3;
    let found = match was_evaluated {
        true => mllog::check(log.text(), division),
        false => vec!["nothing was evaluated".to_owned()],
    };
    let more = match found.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let shown = found[..found.len().min(SHOWN)].join("; ");
    (!found.is_empty()).then(|| format!("{shown}{more}: the log is none by MLPerf's rules"))
}

/// Refuses a place where no log can be written, before hours are spent.
fn check_result(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Err(wrong(format!("`{}` is a folder", path.display()), "name other `results`"));
    }
    if let Some(folder) = path.parent() {
        make_folder(folder)?;
        Scratch::create_in(folder)?;
    }
    Ok(())
}

/// Where the log of a run goes by these settings.
pub fn result(settings: &Settings, index: u64) -> PathBuf {
    let results = settings.text("results").unwrap_or_default();
    Path::new(&results).join("bert").join(format!("result_{index}.txt"))
}

#[cfg(test)]
mod tests;
