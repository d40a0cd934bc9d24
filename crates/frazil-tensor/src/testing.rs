//! Where tests find the shared goldens. Not part of the product: feature `testing` only.

use std::path::{Path, PathBuf};

/// `name` below the folder `shared` beside the checkout, if that is there.
///
/// A test that gets `None` has said so loudly and returns. Under `CI=true` the folder must be
/// there, so that the checks on real data cannot vanish unnoticed.
#[allow(clippy::print_stderr, reason = "a skipped test must be heard")]
pub fn shared(name: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let path = root.join(name);
    if path.exists() {
        return Some(path);
    }
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "`{}` is missing: these checks must run in CI",
        path.display()
    );
    eprintln!("SKIPPED: `{}` is not here", path.display());
    None
}
