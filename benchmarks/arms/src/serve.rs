//! The loop: load, say so, answer until stdin ends.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::batch::{Batch, Request};

/// What to load and how.
pub struct Setup {
    /// `f32` or `int8`.
    pub precision: String,
    /// The folder of the model: `bert_config.json` and the same weights in several formats.
    pub folder: PathBuf,
    /// Threads to compute with.
    pub threads: usize,
    /// Only write what is needed besides.
    pub prepare: bool,
}

impl Setup {
    /// The model's configuration.
    pub fn config(&self) -> Result<Value> {
        let path = self.folder.join("bert_config.json");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("reading `{}`", path.display()))?;
        Ok(serde_json::from_str(&text)?)
    }

    /// One number of the configuration.
    pub fn size(&self, key: &str) -> Result<usize> {
        let config = self.config()?;
        let size = config[key].as_u64().and_then(|size| usize::try_from(size).ok());
        size.with_context(|| format!("bert_config.json has no number `{key}`"))
    }

    /// For engines that have one precision only.
    pub fn only_f32(&self) -> Result<()> {
        ensure!(self.precision == "f32", "this engine is run with f32 only");
        Ok(())
    }
}

/// An engine with a model in it.
pub trait Engine: Sized {
    /// The inputs of a batch, as the engine takes them.
    type Fed;
    /// What a run gives, as the engine gives it.
    type Output;

    /// The engine's version.
    const VERSION: &'static str;

    /// Writes into the folder what loading needs besides, for int8 for example.
    fn prepare(_setup: &Setup) -> Result<()> {
        Ok(())
    }

    /// Loads the model.
    fn load(setup: &Setup) -> Result<Self>;

    /// Makes the inputs; not timed.
    fn feed(&mut self, batch: &Batch) -> Result<Self::Fed>;

    /// Runs; timed.
    fn run(&mut self, fed: &Self::Fed) -> Result<Self::Output>;

    /// The logits of starts and ends, `[b, s]` each; not timed.
    fn logits(&self, output: Self::Output) -> Result<[Vec<f32>; 2]>;

    /// What else is worth recording, `kernels` for example.
    fn about(&self) -> Value {
        json!({})
    }

    /// What the machine can do at most, from an engine that measures it.
    fn peaks(&self) -> Result<Value> {
        bail!("this engine measures no peaks")
    }
}

/// Loads, and answers every line of stdin.
pub fn serve<E: Engine>(setup: &Setup) -> Result<()> {
    if setup.prepare {
        return E::prepare(setup);
    }
    let vocabulary = setup.size("vocab_size")?;
    let mut out = std::io::stdout().lock();
    let mut say = |value: Value| -> Result<()> {
        writeln!(out, "{value}")?;
        Ok(out.flush()?)
    };
    let start = Instant::now();
    let mut engine = E::load(setup)?;
    let load_seconds = start.elapsed().as_secs_f64();
    let first = r#"{"batches": [[128]], "repeat": 1}"#;
    answer(&mut engine, serde_json::from_str(first)?, vocabulary, &mut HashMap::new())?;
    say(json!({
        "version": E::VERSION,
        "load_seconds": load_seconds,
        "first_seconds": start.elapsed().as_secs_f64(),
        "about": engine.about(),
    }))?;
    let mut prepared = HashMap::new();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let request = serde_json::from_str(&line).context("a request that is none");
        let found =
            request.and_then(|request| answer(&mut engine, request, vocabulary, &mut prepared));
        say(found.unwrap_or_else(|error| json!({ "error": format!("{error:#}") })))?;
    }
    Ok(())
}

/// Inputs that were made before, by their batches and padding: workloads come round again.
type Prepared<F> = HashMap<(Vec<Vec<usize>>, Option<usize>), Vec<(Batch, F)>>;

fn answer<E: Engine>(
    engine: &mut E,
    request: Request,
    vocabulary: usize,
    prepared: &mut Prepared<E::Fed>,
) -> Result<Value> {
    if request.peaks {
        return engine.peaks();
    }
    let key = (request.batches.clone(), request.pad);
    if !prepared.contains_key(&key) {
        let fed = Batch::all(&request, vocabulary).into_iter().map(|batch| {
            let fed = engine.feed(&batch)?;
            Ok((batch, fed))
        });
        let fed = fed.collect::<Result<Vec<_>>>()?;
        prepared.insert(key.clone(), fed);
    }
    let batches = &prepared[&key];
    for _ in 0..request.warm {
        for (_, fed) in batches {
            engine.run(fed)?;
        }
    }
    let mut seconds = Vec::with_capacity(request.repeat);
    for _ in 0..request.repeat {
        let start = Instant::now();
        for (_, fed) in batches {
            engine.run(fed)?;
        }
        seconds.push(start.elapsed().as_secs_f64());
    }
    let mut answer = json!({ "seconds": seconds });
    if request.outputs {
        let mut real: Vec<f32> = Vec::new();
        for (batch, fed) in batches {
            let output = engine.run(fed)?;
            for logits in engine.logits(output)? {
                let [b, s] = batch.shape();
                ensure!(logits.len() == b * s, "{} logits for {b} x {s}", logits.len());
                real.extend(batch.real(&logits));
            }
        }
        answer["outputs"] = json!(real);
    }
    Ok(answer)
}
