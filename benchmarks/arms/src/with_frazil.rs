//! frazil's engine, on the checkpoint; int8 compiled, with ranges seen on generated sequences. How soon
//! a compiled model answers is measured while preparing, and told along with the rest.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use frazil::bert::Head;
use frazil::graph::Graph;
use frazil::ops::bench::Model;
use frazil::ops::compile::{self, Compiled};
use frazil::ops::minmax;
use frazil::runtime::{Engine as Runtime, EngineOptions, Inputs};
use frazil::source::{GraphOptions, open_graph};
use frazil::tensor::Tensor;
use frazil_kernels::par::Pool;
use frazil_kernels::{Isa, peak};
use serde_json::{Value, json};

use crate::batch::Batch;
use crate::serve::{Engine, Setup};

/// The files that [`Engine::prepare`] writes.
const COMPILED: &str = "model.frazil";
const COMPILED_INT8: &str = "model-int8.frazil";

/// The engine.
pub struct Frazil {
    engine: Runtime,
    /// With f32.
    compiled_first_seconds: Option<f64>,
}

impl Engine for Frazil {
    type Fed = Inputs;
    type Output = Vec<(String, Tensor)>;

    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn prepare(setup: &Setup) -> Result<()> {
        if setup.precision == "f32" {
            return compiled(setup);
        }
        let path = setup.folder.join(COMPILED_INT8);
        if Compiled::open(&path).is_err() {
            let mut graph = graph(setup)?;
            let batches = Batch::calibration(setup.size("vocab_size")?);
            let batches = batches.map(|batch| inputs(&batch)).collect::<Result<Vec<_>>>()?;
            minmax::by_batches(&mut graph, &batches)?;
            compile::store(&graph, &path, &[Isa::detect()])?;
        }
        Ok(())
    }

    fn load(setup: &Setup) -> Result<Self> {
        let options = options(setup);
        let (engine, compiled_first_seconds) = match setup.precision.as_str() {
            "f32" => {
                let first = compiled_first_seconds(setup)?;
                (Runtime::from_graph(graph(setup)?, &options)?, Some(first))
            }
            "int8" => {
                (Compiled::open(&setup.folder.join(COMPILED_INT8))?.engine(&options)?, None)
            }
            other => bail!("this engine does not run with `{other}`"),
        };
        Ok(Self { engine, compiled_first_seconds })
    }

    fn feed(&mut self, batch: &Batch) -> Result<Self::Fed> {
        inputs(batch)
    }

    fn run(&mut self, fed: &Self::Fed) -> Result<Self::Output> {
        Ok(self.engine.run(fed)?.outputs)
    }

    fn logits(&self, output: Self::Output) -> Result<[Vec<f32>; 2]> {
        let logits = |name: &str| -> Result<Vec<f32>> {
            let found = output.iter().find(|(output, _)| output == name);
            let (_, tensor) = found.with_context(|| format!("no `{name}`"))?;
            Ok(tensor.values::<f32>()?.to_vec())
        };
        Ok([logits("start_logits")?, logits("end_logits")?])
    }

    fn about(&self) -> Value {
        let slow = self.engine.slow().iter().map(|(node, why)| format!("`{node}`: {why}"));
        json!({
            "kernels": self.engine.isa().name(),
            "slow": slow.collect::<Vec<_>>(),
            "compiled_first_seconds": self.compiled_first_seconds,
        })
    }

    fn peaks(&self) -> Result<Value> {
        let (isa, pool) = (self.engine.isa(), Pool::new(self.engine.threads()));
        let memory = vec![1.0f32; 64 << 20];
        Ok(json!({
            "isa": isa.name(),
            "threads": pool.threads(),
            "f32_gflops": peak::multiply_f32(&pool, isa),
            "int8_gops": peak::multiply_i8(&pool, isa),
            "memory_gbs": peak::read(&pool, isa, &memory),
        }))
    }
}

/// Writes the compiled model, unless this version has.
fn compiled(setup: &Setup) -> Result<()> {
    let path = setup.folder.join(COMPILED);
    if Compiled::open(&path).is_err() {
        let model = Model::File(setup.folder.join("bert_model.ckpt"), Box::new(head()));
        compile::compile(&model, &path, &compile::Options::default())?;
    }
    Ok(())
}

/// From opening a compiled model, whose file is warm, to its answer for 1 x 128.
fn compiled_first_seconds(setup: &Setup) -> Result<f64> {
    let path = setup.folder.join(COMPILED);
    drop(fs::read(&path)?);
    let fed = Batch::calibration(setup.size("vocab_size")?).next().context("a sequence")?;
    let fed = inputs(&fed)?;
    let start = Instant::now();
    Compiled::open(&path)?.engine(&options(setup))?.run(&fed)?;
    Ok(start.elapsed().as_secs_f64())
}

fn head() -> GraphOptions {
    GraphOptions { head: Some(Head::Squad), ..GraphOptions::default() }
}

fn graph(setup: &Setup) -> Result<Graph> {
    Ok(open_graph(setup.folder.join("bert_model.ckpt"), &head())?.graph)
}

fn options(setup: &Setup) -> EngineOptions {
    EngineOptions { threads: Some(setup.threads), ..EngineOptions::default() }
}

fn inputs(batch: &Batch) -> Result<Inputs> {
    let tensor = |values: &[i64]| -> Result<Tensor> {
        let narrow: Vec<i32> = values.iter().map(|&value| value as i32).collect();
        Ok(Tensor::from_vec(batch.shape(), narrow)?)
    };
    Ok(BTreeMap::from([
        ("input_ids".to_owned(), tensor(&batch.input_ids)?),
        ("input_mask".to_owned(), tensor(&batch.input_mask)?),
        ("segment_ids".to_owned(), tensor(&batch.segment_ids)?),
    ]))
}
