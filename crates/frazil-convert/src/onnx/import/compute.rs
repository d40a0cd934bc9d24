//! Operations that calculate: element by element, products of matrices, reductions.

use frazil_graph::Value;
use frazil_graph::op::{
    ArgMax, Binary, Cast, Compare, Gelu, GeluForm, LayerNorm, Linear, MatMul, Op, Reduce,
    ReduceKind, Unary,
};
use frazil_tensor::{DType, Tensor};

use super::importer::{Call, Importer, Pending};
use super::{Outcome, Problem};
use crate::onnx::dtype::from_onnx;

pub(super) fn unary_kind(op: &str) -> Option<Unary> {
    Some(match op {
        "Identity" => Unary::Identity,
        "Neg" => Unary::Neg,
        "Abs" => Unary::Abs,
        "Sign" => Unary::Sign,
        "Exp" => Unary::Exp,
        "Log" => Unary::Log,
        "Sqrt" => Unary::Sqrt,
        "Reciprocal" => Unary::Reciprocal,
        "Floor" => Unary::Floor,
        "Round" => Unary::Round,
        "Sin" => Unary::Sin,
        "Cos" => Unary::Cos,
        "Tanh" => Unary::Tanh,
        "Erf" => Unary::Erf,
        "Sigmoid" => Unary::Sigmoid,
        "Relu" => Unary::Relu,
        "Not" => Unary::Not,
        _ => return None,
    })
}

pub(super) fn unary(i: &mut Importer, call: &Call<'_>, kind: Unary) -> Outcome {
    Ok(i.push(&call.name, Op::Unary(kind), vec![call.input(0)?])?)
}

pub(super) fn binary_kind(op: &str) -> Option<Binary> {
    Some(match op {
        "Add" => Binary::Add,
        "Sub" => Binary::Sub,
        "Mul" => Binary::Mul,
        "Div" => Binary::Div,
        "And" => Binary::And,
        "Or" => Binary::Or,
        _ => return None,
    })
}

pub(super) fn binary(i: &mut Importer, call: &Call<'_>, kind: Binary) -> Outcome {
    Ok(i.push(&call.name, Op::Binary(kind), vec![call.input(0)?, call.input(1)?])?)
}

pub(super) fn compare_kind(op: &str) -> Option<Compare> {
    Some(match op {
        "Equal" => Compare::Equal,
        "Xor" => Compare::NotEqual,
        "Less" => Compare::Less,
        "LessOrEqual" => Compare::LessEqual,
        "Greater" => Compare::Greater,
        "GreaterOrEqual" => Compare::GreaterEqual,
        _ => return None,
    })
}

pub(super) fn compare(i: &mut Importer, call: &Call<'_>, kind: Compare) -> Outcome {
    Ok(i.push(&call.name, Op::Compare(kind), vec![call.input(0)?, call.input(1)?])?)
}

/// Nothing is dropped where a model only runs.
pub(super) fn dropout(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let training = call.optional(2).and_then(|value| i.constant(value));
    let off = match call.optional(2) {
        None => true,
        Some(_) => training.is_some_and(|t| t.bytes().is_ok_and(|b| b.iter().all(|&x| x == 0))),
    };
    if !off {
        return Err("it drops elements: the model was exported for training".into());
    }
    Ok(i.identity(call, call.input(0)?)?)
}

/// The rest with the sign of `y` or, as C has it, with the sign of `x`.
pub(super) fn modulo(i: &mut Importer, call: &Call<'_>) -> Outcome {
    if call.int("fmod").unwrap_or(0) == 0 {
        return binary(i, call, Binary::FloorMod);
    }
    let (x, y) = (call.input(0)?, call.input(1)?);
    let size = i.aux(call, "size", Op::Unary(Unary::Abs), vec![x])?;
    let divisor = i.aux(call, "divisor", Op::Unary(Unary::Abs), vec![y])?;
    let rest = i.aux(call, "rest", Op::Binary(Binary::FloorMod), vec![size, divisor])?;
    let sign = i.aux(call, "sign", Op::Unary(Unary::Sign), vec![x])?;
    Ok(i.push(&call.name, Op::Binary(Binary::Mul), vec![rest, sign])?)
}

/// ONNX lets the exponent have another type.
pub(super) fn pow(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let (x, mut y) = (call.input(0)?, call.input(1)?);
    if let (Some(a), Some(b)) = (i.dtype(x), i.dtype(y))
        && a != b
    {
        y = i.aux(call, "exponent", Op::Cast(Cast { to: a }), vec![y])?;
    }
    Ok(i.push(&call.name, Op::Binary(Binary::Pow), vec![x, y])?)
}

/// Any number of operands, two by two.
pub(super) fn variadic(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let kind = match call.op() {
        "Max" => Binary::Maximum,
        "Min" => Binary::Minimum,
        _ => Binary::Add,
    };
    let inputs = call.all()?;
    let Some((&first, others)) = inputs.split_first() else {
        return Err("it has no inputs".into());
    };
    let Some((&last, between)) = others.split_last() else {
        return Ok(i.identity(call, first)?);
    };
    let mut result = first;
    for &other in between {
        result = i.aux(call, "so_far", Op::Binary(kind), vec![result, other])?;
    }
    Ok(i.push(&call.name, Op::Binary(kind), vec![result, last])?)
}

pub(super) fn clip(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let x = call.input(0)?;
    let mut bounds = [call.optional(1), call.optional(2)];
    for (bound, name) in bounds.iter_mut().zip(["min", "max"]) {
        // Before opset 11 these were attributes.
        if let Some(value) = call.float(name) {
            *bound = Some(i.tensor(call, name, Tensor::from_vec([], vec![value])?)?);
        }
    }
    let [low, high] = bounds;
    let result = match (low, high) {
        (Some(low), Some(high)) => {
            let x = i.aux(call, "at_least", Op::Binary(Binary::Maximum), vec![x, low])?;
            i.push(&call.name, Op::Binary(Binary::Minimum), vec![x, high])?
        }
        (Some(low), None) => i.push(&call.name, Op::Binary(Binary::Maximum), vec![x, low])?,
        (None, Some(high)) => i.push(&call.name, Op::Binary(Binary::Minimum), vec![x, high])?,
        (None, None) => i.identity(call, x)?,
    };
    Ok(result)
}

/// Nothing else differs from itself.
pub(super) fn is_nan(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let x = call.input(0)?;
    Ok(i.push(&call.name, Op::Compare(Compare::NotEqual), vec![x, x])?)
}

pub(super) fn cast(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let to = if call.op() == "CastLike" {
        i.dtype(call.input(1)?).ok_or_else(|| "the type it casts to is not known".to_owned())?
    } else {
        let number = call.int("to").unwrap_or(0);
        let dtype = i32::try_from(number).ok().and_then(from_onnx);
        dtype.ok_or_else(|| format!("it casts to type {number}, which is unknown"))?
    };
    Ok(i.push(&call.name, Op::Cast(Cast { to }), vec![call.input(0)?])?)
}

pub(super) fn select(i: &mut Importer, call: &Call<'_>) -> Outcome {
    Ok(i.push(&call.name, Op::Select, vec![call.input(0)?, call.input(1)?, call.input(2)?])?)
}

pub(super) fn matmul(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let operands = vec![call.input(0)?, call.input(1)?];
    Ok(i.push(&call.name, Op::MatMul(MatMul::default()), operands)?)
}

/// `alpha a b + beta c`; with plain factors and a vector for `c` it is a linear layer.
pub(super) fn gemm(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let (a, b, c) = (call.input(0)?, call.input(1)?, call.optional(2));
    let flag = |name: &str| call.int(name).unwrap_or(0) != 0;
    let op = MatMul { transpose_a: flag("transA"), transpose_b: flag("transB") };
    let alpha = call.float("alpha").unwrap_or(1.0);
    let beta = call.float("beta").unwrap_or(1.0);
    let is_vector = |value: Value| i.constant(value).is_some_and(|t| t.shape().len() == 1);
    if let Some(bias) = c
        && alpha == 1.0
        && beta == 1.0
        && !op.transpose_a
        && is_vector(bias)
    {
        let linear = Linear { transpose_w: op.transpose_b };
        return Ok(i.push(&call.name, Op::Linear(linear), vec![a, b, bias])?);
    }
    let c = c.filter(|_| beta != 0.0);
    let dtype = i.dtype(a);
    let factor = |i: &mut Importer, part: &str, value: f32| -> Outcome {
        let tensor = Tensor::from_vec([], vec![value])?;
        let tensor = tensor.cast(dtype.filter(|d| d.is_float()).unwrap_or(DType::F32))?;
        Ok(i.tensor(call, part, tensor)?)
    };
    // The last of the three gives the result its name.
    let (scales, adds) = (alpha != 1.0, c.is_some());
    let name = |last: bool, part: &str| match last {
        true => call.name.clone(),
        false => format!("{}/{part}", call.name),
    };
    let mut result = i.push(&name(!scales && !adds, "product"), Op::MatMul(op), vec![a, b])?;
    if scales {
        let alpha = factor(i, "alpha", alpha)?;
        result = i.push(&name(!adds, "scaled"), Op::Binary(Binary::Mul), vec![result, alpha])?;
    }
    if let Some(mut bias) = c {
        if beta != 1.0 {
            let beta = factor(i, "beta", beta)?;
            bias = i.aux(call, "bias", Op::Binary(Binary::Mul), vec![bias, beta])?;
        }
        result = i.push(&name(true, "sum"), Op::Binary(Binary::Add), vec![result, bias])?;
    }
    Ok(result)
}

pub(super) fn reduce_kind(op: &str) -> Option<ReduceKind> {
    Some(match op {
        "ReduceMean" => ReduceKind::Mean,
        "ReduceSum" => ReduceKind::Sum,
        "ReduceMax" => ReduceKind::Max,
        "ReduceMin" => ReduceKind::Min,
        "ReduceProd" => ReduceKind::Prod,
        _ => return None,
    })
}

pub(super) fn reduce(i: &mut Importer, call: &Call<'_>, kind: ReduceKind) -> Outcome {
    let x = call.input(0)?;
    let keep_dims = call.int("keepdims").unwrap_or(1) != 0;
    let Some(axes) = axes(i, call)? else { return Ok(i.identity(call, x)?) };
    // Least and greatest truth values are "all" and "any".
    let kind = match (kind, i.dtype(x)) {
        (ReduceKind::Min, Some(DType::Bool)) => ReduceKind::All,
        (ReduceKind::Max, Some(DType::Bool)) => ReduceKind::Any,
        (kind, _) => kind,
    };
    Ok(i.push(&call.name, Op::Reduce(Reduce { kind, keep_dims }), vec![x, axes])?)
}

/// The axes of a reduction: an attribute, an input, or all of them; `None` for none at all.
fn axes(i: &mut Importer, call: &Call<'_>) -> Result<Option<Value>, Problem> {
    let known = match (call.ints("axes"), call.optional(1)) {
        (Some(axes), _) => Some(axes),
        (None, Some(input)) => match i.ints(input) {
            Some(axes) => Some(axes),
            None => return Ok(Some(input)),
        },
        (None, None) => None,
    };
    match known {
        Some(axes) if !axes.is_empty() => Ok(Some(i.list(call, "axes", &axes)?)),
        _ if call.int("noop_with_empty_axes").unwrap_or(0) != 0 => Ok(None),
        _ => {
            let rank = i.aux(call, "rank", Op::Rank, vec![call.input(0)?])?;
            let (zero, one) = (i.int(call, "zero", 0)?, i.int(call, "one", 1)?);
            Ok(Some(i.aux(call, "axes", Op::Range, vec![zero, rank, one])?))
        }
    }
}

pub(super) fn reduce_l2(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let keep_dims = call.int("keepdims").unwrap_or(1) != 0;
    let x = call.input(0)?;
    let Some(axes) = axes(i, call)? else {
        return Ok(i.push(&call.name, Op::Unary(Unary::Abs), vec![x])?);
    };
    let squares = i.aux(call, "squares", Op::Unary(Unary::Square), vec![x])?;
    let sum = Op::Reduce(Reduce { kind: ReduceKind::Sum, keep_dims });
    let sum = i.aux(call, "sum", sum, vec![squares, axes])?;
    Ok(i.push(&call.name, Op::Unary(Unary::Sqrt), vec![sum])?)
}

pub(super) fn arg_max(i: &mut Importer, call: &Call<'_>) -> Outcome {
    if call.int("select_last_index").unwrap_or(0) != 0 {
        return Err("the last of several largest elements".into());
    }
    let axis = i.int(call, "axis", call.int("axis").unwrap_or(0))?;
    let op = Op::ArgMax(ArgMax { to: DType::I64 });
    let inputs = vec![call.input(0)?, axis];
    if call.int("keepdims").unwrap_or(1) == 0 {
        return Ok(i.push(&call.name, op, inputs)?);
    }
    let place = i.aux(call, "place", op, inputs)?;
    Ok(i.push(&call.name, Op::ExpandDims, vec![place, axis])?)
}

pub(super) fn softmax(i: &mut Importer, call: &Call<'_>, op: Op) -> Outcome {
    let flattens = i.opset < 13;
    let axis = call.int("axis").unwrap_or(if flattens { 1 } else { -1 });
    let value = i.push(&call.name, op, vec![call.input(0)?])?;
    if axis != -1 {
        i.pending.push(Pending::Softmax { node: value.node, axis, flattens });
    }
    Ok(value)
}

pub(super) fn layer_norm(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let (x, gamma) = (call.input(0)?, call.input(1)?);
    let beta = match call.optional(2) {
        Some(beta) => beta,
        None => match i.constant(gamma) {
            // No more than the weight that is there.
            Some(gamma) => {
                let (dtype, shape) = (gamma.dtype(), gamma.shape().clone());
                let zeros = Tensor::new(dtype, shape, vec![0u8; gamma.byte_len()])?;
                i.tensor(call, "beta", zeros)?
            }
            None => i.aux(call, "beta", Op::Binary(Binary::Sub), vec![gamma, gamma])?,
        },
    };
    let epsilon = call.float("epsilon").unwrap_or(1e-5);
    let value = i.push(&call.name, Op::LayerNorm(LayerNorm { epsilon }), vec![x, gamma, beta])?;
    let axis = call.int("axis").unwrap_or(-1);
    if axis != -1 {
        i.pending.push(Pending::Norm { node: value.node, axis });
    }
    Ok(value)
}

pub(super) fn gelu(i: &mut Importer, call: &Call<'_>, tanh: bool) -> Outcome {
    let form = if tanh { GeluForm::Tanh } else { GeluForm::Erf };
    Ok(i.push(&call.name, Op::Gelu(Gelu { form }), vec![call.input(0)?])?)
}
