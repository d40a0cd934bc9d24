//! From layers to a graph: the plumbing. Which layer becomes which operation is in
//! [`super::layers`].

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use bytes::Bytes;
use frazil_graph::op::{Cast, Declared, Foreign, Input, Op};
use frazil_graph::{Dim, Graph, Node, Port, Symbol, Value, pass};
use frazil_tensor::{DType, Element, Tensor};

use super::RESULT_SUFFIX;
use super::net::dtype_named;
use super::read::{RawLayer, RawNet, read};
use crate::{Error, Result};

/// A constant that stands for an attribute has no more elements than this: one for each axis.
const MOST_LIST: usize = 64;

/// Reads the representation, with its constants as windows on `weights`.
pub(super) fn import(xml: &[u8], weights: &Bytes) -> Result<Graph> {
    let net = read(xml)?;
    let order = order(&net)?;
    let sources = sources(&net)?;
    let mut importer = Importer {
        graph: Graph::new(),
        values: HashMap::new(),
        weights,
        widened: HashMap::new(),
        // Each byte of the file may be widened once, and a little more; what is beyond that is
        // widened when the graph runs.
        budget: weights.len().saturating_mul(2).saturating_add(1 << 16),
    };
    // The model's ends are in the file's order, whatever the order of computing is.
    let mut inputs: Vec<(usize, Port)> = Vec::new();
    let mut outputs: Vec<(usize, Port)> = Vec::new();
    for place in order {
        let layer = &net.layers[place];
        let mut read = Vec::with_capacity(layer.inputs.len());
        for port in &layer.inputs {
            let Some(&(from, from_port)) = sources.get(&(place, port.id)) else {
                return Err(layer.wrong(format!("nothing leads to its port {}", port.id)));
            };
            let value = importer.values.get(&(from, from_port)).copied().ok_or_else(|| {
                layer.wrong(format!("its port {} reads an output that is not there", port.id))
            })?;
            read.push(value);
        }
        let values = match layer.kind.as_str() {
            "Result" => {
                let [value] = read.as_slice() else {
                    return Err(layer.wrong("a result reads one value"));
                };
                let (from, from_port) = sources[&(place, layer.inputs[0].id)];
                let name = output_name(layer, &net.layers[from], from_port);
                outputs.push((place, Port { name, value: *value }));
                continue;
            }
            "Parameter" => {
                let value = importer.parameter(layer)?;
                inputs.push((place, Port { name: input_name(layer), value }));
                vec![value]
            }
            _ => importer.layer(layer, &read)?,
        };
        for (port, value) in layer.outputs.iter().zip(values) {
            importer.values.insert((place, port.id), value);
        }
    }
    let mut graph = importer.graph;
    graph.inputs = in_file_order(inputs);
    graph.outputs = in_file_order(outputs);
    pass::raise_bytes(&mut graph)?;
    graph.check()?;
    Ok(graph)
}

fn in_file_order(mut ports: Vec<(usize, Port)>) -> Vec<Port> {
    ports.sort_by_key(|(place, _)| *place);
    let mut taken = std::collections::HashSet::new();
    let mut list = Vec::with_capacity(ports.len());
    for (_, mut port) in ports {
        let name = port.name.clone();
        let mut number = 0;
        while !taken.insert(port.name.clone()) {
            number += 1;
            port.name = format!("{name}_{number}");
        }
        list.push(port);
    }
    list
}

/// What callers know an input by: a name beside the layer's own, where there is just one.
pub(super) fn input_name(layer: &RawLayer) -> String {
    let own = format!("{}:0", layer.name);
    let names = layer.outputs.first().map(|port| port.names.as_slice()).unwrap_or_default();
    let others: Vec<&String> =
        names.iter().filter(|name| **name != layer.name && **name != own).collect();
    match others.as_slice() {
        [one] if **one != layer.name.trim_end_matches(":0") => (*one).clone(),
        _ => layer.name.strip_suffix(":0").unwrap_or(&layer.name).to_owned(),
    }
}

/// What callers know an output by: the result's own name if it is made as Model Optimizer and
/// frazil make it, else a name of what it reads.
pub(super) fn output_name(result: &RawLayer, from: &RawLayer, from_port: u64) -> String {
    if let Some(name) = result.name.strip_suffix(RESULT_SUFFIX) {
        return name.to_owned();
    }
    let port = from.outputs.iter().find(|port| port.id == from_port);
    let names = port.map(|port| port.names.as_slice()).unwrap_or_default();
    let name = names.iter().find(|name| !name.contains(':')).or(names.first());
    let name = name.unwrap_or(&from.name);
    name.strip_suffix(":0").unwrap_or(name).to_owned()
}

/// Where each input port reads from: layer and port.
pub(super) type Sources = HashMap<(usize, u64), (usize, u64)>;

fn places(net: &RawNet) -> Result<HashMap<u64, usize>> {
    let mut places = HashMap::with_capacity(net.layers.len());
    for (place, layer) in net.layers.iter().enumerate() {
        if places.insert(layer.id, place).is_some() {
            return Err(layer.wrong(format!("another layer has the id {}, too", layer.id)));
        }
    }
    Ok(places)
}

pub(super) fn sources(net: &RawNet) -> Result<Sources> {
    let places = places(net)?;
    let mut sources = HashMap::with_capacity(net.edges.len());
    for edge in &net.edges {
        let (Some(&from), Some(&to)) = (places.get(&edge.from_layer), places.get(&edge.to_layer))
        else {
            let (at, reason) = (
                0,
                format!(
                    "an edge leads from layer {} to layer {}, and one of them is not there",
                    edge.from_layer, edge.to_layer
                ),
            );
            return Err(Error::IrText { at, reason });
        };
        if sources.insert((to, edge.to_port), (from, edge.from_port)).is_some() {
            let reason = format!("two edges lead to its port {}", edge.to_port);
            return Err(net.layers[to].wrong(reason));
        }
    }
    Ok(sources)
}

/// The layers such that each comes after what it reads, in the file's order otherwise.
fn order(net: &RawNet) -> Result<Vec<usize>> {
    let places = places(net)?;
    let mut waiting = vec![0usize; net.layers.len()];
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); net.layers.len()];
    for edge in &net.edges {
        if let (Some(&from), Some(&to)) = (places.get(&edge.from_layer), places.get(&edge.to_layer))
        {
            waiting[to] += 1;
            readers[from].push(to);
        }
    }
    let mut ready: BinaryHeap<Reverse<usize>> =
        (0..net.layers.len()).filter(|place| waiting[*place] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(net.layers.len());
    while let Some(Reverse(place)) = ready.pop() {
        order.push(place);
        for &reader in &readers[place] {
            waiting[reader] -= 1;
            if waiting[reader] == 0 {
                ready.push(Reverse(reader));
            }
        }
    }
    match waiting.iter().position(|count| *count > 0) {
        None => Ok(order),
        Some(stuck) => Err(net.layers[stuck].wrong("it waits for itself")),
    }
}

pub(super) struct Importer<'w> {
    pub graph: Graph,
    values: HashMap<(usize, u64), Value>,
    weights: &'w Bytes,
    /// Constants that were compressed, by place and size.
    widened: HashMap<(usize, usize), Tensor>,
    budget: usize,
}

impl Importer<'_> {
    /// Adds a node under the layer's name.
    pub fn node(&mut self, layer: &RawLayer, op: Op, inputs: &[Value]) -> Result<Value> {
        self.named(&layer.name, op, inputs)
    }

    /// Adds a node in between, named under the layer.
    pub fn step(
        &mut self,
        layer: &RawLayer,
        what: &str,
        op: Op,
        inputs: &[Value],
    ) -> Result<Value> {
        self.named(&format!("{}/{what}", layer.name), op, inputs)
    }

    fn named(&mut self, name: &str, op: Op, inputs: &[Value]) -> Result<Value> {
        Ok(self.graph.push_fresh(Node::new(name, op, inputs.to_vec()))?.into())
    }

    /// A list of integers that an operation needs and the layer has as an attribute.
    pub fn list(&mut self, layer: &RawLayer, what: &str, elements: Vec<i64>) -> Result<Value> {
        let tensor = Tensor::from_vec([elements.len()], elements)?;
        self.step(layer, what, Op::constant(tensor), &[])
    }

    /// A single number that an operation needs and the layer has as an attribute.
    pub fn scalar<T: Element>(&mut self, layer: &RawLayer, what: &str, value: T) -> Result<Value> {
        let tensor = Tensor::from_vec(frazil_tensor::Shape::scalar(), vec![value])?;
        self.step(layer, what, Op::constant(tensor), &[])
    }

    /// The elements of an integer constant of a moderate size.
    pub fn integers(&self, value: Value) -> Option<Vec<i64>> {
        let tensor = self.graph.op(value).as_const()?;
        if tensor.elements() > MOST_LIST {
            return None;
        }
        match tensor.dtype() {
            DType::I64 => tensor.values::<i64>().ok().map(|v| v.to_vec()),
            DType::I32 => {
                tensor.values::<i32>().ok().map(|v| v.iter().map(|&x| x.into()).collect())
            }
            _ => None,
        }
    }

    /// A constant as a window on the weights.
    pub fn constant(&mut self, layer: &RawLayer) -> Result<Vec<Value>> {
        let (dtype, shape, bytes) = self.window(layer)?;
        let tensor =
            Tensor::new(dtype, shape, bytes).map_err(|error| layer.wrong(error.to_string()))?;
        Ok(vec![self.node(layer, Op::constant(tensor), &[])?])
    }

    fn window(&self, layer: &RawLayer) -> Result<(DType, Vec<usize>, Bytes)> {
        let dtype = self.dtype_attribute(layer, "element_type")?;
        let shape = match layer.get("shape").map(str::trim) {
            None | Some("") => vec![],
            Some(text) => text
                .split(',')
                .map(|dim| dim.trim().parse::<usize>())
                .collect::<std::result::Result<Vec<_>, _>>()
                .map_err(|_| layer.wrong(format!("`{text}` is no shape")))?,
        };
        let offset = self.number::<usize>(layer, "offset")?;
        let size = self.number::<usize>(layer, "size")?;
        let end = offset.checked_add(size).filter(|end| *end <= self.weights.len());
        let Some(end) = end else {
            return Err(layer.wrong(format!(
                "its {size} bytes from {offset} on are not in the `.bin` of {} bytes",
                self.weights.len()
            )));
        };
        Ok((dtype, shape, self.weights.slice(offset..end)))
    }

    /// A conversion: of a compressed constant at once, where that does not cost too much.
    pub fn convert(&mut self, layer: &RawLayer, from: Value) -> Result<Vec<Value>> {
        let to = self.dtype_attribute(layer, "destination_type")?;
        let narrow = self.graph.op(from).as_const().filter(|t| t.dtype() == DType::F16).cloned();
        if let (Some(narrow), DType::F32) = (narrow, to) {
            let bytes = narrow.bytes()?;
            let key = (bytes.as_ptr() as usize, bytes.len());
            if !self.widened.contains_key(&key) && narrow.byte_len() * 2 <= self.budget {
                self.budget -= narrow.byte_len() * 2;
                let wide: Vec<f32> =
                    narrow.values::<half::f16>()?.iter().map(|h| h.to_f32()).collect();
                let wide = Tensor::from_vec([wide.len()], wide)?;
                self.widened.insert(key, wide);
            }
            if let Some(wide) = self.widened.get(&key) {
                let bytes = wide.bytes()?.clone();
                let tensor = Tensor::new(DType::F32, narrow.shape().clone(), bytes)?;
                return Ok(vec![self.node(layer, Op::constant(tensor), &[])?]);
            }
        }
        Ok(vec![self.node(layer, Op::Cast(Cast { to }), &[from])?])
    }

    fn parameter(&mut self, layer: &RawLayer) -> Result<Value> {
        let dtype = self.dtype_attribute(layer, "element_type")?;
        let dims = match layer.get("shape").map(str::trim) {
            Some("...") => None,
            None | Some("") => Some(vec![]),
            Some(text) => {
                let mut dims = Vec::new();
                for (axis, dim) in text.split(',').enumerate() {
                    dims.push(self.extent(layer, axis, dim.trim())?);
                }
                Some(dims)
            }
        };
        self.node(layer, Op::Input(Input { dtype, dims }), &[])
    }

    /// An extent of an input: a number, or a symbol by its place.
    fn extent(&self, layer: &RawLayer, axis: usize, text: &str) -> Result<Dim> {
        let open = matches!(text, "?" | "-1") || text.contains("..");
        if open {
            return Ok(match axis {
                0 => Dim::batch(),
                1 => Dim::seq(),
                _ => Dim::symbol(Symbol::new(format!("?{}.{axis}", layer.name))),
            });
        }
        let extent = text.parse::<i64>().ok().filter(|extent| *extent >= 0);
        let wrong = || layer.wrong(format!("`{text}` is no extent"));
        extent.map(Dim::known).ok_or_else(wrong)
    }

    /// An attribute that names a type.
    pub fn dtype_attribute(&self, layer: &RawLayer, key: &str) -> Result<DType> {
        let Some(name) = layer.get(key) else {
            return Err(layer.wrong(format!("it has no `{key}`")));
        };
        dtype_named(name).ok_or_else(|| layer.wrong(format!("frazil has no type `{name}`")))
    }

    /// An attribute that is a number.
    pub fn number<T: std::str::FromStr>(&self, layer: &RawLayer, key: &str) -> Result<T> {
        let Some(text) = layer.get(key) else {
            return Err(layer.wrong(format!("it has no `{key}`")));
        };
        text.trim().parse().map_err(|_| layer.wrong(format!("`{key}` is `{text}`, not a number")))
    }

    /// An attribute that is a truth value.
    pub fn truth(&self, layer: &RawLayer, key: &str, default: bool) -> Result<bool> {
        match layer.get(key).map(str::trim) {
            None => Ok(default),
            Some("true" | "True" | "1") => Ok(true),
            Some("false" | "False" | "0") => Ok(false),
            Some(other) => Err(layer.wrong(format!("`{key}` is `{other}`, not true or false"))),
        }
    }

    /// What frazil has no operation for is carried by name; it says so when it is to run.
    pub fn foreign(&mut self, layer: &RawLayer, read: &[Value]) -> Result<Vec<Value>> {
        use frazil_graph::op::Attr;
        let attrs = layer
            .data
            .iter()
            .map(|(key, value)| (key.clone(), Attr::Str(Bytes::from(value.clone().into_bytes()))))
            .collect();
        let outputs: Vec<Declared> =
            layer.outputs.iter().map(|port| Declared { dtype: port.dtype, dims: None }).collect();
        let count = outputs.len();
        let op = Op::Foreign(Foreign { op: layer.kind.clone(), attrs, outputs });
        let node = self.node(layer, op, read)?.node;
        Ok((0..count as u32).map(|port| Value { node, port }).collect())
    }
}
