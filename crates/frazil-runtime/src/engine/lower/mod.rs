//! From a graph to steps: which nodes have a fast kernel, what joins its neighbour, and where
//! every value lies.
//!
//! A node without a fast kernel is a plain step on tensors; what is fast around it stays fast.

mod bytes;
mod linear;
mod training;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use frazil_graph::op::{Binary, Steps, Unary};
use frazil_graph::{Dim, Facts, Graph, Node, NodeId, Op, Symbol, Value, infer};
use frazil_kernels::Isa;
use frazil_kernels::attention::OperandSteps;
use frazil_tensor::{DType, Tensor};

use self::bytes::{ByteWeights, OnSteps};
use super::program::{
    Attention, Embed, ExtentId, Kind, Norm, Place, Program, Quantized, Sequences, Step, Storage,
    Stride, Target, View, Work,
};
use super::survey::{
    activation, compute_constant, known_symbols, padded, refuse_nan, without_constants,
};
use super::weights::Table;
use super::{PackedWeights, memory};
use crate::plan::{Plan, Variables};
use crate::{Error, Result, ops};

/// Why a node is left to the plain kernels.
type Reason = String;

/// The program of a graph that was raised (and packed, if it is to be).
pub(crate) fn lower(
    graph: Graph,
    isa: Isa,
    before: Option<&PackedWeights>,
    variables: Variables,
) -> Result<Program> {
    let plan = Plan::with(&graph, &graph.outputs, variables)?;
    let facts = infer(&graph)?;
    let needed: HashSet<NodeId> = plan.steps.iter().map(|step| step.node).collect();
    let mut uses: HashMap<Value, Vec<NodeId>> = HashMap::new();
    for step in &plan.steps {
        for &input in &graph.node(step.node).inputs {
            uses.entry(input).or_default().push(step.node);
        }
    }
    for port in &graph.outputs {
        // An output is one reader more, so that nothing swallows it.
        uses.entry(port.value).or_default().push(port.value.node);
    }
    let constant: Vec<NodeId> =
        plan.steps.iter().filter(|step| step.constant).map(|step| step.node).collect();
    let weights = ByteWeights::find(&graph, &facts, &uses, &constant);
    let mut constants = HashMap::new();
    for &id in &constant {
        // Of a compiled model that was done when it was compiled: here it would read every table.
        if before.is_none() {
            refuse_nan(&graph, id)?;
        }
        if !weights.only(id.into()) {
            compute_constant(&graph, id, &mut constants)?;
        }
    }
    // From here on only `constants` has them: a weight that is packed can be let go.
    let graph = without_constants(graph);
    let is_variable = |id: &NodeId| matches!(graph.node(*id).op, Op::Variable(_));
    let variables: HashMap<NodeId, usize> = match variables {
        Variables::Given => graph.ids().filter(is_variable).zip(0..).collect(),
        _ => HashMap::new(),
    };
    let mut lowering = Lowering {
        facts,
        uses,
        symbols: known_symbols(&graph, &needed),
        constants,
        lowered: HashMap::new(),
        places: HashMap::new(),
        done: HashSet::new(),
        extents: BTreeMap::new(),
        isa,
        before,
        weights,
        absorbed: Vec::new(),
        bytes: Vec::new(),
        deferred: HashSet::new(),
        factors: HashMap::new(),
        columns: HashMap::new(),
        transposed: HashMap::new(),
        program: Program {
            graph: Graph::new(),
            isa,
            steps: Vec::new(),
            extents: Vec::new(),
            blocks: 0,
            storages: Vec::new(),
            tensors: 0,
            lists: 0,
            parameters: variables.len(),
            constants: Vec::new(),
            linears: Vec::new(),
            linears_i8: Vec::new(),
            outputs: Vec::new(),
            ready: Vec::new(),
            slow: Vec::new(),
            absorbed: Vec::new(),
        },
        graph: &graph,
        variables,
    };
    constant.iter().for_each(|&id| lowering.let_go(id));
    let groups = lowering.groups(&plan);
    for step in plan.steps.iter().filter(|step| !step.constant) {
        if !lowering.done.contains(&step.node) {
            lowering.node(step.node, &groups)?;
        }
        lowering.let_go(step.node);
    }
    for port in &graph.outputs {
        let place = lowering.place(port.value);
        lowering.program.outputs.push((port.name.clone(), place));
    }
    let absorbed = lowering.absorbed();
    let mut program = lowering.program;
    program.absorbed = absorbed;
    memory::drop_unread(&mut program);
    memory::find_ready(&mut program);
    memory::assign_blocks(&mut program);
    program.graph = graph;
    Ok(program)
}

struct Lowering<'g> {
    graph: &'g Graph,
    facts: Facts,
    /// The nodes that read a value, once for each time.
    uses: HashMap<Value, Vec<NodeId>>,
    symbols: HashSet<Symbol>,
    /// Values that depend on no input, until the last of their readers is lowered.
    constants: HashMap<Value, Tensor>,
    /// How many readers of a constant are.
    lowered: HashMap<Value, usize>,
    places: HashMap<Value, Place>,
    /// Nodes that another node's step computes.
    done: HashSet<NodeId>,
    extents: BTreeMap<Dim, ExtentId>,
    isa: Isa,
    /// Weights that were packed before.
    before: Option<&'g PackedWeights>,
    /// Weights that are bytes, until the last of their readers is lowered.
    weights: ByteWeights,
    /// Weights that products have taken in.
    absorbed: Vec<Absorbed>,
    /// The bytes of rows on steps that have them.
    bytes: Vec<(OnSteps, Quantized)>,
    /// Rows on steps whose numbers nobody has wanted yet.
    deferred: HashSet<NodeId>,
    /// Products with a list, column by column, that are computed on the way to bytes: the rows, and
    /// the list.
    factors: HashMap<NodeId, (Value, Arc<[f32]>)>,
    /// Transpositions without a value of their own, and what they transpose.
    columns: HashMap<NodeId, Value>,
    /// Weights that the caller gives at every run.
    variables: HashMap<NodeId, usize>,
    /// Values whose rows were turned into columns.
    transposed: HashMap<Value, View>,
    program: Program,
}

/// A weight that a product has taken in.
struct Absorbed {
    /// The value that the product reads.
    read: Value,
    /// The constant that it comes from.
    stored: Value,
    /// Whether that is bytes.
    bytes: bool,
}

/// Linear layers over the same rows that one product computes, by their first node.
type Groups = HashMap<NodeId, Vec<NodeId>>;

impl Lowering<'_> {
    /// Whether all that reads a value is a node, also by way of marks and steps.
    fn read_only_by(&self, value: Value, reader: NodeId) -> bool {
        match self.only_reader(value) {
            Some(only) if matches!(self.graph.node(only).op, Op::FakeQuantize(_)) => {
                self.read_only_by(only.into(), reader)
            }
            only => only == Some(reader),
        }
    }

    /// Drops the constants that this node was the last one to read.
    fn let_go(&mut self, id: NodeId) {
        for input in &self.graph.node(id).inputs {
            let lowered = self.lowered.entry(*input).or_default();
            *lowered += 1;
            if self.uses.get(input).is_none_or(|readers| *lowered >= readers.len()) {
                self.constants.remove(input);
                self.weights.remove(*input);
            }
        }
    }

    /// Constants that only products read, and that live in packed weights from now on.
    fn absorbed(&self) -> Vec<String> {
        let sources: BTreeSet<(NodeId, bool)> =
            self.absorbed.iter().map(|taken| (taken.stored.node, taken.bytes)).collect();
        let taken: HashSet<Value> = self.absorbed.iter().map(|taken| taken.read).collect();
        let read_elsewhere = |(id, bytes): (NodeId, bool)| {
            // Through what leads from the constant to the weight, every reader is a product.
            let mut waiting = vec![Value::from(id)];
            while let Some(value) = waiting.pop() {
                if self.places.contains_key(&value) {
                    return true;
                }
                for &reader in self.uses.get(&value).map_or(&[][..], Vec::as_slice) {
                    let node = self.graph.node(reader);
                    match node.op {
                        Op::Unary(Unary::Identity | Unary::StopGradient) => {
                            waiting.push(reader.into());
                        }
                        Op::Scaled(_) | Op::Transpose | Op::Reshape
                            if bytes && node.inputs[0] == value =>
                        {
                            waiting.push(reader.into());
                        }
                        Op::Linear(_) | Op::MatMul(_)
                            if taken.contains(&value) && node.inputs[1] == value => {}
                        _ => return true,
                    }
                }
            }
            false
        };
        let kept = sources.into_iter().filter(|&source| !read_elsewhere(source));
        kept.map(|(id, _)| self.graph.node(id).name.clone()).collect()
    }

    /// Where a value is; constants are brought in when somebody asks for them.
    fn place(&mut self, value: Value) -> Place {
        if let Some(place) = self.places.get(&value) {
            return place.clone();
        }
        if self.deferred.remove(&value.node)
            && let Ok(place) = self.realize(value.node)
        {
            return place;
        }
        let place = if let Some(tensor) = self.constants.get(&value) {
            self.program.constants.push(ops::aligned(tensor.clone()));
            Place::Constant(self.program.constants.len() - 1)
        } else {
            let at = self.graph.inputs.iter().position(|port| port.value == value);
            Place::Input(at.expect("what is neither constant nor computed is fed"))
        };
        self.places.insert(value, place.clone());
        place
    }

    fn step(&mut self, node: NodeId, work: Work) {
        self.program.steps.push(Step { node, work });
    }

    fn dims(&self, value: Value) -> Result<Vec<Dim>, Reason> {
        let fact = &self.facts[value];
        let name = self.graph.value_name(value);
        if fact.dtype != Some(DType::F32) {
            return Err(format!("`{name}` is no float32"));
        }
        let dims = fact.dims.clone().ok_or_else(|| format!("the rank of `{name}` is unknown"))?;
        let open = dims.iter().flat_map(Dim::symbols).find(|s| !self.symbols.contains(s));
        match open {
            Some(symbol) => Err(format!("the extent {symbol} of `{name}` is unknown")),
            None if dims.is_empty() => Err(format!("`{name}` is a scalar")),
            None => Ok(dims),
        }
    }

    fn extent(&mut self, dim: &Dim) -> ExtentId {
        if let Some(&id) = self.extents.get(dim) {
            return id;
        }
        self.program.extents.push(dim.clone());
        let id = self.program.extents.len() - 1;
        self.extents.insert(dim.clone(), id);
        id
    }

    /// Memory for a value that a fast step makes.
    fn view(&mut self, dims: &[Dim]) -> View {
        // What has the extents of a weight is its gradient, and as dense as the weight is.
        let weight = !self.variables.is_empty() && dims.iter().all(|dim| dim.as_known().is_some());
        if weight { self.dense_view(dims) } else { self.view_of(dims, padded) }
    }

    /// The same, without gaps between the rows.
    fn dense_view(&mut self, dims: &[Dim]) -> View {
        self.view_of(dims, |width| width)
    }

    fn view_of(&mut self, dims: &[Dim], stride: impl Fn(usize) -> usize) -> View {
        let dims: Vec<ExtentId> = dims.iter().map(|dim| self.extent(dim)).collect();
        let &last = dims.last().expect("scalars were refused");
        let stride = match self.program.extents[last].as_known() {
            Some(width) => Stride::Known(stride(width as usize)),
            None => Stride::Extent(last),
        };
        self.program.storages.push(Storage { block: 0, stride, kind: Kind::F32 });
        View { storage: self.program.storages.len() - 1, column: 0, dims }
    }

    /// Whether the rows of a view have no gaps between them.
    fn is_dense(&self, view: &View) -> bool {
        let width = view.dims.last().and_then(|&last| self.program.extents[last].as_known());
        match (self.program.storages[view.storage].stride, width) {
            (Stride::Known(stride), Some(width)) => stride == width as usize,
            _ => false,
        }
    }

    /// The only node that reads a value, if there is just one.
    fn only_reader(&self, value: Value) -> Option<NodeId> {
        match self.uses.get(&value).map(Vec::as_slice) {
            Some(&[reader]) if reader != value.node => Some(reader),
            _ => None,
        }
    }

    fn constant(&self, value: Value) -> Result<&Tensor, Reason> {
        let name = || format!("`{}` is not constant", self.graph.value_name(value));
        self.constants.get(&value).ok_or_else(name)
    }

    fn vector(&self, value: Value) -> Result<Vec<f32>, Reason> {
        let tensor = self.constant(value)?;
        match tensor.values::<f32>() {
            Ok(values) if tensor.shape().len() == 1 => Ok(values.into_owned()),
            _ => Err(format!("`{}` is no list of float32", self.graph.value_name(value))),
        }
    }

    /// A value whose rows a fast kernel can read.
    fn rows(&mut self, value: Value) -> Result<(Place, Vec<Dim>), Reason> {
        let dims = self.dims(value)?;
        Ok((self.place(value), dims))
    }

    fn node(&mut self, id: NodeId, groups: &Groups) -> Result<()> {
        let graph = self.graph;
        let node = graph.node(id);
        if node.op.is_input() && matches!(node.op, Op::Input(_)) {
            return Ok(());
        }
        match self.fast(id, node, groups) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(reason) => self.program.slow.push((node.name.clone(), reason)),
        }
        // A weight that is packed only, or bytes only, has no value for a plain kernel.
        let packed = |&&value: &&Value| {
            let source = self.behind(value).node;
            let is_variable = matches!(graph.node(source).op, Op::Variable(_));
            (is_variable && !self.variables.contains_key(&source)) || self.weights.only(value)
        };
        if let Some(&value) = node.inputs.iter().find(packed) {
            let why = self.program.slow.last().filter(|(name, _)| *name == node.name);
            let why = why.map_or_else(String::new, |(_, why)| format!(": {why}"));
            let reason = format!("`{}` is there packed only{why}", graph.value_name(value));
            let (name, op) = (node.name.clone(), node.op.to_string());
            return Err(Error::Operands { name, op, reason });
        }
        let inputs = node.inputs.iter().map(|&input| self.place(input)).collect();
        let first = self.program.tensors;
        self.program.tensors += node.op.outputs();
        let outputs: Vec<usize> = (first..self.program.tensors).collect();
        for (port, &tensor) in outputs.iter().enumerate() {
            let value = Value { node: id, port: port as u32 };
            self.places.insert(value, Place::Tensor(tensor));
        }
        self.step(id, Work::Plain { inputs, outputs });
        Ok(())
    }

    /// Makes a fast step of the node; `false` if there is none for its kind, the reason if there
    /// is one that does not fit.
    fn fast(&mut self, id: NodeId, node: &Node, groups: &Groups) -> Result<bool, Reason> {
        if let Some(done) = self.training(id, node)? {
            return Ok(done);
        }
        match &node.op {
            Op::PackRows(op) => self.pack_rows(id, node, op.first),
            Op::UnpackRows => self.unpack_rows(id, node)?,
            Op::Embed => self.embed(id, node)?,
            Op::Linear(_) | Op::MatMul(_) => {
                // The plain kernel is the better one for products of two variables.
                if matches!(node.op, Op::MatMul(_)) && self.matrix(node).is_err() {
                    return Ok(false);
                }
                match groups.get(&id) {
                    Some(group) => self.linear_group(id, group)?,
                    None => self.linear(id, node)?,
                }
            }
            Op::LayerNorm(op) => self.layer_norm(id, node, op.epsilon)?,
            Op::Attention(op) => self.attention(id, node, op)?,
            Op::Gelu(_) | Op::Unary(Unary::Tanh | Unary::Relu) => {
                let Some(activation) = activation(&node.op) else { return Ok(false) };
                let (x, dims) = self.rows(node.inputs[0])?;
                let out = self.view(&dims);
                self.places.insert(id.into(), Place::View(out.clone()));
                self.step(id, Work::Map { x, activation, out });
            }
            Op::Unary(Unary::Identity | Unary::StopGradient) => {
                let place = self.place(node.inputs[0]);
                self.places.insert(id.into(), place);
            }
            Op::FakeQuantize(_) => self.fake_quantize(id, node)?,
            Op::Binary(Binary::Mul) => return self.multiply(id, node),
            Op::Binary(Binary::Add) => return self.add(id, node),
            Op::Softmax | Op::LogSoftmax => {
                let (x, dims) = self.rows(node.inputs[0])?;
                let out = self.view(&dims);
                self.places.insert(id.into(), Place::View(out.clone()));
                self.step(id, Work::Softmax { x, log: matches!(node.op, Op::LogSoftmax), out });
            }
            Op::Reshape | Op::Squeeze(_) | Op::ExpandDims => return self.same_rows(id, node),
            Op::Transpose => return Ok(self.columns_first(id, node)),
            Op::Unpack(op) if op.axis == 0 => return self.columns(id, node, op.count),
            Op::StridedSlice(_) => return Ok(self.head(id, node)),
            Op::Range => return Ok(self.count(id, node)),
            Op::Gather(op) if op.batch_dims == 0 => return self.gather(id, node),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn pack_rows(&mut self, id: NodeId, node: &Node, first: bool) {
        let mask = self.place(node.inputs[0]);
        let index = self.program.lists;
        let bounds = index + 1;
        self.program.lists += 2;
        self.places.insert(Value { node: id, port: 0 }, Place::List(index));
        self.places.insert(Value { node: id, port: 1 }, Place::List(bounds));
        self.step(id, Work::PackRows { mask, first, index, bounds });
    }

    fn unpack_rows(&mut self, id: NodeId, node: &Node) -> Result<(), Reason> {
        let (x, _) = self.rows(node.inputs[0])?;
        let dims = self.dims(id.into())?;
        let index = self.place(node.inputs[1]);
        let out = self.view(&dims);
        self.places.insert(id.into(), Place::View(out.clone()));
        self.step(id, Work::UnpackRows { x, index, out });
        Ok(())
    }

    fn embed(&mut self, id: NodeId, node: &Node) -> Result<(), Reason> {
        let table = |i: usize| match self.weights.table(node.inputs[i]) {
            Some(weight) => Table::of_bytes(weight.bytes.as_ref(), &weight.scales),
            None => self.constant(node.inputs[i]).and_then(Table::new),
        };
        let (words, types, positions) = (table(2)?, table(3)?, table(4)?);
        let dims = self.dims(id.into())?;
        let norm = self.only_reader(id.into()).and_then(|reader| {
            let Op::LayerNorm(op) = self.graph.node(reader).op else { return None };
            Some((reader, self.norm(self.graph.node(reader), op.epsilon).ok()?))
        });
        let sources = [node.inputs[0], node.inputs[1]];
        let [ids, segments] = sources.map(|value| self.place(value));
        let index = node.inputs.get(5).map(|&value| self.place(value));
        let out = self.view(&dims);
        self.places.insert(id.into(), Place::View(out.clone()));
        let norm = norm.map(|(reader, norm)| {
            self.places.insert(reader.into(), Place::View(out.clone()));
            self.done.insert(reader);
            norm
        });
        let work = Embed {
            ids,
            segments,
            index,
            words,
            types,
            positions,
            norm,
            out,
            bytes: None,
            sources,
        };
        self.step(id, Work::Embed(Box::new(work)));
        Ok(())
    }

    fn norm(&self, node: &Node, epsilon: f32) -> Result<Norm, Reason> {
        let (gamma, beta) = (self.vector(node.inputs[1])?, self.vector(node.inputs[2])?);
        if gamma.len() != beta.len() {
            return Err("gamma and beta are of different lengths".into());
        }
        Ok(Norm { gamma, beta, epsilon })
    }

    fn layer_norm(&mut self, id: NodeId, node: &Node, epsilon: f32) -> Result<(), Reason> {
        let norm = self.norm(node, epsilon)?;
        let (x, dims) = self.rows(node.inputs[0])?;
        if !dims.last().is_some_and(|last| last.is(norm.gamma.len() as i64)) {
            return Err("gamma and beta do not go with the rows".into());
        }
        let out = self.view(&dims);
        self.places.insert(id.into(), Place::View(out.clone()));
        self.step(id, Work::LayerNorm { x, norm, out, bytes: None });
        Ok(())
    }

    fn attention(
        &mut self,
        id: NodeId,
        node: &Node,
        op: &frazil_graph::op::Attention,
    ) -> Result<(), Reason> {
        let work = self.attention_of(op, &node.inputs, id.into())?;
        self.step(id, Work::Attention(Box::new(work)));
        Ok(())
    }

    /// Attention of these inputs, with memory for its value: of the extents of `value`, which it is.
    fn attention_of(
        &mut self,
        op: &frazil_graph::op::Attention,
        inputs: &[Value],
        value: Value,
    ) -> Result<Attention, Reason> {
        let dims = self.dims(value)?;
        let width = dims.last().and_then(Dim::as_known).unwrap_or(0) as usize;
        if dims.len() != 2 || op.heads == 0 || !width.is_multiple_of(op.heads) {
            return Err("the operands do not go together".into());
        }
        let size = width / op.heads;
        if !size.is_multiple_of(8) || size == 0 {
            return Err(format!("a head has {size} columns, which is no multiple of 8"));
        }
        for &input in &inputs[..3] {
            let operand = self.dims(input)?;
            if operand.len() != 2 || operand[1] != dims[1] {
                return Err("the operands do not go together".into());
            }
        }
        let mut steps = OperandSteps {
            softmax: match op.steps {
                None => None,
                Some(Steps::Tensor { scale, zero }) => Some((scale, zero)),
                Some(other) => return Err(format!("its softmax cannot be on {other:?}")),
            },
            ..OperandSteps::default()
        };
        let operands = self.before_attention(inputs, &mut steps);
        let [q, k, v] = operands.map(|value| self.place(value));
        let sequences = if op.packed {
            let (queries, keys) = (self.place(inputs[3]), self.place(inputs[4]));
            Sequences::Packed { queries, keys }
        } else {
            Sequences::Mask(self.place(inputs[3]))
        };
        let out = self.view(&dims);
        self.places.insert(value, Place::View(out.clone()));
        let out = Target::F32(out);
        let (heads, scale) = (op.heads, op.scale);
        Ok(Attention { q, k, v, heads, size, scale, steps, sequences, out })
    }

    fn add(&mut self, id: NodeId, node: &Node) -> Result<bool, Reason> {
        let [Ok(a), Ok(b)] = [0, 1].map(|i| self.dims(node.inputs[i])) else { return Ok(false) };
        if a != b {
            return Ok(false);
        }
        let [left, right] = [0, 1].map(|i| self.place(node.inputs[i]));
        let out = self.view(&a);
        self.places.insert(id.into(), Place::View(out.clone()));
        self.step(id, Work::Add { a: left, b: right, out });
        Ok(true)
    }

    /// The same rows under other leading extents cost nothing.
    fn same_rows(&mut self, id: NodeId, node: &Node) -> Result<bool, Reason> {
        let x = node.inputs[0];
        let Some(Place::View(view)) = self.places.get(&x).cloned() else { return Ok(false) };
        let (Ok(from), Ok(to)) = (self.dims(x), self.dims(id.into())) else { return Ok(false) };
        let rows = |dims: &[Dim]| Dim::product(&dims[..dims.len() - 1]);
        if from.last() != to.last() || rows(&from).is_none() || rows(&from) != rows(&to) {
            return Ok(false);
        }
        let dims = to.iter().map(|dim| self.extent(dim)).collect();
        self.places.insert(id.into(), Place::View(View { dims, ..view }));
        Ok(true)
    }

    /// A transposition that only brings the columns to the front, for an [`Op::Unpack`] that takes
    /// them one by one: it has no value of its own.
    fn columns_first(&mut self, id: NodeId, node: &Node) -> bool {
        let rank = self.facts[node.inputs[0]].rank().unwrap_or(0) as i64;
        let order: Vec<i64> = std::iter::once(rank - 1).chain(0..rank - 1).collect();
        let reader = self.only_reader(id.into()).map(|reader| &self.graph.node(reader).op);
        let fits = rank > 1
            && self.facts[node.inputs[1]].known_elements() == Some(order)
            && matches!(reader, Some(Op::Unpack(op)) if op.axis == 0)
            && matches!(self.places.get(&node.inputs[0]), Some(Place::View(_)));
        if fits {
            self.columns.insert(id, node.inputs[0]);
        }
        fits
    }

    fn columns(&mut self, id: NodeId, node: &Node, count: usize) -> Result<bool, Reason> {
        let Some(&rows) = self.columns.get(&node.inputs[0].node) else { return Ok(false) };
        let x = self.place(rows);
        for column in 0..count {
            let value = Value { node: id, port: column as u32 };
            let dims = self.dims(value)?;
            let out = self.view(&dims);
            self.places.insert(value, Place::View(out.clone()));
            self.step(id, Work::Column { x: x.clone(), column, out });
        }
        Ok(true)
    }

    /// `list[0:-1]` of the bounds of packed rows: where each sequence begins.
    fn head(&mut self, id: NodeId, node: &Node) -> bool {
        let list = match self.places.get(&node.inputs[0]) {
            Some(list @ Place::List(_)) => list.clone(),
            _ => return false,
        };
        let integers = |i: usize| self.facts[node.inputs[i]].known_elements();
        let window = [integers(1), integers(2), integers(3)];
        let Op::StridedSlice(op) = node.op else { return false };
        if window != [Some(vec![0]), Some(vec![-1]), Some(vec![1])] || op != Default::default() {
            return false;
        }
        let out = self.list(id);
        self.step(id, Work::Head { list, out });
        true
    }

    /// `0, 1, …` of a length that is known when a batch arrives.
    fn count(&mut self, id: NodeId, node: &Node) -> bool {
        let integers = |i: usize| self.facts[node.inputs[i]].known_elements();
        let fact = &self.facts[id.into()];
        let known = |dim: &&Dim| dim.symbols().iter().all(|symbol| self.symbols.contains(symbol));
        let length = fact.dims.as_deref().and_then(<[Dim]>::first).filter(known).cloned();
        let (Some(length), Some(DType::I32)) = (length, fact.dtype) else { return false };
        if integers(0) != Some(vec![0]) || integers(2) != Some(vec![1]) {
            return false;
        }
        let (extent, out) = (self.extent(&length), self.list(id));
        self.step(id, Work::Count { extent, out });
        true
    }

    /// A list that a node's step makes.
    fn list(&mut self, id: NodeId) -> usize {
        let list = self.program.lists;
        self.program.lists += 1;
        self.places.insert(id.into(), Place::List(list));
        list
    }

    /// Rows of a two-dimensional value by a list of numbers.
    fn gather(&mut self, id: NodeId, node: &Node) -> Result<bool, Reason> {
        let axis = self.facts[node.inputs[2]].known_elements();
        let x = node.inputs[0];
        let is_rows = matches!(self.places.get(&x), Some(Place::View(_)))
            && axis.as_deref() == Some(&[0])
            && self.facts[node.inputs[1]].rank() == Some(1);
        let (Ok(from), Ok(to)) = (self.dims(x), self.dims(id.into())) else { return Ok(false) };
        if !is_rows || from.len() != 2 {
            return Ok(false);
        }
        let (x, rows) = (self.place(x), self.place(node.inputs[1]));
        let out = self.view(&to);
        self.places.insert(id.into(), Place::View(out.clone()));
        self.step(id, Work::Gather { x, rows, out });
        Ok(true)
    }
}
