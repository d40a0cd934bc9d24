//! Text to samples to packs on the command line: the records of google-research/bert's
//! `create_pretraining_data.py`, packs in every format, and everything that can be wrong.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod mistakes;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use frazil::bert::features::pretraining::read_records;
use frazil::bert::samples::{SampleFile, Shape};
use frazil_tensor::testing::shared;
use serde_json::Value;

fn assets() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tf1")
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../frazil-bert/tests/fixtures/pretrain").join(name)
}

fn run(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_frazil")).args(words).current_dir(folder).output().unwrap()
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn done(folder: &Path, words: &[&str]) -> (String, String) {
    let output = run(folder, words);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {}", said(&output.stderr));
    (said(&output.stdout), said(&output.stderr))
}

fn refused(folder: &Path, words: &[&str]) -> String {
    let output = run(folder, words);
    assert_eq!(output.status.code(), Some(2), "{words:?}: {}", said(&output.stdout));
    said(&output.stderr)
}

/// A folder with the text, the vocabulary and the records of the original.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(fixture("text.txt"), folder.path().join("text.txt")).unwrap();
    fs::copy(fixture("text.tfrecord"), folder.path().join("golden.tfrecord")).unwrap();
    fs::copy(assets().join("vocab.txt"), folder.path().join("vocab.txt")).unwrap();
    folder
}

const CREATE: [&str; 4] = [
    "create_pretraining_data",
    "--input_file=text.txt",
    "--vocab_file=vocab.txt",
    "--dupe_factor=5",
];

fn create(more: &[&'static str]) -> Vec<&'static str> {
    CREATE.iter().chain(more).copied().collect()
}

/// What is in the folder besides what was put there.
fn files(folder: &Path) -> Vec<String> {
    let given = ["golden.tfrecord", "text.txt", "vocab.txt"];
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !given.contains(&name.as_str()))
        .collect();
    names.sort();
    names
}

#[test]
fn the_records_and_the_log_of_the_original() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let (out, log) = done(folder.path(), &create(&["--output_file=out.tfrecord"]));
    assert_eq!(out, "");
    let golden = read_records(at("golden.tfrecord")).unwrap();
    assert_eq!(read_records(at("out.tfrecord")).unwrap(), golden);
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(
        lines[..2],
        ["INFO:tensorflow:*** Reading from input files ***", "INFO:tensorflow:  text.txt"]
    );
    assert_eq!(
        lines[2..5],
        [
            "INFO:tensorflow:*** Writing to output files ***",
            "INFO:tensorflow:  out.tfrecord",
            "INFO:tensorflow:*** Example ***"
        ]
    );
    assert!(lines[5].starts_with("INFO:tensorflow:tokens: [CLS] "), "{}", lines[5]);
    assert!(lines[11].starts_with("INFO:tensorflow:masked_lm_weights: 1.0 1.0 "), "{}", lines[11]);
    assert_eq!(log.matches("*** Example ***").count(), 20);
    assert_eq!(lines.last().unwrap(), &"INFO:tensorflow:Wrote 73 total instances");

    // Two files in turn, a link of the program's name, and a report.
    let two = create(&["--output_file=a,b", "--quiet", "--json"]);
    let (report, log) = done(folder.path(), &two);
    assert_eq!(log, "");
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["instances"], &report["corpus"]["documents"]), (&73.into(), &4.into()));
    let (a, b) = (read_records(at("a")).unwrap(), read_records(at("b")).unwrap());
    assert_eq!((a.len(), b.len()), (37, 36));
    assert!(a[1] == golden[2] && b[1] == golden[3]);
}

#[test]
fn threads_have_an_order_of_their_own() {
    let folder = folder();
    for (workers, out) in [
        ("--workers=1", "--output_file=w1"),
        ("--workers=3", "--output_file=w3"),
        ("--workers=9223372036854775807", "--output_file=w9"),
    ] {
        done(folder.path(), &create(&[workers, out, "--quiet"]));
    }
    let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
    assert!(read("w1") == read("w3") && read("w1") == read("w9"));
    assert_ne!(read("w1"), read("golden.tfrecord"));
}

#[test]
fn wikipedia_is_known_by_its_blocks() {
    let folder = folder();
    let text = "<doc id=\"1\" url=\"\" title=\"T\">\nT\n\nThe water is cold. It is ice.\n</doc>\n";
    fs::write(folder.path().join("wiki"), text).unwrap();
    let wiki = create(&["--input_file=wiki", "--output_file=w", "--json"]);
    let (report, log) = done(folder.path(), &wiki);
    assert!(log.contains("note: 1 file has `<doc …>` blocks, as WikiExtractor"), "{log}");
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["corpus"]["sentences"], 2);
    // The same with a mark of UTF-8 in front, and as lines of JSON.
    let json = r#"{"id": "1", "title": "T", "text": "T\n\nThe water is cold. It is ice.\n"}"#;
    for (text, what) in
        [(format!("\u{feff}{text}"), "`<doc …>` blocks"), (json.into(), "lines of JSON")]
    {
        fs::write(folder.path().join("other"), text).unwrap();
        let other = create(&["--input_file=other", "--output_file=o", "--json"]);
        let (report, log) = done(folder.path(), &other);
        assert!(log.contains(&format!("note: 1 file has {what}, as WikiExtractor")), "{log}");
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["corpus"]["sentences"], 2);
        assert!(
            fs::read(folder.path().join("o")).unwrap()
                == fs::read(folder.path().join("w")).unwrap()
        );
    }
    let plain = create(&["--input_file=wiki", "--output_file=p", "--input_format=plain", "--json"]);
    let (report, log) = done(folder.path(), &plain);
    assert!(!log.contains("note"), "{log}");
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["corpus"]["sentences"], 4);
}

#[test]
fn statistics_of_a_histogram() {
    let folder = folder();
    fs::write(folder.path().join("h.csv"), "length,count\n3,10\n5,10\n8,2\n").unwrap();
    let (out, _) =
        done(folder.path(), &["pack", "h.csv", "--algorithm", "spfhp", "--depth", "max"]);
    assert!(out.starts_with("22 sequences of 4.36 tokens on average, packs of 8"), "{out}");
    assert!(out.contains("packed                12"), "{out}");
    let (json, _) = done(folder.path(), &["pack", "h.csv", "--json", "--max-seq-length", "16"]);
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&report["packs"], &report["max_length"]), (&8.into(), &16.into()));
    assert_eq!(report["lengths"].as_array().unwrap().len(), 16);
    done(folder.path(), &["pack", "h.csv", "--svg", "h.svg", "-q"]);
    let svg = fs::read_to_string(folder.path().join("h.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("22 sequences") && svg.contains("mean 4.4"));
    let error = refused(folder.path(), &["pack", "h.csv", "-o", "x"]);
    assert!(error.contains("a histogram has no sequences"), "{error}");
    let error = refused(folder.path(), &["pack", "h.csv", "--max-seq-length", "4"]);
    assert!(error.contains("line 3: expected a length of 1 to 4, not 5"), "{error}");
    assert!(refused(folder.path(), &["pack", "h.csv", "--depth", "0"]).contains("depth"));
    fs::write(folder.path().join("full.csv"), "1,9007199254740992\n2,18446744073709551615\n")
        .unwrap();
    let error = refused(folder.path(), &["pack", "full.csv"]);
    assert!(error.contains("line 2: expected lines of at most 9007199254740992 tokens"), "{error}");
    assert!(refused(folder.path(), &["pack", "h.csv", "--algorithm", "x"]).contains("nnlshp"));
    fs::copy(folder.path().join("h.csv"), folder.path().join("i.csv")).unwrap();
    for second in ["i.csv", "golden.tfrecord"] {
        let error = refused(folder.path(), &["pack", "h.csv", second]);
        assert!(error.contains("`h.csv` is a histogram, and is one of 2 files to pack"), "{error}");
        assert!(error.contains("hint: one histogram at a time is read"), "{error}");
    }
}

/// Least squares may leave more than a greedy way; whose packs they are is told.
#[test]
fn the_way_whose_packs_are_taken_is_told() {
    let folder = folder();
    let lines = "94,28\n52,46\n30,29\n20,33\n6,44\n4,11\n";
    fs::write(folder.path().join("h.csv"), lines).unwrap();
    let words = ["pack", "h.csv", "--max-seq-length", "100", "--algorithm", "nnlshp", "--depth"];
    let (out, log) = done(folder.path(), &[&words[..], &["4"]].concat());
    assert!(log.contains("note: lpfhp needs fewer packs than nnlshp here"), "{log}");
    assert!(out.contains("packs of 100: lpfhp, depth 4"), "{out}");
    for (depth, found_by) in [("4", "lpfhp"), ("2", "nnlshp")] {
        let (json, log) = done(folder.path(), &[&words[..], &[depth, "--json"]].concat());
        let report: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&report["algorithm"], &report["found_by"]),
            (&"nnlshp".into(), &found_by.into())
        );
        assert_eq!(log.contains("note: lpfhp"), found_by == "lpfhp");
    }
}

#[test]
fn packs_in_every_format_hold_every_sequence() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    for (algorithm, format, out) in [
        ("lpfhp", "tfrecord", "l.tfrecord"),
        ("nnlshp", "tfrecord", "n.tfrecord"),
        ("spfhp", "mlperf", "s"),
    ] {
        let words = ["pack", "golden.tfrecord", "--algorithm", algorithm, "--format", format];
        let words: Vec<&str> = words.into_iter().chain(["-o", out, "--check"]).collect();
        let (told, _) = done(folder.path(), &words);
        let all = "checked: every one of 73 sequences is there once, apart from all others";
        assert!(told.contains(all), "{told}");
    }
    // MLPerf's names, and binaries are packed again as well as records.
    let names: Vec<String> = fs::read_dir(at("s"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(names.iter().all(|name| name.starts_with("strategy_") && name.ends_with("_part_0")));
    let again = ["pack", "s/*", "--max-seq-length", "128", "--max-predictions", "20"];
    let again: Vec<&str> = again.into_iter().chain(["-o", "again.tfrecord", "--check"]).collect();
    let (told, _) = done(folder.path(), &again);
    assert!(told.contains("every one of 73 sequences"), "{told}");
    // The same seed gives the same bytes, another one does not.
    for (seed, out) in [("1", "one"), ("1", "two"), ("2", "three")] {
        done(folder.path(), &["pack", "golden.tfrecord", "--seed", seed, "-o", out, "-q"]);
    }
    let read = |name: &str| fs::read(at(name)).unwrap();
    assert!(read("one") == read("two") && read("one") != read("three"));
    done(folder.path(), &["pack", "golden.tfrecord", "--format", "popart", "-o", "popart"]);
    let error = refused(
        folder.path(),
        &["pack", "golden.tfrecord", "--format", "popart", "-o", "p", "--check"],
    );
    assert!(error.contains("cannot be checked"), "{error}");
}

#[test]
fn mlperfs_own_commands() {
    let folder = folder();
    let sizes = ["--max-sequence-length=128", "--max-predictions-per-sequence=20"];
    let words = ["record_to_binary", "--tf-record-glob=golden*", "--output-path=binary"];
    let words: Vec<&str> = words.into_iter().chain(sizes).collect();
    let (_, log) = done(folder.path(), &words);
    assert!(log.contains("73 sequences in 1 file in"), "{log}");
    let binary = folder.path().join("binary/golden.tfrecord");
    let shape = Shape { max_length: 128, max_predictions: 20, sequences: 3 };
    assert_eq!(fs::metadata(&binary).unwrap().len() as usize, 73 * shape.bytes_of_one());
    let golden = read_records(folder.path().join("golden.tfrecord")).unwrap();
    let file = SampleFile::open(&binary, shape).unwrap();
    assert_eq!(
        format!("{:?}", file.samples(7).unwrap()[0]),
        format!("Pretraining({:?})", golden[7])
    );

    let words =
        ["pack_pretraining_data", "--input-glob=binary/*", "--output-dir=packed", "--check"];
    let words: Vec<&str> = words.into_iter().chain(sizes).collect();
    let (told, _) = done(folder.path(), &words);
    assert!(told.contains("every one of 73 sequences"), "{told}");
    // Python's seeds have no sign.
    for (seed, out) in [("-3", "minus"), ("3", "plus")] {
        let words = ["pack_pretraining_data", "--input-glob=binary/*", "--random-seed", seed];
        let out = format!("--output-dir={out}");
        done(folder.path(), &[&words[..], &sizes, &[&out, "-q"]].concat());
    }
    let entries = |name: &str| -> Vec<_> {
        let mut entries: Vec<_> = fs::read_dir(folder.path().join(name))
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap()))
            .collect();
        entries.sort();
        entries
    };
    assert!(entries("minus") == entries("plus") && entries("minus") != entries("packed"));
    let again = ["record_to_binary", "--tf-record-glob=binary/*", "--output-path=other"];
    let error = refused(folder.path(), &[&again[..], &sizes].concat());
    assert!(error.contains("`binary/golden.tfrecord` holds binary sequences, and no TFRecords"));
    assert!(error.contains("hint: `frazil pack`") && !folder.path().join("other").exists());
    let wrong = ["pack_pretraining_data", "--input-glob=binary/*", "--output-dir=other"];
    let error = refused(folder.path(), &wrong);
    assert!(error.contains("bytes are no whole samples") && error.contains("7060"), "{error}");
    assert!(!folder.path().join("other").exists());
}

#[test]
fn text_is_packed_at_once() {
    let folder = folder();
    let words = ["pack", "text.txt", "--vocab", "vocab.txt", "--dupe-factor", "5"];
    let words: Vec<&str> =
        words.into_iter().chain(["--max-seq-length", "128", "-o", "packed", "--check"]).collect();
    let (told, _) = done(folder.path(), &words);
    // The sequences of the original's flags, as the seed is the same.
    assert!(told.contains("every one of 73 sequences"), "{told}");
}

#[test]
fn classifiers_and_squad_are_packed_too() {
    let Some(fixtures) = shared("fixtures") else { return };
    let folder = folder();
    for (records, sequences) in
        [("classifier/train.tf_record", "36"), ("squad/v1.1/eval.tf_record", "37")]
    {
        let path = fixtures.join(records);
        let words = ["pack", path.to_str().unwrap(), "-o", "x", "--check", "--depth", "max"];
        let (told, log) = done(folder.path(), &words);
        assert!(told.contains(&format!("every one of {sequences} sequences")), "{told}");
        assert!(log.contains("note: each record has places for "), "{log}");
        assert!(log.contains("tokens and ") && !log.contains("masked"), "{log}");
    }
    let train = fixtures.join("classifier/train.tf_record");
    let train = train.to_str().unwrap();
    let error = refused(folder.path(), &["pack", train, "--format", "mlperf", "-o", "y"]);
    assert!(error.contains("samples of pre-training only"), "{error}");
    let error = refused(folder.path(), &["pack", train, "golden.tfrecord", "-o", "y"]);
    assert!(error.contains("cannot be packed together"), "{error}");
    // Nor questions with answers and without, however deep packs are.
    let [with, without] =
        ["train", "eval"].map(|name| fixtures.join(format!("squad/v1.1/{name}.tf_record")));
    for depth in ["1", "3"] {
        let files = [with.to_str().unwrap(), without.to_str().unwrap()];
        let words = ["pack", files[0], files[1], "-o", "y", "--depth", depth];
        let error = refused(folder.path(), &words);
        assert!(error.contains("eval.tf_record`"), "{error}");
        let said =
            "samples of SQuAD without answers and of SQuAD with answers cannot be packed together";
        assert!(error.contains(said) && !folder.path().join("y").exists(), "{error}");
    }
}

/// What is read and what is written have one description, so the way to other packs is over records.
#[test]
fn packs_become_packs_of_another_size() {
    let folder = folder();
    let mlperf = ["pack", "golden.tfrecord", "--format", "mlperf", "-o", "p", "-q"];
    done(folder.path(), &mlperf);
    let sizes = ["--max-seq-length", "128", "--max-predictions", "20"];
    let words = [&["pack", "p/strategy*"][..], &sizes].concat();
    let error = refused(folder.path(), &[&words[..], &["--depth", "6"]].concat());
    assert!(error.contains("make records of these first: `frazil pack FILES -o FILE`"), "{error}");
    done(folder.path(), &[&words[..], &["-o", "t"]].concat());
    let again = ["pack", "t", "--max-seq-length", "256", "--depth", "6", "--format", "mlperf"];
    let (told, _) = done(folder.path(), &[&again[..], &["-o", "q", "--check"]].concat());
    assert!(told.contains("every one of 73 sequences"), "{told}");
}

/// What each record takes.
fn read_lengths(bytes: &[u8]) -> Vec<usize> {
    let (mut lengths, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let length = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize + 16;
        lengths.push(length);
        at += length;
    }
    lengths
}

/// Packs that are longer than the records have more masked pieces than the records have places.
#[test]
fn what_is_reported_is_what_is_written() {
    let folder = folder();
    let long = ["pack", "golden.tfrecord", "--max-seq-length", "512", "--depth", "8", "--json"];
    let report = |more: &[&str]| -> Value {
        let (json, _) = done(folder.path(), &[&long[..], more].concat());
        let report: Value = serde_json::from_str(&json).unwrap();
        let sum = |key: &str| -> u64 {
            report[key].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum()
        };
        let packs = report["packs"].as_u64().unwrap();
        assert_eq!((sum("by_depth"), sum("filled")), (packs, packs));
        report
    };
    let found = report(&[]);
    for format in ["mlperf", "popart"] {
        let check = ["--check"].iter().filter(|_| format == "mlperf").copied();
        let more: Vec<&str> = ["--format", format, "-o", format].into_iter().chain(check).collect();
        let written = report(&more);
        assert_eq!(written["packs"], found["packs"], "{format}");
        assert_eq!((&written["packs_written"], &written["split"]), (&found["packs"], &0.into()));
    }
    // Who says how many places there are gets as many, and packs that have room there.
    let more = ["--max-predictions", "20", "--format", "mlperf", "-o", "narrow", "--check"];
    let narrow = report(&more);
    assert!(narrow["split"].as_u64() > Some(0), "{narrow}");
    assert_eq!(narrow["packs"], narrow["packs_written"]);
    assert!(narrow["packs"].as_u64() > found["packs"].as_u64());
    assert!(narrow["efficiency"].as_f64() < found["efficiency"].as_f64());
}

#[test]
fn masked_pieces_without_a_place_are_seen_when_they_are_read() {
    let folder = folder();
    let golden = read_records(folder.path().join("golden.tfrecord")).unwrap();
    let most = golden.iter().map(|sample| sample.masked.len()).max().unwrap();
    let record = golden.iter().position(|sample| sample.masked.len() == most).unwrap();
    let words = ["pack", "golden.tfrecord", "--max-predictions", "4"];
    let error = refused(folder.path(), &[&words[..], &["--format", "mlperf", "-o", "x"]].concat());
    let said = format!("a sequence has {most} masked pieces, but must have at most 4");
    assert!(error.contains(&said) && error.contains("golden.tfrecord"), "{error}");
    assert!(error.contains(&format!("record {record}")), "{error}");
    assert!(error.contains(&format!("`--max-predictions` at least {most}")), "{error}");
    assert!(!folder.path().join("x").exists());
    let (_, log) = done(folder.path(), &[&words[..], &["-o", "x"]].concat());
    assert!(log.contains("note: `max_predictions` is 4, but packs have up to"), "{log}");
}

/// Names of files end at 255 bytes, packs of short sequences do not.
#[test]
fn packs_of_very_many_sequences_have_names() {
    let folder = folder();
    fs::write(folder.path().join("short.txt"), "ice .\n\n".repeat(400)).unwrap();
    let words = ["pack", "short.txt", "--vocab", "vocab.txt", "--max-seq-length", "1024"];
    let more = ["--depth", "max", "--format", "mlperf", "-o", "d", "--check"];
    let (told, _) = done(folder.path(), &[&words[..], &more].concat());
    assert!(told.contains("is there once, apart from all others"), "{told}");
    assert!(
        told.contains("wrote") && !told.contains("packs by their sequences: 400 of 1"),
        "{told}"
    );
    // It replaces itself.
    done(folder.path(), &[&words[..], &more].concat());
}

#[test]
fn a_histogram_without_sequences_has_no_length() {
    let folder = folder();
    fs::write(folder.path().join("h.csv"), "5,0\n").unwrap();
    let (told, _) = done(folder.path(), &["pack", "h.csv"]);
    assert!(told.starts_with("0 sequences of 0.00 tokens on average"), "{told}");
    assert!(!told.contains('%') && !told.contains("packs by their sequences"), "{told}");
    let seed = ["--output_file=x", "--random_seed=99999999999999999999"];
    let output = run(folder.path(), &create(&seed));
    assert!(said(&output.stderr).contains("it can be 2^63-1 at most"), "{}", said(&output.stderr));
}

#[test]
fn an_option_without_effect_is_reported() {
    let folder = folder();
    let pack = |algorithm| {
        let words = ["pack", "golden.tfrecord", "--rounding", "mlperf", "--algorithm", algorithm];
        done(folder.path(), &words).1
    };
    assert!(pack("spfhp").contains("note: rounding has no effect"), "{}", pack("spfhp"));
    assert!(!pack("nnlshp").contains("no effect"));
}
