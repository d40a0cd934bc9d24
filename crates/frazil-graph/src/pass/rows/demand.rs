//! Demand: where only the first row of each sequence is read, the others are not computed.

use std::collections::{BTreeSet, HashMap};

use frazil_tensor::DType;

use super::{DEMAND, integer, list, node, show};
use crate::op::{Binary, Gather, Op, PackRows, ShapeOp, StridedSlice};
use crate::pass::Report;
use crate::pass::sweep::sweep;
use crate::{Dim, Facts, Graph, NodeId, Result, Value, infer};

/// Lets a packed value of which the rest of the graph reads only position 0 be computed at the
/// first row of each sequence only, and what it is computed from likewise, as far up as each
/// operation works on rows by themselves and nobody else reads its value. An attention on that way
/// takes one query of each sequence; its keys and values stay whole.
///
/// For graphs that [`super::pack_rows`] has packed; others are left alone.
pub fn demand_rows(graph: &mut Graph) -> Result<Report> {
    let mut report = Report::default();
    let Some(pack) = graph.nodes().find(|(_, node)| matches!(node.op, Op::PackRows(_))) else {
        return Ok(report);
    };
    let pack = pack.0;
    let facts = infer(graph)?;
    let chosen = chosen(graph, &facts, pack, &mut report);
    if chosen.is_empty() {
        return Ok(report);
    }
    let mut demand = Demand::new(graph, &facts, pack)?;
    for site in &chosen {
        demand.take(site)?;
    }
    let moved = demand.climb()?;
    let dead = demand.dead;
    for site in &chosen {
        let text = "only its first row of each sequence is read";
        report.did(DEMAND, graph.value_name(site.rows), text);
    }
    for id in moved {
        let text = "computes the first row of each sequence only";
        report.did(DEMAND, graph.node(id).name.clone(), text);
    }
    sweep(graph, dead);
    if !graph.outputs.is_empty() {
        graph.prune();
    }
    debug_assert!(graph.check().is_ok(), "{:?}", graph.check());
    Ok(report)
}

/// An unpacked value of which only position 0 is read.
struct Site {
    /// The packed value.
    rows: Value,
    /// What unpacks it.
    unpack: NodeId,
    /// Who reads it, and whether the axis of positions stays, with extent 1.
    readers: Vec<(NodeId, bool)>,
}

/// All of them.
fn chosen(graph: &Graph, facts: &Facts, pack: NodeId, report: &mut Report) -> Vec<Site> {
    let uses = graph.uses();
    let needed = match graph.outputs.as_slice() {
        [] => vec![true; graph.len()],
        outputs => graph.ancestors(outputs.iter().map(|port| port.value.node)),
    };
    let mut sites: Vec<Site> = Vec::new();
    for (id, node) in graph.nodes().filter(|(_, node)| matches!(node.op, Op::UnpackRows)) {
        let (rows, index) = (node.inputs[0], node.inputs[1]);
        if index != (Value { node: pack, port: 0 }) {
            continue;
        }
        let all = uses.get(&id.into()).map_or(&[][..], Vec::as_slice);
        let mut readers = Vec::new();
        let mut other = graph
            .outputs
            .iter()
            .find(|port| port.value == id.into())
            .map(|port| format!("output `{}`", port.name));
        for &(reader, place) in all.iter().filter(|(reader, _)| needed[reader.index()]) {
            match first_position(graph, facts, reader).filter(|_| place == 0) {
                Some(stays) => readers.push((reader, stays)),
                None => other = other.or_else(|| Some(show(graph, reader.into()))),
            }
        }
        match other {
            _ if readers.is_empty() => {}
            Some(other) => {
                let text = format!("more than its first rows is read, by {other}");
                report.miss(DEMAND, graph.value_name(rows), text);
            }
            None => sites.push(Site { rows, unpack: id, readers }),
        }
    }
    sites
}

/// Whether a node takes position 0 of `[b, s, ..]` and nothing else; then, whether the axis stays.
fn first_position(graph: &Graph, facts: &Facts, id: NodeId) -> Option<bool> {
    let node = graph.node(id);
    let dims = facts[*node.inputs.first()?].dims.as_ref()?;
    let elements = |i: usize| facts[node.inputs[i]].elements.as_deref();
    match &node.op {
        Op::StridedSlice(op) => {
            let (begin, end, strides) = (elements(1)?, elements(2)?, elements(3)?);
            first_of_strided(op, dims, begin, end, strides)
        }
        Op::Slice => {
            let (begin, size) = (elements(1)?, elements(2)?);
            let takes = |(axis, dim): (usize, &Dim)| {
                let one = if axis == 1 { size[axis].is(1) } else { false };
                begin[axis].is(0) && (one || (axis != 1 && whole(&size[axis], dim)))
            };
            let fits = begin.len() == dims.len() && size.len() == dims.len();
            (fits && dims.iter().enumerate().all(takes)).then_some(true)
        }
        Op::Gather(op) if op.batch_dims == 0 => {
            let axis = facts[node.inputs[2]].known_elements()?;
            let rank = facts[node.inputs[1]].rank()?;
            let zero = matches!(elements(1)?, [index] if index.is(0));
            let second = matches!(axis.as_slice(), [1]) || axis == [1 - dims.len() as i64];
            (zero && second && rank <= 1).then_some(rank == 1)
        }
        _ => None,
    }
}

/// `-1` or the extent itself.
fn whole(size: &Dim, extent: &Dim) -> bool {
    size.is(-1) || size == extent
}

/// `x[:, 0:1, ..]` or `x[:, 0, ..]`.
fn first_of_strided(
    op: &StridedSlice,
    dims: &[Dim],
    begin: &[Dim],
    end: &[Dim],
    strides: &[Dim],
) -> Option<bool> {
    let entries = begin.len();
    let plain =
        op.ellipsis_mask == 0 && op.new_axis_mask == 0 && (2..=dims.len()).contains(&entries);
    if !plain || end.len() != entries || strides.len() != entries {
        return None;
    }
    let bit = |mask: u32, i: usize| mask >> i & 1 == 1;
    for i in 0..entries {
        let from_start = bit(op.begin_mask, i) || begin[i].is(0);
        let fits = match i {
            1 if bit(op.shrink_axis_mask, 1) => begin[1].is(0),
            1 => from_start && !bit(op.end_mask, 1) && end[1].is(1) && strides[1].is(1),
            _ => {
                let to_end = bit(op.end_mask, i) || end[i] == dims[i];
                !bit(op.shrink_axis_mask, i) && from_start && to_end && strides[i].is(1)
            }
        };
        if !fits {
            return None;
        }
    }
    Some(!bit(op.shrink_axis_mask, 1))
}

struct Demand<'a> {
    graph: &'a mut Graph,
    facts: &'a Facts,
    /// Where each sequence's rows begin and end.
    bounds: Value,
    /// Where they begin, `[b]`.
    first: Value,
    /// The same as `bounds` if each sequence has one row, `[b+1]`; made when it is wanted.
    single: Option<Value>,
    axis: Value,
    /// The rows that are taken of each value, in the order in which they were wanted.
    taken: Vec<(Value, NodeId)>,
    by_value: HashMap<Value, NodeId>,
    /// Nodes that nobody reads any more: what they read does not count.
    dead: BTreeSet<NodeId>,
}

impl<'a> Demand<'a> {
    fn new(graph: &'a mut Graph, facts: &'a Facts, pack: NodeId) -> Result<Self> {
        let name = graph.node(pack).name.clone();
        graph.node_mut(pack).op = Op::PackRows(PackRows { first: true });
        let bounds = Value { node: pack, port: 1 };
        let at = |part: &str| format!("{name}/first/{part}");
        let begin = list(graph, at("begin"), DType::I32, &[0])?;
        let end = list(graph, at("end"), DType::I32, &[-1])?;
        let step = list(graph, at("step"), DType::I32, &[1])?;
        let all_but_last = Op::StridedSlice(StridedSlice::default());
        let inputs = vec![bounds, begin, end, step];
        let first = node(graph, format!("{name}/first"), all_but_last, inputs)?;
        let axis = integer(graph, at("axis"), 0)?;
        let (taken, by_value) = (Vec::new(), HashMap::new());
        let (single, dead) = (None, BTreeSet::new());
        Ok(Self { graph, facts, bounds, first, single, axis, taken, by_value, dead })
    }

    /// The first rows of a packed value: one node, however often they are wanted.
    fn first_of(&mut self, value: Value) -> Result<Value> {
        if let Some(&known) = self.by_value.get(&value) {
            return Ok(known.into());
        }
        let name = format!("{}/first", self.graph.value_name(value));
        let inputs = vec![value, self.first, self.axis];
        let new = node(self.graph, name, Op::Gather(Gather::default()), inputs)?;
        self.taken.push((value, new.node));
        self.by_value.insert(value, new.node);
        Ok(new)
    }

    /// Lets the readers of a site read the first rows.
    fn take(&mut self, site: &Site) -> Result<()> {
        let rows = self.first_of(site.rows)?;
        self.dead.insert(site.unpack);
        for &(reader, stays) in &site.readers {
            if !stays {
                self.graph.replace_uses(reader.into(), rows);
                self.dead.insert(reader);
                continue;
            }
            // A squeeze takes the axis out again: its readers need neither.
            let squeezes: Vec<NodeId> = self
                .graph
                .nodes()
                .filter(|(_, node)| {
                    let axes_fit =
                        matches!(&node.op, Op::Squeeze(op) if op.axes == [1] || op.axes == [-2]);
                    axes_fit && node.inputs == [Value::from(reader)]
                })
                .map(|(id, _)| id)
                .collect();
            for squeeze in squeezes {
                self.graph.replace_uses(squeeze.into(), rows);
                self.dead.insert(squeeze);
            }
            let name = format!("{}/axis", self.graph.node(reader).name);
            let axis = integer(self.graph, name, 1)?;
            let node = self.graph.node_mut(reader);
            node.op = Op::ExpandDims;
            node.inputs = vec![rows, axis];
        }
        Ok(())
    }

    /// Moves what was taken up, as far as it goes. Returns the nodes that it moved over.
    fn climb(&mut self) -> Result<Vec<NodeId>> {
        let mut moved = Vec::new();
        loop {
            let uses = self.graph.uses();
            let next = self.taken.iter().position(|&(value, gather)| {
                let only = uses.get(&value).is_some_and(|readers| {
                    readers
                        .iter()
                        .all(|(reader, _)| *reader == gather || self.dead.contains(reader))
                });
                let wanted = self.graph.outputs.iter().any(|port| port.value == value);
                only && !wanted && self.operands(value).is_some()
            });
            let Some(next) = next else {
                if self.copy_elementwise()? {
                    continue;
                }
                return Ok(moved);
            };
            let (value, gather) = self.taken.remove(next);
            self.by_value.remove(&value);
            let operands = self.operands(value).unwrap_or_default();
            for place in operands {
                let operand = self.graph.node(value.node).inputs[place];
                let rows = self.first_of(operand)?;
                self.graph.node_mut(value.node).inputs[place] = rows;
            }
            if let Op::Attention(_) = self.graph.op(value) {
                let single = self.single()?;
                self.graph.node_mut(value.node).inputs[3] = single;
            }
            self.graph.replace_uses(gather.into(), value);
            self.dead.insert(gather);
            moved.push(value.node);
        }
    }

    /// The rows of a value that others read too are put on steps, or multiplied, once more: that is
    /// cheaper than to have all of its numbers. Whether there was one.
    fn copy_elementwise(&mut self) -> Result<bool> {
        let cheap = |&(value, _): &(Value, NodeId)| {
            let op = self.graph.op(value);
            matches!(op, Op::FakeQuantize(_) | Op::Binary(Binary::Mul))
                && self.operands(value).is_some_and(|operands| operands.len() == 1)
        };
        let Some(at) = self.taken.iter().position(cheap) else { return Ok(false) };
        let (value, gather) = self.taken.remove(at);
        let place = self.operands(value).unwrap_or_default()[0];
        let mut node = self.graph.node(value.node).clone();
        node.inputs[place] = self.first_of(node.inputs[place])?;
        let copy = self.graph.node_mut(gather);
        (copy.op, copy.inputs) = (node.op, node.inputs);
        Ok(true)
    }

    /// Which inputs give the rows of a value, row by row; `None` where rows are not kept apart.
    fn operands(&self, value: Value) -> Option<Vec<usize>> {
        let node = self.graph.node(value.node);
        let has_rows = |value: &Value| {
            let dims = self.facts[*value].dims.as_deref();
            matches!(dims, Some([rows, _]) if *rows == Dim::rows())
        };
        // Nothing that came in later is a row value, nor is a constant.
        let known = |value: &Value| value.node.index() < self.facts.nodes.len();
        let rows: Vec<usize> = (0..node.inputs.len())
            .filter(|&i| known(&node.inputs[i]) && has_rows(&node.inputs[i]))
            .collect();
        match &node.op {
            Op::LayerNorm(_)
            | Op::Gelu(_)
            | Op::Softmax
            | Op::LogSoftmax
            | Op::Unary(_)
            | Op::Cast(_)
            | Op::Linear(_)
            | Op::FakeQuantize(_)
            | Op::BiasAdd
            | Op::MatMul(_) => (rows == [0]).then_some(rows),
            Op::Binary(_) | Op::AddN => {
                let plain = |i: usize| {
                    let value = &node.inputs[i];
                    known(value) && self.facts[*value].rank().is_some_and(|rank| rank <= 1)
                };
                let fits = (0..node.inputs.len()).all(|i| rows.contains(&i) || plain(i));
                (fits && !rows.is_empty()).then_some(rows)
            }
            Op::Attention(op) => {
                let fits = op.packed && node.inputs[3] == self.bounds && rows == [0, 1, 2];
                fits.then(|| vec![0])
            }
            _ => None,
        }
    }

    /// `[0, 1, .., b]`: the bounds of one row per sequence.
    fn single(&mut self) -> Result<Value> {
        if let Some(known) = self.single {
            return Ok(known);
        }
        let name = format!("{}/single", self.graph.node(self.bounds.node).name);
        let size = Op::Size(ShapeOp { to: DType::I32 });
        let count = node(self.graph, format!("{name}/count"), size, vec![self.bounds])?;
        let start = integer(self.graph, format!("{name}/start"), 0)?;
        let step = integer(self.graph, format!("{name}/step"), 1)?;
        let single = node(self.graph, name, Op::Range, vec![start, count, step])?;
        self.single = Some(single);
        Ok(single)
    }
}
