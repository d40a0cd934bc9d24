//! Small graphs for tests: nodes by name, inputs by name.

use frazil_tensor::{DType, Tensor};

use crate::op::{Binary, Foreign, Input, MatMul, Op, Reduce, ReduceKind, Unary};
use crate::{Dim, Graph, Node, NodeId, Port, Value};

/// A graph in the making.
#[derive(Default)]
pub(crate) struct Build {
    pub graph: Graph,
}

impl Build {
    pub fn node(&mut self, name: &str, op: Op, inputs: &[&str]) -> NodeId {
        let inputs = inputs.iter().map(|name| self.value(name)).collect();
        self.graph.push(Node::new(name, op, inputs)).unwrap()
    }

    pub fn value(&self, name: &str) -> Value {
        self.graph.find_value(name).unwrap()
    }

    pub fn input(&mut self, name: &str, dtype: DType, dims: &[Dim]) {
        let op = Op::Input(Input { dtype, dims: Some(dims.to_vec()) });
        let value = self.node(name, op, &[]).into();
        self.graph.inputs.push(Port { name: name.to_owned(), value });
    }

    pub fn output(&mut self, name: &str) {
        let value = self.value(name);
        self.graph.outputs.push(Port { name: name.to_owned(), value });
    }

    /// A scalar.
    pub fn number(&mut self, name: &str, value: f32) {
        self.node(name, Op::constant(Tensor::from_vec([], vec![value]).unwrap()), &[]);
    }

    /// A weight whose values do not matter.
    pub fn weight(&mut self, name: &str, shape: &[usize]) {
        let values = vec![0.5f32; shape.iter().product()];
        self.node(name, Op::constant(Tensor::from_vec(shape, values).unwrap()), &[]);
    }

    pub fn list(&mut self, name: &str, values: &[i32]) {
        let tensor = Tensor::from_vec([values.len()], values.to_vec()).unwrap();
        self.node(name, Op::constant(tensor), &[]);
    }

    pub fn int(&mut self, name: &str, value: i32) {
        self.node(name, Op::constant(Tensor::from_vec([], vec![value]).unwrap()), &[]);
    }

    pub fn binary(&mut self, name: &str, kind: Binary, x: &str, y: &str) {
        self.node(name, Op::Binary(kind), &[x, y]);
    }

    pub fn unary(&mut self, name: &str, kind: Unary, x: &str) {
        self.node(name, Op::Unary(kind), &[x]);
    }

    pub fn mean(&mut self, name: &str, x: &str, axes: &str) {
        let op = Op::Reduce(Reduce { kind: ReduceKind::Mean, keep_dims: true });
        self.node(name, op, &[x, axes]);
    }

    pub fn matmul(&mut self, name: &str, a: &str, b: &str) {
        self.node(name, Op::MatMul(MatMul::default()), &[a, b]);
    }

    pub fn matmul_transposed(&mut self, name: &str, a: &str, b: &str) {
        self.node(name, Op::MatMul(MatMul { transpose_a: false, transpose_b: true }), &[a, b]);
    }

    /// An operation that the graph has no word for, with one output.
    pub fn foreign(&mut self, name: &str, op: &str, inputs: &[&str]) {
        let outputs = vec![Default::default()];
        let op = Op::Foreign(Foreign { op: op.to_owned(), attrs: Default::default(), outputs });
        self.node(name, op, inputs);
    }

    /// All nodes of one kind, by name.
    pub fn of_kind(&self, kind: &str) -> Vec<String> {
        let nodes = self.graph.nodes().filter(|(_, node)| node.op.to_string() == kind);
        nodes.map(|(_, node)| node.name.clone()).collect()
    }
}

/// `[batch, seq]`
pub(crate) fn batch_by_seq() -> Vec<Dim> {
    vec![Dim::batch(), Dim::seq()]
}
