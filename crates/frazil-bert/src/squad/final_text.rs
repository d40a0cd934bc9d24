//! From the pieces of an answer back to the text they came from: the original's
//! `get_final_text`.
//!
//! The pieces are lowered and without accents, the words of the document have punctuation that
//! is not part of the answer. So the words are tokenized again, the answer is looked for in
//! them, and if there are as many characters before as after, apart from spaces, its ends are
//! carried over by counting. It fails where a character became two or none; then the answer is
//! the whole words, as the original has it.

use serde::{Deserialize, Serialize};

use crate::tokenizer::{BasicTokenizer, Casing, split_whitespace};

/// Why an answer is the whole words, in the original's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum NotFound {
    /// The pieces are not in the words after tokenizing.
    #[error("Unable to find text: '{predicted}' in '{original}'")]
    Text {
        /// The pieces as a text.
        predicted: String,
        /// The words.
        original: String,
    },
    /// Tokenizing added or removed characters.
    #[error("Length not equal after stripping spaces: '{original}' vs '{tokenized}'")]
    Length {
        /// The words without spaces.
        original: String,
        /// The same after tokenizing.
        tokenized: String,
    },
    /// The first piece has no counterpart.
    #[error("Couldn't map start position")]
    Start,
    /// The last piece has no counterpart.
    #[error("Couldn't map end position")]
    End,
}

/// The part of `original` that is `predicted`, or all of it if that is not to be found.
pub fn final_text<'a>(predicted: &str, original: &'a str, casing: Casing) -> &'a str {
    find_text(predicted, original, casing).unwrap_or(original)
}

/// The same, or why it is not to be found.
pub fn find_text<'a>(
    predicted: &str,
    original: &'a str,
    casing: Casing,
) -> Result<&'a str, NotFound> {
    let tokenized = BasicTokenizer::new(casing).words(original).join(" ");
    let Some(start) = tokenized.find(predicted) else {
        let (predicted, original) = (predicted.to_owned(), original.to_owned());
        return Err(NotFound::Text { predicted, original });
    };
    let is_solid = |c: &char| *c != ' ';
    let solid = |text: &str| text.chars().filter(is_solid).count();
    if solid(original) != solid(&tokenized) {
        let (original, tokenized) = (original.replace(' ', ""), tokenized.replace(' ', ""));
        return Err(NotFound::Length { original, tokenized });
    }
    // An end that falls on a space has no counterpart.
    let first = predicted.chars().next().filter(is_solid).ok_or(NotFound::Start)?;
    predicted.chars().next_back().filter(is_solid).ok_or(NotFound::End)?;
    debug_assert!(tokenized[start..].starts_with(first));
    let before = solid(&tokenized[..start]);
    let through = before + solid(predicted);
    let mut places = original.char_indices().filter(|(_, c)| is_solid(c));
    let (from, c) = places.nth(before).ok_or(NotFound::Start)?;
    let to = match through - before {
        1 => from + c.len_utf8(),
        more => places.nth(more - 2).map(|(at, c)| at + c.len_utf8()).ok_or(NotFound::End)?,
    };
    original.get(from..to).ok_or(NotFound::End)
}

/// Pieces as a text: continuations joined, whitespace cleaned.
pub(super) fn join_pieces<'a>(pieces: impl IntoIterator<Item = &'a str>) -> String {
    let joined = pieces.into_iter().collect::<Vec<_>>().join(" ");
    let joined = joined.replace(" ##", "").replace("##", "");
    split_whitespace(&joined).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_s_own_characters() {
        let lower = |predicted, original| final_text(predicted, original, Casing::Lower);
        assert_eq!(lower("steve smith", "Steve Smith's"), "Steve Smith");
        assert_eq!(lower("1895", "(1895-1943)."), "1895");
        assert_eq!(lower("é".trim_end_matches('é'), "Éa"), "Éa");
        assert_eq!(lower("celestin - xavier", "Célestin-Xavier,"), "Célestin-Xavier");
        assert_eq!(lower("a", "x A"), "A");
        assert_eq!(final_text("Smith", "Steve Smith's", Casing::Keep), "Smith");
    }

    #[test]
    fn what_is_not_found_or_not_as_long_is_the_whole() {
        let lower = |predicted, original| final_text(predicted, original, Casing::Lower);
        assert_eq!(lower("[UNK]", "東 京"), "東 京");
        assert_eq!(lower("", "Some words"), "Some words");
        // A control character is gone after tokenizing.
        assert_eq!(lower("b", "a\u{200b} b"), "a\u{200b} b");
        // A no-break space is solid here, but nothing after tokenizing.
        assert_eq!(lower("b", "a\u{a0}b"), "a\u{a0}b");
        let why = |predicted, original| find_text(predicted, original, Casing::Lower).unwrap_err();
        assert_eq!(why("x", "A b").to_string(), "Unable to find text: 'x' in 'A b'");
        assert_eq!(
            why("b", "a\u{ad} b").to_string(),
            "Length not equal after stripping spaces: 'a\u{ad}b' vs 'ab'"
        );
        assert_eq!(why("", "Some words"), NotFound::Start);
    }

    #[test]
    fn pieces_are_joined() {
        assert_eq!(join_pieces(["va", "##uss", "##ena", "##t", "."]), "vaussenat .");
        assert_eq!(join_pieces(["##a", "b"]), "a b");
        assert_eq!(join_pieces([]), "");
    }
}
