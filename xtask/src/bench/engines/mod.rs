//! `cargo xtask bench peers`: frazil and the engines that a user could pick instead, in one run.
//!
//! Every engine is a long-lived process ([`arms`]) with the same model ([`model`]) in it; rounds take
//! turns among them ([`rounds`]); outputs are compared before anything is timed; the record has
//! times, ratios within rounds, and the goals ([`mod@record`], [`markdown`]). What one engine
//! does inside is in `xtask/peers/arms` and `benchmarks/arms`.

mod arms;
pub mod growth;
mod markdown;
pub mod model;
mod options;
mod record;
mod rounds;
mod stats;
mod workload;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use frazil::page::Chart;

use super::machine::{Machine, first_line};
use crate::peers::python::{self, Base, Python};
use arms::{Arm, ENGINES, Engine, Home, OURS, Precision, Starter};
use model::Size;
use options::Options;
use record::{ArmRecord, Record};
use rounds::{Others, Task};
use workload::{Batching, WORKLOADS};

/// Largest difference of a float32 logit between engines that compute the same.
const TOLERANCE: f64 = 1e-3;

/// Everything that arms need, and what went wrong.
struct Stage {
    starter: Starter,
    date: String,
    complaints: Vec<String>,
}

/// What the other arms' logits are compared with.
struct Reference {
    size: Size,
    engine: &'static str,
    logits: Vec<f32>,
}

/// Prepares, measures, prints and records.
pub fn run(args: &[&str]) -> Result<()> {
    let options = Options::parse(args, 5)?;
    let mut stage = Stage::set(&options)?;
    let machine = Machine::here();
    let mut phases: Vec<(Precision, Size)> = Vec::new();
    for row in WORKLOADS.iter().filter(|row| options.workloads.iter().any(|w| w == row.name)) {
        let size = if options.quick { Size::TINY } else { row.size };
        for &precision in &options.precisions {
            if !phases.contains(&(precision, size)) {
                phases.push((precision, size));
            }
        }
    }
    let (mut records, mut measures, mut peaks) = (Vec::new(), Vec::new(), Vec::new());
    let mut reference = None;
    let mut shares = Vec::new();
    for (precision, size) in phases {
        eprintln!("\n{} with {}", size.name, precision.name());
        let mut arms = stage.arms(&options, precision, size)?;
        if arms.is_empty() {
            continue;
        }
        if peaks.is_empty() {
            peaks.extend(own(&mut arms).and_then(|arm| arm.peaks().ok()));
        }
        let differences = agreement(&mut arms, size, &mut reference);
        let near = |difference: &Option<f64>| difference.is_none_or(|found| found <= TOLERANCE);
        let agree: Vec<bool> =
            differences.iter().map(|found| near(found) || precision == Precision::Int8).collect();
        let (mut tasks, mut chosen) = (Vec::new(), Vec::new());
        let complaints = &mut stage.complaints;
        let mut complain = |what: String| {
            eprintln!("{what}");
            complaints.push(what);
        };
        for row in &WORKLOADS {
            let here = options.quick || row.size == size;
            if here && options.workloads.iter().any(|name| name == row.name) {
                eprintln!("{}: {}", row.name, row.about);
                let (arms, chosen) = (&mut arms, &mut chosen);
                tasks.push(Task::choose(row, arms, &agree, options.quick, chosen, &mut complain)?);
            }
        }
        let others = Others::start(&arms);
        measures.extend(rounds::run(&mut arms, &tasks, options.rounds, &mut complain));
        shares.push(others.share(&arms));
        for ((arm, difference), agrees) in arms.iter().zip(differences).zip(agree) {
            if !agrees {
                complain(format!(
                    "{}, {}: a logit differs by {:.1e}",
                    arm.name(),
                    size.name,
                    difference.unwrap_or(f64::NAN)
                ));
            }
            records.push(ArmRecord {
                engine: arm.engine.name,
                precision,
                model: size.name,
                hello: arm.hello.clone(),
                resident_mb: arm.resident_mb,
                memory_mb: arm.memory_mb(),
                idle_seconds: arm.idle_seconds(),
                largest_difference: difference,
                agrees,
            });
        }
        if let Some(after) = own(&mut arms).and_then(|arm| arm.peaks().ok()) {
            peaks.truncate(1);
            peaks.push(after);
        }
    }
    ensure!(!measures.is_empty(), "nothing was measured: {}", stage.complaints.join("; "));
    let name = stage.name(&machine);
    let record = Record {
        benchmark: "peers",
        date: stage.date.clone(),
        class: record::class(machine.isa),
        frazil: first_line("git", &["describe", "--always", "--dirty"]),
        rustc: first_line("rustc", &["--version"]),
        threads: options.threads,
        rounds: options.rounds,
        others: shares.iter().copied().fold(0.0, f64::max),
        ratios: if options.quick { Vec::new() } else { record::ratios(&measures, &records) },
        end_to_end: match options.quick {
            true => Vec::new(),
            false => record::end_to_end(&measures, &peaks, machine.isa),
        },
        reference: reference.map_or("none", |reference| reference.engine),
        machine,
        peaks,
        arms: records,
        measures,
        complaints: stage.complaints.clone(),
    };
    let page = markdown::page(&record, &name);
    println!("{page}");
    let json = serde_json::to_string_pretty(&record)? + "\n";
    let svg = Chart::file(markdown::bars(&record));
    let folder = stage.folder(options.complete())?;
    for (ending, text) in [("json", json), ("md", page), ("svg", svg)] {
        let path = folder.join(format!("{name}.{ending}"));
        fs::write(&path, text).with_context(|| format!("writing `{}`", path.display()))?;
        println!("wrote `{}`", path.display());
    }
    Ok(())
}

fn own(arms: &mut [Arm]) -> Option<&mut Arm> {
    arms.iter_mut().find(|arm| arm.engine.name == OURS)
}

/// The largest difference of each arm's logits from the reference's: frazil with float32, or the
/// first float32 arm where frazil does not take part.
fn agreement(arms: &mut [Arm], size: Size, reference: &mut Option<Reference>) -> Vec<Option<f64>> {
    // Padding, one sequence alone, and a full batch.
    let batches = vec![vec![37, 128, 9, 60], vec![19], vec![64, 64]];
    let sequences = Batching { name: String::new(), batches, pad: None, packed: false };
    let request = sequences.request(0, 0, true);
    let outputs: Vec<Option<Vec<f32>>> =
        arms.iter_mut().map(|arm| arm.outputs(&request).ok()).collect();
    let known = reference.as_ref().is_some_and(|reference| reference.size == size);
    let exact = arms.iter().zip(&outputs).find(|(arm, _)| arm.precision == Precision::F32);
    if let (false, Some((arm, Some(found)))) = (known, exact) {
        *reference = Some(Reference { size, engine: arm.engine.name, logits: found.clone() });
    }
    let Some(expected) = reference.as_ref().filter(|reference| reference.size == size) else {
        return vec![None; arms.len()];
    };
    outputs.iter().map(|found| Some(difference(found.as_ref()?, &expected.logits))).collect()
}

/// The largest difference; infinite where the counts differ or a number is none.
fn difference(found: &[f32], expected: &[f32]) -> f64 {
    if found.len() != expected.len() {
        return f64::INFINITY;
    }
    let pairs = found.iter().zip(expected);
    let differences = pairs.map(|(a, b)| f64::from((a - b).abs()));
    differences.fold(0.0, |most, d| if d.is_nan() { f64::INFINITY } else { most.max(d) })
}

impl Stage {
    /// Builds and installs what the chosen engines need.
    fn set(options: &Options) -> Result<Self> {
        let bench = crate::target().join("bench");
        let logs = bench.join("logs");
        fs::create_dir_all(&logs)?;
        let peers = crate::target().join("peers");
        fs::create_dir_all(&peers)?;
        let peers = peers.canonicalize()?;
        let chosen = || ENGINES.iter().filter(|engine| options.takes(engine.name, engine.usual));
        let features: Vec<&str> = chosen()
            .filter(|engine| matches!(engine.home, Home::Rust))
            .map(|engine| engine.name)
            .collect();
        let rust = if features.is_empty() { None } else { Some(build(&features)?) };
        let mut complaints = Vec::new();
        let mut pythons: Vec<(&str, Python)> = Vec::new();
        let mut wanted: Vec<python::Requirements> = Vec::new();
        for engine in chosen() {
            match engine.home {
                Home::Python(_, pins) => wanted.push(pins),
                // These read the ONNX file, which a script writes.
                Home::Rust if ["tract", "rten"].contains(&engine.name) => {
                    wanted.push(python::SPEED)
                }
                Home::Rust => {}
            }
        }
        for pins in wanted {
            if pythons.iter().any(|(name, _)| *name == pins.name) {
                continue;
            }
            let base = Base::find(options.python.as_deref())?;
            match Python::ready(&base, &peers, pins) {
                Ok(python) => pythons.push((pins.name, python)),
                Err(error) => {
                    eprintln!("without {}: {error:#}", pins.name);
                    complaints.push(format!("{}: {error:#}", pins.name));
                }
            }
        }
        let starter = Starter { rust, pythons, threads: options.threads, logs };
        let date = first_line("date", &["-u", "+%Y-%m-%d"]);
        Ok(Self { starter, date, complaints })
    }

    /// The chosen engines that can do it, with a model loaded. Those that cannot are noted.
    fn arms(&mut self, options: &Options, precision: Precision, size: Size) -> Result<Vec<Arm>> {
        let speed = self.starter.pythons.iter().find(|(name, _)| *name == python::SPEED.name);
        let takes = |engine: &&Engine| {
            options.takes(engine.name, engine.usual) && engine.precisions.contains(&precision)
        };
        let frozen = ENGINES.iter().filter(takes).any(|engine| engine.name == "tensorflow");
        let folder = model::ready(size, frozen, speed.map(|(_, python)| python))?;
        let mut arms = Vec::new();
        for engine in ENGINES.iter().filter(takes) {
            match self.starter.start(engine, precision, &folder, size.bytes()) {
                Ok(arm) => {
                    let Arm { hello, .. } = &arm;
                    eprintln!("{} {}: {:.1} s", arm.name(), hello.version, hello.first_seconds);
                    arms.push(arm);
                }
                Err(error) => {
                    let name = format!("{} {}, {}", engine.name, precision.name(), size.name);
                    eprintln!("{name}: {error:#}");
                    self.complaints.push(format!("{name}: {error:#}"));
                }
            }
        }
        Ok(arms)
    }

    /// `<date>-<cpu>`.
    fn name(&self, machine: &Machine) -> String {
        format!("{}-{}", self.date, machine.slug())
    }

    /// Where records go. Only those of complete runs are kept: others would take their place.
    fn folder(&self, complete: bool) -> Result<PathBuf> {
        let folder = match complete {
            true => crate::root().join("benchmarks/record"),
            false => crate::target().join("bench/partial"),
        };
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }
}

/// Builds `benchmarks/arms` with these engines, into a folder of its own.
fn build(features: &[&str]) -> Result<PathBuf> {
    let target = crate::target().join("arms");
    let mut cargo = Command::new("cargo");
    cargo
        .args(["build", "--release", "--no-default-features", "--features"])
        .arg(features.join(","))
        .arg("--manifest-path")
        .arg(crate::root().join("benchmarks/arms/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target);
    let status = cargo.status().context("starting `cargo`")?;
    ensure!(status.success(), "{cargo:?} failed: {status}");
    let program = format!("release/frazil-arms{}", std::env::consts::EXE_SUFFIX);
    Ok(target.join(program).canonicalize()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_differs() {
        assert_eq!(difference(&[1.0, 2.5], &[1.0, 2.0]), 0.5);
        assert_eq!(difference(&[f32::NAN], &[1.0]), f64::INFINITY);
        assert_eq!(difference(&[1.0], &[]), f64::INFINITY);
    }
}
