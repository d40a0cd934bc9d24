//! OpenVINO's Model Optimizer as of 2022.1 to 2023.3, without Python and TensorFlow: the same
//! flags, the same files, the same closing lines. Flags that mean nothing here are accepted and
//! reported; those that would change the numbers of a model are refused.
//!
//! Where this one differs: a cut in the middle of a graph keeps the value's own type unless one
//! is given (the original makes it float32), a text graph is recognised by itself, and a shape
//! that contradicts a size that is baked into the graph generalises the graph where that can be
//! proven right.

mod args;
mod open;
mod plan;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use frazil::convert::Refusal;
use frazil::ops::convert::Report;
use frazil::source::open_graph;

pub use self::args::Flags;
use self::open::convert_open;
use self::plan::{Plan, Talk, plan};
use crate::cli::Outcome;

/// Of the whole command line.
const EXAMPLES: &str = "Examples:
  frazil mo --input_model frozen.pb --output unstack \\
      --input input_ids,input_mask,segment_ids \\
      --input_shape [1,384],[1,384],[1,384] --output_dir ir
  frazil mo --framework tf --input_model frozen.pb --output_dir ir \\
      --input \"input_ids[1 128],input_mask[1 128],segment_ids[1 128]\" \\
      --disable_nhwc_to_nchw";

/// OpenVINO's Model Optimizer: a TensorFlow model to OpenVINO's IR
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, after_help = EXAMPLES)]
pub struct Args {
    /// Model Optimizer's own flags: `frazil mo --help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Runs the command; its output goes to `out`.
pub fn run(args: Args, out: &mut dyn Write) -> anyhow::Result<Outcome> {
    let flags = Flags::parse_words(&args.words)?;
    if flags.version {
        let version = env!("CARGO_PKG_VERSION");
        writeln!(out, "Version of Model Optimizer is: frazil {version}, IR version 11")?;
        return Ok(Outcome::Done);
    }
    let started = Instant::now();
    let plan = plan(&flags)?;
    say("warning", &plan.warnings);
    let report = convert_into_folder(&plan)?;
    if plan.talk >= Talk::Notes {
        say("note", &report.notes);
    }
    if plan.talk >= Talk::Passes {
        say_passes(&report);
    }
    let path =
        |i: usize| report.files.get(i).map(|file| absolute(&file.path).display().to_string());
    writeln!(out, "[ SUCCESS ] Generated IR version 11 model.")?;
    writeln!(out, "[ SUCCESS ] XML file: {}", path(0).unwrap_or_default())?;
    writeln!(out, "[ SUCCESS ] BIN file: {}", path(1).unwrap_or_default())?;
    let seconds = started.elapsed().as_secs_f64();
    writeln!(out, "[ SUCCESS ] Total execution time: {seconds:.2} seconds. ")?;
    if let Some(megabytes) = peak_memory() {
        writeln!(out, "[ SUCCESS ] Memory consumed: {megabytes} MB. ")?;
    }
    Ok(Outcome::Done)
}

/// Makes the folder for the results; takes it away again if nothing was written into it.
fn convert_into_folder(plan: &Plan) -> anyhow::Result<Report> {
    let made = !plan.folder.exists();
    std::fs::create_dir_all(&plan.folder).map_err(|source| frazil::tensor::Error::Io {
        action: "create",
        path: plan.folder.clone(),
        source,
    })?;
    convert_open(plan).map_err(|error| {
        if made {
            // It holds nothing; where that is not so, it stays.
            let _ = std::fs::remove_dir(&plan.folder);
        }
        match unread_iterator(plan, &error) {
            Some(hint) => {
                anyhow::Error::new(frazil::Error::Usage { what: error.to_string(), hint })
            }
            None => error.into(),
        }
    })
}

/// Outputs of an input pipeline that are read and not fed: the line that feeds all of them.
fn unread_iterator(plan: &Plan, error: &frazil::Error) -> Option<String> {
    let frazil::Error::Convert(error) = error else { return None };
    let frazil::convert::Error::Refused { nodes, .. } = &**error else { return None };
    nodes.iter().find(|Refusal { op, .. }| op == "IteratorGetNext")?;
    let mut options = plan.options.graph.clone();
    options.cut.inputs = None;
    options.cut.batch = None;
    let opened = open_graph(&plan.source, &options).ok()?;
    let facts = frazil::graph::infer(&opened.graph).ok()?;
    let inputs: Vec<String> = opened
        .graph
        .inputs
        .iter()
        .map(|port| {
            let dims = facts[port.value].dims.iter().flatten();
            let dims: Vec<String> =
                dims.map(|dim| dim.as_known().map_or("?".into(), |n| n.to_string())).collect();
            format!("{}[{}]", port.name, dims.join(" "))
        })
        .collect();
    Some(format!(
        "the input pipeline gives more than is fed; feed all of it: `--input \"{}\"`",
        inputs.join(",")
    ))
}

fn say(what: &str, lines: &[String]) {
    for line in lines {
        say!("{what}: {line}");
    }
}

fn say_passes(report: &Report) {
    let lines = |notes: &[frazil::ops::convert::Note]| -> Vec<String> {
        notes.iter().map(|n| format!("{}: `{}`: {}", n.rule, n.node, n.text)).collect()
    };
    say("done", &lines(&report.done));
    say("not done", &lines(&report.missed));
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// The most memory that this process has had, in megabytes, where the system tells.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some((kilobytes + 512) / 1024)
}

#[cfg(test)]
mod tests;
