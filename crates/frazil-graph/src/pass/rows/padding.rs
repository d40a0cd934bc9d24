//! Whether an output counts on what stands in the place of padding: a mean over all positions,
//! say. Packing puts zeros there, so such a graph is left alone.

use crate::op::{Binary, Op, Training};
use crate::{Dim, Facts, Graph, NodeId, Value};

use super::region::Region;

/// What a value has to do with padding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Trace {
    /// Something that packing changes stands in the places of padding.
    dirty: bool,
    /// Computed from the mask, and from nothing dirty.
    of_mask: bool,
    /// Scores or weights of positions in which those of padding were hidden.
    hidden: bool,
}

/// The first node, if any, that mixes what is in the places of padding into values that have no
/// such place, and why it is one.
///
/// Choosing positions is not mixing (whoever chooses a padding position gets zeros). What was
/// multiplied by something that comes from the mask is taken to be clean, and a weighted sum to be
/// right if something that comes from the mask was added to the scores.
pub(super) fn counts_on_padding(
    graph: &Graph,
    facts: &Facts,
    region: &Region,
) -> Option<(NodeId, String)> {
    let mut traces = vec![Trace::default(); graph.len()];
    traces[region.mask.node.index()].of_mask = true;
    for &id in &region.order {
        let node = graph.node(id);
        let reads: Vec<Trace> = node.inputs.iter().map(|v| traces[v.node.index()]).collect();
        if region.has(id) {
            traces[id.index()].dirty = true;
            continue;
        }
        let of_mask = reads.iter().any(|read| read.of_mask);
        if !reads.iter().any(|read| read.dirty) {
            traces[id.index()].of_mask |= of_mask;
            continue;
        }
        let hidden = match &node.op {
            // Extents are no contents; chosen positions are no padding; attention has its mask.
            Op::Shape(_) | Op::Size(_) | Op::Rank | Op::Attention(_) => continue,
            Op::Slice | Op::StridedSlice(_) | Op::Gather(_) => continue,
            Op::Binary(Binary::Mul) if of_mask => continue,
            Op::Binary(Binary::Add | Binary::Sub) if of_mask => true,
            Op::Unary(_) | Op::Cast(_) | Op::Reshape | Op::Softmax | Op::FakeQuantize(_) => {
                reads[0].hidden
            }
            Op::Training(Training::CrossEntropy) => reads[0].hidden,
            _ => false,
        };
        let over = |i: usize, axes: Option<&[i64]>| {
            reads[i].dirty && mixes(facts, region, node.inputs[i], axes)
        };
        let mixed = match &node.op {
            Op::Reduce(_) | Op::ArgMax(_) => {
                over(0, facts[node.inputs[1]].known_elements().as_deref())
            }
            Op::Softmax | Op::LogSoftmax | Op::Training(Training::CrossEntropy) => {
                !hidden && over(0, Some(&[-1]))
            }
            Op::MatMul(op) if !reads[0].hidden => {
                // a: [.., m, k]  b: [.., k, n]
                let a = if op.transpose_a { -2 } else { -1 };
                let b = if op.transpose_b { -1 } else { -2 };
                over(0, Some(&[a])) || over(1, Some(&[b]))
            }
            _ => false,
        };
        if mixed {
            return Some((id, format!("{} mixes padding into its result", node.op)));
        }
        traces[id.index()] = Trace { dirty: true, of_mask: false, hidden };
    }
    None
}

/// Whether one of the axes may be that of positions. Where a width is as large as a sequence is
/// long, the last axis of three or two is the width, but for `[b, s]`.
fn mixes(facts: &Facts, region: &Region, x: Value, axes: Option<&[i64]>) -> bool {
    let (Some(dims), Some(axes)) = (&facts[x].dims, axes) else { return true };
    let [b, s] = &region.extents;
    let rows: Option<Dim> = b.times(s);
    let rank = dims.len() as i64;
    axes.iter().any(|&axis| {
        let at = if axis < 0 { axis + rank } else { axis };
        let Some(dim) = usize::try_from(at).ok().and_then(|at| dims.get(at)) else { return true };
        let positions = dim == s || Some(dim) == rows.as_ref();
        let all_positions = dims.as_slice() == [b.clone(), s.clone()];
        let last_is_width = at + 1 == rank
            && dims[..dims.len() - 1].iter().any(|dim| dim == s || Some(dim) == rows.as_ref());
        positions && (all_positions || !last_is_width)
    })
}
