//! Products of matrices, and biases.

use frazil_graph::op::{Linear, MatMul};
use frazil_graph::{Op, Value};

use super::{Backward, Grads};
use crate::Result;

/// `y = a b`, either of them transposed.
pub(super) fn matmul(
    b: &mut Backward<'_>,
    op: MatMul,
    wanted: &[bool],
    dy: Value,
) -> Result<Grads> {
    let (x, w) = (b.input(0), b.input(1));
    // What is left of the other one, in the orientation that the operand has.
    let dx = match (op.transpose_a, op.transpose_b) {
        (false, transposed) => (dy, w, false, !transposed),
        (true, transposed) => (w, dy, transposed, true),
    };
    let dw = match (op.transpose_a, op.transpose_b) {
        (transposed, false) => (x, dy, !transposed, false),
        (transposed, true) => (dy, x, true, transposed),
    };
    let mut grads = Vec::with_capacity(2);
    for (operand, (p, q, transpose_a, transpose_b), wanted) in
        [(x, dx, wanted[0]), (w, dw, wanted[1])]
    {
        grads.push(match wanted {
            true => {
                let product = Op::MatMul(MatMul { transpose_a, transpose_b });
                let grad = b.push("product", product, vec![p, q])?;
                Some(b.add_up_matrices(grad, operand)?)
            }
            false => None,
        });
    }
    Ok(grads)
}

/// Inputs: x, w, bias.
pub(super) fn linear(
    b: &mut Backward<'_>,
    op: Linear,
    wanted: &[bool],
    dy: Value,
) -> Result<Grads> {
    let (x, w) = (b.input(0), b.input(1));
    let mut grads = vec![None; 3];
    if wanted[0] {
        let product = MatMul { transpose_a: false, transpose_b: !op.transpose_w };
        grads[0] = Some(b.push("product", Op::MatMul(product), vec![dy, w])?);
    }
    if wanted[1] || wanted[2] {
        let (x, dy) = (b.rows(x, x)?, b.rows(dy, b.output())?);
        if wanted[1] {
            let inputs = if op.transpose_w { vec![dy, x] } else { vec![x, dy] };
            let product = MatMul { transpose_a: true, transpose_b: false };
            grads[1] = Some(b.push("weight", Op::MatMul(product), inputs)?);
        }
        if wanted[2] {
            grads[2] = Some(b.sum(dy, &[0], false)?);
        }
    }
    Ok(grads)
}

/// Inputs: x, bias.
pub(super) fn bias_add(b: &mut Backward<'_>, dy: Value) -> Result<Grads> {
    let rows = b.rows(dy, b.output())?;
    Ok(vec![Some(dy), Some(b.sum(rows, &[0], false)?)])
}

impl Backward<'_> {
    /// `x: [.., w]` as rows `[r, w]`; it has the extents of `like`.
    pub(super) fn rows(&mut self, x: Value, like: Value) -> Result<Value> {
        if self.rank(like)? == 2 {
            return Ok(x);
        }
        let last = self.facts[like].dims.as_ref().and_then(|dims| dims.last()?.as_known());
        let last = last.ok_or_else(|| self.refuse("the length of its rows is unknown"))?;
        let shape = self.list(&[-1, last])?;
        self.push("rows", Op::Reshape, vec![x, shape])
    }

    /// A gradient with the matrices of the node's output, added up to those of `operand`.
    fn add_up_matrices(&mut self, grad: Value, operand: Value) -> Result<Value> {
        let (from, to) = (self.facts[self.output()].dims.clone(), self.facts[operand].dims.clone());
        let (Some(from), Some(to)) = (from, to) else {
            return Err(self.refuse("the shape of an operand is unknown"));
        };
        let (outer, own) = (&from[..from.len() - 2], &to[..to.len() - 2]);
        let added = outer.len() - own.len();
        let axes: Vec<i64> = (0..outer.len())
            .filter(|&i| i < added || (own[i - added].is(1) && !outer[i].is(1)))
            .map(|i| i as i64)
            .collect();
        if axes.is_empty() {
            return Ok(grad);
        }
        let sum = self.sum(grad, &axes, false)?;
        match own.iter().any(|dim| dim.is(1)) {
            true => self.reshape_like(sum, operand),
            false => Ok(sum),
        }
    }
}
