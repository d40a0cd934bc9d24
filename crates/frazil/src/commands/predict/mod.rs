//! `frazil predict …`: text in, answers out. One file for each kind of answer.

use std::io::Write;

use anyhow::Result;

use crate::cli::Outcome;

mod answer;
mod classify;
mod embed;
mod fill_mask;
mod flags;
mod next_sentence;
mod sink;
mod texts;

pub use classify::split;
pub use flags::{ReadingFlags, TextFlags};
pub use sink::say;

/// Classify, answer and embed text with a model of any kind
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil predict classify model/ --text 'Frazil binds.' \\
      --pair 'Ice binds together.'
  frazil predict answer squad_model --question 'What floats?' \\
      --context 'Ice floats on water.'")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Classify(classify::Args),
    Embed(embed::Args),
    FillMask(fill_mask::Args),
    NextSentence(next_sentence::Args),
    Answer(answer::Args),
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    match args.command {
        Command::Classify(args) => classify::run(args, out),
        Command::Embed(args) => embed::run(args, out),
        Command::FillMask(args) => fill_mask::run(args, out),
        Command::NextSentence(args) => next_sentence::run(args, out),
        Command::Answer(args) => answer::run(args, out),
    }
}
