//! Compiled models: the same numbers to the last bit, and refusal of what does not fit.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use frazil::kernels::Isa;
use frazil::ops::bench::Model;
use frazil::ops::compile::{Calibration, Compiled, Options, compile};
use frazil::ops::minmax;
use frazil::runtime::{Engine, EngineOptions, Inputs};
use frazil::source::{GraphOptions, open_graph};
use frazil::tensor::Tensor;
use frazil::tensor::testing::shared;

fn inputs() -> Inputs {
    let ints = |value: &dyn Fn(usize) -> i32| {
        Tensor::from_vec([2, 20], (0..40).map(value).collect::<Vec<i32>>()).unwrap()
    };
    Inputs::from([
        ("input_ids".into(), ints(&|i| (i * 13 % 800) as i32)),
        ("input_mask".into(), ints(&|i| i32::from(i < 33))),
        ("segment_ids".into(), ints(&|i| (i % 2) as i32)),
    ])
}

/// A small classifier in a file for all instruction sets.
fn compiled(folder: &Path) -> Option<(PathBuf, GraphOptions, PathBuf)> {
    compiled_as(folder, None)
}

fn file(path: &Path, graph: &GraphOptions) -> Model {
    Model::File(path.to_path_buf(), Box::new(graph.clone()))
}

fn compiled_as(
    folder: &Path,
    int8: Option<Calibration>,
) -> Option<(PathBuf, GraphOptions, PathBuf)> {
    let model = shared("fixtures/classifier")?.join("model.ckpt-27");
    let config = shared("fixtures/data/bert_config_small.json")?;
    let head = Some(frazil::bert::Head::Classifier);
    let graph = GraphOptions { config: Some(config), head, ..GraphOptions::default() };
    let out = folder.join("model.frazil");
    let bytes = int8.is_some();
    let options = Options { isas: Isa::ALL.to_vec(), int8 };
    let report = compile(&file(&model, &graph), &out, &options).unwrap();
    assert_eq!(report.bytes, fs::metadata(&out).unwrap().len());
    // Query, key and value as one, output, up, down; of the last layer, where only the first row is
    // asked for, the query by itself; then the pooler and the classes.
    let encoder = 4 + 5;
    assert_eq!(report.products, encoder + 2);
    // The classes are a head, whose inputs matter.
    assert_eq!(report.int8_products, if bytes { encoder + 1 } else { 0 });
    Some((model, graph, out))
}

#[test]
fn as_the_model_that_it_was_compiled_from() {
    let folder = tempfile::tempdir().unwrap();
    let Some((model, options, out)) = compiled(folder.path()) else { return };
    let graph = open_graph(&model, &options).unwrap().graph;
    let compiled = Compiled::open(&out).unwrap();
    for (isa, packed) in Isa::available().flat_map(|isa| [(isa, false), (isa, true)]) {
        let options = EngineOptions { isa: Some(isa), packed, ..EngineOptions::default() };
        let wanted = Engine::new(&graph, &options).unwrap().run(&inputs()).unwrap().outputs;
        let engine = compiled.engine(&options).unwrap();
        assert_eq!((engine.isa(), engine.slow()), (isa, &[][..]));
        let found = engine.run(&inputs()).unwrap().outputs;
        assert_eq!(wanted.len(), found.len());
        for ((name, wanted), (same, found)) in wanted.iter().zip(&found) {
            assert_eq!(name, same);
            assert_eq!(wanted.values::<f32>().unwrap(), found.values::<f32>().unwrap(), "{isa}");
        }
    }
}

#[test]
fn a_file_tells_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    for (int8, word) in [(None, "in float32"), (Some(Calibration::MadeUp), "computed in bytes")] {
        let Some((_, _, out)) = compiled_as(folder.path(), int8) else { return };
        let said = |args: &[&str]| {
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_frazil"));
            let output = command.args(args).arg(&out).output().unwrap();
            let text = [output.stdout, output.stderr].concat();
            (output.status.code(), String::from_utf8(text).unwrap())
        };
        let (code, text) = said(&["inspect"]);
        for part in
            ["compiled model `", "11 products", word, "scalar and avx2", "input_ids", "output"]
        {
            assert!(code == Some(0) && text.contains(part), "{part}: {text}");
        }
        let page = folder.path().join("page.html");
        let (code, _) = said(&["inspect", "--report", page.to_str().unwrap()]);
        let page = fs::read_to_string(page).unwrap();
        assert!(code == Some(0) && page.contains(word) && page.contains("input_ids"), "{page}");
        for line in [&["graph", "-o", "x.html"][..], &["convert", "--to", "onnx", "-o", "x.onnx"]] {
            let (code, text) = said(line);
            let told = text.contains("the model that it was compiled from");
            assert!(code == Some(2) && told && text.contains("`frazil run`"), "{text}");
        }
        // Of another frazil the header is told, too.
        let mut bytes = fs::read(&out).unwrap();
        let length = u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
        let header = String::from_utf8(bytes[16..16 + length].to_vec()).unwrap();
        let other = header.replacen("\"layout\":", "\"layout\":9", 1);
        let other = other.strip_suffix(' ').unwrap();
        assert_eq!(other.len(), length, "spaces fill it up to a cache line");
        bytes[16..16 + length].copy_from_slice(other.as_bytes());
        bytes[12..16].copy_from_slice(&crc32c::crc32c(other.as_bytes()).to_le_bytes());
        fs::write(&out, bytes).unwrap();
        let (code, text) = said(&["inspect"]);
        let told = text.contains("this frazil cannot run it") && text.contains("input_ids");
        assert!(code == Some(0) && told, "{text}");
    }
}

#[test]
fn int8_is_stored_with_its_steps_and_scales() {
    let folder = tempfile::tempdir().unwrap();
    // Calibrated on the batch that is run, as a file.
    let npz = folder.path().join("in.npz");
    let mut writer = frazil::tensor::npy::NpzWriter::create(&npz).unwrap();
    for (name, tensor) in &inputs() {
        writer.add(name, tensor).unwrap();
    }
    writer.finish().unwrap();
    let how = Some(Calibration::Inputs(npz));
    let Some((model, options, out)) = compiled_as(folder.path(), how) else { return };
    let mut graph = open_graph(&model, &options).unwrap().graph;
    minmax::by_batches(&mut graph, &[inputs()]).unwrap();
    let compiled = Compiled::open(&out).unwrap();
    assert!(compiled.is_int8());
    for (isa, packed) in Isa::available().flat_map(|isa| [(isa, false), (isa, true)]) {
        let options = EngineOptions { isa: Some(isa), packed, ..EngineOptions::default() };
        let made = Engine::new(&graph, &options).unwrap();
        let wanted = made.run(&inputs()).unwrap().outputs;
        let engine = compiled.engine(&options).unwrap();
        assert!(engine.is_int8() && engine.slow().is_empty());
        let found = engine.run(&inputs()).unwrap().outputs;
        for ((_, wanted), (_, found)) in wanted.iter().zip(&found) {
            assert_eq!(wanted.values::<f32>().unwrap(), found.values::<f32>().unwrap(), "{isa}");
        }
    }
    // Made-up sequences do as well, and the same model gives the same file.
    let bytes = || {
        compiled_as(folder.path(), Some(Calibration::MadeUp)).unwrap();
        fs::read(&out).unwrap()
    };
    assert!(bytes() == bytes(), "compiling is deterministic");
    assert!(Compiled::open(&out).unwrap().is_int8());
}

#[test]
fn a_model_of_few_positions_is_calibrated_on_shorter_sequences() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("bert_config.json");
    let json = r#"{"vocab_size": 99, "hidden_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 128, "hidden_act": "gelu",
        "max_position_embeddings": 24, "type_vocab_size": 2}"#;
    fs::write(&config, json).unwrap();
    let model = Model::Random(config.display().to_string(), frazil::bert::Head::Squad);
    let out = folder.path().join("model.frazil");
    let options = Options { isas: Vec::new(), int8: Some(Calibration::MadeUp) };
    assert_eq!(compile(&model, &out, &options).unwrap().int8_products, 4);
}

#[test]
fn what_does_not_fit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let Some((model, options, out)) = compiled(folder.path()) else { return };
    let good = fs::read(&out).unwrap();
    let error_of = |bytes: &[u8]| {
        let path = folder.path().join("bad.frazil");
        fs::File::create(&path).unwrap().write_all(bytes).unwrap();
        Compiled::open(&path).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(error_of(b"FRAZIL??").ends_with("is no compiled model"));
    for end in [8, 15, 100, good.len() / 2, good.len() - 1] {
        assert!(error_of(&good[..end]).ends_with("is damaged"), "{end}");
    }
    // Any bit of the header.
    for at in (8..600).step_by(37) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        assert!(error_of(&bad).ends_with("is damaged"), "{at}");
    }
    // Another version, with a checksum that is right.
    let length = u32::from_le_bytes(good[8..12].try_into().unwrap()) as usize;
    let text = String::from_utf8(good[16..16 + length].to_vec()).unwrap();
    let version = text.find("\"layout\":").unwrap() + "\"layout\":".len();
    let mut old = text;
    old.replace_range(version..=version, "0");
    let mut bad = good[..12].to_vec();
    bad.extend_from_slice(&crc32c::crc32c(old.as_bytes()).to_le_bytes());
    bad.extend_from_slice(old.as_bytes());
    bad.extend_from_slice(&good[16 + length..]);
    assert!(error_of(&bad).contains("was compiled by frazil"), "{}", error_of(&bad));
    // Nothing for the instructions that are allowed.
    let best = folder.path().join("best.frazil");
    let isas = vec![Isa::Avx512Vnni];
    compile(&file(&model, &options), &best, &Options { isas, int8: None }).unwrap();
    let scalar = EngineOptions { isa: Some(Isa::Scalar), ..EngineOptions::default() };
    let error = Compiled::open(&best).unwrap().engine(&scalar).err().unwrap().to_string();
    assert!(error.contains("is compiled for avx512vnni"), "{error}");
}
