//! Listing and reading a checkpoint of BERT-large's size: frazil against TensorFlow, and against
//! nothing but reading the file and summing it.
//!
//! The page cache is warm: the data file is read once before the first round. Every tensor's
//! checksum is checked by all.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use frazil_tf::bundle::{WriteOptions, data_path, index_path};
use serde::{Deserialize, Serialize};

use super::Options;
use super::report::{Comparison, Measure, Record, median, output};
use crate::large;
use crate::peers::python::{self, Base, Python};

/// What is measured on.
#[derive(Serialize)]
struct Subject {
    page_cache: &'static str,
    checkpoint: Checkpoint,
}

#[derive(Clone, Copy, Serialize)]
struct Checkpoint {
    variables: usize,
    parameters: usize,
    bytes: u64,
}

/// What a measure prints.
#[derive(Debug, Deserialize)]
struct Outcome {
    seconds: f64,
    /// 0 for the plain read.
    tensors: usize,
    bytes: u64,
}

/// Who runs what.
struct Bench {
    frazil: PathBuf,
    library: PathBuf,
    python: Python,
    prefix: PathBuf,
    checkpoint: Checkpoint,
}

/// Everything that one round measures; the names and meanings of the record.
const MEASURES: [(&str, &str, &str); 10] = [
    ("inspect", "s", "`frazil inspect`, from the start of the process to its end"),
    ("tensorflow_list", "s", "Python, `import tensorflow`, `tf.train.list_variables`: the same"),
    ("list", "s", "frazil's library: open and list"),
    ("tensorflow_list_call", "s", "`tf.train.list_variables` alone, the import not counted"),
    ("read", "s", "frazil's library: every tensor by name, checked, 1 thread"),
    ("read_threads", "s", "the same, all threads"),
    ("verify", "s", "frazil's library: check every tensor, keep none, all threads"),
    ("tensorflow_read", "s", "`tf.train.load_checkpoint`, `get_tensor` of every tensor, no import"),
    ("plain", "s", "read the data file in blocks of 1 MiB and sum it, 1 thread"),
    ("inspect_memory", "MB", "`frazil inspect`: peak resident memory"),
];

/// Prepares, measures, prints, and records unless the model is the small one.
pub fn run(options: &Options) -> Result<()> {
    let bench = Bench::prepare(options)?;
    let mut measures = MEASURES.map(|(name, unit, about)| Measure::new(name, unit, about));
    bench.round()?; // Warms the page cache, of the programs too.
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        for (measure, sample) in measures.iter_mut().zip(bench.round()?) {
            measure.add(sample);
        }
    }
    // The goals are for the large model: on a tiny one, starting a thread takes longer than reading.
    let comparisons = if options.small { Vec::new() } else { compare(&measures) };
    Record::new(
        "formats",
        &mut bench.python.script(SCRIPT),
        &["python", "numpy", "tensorflow"],
        Subject { page_cache: "warm", checkpoint: bench.checkpoint },
        measures,
        comparisons,
    )?
    .finish(!options.small)
}

const SCRIPT: &str = "bench_formats.py";

impl Bench {
    fn prepare(options: &Options) -> Result<Self> {
        let target = crate::target();
        let built = Command::new("cargo")
            .args(["build", "--release", "--package", "frazil", "--bin", "frazil"])
            .args(["--package", "frazil-tf", "--example", "checkpoint_speed"])
            .current_dir(crate::root())
            .status()?;
        ensure!(built.success(), "`cargo build --release` failed");
        let peers = target.join("peers");
        fs::create_dir_all(&peers)?;
        let base = Base::find(options.python)?;
        let python = Python::ready(&base, &peers.canonicalize()?, python::TENSORFLOW)?;
        let (name, size) = match options.small {
            true => ("small", large::SMALL),
            false => ("large", large::LARGE),
        };
        let prefix = target.join("bench").join(name).join("bert_model.ckpt");
        let table = large::table(size);
        let parameters = table.iter().map(|e| e.shape.iter().product::<usize>()).sum();
        let bytes = parameters as u64 * 4;
        let checkpoint = Checkpoint { variables: table.len(), parameters, bytes };
        // The writer names its files when they are complete, so one that is there is whole.
        let there = fs::metadata(data_path(&prefix, 0, 1)).is_ok_and(|data| data.len() == bytes);
        if !there || !index_path(&prefix).is_file() {
            eprintln!("writing `{}`", prefix.display());
            large::write(&prefix, &table, WriteOptions::default())?;
        }
        let program = |path: &str| {
            target.join("release").join(format!("{path}{}", std::env::consts::EXE_SUFFIX))
        };
        let (frazil, library) = (program("frazil"), program("examples/checkpoint_speed"));
        Ok(Self { frazil, library, python, prefix, checkpoint })
    }

    /// One sample of each of [`MEASURES`], in that order; frazil and TensorFlow take turns.
    fn round(&self) -> Result<[f64; 10]> {
        let inspect = self.timed(self.inspect())?.0;
        let (tensorflow_list, text) = self.timed(self.tensorflow("list"))?;
        let list_call = self.outcome(&text.1, 0)?;
        let bytes = self.checkpoint.bytes;
        let list = self.library("list", 0)?;
        let read = self.library("read", bytes)?;
        let tensorflow_read = self.outcome(&output(&mut self.tensorflow("read"))?.0, bytes)?;
        let plain = self.library("plain", bytes)?;
        let read_threads = self.library("read-threads", bytes)?;
        let verify = self.library("verify", bytes)?;
        let inspect_memory = self.memory()?;
        Ok([
            inspect,
            tensorflow_list,
            list,
            list_call,
            read,
            read_threads,
            verify,
            tensorflow_read,
            plain,
            inspect_memory,
        ])
    }

    fn inspect(&self) -> Command {
        let mut command = Command::new(&self.frazil);
        command.arg("inspect").arg(&self.prefix);
        command
    }

    fn tensorflow(&self, mode: &str) -> Command {
        let mut command = self.python.script(SCRIPT);
        command.arg(mode).arg(&self.prefix);
        command
    }

    /// Seconds from start to end, and what it printed; it must have named the variables.
    fn timed(&self, mut command: Command) -> Result<(f64, (String, String))> {
        let start = Instant::now();
        let text = output(&mut command)?;
        let seconds = start.elapsed().as_secs_f64();
        ensure!(
            text.0.contains("cls/seq_relationship/output_weights"),
            "the listing lists nothing"
        );
        Ok((seconds, text))
    }

    fn library(&self, measure: &str, bytes: u64) -> Result<f64> {
        let mut command = Command::new(&self.library);
        command.arg(measure).arg(&self.prefix);
        self.outcome(&output(&mut command)?.0, bytes)
    }

    /// The seconds of a run that did all of its work.
    fn outcome(&self, text: &str, bytes: u64) -> Result<f64> {
        let last = text.lines().last().unwrap_or_default();
        let outcome: Outcome =
            serde_json::from_str(last).with_context(|| format!("a measure printed `{text}`"))?;
        let all = outcome.tensors == self.checkpoint.variables || outcome.tensors == 0;
        ensure!(all && outcome.bytes == bytes, "a measure did not do its work: {outcome:?}");
        Ok(outcome.seconds)
    }

    fn memory(&self) -> Result<f64> {
        let mut command = self.python.script(SCRIPT);
        command.arg("rss").arg(&self.frazil).arg("inspect").arg(&self.prefix);
        let kibibytes: f64 =
            output(&mut command)?.0.trim().parse().context("no number from `rss`")?;
        Ok(kibibytes * 1024.0 / 1e6)
    }
}

fn compare(measures: &[Measure]) -> Vec<Comparison> {
    let median = |name: &str| median(measures, name);
    let ratio = |slow: &str, fast: &str| median(slow) / median(fast);
    vec![
        Comparison::at_least(
            "listing, process start to end: times faster than TensorFlow",
            ratio("tensorflow_list", "inspect"),
            5.0,
        ),
        Comparison::at_least(
            "listing, the call alone: times faster than TensorFlow",
            ratio("tensorflow_list_call", "list"),
            1.0,
        ),
        Comparison::at_least(
            "reading and checking, 1 thread: times faster than TensorFlow",
            ratio("tensorflow_read", "read"),
            1.0,
        ),
        Comparison::at_least(
            "checking only, all threads: times faster than TensorFlow",
            ratio("tensorflow_read", "verify"),
            1.0,
        ),
        Comparison::at_most(
            "reading and checking, 1 thread: times the plain read and sum",
            ratio("read", "plain"),
            1.5,
        ),
        Comparison::at_most(
            "checking only, all threads: times the plain read and sum",
            ratio("verify", "plain"),
            1.5,
        ),
        Comparison::at_most("`frazil inspect`, peak memory in MB", median("inspect_memory"), 100.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_find_their_measures() {
        let mut measures = MEASURES.map(|(name, unit, about)| Measure::new(name, unit, about));
        measures.iter_mut().for_each(|measure| measure.add(1.0));
        for comparison in compare(&measures) {
            assert_eq!(comparison.value, 1.0, "{}", comparison.what);
        }
    }
}
