//! TensorFlow 1.15's `convert_variables_to_constants`, node for node.
//!
//! Works on the messages themselves, so that all that is not frozen comes out as it went in, down
//! to the order of nodes. What the original gets wrong is put right: a resource variable that is
//! to stay one is still read by `ReadVariableOp`, and one that has no `Read/ReadVariableOp` node
//! beside it is frozen too.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use frazil_tensor::{DType, Shape, Tensor, TensorStore, nearest};
use frazil_tf::proto::attr_value::Value;
use frazil_tf::proto::{AttrValue, GraphDef, NodeDef};
use frazil_tf::{dtype, tensor_proto};

use crate::tf::import::split;
use crate::{Error, Result};

/// What is frozen, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreezeOptions {
    /// The nodes whose values are wanted, without ports.
    pub outputs: Vec<String>,
    /// If given, only these variables are frozen.
    pub only: Option<BTreeSet<String>>,
    /// These variables stay variables.
    pub except: BTreeSet<String>,
}

/// A frozen graph.
#[derive(Clone, Debug)]
pub struct Frozen {
    /// The graph, with the whole library and without a version, as TensorFlow writes it.
    pub def: GraphDef,
    /// The variables that became constants, in the graph's order.
    pub variables: Vec<String>,
}

/// Keeps what the outputs need and gives each variable among it its value out of `weights`.
pub fn freeze(
    def: &GraphDef,
    weights: &dyn TensorStore,
    options: &FreezeOptions,
) -> Result<Frozen> {
    let needed = extract(def, &options.outputs)?;
    let nodes: HashMap<&str, &NodeDef> =
        needed.iter().map(|node| (node.name.as_str(), *node)).collect();
    let frozen: BTreeSet<&str> = needed
        .iter()
        .filter(|node| is_variable(node) && options.freezes(&node.name))
        .map(|node| node.name.as_str())
        .collect();
    let handles = Handles::find(&needed, &nodes, &frozen)?;
    // All values are looked up before the first one is read.
    for node in needed.iter().filter(|node| frozen.contains(node.name.as_str())) {
        check(node, weights)?;
    }
    let mut variables = Vec::with_capacity(frozen.len());
    let mut written = Vec::with_capacity(needed.len());
    for node in needed {
        let name = node.name.as_str();
        if frozen.contains(name) {
            let value = weights
                .tensor(name)
                .map_err(|source| Error::Store { name: name.to_owned(), source })?;
            written.push(constant(name, attr(node, "dtype"), &value));
            variables.push(name.to_owned());
        } else if let Some(dtype) = handles.types.get(name) {
            written.push(retyped(node, dtype));
        } else if handles.readers.contains(name) && node.op == "ReadVariableOp" {
            written.push(identity(node));
        } else if handles.readers.contains(name) {
            let [axis, gather] = gather(node)?;
            written.extend([axis, gather]);
        } else {
            written.push(node.clone());
        }
    }
    let library = Some(def.library.clone().unwrap_or_default());
    Ok(Frozen { def: GraphDef { node: written, library, ..GraphDef::default() }, variables })
}

impl FreezeOptions {
    fn freezes(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(name)) && !self.except.contains(name)
    }
}

fn is_variable(node: &NodeDef) -> bool {
    matches!(node.op.as_str(), "Variable" | "VariableV2" | "VarHandleOp")
}

/// What the outputs need, in the graph's order: inputs, control inputs, and the nodes that one is
/// to lie beside.
fn extract<'a>(def: &'a GraphDef, outputs: &[String]) -> Result<Vec<&'a NodeDef>> {
    let mut places: HashMap<&str, usize> = HashMap::with_capacity(def.node.len());
    for (place, node) in def.node.iter().enumerate() {
        if places.insert(&node.name, place).is_some() {
            return Err(Error::DuplicateNode { node: node.name.clone() });
        }
    }
    let near = |name: &str| nearest(name, def.node.iter().map(|node| node.name.as_str()));
    let mut stack = Vec::new();
    for output in outputs {
        let Some(&place) = places.get(output.as_str()) else {
            let name = output.split(':').next().unwrap_or_default();
            return Err(Error::NotInGraph { name: output.clone(), near: near(name) });
        };
        stack.push(place);
    }
    let mut keep = vec![false; def.node.len()];
    while let Some(place) = stack.pop() {
        if std::mem::replace(&mut keep[place], true) {
            continue;
        }
        let node = &def.node[place];
        let beside = colocated(node).map(|name| (name, name.to_owned()));
        let inputs = node.input.iter().map(|input| {
            let name = split(input).map_or(input.as_str(), |(name, _)| name);
            (name, input.clone())
        });
        for (name, input) in inputs.chain(beside) {
            let Some(&source) = places.get(name) else {
                let node = node.name.clone();
                return Err(Error::UnknownInput { node, input, near: near(name) });
            };
            stack.push(source);
        }
    }
    Ok(def.node.iter().zip(keep).filter(|(_, keep)| *keep).map(|(node, _)| node).collect())
}

/// The nodes that this one is to lie beside.
fn colocated(node: &NodeDef) -> impl Iterator<Item = &str> {
    let list = match node.attr.get("_class").and_then(|attr| attr.value.as_ref()) {
        Some(Value::List(list)) => list.s.as_slice(),
        _ => &[],
    };
    list.iter().filter_map(|name| std::str::from_utf8(name).ok()?.strip_prefix("loc:@"))
}

/// Where the handles of resource variables go.
#[derive(Default)]
struct Handles<'a> {
    /// Nodes that pass on a handle whose variable is frozen, with the type that they pass on now.
    types: BTreeMap<&'a str, AttrValue>,
    /// Nodes that read a frozen variable by its handle.
    readers: BTreeSet<&'a str>,
}

impl<'a> Handles<'a> {
    fn find(
        needed: &[&'a NodeDef],
        nodes: &HashMap<&'a str, &'a NodeDef>,
        frozen: &BTreeSet<&str>,
    ) -> Result<Self> {
        let mut handles = Self::default();
        for reader in needed {
            if !matches!(reader.op.as_str(), "ReadVariableOp" | "ResourceGather") {
                continue;
            }
            let (on_the_way, variables) = follow(reader, nodes)?;
            let is_frozen = variables.iter().filter(|name| frozen.contains(**name)).count();
            if is_frozen == 0 && !variables.is_empty() {
                continue;
            }
            if is_frozen < variables.len() {
                let reason = "it reads both variables that are frozen and such that stay";
                return Err(Error::Freeze { node: reader.name.clone(), reason: reason.to_owned() });
            }
            handles.readers.insert(&reader.name);
            for name in on_the_way {
                handles.types.entry(name).or_insert_with(|| attr(reader, "dtype"));
            }
        }
        Ok(handles)
    }
}

/// Between a reader and its variables lie no more nodes.
const MOST_STEPS: usize = 1000;

/// From a reader up to the variables: the nodes on the way, and the variables.
fn follow<'a>(
    reader: &NodeDef,
    nodes: &HashMap<&'a str, &'a NodeDef>,
) -> Result<(BTreeSet<&'a str>, BTreeSet<&'a str>)> {
    let (mut on_the_way, mut variables) = (BTreeSet::new(), BTreeSet::new());
    let source = |node: &NodeDef, i: usize| -> Option<&'a NodeDef> {
        let (name, _) = split(node.input.get(i)?)?;
        nodes.get(name).copied()
    };
    let mut stack: Vec<Option<&NodeDef>> = vec![source(reader, 0)];
    while let Some(next) = stack.pop() {
        match next {
            Some(node) if node.op == "VarHandleOp" => {
                variables.insert(node.name.as_str());
            }
            Some(node) if passes_on(&node.op) && on_the_way.len() < MOST_STEPS => {
                if on_the_way.insert(node.name.as_str()) {
                    stack.push(source(node, 0));
                    if node.op == "Merge" {
                        stack.push(source(node, 1));
                    }
                }
            }
            _ => {
                return Err(Error::Freeze {
                    node: reader.name.clone(),
                    reason: "Cannot find the variable that is an input to the ReadVariableOp."
                        .to_owned(),
                });
            }
        }
    }
    Ok((on_the_way, variables))
}

fn passes_on(op: &str) -> bool {
    matches!(op, "Switch" | "Enter" | "Exit" | "Identity" | "Merge" | "NextIteration")
}

/// That the weights have the variable, in its type and shape.
fn check(node: &NodeDef, weights: &dyn TensorStore) -> Result<()> {
    let name = node.name.as_str();
    let Some(info) = weights.info(name) else {
        let near = nearest(name, weights.infos().iter().map(|info| info.name.as_str()));
        return Err(frazil_graph::Error::MissingVariable { name: name.to_owned(), near }.into());
    };
    let wanted = match attr(node, "dtype").value {
        Some(Value::Type(number)) => dtype::from_proto(number).ok(),
        _ => None,
    };
    let shape: Option<Shape> = match attr(node, "shape").value {
        Some(Value::Shape(shape)) => tensor_proto::shape(&shape).ok(),
        _ => None,
    };
    // Variables of the first kind write `[]` where they do not know.
    let fits = shape
        .as_ref()
        .is_none_or(|shape| *shape == info.shape || shape.is_empty() && node.op == "Variable");
    if wanted == Some(info.dtype) && fits {
        return Ok(());
    }
    let name_of = |dtype: Option<DType>| {
        dtype.map_or("of no known type".to_owned(), |dtype| dtype.to_string())
    };
    let shape = shape.map_or("?".to_owned(), |shape| shape.to_string());
    Err(frazil_graph::Error::VariableMismatch {
        name: name.to_owned(),
        expected: format!("{} {shape}", name_of(wanted)),
        found: format!("{} {}", info.dtype, info.shape),
    }
    .into())
}

fn attr(node: &NodeDef, name: &str) -> AttrValue {
    node.attr.get(name).cloned().unwrap_or_default()
}

fn constant(name: &str, dtype: AttrValue, value: &Tensor) -> NodeDef {
    let value = Value::Tensor(Box::new(tensor_proto::from_tensor(value)));
    let value = AttrValue { value: Some(value) };
    NodeDef {
        name: name.to_owned(),
        op: "Const".to_owned(),
        attr: [("dtype".to_owned(), dtype), ("value".to_owned(), value)].into(),
        ..NodeDef::default()
    }
}

/// A node that passed on a handle and passes on the value now. The shapes that were declared
/// are those of the handle.
fn retyped(node: &NodeDef, dtype: &AttrValue) -> NodeDef {
    let mut copy = NodeDef {
        name: node.name.clone(),
        op: node.op.clone(),
        input: node.input.clone(),
        attr: node.attr.clone(),
        ..NodeDef::default()
    };
    copy.attr.remove("_output_shapes");
    copy.attr.insert("T".to_owned(), dtype.clone());
    copy
}

fn identity(node: &NodeDef) -> NodeDef {
    let mut copy = NodeDef {
        name: node.name.clone(),
        op: "Identity".to_owned(),
        input: node.input.iter().take(1).cloned().collect(),
        ..NodeDef::default()
    };
    copy.attr.insert("T".to_owned(), attr(node, "dtype"));
    keep_class(node, &mut copy);
    copy
}

fn gather(node: &NodeDef) -> Result<[NodeDef; 2]> {
    let indices = attr(node, "Tindices");
    if !matches!(attr(node, "batch_dims").value, None | Some(Value::I(0))) {
        return Err(Error::Freeze {
            node: node.name.clone(),
            reason: "batch_dims != 0 is not supported by freeze_graph.".to_owned(),
        });
    }
    let zero = match indices.value {
        Some(Value::Type(number)) if matches!(dtype::from_proto(number), Ok(DType::I64)) => {
            Tensor::from_vec([], vec![0i64])?
        }
        _ => Tensor::from_vec([], vec![0i32])?,
    };
    let axis = constant(&format!("{}/axis", node.name), indices.clone(), &zero);
    let mut copy = NodeDef {
        name: node.name.clone(),
        op: "GatherV2".to_owned(),
        input: node.input.iter().take(2).cloned().collect(),
        ..NodeDef::default()
    };
    copy.input.push(axis.name.clone());
    copy.attr.insert("Tparams".to_owned(), attr(node, "dtype"));
    copy.attr.insert("Tindices".to_owned(), indices.clone());
    copy.attr.insert("Taxis".to_owned(), indices);
    keep_class(node, &mut copy);
    Ok([axis, copy])
}

fn keep_class(from: &NodeDef, to: &mut NodeDef) {
    if let Some(class) = from.attr.get("_class") {
        to.attr.insert("_class".to_owned(), class.clone());
    }
}
