//! What can be wrong with a configuration, with calibration data, or with a search.

use std::path::{Path, PathBuf};

/// This crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One variant for each way to be wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file in which the cause was met.
    #[error("cannot use `{}`", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        source: Box<Error>,
    },
    /// A file cannot be read or written.
    #[error("cannot {action} `{}`", path.display())]
    Io {
        /// Read, write, lock, …
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A plain file is wrong.
    #[error(transparent)]
    Tensor(#[from] frazil_tensor::Error),
    /// A configuration is not YAML at all.
    #[error("line {line}, column {column}: {reason}")]
    Yaml {
        /// Counted from 1; 0 if it is nowhere in particular.
        line: u64,
        /// Counted from 1.
        column: u64,
        /// What the parser met.
        reason: String,
    },
    /// A file is too long to be what it should be.
    #[error("{found} bytes are too many; at most {most} are read")]
    TooLong {
        /// Its size.
        found: usize,
        /// What is read at most.
        most: usize,
    },
    /// Nobody knows this key.
    #[error("line {line}: there is no key `{path}`")]
    UnknownKey {
        /// Where it stands.
        line: u64,
        /// With all keys above it.
        path: String,
        /// Known keys that look like it, or else all of them.
        known: Vec<String>,
    },
    /// A key without which nothing can be done.
    #[error("line {line}: the required key `{path}` is missing")]
    MissingKey {
        /// Where the section begins in which it should stand.
        line: u64,
        /// With all keys above it.
        path: String,
    },
    /// A key has a value that it cannot have.
    #[error("line {line}: `{path}` must be {expected}, not {found}")]
    Value {
        /// Where it stands.
        line: u64,
        /// The key, with all keys above it.
        path: String,
        /// What it can be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// A key that is a pattern is not a good one.
    #[error("line {line}: `{path}` is no regular expression: {reason}")]
    Pattern {
        /// Where it stands.
        line: u64,
        /// The key, with all keys above it.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// `relative` and `absolute` at once, or neither.
    #[error("line {line}: `{path}` must have exactly one of `relative` and `absolute`")]
    Criterion {
        /// Where the section begins.
        line: u64,
        /// The section.
        path: String,
    },
    /// A strategy that needs a service elsewhere.
    #[error(
        "line {line}: the strategy `sigopt` is a remote service, and frazil asks nobody outside"
    )]
    Sigopt {
        /// Where it stands.
        line: u64,
    },
    /// Quantization by training.
    #[error("line {line}: `quant_aware_training` trains the model; here it is only measured")]
    TrainingAware {
        /// Where it stands.
        line: u64,
    },
    /// A wish leaves an operation nothing to be.
    #[error("nothing is left for `{op}` to be: {wish}")]
    NoChoice {
        /// The operation.
        op: String,
        /// What was asked for.
        wish: String,
    },
    /// Calibration data with something else than numbers.
    #[error("`{tensor}` has {found} at element {index} of batch {batch}")]
    NotFinite {
        /// The tensor.
        tensor: String,
        /// NaN or an infinity.
        found: f32,
        /// From 0, in its batch.
        index: usize,
        /// From 1.
        batch: u64,
    },
    /// No calibration data at all.
    #[error("no numbers of `{tensor}` were seen: the calibration set is empty")]
    NoData {
        /// The tensor.
        tensor: String,
    },
    /// Lengths that contradict each other.
    #[error("`{tensor}` has {found} {what}, not {expected}")]
    Length {
        /// The tensor.
        tensor: String,
        /// Numbers, columns, scales, …
        what: &'static str,
        /// What was expected.
        expected: usize,
        /// What there is.
        found: usize,
    },
    /// A number outside of what it can be.
    #[error("{what} must be {expected}, not {found}")]
    OutOfRange {
        /// Which number.
        what: &'static str,
        /// What it can be.
        expected: &'static str,
        /// What it is.
        found: f64,
    },
    /// There is nothing that could become bytes.
    #[error("the model has no operation that could be computed in bytes")]
    NoOps,
    /// The evaluation gave something else than a number.
    #[error("the {what} of {of} is {found}: no search can be led by that")]
    Measurement {
        /// Accuracy, latency, …
        what: &'static str,
        /// Of the baseline, or of a trial.
        of: String,
        /// What it is.
        found: f64,
    },
    /// The effect of operations that do not exist, or of none.
    #[error("the effect of `{0}` was not measured")]
    NoDamage(String),
    /// A line of the history cannot be read, and it is not the last.
    #[error("line {line} of the history is damaged: {reason}")]
    History {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The history is of another run, and the user insists on going on with it.
    #[error("the history in `{}` is of another {what}", folder.display())]
    OtherRun {
        /// The workspace.
        folder: PathBuf,
        /// Model, data or configuration.
        what: &'static str,
    },
    /// There is no history, and the user insists on going on with it.
    #[error("there is no history in `{}`", .0.display())]
    NoHistory(PathBuf),
    /// Somebody else is at work in this folder.
    #[error("another run is at work in `{}`", .0.display())]
    Locked(PathBuf),
    /// A recipe of a version that is not known here.
    #[error("version {found} of a recipe is unknown; this frazil writes version {known}")]
    RecipeVersion {
        /// What the file says.
        found: u32,
        /// What is written here.
        known: u32,
    },
    /// A list of numbers in a recipe is none.
    #[error("`{what}` of `{op}` are not eight hexadecimal digits for each number")]
    Digits {
        /// The operation.
        op: String,
        /// Which list.
        what: String,
    },
    /// A structure cannot be written as text.
    #[error("cannot write {what}: {reason}")]
    Unwritable {
        /// Recipe, report, …
        what: &'static str,
        /// Why.
        reason: String,
    },
    /// The model under test could not be built, run or evaluated.
    #[error("{during} failed")]
    Subject {
        /// Baseline, trial, …
        during: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// For implementors of [`Subject`](crate::Subject): what went wrong while they worked.
    pub fn subject(
        during: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Subject { during: during.into(), source: source.into() }
    }

    pub(crate) fn io(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::Io { action, path: path.to_path_buf(), source }
    }

    pub(crate) fn in_file(self, path: &Path) -> Self {
        Self::InFile { path: path.to_path_buf(), source: Box::new(self) }
    }

    /// What the user can do, where there is something.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::InFile { source, .. } => return source.hint(),
            Self::Tensor(error) => return error.hint(),
            Self::Io { path, source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                return frazil_tensor::words::missing(path, false);
            }
            Self::UnknownKey { known, .. } => match known.as_slice() {
                [] => return None,
                [one] => format!("did you mean `{one}`?"),
                many => format!("known keys are `{}`", many.join("`, `")),
            },
            Self::Criterion { .. } => {
                "`relative: 0.01` allows a loss of 1% of the baseline, `absolute: 0.01` of 0.01"
                    .into()
            }
            Self::Sigopt { .. } => "`sensitivity`, `bayesian` and `tpe` search here".into(),
            Self::TrainingAware { .. } => {
                "`post_training_static_quant` and `post_training_dynamic_quant` need no training"
                    .into()
            }
            Self::Pattern { .. } => {
                "a key with other characters than `A-Za-z0-9_.-/` is a pattern; look-around and \
                 back-references are not known"
                    .into()
            }
            Self::NotFinite { .. } => "is the model itself healthy on these data?".into(),
            Self::OtherRun { .. } => {
                "give another workspace, or start afresh: the old history is kept beside".into()
            }
            Self::Locked(_) => "wait for it, or give another workspace".into(),
            Self::RecipeVersion { .. } => "a newer frazil reads it".into(),
            Self::NoChoice { .. } => {
                "weights are `int8`, `sym`; activations are `uint8`, `asym`; or both are `fp32`"
                    .into()
            }
            _ => return None,
        })
    }
}
