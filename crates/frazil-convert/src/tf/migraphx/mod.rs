//! Whether AMD MIGraphX's parser takes a graph, and computes what it says.
//!
//! The parser knows a short list of operations, wants the operands that shape things to be known
//! when it reads the graph, gives every unknown extent the batch size, and lets some operations
//! pass as if they did nothing. Each of these is an offence here. What lies beyond the parser
//! (whether a GPU has a kernel) is not checked.

mod adapt;

use frazil_graph::{Facts, Graph, Node, NodeId, Op, infer};
use frazil_tensor::DType;

use crate::tf::export::{lowered, op_names};
use crate::{Error, Refusal, Result};

pub use adapt::adapt;

/// The operations of the parser.
const KNOWN: [&str; 47] = [
    "Add",
    "AddN",
    "AddV2",
    "All",
    "ArgMax",
    "ArgMin",
    "AvgPool",
    "BatchMatMul",
    "BatchMatMulV2",
    "BiasAdd",
    "Cast",
    "ConcatV2",
    "Const",
    "Conv2D",
    "DepthwiseConv2dNative",
    "ExpandDims",
    "FusedBatchNorm",
    "FusedBatchNormV3",
    "GatherV2",
    "Identity",
    "LessEqual",
    "MatMul",
    "MaxPool",
    "Mean",
    "Mul",
    "OneHot",
    "Pack",
    "Pad",
    "Placeholder",
    "Pow",
    "Relu",
    "Relu6",
    "Reshape",
    "Rsqrt",
    "Shape",
    "Sigmoid",
    "Slice",
    "Softmax",
    "Split",
    "SplitV",
    "SquaredDifference",
    "Squeeze",
    "StopGradient",
    "StridedSlice",
    "Sub",
    "Tanh",
    "Transpose",
];

/// Read as if they gave their input back.
const PASSED_OVER: [&str; 2] = ["All", "LessEqual"];

/// Words in a node's name that make the parser skip the node.
const SKIPPED: [&str; 2] = ["NoOp", "Assert"];

/// All offences of a graph that is frozen and cut, in its order. None: the parser takes it.
pub fn check(graph: &Graph) -> Result<Vec<Refusal>> {
    let graph = lowered(graph)?;
    let facts = infer(&graph)?;
    let ops = op_names(&graph, &facts)?;
    let checker = Checker { graph: &graph, facts, literal: literals(&graph)? };
    let order = graph.topological()?;
    Ok(order.into_iter().flat_map(|id| checker.node(id, &ops[id.index()])).collect())
}

/// [`check`], as an error that lists the offences.
pub fn require(graph: &Graph) -> Result<()> {
    let nodes = check(graph)?;
    if nodes.is_empty() {
        return Ok(());
    }
    Err(Error::Refused { target: "MIGraphX", nodes })
}

/// The nodes whose values the parser knows: constants, shapes, and what is computed from these.
fn literals(graph: &Graph) -> Result<Vec<bool>> {
    let mut literal = vec![false; graph.len()];
    for id in graph.topological()? {
        let node = graph.node(id);
        literal[id.index()] = match &node.op {
            Op::Const(_) | Op::Shape(_) => true,
            _ => {
                !node.inputs.is_empty()
                    && node.inputs.iter().all(|value| literal[value.node.index()])
            }
        };
    }
    Ok(literal)
}

struct Checker<'a> {
    graph: &'a Graph,
    facts: Facts,
    literal: Vec<bool>,
}

impl Checker<'_> {
    /// `op` is the operation by TensorFlow's name.
    fn node(&self, id: NodeId, op: &str) -> Vec<Refusal> {
        let node = self.graph.node(id);
        let mut reasons = Vec::new();
        if matches!(node.op, Op::Variable(_) | Op::ReadVariable(_)) {
            reasons.push("it is a variable; freeze the graph".to_owned());
        } else if matches!(node.op, Op::InputWithDefault(_)) {
            reasons.push("inputs with a default are not known".to_owned());
        } else if !KNOWN.contains(&op) {
            reasons.push("the operation is not known".to_owned());
        } else if PASSED_OVER.contains(&op) {
            reasons.push("it is read as the identity".to_owned());
        }
        if let Some(word) = SKIPPED.iter().find(|word| node.name.contains(**word)) {
            reasons.push(format!("nodes with `{word}` in their names are skipped"));
        }
        self.types(id, node, &mut reasons);
        self.operands(node, &mut reasons);
        self.particulars(node, &mut reasons);
        let offence = |reason| Refusal { node: node.name.clone(), op: op.to_owned(), reason };
        reasons.into_iter().map(offence).collect()
    }

    fn types(&self, id: NodeId, node: &Node, reasons: &mut Vec<String>) {
        if !matches!(node.op, Op::Input(_) | Op::Const(_) | Op::Cast(_)) {
            return;
        }
        match self.facts[id.into()].dtype {
            Some(dtype) if !is_known(dtype) => {
                reasons.push(format!("{dtype} is not known, or read as another type"));
            }
            _ => {}
        }
        if let Op::Input(input) = &node.op {
            match &input.dims {
                None => reasons.push("its rank is not known".to_owned()),
                Some(dims) => {
                    for (axis, dim) in dims.iter().enumerate().skip(1) {
                        if dim.as_known().is_none() {
                            reasons.push(format!(
                                "extent {axis} (`{dim}`) is open and would become the batch size"
                            ));
                        }
                    }
                }
            }
        }
    }

    /// The operands that must be known when the graph is read.
    fn operands(&self, node: &Node, reasons: &mut Vec<String>) {
        let last = node.inputs.len().saturating_sub(1);
        let wanted: &[usize] = match &node.op {
            Op::Reshape
            | Op::Transpose
            | Op::Reduce(_)
            | Op::ArgMax(_)
            | Op::ExpandDims
            | Op::Pad => &[1],
            Op::Slice | Op::SplitV(_) => &[1, 2],
            Op::StridedSlice(_) | Op::OneHot(_) => &[1, 2, 3],
            Op::Gather(_) => &[2],
            Op::Split(_) => &[0],
            Op::Concat => &[last],
            _ => &[],
        };
        for &i in wanted {
            if let Some(&value) = node.inputs.get(i)
                && !self.literal[value.node.index()]
            {
                let name = self.graph.value_name(value);
                reasons.push(format!("its operand `{name}` is not constant"));
            }
        }
    }

    fn particulars(&self, node: &Node, reasons: &mut Vec<String>) {
        match &node.op {
            Op::OneHot(op) if op.axis != -1 => {
                reasons.push(format!("axis is {}, only -1 is known", op.axis));
            }
            Op::Gather(op) if op.batch_dims != 0 => {
                reasons.push("batch_dims is not looked at".to_owned());
            }
            Op::StridedSlice(op) => {
                if op.ellipsis_mask != 0 || op.new_axis_mask != 0 {
                    reasons.push("ellipsis_mask and new_axis_mask are not looked at".to_owned());
                }
                let strides = node.inputs.get(3).and_then(|&v| self.facts[v].known_elements());
                if strides.is_some_and(|strides| strides.iter().any(|&stride| stride != 1)) {
                    reasons.push("strides are not looked at".to_owned());
                }
            }
            Op::Pack(op) => {
                let rank = node.inputs.first().and_then(|&value| self.facts[value].rank());
                if rank.is_some_and(|rank| op.axis >= rank.max(1) as i64) {
                    reasons.push(format!("axis {} must be below the rank", op.axis));
                }
            }
            _ => {}
        }
    }
}

fn is_known(dtype: DType) -> bool {
    matches!(
        dtype,
        DType::F32
            | DType::F64
            | DType::F16
            | DType::I8
            | DType::I16
            | DType::I32
            | DType::I64
            | DType::U16
            | DType::U32
            | DType::U64
    )
}

#[cfg(test)]
mod tests {
    use frazil_graph::pass;
    use frazil_graph::{Port, pass::NewInput};
    use frazil_tensor::testing::shared;
    use frazil_tf::{graph_def, pbtxt};

    use super::*;
    use crate::tf::{ImportOptions, import};

    fn frozen(file: &str, output: &str) -> Option<Graph> {
        let def = graph_def::read(shared(&format!("fixtures/{file}"))?).unwrap();
        let mut graph = import(&def, &ImportOptions::default()).unwrap().graph;
        let value = graph.find_value(output).unwrap();
        let outputs = [Port { name: output.to_owned(), value }];
        pass::cut(&mut graph, &[] as &[NewInput], &outputs).unwrap();
        Some(graph)
    }

    #[test]
    fn the_classifier_of_the_recipe_is_ready() {
        let file = "classifier/frozen_from_saved_model.pb";
        let Some(graph) = frozen(file, "loss/output") else { return };
        assert_eq!(check(&graph).unwrap(), []);
        require(&graph).unwrap();
    }

    #[test]
    fn what_is_not_ready_is_named() {
        let Some(graph) = frozen("classifier/frozen_from_graph_pbtxt.pb", "loss/output") else {
            return;
        };
        let offences = check(&graph).unwrap();
        let has = |op: &str| offences.iter().any(|offence| offence.op == op);
        assert!(has("IteratorGetNext") && has("RandomUniform") && has("GreaterEqual"));
        assert!(!has("MatMul") && !has("Softmax"));
        let error = require(&graph).unwrap_err().to_string();
        assert!(error.starts_with("MIGraphX cannot hold `"), "{error}");
        let Some(graph) = frozen("squad/lpot/bert_fp32_google_modeling.pb", "unstack") else {
            return;
        };
        assert!(check(&graph).unwrap().iter().any(|offence| offence.op == "Unpack"));
    }

    #[test]
    fn shapes_types_and_names() {
        let text = r#"
            node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
                attr { key: "shape" value { shape { dim { size: -1 } dim { size: -1 } } } } }
            node { name: "s" op: "Placeholder" attr { key: "dtype" value { type: DT_UINT8 } }
                attr { key: "shape" value { shape { dim { size: 2 } } } } }
            node { name: "i" op: "Cast" input: "s" attr { key: "SrcT" value { type: DT_UINT8 } }
                attr { key: "DstT" value { type: DT_INT32 } } }
            node { name: "Assert_me" op: "Reshape" input: "x" input: "i"
                attr { key: "T" value { type: DT_FLOAT } } }
            versions { producer: 134 }"#;
        let def = pbtxt::parse(text).unwrap();
        let graph = import(&def, &ImportOptions::default()).unwrap().graph;
        let offences: Vec<String> = check(&graph)
            .unwrap()
            .iter()
            .map(|Refusal { node, op, reason }| format!("`{node}` ({op}): {reason}"))
            .collect();
        assert_eq!(
            offences,
            [
                "`x` (Placeholder): extent 1 (`seq`) is open and would become the batch size",
                "`s` (Placeholder): uint8 is not known, or read as another type",
                "`Assert_me` (Reshape): nodes with `Assert` in their names are skipped",
                "`Assert_me` (Reshape): its operand `i` is not constant",
            ]
        );
    }
}
