//! What can be wrong with a tensor or with a file of tensors.

use std::path::{Path, PathBuf};

use crate::{DType, Shape, words};

/// This crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One variant for each way to be wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("cannot {action} `{}`", path.display())]
    Io {
        /// What was tried: `open`, `read`, `write`, …
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The extents multiply to more than an address can hold.
    #[error("shape {0} has more elements than this machine can address")]
    TooLarge(Shape),
    /// The bytes are not as many as type and shape need.
    #[error("{dtype} {shape} takes {expected} bytes, but {found} are there")]
    Size {
        /// Element type.
        dtype: DType,
        /// Extents.
        shape: Shape,
        /// What type and shape need.
        expected: usize,
        /// What was given.
        found: usize,
    },
    /// The program was asked to end.
    #[error("interrupted")]
    Interrupted,
    /// The elements were asked for as another type than they have.
    #[error("the elements are {found}, not {expected}")]
    WrongType {
        /// What was asked for.
        expected: DType,
        /// What is there.
        found: DType,
    },
    /// An operation on two axes met another rank.
    #[error("{what} needs a tensor of rank {expected}, not one of shape {found}")]
    WrongRank {
        /// The operation.
        what: &'static str,
        /// The rank it works on.
        expected: usize,
        /// The shape it met.
        found: Shape,
    },
    /// Tensors that were to be joined do not fit together.
    #[error("cannot join {first} and {second} along axis {axis}")]
    Join {
        /// The first tensor's type and shape.
        first: String,
        /// The one that does not fit.
        second: String,
        /// The axis.
        axis: usize,
    },
    /// There is no conversion between the two element types.
    #[error("cannot convert {from} to {to}")]
    NoCast {
        /// What is there.
        from: DType,
        /// What was asked for.
        to: DType,
    },
    /// A file has another structure than its format demands.
    #[error("`{}` is not a readable {format} file: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// `npy`, `npz` or `safetensors`.
        format: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A file format has no such element type.
    #[error("{format} files cannot hold {dtype} (tensor `{name}`)")]
    Unstorable {
        /// `npy`, `npz` or `safetensors`.
        format: &'static str,
        /// The tensor.
        name: String,
        /// Its type.
        dtype: DType,
    },
    /// A tensor whose elements are of a type that frazil has no counterpart for.
    #[error("the elements of `{name}` are `{descr}`, a type that frazil cannot read")]
    Elements {
        /// The tensor.
        name: String,
        /// The file's notation for the type: NumPy's `|O` for Python objects, `F8_E4M3`.
        descr: String,
    },
    /// A writer was given another tensor than it was told to expect.
    #[error("`{name}` was announced as {announced}, but {given} was given")]
    Announced {
        /// The tensor.
        name: String,
        /// Type and shape it was to have.
        announced: String,
        /// What came.
        given: String,
    },
    /// No tensor has that name.
    #[error("no tensor is named `{0}`")]
    NoSuchTensor(String),
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::Io { action, path: path.to_path_buf(), source }
    }

    /// What the user can do, where there is something.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Io { action, path, source } if source.kind() == std::io::ErrorKind::NotFound => {
                return words::missing(path, action.starts_with("create"));
            }
            Self::Elements { descr, .. } if descr.contains("|O") => {
                "an object array is a Python pickle: save it again as numbers or strings, \
                 `a.astype('float32')` for example"
            }
            Self::Elements { descr, .. } if descr.ends_with("V2") => {
                "NumPy saves bfloat16 as raw bytes without its name: save it as `float32`, or \
                 as `safetensors`"
            }
            Self::Unstorable { dtype: DType::BF16, .. } => {
                "convert to `float32` or `float16`, or write `safetensors`"
            }
            _ => return None,
        };
        Some(text.into())
    }
}
