//! [`Graph`] to GraphDef.
//!
//! Each of our operations is written as the one of TensorFlow 1.15 that does the same, with the
//! attributes that follow from types and ranks; foreign nodes are written as they were read.
//! Operations that TensorFlow has not in one piece (LayerNorm, Attention, …) are expanded first.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use frazil_graph::op::{Attr, Binary, Compare, Foreign, Op, ReduceKind, Steps, Unary};
use frazil_graph::{Facts, Graph, Node, NodeId, Value, infer, pass};
use frazil_tensor::DType;
use frazil_tf::proto::attr_value::{self, ListValue};
use frazil_tf::proto::{AttrValue, FunctionDefLibrary, GraphDef, NodeDef};
use frazil_tf::{dtype, tensor_proto};
use prost::Message;

use crate::tf::import::{DEBUG_INFO, FULL_TYPE};
use crate::tf::{attr, fake_quant};
use crate::{Error, Result};

const TARGET: &str = "TensorFlow";

/// Writes a graph. `library` has the functions that foreign nodes refer to.
///
/// Nodes come in an order in which they can run, as near to the graph's own as may be. A graph of
/// foreign nodes only (an untyped import) is written as it stands, with its whole library. The
/// version is left to the caller, as TensorFlow's own `freeze_graph` leaves it out.
pub fn export(graph: &Graph, library: Option<&FunctionDefLibrary>) -> Result<GraphDef> {
    let is_foreign = |node: &Node| matches!(node.op, Op::Foreign(_));
    if graph.nodes().all(|(_, node)| is_foreign(node)) {
        let writer = Writer { graph, facts: None, handles: Vec::new() };
        let node = graph.ids().map(|id| writer.node(id)).collect::<Result<_>>()?;
        return Ok(GraphDef { node, library: library.cloned(), ..GraphDef::default() });
    }
    let graph = &*lowered(graph)?;
    let writer = Writer { graph, facts: Some(&infer(graph)?), handles: handles(graph)? };
    let order = graph.topological()?;
    let node = order.into_iter().map(|id| writer.node(id)).collect::<Result<Vec<_>>>()?;
    let library = library.and_then(|library| referred(library, &node));
    Ok(GraphDef { node, library, ..GraphDef::default() })
}

/// The graph with what TensorFlow has not in one piece expanded.
pub(super) fn lowered(graph: &Graph) -> Result<Cow<'_, Graph>> {
    let is_plain = |node: &Node| has_equivalent(&node.op) && !passes_handle(&node.op);
    if graph.nodes().all(|(_, node)| is_plain(node)) {
        return Ok(Cow::Borrowed(graph));
    }
    let mut lowered = graph.clone();
    settle_handles(&mut lowered)?;
    if !graph.nodes().all(|(_, node)| has_equivalent(&node.op)) {
        pass::lower(&mut lowered, &has_equivalent)?;
    }
    Ok(Cow::Owned(lowered))
}

/// Whether a foreign node passes on the handle of a variable on a branch or into a loop.
fn passes_handle(op: &Op) -> bool {
    let Op::Foreign(op) = op else { return false };
    let is_handle = op.attrs.get("T") == Some(&Attr::Type("DT_RESOURCE".to_owned()));
    is_handle
        && matches!(
            op.op.as_str(),
            "Switch" | "Merge" | "Enter" | "Exit" | "NextIteration" | "Identity"
        )
}

/// Where a variable was frozen, what passed its handle on passes on the value now.
fn settle_handles(graph: &mut Graph) -> Result<()> {
    // The type of each node's first output, where it is known to be that of a frozen variable.
    let mut types: Vec<Option<DType>> = vec![None; graph.len()];
    for id in graph.topological()? {
        let node = graph.node(id);
        let found = match (&node.op, node.inputs.first()) {
            (Op::Const(constant), _) => Some(constant.value.dtype()),
            (Op::Unary(Unary::Identity), Some(source)) => types[source.node.index()],
            (op, Some(source)) if passes_handle(op) => types[source.node.index()],
            _ => None,
        };
        types[id.index()] = found;
        if !passes_handle(&node.op) {
            continue;
        }
        if let (Some(found), Op::Foreign(op)) = (found, &mut graph.node_mut(id).op) {
            op.attrs.remove("_output_shapes");
            let name = dtype::name(dtype::to_proto(found) as i32);
            op.attrs.insert("T".to_owned(), Attr::Type(name));
            let values = if op.op == "Switch" { 2 } else { 1 };
            for output in op.outputs.iter_mut().take(values) {
                output.dtype = Some(found);
                output.dims = None;
            }
        }
    }
    Ok(())
}

/// TensorFlow's names for the operations of a graph without fused ones, by node; ours where a node
/// could not be written.
pub(super) fn op_names(graph: &Graph, facts: &Facts) -> Result<Vec<String>> {
    let writer = Writer { graph, facts: Some(facts), handles: handles(graph)? };
    let name = |id| match writer.node(id) {
        Ok(written) => written.op,
        Err(_) => graph.node(id).op.to_string(),
    };
    Ok(graph.ids().map(name).collect())
}

/// Whether TensorFlow has this operation in one piece.
pub fn has_equivalent(op: &Op) -> bool {
    !matches!(
        op,
        Op::LayerNorm(_)
            | Op::Gelu(_)
            | Op::Linear(_)
            | Op::Embed
            | Op::Attention(_)
            | Op::PackRows(_)
            | Op::UnpackRows
            | Op::FakeQuantize(Steps::Rows)
            | Op::Scaled(_)
            | Op::Training(_)
    )
}

/// The functions that the nodes refer to, directly or through others; `None` if there are none.
fn referred(library: &FunctionDefLibrary, nodes: &[NodeDef]) -> Option<FunctionDefLibrary> {
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    let mut stack: Vec<String> = Vec::new();
    names(nodes, &mut stack);
    let bodies: BTreeMap<&str, &[NodeDef]> = library
        .function
        .iter()
        .filter_map(|f| Some((f.signature.as_ref()?.name.as_str(), f.node_def.as_slice())))
        .collect();
    while let Some(name) = stack.pop() {
        if let Some(body) = bodies.get(name.as_str())
            && wanted.insert(name)
        {
            names(body, &mut stack);
        }
    }
    if wanted.is_empty() {
        return None;
    }
    let mut kept = library.clone();
    kept.function.retain(|f| f.signature.as_ref().is_some_and(|s| wanted.contains(&s.name)));
    kept.gradient.retain(|g| wanted.contains(&g.function_name));
    Some(kept)
}

/// All names that could be those of functions.
fn names(nodes: &[NodeDef], into: &mut Vec<String>) {
    for node in nodes {
        into.push(node.op.clone());
        for attr in node.attr.values() {
            match &attr.value {
                Some(attr_value::Value::Func(function)) => into.push(function.name.clone()),
                Some(attr_value::Value::List(list)) => {
                    into.extend(list.func.iter().map(|function| function.name.clone()));
                }
                _ => {}
            }
        }
    }
}

struct Writer<'a> {
    graph: &'a Graph,
    /// Not needed where all nodes are foreign.
    facts: Option<&'a Facts>,
    /// Which nodes give handles.
    handles: Vec<bool>,
}

/// A node's attributes in the making.
type Attributes = BTreeMap<String, AttrValue>;

impl Writer<'_> {
    fn node(&self, id: NodeId) -> Result<NodeDef> {
        let node = self.graph.node(id);
        let mut def = NodeDef {
            name: node.name.clone(),
            device: node.device.clone(),
            input: node.inputs.iter().map(|&value| self.graph.value_name(value)).collect(),
            ..NodeDef::default()
        };
        def.input.extend(node.control.iter().map(|&id| format!("^{}", self.graph.node(id).name)));
        match &node.op {
            Op::Foreign(op) => foreign(&mut def, op)?,
            op => {
                let (name, attrs) = self.typed(node, op)?;
                def.op = name.to_owned();
                def.attr = attrs;
            }
        }
        Ok(def)
    }

    /// The operation's name and attributes.
    fn typed(&self, node: &Node, op: &Op) -> Result<(&'static str, Attributes)> {
        let mut attrs = Attrs::default();
        let t = |i: usize| self.input_type(node, i);
        let name = match op {
            Op::Input(op) => {
                attrs.dtype("dtype", op.dtype);
                attrs.shape("shape", extents(op.dims.as_deref()).as_deref());
                "Placeholder"
            }
            Op::InputWithDefault(op) => {
                attrs.dtype("dtype", op.dtype);
                attrs.shape("shape", extents(op.dims.as_deref()).as_deref());
                "PlaceholderWithDefault"
            }
            Op::Const(op) => {
                attrs.dtype("dtype", op.value.dtype());
                let value = Box::new(tensor_proto::from_tensor(&op.value));
                attrs.put("value", attr_value::Value::Tensor(value));
                "Const"
            }
            Op::Variable(op) => {
                attrs.dtype("dtype", op.dtype);
                let dims: Option<Vec<i64>> =
                    op.shape.as_ref().map(|shape| shape.iter().map(|&d| d as i64).collect());
                attrs.shape("shape", dims.as_deref());
                attrs.text("container", "");
                attrs.text("shared_name", if op.resource { &node.name } else { "" });
                if op.resource { "VarHandleOp" } else { "VariableV2" }
            }
            Op::ReadVariable(op) => {
                attrs.dtype("dtype", op.dtype);
                "ReadVariableOp"
            }
            Op::Unary(Unary::Not) => "LogicalNot",
            Op::Unary(Unary::Identity) if self.is_handle(node) => {
                attrs.put("T", attr_value::Value::Type(RESOURCE));
                "Identity"
            }
            Op::Unary(kind) => {
                attrs.dtype("T", t(0)?);
                unary(*kind)
            }
            Op::Binary(Binary::And) => "LogicalAnd",
            Op::Binary(Binary::Or) => "LogicalOr",
            Op::Binary(kind) => {
                attrs.dtype("T", self.either_type(node)?);
                binary(*kind)
            }
            Op::Compare(kind) => {
                attrs.dtype("T", self.either_type(node)?);
                compare(*kind)
            }
            Op::AddN => {
                attrs.dtype("T", t(0)?);
                attrs.int("N", node.inputs.len() as i64);
                "AddN"
            }
            Op::BiasAdd => {
                attrs.dtype("T", self.either_type(node)?);
                attrs.text("data_format", "NHWC");
                "BiasAdd"
            }
            Op::Cast(op) => {
                attrs.dtype("SrcT", t(0)?);
                attrs.dtype("DstT", op.to);
                attrs.flag("Truncate", false);
                "Cast"
            }
            Op::Select => {
                attrs.dtype("T", t(1).or_else(|_| t(2))?);
                "SelectV2"
            }
            Op::MatMul(op) => {
                attrs.dtype("T", self.either_type(node)?);
                let is_matrix = |i: usize| self.rank(node.inputs[i]) == Some(2);
                let plain = is_matrix(0) && is_matrix(1);
                let names = if plain { ["transpose_a", "transpose_b"] } else { ["adj_x", "adj_y"] };
                attrs.flag(names[0], op.transpose_a);
                attrs.flag(names[1], op.transpose_b);
                if plain { "MatMul" } else { "BatchMatMulV2" }
            }
            Op::Reduce(op) => {
                if !matches!(op.kind, ReduceKind::All | ReduceKind::Any) {
                    attrs.dtype("T", t(0)?);
                }
                attrs.dtype("Tidx", t(1)?);
                attrs.flag("keep_dims", op.keep_dims);
                reduce(op.kind)
            }
            Op::ArgMax(op) => {
                attrs.dtype("T", t(0)?);
                attrs.dtype("Tidx", t(1)?);
                attrs.dtype("output_type", op.to);
                "ArgMax"
            }
            Op::Softmax | Op::LogSoftmax => {
                attrs.dtype("T", t(0)?);
                if matches!(op, Op::Softmax) { "Softmax" } else { "LogSoftmax" }
            }
            Op::Shape(op) => {
                attrs.dtype("T", t(0)?);
                attrs.dtype("out_type", op.to);
                "Shape"
            }
            Op::Size(op) => {
                attrs.dtype("T", t(0)?);
                attrs.dtype("out_type", op.to);
                "Size"
            }
            Op::Rank => {
                attrs.dtype("T", t(0)?);
                "Rank"
            }
            Op::Reshape => {
                attrs.dtype("T", t(0)?);
                attrs.dtype("Tshape", t(1)?);
                "Reshape"
            }
            Op::ExpandDims => {
                attrs.dtype("T", t(0)?);
                attrs.dtype("Tdim", t(1)?);
                "ExpandDims"
            }
            Op::Squeeze(op) => {
                attrs.dtype("T", t(0)?);
                let list = ListValue { i: op.axes.clone(), ..ListValue::default() };
                attrs.put("squeeze_dims", attr_value::Value::List(Box::new(list)));
                "Squeeze"
            }
            Op::Transpose => {
                attrs.dtype("T", t(0)?);
                attrs.dtype("Tperm", t(1)?);
                "Transpose"
            }
            Op::Concat => {
                let count = node.inputs.len().saturating_sub(1);
                attrs.int("N", count as i64);
                attrs.dtype("T", self.any_type(node, count)?);
                attrs.dtype("Tidx", t(count)?);
                "ConcatV2"
            }
            Op::Pack(op) => {
                attrs.int("N", node.inputs.len() as i64);
                attrs.dtype("T", self.any_type(node, node.inputs.len())?);
                attrs.int("axis", op.axis);
                "Pack"
            }
            Op::Unpack(op) => {
                attrs.dtype("T", t(0)?);
                attrs.int("num", op.count as i64);
                attrs.int("axis", op.axis);
                "Unpack"
            }
            Op::Split(op) => {
                self.must_be(node, 0, DType::I32)?;
                attrs.dtype("T", t(1)?);
                attrs.int("num_split", op.count as i64);
                "Split"
            }
            Op::SplitV(op) => {
                self.must_be(node, 2, DType::I32)?;
                attrs.dtype("T", t(0)?);
                attrs.dtype("Tlen", t(1)?);
                attrs.int("num_split", op.count as i64);
                "SplitV"
            }
            Op::Slice => {
                attrs.dtype("T", t(0)?);
                attrs.dtype("Index", t(1)?);
                "Slice"
            }
            Op::StridedSlice(op) => {
                attrs.dtype("T", t(0)?);
                attrs.dtype("Index", t(1)?);
                attrs.int("begin_mask", op.begin_mask.into());
                attrs.int("end_mask", op.end_mask.into());
                attrs.int("ellipsis_mask", op.ellipsis_mask.into());
                attrs.int("new_axis_mask", op.new_axis_mask.into());
                attrs.int("shrink_axis_mask", op.shrink_axis_mask.into());
                "StridedSlice"
            }
            Op::Gather(op) => {
                attrs.dtype("Tparams", t(0)?);
                attrs.dtype("Tindices", t(1)?);
                attrs.dtype("Taxis", t(2)?);
                attrs.int("batch_dims", op.batch_dims as i64);
                "GatherV2"
            }
            Op::OneHot(op) => {
                attrs.dtype("TI", t(0)?);
                attrs.dtype("T", t(2)?);
                attrs.int("axis", op.axis);
                "OneHot"
            }
            Op::Range => {
                attrs.dtype("Tidx", self.any_type(node, 3)?);
                "Range"
            }
            Op::Fill => {
                attrs.dtype("index_type", t(0)?);
                attrs.dtype("T", t(1)?);
                "Fill"
            }
            Op::Tile => {
                attrs.dtype("T", t(0)?);
                attrs.dtype("Tmultiples", t(1)?);
                "Tile"
            }
            Op::BroadcastTo => {
                attrs.dtype("T", t(0)?);
                attrs.dtype("Tidx", t(1)?);
                "BroadcastTo"
            }
            Op::Pad => {
                attrs.dtype("T", t(0)?);
                attrs.dtype("Tpaddings", t(1)?);
                if node.inputs.len() == 2 { "Pad" } else { "PadV2" }
            }
            Op::Quantize(op) => {
                attrs.dtype("T", op.to);
                attrs.text("mode", "MIN_FIRST");
                attrs.text("round_mode", "HALF_AWAY_FROM_ZERO");
                "QuantizeV2"
            }
            Op::Dequantize => {
                attrs.dtype("T", t(0)?);
                attrs.text("mode", "MIN_FIRST");
                "Dequantize"
            }
            Op::Requantize(op) => {
                attrs.dtype("Tinput", t(0)?);
                attrs.dtype("out_type", op.to);
                "Requantize"
            }
            Op::QuantizedLinear => {
                attrs.dtype("T1", t(0)?);
                attrs.dtype("T2", t(1)?);
                attrs.dtype("Tbias", t(2)?);
                attrs.dtype("Toutput", DType::QI32);
                attrs.flag("transpose_a", false);
                attrs.flag("transpose_b", false);
                attrs.text("input_quant_mode", "MIN_FIRST");
                "QuantizedMatMulWithBias"
            }
            Op::FakeQuantize(Steps::Watched { .. }) => {
                attrs.dtype("T", t(0)?);
                "Identity"
            }
            Op::FakeQuantize(steps) if fake_quant::write(*steps, &mut attrs) => fake_quant::WRITTEN,
            Op::LayerNorm(_)
            | Op::Gelu(_)
            | Op::Linear(_)
            | Op::Embed
            | Op::Attention(_)
            | Op::PackRows(_)
            | Op::UnpackRows
            | Op::FakeQuantize(_)
            | Op::Scaled(_)
            | Op::Training(_)
            | Op::Foreign(_) => {
                let (node, op) = (node.name.clone(), op.to_string());
                return Err(Error::NoEquivalent { node, op, target: TARGET });
            }
        };
        Ok((name, attrs.0))
    }

    fn type_of(&self, value: Value) -> Option<DType> {
        self.facts.and_then(|facts| facts[value].dtype)
    }

    fn rank(&self, value: Value) -> Option<usize> {
        self.facts.and_then(|facts| facts[value].rank())
    }

    fn input_type(&self, node: &Node, i: usize) -> Result<DType> {
        let value = node.inputs.get(i).copied();
        value.and_then(|value| self.type_of(value)).ok_or_else(|| Error::NoType {
            node: node.name.clone(),
            op: node.op.to_string(),
            value: value.map(|value| self.graph.value_name(value)).unwrap_or_default(),
            target: TARGET,
        })
    }

    /// The type that both operands share; one of them may be unknown.
    fn either_type(&self, node: &Node) -> Result<DType> {
        self.any_type(node, 2)
    }

    /// The type that the first `count` operands share.
    fn any_type(&self, node: &Node, count: usize) -> Result<DType> {
        let known = (0..count).find_map(|i| self.input_type(node, i).ok());
        known.map_or_else(|| self.input_type(node, 0), Ok)
    }

    /// Whether a node passes the handle of a variable on.
    fn is_handle(&self, node: &Node) -> bool {
        let source = node.inputs.first();
        source.is_some_and(|value| self.handles.get(value.node.index()) == Some(&true))
    }

    fn must_be(&self, node: &Node, i: usize, wanted: DType) -> Result<()> {
        match self.input_type(node, i)? {
            found if found == wanted => Ok(()),
            dtype => Err(Error::BadType {
                node: node.name.clone(),
                op: node.op.to_string(),
                dtype,
                target: TARGET,
            }),
        }
    }
}

/// Which nodes give the handle of a variable, itself or passed on.
fn handles(graph: &Graph) -> Result<Vec<bool>> {
    let mut handles = vec![false; graph.len()];
    for id in graph.topological()? {
        let node = graph.node(id);
        handles[id.index()] = match (&node.op, node.inputs.first()) {
            (Op::Variable(variable), _) => variable.resource,
            (Op::Unary(Unary::Identity), Some(source)) => handles[source.node.index()],
            _ => false,
        };
    }
    Ok(handles)
}

const RESOURCE: i32 = frazil_tf::proto::DataType::DtResource as i32;

/// A foreign node as it was read.
fn foreign(def: &mut NodeDef, op: &Foreign) -> Result<()> {
    def.op.clone_from(&op.op);
    for (name, value) in &op.attrs {
        let wrong = |reason: String| Error::Attribute {
            node: def.name.clone(),
            op: op.op.clone(),
            attribute: name.clone(),
            reason,
        };
        match (name.as_str(), value) {
            (DEBUG_INFO, Attr::Opaque(bytes)) => {
                let info = Message::decode(bytes.clone());
                def.experimental_debug_info = Some(info.map_err(|e| wrong(e.to_string()))?);
            }
            (FULL_TYPE, Attr::Opaque(bytes)) => {
                let full = Message::decode(bytes.clone());
                def.experimental_type = Some(full.map_err(|e| wrong(e.to_string()))?);
            }
            _ => {
                let value = attr::to_proto(value).map_err(wrong)?;
                def.attr.insert(name.clone(), value);
            }
        }
    }
    Ok(())
}

/// Extents as TensorFlow has them: -1 for what is not a number.
fn extents(dims: Option<&[frazil_graph::Dim]>) -> Option<Vec<i64>> {
    dims.map(|dims| dims.iter().map(|dim| dim.as_known().unwrap_or(-1)).collect())
}

#[derive(Default)]
pub(super) struct Attrs(Attributes);

impl Attrs {
    fn put(&mut self, name: &str, value: attr_value::Value) {
        self.0.insert(name.to_owned(), AttrValue { value: Some(value) });
    }

    fn dtype(&mut self, name: &str, dtype: DType) {
        self.put(name, attr_value::Value::Type(dtype::to_proto(dtype) as i32));
    }

    pub(super) fn float(&mut self, name: &str, value: f32) {
        self.put(name, attr_value::Value::F(value));
    }

    pub(super) fn int(&mut self, name: &str, value: i64) {
        self.put(name, attr_value::Value::I(value));
    }

    pub(super) fn flag(&mut self, name: &str, value: bool) {
        self.put(name, attr_value::Value::B(value));
    }

    fn text(&mut self, name: &str, value: &str) {
        self.put(name, attr_value::Value::S(value.to_owned().into()));
    }

    fn shape(&mut self, name: &str, dims: Option<&[i64]>) {
        self.put(name, attr_value::Value::Shape(attr::shape_proto(dims)));
    }
}

fn unary(kind: Unary) -> &'static str {
    match kind {
        Unary::Identity => "Identity",
        Unary::StopGradient => "StopGradient",
        Unary::Neg => "Neg",
        Unary::Abs => "Abs",
        Unary::Sign => "Sign",
        Unary::Exp => "Exp",
        Unary::Log => "Log",
        Unary::Sqrt => "Sqrt",
        Unary::Rsqrt => "Rsqrt",
        Unary::Reciprocal => "Reciprocal",
        Unary::Square => "Square",
        Unary::Floor => "Floor",
        Unary::Round => "Round",
        Unary::Sin => "Sin",
        Unary::Cos => "Cos",
        Unary::Tanh => "Tanh",
        Unary::Erf => "Erf",
        Unary::Sigmoid => "Sigmoid",
        Unary::Relu => "Relu",
        Unary::Not => "LogicalNot",
    }
}

fn binary(kind: Binary) -> &'static str {
    match kind {
        Binary::Add => "AddV2",
        Binary::Sub => "Sub",
        Binary::Mul => "Mul",
        Binary::Div => "RealDiv",
        Binary::FloorDiv => "FloorDiv",
        Binary::FloorMod => "FloorMod",
        Binary::Pow => "Pow",
        Binary::Maximum => "Maximum",
        Binary::Minimum => "Minimum",
        Binary::SquaredDifference => "SquaredDifference",
        Binary::And => "LogicalAnd",
        Binary::Or => "LogicalOr",
    }
}

fn compare(kind: Compare) -> &'static str {
    match kind {
        Compare::Equal => "Equal",
        Compare::NotEqual => "NotEqual",
        Compare::Less => "Less",
        Compare::LessEqual => "LessEqual",
        Compare::Greater => "Greater",
        Compare::GreaterEqual => "GreaterEqual",
    }
}

fn reduce(kind: ReduceKind) -> &'static str {
    match kind {
        ReduceKind::Mean => "Mean",
        ReduceKind::Sum => "Sum",
        ReduceKind::Max => "Max",
        ReduceKind::Min => "Min",
        ReduceKind::Prod => "Prod",
        ReduceKind::All => "All",
        ReduceKind::Any => "Any",
    }
}

#[cfg(test)]
mod tests {
    use frazil_tensor::{StoreError, Tensor, TensorInfo, TensorStore};
    use frazil_tf::pbtxt;

    use super::*;
    use crate::tf::{ImportOptions, import};

    struct Weights(TensorInfo);

    impl TensorStore for Weights {
        fn infos(&self) -> &[TensorInfo] {
            std::slice::from_ref(&self.0)
        }

        fn tensor(&self, _: &str) -> Result<Tensor, StoreError> {
            Ok(Tensor::from_vec([2], vec![1f32, 2.0])?)
        }
    }

    #[test]
    fn a_frozen_variable_on_a_branch_is_a_value() {
        let text = r#"
            node { name: "p" op: "Placeholder" attr { key: "dtype" value { type: DT_BOOL } } }
            node { name: "v" op: "VarHandleOp" attr { key: "dtype" value { type: DT_FLOAT } }
                attr { key: "shape" value { shape { dim { size: 2 } } } } }
            node { name: "s" op: "Switch" input: "v" input: "p"
                attr { key: "T" value { type: DT_RESOURCE } } }
            node { name: "r" op: "ReadVariableOp" input: "s:1"
                attr { key: "dtype" value { type: DT_FLOAT } } }
            node { name: "y" op: "Neg" input: "r" attr { key: "T" value { type: DT_FLOAT } } }"#;
        let def = pbtxt::parse(text).unwrap();
        let mut graph = import(&def, &ImportOptions::default()).unwrap().graph;
        let info = TensorInfo { name: "v".into(), dtype: DType::F32, shape: [2].into() };
        pass::freeze(&mut graph, &Weights(info)).unwrap();
        let written = export(&graph, None).unwrap();
        let kind = |name: &str| {
            let node = written.node.iter().find(|node| node.name == name).unwrap();
            let t = node.attr.get("T").and_then(|attr| attr.value.clone());
            (node.op.clone(), t)
        };
        let float = Some(attr_value::Value::Type(1));
        assert_eq!(kind("v").0, "Const");
        assert_eq!(kind("s"), ("Switch".to_owned(), float.clone()));
        assert_eq!(kind("r"), ("Identity".to_owned(), float.clone()));
        assert_eq!(kind("y"), ("Neg".to_owned(), float));
    }

    #[test]
    fn unknown_types_are_named() {
        let text = r#"
            node { name: "odd" op: "Odd" }
            node { name: "y" op: "Neg" input: "odd" }"#;
        let def = pbtxt::parse(text).unwrap();
        let graph = import(&def, &ImportOptions::default()).unwrap().graph;
        let error = export(&graph, None).unwrap_err().to_string();
        let wanted = "the type of `odd` is not known, and TensorFlow needs it to write `y` (Neg)";
        assert_eq!(error, wanted);
    }
}
