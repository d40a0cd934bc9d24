//! A checkpoint of either version: names, types and shapes without touching the values, values
//! as windows on the mapped files.
//!
//! ```no_run
//! use frazil_tf::checkpoint::{Checkpoint, Options};
//!
//! let checkpoint = Checkpoint::open("bert_model.ckpt", Options::default())?;
//! for entry in checkpoint.entries() {
//!     println!("{} {} {}", entry.info.name, entry.info.dtype, entry.info.shape);
//! }
//! let table = checkpoint.tensor("bert/embeddings/word_embeddings")?;
//! # Ok::<(), frazil_tf::Error>(())
//! ```

mod locate;
mod objects;
mod verify;

use std::path::{Path, PathBuf};

use frazil_tensor::{StoreError, Tensor, TensorInfo, TensorStore};

use crate::Result;
pub use crate::bundle::Unreadable;
use crate::bundle::{Bundle, Place};
use crate::checkpoint_v1::CheckpointV1;
use locate::Found;
pub use locate::{find, prefixes_in};
pub use objects::{ObjectName, ObjectNames};
pub use verify::{Fault, Verification};

/// How a checkpoint is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether checksums are checked: those of the index when it is opened, a tensor's when it
    /// is read.
    pub verify_checksums: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { verify_checksums: true }
    }
}

/// TensorFlow's checkpoint formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// One table file with everything in it, or one per shard.
    V1,
    /// `.index` and `.data-*`.
    V2,
}

/// What the listing tells of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name, type, shape.
    pub info: TensorInfo,
    /// The file that holds it, counted from 0; `None` for a partitioned variable.
    pub shard: Option<u32>,
    /// Number of slices of a partitioned variable; 0 for one that is stored in one piece.
    pub slices: usize,
    /// Bytes in the data files. In V1, where values are packed, the bytes of its elements.
    pub stored_bytes: u64,
}

/// An open checkpoint.
#[derive(Debug)]
pub struct Checkpoint {
    prefix: PathBuf,
    format: Format,
    entries: Vec<Entry>,
}

#[derive(Debug)]
enum Format {
    V1(CheckpointV1),
    V2(Bundle),
}

impl Checkpoint {
    /// Opens the checkpoint at `path`: a prefix, one of its files (`.index`, `.meta`,
    /// `.data-*`), a V1 file, or a folder that has one checkpoint or says which is the newest.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let verify = options.verify_checksums;
        let (prefix, format) = match locate::locate(path.as_ref())? {
            Found::V2(prefix) => (prefix.clone(), Format::V2(Bundle::open(prefix, verify)?)),
            Found::V1(prefix, files) => (prefix, Format::V1(CheckpointV1::open(files, verify)?)),
        };
        let entries = match &format {
            Format::V1(v1) => v1_entries(v1),
            Format::V2(bundle) => v2_entries(bundle),
        };
        Ok(Self { prefix, format, entries })
    }

    /// Its format.
    pub fn version(&self) -> Version {
        match self.format {
            Format::V1(_) => Version::V1,
            Format::V2(_) => Version::V2,
        }
    }

    /// What its file names begin with.
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// All tensors, sorted by name.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Tensors that are listed, but of a type whose values cannot be read. They are not among
    /// the entries.
    pub fn unreadable(&self) -> &[Unreadable] {
        match &self.format {
            Format::V1(v1) => v1.unreadable(),
            Format::V2(bundle) => bundle.unreadable(),
        }
    }

    /// Number of files that hold values.
    pub fn shards(&self) -> u32 {
        match &self.format {
            Format::V1(v1) => v1.files() as u32,
            Format::V2(bundle) => bundle.shards(),
        }
    }

    /// Reads a tensor. In V2 it is a window on the mapped file, but for partitioned variables.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        match &self.format {
            Format::V1(v1) => v1.tensor(name),
            Format::V2(bundle) => bundle.tensor(name),
        }
    }

    /// The names that the variables of a TensorFlow 2 checkpoint have in the model; `None` for a
    /// checkpoint that is by name anyway. Reads one small tensor.
    pub fn objects(&self) -> Result<Option<ObjectNames>> {
        match self.info(objects::KEY) {
            None => Ok(None),
            Some(_) => ObjectNames::decode(&self.tensor(objects::KEY)?).map(Some),
        }
    }

    /// Reads everything and checks every checksum, whatever the options say, with all CPUs and
    /// in file order. `on_progress` is told each number of bytes done, from any thread.
    pub fn verify(&self, on_progress: impl Fn(u64) + Sync) -> Result<Verification> {
        match &self.format {
            Format::V1(v1) => verify::v1(v1, on_progress),
            Format::V2(bundle) => verify::v2(bundle, on_progress),
        }
    }
}

impl TensorStore for Checkpoint {
    fn infos(&self) -> &[TensorInfo] {
        match &self.format {
            Format::V1(v1) => v1.infos(),
            Format::V2(bundle) => bundle.infos(),
        }
    }

    fn tensor(&self, name: &str) -> Result<Tensor, StoreError> {
        Ok(Checkpoint::tensor(self, name)?)
    }
}

fn v1_entries(v1: &CheckpointV1) -> Vec<Entry> {
    let entry = |(number, info): (usize, &TensorInfo)| {
        let (slices, shard) = v1.layout(number);
        let stored_bytes = info.byte_len().unwrap_or(0) as u64;
        let slices = if shard.is_some() { 0 } else { slices };
        Entry { info: info.clone(), shard, slices, stored_bytes }
    };
    v1.infos().iter().enumerate().map(entry).collect()
}

fn v2_entries(bundle: &Bundle) -> Vec<Entry> {
    let entry = |(info, place): (&TensorInfo, &Place)| {
        let (shard, slices, stored_bytes) = match place {
            Place::Whole(stored) => (Some(stored.shard), 0, stored.size),
            Place::Sliced(slices) => {
                let found = slices.iter().filter_map(|s| bundle.slice(&info.name, s).ok());
                let size = found.fold(0u64, |sum, stored| sum.saturating_add(stored.size));
                (None, slices.len(), size)
            }
        };
        Entry { info: info.clone(), shard, slices, stored_bytes }
    };
    bundle.infos().iter().zip(bundle.places()).map(entry).collect()
}
