//! How a product is cut: into tasks for the threads, and into tiles for the registers.
//!
//! A task takes a few panels of weights, which then stay in the second-level cache, through a range
//! of rows. Threads get different panels first, so that each weight is read by one core only; rows
//! are cut where there are too few panels to go round.

use std::ops::Range;

use crate::cpu::Isa;

/// The most rows of a tile: what the registers hold besides two vectors of weights.
pub(super) const fn most_rows(lanes: usize) -> usize {
    match lanes {
        // 14 · 2 sums + 2 + 1 of 32 registers.
        16 => 14,
        // 6 · 2 + 2 + 1 of 16 registers.
        8 => 6,
        _ => 4,
    }
}

/// The second-level cache of a core, as small as it is on CPUs with these instructions.
fn second_level(isa: Isa) -> usize {
    match isa {
        Isa::Scalar | Isa::Avx2 => 512 << 10,
        Isa::Avx512 | Isa::Avx512Vnni => 1 << 20,
    }
}

/// A product's size in panels and bytes.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) rows: usize,
    pub(super) panels: usize,
    /// Of a panel.
    pub(super) panel_bytes: usize,
    /// Of a row of activations.
    pub(super) row_bytes: usize,
}

/// The cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    rows: usize,
    panels: usize,
    /// Tiles above each other.
    tiles: usize,
    /// Groups of panels.
    groups: usize,
    /// Ranges of tiles.
    chunks: usize,
    /// Whether the activations do not stay in the second-level cache.
    streams: bool,
}

impl Blocks {
    /// For a product that is not empty.
    pub(super) fn new(isa: Isa, most_rows: usize, threads: usize, size: Size) -> Self {
        let tiles = size.rows.div_ceil(most_rows);
        let l2 = second_level(isa);
        // Activations that stay in the cache by themselves need no reuse of panels beside them.
        let streams = size.rows.saturating_mul(size.row_bytes) > l2 / 2;
        let together = match streams {
            true => (l2 / 2 / size.panel_bytes.max(1)).max(1),
            false => 1,
        };
        let groups = size.panels.div_ceil(together).next_multiple_of(threads).min(size.panels);
        // Several tasks per thread, since threads are not equally fast on a shared machine.
        let chunks = match threads {
            1 => 1,
            _ => (8 * threads).div_ceil(groups).min(tiles),
        };
        Self { rows: size.rows, panels: size.panels, tiles, groups, chunks, streams }
    }

    /// How many tasks there are.
    pub(super) fn tasks(&self) -> usize {
        self.groups * self.chunks
    }

    /// The panels and the tiles of a task. Tasks with the same panels follow each other.
    pub(super) fn task(&self, task: usize) -> (Range<usize>, Range<usize>) {
        let (group, chunk) = (task / self.chunks, task % self.chunks);
        (part(self.panels, self.groups, group), part(self.tiles, self.chunks, chunk))
    }

    /// The rows of a tile; tiles differ by one row at most.
    pub(super) fn tile(&self, tile: usize) -> Range<usize> {
        part(self.rows, self.tiles, tile)
    }

    /// The rows of the tile after this one, if they are to be fetched.
    pub(super) fn below(&self, tile: usize) -> Range<usize> {
        match self.streams && tile + 1 < self.tiles {
            true => self.tile(tile + 1),
            false => 0..0,
        }
    }

    /// The panels that this thread probably wants after those of the task; none if it is not yet
    /// done with these.
    pub(super) fn after(&self, task: usize) -> Range<usize> {
        let (group, chunk) = (task / self.chunks, task % self.chunks);
        match chunk + 1 == self.chunks && group + 1 < self.groups {
            true => part(self.panels, self.groups, group + 1),
            false => 0..0,
        }
    }
}

/// Part `i` of `parts` almost equal ones.
fn part(all: usize, parts: usize, i: usize) -> Range<usize> {
    let at = |i: usize| all / parts * i + all % parts * i / parts;
    at(i)..at(i + 1)
}

/// Memory to bring into the second-level cache while a tile is computed, some lines per step.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    from: *const u8,
    /// Cache lines to ask for in each step.
    lines: usize,
}

impl Ahead {
    /// Nothing.
    pub(super) const NONE: Self = Self { from: std::ptr::null(), lines: 0 };

    /// Of `bytes` bytes the share of one tile out of several, with `steps` steps each.
    pub(super) fn share(
        from: *const u8,
        bytes: usize,
        steps: usize,
        (tile, tiles): (usize, usize),
    ) -> Self {
        if steps * tiles == 0 || bytes == 0 {
            return Self::NONE;
        }
        let lines = bytes.div_ceil(64).div_ceil(steps * tiles).min(16);
        let start = tile * steps * lines * 64;
        if start >= bytes {
            return Self::NONE;
        }
        Self { from: from.wrapping_add(start), lines }
    }

    /// Asks for the lines of a step.
    #[inline(always)]
    pub(super) fn step(&mut self) {
        for _ in 0..self.lines {
            prefetch(self.from);
            self.from = self.from.wrapping_add(64);
        }
    }
}

/// Asks for a cache line into the second level. Any address will do.
#[inline(always)]
fn prefetch(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint; it does not fault, and every x86-64 has the instruction.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(line.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

/// The same pointer, of which the compiler knows nothing: it then keeps it in a register instead of
/// computing it again from others. Scalar additions take the ports of the multiplications (a core
/// with AVX-512 has two for both), which cost a tile of 14 rows a tenth of its speed.
#[inline(always)]
#[cfg_attr(
    all(target_arch = "x86_64", not(miri)),
    expect(clippy::pointers_in_nomem_asm_block, reason = "nothing is read through it")
)]
pub(super) fn opaque<T>(pointer: *const T) -> *const T {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let mut pointer = pointer;
        // SAFETY: no instruction at all.
        unsafe {
            std::arch::asm!(
                "/* {0} */",
                inout(reg) pointer,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        pointer
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    pointer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_cover_the_product_once() {
        for threads in [1, 2, 5] {
            for rows in [1, 13, 14, 15, 128, 1000] {
                for panels in [1, 2, 7, 24, 96] {
                    let size = Size { rows, panels, panel_bytes: 98_304, row_bytes: 3072 };
                    let blocks = Blocks::new(Isa::Avx512, 14, threads, size);
                    let mut seen = vec![0; rows * panels];
                    for task in 0..blocks.tasks() {
                        let (panels_of, tiles) = blocks.task(task);
                        assert!(!panels_of.is_empty() && !tiles.is_empty());
                        for tile in tiles {
                            let tile = blocks.tile(tile);
                            assert!((1..=14).contains(&tile.len()));
                            for row in tile {
                                panels_of.clone().for_each(|panel| seen[row * panels + panel] += 1);
                            }
                        }
                    }
                    assert!(seen.iter().all(|&n| n == 1), "{threads} {rows} {panels}");
                }
            }
        }
    }

    #[test]
    fn tiles_are_balanced() {
        let size = Size { rows: 128, panels: 24, panel_bytes: 98_304, row_bytes: 3072 };
        let blocks = Blocks::new(Isa::Avx512, 14, 2, size);
        let heights: Vec<usize> = (0..10).map(|tile| blocks.tile(tile).len()).collect();
        assert_eq!(heights.iter().sum::<usize>(), 128);
        assert!(heights.iter().all(|&rows| rows == 12 || rows == 13));
    }

    #[test]
    fn shares_ahead_cover_everything() {
        let bytes = 98_304;
        let base = std::ptr::without_provenance::<u8>(1 << 20);
        let mut end = 0;
        for tile in 0..10 {
            let share = Ahead::share(base, bytes, 96, (tile, 10));
            if share.lines > 0 {
                assert_eq!(share.from.addr() - (1 << 20), end);
                end += share.lines * 96 * 64;
            }
        }
        assert!(end >= bytes);
        assert_eq!(Ahead::share(base, bytes, 0, (0, 1)).lines, 0);
    }
}
