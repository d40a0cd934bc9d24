//! The graph as text: one line per node, in an order and with numbers that do not change from
//! run to run, so that two dumps can be compared line by line.

use std::fmt::Write;

use frazil_tensor::{DType, Tensor};

use crate::op::{Attr, GeluForm, Op, Steps};
use crate::{Fact, Facts, Graph, Node, infer};

/// Lines `name = Op{attributes}(inputs) ^control : facts` in topological order, between the
/// inputs and the outputs of the model. Constants show their first elements.
///
/// A graph that [`infer`] refuses is printed without facts, with the reason on top.
pub fn dump(graph: &Graph) -> String {
    let mut text = String::new();
    let facts = match infer(graph) {
        Ok(facts) => Some(facts),
        Err(error) => {
            let _ = writeln!(text, "# {error}");
            None
        }
    };
    for port in &graph.inputs {
        let _ = writeln!(text, "input {} <- {}", port.name, graph.value_name(port.value));
    }
    let order = graph.topological().unwrap_or_else(|_| graph.ids().collect());
    for id in order {
        let _ = writeln!(text, "{}", line(graph, graph.node(id), facts.as_ref(), id.into()));
    }
    for port in &graph.outputs {
        let _ = writeln!(text, "output {} <- {}", port.name, graph.value_name(port.value));
    }
    text
}

fn line(graph: &Graph, node: &Node, facts: Option<&Facts>, first: crate::Value) -> String {
    let mut reads: Vec<String> = node.inputs.iter().map(|&v| graph.value_name(v)).collect();
    reads.extend(node.control.iter().map(|&id| format!("^{}", graph.node(id).name)));
    let mut line =
        format!("{} = {}{}({})", node.name, node.op, attributes(&node.op), reads.join(", "));
    if let Some(facts) = facts {
        let facts: Vec<String> = (0..node.op.outputs() as u32)
            .map(|port| Fact::to_string(&facts[crate::Value { port, ..first }]))
            .collect();
        let _ = write!(line, " : {}", facts.join("; "));
    }
    line
}

/// What an operation has beside its inputs, as the dump shows it: `{axis=1}`, or nothing.
pub fn attributes(op: &Op) -> String {
    let list: Vec<(&str, String)> = match op {
        Op::Const(op) => vec![("", first_elements(&op.value))],
        Op::Variable(op) if op.resource => vec![("resource", "true".to_owned())],
        Op::Cast(op) => vec![("to", op.to.to_string())],
        Op::MatMul(op) => {
            flags(&[("transpose_a", op.transpose_a), ("transpose_b", op.transpose_b)])
        }
        Op::Reduce(op) => flags(&[("keep_dims", op.keep_dims)]),
        Op::ArgMax(op) => vec![("to", op.to.to_string())],
        Op::Quantize(op) | Op::Requantize(op) => vec![("to", op.to.to_string())],
        Op::Shape(op) | Op::Size(op) if op.to != DType::I32 => vec![("to", op.to.to_string())],
        Op::Squeeze(op) => vec![("axes", format!("{:?}", op.axes))],
        Op::Pack(op) => vec![("axis", op.axis.to_string())],
        Op::Unpack(op) => vec![("axis", op.axis.to_string()), ("count", op.count.to_string())],
        Op::Split(op) | Op::SplitV(op) => vec![("count", op.count.to_string())],
        Op::StridedSlice(op) => [
            ("begin_mask", op.begin_mask),
            ("end_mask", op.end_mask),
            ("ellipsis_mask", op.ellipsis_mask),
            ("new_axis_mask", op.new_axis_mask),
            ("shrink_axis_mask", op.shrink_axis_mask),
        ]
        .into_iter()
        .filter(|(_, mask)| *mask != 0)
        .map(|(name, mask)| (name, mask.to_string()))
        .collect(),
        Op::Gather(op) if op.batch_dims > 0 => vec![("batch_dims", op.batch_dims.to_string())],
        Op::OneHot(op) => vec![("axis", op.axis.to_string())],
        Op::LayerNorm(op) => vec![("epsilon", format!("{:e}", op.epsilon))],
        Op::Gelu(op) => vec![(
            "form",
            match op.form {
                GeluForm::Tanh => "tanh".to_owned(),
                GeluForm::Erf => "erf".to_owned(),
            },
        )],
        Op::Linear(op) => flags(&[("transpose_w", op.transpose_w)]),
        Op::Attention(op) => {
            let mut list = vec![
                ("heads", op.heads.to_string()),
                ("scale", op.scale.to_string()),
                if op.packed {
                    ("packed", "true".to_owned())
                } else {
                    ("mask_value", op.mask_value.to_string())
                },
            ];
            if let Some(steps) = &op.steps {
                let steps = show_attrs(show_steps(steps).into_iter());
                list.push(("softmax", format!("FakeQuantize{steps}")));
            }
            list
        }
        Op::PackRows(op) => flags(&[("first", op.first)]),
        Op::FakeQuantize(steps) => show_steps(steps),
        Op::Scaled(op) => vec![("axis", op.axis.to_string())],
        Op::Training(op) => op.attributes(),
        Op::Foreign(op) => {
            return show_attrs(
                op.attrs.iter().map(|(name, attr)| (name.as_str(), show_attr(attr))),
            );
        }
        _ => vec![],
    };
    show_attrs(list.into_iter())
}

fn show_steps(steps: &Steps) -> Vec<(&'static str, String)> {
    match steps {
        Steps::Tensor { scale, zero } => {
            vec![("scale", scale.to_string()), ("zero", zero.to_string())]
        }
        Steps::Rows => vec![("", "rows".to_owned())],
        Steps::Symmetric { scale } => vec![("symmetric", scale.to_string())],
        Steps::Watched { place } => vec![("watched", place.to_string())],
    }
}

fn show_attrs<'a>(attrs: impl Iterator<Item = (&'a str, String)>) -> String {
    let attrs: Vec<String> = attrs
        .map(|(name, value)| if name.is_empty() { value } else { format!("{name}={value}") })
        .collect();
    if attrs.is_empty() { String::new() } else { format!("{{{}}}", attrs.join(", ")) }
}

fn flags(flags: &[(&'static str, bool)]) -> Vec<(&'static str, String)> {
    let set = flags.iter().filter(|(_, set)| *set);
    set.map(|(name, _)| (*name, "true".to_owned())).collect()
}

fn show_attr(attr: &Attr) -> String {
    match attr {
        Attr::Str(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
        Attr::Int(value) => value.to_string(),
        Attr::Float(value) => value.to_string(),
        Attr::Bool(value) => value.to_string(),
        Attr::Type(name) => name.clone(),
        Attr::Shape(None) => "?".to_owned(),
        Attr::Shape(Some(dims)) => format!("{dims:?}"),
        Attr::Tensor(tensor) => format!("{} {}", tensor.dtype(), tensor.shape()),
        Attr::Function(name, _) => format!("{name}()"),
        Attr::List(list) => {
            let list: Vec<String> = list.iter().map(show_attr).collect();
            format!("[{}]", list.join(", "))
        }
        Attr::Opaque(bytes) => format!("({} bytes)", bytes.len()),
    }
}

fn first_elements(tensor: &Tensor) -> String {
    const SHOWN: usize = 8;
    let rows = tensor.elements().min(SHOWN);
    let values = tensor.reshape([tensor.elements()]).and_then(|flat| flat.head(rows)?.to_f64());
    match values {
        Ok(values) => {
            let mut values: Vec<String> = values.iter().map(f64::to_string).collect();
            if tensor.elements() > SHOWN {
                values.push("…".to_owned());
            }
            values.join(" ")
        }
        Err(_) => String::new(),
    }
}
