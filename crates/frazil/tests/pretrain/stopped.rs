//! Runs that are asked by a signal to stop.
#![cfg(unix)]

use super::*;

/// Runs until there is a checkpoint of step 6 in a folder, sends a signal, and gives what was said on stdout
/// and stderr, and the newest checkpoint, which a run goes on from.
fn stopped(folder: &Path, words: &[&str], to: &str, signal: &str) -> (String, PathBuf) {
    let child = Command::new(env!("CARGO_BIN_EXE_frazil"))
        .args(words)
        .current_dir(folder)
        .env("FRAZIL_THREADS", "1")
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while !folder.join(to).join("model.ckpt-6.index").exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "no checkpoint came");
        std::thread::sleep(Duration::from_millis(1));
    }
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    let there = fs::read_dir(folder.join(to)).unwrap();
    let mut names = there.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(names.all(|name| !name.ends_with(".partial")));
    let last = newest(&folder.join(to));
    tensors(&last);
    let step = last.display().to_string().rsplit_once('-').unwrap().1.to_owned();
    assert!(said.contains(&format!("stopped after step {step};")), "{said} {step}");
    (said, last)
}

/// Asked by a signal to stop, a run ends after its step, with a checkpoint to go on from and without a log.
#[test]
fn a_signal_ends_a_run_with_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    config(folder);
    let run = ["pretrain", "--config", "configs/mk2/pod16-open.json", "--max-steps", "2000"];
    let often = ["--save-every", "3", "--on-the-spot-validation-triggers", "1000000"];
    for signal in ["-INT", "-TERM"] {
        let to = ["--checkpoint-dir", signal, "--results", signal];
        stopped(folder, &[&run[..], &often, &to].concat(), signal, signal);
        assert!(!folder.join(signal).join("bert/result_1.txt").exists());
    }
}

/// So does the original's program, and leaves its report.
#[test]
fn a_signal_ends_the_originals_program() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    data(folder);
    let config = format!("--bert_config_file={}", demo("bert_config.json"));
    let (length, masked) =
        (format!("--max_seq_length={LENGTH}"), format!("--max_predictions_per_seq={MASKED}"));
    let words = ["run_pretraining", &config, &length, &masked, "--output_dir=out", "--do_train"];
    let often = ["--input_file=examples.tf*", "--save_checkpoints_steps=3", "--train_batch_size=4"];
    let words = [&words[..], &often, &["--num_train_steps=100000"]].concat();
    let (_, last) = stopped(folder, &words, "out", "-INT");
    assert!(folder.join("out/report.html").is_file());
    assert!(last.starts_with(folder.join("out")));
}
