//! Files that NumPy wrote, against what NumPy says is in them; and every `.npz` of the shared
//! goldens.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too, may fail loudly")]

use std::path::{Path, PathBuf};

use frazil_tensor::npy::{Npz, NpzWriter};
use frazil_tensor::{TensorStore, testing};

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

#[test]
fn every_type_numpy_writes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let text = std::fs::read_to_string(folder.join("numpy.json")).unwrap();
    let expected: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    for file in ["numpy.npz", "numpy_deflated.npz"] {
        let npz = Npz::open(folder.join(file)).unwrap();
        assert_eq!(npz.infos().len(), expected.len());
        assert_eq!(npz.refused().keys().collect::<Vec<_>>(), ["object", "record"]);
        for (name, expected) in &expected {
            let tensor = npz.tensor(name).unwrap();
            assert_eq!(tensor.dtype().name(), expected["dtype"], "{name}");
            let shape: Vec<usize> = serde_json::from_value(expected["shape"].clone()).unwrap();
            assert_eq!(&**tensor.shape(), shape, "{name}");
            match expected["values"].as_array() {
                None => {
                    let values = hex(expected["values"].as_str().unwrap());
                    assert_eq!(&tensor.bytes().unwrap()[..], values, "{name}");
                }
                Some(strings) => {
                    let values: Vec<Vec<u8>> =
                        strings.iter().map(|s| hex(s.as_str().unwrap())).collect();
                    assert_eq!(tensor.strings().unwrap(), values, "{name}");
                }
            }
        }
    }
}

fn npz_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            npz_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "npz") {
            found.push(path);
        }
    }
}

#[test]
fn all_shared_goldens_open_and_survive_a_copy() {
    let Some(folder) = testing::shared("fixtures") else { return };
    let mut files = Vec::new();
    npz_files(&folder, &mut files);
    assert!(files.len() >= 18, "{}", files.len());
    let scratch = tempfile::tempdir().unwrap();
    for file in files {
        let npz = Npz::open(&file).unwrap();
        let copy = scratch.path().join("copy.npz");
        let mut writer = NpzWriter::create(&copy).unwrap();
        for info in npz.infos() {
            writer.add(&info.name, &npz.tensor(&info.name).unwrap()).unwrap();
        }
        writer.finish().unwrap();
        let copied = Npz::open(&copy).unwrap();
        assert_eq!(copied.infos(), npz.infos());
        for info in npz.infos() {
            assert_eq!(copied.tensor(&info.name).unwrap(), npz.tensor(&info.name).unwrap());
        }
    }
}
