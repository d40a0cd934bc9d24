//! `run_classifier` of google-research/bert: the same flags, the same files, the same log on stderr.
//! Beside the original's flags there are `--skip_bad_rows`, `--threads`, `--seed`, `--recompute`,
//! `--export_saved_model` and `--export_batch_size`, and `--task_name` takes all tasks of GLUE that have
//! classes.

use std::ffi::OsString;
use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use frazil::Error;
use frazil::bert::features::classifier::Target;
use frazil::bert::rows::OnBadRow;
use frazil::ops::finetune::{Model, check_place, classifier};
use frazil::ops::run_classifier::{self, Event, Options, Part, run_classifier};
use frazil::ops::train::Trained;
use frazil::train::comm::Comm;

use super::absl::{Flag, ON_CPU, Program, Values};
use super::training_log::TrainingLog;
use super::{casing, training_log};
use crate::cli::{self, Outcome};

/// Train, evaluate and predict with a classifier, as google-research/bert does it
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  frazil run_classifier --task_name=MRPC --do_eval=true \\
      --data_dir=glue_data/MRPC --vocab_file=vocab.txt \\
      --bert_config_file=bert_config.json --init_checkpoint=model.ckpt-343 \\
      --output_dir=out
  frazil run_classifier --task_name=CoLA --do_predict=true \\
      --data_dir=glue_data/CoLA --vocab_file=vocab.txt \\
      --bert_config_file=bert_config.json --init_checkpoint=model.ckpt-343 \\
      --max_seq_length=64 --output_dir=out"
)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// The program and its flags.
pub const PROGRAM: Program = Program {
    name: "run_classifier",
    about: "Trains, evaluates and predicts with a classifier, as google-research/bert does it.",
    flags: &[
        Flag::text("data_dir", None, "The folder of the task's .tsv files.").required(),
        Flag::text("bert_config_file", None, "The model's bert_config.json.").required(),
        Flag::text("task_name", None, "The task: cola, mnli, mrpc, xnli, sst-2, qnli, …")
            .required(),
        Flag::text("vocab_file", None, "The model's vocab.txt.").required(),
        Flag::text("output_dir", None, "Where results go, and a trained model is looked for.")
            .required(),
        Flag::text("init_checkpoint", None, "The model, if `output_dir` has none."),
        Flag::truth("do_lower_case", true, "Whether text is lowered: true for uncased models."),
        Flag::integer("max_seq_length", "128", "The most pieces of a sequence."),
        Flag::truth("do_train", false, "Whether to train on the train set."),
        Flag::truth("do_eval", false, "Whether to evaluate on the dev set."),
        Flag::truth("do_predict", false, "Whether to predict the test set."),
        Flag::integer("train_batch_size", "32", "Batch size of training."),
        Flag::integer("eval_batch_size", "8", "Batch size that `loss` is a mean over."),
        Flag::integer("predict_batch_size", "8", "Batch size of prediction."),
        Flag::float("learning_rate", "5e-05", "The rate after warm-up; it falls to 0 from there."),
        Flag::float("num_train_epochs", "3.0", "How often each example is trained on."),
        Flag::float("warmup_proportion", "0.1", "The part of training in which the rate grows."),
        Flag::integer("save_checkpoints_steps", "1000", "Steps between two checkpoints."),
        Flag::integer("iterations_per_loop", "1000", ON_CPU).without_effect(),
        Flag::truth("use_tpu", false, "Whether records are padded to whole batches."),
        Flag::text("tpu_name", None, ON_CPU).without_effect(),
        Flag::text("tpu_zone", None, ON_CPU).without_effect(),
        Flag::text("gcp_project", None, ON_CPU).without_effect(),
        Flag::text("master", None, ON_CPU).without_effect(),
        Flag::integer("num_tpu_cores", "8", ON_CPU).without_effect(),
        Flag::truth(
            "skip_bad_rows",
            false,
            "Leave out rows that cannot be used; not in the original.",
        ),
        Flag::integer("threads", "0", "Threads, 0 for one for each core; not in the original."),
        Flag::integer("seed", "12345", "Of all chance in training; not in the original."),
        Flag::truth("recompute", false, "Train in less memory; not in the original."),
        Flag::text(
            "export_saved_model",
            None,
            "Write the model as a SavedModel into a new folder below this one; not in the original.",
        ),
        Flag::integer(
            "export_batch_size",
            "1",
            "Sequences of a call of it, 0 for any number; not in the original.",
        ),
    ],
};

/// Runs the command.
pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    let values = match PROGRAM.start(&args.arguments, out)? {
        Ok(values) => values,
        Err(outcome) => return Ok(outcome),
    };
    cli::together(|comm| work(&values, comm))
}

/// Several processes train and evaluate together; the first one writes.
fn work(values: &Values, comm: &Arc<dyn Comm>) -> Result<Outcome> {
    let options = options(values, comm)?;
    let (do_train, export) = (values.truth("do_train"), values.path("export_saved_model"));
    let batch = training_log::export_batch(values)?;
    // What is wrong with these is said before hours are spent.
    let evaluates = options.do_eval || options.do_predict;
    if evaluates {
        run_classifier::check(&options)?;
    }
    if let Some(dir) = export.as_ref().filter(|_| comm.is_first() && (do_train || evaluates)) {
        check_place(dir)?;
    }
    let mut trained = None;
    if do_train {
        let of = training(values, &options, comm)?;
        let mut log = TrainingLog::new();
        let ran = classifier::train(&of, &mut |event| log.show(event))?;
        let Trained { steps, taken, stopped, .. } = ran.trained;
        log.ended(steps, taken, stopped);
        if stopped {
            if comm.is_first() {
                ran.write_report(&of.model, &of.schedule)?;
            }
            return Ok(Outcome::Done);
        }
        trained = Some((of, ran));
    }
    if evaluates || !(do_train || export.is_some()) {
        run_classifier(&options, &mut log)?;
    }
    if let Some((of, ran)) = trained.filter(|_| comm.is_first()) {
        ran.write_report(&of.model, &of.schedule)?;
    }
    if let Some(dir) = export.filter(|_| comm.is_first()) {
        let trained = training(values, &options, comm)?;
        training_log::exported(&classifier::export(&trained, None, &dir, batch)?);
    }
    Ok(Outcome::Done)
}

/// What the flags mean, checked in the original's order.
fn options(values: &Values, comm: &Arc<dyn Comm>) -> Result<Options, Error> {
    let lower = values.truth("do_lower_case");
    casing::check(lower, values.text("init_checkpoint"))?;
    let name = values.text("task_name").unwrap_or_default();
    let task = classifier::task(name).map_err(|error| Error::Usage {
        what: format!("Task not found: {}", name.to_lowercase()),
        hint: format!("{error}"),
    })?;
    Ok(Options {
        data_dir: values.needed("data_dir")?.into(),
        bert_config_file: values.needed("bert_config_file")?.into(),
        task,
        vocab_file: values.needed("vocab_file")?.into(),
        output_dir: values.needed("output_dir")?.into(),
        init_checkpoint: values.path("init_checkpoint"),
        do_lower_case: lower,
        max_seq_length: values.count("max_seq_length", 0)?,
        do_eval: values.truth("do_eval"),
        do_predict: values.truth("do_predict"),
        eval_batch_size: values.count("eval_batch_size", 0)?,
        predict_batch_size: values.count("predict_batch_size", 0)?,
        use_tpu: values.truth("use_tpu"),
        on_bad_row: match values.truth("skip_bad_rows") {
            true => OnBadRow::Skip,
            false => OnBadRow::Stop,
        },
        threads: training_log::threads(values)?,
        comm: Arc::clone(comm),
    })
}

/// What training needs beside.
fn training(
    values: &Values,
    options: &Options,
    comm: &Arc<dyn Comm>,
) -> Result<classifier::Options, Error> {
    Ok(classifier::Options {
        model: Model {
            bert_config_file: options.bert_config_file.clone(),
            vocab_file: options.vocab_file.clone(),
            do_lower_case: options.do_lower_case,
            init_checkpoint: options.init_checkpoint.clone(),
            output_dir: options.output_dir.clone(),
        },
        task: options.task,
        data_dir: options.data_dir.clone(),
        records: Vec::new(),
        max_seq_length: options.max_seq_length,
        schedule: training_log::schedule(values, options.threads, comm)?,
        on_bad_row: options.on_bad_row,
        evaluate: false,
        early_stop: None,
    })
}

/// The original's log.
fn log(event: Event<'_>) {
    let info = |text: String| say!("INFO:tensorflow:{text}");
    let list = |numbers: Vec<i32>| numbers.iter().map(i32::to_string).collect::<Vec<_>>().join(" ");
    match event {
        Event::Note(note) => say!("note: {note}"),
        Event::Skipped(path, rows) => {
            say!("{} bad rows of `{}` were skipped:", rows.len(), path.display());
            rows.iter().take(10).for_each(|row| say!("  {row}"));
        }
        Event::Restoring(path) => info(format!("Restoring parameters from {}", path.display())),
        Event::NoTrainedModel(what) => info(format!(
            "Could not find trained model in model_dir, running initialization to {what}."
        )),
        Event::Writing { index, total } => info(format!("Writing example {index} of {total}")),
        Event::Example { guid, tokens, features, label } => {
            info("*** Example ***".into());
            info(format!("guid: {guid}"));
            info(format!("tokens: {tokens}"));
            info(format!("input_ids: {}", list(features.features.input_ids())));
            info(format!("input_mask: {}", list(features.features.input_mask())));
            info(format!("segment_ids: {}", list(features.features.segment_ids())));
            let id = match features.target {
                Target::Class(class) => class.to_string(),
                Target::Score(score) => score.to_string(),
            };
            info(format!("label: {label} (id = {id})"));
        }
        Event::Running { what, total, actual, batch } => {
            info(match what {
                Part::Eval => "***** Running evaluation *****".into(),
                Part::Predict => "***** Running prediction*****".into(),
            });
            let padding = total - actual;
            info(format!("  Num examples = {total} ({actual} actual, {padding} padding)"));
            info(format!("  Batch size = {batch}"));
        }
        Event::Result(key, value) => {
            if key == "eval_accuracy" {
                info("***** Eval results *****".into());
            }
            info(format!("  {key} = {value}"));
        }
        Event::PredictResults => info("***** Predict results *****".into()),
    }
}

#[cfg(test)]
mod tests {
    use frazil::bert::glue::Task;

    use super::*;

    fn read(words: &[&str]) -> Result<Options, Error> {
        let needed = ["--data_dir=d", "--bert_config_file=c", "--vocab_file=v", "--output_dir=o"];
        let words = needed.iter().chain(words).map(|&word| word.into()).collect::<Vec<OsString>>();
        let values = PROGRAM.start(&words, &mut Vec::new()).unwrap().unwrap();
        let comm: Arc<dyn Comm> = Arc::new(frazil::train::comm::Solo);
        options(&values, &comm)
    }

    #[test]
    fn flags_have_the_originals_defaults() {
        let options = read(&["--task_name=MRPC", "--do_eval"]).unwrap();
        assert_eq!((options.task, options.max_seq_length), (Task::Mrpc, 128));
        assert_eq!((options.eval_batch_size, options.predict_batch_size), (8, 8));
        assert!(options.do_lower_case && options.do_eval && !options.do_predict);
        assert_eq!(options.init_checkpoint, None);
    }

    #[test]
    fn what_cannot_be_is_said_before_data_is_read() {
        let error = |words: &[&str]| read(words).unwrap_err().to_string();
        assert_eq!(error(&["--task_name=SNLI", "--do_eval"]), "Task not found: snli");
        let hint = read(&["--task_name=SNLI", "--do_eval"]).unwrap_err().hint().unwrap();
        assert!(hint.contains("RTE, WNLI") && !hint.contains("STS-B"), "{hint}");
        let cased = "--init_checkpoint=/m/cased_L-12_H-768_A-12/bert_model.ckpt";
        let said = error(&["--task_name=mrpc", cased]);
        assert!(said.starts_with("`--do_lower_case=True` does not fit"), "{said}");
        assert!(error(&["--task_name=mrpc", "--max_seq_length=-1"]).contains("is -1"));
    }
}
