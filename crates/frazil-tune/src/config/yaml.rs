//! YAML as a tree with positions, and sections that know which of their keys were asked for.
//!
//! What the keys mean is said in `read`.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use crate::error::{Error, Result};

/// No configuration is longer.
const LONGEST: usize = 1 << 20;

/// A value and the line where it begins.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) line: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Number(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, u64, Node)>),
}

/// Reads one document.
pub(super) fn parse(text: &str) -> Result<Node> {
    if text.len() > LONGEST {
        return Err(Error::TooLong { found: text.len(), most: LONGEST });
    }
    let read = |text: &str| {
        let mut budget = serde_saphyr::Budget::default();
        budget.max_depth = 32;
        budget.flow_nesting_limit = 32;
        budget.max_nodes = 50_000;
        let options = serde_saphyr::options! {
            budget: Some(budget),
            with_snippet: false,
            non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::PassThrough,
        };
        serde_saphyr::from_str_with_options::<Node>(text, options)
    };
    read(text).map_err(|error| {
        let (line, column) = error.location().map_or((0, 0), |at| (at.line(), at.column()));
        let reason = error.to_string();
        Error::Yaml { line, column, reason: reason.lines().next().unwrap_or_default().into() }
    })
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self { line: spanned.referenced.line(), value: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or(Value::Number(value as f64), Value::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Number(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = entries.next_key::<Node>()? {
            let name = match &key.value {
                Value::Text(text) => text.clone(),
                Value::Bool(value) => value.to_string(),
                Value::Int(value) => value.to_string(),
                Value::Number(value) => value.to_string(),
                other => {
                    let what = other.kind();
                    return Err(serde::de::Error::custom(format!(
                        "a key must be text, not {what}"
                    )));
                }
            };
            map.push((name, key.line, entries.next_value()?));
        }
        Ok(Value::Map(map))
    }
}

impl Value {
    fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Int(_) | Self::Number(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a section",
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "`{value}`"),
            Self::Int(value) => write!(f, "`{value}`"),
            Self::Number(value) => write!(f, "`{value}`"),
            Self::Text(text) => {
                let short: String = text.chars().take(60).collect();
                write!(f, "`{short}`")
            }
            other => f.write_str(other.kind()),
        }
    }
}

/// A value with the names of the keys that lead to it.
#[derive(Debug)]
pub(super) struct At {
    pub(super) node: Node,
    pub(super) path: String,
}

impl At {
    pub(super) fn line(&self) -> u64 {
        self.node.line
    }

    pub(super) fn wrong(&self, expected: impl Into<String>) -> Error {
        Error::Value {
            line: self.node.line,
            path: self.path.clone(),
            expected: expected.into(),
            found: self.node.value.to_string(),
        }
    }

    pub(super) fn text(self) -> Result<String> {
        match self.node.value {
            Value::Text(text) => Ok(text),
            _ => Err(self.wrong("text")),
        }
    }

    pub(super) fn truth(&self) -> Result<bool> {
        match self.node.value {
            Value::Bool(value) => Ok(value),
            _ => Err(self.wrong("`True` or `False`")),
        }
    }

    /// A whole number from `least` on.
    pub(super) fn whole(&self, least: i64) -> Result<i64> {
        match self.node.value {
            Value::Int(value) if value >= least => Ok(value),
            _ => Err(self.wrong(format!("a whole number from {least} on"))),
        }
    }

    pub(super) fn number(&self) -> Result<f64> {
        match self.node.value {
            Value::Int(value) => Ok(value as f64),
            Value::Number(value) if value.is_finite() => Ok(value),
            _ => Err(self.wrong("a number")),
        }
    }

    /// `0.01` or `1%`.
    pub(super) fn share(&self) -> Result<f64> {
        let expected = "a number or a percentage, from 0 on";
        let value = match &self.node.value {
            Value::Text(text) => {
                let digits = text.trim().strip_suffix('%').ok_or_else(|| self.wrong(expected))?;
                let plain = digits.trim_end().bytes().all(|b| b.is_ascii_digit() || b == b'.');
                let value: f64 = digits.trim_end().parse().map_err(|_| self.wrong(expected))?;
                if plain { value / 100.0 } else { f64::NAN }
            }
            _ => self.number()?,
        };
        if value.is_finite() && value >= 0.0 { Ok(value) } else { Err(self.wrong(expected)) }
    }

    /// A list of words, or a text that has them between commas or else blanks.
    pub(super) fn words(self) -> Result<Vec<String>> {
        let wrong = self.wrong("a list of names, or names with commas between them");
        match self.node.value {
            Value::Text(text) => {
                let split: Vec<&str> = match text.contains(',') {
                    true => text.split(',').map(str::trim).collect(),
                    false => text.split_whitespace().collect(),
                };
                Ok(split.into_iter().filter(|word| !word.is_empty()).map(String::from).collect())
            }
            Value::Null => Ok(Vec::new()),
            Value::List(items) => items
                .into_iter()
                .map(|item| At { node: item, path: self.path.clone() }.text())
                .collect(),
            _ => Err(wrong),
        }
    }

    /// One of a few words.
    pub(super) fn one_of<T: Copy>(&self, known: &[(&str, T)]) -> Result<T> {
        if let Value::Text(text) = &self.node.value
            && let Some((_, value)) = known.iter().find(|(word, _)| word == text)
        {
            return Ok(*value);
        }
        let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
        Err(self.wrong(format!("one of `{}`", words.join("`, `"))))
    }

    /// A section, its keys still to be asked for. A list of sections is one, as the original's
    /// reader had it: before parsing it replaced the signs of lists by blanks.
    pub(super) fn section(self) -> Result<Section> {
        let wrong = self.wrong("a section of keys");
        let line = self.node.line;
        let entries = match self.node.value {
            Value::Null => Vec::new(),
            Value::Map(entries) => entries,
            Value::List(items) => {
                let mut all: Vec<(String, u64, Node)> = Vec::new();
                for item in items {
                    let Value::Map(entries) = item.value else { return Err(wrong) };
                    for entry in entries {
                        if all.iter().any(|(name, ..)| *name == entry.0) {
                            let path = join(&self.path, &entry.0);
                            return Err(At { node: entry.2, path }.wrong("given once"));
                        }
                        all.push(entry);
                    }
                }
                all
            }
            _ => return Err(wrong),
        };
        Ok(Section { path: self.path, line, entries, asked: Vec::new() })
    }

    /// As JSON, for what is handed on.
    pub(super) fn json(self) -> serde_json::Value {
        json(self.node.value)
    }
}

fn json(value: Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => value.into(),
        Value::Int(value) => value.into(),
        Value::Number(value) => value.into(),
        Value::Text(text) => text.into(),
        Value::List(items) => items.into_iter().map(|item| json(item.value)).collect(),
        Value::Map(entries) => serde_json::Value::Object(
            entries.into_iter().map(|(name, _, node)| (name, json(node.value))).collect(),
        ),
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.into() } else { format!("{path}.{key}") }
}

/// Keys that are taken out one by one; what is left at the end, nobody knows.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) path: String,
    pub(super) line: u64,
    entries: Vec<(String, u64, Node)>,
    asked: Vec<&'static str>,
}

impl Section {
    /// The value of a key.
    pub(super) fn take(&mut self, key: &'static str) -> Option<At> {
        self.asked.push(key);
        let index = self.entries.iter().position(|(name, ..)| name == key)?;
        let (name, line, mut node) = self.entries.remove(index);
        if node.value == Value::Null {
            node.line = line; // nothing stands nowhere
        }
        Some(At { node, path: join(&self.path, &name) })
    }

    /// A key below this one, or an empty one.
    pub(super) fn section(&mut self, key: &'static str) -> Result<Section> {
        let line = self.line;
        match self.take(key) {
            Some(at) => at.section(),
            None => Ok(Section {
                path: join(&self.path, key),
                line,
                entries: Vec::new(),
                asked: Vec::new(),
            }),
        }
    }

    /// The value of a key that must be there.
    pub(super) fn need(&mut self, key: &'static str) -> Result<At> {
        let (line, path) = (self.line, join(&self.path, key));
        self.take(key).ok_or(Error::MissingKey { line, path })
    }

    /// All that is left, in the order of the file.
    pub(super) fn rest(&mut self) -> Vec<(String, At)> {
        let path = &self.path;
        std::mem::take(&mut self.entries)
            .into_iter()
            .map(|(name, line, mut node)| {
                if node.value == Value::Null {
                    node.line = line;
                }
                let path = join(path, &name);
                (name, At { node, path })
            })
            .collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Fails if a key is left that nobody asked for.
    pub(super) fn finish(self) -> Result<()> {
        let Some((name, line, _)) = self.entries.first() else { return Ok(()) };
        let near = frazil_tensor::nearest(name, self.asked.iter().copied());
        let known = match near.into_iter().next() {
            Some(one) => vec![one],
            None => self.asked.iter().map(|&key| key.into()).collect(),
        };
        Err(Error::UnknownKey { line: *line, path: join(&self.path, name), known })
    }
}
