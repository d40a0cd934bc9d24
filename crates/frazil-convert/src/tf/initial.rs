//! The values that initializers give to variables, as far as they are the same in every run:
//! constants, fills, copies of other variables. Random ones are refused.

use std::collections::{BTreeMap, HashMap};

use frazil_tensor::{Shape, Tensor, TensorStore};
use frazil_tf::graph_def;
use frazil_tf::proto::{GraphDef, NodeDef};
use frazil_tf::tensor_proto::EXPANSION_LIMIT;

use crate::tf::saver::Nodes;
use crate::{Error, Result};

/// Deeper than any initial value is computed.
const DEEPEST: usize = 100;

/// Runs the named nodes: the variables that they assign, with their new values. `weights` has
/// the values of the variables before that.
pub fn initialize(
    def: &GraphDef,
    names: &[String],
    weights: &dyn TensorStore,
) -> Result<BTreeMap<String, Tensor>> {
    let nodes = Nodes::new(def);
    if let Some(name) = names.iter().find(|name| nodes.get(name).is_none()) {
        let near = frazil_tensor::nearest(name, def.node.iter().map(|node| node.name.as_str()));
        return Err(frazil_graph::Error::UnknownNode { name: name.clone(), near }.into());
    }
    let mut assigned: HashMap<&str, &NodeDef> = HashMap::new();
    for assign in nodes.assignments(names.iter().map(String::as_str)) {
        let Some(variable) = nodes.variable(assign, 0) else {
            return Err(refused(assign, "it assigns to something else than a variable"));
        };
        assigned.insert(&variable.name, assign);
    }
    let run = Run { nodes, assigned, weights };
    let mut values = BTreeMap::new();
    for (&variable, &assign) in &run.assigned {
        let (node, _) = run.nodes.source(assign, 1).ok_or_else(|| refused(assign, "no value"))?;
        values.insert(variable.to_owned(), run.value(node, 0)?);
    }
    Ok(values)
}

struct Run<'a> {
    nodes: Nodes<'a>,
    /// The assignment of each variable.
    assigned: HashMap<&'a str, &'a NodeDef>,
    weights: &'a dyn TensorStore,
}

impl Run<'_> {
    fn value(&self, node: &NodeDef, depth: usize) -> Result<Tensor> {
        if depth > DEEPEST {
            return Err(refused(node, "its value is computed in too many steps"));
        }
        let operand = |i: usize| {
            let (source, _) =
                self.nodes.source(node, i).ok_or_else(|| refused(node, "an operand is missing"))?;
            self.value(source, depth + 1)
        };
        match node.op.as_str() {
            "Const" => graph_def::const_tensor(node)
                .map_err(|source| Error::Value { node: node.name.clone(), source }),
            "Identity" | "ReadVariableOp" | "Snapshot" => operand(0),
            "Variable" | "VariableV2" | "VarHandleOp" => match self.assigned.get(&*node.name) {
                Some(assign) => {
                    let value = self.nodes.source(assign, 1);
                    let (value, _) = value.ok_or_else(|| refused(assign, "no value"))?;
                    self.value(value, depth + 1)
                }
                None => self
                    .weights
                    .tensor(&node.name)
                    .map_err(|source| Error::Store { name: node.name.clone(), source }),
            },
            "Fill" => {
                let dims = operand(0)?.to_f64()?;
                fill(
                    node,
                    dims.iter().map(|&d| d as usize).collect::<Vec<_>>().into(),
                    &operand(1)?,
                )
            }
            "ZerosLike" => {
                let like = operand(0)?;
                let size = like.dtype().size().ok_or_else(|| refused(node, "it is of strings"))?;
                let zero = Tensor::new(like.dtype(), Shape::scalar(), vec![0u8; size])?;
                fill(node, like.shape().clone(), &zero)
            }
            op => Err(refused(
                node,
                &format!(
                    "what {op} computes is not the same in every run, or \
                 not known here"
                ),
            )),
        }
    }
}

fn fill(node: &NodeDef, shape: Shape, value: &Tensor) -> Result<Tensor> {
    let bytes = value.bytes()?;
    let size = shape.elements().and_then(|n| n.checked_mul(bytes.len()));
    // A few bytes must not become gigabytes.
    match size.filter(|size| *size <= EXPANSION_LIMIT && value.elements() == 1) {
        Some(size) => {
            let data = bytes.repeat(size.checked_div(bytes.len()).unwrap_or(0));
            Ok(Tensor::new(value.dtype(), shape, data)?)
        }
        None => Err(refused(node, "it fills too large a tensor")),
    }
}

fn refused(node: &NodeDef, reason: &str) -> Error {
    Error::Initializer { node: node.name.clone(), op: node.op.clone(), reason: reason.to_owned() }
}
