//! One function for each operation: checks its operands, makes the output, calls the kernel.
//!
//! The kernels trust their caller; everything that a graph or a batch can get wrong is refused here,
//! with the node's name. Half-precision arithmetic is done in `f32` and rounded at the end of
//! every operation.

mod attention;
mod call;
mod elementwise;
mod fused;
mod index;
mod matrix;
mod movement;
mod quantized;
mod reduce;
mod rows;
mod shape;
mod slice;
mod training;

use bytes::Bytes;
use frazil_graph::{Graph, NodeId, Op};
use frazil_tensor::{DType, Shape, Tensor};

pub(crate) use call::Call;

use crate::Result;

/// All outputs of a node, computed from its inputs.
pub(crate) fn run(graph: &Graph, id: NodeId, inputs: Vec<Tensor>) -> Result<Vec<Tensor>> {
    let call = Call { graph, node: graph.node(id), inputs };
    for input in &call.inputs {
        // An empty tensor may have any extents beside its zero, and kernels multiply extents.
        let beside_zeros: Vec<usize> = input.shape().iter().copied().filter(|&d| d != 0).collect();
        if Shape::from(beside_zeros).elements().is_none() {
            return Err(call.fail(format!("an operand of {} is beyond all bounds", input.shape())));
        }
    }
    match call.half() {
        Some(half) if is_arithmetic(&call.node.op) => in_f32(&call, half),
        _ => dispatch(&call),
    }
}

fn dispatch(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let one = match &call.node.op {
        // Not fed, or it would not be computed.
        Op::Input(_) => return Err(call.fail("is not fed")),
        Op::InputWithDefault(_) => call.inputs[0].clone(),
        Op::Const(op) => op.value.clone(),
        Op::Variable(_) | Op::ReadVariable(_) => return Err(call.fail("has no value")),
        Op::Unary(kind) => elementwise::unary(call, *kind)?,
        Op::Binary(kind) => elementwise::binary(call, *kind)?,
        Op::Compare(kind) => elementwise::compare(call, *kind)?,
        Op::AddN => elementwise::add_n(call)?,
        Op::BiasAdd => elementwise::bias_add(call)?,
        Op::Cast(op) => elementwise::cast(call, op.to)?,
        Op::Select => movement::select(call)?,
        Op::MatMul(op) => matrix::matmul(call, *op)?,
        Op::Reduce(op) => reduce::reduce(call, *op)?,
        Op::ArgMax(op) => reduce::argmax(call, op.to)?,
        Op::Softmax => reduce::softmax(call)?,
        Op::LogSoftmax => reduce::log_softmax(call)?,
        Op::Shape(op) => shape::shape(call, op.to)?,
        Op::Size(op) => shape::size(call, op.to)?,
        Op::Rank => shape::rank(call)?,
        Op::Reshape => shape::reshape(call)?,
        Op::ExpandDims => shape::expand_dims(call)?,
        Op::Squeeze(op) => shape::squeeze(call, &op.axes)?,
        Op::Range => shape::range(call)?,
        Op::Transpose => movement::transpose(call)?,
        Op::Concat => movement::concat(call)?,
        Op::Pack(op) => movement::pack(call, op.axis)?,
        Op::Fill => movement::fill(call)?,
        Op::Tile => movement::tile(call)?,
        Op::BroadcastTo => movement::broadcast_to(call)?,
        Op::Pad => movement::pad(call)?,
        Op::Unpack(op) => return slice::unpack(call, *op),
        Op::Split(op) => return slice::split(call, *op),
        Op::SplitV(op) => return slice::split_v(call, *op),
        Op::Slice => slice::slice(call)?,
        Op::StridedSlice(op) => slice::strided_slice(call, *op)?,
        Op::Gather(op) => index::gather(call, *op)?,
        Op::OneHot(op) => index::one_hot(call, *op)?,
        Op::LayerNorm(op) => fused::layer_norm(call, *op)?,
        Op::Gelu(op) => fused::gelu(call, *op)?,
        Op::Linear(op) => matrix::linear(call, *op)?,
        Op::PackRows(op) => return rows::pack(call, *op),
        Op::UnpackRows => rows::unpack(call)?,
        Op::Embed if call.inputs.len() > 5 => rows::embed(call)?,
        Op::Embed => fused::embed(call)?,
        Op::Attention(op) => return attention::attention(call, *op, None),
        Op::Quantize(op) => return quantized::quantize(call, op.to),
        Op::Dequantize => quantized::dequantize(call)?,
        Op::Requantize(op) => return quantized::requantize(call, op.to),
        Op::QuantizedLinear => return quantized::linear(call),
        Op::FakeQuantize(steps) => quantized::fake_quantize(call, *steps)?,
        Op::Scaled(op) => quantized::scaled(call, op.axis)?,
        Op::Training(op) => return training::run(call, op),
        Op::Foreign(_) => return Err(call.fail("frazil cannot run it")),
    };
    Ok(vec![one])
}

/// Whether an operation computes with its elements, rather than move or convert them.
fn is_arithmetic(op: &Op) -> bool {
    match op {
        Op::Unary(kind) => !elementwise::is_identity(*kind),
        Op::Binary(_)
        | Op::Compare(_)
        | Op::AddN
        | Op::BiasAdd
        | Op::MatMul(_)
        | Op::Reduce(_)
        | Op::ArgMax(_)
        | Op::Softmax
        | Op::LogSoftmax
        | Op::Range
        | Op::LayerNorm(_)
        | Op::Gelu(_)
        | Op::Linear(_)
        | Op::Embed
        | Op::Attention(_)
        | Op::Training(_) => true,
        _ => false,
    }
}

/// The operation in `f32`; results in `f32` go back to `half`.
fn in_f32(call: &Call<'_>, half: DType) -> Result<Vec<Tensor>> {
    let convert = |tensor: &Tensor, from: DType, to: DType| {
        if tensor.dtype() == from {
            tensor.cast(to).map_err(|source| call.tensor(source))
        } else {
            Ok(tensor.clone())
        }
    };
    let wide: Result<Vec<Tensor>> =
        call.inputs.iter().map(|input| convert(input, half, DType::F32)).collect();
    let wide = Call { graph: call.graph, node: call.node, inputs: wide? };
    dispatch(&wide)?.iter().map(|output| convert(output, DType::F32, half)).collect()
}

/// The same tensor where its elements can be read in place.
pub(crate) fn aligned(tensor: Tensor) -> Tensor {
    let Ok(bytes) = tensor.bytes() else { return tensor };
    let size = tensor.dtype().size().unwrap_or(1).min(8);
    if bytes.as_ptr().addr().is_multiple_of(size) {
        return tensor;
    }
    // 8 bytes at a time, so that the copy begins where any element may begin.
    let mut words = vec![0u64; bytes.len().div_ceil(8)];
    bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()].copy_from_slice(bytes);
    let moved = Bytes::from_owner(Words(words)).slice(..bytes.len());
    Tensor::new(tensor.dtype(), tensor.shape().clone(), moved)
        .expect("as many bytes as the tensor had")
}

/// Words as the bytes that they are.
struct Words(Vec<u64>);

impl AsRef<[u8]> for Words {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

#[cfg(test)]
mod tests;
