//! Packing: the region computes on the rows that are no padding, the rest of the graph reads what
//! it read before, with zeros in the place of padding.

use std::collections::HashMap;

use frazil_tensor::DType;

use super::padding::counts_on_padding;
use super::region::{Layout, Region};
use super::{PACK, integer, list, node, show};
use crate::op::{Op, PackRows, Reduce, ReduceKind, ShapeOp};
use crate::pass::Report;
use crate::{Facts, Graph, NodeId, Result, Value, infer};

/// Lets everything between the embeddings and the first operation that mixes rows compute on the
/// rows that are no padding, by the mask that the attentions have in common.
///
/// Nodes keep their names; a value that the rest of the graph reads is put back in its places by
/// an [`Op::UnpackRows`] named `{name}/unpacked`. What is left alone is reported, and a graph of
/// which an output would change at positions that are no padding is left alone as a whole.
pub fn pack_rows(graph: &mut Graph) -> Result<Report> {
    let mut report = Report::default();
    let facts = infer(graph)?;
    let Some(region) = Region::find(graph, &facts, &mut report)? else { return Ok(report) };
    if let Some((id, reason)) = counts_on_padding(graph, &facts, &region) {
        report.miss(PACK, graph.node(id).name.clone(), reason);
        return Ok(report);
    }
    let nodes = region.order.iter().filter(|&&id| region.has(id)).count();
    let mask = graph.value_name(region.mask);
    let pack = Op::PackRows(PackRows { first: false });
    let pack = node(graph, format!("{mask}/rows"), pack, vec![region.mask])?.node;
    let mut packer = Packer {
        graph,
        facts: &facts,
        region: &region,
        index: Value { node: pack, port: 0 },
        bounds: Value { node: pack, port: 1 },
        unpacked: HashMap::new(),
        report: &mut report,
    };
    packer.outside()?;
    packer.inside();
    let text = format!("{nodes} operations compute no padding by this mask");
    report.done.insert(0, crate::pass::Note { rule: PACK, node: mask, text });
    if !graph.outputs.is_empty() {
        graph.prune();
    }
    debug_assert!(graph.check().is_ok(), "{:?}", graph.check());
    Ok(report)
}

struct Packer<'a> {
    graph: &'a mut Graph,
    facts: &'a Facts,
    region: &'a Region,
    index: Value,
    bounds: Value,
    /// What was put back, by where it comes from and how it lies.
    unpacked: HashMap<(Value, bool), Value>,
    report: &'a mut Report,
}

impl Packer<'_> {
    /// Behind all reshapes that packing makes void.
    fn root(&self, mut value: Value) -> Value {
        while self.region.layout(value).is_some() && matches!(self.graph.op(value), Op::Reshape) {
            value = self.graph.node(value.node).inputs[0];
        }
        value
    }

    /// Gives readers outside of the region, and the model's outputs, what they read before.
    fn outside(&mut self) -> Result<()> {
        let uses = self.graph.uses();
        for &id in self.region.order.iter().filter(|&&id| self.region.has(id)) {
            let value = Value::from(id);
            let readers = uses.get(&value).map_or(&[][..], Vec::as_slice);
            let mut others = Vec::new();
            for &(reader, place) in readers.iter().filter(|(reader, _)| !self.region.has(*reader)) {
                let shaped = matches!(self.graph.node(reader).op, Op::Shape(_));
                if !(shaped && self.shape_of_mask(reader, value)?) {
                    others.push((reader, place));
                }
            }
            let ends: Vec<usize> = (0..self.graph.outputs.len())
                .filter(|&end| self.graph.outputs[end].value == value)
                .collect();
            if others.is_empty() && ends.is_empty() {
                continue;
            }
            let names: Vec<String> = others
                .iter()
                .map(|&(reader, _)| show(self.graph, reader.into()))
                .chain(ends.iter().map(|&end| format!("output `{}`", self.graph.outputs[end].name)))
                .collect();
            let unpacked = self.unpack(value)?;
            let text = format!("is put back in its places for {}", names.join(", "));
            self.report.did(PACK, self.graph.value_name(value), text);
            for (reader, place) in others {
                self.graph.node_mut(reader).inputs[place] = unpacked;
            }
            for end in ends {
                self.graph.outputs[end].value = unpacked;
            }
        }
        Ok(())
    }

    /// The value as it was before packing, with zeros for padding.
    fn unpack(&mut self, value: Value) -> Result<Value> {
        let root = self.root(value);
        let batched = match self.unpacked.get(&(root, true)) {
            Some(&known) => known,
            None => {
                let name = format!("{}/unpacked", self.graph.value_name(value));
                let inputs = vec![root, self.index, self.region.mask];
                let new = node(self.graph, name, Op::UnpackRows, inputs)?;
                self.unpacked.insert((root, true), new);
                new
            }
        };
        if self.region.layout(value) == Some(Layout::Batch) {
            return Ok(batched);
        }
        if let Some(&known) = self.unpacked.get(&(root, false)) {
            return Ok(known);
        }
        let name = format!("{}/unpacked_rows", self.graph.value_name(value));
        let width = self.width(value).unwrap_or(-1);
        let shape = list(self.graph, format!("{name}/shape"), DType::I32, &[-1, width])?;
        let rows = node(self.graph, name, Op::Reshape, vec![batched, shape])?;
        self.unpacked.insert((root, false), rows);
        Ok(rows)
    }

    /// The last extent, where it is known and fits a shape.
    fn width(&self, value: Value) -> Option<i32> {
        let width = self.facts[value].dims.as_ref()?.last()?.as_known()?;
        i32::try_from(width).ok()
    }

    /// Lets a node that asks for a row value's extents ask the mask instead.
    fn shape_of_mask(&mut self, reader: NodeId, value: Value) -> Result<bool> {
        let Op::Shape(ShapeOp { to }) = self.graph.node(reader).op else { return Ok(false) };
        let Some(width) = self.width(value) else { return Ok(false) };
        let name = self.graph.node(reader).name.clone();
        let shape = Op::Shape(ShapeOp { to });
        let mut leading =
            node(self.graph, format!("{name}/positions"), shape, vec![self.region.mask])?;
        if self.region.layout(value) == Some(Layout::Rows) {
            let product = Op::Reduce(Reduce { kind: ReduceKind::Prod, keep_dims: true });
            let axes = list(self.graph, format!("{name}/axes"), DType::I32, &[0])?;
            leading = node(self.graph, format!("{name}/rows"), product, vec![leading, axes])?;
        }
        let width = list(self.graph, format!("{name}/width"), to, &[width])?;
        let axis = integer(self.graph, format!("{name}/axis"), 0)?;
        let node = self.graph.node_mut(reader);
        node.op = Op::Concat;
        node.inputs = vec![leading, width, axis];
        Ok(true)
    }

    /// Rewrites the region itself.
    fn inside(&mut self) {
        for &id in self.region.order.iter().filter(|&&id| self.region.has(id)) {
            let inputs: Vec<Value> =
                self.graph.node(id).inputs.iter().map(|&value| self.root(value)).collect();
            let node = self.graph.node_mut(id);
            // A reshape stays until all are looked through; nobody reads it then.
            if !matches!(node.op, Op::Reshape) {
                node.inputs = inputs;
            }
            match &mut node.op {
                Op::Embed => node.inputs.push(self.index),
                Op::Attention(op) => {
                    op.packed = true;
                    node.inputs.truncate(3);
                    node.inputs.extend([self.bounds, self.bounds]);
                }
                _ => {}
            }
        }
        let void: Vec<NodeId> = self
            .region
            .order
            .iter()
            .copied()
            .filter(|&id| self.region.has(id) && matches!(self.graph.node(id).op, Op::Reshape))
            .collect();
        crate::pass::sweep::sweep(self.graph, void);
    }
}
