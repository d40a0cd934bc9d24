//! What a file of weights holds: heads, optimizer slots, strangers; what it lacks.

use std::collections::BTreeMap;

use frazil_tensor::TensorInfo;
use serde::Serialize;

use crate::config::{Difference, FromShapes};
use crate::names::{self, Expected, Head, Naming, Part, Rule, Translation, expected};
use crate::{BertConfig, Result};

/// A tensor as a report shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Variable {
    /// Its name in the file.
    pub name: String,
    /// Element type, `float32` for example.
    pub dtype: &'static str,
    /// Extents.
    pub shape: Vec<usize>,
}

impl From<&TensorInfo> for Variable {
    fn from(info: &TensorInfo) -> Self {
        Self { name: info.name.clone(), dtype: info.dtype.name(), shape: info.shape.to_vec() }
    }
}

/// A variable that the head needs and the file lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// Its canonical name.
    pub name: String,
    /// The shape it would have.
    pub shape: Vec<usize>,
    /// Whether the head's outputs depend on it.
    pub needed: bool,
}

/// A variable with another shape or kind of type than the model needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// Its canonical name.
    pub name: String,
    /// The shape by the configuration.
    pub expected: Vec<usize>,
    /// The shape in the file.
    pub found: Vec<usize>,
    /// The type in the file; only floating-point types are weights.
    pub dtype: &'static str,
}

/// How complete one head is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeadReport {
    /// The head.
    pub head: Head,
    /// Classes of the classifier, or 2 for NSP and SQuAD.
    pub labels: Option<usize>,
    /// Variables that a checkpoint for this head has.
    pub expected: usize,
    /// How many of them are in the file.
    pub found: usize,
    /// Those that are not.
    pub missing: Vec<Missing>,
    /// Those that do not fit.
    pub wrong: Vec<Mismatch>,
    /// Canonical variables in the file that belong to other heads.
    pub unused: Vec<String>,
}

impl HeadReport {
    /// Whether the head can run.
    pub fn is_complete(&self) -> bool {
        self.wrong.is_empty() && !self.missing.iter().any(|missing| missing.needed)
    }
}

/// Slots of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SlotReport {
    /// What follows the variable's name, `adam_m` for example.
    pub kind: String,
    /// How many.
    pub count: usize,
    /// Their bytes.
    pub bytes: u64,
    /// How many of them belong to variables that are not in the file.
    pub orphans: usize,
}

/// A tensor that is known and of no use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IgnoredVariable {
    /// Its name in the file.
    pub name: String,
    /// Why it takes no part.
    pub reason: String,
}

/// What a file of weights holds.
#[derive(Clone, Debug, Serialize)]
pub struct Inventory {
    /// Whose names it uses.
    pub naming: Naming,
    /// Rules that turned its names into canonical ones.
    pub rules: Vec<Rule>,
    /// Scopes that hold a BERT, the one described here first; `""` is the root.
    pub scopes: Vec<String>,
    /// The configuration read off the shapes, if they show a BERT.
    pub from_shapes: Option<FromShapes>,
    /// Why not, otherwise.
    pub no_bert: Option<String>,
    /// Where the given configuration contradicts the shapes.
    pub contradictions: Vec<Difference>,
    /// The encoder and each head of which at least one variable is there.
    pub heads: Vec<HeadReport>,
    /// Variables of the model: all heads, no slots.
    pub variables: usize,
    /// Their elements.
    pub parameters: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Optimizer slots by kind.
    pub slots: Vec<SlotReport>,
    /// Step counters, loss scales and the like.
    pub training_state: Vec<Variable>,
    /// Tensors that are known and of no use.
    pub ignored: Vec<IgnoredVariable>,
    /// Tensors that are none of the above.
    pub unexpected: Vec<Variable>,
}

impl Inventory {
    /// Takes stock of a file's tensors, measured by their own shapes.
    pub fn of(infos: &[TensorInfo]) -> Result<Self> {
        Ok(Self::new(&names::read(infos, None)?, None))
    }

    /// The same, measured by a configuration.
    pub fn with_config(infos: &[TensorInfo], config: &BertConfig) -> Result<Self> {
        Ok(Self::new(&names::read(infos, None)?, Some(config)))
    }

    /// The same from tensors that are sorted already.
    pub fn new(translation: &Translation, config: Option<&BertConfig>) -> Self {
        let infos = translation.infos();
        let (from_shapes, no_bert) = match translation.from_shapes() {
            Ok(read) => (Some(read), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let contradictions = match (&from_shapes, config) {
            (Some(read), Some(config)) => read.contradictions(config),
            _ => Vec::new(),
        };
        let measure = config.or(from_shapes.as_ref().map(|read| &read.config));
        let heads = match measure {
            Some(config) => {
                present(&infos).into_iter().map(|head| report(&infos, config, head)).collect()
            }
            None => Vec::new(),
        };
        let mut slots: BTreeMap<&str, SlotReport> = BTreeMap::new();
        for slot in &translation.slots {
            let kind = slots.entry(&slot.kind).or_default();
            kind.kind.clone_from(&slot.kind);
            kind.count += 1;
            kind.bytes = kind.bytes.saturating_add(slot.info.byte_len().unwrap_or(0) as u64);
            kind.orphans += usize::from(slot.orphan);
        }
        let ignored = translation.ignored.iter().map(|ignored| IgnoredVariable {
            name: ignored.info.name.clone(),
            reason: ignored.reason.clone(),
        });
        Self {
            naming: translation.naming,
            rules: translation.rules.clone(),
            scopes: translation.scopes.clone(),
            from_shapes,
            no_bert,
            contradictions,
            heads,
            variables: infos.len(),
            parameters: total(infos.iter().filter_map(|info| info.shape.elements())),
            bytes: total(infos.iter().filter_map(TensorInfo::byte_len)),
            slots: slots.into_values().collect(),
            training_state: translation.state.iter().map(Variable::from).collect(),
            ignored: ignored.collect(),
            unexpected: translation.unexpected.iter().map(Variable::from).collect(),
        }
    }

    /// The report on one head, if any of its variables is there.
    pub fn head(&self, head: Head) -> Option<&HeadReport> {
        self.heads.iter().find(|report| report.head == head)
    }

    /// Heads that can run, the encoder aside. MLM and NSP together are pretraining, once.
    pub fn complete_heads(&self) -> Vec<Head> {
        let complete: Vec<Head> = self
            .heads
            .iter()
            .filter(|report| report.head != Head::Encoder && report.is_complete())
            .map(|report| report.head)
            .collect();
        let whole = complete.contains(&Head::Pretraining);
        let part = |head: &Head| matches!(head, Head::Mlm | Head::Nsp);
        complete.into_iter().filter(|head| !(whole && part(head))).collect()
    }
}

/// The encoder, and every head of which some variable is there. Pretraining counts as present
/// when both of its halves are.
fn present(infos: &[TensorInfo]) -> Vec<Head> {
    let has =
        |part: Part| infos.iter().any(|info| names::variables::part_of(&info.name) == Some(part));
    let (mlm, nsp) = (has(Part::Mlm), has(Part::Nsp));
    let found = |head: &Head| match head {
        Head::Encoder => true,
        Head::Pretraining => mlm && nsp,
        Head::Mlm => mlm && !nsp,
        Head::Nsp => nsp && !mlm,
        Head::Classifier => has(Part::Classifier),
        Head::Squad => has(Part::Squad),
    };
    Head::ALL.into_iter().filter(found).collect()
}

/// A sum that a hostile listing cannot overflow.
pub fn total(sizes: impl Iterator<Item = usize>) -> u64 {
    sizes.fold(0, |sum, size| sum.saturating_add(size as u64))
}

/// How complete a head is among canonical variables.
pub fn report(infos: &[TensorInfo], config: &BertConfig, head: Head) -> HeadReport {
    let find = |name: &str| infos.iter().find(|info| info.name == name);
    let classes = find("output_weights").or_else(|| find("output_bias"));
    let classes = classes.and_then(|info| info.shape.first().copied()).unwrap_or(0);
    let labels = match head {
        Head::Classifier => Some(classes),
        Head::Squad | Head::Nsp | Head::Pretraining => Some(2),
        Head::Encoder | Head::Mlm => None,
    };
    let all: Vec<Expected> = expected(config, head, classes);
    let (mut missing, mut wrong, mut found) = (Vec::new(), Vec::new(), 0);
    for variable in &all {
        let shape = variable.shape.to_vec();
        match find(&variable.name) {
            None => {
                let (name, needed) = (variable.name.clone(), variable.needed);
                missing.push(Missing { name, shape, needed });
            }
            Some(info) => {
                found += 1;
                if info.shape != variable.shape || !info.dtype.is_float() {
                    wrong.push(Mismatch {
                        name: variable.name.clone(),
                        expected: shape,
                        found: info.shape.to_vec(),
                        dtype: info.dtype.name(),
                    });
                }
            }
        }
    }
    let belongs = |info: &&TensorInfo| {
        names::variables::part_of(&info.name).is_some_and(|part| match part {
            Part::Layer(i) => i < config.num_hidden_layers,
            part => head.has(part),
        })
    };
    let unused = infos.iter().filter(|info| !belongs(info)).map(|info| info.name.clone());
    let unused = unused.collect();
    HeadReport { head, labels, expected: all.len(), found, missing, wrong, unused }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frazil_tensor::{DType, Shape};

    fn small() -> BertConfig {
        BertConfig {
            hidden_size: 64,
            num_hidden_layers: 2,
            num_attention_heads: 1,
            intermediate_size: 256,
            max_position_embeddings: 128,
            type_vocab_size: 2,
            ..BertConfig::new(838)
        }
    }

    fn infos(head: Head) -> Vec<TensorInfo> {
        let info = |v: Expected| TensorInfo { name: v.name, dtype: DType::F32, shape: v.shape };
        expected(&small(), head, 3).into_iter().map(info).collect()
    }

    #[test]
    fn a_complete_classifier() {
        let mut all = infos(Head::Classifier);
        let slot = |info: &TensorInfo| TensorInfo {
            name: format!("{}/BERTAdam_1", info.name),
            ..info.clone()
        };
        let slots: Vec<TensorInfo> = all.iter().map(slot).collect();
        all.extend(slots);
        all.push(TensorInfo {
            name: "global_step".into(),
            dtype: DType::I64,
            shape: Shape::scalar(),
        });
        all.push(TensorInfo { name: "mystery".into(), dtype: DType::F32, shape: [7].into() });
        let found = Inventory::of(&all).unwrap();
        assert_eq!(found.complete_heads(), [Head::Classifier]);
        let head = found.head(Head::Classifier).unwrap();
        assert_eq!((head.labels, head.expected, head.found), (Some(3), 41, 41));
        assert_eq!(found.variables, 41);
        assert_eq!(found.slots.len(), 1);
        assert_eq!((found.slots[0].count, found.slots[0].bytes), (41, found.bytes));
        assert_eq!(found.training_state[0].name, "global_step");
        assert_eq!(found.unexpected[0].name, "mystery");
        assert_eq!(found.from_shapes.as_ref().unwrap().config, small());
        assert_eq!(found.head(Head::Encoder).unwrap().unused, ["output_bias", "output_weights"]);
        serde_json::to_string(&found).unwrap();
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let mut all = infos(Head::Pretraining);
        all.retain(|info| !info.name.contains("layer_0/attention/self/key/kernel"));
        let bias = all.iter_mut().find(|info| info.name.ends_with("predictions/output_bias"));
        bias.unwrap().shape = [800].into();
        all.iter_mut().find(|i| i.name == "bert/pooler/dense/bias").unwrap().dtype = DType::I32;
        let found = Inventory::of(&all).unwrap();
        assert!(found.complete_heads().is_empty());
        let head = found.head(Head::Pretraining).unwrap();
        assert_eq!(head.missing.len(), 1);
        assert_eq!(head.missing[0].shape, [64, 64]);
        assert_eq!(head.wrong.len(), 2);
        assert_eq!((&head.wrong[1].expected, &head.wrong[1].found), (&vec![838], &vec![800]));
        // A SQuAD model without its pooler runs.
        let mut all = infos(Head::Squad);
        all.retain(|info| !info.name.contains("pooler"));
        let found = Inventory::of(&all).unwrap();
        assert_eq!(found.complete_heads(), [Head::Squad]);
        assert_eq!(found.head(Head::Squad).unwrap().missing.len(), 2);
        assert!(!found.head(Head::Encoder).unwrap().is_complete());
    }

    #[test]
    fn a_wrong_configuration_is_told_by_its_keys() {
        let config = BertConfig { hidden_size: 128, num_hidden_layers: 1, ..small() };
        let found = Inventory::with_config(&infos(Head::Squad), &config).unwrap();
        let keys: Vec<&str> = found.contradictions.iter().map(|d| d.key).collect();
        assert_eq!(keys, ["hidden_size", "num_hidden_layers"]);
        let squad = found.head(Head::Squad).unwrap();
        assert!(!squad.is_complete());
        assert_eq!(squad.unused.len(), 16);
    }

    #[test]
    fn no_bert_at_all() {
        let stranger = TensorInfo { name: "w".into(), dtype: DType::F32, shape: [3].into() };
        let found = Inventory::of(&[stranger]).unwrap();
        assert!(found.no_bert.is_some() && found.heads.is_empty());
        assert_eq!(found.unexpected.len(), 1);
        assert!(Inventory::of(&[]).unwrap().no_bert.is_some());
    }
}
