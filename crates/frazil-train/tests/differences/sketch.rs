//! A graph in the making, with the numbers that are fed to it.

use frazil_graph::op::{Binary, Input, Reduce, ReduceKind};
use frazil_graph::{Dim, Graph, Node, Op, Port, Value, infer};
use frazil_runtime::Inputs;
use frazil_tensor::{DType, Element, Tensor};

#[derive(Default)]
pub struct Sketch {
    pub graph: Graph,
    /// What is fed: real numbers, which gradients are asked for, and others.
    pub fed: Inputs,
    seed: u64,
}

impl Sketch {
    /// The next of numbers without a pattern, between -1 and 1.
    fn next(&mut self) -> f64 {
        self.seed = self.seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.seed >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    pub fn push(&mut self, name: &str, op: Op, inputs: &[Value]) -> Value {
        self.graph.push_fresh(Node::new(name, op, inputs.to_vec())).unwrap().into()
    }

    fn feed(&mut self, name: &str, dims: Vec<Dim>, tensor: Tensor) -> Value {
        let op = Op::Input(Input { dtype: tensor.dtype(), dims: Some(dims) });
        let value = self.push(name, op, &[]);
        self.graph.inputs.push(Port { name: name.to_owned(), value });
        self.fed.insert(name.to_owned(), tensor);
        value
    }

    /// Numbers that a gradient is asked for.
    pub fn x(&mut self, name: &str, shape: &[usize]) -> Value {
        self.x_from(name, shape, |x| 2.0 * x)
    }

    /// The same above 0.5.
    pub fn positive(&mut self, name: &str, shape: &[usize]) -> Value {
        self.x_from(name, shape, |x| x + 1.5)
    }

    fn x_from(&mut self, name: &str, shape: &[usize], of: impl Fn(f64) -> f64) -> Value {
        let dims = shape.iter().map(|&extent| extent.into()).collect();
        let values = (0..shape.iter().product()).map(|_| of(self.next())).collect();
        self.feed(name, dims, Tensor::from_vec(shape.to_vec(), values).unwrap())
    }

    /// The same with `batch` for its first extent.
    pub fn open(&mut self, name: &str, shape: &[usize]) -> Value {
        let mut dims: Vec<Dim> = shape.iter().map(|&extent| extent.into()).collect();
        dims[0] = Dim::batch();
        let values = (0..shape.iter().product()).map(|_| 2.0 * self.next()).collect();
        self.feed(name, dims, Tensor::from_vec(shape.to_vec(), values).unwrap())
    }

    /// Integers that are fed.
    pub fn ids(&mut self, name: &str, dims: Vec<Dim>, shape: &[usize], values: &[i32]) -> Value {
        self.feed(name, dims, Tensor::from_vec(shape.to_vec(), values.to_vec()).unwrap())
    }

    pub fn constant<T: Element>(&mut self, shape: &[usize], values: &[T]) -> Value {
        let tensor = Tensor::from_vec(shape.to_vec(), values.to_vec()).unwrap();
        self.push("constant", Op::constant(tensor), &[])
    }

    pub fn ints(&mut self, values: &[i32]) -> Value {
        self.constant(&[values.len()], values)
    }

    pub fn int(&mut self, value: i32) -> Value {
        self.constant(&[], &[value])
    }

    /// The numbers that gradients are asked for.
    pub fn numbers(&self) -> Vec<(String, Value)> {
        let real = |port: &&Port| self.fed[&port.name].dtype() == DType::F64;
        self.graph.inputs.iter().filter(real).map(|p| (p.name.clone(), p.value)).collect()
    }

    pub fn output(&mut self, name: &str, value: Value) {
        self.graph.outputs.push(Port { name: name.to_owned(), value });
    }

    /// The sum of all elements times weights. Extents that are not known have the same weight.
    pub fn loss(&mut self, outputs: &[Value]) -> Value {
        let mut loss = None;
        for &output in outputs {
            let dims = infer(&self.graph).unwrap()[output].dims.clone().unwrap();
            let shape: Vec<usize> =
                dims.iter().map(|dim| dim.as_known().unwrap_or(1) as usize).collect();
            let weights: Vec<f64> = (0..shape.iter().product()).map(|_| self.next()).collect();
            let weights = self.constant(&shape, &weights);
            let product = self.push("weighted", Op::Binary(Binary::Mul), &[output, weights]);
            let axes: Vec<i32> = (0..dims.len() as i32).collect();
            let axes = self.ints(&axes);
            let op = Op::Reduce(Reduce { kind: ReduceKind::Sum, keep_dims: false });
            let sum = self.push("sum", op, &[product, axes]);
            loss = Some(match loss {
                Some(before) => self.push("total", Op::Binary(Binary::Add), &[before, sum]),
                None => sum,
            });
        }
        loss.expect("there is an output")
    }
}
