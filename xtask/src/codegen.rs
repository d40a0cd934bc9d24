//! Compiles `crates/frazil-tf/proto/*.proto` to the Rust that is committed beside it, with
//! protox and prost-build: no `protoc` needed, here or by anyone who builds frazil. The tables
//! that the text format needs come from the same descriptors, see [`schema`].

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::schema;

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
        // Most attributes are a few bytes; unboxed, a tensor's struct would make each 500 bytes
        // and each node 5 KB.
        .boxed(".tensorflow.AttrValue.value.tensor")
        .boxed(".tensorflow.AttrValue.value.list")
        .boxed(".tensorflow.StructuredValue.kind.tensor_value")
        .boxed(".tensorflow.StructuredValue.kind.numpy_value")
        .out_dir(made.path())
        .compile_fds(descriptors.clone())?;
    let rust = fs::read_to_string(made.path().join("tensorflow.rs"))?;
    put(&tf.join("src/proto/tensorflow.rs"), &rust, check)?;
    put(&tf.join("src/proto/schema.rs"), &schema::rust(&descriptors)?, check)
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
