//! Which of a TensorFlow graph's `int32` values are better computed as `int64`.
//!
//! ONNX gives and takes extents, axes and window bounds as `int64`; TensorFlow's shape arithmetic is
//! `int32`. A value that never leaves shape arithmetic is computed in `int64` from the start,
//! so that no casts stand between `Shape` and `Reshape`.

use std::collections::HashMap;

use frazil_graph::op::{Binary, Op, ReduceKind, Unary};
use frazil_graph::{Facts, Graph, NodeId, Value};
use frazil_tensor::DType;

/// For every node, whether its outputs are to be `int64` instead of `int32`.
pub(super) fn find(graph: &Graph, facts: &Facts, needed: &[bool]) -> Vec<bool> {
    let is_int32 = |id: NodeId| {
        let outputs = graph.node(id).op.outputs() as u32;
        outputs > 0
            && (0..outputs).all(|port| facts[Value { node: id, port }].dtype == Some(DType::I32))
    };
    let mut wide: Vec<bool> = graph
        .ids()
        .map(|id| needed[id.index()] && carries(&graph.node(id).op) && is_int32(id))
        .collect();
    for port in &graph.outputs {
        wide[port.value.node.index()] = false;
    }
    let mut uses: HashMap<NodeId, Vec<(NodeId, usize)>> = HashMap::new();
    for (value, readers) in graph.uses() {
        let readers = readers.into_iter().filter(|(reader, _)| needed[reader.index()]);
        uses.entry(value.node).or_default().extend(readers);
    }
    // A value stays `int32` if one reader wants it so; that may concern the values before it.
    let mut stable = false;
    while !stable {
        stable = true;
        let mut candidates: Vec<NodeId> = graph.ids().filter(|id| wide[id.index()]).collect();
        // Readers mostly come later: backwards, one walk does nearly all of it.
        candidates.reverse();
        for id in candidates {
            let fits = uses.get(&id).is_none_or(|readers| {
                readers.iter().all(|&(reader, input)| {
                    let op = &graph.node(reader).op;
                    let count = graph.node(reader).inputs.len();
                    match role(op, input, count) {
                        Role::Index => true,
                        Role::Data => wide[reader.index()],
                        Role::Other => false,
                    }
                })
            });
            if !fits {
                wide[id.index()] = false;
                stable = false;
            }
        }
    }
    wide
}

/// Whether an operation can give `int64` where it gave `int32`.
fn carries(op: &Op) -> bool {
    match op {
        Op::Unary(kind) => {
            matches!(kind, Unary::Identity | Unary::StopGradient | Unary::Neg | Unary::Abs)
        }
        Op::Binary(kind) => !matches!(kind, Binary::Pow | Binary::And | Binary::Or),
        Op::Reduce(op) => matches!(
            op.kind,
            ReduceKind::Sum | ReduceKind::Prod | ReduceKind::Max | ReduceKind::Min
        ),
        Op::Shape(_)
        | Op::Size(_)
        | Op::Rank
        | Op::Cast(_)
        | Op::Select
        | Op::Reshape
        | Op::ExpandDims
        | Op::Squeeze(_)
        | Op::Transpose
        | Op::Concat
        | Op::Pack(_)
        | Op::Unpack(_)
        | Op::Split(_)
        | Op::SplitV(_)
        | Op::Slice
        | Op::StridedSlice(_)
        | Op::Gather(_)
        | Op::Range
        | Op::Fill
        | Op::Tile
        | Op::BroadcastTo => true,
        _ => false,
    }
}

enum Role {
    /// An axis, extent or bound: `int64` in ONNX.
    Index,
    /// Of the same type as the result.
    Data,
    /// Of the type that the graph says.
    Other,
}

fn role(op: &Op, input: usize, count: usize) -> Role {
    match (op, input) {
        // These take any type, and their result's does not depend on it.
        (Op::Cast(_) | Op::Shape(_) | Op::Size(_) | Op::Rank, _) => Role::Index,
        (
            Op::Reshape | Op::ExpandDims | Op::Transpose | Op::Tile | Op::BroadcastTo | Op::Pad,
            1,
        )
        | (Op::Reduce(_) | Op::ArgMax(_), 1)
        | (Op::SplitV(_) | Op::Slice, 1 | 2)
        | (Op::StridedSlice(_), 1..=3)
        | (Op::Split(_) | Op::Fill, 0)
        | (Op::Gather(_), 2)
        | (Op::OneHot(_), 1) => Role::Index,
        (Op::Concat, i) if i + 1 == count => Role::Index,
        (Op::Gather(_), 1) | (Op::Select, 0) => Role::Other,
        (op, _) if carries(op) => Role::Data,
        _ => Role::Other,
    }
}
