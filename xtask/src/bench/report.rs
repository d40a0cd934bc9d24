//! Samples, medians, the comparison that a benchmark exists for, and the record of it.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::Value;

use super::machine::{Machine, first_line};

/// The record that is kept of a benchmark; `subject` is what it measures on.
#[derive(Serialize)]
pub struct Record<S> {
    benchmark: &'static str,
    time: String,
    machine: Machine,
    versions: BTreeMap<&'static str, String>,
    #[serde(flatten)]
    subject: S,
    rounds: usize,
    measures: Vec<Measure>,
    comparisons: Vec<Comparison>,
}

impl<S: Serialize> Record<S> {
    /// Of this machine. A script of the benchmark says in `info` what time it is, and its versions,
    /// of which those of `told` are kept.
    pub fn new(
        benchmark: &'static str,
        info: &mut Command,
        told: &[&'static str],
        subject: S,
        measures: impl Into<Vec<Measure>>,
        comparisons: Vec<Comparison>,
    ) -> Result<Self> {
        let info: Value = serde_json::from_str(&output(info.arg("info"))?.0)?;
        let say = |key: &str| info[key].as_str().unwrap_or("unknown").to_owned();
        let mut versions = BTreeMap::from([
            ("frazil", first_line("git", &["describe", "--always", "--dirty"])),
            ("rustc", first_line("rustc", &["--version"])),
        ]);
        versions.extend(told.iter().map(|&key| (key, say(key))));
        let (machine, measures) = (Machine::here(), measures.into());
        let rounds = measures.iter().map(|measure| measure.samples.len()).max().unwrap_or(0);
        let time = say("time");
        Ok(Self { benchmark, time, machine, versions, subject, rounds, measures, comparisons })
    }

    /// With one version more.
    pub fn with(mut self, name: &'static str, version: String) -> Self {
        self.versions.insert(name, version);
        self
    }

    /// Prints what was measured and, unless it is not to be kept, writes it to `benchmarks/`.
    pub fn finish(&self, keep: bool) -> Result<()> {
        print(&self.measures, &self.comparisons);
        let Machine { cpu, threads, isa, .. } = &self.machine;
        let others = self.versions.iter().filter(|(name, _)| !["frazil", "rustc"].contains(name));
        let others: Vec<String> =
            others.map(|(name, version)| format!("{name} {version}")).collect();
        println!(
            "\n{cpu}, {threads} threads, {isa}; {}; {}; median of {} rounds",
            others.join(", "),
            serde_json::to_string(&self.subject)?,
            self.rounds
        );
        if !keep {
            return Ok(());
        }
        let name = format!("benchmarks/{}-{}.json", self.benchmark, self.machine.slug());
        let path = crate::root().join(name);
        fs::write(&path, serde_json::to_string_pretty(self)? + "\n")
            .with_context(|| format!("writing `{}`", path.display()))?;
        println!("recorded in `{}`", path.display());
        Ok(())
    }
}

/// What a program printed on stdout and stderr, if it succeeded.
pub fn output(command: &mut Command) -> Result<(String, String)> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    ensure!(output.status.success(), "{command:?} failed: {stderr}");
    Ok((stdout, stderr))
}

/// The median of the measure of that name.
pub fn median(measures: &[Measure], name: &str) -> f64 {
    let found = measures.iter().find(|measure| measure.name == name);
    found.map_or(f64::NAN, |measure| measure.median)
}

/// One thing that was measured in every round.
#[derive(Debug, Serialize)]
pub struct Measure {
    /// Short and stable.
    pub name: &'static str,
    /// What exactly was timed.
    pub about: &'static str,
    /// `s` or `MB`.
    pub unit: &'static str,
    /// The middle sample.
    pub median: f64,
    /// In the order of the rounds.
    pub samples: Vec<f64>,
}

impl Measure {
    /// A measure without samples yet.
    pub fn new(name: &'static str, unit: &'static str, about: &'static str) -> Self {
        Self { name, about, unit, median: f64::NAN, samples: Vec::new() }
    }

    /// Adds a round's sample.
    pub fn add(&mut self, sample: f64) {
        self.samples.push(sample);
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        self.median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
    }
}

/// A comparison with its goal.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// In words.
    pub what: &'static str,
    /// The figure.
    pub value: f64,
    /// What it should be: `>= 5` for example.
    pub goal: String,
    /// Whether it is.
    pub met: bool,
}

impl Comparison {
    /// A figure that should be at least `goal`.
    pub fn at_least(what: &'static str, value: f64, goal: f64) -> Self {
        Self { what, value, goal: format!(">= {goal}"), met: value >= goal }
    }

    /// A figure that should be at most `goal`.
    pub fn at_most(what: &'static str, value: f64, goal: f64) -> Self {
        Self { what, value, goal: format!("<= {goal}"), met: value <= goal }
    }
}

/// The tables for people.
fn print(measures: &[Measure], comparisons: &[Comparison]) {
    println!("\n{:<24} {:>11} {:>11} {:>11}", "measure", "median", "min", "max");
    for measure in measures {
        let min = measure.samples.iter().copied().fold(f64::INFINITY, f64::min);
        let max = measure.samples.iter().copied().fold(0.0, f64::max);
        let show = |value: f64| match measure.unit {
            "s" if value < 1.0 => format!("{:.3} ms", value * 1e3),
            "s" => format!("{value:.3} s"),
            unit => format!("{value:.1} {unit}"),
        };
        let (median, min, max) = (show(measure.median), show(min), show(max));
        println!("{:<24} {median:>11} {min:>11} {max:>11}  {}", measure.name, measure.about);
    }
    println!();
    for Comparison { what, value, goal, met } in comparisons {
        let verdict = if *met { "ok  " } else { "MISS" };
        println!("{verdict} {what}: {value:.2} (goal {goal})");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        let mut measure = Measure::new("x", "s", "");
        for (sample, median) in [(3.0, 3.0), (1.0, 2.0), (2.0, 2.0), (10.0, 2.5)] {
            measure.add(sample);
            assert_eq!(measure.median, median);
        }
        assert_eq!(measure.samples, [3.0, 1.0, 2.0, 10.0]);
    }

    #[test]
    fn goals() {
        assert!(Comparison::at_least("", 5.0, 5.0).met);
        assert!(!Comparison::at_most("", 1.51, 1.5).met);
    }
}
