//! The `frazil` binary: parses, dispatches, prints errors. Data goes to stdout, talk to stderr.
//! Exit codes: 0 done, 1 a check failed, 2 error; a closed pipe is success.

mod cli;
mod commands;
mod compat;
mod help;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
