//! Operations that calculate: element by element, products of matrices, reductions.

use frazil_graph::op::{ArgMax, Binary, Compare, MatMul, Op, Reduce, ReduceKind, Unary};
use frazil_graph::{Node, Value};
use frazil_tensor::DType;

use super::builder::{Builder, Refusal, no_type};
use super::{attr, quantized};
use crate::onnx::dtype::to_onnx;

type Emitted = Result<(), Refusal>;

pub(super) fn unary(b: &mut Builder<'_>, node: &Node, kind: Unary) -> Emitted {
    let x = b.data(node.inputs[0])?;
    let op = match kind {
        Unary::Identity | Unary::StopGradient => "Identity",
        Unary::Neg => "Neg",
        Unary::Abs => "Abs",
        Unary::Sign => "Sign",
        Unary::Exp => "Exp",
        Unary::Log => "Log",
        Unary::Sqrt => "Sqrt",
        Unary::Rsqrt => {
            let root = b.emit("sqrt", "Sqrt", &[&x], vec![]);
            return b.finish("Reciprocal", &[&root], vec![]);
        }
        Unary::Reciprocal => "Reciprocal",
        Unary::Square => return b.finish("Mul", &[&x, &x], vec![]),
        Unary::Floor => "Floor",
        Unary::Round => "Round",
        Unary::Sin => "Sin",
        Unary::Cos => "Cos",
        Unary::Tanh => "Tanh",
        Unary::Erf => "Erf",
        Unary::Sigmoid => "Sigmoid",
        Unary::Relu => "Relu",
        Unary::Not => "Not",
    };
    b.finish(op, &[&x], vec![])
}

pub(super) fn binary(b: &mut Builder<'_>, node: &Node, kind: Binary) -> Emitted {
    let (x, y) = (b.data(node.inputs[0])?, b.data(node.inputs[1])?);
    let op = match kind {
        Binary::Add => sum(b, node),
        Binary::Sub => "Sub",
        Binary::Mul => "Mul",
        // Of integers both round towards zero.
        Binary::Div => "Div",
        Binary::FloorDiv if b.dtype(node.inputs[0])?.is_float() => {
            let quotient = b.emit("quotient", "Div", &[&x, &y], vec![]);
            return b.finish("Floor", &[&quotient], vec![]);
        }
        Binary::FloorDiv => {
            // What is left has no rest, so it does not matter how the division rounds.
            let rest = b.emit("rest", "Mod", &[&x, &y], vec![]);
            let multiple = b.emit("multiple", "Sub", &[&x, &rest], vec![]);
            return b.finish("Div", &[&multiple, &y], vec![]);
        }
        Binary::FloorMod if b.dtype(node.inputs[0])?.is_float() => {
            return float_mod(b, node.inputs[0], &x, &y);
        }
        Binary::FloorMod => "Mod",
        Binary::Pow => "Pow",
        Binary::Maximum => "Max",
        Binary::Minimum => "Min",
        Binary::SquaredDifference => {
            let difference = b.emit("difference", "Sub", &[&x, &y], vec![]);
            return b.finish("Mul", &[&difference, &difference], vec![]);
        }
        Binary::And => "And",
        Binary::Or => "Or",
    };
    b.finish(op, &[&x, &y], vec![])
}

/// A sum of two: see [`quantized`] for why it has two names.
fn sum(b: &Builder<'_>, node: &Node) -> &'static str {
    let of_bytes = node.inputs.iter().any(|&value| quantized::is_product(b, value));
    if of_bytes { "Sum" } else { "Add" }
}

/// ONNX's `Mod` of numbers with a fraction is C's, with the sign of `x`; ours has that of `y`.
fn float_mod(b: &mut Builder<'_>, value: Value, x: &str, y: &str) -> Emitted {
    let zero = b.number("zero", b.dtype(value)?, 0.0)?;
    let rest = b.emit("rest", "Mod", &[x, y], vec![attr::int("fmod", 1)]);
    let below = b.emit("rest_below_zero", "Less", &[&rest, &zero], vec![]);
    let y_below = b.emit("y_below_zero", "Less", &[y, &zero], vec![]);
    let differ = b.emit("signs_differ", "Xor", &[&below, &y_below], vec![]);
    let none = b.emit("no_rest", "Equal", &[&rest, &zero], vec![]);
    let some = b.emit("some_rest", "Not", &[&none], vec![]);
    let wrong = b.emit("wrong_sign", "And", &[&differ, &some], vec![]);
    let other = b.emit("other_sign", "Add", &[&rest, y], vec![]);
    b.finish("Where", &[&wrong, &other, &rest], vec![])
}

pub(super) fn compare(b: &mut Builder<'_>, node: &Node, kind: Compare) -> Emitted {
    let (x, y) = (b.input(node.inputs[0])?, b.input(node.inputs[1])?);
    let op = match kind {
        Compare::Equal => "Equal",
        Compare::NotEqual => {
            let equal = b.emit("equal", "Equal", &[&x, &y], vec![]);
            return b.finish("Not", &[&equal], vec![]);
        }
        Compare::Less => "Less",
        Compare::LessEqual => "LessOrEqual",
        Compare::Greater => "Greater",
        Compare::GreaterEqual => "GreaterOrEqual",
    };
    b.finish(op, &[&x, &y], vec![])
}

pub(super) fn add_n(b: &mut Builder<'_>, node: &Node) -> Emitted {
    let inputs = node.inputs.iter().map(|&x| b.input(x)).collect::<Result<Vec<_>, _>>()?;
    let (Some((last, before)), Some(first)) = (inputs.split_last(), inputs.first()) else {
        return Err("it adds nothing".to_owned());
    };
    if before.is_empty() {
        return b.finish("Identity", &[last], vec![]);
    }
    if b.dtype(node.inputs[0])?.is_float() {
        let all: Vec<&str> = inputs.iter().map(String::as_str).collect();
        return b.finish("Sum", &all, vec![]);
    }
    // ONNX's `Sum` is of numbers with a fraction only.
    let mut sum = first.clone();
    for other in &before[1..] {
        sum = b.emit("sum", "Add", &[&sum, other], vec![]);
    }
    b.finish("Add", &[&sum, last], vec![])
}

pub(super) fn cast(b: &mut Builder<'_>, node: &Node, to: DType) -> Emitted {
    let x = b.any(node.inputs[0])?;
    let to = if b.is_wide() { DType::I64 } else { to };
    let number = to_onnx(to).ok_or_else(|| no_type(to))?;
    b.finish("Cast", &[&x], vec![attr::int("to", i64::from(number as i32))])
}

pub(super) fn select(b: &mut Builder<'_>, node: &Node) -> Emitted {
    let condition = b.input(node.inputs[0])?;
    let (x, y) = (b.data(node.inputs[1])?, b.data(node.inputs[2])?);
    b.finish("Where", &[&condition, &x, &y], vec![])
}

/// `a: [.., m, k]  b: [.., k, n]`, either with its last two axes exchanged.
pub(super) fn matmul(b: &mut Builder<'_>, node: &Node, op: MatMul) -> Emitted {
    if let Some(emitted) = quantized::matmul(b, node, op) {
        return emitted;
    }
    let (left, right) = (node.inputs[0], node.inputs[1]);
    let (x, y) = (b.input(left)?, b.input(right)?);
    if !op.transpose_a && !op.transpose_b {
        return b.finish("MatMul", &[&x, &y], vec![]);
    }
    let plain = b.rank(left) == Some(2) && b.rank(right) == Some(2);
    if plain && b.dtype(left)?.is_float() {
        let mut attributes = Vec::new();
        if op.transpose_a {
            attributes.push(attr::int("transA", 1));
        }
        if op.transpose_b {
            attributes.push(attr::int("transB", 1));
        }
        return b.finish("Gemm", &[&x, &y], attributes);
    }
    let x = if op.transpose_a { exchanged(b, "a", &x, left)? } else { x };
    let y = if op.transpose_b { exchanged(b, "b", &y, right)? } else { y };
    b.finish("MatMul", &[&x, &y], vec![])
}

/// The last two axes exchanged.
pub(super) fn exchanged(
    b: &mut Builder<'_>,
    part: &str,
    x: &str,
    value: Value,
) -> Result<String, Refusal> {
    let rank = b.known_rank(value)?;
    let mut order: Vec<i64> = (0..rank as i64).collect();
    if rank < 2 {
        return Err("a matrix is wanted".to_owned());
    }
    order.swap(rank - 1, rank - 2);
    Ok(b.emit(&format!("{part}_transposed"), "Transpose", &[x], vec![attr::ints("perm", &order)]))
}

pub(super) fn reduce(b: &mut Builder<'_>, node: &Node, op: Reduce) -> Emitted {
    let kind = match op.kind {
        ReduceKind::Mean => "ReduceMean",
        ReduceKind::Sum => "ReduceSum",
        ReduceKind::Max | ReduceKind::Any => "ReduceMax",
        ReduceKind::Min | ReduceKind::All => "ReduceMin",
        ReduceKind::Prod => "ReduceProd",
    };
    let x = b.data(node.inputs[0])?;
    let axes = b.ints(node.inputs[1]);
    // ONNX takes an empty list for all axes.
    if axes.as_ref().is_some_and(Vec::is_empty) {
        return b.finish("Identity", &[&x], vec![]);
    }
    let of_truth = matches!(op.kind, ReduceKind::All | ReduceKind::Any);
    // Of `bool` only the newest have it.
    let x = if of_truth { b.cast("numbers", &x, DType::I32)? } else { x };
    let mut attributes = vec![attr::int("keepdims", i64::from(op.keep_dims))];
    let mut inputs = vec![x];
    if b.opset >= 18 || op.kind == ReduceKind::Sum {
        inputs.push(match &axes {
            Some(axes) => b.list("axes", axes)?,
            None => axes_list(b, node.inputs[1])?,
        });
    } else {
        let axes = b.known_ints(node.inputs[1], "list of axes")?;
        attributes.push(attr::ints("axes", &axes));
    }
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    if of_truth {
        let reduced = b.emit("reduced", kind, &inputs, attributes);
        let number = to_onnx(DType::Bool).ok_or_else(|| no_type(DType::Bool))?;
        return b.finish("Cast", &[&reduced], vec![attr::int("to", i64::from(number as i32))]);
    }
    b.finish(kind, &inputs, attributes)
}

/// Axes that are computed, as a list.
fn axes_list(b: &mut Builder<'_>, axes: Value) -> Result<String, Refusal> {
    let list = b.index(axes)?;
    if b.rank(axes) == Some(1) {
        return Ok(list);
    }
    let one = b.list("one_axis", &[-1])?;
    Ok(b.emit("axes_list", "Reshape", &[&list, &one], vec![]))
}

pub(super) fn arg_max(b: &mut Builder<'_>, node: &Node, op: &ArgMax) -> Emitted {
    let x = b.input(node.inputs[0])?;
    let axis = b.known_int(node.inputs[1], "axis")?;
    let attributes = vec![attr::int("axis", axis), attr::int("keepdims", 0)];
    if op.to == DType::I64 {
        return b.finish("ArgMax", &[&x], attributes);
    }
    let place = b.emit("place", "ArgMax", &[&x], attributes);
    let number = to_onnx(op.to).ok_or_else(|| no_type(op.to))?;
    b.finish("Cast", &[&place], vec![attr::int("to", i64::from(number as i32))])
}

pub(super) fn last_axis(b: &mut Builder<'_>, node: &Node, op: &str) -> Emitted {
    let x = b.input(node.inputs[0])?;
    b.finish(op, &[&x], vec![attr::int("axis", -1)])
}

pub(super) fn bias_add(b: &mut Builder<'_>, node: &Node) -> Emitted {
    let (x, bias) = (b.input(node.inputs[0])?, b.input(node.inputs[1])?);
    b.finish(sum(b, node), &[&x, &bias], vec![])
}

/// Weights must have been frozen, and foreign operations cut away.
pub(super) fn refused(op: &Op) -> Emitted {
    Err(match op {
        Op::Variable(_) | Op::ReadVariable(_) => "its value lies in a checkpoint: freeze the graph",
        Op::PackRows(_) | Op::UnpackRows | Op::Attention(_) | Op::Embed => {
            "packed rows are for running: export the graph before packing"
        }
        Op::Training(_) => "training is for running: export the graph without it",
        _ => "ONNX has no such operation",
    }
    .to_owned())
}
