//! `cargo xtask peers`: what frazil writes, the programs it is written for read.
//!
//! A peer is a pair: a Rust function that has frazil write files, and a Python script in
//! `xtask/peers` that has the real program read them and compares. To add one, add a row to
//! [`PEERS`], and its packages to `xtask/peers/requirements.txt`.

mod formats;
pub mod python;
pub mod synthetic;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use python::Python;

/// One peer.
struct Peer {
    name: &'static str,
    /// In `xtask/peers`. Called with the folder that `write` filled, the folder of shared
    /// originals if there is one, and `--full` if asked for.
    script: &'static str,
    write: fn(&Task) -> Result<()>,
}

const PEERS: [Peer; 1] = [Peer { name: "formats", script: "formats.py", write: formats::write }];

/// What a peer's Rust side gets.
struct Task {
    /// An empty folder to write into.
    out: PathBuf,
    /// The folder of originals (`../shared`), where it is there.
    shared: Option<PathBuf>,
    /// Also what takes minutes.
    full: bool,
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
    let python = Python::ready(&folder, chosen)?;
    let mut failed = Vec::new();
    for peer in PEERS.iter().filter(|peer| names.is_empty() || names.contains(&peer.name)) {
        let task = Task { out: folder.join(peer.name), shared: shared.clone(), full };
        if task.out.exists() {
            fs::remove_dir_all(&task.out)?;
        }
        fs::create_dir_all(&task.out)?;
        (peer.write)(&task).with_context(|| format!("writing the files for `{}`", peer.name))?;
        let mut script = python.script(peer.script);
        script.arg(&task.out).args(&task.shared);
        if full {
            script.arg("--full");
        }
        let status = script.status().with_context(|| format!("starting {script:?}"))?;
        if !status.success() {
            failed.push(peer.name);
        }
    }
    ensure!(failed.is_empty(), "peers that do not agree: {}", failed.join(", "));
    Ok(())
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
