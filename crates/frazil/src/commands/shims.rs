//! `frazil shims DIR`

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use frazil::ops::shims::shims;

use crate::cli::Outcome;
use crate::help::TOOLS;

/// Link the old tools' names to frazil, so that scripts that call them go on working
///
/// In DIR, `freeze_graph`, `saved_model_cli`, `mo`, `run_squad` and the others become links to this
/// program, which is that tool when it is called by such a name.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil shims ~/.local/bin
  frazil shims tools --force")]
pub struct Args {
    /// Where the links go
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Replace what is there under such a name
    #[arg(long)]
    force: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    let program = std::env::current_exe().context("where this program is cannot be told")?;
    let report = shims(&args.folder, &program, TOOLS, args.force)?;
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)?;
        return Ok(Outcome::Done);
    }
    for (paths, done) in [(&report.made, ""), (&report.kept, " (as before)")] {
        for path in paths {
            writeln!(out, "{} -> {}{done}", path.display(), report.program.display())?;
        }
    }
    if !report.on_path {
        let folder = report.folder.display();
        writeln!(out, "not on the PATH yet: export PATH=\"{folder}:$PATH\"")?;
    }
    Ok(Outcome::Done)
}
