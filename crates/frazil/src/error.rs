//! What can be wrong before a file format is even reached: the path, or what lies there.

use std::path::PathBuf;

use frazil_tensor::{StoreError, words};

/// This crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One variant for each way to be wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A TensorFlow file is wrong.
    #[error(transparent)]
    Tf(#[from] frazil_tf::Error),
    /// Names or configuration are not those of a BERT, or of another one.
    #[error(transparent)]
    Bert(#[from] frazil_bert::Error),
    /// A graph is wrong, or what is asked of it.
    #[error(transparent)]
    Graph(Box<frazil_graph::Error>),
    /// A graph cannot be read from, or written to, another format.
    #[error(transparent)]
    Convert(Box<frazil_convert::Error>),
    /// A graph cannot run, or not on these inputs.
    #[error(transparent)]
    Run(Box<frazil_runtime::Error>),
    /// A tuning configuration, calibration or a search is wrong.
    #[error(transparent)]
    Tune(Box<frazil_tune::Error>),
    /// A training cannot begin, or not go on.
    #[error(transparent)]
    Train(Box<frazil_train::Error>),
    /// The program that evaluates a model did not end well.
    #[error("`{command}` {status}")]
    EvalCommand {
        /// The command line.
        command: String,
        /// How it ended.
        status: String,
        /// The last that it said on stderr.
        said: String,
    },
    /// The program that evaluates a model ended well and gave no number.
    #[error("the last line that `{command}` printed is no number: {found}")]
    NoNumber {
        /// The command line.
        command: String,
        /// What the line is.
        found: String,
    },
    /// A tensor, or a plain file of tensors, is wrong.
    #[error(transparent)]
    Tensor(#[from] frazil_tensor::Error),
    /// Inputs or outputs of a cut are written wrongly.
    #[error(transparent)]
    CutSpec(#[from] crate::ops::cut_spec::Error),
    /// A tensor could not be read from its store.
    #[error("cannot read `{name}`")]
    Store {
        /// The tensor.
        name: String,
        /// The format's own error.
        source: StoreError,
    },
    /// Nothing has that name.
    #[error("there is no `{}`", path.display())]
    NotFound {
        /// What was asked for.
        path: PathBuf,
        /// Names beside it that look like it.
        near: Vec<String>,
    },
    /// A folder with nothing in it that frazil reads.
    #[error("the folder `{}` holds no checkpoint, graph or SavedModel", path.display())]
    NothingInFolder {
        /// The folder.
        path: PathBuf,
        /// What lies there.
        entries: Vec<String>,
    },
    /// A file that is something else than a model.
    #[error("`{}` is {found}, not a model", path.display())]
    NotAModel {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: &'static str,
        /// What to give instead.
        hint: &'static str,
    },
    /// The path is right, but it does not hold what this command needs.
    #[error("`{}` is a {found}; this needs {expected}", path.display())]
    WrongKind {
        /// The path.
        path: PathBuf,
        /// What it is.
        found: &'static str,
        /// What the command works on.
        expected: &'static str,
        /// What to give instead.
        hint: String,
    },
    /// A file could not be read to its end.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file of text is none.
    #[error("line {line} of `{}` is not UTF-8", path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// A text that was given cannot be used.
    #[error("text {number}: {problem}")]
    BadText {
        /// Counted from 1.
        number: usize,
        /// What is wrong with it.
        problem: frazil_bert::rows::RowProblem,
    },
    /// A layer that the model does not have.
    #[error("there is no layer {index}: the model has {layers} layers")]
    NoLayer {
        /// What was asked for.
        index: i32,
        /// How many there are.
        layers: usize,
    },
    /// A graph in which BERT's layers cannot be told apart.
    #[error(
        "the layers of a BERT are not to be seen in the graph: it has {norms} LayerNorms, \
         {attentions} of them behind an attention"
    )]
    NoLayers {
        /// LayerNorms by formula.
        norms: usize,
        /// Those with a softmax between them and the one before.
        attentions: usize,
    },
    /// The log of a run could not be written where it belongs.
    #[error("the run is over, and its log is `{}`", kept.display())]
    LogElsewhere {
        /// Where it was written instead.
        kept: PathBuf,
        /// Why it is not where it belongs.
        source: Box<frazil_train::Error>,
    },
    /// Options that do not go together, or a value that means nothing.
    #[error("{what}")]
    Usage {
        /// What is wrong.
        what: String,
        /// What to write instead.
        hint: String,
    },
    /// Somebody has asked for an end.
    #[error("it was told to stop")]
    Stopped,
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
    Graph: frazil_graph::Error,
    Convert: frazil_convert::Error,
    Run: frazil_runtime::Error,
    Train: frazil_train::Error,
    Tune: frazil_tune::Error,
}

impl Error {
    /// What the user can do, where there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Tf(error) => error.hint(),
            Self::Bert(error) => error.hint(),
            Self::Graph(error) => error.hint(),
            Self::Convert(error) => error.hint(),
            Self::Run(error) => error.hint(),
            Self::Train(error) => error.hint(),
            Self::Tune(error) => error.hint(),
            Self::EvalCommand { said, .. } if said.is_empty() => None,
            Self::EvalCommand { said, .. } => Some(format!("the last that it said: {said}")),
            Self::NoNumber { .. } => Some(
                "it must print the accuracy as its last line on stdout, such as `91.25`".into(),
            ),
            Self::Tensor(error) => error.hint(),
            Self::Read { path, source } if source.kind() == std::io::ErrorKind::NotFound => {
                words::missing(path, false)
            }
            Self::Read { .. } | Self::BadText { .. } => None,
            Self::LogElsewhere { .. } => {
                Some("make room, and the same line again puts it where it belongs".into())
            }
            Self::NotUtf8 { .. } => Some("`iconv -t utf-8` makes it so".into()),
            Self::CutSpec(error) => error.hint(),
            Self::NoLayer { layers, .. } => {
                Some(format!("layers are 0 to {}, or -1 (the last) to -{layers}", layers.saturating_sub(1)))
            }
            Self::NoLayers { .. } => Some(
                "`frazil inspect --why` tells what is no LayerNorm and why; with the checkpoint and \
                 its bert_config.json no layer needs finding"
                    .into(),
            ),
            Self::Store { source, .. } => {
                source.downcast_ref::<frazil_tf::Error>().and_then(frazil_tf::Error::hint)
            }
            Self::NotFound { near, .. } if near.is_empty() => Some(
                "give a folder, a checkpoint prefix such as `bert_model.ckpt`, its `.index`, \
                 a `.meta`, a `.pb`, a SavedModel folder or a zip"
                    .into(),
            ),
            Self::NotFound { near, .. } => Some(format!("did you mean {}?", list(near, "or"))),
            Self::NothingInFolder { entries, .. } if entries.is_empty() => {
                Some("the folder is empty".into())
            }
            Self::NothingInFolder { entries, .. } => {
                Some(format!("it holds {}; name the model's file", list(entries, "and")))
            }
            Self::NotAModel { hint, .. } => Some((*hint).into()),
            Self::Stopped => None,
            Self::WrongKind { hint, .. } | Self::Usage { hint, .. } => Some(hint.clone()),
        }
    }
}

/// `` `a`, `b` or `c` ``, at most six of them.
fn list(names: &[String], last: &str) -> String {
    let mut shown: Vec<String> = names.iter().take(6).map(|name| format!("`{name}`")).collect();
    if names.len() > shown.len() {
        shown.push(format!("{} more", names.len() - shown.len()));
    }
    match shown.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., end] => format!("{} {last} {end}", rest.join(", ")),
    }
}
