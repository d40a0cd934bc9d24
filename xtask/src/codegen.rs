//! Compiles the `.proto` files of TensorFlow (`crates/frazil-tf/proto`) and of ONNX
//! (`crates/frazil-convert/proto`) to the Rust that is committed beside them, with protox and
//! prost-build: no `protoc` needed, here or by anyone who builds frazil. The tables that the text
//! format and the bound on memory need come from the same descriptors, see [`schema`]. The tables of
//! the tokenizer ([`unicode`]) and the page of operations in `docs/reference` ([`mod@reference`])
//! are made here too.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::{reference, schema, unicode};

/// `codegen` writes the generated files; `codegen --check` fails if they are not fresh.
pub fn run(args: &[&str]) -> Result<()> {
    let check = match args {
        [] => false,
        ["--check"] => true,
        _ => bail!("codegen takes nothing but `--check`"),
    };
    let mut tensorflow = config();
    // Most attributes are a few bytes; unboxed, a tensor's struct would make each 500 bytes and
    // each node 5 KB.
    tensorflow
        .boxed(".tensorflow.AttrValue.value.tensor")
        .boxed(".tensorflow.AttrValue.value.list")
        .boxed(".tensorflow.StructuredValue.kind.tensor_value")
        .boxed(".tensorflow.StructuredValue.kind.numpy_value");
    make("frazil-tf", "tensorflow", tensorflow, "src/proto", "crate::schema", check)?;
    let mut onnx = config();
    // The same reason; and a type within a type needs it anyway.
    onnx.boxed(".onnx.AttributeProto.t")
        .boxed(".onnx.AttributeProto.g")
        .boxed(".onnx.AttributeProto.tp");
    make("frazil-convert", "onnx", onnx, "src/onnx/proto", "frazil_tf::schema", check)?;
    let bert = crate::root().join("crates/frazil-bert");
    let python = fs::read_to_string(bert.join("unicode/python-3.7.json"))?;
    put(&bert.join("src/tokenizer/unicode/table.rs"), &unicode::rust(&python)?, check)?;
    put(&crate::root().join("docs/reference/ops.md"), &reference::page()?, check)
}

fn config() -> prost_build::Config {
    let mut config = prost_build::Config::new();
    // Zero-copy: a constant's bytes stay in the mapped file. Sorted maps: the same message always
    // gives the same bytes.
    config.bytes(["."]).btree_map(["."]);
    config
}

/// Compiles `package.proto` of a crate to `package.rs` and `schema.rs` in its folder `to`.
fn make(
    member: &str,
    package: &str,
    mut config: prost_build::Config,
    to: &str,
    types: &str,
    check: bool,
) -> Result<()> {
    let member = crate::root().join("crates").join(member);
    let proto = member.join("proto");
    let descriptors = protox::compile([proto.join(format!("{package}.proto"))], [&proto])?;
    let made = tempfile::tempdir()?;
    config.out_dir(made.path()).compile_fds(descriptors.clone())?;
    let rust = fs::read_to_string(made.path().join(format!("{package}.rs")))?;
    let to = member.join(to);
    put(&to.join(format!("{package}.rs")), &rust, check)?;
    put(&to.join("schema.rs"), &schema::rust(&descriptors, types)?, check)
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
