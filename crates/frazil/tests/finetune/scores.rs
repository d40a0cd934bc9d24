//! Which scores count: those of the same data, judged in the same way, whoever else has judged in the folder.

use frazil::ops::run_classifier::{self, run_classifier};

use super::going_on::{keep_rows, own_data, words};
use super::*;

/// As `run_classifier --do_eval` has it, on what a run is judged on.
fn old_program(options: &classifier::Options) -> run_classifier::Options {
    run_classifier::Options {
        data_dir: options.data_dir.clone(),
        bert_config_file: options.model.bert_config_file.clone(),
        task: options.task,
        vocab_file: options.model.vocab_file.clone(),
        output_dir: options.model.output_dir.clone(),
        init_checkpoint: None,
        do_lower_case: options.model.do_lower_case,
        max_seq_length: options.max_seq_length,
        do_eval: true,
        do_predict: false,
        eval_batch_size: 8,
        predict_batch_size: 8,
        use_tpu: false,
        on_bad_row: options.on_bad_row,
        threads: options.schedule.threads,
        comm: Arc::new(frazil::train::comm::Solo),
    }
}

/// Scores on another dev set do not count one run later either, nor where nothing is left to train.
#[test]
fn scores_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut first) = mrpc(folder.path()) else { return };
    // Weights that do not change score the same every time: the first is the best.
    first.schedule =
        Schedule { learning_rate: 0.0, epochs: 1.0, save_every: 2, keep: 0, ..first.schedule };
    let mut second = first.clone();
    let data = own_data(&mut second);
    keep_rows(&data.path().join("dev.tsv"), 4);
    let of_first = words(&first).0;
    assert_eq!((of_first.steps, of_first.evaluations.len()), (4, 2));
    second.schedule.epochs = 2.0;
    let (of_second, _) = words(&second);
    assert_eq!(of_second.best, Some(folder.path().join("model.ckpt-4")));
    let steps = |report: &frazil::ops::finetune::Report| {
        report.evaluations.iter().map(|of| of.step).collect::<Vec<_>>()
    };
    assert_eq!(steps(&of_second), [4, 6, 8, 9]);
    let (again, seen) = words(&second);
    assert_eq!((&again.best, &again.evaluations), (&of_second.best, &of_second.evaluations));
    assert_eq!(seen, ["from 9"]);
    // In turn, each has its own.
    first.schedule.epochs = 2.0;
    let (other, seen) = words(&first);
    assert_eq!((steps(&other), &seen[1][..]), (vec![2, 4, 9], "evaluating 9"));
    assert_eq!(other.evaluations[..2], of_first.evaluations);
    let (again, seen) = words(&second);
    assert_eq!((again.evaluations, seen), (of_second.evaluations, vec!["from 9".to_owned()]));
    let (again, seen) = words(&first);
    assert_eq!((again.evaluations, seen), (other.evaluations, vec!["from 9".to_owned()]));
}

/// What changes the scores that count is said.
#[test]
fn other_scores_are_said_not_to_count() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut options) = mrpc(folder.path()) else { return };
    let data = own_data(&mut options);
    options.schedule.epochs = 1.0;
    let notes = |options: &classifier::Options| {
        let mut notes = Vec::new();
        classifier::classifier(options, &mut |event| {
            if let Event::Note(note) = event {
                notes.push(note);
            }
        })
        .unwrap();
        notes
    };
    assert!(notes(&options).is_empty() && notes(&options).is_empty());
    keep_rows(&data.path().join("dev.tsv"), 4);
    let said = notes(&options);
    assert!(
        said.len() == 1 && said[0].contains("judged on something else than before"),
        "{said:?}"
    );
    assert!(notes(&options).is_empty());
}

/// The old program evaluates in the same folder: on other data its scores are others, and on the same data they
/// are not all that a run is judged by.
#[test]
fn the_old_programs_scores_are_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut options) = mrpc(folder.path()) else { return };
    options.schedule.epochs = 1.0;
    classifier::train(&options, &mut |_| Ok(Go::On)).unwrap();
    run_classifier(&old_program(&options), &mut |_| {}).unwrap();
    let (report, seen) = words(&options);
    assert_eq!(seen, ["from 4", "evaluating 4", "evaluated 4 true"]);
    assert_eq!(report.best.as_ref(), Some(&report.checkpoint));
    let mut other = options.clone();
    let data = own_data(&mut other);
    keep_rows(&data.path().join("dev.tsv"), 4);
    run_classifier(&old_program(&other), &mut |_| {}).unwrap();
    let (again, seen) = words(&options);
    assert_eq!((again.best, again.evaluations), (report.best, report.evaluations));
    assert_eq!(seen, ["from 4"]);
}

/// The report has scores that came when nothing was left to train, and stays where nothing is new.
#[test]
fn scores_that_come_later_are_in_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut options) = mrpc(folder.path()) else { return };
    (options.schedule.epochs, options.evaluate) = (1.0, false);
    let path = classifier::classifier(&options, &mut |_| {}).unwrap().report;
    let page = || std::fs::read_to_string(&path).unwrap();
    assert!(!page().contains("acc_and_f1"));
    options.evaluate = true;
    assert_eq!(classifier::classifier(&options, &mut |_| {}).unwrap().taken, 0);
    assert!(page().contains("acc_and_f1"));
    std::fs::write(&path, "as it was").unwrap();
    words(&options);
    assert_eq!(page(), "as it was");
    // The old program trains nothing and evaluates on other data.
    let ran = classifier::train(&options, &mut |_| Ok(Go::On)).unwrap();
    ran.write_report(&options.model, &options.schedule).unwrap();
    assert_eq!(page(), "as it was");
    let data = own_data(&mut options);
    keep_rows(&data.path().join("dev.tsv"), 4);
    run_classifier(&old_program(&options), &mut |_| {}).unwrap();
    ran.write_report(&options.model, &options.schedule).unwrap();
    assert!(page().contains("eval_accuracy") && !page().contains("acc_and_f1"));
}
