//! Freezing: variables become constants.

use frazil_tensor::{TensorStore, nearest};

use super::Report;
use crate::op::{Op, Unary};
use crate::{Error, Graph, Result};

/// Gives every variable its value out of `weights`, under its own name.
///
/// A variable that is missing there, or of another type or shape, is an error: nothing is filled
/// in. Cut first: the optimizer's variables are variables too.
pub fn freeze(graph: &mut Graph, weights: &dyn TensorStore) -> Result<Report> {
    let mut report = Report::default();
    for id in graph.ids() {
        let node = graph.node(id);
        let op = match &node.op {
            Op::Variable(variable) => {
                let name = node.name.as_str();
                let Some(info) = weights.info(name) else {
                    let names = weights.infos().iter().map(|info| info.name.as_str());
                    let near = nearest(name, names);
                    return Err(Error::MissingVariable { name: name.to_owned(), near });
                };
                let shape_fits = variable.shape.as_ref().is_none_or(|shape| *shape == info.shape);
                if info.dtype != variable.dtype || !shape_fits {
                    let shape = variable.shape.as_ref().map_or("?".to_owned(), ToString::to_string);
                    return Err(Error::VariableMismatch {
                        name: name.to_owned(),
                        expected: format!("{} {shape}", variable.dtype),
                        found: format!("{} {}", info.dtype, info.shape),
                    });
                }
                let value = weights
                    .tensor(name)
                    .map_err(|source| Error::Store { name: name.to_owned(), source })?;
                // A store that checks sums has read it; who needs it reads it again.
                value.release();
                report.did("variable", name, format!("{} {}", info.dtype, info.shape));
                Op::constant(value)
            }
            Op::ReadVariable(_) => Op::Unary(Unary::Identity),
            _ => continue,
        };
        graph.node_mut(id).op = op;
    }
    debug_assert!(graph.check().is_ok(), "{:?}", graph.check());
    Ok(report)
}
