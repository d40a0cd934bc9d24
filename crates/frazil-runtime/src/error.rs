//! What can go wrong before and while a graph runs, each with the node or input where.

use frazil_kernels::Isa;
use frazil_tensor::{DType, Shape};

/// This crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One variant for each way to be wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A variable that cannot be trained, or a value that does not fit it.
    #[error("variable `{name}` is {found}")]
    Parameter {
        /// Its name.
        name: String,
        /// What it is.
        found: String,
    },
    /// Weights of another model, or none.
    #[error("{found} weights are given, the program has {wanted}")]
    Parameters {
        /// How many are given.
        found: usize,
        /// How many there are.
        wanted: usize,
    },
    /// The graph itself is wrong.
    #[error(transparent)]
    Graph(#[from] frazil_graph::Error),
    /// A node that cannot run, and the outputs that need it.
    #[error("output {} needs `{name}` ({op}), which frazil cannot run{}", list(outputs), others(*more))]
    CannotRun {
        /// The outputs.
        outputs: Vec<String>,
        /// The first such node.
        name: String,
        /// Its operation.
        op: String,
        /// How many other nodes cannot run either.
        more: usize,
    },
    /// A weight without a value.
    #[error("output {} needs variable `{name}`, which has no value in this graph", list(outputs))]
    NoValue {
        /// The outputs.
        outputs: Vec<String>,
        /// The variable.
        name: String,
    },
    /// There is nothing to compute.
    #[error("the graph has no outputs")]
    NoOutputs,
    /// A weight that is damaged.
    #[error("weight `{name}` has something that is no number at element {at}")]
    NotANumber {
        /// The weight.
        name: String,
        /// Which element, in row-major order.
        at: usize,
    },
    /// Instructions that this machine lacks.
    #[error("this machine has no {isa}")]
    NoIsa {
        /// Their name.
        isa: &'static str,
    },
    /// `FRAZIL_ISA` names no instructions.
    #[error("`FRAZIL_ISA` is `{name}`")]
    UnknownIsa {
        /// What it says.
        name: String,
    },
    /// `FRAZIL_THREADS` is no number of threads.
    #[error("`FRAZIL_THREADS` is `{given}`, which is no number of threads")]
    Threads {
        /// What it says.
        given: String,
    },
    /// An input was not given.
    #[error("input `{name}` ({expected}) is not given")]
    MissingInput {
        /// The input.
        name: String,
        /// Its type and extents.
        expected: String,
        /// What was given that the graph does not know.
        unknown: Vec<String>,
    },
    /// Something was given that is no input.
    #[error("the model has no input `{name}`")]
    UnknownInput {
        /// What was given.
        name: String,
        /// Inputs that look like it.
        near: Vec<String>,
        /// All inputs.
        inputs: Vec<String>,
    },
    /// An input of another type, which cannot be converted.
    #[error("input `{name}` is {expected}, but {found} was given")]
    InputType {
        /// The input.
        name: String,
        /// Its type.
        expected: DType,
        /// What was given.
        found: DType,
    },
    /// A batch without sequences, or sequences without positions.
    #[error("input `{name}` is {found}: `{extent}` is 0, so there is nothing to compute")]
    EmptyInput {
        /// The input.
        name: String,
        /// Its extents.
        found: Shape,
        /// What the extent is that is 0.
        extent: String,
    },
    /// A number that the input's type cannot hold.
    #[error("input `{name}` is {expected}, which cannot hold {value} (element {at})")]
    InputValue {
        /// The input.
        name: String,
        /// Its type.
        expected: DType,
        /// The number.
        value: i128,
        /// Which element, in row-major order.
        at: usize,
    },
    /// An input with too many or too few axes.
    #[error("input `{name}` is {expected}, but {found} was given")]
    InputRank {
        /// The input.
        name: String,
        /// Its extents.
        expected: String,
        /// What was given.
        found: Shape,
    },
    /// An extent that the model fixes.
    #[error("axis {axis} of input `{name}` is {expected}, but {found} was given")]
    InputExtent {
        /// The input.
        name: String,
        /// The axis.
        axis: usize,
        /// What the model says.
        expected: String,
        /// What was given.
        found: usize,
    },
    /// One size that two inputs disagree about.
    #[error("`{symbol}` is {first} in input `{first_name}`, but {second} in input `{second_name}`")]
    Disagree {
        /// The size's name.
        symbol: String,
        /// What the first one makes it.
        first: usize,
        /// The first input.
        first_name: String,
        /// What the second one makes it.
        second: usize,
        /// The second input.
        second_name: String,
    },
    /// Operands that do not go together.
    #[error("`{name}` ({op}): {reason}")]
    Operands {
        /// The node.
        name: String,
        /// Its operation.
        op: String,
        /// What does not fit.
        reason: String,
    },
    /// An index outside of what it indexes.
    #[error("`{name}` ({op}): {what} {index} (element {at} of `{indices}`) is not in 0..{limit}")]
    Index {
        /// The node.
        name: String,
        /// Its operation.
        op: String,
        /// What kind of index, `id` for example.
        what: &'static str,
        /// The index.
        index: i64,
        /// Which element of the indices, in row-major order.
        at: usize,
        /// The value that holds the indices.
        indices: String,
        /// How many there are to choose from.
        limit: usize,
    },
    /// An element type that an operation has no kernel for.
    #[error("`{name}` ({op}) does not work on {dtype}")]
    Type {
        /// The node.
        name: String,
        /// Its operation.
        op: String,
        /// The type.
        dtype: DType,
    },
    /// A result beyond this machine's memory.
    #[error("`{name}` ({op}): there is no memory for {dtype} {shape}")]
    TooLarge {
        /// The node.
        name: String,
        /// Its operation.
        op: String,
        /// The type.
        dtype: DType,
        /// The extents.
        shape: Shape,
    },
    /// A tensor that cannot be read or made.
    #[error("`{name}` ({op})")]
    Tensor {
        /// The node.
        name: String,
        /// Its operation.
        op: String,
        /// Why not.
        source: frazil_tensor::Error,
    },
}

impl Error {
    /// What the user can do, where there is something.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Graph(error) => return error.hint(),
            Self::CannotRun { .. } => {
                "cut the graph behind that node (`--input`), or ask for an output that does not \
                 need it (`--output`)"
                    .into()
            }
            Self::NoValue { .. } => {
                "freeze the graph first, or give the checkpoint together with the graph".into()
            }
            Self::UnknownIsa { .. } => {
                let known = Isa::ALL.map(Isa::name).join("`, `");
                format!("unset it, or name one of `{known}`")
            }
            Self::NoOutputs => "name the wanted nodes with `--output`".into(),
            Self::MissingInput { unknown, .. } if !unknown.is_empty() => {
                format!("given, but unknown to the model: {}", list(unknown))
            }
            Self::UnknownInput { near, .. } if !near.is_empty() => {
                format!("did you mean {}?", list(near))
            }
            Self::UnknownInput { inputs, .. } => format!("its inputs are {}", list(inputs)),
            Self::InputExtent { axis: 0 | 1, .. } => {
                "the graph was made for that size: `frazil reshape --batch dynamic --seq dynamic` \
                 makes one for any"
                    .into()
            }
            Self::Operands { name, op, .. } if op == "Slice" && name.contains("embeddings") => {
                "the sequence is longer than the model has positions".into()
            }
            Self::Index { what: "id", .. } => {
                "the inputs were made with another vocabulary than the model".into()
            }
            _ => return None,
        })
    }
}

/// `` `a`, `b` ``, at most six of them.
fn list(names: &[String]) -> String {
    let mut shown: Vec<String> = names.iter().take(6).map(|name| format!("`{name}`")).collect();
    if names.len() > shown.len() {
        shown.push(format!("{} more", names.len() - shown.len()));
    }
    shown.join(", ")
}

fn others(more: usize) -> String {
    if more == 0 { String::new() } else { format!(" (nor {more} other nodes)") }
}
