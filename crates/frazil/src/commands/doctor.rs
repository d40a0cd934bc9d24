//! `frazil doctor`

use std::io::Write;

use anyhow::Result;
use frazil::ops::doctor::{Report, SECONDS, doctor};
use frazil::tensor::words::plural;

use super::table::{Table, size};
use crate::cli::Outcome;

/// Tell what this machine has, which kernels are used, and whether they compute what they should
///
/// Every family of fast kernels is run on every instruction set of this machine and compared with
/// plain code. Exit code 1: one of them is wrong here.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil doctor
  FRAZIL_ISA=avx2 frazil doctor --seconds 10 --json")]
pub struct Args {
    /// How long the self-test takes
    #[arg(long, value_name = "S", default_value_t = SECONDS)]
    seconds: f64,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    let report = doctor(args.seconds)?;
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)?;
    } else {
        print(&report, out)?;
    }
    Ok(if report.good { Outcome::Done } else { Outcome::CheckFailed })
}

fn print(report: &Report, out: &mut dyn Write) -> Result<()> {
    let commit = report.commit.map(|commit| format!(" ({commit})")).unwrap_or_default();
    writeln!(out, "frazil {}{commit}, {}", report.version, report.target)?;
    writeln!(out, "  CPU: {}", report.cpu.as_deref().unwrap_or("its name is not told here"))?;
    let having = |wanted: bool| {
        let names = report.features.iter().filter(|(_, has)| *has == wanted);
        names.map(|(name, _)| *name).collect::<Vec<&str>>().join(" ")
    };
    writeln!(out, "  has: {}", having(true))?;
    if report.features.iter().any(|(_, has)| !has) {
        writeln!(out, "  lacks: {}", having(false))?;
    }
    writeln!(out, "  kernels: {} (of {})", report.isa, report.available.join(", "))?;
    let cores = plural(report.cores, "core");
    writeln!(out, "  threads: {} on {} {cores}", report.threads, report.cores)?;
    if let (Some(all), Some(free)) = (report.memory, report.available_memory) {
        writeln!(out, "  memory: {}, {} of it free", size(all), size(free))?;
    }
    for (name, value) in &report.environment {
        writeln!(out, "  {name}={value}")?;
    }
    let mut table = Table::new(&["kernel", "isa", ">off by", ">allowed", ">ms", ""]);
    for check in &report.checks {
        table.row([
            check.kernel.into(),
            check.isa.into(),
            format!("{:.1e}", check.difference),
            format!("{:.1e}", check.tolerance),
            format!("{:.3}", check.ms),
            if check.good { "good" } else { "WRONG" }.into(),
        ]);
    }
    writeln!(out)?;
    table.print(out)?;
    writeln!(out)?;
    for advice in &report.advice {
        writeln!(out, "note: {advice}")?;
    }
    let verdict = if report.good { "every kernel computes what plain code does" } else { "WRONG" };
    writeln!(out, "{verdict} ({:.1} s)", report.seconds)?;
    Ok(())
}
