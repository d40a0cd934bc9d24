//! English text to word pieces: frazil against Hugging Face's `tokenizers`, on one and on two
//! threads, the same texts, in turns.
//!
//! Timed inside the processes: texts and vocabulary are in memory, the result is a list of ids
//! and places for each text. Each process cuts all texts three times in a round, and the middle
//! time counts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::report::{Comparison, Measure, Record, median, output};
use crate::peers::python::{self, Base, Python};

/// English texts of the shared data, beside what is read out of SQuAD.
const WIKI: &str = "data/wiki/mlcommons_sample";
const SQUAD: [&str; 2] = ["data/squad/dev-v1.1.json", "data/squad/train-v1.1-head.json"];
const VOCABULARY: &str = "data/vocab/bert_uncased_vocab.txt";
/// Less text than this says little.
const MEGABYTES: usize = 5;
/// How often a process cuts all texts.
const REPEATS: &str = "3";

/// What the command line says.
struct Options<'a> {
    rounds: usize,
    python: Option<&'a str>,
    texts: Option<PathBuf>,
    vocabulary: Option<PathBuf>,
    quick: bool,
}

impl<'a> Options<'a> {
    fn parse(args: &[&'a str]) -> Result<Self> {
        let mut options =
            Self { rounds: 5, python: None, texts: None, vocabulary: None, quick: false };
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("`{arg}` needs a value"));
            match arg {
                "--quick" => (options.quick, options.rounds) = (true, 1),
                "--python" => options.python = Some(value()?),
                "--texts" => options.texts = Some(value()?.into()),
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
    texts: Texts,
}

#[derive(Clone, Copy, Serialize)]
struct Texts {
    bytes: usize,
    lines: usize,
    pieces: usize,
}

/// What a process prints.
#[derive(Deserialize)]
struct Outcome {
    seconds: Vec<f64>,
    pieces: usize,
    bytes: usize,
}

/// In the order of a round.
const MEASURES: [(&str, &str, &str); 6] = [
    ("frazil", "MB/s", "`Tokenizer::encode_batch`, 1 thread"),
    ("tokenizers", "MB/s", "`encode_batch`, 1 thread"),
    ("tokenizers_fast", "MB/s", "`encode_batch_fast`, which gives no places, 1 thread"),
    ("frazil_2", "MB/s", "`Tokenizer::encode_batch`, 2 threads"),
    ("tokenizers_2", "MB/s", "`encode_batch`, 2 threads"),
    ("tokenizers_fast_2", "MB/s", "`encode_batch_fast`, 2 threads"),
];

struct Bench {
    program: PathBuf,
    python: Python,
    vocabulary: PathBuf,
    texts: PathBuf,
}

/// Prepares, measures, prints and records.
pub fn run(args: &[&str]) -> Result<()> {
    let options = Options::parse(args)?;
    let bench = Bench::prepare(&options)?;
    let mut measures = MEASURES.map(|(name, unit, about)| Measure::new(name, unit, about));
    let text = fs::read_to_string(&bench.texts)?;
    let mut texts = Texts { bytes: text.len(), lines: text.split('\n').count(), pieces: 0 };
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        for (i, measure) in measures.iter_mut().enumerate() {
            let threads = i / 3 + 1;
            let outcome = if i % 3 == 0 {
                let outcome = bench.frazil(threads)?;
                texts.pieces = outcome.pieces;
                outcome
            } else {
                bench.tokenizers(threads, i % 3 == 2)?
            };
            ensure!(outcome.bytes == texts.bytes, "{}: read other texts", measure.name);
            let apart = outcome.pieces.abs_diff(texts.pieces);
            ensure!(
                apart * 1000 <= texts.pieces,
                "{}: {} pieces where frazil finds {}",
                measure.name,
                outcome.pieces,
                texts.pieces
            );
            let mut seconds = outcome.seconds;
            seconds.sort_by(f64::total_cmp);
            let middle = seconds.get(seconds.len() / 2).context("no time was taken")?;
            measure.add(texts.bytes as f64 / 1e6 / middle);
        }
    }
    let comparisons = compare(&measures);
    Record::new(
        "tokenize",
        &mut bench.python.script(SCRIPT),
        &["python", "tokenizers"],
        Subject { texts },
        measures,
        comparisons,
    )?
    .finish(!options.quick)
}

const SCRIPT: &str = "bench_tokenize.py";

impl Bench {
    fn prepare(options: &Options) -> Result<Self> {
        let target = crate::target();
        let built = Command::new("cargo")
            .args(["build", "--release", "--package", "frazil-bert", "--example", "tokenize_speed"])
            .current_dir(crate::root())
            .status()?;
        ensure!(built.success(), "`cargo build --release` failed");
        let peers = target.join("peers");
        fs::create_dir_all(&peers)?;
        let base = Base::find(options.python)?;
        let python = Python::ready(&base, &peers.canonicalize()?, python::TOKENIZERS)?;
        let shared = crate::root().join("../shared");
        let vocabulary = options.vocabulary.clone().unwrap_or_else(|| shared.join(VOCABULARY));
        ensure!(
            vocabulary.is_file(),
            "`{}` is missing: name one with `--vocabulary`",
            vocabulary.display()
        );
        let texts = match &options.texts {
            Some(texts) => texts.clone(),
            None => {
                let texts = target.join("bench/english.txt");
                fs::create_dir_all(target.join("bench"))?;
                fs::write(&texts, english(&shared)?)?;
                texts
            }
        };
        let name = format!("examples/tokenize_speed{}", std::env::consts::EXE_SUFFIX);
        let program = target.join("release").join(name);
        Ok(Self { program, python, vocabulary, texts })
    }

    fn frazil(&self, threads: usize) -> Result<Outcome> {
        let mut command = Command::new(&self.program);
        command.arg(&self.vocabulary).arg(&self.texts).arg(threads.to_string()).arg(REPEATS);
        Ok(serde_json::from_str(&output(&mut command)?.0)?)
    }

    fn tokenizers(&self, threads: usize, fast: bool) -> Result<Outcome> {
        let mut command = self.python.script(SCRIPT);
        command
            .env("RAYON_NUM_THREADS", threads.to_string())
            .env("TOKENIZERS_PARALLELISM", "true")
            .arg("speed")
            .arg(&self.vocabulary)
            .arg(&self.texts)
            .arg(REPEATS)
            .args(fast.then_some("fast"));
        Ok(serde_json::from_str(&output(&mut command)?.0)?)
    }
}

/// Wikipedia, and the paragraphs and questions of SQuAD; one text in a line.
pub fn english(shared: &Path) -> Result<String> {
    let missing = || format!("no texts in `{}`: name some with `--texts`", shared.display());
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(shared.join(WIKI)).with_context(missing)? {
        files.push(entry?.path());
    }
    files.sort();
    let mut lines = Vec::new();
    for file in files {
        let text = fs::read_to_string(file)?;
        let prose = |line: &&str| !line.is_empty() && !line.starts_with('<');
        lines.extend(text.lines().filter(prose).map(str::to_owned));
    }
    for name in SQUAD {
        let data: Value = serde_json::from_slice(&fs::read(shared.join(name))?)?;
        for article in data["data"].as_array().into_iter().flatten() {
            for paragraph in article["paragraphs"].as_array().into_iter().flatten() {
                let questions = paragraph["qas"].as_array().into_iter().flatten();
                let texts = questions.map(|question| &question["question"]);
                let texts = std::iter::once(&paragraph["context"]).chain(texts);
                lines.extend(texts.filter_map(Value::as_str).map(|text| text.replace('\n', " ")));
            }
        }
    }
    let text = lines.join("\n");
    ensure!(text.len() >= MEGABYTES * 1_000_000, "only {} bytes of text", text.len());
    Ok(text)
}

fn compare(measures: &[Measure]) -> Vec<Comparison> {
    let ratio = |fast: &str, slow: &str| median(measures, fast) / median(measures, slow);
    vec![
        Comparison::at_least(
            "1 thread: times faster than `tokenizers`",
            ratio("frazil", "tokenizers"),
            4.0,
        ),
        Comparison::at_least(
            "2 threads: times faster than `tokenizers`",
            ratio("frazil_2", "tokenizers_2"),
            4.0,
        ),
        Comparison::at_least(
            "1 thread: times faster than `tokenizers` without places",
            ratio("frazil", "tokenizers_fast"),
            4.0,
        ),
        Comparison::at_least(
            "2 threads: times faster than `tokenizers` without places",
            ratio("frazil_2", "tokenizers_fast_2"),
            4.0,
        ),
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

    #[test]
    fn options_are_read() {
        let options = Options::parse(&["--rounds", "3", "--quick", "--texts", "a.txt"]).unwrap();
        assert!(options.quick && options.texts.is_some());
        assert!(Options::parse(&["--rounds", "0"]).is_err());
        assert!(Options::parse(&["--vocabulary"]).is_err());
    }
}
