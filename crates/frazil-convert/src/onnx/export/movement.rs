//! Operations that move elements or speak of extents; windows are in `window`.

use frazil_graph::op::{Gather, OneHot, Pack, Split, Squeeze, Unpack};
use frazil_graph::{Node, Value};
use frazil_tensor::{DType, Tensor};

use super::attr;
use super::builder::{Builder, Refusal, no_type, tensor_attribute};
use crate::onnx::dtype::to_onnx;

type Emitted = Result<(), Refusal>;

/// `Shape` and `Size`, which are `int64` in ONNX.
pub(super) fn extents(b: &mut Builder<'_>, node: &Node, op: &str, to: DType) -> Emitted {
    let x = b.any(node.inputs[0])?;
    if b.is_wide() || to == DType::I64 {
        return b.finish(op, &[&x], vec![]);
    }
    let long = b.emit("int64", op, &[&x], vec![]);
    finish_cast(b, &long, to)
}

pub(super) fn rank(b: &mut Builder<'_>, node: &Node) -> Emitted {
    let to = if b.is_wide() { DType::I64 } else { DType::I32 };
    if let Some(rank) = b.rank(node.inputs[0]) {
        let rank = b.number("value", to, rank as f64)?;
        return b.finish("Identity", &[&rank], vec![]);
    }
    let x = b.any(node.inputs[0])?;
    let shape = b.emit("shape", "Shape", &[&x], vec![]);
    if b.is_wide() {
        return b.finish("Size", &[&shape], vec![]);
    }
    let count = b.emit("int64", "Size", &[&shape], vec![]);
    finish_cast(b, &count, to)
}

fn finish_cast(b: &mut Builder<'_>, x: &str, to: DType) -> Emitted {
    let number = to_onnx(to).ok_or_else(|| no_type(to))?;
    b.finish("Cast", &[x], vec![attr::int("to", i64::from(number as i32))])
}

pub(super) fn reshape(b: &mut Builder<'_>, node: &Node) -> Emitted {
    let x = b.data(node.inputs[0])?;
    let known = b.ints(node.inputs[1]);
    let target = b.index(node.inputs[1])?;
    let mut attributes = Vec::new();
    // A 0 means an empty axis here, and "as it was" in ONNX unless told otherwise.
    if known.is_some_and(|dims| dims.contains(&0)) {
        if b.opset < 14 {
            return Err("an empty axis needs opset 14 or later".to_owned());
        }
        attributes.push(attr::int("allowzero", 1));
    }
    b.finish("Reshape", &[&x, &target], attributes)
}

pub(super) fn expand_dims(b: &mut Builder<'_>, node: &Node) -> Emitted {
    let x = b.data(node.inputs[0])?;
    let axis = b.known_int(node.inputs[1], "axis")?;
    let axes = b.list("axes", &[axis])?;
    b.finish("Unsqueeze", &[&x, &axes], vec![])
}

pub(super) fn squeeze(b: &mut Builder<'_>, node: &Node, op: &Squeeze) -> Emitted {
    let x = b.data(node.inputs[0])?;
    if op.axes.is_empty() {
        return b.finish("Squeeze", &[&x], vec![]);
    }
    let axes = b.list("axes", &op.axes)?;
    b.finish("Squeeze", &[&x, &axes], vec![])
}

pub(super) fn transpose(b: &mut Builder<'_>, node: &Node) -> Emitted {
    let x = b.data(node.inputs[0])?;
    let order = b.known_ints(node.inputs[1], "order of axes")?;
    b.finish("Transpose", &[&x], vec![attr::ints("perm", &order)])
}

pub(super) fn concat(b: &mut Builder<'_>, node: &Node) -> Emitted {
    let Some((axis, parts)) = node.inputs.split_last() else {
        return Err("it joins nothing".to_owned());
    };
    let axis = b.known_int(*axis, "axis")?;
    let parts = parts.iter().map(|&part| b.data(part)).collect::<Result<Vec<_>, _>>()?;
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    b.finish("Concat", &parts, vec![attr::int("axis", axis)])
}

/// Every part gets an axis, and they are joined along it. Neighbouring numbers that are known,
/// as in most lists of extents, become one list.
pub(super) fn pack(b: &mut Builder<'_>, node: &Node, op: Pack) -> Emitted {
    let mut parts = Vec::new();
    let mut known = Vec::new();
    for &value in &node.inputs {
        let scalar = b.rank(value) == Some(0) && op.axis == 0 && b.is_wide();
        if let (true, Some([number])) = (scalar, b.ints(value).as_deref()) {
            known.push(*number);
            continue;
        }
        if !known.is_empty() {
            parts.push(b.list("extents", &std::mem::take(&mut known))?);
        }
        let x = b.data(value)?;
        parts.push(b.unsqueeze("part", &x, &[op.axis])?);
    }
    if !known.is_empty() {
        parts.push(b.list("extents", &known)?);
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    b.finish("Concat", &parts, vec![attr::int("axis", op.axis)])
}

pub(super) fn unpack(b: &mut Builder<'_>, node: &Node, op: Unpack) -> Emitted {
    let x = b.data(node.inputs[0])?;
    let axes = b.list("axes", &[op.axis])?;
    if op.count == 1 {
        return b.finish("Squeeze", &[&x, &axes], vec![]);
    }
    let sizes = b.list("sizes", &vec![1; op.count])?;
    let axis = vec![attr::int("axis", op.axis)];
    let parts = b.emit_many("part", "Split", &[&x, &sizes], axis, op.count);
    for (port, part) in parts.iter().enumerate() {
        b.finish_port(port as u32, "Squeeze", &[part, &axes], vec![]);
    }
    Ok(())
}

pub(super) fn split(b: &mut Builder<'_>, node: &Node, op: Split) -> Emitted {
    let x = b.data(node.inputs[1])?;
    let axis = b.known_int(node.inputs[0], "axis")?;
    let mut attributes = vec![attr::int("axis", axis)];
    if op.count == 1 {
        return b.finish("Identity", &[&x], vec![]);
    }
    let extent = b.dims(node.inputs[1]).and_then(|dims| {
        let axis = if axis < 0 { axis + dims.len() as i64 } else { axis };
        dims.get(usize::try_from(axis).ok()?)?.as_known()
    });
    match extent {
        Some(extent) if extent % op.count as i64 == 0 => {
            let sizes = b.list("sizes", &vec![extent / op.count as i64; op.count])?;
            b.finish("Split", &[&x, &sizes], attributes)
        }
        _ => {
            if b.opset >= 18 {
                attributes.push(attr::int("num_outputs", op.count as i64));
            }
            b.finish("Split", &[&x], attributes)
        }
    }
}

pub(super) fn split_v(b: &mut Builder<'_>, node: &Node) -> Emitted {
    let x = b.data(node.inputs[0])?;
    let axis = b.known_int(node.inputs[2], "axis")?;
    let attributes = vec![attr::int("axis", axis)];
    let sizes = match b.ints(node.inputs[1]) {
        Some(mut sizes) => {
            if let Some(open) = sizes.iter().position(|&size| size == -1) {
                // What inference says of that part.
                let part = Value { node: b.current(), port: open as u32 };
                let extent = b.dims(part).and_then(|dims| {
                    let axis = if axis < 0 { axis + dims.len() as i64 } else { axis };
                    dims.get(usize::try_from(axis).ok()?)?.as_known()
                });
                sizes[open] = extent.ok_or("the size of a part is not known")?;
            }
            b.list("sizes", &sizes)?
        }
        None => b.index(node.inputs[1])?,
    };
    b.finish("Split", &[&x, &sizes], attributes)
}

pub(super) fn gather(b: &mut Builder<'_>, node: &Node, op: Gather) -> Emitted {
    let table = b.data(node.inputs[0])?;
    let axis = b.known_int(node.inputs[2], "axis")?;
    if op.batch_dims == 0 {
        let indices = b.any(node.inputs[1])?;
        return b.finish("Gather", &[&table, &indices], vec![attr::int("axis", axis)]);
    }
    if axis != op.batch_dims as i64 {
        return Err(format!(
            "{} batch axes and axis {axis}: the axis must follow the batch axes",
            op.batch_dims
        ));
    }
    let indices = b.index(node.inputs[1])?;
    let indices = b.unsqueeze("indices", &indices, &[-1])?;
    let batch = vec![attr::int("batch_dims", op.batch_dims as i64)];
    b.finish("GatherND", &[&table, &indices], batch)
}

/// A comparison with `0, 1, … depth - 1`. ONNX's `OneHot` takes negative indices for ones from
/// the end; here they give no hot element at all.
pub(super) fn one_hot(b: &mut Builder<'_>, node: &Node, op: OneHot) -> Emitted {
    let &[indices, depth, on, off] = node.inputs.as_slice() else {
        return Err("four inputs are wanted".to_owned());
    };
    let dtype = b.dtype(indices)?;
    let mut x = b.input(indices)?;
    // Few engines compare the smaller types.
    let wanted = if dtype == DType::I32 { DType::I32 } else { DType::I64 };
    if dtype != wanted {
        x = b.cast("indices", &x, wanted)?;
    }
    let x = b.unsqueeze("column", &x, &[op.axis])?;
    let after = match op.axis {
        -1 => 0,
        axis => {
            let rank = b.known_rank(indices)? as i64;
            usize::try_from(if axis < 0 { -1 - axis } else { rank - axis })
                .map_err(|_| format!("axis {axis} is outside of {rank} axes"))?
        }
    };
    let classes = classes(b, depth, wanted, after)?;
    let hot = b.emit("hot", "Equal", &[&x, &classes], vec![]);
    let to = b.dtype(on)?;
    let is = |b: &Builder<'_>, value: Value, number: f64| {
        b.constant(value).is_some_and(|tensor| {
            tensor.elements() == 1 && tensor.to_f64().is_ok_and(|all| all == [number])
        })
    };
    if is(b, on, 1.0) && is(b, off, 0.0) {
        return finish_cast(b, &hot, to);
    }
    let (on, off) = (b.input(on)?, b.input(off)?);
    b.finish("Where", &[&hot, &on, &off], vec![])
}

/// `0, 1, … depth - 1` along the first of `1 + after` axes.
fn classes(
    b: &mut Builder<'_>,
    depth: Value,
    dtype: DType,
    after: usize,
) -> Result<String, Refusal> {
    const MOST: i64 = 1 << 24;
    if let Some(&[depth]) = b.ints(depth).as_deref()
        && (0..=MOST).contains(&depth)
    {
        let count = depth as usize;
        let mut shape = vec![count];
        shape.resize(1 + after, 1);
        let tensor = match dtype {
            DType::I32 => Tensor::from_vec(shape, (0..count as i32).collect()),
            _ => Tensor::from_vec(shape, (0..count as i64).collect()),
        };
        return b.small("classes", &tensor.map_err(|e| e.to_string())?);
    }
    let limit = b.index(depth)?;
    let limit = if dtype == DType::I64 { limit } else { b.cast("depth", &limit, dtype)? };
    let (zero, one) = (b.number("zero", dtype, 0.0)?, b.number("one", dtype, 1.0)?);
    let row = b.emit("classes", "Range", &[&zero, &limit, &one], vec![]);
    if after == 0 {
        return Ok(row);
    }
    let mut shape = vec![-1];
    shape.resize(1 + after, 1);
    let shape = b.list("classes_shape", &shape)?;
    Ok(b.emit("classes_column", "Reshape", &[&row, &shape], vec![]))
}

pub(super) fn range(b: &mut Builder<'_>, node: &Node) -> Emitted {
    let bounds = node.inputs.iter().map(|&bound| b.data(bound)).collect::<Result<Vec<_>, _>>()?;
    let bounds: Vec<&str> = bounds.iter().map(String::as_str).collect();
    b.finish("Range", &bounds, vec![])
}

pub(super) fn fill(b: &mut Builder<'_>, node: &Node) -> Emitted {
    let dims = b.index(node.inputs[0])?;
    let constant = b.constant(node.inputs[1]).filter(|value| value.elements() == 1);
    match constant {
        Some(value) if value.dtype() != DType::String => {
            let value = if b.is_wide() {
                let value = b.known_int(node.inputs[1], "value")?;
                Tensor::from_vec([1], vec![value])
            } else {
                value.reshape([1])
            };
            let value = tensor_attribute(&value.map_err(|e| e.to_string())?)?;
            b.finish("ConstantOfShape", &[&dims], vec![attr::tensor("value", value)])
        }
        _ => {
            let value = b.data(node.inputs[1])?;
            b.finish("Expand", &[&value, &dims], vec![])
        }
    }
}

/// `Tile` and `Expand`: data and a list of numbers.
pub(super) fn spread(b: &mut Builder<'_>, node: &Node, op: &str) -> Emitted {
    let x = b.data(node.inputs[0])?;
    let list = b.index(node.inputs[1])?;
    b.finish(op, &[&x, &list], vec![])
}

pub(super) fn pad(b: &mut Builder<'_>, node: &Node) -> Emitted {
    let x = b.input(node.inputs[0])?;
    // Pairs per axis here; all that come before, then all that come after, there.
    let pads = match b.ints(node.inputs[1]) {
        Some(pairs) => {
            let before = pairs.iter().step_by(2);
            let after = pairs.iter().skip(1).step_by(2);
            let pads: Vec<i64> = before.chain(after).copied().collect();
            b.list("pads", &pads)?
        }
        None => {
            let pairs = b.index(node.inputs[1])?;
            let order = vec![attr::ints("perm", &[1, 0])];
            let turned = b.emit("pairs", "Transpose", &[&pairs], order);
            let flat = b.list("flat", &[-1])?;
            b.emit("pads", "Reshape", &[&turned, &flat], vec![])
        }
    };
    match node.inputs.get(2) {
        Some(&value) => {
            let value = b.input(value)?;
            b.finish("Pad", &[&x, &pads, &value], vec![])
        }
        None => b.finish("Pad", &[&x, &pads], vec![]),
    }
}
