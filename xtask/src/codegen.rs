//! Compiles `crates/frazil-tf/proto/*.proto` to the Rust that is committed beside it, with
//! protox and prost-build: no `protoc` needed, here or by anyone who builds frazil.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// `codegen` writes the generated files; `codegen --check` fails if they are not fresh.
pub fn run(args: &[&str]) -> Result<()> {
    let check = match args {
        [] => false,
        ["--check"] => true,
        _ => bail!("codegen takes nothing but `--check`"),
    };
    let tf = crate::root().join("crates/frazil-tf");
    let proto = tf.join("proto");
    let descriptors = protox::compile([proto.join("tensorflow.proto")], [&proto])?;

    let made = tempfile::tempdir()?;
    prost_build::Config::new()
        // Zero-copy: a constant's bytes stay in the mapped file.
        .bytes(["."])
        // Sorted maps: the same message always gives the same bytes.
        .btree_map(["."])
        .out_dir(made.path())
        .compile_fds(descriptors)?;
    let rust = fs::read_to_string(made.path().join("tensorflow.rs"))?;
    put(&tf.join("src/proto/tensorflow.rs"), &rust, check)
}

fn put(path: &Path, contents: &str, check: bool) -> Result<()> {
    if check {
        let found = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        if found != contents {
            bail!("{} is stale: run `cargo xtask codegen`", path.display());
        }
        return Ok(());
    }
    fs::write(path, contents).with_context(|| path.display().to_string())
}
