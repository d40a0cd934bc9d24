//! Numbers as steps of a range.

use frazil_graph::op::Steps;
use frazil_kernels::quantize;
use frazil_kernels::quantized::{self as kernel, Range};
use frazil_tensor::{DType, Element, Tensor};

use super::call::Call;
use crate::Result;

pub fn quantize(call: &Call<'_>, to: DType) -> Result<Vec<Tensor>> {
    let range = range(call, 1)?;
    if range.most < range.least {
        return Err(call.fail(format!("the range ends at {} and {}", range.least, range.most)));
    }
    let range = range.widened();
    let x = call.values::<f32>(0)?;
    let steps = match to {
        DType::QU8 => steps::<u8>(call, to, |out| kernel::quantize_f32(&x, range, out)),
        DType::QI8 => steps::<i8>(call, to, |out| kernel::quantize_f32(&x, range, out)),
        other => Err(call.wrong_type(other)),
    };
    with_ends(call, steps?, range)
}

pub fn dequantize(call: &Call<'_>) -> Result<Tensor> {
    let range = range(call, 1)?;
    let shape = call.x().shape().clone();
    match call.x().dtype() {
        DType::QU8 => {
            let q = call.values::<u8>(0)?;
            call.make(shape, |out| kernel::dequantize_f32(&q, range, out))
        }
        DType::QI8 => {
            let q = call.values::<i8>(0)?;
            call.make(shape, |out| kernel::dequantize_f32(&q, range, out))
        }
        other => Err(call.wrong_type(other)),
    }
}

pub fn requantize(call: &Call<'_>, to: DType) -> Result<Vec<Tensor>> {
    let (from, range) = (range(call, 1)?, range(call, 3)?);
    if range.least > 0.0 || range.most < 0.0 {
        let Range { least, most } = range;
        return Err(call.fail(format!("zero is not in the range from {least} to {most}")));
    }
    let q = call.values::<i32>(0)?;
    let steps = match to {
        DType::QU8 => steps::<u8>(call, to, |out| kernel::requantize(&q, from, range, out)),
        DType::QI8 => steps::<i8>(call, to, |out| kernel::requantize(&q, from, range, out)),
        other => Err(call.wrong_type(other)),
    };
    with_ends(call, steps?, range)
}

/// `x: [m, k]  w: [k, n]  bias: [n]`
pub fn linear(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let [x, w, bias] = [&call.inputs[0], &call.inputs[1], &call.inputs[2]].map(Tensor::shape);
    let clash = || call.fail(format!("x {x}, weight {w} and bias {bias} do not go together"));
    let (&[m, k], &[also_k, n], &[also_n]) = (&**x, &**w, &**bias) else {
        return Err(clash());
    };
    if (k, n) != (also_k, also_n) {
        return Err(clash());
    }
    let (x, w, bias) = (call.values::<u8>(0)?, call.values::<i8>(1)?, call.values::<f32>(2)?);
    let (range_a, range_w) = (range(call, 3)?, range(call, 5)?);
    let operands = kernel::QuantizedLinear { a: &x, w: &w, bias: &bias, range_a, range_w, n, k };
    let product = call.make::<i32>([m, n], |out| kernel::quantized_linear(&operands, out))?;
    let product = retyped(call, DType::QI32, &product)?;
    with_ends(call, product, Range::of_product(range_a, range_w))
}

/// x, each number on the step that its byte stands for.
pub fn fake_quantize(call: &Call<'_>, steps: Steps) -> Result<Tensor> {
    let x = call.values::<f32>(0)?;
    let shape = call.x().shape().clone();
    if let Steps::Tensor { scale, .. } | Steps::Symmetric { scale } = steps
        && !(scale.is_normal() && scale > 0.0)
    {
        return Err(call.fail(format!("a step stands for {scale}, which is no positive number")));
    }
    let unsigned = |x: &[f32], out: &mut [f32], scale: f32, zero: u8| {
        for (out, &x) in out.iter_mut().zip(x) {
            *out = quantize::on_steps(x, scale, zero);
        }
    };
    // A scalar is a row of one number.
    let row = shape.last().copied().unwrap_or(1).max(1);
    call.make(shape, |out| match steps {
        Steps::Tensor { scale, zero } => unsigned(&x, out, scale, zero),
        Steps::Rows => {
            for (x, out) in x.chunks(row).zip(out.chunks_mut(row)) {
                let least = x.iter().copied().fold(0.0, f32::min);
                let most = x.iter().copied().fold(0.0, f32::max);
                let (scale, zero) = quantize::range(least, most, u8::MAX);
                unsigned(x, out, scale, zero);
            }
        }
        Steps::Symmetric { scale } => {
            for (out, &x) in out.iter_mut().zip(x.iter()) {
                *out = f32::from(quantize::quantize_symmetric(x, scale)) * scale;
            }
        }
        Steps::Watched { .. } => out.copy_from_slice(&x),
    })
}

/// Bytes, each times the scale of its place on the axis.
pub fn scaled(call: &Call<'_>, axis: i64) -> Result<Tensor> {
    let shape = call.x().shape().clone();
    let axis = call.axis(axis, shape.len())?;
    let (x, scales) = (call.values::<i8>(0)?, call.values::<f32>(1)?);
    let fits = call.inputs[1].shape().len() == 1 && [1, shape[axis]].contains(&scales.len());
    if !fits {
        let scales = call.inputs[1].shape();
        return Err(call.fail(format!("scales {scales} do not fit axis {axis} of {shape}")));
    }
    let places = shape[axis];
    // Elements that lie between two places of the axis.
    let stride: usize = shape[axis + 1..].iter().product();
    call.make(shape, |out| {
        for (i, (out, &x)) in out.iter_mut().zip(x.iter()).enumerate() {
            let place = if scales.len() == 1 { 0 } else { i / stride % places };
            *out = f32::from(x) * scales[place];
        }
    })
}

/// The range whose ends are inputs `i` and `i + 1`.
fn range(call: &Call<'_>, i: usize) -> Result<Range> {
    let end = |i: usize| match &*call.values::<f32>(i)? {
        &[end] => Ok(end),
        _ => {
            let shape = call.inputs[i].shape();
            Err(call.fail(format!("an end of the range is {shape}, not one number")))
        }
    };
    Ok(Range { least: end(i)?, most: end(i + 1)? })
}

/// An output in the shape of the first input.
fn steps<T: Element + Default>(
    call: &Call<'_>,
    dtype: DType,
    fill: impl FnOnce(&mut [T]),
) -> Result<Tensor> {
    retyped(call, dtype, &call.make(call.x().shape().clone(), fill)?)
}

/// The same bytes under the name that TensorFlow has for them.
fn retyped(call: &Call<'_>, dtype: DType, plain: &Tensor) -> Result<Tensor> {
    let typed =
        plain.bytes().and_then(|bytes| Tensor::new(dtype, plain.shape().clone(), bytes.clone()));
    typed.map_err(|source| call.tensor(source))
}

fn with_ends(call: &Call<'_>, steps: Tensor, range: Range) -> Result<Vec<Tensor>> {
    let end = |end: f32| call.make([], |out| out.fill(end));
    Ok(vec![steps, end(range.least)?, end(range.most)?])
}
