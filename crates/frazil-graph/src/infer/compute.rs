//! The rules of operations that calculate.

use frazil_tensor::DType;

use super::{Inference, Problem, Ruled, axis_index, problem};
use crate::dim::show;
use crate::op::{Attention, Binary, Compare, MatMul, Reduce, ReduceKind, Steps, Unary};
use crate::{Dim, Fact};

pub(super) fn unary(kind: Unary, x: Fact) -> Ruled {
    let elements = match kind {
        Unary::Identity | Unary::StopGradient => x.elements.clone(),
        Unary::Neg => x.elements.as_ref().and_then(|e| e.iter().map(Dim::negated).collect()),
        Unary::Not => {
            x.known_elements().map(|e| e.iter().map(|v| Dim::known(i64::from(*v == 0))).collect())
        }
        _ => None,
    };
    Ok(vec![Fact { elements, ..x }])
}

pub(super) fn cast(to: DType, x: Fact) -> Ruled {
    let whole = matches!(to, DType::I32 | DType::I64);
    Ok(vec![Fact { dtype: Some(to), elements: x.elements.filter(|_| whole), dims: x.dims }])
}

pub(super) fn bias_add(x: &Fact, bias: &Fact) -> Ruled {
    if let (Some(dims), Some([n])) = (&x.dims, bias.dims.as_deref()) {
        let last = dims.last().ok_or_else(|| Problem("x is a scalar".to_owned()))?;
        agree(last, n)
            .map_err(|_| Problem(format!("x {} and bias [{n}] do not fit", show(dims))))?;
    }
    Ok(vec![Fact { elements: None, ..x.clone() }])
}

/// Two extents that must be one: the more telling of both.
pub(super) fn agree(a: &Dim, b: &Dim) -> Result<Dim, Problem> {
    match (a.as_known(), b.as_known()) {
        (Some(x), Some(y)) if x != y => problem(format!("{x} is not {y}")),
        (None, Some(_)) => Ok(b.clone()),
        _ => Ok(a.clone()),
    }
}

impl Inference {
    /// numpy's broadcasting of two shapes.
    pub(super) fn broadcast(&mut self, a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>, Problem> {
        let rank = a.len().max(b.len());
        let one = Dim::known(1);
        let at = |dims: &[Dim], i: usize| -> Dim {
            let missing = rank - dims.len();
            if i < missing { one.clone() } else { dims[i - missing].clone() }
        };
        (0..rank)
            .map(|i| {
                let (x, y) = (at(a, i), at(b, i));
                match (x.as_known(), y.as_known()) {
                    _ if x == y => Ok(x),
                    (Some(1), _) => Ok(y),
                    (_, Some(1)) => Ok(x),
                    (Some(_), Some(_)) => {
                        problem(format!("{} and {} do not broadcast", show(a), show(b)))
                    }
                    (Some(_), None) => Ok(x),
                    (None, Some(_)) => Ok(y),
                    (None, None) => Ok(self.fresh()),
                }
            })
            .collect()
    }

    fn broadcast_facts(&mut self, a: &Fact, b: &Fact) -> Result<Option<Vec<Dim>>, Problem> {
        match (&a.dims, &b.dims) {
            (Some(a), Some(b)) => Ok(Some(self.broadcast(a, b)?)),
            _ => Ok(None),
        }
    }

    pub(super) fn binary(&mut self, kind: Binary, x: &Fact, y: &Fact) -> Ruled {
        same_type(x, y)?;
        let dims = self.broadcast_facts(x, y)?;
        let elements = pairs(x, y)
            .and_then(|pairs| pairs.into_iter().map(|(a, b)| binary_element(kind, a, b)).collect());
        Ok(vec![Fact { dtype: x.dtype.or(y.dtype), dims, elements }])
    }

    pub(super) fn compare(&mut self, kind: Compare, x: &Fact, y: &Fact) -> Ruled {
        same_type(x, y)?;
        let dims = self.broadcast_facts(x, y)?;
        let elements = pairs(x, y).and_then(|pairs| {
            pairs.into_iter().map(|(a, b)| compare_element(kind, a, b)).collect()
        });
        Ok(vec![Fact { dtype: Some(DType::Bool), dims, elements }])
    }

    pub(super) fn add_n(&mut self, inputs: &[Fact]) -> Ruled {
        let mut sum = inputs[0].clone();
        for other in &inputs[1..] {
            sum = self.binary(Binary::Add, &sum, other)?.remove(0);
        }
        Ok(vec![Fact { elements: None, ..sum }])
    }

    pub(super) fn select(&mut self, inputs: &[Fact]) -> Ruled {
        same_type(&inputs[1], &inputs[2])?;
        let either = self.broadcast_facts(&inputs[1], &inputs[2])?;
        let dims = match (&inputs[0].dims, either) {
            (Some(condition), Some(either)) => Some(self.broadcast(condition, &either)?),
            _ => None,
        };
        let chosen = match inputs[0].known_elements().as_deref() {
            Some([value]) => inputs[if *value != 0 { 1 } else { 2 }].elements.clone(),
            _ => None,
        };
        Ok(vec![Fact { dtype: inputs[1].dtype.or(inputs[2].dtype), dims, elements: chosen }])
    }

    pub(super) fn matmul(&mut self, op: MatMul, a: &Fact, b: &Fact) -> Ruled {
        same_type(a, b)?;
        let dtype = a.dtype.or(b.dtype);
        let (Some(x), Some(y)) = (&a.dims, &b.dims) else {
            return Ok(vec![Fact { dtype, ..Fact::default() }]);
        };
        if x.len() < 2 || y.len() < 2 {
            return problem(format!("{} and {} are no matrices", show(x), show(y)));
        }
        let ends = |dims: &[Dim], swapped: bool| {
            let (rows, columns) = (dims[dims.len() - 2].clone(), dims[dims.len() - 1].clone());
            if swapped { (columns, rows) } else { (rows, columns) }
        };
        // a: [.., m, k]  b: [.., k, n]
        let ((m, k), (l, n)) = (ends(x, op.transpose_a), ends(y, op.transpose_b));
        agree(&k, &l).map_err(|_| {
            Problem(format!("{} times {} does not fit: {k} is not {l}", show(x), show(y)))
        })?;
        let mut dims = self.broadcast(&x[..x.len() - 2], &y[..y.len() - 2])?;
        dims.extend([m, n]);
        Ok(vec![Fact::tensor(dtype, dims)])
    }
}

fn same_type(x: &Fact, y: &Fact) -> Result<(), Problem> {
    match (x.dtype, y.dtype) {
        (Some(a), Some(b)) if a != b => problem(format!("operands are {a} and {b}")),
        _ => Ok(()),
    }
}

/// The elements of two small tensors side by side, one of them repeated if it is single.
fn pairs<'a>(x: &'a Fact, y: &'a Fact) -> Option<Vec<(&'a Dim, &'a Dim)>> {
    let (a, b) = (x.elements.as_ref()?, y.elements.as_ref()?);
    if x.rank()? > 1 || y.rank()? > 1 {
        return None;
    }
    Some(match (a.len(), b.len()) {
        (n, m) if n == m => a.iter().zip(b).collect(),
        (_, 1) => a.iter().map(|a| (a, &b[0])).collect(),
        (1, _) => b.iter().map(|b| (&a[0], b)).collect(),
        _ => return None,
    })
}

fn binary_element(kind: Binary, a: &Dim, b: &Dim) -> Option<Dim> {
    let known = || Some((a.as_known()?, b.as_known()?));
    match kind {
        Binary::Add => a.plus(b),
        Binary::Sub => a.minus(b),
        Binary::Mul => a.times(b),
        Binary::Div | Binary::FloorDiv => a.over(b).or_else(|| {
            let (x, y) = known()?;
            let quotient = x.checked_div(y)?;
            let down = kind == Binary::FloorDiv && x % y != 0 && (x < 0) != (y < 0);
            Some(Dim::known(quotient - i64::from(down)))
        }),
        Binary::FloorMod => known().and_then(|(x, y)| {
            let rest = x.checked_rem(y)?;
            let other_sign = rest != 0 && (rest < 0) != (y < 0);
            Some(Dim::known(if other_sign { rest + y } else { rest }))
        }),
        Binary::Pow => {
            known().and_then(|(x, y)| x.checked_pow(u32::try_from(y).ok()?).map(Dim::known))
        }
        Binary::Maximum if a == b => Some(a.clone()),
        Binary::Minimum if a == b => Some(a.clone()),
        Binary::Maximum => known().map(|(x, y)| Dim::known(x.max(y))),
        Binary::Minimum => known().map(|(x, y)| Dim::known(x.min(y))),
        Binary::SquaredDifference => a.minus(b).and_then(|d| d.times(&d)),
        Binary::And => known().map(|(x, y)| Dim::known(i64::from(x != 0 && y != 0))),
        Binary::Or => known().map(|(x, y)| Dim::known(i64::from(x != 0 || y != 0))),
    }
}

fn compare_element(kind: Compare, a: &Dim, b: &Dim) -> Option<Dim> {
    let ordering = match (a.as_known(), b.as_known()) {
        _ if a == b => std::cmp::Ordering::Equal,
        (Some(x), Some(y)) => x.cmp(&y),
        _ => return None,
    };
    let holds = match kind {
        Compare::Equal => ordering.is_eq(),
        Compare::NotEqual => ordering.is_ne(),
        Compare::Less => ordering.is_lt(),
        Compare::LessEqual => ordering.is_le(),
        Compare::Greater => ordering.is_gt(),
        Compare::GreaterEqual => ordering.is_ge(),
    };
    Some(Dim::known(i64::from(holds)))
}

pub(super) fn reduce(op: Reduce, x: &Fact, axes: &Fact) -> Ruled {
    let dtype = x.dtype;
    let unknown = || Ok(vec![Fact { dtype, ..Fact::default() }]);
    let (Some(dims), Some(axes)) = (&x.dims, axes.known_elements()) else {
        return match (&x.dims, op.keep_dims) {
            // Which extents become 1 is not known, but there are as many.
            (Some(_), true) | (None, _) | (Some(_), false) => unknown(),
        };
    };
    let mut reduced = vec![false; dims.len()];
    for axis in axes {
        reduced[axis_index(axis, dims.len())?] = true;
    }
    let all = reduced.iter().all(|r| *r);
    let elements = x.elements.as_ref().filter(|_| all && dims.len() <= 1).and_then(|elements| {
        let fold = |kind: Binary, first: i64| {
            elements.iter().try_fold(Dim::known(first), |acc, e| binary_element(kind, &acc, e))
        };
        let value = match op.kind {
            ReduceKind::Prod => fold(Binary::Mul, 1),
            ReduceKind::Sum => fold(Binary::Add, 0),
            ReduceKind::All => fold(Binary::And, 1),
            ReduceKind::Any => fold(Binary::Or, 0),
            ReduceKind::Max => elements
                .iter()
                .filter_map(Dim::as_known)
                .max()
                .map(Dim::known)
                .filter(|_| x.known_elements().is_some()),
            ReduceKind::Min => elements
                .iter()
                .filter_map(Dim::as_known)
                .min()
                .map(Dim::known)
                .filter(|_| x.known_elements().is_some()),
            ReduceKind::Mean => None,
        };
        value.map(|value| vec![value])
    });
    let dims = dims
        .iter()
        .zip(&reduced)
        .filter(|(_, reduced)| op.keep_dims || !**reduced)
        .map(|(dim, reduced)| if *reduced { Dim::known(1) } else { dim.clone() })
        .collect();
    Ok(vec![Fact { dtype, dims: Some(dims), elements }])
}

pub(super) fn arg_max(to: DType, x: &Fact, axis: &Fact) -> Ruled {
    let dims = match (&x.dims, super::scalar(axis)) {
        (Some(dims), Some(axis)) => {
            let mut dims = dims.clone();
            dims.remove(axis_index(axis, dims.len())?);
            Some(dims)
        }
        _ => None,
    };
    Ok(vec![Fact { dtype: Some(to), dims, elements: None }])
}

pub(super) fn layer_norm(inputs: &[Fact]) -> Ruled {
    let x = &inputs[0];
    if let Some(last) = x.dims.as_ref().and_then(|dims| dims.last()) {
        for (what, weight) in [("gamma", &inputs[1]), ("beta", &inputs[2])] {
            if let Some(dims) = &weight.dims {
                let fits = matches!(dims.as_slice(), [h] if agree(h, last).is_ok());
                if !fits {
                    return problem(format!(
                        "{what} {} does not fit the last axis, {last}",
                        show(dims)
                    ));
                }
            }
        }
    }
    Ok(vec![Fact { elements: None, ..x.clone() }])
}

pub(super) fn linear(transpose_w: bool, inputs: &[Fact]) -> Ruled {
    let (x, w, bias) = (&inputs[0], &inputs[1], &inputs[2]);
    same_type(x, w)?;
    let (Some(dims), Some(weight)) = (&x.dims, &w.dims) else {
        return Ok(vec![Fact { dtype: x.dtype, ..Fact::default() }]);
    };
    let [rows, columns] = weight.as_slice() else {
        return problem(format!("the weight is {}, two axes expected", show(weight)));
    };
    // x: [.., k]  w: [k, n]
    let (k, n) = if transpose_w { (columns, rows) } else { (rows, columns) };
    let Some(last) = dims.last() else { return problem("x is a scalar") };
    agree(last, k)
        .map_err(|_| Problem(format!("x {} and weight {} do not fit", show(dims), show(weight))))?;
    if let Some(bias) = &bias.dims {
        let fits = matches!(bias.as_slice(), [m] if agree(m, n).is_ok());
        if !fits {
            return problem(format!("bias {} does not fit {n} columns", show(bias)));
        }
    }
    let mut dims = dims.clone();
    dims.pop();
    dims.push(n.clone());
    Ok(vec![Fact::tensor(x.dtype, dims)])
}

/// Steps, and the ends of their range.
pub(super) fn quantize(from: DType, to: DType, x: &Fact) -> Ruled {
    if x.dtype.is_some_and(|dtype| dtype != from) {
        return problem(format!("{} where {from} is expected", x.dtype.unwrap_or(from)));
    }
    let end = Fact::tensor(Some(DType::F32), Vec::new());
    Ok(vec![Fact { dtype: Some(to), dims: x.dims.clone(), elements: None }, end.clone(), end])
}

pub(super) fn quantized_linear(inputs: &[Fact]) -> Ruled {
    let wanted = [DType::QU8, DType::QI8, DType::F32];
    for (fact, wanted) in inputs.iter().zip(wanted) {
        if let Some(found) = fact.dtype.filter(|&found| found != wanted) {
            return problem(format!("{found} where {wanted} is expected"));
        }
    }
    let untyped: Vec<Fact> =
        inputs[..3].iter().map(|fact| Fact { dtype: None, ..fact.clone() }).collect();
    let product = linear(false, &untyped)?.swap_remove(0);
    let end = Fact::tensor(Some(DType::F32), Vec::new());
    Ok(vec![Fact { dtype: Some(DType::QI32), ..product }, end.clone(), end])
}

/// Numbers stay numbers.
pub(super) fn fake_quantize(steps: &Steps, x: Fact) -> Ruled {
    if let Steps::Tensor { scale, .. } | Steps::Symmetric { scale } = steps
        && !(scale.is_normal() && *scale > 0.0)
    {
        return problem(format!("a step stands for {scale}, which is no positive number"));
    }
    match x.dtype {
        Some(found) if found != DType::F32 => {
            problem(format!("{found} where {} is expected", DType::F32))
        }
        _ => Ok(vec![Fact { elements: None, ..x }]),
    }
}

/// x, and the scales `[extent of the axis]` or `[1]`.
pub(super) fn scaled(axis: i64, inputs: &[Fact]) -> Ruled {
    for (fact, wanted) in inputs.iter().zip([DType::I8, DType::F32]) {
        if let Some(found) = fact.dtype.filter(|&found| found != wanted) {
            return problem(format!("{found} where {wanted} is expected"));
        }
    }
    let (x, scales) = (&inputs[0], &inputs[1]);
    if let Some(dims) = &x.dims {
        let extent = &dims[axis_index(axis, dims.len())?];
        let fits = match scales.dims.as_deref() {
            Some([count]) => count.is(1) || agree(count, extent).is_ok(),
            Some(_) => false,
            None => true,
        };
        if !fits {
            let scales = scales.dims.as_deref().unwrap_or_default();
            return problem(format!(
                "scales {} do not fit axis {axis} of {}",
                show(scales),
                show(dims)
            ));
        }
    }
    Ok(vec![Fact { dtype: Some(DType::F32), dims: x.dims.clone(), elements: None }])
}

pub(super) fn embed(inputs: &[Fact]) -> Ruled {
    let (ids, words) = (&inputs[0], &inputs[2]);
    // One row for each entry of the index, or for each id.
    let rows = inputs.get(5).unwrap_or(ids);
    let dims = match (&rows.dims, words.dims.as_deref()) {
        (Some(dims), Some([_, h])) => {
            let mut dims = dims.clone();
            dims.push(h.clone());
            Some(dims)
        }
        _ => None,
    };
    Ok(vec![Fact { dtype: words.dtype, dims, elements: None }])
}

pub(super) fn attention(op: &Attention, inputs: &[Fact]) -> Ruled {
    let q = &inputs[0];
    if let Some(dims) = &q.dims {
        let hidden = dims.last().and_then(Dim::as_known);
        if hidden.is_some_and(|h| op.heads == 0 || h % op.heads as i64 != 0) {
            return problem(format!("{} does not divide into {} heads", show(dims), op.heads));
        }
    }
    if op.packed {
        return super::rows::attention(inputs);
    }
    Ok(vec![Fact { elements: None, ..inputs[2].clone() }])
}
