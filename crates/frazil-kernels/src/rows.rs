//! What the kernels that go over rows have in common: who works on which rows, and the output that
//! they write at the same time.

use std::ops::Range;

use crate::par::Pool;

/// Whether `rows` rows of `columns` numbers, `ld` apart, lie within `len` numbers.
pub(crate) fn covers(len: usize, rows: usize, ld: usize, columns: usize) -> bool {
    rows == 0
        || columns <= ld
            && (rows - 1)
                .checked_mul(ld)
                .and_then(|last| last.checked_add(columns))
                .is_some_and(|end| end <= len)
}

/// An output for several threads, each of which writes other elements.
#[derive(Clone, Copy)]
pub(crate) struct Shared<T>(*mut T);

// SAFETY: whoever writes through it promises that no two threads write the same element.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    pub(crate) fn new(all: &mut [T]) -> Self {
        Self(all.as_mut_ptr())
    }

    /// The address of an element, also beyond the end.
    #[inline(always)]
    pub(crate) fn at(&self, i: usize) -> *mut T {
        self.0.wrapping_add(i)
    }
}

/// Numbers that are worth handing to another thread: a few microseconds of work.
const WORTH: usize = 8192;

/// Calls `work` with ranges that make up all rows, on all workers.
pub(crate) fn share_out(
    pool: &Pool,
    rows: usize,
    columns: usize,
    work: &(dyn Fn(Range<usize>) + Sync),
) {
    let tasks = (rows.saturating_mul(columns) / WORTH).clamp(1, 4 * pool.threads()).min(rows);
    pool.run(tasks, &|task, _| {
        // Each share is a row longer than others at most.
        let at = |task: usize| rows / tasks * task + (rows % tasks) * task / tasks;
        work(at(task)..at(task + 1));
    });
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn every_row_once() {
        for threads in [1, 2, 3] {
            let pool = Pool::new(threads);
            for rows in [0, 1, 2, 7, 100] {
                for columns in [0, 1, 768, 100_000] {
                    let counts: Vec<_> = (0..rows).map(|_| AtomicUsize::new(0)).collect();
                    share_out(&pool, rows, columns, &|range| {
                        for row in range {
                            counts[row].fetch_add(1, Ordering::Relaxed);
                        }
                    });
                    assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
                }
            }
        }
    }

    #[test]
    fn the_last_row_may_be_short() {
        assert!(covers(0, 0, 5, 4) && covers(9, 2, 5, 4) && !covers(8, 2, 5, 4));
        assert!(!covers(100, 2, 3, 4), "rows would overlap");
        assert!(!covers(usize::MAX, usize::MAX, usize::MAX, 1), "without overflow");
    }
}
