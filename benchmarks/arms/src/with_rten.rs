//! rten, on the ONNX file.

use std::sync::Arc;

use anyhow::{Context, Result};
use rten::{Model, ModelOptions, NodeId, RunOptions, ThreadPool, Value};
use rten_tensor::prelude::*;
use rten_tensor::{NdTensor, Tensor};

use crate::batch::Batch;
use crate::serve::{Engine, Setup};

/// The model, and the threads to run it with.
pub struct Rten {
    model: Model,
    inputs: [NodeId; 3],
    outputs: [NodeId; 2],
    options: RunOptions,
}

impl Engine for Rten {
    type Fed = [Value; 3];
    type Output = Vec<Value>;

    const VERSION: &'static str = "0.27.0";

    fn load(setup: &Setup) -> Result<Self> {
        setup.only_f32()?;
        let mut options = ModelOptions::with_all_ops();
        options.prepack_weights(true);
        let model = options.load_file(setup.folder.join("model.onnx"))?;
        let node = |name: &str| model.node_id(name).with_context(|| format!("no `{name}`"));
        let inputs = [node("input_ids")?, node("input_mask")?, node("segment_ids")?];
        let outputs = [node("start_logits")?, node("end_logits")?];
        let pool = ThreadPool::with_num_threads(setup.threads);
        let options = RunOptions::default().with_thread_pool(Some(Arc::new(pool)));
        Ok(Self { model, inputs, outputs, options })
    }

    fn feed(&mut self, batch: &Batch) -> Result<Self::Fed> {
        let tensor = |values: &[i64]| -> Value {
            let narrow: Vec<i32> = values.iter().map(|&value| value as i32).collect();
            NdTensor::from_data(batch.shape(), narrow).into()
        };
        Ok([tensor(&batch.input_ids), tensor(&batch.input_mask), tensor(&batch.segment_ids)])
    }

    fn run(&mut self, fed: &Self::Fed) -> Result<Self::Output> {
        let inputs = self.inputs.iter().zip(fed).map(|(&id, value)| (id, value.into())).collect();
        Ok(self.model.run(inputs, &self.outputs, Some(self.options.clone()))?)
    }

    fn logits(&self, output: Self::Output) -> Result<[Vec<f32>; 2]> {
        let mut logits = output.into_iter().map(|value| -> Result<Vec<f32>> {
            let tensor: Tensor<f32> = value.try_into()?;
            Ok(tensor.to_vec())
        });
        let mut next = || logits.next().context("two outputs")?;
        Ok([next()?, next()?])
    }
}
