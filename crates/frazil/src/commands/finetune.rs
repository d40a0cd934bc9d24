//! `frazil finetune classifier MODEL …`, `frazil finetune squad MODEL …`

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use frazil::Error;
use frazil::bert::glue::Task;
use frazil::bert::rows::OnBadRow;
use frazil::bert::squad::{FeatureOptions, PredictOptions};
use frazil::bert::tokenizer::{Casing, Vocabulary};
use frazil::ops::finetune::{Event, Model, Report, Schedule, check_place, classifier, squad};
use frazil::source::{Located, Need, locate};
use frazil::train::comm::Comm;
use frazil::train::optim::{self, Adam, Lamb, Method, Sgd};

use super::live::{Live, stopped};
use super::table::thousands;
use crate::cli::{self, Outcome};

/// Let a pre-trained BERT learn a task: classes of texts, or answers to questions
///
/// Every checkpoint is TensorFlow's, with the optimizer's state, and evaluated when it is written. A run
/// whose folder has a checkpoint goes on from there, as if it had never been stopped.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil finetune classifier uncased_L-12_H-768_A-12 --task mrpc \\
      --data glue/MRPC -o mrpc
  frazil finetune squad uncased_L-12_H-768_A-12 --train train-v1.1.json \\
      --dev dev-v1.1.json -o squad")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Classifier(Box<ClassifierArgs>),
    Squad(Box<SquadArgs>),
}

/// Learn the classes of a task of GLUE
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil finetune classifier uncased_L-12_H-768_A-12 --task mrpc \\
      --data glue/MRPC -o mrpc
  frazil finetune classifier bert_model.ckpt --task sst-2 --data glue/SST-2 \\
      -o sst --epochs 2 --early-stop 3")]
struct ClassifierArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// The task: cola, mnli, mrpc, qnli, qqp, rte, sst-2, wnli, xnli
    #[arg(long, value_parser = classifier::task)]
    task: Task,
    /// The folder with its .tsv files
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Train on these records instead of train.tsv: sequences, or packs by `frazil pack` (can be repeated)
    #[arg(long, value_name = "FILE")]
    records: Vec<PathBuf>,
    /// Pieces of a sequence at most
    #[arg(long, value_name = "N", default_value = "128")]
    max_seq_length: usize,
    /// Do not evaluate checkpoints on the dev set
    #[arg(long)]
    no_eval: bool,
    #[command(flatten)]
    training: TrainingArgs,
}

/// Learn to answer questions about texts, from SQuAD files
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil finetune squad uncased_L-12_H-768_A-12 --train train-v1.1.json \\
      --dev dev-v1.1.json -o squad
  frazil finetune squad bert_model.ckpt --train train-v2.0.json --v2 \\
      --batch-size 8 --accumulate 4 -o squad")]
struct SquadArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Questions with their answers
    #[arg(long, value_name = "FILE", required_unless_present = "records")]
    train: Option<PathBuf>,
    /// Train on these records instead: windows, or packs by `frazil pack` (can be repeated)
    #[arg(long, value_name = "FILE", conflicts_with = "train")]
    records: Vec<PathBuf>,
    /// Questions to evaluate checkpoints on
    #[arg(long, value_name = "FILE")]
    dev: Option<PathBuf>,
    /// Pieces of a window with its question
    #[arg(long, value_name = "N", default_value = "384")]
    max_seq_length: usize,
    /// From the start of a window to that of the next
    #[arg(long, value_name = "N", default_value = "128")]
    doc_stride: usize,
    /// Pieces of a question at most
    #[arg(long, value_name = "N", default_value = "64")]
    max_query_length: usize,
    /// Questions may have no answer, as in SQuAD 2.0
    #[arg(long)]
    v2: bool,
    #[command(flatten)]
    training: TrainingArgs,
}

#[derive(clap::Args)]
struct ModelArgs {
    /// The checkpoint to begin with, or its folder
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Where checkpoints, events and the report go
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    /// The configuration [default: bert_config.json beside the model]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The vocabulary [default: vocab.txt beside the model]
    #[arg(long, value_name = "FILE")]
    vocab: Option<PathBuf>,
    /// Keep upper case and accents [default: as the vocabulary suggests]
    #[arg(long, conflicts_with = "uncased")]
    cased: bool,
    /// Lower all text
    #[arg(long)]
    uncased: bool,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Training")]
struct TrainingArgs {
    /// How often each example is seen
    #[arg(long, value_name = "N", default_value = "3")]
    epochs: f64,
    /// Examples of a batch; packs, if records are of packs
    #[arg(long, value_name = "N", default_value = "32")]
    batch_size: usize,
    /// Batches whose gradients are added up for one step
    #[arg(long, value_name = "N", default_value = "1")]
    accumulate: usize,
    /// How gradients change weights
    #[arg(long, value_name = "NAME", value_enum, default_value = "bert")]
    optimizer: Optimizer,
    /// The part of a weight that goes at each step, times the learning rate; norms and biases stay
    #[arg(long, value_name = "X", default_value = "0.01")]
    weight_decay: f64,
    /// The learning rate after warm-up; it falls to 0 from there
    #[arg(long, value_name = "RATE", default_value = "5e-5")]
    learning_rate: f64,
    /// The part of all steps in which the rate grows
    #[arg(long, value_name = "PART", default_value = "0.1")]
    warmup: f64,
    /// Steps between two checkpoints
    #[arg(long, value_name = "N", default_value = "1000")]
    save_every: u64,
    /// Checkpoints to keep, the best beside them; 0 for all
    #[arg(long, value_name = "K", default_value = "5")]
    keep: usize,
    /// Stop after so many evaluations without a better score
    #[arg(long, value_name = "N")]
    early_stop: Option<std::num::NonZeroUsize>,
    /// The seed of the order of examples, of dropout and of new weights
    #[arg(long, default_value = "12345")]
    seed: u64,
    /// Compute again what gradients need instead of keeping it: less memory, more time
    #[arg(long)]
    recompute: bool,
    /// Leave out rows that cannot be used
    #[arg(long)]
    skip_bad_rows: bool,
    /// Write the best checkpoint, or the last, as a SavedModel into a new folder below this one
    #[arg(long, value_name = "DIR", alias = "export_saved_model")]
    export_saved_model: Option<PathBuf>,
    /// Sequences of a call of the SavedModel [default: any number]
    #[arg(long, value_name = "N", requires = "export_saved_model")]
    export_batch: Option<std::num::NonZeroUsize>,
    /// Threads [default: FRAZIL_THREADS, or one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// No progress
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Optimizer {
    /// AdamW as google-research/bert has it, without bias correction
    Bert,
    /// AdamW as published, and as PyTorch has it
    Adamw,
    /// LAMB as published, for large batches
    Lamb,
    /// Gradient descent with a momentum of 0.9
    Sgd,
}

impl Optimizer {
    /// With gradients clipped to a norm of 1, as the original does it.
    fn options(self, weight_decay: f64) -> optim::Options {
        let method = match self {
            Self::Bert => Method::Adam(Adam { weight_decay, ..Adam::BERT }),
            Self::Adamw => Method::Adam(Adam { weight_decay, ..Adam::DECOUPLED }),
            Self::Lamb => {
                let adam = Adam { weight_decay, ..Lamb::PLAIN.adam };
                Method::Lamb(Lamb { adam, ..Lamb::PLAIN })
            }
            Self::Sgd => Method::Sgd(Sgd { weight_decay, ..Sgd::PLAIN }),
        };
        optim::Options::new(method, Some(1.0))
    }
}

impl ModelArgs {
    /// The model, and what holds its files: those of a zip lie in a folder that goes with it.
    fn checked(self) -> Result<(Model, Located), Error> {
        let located = locate(&self.model, Need::Values)?;
        let beside = |given: Option<PathBuf>, name: &str, flag: &str| {
            given.or_else(|| located.beside(&[name])).ok_or_else(|| Error::Usage {
                what: format!("there is no `{name}` beside `{}`", located.path.display()),
                hint: format!("name it with `{flag}`"),
            })
        };
        let bert_config_file = beside(self.config, "bert_config.json", "--config")?;
        let vocab_file = beside(self.vocab, "vocab.txt", "--vocab")?;
        let do_lower_case = match (self.cased, self.uncased) {
            (true, _) => false,
            (_, true) => true,
            _ => Vocabulary::open(&vocab_file)?.guess_casing() == Casing::Lower,
        };
        let model = Model {
            bert_config_file,
            vocab_file,
            do_lower_case,
            init_checkpoint: Some(self.model),
            output_dir: self.output,
        };
        Ok((model, located))
    }
}

impl TrainingArgs {
    fn schedule(&self, comm: &Arc<dyn Comm>) -> Schedule {
        Schedule {
            batch_size: self.batch_size,
            accumulate: self.accumulate,
            optimizer: self.optimizer.options(self.weight_decay),
            learning_rate: self.learning_rate,
            epochs: self.epochs,
            warmup_proportion: self.warmup,
            save_every: self.save_every,
            keep: self.keep,
            seed: self.seed,
            recompute: self.recompute,
            threads: self.threads,
            comm: Arc::clone(comm),
            stop: cli::stop(),
        }
    }

    /// What cannot be exported to is said before anything is trained.
    fn check(&self, comm: &Arc<dyn Comm>) -> Result<(), Error> {
        match self.export_saved_model.as_ref().filter(|_| comm.is_first()) {
            Some(dir) => check_place(dir),
            None => Ok(()),
        }
    }

    /// Writes the SavedModel, if that is asked for.
    fn export(
        &self,
        comm: &Arc<dyn Comm>,
        report: &mut Report,
        write: impl FnOnce(&Path, &Path, Option<usize>) -> Result<(PathBuf, PathBuf), Error>,
    ) -> Result<(), Error> {
        let writes = comm.is_first() && !report.stopped;
        if let Some(dir) = self.export_saved_model.as_ref().filter(|_| writes) {
            let checkpoint = report.best.as_ref().unwrap_or(&report.checkpoint);
            let batch = self.export_batch.map(usize::from);
            report.saved_model = Some(write(checkpoint, dir, batch)?.1);
        }
        Ok(())
    }

    fn on_bad_row(&self) -> OnBadRow {
        if self.skip_bad_rows { OnBadRow::Skip } else { OnBadRow::Stop }
    }
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    cli::together(|comm| train(args, out, comm))
}

fn train(args: Args, out: &mut dyn Write, comm: &Arc<dyn Comm>) -> Result<Outcome> {
    let (report, json, exported) = match args.what {
        What::Classifier(args) => {
            let mut live = Live::new(args.training.quiet);
            let (model, _located) = args.model.checked()?;
            let options = classifier::Options {
                model,
                task: args.task,
                data_dir: args.data,
                records: args.records,
                max_seq_length: args.max_seq_length,
                schedule: args.training.schedule(comm),
                on_bad_row: args.training.on_bad_row(),
                evaluate: !args.no_eval,
                early_stop: args.training.early_stop.map(usize::from),
            };
            args.training.check(comm)?;
            let mut report = classifier::classifier(&options, &mut |event| show(&mut live, event))?;
            let exported = args.training.export(comm, &mut report, |checkpoint, dir, batch| {
                classifier::export(&options, Some(checkpoint), dir, batch)
            });
            (report, args.training.json, exported)
        }
        What::Squad(args) => {
            let mut live = Live::new(args.training.quiet);
            let (model, _located) = args.model.checked()?;
            let options = squad::Options {
                model,
                train_file: args.train.unwrap_or_default(),
                records: args.records,
                dev_file: args.dev,
                features: FeatureOptions {
                    max_seq_length: args.max_seq_length,
                    doc_stride: args.doc_stride,
                    max_query_length: args.max_query_length,
                    training: false,
                },
                predict: PredictOptions { version_2: args.v2, ..PredictOptions::default() },
                schedule: args.training.schedule(comm),
                on_bad_row: args.training.on_bad_row(),
                early_stop: args.training.early_stop.map(usize::from),
            };
            args.training.check(comm)?;
            let mut report = squad::squad(&options, &mut |event| show(&mut live, event))?;
            let exported = args.training.export(comm, &mut report, |checkpoint, dir, batch| {
                squad::export(&options, Some(checkpoint), dir, batch)
            });
            (report, args.training.json, exported)
        }
    };
    if !comm.is_first() {
        return Ok(Outcome::Done);
    }
    if report.stopped {
        say!("{}", stopped(report.steps));
    }
    if json {
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)?;
    } else {
        print(&report, out)?;
    }
    // What was trained is told first: it is there.
    exported?;
    Ok(Outcome::Done)
}

fn print(report: &Report, out: &mut dyn Write) -> Result<()> {
    let (steps, count) = (thousands(report.steps), thousands(report.data.count() as u64));
    let ended = match report {
        Report { early_stopped: true, .. } => ", ended early since scores got no better",
        Report { taken: 0, stopped: false, .. } => ", all of them before: nothing was left to do",
        _ => "",
    };
    writeln!(out, "{}: {steps} steps over {count} {}{ended}", report.task, report.data.unit())?;
    if report.skipped > 0 {
        writeln!(out, "{} rows could not be used", thousands(report.skipped as u64))?;
    }
    for of in &report.evaluations {
        let scores: Vec<String> = of.scores.iter().map(|(n, s)| format!("{n} {s:.4}")).collect();
        writeln!(out, "  step {}: {}", of.step, scores.join(", "))?;
    }
    if let Some(best) = &report.best {
        writeln!(out, "best checkpoint {}", best.display())?;
    }
    writeln!(out, "last checkpoint {}", report.checkpoint.display())?;
    if let Some(written) = &report.saved_model {
        writeln!(out, "SavedModel {}", written.display())?;
    }
    writeln!(out, "curves in {}", report.report.display())?;
    Ok(())
}

/// Says what happens.
fn show(live: &mut Live, event: Event<'_>) {
    match event {
        Event::Note(note) => live.note(&note),
        Event::Running { data, samples, batch, steps } => {
            let windows = if samples == data.count() {
                String::new()
            } else {
                format!(" in {} windows", thousands(samples as u64))
            };
            let (count, steps) = (thousands(data.count() as u64), thousands(steps));
            live.say(&format!("{count} {}{windows}, {steps} steps of {batch}", data.unit()));
        }
        Event::Train(event) => live.train(&event),
        Event::Evaluating(step) => live.say(&format!("evaluating step {step}")),
        Event::Evaluated(evaluation, is_best) => {
            let scores = evaluation.scores.iter();
            let scores: Vec<String> = scores.map(|(n, s)| format!("{n} {s:.4}")).collect();
            let best = if is_best { " (the best so far)" } else { "" };
            live.say(&format!("step {}: {}{best}", evaluation.step, scores.join(", ")));
        }
    }
}
