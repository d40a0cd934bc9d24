//! Weights carried from checkpoint to Hugging Face's and PopART's names and back, bit for bit.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::{Path, PathBuf};

use frazil::bert::BertConfig;
use frazil::bert::names::{Head, popart};
use frazil::ops::export_weights::{self, Names, Report, export_weights};
use frazil::ops::import_weights::{self, import_weights};
use frazil::tensor::npy::Npz;
use frazil::tensor::safetensors::{SafeTensors, SafeTensorsWriter};
use frazil::tensor::testing::shared;
use frazil::tensor::{DType, Tensor, TensorInfo, TensorStore};
use frazil::tf::bundle::{BundleWriter, WriteOptions};
use frazil::tf::checkpoint::{Checkpoint, Options as ReadOptions};
use frazil::{Error, Result};

const PRETRAIN: &str = "fixtures/pretrain/model.ckpt-40";
const CLASSIFIER: &str = "fixtures/classifier/model.ckpt-27";
const SQUAD: &str = "fixtures/squad/v1.1/model.ckpt-65";
const NUMERICS: &str = "fixtures/numerics/model.ckpt";

/// A checkpoint's prefix, and the configuration of all these models.
fn fixture(name: &str) -> Option<(PathBuf, PathBuf)> {
    let index = shared(&format!("{name}.index"))?;
    Some((index.with_extension(""), shared("fixtures/data/bert_config_small.json")?))
}

fn open(prefix: &Path) -> Checkpoint {
    Checkpoint::open(prefix, ReadOptions::default()).unwrap()
}

fn export(from: &Path, to: &Path, options: &export_weights::Options) -> Result<Report> {
    export_weights(from, to, options, &mut |_, _| {})
}

fn import(
    from: &Path,
    to: &Path,
    options: &import_weights::Options,
) -> Result<import_weights::Report> {
    import_weights(from, to, options, &mut |_, _| {})
}

/// Every variable of `after` is in `before`, bit for bit; returns how many there are.
fn same(before: &dyn TensorStore, after: &dyn TensorStore) -> usize {
    for info in after.infos() {
        let was = before.tensor(&info.name).unwrap_or_else(|e| panic!("{}: {e}", info.name));
        assert_eq!(was, after.tensor(&info.name).unwrap(), "{}", info.name);
    }
    after.infos().len()
}

fn huggingface(config: PathBuf) -> export_weights::Options {
    export_weights::Options {
        names: Names::HuggingFace,
        config: Some(config),
        keep_pooler: true,
        ..Default::default()
    }
}

#[test]
fn to_huggingface_and_back() {
    for (name, class, tensors) in [
        (PRETRAIN, "BertForPreTraining", 46),
        (CLASSIFIER, "BertForSequenceClassification", 41),
        (SQUAD, "BertForQuestionAnswering", 41),
    ] {
        let Some((prefix, config)) = fixture(name) else { return };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.safetensors");
        let report = export(&prefix, &file, &huggingface(config.clone())).unwrap();
        assert_eq!((report.architecture, report.written.len()), (Some(class), tensors));
        assert_eq!(report.beside, [folder.path().join("config.json")]);
        assert_eq!(SafeTensors::open(&file).unwrap().metadata()["format"], "pt");
        // The folder as Hugging Face has it is enough for the way back.
        let out = folder.path().join("tf/");
        let report = import(folder.path(), &out, &Default::default()).unwrap();
        assert_eq!(report.written.len(), tensors);
        assert!(report.missing.is_empty() && report.left_out.is_empty());
        assert_eq!(same(&open(&prefix), &open(&out.join("bert_model.ckpt"))), tensors);
        let again = BertConfig::read(out.join("bert_config.json")).unwrap();
        assert_eq!(again, BertConfig::read(config).unwrap());
        assert!(out.join("checkpoint").is_file());
    }
}

#[test]
fn what_is_left_out_is_told() {
    let Some((prefix, config)) = fixture(SQUAD) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.safetensors");
    let options = export_weights::Options { keep_pooler: false, ..huggingface(config) };
    let report = export(&prefix, &file, &options).unwrap();
    let mut left: Vec<(usize, &str)> =
        report.left_out.iter().map(|left| (left.names.len(), left.reason.as_str())).collect();
    left.sort();
    assert_eq!(
        left,
        [
            (1, "training state"),
            (2, "BertForQuestionAnswering has no pooler; `--keep-pooler` writes it"),
            (39, "optimizer slot `adam_m`"),
            (39, "optimizer slot `adam_v`"),
        ]
    );
    let told: usize = left.iter().map(|(n, _)| n).sum();
    assert_eq!(report.written.len() + told, open(&prefix).infos().len());
    let report = import(&file, &folder.path().join("x.ckpt"), &Default::default()).unwrap();
    assert_eq!(report.missing, ["bert/pooler/dense/kernel", "bert/pooler/dense/bias"]);
}

#[test]
fn one_head_of_several() {
    let Some((prefix, config)) = fixture(NUMERICS) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.safetensors");
    let options = huggingface(config);
    let error = export(&prefix, &file, &options).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the weights hold several heads: `pretraining`, `classifier`, `squad`"
    );
    assert!(!file.exists());
    let options = export_weights::Options { task: Some(Head::Classifier), ..options };
    let report = export(&prefix, &file, &options).unwrap();
    assert_eq!(report.written.len(), 41);
    let config = std::fs::read_to_string(folder.path().join("config.json")).unwrap();
    assert!(config.contains("\"2\": \"LABEL_2\""), "{config}");
    // All of them under their own names.
    let options = export_weights::Options { config: options.config, ..Default::default() };
    let all = folder.path().join("all.npz");
    assert_eq!(export(&prefix, &all, &options).unwrap().written.len(), 50);
    assert_eq!(same(&open(&prefix), &Npz::open(&all).unwrap()), 50);
}

#[test]
fn own_names_with_slots_are_the_whole_checkpoint() {
    let Some((prefix, config)) = fixture(PRETRAIN) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.safetensors");
    let options =
        export_weights::Options { slots: true, config: Some(config), ..Default::default() };
    assert_eq!(export(&prefix, &file, &options).unwrap().left_out, []);
    assert_eq!(same(&open(&prefix), &SafeTensors::open(&file).unwrap()), 139);
    let options = import_weights::Options { slots: true, heads: Some(4), ..Default::default() };
    import(&file, &folder.path().join("tf/model.ckpt-40"), &options).unwrap();
    assert_eq!(same(&open(&prefix), &open(&folder.path().join("tf/model.ckpt-40"))), 139);
}

/// A checkpoint as MLPerf's: the same weights, the slots under LAMB's names.
fn lamb(prefix: &Path, folder: &Path, keep: impl Fn(&str) -> bool) -> PathBuf {
    let source = open(prefix);
    let to = folder.join("model.ckpt-28252");
    let mut writer = BundleWriter::create(&to, WriteOptions::default()).unwrap();
    for info in source.infos().iter().filter(|info| keep(&info.name)) {
        let name = info.name.replace("adam_m", "LAMB").replace("adam_v", "LAMB_1");
        writer.add(&name, &source.tensor(&info.name).unwrap()).unwrap();
    }
    writer.finish().unwrap();
    to
}

#[test]
fn to_popart_and_back() {
    let Some((prefix, config)) = fixture(PRETRAIN) else { return };
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = lamb(&prefix, folder.path(), |_| true);
    let file = folder.path().join("popart.npz");
    let options = export_weights::Options {
        names: Names::Popart,
        config: Some(config),
        slots: true,
        popart: popart::Options { spelling: popart::Spelling::Mlperf, ..Default::default() },
        ..Default::default()
    };
    let report = export(&checkpoint, &file, &options).unwrap();
    // 5 + 12 per layer + 5 + 4, each with two moments
    assert_eq!(report.written.len(), 3 * 38);
    assert_eq!(report.left_out.len(), 1); // global_step
    let qkv = report.written.iter().find(|t| t.name == "Layer1/Attention/QKV_bias").unwrap();
    assert_eq!((qkv.shape.as_slice(), qkv.from.len()), (&[192][..], 3));
    let written = Npz::open(&file).unwrap();
    assert!(written.info("Accl1___Layer0/Attention/QKV").is_some());
    let back = import_weights::Options { slots: true, heads: Some(4), ..Default::default() };
    import(&file, &folder.path().join("back/"), &back).unwrap();
    let again = open(&folder.path().join("back/bert_model.ckpt"));
    assert_eq!(same(&open(&checkpoint), &again), 3 * 46);
}

#[test]
fn popart_in_half_precision_with_other_lengths() {
    let Some((prefix, config)) = fixture(SQUAD) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("squad.npz");
    let options = export_weights::Options {
        names: Names::Popart,
        config: Some(config),
        dtype: Some(DType::F16),
        popart: popart::Options { vocab: Some(800), positions: Some(160), ..Default::default() },
        ..Default::default()
    };
    let report = export(&prefix, &file, &options).unwrap();
    assert_eq!(report.task, Some(Head::Squad));
    let written = Npz::open(&file).unwrap();
    assert!(written.infos().iter().all(|info| info.dtype == DType::F16));
    assert_eq!(*written.info("Embedding/Embedding_Dict").unwrap().shape, [800, 64]);
    assert_eq!(*written.info("Embedding/Positional_Dict").unwrap().shape, [160, 64]);
    assert_eq!(*written.info("Squad/SquadW").unwrap().shape, [64, 2]);
    // On the way back the configuration gets the new lengths, and says so.
    let config = options.config.clone();
    let back = import_weights::Options { config, dtype: Some(DType::F32), ..Default::default() };
    let report = import(&file, &folder.path().join("back/"), &back).unwrap();
    let note = "vocab_size: bert_config_small.json says 838, the weights have 800 rows";
    assert!(report.notes.iter().any(|n| n == note), "{:?}", report.notes);
    let config = BertConfig::read(folder.path().join("back/bert_config.json")).unwrap();
    assert_eq!((config.vocab_size, config.max_position_embeddings), (800, 160));
    assert!(report.written.iter().all(|written| written.dtype == "float32"));
}

#[test]
fn frozen_graphs_are_weights_too() {
    for (graph, checkpoint, tensors) in [
        ("fixtures/classifier/frozen_from_saved_model.pb", CLASSIFIER, 41),
        ("fixtures/squad/lpot/bert_fp32_intel_modeling.pb", SQUAD, 39),
    ] {
        let Some((prefix, config)) = fixture(checkpoint) else { return };
        let Some(graph) = shared(graph) else { return };
        let folder = tempfile::tempdir().unwrap();
        let options = export_weights::Options { config: Some(config), ..Default::default() };
        let file = folder.path().join("new/folder/weights.npz");
        let report = export(&graph, &file, &options).unwrap();
        assert_eq!(report.left_out.len(), 1, "{:?}", report.left_out);
        assert_eq!(same(&open(&prefix), &Npz::open(&file).unwrap()), tensors);
    }
}

#[test]
fn missing_variables_are_listed_and_nothing_is_written() {
    let Some((prefix, config)) = fixture(PRETRAIN) else { return };
    let folder = tempfile::tempdir().unwrap();
    let key = "bert/encoder/layer_0/attention/self/key/kernel";
    let checkpoint = lamb(&prefix, folder.path(), |name| name != key);
    for names in [Names::Tf, Names::HuggingFace, Names::Popart] {
        let file = folder.path().join("model.safetensors");
        let options =
            export_weights::Options { names, config: Some(config.clone()), ..Default::default() };
        let error = export(&checkpoint, &file, &options).unwrap_err();
        let Error::Bert(frazil::bert::Error::Missing { names, .. }) = error else {
            panic!("{error}")
        };
        assert_eq!(names, [key]);
        assert!(!file.exists());
    }
    let out = folder.path().join("out/");
    let options = import_weights::Options { config: Some(config), ..Default::default() };
    assert!(import(&checkpoint, &out, &options).is_err());
    assert!(!out.exists());
}

#[test]
fn a_configuration_of_another_model_is_refused() {
    let Some((prefix, config)) = fixture(PRETRAIN) else { return };
    let folder = tempfile::tempdir().unwrap();
    let wrong = folder.path().join("bert_config.json");
    let other = BertConfig { hidden_size: 128, ..BertConfig::read(config).unwrap() };
    other.write(&wrong).unwrap();
    let file = folder.path().join("model.safetensors");
    let error = export(&prefix, &file, &huggingface(wrong)).unwrap_err().to_string();
    assert!(
        error.ends_with("hidden_size: bert_config.json says 128, the variables say 64"),
        "{error}"
    );
}

#[test]
fn an_untied_decoder_is_refused() {
    let Some((prefix, config)) = fixture(PRETRAIN) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.safetensors");
    export(&prefix, &file, &huggingface(config)).unwrap();
    let tied = folder.path().join("tied.safetensors");
    let with_decoder = |to: &Path, change: f32| {
        let source = SafeTensors::open(&file).unwrap();
        let words = source.tensor("bert.embeddings.word_embeddings.weight").unwrap();
        let mut values = words.values::<f32>().unwrap().into_owned();
        values[17] += change;
        let decoder = Tensor::from_vec(words.shape().clone(), values).unwrap();
        let name = "cls.predictions.decoder.weight".to_string();
        let mut infos = source.infos().to_vec();
        infos.push(TensorInfo { name, dtype: DType::F32, shape: decoder.shape().clone() });
        let mut writer = SafeTensorsWriter::create(to, &infos, &Default::default()).unwrap();
        for info in source.infos() {
            writer.add(&source.tensor(&info.name).unwrap()).unwrap();
        }
        writer.add(&decoder).unwrap();
        writer.finish().unwrap();
    };
    with_decoder(&tied, 0.0);
    let report = import(&tied, &folder.path().join("a/"), &Default::default()).unwrap();
    assert_eq!(report.left_out[0].reason, "tied to the word embeddings");
    with_decoder(&tied, 1.0);
    let error = import(&tied, &folder.path().join("b/"), &Default::default()).unwrap_err();
    assert!(matches!(&error, Error::Bert(frazil::bert::Error::DecoderNotTied { .. })), "{error}");
    let encoder = import_weights::Options { task: Some(Head::Encoder), ..Default::default() };
    assert!(import(&tied, &folder.path().join("c/"), &encoder).is_ok());
}

#[test]
fn options_without_effect_are_mistakes() {
    let Some((prefix, _)) = fixture(PRETRAIN) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.npz");
    let vocab = popart::Options { vocab: Some(9), ..Default::default() };
    for options in [
        export_weights::Options { popart: vocab, ..Default::default() },
        export_weights::Options { keep_pooler: true, ..Default::default() },
        export_weights::Options { names: Names::HuggingFace, slots: true, ..Default::default() },
        export_weights::Options { dtype: Some(DType::I8), ..Default::default() },
        export_weights::Options { dtype: Some(DType::BF16), ..Default::default() },
    ] {
        let error = export(&prefix, &file, &options).unwrap_err();
        assert!(matches!(&error, Error::Usage { .. }), "{error}");
    }
    let error = export(&prefix, &folder.path().join("x.bin"), &Default::default()).unwrap_err();
    assert!(error.to_string().contains("neither `.safetensors` nor `.npz`"), "{error}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn values_beyond_half_precision_are_told() {
    let Some((prefix, config)) = fixture(PRETRAIN) else { return };
    let folder = tempfile::tempdir().unwrap();
    let source = open(&prefix);
    let to = folder.path().join("big.ckpt");
    let mut writer = BundleWriter::create(&to, WriteOptions::default()).unwrap();
    for info in source.infos() {
        let mut tensor = source.tensor(&info.name).unwrap();
        if info.name == "bert/pooler/dense/bias" {
            let mut values = tensor.values::<f32>().unwrap().into_owned();
            values[0] = 1e6;
            tensor = Tensor::from_vec([64], values).unwrap();
        }
        writer.add(&info.name, &tensor).unwrap();
    }
    writer.finish().unwrap();
    let options = export_weights::Options { dtype: Some(DType::F16), ..huggingface(config) };
    let report = export(&to, &folder.path().join("x.safetensors"), &options).unwrap();
    let note = "1 values of `bert.pooler.dense.bias` are beyond float16's range";
    assert!(report.notes.iter().any(|n| n == note), "{:?}", report.notes);
}

#[test]
fn what_is_no_bert_is_written_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("other.ckpt");
    let mut writer = BundleWriter::create(&from, WriteOptions::default()).unwrap();
    let w = Tensor::from_vec([2, 2], vec![1f32, 2., 3., 4.]).unwrap();
    let step = Tensor::from_vec([], vec![7i64]).unwrap();
    for (name, tensor) in [("dense/w", &w), ("dense/w/Momentum", &w), ("global_step", &step)] {
        writer.add(name, tensor).unwrap();
    }
    writer.finish().unwrap();
    let file = folder.path().join("x.npz");
    let report = export(&from, &file, &Default::default()).unwrap();
    assert_eq!((report.written.len(), report.left_out.len()), (1, 2));
    assert!(report.notes[0].starts_with("these are not the weights of a BERT"), "{report:?}");
    let all = export_weights::Options { slots: true, ..Default::default() };
    assert_eq!(export(&from, &file, &all).unwrap().left_out, []);
    assert_eq!(same(&open(&from), &Npz::open(&file).unwrap()), 3);
    let squad = export_weights::Options { task: Some(Head::Squad), ..Default::default() };
    let error = export(&from, &file, &squad).unwrap_err();
    assert!(matches!(&error, Error::Bert(frazil::bert::Error::NotBert(_))), "{error}");
    assert!(import(&from, &folder.path().join("tf/"), &Default::default()).is_err());
}
