//! Names of Graphcore's PopART BERT, both ways.
//!
//! Query, key and value are one matrix [H, 3H] there (or three, `split_qkv`); the NSP and SQuAD
//! weights are transposed; the pooler exists for NSP only. Two generations spell some names
//! differently ([`Spelling`]). The optimizer's moments carry PopART's prefixes for state.
//!
//! The original loader fills what it finds and leaves the rest uninitialised; here a missing
//! variable is an error. It also leaves the moments of transposed weights as they were; here
//! they follow their weights.

use std::collections::BTreeMap;

use frazil_tensor::{DType, TensorInfo};

use super::variables::{LAYER, WORD_EMBEDDINGS, decimal};
use super::{Fill, Head, Naming, Part, Row, Slot, Step, Translation, expected};
use crate::{BertConfig, Error, Result};

/// Prefix of the first moment.
pub const FIRST_MOMENT: &str = "Accl1___";
/// Prefix of the second moment.
pub const SECOND_MOMENT: &str = "Accl2___";
/// Prefixes of other state, which means nothing outside the machine that wrote it.
const OTHER_STATE: &[&str] = &["Accl___", "Accum___", "Step___", "CounterOut___"];

/// Slots of optimizers that keep two moments: first, second.
const MOMENTS: &[(&str, &str)] = &[
    ("LAMB", "LAMB_1"),
    ("lamb_m", "lamb_v"),
    ("adam_m", "adam_v"),
    ("Adam", "Adam_1"),
    ("BERTAdam", "BERTAdam_1"),
];

/// The two generations of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spelling {
    /// graphcore/examples: `QKV_Bias`, `Out_Bias`, no MLM bias.
    #[default]
    Examples,
    /// Graphcore's MLPerf submissions: `QKV_bias`, `Out_bias`, `MLM/ProjectionB`.
    Mlperf,
}

/// Canonical name, PopART's in both spellings, outside the layers.
const OUTSIDE: &[(&str, &str)] = &[
    (WORD_EMBEDDINGS, "Embedding/Embedding_Dict"),
    ("bert/embeddings/position_embeddings", "Embedding/Positional_Dict"),
    ("bert/embeddings/token_type_embeddings", "Embedding/Segment_Dict"),
    ("bert/embeddings/LayerNorm/gamma", "Embedding/Gamma"),
    ("bert/embeddings/LayerNorm/beta", "Embedding/Beta"),
    ("cls/predictions/transform/dense/kernel", "CLS/LMPredictionW"),
    ("cls/predictions/transform/dense/bias", "CLS/LMPredictionB"),
    ("cls/predictions/transform/LayerNorm/gamma", "CLS/Gamma"),
    ("cls/predictions/transform/LayerNorm/beta", "CLS/Beta"),
    ("cls/predictions/output_bias", "MLM/ProjectionB"),
    ("bert/pooler/dense/kernel", "NSP/PoolW"),
    ("bert/pooler/dense/bias", "NSP/PoolB"),
    ("cls/seq_relationship/output_weights", "NSP/NspW"),
    ("cls/seq_relationship/output_bias", "NSP/NspB"),
    ("cls/squad/output_weights", "Squad/SquadW"),
    ("cls/squad/output_bias", "Squad/SquadB"),
];

/// The same inside a layer, but for query, key and value.
const INSIDE: &[(&str, &str)] = &[
    ("attention/output/dense/kernel", "Attention/Out"),
    ("attention/output/dense/bias", "Attention/Out_Bias"),
    ("attention/output/LayerNorm/gamma", "Attention/Gamma"),
    ("attention/output/LayerNorm/beta", "Attention/Beta"),
    ("intermediate/dense/kernel", "FF/1/W"),
    ("intermediate/dense/bias", "FF/1/B"),
    ("output/dense/kernel", "FF/2/W"),
    ("output/dense/bias", "FF/2/B"),
    ("output/LayerNorm/gamma", "FF/Gamma"),
    ("output/LayerNorm/beta", "FF/Beta"),
];

/// Query, key, value in the order of the columns: canonical word, letter.
const QKV: [(&str, &str); 3] = [("query", "Q"), ("key", "K"), ("value", "V")];

/// How to make a PopART file of canonical variables.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whose spelling.
    pub spelling: Spelling,
    /// Three matrices for query, key and value instead of one.
    pub split_qkv: bool,
    /// Rows of the word embeddings (and of the MLM bias): cropped, or padded with zeros.
    pub vocab: Option<usize>,
    /// Rows of the position table: cropped, or repeated from the start.
    pub positions: Option<usize>,
    /// The weights' type, if not the source's.
    pub dtype: Option<DType>,
    /// Writes the optimizer's moments too.
    pub moments: bool,
    /// The first moments' type; second moments are always float32.
    pub first_moment_dtype: DType,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            spelling: Spelling::default(),
            split_qkv: false,
            vocab: None,
            positions: None,
            dtype: None,
            moments: false,
            first_moment_dtype: DType::F32,
        }
    }
}

/// What [`plan`] made.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The tensors to write.
    pub rows: Vec<Row>,
    /// Canonical variables of the head that PopART's model does not have.
    pub left_out: Vec<String>,
    /// The slots that were read as moments, first and second.
    pub moments: Option<(&'static str, &'static str)>,
}

/// Plan from canonical variables (and slots `<canonical>/<kind>` for the moments) to PopART's
/// initializers for a task. Missing variables are an error that lists them all.
pub fn plan(
    infos: &[TensorInfo],
    config: &BertConfig,
    head: Head,
    options: &Options,
) -> Result<Plan> {
    if head == Head::Classifier {
        return Err(Error::NoSuchHead { naming: Naming::Popart, head });
    }
    let by_name: BTreeMap<&str, &TensorInfo> =
        infos.iter().map(|info| (info.name.as_str(), info)).collect();
    let (mut groups, mut left_out): (Vec<(String, Vec<String>)>, _) = (Vec::new(), Vec::new());
    let mut missing = Vec::new();
    for variable in expected(config, head, 0) {
        let pooler = variable.part == Part::Pooler;
        if pooler && !matches!(head, Head::Pretraining | Head::Nsp) {
            left_out.extend(by_name.contains_key(&*variable.name).then_some(variable.name));
            continue;
        }
        let Some(target) = target(&variable.name, options) else {
            left_out.push(variable.name);
            continue;
        };
        match by_name.get(&*variable.name) {
            None => missing.push(variable.name.clone()),
            Some(info) if info.shape != variable.shape => {
                let (expected, found) = (variable.shape, info.shape.clone());
                return Err(Error::Shape { name: variable.name, expected, found });
            }
            Some(_) => {}
        }
        match groups.last_mut() {
            // Kernels and biases alternate in the table, so the open group may be the last but one.
            Some((name, from)) if *name == target => from.push(variable.name),
            _ => match groups.iter_mut().rev().take(2).find(|(name, _)| *name == target) {
                Some((_, from)) => from.push(variable.name),
                None => groups.push((target, vec![variable.name])),
            },
        }
    }
    let target = || format!("PopART's BERT for task {head}");
    if !missing.is_empty() {
        return Err(Error::Missing { target: target(), names: missing });
    }
    let mut rows = Vec::new();
    let row = |name: String, from: &[String], suffix: &str| -> Result<Row> {
        let lookup = |n: &String| by_name.get(format!("{n}{suffix}").as_str()).copied();
        let sources: Option<Vec<&TensorInfo>> = from.iter().map(lookup).collect();
        Row::new(name, &sources.unwrap_or_default(), steps(from, options))
    };
    for (name, from) in &groups {
        let row = row(name.clone(), from, "")?;
        rows.push(match options.dtype {
            Some(dtype) => row.cast(dtype),
            None => row,
        });
    }
    let mut moments = None;
    if options.moments {
        let (first, second) = moment_kinds(infos).unwrap_or(MOMENTS[0]);
        let of = |name: &String| [first, second].map(|kind| format!("{name}/{kind}"));
        let all = groups.iter().flat_map(|(_, from)| from).flat_map(of);
        let missing: Vec<String> = all.filter(|name| !by_name.contains_key(&**name)).collect();
        if !missing.is_empty() {
            let target = format!("the optimizer state of {}", target());
            return Err(Error::Missing { target, names: missing });
        }
        for (name, from) in &groups {
            let m = row(format!("{FIRST_MOMENT}{name}"), from, &format!("/{first}"))?;
            let v = row(format!("{SECOND_MOMENT}{name}"), from, &format!("/{second}"))?;
            rows.extend([m.cast(options.first_moment_dtype), v.cast(DType::F32)]);
        }
        moments = Some((first, second));
    }
    rows.sort_by(|a, b| a.target.name.cmp(&b.target.name));
    Ok(Plan { rows, left_out, moments })
}

/// The kinds of slots in this file that are moments, first and second.
pub fn moment_kinds(infos: &[TensorInfo]) -> Option<(&'static str, &'static str)> {
    let has = |kind: &str| {
        infos.iter().any(|info| info.name.rsplit_once('/').is_some_and(|(_, last)| last == kind))
    };
    MOMENTS.iter().copied().find(|(first, second)| has(first) && has(second))
}

/// PopART's name of a canonical variable; `None` if its model has no such weight.
fn target(canonical: &str, options: &Options) -> Option<String> {
    let mlperf = options.spelling == Spelling::Mlperf;
    let Some((layer, rest)) = super::variables::in_layer(canonical) else {
        let (_, name) = OUTSIDE.iter().find(|(tf, _)| *tf == canonical)?;
        return (mlperf || *name != "MLM/ProjectionB").then(|| name.to_string());
    };
    let bias = if mlperf { "_bias" } else { "_Bias" };
    let name = match rest.strip_prefix("attention/self/").and_then(|rest| rest.split_once('/')) {
        Some((word, last)) => {
            let (_, letter) = QKV.iter().find(|(known, _)| *known == word)?;
            let stem = if options.split_qkv { letter } else { "QKV" };
            format!("Attention/{stem}{}", if last == "bias" { bias } else { "" })
        }
        None => INSIDE.iter().find(|(tf, _)| *tf == rest)?.1.replace("_Bias", bias),
    };
    Some(format!("Layer{layer}/{name}"))
}

/// Steps from the sources to the target.
fn steps(from: &[String], options: &Options) -> Vec<Step> {
    let first = from.first().map_or("", String::as_str);
    if from.len() > 1 {
        return vec![Step::Join(usize::from(first.ends_with("kernel")))];
    }
    match first {
        WORD_EMBEDDINGS | "cls/predictions/output_bias" => {
            options.vocab.map(|rows| Step::Rows(rows, Fill::Zero)).into_iter().collect()
        }
        "bert/embeddings/position_embeddings" => {
            options.positions.map(|rows| Step::Rows(rows, Fill::Again)).into_iter().collect()
        }
        "cls/seq_relationship/output_weights" | "cls/squad/output_weights" => {
            vec![Step::Transpose]
        }
        _ => Vec::new(),
    }
}

/// Whether these are such names.
pub(super) fn is(infos: &[TensorInfo]) -> bool {
    infos.iter().any(|info| {
        info.name.starts_with("Embedding/Embedding_Dict")
            || layer(&info.name).is_some_and(|(_, rest)| rest.starts_with("Attention/"))
    })
}

/// `Layer3/FF/1/W` as `(3, "FF/1/W")`.
fn layer(name: &str) -> Option<(usize, &str)> {
    let (number, rest) = name.strip_prefix("Layer")?.split_once('/')?;
    Some((decimal(number)?, rest))
}

/// Sorts the tensors of a PopART file. Moments become slots `LAMB` and `LAMB_1`.
pub(super) fn read(infos: &[TensorInfo]) -> Result<Translation> {
    let mut all = Translation::new(Naming::Popart);
    // Serialised embeddings come in pieces, by moment: number, tensor.
    let mut pieces: BTreeMap<&str, BTreeMap<usize, &TensorInfo>> = BTreeMap::new();
    for info in infos {
        let (kind, name) = if let Some(name) = info.name.strip_prefix(FIRST_MOMENT) {
            ("LAMB", name)
        } else if let Some(name) = info.name.strip_prefix(SECOND_MOMENT) {
            ("LAMB_1", name)
        } else {
            ("", info.name.as_str())
        };
        if OTHER_STATE.iter().any(|prefix| name.starts_with(prefix)) {
            all.state.push(info.clone());
            continue;
        }
        if let Some(number) = name.strip_prefix("Embedding/Embedding_Dict/split").and_then(decimal)
        {
            pieces.entry(kind).or_default().insert(number, info);
            continue;
        }
        let made = sources(name, info);
        if made.is_empty() {
            all.unexpected.push(info.clone());
        }
        for (canonical, how) in made {
            place(&mut all, kind, &canonical, &[info], how);
        }
    }
    for (kind, pieces) in pieces {
        let parts: Vec<&TensorInfo> = pieces.into_values().collect();
        all.note("`Embedding_Dict/splitN` joined", &parts[0].name);
        place(&mut all, kind, WORD_EMBEDDINGS, &parts, vec![Step::Join(0)]);
    }
    Ok(all.finish())
}

/// Adds the row for a weight, or for the moment of one.
fn place(
    all: &mut Translation,
    kind: &str,
    canonical: &str,
    sources: &[&TensorInfo],
    how: Vec<Step>,
) {
    let name = if kind.is_empty() { canonical.to_string() } else { format!("{canonical}/{kind}") };
    let Ok(row) = Row::new(name, sources, how) else {
        all.unexpected.extend(sources.iter().map(|info| (*info).clone()));
        return;
    };
    if kind.is_empty() {
        all.add(row, sources[0]);
        return;
    }
    all.slot_rows.push(row);
    for info in sources {
        // A fused matrix comes by three times and is one slot.
        if all.slots.iter().any(|slot| slot.info.name == info.name) {
            continue;
        }
        all.slots.push(Slot {
            kind: kind.to_string(),
            of: info.name[FIRST_MOMENT.len()..].to_string(),
            base: Some(canonical.to_string()),
            orphan: false,
            info: (*info).clone(),
        });
    }
}

/// The canonical variables in a PopART tensor and how to take each out.
fn sources(name: &str, info: &TensorInfo) -> Vec<(String, Vec<Step>)> {
    let Some((layer, rest)) = layer(name) else {
        let found = OUTSIDE.iter().find(|(_, known)| *known == name);
        let one =
            found.map(|(tf, _)| (tf.to_string(), steps(&[tf.to_string()], &Options::default())));
        return one.into_iter().collect();
    };
    let rest = rest.replace("_bias", "_Bias");
    let canonical = |tf: &str| format!("{LAYER}{layer}/{tf}");
    if let Some((tf, _)) = INSIDE.iter().find(|(_, known)| *known == rest) {
        return vec![(canonical(tf), Vec::new())];
    }
    let Some(attention) = rest.strip_prefix("Attention/") else { return Vec::new() };
    let (stem, last) = match attention.strip_suffix("_Bias") {
        Some(stem) => (stem, "bias"),
        None => (attention, "kernel"),
    };
    let tf = |word: &str| canonical(&format!("attention/self/{word}/{last}"));
    if let Some((word, _)) = QKV.iter().find(|(_, letter)| *letter == stem) {
        return vec![(tf(word), Vec::new())];
    }
    let Some(&columns) = info.shape.last().filter(|c| stem == "QKV" && c.is_multiple_of(3)) else {
        return Vec::new();
    };
    let h = columns / 3;
    let third = |(i, (word, _)): (usize, &(&str, &str))| {
        (tf(word), vec![Step::Columns(i * h, (i + 1) * h)])
    };
    QKV.iter().enumerate().map(third).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::plan::testing::Memory;
    use crate::names::{self, Mapped};
    use frazil_tensor::{Shape, Tensor, TensorStore};

    fn config() -> BertConfig {
        BertConfig {
            hidden_size: 64,
            num_hidden_layers: 2,
            num_attention_heads: 2,
            intermediate_size: 96,
            max_position_embeddings: 20,
            type_vocab_size: 2,
            ..BertConfig::new(128)
        }
    }

    fn store(head: Head, kinds: &[&str]) -> Memory {
        let all = expected(&config(), head, 3);
        let slots = kinds.iter().flat_map(|kind| {
            all.iter().map(move |v| (format!("{}/{kind}", v.name), v.shape.clone()))
        });
        let slots: Vec<(String, Shape)> = slots.collect();
        Memory::counting(all.into_iter().map(|v| (v.name, v.shape)).chain(slots))
    }

    fn export(store: &Memory, head: Head, options: &Options) -> Memory {
        let plan = plan(&store.infos, &config(), head, options).unwrap();
        let named = |row: &Row| (row.target.name.clone(), row.run(store).unwrap());
        Memory::new(plan.rows.iter().map(named).collect())
    }

    fn column(tensor: &Tensor, row: usize, column: usize) -> f32 {
        tensor.values::<f32>().unwrap()[row * tensor.shape()[1] + column]
    }

    #[test]
    fn fused_columns_are_query_key_value() {
        let store = store(Head::Pretraining, &[]);
        let out = export(&store, Head::Pretraining, &Options::default());
        let fused = out.tensor("Layer1/Attention/QKV").unwrap();
        assert_eq!(**fused.shape(), [64, 192]);
        for (i, (word, _)) in QKV.iter().enumerate() {
            let name = format!("bert/encoder/layer_1/attention/self/{word}/kernel");
            let part = store.tensor(&name).unwrap();
            assert_eq!(column(&fused, 5, i * 64 + 7), column(&part, 5, 7));
        }
        assert_eq!(*out.info("Layer0/Attention/QKV_Bias").unwrap().shape, [192]);
        assert_eq!(*out.info("NSP/NspW").unwrap().shape, [64, 2]);
        // 5 + 12 per layer + MLM without its bias + pooler and NSP
        assert_eq!(out.infos.len(), 5 + 2 * 12 + 4 + 4);
    }

    #[test]
    fn the_mlperf_spelling() {
        let store = store(Head::Pretraining, &[]);
        let options = Options { spelling: Spelling::Mlperf, ..Options::default() };
        let out = export(&store, Head::Pretraining, &options);
        for name in ["MLM/ProjectionB", "Layer0/Attention/QKV_bias", "Layer1/Attention/Out_bias"] {
            assert!(out.info(name).is_some(), "{name}");
        }
        assert!(!out.infos.iter().any(|info| info.name.ends_with("_Bias")));
        assert_eq!(out.infos.len(), 5 + 2 * 12 + 5 + 4);
    }

    /// Fused to split to fused, through canonical names each time.
    #[test]
    fn split_and_fuse_again() {
        let original = store(Head::Pretraining, &[]);
        let mlperf = Options { spelling: Spelling::Mlperf, ..Options::default() };
        let fused = export(&original, Head::Pretraining, &mlperf);
        let through = |from: &Memory, options: &Options| -> Memory {
            let rows = names::read(&from.infos, None).unwrap().rows;
            let canonical = Mapped::new(from, rows);
            let plan = plan(canonical.infos(), &config(), Head::Pretraining, options).unwrap();
            let named = |row: &Row| (row.target.name.clone(), row.run(&canonical).unwrap());
            Memory::new(plan.rows.iter().map(named).collect())
        };
        let split = through(&fused, &Options { split_qkv: true, ..mlperf.clone() });
        assert!(split.info("Layer0/Attention/K_bias").is_some());
        let again = through(&split, &mlperf);
        assert_eq!(again.infos, fused.infos);
        assert_eq!(again.tensors, fused.tensors);
        let back = Mapped::new(&again, names::read(&again.infos, None).unwrap().rows);
        for info in original.infos() {
            assert_eq!(original.tensor(&info.name).unwrap(), back.tensor(&info.name).unwrap());
        }
    }

    #[test]
    fn vocabulary_and_positions_change_length() {
        let store = store(Head::Pretraining, &[]);
        let options = Options {
            spelling: Spelling::Mlperf,
            vocab: Some(130),
            positions: Some(45),
            ..Options::default()
        };
        let out = export(&store, Head::Pretraining, &options);
        let words = out.tensor("Embedding/Embedding_Dict").unwrap();
        assert_eq!(**words.shape(), [130, 64]);
        assert_eq!((column(&words, 127, 63) > 0.0, column(&words, 129, 63)), (true, 0.0));
        assert_eq!(*out.info("MLM/ProjectionB").unwrap().shape, [130]);
        let positions = out.tensor("Embedding/Positional_Dict").unwrap();
        assert_eq!(column(&positions, 44, 3), column(&positions, 4, 3));
        let short = Options { vocab: Some(100), positions: Some(8), ..options };
        let out = export(&store, Head::Pretraining, &short);
        assert_eq!(*out.info("Embedding/Embedding_Dict").unwrap().shape, [100, 64]);
        assert_eq!(*out.info("Embedding/Positional_Dict").unwrap().shape, [8, 64]);
    }

    #[test]
    fn moments_follow_their_weights() {
        let store = store(Head::Pretraining, &["LAMB", "LAMB_1"]);
        let options = Options {
            moments: true,
            dtype: Some(DType::F16),
            first_moment_dtype: DType::F16,
            ..Options::default()
        };
        let out = export(&store, Head::Pretraining, &options);
        assert_eq!(out.infos.len(), 3 * 37);
        let dtype = |name: &str| out.info(name).unwrap().dtype;
        assert_eq!(dtype("Layer0/Attention/QKV"), DType::F16);
        assert_eq!(dtype("Accl1___Layer0/Attention/QKV"), DType::F16);
        assert_eq!(dtype("Accl2___Layer0/Attention/QKV"), DType::F32);
        assert_eq!(*out.info("Accl1___NSP/NspW").unwrap().shape, [64, 2]);

        let exact = Options { moments: true, ..Options::default() };
        let out = export(&store, Head::Pretraining, &exact);
        let back = names::read(&out.infos, None).unwrap();
        assert_eq!(back.slots.len(), 2 * 37);
        let slots = Mapped::new(&out, back.slot_rows);
        for info in slots.infos() {
            assert_eq!(slots.tensor(&info.name).unwrap(), store.tensor(&info.name).unwrap());
        }
        assert_eq!(slots.infos().len(), 2 * 45);
    }

    #[test]
    fn nothing_is_left_uninitialised() {
        let mut infos = store(Head::Squad, &["LAMB", "LAMB_1"]).infos;
        let moments = Options { moments: true, ..Options::default() };
        infos.retain(|info| info.name != "bert/encoder/layer_0/attention/self/key/bias/LAMB_1");
        let error = plan(&infos, &config(), Head::Squad, &moments).unwrap_err();
        let Error::Missing { names, .. } = error else { panic!("{error}") };
        assert_eq!(names, ["bert/encoder/layer_0/attention/self/key/bias/LAMB_1"]);
        infos.retain(|info| !info.name.contains("/value/kernel"));
        let error = plan(&infos, &config(), Head::Squad, &Options::default()).unwrap_err();
        let Error::Missing { names, .. } = error else { panic!("{error}") };
        assert_eq!(names.len(), 2);
        let error = plan(&infos, &config(), Head::Classifier, &Options::default()).unwrap_err();
        assert!(matches!(error, Error::NoSuchHead { .. }));
        let wide = BertConfig { hidden_size: 128, ..config() };
        let error = plan(&infos, &wide, Head::Squad, &Options::default()).unwrap_err();
        assert!(matches!(error, Error::Shape { .. }));
    }

    #[test]
    fn serialised_embeddings_are_joined_in_order() {
        let store = Memory::counting([
            ("Embedding/Embedding_Dict/split0".to_string(), Shape::from([2, 4])),
            ("Embedding/Embedding_Dict/split1".to_string(), Shape::from([2, 4])),
            ("Embedding/Embedding_Dict/split10".to_string(), Shape::from([1, 4])),
            ("Embedding/Embedding_Dict/split2".to_string(), Shape::from([2, 4])),
        ]);
        let all = names::read(&store.infos, None).unwrap();
        let tensor = all.row(WORD_EMBEDDINGS).unwrap().run(&store).unwrap();
        assert_eq!(**tensor.shape(), [7, 4]);
        assert_eq!(column(&tensor, 6, 0), 17.0);
    }
}
