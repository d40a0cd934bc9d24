//! The Python of the peers: a virtual environment for each file of pins in
//! `xtask/peers/requirements`, made once and kept below the target folder.
//!
//! The environment's name carries a hash of the pins and of the Python version, so that a change
//! of either makes a new one. The pins are all that is installed (`--no-deps`): a file that
//! forgets a package makes an import fail, at once and everywhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// The minor versions of Python 3 that all pinned packages have wheels for.
const MINORS: std::ops::RangeInclusive<u32> = 11..=13;
/// What a Python may be called, the plain name first: it is the one its user chose.
const NAMES: [&str; 5] = ["python3", "python3.13", "python3.12", "python3.11", "python"];

/// The file that is in an environment when everything else is.
const COMPLETE: &str = "complete";

/// What one environment has in it.
#[derive(Clone, Copy)]
pub struct Requirements {
    /// The file's name in `xtask/peers/requirements`, and the beginning of the environment's.
    pub name: &'static str,
    pins: &'static str,
    /// What it takes on the disk, in megabytes, a little rounded up.
    pub megabytes: u64,
    /// What pip needs besides, until it is done: the packages as they are loaded.
    pub packages: u64,
}

impl Requirements {
    /// Another one if any pin is.
    pub fn key(&self) -> String {
        format!("{:08x}", crc32c::crc32c(self.pins.as_bytes()))
    }
}

/// TensorFlow, with what reads the same files or computes with it.
pub const TENSORFLOW: Requirements = Requirements {
    name: "tensorflow",
    pins: include_str!("../../peers/requirements/tensorflow.txt"),
    megabytes: 1800,
    packages: 400,
};
/// Hugging Face's tokenizers.
pub const TOKENIZERS: Requirements = Requirements {
    name: "tokenizers",
    pins: include_str!("../../peers/requirements/tokenizers.txt"),
    megabytes: 60,
    packages: 10,
};
/// ONNX Runtime and OpenVINO.
pub const ENGINES: Requirements = Requirements {
    name: "engines",
    pins: include_str!("../../peers/requirements/engines.txt"),
    megabytes: 500,
    packages: 150,
};
/// ONNX Runtime, and OpenVINO with what quantizes for it.
pub const SPEED: Requirements = Requirements {
    name: "speed",
    pins: include_str!("../../peers/requirements/speed.txt"),
    megabytes: 900,
    packages: 250,
};
/// Hugging Face's newest transformers, with PyTorch.
pub const PYTORCH: Requirements = Requirements {
    name: "pytorch",
    pins: include_str!("../../peers/requirements/pytorch.txt"),
    megabytes: 4400,
    packages: 2700,
};

/// A Python that the environments are made with.
pub struct Base {
    program: String,
    version: String,
}

impl Base {
    /// `chosen`, or the first suitable one of `PATH`.
    pub fn find(chosen: Option<&str>) -> Result<Self> {
        match chosen {
            Some(program) => probe(program).map_err(|why| anyhow::anyhow!("`{program}`: {why}")),
            None => find(),
        }
    }

    /// A run of `script` (in `xtask/peers`), which needs no packages.
    pub fn script(&self, script: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("-B").arg(scripts().join(script));
        command
    }

    /// What is free on the disk of `folder`, in megabytes.
    pub fn free(&self, folder: &Path) -> Result<u64> {
        let question = "import shutil, sys; print(shutil.disk_usage(sys.argv[1]).free // 1000000)";
        let mut command = Command::new(&self.program);
        let answer = command.args(["-c", question]).arg(folder).output()?;
        let said = String::from_utf8_lossy(&answer.stdout);
        said.trim().parse().with_context(|| format!("{command:?} says `{said}`"))
    }
}

/// A Python that can import the peers.
pub struct Python {
    program: PathBuf,
    venv: PathBuf,
}

impl Python {
    /// The environment below `folder`, if it is there.
    pub fn made(base: &Base, folder: &Path, requirements: Requirements) -> Option<Self> {
        let python = Self::at(base, folder, requirements);
        (python.venv.join(COMPLETE).is_file() && python.program.is_file()).then_some(python)
    }

    fn at(base: &Base, folder: &Path, requirements: Requirements) -> Self {
        let Requirements { name, pins, .. } = requirements;
        let key = crc32c::crc32c(format!("{pins}{}", base.version).as_bytes());
        let venv = folder.join(format!("venv-{name}-{key:08x}"));
        Self { program: program_of(&venv), venv }
    }

    /// The environment below `folder`, made now if it is not there.
    pub fn ready(base: &Base, folder: &Path, requirements: Requirements) -> Result<Self> {
        if let Some(python) = Self::made(base, folder, requirements) {
            return Ok(python);
        }
        let Requirements { name, pins, megabytes, packages } = requirements;
        let Self { program, venv } = Self::at(base, folder, requirements);
        if venv.exists() {
            fs::remove_dir_all(&venv).context("removing an unfinished environment")?;
        }
        room(base, folder, megabytes + packages, &format!("installing {name}"))?;
        eprintln!(
            "installing {name} with `{}` ({}) into `{}`: once, about {}",
            base.program,
            base.version,
            venv.display(),
            gigabytes(megabytes)
        );
        run(Command::new(&base.program).args(["-m", "venv"]).arg(&venv))?;
        run(Command::new(&program)
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(["--no-deps", "--no-cache-dir"])
            .arg("--requirement")
            .arg(scripts().join("requirements").join(format!("{name}.txt"))))
        .context("hint: the packages come from pip's configured index; is it reachable?")?;
        fs::write(venv.join(COMPLETE), pins)?;
        Ok(Self { program, venv })
    }

    /// Loads a package that is no program and unpacks it, so that its files can be used.
    pub fn unpacked(&self, package: &str, to: &Path) -> Result<()> {
        let wheels = to.join("wheels");
        fs::create_dir_all(&wheels)?;
        run(Command::new(&self.program)
            .args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"])
            .arg("--dest")
            .arg(&wheels)
            .arg(package))
        .context("hint: the packages come from pip's configured index; is it reachable?")?;
        for wheel in fs::read_dir(&wheels)? {
            run(Command::new(&self.program)
                .args(["-m", "zipfile", "-e"])
                .arg(wheel?.path())
                .arg(to))?;
        }
        Ok(())
    }

    /// Deletes the environment.
    pub fn remove(self) -> Result<()> {
        fs::remove_dir_all(&self.venv)
            .with_context(|| format!("removing `{}`", self.venv.display()))
    }

    /// A run of `script` (in `xtask/peers`), with TensorFlow's chatter turned off.
    ///
    /// oneDNN is off too: with it, TensorFlow 2.21 fuses a frozen BERT in a way that moves the
    /// probabilities of `fixtures/classifier` by 7e-3; without it they are within 6e-8.
    pub fn script(&self, script: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("-B")
            .arg(scripts().join(script))
            .env("TF_CPP_MIN_LOG_LEVEL", "3")
            .env("TF_ENABLE_ONEDNN_OPTS", "0")
            .env("CUDA_VISIBLE_DEVICES", "-1")
            .env("PYTHONUNBUFFERED", "1");
        command
    }
}

/// The folder of the peers' scripts.
fn scripts() -> PathBuf {
    crate::root().join("xtask/peers")
}

fn program_of(venv: &Path) -> PathBuf {
    venv.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" })
}

/// Refuses to start what would fill the disk of `folder`.
pub fn room(base: &Base, folder: &Path, megabytes: u64, what: &str) -> Result<()> {
    let free = base.free(folder)?;
    ensure!(
        free >= megabytes,
        "{what} needs {} in `{}`, where {} are free\n\
         hint: `CARGO_TARGET_DIR` can be on another disk",
        gigabytes(megabytes),
        folder.display(),
        gigabytes(free)
    );
    Ok(())
}

fn gigabytes(megabytes: u64) -> String {
    format!("{:.1} GB", megabytes as f64 / 1000.0)
}

fn find() -> Result<Base> {
    let mut reasons = Vec::new();
    for name in NAMES {
        match probe(name) {
            Ok(base) => return Ok(base),
            Err(why) => reasons.push(format!("\n  {name}: {why}")),
        }
    }
    bail!(
        "the peers need a Python 3.{} to 3.{} with `venv` on PATH; tried:{}\n\
         hint: name one with `--python PROGRAM`",
        MINORS.start(),
        MINORS.end(),
        reasons.concat()
    )
}

/// The version of a Python if the peers can live in it, else why not.
fn probe(program: &str) -> std::result::Result<Base, String> {
    let question = "import sys; print('%d.%d' % sys.version_info[:2]); import venv, ensurepip";
    let answer = match Command::new(program).args(["-c", question]).output() {
        Ok(answer) => answer,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err("not on PATH".into()),
        Err(e) => return Err(e.to_string()),
    };
    let version = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
    if version.is_empty() {
        return Err("does not start".into());
    }
    if !suits(&version) {
        return Err(format!("is Python {version}"));
    }
    if !answer.status.success() {
        return Err(format!("Python {version} without `venv`; Debian has it in python3-venv"));
    }
    Ok(Base { program: program.into(), version })
}

fn suits(version: &str) -> bool {
    version
        .strip_prefix("3.")
        .and_then(|minor| minor.parse().ok())
        .is_some_and(|minor| MINORS.contains(&minor))
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("starting {command:?}"))?;
    ensure!(status.success(), "{command:?} failed: {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_suit() {
        for (version, expected) in
            [("3.11", true), ("3.13", true), ("3.10", false), ("3.14", false), ("2.7", false)]
        {
            assert_eq!(suits(version), expected, "{version}");
        }
    }

    #[test]
    fn says_why_a_program_does_not_do() {
        let why = probe("no-such-python").err().unwrap();
        assert_eq!(why, "not on PATH");
        if cfg!(unix) {
            assert_eq!(probe("true").err().unwrap(), "does not start");
        }
    }

    #[test]
    fn what_does_not_fit_is_not_started() {
        // Tests need no Python: this one is checked where there is one.
        let Ok(base) = Base::find(None) else { return };
        let folder = tempfile::tempdir().unwrap();
        room(&base, folder.path(), 0, "nothing").unwrap();
        let error = room(&base, folder.path(), u64::MAX / 2, "everything").unwrap_err();
        assert!(error.to_string().starts_with("everything needs "), "{error}");
    }

    #[test]
    fn everything_is_pinned() {
        for Requirements { name, pins, .. } in [TENSORFLOW, ENGINES, SPEED, PYTORCH] {
            for line in pins.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
                assert!(line.contains("=="), "{name}: {line}");
            }
        }
    }
}
