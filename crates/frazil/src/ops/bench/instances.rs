//! Several of a model at the same time: how many threads each has, and whether there are cores for them.

use frazil_runtime::{Engine, default_threads};

use crate::{Error, Result};

/// More threads than any machine has cores: whoever asks for more has mistyped.
const MOST_THREADS: usize = 2048;

/// Threads of each instance: what is said, or the cores shared among them. None for a single one of
/// which nothing is said.
pub fn share(threads: Option<usize>, instances: usize) -> Result<Option<usize>> {
    Ok(match threads {
        None if instances > 1 => Some((default_threads()? / instances).max(1)),
        threads => threads,
    })
}

/// As many of an engine as run at the same time, on the same weights; 0 is 1.
pub(crate) fn instances(engine: Engine, count: usize) -> Result<Vec<Engine>> {
    let threads = engine.threads();
    if count.saturating_mul(threads) > MOST_THREADS {
        return Err(Error::Usage {
            what: format!(
                "{count} instances with {threads} threads each are more than {MOST_THREADS} threads"
            ),
            hint: "give as many instances as there are cores, or fewer".into(),
        });
    }
    let more: Vec<Engine> = (1..count).map(|_| engine.instance()).collect();
    Ok(std::iter::once(engine).chain(more).collect())
}

/// What should be known of instances that have more threads than the machine has cores.
pub(crate) fn crowd(instances: usize, threads: usize) -> Option<String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let crowded = instances > 1 && instances * threads > cores;
    crowded.then(|| {
        format!("{instances} instances with {threads} threads each wait for each other: there are {cores} cores")
    })
}
