//! SavedModels: a folder with `saved_model.pb` (or `.pbtxt`), `variables/` and perhaps `assets/`.
//! Each of its MetaGraphs goes by a set of tags, `serve` as a rule.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::proto::{MetaGraphDef, SavedModel};
use crate::{Error, Result, message_file, meta_graph};

const EXPECTED: &str = "a SavedModel";
const BINARY: &str = "saved_model.pb";
const TEXT: &str = "saved_model.pbtxt";

/// A SavedModel's message from its binary or text form, whichever `bytes` are.
pub fn decode(bytes: Bytes) -> Result<SavedModel> {
    message_file::decode(bytes, EXPECTED)
}

/// Whether `dir` is a folder with a SavedModel in it.
pub fn is_saved_model(dir: impl AsRef<Path>) -> bool {
    let dir = dir.as_ref();
    dir.join(BINARY).is_file() || dir.join(TEXT).is_file()
}

/// A SavedModel on disk, its message decoded.
#[derive(Debug)]
pub struct SavedModelDir {
    dir: PathBuf,
    proto: SavedModel,
}

impl SavedModelDir {
    /// Opens the folder; `saved_model.pb` is taken before `saved_model.pbtxt`.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        let dir = dir.as_ref().to_path_buf();
        let Some(file) =
            [BINARY, TEXT].map(|name| dir.join(name)).into_iter().find(|f| f.is_file())
        else {
            return Err(Error::NoSavedModel { dir });
        };
        let proto = message_file::read(&file, EXPECTED)?;
        Ok(Self { dir, proto })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// The message.
    pub fn proto(&self) -> &SavedModel {
        &self.proto
    }

    /// The tag sets, each sorted, in sorted order.
    pub fn tag_sets(&self) -> Vec<Vec<&str>> {
        let mut sets: Vec<Vec<&str>> =
            self.proto.meta_graphs.iter().map(|meta| sorted(meta).into_iter().collect()).collect();
        sets.sort();
        sets
    }

    /// The MetaGraph whose tags are exactly these, in any order.
    pub fn meta_graph(&self, tags: &[&str]) -> Result<&MetaGraphDef> {
        let wanted: BTreeSet<&str> = tags.iter().copied().collect();
        self.proto.meta_graphs.iter().find(|meta| sorted(meta) == wanted).ok_or_else(|| {
            Error::NoSuchTags {
                wanted: wanted.into_iter().collect::<Vec<_>>().join(","),
                available: self.tag_sets().iter().map(|tags| tags.join(",")).collect(),
            }
        })
    }

    /// The checkpoint with the variables' values, by its prefix. A model without variables has
    /// none.
    pub fn variables_prefix(&self) -> PathBuf {
        self.dir.join("variables/variables")
    }
}

fn sorted(meta: &MetaGraphDef) -> BTreeSet<&str> {
    meta_graph::tags(meta).iter().map(String::as_str).collect()
}
