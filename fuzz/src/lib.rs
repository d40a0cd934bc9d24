//! What the fuzz targets share: the parsers of the mutation test, and the two that need files
//! on disk.

#[path = "../../crates/frazil/tests/hostile/parsers.rs"]
pub mod parsers;

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use tempfile::TempDir;

/// A folder for this process; the file system in memory, where there is one, spares the disk.
fn scratch() -> PathBuf {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let made = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let folder = made.expect("a folder for the files can be made");
        // Shards of plain bytes, so that what an index points at is there.
        let shard: Vec<u8> = (0..8192u32).map(|i| i as u8).collect();
        for (i, n) in [(0, 1), (0, 2), (1, 2)] {
            let path = folder.path().join(format!("x.data-{i:05}-of-{n:05}"));
            fs::write(path, &shard).expect("the folder takes files");
        }
        folder
    });
    folder.path().to_path_buf()
}

/// A V2 checkpoint with this index.
pub fn bundle(index: &[u8]) {
    let prefix = scratch().join("x");
    fs::write(prefix.with_extension("index"), index).expect("the folder takes files");
    parsers::checkpoint(&prefix);
}

/// A V1 checkpoint in one file.
pub fn checkpoint_v1(file: &[u8]) {
    let prefix = scratch().join("v1");
    fs::write(&prefix, file).expect("the folder takes files");
    parsers::checkpoint(&prefix);
}
