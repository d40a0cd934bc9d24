//! frazil's side of `cargo xtask bench train`: fine-tuning steps on request.
//!
//! `step_rounds FOLDER THREADS`, where FOLDER has `bert_config.json` and the checkpoint `bert_model.ckpt` of a
//! classifier. Requests and answers are lines of JSON, as `xtask/peers/bench_train.py` tells. Batches are fed
//! padded, as a user's are; what is not needed is dropped inside.

#![allow(clippy::print_stdout, reason = "answers are what is asked for")]

use std::io::{BufRead, Write, stdin, stdout};
use std::path::{Path, PathBuf};
use std::time::Instant;

use frazil_bert::build::{self, build};
use frazil_bert::{BertConfig, Head};
use frazil_runtime::{EngineOptions, Inputs};
use frazil_tensor::Tensor;
use frazil_tf::checkpoint::{Checkpoint, Options as CheckpointOptions};
use frazil_train::dropout::Rates;
use frazil_train::loss;
use frazil_train::optim::{self, Adam, Method};
use frazil_train::schedule::Schedule;
use frazil_train::trainer::{Options, Trainer};
use serde_json::{Value, json};

type Any = Box<dyn std::error::Error>;

/// As in the script.
const RATE: f64 = 1e-5;

fn trainer(
    config: &BertConfig,
    folder: &Path,
    threads: usize,
    dropout: Option<f32>,
) -> Result<Trainer, Any> {
    let mut graph = build(config, Head::Classifier, &build::Options::default())?;
    loss::attach(&mut graph, Head::Classifier, loss::Options::default())?;
    let mut trainer = Trainer::new(
        graph,
        Options {
            optimizer: optim::Options::new(Method::Adam(Adam::DECOUPLED), Some(1.0)),
            dropout: dropout.map(|rate| Rates { hidden: rate, attention: rate, pooled: rate }),
            norm_of_rows: false,
            engine: EngineOptions { threads: Some(threads), ..EngineOptions::default() },
            ..Options::bert(Schedule::Constant(RATE))
        },
    )?;
    let weights = Checkpoint::open(folder.join("bert_model.ckpt"), CheckpointOptions::default())?;
    trainer.load(&weights)?;
    Ok(trainer)
}

/// `[b, s]`; the same ids as the script's.
fn batch(lengths: &[usize], s: usize, vocabulary: usize) -> Result<Inputs, Any> {
    let b = lengths.len();
    let (mut ids, mut mask) = (vec![0i32; b * s], vec![0i32; b * s]);
    for (row, &length) in lengths.iter().enumerate() {
        for place in 0..length.min(s) {
            let id = (place * 7919 + row * 104_729 + length) % vocabulary;
            (ids[row * s + place], mask[row * s + place]) = (id as i32, 1);
        }
    }
    let labels = (0..b).map(|row| (row % 2) as i32).collect();
    let mut inputs = Inputs::new();
    let mut put = |name: &str, shape: Vec<usize>, values: Vec<i32>| -> Result<(), Any> {
        inputs.insert(name.to_owned(), Tensor::from_vec(shape, values)?);
        Ok(())
    };
    put("input_ids", vec![b, s], ids)?;
    put("input_mask", vec![b, s], mask)?;
    put("segment_ids", vec![b, s], vec![0; b * s])?;
    put("label_ids", vec![b], labels)?;
    Ok(inputs)
}

fn batches(request: &Value, vocabulary: usize) -> Result<Vec<Inputs>, Any> {
    let pad = request["pad"].as_u64().ok_or("`pad` is a number")? as usize;
    let lengths: Vec<Vec<usize>> = serde_json::from_value(request["batches"].clone())?;
    lengths.iter().map(|lengths| batch(lengths, pad, vocabulary)).collect()
}

fn main() -> Result<(), Any> {
    let mut args = std::env::args().skip(1);
    let folder = PathBuf::from(args.next().ok_or("FOLDER THREADS")?);
    let threads = args.next().ok_or("FOLDER THREADS")?.parse()?;
    let config = BertConfig::read(folder.join("bert_config.json"))?;
    let mut training: Option<Trainer> = None;
    let say = |answer: Value| -> Result<(), Any> {
        println!("{answer}");
        Ok(stdout().flush()?)
    };
    say(json!({ "ready": true }))?;
    for line in stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let batches = batches(&request, config.vocab_size)?;
        if request["check"] == json!(true) {
            let first = batches.first().ok_or("no batch")?;
            let report = trainer(&config, &folder, threads, None)?.step(&[first])?;
            say(json!({ "loss": report.loss, "norm": report.norm }))?;
            continue;
        }
        let trainer = match &mut training {
            Some(trainer) => trainer,
            none => none.insert(trainer(&config, &folder, threads, Some(0.1))?),
        };
        let mut seconds = Vec::new();
        for batch in &batches {
            let start = Instant::now();
            trainer.step(&[batch])?;
            seconds.push(start.elapsed().as_secs_f64());
        }
        say(json!({ "seconds": seconds }))?;
    }
    Ok(())
}
