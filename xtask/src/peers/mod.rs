//! `cargo xtask peers`: what frazil writes, the programs it is written for read and run.
//!
//! A peer is a pair: a Rust function that has frazil write files, and a Python script in
//! `xtask/peers` that has the real program read them and compares. To add one, add a row to
//! [`PEERS`], and its packages to a file in `xtask/peers/requirements`.

mod formats;
mod graphs;
pub mod python;
pub mod synthetic;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use graphs::Model;
use python::{ENGINES, Python, Requirements, TENSORFLOW, TRANSFORMERS};

/// One peer.
struct Peer {
    name: &'static str,
    /// In `xtask/peers`. Called with the folder that `write` filled, the folder of shared
    /// originals if there is one, `--full` if asked for, and the name of the model of this round.
    script: &'static str,
    requirements: Requirements,
    write: fn(&Task) -> Result<()>,
    /// It runs graphs, and compares with what `goldens` made before it.
    graphs: bool,
}

impl Peer {
    const fn engine(name: &'static str, script: &'static str, requirements: Requirements) -> Self {
        Self { name, script, requirements, write: graphs::build, graphs: true }
    }
}

/// In the order of running.
const PEERS: [Peer; 6] = [
    Peer {
        name: "formats",
        script: "formats.py",
        requirements: TENSORFLOW,
        write: formats::write,
        graphs: false,
    },
    Peer {
        name: "goldens",
        script: "goldens.py",
        requirements: TENSORFLOW,
        write: graphs::originals,
        graphs: true,
    },
    Peer::engine("tensorflow", "graphs_tensorflow.py", TENSORFLOW),
    Peer::engine("onnxruntime", "graphs_onnxruntime.py", ENGINES),
    Peer::engine("openvino", "graphs_openvino.py", ENGINES),
    Peer::engine("transformers", "graphs_transformers.py", TRANSFORMERS),
];

/// What a peer's Rust side gets.
struct Task {
    /// An empty folder to write into.
    out: PathBuf,
    /// The folder of originals (`../shared`), where it is there.
    shared: Option<PathBuf>,
    /// Also what takes minutes.
    full: bool,
    /// The one model of this round; without it, everything small.
    model: Option<&'static Model>,
}

/// Runs the peers that `args` names, or all.
pub fn run(args: &[&str]) -> Result<()> {
    let mut full = false;
    let mut chosen = None;
    let mut names = Vec::new();
    let mut args = args.iter();
    while let Some(&arg) = args.next() {
        match arg {
            "--full" => full = true,
            "--python" => chosen = Some(*args.next().context("`--python` needs a program")?),
            name if PEERS.iter().any(|peer| peer.name == name) => names.push(name),
            other => {
                bail!("no peer or option `{other}`; peers: {}", PEERS.map(|p| p.name).join(", "))
            }
        }
    }
    let shared = shared()?;
    let folder = crate::target().join("peers");
    fs::create_dir_all(&folder)?;
    let folder = folder.canonicalize()?;
    let named = |peer: &&Peer| names.is_empty() || names.contains(&peer.name);
    let any_graphs = PEERS.iter().filter(named).any(|peer| peer.graphs);
    let peers: Vec<&Peer> =
        PEERS.iter().filter(|peer| named(peer) || any_graphs && peer.name == "goldens").collect();
    let rounds = std::iter::once(None).chain(graphs::MODELS.iter().filter(|_| full).map(Some));
    let mut failed = Vec::new();
    for model in rounds {
        for peer in peers.iter().filter(|peer| model.is_none() || peer.graphs) {
            let out = folder.join(peer.name);
            let task = Task { out, shared: shared.clone(), full, model };
            if !agrees(peer, &task, Python::ready(&folder, peer.requirements, chosen)?)? {
                failed.push(peer.name);
            }
        }
    }
    failed.dedup();
    ensure!(failed.is_empty(), "peers that do not agree: {}", failed.join(", "));
    Ok(())
}

/// Writes, and has the script look at it.
fn agrees(peer: &Peer, task: &Task, python: Python) -> Result<bool> {
    if task.out.exists() {
        fs::remove_dir_all(&task.out)?;
    }
    fs::create_dir_all(&task.out)?;
    (peer.write)(task).with_context(|| format!("writing the files for `{}`", peer.name))?;
    let mut script = python.script(peer.script);
    script.env("FRAZIL", graphs::program(task.full)).arg(&task.out).args(&task.shared);
    if task.full {
        script.arg("--full");
    }
    if let Some(model) = task.model {
        script.arg(format!("--model={}", model.name));
    }
    let status = script.status().with_context(|| format!("starting {script:?}"))?;
    Ok(status.success())
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
