//! What a graph asks for, what it offers, and which sizes are baked into it.
//!
//! Read off the nodes alone, before any import: it must work for training graphs with ops that
//! nothing else in frazil knows.

use std::collections::{BTreeMap, HashMap, HashSet};

use frazil_tf::proto::{
    GraphDef, NodeDef, SignatureDef, TensorShapeProto, attr_value, tensor_info,
};
use frazil_tf::{dtype, tensor_proto};
use serde::Serialize;

/// A graph's summary.
#[derive(Clone, Debug, Serialize)]
pub struct GraphReport {
    /// Nodes of the main graph.
    pub nodes: usize,
    /// Functions in its library.
    pub functions: usize,
    /// The producer version that TensorFlow stamped; 0 in a frozen graph.
    pub producer: i32,
    /// Variables of either kind; none in a frozen graph.
    pub variables: usize,
    /// Whether gradients or an optimizer are in it.
    pub training: bool,
    /// What must be fed.
    pub inputs: Vec<Input>,
    /// What one could ask for, best first.
    pub outputs: Vec<Output>,
    /// Batch and length fixed at export.
    pub baked: Baked,
    /// Op types with their counts, most frequent first.
    pub ops: Vec<OpCount>,
}

/// A tensor that must be fed.
#[derive(Clone, Debug, Serialize)]
pub struct Input {
    /// `node:port`.
    pub tensor: String,
    /// The node's op.
    pub op: String,
    /// `DT_INT32` and so on.
    pub dtype: String,
    /// `[?, 128]`; `unknown` if not even the rank is known.
    pub shape: String,
    /// Whether anything reads it.
    pub used: bool,
    #[serde(skip)]
    dims: Option<Vec<i64>>,
}

/// A tensor that may be what the user is after.
#[derive(Clone, Debug, Serialize)]
pub struct Output {
    /// `node:port`; several ports with commas.
    pub tensor: String,
    /// The node's op.
    pub op: String,
    /// Why it is in the list, and at this place.
    pub reason: String,
    #[serde(skip)]
    rank: u8,
}

/// An op type and how often it occurs.
#[derive(Clone, Debug, Serialize)]
pub struct OpCount {
    /// The op type.
    pub op: String,
    /// Nodes of that type.
    pub count: usize,
}

/// Sizes that the exporter fixed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Baked {
    /// The only batch size that works, if there is one.
    pub batch: Option<i64>,
    /// The only sequence length that works, if there is one.
    pub sequence: Option<i64>,
    /// The nodes that hold them.
    pub places: Vec<Place>,
}

/// One node that holds a fixed size.
#[derive(Clone, Debug, Serialize)]
pub struct Place {
    /// The node.
    pub node: String,
    /// What it holds: a shape.
    pub value: String,
    /// `batch`, `sequence`, `batch × sequence` or two of them.
    pub holds: String,
}

/// Summarises `graph`; the signatures, where a SavedModel or MetaGraph has them, name outputs.
pub fn summarise(graph: &GraphDef, signatures: &BTreeMap<String, SignatureDef>) -> GraphReport {
    let wires = Wires::of(graph);
    let inputs = wires.inputs();
    let outputs = wires.outputs(signatures);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for node in &graph.node {
        *counts.entry(&node.op).or_default() += 1;
    }
    let mut ops: Vec<OpCount> =
        counts.into_iter().map(|(op, count)| OpCount { op: op.into(), count }).collect();
    ops.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.op.cmp(&b.op)));
    GraphReport {
        nodes: graph.node.len(),
        functions: graph.library.as_ref().map_or(0, |library| library.function.len()),
        producer: graph.versions.as_ref().map_or(0, |versions| versions.producer),
        variables: graph.node.iter().filter(|node| is_variable(&node.op)).count(),
        training: graph.node.iter().any(|node| is_training(&node.name)),
        baked: wires.baked(&inputs),
        inputs,
        outputs,
        ops,
    }
}

/// Whether the op holds a variable, by reference or as a resource.
pub fn is_variable(op: &str) -> bool {
    matches!(op, "Variable" | "VariableV2" | "VarHandleOp" | "AutoReloadVariable")
}

fn is_training(name: &str) -> bool {
    name.split('/').any(|scope| scope.starts_with("gradients"))
}

/// Nodes that bring data into the graph.
fn is_input(op: &str) -> bool {
    matches!(op, "Placeholder" | "PlaceholderV2" | "PlaceholderWithDefault" | "IteratorGetNext")
}

/// Nodes that no one wants as an output: bookkeeping of TensorFlow's own.
fn is_bookkeeping(node: &NodeDef) -> bool {
    const OPS: [&str; 20] = [
        "NoOp",
        "Const",
        "Assign",
        "AssignAdd",
        "AssignSub",
        "AssignVariableOp",
        "VarHandleOp",
        "VariableV2",
        "Variable",
        "VarIsInitializedOp",
        "IsVariableInitialized",
        "MakeIterator",
        "IteratorToStringHandle",
        "IteratorV2",
        "SaveV2",
        "SaveSlices",
        "RestoreV2",
        "MergeV2Checkpoints",
        "ScalarSummary",
        "MergeSummary",
    ];
    const SCOPES: [&str; 4] = ["save", "report_uninitialized_variables", "global_step", "init"];
    let scope = node.name.split('/').next().unwrap_or_default();
    OPS.contains(&node.op.as_str())
        || SCOPES.iter().any(|s| scope == *s || scope.starts_with(&format!("{s}_")))
        || is_training(&node.name)
        || is_input(&node.op)
}

/// The graph with its edges resolved once.
struct Wires<'a> {
    graph: &'a GraphDef,
    index: HashMap<&'a str, usize>,
    /// For each node, those that read one of its outputs, with the port they read.
    readers: Vec<Vec<(usize, u32)>>,
}

impl<'a> Wires<'a> {
    fn of(graph: &'a GraphDef) -> Self {
        let index: HashMap<&str, usize> =
            graph.node.iter().enumerate().map(|(i, node)| (node.name.as_str(), i)).collect();
        let mut readers = vec![Vec::new(); graph.node.len()];
        for (reader, node) in graph.node.iter().enumerate() {
            for input in &node.input {
                if let Some((name, port)) = data_edge(input)
                    && let Some(&from) = index.get(name)
                {
                    readers[from].push((reader, port));
                }
            }
        }
        Self { graph, index, readers }
    }

    fn node(&self, name: &str) -> Option<&'a NodeDef> {
        self.index.get(name).map(|&i| &self.graph.node[i])
    }

    /// The node that feeds the given input, through any Identity.
    fn producer(&self, node: &NodeDef, input: usize) -> Option<&'a NodeDef> {
        let mut found = self.node(data_edge(node.input.get(input)?)?.0)?;
        // A chain of identities is as long as the graph at most, even if a hostile one is a ring.
        for _ in 0..self.graph.node.len() {
            if found.op != "Identity" {
                break;
            }
            found = self.node(data_edge(found.input.first()?)?.0)?;
        }
        Some(found)
    }

    /// All forward nodes that depend on one of `roots` by data: the optimizer's, which depend on
    /// them by way of the gradients, are not among them.
    fn downstream(&self, roots: impl Iterator<Item = usize>) -> HashSet<usize> {
        let mut seen: HashSet<usize> = HashSet::new();
        let mut open: Vec<usize> = roots.collect();
        while let Some(node) = open.pop() {
            if !is_training(&self.graph.node[node].name) && seen.insert(node) {
                open.extend(self.readers[node].iter().map(|&(reader, _)| reader));
            }
        }
        seen
    }

    fn inputs(&self) -> Vec<Input> {
        let mut inputs = Vec::new();
        for (i, node) in self.graph.node.iter().enumerate() {
            // `save/filename` and its like are fed by nobody.
            if !is_input(&node.op) || node.name.starts_with("save/") {
                continue;
            }
            let (types, shapes) = if node.op == "IteratorGetNext" {
                (type_list(node, "output_types"), shape_list(node, "output_shapes"))
            } else {
                (type_attr(node, "dtype"), shape_attr(node))
            };
            for (port, &number) in types.iter().enumerate() {
                inputs.push(Input {
                    tensor: format!("{}:{port}", node.name),
                    op: node.op.clone(),
                    dtype: dtype::name(number),
                    shape: shapes.get(port).map_or("unknown".into(), show_shape),
                    used: self.readers[i].iter().any(|&(_, read)| read as usize == port),
                    dims: shapes.get(port).filter(|shape| !shape.unknown_rank).map(dims),
                });
            }
        }
        inputs
    }

    fn outputs(&self, signatures: &BTreeMap<String, SignatureDef>) -> Vec<Output> {
        let nodes = &self.graph.node;
        let fed = self.downstream((0..nodes.len()).filter(|&i| is_input(&nodes[i].op)));
        let mut outputs: Vec<Output> = Vec::new();
        for (key, signature) in signatures {
            for (name, info) in &signature.outputs {
                if let Some(tensor_info::Encoding::Name(tensor)) = &info.encoding {
                    let node = tensor.split(':').next().unwrap_or_default();
                    outputs.push(Output {
                        tensor: tensor.clone(),
                        op: self.node(node).map_or(String::new(), |node| node.op.clone()),
                        reason: format!("output `{name}` of the signature `{key}`"),
                        rank: 0,
                    });
                }
            }
        }
        let losses = self.losses();
        for (i, node) in nodes.iter().enumerate() {
            if is_bookkeeping(node) || !fed.contains(&i) {
                continue;
            }
            let Some((rank, reason)) = self.judge(i, &losses) else { continue };
            let tensor = match node.op.as_str() {
                "Unpack" | "Split" => {
                    let ports = int_attr(node, "num").or(int_attr(node, "num_split")).unwrap_or(1);
                    let ports: Vec<String> = (0..ports.clamp(1, 8))
                        .map(|port| format!("{}:{port}", node.name))
                        .collect();
                    ports.join(",")
                }
                _ => format!("{}:0", node.name),
            };
            if !outputs.iter().any(|known| known.tensor == tensor) {
                outputs.push(Output { tensor, op: node.op.clone(), reason, rank });
            }
        }
        outputs.sort_by_key(|output| output.rank); // stable: graph order within a rank
        outputs
    }

    /// Rank (0 is best) and reason of a node that depends on the inputs; `None` if it is nothing
    /// that one would ask for.
    fn judge(&self, i: usize, losses: &HashSet<&str>) -> Option<(u8, String)> {
        let node = &self.graph.node[i];
        let name = node.name.as_str();
        let unread =
            self.readers[i].iter().all(|&(reader, _)| is_bookkeeping(&self.graph.node[reader]));
        match node.op.as_str() {
            "Unpack" if self.reads_variable(node, "squad/output_bias", 6) => {
                return Some((1, "start and end logits of a question-answering head".into()));
            }
            "Unpack" if unread && name.ends_with("unstack") => {
                return Some((
                    1,
                    "start and end logits, as a question-answering head splits them".into(),
                ));
            }
            "Softmax" if !name.contains("attention") => {
                return Some((2, "probabilities: a softmax outside of attention".into()));
            }
            "BiasAdd" if self.reads_variable(node, "output_bias", 2) => {
                return Some((3, "logits: adds the head's `output_bias`".into()));
            }
            "LogSoftmax" if name.contains("predictions") => {
                return Some((4, "log-probabilities of the masked tokens".into()));
            }
            "LogSoftmax" if name.contains("seq_relationship") => {
                return Some((4, "log-probabilities of “is the next sentence”".into()));
            }
            "Tanh" if name.ends_with("pooler/dense/Tanh") => {
                return Some((5, "the pooled output, one row for each sequence".into()));
            }
            _ => {}
        }
        if self.feeds_pooler(i) {
            return Some((
                6,
                "the sequence output: what the pooler reads, one row for each token".into(),
            ));
        }
        if losses.contains(name) {
            return Some((7, "the training loss: the gradients start here".into()));
        }
        // Shapes and their slices are unread in every graph and are nobody's answer.
        const SHAPE_OPS: [&str; 9] = [
            "Shape",
            "StridedSlice",
            "Less",
            "Greater",
            "Equal",
            "Assert",
            "Range",
            "Size",
            "Rank",
        ];
        if let Some(layer) = self.layer_output(node) {
            return Some((8, format!("the output of layer {layer}, one row for each token")));
        }
        let plain = !SHAPE_OPS.contains(&node.op.as_str()) && node.op != "LogSoftmax";
        (unread && plain).then(|| (9, "nothing in the graph reads it".into()))
    }

    /// Whether the node adds or multiplies a variable whose name ends so, within a few steps up.
    fn reads_variable(&self, node: &NodeDef, suffix: &str, depth: usize) -> bool {
        (0..node.input.len().min(3)).any(|input| {
            self.producer(node, input).is_some_and(|producer| {
                let holds = is_variable(&producer.op)
                    || producer.op == "Const"
                    || producer.op == "ReadVariableOp";
                let variable =
                    producer.name.strip_suffix("/ReadVariableOp").unwrap_or(&producer.name);
                (holds && (variable == suffix || variable.ends_with(&format!("/{suffix}"))))
                    || (depth > 1 && self.reads_variable(producer, suffix, depth - 1))
            })
        })
    }

    /// The layer whose rows a Reshape gives their batch and sequence axes back.
    fn layer_output(&self, node: &NodeDef) -> Option<&'a str> {
        if node.op != "Reshape" || node.name.contains("/layer_") {
            return None;
        }
        let (_, inside) = self.producer(node, 0)?.name.split_once("/layer_")?;
        let (layer, rest) = inside.split_once('/')?;
        rest.starts_with("output/LayerNorm").then_some(layer)
    }

    fn feeds_pooler(&self, i: usize) -> bool {
        self.readers[i].iter().any(|&(reader, _)| {
            let reader = &self.graph.node[reader];
            reader.op == "StridedSlice" && reader.name.ends_with("pooler/strided_slice")
        })
    }

    /// The nodes that the gradients start from. Their gradient is a constant one, `gradients/Fill`;
    /// a sum of losses hands it on without a node of its own, so the sum is found by its terms.
    fn losses(&self) -> HashSet<&'a str> {
        let mut terms = HashSet::new();
        for node in &self.graph.node {
            let reads_one =
                node.input.iter().filter_map(|input| data_edge(input)).any(|(from, _)| {
                    from.split_once('/').is_some_and(|(scope, leaf)| {
                        scope.starts_with("gradients") && leaf == "Fill"
                    })
                });
            if reads_one
                && let Some((_, rest)) = node.name.split_once('/')
                && let Some((forward, _)) = rest.split_once("_grad/")
                && let Some(found) = self.node(forward)
            {
                terms.insert(found.name.as_str());
            }
        }
        let is_sum = |node: &&NodeDef| {
            matches!(node.op.as_str(), "Add" | "AddV2" | "AddN")
                && !is_training(&node.name)
                && node.input.iter().all(|input| terms.contains(input.as_str()))
        };
        let sums: HashSet<&str> =
            self.graph.node.iter().filter(is_sum).map(|node| node.name.as_str()).collect();
        if sums.is_empty() { terms } else { sums }
    }

    /// Fixed batch and length: from the integer inputs of rank two, then the places they went to.
    fn baked(&self, inputs: &[Input]) -> Baked {
        let ids: Vec<(&Input, &[i64])> = inputs
            .iter()
            .filter(|input| input.used && matches!(input.dtype.as_str(), "DT_INT32" | "DT_INT64"))
            .filter_map(|input| Some((input, input.dims.as_deref()?)))
            .filter(|(_, dims)| dims.len() == 2)
            .collect();
        // The length is what most inputs have: masked positions are fewer, labels have 1.
        let lengths = || ids.iter().map(|(_, dims)| dims[1]).filter(|&length| length > 1);
        let votes = |length: i64| lengths().filter(|&other| other == length).count();
        let mut baked = Baked {
            batch: ids.iter().map(|(_, dims)| dims[0]).find(|&batch| batch > 0),
            sequence: lengths().max_by_key(|&length| (votes(length), length)),
            places: Vec::new(),
        };
        for (input, dims) in ids {
            let batch = (baked.batch == Some(dims[0])).then_some("batch");
            let sequence = (baked.sequence == Some(dims[1])).then_some("sequence");
            let holds: Vec<&str> = batch.into_iter().chain(sequence).collect();
            if !holds.is_empty() {
                let (node, value) = (input.tensor.clone(), input.shape.clone());
                baked.places.push(Place { node, value, holds: holds.join(", ") });
            }
        }
        for node in &self.graph.node {
            // Where an op takes a shape: Reshape(x, shape), Fill(dims, x), Slice(x, begin, size), …
            let input = match node.op.as_str() {
                "Reshape" | "BroadcastTo" | "Tile" => 1,
                "Fill" => 0,
                "Slice" => 2,
                _ => continue,
            };
            if is_training(&node.name) {
                continue;
            }
            let Some(dims) = self.producer(node, input).and_then(const_dims) else { continue };
            if let Some(holds) = baked.holds(&dims) {
                let value = format!("{dims:?}");
                baked.places.push(Place { node: node.name.clone(), value, holds });
            }
        }
        baked
    }
}

impl Baked {
    /// Which of the fixed sizes a shape holds, by the places where BERT's shapes have them:
    /// `[b, s, …]`, `[b·s, …]`, `[b, 1, s]`.
    fn holds(&self, dims: &[i64]) -> Option<String> {
        let mut found = Vec::new();
        let first = *dims.first()?;
        let (b, s) = (self.batch, self.sequence);
        if let (Some(b), Some(s)) = (b, s)
            && first == b * s
            && dims.len() <= 2
        {
            found.push(if b == 1 { "sequence" } else { "batch × sequence" });
        } else if b == Some(first) && dims.len() >= 2 {
            found.push("batch");
        } else if s == Some(first) {
            found.push("sequence");
        }
        let second = dims.get(1).copied();
        let in_second = dims.len() >= 3 && second.is_some() && second == s;
        let in_third = dims.len() == 3 && second == Some(1) && dims.get(2).copied() == s;
        if s.is_some() && (in_second || in_third) {
            found.push("sequence");
        }
        // A leading 1 alone says nothing: `[1, 1, …]` broadcasts at any batch.
        if found == ["batch"] && b == Some(1) {
            return None;
        }
        (!found.is_empty()).then(|| found.join(", "))
    }
}

/// `name` and port of an input that carries data; `None` for a control input.
fn data_edge(input: &str) -> Option<(&str, u32)> {
    if input.starts_with('^') {
        return None;
    }
    match input.rsplit_once(':') {
        Some((name, port)) => Some((name, port.parse().ok()?)),
        None => Some((input, 0)),
    }
}

fn attr<'n>(node: &'n NodeDef, name: &str) -> Option<&'n attr_value::Value> {
    node.attr.get(name)?.value.as_ref()
}

fn int_attr(node: &NodeDef, name: &str) -> Option<i64> {
    match attr(node, name)? {
        attr_value::Value::I(value) => Some(*value),
        _ => None,
    }
}

fn type_attr(node: &NodeDef, name: &str) -> Vec<i32> {
    match attr(node, name) {
        Some(attr_value::Value::Type(number)) => vec![*number],
        _ => vec![],
    }
}

fn shape_attr(node: &NodeDef) -> Vec<TensorShapeProto> {
    // TensorFlow before 1.4 wrote the shape of a placeholder as `_output_shapes` only.
    match attr(node, "shape") {
        Some(attr_value::Value::Shape(shape)) => vec![shape.clone()],
        _ => shape_list(node, "_output_shapes"),
    }
}

fn type_list(node: &NodeDef, name: &str) -> Vec<i32> {
    match attr(node, name) {
        Some(attr_value::Value::List(list)) => list.r#type.clone(),
        _ => vec![],
    }
}

fn shape_list(node: &NodeDef, name: &str) -> Vec<TensorShapeProto> {
    match attr(node, name) {
        Some(attr_value::Value::List(list)) => list.shape.clone(),
        _ => vec![],
    }
}

/// The values of a small integer vector constant.
fn const_dims(node: &NodeDef) -> Option<Vec<i64>> {
    const LONGEST: usize = 8; // no shape in a BERT has more axes
    let Some(attr_value::Value::Tensor(proto)) = attr(node, "value") else { return None };
    let shape = tensor_proto::shape(proto.tensor_shape.as_ref()?).ok()?;
    if node.op != "Const" || shape.len() != 1 || shape[0] > LONGEST {
        return None;
    }
    let values = tensor_proto::to_tensor(proto).ok()?.to_f64().ok()?;
    Some(values.into_iter().map(|value| value as i64).collect())
}

fn dims(shape: &TensorShapeProto) -> Vec<i64> {
    shape.dim.iter().map(|dim| dim.size).collect()
}

pub(super) fn show_shape(shape: &TensorShapeProto) -> String {
    if shape.unknown_rank {
        return "unknown".into();
    }
    let dims: Vec<String> = shape
        .dim
        .iter()
        .map(|dim| if dim.size < 0 { "?".into() } else { dim.size.to_string() })
        .collect();
    format!("[{}]", dims.join(", "))
}
