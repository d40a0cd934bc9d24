//! The ways in which checkpoints are wrong, and what is said about each.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::error::Error as _;
use std::path::{Path, PathBuf};

use frazil_tensor::{Tensor, TensorStore};
use frazil_tf::bundle::{BundleWriter, WriteOptions, data_path, index_path};
use frazil_tf::checkpoint::{Checkpoint, Options};
use frazil_tf::checkpoint_state::CheckpointState;
use frazil_tf::proto::bundle_header_proto::Endianness;
use frazil_tf::proto::{BundleEntryProto, BundleHeaderProto, VersionDef};
use frazil_tf::slice::TensorSlice;
use frazil_tf::sniff::Content;
use frazil_tf::sstable::{Compression, Table, TableBuilder};
use frazil_tf::{Error, Result};
use prost::Message;
use tempfile::TempDir;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/checkpoints").join(name)
}

fn open(prefix: impl AsRef<Path>) -> Result<Checkpoint> {
    Checkpoint::open(prefix, Options::default())
}

/// The error behind the file name that was added to it.
fn cause(error: Error) -> Error {
    match error {
        Error::InFile { source, .. } => *source,
        other => other,
    }
}

fn refused(prefix: impl AsRef<Path>) -> Error {
    cause(open(prefix).unwrap_err())
}

/// A checkpoint with `x` (100 floats), `y` (a string) and `rows`, partitioned in two.
fn sample() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("model.ckpt-7");
    let mut writer = BundleWriter::create(&prefix, WriteOptions::default()).unwrap();
    writer.add("x", &Tensor::from_vec([100], vec![0.5f32; 100]).unwrap()).unwrap();
    writer.add("y", &Tensor::from_strings([1], vec!["text".into()]).unwrap()).unwrap();
    let row = Tensor::from_vec([1, 3], vec![1i32, 2, 3]).unwrap();
    for start in 0..2 {
        let slice = TensorSlice::rows(2, start, 1);
        writer.add_slice("rows", &[2, 3].into(), &slice, &row).unwrap();
    }
    writer.finish().unwrap();
    (folder, prefix)
}

/// Writes the index anew with every entry passed through `edit`; `None` drops it.
fn edit_index(prefix: &Path, edit: impl Fn(&[u8], Vec<u8>) -> Option<Vec<u8>>) {
    let table = Table::open(std::fs::read(index_path(prefix)).unwrap().into(), true).unwrap();
    let mut builder = TableBuilder::new(Vec::new(), Compression::None);
    for entry in table.entries() {
        let (key, value) = entry.unwrap();
        if let Some(value) = edit(&key, value.to_vec()) {
            builder.add(&key, &value).unwrap();
        }
    }
    std::fs::write(index_path(prefix), builder.finish().unwrap()).unwrap();
}

fn edit_header(prefix: &Path, edit: impl Fn(&mut BundleHeaderProto)) {
    edit_index(prefix, |key, value| {
        if !key.is_empty() {
            return Some(value);
        }
        let mut header = BundleHeaderProto::decode(&value[..]).unwrap();
        edit(&mut header);
        Some(header.encode_to_vec())
    });
}

fn edit_entry(prefix: &Path, name: &str, edit: impl Fn(&mut BundleEntryProto)) {
    edit_index(prefix, |key, value| {
        if key != name.as_bytes() {
            return Some(value);
        }
        let mut entry = BundleEntryProto::decode(&value[..]).unwrap();
        edit(&mut entry);
        Some(entry.encode_to_vec())
    });
}

#[test]
fn every_way_to_name_a_checkpoint() {
    let (folder, prefix) = sample();
    for end in ["", ".index", ".meta", ".data-00000-of-00001"] {
        let path = format!("{}{end}", prefix.display());
        assert_eq!(open(&path).unwrap().prefix(), prefix, "{path}");
    }
    assert_eq!(open(folder.path()).unwrap().prefix(), prefix);
    // A second one, and the file `checkpoint` of a folder that has been moved since.
    std::fs::copy(index_path(&prefix), folder.path().join("model.ckpt-9.index")).unwrap();
    let error = refused(folder.path());
    assert!(matches!(&error, Error::WhichCheckpoint { found, .. } if found.len() == 2), "{error}");
    assert!(error.hint().unwrap().contains("`model.ckpt-7` or `model.ckpt-9`"));
    CheckpointState::new("/where/it/was/model.ckpt-9").write(folder.path()).unwrap();
    assert_eq!(open(folder.path()).unwrap().prefix(), folder.path().join("model.ckpt-9"));
}

#[test]
fn no_such_checkpoint() {
    let (folder, prefix) = sample();
    let error = refused(folder.path().join("model.ckpt-8"));
    assert!(matches!(&error, Error::NoCheckpoint { near, .. } if near == &["model.ckpt-7"]));
    assert!(error.hint().unwrap().contains("`model.ckpt-7`"));
    let error = refused(folder.path().join("nowhere/model.ckpt"));
    assert!(matches!(&error, Error::NoCheckpoint { near, .. } if near.is_empty()), "{error}");
    assert!(error.hint().unwrap().contains("prefix"));

    std::fs::remove_file(index_path(&prefix)).unwrap();
    for end in ["", ".data-00000-of-00001", ".meta"] {
        let error = refused(format!("{}{end}", prefix.display()));
        assert!(matches!(&error, Error::NoIndex { data, .. } if *data == data_path(&prefix, 0, 1)));
    }
}

#[test]
fn files_that_are_something_else() {
    let (_folder, prefix) = sample();
    let lfs = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 99\n";
    for (bytes, expected) in [
        (&b""[..], Content::Empty),
        (lfs, Content::LfsPointer),
        (b"<!DOCTYPE html>\n<html><body>Sign in</body></html>", Content::Html),
        (b"PK\x03\x04 and more of a zip file, as long as a table's footer", Content::Zip),
    ] {
        std::fs::write(index_path(&prefix), bytes).unwrap();
        let error = refused(&prefix);
        assert!(
            matches!(&error, Error::WrongContent { found, .. } if *found == expected),
            "{error:?}"
        );
        assert!(error.hint().is_some());
    }
    std::fs::write(index_path(&prefix), [7; 200]).unwrap();
    assert!(matches!(refused(&prefix), Error::NotATable));
}

#[test]
fn data_that_is_missing_or_short_or_something_else() {
    let (_folder, prefix) = sample();
    let data = data_path(&prefix, 0, 1);
    let whole = std::fs::read(&data).unwrap();
    let read = |name: &str| cause(open(&prefix).unwrap().tensor(name).unwrap_err());
    std::fs::write(&data, &whole[..405]).unwrap();
    let (expected, found) = (whole.len() as u64, 405);
    let error = read("rows");
    assert!(
        matches!(&error, Error::ShortData { expected: e, found: f, .. } if (*e, *f) == (expected, found)),
        "{error:?}"
    );
    // What is there can still be read.
    open(&prefix).unwrap().tensor("y").unwrap_err();
    open(&prefix).unwrap().tensor("x").unwrap();
    let report = open(&prefix).unwrap().verify(|_| {}).unwrap();
    let names: Vec<&str> = report.faults.iter().map(|fault| fault.name.as_str()).collect();
    assert_eq!(names, ["y", "rows"]);

    std::fs::write(&data, "version https://git-lfs.github.com/spec/v1\nsize 9\n").unwrap();
    assert!(matches!(read("x"), Error::WrongContent { found: Content::LfsPointer, .. }));
    std::fs::write(&data, "").unwrap();
    assert!(matches!(read("x"), Error::ShortData { found: 0, .. }));
    std::fs::remove_file(&data).unwrap();
    assert!(matches!(read("x"), Error::NoData { path, .. } if path == data));
    assert_eq!(open(&prefix).unwrap().entries().len(), 3);
}

#[test]
fn damage_is_found_unless_told_not_to_look() {
    let (_folder, prefix) = sample();
    let data = data_path(&prefix, 0, 1);
    let whole = std::fs::read(&data).unwrap();
    // Where each tensor lies, and the bytes in it that matter.
    for (name, at) in [("x", 0), ("x", 399), ("y", 401), ("y", whole.len() - 25)] {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        std::fs::write(&data, &damaged).unwrap();
        let checkpoint = open(&prefix).unwrap();
        let error = checkpoint.tensor(name).unwrap_err();
        assert!(error.source().unwrap().to_string().contains("checksum"), "{error:?}");
        let report = checkpoint.verify(|_| {}).unwrap();
        assert_eq!(report.faults.len(), 1, "{at}");
        assert_eq!(report.faults[0].name, name);
        let careless = Checkpoint::open(&prefix, Options { verify_checksums: false }).unwrap();
        careless.tensor(name).unwrap();
        // `verify` looks all the same.
        assert_eq!(careless.verify(|_| {}).unwrap().faults.len(), 1);
    }
    let mut index = std::fs::read(index_path(&prefix)).unwrap();
    index[20] ^= 1;
    std::fs::write(index_path(&prefix), index).unwrap();
    let error = refused(&prefix);
    assert!(matches!(error, Error::Checksum { .. }), "{error:?}");
}

#[test]
fn headers_that_cannot_be_followed() {
    let (_folder, prefix) = sample();
    edit_header(&prefix, |header| header.endianness = Endianness::Big as i32);
    assert!(matches!(refused(&prefix), Error::BigEndian));
    edit_header(&prefix, |header| {
        header.endianness = 0;
        header.version = Some(VersionDef { min_consumer: 2, ..VersionDef::default() });
    });
    assert!(matches!(refused(&prefix), Error::TooNew { needed: 2, ours: 1 }));
    edit_header(&prefix, |header| {
        header.version = Some(VersionDef { bad_consumers: vec![1], ..VersionDef::default() });
    });
    assert!(matches!(refused(&prefix), Error::TooNew { .. }));
    edit_header(&prefix, |header| (header.version, header.num_shards) = (None, 0));
    assert!(matches!(refused(&prefix), Error::Corrupt { .. }));
    edit_header(&prefix, |header| header.num_shards = 1);
    open(&prefix).unwrap().tensor("x").unwrap();
    edit_index(&prefix, |key, value| (!key.is_empty()).then_some(value));
    assert!(matches!(refused(&prefix), Error::Corrupt { .. }));
}

#[test]
fn entries_that_cannot_be() {
    let broken = |edit: &dyn Fn(&mut BundleEntryProto)| {
        let (_folder, prefix) = sample();
        edit_entry(&prefix, "x", edit);
        refused(&prefix)
    };
    let error = broken(&|e| e.shard_id = 1);
    assert!(matches!(error, Error::NoSuchShard { shard: 1, shards: 1, .. }), "{error:?}");
    let error = broken(&|e| e.shard_id = -1);
    assert!(matches!(error, Error::NoSuchShard { shard: -1, .. }));
    let error = broken(&|e| e.offset = -4);
    assert!(matches!(error, Error::BadPlace { offset: -4, size: 400, .. }));
    let error = broken(&|e| e.size = -400);
    assert!(matches!(error, Error::BadPlace { size: -400, .. }));
    let error = broken(&|e| e.size = 404);
    assert!(matches!(error, Error::EntrySize { size: 404, .. }));
    let error = broken(&|e| e.shape.as_mut().unwrap().dim[0].size = i64::MAX);
    assert!(matches!(error, Error::EntrySize { .. }));
    let error = broken(&|e| e.shape.as_mut().unwrap().dim[0].size = -1);
    assert!(matches!(error, Error::BadShape { .. }));

    // An offset beyond all files is found when the tensor is read.
    let (_folder, prefix) = sample();
    edit_entry(&prefix, "x", |e| e.offset = i64::MAX - 400);
    let checkpoint = open(&prefix).unwrap();
    assert!(matches!(checkpoint.tensor("x"), Err(Error::ShortData { .. })));
    assert_eq!(checkpoint.verify(|_| {}).unwrap().faults.len(), 1);

    // A type without values is not listed as a tensor, but is not silent either.
    let (_folder, prefix) = sample();
    edit_entry(&prefix, "x", |e| e.dtype = 21);
    let checkpoint = open(&prefix).unwrap();
    assert_eq!(checkpoint.unreadable()[0].dtype, "DT_VARIANT");
    assert!(checkpoint.info("x").is_none());
    assert!(matches!(checkpoint.tensor("x"), Err(Error::NoValues { .. })));
}

#[test]
fn slices_that_do_not_make_the_whole() {
    let (_folder, prefix) = sample();
    let missing = TensorSlice::rows(2, 1, 1).to_string();
    // Keys of slices begin with a zero; the second one is that of row 1.
    let first = std::cell::Cell::new(true);
    edit_index(&prefix, |key, value| {
        let is_first = key.first() != Some(&0) || first.replace(false);
        is_first.then_some(value)
    });
    let checkpoint = open(&prefix).unwrap();
    let error = checkpoint.tensor("rows").unwrap_err();
    assert!(
        matches!(&error, Error::MissingSlice { tensor, slice } if tensor == "rows" && *slice == missing),
        "{error:?}"
    );
    assert_eq!(checkpoint.verify(|_| {}).unwrap().faults.len(), 1);

    let broken = |edit: &dyn Fn(&mut BundleEntryProto)| {
        let (_folder, prefix) = sample();
        edit_entry(&prefix, "rows", edit);
        open(&prefix).and_then(|checkpoint| checkpoint.tensor("rows")).map_err(cause).unwrap_err()
    };
    let error = broken(&|e| e.slices.truncate(1));
    assert!(matches!(error, Error::SlicesIncomplete { stored: 3, elements: 6, .. }));
    let error = broken(&|e| e.slices[1] = e.slices[0].clone());
    assert!(matches!(error, Error::SlicesOverlap { .. }));
    let error = broken(&|e| e.slices[1].extent[0].start = 2);
    assert!(matches!(error, Error::SliceOutside { .. }));
    let error = broken(&|e| e.slices[1].extent[0].start = -1);
    assert!(matches!(error, Error::BadSlice { .. }));
    let error = broken(&|e| e.dtype = 1);
    assert!(matches!(error, Error::SliceMismatch { .. }));
    // What verify finds without values.
    let (_folder, prefix) = sample();
    edit_entry(&prefix, "rows", |e| e.slices[1] = e.slices[0].clone());
    let report = open(&prefix).unwrap().verify(|_| {}).unwrap();
    assert!(matches!(report.faults[0].error, Error::SlicesOverlap { .. }));

    // Slices that share their bytes could claim any size.
    let (_folder, prefix) = sample();
    let rows = 1000;
    edit_entry(&prefix, "rows", |e| {
        e.shape.as_mut().unwrap().dim[0].size = rows;
        e.slices = (0..rows)
            .map(|row| {
                let mut slice = e.slices[0].clone();
                slice.extent[0].start = row;
                slice
            })
            .collect();
    });
    let table = Table::open(std::fs::read(index_path(&prefix)).unwrap().into(), true).unwrap();
    let mut entries: std::collections::BTreeMap<Vec<u8>, Vec<u8>> =
        table.entries().map(|entry| entry.unwrap()).map(|(k, v)| (k, v.to_vec())).collect();
    let (key, row) = entries.iter().find(|(k, _)| k.first() == Some(&0)).unwrap();
    let (mut key, row) = (key.clone(), row.clone());
    key.truncate(key.len() - 4); // start and length on both axes, a byte each
    for row_number in 64..rows as u16 {
        let start = (0xc000 | row_number).to_be_bytes();
        entries.insert([&key[..], &start, b"\x81\x80\x7f"].concat(), row.clone());
    }
    for row_number in 0..64u8 {
        entries.insert([&key[..], &[0x80 | row_number], b"\x81\x80\x7f"].concat(), row.clone());
    }
    let mut builder = TableBuilder::new(Vec::new(), Compression::None);
    entries.iter().for_each(|(key, value)| builder.add(key, value).unwrap());
    std::fs::write(index_path(&prefix), builder.finish().unwrap()).unwrap();
    let error = open(&prefix).unwrap().tensor("rows").unwrap_err();
    assert!(error.to_string().contains("share their bytes"), "{error}");

    // A shape that a hostile index claims is not allocated.
    let error = broken(&|e| e.shape.as_mut().unwrap().dim[0].size = 1 << 40);
    assert!(matches!(error, Error::SlicesIncomplete { .. }));
}

#[test]
fn an_unknown_name_gets_suggestions() {
    let checkpoint = open(fixture("v2_partitioned")).unwrap();
    let error = checkpoint.tensor("column").unwrap_err();
    assert!(matches!(&error, Error::NoSuchTensor { near, .. } if near == &["columns"]));
    assert_eq!(error.hint().unwrap(), "did you mean `columns`?");
    let error = open(fixture("v1_partitioned")).unwrap().tensor("cube").unwrap_err();
    assert!(matches!(&error, Error::NoSuchTensor { near, .. } if near == &["a/cube"]));
}

#[test]
fn damaged_v1_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("v1");
    let whole = std::fs::read(fixture("v1_partitioned")).unwrap();
    for at in (0..whole.len()).step_by(29) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x21;
        std::fs::write(&path, damaged).unwrap();
        for verify_checksums in [true, false] {
            let Ok(checkpoint) = Checkpoint::open(&path, Options { verify_checksums }) else {
                continue;
            };
            for info in checkpoint.infos() {
                let _ = checkpoint.tensor(&info.name);
            }
        }
        std::fs::write(&path, &whole[..at]).unwrap();
        assert!(open(&path).is_err());
    }
}
