//! Threads: the one seam through which a kernel uses more than one core.
//!
//! A [`Pool`] keeps its threads between calls. A region ([`Pool::run`]) is a number of tasks that
//! may run in any order; the caller works along with the pool and returns when all are done.
//! Handing over costs less than a microsecond as long as the threads still spin from the region
//! before, which is what the ~6 regions of a BERT layer need; after [`SPIN`] without work a thread
//! sleeps. A thread that the system does not run holds nobody up: who comes late finds the region
//! closed, and the others have done its share. Nothing is allocated per region.
//!
//! Nested parallelism is left out: a region inside of a region, or a region while another session
//! uses the pool, runs on the calling thread alone.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a thread looks for the next region before it sleeps.
pub const SPIN: Duration = Duration::from_micros(200);

/// What a region computes: called with a task and the number of the worker that runs it.
type Work<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// Threads that wait for work.
pub struct Pool {
    shared: Arc<Shared>,
    handles: Vec<JoinHandle<()>>,
}

/// On a pair of cache lines of its own, so that no worker slows another one down.
#[repr(align(128))]
struct Apart<T>(T);

/// What the workers see.
struct Shared {
    /// How many workers are inside of the region (the low bits), whether it is [`OPEN`], its number.
    gate: Apart<AtomicU64>,
    /// One caller at a time; the others work alone.
    busy: Apart<AtomicBool>,
    /// The region; written only by the holder of `busy`, while the gate is closed and nobody inside.
    region: UnsafeCell<Region>,
    /// The next task of each worker's share.
    next: Box<[Apart<AtomicUsize>]>,
    /// Workers that sleep, or are about to.
    asleep: Box<[Apart<AtomicBool>]>,
    /// The first panic of the region.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// The pool is going away.
    stop: AtomicBool,
}

#[derive(Clone, Copy)]
struct Region {
    tasks: usize,
    work: Option<*const Work<'static>>,
}

// SAFETY: `region` is the only part that is not `Sync`. It is written by the one holder of `busy`
// before the gate opens and after everyone has left, and read by workers inside only; the gate's
// acquire and release order these. The pointer in it is to a `Sync` closure that outlives the region.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

/// The region takes in workers.
const OPEN: u64 = 1 << 16;
/// One more region.
const NUMBER: u64 = 1 << 17;
/// The workers inside.
const INSIDE: u64 = OPEN - 1;

impl Pool {
    /// The most workers that a pool has.
    pub const MOST: usize = 256;

    /// A pool of `threads` workers, the caller of [`Pool::run`] included; at least 1, at most
    /// [`Pool::MOST`].
    ///
    /// # Panics
    /// If the system refuses to start a thread.
    pub fn new(threads: usize) -> Self {
        let threads = threads.clamp(1, Self::MOST);
        let shared = Arc::new(Shared {
            gate: Apart(AtomicU64::new(0)),
            busy: Apart(AtomicBool::new(false)),
            region: UnsafeCell::new(Region { tasks: 0, work: None }),
            next: (0..threads).map(|_| Apart(AtomicUsize::new(0))).collect(),
            asleep: (0..threads).map(|_| Apart(AtomicBool::new(false))).collect(),
            panic: Mutex::new(None),
            stop: AtomicBool::new(false),
        });
        let start = |worker| {
            let shared = Arc::clone(&shared);
            thread::Builder::new()
                .name(format!("frazil-{worker}"))
                .spawn(move || shared.serve(worker))
                .expect("the system starts a thread")
        };
        let handles = (1..threads).map(start).collect();
        Self { shared, handles }
    }

    /// Workers, the caller included.
    pub fn threads(&self) -> usize {
        self.handles.len() + 1
    }

    /// Calls `work(task, worker)` once for each task below `tasks`, on all workers, and returns when
    /// all are done. No two calls of one region run at the same time with the same worker, and a
    /// worker's tasks follow each other as far as possible.
    ///
    /// If the pool is busy, with another caller or around this one, everything runs here, as worker 0.
    ///
    /// # Panics
    /// If a task does; others may then be left out.
    pub fn run(&self, tasks: usize, work: &Work<'_>) {
        let alone = self.handles.is_empty() || tasks <= 1;
        if alone || self.shared.busy.0.swap(true, Acquire) {
            (0..tasks).for_each(|task| work(task, 0));
            return;
        }
        let shared = &*self.shared;
        for (worker, next) in shared.next.iter().enumerate() {
            next.0.store(share(tasks, shared.next.len(), worker), Relaxed);
        }
        // SAFETY: the lifetime is made longer only for the time that the region is open: this
        // function neither returns nor unwinds before the gate is closed and everyone has left.
        let work = unsafe { std::mem::transmute::<*const Work<'_>, *const Work<'static>>(work) };
        // SAFETY: this thread holds `busy`, the gate is closed and nobody inside.
        unsafe { *shared.region.get() = Region { tasks, work: Some(work) } };
        let gate = shared.gate.0.load(Relaxed);
        shared.gate.0.store(gate + NUMBER + OPEN, SeqCst);
        for (handle, asleep) in self.handles.iter().zip(&shared.asleep[1..]) {
            if asleep.0.load(SeqCst) && asleep.0.swap(false, SeqCst) {
                handle.thread().unpark();
            }
        }
        shared.work(0);
        shared.gate.0.fetch_and(!OPEN, AcqRel);
        let mut rounds = 0u32;
        while shared.gate.0.load(Acquire) & INSIDE != 0 {
            rounds = rounds.wrapping_add(1);
            // A worker in the middle of a task that does not get a core needs this one.
            if rounds.is_multiple_of(4096) { thread::yield_now() } else { std::hint::spin_loop() }
        }
        let panic = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        shared.busy.0.store(false, Release);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

/// Where the share of a worker begins; that of the one after the last is all.
fn share(tasks: usize, workers: usize, worker: usize) -> usize {
    // Without overflow for any number of tasks.
    tasks / workers * worker + (tasks % workers * worker) / workers
}

impl Shared {
    /// Works off the own share of the open region, then what is left of the others'.
    fn work(&self, worker: usize) {
        // SAFETY: a worker inside of an open region, or its owner: nobody writes now.
        let Region { tasks, work } = unsafe { *self.region.get() };
        let Some(work) = work else { return };
        // SAFETY: the owner of the closure waits in `run` until everyone has left.
        let work = unsafe { &*work };
        let workers = self.next.len();
        let all = || {
            for step in 0..workers {
                let whose = (worker + step) % workers;
                let end = share(tasks, workers, whose + 1);
                loop {
                    let task = self.next[whose].0.fetch_add(1, Relaxed);
                    if task >= end {
                        break;
                    }
                    work(task, worker);
                }
            }
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(all)) {
            for (whose, next) in self.next.iter().enumerate() {
                next.0.store(share(tasks, workers, whose + 1), Relaxed);
            }
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        }
    }

    /// The life of a thread.
    fn serve(&self, worker: usize) {
        let mut last = 0;
        while let Some(number) = self.enter(worker, last) {
            last = number;
            self.work(worker);
            self.gate.0.fetch_sub(1, Release);
        }
    }

    /// Waits for an open region after the `last` one and enters it; none if the pool is going away.
    fn enter(&self, worker: usize, last: u64) -> Option<u64> {
        let mut rounds = 0u32;
        let mut since: Option<Instant> = None;
        loop {
            let gate = self.gate.0.load(SeqCst);
            if gate & OPEN != 0 && gate / NUMBER != last {
                if self.gate.0.compare_exchange_weak(gate, gate + 1, AcqRel, Relaxed).is_ok() {
                    return Some(gate / NUMBER);
                }
                continue;
            }
            if self.stop.load(SeqCst) {
                return None;
            }
            rounds = rounds.wrapping_add(1);
            std::hint::spin_loop();
            if !rounds.is_multiple_of(64) || since.get_or_insert_with(Instant::now).elapsed() < SPIN
            {
                continue;
            }
            // Say so first, look once more, then sleep: the caller opens first and looks then.
            self.asleep[worker].0.store(true, SeqCst);
            let gate = self.gate.0.load(SeqCst);
            let nothing = gate & OPEN == 0 || gate / NUMBER == last;
            if nothing && !self.stop.load(SeqCst) {
                thread::park();
            }
            self.asleep[worker].0.store(false, SeqCst);
            since = None;
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        for handle in self.handles.drain(..) {
            handle.thread().unpark();
            // A worker catches the panics of tasks, so that there is nothing to pass on.
            drop(handle.join());
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

/// A slice cut into parts of equal length, of which each worker takes its own for the time of a task.
///
/// That two tasks with the same worker never meet is [`Pool::run`]'s promise for one region; this
/// checks it, so that scratch is sound also where regions are mixed up.
pub struct PerWorker<'a, T> {
    start: *mut T,
    part: usize,
    parts: usize,
    taken: [AtomicBool; Pool::MOST],
    owner: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: it hands out each part of the slice to one thread at a time.
unsafe impl<T: Send> Sync for PerWorker<'_, T> {}
// SAFETY: it is an exclusive borrow.
unsafe impl<T: Send> Send for PerWorker<'_, T> {}

impl<'a, T> PerWorker<'a, T> {
    /// Cuts `all` into as many parts as the pool has workers.
    pub fn new(pool: &Pool, all: &'a mut [T]) -> Self {
        let parts = pool.threads();
        Self {
            start: all.as_mut_ptr(),
            part: all.len() / parts,
            parts,
            taken: [const { AtomicBool::new(false) }; Pool::MOST],
            owner: std::marker::PhantomData,
        }
    }

    /// Calls `work` with the part of a worker.
    ///
    /// # Panics
    /// If there is no such worker, or its part is in use.
    pub fn with<R>(&self, worker: usize, work: impl FnOnce(&mut [T]) -> R) -> R {
        /// Gives the part back, also when `work` panics.
        struct GiveBack<'g>(&'g AtomicBool);
        impl Drop for GiveBack<'_> {
            fn drop(&mut self) {
                self.0.store(false, Release);
            }
        }
        assert!(worker < self.parts, "worker {worker} of {}", self.parts);
        let taken = &self.taken[worker];
        assert!(!taken.swap(true, Acquire), "worker {worker} runs two tasks at a time");
        let _back = GiveBack(taken);
        // SAFETY: the parts do not overlap, lie inside of the slice, and this one has just been taken.
        let part = unsafe {
            std::slice::from_raw_parts_mut(self.start.add(worker * self.part), self.part)
        };
        work(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once() {
        for threads in [0, 1, 2, 3, 7] {
            let pool = Pool::new(threads);
            assert_eq!(pool.threads(), threads.max(1));
            for tasks in [0, 1, 2, 3, 10, 101] {
                for _ in 0..50 {
                    let counts: Vec<AtomicUsize> =
                        (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                    pool.run(tasks, &|task, worker| {
                        assert!(worker < pool.threads());
                        counts[task].fetch_add(1, Relaxed);
                    });
                    assert!(counts.iter().all(|count| count.load(Relaxed) == 1));
                }
            }
        }
    }

    #[test]
    fn shares_cover_all() {
        for workers in 1..9 {
            for tasks in [0, 1, 5, 8, 100, usize::MAX] {
                let starts: Vec<usize> = (0..=workers).map(|i| share(tasks, workers, i)).collect();
                assert_eq!((starts[0], starts[workers]), (0, tasks));
                assert!(starts.is_sorted());
            }
        }
    }

    #[test]
    fn sleepers_wake() {
        let pool = Pool::new(3);
        for _ in 0..5 {
            thread::sleep(SPIN * 5);
            let sum = AtomicUsize::new(0);
            pool.run(100, &|task, _| {
                sum.fetch_add(task, Relaxed);
            });
            assert_eq!(sum.load(Relaxed), 4950);
        }
    }

    #[test]
    fn a_panic_comes_out_and_the_pool_goes_on() {
        let pool = Pool::new(3);
        for bad in [0, 5, 9] {
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.run(10, &|task, _| assert!(task != bad, "task {bad}"));
            }));
            let message = *result.unwrap_err().downcast::<String>().unwrap();
            assert_eq!(message, format!("task {bad}"));
            let count = AtomicUsize::new(0);
            pool.run(10, &|_, _| {
                count.fetch_add(1, Relaxed);
            });
            assert_eq!(count.load(Relaxed), 10);
        }
    }

    #[test]
    fn nested_and_concurrent_regions_run() {
        let pool = Pool::new(2);
        let count = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        pool.run(4, &|_, _| {
                            pool.run(3, &|_, _| {
                                count.fetch_add(1, Relaxed);
                            });
                        });
                    }
                });
            }
        });
        assert_eq!(count.load(Relaxed), 4 * 100 * 12);
    }

    #[test]
    fn workers_have_scratch_of_their_own() {
        let pool = Pool::new(3);
        let mut scratch = vec![0usize; 3 * 4];
        let parts = PerWorker::new(&pool, &mut scratch);
        pool.run(300, &|_, worker| {
            parts.with(worker, |part| {
                assert_eq!(part.len(), 4);
                part[0] += 1;
            });
        });
        assert_eq!(scratch.iter().sum::<usize>(), 300);
    }

    #[test]
    #[should_panic(expected = "two tasks at a time")]
    fn scratch_is_not_shared() {
        let pool = Pool::new(1);
        let mut scratch = [0; 2];
        let parts = PerWorker::new(&pool, &mut scratch);
        parts.with(0, |_| parts.with(0, |_| ()));
    }
}
