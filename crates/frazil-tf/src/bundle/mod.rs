//! V2 checkpoints, in TensorFlow's source "tensor bundles": a table `<prefix>.index` of names,
//! types, shapes and places, and the raw values in `<prefix>.data-00000-of-00001` (or several).
//!
//! Key `""` of the table is the header; the other keys are variable names. A partitioned
//! variable's entry lists its slices, and each slice has an entry of its own under a coded key.
//! Values are little-endian and row-major, without gaps; strings have a form of their own.
//! Left out: big-endian files (refused by name) and tensors of variants (listed as unreadable).

mod reader;
mod strings;
mod writer;

use std::path::{Path, PathBuf};

pub use reader::{Bundle, Unreadable};
pub(crate) use reader::{Place, Stored, check_crc, check_version};
pub use writer::{BundleWriter, WriteOptions};

/// The version of the format that this reads and writes.
const VERSION: i32 = 1;

/// `<prefix>.index`
pub fn index_path(prefix: &Path) -> PathBuf {
    suffixed(prefix, ".index")
}

/// `<prefix>.data-00000-of-00001`
pub fn data_path(prefix: &Path, shard: u32, shards: u32) -> PathBuf {
    suffixed(prefix, &format!(".data-{shard:05}-of-{shards:05}"))
}

/// The prefix with more text behind it. A prefix is no file: `.ckpt-40` is not its extension.
fn suffixed(prefix: &Path, suffix: &str) -> PathBuf {
    let mut path = prefix.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}
