//! The files of the embedded model: vocabulary, configuration, and checkpoints as TensorFlow 1 leaves them,
//! without what an optimizer remembers.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use frazil::bert::build::{self, build};
use frazil::bert::{BertConfig, Head};
use frazil::convert::tf;
use frazil::graph::Op;
use frazil::tensor::TensorStore;
use frazil::tf::bundle::{BundleWriter, WriteOptions};
use frazil::tf::meta_graph;
use frazil::tf::proto::GraphDef;
use frazil::train::{checkpoint, loss};
use serde_json::json;

use super::{LENGTH, grammar};

/// What every vocabulary of BERT begins with.
const SPECIAL: [&str; 5] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
const SIGNS: &str = "!\"#$%&'()*+,-./:;?@_";

/// The batch that graphs of a training have in them: examples are fed in blocks of one size.
const BATCH: usize = 32;

/// The pieces, in their order: signs, letters and digits alone and within a word, then words.
pub fn vocabulary() -> Vec<String> {
    let mut words = BTreeSet::new();
    let sources = grammar::templates().chain(grammar::words()).chain(["she he her his s"]);
    for text in sources {
        let text = ["{p's}", "{p}", "{a}", "{b}s", "{b}"]
            .iter()
            .fold(text.to_lowercase(), |text, slot| text.replace(slot, " "));
        let parts = text.split(|letter: char| !letter.is_alphanumeric());
        words.extend(parts.filter(|word| word.len() > 1).map(str::to_owned));
    }
    let letters: Vec<char> = ('0'..='9').chain('a'..='z').collect();
    SPECIAL
        .into_iter()
        .map(str::to_owned)
        .chain(SIGNS.chars().map(String::from))
        .chain(letters.iter().map(|letter| letter.to_string()))
        .chain(letters.iter().map(|letter| format!("##{letter}")))
        .chain(words)
        .collect()
}

/// `bert_config.json`.
pub fn config(vocab_size: usize) -> String {
    let config = json!({
        "attention_probs_dropout_prob": 0.0,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "hidden_size": 64,
        "initializer_range": 0.02,
        "intermediate_size": 256,
        "max_position_embeddings": LENGTH,
        "num_attention_heads": 4,
        "num_hidden_layers": 3,
        "type_vocab_size": 2,
        "vocab_size": vocab_size,
    });
    format!("{config:#}\n")
}

/// The weights of a model's graph out of a checkpoint, and that graph, with its loss and with the sizes
/// that it was trained in.
pub fn checkpoint(from: &Path, config: &BertConfig, head: Head, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to.parent().context("a checkpoint lies in a folder")?)?;
    let sizes = build::Options { batch: Some(BATCH), seq: Some(LENGTH), ..Default::default() };
    let mut graph = build(config, head, &sizes)?;
    loss::attach(&mut graph, head, loss::Options { padding: true, outputs: true })?;
    let weights = frazil::source::open_weights(from, &Default::default())?;
    let mut writer = BundleWriter::create(to, WriteOptions::default())?;
    let mut names: Vec<&str> = graph
        .nodes()
        .filter(|(_, node)| matches!(node.op, Op::Variable(_)))
        .map(|(_, node)| node.name.as_str())
        .collect();
    names.sort_unstable();
    for name in names {
        let tensor = weights.tensor(name).map_err(anyhow::Error::from_boxed)?;
        writer.add(name, &tensor)?;
    }
    writer.finish()?;
    let mut meta = tf::meta_graph(&graph, &[])?;
    if head == Head::Pretraining {
        name_as_google(meta.graph_def.as_mut().context("a MetaGraph has a graph")?);
    }
    Ok(meta_graph::write(checkpoint::meta_path(to), &meta)?)
}

/// Gives the model's inputs the names that they have in the graphs of Google's zips.
fn name_as_google(graph: &mut GraphDef) {
    const NAMES: [(&str, &str); 3] = [
        ("input_ids", "Placeholder"),
        ("input_mask", "Placeholder_1"),
        ("segment_ids", "Placeholder_2"),
    ];
    let rename = |name: &mut String| {
        if let Some((_, new)) = NAMES.iter().find(|(old, _)| name == old) {
            (*new).clone_into(name);
        }
    };
    for node in &mut graph.node {
        rename(&mut node.name);
        node.input.iter_mut().for_each(rename);
    }
}
