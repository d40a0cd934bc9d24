//! What a user means by naming a folder.

use std::fs;
use std::path::{Path, PathBuf};

use frazil_bert::sentence;
use frazil_tf::checkpoint;

use super::locate::{Kind, Located, Need, of_file, parent};
use crate::{Error, Result};

/// What PyTorch's own files of weights are called.
const PYTORCH: &str = "pytorch_model.bin";

/// The model in a folder, in the order in which TensorFlow's own tools look: a SavedModel, the
/// checkpoint that the file `checkpoint` names, a lone checkpoint, safetensors, a lone graph;
/// else the same one folder below, if that is the only one. A model of sentence-transformers says
/// itself where its transformer lies.
pub(super) fn locate(folder: &Path, need: Need) -> Result<Located> {
    let names = entries(folder);
    let has = |name: &str| names.iter().any(|n| n == name);
    if has(sentence::MODULES)
        && let Some(below) = sentence::transformer_below(folder)?.filter(|below| below.is_dir())
    {
        let note = format!("`{}` names `{}`", sentence::MODULES, below.display());
        return Ok(locate(&below, need)?.note(note));
    }
    if has("saved_model.pb") || has("saved_model.pbtxt") {
        return Ok(Located::new(Kind::SavedModel, folder));
    }
    if has("checkpoint") && folder.join("checkpoint").is_file() {
        return by_state(folder, &folder.join("checkpoint"));
    }
    if let Some(found) = by_index(folder) {
        return Ok(found);
    }
    if has("model.safetensors.index.json") || has("model.safetensors") {
        let name = if has("model.safetensors") { "model.safetensors" } else { "" };
        return Ok(Located::new(Kind::SafeTensors, folder.join(name)));
    }
    let files: Vec<&String> = names.iter().filter(|name| is_model_file(name)).collect();
    if let [only] = files.as_slice() {
        let path = folder.join(only);
        return Ok(of_file(&path, need)?.note(format!("found `{}`", path.display())));
    }
    below(folder, &names, need).unwrap_or_else(|| {
        if names.iter().any(|name| name == PYTORCH) {
            return of_file(&folder.join(PYTORCH), need); // which says what to do about it
        }
        Err(Error::NothingInFolder { path: folder.to_path_buf(), entries: names })
    })
}

/// The checkpoint that a `checkpoint` file names.
pub(super) fn by_state(folder: &Path, state: &Path) -> Result<Located> {
    let prefix = checkpoint::find(folder)?;
    let note = format!("`{}` names `{}`", state.display(), prefix.display());
    Ok(Located::new(Kind::Checkpoint, prefix).note(note))
}

/// The only checkpoint, or the one with the highest step.
fn by_index(folder: &Path) -> Option<Located> {
    let mut prefixes = checkpoint::prefixes_in(folder);
    prefixes.sort_by_key(|prefix| step(prefix));
    let newest = prefixes.pop()?;
    let mut note = format!("found the checkpoint `{}`", newest.display());
    if !prefixes.is_empty() {
        note.push_str(&format!(", the newest of {}; name another to see it", prefixes.len() + 1));
    }
    Some(Located::new(Kind::Checkpoint, newest).note(note))
}

/// `27` of `model.ckpt-27`.
fn step(prefix: &Path) -> u64 {
    let name = prefix.file_name().unwrap_or_default().to_string_lossy();
    name.rsplit('-').next().and_then(|step| step.parse().ok()).unwrap_or(0)
}

fn is_model_file(name: &str) -> bool {
    [".pb", ".pbtxt", ".meta", ".safetensors", ".npz", ".zip", ".onnx", ".xml"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// A folder that only holds exports (`saved_models/1794770949`): the newest. A folder that only
/// holds the folder of an unpacked zip: that one.
fn below(folder: &Path, names: &[String], need: Need) -> Option<Result<Located>> {
    let folders: Vec<PathBuf> =
        names.iter().map(|name| folder.join(name)).filter(|path| path.is_dir()).collect();
    let exports = |path: &&PathBuf| {
        path.join("saved_model.pb").is_file() || path.join("saved_model.pbtxt").is_file()
    };
    if let Some(newest) = folders.iter().filter(exports).max_by_key(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (name.parse::<u64>().unwrap_or(0), name)
    }) {
        let note = format!("found the SavedModel `{}`", newest.display());
        return Some(Ok(Located::new(Kind::SavedModel, newest).note(note)));
    }
    match folders.as_slice() {
        // One level only: `entries` of the lone folder decide, not what lies deeper.
        [only] if !entries(only).is_empty() && has_model(only) => Some(locate(only, need)),
        _ => None,
    }
}

fn has_model(folder: &Path) -> bool {
    entries(folder)
        .iter()
        .any(|name| name == "checkpoint" || name.ends_with(".index") || is_model_file(name))
}

/// Names in a folder, sorted; none if it cannot be read.
pub(super) fn entries(folder: &Path) -> Vec<String> {
    let Ok(listing) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> = listing
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    names
}

/// A MetaGraph's checkpoint: the one of the same name, else the only one beside it, as for
/// `bert_model_dyn.ckpt.meta` beside `bert_model.ckpt.index`.
pub(crate) fn checkpoint_of_meta(meta: &Path) -> Option<PathBuf> {
    checkpoint::find(meta).ok().or_else(|| match checkpoint::prefixes_in(parent(meta)).as_slice() {
        [only] => Some(only.clone()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_step_wins() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["model.ckpt-9.index", "model.ckpt-100.index", "x"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let found = by_index(folder.path()).unwrap();
        assert_eq!(found.path, folder.path().join("model.ckpt-100"));
        assert!(found.notes[0].contains("newest of 2"), "{:?}", found.notes);
    }
}
