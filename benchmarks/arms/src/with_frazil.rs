//! frazil's engine, on the checkpoint.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use frazil::bert::Head;
use frazil::runtime::{Engine as Runtime, EngineOptions, Inputs};
use frazil::source::{GraphOptions, open_graph};
use frazil::tensor::Tensor;
use frazil_kernels::par::Pool;
use frazil_kernels::peak;
use serde_json::{Value, json};

use crate::batch::Batch;
use crate::serve::{Engine, Setup};

/// The engine.
pub struct Frazil {
    engine: Runtime,
}

impl Engine for Frazil {
    type Fed = Inputs;
    type Output = Vec<(String, Tensor)>;

    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn load(setup: &Setup) -> Result<Self> {
        let options = GraphOptions { head: Some(Head::Squad), ..GraphOptions::default() };
        let graph = open_graph(setup.folder.join("bert_model.ckpt"), &options)?.graph;
        let mut options = EngineOptions::default();
        options.threads = Some(setup.threads);
        match setup.precision.as_str() {
            "f32" => {}
            other => bail!("this engine does not run with `{other}`"),
        }
        Ok(Self { engine: Runtime::new(&graph, &options)? })
    }

    fn feed(&mut self, batch: &Batch) -> Result<Self::Fed> {
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
