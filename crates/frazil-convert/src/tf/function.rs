//! Functions put in the place of their calls.
//!
//! A call is `PartitionedCall` or `StatefulPartitionedCall` with the function as an attribute, `If`
//! with a constant condition, or a node whose operation is the function's name. The nodes of the
//! body are named under the call; the call itself stays as an identity of its first result (or
//! as a `NoOp`), so that its name still leads there. Functions that datasets run stay functions.
//!
//! Inside a body, inputs are written `node:result:index`, by the name of the result in the
//! operation's definition; outside, `node:port`. For operations with several results the names
//! stand in a table here.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use frazil_tf::proto::attr_value::Value;
use frazil_tf::proto::{AttrValue, FunctionDef, GraphDef, NodeDef};
use prost::Message;

use crate::tf::import::split;
use crate::{Error, Result};

/// What a graph may take, beyond twice its own size, when functions are put in place.
const SPARE_BYTES: usize = 32 << 20;
/// Deeper than any real program nests.
const DEEPEST: usize = 64;

/// The nodes of a graph with all calls replaced.
pub(super) fn inline<'a>(def: &'a GraphDef, notes: &mut Vec<String>) -> Result<Cow<'a, [NodeDef]>> {
    let functions: HashMap<&str, &FunctionDef> = def
        .library
        .iter()
        .flat_map(|library| &library.function)
        .filter_map(|function| Some((function.signature.as_ref()?.name.as_str(), function)))
        .collect();
    if functions.is_empty() || !def.node.iter().any(|node| callee(node, &functions).is_some()) {
        return Ok(Cow::Borrowed(&def.node));
    }
    let mut inliner = Inliner {
        functions,
        nodes: Vec::with_capacity(def.node.len()),
        names: def.node.iter().map(|node| node.name.clone()).collect(),
        results: HashMap::new(),
        constants: HashMap::new(),
        stack: Vec::new(),
        calls: 0,
        limit: def.encoded_len().saturating_mul(2).saturating_add(SPARE_BYTES),
        size: 0,
    };
    for node in &def.node {
        inliner.note_constant(node);
    }
    for node in &def.node {
        inliner.add(node.clone())?;
    }
    if inliner.calls > 0 {
        notes.push(format!("{} function call(s) put in place", inliner.calls));
    }
    // Whoever reads a later result of a call reads the node that computes it.
    let Inliner { mut nodes, results, .. } = inliner;
    for node in &mut nodes {
        for input in &mut node.input {
            if let Some(result) = resolve(&results, input) {
                *input = result;
            }
        }
    }
    Ok(Cow::Owned(nodes))
}

/// What `input` stands for if it is a later result of a call, through nested calls.
fn resolve(results: &HashMap<String, String>, input: &str) -> Option<String> {
    let mut found = results.get(input)?;
    for _ in 0..DEEPEST {
        match results.get(found) {
            Some(next) => found = next,
            None => break,
        }
    }
    Some(found.clone())
}

/// The function that a node calls. The one in its attribute may not be in the library.
fn callee<'n>(node: &'n NodeDef, functions: &HashMap<&str, &FunctionDef>) -> Option<&'n str> {
    match node.op.as_str() {
        "PartitionedCall" | "StatefulPartitionedCall" => attr_function(node, "f"),
        "If" | "StatelessIf" => attr_function(node, "then_branch"),
        op => functions.contains_key(op).then_some(op),
    }
}

fn attr_function<'n>(node: &'n NodeDef, name: &str) -> Option<&'n str> {
    match node.attr.get(name)?.value.as_ref()? {
        Value::Func(function) => Some(&function.name),
        _ => None,
    }
}

struct Inliner<'a> {
    functions: HashMap<&'a str, &'a FunctionDef>,
    nodes: Vec<NodeDef>,
    /// All names that are taken.
    names: HashSet<String>,
    /// `call:port` to the input that gives the value, for ports above 0.
    results: HashMap<String, String>,
    /// Constants that may be conditions.
    constants: HashMap<String, bool>,
    /// The functions that are being put in place.
    stack: Vec<String>,
    calls: usize,
    /// The most bytes that the nodes may take, and how many they do.
    limit: usize,
    size: usize,
}

impl Inliner<'_> {
    /// Adds a node, or what it calls.
    fn add(&mut self, node: NodeDef) -> Result<()> {
        self.size = self.size.saturating_add(size_of::<NodeDef>() + node.encoded_len());
        if self.size > self.limit {
            return Err(Error::FunctionsTooLarge { limit: self.limit });
        }
        let Some(name) = callee(&node, &self.functions) else {
            self.nodes.push(node);
            return Ok(());
        };
        let (name, arguments) = match node.op.as_str() {
            "If" | "StatelessIf" => match self.branch(&node) {
                Some(name) => (name, 1),
                None => {
                    self.nodes.push(node);
                    return Ok(());
                }
            },
            _ => (name.to_owned(), 0),
        };
        let Some(&function) = self.functions.get(name.as_str()) else {
            return Err(wrong(&node, &name, "it is not in the library"));
        };
        if self.stack.contains(&name) || self.stack.len() >= DEEPEST {
            let chain = self.stack.join("` -> `");
            let reason = format!("functions that call themselves are not supported (`{chain}`)");
            return Err(wrong(&node, &name, &reason));
        }
        self.stack.push(name.clone());
        self.calls += 1;
        self.call(&node, function, &name, arguments)?;
        self.stack.pop();
        Ok(())
    }

    /// The function of an `If` that a constant decides.
    fn branch(&self, node: &NodeDef) -> Option<String> {
        let (condition, Some(0)) = split(node.input.first()?)? else { return None };
        let branch = if *self.constants.get(condition)? { "then_branch" } else { "else_branch" };
        attr_function(node, branch).map(str::to_owned)
    }

    fn note_constant(&mut self, node: &NodeDef) {
        if node.op != "Const" {
            return;
        }
        let Ok(value) = frazil_tf::graph_def::const_tensor(node) else { return };
        if value.dtype() == frazil_tensor::DType::Bool && value.elements() == 1 {
            let set = value.bytes().is_ok_and(|bytes| bytes.first() == Some(&1));
            self.constants.insert(node.name.clone(), set);
        }
    }

    /// Puts `function` in the place of `call`, whose arguments begin at input `first`.
    fn call(
        &mut self,
        call: &NodeDef,
        function: &FunctionDef,
        name: &str,
        first: usize,
    ) -> Result<()> {
        let signature = function.signature.as_ref().expect("functions are known by signature");
        let is_list = |arg: &frazil_tf::proto::op_def::ArgDef| {
            !arg.number_attr.is_empty() || !arg.type_list_attr.is_empty()
        };
        if signature.input_arg.iter().chain(&signature.output_arg).any(is_list) {
            return Err(wrong(call, name, "arguments that are lists are not supported"));
        }
        let values: Vec<&String> =
            call.input.iter().filter(|input| !input.starts_with('^')).skip(first).collect();
        let controls: Vec<&String> =
            call.input.iter().filter(|input| input.starts_with('^')).collect();
        if values.len() != signature.input_arg.len() {
            let (given, wanted) = (values.len(), signature.input_arg.len());
            let reason = format!("it takes {wanted} argument(s), {given} are given");
            return Err(wrong(call, name, &reason));
        }
        let mut body = Body { call, function: name, inputs: HashMap::new(), nodes: HashMap::new() };
        for (arg, value) in signature.input_arg.iter().zip(values) {
            body.inputs.insert(&arg.name, value);
        }
        for node in &function.node_def {
            let mut fresh = format!("{}/{}", call.name, node.name);
            let mut number = 0usize;
            while self.names.contains(&fresh) {
                number += 1;
                fresh = format!("{}/{}_{number}", call.name, node.name);
            }
            self.names.insert(fresh.clone());
            body.nodes.insert(&node.name, (fresh, node));
        }
        for node in &function.node_def {
            let mut copy = node.clone();
            copy.name = body.nodes[node.name.as_str()].0.clone();
            copy.input = node
                .input
                .iter()
                .map(|input| body.input(input, &self.functions))
                .collect::<Result<_>>()?;
            if copy.input.is_empty() {
                // What reads nothing still runs only when the call does.
                copy.input.extend(controls.iter().map(|&control| control.clone()));
            }
            substitute(&mut copy.attr, &call.attr);
            self.note_constant(&copy);
            self.add(copy)?;
        }
        let mut results = Vec::new();
        for arg in &signature.output_arg {
            let Some(result) = function.ret.get(&arg.name) else {
                return Err(wrong(call, name, &format!("its result `{}` is missing", arg.name)));
            };
            results.push(body.input(result, &self.functions)?);
        }
        let mut stand_in = NodeDef {
            name: call.name.clone(),
            op: "NoOp".to_owned(),
            device: call.device.clone(),
            ..NodeDef::default()
        };
        if let Some(result) = results.first() {
            stand_in.op = "Identity".to_owned();
            stand_in.input.push(result.clone());
            let dtype = signature.output_arg[0].r#type;
            stand_in.attr.insert("T".to_owned(), AttrValue { value: Some(Value::Type(dtype)) });
        }
        for node in function.control_ret.values() {
            let Some((fresh, _)) = body.nodes.get(node.as_str()) else {
                return Err(wrong(call, name, &format!("`{node}` is not in its body")));
            };
            stand_in.input.push(format!("^{fresh}"));
        }
        stand_in.input.extend(controls.into_iter().cloned());
        for (port, result) in results.into_iter().enumerate().skip(1) {
            self.results.insert(format!("{}:{port}", call.name), result);
        }
        self.nodes.push(stand_in);
        Ok(())
    }
}

/// Attributes that the function leaves to its caller.
fn substitute(attrs: &mut BTreeMap<String, AttrValue>, of_call: &BTreeMap<String, AttrValue>) {
    for attr in attrs.values_mut() {
        if let Some(Value::Placeholder(name)) = &attr.value
            && let Some(given) = of_call.get(name)
        {
            *attr = given.clone();
        }
    }
}

/// A function's body on its way into the graph.
struct Body<'a> {
    call: &'a NodeDef,
    function: &'a str,
    /// What the caller gives for each argument.
    inputs: HashMap<&'a str, &'a String>,
    /// The nodes by their names in the body, under their new names.
    nodes: HashMap<&'a str, (String, &'a NodeDef)>,
}

impl Body<'_> {
    /// An input as it is written in the body, as the graph writes it.
    fn input(&self, text: &str, functions: &HashMap<&str, &FunctionDef>) -> Result<String> {
        let unknown = || {
            wrong(self.call, self.function, &format!("`{text}` is neither an argument nor a node"))
        };
        if let Some(node) = text.strip_prefix('^') {
            return match (self.nodes.get(node), self.inputs.get(node)) {
                (Some((fresh, _)), _) => Ok(format!("^{fresh}")),
                (None, Some(given)) => {
                    let (name, _) = split(given).ok_or_else(unknown)?;
                    Ok(format!("^{name}"))
                }
                (None, None) => Err(unknown()),
            };
        }
        let mut parts = text.split(':');
        let (name, rest) = (parts.next().unwrap_or_default(), parts.collect::<Vec<_>>());
        if let Some(given) = self.inputs.get(name) {
            return Ok((*given).clone());
        }
        let (fresh, node) = self.nodes.get(name).ok_or_else(unknown)?;
        let index = |text: &str| text.parse::<usize>().map_err(|_| unknown());
        let port = match rest.as_slice() {
            [] => 0,
            [port] => index(port)?,
            [result, at] => {
                let first = first_port(node, result, functions).ok_or_else(|| {
                    let op = &node.op;
                    let reason = format!("which output of {op} (`{name}`) is `{result}`?");
                    wrong(self.call, self.function, &reason)
                })?;
                first.checked_add(index(at)?).ok_or_else(unknown)?
            }
            _ => return Err(unknown()),
        };
        Ok(if port == 0 { fresh.clone() } else { format!("{fresh}:{port}") })
    }
}

/// Operations with several results, each one tensor, by the names of these.
const RESULTS: [(&[&str], &[&str]); 14] = [
    (&["Switch", "RefSwitch"], &["output_false", "output_true"]),
    (&["Merge", "RefMerge"], &["output", "value_index"]),
    (&["BroadcastGradientArgs"], &["r0", "r1"]),
    (&["TopK", "TopKV2"], &["values", "indices"]),
    (&["Unique", "UniqueV2"], &["y", "idx"]),
    (&["ListDiff"], &["out", "idx"]),
    (
        &["SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"],
        &["loss", "backprop"],
    ),
    (&["Requantize", "QuantizeV2"], &["output", "output_min", "output_max"]),
    (&["QuantizedMatMul"], &["out", "min_out", "max_out"]),
    (
        &["QuantizedMatMulWithBias", "QuantizedMatMulWithBiasAndRelu"],
        &["out", "min_out", "max_out"],
    ),
    (&["RequantizationRange"], &["output_min", "output_max"]),
    (&["Moments"], &["mean", "variance"]),
    (
        &["FusedBatchNorm", "FusedBatchNormV2"],
        &["y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2"],
    ),
    (
        &["FusedBatchNormV3"],
        &[
            "y",
            "batch_mean",
            "batch_variance",
            "reserve_space_1",
            "reserve_space_2",
            "reserve_space_3",
        ],
    ),
];

/// What operations with one result (or one list of results) call it.
const SINGLE: [&str; 26] = [
    "output",
    "z",
    "y",
    "value",
    "product",
    "softmax",
    "logsoftmax",
    "activations",
    "backprops",
    "resource",
    "handle",
    "out",
    "sum",
    "components",
    "result",
    "outputs",
    "table_handle",
    "output_values",
    "tensor",
    "x",
    "dense",
    "ref",
    "output_ref",
    "is_initialized",
    "index",
    "dx",
];

/// The port at which a result begins; `None` if the table does not tell.
fn first_port(
    node: &NodeDef,
    result: &str,
    functions: &HashMap<&str, &FunctionDef>,
) -> Option<usize> {
    if let Some(function) = functions.get(node.op.as_str()) {
        let args = &function.signature.as_ref()?.output_arg;
        return args.iter().position(|arg| arg.name == result);
    }
    let row = RESULTS.iter().find(|(ops, _)| ops.contains(&node.op.as_str()));
    match row {
        Some((_, names)) => names.iter().position(|name| *name == result),
        None => SINGLE.contains(&result).then_some(0),
    }
}

fn wrong(call: &NodeDef, function: &str, reason: &str) -> Error {
    Error::Function {
        node: call.name.clone(),
        function: function.to_owned(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use frazil_graph::Graph;
    use frazil_tf::pbtxt;

    use super::*;
    use crate::tf::{ImportOptions, import};

    fn read(text: &str) -> Result<Graph> {
        let def: GraphDef = pbtxt::parse(text).unwrap();
        Ok(import(&def, &ImportOptions::default())?.graph)
    }

    fn reads(graph: &Graph, name: &str) -> Vec<String> {
        let node = graph.node(graph.find(name).unwrap());
        node.inputs.iter().map(|&value| graph.value_name(value)).collect()
    }

    const X: &str =
        r#"node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }"#;
    const T: &str = r#"attr { key: "T" value { type: DT_FLOAT } }"#;

    /// `twice(a) = (-a, a + a)`, `outer(a) = twice(-a)[1]`
    fn library() -> String {
        format!(
            r#"library {{
            function {{ signature {{ name: "twice" input_arg {{ name: "a" type: DT_FLOAT }}
                output_arg {{ name: "n" type: DT_FLOAT }} output_arg {{ name: "s" type: DT_FLOAT }} }}
              node_def {{ name: "neg" op: "Neg" input: "a" {T} }}
              node_def {{ name: "add" op: "AddV2" input: "a" input: "a" {T} }}
              ret {{ key: "n" value: "neg:y:0" }} ret {{ key: "s" value: "add:z:0" }} }}
            function {{ signature {{ name: "outer" input_arg {{ name: "a" type: DT_FLOAT }}
                output_arg {{ name: "o" type: DT_FLOAT }} }}
              node_def {{ name: "first" op: "Neg" input: "a" {T} }}
              node_def {{ name: "call" op: "PartitionedCall" input: "first:y:0"
                attr {{ key: "f" value {{ func {{ name: "twice" }} }} }} }}
              ret {{ key: "o" value: "call:output:1" }} }}
            }}"#
        )
    }

    #[test]
    fn calls_by_attribute_and_by_name_and_nested() {
        let text = format!(
            r#"{X} {}
            node {{ name: "c" op: "StatefulPartitionedCall" input: "x"
                attr {{ key: "f" value {{ func {{ name: "outer" }} }} }} }}
            node {{ name: "l" op: "twice" input: "c" }}
            node {{ name: "y" op: "Neg" input: "l:1" {T} }}"#,
            library()
        );
        let graph = read(&text).unwrap();
        assert_eq!(reads(&graph, "c/first"), ["x"]);
        assert_eq!(reads(&graph, "c/call/add"), ["c/first", "c/first"]);
        assert_eq!(reads(&graph, "c"), ["c/call/add"]);
        assert_eq!(reads(&graph, "l/add"), ["c", "c"]);
        assert_eq!(reads(&graph, "l"), ["l/neg"]);
        assert_eq!(reads(&graph, "y"), ["l/add"]);
    }

    #[test]
    fn a_constant_decides_an_if() {
        let condition = |value: bool| {
            format!(
                r#"node {{ name: "p" op: "Const" attr {{ key: "dtype" value {{ type: DT_BOOL }} }}
                attr {{ key: "value" value {{ tensor {{ dtype: DT_BOOL tensor_shape {{}}
                bool_val: {value} }} }} }} }}"#
            )
        };
        for (value, wanted) in [(true, "i/call/add"), (false, "i/neg")] {
            let text = format!(
                r#"{X} {} {} node {{ name: "i" op: "If" input: "p" input: "x"
                attr {{ key: "then_branch" value {{ func {{ name: "outer" }} }} }}
                attr {{ key: "else_branch" value {{ func {{ name: "twice" }} }} }} }}"#,
                condition(value),
                library()
            );
            assert_eq!(reads(&read(&text).unwrap(), "i"), [wanted]);
        }
    }

    #[test]
    fn hostile_functions_are_refused() {
        let call = |f: &str| {
            format!(
                r#"node {{ name: "c" op: "PartitionedCall" input: "x"
                attr {{ key: "f" value {{ func {{ name: "{f}" }} }} }} }}"#
            )
        };
        let itself = format!(
            r#"{X} {} library {{ function {{ signature {{ name: "f"
            input_arg {{ name: "x" type: DT_FLOAT }} }} node_def {{ name: "n" op: "f" input: "x" }}
            }} }}"#,
            call("f")
        );
        assert!(read(&itself).unwrap_err().to_string().contains("call themselves"));
        let missing = format!("{X} {} {}", call("nowhere"), library());
        assert!(read(&missing).unwrap_err().to_string().ends_with("it is not in the library"));
        // Each function calls the next one ten times: 10^8 nodes.
        let mut bomb = format!("{X} {}", call("f0"));
        bomb.push_str("library {");
        for i in 0..8 {
            bomb.push_str(&format!(
                r#"function {{ signature {{ name: "f{i}" input_arg {{ name: "x" type: DT_FLOAT }} }}"#
            ));
            for j in 0..10 {
                let next = i + 1;
                bomb.push_str(&format!(r#"node_def {{ name: "n{j}" op: "f{next}" input: "x" }}"#));
            }
            bomb.push('}');
        }
        bomb.push_str(
            r#"function { signature { name: "f8" input_arg { name: "x" type: DT_FLOAT } }
            node_def { name: "n" op: "Neg" input: "x" } } }"#,
        );
        assert!(matches!(read(&bomb), Err(Error::FunctionsTooLarge { .. })));
    }
}
