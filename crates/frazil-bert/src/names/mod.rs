//! Names: which variables each head needs, and the ways other programs spell them.
//!
//! The names of google-research/bert are the canonical ones ([`variables`]). Whatever a file
//! uses — those names under some scope, Hugging Face's, PopART's — [`read`] turns into a
//! [`Translation`]: a plan that yields canonical variables, plus everything that is not one
//! (optimizer slots, training state, strangers), with the rules that were applied. The other
//! direction, from canonical variables to Hugging Face or PopART, is a plan as well.

mod garden;
pub mod huggingface;
mod plan;
pub mod popart;
mod slot;
mod tensorflow;
pub mod variables;

use std::fmt;
use std::str::FromStr;

use frazil_tensor::TensorInfo;
use serde::Serialize;

use crate::config::FromShapes;
use crate::{Error, Result};

pub use plan::{Fill, Mapped, Row, Step};
pub(crate) use tensorflow::layers;
pub use variables::{Expected, Part, expected};

/// What a model was trained for: which variables there must be beside the encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Head {
    /// Embeddings, layers and pooler alone.
    Encoder,
    /// Masked words and next sentence: what Google's releases are.
    Pretraining,
    /// Masked words alone.
    Mlm,
    /// Next sentence alone.
    Nsp,
    /// `run_classifier.py`
    Classifier,
    /// `run_squad.py`
    Squad,
}

impl Head {
    /// All heads.
    pub const ALL: [Head; 6] =
        [Head::Encoder, Head::Pretraining, Head::Mlm, Head::Nsp, Head::Classifier, Head::Squad];

    /// Their names in one line.
    pub const LIST: &'static str = "encoder, pretraining, mlm, nsp, classifier, squad";

    /// The name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Encoder => "encoder",
            Self::Pretraining => "pretraining",
            Self::Mlm => "mlm",
            Self::Nsp => "nsp",
            Self::Classifier => "classifier",
            Self::Squad => "squad",
        }
    }

    /// Whether variables of this part belong to a checkpoint for this head.
    pub fn has(self, part: Part) -> bool {
        match part {
            // The original code always builds the pooler, whether the head reads it or not.
            Part::Embeddings | Part::Layer(_) | Part::Pooler => true,
            Part::Mlm => matches!(self, Self::Pretraining | Self::Mlm),
            Part::Nsp => matches!(self, Self::Pretraining | Self::Nsp),
            Part::Classifier => self == Self::Classifier,
            Part::Squad => self == Self::Squad,
        }
    }

    /// Whether the head's outputs depend on that part.
    pub fn needs(self, part: Part) -> bool {
        self.has(part) && !(part == Part::Pooler && matches!(self, Self::Mlm | Self::Squad))
    }
}

/// Upper and lower case are one: `PRETRAINING` is how old command lines have it.
impl FromStr for Head {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let lower = name.to_lowercase();
        let found = Self::ALL.into_iter().find(|head| head.name() == lower);
        found.ok_or_else(|| Error::UnknownTask(name.to_string()))
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Whose names a file uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Naming {
    /// google-research/bert's, possibly under a scope.
    TensorFlow,
    /// Those of PyTorch models in Hugging Face's transformers.
    HuggingFace,
    /// Graphcore's PopART initializers.
    Popart,
    /// Object names of TensorFlow 2's Model Garden.
    ModelGarden,
}

impl fmt::Display for Naming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::TensorFlow => "TensorFlow",
            Self::HuggingFace => "Hugging Face",
            Self::Popart => "PopART",
            Self::ModelGarden => "Model Garden",
        })
    }
}

/// A rule that turned names of the file into canonical ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// What it does, in words.
    pub rule: String,
    /// How many names it touched.
    pub count: usize,
    /// The first of them.
    pub example: String,
}

/// An optimizer's variable beside one of the model's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// What follows the model variable's name, `adam_m` for example.
    pub kind: String,
    /// The model variable's name in the file.
    pub of: String,
    /// The model variable's canonical name, if it is one of BERT's.
    pub base: Option<String>,
    /// Whether the model variable itself is not in the file.
    pub orphan: bool,
    /// The variable itself.
    pub info: TensorInfo,
}

/// A tensor that takes no part, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// The tensor.
    pub info: TensorInfo,
    /// Why it is left out.
    pub reason: String,
}

/// Every tensor of a file, sorted into what it is.
#[derive(Clone, Debug)]
pub struct Translation {
    /// Whose names the file uses.
    pub naming: Naming,
    /// What was done to them.
    pub rules: Vec<Rule>,
    /// Scopes that hold a BERT, the chosen one first; `""` is the root.
    pub scopes: Vec<String>,
    /// How to make each canonical variable, in canonical order of names.
    pub rows: Vec<Row>,
    /// Optimizer variables.
    pub slots: Vec<Slot>,
    /// How to make each of them, named `<canonical variable>/<kind>`.
    pub slot_rows: Vec<Row>,
    /// Step counters, loss scales and the like.
    pub state: Vec<TensorInfo>,
    /// Known, and of no use.
    pub ignored: Vec<Ignored>,
    /// Everything else.
    pub unexpected: Vec<TensorInfo>,
    /// The number of attention heads, where a shape shows it.
    pub heads: Option<usize>,
    /// Tensors that must equal another one (a decoder and the embedding it is tied to): the
    /// name in the file and the canonical name. Whoever reads values checks it.
    pub tied: Vec<(String, String)>,
}

impl Translation {
    fn new(naming: Naming) -> Self {
        Self {
            naming,
            rules: Vec::new(),
            scopes: Vec::new(),
            rows: Vec::new(),
            slots: Vec::new(),
            slot_rows: Vec::new(),
            state: Vec::new(),
            ignored: Vec::new(),
            unexpected: Vec::new(),
            heads: None,
            tied: Vec::new(),
        }
    }

    /// The canonical variables: names, types and shapes.
    pub fn infos(&self) -> Vec<TensorInfo> {
        self.rows.iter().map(|row| row.target.clone()).collect()
    }

    /// The configuration as the shapes tell it.
    pub fn from_shapes(&self) -> Result<FromShapes> {
        let mut read = FromShapes::of(&self.infos())?;
        if let Some(heads) =
            self.heads.filter(|heads| *heads > 0 && read.config.hidden_size.is_multiple_of(*heads))
        {
            read.config.num_attention_heads = heads;
            read.read.append(&mut read.guessed);
        }
        Ok(read)
    }

    /// The row that makes that canonical variable.
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.target.name == name)
    }

    /// Adds a row unless its target is there already; then the source is a stranger.
    fn add(&mut self, row: Row, source: &TensorInfo) {
        if self.row(&row.target.name).is_some() {
            self.unexpected.push(source.clone());
        } else {
            self.rows.push(row);
        }
    }

    fn note(&mut self, rule: impl Into<String>, example: &str) {
        let rule = rule.into();
        match self.rules.iter_mut().find(|r| r.rule == rule) {
            Some(known) => known.count += 1,
            None => self.rules.push(Rule { rule, count: 1, example: example.to_string() }),
        }
    }

    fn ignore(&mut self, info: &TensorInfo, reason: impl Into<String>) {
        self.ignored.push(Ignored { info: info.clone(), reason: reason.into() });
    }

    fn finish(mut self) -> Self {
        self.rows.sort_by(|a, b| a.target.name.cmp(&b.target.name));
        self.slot_rows.sort_by(|a, b| a.target.name.cmp(&b.target.name));
        self
    }
}

/// Sorts the tensors of a file, whatever names it uses. `scope` chooses one of several models
/// in a TensorFlow file; without it the root's is taken, or the first.
///
/// An error only if the file is plainly another kind of model, or has no such scope. A file
/// without any BERT gives a translation without rows.
pub fn read(infos: &[TensorInfo], scope: Option<&str>) -> Result<Translation> {
    if popart::is(infos) {
        popart::read(infos)
    } else if garden::is(infos) {
        Ok(garden::read(infos))
    } else if huggingface::is(infos) {
        huggingface::read(infos)
    } else {
        tensorflow::read(infos, scope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_by_any_case() {
        assert_eq!("PRETRAINING".parse::<Head>().unwrap(), Head::Pretraining);
        assert_eq!("Squad".parse::<Head>().unwrap(), Head::Squad);
        assert_eq!("encoder".parse::<Head>().unwrap(), Head::Encoder);
        let error = "SQUAD2".parse::<Head>().unwrap_err().to_string();
        assert!(error.contains("`SQUAD2`") && error.contains("classifier"), "{error}");
        for head in Head::ALL {
            assert!(Head::LIST.contains(head.name()));
        }
    }
}
