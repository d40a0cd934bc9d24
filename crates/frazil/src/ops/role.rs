//! Which of a model's inputs are BERT's ids, mask and segments, whatever they are called.
//!
//! Graphs call them `Placeholder_1`, `IteratorGetNext:4`, `input_mask_1` or `attention_mask`; what
//! they are is seen by what the graph does with them: ids choose rows of a large table, segments of
//! a small one, and the mask is what is left of the same shape.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use frazil_graph::op::Unary;
use frazil_graph::{Dim, Facts, Graph, NodeId, Op, Port, Value, infer};
use frazil_runtime::{Error as RunError, Inputs};
use frazil_tensor::npy::Npz;
use frazil_tensor::{DType, Tensor, TensorStore, file};
use frazil_tf::sniff::{self, Content};
use serde::Serialize;

use crate::{Error, Result};

/// What an input is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Word ids, `[batch, seq]`.
    Ids,
    /// 1 for a word, 0 for padding, `[batch, seq]`.
    Mask,
    /// 0 for the first text, 1 for the second, `[batch, seq]`.
    Segments,
    /// Places in the sequence.
    Positions,
    /// Anything else.
    Other,
}

impl Role {
    /// What files call it.
    fn names(self) -> &'static [&'static str] {
        match self {
            Role::Ids => &["input_ids"],
            Role::Mask => &["input_mask", "attention_mask"],
            Role::Segments => &["segment_ids", "token_type_ids"],
            Role::Positions | Role::Other => &[],
        }
    }
}

/// An input and what the graph tells of it.
#[derive(Clone, Debug)]
pub struct InputRole {
    /// Its name.
    pub name: String,
    /// Its element type.
    pub dtype: DType,
    /// Its extents, if known.
    pub dims: Option<Vec<Dim>>,
    /// What it is for.
    pub role: Role,
    /// Elements must be below this: the table that they choose from has as many rows.
    pub limit: Option<usize>,
}

/// A table with more rows is one of words, not of segments.
const MOST_SEGMENTS: usize = 16;

/// The roles of all inputs, in the graph's order.
pub fn roles(graph: &Graph) -> Result<Vec<InputRole>> {
    let facts = infer(graph)?;
    let uses = graph.uses();
    let mut inputs: Vec<InputRole> = graph
        .inputs
        .iter()
        .filter_map(|port| {
            let (Op::Input(input) | Op::InputWithDefault(input)) = graph.op(port.value) else {
                return None;
            };
            Some(InputRole {
                name: port.name.clone(),
                dtype: input.dtype,
                dims: input.dims.clone(),
                role: Role::Other,
                limit: limit(graph, &facts, &uses, port),
            })
        })
        .collect();
    let ids = inputs
        .iter()
        .position(|input| input.limit.is_some_and(|limit| limit > MOST_SEGMENTS))
        .or_else(|| inputs.iter().position(|input| contains(&input.name, "input_ids")));
    let shape = ids.and_then(|ids| inputs[ids].dims.clone());
    for (i, input) in inputs.iter_mut().enumerate() {
        let like_ids = shape.is_some() && input.dims == shape;
        input.role = match input.limit {
            _ if Some(i) == ids => Role::Ids,
            _ if contains(&input.name, "position") => Role::Positions,
            Some(limit) if like_ids && limit <= MOST_SEGMENTS => Role::Segments,
            None if like_ids && contains(&input.name, "segment") => Role::Segments,
            None if like_ids && contains(&input.name, "type") => Role::Segments,
            None if like_ids => Role::Mask,
            _ => Role::Other,
        };
    }
    Ok(inputs)
}

fn contains(name: &str, part: &str) -> bool {
    name.to_ascii_lowercase().contains(part)
}

/// The rows of the smallest table that the elements of an input choose from.
fn limit(
    graph: &Graph,
    facts: &Facts,
    uses: &HashMap<Value, Vec<(NodeId, usize)>>,
    port: &Port,
) -> Option<usize> {
    let mut limit: Option<i64> = None;
    let mut seen = HashSet::new();
    let mut waiting = vec![port.value];
    while let Some(value) = waiting.pop() {
        for &(reader, place) in uses.get(&value).map_or(&[][..], Vec::as_slice) {
            let node = graph.node(reader);
            let rows = |input: usize, axis: i64| -> Option<i64> {
                let dims = facts[node.inputs[input]].dims.as_ref()?;
                let axis = if axis < 0 { axis + dims.len() as i64 } else { axis };
                dims.get(usize::try_from(axis).ok()?)?.as_known()
            };
            let number = |input: usize| facts[node.inputs[input]].known_elements()?.pop();
            let found = match (&node.op, place) {
                (Op::Gather(_), 1) => number(2).and_then(|axis| rows(0, axis)),
                (Op::OneHot(_), 0) => number(1),
                (Op::Embed, 0) => rows(2, 0),
                (Op::Embed, 1) => rows(3, 0),
                // The same numbers under another shape or type.
                (Op::Unary(Unary::Identity | Unary::StopGradient) | Op::Cast(_), 0)
                | (Op::Reshape | Op::ExpandDims | Op::Squeeze(_) | Op::Transpose, 0)
                | (Op::Slice | Op::StridedSlice(_), 0) => {
                    let next = Value::from(reader);
                    if seen.insert(next) {
                        waiting.push(next);
                    }
                    None
                }
                _ => None,
            };
            limit = match (limit, found) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
    }
    limit.and_then(|limit| usize::try_from(limit).ok())
}

/// A file of arrays for a model's inputs.
pub fn arrays(path: &Path) -> Result<Npz> {
    let content = sniff::of(&file::map(path)?);
    if content == Content::Zip {
        return Ok(Npz::open(path)?);
    }
    Err(Error::Usage {
        what: format!(
            "`{}` is {content}; this needs an `.npz` of the model's inputs",
            path.display()
        ),
        hint:
            "NumPy makes one: `numpy.savez('in.npz', input_ids=…, input_mask=…, segment_ids=…)`; \
               `frazil predict` takes texts"
                .into(),
    })
}

/// The tensors in a file for the inputs of a graph: by name, else by role. Notes say what was
/// matched by role and what was not used.
pub fn assign(
    inputs: &[InputRole],
    store: &dyn TensorStore,
    other_names: &BTreeMap<String, String>,
) -> Result<(Inputs, Vec<String>)> {
    let read = |name: &str| -> Result<Tensor> {
        store.tensor(name).map_err(|source| Error::Store { name: name.to_owned(), source })
    };
    let bare = |name: &str| name.strip_suffix(":0").unwrap_or(name).to_owned();
    let by_name = |wanted: &str| {
        let infos = store.infos().iter();
        infos.map(|info| info.name.as_str()).find(|name| bare(name) == bare(wanted))
    };
    let mut assigned = Inputs::new();
    let mut notes = Vec::new();
    let mut used = HashSet::new();
    for input in inputs {
        let named = by_name(&input.name)
            .or_else(|| other_names.get(&input.name).and_then(|name| by_name(name)));
        let found = named.or_else(|| input.role.names().iter().find_map(|name| by_name(name)));
        let Some(found) = found else { continue };
        if named.is_none() {
            notes.push(format!("`{found}` of the file is fed to input `{}`", input.name));
        }
        used.insert(found);
        assigned.insert(input.name.clone(), read(found)?);
    }
    let unused: Vec<&str> =
        store.infos().iter().map(|info| info.name.as_str()).filter(|n| !used.contains(n)).collect();
    if !unused.is_empty() {
        let list: Vec<String> = unused.iter().map(|name| format!("`{name}`")).collect();
        notes.push(format!("not used, as no input is called so: {}", list.join(", ")));
    }
    Ok((assigned, notes))
}

/// An error that says what the file has beside what is missing.
pub fn with_unused(error: RunError, store: &dyn TensorStore, given: &Inputs) -> RunError {
    match error {
        RunError::MissingInput { name, expected, .. } => {
            let infos = store.infos().iter();
            let unknown = infos
                .filter(|info| !given.contains_key(&info.name))
                .map(|info| info.name.clone())
                .collect();
            RunError::MissingInput { name, expected, unknown }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use frazil_graph::Node;
    use frazil_graph::op::{Cast, Gather, Input, OneHot};

    use super::*;

    #[test]
    fn roles_are_seen_by_use() {
        let mut graph = Graph::new();
        let mut push = |name: &str, op, inputs: Vec<Value>| -> Value {
            graph.push(Node::new(name, op, inputs)).unwrap().into()
        };
        let input = || {
            let dims = Some(vec![Dim::batch(), Dim::seq()]);
            Op::Input(Input { dtype: DType::I32, dims })
        };
        let int = |value: i32| Op::constant(Tensor::from_vec([], vec![value]).unwrap());
        let float = |value: f32| Op::constant(Tensor::from_vec([], vec![value]).unwrap());
        let mask = push("p0", input(), vec![]);
        let segments = push("p1", input(), vec![]);
        let ids = push("p2", input(), vec![]);
        let table = Tensor::from_vec([100, 2], vec![0f32; 200]).unwrap();
        let table = push("table", Op::constant(table), vec![]);
        let axis = push("axis", int(0), vec![]);
        let flat = push("flat", int(-1), vec![]);
        let flat_ids = push("flat_ids", Op::ExpandDims, vec![ids, flat]);
        push("rows", Op::Gather(Gather::default()), vec![table, flat_ids, axis]);
        let two = push("two", int(2), vec![]);
        let (on, off) = (push("on", float(1.0), vec![]), push("off", float(0.0), vec![]));
        push("hot", Op::OneHot(OneHot { axis: -1 }), vec![segments, two, on, off]);
        push("float", Op::Cast(Cast { to: DType::F32 }), vec![mask]);
        for (name, value) in [("p0", mask), ("p1", segments), ("p2", ids)] {
            graph.inputs.push(Port { name: name.into(), value });
        }
        let found: Vec<(Role, Option<usize>)> =
            roles(&graph).unwrap().iter().map(|input| (input.role, input.limit)).collect();
        let expected = [(Role::Mask, None), (Role::Segments, Some(2)), (Role::Ids, Some(100))];
        assert_eq!(found, expected);
    }
}
