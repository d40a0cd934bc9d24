//! The dense layer that some models of sentence-transformers put behind their pooling, LaBSE for
//! example.

use std::path::Path;

use frazil_tensor::safetensors::SafeTensors;
use frazil_tensor::{DType, Shape, TensorStore, file};
use serde::Deserialize;

use crate::{Error, Result};

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";

/// `activation(w x + b)`
#[derive(Clone, Debug)]
pub struct Dense {
    /// `[n, k]`
    weight: Vec<f32>,
    /// `[n]`
    bias: Option<Vec<f32>>,
    k: usize,
    activation: DenseActivation,
}

/// The activation of a [`Dense`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenseActivation {
    /// None at all.
    Identity,
    /// tanh
    Tanh,
    /// max(x, 0)
    Relu,
}

#[derive(Deserialize)]
struct Config {
    in_features: usize,
    out_features: usize,
    #[serde(default = "yes")]
    bias: bool,
    #[serde(default = "tanh")]
    activation_function: String,
}

fn yes() -> bool {
    true
}

fn tanh() -> String {
    "Tanh".into()
}

impl Dense {
    /// The module in a folder: `config.json` and `model.safetensors`.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(CONFIG);
        let bytes = file::map(&path)?;
        let config: Config =
            serde_json::from_slice(&bytes).map_err(|e| Error::from(e).in_file(&path))?;
        let activation = activation(&config.activation_function).map_err(|e| e.in_file(&path))?;
        let path = folder.join(WEIGHTS);
        if !path.is_file() && folder.join("pytorch_model.bin").is_file() {
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let reason = "has its weights in `pytorch_model.bin` only; save the model with \
                          `safe_serialization=True` to have them in `model.safetensors`";
            return Err(Error::Module { name, reason: reason.into() });
        }
        let store = SafeTensors::open(&path)?;
        let (n, k) = (config.out_features, config.in_features);
        let weight = values(&store, "linear.weight", Shape::from([n, k]));
        let bias = || values(&store, "linear.bias", Shape::from([n]));
        let bias = if config.bias { Some(bias().map_err(|e| e.in_file(&path))?) } else { None };
        Ok(Self { weight: weight.map_err(|e| e.in_file(&path))?, bias, k, activation })
    }

    /// The layer on one vector.
    pub(super) fn apply(&self, x: &[f32]) -> Result<Vec<f32>> {
        if x.len() != self.k || self.k == 0 {
            let (expected, found) = (Shape::from([self.k]), Shape::from([x.len()]));
            return Err(Error::Shape { name: "the vector for `Dense`".into(), expected, found });
        }
        let rows = self.weight.chunks_exact(self.k);
        Ok(rows
            .enumerate()
            .map(|(i, row)| {
                let product: f32 = row.iter().zip(x).map(|(w, x)| w * x).sum();
                let sum = product + self.bias.as_ref().map_or(0.0, |bias| bias[i]);
                match self.activation {
                    DenseActivation::Identity => sum,
                    DenseActivation::Tanh => sum.tanh(),
                    DenseActivation::Relu => sum.max(0.0),
                }
            })
            .collect())
    }
}

/// By the class of PyTorch, `torch.nn.modules.activation.Tanh` for example.
fn activation(class: &str) -> Result<DenseActivation> {
    Ok(match class.rsplit('.').next().unwrap_or(class) {
        "Identity" => DenseActivation::Identity,
        "Tanh" => DenseActivation::Tanh,
        "ReLU" => DenseActivation::Relu,
        _ => {
            return Err(Error::Value {
                key: "activation_function",
                expected: "Tanh, ReLU or Identity of PyTorch",
                found: format!("`{class}`"),
            });
        }
    })
}

fn values(store: &SafeTensors, name: &str, expected: Shape) -> Result<Vec<f32>> {
    let read = |source| Error::Store { name: name.to_owned(), source };
    let tensor = store.tensor(name).map_err(read)?;
    if *tensor.shape() != expected {
        let found = tensor.shape().clone();
        return Err(Error::Shape { name: name.to_owned(), expected, found });
    }
    let tensor = tensor.cast(DType::F32)?;
    Ok(tensor.values::<f32>()?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_by_hand() {
        let dense = |activation| Dense {
            weight: vec![1.0, 2.0, 0.5, -1.0],
            bias: Some(vec![0.5, 0.0]),
            k: 2,
            activation,
        };
        let x = [1.0, 2.0];
        assert_eq!(dense(DenseActivation::Identity).apply(&x).unwrap(), [5.5, -1.5]);
        assert_eq!(dense(DenseActivation::Relu).apply(&x).unwrap(), [5.5, 0.0]);
        let tanh = dense(DenseActivation::Tanh).apply(&x).unwrap();
        assert_eq!(tanh, [5.5f32.tanh(), (-1.5f32).tanh()]);
        assert!(dense(DenseActivation::Tanh).apply(&[1.0]).is_err());
    }

    #[test]
    fn activations_by_class() {
        assert_eq!(
            activation("torch.nn.modules.linear.Identity").unwrap(),
            DenseActivation::Identity
        );
        let error = activation("torch.nn.modules.activation.GELU").unwrap_err().to_string();
        assert!(error.contains("`torch.nn.modules.activation.GELU`"), "{error}");
    }
}
