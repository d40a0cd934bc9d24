//! Every kind of model file.

use std::path::{Path, PathBuf};

use frazil::bert::Head;
use frazil::bert::features::Features;
use frazil::bert::glue::{Split, Task};
use frazil::bert::rows::OnBadRow;
use frazil::bert::squad::read_records;
use frazil::graph::pass::{Reshape, Size};
use frazil::ops::bench::Model;
use frazil::ops::compile;
use frazil::ops::convert::{self, Target, convert};
use frazil::ops::predict::classify::{Classifier, Options, Report};
use frazil::ops::predict::rows::Source;
use frazil::ops::text_model::{self, Item, TextModel, Want};
use frazil::source::GraphOptions;
use frazil::tensor::npy::{Npz, NpzWriter};
use frazil::tensor::testing::shared;
use frazil::tensor::{Tensor, TensorStore};
use frazil::tf::example::Example;

use super::{Fixture, assert_close};

fn classified(model: &Path, fixture: &Fixture, options: &Options) -> (Vec<Vec<f32>>, Report) {
    let mut source = Source::task(Task::Mrpc, &fixture.data, Split::Test, OnBadRow::Stop).unwrap();
    let classifier = Classifier::open(model, options)
        .unwrap_or_else(|error| panic!("{}: {error}: {:?}", model.display(), error.hint()));
    let mut rows = Vec::new();
    let report = classifier
        .run(&mut source, |prediction, _| -> frazil::Result<()> {
            rows.push(prediction.probabilities);
            Ok(())
        })
        .unwrap();
    (rows, report)
}

fn options(fixture: &Fixture) -> Options {
    let graph = GraphOptions { config: Some(fixture.config.clone()), ..GraphOptions::default() };
    let vocabulary = Some(fixture.vocab.clone());
    let model = text_model::Options {
        graph,
        vocabulary,
        max_seq_length: Some(128),
        ..text_model::Options::default()
    };
    Options { model, labels: None, task: Some(Task::Mrpc) }
}

/// What TensorFlow wrote: weights, graphs for inference with a baked batch and length, the graph of
/// training with its dropout and its input pipeline.
#[test]
fn whatever_tensorflow_wrote() {
    let Some(fixture) = Fixture::open() else { return };
    let golden = fixture.golden();
    for name in [
        "model.ckpt-27",
        "frozen_from_saved_model.pb",
        "frozen_from_graph_pbtxt.pb",
        "saved_models/1794770949",
        "model.ckpt-27.meta",
    ] {
        let model = fixture.folder.join(name);
        let (rows, report) = classified(&model, &fixture, &options(&fixture));
        assert_close(&rows, &golden, name);
        assert_eq!(report.labels.unwrap(), ["0", "1"], "{name}");
        assert_eq!((report.rows, report.skipped.count), (17, 0), "{name}");
    }
}

/// What frazil's own `convert` and `compile` write of it.
#[test]
fn whatever_frazil_writes() {
    let Some(fixture) = Fixture::open() else { return };
    let golden = fixture.golden();
    let folder = tempfile::tempdir().unwrap();
    let mut graph = options(&fixture).model.graph;
    graph.head = Some(Head::Classifier);
    for (to, name) in [
        (Target::Tf, "model.pb"),
        (Target::SavedModel, "saved_model"),
        (Target::Onnx, "model.onnx"),
        (Target::Openvino, "model.xml"),
        (Target::Huggingface, "huggingface"),
    ] {
        let path = folder.path().join(name);
        let how = convert::Options { graph: graph.clone(), ..convert::Options::new(to) };
        convert(fixture.checkpoint(), &path, &how).unwrap();
        let mut options = options(&fixture);
        if to == Target::Huggingface {
            options.model.graph.config = None; // its own
        }
        let (rows, _) = classified(&path, &fixture, &options);
        assert_close(&rows, &golden, name);
    }
    let path = folder.path().join("model.frazil");
    let model = Model::File(fixture.checkpoint(), Box::new(graph));
    compile::compile(&model, &path, &compile::Options::default()).unwrap();
    let (rows, _) = classified(&path, &fixture, &options(&fixture));
    assert_close(&rows, &golden, "compiled");
}

/// Classes are called as `config.json` calls them.
#[test]
fn labels_of_a_hugging_face_folder() {
    let Some(fixture) = Fixture::open() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut graph = options(&fixture).model.graph;
    graph.head = Some(Head::Classifier);
    let how = convert::Options { graph, ..convert::Options::new(Target::Huggingface) };
    convert(fixture.checkpoint(), folder.path(), &how).unwrap();
    std::fs::copy(&fixture.vocab, folder.path().join("vocab.txt")).unwrap();
    let path = folder.path().join("config.json");
    let mut config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    config["id2label"] = serde_json::json!({"0": "different", "1": "same"});
    std::fs::write(&path, config.to_string()).unwrap();
    let classifier = Classifier::open(folder.path(), &Options::default()).unwrap();
    assert_eq!(classifier.labels().unwrap(), ["different", "same"]);
}

/// A model with one output gives scores, which are scored by correlation.
#[test]
fn scores_of_a_model_with_one_output() {
    let Some(numerics) = Numerics::open() else { return };
    let folder = tempfile::tempdir().unwrap();
    let weights = folder.path().join("weights.npz");
    let mut writer = NpzWriter::create(&weights).unwrap();
    let store = Npz::open(numerics.folder.join("weights.npz")).unwrap();
    for info in store.infos() {
        let tensor = store.tensor(&info.name).unwrap();
        let tensor = match info.name.as_str() {
            "output_weights" => {
                let row = tensor.values::<f32>().unwrap()[..64].to_vec();
                Tensor::from_vec([1, 64], row).unwrap()
            }
            "output_bias" => Tensor::from_vec([1], vec![0.5f32]).unwrap(),
            _ => tensor,
        };
        writer.add(&info.name, &tensor).unwrap();
    }
    writer.finish().unwrap();
    let rows = [("the plan", "the plan", 5.0), ("a", "the court", 1.0), ("it", "is", 2.5)];
    let line = |(i, (a, b, score)): (usize, &(&str, &str, f64))| {
        format!("{i}\tg\tf\ty\to\ts1\ts2\t{a}\t{b}\t{score}\n")
    };
    let text: String = rows.iter().enumerate().map(line).collect();
    std::fs::write(folder.path().join("dev.tsv"), format!("index\n{text}")).unwrap();
    let mut source = Source::task(Task::StsB, folder.path(), Split::Dev, OnBadRow::Stop).unwrap();
    let options = Options { model: numerics.options, labels: None, task: Some(Task::StsB) };
    let classifier = Classifier::open(&weights, &options).unwrap();
    let mut scores = Vec::new();
    let report = classifier
        .run(&mut source, |prediction, _| -> frazil::Result<()> {
            assert_eq!(prediction.label, None);
            scores.push(f64::from(prediction.score.unwrap()));
            Ok(())
        })
        .unwrap();
    let expected = frazil::bert::metrics::glue::pearson(&scores, &rows.map(|(.., score)| score));
    let pearson = report.scores.iter().find(|score| score.name == "pearson").unwrap();
    assert!((pearson.value - expected).abs() < 1e-9, "{pearson:?} is not {expected}");
}

/// A graph of which batch and length are fixed, compiled, so that neither can be opened again:
/// sequences are padded, and the last batch is filled up.
#[test]
fn sizes_that_are_baked_in_are_filled_up() {
    let Some(fixture) = Fixture::open() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut graph = options(&fixture).model.graph;
    graph.head = Some(Head::Classifier);
    let frozen = folder.path().join("model.pb");
    let how = convert::Options {
        graph,
        sizes: Reshape { batch: Size::Known(4), seq: Size::Known(128) },
        ..convert::Options::new(Target::Tf)
    };
    convert(fixture.checkpoint(), &frozen, &how).unwrap();
    let compiled = folder.path().join("model.frazil");
    let model = Model::File(frozen.clone(), Box::default());
    compile::compile(&model, &compiled, &compile::Options::default()).unwrap();
    for path in [frozen, compiled] {
        let (rows, _) = classified(&path, &fixture, &options(&fixture));
        assert_close(&rows, &fixture.golden(), path.to_str().unwrap());
    }
}

/// Batches of any size give the same, to rounding.
#[test]
fn runs_of_any_size() {
    let Some(fixture) = Fixture::open() else { return };
    for rows in [1, 100, 300, 100_000] {
        let mut options = options(&fixture);
        options.model.rows = rows;
        let (found, report) = classified(&fixture.checkpoint(), &fixture, &options);
        assert_close(&found, &fixture.golden(), &format!("{rows} rows"));
        assert!(report.tokens > 17 * 10);
    }
}

/// A checkpoint with all heads, and what TensorFlow computed with it.
struct Numerics {
    folder: PathBuf,
    options: text_model::Options,
    items: Vec<(Features, Vec<i32>)>,
}

impl Numerics {
    fn open() -> Option<Self> {
        let folder = shared("fixtures/numerics")?;
        let config = shared("fixtures/data/bert_config_small.json");
        let vocabulary = shared("fixtures/data/vocab_small.txt");
        let graph = GraphOptions { config, ..GraphOptions::default() };
        let options = text_model::Options { graph, vocabulary, ..text_model::Options::default() };
        let inputs = Npz::open(folder.join("inputs.npz")).unwrap();
        let rows = |name: &str| -> Vec<Vec<i64>> {
            let tensor = inputs.tensor(name).unwrap();
            let values = tensor.to_f64().unwrap();
            let row = |row: &[f64]| row.iter().map(|&x| x as i64).collect();
            values.chunks(tensor.shape()[1]).map(row).collect()
        };
        let (ids, mask, segments) = (rows("input_ids"), rows("input_mask"), rows("segment_ids"));
        let positions = rows("masked_lm_positions");
        let item = |row: usize| {
            let example = Example::default()
                .with_int64s("input_ids", ids[row].clone())
                .with_int64s("input_mask", mask[row].clone())
                .with_int64s("segment_ids", segments[row].clone());
            let features = Features::from_example(&example).unwrap();
            // Some of the positions are padding, of which nothing is said.
            let inside = |at: &&i64| (**at as usize) < features.len();
            let asked = positions[row].iter().take_while(inside).map(|&at| at as i32).collect();
            (features, asked)
        };
        Some(Self { items: (0..ids.len()).map(item).collect(), folder, options })
    }

    fn run(&self, want: &Want, rows: usize) -> Vec<text_model::Said> {
        let options = text_model::Options { rows, ..self.options.clone() };
        let model = TextModel::open(self.folder.join("model.ckpt"), want, &options).unwrap();
        let items = self.items.iter().enumerate().map(|(tag, (features, asked))| {
            let positions = if *want == Want::Words { asked.clone() } else { Vec::new() };
            Ok(Item { tag, features: features.clone(), positions })
        });
        let mut all = Vec::new();
        let each = |tag: usize, said: text_model::Said| -> frazil::Result<()> {
            assert_eq!(tag, all.len(), "in the order of the items");
            all.push(said);
            Ok(())
        };
        model.run(items, each).unwrap();
        all
    }
}

/// Every head against TensorFlow: rows behind the end of a sequence are cut off.
#[test]
fn every_head() {
    let Some(numerics) = Numerics::open() else { return };
    let len = |row: usize| numerics.items[row].0.len();
    let asked = |row: usize| numerics.items[row].1.len();
    let one = |_: usize| 1;
    // What is wanted; the file and its arrays; how many of a row's entries there are to compare.
    type Count<'a> = &'a dyn Fn(usize) -> usize;
    let cases: [(Want, &str, &[&str], Count<'_>); 6] = [
        (Want::Classes, "classifier_out", &["logits"], &one),
        (Want::Span, "squad_out", &["start_logits", "end_logits"], &len),
        (Want::Hidden(vec![-1, 0]), "pretrain_out", &["sequence_output", "layer_0"], &len),
        (Want::Pooled, "pretrain_out", &["pooled_output"], &one),
        (Want::Words, "pretrain_out", &["masked_lm_log_probs"], &asked),
        (Want::NextSentence, "pretrain_out", &["next_sentence_log_probs"], &one),
    ];
    for (want, file, names, count) in cases {
        let store = Npz::open(numerics.folder.join(format!("{file}.npz"))).unwrap();
        for rows in [1, 2048] {
            let all = numerics.run(&want, rows);
            for (at, name) in names.iter().enumerate() {
                let golden = store.tensor(name).unwrap().to_f64().unwrap();
                let size = golden.len() / numerics.items.len();
                for (row, said) in all.iter().enumerate() {
                    let found = &said.outputs[at];
                    assert_eq!(found.dims.iter().product::<usize>(), found.values.len());
                    let entries = count(row);
                    assert_eq!(found.values.len() % entries, 0, "{name}");
                    assert!(!found.values.is_empty(), "{name}");
                    for (a, b) in found.values.iter().zip(&golden[row * size..]) {
                        let apart = (f64::from(*a) - b).abs();
                        assert!(apart <= 2e-5, "{name}, row {row}: {a} is not {b}");
                    }
                }
            }
        }
    }
}

/// A span by the checkpoint, by the graph that LPOT froze with its input pipeline, and by its int8
/// graph, whose padding is computed, so that sequences are sorted by length and put back in order.
#[test]
fn spans_come_in_the_order_of_the_sequences() {
    let Some(folder) = shared("fixtures/squad") else { return };
    let records = read_records(folder.join("v1.1/eval.tf_record")).unwrap();
    let config = shared("fixtures/data/bert_config_small.json");
    let vocabulary = shared("fixtures/data/vocab_small.txt");
    for (name, golden, rows, step) in [
        ("v1.1/model.ckpt-65", "v1.1/raw_logits.npz", 2048, 2e-5),
        ("v1.1/model.ckpt-65", "v1.1/raw_logits.npz", 200, 2e-5),
        ("lpot/bert_fp32_google_modeling.pb", "v1.1/raw_logits.npz", 2048, 2e-5),
        ("lpot/bert_int8_lpot1.3.pb", "lpot/outputs_int8.npz", 700, 2.5e-2),
    ] {
        let graph = GraphOptions { config: config.clone(), ..GraphOptions::default() };
        let options = text_model::Options {
            graph,
            vocabulary: vocabulary.clone(),
            rows,
            ..Default::default()
        };
        let model = TextModel::open(folder.join(name), &Want::Span, &options).unwrap();
        let store = Npz::open(folder.join(golden)).unwrap();
        let golden = ["start_logits", "end_logits"]
            .map(|name| store.tensor(name).unwrap().to_f64().unwrap());
        let items = records.iter().enumerate();
        let items = items.map(|(i, record)| Ok(Item::new(i, record.features.clone())));
        let mut next = 0;
        let each = |row: usize, said: text_model::Said| -> frazil::Result<()> {
            assert_eq!(row, next, "{name}");
            next += 1;
            for (output, golden) in said.outputs.iter().zip(&golden) {
                assert_eq!(output.dims, [records[row].features.len()], "{name}");
                for (a, b) in output.values.iter().zip(&golden[row * 128..]) {
                    let apart = (f64::from(*a) - b).abs();
                    assert!(apart <= step, "{name}, row {row}: {a} is not {b}");
                }
            }
            Ok(())
        };
        model.run(items, each).unwrap();
        assert_eq!(next, records.len(), "{name}");
    }
}

/// A model that gives something else says what.
#[test]
fn a_model_for_something_else_is_refused() {
    let Some(fixture) = Fixture::open() else { return };
    let options = options(&fixture).model;
    let frozen = fixture.folder.join("frozen_from_saved_model.pb");
    let error = TextModel::open(&frozen, &Want::Span, &options).err().unwrap();
    assert!(error.to_string().contains("begins and ends; its outputs are `loss/output"), "{error}");
    let error = TextModel::open(fixture.checkpoint(), &Want::Hidden(vec![2]), &options);
    let error = error.err().unwrap().to_string();
    assert_eq!(error, "there is no layer 2: the model has 2 layers");
    let long = text_model::Options { max_seq_length: Some(129), ..options.clone() };
    let error = TextModel::open(fixture.checkpoint(), &Want::Classes, &long).err().unwrap();
    assert!(error.to_string().contains("at most 128"), "{error}");
    let pretrained = shared("fixtures/pretrain").unwrap().join("model.ckpt-40");
    let error = TextModel::open(pretrained, &Want::Classes, &options).err().unwrap();
    assert!(error.to_string().ends_with("has no classifier head: `output_weights` is missing"));
    let error = TextModel::open(fixture.checkpoint(), &Want::Span, &options).err().unwrap();
    assert!(error.to_string().contains("has no squad head"), "{error}");
    let none = text_model::Options { vocabulary: None, ..options };
    let error = TextModel::open(fixture.checkpoint(), &Want::Classes, &none).err().unwrap();
    assert!(error.hint().unwrap().contains("--vocab"), "{error}");
}
