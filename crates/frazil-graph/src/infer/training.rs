//! The rules of losses, dropout and gradients.

use super::compute::agree;
use super::{Inference, Problem, Ruled, compute, problem};
use crate::dim::show;
use crate::op::{Attention, Dropout, EmbedGrad, Training};
use crate::{Dim, Fact};

impl Inference {
    pub(super) fn training(&mut self, op: &Training, inputs: &[Fact]) -> Ruled {
        let like = |fact: &Fact| Fact { elements: None, ..fact.clone() };
        match op {
            Training::LayerNormGrad(_) => {
                let (x, gamma, dy) = (&inputs[0], &inputs[1], &inputs[2]);
                same(x, dy)?;
                compute::layer_norm(&[x.clone(), gamma.clone(), gamma.clone()])?;
                Ok(vec![like(x), like(gamma), like(gamma)])
            }
            Training::GeluGrad(_) => {
                same(&inputs[0], &inputs[1])?;
                Ok(vec![like(&inputs[0])])
            }
            Training::Attention(op) => {
                dropout(&op.dropout)?;
                attention(&op.attention, inputs)
            }
            Training::AttentionGrad(op) => {
                op.dropout.as_ref().map_or(Ok(()), dropout)?;
                let out = attention(&op.attention, inputs)?;
                same(&out[0], &inputs[inputs.len() - 1])?;
                Ok(inputs[..3].iter().map(like).collect())
            }
            Training::EmbedGrad(op) => embed(op, &inputs[0]),
            Training::ScatterAdd => self.filled(inputs[2].dtype, &inputs[0], None),
            Training::StridedSliceGrad(_) => self.filled(inputs[4].dtype, &inputs[0], None),
            Training::CrossEntropy => {
                let rows = rows(inputs)?;
                Ok(vec![Fact { dtype: inputs[0].dtype, dims: rows, elements: None }])
            }
            Training::CrossEntropyGrad => {
                let dims = rows(inputs)?;
                same(&inputs[2], &Fact { dtype: inputs[0].dtype, dims, elements: None })?;
                Ok(vec![like(&inputs[0])])
            }
            Training::Dropout(op) => {
                dropout(op)?;
                Ok(vec![like(&inputs[0])])
            }
        }
    }
}

fn dropout(op: &Dropout) -> Result<(), Problem> {
    match (0.0..1.0).contains(&op.rate) {
        true => Ok(()),
        false => problem(format!("a rate of {} is not in 0..1", op.rate)),
    }
}

fn attention(op: &Attention, inputs: &[Fact]) -> Ruled {
    let count = if op.packed { 5 } else { 4 };
    compute::attention(op, &inputs[..count])
}

/// An error unless two facts can be of one shape and type.
fn same(a: &Fact, b: &Fact) -> Result<(), Problem> {
    if let (Some(a), Some(b)) = (a.dtype, b.dtype)
        && a != b
    {
        return problem(format!("{a} and {b}"));
    }
    if let (Some(a), Some(b)) = (&a.dims, &b.dims) {
        let fits = a.len() == b.len() && a.iter().zip(b).all(|(a, b)| agree(a, b).is_ok());
        if !fits {
            return problem(format!("{} and {} are not of one shape", show(a), show(b)));
        }
    }
    Ok(())
}

/// `[r]` of x `[r, c]` and labels `[r]`.
fn rows(inputs: &[Fact]) -> Result<Option<Vec<Dim>>, Problem> {
    match (inputs[0].dims.as_deref(), inputs[1].dims.as_deref()) {
        (Some([r, _]), Some([labels])) => Ok(Some(vec![agree(r, labels)?])),
        (Some([r, _]), None) => Ok(Some(vec![r.clone()])),
        (None, Some([labels])) => Ok(Some(vec![labels.clone()])),
        (None, None) => Ok(None),
        (x, labels) => {
            let (x, labels) = (x.map_or("?".into(), show), labels.map_or("?".into(), show));
            problem(format!("x {x} and labels {labels}, [r, c] and [r] expected"))
        }
    }
}

fn embed(op: &EmbedGrad, dy: &Fact) -> Ruled {
    let width = dy.dims.as_ref().and_then(|dims| dims.last());
    let table = |rows: usize| {
        let dims = width.map(|h| vec![Dim::from(rows), h.clone()]);
        Fact { dtype: dy.dtype, dims, elements: None }
    };
    Ok([op.words, op.types, op.positions].map(table).to_vec())
}
