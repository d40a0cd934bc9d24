//! Numbers on the steps of bytes, as pairs of `QuantizeLinear` and `DequantizeLinear`, in the form
//! that ONNX Runtime turns into products of bytes.
//!
//! It recognises a product of two `DequantizeLinear` before its `Add` of a bias only where that
//! `Add` did not become one `Gemm` with the product first; so the bias of such a product is
//! added by a `Sum` (of two), the same operation under a name that is left alone. A weight is
//! written as `[k, n]`: there is no transposition between it and the product.

use std::collections::HashSet;

use frazil_graph::op::{Linear, MatMul, Op, Scaled, Steps};
use frazil_graph::pattern::source;
use frazil_graph::{Node, NodeId, Value};
use frazil_tensor::{DType, Tensor};

use super::attr;
use super::builder::{Builder, Refusal, number};

type Emitted = Result<(), Refusal>;

pub(super) fn fake_quantize(b: &mut Builder<'_>, node: &Node, steps: Steps) -> Emitted {
    let x = b.input(node.inputs[0])?;
    let (x, scale, zero) = match steps {
        Steps::Tensor { scale, zero } => (x, scale, number(DType::U8, f64::from(zero))?),
        Steps::Symmetric { scale } => {
            // ONNX's signed bytes reach to -128, ours to -127.
            let end = 127.0 * f64::from(scale);
            let (low, high) =
                (b.number("low", DType::F32, -end)?, b.number("high", DType::F32, end)?);
            let x = b.emit("clipped", "Clip", &[&x, &low, &high], vec![]);
            (x, scale, number(DType::I8, 0.0)?)
        }
        Steps::Watched { .. } => return b.finish("Identity", &[&x], vec![]),
        Steps::Rows => return Err("its steps have to be lowered first".to_owned()),
    };
    let scale = b.number("scale", DType::F32, f64::from(scale))?;
    let zero = b.small("zero", &zero)?;
    let bytes = b.emit("bytes", "QuantizeLinear", &[&x, &scale, &zero], vec![]);
    b.finish("DequantizeLinear", &[&bytes, &scale, &zero], vec![])
}

/// A weight of a product of bytes; any other weight is numbers before anything runs. ONNX Runtime
/// would put the inputs of a product with such a `DequantizeLinear` on steps of its own.
pub(super) fn scaled(b: &mut Builder<'_>, node: &Node, op: Scaled) -> Emitted {
    let bytes = b.exact(node.inputs[0])?;
    if b.multiplied.contains(&b.current()) {
        let (scales, zeros, attributes) = scales(b, node.inputs[1], op.axis)?;
        return b.finish("DequantizeLinear", &[&bytes, &scales, &zeros], attributes);
    }
    let rank = b.known_rank(node.inputs[0])?;
    let place = if op.axis < 0 { op.axis + rank as i64 } else { op.axis };
    let scales = b.constant(node.inputs[1]).ok_or("its scales must be constant")?;
    let shape: Vec<usize> =
        (0..rank as i64).map(|i| if i == place { scales.elements() } else { 1 }).collect();
    let data = scales.bytes().map_err(|e| e.to_string())?.clone();
    let factors = Tensor::new(scales.dtype(), shape, data).map_err(|e| e.to_string())?;
    let factors = b.small("factors", &factors)?;
    let numbers = b.cast("numbers", &bytes, DType::F32)?;
    b.finish("Mul", &[&numbers, &factors], vec![])
}

/// The weights of bytes that are multiplied with numbers on steps.
pub(super) fn multiplied(b: &Builder<'_>) -> HashSet<NodeId> {
    let products = b.graph.nodes().filter(|(_, node)| match &node.op {
        Op::MatMul(op) => !op.transpose_a && operands(b, node),
        Op::Linear(_) => operands(b, node),
        _ => false,
    });
    products.map(|(_, node)| untransposed(b, node.inputs[1]).node).collect()
}

/// Scales and zeros along an axis, or a number of each for all.
fn scales(
    b: &mut Builder<'_>,
    scales: Value,
    axis: i64,
) -> Result<(String, String, Vec<crate::onnx::proto::AttributeProto>), Refusal> {
    let tensor = b.constant(scales).ok_or("its scales must be constant")?;
    let zeros = |shape: &[usize]| {
        Tensor::new(DType::I8, shape, vec![0u8; tensor.elements()]).map_err(|e| e.to_string())
    };
    if tensor.elements() == 1 {
        let bytes = tensor.bytes().map_err(|e| e.to_string())?.clone();
        let one = Tensor::new(tensor.dtype(), [], bytes).map_err(|e| e.to_string())?;
        return Ok((b.small("scale", &one)?, b.small("zero", &zeros(&[])?)?, vec![]));
    }
    let along = vec![attr::int("axis", axis)];
    Ok((b.exact(scales)?, b.small("zeros", &zeros(tensor.shape())?)?, along))
}

/// Whether a value is the product of numbers on steps and a weight of bytes.
pub(super) fn is_product(b: &Builder<'_>, value: Value) -> bool {
    let node = b.graph.node(source(b.graph, value).node);
    let plain = match &node.op {
        Op::MatMul(op) => !op.transpose_a,
        _ => false,
    };
    plain && operands(b, node)
}

/// Whether a product or linear layer reads numbers on steps and a weight of bytes.
fn operands(b: &Builder<'_>, node: &Node) -> bool {
    let on_steps = |value| matches!(b.graph.op(source(b.graph, value)), Op::FakeQuantize(_));
    on_steps(node.inputs[0]) && weight(b, node.inputs[1]).is_some()
}

/// A weight of bytes behind a value.
struct Weight {
    bytes: Value,
    scales: Value,
    axis: i64,
    /// Whether the value is its transpose.
    transposed: bool,
}

fn weight(b: &Builder<'_>, mut value: Value) -> Option<Weight> {
    let mut transposed = false;
    for _ in 0..4 {
        let node = b.graph.node(source(b.graph, value).node);
        match &node.op {
            Op::Transpose if b.ints(node.inputs[1])? == [1, 0] => {
                transposed = !transposed;
                value = node.inputs[0];
            }
            Op::Scaled(op) => {
                let (bytes, scales) = (node.inputs[0], node.inputs[1]);
                let is_matrix = b.constant(bytes)?.shape().len() == 2;
                let axis = if op.axis < 0 { op.axis + 2 } else { op.axis };
                return is_matrix.then_some(Weight { bytes, scales, axis, transposed });
            }
            _ => return None,
        }
    }
    None
}

/// A product of bytes; `None` if it is none.
pub(super) fn matmul(b: &mut Builder<'_>, node: &Node, op: MatMul) -> Option<Emitted> {
    if op.transpose_a || !operands(b, node) {
        return None;
    }
    Some(b.input(node.inputs[0]).and_then(|x| {
        let w = straight(b, node.inputs[1], op.transpose_b)?;
        b.finish("MatMul", &[&x, &w], vec![])
    }))
}

/// A linear layer of bytes; `None` if it is none.
pub(super) fn linear(b: &mut Builder<'_>, node: &Node, op: Linear) -> Option<Emitted> {
    if !operands(b, node) {
        return None;
    }
    Some(b.input(node.inputs[0]).and_then(|x| {
        let w = straight(b, node.inputs[1], op.transpose_w)?;
        let bias = b.input(node.inputs[2])?;
        let product = b.emit("product", "MatMul", &[&x, &w], vec![]);
        b.finish("Sum", &[&product, &bias], vec![])
    }))
}

/// The weight as `[k, n]`: where it is stored otherwise, its bytes are turned now.
fn straight(b: &mut Builder<'_>, value: Value, transpose: bool) -> Result<String, Refusal> {
    let found = weight(b, value).ok_or("it has no weight of bytes")?;
    if found.transposed == transpose {
        // As it stands, or turned twice.
        let scaled = if found.transposed { untransposed(b, value) } else { value };
        return b.input(scaled);
    }
    let bytes = b.constant(found.bytes).ok_or("its bytes must be constant")?;
    let turned = transposed(bytes)?;
    let bytes = b.small("weight/bytes", &turned)?;
    let (scales, zeros, attributes) = scales(b, found.scales, 1 - found.axis)?;
    Ok(b.emit("weight", "DequantizeLinear", &[&bytes, &scales, &zeros], attributes))
}

/// What lies behind transpositions.
fn untransposed(b: &Builder<'_>, value: Value) -> Value {
    let mut value = source(b.graph, value);
    while let Op::Transpose = b.graph.op(value) {
        value = source(b.graph, b.graph.node(value.node).inputs[0]);
    }
    value
}

fn transposed(tensor: &Tensor) -> Result<Tensor, Refusal> {
    let &[rows, columns] = &**tensor.shape() else { return Err("no matrix of bytes".to_owned()) };
    let from = tensor.bytes().map_err(|e| e.to_string())?;
    let turned: Vec<u8> =
        (0..columns).flat_map(|c| (0..rows).map(move |r| from[r * columns + c])).collect();
    Tensor::new(tensor.dtype(), [columns, rows], turned).map_err(|e| e.to_string())
}
