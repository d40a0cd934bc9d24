//! From what the user asked for to a cut of the graph.

use std::collections::BTreeMap;

use frazil_bert::Head;
use frazil_convert::tf;
use frazil_graph::op::{Input, Op};
use frazil_graph::pass::{self, NewInput, Report};
use frazil_graph::{Dim, Error as GraphError, Graph, Node, Port, Symbol, Value, infer};
use frazil_tensor::DType;

use super::{GraphOptions, Outputs};
use crate::ops::cut_spec::{CutSpec, DimSpec, FrozenValue, InputSpec, OutputSpec};
use crate::{Error, Result};

/// The nodes that google-research/bert's programs give their results, by head; of several, the
/// first that is there.
const KNOWN: &[(Head, &[&[&str]])] = &[
    (Head::Squad, &[&["unstack:0"], &["unstack:1"]]),
    (Head::Classifier, &[&["loss/output", "loss/Softmax"]]),
    (Head::Pretraining, &[&["cls/predictions/LogSoftmax"], &["cls/seq_relationship/LogSoftmax"]]),
    (Head::Mlm, &[&["cls/predictions/LogSoftmax"]]),
    (Head::Nsp, &[&["cls/seq_relationship/LogSoftmax"]]),
    (Head::Encoder, &[&["bert/pooler/dense/Tanh"]]),
];

pub(super) fn cut(
    graph: &mut Graph,
    options: &GraphOptions,
    signed: Vec<(String, Value)>,
    notes: &mut Vec<String>,
) -> Result<Report> {
    let spec = &options.cut;
    let outputs = match &spec.outputs {
        Some(outputs) => {
            outputs.iter().map(|output| named(graph, output)).collect::<Result<_>>()?
        }
        None => default_outputs(graph, options, signed, notes)?,
    };
    if let Some(inputs) = &spec.inputs {
        check_paths(graph, inputs, &outputs)?;
    }
    // What no output needs must not decide anything below.
    let mut report = pass::cut(graph, &[], &outputs)?;
    report.extend(pass::remove_dropout(graph)?);
    for (place, value) in &spec.frozen {
        let at = place_of(graph, &place.name, place.port, place.in_port)?;
        freeze_input(graph, at, &place.place(), None, None, value)?;
    }
    let mut inputs = Vec::new();
    let mut shapes = Vec::new();
    match &spec.inputs {
        Some(specs) => {
            for spec in specs {
                let value = place_of(graph, &spec.name, spec.port, spec.in_port)?;
                if let Some(frozen) = &spec.value {
                    let shape = spec.shape.as_deref();
                    freeze_input(graph, value, &spec.place(), spec.dtype, shape, frozen)?;
                    continue;
                }
                let name = port_name(graph, spec, value);
                if let Some(shape) = &spec.shape {
                    shapes.push((name.clone(), dims_of(&name, shape)));
                }
                inputs.push(NewInput { value, name, dtype: spec.dtype, dims: None });
            }
        }
        None => inputs.extend(iterator_outputs(graph)),
    }
    if let Some(shape) = &spec.only_shape {
        match graph.inputs.as_slice() {
            [only] => shapes.push((only.name.clone(), dims_of(&only.name, shape))),
            several => {
                return Err(Error::Usage {
                    what: format!("one shape is given, and the model has {} inputs", several.len()),
                    hint: "name the inputs with `--input`, in the order of the shapes".into(),
                });
            }
        }
    }
    let outputs = graph.outputs.clone();
    if !inputs.is_empty() {
        report.extend(pass::cut(graph, &inputs, &outputs)?);
    } else {
        graph.prune();
    }
    if let Some(batch) = spec.batch {
        for port in &graph.inputs {
            let Op::Input(Input { dims: Some(dims), .. }) = graph.op(port.value) else { continue };
            if dims.is_empty() {
                continue;
            }
            let mut dims = dims.clone();
            dims[0] = Dim::known(i64::try_from(batch).unwrap_or(i64::MAX));
            shapes.push((port.name.clone(), dims));
        }
    }
    if !shapes.is_empty() {
        report.extend(pass::set_shapes(graph, &shapes)?);
    }
    Ok(report)
}

/// Whether every place that is to be an input leads to an output.
fn check_paths(graph: &Graph, inputs: &[InputSpec], outputs: &[Port]) -> Result<()> {
    let needed = graph.ancestors(outputs.iter().map(|port| port.value.node));
    for input in inputs {
        let value = place_of(graph, &input.name, input.port, input.in_port)?;
        if !needed[value.node.index()] {
            let names: Vec<&str> = outputs.iter().map(|port| port.name.as_str()).collect();
            let (output, inputs) = (names.join("`, `"), format!("`{}`", input.place()));
            return Err(GraphError::NoPath { output, inputs }.into());
        }
    }
    Ok(())
}

/// The values that a model is known to be for.
pub(super) fn default_outputs(
    graph: &Graph,
    options: &GraphOptions,
    signed: Vec<(String, Value)>,
    notes: &mut Vec<String>,
) -> Result<Vec<Port>> {
    if !signed.is_empty() {
        return Ok(signed.into_iter().map(|(name, value)| Port { name, value }).collect());
    }
    // An inference graph says by itself what it is for: what nobody reads.
    let plain = |op: &Op| !matches!(op, Op::Foreign(_) | Op::Variable(_));
    let inference = graph.nodes().all(|(_, node)| plain(&node.op));
    if options.head.is_some() || options.outputs == Outputs::Bert && !inference {
        for (head, wanted) in KNOWN {
            if options.head.is_some_and(|asked| asked != *head) {
                continue;
            }
            let found: Option<Vec<Port>> = wanted
                .iter()
                .map(|names| {
                    let place = |name: &&&str| graph.find_value(name).ok();
                    let (name, value) =
                        names.iter().find_map(|name| Some((name, place(&name)?)))?;
                    Some(Port { name: (*name).to_owned(), value })
                })
                .collect();
            if let Some(ports) = found {
                let list: Vec<String> = ports.iter().map(|p| format!("`{}`", p.name)).collect();
                notes.push(format!("outputs by the names of a {head}: {}", list.join(", ")));
                return Ok(ports);
            }
        }
        if let Some(head) = options.head {
            return Err(Error::Usage {
                what: format!("the graph has no node that is known as the output of a {head}"),
                hint: "name the outputs with `--output`".into(),
            });
        }
    }
    let mut leaves = tf::default_outputs(graph);
    if options.outputs == Outputs::Bert {
        let ports = |value: &Value| {
            let node = value.node;
            (0..graph.op(*value).outputs() as u32).map(move |port| Value { node, port })
        };
        leaves = leaves.iter().flat_map(ports).collect();
    }
    if leaves.is_empty() {
        return Err(Error::Usage {
            what: "the graph has no node that looks like an output".into(),
            hint: "name the outputs with `--output`".into(),
        });
    }
    let list: Vec<String> = leaves.iter().map(|&v| format!("`{}`", graph.value_name(v))).collect();
    let shown = list.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
    let more = if list.len() > 8 { format!(" and {} more", list.len() - 8) } else { String::new() };
    notes.push(format!("outputs are the nodes that nobody reads: {shown}{more}"));
    Ok(leaves.into_iter().map(|value| Port { name: graph.value_name(value), value }).collect())
}

fn named(graph: &Graph, output: &OutputSpec) -> Result<Port> {
    let value = place_of(graph, &output.name, output.port, output.in_port)?;
    let name = match output.in_port {
        Some(_) => graph.value_name(value),
        None => output.place(),
    };
    Ok(Port { name, value })
}

/// The value at `name`, `name:port`, or what input `in_port` of `name` reads.
fn place_of(graph: &Graph, name: &str, port: Option<u32>, in_port: Option<u32>) -> Result<Value> {
    // Users know the inputs of a SavedModel by the signature's names as well.
    if let (None | Some(0), None) = (port, in_port)
        && graph.find(name).is_none()
        && let Some(found) = graph.inputs.iter().find(|input| input.name == name)
    {
        return Ok(found.value);
    }
    let Some(number) = in_port else {
        let place = match port {
            Some(port) => format!("{name}:{port}"),
            None => name.to_owned(),
        };
        return Ok(graph.find_value(&place)?);
    };
    let node = graph.node(graph.find_value(name)?.node);
    node.inputs.get(number as usize).copied().ok_or_else(|| Error::Usage {
        what: format!("`{name}` has {} inputs, there is no `{number}:{name}`", node.inputs.len()),
        hint: "inputs are counted from 0".into(),
    })
}

/// What the new input is called: an input keeps its name, another place is called as written.
fn port_name(graph: &Graph, spec: &InputSpec, value: Value) -> String {
    let listed = graph.inputs.iter().find(|port| port.value == value);
    match (listed, spec.in_port) {
        (Some(port), _) => port.name.clone(),
        (None, Some(_)) => graph.value_name(value),
        (None, None) => spec.place(),
    }
}

/// Extents as the user gave them; what is open gets the symbol of its axis.
fn dims_of(name: &str, shape: &[DimSpec]) -> Vec<Dim> {
    shape
        .iter()
        .enumerate()
        .map(|(axis, dim)| match dim.as_known() {
            Some(extent) => Dim::known(i64::try_from(extent).unwrap_or(i64::MAX)),
            None => Dim::symbol(symbol_of(name, axis)),
        })
        .collect()
}

/// The symbol of an open extent.
fn symbol_of(name: &str, axis: usize) -> Symbol {
    match axis {
        0 => Symbol::batch(),
        1 => Symbol::seq(),
        _ => Symbol::new(format!("?{name}.{axis}")),
    }
}

/// The bounds of open extents, by symbol; of several for one, the first.
pub(super) fn bounds(spec: &CutSpec) -> BTreeMap<Symbol, (u64, Option<u64>)> {
    let named = spec
        .inputs
        .iter()
        .flatten()
        .filter_map(|input| input.shape.as_ref().map(|shape| (input.place(), shape)));
    let only = spec.only_shape.iter().map(|shape| (String::new(), shape));
    let mut bounds = BTreeMap::new();
    for (name, shape) in named.chain(only) {
        for (axis, dim) in shape.iter().enumerate() {
            if let DimSpec::Between { least, most } = *dim {
                bounds.entry(symbol_of(&name, axis)).or_insert((least, most));
            }
        }
    }
    bounds
}

/// Puts a constant in the place of a value.
fn freeze_input(
    graph: &mut Graph,
    value: Value,
    place: &str,
    dtype: Option<DType>,
    shape: Option<&[DimSpec]>,
    frozen: &FrozenValue,
) -> Result<()> {
    let fact = infer(graph).ok().map(|facts| facts[value].clone()).unwrap_or_default();
    let dtype = dtype.or(fact.dtype).unwrap_or(DType::F32);
    let given: Option<Vec<usize>> = shape
        .and_then(|shape| shape.iter().map(|dim| usize::try_from(dim.as_known()?).ok()).collect());
    let known: Option<Vec<usize>> = fact
        .known_dims()
        .and_then(|dims| dims.into_iter().map(|dim| usize::try_from(dim).ok()).collect());
    let tensor = frozen.tensor(place, dtype, given.or(known).as_deref())?;
    let op = Op::constant(tensor);
    if graph.op(value).outputs() == 1 {
        let node = graph.node_mut(value.node);
        node.op = op;
        node.inputs.clear();
        node.control.clear();
        graph.inputs.retain(|port| port.value != value);
        return Ok(());
    }
    let name = format!("{}/frozen_{}", graph.node(value.node).name, value.port);
    let constant = graph.push_fresh(Node::new(name, op, vec![]))?;
    graph.replace_uses(value, constant.into());
    Ok(())
}

/// The parts of a batch that an input pipeline gives and somebody reads.
fn iterator_outputs(graph: &Graph) -> Vec<NewInput> {
    let uses = graph.uses();
    let mut ports: Vec<Value> = uses
        .keys()
        .chain(graph.outputs.iter().map(|port| &port.value))
        .copied()
        .filter(|value| match graph.op(*value) {
            Op::Foreign(op) => op.op == "IteratorGetNext",
            _ => false,
        })
        .collect();
    ports.sort();
    ports.dedup();
    let name = |value: Value| format!("{}:{}", graph.node(value.node).name, value.port);
    let fed = ports.into_iter().map(|value| NewInput {
        value,
        name: name(value),
        dtype: None,
        dims: None,
    });
    fed.collect()
}
