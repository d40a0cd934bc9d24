//! Nodes with names, the edges between them, and the named ends of the graph.
//!
//! Nodes keep the order of their source; [`Graph::topological`] gives an order to compute in. Names
//! are unique and survive every pass, because users cut by name. What is known of the values on
//! the edges is not stored here but computed when it is wanted ([`crate::infer`]), so it cannot
//! be stale.

use std::collections::HashMap;
use std::fmt;

use frazil_tensor::nearest;
use serde::{Deserialize, Serialize};

use crate::op::Op;
use crate::{Error, Result};

/// A node's place in its graph. Removing nodes gives the others new places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub u32);

impl NodeId {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One output of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Value {
    /// The node.
    pub node: NodeId,
    /// Which of its outputs.
    pub port: u32,
}

impl From<NodeId> for Value {
    /// The node's first output.
    fn from(node: NodeId) -> Self {
        Self { node, port: 0 }
    }
}

/// One operation under its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Unique in its graph.
    pub name: String,
    /// What it computes.
    pub op: Op,
    /// From what, in the order that the operation states.
    pub inputs: Vec<Value>,
    /// What must have run before it, without giving it a value.
    pub control: Vec<NodeId>,
    /// Where the source wants it to run; empty for anywhere.
    pub device: String,
}

impl Node {
    /// A node without control inputs that runs anywhere.
    pub fn new(name: impl Into<String>, op: Op, inputs: Vec<Value>) -> Self {
        Self { name: name.into(), op, inputs, control: Vec::new(), device: String::new() }
    }
}

/// A value that the outside knows by a name: an input or an output of the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// The name, `input_ids` or `loss/output` for example.
    pub name: String,
    /// The value.
    pub value: Value,
}

/// A model as operations on named values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct Graph {
    nodes: Vec<Node>,
    #[serde(skip)]
    names: HashMap<String, NodeId>,
    /// What is fed, in the model's order: every input node, once.
    pub inputs: Vec<Port>,
    /// What is wanted, in the model's order.
    pub outputs: Vec<Port>,
}

/// A graph as it is read back, not checked yet.
#[derive(Deserialize)]
struct Stored {
    nodes: Vec<Node>,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
}

impl TryFrom<Stored> for Graph {
    type Error = Error;

    fn try_from(stored: Stored) -> Result<Self> {
        let mut graph = Self { inputs: stored.inputs, outputs: stored.outputs, ..Self::default() };
        for node in stored.nodes {
            graph.push(node)?;
        }
        graph.check()?;
        Ok(graph)
    }
}

impl Graph {
    /// A graph without nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a node; its name must be new. Inputs may point to nodes that come later.
    pub fn push(&mut self, node: Node) -> Result<NodeId> {
        let id = NodeId(u32::try_from(self.nodes.len()).map_err(|_| Error::TooManyNodes)?);
        if self.names.contains_key(&node.name) {
            return Err(Error::DuplicateName { name: node.name });
        }
        self.names.insert(node.name.clone(), id);
        self.nodes.push(node);
        Ok(id)
    }

    /// Adds a node under `name`, or under `name_1`, `name_2`, … where that is taken.
    pub fn push_fresh(&mut self, mut node: Node) -> Result<NodeId> {
        node.name = self.fresh_name(&node.name);
        self.push(node)
    }

    /// `name` itself or, where it is taken, with the first free number.
    pub fn fresh_name(&self, name: &str) -> String {
        if !self.names.contains_key(name) {
            return name.to_owned();
        }
        let mut number = 1usize;
        loop {
            let candidate = format!("{name}_{number}");
            if !self.names.contains_key(&candidate) {
                return candidate;
            }
            number += 1;
        }
    }

    /// Gives a node another name, which must be free.
    pub fn rename(&mut self, id: NodeId, name: impl Into<String>) -> Result<()> {
        let name = name.into();
        if self.names.contains_key(&name) {
            return Err(Error::DuplicateName { name });
        }
        self.names.remove(&self.nodes[id.index()].name);
        self.names.insert(name.clone(), id);
        self.nodes[id.index()].name = name;
        Ok(())
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// All nodes in the source's order.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(i, node)| (NodeId(i as u32), node))
    }

    /// All places, in the source's order.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// The node at a place.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The node at a place, to be changed. Use [`Graph::rename`] for its name.
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.index()]
    }

    /// The node of that name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.names.get(name).copied()
    }

    /// The operation that computes a value.
    pub fn op(&self, value: Value) -> &Op {
        &self.node(value.node).op
    }

    /// `name` for a node's first output, `name:port` for the others.
    pub fn value_name(&self, value: Value) -> String {
        let name = &self.node(value.node).name;
        if value.port == 0 { name.clone() } else { format!("{name}:{}", value.port) }
    }

    /// The value of that name: `name`, `name:0`, `name:1`, …
    pub fn find_value(&self, name: &str) -> Result<Value> {
        let (node, port) = match name.rsplit_once(':') {
            Some((node, port)) if self.find(name).is_none() => {
                let port =
                    port.parse::<u32>().map_err(|_| Error::NotAPort { name: name.to_owned() })?;
                (node, port)
            }
            _ => (name, 0),
        };
        let Some(id) = self.find(node) else {
            let names = self.nodes.iter().map(|node| node.name.as_str());
            let near = nearest(node, names);
            return Err(Error::UnknownNode { name: node.to_owned(), near });
        };
        let outputs = self.node(id).op.outputs();
        if port as usize >= outputs {
            return Err(Error::UnknownPort { name: node.to_owned(), port, outputs });
        }
        Ok(Value { node: id, port })
    }

    /// Who reads each value: consumers and the number of their input.
    pub fn uses(&self) -> HashMap<Value, Vec<(NodeId, usize)>> {
        let mut uses: HashMap<Value, Vec<(NodeId, usize)>> = HashMap::new();
        for (id, node) in self.nodes() {
            for (i, &input) in node.inputs.iter().enumerate() {
                uses.entry(input).or_default().push((id, i));
            }
        }
        uses
    }

    /// Lets every reader of `from`, and every output of the model, read `to` instead.
    pub fn replace_uses(&mut self, from: Value, to: Value) {
        for node in &mut self.nodes {
            for input in &mut node.inputs {
                if *input == from {
                    *input = to;
                }
            }
        }
        for output in &mut self.outputs {
            if output.value == from {
                output.value = to;
            }
        }
    }

    /// All nodes such that each comes after what it reads (control inputs too), in the source's
    /// order otherwise. A cycle is an error, but for TF1's loops: there `Merge` comes before the
    /// `NextIteration` that it reads in the next round.
    pub fn topological(&self) -> Result<Vec<NodeId>> {
        let mut waiting: Vec<usize> = Vec::with_capacity(self.nodes.len());
        let mut readers: Vec<Vec<NodeId>> = vec![Vec::new(); self.nodes.len()];
        for (id, node) in self.nodes() {
            let before =
                node.inputs.iter().map(|value| value.node).chain(node.control.iter().copied());
            let mut count = 0;
            for source in before {
                if self.goes_back(source, node) {
                    continue;
                }
                readers[source.index()].push(id);
                count += 1;
            }
            waiting.push(count);
        }
        // The smallest place first keeps the source's order wherever it is an order to run in.
        let mut ready: std::collections::BinaryHeap<std::cmp::Reverse<NodeId>> =
            self.ids().filter(|id| waiting[id.index()] == 0).map(std::cmp::Reverse).collect();
        let mut order = Vec::with_capacity(self.nodes.len());
        while let Some(std::cmp::Reverse(id)) = ready.pop() {
            order.push(id);
            for reader in &readers[id.index()] {
                waiting[reader.index()] -= 1;
                if waiting[reader.index()] == 0 {
                    ready.push(std::cmp::Reverse(*reader));
                }
            }
        }
        if order.len() < self.nodes.len() {
            let stuck = self.ids().find(|id| waiting[id.index()] > 0);
            let name = stuck.map(|id| self.node(id).name.clone()).unwrap_or_default();
            return Err(Error::Cycle { name });
        }
        Ok(order)
    }

    /// Whether `reader` is the head of a loop and reads `source` from the round before.
    fn goes_back(&self, source: NodeId, reader: &Node) -> bool {
        let foreign = |op: &Op, names: [&str; 2]| match op {
            Op::Foreign(op) => names.contains(&op.op.as_str()),
            _ => false,
        };
        foreign(&reader.op, ["Merge", "RefMerge"])
            && foreign(&self.node(source).op, ["NextIteration", "RefNextIteration"])
    }

    /// Marks what `values` are computed from: themselves, their inputs and control inputs, all
    /// the way up.
    pub fn ancestors(&self, values: impl IntoIterator<Item = NodeId>) -> Vec<bool> {
        let mut marked = vec![false; self.nodes.len()];
        let mut stack: Vec<NodeId> = values.into_iter().collect();
        while let Some(id) = stack.pop() {
            if std::mem::replace(&mut marked[id.index()], true) {
                continue;
            }
            let node = self.node(id);
            stack.extend(node.inputs.iter().map(|value| value.node));
            stack.extend(&node.control);
        }
        marked
    }

    /// Keeps the marked nodes only. Inputs of the model that go are dropped from its list; a kept
    /// node must not read one that goes (control inputs that go are dropped).
    pub fn retain(&mut self, keep: &[bool]) {
        let mut places = Vec::with_capacity(self.nodes.len());
        let mut next = 0u32;
        for &kept in keep {
            places.push(kept.then_some(NodeId(next)));
            next += u32::from(kept);
        }
        let moved = |value: Value| -> Option<Value> {
            places[value.node.index()].map(|node| Value { node, port: value.port })
        };
        let mut kept = keep.iter();
        self.nodes.retain(|_| *kept.next().unwrap_or(&false));
        for node in &mut self.nodes {
            for input in &mut node.inputs {
                *input = moved(*input).expect("a kept node reads kept nodes only");
            }
            node.control = node.control.iter().filter_map(|id| places[id.index()]).collect();
        }
        let move_ports = |ports: &mut Vec<Port>| {
            ports.retain_mut(|port| match moved(port.value) {
                Some(value) => {
                    port.value = value;
                    true
                }
                None => false,
            });
        };
        move_ports(&mut self.inputs);
        move_ports(&mut self.outputs);
        self.names = self.nodes().map(|(id, node)| (node.name.clone(), id)).collect();
    }

    /// Removes what no output needs. Returns how many nodes went.
    pub fn prune(&mut self) -> usize {
        let keep = self.ancestors(self.outputs.iter().map(|port| port.value.node));
        let before = self.len();
        self.retain(&keep);
        before - self.len()
    }

    /// Whether the graph is one: names unique, edges to nodes and ports that exist, as many inputs
    /// as each operation takes, no cycle, every input node listed once, named ends that exist.
    pub fn check(&self) -> Result<()> {
        for (id, node) in self.nodes() {
            let name = || node.name.clone();
            if self.find(&node.name) != Some(id) {
                return Err(Error::DuplicateName { name: name() });
            }
            let (least, most) = node.op.arity();
            let found = node.inputs.len();
            if found < least || found > most {
                let op = node.op.to_string();
                return Err(Error::Arity { name: name(), op, least, most, found });
            }
            for value in &node.inputs {
                self.check_value(&node.name, *value)?;
            }
            for before in &node.control {
                self.check_value(&node.name, Value { node: *before, port: 0 }).or_else(
                    |error| match error {
                        // A node without outputs can still be waited for.
                        Error::UnknownPort { .. } => Ok(()),
                        other => Err(other),
                    },
                )?;
            }
            let listed = self.inputs.iter().filter(|port| port.value.node == id).count();
            if listed != usize::from(node.op.is_input()) {
                return Err(Error::InputList { name: name(), listed });
            }
        }
        for port in self.inputs.iter().chain(&self.outputs) {
            self.check_value(&port.name, port.value)?;
        }
        for ports in [&self.inputs, &self.outputs] {
            let mut names: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
            names.sort_unstable();
            if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(Error::DuplicateName { name: pair[0].to_owned() });
            }
        }
        self.topological().map(|_| ())
    }

    fn check_value(&self, reader: &str, value: Value) -> Result<()> {
        let Some(node) = self.nodes.get(value.node.index()) else {
            return Err(Error::Dangling { reader: reader.to_owned() });
        };
        let outputs = node.op.outputs();
        if value.port as usize >= outputs {
            return Err(Error::UnknownPort { name: node.name.clone(), port: value.port, outputs });
        }
        Ok(())
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}
