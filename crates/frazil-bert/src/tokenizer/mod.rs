//! Text to word pieces, exactly as google-research/bert does it: BasicTokenizer, then WordPiece.
//!
//! - [`Vocabulary`]: the pieces and their ids, from `vocab.txt` or `tokenizer.json`.
//! - [`Tokenizer`]: text to ids, with the place in the text that each piece came from; one text,
//!   or many on several threads.
//! - [`BasicTokenizer`]: the words before they are cut, which answers to questions are cut by.
//!
//! Characters are what Python 3.7 takes them for (Unicode 11), whatever newer tables say: the
//! models have seen no others. Left out: joining pieces to features (`[CLS]`, padding), and
//! training vocabularies.

mod hugging_face;
mod special;
mod unicode;
mod vocabulary;
mod word_piece;
mod words;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) use unicode::split_whitespace;
pub use vocabulary::Vocabulary;

use crate::{Error, Result};
use special::Special;
use word_piece::WordPiece;
use words::{KEY_BYTES, Sink, Word, narrow, scan};

/// What becomes of upper case: the original's `do_lower_case`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Casing {
    /// Text is lowered, and accents and other marks are removed.
    Lower,
    /// Text stays as it is.
    Keep,
}

/// The pieces of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoding {
    /// Their ids.
    pub ids: Vec<u32>,
    /// For each, the bytes of the text that it came from: first, and one past the last. Both ends
    /// are between characters. Pieces of one character (of a Hangul syllable, say) share it; past
    /// 4 GiB all places are the last.
    pub offsets: Vec<(u32, u32)>,
}

impl Encoding {
    /// The number of pieces.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Drops the pieces and keeps the memory.
    pub fn clear(&mut self) {
        self.ids.clear();
        self.offsets.clear();
    }

    #[inline]
    fn push(&mut self, id: u32, offsets: (u32, u32)) {
        self.ids.push(id);
        self.offsets.push(offsets);
    }

    fn truncate(&mut self, length: usize) {
        self.ids.truncate(length);
        self.offsets.truncate(length);
    }
}

/// Text to pieces: the original's FullTokenizer. Cheap to clone; threads can share one.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    vocabulary: Arc<Vocabulary>,
    casing: Casing,
    pieces: Arc<WordPiece>,
    special: Option<Arc<Special>>,
}

impl Tokenizer {
    /// Needs the vocabulary to have `[UNK]`.
    pub fn new(vocabulary: Arc<Vocabulary>, casing: Casing) -> Result<Self> {
        let unknown = vocabulary
            .id(vocabulary.unknown())
            .ok_or(Error::NoSpecialToken(vocabulary::UNKNOWN))?;
        let pieces = Arc::new(WordPiece::new(&vocabulary, unknown)?);
        Ok(Self { vocabulary, casing, pieces, special: None })
    }

    /// Of a vocabulary file or of a folder that has one; lowers if the files say so, and if they
    /// say nothing, if no piece has an upper-case letter.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let vocabulary = Vocabulary::open(path)?;
        let casing = vocabulary.casing().unwrap_or_else(|| vocabulary.guess_casing());
        Self::new(Arc::new(vocabulary), casing).map_err(|error| error.in_file(path))
    }

    /// Keeps these pieces whole where they stand in a text. The original knows no such thing: it
    /// makes `[`, `mask` and `]` of `[MASK]`. A piece that the vocabulary lacks is not looked for.
    #[must_use]
    pub fn keep_whole(mut self, pieces: &[&str]) -> Self {
        let known = pieces.iter().filter_map(|piece| Some((*piece, self.vocabulary.id(piece)?)));
        self.special = Special::new(known).map(Arc::new);
        self
    }

    /// The vocabulary.
    pub fn vocabulary(&self) -> &Arc<Vocabulary> {
        &self.vocabulary
    }

    /// What becomes of upper case.
    pub fn casing(&self) -> Casing {
        self.casing
    }

    /// The id of `[UNK]`.
    pub fn unknown(&self) -> u32 {
        self.pieces.unknown
    }

    /// The pieces of a text, as FullTokenizer.tokenize gives them.
    pub fn tokenize<'a>(&'a self, text: &str) -> Vec<&'a str> {
        let ids = self.encode(text).ids;
        ids.into_iter().filter_map(|id| self.vocabulary.token(id)).collect()
    }

    /// The pieces of a text, with their places in it.
    pub fn encode(&self, text: &str) -> Encoding {
        let mut encoding = Encoding::default();
        self.encode_into(text, &mut encoding);
        encoding
    }

    /// The same, into memory that is there already; what was in it goes.
    pub fn encode_into(&self, text: &str, encoding: &mut Encoding) {
        encoding.clear();
        let Some(special) = &self.special else { return self.encode_part(text, 0, encoding) };
        let mut from = 0;
        while let Some((id, start, end)) = special.next(text, from) {
            self.encode_part(&text[from..start], from, encoding);
            encoding.push(id, (narrow(start), narrow(end)));
            from = end;
        }
        self.encode_part(&text[from..], from, encoding);
    }

    /// Adds the pieces of a text that stands at `at` of a longer one.
    fn encode_part(&self, text: &str, at: usize, encoding: &mut Encoding) {
        let from = encoding.len();
        let (pieces, buffer) = (&*self.pieces, Vec::new());
        scan(
            text,
            self.casing,
            &mut Encoder { text, casing: self.casing, pieces, encoding, buffer },
        );
        if at > 0 {
            let at = narrow(at);
            for (start, end) in &mut encoding.offsets[from..] {
                (*start, *end) = (start.saturating_add(at), end.saturating_add(at));
            }
        }
    }

    /// The pieces of many texts, on so many threads (0: as many as there are CPUs).
    pub fn encode_batch(&self, texts: &[impl AsRef<str> + Sync], threads: usize) -> Vec<Encoding> {
        /// Texts that a thread takes at once.
        const CHUNK: usize = 16;
        let mut encodings = Vec::new();
        encodings.resize_with(texts.len(), Encoding::default);
        let wanted = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let others = wanted.min(texts.len().div_ceil(CHUNK)).saturating_sub(1);
        let chunks = Mutex::new(texts.chunks(CHUNK).zip(encodings.chunks_mut(CHUNK)));
        let work = || {
            loop {
                // Nothing between lock and unlock can fail half-way.
                let next = chunks.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some((texts, encodings)) = next else { break };
                for (text, encoding) in texts.iter().zip(encodings) {
                    self.encode_into(text.as_ref(), encoding);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..others {
                scope.spawn(work);
            }
            work();
        });
        encodings
    }
}

/// Cuts words into pieces.
struct Encoder<'a> {
    text: &'a str,
    casing: Casing,
    pieces: &'a WordPiece,
    encoding: &'a mut Encoding,
    /// A long word, lowered.
    buffer: Vec<u8>,
}

impl Encoder<'_> {
    /// A word of ASCII letters that is no piece itself.
    fn cut_ascii(&mut self, start: usize, end: usize, key: u128) {
        let before = self.encoding.len();
        let length = end - start;
        let whole = (narrow(start), narrow(end));
        let bytes = key.to_le_bytes();
        let word = if length <= KEY_BYTES {
            &bytes[..length]
        } else {
            self.buffer.clear();
            self.buffer.extend_from_slice(&self.text.as_bytes()[start..end]);
            if self.casing == Casing::Lower {
                self.buffer.make_ascii_lowercase();
            }
            &self.buffer
        };
        let fits = length <= self.pieces.longest
            && self.pieces.cut(word, |id, from, to| {
                self.encoding.push(id, (narrow(start + from), narrow(start + to)));
            });
        if !fits {
            self.encoding.truncate(before);
            self.encoding.push(self.pieces.unknown, whole);
        }
    }
}

impl Sink for Encoder<'_> {
    #[inline]
    fn ascii_word(&mut self, start: usize, end: usize, key: u128) {
        if end - start <= KEY_BYTES
            && let Some(id) = self.pieces.whole(key)
        {
            self.encoding.push(id, (narrow(start), narrow(end)));
        } else {
            self.cut_ascii(start, end, key);
        }
    }

    #[inline]
    fn ascii_punctuation(&mut self, byte: u8, at: usize) {
        self.encoding.push(self.pieces.ascii(byte), (narrow(at), narrow(at + 1)));
    }

    fn word(&mut self, word: &Word) {
        let before = self.encoding.len();
        let text = word.text();
        // No more bytes than that are no more characters.
        let fits = (text.len() <= self.pieces.longest
            || text.chars().count() <= self.pieces.longest)
            && self.pieces.cut(text.as_bytes(), |id, from, to| {
                self.encoding.push(id, word.origin(from, to));
            });
        if !fits {
            self.encoding.truncate(before);
            self.encoding.push(self.pieces.unknown, word.origin(0, text.len()));
        }
    }
}

/// Text to words: the original's BasicTokenizer.
#[derive(Clone, Copy, Debug)]
pub struct BasicTokenizer {
    casing: Casing,
}

impl BasicTokenizer {
    /// Needs no vocabulary.
    pub fn new(casing: Casing) -> Self {
        Self { casing }
    }

    /// The words of a text, as BasicTokenizer.tokenize gives them.
    pub fn words(&self, text: &str) -> Vec<String> {
        let mut words = Words { text, casing: self.casing, words: Vec::new() };
        scan(text, self.casing, &mut words);
        words.words
    }
}

struct Words<'a> {
    text: &'a str,
    casing: Casing,
    words: Vec<String>,
}

impl Sink for Words<'_> {
    fn ascii_word(&mut self, start: usize, end: usize, _key: u128) {
        let word = &self.text[start..end];
        self.words.push(match self.casing {
            Casing::Lower => word.to_ascii_lowercase(),
            Casing::Keep => word.to_owned(),
        });
    }

    fn ascii_punctuation(&mut self, byte: u8, _at: usize) {
        self.words.push(char::from(byte).to_string());
    }

    fn word(&mut self, word: &Word) {
        self.words.push(word.text().to_owned());
    }
}
