//! One table for all kernels that have a fast form: each row is checked on every instruction set
//! of this machine, over odd sizes, against plain code, and can measure its own speed.
//!
//! `cargo test --release -p frazil-kernels --test conformance -- --ignored --nocapture speed`
//! prints the speeds. What this machine lacks is run on an emulated CPU (`cargo xtask emulate`).
//!
//! Everything that a kernel reads or writes lies next to a page that nobody may touch ([`guard`]).

use std::time::Instant;

use frazil_kernels::Isa;
use frazil_kernels::par::Pool;

use guard::{Edge, Guarded, guard};

mod attention;
mod bound;
mod gemm;
mod guard;
mod training;
mod vector;

/// A kernel in the table.
pub struct Row {
    /// What it is called.
    pub kernel: &'static str,
    /// How far it may be from plain code, in the measure that `check` returns.
    pub tolerance: f64,
    /// Computes it over many sizes; gives the worst difference and where.
    pub check: fn(Isa) -> Worst,
    /// Sets up one realistic size and gives what is to be timed.
    pub speed: Option<fn(Isa) -> Timed>,
}

/// The largest difference of a check.
#[derive(Default)]
pub struct Worst {
    difference: f64,
    place: String,
}

impl Worst {
    /// Takes a difference into account; one that is not a number counts as infinite.
    pub fn note(&mut self, difference: f64, place: impl FnOnce() -> String) {
        let difference = if difference.is_nan() { f64::INFINITY } else { difference };
        if difference > self.difference {
            *self = Self { difference, place: place() };
        }
    }
}

/// Something to measure.
pub struct Timed {
    /// The size, in words.
    pub size: String,
    /// Operations of one run; 0 if they do not matter.
    pub operations: f64,
    /// Bytes that one run moves; 0 if they do not matter.
    pub bytes: f64,
    /// One run.
    pub run: Box<dyn FnMut()>,
}

/// [`plain_numbers`] between forbidden pages.
pub fn numbers(seed: u64, n: usize) -> Guarded<f32> {
    guard(plain_numbers(seed, n))
}

/// Numbers without a pattern, between -1 and 1, the same every time.
pub fn plain_numbers(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn table() -> Vec<Row> {
    let all = [gemm::rows(), vector::rows(), attention::rows(), training::rows()];
    all.into_iter().flatten().collect()
}

/// Two threads, so that sharing out is checked as well; on one core they would only wait for
/// each other.
pub fn pool() -> Pool {
    Pool::new(std::thread::available_parallelism().map_or(1, usize::from).min(2))
}

#[allow(clippy::print_stderr, reason = "what was not checked must be heard")]
fn check_all(isa: Isa, edge: Edge) {
    if !isa.is_available() {
        eprintln!("SKIPPED: no {isa} here; `cargo xtask emulate` runs it");
        return;
    }
    let mut failures = Vec::new();
    guard::set_edge(edge);
    for row in table() {
        let worst = (row.check)(isa);
        if worst.difference > row.tolerance {
            failures.push(format!(
                "{} on {isa}: {:.3e} at {}, at most {:.3e} is allowed",
                row.kernel, worst.difference, worst.place, row.tolerance
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_kernel_on_scalar() {
    check_all(Isa::Scalar, Edge::End);
}

#[test]
fn every_kernel_on_avx2() {
    check_all(Isa::Avx2, Edge::End);
}

#[test]
fn every_kernel_on_avx512() {
    check_all(Isa::Avx512, Edge::End);
}

#[test]
fn every_kernel_on_avx512vnni() {
    check_all(Isa::Avx512Vnni, Edge::End);
}

#[test]
fn no_kernel_touches_what_lies_before() {
    for isa in Isa::available() {
        check_all(isa, Edge::Begin);
    }
}

#[test]
#[ignore = "a measurement: run it alone, in a release build"]
#[allow(clippy::print_stdout, reason = "the table is what is asked for")]
fn speed() {
    println!(
        "{:<28} {:<11} {:<28} {:>10} {:>9} {:>8}",
        "kernel", "isa", "size", "µs", "Gop/s", "GB/s"
    );
    for row in table() {
        let Some(speed) = row.speed else { continue };
        for isa in Isa::available() {
            let Timed { size, operations, bytes, mut run } = speed(isa);
            run();
            let start = Instant::now();
            let mut best = f64::INFINITY;
            let mut rounds = 0;
            while rounds < 5 || (start.elapsed().as_secs_f64() < 0.5 && rounds < 10_000) {
                let start = Instant::now();
                run();
                best = best.min(start.elapsed().as_secs_f64());
                rounds += 1;
            }
            println!(
                "{:<28} {:<11} {:<28} {:>10.1} {:>9.1} {:>8.1}",
                row.kernel,
                isa.name(),
                size,
                best * 1e6,
                operations / best / 1e9,
                bytes / best / 1e9
            );
        }
    }
}
