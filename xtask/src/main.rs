//! The workspace's own chores: `cargo xtask <task>`.

mod bench;
mod codegen;
mod demo_model;
mod emulate;
mod large;
mod mpi;
mod peers;
mod picture;
mod reference;
mod sanitize;
mod schema;
mod tidy;
mod unicode;

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["bench", rest @ ..] => bench::run(rest),
        ["codegen", rest @ ..] => codegen::run(rest),
        ["demo-model", rest @ ..] => demo_model::run(rest),
        ["emulate", rest @ ..] => emulate::run(rest),
        ["mpi", rest @ ..] => mpi::run(rest),
        ["peers", rest @ ..] => peers::run(rest),
        ["picture", rest @ ..] => picture::run(rest),
        ["sanitize", rest @ ..] => sanitize::run(rest),
        ["tidy", rest @ ..] => tidy::run(rest),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

const USAGE: &str = "usage: cargo xtask <task>

  bench formats [--rounds N] [--small] [--python PROGRAM]
                      frazil against TensorFlow and against the disk; recorded in benchmarks/
  bench peers [--arms A,B] [--with torch] [--workloads W1,W5] [--precision f32|int8]
              [--rounds N] [--threads N] [--quick] [--python PROGRAM]
                      frazil against OpenVINO, ONNX Runtime, TensorFlow, tract, candle and rten,
                      in turns; recorded in benchmarks/record
  bench growth [the same flags]
                      time by length, batch, layers and threads
  bench tokenize [--rounds N] [--quick] [--texts FILE] [--vocabulary FILE] [--python PROGRAM]
                      frazil against Hugging Face's tokenizers; recorded in benchmarks/
  bench squad --original DIR [--rounds N] [--quick] [--data FILE] [--vocabulary FILE]
              [--python PROGRAM]
                      SQuAD features by frazil and by the run_squad.py in DIR, a checkout of
                      google-research/bert; recorded in benchmarks/
  bench memory [--quick]
                      what fine-tuning of BERT-base takes of the memory; recorded in benchmarks/
  codegen [--check]   remake the Rust types from the .proto files, the tokenizer's tables,
                      and docs/reference/ops.md
  demo-model [--quick] [--resume]
                      the embedded model, from nothing: text, pre-training, two fine-tunings;
                      --quick: a worse one, below target/, to see that it can be made;
                      --resume: go on from the checkpoints of a run that was stopped
  emulate [--force]   kernels and goldens on an emulated CPU, where this one lacks AVX-512 or VNNI
  mpi [--frazil PROGRAM]
                      training by two processes under MPI equals training by one; one that dies is
                      missed. Needs Open MPI and libclang; frazil is built with the feature `mpi`
  peers [NAME]... [--full] [--model MODEL]... [--clean] [--frazil PROGRAM] [--python PROGRAM]
                      what frazil writes, the real programs read and run: tokenizers, formats,
                      goldens, tensorflow, transformers, onnxruntime, openvino; installed under target/.
                      --full: also pytorch (4 GB) and the seven models that Google published;
                      --model: of --full, only this one of the seven;
                      --clean: what was installed is removed after its last use
  picture [--frazil PROGRAM]
                      the picture in the README: the tour's report in Chromium
  sanitize [TEST]...  the kernels' tests, every access to memory checked by AddressSanitizer
  tidy                check what the compiler does not: sizes, headers, layers, words";

/// The workspace's root folder.
fn root() -> PathBuf {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().expect("xtask lies in the workspace").to_path_buf()
}

/// The folder that cargo builds into, and where everything else that is made goes.
fn target() -> PathBuf {
    let chosen = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    root().join(chosen.unwrap_or_else(|| "target".into()))
}
