//! Rows that nobody needs are not computed.
//!
//! After raising, what lies between attentions works on each row by itself. [`pack_rows`] drops
//! the rows of padding once, behind the inputs, and puts zeros in their place where the rest of the
//! graph wants all positions. [`demand_rows`] goes on from there: of a value of which only the
//! first row of each sequence is read, only those rows are computed.
//!
//! `region` finds what can be packed, `pack` rewrites it, `padding` proves that nobody counts on
//! what stood in the place of padding, `demand` moves the choice of rows up.

mod demand;
mod pack;
mod padding;
mod region;
#[cfg(test)]
mod tests;

use frazil_tensor::{DType, Tensor};

pub use demand::demand_rows;
pub use pack::pack_rows;

use crate::op::Op;
use crate::{Error, Graph, Node, Result, Value};

/// The rules' names in reports.
const PACK: &str = "pack_rows";
const DEMAND: &str = "demand_rows";

/// A new node, under the name or the next free one.
fn node(graph: &mut Graph, name: String, op: Op, inputs: Vec<Value>) -> Result<Value> {
    Ok(graph.push_fresh(Node::new(name, op, inputs))?.into())
}

/// A list of integers as a constant: `int64` if that is the type, else `int32`.
fn list(graph: &mut Graph, name: String, dtype: DType, values: &[i32]) -> Result<Value> {
    let value = match dtype {
        DType::I64 => {
            let wide: Vec<i64> = values.iter().map(|&value| value.into()).collect();
            Tensor::from_vec([values.len()], wide)
        }
        _ => Tensor::from_vec([values.len()], values.to_vec()),
    };
    constant(graph, name, value)
}

/// An integer as an `int32` constant.
fn integer(graph: &mut Graph, name: String, value: i32) -> Result<Value> {
    constant(graph, name, Tensor::from_vec([], vec![value]))
}

fn constant(
    graph: &mut Graph,
    name: String,
    value: frazil_tensor::Result<Tensor>,
) -> Result<Value> {
    let value = value.map_err(|source| Error::Tensor { name: name.clone(), source })?;
    node(graph, name, Op::constant(value), vec![])
}

/// `name` (Op), for sentences.
fn show(graph: &Graph, value: Value) -> String {
    format!("`{}` ({})", graph.value_name(value), graph.op(value))
}
