//! GraphDef to [`Graph`].

use std::borrow::Cow;
use std::collections::HashMap;

use frazil_graph::op::{Attr, Attrs, Foreign, ReadVariable};
use frazil_graph::{Graph, Node, NodeId, Op, Port, Value};
use frazil_tensor::{Tensor, nearest};
use frazil_tf::proto::{FunctionDefLibrary, GraphDef, NodeDef};
use prost::Message;

use crate::tf::op::{self, Reading};
use crate::tf::{attr, branch, declared, fake_quant, function, select};
use crate::{Error, Result};

/// Under these names the fields of a node that are no attributes travel among them.
pub(super) const DEBUG_INFO: &str = ":experimental_debug_info";
pub(super) const FULL_TYPE: &str = ":experimental_type";

/// Outputs that a graph may have beyond four per node, so that a few bytes that name a thousand
/// outputs cannot ask for gigabytes.
const SPARE_OUTPUTS: usize = 1 << 19;

/// How a GraphDef is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportOptions {
    /// Whether operations are looked up in the table. If not, every node stays foreign, nothing
    /// is lost, and [`export`](super::export()) gives back the same GraphDef.
    pub typed: bool,
    /// Whether calls of functions are replaced by what the functions do (typed only).
    pub inline_functions: bool,
    /// Whether conditionals with a known predicate are decided (typed only).
    pub resolve_control_flow: bool,
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self { typed: true, inline_functions: true, resolve_control_flow: true }
    }
}

impl ImportOptions {
    /// Everything as it stands in the file.
    pub fn untyped() -> Self {
        Self { typed: false, inline_functions: false, resolve_control_flow: false }
    }
}

/// A graph and what came with it.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The graph. Its inputs are all placeholders (in a typed graph); it has no outputs yet.
    pub graph: Graph,
    /// The functions that foreign nodes may refer to.
    pub library: Option<FunctionDefLibrary>,
    /// What was decided on the way.
    pub notes: Vec<String>,
}

/// Reads a graph.
pub fn import(def: &GraphDef, options: &ImportOptions) -> Result<Imported> {
    let mut notes = Vec::new();
    let nodes = if options.typed && options.inline_functions {
        function::inline(def, &mut notes)?
    } else {
        Cow::Borrowed(def.node.as_slice())
    };
    let edges = edges(&nodes)?;
    let producer = def.versions.as_ref().map_or(def.version, |versions| versions.producer);
    let mut builder = Builder { extras: Vec::new(), first_extra: nodes.len(), unchecked: 0 };
    let mut graph = Graph::new();
    let mut outputs = 0usize;
    for (node, edge) in nodes.iter().zip(&edges) {
        let typed = options.typed.then_some(producer);
        let built = builder.node(node, edge, typed)?;
        outputs = outputs.saturating_add(built.op.outputs());
        if outputs > SPARE_OUTPUTS + 4 * nodes.len() {
            return Err(too_many_outputs(node));
        }
        graph.push(built)?;
    }
    for extra in builder.extras {
        graph.push_fresh(extra)?;
    }
    check_ports(&graph)?;
    graph.inputs = graph
        .nodes()
        .filter(|(_, node)| node.op.is_input())
        .map(|(id, node)| Port { name: node.name.clone(), value: id.into() })
        .collect();
    if builder.unchecked > 0 {
        let count = builder.unchecked;
        notes.push(format!("{count} CheckNumerics node(s) pass their value on unchecked"));
    }
    if options.typed {
        if options.resolve_control_flow {
            branch::resolve(&mut graph, &mut notes)?;
        }
        branch::drop_checks(&mut graph)?;
        select::settle(&mut graph)?;
        fake_quant::settle(&mut graph)?;
    }
    graph.check()?;
    Ok(Imported { graph, library: def.library.clone(), notes })
}

/// What a node reads.
struct Edges {
    inputs: Vec<Value>,
    control: Vec<NodeId>,
    /// How many of the node's own outputs are read by somebody.
    used: usize,
}

/// Resolves all names.
fn edges(nodes: &[NodeDef]) -> Result<Vec<Edges>> {
    let mut places: HashMap<&str, usize> = HashMap::with_capacity(nodes.len());
    for (index, node) in nodes.iter().enumerate() {
        if node.name.is_empty() {
            return Err(Error::NoName { index, op: node.op.clone() });
        }
        if places.insert(&node.name, index).is_some() {
            return Err(Error::DuplicateNode { node: node.name.clone() });
        }
    }
    let mut used = vec![0usize; nodes.len()];
    let mut all = Vec::with_capacity(nodes.len());
    for (index, node) in nodes.iter().enumerate() {
        let (mut inputs, mut control) = (Vec::new(), Vec::new());
        for input in &node.input {
            let bad = || Error::BadInput { node: node.name.clone(), input: input.clone() };
            let (name, port) = split(input).ok_or_else(bad)?;
            let Some(&source) = places.get(name) else {
                let names = nodes.iter().map(|node| node.name.as_str());
                let near = nearest(name, names);
                return Err(Error::UnknownInput {
                    node: node.name.clone(),
                    input: input.clone(),
                    near,
                });
            };
            if source == index {
                return Err(Error::SelfLoop { node: node.name.clone() });
            }
            let id = NodeId(u32::try_from(source).map_err(|_| frazil_graph::Error::TooManyNodes)?);
            match port {
                None => control.push(id),
                Some(_) if !control.is_empty() => {
                    let (node, input) = (node.name.clone(), input.clone());
                    return Err(Error::InputOrder { node, input });
                }
                Some(port) => {
                    used[source] = used[source].max(port as usize + 1);
                    inputs.push(Value { node: id, port });
                }
            }
        }
        all.push(Edges { inputs, control, used: 0 });
    }
    for (edges, used) in all.iter_mut().zip(used) {
        edges.used = used;
    }
    Ok(all)
}

/// `name`, `name:port`, or `^name` (no port). Names have no colon in TensorFlow.
pub(super) fn split(input: &str) -> Option<(&str, Option<u32>)> {
    if let Some(name) = input.strip_prefix('^') {
        return (!name.is_empty() && !name.contains(':')).then_some((name, None));
    }
    match input.split_once(':') {
        None => (!input.is_empty()).then_some((input, Some(0))),
        Some((name, port)) => {
            let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            let port = port.parse().ok().filter(|_| digits)?;
            (!name.is_empty()).then_some((name, Some(port)))
        }
    }
}

fn too_many_outputs(node: &NodeDef) -> Error {
    Error::Attribute {
        node: node.name.clone(),
        op: node.op.clone(),
        attribute: "outputs".to_owned(),
        reason: "the graph has more outputs than a graph of its size can have".to_owned(),
    }
}

struct Builder {
    /// Nodes that the source does not have; they come after all others.
    extras: Vec<Node>,
    first_extra: usize,
    /// How many `CheckNumerics` became identities.
    unchecked: usize,
}

impl Builder {
    /// `typed` is the version of the graph, for the table; without it the node stays foreign.
    fn node(&mut self, node: &NodeDef, edges: &Edges, typed: Option<i32>) -> Result<Node> {
        let mut inputs = edges.inputs.clone();
        let reading = match typed {
            Some(producer) => op::read(node, producer)?,
            None => Reading::Foreign,
        };
        let op = match reading {
            Reading::Same(op) => op,
            Reading::FirstLast(op) => {
                if !inputs.is_empty() {
                    inputs.rotate_left(1);
                }
                op
            }
            Reading::WithAxis(op) => {
                inputs.push(self.axis(node)?);
                op
            }
            Reading::GatherVariable { dtype } => {
                if let Some(handle) = inputs.first_mut() {
                    let op = Op::ReadVariable(ReadVariable { dtype });
                    let name = format!("{}/read", node.name);
                    *handle = self.extra(Node::new(name, op, vec![*handle]))?;
                }
                inputs.push(self.axis(node)?);
                Op::Gather(frazil_graph::op::Gather::default())
            }
            Reading::Foreign => self.foreign(node, edges.used)?,
        };
        self.unchecked += usize::from(typed.is_some() && node.op == "CheckNumerics");
        Ok(Node {
            name: node.name.clone(),
            op,
            inputs,
            control: edges.control.clone(),
            device: node.device.clone(),
        })
    }

    fn foreign(&self, node: &NodeDef, used: usize) -> Result<Op> {
        if used > SPARE_OUTPUTS {
            return Err(too_many_outputs(node));
        }
        let mut attrs: Attrs = attr::map_from_proto(&node.attr);
        if let Some(info) = &node.experimental_debug_info {
            attrs.insert(DEBUG_INFO.to_owned(), Attr::Opaque(info.encode_to_vec().into()));
        }
        if let Some(full) = &node.experimental_type {
            attrs.insert(FULL_TYPE.to_owned(), Attr::Opaque(full.encode_to_vec().into()));
        }
        let outputs = declared::outputs(node, used)?;
        Ok(Op::Foreign(Foreign { op: node.op.clone(), attrs, outputs }))
    }

    /// A constant axis 0 for `node`.
    fn axis(&mut self, node: &NodeDef) -> Result<Value> {
        let zero = Tensor::from_vec([], vec![0i32])?;
        self.extra(Node::new(format!("{}/axis", node.name), Op::constant(zero), vec![]))
    }

    fn extra(&mut self, node: Node) -> Result<Value> {
        let place = self.first_extra + self.extras.len();
        self.extras.push(node);
        let id = u32::try_from(place).map_err(|_| frazil_graph::Error::TooManyNodes)?;
        Ok(NodeId(id).into())
    }
}

/// Every value that is read must be one that its node has.
fn check_ports(graph: &Graph) -> Result<()> {
    for (_, node) in graph.nodes() {
        for &value in &node.inputs {
            let source = graph.node(value.node);
            let outputs = source.op.outputs();
            if value.port as usize >= outputs {
                return Err(Error::WrongPort {
                    node: node.name.clone(),
                    input: graph.value_name(value),
                    op: source.op.to_string(),
                    outputs,
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use frazil_tf::pbtxt;

    fn read(text: &str) -> Result<Graph> {
        let def: GraphDef = pbtxt::parse(text).unwrap();
        Ok(import(&def, &ImportOptions::default())?.graph)
    }

    fn error(text: &str) -> String {
        read(text).unwrap_err().to_string()
    }

    #[test]
    fn inputs_in_all_spellings() {
        assert_eq!(split("a/b"), Some(("a/b", Some(0))));
        assert_eq!(split("a:0"), Some(("a", Some(0))));
        assert_eq!(split("a:12"), Some(("a", Some(12))));
        assert_eq!(split("^a"), Some(("a", None)));
        for bad in ["", "^", "a:", "a:x", "a:-1", "a:+1", ":0", "^a:0", "a:99999999999"] {
            assert_eq!(split(bad), None, "{bad}");
        }
    }

    #[test]
    fn wrong_edges_are_named() {
        let x = r#"node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }"#;
        let with = |node: &str| format!("{x} node {{ {node} }}");
        let cases = [
            (r#"name: "x" op: "NoOp""#, "two nodes are named `x`"),
            (r#"op: "NoOp""#, "node number 1 (NoOp) has no name"),
            (r#"name: "y" op: "Neg" input: "xx""#, "`y` reads `xx`, and no node has that name"),
            (r#"name: "y" op: "Neg" input: "y""#, "`y` reads itself"),
            (r#"name: "y" op: "Neg" input: "x:1""#, "`y` reads `x:1`, but Input has 1 output(s)"),
            (
                r#"name: "y" op: "Neg" input: "x:a""#,
                "`y` reads `x:a`, which is neither `name`, `name:port` nor `^name`",
            ),
            (
                r#"name: "y" op: "Neg" input: "^x" input: "x""#,
                "`y` reads the value `x` after a control input",
            ),
            (r#"name: "y" op: "Neg""#, "`y` (Neg) has 0 input(s), 1 expected"),
        ];
        for (node, wanted) in cases {
            assert_eq!(error(&with(node)), wanted);
        }
        let cycle =
            r#"node { name: "a" op: "Neg" input: "b" } node { name: "b" op: "Neg" input: "a" }"#;
        assert!(error(cycle).starts_with("the graph has a loop through"));
    }

    #[test]
    fn a_port_costs_no_more_than_it_may() {
        let one =
            r#"node { name: "x" op: "Odd" } node { name: "y" op: "Neg" input: "x:4000000000" }"#;
        assert!(read(one).is_err());
        let mut many = String::new();
        for i in 0..100 {
            many.push_str(&format!(
                r#"node {{ name: "x{i}" op: "Odd" }} node {{ name: "y{i}" op: "Neg" input: "x{i}:60000" }}"#
            ));
        }
        assert!(read(&many).is_err());
    }

    #[test]
    fn old_forms_become_the_new_ones() {
        let graph = read(
            r#"
            node { name: "a" op: "Const" attr { key: "dtype" value { type: DT_INT32 } }
                attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape {} int_val: 1 } } } }
            node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
            node { name: "i" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } } }
            node { name: "v" op: "VarHandleOp" attr { key: "dtype" value { type: DT_FLOAT } }
                attr { key: "shape" value { shape { dim { size: 4 } } } } }
            node { name: "c" op: "Concat" input: "a" input: "x" input: "x" }
            node { name: "g" op: "Gather" input: "x" input: "i" }
            node { name: "r" op: "ResourceGather" input: "v" input: "i"
                attr { key: "dtype" value { type: DT_FLOAT } }
                attr { key: "Tindices" value { type: DT_INT32 } } }
            "#,
        )
        .unwrap();
        let reads = |name: &str| -> Vec<String> {
            let node = graph.node(graph.find(name).unwrap());
            node.inputs.iter().map(|&value| graph.value_name(value)).collect()
        };
        assert_eq!(reads("c"), ["x", "x", "a"]);
        assert_eq!(reads("g"), ["x", "i", "g/axis"]);
        assert_eq!(reads("r"), ["r/read", "i", "r/axis"]);
        assert_eq!(reads("r/read"), ["v"]);
        let names: Vec<&str> = graph.inputs.iter().map(|port| port.name.as_str()).collect();
        assert_eq!(names, ["x", "i"]);
    }
}
