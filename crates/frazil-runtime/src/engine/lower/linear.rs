//! Products: what joins them, and which stand side by side.

use std::collections::HashMap;

use frazil_graph::op::{Binary, Steps, Unary};
use frazil_graph::{Dim, Node, NodeId, Op, Value};
use frazil_kernels::gemm::Activation;
use frazil_tensor::{DType, Tensor};

use super::bytes::OnSteps;
use super::{Absorbed, Groups, Lowering, Reason};
use crate::engine::program::{Place, Target, View, Work};
use crate::engine::survey::activation;
use crate::engine::weights::{self, Linear, LinearI8, Matrix};
use crate::plan::Plan;

/// The weights of a product, packed.
#[derive(Clone, Copy)]
enum Weights {
    F32(usize),
    I8(usize),
}

/// What layers that stand side by side have in common: the rows that they read, as they read them, and
/// where their weights were packed before.
#[derive(Clone, PartialEq)]
struct Beside<'a> {
    rows: Value,
    bytes: Option<OnSteps>,
    packed_in: Option<&'a str>,
}

impl Lowering<'_> {
    /// Packs the weights of a product.
    fn pack(&mut self, parts: &[Matrix]) -> Result<Weights, Reason> {
        let weights = match parts.iter().any(|part| part.scales.is_some()) {
            true => {
                self.program.linears_i8.push(LinearI8::new(self.isa, parts, self.before)?);
                Weights::I8(self.program.linears_i8.len() - 1)
            }
            false => {
                self.program.linears.push(Linear::new(self.isa, parts, self.before)?);
                Weights::F32(self.program.linears.len() - 1)
            }
        };
        // What was packed is not read again.
        parts.iter().filter_map(|part| part.weight.as_ref()).for_each(Tensor::release);
        Ok(weights)
    }

    /// Notes that a product has taken its weight in.
    fn absorb(&mut self, node: &Node) {
        let read = node.inputs[1];
        let bytes = self.weights.product(self.graph, node).is_some();
        let mut stored = self.behind(read);
        while bytes && matches!(self.graph.op(stored), Op::Scaled(_) | Op::Transpose) {
            stored = self.behind(self.graph.node(stored.node).inputs[0]);
        }
        self.absorbed.push(Absorbed { read, stored, bytes });
    }

    /// A product, in bytes if its weights are.
    fn product(
        &mut self,
        id: NodeId,
        weights: Weights,
        activation: Activation,
        residual: Option<Place>,
        out: View,
    ) -> Result<(), Reason> {
        let out = Target::F32(out);
        let x = self.graph.node(id).inputs[0];
        let work = match weights {
            Weights::I8(linear) => {
                let x = self.quantized(x)?;
                Work::LinearI8 { x, linear, activation, residual, out, bytes: None }
            }
            Weights::F32(linear) => {
                let x = self.place(x);
                Work::Linear { x, linear, activation, residual, out }
            }
        };
        self.step(id, work);
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
        let fact = &self.facts[value];
        let (weight, scales, in_memory) = match self.weights.product(self.graph, node) {
            Some((weight, transposed)) => {
                (weight.bytes.clone(), Some(weight.scales.clone()), transposed)
            }
            None => (self.constants.get(&value).cloned(), None, transposed),
        };
        let elsewhere = || matches!(self.graph.op(self.behind(value)), Op::Variable(_));
        if weight.is_none() && scales.is_none() && !elsewhere() {
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
            _ => {
                let node = node.name.clone();
                Ok(Matrix { node, weight, scales, k, n, transposed: in_memory, bias })
            }
        }
    }

    /// A product with the activation and the sum that follow it.
    pub(super) fn linear(&mut self, id: NodeId, node: &Node) -> Result<(), Reason> {
        let matrix = self.matrix(node)?;
        let x_dims = self.dims(node.inputs[0])?;
        let dims = self.dims(id.into())?;
        let k = matrix.k;
        if !x_dims.last().is_some_and(|last| last.is(k as i64)) || x_dims.len() != dims.len() {
            return Err("the operands do not go together".into());
        }
        let weights = self.pack(&[matrix])?;
        self.absorb(node);
        let (joined, applied, residual) = self.joined(id, &dims);
        let out = self.view(&dims);
        for node in joined {
            self.places.insert(node.into(), Place::View(out.clone()));
            self.done.insert(node);
        }
        self.product(id, weights, applied, residual, out)
    }

    /// The nodes that a product's step computes (the last one's value is what it writes): itself, and
    /// the activation and the sum that follow it.
    pub(super) fn joined(
        &mut self,
        id: NodeId,
        dims: &[Dim],
    ) -> (Vec<NodeId>, Activation, Option<Place>) {
        let mut joined = vec![id];
        let mut applied = Activation::None;
        if let Some(reader) = self.only_reader(id.into())
            && let Some(activation) = activation(&self.graph.node(reader).op)
        {
            applied = activation;
            joined.push(reader);
        }
        let residual = joined.last().and_then(|&last| self.residual(last, dims));
        let residual = residual.map(|(sum, place)| {
            joined.push(sum);
            place
        });
        (joined, applied, residual)
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
            let mut groups_here: Vec<(Beside<'_>, Vec<NodeId>)> = Vec::new();
            for &operand in &attention.inputs[..3] {
                let operand = self.before_steps(operand);
                let node = self.graph.node(operand.node);
                let matrix = match node.op {
                    Op::Linear(_) | Op::MatMul(_) => self.matrix(node),
                    _ => continue,
                };
                let fits = self.read_only_by(operand, step.node)
                    && self.dims(operand).is_ok_and(|dims| dims.len() == 2);
                let (Ok(matrix), true) = (matrix, fits) else { continue };
                let bytes = self.on_steps(node.inputs[0]).filter(|_| matrix.scales.is_some());
                let rows = self.behind(bytes.map_or(node.inputs[0], |bytes| bytes.x));
                let bytes = bytes.map(|bytes| OnSteps { x: rows, ..bytes });
                let key = Beside { rows, bytes, packed_in: packed_in.get(&*node.name).copied() };
                match groups_here.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, group)) => group.push(operand.node),
                    None => groups_here.push((key, vec![operand.node])),
                }
            }
            let several = groups_here.into_iter().filter(|(_, group)| group.len() > 1);
            for (_, mut group) in several {
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

    /// A value before it was marked or put on steps.
    fn before_steps(&self, value: Value) -> Value {
        let node = self.graph.node(value.node);
        match node.op {
            Op::FakeQuantize(_) => self.before_steps(node.inputs[0]),
            _ => value,
        }
    }

    pub(super) fn linear_group(&mut self, id: NodeId, group: &[NodeId]) -> Result<(), Reason> {
        let dims = self.dims(id.into())?;
        let mut parts = Vec::new();
        for &member in group {
            parts.push(self.matrix(self.graph.node(member))?);
        }
        let widths: Vec<usize> = parts.iter().map(|part| part.n).collect();
        let weights = self.pack(&parts)?;
        group.iter().for_each(|&member| self.absorb(self.graph.node(member)));
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
        self.product(id, weights, Activation::None, None, out)
    }
}
