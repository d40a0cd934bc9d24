//! `tokenizer.json` and `tokenizer_config.json` of a `vocab.txt`, for transformers.
//!
//! What they say is what google-research/bert's tokenizer does: clean the text, split Chinese
//! characters and punctuation, lower the case where the vocabulary has no other, cut words of
//! more than 200 characters to `[UNK]`. Left out: tokenizing itself, see [`crate::tokenizer`].

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::tokenizer::{Casing, Vocabulary};
use crate::{Error, Result};

/// Pieces that stand for no text. The first five are needed.
const SPECIAL: [&str; 5] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
/// Longer words are not looked up at all.
const LONGEST_WORD: usize = 200;

/// The two files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenizerFiles {
    /// `tokenizer.json`
    pub tokenizer: String,
    /// `tokenizer_config.json`
    pub config: String,
    /// Whether text is lowered: the vocabulary has no upper-case piece.
    pub lower_case: bool,
}

impl TokenizerFiles {
    /// From the bytes of `vocab.txt` and the length of the longest sequence.
    pub fn new(vocab: &[u8], positions: usize) -> Result<Self> {
        let pieces = pieces(vocab)?;
        let ids: HashMap<&str, usize> =
            pieces.iter().enumerate().map(|(id, piece)| (*piece, id)).collect();
        for needed in SPECIAL {
            if !ids.contains_key(needed) {
                return Err(Error::NoSpecialToken(needed));
            }
        }
        let lower_case = Vocabulary::from_lines(vocab)?.guess_casing() == Casing::Lower;
        Ok(Self {
            tokenizer: pretty(&tokenizer(&pieces, &ids, lower_case)),
            config: pretty(&config(&ids, lower_case, positions)),
            lower_case,
        })
    }
}

/// One piece per line; the line's end, and space around it, does not belong to it. A piece that
/// comes twice keeps the last number, as in the original's dictionary.
fn pieces(vocab: &[u8]) -> Result<Vec<&str>> {
    let text = std::str::from_utf8(vocab).map_err(|error| {
        let line = vocab[..error.valid_up_to()].iter().filter(|b| **b == b'\n').count() + 1;
        Error::Vocabulary { line, reason: "is not UTF-8" }
    })?;
    Ok(text.lines().map(str::trim).collect())
}

fn tokenizer(pieces: &[&str], ids: &HashMap<&str, usize>, lower_case: bool) -> Value {
    let added: Vec<Value> = in_order(ids).into_iter().map(|(id, piece)| added(id, piece)).collect();
    let vocab: Map<String, Value> =
        pieces.iter().enumerate().map(|(id, piece)| ((*piece).to_owned(), json!(id))).collect();
    let special =
        |piece: &str, segment: u8| json!({"SpecialToken": {"id": piece, "type_id": segment}});
    let sequence = |name: &str, segment: u8| json!({"Sequence": {"id": name, "type_id": segment}});
    let known = |piece: &str| json!({"id": piece, "ids": [ids[piece]], "tokens": [piece]});
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": true,
            "handle_chinese_chars": true,
            "strip_accents": null,
            "lowercase": lower_case,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [special("[CLS]", 0), sequence("A", 0), special("[SEP]", 0)],
            "pair": [
                special("[CLS]", 0), sequence("A", 0), special("[SEP]", 0),
                sequence("B", 1), special("[SEP]", 1),
            ],
            "special_tokens": {"[CLS]": known("[CLS]"), "[SEP]": known("[SEP]")},
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": LONGEST_WORD,
            "vocab": vocab,
        },
    })
}

/// The special pieces by number.
fn in_order(ids: &HashMap<&str, usize>) -> Vec<(usize, &'static str)> {
    let mut order: Vec<(usize, &str)> =
        SPECIAL.into_iter().map(|piece| (ids[piece], piece)).collect();
    order.sort();
    order
}

fn added(id: usize, piece: &str) -> Value {
    json!({
        "id": id,
        "content": piece,
        "single_word": false,
        "lstrip": false,
        "rstrip": false,
        "normalized": false,
        "special": true,
    })
}

fn config(ids: &HashMap<&str, usize>, lower_case: bool, positions: usize) -> Value {
    let decoder: Map<String, Value> = in_order(ids)
        .into_iter()
        .map(|(id, piece)| {
            let mut entry = added(id, piece);
            if let Some(entry) = entry.as_object_mut() {
                entry.remove("id");
            }
            (id.to_string(), entry)
        })
        .collect();
    json!({
        "added_tokens_decoder": decoder,
        "clean_up_tokenization_spaces": true,
        "cls_token": "[CLS]",
        "do_basic_tokenize": true,
        "do_lower_case": lower_case,
        "mask_token": "[MASK]",
        "model_max_length": positions,
        "pad_token": "[PAD]",
        "sep_token": "[SEP]",
        "strip_accents": null,
        "tokenize_chinese_chars": true,
        "tokenizer_class": "BertTokenizer",
        "unk_token": "[UNK]",
    })
}

fn pretty(value: &Value) -> String {
    let mut text = format!("{value:#}");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOCAB: &str = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n##s\n";

    #[test]
    fn both_files_say_the_same() {
        let files = TokenizerFiles::new(VOCAB.as_bytes(), 512).unwrap();
        let tokenizer: Value = serde_json::from_str(&files.tokenizer).unwrap();
        let config: Value = serde_json::from_str(&files.config).unwrap();
        assert!(files.lower_case);
        assert_eq!(tokenizer["normalizer"]["lowercase"], config["do_lower_case"]);
        assert_eq!(tokenizer["model"]["vocab"]["##s"], 6);
        assert_eq!(tokenizer["post_processor"]["special_tokens"]["[SEP]"]["ids"][0], 3);
        assert_eq!(config["added_tokens_decoder"]["4"]["content"], "[MASK]");
        assert_eq!(config["model_max_length"], 512);
    }

    #[test]
    fn case_follows_the_vocabulary() {
        let cased = format!("{VOCAB}The\n");
        assert!(!TokenizerFiles::new(cased.as_bytes(), 512).unwrap().lower_case);
    }

    #[test]
    fn what_is_no_vocabulary_is_refused() {
        let error = TokenizerFiles::new(b"[PAD]\n\xff\n", 512).unwrap_err();
        assert!(matches!(error, Error::Vocabulary { line: 2, .. }), "{error}");
        let error = TokenizerFiles::new(b"[PAD]\n[UNK]\n", 512).unwrap_err();
        assert_eq!(error.to_string(), "the vocabulary has no `[CLS]`");
    }
}
