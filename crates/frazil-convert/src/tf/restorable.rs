//! A graph that saves and restores its variables: the MetaGraph beside a checkpoint, and the one in a
//! SavedModel.
//!
//! To the nodes of the graph come, under the names that TensorFlow's `Saver` gives them, those that
//! write a checkpoint and read it; variables that no output needs, as an optimizer's slots and
//! `global_step`, become nodes of their own. All of them begin with 0: values come from a checkpoint.
//! Left out: what changes variables; whoever trains on builds that anew, as Estimator does.

use std::collections::BTreeMap;

use frazil_graph::{Graph, Op};
use frazil_tensor::{DType, Shape, Tensor, TensorInfo};
use frazil_tf::proto::attr_value::{ListValue, Value};
use frazil_tf::proto::collection_def::{BytesList, Kind};
use frazil_tf::proto::meta_graph_def::MetaInfoDef;
use frazil_tf::proto::saver_def::CheckpointFormatVersion;
use frazil_tf::proto::{
    AttrValue, CollectionDef, GraphDef, MetaGraphDef, NodeDef, SaverDef, VersionDef,
};
use frazil_tf::{dtype, tensor_proto};
use prost::Message;

use super::{attr, export};
use crate::{Error, Result};

/// As many checkpoints as TensorFlow keeps where nothing else is said.
const KEPT: i32 = 5;
/// What graphs of TensorFlow 1.15 say of themselves.
const PRODUCER: i32 = 134;

/// The MetaGraph of a graph whose variables are not frozen. `others` are variables beside those of
/// the graph.
pub fn meta_graph(graph: &Graph, others: &[TensorInfo]) -> Result<MetaGraphDef> {
    let mut def = export(graph, None)?;
    let mut variables: BTreeMap<&str, (DType, &Shape)> = BTreeMap::new();
    for (_, node) in graph.nodes() {
        let Op::Variable(variable) = &node.op else { continue };
        let shape = variable.shape.as_ref().filter(|_| !variable.resource);
        let shape = shape.ok_or_else(|| Error::NoEquivalent {
            node: node.name.clone(),
            op: "a variable without a shape, or a resource".to_owned(),
            target: "a MetaGraph",
        })?;
        variables.insert(&node.name, (variable.dtype, shape));
    }
    let trained: Vec<String> = variables.keys().map(|name| (*name).to_owned()).collect();
    let mut nodes = Nodes { def: &mut def };
    for info in others {
        nodes.variable(&info.name, info.dtype, &info.shape);
        variables.insert(&info.name, (info.dtype, &info.shape));
    }
    for (name, (dtype, shape)) in &variables {
        nodes.initializer(name, *dtype, shape);
    }
    let saver = nodes.saver(&variables);
    let starts: Vec<String> = variables.keys().map(|name| format!("^{name}/Assign")).collect();
    nodes.push("init", "NoOp", &starts, vec![]);
    def.versions = Some(VersionDef { producer: PRODUCER, ..VersionDef::default() });
    let all = || variables.keys().map(|name| VariableDef::of(name, is_in(&trained, name)));
    let mut collection_def = BTreeMap::from([
        ("variables".to_owned(), collection(all())),
        ("trainable_variables".to_owned(), collection(all().filter(|of| of.trainable))),
    ]);
    if variables.contains_key("global_step") {
        let step = collection([VariableDef::of("global_step", false)]);
        collection_def.insert("global_step".to_owned(), step);
    }
    Ok(MetaGraphDef {
        meta_info_def: Some(MetaInfoDef {
            tensorflow_version: "1.15.5".to_owned(),
            ..MetaInfoDef::default()
        }),
        graph_def: Some(def),
        saver_def: Some(saver),
        collection_def,
        ..MetaGraphDef::default()
    })
}

fn is_in(sorted: &[String], name: &str) -> bool {
    sorted.binary_search_by(|known| known.as_str().cmp(name)).is_ok()
}

/// What TensorFlow's collections have of a variable: the fields that version 1 writes.
#[derive(Clone, PartialEq, Message)]
struct VariableDef {
    #[prost(string, tag = "1")]
    variable_name: String,
    #[prost(string, tag = "2")]
    initializer_name: String,
    #[prost(string, tag = "3")]
    snapshot_name: String,
    #[prost(string, tag = "6")]
    initial_value_name: String,
    #[prost(bool, tag = "7")]
    trainable: bool,
}

impl VariableDef {
    fn of(name: &str, trainable: bool) -> Self {
        Self {
            variable_name: format!("{name}:0"),
            initializer_name: format!("{name}/Assign"),
            snapshot_name: format!("{name}/read:0"),
            initial_value_name: format!("{name}/Initializer/zeros:0"),
            trainable,
        }
    }
}

fn collection(variables: impl IntoIterator<Item = VariableDef>) -> CollectionDef {
    let value = variables.into_iter().map(|of| of.encode_to_vec().into()).collect();
    CollectionDef { kind: Some(Kind::BytesList(BytesList { value })) }
}

/// Nodes that are added to a message.
struct Nodes<'d> {
    def: &'d mut GraphDef,
}

impl Nodes<'_> {
    fn push(&mut self, name: &str, op: &str, inputs: &[String], attrs: Vec<(&str, Value)>) {
        let attr = attrs
            .into_iter()
            .map(|(name, value)| (name.to_owned(), AttrValue { value: Some(value) }));
        self.def.node.push(NodeDef {
            name: name.to_owned(),
            op: op.to_owned(),
            input: inputs.to_vec(),
            attr: attr.collect(),
            ..NodeDef::default()
        });
    }

    fn constant(&mut self, name: &str, value: &Tensor) {
        let attrs = vec![
            ("dtype", type_of(value.dtype())),
            ("value", Value::Tensor(Box::new(tensor_proto::from_tensor(value)))),
        ];
        self.push(name, "Const", &[], attrs);
    }

    fn strings<'s>(&mut self, name: &str, shape: Shape, of: impl Iterator<Item = &'s str>) {
        let strings = of.map(|text| bytes::Bytes::copy_from_slice(text.as_bytes())).collect();
        let tensor = Tensor::from_strings(shape, strings).expect("as many texts as the shape has");
        self.constant(name, &tensor);
    }

    /// A variable, and the node that reads it.
    fn variable(&mut self, name: &str, dtype: DType, shape: &Shape) {
        let dims: Vec<i64> = shape.iter().map(|&extent| extent as i64).collect();
        let attrs = vec![
            ("dtype", type_of(dtype)),
            ("shape", Value::Shape(attr::shape_proto(Some(&dims)))),
            ("container", Value::S(bytes::Bytes::new())),
            ("shared_name", Value::S(bytes::Bytes::new())),
        ];
        self.push(name, "VariableV2", &[], attrs);
        let (read, t) = (format!("{name}/read"), vec![("T", type_of(dtype))]);
        self.push(&read, "Identity", &[name.to_owned()], t);
    }

    /// What gives a variable zeros.
    fn initializer(&mut self, name: &str, dtype: DType, shape: &Shape) {
        let dims: Vec<i32> =
            shape.iter().map(|&extent| i32::try_from(extent).unwrap_or(i32::MAX)).collect();
        let zeros = format!("{name}/Initializer/zeros");
        let (of_shape, of_zero) = (format!("{zeros}/shape_as_tensor"), format!("{zeros}/Const"));
        let dims = Tensor::from_vec([dims.len()], dims).expect("a list has its length");
        self.constant(&of_shape, &dims);
        let zero = match dtype {
            DType::I64 => Tensor::from_vec([], vec![0i64]),
            DType::I32 => Tensor::from_vec([], vec![0i32]),
            _ => Tensor::from_vec([], vec![0f32]),
        };
        self.constant(&of_zero, &zero.expect("one number"));
        let attrs = vec![("T", type_of(dtype)), ("index_type", type_of(DType::I32))];
        self.push(&zeros, "Fill", &[of_shape, of_zero], attrs);
        self.assign(&format!("{name}/Assign"), name, dtype, zeros);
    }

    fn assign(&mut self, node: &str, variable: &str, dtype: DType, value: String) {
        let attrs = vec![
            ("T", type_of(dtype)),
            ("use_locking", Value::B(true)),
            ("validate_shape", Value::B(true)),
        ];
        self.push(node, "Assign", &[variable.to_owned(), value], attrs);
    }

    /// What saves and restores all variables.
    fn saver(&mut self, variables: &BTreeMap<&str, (DType, &Shape)>) -> SaverDef {
        let texts = type_of(DType::String);
        let scalar = || ("shape", Value::Shape(attr::shape_proto(Some(&[]))));
        self.strings("save/filename/input", Shape::from([]), ["model"].into_iter());
        let default = "PlaceholderWithDefault";
        let filename = ["save/filename/input".to_owned()];
        self.push("save/filename", default, &filename, vec![("dtype", texts.clone()), scalar()]);
        let prefix = ["save/filename".to_owned()];
        self.push("save/Const", default, &prefix, vec![("dtype", texts.clone()), scalar()]);
        let count = Shape::from([variables.len()]);
        let types = variables.values().map(|(dtype, _)| dtype::to_proto(*dtype) as i32);
        let types =
            Value::List(Box::new(ListValue { r#type: types.collect(), ..Default::default() }));
        let named = |what: &str| {
            [
                "save/Const",
                &format!("save/{what}/tensor_names"),
                &format!("save/{what}/shape_and_slices"),
            ]
            .map(str::to_owned)
            .to_vec()
        };
        for what in ["SaveV2", "RestoreV2"] {
            let [_, names, slices] = &named(what)[..] else { unreachable!("three inputs") };
            self.strings(names, count.clone(), variables.keys().copied());
            self.strings(slices, count.clone(), variables.keys().map(|_| ""));
        }
        let mut saved = named("SaveV2");
        saved.extend(variables.keys().map(|name| (*name).to_owned()));
        self.push("save/SaveV2", "SaveV2", &saved, vec![("dtypes", types.clone())]);
        let done = ["save/Const".to_owned(), "^save/SaveV2".to_owned()];
        self.push("save/control_dependency", "Identity", &done, vec![("T", texts)]);
        self.push("save/RestoreV2", "RestoreV2", &named("RestoreV2"), vec![("dtypes", types)]);
        let mut restored = Vec::new();
        for (at, (name, (dtype, _))) in variables.iter().enumerate() {
            let node = if at == 0 { "save/Assign".into() } else { format!("save/Assign_{at}") };
            let value =
                if at == 0 { "save/RestoreV2".into() } else { format!("save/RestoreV2:{at}") };
            self.assign(&node, name, *dtype, value);
            restored.push(format!("^{node}"));
        }
        self.push("save/restore_all", "NoOp", &restored, vec![]);
        SaverDef {
            filename_tensor_name: "save/Const:0".to_owned(),
            save_tensor_name: "save/control_dependency:0".to_owned(),
            restore_op_name: "save/restore_all".to_owned(),
            max_to_keep: KEPT,
            keep_checkpoint_every_n_hours: 10_000.0,
            version: CheckpointFormatVersion::V2 as i32,
            ..SaverDef::default()
        }
    }
}

fn type_of(dtype: DType) -> Value {
    Value::Type(dtype::to_proto(dtype) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tf::saver;
    use frazil_graph::op::{Unary, Variable};
    use frazil_graph::{Node, Port};

    /// What is saved is what is restored: the graph's variables and the others, each under its name.
    #[test]
    fn all_variables_are_saved_and_restored() {
        let mut graph = Graph::new();
        let variable = Op::Variable(Variable {
            dtype: DType::F32,
            shape: Some([2, 3].into()),
            resource: false,
        });
        let w = graph.push(Node::new("w", variable, vec![])).unwrap();
        let read =
            graph.push(Node::new("w/read", Op::Unary(Unary::Identity), vec![w.into()])).unwrap();
        graph.outputs.push(Port { name: "out".into(), value: read.into() });
        let info = |name: &str, dtype, shape| TensorInfo { name: name.into(), dtype, shape };
        let others = [
            info("w/adam_m", DType::F32, [2, 3].into()),
            info("global_step", DType::I64, Shape::from([])),
        ];
        let meta = meta_graph(&graph, &others).unwrap();
        let (def, saver) = (meta.graph_def.as_ref().unwrap(), meta.saver_def.as_ref().unwrap());
        let restored = saver::restored(def, saver);
        let names: Vec<(&str, &str)> =
            restored.iter().map(|(name, source)| (name.as_str(), source.key.as_str())).collect();
        assert_eq!(names, ["global_step", "w", "w/adam_m"].map(|name| (name, name)));
        let save = def.node.iter().find(|node| node.name == "save/SaveV2").unwrap();
        assert_eq!(save.input[3..], ["global_step", "w", "w/adam_m"]);
        let mut seen = std::collections::HashSet::new();
        assert!(def.node.iter().all(|node| seen.insert(&node.name)), "each name once");
        let trained = &meta.collection_def["trainable_variables"];
        let Some(Kind::BytesList(list)) = &trained.kind else { panic!("a list of messages") };
        assert_eq!(VariableDef::decode(list.value[0].clone()).unwrap().variable_name, "w:0");
        assert_eq!(list.value.len(), 1);
    }

    #[test]
    fn a_variable_without_a_shape_is_refused() {
        let mut graph = Graph::new();
        let variable = Op::Variable(Variable { dtype: DType::F32, shape: None, resource: false });
        let w = graph.push(Node::new("w", variable, vec![])).unwrap();
        graph.outputs.push(Port { name: "out".into(), value: w.into() });
        assert!(meta_graph(&graph, &[]).is_err());
    }
}
