//! Names of TensorFlow 2's Model Garden (`official/nlp/bert`, up to v2.3) in object checkpoints.
//!
//! Keras numbers the layers that have weights: 0 to 2 are the tables, 3 their LayerNorm, then
//! the encoder's layers, last the pooler. Attention matrices keep their heads as an axis of
//! their own, which is the one place where the number of heads shows in a shape. Heads above
//! the encoder are not read.

use frazil_tensor::{Shape, TensorInfo};

use super::slot::{self, OBJECT_VALUE, Slots};
use super::variables::{LAYER, WORD_EMBEDDINGS, decimal};
use super::{Naming, Row, Slot, Step, Translation};

const NUMBERED: &str = "layer_with_weights-";

/// Name in the garden, canonical name, both inside a layer.
const INSIDE: &[(&str, &str)] = &[
    ("_attention_layer/_query_dense", "attention/self/query"),
    ("_attention_layer/_key_dense", "attention/self/key"),
    ("_attention_layer/_value_dense", "attention/self/value"),
    ("_attention_output_dense", "attention/output/dense"),
    ("_attention_layer/_output_dense", "attention/output/dense"),
    ("_attention_layer_norm", "attention/output/LayerNorm"),
    ("_intermediate_dense", "intermediate/dense"),
    ("_output_dense", "output/dense"),
    ("_output_layer_norm", "output/LayerNorm"),
];

/// What precedes the numbered layers of an encoder in this file.
fn prefix(infos: &[TensorInfo]) -> Option<&str> {
    let query = |info: &&TensorInfo| {
        info.name.ends_with("/_attention_layer/_query_dense/kernel/.ATTRIBUTES/VARIABLE_VALUE")
            && !info.name.contains("/.OPTIMIZER_SLOT/")
    };
    let name = &infos.iter().find(query)?.name;
    Some(&name[..name.rfind(NUMBERED)?])
}

/// Whether these are such names.
pub(super) fn is(infos: &[TensorInfo]) -> bool {
    prefix(infos).is_some()
}

/// Sorts the variables of such a checkpoint.
pub(super) fn read(infos: &[TensorInfo]) -> Translation {
    let mut all = Translation::new(Naming::ModelGarden);
    let prefix = prefix(infos).unwrap_or_default();
    let layer = |name: &str| -> Option<usize> {
        decimal(name.strip_prefix(prefix)?.strip_prefix(NUMBERED)?.split_once('/')?.0)
    };
    // The pooler is the numbered layer after the last that has attention.
    let attention = infos.iter().filter(|info| info.name.contains("/_attention_layer/"));
    let last = attention.filter_map(|info| layer(&info.name)).max().unwrap_or(0);
    let canonical = |name: &str| -> Option<String> {
        let rest = name.strip_suffix(OBJECT_VALUE)?.strip_prefix(prefix)?;
        let (number, rest) = rest.strip_prefix(NUMBERED)?.split_once('/')?;
        let tables = [
            WORD_EMBEDDINGS,
            "bert/embeddings/position_embeddings",
            "bert/embeddings/token_type_embeddings",
        ];
        match decimal(number)? {
            n @ 0..=2 => (rest == "embeddings").then(|| tables[n].to_string()),
            3 => matches!(rest, "gamma" | "beta")
                .then(|| format!("bert/embeddings/LayerNorm/{rest}")),
            n if n <= last => {
                let (block, leaf) = rest.rsplit_once('/')?;
                let (_, tf) = INSIDE.iter().find(|(known, _)| *known == block)?;
                Some(format!("{LAYER}{}/{tf}/{leaf}", n - 4))
            }
            n if Some(n) == last.checked_add(1) => {
                matches!(rest, "kernel" | "bias").then(|| format!("bert/pooler/dense/{rest}"))
            }
            _ => None,
        }
        .filter(|name| super::variables::part_of(name).is_some())
    };
    let slots = Slots::new(infos);
    for info in infos {
        if let Some(name) = canonical(&info.name) {
            if let ([_, heads, _], true) = (&*info.shape, name.ends_with("query/kernel")) {
                all.heads = Some(*heads);
            }
            match row(&name, info) {
                Some(row) => {
                    all.note("Model Garden's numbered layers read as BERT's", &info.name);
                    all.add(row, info);
                }
                None => all.unexpected.push(info.clone()),
            }
        } else if let Some(found) = slots.find(info, |_| false) {
            let base = canonical(&found.of);
            if let Some(base) = &base
                && let Some(row) = row(&format!("{base}/{}", found.kind), info)
            {
                all.slot_rows.push(row);
            }
            let (kind, of, orphan) = (found.kind, found.of, found.orphan);
            all.slots.push(Slot { kind, of, base, orphan, info: info.clone() });
        } else if slot::is_state(info) {
            all.state.push(info.clone());
        } else {
            all.unexpected.push(info.clone());
        }
    }
    all.finish()
}

/// Heads as an axis of their own are flattened: [H, A, D] and [A, D, H] to [H, H], [A, D] to [H].
fn row(name: &str, info: &TensorInfo) -> Option<Row> {
    let split = name.contains("/attention/self/");
    let output = name.contains("/attention/output/dense/kernel");
    let flat: Option<Shape> = match *info.shape {
        [h, a, d] if split => Some([h, a.checked_mul(d)?].into()),
        [a, d] if split && name.contains("/bias") => Some([a.checked_mul(d)?].into()),
        [a, d, h] if output => Some([a.checked_mul(d)?, h].into()),
        _ => None,
    };
    Row::new(name, &[info], flat.map(Step::Reshape).into_iter().collect()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names;
    use frazil_tensor::DType;

    /// As the garden's encoder would be saved, with 2 layers of 4 heads of 16.
    fn infos() -> Vec<TensorInfo> {
        let mut list: Vec<(String, Vec<usize>)> = vec![
            ("0/embeddings".into(), vec![50, 64]),
            ("1/embeddings".into(), vec![32, 64]),
            ("2/embeddings".into(), vec![2, 64]),
            ("3/gamma".into(), vec![64]),
            ("3/beta".into(), vec![64]),
            ("6/kernel".into(), vec![64, 64]),
            ("6/bias".into(), vec![64]),
        ];
        for n in [4, 5] {
            for part in ["query", "key", "value"] {
                list.push((format!("{n}/_attention_layer/_{part}_dense/kernel"), vec![64, 4, 16]));
                list.push((format!("{n}/_attention_layer/_{part}_dense/bias"), vec![4, 16]));
            }
            for (name, shape) in [
                ("_attention_output_dense/kernel", vec![4, 16, 64]),
                ("_attention_output_dense/bias", vec![64]),
                ("_attention_layer_norm/gamma", vec![64]),
                ("_attention_layer_norm/beta", vec![64]),
                ("_intermediate_dense/kernel", vec![64, 256]),
                ("_intermediate_dense/bias", vec![256]),
                ("_output_dense/kernel", vec![256, 64]),
                ("_output_dense/bias", vec![64]),
                ("_output_layer_norm/gamma", vec![64]),
                ("_output_layer_norm/beta", vec![64]),
            ] {
                list.push((format!("{n}/{name}"), shape));
            }
        }
        let info = |(name, shape): (String, Vec<usize>)| TensorInfo {
            name: format!("model/{NUMBERED}{name}{OBJECT_VALUE}"),
            dtype: DType::F32,
            shape: shape.into(),
        };
        list.into_iter().map(info).collect()
    }

    #[test]
    fn numbered_layers_are_a_bert() {
        let all = names::read(&infos(), None).unwrap();
        assert_eq!(all.naming, Naming::ModelGarden);
        assert_eq!((all.rows.len(), all.unexpected.len()), (39, 0));
        let read = all.from_shapes().unwrap();
        assert_eq!(read.config.num_attention_heads, 4);
        assert!(read.guessed.is_empty());
        let report = crate::inventory::report(&all.infos(), &read.config, names::Head::Encoder);
        assert!(report.is_complete(), "{report:?}");
    }

    #[test]
    fn slots_and_counters() {
        let mut infos = infos();
        let slot = "model/layer_with_weights-5/_attention_layer/_query_dense/kernel\
                    /.OPTIMIZER_SLOT/optimizer/m/.ATTRIBUTES/VARIABLE_VALUE";
        for (name, shape) in [
            (slot, vec![64, 4, 16]),
            ("optimizer/iter/.ATTRIBUTES/VARIABLE_VALUE", vec![]),
            ("_CHECKPOINTABLE_OBJECT_GRAPH", vec![]),
        ] {
            let (name, shape) = (name.to_string(), shape.into());
            infos.push(TensorInfo { name, dtype: DType::F32, shape });
        }
        let all = names::read(&infos, None).unwrap();
        assert_eq!((all.slots.len(), all.state.len(), all.unexpected.len()), (1, 2, 0));
        let row = &all.slot_rows[0];
        let name = "bert/encoder/layer_1/attention/self/query/kernel/optimizer/m";
        assert_eq!((row.target.name.as_str(), &*row.target.shape), (name, &[64usize, 64][..]));
    }
}
