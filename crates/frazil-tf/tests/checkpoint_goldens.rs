//! Every checkpoint at hand against what TensorFlow itself reads from it.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};

use frazil_tensor::testing::shared;
use frazil_tensor::{TensorInfo, TensorStore};
use frazil_tf::checkpoint::{Checkpoint, Options, Version};
use frazil_tf::sstable::{Compression, Table, TableBuilder};
use serde_json::Value;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/checkpoints").join(name)
}

fn open(prefix: impl AsRef<Path>) -> Checkpoint {
    let prefix = prefix.as_ref();
    Checkpoint::open(prefix, Options::default())
        .unwrap_or_else(|e| panic!("{}: {e:?}", prefix.display()))
}

fn json(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap()
}

fn shape(row: &Value) -> Vec<usize> {
    row["shape"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap() as usize).collect()
}

fn unhex(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

/// All files below `folder` whose name ends like that.
fn below(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in folder.read_dir().unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(below(&path, ending));
        } else if path.to_str().is_some_and(|p| p.ends_with(ending)) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Bit for bit against the `.values.json` that TensorFlow's reader gave.
fn compare_values(prefix: &str) -> Checkpoint {
    let checkpoint = open(fixture(prefix));
    let golden = json(&fixture(&format!("{prefix}.values.json")));
    let names: Vec<&str> = golden.iter().map(|row| row["name"].as_str().unwrap()).collect();
    let ours: Vec<&str> = checkpoint.infos().iter().map(|info| info.name.as_str()).collect();
    assert_eq!(ours, names);
    for (row, info) in golden.iter().zip(checkpoint.infos()) {
        let TensorInfo { name, dtype, .. } = info;
        assert_eq!(dtype.name(), row["dtype"], "{name}");
        assert_eq!(&info.shape[..], shape(row), "{name}");
        let tensor = checkpoint.tensor(name).unwrap_or_else(|e| panic!("{prefix} {name}: {e:?}"));
        assert_eq!(tensor.dtype(), *dtype);
        assert_eq!(*tensor.shape(), info.shape);
        if let Some(strings) = row["strings"].as_array() {
            let strings: Vec<Vec<u8>> = strings.iter().map(unhex).collect();
            assert_eq!(tensor.strings().unwrap(), strings, "{name}");
        } else if row["unread"].is_null() {
            assert_eq!(&tensor.bytes().unwrap()[..], unhex(&row["bytes"]), "{name}");
        }
    }
    let report = checkpoint.verify(|_| {}).unwrap();
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    assert_eq!(report.tensors, names.len());
    checkpoint
}

#[test]
fn every_element_type() {
    let checkpoint = compare_values("v2_dtypes");
    assert_eq!(checkpoint.version(), Version::V2);
    assert_eq!(checkpoint.shards(), 1);
    compare_values("v2_dtypes_tf2");
    assert_eq!(compare_values("v1_dtypes").version(), Version::V1);
}

#[test]
fn partitioned_variables() {
    let checkpoint = compare_values("v2_partitioned");
    let entry = |name: &str| checkpoint.entries().iter().find(|e| e.info.name == name).unwrap();
    assert_eq!((entry("rows").slices, entry("rows").shard), (3, None));
    assert_eq!(entry("a/cube").slices, 4);
    assert_eq!(entry("a/cube").stored_bytes, 4 * 4 * 2 * 6);
    assert_eq!((entry("whole").slices, entry("whole").shard), (0, Some(0)));
    // TensorFlow cannot put sliced strings together; we can.
    let words = checkpoint.tensor("words").unwrap();
    assert_eq!(words.strings().unwrap(), [&b"one"[..], b"", b"three", b"four"]);
    let v1 = compare_values("v1_partitioned");
    for info in checkpoint.infos() {
        assert_eq!(v1.tensor(&info.name).unwrap(), checkpoint.tensor(&info.name).unwrap());
    }
}

#[test]
fn several_files() {
    assert_eq!(compare_values("v2_sharded").shards(), 2);
    assert_eq!(compare_values("v1_sharded").shards(), 2);
    let pattern = open(fixture("v1_sharded-?????-of-00002"));
    assert_eq!(pattern.infos(), open(fixture("v1_sharded")).infos());
}

#[test]
fn a_compressed_table_reads_like_the_plain_one() {
    let plain = std::fs::read(fixture("v1_dtypes")).unwrap();
    let table = Table::open(plain.clone().into(), true).unwrap();
    let mut packed = TableBuilder::new(Vec::new(), Compression::Snappy);
    for entry in table.entries() {
        let (key, value) = entry.unwrap();
        packed.add(&key, &value).unwrap();
    }
    let packed = packed.finish().unwrap();
    assert!(packed.len() < plain.len() * 3 / 4, "{} {}", packed.len(), plain.len());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packed");
    std::fs::write(&path, packed).unwrap();
    let (packed, plain) = (open(path), open(fixture("v1_dtypes")));
    assert_eq!(packed.infos(), plain.infos());
    for info in plain.infos() {
        assert_eq!(packed.tensor(&info.name).unwrap(), plain.tensor(&info.name).unwrap());
    }
}

#[test]
fn objects_of_tensorflow_2() {
    let checkpoint = compare_values("tf2_objects");
    let names = checkpoint.objects().unwrap().unwrap();
    let key = "model/layers/0/kernel/.ATTRIBUTES/VARIABLE_VALUE";
    assert_eq!(names.full_name(key), Some("layer_0/kernel"));
    assert_eq!(names.key("layer_0/kernel"), Some(key));
    assert_eq!(names.key("global_step"), Some("step/.ATTRIBUTES/VARIABLE_VALUE"));
    assert_eq!((names.key(""), names.key("nobody")), (None, None));
    assert!(names.iter().all(|name| name.attribute == "VARIABLE_VALUE"));
    // Every variable is listed both ways.
    for entry in checkpoint.entries().iter().filter(|e| e.info.name.contains(".ATTRIBUTES")) {
        assert!(names.iter().any(|name| name.key == entry.info.name), "{}", entry.info.name);
    }
    assert!(open(fixture("v2_dtypes")).objects().unwrap().is_none());
}

#[test]
fn shared_checkpoints_have_the_golden_values() {
    let Some(fixtures) = shared("fixtures") else { return };
    let goldens = below(&fixtures, ".tensors.json");
    assert!(goldens.len() >= 7, "{goldens:?}");
    for path in goldens {
        let prefix = path.to_str().unwrap().strip_suffix(".tensors.json").unwrap();
        let checkpoint = open(prefix);
        let golden = json(&path);
        assert_eq!(golden.len(), checkpoint.entries().len(), "{prefix}");
        for (row, info) in golden.iter().zip(checkpoint.infos()) {
            assert_eq!(row["name"], info.name.as_str(), "{prefix}");
            assert_eq!(row["dtype"], info.dtype.name(), "{prefix} {}", info.name);
            assert_eq!(shape(row), info.shape[..], "{prefix} {}", info.name);
            let values = checkpoint.tensor(&info.name).unwrap().to_f64().unwrap();
            // serde_json may be off by the last bit of a double; every value here is a float.
            let first = row["first"].as_array().unwrap().iter();
            let first: Vec<f32> = first.map(|v| v.as_f64().unwrap() as f32).collect();
            let ours: Vec<f32> = values.iter().take(4).map(|&v| v as f32).collect();
            assert_eq!(ours, first, "{prefix} {}", info.name);
            let near = |ours: f64, key: &str| {
                let golden = row[key].as_f64().unwrap();
                let abs_sum = row["abs_sum"].as_f64().unwrap();
                assert!(
                    (ours - golden).abs() <= 1e-12 * abs_sum.max(1.0),
                    "{prefix} {} {key}: {ours} {golden}",
                    info.name
                );
            };
            near(values.iter().sum(), "sum");
            near(values.iter().map(|v| v.abs()).sum(), "abs_sum");
        }
    }
}

#[test]
fn the_weights_of_the_numerics_are_numpys() {
    let Some(numerics) = shared("fixtures/numerics") else { return };
    let npz = frazil_tensor::npy::Npz::open(numerics.join("weights.npz")).unwrap();
    let checkpoint = open(numerics.join("model.ckpt"));
    assert_eq!(npz.infos(), checkpoint.infos());
    assert_eq!(npz.infos().len(), 50);
    for info in npz.infos() {
        let golden = TensorStore::tensor(&npz, &info.name).unwrap();
        assert_eq!(checkpoint.tensor(&info.name).unwrap(), golden, "{}", info.name);
    }
}

#[test]
fn every_shared_checkpoint_opens_and_its_checksums_hold() {
    let mut seen = 0;
    for folder in ["fixtures", "data/checkpoints", "models"] {
        let Some(folder) = shared(folder) else { return };
        for index in below(&folder, ".index") {
            let checkpoint = open(&index);
            seen += 1;
            assert!(checkpoint.entries().len() >= 40 && checkpoint.unreadable().is_empty());
            if index.to_str().unwrap().contains("google_chinese") {
                continue;
            }
            let done = std::sync::atomic::AtomicU64::new(0);
            let add = |n| _ = done.fetch_add(n, std::sync::atomic::Ordering::Relaxed);
            let report = checkpoint.verify(add).unwrap();
            assert!(report.faults.is_empty(), "{}: {:?}", index.display(), report.faults);
            let stored: u64 = checkpoint.entries().iter().map(|e| e.stored_bytes).sum();
            assert_eq!((report.bytes, done.into_inner()), (stored, stored));
        }
    }
    assert!(seen >= 10, "{seen}");
}

#[test]
fn a_checkpoint_without_data_lists_and_says_what_is_missing() {
    let Some(prefix) =
        shared("data/checkpoints/google_chinese_L-12_H-768_A-12/bert_model.ckpt.index")
    else {
        return;
    };
    let checkpoint = open(prefix.with_extension(""));
    assert_eq!(checkpoint.entries().len(), 206);
    let table = checkpoint.info("bert/embeddings/word_embeddings").unwrap();
    assert_eq!(&table.shape[..], [21128, 768]);
    let error = checkpoint.tensor("cls/predictions/output_bias").unwrap_err();
    assert!(error.to_string().contains("bert_model.ckpt.data-00000-of-00001"), "{error}");
    assert!(error.hint().unwrap().contains("copy it"), "{:?}", error.hint());
    assert_eq!(checkpoint.verify(|_| {}).unwrap().faults.len(), 206);
}
