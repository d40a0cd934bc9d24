//! The vocabulary laid out for finding pieces: a table of whole words, and a trie for the longest
//! piece that begins at a place of a word.
//!
//! Nine words in ten of English text are pieces themselves, and have no more than sixteen ASCII
//! letters: one look into the table finds them. Any other word is cut by the trie, a double
//! array: the cell of a node's child is the node's base with the byte's bits turned, so a step is
//! one load. Left out: failure links, which make the cutting linear; a word has at most 200
//! characters, and a piece is not much longer than its first bytes that are in no other.

use super::vocabulary::Vocabulary;
use super::words::KEY_BYTES;
use crate::{Error, Result};

/// More than this many nodes (at 12 bytes) no real vocabulary has: the largest BERT's, with half
/// a million pieces of all languages, has a quarter of it.
const MAX_NODES: usize = 6_000_000;
/// The table is for the common words; what finds no room in it is found by the trie.
const MAX_WHOLE: usize = 400_000;
/// A place in the table is at most this far from where its hash says.
const MAX_PROBES: usize = 64;

/// Finds pieces.
#[derive(Debug)]
pub(super) struct WordPiece {
    whole: WholeWords,
    trie: Trie,
    /// The id of each one-character word of ASCII.
    ascii: [u32; 128],
    /// What a word without pieces becomes.
    pub(super) unknown: u32,
    /// Words with more characters are not cut, but unknown.
    pub(super) longest: usize,
}

impl WordPiece {
    pub(super) fn new(vocabulary: &Vocabulary, unknown: u32) -> Result<Self> {
        let longest = vocabulary.longest_word();
        let prefix = vocabulary.continuation();
        // Ids by piece: of a piece that comes twice, only the last counts, as in the original.
        let mut first = Vec::new();
        let mut continued = Vec::new();
        for (id, piece) in vocabulary.pieces() {
            // Four bytes are the most that a character has.
            if piece.is_empty() || piece.len() > longest.saturating_mul(4) {
                continue;
            }
            if vocabulary.id(piece) != Some(id) {
                continue;
            }
            let rest = piece.strip_prefix(prefix).filter(|rest| !rest.is_empty());
            if let Some(rest) = rest {
                continued.push((rest.as_bytes(), id));
            }
            // No word begins with `##` and goes on; but with another prefix, one could.
            if rest.is_none() || !prefix.starts_with(|c: char| c.is_ascii_punctuation()) {
                first.push((piece.as_bytes(), id));
            }
        }
        let mut ascii = [unknown; 128];
        for &(piece, id) in &first {
            if let [byte @ 0..128] = piece
                && longest > 0
            {
                ascii[*byte as usize] = id;
            }
        }
        let keyed = if longest < KEY_BYTES { &[][..] } else { &first[..] };
        let whole = WholeWords::new(keyed);
        Ok(Self { whole, trie: Trie::new(first, continued)?, ascii, unknown, longest })
    }

    /// The id of a word of at most [`KEY_BYTES`] ASCII letters, if it is a piece.
    #[inline]
    pub(super) fn whole(&self, key: u128) -> Option<u32> {
        self.whole.find(key)
    }

    /// The id of a word of one ASCII character.
    #[inline]
    pub(super) fn ascii(&self, byte: u8) -> u32 {
        self.ascii.get(byte as usize).copied().unwrap_or(self.unknown)
    }

    /// Cuts a word, longest piece first, and gives each piece's id and place to `each`. False
    /// where no piece fits; those that did have been given away by then.
    #[inline]
    pub(super) fn cut(&self, word: &[u8], mut each: impl FnMut(u32, usize, usize)) -> bool {
        let mut from = 0;
        let mut root = FIRST;
        while from < word.len() {
            let Some((id, length)) = self.trie.longest(root, &word[from..]) else { return false };
            each(id, from, from + length);
            from += length;
            root = CONTINUED;
        }
        true
    }
}

/// Words of ASCII letters and digits by their bytes.
#[derive(Debug)]
struct WholeWords {
    /// Key and id; a power of two of them. Key 0 is no word.
    slots: Vec<(u64, u64, u32)>,
}

impl WholeWords {
    fn new(pieces: &[(&[u8], u32)]) -> Self {
        let fits = |piece: &[u8]| {
            piece.len() <= KEY_BYTES && piece.iter().all(|byte| byte.is_ascii_alphanumeric())
        };
        let words: Vec<_> =
            pieces.iter().filter(|(piece, _)| fits(piece)).take(MAX_WHOLE).collect();
        let mut table = Self { slots: vec![(0, 0, 0); (words.len() * 2).next_power_of_two()] };
        for (word, id) in words {
            let mut key = [0; KEY_BYTES];
            key[..word.len()].copy_from_slice(word);
            let (low, high) = halves(u128::from_le_bytes(key));
            let mask = table.slots.len() - 1;
            let first = hash(low, high);
            let free = (0..MAX_PROBES)
                .map(|step| first.wrapping_add(step) & mask)
                .find(|slot| table.slots[*slot].0 == 0);
            if let Some(slot) = free {
                table.slots[slot] = (low, high, *id);
            }
        }
        table
    }

    #[inline]
    fn find(&self, key: u128) -> Option<u32> {
        let (low, high) = halves(key);
        let mask = self.slots.len() - 1;
        let first = hash(low, high);
        for step in 0..MAX_PROBES {
            let (slot_low, slot_high, id) = self.slots[first.wrapping_add(step) & mask];
            if slot_low == low && slot_high == high {
                return Some(id);
            }
            if slot_low == 0 {
                return None;
            }
        }
        None
    }
}

#[inline]
fn halves(key: u128) -> (u64, u64) {
    (key as u64, (key >> 64) as u64)
}

/// Both halves of a long product depend on all bits of both factors, and their sum is even
/// better mixed.
#[inline]
fn hash(low: u64, high: u64) -> usize {
    let product = u128::from(low ^ 0x9e37_79b9_7f4a_7c15)
        .wrapping_mul(u128::from(high ^ 0xc2b2_ae3d_27d4_eb4f));
    let (low, high) = halves(product);
    (low ^ high) as usize
}

/// Where pieces that begin a word begin, and where those that go on with one do.
const FIRST: u32 = 1;
const CONTINUED: u32 = 2;

/// A node ends a piece.
const ENDS: u32 = 1 << 31;
/// A cell without a node.
const FREE: u32 = u32::MAX;

/// A node's place in the array.
#[derive(Clone, Copy, Debug)]
struct Cell {
    /// Turned by a byte's bits, the place of the child for that byte; with [`ENDS`] or without.
    base: u32,
    /// The place of the parent, or [`FREE`].
    parent: u32,
}

#[derive(Debug)]
struct Trie {
    cells: Vec<Cell>,
    /// The ids of the pieces that end in a cell.
    ids: Vec<u32>,
}

impl Trie {
    fn new(mut first: Vec<(&[u8], u32)>, mut continued: Vec<(&[u8], u32)>) -> Result<Self> {
        first.sort_unstable();
        continued.sort_unstable();
        let nodes = nodes(&first) + nodes(&continued);
        if nodes > MAX_NODES {
            return Err(Error::VocabularyTooLarge { what: "bytes of pieces", limit: MAX_NODES });
        }
        let mut builder = Builder::default();
        builder.cells.reserve(nodes + nodes / 8 + BLOCK);
        builder.grow();
        // Cell 0 is nobody's; the roots are their own parents' children of no byte.
        for root in [0, FIRST, CONTINUED] {
            builder.take(root as usize, root);
        }
        builder.add(FIRST, &first)?;
        builder.add(CONTINUED, &continued)?;
        Ok(Self { cells: builder.cells, ids: builder.ids })
    }

    /// The longest piece that `text` begins with: its id and length.
    #[inline]
    fn longest(&self, root: u32, text: &[u8]) -> Option<(u32, usize)> {
        let mut node = root;
        let mut base = self.cells[root as usize].base;
        let mut found = None;
        for (i, &byte) in text.iter().enumerate() {
            let child = (base & !ENDS) ^ u32::from(byte);
            let Some(cell) = self.cells.get(child as usize) else { break };
            if cell.parent != node {
                break;
            }
            (node, base) = (child, cell.base);
            if base & ENDS != 0 {
                found = Some((node, i + 1));
            }
        }
        found.map(|(node, length)| (self.ids[node as usize], length))
    }
}

/// How many nodes a trie of these sorted pieces has, the root not counted.
fn nodes(pieces: &[(&[u8], u32)]) -> usize {
    let mut before: &[u8] = &[];
    let mut sum = 0_usize;
    for (piece, _) in pieces {
        let shared = piece.iter().zip(before).take_while(|(a, b)| a == b).count();
        sum += piece.len() - shared;
        before = piece;
    }
    sum
}

/// Children of one node never leave its block.
const BLOCK: usize = 256;
/// How many blocks are looked at for room before a new one is made.
const OPEN_BLOCKS: usize = 16;

#[derive(Default)]
struct Builder {
    cells: Vec<Cell>,
    ids: Vec<u32>,
    /// How many cells of each block are free.
    free: Vec<usize>,
}

impl Builder {
    fn grow(&mut self) {
        let cells = self.cells.len() + BLOCK;
        self.cells.resize(cells, Cell { base: 0, parent: FREE });
        self.ids.resize(cells, 0);
        self.free.push(BLOCK);
    }

    fn take(&mut self, cell: usize, parent: u32) {
        self.cells[cell].parent = parent;
        self.free[cell / BLOCK] -= 1;
    }

    /// Hangs the sorted pieces below a node; each path once, by a list of what is to be done.
    fn add(&mut self, root: u32, pieces: &[(&[u8], u32)]) -> Result<()> {
        let mut work = vec![(root, pieces, 0)];
        while let Some((node, mut pieces, depth)) = work.pop() {
            if let [(piece, id), rest @ ..] = pieces
                && piece.len() == depth
            {
                self.cells[node as usize].base |= ENDS;
                self.ids[node as usize] = *id;
                pieces = rest;
            }
            if pieces.is_empty() {
                continue;
            }
            let children: Vec<&[(&[u8], u32)]> =
                pieces.chunk_by(|a, b| a.0[depth] == b.0[depth]).collect();
            let bytes: Vec<u8> = children.iter().map(|child| child[0].0[depth]).collect();
            let base = self.room(&bytes)?;
            self.cells[node as usize].base |= base;
            for (&byte, &child) in bytes.iter().zip(&children) {
                let cell = base ^ u32::from(byte);
                self.take(cell as usize, node);
                work.push((cell, child, depth + 1));
            }
        }
        Ok(())
    }

    /// A base whose cells for all these bytes are free.
    fn room(&mut self, bytes: &[u8]) -> Result<u32> {
        let blocks = self.free.len();
        for block in blocks.saturating_sub(OPEN_BLOCKS)..blocks {
            if self.free[block] < bytes.len() {
                continue;
            }
            let cells = &self.cells[block * BLOCK..][..BLOCK];
            let fits = |low: &usize| {
                bytes.iter().all(|byte| cells[low ^ usize::from(*byte)].parent == FREE)
            };
            if let Some(low) = (0..BLOCK).find(fits) {
                return Ok((block * BLOCK + low) as u32);
            }
        }
        let base = self.cells.len();
        if base >= ENDS as usize - BLOCK {
            return Err(Error::VocabularyTooLarge { what: "bytes of pieces", limit: MAX_NODES });
        }
        self.grow();
        Ok(base as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(list: &[&'static str]) -> Vec<(&'static [u8], u32)> {
        list.iter().enumerate().map(|(i, piece)| (piece.as_bytes(), i as u32)).collect()
    }

    #[test]
    fn the_longest_piece_is_found() {
        let trie =
            Trie::new(pieces(&["un", "una", "ünter", "u"]), pieces(&["able", "a", "abl"])).unwrap();
        assert_eq!(trie.longest(FIRST, b"unaffable"), Some((1, 3)));
        assert_eq!(trie.longest(FIRST, b"uxx"), Some((3, 1)));
        assert_eq!(trie.longest(FIRST, "ünter".as_bytes()), Some((2, 6)));
        assert_eq!(trie.longest(FIRST, "ü".as_bytes()), None);
        assert_eq!(trie.longest(CONTINUED, b"ables"), Some((0, 4)));
        assert_eq!(trie.longest(CONTINUED, b"un"), None);
        assert_eq!(trie.longest(FIRST, b""), None);
    }

    #[test]
    fn an_empty_trie_finds_nothing() {
        let trie = Trie::new(Vec::new(), Vec::new()).unwrap();
        for byte in 0..=255 {
            assert_eq!(trie.longest(FIRST, &[byte]), None);
            assert_eq!(trie.longest(CONTINUED, &[byte]), None);
        }
    }

    #[test]
    fn all_bytes_can_be_children() {
        let bytes: Vec<u8> = (0..=255).collect();
        let list: Vec<(&[u8], u32)> =
            bytes.chunks(1).enumerate().map(|(i, byte)| (byte, i as u32)).collect();
        let trie = Trie::new(list.clone(), list).unwrap();
        for byte in 0..=255 {
            assert_eq!(trie.longest(CONTINUED, &[byte, 0]), Some((u32::from(byte), 1)));
        }
    }

    #[test]
    fn whole_words_are_found_by_their_bytes() {
        let table = WholeWords::new(&pieces(&["the", "a", "sixteenletters16", "two words"]));
        let key = |word: &str| {
            let mut key = [0; 16];
            key[..word.len()].copy_from_slice(word.as_bytes());
            u128::from_le_bytes(key)
        };
        assert_eq!(table.find(key("the")), Some(0));
        assert_eq!(table.find(key("sixteenletters16")), Some(2));
        assert_eq!(table.find(key("two words")), None);
        assert_eq!(WholeWords::new(&[]).find(key("the")), None);
    }

    #[test]
    fn nodes_are_counted_once() {
        let mut list = pieces(&["ab", "abc", "b"]);
        list.sort_unstable();
        assert_eq!(nodes(&list), 4);
    }
}
