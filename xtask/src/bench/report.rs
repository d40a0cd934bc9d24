//! Samples, medians, and the comparison that a benchmark exists for.

use serde::Serialize;

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
pub fn print(measures: &[Measure], comparisons: &[Comparison]) {
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
