//! Every sample once in an epoch, in an order that can be gone on with.

use std::path::PathBuf;

use super::super::testing::pretraining;
use super::super::writer::{Format, SampleWriter};
use super::*;

const SHAPE: Shape = Shape { max_length: 32, max_predictions: 8, sequences: 3 };

/// Three files of sequences that all differ.
fn files(folder: &Path, format: Format) -> Vec<PathBuf> {
    let mut salt = 0;
    let mut next = || {
        salt += 1;
        pretraining(4 + (salt as usize * 7) % 24, salt)
    };
    [5, 9, 30]
        .into_iter()
        .map(|count| {
            let path = folder.join(format!("part-{count}"));
            let mut writer = SampleWriter::create(&path, format).unwrap();
            (0..count).for_each(|_| writer.add(&[next()]).unwrap());
            writer.finish().unwrap();
            path
        })
        .collect()
}

/// What tells sequences apart.
fn salts(batch: &PackedBatch) -> Vec<i32> {
    let last = |bounds: &[u32]| batch.input_ids[bounds[1] as usize - 2];
    batch.bounds.windows(2).map(last).collect()
}

fn open(folder: &Path, options: ReaderOptions) -> Reader {
    let paths = files(folder, Format::Records);
    Reader::open(&paths, ReaderOptions { shape: SHAPE, ..options }).unwrap()
}

#[test]
fn every_sequence_once_whatever_the_options() {
    let folder = tempfile::tempdir().unwrap();
    let expected: Vec<i32> = (8..52).collect();
    for depth in [Depth::AtMost(1), Depth::AtMost(3), Depth::Max] {
        for shuffle in [None, Some(7)] {
            for (packs, window) in [(1, 1), (4, 10), (100, 4096)] {
                let options =
                    ReaderOptions { depth, shuffle, packs, window, ..ReaderOptions::default() };
                let reader = open(folder.path(), options);
                assert_eq!((reader.samples_in(0), reader.max_length()), (44, 32));
                let mut seen = Vec::new();
                for batch in reader {
                    let batch = batch.unwrap();
                    assert!(batch.pack_count() <= packs && !batch.is_empty());
                    for pack in batch.packs.windows(2) {
                        let [begin, end] = [pack[0], pack[1]].map(|i| batch.bounds[i as usize]);
                        assert!(begin < end && end - begin <= 32);
                        assert!((pack[1] - pack[0]) as usize <= depth.limit(32));
                    }
                    seen.extend(salts(&batch));
                }
                let in_order = shuffle.is_none() && (depth == Depth::AtMost(1) || window == 1);
                assert_eq!(seen == expected, in_order);
                seen.sort_unstable();
                assert_eq!(seen, expected);
            }
        }
    }
}

#[test]
fn packing_on_the_way_fills_packs() {
    let folder = tempfile::tempdir().unwrap();
    let reader = open(folder.path(), ReaderOptions { shuffle: Some(1), ..Default::default() });
    let (mut packs, mut rows) = (0, 0);
    for batch in reader {
        let batch = batch.unwrap();
        (packs, rows) = (packs + batch.pack_count(), rows + batch.rows());
    }
    assert!(rows as f64 / (packs * 32) as f64 > 0.9, "{rows} rows in {packs} packs");
}

#[test]
fn going_on_anywhere_gives_the_same() {
    let folder = tempfile::tempdir().unwrap();
    for depth in [Depth::AtMost(1), Depth::AtMost(3)] {
        let options = ReaderOptions {
            depth,
            shuffle: Some(3),
            packs: 3,
            window: 16,
            repeat: true,
            ..ReaderOptions::default()
        };
        let mut reader = open(folder.path(), options.clone());
        let mut all = Vec::new();
        for _ in 0..40 {
            all.push((reader.position(), reader.next_batch().unwrap().unwrap()));
        }
        assert!(reader.position().epoch >= 1);
        for (position, batch) in &all {
            let stored = serde_json::to_string(position).unwrap();
            let mut other = open(folder.path(), options.clone());
            other.seek(serde_json::from_str(&stored).unwrap()).unwrap();
            assert_eq!(other.next_batch().unwrap().as_ref(), Some(batch));
        }
        // Another epoch has another order.
        assert!(all[0].1 != all[40 / 2].1);
        let lost = Position { sample: 44, ..Position::default() };
        assert!(matches!(reader.seek(lost), Err(Error::NoSuchPlace { sample: 44, count: 44 })));
        let lost = Position { pack: 17, ..Position::default() };
        assert!(matches!(reader.seek(lost), Err(Error::NoSuchPlace { sample: 17, .. })));
    }
}

#[test]
fn parts_make_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let options = |packs, part| ReaderOptions {
        packs,
        part,
        shuffle: Some(5),
        window: 20,
        depth: Depth::AtMost(3),
        repeat: true,
        ..ReaderOptions::default()
    };
    let mut whole = open(folder.path(), options(6, (0, 1)));
    let mut parts = [0, 1, 2].map(|part| open(folder.path(), options(2, (part, 3))));
    for _ in 0..20 {
        let expected = salts(&whole.next_batch().unwrap().unwrap());
        let of_parts = parts.each_mut().map(|part| salts(&part.next_batch().unwrap().unwrap()));
        assert_eq!(of_parts.concat(), expected);
    }
}

#[test]
fn epochs_read_one_duplicate_each() {
    let folder = tempfile::tempdir().unwrap();
    let options = ReaderOptions {
        depth: Depth::AtMost(1),
        duplication_factor: 2,
        repeat: true,
        packs: 1000,
        ..ReaderOptions::default()
    };
    let reader = open(folder.path(), ReaderOptions { repeat: false, ..options.clone() });
    assert_eq!((reader.samples_in(0), reader.samples_in(1), reader.samples_in(2)), (21, 23, 21));
    let first: Vec<i32> = reader.flat_map(|batch| salts(&batch.unwrap())).collect();
    let expected: Vec<i32> = (8..10).chain(13..17).chain(22..37).collect();
    assert_eq!(first, expected);
    let many = ReaderOptions { duplication_factor: 100, ..options };
    let paths = files(folder.path(), Format::Records);
    assert!(Reader::open(&paths, many).is_err());
}

#[test]
fn packs_are_given_as_they_are_stored() {
    let folder = tempfile::tempdir().unwrap();
    for format in [Format::PackedRecords(SHAPE.places()), Format::PackedBinary(SHAPE)] {
        let path = folder.path().join("packed");
        let mut writer = SampleWriter::create(&path, format).unwrap();
        writer.add(&[pretraining(9, 1), pretraining(12, 2)]).unwrap();
        writer.add(&[pretraining(30, 3)]).unwrap();
        writer.finish().unwrap();
        let options = ReaderOptions { shape: SHAPE, packs: 8, ..ReaderOptions::default() };
        let mut reader = Reader::open(&[&path], options.clone()).unwrap();
        let batch = reader.next_batch().unwrap().unwrap();
        assert_eq!((batch.packs, batch.bounds), (vec![0, 2, 3], vec![0, 9, 21, 51]));
        assert_eq!(reader.next_batch().unwrap(), None);
        let mut paths = files(folder.path(), Format::Records);
        paths.push(path);
        let error = Reader::open(&paths, options).unwrap_err().to_string();
        assert!(error.contains("but the files before it hold records of sequences"), "{error}");
    }
    let none = Reader::open(&[] as &[&Path], ReaderOptions::default());
    assert!(matches!(none, Err(Error::NoFiles)));
}
