//! From text to words, as BasicTokenizer makes them: cleaned, split at whitespace, punctuation
//! and ideographs, lowered and stripped of marks if so wished.
//!
//! Two ways through the text. A word of ASCII letters and digits that ends at an ASCII character
//! is found sixteen bytes at a time and handed over as a place in the text; any other word is put
//! together character by character, with the place each of its bytes came from. What becomes of
//! the words is left to the [`Sink`].

use super::Casing;
use super::unicode::{Class, Entry, is_case_ignorable, is_cased, jamo, kept_mark_class};

/// The longest ASCII word that comes with a key.
pub(super) const KEY_BYTES: usize = 16;

/// Gets the words in the order of the text.
pub(super) trait Sink {
    /// A word of ASCII letters and digits, which lies at `start..end` of the text. `key` is the
    /// word itself, lowered if so wished, in little-endian order and filled with zeros, where it
    /// has no more than [`KEY_BYTES`].
    fn ascii_word(&mut self, start: usize, end: usize, key: u128);
    /// A single ASCII character.
    fn ascii_punctuation(&mut self, byte: u8, at: usize);
    /// Any other word.
    fn word(&mut self, word: &Word);
}

/// A word that is not as it stands in the text.
#[derive(Debug, Default)]
pub(super) struct Word {
    text: String,
    /// For each byte of `text`, where the character that it came from begins and ends.
    starts: Vec<u32>,
    ends: Vec<u32>,
    /// From here on, characters have a combining class, and are in the order of it.
    marks: usize,
}

impl Word {
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// What bytes `from..to` of the word came from; the range must not be empty.
    pub(super) fn origin(&self, from: usize, to: usize) -> (u32, u32) {
        // Not the first and the last: marks may have changed places.
        let start = self.starts[from..to].iter().copied().min().unwrap_or(0);
        let end = self.ends[from..to].iter().copied().max().unwrap_or(start);
        (start, end)
    }

    fn clear(&mut self) {
        self.text.clear();
        self.starts.clear();
        self.ends.clear();
        self.marks = 0;
    }

    fn push(&mut self, c: char, origin: (u32, u32)) {
        self.text.push(c);
        self.starts.resize(self.text.len(), origin.0);
        self.ends.resize(self.text.len(), origin.1);
        self.marks = self.text.len();
    }

    /// Puts a kept mark behind the marks of its class or a lower one, as decomposition does.
    fn push_mark(&mut self, c: char, origin: (u32, u32)) {
        let class = kept_mark_class(c);
        let mut place = self.marks;
        for mark in self.text[self.marks..].chars() {
            if kept_mark_class(mark) > class {
                break;
            }
            place += mark.len_utf8();
        }
        self.text.insert(place, c);
        let bytes = c.len_utf8();
        self.starts.splice(place..place, std::iter::repeat_n(origin.0, bytes));
        self.ends.splice(place..place, std::iter::repeat_n(origin.1, bytes));
    }
}

/// Gives all words of `text` to the sink.
#[inline]
pub(super) fn scan(text: &str, casing: Casing, sink: &mut impl Sink) {
    match casing {
        Casing::Lower => Scanner::<true>::new(text).run(sink),
        Casing::Keep => Scanner::<false>::new(text).run(sink),
    }
}

/// What a byte is to a scan that stands between words.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ascii {
    Letter,
    Space,
    Punctuation,
    Removed,
    /// Not ASCII.
    Other,
}

static ASCII: [Ascii; 256] = {
    let mut table = [Ascii::Other; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = match byte as u8 {
            b' ' | b'\t' | b'\n' | b'\r' => Ascii::Space,
            0..32 | 127 => Ascii::Removed,
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => Ascii::Letter,
            _ => Ascii::Punctuation,
        };
        byte += 1;
    }
    table
};

struct Scanner<'a, const LOWER: bool> {
    text: &'a str,
    word: Word,
}

impl<'a, const LOWER: bool> Scanner<'a, LOWER> {
    fn new(text: &'a str) -> Self {
        Self { text, word: Word::default() }
    }

    #[inline]
    fn run(mut self, sink: &mut impl Sink) {
        let bytes = self.text.as_bytes();
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            match ASCII[byte as usize] {
                Ascii::Letter => {
                    let (end, key) = letters::<LOWER>(bytes, at);
                    if self.ends_at(end) {
                        sink.ascii_word(at, end, key);
                        at = end;
                    } else {
                        at = self.spell(at, sink);
                    }
                }
                Ascii::Space | Ascii::Removed => at += 1,
                Ascii::Punctuation => {
                    sink.ascii_punctuation(byte, at);
                    at += 1;
                }
                Ascii::Other => at = self.spell(at, sink),
            }
        }
    }

    /// Whether a word of ASCII letters is over where they are.
    #[inline]
    fn ends_at(&self, end: usize) -> bool {
        let Some(&byte) = self.text.as_bytes().get(end) else { return true };
        match ASCII[byte as usize] {
            Ascii::Space | Ascii::Punctuation => true,
            Ascii::Letter | Ascii::Removed => false,
            Ascii::Other => self.text[end..].chars().next().is_none_or(|c| {
                matches!(Entry::of(c).class(), Class::Space | Class::Chinese | Class::Punctuation)
            }),
        }
    }

    /// Puts words together, character by character, up to a place where none is open; that
    /// place.
    fn spell(&mut self, from: usize, sink: &mut impl Sink) -> usize {
        self.word.clear();
        for (i, c) in self.text[from..].char_indices() {
            let (start, end) = (from + i, from + i + c.len_utf8());
            let origin = (narrow(start), narrow(end));
            let entry = Entry::of(c);
            match entry.class() {
                Class::Removed => continue,
                Class::Space => {
                    self.flush(sink);
                    return end;
                }
                Class::Chinese => {
                    self.flush(sink);
                    match entry.plain() {
                        Some(plain) if LOWER => {
                            plain.chars().for_each(|c| self.word.push(c, origin));
                        }
                        _ => self.word.push(c, origin),
                    }
                    self.flush(sink);
                    return end;
                }
                _ => {}
            }
            if LOWER {
                self.lower(c, entry, start, origin, sink);
            } else {
                self.split(c, entry.class(), origin, sink);
            }
            if self.word.text.is_empty() && entry.class() == Class::Punctuation {
                return end;
            }
        }
        self.flush(sink);
        self.text.len()
    }

    /// Adds what a character becomes in lower case without marks.
    #[inline]
    fn lower(
        &mut self,
        c: char,
        entry: Entry,
        at: usize,
        origin: (u32, u32),
        sink: &mut impl Sink,
    ) {
        if entry.class() == Class::CapitalSigma {
            let lower = if self.is_final(at, c) { 'ς' } else { 'σ' };
            return self.word.push(lower, origin);
        }
        if let Some(plain) = entry.plain() {
            if entry.class() == Class::RemovedStarter {
                self.word.marks = self.word.text.len();
            }
            for c in plain.chars() {
                self.split(c, Entry::of(c).class(), origin, sink);
            }
        } else if let Some((leading, vowel, last)) = jamo(c) {
            self.word.push(leading, origin);
            self.word.push(vowel, origin);
            last.into_iter().for_each(|c| self.word.push(c, origin));
        } else {
            self.split(c, entry.class(), origin, sink);
        }
    }

    /// Adds a character to the word, or makes it one.
    #[inline]
    fn split(&mut self, c: char, class: Class, origin: (u32, u32), sink: &mut impl Sink) {
        match class {
            Class::Punctuation => {
                self.flush(sink);
                self.word.push(c, origin);
                self.flush(sink);
            }
            Class::KeptMark if LOWER => self.word.push_mark(c, origin),
            _ => self.word.push(c, origin),
        }
    }

    fn flush(&mut self, sink: &mut impl Sink) {
        if !self.word.text.is_empty() {
            sink.word(&self.word);
            self.word.clear();
        }
    }

    /// Whether the sigma at `at` is the last letter of its word, as Python's `str.lower` sees it:
    /// a cased letter before it and none after, whatever lies between that does not count.
    /// Words are what stands between whitespace; punctuation does not end them here.
    fn is_final(&self, at: usize, sigma: char) -> bool {
        let counts = |c: &char| Entry::of(*c).class() != Class::Removed && !is_case_ignorable(*c);
        let cased =
            |c: char| !matches!(Entry::of(c).class(), Class::Space | Class::Chinese) && is_cased(c);
        // A space or an ideograph counts and has no case, so a search ends there at the latest.
        let before = self.text[..at].chars().rev().find(counts);
        let after = self.text[at + sigma.len_utf8()..].chars().find(counts);
        before.is_some_and(cased) && !after.is_some_and(cased)
    }
}

/// A place in a text as [`super::Encoding`] has it; past 4 GiB, all places are the last.
#[inline]
pub(super) fn narrow(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// Where the ASCII letters and digits that begin at `at` end, and the key of the word.
#[inline]
fn letters<const LOWER: bool>(bytes: &[u8], at: usize) -> (usize, u128) {
    let Some(block) = bytes[at..].first_chunk::<KEY_BYTES>() else {
        return letters_bytewise::<LOWER>(bytes, at);
    };
    // In each byte, bit 7 of `x + (0x80 - low)` says x >= low, of `x + (0x7f - high)` x > high,
    // as long as x has no bit 7 itself.
    const fn each(byte: u8) -> u128 {
        u128::from_ne_bytes([byte; KEY_BYTES])
    }
    let block = u128::from_le_bytes(*block);
    let low_bits = block & each(0x7f);
    let folded = low_bits | each(0x20);
    let letter = (folded + each(0x80 - b'a')) & !(folded + each(0x7f - b'z'));
    let digit = (low_bits + each(0x80 - b'0')) & !(low_bits + each(0x7f - b'9'));
    let ascii = !block & each(0x80);
    let other = !(letter | digit) & each(0x80) | !ascii & each(0x80);
    if other == 0 {
        let end = at + KEY_BYTES;
        let more = bytes[end..].iter().take_while(|b| ASCII[**b as usize] == Ascii::Letter).count();
        let key = if LOWER { block | (letter & ascii) >> 2 } else { block };
        return (end + more, key);
    }
    let bits = other.trailing_zeros() & !7;
    let lowered = if LOWER { block | (letter & ascii) >> 2 } else { block };
    (at + bits as usize / 8, lowered & ((1 << bits) - 1))
}

fn letters_bytewise<const LOWER: bool>(bytes: &[u8], at: usize) -> (usize, u128) {
    let word = bytes[at..].iter().take_while(|b| ASCII[**b as usize] == Ascii::Letter);
    let (mut key, mut length) = (0, 0);
    for &byte in word {
        let byte = if LOWER { byte.to_ascii_lowercase() } else { byte };
        key |= u128::from(byte) << (8 * length); // fewer than KEY_BYTES are left of the text
        length += 1;
    }
    (at + length, key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_find_the_same_letters() {
        let text: Vec<u8> = (0..=255).chain(*b"Word1 ANOTHER2word3of16X[`z{@/:9").collect();
        for at in 0..text.len() {
            for length in [5, 16] {
                let from = |text: &mut Vec<u8>| {
                    text.resize(at + length, b' ');
                    text.extend([b' '; KEY_BYTES]);
                };
                let mut padded = text[..text.len().min(at + length)].to_vec();
                from(&mut padded);
                let short = &padded[..(at + 15).min(padded.len())];
                let expected = letters_bytewise::<true>(short, at);
                if expected.0 - at < 15 {
                    assert_eq!(letters::<true>(&padded, at), expected, "at {at}");
                    assert_eq!(
                        letters::<false>(&padded, at),
                        letters_bytewise::<false>(short, at),
                        "at {at}"
                    );
                }
            }
        }
    }

    #[test]
    fn long_words_are_found_whole() {
        let text = [b'Q'; 50];
        let (end, key) = letters::<true>(&text, 3);
        assert_eq!((end, key.to_le_bytes()), (50, [b'q'; 16]));
        assert_eq!(letters::<false>(&text, 34).0, 50);
    }
}
