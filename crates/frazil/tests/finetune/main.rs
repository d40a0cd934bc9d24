//! Fine-tuning: what is learnt, what is left on disk, and that a run that was stopped is the run that
//! was not.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod broken;
mod data;
mod going_on;
mod models;
mod scores;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use frazil::bert::glue::Task;
use frazil::bert::rows::OnBadRow;
use frazil::bert::squad::{FeatureOptions, PredictOptions};
use frazil::ops::finetune::{Data, Event, Model, Schedule, classifier, squad};
use frazil::ops::text_model::{TextModel, Want};
use frazil::ops::train;
use frazil::source::open_weights;
use frazil::tensor::TensorStore;
use frazil::tensor::testing::shared;
use frazil::tf::checkpoint_state::CheckpointState;
use frazil::tf::proto::TensorInfo;
use frazil::tf::proto::tensor_info::Encoding;
use frazil::tf::saved_model::SavedModelDir;
use frazil::tf::{graph_def, meta_graph};
use frazil::train::run::Go;

fn model(output_dir: &Path) -> Option<Model> {
    let data = shared("fixtures/data")?;
    Some(Model {
        bert_config_file: data.join("bert_config_small.json"),
        vocab_file: data.join("vocab_small.txt"),
        do_lower_case: true,
        init_checkpoint: Some(shared("fixtures/pretrain")?.join("model.ckpt-40")),
        output_dir: output_dir.to_path_buf(),
    })
}

fn mrpc(output_dir: &Path) -> Option<classifier::Options> {
    Some(classifier::Options {
        model: model(output_dir)?,
        task: Task::Mrpc,
        data_dir: shared("fixtures/data/MRPC")?,
        records: Vec::new(),
        max_seq_length: 64,
        schedule: Schedule {
            batch_size: 8,
            learning_rate: 1e-3,
            epochs: 3.0,
            save_every: 4,
            keep: 2,
            threads: Some(1),
            ..Schedule::default()
        },
        on_bad_row: OnBadRow::Stop,
        evaluate: true,
        early_stop: None,
    })
}

/// All tensors of a checkpoint, bit for bit.
fn tensors(prefix: &Path) -> Vec<(String, Vec<u8>)> {
    let store = open_weights(prefix, &Default::default()).unwrap();
    let infos = store.infos().to_vec();
    infos
        .into_iter()
        .map(|i| (i.name.clone(), store.read(&i.name).unwrap().bytes().unwrap().to_vec()))
        .collect()
}

#[test]
fn files_are_tensorflows() {
    let folder = tempfile::tempdir().unwrap();
    let Some(options) = mrpc(folder.path()) else { return };
    let mut evaluated = 0;
    let report = classifier::classifier(&options, &mut |event| {
        evaluated += usize::from(matches!(event, Event::Evaluated(..)));
    })
    .unwrap();
    let there = |name: &str| folder.path().join(name).is_file();
    // A model by itself: configuration and vocabulary are found beside it.
    TextModel::open(folder.path(), &Want::Classes, &Default::default()).unwrap();
    assert!(there("train.tf_record") && there("graph.pbtxt") && there("report.html"));
    assert_eq!(report.evaluations.len(), evaluated);
    assert!(evaluated >= 2 && report.best.is_some());
    let state = CheckpointState::read(folder.path()).unwrap().unwrap();
    assert_eq!(state.model_checkpoint_path, report.checkpoint);
    assert!(state.all_model_checkpoint_paths.len() <= 3, "two, and the best");
    let names: Vec<String> =
        tensors(&report.checkpoint).into_iter().map(|(name, _)| name).collect();
    for name in ["global_step", "output_weights/adam_m", "bert/pooler/dense/kernel/adam_v"] {
        assert!(names.iter().any(|known| known == name), "{name}");
    }
    // The graph beside it has all of them, restores them, and computes the original's outputs.
    let meta = meta_graph::read(format!("{}.meta", report.checkpoint.display())).unwrap();
    let graph = meta_graph::graph(&meta).unwrap();
    assert_eq!(meta.saver_def.as_ref().unwrap().restore_op_name, "save/restore_all");
    for name in ["loss/Mean", "loss/Softmax", "output_weights", "global_step", "save/SaveV2"] {
        assert!(graph.node.iter().any(|node| node.name == name), "{name}");
    }
    let text = graph_def::read(folder.path().join("graph.pbtxt")).unwrap();
    assert_eq!(text.node.len(), graph.node.len());
}

/// Stopped after its first checkpoint and started again, a run ends with the same bits.
#[test]
fn a_run_that_goes_on_is_the_same() {
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(options) = mrpc(whole.path()) else { return };
    let expected = classifier::train(&options, &mut |_| Ok(Go::On)).unwrap().trained;
    let Some(options) = mrpc(parts.path()) else { return };
    let stopped = classifier::train(&options, &mut |event| {
        Ok(match event {
            Event::Train(train::Event::Saved(_, step, _)) if step > 0 => Go::Stop,
            _ => Go::On,
        })
    });
    assert_eq!(stopped.unwrap().trained.steps, 4);
    let mut from = None;
    let found = classifier::train(&options, &mut |event| {
        if let Event::Train(train::Event::Resuming(_, step, _)) = event {
            from = Some(step);
        }
        Ok(Go::On)
    })
    .unwrap()
    .trained;
    assert_eq!((from, found.steps, found.taken), (Some(4), expected.steps, expected.steps - 4));
    assert!(tensors(&expected.checkpoint) == tensors(&found.checkpoint));
}

/// Who asks for an end gets one after the step, with a checkpoint that nobody waits to be evaluated; then
/// it goes on as if nothing had been.
#[test]
fn a_run_that_is_asked_to_stop_goes_on_later() {
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(mut options) = mrpc(whole.path()) else { return };
    options.schedule.epochs = 2.0;
    let expected = classifier::classifier(&options, &mut |_| {}).unwrap();
    let mut asked = options.clone();
    asked.model.output_dir = parts.path().to_path_buf();
    let (mut evaluated, stop) = (Vec::new(), asked.schedule.stop.clone());
    assert!(!stop.ask(), "nobody listens yet");
    asked.schedule.stop = Default::default();
    let stop = asked.schedule.stop.clone();
    let stopped = classifier::classifier(&asked, &mut |event| match event {
        Event::Train(train::Event::Step(step, ..)) if step.report.step == 4 => assert!(stop.ask()),
        Event::Evaluated(of, _) => evaluated.push(of.step),
        _ => {}
    })
    .unwrap();
    assert_eq!((stopped.steps, stopped.stopped, &evaluated[..]), (5, true, &[4][..]));
    asked.schedule.stop = Default::default();
    let found = classifier::classifier(&asked, &mut |event| {
        if let Event::Evaluated(of, _) = event {
            evaluated.push(of.step);
        }
    })
    .unwrap();
    assert!(!found.stopped && evaluated[..2] == [4, 8], "{evaluated:?}");
    assert_eq!((expected.evaluations, expected.best.is_some()), (found.evaluations, true));
    assert!(tensors(&expected.checkpoint) == tensors(&found.checkpoint));
}

/// A folder that has a model keeps it whole when another one is refused there; two runs cannot write
/// into it at once.
#[test]
fn a_refused_run_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut options) = mrpc(folder.path()) else { return };
    options.schedule.epochs = 1.0;
    classifier::classifier(&options, &mut |_| {}).unwrap();
    let files = || {
        let entries = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let files = entries.filter(|path| path.is_file());
        files.map(|path| (std::fs::read(&path).unwrap(), path)).collect::<Vec<_>>()
    };
    let before = files();
    let mut other = squad_of(options.model.clone(), &shared("fixtures/data/squad").unwrap());
    other.model.output_dir = folder.path().to_path_buf();
    let said = squad::squad(&other, &mut |_| {}).unwrap_err().to_string();
    assert!(said.contains("is of another model") && said.contains("cls/squad"), "{said}");
    assert!(files() == before);
    options.schedule.epochs = 2.0;
    let again = options.clone();
    let mut said = String::new();
    classifier::classifier(&options, &mut |event| {
        if matches!(event, Event::Train(train::Event::Begin(_))) {
            said = classifier::classifier(&again, &mut |_| {}).unwrap_err().to_string();
        }
    })
    .unwrap();
    assert!(said.contains("another run is training in"), "{said}");
}

/// Curves and scores of a run that was there before are not those of one that begins anew.
#[test]
fn a_new_run_has_its_own_curves() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut options) = mrpc(folder.path()) else { return };
    options.schedule.epochs = 2.0;
    classifier::classifier(&options, &mut |_| {}).unwrap();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name == "checkpoint" || name.starts_with("model.ckpt") {
            std::fs::remove_file(path).unwrap();
        }
    }
    options.schedule.epochs = 1.0;
    let report = classifier::classifier(&options, &mut |_| {}).unwrap();
    let history = train::History::read(folder.path()).unwrap();
    let last = report.steps;
    assert_eq!(report.evaluations.last().unwrap().step, last);
    assert_eq!(history.points.last().unwrap().step, last);
}

fn squad_of(model: Model, data: &Path) -> squad::Options {
    squad::Options {
        model,
        train_file: data.join("train-v1.1.json"),
        dev_file: Some(data.join("dev-v1.1.json")),
        records: Vec::new(),
        features: FeatureOptions {
            max_seq_length: 96,
            doc_stride: 32,
            ..FeatureOptions::default()
        },
        predict: PredictOptions::default(),
        schedule: Schedule {
            batch_size: 8,
            learning_rate: 1e-3,
            epochs: 3.0,
            threads: Some(2),
            ..Schedule::default()
        },
        on_bad_row: OnBadRow::Stop,
        early_stop: None,
    }
}

/// Positions that the model does not have are missed before records are made.
#[test]
fn windows_longer_than_the_model_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out");
    let (Some(model), Some(data)) = (model(&output), shared("fixtures/data/squad")) else {
        return;
    };
    let mut options = squad_of(model, &data);
    options.features.max_seq_length = 129;
    let said = squad::squad(&options, &mut |_| {}).unwrap_err().to_string();
    let expected = "Cannot use sequence length 129 because the BERT model was only trained up to \
                    sequence length 128";
    assert_eq!(said, expected);
    assert!(!output.exists());
}

#[test]
fn squad_is_learnt() {
    let folder = tempfile::tempdir().unwrap();
    let (Some(model), Some(data)) = (model(folder.path()), shared("fixtures/data/squad")) else {
        return;
    };
    let Some(golden) = shared("fixtures/squad/v1.1/model.ckpt-65.index") else { return };
    let options = squad_of(model, &data);
    let mut losses = Vec::new();
    let report = squad::squad(&options, &mut |event| {
        if let Event::Train(train::Event::Step(step, _, _)) = event {
            losses.push(step.report.loss);
        }
    })
    .unwrap();
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let third = losses.len() / 3;
    let (first, last) = (mean(&losses[..third]), mean(&losses[losses.len() - third..]));
    assert!(last < first, "{first} {last}");
    let scores = &report.evaluations.last().unwrap().scores;
    assert!(scores.contains_key("f1") && scores.contains_key("exact_match"));
    // The checkpoint has what TensorFlow's has: the pooler, too, as it was, and nothing remembered of it.
    let golden = open_weights(golden, &Default::default()).unwrap();
    let of_tf = |name: &String| !name.starts_with("frazil/");
    let found: Vec<(String, Vec<u8>)> = tensors(&report.checkpoint);
    let names: Vec<&String> = found.iter().map(|(name, _)| name).filter(|n| of_tf(n)).collect();
    assert_eq!(names, golden.infos().iter().map(|info| &info.name).collect::<Vec<_>>());
    let before = tensors(options.model.init_checkpoint.as_ref().unwrap());
    let kernel = |all: &[(String, Vec<u8>)]| {
        let found = all.iter().find(|(name, _)| name == "bert/pooler/dense/kernel");
        found.unwrap().1.clone()
    };
    assert!(kernel(&found) == kernel(&before));
}

/// A run that goes on knows what was best before: that checkpoint stays, however few are kept, and what
/// followed counts for an early stop.
#[test]
fn the_best_is_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut options) = mrpc(folder.path()) else { return };
    // Weights that do not change score the same every time: the first is the best.
    options.schedule =
        Schedule { learning_rate: 0.0, epochs: 1.0, save_every: 2, keep: 1, ..options.schedule };
    let first = classifier::classifier(&options, &mut |_| {}).unwrap();
    let best = folder.path().join("model.ckpt-2");
    assert_eq!((first.steps, first.best.as_ref()), (4, Some(&best)));
    options.schedule.epochs = 2.0;
    let mut seen = 0;
    let second = classifier::classifier(&options, &mut |event| {
        if let Event::Evaluated(_, is_best) = event {
            assert!(!is_best);
            seen += 1;
        }
    })
    .unwrap();
    assert!(seen > 0 && second.taken < second.steps);
    assert_eq!(second.best.as_ref(), Some(&best));
    assert!(open_weights(&best, &Default::default()).is_ok());
    assert_eq!(second.evaluations.len(), first.evaluations.len() + seen);
    // Enough evaluations have passed.
    (options.schedule.epochs, options.early_stop) = (3.0, Some(2));
    let third = classifier::classifier(&options, &mut |_| {}).unwrap();
    assert_eq!((third.taken, third.steps, third.best), (0, second.steps, Some(best)));
}

/// Recipe 2's export: a folder of the second, Estimator's names, the checkpoint's values.
#[test]
fn exports_are_estimators() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut options) = mrpc(&folder.path().join("out")) else { return };
    options.schedule.epochs = 0.5;
    let ran = classifier::train(&options, &mut |_| Ok(Go::On)).unwrap();
    let dir = folder.path().join("saved_models");
    let (of, written) = classifier::export(&options, None, &dir, Some(1)).unwrap();
    assert_eq!((&of, written.parent()), (&ran.trained.checkpoint, Some(dir.as_path())));
    assert!(written.file_name().unwrap().to_string_lossy().parse::<u64>().is_ok());
    let model = SavedModelDir::open(&written).unwrap();
    let signature = &model.meta_graph(&["serve"]).unwrap().signature_def["serving_default"];
    let ends = |infos: &BTreeMap<String, TensorInfo>| -> Vec<String> {
        let entry = |(name, info): (&String, &TensorInfo)| {
            let dims = &info.tensor_shape.as_ref().unwrap().dim;
            let sizes: Vec<i64> = dims.iter().map(|dim| dim.size).collect();
            let Some(Encoding::Name(tensor)) = &info.encoding else { panic!("a dense tensor") };
            format!("{name} {tensor} {sizes:?}")
        };
        infos.iter().map(entry).collect()
    };
    assert_eq!(
        ends(&signature.inputs),
        [
            "input_ids input_ids_1:0 [1, 64]",
            "input_mask input_mask_1:0 [1, 64]",
            "label_ids label_ids_1:0 [1]",
            "segment_ids segment_ids_1:0 [1, 64]",
        ]
    );
    assert_eq!(ends(&signature.outputs), ["probabilities loss/output:0 [1, 2]"]);
    assert_eq!(signature.method_name, "tensorflow/serving/predict");
    let all = tensors(&ran.trained.checkpoint);
    // What a restart needs is no weight of a head that nobody knows.
    let seen = frazil::ops::inspect::inspect(&ran.trained.checkpoint, &Default::default()).unwrap();
    let bert = seen.bert.unwrap();
    assert!(bert.unexpected.is_empty(), "{:?}", bert.unexpected);
    let state: Vec<&str> = bert.training_state.iter().map(|state| state.name.as_str()).collect();
    let own = ["optimizer", "position", "samples", "seed"].map(|name| format!("frazil/{name}"));
    assert_eq!(state[..4], own);
    assert_eq!(state[4..], ["global_step"]);
    let is_weight = |name: &str| !name.contains("/adam_") && !name.starts_with("frazil/");
    let weights: Vec<_> = all.into_iter().filter(|(name, _)| is_weight(name)).collect();
    assert!(tensors(&model.variables_prefix()) == weights);
    // A second one of the same second gets the next name.
    let (_, next) = classifier::export(&options, None, &dir, None).unwrap();
    assert!(next != written);
}

/// Packs of `frazil pack` can be trained on: the same sequences, several in a record.
#[test]
fn packs_can_be_trained_on() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut options) = mrpc(&folder.path().join("first")) else { return };
    options.schedule.epochs = 0.5;
    classifier::train(&options, &mut |_| Ok(Go::On)).unwrap();
    let packs = folder.path().join("packed.tfrecord");
    let done = std::process::Command::new(env!("CARGO_BIN_EXE_frazil"))
        .arg("pack")
        .arg(folder.path().join("first/train.tf_record"))
        .args(["--max-seq-length", "192", "-o"])
        .arg(&packs)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    options.model.output_dir = folder.path().join("second");
    options.records = vec![packs];
    (options.schedule.epochs, options.schedule.batch_size) = (1.0, 2);
    let (mut running, mut most) = (None, 0);
    let ran = classifier::train(&options, &mut |event| {
        match event {
            Event::Running { data, .. } => running = Some(data),
            Event::Train(train::Event::Step(step, _, _)) => {
                assert!(step.report.loss.is_finite());
                most = most.max(step.sequences);
            }
            _ => {}
        }
        Ok(Go::On)
    })
    .unwrap();
    let Some(Data::Packs(packs)) = running else { panic!("packs are told as such") };
    assert_eq!(ran.trained.steps, packs as u64 / 2);
    let page = ran.write_report(&options.model, &options.schedule).unwrap();
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<code>packs</code>") && !page.contains("<code>examples</code>"));
    assert!(most > 2, "several sequences in a pack");
    assert!(!options.model.output_dir.join("train.tf_record").exists());
}

/// A record that was damaged stops the run where it is met, and is named; the checkpoint before it is whole.
#[test]
fn a_damaged_record_stops_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut options) = mrpc(&folder.path().join("first")) else { return };
    options.schedule.epochs = 0.5;
    classifier::train(&options, &mut |_| Ok(Go::On)).unwrap();
    let records = folder.path().join("damaged.tfrecord");
    let mut bytes = std::fs::read(folder.path().join("first/train.tf_record")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    std::fs::write(&records, bytes).unwrap();
    options.model.output_dir = folder.path().join("second");
    (options.records, options.schedule.epochs) = (vec![records], 2.0);
    let error = classifier::train(&options, &mut |_| Ok(Go::On)).unwrap_err();
    let said = format!("{:#}", anyhow::Error::from(error));
    assert!(said.contains("damaged.tfrecord"), "{said}");
    let state = CheckpointState::read(&options.model.output_dir).unwrap().unwrap();
    for path in state.all_model_checkpoint_paths {
        assert!(!tensors(&path).is_empty());
    }
}

/// A checkpoint of another shape is refused by name, to begin with and to go on from.
#[test]
fn other_shapes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut options) = mrpc(&folder.path().join("out")) else { return };
    let config = std::fs::read_to_string(&options.model.bert_config_file).unwrap();
    let other = folder.path().join("bert_config.json");
    std::fs::write(&other, config.replace("\"hidden_size\": 64", "\"hidden_size\": 32")).unwrap();
    let fails = |options: &classifier::Options| {
        let error = classifier::train(options, &mut |_| Ok(Go::On)).unwrap_err();
        format!("{:#}", anyhow::Error::from(error))
    };
    let right = std::mem::replace(&mut options.model.bert_config_file, other.clone());
    let said = fails(&options);
    assert!(said.contains("bert/embeddings/") && said.contains("64"), "{said}");
    options.model.bert_config_file = right;
    options.schedule.epochs = 0.5;
    classifier::train(&options, &mut |_| Ok(Go::On)).unwrap();
    options.model.bert_config_file = other;
    let said = fails(&options);
    assert!(said.contains("bert/embeddings/") && said.contains("64"), "{said}");
}

/// A run that comes to no number has its curves all the same, and names the checkpoint that is left.
#[test]
fn no_number_is_told_with_its_curves() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut options) = mrpc(folder.path()) else { return };
    options.schedule.learning_rate = 1e30;
    let error = classifier::classifier(&options, &mut |_| {}).unwrap_err();
    let said = error.to_string();
    assert!(said.contains("no number to go on with"), "{said}");
    let newest = CheckpointState::read(folder.path()).unwrap().unwrap().model_checkpoint_path;
    let hint = error.hint().unwrap();
    assert!(hint.contains(&format!("`{}`", newest.display())), "{hint}");
    assert!(!hint.contains("factor on the loss"), "{hint}");
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("<code>1000000000000000000000000000000</code>"));
}

/// What is wrong is said before anything is written, and with what to do about it.
#[test]
fn mistakes() {
    let folder = tempfile::tempdir().unwrap();
    let output: PathBuf = folder.path().join("out");
    let Some(options) = mrpc(&output) else { return };
    let fails = |change: &dyn Fn(&mut classifier::Options)| {
        let mut options = options.clone();
        change(&mut options);
        classifier::classifier(&options, &mut |_| {}).unwrap_err().to_string()
    };
    assert!(fails(&|o| o.max_seq_length = 4096).contains("only trained up to"));
    assert!(fails(&|o| o.schedule.learning_rate = f64::NAN).contains("learning rate"));
    assert!(fails(&|o| o.schedule.accumulate = 0).contains("0 examples"));
    let too_large = fails(&|o| (o.schedule.batch_size, o.schedule.accumulate) = (usize::MAX, 3));
    assert!(too_large.contains("× 3 is too large"), "{too_large}");
    assert!(fails(&|o| o.schedule.warmup_proportion = 2.0).contains("a warm-up of 2"));
    assert!(fails(&|o| o.schedule.epochs = f64::NAN).contains("NaN epochs"));
    assert!(fails(&|o| (o.evaluate, o.early_stop) = (false, Some(1))).contains("no scores"));
    assert!(fails(&|o| o.schedule.epochs = 0.0).contains("not even one step"));
    assert!(!output.exists(), "nothing was written");
    assert!(fails(&|o| o.task = Task::StsB).contains("has scores"));
    // A loss that is no number stops the run; the checkpoint before it stays.
    let said = fails(&|o| o.schedule.learning_rate = 1e30);
    assert!(said.contains("no number to go on with"), "{said}");
    let state = CheckpointState::read(&output).unwrap().unwrap();
    assert!(open_weights(&state.model_checkpoint_path, &Default::default()).is_ok());
    // A run goes on by the chances that it began with.
    let said = fails(&|o| o.schedule.seed = 7);
    assert!(said.contains("seed 12345, and this one has 7"), "{said}");
}
