//! Names of Hugging Face's PyTorch BERT, both ways.
//!
//! PyTorch keeps a dense layer's matrix as [out, in], so every kernel is transposed on the way;
//! the heads' `output_weights` are [out, in] on both sides. The MLM decoder is the word
//! embedding itself and is not stored twice.

use frazil_tensor::{DType, TensorInfo};

use super::variables::{IN_LAYER, LAYER, WORD_EMBEDDINGS, decimal};
use super::{Head, Naming, Part, Row, Step, Translation, expected};
use crate::{BertConfig, Error, Result};

/// Canonical name, Hugging Face's name, both outside the layers.
const OUTSIDE: &[(&str, &str)] = &[
    (WORD_EMBEDDINGS, "bert.embeddings.word_embeddings.weight"),
    ("bert/embeddings/token_type_embeddings", "bert.embeddings.token_type_embeddings.weight"),
    ("bert/embeddings/position_embeddings", "bert.embeddings.position_embeddings.weight"),
    ("bert/embeddings/LayerNorm/gamma", "bert.embeddings.LayerNorm.weight"),
    ("bert/embeddings/LayerNorm/beta", "bert.embeddings.LayerNorm.bias"),
    ("bert/pooler/dense/kernel", "bert.pooler.dense.weight"),
    ("bert/pooler/dense/bias", "bert.pooler.dense.bias"),
    ("cls/predictions/transform/dense/kernel", "cls.predictions.transform.dense.weight"),
    ("cls/predictions/transform/dense/bias", "cls.predictions.transform.dense.bias"),
    ("cls/predictions/transform/LayerNorm/gamma", "cls.predictions.transform.LayerNorm.weight"),
    ("cls/predictions/transform/LayerNorm/beta", "cls.predictions.transform.LayerNorm.bias"),
    ("cls/predictions/output_bias", "cls.predictions.bias"),
    ("cls/seq_relationship/output_weights", "cls.seq_relationship.weight"),
    ("cls/seq_relationship/output_bias", "cls.seq_relationship.bias"),
    ("output_weights", "classifier.weight"),
    ("output_bias", "classifier.bias"),
    ("cls/squad/output_weights", "qa_outputs.weight"),
    ("cls/squad/output_bias", "qa_outputs.bias"),
];

/// Prefix of a layer's tensors; the number and `.` follow.
const HF_LAYER: &str = "bert.encoder.layer.";

/// Words that name another model family where `bert` would stand.
const OTHER_FAMILIES: &[&str] = &[
    "roberta",
    "distilbert",
    "electra",
    "albert",
    "camembert",
    "xlm_roberta",
    "mpnet",
    "deberta",
    "longformer",
    "big_bird",
    "convbert",
    "layoutlm",
    "mobilebert",
    "nomic_bert",
    "squeezebert",
    "transformer",
];

/// Pieces of names that only other families have.
const FOREIGN_PIECES: &[(&str, &str)] = &[
    (".q_lin.", "distilbert"),
    ("albert_layer_groups.", "albert"),
    (".query_proj.", "deberta"),
    (".attention.attn.q.", "mpnet"),
    (".crossattention.", "bert decoder"),
    ("embeddings_project.", "electra"),
    ("distance_embedding.", "bert with relative positions"),
];

/// Hugging Face's name of a canonical variable.
pub fn name_of(canonical: &str) -> Option<String> {
    if let Some((layer, rest)) = super::variables::in_layer(canonical) {
        IN_LAYER.iter().find(|(known, _)| *known == rest)?;
        return Some(format!("{HF_LAYER}{layer}.{}", in_layer_name(rest)));
    }
    OUTSIDE.iter().find(|(tf, _)| *tf == canonical).map(|(_, hf)| hf.to_string())
}

/// Inside a layer the names correspond word by word.
fn in_layer_name(rest: &str) -> String {
    let dotted = rest.replace('/', ".");
    match dotted.rsplit_once('.') {
        Some((before, "kernel" | "gamma")) => format!("{before}.weight"),
        Some((before, "beta")) => format!("{before}.bias"),
        _ => dotted,
    }
}

/// The canonical name of a tensor in Hugging Face's plain form (prefix `bert.`, `weight`).
fn canonical_of(hf: &str) -> Option<String> {
    if let Some(rest) = hf.strip_prefix(HF_LAYER) {
        let (number, rest) = rest.split_once('.')?;
        let layer = decimal(number)?;
        let (tf, _) = IN_LAYER.iter().find(|(tf, _)| in_layer_name(tf) == rest)?;
        return Some(format!("{LAYER}{layer}/{tf}"));
    }
    OUTSIDE.iter().find(|(_, known)| *known == hf).map(|(tf, _)| tf.to_string())
}

fn transposed(canonical: &str) -> bool {
    canonical.ends_with("/kernel")
}

/// Whether these are such names.
pub(super) fn is(infos: &[TensorInfo]) -> bool {
    infos.iter().any(|info| {
        let name = &info.name;
        name.ends_with("embeddings.word_embeddings.weight")
            || name.contains("encoder.layer.0.")
            || name.contains("transformer.layer.0.")
    })
}

/// Sorts the tensors of a Hugging Face file.
pub(super) fn read(infos: &[TensorInfo]) -> Result<Translation> {
    let mut all = Translation::new(Naming::HuggingFace);
    for (piece, family) in FOREIGN_PIECES {
        if infos.iter().any(|info| info.name.contains(piece)) {
            return Err(Error::OtherModel { found: family.to_string() });
        }
    }
    let wrapper = wrapper(infos)?;
    let mut second_bias = None;
    for info in infos {
        let (plain, rules) = plain(&info.name, &wrapper);
        match plain.as_str() {
            "bert.embeddings.position_ids" | "bert.embeddings.token_type_ids" => {
                all.ignore(info, "a constant, not a weight");
                continue;
            }
            "cls.predictions.decoder.weight" => {
                all.tied.push((info.name.clone(), WORD_EMBEDDINGS.to_string()));
                all.ignore(info, "tied to the word embeddings");
                continue;
            }
            "cls.predictions.decoder.bias" => {
                second_bias = Some(info);
                continue;
            }
            _ => {}
        }
        let Some(name) = canonical_of(&plain) else {
            all.unexpected.push(info.clone());
            continue;
        };
        let how = if transposed(&name) { vec![Step::Transpose] } else { Vec::new() };
        match Row::new(name, &[info], how) {
            Ok(row) => {
                rules.into_iter().for_each(|rule| all.note(rule, &info.name));
                all.add(row, info);
            }
            Err(_) => all.unexpected.push(info.clone()),
        }
    }
    if let Some(info) = second_bias {
        let canonical = "cls/predictions/output_bias";
        if all.row(canonical).is_some() {
            all.tied.push((info.name.clone(), canonical.to_string()));
            all.ignore(info, "tied to `cls.predictions.bias`");
        } else {
            all.note("`decoder.bias` read as the MLM bias", &info.name);
            all.add(Row::copy(canonical, info), info);
        }
    }
    Ok(all.finish())
}

/// What precedes `bert.` or the bare encoder in this file, `0.auto_model.` for example.
fn wrapper(infos: &[TensorInfo]) -> Result<String> {
    const ENDS: &[&str] = &["embeddings.word_embeddings.weight", "encoder.layer.0."];
    let prefix = ENDS.iter().find_map(|end| {
        infos.iter().find_map(|info| info.name.find(end).map(|at| &info.name[..at]))
    });
    let prefix = prefix.unwrap_or("");
    let whole = prefix.strip_suffix('.').unwrap_or(prefix);
    let last = whole.rsplit('.').next().unwrap_or(whole);
    if OTHER_FAMILIES.contains(&last) {
        return Err(Error::OtherModel { found: last.to_string() });
    }
    let outer = prefix.strip_suffix("bert.").filter(|o| o.is_empty() || o.ends_with('.'));
    Ok(outer.unwrap_or(prefix).to_string())
}

/// The plain form of a name, and the rules that led there.
fn plain(name: &str, wrapper: &str) -> (String, Vec<String>) {
    let mut rules = Vec::new();
    let mut rest = name;
    if let (false, Some(inner)) = (wrapper.is_empty(), rest.strip_prefix(wrapper)) {
        rules.push(format!("prefix `{wrapper}` left out"));
        rest = inner;
    }
    let bare = ["embeddings.", "encoder.", "pooler."].iter().any(|start| rest.starts_with(start));
    let mut result = if bare {
        rules.push("prefix `bert.` added".to_string());
        format!("bert.{rest}")
    } else {
        rest.to_string()
    };
    for (old, new) in
        [("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")]
    {
        if let Some(before) = result.strip_suffix(old) {
            result = format!("{before}{new}");
            rules.push(format!("`{old}` read as `{new}`"));
        }
    }
    if result.contains(".dense_act.") {
        result = result.replace(".dense_act.", ".dense.");
        rules.push("`dense_act` read as `dense`".to_string());
    }
    (result, rules)
}

/// How to make a Hugging Face file of canonical variables.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Writes the pooler even where the class for the head has none.
    pub keep_pooler: bool,
    /// Another floating-point type than the variables have.
    pub dtype: Option<DType>,
}

/// What [`plan`] made.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The tensors to write.
    pub rows: Vec<Row>,
    /// Canonical variables of the head that the class does not have.
    pub left_out: Vec<String>,
}

/// Plan from canonical variables to the tensors of the class for `head` ([`architecture`]).
///
/// Missing variables are an error that lists them all; the pooler is asked for only where the
/// class has one.
pub fn plan(
    infos: &[TensorInfo],
    config: &BertConfig,
    head: Head,
    labels: usize,
    options: &Options,
) -> Result<Plan> {
    let mut plan = Plan { rows: Vec::new(), left_out: Vec::new() };
    let mut missing = Vec::new();
    for variable in expected(config, head, labels) {
        let pooler_unused = variable.part == Part::Pooler && !head.needs(Part::Pooler);
        let Some(info) = infos.iter().find(|info| info.name == variable.name) else {
            // `BertModel` runs without its pooler: sentence encoders are published that way.
            if variable.part != Part::Pooler
                || !matches!(head, Head::Encoder | Head::Mlm | Head::Squad)
            {
                missing.push(variable.name);
            }
            continue;
        };
        if pooler_unused && !options.keep_pooler {
            plan.left_out.push(variable.name);
            continue;
        }
        if info.shape != variable.shape {
            let (expected, found) = (variable.shape, info.shape.clone());
            return Err(Error::Shape { name: variable.name, expected, found });
        }
        let Some(mut name) = name_of(&variable.name) else { continue };
        if head == Head::Encoder
            && let Some(bare) = name.strip_prefix("bert.")
        {
            name = bare.to_string();
        }
        let how = if transposed(&variable.name) { vec![Step::Transpose] } else { Vec::new() };
        let mut row = Row::new(name, &[info], how)?;
        if let Some(dtype) = options.dtype {
            row = row.cast(dtype);
        }
        plan.rows.push(row);
    }
    if !missing.is_empty() {
        return Err(Error::Missing { target: architecture(head).to_string(), names: missing });
    }
    plan.rows.sort_by(|a, b| a.target.name.cmp(&b.target.name));
    Ok(plan)
}

/// The class of transformers that has this head.
pub fn architecture(head: Head) -> &'static str {
    match head {
        Head::Encoder => "BertModel",
        Head::Pretraining => "BertForPreTraining",
        Head::Mlm => "BertForMaskedLM",
        Head::Nsp => "BertForNextSentencePrediction",
        Head::Classifier => "BertForSequenceClassification",
        Head::Squad => "BertForQuestionAnswering",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::plan::testing::Memory;
    use crate::names::{self, Mapped};
    use frazil_tensor::TensorStore;

    fn config() -> BertConfig {
        BertConfig {
            hidden_size: 8,
            num_hidden_layers: 2,
            num_attention_heads: 2,
            intermediate_size: 12,
            max_position_embeddings: 6,
            type_vocab_size: 2,
            ..BertConfig::new(20)
        }
    }

    fn store(head: Head) -> Memory {
        Memory::counting(expected(&config(), head, 3).into_iter().map(|v| (v.name, v.shape)))
    }

    fn exported(head: Head, options: &Options) -> Memory {
        let store = store(head);
        let plan = plan(&store.infos, &config(), head, 3, options).unwrap();
        let named = |row: &Row| (row.target.name.clone(), row.run(&store).unwrap());
        Memory::new(plan.rows.iter().map(named).collect())
    }

    #[test]
    fn every_variable_has_a_name_and_comes_back() {
        for head in Head::ALL {
            for variable in expected(&config(), head, 3) {
                let name = name_of(&variable.name).unwrap();
                assert_eq!(canonical_of(&name).as_deref(), Some(variable.name.as_str()));
            }
        }
        assert_eq!(
            name_of("bert/encoder/layer_11/attention/output/LayerNorm/gamma").unwrap(),
            "bert.encoder.layer.11.attention.output.LayerNorm.weight"
        );
        assert_eq!(name_of("bert/encoder/layer_0/nonsense"), None);
        assert_eq!(canonical_of("bert.encoder.layer.00.output.dense.bias"), None);
    }

    #[test]
    fn there_and_back_bit_for_bit() {
        for head in Head::ALL {
            let original = store(head);
            let written = exported(head, &Options { keep_pooler: true, dtype: None });
            let back = names::read(&written.infos, None).unwrap();
            assert!(back.unexpected.is_empty());
            let back = Mapped::new(&written, back.rows);
            assert_eq!(back.infos(), original.infos(), "{head}");
            for info in original.infos() {
                let (was, is) = (original.tensor(&info.name), back.tensor(&info.name));
                assert_eq!(was.unwrap(), is.unwrap(), "{}", info.name);
            }
        }
    }

    #[test]
    fn classes_without_a_pooler() {
        let squad = exported(Head::Squad, &Options::default());
        assert!(squad.info("bert.pooler.dense.weight").is_none());
        assert_eq!(squad.infos.len(), 39);
        assert_eq!(exported(Head::Classifier, &Options::default()).infos.len(), 41);
        let encoder = exported(Head::Encoder, &Options::default());
        assert!(encoder.info("embeddings.word_embeddings.weight").is_some());
        let shape = &encoder.info("encoder.layer.0.intermediate.dense.weight").unwrap().shape;
        assert_eq!(**shape, [12, 8]);
    }

    #[test]
    fn missing_variables_are_listed() {
        let mut infos = store(Head::Pretraining).infos;
        infos.retain(|info| !info.name.contains("layer_1/attention/self/key"));
        let error = plan(&infos, &config(), Head::Pretraining, 0, &Options::default()).unwrap_err();
        let Error::Missing { names, .. } = error else { panic!("{error}") };
        assert_eq!(names.len(), 2);
    }

    #[test]
    fn the_usual_variants() {
        let written = exported(Head::Pretraining, &Options::default());
        let rename = |f: &dyn Fn(&str) -> String| -> Vec<TensorInfo> {
            let one = |info: &TensorInfo| TensorInfo { name: f(&info.name), ..info.clone() };
            written.infos.iter().map(one).collect()
        };
        let variants: [&dyn Fn(&str) -> String; 4] = [
            &|name| format!("module.{name}"),
            &|name| {
                name.replace("LayerNorm.weight", "LayerNorm.gamma")
                    .replace("LayerNorm.bias", "LayerNorm.beta")
            },
            &|name| name.replace("dense.", "dense_act."),
            &|name| name.replace("predictions.bias", "predictions.decoder.bias"),
        ];
        for (i, variant) in variants.iter().enumerate() {
            let all = names::read(&rename(variant), None).unwrap();
            assert_eq!((all.rows.len(), all.unexpected.len()), (46, 0), "variant {i}");
            assert!(!all.rules.is_empty(), "variant {i}");
        }
        let sentence = exported(Head::Encoder, &Options::default());
        let one = |info: &TensorInfo| TensorInfo {
            name: format!("0.auto_model.{}", info.name),
            ..info.clone()
        };
        let all = names::read(&sentence.infos.iter().map(one).collect::<Vec<_>>(), None).unwrap();
        assert_eq!((all.rows.len(), all.unexpected.len()), (39, 0));
    }

    #[test]
    fn tied_and_constant_tensors_are_known() {
        let mut infos = exported(Head::Mlm, &Options::default()).infos;
        let add = |name: &str, shape: &[usize]| TensorInfo {
            name: name.into(),
            dtype: DType::F32,
            shape: shape.into(),
        };
        infos.push(add("bert.embeddings.position_ids", &[1, 6]));
        infos.push(add("cls.predictions.decoder.weight", &[20, 8]));
        infos.push(add("cls.predictions.decoder.bias", &[20]));
        let all = names::read(&infos, None).unwrap();
        assert_eq!((all.ignored.len(), all.tied.len(), all.unexpected.len()), (3, 2, 0));
    }

    #[test]
    fn other_families_are_refused_by_name() {
        for (name, family) in [
            ("roberta.embeddings.word_embeddings.weight", "roberta"),
            ("distilbert.embeddings.word_embeddings.weight", "distilbert"),
            ("transformer.layer.0.attention.q_lin.weight", "distilbert"),
            ("module.electra.embeddings.word_embeddings.weight", "electra"),
        ] {
            let info = TensorInfo { name: name.into(), dtype: DType::F32, shape: [9, 8].into() };
            let error = names::read(&[info], None).unwrap_err();
            assert!(matches!(&error, Error::OtherModel { found } if found == family), "{error}");
        }
    }
}
