//! The command line as a whole: which word leads to which command, and how errors look.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What a command that ran to its end has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Exit code 0.
    Done,
    /// Exit code 1: it worked, and what it checked does not hold.
    CheckFailed,
}

#[derive(Parser)]
#[command(
    name = "frazil",
    version,
    about = "From a TensorFlow 1 BERT to production, without TensorFlow"
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {}

pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = io::stdout().lock();
    match dispatch(cli, &mut out).and_then(|outcome| {
        out.flush()?;
        Ok(outcome)
    }) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::CheckFailed) => ExitCode::from(1),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::from(2)
        }
    }
}

fn dispatch(cli: Cli, _out: &mut dyn Write) -> anyhow::Result<Outcome> {
    match cli.command {
        None => Ok(Outcome::Done),
        Some(command) => match command {},
    }
}

/// `error:`, each `caused by:`, and the `hint:` nearest to the cause.
#[allow(clippy::print_stderr, reason = "this is where errors are printed")]
fn report(error: &anyhow::Error) {
    eprintln!("error: {error}");
    for cause in error.chain().skip(1) {
        eprintln!("caused by: {cause}");
    }
    if let Some(hint) = error.chain().find_map(hint) {
        eprintln!("hint: {hint}");
    }
}

fn hint(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(error) = error.downcast_ref::<frazil::Error>() {
        return error.hint();
    }
    error.downcast_ref::<frazil::tf::Error>().and_then(frazil::tf::Error::hint)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}
