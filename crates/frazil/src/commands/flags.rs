//! The flags that every command over weights has, and what they do.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use frazil::page::Page;
use frazil::source;
use serde::Serialize;

use super::progress::Progress;

#[derive(Clone, clap::Args)]
pub struct Flags {
    /// Read files whose checksums are wrong
    #[arg(long)]
    no_checksum: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// No progress
    #[arg(long, short)]
    quiet: bool,
}

impl Flags {
    /// How sources are opened.
    pub fn source(&self) -> source::Options {
        source::Options { verify_checksums: !self.no_checksum }
    }

    /// Progress over tensors.
    pub fn progress(&self, what: &'static str) -> Progress {
        Progress::new(what, "tensors", self.quiet)
    }

    /// Prints the report, as JSON or by `plain`.
    pub fn print<R: Serialize>(
        &self,
        report: &R,
        out: &mut dyn Write,
        plain: impl FnOnce(&R, &mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        if self.json {
            serde_json::to_writer_pretty(&mut *out, report)?;
            return Ok(writeln!(out)?);
        }
        plain(report, out)
    }
}

/// The report as a page beside what is printed.
#[derive(Clone, clap::Args)]
pub struct PageFlag {
    /// Write the report as a page, too
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

impl PageFlag {
    /// Whether it is wanted.
    pub fn is_wanted(&self) -> bool {
        self.report.is_some()
    }

    /// Writes the page, if it is wanted, and says so.
    pub fn write(&self, page: impl FnOnce() -> Page) -> Result<()> {
        if let Some(path) = &self.report {
            page().write(path)?;
            say!("wrote `{}`", path.display());
        }
        Ok(())
    }
}

/// A number of things of which there must be one.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("a number from 1 on is wanted".into()),
        Ok(number) => Ok(number),
    }
}
