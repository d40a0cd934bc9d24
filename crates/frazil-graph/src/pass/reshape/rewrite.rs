//! Making the changes that a proof asks for.
//!
//! A size is read off an input once (`reshape/batch`, `reshape/seq`), and operands that were
//! constant are built from it under their own names. In the end, a reshape's target with one open
//! extent becomes a constant again, with -1 in that place.

use std::collections::{HashMap, HashSet};

use frazil_tensor::{DType, Shape, Tensor};

use super::pattern::Pattern;
use super::prove::{Edit, Reasoned};
use crate::dim::show;
use crate::op::{Binary, Cast, Op, Pack, ShapeOp, StridedSlice, Unary};
use crate::{Dim, Error, Facts, Graph, Node, NodeId, Result, Symbol, Value, infer};

/// What was changed: for the report.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub node: String,
    pub what: &'static str,
    pub before: String,
    pub after: String,
    /// Why, where it did not follow from the shape alone.
    pub why: Option<String>,
}

/// Values made so far, so that each is made once per graph.
#[derive(Debug, Default)]
pub(super) struct Maker {
    numbers: HashMap<(Dim, DType), Value>,
    shapes: HashMap<NodeId, NodeId>,
    /// Shared by all who want the same number: not to be changed.
    owned: HashSet<Value>,
}

/// The graph before the changes.
struct Before {
    facts: Facts,
    /// How many inputs read each value.
    uses: HashMap<Value, usize>,
}

/// Makes all changes. Inputs come first: sizes are read off them.
pub(super) fn rewrite(
    graph: &mut Graph,
    edits: &[Reasoned],
    maker: &mut Maker,
) -> Result<Vec<Change>> {
    let uses = graph.uses().into_iter().map(|(value, uses)| (value, uses.len())).collect();
    let before = Before { facts: infer(graph)?, uses };
    let mut changes = Vec::new();
    let (inputs, others): (Vec<&Reasoned>, Vec<&Reasoned>) =
        edits.iter().partition(|(edit, _)| matches!(edit, Edit::Input { .. }));
    for (edit, why) in inputs.into_iter().chain(others) {
        let node = match edit {
            Edit::Input { node, .. }
            | Edit::Operand { node, .. }
            | Edit::Const { node, .. }
            | Edit::Prefix { node, .. } => *node,
        };
        let name = graph.node(node).name.clone();
        let why = why.clone();
        let change = |what, before, after| Change { node: name, what, before, after, why };
        match edit {
            Edit::Input { dims, .. } => {
                let (Op::Input(input) | Op::InputWithDefault(input)) = &mut graph.node_mut(node).op
                else {
                    continue;
                };
                let shape = input.dims.replace(dims.clone()).unwrap_or_default();
                changes.push(change("shape", show(&shape), show(dims)));
            }
            Edit::Operand { input, elements, .. } => {
                let list = before.facts[graph.node(node).inputs[*input]].elements.clone();
                let what = word(&graph.node(node).op, *input);
                maker.operand(graph, &before, node, *input, elements)?;
                changes.push(change(what, show(&list.unwrap_or_default()), show(elements)));
            }
            Edit::Const { dims, step, .. } => {
                let shape = before.facts[node.into()].dims.clone().unwrap_or_default();
                maker.constant(graph, node, dims, step.as_ref())?;
                changes.push(change("constant", show(&shape), show(dims)));
            }
            Edit::Prefix { sizes, .. } => {
                let shape = before.facts[node.into()].dims.clone().unwrap_or_default();
                maker.prefix(graph, node, sizes)?;
                changes.push(change("first rows", show(&shape), show(sizes)));
            }
        }
    }
    Ok(changes)
}

/// Targets of the named reshapes with one open extent become constants, with -1 in its place.
pub(super) fn shorten(graph: &mut Graph, reshapes: &[String]) -> Result<()> {
    let facts = infer(graph)?;
    let uses = graph.uses();
    for name in reshapes {
        let Some(id) = graph.find(name).filter(|&id| graph.node(id).op == Op::Reshape) else {
            continue;
        };
        let target = graph.node(id).inputs[1];
        let fact = &facts[target];
        let Some(elements) = &fact.elements else { continue };
        let open = elements.iter().filter(|element| element.as_known().is_none()).count();
        let counts = elements.iter().filter_map(Dim::as_known).all(|n| n > 0);
        let own = uses.get(&target).is_some_and(|uses| uses.len() == 1)
            && !graph.outputs.iter().any(|port| port.value == target);
        if open != 1 || !counts || !own {
            continue;
        }
        let values: Vec<i64> = elements.iter().map(|e| e.as_known().unwrap_or(-1)).collect();
        let dtype = fact.dtype.unwrap_or(DType::I32);
        let value = whole(name, dtype, Some(values.len()), &values)?;
        let node = graph.node_mut(target.node);
        node.op = Op::constant(value);
        node.inputs.clear();
    }
    Ok(())
}

/// What an operand is called.
fn word(op: &Op, input: usize) -> &'static str {
    match (op, input) {
        (Op::Reshape | Op::BroadcastTo, _) => "target",
        (Op::Fill, _) => "extents",
        (Op::Slice, _) => "size",
        (Op::StridedSlice(_), _) => "end",
        (Op::Range, _) => "limit",
        (Op::OneHot(_), _) => "depth",
        (Op::Tile, _) => "multiples",
        (Op::Binary(Binary::Mul), _) => "factor",
        _ => "operand",
    }
}

impl Maker {
    /// Gives an operand new entries, in its own node where nobody else reads that.
    fn operand(
        &mut self,
        graph: &mut Graph,
        before: &Before,
        reader: NodeId,
        input: usize,
        elements: &[Dim],
    ) -> Result<()> {
        let old = graph.node(reader).inputs[input];
        let dtype = before.facts[old].dtype.unwrap_or(DType::I32);
        let scalar = before.facts[old].rank() == Some(0);
        let name = format!("{}/{}", graph.node(reader).name, word(&graph.node(reader).op, input));
        let (op, inputs) = if scalar {
            (Op::Unary(Unary::Identity), vec![self.number(graph, &elements[0], dtype)?])
        } else {
            self.list(graph, &name, elements, dtype)?
        };
        let shared = before.uses.get(&old).copied() != Some(1)
            || self.owned.contains(&old)
            || graph.outputs.iter().any(|port| port.value == old)
            || graph.op(old).is_input()
            || graph.op(old).outputs() != 1;
        if shared {
            let made = graph.push_fresh(Node::new(name, op, inputs))?;
            graph.node_mut(reader).inputs[input] = made.into();
        } else {
            let node = graph.node_mut(old.node);
            node.op = op;
            node.inputs = inputs;
            node.control.clear();
        }
        Ok(())
    }

    /// A list of numbers: a constant, or put together at run time.
    fn list(
        &mut self,
        graph: &mut Graph,
        name: &str,
        list: &[Dim],
        dtype: DType,
    ) -> Result<(Op, Vec<Value>)> {
        let known: Option<Vec<i64>> = list.iter().map(Dim::as_known).collect();
        if let Some(known) = known {
            return Ok((Op::constant(whole(name, dtype, Some(list.len()), &known)?), vec![]));
        }
        let values: Result<Vec<Value>> =
            list.iter().map(|dim| self.number(graph, dim, dtype)).collect();
        Ok((Op::Pack(Pack { axis: 0 }), values?))
    }

    fn push_list(&mut self, graph: &mut Graph, name: &str, list: &[Dim]) -> Result<Value> {
        let (op, inputs) = self.list(graph, name, list, DType::I32)?;
        Ok(graph.push_fresh(Node::new(name, op, inputs))?.into())
    }

    /// A scalar.
    fn number(&mut self, graph: &mut Graph, dim: &Dim, dtype: DType) -> Result<Value> {
        if let Some(value) = self.numbers.get(&(dim.clone(), dtype)) {
            return Ok(*value);
        }
        let push = |graph: &mut Graph, name: &str, op: Op, inputs: Vec<Value>| {
            graph.push_fresh(Node::new(format!("reshape/{name}"), op, inputs)).map(Value::from)
        };
        let value = if let Some(n) = dim.as_known() {
            let name = if n < 0 { format!("minus_{}", n.unsigned_abs()) } else { n.to_string() };
            let value = whole(&name, dtype, None, &[n])?;
            push(graph, &format!("number/{name}"), Op::constant(value), vec![])?
        } else if dtype != DType::I32 {
            let narrow = self.number(graph, dim, DType::I32)?;
            push(graph, "cast", Op::Cast(Cast { to: dtype }), vec![narrow])?
        } else if let Some(symbol) = dim.as_symbol() {
            self.size(graph, symbol)?
        } else {
            let products: Vec<(i64, Vec<Symbol>)> =
                dim.products().map(|(factor, symbols)| (factor, symbols.to_vec())).collect();
            let mut sum: Option<Value> = None;
            for (factor, symbols) in products {
                let mut term = (factor != 1 || symbols.is_empty()).then_some(Dim::known(factor));
                let mut product: Option<Value> = None;
                let factors = symbols.into_iter().map(Dim::symbol);
                for part in factors.chain(term.take()) {
                    let part = self.number(graph, &part, dtype)?;
                    product = Some(match product {
                        None => part,
                        Some(before) => {
                            push(graph, "mul", Op::Binary(Binary::Mul), vec![before, part])?
                        }
                    });
                }
                sum = match (sum, product) {
                    (Some(a), Some(b)) => {
                        Some(push(graph, "add", Op::Binary(Binary::Add), vec![a, b])?)
                    }
                    (a, b) => a.or(b),
                };
            }
            sum.ok_or(Error::Reshape { name: dim.to_string(), reason: "is empty".to_owned() })?
        };
        self.owned.insert(value);
        self.numbers.insert((dim.clone(), dtype), value);
        Ok(value)
    }

    /// A size, read off the first input that has it.
    fn size(&mut self, graph: &mut Graph, symbol: &Symbol) -> Result<Value> {
        let wanted = Dim::symbol(symbol.clone());
        let place = graph.inputs.iter().find_map(|port| match graph.op(port.value) {
            Op::Input(input) | Op::InputWithDefault(input) => {
                let axis = input.dims.as_ref()?.iter().position(|dim| *dim == wanted)?;
                Some((port.value.node, axis))
            }
            _ => None,
        });
        let Some((input, axis)) = place else {
            return Err(Error::Reshape {
                name: symbol.to_string(),
                reason: "no input has this size as an extent".to_owned(),
            });
        };
        let shape = match self.shapes.get(&input) {
            Some(shape) => *shape,
            None => {
                let op = Op::Shape(ShapeOp { to: DType::I32 });
                let shape = graph.push_fresh(Node::new("reshape/shape", op, vec![input.into()]))?;
                self.shapes.insert(input, shape);
                shape
            }
        };
        let mut list = |what: &str, at: usize| -> Result<Value> {
            let name = format!("reshape/{symbol}/{what}");
            let value = whole(&name, DType::I32, Some(1), &[at as i64])?;
            Ok(graph.push_fresh(Node::new(name, Op::constant(value), vec![]))?.into())
        };
        let (begin, end, step) = (list("begin", axis)?, list("end", axis + 1)?, list("step", 1)?);
        let op = Op::StridedSlice(StridedSlice { shrink_axis_mask: 1, ..StridedSlice::default() });
        let inputs = vec![shape.into(), begin, end, step];
        Ok(graph.push_fresh(Node::new(format!("reshape/{symbol}"), op, inputs))?.into())
    }

    /// Gives a constant other extents.
    fn constant(
        &mut self,
        graph: &mut Graph,
        id: NodeId,
        dims: &[Dim],
        step: Option<&Dim>,
    ) -> Result<()> {
        let name = graph.node(id).name.clone();
        let Some(value) = graph.node(id).op.as_const().cloned() else {
            let reason = format!("is no constant and cannot take the shape {}", show(dims));
            return Err(Error::Reshape { name, reason });
        };
        let failed = |source| Error::Tensor { name: name.clone(), source };
        let (op, inputs) = match Pattern::of(&value) {
            Some(Pattern::Uniform) => {
                let width = value.byte_len() / value.elements().max(1);
                let first = value.bytes().map_err(failed)?.slice(..width);
                let scalar = Tensor::new(value.dtype(), Shape::from([]), first).map_err(failed)?;
                let scalar = Node::new(format!("{name}/value"), Op::constant(scalar), vec![]);
                let scalar = graph.push_fresh(scalar)?;
                let extents = self.push_list(graph, &format!("{name}/extents"), dims)?;
                (Op::Fill, vec![extents, scalar.into()])
            }
            Some(Pattern::Progression { axis, start, step: before }) => {
                let step = step.cloned().unwrap_or(Dim::known(before));
                let dtype = value.dtype();
                let count = self.number(graph, &dims[axis], dtype)?;
                let (zero, one) = (
                    self.number(graph, &Dim::known(0), dtype)?,
                    self.number(graph, &Dim::known(1), dtype)?,
                );
                let mut last = (Op::Range, vec![zero, count, one], "range");
                if !step.is(1) {
                    let by = self.number(graph, &step, dtype)?;
                    let range = push_last(graph, &name, last)?;
                    last = (Op::Binary(Binary::Mul), vec![range, by], "scaled");
                }
                if start != 0 {
                    let start = self.number(graph, &Dim::known(start), dtype)?;
                    let scaled = push_last(graph, &name, last)?;
                    last = (Op::Binary(Binary::Add), vec![scaled, start], "moved");
                }
                if dims.len() > 1 {
                    let mut along = vec![Dim::known(1); dims.len()];
                    along[axis] = Dim::known(-1);
                    let along = self.push_list(graph, &format!("{name}/along"), &along)?;
                    let before = push_last(graph, &name, last)?;
                    last = (Op::Reshape, vec![before, along], "row");
                }
                if dims.iter().enumerate().any(|(i, dim)| i != axis && !dim.is(1)) {
                    let extents = self.push_list(graph, &format!("{name}/extents"), dims)?;
                    let row = push_last(graph, &name, last)?;
                    last = (Op::BroadcastTo, vec![row, extents], "rows");
                }
                (last.0, last.1)
            }
            Some(Pattern::Repeats(repeats)) => {
                let mut part = value.clone();
                for (axis, dim) in dims.iter().enumerate() {
                    let grows = dim.as_known() != Some(value.shape()[axis] as i64);
                    if grows && repeats[axis] {
                        part = first_along(&part, axis).map_err(failed)?;
                    }
                }
                let part = Node::new(format!("{name}/part"), Op::constant(part), vec![]);
                let part = graph.push_fresh(part)?;
                let extents = self.push_list(graph, &format!("{name}/extents"), dims)?;
                (Op::BroadcastTo, vec![part.into(), extents])
            }
            None => {
                let reason = "is empty and cannot grow".to_owned();
                return Err(Error::Reshape { name, reason });
            }
        };
        let node = graph.node_mut(id);
        node.op = op;
        node.inputs = inputs;
        node.control.clear();
        Ok(())
    }

    /// Lets everyone who reads a weight read its first rows only. They are taken after the node
    /// that reads the variable, as TF1's code does it.
    fn prefix(&mut self, graph: &mut Graph, weight: NodeId, sizes: &[Dim]) -> Result<()> {
        let uses = graph.uses();
        let mut id = weight;
        while let Some([(reader, _)]) = uses.get(&id.into()).map(Vec::as_slice)
            && matches!(graph.node(*reader).op, Op::Unary(Unary::Identity) | Op::ReadVariable(_))
        {
            id = *reader;
        }
        let name = graph.node(id).name.clone();
        let begin = vec![Dim::known(0); sizes.len()];
        let begin = self.push_list(graph, &format!("{name}/first_rows/begin"), &begin)?;
        let size = self.push_list(graph, &format!("{name}/first_rows/size"), sizes)?;
        let slice =
            Node::new(format!("{name}/first_rows"), Op::Slice, vec![id.into(), begin, size]);
        let slice = graph.push_fresh(slice)?;
        graph.replace_uses(id.into(), slice.into());
        graph.node_mut(slice).inputs[0] = id.into();
        Ok(())
    }
}

/// Adds what would have been the last node of a chain, because there is one more.
fn push_last(
    graph: &mut Graph,
    name: &str,
    (op, inputs, what): (Op, Vec<Value>, &str),
) -> Result<Value> {
    Ok(graph.push_fresh(Node::new(format!("{name}/{what}"), op, inputs))?.into())
}

/// Whole numbers as a scalar or a list.
fn whole(name: &str, dtype: DType, count: Option<usize>, values: &[i64]) -> Result<Tensor> {
    let shape = Shape::from(count.into_iter().collect::<Vec<_>>());
    let made = match dtype {
        DType::I64 => Tensor::from_vec(shape, values.to_vec()),
        _ => {
            let narrow: Option<Vec<i32>> = values.iter().map(|&v| i32::try_from(v).ok()).collect();
            let Some(narrow) = narrow else {
                let reason = format!("{values:?} is more than 32 bits hold");
                return Err(Error::Reshape { name: name.to_owned(), reason });
            };
            Tensor::from_vec(shape, narrow)
        }
    };
    made.map_err(|source| Error::Tensor { name: name.to_owned(), source })
}

/// The part at index 0 of an axis, which stays with extent 1.
fn first_along(value: &Tensor, axis: usize) -> std::result::Result<Tensor, frazil_tensor::Error> {
    let mut dims: Vec<usize> = value.shape().iter().copied().collect();
    let width = value.byte_len() / value.elements().max(1);
    let inner = dims[axis + 1..].iter().product::<usize>() * width;
    let bytes = value.bytes()?;
    let kept: Vec<u8> =
        bytes.chunks(inner * dims[axis]).flat_map(|block| block[..inner].iter().copied()).collect();
    dims[axis] = 1;
    Tensor::new(value.dtype(), Shape::from(dims), kept)
}
