//! The gradient of a loss, as nodes of the same graph.
//!
//! One walk from the loss back to what is asked for. Each operation has a rule (`rule`) that says
//! what the gradients of its inputs are, given those of its outputs; gradients that come from
//! several readers are added up. What has no rule is refused by name, if a gradient would have to
//! pass it. Every rule is tested by differences in `f64`.

mod elementwise;
mod fused;
mod matrix;
mod movement;
mod reduce;

use std::collections::HashMap;

use frazil_graph::op::{Binary, ShapeOp, StridedSlice, Training};
use frazil_graph::{Facts, Graph, Node, NodeId, Op, Value, infer};
use frazil_tensor::{DType, Element, Shape, Tensor};

use crate::{Error, Result};

/// Adds the gradients of `loss` (one number) for `wrt` to the graph, and gives them in their order.
///
/// The nodes are named `gradients/NODE/…` after the node that they belong to. A value that the loss
/// does not depend on is an error.
pub fn gradients(graph: &mut Graph, loss: Value, wrt: &[Value]) -> Result<Vec<Value>> {
    let dtype = one_number(graph, loss)?;
    let one = match dtype {
        DType::F64 => Tensor::from_vec([], vec![1f64]),
        _ => Tensor::from_vec([], vec![1f32]),
    };
    let name = format!("gradients/{}/one", graph.value_name(loss));
    let one = one.map_err(|source| frazil_graph::Error::Tensor { name: name.clone(), source })?;
    let seed = graph.push_fresh(Node::new(name, Op::constant(one), vec![]))?;
    gradients_from(graph, loss, seed.into(), wrt)
}

/// The same times `seed`, a value of the loss's type and shape: a factor that keeps small gradients
/// from vanishing, say.
pub fn gradients_from(
    graph: &mut Graph,
    loss: Value,
    seed: Value,
    wrt: &[Value],
) -> Result<Vec<Value>> {
    one_number(graph, loss)?;
    let facts = infer(graph)?;
    let order = graph.topological()?;
    let active = active(graph, &order, loss, wrt);
    let mut walk = Backward { graph, facts, node: loss.node };
    let mut found: HashMap<Value, Value> = HashMap::from([(loss, seed)]);
    for &id in order.iter().rev().filter(|id| active[id.index()]) {
        let outputs = walk.graph.node(id).op.outputs() as u32;
        let dy: Vec<Option<Value>> =
            (0..outputs).map(|port| found.get(&Value { node: id, port }).copied()).collect();
        if dy.iter().all(Option::is_none) {
            continue;
        }
        walk.node = id;
        let inputs = walk.graph.node(id).inputs.clone();
        let wanted: Vec<bool> = inputs.iter().map(|input| active[input.node.index()]).collect();
        if !wanted.contains(&true) {
            continue;
        }
        let grads = rule(&mut walk, &wanted, &dy)?;
        for ((input, grad), wanted) in inputs.into_iter().zip(grads).zip(wanted) {
            let Some(grad) = grad.filter(|_| wanted) else { continue };
            let sum = match found.get(&input) {
                Some(&before) => walk.binary("sum", Binary::Add, before, grad)?,
                None => grad,
            };
            found.insert(input, sum);
        }
    }
    let graph = walk.graph;
    let of = |value: &Value| {
        let name = || graph.value_name(*value);
        found.get(value).copied().ok_or_else(|| Error::NotReached { name: name() })
    };
    wrt.iter().map(of).collect()
}

/// The type of a loss.
fn one_number(graph: &Graph, loss: Value) -> Result<DType> {
    let fact = &infer(graph)?[loss];
    match (fact.dtype, fact.dims.as_deref()) {
        (Some(dtype @ (DType::F32 | DType::F64)), Some([])) => Ok(dtype),
        _ => Err(Error::NoLoss { name: graph.value_name(loss), found: fact.to_string() }),
    }
}

/// The nodes on the ways from `wrt` to the loss.
fn active(graph: &Graph, order: &[NodeId], loss: Value, wrt: &[Value]) -> Vec<bool> {
    let mut reached = vec![false; graph.len()];
    wrt.iter().for_each(|value| reached[value.node.index()] = true);
    for &id in order {
        if graph.node(id).inputs.iter().any(|input| reached[input.node.index()]) {
            reached[id.index()] = true;
        }
    }
    let needed = graph.ancestors([loss.node]);
    reached.iter().zip(needed).map(|(reached, needed)| *reached && needed).collect()
}

/// The table: the gradients of a node's inputs. `wanted` says of which inputs they are asked for;
/// others may be left out, as may those of inputs that make no difference.
fn rule(b: &mut Backward<'_>, wanted: &[bool], dy: &[Option<Value>]) -> Result<Grads> {
    let node = b.graph.node(b.node);
    let op = node.op.clone();
    // What has several outputs knows which of them were read.
    let first = || dy[0].ok_or_else(|| b.refuse("its first output is not read"));
    match &op {
        Op::Unary(kind) => elementwise::unary(b, *kind, first()?),
        Op::Binary(kind) => elementwise::binary(b, *kind, wanted, first()?),
        Op::AddN => Ok(vec![dy[0]; b.graph.node(b.node).inputs.len()]),
        Op::BiasAdd => matrix::bias_add(b, first()?),
        Op::Cast(_) => elementwise::cast(b, first()?),
        Op::Select => elementwise::select(b, first()?),
        Op::MatMul(op) => matrix::matmul(b, *op, wanted, first()?),
        Op::Linear(op) => matrix::linear(b, *op, wanted, first()?),
        Op::Reduce(op) => reduce::reduce(b, *op, first()?),
        Op::Softmax => reduce::softmax(b, first()?),
        Op::LogSoftmax => reduce::log_softmax(b, first()?),
        Op::Reshape | Op::ExpandDims | Op::Squeeze(_) => movement::reshape(b, first()?),
        Op::Transpose => movement::transpose(b, first()?),
        Op::Concat => movement::concat(b, first()?),
        Op::Pack(op) => movement::pack(b, op.axis, first()?),
        Op::Unpack(op) => movement::unpack(b, op.axis, dy),
        Op::Split(_) => movement::split(b, 1, 0, dy),
        Op::SplitV(_) => movement::split(b, 0, 2, dy),
        Op::Slice => movement::slice(b, first()?),
        Op::StridedSlice(op) => movement::strided_slice(b, *op, first()?),
        Op::Gather(op) => movement::gather(b, *op, first()?),
        Op::Fill => movement::fill(b, first()?),
        Op::Tile => movement::tile(b, first()?),
        Op::BroadcastTo => movement::broadcast_to(b, first()?),
        Op::Pad => movement::pad(b, first()?),
        Op::UnpackRows => movement::unpack_rows(b, first()?),
        Op::LayerNorm(op) => fused::layer_norm(b, *op, first()?),
        Op::Gelu(op) => fused::gelu(b, *op, first()?),
        Op::Embed => fused::embed(b, first()?),
        Op::Attention(op) => fused::attention(b, *op, None, first()?),
        Op::Training(op) => fused::training(b, op, first()?),
        // No number that is asked for comes through these.
        Op::Compare(_) | Op::ArgMax(_) | Op::Shape(_) | Op::Size(_) | Op::Rank => Ok(vec![]),
        Op::Range | Op::OneHot(_) | Op::PackRows(_) => Ok(vec![]),
        Op::Input(_)
        | Op::InputWithDefault(_)
        | Op::Const(_)
        | Op::Variable(_)
        | Op::ReadVariable(_) => Err(b.refuse("it is no function of its inputs")),
        Op::Quantize(_)
        | Op::Dequantize
        | Op::Requantize(_)
        | Op::QuantizedLinear
        | Op::FakeQuantize(_)
        | Op::Scaled(_) => Err(b.refuse("what is rounded has no slope")),
        Op::Foreign(_) => Err(b.refuse("frazil does not know it")),
    }
}

/// The gradient of each input; those at the end may be left out.
type Grads = Vec<Option<Value>>;

/// The walk: new nodes under the name of the node that is passed.
struct Backward<'g> {
    graph: &'g mut Graph,
    /// Of the graph as it was before.
    facts: Facts,
    /// The node that is passed.
    node: NodeId,
}

impl Backward<'_> {
    /// Input `i` of the node.
    fn input(&self, i: usize) -> Value {
        self.graph.node(self.node).inputs[i]
    }

    fn inputs(&self) -> Vec<Value> {
        self.graph.node(self.node).inputs.clone()
    }

    /// The node's first output.
    fn output(&self) -> Value {
        self.node.into()
    }

    fn refuse(&self, reason: impl Into<String>) -> Error {
        let node = self.graph.node(self.node);
        Error::NoGradient {
            name: node.name.clone(),
            op: node.op.to_string(),
            reason: reason.into(),
        }
    }

    fn push(&mut self, what: &str, op: Op, inputs: Vec<Value>) -> Result<Value> {
        let name = format!("gradients/{}/{what}", self.graph.node(self.node).name);
        Ok(self.graph.push_fresh(Node::new(name, op, inputs))?.into())
    }

    fn binary(&mut self, what: &str, kind: Binary, x: Value, y: Value) -> Result<Value> {
        self.push(what, Op::Binary(kind), vec![x, y])
    }

    fn mul(&mut self, x: Value, y: Value) -> Result<Value> {
        self.binary("mul", Binary::Mul, x, y)
    }

    fn constant<T: Element>(&mut self, shape: impl Into<Shape>, values: Vec<T>) -> Result<Value> {
        let name = self.graph.node(self.node).name.clone();
        let tensor = Tensor::from_vec(shape, values)
            .map_err(|source| frazil_graph::Error::Tensor { name, source })?;
        self.push("constant", Op::constant(tensor), vec![])
    }

    /// A number of the type of `like`, which is a value of the graph before.
    fn number(&mut self, like: Value, number: f64) -> Result<Value> {
        match self.facts[like].dtype {
            Some(DType::F64) => self.constant([], vec![number]),
            Some(DType::F32) => self.constant([], vec![number as f32]),
            _ => Err(self.refuse(format!("`{}` is no float32", self.graph.value_name(like)))),
        }
    }

    fn times(&mut self, x: Value, like: Value, number: f64) -> Result<Value> {
        let number = self.number(like, number)?;
        self.mul(x, number)
    }

    fn list(&mut self, values: &[i64]) -> Result<Value> {
        let narrow: Vec<i32> =
            values.iter().map(|&v| i32::try_from(v).unwrap_or(i32::MAX)).collect();
        self.constant([values.len()], narrow)
    }

    fn int(&mut self, value: i32) -> Result<Value> {
        self.constant([], vec![value])
    }

    /// The extents of a value of the graph before, as a list.
    fn shape_of(&mut self, value: Value) -> Result<Value> {
        match self.facts[value].known_dims() {
            Some(dims) => self.list(&dims),
            None => self.push("shape", Op::Shape(ShapeOp { to: DType::I32 }), vec![value]),
        }
    }

    /// One extent of a value of the graph before, as a scalar.
    fn extent(&mut self, value: Value, axis: usize) -> Result<Value> {
        let known = self.facts[value].dims.as_ref().and_then(|dims| dims[axis].as_known());
        if let Some(known) = known {
            return self.int(i32::try_from(known).unwrap_or(i32::MAX));
        }
        let shape = self.shape_of(value)?;
        let axis = axis as i64;
        let (begin, end, step) = (self.list(&[axis])?, self.list(&[axis + 1])?, self.list(&[1])?);
        let op = StridedSlice { shrink_axis_mask: 1, ..StridedSlice::default() };
        self.push("extent", Op::StridedSlice(op), vec![shape, begin, end, step])
    }

    /// The number of axes of a value of the graph before.
    fn rank(&self, value: Value) -> Result<usize> {
        let name = || self.graph.value_name(value);
        self.facts[value]
            .rank()
            .ok_or_else(|| self.refuse(format!("the number of axes of `{}` is unknown", name())))
    }

    /// Zeros under the extents of a value of the graph before.
    fn zeros_like(&mut self, value: Value) -> Result<Value> {
        let (shape, zero) = (self.shape_of(value)?, self.number(value, 0.0)?);
        self.push("zeros", Op::Fill, vec![shape, zero])
    }

    /// `x` under the extents of a value of the graph before.
    fn reshape_like(&mut self, x: Value, like: Value) -> Result<Value> {
        let shape = self.shape_of(like)?;
        self.push("reshape", Op::Reshape, vec![x, shape])
    }
}

/// What a gradient was added up from, if it is nothing but rows of another value that were added up
/// by index: TensorFlow keeps these apart (`IndexedSlices`), and its `clip_by_global_norm` takes the
/// norm of the rows, not of their sums.
pub fn gathered(graph: &Graph, grad: Value) -> Option<Value> {
    let node = graph.node(grad.node);
    match &node.op {
        Op::Training(Training::ScatterAdd) => node.inputs.get(2).copied(),
        Op::Training(Training::EmbedGrad(_)) if grad.port == 0 => node.inputs.first().copied(),
        _ => None,
    }
}
