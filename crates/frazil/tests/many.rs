//! Several ranks, as threads, train and evaluate together: what one process comes to, and files that it
//! would have left. `cargo xtask mpi` does the same with processes.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::Path;
use std::sync::Arc;
use std::thread;

use frazil::bert::glue::Task;
use frazil::bert::packing::Depth;
use frazil::bert::rows::OnBadRow;
use frazil::bert::samples::ReaderOptions;
use frazil::bert::squad::{FeatureOptions, PredictOptions};
use frazil::bert::{BertConfig, Head};
use frazil::ops::finetune::{self, Event, Model, Schedule, classifier, squad};
use frazil::ops::pretrain::{self, Judgement, evaluate};
use frazil::ops::train;
use frazil::ops::{predict::answer::run_squad, run_classifier};
use frazil::source::open_weights;
use frazil::tensor::TensorStore;
use frazil::tensor::testing::shared;
use frazil::train::comm::{Comm, Solo, Threads};
use frazil::train::run::Go;
use frazil::train::schedule::Bert;

/// Losses after all steps.
const TOLERANCE: f64 = 1e-5;

/// What each of several ranks comes to.
fn each<T: Send>(size: usize, work: impl Fn(Arc<dyn Comm>) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let work = &work;
        let ranks = Threads::group(size).into_iter();
        let ranks: Vec<_> = ranks.map(|rank| scope.spawn(move || work(Arc::new(rank)))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

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

fn schedule(comm: Arc<dyn Comm>) -> Schedule {
    Schedule {
        batch_size: 8,
        learning_rate: 1e-4,
        epochs: 6.0,
        save_every: 5,
        keep: 2,
        threads: Some(1),
        comm,
        ..Schedule::default()
    }
}

fn mrpc(output_dir: &Path, comm: Arc<dyn Comm>) -> Option<classifier::Options> {
    Some(classifier::Options {
        model: model(output_dir)?,
        task: Task::Mrpc,
        data_dir: shared("fixtures/data/MRPC")?,
        records: Vec::new(),
        max_seq_length: 64,
        schedule: schedule(comm),
        on_bad_row: OnBadRow::Stop,
        evaluate: true,
        early_stop: None,
    })
}

/// Losses of all steps, and whether anything was heard of them.
fn losses(event: &Event<'_>, to: &mut Vec<f64>) {
    if let Event::Train(train::Event::Step(step, ..)) = event {
        to.push(step.report.loss);
    }
}

fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (step, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= TOLERANCE, "step {step}: {a} for {b}");
    }
}

/// The evaluations of two runs are those of the same model.
fn same_scores(found: &finetune::Report, expected: &finetune::Report) {
    assert!(!expected.evaluations.is_empty());
    assert_eq!(found.evaluations.len(), expected.evaluations.len());
    for (a, b) in found.evaluations.iter().zip(&expected.evaluations) {
        assert_eq!((a.step, a.scores.len()), (b.step, b.scores.len()));
        for (name, score) in &a.scores {
            assert!((score - b.scores[name]).abs() <= 1e-4, "{name}: {score} {}", b.scores[name]);
        }
    }
}

/// The tensors of two checkpoints have the same names and about the same numbers.
fn same_checkpoint(found: &Path, expected: &Path) {
    let [found, expected] =
        [found, expected].map(|path| open_weights(path, &Default::default()).unwrap());
    assert_eq!(found.infos(), expected.infos());
    for info in expected.infos().iter().filter(|info| !info.name.contains("key/bias")) {
        let [a, b] = [&found, &expected].map(|of| of.read(&info.name).unwrap().to_f64().unwrap());
        let largest = b.iter().fold(1e-12f64, |largest, x| largest.max(x.abs()));
        let off = a.iter().zip(&b).fold(0f64, |most, (a, b)| most.max((a - b).abs()));
        assert!(off <= 5e-3 * largest, "{}: {off} of {largest}", info.name);
    }
}

#[test]
fn a_classifier_is_trained_by_two() {
    let [one, two] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let Some(options) = mrpc(one.path(), Arc::new(Solo)) else { return };
    let mut expected = Vec::new();
    let alone = classifier::classifier(&options, &mut |event| losses(&event, &mut expected));
    let alone = alone.unwrap();
    let ended = each(2, |comm| {
        let mut heard = Vec::new();
        let options = mrpc(two.path(), comm).unwrap();
        let report = classifier::classifier(&options, &mut |event| losses(&event, &mut heard));
        (report.unwrap(), heard)
    });
    close(&ended[0].1, &expected);
    assert!(ended[1].1.is_empty(), "only the first rank speaks");
    for (report, _) in &ended {
        same_scores(report, &alone);
        assert_eq!((report.steps, report.taken), (alone.steps, alone.taken));
    }
    let report = &ended[0].0;
    same_checkpoint(&report.checkpoint, &alone.checkpoint);
    // What lies in the folder is what one process leaves, and it can go on alone.
    let names = |folder: &Path| {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.retain(|name| !name.starts_with("events."));
        names.sort();
        names
    };
    let ends: Vec<String> = names(one.path());
    assert_eq!(names(two.path()).len(), ends.len());
    let mut longer = mrpc(two.path(), Arc::new(Solo)).unwrap();
    longer.schedule.epochs = 8.0;
    let more = classifier::train(&longer, &mut |_| Ok(Go::On)).unwrap().trained;
    assert!(more.taken > 0 && more.steps == alone.steps + more.taken);
}

#[test]
fn a_batch_that_cannot_be_shared_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_) = mrpc(folder.path(), Arc::new(Solo)) else { return };
    for said in each(3, |comm| {
        let options = mrpc(folder.path(), comm).unwrap();
        classifier::train(&options, &mut |_| Ok(Go::On)).unwrap_err().to_string()
    }) {
        assert_eq!(said, "a step of 8 × 1 has no 3 equal parts");
    }
}

#[test]
fn answers_are_evaluated_by_two() {
    let [one, two] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let options = |folder: &Path, comm: Arc<dyn Comm>| {
        Some(squad::Options {
            model: model(folder)?,
            train_file: shared("fixtures/data/squad/train-v1.1.json")?,
            dev_file: Some(shared("fixtures/data/squad/dev-v1.1.json")?),
            records: Vec::new(),
            features: FeatureOptions {
                max_seq_length: 96,
                doc_stride: 32,
                ..FeatureOptions::default()
            },
            predict: PredictOptions::default(),
            schedule: Schedule { epochs: 1.0, save_every: 1000, ..schedule(comm) },
            on_bad_row: OnBadRow::Stop,
            early_stop: None,
        })
    };
    let Some(alone) = options(one.path(), Arc::new(Solo)) else { return };
    let alone = squad::squad(&alone, &mut |_| ()).unwrap();
    for report in
        each(2, |comm| squad::squad(&options(two.path(), comm).unwrap(), &mut |_| ()).unwrap())
    {
        same_scores(&report, &alone);
    }
}

/// What the original's programs leave behind, by one process and by three: the same bytes.
fn same_files(one: &Path, many: &Path, names: &[&str]) {
    for name in names {
        let [one, many] = [one, many].map(|folder| std::fs::read(folder.join(name)).unwrap());
        assert!(!one.is_empty() && one == many, "{name}");
    }
}

#[test]
fn run_classifier_evaluates_by_three() {
    let [one, many] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let options = |folder: &Path, comm: Arc<dyn Comm>| {
        let Model { bert_config_file, vocab_file, do_lower_case, .. } = model(folder)?;
        Some(run_classifier::Options {
            data_dir: shared("fixtures/data/MRPC")?,
            bert_config_file,
            task: Task::Mrpc,
            vocab_file,
            output_dir: folder.to_path_buf(),
            init_checkpoint: Some(shared("fixtures/classifier")?.join("model.ckpt-27")),
            do_lower_case,
            max_seq_length: 64,
            do_eval: true,
            do_predict: true,
            eval_batch_size: 8,
            predict_batch_size: 8,
            use_tpu: false,
            on_bad_row: OnBadRow::Stop,
            threads: Some(1),
            comm,
        })
    };
    let Some(alone) = options(one.path(), Arc::new(Solo)) else { return };
    run_classifier::run_classifier(&alone, &mut |_| ()).unwrap();
    let heard = each(3, |comm| {
        let mut heard = 0;
        let options = options(many.path(), comm).unwrap();
        run_classifier::run_classifier(&options, &mut |_| heard += 1).unwrap();
        heard
    });
    assert!(heard[0] > 0 && heard[1..] == [0, 0], "{heard:?}");
    let names = ["eval_results.txt", "test_results.tsv", "eval.tf_record", "predict.tf_record"];
    same_files(one.path(), many.path(), &names);
}

#[test]
fn run_squad_answers_by_three() {
    let [one, many] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let options = |folder: &Path, comm: Arc<dyn Comm>| {
        let Model { bert_config_file, vocab_file, do_lower_case, .. } = model(folder)?;
        Some(run_squad::Options {
            bert_config_file,
            vocab_file,
            output_dir: folder.to_path_buf(),
            predict_file: shared("fixtures/data/squad/dev-v1.1.json")?,
            init_checkpoint: Some(shared("fixtures/squad/v1.1")?.join("model.ckpt-65")),
            do_lower_case,
            features: FeatureOptions {
                max_seq_length: 96,
                doc_stride: 32,
                ..FeatureOptions::default()
            },
            predict: PredictOptions::default(),
            predict_batch_size: 8,
            on_bad_row: OnBadRow::Stop,
            threads: Some(1),
            comm,
        })
    };
    let Some(alone) = options(one.path(), Arc::new(Solo)) else { return };
    run_squad::run_squad(&alone, &mut |_| ()).unwrap();
    each(3, |comm| {
        run_squad::run_squad(&options(many.path(), comm).unwrap(), &mut |_| ()).unwrap();
    });
    let names = ["predictions.json", "nbest_predictions.json", "eval.tf_record"];
    same_files(one.path(), many.path(), &names);
}

/// Masked pieces and next sentences in packs, with an evaluation on the way. A step has four packs.
fn pretraining(
    folder: &Path,
    comm: Arc<dyn Comm>,
    [packs, accumulate]: [usize; 2],
) -> Option<pretrain::Options> {
    let config = BertConfig::read(shared("fixtures/data/bert_config_small.json")?).unwrap();
    let records = vec![shared("fixtures/pretrain/tf_examples.tfrecord")?];
    let rate = Bert { rate: 1e-4, steps: 50, warmup: 5 };
    let reading = ReaderOptions {
        packs,
        shuffle: Some(7),
        depth: Depth::AtMost(3),
        ..ReaderOptions::default()
    };
    let on = evaluate::Options {
        config: config.clone(),
        formulas: Default::default(),
        head: Head::Pretraining,
        records: records.clone(),
        reading: ReaderOptions { packs: 3, depth: Depth::AtMost(1), ..ReaderOptions::default() },
        form: Default::default(),
        batches: Some(7),
        threads: Some(1),
        plans: None,
    };
    let mut train = train::Options::bert(Head::Pretraining, config, rate, folder.to_owned());
    train.init_checkpoint = Some(shared("fixtures/pretrain")?.join("model.ckpt-40"));
    (train.records, train.reading, train.threads) = (records, reading, Some(1));
    (train.comm, train.accumulate) = (comm, accumulate);
    let evaluation = Judgement { on, triggers: vec![50, 100_000], target: None };
    Some(pretrain::Options { train, evaluation: Some(evaluation), most_sequences: None })
}

/// However a step is cut into what is computed at once.
#[test]
fn pre_training_by_two() {
    let one = tempfile::tempdir().unwrap();
    let run = |options: &pretrain::Options| {
        let mut heard = Vec::new();
        let report = pretrain::pretrain(options, &mut |event| {
            if let pretrain::Event::Train(train::Event::Step(step, ..)) = &event {
                heard.push(step.report.loss);
                heard.extend(step.report.parts.iter().map(|(_, loss)| *loss));
                heard.push(step.sequences as f64);
            }
            Ok(Go::On)
        });
        (report.unwrap(), heard)
    };
    let Some(alone) = pretraining(one.path(), Arc::new(Solo), [4, 1]) else { return };
    let (expected, losses) = run(&alone);
    assert!(expected.sequences > 4 * 50, "several sequences of a pack");
    for cut in [[4, 1], [1, 4]] {
        let two = tempfile::tempdir().unwrap();
        let ended = each(2, |comm| run(&pretraining(two.path(), comm, cut).unwrap()));
        close(&ended[0].1, &losses);
        for (report, _) in &ended {
            assert_eq!((report.steps, report.sequences), (50, expected.sequences));
            assert_eq!(report.evaluations.len(), 1);
            let [a, b] = [&report.evaluations[0], &expected.evaluations[0]];
            assert_eq!((a.step, a.samples), (b.step, b.samples));
            assert!((a.accuracy - b.accuracy).abs() < 1e-6, "{} {}", a.accuracy, b.accuracy);
        }
        same_checkpoint(&ended[0].0.checkpoint, &expected.checkpoint);
    }
}

/// Ranks that see other files learn nothing together.
#[test]
fn ranks_with_other_samples_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_) = pretraining(folder.path(), Arc::new(Solo), [4, 1]) else { return };
    for said in each(2, |comm| {
        let is_first = comm.is_first();
        let mut options = pretraining(folder.path(), comm, [4, 1]).unwrap();
        if !is_first {
            let other = shared("fixtures/pretrain/tf_examples_real_uncased.tfrecord");
            options.train.records = vec![other.unwrap()];
        }
        pretrain::pretrain(&options, &mut |_| Ok(Go::On)).unwrap_err().to_string()
    }) {
        assert_eq!(said, "rank 1 would learn from other samples than rank 0");
    }
    assert!(!folder.path().join("model.ckpt-0.index").exists());
}

/// One of several processes that cannot know of each other would train the whole.
#[cfg(not(feature = "mpi"))]
#[test]
fn without_mpi_several_processes_are_refused() {
    let done = std::process::Command::new(env!("CARGO_BIN_EXE_frazil"))
        .args(["finetune", "classifier", "model", "--task", "mrpc", "--data", "mrpc", "-o", "out"])
        .env("OMPI_COMM_WORLD_SIZE", "2")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(said.starts_with("error: this is one of 2 processes under MPI"), "{said}");
    assert!(said.contains("hint: build it with `--features mpi`"), "{said}");
}
