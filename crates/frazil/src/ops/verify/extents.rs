//! Values that only say how others lie: operands of reshapes, fills and windows. Two forms of one
//! model write them differently (`[-1, 64]` where the other has `[128, 64]`) and compute the same.

use std::collections::HashSet;

use frazil_graph::{Graph, Op, Value};

use crate::Result;

/// Values that nothing reads but for the extents of something else, directly or through others
/// that are read for nothing else.
pub fn of(graph: &Graph) -> Result<HashSet<Value>> {
    let uses = graph.uses();
    let shown: HashSet<Value> = graph.outputs.iter().map(|port| port.value).collect();
    let mut found: HashSet<Value> = HashSet::new();
    for id in graph.topological()?.into_iter().rev() {
        for port in 0..graph.node(id).op.outputs() as u32 {
            let value = Value { node: id, port };
            let readers = uses.get(&value).map_or(&[][..], Vec::as_slice);
            let only = readers.iter().all(|&(reader, input)| {
                let op = &graph.node(reader).op;
                let made = || (0..op.outputs() as u32).map(|port| Value { node: reader, port });
                says_extents(op, input) || made().all(|value| found.contains(&value))
            });
            if only && !readers.is_empty() && !shown.contains(&value) {
                found.insert(value);
            }
        }
    }
    Ok(found)
}

fn says_extents(op: &Op, input: usize) -> bool {
    match op {
        Op::Reshape | Op::BroadcastTo | Op::Tile => input == 1,
        Op::Slice | Op::StridedSlice(_) => input > 0,
        Op::Fill => input == 0,
        _ => false,
    }
}
