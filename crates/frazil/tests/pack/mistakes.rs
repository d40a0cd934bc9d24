//! What cannot be read, or must not be written over: it is told, and nothing is left half done.

use super::*;

/// Sizes that no sample has are refused, by every command and before anything is computed of them.
#[test]
fn sizes_that_no_sample_has_are_refused() {
    let folder = folder();
    fs::write(folder.path().join("bin"), [0; 4000]).unwrap();
    let to_binary = ["record_to_binary", "--tf-record-glob=golden*", "--output-path=o"];
    let packs = ["pack_pretraining_data", "--input-glob=bin", "--output-dir=o"];
    let of_text = ["pack", "text.txt", "--vocab", "vocab.txt", "-o", "o"];
    let mlperf = ["pack", "golden.tfrecord", "--format", "mlperf", "-o", "o"];
    let made = [&CREATE[..], &["--output_file=o"]].concat();
    // The least that is too large, what a product of makes too large, and the largest of all.
    for size in ["65536", "1152921504606846976", "4611686018427387904", "9223372036854775807"]
        .into_iter()
        .chain(["18446744073709551615"])
    {
        let is_signed = size.parse::<i64>().is_ok(); // flags of the original are
        for (words, flag, runs) in [
            (&to_binary[..], "max-sequence-length", true),
            (&to_binary, "max-predictions-per-sequence", true),
            (&packs, "max-sequence-length", true),
            (&packs, "max-predictions-per-sequence", true),
            (&made, "max_seq_length", is_signed),
            (&made, "max_predictions_per_seq", is_signed),
            (&of_text, "max-seq-length", true),
            (&of_text, "max-predictions", true),
            (&mlperf, "max-seq-length", true),
            (&mlperf, "max-predictions", true),
            (&["pack", "bin"], "max-seq-length", true),
            (&["pack", "bin"], "max-predictions", true),
        ] {
            if !runs {
                continue;
            }
            let error = refused(folder.path(), &[words, &[&format!("--{flag}={size}")]].concat());
            assert!(error.starts_with(&format!("error: {size} ")), "{words:?}: {error}");
            assert!(error.contains(&format!("hint: give `--{flag}` at most 65535")), "{error}");
        }
    }
    assert_eq!(files(folder.path()), ["bin"]);
    // More sequences than tokens are no more than tokens; more places than tokens are the original's to give.
    let depth = ["--depth", "18446744073709551615", "--check"];
    done(folder.path(), &[&mlperf[..], &depth].concat());
    done(
        folder.path(),
        &create(&["--output_file=wide", "--max_predictions_per_seq=500", "--quiet"]),
    );
    // Only least squares have an end before the end of all.
    fs::write(folder.path().join("h.csv"), "1,3\n3,5\n").unwrap();
    for (length, algorithm, hint) in [
        ("70000", "lpfhp", "give `--max-seq-length` at most 65535"),
        ("70000", "nnlshp", "give `--max-seq-length` at most 65535"),
        ("7000", "nnlshp", "`--algorithm lpfhp` packs up to 65535"),
    ] {
        let words = ["pack", "h.csv", "--max-seq-length", length, "--algorithm", algorithm];
        let error = refused(folder.path(), &words);
        assert!(error.contains(&format!("hint: {hint}")), "{error}");
    }
}

/// What a program that was killed had begun to write is neither read nor left.
#[test]
fn what_was_left_half_written_is_no_data() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let sizes = ["--max-sequence-length=128", "--max-predictions-per-sequence=20"];
    let convert = ["record_to_binary", "--tf-record-glob=golden*", "--output-path=b"];
    done(folder.path(), &[&convert[..], &sizes].concat());
    let left = at("b/.golden.tfrecord.x1Y2z3.partial");
    fs::copy(at("b/golden.tfrecord"), &left).unwrap();
    let words = ["pack_pretraining_data", "--input-glob=b/*", "--output-dir=packed", "--check"];
    let (told, _) = done(folder.path(), &[&words[..], &sizes].concat());
    assert!(told.contains("every one of 73 sequences") && left.exists(), "{told}");
    done(folder.path(), &[&convert[..], &sizes].concat());
    assert!(!left.exists());
}

#[test]
fn a_corrupt_record_stops_it_and_is_named() {
    let folder = folder();
    let path = folder.path().join("golden.tfrecord");
    let mut bytes = fs::read(&path).unwrap();
    let bytes_before = bytes.clone();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = refused(folder.path(), &["pack", "golden.tfrecord", "-o", "x"]);
    assert!(error.contains("cannot use `golden.tfrecord`"), "{error}");
    // The 36 records before it take as much as there is before it.
    let at: usize = read_lengths(&bytes_before).iter().take(36).sum();
    let named = format!("caused by: the checksum of the data of record 36 at byte {at} is wrong");
    assert!(error.contains(&named) && !error.contains("record 0"), "{error}");
    assert!(error.contains("hint:") && !error.contains("--no-checksum"), "{error}");
    assert!(files(folder.path()).is_empty(), "{:?}", files(folder.path()));
    // At its very beginning, it might be a binary as well.
    let mut bytes = bytes_before;
    bytes[0] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let error = refused(folder.path(), &["pack", "golden.tfrecord", "-o", "x"]);
    let record = "neither TFRecords (the checksum of the length of record 0 at byte 0 is wrong";
    assert!(error.contains(record) && error.contains("no whole samples"), "{error}");
    assert!(error.contains("hint: what is damaged has to be copied or made again; "), "{error}");
    let words = ["record_to_binary", "--tf-record-glob=golden*", "--output-path=b"];
    assert!(refused(folder.path(), &words).contains(record));
}

/// Who reads `strategy*` finds the last packing, and all of it.
#[test]
fn a_packing_replaces_the_one_before() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let pack = |algorithm: &str, more: &[&str]| {
        let words =
            ["pack", "golden.tfrecord", "--format", "mlperf", "--algorithm", algorithm, "-o", "p"];
        run(folder.path(), &[&words[..], more].concat())
    };
    let names = || -> Vec<String> {
        let entries = fs::read_dir(at("p")).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(pack("nnlshp", &["--depth", "max"]).status.code(), Some(0));
    let first = names();
    fs::write(at("p/notes.txt"), "mine").unwrap();
    let output = pack("spfhp", &["--check"]);
    let told = said(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(told.contains("every one of 73 sequences is there once"), "{told}");
    let second = names();
    assert!(first.iter().any(|name| !second.contains(name)), "{first:?}");
    let count = second.iter().filter(|name| name.starts_with("strategy_")).count();
    assert!(told.contains(&format!("to {count} files in `p`")), "{told}");
    assert_eq!(second.len(), count + 1, "{second:?}");
    assert_eq!(fs::read_to_string(at("p/notes.txt")).unwrap(), "mine");
    let sizes = ["--max-seq-length", "128", "--max-predictions", "20"];
    let (told, _) = done(folder.path(), &[&["pack", "p/strategy*"][..], &sizes].concat());
    assert!(told.starts_with("73 sequences "), "{told}");
    // A check reads what a reader reads: a file more is seen, whoever put it there.
    let extra = SampleFile::open(
        at("p").join(&second[1]),
        Shape { max_length: 128, max_predictions: 20, sequences: 3 },
    );
    assert!(extra.is_ok());
    fs::copy(at("p").join(&second[1]), at("p/strategy_of_mine")).unwrap();
    let output = pack("spfhp", &["--check"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output.stderr));
    assert!(said(&output.stdout).contains("are not those that were packed"));
    fs::remove_file(at("p/strategy_of_mine")).unwrap();
    // What was replaced half-way is not read, and is mended by packing again.
    fs::write(at("p/strategy_unfinished"), "").unwrap();
    for pattern in ["p/strategy*", "p/strategy_*_part_0"] {
        let error = refused(folder.path(), &[&["pack", pattern][..], &sizes].concat());
        assert!(error.starts_with("error: `p` is incomplete"), "{error}");
        assert!(error.contains("hint: pack again"), "{error}");
    }
    assert_eq!(pack("spfhp", &["--check"]).status.code(), Some(0));
    assert!(!at("p/strategy_unfinished").exists());
    // What cannot be written leaves everything as it was.
    let before = names();
    assert_eq!(pack("spfhp", &["--max-predictions", "1"]).status.code(), Some(2));
    assert_eq!(names(), before);
}

#[test]
fn nothing_is_written_over_what_is_read() {
    let folder = folder();
    let kept = |name: &str, error: &str| {
        assert!(error.contains("hint:"), "{error}");
        let given = ["golden.tfrecord", "text.txt", "vocab.txt"];
        assert!(given.contains(&name));
        assert_eq!(files(folder.path()), Vec::<String>::new(), "{error}");
    };
    let text = fs::read(folder.path().join("text.txt")).unwrap();
    let error = refused(folder.path(), &create(&["--output_file=x,./x"]));
    assert!(error.contains("`./x` is to be written twice"), "{error}");
    kept("text.txt", &error);
    for (output, name) in
        [("--output_file=x,text.txt", "text.txt"), ("--output_file=./vocab.txt", "vocab.txt")]
    {
        let error = refused(folder.path(), &create(&[output]));
        assert!(error.contains("is read, and would be written over"), "{error}");
        kept(name, &error);
    }
    assert_eq!(fs::read(folder.path().join("text.txt")).unwrap(), text);
    let error = refused(folder.path(), &["pack", "golden.tfrecord", "-o", "golden.tfrecord"]);
    assert!(error.contains("is read, and would be written over"), "{error}");
    let words = ["record_to_binary", "--tf-record-glob=golden*", "--output-path=."];
    let error = refused(folder.path(), &words);
    assert!(error.contains("is read, and would be written over"), "{error}");
    let sizes = ["--max-seq-length", "128", "--max-predictions", "20", "-q"];
    let words = ["pack", "golden.tfrecord", "--format", "mlperf", "-o", "p", "-q"];
    done(folder.path(), &words);
    let words = ["pack", "p/strategy*", "--format", "mlperf", "-o", "./p"];
    let error = refused(folder.path(), &[&words[..], &sizes].concat());
    assert!(error.contains("is packed, and would be replaced"), "{error}");
}

/// Pictures are written, too, and questions and vocabularies read.
#[test]
fn nothing_is_written_over_what_is_given() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let over = "is read, and would be written over";
    fs::write(at("h.csv"), "3,10\n5,10\n").unwrap();
    let error = refused(folder.path(), &["pack", "h.csv", "--svg", "./h.csv"]);
    assert!(error.contains(over), "{error}");
    assert_eq!(fs::read_to_string(at("h.csv")).unwrap(), "3,10\n5,10\n");
    let words = ["pack", "golden.tfrecord", "-o", "x", "--svg", "x"];
    let error = refused(folder.path(), &words);
    assert!(error.contains("`x` is to be written twice"), "{error}");
    let words = ["pack", "golden.tfrecord", "-o", "x", "--svg", "nowhere/x.svg"];
    let error = refused(folder.path(), &words);
    assert!(error.contains("nowhere/x.svg") && !at("x").exists(), "{error}");
    fs::write(at("squad.json"), "{}").unwrap();
    for output in ["squad.json", "./vocab.txt"] {
        let output = format!("--output_file={output}");
        let words = ["create_tf_record", "--vocab_file=vocab.txt", "--predict_file=squad.json"];
        let error = refused(folder.path(), &[&words[..], &[&output]].concat());
        assert!(error.contains(over), "{error}");
    }
    assert_eq!(fs::read_to_string(at("squad.json")).unwrap(), "{}");
    // A folder is no file, and a file no folder; that is seen before anything is read.
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("broken"), "no records").unwrap();
    let error = refused(folder.path(), &["pack", "broken", "-o", "folder"]);
    assert!(error.contains("`folder` is a folder"), "{error}");
    let error = refused(folder.path(), &["pack", "broken", "--format", "mlperf", "-o", "h.csv"]);
    assert!(error.contains("`h.csv` is a file"), "{error}");
    let error = refused(folder.path(), &create(&["--output_file=folder", "--input_file=broken"]));
    assert!(error.contains("cannot write `folder`") && error.contains("directory"), "{error}");
}

#[cfg(unix)]
#[test]
fn links_and_pipes_stay_what_they_are() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("real"), "old").unwrap();
    std::os::unix::fs::symlink("real", at("link")).unwrap();
    done(folder.path(), &["pack", "golden.tfrecord", "-o", "file", "-q"]);
    done(folder.path(), &["pack", "golden.tfrecord", "-o", "link", "-q", "--check"]);
    assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
    assert!(fs::read(at("real")).unwrap() == fs::read(at("file")).unwrap());
    assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    let error = refused(folder.path(), &["pack", "golden.tfrecord", "-o", "pipe", "--check"]);
    assert!(error.contains("`pipe` is no file that `--check` could read again"), "{error}");
    let reader = Command::new("cat").arg(at("pipe")).stdout(std::process::Stdio::piped()).spawn();
    let reader = reader.unwrap();
    done(folder.path(), &["pack", "golden.tfrecord", "-o", "pipe", "-q"]);
    assert!(reader.wait_with_output().unwrap().stdout == fs::read(at("file")).unwrap());
}

#[test]
fn text_that_cannot_be_used_leaves_nothing_behind() {
    let folder = folder();
    let fails = |more: &[&'static str]| {
        let error = refused(folder.path(), &create(more));
        assert!(files(folder.path()).iter().all(|name| !name.starts_with('.')), "{error}");
        assert!(!folder.path().join("out").exists());
        error
    };
    fs::write(folder.path().join("bad.txt"), b"one\ntwo \xff\n").unwrap();
    let error = fails(&["--output_file=out", "--input_file=text.txt,bad.txt"]);
    assert!(error.contains("cannot use `bad.txt`"), "{error}");
    assert!(error.contains("line 2: byte 5 of the line is not UTF-8"), "{error}");
    fs::write(folder.path().join("empty.txt"), b"\n\n").unwrap();
    let error = fails(&["--output_file=out", "--input_file=empty.txt"]);
    assert!(error.contains("no sentence is in `empty.txt`") && error.contains("hint:"), "{error}");
    assert!(fails(&["--output_file=out", "--input_file=no*"]).contains("no file is called `no*`"));
    let error = fails(&["--output_file=out", "--input_file=test.txt"]);
    assert!(error.contains("hint: did you mean `text.txt`?"), "{error}");
    let error = fails(&["--output_file=out", "--max_seq_length=4"]);
    assert!(error.contains("`max_seq_length` is 4, but must be at least 5"), "{error}");
    fs::write(folder.path().join("v.txt"), "[UNK]\n[CLS]\n[SEP]\n").unwrap();
    let error = fails(&["--output_file=out", "--vocab_file=v.txt"]);
    assert!(error.contains("the vocabulary has no `[MASK]`"), "{error}");
    let error = fails(&["--output_file=nowhere/out"]);
    assert!(error.contains("nowhere"), "{error}");
    // The original takes this, and so do we, but not in silence.
    let narrow = create(&["--output_file=narrow", "--max_seq_length=16"]);
    let (_, log) = done(folder.path(), &narrow);
    assert!(log.contains("note: `max_predictions_per_seq` is 20"), "{log}");
}

/// Fewer records than files to fill, and a comma too many.
#[test]
fn empty_files_are_read_as_such() {
    let folder = folder();
    fs::write(folder.path().join("small.txt"), "one water .\ntwo ice .\n\nthree .\n").unwrap();
    let words =
        create(&["--dupe_factor=1", "--input_file=small.txt,", "--output_file=m1,m2,m3,m4,m5,"]);
    let (_, log) = done(folder.path(), &words);
    let records = |name: &str| read_records(folder.path().join(name)).unwrap().len();
    let counts: Vec<usize> = ["m1", "m2", "m3", "m4", "m5"].map(records).to_vec();
    let (all, empty) =
        (counts.iter().sum::<usize>(), counts.iter().filter(|count| **count == 0).count());
    assert!(all > 0 && empty > 0, "{counts:?}");
    assert!(log.contains(&format!("note: {empty} of 5 output files are empty")), "{log}");
    let (told, _) = done(folder.path(), &["pack", "m?", "-o", "p", "--check"]);
    assert!(told.contains(&format!("every one of {all} sequences")), "{told}");
    let sizes = ["--max-sequence-length=128", "--max-predictions-per-sequence=20"];
    let words = ["record_to_binary", "--tf-record-glob=m?", "--output-path=b"];
    done(folder.path(), &[&words[..], &sizes].concat());
    let words = ["pack_pretraining_data", "--input-glob=b/*", "--output-dir=packed", "--check"];
    let (told, _) = done(folder.path(), &[&words[..], &sizes].concat());
    assert!(told.contains(&format!("every one of {all} sequences")), "{told}");
    // Of nothing but such files nothing can be made.
    let error = refused(folder.path(), &["pack", "m5", "-o", "q"]);
    assert!(error.contains("cannot use `m5`") && error.contains("the file is empty"), "{error}");
    assert!(
        refused(folder.path(), &create(&["--input_file=,", "--output_file=o"]))
            .contains("no file to read is named")
    );
}

/// A hint names flags of the command that runs, or none.
#[test]
fn hints_name_flags_that_there_are() {
    let folder = folder();
    fs::write(folder.path().join("bad.txt"), b"one\ntwo \xff\n").unwrap();
    let error = refused(folder.path(), &create(&["--output_file=o", "--input_file=bad.txt"]));
    assert!(error.contains("hint: `iconv -t utf-8`") && !error.contains("skip"), "{error}");
    fs::write(folder.path().join("h.csv"), "1,2\nx,3\n").unwrap();
    let error = refused(folder.path(), &["pack", "h.csv"]);
    assert!(error.contains("hint: a line such as") && !error.contains("skip"), "{error}");
    fs::write(folder.path().join("binary"), [7; 1000]).unwrap();
    let words = ["pack_pretraining_data", "--input-glob=binary", "--output-dir=o"];
    let error = refused(folder.path(), &words);
    for flag in
        ["--max-sequence-length", "--max-predictions-per-sequence", "--max-sequences-per-pack"]
    {
        assert!(error.contains(&format!("`{flag}`")), "{error}");
    }
    assert!(!error.contains("`--depth`") && !error.contains("`--max-seq-length`"), "{error}");
    let error = refused(folder.path(), &["pack", "binary"]);
    assert!(error.contains("`--max-seq-length`") && error.contains("`--depth`"), "{error}");
    // As much as the longest needs, not the first.
    let lengths = read_records(folder.path().join("golden.tfrecord")).unwrap();
    let longest = lengths.iter().map(|sample| sample.features.len()).max().unwrap();
    let error = refused(folder.path(), &["pack", "golden.tfrecord", "--max-seq-length", "32"]);
    assert!(error.contains(&format!("a sequence has {longest} tokens")), "{error}");
    assert!(error.contains(&format!("`--max-seq-length` at least {longest}")), "{error}");
}
