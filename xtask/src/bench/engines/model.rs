//! The models: made once by frazil below the target folder, in every format that an arm reads.
//!
//! A folder has `bert_config.json`, `vocab.txt`, the checkpoint `bert_model.ckpt`,
//! `huggingface/model.safetensors`, the frozen graph `frozen.pb` where TensorFlow takes part, and, where a
//! Python arm's environment is at hand, `model.onnx`; all with the same weights. What engines make of these
//! for themselves is beside them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use frazil::bert::Head;
use frazil::ops::convert::{self, Target};
use frazil::source::GraphOptions;
use frazil_tensor::{Shape, Tensor};
use frazil_tf::bundle::{BundleWriter, WriteOptions};
use serde_json::json;

use crate::large;
use crate::peers::python::Python;
use crate::peers::synthetic;

/// The sizes of a BERT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The folder's name begins with it.
    pub name: &'static str,
    /// Encoder layers.
    pub layers: usize,
    /// Width of the hidden state; a quarter of the feed-forward's.
    pub hidden: usize,
    heads: usize,
    vocabulary: usize,
}

impl Size {
    /// BERT-base.
    pub const BASE: Self =
        Self { name: "base", layers: 12, hidden: 768, heads: 12, vocabulary: 30_522 };
    /// BERT-large.
    pub const LARGE: Self =
        Self { name: "large", layers: 24, hidden: 1024, heads: 16, vocabulary: 30_522 };
    /// To see that everything works.
    pub const TINY: Self = Self { name: "tiny", layers: 2, hidden: 128, heads: 2, vocabulary: 838 };

    /// The same with another number of layers.
    pub fn with_layers(self, layers: usize) -> Self {
        Self { layers, ..self }
    }

    /// Multiplications and additions that sequences of these lengths need, padding not counted.
    pub fn operations(&self, lengths: &[usize]) -> f64 {
        let h = self.hidden as f64;
        let one = |&s: &usize| {
            let s = s as f64;
            let linear = 2.0 * s * h * (3.0 * h + h + 4.0 * h + 4.0 * h);
            let attention = 2.0 * 2.0 * s * s * h;
            self.layers as f64 * (linear + attention) + 2.0 * s * h * 2.0
        };
        lengths.iter().map(one).sum()
    }

    /// Bytes of the weights as float32.
    pub fn bytes(&self) -> u64 {
        let parameters = |(_, shape): (String, Vec<usize>)| shape.iter().product::<usize>() as u64;
        4 * self.variables().into_iter().map(parameters).sum::<u64>()
    }

    fn folder(&self) -> PathBuf {
        let name = format!("{}-L{}-H{}", self.name, self.layers, self.hidden);
        crate::target().join("bench/models").join(name)
    }

    fn variables(&self) -> Vec<(String, Vec<usize>)> {
        let mut variables = self.encoder();
        variables.push(("cls/squad/output_bias".into(), vec![2]));
        variables.push(("cls/squad/output_weights".into(), vec![2, self.hidden]));
        variables
    }

    fn encoder(&self) -> Vec<(String, Vec<usize>)> {
        let Self { layers, hidden, vocabulary, .. } = *self;
        let table = large::table(large::Size { layers, hidden, vocabulary, positions: 512 });
        let encoder = table.into_iter().filter(|entry| !entry.name.starts_with("cls/"));
        encoder.map(|entry| (entry.name, entry.shape)).collect()
    }
}

/// The model's folder, filled now if it is not. `python` writes the ONNX file.
pub fn ready(size: Size, frozen: bool, python: Option<&Python>) -> Result<PathBuf> {
    let folder = size.folder();
    fs::create_dir_all(&folder)?;
    let folder = folder.canonicalize()?;
    let prefix = folder.join("bert_model.ckpt");
    if !folder.join("bert_model.ckpt.index").is_file() {
        eprintln!("writing `{}`", folder.display());
        describe(size, &folder)?;
        checkpoint(size.variables(), &prefix)?;
    }
    for (name, to) in [("frozen.pb", Target::Tf), ("huggingface", Target::Huggingface)] {
        let path = folder.join(name);
        let done = if to == Target::Tf { path.clone() } else { path.join("model.safetensors") };
        if !done.is_file() && (frozen || to != Target::Tf) {
            write_as(&prefix, &path, to, Head::Squad)?;
        }
    }
    if let (Some(python), false) = (python, folder.join("model.onnx").is_file()) {
        let status = python.script("arms/bert_onnx.py").arg(&folder).status()?;
        ensure!(status.success(), "`bert_onnx.py` failed");
    }
    Ok(folder)
}

/// The folder of the same model with a classifier of two classes instead: the checkpoint, and what
/// transformers read.
pub fn classifier(size: Size) -> Result<PathBuf> {
    let mut folder = size.folder().into_os_string();
    folder.push("-classifier");
    fs::create_dir_all(&folder)?;
    let folder = PathBuf::from(folder).canonicalize()?;
    let (prefix, path) = (folder.join("bert_model.ckpt"), folder.join("huggingface"));
    if !path.join("model.safetensors").is_file() {
        eprintln!("writing `{}`", folder.display());
        describe(size, &folder)?;
        let mut variables = size.encoder();
        variables.push(("output_bias".into(), vec![2]));
        variables.push(("output_weights".into(), vec![2, size.hidden]));
        checkpoint(variables, &prefix)?;
        write_as(&prefix, &path, Target::Huggingface, Head::Classifier)?;
    }
    Ok(folder)
}

fn write_as(prefix: &Path, path: &Path, to: Target, head: Head) -> Result<()> {
    let mut options = convert::Options::new(to);
    options.graph = GraphOptions { head: Some(head), ..GraphOptions::default() };
    convert::convert(prefix, path, &options)
        .with_context(|| format!("writing `{}`", path.display()))?;
    Ok(())
}

fn describe(size: Size, folder: &Path) -> Result<()> {
    let config = json!({
        "attention_probs_dropout_prob": 0.1,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": size.hidden,
        "initializer_range": 0.02,
        "intermediate_size": 4 * size.hidden,
        "max_position_embeddings": 512,
        "num_attention_heads": size.heads,
        "num_hidden_layers": size.layers,
        "type_vocab_size": 2,
        "vocab_size": size.vocabulary,
    });
    fs::write(folder.join("bert_config.json"), serde_json::to_string_pretty(&config)? + "\n")?;
    let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(str::to_owned);
    let pieces = (special.len()..size.vocabulary).map(|n| format!("[unused{n}]"));
    let pieces: Vec<String> = special.into_iter().chain(pieces).collect();
    Ok(fs::write(folder.join("vocab.txt"), pieces.join("\n") + "\n")?)
}

fn checkpoint(variables: Vec<(String, Vec<usize>)>, prefix: &Path) -> Result<()> {
    let mut writer = BundleWriter::create(prefix, WriteOptions::default())?;
    for (i, (name, shape)) in variables.into_iter().enumerate() {
        writer.add(&name, &weight(&name, shape.into(), i as u64 + 1)?)?;
    }
    Ok(writer.finish()?)
}

/// 1 ± 0.05 for the scales of LayerNorm; else 0 ± 0.05, which keeps the numbers between the layers
/// in the range of a trained model.
fn weight(name: &str, shape: Shape, seed: u64) -> Result<Tensor> {
    let centre = if name.ends_with("/gamma") { 1.0 } else { 0.0 };
    let value = |n: u64| centre + ((n >> 40) as f32 / (1 << 23) as f32 - 1.0) * 0.05;
    let count = shape.elements().context("a shape that fits")?;
    Ok(Tensor::from_vec(shape, synthetic::stream(seed).take(count).map(value).collect())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_berts() {
        let giga = |size: Size, lengths: &[usize]| size.operations(lengths) / 1e9;
        assert!((giga(Size::BASE, &[128]) - 22.3).abs() < 0.1);
        assert!((giga(Size::BASE, &[128; 8]) - 178.0).abs() < 1.0);
        assert!((giga(Size::BASE, &[384]) - 70.7).abs() < 1.0);
    }

    #[test]
    fn sizes_are_googles() {
        assert_eq!(Size::BASE.bytes() / 4, 109_482_240 + 2 * 768 + 2);
        let large = Size::LARGE.with_layers(2);
        assert!(large.folder().ends_with("bench/models/large-L2-H1024"));
    }
}
