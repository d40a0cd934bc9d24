//! The pieces and their ids: from `vocab.txt` as the original reads it, from `tokenizer.json`, or
//! from a folder that has one of them.
//!
//! Left out: finding pieces in words, see `word_piece`.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use super::{Casing, hugging_face, unicode};
use crate::{Error, Result};

/// A longer list is no vocabulary: the largest BERT's has half a million pieces.
pub(super) const MAX_PIECES: usize = 1 << 21;
/// Longer words are not cut into pieces: the original's number.
const LONGEST_WORD: usize = 200;
/// What a piece that does not begin a word begins with.
pub(super) const CONTINUATION: &str = "##";
/// What a word that cannot be cut becomes.
pub(super) const UNKNOWN: &str = "[UNK]";

const VOCAB_TXT: &str = "vocab.txt";
const TOKENIZER_JSON: &str = "tokenizer.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

/// The pieces of a model in the order of their ids.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    /// All pieces, one after the other.
    text: String,
    /// Where each is; [`HOLE`] for an id that no piece has.
    spans: Vec<(u32, u32)>,
    index: Index,
    casing: Option<Casing>,
    unknown: String,
    continuation: String,
    longest_word: usize,
}

const HOLE: (u32, u32) = (u32::MAX, u32::MAX);

impl Vocabulary {
    /// Reads `vocab.txt`, `tokenizer.json`, or what a folder has of them.
    ///
    /// In a folder the pieces are those of `vocab.txt` if it is there. Whether text is lowered is
    /// taken from `tokenizer_config.json` or else from `tokenizer.json`, also where they lie
    /// beside a `vocab.txt` that was named itself.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let (file, folder) = if path.is_dir() {
            let found = [VOCAB_TXT, TOKENIZER_JSON].map(|name| path.join(name));
            let file = found.into_iter().find(|file| file.is_file());
            let file = file.ok_or_else(|| Error::NoVocabulary { folder: path.to_path_buf() })?;
            (file, Some(path))
        } else {
            (path.to_path_buf(), path.parent())
        };
        let bytes = frazil_tensor::file::map(&file)?;
        let is_json = file.extension().is_some_and(|e| e.eq_ignore_ascii_case("json"));
        let read = if is_json { Self::from_json(&bytes) } else { Self::from_lines(&bytes) };
        let mut vocabulary = read.map_err(|error| error.in_file(&file))?;
        if let Some(told) = folder.map(casing_told_in).transpose()?.flatten() {
            vocabulary.casing = Some(told);
        }
        Ok(vocabulary)
    }

    /// From the contents of `vocab.txt`: one piece per line, as the original reads it. Space
    /// around a piece and every carriage return is dropped, an empty line is a piece like
    /// others, and of a piece that comes twice the last id counts.
    pub fn from_lines(bytes: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let line = bytes[..error.valid_up_to()].iter().filter(|b| **b == b'\n').count() + 1;
            Error::Vocabulary { line, reason: "is not UTF-8" }
        })?;
        let lines = text.split_inclusive('\n');
        Self::build(lines.map(|line| {
            let line = line.trim_matches(unicode::is_whitespace);
            Some(if line.contains('\r') { line.replace('\r', "").into() } else { line.into() })
        }))
    }

    /// From the contents of Hugging Face's `tokenizer.json`.
    pub fn from_json(bytes: &[u8]) -> Result<Self> {
        let told = hugging_face::Tokenizer::parse(bytes)?;
        let mut vocabulary =
            Self::build(told.pieces.into_iter().map(|p| p.map(|p| Cow::Owned(p.into()))))?;
        if vocabulary.id(&told.unknown).is_none() {
            return Err(Error::Value {
                key: "model.unk_token",
                expected: "a piece of the vocabulary",
                found: format!("`{}`", told.unknown),
            });
        }
        vocabulary.casing = Some(told.casing);
        vocabulary.unknown = told.unknown;
        vocabulary.continuation = told.continuation;
        vocabulary.longest_word = told.longest_word;
        Ok(vocabulary)
    }

    /// From pieces in the order of their ids.
    pub fn from_tokens(tokens: impl IntoIterator<Item = String>) -> Result<Self> {
        Self::build(tokens.into_iter().map(|token| Some(token.into())))
    }

    fn build<'a>(pieces: impl Iterator<Item = Option<Cow<'a, str>>>) -> Result<Self> {
        let mut text = String::new();
        let mut spans = Vec::new();
        for piece in pieces {
            if spans.len() == MAX_PIECES {
                return Err(Error::VocabularyTooLarge { what: "pieces", limit: MAX_PIECES });
            }
            let Some(piece) = piece else {
                spans.push(HOLE);
                continue;
            };
            let start = text.len();
            text.push_str(&piece);
            let (Ok(start), Ok(end)) = (u32::try_from(start), u32::try_from(text.len())) else {
                return Err(Error::VocabularyTooLarge { what: "bytes", limit: u32::MAX as usize });
            };
            spans.push((start, end));
        }
        if text.is_empty() {
            return Err(Error::EmptyVocabulary);
        }
        let mut vocabulary = Self {
            index: Index::with_room(spans.len()),
            text,
            spans,
            casing: None,
            unknown: UNKNOWN.into(),
            continuation: CONTINUATION.into(),
            longest_word: LONGEST_WORD,
        };
        let Self { text, spans, index, .. } = &mut vocabulary;
        for id in 0..spans.len() as u32 {
            index.insert(id, |id| piece(text, spans, id));
        }
        Ok(vocabulary)
    }

    /// The id of a piece; the last one if it comes twice.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.index.find(token, |id| self.token(id))
    }

    /// The piece of an id.
    pub fn token(&self, id: u32) -> Option<&str> {
        piece(&self.text, &self.spans, id)
    }

    /// The number of ids.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Never: an empty file is no vocabulary.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Whether text is lowered, where the files said so.
    pub fn casing(&self) -> Option<Casing> {
        self.casing
    }

    /// Whether text is lowered, by the pieces: not if a word of letters and digits has one of
    /// ASCII's upper case. Others, like `[CLS]` and Google's Chinese `<S>`, stand for no text.
    pub fn guess_casing(&self) -> Casing {
        let upper = self.pieces().any(|(_, piece)| {
            let word = piece.strip_prefix(&*self.continuation).unwrap_or(piece);
            word.bytes().any(|byte| byte.is_ascii_uppercase())
                && word.chars().all(char::is_alphanumeric)
        });
        if upper { Casing::Keep } else { Casing::Lower }
    }

    /// What a word that cannot be cut becomes: `[UNK]`, unless `tokenizer.json` says otherwise.
    pub fn unknown(&self) -> &str {
        &self.unknown
    }

    /// What a piece that does not begin a word begins with: `##`, unless `tokenizer.json` says
    /// otherwise.
    pub fn continuation(&self) -> &str {
        &self.continuation
    }

    /// Words of more characters are not cut, but unknown: 200, unless `tokenizer.json` says
    /// otherwise (Hugging Face's own number is 100).
    pub fn longest_word(&self) -> usize {
        self.longest_word
    }

    /// Ids and pieces in the order of ids.
    pub fn pieces(&self) -> impl Iterator<Item = (u32, &str)> {
        (0..self.spans.len() as u32).filter_map(|id| Some((id, self.token(id)?)))
    }
}

fn piece<'a>(text: &'a str, spans: &[(u32, u32)], id: u32) -> Option<&'a str> {
    let &(start, end) = spans.get(id as usize)?;
    text.get(start as usize..end as usize)
}

/// What the files of Hugging Face in a folder say; `tokenizer_config.json` goes first, as in
/// transformers.
fn casing_told_in(folder: &Path) -> Result<Option<Casing>> {
    let read = |name: &str| {
        let file = folder.join(name);
        file.is_file().then(|| (frazil_tensor::file::map(&file), file))
    };
    if let Some((bytes, file)) = read(TOKENIZER_CONFIG) {
        let told = hugging_face::casing_of_config(&bytes?).map_err(|e| e.in_file(&file))?;
        if told.is_some() {
            return Ok(told);
        }
    }
    if let Some((bytes, file)) = read(TOKENIZER_JSON) {
        return hugging_face::casing_of_tokenizer(&bytes?).map_err(|e| e.in_file(&file));
    }
    Ok(None)
}

/// Ids by piece: a table of ids only, since the pieces are in the vocabulary.
#[derive(Clone, Debug)]
struct Index {
    /// A power of two of ids; [`Index::FREE`] where there is none.
    slots: Vec<u32>,
    /// Seeded anew each time, so that no file can make all pieces fall into one place.
    hasher: RandomState,
}

impl Index {
    const FREE: u32 = u32::MAX;

    fn with_room(pieces: usize) -> Self {
        let slots = vec![Self::FREE; (pieces * 2).next_power_of_two()];
        Self { slots, hasher: RandomState::new() }
    }

    /// The slot that has the piece, or the free one where it would be.
    fn slot<'a>(&self, token: &str, piece: impl Fn(u32) -> Option<&'a str>) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = self.hasher.hash_one(token) as usize & mask;
        while self.slots[slot] != Self::FREE && piece(self.slots[slot]) != Some(token) {
            slot = (slot + 1) & mask; // at least half of the slots are free
        }
        slot
    }

    fn insert<'a>(&mut self, id: u32, piece: impl Fn(u32) -> Option<&'a str>) {
        if let Some(token) = piece(id) {
            let slot = self.slot(token, piece);
            self.slots[slot] = id;
        }
    }

    fn find<'a>(&self, token: &str, piece: impl Fn(u32) -> Option<&'a str>) -> Option<u32> {
        Some(self.slots[self.slot(token, piece)]).filter(|id| *id != Self::FREE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_the_original_reads_them() {
        let text = "[UNK]\r\n a\u{3000}\n\nb\rc\n\u{85}\nlast";
        let vocabulary = Vocabulary::from_lines(text.as_bytes()).unwrap();
        let pieces: Vec<&str> = vocabulary.pieces().map(|(_, piece)| piece).collect();
        assert_eq!(pieces, ["[UNK]", "a", "", "bc", "", "last"]);
        assert_eq!(vocabulary.id(""), Some(4));
        assert_eq!(vocabulary.len(), 6);
    }

    #[test]
    fn of_two_the_last_counts() {
        let vocabulary = Vocabulary::from_lines(b"a\nb\na\n").unwrap();
        assert_eq!((vocabulary.id("a"), vocabulary.token(0)), (Some(2), Some("a")));
        assert_eq!((vocabulary.id("c"), vocabulary.token(3)), (None, None));
    }

    #[test]
    fn what_is_no_vocabulary_is_refused() {
        let error = Vocabulary::from_lines(b"[UNK]\na\n\xff\n").unwrap_err();
        assert_eq!(error.to_string(), "line 3 of the vocabulary is not UTF-8");
        for empty in [&b""[..], b"\n", b" \n\n"] {
            let error = Vocabulary::from_lines(empty).unwrap_err();
            assert!(matches!(error, Error::EmptyVocabulary), "{error}");
        }
        let lines = "\n".repeat(MAX_PIECES + 1);
        let error = Vocabulary::from_lines(lines.as_bytes()).unwrap_err();
        assert!(matches!(error, Error::VocabularyTooLarge { .. }), "{error}");
    }

    #[test]
    fn case_is_guessed_from_the_pieces() {
        let guess = |text: &str| Vocabulary::from_lines(text.as_bytes()).unwrap().guess_casing();
        assert_eq!(guess("[UNK]\n<S>\nthe\n"), Casing::Lower);
        assert_eq!(guess("[UNK]\n##He\n"), Casing::Keep);
    }

    #[test]
    fn a_folder_says_what_it_lacks() {
        let folder = std::env::temp_dir();
        let error = Vocabulary::open(folder.join("no such file")).unwrap_err();
        assert!(matches!(error, Error::Tensor(_)), "{error}");
    }
}
