//! The fused operations: as one where the opset has it, otherwise put together.

use frazil_graph::Node;
use frazil_graph::op::{Attention, Gelu, GeluForm, LayerNorm, Linear};
use frazil_tensor::DType;

use super::builder::{Builder, Refusal};
use super::compute::exchanged;
use super::{attr, quantized};

type Emitted = Result<(), Refusal>;

pub(super) fn layer_norm(b: &mut Builder<'_>, node: &Node, op: LayerNorm) -> Emitted {
    let x = b.input(node.inputs[0])?;
    let (gamma, beta) = (b.input(node.inputs[1])?, b.input(node.inputs[2])?);
    if b.opset >= 17 {
        let attributes = vec![attr::int("axis", -1), attr::float("epsilon", op.epsilon)];
        return b.finish("LayerNormalization", &[&x, &gamma, &beta], attributes);
    }
    // Before opset 17 the axes of a mean are an attribute.
    let axes = || vec![attr::ints("axes", &[-1]), attr::int("keepdims", 1)];
    let epsilon = b.number("epsilon", b.dtype(node.inputs[0])?, f64::from(op.epsilon))?;
    let mean = b.emit("mean", "ReduceMean", &[&x], axes());
    let centred = b.emit("centred", "Sub", &[&x, &mean], vec![]);
    let squares = b.emit("squares", "Mul", &[&centred, &centred], vec![]);
    let variance = b.emit("variance", "ReduceMean", &[&squares], axes());
    let sum = b.emit("variance_epsilon", "Add", &[&variance, &epsilon], vec![]);
    let deviation = b.emit("deviation", "Sqrt", &[&sum], vec![]);
    let normal = b.emit("normal", "Div", &[&centred, &deviation], vec![]);
    let scaled = b.emit("scaled", "Mul", &[&normal, &gamma], vec![]);
    b.finish("Add", &[&scaled, &beta], vec![])
}

pub(super) fn gelu(b: &mut Builder<'_>, node: &Node, op: Gelu) -> Emitted {
    let x = b.input(node.inputs[0])?;
    if b.opset >= 20 {
        let approximate = match op.form {
            GeluForm::Tanh => "tanh",
            GeluForm::Erf => "none",
        };
        return b.finish("Gelu", &[&x], vec![attr::text("approximate", approximate)]);
    }
    let dtype = b.dtype(node.inputs[0])?;
    let (one, half) = (b.number("one", dtype, 1.0)?, b.number("half", dtype, 0.5)?);
    let curve = match op.form {
        GeluForm::Tanh => {
            let cubic = b.number("cubic_factor", dtype, 0.044715)?;
            let factor = b.number("factor", dtype, (2.0 / std::f64::consts::PI).sqrt())?;
            let square = b.emit("square", "Mul", &[&x, &x], vec![]);
            let cube = b.emit("cube", "Mul", &[&square, &x], vec![]);
            let scaled = b.emit("cubic", "Mul", &[&cube, &cubic], vec![]);
            let sum = b.emit("sum", "Add", &[&x, &scaled], vec![]);
            let inner = b.emit("inner", "Mul", &[&sum, &factor], vec![]);
            b.emit("tanh", "Tanh", &[&inner], vec![])
        }
        GeluForm::Erf => {
            let root = b.number("root", dtype, std::f64::consts::SQRT_2)?;
            let inner = b.emit("inner", "Div", &[&x, &root], vec![]);
            b.emit("erf", "Erf", &[&inner], vec![])
        }
    };
    let raised = b.emit("raised", "Add", &[&curve, &one], vec![]);
    let product = b.emit("product", "Mul", &[&x, &raised], vec![]);
    b.finish("Mul", &[&product, &half], vec![])
}

/// `x: [.., k]  w: [k, n]  bias: [n]`
pub(super) fn linear(b: &mut Builder<'_>, node: &Node, op: Linear) -> Emitted {
    if let Some(emitted) = quantized::linear(b, node, op) {
        return emitted;
    }
    let x = b.input(node.inputs[0])?;
    let (w, bias) = (b.input(node.inputs[1])?, b.input(node.inputs[2])?);
    if b.rank(node.inputs[0]) == Some(2) && b.dtype(node.inputs[0])?.is_float() {
        let attributes = if op.transpose_w { vec![attr::int("transB", 1)] } else { vec![] };
        return b.finish("Gemm", &[&x, &w, &bias], attributes);
    }
    let w = if op.transpose_w { exchanged(b, "w", &w, node.inputs[1])? } else { w };
    let product = b.emit("product", "MatMul", &[&x, &w], vec![]);
    b.finish("Add", &[&product, &bias], vec![])
}

/// Words and token types by index, positions as the first `s` rows of their table.
pub(super) fn embed(b: &mut Builder<'_>, node: &Node) -> Emitted {
    let &[ids, segments, words, types, positions] = node.inputs.as_slice() else {
        return Err("five inputs are wanted".to_owned());
    };
    let indices = b.any(ids)?;
    let rows = || vec![attr::int("axis", 0)];
    let (words, segments) = (b.input(words)?, b.any(segments)?);
    let (types, table) = (b.input(types)?, b.input(positions)?);
    let words = b.emit("words", "Gather", &[&words, &indices], rows()); // [b, s, h]
    let types = b.emit("token_types", "Gather", &[&types, &segments], rows()); // [b, s, h]
    let shape = b.emit("shape", "Shape", &[&indices], vec![]); // [b, s]
    let one = b.list("one", &[1])?;
    let length = b.emit("length", "Gather", &[&shape, &one], rows()); // [s] as a list of one
    let zero = b.list("zero", &[0])?;
    let positions = b.emit("positions", "Slice", &[&table, &zero, &length, &zero], vec![]); // [s, h]
    let sum = b.emit("words_types", "Add", &[&words, &types], vec![]);
    b.finish("Add", &[&sum, &positions], vec![])
}

/// Rows to heads, scores, mask, softmax, and back to rows.
pub(super) fn attention(b: &mut Builder<'_>, node: &Node, op: Attention) -> Emitted {
    let &[q, k, v, mask] = node.inputs.as_slice() else {
        return Err("four inputs are wanted".to_owned());
    };
    let width = |b: &Builder<'_>, value| -> Result<i64, Refusal> {
        let last = b.dims(value).and_then(|dims| dims.last()?.as_known());
        last.filter(|width| op.heads > 0 && width % op.heads as i64 == 0)
            .map(|width| width / op.heads as i64)
            .ok_or_else(|| format!("the width of its rows does not divide into {} heads", op.heads))
    };
    let (d, d_out) = (width(b, q)?, width(b, v)?);
    let heads = op.heads as i64;
    let dtype = b.dtype(q)?;
    let mask_type = b.dtype(mask)?;
    let mask = b.any(mask)?; // [b, s]
    let extents = b.emit("extents", "Shape", &[&mask], vec![]);
    let join = || vec![attr::int("axis", 0)];
    let order = |axes: &[i64]| vec![attr::ints("perm", axes)];
    let inner = b.list("head_extents", &[heads, d])?;
    let split = b.emit("split_shape", "Concat", &[&extents, &inner], join()); // [b, s, n, d]
    let split_out = if d == d_out {
        split.clone()
    } else {
        let inner = b.list("value_extents", &[heads, d_out])?;
        b.emit("value_shape", "Concat", &[&extents, &inner], join())
    };

    let (q, k, v) = (b.input(q)?, b.input(k)?, b.input(v)?);
    let q = b.emit("q_split", "Reshape", &[&q, &split], vec![]);
    let q = b.emit("q_heads", "Transpose", &[&q], order(&[0, 2, 1, 3])); // [b, n, s, d]
    let k = b.emit("k_split", "Reshape", &[&k, &split], vec![]);
    let k = b.emit("k_heads", "Transpose", &[&k], order(&[0, 2, 3, 1])); // [b, n, d, s]
    let v = b.emit("v_split", "Reshape", &[&v, &split_out], vec![]);
    let v = b.emit("v_heads", "Transpose", &[&v], order(&[0, 2, 1, 3])); // [b, n, s, d]

    let scale = b.number("scale", dtype, f64::from(op.scale))?;
    let products = b.emit("products", "MatMul", &[&q, &k], vec![]); // [b, n, s, s]
    let scores = b.emit("scores", "Mul", &[&products, &scale], vec![]);
    let mask = if mask_type == dtype { mask } else { b.cast("mask", &mask, dtype)? };
    let (one, far) = (b.number("one", dtype, 1.0)?, b.number("far", dtype, op.mask_value.into())?);
    let hidden = b.emit("hidden", "Sub", &[&one, &mask], vec![]);
    let adder = b.emit("adder", "Mul", &[&hidden, &far], vec![]);
    let adder = b.unsqueeze("adder_heads", &adder, &[1, 2])?; // [b, 1, 1, s]
    let masked = b.emit("masked", "Add", &[&scores, &adder], vec![]);
    let weights = b.emit("weights", "Softmax", &[&masked], vec![attr::int("axis", -1)]);
    let context = b.emit("context", "MatMul", &[&weights, &v], vec![]); // [b, n, s, d]
    let context = b.emit("context_rows", "Transpose", &[&context], order(&[0, 2, 1, 3]));
    let rows = heads.checked_mul(d_out).ok_or("its rows are too wide")?;
    let rows = b.list("rows", &[-1, rows])?;
    debug_assert!(dtype != DType::String);
    b.finish("Reshape", &[&context, &rows], vec![]) // [b*s, n*d]
}
