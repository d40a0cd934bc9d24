//! frazil's engine, on the checkpoint; int8 with ranges seen on generated sequences.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use frazil::bert::Head;
use frazil::graph::Graph;
use frazil::runtime::{Engine as Runtime, EngineOptions, Inputs, Ranges};
use frazil::source::{GraphOptions, open_graph};
use frazil::tensor::Tensor;
use frazil_kernels::par::Pool;
use frazil_kernels::peak;
use serde_json::{Value, json};

use crate::batch::Batch;
use crate::serve::{Engine, Setup};

/// The file that [`Engine::prepare`] writes.
const RANGES: &str = "frazil-ranges.json";

/// The engine.
pub struct Frazil {
    engine: Runtime,
}

impl Engine for Frazil {
    type Fed = Inputs;
    type Output = Vec<(String, Tensor)>;

    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn prepare(setup: &Setup) -> Result<()> {
        if setup.precision != "int8" {
            return Ok(());
        }
        let engine = Runtime::new(&graph(setup)?, &options(setup))?;
        let mut ranges = Ranges::new();
        for batch in Batch::calibration(setup.size("vocab_size")?) {
            engine.observe(&inputs(&batch)?, &mut ranges)?;
        }
        Ok(std::fs::write(setup.folder.join(RANGES), serde_json::to_string(&ranges)?)?)
    }

    fn load(setup: &Setup) -> Result<Self> {
        let mut options = options(setup);
        options.int8 = match setup.precision.as_str() {
            "f32" => None,
            "int8" => {
                let text = std::fs::read_to_string(setup.folder.join(RANGES))?;
                Some(serde_json::from_str(&text)?)
            }
            other => bail!("this engine does not run with `{other}`"),
        };
        Ok(Self { engine: Runtime::new(&graph(setup)?, &options)? })
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
        json!({ "kernels": self.engine.isa().name(), "slow": slow.collect::<Vec<_>>() })
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

fn graph(setup: &Setup) -> Result<Graph> {
    let options = GraphOptions { head: Some(Head::Squad), ..GraphOptions::default() };
    Ok(open_graph(setup.folder.join("bert_model.ckpt"), &options)?.graph)
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
