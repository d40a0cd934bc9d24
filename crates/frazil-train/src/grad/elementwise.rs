//! Operations on each element by itself.

use std::f64::consts::FRAC_2_SQRT_PI;

use frazil_graph::op::{Binary, Cast, Compare, Unary};
use frazil_graph::{Dim, Op, Value};
use frazil_tensor::DType;

use super::{Backward, Grads};
use crate::Result;

pub(super) fn unary(b: &mut Backward<'_>, kind: Unary, dy: Value) -> Result<Grads> {
    let (x, y) = (b.input(0), b.output());
    let of = |b: &mut Backward<'_>, kind: Unary, x: Value| {
        b.push(&format!("{kind:?}").to_lowercase(), Op::Unary(kind), vec![x])
    };
    let dx = match kind {
        Unary::Identity => dy,
        Unary::StopGradient | Unary::Sign | Unary::Floor | Unary::Round | Unary::Not => {
            return Ok(vec![None]);
        }
        Unary::Neg => of(b, Unary::Neg, dy)?,
        Unary::Abs => {
            let sign = of(b, Unary::Sign, x)?;
            b.mul(dy, sign)?
        }
        Unary::Exp => b.mul(dy, y)?,
        Unary::Log => b.binary("div", Binary::Div, dy, x)?,
        Unary::Sqrt => {
            let half = b.times(dy, x, 0.5)?;
            b.binary("div", Binary::Div, half, y)?
        }
        Unary::Rsqrt => {
            // -y³ / 2
            let square = of(b, Unary::Square, y)?;
            let cube = b.mul(square, y)?;
            let slope = b.times(cube, x, -0.5)?;
            b.mul(dy, slope)?
        }
        Unary::Reciprocal => {
            let square = of(b, Unary::Square, y)?;
            let slope = of(b, Unary::Neg, square)?;
            b.mul(dy, slope)?
        }
        Unary::Square => {
            let slope = b.times(x, x, 2.0)?;
            b.mul(dy, slope)?
        }
        Unary::Sin => {
            let slope = of(b, Unary::Cos, x)?;
            b.mul(dy, slope)?
        }
        Unary::Cos => {
            let sin = of(b, Unary::Sin, x)?;
            let slope = of(b, Unary::Neg, sin)?;
            b.mul(dy, slope)?
        }
        Unary::Tanh => {
            // 1 - y²
            let (square, one) = (of(b, Unary::Square, y)?, b.number(x, 1.0)?);
            let slope = b.binary("sub", Binary::Sub, one, square)?;
            b.mul(dy, slope)?
        }
        Unary::Erf => {
            // 2/√π · e^-x²
            let square = of(b, Unary::Square, x)?;
            let negative = of(b, Unary::Neg, square)?;
            let power = of(b, Unary::Exp, negative)?;
            let slope = b.times(power, x, FRAC_2_SQRT_PI)?;
            b.mul(dy, slope)?
        }
        Unary::Sigmoid => {
            // y · (1 - y)
            let one = b.number(x, 1.0)?;
            let rest = b.binary("sub", Binary::Sub, one, y)?;
            let slope = b.mul(y, rest)?;
            b.mul(dy, slope)?
        }
        Unary::Relu => {
            let zero = b.number(x, 0.0)?;
            let above = b.push("above", Op::Compare(Compare::Greater), vec![x, zero])?;
            b.push("select", Op::Select, vec![above, dy, zero])?
        }
    };
    Ok(vec![Some(dx)])
}

pub(super) fn binary(
    b: &mut Backward<'_>,
    kind: Binary,
    wanted: &[bool],
    dy: Value,
) -> Result<Grads> {
    let (x, y) = (b.input(0), b.input(1));
    let negative = |b: &mut Backward<'_>, x: Value| b.push("neg", Op::Unary(Unary::Neg), vec![x]);
    let (dx, dz) = match kind {
        Binary::Add => (Some(dy), Some(dy)),
        Binary::Sub => (Some(dy), wanted[1].then(|| negative(b, dy)).transpose()?),
        Binary::Mul => {
            let dx = wanted[0].then(|| b.mul(dy, y)).transpose()?;
            (dx, wanted[1].then(|| b.mul(dy, x)).transpose()?)
        }
        Binary::Div => {
            let dx = b.binary("div", Binary::Div, dy, y)?;
            let dz = match wanted[1] {
                true => {
                    // -x / y² = -(x / y) / y
                    let ratio = b.mul(dx, b.output())?;
                    Some(negative(b, ratio)?)
                }
                false => None,
            };
            (Some(dx), dz)
        }
        Binary::Pow => {
            let dx = match wanted[0] {
                true => {
                    let one = b.number(x, 1.0)?;
                    let less = b.binary("sub", Binary::Sub, y, one)?;
                    let power = b.binary("pow", Binary::Pow, x, less)?;
                    let slope = b.mul(y, power)?;
                    Some(b.mul(dy, slope)?)
                }
                false => None,
            };
            let dz = match wanted[1] {
                true => {
                    let log = b.push("log", Op::Unary(Unary::Log), vec![x])?;
                    let slope = b.mul(b.output(), log)?;
                    Some(b.mul(dy, slope)?)
                }
                false => None,
            };
            (dx, dz)
        }
        Binary::Maximum | Binary::Minimum => {
            // Where both are equal the first one counts.
            let kind =
                if kind == Binary::Maximum { Compare::GreaterEqual } else { Compare::LessEqual };
            let first = b.push("first", Op::Compare(kind), vec![x, y])?;
            let zero = b.number(x, 0.0)?;
            let dx = b.push("select", Op::Select, vec![first, dy, zero])?;
            (Some(dx), Some(b.push("select", Op::Select, vec![first, zero, dy])?))
        }
        Binary::SquaredDifference => {
            let difference = b.binary("sub", Binary::Sub, x, y)?;
            let slope = b.times(difference, x, 2.0)?;
            let dx = b.mul(dy, slope)?;
            (Some(dx), wanted[1].then(|| negative(b, dx)).transpose()?)
        }
        Binary::FloorDiv | Binary::FloorMod | Binary::And | Binary::Or => {
            return Err(b.refuse("it has no slope"));
        }
    };
    let dx = dx.filter(|_| wanted[0]).map(|dx| b.unbroadcast(dx, x)).transpose()?;
    let dz = dz.filter(|_| wanted[1]).map(|dz| b.unbroadcast(dz, y)).transpose()?;
    Ok(vec![dx, dz])
}

pub(super) fn cast(b: &mut Backward<'_>, dy: Value) -> Result<Grads> {
    match b.facts[b.input(0)].dtype {
        Some(to @ (DType::F32 | DType::F64)) => {
            Ok(vec![Some(b.push("cast", Op::Cast(Cast { to }), vec![dy])?)])
        }
        _ => Ok(vec![None]),
    }
}

/// Inputs: condition, x, y.
pub(super) fn select(b: &mut Backward<'_>, dy: Value) -> Result<Grads> {
    let (condition, x, y) = (b.input(0), b.input(1), b.input(2));
    let zero = b.number(x, 0.0)?;
    let dx = b.push("select", Op::Select, vec![condition, dy, zero])?;
    let dz = b.push("select", Op::Select, vec![condition, zero, dy])?;
    Ok(vec![None, Some(b.unbroadcast(dx, x)?), Some(b.unbroadcast(dz, y)?)])
}

impl Backward<'_> {
    /// A gradient under the extents of the node's output, added up to those of `x`, one of the
    /// operands that were repeated to them.
    pub(super) fn unbroadcast(&mut self, grad: Value, x: Value) -> Result<Value> {
        let dims = |value: Value| {
            let name = self.graph.value_name(value);
            let dims = self.facts[value].dims.clone();
            dims.ok_or_else(|| self.refuse(format!("the shape of `{name}` is unknown")))
        };
        let (from, to) = (dims(self.output())?, dims(x)?);
        let added = from.len() - to.len();
        let repeated = |i: usize| {
            let (a, b): (&Dim, &Dim) = (&from[i], &to[i - added]);
            b.is(1) && !a.is(1)
        };
        let axes: Vec<i64> =
            (0..from.len()).filter(|&i| i < added || repeated(i)).map(|i| i as i64).collect();
        // An extent that may be 1 for some sizes would have to be added up for those.
        let open = |&i: &usize| to[i - added] != from[i] && to[i - added].as_known().is_none();
        if let Some(axis) = (added..from.len()).find(open) {
            let name = self.graph.value_name(x);
            let reason = format!("whether axis {axis} of `{name}` is repeated is unknown");
            return Err(self.refuse(reason));
        }
        if axes.is_empty() {
            return Ok(grad);
        }
        let sum = self.sum(grad, &axes, false)?;
        match to.iter().any(|dim| dim.is(1)) {
            true => self.reshape_like(sum, x),
            false => Ok(sum),
        }
    }
}
