//! Speed of the matrix products at the sizes of BERT, as a share of what the machine can do.
//!
//! `cargo run --release -p frazil-kernels --example gemm_speed [-- THREADS [ISA [f32|i8 [M [N K]]]]]`
//!
//! Every speed is the best of many runs, and so is the peak, measured in between. "cold" is after
//! 48 MB of other memory has passed through the caches, as other layers' weights do in a model.
//! With one thread the time is what the thread computed, not what it waited for others on the
//! machine.
#![allow(clippy::print_stdout, reason = "the table is what is asked for")]
#![allow(unsafe_code, reason = "the clock of a thread")]

use std::time::{Duration, Instant};

use frazil_kernels::gemm::{Activation, Columns, Epilogue, Orientation, Output, f32, i8};
use frazil_kernels::par::Pool;
use frazil_kernels::{Isa, peak};

/// Seconds: those of this thread if it is the only one, else those of the wall.
fn now(threads: usize) -> f64 {
    #[repr(C)]
    struct Timespec(i64, i64);
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
    }
    let mut time = Timespec(0, 0);
    // CLOCK_THREAD_CPUTIME_ID, CLOCK_MONOTONIC.
    let clock = if threads == 1 { 3 } else { 1 };
    // SAFETY: the structure is the one that 64-bit Linux fills in.
    unsafe { clock_gettime(clock, &raw mut time) };
    time.0 as f64 + time.1 as f64 * 1e-9
}

/// Elements that begin at a cache line.
struct Aligned<T> {
    all: Vec<T>,
    skip: usize,
    len: usize,
}

impl<T: Clone> Aligned<T> {
    fn new(len: usize, of: impl Fn(usize) -> T) -> Self {
        let all: Vec<T> = (0..len + 64).map(of).collect();
        let skip = all.as_ptr().align_offset(64).min(64);
        Self { all, skip, len }
    }
    fn get(&self) -> &[T] {
        &self.all[self.skip..self.skip + self.len]
    }
    fn get_mut(&mut self) -> &mut [T] {
        &mut self.all[self.skip..self.skip + self.len]
    }
}

struct Bench {
    pool: Pool,
    isa: Isa,
    cold: Aligned<f32>,
}

impl Bench {
    fn measure(&self, what: &str, operations: f64, peak: impl Fn() -> f64, mut run: impl FnMut()) {
        run();
        let (mut time, mut cold, mut most) = (f64::INFINITY, f64::INFINITY, peak());
        let threads = self.pool.threads();
        let mut timed = || {
            let start = now(threads);
            run();
            now(threads) - start
        };
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(700) {
            for _ in 0..20 {
                time = time.min(timed());
            }
            peak::read(&self.pool, self.isa, self.cold.get());
            cold = cold.min(timed());
            most = most.max(peak());
        }
        let speed = |time: f64| operations / time / 1e9;
        println!(
            "{what}: {:7.1} of {most:6.1} Gop/s: {:5.1}%, cold {:5.1}%",
            speed(time),
            100.0 * speed(time) / most,
            100.0 * speed(cold) / most,
        );
    }

    fn numbers(&self, m: usize, n: usize, k: usize, activation: Activation) {
        let (pool, isa) = (&self.pool, self.isa);
        let number = |i: usize| (i * 7919 % 1000) as f32 * 1e-3 - 0.5;
        let (lda, ldc) = (k + 16, n + 16);
        let (a, bias) = (Aligned::new(m * lda, number), Aligned::new(n, number));
        let mut w = Aligned::new(f32::packed_len(isa, k, n), |_| 0.0);
        let plain = Aligned::new(k * n, number);
        let part = Columns { w: plain.get(), order: Orientation::Kn, n };
        f32::pack(isa, &[part], k, w.get_mut());
        let mut c = Aligned::new(m * ldc, number);
        let what =
            format!("f32 {isa} {} threads {m:4} x {n:4} x {k:4} {activation:?}", pool.threads());
        let operations = 2.0 * (m * n * k) as f64;
        self.measure(
            &what,
            operations,
            || peak::multiply_f32(pool, isa),
            || {
                let out = Output::F32(c.get_mut());
                let epilogue = Epilogue { bias: Some(bias.get()), activation, residual: None };
                f32::run(
                    pool,
                    isa,
                    f32::Gemm { m, n, k, a: a.get(), lda, w: w.get(), out, ldc, epilogue },
                );
            },
        );
    }

    fn bytes(&self, m: usize, n: usize, k: usize, activation: Activation) {
        let (pool, isa) = (&self.pool, self.isa);
        let (lda, ldc) = (k + 64, n + 64);
        let a = Aligned::new(m * lda, |i| (i * 7919 % 251) as u8);
        let weight = |i: usize| if i % 10_007 == 3 { 127 } else { (i * 7919 % 101) as i8 - 50 };
        let mut w = Aligned::new(i8::packed_len(isa, k, n), |_| 0);
        let plain = Aligned::new(k * n, weight);
        let part = Columns { w: plain.get(), order: Orientation::Kn, n };
        i8::pack(isa, &[part], k, w.get_mut());
        let (bias, scales) = (Aligned::new(n, |i| i as f32 * 1e-3), Aligned::new(n, |_| 1e-3));
        let mut c = Aligned::new(m * ldc, |_| 0);
        let what =
            format!("i8 {isa} {} threads {m:4} x {n:4} x {k:4} {activation:?}", pool.threads());
        let operations = 2.0 * (m * n * k) as f64;
        self.measure(
            &what,
            operations,
            || peak::multiply_i8(pool, isa),
            || {
                let epilogue = Epilogue { bias: Some(bias.get()), activation, residual: None };
                i8::run(
                    pool,
                    isa,
                    i8::Gemm {
                        factors: i8::Factors {
                            m,
                            n,
                            k,
                            a: a.get(),
                            lda,
                            zeros: i8::Zeros::Tensor(128),
                            w: w.get(),
                        },
                        scales: i8::Scales::Tensor(0.01),
                        column_scales: scales.get(),
                        out: Output::U8 { out: c.get_mut(), scale: 0.05, zero: 128, factors: None },
                        ldc,
                        epilogue,
                    },
                );
            },
        );
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |i: usize| arguments.get(i).map(String::as_str);
    let threads = argument(0).map_or(2, |threads| threads.parse().expect("a number of threads"));
    let isa = argument(1).map_or(Isa::detect(), |isa| isa.parse().expect("an instruction set"));
    let size = |i: usize| argument(i).map(|size| size.parse::<usize>().expect("a size"));
    let cold = Aligned::new(12 << 20, |_| 1.0);
    let bench = Bench { pool: Pool::new(threads), isa, cold };
    let sizes = match (size(4), size(5)) {
        (Some(n), Some(k)) => vec![(n, k, Activation::None)],
        _ => vec![
            (768, 768, Activation::None),
            (2304, 768, Activation::None),
            (3072, 768, Activation::GeluTanh),
            (768, 3072, Activation::None),
        ],
    };
    for m in size(3).map_or(vec![128, 384, 1024], |m| vec![m]) {
        for &(n, k, activation) in &sizes {
            if argument(2) != Some("i8") {
                bench.numbers(m, n, k, activation);
            }
            if argument(2) != Some("f32") {
                bench.bytes(m, n, k, activation);
            }
        }
    }
}
