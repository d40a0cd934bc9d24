//! `cargo xtask miri`: the kernels' plain code and bounds, interpreted.
//!
//! Miri has no vectors, so that it sees the scalar forms, the sharing out of rows among threads and
//! every pointer that is made of a slice; vectors are covered by the forbidden pages of the
//! conformance table. It needs a nightly toolchain with the component `miri`.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::root;

/// Runs the tests of `frazil-kernels` whose names contain one of `args`, or those that are made for it.
pub fn run(args: &[&str]) -> Result<()> {
    let cargo = || {
        let mut cargo = Command::new("cargo");
        cargo.arg("+nightly").current_dir(root());
        cargo
    };
    let there = cargo().args(["miri", "--version"]).output().context("cargo")?;
    if !there.status.success() {
        bail!("there is no Miri: `rustup +nightly component add miri rust-src` installs it");
    }
    let tests: Vec<&str> = if args.is_empty() { DEFAULT.to_vec() } else { args.to_vec() };
    let status = cargo()
        .args(["miri", "test", "-p", "frazil-kernels", "--lib", "--test", "conformance", "--"])
        .args(tests)
        // The pool looks at the clock while it spins.
        .env("MIRIFLAGS", "-Zmiri-disable-isolation")
        .status()
        .context("cargo miri")?;
    ensure!(status.success(), "Miri found something");
    Ok(())
}

/// All of plain code, and threads.
const DEFAULT: [&str; 3] = ["every_kernel_on_scalar", "par::", "layout::"];
