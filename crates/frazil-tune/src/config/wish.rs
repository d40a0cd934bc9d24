//! What is asked of weights and activations, of the whole model or of operations by name.

use serde::Serialize;

use super::Note;
use super::yaml::{At, Section};
use crate::choice::{Algorithm, Granularity, Precision};
use crate::error::{Error, Result};

/// What is asked of an operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Wish {
    /// `weight`
    pub weight: Part,
    /// `activation`
    pub activation: Part,
}

/// What is asked of its weight or of its inputs. `None` leaves everything open.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Part {
    /// `dtype`: `int8` and `uint8` are bytes, `fp32` and `bf16` are not.
    pub precision: Option<Vec<Precision>>,
    /// `granularity`
    pub granularity: Option<Vec<Granularity>>,
    /// `algorithm`
    pub algorithm: Option<Vec<Algorithm>>,
    /// `bit`: what the bytes of weights go up to, of either sign: `2^bit - 1`.
    pub largest: Option<u8>,
}

/// What is asked of operations by name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OpWish {
    /// Which ones.
    pub names: NamePattern,
    /// What.
    pub wish: Wish,
    /// Where it stands.
    #[serde(skip)]
    pub line: u64,
}

/// One name, or all that begin as a regular expression says.
#[derive(Clone, Debug, Serialize)]
#[serde(into = "String")]
pub struct NamePattern {
    text: String,
    pattern: Option<regex::Regex>,
}

impl From<NamePattern> for String {
    fn from(names: NamePattern) -> Self {
        names.text
    }
}

impl PartialEq for NamePattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl NamePattern {
    /// It is a regular expression only if it has characters outside `A-Za-z0-9_.-/`.
    ///
    /// # Errors
    /// Why it is not a good one.
    pub fn new(text: &str) -> Result<Self, String> {
        let is_name = !text.is_empty()
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-/".contains(&b));
        let pattern = match is_name {
            true => None,
            false => Some(
                // From the beginning of the name on, as Python's `re.match` has it.
                regex::RegexBuilder::new(&format!("^(?:{text})"))
                    .size_limit(1 << 20)
                    .build()
                    .map_err(|e| {
                        let text = e.to_string();
                        text.lines()
                            .last()
                            .unwrap_or_default()
                            .trim_start_matches("error: ")
                            .to_owned()
                    })?,
            ),
        };
        Ok(Self { text: text.into(), pattern })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Is it a regular expression?
    pub fn is_pattern(&self) -> bool {
        self.pattern.is_some()
    }

    /// Is this operation meant?
    pub fn matches(&self, name: &str) -> bool {
        match &self.pattern {
            Some(pattern) => pattern.is_match(name),
            None => self.text == name,
        }
    }
}

/// `model_wise`, and every value of `op_wise`.
pub(super) fn wish(mut section: Section, notes: &mut Vec<Note>) -> Result<Wish> {
    let weight = part(section.section("weight")?, true, notes)?;
    let activation = part(section.section("activation")?, false, notes)?;
    section.finish()?;
    Ok(Wish { weight, activation })
}

/// `op_wise`
pub(super) fn op_wishes(mut section: Section, notes: &mut Vec<Note>) -> Result<Vec<OpWish>> {
    let mut wishes = Vec::new();
    for (name, at) in section.rest() {
        let (line, path) = (at.line(), at.path.clone());
        let names =
            NamePattern::new(&name).map_err(|reason| Error::Pattern { line, path, reason })?;
        wishes.push(OpWish { names, wish: wish(at.section()?, notes)?, line });
    }
    Ok(wishes)
}

fn part(mut section: Section, weight: bool, notes: &mut Vec<Note>) -> Result<Part> {
    let mut note = |line: u64, path: &str, text: &str| {
        notes.push(Note { line, path: path.into(), text: text.into() });
    };
    let precision = match section.take("dtype") {
        None => None,
        Some(at) => {
            let (line, path) = (at.line(), at.path.clone());
            let mut precisions = Vec::new();
            for word in each(at)? {
                let (precision, usual) = word.one_of(&[
                    ("int8", (Precision::Int8, weight)),
                    ("uint8", (Precision::Int8, !weight)),
                    ("fp32", (Precision::F32, true)),
                    ("bf16", (Precision::F32, false)),
                ])?;
                match (usual, precision) {
                    (true, _) => {}
                    (false, Precision::F32) => note(line, &path, "`bf16` is computed in f32"),
                    (false, Precision::Int8) if weight => {
                        note(line, &path, "the bytes of weights are always signed");
                    }
                    (false, Precision::Int8) => {
                        note(line, &path, "the bytes of activations are always unsigned");
                    }
                }
                if !precisions.contains(&precision) {
                    precisions.push(precision);
                }
            }
            Some(precisions)
        }
    };
    let granularity = match section.take("granularity") {
        None => None,
        Some(at) => {
            let (line, path) = (at.line(), at.path.clone());
            let mut granularities = Vec::new();
            for word in each(at)? {
                let known =
                    [("per_channel", Granularity::Channel), ("per_tensor", Granularity::Tensor)];
                granularities.push(word.one_of(&known)?);
            }
            if weight {
                Some(granularities)
            } else {
                if granularities.contains(&Granularity::Channel) {
                    note(line, &path, "activations have one scale, or one for each row (dynamic)");
                }
                None
            }
        }
    };
    if let Some(at) = section.take("scheme") {
        let (line, path) = (at.line(), at.path.clone());
        for word in each(at)? {
            match (word.one_of(&[("asym", false), ("sym", true)])?, weight) {
                (false, true) => note(line, &path, "the bytes of weights are always symmetric"),
                (true, false) => {
                    note(line, &path, "the bytes of activations are always asymmetric");
                }
                _ => {}
            }
        }
    }
    let algorithm = match section.take("algorithm") {
        None => None,
        Some(at) => {
            let mut algorithms = Vec::new();
            for word in each(at)? {
                let algorithm = algorithm(&word)?;
                if weight
                    && !matches!(algorithm, Algorithm::MinMax | Algorithm::Mse | Algorithm::Kl)
                {
                    return Err(word.wrong("one of `minmax`, `kl`, `mse`"));
                }
                algorithms.push(algorithm);
            }
            Some(algorithms)
        }
    };
    let mut largest = None;
    if weight && let Some(at) = section.take("bit") {
        let expected = "a number above 0 and up to 7, or a list of such";
        for bit in each(At { node: at.node.clone(), path: at.path.clone() })? {
            match bit.number() {
                Ok(bits) if bits > 0.0 && bits <= 7.0 => {
                    largest = largest.max(Some((bits.exp2() as u8 - 1).max(1)));
                }
                _ => return Err(at.wrong(expected)),
            }
        }
        if largest.is_some() && !at.path.contains("model_wise") {
            note(at.line(), &at.path, "it is taken for all weights, from `model_wise` only");
            largest = None;
        }
    }
    section.finish()?;
    Ok(Part { precision, granularity, algorithm, largest })
}

fn algorithm(at: &At) -> Result<Algorithm> {
    match &at.node.value {
        super::yaml::Value::Text(text) => text.parse().or_else(|_| at.one_of(&Algorithm::NAMES)),
        _ => at.one_of(&Algorithm::NAMES),
    }
}

/// The items of a list, the words of a text, or the one thing that it is.
fn each(at: At) -> Result<Vec<At>> {
    use super::yaml::{Node, Value};
    let (path, line) = (at.path.clone(), at.line());
    let here = |value: Value| At { node: Node { value, line }, path: path.clone() };
    let items: Vec<At> = match at.node.value {
        Value::List(items) => {
            items.into_iter().map(|node| At { node, path: path.clone() }).collect()
        }
        Value::Text(_) => at.words()?.into_iter().map(|word| here(Value::Text(word))).collect(),
        value => vec![here(value)],
    };
    if items.is_empty() { Err(here(Value::Null).wrong("at least one word")) } else { Ok(items) }
}
