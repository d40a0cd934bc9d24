//! Folding: what follows from the extents alone becomes constant.

use frazil_tensor::{DType, Shape, Tensor};

use super::Report;
use crate::op::Op;
use crate::{Fact, Graph, NodeId, Result, Value, infer};

/// Replaces by constants, under their own names, the nodes whose elements are known before
/// anything runs (shape arithmetic on known extents), and gives a `Reshape` whose target has one
/// symbolic extent a constant target with -1 in its place. Then drops what no output needs.
///
/// Nodes that only large tensors know the value of are left alone: folding never makes a graph
/// larger.
pub fn fold(graph: &mut Graph) -> Result<Report> {
    let mut report = Report::default();
    let facts = infer(graph)?;
    for id in graph.ids() {
        let node = graph.node(id);
        match &node.op {
            Op::Const(_)
            | Op::Input(_)
            | Op::InputWithDefault(_)
            | Op::Variable(_)
            | Op::Foreign(_) => {}
            Op::Reshape => fold_target(graph, id, &facts, &mut report)?,
            op if op.outputs() == 1 => {
                let fact = &facts[Value::from(id)];
                if let Some(value) = known(fact) {
                    let name = node.name.clone();
                    report.did("constant", name, format!("{} is {fact}", node.op));
                    let node = graph.node_mut(id);
                    node.op = Op::constant(value);
                    node.inputs.clear();
                    node.control.clear();
                }
            }
            _ => {}
        }
    }
    if !graph.outputs.is_empty() {
        graph.prune();
    }
    debug_assert!(graph.check().is_ok(), "{:?}", graph.check());
    Ok(report)
}

/// The value, if all elements are numbers.
fn known(fact: &Fact) -> Option<Tensor> {
    let elements = fact.known_elements()?;
    let dims: Option<Vec<usize>> =
        fact.known_dims()?.into_iter().map(|dim| usize::try_from(dim).ok()).collect();
    integers(fact.dtype?, Shape::from(dims?), &elements)
}

fn integers(dtype: DType, shape: Shape, elements: &[i64]) -> Option<Tensor> {
    match dtype {
        DType::I32 => {
            let values: Option<Vec<i32>> =
                elements.iter().map(|&v| i32::try_from(v).ok()).collect();
            Tensor::from_vec(shape, values?).ok()
        }
        DType::I64 => Tensor::from_vec(shape, elements.to_vec()).ok(),
        DType::Bool => {
            let values: Vec<u8> = elements.iter().map(|&v| u8::from(v != 0)).collect();
            Tensor::new(DType::Bool, shape, values).ok()
        }
        _ => None,
    }
}

/// A reshape's target with at most one symbolic extent is a constant with -1.
fn fold_target(
    graph: &mut Graph,
    id: NodeId,
    facts: &crate::Facts,
    report: &mut Report,
) -> Result<()> {
    let target = graph.node(id).inputs[1];
    if graph.op(target).as_const().is_some() {
        return Ok(());
    }
    let fact = &facts[target];
    let Some(elements) = &fact.elements else { return Ok(()) };
    let open = elements.iter().filter(|element| element.as_known().is_none()).count();
    let minus = elements.iter().filter(|element| element.is(-1)).count();
    // With a 0 among the others, -1 has no meaning.
    let empty = elements.iter().any(|element| element.is(0));
    if open == 0 || open + minus > 1 || empty {
        return Ok(());
    }
    let values: Vec<i64> = elements.iter().map(|e| e.as_known().unwrap_or(-1)).collect();
    let Some(dtype) = fact.dtype else { return Ok(()) };
    let Some(value) = integers(dtype, Shape::from([values.len()]), &values) else { return Ok(()) };
    let node = graph.node(id);
    report.did("target", node.name.clone(), format!("takes the shape {values:?}"));
    let name = format!("{}/folded_shape", node.name);
    let constant = graph.push_fresh(crate::Node::new(name, Op::constant(value), vec![]))?;
    graph.node_mut(id).inputs[1] = constant.into();
    Ok(())
}
