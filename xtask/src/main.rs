//! The workspace's own chores: `cargo xtask <task>`.

mod codegen;
mod schema;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["codegen", rest @ ..] => codegen::run(rest),
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

  codegen [--check]   remake the Rust types from crates/frazil-tf/proto (or only compare)
  tidy                check what the compiler does not: sizes, headers, layers, words";

/// The workspace's root folder.
fn root() -> PathBuf {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().expect("xtask lies in the workspace").to_path_buf()
}
