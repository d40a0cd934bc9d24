//! The values that initializers give to variables, as far as they are the same in every run:
//! constants, fills, copies of other variables. Random ones are refused.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};

use frazil_tensor::{Shape, Tensor, TensorStore};
use frazil_tf::graph_def;
use frazil_tf::proto::{GraphDef, NodeDef};

use crate::tf::saver::Nodes;
use crate::{Error, Result};

/// Deeper than any initial value is computed.
const DEEPEST: usize = 100;
/// More steps than the initial values of any model take.
const MOST_STEPS: usize = 1 << 20;
/// A few bytes must not become gigabytes.
const MOST_BYTES: usize = 256 << 20;

/// Runs the named nodes: the variables that they assign, with their new values. `weights` has
/// the values of the variables before that.
pub fn initialize(
    def: &GraphDef,
    names: &[String],
    weights: &dyn TensorStore,
) -> Result<BTreeMap<String, Tensor>> {
    let nodes = Nodes::new(def);
    if let Some(name) = names.iter().find(|name| nodes.get(name).is_none()) {
        let near = frazil_tensor::nearest(name, def.node.iter().map(|node| node.name.as_str()));
        return Err(frazil_graph::Error::UnknownNode { name: name.clone(), near }.into());
    }
    let mut assigned: HashMap<&str, &NodeDef> = HashMap::new();
    for assign in nodes.assignments(names.iter().map(String::as_str)) {
        let Some(variable) = nodes.variable(assign, 0) else {
            return Err(refused(assign, "it assigns to something else than a variable"));
        };
        assigned.insert(&variable.name, assign);
    }
    let run = Run { nodes, assigned, weights, steps: Cell::new(0), bytes: Cell::new(0) };
    let mut values = BTreeMap::new();
    for (&variable, &assign) in &run.assigned {
        let (node, _) = run.nodes.source(assign, 1).ok_or_else(|| refused(assign, "no value"))?;
        values.insert(variable.to_owned(), run.value(node, 0)?);
    }
    Ok(values)
}

struct Run<'a> {
    nodes: Nodes<'a>,
    /// The assignment of each variable.
    assigned: HashMap<&'a str, &'a NodeDef>,
    weights: &'a dyn TensorStore,
    /// What was done so far.
    steps: Cell<usize>,
    bytes: Cell<usize>,
}

impl Run<'_> {
    fn fill(&self, node: &NodeDef, shape: Shape, value: &Tensor) -> Result<Tensor> {
        let bytes = value.bytes()?;
        let size = shape.elements().and_then(|n| n.checked_mul(bytes.len()));
        let total = size.and_then(|size| size.checked_add(self.bytes.get()));
        match (size, total) {
            (Some(size), Some(total)) if total <= MOST_BYTES && value.elements() == 1 => {
                self.bytes.set(total);
                let data = bytes.repeat(size.checked_div(bytes.len()).unwrap_or(0));
                Ok(Tensor::new(value.dtype(), shape, data)?)
            }
            _ => Err(refused(node, "it fills too large a tensor")),
        }
    }

    fn value(&self, node: &NodeDef, depth: usize) -> Result<Tensor> {
        self.steps.set(self.steps.get() + 1);
        if depth > DEEPEST || self.steps.get() > MOST_STEPS {
            return Err(refused(node, "its value is computed in too many steps"));
        }
        let operand = |i: usize| {
            let (source, _) =
                self.nodes.source(node, i).ok_or_else(|| refused(node, "an operand is missing"))?;
            self.value(source, depth + 1)
        };
        match node.op.as_str() {
            "Const" => graph_def::const_tensor(node)
                .map_err(|source| Error::Value { node: node.name.clone(), source }),
            "Identity" | "ReadVariableOp" | "Snapshot" => operand(0),
            "Variable" | "VariableV2" | "VarHandleOp" => match self.assigned.get(&*node.name) {
                Some(assign) => {
                    let value = self.nodes.source(assign, 1);
                    let (value, _) = value.ok_or_else(|| refused(assign, "no value"))?;
                    self.value(value, depth + 1)
                }
                None => self
                    .weights
                    .tensor(&node.name)
                    .map_err(|source| Error::Store { name: node.name.clone(), source }),
            },
            "Fill" => {
                let dims = operand(0)?.to_f64()?;
                self.fill(
                    node,
                    dims.iter().map(|&d| d as usize).collect::<Vec<_>>().into(),
                    &operand(1)?,
                )
            }
            "ZerosLike" => {
                let like = operand(0)?;
                let size = like.dtype().size().ok_or_else(|| refused(node, "it is of strings"))?;
                let zero = Tensor::new(like.dtype(), Shape::scalar(), vec![0u8; size])?;
                self.fill(node, like.shape().clone(), &zero)
            }
            op => Err(refused(
                node,
                &format!(
                    "what {op} computes is not the same in every run, or \
                 not known here"
                ),
            )),
        }
    }
}

fn refused(node: &NodeDef, reason: &str) -> Error {
    Error::Initializer { node: node.name.clone(), op: node.op.clone(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use frazil_tensor::{StoreError, TensorInfo};
    use frazil_tf::pbtxt;

    use super::*;

    struct Nothing;

    impl TensorStore for Nothing {
        fn infos(&self) -> &[TensorInfo] {
            &[]
        }

        fn tensor(&self, name: &str) -> Result<Tensor, StoreError> {
            Err(frazil_tensor::Error::NoSuchTensor(name.to_owned()).into())
        }
    }

    fn run(text: &str) -> Result<BTreeMap<String, Tensor>> {
        let def: GraphDef = pbtxt::parse(text).unwrap();
        initialize(&def, &["init".to_owned()], &Nothing)
    }

    fn constant(name: &str, dtype: &str, value: &str) -> String {
        format!(
            r#"node {{ name: "{name}" op: "Const" attr {{ key: "dtype" value {{ type: {dtype} }} }}
            attr {{ key: "value" value {{ tensor {{ dtype: {dtype} {value} }} }} }} }}"#
        )
    }

    #[test]
    fn fills_and_copies() {
        let text = format!(
            r#"{} {}
            node {{ name: "fill" op: "Fill" input: "dims" input: "one" }}
            node {{ name: "a" op: "VariableV2" }} node {{ name: "b" op: "VarHandleOp" }}
            node {{ name: "sa" op: "Assign" input: "a" input: "fill" }}
            node {{ name: "read" op: "Identity" input: "a" }}
            node {{ name: "sb" op: "AssignVariableOp" input: "b" input: "read" }}
            node {{ name: "init" op: "NoOp" input: "^sa" input: "^sb" }}"#,
            constant("dims", "DT_INT32", "tensor_shape { dim { size: 1 } } int_val: 3"),
            constant("one", "DT_FLOAT", "tensor_shape {} float_val: 1")
        );
        let values = run(&text).unwrap();
        assert_eq!(&*values["b"].values::<f32>().unwrap(), &[1.0; 3]);
        assert_eq!(values["a"], values["b"]);
    }

    #[test]
    fn what_changes_from_run_to_run_is_refused() {
        let text = r#"node { name: "a" op: "VariableV2" } node { name: "r" op: "TruncatedNormal" }
            node { name: "init" op: "Assign" input: "a" input: "r" }"#;
        let error = run(text).unwrap_err().to_string();
        assert!(error.starts_with("the initial value of `r` (TruncatedNormal)"), "{error}");
        assert!(run("node { name: \"x\" op: \"NoOp\" }").is_err());
    }

    #[test]
    fn a_few_bytes_do_not_become_gigabytes() {
        // Each fill reads the one before twice: 2^60 steps.
        let mut text = constant("f0", "DT_INT32", "tensor_shape {} int_val: 1");
        for i in 1..60 {
            let before = i - 1;
            text.push_str(&format!(
                r#"node {{ name: "f{i}" op: "Fill" input: "f{before}" input: "f{before}" }}"#
            ));
        }
        text.push_str(
            r#"node { name: "a" op: "VariableV2" }
            node { name: "init" op: "Assign" input: "a" input: "f59" }"#,
        );
        assert!(run(&text).is_err());
    }
}
