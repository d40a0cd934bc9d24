//! SQuAD against the original: examples, features, records and answers that google-research/bert
//! made on TensorFlow 1.15.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use frazil_bert::squad::{
    FeatureOptions, PredictOptions, RawResult, ReadOptions, SquadExample, SquadFeatures,
    build_features, predict, read_examples, read_records, shuffle_for_training, write_records,
};
use frazil_bert::tokenizer::{Casing, Tokenizer, Vocabulary};
use frazil_tensor::npy::Npz;
use frazil_tensor::testing::shared;
use frazil_tensor::{Tensor, TensorStore};
use frazil_tf::example::Example;
use frazil_tf::tfrecord::RecordReader;
use serde_json::{Value, json};

fn tokenizer(vocabulary: PathBuf) -> Tokenizer {
    Tokenizer::new(Arc::new(Vocabulary::open(vocabulary).unwrap()), Casing::Lower).unwrap()
}

fn json_file(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// How the fixtures were made.
const OPTIONS: FeatureOptions =
    FeatureOptions { max_seq_length: 128, doc_stride: 32, max_query_length: 64, training: false };

struct Case {
    folder: PathBuf,
    tokenizer: Tokenizer,
    version: &'static str,
    data: PathBuf,
}

impl Case {
    fn all() -> Vec<Self> {
        let case = |version| {
            Some(Self {
                folder: shared(&format!("fixtures/squad/{version}"))?,
                tokenizer: tokenizer(shared("fixtures/data/vocab_small.txt")?),
                version,
                data: shared("fixtures/data/squad")?,
            })
        };
        ["v1.1", "v2.0"].into_iter().filter_map(case).collect()
    }

    fn build(&self, training: bool) -> (Vec<SquadExample>, Vec<SquadFeatures>) {
        let name = if training { "train" } else { "dev" };
        let path = self.data.join(format!("{name}-{}.json", self.version));
        let version_2 = self.version == "v2.0";
        let options = ReadOptions { training, version_2, ..Default::default() };
        let mut examples = read_examples(path, options).unwrap();
        assert!(examples.skipped.is_empty() || training);
        if training {
            shuffle_for_training(&mut examples.items);
        }
        let options = FeatureOptions { training, ..OPTIONS };
        let features = build_features(&examples.items, &self.tokenizer, options).unwrap();
        (examples.items, features)
    }
}

#[test]
fn examples_are_the_original_s() {
    for case in Case::all() {
        let (examples, _) = case.build(false);
        let golden = json_file(&case.folder.join("examples.json"));
        let found: Vec<Value> = examples
            .iter()
            .map(|example| {
                json!({
                    "qas_id": example.qas_id,
                    "question_text": example.question_text,
                    "doc_tokens": example.document.words().collect::<Vec<_>>(),
                    "orig_answer_text": example.orig_answer_text,
                    "start_position": example.start_position,
                    "end_position": example.end_position,
                    "is_impossible": example.is_impossible,
                })
            })
            .collect();
        assert_eq!(json!(found), golden);
    }
}

#[test]
fn features_are_the_original_s() {
    for case in Case::all() {
        let (_, features) = case.build(false);
        let golden = json_file(&case.folder.join("features.json"));
        let golden = golden.as_array().unwrap();
        assert_eq!(features.len(), golden.len());
        for (features, golden) in features.iter().zip(golden) {
            let tokens = features.document_tokens();
            let words: serde_json::Map<String, Value> = tokens
                .clone()
                .map(|token| (token.to_string(), json!(features.word(token).unwrap())))
                .collect();
            let context: serde_json::Map<String, Value> = tokens
                .map(|token| (token.to_string(), json!(features.is_max_context(token))))
                .collect();
            let found = json!({
                "unique_id": features.unique_id,
                "example_index": features.example_index,
                "doc_span_index": features.doc_span_index,
                "tokens": features.tokens(case.tokenizer.vocabulary()),
                "token_to_orig_map": words,
                "token_is_max_context": context,
                "input_ids": features.features.input_ids(),
                "input_mask": features.features.input_mask(),
                "segment_ids": features.features.segment_ids(),
                "start_position": features.start_position,
                "end_position": features.end_position,
                "is_impossible": features.is_impossible,
            });
            assert_eq!(&found, golden);
        }
    }
}

fn records(path: &Path) -> Vec<Example> {
    let records = RecordReader::open(path).unwrap();
    records.map(|record| Example::decode(record.unwrap()).unwrap()).collect()
}

#[test]
fn records_are_the_original_s() {
    let folder = tempfile::tempdir().unwrap();
    for case in Case::all() {
        for (training, name) in [(false, "eval.tf_record"), (true, "train.tf_record")] {
            let (_, features) = case.build(training);
            let path = folder.path().join(name);
            let count = write_records(&path, &features).unwrap();
            let golden = records(&case.folder.join(name));
            assert_eq!(count as usize, golden.len());
            assert_eq!(records(&path), golden, "{} {}", case.version, name);
            let read = read_records(&path).unwrap();
            for (record, features) in read.iter().zip(&features) {
                assert_eq!(record.unique_id, features.unique_id);
                assert_eq!(record.features, features.features);
                assert_eq!(record.answer.map(|a| a.0 as i32), features.start_position);
            }
        }
    }
}

fn rows(npz: &Npz, name: &str) -> Vec<Vec<f32>> {
    let tensor: Tensor = npz.tensor(name).unwrap();
    let columns = tensor.shape()[1];
    tensor.values::<f32>().unwrap().chunks(columns).map(<[f32]>::to_vec).collect()
}

fn results(path: &Path) -> Vec<RawResult> {
    let npz = Npz::open(path).unwrap();
    let ids = npz.tensor("unique_ids").unwrap().to_f64().unwrap();
    let (starts, ends) = (rows(&npz, "start_logits"), rows(&npz, "end_logits"));
    ids.into_iter()
        .zip(starts.into_iter().zip(ends))
        .map(|(id, (start_logits, end_logits))| RawResult {
            unique_id: id as i64,
            start_logits,
            end_logits,
        })
        .collect()
}

/// Shows the first line that differs; the whole is too long to look at.
fn same_lines(found: &str, golden: &str) {
    for (number, (found, golden)) in found.lines().zip(golden.lines()).enumerate() {
        assert_eq!(found, golden, "line {}", number + 1);
    }
    assert_eq!(found.len(), golden.len());
}

#[test]
fn answers_are_the_original_s_to_the_last_byte() {
    for case in Case::all() {
        let (examples, features) = case.build(false);
        let version_2 = case.version == "v2.0";
        let options = PredictOptions { version_2, ..Default::default() };
        let results = results(&case.folder.join("raw_logits.npz"));
        let found = predict(&examples, &features, &results, &case.tokenizer, options).unwrap();
        let golden = |name: &str| std::fs::read_to_string(case.folder.join(name)).unwrap();
        same_lines(&found.predictions_json(), &golden("predictions.json"));
        same_lines(&found.n_best_json(), &golden("nbest_predictions.json"));
        if version_2 {
            same_lines(&found.null_odds_json(), &golden("null_odds.json"));
        }
        let folder = tempfile::tempdir().unwrap();
        found.write(folder.path()).unwrap();
        assert_eq!(folder.path().join("null_odds.json").exists(), version_2);
        let without = predict(&examples, &features, &results[1..], &case.tokenizer, options);
        let error = without.unwrap_err().to_string();
        assert_eq!(error, "there are no logits for feature 1000000000");
    }
}

#[test]
fn features_of_the_official_set() {
    let (Some(data), Some(vocabulary), Some(golden)) = (
        shared("data/squad/dev-v1.1.json"),
        shared("models/squad/vocab.txt"),
        shared("models/squad/golden/first64_io.npz"),
    ) else {
        return;
    };
    let examples = read_examples(data, ReadOptions::default()).unwrap().items;
    assert_eq!(examples.len(), 10_570);
    let tokenizer = tokenizer(vocabulary);
    let features = build_features(&examples, &tokenizer, FeatureOptions::default()).unwrap();
    assert_eq!(features.len(), 10_833);
    let npz = Npz::open(&golden).unwrap();
    let ids = npz.tensor("unique_ids").unwrap().to_f64().unwrap();
    assert_eq!(ids.len(), 64);
    type Row = fn(&SquadFeatures) -> Vec<i32>;
    let parts: [(&str, Row); 3] = [
        ("input_ids", |features| features.features.input_ids()),
        ("input_mask", |features| features.features.input_mask()),
        ("segment_ids", |features| features.features.segment_ids()),
    ];
    for (name, row) in parts {
        let golden = npz.tensor(name).unwrap().to_f64().unwrap();
        for ((features, golden), id) in features.iter().zip(golden.chunks(384)).zip(&ids) {
            assert_eq!(features.unique_id as f64, *id);
            let found: Vec<f64> = row(features).into_iter().map(f64::from).collect();
            assert_eq!(found, golden, "{name} of {id}");
        }
    }
}

#[test]
fn lists_of_a_real_run_are_printed_the_same() {
    let (Some(data), Some(golden)) = (
        shared("data/squad/dev-v1.1.json"),
        shared("models/squad/golden/nbest_predictions_first1000.json.gz"),
    ) else {
        return;
    };
    let examples = read_examples(data, ReadOptions::default()).unwrap().items;
    let mut text = String::new();
    let file = std::fs::File::open(golden).unwrap();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let golden: Value = serde_json::from_str(&text).unwrap();
    for example in &examples[..1000] {
        let words = example.document.join(0, usize::MAX);
        for answer in golden[&example.qas_id].as_array().unwrap() {
            let text = answer["text"].as_str().unwrap();
            assert!(words.contains(text), "{text}");
        }
    }
    // Every value as Python printed it, read and printed again.
    let (mut floats, mut strings) = (0, 0);
    for line in text.lines() {
        let Some((_, value)) = line.split_once("\": ") else { continue };
        let value = value.trim_end_matches(',');
        if let Ok(float) = value.parse::<f64>() {
            assert_eq!(frazil_bert::python::float(float), value);
            floats += 1;
        } else if value.starts_with('"') {
            let string: String = serde_json::from_str(value).unwrap();
            let mut printed = String::new();
            frazil_bert::python::push_string(&mut printed, &string);
            assert_eq!(printed, value);
            strings += 1;
        }
    }
    assert!(floats > 50_000 && strings > 15_000, "{floats} {strings}");
}
