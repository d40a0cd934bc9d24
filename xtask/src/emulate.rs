//! `cargo xtask emulate`: what this machine's CPU lacks is run on an emulated one.
//!
//! Kernels and goldens are tested for every instruction set that the machine has. Where it has no
//! AVX-512 with VNNI, the same test programs run in an emulator that has, from the shared tools
//! beside the checkout. Only results count there, never speed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use frazil::kernels::Isa;

use crate::root;

/// The test programs, and which of their tests: those whose names begin so.
const PROGRAMS: [(&str, &str); 2] =
    [("conformance", "every_kernel_on_avx512"), ("every_cpu", "goldens_on_avx512")];

/// Runs them if the CPU lacks something, or with `--force`.
pub fn run(args: &[&str]) -> Result<()> {
    let force = match args {
        [] => false,
        ["--force"] => true,
        _ => bail!("`emulate` takes `--force` only"),
    };
    let lacks: Vec<&str> =
        Isa::ALL.iter().filter(|isa| !isa.is_available()).map(|isa| isa.name()).collect();
    if lacks.is_empty() && !force {
        println!("emulate: NOT NEEDED, this CPU has {}: `cargo test` ran them all", names());
        println!(
            "emulate: `cargo xtask emulate --force` runs them on an emulated CPU all the same"
        );
        return Ok(());
    }
    let tool = root().join("../shared/tools/run_avx512.sh");
    if !tool.is_file() {
        let missing = format!(
            "this CPU lacks {}, and the emulator `{}` is missing",
            lacks.join(", "),
            tool.display()
        );
        // As for the goldens: where everything is promised to be there, nothing may vanish.
        ensure!(std::env::var("CI").as_deref() != Ok("true"), "{missing}");
        println!("emulate: SKIPPED, {missing}: these kernels were NOT TESTED");
        return Ok(());
    }
    match force && lacks.is_empty() {
        true => println!("emulate: forced; this CPU would have run them itself"),
        false => println!("emulate: this CPU lacks {}", lacks.join(", ")),
    }
    let folder = tempfile::tempdir()?;
    let programs = built()?;
    // The emulated CPU has one core; this machine has more.
    let outcomes: Vec<Result<()>> = std::thread::scope(|scope| {
        let start = |(name, tests): (&'static str, &'static str)| {
            let (tool, programs, folder) = (&tool, &programs, folder.path());
            scope.spawn(move || {
                let program = programs.iter().find(|(built, _)| built == name);
                let (_, program) = program.with_context(|| format!("no test program `{name}`"))?;
                emulate(tool, &stripped(program, &folder.join(name))?, name, tests)
            })
        };
        let running: Vec<_> = PROGRAMS.into_iter().map(start).collect();
        let ended = |thread: std::thread::ScopedJoinHandle<'_, Result<()>>| match thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        running.into_iter().map(ended).collect()
    });
    outcomes.into_iter().collect()
}

fn names() -> String {
    Isa::ALL.map(|isa| isa.name()).join(", ")
}

/// Builds the test programs, as `cargo test` does: what that built is found again.
fn built() -> Result<Vec<(String, PathBuf)>> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root()).args(["test", "--no-run", "--message-format=json"]);
    for (name, _) in PROGRAMS {
        cargo.args(["--test", name]);
    }
    let output = cargo.stderr(std::process::Stdio::inherit()).output().context("cargo")?;
    ensure!(output.status.success(), "the tests do not build");
    let mut found = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        let names = (message["target"]["name"].as_str(), message["executable"].as_str());
        if let (Some(name), Some(program)) = names {
            found.push((name.to_owned(), PathBuf::from(program)));
        }
    }
    Ok(found)
}

/// A copy without what debuggers need: the emulated machine reads it from an emulated disk.
fn stripped(program: &Path, copy: &Path) -> Result<PathBuf> {
    let done = Command::new("strip").arg("-o").arg(copy).arg(program).status();
    let stripped = done.is_ok_and(|status| status.success());
    Ok(if stripped { copy.to_path_buf() } else { program.to_path_buf() })
}

fn emulate(tool: &Path, program: &Path, name: &str, tests: &str) -> Result<()> {
    let start = Instant::now();
    let mut command = Command::new(tool);
    command.args(["--timeout", "600", "--env", "CI=true"]);
    if name == "every_cpu" {
        // Where the test looks for them: beside the checkout that it was built in.
        let shared = root().join("../shared");
        for file in FIXTURES {
            let guest = root().join("../shared").join(file);
            let guest = normal(&guest);
            command.arg("--file").arg(format!(
                "{}:{}",
                shared.join(file).display(),
                guest.display()
            ));
        }
        // The path leads through this folder.
        let manifest = root().join("crates/frazil-tensor/Cargo.toml");
        command.arg("--file").arg(format!("{0}:{0}", manifest.display()));
    }
    let output = command.arg(program).arg(tests).output().context("the emulator")?;
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let seconds = start.elapsed().as_secs();
    ensure!(
        output.status.success(),
        "`{name} {tests}` on the emulated CPU: {}\n{stdout}\n{stderr}",
        output.status
    );
    // A test that found no AVX-512 there would have passed without a check.
    let passed = stdout.lines().filter(|line| line.ends_with("... ok")).count();
    ensure!(
        passed == 2 && !stderr.contains("SKIPPED"),
        "`{name}` ran nothing:\n{stdout}\n{stderr}"
    );
    println!("emulate: `{name}` passed on the emulated CPU ({passed} tests, {seconds} s)");
    Ok(())
}

/// What `every_cpu` reads, below the shared folder.
const FIXTURES: [&str; 6] = [
    "fixtures/data/bert_config_small.json",
    "fixtures/numerics/model.ckpt.index",
    "fixtures/numerics/model.ckpt.data-00000-of-00001",
    "fixtures/numerics/inputs.npz",
    "fixtures/numerics/classifier_out.npz",
    "fixtures/numerics/squad_out.npz",
];

/// The path without `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                normal.pop();
            }
            part => normal.push(part),
        }
    }
    normal
}
