//! Questions and windows of their documents as the model takes them: the original's
//! `convert_examples_to_features`.
//!
//! A document is cut into pieces once for all its questions; documents and questions are shared
//! out among threads; only the numbering of the windows is done in order. Left out: files, see `record`.

use std::collections::HashMap;
use std::sync::Arc;

use rayon::prelude::*;

use super::example::from_end;
use super::span::{Span, best_spans, improve, spans};
use super::{Document, SquadExample};
use crate::features::{Features, Frame, narrow};
use crate::tokenizer::{Encoding, Tokenizer, Vocabulary};
use crate::{Error, Result};

/// The number of the first window, as in the original.
pub const FIRST_UNIQUE_ID: i64 = 1_000_000_000;
/// `[CLS]` and two times `[SEP]`.
const FRAME: usize = 3;

/// The original's flags, with its defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureOptions {
    /// Pieces of a window with its question, `[CLS]` and `[SEP]` included.
    pub max_seq_length: usize,
    /// From the start of a window to the start of the next.
    pub doc_stride: usize,
    /// Longer questions are cut.
    pub max_query_length: usize,
    /// Whether answers are wanted.
    pub training: bool,
}

impl Default for FeatureOptions {
    fn default() -> Self {
        Self { max_seq_length: 384, doc_stride: 128, max_query_length: 64, training: false }
    }
}

impl FeatureOptions {
    fn check(&self) -> Result<()> {
        let least = self.max_query_length.saturating_add(FRAME + 1);
        if self.max_seq_length < least {
            return Err(Error::FeatureLength {
                name: "max_seq_length",
                found: self.max_seq_length,
                least,
                why: ", so that beside `max_query_length` and 3 there is room for a document",
            });
        }
        if self.doc_stride == 0 {
            let (name, least) = ("doc_stride", 1);
            return Err(Error::FeatureLength { name, found: 0, least, why: "" });
        }
        Ok(())
    }
}

/// A question and a window of its document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SquadFeatures {
    /// Its number among all windows, from [`FIRST_UNIQUE_ID`].
    pub unique_id: i64,
    /// The question's place in the list of examples.
    pub example_index: usize,
    /// The window's place among those of the question.
    pub doc_span_index: usize,
    /// The sequence.
    pub features: Features,
    /// The answer's first token, in training; 0 if this window does not have it.
    pub start_position: Option<i32>,
    /// The answer's last token, in training; 0 if this window does not have it.
    pub end_position: Option<i32>,
    /// Whether the document has no answer.
    pub is_impossible: bool,
    /// For each piece of the whole document its word.
    words: Arc<[u32]>,
    span: Span,
    /// For each piece of the window, whether no other window sees it better.
    max_context: Vec<bool>,
}

impl SquadFeatures {
    /// The pieces, of the vocabulary that they were made with.
    pub fn tokens<'a>(&self, vocabulary: &'a Vocabulary) -> Vec<&'a str> {
        let token = |&id: &i32| vocabulary.token(u32::try_from(id).ok()?);
        self.features.ids().iter().filter_map(token).collect()
    }

    /// The tokens that are of the document.
    pub fn document_tokens(&self) -> std::ops::Range<usize> {
        let start = self.features.first_segment();
        start..start + self.span.length
    }

    fn in_window(&self, token: usize) -> Option<usize> {
        let tokens = self.document_tokens();
        tokens.contains(&token).then(|| token - tokens.start)
    }

    /// The word of the document that a token is of; none if it is not of the document.
    pub fn word(&self, token: usize) -> Option<usize> {
        let piece = self.span.start + self.in_window(token)?;
        self.words.get(piece).map(|&word| word as usize)
    }

    /// Whether a token is of the document and no other window sees it better.
    pub fn is_max_context(&self, token: usize) -> bool {
        self.in_window(token).is_some_and(|piece| self.max_context[piece])
    }
}

/// Makes features of all examples, in their order, on rayon's threads.
pub fn build_features(
    examples: &[SquadExample],
    tokenizer: &Tokenizer,
    options: FeatureOptions,
) -> Result<Vec<SquadFeatures>> {
    options.check()?;
    let frame = Frame::of(tokenizer.vocabulary())?;
    let builder = Builder { tokenizer, frame, options };
    // Each document once, wherever its questions stand: training shuffles them.
    let mut places = HashMap::new();
    let mut documents: Vec<&Document> = Vec::new();
    let mut document_of = Vec::with_capacity(examples.len());
    for example in examples {
        let place = *places.entry(Arc::as_ptr(&example.document)).or_insert_with(|| {
            documents.push(&example.document);
            documents.len() - 1
        });
        document_of.push(place);
    }
    let documents: Vec<Pieces> =
        documents.into_par_iter().map(|document| builder.pieces(document)).collect();
    let built: Vec<Vec<SquadFeatures>> = examples
        .par_iter()
        .zip(document_of)
        .enumerate()
        .map(|(index, (example, document))| builder.windows(index, example, &documents[document]))
        .collect();
    let mut all = Vec::with_capacity(built.iter().map(Vec::len).sum());
    all.extend(built.into_iter().flatten());
    for (features, unique_id) in all.iter_mut().zip(FIRST_UNIQUE_ID..) {
        features.unique_id = unique_id;
    }
    Ok(all)
}

struct Builder<'a> {
    tokenizer: &'a Tokenizer,
    frame: Frame,
    options: FeatureOptions,
}

/// A document in pieces.
struct Pieces {
    ids: Vec<i32>,
    /// For each piece its word.
    words: Arc<[u32]>,
    /// For each word its first piece, and at the end the number of pieces.
    firsts: Vec<usize>,
}

impl Builder<'_> {
    /// The features of one question.
    fn windows(
        &self,
        example_index: usize,
        example: &SquadExample,
        pieces: &Pieces,
    ) -> Vec<SquadFeatures> {
        let mut encoding = Encoding::default();
        self.tokenizer.encode_into(&example.question_text, &mut encoding);
        let query = encoding.ids.iter().take(self.options.max_query_length);
        let query: Vec<i32> = query.copied().map(narrow).collect();
        let padded = self.options.max_seq_length;
        let longest = padded - query.len() - FRAME;
        let spans = spans(pieces.ids.len(), longest, self.options.doc_stride);
        let best = best_spans(pieces.ids.len(), &spans);
        let answer = self.answer(example, pieces, &mut encoding);
        let window = |(doc_span_index, &span): (usize, &Span)| {
            let range = span.start..span.start + span.length;
            // In the window, or the first token, which is no answer.
            let inside = answer
                .filter(|(start, end)| *start >= span.start as i64 && *end < range.end as i64);
            let document = (query.len() + 2) as i64 - span.start as i64;
            let token = |piece: i64| (piece + document) as i32;
            let (start, end) = inside.map_or((0, 0), |(start, end)| (token(start), token(end)));
            let training = self.options.training;
            SquadFeatures {
                unique_id: FIRST_UNIQUE_ID,
                example_index,
                doc_span_index,
                features: Features::new(
                    self.frame,
                    &query,
                    Some(&pieces.ids[range.clone()]),
                    padded,
                ),
                start_position: training.then_some(start),
                end_position: training.then_some(end),
                is_impossible: example.is_impossible,
                words: Arc::clone(&pieces.words),
                span,
                max_context: best[range].iter().map(|&best| best == doc_span_index).collect(),
            }
        };
        spans.iter().enumerate().map(window).collect()
    }

    fn pieces(&self, document: &Document) -> Pieces {
        let mut encoding = Encoding::default();
        let mut ids = Vec::with_capacity(document.len() * 2);
        let mut words = Vec::with_capacity(document.len() * 2);
        let mut firsts = Vec::with_capacity(document.len() + 1);
        for (word, index) in document.words().zip(0..) {
            firsts.push(ids.len());
            self.tokenizer.encode_into(word, &mut encoding);
            ids.extend(encoding.ids.iter().copied().map(narrow));
            words.resize(ids.len(), index);
        }
        firsts.push(ids.len());
        Pieces { ids, words: words.into(), firsts }
    }

    /// First and last piece of the answer, if there is one and it is wanted.
    fn answer(
        &self,
        example: &SquadExample,
        pieces: &Pieces,
        encoding: &mut Encoding,
    ) -> Option<(i64, i64)> {
        if !self.options.training || example.is_impossible {
            return None;
        }
        let words = example.document.len();
        let first = from_end(example.start_position?, words)?;
        let start = *pieces.firsts.get(first)? as i64;
        // The piece before the next word's first.
        let next = usize::try_from(example.end_position? + 1).ok()?.min(words);
        let end = *pieces.firsts.get(next)? as i64 - 1;
        self.tokenizer.encode_into(example.orig_answer_text.as_deref()?, encoding);
        let answer: Vec<i32> = encoding.ids.iter().copied().map(narrow).collect();
        Some(improve(&pieces.ids, start, end, &answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::Casing;

    fn tokenizer() -> Tokenizer {
        let pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "what", "1", "##9", "(", ")", "in"];
        let vocabulary = Vocabulary::from_tokens(pieces.map(str::to_owned)).unwrap();
        Tokenizer::new(Arc::new(vocabulary), Casing::Lower).unwrap()
    }

    fn example(text: &str, answer: Option<(&str, i32, i32)>) -> SquadExample {
        SquadExample {
            qas_id: "q".into(),
            question_text: "what what what".into(),
            document: Arc::new(Document::new(text)),
            orig_answer_text: answer.map(|(text, ..)| text.to_owned()),
            start_position: answer.map(|(_, start, _)| start),
            end_position: answer.map(|(.., end)| end),
            is_impossible: false,
        }
    }

    const OPTIONS: FeatureOptions =
        FeatureOptions { max_seq_length: 9, doc_stride: 2, max_query_length: 2, training: true };

    #[test]
    fn windows_with_their_answers() {
        // In pieces: ( 1 ##9 ) in 1
        let examples = [example("(19) in 1", Some(("19", 0, 0)))];
        let features = build_features(&examples, &tokenizer(), OPTIONS).unwrap();
        assert_eq!(features.len(), 2);
        let [first, second] = &features[..] else { unreachable!() };
        assert_eq!(first.features.ids(), [2, 4, 4, 3, 7, 5, 6, 8, 3]);
        assert_eq!(second.features.ids(), [2, 4, 4, 3, 6, 8, 9, 5, 3]);
        assert_eq!((first.start_position, first.end_position), (Some(5), Some(6)));
        assert_eq!((second.start_position, second.end_position), (Some(0), Some(0)));
        assert_eq!((first.unique_id, second.unique_id), (1_000_000_000, 1_000_000_001));
        assert_eq!(first.document_tokens(), 4..8);
        let words: Vec<_> = (3..9).map(|token| second.word(token)).collect();
        assert_eq!(words, [None, Some(0), Some(0), Some(1), Some(2), None]);
        // `##9` and `)` have one piece on the poorer side at best; the first window sees `##9`.
        let context: Vec<bool> = (3..9).map(|token| first.is_max_context(token)).collect();
        assert_eq!(context, [false, true, true, true, false, false]);
    }

    #[test]
    fn a_document_without_words_has_no_window() {
        let examples = [example(" ", None), example("1", None)];
        let options = FeatureOptions { training: false, ..OPTIONS };
        let features = build_features(&examples, &tokenizer(), options).unwrap();
        assert_eq!((features.len(), features[0].example_index), (1, 1));
        assert_eq!(features[0].start_position, None);
    }

    #[test]
    fn lengths_that_leave_no_room_are_refused() {
        let build = |options| build_features(&[], &tokenizer(), options).unwrap_err().to_string();
        let error = build(FeatureOptions { max_seq_length: 5, ..OPTIONS });
        assert!(error.starts_with("`max_seq_length` is 5, but must be at least 6"), "{error}");
        assert!(build(FeatureOptions { doc_stride: 0, ..OPTIONS }).contains("`doc_stride`"));
    }
}
