//! Steps of training: products with weights that change, and the gradients of what is fused.

use frazil_graph::op::{self, Dropout, EmbedGrad, GeluForm, ReduceKind, Training};
use frazil_graph::{Node, NodeId, Op, Value};
use frazil_kernels::gelu::Form;
use frazil_kernels::gemm::Orientation;

use super::{Lowering, Reason};
use crate::engine::program::{Place, View, Work};
use crate::engine::train::{Dropped, Lookup, Norm, Product, Train};

impl Lowering<'_> {
    /// Makes a step of training of the node; `None` if it is nothing of training's own.
    pub(super) fn training(&mut self, id: NodeId, node: &Node) -> Result<Option<bool>, Reason> {
        match &node.op {
            Op::Training(op) => return self.of_training(id, node, op).map(Some),
            _ if self.variables.is_empty() => return Ok(None),
            Op::Variable(_) => {
                let at = self.variables.get(&id).copied().ok_or("it is not among the weights")?;
                self.places.insert(id.into(), Place::Parameter(at));
            }
            Op::Linear(op) => {
                let (x, w, bias) = (node.inputs[0], node.inputs[1], node.inputs[2]);
                self.changing(id, [x, w], [false, op.transpose_w], Some(bias))?;
            }
            Op::MatMul(op) => {
                let operands = [node.inputs[0], node.inputs[1]];
                if self.facts[operands[1]].rank() != Some(2) {
                    return Ok(Some(false));
                }
                self.changing(id, operands, [op.transpose_a, op.transpose_b], None)?;
            }
            Op::LayerNorm(op) => {
                let (x, dims) = self.rows(node.inputs[0])?;
                let (gamma, beta) = (self.place(node.inputs[1]), self.place(node.inputs[2]));
                let norm = Norm { gamma, beta: Some(beta), epsilon: op.epsilon };
                let out = self.made(id.into(), &dims);
                self.step(id, Work::Train(Train::LayerNorm { x, norm, out }));
            }
            Op::Embed => {
                let rows = |i: usize| self.table_rows(node.inputs[i]);
                let limits = [rows(2)?, rows(3)?, rows(4)?];
                let tables = [2, 3, 4].map(|i| self.place(node.inputs[i]));
                let (ids, index) = ([node.inputs[0], node.inputs[1]], node.inputs.get(5));
                let lookup = self.lookup(ids, index.copied(), limits);
                let dims = self.dims(id.into())?;
                let out = self.made(id.into(), &dims);
                self.step(id, Work::Train(Train::Embed { lookup, tables, out }));
            }
            Op::Reduce(op) if op.kind == ReduceKind::Sum && !op.keep_dims => {
                let axes = self.facts[node.inputs[1]].known_elements();
                let rows = self.facts[node.inputs[0]].rank() == Some(2);
                if !rows || axes.as_deref() != Some(&[0]) {
                    return Ok(Some(false));
                }
                let (x, _) = self.rows(node.inputs[0])?;
                let dims = self.dims(id.into())?;
                let out = self.made(id.into(), &dims);
                self.step(id, Work::Train(Train::AddUp { x, out }));
            }
            _ => return Ok(None),
        }
        Ok(Some(true))
    }

    /// Memory for a value that this step makes.
    fn made(&mut self, value: Value, dims: &[frazil_graph::Dim]) -> View {
        let out = self.view(dims);
        self.places.insert(value, Place::View(out.clone()));
        out
    }

    fn table_rows(&self, table: Value) -> Result<usize, Reason> {
        let dims = self.facts[table].known_dims();
        let rows = dims.as_deref().and_then(|dims| usize::try_from(*dims.first()?).ok());
        rows.ok_or_else(|| "the size of a table is unknown".into())
    }

    fn lookup(
        &mut self,
        sources: [Value; 2],
        index: Option<Value>,
        limits: [usize; 3],
    ) -> Box<Lookup> {
        let [ids, segments] = sources.map(|value| self.place(value));
        let index = index.map(|value| self.place(value));
        Box::new(Lookup { ids, segments, index, limits, sources })
    }

    /// A product whose right side is packed at every run, with what follows it.
    fn changing(
        &mut self,
        id: NodeId,
        [a, b]: [Value; 2],
        [transpose_a, transpose_b]: [bool; 2],
        bias: Option<Value>,
    ) -> Result<(), Reason> {
        let dims = self.dims(id.into())?;
        self.dims(b)?;
        let a = match transpose_a {
            true => Place::View(self.transposed(id, a)?),
            false => self.rows(a)?.0,
        };
        let b = self.place(b);
        let bias = bias.map(|bias| self.place(bias));
        let order = if transpose_b { Orientation::Nk } else { Orientation::Kn };
        let (joined, activation, residual) = self.joined(id, &dims);
        let out = self.view(&dims);
        for node in joined {
            self.places.insert(node.into(), Place::View(out.clone()));
            self.done.insert(node);
        }
        let product = Product { a, b, order, bias, activation, residual, out };
        self.step(id, Work::Train(Train::Product(Box::new(product))));
        Ok(())
    }

    /// The rows of a value as columns: once, however many products want them.
    fn transposed(&mut self, id: NodeId, value: Value) -> Result<View, Reason> {
        if let Some(known) = self.transposed.get(&value) {
            return Ok(known.clone());
        }
        let (x, mut dims) = self.rows(value)?;
        if dims.len() != 2 {
            return Err("the operand that is transposed has not two axes".into());
        }
        dims.reverse();
        let out = self.view(&dims);
        self.transposed.insert(value, out.clone());
        self.step(id, Work::Train(Train::Transpose { x, out: out.clone() }));
        Ok(out)
    }

    fn of_training(&mut self, id: NodeId, node: &Node, op: &Training) -> Result<bool, Reason> {
        let inputs = node.inputs.as_slice();
        let port = |port: u32| Value { node: id, port };
        let train = match op {
            Training::LayerNormGrad(op) => {
                let (x, dims) = self.rows(inputs[0])?;
                let (gamma, dy) = (self.place(inputs[1]), self.place(inputs[2]));
                let width = [dims[dims.len() - 1].clone()];
                let grads = [
                    self.made(port(0), &dims),
                    self.made(port(1), &width),
                    self.made(port(2), &width),
                ];
                let norm = Norm { gamma, beta: None, epsilon: op.epsilon };
                Train::LayerNormGrad { x, norm, dy, grads: Box::new(grads) }
            }
            Training::GeluGrad(op) => {
                let ((x, dims), (dy, _)) = (self.rows(inputs[0])?, self.rows(inputs[1])?);
                let form = match op.form {
                    GeluForm::Tanh => Form::Tanh,
                    GeluForm::Erf => Form::Erf,
                };
                let out = self.made(port(0), &dims);
                Train::GeluGrad { x, dy, form, out }
            }
            Training::Attention(op) => {
                let count = inputs.len() - 3;
                let attention = self.attention_of(&op.attention, &inputs[..count], port(0))?;
                let dropped = self.dropped(op.dropout, &inputs[count..])?;
                Train::Attention { attention: Box::new(attention), dropped }
            }
            Training::AttentionGrad(op) => return self.attention_grad(id, inputs, op),
            Training::EmbedGrad(op) => return self.embed_grad(id, inputs, *op),
            Training::ScatterAdd => {
                let dims = self.dims(port(0))?;
                let (dy, of) = self.rows(inputs[2])?;
                if dims.len() != 2 || of.len() != 2 {
                    return Ok(false);
                }
                let indices = self.place(inputs[1]);
                let out = self.dense_view(&dims);
                self.places.insert(port(0), Place::View(out.clone()));
                Train::Scatter { indices, source: inputs[1], dy, out }
            }
            Training::StridedSliceGrad(_) => return Ok(false),
            Training::CrossEntropy => {
                let (x, _) = self.rows(inputs[0])?;
                let (labels, dims) = (self.place(inputs[1]), self.dims(port(0))?);
                let out = self.made(port(0), &dims);
                Train::CrossEntropy { x, labels, source: inputs[1], out }
            }
            Training::CrossEntropyGrad => {
                let (x, dims) = self.rows(inputs[0])?;
                let (labels, dy) = (self.place(inputs[1]), self.place(inputs[2]));
                let out = self.made(port(0), &dims);
                Train::CrossEntropyGrad { x, labels, source: inputs[1], dy, out }
            }
            Training::Dropout(op) => {
                let (x, dims) = self.rows(inputs[0])?;
                let [key, places] = [1, 2].map(|i| self.place(inputs[i]));
                let dropped = Dropped { dropout: *op, key, places, keys: None };
                let out = self.made(port(0), &dims);
                Train::Dropout { x, dropped, out }
            }
        };
        self.step(id, Work::Train(train));
        Ok(true)
    }

    /// Key, places of the queries, places of the keys.
    fn dropped(&mut self, dropout: Dropout, inputs: &[Value]) -> Result<Dropped, Reason> {
        let &[key, queries, keys] = inputs else { return Err("dropout lacks an input".into()) };
        let (key, places) = (self.place(key), self.place(queries));
        Ok(Dropped { dropout, key, places, keys: Some(self.place(keys)) })
    }

    fn attention_grad(
        &mut self,
        id: NodeId,
        inputs: &[Value],
        op: &op::AttentionGrad,
    ) -> Result<bool, Reason> {
        let (dy, inputs) = inputs.split_last().ok_or("it has no inputs")?;
        let count = inputs.len() - if op.dropout.is_some() { 3 } else { 0 };
        let attention = self.attention_of(&op.attention, &inputs[..count], Value::from(id))?;
        let dropped = match op.dropout {
            Some(dropout) => Some(self.dropped(dropout, &inputs[count..])?),
            None => None,
        };
        let (dy, _) = self.rows(*dy)?;
        let mut grads = vec![attention.out.view().clone()];
        for port in 1..3 {
            let value = Value { node: id, port };
            let dims = self.dims(value)?;
            grads.push(self.made(value, &dims));
        }
        let grads: Box<[View; 3]> = grads.try_into().map_err(|_| "three gradients")?;
        let attention = Box::new(attention);
        self.step(id, Work::Train(Train::AttentionGrad { attention, dropped, dy, grads }));
        Ok(true)
    }

    /// The gradients of tables; that of the words is added right to what else there is of it, where
    /// nobody else wants either of both.
    fn embed_grad(&mut self, id: NodeId, inputs: &[Value], op: EmbedGrad) -> Result<bool, Reason> {
        let (dy, _) = self.rows(inputs[0])?;
        let limits = [op.words, op.types, op.positions];
        let lookup = self.lookup([inputs[1], inputs[2]], inputs.get(3).copied(), limits);
        let words = Value::from(id);
        let sum = self.only_reader(words).and_then(|sum| {
            let (place, other) = self.other_summand(sum, words)?;
            (self.only_reader(other) == Some(sum)).then_some((sum, place))
        });
        let mut grads = Vec::with_capacity(3);
        for port in 0..3 {
            let value = Value { node: id, port };
            let dims = self.dims(value)?;
            let view = match &sum {
                Some((_, view)) if port == 0 => view.clone(),
                _ => self.dense_view(&dims),
            };
            self.places.insert(value, Place::View(view.clone()));
            grads.push(view);
        }
        if let Some((sum, view)) = &sum {
            self.places.insert((*sum).into(), Place::View(view.clone()));
            self.done.insert(*sum);
        }
        let grads: Box<[View; 3]> = grads.try_into().map_err(|_| "three gradients")?;
        let onto = sum.is_some();
        self.step(id, Work::Train(Train::EmbedGrad { lookup, dy, grads, onto }));
        Ok(true)
    }

    /// Of a sum of two rows of the same extents: the other summand's memory, and the other summand,
    /// if it is there already, whole and dense.
    fn other_summand(&self, sum: NodeId, one: Value) -> Option<(View, Value)> {
        let node = self.graph.node(sum);
        if !matches!(node.op, Op::Binary(op::Binary::Add)) {
            return None;
        }
        let other = *node.inputs.iter().find(|&&input| input != one)?;
        let Some(Place::View(view)) = self.places.get(&other) else { return None };
        let known = self.facts[other].known_dims()?;
        let dense = self.is_dense(view) && view.column == 0;
        (dense && self.facts[one].known_dims()? == known).then(|| (view.clone(), other))
    }
}
