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

/// A whole cut into almost equal parts: the first ones are one longer.
#[derive(Clone, Copy, Debug)]
struct Parts {
    count: usize,
    each: usize,
    longer: usize,
}

impl Parts {
    /// `count` is not 0.
    fn new(all: usize, count: usize) -> Self {
        Self { count, each: all / count, longer: all % count }
    }

    /// Part `i`, without a division: this is asked between any two tiles.
    #[inline]
    fn part(&self, i: usize) -> Range<usize> {
        let at = |i: usize| self.each * i + i.min(self.longer);
        at(i)..at(i + 1)
    }
}

/// The cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    /// Tiles above each other.
    tiles: Parts,
    /// Groups of panels.
    groups: Parts,
    /// Ranges of tiles.
    chunks: Parts,
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
        Self {
            tiles: Parts::new(size.rows, tiles),
            groups: Parts::new(size.panels, groups),
            chunks: Parts::new(tiles, chunks),
            streams,
        }
    }

    /// How many tasks there are.
    pub(super) fn tasks(&self) -> usize {
        self.groups.count * self.chunks.count
    }

    /// The panels and the tiles of a task. Tasks with the same panels follow each other.
    pub(super) fn task(&self, task: usize) -> (Range<usize>, Range<usize>) {
        let (group, chunk) = (task / self.chunks.count, task % self.chunks.count);
        (self.groups.part(group), self.chunks.part(chunk))
    }

    /// The rows of a tile; tiles differ by one row at most.
    #[inline]
    pub(super) fn tile(&self, tile: usize) -> Range<usize> {
        self.tiles.part(tile)
    }

    /// The most rows after a tile that are to be fetched meanwhile: those of the next one.
    pub(super) fn rows_below(&self) -> usize {
        if self.streams { self.tiles.each + 1 } else { 0 }
    }

    /// The panels that this thread probably wants after those of the task; none if it is not yet
    /// done with these.
    pub(super) fn after(&self, task: usize) -> Range<usize> {
        let (group, chunk) = (task / self.chunks.count, task % self.chunks.count);
        match chunk + 1 == self.chunks.count && group + 1 < self.groups.count {
            true => self.groups.part(group + 1),
            false => 0..0,
        }
    }
}

/// Memory to bring into the second-level cache while a tile is computed, some lines per step.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    from: *const u8,
    /// Cache lines to ask for in each step.
    lines: usize,
}

/// How many bytes each of several tiles brings.
#[derive(Clone, Copy)]
pub(super) struct Share {
    all: usize,
    /// By a tile.
    bytes: usize,
    /// By a step.
    lines: usize,
}

impl Share {
    /// Of `bytes` bytes by so many tiles of so many steps.
    pub(super) fn new(bytes: usize, steps: usize, tiles: usize) -> Self {
        if bytes == 0 || steps * tiles == 0 {
            return Self { all: 0, bytes: 0, lines: 0 };
        }
        let lines = bytes.div_ceil(64).div_ceil(steps * tiles).min(16);
        Self { all: bytes, bytes: lines * steps * 64, lines }
    }

    /// The share of a tile.
    #[inline]
    pub(super) fn of(&self, from: *const u8, tile: usize) -> Ahead {
        let start = tile * self.bytes;
        let lines = if start < self.all { self.lines } else { 0 };
        Ahead { from: from.wrapping_add(start), lines }
    }
}

impl Ahead {
    /// Nothing.
    pub(super) const NONE: Self = Self { from: std::ptr::null(), lines: 0 };

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
        let share = Share::new(bytes, 96, 10);
        let mut end = 0;
        for tile in 0..10 {
            let ahead = share.of(base, tile);
            if ahead.lines > 0 {
                assert_eq!(ahead.from.addr() - (1 << 20), end);
                end += ahead.lines * 96 * 64;
            }
        }
        assert!(end >= bytes);
        assert_eq!(Share::new(bytes, 0, 1).of(base, 0).lines, 0);
    }
}
