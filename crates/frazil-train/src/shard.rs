//! The part of a step that one of several ranks does: which weights it changes, and how gradients and
//! weights get to where they belong.
//!
//! Every weight has one owner, who alone remembers what the optimizer needs to know of it. Gradients
//! are collected in buckets, in the order in which they get ready, and a thread of its own adds them
//! up at their owners while the rest is still being computed. Weights go the other way: each is given
//! to all as soon as it is changed, while its owner changes the next.
//!
//! Weights are owned whole, so that norms are computed as by one process. What that leaves out: with
//! many ranks, the owner of the word embeddings has more than its share.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use crate::comm::{Comm, all_numbers};
use crate::{Error, Result};

/// Gradients that are sent together.
#[derive(Debug)]
struct Bucket {
    owner: usize,
    /// How many numbers.
    len: usize,
    /// How many weights.
    weights: usize,
}

/// Who does what.
pub(crate) struct Shard {
    comm: Arc<dyn Comm>,
    buckets: Vec<Bucket>,
    /// Of each weight, its bucket and where in it it begins.
    places: Vec<(usize, usize)>,
    lens: Vec<usize>,
    /// In which order weights are given to all: owners by turns, each its own in their order.
    order: Vec<usize>,
    /// Of each bucket that is ours, the sums; of the others, memory.
    buffers: Vec<Vec<f32>>,
}

impl Shard {
    /// For weights of these lengths, whose gradients get ready in the order `ready`.
    pub fn new(comm: Arc<dyn Comm>, lens: Vec<usize>, ready: &[usize]) -> Self {
        let mut buckets: Vec<Bucket> = Vec::new();
        let mut places = vec![(0, 0); lens.len()];
        for &weight in ready {
            let len = lens[weight];
            let open = buckets.last().is_some_and(|bucket| bucket.len + len <= comm.bucket());
            if !open {
                buckets.push(Bucket { owner: 0, len: 0, weights: 0 });
            }
            let at = buckets.len() - 1;
            places[weight] = (at, buckets[at].len);
            buckets[at].len += len;
            buckets[at].weights += 1;
        }
        // The largest first, each to whoever has least.
        let mut load = vec![0usize; comm.size()];
        let mut by_len: Vec<usize> = (0..buckets.len()).collect();
        by_len.sort_by_key(|&at| (std::cmp::Reverse(buckets[at].len), at));
        for at in by_len {
            let least = (0..load.len()).min_by_key(|&rank| load[rank]).unwrap_or(0);
            buckets[at].owner = least;
            load[least] += buckets[at].len;
        }
        let mut begins = vec![0usize; comm.size()];
        let mut turns: Vec<(usize, usize, usize)> = Vec::new();
        for (weight, (bucket, _)) in places.iter().enumerate() {
            let owner = buckets[*bucket].owner;
            turns.push((begins[owner], owner, weight));
            begins[owner] += lens[weight];
        }
        turns.sort_unstable();
        let order = turns.into_iter().map(|(_, _, weight)| weight).collect();
        let buffers = buckets.iter().map(|_| Vec::new()).collect();
        Self { comm, buckets, places, lens, order, buffers }
    }

    pub fn comm(&self) -> &dyn Comm {
        &*self.comm
    }

    /// Who changes a weight.
    pub fn owner(&self, weight: usize) -> usize {
        self.buckets[self.places[weight].0].owner
    }

    /// Whether we do.
    pub fn is_ours(&self, weight: usize) -> bool {
        self.owner(weight) == self.comm.rank()
    }

    /// The gradient of a weight that is ours, summed over all ranks.
    pub fn grad(&self, weight: usize) -> &[f32] {
        let (bucket, begin) = self.places[weight];
        &self.buffers[bucket][begin..begin + self.lens[weight]]
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.capacity() * size_of::<f32>()).sum()
    }

    /// Adds up numbers of all ranks, for all, in the order of ranks.
    pub fn add_up(&self, own: &[f64]) -> Result<Vec<f64>> {
        let mut sums = vec![0.0; own.len()];
        for each in all_numbers(&*self.comm, own)? {
            sums.iter_mut().zip(each).for_each(|(sum, number)| *sum += number);
        }
        Ok(sums)
    }

    /// Adds up gradients while they are computed: `run` computes them and hands over a place for each,
    /// to be filled. Afterwards [`Shard::grad`] has the sums of those that are ours.
    pub fn collect<T>(
        &mut self,
        run: impl FnOnce(&mut dyn FnMut(usize, &mut dyn FnMut(&mut [f32]))) -> Result<T>,
    ) -> Result<T> {
        let Self { comm, buckets, places, lens, buffers, .. } = self;
        let (comm, buckets) = (&**comm, &*buckets);
        let (to_carrier, filled) = channel();
        let mut missing: Vec<usize> = buckets.iter().map(|bucket| bucket.weights).collect();
        let outcome = thread::scope(|scope| {
            let carrier = scope.spawn(move || carry_gradients(comm, buckets, &filled));
            let done = run(&mut |weight, fill| {
                let (at, begin) = places[weight];
                let buffer = &mut buffers[at];
                buffer.resize(buckets[at].len, 0.0);
                fill(&mut buffer[begin..begin + lens[weight]]);
                missing[at] -= 1;
                if missing[at] == 0 {
                    // A carrier that has given up says why when it is asked.
                    let _ = to_carrier.send((at, std::mem::take(buffer)));
                }
            });
            drop(to_carrier);
            let carried = carrier.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            // Whoever fails here leaves the others waiting for its gradients: its own error counts.
            let done = done?;
            carried.map(|carried| (done, carried))
        });
        let (done, carried) = outcome?;
        for (at, buffer) in carried {
            buffers[at] = buffer;
        }
        Ok(done)
    }

    /// Changes our weights and gives them to all, and the others' to us. `change` gets those that are
    /// ours, in their order, and hands each one on when it is changed.
    pub fn exchange<'w, T>(
        &self,
        weights: impl Iterator<Item = &'w mut [f32]>,
        change: impl FnOnce(Vec<&'w mut [f32]>, &mut dyn FnMut(&'w mut [f32])) -> T,
    ) -> Result<T> {
        let mut theirs: Vec<Option<&'w mut [f32]>> = Vec::new();
        let mut ours = Vec::new();
        for (at, weight) in weights.enumerate() {
            match self.is_ours(at) {
                true => {
                    ours.push(weight);
                    theirs.push(None);
                }
                false => theirs.push(Some(weight)),
            }
        }
        let (to_carrier, changed) = channel();
        thread::scope(|scope| {
            let carrier = scope.spawn(move || self.carry_weights(theirs, &changed));
            let done = change(ours, &mut |weight| {
                let _ = to_carrier.send(weight);
            });
            drop(to_carrier);
            let carried = carrier.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            carried.map(|()| done)
        })
    }

    fn carry_weights<'w>(
        &self,
        mut theirs: Vec<Option<&'w mut [f32]>>,
        changed: &Receiver<&'w mut [f32]>,
    ) -> Result<()> {
        for &at in &self.order {
            let weight = theirs[at].take().or_else(|| changed.recv().ok());
            let found = weight.as_ref().map_or(0, |weight| weight.len());
            match weight.filter(|weight| weight.len() == self.lens[at]) {
                Some(weight) => self.comm.broadcast(self.owner(at), weight)?,
                None => return Err(Error::OutOfStep { found, expected: self.lens[at] }),
            }
        }
        Ok(())
    }
}

/// Adds up buckets at their owners as they come, and gives them back.
fn carry_gradients(
    comm: &dyn Comm,
    buckets: &[Bucket],
    filled: &Receiver<(usize, Vec<f32>)>,
) -> Result<Vec<(usize, Vec<f32>)>> {
    let mut carried = Vec::new();
    for (at, mut buffer) in filled {
        comm.reduce(buckets[at].owner, &mut buffer)?;
        carried.push((at, buffer));
    }
    Ok(carried)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::Threads;

    #[test]
    fn each_bucket_keeps_its_memory() {
        let bucket = Threads::group(1)[0].bucket();
        let lens = vec![bucket + 8, 64, bucket, 16, 8];
        let step = |shard: &mut Shard, step: usize| {
            let rank = shard.comm().rank();
            shard.collect(|place| {
                for weight in (0..5).rev() {
                    place(weight, &mut |to| to.fill((10 * step + weight + rank) as f32));
                }
                Ok(())
            })
        };
        let rank = |comm: Threads| {
            let mut shard = Shard::new(Arc::new(comm), lens.clone(), &[4, 3, 2, 1, 0]);
            for at in 0..4 {
                step(&mut shard, at).unwrap();
                for weight in (0..5).filter(|weight| shard.is_ours(*weight)) {
                    let sum = (3 * (10 * at + weight) + 3) as f32;
                    assert!(shard.grad(weight).iter().all(|x| *x == sum), "weight {weight}");
                }
                assert_eq!(shard.memory(), size_of::<f32>() * lens.iter().sum::<usize>());
                assert!((0..5).any(|weight| shard.is_ours(weight)), "rank {}", shard.comm().rank());
            }
        };
        thread::scope(|scope| {
            for comm in Threads::group(3) {
                scope.spawn(|| rank(comm));
            }
        });
    }
}
