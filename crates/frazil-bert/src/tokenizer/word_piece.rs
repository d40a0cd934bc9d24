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

/// More nodes than this (at 12 bytes) no real vocabulary has: the largest BERT's, with half a
/// million pieces of all languages, has about half of them.
const MAX_NODES: usize = 3_000_000;
/// The table is for the common words; what finds no room in it is found by the trie.
const MAX_WHOLE: usize = 100_000;
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
        let mut first = Keys { vocabulary, ids: Vec::new(), skip: 0 };
        let mut continued = Keys { vocabulary, ids: Vec::new(), skip: prefix.len() };
        let mut ascii = [unknown; 128];
        for (id, piece) in vocabulary.pieces() {
            // Four bytes are the most that a character has. Of a piece that comes twice, only the
            // last id counts, as in the original.
            let fits = !piece.is_empty() && piece.len() <= longest.saturating_mul(4);
            if !fits || vocabulary.id(piece) != Some(id) {
                continue;
            }
            if let [byte @ 0..128] = piece.as_bytes() {
                ascii[*byte as usize] = id;
            }
            let continues = piece.starts_with(prefix) && piece.len() > prefix.len();
            if continues {
                continued.ids.push(id);
            }
            // No word begins with `##` and goes on; but with another prefix, one could.
            if !continues || !prefix.starts_with(|c: char| c.is_ascii_punctuation()) {
                first.ids.push(id);
            }
        }
        let whole = WholeWords::new(&first, if longest < KEY_BYTES { 0 } else { MAX_WHOLE });
        first.sort();
        continued.sort();
        Ok(Self { whole, trie: Trie::new(&first, &continued)?, ascii, unknown, longest })
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

/// Ids of pieces, and the bytes that each is found by. Only ids are stored: a vocabulary of
/// millions of short pieces would be many times its size with more.
struct Keys<'a> {
    vocabulary: &'a Vocabulary,
    ids: Vec<u32>,
    /// How many bytes of a piece only say that it goes on with a word.
    skip: usize,
}

impl<'a> Keys<'a> {
    fn bytes(&self, id: u32) -> &'a [u8] {
        let piece = self.vocabulary.token(id).unwrap_or_default();
        piece.as_bytes().get(self.skip..).unwrap_or_default()
    }

    fn sort(&mut self) {
        let mut ids = std::mem::take(&mut self.ids);
        ids.sort_unstable_by(|a, b| self.bytes(*a).cmp(self.bytes(*b)));
        self.ids = ids;
    }
}

/// Words of ASCII letters and digits by their bytes.
#[derive(Debug)]
struct WholeWords {
    /// Key and id; a power of two of them. Key 0 is no word.
    slots: Vec<(u64, u64, u32)>,
}

impl WholeWords {
    fn new(keys: &Keys<'_>, most: usize) -> Self {
        let fits = |id: &u32| {
            let piece = keys.bytes(*id);
            piece.len() <= KEY_BYTES && piece.iter().all(|byte| byte.is_ascii_alphanumeric())
        };
        let words: Vec<u32> = keys.ids.iter().copied().filter(fits).take(most).collect();
        let mut table = Self { slots: vec![(0, 0, 0); (words.len() * 2).next_power_of_two()] };
        for id in words {
            let word = keys.bytes(id);
            let mut key = [0; KEY_BYTES];
            key[..word.len()].copy_from_slice(word);
            let (low, high) = halves(u128::from_le_bytes(key));
            let mask = table.slots.len() - 1;
            let first = hash(low, high);
            let free = (0..MAX_PROBES)
                .map(|step| first.wrapping_add(step) & mask)
                .find(|slot| table.slots[*slot].0 == 0);
            if let Some(slot) = free {
                table.slots[slot] = (low, high, id);
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
    /// Of sorted keys.
    fn new(first: &Keys<'_>, continued: &Keys<'_>) -> Result<Self> {
        let nodes = nodes(first) + nodes(continued);
        if nodes > MAX_NODES {
            return Err(Error::VocabularyTooLarge { what: "bytes of pieces", limit: MAX_NODES });
        }
        let mut builder = Builder::with_room(nodes);
        builder.grow();
        // Cell 0 is nobody's; the roots are their own parents' children of no byte.
        for root in [0, FIRST, CONTINUED] {
            builder.take(root as usize, root);
        }
        builder.add(FIRST, first)?;
        builder.add(CONTINUED, continued)?;
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

/// How many nodes a trie of these sorted keys has, the root not counted.
fn nodes(keys: &Keys<'_>) -> usize {
    let mut before: &[u8] = &[];
    let mut sum = 0_usize;
    for id in &keys.ids {
        let piece = keys.bytes(*id);
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
/// So many cells are given to any trie. More are given at a third more than it has nodes; words of
/// a language take a tenth more.
const FREE_CELLS: usize = 1 << 20;

struct Builder {
    cells: Vec<Cell>,
    ids: Vec<u32>,
    /// The free cells of each block: one bit for each.
    free: Vec<[u64; BLOCK / 64]>,
    most: usize,
}

impl Builder {
    fn with_room(nodes: usize) -> Self {
        let likely = nodes + nodes / 3 + BLOCK;
        let most = likely.max(FREE_CELLS);
        let (mut cells, mut ids) = (Vec::new(), Vec::new());
        cells.reserve_exact(likely);
        ids.reserve_exact(likely);
        Self { cells, ids, free: Vec::new(), most }
    }

    fn grow(&mut self) {
        let cells = self.cells.len() + BLOCK;
        self.cells.resize(cells, Cell { base: 0, parent: FREE });
        self.ids.resize(cells, 0);
        self.free.push([u64::MAX; BLOCK / 64]);
    }

    fn take(&mut self, cell: usize, parent: u32) {
        self.cells[cell].parent = parent;
        self.free[cell / BLOCK][cell % BLOCK / 64] &= !(1 << (cell % 64));
    }

    /// Hangs sorted keys below a node; each path once, by a list of what is to be done.
    fn add(&mut self, root: u32, keys: &Keys<'_>) -> Result<()> {
        let mut work = vec![(root, &keys.ids[..], 0)];
        while let Some((node, mut ids, depth)) = work.pop() {
            if let [id, rest @ ..] = ids
                && keys.bytes(*id).len() == depth
            {
                self.cells[node as usize].base |= ENDS;
                self.ids[node as usize] = *id;
                ids = rest;
            }
            if ids.is_empty() {
                continue;
            }
            let byte = |id: &u32| keys.bytes(*id)[depth]; // all that are left are longer
            let children: Vec<&[u32]> = ids.chunk_by(|a, b| byte(a) == byte(b)).collect();
            let bytes: Vec<u8> = children.iter().map(|child| byte(&child[0])).collect();
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
            if let Some(low) = room_in(&self.free[block], bytes) {
                return Ok((block * BLOCK + low) as u32);
            }
        }
        let base = self.cells.len();
        if base + BLOCK > self.most {
            return Err(Error::VocabularyTooLarge { what: "bytes of pieces", limit: MAX_NODES });
        }
        self.grow();
        Ok(base as u32)
    }
}

/// The base within a block.
fn room_in(free: &[u64; BLOCK / 64], bytes: &[u8]) -> Option<usize> {
    let is_free = |cell: usize| free[cell / 64] >> (cell % 64) & 1 == 1;
    let (first, others) = bytes.split_first()?;
    for (i, mut word) in free.iter().copied().enumerate() {
        while word != 0 {
            // Each cell that could be the first child's.
            let low = (i * 64 + word.trailing_zeros() as usize) ^ usize::from(*first);
            if others.iter().all(|byte| is_free(low ^ usize::from(*byte))) {
                return Some(low);
            }
            word &= word - 1;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocabulary(pieces: &[&str]) -> Vocabulary {
        Vocabulary::from_tokens(pieces.iter().map(|piece| (*piece).to_owned())).unwrap()
    }

    fn keys(vocabulary: &Vocabulary, skip: usize) -> Keys<'_> {
        let mut keys = Keys { vocabulary, ids: (0..vocabulary.len() as u32).collect(), skip };
        keys.sort();
        keys
    }

    #[test]
    fn the_longest_piece_is_found() {
        let first = vocabulary(&["un", "una", "ünter", "u"]);
        let continued = vocabulary(&["##able", "##a", "##abl"]);
        let trie = Trie::new(&keys(&first, 0), &keys(&continued, 2)).unwrap();
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
        let vocabulary = vocabulary(&["a"]);
        let none = || Keys { vocabulary: &vocabulary, ids: Vec::new(), skip: 0 };
        let trie = Trie::new(&none(), &none()).unwrap();
        for byte in 0..=255 {
            assert_eq!(trie.longest(FIRST, &[byte]), None);
            assert_eq!(trie.longest(CONTINUED, &[byte]), None);
        }
    }

    #[test]
    fn nodes_may_have_many_children() {
        let letters: Vec<String> = ('\u{1}'..'\u{800}').map(String::from).collect();
        let vocabulary = Vocabulary::from_tokens(letters.clone()).unwrap();
        let trie = Trie::new(&keys(&vocabulary, 0), &keys(&vocabulary, 0)).unwrap();
        for (letter, id) in letters.iter().zip(0..) {
            let text = format!("{letter}x");
            assert_eq!(trie.longest(CONTINUED, text.as_bytes()), Some((id, letter.len())));
        }
    }

    #[test]
    fn whole_words_are_found_by_their_bytes() {
        let vocabulary = vocabulary(&["the", "a", "sixteenletters16", "two words"]);
        let keys = keys(&vocabulary, 0);
        let table = WholeWords::new(&keys, 9);
        let key = |word: &str| {
            let mut key = [0; 16];
            key[..word.len()].copy_from_slice(word.as_bytes());
            u128::from_le_bytes(key)
        };
        assert_eq!(table.find(key("the")), Some(0));
        assert_eq!(table.find(key("sixteenletters16")), Some(2));
        assert_eq!(table.find(key("two words")), None);
        assert_eq!(WholeWords::new(&keys, 0).find(key("the")), None);
    }

    #[test]
    fn nodes_are_counted_once() {
        assert_eq!(nodes(&keys(&vocabulary(&["ab", "abc", "b"]), 0)), 4);
    }
}
