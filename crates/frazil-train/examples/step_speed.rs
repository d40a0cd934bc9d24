//! How long a training step takes, and where the time goes.
//!
//! `cargo run --release -p frazil-train --example step_speed -- [base|small|tiny] [BATCH] [LENGTH] [STEPS]
//! [--lengths A-B] [--dropout] [--recompute] [--pretraining] [--threads N]`
//!
//! `base` is BERT-base (the default), `small` 4 layers of 256, `tiny` 2 layers of 128. Weights are random.
//! With `--lengths`, sequences are of lengths between A and B instead of filling LENGTH.

#![allow(clippy::print_stdout, reason = "the measurement is what is asked for")]

use std::collections::BTreeMap;
use std::time::Instant;

use frazil_bert::build::{self, build};
use frazil_bert::{BertConfig, Head};
use frazil_runtime::{EngineOptions, Inputs};
use frazil_tensor::Tensor;
use frazil_train::dropout::Rates;
use frazil_train::loss;
use frazil_train::optim::{self, Adam, Method};
use frazil_train::schedule::Schedule;
use frazil_train::trainer::{Options, Trainer};

type Any = Box<dyn std::error::Error>;

/// What was asked for.
struct Asked {
    config: BertConfig,
    batch: usize,
    length: usize,
    steps: usize,
    lengths: Option<(usize, usize)>,
    head: Head,
    options: Options,
}

fn asked() -> Result<Asked, Any> {
    let mut options = Options::bert(Schedule::Constant(1e-5));
    options.optimizer = optim::Options::new(Method::Adam(Adam::DECOUPLED), Some(1.0));
    let (mut plain, mut lengths, mut head) = (Vec::new(), None, Head::Classifier);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--dropout" => {
                options.dropout = Some(Rates { hidden: 0.1, attention: 0.1, pooled: 0.1 });
            }
            "--recompute" => options.recompute = true,
            "--padded" => options.packed = false,
            "--pretraining" => head = Head::Pretraining,
            "--threads" => {
                let threads = Some(args.next().ok_or("--threads N")?.parse()?);
                options.engine = EngineOptions { threads, ..options.engine };
            }
            "--lengths" => {
                let given = args.next().ok_or("--lengths A-B")?;
                let (from, to) = given.split_once('-').ok_or("--lengths A-B")?;
                lengths = Some((from.parse()?, to.parse()?));
            }
            _ => plain.push(arg),
        }
    }
    let number = |i: usize, otherwise: usize| match plain.get(i) {
        Some(given) => given.parse(),
        None => Ok(otherwise),
    };
    let (layers, hidden) = match plain.first().map(String::as_str) {
        None | Some("base") => (12, 768),
        Some("small") => (4, 256),
        Some("tiny") => (2, 128),
        Some(other) => return Err(format!("`{other}` is none of base, small, tiny").into()),
    };
    let config = BertConfig {
        hidden_size: hidden,
        num_hidden_layers: layers,
        num_attention_heads: hidden / 64,
        intermediate_size: 4 * hidden,
        type_vocab_size: 2,
        ..BertConfig::new(30522)
    };
    let (batch, length, steps) = (number(1, 8)?, number(2, 128)?, number(3, 5)?);
    Ok(Asked { config, batch, length, steps, lengths, head, options })
}

/// Numbers without a pattern, the same every time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }
}

fn batch(asked: &Asked, numbers: &mut Numbers) -> Result<(Inputs, usize), Any> {
    let (b, s) = (asked.batch, asked.length);
    let mut lengths = vec![s; b];
    if let Some((from, to)) = asked.lengths {
        lengths.fill_with(|| from + numbers.next() as usize % (to - from + 1));
    }
    let rows = lengths.iter().sum();
    let ids = (0..b * s).map(|_| (numbers.next() % 30522) as i32).collect();
    let mask = lengths.iter().flat_map(|&len| (0..s).map(move |i| i32::from(i < len))).collect();
    let mut inputs = Inputs::new();
    let mut put = |name: &str, shape: Vec<usize>, values: Vec<i32>| -> Result<(), Any> {
        inputs.insert(name.to_owned(), Tensor::from_vec(shape, values)?);
        Ok(())
    };
    put("input_ids", vec![b, s], ids)?;
    put("input_mask", vec![b, s], mask)?;
    put("segment_ids", vec![b, s], vec![0; b * s])?;
    if asked.head == Head::Classifier {
        put("label_ids", vec![b], (0..b).map(|i| (i % 2) as i32).collect())?;
    } else {
        let most = 20;
        let places = (0..b * most).map(|i| (i % most) as i32 + 1).collect();
        put("masked_lm_positions", vec![b, most], places)?;
        let words = (0..b * most).map(|_| (numbers.next() % 30522) as i32).collect();
        put("masked_lm_ids", vec![b, most], words)?;
        put("next_sentence_labels", vec![b, 1], (0..b).map(|i| (i % 2) as i32).collect())?;
        let weights = Tensor::from_vec(vec![b, most], vec![1f32; b * most])?;
        inputs.insert("masked_lm_weights".into(), weights);
    }
    Ok((inputs, rows))
}

fn main() -> Result<(), Any> {
    let asked = asked()?;
    let mut graph = build(&asked.config, asked.head, &build::Options::default())?;
    loss::attach(&mut graph, asked.head, loss::Options::default())?;
    let mut trainer = Trainer::new(graph, asked.options.clone())?;
    let mut numbers = Numbers(1);
    let [parameters, _] = trainer.parameters_mut();
    for at in 0..parameters.len() {
        let one = parameters.name(at).ends_with("gamma");
        for value in parameters.values_mut(at) {
            *value =
                if one { 1.0 } else { (numbers.next() as f32 / (1u64 << 31) as f32 - 0.5) * 0.04 };
        }
    }
    let (inputs, rows) = batch(&asked, &mut numbers)?;
    let engine = trainer.engine();
    println!(
        "{} on {} threads, {} sequences of {}, {rows} rows",
        engine.isa(),
        engine.threads(),
        asked.batch,
        asked.length
    );
    for (node, why) in engine.slow().iter().take(10) {
        println!("slow: {node}: {why}");
    }
    let mut best = f64::INFINITY;
    for _ in 0..asked.steps {
        let start = Instant::now();
        let report = trainer.step(&[&inputs])?;
        let seconds = start.elapsed().as_secs_f64();
        best = best.min(seconds);
        println!("{:8.1} ms   loss {:.5}  norm {:.3}", 1e3 * seconds, report.loss, report.norm);
    }
    let times = trainer.profile(&inputs)?;
    let (mut kinds, mut operations) = (BTreeMap::new(), 0.0);
    for time in &times {
        let entry: &mut (usize, f64, f64) = kinds.entry(time.kind.clone()).or_default();
        *entry = (entry.0 + 1, entry.1 + time.seconds, entry.2 + time.operations);
        operations += time.operations;
    }
    let total: f64 = times.iter().map(|time| time.seconds).sum();
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by(|a, b| b.1.1.total_cmp(&a.1.1));
    println!("{:<34} {:>5} {:>9} {:>9}", "kind", "count", "ms", "GFLOP/s");
    for (kind, (count, seconds, operations)) in kinds {
        let speed = operations / seconds / 1e9;
        println!("{kind:<34} {count:>5} {:>9.2} {speed:>9.1}", 1e3 * seconds);
    }
    println!("best step {:.1} ms, of which loss and gradients {:.1} ms", 1e3 * best, 1e3 * total);
    println!("{:.1} GFLOP, {:.1} GFLOP/s over the step", operations / 1e9, operations / best / 1e9);
    if let Some(line) =
        std::fs::read_to_string("/proc/self/status")?.lines().find(|line| line.starts_with("VmHWM"))
    {
        println!("{line}");
    }
    Ok(())
}
