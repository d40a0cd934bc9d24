//! `cargo xtask peers`: what frazil writes, the programs it is written for read and run.
//!
//! A peer is a pair: a Rust function that has frazil write files, and a Python script in
//! `xtask/peers` that has the real program read them and compares. To add one, add a row to
//! [`PEERS`], and its packages to a file in `xtask/peers/requirements`.

mod formats;
mod graphs;
mod int8;
mod plan;
pub mod python;
mod questions;
pub mod synthetic;
mod word_pieces;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use graphs::Model;
use plan::Step;
use python::{Base, ENGINES, PYTORCH, Python, Requirements, TENSORFLOW, TOKENIZERS};

/// One peer.
struct Peer {
    name: &'static str,
    /// In `xtask/peers`. Called with the folder that `write` filled, the folder of shared
    /// originals if there is one, `--full` if asked for, and the name of the model of this round.
    script: &'static str,
    requirements: Requirements,
    write: fn(&Task) -> Result<()>,
    /// Looks at what the script has left, and says whether it is good.
    judge: fn(&Task) -> Result<bool>,
    /// It runs graphs, and compares with what `goldens` made before it.
    graphs: bool,
    /// Not without `--full` or its name.
    optional: bool,
    /// What it writes has at most so many megabytes at once; in a round of one model, [`WEIGHTS`].
    megabytes: u64,
}

/// A checkpoint of BERT-large, or what it was converted to.
const WEIGHTS: u64 = 1450;

impl Peer {
    const fn engine(name: &'static str, script: &'static str, requirements: Requirements) -> Self {
        Self {
            name,
            script,
            requirements,
            write: |_| Ok(()),
            judge: |_| Ok(true),
            graphs: true,
            optional: false,
            megabytes: 450,
        }
    }
}

/// In the order of running: those of one environment follow each other.
const PEERS: [Peer; 12] = [
    Peer {
        name: "tokenizers",
        script: "word_pieces.py",
        requirements: TOKENIZERS,
        write: word_pieces::write,
        judge: |_| Ok(true),
        graphs: false,
        optional: false,
        megabytes: 500,
    },
    Peer {
        name: "formats",
        script: "formats.py",
        requirements: TENSORFLOW,
        write: formats::write,
        judge: |_| Ok(true),
        graphs: false,
        optional: false,
        megabytes: 500,
    },
    Peer {
        name: GOLDENS,
        script: "goldens.py",
        requirements: TENSORFLOW,
        write: graphs::originals,
        judge: |_| Ok(true),
        graphs: true,
        optional: false,
        megabytes: 700,
    },
    Peer::engine("tensorflow", "graphs_tensorflow.py", TENSORFLOW),
    Peer::engine("transformers", "graphs_transformers.py", TENSORFLOW),
    Peer {
        name: "int8_tensorflow",
        script: "int8_tensorflow.py",
        requirements: TENSORFLOW,
        write: int8::tensorflow,
        judge: |_| Ok(true),
        graphs: false,
        optional: false,
        megabytes: 150,
    },
    Peer {
        name: "finetuned",
        script: "finetuned.py",
        requirements: TENSORFLOW,
        write: |_| Ok(()),
        judge: |_| Ok(true),
        graphs: false,
        optional: false,
        megabytes: 50,
    },
    Peer::engine("onnxruntime", "graphs_onnxruntime.py", ENGINES),
    Peer::engine("openvino", "graphs_openvino.py", ENGINES),
    Peer {
        name: "int8",
        script: "int8.py",
        requirements: ENGINES,
        write: int8::engines,
        judge: |_| Ok(true),
        graphs: false,
        optional: false,
        megabytes: 150,
    },
    Peer {
        name: "questions",
        script: "questions.py",
        requirements: ENGINES,
        write: questions::write,
        judge: questions::judge,
        graphs: false,
        optional: true,
        megabytes: 150,
    },
    Peer { optional: true, ..Peer::engine("pytorch", "graphs_pytorch.py", PYTORCH) },
];

/// The peer that all others that run graphs need.
const GOLDENS: &str = "goldens";

/// What a peer's Rust side gets.
struct Task {
    /// An empty folder to write into.
    out: PathBuf,
    /// The folder of originals (`../shared`), where it is there.
    shared: Option<PathBuf>,
    /// The frazil program.
    program: PathBuf,
    /// Also what takes minutes.
    full: bool,
    /// The one model of this round; without it, everything small.
    model: Option<&'static Model>,
}

/// What the command line says.
#[derive(Default)]
struct Options<'a> {
    names: Vec<&'a str>,
    full: bool,
    /// Of all that `full` runs, only these of the published models.
    models: Vec<&'static Model>,
    /// Environments go when nothing needs them any more.
    clean: bool,
    python: Option<&'a str>,
    program: Option<PathBuf>,
}

impl<'a> Options<'a> {
    fn parse(args: &[&'a str]) -> Result<Self> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            match arg {
                "--full" => options.full = true,
                "--clean" => options.clean = true,
                "--model" => {
                    let name = args.next().context("`--model` needs a name")?;
                    let model = graphs::MODELS.iter().find(|model| model.name == *name);
                    options.models.push(model.with_context(|| {
                        let known = graphs::MODELS.each_ref().map(|model| model.name);
                        format!("no model `{name}`; there are: {}", known.join(", "))
                    })?);
                    options.full = true;
                }
                "--python" => {
                    options.python = Some(args.next().context("`--python` needs a program")?);
                }
                "--frazil" => {
                    let program = Path::new(args.next().context("`--frazil` needs a program")?);
                    let program = program.canonicalize();
                    options.program = Some(program.context("`--frazil`: no such program")?);
                }
                name if PEERS.iter().any(|peer| peer.name == name) => options.names.push(name),
                other => bail!(
                    "no peer or option `{other}`; peers: {}",
                    PEERS.map(|p| p.name).join(", ")
                ),
            }
        }
        Ok(options)
    }
}

/// Runs the peers that `args` names, or all.
pub fn run(args: &[&str]) -> Result<()> {
    let options = Options::parse(args)?;
    let shared = shared()?;
    let folder = crate::target().join("peers");
    fs::create_dir_all(&folder)?;
    let folder = folder.canonicalize()?;
    let base = Base::find(options.python)?;
    let steps = plan::steps(&options.names, options.full, &options.models);
    for peer in &PEERS {
        remove(&folder.join(peer.name))?; // what a run that failed has left
    }
    let made = |requirements| Python::made(&base, &folder, requirements).is_some();
    python::room(&base, &folder, plan::peak(&steps, made, options.clean), "this run")?;
    let program = match options.program {
        Some(program) => program,
        None => graphs::build(options.full)?,
    };
    let mut failed = Vec::new();
    for Step { peer, model, last_of_round, last_of_environment } in steps {
        let python = Python::ready(&base, &folder, peer.requirements)?;
        let (shared, program) = (shared.clone(), program.clone());
        let task = Task { out: folder.join(peer.name), shared, program, full: options.full, model };
        if !agrees(peer, &task, &python)? {
            failed.push(peer.name);
        } else if peer.name != GOLDENS {
            remove(&task.out)?;
        }
        if last_of_round && failed.is_empty() {
            remove(&folder.join(GOLDENS))?;
        }
        if last_of_environment && options.clean {
            python.remove()?;
        }
    }
    failed.sort_unstable();
    failed.dedup();
    ensure!(failed.is_empty(), "peers that do not agree: {}", failed.join(", "));
    Ok(())
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing `{}`", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Writes, has the script look at it, and looks at what that has left.
fn agrees(peer: &Peer, task: &Task, python: &Python) -> Result<bool> {
    remove(&task.out)?;
    fs::create_dir_all(&task.out)?;
    (peer.write)(task).with_context(|| format!("writing the files for `{}`", peer.name))?;
    let mut script = python.script(peer.script);
    script.env("FRAZIL", &task.program).arg(&task.out).args(&task.shared);
    if task.full {
        script.arg("--full");
    }
    if let Some(model) = task.model {
        script.arg(format!("--model={}", model.name));
    }
    let status = script.status().with_context(|| format!("starting {script:?}"))?;
    Ok(status.success() && (peer.judge)(task)?)
}

/// The folder of originals beside the checkout. Without it most checks cannot run, which is said
/// loudly, and is an error under `CI=true`.
fn shared() -> Result<Option<PathBuf>> {
    let path = crate::root().join("../shared");
    if path.join("fixtures").is_dir() {
        return Ok(Some(path.canonicalize()?));
    }
    ensure!(
        std::env::var("CI").as_deref() != Ok("true"),
        "`{}` is missing: these checks must run in CI",
        path.display()
    );
    eprintln!("SKIPPED: `{}` is not here; only synthetic files are checked", path.display());
    Ok(None)
}

/// Makes the folder that `file` lies in.
fn make_parent(file: &Path) -> Result<()> {
    let folder = file.parent().context("a file has a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("making `{}`", folder.display()))
}
