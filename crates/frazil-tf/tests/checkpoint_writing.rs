//! What is written: byte for byte TensorFlow's where that is possible, whole or not at all, and
//! read back as it was.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};

use bytes::Bytes;
use frazil_tensor::testing::shared;
use frazil_tensor::{DType, Shape, Tensor, TensorStore};
use frazil_tf::Error;
use frazil_tf::bundle::{Bundle, BundleWriter, WriteOptions, data_path, index_path};
use frazil_tf::checkpoint::{Checkpoint, Options};
use frazil_tf::slice::{Extent, TensorSlice};
use proptest::prelude::*;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/checkpoints").join(name)
}

/// The names of a one-file checkpoint in the order in which they lie in that file. Zero-size
/// tensors share their offset with the next one; the names' order, in which TensorFlow saves,
/// decides.
fn file_order(prefix: &Path) -> Vec<String> {
    use frazil_tf::proto::BundleEntryProto;
    use prost::Message;
    let index = std::fs::read(index_path(prefix)).unwrap();
    let table = frazil_tf::sstable::Table::open(index.into(), true).unwrap();
    let mut places: Vec<(i64, i64, String)> = table
        .entries()
        .map(|entry| entry.unwrap())
        .filter(|(key, _)| !key.is_empty())
        .map(|(key, value)| {
            let entry = BundleEntryProto::decode(value).unwrap();
            (entry.offset, entry.size, String::from_utf8(key).unwrap())
        })
        .collect();
    places.sort();
    places.into_iter().map(|(_, _, name)| name).collect()
}

/// Reads a checkpoint, writes it again and compares the files.
fn rewrite_is_identical(prefix: &Path) {
    let checkpoint = Checkpoint::open(prefix, Options::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    let mut writer = BundleWriter::create(&copy, WriteOptions::default()).unwrap();
    for name in file_order(prefix) {
        writer.add(&name, &checkpoint.tensor(&name).unwrap()).unwrap();
    }
    writer.finish().unwrap();
    for path in [index_path as fn(&Path) -> PathBuf, |prefix| data_path(prefix, 0, 1)] {
        let (theirs, ours) = (path(prefix), path(&copy));
        assert!(
            std::fs::read(&theirs).unwrap() == std::fs::read(&ours).unwrap(),
            "{} is written otherwise",
            theirs.display()
        );
    }
}

#[test]
fn the_same_bytes_as_tensorflow() {
    rewrite_is_identical(&fixture("v2_dtypes"));
    rewrite_is_identical(&fixture("v2_dtypes_tf2"));
    rewrite_is_identical(&fixture("tf2_objects"));
    for prefix in [
        "fixtures/meta/bert_model.ckpt",
        "fixtures/meta_tf111/bert_model.ckpt",
        "fixtures/pretrain/model.ckpt-40",
        "fixtures/classifier/model.ckpt-27",
        "fixtures/numerics/model.ckpt",
        "fixtures/squad/v1.1/model.ckpt-65",
    ] {
        let Some(index) = shared(&format!("{prefix}.index")) else { return };
        rewrite_is_identical(&index.with_extension(""));
    }
}

#[test]
fn partitioned_variables_as_tensorflow_writes_them() {
    // The slices of `make.py`, in the order in which it saves them.
    let theirs = fixture("v2_partitioned");
    let checkpoint = Checkpoint::open(&theirs, Options::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ours = folder.path().join("partitioned");
    let mut writer = BundleWriter::create(&ours, WriteOptions::default()).unwrap();
    let extent = |start, length| Some(Extent { start, length });
    let mut add = |name: &str, slices: Vec<Vec<Option<Extent>>>| {
        let whole = checkpoint.tensor(name).unwrap();
        for slice in slices {
            let part = cut(&whole, &slice);
            writer.add_slice(name, whole.shape(), &TensorSlice::new(slice), &part).unwrap();
        }
    };
    let corner = |a, n, b, m| vec![extent(a, n), None, extent(b, m)];
    let corners =
        vec![corner(0, 1, 0, 4), corner(0, 1, 4, 2), corner(1, 3, 0, 4), corner(1, 3, 4, 2)];
    add("a/cube", corners);
    let columns = [(0, 70), (70, 70), (140, 60)];
    add("columns", columns.map(|(a, n)| vec![None, extent(a, n)]).to_vec());
    add("plain", vec![vec![None]]);
    let rows = [(0, 3), (3, 2), (5, 2)];
    add("rows", rows.map(|(a, n)| vec![extent(a, n), None]).to_vec());
    add("whole", vec![vec![extent(0, 3), None]]);
    add("words", vec![vec![extent(0, 2)], vec![extent(2, 2)]]);
    writer.finish().unwrap();
    assert_eq!(
        std::fs::read(index_path(&ours)).unwrap(),
        std::fs::read(index_path(&theirs)).unwrap()
    );
    assert_eq!(
        std::fs::read(data_path(&ours, 0, 1)).unwrap(),
        std::fs::read(data_path(&theirs, 0, 1)).unwrap()
    );
}

/// A box of a tensor, the slow and obvious way.
fn cut(whole: &Tensor, slice: &[Option<Extent>]) -> Tensor {
    let full = whole.shape();
    let extents: Vec<Extent> = slice
        .iter()
        .zip(full.iter())
        .map(|(e, &dim)| e.unwrap_or(Extent { start: 0, length: dim }))
        .collect();
    let shape: Vec<usize> = extents.iter().map(|e| e.length).collect();
    let wanted: Vec<usize> = (0..whole.elements())
        .filter(|&element| {
            let mut rest = element;
            (0..full.len()).rev().all(|axis| {
                let at = rest % full[axis];
                rest /= full[axis];
                (extents[axis].start..extents[axis].start + extents[axis].length).contains(&at)
            })
        })
        .collect();
    match whole.dtype().size() {
        None => {
            let strings = whole.strings().unwrap();
            let part = wanted.iter().map(|&i| strings[i].clone()).collect();
            Tensor::from_strings(shape, part).unwrap()
        }
        Some(size) => {
            let bytes = whole.bytes().unwrap();
            let part: Vec<u8> =
                wanted.iter().flat_map(|&i| bytes[i * size..][..size].to_vec()).collect();
            Tensor::new(whole.dtype(), shape, part).unwrap()
        }
    }
}

#[test]
fn nothing_has_its_name_before_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("new/model.ckpt");
    let options = WriteOptions::default().shards(2);
    let mut writer = BundleWriter::create(&prefix, options).unwrap();
    let tensor = Tensor::from_vec([2], vec![1f32, 2.0]).unwrap();
    writer.add("x", &tensor).unwrap();
    let visible = || {
        let files = prefix.parent().unwrap().read_dir().unwrap().flatten();
        let mut names: Vec<_> = files.map(|f| f.file_name().into_string().unwrap()).collect();
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        names
    };
    assert!(visible().is_empty());
    drop(writer);
    assert_eq!(prefix.parent().unwrap().read_dir().unwrap().count(), 0);

    let mut writer = BundleWriter::create(&prefix, options).unwrap();
    writer.add("x", &tensor).unwrap();
    writer.finish().unwrap();
    let expected = ["data-00000-of-00002", "data-00001-of-00002", "index"];
    assert_eq!(visible(), expected.map(|end| format!("model.ckpt.{end}")));
    let read = Checkpoint::open(&prefix, Options::default()).unwrap();
    assert_eq!(read.tensor("x").unwrap(), tensor);
}

#[test]
fn names_are_taken_once_and_slices_must_fit() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer =
        BundleWriter::create(folder.path().join("x"), WriteOptions::default()).unwrap();
    let row = Tensor::from_vec([1, 2], vec![1f32, 2.0]).unwrap();
    let full = Shape::from([2, 2]);
    writer.add("a", &row).unwrap();
    writer.add_slice("b", &full, &TensorSlice::rows(2, 0, 1), &row).unwrap();
    for name in ["a", "b", "", "\0a"] {
        assert!(matches!(writer.add(name, &row), Err(Error::BadName { .. })), "{name:?}");
    }
    let mut slice = |name: &str, full: &Shape, start, part: &Tensor| {
        writer.add_slice(name, full, &TensorSlice::rows(2, start, 1), part).unwrap_err()
    };
    assert!(matches!(slice("a", &full, 0, &row), Error::BadName { .. }));
    assert!(matches!(slice("b", &full, 0, &row), Error::BadName { .. }));
    assert!(matches!(slice("b", &full, 2, &row), Error::SliceOutside { .. }));
    assert!(matches!(slice("b", &[3, 2].into(), 1, &row), Error::SliceMismatch { .. }));
    let double = Tensor::from_vec([1, 2], vec![1f64, 2.0]).unwrap();
    assert!(matches!(slice("b", &full, 1, &double), Error::SliceMismatch { .. }));
    let column = row.reshape([2, 1]).unwrap();
    assert!(matches!(slice("b", &full, 1, &column), Error::SliceMismatch { .. }));
}

fn tensors() -> impl Strategy<Value = Tensor> {
    let shapes = prop::collection::vec(0usize..5, 0..4);
    (shapes, prop::sample::select(DType::ALL.to_vec()), any::<u64>()).prop_map(
        |(shape, dtype, seed)| {
            let shape = Shape::from(shape);
            let elements = shape.elements().unwrap();
            let mut state = seed | 1;
            let mut byte = move || {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 56) as u8
            };
            match dtype.size() {
                Some(size) => {
                    let bytes: Vec<u8> = (0..elements * size).map(|_| byte()).collect();
                    Tensor::new(dtype, shape, bytes).unwrap()
                }
                None => {
                    let mut string = || (0..byte()).map(|_| byte()).collect::<Vec<u8>>().into();
                    let strings: Vec<Bytes> = (0..elements).map(|_| string()).collect();
                    Tensor::from_strings(shape, strings).unwrap()
                }
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_reads_back(
        tensors in prop::collection::btree_map("[a-z/]{1,9}|[α-ω]{1,3}", tensors(), 0..12),
        shards in 1u32..4,
        compress in any::<bool>(),
        rows in prop::collection::vec(0usize..5, 0..12),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().join("m");
        let options = WriteOptions::default().shards(shards).compress(compress);
        let mut writer = BundleWriter::create(&prefix, options).unwrap();
        for (number, (name, tensor)) in tensors.iter().enumerate() {
            // Some are partitioned in two, by rows.
            let rank = tensor.shape().len();
            let split = rows.get(number).copied().unwrap_or(0);
            match tensor.shape().first() {
                Some(&all) if 0 < split && split < all => {
                    for (start, length) in [(0, split), (split, all - split)] {
                        let mut extents = vec![None; rank];
                        extents[0] = Some(Extent { start, length });
                        let part = cut(tensor, &extents);
                        let slice = TensorSlice::rows(rank, start, length);
                        writer.add_slice(name, tensor.shape(), &slice, &part).unwrap();
                    }
                }
                _ => writer.add(name, tensor).unwrap(),
            }
        }
        writer.finish().unwrap();
        let read = Checkpoint::open(&prefix, Options::default()).unwrap();
        prop_assert_eq!(read.shards(), shards);
        prop_assert!(read.infos().iter().map(|info| &info.name).eq(tensors.keys()));
        for (name, tensor) in &tensors {
            prop_assert_eq!(&read.tensor(name).unwrap(), tensor);
        }
        let report = read.verify(|_| {}).unwrap();
        prop_assert!(report.faults.is_empty(), "{:?}", report.faults);
    }

    /// A hostile index never panics, whatever is in it.
    #[test]
    fn a_damaged_index_is_an_error_or_harmless(
        at in any::<prop::sample::Index>(),
        flip in 1u8..,
        verify in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().join("m");
        for (from, to) in [
            (index_path(&fixture("v2_partitioned")), index_path(&prefix)),
            (data_path(&fixture("v2_partitioned"), 0, 1), data_path(&prefix, 0, 1)),
        ] {
            std::fs::copy(from, to).unwrap();
        }
        let mut index = std::fs::read(index_path(&prefix)).unwrap();
        let at = at.index(index.len());
        index[at] ^= flip;
        std::fs::write(index_path(&prefix), index).unwrap();
        let Ok(bundle) = Bundle::open(&prefix, verify) else { return Ok(()) };
        let checkpoint = Checkpoint::open(&prefix, Options { verify_checksums: verify }).unwrap();
        let _ = checkpoint.verify(|_| {});
        for info in bundle.infos() {
            let _ = bundle.tensor(&info.name);
        }
    }
}
