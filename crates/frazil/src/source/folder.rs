//! What a user means by naming a folder.

use std::fs;
use std::path::{Path, PathBuf};

use frazil_tf::checkpoint_state::CheckpointState;

use super::locate::{Kind, Located, Need, is_checkpoint, of_file, parent, without};
use crate::{Error, Result};

/// The model in a folder, in the order in which TensorFlow's own tools look: a SavedModel, the
/// checkpoint that the file `checkpoint` names, a lone checkpoint, safetensors, a lone graph;
/// else the same one folder below, if that is the only one.
pub(super) fn locate(folder: &Path, need: Need) -> Result<Located> {
    let names = entries(folder);
    let has = |name: &str| names.iter().any(|n| n == name);
    if has("saved_model.pb") || has("saved_model.pbtxt") {
        return Ok(Located::new(Kind::SavedModel, folder));
    }
    if has("checkpoint") && folder.join("checkpoint").is_file() {
        return by_state(folder, &folder.join("checkpoint"));
    }
    if let Some(found) = by_index(folder, &names) {
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
        Err(Error::NothingInFolder { path: folder.to_path_buf(), entries: names })
    })
}

/// The checkpoint that a `checkpoint` file names. Paths in it are those of the machine that
/// wrote it: one that is absolute and gone is looked for beside the file.
pub(super) fn by_state(folder: &Path, state: &Path) -> Result<Located> {
    let Some(read) = CheckpointState::read(folder)? else {
        return Err(Error::NotFound { path: state.to_path_buf(), near: Vec::new() });
    };
    let named = read.model_checkpoint_path;
    let beside = folder.join(named.file_name().unwrap_or_default());
    let candidates = [named, beside];
    let there = |prefix: &PathBuf| prefix.is_file() || is_checkpoint(prefix);
    let prefix = candidates.iter().find(|prefix| there(prefix)).unwrap_or(&candidates[0]);
    let note = format!("`{}` names `{}`", state.display(), prefix.display());
    Ok(Located::new(Kind::Checkpoint, prefix).note(note))
}

/// The only `.index`, or the one with the highest step.
fn by_index(folder: &Path, names: &[String]) -> Option<Located> {
    let mut prefixes: Vec<&str> =
        names.iter().filter_map(|name| name.strip_suffix(".index")).collect();
    prefixes.sort_by_key(|prefix| step(prefix));
    let newest = prefixes.pop()?;
    let path = folder.join(newest);
    let mut note = format!("found the checkpoint `{}`", path.display());
    if !prefixes.is_empty() {
        note.push_str(&format!(", the newest of {}; name another to see it", prefixes.len() + 1));
    }
    Some(Located::new(Kind::Checkpoint, path).note(note))
}

/// `27` of `model.ckpt-27`.
fn step(prefix: &str) -> u64 {
    prefix.rsplit('-').next().and_then(|step| step.parse().ok()).unwrap_or(0)
}

fn is_model_file(name: &str) -> bool {
    [".pb", ".pbtxt", ".meta", ".safetensors", ".npz", ".zip"].iter().any(|end| name.ends_with(end))
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

/// A MetaGraph's checkpoint: the same name without `.meta`.
pub(crate) fn checkpoint_of_meta(meta: &Path) -> Option<PathBuf> {
    let prefix = without(meta, ".meta");
    if prefix != meta && is_checkpoint(&prefix) {
        return Some(prefix);
    }
    // `bert_model_dyn.ckpt.meta` beside `bert_model.ckpt.index`: take it if it is the only one.
    let folder = parent(meta);
    let names = entries(folder);
    let mut prefixes = names.iter().filter_map(|name| name.strip_suffix(".index"));
    match (prefixes.next(), prefixes.next()) {
        (Some(only), None) => Some(folder.join(only)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_step_wins() {
        let names: Vec<String> =
            ["model.ckpt-9.index", "model.ckpt-100.index", "x"].map(String::from).into();
        let found = by_index(Path::new("d"), &names).unwrap();
        assert_eq!(found.path, Path::new("d/model.ckpt-100"));
        assert!(found.notes[0].contains("newest of 2"), "{:?}", found.notes);
    }
}
