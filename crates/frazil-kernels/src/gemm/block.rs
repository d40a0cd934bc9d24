//! How a product is cut: into tasks for the threads, and into tiles for the registers.
//!
//! A task takes a block of rows, which then stays in the second-level cache, through some panels of
//! weights, one after the other: a panel is read by all tiles of the block while the next one is
//! fetched. Where there is one block only, threads have panels of their own, and each weight is
//! read by one core; else threads have blocks of their own, and go through the panels side by side.

use std::ops::Range;

use crate::cpu::Isa;

/// The second-level cache of a core, as small as it is on CPUs with these instructions.
fn second_level(isa: Isa) -> usize {
    match isa {
        Isa::Scalar | Isa::Avx2 => 512 << 10,
        Isa::Avx512 | Isa::Avx512Vnni => 1 << 20,
    }
}

/// Tasks of a product for each thread, where there are enough panels: threads are not equally fast
/// on a shared machine, and who is done first waits for half a task of another.
const TASKS: usize = 32;

/// A product's size in tiles, panels and bytes.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) rows: usize,
    /// The most rows of a tile.
    pub(super) tile_rows: usize,
    pub(super) panels: usize,
    /// Of a row of activations, as much of it as is taken at a time.
    pub(super) row_bytes: usize,
}

/// A whole cut into almost equal parts: the first ones are one longer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    count: usize,
    each: usize,
    longer: usize,
}

impl Parts {
    pub(crate) fn new(all: usize, count: usize) -> Self {
        Self { count, each: all / count.max(1), longer: all % count.max(1) }
    }

    /// All of them.
    pub(crate) fn all(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.count).map(move |i| self.part(i))
    }

    /// Part `i`, without a division: this is asked between any two tiles.
    #[inline]
    pub(crate) fn part(&self, i: usize) -> Range<usize> {
        let at = |i: usize| self.each * i + i.min(self.longer);
        at(i)..at(i + 1)
    }
}

/// The cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    /// Tiles above each other.
    tiles: Parts,
    /// Blocks of tiles.
    blocks: Parts,
    /// Groups of panels.
    groups: Parts,
}

impl Blocks {
    /// For a product that is not empty.
    pub(super) fn new(isa: Isa, threads: usize, size: Size) -> Self {
        let tiles = size.rows.div_ceil(size.tile_rows);
        let fit = second_level(isa) / 2 / (size.tile_rows * size.row_bytes).max(1);
        let blocks = match tiles.div_ceil(fit.max(1)) {
            1 => 1,
            blocks => blocks.next_multiple_of(threads).min(tiles),
        };
        let groups = match threads {
            1 => 1,
            _ => (TASKS * threads).div_ceil(blocks).min(size.panels),
        };
        Self {
            tiles: Parts::new(size.rows, tiles),
            blocks: Parts::new(tiles, blocks),
            groups: Parts::new(size.panels, groups),
        }
    }

    /// How many tasks there are.
    pub(super) fn tasks(&self) -> usize {
        self.blocks.count * self.groups.count
    }

    /// The panels and the tiles of a task. Tasks with the same tiles follow each other.
    pub(super) fn task(&self, task: usize) -> (Range<usize>, Range<usize>) {
        let (block, group) = (task / self.groups.count, task % self.groups.count);
        (self.groups.part(group), self.blocks.part(block))
    }

    /// The rows of a tile; tiles differ by one row at most.
    #[inline]
    pub(super) fn tile(&self, tile: usize) -> Range<usize> {
        self.tiles.part(tile)
    }

    /// The panel that a thread probably wants after those of a task.
    pub(super) fn after(&self, task: usize) -> usize {
        self.groups.part((task + 1) % self.groups.count).start
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

/// A tile of the output, or of what is added to it, to bring close: a row in each step.
#[derive(Clone, Copy)]
pub(super) struct Touch {
    from: *const u8,
    stride: usize,
    rows: usize,
    /// Cache lines of a row.
    lines: usize,
}

impl Touch {
    /// Nothing.
    pub(super) const NONE: Self = Self { from: std::ptr::null(), stride: 0, rows: 0, lines: 0 };

    /// So many rows of so many bytes from an address, `stride` bytes apart.
    pub(super) fn new(from: *const u8, stride: usize, rows: usize, bytes: usize) -> Self {
        Self { from, stride, rows, lines: bytes.div_ceil(64) }
    }

    /// Asks for the lines of a step.
    #[inline(always)]
    pub(super) fn step(&mut self) {
        if self.rows > 0 {
            self.rows -= 1;
            (0..self.lines).for_each(|line| prefetch(self.from.wrapping_add(64 * line)));
            self.from = self.from.wrapping_add(self.stride);
        }
    }
}

/// Asks for a cache line into the second level. Any address will do.
#[inline(always)]
fn prefetch(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; it does not fault, and every x86-64 has the instruction.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(line.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// The same pointer, of which the compiler knows nothing: it then keeps it in a register instead of
/// computing it again from others. Scalar additions take the ports of the multiplications (a core
/// with AVX-512 has two for both), which cost a tile of 14 rows a tenth of its speed.
#[inline(always)]
#[cfg_attr(
    target_arch = "x86_64",
    expect(clippy::pointers_in_nomem_asm_block, reason = "nothing is read through it")
)]
pub(super) fn opaque<T>(pointer: *const T) -> *const T {
    #[cfg(target_arch = "x86_64")]
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
    #[cfg(not(target_arch = "x86_64"))]
    pointer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(rows: usize, panels: usize) -> Size {
        Size { rows, tile_rows: 9, panels, row_bytes: 3072 }
    }

    #[test]
    fn tasks_cover_the_product_once() {
        for threads in [1, 2, 5] {
            for rows in [1, 8, 9, 10, 128, 1000] {
                for panels in [1, 2, 7, 24, 96] {
                    let blocks = Blocks::new(Isa::Avx512, threads, size(rows, panels));
                    let mut seen = vec![0; rows * panels];
                    for task in 0..blocks.tasks() {
                        let (panels_of, tiles) = blocks.task(task);
                        assert!(!panels_of.is_empty() && !tiles.is_empty());
                        assert!(blocks.after(task) < panels);
                        for tile in tiles {
                            let tile = blocks.tile(tile);
                            assert!((1..=9).contains(&tile.len()));
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
        let blocks = Blocks::new(Isa::Avx512, 2, size(128, 24));
        let heights: Vec<usize> = (0..15).map(|tile| blocks.tile(tile).len()).collect();
        assert_eq!(heights.iter().sum::<usize>(), 128);
        assert!(heights.iter().all(|&rows| rows == 8 || rows == 9));
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
