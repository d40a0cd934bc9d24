//! Fine-tuning: what is learnt, what is left on disk, and that a run that was stopped is the run that
//! was not.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::{Path, PathBuf};

use frazil::bert::glue::Task;
use frazil::bert::rows::OnBadRow;
use frazil::bert::squad::{FeatureOptions, PredictOptions};
use frazil::ops::finetune::{Event, Model, Schedule, classifier, squad};
use frazil::ops::train;
use frazil::source::open_weights;
use frazil::tensor::TensorStore;
use frazil::tensor::testing::shared;
use frazil::tf::checkpoint_state::CheckpointState;
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
    let expected = classifier::train(&options, &mut |_| Ok(Go::On)).unwrap();
    let Some(options) = mrpc(parts.path()) else { return };
    let stopped = classifier::train(&options, &mut |event| {
        Ok(match event {
            Event::Train(train::Event::Saved(_, step)) if step > 0 => Go::Stop,
            _ => Go::On,
        })
    });
    assert_eq!(stopped.unwrap().steps, 4);
    let mut from = None;
    let found = classifier::train(&options, &mut |event| {
        if let Event::Train(train::Event::Resuming(_, step)) = event {
            from = Some(step);
        }
        Ok(Go::On)
    })
    .unwrap();
    assert_eq!((from, found.steps, found.taken), (Some(4), expected.steps, expected.steps - 4));
    assert!(tensors(&expected.checkpoint) == tensors(&found.checkpoint));
}

#[test]
fn squad_is_learnt() {
    let folder = tempfile::tempdir().unwrap();
    let (Some(model), Some(data)) = (model(folder.path()), shared("fixtures/data/squad")) else {
        return;
    };
    let options = squad::Options {
        model,
        train_file: data.join("train-v1.1.json"),
        dev_file: Some(data.join("dev-v1.1.json")),
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
    };
    let mut losses = Vec::new();
    let report = squad::squad(&options, &mut |event| {
        if let Event::Train(train::Event::Step(step, _)) = event {
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
    assert!(fails(&|o| o.schedule.epochs = 0.0).contains("not even one step"));
    assert!(fails(&|o| o.schedule.learning_rate = f64::NAN).contains("learning rate"));
    assert!(fails(&|o| o.task = Task::StsB).contains("has scores"));
    // A loss that is no number stops the run; the checkpoint before it stays.
    let said = fails(&|o| o.schedule.learning_rate = 1e30);
    assert!(said.contains("no number to go on with"), "{said}");
    let state = CheckpointState::read(&output).unwrap().unwrap();
    assert!(open_weights(&state.model_checkpoint_path, &Default::default()).is_ok());
}
