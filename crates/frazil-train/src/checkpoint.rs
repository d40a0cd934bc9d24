//! Checkpoints of a training, as TensorFlow's Estimator leaves them in a folder: `model.ckpt-STEP`
//! with `.index`, `.data` and `.meta`, the file `checkpoint` that names the newest, and `graph.pbtxt`.
//!
//! A checkpoint is named in `checkpoint` when all of its files are there, so whenever a run is killed, the
//! newest that is named is whole. Its index is written last and removed first: what has none is left of one
//! that a killed run had begun to write, or to remove. Older ones are removed when a step from the newest was
//! taken: weights from which no step can be taken are no reason to lose those before them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use frazil_tensor::Tensor;
use frazil_tf::bundle::{BundleWriter, WriteOptions, data_path, index_path};
use frazil_tf::checkpoint_state::CheckpointState;
use frazil_tf::proto::MetaGraphDef;
use frazil_tf::{graph_def, meta_graph};

use crate::Result;

/// Writes checkpoints into a folder and removes old ones.
pub struct Keeper {
    folder: PathBuf,
    keep: usize,
    meta: MetaGraphDef,
    /// The newest last.
    all: Vec<PathBuf>,
    /// One that stays, however old.
    best: Option<PathBuf>,
}

impl Keeper {
    /// For a folder, which is made if need be; the newest `keep` checkpoints stay, 0 for all, and the best
    /// beside them. `meta` is what goes beside each. Those that the folder names already are counted in.
    pub fn open(folder: impl Into<PathBuf>, keep: usize, meta: MetaGraphDef) -> Result<Self> {
        let folder = folder.into();
        std::fs::create_dir_all(&folder).map_err(|source| frazil_tensor::Error::Io {
            action: "create",
            path: folder.clone(),
            source,
        })?;
        let mut all = Vec::new();
        if let Some(state) = CheckpointState::read(&folder)? {
            // The file may have been edited, to go back to an earlier one.
            let newest = state.model_checkpoint_path;
            all = state.all_model_checkpoint_paths;
            all.retain(|path| *path != newest);
            all.push(newest);
            all.retain(|path| is_there(path));
        }
        Ok(Self { folder, keep, meta, all, best: None })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The newest checkpoint.
    pub fn newest(&self) -> Option<&Path> {
        self.all.last().map(PathBuf::as_path)
    }

    /// Lets this checkpoint stay, and the one that stayed before go with the others.
    pub fn keep_best(&mut self, prefix: impl Into<PathBuf>) {
        self.best = Some(prefix.into());
    }

    /// Writes `graph.pbtxt`.
    pub fn write_graph(&self) -> Result<()> {
        if let Some(graph) = &self.meta.graph_def {
            graph_def::write_text(self.folder.join("graph.pbtxt"), graph)?;
        }
        Ok(())
    }

    /// Writes the checkpoint of a step. Older ones stay until [`Keeper::prune`] is called.
    pub fn save(
        &mut self,
        step: u64,
        state: impl IntoIterator<Item = Result<(String, Tensor)>>,
    ) -> Result<PathBuf> {
        let prefix = path(&self.folder, step);
        if let Err(error) = self.write(&prefix, state) {
            remove_parts(&prefix);
            return Err(error);
        }
        self.all.retain(|path| *path != prefix);
        self.all.push(prefix.clone());
        let named = self.name_all();
        if named.is_err() {
            // What is not named nobody else would remove.
            self.all.pop();
            remove(&prefix);
        }
        named.map(|()| prefix)
    }

    fn write(
        &self,
        prefix: &Path,
        state: impl IntoIterator<Item = Result<(String, Tensor)>>,
    ) -> Result<()> {
        meta_graph::write(meta_path(prefix), &self.meta)?;
        let mut writer = BundleWriter::create(prefix, WriteOptions::default())?;
        for tensor in state {
            let (name, tensor) = tensor?;
            writer.add(&name, &tensor)?;
        }
        Ok(writer.finish()?)
    }

    /// Removes what runs that were killed left of checkpoints. Those that are whole stay, whoever wrote them;
    /// and all does where none is named: it may be anybody's.
    pub fn remove_parts(&self) {
        if self.all.is_empty() {
            return;
        }
        let names = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let steps: BTreeSet<u64> = names.filter_map(|entry| step_of(&entry.path())).collect();
        steps.into_iter().for_each(|step| remove_parts(&path(&self.folder, step)));
    }

    /// Removes those that are too old.
    pub fn prune(&mut self) -> Result<()> {
        let old = if self.keep == 0 { 0 } else { self.all.len().saturating_sub(self.keep) };
        let mut newer = self.all.split_off(old);
        let (best, gone): (Vec<_>, Vec<_>) =
            self.all.drain(..).partition(|path| Some(path) == self.best.as_ref());
        self.all = best;
        self.all.append(&mut newer);
        if !gone.is_empty() {
            // The other way round, a run that is killed between the two would leave what nobody names.
            gone.iter().for_each(|old| remove(old));
            self.name_all()?;
        }
        Ok(())
    }

    /// Takes one back, if there is another.
    pub fn take_back(&mut self, prefix: &Path) -> Result<()> {
        if self.all.iter().any(|path| path != prefix) {
            self.all.retain(|path| path != prefix);
            self.name_all()?;
            remove(prefix);
        }
        Ok(())
    }

    /// Writes `checkpoint`.
    fn name_all(&self) -> Result<()> {
        let state = CheckpointState {
            model_checkpoint_path: self.all.last().cloned().unwrap_or_default(),
            all_model_checkpoint_paths: self.all.clone(),
            ..CheckpointState::default()
        };
        Ok(state.write(&self.folder)?)
    }
}

/// What the checkpoint of a step is called.
pub fn path(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!("model.ckpt-{step}"))
}

/// The step of a checkpoint, or of one of its files.
fn step_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?.strip_prefix("model.ckpt-")?;
    name.split('.').next()?.parse().ok()
}

/// The MetaGraph beside a checkpoint.
pub fn meta_path(prefix: &Path) -> PathBuf {
    let mut path = prefix.as_os_str().to_owned();
    path.push(".meta");
    path.into()
}

/// Whether there is a checkpoint.
pub fn is_there(prefix: &Path) -> bool {
    index_path(prefix).is_file()
}

/// What cannot be removed stays: it is only in the way.
fn remove(prefix: &Path) {
    for path in [index_path(prefix), data_path(prefix, 0, 1), meta_path(prefix)] {
        let _ = std::fs::remove_file(path);
    }
}

/// Removes what is there of a checkpoint without an index. A checkpoint of TensorFlow's first format has none:
/// it is a file of the name itself.
fn remove_parts(prefix: &Path) {
    if !is_there(prefix) && !prefix.exists() {
        remove(prefix);
    }
}

/// The newest checkpoint that a folder names; none if it names none.
pub fn newest(folder: &Path) -> Result<Option<PathBuf>> {
    Ok(CheckpointState::read(folder)?.map(|state| state.model_checkpoint_path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(step: u64) -> Vec<Result<(String, Tensor)>> {
        vec![Ok(("w".to_owned(), Tensor::from_vec([1], vec![step as f32]).unwrap()))]
    }

    fn named(folder: &Path) -> Vec<String> {
        let state = CheckpointState::read(folder).unwrap().unwrap();
        let name = |path: PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        state.all_model_checkpoint_paths.into_iter().map(name).collect()
    }

    #[test]
    fn old_ones_go_but_for_the_best() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Keeper::open(folder.path(), 2, MetaGraphDef::default()).unwrap();
        let mut keeper = open();
        assert_eq!((keeper.newest(), newest(folder.path()).unwrap()), (None, None));
        let first = keeper.save(0, state(0)).unwrap();
        keeper.keep_best(&first);
        for step in [10, 20, 30] {
            keeper.save(step, state(step)).unwrap();
            // One more than is kept, until it is certain that the newest is of use.
            assert!(index_path(&path(folder.path(), step - 10)).exists());
            keeper.prune().unwrap();
        }
        assert_eq!(named(folder.path()), ["model.ckpt-0", "model.ckpt-20", "model.ckpt-30"]);
        assert!(!index_path(&folder.path().join("model.ckpt-10")).exists());
        // Another run goes on, and nothing is the best any more.
        let mut keeper = open();
        let last = keeper.save(40, state(40)).unwrap();
        keeper.prune().unwrap();
        assert_eq!(named(folder.path()), ["model.ckpt-30", "model.ckpt-40"]);
        assert_eq!(newest(folder.path()).unwrap(), Some(last.clone()));
        assert!(!meta_path(&first).exists() && meta_path(&last).exists());
        // One that is of no use goes again, but never the only one.
        for left in ["model.ckpt-30", "model.ckpt-30"] {
            let newest = keeper.newest().unwrap().to_path_buf();
            keeper.take_back(&newest).unwrap();
            assert_eq!(named(folder.path()), [left]);
        }
        assert!(!is_there(&last));
    }

    /// Whoever names an earlier checkpoint in `checkpoint` goes back to it.
    #[test]
    fn the_newest_is_the_one_that_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Keeper::open(folder.path(), 2, MetaGraphDef::default()).unwrap();
        let mut keeper = open();
        let [first, second] = [1, 2].map(|step| keeper.save(step, state(step)).unwrap());
        for all in [vec![first.clone(), second.clone()], vec![]] {
            let state = CheckpointState {
                model_checkpoint_path: first.clone(),
                all_model_checkpoint_paths: all,
                ..CheckpointState::default()
            };
            state.write(folder.path()).unwrap();
            assert_eq!(open().newest(), Some(&*first));
        }
        let mut keeper = open();
        let third = keeper.save(3, state(3)).unwrap();
        keeper.prune().unwrap();
        assert_eq!(named(folder.path()), ["model.ckpt-1", "model.ckpt-3"]);
        keeper.take_back(&third).unwrap();
        assert_eq!(newest(folder.path()).unwrap(), Some(first));
    }

    /// The file `checkpoint` may have absolute paths, as TensorFlow's plain `Saver` writes them.
    #[test]
    fn the_best_stays_by_whatever_name() {
        let folder = tempfile::tempdir_in(".").unwrap();
        let dir = Path::new(folder.path().file_name().unwrap());
        let open = || Keeper::open(dir, 1, MetaGraphDef::default()).unwrap();
        open().save(1, state(1)).unwrap();
        let absolute = std::path::absolute(path(dir, 1)).unwrap();
        let text = format!("model_checkpoint_path: {absolute:?}\n");
        std::fs::write(dir.join("checkpoint"), text).unwrap();
        let mut keeper = open();
        keeper.keep_best(path(dir, 1));
        for step in [2, 3] {
            keeper.save(step, state(step)).unwrap();
            keeper.prune().unwrap();
        }
        assert_eq!(named(dir), ["model.ckpt-1", "model.ckpt-3"]);
        assert!(is_there(&path(dir, 1)));
    }

    /// A run can be killed while it writes a checkpoint, and while it removes one.
    #[test]
    fn what_killed_runs_left_goes() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Keeper::open(folder.path(), 5, MetaGraphDef::default()).unwrap();
        let at = |step| path(folder.path(), step);
        let touch = |path: PathBuf| std::fs::write(path, "").unwrap();
        let files = || std::fs::read_dir(folder.path()).unwrap().count();
        // Where nothing is named, it may be anybody's.
        touch(meta_path(&at(1)));
        open().remove_parts();
        assert_eq!(files(), 1);
        let mut keeper = open();
        for step in [2, 3, 4] {
            keeper.save(step, state(step)).unwrap();
        }
        // Whole by themselves, without a graph, and of TensorFlow's first format.
        std::fs::remove_file(meta_path(&at(4))).unwrap();
        touch(at(6));
        touch(meta_path(&at(6)));
        touch(folder.path().join("model.ckpt-best.meta"));
        CheckpointState::new(at(3)).write(folder.path()).unwrap();
        let whole = files() - 1;
        touch(data_path(&at(1), 0, 1));
        touch(meta_path(&at(8)));
        open().remove_parts();
        assert_eq!(files(), whole);
        assert!([2, 3, 4].into_iter().all(|step| is_there(&at(step))));
        assert!(!meta_path(&at(1)).exists() && meta_path(&at(6)).exists());
    }

    #[test]
    fn what_is_not_whole_is_not_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut keeper = Keeper::open(folder.path(), 5, MetaGraphDef::default()).unwrap();
        keeper.save(1, state(1)).unwrap();
        // A name that a checkpoint cannot have stops the second one on its way.
        let nameless = (String::new(), Tensor::from_vec([1], vec![2f32]).unwrap());
        let bad = state(2).into_iter().chain([Ok(nameless)]);
        assert!(keeper.save(2, bad).is_err());
        assert_eq!(named(folder.path()), ["model.ckpt-1"]);
        let files = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(files, 4, "three of the first, and `checkpoint`");
        // Nor is one whose graph cannot be written, or that cannot be named.
        std::fs::create_dir_all(meta_path(&path(folder.path(), 3)).join("in the way")).unwrap();
        assert!(keeper.save(3, state(3)).is_err());
        assert_eq!(named(folder.path()), ["model.ckpt-1"]);
        std::fs::remove_file(folder.path().join("checkpoint")).unwrap();
        std::fs::create_dir_all(folder.path().join("checkpoint/in the way")).unwrap();
        assert!(keeper.save(4, state(4)).is_err());
        assert!(![3, 4].iter().any(|step| is_there(&path(folder.path(), *step))));
        assert_eq!(keeper.newest(), Some(&*path(folder.path(), 1)));
    }
}
