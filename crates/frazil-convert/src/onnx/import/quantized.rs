//! `QuantizeLinear` and `DequantizeLinear`: a pair of them puts numbers on the steps of bytes, the
//! second alone makes a weight of bytes. Where neither is there in a form that the graph has one
//! operation for, both are formulas with the same numbers.

use frazil_graph::Value;
use frazil_graph::op::{Binary, Cast, Op, Scaled, Steps, Unary};
use frazil_tensor::{DType, Tensor};

use super::Outcome;
use super::importer::{Call, Importer};

/// A value as bytes, with one scale and one zero for all.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Grid {
    scale: f32,
    zero: i64,
    dtype: DType,
}

/// What was made bytes of, by the value that is the bytes.
pub(super) type Quantized = std::collections::HashMap<Value, (Value, Grid)>;

impl Grid {
    /// That of a call's second and third input, if both are known, single numbers.
    fn of(i: &Importer, call: &Call<'_>, dtype: DType) -> Option<Self> {
        let one = |value: Value| {
            let tensor = i.constant(value).filter(|tensor| tensor.elements() == 1)?;
            tensor.to_f64().ok()?.first().copied()
        };
        let scale = i.constant(call.optional(1)?).filter(|scale| scale.dtype() == DType::F32)?;
        let scale = one(call.optional(1)?).filter(|_| scale.elements() == 1)? as f32;
        let zero = call.optional(2).map_or(Some(0.0), one)? as i64;
        (scale.is_normal() && scale > 0.0).then_some(Self { scale, zero, dtype })
    }

    /// The steps that these bytes are.
    fn steps(self) -> Option<Steps> {
        let zero = match self.dtype {
            DType::U8 => self.zero,
            DType::I8 => self.zero + 128,
            _ => return None,
        };
        Some(Steps::Tensor { scale: self.scale, zero: u8::try_from(zero).ok()? })
    }
}

/// `clamp(round(x / scale) + zero)`
pub(super) fn quantize(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let (x, scale) = (call.input(0)?, call.input(1)?);
    let dtype = call.optional(2).map_or(Some(DType::U8), |zero| i.dtype(zero));
    let dtype = dtype.filter(|dtype| matches!(dtype, DType::U8 | DType::I8));
    let dtype = dtype.ok_or("to other integers than those of 8 bits")?;
    if i.dtype(x).is_some_and(|dtype| dtype != DType::F32) {
        return Err("of other numbers than float32".into());
    }
    let Some(grid) = Grid::of(i, call, dtype) else {
        return Err("its scale and zero are not single numbers that are known".into());
    };
    let limits = if dtype == DType::U8 { [0.0, 255.0] } else { [-128.0, 127.0] };
    let [low, high] = limits.map(|limit: f32| Tensor::from_vec([], vec![limit]));
    let (low, high) = (i.tensor(call, "low", low?)?, i.tensor(call, "high", high?)?);
    let zero = i.tensor(call, "zero", Tensor::from_vec([], vec![grid.zero as f32])?)?;
    let binary = Op::Binary;
    let steps = i.aux(call, "steps", binary(Binary::Div), vec![x, scale])?;
    let whole = i.aux(call, "whole", Op::Unary(Unary::Round), vec![steps])?;
    let from_zero = i.aux(call, "from_zero", binary(Binary::Add), vec![whole, zero])?;
    let at_least = i.aux(call, "at_least", binary(Binary::Maximum), vec![from_zero, low])?;
    let clamped = i.aux(call, "clamped", binary(Binary::Minimum), vec![at_least, high])?;
    let bytes = i.push(&call.name, Op::Cast(Cast { to: dtype }), vec![clamped])?;
    i.quantized.insert(bytes, (x, grid));
    Ok(bytes)
}

/// `(x - zero) * scale`
pub(super) fn dequantize(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let (x, scale) = (call.input(0)?, call.input(1)?);
    if call.int("block_size").unwrap_or(0) != 0 {
        return Err("a scale for each block of a row".into());
    }
    let dtype = i.dtype(x).ok_or_else(|| "the type of its input is not known".to_owned())?;
    if let Some(&(from, grid)) = i.quantized.get(&x)
        && Grid::of(i, call, dtype) == Some(grid)
        && let Some(steps) = grid.steps()
    {
        let (from, steps) = symmetric(i, from, grid).unwrap_or((from, steps));
        return Ok(i.push(&call.name, Op::FakeQuantize(steps), vec![from])?);
    }
    if !matches!(dtype, DType::U8 | DType::I8 | DType::I32) {
        return Err(format!("of {dtype}").into());
    }
    let zero = call.optional(2);
    let no_zero = |zero: Value| {
        let tensor = i.constant(zero)?;
        tensor.bytes().ok().map(|bytes| bytes.iter().all(|&byte| byte == 0))
    };
    let plain = zero.is_none_or(|zero| no_zero(zero) == Some(true));
    let axis = call.int("axis").unwrap_or(1);
    if dtype == DType::I8
        && plain
        && let Some(op) = weight(i, x, scale, axis)?
    {
        return Ok(i.push(&call.name, op.0, vec![x, op.1])?);
    }
    if dtype == DType::I32
        && plain
        && let Some(bias) = bias(i, x, scale)
    {
        return Ok(i.push(&call.name, Op::constant(bias), vec![])?);
    }
    // The rest as numbers, which `raise_bytes` makes bytes of where that is exact.
    let to = || Op::Cast(Cast { to: DType::F32 });
    let mut numbers = i.aux(call, "numbers", to(), vec![x])?;
    if let Some(zero) = zero.filter(|_| !plain) {
        let zero = along(i, call, "zeros", x, zero, axis)?;
        let zero = i.aux(call, "zero_numbers", to(), vec![zero])?;
        numbers = i.aux(call, "from_zero", Op::Binary(Binary::Sub), vec![numbers, zero])?;
    }
    let scale = along(i, call, "scales", x, scale, axis)?;
    Ok(i.push(&call.name, Op::Binary(Binary::Mul), vec![numbers, scale])?)
}

/// What `Clip` let through of numbers on signed steps, if it is what keeps them from -128.
fn symmetric(i: &Importer, clipped: Value, grid: Grid) -> Option<(Value, Steps)> {
    if (grid.dtype, grid.zero) != (DType::I8, 0) {
        return None;
    }
    let end = 127.0 * grid.scale;
    let clip = |value: Value, kind: Binary, limit: f32| {
        let node = i.graph.node(value.node);
        let &[x, bound] = node.inputs.as_slice() else { return None };
        let bound = i.constant(bound).filter(|bound| bound.elements() == 1)?.to_f64().ok()?;
        (node.op == Op::Binary(kind) && bound == [f64::from(limit)]).then_some(x)
    };
    let x = clip(clip(clipped, Binary::Minimum, end)?, Binary::Maximum, -end)?;
    Some((x, Steps::Symmetric { scale: grid.scale }))
}

/// A constant of signed bytes, each on its scale: the operation and the scales as a list.
fn weight(
    i: &mut Importer,
    x: Value,
    scale: Value,
    axis: i64,
) -> Result<Option<(Op, Value)>, super::Problem> {
    let (Some(bytes), Some(scales)) = (i.constant(x), i.constant(scale)) else { return Ok(None) };
    let shape = bytes.shape().clone();
    let place = if axis < 0 { axis + shape.len() as i64 } else { axis };
    let extent = usize::try_from(place).ok().and_then(|place| shape.get(place).copied());
    if scales.dtype() != DType::F32 || shape.is_empty() {
        return Ok(None);
    }
    match (&**scales.shape(), extent) {
        ([], _) => {
            let bytes = scales.bytes()?.clone();
            let list = Tensor::new(DType::F32, [1], bytes)?;
            let name = format!("{}/list", i.graph.value_name(scale));
            let list = i.push(&name, Op::constant(list), vec![])?;
            Ok(Some((Op::Scaled(Scaled { axis: 0 }), list)))
        }
        ([1], _) => Ok(Some((Op::Scaled(Scaled { axis: 0 }), scale))),
        (&[n], Some(extent)) if n == extent => {
            Ok(Some((Op::Scaled(Scaled { axis: place }), scale)))
        }
        _ => Err("its scales do not fit its axis".into()),
    }
}

/// A list of integers on one scale, or each on its own, as the numbers that they stand for.
fn bias(i: &Importer, x: Value, scale: Value) -> Option<Tensor> {
    let (x, scale) = (i.constant(x)?, i.constant(scale)?);
    let (whole, scales) = (x.values::<i32>().ok()?, scale.values::<f32>().ok()?);
    let fits = x.shape().len() == 1 && [1, whole.len()].contains(&scales.len());
    let scaled = |(place, &whole): (usize, &i32)| whole as f32 * scales[place % scales.len()];
    let values = fits.then(|| whole.iter().enumerate().map(scaled).collect())?;
    Tensor::from_vec(x.shape().clone(), values).ok()
}

/// A list that goes along an axis of `x`, or a number, in a shape that broadcasts so.
fn along(
    i: &mut Importer,
    call: &Call<'_>,
    part: &str,
    x: Value,
    list: Value,
    axis: i64,
) -> Result<Value, super::Problem> {
    let Some(shape) = i.constant(list).map(|list| list.shape().clone()) else {
        return Err("its scale and zero are not constant".into());
    };
    if shape.iter().product::<usize>() == 1 {
        return Ok(list);
    }
    let rank = i.constant(x).map(|x| x.shape().len() as i64);
    let behind = match (axis, rank) {
        (..0, _) => -1 - axis,
        (_, Some(rank)) => rank - 1 - axis,
        _ => return Err("several scales for what is not constant".into()),
    };
    let behind = usize::try_from(behind).map_err(|_| "its axis is not there".to_owned())?;
    if shape.len() != 1 || behind > 16 {
        return Err("its scales do not fit its axis".into());
    }
    let mut target = vec![-1];
    target.resize(1 + behind, 1);
    let target = i.list(call, &format!("{part}_shape"), &target)?;
    Ok(i.aux(call, part, Op::Reshape, vec![list, target])?)
}
