//! Numbers that a graph spells out as constants of one element, or computes from such constants.

use frazil_tensor::DType;

use crate::op::{Binary, Op, Unary};
use crate::{Graph, Value};

/// How far a constant may lie from the number of a pattern, as a part of it: `1e-5` for `float32`
/// (formulas are printed with five to ten digits), more for the short types, none for integers.
pub fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F32 | DType::F64 => 1e-5,
        DType::F16 => 1e-3,
        DType::BF16 => 8e-3,
        _ => 0.0,
    }
}

/// Formulas of constants are shallow: `1 / (1 - rate)`.
const DEEPEST: usize = 6;

/// The number, and the type of the constants that it comes from, if `value` is a constant of one
/// element or is computed from such constants alone.
pub fn scalar(graph: &Graph, value: Value) -> Option<(f64, DType)> {
    at_depth(graph, value, 0)
}

fn at_depth(graph: &Graph, value: Value, depth: usize) -> Option<(f64, DType)> {
    if depth > DEEPEST || value.port != 0 {
        return None;
    }
    let node = graph.node(value.node);
    let operand = |i: usize| at_depth(graph, *node.inputs.get(i)?, depth + 1);
    match &node.op {
        Op::Const(op) => {
            if op.value.elements() != 1 {
                return None;
            }
            Some((*op.value.to_f64().ok()?.first()?, op.value.dtype()))
        }
        Op::Cast(op) if op.to.is_float() => Some((operand(0)?.0, op.to)),
        Op::ReadVariable(_) => operand(0),
        Op::Unary(kind) => {
            let (x, dtype) = operand(0)?;
            let y = match kind {
                Unary::Identity | Unary::StopGradient => x,
                Unary::Neg => -x,
                Unary::Sqrt => x.sqrt(),
                Unary::Rsqrt => 1.0 / x.sqrt(),
                Unary::Reciprocal => 1.0 / x,
                Unary::Square => x * x,
                _ => return None,
            };
            Some((y, dtype))
        }
        // Integers round on the way; nobody writes formulas in them.
        Op::Binary(kind) => {
            let ((x, dtype), (y, _)) = (operand(0)?, operand(1)?);
            let z = match kind {
                _ if !dtype.is_float() => return None,
                Binary::Add => x + y,
                Binary::Sub => x - y,
                Binary::Mul => x * y,
                Binary::Div => x / y,
                Binary::Pow => x.powf(y),
                _ => return None,
            };
            Some((z, dtype))
        }
        _ => None,
    }
}

/// Whether two numbers are one, to the precision of `dtype`.
pub(crate) fn agrees(found: f64, expected: f64, dtype: DType) -> bool {
    (found - expected).abs() <= tolerance(dtype) * expected.abs()
}
