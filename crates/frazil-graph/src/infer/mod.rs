//! What follows, for every value, from the types and extents of the inputs.
//!
//! One walk in topological order; each operation has a rule that gives type, extents and, for
//! small integer tensors, elements. So the shape arithmetic of TF1 graphs (Shape, StridedSlice,
//! Pack, Reshape) comes out as symbolic extents without being run. Operands that cannot go together
//! are an error that names the node; what does not follow is left unknown, or becomes a symbol
//! of its own (`?1`, `?2`, …) where only an extent is unknown.
//!
//! `shape` has the rules of operations that move elements, `compute` those that calculate, `rows`
//! those that leave padding out, `training` those of gradients.

mod compute;
mod rows;
mod shape;
mod training;

use frazil_tensor::{DType, Tensor};

use crate::op::{Declared, Op};
use crate::{Dim, Error, Fact, Facts, Graph, Node, Result, Symbol, Value};

/// The facts of every value.
pub fn infer(graph: &Graph) -> Result<Facts> {
    let mut inference =
        Inference { facts: Facts { nodes: vec![Vec::new(); graph.len()] }, unknown: 0 };
    for id in graph.topological()? {
        let node = graph.node(id);
        let facts = inference.node(node).map_err(|problem| Error::Shape {
            name: node.name.clone(),
            op: node.op.to_string(),
            reason: problem.0,
        })?;
        debug_assert_eq!(facts.len(), node.op.outputs(), "{}", node.name);
        inference.facts.nodes[id.index()] = facts;
    }
    Ok(inference.facts)
}

/// What one operation makes of its inputs, by the same rules; the error says why they do not fit.
/// Extents that do not follow are symbols whose names begin with `?`.
pub(crate) fn apply(node: &Node, inputs: Vec<Fact>) -> std::result::Result<Vec<Fact>, String> {
    let facts = Facts { nodes: Vec::new() };
    Inference { facts, unknown: 0 }.rule(node, inputs).map_err(|problem| problem.0)
}

/// Why operands do not go together.
pub(super) struct Problem(pub String);

type Ruled = std::result::Result<Vec<Fact>, Problem>;

fn problem<T>(reason: impl Into<String>) -> std::result::Result<T, Problem> {
    Err(Problem(reason.into()))
}

struct Inference {
    facts: Facts,
    unknown: usize,
}

impl Inference {
    fn fact(&self, value: Value) -> &Fact {
        &self.facts[value]
    }

    /// An extent that nothing is known about.
    fn fresh(&mut self) -> Dim {
        self.unknown += 1;
        Dim::symbol(Symbol::new(format!("?{}", self.unknown)))
    }

    fn fresh_dims(&mut self, rank: usize) -> Vec<Dim> {
        (0..rank).map(|_| self.fresh()).collect()
    }

    fn node(&mut self, node: &Node) -> Ruled {
        // What is foreign follows from nothing; and the head of a loop comes before what it reads.
        if let Op::Foreign(_) = node.op {
            return self.rule(node, Vec::new());
        }
        let inputs: Vec<Fact> = node.inputs.iter().map(|&value| self.fact(value).clone()).collect();
        self.rule(node, inputs)
    }

    fn rule(&mut self, node: &Node, inputs: Vec<Fact>) -> Ruled {
        let (least, most) = node.op.arity();
        if inputs.len() < least || inputs.len() > most {
            return problem(format!("{} inputs do not fit", inputs.len()));
        }
        let x = inputs.first().cloned().unwrap_or_default();
        match &node.op {
            Op::Input(op) => {
                Ok(vec![Fact { dtype: Some(op.dtype), dims: op.dims.clone(), elements: None }])
            }
            Op::InputWithDefault(op) => {
                let dims = op.dims.clone().or(x.dims);
                Ok(vec![Fact { dtype: Some(op.dtype), dims, elements: None }])
            }
            Op::Const(op) => Ok(vec![constant(&op.value)]),
            Op::Variable(op) => {
                let dims = op.shape.as_ref().map(|shape| shape.iter().map(|&d| d.into()).collect());
                let dtype = (!op.resource).then_some(op.dtype);
                Ok(vec![Fact { dtype, dims, elements: None }])
            }
            Op::ReadVariable(op) => {
                Ok(vec![Fact { dtype: Some(op.dtype), dims: x.dims, elements: None }])
            }
            Op::Unary(kind) => compute::unary(*kind, x),
            Op::Binary(kind) => self.binary(*kind, &inputs[0], &inputs[1]),
            Op::Compare(kind) => self.compare(*kind, &inputs[0], &inputs[1]),
            Op::AddN => self.add_n(&inputs),
            Op::BiasAdd => compute::bias_add(&inputs[0], &inputs[1]),
            Op::Cast(op) => compute::cast(op.to, x),
            Op::Select => self.select(&inputs),
            Op::MatMul(op) => self.matmul(*op, &inputs[0], &inputs[1]),
            Op::Reduce(op) => compute::reduce(*op, &inputs[0], &inputs[1]),
            Op::ArgMax(op) => compute::arg_max(op.to, &inputs[0], &inputs[1]),
            Op::Softmax | Op::LogSoftmax | Op::Gelu(_) => Ok(vec![Fact { elements: None, ..x }]),
            Op::LayerNorm(_) => compute::layer_norm(&inputs),
            Op::Linear(op) => compute::linear(op.transpose_w, &inputs),
            Op::Embed => compute::embed(&inputs),
            Op::Attention(op) => compute::attention(op, &inputs),
            Op::PackRows(_) => rows::pack(&x),
            Op::UnpackRows => rows::unpack(&inputs),
            Op::Shape(op) => Ok(vec![shape::shape_of(op.to, &x)]),
            Op::Size(op) => Ok(vec![shape::size_of(op.to, &x)]),
            Op::Rank => Ok(vec![shape::rank_of(&x)]),
            Op::Reshape => self.reshape(&inputs[0], &inputs[1]),
            Op::ExpandDims => shape::expand_dims(&inputs[0], &inputs[1]),
            Op::Squeeze(op) => shape::squeeze(&op.axes, x),
            Op::Transpose => self.transpose(&inputs[0], &inputs[1]),
            Op::Concat => self.concat(&inputs),
            Op::Pack(op) => shape::pack(op.axis, &inputs),
            Op::Unpack(op) => shape::unpack(*op, &x),
            Op::Split(op) => self.split(op.count, &inputs[1], &inputs[0]),
            Op::SplitV(op) => self.split_v(op.count, &inputs),
            Op::Slice => self.slice(&inputs),
            Op::StridedSlice(op) => self.strided_slice(*op, &inputs),
            Op::Gather(op) => self.gather(op.batch_dims, &inputs),
            Op::OneHot(op) => self.one_hot(op.axis, &inputs),
            Op::Range => self.range(&inputs),
            Op::Fill => self.filled(inputs[1].dtype, &inputs[0], Some(&inputs[1])),
            Op::BroadcastTo => self.filled(inputs[0].dtype, &inputs[1], None),
            Op::Tile => self.tile(&inputs[0], &inputs[1]),
            Op::Pad => self.pad(&inputs[0], &inputs[1]),
            Op::Quantize(op) => compute::quantize(DType::F32, op.to, &x),
            Op::Requantize(op) => compute::quantize(DType::QI32, op.to, &x),
            Op::Dequantize => {
                Ok(vec![Fact { dtype: Some(DType::F32), dims: x.dims, elements: None }])
            }
            Op::QuantizedLinear => compute::quantized_linear(&inputs),
            Op::FakeQuantize(steps) => compute::fake_quantize(steps, x),
            Op::Scaled(op) => compute::scaled(op.axis, &inputs),
            Op::Training(op) => self.training(op, &inputs),
            Op::Foreign(op) => Ok(op.outputs.iter().map(declared).collect()),
        }
    }

    /// Extents from a list of them, which may be known, symbolic or unknown.
    fn dims_from(&mut self, list: &Fact) -> Option<Vec<Dim>> {
        if let Some(elements) = &list.elements {
            return Some(elements.clone());
        }
        let rank = list.known_dims()?.first().copied()?;
        let rank = usize::try_from(rank).ok().filter(|rank| *rank <= 32)?;
        Some(self.fresh_dims(rank))
    }
}

fn declared(output: &Declared) -> Fact {
    Fact { dtype: output.dtype, dims: output.dims.clone(), elements: None }
}

/// The fact of a known value.
fn constant(value: &Tensor) -> Fact {
    let dims = value.shape().iter().map(|&d| d.into()).collect();
    let small = value.elements() <= Fact::MOST_ELEMENTS;
    let integers = match value.dtype() {
        DType::I32 | DType::I64 | DType::U8 | DType::I8 | DType::I16 | DType::Bool if small => {
            integers(value)
        }
        _ => None,
    };
    Fact { dtype: Some(value.dtype()), dims: Some(dims), elements: integers }
}

fn integers(value: &Tensor) -> Option<Vec<Dim>> {
    // `to_f64` would round the largest int64.
    if value.dtype() == DType::I64 {
        return Some(value.values::<i64>().ok()?.iter().map(|&v| Dim::known(v)).collect());
    }
    Some(value.to_f64().ok()?.into_iter().map(|v| Dim::known(v as i64)).collect())
}

/// An axis that may count from the end, as an index.
pub(super) fn axis_index(axis: i64, rank: usize) -> std::result::Result<usize, Problem> {
    let signed = rank as i64;
    let index = if axis < 0 { axis + signed } else { axis };
    if (0..signed).contains(&index) {
        Ok(index as usize)
    } else {
        problem(format!("axis {axis} is outside of {rank} axes"))
    }
}

/// A scalar (or one-element list) that is known.
fn scalar(fact: &Fact) -> Option<i64> {
    match fact.known_elements()?.as_slice() {
        [value] => Some(*value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Input, Pack, ShapeOp, StridedSlice};
    use crate::{NodeId, Port};

    fn push(graph: &mut Graph, name: &str, op: Op, inputs: &[NodeId]) -> NodeId {
        let inputs = inputs.iter().map(|&id| id.into()).collect();
        graph.push(Node::new(name, op, inputs)).unwrap()
    }

    fn list(graph: &mut Graph, name: &str, values: &[i32]) -> NodeId {
        let tensor = Tensor::from_vec([values.len()], values.to_vec()).unwrap();
        push(graph, name, Op::constant(tensor), &[])
    }

    /// `reshape(x, [shape(x)[0] * 2, -1, 8])`, as TF1 graphs write it.
    #[test]
    fn shape_arithmetic_is_symbolic() {
        let mut graph = Graph::new();
        let dims = vec![Dim::batch(), Dim::seq(), Dim::known(16)];
        let input = Op::Input(Input { dtype: DType::F32, dims: Some(dims) });
        let x = push(&mut graph, "x", input, &[]);
        graph.inputs.push(Port { name: "x".into(), value: x.into() });
        let shape = push(&mut graph, "shape", Op::Shape(ShapeOp { to: DType::I32 }), &[x]);
        let (zero, one) = (list(&mut graph, "0", &[0]), list(&mut graph, "1", &[1]));
        let first = Op::StridedSlice(StridedSlice { shrink_axis_mask: 1, ..Default::default() });
        let batch = push(&mut graph, "batch", first, &[shape, zero, one, one]);
        let two =
            push(&mut graph, "2", Op::constant(Tensor::from_vec([], vec![2i32]).unwrap()), &[]);
        let twice = push(&mut graph, "twice", Op::Binary(crate::op::Binary::Mul), &[batch, two]);
        let open =
            push(&mut graph, "open", Op::constant(Tensor::from_vec([], vec![-1i32]).unwrap()), &[]);
        let eight =
            push(&mut graph, "8", Op::constant(Tensor::from_vec([], vec![8i32]).unwrap()), &[]);
        let target = push(&mut graph, "target", Op::Pack(Pack { axis: 0 }), &[twice, open, eight]);
        let y = push(&mut graph, "y", Op::Reshape, &[x, target]);
        graph.check().unwrap();
        let facts = infer(&graph).unwrap();
        assert_eq!(facts[target.into()].to_string(), "int32 [3] = [2*batch, -1, 8]");
        assert_eq!(facts[y.into()].to_string(), "float32 [2*batch, seq, 8]");
        graph.outputs.push(Port { name: "y".into(), value: y.into() });
        let text = crate::dump(&graph);
        assert!(text.contains("y = Reshape(x, target) : float32 [2*batch, seq, 8]"), "{text}");
    }

    #[test]
    fn operands_that_do_not_fit_are_named() {
        let mut graph = Graph::new();
        let a = list(&mut graph, "a", &[1, 2, 3]);
        let b = list(&mut graph, "b", &[1, 2]);
        push(&mut graph, "sum", Op::Binary(crate::op::Binary::Add), &[a, b]);
        let error = infer(&graph).unwrap_err().to_string();
        assert_eq!(error, "`sum` (Add): [3] and [2] do not broadcast");
    }
}
