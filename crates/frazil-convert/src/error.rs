//! The ways in which a graph cannot be read or written, each with the node.

use frazil_tensor::{DType, StoreError};

/// This crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One variant for each way to be wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The graph is wrong, or a pass over it refused.
    #[error(transparent)]
    Graph(Box<frazil_graph::Error>),
    /// A TensorFlow file is wrong.
    #[error(transparent)]
    Tf(#[from] frazil_tf::Error),
    /// A tensor is wrong, or a file cannot be written.
    #[error(transparent)]
    Tensor(#[from] frazil_tensor::Error),
    /// A weight could not be read.
    #[error("cannot read `{name}`")]
    Store {
        /// The tensor.
        name: String,
        /// The format's own error.
        source: StoreError,
    },
    /// A version of ONNX's operations that frazil does not know.
    #[error("ONNX opset {opset} is not supported: {least} to {most} are")]
    Opset {
        /// What was asked for, or what a file says.
        opset: i64,
        /// The oldest.
        least: u32,
        /// The newest.
        most: u32,
    },
    /// A graph of which nothing is wanted.
    #[error("the graph has no outputs to write as {target}")]
    NoOutputs {
        /// The format.
        target: &'static str,
    },
    /// A model that the format has no room for.
    #[error("the model takes {bytes} bytes without its weights, more than {target} files can hold")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The format.
        target: &'static str,
    },
    /// An ONNX file that contradicts its format.
    #[error("the model is not what ONNX allows: {reason}")]
    BadOnnx {
        /// What is wrong.
        reason: String,
    },
    /// A tensor in an ONNX file that cannot be read.
    #[error("tensor `{tensor}` cannot be used: {reason}")]
    BadTensor {
        /// Its name.
        tensor: String,
        /// Why not.
        reason: String,
    },
    /// A node without a name.
    #[error("node number {index} ({op}) has no name")]
    NoName {
        /// Its place in the file, counted from 0.
        index: usize,
        /// Its operation.
        op: String,
    },
    /// Two nodes of one name.
    #[error("two nodes are named `{node}`")]
    DuplicateNode {
        /// The name.
        node: String,
    },
    /// A node reads one that is not there.
    #[error("`{node}` reads `{input}`, and no node has that name")]
    UnknownInput {
        /// Who reads.
        node: String,
        /// What it reads, as the file has it.
        input: String,
        /// Names that look like it.
        near: Vec<String>,
    },
    /// An input that is neither `name`, `name:port` nor `^name`.
    #[error("`{node}` reads `{input}`, which is neither `name`, `name:port` nor `^name`")]
    BadInput {
        /// Who reads.
        node: String,
        /// What it reads, as the file has it.
        input: String,
    },
    /// A value after a control input.
    #[error("`{node}` reads the value `{input}` after a control input")]
    InputOrder {
        /// Who reads.
        node: String,
        /// What it reads.
        input: String,
    },
    /// An output that its node does not have.
    #[error("`{node}` reads `{input}`, but {op} has {outputs} output(s)")]
    WrongPort {
        /// Who reads.
        node: String,
        /// What it reads.
        input: String,
        /// The operation of the node that is read.
        op: String,
        /// How many outputs that one has.
        outputs: usize,
    },
    /// A node that reads itself.
    #[error("`{node}` reads itself")]
    SelfLoop {
        /// The node.
        node: String,
    },
    /// An attribute that is missing or makes no sense.
    #[error("attribute `{attribute}` of `{node}` ({op}): {reason}")]
    Attribute {
        /// The node.
        node: String,
        /// Its operation.
        op: String,
        /// The attribute.
        attribute: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A constant whose value cannot be read.
    #[error("the value of `{node}` cannot be used")]
    Value {
        /// The node.
        node: String,
        /// Why not.
        source: frazil_tf::Error,
    },
    /// A function that cannot be put in the place of its call.
    #[error("`{node}` calls the function `{function}`: {reason}")]
    Function {
        /// The call.
        node: String,
        /// The function.
        function: String,
        /// Why not.
        reason: String,
    },
    /// Functions that call each other beyond all bounds.
    #[error("with its functions put in place the graph takes more than {limit} bytes")]
    FunctionsTooLarge {
        /// The most that are allowed.
        limit: usize,
    },
    /// An output that the graph does not have.
    #[error("{name} is not in graph")]
    NotInGraph {
        /// What was asked for.
        name: String,
        /// Names that look like it.
        near: Vec<String>,
    },
    /// A variable that cannot be frozen.
    #[error("`{node}`: {reason}")]
    Freeze {
        /// The node that reads it.
        node: String,
        /// Why not.
        reason: String,
    },
    /// An initial value that cannot be computed.
    #[error("the initial value of `{node}` ({op}) cannot be computed: {reason}")]
    Initializer {
        /// The node.
        node: String,
        /// Its operation.
        op: String,
        /// Why not.
        reason: String,
    },
    /// A type that has to be written and is not known.
    #[error("the type of `{value}` is not known, and {target} needs it to write `{node}` ({op})")]
    NoType {
        /// The node that is to be written.
        node: String,
        /// Its operation.
        op: String,
        /// The value whose type is missing.
        value: String,
        /// The format.
        target: &'static str,
    },
    /// An input or output of the model whose type is not known.
    #[error("the type of `{name}` is not known, and a signature needs it")]
    UntypedEnd {
        /// The input or output.
        name: String,
    },
    /// A type that the operation or the format does not take.
    #[error("`{node}` ({op}): {target} takes no {dtype} there")]
    BadType {
        /// The node.
        node: String,
        /// Its operation.
        op: String,
        /// The type.
        dtype: DType,
        /// The format.
        target: &'static str,
    },
    /// An operation that the format does not have.
    #[error("`{node}`: {target} has no {op}")]
    NoEquivalent {
        /// The node.
        node: String,
        /// Its operation.
        op: String,
        /// The format.
        target: &'static str,
    },
    /// The `.xml` of an OpenVINO model is none.
    #[error("at byte {at}: {reason}")]
    IrText {
        /// Where.
        at: u64,
        /// What is wrong.
        reason: String,
    },
    /// A layer of an OpenVINO model that contradicts itself or its surroundings.
    #[error("layer `{layer}` ({kind}): {reason}")]
    IrLayer {
        /// Its name.
        layer: String,
        /// Its type.
        kind: String,
        /// What is wrong.
        reason: String,
    },
    /// Nodes that the format cannot hold, all of them.
    #[error("{target} cannot hold {}", refusals(nodes))]
    Refused {
        /// The format.
        target: &'static str,
        /// The nodes.
        nodes: Vec<Refusal>,
    },
}

/// A node that a format cannot hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The node.
    pub node: String,
    /// Its operation.
    pub op: String,
    /// Why not.
    pub reason: String,
}

/// The first few nodes with their reasons, and how many there are beside them.
fn refusals(nodes: &[Refusal]) -> String {
    const SHOWN: usize = 8;
    let mut lines: Vec<String> = nodes
        .iter()
        .take(SHOWN)
        .map(|Refusal { node, op, reason }| format!("`{node}` ({op}): {reason}"))
        .collect();
    if nodes.len() > SHOWN {
        lines.push(format!("{} more", nodes.len() - SHOWN));
    }
    lines.join("; ")
}

/// Boxed: it is larger than all others.
impl From<frazil_graph::Error> for Error {
    fn from(error: frazil_graph::Error) -> Self {
        Self::Graph(Box::new(error))
    }
}

impl Error {
    /// The way out, where there is one to name.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Graph(error) => error.hint(),
            Error::Tf(error) | Error::Value { source: error, .. } => error.hint(),
            Error::Store { source, .. } => {
                source.downcast_ref::<frazil_tf::Error>().and_then(frazil_tf::Error::hint)
            }
            Error::Tensor(error) => error.hint(),
            Error::Opset { .. } => Some("17 is what most engines know".to_owned()),
            Error::NoOutputs { .. } => Some("name them with `--output`".to_owned()),
            Error::UnknownInput { near, .. } if !near.is_empty() => {
                let near: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
                Some(format!("the nearest names are {}", near.join(", ")))
            }
            Error::Refused { .. } => Some(
                "cut these nodes away with `--input` or `--output`; `frazil inspect MODEL --nodes` \
                 lists the nodes of a graph"
                    .to_owned(),
            ),
            Error::NotInGraph { name, near } if name.contains(':') => {
                let node = near.first().map_or("the node", String::as_str);
                Some(format!("write the name of the node without a port, `{node}` for example"))
            }
            Error::NotInGraph { near, .. } if !near.is_empty() => {
                let near: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
                Some(format!("did you mean {}?", near.join(" or ")))
            }
            Error::NoEquivalent { .. } => {
                Some("cut it away with `--input` or `--output`".to_owned())
            }
            _ => None,
        }
    }
}
