//! What it costs to share work out: this crate's pool against rayon, on regions like a BERT layer's.
//!
//! `cargo run --release -p frazil-kernels --example pool_speed [-- THREADS]`
//!
//! A layer has about 6 regions, a model 12 layers: 72 regions in a row, each with 24 tasks of some
//! microseconds. Both run interleaved; the median and the best of many are printed, and what the tasks take
//! by themselves on one thread, shared by the number of threads.
#![allow(clippy::print_stdout, reason = "the table is what is asked for")]

use std::hint::black_box;
use std::time::Instant;

use frazil_kernels::par::Pool;
use rayon::prelude::*;

const REGIONS: usize = 72;
const TASKS: usize = 24;

/// So many dependent multiplications: some nanoseconds each.
fn task(length: usize) {
    let mut x = 1.0f32;
    for _ in 0..length {
        x = black_box(x * 1.000_1);
    }
}

fn seconds(run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_secs_f64()
}

fn main() {
    let threads = std::env::args().nth(1).map_or(2, |n| n.parse().expect("a number of threads"));
    let pool = Pool::new(threads);
    let rayon =
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads start");
    println!("{threads} threads, {REGIONS} regions of {TASKS} tasks; µs per region, best (median)");
    println!("{:>12} {:>10} {:>18} {:>18}", "µs per task", "ideal", "pool", "rayon");
    for length in [0, 100, 500, 2000, 10_000] {
        let alone = (0..20).map(|_| seconds(|| (0..TASKS).for_each(|_| task(length))));
        let alone = alone.fold(f64::INFINITY, f64::min);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..200 {
            ours.push(seconds(|| {
                (0..REGIONS).for_each(|_| pool.run(TASKS, &|_, _| task(length)));
            }));
            theirs.push(seconds(|| {
                rayon.install(|| {
                    for _ in 0..REGIONS {
                        (0..TASKS).into_par_iter().for_each(|_| task(length));
                    }
                });
            }));
        }
        let show = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            let region = |time: f64| time / REGIONS as f64 * 1e6;
            format!("{:.2} ({:.2})", region(times[0]), region(times[times.len() / 2]))
        };
        println!(
            "{:>12.2} {:>10.2} {:>18} {:>18}",
            alone / TASKS as f64 * 1e6,
            alone / threads as f64 * 1e6,
            show(&mut ours),
            show(&mut theirs)
        );
    }
}
