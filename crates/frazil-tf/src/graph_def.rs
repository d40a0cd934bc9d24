//! Graphs: `graph.pbtxt`, `frozen_graph.pb`. Reading, writing, and the constants in them as
//! tensors by name. What the nodes compute is a later crate's business; the function library is
//! carried along untouched.

use std::io::{self, Write};
use std::path::Path;

use bytes::Bytes;
use frazil_tensor::{Shape, StoreError, Tensor, TensorInfo, TensorStore};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};

use crate::proto::{GraphDef, NodeDef, TensorProto, attr_value::Value};
use crate::{Error, Result, dtype, message_file, tensor_proto};

const EXPECTED: &str = "a GraphDef";
/// The number of `GraphDef.node`.
const NODE_FIELD: u32 = 1;

/// A graph from its binary or text form, whichever `bytes` are. Constants stay where they are.
pub fn decode(bytes: Bytes) -> Result<GraphDef> {
    message_file::decode(bytes, EXPECTED)
}

/// The bytes of a graph whose weights are small or elsewhere; [`write()`] keeps no second copy of large ones.
pub fn encode(graph: &GraphDef) -> Vec<u8> {
    graph.encode_to_vec()
}

/// [`decode`] of a file, which is mapped, not read.
pub fn read(path: impl AsRef<Path>) -> Result<GraphDef> {
    message_file::read(path.as_ref(), EXPECTED)
}

/// Writes the binary form.
///
/// The bytes are those of the message encoded at once; but nodes are encoded one by one, and the
/// contents of large constants go into the file from where they lie, since the weights of a large
/// model should not be in memory twice: a table of words can be half of them.
pub fn write(path: impl AsRef<Path>, graph: &GraphDef) -> Result<()> {
    message_file::write_pieces(path.as_ref(), graph, |file| write_to(graph, file))
}

/// What [`write()`] puts into the file.
pub(crate) fn write_to(graph: &GraphDef, file: &mut dyn Write) -> io::Result<()> {
    let mut buffer = Vec::new();
    for node in &graph.node {
        buffer.clear();
        if let Some((before, content)) = large_constant(node) {
            file.write_all(&before)?;
            file.write_all(content)?;
            continue;
        }
        prost::encoding::message::encode(NODE_FIELD, node, &mut buffer);
        file.write_all(&buffer)?;
    }
    let rest = GraphDef {
        node: Vec::new(),
        library: graph.library.clone(),
        version: graph.version,
        versions: graph.versions.clone(),
        debug_info: graph.debug_info.clone(),
    };
    file.write_all(&rest.encode_to_vec())
}

/// Constants below this size are copied with their nodes.
pub(crate) const LARGE: usize = 1 << 20;

/// A node that ends with the content of a large constant: what comes before it, and it.
fn large_constant(node: &NodeDef) -> Option<(Vec<u8>, &Bytes)> {
    let (last, attr) = node.attr.last_key_value()?;
    let Some(Value::Tensor(proto)) = &attr.value else { return None };
    let content = &proto.tensor_content;
    let tensor = TensorProto {
        dtype: proto.dtype,
        tensor_shape: proto.tensor_shape.clone(),
        version_number: proto.version_number,
        ..TensorProto::default()
    };
    let ends = node.experimental_debug_info.is_none()
        && node.experimental_type.is_none()
        && **proto == TensorProto { tensor_content: content.clone(), ..tensor.clone() };
    if content.len() < LARGE || !ends {
        return None;
    }
    let mut rest = node.clone();
    rest.attr.remove(last);
    let mut key = Vec::new();
    prost::encoding::string::encode(1, last, &mut key);
    // From the inside out: what a message has before the field that leads to the content, and the
    // number of that field.
    let levels = [
        (tensor.encode_to_vec(), 4u32),
        (Vec::new(), 8),
        (key, 2),
        (rest.encode_to_vec(), 5),
        (Vec::new(), NODE_FIELD),
    ];
    let mut before = Vec::new();
    let mut length = content.len();
    for (mut start, field) in levels {
        encode_key(field, WireType::LengthDelimited, &mut start);
        encode_varint(length as u64, &mut start);
        length += start.len();
        start.append(&mut before);
        before = start;
    }
    Some((before, content))
}

/// Writes the text form, as TensorFlow 1.15's `graph.pbtxt`.
pub fn write_text(path: impl AsRef<Path>, graph: &GraphDef) -> Result<()> {
    message_file::write_text(path.as_ref(), graph)
}

/// The constants of a graph in the order of its nodes; an error where a `Const` node has no
/// usable value. Constants within library functions are not among them.
pub fn consts(graph: &GraphDef) -> impl Iterator<Item = Result<TensorInfo>> {
    const_nodes(graph).map(|(_, node)| const_info(node))
}

/// The value of a `Const` node, stretched to its shape as TensorFlow does it.
pub fn const_tensor(node: &NodeDef) -> Result<Tensor> {
    let proto = const_proto(node)?;
    tensor_proto::to_tensor(proto).map_err(|source| in_node(node, source))
}

fn const_nodes(graph: &GraphDef) -> impl Iterator<Item = (usize, &NodeDef)> {
    graph.node.iter().enumerate().filter(|(_, node)| node.op == "Const")
}

fn const_proto(node: &NodeDef) -> Result<&TensorProto> {
    match node.attr.get("value").map(|attr| &attr.value) {
        Some(Some(Value::Tensor(proto))) => Ok(proto),
        _ => Err(Error::NoConstValue { node: node.name.clone() }),
    }
}

fn const_info(node: &NodeDef) -> Result<TensorInfo> {
    let proto = const_proto(node)?;
    let read = || -> Result<TensorInfo> {
        let shape = match &proto.tensor_shape {
            Some(shape) => tensor_proto::shape(shape)?,
            None => Shape::scalar(),
        };
        Ok(TensorInfo { name: node.name.clone(), dtype: dtype::from_proto(proto.dtype)?, shape })
    };
    read().map_err(|source| in_node(node, source))
}

fn in_node(node: &NodeDef, source: Error) -> Error {
    Error::InNode { node: node.name.clone(), source: Box::new(source) }
}

/// A graph's constants by node name: a frozen graph is a file of weights, too.
#[derive(Debug)]
pub struct GraphConsts {
    graph: GraphDef,
    infos: Vec<TensorInfo>,
    /// The node of each entry of `infos`.
    nodes: Vec<usize>,
}

impl GraphConsts {
    /// The constants of `graph`.
    pub fn new(graph: GraphDef) -> Result<Self> {
        let mut found = const_nodes(&graph)
            .map(|(index, node)| Ok((const_info(node)?, index)))
            .collect::<Result<Vec<_>>>()?;
        found.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        if let Some([(twice, _), _]) =
            found.array_windows::<2>().find(|[(a, _), (b, _)]| a.name == b.name)
        {
            return Err(Error::DuplicateNode { node: twice.name.clone() });
        }
        let (infos, nodes) = found.into_iter().unzip();
        Ok(Self { graph, infos, nodes })
    }

    /// The constants of a graph's file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::new(read(&path)?).map_err(|error| error.in_file(path))
    }

    /// The graph that they are in.
    pub fn graph(&self) -> &GraphDef {
        &self.graph
    }
}

impl TensorStore for GraphConsts {
    fn infos(&self) -> &[TensorInfo] {
        &self.infos
    }

    fn tensor(&self, name: &str) -> Result<Tensor, StoreError> {
        let found = self.infos.binary_search_by(|info| info.name.as_str().cmp(name));
        let index = found.map_err(|_| frazil_tensor::Error::NoSuchTensor(name.into()))?;
        Ok(const_tensor(&self.graph.node[self.nodes[index]])?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{AttrValue, DataType};

    fn constant(name: &str, value: Option<TensorProto>) -> NodeDef {
        let attr = value.map(|value| {
            ("value".to_owned(), AttrValue { value: Some(Value::Tensor(Box::new(value))) })
        });
        NodeDef {
            name: name.into(),
            op: "Const".into(),
            attr: attr.into_iter().collect(),
            ..NodeDef::default()
        }
    }

    fn graph() -> GraphDef {
        let tensor = Tensor::from_vec([2], vec![1f32, 2.0]).unwrap();
        let other = NodeDef { name: "a".into(), op: "NoOp".into(), ..NodeDef::default() };
        let value = Some(tensor_proto::from_tensor(&tensor));
        let node = vec![constant("w", value.clone()), other, constant("b", value)];
        GraphDef { node, ..GraphDef::default() }
    }

    #[test]
    fn constants_by_name() {
        let store = GraphConsts::new(graph()).unwrap();
        let names: Vec<&str> = store.infos().iter().map(|info| info.name.as_str()).collect();
        assert_eq!(names, ["b", "w"]);
        assert_eq!(&*store.tensor("w").unwrap().values::<f32>().unwrap(), &[1.0, 2.0]);
        assert!(store.tensor("a").is_err());
    }

    #[test]
    fn wrong_constants_are_named() {
        let mut wrong = graph();
        wrong.node.push(constant("none", None));
        let error = GraphConsts::new(wrong).unwrap_err().to_string();
        assert!(error.contains("`none`"), "{error}");
        let mut wrong = graph();
        let value = TensorProto { dtype: DataType::DtVariant as i32, ..TensorProto::default() };
        wrong.node.push(constant("variant", Some(value)));
        let error = GraphConsts::new(wrong).unwrap_err().to_string();
        assert!(error.contains("`variant`"), "{error}");
        let mut wrong = graph();
        wrong.node.push(wrong.node[0].clone());
        assert!(matches!(GraphConsts::new(wrong), Err(Error::DuplicateNode { .. })));
    }

    #[test]
    fn files_of_both_forms() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("graph");
        write(&path, &graph()).unwrap();
        assert_eq!(read(&path).unwrap(), graph());
        write_text(&path, &graph()).unwrap();
        assert_eq!(read(&path).unwrap(), graph());
    }

    #[test]
    fn large_constants_are_written_as_small_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("graph");
        for elements in [LARGE / 4 - 1, LARGE / 4, LARGE] {
            let values: Vec<f32> = (0..elements).map(|i| i as f32).collect();
            let tensor = Tensor::from_vec([elements], values).unwrap();
            let mut large = graph();
            for attribute in ["_first", "zlast"] {
                let mut node = constant(attribute, Some(tensor_proto::from_tensor(&tensor)));
                node.input = vec!["^a".into()];
                node.device = "/cpu:0".into();
                node.attr.insert(attribute.into(), AttrValue { value: Some(Value::I(3)) });
                large.node.insert(1, node);
            }
            large.version = 7;
            large.library = Some(Default::default());
            write(&path, &large).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), large.encode_to_vec());
        }
    }

    #[test]
    fn other_files_are_called_what_they_are() {
        let cases = [
            ("", "this is an empty file, not a GraphDef"),
            ("meta_info_def { }", "this is a MetaGraphDef in text form, not a GraphDef"),
            ("<html>", "this is a web page, not a GraphDef"),
            ("node {\n nome: 'x' }", "line 2, column 2: NodeDef has no field `nome`"),
            ("just words", "line 1, column 1: GraphDef has no field `just`"),
        ];
        for (text, wanted) in cases {
            let error = decode(Bytes::from_static(text.as_bytes())).unwrap_err().to_string();
            assert!(error.starts_with(wanted), "{error}");
        }
    }
}
