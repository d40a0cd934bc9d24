//! google-research/bert's names as files have them: under a scope, with a port, with another
//! library's word for LayerNorm.

use std::collections::BTreeSet;

use frazil_tensor::TensorInfo;

use super::slot::{self, Slots};
use super::variables::{LAYER, decimal, part_of};
use super::{Naming, Row, Slot, Translation};
use crate::{Error, Result};

/// The end of every scope's word embeddings.
const WORDS: &str = "embeddings/word_embeddings";

/// Where a model lies: `bert/` itself, or what stands in its place.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// What precedes the encoder's own scope, with its slash: `module/`.
    outer: String,
    /// The encoder's own scope, with its slash: `bert/`.
    encoder: String,
}

impl Place {
    fn of(prefix: &str) -> Self {
        let inner = prefix.strip_suffix('/').unwrap_or(prefix);
        let at = inner.rfind('/').map_or(0, |at| at + 1);
        Self { outer: prefix[..at].to_string(), encoder: prefix[at..].to_string() }
    }

    /// Whether a name lies in this place: the encoder's, or its head's.
    fn covers(&self, name: &str) -> bool {
        match name.strip_prefix(&self.outer) {
            Some(rest) => !self.outer.is_empty() || rest.starts_with(&self.encoder),
            None => false,
        }
    }

    /// As users name it: without the last slash, `""` for the root.
    fn scope(&self) -> String {
        let whole = if self.encoder == "bert/" {
            self.outer.clone()
        } else {
            format!("{}{}", self.outer, self.encoder)
        };
        whole.trim_end_matches('/').to_string()
    }
}

/// Sorts the variables of a TensorFlow file.
pub(super) fn read(infos: &[TensorInfo], scope: Option<&str>) -> Result<Translation> {
    let mut all = Translation::new(Naming::TensorFlow);
    let places = places(infos);
    let place = match scope.map(|scope| scope.trim_end_matches('/')) {
        Some(scope) => match places.iter().find(|place| place.scope() == scope) {
            Some(place) => place.clone(),
            None => {
                let found = places.iter().map(Place::scope).collect();
                return Err(Error::NoSuchScope { scope: scope.to_string(), found });
            }
        },
        None => places.first().cloned().unwrap_or_else(|| Place::of("bert/")),
    };
    let others: Vec<&Place> = places.iter().filter(|other| **other != place).collect();
    if !places.is_empty() {
        let every = std::iter::once(&place).chain(others.iter().copied());
        all.scopes = every.map(Place::scope).collect();
    }

    let slots = Slots::new(infos);
    let is_model = |name: &str| canonical(name, &place).0.is_some();
    // A plain name wins over a variant that would become the same.
    let variant = |info: &&TensorInfo| part_of(&info.name).is_none();
    let (variants, plain): (Vec<&TensorInfo>, Vec<&TensorInfo>) = infos.iter().partition(variant);
    for info in plain.into_iter().chain(variants) {
        if let (Some(name), rules) = canonical(&info.name, &place) {
            rules.into_iter().for_each(|rule| all.note(rule, &info.name));
            all.add(Row::copy(name, info), info);
        } else if let Some(found) = slots.find(info, is_model) {
            let base = canonical(&found.of, &place).0;
            let (kind, of, orphan) = (found.kind, found.of, found.orphan);
            let name = match &base {
                Some(base) => format!("{base}/{kind}"),
                None => info.name.clone(),
            };
            all.slot_rows.push(Row::copy(name, info));
            all.slots.push(Slot { kind, of, base, orphan, info: info.clone() });
        } else if slot::is_state(info) {
            all.state.push(info.clone());
        } else if let Some(other) = others.iter().find(|other| other.covers(&info.name)) {
            all.ignore(info, format!("of the model under scope `{}`", other.scope()));
        } else {
            all.unexpected.push(info.clone());
        }
    }
    Ok(all.finish())
}

/// Every place that has word embeddings, or at least layers, the root first.
fn places(infos: &[TensorInfo]) -> Vec<Place> {
    let plain = |info: &TensorInfo| -> String {
        let name = info.name.strip_suffix(":0").unwrap_or(&info.name);
        name.strip_suffix(slot::OBJECT_VALUE).unwrap_or(name).to_string()
    };
    let names: Vec<String> = infos.iter().filter(|i| i.shape.len() == 2).map(plain).collect();
    let mut prefixes: BTreeSet<&str> = names
        .iter()
        .filter_map(|name| name.strip_suffix(WORDS))
        .filter(|prefix| prefix.is_empty() || prefix.ends_with('/'))
        .collect();
    if prefixes.is_empty() {
        prefixes = names
            .iter()
            .filter_map(|name| name.split_once("encoder/layer_").map(|(prefix, _)| prefix))
            .filter(|prefix| prefix.is_empty() || prefix.ends_with('/'))
            .collect();
    }
    let mut places: Vec<Place> = prefixes.into_iter().map(Place::of).collect();
    places.sort_by_key(|place| (place.scope() != "", place.clone()));
    places
}

/// The canonical name, if this is a name of BERT's, and the rules that led there.
fn canonical(name: &str, place: &Place) -> (Option<String>, Vec<String>) {
    let mut rules = Vec::new();
    let mut rest = name;
    if let Some(plain) = rest.strip_suffix(":0") {
        rules.push("port `:0` left out".to_string());
        rest = plain;
    }
    if let Some(plain) = rest.strip_suffix(slot::OBJECT_VALUE) {
        rules.push(format!("`{}` left out", slot::OBJECT_VALUE));
        rest = plain;
    }
    let whole = format!("{}{}", place.outer, place.encoder);
    let mut result = if let Some(inner) = rest.strip_prefix(&whole) {
        if place.encoder != "bert/" {
            rules.push(format!("encoder scope `{whole}` read as `bert/`"));
        } else if !place.outer.is_empty() {
            rules.push(format!("scope `{}` left out", place.outer));
        }
        format!("bert/{inner}")
    } else if let (false, Some(inner)) = (place.outer.is_empty(), rest.strip_prefix(&place.outer)) {
        rules.push(format!("scope `{}` left out", place.outer));
        inner.to_string()
    } else {
        rest.to_string()
    };
    if part_of(&result).is_none()
        && let Some((plain, rule)) = layer_norm(&result)
    {
        result = plain;
        rules.push(rule);
    }
    (part_of(&result).map(|_| result), rules)
}

/// `…/layer_normalization_7/gamma` and kin as `…/LayerNorm/gamma`.
fn layer_norm(name: &str) -> Option<(String, String)> {
    let (rest, last) = name.rsplit_once('/')?;
    let (before, norm) = rest.rsplit_once('/')?;
    let last_plain = match last {
        "gamma" | "weight" | "scale" => "gamma",
        "beta" | "bias" | "offset" => "beta",
        _ => return None,
    };
    let (stem, numbered) = match norm.rsplit_once('_') {
        Some((stem, number)) if decimal(number).is_some() => (stem, true),
        _ => (norm, false),
    };
    if !matches!(stem, "LayerNorm" | "layer_normalization" | "layer_norm" | "LayerNormalization") {
        return None;
    }
    // Keras numbers its layers through the whole model, so the number tells nothing.
    let shown = if numbered { format!("{stem}_N/{last}") } else { format!("{stem}/{last}") };
    let rule = format!("`{shown}` read as `LayerNorm/{last_plain}`");
    Some((format!("{before}/LayerNorm/{last_plain}"), rule))
}

/// Number of layers that the canonical names show.
///
/// Normally the highest number plus one, so that a gap shows as missing variables. A number far
/// beyond the count of layers present is somebody's mistake or malice; then only the layers up
/// to the first gap count.
pub(crate) fn layers<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    let layer = |name: &'a str| decimal(name.strip_prefix(LAYER)?.split_once('/')?.0);
    let present: BTreeSet<usize> = names.filter_map(layer).collect();
    match present.last() {
        None => 0,
        Some(&last) if last < 2 * present.len() + 16 => last + 1,
        Some(_) => present.iter().enumerate().take_while(|(i, layer)| i == *layer).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BertConfig;
    use crate::names::{Head, expected};
    use frazil_tensor::DType;

    fn model(head: Head, rename: impl Fn(&str) -> String) -> Vec<TensorInfo> {
        let config = BertConfig {
            hidden_size: 8,
            num_hidden_layers: 2,
            num_attention_heads: 2,
            ..BertConfig::new(20)
        };
        let info = |v: super::super::Expected| TensorInfo {
            name: rename(&v.name),
            dtype: DType::F32,
            shape: v.shape,
        };
        expected(&config, head, 3).into_iter().map(info).collect()
    }

    #[test]
    fn plain_names() {
        let all = read(&model(Head::Pretraining, str::to_string), None).unwrap();
        assert_eq!(all.rows.len(), 46);
        assert!(all.rules.is_empty() && all.unexpected.is_empty());
        assert_eq!(all.scopes, [""]);
    }

    #[test]
    fn scopes_and_ports() {
        let all = read(&model(Head::Pretraining, |name| format!("module/{name}:0")), None).unwrap();
        assert_eq!(all.rows.len(), 46);
        assert_eq!(all.scopes, ["module"]);
        assert_eq!(all.rules.len(), 2);
        assert!(all.rules.iter().all(|rule| rule.count == 46));
        // The classifier's variables are often outside the scope.
        let half = model(Head::Classifier, |name| match name.strip_prefix("bert/") {
            Some(rest) => format!("student/electra/{rest}"),
            None => name.to_string(),
        });
        let all = read(&half, None).unwrap();
        assert_eq!(all.rows.len(), 41);
        assert_eq!(all.scopes, ["student/electra"]);
        assert!(all.unexpected.is_empty());
    }

    #[test]
    fn two_models_in_one_file() {
        let mut infos = model(Head::Squad, |name| format!("teacher/{name}"));
        infos.extend(model(Head::Squad, |name| format!("student/{name}")));
        let all = read(&infos, None).unwrap();
        assert_eq!(all.scopes, ["student", "teacher"]);
        assert_eq!(all.rows.len(), 41);
        assert!(all.rows[0].from[0].starts_with("student/"));
        assert_eq!((all.ignored.len(), all.unexpected.len()), (41, 0));
        let teacher = read(&infos, Some("teacher/")).unwrap();
        assert!(teacher.rows.iter().all(|row| row.from[0].starts_with("teacher/")));
        assert!(matches!(read(&infos, Some("x")), Err(Error::NoSuchScope { .. })));
    }

    #[test]
    fn other_words_for_layer_norm() {
        let infos = model(Head::Pretraining, |name| {
            name.replace("LayerNorm/gamma", "layer_normalization_12/gamma")
                .replace("LayerNorm/beta", "layer_norm/bias")
        });
        let all = read(&infos, None).unwrap();
        assert_eq!(all.rows.len(), 46);
        assert_eq!(all.rules.len(), 2);
        assert!(all.rules.iter().all(|rule| rule.count == 6), "{:?}", all.rules);
    }

    #[test]
    fn slots_of_present_and_of_stripped_variables() {
        let mut infos = model(Head::Encoder, str::to_string);
        let slot = |info: &TensorInfo, kind: &str| TensorInfo {
            name: format!("{}/{kind}", info.name),
            ..info.clone()
        };
        let slots: Vec<TensorInfo> = infos.iter().map(|info| slot(info, "LAMB")).collect();
        let stripped = slots.clone();
        infos.extend(slots);
        let all = read(&infos, None).unwrap();
        assert_eq!((all.rows.len(), all.slots.len()), (39, 39));
        assert!(all.slots.iter().all(|s| s.kind == "LAMB" && !s.orphan && s.base.is_some()));
        let all = read(&stripped, None).unwrap();
        assert_eq!((all.rows.len(), all.slots.len()), (0, 39));
        assert!(all.slots.iter().all(|s| s.orphan));
    }

    #[test]
    fn a_variant_does_not_displace_the_plain_name() {
        let mut infos = model(Head::Encoder, str::to_string);
        let twin = TensorInfo {
            name: "bert/embeddings/layer_norm/gamma".into(),
            dtype: DType::F32,
            shape: [8].into(),
        };
        infos.insert(0, twin.clone());
        let all = read(&infos, None).unwrap();
        assert_eq!(all.unexpected, [twin]);
        assert_eq!(
            all.row("bert/embeddings/LayerNorm/gamma").unwrap().from,
            ["bert/embeddings/LayerNorm/gamma"]
        );
    }

    #[test]
    fn layers_are_counted_with_care() {
        let count = |numbers: &[usize]| {
            let names: Vec<String> =
                numbers.iter().map(|n| format!("{LAYER}{n}/output/dense/bias")).collect();
            layers(names.iter().map(String::as_str))
        };
        assert_eq!(count(&[]), 0);
        assert_eq!(count(&[0, 1, 3]), 4);
        assert_eq!(count(&[0, 1, 4_000_000_000]), 2);
        assert_eq!(count(&[usize::MAX]), 0);
    }
}
