//! What can be packed: the values that have one row for each position of the batch, spread forward
//! from the embeddings through operations that work on each row by itself.

use crate::dim::show as show_dims;
use crate::op::{Attention, Op};
use crate::{Dim, Facts, Graph, Node, NodeId, Result, Value};

use super::{PACK, show};
use crate::pass::Report;

/// How the rows of a value lie before packing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// `[b, s, w]`
    Batch,
    /// `[b*s, w]`
    Rows,
}

/// The values of a graph that can be packed, by node: all of them are first outputs.
pub(super) struct Region {
    /// The mask that says which rows are padding, `[b, s]`.
    pub mask: Value,
    /// Batch and sequence length.
    pub extents: [Dim; 2],
    layouts: Vec<Option<Layout>>,
    /// All nodes in an order to compute in.
    pub order: Vec<NodeId>,
}

impl Region {
    /// The largest one for the mask of the first attention; `None` where nothing can be packed.
    /// What stands in the way is reported.
    pub fn find(graph: &Graph, facts: &Facts, report: &mut Report) -> Result<Option<Self>> {
        let order = graph.topological()?;
        let Some((mask, extents)) = mask(graph, facts, &order, report) else { return Ok(None) };
        let layouts = vec![None; graph.len()];
        let mut region = Self { mask, extents, layouts, order };
        let mut packed = 0;
        for place in 0..region.order.len() {
            let id = region.order[place];
            match region.layout_of(graph, facts, id) {
                Ok(layout) => {
                    region.layouts[id.index()] = layout;
                    let attends = matches!(graph.node(id).op, Op::Attention(_));
                    packed += usize::from(attends && layout.is_some());
                }
                Err(reason) => report.miss(PACK, graph.node(id).name.clone(), reason),
            }
        }
        let behind = graph.ancestors([mask.node]);
        if let Some(id) = graph.ids().find(|&id| behind[id.index()] && region.has(id)) {
            let reason = format!("it is computed from {}, which it masks", show(graph, id.into()));
            report.miss(PACK, graph.value_name(mask), reason);
            return Ok(None);
        }
        Ok((packed > 0).then_some(region))
    }

    /// Whether a node's value has rows.
    pub fn has(&self, id: NodeId) -> bool {
        self.layouts[id.index()].is_some()
    }

    /// How a value's rows lie; `None` if it has none.
    pub fn layout(&self, value: Value) -> Option<Layout> {
        if value.port == 0 { self.layouts[value.node.index()] } else { None }
    }

    /// How the rows of a node's value lie, if its operation keeps rows apart; an error for an
    /// embedding or attention that should have been one of them.
    fn layout_of(
        &self,
        graph: &Graph,
        facts: &Facts,
        id: NodeId,
    ) -> std::result::Result<Option<Layout>, String> {
        let node = graph.node(id);
        let Some(&first) = node.inputs.first() else { return Ok(None) };
        let x = self.layout(first);
        let others_plain = || node.inputs[1..].iter().all(|&value| self.layout(value).is_none());
        Ok(match &node.op {
            Op::Embed => return self.embed(facts, node).map(Some),
            Op::Attention(op) => return self.attention(graph, op, node).map(Some),
            Op::LayerNorm(_)
            | Op::Gelu(_)
            | Op::Softmax
            | Op::LogSoftmax
            | Op::Unary(_)
            | Op::Cast(_)
            | Op::Linear(_)
            | Op::FakeQuantize(_)
            | Op::BiasAdd => x.filter(|_| others_plain()),
            Op::MatMul(op) => {
                let matrix = facts[node.inputs[1]].rank() == Some(2);
                x.filter(|_| matrix && !op.transpose_a && others_plain())
            }
            Op::Binary(_) | Op::AddN => self.together(facts, node),
            Op::Reshape => x.and_then(|_| self.reshaped(facts, first, id.into())),
            _ => None,
        })
    }

    /// Operands with rows that lie alike, the others numbers or lists along the last axis.
    fn together(&self, facts: &Facts, node: &Node) -> Option<Layout> {
        let mut found = None;
        for &value in &node.inputs {
            match (self.layout(value), found) {
                (Some(layout), None) => found = Some(layout),
                (Some(layout), Some(before)) if layout != before => return None,
                (None, _) if facts[value].rank().is_none_or(|rank| rank > 1) => return None,
                _ => {}
            }
        }
        found
    }

    /// The new layout of a reshape that leaves every row whole.
    fn reshaped(&self, facts: &Facts, from: Value, to: Value) -> Option<Layout> {
        let width = facts[from].dims.as_ref()?.last()?;
        let [b, s] = &self.extents;
        match facts[to].dims.as_deref()? {
            [x, y, w] if (x, y, w) == (b, s, width) => Some(Layout::Batch),
            [t, w] if w == width && Some(t) == b.times(s).as_ref() => Some(Layout::Rows),
            _ => None,
        }
    }

    fn embed(&self, facts: &Facts, node: &Node) -> std::result::Result<Layout, String> {
        if node.inputs.len() > 5 {
            return Err("its rows are already packed".to_owned());
        }
        for (what, value) in [("ids are", node.inputs[0]), ("segments are", node.inputs[1])] {
            let dims = facts[value].dims.as_deref();
            if dims != Some(&self.extents[..]) {
                let dims = dims.map_or("of unknown shape".to_owned(), show_dims);
                return Err(format!("its {what} {dims}, the mask is {}", show_dims(&self.extents)));
            }
        }
        Ok(Layout::Batch)
    }

    fn attention(
        &self,
        graph: &Graph,
        op: &Attention,
        node: &Node,
    ) -> std::result::Result<Layout, String> {
        /// Scores that are this far below are no part of a softmax.
        const FAR: f32 = -1000.0;
        if op.packed {
            return Err("its rows are already packed".to_owned());
        }
        if node.inputs[3] != self.mask {
            let (mask, other) = (show(graph, node.inputs[3]), show(graph, self.mask));
            return Err(format!("its mask is {mask}, rows are packed by {other}"));
        }
        // Written so that not-a-number is refused.
        let hidden = op.mask_value <= FAR;
        if !hidden {
            return Err(format!("a mask value of {} does not hide padding", op.mask_value));
        }
        for (what, &value) in ["queries", "keys", "values"].iter().zip(&node.inputs) {
            if self.layout(value) != Some(Layout::Rows) {
                let reason = "which does not come from the embeddings row by row";
                return Err(format!("its {what} are {}, {reason}", show(graph, value)));
            }
        }
        Ok(Layout::Rows)
    }
}

/// The mask of the first attention, and its extents.
fn mask(
    graph: &Graph,
    facts: &Facts,
    order: &[NodeId],
    report: &mut Report,
) -> Option<(Value, [Dim; 2])> {
    let attends = |id: &&NodeId| matches!(&graph.node(**id).op, Op::Attention(op) if !op.packed);
    let first = graph.node(*order.iter().find(attends)?);
    let mask = first.inputs[3];
    if graph.nodes().any(|(_, node)| matches!(node.op, Op::PackRows(_))) {
        report.miss(PACK, first.name.clone(), "another mask is packed already");
        return None;
    }
    match facts[mask].dims.as_deref() {
        Some([b, s]) => Some((mask, [b.clone(), s.clone()])),
        dims => {
            let dims = dims.map_or("of unknown shape".to_owned(), show_dims);
            let name = show(graph, mask);
            report.miss(PACK, first.name.clone(), format!("its mask {name} is {dims}, not [b, s]"));
            None
        }
    }
}
