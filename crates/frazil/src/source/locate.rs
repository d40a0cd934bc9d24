//! From a path, as a user types it, to the thing that is meant.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use frazil_convert::onnx;
use frazil_tensor::file;
use frazil_tf::checkpoint;
use frazil_tf::sniff::{self, Content};
use frazil_tf::tfrecord::RecordReader;
use tempfile::TempDir;

use super::{folder, unpack};
use crate::ops::compile;
use crate::{Error, Result, page};

/// What frazil can open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A checkpoint of TensorFlow's first or second format.
    Checkpoint,
    /// A GraphDef, binary or text.
    Graph,
    /// A MetaGraphDef, binary or text.
    MetaGraph,
    /// A folder with `saved_model.pb` or `.pbtxt`.
    SavedModel,
    /// A `.safetensors` file, or a folder of them with an index.
    SafeTensors,
    /// A NumPy `.npz`.
    Npz,
    /// Records of examples or of TensorBoard events.
    TfRecord,
    /// An ONNX model.
    Onnx,
    /// The `.xml` of an OpenVINO model; its `.bin` lies beside it.
    Openvino,
    /// What `frazil compile` writes.
    Compiled,
}

impl Kind {
    /// With its article, for messages.
    pub fn describe(self) -> &'static str {
        match self {
            Kind::Checkpoint => "checkpoint",
            Kind::Graph => "graph",
            Kind::MetaGraph => "MetaGraph",
            Kind::SavedModel => "SavedModel",
            Kind::SafeTensors => "safetensors file",
            Kind::Npz => "npz file",
            Kind::TfRecord => "TFRecord file",
            Kind::Onnx => "ONNX model",
            Kind::Openvino => "OpenVINO model",
            Kind::Compiled => "compiled model",
        }
    }
}

/// What will be asked of the thing: a zip's large members are unpacked for values only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Names, shapes, graphs.
    Names,
    /// The tensors' values too.
    Values,
}

/// A thing found, with what was chosen on the way.
#[derive(Clone, Debug)]
pub struct Located {
    /// What it is.
    pub kind: Kind,
    /// Its path: a checkpoint's prefix, a SavedModel's folder, else the file.
    pub path: PathBuf,
    /// What the user gave.
    pub asked: PathBuf,
    /// Choices that were made, in words.
    pub notes: Vec<String>,
    /// Where a zip was unpacked to; removed when the last copy of this is dropped.
    unpacked: Option<Arc<TempDir>>,
}

impl Located {
    pub(super) fn new(kind: Kind, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self { kind, asked: path.clone(), path, notes: Vec::new(), unpacked: None }
    }

    pub(super) fn note(mut self, note: String) -> Self {
        self.notes.insert(0, note);
        self
    }

    pub(super) fn kept_in(mut self, folder: TempDir) -> Self {
        self.unpacked = Some(Arc::new(folder));
        self
    }

    /// How to name it to the user: a thing in a zip by its name in there.
    pub fn shown(&self) -> PathBuf {
        let inside =
            self.unpacked.as_ref().and_then(|folder| self.path.strip_prefix(folder.path()).ok());
        inside.map_or_else(|| self.path.clone(), |inside| self.asked.join(inside))
    }

    /// Whether it lies in a zip.
    pub fn in_zip(&self) -> bool {
        self.unpacked.is_some()
    }

    /// The first of these files that lies beside the thing.
    pub fn beside(&self, names: &[&str]) -> Option<PathBuf> {
        let folder = match self.kind {
            Kind::SavedModel => self.path.as_path(),
            _ if self.path.is_dir() => self.path.as_path(),
            _ => parent(&self.path),
        };
        // Estimator's exports lie two folders below the training folder.
        let folders = [folder, parent(folder), parent(parent(folder))];
        let above = if self.kind == Kind::SavedModel { 3 } else { 1 };
        folders[..above]
            .iter()
            .flat_map(|folder| names.iter().map(|name| folder.join(name)))
            .find(|path| path.is_file())
    }
}

/// Finds out what `path` means.
pub fn locate(path: impl AsRef<Path>, need: Need) -> Result<Located> {
    let asked = path.as_ref();
    let mut found = if asked.is_dir() {
        folder::locate(asked, need)?
    } else if asked.is_file() {
        of_file(asked, need)?
    } else {
        of_prefix(asked)?
    };
    found.asked = asked.to_path_buf();
    Ok(found)
}

/// A file, by its content; `.data-…` has none to speak of and goes by its name.
pub(super) fn of_file(path: &Path, need: Need) -> Result<Located> {
    let is_data = |name: &OsStr| name.to_string_lossy().contains(".data-");
    if path.file_name().is_some_and(is_data)
        && let Some(found) = of_checkpoint(path)?
    {
        return Ok(found);
    }
    let bytes = file::map(path)?;
    if bytes.starts_with(&compile::MAGIC) {
        return Ok(Located::new(Kind::Compiled, path));
    }
    let located = match sniff::of(&bytes) {
        Content::Sstable => Located::new(Kind::Checkpoint, checkpoint::find(path)?),
        Content::GraphDef(_) => Located::new(Kind::Graph, path),
        Content::MetaGraphDef(_) => Located::new(Kind::MetaGraph, path),
        // Both begin with a small number and a message; the name decides between them.
        Content::SavedModel(_) | Content::Unknown
            if onnx::looks_like(&bytes) && path.extension().is_some_and(|e| e == "onnx") =>
        {
            Located::new(Kind::Onnx, path)
        }
        Content::Unknown if onnx::looks_like(&bytes) => Located::new(Kind::Onnx, path),
        Content::Xml if is_network(&bytes) => Located::new(Kind::Openvino, path),
        Content::SavedModel(_) => Located::new(Kind::SavedModel, parent(path)),
        Content::CheckpointState => return folder::by_state(parent(path), path),
        Content::SafeTensors => Located::new(Kind::SafeTensors, path),
        Content::TfRecord => Located::new(Kind::TfRecord, path),
        Content::Gzip | Content::Zlib if has_records(path) => Located::new(Kind::TfRecord, path),
        Content::Zip => return unpack::locate(path, need),
        other => return Err(not_a_model(path, other, &bytes)),
    };
    Ok(located)
}

/// Whether a page is one of frazil's own.
fn is_report(bytes: &[u8]) -> bool {
    const HEAD: usize = 1024;
    String::from_utf8_lossy(&bytes[..bytes.len().min(HEAD)]).contains(page::POLICY)
}

/// Whether XML has a network at its root, as OpenVINO's models do.
fn is_network(bytes: &[u8]) -> bool {
    const HEAD: usize = 4096;
    let head = &bytes[..bytes.len().min(HEAD)];
    head.windows(5).any(|window| window == b"<net ")
}

/// The checkpoint that a path is a part of; an error if it is one of which the index is missing.
fn of_checkpoint(path: &Path) -> Result<Option<Located>> {
    match checkpoint::find(path) {
        Ok(prefix) => Ok(Some(Located::new(Kind::Checkpoint, prefix))),
        Err(error @ frazil_tf::Error::NoIndex { .. }) => Err(error.into()),
        Err(_) => Ok(None),
    }
}

/// No such file: perhaps the common part of a checkpoint's file names.
fn of_prefix(prefix: &Path) -> Result<Located> {
    if let Some(found) = of_checkpoint(prefix)? {
        return Ok(found);
    }
    let names = folder::entries(parent(prefix));
    let stem = prefix.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let meta = prefix.with_file_name(format!("{stem}.meta"));
    if meta.is_file() {
        let note = format!("only `{}` is there: a graph without values", meta.display());
        return Ok(Located::new(Kind::MetaGraph, meta).note(note));
    }
    let prefixes = names.iter().filter_map(|name| name.strip_suffix(".index"));
    let near = frazil_tf::nearest(&stem, prefixes.chain(names.iter().map(String::as_str)));
    let near = near.iter().map(|name| prefix.with_file_name(name).display().to_string()).collect();
    Err(Error::NotFound { path: prefix.to_path_buf(), near })
}

fn not_a_model(path: &Path, content: Content, bytes: &[u8]) -> Error {
    let (found, hint) = match content {
        Content::Empty => ("empty", "copy or download it again"),
        Content::LfsPointer => (
            "a Git LFS pointer",
            "the repository holds the real file elsewhere: run `git lfs pull` in it",
        ),
        Content::Html if is_report(bytes) => {
            ("a report of frazil", "it is read in a browser; give the model that it is about")
        }
        Content::Html => (
            "an HTML page",
            "the download gave an error or log-in page instead of the file: download it again",
        ),
        Content::Xml => {
            ("an XML file", "of XML, frazil reads OpenVINO's models only, which begin with `<net`")
        }
        Content::TfLite => (
            "a TensorFlow Lite model",
            "its weights were converted for phones: give the checkpoint or SavedModel it came from",
        ),
        Content::SaverDef => (
            "a SaverDef",
            "it only says how a graph restores itself: give the checkpoint or the graph",
        ),
        Content::Gzip => ("gzip-compressed", "unpack it first: `gunzip` or `tar xzf`"),
        Content::Npy => ("a single NumPy array", "give an `.npz` with named arrays"),
        Content::Hdf5 => (
            "an HDF5 file (Keras weights)",
            "frazil reads TensorFlow checkpoints, SavedModels, safetensors and npz",
        ),
        Content::Json => (
            "a JSON file",
            "give the checkpoint; a `bert_config.json` beside it is found by itself",
        ),
        Content::Text => ("a text file", "give the checkpoint, graph or SavedModel beside it"),
        _ => (
            "of no kind that frazil knows",
            "frazil reads TensorFlow checkpoints, graphs, MetaGraphs, SavedModels, TFRecords, ONNX and OpenVINO models, \
             zips of them, safetensors and npz; if it should be one, it may be damaged",
        ),
    };
    Error::NotAModel { path: path.to_path_buf(), found, hint }
}

/// Whether a compressed file holds records: TFRecords may be compressed as a whole.
fn has_records(path: &Path) -> bool {
    let mut reader = RecordReader::open(path).ok();
    reader.as_mut().and_then(Iterator::next).is_some_and(|record| record.is_ok())
}

/// The folder that a path lies in.
pub(super) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
