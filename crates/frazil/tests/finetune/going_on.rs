//! Runs that go on in a folder: what has changed since is said or refused, and what was good stays.

use frazil::bert::{BertConfig, Head};
use frazil::train::optim::{self, Adam, Lamb, Method, Sgd};
use frazil::train::schedule::{Bert, LossScale};

use super::*;

/// A run that goes on with other examples, or more of them at a time, says so, and reads what there is now
/// from its beginning.
#[test]
fn what_has_changed_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut options) = mrpc(folder.path()) else { return };
    let data = own_data(&mut options);
    let run = |options: &classifier::Options, epochs: f64| {
        let mut options = options.clone();
        options.schedule.epochs = epochs;
        let (mut found, mut seen) = (None, None);
        classifier::train(&options, &mut |event| {
            match event {
                Event::Train(train::Event::Resuming(_, _, changes)) => found = Some(*changes),
                Event::Train(train::Event::Step(step, ..)) => seen = Some(step.seen),
                _ => {}
            }
            Ok(Go::On)
        })
        .unwrap();
        (found, seen.unwrap())
    };
    let none = train::Changes::default();
    let (_, first) = run(&options, 1.0);
    let (changes, second) = run(&options, 2.0);
    assert_eq!(changes, Some(none));
    options.schedule.batch_size = 4;
    options.schedule.accumulate = 3;
    let (changes, third) = run(&options, 6.0);
    assert_eq!(changes, Some(train::Changes { packs: Some((8, 12)), ..none }));
    // Fewer rows than were read of the last epoch, and others.
    keep_rows(&data.path().join("train.tsv"), 5);
    options.schedule.batch_size = 1;
    let (changes, fourth) = run(&options, 60.0);
    assert_eq!(changes, Some(train::Changes { samples: true, packs: Some((12, 3)), ..none }));
    assert!(first < second && second < third && third < fourth);
}

/// Another learning rate is said, and so is another warm-up of a run that was not at its end; more epochs alone
/// are not.
#[test]
fn other_rates_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut options) = mrpc(folder.path()) else { return };
    options.schedule.save_every = 2;
    let run = |options: &classifier::Options, until: u64| {
        let mut found = train::Changes::default();
        classifier::train(options, &mut |event| {
            Ok(match event {
                Event::Train(train::Event::Resuming(_, _, changes)) => {
                    found = *changes;
                    Go::On
                }
                Event::Train(train::Event::Saved(_, step, _)) if step == until => Go::Stop,
                _ => Go::On,
            })
        })
        .unwrap();
        (found.rate, found.next_rate)
    };
    run(&options, 2);
    assert_eq!(run(&options, 4), (None, None));
    options.schedule.warmup_proportion = 0.9;
    let (rate, Some((before, now))) = run(&options, 6) else { panic!("another warm-up") };
    assert!(rate.is_none() && now < before, "{before} {now}");
    options.schedule.learning_rate = 5e-4;
    let end = u64::MAX;
    assert_eq!(run(&options, end), (Some((1e-3, 5e-4)), None));
    options.schedule.epochs = 4.0;
    assert_eq!(run(&options, end), (None, None));
    (options.schedule.epochs, options.schedule.learning_rate) = (5.0, 1e-3);
    assert_eq!(run(&options, end), (Some((5e-4, 1e-3)), None));
}

/// Lets a run learn from a copy of its data, which can be changed.
pub fn own_data(options: &mut classifier::Options) -> tempfile::TempDir {
    let data = tempfile::tempdir().unwrap();
    for name in ["train.tsv", "dev.tsv"] {
        std::fs::copy(options.data_dir.join(name), data.path().join(name)).unwrap();
    }
    options.data_dir = data.path().to_path_buf();
    data
}

/// Leaves the first rows of a file.
pub fn keep_rows(path: &Path, rows: usize) {
    let all = std::fs::read_to_string(path).unwrap();
    let kept: Vec<&str> = all.lines().take(rows).collect();
    std::fs::write(path, kept.join("\n") + "\n").unwrap();
}

fn read(path: impl AsRef<Path>) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

/// All events that a run shows, as words.
pub fn words(options: &classifier::Options) -> (frazil::ops::finetune::Report, Vec<String>) {
    let mut words = Vec::new();
    let report = classifier::classifier(options, &mut |event| match event {
        Event::Evaluating(step) => words.push(format!("evaluating {step}")),
        Event::Evaluated(of, best) => words.push(format!("evaluated {} {best}", of.step)),
        Event::Train(train::Event::Resuming(_, step, _)) => words.push(format!("from {step}")),
        _ => {}
    });
    (report.unwrap(), words)
}

/// Another vocabulary or configuration, as long as it has the same sizes, would spoil the folder's model.
#[test]
fn a_model_with_other_words_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut options) = mrpc(&folder.path().join("out")) else { return };
    options.schedule.epochs = 1.0;
    classifier::classifier(&options, &mut |_| {}).unwrap();
    let files = ["vocab.txt", "bert_config.json", "train.tf_record", "report.html"];
    let before = files.map(|name| read(folder.path().join("out").join(name)));
    let refused = |options: &classifier::Options, part: &str| {
        let said = classifier::classifier(options, &mut |_| {}).unwrap_err();
        assert!(said.to_string().contains(part) && said.hint().is_some(), "{said}");
        assert!(files.map(|name| read(folder.path().join("out").join(name))) == before);
    };
    let mut other = options.clone();
    other.model.vocab_file = folder.path().join("vocab.txt");
    let text = std::fs::read_to_string(&options.model.vocab_file).unwrap();
    let reversed: Vec<&str> = text.lines().collect();
    let reversed =
        [&reversed[..5], &reversed[5..].iter().rev().copied().collect::<Vec<_>>()].concat();
    std::fs::write(&other.model.vocab_file, reversed.join("\n") + "\n").unwrap();
    refused(&other, "out/vocab.txt` is of another model");
    let mut other = options.clone();
    other.model.bert_config_file = folder.path().join("bert_config.json");
    let text = std::fs::read_to_string(&options.model.bert_config_file).unwrap();
    std::fs::write(&other.model.bert_config_file, text.replace("\"gelu\"", "\"relu\"")).unwrap();
    refused(&other, "out/bert_config.json` is of another model");
    let mut other = options.clone();
    other.schedule.seed += 1;
    refused(&other, "is of a run with the seed 12345");
    // What has nothing to begin with makes no folder.
    let mut other = options.clone();
    other.model.output_dir = folder.path().join("new");
    other.model.init_checkpoint = Some(folder.path().join("nope.ckpt"));
    assert!(classifier::classifier(&other, &mut |_| {}).is_err());
    assert!(!other.model.output_dir.exists());
}

/// While a run is under way, a second one does not touch what it trains on.
#[test]
fn records_of_a_run_are_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut options) = mrpc(folder.path()) else { return };
    options.schedule.epochs = 1.0;
    let mut second = options.clone();
    second.max_seq_length = 32;
    let mut tried = false;
    classifier::classifier(&options, &mut |event| {
        if matches!(event, Event::Train(train::Event::Begin(_))) {
            let before = read(folder.path().join("train.tf_record"));
            let said = classifier::classifier(&second, &mut |_| {}).unwrap_err().to_string();
            assert!(said.contains("another run is training in"), "{said}");
            tried = read(folder.path().join("train.tf_record")) == before;
        }
    })
    .unwrap();
    assert!(tried);
}

/// Scores on another dev set say nothing about the best so far.
#[test]
fn another_dev_set_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut options) = mrpc(folder.path()) else { return };
    let data = own_data(&mut options);
    options.schedule.epochs = 1.0;
    let (first, _) = words(&options);
    let (again, seen) = words(&options);
    assert_eq!((again.taken, &seen[..]), (0, &[format!("from {}", first.steps)][..]));
    assert_eq!(again.evaluations, first.evaluations);
    // Trained on without scores, they are those of the same set still.
    options.evaluate = false;
    options.schedule.epochs = 2.0;
    words(&options);
    options.evaluate = true;
    keep_rows(&data.path().join("dev.tsv"), 4);
    let (other, seen) = words(&options);
    let last = other.steps;
    let expected = ["from", "evaluating", "evaluated"].map(|word| format!("{word} {last}"));
    assert_eq!(seen[..2], expected[..2]);
    assert_eq!(seen[2], format!("{} true", expected[2]));
    assert_eq!(other.evaluations.len(), 1);
    assert_eq!(other.best, Some(other.checkpoint));
}

/// The best checkpoint stays while nothing is evaluated, and is not named when it is gone.
#[test]
fn the_best_is_one_that_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut options) = mrpc(folder.path()) else { return };
    (options.schedule.keep, options.schedule.epochs) = (1, 1.0);
    let best = words(&options).0.best.unwrap();
    options.schedule.epochs = 2.0;
    options.evaluate = false;
    words(&options);
    options.schedule.epochs = 3.0;
    classifier::train(&options, &mut |_| Ok(Go::On)).unwrap();
    let index = PathBuf::from(format!("{}.index", best.display()));
    assert!(index.is_file(), "{}", index.display());
    std::fs::remove_file(index).unwrap();
    options.evaluate = true;
    options.schedule.learning_rate = 0.0;
    options.schedule.epochs = 4.0;
    let after = words(&options).0;
    let named = after.best.unwrap();
    assert!(named != best && PathBuf::from(format!("{}.index", named.display())).is_file());
}

/// A checkpoint that was there before the run is not taken back, whatever its settings come to; one of its
/// own is. What is named in `checkpoint` is where it goes on.
#[test]
fn wrong_settings_cost_no_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let Some(options) = mrpc(&folder.path().join("first")) else { return };
    let first = classifier::train(&options, &mut |_| Ok(Go::On)).unwrap().trained;
    let of_run = |name: &str, steps: u64, scale: f32| train::Options {
        records: vec![folder.path().join("first/train.tf_record")],
        save_every: 2,
        threads: Some(1),
        loss_scale: LossScale::Static(scale),
        init_checkpoint: Some(first.checkpoint.clone()),
        ..train::Options::bert(
            Head::Classifier,
            BertConfig::read(&options.model.bert_config_file).unwrap(),
            Bert { rate: 1e-4, steps, warmup: 0 },
            folder.path().join(name),
        )
    };
    let run = |name: &str, steps: u64, scale: f32| {
        train::train(&of_run(name, steps, scale), &mut |_| Ok(Go::On))
    };
    let state = |name: &str| CheckpointState::read(folder.path().join(name)).unwrap().unwrap();
    assert_eq!(run("second", 6, 1.0).unwrap().steps, 6);
    let before = state("second");
    assert_eq!(before.all_model_checkpoint_paths.len(), 4);
    for _ in 0..2 {
        let error = run("second", 8, 3e38).unwrap_err();
        let hint = error.hint().unwrap();
        let said = format!("{:#}", anyhow::Error::from(error));
        assert!(said.contains("no step can be taken from `"), "{said}");
        assert!(
            said.contains("model.ckpt-6`: the norm of the gradients of step 7 is inf"),
            "{said}"
        );
        assert!(hint.contains("factor on the loss") && hint.contains("`checkpoint`"), "{hint}");
        assert_eq!(state("second"), before);
    }
    // Back to an earlier one.
    let earlier = before.all_model_checkpoint_paths[1].clone();
    let back = CheckpointState { model_checkpoint_path: earlier.clone(), ..before };
    back.write(folder.path().join("second")).unwrap();
    let done = run("second", 2, 1.0).unwrap();
    assert_eq!((done.steps, done.taken, &done.checkpoint), (2, 0, &earlier));
    assert_eq!(run("second", 4, 1.0).unwrap().taken, 2);
    assert_eq!(state("second").model_checkpoint_path, folder.path().join("second/model.ckpt-4"));
}

/// Each optimizer changes weights in its own way and keeps its own slots; another one in the same folder is said,
/// and one that remembers something else is refused.
#[test]
fn optimizers_are_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let named = |name: &str| folder.path().join(name);
    let methods = [
        ("bert", Method::Adam(Adam::BERT), "adam_v"),
        ("adamw", Method::Adam(Adam::DECOUPLED), "adam_v"),
        ("lamb", Method::Lamb(Lamb::PLAIN), "adam_v"),
        ("sgd", Method::Sgd(Sgd::PLAIN), "Momentum"),
    ];
    let mut learnt: Vec<Vec<u8>> = Vec::new();
    let run = |name: &str, method: Method, epochs: f64| {
        let mut options = mrpc(&named(name))?;
        (options.schedule.epochs, options.schedule.learning_rate) = (epochs, 1e-4);
        options.schedule.optimizer = optim::Options::new(method, Some(1.0));
        let mut said = false;
        let ran = classifier::train(&options, &mut |event| {
            if let Event::Train(train::Event::Resuming(_, _, changes)) = event {
                said = changes.optimizer;
            }
            Ok(Go::On)
        });
        Some(ran.map(|ran| (ran.trained.checkpoint, said)))
    };
    for (name, method, slot) in methods {
        let Some(ran) = run(name, method, 0.5) else { return };
        let tensors = tensors(&ran.unwrap().0);
        let of = |name: &str| tensors.iter().find(|(known, _)| known == name);
        assert!(of(&format!("output_weights/{slot}")).is_some(), "{name}");
        let weights = of("bert/pooler/dense/kernel").unwrap().1.clone();
        assert!(!learnt.contains(&weights), "{name}");
        learnt.push(weights);
    }
    let (_, adamw, _) = methods[1];
    let said = |epochs: f64, method: Method| run("bert", method, epochs).unwrap();
    assert!(!said(1.0, methods[0].1).unwrap().1);
    assert!(said(1.5, adamw).unwrap().1);
    assert!(said(2.0, methods[2].1).unwrap().1);
    let error = said(2.5, methods[3].1).unwrap_err();
    let error = format!("{:#}", anyhow::Error::from(error));
    assert!(error.contains("/Momentum` of the checkpoint cannot be read"), "{error}");
}
