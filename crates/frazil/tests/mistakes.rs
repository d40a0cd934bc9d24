//! The mistakes that owners of old BERTs make: each has its own message, which says where, what
//! was expected, and what to do.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn assets() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tf1")
}

/// A folder with the demo checkpoint, to be damaged.
fn model() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "bert_config.json",
        "vocab.txt",
        "bert_model.ckpt.index",
        "bert_model.ckpt.data-00000-of-00001",
        "bert_model.ckpt.meta",
    ] {
        fs::copy(assets().join(name), folder.path().join(name)).unwrap();
    }
    folder
}

fn frazil(folder: &Path, line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_frazil"))
        .args(line.split_whitespace())
        .current_dir(folder)
        .output()
        .unwrap()
}

struct Mistake {
    name: &'static str,
    /// What goes wrong in the folder.
    damage: fn(&Path),
    /// The command, run in the folder.
    line: &'static str,
    /// Exit code.
    code: i32,
    /// What the output must say, in this order or another.
    says: &'static [&'static str],
}

fn nothing(_: &Path) {}

fn truncate(path: PathBuf, len: u64) {
    fs::File::options().write(true).open(path).unwrap().set_len(len).unwrap();
}

const LFS: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 440425712\n";
const PAGE: &str = "<!DOCTYPE html>\n<html><head><title>404 Not Found</title></head></html>\n";

const MISTAKES: &[Mistake] = &[
    Mistake {
        name: "a prefix with a typing error",
        damage: nothing,
        line: "inspect bert_modle.ckpt",
        code: 2,
        says: &["error:", "bert_modle.ckpt", "hint: did you mean `bert_model.ckpt`"],
    },
    Mistake {
        name: "a path that is not there at all",
        damage: nothing,
        line: "inspect nowhere/zzz",
        code: 2,
        says: &["error: there is no `nowhere/zzz`", "hint:", "prefix"],
    },
    Mistake {
        name: "a task that cannot be learnt",
        damage: nothing,
        line: "finetune classifier bert_model.ckpt --task foo --data . -o out",
        code: 2,
        says: &["there is no data set `foo`; known are MRPC", "QNLI, RTE, WNLI, QQP", "hint:"],
    },
    Mistake {
        name: "a tour in a folder of one's own",
        damage: nothing,
        line: "demo --dir .",
        code: 2,
        says: &["error: `.` has files that the tour did not make", "hint:", "--dir"],
    },
    Mistake {
        name: "a folder without a model",
        damage: |folder| fs::create_dir_all(folder.join("empty/deeper")).unwrap(),
        line: "inspect empty",
        code: 2,
        says: &["error:", "`empty`", "no checkpoint", "hint:", "`deeper`"],
    },
    Mistake {
        name: "the configuration instead of the checkpoint",
        damage: nothing,
        line: "inspect bert_config.json",
        code: 2,
        says: &["error:", "JSON", "hint:", "checkpoint"],
    },
    Mistake {
        name: "the vocabulary instead of the checkpoint",
        damage: nothing,
        line: "inspect vocab.txt",
        code: 2,
        says: &["error:", "text file", "hint:"],
    },
    Mistake {
        name: "data without index",
        damage: |folder| fs::remove_file(folder.join("bert_model.ckpt.index")).unwrap(),
        line: "inspect bert_model.ckpt.data-00000-of-00001",
        code: 2,
        says: &["error:", "bert_model.ckpt.index", "hint:"],
    },
    Mistake {
        name: "data without index, by prefix",
        damage: |folder| fs::remove_file(folder.join("bert_model.ckpt.index")).unwrap(),
        line: "inspect bert_model.ckpt",
        code: 2,
        says: &["error:", "bert_model.ckpt.index", "hint:"],
    },
    Mistake {
        name: "index without data, when values are needed",
        damage: |folder| {
            fs::remove_file(folder.join("bert_model.ckpt.data-00000-of-00001")).unwrap();
        },
        line: "inspect bert_model.ckpt --tensor bert/pooler/dense/bias",
        code: 2,
        says: &["error:", "bert_model.ckpt.data-00000-of-00001", "hint:"],
    },
    Mistake {
        name: "a Git LFS pointer instead of the index",
        damage: |folder| fs::write(folder.join("bert_model.ckpt.index"), LFS).unwrap(),
        line: "inspect bert_model.ckpt",
        code: 2,
        says: &["error:", "Git LFS pointer", "bert_model.ckpt.index", "hint:", "git lfs pull"],
    },
    Mistake {
        name: "a Git LFS pointer instead of the data",
        damage: |folder| {
            fs::write(folder.join("bert_model.ckpt.data-00000-of-00001"), LFS).unwrap();
        },
        line: "inspect bert_model.ckpt --tensor bert/pooler/dense/bias",
        code: 2,
        says: &["error:", "Git LFS pointer", "data-00000-of-00001", "hint:", "git lfs pull"],
    },
    Mistake {
        name: "a Git LFS pointer instead of a graph",
        damage: |folder| fs::write(folder.join("frozen.pb"), LFS).unwrap(),
        line: "inspect frozen.pb",
        code: 2,
        says: &["error:", "Git LFS pointer", "frozen.pb", "hint:", "git lfs pull"],
    },
    Mistake {
        name: "data cut short by a broken download",
        damage: |folder| truncate(folder.join("bert_model.ckpt.data-00000-of-00001"), 100_000),
        line: "inspect bert_model.ckpt --npz all.npz",
        code: 2,
        says: &["error:", "data-00000-of-00001", "100000", "hint:", "download"],
    },
    Mistake {
        name: "an index cut short by a broken download",
        damage: |folder| truncate(folder.join("bert_model.ckpt.index"), 1000),
        line: "inspect bert_model.ckpt",
        code: 2,
        says: &["error:", "bert_model.ckpt.index", "hint:", "download"],
    },
    Mistake {
        name: "a web page saved as zip",
        damage: |folder| fs::write(folder.join("uncased_L-12.zip"), PAGE).unwrap(),
        line: "inspect uncased_L-12.zip",
        code: 2,
        says: &["error:", "HTML page", "hint:", "download"],
    },
    Mistake {
        name: "a zip cut short by a broken download",
        damage: |folder| {
            let zip = zip_of(folder);
            truncate(zip.clone(), fs::metadata(&zip).unwrap().len() / 2);
        },
        line: "inspect model.zip",
        code: 2,
        says: &["error:", "model.zip", "hint:", "download"],
    },
    Mistake {
        name: "one flipped bit in the data",
        damage: |folder| {
            let path = folder.join("bert_model.ckpt.data-00000-of-00001");
            let mut data = fs::read(&path).unwrap();
            data[5000] ^= 1;
            fs::write(path, data).unwrap();
        },
        line: "inspect bert_model.ckpt --npz all.npz",
        code: 2,
        says: &["error:", "checksum", "hint:", "--no-checksum"],
    },
    Mistake {
        name: "a configuration of another size",
        damage: |folder| {
            let path = folder.join("bert_config.json");
            let config = fs::read_to_string(&path).unwrap();
            fs::write(path, config.replace("\"hidden_size\": 64", "\"hidden_size\": 128")).unwrap();
        },
        line: "inspect bert_model.ckpt",
        code: 0,
        says: &["bert_config.json", "hidden_size", "128", "64"],
    },
    Mistake {
        name: "a configuration of another size, checked",
        damage: |folder| {
            let path = folder.join("bert_config.json");
            let config = fs::read_to_string(&path).unwrap();
            fs::write(path, config.replace("\"hidden_size\": 64", "\"hidden_size\": 128")).unwrap();
        },
        line: "verify-weights bert_model.ckpt --config bert_config.json",
        code: 1,
        says: &["wrong shape", "bert/embeddings/word_embeddings", "[838, 64]", "[838, 128]"],
    },
    Mistake {
        name: "a checkpoint of another head",
        damage: nothing,
        line: "verify-weights bert_model.ckpt --config bert_config.json --task SQUAD",
        code: 1,
        says: &["missing: `cls/squad/output_weights`", "INCOMPLETE", "hint:", "pretraining"],
    },
    Mistake {
        name: "export for a head that is not there",
        damage: nothing,
        line: "export-weights bert_model.ckpt --names huggingface --task SQUAD -o out.safetensors",
        code: 2,
        says: &["error:", "cls/squad/output_weights", "hint:"],
    },
    Mistake {
        name: "a variable with a typing error",
        damage: nothing,
        line: "inspect bert_model.ckpt --tensor bert/pooler/dense/bais",
        code: 2,
        says: &["error:", "bert/pooler/dense/bais", "hint:", "bert/pooler/dense/bias"],
    },
    Mistake {
        name: "a graph where weights are needed",
        damage: |folder| {
            fs::rename(folder.join("bert_model.ckpt.meta"), folder.join("lone.meta")).unwrap();
            fs::remove_file(folder.join("bert_model.ckpt.index")).unwrap();
        },
        line: "export-weights lone.meta -o out.safetensors",
        code: 2,
        says: &["error:", "MetaGraph", "hint:", ".index"],
    },
    Mistake {
        name: "a TensorFlow 2 object checkpoint",
        damage: |folder| copy_fixture(folder, "tf2_objects"),
        line: "inspect tf2_objects",
        code: 0,
        says: &[
            "TensorFlow 2",
            "layer_0/kernel",
            "model/layers/0/kernel/.ATTRIBUTES/VARIABLE_VALUE",
        ],
    },
    Mistake {
        name: "a TensorFlow 2 checkpoint of no BERT, exported",
        damage: |folder| copy_fixture(folder, "tf2_objects"),
        line: "export-weights tf2_objects --names huggingface -o out.safetensors",
        code: 2,
        says: &["error:", "not the weights of a BERT", "hint:"],
    },
    Mistake {
        name: "a partitioned variable with a slice missing",
        damage: |folder| {
            copy_fixture(folder, "v2_partitioned");
            drop_a_slice(&folder.join("v2_partitioned.index"));
        },
        line: "inspect v2_partitioned --npz all.npz",
        code: 2,
        says: &["error:", "slice", "is listed, but is not there", "hint:"],
    },
    Mistake {
        name: "nothing to compare with",
        damage: nothing,
        line: "verify-weights bert_model.ckpt",
        code: 2,
        says: &["error:", "hint:", "--config"],
    },
    Mistake {
        name: "a task that does not exist",
        damage: nothing,
        line: "verify-weights bert_model.ckpt bert_model.ckpt --task NER",
        code: 2,
        says: &["error:", "NER", "squad"],
    },
    Mistake {
        name: "a report of frazil instead of the model",
        damage: |folder| {
            let made = frazil(folder, "inspect bert_model.ckpt --report report.html");
            assert!(made.status.success());
        },
        line: "inspect report.html",
        code: 2,
        says: &[
            "error: `report.html` is a report of frazil",
            "hint:",
            "the model that it is about",
        ],
    },
    Mistake {
        name: "inputs with a typing error",
        damage: |folder| fs::write(folder.join("inputs.npz"), "").unwrap(),
        line: "run bert_model.ckpt --inputs input.npz",
        code: 2,
        says: &["error: cannot open `input.npz`", "hint: did you mean `inputs.npz`?"],
    },
    Mistake {
        name: "a text instead of the inputs",
        damage: nothing,
        line: "run bert_model.ckpt --inputs vocab.txt",
        code: 2,
        says: &["error: `vocab.txt` is a text file", "an `.npz`", "hint:", "numpy.savez"],
    },
    Mistake {
        name: "data in a folder that is not there",
        damage: nothing,
        line: "finetune classifier bert_model.ckpt --task cola --data nowhere -o out",
        code: 2,
        says: &["error:", "`nowhere/", "hint: there is no folder `nowhere`"],
    },
    Mistake {
        name: "a configuration of pre-training with a typing error",
        damage: nothing,
        line: "pretrain --config bert_confg.json",
        code: 2,
        says: &["error: cannot read `bert_confg.json`", "hint: did you mean `bert_config.json`?"],
    },
    Mistake {
        name: "a result in a folder that is not there",
        damage: nothing,
        line: "convert bert_model.ckpt --to onnx -o nodir/x.onnx",
        code: 2,
        says: &[
            "error: cannot create `nodir/x.onnx`\ncaused by: No such file or directory (os error 2)\n",
            "hint: there is no folder `nodir`: `mkdir -p nodir` makes it",
        ],
    },
    Mistake {
        name: "a SavedModel over something else",
        damage: nothing,
        line: "convert bert_model.ckpt --to saved-model -o .",
        code: 2,
        says: &["error: `.` is there already, and not empty", "hint: name a new folder"],
    },
    Mistake {
        name: "an ending of another format",
        damage: nothing,
        line: "convert bert_model.ckpt --to onnx -o x.xml",
        code: 0,
        says: &["note: `x.xml` is an ONNX model, though its name ends in `.xml`"],
    },
    Mistake {
        name: "a picture that is a page",
        damage: nothing,
        line: "graph bert_model.ckpt -o x.pdf",
        code: 0,
        says: &["note: `x.pdf` is a page of HTML"],
    },
    Mistake {
        name: "a graph down to an output that it does not have",
        damage: nothing,
        line: "graph bert_model.ckpt --output bert/pooler/dense/Tan -o x.html",
        code: 2,
        says: &["error: no node is named `bert/pooler/dense/Tan`", "hint: did you mean"],
    },
    Mistake {
        name: "questions and predictions the other way round",
        damage: |folder| fs::write(folder.join("predictions.json"), r#"{"a": "b"}"#).unwrap(),
        line: "evaluate squad predictions.json dev-v1.1.json",
        code: 2,
        says: &[
            "error: `predictions.json` is no SQuAD file",
            "hint: are the two the other way round?",
        ],
    },
    Mistake {
        name: "texts where questions are wanted",
        damage: |folder| {
            let squad = assets().join("squad");
            for file in fs::read_dir(squad).unwrap() {
                let file = file.unwrap();
                fs::create_dir_all(folder.join("squad")).unwrap();
                fs::copy(file.path(), folder.join("squad").join(file.file_name())).unwrap();
            }
            for name in ["bert_config.json", "vocab.txt"] {
                fs::copy(folder.join(name), folder.join("squad").join(name)).unwrap();
            }
        },
        line: "quantize squad --task squad --evaluation vocab.txt -o q.frazil",
        code: 2,
        says: &[
            "error: `vocab.txt` is no SQuAD file: line 1, column ",
            "hint:",
            "dev-v1.1.json",
            "TFRecords",
        ],
    },
    Mistake {
        name: "a length beyond the positions",
        damage: nothing,
        line: "reshape bert_model.ckpt.meta --seq 5120 -o long.pb",
        code: 2,
        says: &["error:", "position_embeddings", "hint: the model has ", "give `--seq` at most "],
    },
    Mistake {
        name: "lengths beyond the positions",
        damage: nothing,
        line: "bench bert_model.ckpt --head encoder --lengths lognormal:2000,0.1,5000 --sequences 2",
        code: 2,
        says: &[
            "error:",
            "but the model has ",
            "hint: give `--seq` at most ",
            "--lengths lognormal:",
        ],
    },
    Mistake {
        name: "a variant with a typing error",
        damage: nothing,
        line: "bench bert_model.ckpt --compare f23",
        code: 2,
        says: &[
            "error: `f23` is neither",
            "hint: did you mean `f32`?",
            "`padded`",
            "`avx2`",
            "`threads=N`",
        ],
    },
    Mistake {
        name: "a vocabulary that is not there",
        damage: nothing,
        line: "tokenize nofile x",
        code: 2,
        says: &["error: there is no `nofile`", "hint:", "vocab.txt", "tokenizer.json"],
    },
    Mistake {
        name: "a search without data, by the old program",
        damage: |folder| {
            fs::write(folder.join("b.yaml"), "model:\n  name: bert\n  framework: tensorflow\n")
                .unwrap()
        },
        line: "tune_squad --config=b.yaml --input_model=bert_model.ckpt --output_model=o.pb --tune",
        code: 2,
        says: &[
            "error: there is nothing to evaluate SQuAD on",
            "hint:",
            "`--predict_file`",
            "`--vocab_file`",
        ],
    },
    Mistake {
        name: "a tour where nothing can be written",
        damage: |folder| fs::write(folder.join("file"), "").unwrap(),
        line: "demo --dir file/tour",
        code: 2,
        says: &["error: `file/tour` cannot be written to", "hint: `--dir FOLDER`"],
    },
    Mistake {
        name: "a flag of an old program with a typing error, and none that it needs",
        damage: nothing,
        line: "run_squad --do_predct=True",
        code: 1,
        says: &[
            "Flag --vocab_file must have",
            "hint: `--do_predct=True` is no flag",
            "`--do_predict`?",
        ],
    },
    Mistake {
        name: "a flag of freeze_graph with a typing error",
        damage: nothing,
        line: "freeze_graph --input_grph=x",
        code: 1,
        says: &["`--input_grph=x` is no flag of freeze_graph", "did you mean `--input_graph`?"],
    },
    Mistake {
        name: "a command with a typing error",
        damage: nothing,
        line: "inspekt bert_model.ckpt",
        code: 2,
        says: &["error: there is no command `inspekt`", "hint: did you mean `inspect`?"],
    },
    Mistake {
        name: "a model where the task is wanted",
        damage: nothing,
        line: "finetune bert_model.ckpt",
        code: 2,
        says: &["error:", "hint: write `frazil finetune classifier bert_model.ckpt …`"],
    },
];

fn copy_fixture(folder: &Path, prefix: &str) {
    let fixtures =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../frazil-tf/tests/fixtures/checkpoints");
    for ending in [".index", ".data-00000-of-00001"] {
        let name = format!("{prefix}{ending}");
        fs::copy(fixtures.join(&name), folder.join(&name)).unwrap();
    }
}

/// Writes the index again without its last slice. Slices have keys that start with a zero byte.
fn drop_a_slice(index: &Path) {
    use frazil::tf::sstable::{Compression, Table, TableBuilder};
    let table = Table::open(fs::read(index).unwrap().into(), true).unwrap();
    let mut entries: Vec<_> = table.entries().map(|entry| entry.unwrap()).collect();
    let last = entries.iter().rposition(|(key, _)| key.first() == Some(&0)).unwrap();
    entries.remove(last);
    let mut builder = TableBuilder::new(Vec::new(), Compression::None);
    for (key, value) in entries {
        builder.add(&key, &value).unwrap();
    }
    fs::write(index, builder.finish().unwrap()).unwrap();
}

/// The demo model in a zip as Google ships them.
fn zip_of(folder: &Path) -> PathBuf {
    use std::io::Write;
    let path = folder.join("model.zip");
    let mut zip = zip::ZipWriter::new(fs::File::create(&path).unwrap());
    let options = zip::write::SimpleFileOptions::default();
    for name in [
        "bert_config.json",
        "vocab.txt",
        "bert_model.ckpt.index",
        "bert_model.ckpt.data-00000-of-00001",
    ] {
        zip.start_file(format!("uncased_L-2_H-64_A-4/{name}"), options).unwrap();
        zip.write_all(&fs::read(folder.join(name)).unwrap()).unwrap();
    }
    zip.finish().unwrap();
    path
}

#[test]
fn every_mistake_has_its_answer() {
    let mut failures = Vec::new();
    for mistake in MISTAKES {
        let folder = model();
        (mistake.damage)(folder.path());
        let output = frazil(folder.path(), mistake.line);
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        let unsaid: Vec<_> = mistake.says.iter().filter(|part| !text.contains(**part)).collect();
        if output.status.code() != Some(mistake.code) || !unsaid.is_empty() {
            failures.push(format!(
                "== {}\n$ frazil {}\n{text}exit {:?}, expected {}; not said: {unsaid:?}",
                mistake.name,
                mistake.line,
                output.status.code(),
                mistake.code
            ));
        }
        let left: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| {
                name.contains("partial") || name == "out.safetensors" || name == "all.npz"
            })
            .collect();
        if !left.is_empty() {
            failures.push(format!("== {}: left {left:?} behind", mistake.name));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// The same model by every path a user may type.
#[test]
fn every_form_of_the_path_works() {
    let folder = model();
    zip_of(folder.path());
    fs::create_dir(folder.path().join("above")).unwrap();
    for path in [
        ".",
        "bert_model.ckpt",
        "bert_model.ckpt.index",
        "bert_model.ckpt.data-00000-of-00001",
        "bert_model.ckpt.meta",
        "model.zip",
    ] {
        let output = frazil(folder.path(), &format!("inspect {path}"));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains("171,464 parameters in 46 variables"), "{path}:\n{text}");
    }
    let output = frazil(folder.path(), "verify-weights model.zip bert_model.ckpt");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
