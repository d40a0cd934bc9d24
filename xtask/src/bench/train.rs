//! Fine-tuning of BERT-base: frazil against PyTorch, the same weights and batches, in turns.
//!
//! Two workloads of batches of 8: sequences of 128, which have no padding; and sequences as long as MRPC's,
//! which PyTorch pads to 128 as the recipe does. Both train with AdamW, dropout and clipping, in float32. Before
//! anything is timed, loss and norm of the gradients of a first batch are compared, without dropout.
//! `crates/frazil-train/examples/step_rounds.rs` and `xtask/peers/bench_train.py` are the two sides.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use frazil::bert::features::classifier::ClassifierInput;
use frazil::bert::glue::{ReadOptions, Split, Task};
use frazil::bert::tokenizer::{Casing, Tokenizer, Vocabulary};
use serde::Serialize;
use serde_json::{Value, json};

use super::engines::model::{self, Size};
use super::report::{Comparison, Measure, Record, median};
use crate::peers::python::{self, Base, Python};
use crate::peers::synthetic;

const DATA: &str = "data/glue/MRPC";
const VOCABULARY: &str = "data/vocab/bert_uncased_vocab.txt";
const SCRIPT: &str = "bench_train.py";
const THREADS: &str = "2";
const BATCH: usize = 8;
const LENGTH: usize = 128;
/// Steps of a round on sequences of 128, and on MRPC's.
const STEPS: [usize; 2] = [2, 4];
/// How far losses and norms may be apart, relatively.
const TOLERANCE: f64 = 1e-3;

/// What the command line says.
struct Options<'a> {
    rounds: usize,
    python: Option<&'a str>,
    data: Option<PathBuf>,
    vocabulary: Option<PathBuf>,
    quick: bool,
}

impl<'a> Options<'a> {
    fn parse(args: &[&'a str]) -> Result<Self> {
        let mut options =
            Self { rounds: 5, python: None, data: None, vocabulary: None, quick: false };
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("`{arg}` needs a value"));
            match arg {
                "--quick" => (options.quick, options.rounds) = (true, 1),
                "--python" => options.python = Some(value()?),
                "--data" => options.data = Some(value()?.into()),
                "--vocabulary" => options.vocabulary = Some(value()?.into()),
                "--rounds" => {
                    let rounds = value()?.parse().ok().filter(|n| *n > 0);
                    options.rounds = rounds.context("`--rounds` needs a number from 1")?;
                }
                other => bail!("no option `{other}`"),
            }
        }
        Ok(options)
    }
}

#[derive(Serialize)]
struct Subject {
    model: &'static str,
    batch: usize,
    /// The mean of MRPC's sequences.
    mrpc_mean_length: f64,
    /// Loss and norm of the gradients of the first batch, by frazil and by PyTorch.
    loss: [f64; 2],
    norm: [f64; 2],
}

const MEASURES: [(&str, &str, &str); 6] = [
    ("frazil", "s", "a step on 8 x 128"),
    ("torch", "s", "a step on 8 x 128"),
    ("frazil_mrpc", "s", "a step on 8 sequences of MRPC"),
    ("torch_mrpc", "s", "a step on 8 sequences of MRPC, padded to 128"),
    ("frazil_memory", "MB", "peak resident memory"),
    ("torch_memory", "MB", "peak resident memory"),
];

/// Prepares, measures, prints and records.
pub fn run(args: &[&str]) -> Result<()> {
    let options = Options::parse(args)?;
    let size = if options.quick { Size::TINY } else { Size::BASE };
    let example = build()?;
    let peers = crate::target().join("peers");
    fs::create_dir_all(&peers)?;
    let base = Base::find(options.python)?;
    let python = Python::ready(&base, &peers.canonicalize()?, python::PYTORCH)?;
    let folder = model::classifier(size)?;
    let lengths = mrpc_lengths(&options)?;
    let mut sides = [
        Side::start(Command::new(example).arg(&folder).arg(THREADS))?,
        Side::start(python.script(SCRIPT).arg(folder.join("huggingface")).arg(THREADS))?,
    ];
    let mut batches = shuffled(&lengths);
    let full = json!({ "batches": vec![vec![LENGTH; BATCH]; STEPS[0]], "pad": LENGTH });
    let mut subject = Subject {
        model: size.name,
        batch: BATCH,
        mrpc_mean_length: lengths.iter().sum::<usize>() as f64 / lengths.len() as f64,
        loss: [0.0; 2],
        norm: [0.0; 2],
    };
    let first = json!({ "batches": [batches.next()], "pad": LENGTH, "check": true });
    for (at, side) in sides.iter_mut().enumerate() {
        let answer = side.ask(&first)?;
        let number = |name: &str| answer[name].as_f64().with_context(|| format!("no `{name}`"));
        (subject.loss[at], subject.norm[at]) = (number("loss")?, number("norm")?);
    }
    for (name, [ours, theirs]) in [("loss", subject.loss), ("norm", subject.norm)] {
        let apart = (ours - theirs).abs() / theirs.abs();
        ensure!(apart <= TOLERANCE, "{name}: frazil finds {ours}, PyTorch {theirs}");
    }
    let mut measures = MEASURES.map(|(name, unit, about)| Measure::new(name, unit, about));
    // Once for nothing: memory is taken, plans are made.
    for side in &mut sides {
        side.seconds(&full)?;
    }
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        let lists: Vec<Vec<usize>> = batches.by_ref().take(STEPS[1]).collect();
        let mrpc = json!({ "batches": lists, "pad": LENGTH });
        // Who is first changes from round to round.
        for at in [round % 2, (round + 1) % 2] {
            measures[at].add(sides[at].seconds(&full)?);
        }
        for at in [round % 2, (round + 1) % 2] {
            measures[2 + at].add(sides[at].seconds(&mrpc)?);
        }
    }
    for (at, side) in sides.iter().enumerate() {
        measures[4 + at].add(side.memory_mb());
    }
    let comparisons = compare(&measures);
    let info = ["python", "torch", "transformers"];
    Record::new("train", &mut python.script(SCRIPT), &info, subject, measures, comparisons)?
        .finish(!options.quick)
}

fn build() -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--workspace", "--example", "step_rounds"]);
    let built = cargo.current_dir(crate::root()).status()?;
    ensure!(built.success(), "`cargo build --release` failed");
    let name = format!("examples/step_rounds{}", std::env::consts::EXE_SUFFIX);
    Ok(crate::target().join("release").join(name))
}

/// Pieces of every sequence of MRPC's train set, at most 128.
fn mrpc_lengths(options: &Options) -> Result<Vec<usize>> {
    let shared = crate::root().join("../shared");
    let named = |given: &Option<PathBuf>, name: &str, flag: &str| {
        let path = given.clone().unwrap_or_else(|| shared.join(name));
        ensure!(path.exists(), "`{}` is missing: name one with `{flag}`", path.display());
        Ok(path)
    };
    let data = named(&options.data, DATA, "--data")?;
    let vocabulary = Vocabulary::open(named(&options.vocabulary, VOCABULARY, "--vocabulary")?)?;
    let tokenizer = Tokenizer::new(vocabulary.into(), Casing::Lower)?;
    let rows = Task::Mrpc.read(Path::new(&data), Split::Train, &ReadOptions::default())?;
    let input = ClassifierInput::new(tokenizer, Task::Mrpc.labels(), LENGTH)?;
    let features = input.features_of_all(&rows.items)?;
    Ok(features.iter().map(|of| of.features.len()).collect())
}

/// Batches without end, in an order that is the same every time.
fn shuffled(lengths: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let mut order: Vec<(u64, usize)> = synthetic::stream(1).zip(lengths.iter().copied()).collect();
    order.sort_unstable();
    let lengths: Vec<usize> = order.into_iter().map(|(_, length)| length).collect();
    (0..).map(move |batch| {
        (0..BATCH).map(|i| lengths[(batch * BATCH + i) % lengths.len()]).collect()
    })
}

fn compare(measures: &[Measure]) -> Vec<Comparison> {
    let ratio = |slow: &str, fast: &str| median(measures, slow) / median(measures, fast);
    vec![
        Comparison::at_least("8 x 128: times faster than PyTorch", ratio("torch", "frazil"), 1.0),
        Comparison::at_least(
            "lengths of MRPC: times faster than PyTorch",
            ratio("torch_mrpc", "frazil_mrpc"),
            2.0,
        ),
        Comparison::at_most("peak memory, MB", median(measures, "frazil_memory"), 3000.0),
    ]
}

/// A process that answers. Dropping it ends it.
struct Side {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Side {
    fn start(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {command:?}"))?;
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().context("stdout is piped")?);
        let mut side = Self { child, stdin, stdout };
        side.answer()?;
        Ok(side)
    }

    fn ask(&mut self, request: &Value) -> Result<Value> {
        let stdin = self.stdin.as_mut().context("stdin is piped")?;
        writeln!(stdin, "{request}")?;
        stdin.flush()?;
        self.answer()
    }

    fn answer(&mut self) -> Result<Value> {
        let mut line = String::new();
        let read = self.stdout.read_line(&mut line)?;
        ensure!(read > 0, "a side has ended: {:?}", self.child.try_wait()?);
        serde_json::from_str(&line).with_context(|| format!("it said `{line}`"))
    }

    /// Of a step on average.
    fn seconds(&mut self, request: &Value) -> Result<f64> {
        let answer = self.ask(request)?;
        let seconds: Vec<f64> = serde_json::from_value(answer["seconds"].clone())?;
        ensure!(!seconds.is_empty(), "no step was taken");
        Ok(seconds.iter().sum::<f64>() / seconds.len() as f64)
    }

    fn memory_mb(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kb = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
        kb.unwrap_or(f64::NAN) * 1024.0 / 1e6
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_find_their_measures() {
        let mut measures = MEASURES.map(|(name, unit, about)| Measure::new(name, unit, about));
        measures.iter_mut().for_each(|measure| measure.add(1.0));
        let met: Vec<bool> = compare(&measures).iter().map(|of| of.met).collect();
        assert_eq!(met, [true, false, true]);
    }

    #[test]
    fn batches_use_every_length_and_go_on() {
        let lengths: Vec<usize> = (1..=20).collect();
        let batches: Vec<Vec<usize>> = shuffled(&lengths).take(5).collect();
        let mut seen: Vec<usize> = batches.concat();
        assert!(batches.iter().all(|batch| batch.len() == BATCH) && seen[..20] != lengths);
        seen.truncate(20);
        seen.sort_unstable();
        assert_eq!(seen, lengths);
    }
}
