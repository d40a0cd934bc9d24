//! Memory that begins on a cache line, without `unsafe`: a vector of lines, seen as numbers.

use bytemuck::{Pod, Zeroable};

/// A cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Line([f32; 16]);

/// A block that grows and is used again.
#[derive(Clone, Default)]
pub(crate) struct Block {
    lines: Vec<Line>,
}

impl Block {
    /// A block of `len` zeros; `None` if there is no room for it.
    pub fn zeroed(len: usize) -> Option<Self> {
        let mut block = Self::default();
        block.reserve(len)?;
        Some(block)
    }

    /// At least `len` numbers; what they are is of no concern. `None` if there is no room.
    ///
    /// A block that has to grow a second time, since batches differ, gets room for twice as much: that is
    /// no memory before it is written to. What was in it is not carried over.
    pub fn reserve(&mut self, len: usize) -> Option<()> {
        let lines = len.div_ceil(16);
        if lines > self.lines.capacity() {
            let twice = 2 * self.lines.capacity();
            self.lines = Vec::new();
            let enough = self.lines.try_reserve_exact(lines.max(twice));
            enough.or_else(|_| self.lines.try_reserve_exact(lines)).ok()?;
        }
        if lines > self.lines.len() {
            self.lines.resize(lines, Line([0.0; 16]));
        }
        Some(())
    }

    pub fn f32(&self) -> &[f32] {
        bytemuck::cast_slice(&self.lines)
    }

    pub fn f32_mut(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(&mut self.lines)
    }

    pub fn u8(&self) -> &[u8] {
        bytemuck::cast_slice(&self.lines)
    }

    pub fn u8_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_on_a_line_and_never_shrinks() {
        let mut block = Block::zeroed(17).unwrap();
        assert_eq!(block.f32().len(), 32);
        assert_eq!(block.f32().as_ptr() as usize % 64, 0);
        block.f32_mut()[3] = 1.0;
        block.reserve(1).unwrap();
        assert_eq!((block.f32().len(), block.f32()[3]), (32, 1.0));
        block.reserve(33).unwrap();
        let begin = block.f32().as_ptr();
        block.reserve(64).unwrap();
        assert_eq!((block.f32().len(), block.f32().as_ptr()), (64, begin));
        assert!(block.reserve(usize::MAX / 8).is_none());
    }
}
