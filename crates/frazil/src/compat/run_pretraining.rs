//! `run_pretraining.py` of google-research/bert: the same flags, checks, log and `eval_results.txt`. Records may be packed
//! ones, too. What ends the original with a traceback ends this with its message and exit code 1.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use frazil::bert::packing::Depth;
use frazil::bert::samples::{Kind, Limits, ReaderOptions, Sample, Shape, open_all};
use frazil::bert::{BertConfig, Head};
use frazil::ops::pretrain::{self, Event, evaluate};
use frazil::ops::train::{self, Evaluation, History};
use frazil::source::files_of_list;
use frazil::train::batch::Form;
use frazil::train::checkpoint::newest;
use frazil::train::comm::Comm;
use frazil::train::run::Go;
use frazil::train::schedule::Bert;
use frazil::{Error, Result};

use super::absl::{Flag, ON_CPU, Program, Values};
use super::training_log::{self, TrainingLog};
use crate::cli::{self, Outcome};

/// Pre-train and evaluate, with the flags of google-research/bert's run_pretraining.py
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  frazil run_pretraining --input_file='examples.tfrecord*' --output_dir=out \\
      --do_train=True --do_eval=True --bert_config_file=bert_config.json \\
      --num_train_steps=10000 --num_warmup_steps=100 --learning_rate=1e-4
  frazil run_pretraining --input_file=examples.tfrecord --output_dir=out \\
      --do_eval=True --bert_config_file=bert_config.json \\
      --init_checkpoint=model.ckpt-40"
)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// The program and its flags.
pub const PROGRAM: Program = Program {
    name: "run_pretraining",
    about: "Run masked LM/next sentence masked_lm pre-training for BERT.",
    flags: &[
        Flag::text("bert_config_file", None, "the model's bert_config.json").required(),
        Flag::text("input_file", None, "TFRecords, with commas between them; patterns are known")
            .required(),
        Flag::text("output_dir", None, "where checkpoints and scores go").required(),
        Flag::text("init_checkpoint", None, "the weights to begin with"),
        Flag::integer("max_seq_length", "128", "pieces of a sequence, as the records have them"),
        Flag::integer("max_predictions_per_seq", "20", "masked pieces of a sequence, as there"),
        Flag::truth("do_train", false, "train"),
        Flag::truth("do_eval", false, "evaluate the newest checkpoint"),
        Flag::integer(
            "train_batch_size",
            "32",
            "sequences of a step; packs, where they are packed",
        ),
        Flag::integer("eval_batch_size", "8", "the same in evaluation"),
        Flag::float("learning_rate", "5e-5", "the rate after warm-up; it falls to 0 from there"),
        Flag::integer("num_train_steps", "100000", "training steps"),
        Flag::integer("num_warmup_steps", "10000", "steps in which the rate grows"),
        Flag::integer("save_checkpoints_steps", "1000", "steps between two checkpoints"),
        Flag::integer("iterations_per_loop", "1000", ON_CPU).without_effect(),
        Flag::integer("max_eval_steps", "100", "batches of an evaluation"),
        Flag::truth("use_tpu", false, ON_CPU).without_effect(),
        Flag::text("tpu_name", None, ON_CPU).without_effect(),
        Flag::text("tpu_zone", None, ON_CPU).without_effect(),
        Flag::text("gcp_project", None, ON_CPU).without_effect(),
        Flag::text("master", None, ON_CPU).without_effect(),
        Flag::integer("num_tpu_cores", "8", ON_CPU).without_effect(),
        Flag::integer("threads", "0", "frazil's: threads, 0 for one for each core"),
        Flag::integer("seed", "12345", "frazil's: of all chance in training"),
        Flag::truth("recompute", false, "frazil's: train in less memory"),
    ],
};

/// Runs the command. The original's log goes to stderr.
pub fn run(args: Args, out: &mut dyn Write) -> anyhow::Result<Outcome> {
    let values = match PROGRAM.start(&args.arguments, out)? {
        Ok(values) => values,
        Err(outcome) => return Ok(outcome),
    };
    match cli::together(|comm| Ok(work(&values, comm)?)) {
        Ok(()) => Ok(Outcome::Done),
        Err(error) => {
            cli::report(&error);
            Ok(Outcome::CheckFailed)
        }
    }
}

fn wrong(what: String, hint: &str) -> Error {
    Error::Usage { what, hint: hint.into() }
}

fn info(text: &str) {
    say!("INFO:tensorflow:{text}");
}

fn work(values: &Values, comm: &Arc<dyn Comm>) -> Result<()> {
    let info = |text: &str| {
        if comm.is_first() {
            info(text);
        }
    };
    let (do_train, do_eval) = (values.truth("do_train"), values.truth("do_eval"));
    if !do_train && !do_eval {
        return Err(wrong(
            "At least one of `do_train` or `do_eval` must be True.".into(),
            "add `--do_train=true`",
        ));
    }
    let asked = Asked::read(values)?;
    info("*** Input Files ***");
    asked.records.iter().for_each(|file| info(&format!("  {}", file.display())));
    let mut trained = None;
    if do_train {
        info("***** Running training *****");
        info(&format!("  Batch size = {}", asked.train_batch_size));
        let train = asked.training(values, comm)?;
        let options = pretrain::Options { train, evaluation: None, most_sequences: None };
        let mut log = TrainingLog::new();
        let done = pretrain::pretrain(&options, &mut |event| {
            if let Event::Train(event) = event {
                log.training(&event);
            }
            Ok(Go::On)
        })?;
        log.ended(done.steps, done.taken, done.stopped);
        if done.stopped {
            return Ok(());
        }
        trained = Some((options, done.trained));
    }
    if do_eval {
        info("***** Running evaluation *****");
        info(&format!("  Batch size = {}", asked.eval_batch_size));
        let before = History::read(&asked.output_dir)?.evaluations;
        evaluate(&asked, values.count("max_eval_steps", 1)?, comm, &info)?;
        if let Some((options, trained)) = trained.filter(|_| comm.is_first()) {
            pretrain::write_report(&options, &trained, &before)?;
        }
    }
    Ok(())
}

/// What training and evaluation have in common.
struct Asked {
    config: BertConfig,
    records: Vec<PathBuf>,
    output_dir: PathBuf,
    init_checkpoint: Option<PathBuf>,
    shape: Shape,
    train_batch_size: usize,
    eval_batch_size: usize,
    threads: Option<usize>,
}

impl Asked {
    fn read(values: &Values) -> Result<Self> {
        let config = BertConfig::read(values.needed("bert_config_file")?)?;
        let records = files_of_list(values.needed("input_file")?)?;
        let shape = Shape {
            max_length: values.count("max_seq_length", 1)?,
            max_predictions: values.count("max_predictions_per_seq", 1)?,
            ..Shape::default()
        };
        let asked = Self {
            config,
            records,
            output_dir: values.needed("output_dir")?.into(),
            init_checkpoint: values.path("init_checkpoint"),
            shape,
            train_batch_size: values.count("train_batch_size", 1)?,
            eval_batch_size: values.count("eval_batch_size", 1)?,
            threads: training_log::threads(values)?,
        };
        asked.check()?;
        Ok(asked)
    }

    /// Whether the records are what the flags say.
    fn check(&self) -> Result<()> {
        let Shape { max_length, max_predictions, .. } = self.shape;
        let positions = self.config.max_position_embeddings;
        for file in open_all(&self.records, self.shape)? {
            // A pack may be longer than any of its sequences, each of which begins at position 0.
            if !file.kind().is_packed() && max_length > positions {
                let what = format!(
                    "`--max_seq_length` is {max_length}, and the model has {positions} positions"
                );
                return Err(wrong(what, &format!("give {positions} or less")));
            }
            let path = file.path();
            if file.holds() != Kind::Pretraining {
                let (path, found) = (path.to_path_buf(), file.holds());
                let expected = Kind::Pretraining;
                return Err(frazil::bert::Error::OtherKind { path, expected, found }.into());
            }
            let differs = |flag: &str, said: usize, found: usize| {
                let what = format!("`--{flag}` is {said}, and `{}` has {found}", path.display());
                wrong(what, &format!("give `--{flag}={found}`"))
            };
            if file.padded_len() != max_length {
                return Err(differs("max_seq_length", max_length, file.padded_len()));
            }
            if !file.kind().is_packed()
                && let Some(Sample::Pretraining(sample)) = file.samples(0)?.first()
                && sample.max_predictions != max_predictions
            {
                let found = sample.max_predictions;
                return Err(differs("max_predictions_per_seq", max_predictions, found));
            }
        }
        Ok(())
    }

    fn reading(&self, packs: usize) -> ReaderOptions {
        ReaderOptions {
            shape: self.shape,
            packs,
            depth: Depth::AtMost(1),
            repeat: true,
            limits: Limits::of(&self.config, 2),
            ..ReaderOptions::default()
        }
    }

    fn training(&self, values: &Values, comm: &Arc<dyn Comm>) -> Result<train::Options> {
        let rate = Bert {
            rate: values.float("learning_rate"),
            steps: values.count("num_train_steps", 1)?,
            warmup: values.count("num_warmup_steps", 0)?,
        };
        let seed = values.integer("seed") as u64;
        let reading = ReaderOptions { shuffle: Some(seed), ..self.reading(self.train_batch_size) };
        let (config, folder) = (self.config.clone(), self.output_dir.clone());
        Ok(train::Options {
            init_checkpoint: self.init_checkpoint.clone(),
            records: self.records.clone(),
            reading,
            save_every: values.count("save_checkpoints_steps", 1)?,
            seed,
            recompute: values.truth("recompute"),
            threads: self.threads,
            comm: Arc::clone(comm),
            stop: cli::stop(),
            ..train::Options::bert(Head::Pretraining, config, rate, folder)
        })
    }
}

/// Evaluates the newest checkpoint, and writes `eval_results.txt`.
fn evaluate(asked: &Asked, steps: u64, comm: &Arc<dyn Comm>, info: &dyn Fn(&str)) -> Result<()> {
    let newest = newest(&asked.output_dir)?;
    let checkpoint = newest.clone().or_else(|| asked.init_checkpoint.clone());
    let checkpoint = checkpoint.ok_or_else(|| {
        let folder = asked.output_dir.display();
        wrong(
            format!("Could not find trained model in model_dir: {folder}."),
            "train first, or give `--init_checkpoint`",
        )
    })?;
    info(&format!("Restoring parameters from {}", checkpoint.display()));
    let options = evaluate::Options {
        config: asked.config.clone(),
        formulas: Default::default(),
        head: Head::Pretraining,
        records: asked.records.clone(),
        reading: asked.reading(asked.eval_batch_size),
        form: Form::default(),
        batches: Some(steps),
        threads: asked.threads,
        plans: None,
    };
    let scores = evaluate::checkpoint(&checkpoint, options, Arc::clone(comm))?;
    if !comm.is_first() {
        return Ok(());
    }
    let lines = scores.write(&asked.output_dir)?;
    if newest.is_some() {
        // Where Estimator has it, too.
        let step = scores.global_step.max(0) as u64;
        let evaluation = Evaluation { step, scores: scores.scores.values, judged_on: None };
        History::evaluated(&asked.output_dir, &evaluation)?;
    }
    info("***** Eval results *****");
    lines.iter().for_each(|line| info(&format!("  {line}")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use frazil::train::comm::Solo;

    use super::*;

    #[test]
    fn flags_have_the_originals_defaults() {
        let words = ["--bert_config_file=c", "--input_file=i", "--output_dir=o"];
        let words: Vec<OsString> = words.map(Into::into).to_vec();
        let values = PROGRAM.start(&words, &mut Vec::new()).unwrap().unwrap();
        let integers = [
            ("max_seq_length", 128),
            ("max_predictions_per_seq", 20),
            ("train_batch_size", 32),
            ("eval_batch_size", 8),
            ("num_train_steps", 100_000),
            ("num_warmup_steps", 10_000),
            ("save_checkpoints_steps", 1000),
            ("iterations_per_loop", 1000),
            ("max_eval_steps", 100),
            ("num_tpu_cores", 8),
            ("threads", 0),
        ];
        for (name, value) in integers {
            assert_eq!(values.integer(name), value, "{name}");
        }
        assert_eq!(values.float("learning_rate"), 5e-5);
        assert!(!values.truth("do_train") && !values.truth("do_eval"));
        let said = work(&values, &(Arc::new(Solo) as Arc<dyn Comm>)).unwrap_err().to_string();
        assert_eq!(said, "At least one of `do_train` or `do_eval` must be True.");
    }
}
