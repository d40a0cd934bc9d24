//! What the graph peers start from: the frazil program, and checkpoints with values of our own
//! under names and shapes that are not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use frazil_tensor::{Shape, Tensor};
use frazil_tf::bundle::{Bundle, BundleWriter, WriteOptions};
use serde_json::json;

use super::{Task, make_parent, synthetic};
use crate::large::{self, Size};

/// One of the models that Google published for TensorFlow 1.
pub struct Model {
    /// As its zip is called.
    pub name: &'static str,
    size: Size,
}

const fn base(name: &'static str, vocabulary: usize) -> Model {
    Model { name, size: Size { layers: 12, hidden: 768, vocabulary, positions: 512 } }
}

const fn large(name: &'static str, vocabulary: usize) -> Model {
    Model { name, size: Size { vocabulary, ..large::LARGE } }
}

/// The seven that OpenVINO's page on BERT lists.
pub const MODELS: [Model; 7] = [
    base("cased_L-12_H-768_A-12", 28_996),
    base("uncased_L-12_H-768_A-12", 30_522),
    base("multi_cased_L-12_H-768_A-12", 119_547),
    base("multilingual_L-12_H-768_A-12", 105_879),
    base("chinese_L-12_H-768_A-12", 21_128),
    large("cased_L-24_H-1024_A-16", 28_996),
    large("uncased_L-24_H-1024_A-16", 30_522),
];

/// The vocabularies of the shared data, by size.
const VOCABULARIES: [(usize, &str); 4] = [
    (28_996, "data/vocab/bert_cased_vocab.txt"),
    (30_522, "data/vocab/bert_uncased_vocab.txt"),
    (119_547, "data/vocab/bert_multilingual_cased_vocab.txt"),
    (21_128, "data/vocab/bert_chinese_vocab.txt"),
];

/// Google's own MetaGraph; of its checkpoint only the index is at hand.
const GOOGLE: &str = "data/checkpoints/google_chinese_L-12_H-768_A-12";
const PREFIX: &str = "bert_model.ckpt";

/// Fills the folder of `goldens` with the checkpoints that are not among the originals.
pub(super) fn originals(task: &Task) -> Result<()> {
    match (task.model, &task.shared) {
        (Some(model), shared) => published(model, shared.as_deref(), &task.out.join(model.name)),
        (None, Some(shared)) => google(&shared.join(GOOGLE), &task.out.join("google")),
        (None, None) => Ok(()),
    }
}

/// Builds the frazil program, which the scripts call; gigabytes want the `optimised` one.
pub(super) fn build(optimised: bool) -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    // Beside xtask, so that its libraries, which are built by now, have the features wanted here.
    cargo.args(["build", "--quiet", "--package", "xtask", "--package", "frazil"]);
    cargo.args(["--bin", "frazil"]);
    if optimised {
        cargo.arg("--release");
    }
    let status = cargo.current_dir(crate::root()).status().context("starting `cargo`")?;
    ensure!(status.success(), "{cargo:?} failed: {status}");
    let folder = crate::target().join(if optimised { "release" } else { "debug" });
    Ok(folder.join(format!("frazil{}", std::env::consts::EXE_SUFFIX)))
}

/// The MetaGraph as it is, and a checkpoint of the index's names and shapes.
fn google(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for file in ["bert_config.json", "vocab.txt", "bert_model.ckpt.meta"] {
        fs::copy(from.join(file), to.join(file)).with_context(|| format!("copying `{file}`"))?;
    }
    let index = Bundle::open(from.join(PREFIX), true)?;
    let variables = index.infos().iter().map(|info| (info.name.as_str(), info.shape.clone()));
    checkpoint(&to.join(PREFIX), variables)
}

/// A checkpoint with its config and its vocabulary, or a made-up one where that is not at hand, as
/// it is in the zip, but for the graph.
fn published(model: &Model, shared: Option<&Path>, to: &Path) -> Result<()> {
    let Size { layers, hidden, vocabulary, positions } = model.size;
    let config = json!({
        "attention_probs_dropout_prob": 0.1,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": hidden,
        "initializer_range": 0.02,
        "intermediate_size": 4 * hidden,
        "max_position_embeddings": positions,
        "num_attention_heads": hidden / 64,
        "num_hidden_layers": layers,
        "type_vocab_size": 2,
        "vocab_size": vocabulary,
    });
    let path = to.join("bert_config.json");
    make_parent(&path)?;
    fs::write(path, serde_json::to_string_pretty(&config)?)?;
    let real = VOCABULARIES.iter().find(|(size, _)| *size == vocabulary);
    let pieces = match real.zip(shared) {
        Some(((_, file), shared)) => fs::read_to_string(shared.join(file))?,
        None => {
            let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(str::to_owned);
            let unused = (special.len()..vocabulary).map(|n| format!("[unused{n}]"));
            special.into_iter().chain(unused).collect::<Vec<_>>().join("\n") + "\n"
        }
    };
    fs::write(to.join("vocab.txt"), pieces)?;
    let table = large::table(model.size);
    let variables = table.iter().map(|entry| (entry.name.as_str(), entry.shape.clone().into()));
    checkpoint(&to.join(PREFIX), variables)
}

fn checkpoint<'a>(prefix: &Path, variables: impl Iterator<Item = (&'a str, Shape)>) -> Result<()> {
    let mut writer = BundleWriter::create(prefix, WriteOptions::default())?;
    for (i, (name, shape)) in variables.enumerate() {
        writer.add(name, &weight(name, shape, i as u64 + 1)?)?;
    }
    Ok(writer.finish()?)
}

/// Values that keep a BERT's hidden states in the range of a trained one: 1 ± 0.07 for the scales
/// of LayerNorm, else 0 ± 0.07, which is a standard deviation of 0.04.
fn weight(name: &str, shape: Shape, seed: u64) -> Result<Tensor> {
    let centre = if name.ends_with("/gamma") { 1.0 } else { 0.0 };
    let value = |n: u64| centre + ((n >> 40) as f32 / (1 << 23) as f32 - 1.0) * 0.07;
    let count = shape.elements().context("a shape that fits")?;
    Ok(Tensor::from_vec(shape, synthetic::stream(seed).take(count).map(value).collect())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_small_and_differ() {
        let kernel = weight("dense/kernel", Shape::from([100]), 1).unwrap();
        let kernel = kernel.values::<f32>().unwrap();
        assert!(kernel.iter().all(|v| v.abs() <= 0.07), "{kernel:?}");
        let mean = kernel.iter().sum::<f32>() / 100.0;
        assert!(mean.abs() < 0.02, "{mean}");
        let gamma = weight("LayerNorm/gamma", Shape::from([2]), 2).unwrap();
        let gamma = gamma.values::<f32>().unwrap();
        assert!(gamma.iter().all(|v| (v - 1.0).abs() <= 0.07) && gamma[0] != gamma[1], "{gamma:?}");
    }

    #[test]
    fn models_have_their_published_sizes() {
        let parameters = |model: &Model| {
            large::table(model.size)
                .iter()
                .filter(|entry| entry.name.starts_with("bert/"))
                .map(|entry| entry.shape.iter().product::<usize>())
                .sum::<usize>()
        };
        let millions: Vec<usize> = MODELS.iter().map(|m| parameters(m) / 1_000_000).collect();
        assert_eq!(millions, [108, 109, 177, 167, 102, 333, 335]);
    }
}
