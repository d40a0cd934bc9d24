//! The examples of the help texts are run, on the files that `frazil demo` leaves under the names that the
//! examples have for them. They are taken from the reference, which is made of the help texts.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// What the examples call it, and what it is in the demo's folder.
const FILES: [(&str, &str); 29] = [
    ("bert_config.json", "bert_config.json"),
    ("vocab.txt", "vocab.txt"),
    ("bert_model.ckpt.index", "bert_model.ckpt.index"),
    ("bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.data-00000-of-00001"),
    ("bert_model.ckpt.meta", "bert_model.ckpt.meta"),
    ("model.ckpt-1000.index", "squad/model.ckpt.index"),
    ("model.ckpt-1000.data-00000-of-00001", "squad/model.ckpt.data-00000-of-00001"),
    ("model.ckpt-14599.index", "squad/model.ckpt.index"),
    ("model.ckpt-14599.data-00000-of-00001", "squad/model.ckpt.data-00000-of-00001"),
    ("model.ckpt-40.index", "bert_model.ckpt.index"),
    ("model.ckpt-40.data-00000-of-00001", "bert_model.ckpt.data-00000-of-00001"),
    ("model.ckpt-343.index", "classifier/model.ckpt.index"),
    ("model.ckpt-343.data-00000-of-00001", "classifier/model.ckpt.data-00000-of-00001"),
    ("squad_model", "squad"),
    ("model", "classifier"),
    ("glue_data/MRPC", "classifier"),
    ("saved_models/1564086017", "saved_model"),
    ("export/1571234567", "saved_model"),
    ("saved_model_dir", "saved_model"),
    ("frozen.pb", "any.pb"),
    ("in.npz", "inputs.npz"),
    ("corpus.txt", "texts.txt"),
    ("text.txt", "texts.txt"),
    ("texts.txt", "texts.txt"),
    ("dev-v1.1.json", "squad/dev-v1.1.json"),
    ("train-v1.1.json", "squad/train-v1.1.json"),
    ("out/predictions.json", "answers/predictions.json"),
    ("tf_records/part-0", "texts.tfrecord"),
    ("int8.frazil", "int8.frazil"),
];

/// What Google's zips hold.
const ZIP: &str = "uncased_L-12_H-768_A-12";
const ZIPPED: [&str; 4] = [
    "bert_config.json",
    "vocab.txt",
    "bert_model.ckpt.index",
    "bert_model.ckpt.data-00000-of-00001",
];

/// Commands that make more of such files, before the examples.
const MADE: [&str; 5] = [
    "convert saved_model_dir --to onnx -o model.onnx",
    "convert bert_model.ckpt --to huggingface -o bert-base-uncased",
    "export-weights bert_model.ckpt -o model.safetensors --names huggingface",
    "record_to_binary --tf-record-glob tf_records/part-* --output-path binary",
    "create_pretraining_data --input_file=text.txt --output_file=examples.tfrecord --vocab_file=vocab.txt",
];

/// What the demo's model has otherwise than those that the examples speak of: positions, heads, names.
const REPLACED: [(&str, &str); 9] = [
    ("[1,384]", "[1,128]"),
    ("--seq 384", "--seq 128"),
    ("-1,-2,-3,-4", "-1,-2,-3"),
    ("--max-seq-length 512", "--max-seq-length 128"),
    ("frazil run_squad ", "frazil run_squad --max_seq_length=128 "),
    ("--output logits", "--output probabilities"),
    ("--output loss/BiasAdd,bert/pooler/dense/Tanh", "--output unstack:1"),
    ("--tensor bert/pooler/dense/bias", "--tensor bert/embeddings/LayerNorm/beta"),
    (
        "frazil verify model.ckpt-1000 ",
        "frazil verify --output-b unstack:0,unstack:1 model.ckpt-1000 ",
    ),
];

/// What examples name that are not run, since the demo has no such thing.
const ABSENT: [&str; 27] = [
    "all-MiniLM-L6-v2",
    "multilingual-e5-small",
    "bert-base-uncased --file texts.txt",
    "reviews.tsv",
    "pairs.jsonl",
    "pairs.txt",
    "dev-v2.0.json",
    "train-v2.0.json",
    "MRPC.tsv",
    "STS-B",
    "MNLI",
    "CoLA",
    "glue/MRPC",
    "glue/SST-2",
    "mrpc_model",
    "workspace/recipe.yaml",
    "bert.yaml",
    "frozen_fp16.pb",
    "model.ckpt-0",
    "model.ckpt-1603",
    "model.ckpt-28252",
    "wikipedia_histogram.csv",
    "pod16-closed.json",
    "--pod=16",
    "export/1564086017",
    "'wiki/*'",
    "f32.frazil",
];

/// What examples have that are not run, since that takes long; the demo runs such commands.
const LONG: [&str; 6] = [
    "frazil demo",
    "frazil bench",
    "frazil quantize",
    "frazil finetune",
    "--num_train_steps=10000",
    "--seconds 10",
];

#[test]
fn examples_do_what_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let run = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_frazil"));
        command.args(words(line)).current_dir(&folder).stdin(Stdio::null());
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    };
    let demo = run("demo");
    assert_eq!(demo.0, Some(0), "{}", demo.1);
    let put = || {
        for (name, of) in FILES {
            copy(&folder.path().join("frazil-demo").join(of), &folder.path().join(name));
        }
    };
    put();
    zip(folder.path());
    for line in MADE {
        let made = run(line);
        assert_eq!(made.0, Some(0), "{line}: {}", made.1);
    }
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/commands.md");
    let examples = examples(&fs::read_to_string(reference).unwrap());
    let mut failures = Vec::new();
    for part in ABSENT.iter().chain(&LONG) {
        if !examples.iter().any(|example| example.contains(part)) {
            failures.push(format!("no example has `{part}`"));
        }
    }
    let left_out =
        |example: &&String| ABSENT.iter().chain(&LONG).any(|part| example.contains(part));
    let examples: Vec<&String> = examples.iter().filter(|example| !left_out(example)).collect();
    assert!(examples.len() > 50, "{}", examples.len());
    for example in examples {
        put(); // an example may have written over them
        let line = REPLACED.iter().fold(example.clone(), |line, (from, to)| line.replace(from, to));
        let (code, said) = run(line.trim_start_matches("frazil "));
        if code != Some(0) {
            failures.push(format!("{example}\n{code:?}: {said}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// The model as a zip, and unpacked.
fn zip(folder: &Path) {
    let file = fs::File::create(folder.join(format!("{ZIP}.zip"))).unwrap();
    let mut zip = zip::ZipWriter::new(file);
    for name in ZIPPED {
        copy(&folder.join(name), &folder.join(ZIP).join(name));
        let options = zip::write::SimpleFileOptions::default();
        zip.start_file(format!("{ZIP}/{name}"), options).unwrap();
        zip.write_all(&fs::read(folder.join(name)).unwrap()).unwrap();
    }
    zip.finish().unwrap();
}

/// A file, or a folder with what is in it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    if from.is_dir() {
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        fs::copy(from, to).unwrap();
    }
}

/// The lines of frazil below `Examples:`, without what a shell does before and behind.
fn examples(reference: &str) -> Vec<String> {
    let blocks = reference.split("Examples:\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().unwrap_or_default());
    let lines: Vec<String> = blocks
        .flat_map(|block| block.replace("\\\n", " ").lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let ours = |line: &String| {
        // What a pipe feeds is not there.
        let line = &line[line.find("frazil ").filter(|_| !line.contains("cat "))?..];
        let end = [" > ", " | ", " && "].iter().filter_map(|shell| line.find(shell)).min();
        let line = &line[..end.unwrap_or(line.len())];
        Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    lines.iter().filter_map(ours).collect()
}

/// Words as a shell takes them.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut quote) = (vec![String::new()], None);
    for letter in line.chars() {
        match (letter, quote) {
            (_, Some(open)) if letter == open => quote = None,
            ('\'' | '"', None) => quote = Some(letter),
            (' ', None) => words.push(String::new()),
            _ => words.last_mut().unwrap().push(letter),
        }
    }
    words
}
