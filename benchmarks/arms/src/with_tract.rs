//! tract, on the ONNX file: a plan for each shape, since its plans for open shapes are slower.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use tract_linalg::multithread::{Executor, set_default_executor};
use tract_onnx::prelude::*;

use crate::batch::Batch;
use crate::serve::{Engine, Setup};

/// Plans that are kept; with one for each shape of a workload, all weights are in memory as often.
const KEPT: usize = 4;

/// The file, and the plans that were last needed.
pub struct Tract {
    path: PathBuf,
    plans: HashMap<[usize; 2], Arc<TypedRunnableModel>>,
    order: Vec<[usize; 2]>,
}

impl Tract {
    fn plan(&mut self, shape: [usize; 2]) -> Result<Arc<TypedRunnableModel>> {
        if let Some(plan) = self.plans.get(&shape) {
            return Ok(Arc::clone(plan));
        }
        if self.order.len() == KEPT {
            self.plans.remove(&self.order.remove(0));
        }
        let mut model = tract_onnx::onnx().model_for_path(&self.path)?;
        for input in 0..3 {
            model = model.with_input_fact(input, i32::fact(shape).into())?;
        }
        let plan = model.into_optimized()?.into_runnable()?;
        self.plans.insert(shape, Arc::clone(&plan));
        self.order.push(shape);
        Ok(plan)
    }
}

impl Engine for Tract {
    type Fed = ([usize; 2], TVec<TValue>);
    type Output = TVec<TValue>;

    const VERSION: &'static str = "0.23.9";

    fn load(setup: &Setup) -> Result<Self> {
        setup.only_f32()?;
        set_default_executor(Executor::multithread(setup.threads));
        let path = setup.folder.join("model.onnx");
        let mut tract = Self { path, plans: HashMap::new(), order: Vec::new() };
        tract.plan([1, 128])?;
        Ok(tract)
    }

    fn feed(&mut self, batch: &Batch) -> Result<Self::Fed> {
        let tensor = |values: &[i64]| -> Result<TValue> {
            let narrow: Vec<i32> = values.iter().map(|&value| value as i32).collect();
            Ok(Tensor::from_shape(&batch.shape(), &narrow)?.into())
        };
        let inputs = [&batch.input_ids, &batch.input_mask, &batch.segment_ids];
        let inputs: Result<TVec<TValue>> =
            inputs.into_iter().map(|values| tensor(values)).collect();
        Ok((batch.shape(), inputs?))
    }

    /// A plan that is not there is made within the time, as it is for whoever uses tract so.
    fn run(&mut self, (shape, inputs): &Self::Fed) -> Result<Self::Output> {
        Ok(self.plan(*shape)?.run(inputs.clone())?)
    }

    fn logits(&self, output: Self::Output) -> Result<[Vec<f32>; 2]> {
        let logits = |i: usize| -> Result<Vec<f32>> {
            let value = output.get(i).context("two outputs")?;
            Ok(value.to_plain_array_view::<f32>()?.iter().copied().collect())
        };
        Ok([logits(0)?, logits(1)?])
    }
}
