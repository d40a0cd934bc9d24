//! What the keys of MLPerf's configurations do, and when a result is that of a run.

use frazil::ops::{mlperf, pretrain};
use frazil::train::run::Go;
use serde_json::json;

use super::*;

const CONFIG: &str = "configs/mk2/pod16-open.json";

/// What was said on stdout and stderr, and the exit code.
fn said(output: Output) -> (String, String, Option<i32>) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code())
}

fn submit(folder: &Path, words: &[&str]) -> (String, String, Option<i32>) {
    let run = ["create_submission", "--submission-division=open", "--target-accuracy=0"];
    said(frazil(folder, &[&run[..], words].concat()))
}

#[test]
fn results_of_other_settings_are_those_of_other_runs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    let other = fs::read_to_string(config(folder)).unwrap().replace("a machine", "another");
    fs::write(folder.join("configs/mk2/pod64-open.json"), other).unwrap();
    let run = |words: &[&str]| {
        let (out, err, code) = submit(folder, &[&["--end-index=1"], words].concat());
        assert_eq!(code, Some(0), "{err}");
        (out, err)
    };
    let is_new = |words: &[&str], why: &str| {
        let (out, err) = run(words);
        assert!(out.starts_with("run 0: success in "), "{out}");
        let note = "note: `result/bert/result_0.txt` is of another run";
        assert!(err.contains(&format!("{note} ({why}), and stays until")), "{err}");
        assert!(run(words).0.contains("was there"), "{words:?}");
    };
    assert!(!run(&["--pod=16"]).1.contains("another run"));
    // Where things go makes no other run, nor how often something is written.
    let same = ["--pod=16", "--checkpoint-dir=elsewhere", "--save-every=2", "--steps-per-log=5"];
    assert!(run(&same).0.contains("was there"));
    is_new(&["--pod=64"], "`submission_platform` is \"a machine\" there");
    is_new(&["--pod=64", "--beta2=0.99"], "`opt_lamb_beta_2` is 0.998 there");
    is_new(&["--pod=64", "--beta2=0.99", "--ff-size=64"], "its settings or data are others");
    let packed = fs::read_dir(folder.join("packed")).unwrap().next().unwrap().unwrap().path();
    fs::copy(&packed, folder.join("packed/strategy_more")).unwrap();
    is_new(&["--pod=64", "--beta2=0.99", "--ff-size=64"], "its settings or data are others");
    // The log is still one of MLPerf's.
    let log = fs::read_to_string(folder.join("result/bert/result_0.txt")).unwrap();
    assert_eq!(mllog::check(&log, Division::Open), [""; 0], "{log}");
}

#[test]
fn a_run_that_fails_leaves_the_others_alone() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    config(folder);
    fs::create_dir_all(folder.join("ckpts/run_1")).unwrap();
    fs::write(folder.join("ckpts/run_1/thesis.txt"), "mine").unwrap();
    let (out, err, code) = submit(folder, &["--end-index=3"]);
    assert_eq!(code, Some(2), "{err}");
    let lines: Vec<&str> = out.lines().collect();
    assert!(
        lines[0].starts_with("run 0: success in ") && lines[2].starts_with("run 2: success in ")
    );
    assert_eq!(lines[1], "run 1: failed");
    assert!(err.contains("error: 1 of 3 runs failed\nhint: `./internal_log_1` says why"), "{err}");
    let log = fs::read_to_string(folder.join("internal_log_1")).unwrap();
    assert!(log.contains("error: `ckpts/run_1` would begin anew, but no run has left it"), "{log}");
    assert!(log.contains("hint: name another `checkpoint_dir`"), "{log}");
    assert!(folder.join("ckpts/run_1/thesis.txt").is_file());
    let other = fs::read_to_string(folder.join(CONFIG)).unwrap().replacen('{', "{\"seed\": 7,", 1);
    fs::write(folder.join(CONFIG), other).unwrap();
    let (_, err, _) = submit(folder, &["--end-index=1", "--again"]);
    assert!(err.contains("note: `seed` (no effect): each run has its own"), "{err}");
    // Seeds and numbers of runs are theirs.
    for (flag, value) in [("--seed", "99"), ("--submission-run-index", "12")] {
        let (_, err, code) = submit(folder, &[flag, value]);
        assert!(
            code == Some(2) && err.contains(&format!("`{flag}`: each run has its own")),
            "{err}"
        );
    }
}

/// Nothing is planned, written or removed for a run that cannot begin.
#[test]
fn what_is_missing_is_said_first() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    config(folder);
    let is_clean =
        || ["result", "engine_cache", "ckpts"].iter().all(|name| !folder.join(name).exists());
    for (flag, value, says) in [
        ("--tf-checkpoint", "nowhere/model.ckpt-28252", "nowhere/model.ckpt-28252"),
        ("--duplication-factor", "100000", "samples cannot be the same ones 100000 times over"),
        ("--duplication-factor", "0", "`duplication_factor` is 0"),
        ("--max-sequences-per-pack", "0", "`max_sequences_per_pack` is 0"),
    ] {
        let cache = ["--engine-cache", "engine_cache"];
        let said =
            failed(folder, &[&["pretrain", "--config", CONFIG, flag, value], &cache[..]].concat());
        assert!(said.contains(says), "{said}");
        assert!(is_clean(), "{flag}");
    }
    let pack = ["pack_pretraining_data", "--input-glob=binary/*", "--output-dir=other"];
    let (length, masked) = (LENGTH.to_string(), MASKED.to_string());
    let sizes = ["--max-sequence-length", &length, "--max-predictions-per-sequence", &masked];
    for (flag, value, says) in [
        ("--max-sequences-per-pack", "0", "`--max-sequences-per-pack` is 0"),
        ("--duplication-factor", "0", "`--duplication-factor` is 0"),
        ("--duplication-factor", "100000", "samples cannot be the same ones 100000 times over"),
    ] {
        let said = failed(folder, &[&pack[..], &sizes, &[flag, value]].concat());
        assert!(said.contains(says), "{said}");
        assert!(!folder.join("other").exists());
    }
    // An earlier run stays.
    assert_eq!(submit(folder, &["--end-index=1", "--max-steps=1", "--quiet"]).2, Some(1));
    let checkpoint = folder.join("ckpts/run_0/checkpoint");
    assert!(checkpoint.is_file());
    let (_, err, code) = submit(folder, &["--end-index=1", "--tf-checkpoint=nowhere/model.ckpt"]);
    assert!(code == Some(2) && err.contains("nowhere") && checkpoint.is_file(), "{err}");
}

/// A run that begins anew takes away what a run has left there, and nothing else.
#[test]
fn what_is_read_or_is_no_runs_stays() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    config(folder);
    let short = ["--end-index=1", "--max-steps=1", "--again"];
    let again = |words: &[&str]| submit(folder, &[&short[..], words].concat());
    again(&[]);
    let checkpoint = folder.join("ckpts/run_0/model.ckpt-1.index");
    fs::write(folder.join("ckpts/run_0/notes.txt"), "mine").unwrap();
    // Not what it is told to begin with.
    let (_, err, code) = again(&["--tf-checkpoint=ckpts/run_0/model.ckpt-1"]);
    let why = "`ckpts/run_0` would begin anew, but `ckpts/run_0/model.ckpt-1`, which the run reads";
    assert!(code == Some(2) && err.contains(why) && checkpoint.is_file(), "{err}");
    let inside = folder.join("ckpts/run_0/strategy_0");
    let packed = fs::read_dir(folder.join("packed")).unwrap().next().unwrap().unwrap().path();
    fs::copy(packed, &inside).unwrap();
    let (_, err, code) = again(&["--on-the-spot-validation-files=ckpts/run_0/strategy_0"]);
    assert!(code == Some(2) && err.contains("strategy_0`, which the run reads"), "{err}");
    assert!(inside.is_file() && checkpoint.is_file());
    assert_eq!(again(&["--max-steps=2"]).2, Some(1));
    assert!(folder.join("ckpts/run_0/notes.txt").is_file() && inside.is_file());
    assert!(folder.join("ckpts/run_0/model.ckpt-2.index").is_file() && !checkpoint.exists());
    // Not a folder of TensorFlow's.
    fs::remove_file(folder.join("ckpts/run_0/.frazil.lock")).unwrap();
    let (_, err, code) = again(&[]);
    assert!(code == Some(2) && err.contains("no run has left it"), "{err}");
    assert!(folder.join("ckpts/run_0/model.ckpt-2.index").is_file());
}

/// A log that cannot be written is told before the training, and one that is gone is missed.
#[test]
fn a_run_without_its_log_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    config(folder);
    let run = ["pretrain", "--config", CONFIG, "--target-accuracy=0"];
    let result = folder.join("result/bert/result_1.txt");
    fs::create_dir_all(&result).unwrap();
    let error = failed(folder, &run);
    assert!(error.contains("result_1.txt` is a folder"), "{error}");
    assert!(!folder.join("ckpts/model.ckpt-1.index").exists());
    fs::remove_dir(&result).unwrap();
    done(folder, &run);
    assert!(result.is_file());
    let (out, _, code) = said(frazil(folder, &run));
    assert!(code == Some(0) && out.contains("nothing was left to do"), "{out}");
    fs::remove_file(&result).unwrap();
    let error = failed(folder, &run);
    assert!(
        error.contains("the run in `ckpts` is over, and its log `result/bert/result_1.txt`"),
        "{error}"
    );
}

/// A run that is over has its log, wherever there is room for it.
#[test]
fn a_log_without_room_stays_with_its_run() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    let mut settings = mlperf::Settings::read(&config(folder)).unwrap();
    let at = |name: &str| folder.join(name).display().to_string();
    for (key, value) in [
        ("input_files", json!([at("packed/strategy*")])),
        ("on_the_spot_validation_files", json!([at("packed/strategy*")])),
        ("checkpoint_dir", json!(at("ckpts"))),
        ("results", json!(at("result"))),
        ("engine_cache", json!("")),
        ("target_accuracy", json!(0)),
        ("threads", json!(1)),
    ] {
        settings.set(key, value).unwrap();
    }
    let (place, kept) = (folder.join("result/bert"), folder.join("ckpts/result_1.txt"));
    let ended = mlperf::run(&mlperf::plan(&settings).unwrap(), &mut |event| {
        if let mlperf::Event::Pretrain(pretrain::Event::Evaluated(_)) = event {
            fs::remove_dir(&place).unwrap();
            fs::write(&place, "").unwrap();
        }
        Ok(Go::On)
    });
    let error = ended.unwrap_err().to_string();
    assert_eq!(error, format!("the run is over, and its log is `{}`", kept.display()));
    let log = fs::read_to_string(&kept).unwrap();
    assert_eq!(mllog::check(&log, Division::Open), [""; 0], "{log}");
    let run = ["pretrain", "--config", CONFIG, "--target-accuracy=0"];
    let (_, err, code) = said(frazil(folder, &run));
    assert!(code == Some(2) && kept.is_file(), "{err}");
    fs::remove_file(&place).unwrap();
    let (out, err, code) = said(frazil(folder, &run));
    assert!(code == Some(0) && out.contains("nothing was left to do"), "{out}{err}");
    let note = "note: `result/bert/result_1.txt` was `ckpts/result_1.txt` until now";
    assert!(err.contains(note) && !kept.exists(), "{err}");
    assert_eq!(fs::read_to_string(place.join("result_1.txt")).unwrap(), log);
    // A run of a submission is not begun anew for that, and what its internal log says stays.
    let submit = || submit(folder, &["--end-index=1", "--checkpoint-dir=ten"]);
    assert_eq!(submit().2, Some(0));
    let internal = fs::read_to_string(folder.join("internal_log_0")).unwrap();
    fs::rename(place.join("result_0.txt"), folder.join("ten/run_0/result_0.txt")).unwrap();
    let (out, err, _) = submit();
    assert!(out.starts_with("run 0: success, was there"), "{out}{err}");
    assert_eq!(fs::read_to_string(folder.join("internal_log_0")).unwrap(), internal);
    assert!(place.join("result_0.txt").is_file());
}

/// What comes after a run, checkpoints and a page, is not in its time.
#[test]
fn a_run_ends_with_its_last_evaluation_or_step() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    config(folder);
    let run = ["pretrain", "--config", CONFIG];
    for (words, last) in [
        (&["--target-accuracy=0", "--checkpoint-dir=judged"][..], "eval_accuracy"),
        (&["--max-steps=1", "--checkpoint-dir=early"], "block_stop"),
    ] {
        frazil(folder, &[&run[..], words].concat());
        let log = fs::read_to_string(folder.join("result/bert/result_1.txt")).unwrap();
        let lines = mllog::parse(&log).unwrap();
        assert!(lines.is_sorted_by_key(|line| line.time_ms), "{log}");
        let of = |key: &str| lines.iter().find(|line| line.key == key).unwrap();
        assert_eq!(of("run_stop").time_ms, of(last).time_ms, "{log}");
    }
}

/// What a log has against the rules is said when it is written, and whose time it is.
#[test]
fn what_is_no_result_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    config(folder);
    let run = ["pretrain", "--config", CONFIG, "--target-accuracy=0"];
    let closed = ["--submission-division=closed", "--checkpoint-dir=closed"];
    let (_, err, code) = said(frazil(folder, &[&run[..], &closed].concat()));
    let wrong = "no `eval_accuracy` from 0.72 on and below 1";
    let note = format!("note: {wrong}: the log is none by MLPerf's rules\n");
    assert!(code == Some(0) && err.contains(&note), "{err}");
    let resumed =
        "note: the run went on after step 1: the time in its log is that of the steps since";
    let (_, err, _) = said(frazil(folder, &[&run[..], &["--max-steps=1"]].concat()));
    assert!(!err.contains("note: the run went on"), "{err}");
    let (_, err, code) = said(frazil(folder, &run));
    assert!(code == Some(0) && err.contains(resumed), "{err}");
    assert!(!err.contains("MLPerf's rules"), "{err}");
}

#[test]
fn lines_come_every_so_many_steps() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    config(folder);
    let run = ["bert", "--config", CONFIG, "--max-steps=6", "--steps-per-log=3"];
    let (_, err, _) = said(frazil(folder, &run));
    let lines: Vec<&str> = err.lines().filter(|line| line.starts_with("step ")).collect();
    let steps: Vec<&str> =
        lines.iter().filter_map(|line| line.split_once(" of 6: loss ")).map(|of| of.0).collect();
    assert_eq!(steps, ["step 3", "step 6"], "{err}");
    assert!(lines.iter().all(|line| !line.contains("loss") || line.contains(" pieces/s")), "{err}");
}

/// What is not a configuration's name is no file that is missing.
#[test]
fn submissions_are_found_by_pod_and_division() {
    let folder = tempfile::tempdir().unwrap();
    for (flag, says, hint) in [
        ("--submission-division=clsd", "`submission_division` is `clsd`", "`closed` or `open`"),
        ("--config=x.json", "`--config`: the configuration is found by its name", "`--configs`"),
    ] {
        let (_, err, code) = said(frazil(folder.path(), &["create_submission", flag]));
        assert!(code == Some(2) && err.contains(says) && err.contains(hint), "{err}");
    }
}

/// Blocks are closed also where no evaluation does so, and it is said that such a log is none by the rules.
#[test]
fn a_log_without_evaluations_has_whole_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    config(folder);
    let run = ["pretrain", "--config", CONFIG, "--max-steps=1"];
    for (words, missing) in [
        (&["--checkpoint-dir=early"][..], "early"),
        (&["--on-the-spot-validation-files", "--checkpoint-dir=none"], "none"),
    ] {
        let (_, err, _) = said(frazil(folder, &[&run[..], words].concat()));
        assert!(
            err.contains("note: nothing was evaluated: the log is none by MLPerf's rules"),
            "{err}"
        );
        let log = fs::read_to_string(folder.join("result/bert/result_1.txt")).unwrap();
        let wrong = mllog::check(&log, Division::Open).join("\n");
        assert!(wrong.contains("eval_accuracy") && !wrong.contains("block"), "{missing}: {wrong}");
    }
}

/// A table of positions is cut, and never filled up.
#[test]
fn positions_are_cut() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    config(folder);
    let run = ["pretrain", "--config", CONFIG, "--max-steps", "1"];
    frazil(folder, &[&run[..], &["--checkpoint-dir", "old"]].concat());
    let more = ["--tf-checkpoint", "old/model.ckpt-1", "--checkpoint-dir", "new"];
    let more = [&run[..], &more, &["--max-positional-length"]].concat();
    let said = failed(folder, &[&more[..], &["128"]].concat());
    assert!(said.contains("old/model.ckpt-1` knows 64 positions, and 128 are wanted"), "{said}");
    assert!(said.contains("hint: give `--max-positional-length 64` at most"), "{said}");
    assert!(!folder.join("new").exists());
    frazil(folder, &[&more[..], &["50"]].concat());
    let of = |prefix: &str, name: &str| {
        let all = tensors(&folder.join(prefix));
        all.into_iter().find(|(known, _)| known == name).unwrap().1
    };
    let table = "bert/embeddings/position_embeddings";
    for name in [table.to_owned(), format!("{table}/adam_m")] {
        let (old, new) = (of("old/model.ckpt-1", &name), of("new/model.ckpt-0", &name));
        assert!(new.len() == 50 * 32 * 4 && old.starts_with(&new), "{name}");
    }
}

#[test]
fn evaluations_end_with_the_sequences() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    config(folder);
    let run = ["pretrain", "--config", CONFIG, "--json", "--max-training-sequences", "30"];
    let (out, err, code) = said(frazil(folder, &run));
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("the last one comes after 30"), "{err}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    let triggers: Vec<u64> = report["evaluations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|found| found["trigger"].as_u64().unwrap())
        .collect();
    assert_eq!(triggers, [20, 30]);
    assert!((31..30 + 12 + 1).contains(&report["sequences"].as_u64().unwrap()), "{out}");
}

/// An epoch is a pass over the data, whatever the run may see.
#[test]
fn rates_change_with_the_pass_over_the_data() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    config(folder);
    let shape = Shape { max_length: LENGTH, max_predictions: MASKED, sequences: 3 };
    let size = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().metadata().unwrap().len();
    let bytes: u64 = fs::read_dir(folder.join("packed")).unwrap().map(size).sum();
    // A step has four packs, and a pass one of two copies of the text.
    let steps = bytes / shape.bytes_of_pack() as u64 / 2 / 4;
    assert!(steps > 1, "{steps}");
    let most = (steps + 1).to_string();
    let rates = ["--lr-schedule-by-epoch", "0:0.001", "1:1e-4", "--duplication-factor=2"];
    let long = ["--on-the-spot-validation-triggers=100000", "--end-index=1", "--max-steps", &most];
    submit(folder, &[&rates[..], &long].concat());
    let log = fs::read_to_string(folder.join("internal_log_0")).unwrap();
    let of = |step: u64| log.lines().find(|line| line.starts_with(&format!("step {step}: loss")));
    assert!(of(steps).unwrap().contains("rate 1e-3,"), "{steps}: {log}");
    assert!(of(steps + 1).unwrap().contains("rate 1e-4,"), "{steps}: {log}");
}
