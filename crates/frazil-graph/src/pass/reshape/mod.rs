//! Reshaping: another batch size, another sequence length, or both left open.
//!
//! [`reshape`] changes what the graph says of its sizes: a size that is open is fixed by putting
//! the number in; a size that is baked into the graph is first *generalised*: every constant that
//! stands for it is found and proven, and computed from the inputs from then on. [`set_shapes`] does
//! the same from the shapes of named inputs.
//!
//! What this leaves out: sizes other than batch and length, and changes of the weights: a position
//! table has as many rows as it has.

use super::{Report, fold};
use crate::dim::show;
use crate::op::Op;
use crate::{Dim, Error, Graph, NodeId, Result, Symbol, Value, infer};

/// What is wanted of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Size {
    /// As it is.
    #[default]
    Keep,
    /// Any number, known only when a batch arrives.
    Dynamic,
    /// This number, from now on.
    Known(usize),
}

/// The sizes that [`reshape`] gives a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reshape {
    /// Number of examples: axis 0 of the inputs.
    pub batch: Size,
    /// Number of positions: axis 1 of the token ids and of the inputs that go with them.
    pub seq: Size,
}

impl Reshape {
    /// Both sizes open.
    pub fn dynamic() -> Self {
        Self { batch: Size::Dynamic, seq: Size::Dynamic }
    }
}

/// Gives the graph the `wanted` sizes. The outputs must be set: what they do not need is dropped.
///
/// A graph that cannot have them is left as it was, and the error names the node.
pub fn reshape(graph: &mut Graph, wanted: &Reshape) -> Result<Report> {
    let mut changed = graph.clone();
    let mut report = Report::default();
    // The length first: while the batch is a number, nothing else can be mistaken for it.
    for (symbol, size) in [(Symbol::seq(), wanted.seq), (Symbol::batch(), wanted.batch)] {
        report.extend(resize(&mut changed, &symbol, size)?);
    }
    debug_assert!(changed.check().is_ok());
    *graph = changed;
    Ok(report)
}

/// One size of the graph.
fn resize(graph: &mut Graph, symbol: &Symbol, size: Size) -> Result<Report> {
    let baked = baked(graph, symbol);
    match (size, baked) {
        (Size::Keep, _) | (Size::Dynamic, None) => Ok(Report::default()),
        (Size::Known(n), Some(old)) if n as i64 == old => Ok(Report::default()),
        (Size::Known(n), None) => substitute(graph, symbol, n),
        (_, Some(old)) => Err(Error::Reshape {
            name: graph.inputs.first().map(|port| port.name.clone()).unwrap_or_default(),
            reason: format!("{symbol} is {old} throughout the graph"),
        }),
    }
}

/// The number that a size has in the graph's inputs, if it is one.
fn baked(graph: &Graph, symbol: &Symbol) -> Option<i64> {
    let axis = usize::from(*symbol == Symbol::seq());
    graph.inputs.iter().find_map(|port| match graph.op(port.value) {
        Op::Input(input) | Op::InputWithDefault(input) => {
            input.dims.as_ref()?.get(axis)?.as_known()
        }
        _ => None,
    })
}

/// Puts a number in place of an open size, and folds what is known then.
fn substitute(graph: &mut Graph, symbol: &Symbol, n: usize) -> Result<Report> {
    let mut report = Report::default();
    let by = Dim::from(n);
    let ports: Vec<Value> = graph.inputs.iter().map(|port| port.value).collect();
    for value in ports {
        let node = graph.node_mut(value.node);
        let (Op::Input(input) | Op::InputWithDefault(input)) = &mut node.op else { continue };
        let Some(dims) = &mut input.dims else { continue };
        let before = show(dims);
        for dim in dims.iter_mut() {
            *dim = dim.with(symbol, &by).unwrap_or_else(|| dim.clone());
        }
        let after = show(dims);
        if before != after {
            report.did("input", node.name.clone(), format!("{before} -> {after}"));
        }
    }
    fits(graph)?;
    report.extend(fold(graph)?);
    Ok(report)
}

/// Whether all shapes go together, with an error that names the weight that is too small.
fn fits(graph: &Graph) -> Result<()> {
    let Err(error) = infer(graph) else { return Ok(()) };
    let Error::Shape { name, op, reason } = &error else { return Err(error) };
    let table = graph.find(name).filter(|_| op == "Slice").map(|id| origin(graph, id));
    match table {
        Some(table) => Err(Error::Reshape {
            name: graph.node(table).name.clone(),
            reason: format!("`{name}` takes more of it than there is: {reason}"),
        }),
        None => Err(error),
    }
}

/// The weight that a node's first input comes from, through nodes that only hand it on.
fn origin(graph: &Graph, id: NodeId) -> NodeId {
    let mut at = id;
    while let Some(value) = graph.node(at).inputs.first() {
        at = value.node;
        if !matches!(graph.op(*value), Op::Unary(_) | Op::ReadVariable(_) | Op::Cast(_)) {
            break;
        }
    }
    at
}

/// Gives named inputs these shapes: symbols where an extent is to be open.
///
/// Where a new shape contradicts what the graph has baked in, the batch (axis 0) and the length
/// (axis 1) are generalised as [`reshape`] does it.
pub fn set_shapes(graph: &mut Graph, shapes: &[(String, Vec<Dim>)]) -> Result<Report> {
    let mut changed = graph.clone();
    let mut report = Report::default();
    for (name, dims) in shapes {
        let value = match graph.inputs.iter().find(|port| port.name == *name) {
            Some(port) => port.value,
            None => graph.find_value(name)?,
        };
        let node = changed.node_mut(value.node);
        let (Op::Input(input) | Op::InputWithDefault(input)) = &mut node.op else {
            return Err(Error::Reshape { name: name.clone(), reason: "is no input".to_owned() });
        };
        let before = input.dims.as_ref().map_or("?".to_owned(), |dims| show(dims));
        input.dims = Some(dims.clone());
        let after = show(dims);
        if before != after {
            report.did("input", name.clone(), format!("{before} -> {after}"));
        }
    }
    fits(&changed)?;
    *graph = changed;
    Ok(report)
}
