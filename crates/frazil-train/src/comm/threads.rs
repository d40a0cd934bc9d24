//! Ranks that are threads of one process: the logic of many processes without any.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::Comm;
use crate::{Error, Result};

/// One of several ranks in one process. A rank that is dropped is gone: who waits for it, or comes to
/// wait, gets an error.
#[derive(Debug)]
pub struct Threads {
    rank: usize,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    size: usize,
    numbers: Board<Vec<f32>>,
    bytes: Board<Vec<u8>>,
}

/// Where ranks put what they have, and find what all have.
#[derive(Debug)]
struct Board<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    /// Times that all have met.
    round: u64,
    given: Vec<Option<T>>,
    /// Of the last round. It stays until all have met again, hence until all have seen it.
    all: Arc<Vec<T>>,
    /// The first rank that is gone.
    gone: Option<usize>,
}

impl Threads {
    /// So many ranks, to be given to as many threads.
    pub fn group(size: usize) -> Vec<Self> {
        let shared = Arc::new(Shared { size, numbers: Board::new(size), bytes: Board::new(size) });
        (0..size).map(|rank| Self { rank, shared: Arc::clone(&shared) }).collect()
    }
}

impl<T> Board<T> {
    fn new(size: usize) -> Self {
        let given = (0..size).map(|_| None).collect();
        let state = State { round: 0, given, all: Arc::new(Vec::new()), gone: None };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Gives what one rank has and waits for the others.
    fn meet(&self, rank: usize, own: T) -> Result<Arc<Vec<T>>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let round = state.round;
        state.given[rank] = Some(own);
        if state.given.iter().all(Option::is_some) {
            state.all = Arc::new(state.given.iter_mut().filter_map(Option::take).collect());
            state.round += 1;
            self.changed.notify_all();
        }
        while state.round == round {
            if let Some(rank) = state.gone {
                return Err(Error::LostRank { rank });
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(Arc::clone(&state.all))
    }

    fn leave(&self, rank: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.gone.get_or_insert(rank);
        self.changed.notify_all();
    }
}

impl Comm for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.shared.size
    }

    /// So few that small models, too, are shared out among all ranks.
    fn bucket(&self) -> usize {
        1 << 10
    }

    fn reduce(&self, root: usize, values: &mut [f32]) -> Result<()> {
        let all = self.shared.numbers.meet(self.rank, values.to_vec())?;
        if self.rank == root {
            values.fill(0.0);
            for each in all.iter() {
                values.iter_mut().zip(each).for_each(|(sum, value)| *sum += value);
            }
        }
        Ok(())
    }

    fn broadcast(&self, root: usize, values: &mut [f32]) -> Result<()> {
        let own = if self.rank == root { values.to_vec() } else { Vec::new() };
        let all = self.shared.numbers.meet(self.rank, own)?;
        if all[root].len() != values.len() {
            return Err(Error::OutOfStep { found: all[root].len(), expected: values.len() });
        }
        values.copy_from_slice(&all[root]);
        Ok(())
    }

    fn all_gather(&self, said: &[u8]) -> Result<Vec<Vec<u8>>> {
        Ok(self.shared.bytes.meet(self.rank, said.to_vec())?.to_vec())
    }

    fn barrier(&self) -> Result<()> {
        self.shared.bytes.meet(self.rank, Vec::new()).map(|_| ())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.numbers.leave(self.rank);
        self.shared.bytes.leave(self.rank);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::comm::{all_numbers, from_first};

    /// What each rank of a group comes to.
    fn each<T: Send>(size: usize, work: impl Fn(&Threads) -> T + Sync) -> Vec<T> {
        thread::scope(|scope| {
            let work = &work;
            let ranks = Threads::group(size).into_iter();
            let ranks: Vec<_> = ranks.map(|rank| scope.spawn(move || work(&rank))).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    #[test]
    fn all_come_by_the_same() {
        let found = each(3, |comm| {
            let rank = comm.rank() as f32;
            for round in 0..20u8 {
                let mut sum = [rank, 1.0];
                comm.reduce(2, &mut sum).unwrap();
                assert!(comm.rank() != 2 || sum == [3.0, 3.0], "{round}: {sum:?}");
                let mut given = [rank + f32::from(round)];
                comm.broadcast(1, &mut given).unwrap();
                assert_eq!(given, [1.0 + f32::from(round)]);
                comm.barrier().unwrap();
            }
            let first = from_first(comm, format!("rank {rank}").as_bytes()).unwrap();
            (all_numbers(comm, &[f64::from(rank)]).unwrap(), first)
        });
        let expected = (vec![vec![0.0], vec![1.0], vec![2.0]], b"rank 0".to_vec());
        assert_eq!(found, vec![expected; 3]);
    }

    #[test]
    fn who_waits_for_one_that_is_gone_is_told() {
        let found = each(3, |comm| match comm.rank() {
            1 => None,
            _ => comm.barrier().err().map(|error| error.to_string()),
        });
        let lost = Some("rank 1 is gone".to_owned());
        assert_eq!(found, [lost.clone(), None, lost]);
    }
}
