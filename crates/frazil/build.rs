//! Tells a release build its commit. A build for debugging does not ask: it would be made anew with
//! every commit.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("PROFILE").as_deref() != Ok("release") {
        return;
    }
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    // Without git, or outside of a clone, there is none to tell.
    let Some(commit) = git(&["rev-parse", "--short=9", "HEAD"]) else { return };
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    println!("cargo::rustc-env=FRAZIL_COMMIT={commit}");
}
