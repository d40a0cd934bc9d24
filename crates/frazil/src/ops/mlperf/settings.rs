//! Values for the keys, from files and flags: later ones count.

use std::path::Path;

use serde_json::{Map, Value};

use super::keys::{KEYS, Key, Kind, Meaning, find};
use crate::{Error, Result};

/// Is asked about a flag that is no key, and what follows it: whether it is one of its own, and then
/// whether it takes what follows.
pub type Other<'o> = &'o mut dyn FnMut(&str, Option<&str>) -> Result<Option<bool>>;

/// Keys of which only one can be given.
const EXCLUSIVE: [&[&str]; 4] = [
    &["lr_bert_schedule", "lr_schedule_by_step", "lr_schedule_by_epoch"],
    &["ls_schedule_by_step", "ls_schedule_by_epoch"],
    &["beta1", "beta1_schedule"],
    &["tf_checkpoint", "onnx_checkpoint"],
];

/// What was given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    given: Map<String, Value>,
}

fn wrong(what: String, hint: impl Into<String>) -> Error {
    Error::Usage { what, hint: hint.into() }
}

/// The key, or what it could have been.
fn known(name: &str) -> Result<&'static Key> {
    find(name).ok_or_else(|| {
        let near = frazil_tensor::nearest(name, KEYS.iter().map(|key| key.name));
        let hint = match near.first() {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`frazil pretrain --help` names all keys".into(),
        };
        wrong(format!("there is no key `{name}`"), hint)
    })
}

impl Settings {
    /// Of a file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| Error::Read { path: path.to_path_buf(), source })?;
        let shown = path.display();
        let value: Value = serde_json::from_str(&text).map_err(|error| {
            wrong(
                format!("`{shown}` is no JSON: {error}"),
                "give a configuration such as pod16-closed.json",
            )
        })?;
        let Value::Object(all) = value else {
            return Err(wrong(
                format!("`{shown}` is not a table of keys"),
                "give a configuration such as pod16-closed.json",
            ));
        };
        let mut settings = Self::default();
        for (name, value) in all {
            settings.set(&name, value).map_err(|error| match error {
                Error::Usage { what, hint } => wrong(format!("`{shown}`: {what}"), hint),
                other => other,
            })?;
        }
        Ok(settings)
    }

    /// Gives a key a value of its kind. `null` stands for no value, where there is no default.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) -> Result<()> {
        let (key, value) = (known(name)?, value.into());
        if value.is_null() && key.default.is_empty() {
            self.given.remove(key.name);
            return Ok(());
        }
        if !key.kind.has(&value) {
            let what = format!("`{name}` is {value}, {} expected", key.kind.name());
            return Err(wrong(what, key.help));
        }
        self.given.insert(key.name.to_owned(), value);
        Ok(())
    }

    /// Reads flags: `--key value`, `--key=value`, `--truth`, lists of words.
    pub fn flags(&mut self, words: &[String], other: Other<'_>) -> Result<()> {
        let mut at = 0;
        while at < words.len() {
            let word = &words[at];
            at += 1;
            let Some(flag) = word.strip_prefix("--").filter(|flag| !flag.is_empty()) else {
                return Err(wrong(format!("`{word}` is no flag"), "flags begin with `--`"));
            };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (flag, None),
            };
            let following = value.or(words.get(at).map(String::as_str));
            if let Some(took_it) = other(name, following)? {
                at += usize::from(took_it && value.is_none());
                continue;
            }
            let name = name.replace('-', "_");
            let key = known(&name).map_err(|error| match error {
                Error::Usage { hint, .. } => {
                    wrong(format!("there is no flag `{word}`"), hint.replace('_', "-"))
                }
                other => other,
            })?;
            let mut texts: Vec<&str> = value.into_iter().collect();
            let is_flag = |word: &String| word.starts_with("--");
            match key.kind {
                _ if !texts.is_empty() => {}
                Kind::Truth => {
                    let next = words.get(at).filter(|next| truth(next).is_some());
                    at += usize::from(next.is_some());
                    texts.push(next.map_or("true", String::as_str));
                }
                kind => {
                    let count = words[at..].iter().take_while(|word| !is_flag(word)).count();
                    let count = if kind.is_list() { count } else { count.min(1) };
                    texts.extend(words[at..at + count].iter().map(String::as_str));
                    at += count;
                }
            }
            if texts.is_empty() && !key.kind.may_be_empty() {
                return Err(wrong(format!("`{word}` needs {}", key.kind.name()), key.help));
            }
            self.set(&name, value_of(key.kind, &texts))?;
        }
        Ok(())
    }

    /// Takes all that is given elsewhere, which counts: also against another key for the same.
    pub fn merge(&mut self, other: &Settings) {
        for group in EXCLUSIVE.iter().filter(|group| group.iter().any(|key| other.is_given(key))) {
            self.given.retain(|key, _| !group.contains(&key.as_str()));
        }
        self.given.extend(other.given.clone());
    }

    /// Whether it was given.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// Keys that were given and do not mean here what they meant there: name, value, what becomes of
    /// them, and whether they mean anything.
    pub fn elsewhere(&self) -> impl Iterator<Item = (&str, &Value, &'static str, bool)> {
        self.given.iter().filter_map(|(name, value)| match find(name)?.meaning {
            Meaning::Same => None,
            Meaning::Truth(as_there, to) => {
                let to = if value.as_bool() == Some(false) { to } else { as_there };
                Some((name.as_str(), value, to, true))
            }
            Meaning::Mapped(to) => Some((name.as_str(), value, to, true)),
            Meaning::Declined(why) => Some((name.as_str(), value, why, false)),
        })
    }

    /// What was given, or the default.
    pub fn get(&self, name: &str) -> Option<Value> {
        let key = find(name).expect("only keys of the table are asked for");
        let default = Some(key.default).filter(|default| !default.is_empty());
        self.given.get(name).cloned().or_else(|| {
            Some(serde_json::from_str(default?).expect("defaults are JSON, which a test checks"))
        })
    }

    /// A whole number.
    pub fn count(&self, name: &str) -> Option<u64> {
        self.get(name)?.as_u64()
    }

    /// A whole number that has a default.
    pub fn size(&self, name: &str) -> usize {
        self.count(name).map_or(0, |count| usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// A number.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?.as_f64()
    }

    /// A truth that has a default.
    pub fn truth(&self, name: &str) -> bool {
        self.get(name).and_then(|value| value.as_bool()).unwrap_or(false)
    }

    /// A text.
    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name)?.as_str().map(str::to_owned)
    }

    /// A list of texts.
    pub fn texts(&self, name: &str) -> Vec<String> {
        let all = self.get(name).and_then(|value| value.as_array().cloned()).unwrap_or_default();
        all.iter().filter_map(|value| value.as_str().map(str::to_owned)).collect()
    }

    /// A table.
    pub fn table(&self, name: &str) -> Option<Map<String, Value>> {
        self.get(name)?.as_object().cloned()
    }
}

fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "t" | "y" | "1" => Some(true),
        "false" | "no" | "f" | "n" | "0" => Some(false),
        _ => None,
    }
}

/// The value that words on the command line stand for; what is none of its kind stays a text, which
/// is then refused.
fn value_of(kind: Kind, texts: &[&str]) -> Value {
    let json = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
    // Python's numbers may begin or end with a point.
    let number = |text: &str| match (json(text), text.parse::<f64>()) {
        (Value::String(_), Ok(number)) => Value::from(number),
        (value, _) => value,
    };
    // Pairs as bert.py has them: `0:1e-3 500:1e-4`.
    let pair = |text: &&str| {
        let (name, value) = text.split_once(':')?;
        Some((name.to_owned(), Some(number(value)).filter(Value::is_number)?))
    };
    let pairs = || texts.iter().map(pair).collect::<Option<Map<String, Value>>>();
    match kind {
        Kind::Text => Value::from(texts[0]),
        Kind::Truth => truth(texts[0]).map_or_else(|| Value::from(texts[0]), Value::from),
        Kind::Texts => texts.iter().map(|text| Value::from(*text)).collect(),
        Kind::Counts => texts.iter().map(|text| json(text)).collect(),
        Kind::Numbers => texts.iter().map(|text| number(text)).collect(),
        Kind::Table => pairs().map_or_else(|| json(&texts.join(" ")), Value::Object),
        Kind::Number => number(texts[0]),
        Kind::Count | Kind::Integer | Kind::Any => json(texts[0]),
    }
}
