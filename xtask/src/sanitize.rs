//! `cargo xtask sanitize`: the kernels' tests with every access to memory checked.
//!
//! AddressSanitizer sees what lies beyond a slice, a vector or a stack frame, on every instruction
//! set that this machine has. Its runtime comes with the toolchain; the compiler's flag for it is
//! not stable yet, hence `RUSTC_BOOTSTRAP` for this one build in a folder of its own. That nobody
//! writes where another thread reads is not its business: see `frazil_kernels::par`.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::{root, target};

/// Naming the target keeps the flags away from build scripts.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Runs the tests of `frazil-kernels` whose names contain one of `args`, or all.
pub fn run(args: &[&str]) -> Result<()> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
        bail!("the sanitizer is set up for {TARGET} only");
    }
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(root())
        .args(["test", "-p", "frazil-kernels", "--lib", "--test", "conformance"])
        .args(["--target", TARGET, "--"])
        .args(args)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", "-Zsanitizer=address")
        // The flags would make cargo build everything else again, too.
        .env("CARGO_TARGET_DIR", target().join("sanitize"))
        .status()
        .context("cargo")?;
    ensure!(status.success(), "the sanitizer, or a test, found something");
    Ok(())
}
