//! Constants that can be made longer or shorter: fills, progressions, and rows that repeat.

use std::collections::HashMap;

use frazil_tensor::{DType, Tensor};

use crate::op::Op;
use crate::{Graph, NodeId};

/// How a constant could have been computed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Pattern {
    /// All elements are the same.
    Uniform,
    /// Whole numbers `start + i*step` along one axis, the same along the others.
    Progression { axis: usize, start: i64, step: i64 },
    /// Neither; true for the axes along which it does not change.
    Repeats(Vec<bool>),
}

/// Larger integer constants are data.
const MOST: usize = 1 << 16;

impl Pattern {
    /// The patterns of the constants among `nodes`.
    pub(super) fn all(graph: &Graph, nodes: &[NodeId]) -> HashMap<NodeId, Pattern> {
        let constants = nodes.iter().filter_map(|&id| match &graph.node(id).op {
            Op::Const(op) => Some((id, Pattern::of(&op.value)?)),
            _ => None,
        });
        constants.collect()
    }

    /// Whether the constant could be made longer along an axis; along examples, numbers that grow
    /// must be offsets, which begin with 0.
    pub(super) fn extends(&self, axis: usize, examples: bool) -> bool {
        match self {
            Pattern::Uniform => true,
            Pattern::Progression { axis: along, start, .. } => {
                !examples || *start == 0 || axis != *along
            }
            Pattern::Repeats(repeats) => repeats.get(axis).copied().unwrap_or(false),
        }
    }

    /// The pattern of a value; `None` if it has no elements, or they are no numbers.
    pub(super) fn of(value: &Tensor) -> Option<Pattern> {
        let bytes = value.bytes().ok()?;
        let elements = value.elements();
        if elements == 0 {
            return None;
        }
        let width = bytes.len() / elements;
        let dims: Vec<usize> = value.shape().iter().copied().collect();
        let first = bytes.get(..width)?;
        if bytes.chunks(width).all(|element| element == first) {
            return Some(Pattern::Uniform);
        }
        if let Some(progression) = progression(value, &dims) {
            return Some(progression);
        }
        let repeats = (0..dims.len()).map(|axis| {
            let inner: usize = dims[axis + 1..].iter().product::<usize>() * width;
            let block = inner * dims[axis];
            bytes.chunks(block).all(|block| {
                let first = &block[..inner];
                block.chunks(inner).all(|row| row == first)
            })
        });
        Some(Pattern::Repeats(repeats.collect()))
    }
}

fn progression(value: &Tensor, dims: &[usize]) -> Option<Pattern> {
    if !matches!(value.dtype(), DType::I32 | DType::I64) || value.elements() > MOST {
        return None;
    }
    let numbers: Vec<i64> = match value.dtype() {
        DType::I64 => value.values::<i64>().ok()?.to_vec(),
        _ => value.values::<i32>().ok()?.iter().map(|&v| i64::from(v)).collect(),
    };
    (0..dims.len()).filter(|&axis| dims[axis] > 1).find_map(|axis| {
        let inner: usize = dims[axis + 1..].iter().product();
        let start = numbers[0];
        let step = numbers.get(inner)?.checked_sub(start)?;
        let fits = numbers.iter().enumerate().all(|(i, &number)| {
            let along = (i / inner % dims[axis]) as i64;
            along.checked_mul(step).and_then(|n| n.checked_add(start)) == Some(number)
        });
        fits.then_some(Pattern::Progression { axis, start, step })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_recognised() {
        let of = |dims: &[usize], values: &[i32]| {
            Pattern::of(&Tensor::from_vec(dims.to_vec(), values.to_vec()).unwrap()).unwrap()
        };
        assert_eq!(of(&[1, 2, 1], &[1, 1]), Pattern::Uniform);
        let ramp = Pattern::Progression { axis: 1, start: 0, step: 1 };
        assert_eq!(of(&[2, 3], &[0, 1, 2, 0, 1, 2]), ramp);
        let offsets = Pattern::Progression { axis: 0, start: 0, step: 128 };
        assert_eq!(of(&[3, 1], &[0, 128, 256]), offsets);
        assert_eq!(of(&[2, 2], &[1, 5, 1, 5]), Pattern::Progression { axis: 1, start: 1, step: 4 });
        assert_eq!(of(&[2, 3], &[1, 5, 7, 1, 5, 7]), Pattern::Repeats(vec![true, false]));
        assert_eq!(of(&[4], &[4, 128, 12, 64]), Pattern::Repeats(vec![false]));
    }
}
