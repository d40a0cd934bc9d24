//! Speed of the matrix products at the sizes of BERT, as a share of what the machine can do.
//!
//! `cargo run --release -p frazil-kernels --example gemm_speed [-- threads [isa]]`
#![allow(clippy::print_stdout, reason = "the table is what is asked for")]

use std::time::{Duration, Instant};

use frazil_kernels::gemm::{Epilogue, Orientation, Output, f32};
use frazil_kernels::par::Pool;
use frazil_kernels::{Isa, peak};

/// Numbers that begin at a cache line.
struct Aligned {
    all: Vec<f32>,
    skip: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Self {
        let all: Vec<f32> =
            (0..len + 1024).map(|i| (i * 7919 % 1000) as f32 * 1e-3 - 0.5).collect();
        let skip = all.as_ptr().align_offset(64).min(1024);
        Self { all, skip, len }
    }
    fn get(&self) -> &[f32] {
        &self.all[self.skip..self.skip + self.len]
    }
    fn get_mut(&mut self) -> &mut [f32] {
        &mut self.all[self.skip..self.skip + self.len]
    }
}

/// The best time of a function within a while.
fn best(seconds: f64, mut run: impl FnMut()) -> Duration {
    let start = Instant::now();
    let mut best = Duration::MAX;
    while start.elapsed().as_secs_f64() < seconds {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed());
    }
    best
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let threads =
        arguments.next().map_or(2, |threads| threads.parse().expect("a number of threads"));
    let isa =
        arguments.next().map_or(Isa::detect(), |isa| isa.parse().expect("an instruction set"));
    let pool = Pool::new(threads);
    let pad =
        |columns: usize| ((columns / 16) | 1) * 16 + if columns / 16 % 2 == 1 { 32 } else { 0 };
    // Cold: as in a model, other weights have passed through the caches before these come again.
    let cold = Aligned::new(12 << 20);
    for m in [128, 384, 1024] {
        for (n, k) in [(768, 768), (2304, 768), (3072, 768), (768, 3072)] {
            let (lda, ldc) = (pad(k), pad(n));
            let a = Aligned::new(m * lda);
            let plain = Aligned::new(k * n);
            let mut w = Aligned::new(f32::packed_len(isa, k, n));
            f32::pack(isa, plain.get(), Orientation::Kn, k, n, w.get_mut());
            let mut c = Aligned::new(m * ldc);
            let bias = Aligned::new(n);
            let mut run = || {
                let out = Output::F32(c.get_mut());
                let epilogue = Epilogue { bias: Some(bias.get()), ..Epilogue::default() };
                let gemm = f32::Gemm { m, n, k, a: a.get(), lda, w: w.get(), out, ldc, epilogue };
                f32::run(&pool, isa, gemm);
            };
            let mut peak = peak::multiply_f32(&pool, isa);
            let mut time = Duration::MAX;
            for _ in 0..4 {
                time = time.min(best(0.15, &mut run));
                peak = peak.max(peak::multiply_f32(&pool, isa));
            }
            let mut cold_time = Duration::MAX;
            for _ in 0..8 {
                std::hint::black_box(peak::read(&pool, isa, cold.get()));
                let start = Instant::now();
                run();
                cold_time = cold_time.min(start.elapsed());
            }
            let speed = |time: Duration| 2.0 * (m * n * k) as f64 / time.as_secs_f64() / 1e9;
            println!(
                "f32 {isa} {threads} threads {m:5} x {n:5} x {k:5}: {:7.1} GFLOP/s of {peak:6.1}: {:5.1}%, cold {:5.1}%",
                speed(time),
                100.0 * speed(time) / peak,
                100.0 * speed(cold_time) / peak,
            );
        }
    }
}
