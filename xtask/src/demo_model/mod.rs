//! `cargo xtask demo-model`: the embedded model, made again from nothing: text by a grammar, a vocabulary,
//! pre-training, and two fine-tunings, all by frazil's own operations.
//!
//! The same files come out on every run: seeds and the number of threads are fixed, and so are the
//! instructions, since other kernels add up in another order. Left out: speed; it takes about a
//! quarter of an hour on an idle core, and nothing needs it but a change of what is in here.

mod grammar;
mod passage;
mod write;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use frazil::bert::squad::{FeatureOptions, PredictOptions};
use frazil::bert::{BertConfig, Head, glue, pretrain_data, rows::OnBadRow};
use frazil::ops::{create_pretraining_data, finetune, train};
use frazil::train::run::Go;
use frazil::train::schedule::Bert;

use passage::{Passage, Writer};

/// Instructions that every CPU of the last ten years has.
const ISA: (&str, &str) = ("FRAZIL_ISA", "avx2");
const THREADS: usize = 1;
const SEED: u64 = 12345;
/// Pieces of the longest sequence.
const LENGTH: usize = 128;
/// What the embedded model may take in the repository.
const MOST_BYTES: u64 = 3_000_000;
/// What it has to reach on texts that it has not seen.
const LEAST_F1: f64 = 95.0;
const LEAST_ACCURACY: f64 = 0.95;

/// How much of everything.
struct Amount {
    /// Texts to pre-train on, and steps.
    texts: usize,
    pretraining_steps: u64,
    /// Texts with questions to train on, and how often they are seen in each round. The learning rate falls
    /// to 0 in every round: in the first one the model gets stuck where it knows what is asked for, but
    /// not of whom, and leaves that only when steps are long again.
    passages: usize,
    squad_epochs: [f64; 2],
    /// Pairs of sentences to train on, and how often they are seen.
    pairs: usize,
    classifier_epochs: f64,
}

const WHOLE: Amount = Amount {
    texts: 40_000,
    pretraining_steps: 20_000,
    passages: 25_000,
    squad_epochs: [5.0, 3.0],
    pairs: 40_000,
    classifier_epochs: 1.0,
};

/// Enough to see that every step works.
const QUICK: Amount = Amount {
    texts: 200,
    pretraining_steps: 20,
    passages: 100,
    squad_epochs: [1.0, 1.0],
    pairs: 100,
    classifier_epochs: 1.0,
};

pub fn run(args: &[&str]) -> Result<()> {
    let (mut quick, mut resume) = (false, false);
    for arg in args {
        match *arg {
            "--quick" => quick = true,
            "--resume" => resume = true,
            _ => bail!("`demo-model` takes `--quick` and `--resume`, not `{arg}`"),
        }
    }
    if std::env::var(ISA.0).as_deref() != Ok(ISA.1) {
        // The choice of kernels is made once, before anything else.
        let status = Command::new(std::env::current_exe()?)
            .arg("demo-model")
            .args(args)
            .env(ISA.0, ISA.1)
            .status()?;
        ensure!(status.success(), "making the model failed");
        return Ok(());
    }
    let folder = crate::target().join("demo-model");
    // A run that goes on takes the very steps that it would have taken.
    if folder.exists() && !resume {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    let making = Making { amount: if quick { QUICK } else { WHOLE }, folder };
    making.data()?;
    let pretrained = making.pretrain()?;
    let (squad, f1) = making.squad(&pretrained)?;
    let (classifier, accuracy) = making.classifier(&squad)?;
    println!("on texts that were not trained on: F1 {f1:.2}, accuracy {accuracy:.4}");
    let to = if quick {
        making.folder.join("assets")
    } else {
        ensure!(f1 >= LEAST_F1, "F1 is {f1:.2}, but {LEAST_F1} is wanted");
        ensure!(
            accuracy >= LEAST_ACCURACY,
            "accuracy is {accuracy:.4}, but {LEAST_ACCURACY} is wanted"
        );
        crate::root().join("crates/frazil/assets/demo")
    };
    let config = making.config()?;
    write::checkpoint(&pretrained, &config, Head::Pretraining, &to.join("bert_model.ckpt"))?;
    write::checkpoint(&squad, &config, Head::Squad, &to.join("squad/model.ckpt"))?;
    write::checkpoint(&classifier, &config, Head::Classifier, &to.join("classifier/model.ckpt"))?;
    for (from, name) in [
        ("bert_config.json", "bert_config.json"),
        ("vocab.txt", "vocab.txt"),
        ("sample.txt", "texts.txt"),
        ("squad/sample.json", "squad/train-v1.1.json"),
        ("squad/dev-v1.1.json", "squad/dev-v1.1.json"),
        ("classifier/sample.tsv", "classifier/train.tsv"),
        ("classifier/dev.tsv", "classifier/dev.tsv"),
    ] {
        std::fs::copy(making.path(from), to.join(name)).with_context(|| from.to_owned())?;
    }
    let bytes = size(&to)?;
    println!("{bytes} bytes in {}", to.display());
    ensure!(quick || bytes <= MOST_BYTES, "the embedded model may take {MOST_BYTES} bytes");
    Ok(())
}

/// Bytes of all files below a folder.
fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let is_folder = entry.file_type()?.is_dir();
        bytes += if is_folder { size(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}

struct Making {
    amount: Amount,
    folder: PathBuf,
}

impl Making {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> Result<()> {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().context("a file lies in a folder")?)?;
        std::fs::write(&path, text).with_context(|| path.display().to_string())
    }

    fn config(&self) -> Result<BertConfig> {
        Ok(BertConfig::read(self.path("bert_config.json"))?)
    }

    /// All texts; what is held out comes from the same writer, which never writes a text twice.
    fn data(&self) -> Result<()> {
        let vocabulary = write::vocabulary();
        self.write("vocab.txt", vocabulary.join("\n") + "\n")?;
        self.write("bert_config.json", write::config(vocabulary.len()))?;
        let mut writer = Writer::new(SEED);
        let mut passages = |count: usize, questions: usize| -> Vec<Passage> {
            (0..count).map(|_| writer.passage(questions)).collect()
        };
        let squad = |title, passages: &[Passage]| {
            serde_json::to_string(&passage::squad(title, passages)).map(|text| text + "\n")
        };
        self.write("squad/dev-v1.1.json", squad("held-out", &passages(60, 4))?)?;
        self.write("squad/judge.json", squad("judge", &passages(250, 4))?)?;
        let texts = passages(self.amount.texts, 4);
        self.write("texts.txt", passage::corpus(&texts))?;
        self.write("sample.txt", passage::corpus(&texts[..150]))?;
        // Where nobody else lives anywhere, there is nothing to learn about who lives where.
        let train =
            |at: usize| if at.is_multiple_of(4) { writer.passage(4) } else { writer.rivals(4) };
        let train: Vec<Passage> = (0..self.amount.passages).map(train).collect();
        self.write("squad/train.json", squad("train", &train)?)?;
        self.write("squad/sample.json", squad("train", &train[..80])?)?;
        let mut pairs = |count: usize| (0..count).map(|_| writer.pair()).collect::<Vec<_>>();
        self.write("classifier/dev.tsv", passage::mrpc(&pairs(200)))?;
        self.write("judge/dev.tsv", passage::mrpc(&pairs(1000)))?;
        let pairs = pairs(self.amount.pairs);
        self.write("judge/train.tsv", passage::mrpc(&pairs))?;
        self.write("classifier/sample.tsv", passage::mrpc(&pairs[..100]))
    }

    /// Pre-training: gives the last checkpoint.
    fn pretrain(&self) -> Result<PathBuf> {
        let records = self.path("texts.tfrecord");
        let create = pretrain_data::Options {
            max_seq_length: LENGTH,
            dupe_factor: 2,
            ..pretrain_data::Options::default()
        };
        let made = create_pretraining_data::run(
            create_pretraining_data::Options {
                input_file: self.path("texts.txt").display().to_string(),
                output_files: vec![records.clone()],
                vocab_file: self.path("vocab.txt"),
                do_lower_case: true,
                format: pretrain_data::Format::Plain,
                create,
            },
            |_| {},
        )?;
        println!("pre-training on {} instances of {} pieces", made.instances, made.pieces);
        let steps = self.amount.pretraining_steps;
        let schedule = Bert { rate: 2e-3, steps, warmup: steps / 20 };
        let output = self.path("pretrained");
        let options = train::Options {
            records: vec![records],
            keep: 1,
            threads: Some(THREADS),
            ..train::Options::bert(Head::Pretraining, self.config()?, schedule, output)
        };
        let mut show = Show::default();
        let trained = train::train(&options, &mut |event| {
            show.train(&event);
            Ok(Go::On)
        })?;
        Ok(trained.checkpoint)
    }

    fn model(&self, pretrained: &Path, output: &str) -> finetune::Model {
        finetune::Model {
            bert_config_file: self.path("bert_config.json"),
            vocab_file: self.path("vocab.txt"),
            do_lower_case: true,
            init_checkpoint: Some(pretrained.to_path_buf()),
            output_dir: self.path(output),
        }
    }

    fn schedule(epochs: f64) -> finetune::Schedule {
        finetune::Schedule {
            learning_rate: 7e-4,
            epochs,
            save_every: 1000,
            keep: 1,
            seed: SEED,
            threads: Some(THREADS),
            ..finetune::Schedule::default()
        }
    }

    /// Answers to questions: the last checkpoint, and its F1 on texts that it has not seen.
    fn squad(&self, pretrained: &Path) -> Result<(PathBuf, f64)> {
        let (mut checkpoint, mut f1) = (pretrained.to_path_buf(), 0.0);
        for (round, epochs) in self.amount.squad_epochs.into_iter().enumerate() {
            let options = finetune::squad::Options {
                model: self.model(&checkpoint, &format!("squad/round-{round}")),
                train_file: self.path("squad/train.json"),
                dev_file: Some(self.path("squad/judge.json")),
                features: FeatureOptions { max_seq_length: LENGTH, ..FeatureOptions::default() },
                predict: PredictOptions::default(),
                schedule: Self::schedule(epochs),
                records: Vec::new(),
                on_bad_row: OnBadRow::Stop,
                early_stop: None,
            };
            let mut show = Show::default();
            let report = finetune::squad::squad(&options, &mut |event| show.finetune(&event))?;
            (checkpoint, f1) = last(&report, "f1")?;
        }
        Ok((checkpoint, f1))
    }

    /// Pairs that say the same, from the model that knows who is meant: the last checkpoint, and its accuracy on pairs that it has not seen.
    fn classifier(&self, squad: &Path) -> Result<(PathBuf, f64)> {
        let options = finetune::classifier::Options {
            model: self.model(squad, "classifier/out"),
            task: glue::Task::Mrpc,
            data_dir: self.path("judge"),
            max_seq_length: LENGTH,
            schedule: Self::schedule(self.amount.classifier_epochs),
            records: Vec::new(),
            on_bad_row: OnBadRow::Stop,
            evaluate: true,
            early_stop: None,
        };
        let mut show = Show::default();
        let report =
            finetune::classifier::classifier(&options, &mut |event| show.finetune(&event))?;
        last(&report, "eval_accuracy")
    }
}

/// The last checkpoint, at which the learning rate has fallen to 0, and its score.
fn last(report: &finetune::Report, metric: &str) -> Result<(PathBuf, f64)> {
    let score = report.evaluations.last().and_then(|of| of.scores.get(metric).copied());
    Ok((report.checkpoint.clone(), score.context("the last checkpoint was not evaluated")?))
}

/// A line now and then.
#[derive(Default)]
struct Show {
    loss: f64,
    seconds: f64,
    tokens: usize,
}

impl Show {
    fn train(&mut self, event: &train::Event<'_>) {
        const EVERY: u64 = 250;
        let train::Event::Step(step, of, _) = event else { return };
        self.loss += step.report.loss / EVERY as f64;
        self.seconds += step.seconds;
        self.tokens += step.tokens;
        let taken = step.report.step + 1;
        if taken.is_multiple_of(EVERY) {
            let speed = self.tokens as f64 / self.seconds;
            println!("step {taken} of {of}: loss {:.4}, {speed:.0} pieces/s", self.loss);
            *self = Self::default();
        }
    }

    fn finetune(&mut self, event: &finetune::Event<'_>) {
        match event {
            finetune::Event::Train(event) => self.train(event),
            finetune::Event::Evaluated(evaluation, _) => {
                println!("step {}: {:?}", evaluation.step, evaluation.scores);
            }
            _ => {}
        }
    }
}
