//! What a training begins with: what it may lie in, and that it fits.

use std::fs;
use std::io::Write;

use frazil::bert::{BertConfig, Head};
use frazil::tensor::Tensor;
use frazil::tf::bundle::{BundleWriter, WriteOptions};
use frazil::train::schedule::Bert;

use super::data::{Start, hint, said, text};
use super::*;

/// A zip with a checkpoint, its configuration and its vocabulary is a model like any other.
#[test]
fn a_zip_is_a_model() {
    let Some(start) = Start::new() else { return };
    let mut zip = zip::ZipWriter::new(fs::File::create(start.path("model.zip")).unwrap());
    let mut add = |name: &str, from: &Path| {
        zip.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(&fs::read(from).unwrap()).unwrap();
    };
    add("small/bert_config.json", &start.config);
    add("small/vocab.txt", &start.vocab);
    for end in ["index", "data-00000-of-00001"] {
        let from = PathBuf::from(format!("{}.{end}", start.init.display()));
        add(&format!("small/bert_model.ckpt.{end}"), &from);
    }
    zip.finish().unwrap();
    let mrpc = start.data.join("MRPC").display().to_string();
    let output = start.run(&[
        "finetune",
        "classifier",
        "model.zip",
        "--task",
        "mrpc",
        "--data",
        &mrpc,
        "--max-seq-length",
        "96",
        "--epochs",
        "1",
        "-o",
        "out",
    ]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(fs::read(start.path("out/vocab.txt")).unwrap(), fs::read(&start.vocab).unwrap());
}

/// A checkpoint of another shape is named before anything is made of the data, with what to do about it.
#[test]
fn another_shape_is_found_first() {
    let Some(start) = Start::new() else { return };
    let config = fs::read_to_string(&start.config).unwrap();
    let other = config.replace("\"hidden_size\": 64", "\"hidden_size\": 32");
    fs::write(start.path("other.json"), other).unwrap();
    let other = Start { config: start.path("other.json"), ..start };
    let train = other.data.join("squad/train-v1.1.json");
    let words = ["--train", text(&train), "-o", "out"];
    let output = other.finetune("squad", &words);
    let found = said(&output);
    assert_eq!(output.status.code(), Some(2));
    assert!(found.contains("model.ckpt-40` is of another model: `bert/"), "{found}");
    assert!(hint(&found).contains("bert_config.json"), "{found}");
    assert!(!other.path("out").exists());
    // Of any training.
    let config = BertConfig::read(&other.config).unwrap();
    let mut options = train::Options::bert(
        Head::Pretraining,
        config,
        Bert { rate: 1e-4, steps: 1, warmup: 0 },
        other.path("out"),
    );
    options.init_checkpoint = Some(other.init.clone());
    options.records = vec![other.path("records")];
    let found = train::train(&options, &mut |_| Ok(Go::On)).unwrap_err().to_string();
    assert!(found.contains("model.ckpt-40` is of another model"), "{found}");
    // The head of a task with three classes.
    let mut writer = BundleWriter::create(other.path("mnli"), WriteOptions::default()).unwrap();
    writer.add("output_weights", &Tensor::from_vec([3, 64], vec![0f32; 3 * 64]).unwrap()).unwrap();
    writer.finish().unwrap();
    let config = shared("fixtures/data/bert_config_small.json").unwrap();
    let mnli = Start { config, init: other.path("mnli"), ..other };
    let mrpc = mnli.data.join("MRPC").display().to_string();
    let words = ["--task", "mrpc", "--data", &mrpc, "-o", "out"];
    let found = said(&mnli.finetune("classifier", &words));
    let expected =
        "mnli` is of another model: `output_weights` is float32 [3, 64], not float32 [2, 64]";
    assert!(found.contains(expected) && hint(&found).contains("another task"), "{found}");
    assert!(!mnli.path("out").exists());
}

/// run_squad counts examples and windows in the original's words, and takes a number of threads.
#[test]
fn run_squad_says_what_it_trains_on() {
    let Some(start) = Start::new() else { return };
    let file = start.data.join("squad/train-v1.1.json");
    let file = format!("--train_file={}", file.display());
    let words = ["--do_train", "--output_dir=out", "--max_seq_length=96", "--num_train_epochs=3"];
    let output = start.old("run_squad", &[&words[..], &[&file, "--threads=2"]].concat());
    let found = said(&output);
    assert!(output.status.success(), "{found}");
    let line = |begin: &str| {
        let line = found.lines().find_map(|line| line.strip_prefix(begin));
        line.unwrap_or_else(|| panic!("no `{begin}`: {found}")).parse::<u64>().unwrap()
    };
    let examples = line("INFO:tensorflow:  Num orig examples = ");
    assert!(line("INFO:tensorflow:  Num split examples = ") >= examples);
    assert!(!found.contains("has no place for"), "{found}");
    // What is lost of a larger model is said.
    let config = fs::read_to_string(&start.config).unwrap();
    let smaller = config.replace("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
    fs::write(start.path("smaller.json"), smaller).unwrap();
    let start = Start { config: start.path("smaller.json"), ..start };
    let words = ["--do_train", "--output_dir=smaller", "--max_seq_length=96", &file];
    let found = said(&start.old("run_squad", &words));
    let expected = "note: the model has no place for `bert/encoder/layer_1/";
    assert!(found.contains(expected) && found.contains(" and 15 more"), "{found}");
}
