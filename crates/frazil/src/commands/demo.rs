//! `frazil demo`: the embedded model on the whole road, with the line for the user's own files.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use frazil::tensor::npy::NpzWriter;
use frazil::tensor::{Tensor, file};

use crate::cli::{self, Outcome};

/// Take the embedded model through every command, and show the line for your own files
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil demo
  frazil demo --dir /tmp/tour")]
pub struct Args {
    /// Where to put the model and what is made of it
    #[arg(long, default_value = FOLDER, value_name = "FOLDER")]
    dir: PathBuf,
}

const FOLDER: &str = "frazil-demo";

impl Default for Args {
    fn default() -> Self {
        Self { dir: FOLDER.into() }
    }
}

/// The embedded model: a TensorFlow 1 checkpoint as Google ships them, and a SavedModel.
macro_rules! asset {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../../assets/demo/", $name)).as_slice())
    };
}
const MODEL: [(&str, &[u8]); 11] = [
    asset!("bert_config.json"),
    asset!("vocab.txt"),
    asset!("bert_model.ckpt.index"),
    asset!("bert_model.ckpt.data-00000-of-00001"),
    asset!("bert_model.ckpt.meta"),
    asset!("saved_model/saved_model.pb"),
    asset!("saved_model/variables/variables.index"),
    asset!("saved_model/variables/variables.data-00000-of-00001"),
    asset!("squad/model.ckpt.index"),
    asset!("squad/model.ckpt.data-00000-of-00001"),
    asset!("squad/dev-v1.1.json"),
];

/// What every folder with weights has beside them.
const BESIDE: [&str; 2] = ["bert_config.json", "vocab.txt"];

/// One step of the road: `{}` stands for the demo's folder.
struct Step {
    title: &'static str,
    line: &'static str,
    yours: &'static str,
}

const STEPS: [Step; 16] = [
    Step {
        title: "What is in a checkpoint",
        line: "inspect {}/bert_model.ckpt",
        yours: "inspect uncased_L-12_H-768_A-12.zip",
    },
    Step {
        title: "What a graph takes and gives, and which sizes are baked in",
        line: "inspect {}/bert_model.ckpt.meta",
        yours: "inspect model.ckpt-1000.meta",
    },
    Step {
        title: "The old tool, the same answer",
        line: "saved_model_cli show --dir {}/saved_model --tag_set serve --signature_def serving_default",
        yours: "saved_model_cli show --dir export/1571234567 --all",
    },
    Step {
        title: "One variable, its statistics and values",
        line: "inspect {}/saved_model --tensor output_weights",
        yours: "inspect model.ckpt-1000 --tensor NAME --npz weights.npz",
    },
    Step {
        title: "Weights for Hugging Face",
        line: "export-weights {}/bert_model.ckpt --names huggingface -o {}/huggingface/model.safetensors",
        yours: "export-weights model.ckpt-1000 --names huggingface -o model/model.safetensors",
    },
    Step {
        title: "And back to a TensorFlow 1 checkpoint",
        line: "import-weights {}/huggingface/model.safetensors -o {}/back/bert_model.ckpt",
        yours: "import-weights model/model.safetensors -o model.ckpt",
    },
    Step {
        title: "Nothing was lost on the way",
        line: "verify-weights {}/bert_model.ckpt {}/back/bert_model.ckpt --config {}/bert_config.json",
        yours: "verify-weights model.ckpt-1000 frozen.pb --task SQUAD",
    },
    Step {
        title: "One frozen graph from the weights alone: no graph, no TensorFlow",
        line: "freeze {}/bert_model.ckpt --head encoder -o {}/encoder.pb",
        yours: "freeze uncased_L-12_H-768_A-12/bert_model.ckpt --head encoder -o bert.pb",
    },
    Step {
        title: "The old tool again, on a SavedModel",
        line: "freeze_graph --input_saved_model_dir={}/saved_model --output_node_names=loss/output --output_graph={}/frozen.pb",
        yours: "freeze_graph --input_meta_graph=model.ckpt-0.meta --input_checkpoint=model.ckpt-0 --output_node_names=add_1 --output_graph=frozen.pb --input_binary=True",
    },
    Step {
        title: "A batch and a length that were baked in are open",
        line: "reshape {}/frozen.pb --batch dynamic --seq dynamic -o {}/any.pb",
        yours: "reshape bert_model.ckpt.meta --batch dynamic --seq dynamic -o any.pb",
    },
    Step {
        title: "ONNX, opened again and run beside its source",
        line: "convert {}/any.pb --to onnx -o {}/model.onnx --verify",
        yours: "convert model.ckpt-1000 --to onnx -o model.onnx --verify",
    },
    Step {
        title: "Model Optimizer's own command line",
        line: "mo --input_meta_graph {}/bert_model.ckpt.meta --output bert/pooler/dense/Tanh --input Placeholder{i32},Placeholder_1{i32},Placeholder_2{i32} --output_dir {} --model_name bert",
        yours: "mo --input_model inference_graph.pb --input \"IteratorGetNext:0{i32}[1 128],IteratorGetNext:1{i32}[1 128],IteratorGetNext:4{i32}[1 128]\"",
    },
    Step {
        title: "And run",
        line: "run {}/model.onnx --inputs {}/inputs.npz --outputs {}/outputs.npz",
        yours: "run model.ckpt-1000 --inputs batch.npz --outputs out.npz",
    },
    Step {
        title: "Questions answered, by a model that was fine-tuned on them",
        line: "predict answer {}/squad {}/squad/dev-v1.1.json",
        yours: "predict answer squad_model dev-v1.1.json --output-dir out",
    },
    Step {
        title: "Packed for this CPU, in a file that is mapped: the next start is quick",
        line: "compile {}/any.pb -o {}/any.frazil",
        yours: "compile model.ckpt-1000 -o model.frazil",
    },
    Step {
        title: "How fast that is here, and what padding would cost",
        line: "bench {}/any.frazil --batch 8 --lengths mrpc --sequences 32 --iterations 20 --compare padded,packed",
        yours: "bench model.ckpt-1000 --batch 8 --lengths squad --compare padded,packed --profile",
    },
];

/// Two short pairs of sentences, by their word pieces.
const IDS: [[i32; 12]; 2] = [
    [2, 131, 97, 246, 105, 3, 131, 97, 340, 105, 3, 0],
    [2, 131, 180, 3, 131, 311, 97, 105, 3, 0, 0, 0],
];
/// Where the second sentence of each begins.
const SECOND: [usize; 2] = [6, 4];

/// What the model is run on.
fn write_inputs(path: &Path) -> Result<()> {
    let row = |value: &dyn Fn(usize, usize) -> i32| -> Result<Tensor> {
        let all = (0..IDS.len()).flat_map(|i| (0..IDS[0].len()).map(move |j| (i, j)));
        let values = all.map(|(i, j)| value(i, j)).collect();
        Ok(Tensor::from_vec([IDS.len(), IDS[0].len()], values)?)
    };
    let text = |i: usize, j: usize| IDS[i][j] != 0;
    let mut npz = NpzWriter::create(path)?;
    npz.add("input_ids", &row(&|i, j| IDS[i][j])?)?;
    npz.add("input_mask", &row(&|i, j| i32::from(text(i, j)))?)?;
    npz.add("segment_ids", &row(&|i, j| i32::from(text(i, j) && j >= SECOND[i]))?)?;
    Ok(npz.finish()?)
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    let folder = &args.dir;
    for (name, contents) in MODEL {
        put(&folder.join(name), contents)?;
    }
    // Beside the weights, as a fine-tuned model's folder has them.
    for (name, contents) in MODEL.iter().filter(|(name, _)| BESIDE.contains(name)) {
        put(&folder.join("squad").join(name), contents)?;
    }
    for made in ["huggingface", "back"] {
        std::fs::create_dir_all(folder.join(made))?;
    }
    write_inputs(&folder.join("inputs.npz"))?;
    writeln!(
        out,
        "The embedded model, a small BERT from TensorFlow 1.15, is in `{}`.",
        folder.display()
    )?;
    let mut outcome = Outcome::Done;
    for (i, step) in STEPS.iter().enumerate() {
        let line = step.line.replace("{}", &folder.display().to_string());
        writeln!(out, "\n{}. {}\n\n$ frazil {line}\n", i + 1, step.title)?;
        let words =
            step.line.split(' ').map(|word| word.replace("{}", &folder.display().to_string()));
        if cli::run(words, out)? == Outcome::CheckFailed {
            outcome = Outcome::CheckFailed;
        }
        writeln!(out, "\nfor your own files:  frazil {}", step.yours)?;
    }
    writeln!(out, "\n`frazil --help` lists the commands, `frazil COMMAND --help` their options.")?;
    Ok(outcome)
}

fn put(path: &Path, contents: &[u8]) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    Ok(file::write(path, contents)?)
}
