//! A SQuAD file to features: frazil against the original's `read_squad_examples` and
//! `convert_examples_to_features`, the same file, in turns.
//!
//! The original is not part of this repository: `--original DIR` names a checkout of
//! google-research/bert. Its two functions are run as they are, with stand-ins for the little of
//! TensorFlow that they use (`xtask/peers/bench_squad.py`). Timed inside the processes: from the
//! file to the list of features. The ids of both are summed up and must agree.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::machine::first_line;
use super::report::{Comparison, Measure, Record, median, output};
use crate::peers::python::Base;

const DATA: &str = "data/squad/dev-v1.1.json";
const VOCABULARY: &str = "data/vocab/bert_uncased_vocab.txt";
const SCRIPT: &str = "bench_squad.py";
/// The project's own demand.
const GOAL: f64 = 30.0;

/// What the command line says.
struct Options<'a> {
    rounds: usize,
    python: Option<&'a str>,
    original: PathBuf,
    data: Option<PathBuf>,
    vocabulary: Option<PathBuf>,
    quick: bool,
}

impl<'a> Options<'a> {
    fn parse(args: &[&'a str]) -> Result<Self> {
        let (mut rounds, mut python, mut quick) = (5, None, false);
        let (mut original, mut data, mut vocabulary) = (None, None, None);
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("`{arg}` needs a value"));
            match arg {
                "--quick" => (quick, rounds) = (true, 1),
                "--python" => python = Some(*value()?),
                "--original" => original = Some(PathBuf::from(value()?)),
                "--data" => data = Some(value()?.into()),
                "--vocabulary" => vocabulary = Some(value()?.into()),
                "--rounds" => {
                    let number = value()?.parse().ok().filter(|n| *n > 0);
                    rounds = number.context("`--rounds` needs a number from 1")?;
                }
                other => bail!("no option `{other}`"),
            }
        }
        let original = original
            .context("`--original DIR` is needed: a checkout of google-research/bert")?
            .canonicalize()
            .context("`--original`: no such folder")?;
        for file in ["run_squad.py", "tokenization.py"] {
            ensure!(original.join(file).is_file(), "`{}` has no {file}", original.display());
        }
        Ok(Self { rounds, python, original, data, vocabulary, quick })
    }
}

#[derive(Serialize)]
struct Subject {
    data: Data,
}

#[derive(Clone, Copy, Serialize)]
struct Data {
    questions: usize,
    features: usize,
}

/// What a process prints.
#[derive(Deserialize)]
struct Outcome {
    read: Vec<f64>,
    build: Vec<f64>,
    questions: usize,
    features: usize,
    sum: u64,
}

impl Outcome {
    /// The middle time to read, to build, and for both.
    fn seconds(&self) -> Result<[f64; 3]> {
        let middle = |mut seconds: Vec<f64>| {
            seconds.sort_by(f64::total_cmp);
            seconds.get(seconds.len() / 2).copied().context("no time was taken")
        };
        let both = self.read.iter().zip(&self.build).map(|(read, build)| read + build).collect();
        Ok([middle(self.read.clone())?, middle(self.build.clone())?, middle(both)?])
    }
}

const MEASURES: [(&str, &str); 9] = [
    ("frazil_read", "`read_examples`"),
    ("frazil_build", "`build_features`, 1 thread"),
    ("frazil", "both, 1 thread"),
    ("frazil_read_2", "`read_examples`"),
    ("frazil_build_2", "`build_features`, 2 threads"),
    ("frazil_2", "both, 2 threads"),
    ("original_read", "`read_squad_examples`"),
    ("original_build", "`convert_examples_to_features`"),
    ("original", "both"),
];

struct Bench {
    program: PathBuf,
    base: Base,
    original: PathBuf,
    data: PathBuf,
    vocabulary: PathBuf,
}

/// Prepares, measures, prints and records.
pub fn run(args: &[&str]) -> Result<()> {
    let options = Options::parse(args)?;
    let bench = Bench::prepare(&options)?;
    let mut measures = MEASURES.map(|(name, about)| Measure::new(name, "s", about));
    let mut data = Data { questions: 0, features: 0 };
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        let outcomes = [bench.frazil(1)?, bench.frazil(2)?, bench.original()?];
        let [first, .., original] = &outcomes;
        let about = |outcome: &Outcome| (outcome.questions, outcome.features, outcome.sum);
        ensure!(
            about(first) == about(original),
            "frazil's questions, features and sum of ids are {:?}, the original's {:?}",
            about(first),
            about(original)
        );
        data = Data { questions: first.questions, features: first.features };
        for (outcome, measures) in outcomes.iter().zip(measures.chunks_mut(3)) {
            for (measure, seconds) in measures.iter_mut().zip(outcome.seconds()?) {
                measure.add(seconds);
            }
        }
    }
    let comparisons = compare(&measures);
    let folder = options.original.to_string_lossy();
    Record::new(
        "squad",
        &mut bench.base.script(SCRIPT),
        &["python"],
        Subject { data },
        measures,
        comparisons,
    )?
    // The commit of the original, if it is a checkout.
    .with("original", first_line("git", &["-C", &folder, "describe", "--always"]))
    .finish(!options.quick)
}

impl Bench {
    fn prepare(options: &Options) -> Result<Self> {
        let example = "squad_feature_speed";
        let built = Command::new("cargo")
            .args(["build", "--release", "--package", "frazil-bert", "--example", example])
            .current_dir(crate::root())
            .status()?;
        ensure!(built.success(), "`cargo build --release` failed");
        let shared = crate::root().join("../shared");
        let file = |chosen: &Option<PathBuf>, name: &str, flag: &str| {
            let path = chosen.clone().unwrap_or_else(|| shared.join(name));
            ensure!(path.is_file(), "`{}` is missing: name one with `{flag}`", path.display());
            Ok(path)
        };
        let name = format!("examples/{example}{}", std::env::consts::EXE_SUFFIX);
        Ok(Self {
            program: crate::target().join("release").join(name),
            base: Base::find(options.python)?,
            original: options.original.clone(),
            data: file(&options.data, DATA, "--data")?,
            vocabulary: file(&options.vocabulary, VOCABULARY, "--vocabulary")?,
        })
    }

    /// Three times in a process, of which the middle counts.
    fn frazil(&self, threads: usize) -> Result<Outcome> {
        let mut command = Command::new(&self.program);
        command.arg(&self.data).arg(&self.vocabulary).arg(threads.to_string()).arg("3");
        Ok(serde_json::from_str(&output(&mut command)?.0)?)
    }

    /// Once: it takes the better part of a minute.
    fn original(&self) -> Result<Outcome> {
        let mut command = self.base.script(SCRIPT);
        command.arg("features").args([&self.original, &self.data, &self.vocabulary]).arg("1");
        Ok(serde_json::from_str(&output(&mut command)?.0)?)
    }
}

fn compare(measures: &[Measure]) -> Vec<Comparison> {
    let ratio = |fast: &str| median(measures, "original") / median(measures, fast);
    vec![
        Comparison::at_least("1 thread: times faster than the original", ratio("frazil"), GOAL),
        Comparison::at_least("2 threads: times faster than the original", ratio("frazil_2"), GOAL),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_find_their_measures() {
        let mut measures = MEASURES.map(|(name, about)| Measure::new(name, "s", about));
        measures.iter_mut().for_each(|measure| measure.add(1.0));
        for comparison in compare(&measures) {
            assert_eq!((comparison.value, comparison.met), (1.0, false), "{}", comparison.what);
        }
    }

    #[test]
    fn the_original_must_be_named() {
        let refused = |args: &[&str]| format!("{:#}", Options::parse(args).err().unwrap());
        assert!(refused(&["--quick"]).contains("google-research/bert"));
        let folder = env!("CARGO_MANIFEST_DIR");
        assert!(refused(&["--original", folder]).contains("has no run_squad.py"));
        assert!(refused(&["--rounds", "0"]).contains("from 1"));
    }

    #[test]
    fn times_are_added_run_by_run() {
        let outcome = Outcome {
            read: vec![1.0, 3.0, 2.0],
            build: vec![10.0, 30.0, 5.0],
            questions: 0,
            features: 0,
            sum: 0,
        };
        assert_eq!(outcome.seconds().unwrap(), [2.0, 10.0, 11.0]);
    }
}
