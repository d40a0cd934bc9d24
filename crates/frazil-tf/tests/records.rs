//! Records, examples and events that TensorFlow 1.15 wrote.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too, may fail loudly")]

use std::path::{Path, PathBuf};

use bytes::Bytes;
use frazil_tensor::testing;
use frazil_tf::Result;
use frazil_tf::events::{self, EventWriter};
use frazil_tf::example::{Example, Kind, SequenceExample};
use frazil_tf::proto::{Event, HistogramProto, event, summary::value::Value};
use frazil_tf::tfrecord::{Compression, RecordReader, RecordWriter, Records};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/records").join(name)
}

fn records(path: &Path) -> Vec<Bytes> {
    RecordReader::open(path).unwrap().collect::<Result<_>>().unwrap()
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

#[test]
fn plain_and_packed() {
    let text = std::fs::read_to_string(fixture("records.json")).unwrap();
    let expected: Vec<String> = serde_json::from_str(&text).unwrap();
    for name in ["plain", "gzip", "zlib"] {
        let read = records(&fixture(&format!("{name}.tfrecord")));
        let hex = |r: &Bytes| r.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(read.iter().map(hex).collect::<Vec<_>>(), expected, "{name}");
    }
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("x");
    let mut writer = RecordWriter::create(&path, Compression::None).unwrap();
    for record in records(&fixture("plain.tfrecord")) {
        writer.add(&record).unwrap();
    }
    writer.finish().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), std::fs::read(fixture("plain.tfrecord")).unwrap());
}

#[test]
fn a_sequence_example() {
    let record = records(&fixture("sequence.tfrecord")).remove(0);
    let example = SequenceExample::decode(record).unwrap();
    assert_eq!(example.context().bytes("id").unwrap(), ["a"]);
    assert_eq!(example.names().collect::<Vec<_>>(), ["scores", "tokens"]);
    assert_eq!(example.int64s("tokens").unwrap(), [&[1, -1][..], &[]]);
    assert_eq!(example.floats("scores").unwrap(), [[0.5]]);
}

#[test]
fn every_golden_example_record_by_record() {
    let Some(folder) = testing::shared("fixtures") else { return };
    let mut all = Vec::new();
    files(&folder, &mut all);
    let (mut compared, mut opened) = (0, 0);
    for path in all {
        let name = path.file_name().unwrap().to_str().unwrap();
        if !(name.contains("tfrecord") || name.contains("tf_record")) || name.ends_with("json") {
            continue;
        }
        let examples: Vec<Example> =
            records(&path).into_iter().map(|r| Example::decode(r).unwrap()).collect();
        assert!(!examples.is_empty(), "{name}");
        opened += 1;
        let mapped = Records::map(&path).unwrap().collect::<Result<Vec<_>>>().unwrap();
        assert_eq!(mapped, records(&path));
        let Ok(json) = std::fs::read_to_string(path.with_file_name(format!("{name}.json"))) else {
            continue;
        };
        let expected: Vec<serde_json::Map<String, serde_json::Value>> =
            serde_json::from_str(&json).unwrap();
        assert_eq!(examples.len(), expected.len(), "{name}");
        for (example, expected) in examples.iter().zip(&expected) {
            let mut names: Vec<&str> = expected.keys().map(String::as_str).collect();
            names.sort_unstable();
            assert_eq!(example.features().names().collect::<Vec<_>>(), names);
            for (feature, values) in expected {
                let values = values.as_array().unwrap();
                match example.features().kind(feature).unwrap() {
                    Kind::Int64s => {
                        let values: Vec<i64> = values.iter().map(|v| v.as_i64().unwrap()).collect();
                        assert_eq!(example.int64s(feature).unwrap(), values, "{name} {feature}");
                    }
                    Kind::Floats => {
                        let values: Vec<f32> =
                            values.iter().map(|v| v.as_f64().unwrap() as f32).collect();
                        assert_eq!(example.floats(feature).unwrap(), values, "{name} {feature}");
                    }
                    other => panic!("{name} {feature}: {other}"),
                }
            }
            let again = Example::decode(example.encode().into()).unwrap();
            assert_eq!(&again, example);
            compared += 1;
        }
    }
    assert!(opened >= 12 && compared >= 211, "{opened} files, {compared} records");
}

fn histogram(event: &Event) -> &HistogramProto {
    let Some(event::What::Summary(summary)) = &event.what else { panic!() };
    let Some(Value::Histo(histogram)) = &summary.value[0].value else { panic!() };
    histogram
}

#[test]
fn events_equal_tensorflows() {
    let theirs: Vec<Event> =
        events::read(fixture("tf115.events")).unwrap().collect::<Result<_>>().unwrap();
    let numbers = std::fs::read(fixture("histogram.f32")).unwrap();
    let numbers: Vec<f64> =
        numbers.chunks(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect();
    let folder = tempfile::tempdir().unwrap();
    let mut writer = EventWriter::create(folder.path(), "").unwrap();
    writer.scalar(7, "loss", 0.25).unwrap();
    writer.histogram(8, "h", numbers).unwrap();
    writer.flush().unwrap();
    let mut ours: Vec<Event> = events::read(writer.path()).unwrap().collect::<Result<_>>().unwrap();
    assert_eq!(histogram(&ours[2]), histogram(&theirs[2]));
    for (ours, theirs) in ours.iter_mut().zip(&theirs) {
        ours.wall_time = theirs.wall_time;
    }
    assert_eq!(ours, theirs);
}
