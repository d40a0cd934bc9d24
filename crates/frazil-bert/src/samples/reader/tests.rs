//! Every sample once in an epoch, in an order that can be gone on with.

use std::path::PathBuf;

use frazil_tf::example::Example;
use frazil_tf::tfrecord::{Compression, RecordReader, RecordWriter};

use super::super::packed::Places;
use super::super::testing::pretraining;
use super::super::writer::{Format, SampleWriter};
use super::*;
use crate::features::{Features, PretrainingFeatures};

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

/// Each sample of a file, and padding before, between and behind them.
fn padded(path: &Path, format: Format) -> PathBuf {
    let file = SampleFile::open(path, SHAPE).unwrap();
    let nothing = || {
        let Sample::Pretraining(sample) = pretraining(4, 0) else { unreachable!() };
        let features = Features::padding(32);
        Sample::Pretraining(PretrainingFeatures { features, masked: Vec::new(), ..sample })
    };
    let to = path.with_extension("padded");
    let binary = |size: usize| {
        let zeros = vec![0; 3 * size];
        let bytes = std::fs::read(path).unwrap();
        let all = bytes.chunks(size).flat_map(|one| [one, &zeros].concat());
        std::fs::write(&to, [zeros.clone(), all.collect()].concat()).unwrap();
    };
    match format {
        Format::Records => {
            let mut writer = SampleWriter::create(&to, format).unwrap();
            writer.add(&[nothing()]).unwrap();
            for samples in file.iter() {
                writer.add(&samples.unwrap()).unwrap();
                writer.add(&[nothing(), nothing(), nothing()]).unwrap();
            }
            writer.finish().unwrap();
        }
        Format::PackedRecords(places) => {
            let names = ["input_ids", "input_mask", "segment_ids", "positions"];
            let row = |example: Example, name| example.with_int64s(name, vec![0; places.tokens]);
            let zeros = names.into_iter().fold(Example::default(), row);
            let mut writer = RecordWriter::create(&to, Compression::None).unwrap();
            writer.add(&zeros.encode()).unwrap();
            for record in RecordReader::open(path).unwrap() {
                writer.add(&record.unwrap()).unwrap();
                writer.add(&zeros.encode()).unwrap();
            }
            writer.finish().unwrap();
        }
        Format::Binary(shape) => binary(shape.bytes_of_one()),
        Format::PackedBinary(shape) => binary(shape.bytes_of_pack()),
        Format::Popart(_) => unreachable!(),
    }
    to
}

/// Packs of two and three sequences, or these alone.
fn file_of(folder: &Path, format: Format) -> PathBuf {
    let path = folder.join("samples");
    let mut writer = SampleWriter::create(&path, format).unwrap();
    for salt in (0..60).step_by(3) {
        let pack = [pretraining(9, salt), pretraining(12, salt + 1), pretraining(11, salt + 2)];
        writer.add(&pack[..2 + salt as usize % 2]).unwrap();
    }
    writer.finish().unwrap();
    path
}

const FORMATS: [Format; 4] = [
    Format::Records,
    Format::PackedRecords(Places { tokens: 32, masked: 11, sequences: 3 }),
    Format::Binary(SHAPE),
    Format::PackedBinary(SHAPE),
];

#[test]
fn padding_is_passed_over() {
    for format in FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let path = file_of(folder.path(), format);
        let padded = padded(&path, format);
        for depth in [Depth::AtMost(1), Depth::AtMost(3)] {
            let options = |packs, part| ReaderOptions {
                shape: SHAPE,
                depth,
                packs,
                part,
                ..Default::default()
            };
            // Not packed on the way, it is as if padding were not there.
            let all = |path: &Path, options| -> Vec<PackedBatch> {
                Reader::open(&[path], options).unwrap().map(Result::unwrap).collect()
            };
            let (with, without) =
                (all(&padded, options(4, (0, 1))), all(&path, options(4, (0, 1))));
            if depth == Depth::AtMost(1) || format.kind().unwrap().is_packed() {
                assert_eq!(with, without, "{format:?}");
            }
            let sorted = |batches: &[PackedBatch]| {
                let mut salts: Vec<i32> = batches.iter().flat_map(salts).collect();
                salts.sort_unstable();
                salts
            };
            assert_eq!(sorted(&with), sorted(&without), "{format:?}");
            assert!(with.iter().all(|batch| batch.sequences() > 0));
            // Windows of padding alone, shuffled, in parts, and gone on with anywhere.
            let options = |packs, part| ReaderOptions {
                shuffle: Some(3),
                repeat: true,
                window: 2,
                ..options(packs, part)
            };
            let open = |options| Reader::open(&[&padded], options).unwrap();
            let mut whole = open(options(6, (0, 1)));
            let mut parts = [0, 1, 2].map(|part| open(options(2, (part, 3))));
            for _ in 0..30 {
                let mut other = open(options(6, (0, 1)));
                other.seek(whole.position()).unwrap();
                let batch = whole.next_batch().unwrap().unwrap();
                assert_eq!(batch.pack_count(), 6);
                assert_eq!(other.next_batch().unwrap().unwrap(), batch);
                assert_eq!(other.position(), whole.position());
                let of_parts =
                    parts.each_mut().map(|part| salts(&part.next_batch().unwrap().unwrap()));
                assert_eq!(of_parts.concat(), salts(&batch));
            }
            assert!(whole.position().epoch > 1);
        }
    }
}

#[test]
fn padding_alone_is_nothing_to_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("zeros");
    for size in [SHAPE.bytes_of_one(), SHAPE.bytes_of_pack()] {
        std::fs::write(&path, vec![0; 5 * size]).unwrap();
        let options = ReaderOptions { shape: SHAPE, repeat: true, ..Default::default() };
        let error = Reader::open(&[&path], options).unwrap_err();
        let Error::InFile { path: named, source } = error else { panic!("{error}") };
        assert!(named == path && matches!(*source, Error::OnlyPadding), "{source}");
    }
}

#[test]
fn files_without_records_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut paths = files(folder.path(), Format::Records);
    let (empty, packed) = (folder.path().join("empty"), folder.path().join("empty.gz"));
    std::fs::write(&empty, "").unwrap();
    RecordWriter::create(&packed, Compression::Gzip).unwrap().finish().unwrap();
    paths.splice(..0, [empty.clone(), packed.clone()]);
    let reader = Reader::open(&paths, ReaderOptions::default()).unwrap();
    assert_eq!(reader.samples_in(0), 44);
    for none in [&empty, &packed] {
        let error = Reader::open(&[none], ReaderOptions::default()).unwrap_err();
        assert!(error.is_of_empty_file(), "{error:?}");
        assert!(error.to_string().contains("empty"), "it names the file");
    }
}

#[test]
fn what_is_to_be_learnt_is_known_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let reader = open(folder.path(), ReaderOptions::default());
    assert!(reader.expect(Kind::Pretraining).is_ok());
    let error = reader.expect(Kind::Squad).unwrap_err();
    let said = error.to_string();
    assert!(said.ends_with("holds samples of pre-training, and SQuAD is to be learnt"), "{said}");
    assert!(said.contains("part-5") && error.hint().is_some(), "{said}");
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

#[test]
fn what_is_gone_over_is_as_if_read() {
    let folder = tempfile::tempdir().unwrap();
    for (depth, factor) in [(Depth::AtMost(1), 1), (Depth::AtMost(1), 2), (Depth::AtMost(3), 1)] {
        let options = ReaderOptions {
            depth,
            duplication_factor: factor,
            shuffle: Some(5),
            window: 16,
            repeat: true,
            ..ReaderOptions::default()
        };
        let mut reader = open(folder.path(), options.clone());
        let mut sequences = 0;
        for packs in 0..150 {
            let mut other = open(folder.path(), options.clone());
            assert_eq!(Reader::skip(&mut other, packs).unwrap(), sequences, "{packs}");
            assert_eq!(other.position(), reader.position(), "{packs}");
            sequences += reader.next_pack().unwrap().unwrap().len() as u64;
        }
    }
    let mut reader = open(folder.path(), ReaderOptions { repeat: true, ..Default::default() });
    reader.options.depth = Depth::AtMost(1);
    let far = u64::MAX / 2;
    assert_eq!(Reader::skip(&mut reader, far).unwrap(), far);
    assert_eq!(reader.position().epoch, far / 44);
}

#[test]
fn other_samples_and_other_orders_are_known() {
    for format in FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let path = file_of(folder.path(), format);
        let options = ReaderOptions { shape: SHAPE, shuffle: Some(1), ..Default::default() };
        let of = |paths: &[&Path], options: &ReaderOptions| {
            Reader::open(paths, options.clone()).unwrap().identity()
        };
        let identity = of(&[&path], &options);
        let batches = ReaderOptions { packs: 7, part: (1, 2), repeat: true, ..options.clone() };
        assert_eq!(of(&[&path], &batches), identity, "{format:?}");
        let seed = ReaderOptions { shuffle: Some(2), ..options.clone() };
        assert!(of(&[&path], &seed) != identity, "{format:?}");
        let window = ReaderOptions { window: 3, ..options.clone() };
        let is_packed = format.kind().unwrap().is_packed();
        assert_eq!(of(&[&path], &window) == identity, is_packed, "{format:?}");
        assert!(of(&[&path, &path], &options) != identity, "{format:?}");
        // One sample of the middle.
        let other = folder.path().join("other");
        let mut writer = SampleWriter::create(&other, format).unwrap();
        let file = SampleFile::open(&path, SHAPE).unwrap();
        for (index, pack) in file.iter().enumerate() {
            let mut pack = pack.unwrap();
            if let (Sample::Pretraining(sample), true) = (&mut pack[0], index == 9) {
                sample.masked[0].id += 1;
            }
            writer.add(&pack).unwrap();
        }
        writer.finish().unwrap();
        assert!(of(&[&other], &options) != identity, "{format:?}");
    }
}
