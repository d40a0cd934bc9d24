//! `frazil predict …`: text in, answers out. One file for each kind of answer.

use std::io::Write;

use anyhow::Result;

use crate::cli::Outcome;

mod flags;

/// Classify, answer and embed text with a model of any kind
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    match args.command {
    }
}
