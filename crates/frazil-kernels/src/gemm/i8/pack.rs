//! Weights of bytes in panels, and what each form of the product has to know about them.
//!
//! A panel is some vectors of columns, the last one as many as it takes; each 32 bits hold four consecutive k of one column. Then
//! follow the sums of its columns, which take the zero point of the activations out of a product.
//!
//! Without VNNI, `vpmaddubsw` adds two products in 16 bits and saturates. That is exact as long as
//! the two weights of a pair (k even, k odd) do not add up to more than 128 with either sign, since
//! 255 · 128 < 2¹⁵. Where they do, packing takes the excess off and notes it: those few are
//! multiplied one by one and added to the sums. A panel with too many is marked, and multiplied in
//! 16 bits instead. So every sum is exact whatever the weights are.

use std::ops::Range;

use super::super::epilogue::Columns;
use super::tile::shape;
use crate::cpu::Isa;

/// Where things are in packed weights, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Columns of a panel.
    pub(super) width: usize,
    /// Steps of four k.
    pub(super) steps: usize,
    /// Notes that a panel has room for.
    notes: usize,
}

/// The number of notes that marks a panel for 16 bits.
const WIDE: u32 = u32::MAX;

/// What packing took off a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) k: usize,
    pub(super) column: usize,
    pub(super) excess: i32,
}

impl Layout {
    /// Of a panel with so many columns, or as many as a panel has.
    ///
    /// # Panics
    /// If k is more than 65,535: the sums would not fit into 32 bits.
    pub(super) fn new(isa: Isa, k: usize, columns: usize) -> Self {
        assert!(k <= 0xFFFF, "sums over {k} products of bytes do not fit into 32 bits");
        let vectors = columns.div_ceil(isa.lanes()).min(shape(isa).vectors);
        let width = vectors * isa.lanes();
        // One in 256 weights: with more of them, 16 bits are faster.
        let notes = match isa {
            Isa::Avx2 | Isa::Avx512 => (k * width / 256).max(3),
            Isa::Scalar | Isa::Avx512Vnni => 0,
        };
        Self { width, steps: k.div_ceil(4), notes }
    }

    /// Of the weights of a panel.
    pub(super) fn weights(&self) -> usize {
        self.steps * self.width * 4
    }

    /// From the start of a panel to the sums of its columns.
    pub(super) fn sums(&self) -> usize {
        self.weights()
    }

    /// From the start of a panel to its notes.
    fn notes(&self) -> usize {
        self.sums() + self.width * 4
    }

    /// From panel to panel: whole cache lines.
    pub(super) fn panel(&self) -> usize {
        let notes = if self.notes == 0 { 0 } else { 4 + 4 * self.notes };
        (self.notes() + notes).next_multiple_of(64)
    }

    /// The notes of a panel, or none at all if it is to be multiplied in 16 bits.
    pub(super) fn read_notes<'a>(
        &self,
        panel: &'a [u8],
    ) -> Option<impl Iterator<Item = Note> + 'a> {
        let words = |from: usize| panel[from..].chunks_exact(4).map(read_u32);
        let count = match self.notes {
            0 => 0,
            _ => words(self.notes()).next().unwrap_or(0),
        };
        (count != WIDE).then(|| {
            words(if count == 0 { panel.len() } else { self.notes() + 4 }).take(count as usize).map(
                |word| Note {
                    k: (word & 0xFFFF) as usize,
                    column: (word >> 16 & 0xFF) as usize,
                    excess: i32::from((word >> 24) as u8 as i8),
                },
            )
        })
    }
}

fn read_u32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().unwrap_or_default())
}

/// Packs one panel of these columns of matrices side by side.
pub(super) fn pack_panel(
    layout: &Layout,
    parts: &[Columns<'_, i8>],
    k: usize,
    columns: Range<usize>,
    panel: &mut [u8],
) {
    let width = layout.width;
    panel.fill(0);
    let mut sums = [0i32; 48];
    for column in 0..columns.len() {
        for (i, weight) in Columns::column(parts, k, columns.start + column).enumerate() {
            sums[column] += i32::from(weight);
            panel[(i / 4 * width + column) * 4 + i % 4] = weight as u8;
        }
    }
    for (to, sum) in panel[layout.sums()..].chunks_exact_mut(4).zip(&sums[..width]) {
        to.copy_from_slice(&sum.to_le_bytes());
    }
    if layout.notes > 0 {
        take_excess(layout, panel);
    }
}

/// Makes all pairs of weights safe for 16 bits and writes down what was taken off; or marks the
/// panel, and leaves it as it was.
fn take_excess(layout: &Layout, panel: &mut [u8]) {
    let mut count = 0;
    for pair in 0..layout.weights() / 2 {
        let [even, odd] = [panel[2 * pair], panel[2 * pair + 1]].map(|byte| i32::from(byte as i8));
        // Of different signs, one product takes from the other.
        if even.signum() * odd.signum() <= 0 || (even + odd).abs() <= 128 {
            continue;
        }
        if count == layout.notes {
            restore(layout, panel, count);
            panel[layout.notes()..][..4].copy_from_slice(&WIDE.to_le_bytes());
            return;
        }
        let excess = even + odd - 128 * even.signum();
        panel[2 * pair] = (even - excess) as i8 as u8;
        // Four bytes per column and step: a pair is the lower or the upper half of them.
        let (step, column) = (pair / 2 / layout.width, pair / 2 % layout.width);
        let k = step * 4 + pair % 2 * 2;
        let word = k as u32 | (column as u32) << 16 | u32::from(excess as i8 as u8) << 24;
        panel[layout.notes() + 4 + 4 * count..][..4].copy_from_slice(&word.to_le_bytes());
        count += 1;
    }
    panel[layout.notes()..][..4].copy_from_slice(&(count as u32).to_le_bytes());
}

/// Gives the weights back what the first `count` notes say.
fn restore(layout: &Layout, panel: &mut [u8], count: usize) {
    panel[layout.notes()..][..4].copy_from_slice(&(count as u32).to_le_bytes());
    let notes: Vec<Note> = layout.read_notes(panel).into_iter().flatten().collect();
    for note in notes {
        let at = (note.k / 4 * layout.width + note.column) * 4 + note.k % 4;
        panel[at] = (i32::from(panel[at] as i8) + note.excess) as i8 as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::epilogue::Orientation;
    use super::*;

    /// Packs one panel of a matrix `[k, width]` and gives back its weights, notes added again.
    fn there_and_back(isa: Isa, k: usize, w: &[i8]) -> (Option<usize>, Vec<u8>) {
        let layout = Layout::new(isa, k, usize::MAX);
        let mut panel = vec![9; layout.panel()];
        let part = Columns { w, order: Orientation::Kn, n: layout.width };
        pack_panel(&layout, &[part], k, 0..layout.width, &mut panel);
        let notes: Option<Vec<Note>> = layout.read_notes(&panel).map(Iterator::collect);
        for note in notes.iter().flatten() {
            let at = (note.k / 4 * layout.width + note.column) * 4 + note.k % 4;
            panel[at] = (i32::from(panel[at] as i8) + note.excess) as i8 as u8;
        }
        (notes.map(|notes| notes.len()), panel)
    }

    #[test]
    fn few_large_weights_are_noted_many_are_wide() {
        for (isa, width) in [(Isa::Avx2, 16), (Isa::Avx512, 32)] {
            let k = 65;
            for large in [0, 1, 4, k * width] {
                let w: Vec<i8> = (0..k * width)
                    .map(|i| match i < large * width * 2 {
                        // Both of a pair, in the first columns.
                        true if i % width < 2 => [-128, 127][i % 2],
                        _ => (i % 64) as i8,
                    })
                    .collect();
                let (notes, panel) = there_and_back(isa, k, &w);
                for (i, &weight) in w.iter().enumerate() {
                    let (row, column) = (i / width, i % width);
                    assert_eq!(panel[(row / 4 * width + column) * 4 + row % 4] as i8, weight);
                }
                if large < 4 {
                    assert!(notes.is_some(), "{isa} {large}");
                }
            }
            let (notes, _) = there_and_back(isa, k, &vec![127; k * width]);
            assert_eq!(notes, None, "{isa}");
        }
    }

    #[test]
    fn packed_pairs_are_safe() {
        let isa = Isa::Avx2;
        let (k, width) = (256, 16);
        let weight = |i: usize| match (i / width / 2, i % width) {
            (7, ..9) => 127,
            (50, 3) => -128,
            _ => 5,
        };
        let w: Vec<i8> = (0..k * width).map(weight).collect();
        let layout = Layout::new(isa, k, usize::MAX);
        let mut panel = vec![0; layout.panel()];
        let part = Columns { w: &w, order: Orientation::Kn, n: width };
        pack_panel(&layout, &[part], k, 0..width, &mut panel);
        assert!(layout.read_notes(&panel).is_some_and(|notes| notes.count() == 10));
        for pair in panel[..layout.weights()].chunks_exact(2) {
            let [a, b] = [pair[0], pair[1]].map(|byte| i32::from(byte as i8));
            assert!(255 * (a.max(0) + b.max(0)) <= 32767 && 255 * (a.min(0) + b.min(0)) >= -32768);
        }
    }
}
