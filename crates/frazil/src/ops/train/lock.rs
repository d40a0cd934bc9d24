//! One run at a time in a folder: two would write over each other's checkpoints.

use std::fs::{File, TryLockError};
use std::path::Path;

use crate::ops::make_folder;
use crate::{Error, Result};

const NAME: &str = ".frazil.lock";

/// Whether a run has written into this folder.
pub(crate) fn was_here(folder: &Path) -> bool {
    folder.join(NAME).is_file()
}

/// What a run leaves in its folder: names, or how they begin.
const LEFT: [&str; 6] =
    ["model.ckpt-", "events.out.tfevents.", "eval", "checkpoint", "graph.pbtxt", "report.html"];

/// Takes away what a run has left in its folder, so that one can begin anew; all else stays.
pub(crate) fn clear(folder: &Path) -> Result<()> {
    let _lock = Lock::take(folder)?;
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |source| frazil_tensor::Error::Io { action: "remove", path, source }
    };
    for entry in std::fs::read_dir(folder).map_err(failed(folder))? {
        let path = entry.map_err(failed(folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_left = LEFT.iter().any(|left| match left.ends_with(['-', '.']) {
            true => name.starts_with(left),
            false => name == *left,
        });
        if is_left {
            let removed = match path.is_dir() {
                true => std::fs::remove_dir_all(&path),
                false => std::fs::remove_file(&path),
            };
            removed.map_err(failed(&path))?;
        }
    }
    Ok(())
}

/// Held while a run writes into a folder; the system lets go of it when the process ends, however that is.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "it is held, not used")] File);

impl Lock {
    /// Takes the folder, which is made if need be. Where the file system has no locks, nothing is locked.
    pub(crate) fn take(folder: &Path) -> Result<Self> {
        make_folder(folder)?;
        let path = folder.join(NAME);
        let file = File::create(&path).map_err(|source| frazil_tensor::Error::Io {
            action: "create",
            path,
            source,
        })?;
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(Error::Usage {
                what: format!("another run is training in `{}`", folder.display()),
                hint: "wait for its end, or choose another folder".into(),
            });
        }
        Ok(Self(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_runs_stays() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        drop(Lock::take(folder).unwrap());
        let left = ["model.ckpt-7.index", "checkpoint", "eval/events.out.tfevents.1.a"];
        let others = ["bert_model.ckpt.index", "checkpoint.txt", "evaluation", "model.ckpt"];
        std::fs::create_dir(folder.join("eval")).unwrap();
        left.iter().chain(&others).for_each(|name| std::fs::write(folder.join(name), "").unwrap());
        clear(folder).unwrap();
        assert!(others.iter().all(|name| folder.join(name).is_file()));
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1 + others.len());
        // Nor is anything taken from under a run.
        let _lock = Lock::take(folder).unwrap();
        assert!(clear(folder).is_err());
    }

    #[test]
    fn one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("new");
        let lock = Lock::take(&folder).unwrap();
        let said = Lock::take(&folder).err().unwrap().to_string();
        assert!(said.contains("another run is training in"), "{said}");
        drop(lock);
        Lock::take(&folder).unwrap();
    }
}
