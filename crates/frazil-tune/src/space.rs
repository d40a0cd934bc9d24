//! All that a model can be: what its operations offer, narrowed by what the user asks for.
//!
//! The original left a wish that an operation could not fulfil aside without a word. Here it is
//! noted, and the operation is left in f32; if it was asked of that operation by its own name, it is
//! an error.

use std::collections::BTreeMap;

use crate::choice::{Activation, Choice, Configuration, Op, OpKind, Precision};
use crate::config::{Approach, Note, Part, Quantization, Wish};
use crate::error::{Error, Result};
use crate::weights::FULL;

/// Whole-model settings that `sensitivity` compares at most.
const MOST_PROFILES: usize = 6;

/// What a search goes through.
#[derive(Clone, Debug, PartialEq)]
pub struct Space {
    /// The operations, with what is left of their choices: never nothing.
    pub ops: Vec<Op>,
    /// Is the mean error of the weights taken out of the biases?
    pub bias_correction: bool,
    /// Settings of migration, the most wanted first: never nothing.
    pub migrations: Vec<Option<f32>>,
    /// The largest byte of a weight where that is not 127.
    pub largest: Option<u8>,
    /// Wishes that could not be fulfilled.
    pub notes: Vec<Note>,
}

impl Space {
    /// Narrows what `ops` offer by a configuration.
    ///
    /// # Errors
    /// If there are no operations, or a wish leaves one with its own name nothing to be.
    pub fn new(ops: &[Op], asked: &Quantization) -> Result<Self> {
        if ops.iter().all(|op| op.choices.is_empty()) {
            return Err(Error::NoOps);
        }
        let mut space = Self {
            ops: ops.iter().filter(|op| !op.choices.is_empty()).cloned().collect(),
            bias_correction: asked.bias_correction,
            migrations: vec![asked.migration],
            largest: asked.model_wise.weight.largest.filter(|&largest| largest != FULL),
            notes: Vec::new(),
        };
        space.narrow("quantization.approach", 0, |op, choice| {
            // Tables have no inputs, and the steps of an attention are always known beforehand.
            op.kind != OpKind::Linear
                || !choice.is_int8()
                || match choice.activation {
                    Activation::Static(_) => asked.approach != Approach::Dynamic,
                    Activation::Dynamic => asked.approach != Approach::Static,
                }
        });
        space.narrow("quantization.model_wise", 0, |op, choice| {
            allows(&asked.model_wise, op.kind, choice)
        });
        for wish in &asked.op_wise {
            let names = &wish.names;
            let path = format!("quantization.op_wise.{}", names.as_str());
            let Some(op) = space.ops.iter().find(|op| names.matches(&op.name)) else {
                let near = frazil_tensor::nearest(
                    names.as_str(),
                    space.ops.iter().map(|op| op.name.as_str()),
                );
                let mut text = String::from("no operation that could be in bytes has such a name");
                if let Some(name) = near.first() {
                    text += &format!("; there is `{name}`");
                }
                space.notes.push(Note { line: wish.line, path, text });
                continue;
            };
            if !names.is_pattern()
                && !op.choices.iter().any(|choice| allows(&wish.wish, op.kind, choice))
            {
                return Err(Error::NoChoice { op: op.name.clone(), wish: format!("`{path}`") });
            }
            space.narrow(&path, wish.line, |op, choice| {
                !names.matches(&op.name) || allows(&wish.wish, op.kind, choice)
            });
        }
        if !asked.first_matmul
            && let Some(first) = space.ops.iter_mut().find(|op| op.kind == OpKind::Linear)
        {
            first.choices = vec![Choice::F32];
        }
        Ok(space)
    }

    fn narrow(&mut self, path: &str, line: u64, keep: impl Fn(&Op, &Choice) -> bool) {
        let mut cannot = Vec::new();
        for op in &mut self.ops {
            let left: Vec<Choice> =
                op.choices.iter().filter(|choice| keep(op, choice)).copied().collect();
            let was_int8 = op.choices.iter().any(Choice::is_int8);
            if left.is_empty() {
                cannot.push(op.name.clone());
                op.choices = vec![Choice::F32];
                continue;
            }
            // Bytes were not forbidden, yet none of the kind that was asked for are offered.
            if was_int8 && !left.iter().any(Choice::is_int8) && !keep_bytes_off(op, &keep) {
                cannot.push(op.name.clone());
            }
            op.choices = left;
        }
        if let Some(first) = cannot.first() {
            let text = format!(
                "{} operations cannot be that and stay in f32: `{first}`{}",
                cannot.len(),
                if cannot.len() > 1 { ", …" } else { "" }
            );
            self.notes.push(Note { line, path: path.into(), text });
        }
    }

    /// What the operations are at the given places of their choices.
    ///
    /// # Panics
    /// If there is not a place for each operation, within its choices.
    pub fn configuration(&self, places: &[usize], migration: Option<f32>) -> Configuration {
        assert_eq!(places.len(), self.ops.len(), "a place for each operation");
        let ops = self.ops.iter().zip(places);
        Configuration {
            ops: ops.map(|(op, &place)| (op.name.clone(), op.choices[place])).collect(),
            bias_correction: self.bias_correction,
            migration,
            largest: self.largest,
        }
    }

    /// Every operation in bytes that can be, as it likes it most.
    pub fn most_wanted(&self) -> Configuration {
        let places: Vec<usize> = self.ops.iter().map(|op| first_int8(op).unwrap_or(0)).collect();
        self.configuration(&places, self.migrations[0])
    }

    /// The same with one setting for all products, each in turn, and each setting of migration.
    pub fn profiles(&self) -> Vec<Configuration> {
        let mut profiles = vec![self.most_wanted()];
        let mut settings: Vec<Choice> = Vec::new();
        for op in self.ops.iter().filter(|op| op.kind == OpKind::Linear) {
            for choice in op.choices.iter().filter(|choice| choice.is_int8()) {
                if !settings.contains(choice) {
                    settings.push(*choice);
                }
            }
        }
        for &migration in &self.migrations {
            for setting in &settings {
                let places: Vec<usize> = self.ops.iter().map(|op| place(op, setting)).collect();
                let profile = self.configuration(&places, migration);
                if profiles.len() < MOST_PROFILES && !profiles.contains(&profile) {
                    profiles.push(profile);
                }
            }
        }
        profiles
    }

    /// The distinct byte settings of each kind of operation, as the first that has them likes them.
    pub(crate) fn settings(&self) -> BTreeMap<OpKind, Vec<Choice>> {
        let mut settings: BTreeMap<OpKind, Vec<Choice>> = BTreeMap::new();
        for op in &self.ops {
            for choice in op.choices.iter().filter(|choice| choice.is_int8()) {
                let known = settings.entry(op.kind).or_default();
                if !known.contains(choice) {
                    known.push(*choice);
                }
            }
        }
        settings
    }

    /// A setting for each kind of operation.
    pub(crate) fn by_kind(&self, settings: &BTreeMap<OpKind, Choice>) -> Configuration {
        let of = |op: &Op| match settings.get(&op.kind) {
            Some(setting) => place(op, setting),
            None => first_int8(op).unwrap_or(0),
        };
        let places: Vec<usize> = self.ops.iter().map(of).collect();
        self.configuration(&places, self.migrations[0])
    }

    /// How many configurations there are; [`u64::MAX`] for that many and more.
    pub fn size(&self) -> u64 {
        self.ops.iter().fold(1u64, |size, op| size.saturating_mul(op.choices.len() as u64))
    }

    /// The operations that are in bytes in a configuration and may fall back to f32.
    pub(crate) fn can_fall_back(&self, configuration: &Configuration) -> Vec<&Op> {
        self.ops
            .iter()
            .filter(|op| configuration.ops.get(&op.name).is_some_and(Choice::is_int8))
            .filter(|op| op.choices.iter().any(|choice| !choice.is_int8()))
            .collect()
    }
}

/// Would no byte setting at all be kept?
fn keep_bytes_off(op: &Op, keep: &impl Fn(&Op, &Choice) -> bool) -> bool {
    // The wish has f32 only if it keeps f32 and refuses bytes of every setting that exists.
    use crate::choice::{Algorithm, Granularity};
    let algorithms = [
        Algorithm::MinMax,
        Algorithm::Mse,
        Algorithm::Kl,
        Algorithm::MovingAverage,
        Algorithm::Percentile(99.99),
    ];
    let activations =
        algorithms.iter().map(|&a| Activation::Static(a)).chain([Activation::Dynamic]);
    for activation in activations {
        for weight in algorithms {
            for granularity in [Granularity::Channel, Granularity::Tensor] {
                let precision = Precision::Int8;
                if keep(op, &Choice { precision, granularity, weight, activation }) {
                    return false;
                }
            }
        }
    }
    true
}

fn first_int8(op: &Op) -> Option<usize> {
    op.choices.iter().position(Choice::is_int8)
}

/// Where an operation has a setting, or else what it likes most.
fn place(op: &Op, setting: &Choice) -> usize {
    let same = op.choices.iter().position(|choice| choice == setting);
    same.or_else(|| first_int8(op)).unwrap_or(0)
}

fn allows(wish: &Wish, kind: OpKind, choice: &Choice) -> bool {
    let weight = (kind != OpKind::Attention).then_some(&wish.weight);
    let activation = (kind != OpKind::Table).then_some(&wish.activation);
    let precise = |part: &Part| match &part.precision {
        Some(precisions) => precisions.contains(&choice.precision),
        None => true,
    };
    if !weight.is_none_or(precise) || !activation.is_none_or(precise) {
        return false;
    }
    if !choice.is_int8() {
        return true;
    }
    if kind == OpKind::Linear {
        let part = &wish.weight;
        if !part.granularity.as_ref().is_none_or(|known| known.contains(&choice.granularity))
            || !part.algorithm.as_ref().is_none_or(|known| known.contains(&choice.weight))
        {
            return false;
        }
    }
    match (choice.activation, activation.and_then(|part| part.algorithm.as_ref())) {
        (Activation::Static(algorithm), Some(known)) => known.contains(&algorithm),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::{Algorithm, Granularity};
    use crate::config::Config;

    fn ops() -> Vec<Op> {
        let tensor = Choice { granularity: Granularity::Tensor, ..Choice::INT8 };
        let kl = Choice { activation: Activation::Static(Algorithm::Kl), ..Choice::INT8 };
        let dynamic = Choice { activation: Activation::Dynamic, ..Choice::INT8 };
        let all = vec![Choice::INT8, tensor, kl, dynamic, Choice::F32];
        let op = |name: &str, kind, choices: &[Choice]| Op {
            name: name.into(),
            kind,
            saves_us: 1.0,
            saves_bytes: 1,
            choices: choices.to_vec(),
        };
        vec![
            op("table", OpKind::Table, &[Choice::INT8, Choice::F32]),
            op("layer_0/q", OpKind::Linear, &all),
            op("layer_0/scores", OpKind::Attention, &[Choice::INT8, Choice::F32]),
            op("layer_1/q", OpKind::Linear, &all),
            op("MatMul", OpKind::Linear, &all),
        ]
    }

    fn space(yaml: &str) -> Result<Space> {
        let text = format!("model: {{name: m, framework: f}}\nquantization: {{{yaml}}}");
        Space::new(&ops(), &Config::parse(&text).unwrap().quantization)
    }

    fn choices(space: &Space, name: &str) -> Vec<Choice> {
        space.ops.iter().find(|op| op.name == name).unwrap().choices.clone()
    }

    #[test]
    fn static_by_default_dynamic_and_both_when_asked() {
        let plain = space("").unwrap();
        assert!(
            plain
                .ops
                .iter()
                .all(|op| { op.choices.iter().all(|c| c.activation != Activation::Dynamic) })
        );
        assert!(plain.notes.is_empty());
        assert_eq!(choices(&plain, "MatMul").len(), 4);
        let dynamic = space("approach: post_training_dynamic_quant").unwrap();
        assert_eq!(choices(&dynamic, "MatMul").len(), 2);
        let scores = choices(&dynamic, "layer_0/scores");
        assert_eq!(scores, choices(&plain, "layer_0/scores"), "always known beforehand");
        assert_eq!(choices(&dynamic, "table").len(), 2, "a table has no inputs");
        assert!(dynamic.notes.is_empty());
        let both = space("approach: post_training_auto_quant").unwrap();
        assert_eq!(choices(&both, "MatMul").len(), 5);
        assert_eq!(both.size(), 2 * 5 * 2 * 5 * 5);
    }

    #[test]
    fn the_recipe_keeps_one_product_in_f32() {
        let yaml = "model_wise: {weight: {granularity: per_channel}}, op_wise: {'MatMul': \
                    {'activation': {'dtype': ['fp32']}, 'weight': {'dtype': ['fp32']}}}";
        let space = space(yaml).unwrap();
        assert_eq!(choices(&space, "MatMul"), [Choice::F32]);
        let q = choices(&space, "layer_0/q");
        assert!(q.len() == 3 && q.iter().all(|c| c.granularity == Granularity::Channel));
        assert!(space.notes.is_empty());
        assert_eq!(space.most_wanted().int8_ops(), 4);
    }

    #[test]
    fn patterns_reach_many_and_unknown_names_are_noted() {
        let yaml = "op_wise: {'layer_[01]/q': {activation: {dtype: fp32}, weight: {dtype: fp32}}, \
                    'layer_2/q': {}}";
        let space = space(yaml).unwrap();
        assert_eq!(choices(&space, "layer_1/q"), [Choice::F32]);
        assert_eq!(choices(&space, "MatMul").len(), 4);
        assert!(space.notes[0].text.contains("there is `layer_"), "{:?}", space.notes);
    }

    #[test]
    fn what_cannot_be_is_noted_or_refused_by_name() {
        let all = space("model_wise: {activation: {algorithm: mse}}").unwrap();
        assert_eq!(choices(&all, "MatMul"), [Choice::F32]);
        assert!(all.notes[0].text.starts_with("4 operations cannot"), "{:?}", all.notes);
        let one =
            space("op_wise: {'MatMul': {activation: {algorithm: mse}, weight: {dtype: int8}}}");
        assert!(matches!(one, Err(Error::NoChoice { .. })));
        let none = Space::new(&[], &Quantization::default());
        assert!(matches!(none, Err(Error::NoOps)));
        // Whoever asks for bytes everywhere gets no fall-back, and f32 is no surprise.
        let forced = space("model_wise: {weight: {dtype: int8}}").unwrap();
        assert!(choices(&forced, "MatMul").iter().all(Choice::is_int8));
        let first = space("recipes: {first_conv_or_matmul_quantization: False}").unwrap();
        assert_eq!(choices(&first, "layer_0/q"), [Choice::F32]);
    }

    #[test]
    fn profiles_begin_with_the_most_wanted() {
        let mut space = space("").unwrap();
        space.migrations = vec![None, Some(0.5)];
        let profiles = space.profiles();
        assert_eq!(profiles[0], space.most_wanted());
        assert_eq!(profiles.len(), 6);
        assert_eq!(profiles[3].migration, Some(0.5));
        assert_eq!(profiles[1].ops["MatMul"].granularity, Granularity::Tensor);
    }
}
