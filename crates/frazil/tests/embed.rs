//! Vectors, masked words and `extract_features`: the same numbers as TensorFlow 1.15 gave, from every
//! kind of model, and named errors for what cannot be read.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use frazil::bert::features::Features;
use frazil::ops::text_model::{Item, Options, TextModel, Want};
use frazil::tensor::npy::{self, Npz};
use frazil::tensor::safetensors::SafeTensors;
use frazil::tensor::testing::shared;
use frazil::tensor::{DType, Tensor, TensorStore};
use frazil::tf::example::Example;
use serde_json::{Value, json};

/// Largest difference to TensorFlow's numbers, which have six places.
const TOLERANCE: f64 = 1e-5;

fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tf1")
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/extract_features")
}

fn frazil(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_frazil")).args(words).output().unwrap()
}

fn piped(words: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_frazil"))
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may have ended before it read anything.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// What a command that worked printed: lines of JSON.
fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn vectors(output: &Output) -> Vec<Vec<f64>> {
    lines(output).iter().map(|line| numbers(&line["embedding"])).collect()
}

fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn said(output: &Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn near(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(worst <= TOLERANCE, "{what}: {worst:e}");
}

/// The rows of a line of the golden file: by layer and token.
fn golden_rows(line: usize) -> [Vec<Vec<f64>>; 2] {
    let text = fs::read_to_string(golden().join("golden.jsonl")).unwrap();
    let value: Value = serde_json::from_str(text.lines().nth(line).unwrap()).unwrap();
    let rows = |layer: usize| {
        let tokens = value["features"].as_array().unwrap().iter();
        tokens.map(|token| numbers(&token["layers"][layer]["values"])).collect()
    };
    [rows(0), rows(1)]
}

fn mean(rows: &[Vec<f64>]) -> Vec<f64> {
    let sum = |j: usize| rows.iter().map(|row| row[j]).sum::<f64>();
    (0..rows[0].len()).map(|j| sum(j) / rows.len() as f64).collect()
}

fn unit(vector: &[f64]) -> Vec<f64> {
    let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
    vector.iter().map(|x| x / length).collect()
}

/// A Hugging Face folder of the demo model, with the original's GELU.
fn hugging_face(head: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("model");
    let (model, to) = (demo().join("bert_model.ckpt"), to.to_str().unwrap());
    let made = frazil(&[
        "convert",
        model.to_str().unwrap(),
        "--to",
        "huggingface",
        "--head",
        head,
        "-o",
        to,
    ]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    folder
}

fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

fn write_modules(folder: &Path, transformer: &str, modules: &[(&str, &str)]) {
    let entry = |i: usize, path: &str, class: &str| {
        let kind = format!("sentence_transformers.models.{class}");
        json!({"idx": i, "name": i.to_string(), "path": path, "type": kind})
    };
    let mut all = vec![entry(0, transformer, "Transformer")];
    for (i, (path, class)) in modules.iter().enumerate() {
        all.push(entry(i + 1, path, class));
    }
    fs::write(folder.join("modules.json"), json!(all).to_string()).unwrap();
}

fn write_pooling(folder: &Path, mode: &str) {
    fs::create_dir_all(folder.join("1_Pooling")).unwrap();
    let mut config = json!({"word_embedding_dimension": 64, "pooling_mode_mean_tokens": false});
    config[mode] = json!(true);
    fs::write(folder.join("1_Pooling/config.json"), config.to_string()).unwrap();
}

/// The weights of a folder in other names or types; `position_ids` beside them, as older versions of
/// transformers wrote them.
fn rewrite(folder: &Path, dtype: DType, name: impl Fn(&str) -> String) {
    let path = folder.join("model.safetensors");
    let store = SafeTensors::open(&path).unwrap();
    let mut tensors: Vec<(String, Tensor)> = store
        .infos()
        .iter()
        .map(|info| {
            let tensor = store.tensor(&info.name).unwrap();
            (name(&info.name), tensor.cast(dtype).unwrap())
        })
        .collect();
    let ids = Tensor::from_vec([1, 128], (0..128i64).collect()).unwrap();
    tensors.push((name("embeddings.position_ids"), ids));
    drop(store);
    fs::remove_file(&path).unwrap();
    save(&path, &tensors);
}

fn save(path: &Path, tensors: &[(String, Tensor)]) {
    let mut offset = 0;
    let mut header = serde_json::Map::new();
    for (name, tensor) in tensors {
        let end = offset + tensor.byte_len();
        let dtype = match tensor.dtype() {
            DType::F32 => "F32",
            DType::F16 => "F16",
            _ => "I64",
        };
        let shape = tensor.shape().to_vec();
        header.insert(
            name.clone(),
            json!({"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}),
        );
        offset = end;
    }
    let header = Value::Object(header).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    for (_, tensor) in tensors {
        bytes.extend_from_slice(tensor.bytes().unwrap());
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn extract_features_is_the_originals() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.jsonl");
    let flag = |name: &str, path: PathBuf| format!("--{name}={}", path.display());
    let flags = [
        flag("input_file", golden().join("texts.txt")),
        flag("output_file", output.clone()),
        flag("vocab_file", demo().join("vocab.txt")),
        flag("bert_config_file", demo().join("bert_config.json")),
        flag("init_checkpoint", demo().join("bert_model.ckpt")),
        "--layers=-1,0".into(),
        "--max_seq_length=12".into(),
        "--do_lower_case=True".into(),
        "--batch_size=2".into(),
        "--use_tpu=False".into(),
        "--num_tpu_cores=8".into(),
        "--nouse_one_hot_embeddings".into(),
    ];
    let mut words = vec!["extract_features"];
    words.extend(flags.iter().map(String::as_str));
    let run = frazil(&words);
    let talk = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{talk}");
    assert!(talk.contains("1 of 5 lines were cut to 12 word pieces"), "{talk}");
    let found = fs::read_to_string(&output).unwrap();
    let wanted = fs::read_to_string(golden().join("golden.jsonl")).unwrap();
    // The same text but for the last places of numbers.
    let bones = |text: &str| text.replace(|c: char| c.is_ascii_digit() || "-e".contains(c), "");
    assert_eq!(found.lines().count(), wanted.lines().count());
    for (found, wanted) in found.lines().zip(wanted.lines()) {
        assert_eq!(bones(found), bones(wanted));
        let (found, wanted): (Value, Value) =
            (serde_json::from_str(found).unwrap(), serde_json::from_str(wanted).unwrap());
        assert_eq!(found["linex_index"], wanted["linex_index"]);
        let tokens = |line: &Value| line["features"].as_array().unwrap().clone();
        for (found, wanted) in tokens(&found).iter().zip(tokens(&wanted)) {
            assert_eq!(found["token"], wanted["token"]);
            for layer in 0..2 {
                let (found, wanted) = (&found["layers"][layer], &wanted["layers"][layer]);
                assert_eq!(found["index"], wanted["index"]);
                near(&numbers(&found["values"]), &numbers(&wanted["values"]), "a token");
            }
        }
    }
    // Wrong layers, lengths and flags.
    for (flag, message) in [
        ("--layers=-1,2", "there is no layer 2: the model has 2 layers"),
        ("--layers=x", "`x` is no layer's number"),
        ("--max_seq_length=129", "positions for at most 128"),
        ("--max_seq_length=2", "`--max_seq_length` is 2\nhint: give a number from 3 on"),
        ("--max_seq_length=two", "invalid literal for int()"),
    ] {
        let mut words = words.clone();
        words.push(flag);
        let said = said(&frazil(&words));
        assert!(said.contains(message), "{flag}: {said}");
    }
    let said = said(&frazil(&["extract_features", "--layers=-1"]));
    assert!(said.contains("Flag --input_file must have a value other than None."), "{said}");
}

/// Hidden states, pooled output and masked words that TensorFlow 1.15 gave for weights of which
/// every one matters.
#[test]
fn what_tensorflow_gave() {
    let (Some(model), Some(vocab)) =
        (shared("fixtures/numerics"), shared("fixtures/data/vocab_small.txt"))
    else {
        return;
    };
    let inputs = Npz::open(model.join("inputs.npz")).unwrap();
    let outputs = Npz::open(model.join("pretrain_out.npz")).unwrap();
    let values = |name: &str| outputs.tensor(name).unwrap().values::<f32>().unwrap().to_vec();
    let ints = |name: &str| inputs.tensor(name).unwrap().values::<i32>().unwrap().to_vec();
    let positions = ints("masked_lm_positions");
    let (s, p, h, v) = (48, 7, 64, 838);
    let sequences: Vec<(usize, Features)> = (0..3)
        .filter_map(|i| {
            let names = ["input_ids", "input_mask", "segment_ids"];
            let example = names.iter().fold(Example::default(), |example, name| {
                let row =
                    ints(name)[i * s..(i + 1) * s].iter().map(|&x| x.into()).collect::<Vec<i64>>();
                example.with_int64s(*name, row)
            });
            Some((i, Features::from_example(&example).ok()?))
        })
        .collect();
    assert!(!sequences.is_empty());
    let options = Options {
        graph: frazil::source::GraphOptions {
            config: shared("fixtures/data/bert_config_small.json"),
            ..Default::default()
        },
        vocabulary: Some(vocab),
        ..Options::default()
    };
    let run = |want: Want| {
        let model = TextModel::open(model.join("model.ckpt"), &want, &options).unwrap();
        let words = want == Want::Words;
        let items = sequences.iter().filter_map(|(i, features)| {
            let asked = &positions[i * p..(i + 1) * p];
            // TensorFlow was asked for words of padding, too.
            let inside = asked.iter().all(|&at| (at as usize) < features.len());
            let positions = if words { asked.to_vec() } else { Vec::new() };
            let item = Item { tag: *i, features: features.clone(), positions };
            (inside || !words).then_some(Ok::<_, frazil::Error>(item))
        });
        let mut all = Vec::new();
        let each = |i: usize, said| {
            all.push((i, said));
            Ok(())
        };
        model.run(items, each).unwrap();
        all
    };
    let wide = |values: &[f32]| values.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
    for (i, said) in run(Want::Hidden(vec![0, -1])) {
        for (output, golden) in said.outputs.iter().zip(["layer_0", "layer_1"]) {
            let golden = &values(golden)[i * s * h..][..output.values.len()];
            assert_eq!(output.dims[1], h);
            near(&wide(&output.values), &wide(golden), "rows");
        }
    }
    for (i, said) in run(Want::Pooled) {
        near(
            &wide(&said.outputs[0].values),
            &wide(&values("pooled_output")[i * h..][..h]),
            "pooled",
        );
    }
    let words = run(Want::Words);
    assert_eq!(words.len(), 2);
    for (i, said) in words {
        let golden = values("masked_lm_log_probs");
        near(&wide(&said.outputs[0].values), &wide(&golden[i * p * v..][..p * v]), "words");
    }
}

#[test]
fn every_kind_of_model_gives_the_same_vectors() {
    let folder = hugging_face("encoder");
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let checkpoint = demo().join("bert_model.ckpt").to_str().unwrap().to_owned();
    let vocab = demo().join("vocab.txt").to_str().unwrap().to_owned();
    for (to, name) in [("onnx", "m.onnx"), ("tf", "m.pb"), ("saved-model", "sm")] {
        let made =
            frazil(&["convert", &checkpoint, "--head", "encoder", "--to", to, "-o", &at(name)]);
        assert!(made.status.success(), "{to}: {}", String::from_utf8_lossy(&made.stderr));
    }
    let compiled = frazil(&["compile", &at("m.pb"), "-o", &at("m.frazil")]);
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let expected = mean(&golden_rows(0)[0]);
    let first = golden_rows(0)[1][0].clone();
    let meta = demo().join("bert_model.ckpt.meta").to_str().unwrap().to_owned();
    for model in [&checkpoint, &at("model"), &at("m.onnx"), &at("m.pb"), &at("sm"), &meta] {
        let text = "The water is cold.";
        let run =
            frazil(&["predict", "embed", model, text, "--vocab", &vocab, "--pooling", "mean"]);
        near(&vectors(&run)[0], &expected, model);
        let both = ["--layers", "0,-1", "--pooling", "cls"];
        let run =
            frazil(&[&["predict", "embed", model, text, "--vocab", &vocab][..], &both].concat());
        let vector = &vectors(&run)[0];
        near(&vector[..64], &first, model);
        near(&vector[64..], &golden_rows(0)[0][0], model);
    }
    // A compiled model has the outputs that it was compiled with.
    let run =
        frazil(&["predict", "embed", &at("m.frazil"), "The water is cold.", "--vocab", &vocab]);
    near(&vectors(&run)[0], &expected, "compiled");
}

#[test]
fn hugging_face_folders_of_many_makes() {
    let expected = mean(&golden_rows(0)[0]);
    let text = "The water is cold.";
    let embed = |folder: &Path, more: &[&str]| {
        let model = folder.to_str().unwrap();
        frazil(&[&["predict", "embed", model, text][..], more].concat())
    };
    // Names with and without prefixes, constants beside them.
    for prefix in ["", "bert.", "0.auto_model."] {
        let folder = hugging_face("encoder");
        let model = folder.path().join("model");
        rewrite(&model, DType::F32, |name| format!("{prefix}{name}"));
        near(&vectors(&embed(&model, &[]))[0], &expected, prefix);
    }
    // In two files and an index.
    let folder = hugging_face("encoder");
    let model = folder.path().join("model");
    let single = model.join("model.safetensors");
    let store = SafeTensors::open(&single).unwrap();
    let (mut map, mut shards) = (serde_json::Map::new(), [Vec::new(), Vec::new()]);
    for (i, info) in store.infos().iter().enumerate() {
        let shard = format!("model-0000{}-of-00002.safetensors", i % 2 + 1);
        map.insert(info.name.clone(), json!(shard));
        shards[i % 2].push((info.name.clone(), store.tensor(&info.name).unwrap()));
    }
    for (i, tensors) in shards.iter().enumerate() {
        save(&model.join(format!("model-0000{}-of-00002.safetensors", i + 1)), tensors);
    }
    fs::remove_file(single).unwrap();
    let index = json!({"metadata": {}, "weight_map": map}).to_string();
    fs::write(model.join("model.safetensors.index.json"), index).unwrap();
    near(&vectors(&embed(&model, &[]))[0], &expected, "two files");
    // Without a pooler, float16: as near as its 11 bits are.
    let folder = hugging_face("encoder");
    let model = folder.path().join("model");
    rewrite(&model, DType::F16, |name| name.replace("pooler.", "nothing."));
    let found = &vectors(&embed(&model, &[]))[0];
    let worst = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(worst < 2e-2 && worst > 0.0, "{worst}");
    let refused = said(&embed(&model, &["--pooling", "pooler"]));
    assert!(refused.contains("pooled first row"), "{refused}");
    // The erf form of GELU and another epsilon give other numbers.
    let folder = hugging_face("encoder");
    let model = folder.path().join("model");
    edit(&model.join("config.json"), |config| {
        config["hidden_act"] = json!("gelu");
        config["layer_norm_eps"] = json!(1e-5);
    });
    let found = &vectors(&embed(&model, &[]))[0];
    let worst = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(worst < 1e-2 && worst > 1e-6, "{worst}");
}

#[test]
fn sentence_transformers_say_what_they_are() {
    let rows = &golden_rows(0)[0];
    let text = "The water is cold.";
    let embed = |folder: &Path, more: &[&str]| {
        let model = folder.to_str().unwrap();
        frazil(&[&["predict", "embed", model, text][..], more].concat())
    };
    let largest = |j: usize| rows.iter().map(|row| row[j]).fold(f64::NEG_INFINITY, f64::max);
    let max: Vec<f64> = (0..64).map(largest).collect();
    for (mode, expected) in [
        ("pooling_mode_mean_tokens", mean(rows)),
        ("pooling_mode_cls_token", rows[0].clone()),
        ("pooling_mode_max_tokens", max),
    ] {
        let folder = hugging_face("encoder");
        let model = folder.path().join("model");
        write_pooling(&model, mode);
        write_modules(&model, "", &[("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]);
        let run = embed(&model, &[]);
        near(&vectors(&run)[0], &unit(&expected), mode);
        let talk = String::from_utf8_lossy(&run.stderr);
        assert!(talk.contains("`modules.json` says"), "{talk}");
        near(&vectors(&embed(&model, &["--no-normalize"]))[0], &expected, mode);
    }
    // A transformer in a folder of its own, a short length, a prompt, and a dense layer.
    let made = hugging_face("encoder");
    let folder = tempfile::tempdir().unwrap();
    fs::rename(made.path().join("model"), folder.path().join("0_Transformer")).unwrap();
    write_pooling(folder.path(), "pooling_mode_mean_tokens");
    let modules = [("1_Pooling", "Pooling"), ("2_Dense", "Dense")];
    write_modules(folder.path(), "0_Transformer", &modules);
    fs::create_dir(folder.path().join("2_Dense")).unwrap();
    let dense = json!({"in_features": 64, "out_features": 2, "bias": true,
        "activation_function": "torch.nn.modules.linear.Identity"});
    fs::write(folder.path().join("2_Dense/config.json"), dense.to_string()).unwrap();
    let mut weight = vec![0f32; 128];
    (weight[3], weight[64]) = (2.0, -1.0);
    let tensors = [
        ("linear.weight".to_owned(), Tensor::from_vec([2, 64], weight).unwrap()),
        ("linear.bias".to_owned(), Tensor::from_vec([2], vec![0.5f32, 0.0]).unwrap()),
    ];
    save(&folder.path().join("2_Dense/model.safetensors"), &tensors);
    let expected = mean(rows);
    let expected = [2.0 * expected[3] + 0.5, -expected[0]];
    near(&vectors(&embed(folder.path(), &[]))[0], &expected, "dense");
    let told = json!({"max_seq_length": 4, "do_lower_case": false});
    let config = folder.path().join("0_Transformer/sentence_bert_config.json");
    fs::write(config, told.to_string()).unwrap();
    let prompts = json!({"prompts": {"query": "is it "}, "default_prompt_name": "query"});
    let config = folder.path().join("config_sentence_transformers.json");
    fs::write(config, prompts.to_string()).unwrap();
    let run = embed(folder.path(), &[]);
    assert_eq!(lines(&run)[0]["tokens"], 4);
    assert_eq!(lines(&run)[0]["cut"], true);
    let talk = String::from_utf8_lossy(&run.stderr);
    assert!(talk.contains("1 of 1 texts were cut to 4 word pieces"), "{talk}");
    assert!(talk.contains("`is it ` comes before each text"), "{talk}");
    let refused = said(&embed(folder.path(), &["--prompt", "passage"]));
    assert!(refused.contains("no prompt `passage`") && refused.contains("`query`"), "{refused}");
    // What is no module of a BERT's.
    write_modules(folder.path(), "0_Transformer", &[("1_Pooling", "Pooling"), ("2_LSTM", "LSTM")]);
    let refused = said(&embed(folder.path(), &[]));
    assert!(refused.contains("the module `2_LSTM` is a `LSTM`"), "{refused}");
}

#[test]
fn texts_from_files_pipes_and_json_to_arrays() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let model = demo().to_str().unwrap().to_owned();
    let texts = "The water is cold.\nIs it cold?\n\nthe river\n";
    fs::write(at("a.txt"), texts).unwrap();
    let rows = texts.lines().map(|line| json!({"text": line, "body": "x"}).to_string());
    fs::write(at("a.jsonl"), rows.collect::<Vec<_>>().join("\n")).unwrap();
    let expected = vectors(&frazil(&["predict", "embed", &model, "--file", &at("a.txt")]));
    near(&expected[0], &mean(&golden_rows(0)[0]), "the first");
    assert_eq!(expected.len(), 4);
    assert_eq!(vectors(&piped(&["predict", "embed", &model], texts.as_bytes())), expected);
    assert_eq!(vectors(&frazil(&["predict", "embed", &model, "--file", &at("a.jsonl")])), expected);
    for name in ["v.npy", "v.npz"] {
        let run = frazil(&["predict", "embed", &model, "--file", &at("a.txt"), "-o", &at(name)]);
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        let said = String::from_utf8(run.stdout).unwrap();
        assert!(said.starts_with("4 vectors of 64 numbers are in"), "{said}");
    }
    let npy = npy::open(at("v.npy")).unwrap();
    let npz = Npz::open(at("v.npz")).unwrap().tensor("embeddings").unwrap();
    assert_eq!(**npy.shape(), [4, 64]);
    let flat: Vec<f64> = npy.values::<f32>().unwrap().iter().map(|&x| f64::from(x)).collect();
    near(&flat, &expected.concat(), "npy");
    assert_eq!(npy, npz);
    let other =
        frazil(&["predict", "embed", &model, "--file", &at("a.jsonl"), "--text-column", "body"]);
    let found = vectors(&other);
    assert!(found.iter().all(|vector| *vector == found[0]));
}

#[test]
fn masks_are_filled() {
    let model = demo().join("bert_model.ckpt").to_str().unwrap().to_owned();
    let folder = hugging_face("mlm");
    let other = folder.path().join("model").to_str().unwrap().to_owned();
    let both = hugging_face("pretraining");
    let both = both.path().join("model").to_str().unwrap().to_owned();
    let words = ["predict", "fill-mask"];
    let texts = ["The [MASK] is cold, and [MASK] too.", "[MASK]", "--json", "--top", "3"];
    let run = |model: &str| lines(&frazil(&[&words[..], &[model], &texts].concat()));
    let found = run(&model);
    assert_eq!(found.len(), 2);
    let masks = found[0]["masks"].as_array().unwrap();
    assert_eq!(masks.len(), 2);
    assert_eq!(masks[0]["offsets"], json!([4, 10]));
    for mask in masks {
        let pieces = mask["pieces"].as_array().unwrap();
        let chances: Vec<f64> =
            pieces.iter().map(|piece| piece["probability"].as_f64().unwrap()).collect();
        assert_eq!(chances.len(), 3);
        assert!(chances.is_sorted_by(|a, b| a >= b) && chances[0] < 1.0 && chances[2] > 0.0);
    }
    for model in [&other, &both] {
        let found_too = run(model);
        for (a, b) in found.iter().zip(&found_too) {
            for (a, b) in a["masks"].as_array().unwrap().iter().zip(b["masks"].as_array().unwrap())
            {
                let pieces = |mask: &Value| mask["pieces"].as_array().unwrap().clone();
                for (a, b) in pieces(a).iter().zip(&pieces(b)) {
                    assert_eq!(a["token"], b["token"]);
                    near(
                        &[a["probability"].as_f64().unwrap()],
                        &[b["probability"].as_f64().unwrap()],
                        "p",
                    );
                }
            }
        }
    }
    let plain = frazil(&[&words[..], &[&model, "The [MASK] is cold."]].concat());
    let plain = String::from_utf8(plain.stdout).unwrap();
    assert!(plain.starts_with("The [MASK] is cold.\n  0."), "{plain}");
    assert_eq!(plain.lines().count(), 6);
}

#[test]
fn a_decoder_of_its_own_is_refused() {
    let folder = hugging_face("mlm");
    let path = folder.path().join("model/model.safetensors");
    let store = SafeTensors::open(&path).unwrap();
    let named =
        |info: &frazil::tensor::TensorInfo| (info.name.clone(), store.tensor(&info.name).unwrap());
    let mut tensors: Vec<(String, Tensor)> = store.infos().iter().map(named).collect();
    let decoder = Tensor::from_vec([838, 64], vec![0f32; 838 * 64]).unwrap();
    tensors.push(("cls.predictions.decoder.weight".into(), decoder));
    let copy = tempfile::tempdir().unwrap();
    for file in ["config.json", "vocab.txt"] {
        fs::copy(path.with_file_name(file), copy.path().join(file)).unwrap();
    }
    save(&copy.path().join("model.safetensors"), &tensors);
    let refused =
        said(&frazil(&["predict", "fill-mask", copy.path().to_str().unwrap(), "a [MASK]"]));
    assert!(refused.contains("`cls.predictions.decoder.weight` differs"), "{refused}");
    // Its rows do not need it.
    let run = frazil(&["predict", "embed", copy.path().to_str().unwrap(), "The water is cold."]);
    near(&vectors(&run)[0], &mean(&golden_rows(0)[0]), "without the head");
}

#[test]
fn bad_input_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("empty.txt"), "").unwrap();
    fs::write(at("bad.txt"), b"good\nb\xffad\n").unwrap();
    fs::write(at("bad.jsonl"), "{\"text\": 1}\n").unwrap();
    let vocab = fs::read_to_string(demo().join("vocab.txt")).unwrap();
    fs::write(at("vocab.txt"), vocab + "zzz\n").unwrap();
    let long = "cold ".repeat(200);
    let model = demo().to_str().unwrap().to_owned();
    let checkpoint = demo().join("bert_model.ckpt").to_str().unwrap().to_owned();
    let saved = demo().join("saved_model").to_str().unwrap().to_owned();
    let masked = format!("{long}[MASK]");
    for (words, message) in [
        (vec!["embed", &model, "--file", &at("empty.txt")], "the file is empty"),
        (
            vec!["embed", &model, "--file", &at("bad.txt")],
            "line 2: byte 2 of the line is not UTF-8",
        ),
        (vec!["embed", &model, "--file", &at("bad.jsonl")], "`text` to be a string"),
        (vec!["embed", &model, "--file", &at("none.txt")], "none.txt"),
        (
            vec!["embed", &model, "x", "--layers", "2"],
            "there is no layer 2: the model has 2 layers",
        ),
        (vec!["embed", &model, "x", "--layers=-3"], "layers are 0 to 1, or -1 (the last) to -2"),
        (vec!["embed", &model, "x", "--pooling", "median"], "no pooling `median`"),
        (vec!["embed", &model, "x", "--pooling", "pooler", "--layers", "0"], "the last layer only"),
        (vec!["embed", &model, "x", "--max-seq-length", "129"], "positions for at most 128"),
        (vec!["embed", &model, "x", "--max-seq-length", "2"], "must be at least 3"),
        (vec!["embed", &model, "zzz", "--vocab", &at("vocab.txt")], "`zzz` is 838"),
        (vec!["fill-mask", &checkpoint, "no blank"], "text 1: expected `[MASK]` in the text"),
        (vec!["fill-mask", &checkpoint, &masked], "among the first 128 pieces"),
        (vec!["fill-mask", &checkpoint, "[MASK]", "--top", "0"], "at least 1"),
        (vec!["fill-mask", &saved, "[MASK]"], "predictions of masked words"),
    ] {
        let words = [&["predict"][..], &words].concat();
        let said = said(&frazil(&words));
        assert!(said.contains(message), "{words:?}: {said}");
    }
    // Left out and counted.
    let skip = ["predict", "embed", &model, "--skip-bad-rows", "--file", &at("bad.txt")];
    let run = frazil(&skip);
    assert_eq!(lines(&run).len(), 1);
    let talk = String::from_utf8_lossy(&run.stderr);
    assert!(talk.contains("1 bad rows were skipped"), "{talk}");
    // Too long is cut, and said.
    let run = frazil(&["predict", "embed", &model, &long]);
    assert_eq!(lines(&run)[0]["tokens"], 128);
    let talk = String::from_utf8_lossy(&run.stderr);
    assert!(talk.contains("1 of 1 texts were cut to 128 word pieces"), "{talk}");
}
