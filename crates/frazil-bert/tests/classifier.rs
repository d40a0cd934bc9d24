//! Classifier records against the original: `train.tf_record`, `eval.tf_record` and
//! `predict.tf_record` as run_classifier.py on TensorFlow 1.15 wrote them.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::sync::Arc;

use frazil_bert::features::classifier::{
    ClassifierFeatures, ClassifierInput, read_records, write_records,
};
use frazil_bert::glue::{ReadOptions, Split, Task};
use frazil_bert::tokenizer::{Casing, Tokenizer, Vocabulary};
use frazil_tensor::testing::shared;
use frazil_tf::example::Example;
use frazil_tf::tfrecord::RecordReader;

fn records(path: &Path) -> Vec<Example> {
    let records = RecordReader::open(path).unwrap();
    records.map(|record| Example::decode(record.unwrap()).unwrap()).collect()
}

#[test]
fn every_record_is_the_original_s() {
    let (Some(folder), Some(data), Some(vocabulary)) = (
        shared("fixtures/classifier"),
        shared("fixtures/data/MRPC"),
        shared("fixtures/data/vocab_small.txt"),
    ) else {
        return;
    };
    let vocabulary = Arc::new(Vocabulary::open(vocabulary).unwrap());
    let tokenizer = Tokenizer::new(vocabulary, Casing::Lower).unwrap();
    let input = ClassifierInput::new(tokenizer, Task::Mrpc.labels(), 128).unwrap();
    let written = tempfile::tempdir().unwrap();
    for (split, name, count) in [
        (Split::Train, "train.tf_record", 36),
        (Split::Dev, "eval.tf_record", 17),
        (Split::Test, "predict.tf_record", 17),
    ] {
        let examples = Task::Mrpc.read(&data, split, &ReadOptions::default()).unwrap();
        assert!(examples.skipped.is_empty());
        let features = input.features_of_all(&examples.items).unwrap();
        let path = written.path().join(name);
        assert_eq!(write_records(&path, &features).unwrap(), count);
        assert_eq!(records(&path), records(&folder.join(name)), "{name}");
        assert_eq!(read_records(folder.join(name)).unwrap(), features);
    }
}

#[test]
fn padding_as_the_original_pads() {
    let example = ClassifierFeatures::padding(4).to_example();
    for (name, expected) in [
        ("input_ids", &[0; 4][..]),
        ("input_mask", &[0; 4]),
        ("segment_ids", &[0; 4]),
        ("label_ids", &[0]),
        ("is_real_example", &[0]),
    ] {
        assert_eq!(example.int64s(name).unwrap(), expected);
    }
}

#[test]
fn real_data_sets_are_read_whole() {
    let Some(folder) = shared("data/glue") else { return };
    use Split::{Dev, Test, Train};
    for (task, split, rows) in [
        (Task::Mrpc, Train, 3668),
        (Task::Mrpc, Dev, 408),
        (Task::Mrpc, Test, 1725),
        (Task::Cola, Train, 8551),
        (Task::Cola, Dev, 1043),
        (Task::Cola, Test, 1063),
        (Task::Rte, Train, 2490),
        (Task::Rte, Dev, 277),
        (Task::StsB, Train, 5749),
        (Task::StsB, Dev, 1500),
        (Task::Wnli, Train, 635),
        (Task::Wnli, Dev, 71),
    ] {
        let read = task.read(folder.join(task.name()), split, &ReadOptions::default());
        let read = read.unwrap_or_else(|error| panic!("{task} {split:?}: {error:?}"));
        assert_eq!(read.items.len(), rows, "{task} {split:?}");
        assert!(read.items.iter().all(|example| !example.text_a.is_empty()));
    }
}
