//! The fused operations: their gradients are operations of their own, with kernels beside theirs.

use frazil_graph::op::{Attention, AttentionGrad, Dropout, EmbedGrad, Gelu, LayerNorm, Training};
use frazil_graph::{Op, Value};

use super::{Backward, Grads};
use crate::Result;

/// Inputs: x, gamma, beta.
pub(super) fn layer_norm(b: &mut Backward<'_>, op: LayerNorm, dy: Value) -> Result<Grads> {
    let inputs = vec![b.input(0), b.input(1), dy];
    let grads = b.push("norm", Op::Training(Training::LayerNormGrad(op)), inputs)?;
    Ok(ports(grads, 3))
}

pub(super) fn gelu(b: &mut Backward<'_>, op: Gelu, dy: Value) -> Result<Grads> {
    let inputs = vec![b.input(0), dy];
    Ok(vec![Some(b.push("gelu", Op::Training(Training::GeluGrad(op)), inputs)?)])
}

/// Inputs: ids, segments, words, types, positions, and the index of packed rows.
pub(super) fn embed(b: &mut Backward<'_>, dy: Value) -> Result<Grads> {
    let rows = |i: usize| {
        let dims = b.facts[b.input(i)].known_dims();
        let rows = dims.as_deref().and_then(|dims| usize::try_from(*dims.first()?).ok());
        rows.ok_or_else(|| b.refuse("the size of a table is unknown"))
    };
    let op = EmbedGrad { words: rows(2)?, types: rows(3)?, positions: rows(4)? };
    let all = b.inputs();
    let mut inputs = vec![dy, all[0], all[1]];
    inputs.extend(all.get(5));
    let tables = b.push("tables", Op::Training(Training::EmbedGrad(op)), inputs)?;
    Ok([vec![None, None], ports(tables, 3)].concat())
}

pub(super) fn attention(
    b: &mut Backward<'_>,
    attention: Attention,
    dropout: Option<Dropout>,
    dy: Value,
) -> Result<Grads> {
    if attention.steps.is_some() {
        return Err(b.refuse("what is rounded has no slope"));
    }
    let mut inputs = b.inputs();
    inputs.push(dy);
    let op = Training::AttentionGrad(AttentionGrad { attention, dropout });
    let grads = b.push("attention", Op::Training(op), inputs)?;
    Ok(ports(grads, 3))
}

pub(super) fn training(b: &mut Backward<'_>, op: &Training, dy: Value) -> Result<Grads> {
    match op {
        Training::Attention(op) => attention(b, op.attention, Some(op.dropout), dy),
        Training::CrossEntropy => {
            let inputs = vec![b.input(0), b.input(1), dy];
            let op = Op::Training(Training::CrossEntropyGrad);
            Ok(vec![Some(b.push("entropy", op, inputs)?)])
        }
        Training::Dropout(op) => {
            let inputs = vec![dy, b.input(1), b.input(2)];
            Ok(vec![Some(b.push("dropout", Op::Training(Training::Dropout(*op)), inputs)?)])
        }
        Training::LayerNormGrad(_)
        | Training::GeluGrad(_)
        | Training::AttentionGrad(_)
        | Training::EmbedGrad(_)
        | Training::ScatterAdd
        | Training::StridedSliceGrad(_)
        | Training::CrossEntropyGrad => Err(b.refuse("there are no second derivatives")),
    }
}

fn ports(value: Value, count: u32) -> Grads {
    (0..count).map(|port| Some(Value { port, ..value })).collect()
}
