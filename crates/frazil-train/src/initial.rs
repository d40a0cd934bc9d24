//! Weights to begin with: those of a checkpoint, and for what it lacks, those that the original's
//! initializers would draw.

use std::collections::{HashMap, HashSet};

use frazil_bert::python::random::{Random, mix};
use frazil_runtime::Parameters;
use frazil_tensor::{TensorInfo, TensorStore};
use rayon::prelude::*;

use crate::{Error, Result};

/// What became of the weights of a model and of those of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Weights that came from the checkpoint.
    pub loaded: usize,
    /// Weights that it lacks, which are new.
    pub fresh: Vec<String>,
    /// Tensors of the checkpoint that the model has no place for; slots of optimizers aside.
    pub unused: Vec<String>,
    /// What the optimizer goes on with of the checkpoint, as a number of slots, if it was to.
    pub slots: Option<usize>,
}

/// Gives every weight a value: the checkpoint's, or a new one. A weight of another shape is an error,
/// and so is a checkpoint that has none of the weights.
pub fn load<'p>(
    parameters: impl IntoIterator<Item = &'p mut Parameters>,
    checkpoint: Option<&dyn TensorStore>,
    deviation: f64,
    seed: u64,
) -> Result<Report> {
    let mut report = Report::default();
    let mut loaded = Vec::new();
    for parameters in parameters {
        let mut missing = HashMap::new();
        for at in 0..parameters.len() {
            let name = parameters.name(at).to_owned();
            match checkpoint.filter(|checkpoint| checkpoint.info(&name).is_some()) {
                Some(checkpoint) => {
                    let tensor = checkpoint
                        .tensor(&name)
                        .map_err(|source| Error::NoState { name: name.clone(), source })?;
                    parameters.set(at, &tensor)?;
                    tensor.release();
                    if let Some(&value) = parameters.values(at).iter().find(|x| !x.is_finite()) {
                        return Err(Error::NoNumberIn { name, value });
                    }
                    loaded.push(name);
                }
                None => drop(missing.insert(at, name)),
            }
        }
        let all = parameters.all_mut().enumerate();
        let mut new: Vec<_> =
            all.filter_map(|(at, values)| Some((missing.remove(&at)?, values))).collect();
        // Large ones are beside each other: each is handed out alone.
        let each = new.par_iter_mut().with_max_len(1);
        each.for_each(|(name, values)| fresh(name, values, deviation, seed));
        report.fresh.extend(new.into_iter().map(|(name, _)| name));
    }
    report.loaded = loaded.len();
    let Some(checkpoint) = checkpoint else { return Ok(report) };
    if loaded.is_empty() {
        let expected = report.fresh.first().cloned().unwrap_or_default();
        let found = checkpoint.infos().iter().map(|info| info.name.clone()).take(3).collect();
        return Err(Error::OtherModel { expected, found });
    }
    let loaded: HashSet<String> = loaded.into_iter().collect();
    let is_slot = |name: &str| {
        ["/adam_m", "/adam_v", "/lamb_m", "/lamb_v", "/Momentum"]
            .iter()
            .any(|end| name.ends_with(end))
            || name == "global_step"
            || name.starts_with("frazil/")
    };
    // A frozen graph has other constants, too: what a weight is, is a vector or a matrix of real numbers.
    let is_weight = |info: &&TensorInfo| info.dtype.is_float() && matches!(info.shape.len(), 1 | 2);
    let weights = checkpoint.infos().iter().filter(is_weight);
    let names = weights.map(|info| &info.name);
    let unused = names.filter(|name| !loaded.contains(*name) && !is_slot(name));
    report.unused = unused.cloned().collect();
    Ok(report)
}

/// Heads whose deviation the original has in its code, and not from the configuration.
const FIXED: [(&str, f64); 2] = [("output_weights", 0.02), ("cls/squad/output_weights", 0.02)];

/// Scales of norms are 1, what is added is 0, and all else is normal within two deviations, the same
/// for a seed and a name.
fn fresh(name: &str, values: &mut [f32], deviation: f64, seed: u64) {
    let fixed = FIXED.iter().find(|(of, _)| *of == name);
    let deviation = fixed.map_or(deviation, |(_, deviation)| *deviation);
    let last = name.rsplit('/').next().unwrap_or(name);
    match last {
        "gamma" => values.fill(1.0),
        "beta" | "bias" | "output_bias" => values.fill(0.0),
        _ => {
            let hash = name.bytes().fold(0u64, |hash, byte| mix(hash ^ u64::from(byte)));
            let mut random = Random::new(mix(seed ^ hash));
            values.fill_with(|| (deviation * normal(&mut random)) as f32);
        }
    }
}

/// From the normal distribution, without what is further out than two deviations.
fn normal(random: &mut Random) -> f64 {
    loop {
        let (radius, angle) = (1.0 - random.random(), random.random());
        let value = (-2.0 * radius.ln()).sqrt() * (2.0 * std::f64::consts::PI * angle).cos();
        if value.abs() <= 2.0 {
            return value;
        }
    }
}

#[cfg(test)]
mod tests {
    use frazil_bert::build::{Options, build};
    use frazil_bert::{BertConfig, Head};
    use frazil_graph::Graph;
    use frazil_tensor::{DType, StoreError, Tensor};

    use super::*;

    #[test]
    fn new_weights_are_as_the_original_draws_them() {
        let mut values = vec![7f32; 20_000];
        fresh("bert/pooler/dense/kernel", &mut values, 0.02, 1);
        assert!(values.iter().all(|x| x.abs() <= 0.04 + 1e-7));
        let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / 20_000.0;
        let square = values.iter().map(|&x| f64::from(x * x)).sum::<f64>() / 20_000.0;
        // The deviation of a normal distribution that is cut at two of its own is 0.8796 of it.
        assert!(
            mean.abs() < 5e-4 && (square.sqrt() / 0.02 - 0.8796).abs() < 0.02,
            "{mean} {square}"
        );
        let mut again = vec![0f32; 20_000];
        fresh("bert/pooler/dense/kernel", &mut again, 0.02, 1);
        assert_eq!(values, again);
        fresh("bert/pooler/dense/kernel", &mut again, 0.02, 2);
        assert_ne!(values, again);
        // Of heads it is that of the original's code.
        for name in ["output_weights", "cls/squad/output_weights"] {
            fresh(name, &mut again, 0.02, 1);
            let expected = again.clone();
            fresh(name, &mut again, 0.5, 1);
            assert_eq!(again, expected, "{name}");
        }
        fresh("bert/embeddings/LayerNorm/gamma", &mut again, 0.02, 2);
        assert!(again.iter().all(|x| *x == 1.0));
        fresh("output_bias", &mut again, 0.02, 2);
        assert!(again.iter().all(|x| *x == 0.0));
    }

    fn graph_of(head: Head) -> Graph {
        let config = serde_json::json!({
            "vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
            "intermediate_size": 32, "max_position_embeddings": 8, "type_vocab_size": 2,
        });
        let config = BertConfig::from_slice(config.to_string().as_bytes()).unwrap();
        build(&config, head, &Options::default()).unwrap()
    }

    #[test]
    fn weights_are_drawn_together_as_each_alone() {
        let mut parameters = Parameters::zeros(&graph_of(Head::Pretraining)).unwrap();
        let report = load([&mut parameters], None, 0.02, 7).unwrap();
        let names: Vec<&str> = (0..parameters.len()).map(|at| parameters.name(at)).collect();
        assert_eq!((report.loaded, report.fresh.iter().map(String::as_str).collect()), (0, names));
        for at in 0..parameters.len() {
            let mut alone = vec![7f32; parameters.values(at).len()];
            fresh(parameters.name(at), &mut alone, 0.02, 7);
            assert_eq!(parameters.values(at), alone, "{}", parameters.name(at));
        }
        // What a checkpoint has is taken from there, and the rest is the same.
        let mut checkpoint = Parameters::zeros(&graph_of(Head::Mlm)).unwrap();
        checkpoint.all_mut().for_each(|values| values.fill(3.0));
        let mut both = Parameters::zeros(&graph_of(Head::Pretraining)).unwrap();
        let report = load([&mut both], Some(&checkpoint), 0.02, 7).unwrap();
        assert_eq!(report.loaded, checkpoint.len());
        assert_eq!(report.fresh.len(), both.len() - checkpoint.len());
        for at in 0..both.len() {
            match report.fresh.iter().any(|name| name == both.name(at)) {
                true => assert_eq!(both.values(at), parameters.values(at)),
                false => assert!(both.values(at).iter().all(|x| *x == 3.0)),
            }
        }
    }

    /// A frozen graph also has what its operations take: sizes, and single numbers.
    #[test]
    fn constants_are_no_weights() {
        struct Frozen(Parameters, Vec<TensorInfo>);

        impl TensorStore for Frozen {
            fn infos(&self) -> &[TensorInfo] {
                &self.1
            }

            fn tensor(&self, name: &str) -> std::result::Result<Tensor, StoreError> {
                self.0.tensor(name)
            }
        }

        let weights = Parameters::zeros(&graph_of(Head::Mlm)).unwrap();
        let info = |name: &str, dtype, shape: &[usize]| TensorInfo {
            name: name.to_owned(),
            dtype,
            shape: shape.to_vec().into(),
        };
        let mut infos = weights.infos().to_vec();
        infos.extend([
            info("bert/embeddings/ExpandDims/dim", DType::I32, &[]),
            info("bert/embeddings/Reshape/shape", DType::I32, &[1]),
            info("bert/encoder/layer_0/mul/y", DType::F32, &[]),
            info("bert/encoder/ones", DType::F32, &[1, 8, 1]),
            info("bert/encoder/layer_9/output/dense/bias", DType::F32, &[16]),
        ]);
        infos.sort_by(|a, b| a.name.cmp(&b.name));
        let mut parameters = Parameters::zeros(&graph_of(Head::Mlm)).unwrap();
        let report = load([&mut parameters], Some(&Frozen(weights, infos)), 0.02, 7).unwrap();
        assert_eq!(report.unused, ["bert/encoder/layer_9/output/dense/bias"]);
    }
}
