//! From text to classes: every kind of model gives TensorFlow 1.15's probabilities, `run_classifier`
//! writes the original's files, and what is wrong with data is said with file, line and expectation.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod bad_data;
mod commands;
mod models;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use frazil::tensor::testing::shared;

/// Largest difference to TensorFlow's probabilities that counts as equal.
const TOLERANCE: f32 = 2e-5;

/// The classifier that TensorFlow trained, and what belongs to it.
struct Fixture {
    folder: PathBuf,
    data: PathBuf,
    config: PathBuf,
    vocab: PathBuf,
}

impl Fixture {
    fn open() -> Option<Self> {
        let data = shared("fixtures/data")?;
        Some(Self {
            folder: shared("fixtures/classifier")?,
            config: data.join("bert_config_small.json"),
            vocab: data.join("vocab_small.txt"),
            data: data.join("MRPC"),
        })
    }

    fn checkpoint(&self) -> PathBuf {
        self.folder.join("model.ckpt-27")
    }

    /// The probabilities of the test set, by TensorFlow.
    fn golden(&self) -> Vec<Vec<f32>> {
        table(&std::fs::read_to_string(self.folder.join("test_results.tsv")).unwrap())
    }

    /// A folder with the checkpoint, its configuration and its vocabulary, as users have them.
    fn model_folder(&self, folder: &Path) {
        for name in ["checkpoint", "model.ckpt-27.index", "model.ckpt-27.data-00000-of-00001"] {
            std::fs::copy(self.folder.join(name), folder.join(name)).unwrap();
        }
        std::fs::copy(&self.config, folder.join("bert_config.json")).unwrap();
        std::fs::copy(&self.vocab, folder.join("vocab.txt")).unwrap();
    }
}

fn table(text: &str) -> Vec<Vec<f32>> {
    text.lines().map(|line| line.split('\t').map(|x| x.parse().unwrap()).collect()).collect()
}

fn assert_close(found: &[Vec<f32>], golden: &[Vec<f32>], what: &str) {
    assert_eq!(found.len(), golden.len(), "{what}");
    for (row, (a, b)) in found.iter().zip(golden).enumerate() {
        assert_eq!(a.len(), b.len(), "{what}, row {row}");
        let most = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(most <= TOLERANCE, "{what}, row {row}: {a:?} is not {b:?}");
    }
}

fn frazil(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_frazil")).args(words).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
