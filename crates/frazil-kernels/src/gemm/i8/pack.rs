//! Weights of bytes in panels, and what each form of the product has to know about them.
//!
//! A panel is some vectors of columns, the last one as many as it takes; each 32 bits hold four consecutive k of one column. Then
//! follow the sums of its columns, which take the zero point of the activations out of a product.
//!
//! Without VNNI, `vpmaddubsw` adds two products in 16 bits and saturates. That is exact as long as
//! the two weights of a pair (k even, k odd) do not add up to more than 128 with either sign, since
//! 255 · 128 < 2¹⁵; and where the four weights of two pairs do not (those of two steps), their products
//! can be added in 16 bits, too, before they are widened. Where weights are too large for that, packing
//! takes the excess off and notes it: those few are multiplied one by one and added to the sums. A
//! panel with too many is multiplied in the next best [`Form`]. So every sum is exact whatever the
//! weights are.

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

/// How the products of a panel are made, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Four are added in 16 bits: those of two steps.
    Quads,
    /// Two are.
    Pairs,
    /// None is.
    Wide,
}

impl Form {
    /// For one step alone.
    pub(super) fn of_one(self) -> Self {
        if self == Self::Quads { Self::Pairs } else { self }
    }

    /// As it stands above the number of notes.
    fn mark(self) -> u32 {
        (self as u32) << 24
    }
}

/// What the weights that are added up before they are widened may come to.
const MOST: i32 = 128;

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
            Isa::Avx2 | Isa::Avx512 => (k * width / 256).clamp(3, 0xFF_FFFF),
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

    /// From the start of a panel to its form and the number of its notes; these follow.
    fn form_at(&self) -> usize {
        self.sums() + self.width * 4
    }

    /// From panel to panel: whole cache lines.
    pub(super) fn panel(&self) -> usize {
        let notes = if self.notes == 0 { 0 } else { 4 + 4 * self.notes };
        (self.form_at() + notes).next_multiple_of(64)
    }

    /// The form of a panel and the number of its notes, in 32 bits.
    fn head(&self, panel: &[u8]) -> u32 {
        match self.notes {
            0 => Form::Pairs.mark(),
            _ => read_u32(&panel[self.form_at()..][..4]),
        }
    }

    /// How the products of a panel are made.
    pub(super) fn form(&self, panel: &[u8]) -> Form {
        let mark = self.head(panel) & 0xFF00_0000;
        let forms = [Form::Quads, Form::Pairs];
        forms.into_iter().find(|form| form.mark() == mark).unwrap_or(Form::Wide)
    }

    /// The notes of a panel.
    pub(super) fn notes<'a>(&self, panel: &'a [u8]) -> impl Iterator<Item = Note> + use<'a> {
        let count = (self.head(panel) & 0xFF_FFFF) as usize;
        let words = &panel[if count == 0 { panel.len() } else { self.form_at() + 4 }..];
        words.chunks_exact(4).take(count).map(|word| {
            let word = read_u32(word);
            Note {
                k: (word & 0xFFFF) as usize,
                column: (word >> 16 & 0xFF) as usize,
                excess: i32::from((word >> 24) as u8 as i8),
            }
        })
    }

    /// Where a weight is in a panel.
    fn weight(&self, k: usize, column: usize) -> usize {
        (k / 4 * self.width + column) * 4 + k % 4
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
            panel[layout.weight(i, column)] = weight as u8;
        }
    }
    for (to, sum) in panel[layout.sums()..].chunks_exact_mut(4).zip(&sums[..width]) {
        to.copy_from_slice(&sum.to_le_bytes());
    }
    if layout.notes > 0 {
        // Whole steps are multiplied two by two then; what does not fill one is multiplied alone.
        let quads = (k / 4).is_multiple_of(2).then_some(Form::Quads);
        let mut forms = quads.into_iter().chain([Form::Pairs]);
        if !forms.any(|form| take_excess(layout, form, panel)) {
            panel[layout.form_at()..][..4].copy_from_slice(&Form::Wide.mark().to_le_bytes());
        }
    }
}

/// Makes the weights safe for a form and writes down what was taken off; or leaves them as they were.
fn take_excess(layout: &Layout, form: Form, panel: &mut [u8]) -> bool {
    let pace = if form == Form::Quads { 2 } else { 1 };
    let mut count = 0;
    for step in (0..layout.steps).step_by(pace) {
        let steps = step..(step + pace).min(layout.steps);
        for (column, pair) in (0..layout.width).flat_map(|column| [(column, 0), (column, 2)]) {
            let group = || steps.clone().flat_map(|step| [4 * step + pair, 4 * step + pair + 1]);
            for sign in [1, -1] {
                // Of different signs, one product takes from the other.
                loop {
                    let size = |panel: &[u8], k| {
                        (sign * i32::from(panel[layout.weight(k, column)] as i8)).max(0)
                    };
                    let excess = group().map(|k| size(panel, k)).sum::<i32>() - MOST;
                    let Some(k) = group().max_by_key(|&k| size(panel, k)).filter(|_| excess > 0)
                    else {
                        break;
                    };
                    if count == layout.notes {
                        restore(layout, form, count, panel);
                        return false;
                    }
                    let at = layout.weight(k, column);
                    let excess = sign * excess.min(size(panel, k));
                    panel[at] = (i32::from(panel[at] as i8) - excess) as i8 as u8;
                    let word = k as u32 | (column as u32) << 16 | (excess as u8 as u32) << 24;
                    panel[layout.form_at() + 4 + 4 * count..][..4]
                        .copy_from_slice(&word.to_le_bytes());
                    count += 1;
                }
            }
        }
    }
    write_head(layout, form, count, panel);
    true
}

fn write_head(layout: &Layout, form: Form, count: usize, panel: &mut [u8]) {
    let head = form.mark() | count as u32;
    panel[layout.form_at()..][..4].copy_from_slice(&head.to_le_bytes());
}

/// Gives the weights back what the first `count` notes say.
fn restore(layout: &Layout, form: Form, count: usize, panel: &mut [u8]) {
    write_head(layout, form, count, panel);
    let notes: Vec<Note> = layout.notes(panel).collect();
    for note in notes {
        let at = layout.weight(note.k, note.column);
        panel[at] = (i32::from(panel[at] as i8) + note.excess) as i8 as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::epilogue::Orientation;
    use super::*;

    /// Packs one panel of a matrix `[k, width]` and gives back its form, the number of its notes, and
    /// the weights as they are multiplied and as they were.
    fn there_and_back(isa: Isa, k: usize, w: &[i8]) -> (Form, usize, Vec<u8>, Vec<u8>) {
        let layout = Layout::new(isa, k, usize::MAX);
        let mut panel = vec![9; layout.panel()];
        let part = Columns { w, order: Orientation::Kn, n: layout.width };
        pack_panel(&layout, &[part], k, 0..layout.width, &mut panel);
        let (form, count, safe) =
            (layout.form(&panel), layout.notes(&panel).count(), panel.clone());
        restore(&layout, form, count, &mut panel);
        (form, count, safe, panel)
    }

    /// Whatever is multiplied with weights of a form, 16 bits hold what is added in them.
    fn is_safe(layout: &Layout, form: Form, panel: &[u8]) -> bool {
        let pace = if form == Form::Quads { 2 } else { 1 };
        let steps: Vec<usize> = (0..layout.steps).collect();
        steps.chunks(pace).all(|steps| {
            (0..layout.width).flat_map(|column| [(column, 0), (column, 2)]).all(|(column, pair)| {
                let group = steps.iter().flat_map(|step| [4 * step + pair, 4 * step + pair + 1]);
                let weights = group.map(|k| i32::from(panel[layout.weight(k, column)] as i8));
                let (mut low, mut high) = (0, 0);
                weights.for_each(|w| (low, high) = (low + w.min(0), high + w.max(0)));
                255 * high <= 32767 && 255 * low >= -32768
            })
        })
    }

    #[test]
    fn the_form_follows_from_the_weights() {
        for (isa, width) in [(Isa::Avx2, 16), (Isa::Avx512, 32)] {
            for k in [64, 65, 68] {
                for large in [0, 1, 4, k * width] {
                    let w: Vec<i8> = (0..k * width)
                        .map(|i| match i < large * width * 2 {
                            // Both of a pair, in the first columns.
                            true if i % width < 2 => [-128, 127][i % 2],
                            _ => (i % 32) as i8,
                        })
                        .collect();
                    let (form, _, safe, panel) = there_and_back(isa, k, &w);
                    let layout = Layout::new(isa, k, usize::MAX);
                    for (i, &weight) in w.iter().enumerate() {
                        let (row, column) = (i / width, i % width);
                        assert_eq!(panel[layout.weight(row, column)] as i8, weight);
                    }
                    assert!(form == Form::Wide || is_safe(&layout, form, &safe), "{isa} {large}");
                    if large < 2 {
                        let best = if k == 68 { Form::Pairs } else { Form::Quads };
                        assert_eq!(form, best, "{isa} {k} {large}");
                    }
                }
                assert_eq!(there_and_back(isa, k, &vec![127; k * width]).0, Form::Wide, "{isa}");
                assert_eq!(there_and_back(isa, k, &vec![64; k * width]).0, Form::Pairs, "{isa}");
            }
        }
    }

    #[test]
    fn what_is_too_large_is_noted() {
        let isa = Isa::Avx2;
        let (k, width) = (256, 16);
        let weight = |i: usize| match (i / width / 2, i % width) {
            (7, ..9) => 127,
            (50, 3) => -128,
            _ => 5,
        };
        let w: Vec<i8> = (0..k * width).map(weight).collect();
        let (form, notes, safe, _) = there_and_back(isa, k, &w);
        // Pairs of 127 beside smaller ones: the first is taken off as a whole, a part of the second.
        assert_eq!((form, notes), (Form::Pairs, 10));
        assert!(is_safe(&Layout::new(isa, k, usize::MAX), form, &safe));
    }
}
