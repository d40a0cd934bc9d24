//! Which files a path means. People give the prefix, one of the files, or the folder.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::bundle::index_path;
use crate::checkpoint_state::CheckpointState;
use crate::checkpoint_v1::shard_paths;
use crate::{Error, Result, nearest};

/// Where a checkpoint is.
#[derive(Debug)]
pub(super) enum Found {
    /// Prefix of `.index` and `.data-*`.
    V2(PathBuf),
    /// Prefix and files.
    V1(PathBuf, Vec<PathBuf>),
}

/// Finds the checkpoint that `path` means.
pub(super) fn locate(path: &Path) -> Result<Found> {
    if let Some(found) = at_prefix(path) {
        return Ok(found);
    }
    if path.is_dir() {
        return in_folder(path);
    }
    let stripped = strip(path);
    if let Some(found) = stripped.as_deref().and_then(at_prefix) {
        return Ok(found);
    }
    let prefix = stripped.as_deref().unwrap_or(path);
    if let Some(data) = data_beside(prefix) {
        return Err(Error::NoIndex { index: index_path(prefix), data });
    }
    let folder = prefix.parent().filter(|folder| !folder.as_os_str().is_empty());
    let beside = names(&prefixes_in(folder.unwrap_or(Path::new("."))));
    let wanted = prefix.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let mut near = nearest(&wanted, beside.iter().map(String::as_str));
    if near.is_empty() {
        near = beside.into_iter().take(3).collect();
    }
    Err(Error::NoCheckpoint { prefix: prefix.into(), near })
}

/// The prefix of the checkpoint that `path` means: a prefix, one of its files, or a folder that
/// has one checkpoint or says which is the newest. Nothing is opened but the file `checkpoint`.
pub fn find(path: impl AsRef<Path>) -> Result<PathBuf> {
    Ok(match locate(path.as_ref())? {
        Found::V2(prefix) | Found::V1(prefix, _) => prefix,
    })
}

/// The newest checkpoint of a folder, or the only one.
fn in_folder(folder: &Path) -> Result<Found> {
    if let Some(state) = CheckpointState::read(folder)? {
        let newest = state.model_checkpoint_path;
        // A folder that was moved still has the old absolute path in its file.
        let moved = newest.file_name().map(|name| folder.join(name));
        if let Some(found) = at_prefix(&newest).or_else(|| at_prefix(&moved?)) {
            return Ok(found);
        }
    }
    let found = prefixes_in(folder);
    match &found[..] {
        [only] => Ok(Found::V2(only.clone())),
        _ => Err(Error::WhichCheckpoint { path: folder.into(), found: names(&found) }),
    }
}

/// The checkpoint with exactly this prefix. Like TensorFlow, V2 first.
fn at_prefix(prefix: &Path) -> Option<Found> {
    if index_path(prefix).is_file() {
        return Some(Found::V2(prefix.into()));
    }
    let is_part = strip(prefix).is_some();
    if prefix.is_file() && !is_part {
        return Some(Found::V1(prefix.into(), vec![prefix.into()]));
    }
    shard_paths(prefix).map(|files| Found::V1(prefix.into(), files))
}

/// The prefix that the name of one of a checkpoint's files has.
fn strip(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let stem = name.strip_suffix(".index").or_else(|| name.strip_suffix(".meta"));
    let stem = stem.or_else(|| data_stem(name))?;
    Some(path.with_file_name(stem))
}

/// `a` of `a.data-00000-of-00001`
fn data_stem(name: &str) -> Option<&str> {
    let (stem, numbers) = name.rsplit_once(".data-")?;
    let (shard, shards) = numbers.split_once("-of-")?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (is_number(shard) && is_number(shards)).then_some(stem)
}

fn data_beside(prefix: &Path) -> Option<PathBuf> {
    let folder = prefix.parent().filter(|folder| !folder.as_os_str().is_empty());
    let files = folder.unwrap_or(Path::new(".")).read_dir().ok()?.flatten();
    let mut data: Vec<PathBuf> = files
        .filter(|file| {
            let name = file.file_name();
            name.to_str().and_then(data_stem).is_some_and(|stem| prefix.ends_with(stem))
        })
        .map(|file| file.path())
        .collect();
    data.sort();
    data.into_iter().next()
}

/// The prefixes of all V2 checkpoints in a folder, sorted.
pub fn prefixes_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(files) = folder.read_dir() else { return Vec::new() };
    let stem = |name: std::ffi::OsString| Some(name.to_str()?.strip_suffix(".index")?.to_owned());
    let stems: BTreeSet<String> =
        files.flatten().filter_map(|file| stem(file.file_name())).collect();
    stems.into_iter().filter(|s| !s.is_empty()).map(|stem| folder.join(stem)).collect()
}

fn names(prefixes: &[PathBuf]) -> Vec<String> {
    let name = |path: &PathBuf| Some(path.file_name()?.to_string_lossy().into_owned());
    prefixes.iter().filter_map(name).collect()
}
