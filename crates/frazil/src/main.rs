//! The `frazil` binary: parses, dispatches, prints errors. Data goes to stdout, talk to stderr.
//! Exit codes: 0 done, 1 a check failed, 2 error; a closed pipe is success.

/// A line of talk. If nobody reads it any more, the work still goes on.
macro_rules! say {
    ($($words:tt)*) => {{
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr().lock(),
            format_args!("{}\n", format_args!($($words)*)),
        );
    }};
}

mod cli;
mod commands;
mod compat;
mod help;
mod hints;
mod mistake;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
