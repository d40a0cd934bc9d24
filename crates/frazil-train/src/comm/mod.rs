//! Several processes that train one model: who they are, and how they come by each other's numbers.
//!
//! [`Comm`] is all that a training asks of them: a handful of collective operations, which every rank
//! calls in the same order. [`Solo`] is the one process of an ordinary run, [`Threads`] are ranks that
//! live in one process, and `Mpi` (with the feature `mpi`) is MPI's world. Transport is theirs: there
//! is none of our own.
//!
//! An operation gives back the hand when it is done; what is to go on meanwhile goes on in another
//! thread. So calls may come from any thread, but never two at a time.

#[cfg(feature = "mpi")]
mod mpi;
mod threads;

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

#[cfg(feature = "mpi")]
pub use self::mpi::Mpi;
pub use self::threads::Threads;
use crate::{Error, Result};

/// The processes of a training, as one of them sees them.
pub trait Comm: Debug + Send + Sync {
    /// Which one this is: 0, 1, …
    fn rank(&self) -> usize;

    /// How many there are.
    fn size(&self) -> usize;

    /// Adds up the numbers of all ranks, in the order of ranks or another that is always the same. The
    /// sum is at `root`; what the others have is of no concern any more.
    fn reduce(&self, root: usize, values: &mut [f32]) -> Result<()>;

    /// Gives the numbers of `root` to all.
    fn broadcast(&self, root: usize, values: &mut [f32]) -> Result<()>;

    /// What every rank has to say, in their order, for all.
    fn all_gather(&self, said: &[u8]) -> Result<Vec<Vec<u8>>>;

    /// Waits for all.
    fn barrier(&self) -> Result<()>;

    /// Numbers that are worth being sent together, about: those of 4 MB.
    fn bucket(&self) -> usize {
        1 << 20
    }

    /// Ends all ranks at once, where one cannot go on: the others would wait for it. With a single
    /// process, or where the ranks are threads, it is enough that the caller gives up.
    fn abort(&self, code: i32) {
        let _ = code;
    }

    /// Whether this one writes and speaks for all.
    fn is_first(&self) -> bool {
        self.rank() == 0
    }
}

/// One process, on its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Solo;

impl Comm for Solo {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn reduce(&self, _: usize, _: &mut [f32]) -> Result<()> {
        Ok(())
    }

    fn broadcast(&self, _: usize, _: &mut [f32]) -> Result<()> {
        Ok(())
    }

    fn all_gather(&self, said: &[u8]) -> Result<Vec<Vec<u8>>> {
        Ok(vec![said.to_vec()])
    }

    fn barrier(&self) -> Result<()> {
        Ok(())
    }
}

/// The processes that were started together with this one: MPI's world under `mpirun` and its like,
/// and else this one alone. Without the feature `mpi`, being one of several is an error: each would
/// train the whole.
pub fn world() -> Result<Arc<dyn Comm>> {
    match launched() {
        None | Some(1) => Ok(Arc::new(Solo)),
        #[cfg(feature = "mpi")]
        Some(_) => Ok(Arc::new(Mpi::join()?)),
        #[cfg(not(feature = "mpi"))]
        Some(processes) => Err(Error::NoMpi { processes }),
    }
}

/// As how many processes an MPI launcher has started us, if it was one.
fn launched() -> Option<usize> {
    // Open MPI; MPICH, Intel MPI and MVAPICH; Slurm's own.
    let names = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"];
    names.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

/// A few numbers of every rank, in their order.
pub fn all_numbers(comm: &dyn Comm, own: &[f64]) -> Result<Vec<Vec<f64>>> {
    let bytes: Vec<u8> = own.iter().flat_map(|number| number.to_le_bytes()).collect();
    let numbers = |said: Vec<u8>| {
        let (each, rest) = said.as_chunks();
        match rest.is_empty() && each.len() == own.len() {
            true => Ok(each.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()),
            false => Err(Error::OutOfStep { found: said.len(), expected: bytes.len() }),
        }
    };
    comm.all_gather(&bytes)?.into_iter().map(numbers).collect()
}

/// The part of a list of that length that a rank takes; with those of the others it is the whole, in order.
pub fn part(comm: &dyn Comm, len: usize) -> Range<usize> {
    let bound = |rank: usize| len * rank / comm.size();
    bound(comm.rank())..bound(comm.rank() + 1)
}

/// What every rank has, one after the other.
pub fn gather<T: Serialize + DeserializeOwned>(comm: &dyn Comm, own: Vec<T>) -> Result<Vec<T>> {
    if comm.size() == 1 {
        return Ok(own);
    }
    let bytes = serde_json::to_vec(&own).map_err(|source| Error::NotSent { source })?;
    let mut all = Vec::new();
    for said in comm.all_gather(&bytes)? {
        let theirs: Vec<T> =
            serde_json::from_slice(&said).map_err(|source| Error::NotSent { source })?;
        all.extend(theirs);
    }
    Ok(all)
}

/// What the first rank says, for all.
pub fn from_first(comm: &dyn Comm, said: &[u8]) -> Result<Vec<u8>> {
    let own: &[u8] = if comm.is_first() { said } else { &[] };
    Ok(comm.all_gather(own)?.swap_remove(0))
}
