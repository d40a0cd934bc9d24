//! What lowering must know of a graph, its weights and its operations.

use std::collections::{HashMap, HashSet};

use frazil_graph::op::{GeluForm, Unary};
use frazil_graph::{Dim, Graph, NodeId, Op, Symbol, Value};
use frazil_kernels::gemm::Activation;
use frazil_tensor::Tensor;

use crate::execution::run_node;
use crate::{Error, Result};

/// An error if a weight has something that is no number.
pub(super) fn refuse_nan(graph: &Graph, id: NodeId) -> Result<()> {
    let node = graph.node(id);
    let Some(values) = node.op.as_const().and_then(|value| value.values::<f32>().ok()) else {
        return Ok(());
    };
    // In pieces without an exit on the way, which the compiler turns into vectors.
    let any = |piece: &[f32]| piece.iter().fold(false, |found, x| found | x.is_nan());
    match values.chunks(4096).position(any) {
        None => {
            // It is read again when it is packed, one weight at a time.
            node.op.as_const().into_iter().for_each(Tensor::release);
            Ok(())
        }
        Some(piece) => {
            let at = values[piece * 4096..].iter().position(|x| x.is_nan()).unwrap_or(0);
            Err(Error::NotANumber { name: node.name.clone(), at: piece * 4096 + at })
        }
    }
}

/// The value of a node that depends on constants only, unless they are kept elsewhere.
pub(super) fn compute_constant(
    graph: &Graph,
    id: NodeId,
    constants: &mut HashMap<Value, Tensor>,
) -> Result<()> {
    let node = graph.node(id);
    let elsewhere = |value: &Value| !constants.contains_key(value);
    if matches!(node.op, Op::Variable(_)) || node.inputs.iter().any(elsewhere) {
        return Ok(());
    }
    let outputs = run_node(graph, id, constants)?;
    for (port, tensor) in outputs.into_iter().enumerate() {
        constants.insert(Value { node: id, port: port as u32 }, tensor);
    }
    Ok(())
}

/// Symbols whose size is known when steps begin: those of the inputs, and the packed rows.
pub(super) fn known_symbols(graph: &Graph, needed: &HashSet<NodeId>) -> HashSet<Symbol> {
    let mut symbols = HashSet::from([Symbol::rows()]);
    for port in &graph.inputs {
        if let Op::Input(input) | Op::InputWithDefault(input) = graph.op(port.value)
            && needed.contains(&port.value.node)
        {
            let single = input.dims.iter().flatten().filter_map(Dim::as_symbol);
            symbols.extend(single.cloned());
        }
    }
    symbols
}

/// Weights live in the program now; the graph keeps its nodes for plain steps and messages.
pub(super) fn without_constants(mut graph: Graph) -> Graph {
    for id in graph.ids() {
        if let Op::Const(op) = &mut graph.node_mut(id).op {
            op.value = Tensor::from_vec([0], Vec::<f32>::new()).expect("nothing fits nothing");
        }
    }
    graph
}

/// The activation that an operation is, if a product can apply it.
pub(super) fn activation(op: &Op) -> Option<Activation> {
    match op {
        Op::Gelu(gelu) if gelu.form == GeluForm::Tanh => Some(Activation::GeluTanh),
        Op::Gelu(_) => Some(Activation::GeluErf),
        Op::Unary(Unary::Tanh) => Some(Activation::Tanh),
        Op::Unary(Unary::Relu) => Some(Activation::Relu),
        _ => None,
    }
}

/// Numbers from one row to the next: an odd number of cache lines, so that rows do not fall on
/// the same sets of a cache; narrow rows stay as they are.
pub(super) fn padded(width: usize) -> usize {
    if width < 64 {
        return width;
    }
    let lines = width.div_ceil(16);
    (lines | 1) * 16
}
