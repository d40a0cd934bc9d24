//! `frazil man DIR`

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Command;
use clap_mangen::Man;
use frazil::tensor::file;

use crate::cli::Outcome;
use crate::help;

/// Write manual pages: one for frazil, one for each command
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil man ~/.local/share/man/man1
  frazil man man && man -l man/frazil-inspect.1")]
pub struct Args {
    /// Where they go
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    let folder = &args.folder;
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create `{}`", folder.display()))?;
    let mut command = help::shown().disable_help_subcommand(true);
    command.build();
    let count = pages(command, folder)?;
    writeln!(out, "wrote {count} pages to {}", folder.display())?;
    Ok(Outcome::Done)
}

/// The page of a command and those of the commands below it; says how many.
fn pages(command: Command, folder: &Path) -> Result<usize> {
    let mut count = 1;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        count += pages(sub.clone(), folder)?;
    }
    let page = Man::new(command);
    let mut text = Vec::new();
    page.render(&mut text)?;
    file::write(folder.join(page.get_filename()), &text)?;
    Ok(count)
}
