//! The ways a graph can be wrong, each with where.

use frazil_tensor::StoreError;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What is wrong with a graph, or with what was asked of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// More nodes than can be numbered.
    #[error("the graph has more nodes than can be numbered")]
    TooManyNodes,
    /// Two of one name.
    #[error("two nodes or ends are named `{name}`")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// A name that no node has.
    #[error("no node is named `{name}`")]
    UnknownNode {
        /// What was asked for.
        name: String,
        /// What may have been meant.
        near: Vec<String>,
    },
    /// Text after the last colon that is no number.
    #[error("`{name}` is neither a node nor `node:port`")]
    NotAPort {
        /// What was asked for.
        name: String,
    },
    /// An output that the node does not have.
    #[error("`{name}` has {outputs} output(s), there is no `{name}:{port}`")]
    UnknownPort {
        /// The node.
        name: String,
        /// The output that was asked for.
        port: u32,
        /// How many it has.
        outputs: usize,
    },
    /// A node that waits for itself.
    #[error("the graph has a loop through `{name}`")]
    Cycle {
        /// A node of the loop, or behind it.
        name: String,
    },
    /// A wrong number of inputs.
    #[error("`{name}` ({op}) has {found} input(s), {} expected", arity(*least, *most))]
    Arity {
        /// The node.
        name: String,
        /// Its operation.
        op: String,
        /// At least.
        least: usize,
        /// At most.
        most: usize,
        /// As it is.
        found: usize,
    },
    /// An edge from nowhere.
    #[error("`{reader}` reads a node that is not in the graph")]
    Dangling {
        /// Who reads it.
        reader: String,
    },
    /// An input node that is not, or not once, among the model's inputs.
    #[error("`{name}` is listed {listed} times among the model's inputs")]
    InputList {
        /// The node.
        name: String,
        /// How often.
        listed: usize,
    },
    /// Operands that do not go together.
    #[error("`{name}` ({op}): {reason}")]
    Shape {
        /// The node.
        name: String,
        /// Its operation.
        op: String,
        /// What does not fit.
        reason: String,
    },
    /// An end that was cut away from all inputs.
    #[error("output `{output}` does not depend on {inputs}")]
    NoPath {
        /// The output.
        output: String,
        /// The inputs that were named.
        inputs: String,
    },
    /// Something that the outputs need and that cannot be computed.
    #[error("output `{output}` needs `{name}` ({op}), which {reason}")]
    CannotRun {
        /// The output.
        output: String,
        /// The node.
        name: String,
        /// Its operation.
        op: String,
        /// Why not.
        reason: String,
    },
    /// A shape or size that the graph contradicts.
    #[error("`{name}`: {reason}")]
    Reshape {
        /// The node.
        name: String,
        /// Why not.
        reason: String,
    },
    /// A table that has fewer rows than the length asks of it.
    #[error("`{name}`: {reason}")]
    TableTooSmall {
        /// The table.
        name: String,
        /// Who wants more of it.
        reason: String,
        /// Its rows.
        rows: i64,
    },
    /// A size that stays what it is.
    #[error("{size} cannot be other than {baked}: `{name}` ({op}): {reason}")]
    Baked {
        /// The node where the proof fails.
        name: String,
        /// Its operation.
        op: String,
        /// The size, `batch` or `seq`.
        size: String,
        /// What it is.
        baked: i64,
        /// What does not hold for other sizes.
        reason: String,
    },
    /// A constant that may be a size or a number.
    #[error("`{name}` ({op}): {constant} may be {candidates}: {reason}")]
    Unproven {
        /// The node that reads the constant.
        name: String,
        /// Its operation.
        op: String,
        /// Which constant, and which entry of it.
        constant: String,
        /// What it may be.
        candidates: String,
        /// Why neither is proven.
        reason: String,
    },
    /// A weight that the checkpoint lacks.
    #[error("variable `{name}` is not in the weights")]
    MissingVariable {
        /// Its name.
        name: String,
        /// What may have been meant.
        near: Vec<String>,
    },
    /// A weight of another type or shape than the graph's variable.
    #[error("variable `{name}` is {expected} in the graph and {found} in the weights")]
    VariableMismatch {
        /// Its name.
        name: String,
        /// Type and shape in the graph.
        expected: String,
        /// Type and shape in the weights.
        found: String,
    },
    /// A weight that cannot be read.
    #[error("variable `{name}` cannot be read")]
    Store {
        /// Its name.
        name: String,
        /// Why not.
        #[source]
        source: StoreError,
    },
    /// Scales for something that is no site of quantizing.
    #[error("{}", no_site(name, wanted, *known))]
    NoSite {
        /// The name.
        name: String,
        /// What it should be.
        wanted: &'static str,
        /// Whether the graph has a node of that name.
        known: bool,
    },
    /// Scales that do not go with their site.
    #[error("`{name}` cannot be quantized: {reason}")]
    Grid {
        /// The site.
        name: String,
        /// Why not.
        reason: String,
    },
    /// A constant whose bytes do not go with what is asked of them.
    #[error("constant `{name}` cannot be used")]
    Tensor {
        /// The node.
        name: String,
        /// Why not.
        #[source]
        source: frazil_tensor::Error,
    },
}

fn no_site(name: &str, wanted: &str, known: bool) -> String {
    match known {
        true => format!("`{name}` is no {wanted}"),
        false => format!("there is no {wanted} `{name}` in the graph"),
    }
}

fn arity(least: usize, most: usize) -> String {
    match (least, most) {
        (a, b) if a == b => a.to_string(),
        (a, usize::MAX) => format!("at least {a}"),
        (a, b) => format!("{a} to {b}"),
    }
}

impl Error {
    /// The way out, where there is one to name.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::UnknownNode { near, .. } | Error::MissingVariable { near, .. }
                if !near.is_empty() =>
            {
                let near: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
                Some(format!("did you mean {}?", near.join(" or ")))
            }
            Error::UnknownNode { .. } => {
                Some("`frazil inspect MODEL --nodes` lists the nodes of a graph".to_owned())
            }
            Error::Baked { size, .. } => Some(format!(
                "leave {size} as it is, or cut the graph above that node (`--output`)"
            )),
            Error::TableTooSmall { name, rows, .. } if name.contains("position") => {
                Some(format!("the model has {rows} positions: give `--seq` at most {rows}"))
            }
            Error::TableTooSmall { rows, .. } => Some(format!("the table has {rows} rows")),
            Error::Unproven { .. } => Some(
                "leave this size as it is, or cut the graph above that node (`--output`)"
                    .to_owned(),
            ),
            Error::NotAPort { .. } => Some("write `name` or `name:0`".to_owned()),
            Error::UnknownPort { .. } => Some("outputs are counted from 0".to_owned()),
            Error::NoPath { .. } => {
                Some("`frazil inspect MODEL --nodes` shows what each node reads".to_owned())
            }
            Error::MissingVariable { .. } => {
                Some("`frazil inspect` lists what the weights hold and for which head".to_owned())
            }
            _ => None,
        }
    }
}
