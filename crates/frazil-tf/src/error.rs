//! What can be wrong with a TensorFlow file, and what its owner can do about it.

use std::io;
use std::path::{Path, PathBuf};

use frazil_tensor::{DType, Shape};

use crate::example::Kind;
use crate::sniff::Content;

/// This crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One variant for each way to be wrong. Parsers of bytes do not know file names; whoever does
/// adds it with [`Error::in_file`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file in which the cause was met.
    #[error("cannot read `{}`", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        source: Box<Error>,
    },
    /// The operating system refused, with no file name of its own.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A tensor or a plain file of tensors is wrong.
    #[error(transparent)]
    Tensor(#[from] frazil_tensor::Error),
    /// The data ends before a structure does.
    #[error("{what} needs {needed} bytes, but only {available} are there")]
    Truncated {
        /// The structure.
        what: &'static str,
        /// How long it says it is.
        needed: u64,
        /// How much data is left.
        available: u64,
    },
    /// Stored and computed checksum differ.
    #[error("the checksum of {what} is wrong: {stored:#010x} is stored, {computed:#010x} computed")]
    Checksum {
        /// What the checksum covers.
        what: String,
        /// The file's.
        stored: u32,
        /// Ours.
        computed: u32,
    },
    /// A structure contradicts its format.
    #[error("{what} is corrupt at byte {at}: {reason}")]
    Corrupt {
        /// The structure.
        what: &'static str,
        /// Offset in it.
        at: u64,
        /// What is wrong.
        reason: String,
    },
    /// The file does not end as TensorFlow's tables do.
    #[error("this is not a checkpoint's table: the last eight bytes are not TensorFlow's mark")]
    NotATable,
    /// A table was given its keys in the wrong order.
    #[error("key `{key}` comes too late: a table takes its keys in order, each once")]
    KeyOrder {
        /// The key.
        key: String,
    },
    /// Nothing under that prefix.
    #[error("there is no checkpoint `{}`", prefix.display())]
    NoCheckpoint {
        /// What was asked for.
        prefix: PathBuf,
        /// Checkpoints beside it.
        near: Vec<String>,
    },
    /// A folder was given that has no checkpoint, or several and no word on which.
    #[error("the folder `{}` does not tell which checkpoint is meant", path.display())]
    WhichCheckpoint {
        /// The folder.
        path: PathBuf,
        /// The checkpoints in it.
        found: Vec<String>,
    },
    /// A file `checkpoint` that does not do its one duty.
    #[error("it does not tell which checkpoint is the newest (`model_checkpoint_path`)")]
    NoNewest,
    /// Values without names.
    #[error("`{}` is there, but not `{}`", data.display(), index.display())]
    NoIndex {
        /// What is missing.
        index: PathBuf,
        /// What is there.
        data: PathBuf,
    },
    /// Names without values.
    #[error("tensor `{tensor}` is in `{}`, which is not there", path.display())]
    NoData {
        /// What is missing.
        path: PathBuf,
        /// What was to be read.
        tensor: String,
    },
    /// A data file is shorter than the index says.
    #[error(
        "`{}` should have at least {expected} bytes, but has {found}: tensor `{tensor}` is not in it",
        path.display()
    )]
    ShortData {
        /// The data file.
        path: PathBuf,
        /// What was to be read.
        tensor: String,
        /// End of the last tensor in that file.
        expected: u64,
        /// Its size.
        found: u64,
    },
    /// The checkpoint comes from a machine with the other byte order.
    #[error("the checkpoint is big-endian")]
    BigEndian,
    /// The checkpoint demands a newer reader.
    #[error("the checkpoint demands format version {needed}; this reads version {ours}")]
    TooNew {
        /// The least version that may read it, or one that it excludes.
        needed: i32,
        /// The version of this reader.
        ours: i32,
    },
    /// The index tells of a data file that cannot be.
    #[error("tensor `{tensor}` is said to be in data file {shard} of {shards}")]
    NoSuchShard {
        /// The tensor.
        tensor: String,
        /// Its data file, counted from 0.
        shard: i32,
        /// How many there are.
        shards: u32,
    },
    /// The index tells of a place that cannot be.
    #[error("tensor `{tensor}` is said to have {size} bytes at offset {offset}")]
    BadPlace {
        /// The tensor.
        tensor: String,
        /// Where.
        offset: i64,
        /// How long.
        size: i64,
    },
    /// Type and shape need another number of bytes than the index says.
    #[error("tensor `{tensor}`, {dtype} {shape}, is said to have {size} bytes")]
    EntrySize {
        /// The tensor.
        tensor: String,
        /// Element type.
        dtype: DType,
        /// Extents.
        shape: Shape,
        /// The index's.
        size: u64,
    },
    /// A shape in a listing has negative or too many extents.
    #[error("tensor `{tensor}` has an impossible shape")]
    BadShape {
        /// The tensor.
        tensor: String,
        /// Why it is impossible.
        source: Box<Error>,
    },
    /// A slice with negative extents.
    #[error("a slice of `{tensor}` has an impossible extent")]
    BadSlice {
        /// The partitioned variable.
        tensor: String,
    },
    /// A partitioned variable lacks a part.
    #[error("slice {slice} of `{tensor}` is listed, but is not there")]
    MissingSlice {
        /// The partitioned variable.
        tensor: String,
        /// The part.
        slice: String,
    },
    /// A part does not lie in the variable.
    #[error("slice {slice} of `{tensor}` does not lie in its shape {shape}")]
    SliceOutside {
        /// The partitioned variable.
        tensor: String,
        /// The part.
        slice: String,
        /// Extents of the whole.
        shape: Shape,
    },
    /// Two parts claim the same elements.
    #[error("slice {slice} of `{tensor}` overlaps another one")]
    SlicesOverlap {
        /// The partitioned variable.
        tensor: String,
        /// The part.
        slice: String,
    },
    /// The parts are not the whole.
    #[error("the slices of `{tensor}` {shape} have {stored} of its {elements} elements")]
    SlicesIncomplete {
        /// The partitioned variable.
        tensor: String,
        /// Its extents.
        shape: Shape,
        /// Elements in all parts.
        stored: usize,
        /// Elements of the whole.
        elements: usize,
    },
    /// A part has another type or shape than its place in the variable.
    #[error("slice {slice} of `{tensor}` should be {expected}, but is {found}")]
    SliceMismatch {
        /// The partitioned variable.
        tensor: String,
        /// The part.
        slice: String,
        /// Type and shape of the place.
        expected: String,
        /// Type and shape of the part.
        found: String,
    },
    /// The files of a sharded checkpoint contradict each other.
    #[error("tensor `{tensor}` is {first} in one file and {second} in another")]
    ShardsDisagree {
        /// The tensor.
        tensor: String,
        /// Type and shape in the first file.
        first: String,
        /// Type and shape in another.
        second: String,
    },
    /// No variable has that name.
    #[error("the checkpoint has no tensor `{name}`")]
    NoSuchTensor {
        /// What was asked for.
        name: String,
        /// Names like it.
        near: Vec<String>,
    },
    /// A name that a checkpoint cannot have, or that it has already.
    #[error("a checkpoint cannot take `{name}`: {reason}")]
    BadName {
        /// The name.
        name: String,
        /// Why not.
        reason: &'static str,
    },
    /// The bytes do not decode as the message that should be there.
    #[error("this is not a {message} message")]
    Proto {
        /// The message's name in TensorFlow.
        message: &'static str,
        /// What the decoder met.
        source: prost::DecodeError,
    },
    /// The file is of another kind altogether.
    #[error("this is {found}, not {expected}")]
    WrongContent {
        /// What should be there, with its article.
        expected: &'static str,
        /// What is there.
        found: Content,
    },
    /// A small file that would decode to a message beyond all bounds.
    #[error("this {message} would take more than {} MiB in memory, far more than its size justifies", limit >> 20)]
    Inflated {
        /// The message's name in TensorFlow.
        message: &'static str,
        /// What a file of its size may take, in bytes.
        limit: u64,
    },
    /// An element type that has no values in files (resources, variants, unknown numbers).
    #[error("{dtype} is not a type whose values frazil can read")]
    NoValues {
        /// TensorFlow's name for it.
        dtype: String,
    },
    /// A constant's shape has open extents, or more axes than TensorFlow allows.
    #[error("a tensor's shape must be known, but this one's is {shape}")]
    UnknownShape {
        /// As far as it is known.
        shape: String,
    },
    /// A short list of values stands for a tensor beyond all bounds.
    #[error(
        "{values} stored values stand for {dtype} {shape}, which is beyond the limit of 32 MiB"
    )]
    Expansion {
        /// Element type.
        dtype: DType,
        /// Extents.
        shape: Shape,
        /// How many values there are.
        values: usize,
    },
    /// A record file ends within a record.
    #[error(
        "record {index} at byte {at} is cut off: it takes {needed} bytes, but {available} are there"
    )]
    RecordCut {
        /// Counted from 0.
        index: u64,
        /// Where it begins in the unpacked data.
        at: u64,
        /// What it takes, as far as that is known.
        needed: u64,
        /// What is there.
        available: u64,
    },
    /// A thing is larger than the caller is willing to hold.
    #[error("{what} has {size} bytes, more than the limit of {limit}")]
    OverLimit {
        /// The thing.
        what: String,
        /// Its size, as declared.
        size: u64,
        /// The caller's limit.
        limit: u64,
    },
    /// A zip without the directory that every zip ends with.
    #[error("this zip file has no directory at its end")]
    ZipCut,
    /// A zip whose structure or contents are damaged.
    #[error("this zip file is damaged: {reason}")]
    Zip {
        /// What is wrong.
        reason: String,
    },
    /// A member of an archive that would be unpacked outside of its folder.
    #[error("the archive has a member named `{name}`, which leads out of its folder")]
    MemberName {
        /// The name.
        name: String,
    },
    /// A member of an archive that cannot be read.
    #[error("`{name}` in the archive is {what}, which frazil does not read")]
    MemberKind {
        /// The member.
        name: String,
        /// What it is.
        what: String,
    },
    /// A member of an archive whose sizes contradict each other.
    #[error("`{name}` in the archive cannot be {size} bytes, packed into {compressed}")]
    MemberSize {
        /// The member.
        name: String,
        /// Its size when unpacked, as the archive says.
        size: u64,
        /// Its size in the archive, as the archive says.
        compressed: u64,
    },
    /// An archive lacks a member.
    #[error("the archive has no member `{name}`")]
    NoMember {
        /// What was asked for.
        name: String,
    },
    /// An example lacks a feature.
    #[error("there is no feature `{name}`; there are {present}")]
    NoFeature {
        /// What was asked for.
        name: String,
        /// What is there, the first few.
        present: String,
    },
    /// A feature holds something else than was asked for.
    #[error("feature `{name}` is {found}, not {expected}")]
    FeatureKind {
        /// The feature.
        name: String,
        /// What was asked for.
        expected: Kind,
        /// What is there.
        found: Kind,
    },
    /// A number that cannot be shown: a histogram has no bucket for NaN and infinities.
    #[error("the histogram `{tag}` was given {value}")]
    NotFinite {
        /// The histogram.
        tag: String,
        /// The number.
        value: f64,
    },
    /// A message that TensorFlow could not read back.
    #[error("this {message} takes {size} bytes, but protobuf reads none beyond 2 GiB")]
    Oversized {
        /// The message's name in TensorFlow.
        message: &'static str,
        /// Its size.
        size: usize,
    },
    /// The node of a graph in which the cause was met.
    #[error("node `{node}` cannot be read")]
    InNode {
        /// Its name.
        node: String,
        /// What is wrong with it.
        source: Box<Error>,
    },
    /// A `Const` node lacks its constant.
    #[error("the `Const` node `{node}` has no attribute `value` with a tensor")]
    NoConstValue {
        /// Its name.
        node: String,
    },
    /// Two nodes of a graph share a name.
    #[error("two nodes are named `{node}`")]
    DuplicateNode {
        /// The name.
        node: String,
    },
    /// A MetaGraph without a graph.
    #[error("the MetaGraph has no graph")]
    NoGraph,
    /// A folder that should be a SavedModel.
    #[error(
        "`{}` is not a SavedModel: it has neither `saved_model.pb` nor `saved_model.pbtxt`",
        dir.display()
    )]
    NoSavedModel {
        /// The folder.
        dir: PathBuf,
    },
    /// A SavedModel lacks the MetaGraph that was asked for.
    #[error("no MetaGraph has exactly the tags `{wanted}`")]
    NoSuchTags {
        /// The tags, with commas.
        wanted: String,
        /// The tag sets that there are.
        available: Vec<String>,
    },
    /// A folder that should be made has something in it.
    #[error("`{}` is there already, and not empty", dir.display())]
    NotEmpty {
        /// The folder.
        dir: PathBuf,
    },
    /// A SavedModel names a file that it was not given.
    #[error("the asset `{name}` is not at hand")]
    NoAsset {
        /// The file's name in `assets`.
        name: String,
    },
    /// A tensor that should be written could not be read.
    #[error("cannot read `{name}`")]
    Store {
        /// The tensor.
        name: String,
        /// The store's own error.
        source: frazil_tensor::StoreError,
    },
    /// A text file (`.pbtxt`) does not parse.
    #[error("line {line}, column {column}: {reason}")]
    Text {
        /// Counted from 1.
        line: usize,
        /// Counted from 1, in characters.
        column: usize,
        /// What was met and what was expected.
        reason: String,
    },
}

impl Error {
    /// Says in which file this was met.
    pub fn in_file(self, path: impl AsRef<Path>) -> Self {
        match self {
            // A file name that is nearer to the cause stays.
            Self::InFile { .. } | Self::Tensor(frazil_tensor::Error::Io { .. }) => self,
            other => Self::InFile { path: path.as_ref().to_path_buf(), source: Box::new(other) },
        }
    }

    /// What the user can do, where there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::InFile { source, .. } | Self::InNode { source, .. } => source.hint(),
            Self::NotEmpty { .. } => {
                Some("name a new folder, or empty this one: a SavedModel has one of its own".into())
            }
            Self::NoSuchTags { available, .. } => {
                Some(format!("the tag sets are: `{}`", available.join("`, `")))
            }
            Self::WrongContent { found, .. } => found.hint().map(str::to_owned),
            Self::NotATable => Some("perhaps it was cut off: copy or download it again".into()),
            Self::NoCheckpoint { near, .. } if near.is_empty() => Some(
                "give the prefix: the part of the name before `.index` and `.data-00000-of-00001`"
                    .into(),
            ),
            Self::NoCheckpoint { near, .. } | Self::NoSuchTensor { near, .. }
                if !near.is_empty() =>
            {
                Some(format!("did you mean {}?", listed(near)))
            }
            Self::WhichCheckpoint { found, .. } => Some(if found.is_empty() {
                "a checkpoint has a file `<prefix>.index`; there is none".into()
            } else {
                format!("give one of them: {}", listed(found))
            }),
            Self::NoNewest => Some(
                "name the newest checkpoint of the folder in it, such as \
                 `model_checkpoint_path: \"model.ckpt-100\"`"
                    .into(),
            ),
            Self::NoIndex { .. } => Some(
                "the names and shapes of the tensors are in the `.index`: copy it from where the \
                 data file came from"
                    .into(),
            ),
            Self::NoData { .. } => Some(
                "the `.index` has only names and shapes, the values are in the data file: copy it \
                 from where the `.index` came from"
                    .into(),
            ),
            Self::ShortData { .. } => {
                Some("the copy or download was cut off: make it again".into())
            }
            Self::BigEndian => {
                Some("read it with TensorFlow on a little-endian machine and save it again".into())
            }
            Self::TooNew { .. } => Some("a newer frazil may read it".into()),
            Self::MissingSlice { .. } | Self::SlicesIncomplete { .. } => Some(
                "the checkpoint was saved in parts and some are lost: take all of its files".into(),
            ),
            Self::Truncated { .. } => Some(
                "the file is shorter than its own structure says: copy or download it again".into(),
            ),
            Self::Checksum { .. } => Some(
                "the file was damaged on its way: copy or download it again; \
                 `--no-checksum` reads it as it is"
                    .into(),
            ),
            Self::Tensor(source) => source.hint(),
            Self::ZipCut => Some("the download did not complete: do it again".into()),
            Self::Zip { .. } => Some("the file was damaged on its way: download it again".into()),
            Self::MemberName { .. } | Self::MemberSize { .. } => {
                Some("this archive was made to do harm: do not unpack it".into())
            }
            Self::MemberKind { .. } => {
                Some("unpack the archive with another tool and name the files in it".into())
            }
            Self::RecordCut { index, .. } => Some(format!(
                "the file is incomplete or still being written: copy or download it again; \
                 the {index} records before this one are whole"
            )),
            _ => None,
        }
    }
}

/// `a`, `b` or `c`
fn listed(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}
