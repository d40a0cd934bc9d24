//! Products of matrices, with and without a bias.

use frazil_graph::op::{Linear, MatMul};
use frazil_kernels::elementwise::add_bias;
use frazil_kernels::layout::{Broadcast, broadcast_dims};
use frazil_kernels::matmul as kernel;
use frazil_tensor::{DType, Tensor};

use super::call::Call;
use crate::Result;

pub fn matmul(call: &Call<'_>, op: MatMul) -> Result<Tensor> {
    let [a, b] = [&call.inputs[0], &call.inputs[1]];
    let clash = || {
        let [a, b] = [a, b].map(|t| format!("{} {}", t.dtype(), t.shape()));
        call.fail(format!("{a} and {b} cannot be multiplied"))
    };
    // a: [.., m, k]  b: [.., k, n]
    let (&[ref a_batch @ .., a1, a2], &[ref b_batch @ .., b1, b2]) = (&**a.shape(), &**b.shape())
    else {
        return Err(clash());
    };
    let (m, k) = if op.transpose_a { (a2, a1) } else { (a1, a2) };
    let (also_k, n) = if op.transpose_b { (b2, b1) } else { (b1, b2) };
    if k != also_k || a.dtype() != b.dtype() {
        return Err(clash());
    }
    let mut dims = broadcast_dims(&[a_batch, b_batch]).ok_or_else(clash)?;
    dims.extend([m, n]);
    let batch = Broadcast::new([a_batch, b_batch]).ok_or_else(clash)?;
    let MatMul { transpose_a, transpose_b } = op;
    let product = kernel::MatMul { m, n, k, transpose_a, transpose_b };
    macro_rules! of {
        ($t:ty, $kernel:ident) => {{
            let (a, b) = (call.values::<$t>(0)?, call.values::<$t>(1)?);
            call.make(dims, |out| kernel::$kernel(&a, &b, out, &product, &batch))
        }};
    }
    match a.dtype() {
        DType::F32 => of!(f32, batch_matmul_f32),
        DType::F64 => of!(f64, batch_matmul_f64),
        DType::I32 => of!(i32, batch_matmul_i32),
        DType::I64 => of!(i64, batch_matmul_i64),
        other => Err(call.wrong_type(other)),
    }
}

/// `x: [.., k]  w: [k, n]  bias: [n]`
pub fn linear(call: &Call<'_>, op: Linear) -> Result<Tensor> {
    let [x, w, bias] = [&call.inputs[0], &call.inputs[1], &call.inputs[2]].map(Tensor::shape);
    let clash = || call.fail(format!("x {x}, weight {w} and bias {bias} do not go together"));
    let (&[ref rows @ .., k], &[w1, w2], &[n]) = (&**x, &**w, &**bias) else {
        return Err(clash());
    };
    if [w1, w2] != if op.transpose_w { [n, k] } else { [k, n] } {
        return Err(clash());
    }
    let m = rows.iter().product();
    let product = kernel::MatMul { m, n, k, transpose_a: false, transpose_b: op.transpose_w };
    let dims = [rows, &[n]].concat();
    macro_rules! of {
        ($t:ty, $kernel:ident) => {{
            let (x, w, bias) =
                (call.values::<$t>(0)?, call.values::<$t>(1)?, call.values::<$t>(2)?);
            call.make(dims, |out| {
                kernel::$kernel(&x, &w, out, &product);
                add_bias(out, &bias);
            })
        }};
    }
    match call.x().dtype() {
        DType::F32 => of!(f32, matmul_f32),
        DType::F64 => of!(f64, matmul_f64),
        other => Err(call.wrong_type(other)),
    }
}
