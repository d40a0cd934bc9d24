//! What fine-tuning takes of a machine's memory: `frazil finetune classifier` on BERT-base with made-up
//! weights, batches of 8 sequences of 128, a checkpoint and an evaluation included.
//!
//! The figure is the operating system's: the largest resident size of the process. What the trainer itself
//! counts is checked by a test of `frazil-train`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde::Serialize;

use super::engines::model::{self, Size};
use super::report::{Comparison, Measure, Record, median};

const MEASURES: [(&str, &str, &str); 2] = [
    ("finetune", "MB", "peak resident memory of `frazil finetune classifier`, 8 x 128"),
    ("recompute", "MB", "the same with `--recompute`"),
];
/// BERT-base at 8 x 128, without recomputation.
const GOAL: f64 = 3000.0;

#[derive(Serialize)]
struct Subject {
    model: &'static str,
    weights_mb: f64,
    batch: usize,
    length: usize,
}

/// Measures, prints and records.
pub fn run(args: &[&str]) -> Result<()> {
    let quick = match args {
        [] => false,
        ["--quick"] => true,
        _ => bail!("memory takes `--quick` at most"),
    };
    let size = if quick { Size::TINY } else { Size::BASE };
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--workspace", "--bin", "frazil"]);
    ensure!(cargo.current_dir(crate::root()).status()?.success(), "`cargo build` failed");
    let frazil = crate::target().join("release/frazil");
    let folder = model::classifier(size)?;
    let data = crate::target().join("bench/memory");
    pairs(&data)?;
    let mut measures = MEASURES.map(|(name, unit, about)| Measure::new(name, unit, about));
    for (measure, flags) in measures.iter_mut().zip([&[][..], &["--recompute"]]) {
        let output = data.join("out");
        let _ = fs::remove_dir_all(&output);
        let mut command = Command::new(&frazil);
        command.args(["finetune", "classifier"]).arg(folder.join("bert_model.ckpt"));
        command.args(["--task", "mrpc", "--batch-size", "8", "--max-seq-length", "128"]);
        command.args(["--epochs", "1", "--threads", "2", "--quiet", "--data"]).arg(&data);
        command.args(flags).arg("-o").arg(&output);
        measure.add(peak_mb(&mut command)?);
        fs::remove_dir_all(&output)?;
    }
    let goal = Comparison::at_most("BERT-base, 8 x 128, MB", median(&measures, "finetune"), GOAL);
    let weights_mb = size.bytes() as f64 / 1e6;
    let subject = Subject { model: size.name, weights_mb, batch: 8, length: 128 };
    let time = "printf '{\"time\": \"%s\"}' \"$(date -u +%Y-%m-%dT%H:%M:%SZ)\"";
    let mut info = Command::new("sh");
    info.args(["-c", time]);
    Record::new("memory", &mut info, &[], subject, measures, vec![goal])?.finish(!quick)
}

/// Pairs of sentences that fill 128 pieces, whatever the vocabulary makes of them.
fn pairs(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let sentence = vec!["word"; 80].join(" ");
    for (file, rows) in [("train.tsv", 32), ("dev.tsv", 16)] {
        let row = |n: usize| format!("{}\t{n}\t{n}\t{sentence}\t{sentence}\n", n % 2);
        let head = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n".to_owned();
        fs::write(folder.join(file), head + &(0..rows).map(row).collect::<String>())?;
    }
    Ok(())
}

/// The largest resident size of a process, in millions of bytes.
fn peak_mb(command: &mut Command) -> Result<f64> {
    let mut child = command.stdout(Stdio::null()).spawn()?;
    let path = format!("/proc/{}/status", child.id());
    let mut peak = 0f64;
    let status = loop {
        // Once it has ended, the file says nothing about memory any more.
        let status = fs::read_to_string(&path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kb = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
        peak = peak.max(kb.unwrap_or(0.0) * 1024.0 / 1e6);
        if let Some(status) = child.try_wait()? {
            break status;
        }
        sleep(Duration::from_millis(50));
    };
    ensure!(status.success() && peak > 0.0, "{command:?} failed");
    Ok(peak)
}
