//! Lists the variables of a checkpoint and prints one of them, without TensorFlow.
//!
//! ```text
//! cargo run --example read_checkpoint -- PREFIX [VARIABLE]
//! ```
//!
//! `PREFIX` is what TensorFlow calls the checkpoint (`bert_model.ckpt`), one of its files, or its
//! folder. Without arguments a small checkpoint of frazil's own tests is read.
#![allow(clippy::print_stdout, reason = "an example talks")]

use std::path::PathBuf;

use anyhow::Result;
use frazil_tf::checkpoint::{Checkpoint, Options};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let sample = "../frazil-tf/tests/fixtures/checkpoints/v2_partitioned";
    let prefix = args
        .next()
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(sample), PathBuf::from);

    // Opening reads the index only: listing a 1.3 GB checkpoint takes a millisecond.
    let checkpoint = Checkpoint::open(prefix, Options::default())?;
    for entry in checkpoint.entries() {
        let info = &entry.info;
        let parts = if entry.slices > 0 { format!(", {} slices", entry.slices) } else { "".into() };
        println!("{:<10} {:<16} {}{parts}", info.dtype, info.shape.to_string(), info.name);
    }

    // TensorFlow 2 names variables by the path to them; their own names are in the checkpoint too.
    if let Some(names) = checkpoint.objects()? {
        println!("\nnames in the model:");
        for name in names.iter() {
            println!("{} = {}", name.full_name, name.key);
        }
    }

    // A tensor is a window on the mapped file, its checksum checked.
    let first = || checkpoint.entries().first().map(|entry| entry.info.name.clone());
    let Some(name) = args.next().or_else(first) else { return Ok(()) };
    let tensor = checkpoint.tensor(&name)?;
    println!("\n{name}: {} {}", tensor.dtype(), tensor.shape());
    match tensor.to_f64() {
        Ok(values) => println!("{:?}", &values[..values.len().min(12)]),
        Err(_) => println!("{} bytes", tensor.byte_len()),
    }
    Ok(())
}
