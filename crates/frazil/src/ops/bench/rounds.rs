//! Time: one instance, or several at once, round by round.

use std::borrow::Borrow;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use frazil_runtime::{Engine, Inputs};

use crate::Result;

/// A round of several instances takes at least this long, since they start and end together
/// only roughly.
const LONG_ENOUGH: f64 = 0.1;

/// What was measured of a variant.
#[derive(Default)]
pub struct Times {
    /// Seconds of a pass over all batches, of each instance.
    pub passes: Vec<Vec<f64>>,
    /// Seconds of each batch, of all instances.
    pub batches: Vec<f64>,
    /// Seconds that a pass cost in each round: of all instances together, one after the other.
    pub costs: Vec<f64>,
    /// Passes of each instance in a round.
    repeats: usize,
}

/// What one instance did.
pub struct Run {
    start: Instant,
    end: Instant,
    /// Seconds of each pass.
    passes: Vec<f64>,
    /// Seconds of each batch.
    pub batches: Vec<f64>,
}

impl Times {
    /// One round: every instance makes its passes, all at the same time. A round that does not count
    /// warms up (memory grows, threads start) and tells how many passes the others need.
    pub fn round(&mut self, engines: &[Engine], batches: &[Inputs], counts: bool) -> Result<()> {
        let count = if engines.len() > 1 { self.repeats.max(1) } else { 1 };
        let runs = together(engines, batches, count)?;
        let seconds = wall(&runs);
        if !counts {
            self.repeats = ((LONG_ENOUGH / seconds).ceil() as usize).clamp(1, 1000);
            return Ok(());
        }
        let count: usize = runs.iter().map(|run| run.passes.len()).sum();
        self.costs.push(seconds / count as f64);
        self.passes.resize(runs.len(), Vec::new());
        for (all, run) in self.passes.iter_mut().zip(runs) {
            all.extend(run.passes);
            self.batches.extend(run.batches);
        }
        Ok(())
    }
}

/// Seconds from the first start to the last end.
pub fn wall(runs: &[Run]) -> f64 {
    let start = runs.iter().map(|run| run.start).min();
    let end = runs.iter().map(|run| run.end).max();
    start.zip(end).map_or(0.0, |(start, end)| (end - start).as_secs_f64())
}

fn passes<B: Borrow<Inputs>>(engine: &Engine, batches: &[B], count: usize) -> Result<Run> {
    let start = Instant::now();
    let mut run = Run { start, end: start, passes: Vec::new(), batches: Vec::new() };
    for _ in 0..count {
        let begin = run.end;
        for inputs in batches {
            let before = run.end;
            engine.run(inputs.borrow())?;
            run.end = Instant::now();
            run.batches.push((run.end - before).as_secs_f64());
        }
        run.passes.push((run.end - begin).as_secs_f64());
    }
    Ok(run)
}

/// Every instance makes as many passes over the batches, all at the same time.
pub fn together<B: Borrow<Inputs> + Sync>(
    engines: &[Engine],
    batches: &[B],
    count: usize,
) -> Result<Vec<Run>> {
    if let [engine] = engines {
        return Ok(vec![passes(engine, batches, count)?]);
    }
    let gate = Barrier::new(engines.len());
    thread::scope(|scope| {
        let start = |engine| {
            let gate = &gate;
            scope.spawn(move || {
                gate.wait();
                passes(engine, batches, count)
            })
        };
        let threads: Vec<_> = engines.iter().map(start).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<Run>>| match thread.join() {
            Ok(run) => run,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect()
    })
}
