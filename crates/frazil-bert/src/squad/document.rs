//! A context as words: what stands between spaces, tabs, line ends and narrow no-break spaces.
//!
//! Only those are whitespace here, as in the original; any other is part of a word until the
//! tokenizer gets it. Left out: word pieces.

use std::ops::Range;

/// A context and where its words are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    text: String,
    words: Vec<Range<usize>>,
}

fn is_whitespace(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '\u{202f}')
}

impl Document {
    /// Cuts a text into words.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        let mut words = Vec::new();
        let mut start = None;
        for (at, c) in text.char_indices() {
            match (is_whitespace(c), start) {
                (true, Some(from)) => {
                    words.push(from..at);
                    start = None;
                }
                (false, None) => start = Some(at),
                _ => {}
            }
        }
        words.extend(start.map(|from| from..text.len()));
        Self { text, words }
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The number of words.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The words in order.
    pub fn words(&self) -> impl ExactSizeIterator<Item = &str> {
        self.words.iter().map(|range| &self.text[range.clone()])
    }

    /// Words `from..to`, joined by spaces. What is past the end is no word.
    pub fn join(&self, from: usize, to: usize) -> String {
        let to = to.min(self.words.len());
        let mut text = String::new();
        for range in self.words.get(from..to).unwrap_or_default() {
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(&self.text[range.clone()]);
        }
        text
    }

    /// For each character the word that it is in or that ended before it; -1 before the first.
    pub(super) fn words_of_characters(&self) -> Vec<i32> {
        let mut word = -1;
        let mut starts = self.words.iter().map(|range| range.start).peekable();
        let places = self.text.char_indices().map(|(at, _)| {
            if starts.next_if_eq(&at).is_some() {
                word += 1;
            }
            word
        });
        places.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_five_characters_are_whitespace() {
        let document = Document::new(" One\ttwo\u{202f}3\r\nfo\u{a0}ur  é\u{2003}x ");
        let words: Vec<&str> = document.words().collect();
        assert_eq!(words, ["One", "two", "3", "fo\u{a0}ur", "é\u{2003}x"]);
        assert_eq!(document.join(1, 3), "two 3");
        assert_eq!(document.join(3, 99), "fo\u{a0}ur é\u{2003}x");
        assert_eq!(document.join(9, 3), "");
        assert_eq!(document.len(), 5);
    }

    #[test]
    fn characters_know_their_words() {
        let document = Document::new(" é b\t");
        assert_eq!(document.words_of_characters(), [-1, 0, 0, 1, 1]);
        assert_eq!(document.words_of_characters().len(), document.text().chars().count());
        assert!(Document::new(" \n").is_empty());
        assert!(Document::new("").words_of_characters().is_empty());
    }
}
