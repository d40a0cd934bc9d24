//! The ways training can go wrong, each with where.

use std::path::PathBuf;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What is wrong with a graph that is to be trained, or with what was asked of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A graph that is none, or a node that cannot be added.
    #[error(transparent)]
    Graph(Box<frazil_graph::Error>),
    /// An operation that has no rule.
    #[error("`{name}` ({op}) has no gradient: {reason}")]
    NoGradient {
        /// The node.
        name: String,
        /// Its operation.
        op: String,
        /// Why not.
        reason: String,
    },
    /// A loss that is not one number.
    #[error("the loss `{name}` is {found}, one real number expected")]
    NoLoss {
        /// Its name.
        name: String,
        /// Type and shape.
        found: String,
    },
    /// A weight that makes no difference.
    #[error("the loss does not depend on `{name}`")]
    NotReached {
        /// Its name.
        name: String,
    },
    /// A graph without the end that a loss is computed from.
    #[error("the graph has no output `{name}`, which the {loss} loss is computed from")]
    NoOutput {
        /// The output.
        name: String,
        /// The loss.
        loss: &'static str,
    },
    /// A graph without embeddings, of which the rows of a batch are known.
    #[error("the graph has no embeddings of a batch [b, s]: where its rows come from is unknown")]
    NoRows,
    /// A value that has no row for each position.
    #[error("`{name}` cannot go through dropout: its rows are not those of the batch")]
    NoPlaces {
        /// Its name.
        name: String,
    },
    /// What cannot run.
    #[error(transparent)]
    Runtime(Box<frazil_runtime::Error>),
    /// A step that was asked for without a batch.
    #[error("a step needs at least one batch")]
    NoBatch,
    /// A loss, or gradients, that are no number.
    #[error("the {what} of step {step} is {value}, which is no number to go on with")]
    NotFinite {
        /// The loss, the norm of the gradients, or a weight.
        what: String,
        /// The step, counted from 1 as it is shown.
        step: u64,
        /// What it is.
        value: f64,
    },
    /// A run that has ended so.
    #[error("{why}")]
    NoNumber {
        /// Its last checkpoint.
        path: PathBuf,
        /// What came to no number.
        why: Box<Error>,
    },
    /// A checkpoint that nothing can begin with.
    #[error("`{name}` of the checkpoint has {value}, which is no number to begin with")]
    NoNumberIn {
        /// The weight.
        name: String,
        /// What it has.
        value: f32,
    },
    /// A run cannot go on where it was.
    #[error("the run cannot go on from `{}`", path.display())]
    NotResumed {
        /// Its newest checkpoint.
        path: PathBuf,
        /// Why not.
        source: Box<Error>,
    },
    /// A checkpoint that does not have what is needed.
    #[error("`{name}` of the checkpoint cannot be read")]
    NoState {
        /// The tensor.
        name: String,
        /// Why not.
        #[source]
        source: frazil_tensor::StoreError,
    },
    /// A checkpoint of another training.
    #[error("`{name}` is {found}, {expected} expected")]
    WrongState {
        /// The tensor.
        name: String,
        /// Type and shape in the checkpoint.
        found: String,
        /// Type and shape in this training.
        expected: String,
    },
    /// Samples cannot be read, or not made into a batch.
    #[error(transparent)]
    Bert(Box<frazil_bert::Error>),
    /// A checkpoint cannot be read or written.
    #[error(transparent)]
    Tf(#[from] frazil_tf::Error),
    /// A tensor, or a file, is wrong.
    #[error(transparent)]
    Tensor(#[from] frazil_tensor::Error),
    /// Samples that do not say what is to be learnt.
    #[error("a sample of the batch does not have {expected}, which is to be learnt")]
    NoTarget {
        /// What was looked for.
        expected: &'static str,
    },
    /// What an optimizer is to begin with is of another model.
    #[error(
        "what the optimizer remembers of `{of}` is {found}, and the weight has {expected} numbers"
    )]
    OtherSlot {
        /// The weight.
        of: String,
        /// Type and shape.
        found: String,
        /// How many numbers the weight has.
        expected: usize,
    },
    /// A run that cannot go on from where it was.
    #[error("no step can be taken from `{}`", path.display())]
    NoStepFrom {
        /// The checkpoint that was there.
        path: PathBuf,
        /// Why not.
        source: Box<Error>,
    },
    /// A checkpoint of something else.
    #[error("the checkpoint has none of the model's weights, such as `{expected}`")]
    OtherModel {
        /// The first weight of the model.
        expected: String,
        /// The first names of the checkpoint.
        found: Vec<String>,
    },
    /// Processes that were started together, and cannot know of each other.
    #[error("this is one of {processes} processes under MPI, but frazil was built without it")]
    NoMpi {
        /// How many.
        processes: usize,
    },
    /// MPI cannot be used.
    #[error("MPI: {what}")]
    Mpi {
        /// Why not.
        what: &'static str,
    },
    /// Another rank has ended.
    #[error("rank {rank} is gone")]
    LostRank {
        /// Which one.
        rank: usize,
    },
    /// Ranks that do not do the same.
    #[error("a rank has sent {found} where {expected} were expected: the ranks are out of step")]
    OutOfStep {
        /// What came.
        found: usize,
        /// What this one has.
        expected: usize,
    },
    /// What cannot be told to other ranks: numbers that are none, say.
    #[error("a rank cannot tell the others what it found")]
    NotSent {
        /// Why.
        source: serde_json::Error,
    },
    /// A number of the optimizer with which nothing is learnt.
    #[error("the optimizer's {name} is {found}, and has to be {expected}")]
    Setting {
        /// Which one.
        name: &'static str,
        /// What was given.
        found: f64,
        /// What can be given.
        expected: &'static str,
    },
    /// A head that is not trained.
    #[error("there is no loss for the head `{head}`")]
    NoLossFor {
        /// The head.
        head: String,
    },
}

/// The large ones are boxed, so that a result stays small.
macro_rules! boxed {
    ($($variant:ident: $error:ty),* $(,)?) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::$variant(Box::new(error))
            }
        })*
    };
}

boxed! {
    Bert: frazil_bert::Error,
    Graph: frazil_graph::Error,
    Runtime: frazil_runtime::Error,
}

impl Error {
    /// What the user can do, where there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Bert(error) => error.hint(),
            Self::Tf(error) => error.hint(),
            Self::Tensor(error) => error.hint(),
            Self::Graph(error) => error.hint(),
            Self::Runtime(error) => error.hint(),
            Self::OtherModel { found, .. } => Some(format!(
                "it has {}; `frazil import-weights` makes a checkpoint under BERT's names",
                found.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
            )),
            Self::NoMpi { .. } => Some(
                "build it with `--features mpi` (docs/guides/train-many.md), or leave `mpirun` out"
                    .to_owned(),
            ),
            Self::LostRank { .. } | Self::OutOfStep { .. } => Some(
                "its own messages say why; the last checkpoint is whole: start again to go on from it"
                    .to_owned(),
            ),
            Self::NotFinite { .. } => Some(
                "a smaller learning rate or a longer warm-up may help; `--loss-scaling` may be too large"
                    .to_owned(),
            ),
            Self::NoNumber { path, why } => {
                let hint = why.hint().map_or(String::new(), |hint| hint + "; ");
                Some(format!("{hint}the last checkpoint is `{}`", path.display()))
            }
            Self::NoStepFrom { .. } => Some(
                "if the learning rate, or the factor on the loss, is larger now than it was, give the \
                 smaller one; to go back, name the checkpoint before it in the folder's file \
                 `checkpoint`"
                    .to_owned(),
            ),
            Self::OtherSlot { .. } => {
                Some("begin with a checkpoint of this model, or with one without slots".to_owned())
            }
            Self::NoNumberIn { .. } => Some("begin with another checkpoint".to_owned()),
            Self::NotResumed { .. } => Some(
                "if the checkpoint is damaged, name the one before it in the folder's file \
                 `checkpoint`; if it is of another training, choose another folder"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}
