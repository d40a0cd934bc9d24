//! Ranks that are processes under MPI.
//!
//! Every operation is begun without waiting and then asked for, with pauses: MPI's own waiting spins,
//! which takes a core from the threads that compute meanwhile.

use std::thread;
use std::time::Duration;

use mpi::collective::SystemOperation;
use mpi::datatype::PartitionMut;
use mpi::environment::Universe;
use mpi::request::{self, Request, Scope};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Root};
use mpi::{Count, Threading};

use super::Comm;
use crate::{Error, Result};

/// Numbers of one message at most: MPI counts with 32 bits, and what is added up lies aside.
const MESSAGE: usize = 1 << 20;
/// How often an operation is asked for before there is a pause.
const EAGER: usize = 200;
/// The pause.
const PAUSE: Duration = Duration::from_micros(50);

/// MPI's world. It is left when this is dropped; a rank that panics takes the others along.
pub struct Mpi {
    universe: Universe,
    rank: usize,
    size: usize,
}

impl Mpi {
    /// Joins the world, once in a process.
    pub fn join() -> Result<Self> {
        let (universe, threading) = mpi::initialize_with_threading(Threading::Serialized)
            .ok_or(Error::Mpi { what: "it was joined before" })?;
        if threading < Threading::Serialized {
            let what = "this one can be called from one thread only, which is not enough";
            return Err(Error::Mpi { what });
        }
        let world = universe.world();
        let (rank, size) = (world.rank() as usize, world.size() as usize);
        Ok(Self { universe, rank, size })
    }

    fn world(&self) -> SimpleCommunicator {
        self.universe.world()
    }
}

impl std::fmt::Debug for Mpi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mpi {{ rank: {}, size: {} }}", self.rank, self.size)
    }
}

/// Waits without taking a core.
fn wait<'a, D: ?Sized, S: Scope<'a>>(mut request: Request<'a, D, S>) {
    for asked in 0.. {
        match request.test() {
            Ok(_) => return,
            Err(not_yet) => request = not_yet,
        }
        if asked >= EAGER {
            thread::sleep(PAUSE);
        }
    }
}

impl Comm for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn reduce(&self, root: usize, values: &mut [f32]) -> Result<()> {
        let world = self.world();
        let root_process = world.process_at_rank(root as i32);
        let sum = SystemOperation::sum();
        let mut sums = vec![0f32; if self.rank == root { values.len().min(MESSAGE) } else { 0 }];
        for part in values.chunks_mut(MESSAGE) {
            if self.rank == root {
                let sums = &mut sums[..part.len()];
                request::scope(|scope| {
                    wait(root_process.immediate_reduce_into_root(scope, &*part, sums, sum));
                });
                part.copy_from_slice(sums);
            } else {
                request::scope(|scope| {
                    wait(root_process.immediate_reduce_into(scope, &*part, sum));
                });
            }
        }
        Ok(())
    }

    fn broadcast(&self, root: usize, values: &mut [f32]) -> Result<()> {
        let world = self.world();
        let root = world.process_at_rank(root as i32);
        for part in values.chunks_mut(MESSAGE) {
            request::scope(|scope| wait(root.immediate_broadcast_into(scope, part)));
        }
        Ok(())
    }

    fn all_gather(&self, said: &[u8]) -> Result<Vec<Vec<u8>>> {
        let world = self.world();
        let own =
            Count::try_from(said.len()).map_err(|_| Error::Mpi { what: "a message of 2 GB" })?;
        let mut counts = vec![0 as Count; self.size];
        request::scope(|scope| {
            wait(world.immediate_all_gather_into(scope, &own, &mut counts[..]));
        });
        let places: Vec<Count> = counts
            .iter()
            .scan(0, |end: &mut Count, count| {
                let begin = *end;
                *end = end.saturating_add(*count);
                Some(begin)
            })
            .collect();
        let total: usize = counts.iter().map(|count| *count as usize).sum();
        if Count::try_from(total).is_err() {
            return Err(Error::Mpi { what: "a message of 2 GB" });
        }
        // A slice of no bytes may lie at address 1, which Open MPI takes for `MPI_IN_PLACE`: both have one
        // byte more.
        let said = [said, &[0]].concat();
        let said = &said[..said.len() - 1];
        let mut all = vec![0u8; total + 1];
        let mut parts = PartitionMut::new(&mut all[..total], &counts[..], &places[..]);
        request::scope(|scope| {
            wait(world.immediate_all_gather_varcount_into(scope, said, &mut parts));
        });
        let part = |(begin, count): (&Count, &Count)| {
            all[*begin as usize..(*begin + *count) as usize].to_vec()
        };
        Ok(places.iter().zip(&counts).map(part).collect())
    }

    fn barrier(&self) -> Result<()> {
        wait(self.world().immediate_barrier());
        Ok(())
    }

    fn abort(&self, code: i32) {
        self.world().abort(code);
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        // To leave is to wait for the others, who may be waiting for us.
        if thread::panicking() {
            self.world().abort(101);
        }
    }
}
