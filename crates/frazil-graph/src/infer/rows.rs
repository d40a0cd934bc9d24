//! The rules of operations on packed rows.
//!
//! How many rows a batch has is one symbol, `rows`: a graph packs one mask.

use frazil_tensor::DType;

use super::compute::agree;
use super::{Ruled, problem};
use crate::dim::show;
use crate::{Dim, Fact};

/// Index `[rows]` and bounds `[b+1]` of a mask `[b, s]`.
pub(super) fn pack(mask: &Fact) -> Ruled {
    let bounds = match mask.dims.as_deref() {
        Some([b, _]) => b.plus(&Dim::known(1)).map(|count| vec![count]),
        Some(dims) => return problem(format!("the mask is {}, [b, s] expected", show(dims))),
        None => None,
    };
    let index = Fact::tensor(Some(DType::I32), vec![Dim::rows()]);
    Ok(vec![index, Fact { dtype: Some(DType::I32), dims: bounds, elements: None }])
}

/// x `[rows, ..]`, index `[rows]`, mask `[b, s]`.
pub(super) fn unpack(inputs: &[Fact]) -> Ruled {
    let (x, index, mask) = (&inputs[0], &inputs[1], &inputs[2]);
    if let (Some(x), Some(index)) = (&x.dims, &index.dims) {
        let fits = matches!((x.first(), index.as_slice()), (Some(t), [u]) if agree(t, u).is_ok());
        if !fits {
            return problem(format!("x {} and index {} do not fit", show(x), show(index)));
        }
    }
    let dims = match (&x.dims, mask.dims.as_deref()) {
        (Some(x), Some([b, s])) => {
            let mut dims = vec![b.clone(), s.clone()];
            dims.extend(x.iter().skip(1).cloned());
            Some(dims)
        }
        (_, Some(dims)) if dims.len() != 2 => {
            return problem(format!("the mask is {}, [b, s] expected", show(dims)));
        }
        _ => None,
    };
    Ok(vec![Fact { dtype: x.dtype, dims, elements: None }])
}

/// q `[tq, n*d]`, k and v `[t, n*d]`, bounds of both `[b+1]`.
pub(super) fn attention(inputs: &[Fact]) -> Ruled {
    let (q, k, v) = (&inputs[0], &inputs[1], &inputs[2]);
    if let (Some(k), Some(v)) = (&k.dims, &v.dims) {
        let fits = matches!((k.first(), v.first()), (Some(t), Some(u)) if agree(t, u).is_ok());
        if !fits {
            return problem(format!("k {} and v {} do not fit", show(k), show(v)));
        }
    }
    if let (Some(a), Some(b)) = (&inputs[3].dims, &inputs[4].dims) {
        let fits = matches!((a.as_slice(), b.as_slice()), ([m], [n]) if agree(m, n).is_ok());
        if !fits {
            return problem(format!("bounds {} and {} do not fit", show(a), show(b)));
        }
    }
    let dims = match (q.dims.as_deref(), v.dims.as_deref()) {
        (Some([t, _]), Some([_, width])) => Some(vec![t.clone(), width.clone()]),
        _ => None,
    };
    Ok(vec![Fact { dtype: v.dtype, dims, elements: None }])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(dims: &[Dim]) -> Fact {
        Fact::tensor(Some(DType::F32), dims.to_vec())
    }

    #[test]
    fn rows_in_and_out() {
        let (b, s, h) = (Dim::batch(), Dim::seq(), Dim::known(8));
        let mask = Fact::tensor(Some(DType::I64), vec![b.clone(), s.clone()]);
        let Ok(packed) = pack(&mask) else { panic!("a mask is packed") };
        let shown: Vec<String> = packed.iter().map(Fact::to_string).collect();
        assert_eq!(shown, ["int32 [rows]", "int32 [batch + 1]"]);
        let x = fact(&[Dim::rows(), h.clone()]);
        let Ok(out) = unpack(&[x.clone(), packed[0].clone(), mask]) else { panic!("it fits") };
        assert_eq!(out[0].to_string(), "float32 [batch, seq, 8]");
        let q = fact(&[b, h]);
        let bounds = &packed[1];
        let operands = [q, x.clone(), x.clone(), bounds.clone(), bounds.clone()];
        let Ok(out) = attention(&operands) else { panic!("it fits") };
        assert_eq!(out[0].to_string(), "float32 [batch, 8]");
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let Err(problem) = pack(&fact(&[Dim::batch()])) else { panic!("no mask") };
        assert_eq!(problem.0, "the mask is [batch], [b, s] expected");
        let (x, index) = (fact(&[Dim::known(3), Dim::known(8)]), fact(&[Dim::known(4)]));
        let Err(problem) = unpack(&[x.clone(), index.clone(), fact(&[s(), s()])]) else {
            panic!("3 rows in 4 places")
        };
        assert_eq!(problem.0, "x [3, 8] and index [4] do not fit");
        let shorter = fact(&[Dim::known(2), Dim::known(8)]);
        let wrong = [x.clone(), x.clone(), shorter, index.clone(), index.clone()];
        let Err(problem) = attention(&wrong) else { panic!("keys without values") };
        assert_eq!(problem.0, "k [3, 8] and v [2, 8] do not fit");
        let wrong = [x.clone(), x.clone(), x, index, fact(&[Dim::known(5)])];
        assert!(attention(&wrong).is_err());
    }

    fn s() -> Dim {
        Dim::seq()
    }
}
