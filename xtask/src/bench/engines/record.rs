//! The record of a run: what was measured, how far it is from the best peer, and the goals.

use serde::Serialize;
use serde_json::Value;

use super::arms::{Hello, OURS, Precision};
use super::model::Size;
use super::rounds::Measure;
use super::stats::Summary;
use super::workload::{WORKLOADS, Workload};
use crate::bench::machine::Machine;

/// Everything that is kept.
#[derive(Serialize)]
pub struct Record {
    /// `peers`.
    pub benchmark: &'static str,
    /// The day, UTC.
    pub date: String,
    /// Where.
    pub machine: Machine,
    /// Which of the classes of `class` the machine is in.
    pub class: &'static str,
    /// frazil's commit.
    pub frazil: String,
    /// The compiler.
    pub rustc: String,
    /// Of each arm.
    pub threads: usize,
    /// Samples of each measure.
    pub rounds: usize,
    /// What the machine could do when the run began and when it ended.
    pub peaks: Vec<Value>,
    /// The part of the machine's time that something else took during the rounds.
    pub others: f64,
    /// The engine whose float32 logits all others are compared with.
    pub reference: &'static str,
    /// The arms.
    pub arms: Vec<ArmRecord>,
    /// All times.
    pub measures: Vec<Measure>,
    /// frazil against the best peer.
    pub ratios: Vec<Ratio>,
    /// The whole model against the machine's peak.
    pub end_to_end: Vec<EndToEnd>,
    /// Arms that could not do something, and why.
    pub complaints: Vec<String>,
}

/// An arm with one model.
#[derive(Serialize)]
pub struct ArmRecord {
    /// The engine.
    pub engine: &'static str,
    /// What it computes with.
    pub precision: Precision,
    /// The model.
    pub model: &'static str,
    /// What it said of itself.
    #[serde(flatten)]
    pub hello: Hello,
    /// Resident memory after the first answer, for 1 x 128, MB.
    pub resident_mb: f64,
    /// Largest resident memory, MB.
    pub memory_mb: f64,
    /// CPU seconds that it used while others ran.
    pub idle_seconds: f64,
    /// Largest difference of a logit from the reference's.
    pub largest_difference: Option<f64>,
    /// Whether that is little enough to be compared: always for int8.
    pub agrees: bool,
}

/// frazil against the best peer on a workload.
#[derive(Serialize)]
pub struct Ratio {
    /// The workload.
    pub workload: &'static str,
    /// `f32` or `int8`.
    pub precision: &'static str,
    /// The peer with the least median.
    pub peer: &'static str,
    /// How many times faster frazil is, round by round.
    pub times: Summary,
    /// What it should be at least.
    pub goal: f64,
    /// Whether it is.
    pub met: bool,
}

/// How near frazil comes to the machine's peak with the whole model.
#[derive(Serialize)]
pub struct EndToEnd {
    /// The workload.
    pub workload: &'static str,
    /// `f32` or `int8`.
    pub precision: &'static str,
    /// Operations a second, in 10⁹.
    pub giga_operations: f64,
    /// The better of the peaks that were measured.
    pub peak: f64,
    /// In percent.
    pub percent: f64,
    /// What it should be at least.
    pub goal: f64,
    /// Whether it is.
    pub met: bool,
}

/// The classes of machines whose best peers differ.
pub fn class(isa: &str) -> &'static str {
    match isa {
        "avx512_vnni" => "A: AVX-512 + VNNI",
        "avx512" => "between A and B: AVX-512 without VNNI",
        "avx2" => "B: AVX2 only",
        _ => "neither A nor B: no AVX2",
    }
}

/// Compares frazil with the fastest of the peers that agree, for every workload and precision.
pub fn ratios(measures: &[Measure], arms: &[ArmRecord]) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    for workload in &WORKLOADS {
        for (precision, goal) in ["f32", "int8"].into_iter().zip(workload.goals) {
            let here: Vec<&Measure> = measures
                .iter()
                .filter(|m| m.workload == workload.name && m.precision == precision)
                .collect();
            let ours = here.iter().find(|m| m.engine == OURS);
            let peers = here.iter().filter(|m| m.engine != OURS && !m.estimated && agrees(m, arms));
            let best = peers.min_by(|a, b| a.seconds.median.total_cmp(&b.seconds.median));
            let (Some(ours), Some(best)) = (ours, best) else { continue };
            let times = best.seconds.over(&ours.seconds);
            let met = times.median >= goal;
            let (workload, peer) = (workload.name, best.engine);
            ratios.push(Ratio { workload, precision, peer, times, goal, met });
        }
    }
    ratios
}

fn agrees(measure: &Measure, arms: &[ArmRecord]) -> bool {
    let workload = WORKLOADS.iter().find(|row| row.name == measure.workload);
    let model = workload.map_or("", |row| row.size.name);
    let same = |arm: &&ArmRecord| {
        arm.engine == measure.engine
            && arm.precision.name() == measure.precision
            && (arm.model == model || arm.model == Size::TINY.name)
    };
    arms.iter().find(same).is_none_or(|arm| arm.agrees)
}

/// frazil on W2 against the peak.
pub fn end_to_end(measures: &[Measure], peaks: &[Value], isa: &str) -> Vec<EndToEnd> {
    let Some(w2): Option<&Workload> = WORKLOADS.iter().find(|row| row.name == "W2") else {
        return Vec::new();
    };
    let int8_goal = if isa == "avx512_vnni" { 60.0 } else { 70.0 };
    let rows = [("f32", "f32_gflops", 85.0), ("int8", "int8_gops", int8_goal)];
    let mut found = Vec::new();
    for (precision, key, goal) in rows {
        let ours = measures
            .iter()
            .find(|m| m.workload == w2.name && m.engine == OURS && m.precision == precision);
        let peak = peaks.iter().filter_map(|p| p[key].as_f64()).fold(f64::NAN, f64::max);
        let (Some(ours), Ok(lengths)) = (ours, w2.lengths(false)) else { continue };
        let giga_operations = w2.size.operations(&lengths) / ours.seconds.median / 1e9;
        let percent = 100.0 * giga_operations / peak;
        if percent.is_finite() {
            let (workload, met) = (w2.name, percent >= goal);
            found.push(EndToEnd { workload, precision, giga_operations, peak, percent, goal, met });
        }
    }
    found
}

#[cfg(test)]
pub mod tests {
    use serde_json::json;

    use super::*;

    pub fn measure(engine: &'static str, workload: &'static str, samples: &[f64]) -> Measure {
        let seconds = Summary::new(samples.to_vec());
        Measure {
            workload,
            engine,
            precision: "f32",
            batching: "1 x 128".into(),
            sequences: 8,
            estimated: false,
            sequences_per_s: 8.0 / seconds.median,
            seconds,
        }
    }

    pub fn arm(engine: &'static str, agrees: bool) -> ArmRecord {
        let about = json!({ "kernels": "avx2" });
        let hello = Hello { version: "1".into(), load_seconds: 1.0, first_seconds: 1.5, about };
        ArmRecord {
            engine,
            precision: Precision::F32,
            model: "base",
            hello,
            resident_mb: 400.0,
            memory_mb: 500.0,
            idle_seconds: 0.0,
            largest_difference: Some(1e-5),
            agrees,
        }
    }

    #[test]
    fn the_best_peer_is_the_fastest_that_agrees() {
        let measures = [
            measure(OURS, "W1", &[1.0, 2.0]),
            measure("openvino", "W1", &[2.0, 4.0]),
            measure("rten", "W1", &[3.0, 3.0]),
            measure("tensorflow", "W1", &[0.1, 0.1]),
        ];
        let arms = [arm("tensorflow", false), arm("openvino", true)];
        let ratios = ratios(&measures, &arms);
        assert_eq!(ratios.len(), 1);
        assert_eq!(
            (ratios[0].peer, ratios[0].times.median, ratios[0].met),
            ("openvino", 2.0, true)
        );
    }

    #[test]
    fn the_better_peak_counts() {
        let peaks = [json!({ "f32_gflops": 300.0 }), json!({ "f32_gflops": 340.0 })];
        let found = end_to_end(&[measure(OURS, "W2", &[0.6])], &peaks, "avx512_vnni");
        assert_eq!(found.len(), 1);
        assert!(
            (found[0].percent - 100.0 * 178.7 / 0.6 / 340.0).abs() < 0.5,
            "{}",
            found[0].percent
        );
        assert!(found[0].met);
    }
}
