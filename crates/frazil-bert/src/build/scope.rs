//! Nodes named as TensorFlow would name them: under a scope, numbered where a name is taken.

use frazil_graph::op::{
    Binary, Cast, MatMul, Pack, Reduce, ReduceKind, ShapeOp, StridedSlice, Unary, Variable,
};
use frazil_graph::{Graph, Node, Op, Value};
use frazil_tensor::{DType, Element, Shape, Tensor};

use crate::Result;

/// A graph under construction.
pub(super) struct Builder {
    pub graph: Graph,
    /// Names in use, in lower case: TensorFlow tells `Mul` and `mul` apart no more than a file
    /// system does.
    taken: std::collections::HashSet<String>,
}

/// An extent: a number, or a scalar that is computed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Extent {
    Known(usize),
    Computed(Value),
}

impl Builder {
    pub fn new() -> Self {
        Self { graph: Graph::new(), taken: Default::default() }
    }

    /// `name`, or `name_1`, `name_2`, …
    fn unique(&mut self, name: &str) -> String {
        let mut candidate = name.to_owned();
        let mut number = 0;
        while !self.taken.insert(candidate.to_lowercase()) {
            number += 1;
            candidate = format!("{name}_{number}");
        }
        candidate
    }

    pub fn node(&mut self, name: &str, op: Op, inputs: &[Value]) -> Result<Value> {
        let name = self.unique(name);
        Ok(self.graph.push(Node::new(name, op, inputs.to_vec()))?.into())
    }

    pub fn constant<T: Element>(
        &mut self,
        name: &str,
        shape: &[usize],
        values: Vec<T>,
    ) -> Result<Value> {
        let tensor = Tensor::from_vec(Shape::from(shape), values)?;
        self.node(name, Op::constant(tensor), &[])
    }

    pub fn int(&mut self, name: &str, value: i32) -> Result<Value> {
        self.constant(name, &[], vec![value])
    }

    pub fn ints(&mut self, name: &str, values: &[i32]) -> Result<Value> {
        self.constant(name, &[values.len()], values.to_vec())
    }

    pub fn float(&mut self, name: &str, value: f32) -> Result<Value> {
        self.constant(name, &[], vec![value])
    }

    /// A variable and the node that reads it.
    pub fn variable(&mut self, name: &str, shape: &[usize]) -> Result<Value> {
        if let Some(read) = self.graph.find(&format!("{name}/read")) {
            return Ok(read.into());
        }
        let shape = Some(Shape::from(shape));
        let op = Op::Variable(Variable { dtype: DType::F32, shape, resource: false });
        let variable = self.node(name, op, &[])?;
        self.node(&format!("{name}/read"), Op::Unary(Unary::Identity), &[variable])
    }

    pub fn unary(&mut self, name: &str, kind: Unary, x: Value) -> Result<Value> {
        self.node(name, Op::Unary(kind), &[x])
    }

    pub fn binary(&mut self, name: &str, kind: Binary, x: Value, y: Value) -> Result<Value> {
        self.node(name, Op::Binary(kind), &[x, y])
    }

    /// With a number on one side, a constant named after the operation: `add/y` for example.
    pub fn with_number(
        &mut self,
        name: &str,
        kind: Binary,
        side: Side,
        x: Value,
        number: f32,
    ) -> Result<Value> {
        let name = self.unique(name);
        let constant = match side {
            Side::Left => self.float(&format!("{name}/x"), number)?,
            Side::Right => self.float(&format!("{name}/y"), number)?,
        };
        let inputs = match side {
            Side::Left => vec![constant, x],
            Side::Right => vec![x, constant],
        };
        Ok(self.graph.push(Node::new(name, Op::Binary(kind), inputs))?.into())
    }

    pub fn matmul(&mut self, name: &str, a: Value, b: Value, transpose_b: bool) -> Result<Value> {
        self.node(name, Op::MatMul(MatMul { transpose_a: false, transpose_b }), &[a, b])
    }

    pub fn cast(&mut self, name: &str, x: Value, to: DType) -> Result<Value> {
        self.node(name, Op::Cast(Cast { to }), &[x])
    }

    pub fn mean(&mut self, name: &str, x: Value, axis: i32) -> Result<Value> {
        let axes = self.ints(&format!("{name}/reduction_indices"), &[axis])?;
        let op = Op::Reduce(Reduce { kind: ReduceKind::Mean, keep_dims: true });
        self.node(name, op, &[x, axes])
    }

    pub fn transpose(&mut self, scope: &str, x: Value, order: &[i32]) -> Result<Value> {
        let name = self.unique(&format!("{scope}transpose"));
        let order = self.ints(&format!("{name}/perm"), order)?;
        Ok(self.graph.push(Node::new(name, Op::Transpose, vec![x, order]))?.into())
    }

    /// The first extents of `x`, computed where they are not given.
    pub fn extents(
        &mut self,
        scope: &str,
        x: Value,
        given: &[Option<usize>],
    ) -> Result<Vec<Extent>> {
        let shape = if given.iter().any(Option::is_none) {
            let op = Op::Shape(ShapeOp { to: DType::I32 });
            Some(self.node(&format!("{scope}Shape"), op, &[x])?)
        } else {
            None
        };
        let mut extents = Vec::with_capacity(given.len());
        for (axis, given) in given.iter().enumerate() {
            extents.push(match (given, shape) {
                (Some(extent), _) => Extent::Known(*extent),
                (None, Some(shape)) => Extent::Computed(self.entry(scope, shape, axis as i32)?),
                (None, None) => unreachable!("a shape is taken if an extent is missing"),
            });
        }
        Ok(extents)
    }

    /// `list[index]`
    fn entry(&mut self, scope: &str, list: Value, index: i32) -> Result<Value> {
        let name = self.unique(&format!("{scope}strided_slice"));
        let begin = self.ints(&format!("{name}/stack"), &[index])?;
        let end = self.ints(&format!("{name}/stack_1"), &[index + 1])?;
        let stride = self.ints(&format!("{name}/stack_2"), &[1])?;
        let op = Op::StridedSlice(StridedSlice { shrink_axis_mask: 1, ..Default::default() });
        Ok(self.graph.push(Node::new(name, op, vec![list, begin, end, stride]))?.into())
    }

    /// The product of two extents.
    pub fn times(&mut self, scope: &str, a: Extent, b: Extent) -> Result<Extent> {
        Ok(match (a, b) {
            (Extent::Known(a), Extent::Known(b)) => Extent::Known(a * b),
            (a, b) => {
                let name = self.unique(&format!("{scope}mul"));
                let a = self.scalar(&format!("{name}/x"), a)?;
                let b = self.scalar(&format!("{name}/y"), b)?;
                let op = Op::Binary(Binary::Mul);
                Extent::Computed(self.graph.push(Node::new(name, op, vec![a, b]))?.into())
            }
        })
    }

    pub fn scalar(&mut self, name: &str, extent: Extent) -> Result<Value> {
        match extent {
            Extent::Known(extent) => self.int(name, size(extent)),
            Extent::Computed(value) => Ok(value),
        }
    }

    /// Extents as a list: a constant, or packed if some are computed.
    pub fn list(&mut self, name: &str, extents: &[Extent]) -> Result<Value> {
        let known: Option<Vec<i32>> = extents
            .iter()
            .map(|extent| match extent {
                Extent::Known(extent) => Some(size(*extent)),
                Extent::Computed(_) => None,
            })
            .collect();
        if let Some(known) = known {
            return self.ints(name, &known);
        }
        let parts: Result<Vec<Value>> = extents
            .iter()
            .enumerate()
            .map(|(i, &extent)| self.scalar(&format!("{name}/{i}"), extent))
            .collect();
        self.node(name, Op::Pack(Pack { axis: 0 }), &parts?)
    }

    pub fn reshape(&mut self, scope: &str, x: Value, extents: &[Extent]) -> Result<Value> {
        let name = self.unique(&format!("{scope}Reshape"));
        let shape = self.list(&format!("{name}/shape"), extents)?;
        Ok(self.graph.push(Node::new(name, Op::Reshape, vec![x, shape]))?.into())
    }

    /// A reshape to a constant target that may hold a -1.
    pub fn reshape_to(&mut self, scope: &str, x: Value, target: &[i32]) -> Result<Value> {
        let name = self.unique(&format!("{scope}Reshape"));
        let shape = self.ints(&format!("{name}/shape"), target)?;
        Ok(self.graph.push(Node::new(name, Op::Reshape, vec![x, shape]))?.into())
    }
}

/// On which side of the operation a number stands.
#[derive(Clone, Copy)]
pub(super) enum Side {
    Left,
    Right,
}

/// Extents of models fit in 32 bits; what does not is refused before anything is built.
fn size(extent: usize) -> i32 {
    i32::try_from(extent).unwrap_or(i32::MAX)
}
