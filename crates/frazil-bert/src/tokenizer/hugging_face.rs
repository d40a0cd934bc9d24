//! What Hugging Face's files say of a WordPiece tokenizer: `tokenizer.json`, and the two lines of
//! `tokenizer_config.json` that matter.
//!
//! A file that asks for what BERT's tokenizer does not do, such as lowering without removing
//! accents, is refused: its model would get other pieces than it was trained with. Left out:
//! templates, truncation and padding, which are the business of features.

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::Casing;
use super::vocabulary::UNKNOWN;
use crate::{Error, Result};

/// What `tokenizer.json` says.
#[derive(Debug)]
pub(super) struct Tokenizer {
    /// By id; none where an id has no piece.
    pub pieces: Vec<Option<String>>,
    pub casing: Casing,
    pub unknown: String,
    pub continuation: String,
    pub longest_word: usize,
}

#[derive(Deserialize)]
struct Kind {
    model: ModelKind,
    normalizer: Option<Value>,
}

#[derive(Deserialize)]
struct ModelKind {
    #[serde(rename = "type")]
    name: Option<String>,
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
    content: String,
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
    "##".into()
}

/// Hugging Face's default, which is not the original's.
fn longest_word() -> usize {
    100
}

/// `{"piece": id, …}`; a piece that comes twice is there twice.
struct Pieces(Vec<(String, u32)>);

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
                let mut pieces = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    pieces.push(entry);
                }
                Ok(Pieces(pieces))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

impl Tokenizer {
    pub(super) fn parse(bytes: &[u8], most: usize) -> Result<Self> {
        let casing = casing_of_tokenizer(bytes)?.ok_or(Error::MissingKey("normalizer"))?;
        let File { added_tokens, model } = serde_json::from_slice(bytes).map_err(json_error)?;
        let added = added_tokens.into_iter().map(|added| (added.content, added.id));
        let listed: Vec<(String, u32)> = model.vocab.0.into_iter().chain(added).collect();
        // A list with gaps is allowed, one that is mostly gaps is not a list.
        let limit = (listed.len() * 2 + 1024).min(most);
        let mut pieces: Vec<Option<String>> = Vec::new();
        for (piece, id) in listed {
            let id = id as usize;
            if id >= limit {
                return Err(Error::Value {
                    key: "model.vocab",
                    expected: "a list of ids from 0 on with few gaps",
                    found: format!("`{piece}`: {id}"),
                });
            }
            if id >= pieces.len() {
                pieces.resize(id + 1, None);
            }
            pieces[id] = Some(piece);
        }
        Ok(Self {
            pieces,
            casing,
            unknown: model.unk_token,
            continuation: model.continuing_subword_prefix,
            longest_word: model.max_input_chars_per_word,
        })
    }
}

/// Whether the normalizer of a `tokenizer.json` lowers; none where there is no normalizer.
pub(super) fn casing_of_tokenizer(bytes: &[u8]) -> Result<Option<Casing>> {
    let Kind { model, normalizer } = serde_json::from_slice(bytes).map_err(json_error)?;
    match model.name.as_deref() {
        Some("WordPiece") => {}
        found => {
            let found = found.map_or("missing".into(), |name| format!("`{name}`"));
            return Err(Error::Value { key: "model.type", expected: "`WordPiece`", found });
        }
    }
    let Some(normalizer) = normalizer.filter(|normalizer| !normalizer.is_null()) else {
        return Ok(None);
    };
    if normalizer["type"] != "BertNormalizer" {
        return Err(Error::Value {
            key: "normalizer.type",
            expected: "`BertNormalizer`",
            found: normalizer["type"].to_string(),
        });
    }
    always(&normalizer["clean_text"], "normalizer.clean_text")?;
    always(&normalizer["handle_chinese_chars"], "normalizer.handle_chinese_chars")?;
    let lower = flag(&normalizer["lowercase"], "normalizer.lowercase")?.unwrap_or(true);
    accents(&normalizer["strip_accents"], "normalizer.strip_accents", lower)?;
    Ok(Some(casing(lower)))
}

/// What a `tokenizer_config.json` says, if anything.
pub(super) fn casing_of_config(bytes: &[u8]) -> Result<Option<Casing>> {
    let config: Value = serde_json::from_slice(bytes).map_err(json_error)?;
    let Some(lower) = flag(&config["do_lower_case"], "do_lower_case")? else { return Ok(None) };
    always(&config["tokenize_chinese_chars"], "tokenize_chinese_chars")?;
    always(&config["do_basic_tokenize"], "do_basic_tokenize")?;
    accents(&config["strip_accents"], "strip_accents", lower)?;
    Ok(Some(casing(lower)))
}

fn casing(lower: bool) -> Casing {
    if lower { Casing::Lower } else { Casing::Keep }
}

fn flag(value: &Value, key: &'static str) -> Result<Option<bool>> {
    match value {
        Value::Null => Ok(None),
        Value::Bool(flag) => Ok(Some(*flag)),
        other => Err(Error::Value { key, expected: "true or false", found: other.to_string() }),
    }
}

/// The original has no switch for it.
fn always(value: &Value, key: &'static str) -> Result<()> {
    if flag(value, key)? == Some(false) {
        let expected = "true, as BERT's tokenizer has it";
        return Err(Error::Value { key, expected, found: "false".into() });
    }
    Ok(())
}

/// The original removes accents if it lowers, and only then.
fn accents(value: &Value, key: &'static str, lower: bool) -> Result<()> {
    match flag(value, key)? {
        Some(strip) if strip != lower => {
            let expected = "the same as lower-casing, as BERT's tokenizer has it";
            Err(Error::Value { key, expected, found: strip.to_string() })
        }
        _ => Ok(()),
    }
}

fn json_error(error: serde_json::Error) -> Error {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    let reason = text.split(" at line ").next().unwrap_or(&text).to_owned();
    Error::Json { line, column, reason }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
        Tokenizer::parse(value.to_string().as_bytes(), 1 << 20)
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
            ("/normalizer/lowercase", json!(1), "`normalizer.lowercase`"),
            ("/model/vocab/a", json!(4_000_000_000_u32), "`model.vocab`"),
            ("/normalizer", json!(null), "`normalizer`"),
        ] {
            let mut file = file();
            *file.pointer_mut(place).unwrap() = value;
            let error = parse(&file).unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
        assert!(matches!(Tokenizer::parse(b"[]", 9).unwrap_err(), Error::Json { line: 1, .. }));
    }

    #[test]
    fn a_configuration_may_say_nothing() {
        assert_eq!(casing_of_config(b"{}").unwrap(), None);
        let told = casing_of_config(br#"{"do_lower_case": true, "strip_accents": null}"#);
        assert_eq!(told.unwrap(), Some(Casing::Lower));
        assert!(casing_of_config(br#"{"do_lower_case": false, "strip_accents": true}"#).is_err());
    }
}
