//! What Hugging Face's files say of a WordPiece tokenizer: `tokenizer.json`, and the two lines of
//! `tokenizer_config.json` that matter.
//!
//! A file that asks for what BERT's tokenizer does not do, such as lowering without removing
//! accents, is refused: its model would get other pieces than it was trained with. Left out:
//! templates, truncation and padding, which are the business of features.

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use super::Casing;
use super::vocabulary::{CONTINUATION, MAX_PIECES, UNKNOWN};
use crate::{Error, Result};

/// What `tokenizer.json` says.
#[derive(Debug)]
pub(super) struct Tokenizer {
    /// By id; none where an id has no piece.
    pub pieces: Vec<Option<Box<str>>>,
    pub casing: Casing,
    pub unknown: String,
    pub continuation: String,
    pub longest_word: usize,
}

/// What decides whether the rest can be used at all.
#[derive(Deserialize)]
struct Kind {
    model: ModelKind,
    normalizer: Option<Normalizer>,
}

#[derive(Deserialize)]
struct ModelKind {
    #[serde(rename = "type")]
    name: Option<String>,
}

#[derive(Deserialize)]
struct Normalizer {
    #[serde(rename = "type")]
    name: Option<String>,
    clean_text: Option<bool>,
    handle_chinese_chars: Option<bool>,
    lowercase: Option<bool>,
    strip_accents: Option<bool>,
}

/// The part of `tokenizer_config.json` that decides about words.
#[derive(Deserialize)]
struct Config {
    do_lower_case: Option<bool>,
    do_basic_tokenize: Option<bool>,
    tokenize_chinese_chars: Option<bool>,
    strip_accents: Option<bool>,
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<Added>,
    model: Model,
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    content: Box<str>,
}

#[derive(Deserialize)]
struct Model {
    #[serde(default = "unknown")]
    unk_token: String,
    #[serde(default = "continuation")]
    continuing_subword_prefix: String,
    #[serde(default = "longest_word")]
    max_input_chars_per_word: usize,
    vocab: Pieces,
}

fn unknown() -> String {
    UNKNOWN.into()
}

fn continuation() -> String {
    CONTINUATION.into()
}

/// Hugging Face's default, which is not the original's.
fn longest_word() -> usize {
    100
}

/// `{"piece": id, …}`, by id.
#[derive(Default)]
struct Pieces {
    by_id: Vec<Option<Box<str>>>,
    entries: usize,
}

impl Pieces {
    /// False for an id that no list of pieces can have.
    fn add(&mut self, piece: Box<str>, id: u32) -> bool {
        let id = id as usize;
        if id >= MAX_PIECES {
            return false;
        }
        if id >= self.by_id.len() {
            self.by_id.resize(id + 1, None);
        }
        self.by_id[id] = Some(piece);
        self.entries += 1;
        true
    }
}

impl<'de> Deserialize<'de> for Pieces {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Pieces;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of pieces and their ids")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Pieces, A::Error> {
                let mut pieces = Pieces::default();
                while let Some((piece, id)) = map.next_entry()? {
                    if !pieces.add(piece, id) {
                        let what = format!("the id {id} is none of {MAX_PIECES}");
                        return Err(serde::de::Error::custom(what));
                    }
                }
                Ok(pieces)
            }
        }
        deserializer.deserialize_map(Each)
    }
}

impl Tokenizer {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self> {
        let casing = casing_of_tokenizer(bytes)?.ok_or(Error::MissingKey("normalizer"))?;
        let File { added_tokens, model } = serde_json::from_slice(bytes)?;
        let mut pieces = model.vocab;
        for Added { id, content } in added_tokens {
            if !pieces.add(content, id) {
                return Err(Error::Value {
                    key: "added_tokens",
                    expected: "a list of pieces with small ids",
                    found: format!("the id {id}"),
                });
            }
        }
        // A list with gaps is allowed, one that is mostly gaps is not a list.
        if pieces.by_id.len() > pieces.entries * 2 + 1024 {
            return Err(Error::Value {
                key: "model.vocab",
                expected: "a list of ids from 0 on with few gaps",
                found: format!("{} ids up to {}", pieces.entries, pieces.by_id.len() - 1),
            });
        }
        Ok(Self {
            pieces: pieces.by_id,
            casing,
            unknown: model.unk_token,
            continuation: model.continuing_subword_prefix,
            longest_word: model.max_input_chars_per_word,
        })
    }
}

/// Whether the normalizer of a `tokenizer.json` lowers; none where there is no normalizer.
pub(super) fn casing_of_tokenizer(bytes: &[u8]) -> Result<Option<Casing>> {
    let Kind { model, normalizer } = serde_json::from_slice(bytes)?;
    named(model.name, "model.type", "WordPiece", "`WordPiece`")?;
    let Some(normalizer) = normalizer else { return Ok(None) };
    named(normalizer.name, "normalizer.type", "BertNormalizer", "`BertNormalizer`")?;
    always(normalizer.clean_text, "normalizer.clean_text")?;
    always(normalizer.handle_chinese_chars, "normalizer.handle_chinese_chars")?;
    let lower = normalizer.lowercase.unwrap_or(true);
    accents(normalizer.strip_accents, "normalizer.strip_accents", lower)?;
    Ok(Some(casing(lower)))
}

/// What a `tokenizer_config.json` says, if anything.
pub(super) fn casing_of_config(bytes: &[u8]) -> Result<Option<Casing>> {
    let config: Config = serde_json::from_slice(bytes)?;
    let Some(lower) = config.do_lower_case else { return Ok(None) };
    always(config.tokenize_chinese_chars, "tokenize_chinese_chars")?;
    always(config.do_basic_tokenize, "do_basic_tokenize")?;
    accents(config.strip_accents, "strip_accents", lower)?;
    Ok(Some(casing(lower)))
}

fn named(
    found: Option<String>,
    key: &'static str,
    name: &str,
    expected: &'static str,
) -> Result<()> {
    match found {
        Some(found) if found == name => Ok(()),
        Some(found) => Err(Error::Value { key, expected, found: format!("`{found}`") }),
        None => Err(Error::MissingKey(key)),
    }
}

fn casing(lower: bool) -> Casing {
    if lower { Casing::Lower } else { Casing::Keep }
}

/// The original has no switch for it.
fn always(flag: Option<bool>, key: &'static str) -> Result<()> {
    if flag == Some(false) {
        let expected = "true, as BERT's tokenizer has it";
        return Err(Error::Value { key, expected, found: "false".into() });
    }
    Ok(())
}

/// The original removes accents if it lowers, and only then.
fn accents(flag: Option<bool>, key: &'static str, lower: bool) -> Result<()> {
    match flag {
        Some(strip) if strip != lower => {
            let expected = "the same as lower-casing, as BERT's tokenizer has it";
            Err(Error::Value { key, expected, found: strip.to_string() })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn file() -> Value {
        json!({
            "added_tokens": [{"id": 0, "content": "[UNK]", "special": true}],
            "normalizer": {
                "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                "strip_accents": null, "lowercase": false,
            },
            "model": {
                "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100, "vocab": {"[UNK]": 0, "b": 3, "a": 1},
            },
        })
    }

    fn parse(value: &Value) -> Result<Tokenizer> {
        Tokenizer::parse(value.to_string().as_bytes())
    }

    #[test]
    fn pieces_come_in_the_order_of_ids() {
        let read = parse(&file()).unwrap();
        let pieces: Vec<Option<&str>> = read.pieces.iter().map(Option::as_deref).collect();
        assert_eq!(pieces, [Some("[UNK]"), Some("a"), None, Some("b")]);
        assert_eq!((read.casing, read.longest_word), (Casing::Keep, 100));
    }

    #[test]
    fn what_bert_s_tokenizer_cannot_do_is_refused() {
        for (place, value, key) in [
            ("/model/type", json!("BPE"), "`model.type`"),
            ("/normalizer/type", json!("Lowercase"), "`normalizer.type`"),
            ("/normalizer/strip_accents", json!(true), "`normalizer.strip_accents`"),
            ("/normalizer/clean_text", json!(false), "`normalizer.clean_text`"),
            ("/normalizer/lowercase", json!(1), "expected a boolean"),
            ("/model/vocab/a", json!(4_000_000_000_u32), "the id 4000000000"),
            ("/model/vocab/a", json!(2_000_000), "`model.vocab`"),
            ("/added_tokens/0/id", json!(3_000_000), "`added_tokens`"),
            ("/normalizer", json!(null), "`normalizer`"),
        ] {
            let mut file = file();
            *file.pointer_mut(place).unwrap() = value;
            let error = parse(&file).unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
        assert!(matches!(Tokenizer::parse(b"[]").unwrap_err(), Error::Json { line: 1, .. }));
    }

    #[test]
    fn a_configuration_may_say_nothing() {
        assert_eq!(casing_of_config(b"{}").unwrap(), None);
        let told = casing_of_config(br#"{"do_lower_case": true, "strip_accents": null}"#);
        assert_eq!(told.unwrap(), Some(Casing::Lower));
        assert!(casing_of_config(br#"{"do_lower_case": false, "strip_accents": true}"#).is_err());
    }
}
