//! The operations that the fusions raise: LayerNorm, GELU, embeddings, attention. All in `f32`.

use std::borrow::Cow;

use frazil_graph::op::{Attention, Gelu, GeluForm, LayerNorm, Steps};
use frazil_kernels::attention::{self, attention_f32};
use frazil_kernels::cast::{Scalar, cast};
use frazil_kernels::embed::{EmbedError, Embeddings, embed_f32};
use frazil_kernels::gelu::{gelu_erf_f32, gelu_tanh_f32};
use frazil_kernels::norm::layer_norm_f32;
use frazil_tensor::{DType, Tensor};

use super::call::Call;
use crate::Result;

/// Inputs: x, gamma, beta.
pub fn layer_norm(call: &Call<'_>, op: LayerNorm) -> Result<Tensor> {
    let [x, gamma, beta] = [0, 1, 2].map(|i| call.inputs[i].shape());
    let fits = gamma.len() == 1 && gamma == beta && x.last() == gamma.last();
    if !fits {
        return Err(call.fail(format!("gamma {gamma} and beta {beta} do not go with {x}")));
    }
    let [x, gamma, beta] = [call.values(0)?, call.values(1)?, call.values(2)?];
    call.make(call.x().shape().clone(), |out| {
        layer_norm_f32(&x, &gamma, &beta, out, op.epsilon);
    })
}

pub fn gelu(call: &Call<'_>, op: Gelu) -> Result<Tensor> {
    let x = call.values(0)?;
    call.make(call.x().shape().clone(), |out| match op.form {
        GeluForm::Tanh => gelu_tanh_f32(&x, out),
        GeluForm::Erf => gelu_erf_f32(&x, out),
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
    let (words, types, positions) = (call.values(2)?, call.values(3)?, call.values(4)?);
    let tables =
        Embeddings { words: &words, positions: &positions, types: &types, hidden: h, sequence: s };
    let (ids, segments) = (call.integers(0)?, call.integers(1)?);
    let mut checked = Ok(());
    let out = call.make([b, s, h], |out| checked = embed_f32(&ids, &segments, &tables, out))?;
    match checked {
        Ok(()) => Ok(out),
        Err(EmbedError::Word(error)) => Err(call.out_of_range("id", 0, error)),
        Err(EmbedError::Type(error)) => Err(call.out_of_range("segment", 1, error)),
    }
}

/// Inputs: q, k, v as rows `[b*s, n*d]`, and the key mask `[b, s]`.
pub fn attention(call: &Call<'_>, op: Attention) -> Result<Tensor> {
    let [q, k, v, mask] = [0, 1, 2, 3].map(|i| call.inputs[i].shape());
    let clash = || {
        let heads = op.heads;
        call.fail(format!("q {q}, k {k}, v {v}, mask {mask} and {heads} heads do not go together"))
    };
    let (&[rows, width], &[batch, sequence]) = (&**q, &**mask) else { return Err(clash()) };
    let fits = k == q
        && v == q
        && batch.checked_mul(sequence) == Some(rows)
        && op.heads > 0
        && width % op.heads == 0;
    if !fits {
        return Err(clash());
    }
    let extents = attention::Attention {
        batch,
        heads: op.heads,
        size: width / op.heads,
        queries: sequence,
        keys: sequence,
        scale: op.scale,
        mask_value: op.mask_value,
        steps: steps(call, &op)?,
    };
    let (q, k, v) = (call.values(0)?, call.values(1)?, call.values(2)?);
    let mask = as_f32(call, 3)?;
    let mut scores = call.room::<f32>(DType::F32, &[sequence].into())?;
    call.make([rows, width], |out| {
        attention_f32([&q, &k, &v], Some(&mask), out, &mut scores, &extents);
    })
}

/// Scale and zero of the bytes that the softmax of an attention is put on.
pub fn steps(call: &Call<'_>, op: &Attention) -> Result<Option<(f32, u8)>> {
    match op.steps {
        None => Ok(None),
        Some(Steps::Tensor { scale, zero }) => Ok(Some((scale, zero))),
        Some(other) => Err(call.fail(format!("its softmax cannot be on {other:?}"))),
    }
}

/// Input `i` as `f32`, whatever numbers it has.
fn as_f32<'a>(call: &'a Call<'_>, i: usize) -> Result<Cow<'a, [f32]>> {
    fn converted<T: Scalar>(x: &[T]) -> Cow<'static, [f32]> {
        let mut out = vec![0.0; x.len()];
        cast(x, &mut out);
        out.into()
    }
    Ok(match call.inputs[i].dtype() {
        DType::F32 => call.values::<f32>(i)?,
        DType::F64 => converted(&call.values::<f64>(i)?),
        DType::Bool => converted(&call.values::<u8>(i)?),
        _ => converted(&call.integers(i)?),
    })
}
