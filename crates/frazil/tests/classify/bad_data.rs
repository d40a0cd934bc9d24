//! What is wrong with data: file, line, expectation; or counted, with `--skip-bad-rows`.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Fixture, frazil, said, text};

struct Case {
    fixture: Fixture,
    folder: tempfile::TempDir,
}

impl Case {
    fn new() -> Option<Self> {
        let fixture = Fixture::open()?;
        let folder = tempfile::tempdir().unwrap();
        fixture.model_folder(folder.path());
        Some(Self { fixture, folder })
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// What `predict classify` says of a file, without and with `--skip-bad-rows`.
    fn both(&self, file: &Path, more: &[&str]) -> (String, String, usize) {
        let mut words = vec!["predict", "classify", text(self.folder.path()), text(file)];
        words.extend(more);
        let output = frazil(&words);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
        let error = said(&output);
        assert!(error.contains(text(file)), "{error}");
        words.push("--skip-bad-rows");
        let output = frazil(&words);
        let rows = String::from_utf8_lossy(&output.stdout).lines().count().saturating_sub(1);
        (error, said(&output), rows)
    }
}

#[test]
fn rows_that_cannot_be_used() {
    let Some(case) = Case::new() else { return };
    let columns = ["--text-column", "1", "--pair-column", "2"];
    let labels = ["--text-column", "1", "--label-column", "2"];
    for (name, bytes, more, line, expectation) in [
        ("missing", &b"one\ttwo\nthree\n"[..], &columns, 2, "the second text in column 2"),
        ("label", b"one\t1\ntwo\t7\n", &labels, 2, "one of the labels `0`, `1`, not `7`"),
        ("utf8", b"one\t1\ntwo\t0\nthr\xffee\t1\n", &labels, 3, "byte 4 of the line is not UTF-8"),
    ] {
        let file = case.write(&format!("{name}.tsv"), bytes);
        let (error, skipped, rows) = case.both(&file, more);
        assert!(error.contains(&format!("line {line}: ")), "{name}: {error}");
        assert!(error.contains(expectation), "{name}: {error}");
        let hint = error.lines().find_map(|line| line.strip_prefix("hint: ")).unwrap();
        assert!(hint.contains("`--skip-bad-rows` leaves such rows out"), "{name}: {error}");
        assert!(skipped.contains("1 bad rows were skipped"), "{name}: {skipped}");
        assert!(skipped.contains(expectation), "{name}: {skipped}");
        assert_eq!(rows, line - 1, "{name}");
    }
}

#[test]
fn files_that_cannot_be_used() {
    let Some(case) = Case::new() else { return };
    let empty = case.write("empty.tsv", b"");
    assert!(case.both(&empty, &[]).0.contains("the file is empty"));
    let column = case.write("column.csv", b"a,b\n1,2\n");
    let (error, ..) = case.both(&column, &["--text-column", "text"]);
    assert!(error.contains("no column is called `text`; there are `a`, `b`"), "{error}");
    let bad = case.write("bad.jsonl", b"[]\n{\"text\": 1.5, \"x\"\n");
    let (error, all, _) = case.both(&bad, &[]);
    assert!(error.contains("line 1: expected a JSON object"), "{error}");
    assert!(all.contains("no usable row is in the file (2 bad rows were skipped)"), "{all}");
}

/// A vocabulary with more pieces than the model has embeddings: rows that use them are refused.
#[test]
fn a_vocabulary_of_another_model() {
    let Some(case) = Case::new() else { return };
    let mut vocab = fs::read_to_string(&case.fixture.vocab).unwrap();
    let pieces = vocab.lines().count();
    vocab.push_str("frazil\n");
    case.write("vocab.txt", vocab.as_bytes());
    let file = case.write("texts.tsv", b"the company\nfrazil\n");
    let (error, skipped, rows) = case.both(&file, &[]);
    let expected = format!("line 2: expected ids below {pieces}, the rows of the model's word");
    assert!(error.contains(&expected), "{error}");
    assert!(error.contains(&format!("`frazil` is {pieces}")), "{error}");
    assert!(skipped.contains("1 bad rows") && skipped.contains("another model's?"), "{skipped}");
    assert_eq!(rows, 1);
}

/// The same through `run_classifier`: nothing is written.
#[test]
fn a_data_set_with_a_bad_row() {
    let Some(case) = Case::new() else { return };
    let data = case.folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let dev = fs::read_to_string(case.fixture.data.join("dev.tsv")).unwrap();
    fs::write(data.join("dev.tsv"), format!("{dev}1\t2\t3\ttoo short\n7\t1\t2\ta\tb\n")).unwrap();
    let out = case.folder.path().join("out");
    let mut words: Vec<String> = vec![
        "run_classifier".into(),
        "--task_name=mrpc".into(),
        format!("--data_dir={}", data.display()),
        format!("--vocab_file={}", case.fixture.vocab.display()),
        format!("--bert_config_file={}", case.fixture.config.display()),
        format!("--output_dir={}", out.display()),
        format!("--init_checkpoint={}", case.fixture.checkpoint().display()),
        "--do_eval=true".into(),
    ];
    let run = |words: &[String]| frazil(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let output = run(&words);
    assert_eq!(output.status.code(), Some(2));
    let error = said(&output);
    assert!(error.contains("line 19: expected the second text in column 5"), "{error}");
    assert!(error.contains("dev.tsv"), "{error}");
    assert!(!out.exists());
    words.push("--skip_bad_rows".into());
    let output = run(&words);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("2 bad rows of"), "{}", said(&output));
    let results = fs::read_to_string(out.join("eval_results.txt")).unwrap();
    assert!(results.contains("eval_accuracy = 0.8235294\n"), "{results}");
}
