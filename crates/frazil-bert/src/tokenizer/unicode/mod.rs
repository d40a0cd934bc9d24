//! Unicode as Python 3.7 knows it (version 11): what google-research/bert's tokenizer asks of a
//! character, in one look into a table.
//!
//! The tables are made by `cargo xtask codegen` from `unicode/python-3.7.json`, which a real
//! Python 3.7 wrote. Newer tables would split at punctuation that the models never saw split.
//! Left out: normalization in general. What is here is the one form that the tokenizer needs:
//! lower case, canonical decomposition, marks (category Mn) removed.

#[rustfmt::skip]
mod table;

use table::{BLOCKS, CASE_IGNORABLE, CASED, INDEX, KEPT_MARKS, PLAIN, WHITESPACE};

const BLOCK_BITS: u32 = 7;
const CLASS_BITS: u32 = 3;

/// What becomes of a character, whatever stands around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// It belongs to a word.
    Letter,
    /// Control and format characters, and U+FFFD: cleaned away.
    Removed,
    /// Ends a word.
    Space,
    /// A word of its own: category P*, and all of ASCII that is neither letter nor digit.
    Punctuation,
    /// An ideograph: a word of its own, before anything is lowered.
    Chinese,
    /// A letter that decomposition moves behind others: its combining class is not 0, but it is
    /// no mark (Mn).
    KeptMark,
    /// Its lower case depends on what stands around it.
    CapitalSigma,
    /// A mark that other marks do not move across: its combining class is 0.
    RemovedStarter,
}

/// A character's entry in the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry(u16);

impl Entry {
    #[inline]
    pub(crate) fn of(c: char) -> Self {
        let code = c as usize;
        let block = INDEX[code >> BLOCK_BITS] as usize;
        Self(BLOCKS[block][code & ((1 << BLOCK_BITS) - 1)])
    }

    #[inline]
    pub(crate) fn class(self) -> Class {
        match self.0 & ((1 << CLASS_BITS) - 1) {
            0 => Class::Letter,
            1 => Class::Removed,
            2 => Class::Space,
            3 => Class::Punctuation,
            4 => Class::Chinese,
            5 => Class::KeptMark,
            6 => Class::CapitalSigma,
            _ => Class::RemovedStarter,
        }
    }

    /// What the character becomes in lower case without marks, if that is not itself. Hangul
    /// syllables are not in the table, see [`jamo`].
    #[inline]
    pub(crate) fn plain(self) -> Option<&'static str> {
        match self.0 >> CLASS_BITS {
            0 => None,
            place => Some(PLAIN[place as usize]),
        }
    }
}

/// The two or three letters of a Hangul syllable; the third is `None` in a syllable of two.
#[inline]
pub(crate) fn jamo(syllable: char) -> Option<(char, char, Option<char>)> {
    const LAST_LETTERS: u32 = 28;
    const SYLLABLES_PER_LEADING: u32 = 21 * LAST_LETTERS;
    if !('\u{ac00}'..='\u{d7a3}').contains(&syllable) {
        return None;
    }
    let place = syllable as u32 - 0xac00;
    let leading = char::from_u32(0x1100 + place / SYLLABLES_PER_LEADING)?;
    let vowel = char::from_u32(0x1161 + place % SYLLABLES_PER_LEADING / LAST_LETTERS)?;
    let last = match place % LAST_LETTERS {
        0 => None,
        last => char::from_u32(0x11a7 + last),
    };
    Some((leading, vowel, last))
}

/// The combining class of a [`Class::KeptMark`]; 0 for all others.
pub(crate) fn kept_mark_class(c: char) -> u8 {
    let found = KEPT_MARKS.binary_search_by_key(&(c as u32), |(code, _)| *code);
    found.map_or(0, |place| KEPT_MARKS[place].1)
}

/// Whether Python's `str.split` and `str.strip` take it for whitespace.
pub(crate) fn is_whitespace(c: char) -> bool {
    contains(&WHITESPACE, c)
}

/// What Python's `str.split` makes of a text.
pub(crate) fn split_whitespace(text: &str) -> impl Iterator<Item = &str> {
    text.split(is_whitespace).filter(|word| !word.is_empty())
}

/// Whether Python counts it as a letter with case, for a sigma's sake.
pub(crate) fn is_cased(c: char) -> bool {
    contains(&CASED, c)
}

/// Whether Python looks through it for the letter next to a sigma.
pub(crate) fn is_case_ignorable(c: char) -> bool {
    contains(&CASE_IGNORABLE, c)
}

fn contains(ranges: &[(u32, u32)], c: char) -> bool {
    let code = c as u32;
    let after = ranges.partition_point(|(first, _)| *first <= code);
    after > 0 && code <= ranges[after - 1].1
}

#[cfg(test)]
mod tests {
    use frazil_tensor::testing::shared;
    use serde_json::Value;

    use super::*;

    fn golden(name: &str) -> Option<Value> {
        let path = shared(&format!("fixtures/tokenization/{name}"))?;
        Some(serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap())
    }

    #[test]
    fn every_code_point_has_the_class_that_python_gives_it() {
        let Some(golden) = golden("codepoint_classes.json") else { return };
        let mut compared = 0;
        for range in golden["ranges"].as_array().unwrap() {
            let (first, last) = (range[0].as_u64().unwrap(), range[1].as_u64().unwrap());
            let class = range[2].as_str().unwrap();
            for code in first..=last {
                compared += 1;
                let Some(c) = char::from_u32(code as u32) else {
                    assert_eq!(class, "x");
                    continue;
                };
                let found = match Entry::of(c).class() {
                    Class::Removed => "r",
                    // These two pass the clean-up, and are whitespace to `str.split` after it.
                    Class::Space if matches!(c, '\u{2028}' | '\u{2029}') => "n",
                    Class::Space => "w",
                    Class::Punctuation => "p",
                    Class::Chinese => "c",
                    _ => "n",
                };
                assert_eq!(found, class, "U+{code:04X}");
            }
        }
        assert_eq!(compared, 0x11_0000);
    }

    #[test]
    fn every_code_point_is_lowered_and_stripped_as_python_does() {
        let Some(golden) = golden("codepoint_lower_strip.json") else { return };
        let map = golden["map"].as_object().unwrap();
        for c in '\0'..=char::MAX {
            let entry = Entry::of(c);
            if matches!(entry.class(), Class::Removed | Class::Space) || jamo(c).is_some() {
                continue;
            }
            let expected = map.get(&format!("{:04X}", c as u32)).map(|text| text.as_str().unwrap());
            assert_eq!(entry.plain(), expected, "U+{:04X}", c as u32);
        }
    }

    #[test]
    fn whitespace_is_python_s() {
        let Some(golden) = golden("python_str_split_whitespace.json") else { return };
        let found: Vec<u64> =
            ('\0'..=char::MAX).filter(|c| is_whitespace(*c)).map(|c| c as u64).collect();
        assert_eq!(golden, serde_json::json!(found));
    }

    #[test]
    fn what_a_character_becomes_needs_no_second_clean_up() {
        for text in PLAIN {
            for c in text.chars() {
                let entry = Entry::of(c);
                assert!(!matches!(entry.class(), Class::Removed | Class::Space), "{c:?}");
                assert_eq!(entry.plain(), None, "{c:?} is not plain");
            }
        }
    }

    #[test]
    fn syllables_are_cut_by_formula() {
        assert_eq!(jamo('가'), Some(('\u{1100}', '\u{1161}', None)));
        assert_eq!(jamo('각'), Some(('\u{1100}', '\u{1161}', Some('\u{11a8}'))));
        assert_eq!(jamo('\u{d7a3}'), Some(('\u{1112}', '\u{1175}', Some('\u{11c2}'))));
        assert_eq!(jamo('a'), None);
    }

    #[test]
    fn ranges_include_both_ends() {
        assert!(is_cased('A') && is_cased('Z') && !is_cased('['));
        assert!(is_case_ignorable('\'') && !is_case_ignorable('\0'));
        assert_eq!((kept_mark_class('\u{302e}'), kept_mark_class('a')), (224, 0));
    }
}
