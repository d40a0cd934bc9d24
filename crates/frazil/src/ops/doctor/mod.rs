//! `doctor`: what this machine has, what frazil makes of it, and whether its kernels compute here
//! what they should.

mod selftest;

use std::time::Instant;

use frazil_kernels::Isa;
use frazil_kernels::par::Pool;
use frazil_runtime::default_threads;
use serde::Serialize;

pub use selftest::Check;

use crate::Result;

/// What the self-test takes, unless told otherwise.
pub const SECONDS: f64 = 2.0;

/// A diagnosis.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Of frazil.
    pub version: &'static str,
    /// The commit of a release build.
    pub commit: Option<&'static str>,
    /// The architecture and the system that it was built for.
    pub target: String,
    /// The CPU's name, where the system tells.
    pub cpu: Option<String>,
    /// What it can do, of what kernels use, and whether it is there.
    pub features: Vec<(&'static str, bool)>,
    /// Instruction sets that kernels are written for and this machine has.
    pub available: Vec<&'static str>,
    /// The one that is used.
    pub isa: &'static str,
    /// Cores that the process may use.
    pub cores: usize,
    /// Threads that are used.
    pub threads: usize,
    /// Memory, in bytes, where the system tells.
    pub memory: Option<u64>,
    /// Memory that is free, in bytes.
    pub available_memory: Option<u64>,
    /// `FRAZIL_ISA`, `FRAZIL_THREADS`, as they are set.
    pub environment: Vec<(&'static str, String)>,
    /// The self-test.
    pub checks: Vec<Check>,
    /// What the self-test took.
    pub seconds: f64,
    /// What could be better.
    pub advice: Vec<String>,
    /// Whether every check holds.
    pub good: bool,
}

/// Looks at the machine; the self-test takes about `seconds`.
pub fn doctor(seconds: f64) -> Result<Report> {
    let isa =
        Isa::chosen().map_err(|error| frazil_runtime::Error::UnknownIsa { name: error.name })?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = default_threads()?;
    let start = Instant::now();
    let checks = selftest::check(&Pool::new(threads), seconds);
    let seconds = start.elapsed().as_secs_f64();
    let good = checks.iter().all(|check| check.good);
    let environment = ["FRAZIL_ISA", "FRAZIL_THREADS"]
        .into_iter()
        .filter_map(|name| Some((name, std::env::var(name).ok()?)))
        .collect();
    Ok(Report {
        version: env!("CARGO_PKG_VERSION"),
        commit: crate::commit(),
        target: format!("{} {}", std::env::consts::ARCH, std::env::consts::OS),
        cpu: line_of("/proc/cpuinfo", "model name"),
        features: features(),
        available: Isa::available().map(Isa::name).collect(),
        isa: isa.name(),
        cores,
        threads,
        memory: memory("MemTotal"),
        available_memory: memory("MemAvailable"),
        environment,
        advice: advice(isa, cores, threads, &checks),
        checks,
        seconds,
        good,
    })
}

/// What kernels use of the CPU.
fn features() -> Vec<(&'static str, bool)> {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        vec![
            ("avx2", has!("avx2")),
            ("fma", has!("fma")),
            ("f16c", has!("f16c")),
            ("avx512f", has!("avx512f")),
            ("avx512bw", has!("avx512bw")),
            ("avx512dq", has!("avx512dq")),
            ("avx512vl", has!("avx512vl")),
            ("avx512vnni", has!("avx512vnni")),
        ]
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        Vec::new()
    }
}

fn advice(isa: Isa, cores: usize, threads: usize, checks: &[Check]) -> Vec<String> {
    let mut advice = Vec::new();
    if isa < Isa::detect() {
        advice.push(format!(
            "`FRAZIL_ISA` lowers the instructions to {isa}; this machine has {}",
            Isa::detect()
        ));
    }
    if isa == Isa::Scalar {
        advice.push("only plain code runs here: expect a tenth of the speed, or less".into());
    } else if isa < Isa::Avx512Vnni && Isa::detect() < Isa::Avx512Vnni {
        advice.push("no VNNI here: int8 gains less over float32 than on newer CPUs".into());
    }
    if threads > cores {
        advice.push(format!("{threads} threads share {cores} cores: fewer would be faster"));
    }
    for check in checks.iter().filter(|check| !check.good) {
        advice.push(format!(
            "`{}` is wrong on {}: lower the instructions with `FRAZIL_ISA`, and report it",
            check.kernel, check.isa
        ));
    }
    advice
}

/// What stands behind `key :` in a file of the system.
fn line_of(path: &str, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.trim_start_matches([' ', '\t', ':']).trim().to_owned())
}

fn memory(key: &str) -> Option<u64> {
    let kb = line_of("/proc/meminfo", key)?;
    kb.trim_end_matches("kB").trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_is_right_here() {
        let report = doctor(0.0).unwrap();
        assert!(report.good, "{:?}", report.checks);
        let fast = Isa::available().count() - 1;
        assert_eq!(report.checks.len(), 8 * fast);
        assert!(report.available.contains(&report.isa));
        assert!(report.checks.iter().all(|check| check.ms > 0.0));
    }

    #[test]
    fn a_broken_kernel_gets_advice() {
        let check = Check {
            kernel: "gelu",
            isa: "avx2",
            difference: 1.0,
            tolerance: 1e-6,
            ms: 1.0,
            good: false,
        };
        let advice = advice(Isa::detect(), 2, 4, &[check]);
        assert!(advice.iter().any(|line| line.contains("`gelu` is wrong on avx2")), "{advice:?}");
        assert!(advice.iter().any(|line| line.contains("4 threads share 2 cores")));
    }
}
