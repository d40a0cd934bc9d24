//! Element by element: unary, binary, comparisons, sums, conversions.

use frazil_graph::op::{Binary, Compare, Unary};
use frazil_kernels::cast::{Scalar, cast as cast_kernel, cast_to_bool};
use frazil_kernels::elementwise::{self as kernel, Comparison};
use frazil_kernels::layout::{Broadcast, broadcast_dims};
use frazil_kernels::{Number, Real};
use frazil_tensor::{DType, Element, Tensor};
use half::{bf16, f16};

use super::call::{Call, by_number};
use crate::Result;

/// Whether the output is the input.
pub fn is_identity(kind: Unary) -> bool {
    matches!(kind, Unary::Identity | Unary::StopGradient)
}

pub fn unary(call: &Call<'_>, kind: Unary) -> Result<Tensor> {
    let x = call.x();
    match (kind, x.dtype()) {
        _ if is_identity(kind) => Ok(x.clone()),
        (Unary::Not, DType::Bool) => {
            let x = call.values::<u8>(0)?;
            call.make_bool(call.x().shape().clone(), |out| kernel::logical_not(&x, out))
        }
        (_, DType::F32) => real::<f32>(call, kind),
        (_, DType::F64) => real::<f64>(call, kind),
        (_, DType::I32) => integer::<i32>(call, kind),
        (_, DType::I64) => integer::<i64>(call, kind),
        (_, other) => Err(call.wrong_type(other)),
    }
}

fn real<T: Real + Element>(call: &Call<'_>, kind: Unary) -> Result<Tensor> {
    let f: fn(T) -> T = match kind {
        Unary::Exp => T::exp,
        Unary::Log => T::log,
        Unary::Sqrt => T::sqrt,
        Unary::Rsqrt => T::rsqrt,
        Unary::Reciprocal => T::reciprocal,
        Unary::Floor => T::floor,
        Unary::Round => T::round,
        Unary::Sin => T::sin,
        Unary::Cos => T::cos,
        Unary::Tanh => T::tanh,
        Unary::Erf => T::erf,
        Unary::Sigmoid => T::sigmoid,
        other => return integer::<T>(call, other),
    };
    let x = call.values::<T>(0)?;
    call.make(call.x().shape().clone(), |out| kernel::unary(&x, out, f))
}

/// What integers can do, too.
fn integer<T: Number + Element>(call: &Call<'_>, kind: Unary) -> Result<Tensor> {
    let f: fn(T) -> T = match kind {
        Unary::Neg => T::neg,
        Unary::Abs => T::abs,
        Unary::Sign => T::sign,
        Unary::Square => T::square,
        Unary::Relu => T::relu,
        _ => return Err(call.wrong_type(T::DTYPE)),
    };
    let x = call.values::<T>(0)?;
    call.make(call.x().shape().clone(), |out| kernel::unary(&x, out, f))
}

/// The common shape of inputs 0 and 1, and how to walk it.
fn pair(call: &Call<'_>) -> Result<(Vec<usize>, Broadcast<2>)> {
    let [a, b] = [&call.inputs[0], &call.inputs[1]];
    let describe = |tensor: &Tensor| format!("{} {}", tensor.dtype(), tensor.shape());
    let clash = || call.fail(format!("{} and {} do not go together", describe(a), describe(b)));
    if a.dtype() != b.dtype() {
        return Err(clash());
    }
    let dims = broadcast_dims(&[a.shape(), b.shape()]).ok_or_else(clash)?;
    let walk = Broadcast::new([a.shape(), b.shape()]).ok_or_else(clash)?;
    Ok((dims, walk))
}

pub fn binary(call: &Call<'_>, kind: Binary) -> Result<Tensor> {
    let (dims, walk) = pair(call)?;
    let dtype = call.x().dtype();
    match kind {
        Binary::And | Binary::Or => {
            if dtype != DType::Bool {
                return Err(call.wrong_type(dtype));
            }
            let (a, b) = (call.values::<u8>(0)?, call.values::<u8>(1)?);
            call.make_bool(dims, |out| match kind {
                Binary::And => kernel::logical_and(&a, &b, out, &walk),
                _ => kernel::logical_or(&a, &b, out, &walk),
            })
        }
        _ => by_number!(call, dtype, T => numbers::<T>(call, kind, dims, &walk)),
    }
}

fn numbers<T: Number + Element>(
    call: &Call<'_>,
    kind: Binary,
    dims: Vec<usize>,
    walk: &Broadcast<2>,
) -> Result<Tensor> {
    let (a, b) = (call.values::<T>(0)?, call.values::<T>(1)?);
    if !T::DTYPE.is_float() {
        let divides = matches!(kind, Binary::Div | Binary::FloorDiv | Binary::FloorMod);
        if divides && b.iter().any(|&b| b == T::default()) {
            return Err(call.fail("an integer is divided by zero"));
        }
        if kind == Binary::Pow && b.iter().any(|&b| b < T::default()) {
            return Err(call.fail("an integer is raised to a negative power"));
        }
    }
    // A match on functions would hide them from the compiler, which then cannot vectorise.
    call.make(dims, |out| match kind {
        Binary::Add => kernel::binary(&a, &b, out, walk, T::add),
        Binary::Sub => kernel::binary(&a, &b, out, walk, T::sub),
        Binary::Mul => kernel::binary(&a, &b, out, walk, T::mul),
        Binary::Div => kernel::binary(&a, &b, out, walk, T::div),
        Binary::FloorDiv => kernel::binary(&a, &b, out, walk, T::floor_div),
        Binary::FloorMod => kernel::binary(&a, &b, out, walk, T::floor_mod),
        Binary::Pow => kernel::binary(&a, &b, out, walk, T::pow),
        Binary::Maximum => kernel::binary(&a, &b, out, walk, T::maximum),
        Binary::Minimum => kernel::binary(&a, &b, out, walk, T::minimum),
        Binary::SquaredDifference => {
            kernel::binary(&a, &b, out, walk, T::squared_difference);
        }
        Binary::And | Binary::Or => unreachable!("`binary` handles truth values"),
    })
}

pub fn compare(call: &Call<'_>, kind: Compare) -> Result<Tensor> {
    let (dims, walk) = pair(call)?;
    let comparison = match kind {
        Compare::Equal => Comparison::Equal,
        Compare::NotEqual => Comparison::NotEqual,
        Compare::Less => Comparison::Less,
        Compare::LessEqual => Comparison::LessEqual,
        Compare::Greater => Comparison::Greater,
        Compare::GreaterEqual => Comparison::GreaterEqual,
    };
    macro_rules! of {
        ($t:ty) => {{
            let (a, b) = (call.values::<$t>(0)?, call.values::<$t>(1)?);
            call.make_bool(dims, |out| kernel::compare(&a, &b, out, &walk, comparison))
        }};
    }
    match call.x().dtype().storage() {
        DType::F32 => of!(f32),
        DType::F64 => of!(f64),
        DType::I8 => of!(i8),
        DType::I16 => of!(i16),
        DType::I32 => of!(i32),
        DType::I64 => of!(i64),
        DType::U8 => of!(u8),
        DType::U16 => of!(u16),
        DType::U32 => of!(u32),
        DType::U64 => of!(u64),
        _ => Err(call.wrong_type(call.x().dtype())),
    }
}

pub fn add_n(call: &Call<'_>) -> Result<Tensor> {
    fn sum<T: Number + Element>(call: &Call<'_>) -> Result<Tensor> {
        let walk = Broadcast::new([call.x().shape(), call.x().shape()]);
        let walk = walk.ok_or_else(|| call.fail("the shapes differ"))?;
        let mut total = call.values::<T>(0)?.into_owned();
        for i in 1..call.inputs.len() {
            let (before, term) = (total.clone(), call.values::<T>(i)?);
            kernel::binary(&before, &term, &mut total, &walk, T::add);
        }
        call.make(call.x().shape().clone(), |out| out.copy_from_slice(&total))
    }
    let first = call.x();
    for other in &call.inputs {
        if other.shape() != first.shape() || other.dtype() != first.dtype() {
            let [a, b] = [first, other].map(|t| format!("{} {}", t.dtype(), t.shape()));
            return Err(call.fail(format!("{a} and {b} do not go together")));
        }
    }
    by_number!(call, first.dtype(), T => sum::<T>(call))
}

pub fn bias_add(call: &Call<'_>) -> Result<Tensor> {
    fn add<T: Number + Element>(call: &Call<'_>) -> Result<Tensor> {
        let (x, bias) = (call.values::<T>(0)?, call.values::<T>(1)?);
        call.make(call.x().shape().clone(), |out| {
            out.copy_from_slice(&x);
            kernel::add_bias(out, &bias);
        })
    }
    let (x, bias) = (&call.inputs[0], &call.inputs[1]);
    if bias.shape().len() != 1 || x.shape().last() != bias.shape().last() {
        let (x, bias) = (x.shape(), bias.shape());
        return Err(call.fail(format!("a bias of {bias} does not go with {x}")));
    }
    by_number!(call, x.dtype(), T => add::<T>(call))
}

pub fn cast(call: &Call<'_>, to: DType) -> Result<Tensor> {
    fn from<A: Element + Scalar>(call: &Call<'_>, to: DType) -> Result<Tensor> {
        fn into<A: Element + Scalar, B: Element + Scalar + Default>(
            call: &Call<'_>,
        ) -> Result<Tensor> {
            let x = call.values::<A>(0)?;
            call.make(call.x().shape().clone(), |out: &mut [B]| cast_kernel(&x, out))
        }
        match to {
            DType::F32 => into::<A, f32>(call),
            DType::F64 => into::<A, f64>(call),
            DType::F16 => into::<A, f16>(call),
            DType::BF16 => into::<A, bf16>(call),
            DType::I8 => into::<A, i8>(call),
            DType::I16 => into::<A, i16>(call),
            DType::I32 => into::<A, i32>(call),
            DType::I64 => into::<A, i64>(call),
            DType::U8 => into::<A, u8>(call),
            DType::U16 => into::<A, u16>(call),
            DType::U32 => into::<A, u32>(call),
            DType::U64 => into::<A, u64>(call),
            DType::Bool => {
                let x = call.values::<A>(0)?;
                call.make_bool(call.x().shape().clone(), |out| cast_to_bool(&x, out))
            }
            other => Err(call.wrong_type(other)),
        }
    }
    let x = call.x();
    if x.dtype() == to {
        return Ok(x.clone());
    }
    match x.dtype() {
        DType::F32 => from::<f32>(call, to),
        DType::F64 => from::<f64>(call, to),
        DType::F16 => from::<f16>(call, to),
        DType::BF16 => from::<bf16>(call, to),
        DType::I8 => from::<i8>(call, to),
        DType::I16 => from::<i16>(call, to),
        DType::I32 => from::<i32>(call, to),
        DType::I64 => from::<i64>(call, to),
        DType::U8 | DType::Bool => from::<u8>(call, to),
        DType::U16 => from::<u16>(call, to),
        DType::U32 => from::<u32>(call, to),
        DType::U64 => from::<u64>(call, to),
        other => Err(call.wrong_type(other)),
    }
}
