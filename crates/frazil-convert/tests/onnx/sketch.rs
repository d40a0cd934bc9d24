//! Graphs under construction, with short words for what tests need and values for their inputs.

use std::collections::BTreeMap;

use frazil_graph::op::{Input, Op};
use frazil_graph::{Dim, Graph, Node, Port, Symbol, Value, dim::Sizes};
use frazil_tensor::{DType, Element, Tensor};

/// What `batch` and `seq` are in a run.
pub const BATCH: i64 = 3;
pub const SEQ: i64 = 5;

/// A graph, and what to feed it.
#[derive(Clone, Default)]
pub struct Sketch {
    pub graph: Graph,
    pub feeds: BTreeMap<String, Tensor>,
}

impl Sketch {
    pub fn node(&mut self, name: &str, op: Op, inputs: &[Value]) -> Value {
        self.graph.push(Node::new(name, op, inputs.to_vec())).unwrap().into()
    }

    /// A node that is also an output.
    pub fn out(&mut self, name: &str, op: Op, inputs: &[Value]) -> Value {
        let value = self.node(name, op, inputs);
        self.output(name, value);
        value
    }

    pub fn output(&mut self, name: &str, value: Value) {
        self.graph.outputs.push(Port { name: name.into(), value });
    }

    pub fn input(&mut self, name: &str, dtype: DType, dims: &[Dim]) -> Value {
        let value = self.node(name, Op::Input(Input { dtype, dims: Some(dims.to_vec()) }), &[]);
        self.graph.inputs.push(Port { name: name.into(), value });
        value
    }

    /// An input with elements made from their place.
    pub fn fed<T: Element>(
        &mut self,
        name: &str,
        dims: &[Dim],
        element: impl Fn(usize) -> T,
    ) -> Value {
        let sizes = Sizes::from([(Symbol::batch(), BATCH), (Symbol::seq(), SEQ)]);
        let shape: Vec<usize> = dims.iter().map(|dim| dim.at(&sizes).unwrap() as usize).collect();
        let count = shape.iter().product::<usize>();
        let values: Vec<T> = (0..count).map(element).collect();
        self.feeds.insert(name.into(), Tensor::from_vec(shape, values).unwrap());
        self.input(name, T::DTYPE, dims)
    }

    /// Numbers with a fraction on both sides of zero.
    pub fn floats(&mut self, name: &str, dims: &[Dim]) -> Value {
        self.fed(name, dims, |i| ((i * 37 + 11) % 64) as f32 / 16.0 - 2.0)
    }

    pub fn constant(&mut self, name: &str, value: Tensor) -> Value {
        self.node(name, Op::constant(value), &[])
    }

    /// A weight.
    pub fn weights(&mut self, name: &str, dims: &[usize]) -> Value {
        let count = dims.iter().product::<usize>();
        let values: Vec<f32> = (0..count).map(|i| (i % 17) as f32 * 0.25 - 2.0).collect();
        self.constant(name, Tensor::from_vec(dims, values).unwrap())
    }

    /// A list.
    pub fn ints(&mut self, name: &str, values: &[i32]) -> Value {
        self.constant(name, Tensor::from_vec([values.len()], values.to_vec()).unwrap())
    }

    /// A number.
    pub fn int(&mut self, name: &str, value: i32) -> Value {
        self.constant(name, Tensor::from_vec([], vec![value]).unwrap())
    }

    pub fn float(&mut self, name: &str, value: f32) -> Value {
        self.constant(name, Tensor::from_vec([], vec![value]).unwrap())
    }
}

/// `[batch, seq, n]`
pub fn cube(n: i64) -> Vec<Dim> {
    vec![Dim::batch(), Dim::seq(), Dim::known(n)]
}
