//! candle, with the BERT of candle-transformers and a SQuAD head on it.

use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use candle_nn::{Linear, Module, VarBuilder};
use candle_transformers::models::bert::{BertModel, Config, HiddenAct};

use crate::batch::Batch;
use crate::serve::{Engine, Setup};

/// The encoder and the head.
pub struct Candle {
    bert: BertModel,
    head: Linear,
}

impl Engine for Candle {
    type Fed = [Tensor; 3];
    type Output = Tensor; // [b, s, 2]

    const VERSION: &'static str = "0.11.1";

    fn load(setup: &Setup) -> Result<Self> {
        setup.only_f32()?;
        rayon::ThreadPoolBuilder::new().num_threads(setup.threads).build_global()?;
        let config = Config {
            vocab_size: setup.size("vocab_size")?,
            hidden_size: setup.size("hidden_size")?,
            num_hidden_layers: setup.size("num_hidden_layers")?,
            num_attention_heads: setup.size("num_attention_heads")?,
            intermediate_size: setup.size("intermediate_size")?,
            max_position_embeddings: setup.size("max_position_embeddings")?,
            hidden_act: HiddenAct::GeluApproximate,
            layer_norm_eps: 1e-12,
            ..Config::default()
        };
        let path = setup.folder.join("huggingface/model.safetensors");
        let bytes = std::fs::read(path)?;
        let weights = VarBuilder::from_buffered_safetensors(bytes, DType::F32, &Device::Cpu)?;
        let head = candle_nn::linear(config.hidden_size, 2, weights.pp("qa_outputs"))?;
        let bert = BertModel::load(weights.pp("bert"), &config)?;
        Ok(Self { bert, head })
    }

    fn feed(&mut self, batch: &Batch) -> Result<Self::Fed> {
        let tensor = |values: &[i64]| -> Result<Tensor> {
            let narrow: Vec<u32> = values.iter().map(|&value| value as u32).collect();
            let [b, s] = batch.shape();
            Ok(Tensor::from_vec(narrow, (b, s), &Device::Cpu)?)
        };
        let mask = tensor(&batch.input_mask)?.to_dtype(DType::F32)?;
        Ok([tensor(&batch.input_ids)?, mask, tensor(&batch.segment_ids)?])
    }

    fn run(&mut self, [ids, mask, segments]: &Self::Fed) -> Result<Self::Output> {
        let sequence = self.bert.forward(ids, segments, Some(mask))?; // [b, s, h]
        Ok(self.head.forward(&sequence)?)
    }

    fn logits(&self, output: Self::Output) -> Result<[Vec<f32>; 2]> {
        let logits = |i: usize| -> Result<Vec<f32>> {
            Ok(output.narrow(2, i, 1)?.flatten_all()?.to_vec1()?)
        };
        Ok([logits(0)?, logits(1)?])
    }
}
