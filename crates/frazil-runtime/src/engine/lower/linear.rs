//! Products: what joins them, which stand side by side, and which are computed in bytes.

use std::collections::{BTreeMap, HashMap};

use frazil_graph::op::{Binary, Steps, Unary};
use frazil_graph::{Dim, Node, NodeId, Op, Value};
use frazil_kernels::gemm::Activation;
use frazil_kernels::quantize;
use frazil_tensor::{DType, Tensor};

use super::{Groups, Lowering, Reason};
use crate::engine::program::{Kind, Place, Quantized, Step, Storage, Stride, Target, View, Work};
use crate::engine::survey::activation;
use crate::engine::weights::{self, Linear, LinearI8, Matrix};
use crate::plan::Plan;

impl Lowering<'_> {
    /// Memory for the bytes of a view.
    fn byte_view(&mut self, like: &View) -> View {
        let stride = match self.program.storages[like.storage].stride {
            Stride::Known(_) => {
                let last = like.dims.last().map(|&id| self.program.extents[id].as_known());
                // As for numbers: an odd number of cache lines.
                let lines = last.flatten().map_or(1, |width| (width as usize).div_ceil(64));
                Stride::Known((lines | 1) * 64)
            }
            open => open,
        };
        self.program.storages.push(Storage { block: 0, stride, kind: Kind::U8 });
        let storage = self.program.storages.len() - 1;
        View { storage, column: 0, dims: like.dims.clone() }
    }

    /// The bytes of a value that a product reads: written by the step that computes the value where
    /// that is possible, else by a step of their own. `alone`: nobody else reads the value.
    fn quantized(&mut self, node: NodeId, x: &View, range: (f32, f32), alone: bool) -> Quantized {
        if let Some(known) = self.bytes.get(&x.storage) {
            return known.clone();
        }
        let (scale, zero) = quantize::range(range.0, range.1, u8::MAX);
        let quantized = Quantized { view: self.byte_view(x), scale, zero };
        self.bytes.insert(x.storage, quantized.clone());
        let makes_it = |step: &&mut Step| step.work.out().is_some_and(|v| v.storage == x.storage);
        let maker = self.program.steps.iter_mut().rev().find(makes_it).map(|step| &mut step.work);
        match maker {
            Some(Work::LayerNorm { bytes, .. }) => *bytes = Some(quantized.clone()),
            Some(Work::Embed(embed)) if embed.norm.is_some() => {
                embed.bytes = Some(quantized.clone());
            }
            Some(Work::Attention(attention)) if alone => {
                attention.out = Target::U8(quantized.clone());
            }
            Some(Work::Linear { out, .. } | Work::LinearI8 { out, .. }) if alone => {
                *out = Target::U8(quantized.clone());
            }
            _ => {
                let x = Place::View(x.clone());
                self.step(node, Work::Quantize { x, out: quantized.clone() });
            }
        }
        quantized
    }

    /// A product in bytes, if it is to be one: its input must have been seen.
    fn product(
        &mut self,
        id: NodeId,
        x: Place,
        parts: &[Matrix],
        activation: Activation,
        residual: Option<Place>,
        out: View,
    ) -> Result<(), Reason> {
        let out = Target::F32(out);
        let node = self.graph.node(id);
        let range = self.ranges.and_then(|ranges| ranges.get(&node.name)).copied();
        if let Some(range) = range {
            let linear = LinearI8::new(self.isa, parts, self.before)?;
            self.program.linears_i8.push(linear);
            let x = match &x {
                Place::View(view) if view.column == 0 => {
                    let alone = self.only_reader(node.inputs[0]) == Some(id);
                    self.quantized(id, view, range, alone)
                }
                _ => {
                    let dims = self.dims(node.inputs[0])?;
                    let like = self.view(&dims);
                    let (scale, zero) = quantize::range(range.0, range.1, u8::MAX);
                    let out = Quantized { view: self.byte_view(&like), scale, zero };
                    self.step(id, Work::Quantize { x, out: out.clone() });
                    out
                }
            };
            let linear = self.program.linears_i8.len() - 1;
            self.step(id, Work::LinearI8 { x, linear, activation, residual, out });
        } else {
            let linear = Linear::new(self.isa, parts, self.before)?;
            self.program.linears.push(linear);
            let linear = self.program.linears.len() - 1;
            self.step(id, Work::Linear { x, linear, activation, residual, out });
        }
        // What was packed is not read again.
        parts.iter().filter_map(|part| part.weight.as_ref()).for_each(Tensor::release);
        Ok(())
    }

    /// The matrix of a linear layer.
    pub(super) fn matrix(&self, node: &Node) -> Result<Matrix, Reason> {
        let (transposed, bias) = match &node.op {
            Op::Linear(op) => (op.transpose_w, Some(self.constant(node.inputs[2])?.clone())),
            Op::MatMul(op) if !op.transpose_a => (op.transpose_b, None),
            _ => return Err("the rows are transposed".into()),
        };
        let value = node.inputs[1];
        let (weight, fact) = (self.constants.get(&value).cloned(), &self.facts[value]);
        if weight.is_none() && !matches!(self.graph.op(self.behind(value)), Op::Variable(_)) {
            return Err(format!("`{}` is not constant", self.graph.value_name(value)));
        }
        let dims = fact.known_dims();
        let (Some(DType::F32), Some([rows, columns])) = (fact.dtype, dims.as_deref()) else {
            return Err(format!("the weight is {fact}"));
        };
        let (rows, columns) = (*rows as usize, *columns as usize);
        let (k, n) = if transposed { (columns, rows) } else { (rows, columns) };
        match &bias {
            Some(bias) if bias.dtype() != DType::F32 || **bias.shape() != [n] => {
                Err(format!("the bias is {} {}", bias.dtype(), bias.shape()))
            }
            _ => Ok(Matrix { node: node.name.clone(), weight, k, n, transposed, bias }),
        }
    }

    /// A product with the activation and the sum that follow it.
    pub(super) fn linear(&mut self, id: NodeId, node: &Node) -> Result<(), Reason> {
        let matrix = self.matrix(node)?;
        let (x, x_dims) = self.rows(node.inputs[0])?;
        let dims = self.dims(id.into())?;
        let k = matrix.k;
        self.absorbed.push(node.inputs[1]);
        if !x_dims.last().is_some_and(|last| last.is(k as i64)) || x_dims.len() != dims.len() {
            return Err("the operands do not go together".into());
        }
        // The nodes that this step computes; the last one's value is what it writes.
        let mut joined = vec![id];
        let mut applied = Activation::None;
        if let Some(reader) = self.only_reader(id.into())
            && let Some(activation) = activation(&self.graph.node(reader).op)
        {
            applied = activation;
            joined.push(reader);
        }
        let residual = joined.last().and_then(|&last| self.residual(last, &dims));
        let residual = residual.map(|(sum, place)| {
            joined.push(sum);
            place
        });
        let out = self.view(&dims);
        for node in joined {
            self.places.insert(node.into(), Place::View(out.clone()));
            self.done.insert(node);
        }
        self.product(id, x, &[matrix], applied, residual, out)
    }

    /// The sum that is all that reads a value, and the other summand, if that is already there.
    fn residual(&mut self, of: NodeId, dims: &[Dim]) -> Option<(NodeId, Place)> {
        let sum = self.only_reader(of.into())?;
        let node = self.graph.node(sum);
        if !matches!(node.op, Op::Binary(Binary::Add)) || self.dims(sum.into()).ok()? != dims {
            return None;
        }
        let other = if node.inputs[0].node == of { node.inputs[1] } else { node.inputs[0] };
        if self.dims(other).ok()? != dims {
            return None;
        }
        let place = self.places.get(&other).filter(|place| matches!(place, Place::View(_)))?;
        Some((sum, place.clone()))
    }

    /// Linear layers that read the same rows and are read by one attention only. Of weights that
    /// were packed before, those that stand side by side there: without packed rows, layers may read
    /// the same rows that do not otherwise.
    pub(super) fn groups(&self, plan: &Plan) -> Groups {
        let names = self.before.iter().flat_map(|before| before.keys());
        let packed_in: HashMap<&str, &str> =
            names.flat_map(|name| weights::nodes(name).map(move |node| (node, &**name))).collect();
        let mut groups = Groups::new();
        for step in &plan.steps {
            let attention = self.graph.node(step.node);
            if !matches!(attention.op, Op::Attention(_)) {
                continue;
            }
            let mut by_rows: BTreeMap<(Value, Option<&str>), Vec<NodeId>> = BTreeMap::new();
            for &operand in &attention.inputs[..3] {
                let operand = self.unmarked(operand);
                let node = self.graph.node(operand.node);
                let fits = matches!(node.op, Op::Linear(_) | Op::MatMul(_))
                    && self.read_only_by(operand, step.node)
                    && self.matrix(node).is_ok()
                    && self.dims(operand).is_ok_and(|dims| dims.len() == 2);
                if fits {
                    let packed_in = packed_in.get(&*node.name).copied();
                    let rows = (self.behind(node.inputs[0]), packed_in);
                    by_rows.entry(rows).or_default().push(operand.node);
                }
            }
            for mut group in by_rows.into_values().filter(|group| group.len() > 1) {
                group.sort_by_key(|id| plan.steps.iter().position(|step| step.node == *id));
                groups.insert(group[0], group);
            }
        }
        groups
    }

    /// What a value is a view of.
    pub(super) fn behind(&self, value: Value) -> Value {
        let node = self.graph.node(value.node);
        match node.op {
            Op::Reshape
            | Op::Unary(Unary::Identity | Unary::StopGradient)
            | Op::FakeQuantize(Steps::Watched { .. }) => self.behind(node.inputs[0]),
            _ => value,
        }
    }

    /// A value before marks.
    fn unmarked(&self, value: Value) -> Value {
        let node = self.graph.node(value.node);
        match node.op {
            Op::FakeQuantize(Steps::Watched { .. }) => self.unmarked(node.inputs[0]),
            _ => value,
        }
    }

    pub(super) fn linear_group(&mut self, id: NodeId, group: &[NodeId]) -> Result<(), Reason> {
        let (x, _) = self.rows(self.graph.node(id).inputs[0])?;
        let dims = self.dims(id.into())?;
        let mut parts = Vec::new();
        for &member in group {
            parts.push(self.matrix(self.graph.node(member))?);
        }
        let widths: Vec<usize> = parts.iter().map(|part| part.n).collect();
        self.absorbed.extend(group.iter().map(|&member| self.graph.node(member).inputs[1]));
        let total: usize = widths.iter().sum();
        let out = self.view(&[dims[0].clone(), Dim::from(total)]);
        let mut column = 0;
        for (&member, width) in group.iter().zip(widths) {
            let dims = vec![out.dims[0], self.extent(&Dim::from(width))];
            let view = View { storage: out.storage, column, dims };
            self.places.insert(member.into(), Place::View(view));
            self.done.insert(member);
            column += width;
        }
        self.product(id, x, &parts, Activation::None, None, out)
    }
}
