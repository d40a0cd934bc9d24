//! `run_squad.py` of google-research/bert: the same flags, checks, messages and files. What ends the original with a traceback ends this with its message and exit
//! code 1.

use std::ffi::OsString;
use std::io::Write;
use std::sync::Arc;

use frazil::Error;
use frazil::bert::rows::OnBadRow;
use frazil::bert::squad::{FeatureOptions, PredictOptions, SquadFeatures};
use frazil::ops::finetune::{Model, check_place, squad};
use frazil::ops::predict::answer::run_squad::{self, Event, Options, run_squad};
use frazil::ops::train::Trained;
use frazil::train::comm::Comm;

use super::absl::{Flag, ON_CPU, Program, Values};
use super::training_log::TrainingLog;
use super::{casing, training_log};
use crate::cli::{self, Outcome};
use crate::hints;

/// BERT on SQuAD 1.1 and 2.0, with the flags of google-research/bert's run_squad.py
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  frazil run_squad --do_predict=True --predict_file=dev-v1.1.json \\
      --vocab_file=vocab.txt --bert_config_file=bert_config.json \\
      --init_checkpoint=model.ckpt-14599 --output_dir=out
  frazil run_squad --do_predict=True --predict_file=dev-v2.0.json \\
      --version_2_with_negative=True --vocab_file=vocab.txt \\
      --bert_config_file=bert_config.json --init_checkpoint=model.ckpt-16000 \\
      --output_dir=out"
)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// The program and its flags.
pub const PROGRAM: Program = Program {
    name: "run_squad",
    about: "BERT on SQuAD 1.1 and SQuAD 2.0.",
    flags: &[
        Flag::text("bert_config_file", None, "the model's bert_config.json").required(),
        Flag::text("vocab_file", None, "the vocabulary that the model was trained with").required(),
        Flag::text("output_dir", None, "where files go, and where checkpoints are looked for")
            .required(),
        Flag::text("train_file", None, "questions to train on: train-v1.1.json"),
        Flag::text("predict_file", None, "questions to answer: dev-v1.1.json"),
        Flag::text("init_checkpoint", None, "the model, if there is none in output_dir"),
        Flag::truth("do_lower_case", true, "whether text is lowered, as for uncased models"),
        Flag::integer("max_seq_length", "384", "pieces of a window with its question"),
        Flag::integer("doc_stride", "128", "from the start of a window to that of the next"),
        Flag::integer("max_query_length", "64", "pieces of a question; longer ones are cut"),
        Flag::truth("do_train", false, "train on the questions of train_file"),
        Flag::truth("do_predict", false, "answer the questions of predict_file"),
        Flag::integer("train_batch_size", "32", "windows of a training step"),
        Flag::integer("predict_batch_size", "8", "windows of a run, about"),
        Flag::float("learning_rate", "5e-5", "the rate after warm-up; it falls to 0 from there"),
        Flag::float("num_train_epochs", "3.0", "how often each window is trained on"),
        Flag::float("warmup_proportion", "0.1", "the part of training in which the rate grows"),
        Flag::integer("save_checkpoints_steps", "1000", "steps between two checkpoints"),
        Flag::integer("iterations_per_loop", "1000", ON_CPU).without_effect(),
        Flag::integer("n_best_size", "20", "answers in a list of nbest_predictions.json"),
        Flag::integer("max_answer_length", "30", "the longest answer, in pieces"),
        Flag::truth("use_tpu", false, ON_CPU).without_effect(),
        Flag::text("tpu_name", None, ON_CPU).without_effect(),
        Flag::text("tpu_zone", None, ON_CPU).without_effect(),
        Flag::text("gcp_project", None, ON_CPU).without_effect(),
        Flag::text("master", None, ON_CPU).without_effect(),
        Flag::integer("num_tpu_cores", "8", ON_CPU).without_effect(),
        Flag::truth("verbose_logging", false, "say why answers are whole words"),
        Flag::truth("version_2_with_negative", false, "there may be no answer, as in SQuAD 2.0"),
        Flag::float(
            "null_score_diff_threshold",
            "0.0",
            "no answer if that scores so much higher than the best one",
        ),
        Flag::truth("skip_bad_rows", false, "frazil's: leave bad questions out and count them"),
        Flag::integer("threads", "0", "frazil's: threads, 0 for one for each core"),
        Flag::integer("seed", "12345", "frazil's: of all chance in training"),
        Flag::truth("recompute", false, "frazil's: train in less memory"),
        Flag::text(
            "export_saved_model",
            None,
            "frazil's: write the model as a SavedModel into a new folder below this one",
        ),
        Flag::integer(
            "export_batch_size",
            "1",
            "frazil's: windows of a call of it, 0 for any number",
        ),
    ],
};

/// Runs the command. The original's log goes to stderr.
pub fn run(args: Args, out: &mut dyn Write) -> anyhow::Result<Outcome> {
    let values = match PROGRAM.start(&args.arguments, out)? {
        Ok(values) => values,
        Err(outcome) => return Ok(outcome),
    };
    let verbose = values.truth("verbose_logging");
    let batch = values.integer("predict_batch_size");
    // Several processes train and answer together; the first one writes.
    let done = cli::together(|comm| {
        let options = options(&values, comm)?;
        let size = training_log::export_batch(&values)?;
        let (do_train, do_predict) = (values.truth("do_train"), values.truth("do_predict"));
        // What is wrong with these is said before hours are spent.
        if do_predict {
            run_squad::check(&options)?;
        }
        let export = values.path("export_saved_model").filter(|_| comm.is_first());
        if let Some(dir) = export.as_ref().filter(|_| do_train || do_predict) {
            check_place(dir)?;
        }
        if do_train {
            let of = training(&values, &options, comm)?;
            let mut log = TrainingLog::of_windows();
            let ran = squad::train(&of, &mut |event| log.show(event))?;
            if comm.is_first() {
                ran.write_report(&of.model, &of.schedule)?;
            }
            let Trained { steps, taken, stopped, .. } = ran.trained;
            log.ended(steps, taken, stopped);
            if stopped {
                return Ok(None);
            }
        }
        let report = match do_predict {
            true => Some(run_squad(&options, &mut |event| log(&event, verbose, batch))?),
            false => None,
        };
        if let Some(dir) = export {
            let trained = training(&values, &options, comm)?;
            training_log::exported(&squad::export(&trained, None, &dir, size)?);
        }
        Ok(report.filter(|_| comm.is_first()))
    });
    match done {
        Ok(report) => {
            if let Some(report) = report.filter(|report| report.skipped.count > 0) {
                say!("{} questions could not be used", report.skipped.count);
            }
            Ok(Outcome::Done)
        }
        Err(error) => {
            cli::report(&error);
            Ok(Outcome::CheckFailed)
        }
    }
}

/// What the flags mean; what does not go together in the original's words.
fn options(values: &Values, comm: &Arc<dyn Comm>) -> Result<Options, Error> {
    let wrong = |what: String, hint: &str| Error::Usage { what, hint: hint.into() };
    let init_checkpoint = values.path("init_checkpoint");
    let do_lower_case = values.truth("do_lower_case");
    casing::check(do_lower_case, values.text("init_checkpoint"))?;
    let (do_train, do_predict) = (values.truth("do_train"), values.truth("do_predict"));
    if !do_train && !do_predict && values.path("export_saved_model").is_none() {
        return Err(wrong(
            "At least one of `do_train` or `do_predict` must be True.".into(),
            "add `--do_predict=true`",
        ));
    }
    if do_train && values.path("train_file").is_none() {
        return Err(wrong(
            "If `do_train` is True, then `train_file` must be specified.".into(),
            "add `--train_file=train-v1.1.json`",
        ));
    }
    if do_predict && values.path("predict_file").is_none() {
        return Err(wrong(
            "If `do_predict` is True, then `predict_file` must be specified.".into(),
            "add `--predict_file=dev-v1.1.json`",
        ));
    }
    Ok(Options {
        bert_config_file: values.needed("bert_config_file")?.into(),
        vocab_file: values.needed("vocab_file")?.into(),
        output_dir: values.needed("output_dir")?.into(),
        predict_file: values.path("predict_file").unwrap_or_default(),
        init_checkpoint,
        do_lower_case,
        features: FeatureOptions {
            max_seq_length: values.count("max_seq_length", 1)?,
            doc_stride: values.count("doc_stride", 1)?,
            max_query_length: values.count("max_query_length", 0)?,
            training: false,
        },
        predict: PredictOptions {
            n_best_size: values.count("n_best_size", 0)?,
            max_answer_length: values.count("max_answer_length", 0)?,
            version_2: values.truth("version_2_with_negative"),
            null_score_diff_threshold: values.float("null_score_diff_threshold"),
        },
        predict_batch_size: values.count("predict_batch_size", 1)?,
        on_bad_row: match values.truth("skip_bad_rows") {
            true => OnBadRow::Skip,
            false => OnBadRow::Stop,
        },
        threads: training_log::threads(values)?,
        comm: Arc::clone(comm),
    })
}

/// What training needs, and what is exported.
fn training(
    values: &Values,
    options: &Options,
    comm: &Arc<dyn Comm>,
) -> Result<squad::Options, Error> {
    if values.truth("do_train") {
        run_squad::validate(options)?;
    }
    Ok(squad::Options {
        model: Model {
            bert_config_file: options.bert_config_file.clone(),
            vocab_file: options.vocab_file.clone(),
            do_lower_case: options.do_lower_case,
            init_checkpoint: options.init_checkpoint.clone(),
            output_dir: options.output_dir.clone(),
        },
        train_file: values.path("train_file").unwrap_or_default(),
        dev_file: None,
        records: Vec::new(),
        features: options.features,
        predict: options.predict,
        schedule: training_log::schedule(values, options.threads, comm)?,
        on_bad_row: options.on_bad_row,
        early_stop: None,
    })
}

/// What the original logs.
fn log(event: &Event, verbose: bool, batch: i64) {
    let info = |text: &str| say!("INFO:tensorflow:{text}");
    match event {
        Event::Restoring(path) => info(&format!("Restoring parameters from {}", path.display())),
        Event::Note(note) => {
            let note = hints::spoken(note);
            note.iter().for_each(|note| say!("note: {note}"));
        }
        Event::Skipped(row) => say!("WARNING:tensorflow:{row}"),
        Event::Window(window, tokens) => log_window(window, tokens, &info),
        Event::Running { examples, features } => {
            info("***** Running predictions *****");
            info(&format!("  Num orig examples = {examples}"));
            info(&format!("  Num split examples = {features}"));
            info(&format!("  Batch size = {batch}"));
        }
        Event::Processing(count) => info(&format!("Processing example: {count}")),
        Event::NotFound(why) if verbose => info(&why.to_string()),
        Event::NotFound(_) => {}
        Event::Writing(predictions, lists) => {
            info(&format!("Writing predictions to: {}", predictions.display()));
            info(&format!("Writing nbest to: {}", lists.display()));
        }
    }
}

fn log_window(window: &SquadFeatures, tokens: &[String], info: &dyn Fn(&str)) {
    let join =
        |values: Vec<i32>| values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let by_token = |value: &dyn Fn(usize) -> String| {
        let pairs = window.document_tokens().map(|at| format!("{at}:{}", value(at)));
        pairs.collect::<Vec<_>>().join(" ")
    };
    let word = |at: usize| window.word(at).unwrap_or_default().to_string();
    let context = |at: usize| if window.is_max_context(at) { "True" } else { "False" }.to_owned();
    info("*** Example ***");
    info(&format!("unique_id: {}", window.unique_id));
    info(&format!("example_index: {}", window.example_index));
    info(&format!("doc_span_index: {}", window.doc_span_index));
    info(&format!("tokens: {}", tokens.join(" ")));
    info(&format!("token_to_orig_map: {}", by_token(&word)));
    info(&format!("token_is_max_context: {}", by_token(&context)));
    info(&format!("input_ids: {}", join(window.features.input_ids())));
    info(&format!("input_mask: {}", join(window.features.input_mask())));
    info(&format!("segment_ids: {}", join(window.features.segment_ids())));
}
