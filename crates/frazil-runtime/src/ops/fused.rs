//! The operations that the fusions raise: LayerNorm, GELU, embeddings.

use frazil_graph::op::{Gelu, GeluForm, LayerNorm};
use frazil_kernels::embed::{self, EmbedError, Embeddings};
use frazil_kernels::gelu::{gelu_erf, gelu_tanh};
use frazil_kernels::norm;
use frazil_tensor::{DType, Tensor};

use super::call::{Call, by_real};
use crate::Result;

/// Inputs: x, gamma, beta.
pub fn layer_norm(call: &Call<'_>, op: LayerNorm) -> Result<Tensor> {
    let [x, gamma, beta] = [0, 1, 2].map(|i| call.inputs[i].shape());
    let fits = gamma.len() == 1 && gamma == beta && x.last() == gamma.last();
    if !fits {
        return Err(call.fail(format!("gamma {gamma} and beta {beta} do not go with {x}")));
    }
    by_real!(call, call.x().dtype(), T => {
        let [x, gamma, beta] = [call.values::<T>(0)?, call.values(1)?, call.values(2)?];
        call.make(call.x().shape().clone(), |out| {
            norm::layer_norm(&x, &gamma, &beta, out, op.epsilon);
        })
    })
}

pub fn gelu(call: &Call<'_>, op: Gelu) -> Result<Tensor> {
    by_real!(call, call.x().dtype(), T => {
        let x = call.values::<T>(0)?;
        call.make(call.x().shape().clone(), |out| match op.form {
            GeluForm::Tanh => gelu_tanh(&x, out),
            GeluForm::Erf => gelu_erf(&x, out),
        })
    })
}

/// Inputs: ids and segments `[b, s]`, words `[v, h]`, types `[types, h]`, positions `[p, h]`.
pub fn embed(call: &Call<'_>) -> Result<Tensor> {
    let [ids, segments, words, types, positions] = [0, 1, 2, 3, 4].map(|i| call.inputs[i].shape());
    let clash = |what: &str| {
        call.fail(format!(
            "{what}: ids {ids}, segments {segments}, words {words}, types {types}, \
             positions {positions}"
        ))
    };
    let (&[b, s], &[_, h], &[_, types_h], &[most, positions_h]) =
        (&**ids, &**words, &**types, &**positions)
    else {
        return Err(clash("the ranks are wrong"));
    };
    if ids != segments || types_h != h || positions_h != h {
        return Err(clash("the extents do not go together"));
    }
    if s > most {
        return Err(call.fail(format!("a sequence of {s}, but the model has {most} positions")));
    }
    by_real!(call, call.inputs[2].dtype(), T => {
        let (words, types, positions) = (call.values::<T>(2)?, call.values(3)?, call.values(4)?);
        let tables = Embeddings {
            words: &words,
            positions: &positions,
            types: &types,
            hidden: h,
            sequence: s,
        };
        let (ids, segments) = (call.integers(0)?, call.integers(1)?);
        let mut checked = Ok(());
        let out = call.make([b, s, h], |out| {
            checked = embed::embed(&ids, &segments, &tables, out);
        })?;
        match checked {
            Ok(()) => Ok(out),
            Err(EmbedError::Word(error)) => Err(call.out_of_range("id", 0, error)),
            Err(EmbedError::Type(error)) => Err(call.out_of_range("segment", 1, error)),
        }
    })
}
