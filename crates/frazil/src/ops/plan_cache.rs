//! Graphs that are raised and differentiated, stored for later runs.
//!
//! A stored plan counts only for what it was made of and for the program that made it: both stand in the
//! file in full. Anything else there, a damaged file too, is made anew and written over. Where nothing can
//! be stored, work goes on without.
//!
//! Layout: a line `frazil plan CRC`, with the CRC-32C of what follows in hexadecimal, then JSON.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use frazil_tensor::file;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::make_folder;
use crate::Result;

/// A folder of plans.
#[derive(Clone, Debug)]
pub struct PlanCache {
    folder: PathBuf,
    /// Whether new plans are stored: one of several processes is enough.
    store: bool,
}

/// A plan, and where it is stored.
#[derive(Clone, Debug)]
pub struct Cached<T> {
    /// The plan.
    pub plan: T,
    /// Its file.
    pub path: PathBuf,
    /// What became of that.
    pub kept: Kept,
}

/// What became of the file of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It was there.
    Before,
    /// It is there now.
    Now,
    /// It is not there: nobody wanted it, or it cannot be written, for this reason.
    Not(Option<String>),
}

#[derive(Serialize, Deserialize)]
struct Stored<K, T> {
    key: K,
    plan: T,
}

impl PlanCache {
    /// The plans in this folder, which is made when the first one is stored.
    pub fn new(folder: impl Into<PathBuf>, store: bool) -> Self {
        Self { folder: folder.into(), store }
    }

    /// The plan of that kind for these `parts`, which say all that it depends on beside the program:
    /// the stored one, or else one that is made, and stored.
    pub fn plan<T: Serialize + DeserializeOwned>(
        &self,
        kind: &str,
        parts: &impl Debug,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<Cached<T>> {
        let program = program();
        let key = format!("{} {parts:?}", program.as_deref().unwrap_or_default());
        let name = format!("{kind}-{:08x}.plan", crc32c::crc32c(key.as_bytes()));
        let path = self.folder.join(name);
        if let Some(plan) = read(&path, &key).filter(|_| program.is_some()) {
            return Ok(Cached { plan, path, kept: Kept::Before });
        }
        let plan = make()?;
        let kept = match self.store && program.is_some() {
            false => Kept::Not(None),
            true => match self.write(&path, &encode(&Stored { key, plan: &plan })) {
                Ok(()) => Kept::Now,
                Err(error) => Kept::Not(Some(error.to_string())),
            },
        };
        Ok(Cached { plan, path, kept })
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        make_folder(&self.folder)?;
        Ok(file::write(path, bytes)?)
    }
}

/// What tells one build of the program from another, whose passes may differ; none where nothing does.
fn program() -> Option<String> {
    let of = std::env::current_exe().and_then(|path| path.metadata()).ok()?;
    let changed = of.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{} {} {}", env!("CARGO_PKG_VERSION"), of.len(), changed.as_nanos()))
}

fn first_line(body: &[u8]) -> String {
    format!("frazil plan {:08x}\n", crc32c::crc32c(body))
}

fn encode<T: Serialize>(stored: &Stored<String, &T>) -> Vec<u8> {
    let body = serde_json::to_vec(stored).expect("a graph has nothing that JSON lacks");
    [first_line(&body).as_bytes(), &body].concat()
}

/// The plan, if there is one, and it is for this key.
fn read<T: DeserializeOwned>(path: &Path, key: &str) -> Option<T> {
    let bytes = std::fs::read(path).ok()?;
    let begin = bytes.iter().position(|byte| *byte == b'\n')? + 1;
    let (line, body) = bytes.split_at(begin);
    let stored: Stored<String, T> =
        (line == first_line(body).as_bytes()).then(|| serde_json::from_slice(body).ok())??;
    (stored.key == key).then_some(stored.plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_made_once_for_each_key_and_again_if_its_file_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let cache = PlanCache::new(folder.path().join("new"), true);
        let get = |parts: &str, number: u32| cache.plan("test", &parts, || Ok(number)).unwrap();
        let first = get("a", 1);
        assert_eq!((first.plan, first.kept), (1, Kept::Now));
        let again = get("a", 2);
        assert_eq!((again.plan, again.kept, &again.path), (1, Kept::Before, &first.path));
        assert_eq!(get("b", 3).plan, 3);

        let whole = std::fs::read(&first.path).unwrap();
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        let cut = whole[..whole.len() - 1].to_vec();
        for damaged in [flipped, cut, Vec::new(), b"no line".to_vec()] {
            std::fs::write(&first.path, damaged).unwrap();
            let anew = get("a", 4);
            assert_eq!((anew.plan, anew.kept), (4, Kept::Now));
            assert_eq!(get("a", 5).kept, Kept::Before);
        }
    }

    #[test]
    fn a_file_under_the_name_of_another_key_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let cache = PlanCache::new(folder.path(), true);
        let (a, b) = ("a", "b");
        let of_a = cache.plan("test", &a, || Ok(1)).unwrap().path;
        let of_b = cache.plan("test", &b, || Ok(2)).unwrap().path;
        std::fs::copy(of_a, &of_b).unwrap();
        assert_eq!(cache.plan("test", &b, || Ok(3)).unwrap().plan, 3);
    }

    #[test]
    fn who_does_not_store_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let cache = PlanCache::new(folder.path(), false);
        assert_eq!(cache.plan("test", &1, || Ok(1)).unwrap().kept, Kept::Not(None));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn work_goes_on_where_nothing_can_be_stored() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let cached = PlanCache::new(file, true).plan("test", &1, || Ok(7)).unwrap();
        assert!(matches!(cached.kept, Kept::Not(Some(_))) && cached.plan == 7, "{:?}", cached.kept);
    }
}
