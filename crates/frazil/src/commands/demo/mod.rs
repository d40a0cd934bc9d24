//! `frazil demo`: the embedded model on the whole road, with the line for the user's own files.
//!
//! Every step is a command as a user types it, run in this process; what it prints is shown as far as
//! it matters, and what it measured goes into a report. No number is known beforehand.

mod excerpt;
mod page;
mod steps;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use frazil::Error;
use frazil::bert::tokenizer::{Casing, Tokenizer, Vocabulary};
use frazil::tensor::npy::NpzWriter;
use frazil::tensor::{Tensor, file};
use serde_json::Value;

use crate::cli::{self, Outcome};
use steps::{Record, STEPS, Step};

/// Take the embedded model through every command, and show the line for your own files
///
/// Every number is measured in this run. The folder gets the model, everything that is made of it,
/// and report.html.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil demo
  frazil demo --dir /tmp/tour")]
pub struct Args {
    /// Where to put the model and what is made of it
    #[arg(long, default_value = FOLDER, value_name = "FOLDER")]
    dir: PathBuf,
}

const FOLDER: &str = "frazil-demo";

/// What a tour leaves first; only a folder that has it is gone over again.
const MARK: (&str, &str) = (
    "README.txt",
    "Made by `frazil demo`, which makes all of it anew: keep nothing of your own here.\n",
);

impl Default for Args {
    fn default() -> Self {
        Self { dir: FOLDER.into() }
    }
}

macro_rules! asset {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../../../assets/demo/", $name)).as_slice())
    };
}
/// The embedded model: checkpoints of TensorFlow 1 and what belongs to them, made by
/// `cargo xtask demo-model`.
const MODEL: [(&str, &[u8]); 16] = [
    asset!("bert_config.json"),
    asset!("vocab.txt"),
    asset!("texts.txt"),
    asset!("bert_model.ckpt.index"),
    asset!("bert_model.ckpt.data-00000-of-00001"),
    asset!("bert_model.ckpt.meta"),
    asset!("squad/model.ckpt.index"),
    asset!("squad/model.ckpt.data-00000-of-00001"),
    asset!("squad/model.ckpt.meta"),
    asset!("squad/train-v1.1.json"),
    asset!("squad/dev-v1.1.json"),
    asset!("classifier/model.ckpt.index"),
    asset!("classifier/model.ckpt.data-00000-of-00001"),
    asset!("classifier/model.ckpt.meta"),
    asset!("classifier/train.tsv"),
    asset!("classifier/dev.tsv"),
];

/// What every folder with weights has beside them.
const BESIDE: [&str; 2] = ["bert_config.json", "vocab.txt"];
/// Folders with weights of their own.
const TASKS: [&str; 2] = ["squad", "classifier"];
/// What a tour before this one has left, which would be gone on with, or be in the way.
const LEFT: [&str; 4] = ["int8.quantize", "finetuned", "saved_model", "answers"];

/// A step that was taken.
struct Taken {
    title: &'static str,
    line: String,
    yours: &'static str,
    output: String,
    seconds: f64,
}

/// What was measured on the way, by name.
type Numbers = BTreeMap<&'static str, Value>;

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    let start = Instant::now();
    let folder = &args.dir;
    unpack(folder)?;
    writeln!(
        out,
        "A small BERT that frazil pre-trained and fine-tuned itself is in `{}`, as TensorFlow 1 would \
         have left it.",
        folder.display()
    )?;
    let mut outcome = Outcome::Done;
    let (mut taken, mut numbers) = (Vec::new(), Numbers::new());
    for (i, step) in STEPS.iter().enumerate() {
        let line = step.line.replace("{}", &folder.display().to_string());
        writeln!(out, "\n{}. {}\n\n$ frazil {line}", i + 1, step.title)?;
        out.flush()?;
        let began = Instant::now();
        let mut output = Vec::new();
        if take(step, folder, &mut output, &mut numbers)? == Outcome::CheckFailed {
            outcome = Outcome::CheckFailed;
        }
        let seconds = began.elapsed().as_secs_f64();
        let output = excerpt::excerpt(&String::from_utf8_lossy(&output), step.keep);
        if !output.is_empty() {
            writeln!(out, "{output}")?;
        }
        writeln!(out, "for your own files:  frazil {}", step.yours)?;
        taken.push(Taken { title: step.title, line, yours: step.yours, output, seconds });
    }
    let report = folder.join("report.html");
    let seconds = start.elapsed().as_secs_f64();
    page::page(folder, &taken, &numbers, seconds)?.write(&report)?;
    writeln!(
        out,
        "\n{} steps in {seconds:.1} s; what was measured is in `{}`.",
        taken.len(),
        report.display()
    )?;
    writeln!(out, "`frazil --help` lists the commands, `frazil COMMAND --help` their options.")?;
    Ok(outcome)
}

/// Runs the command of a step, and notes what it measured.
fn take(step: &Step, folder: &Path, out: &mut Vec<u8>, numbers: &mut Numbers) -> Result<Outcome> {
    // A folder's name stays one word, whatever is in it.
    let name = folder.display().to_string();
    let words: Vec<String> =
        excerpt::words(step.line).iter().map(|word| word.replace("{}", &name)).collect();
    match step.record {
        Record::Nothing => cli::run(words, out),
        Record::Json(key) => {
            let outcome = cli::run(&words, out)?;
            let mut json = Vec::new();
            cli::run(words.iter().map(String::as_str).chain(["--json"]), &mut json)?;
            numbers.insert(key, serde_json::from_slice(&json)?);
            Ok(outcome)
        }
        Record::Bench(key) => {
            let report = super::bench::measure(cli::bench(words)?)?;
            super::bench::print(&report, out)?;
            numbers.insert(key, serde_json::to_value(&report)?);
            Ok(Outcome::Done)
        }
        Record::File(key, file) => {
            let outcome = cli::run(words, out)?;
            let path = folder.join(file);
            let text = std::fs::read(&path).with_context(|| path.display().to_string())?;
            numbers.insert(key, serde_json::from_slice(&text)?);
            Ok(outcome)
        }
    }
}

/// Puts the model into its folder, and what it is run on.
fn unpack(folder: &Path) -> Result<()> {
    let (name, mark) = MARK;
    let is_ours = std::fs::read(folder.join(name)).is_ok_and(|text| text == mark.as_bytes());
    let is_taken = std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    if is_taken && !is_ours {
        let what = format!("`{}` has files that the tour did not make", folder.display());
        return Err(Error::Usage { what, hint: "name a new folder: `--dir FOLDER`".into() }.into());
    }
    put(&folder.join(name), mark.as_bytes()).map_err(|error| Error::Usage {
        what: format!("`{}` cannot be written to: {}", folder.display(), error.root_cause()),
        hint: "`--dir FOLDER` puts it elsewhere".into(),
    })?;
    for left in LEFT.map(|left| folder.join(left)) {
        if left.exists() {
            std::fs::remove_dir_all(&left).with_context(|| left.display().to_string())?;
        }
    }
    for (name, contents) in MODEL {
        put(&folder.join(name), contents)?;
    }
    for task in TASKS {
        for (name, contents) in MODEL.iter().filter(|(name, _)| BESIDE.contains(name)) {
            put(&folder.join(task).join(name), contents)?;
        }
    }
    write_inputs(folder)
}

fn put(path: &Path, contents: &[u8]) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|source| frazil::tensor::Error::Io {
            action: "create",
            path: folder.to_path_buf(),
            source,
        })?;
    }
    Ok(file::write(path, contents)?)
}

/// Two questions with their texts, as the arrays that a model takes.
fn write_inputs(folder: &Path) -> Result<()> {
    const PAIRS: [(&str, &str); 2] = [
        ("Where does Nina live?", "Nina has three cats. Her home is in Oslo."),
        ("Who is a baker?", "Ben is a baker."),
    ];
    let vocabulary = Vocabulary::open(folder.join("vocab.txt"))?;
    let tokenizer = Tokenizer::new(vocabulary.into(), Casing::Lower)?;
    let id = |piece: &str| tokenizer.vocabulary().id(piece).map(i32::try_from);
    let (cls, sep) = (id("[CLS]").context("[CLS]")??, id("[SEP]").context("[SEP]")??);
    let ids = |text: &str| -> Result<Vec<i32>> {
        let ids = tokenizer.encode(text).ids;
        Ok(ids.into_iter().map(i32::try_from).collect::<Result<_, _>>()?)
    };
    let mut rows: Vec<[Vec<i32>; 3]> = Vec::new();
    for (question, text) in PAIRS {
        let first = [vec![cls], ids(question)?, vec![sep]].concat();
        let second = [ids(text)?, vec![sep]].concat();
        let segments = [vec![0; first.len()], vec![1; second.len()]].concat();
        let all = [first, second].concat();
        rows.push([all.clone(), vec![1; all.len()], segments]);
    }
    let longest = rows.iter().map(|row| row[0].len()).max().unwrap_or(0);
    let mut npz = NpzWriter::create(folder.join("inputs.npz"))?;
    for (at, name) in ["input_ids", "input_mask", "segment_ids"].into_iter().enumerate() {
        let mut values = Vec::new();
        for row in &rows {
            values.extend_from_slice(&row[at]);
            values.resize(values.len() + longest - row[at].len(), 0);
        }
        npz.add(name, &Tensor::from_vec([rows.len(), longest], values)?)?;
    }
    Ok(npz.finish()?)
}
