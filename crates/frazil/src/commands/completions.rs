//! `frazil completions SHELL`

use std::io::Write;

use anyhow::Result;
use clap_complete::{Shell, generate};

use crate::cli::Outcome;
use crate::help;

/// Print a script that completes frazil's commands and flags in a shell
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mkdir -p ~/.local/share/bash-completion/completions
  frazil completions bash \\
      > ~/.local/share/bash-completion/completions/frazil
  mkdir -p ~/.zfunc && frazil completions zsh > ~/.zfunc/_frazil")]
pub struct Args {
    /// Which shell
    #[arg(value_enum)]
    shell: Shell,
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    // It panics where it cannot write: a closed pipe is no reason to.
    let mut script = Vec::new();
    generate(args.shell, &mut help::shown(), "frazil", &mut script);
    out.write_all(&script)?;
    Ok(Outcome::Done)
}
